//! An account of $5 on the models that the gateway ships, with their prices and limits.

use serde_json::json;

use crate::harness::{Gateway, node};

use super::agent::Agent;
use super::cell;
use super::script::Session;

/// The shipped models under which the agents work by default or often.
const SHIPPED: [(Agent, &str); 8] = [
    (Agent::ClaudeCode, "claude-opus-4-8"),
    (Agent::ClaudeCode, "claude-opus-5"),
    (Agent::ClaudeCode, "claude-sonnet-5"),
    (Agent::ClaudeCode, "claude-haiku-4-5"),
    (Agent::CodexHttp, "gpt-5.5"),
    (Agent::CodexHttp, "gpt-5.6-sol"),
    (Agent::GeminiCli, "gemini-2.5-pro"),
    (Agent::GeminiCli, "gemini-3.1-pro-preview"),
];
/// The upstreams of these models.
const UPSTREAMS: [(&str, &str, &str); 3] =
    [("openai", "openai", "/v1"), ("anthropic", "anthropic", ""), ("google", "gemini", "/v1beta")];

/// The shipped models of this name alone, at simulated upstreams.
fn shipped(name: &str) -> String {
    let text = std::fs::read_to_string(super::versions::path("models.yaml")).expect("the models");
    let all: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML");
    let mut model = all["models"][name].clone();
    assert!(model.is_mapping(), "{name} is shipped");
    let targets = model["targets"].as_sequence_mut().expect("targets");
    targets.retain(|target| {
        let upstream = target["upstream"].as_str().unwrap_or_default();
        UPSTREAMS.iter().any(|(existing, ..)| *existing == upstream)
    });
    let one = serde_yaml::Mapping::from_iter([(name.into(), model)]);
    let models = serde_yaml::Mapping::from_iter([("models".into(), one.into())]);
    serde_yaml::to_string(&models).expect("YAML")
}

/// The turns of a session, and what the gateway refused.
fn session(agent: Agent, model: &str) -> (usize, String) {
    let session = Session::load();
    let work = cell::work(&session);
    let (sim, answered) = cell::upstream(&session, work.path());
    let upstreams: String = UPSTREAMS
        .iter()
        .map(|(name, protocol, path)| {
            let address = sim.addr();
            format!("  {name}: {{ protocol: {protocol}, base_url: 'http://{address}{path}' }}\n")
        })
        .collect();
    let gateway = Gateway::limited(cell::PATIENT, &upstreams, &shipped(model));
    let account = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "five"}));
    let id = account["id"].as_str().expect("an id");
    let grant = json!({"amount": "5.00", "id": "five"});
    gateway.admin("POST", &format!("/admin/v1/accounts/{id}/grants"), &grant);
    let path = format!("/admin/v1/accounts/{id}/keys");
    let key = gateway.admin("POST", &path, &json!({"name": "five"}));
    let key = key["key"].as_str().expect("a key");
    let base_url = format!("http://{}", gateway.address);
    let prompt = session.prompt();
    let ended = agent.run(&node::commands(), (&base_url, key), model, work.path(), prompt);
    let turns = answered.lock().expect("no poison").iter().filter(|one| one.in_session).count();
    let refused = super::check::refusals(&gateway.metrics()).join(", ");
    let words = if ended.is_success { String::new() } else { ended.output };
    (turns, format!("{refused} {words}"))
}

#[test]
#[ignore = "a proof: it plays eight sessions"]
fn five_dollars_last_for_a_session_on_shipped_models() {
    let turns = Session::load().turns();
    let mut short = Vec::new();
    for (agent, model) in SHIPPED {
        let (played, words) = session(agent, model);
        println!("{agent:?} {model}: {played} turns {words}");
        if played != turns {
            short.push(model);
        }
    }
    assert!(short.is_empty(), "no session on {short:?}");
}
