//! OpenAI's protocol, one file for each endpoint.

pub(super) mod chat;
mod chat_usage;
pub(super) mod embeddings;
pub(super) mod images;
mod imitator;
pub(super) mod moderations;
mod multipart;
pub(super) mod rerank;
pub(super) mod responses;
pub(super) mod stored;
pub(super) mod speech;
pub(super) mod transcription;

use serde_json::{Value, json};

use super::answer::Answer;
use super::behaviour::Behaviour;

/// Listed models. Requests may name any model, listed or not.
const MODELS: [&str; 2] = ["sim-chat", "sim-embedding"];

/// Answers a request for the list of models: `…/models`.
pub(super) fn models(behaviour: &Behaviour) -> Answer {
    let data: Vec<_> = MODELS.iter().map(|id| record(id)).collect();
    Answer::json(json!({"object": "list", "data": data}).to_string(), behaviour)
}

/// Answers a request for one model: `…/models/{id}`.
pub(super) fn model(id: &str, behaviour: &Behaviour) -> Answer {
    Answer::json(record(id).to_string(), behaviour)
}

fn record(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 1_700_000_000, "owned_by": "sim"})
}
