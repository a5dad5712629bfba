//! Requests of clients that the tests do not run: bodies recorded, or made after a client's public source, which
//! each file names. They are sent over every dialect, streamed and whole.

use serde_json::Value;

use crate::harness::{Gateway, ask, simulator};

use super::cell::PATIENT;
use super::upstream::Upstream;

/// The files below `tests/clients/bodies/`.
const BODIES: [(&str, &str); 4] = [
    ("Copilot Chat, chat completions", include_str!("../../clients/bodies/copilot-chat.json")),
    ("Copilot Chat, responses", include_str!("../../clients/bodies/copilot-responses.json")),
    ("Copilot Chat, messages", include_str!("../../clients/bodies/copilot-messages.json")),
    ("aider", include_str!("../../clients/bodies/aider.json")),
];

/// The answer to a recorded request: the status and the end of the body.
fn sent(gateway: &Gateway, recorded: &Value, streams: bool) -> (u16, String) {
    let mut body = recorded["body"].clone();
    body["model"] = "a-model".into();
    body["stream"] = streams.into();
    if !streams {
        body.as_object_mut().expect("an object").remove("stream_options");
    }
    let body = body.to_string();
    let headers = recorded["headers"].as_object().into_iter().flatten();
    let lines: String = headers
        .map(|(name, value)| format!("{name}: {}\r\n", value.as_str().expect("a text")))
        .chain([format!("Content-Length: {}\r\n", body.len())])
        .collect();
    let path = recorded["path"].as_str().expect("a path");
    let answer = ask(gateway.address, &gateway.post(path, &lines, &body));
    (answer.status(), String::from_utf8_lossy(&answer.body()).into_owned())
}

#[test]
fn recorded_bodies_pass_over_every_dialect() {
    let mut faults = Vec::new();
    for upstream in Upstream::ALL {
        let models = format!("models:\n{}", upstream.model("a-model", false));
        for (name, text) in BODIES {
            let recorded: Value = serde_json::from_str(text).expect("JSON");
            // What is relayed byte for byte is between the client and its provider.
            let is_native = recorded["upstream"] == upstream.title();
            let sim = simulator(if is_native { &[] } else { &["strict=on"] });
            let gateway = Gateway::limited(PATIENT, &upstream.routes(sim.addr()), &models);
            for streams in [true, false] {
                let (status, words) = sent(&gateway, &recorded, streams);
                let broke_off = ["event: error", "{\"error\":", "response.failed"];
                let is_whole = !broke_off.iter().any(|mark| words.contains(mark));
                if status != 200 || !is_whole {
                    faults.push(format!("{name} over {upstream:?}, {streams}: {status} {words}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
