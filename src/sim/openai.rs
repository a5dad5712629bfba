//! OpenAI's protocol: which answer a request gets.

mod chat;
mod embeddings;
mod responses;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use serde_json::json;

use super::answer::Answer;
use super::asked::Asked;
use super::behaviour::{Behaviour, Refusal};
use super::recorded::Recorder;

/// Where the recorded requests are shown.
pub(super) const REQUESTS_PATH: &str = "/sim/requests";
/// The models that are listed. Requests may name any model, listed or not.
const MODELS: [&str; 2] = ["sim-chat", "sim-embedding"];
/// The answer to every chat of a blind simulator.
const BLIND_CHAT: &str = r#"{"id":"chatcmpl-sim","object":"chat.completion","created":1700000000,"model":"sim-chat","choices":[{"index":0,"message":{"role":"assistant","content":"Simulated upstreams answer without looking.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":6,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#;

/// Answers a request.
pub(super) fn answer(asked: &Asked<'_>, behaviour: &Behaviour, recorder: &Recorder) -> Answer {
    if asked.path == REQUESTS_PATH {
        return Answer::json(recorder.to_json().to_string(), &Behaviour::default());
    }
    if let Some(Refusal::Status(status)) = behaviour.faults.refusal {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = format!("The simulated upstream was told to answer {status}.");
        return Answer::error(status, &message, behaviour);
    }
    if !is_authorized(asked.headers, behaviour) {
        return Answer::error(StatusCode::UNAUTHORIZED, "Incorrect API key provided.", behaviour);
    }
    let Some(endpoint) = Endpoint::of(asked.path) else {
        let message = format!("There is no {} here.", asked.path);
        return Answer::error(StatusCode::NOT_FOUND, &message, behaviour);
    };
    if *asked.method != endpoint.method() {
        let message = format!("{} does not take {}.", asked.path, asked.method);
        return Answer::error(StatusCode::METHOD_NOT_ALLOWED, &message, behaviour);
    }
    match endpoint {
        Endpoint::Chat if behaviour.blind => Answer::json(BLIND_CHAT, behaviour),
        Endpoint::Chat => chat::answer(asked, behaviour),
        Endpoint::Embeddings => embeddings::answer(asked, behaviour),
        Endpoint::Responses => responses::answer(asked, behaviour),
        Endpoint::Models => {
            let data: Vec<_> = MODELS.iter().map(|id| model(id)).collect();
            Answer::json(json!({"object": "list", "data": data}).to_string(), behaviour)
        }
        Endpoint::Model(id) => Answer::json(model(id).to_string(), behaviour),
    }
}

enum Endpoint<'a> {
    Chat,
    Embeddings,
    Responses,
    Models,
    Model(&'a str),
}

impl<'a> Endpoint<'a> {
    /// The endpoint by the end of the path, whatever stands before.
    fn of(path: &'a str) -> Option<Self> {
        let mut segments = path.rsplit('/');
        match (segments.next()?, segments.next()?) {
            ("completions", "chat") => Some(Self::Chat),
            ("embeddings", _) => Some(Self::Embeddings),
            ("responses", _) => Some(Self::Responses),
            ("models", _) => Some(Self::Models),
            (id, "models") => Some(Self::Model(id)),
            _ => None,
        }
    }

    fn method(&self) -> Method {
        match self {
            Self::Chat | Self::Embeddings | Self::Responses => Method::POST,
            Self::Models | Self::Model(_) => Method::GET,
        }
    }
}

fn is_authorized(headers: &HeaderMap, behaviour: &Behaviour) -> bool {
    let Some(key) = &behaviour.key else { return true };
    let sent =
        headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    sent == Some(key.as_bytes())
}

fn model(id: &str) -> serde_json::Value {
    json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "sim"})
}
