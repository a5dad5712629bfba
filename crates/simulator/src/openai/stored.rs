//! Responses that are kept: read, deleted and cancelled by the key that made them.
//!
//! The shapes are those of OpenAI's API reference, "Get a model response" and what follows it.

use std::collections::VecDeque;

use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::behaviour::Behaviour;
use crate::received_request::ReceivedRequest;

/// Largest number of stored responses.
const RESPONSES_MAX: usize = 1000;

/// Stored responses, oldest first.
#[derive(Debug, Default)]
pub(crate) struct ResponseStore(Mutex<VecDeque<KeptResponse>>);

#[derive(Debug)]
struct KeptResponse {
    /// Credential that created it, as in the request header.
    key: Vec<u8>,
    response: Value,
    input: Value,
}

impl ResponseStore {
    /// Keeps a response that was made with the key of the request.
    pub(super) fn keep(&self, http_request: &ReceivedRequest<'_>, response: Value, input: &Value) {
        let mut kept = self.0.lock();
        // The oldest goes: a simulator runs for hours under load, and its memory must not grow.
        if kept.len() >= RESPONSES_MAX {
            kept.pop_front();
        }
        kept.push_back(KeptResponse { key: key(http_request), response, input: input.clone() });
    }

    /// Apply `found` to a stored response; "not found" if the request's key has none with that id.
    fn with(
        &self,
        id: &str,
        http_request: &ReceivedRequest<'_>,
        behaviour: &Behaviour,
        found: impl FnOnce(&mut VecDeque<KeptResponse>, usize) -> Answer,
    ) -> Answer {
        let mut kept = self.0.lock();
        let key = key(http_request);
        // By the key as well: at OpenAI another project does not find a response by its id.
        let is_it = |stored: &KeptResponse| stored.key == key && stored.response["id"] == id;
        let Some(at) = kept.iter().position(is_it) else {
            let message = format!("Response with id '{id}' not found.");
            return Answer::error(StatusCode::NOT_FOUND, &message, behaviour);
        };
        found(&mut kept, at)
    }
}

fn key(http_request: &ReceivedRequest<'_>) -> Vec<u8> {
    http_request
        .headers
        .get(AUTHORIZATION)
        .map(|value| value.as_bytes().to_vec())
        .unwrap_or_default()
}

fn document(shown: &Value, behaviour: &Behaviour) -> Answer {
    Answer::json(shown.to_string(), behaviour)
}

/// Reads or deletes a response: `…/responses/{id}`.
pub(crate) fn whole(
    id: &str,
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    store: &ResponseStore,
) -> Answer {
    store.with(id, http_request, behaviour, |kept, at| {
        if *http_request.method == Method::GET {
            return document(&kept[at].response, behaviour);
        }
        kept.remove(at);
        document(&json!({"id": id, "object": "response", "deleted": true}), behaviour)
    })
}

/// Reads what a response was made of: `…/responses/{id}/input_items`.
pub(crate) fn input_items(
    id: &str,
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    store: &ResponseStore,
) -> Answer {
    store.with(id, http_request, behaviour, |kept, at| {
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
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    store: &ResponseStore,
) -> Answer {
    store.with(id, http_request, behaviour, |_, _| {
        let message = "Cannot cancel a synchronous response.";
        Answer::error(StatusCode::BAD_REQUEST, message, behaviour)
    })
}
