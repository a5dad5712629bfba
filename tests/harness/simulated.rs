//! The simulated upstreams of the library, and models that they serve.

use tollgate::sim::{Behaviour, Sim, SimOptions};

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
/// and $10 a million of output. Further fields may follow.
pub(crate) fn chat_model(name: &str, upstream: &str) -> String {
    format!(
        "  {name}:
    operations: [chat]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 10 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
"
    )
}
