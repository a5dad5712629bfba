//! Responses that are kept: read, deleted and cancelled by the key that made them.
//!
//! The shapes are those of OpenAI's API reference, "Get a model response" and what follows it.

use std::collections::VecDeque;

use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::asked::ReceivedRequest;
use crate::behaviour::Behaviour;

/// How many responses are kept.
const RESPONSES_MAX: usize = 1000;

/// The responses that are kept, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore(Mutex<VecDeque<KeptResponse>>);

#[derive(Debug)]
struct KeptResponse {
    /// The credential that made it, as its header has it.
    key: Vec<u8>,
    response: Value,
    input: Value,
}

impl ResponseStore {
    /// Keeps a response that was made with the key of the request.
    pub(super) fn keep(&self, asked: &ReceivedRequest<'_>, response: Value, input: &Value) {
        let mut kept = self.0.lock();
        if kept.len() >= RESPONSES_MAX {
            kept.pop_front();
        }
        kept.push_back(KeptResponse { key: key(asked), response, input: input.clone() });
    }

    /// What `found` makes of the response, or that there is none for the key of the request.
    fn with(
        &self,
        id: &str,
        asked: &ReceivedRequest<'_>,
        behaviour: &Behaviour,
        found: impl FnOnce(&mut VecDeque<KeptResponse>, usize) -> Answer,
    ) -> Answer {
        let mut kept = self.0.lock();
        let key = key(asked);
        let is_it = |stored: &KeptResponse| stored.key == key && stored.response["id"] == id;
        let Some(at) = kept.iter().position(is_it) else {
            let message = format!("Response with id '{id}' not found.");
            return Answer::error(StatusCode::NOT_FOUND, &message, behaviour);
        };
        found(&mut kept, at)
    }
}

fn key(asked: &ReceivedRequest<'_>) -> Vec<u8> {
    asked.headers.get(AUTHORIZATION).map(|value| value.as_bytes().to_vec()).unwrap_or_default()
}

fn document(shown: &Value, behaviour: &Behaviour) -> Answer {
    Answer::json(shown.to_string(), behaviour)
}

/// Reads or deletes a response: `…/responses/{id}`.
pub(crate) fn whole(
    id: &str,
    asked: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    store: &ResponseStore,
) -> Answer {
    store.with(id, asked, behaviour, |kept, at| {
        if *asked.method == Method::GET {
            return document(&kept[at].response, behaviour);
        }
        kept.remove(at);
        document(&json!({"id": id, "object": "response", "deleted": true}), behaviour)
    })
}

/// Reads what a response was made of: `…/responses/{id}/input_items`.
pub(crate) fn input_items(
    id: &str,
    asked: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    store: &ResponseStore,
) -> Answer {
    store.with(id, asked, behaviour, |kept, at| {
        let items = match &kept[at].input {
            Value::Array(items) => items.clone(),
            text => vec![json!({"type": "message", "role": "user", "content": text})],
        };
        document(&json!({"object": "list", "data": items, "has_more": false}), behaviour)
    })
}

/// Cancels a response: `…/responses/{id}/cancel`. None of them is made in the background.
pub(crate) fn cancel(
    id: &str,
    asked: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    store: &ResponseStore,
) -> Answer {
    store.with(id, asked, behaviour, |_, _| {
        let message = "Cannot cancel a synchronous response.";
        Answer::error(StatusCode::BAD_REQUEST, message, behaviour)
    })
}
