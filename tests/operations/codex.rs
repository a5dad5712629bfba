//! Codex, headless, with the gateway as its provider: over WebSockets, as it asks first, and over HTTP.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Gateway, node, simulator};
use tollgate::sim::{RecordedRequest, Sim};

/// A gateway with a model of responses, and one of Anthropic's messages that is translated.
fn gateway(sim: &Sim) -> Gateway {
    let at = sim.addr();
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{at}/v1', credentials: {{ one: sk-upstream-one, two: sk-upstream-two }} }}
  a: {{ protocol: anthropic, base_url: 'http://{at}' }}\n"
    );
    let model = |name: &str, operation: &str, upstream: &str| {
        format!(
            "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 3, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: 200000, output_tokens_max: 16000 }}\n"
        )
    };
    let models = [model("native", "responses", "o"), model("translated", "messages", "a")].concat();
    Gateway::serving(&upstreams, &format!("models:\n{models}"))
}

/// Events of a Codex session in which it runs a command.
fn session(gateway: &Gateway, model: &str, over_websocket: bool) -> Vec<Value> {
    let home = tempfile::tempdir().expect("a directory");
    let work = tempfile::tempdir().expect("a directory");
    let provider = format!(
        "model_providers.tollgate={{name=\"tollgate\", base_url=\"http://{}/v1\", env_key=\"KEY\", \
         wire_api=\"responses\", supports_websockets={over_websocket}}}",
        gateway.address
    );
    let commands = node::commands();
    let output = Command::new(commands[0].join("codex"))
        .args(["exec", "--json", "--skip-git-repo-check"])
        // The model is simulated, and what it calls is no command.
        .arg("--dangerously-bypass-approvals-and-sandbox")
        .args(["-c", "model_provider=tollgate", "-c", &provider, "-m", model, "Say hello."])
        .current_dir(work.path())
        .env_clear()
        .env("PATH", node::path(&commands))
        .env("HOME", home.path())
        .env("CODEX_HOME", home.path())
        .env("KEY", &gateway.key)
        .stdin(Stdio::null())
        .output()
        .expect("codex runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The items of that type which were finished.
fn items(events: &[Value], kind: &str) -> Vec<Value> {
    let done = events.iter().filter(|event| event["type"] == "item.completed");
    done.map(|event| event["item"].clone()).filter(|item| item["type"] == kind).collect()
}

fn body(request: &RecordedRequest) -> Value {
    serde_json::from_slice(request.body.as_deref().unwrap_or_default()).unwrap_or_default()
}

#[test]
fn codex_finishes_a_session_with_a_tool_over_websockets_and_over_http() {
    let sim = simulator(&["usage=prompt=1000,completion=20"]);
    let gateway = gateway(&sim);
    let mut spent = 0.0;
    for model in ["native", "translated"] {
        for over_websocket in [true, false] {
            let before = sim.requests().len();
            let events = session(&gateway, model, over_websocket);
            let ran = items(&events, "command_execution");
            let message = items(&events, "agent_message");
            assert_eq!((ran.len(), message.len()), (1, 1), "{model} {over_websocket}: {events:?}");
            let text = message[0]["text"].as_str().unwrap_or_default();
            assert!(text.contains("Simulated upstreams answer"), "{message:?}");
            // Two turns, the second of which has all of the first: it costs what it is to cost.
            let query = sim.requests().split_off(before);
            assert_eq!(query.len(), 2, "{model} {over_websocket}: {events:?}");
            let keys: Vec<_> = query.iter().map(|query| query.header("authorization")).collect();
            assert_eq!(keys[0], keys[1], "with the credential that holds the cache");
            spent += 2.0 * (1000.0 * 3.0 + 20.0 * 15.0) / 1e6;
            if model == "native" {
                let bodies: Vec<Value> = query.iter().map(body).collect();
                let inputs = bodies.iter().map(|body| body["input"].as_array().expect("items"));
                let [first, second] = inputs.collect::<Vec<_>>()[..] else { panic!("two turns") };
                assert_eq!(first[..], second[..first.len()], "nothing has moved");
                assert_eq!(second.len(), first.len() + 2, "a call and its result");
                assert_eq!(bodies[1]["previous_response_id"], json!(null));
            }
            let reply: f64 = gateway.settled()["spent"].as_str().expect("text").parse().expect("$");
            assert!((reply - spent).abs() < 1e-9, "{model} {over_websocket}: {reply}, not {spent}");
            let turned = events.iter().filter(|event| event["type"] == "error").count();
            assert_eq!(turned, 0, "no fall-backs: {events:?}");
        }
    }
}
