//! The simulated upstreams of the library, and models that they serve.

use tollgate::sim::{Behaviour, Sim, SimOptions};

/// A model of each family of videos, for upstreams named `dashscope`, `ark` and `xai`.
pub(crate) const VIDEO_MODELS: &str = "  vf2.7-t2v:
    operations: [video]
    targets: [{ upstream: dashscope, model: wan2.7-t2v }]
    prices: { per_second: 0.10 }
    limits: { resolutions: [720p], seconds_min: 2, seconds_max: 15 }
  sf-1-5-pro-251215:
    operations: [video]
    targets: [{ upstream: ark, model: seedance-1-5-pro-251215 }]
    prices: { output_per_1m_tokens: 2.40 }
    limits: { resolutions: [480p, 720p, 1080p], seconds_min: 4, seconds_max: 12 }
  gif-video:
    operations: [video]
    targets: [{ upstream: xai, model: grok-imagine-video }]
    prices: { per_second: 0.07 }
    limits: { resolutions: [480p, 720p], seconds_min: 1, seconds_max: 15, reference_images_max: 1 }
";

/// A simulator on a free port, with these settings as `name=value`.
pub(crate) fn simulator(settings: &[&str]) -> Sim {
    let mut behaviour = Behaviour::default();
    for setting in settings {
        behaviour.set_pair(setting).expect("a setting");
    }
    let listen = "127.0.0.1:0".parse().expect("an address");
    Sim::start(SimOptions { listen, behaviour }).expect("the simulator starts")
}

/// Lines of `models.yaml`: this model does chat at this upstream, for $1 a million tokens of input
/// and $10 a million of output, and does not reason. Further fields may follow.
pub(crate) fn chat_model(name: &str, upstream: &str) -> String {
    format!(
        "  {name}:
    operations: [chat]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 10 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
    reasoning: false
"
    )
}

/// The `upstreams` and the `models.yaml` of a gateway for videos, at a simulated provider whose answers
/// are `behaviour`. Tasks are asked about often.
pub(crate) fn videos(sim: &Sim, behaviour: &str) -> (String, &'static str) {
    let upstreams = format!(
        "  xai: {{ protocol: xai, base_url: 'http://{}/sim:{behaviour}' }}\n\
         tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms, webhook_hosts: ['127.0.0.1:*'] }}\n",
        sim.addr()
    );
    let models = "models:
  gif-video:
    operations: [video]
    targets: [{ upstream: xai, model: grok-imagine-video }]
    prices: { per_second: 0.07 }
    limits: { resolutions: [480p, 720p], seconds_min: 1, seconds_max: 15, reference_images_max: 1 }
";
    (upstreams, models)
}
