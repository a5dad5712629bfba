//! Conversation affinity, which keeps requests on the target with their prompt in its cache; and binding
//! to the credential that stores what a request refers to.

use std::borrow::Cow;

use http::HeaderMap;
use sha2::{Digest as _, Sha256};

use crate::ValidatedRequest;
use tollgate_balance::{Balancer, Home, first_64_bits};
use tollgate_config::snapshot::{Affinity, Target};
use tollgate_ledger::AccountId;
use tollgate_protocols::{Reference, Request};
use tollgate_types::error::GatewayError;

/// Session headers in order of precedence: opencode's, Claude Code's, and those of Codex from its latest
/// version to its first.
const SESSION_HEADERS: [&str; 5] = [
    "x-session-affinity",
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "conversation_id",
];
/// Number of messages searched for the first user message: a conversation is identified by its
/// instructions and that message, or by these messages without one.
const MESSAGES_MAX: usize = 4;
/// Bytes of each message that are hashed: providers cache from a thousand tokens on.
const BYTES_MAX: usize = 4096;

/// Affinity key of a request; `None` for a request without a conversation. Keyed by account, so that a
/// guessed session name shares nothing with another account's.
#[must_use]
pub fn affinity(
    mode: Affinity,
    account: AccountId,
    headers: &HeaderMap,
    request: &Request<'_>,
) -> Option<u64> {
    let mut hasher = Sha256::new().chain_update(account.number().to_be_bytes());
    let named = SESSION_HEADERS.into_iter().find_map(|name| {
        let value = headers.get(name)?.as_bytes();
        (!value.is_empty()).then_some(value)
    });
    match (mode, named) {
        (Affinity::None, _) | (Affinity::Header, None) => return None,
        (_, Some(name)) => hasher.update(name),
        (Affinity::Conversation, None) => match session(request) {
            Some(name) => hasher.update(name.as_bytes()),
            None => {
                let beginning = beginning(request)?;
                if beginning.is_empty() {
                    return None;
                }
                for part in beginning {
                    hasher.update(part.get(..BYTES_MAX).unwrap_or(part));
                    hasher.update([0]);
                }
            }
        },
    }
    Some(first_64_bits(hasher))
}

/// Session name in the body: OpenAI's `prompt_cache_key`, or Anthropic's user id, which contains Claude
/// Code's session.
fn session<'a>(request: &Request<'a>) -> Option<Cow<'a, str>> {
    let object = request.json().ok()?;
    let key = object.get_non_null("prompt_cache_key").and_then(|key| key.as_str());
    let user = || object.get_non_null("metadata")?.as_object().ok()?.get("user_id")?.as_str();
    key.or_else(user).filter(|name| !name.is_empty())
}

/// Restriction of a request's targets by the stored objects that it refers to.
#[derive(Debug, Default)]
pub struct Binding<'a> {
    /// Storage location of the account's own objects; `None` if the request names none.
    pub home: Option<Home>,
    /// Ids of the operator's shared objects; only upstreams that share them all are used.
    shared: Vec<&'a str>,
}

impl Binding<'_> {
    /// True if the target's upstream shares all the operator's objects in the request.
    #[must_use]
    pub fn admits(&self, target: &Target) -> bool {
        self.shared.iter().all(|id| target.upstream.shares(id))
    }

    /// True if the request refers to a stored object.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.home.is_some() || !self.shared.is_empty()
    }
}

/// Resolve the stored objects that a request refers to. Upstreams see all customers as one, so each
/// object must be the account's own, or shared by the operator.
///
/// # Errors
/// `InvalidRequest`, naming the field, for what the account was not given the id of, as far as the
/// gateway remembers, and what no target's upstream shares; and for things that are kept at different
/// places.
pub fn binding<'a>(
    balancer: &Balancer,
    validated: &'a ValidatedRequest,
) -> Result<Binding<'a>, GatewayError> {
    let account = validated.resolved.key.account.number();
    let mut binding = Binding::default();
    for reference in validated.calls().flat_map(|call| call.refers_to()) {
        let id = reference.id.as_str();
        let Some(found) = balancer.home(account, id) else {
            let is_shared = validated.targets().any(|(_, target)| target.upstream.shares(id));
            if id.is_empty() || !is_shared {
                return Err(not_kept(reference));
            }
            binding.shared.push(id);
            continue;
        };
        if binding.home.is_some_and(|home| home != found) {
            return Err(not_kept(reference));
        }
        binding.home = Some(found);
    }
    Ok(binding)
}

/// Error for a stored object whose credential is no longer configured.
#[must_use]
pub fn stored_object_lost(validated: &ValidatedRequest) -> GatewayError {
    let first = validated.calls().find_map(|call| call.refers_to().first());
    first.map_or_else(|| GatewayError::invalid("input", "What it refers to is gone."), not_kept)
}

/// Noun for error messages, by the referring field.
const KINDS: [(&str, &str); 9] = [
    ("file_id", "file"),
    ("file_ids", "file"),
    ("fileUri", "file"),
    ("url", "file"),
    ("vector_store_ids", "vector store"),
    ("container", "container"),
    ("prompt", "prompt"),
    ("connector_id", "connector"),
    ("voice", "voice"),
];

fn not_kept(reference: &Reference) -> GatewayError {
    let Reference { field, id } = reference;
    // Untrusted: quoted, escaped and truncated before it goes into a message.
    let shown: String = id.chars().take(64).collect();
    let advice = "Send what it stands for in `input`, with `store: false` if you can.";
    match *field {
        "previous_response_id" => {
            let message = format!("There is no response {shown:?} of yours here. {advice}");
            GatewayError::invalid(*field, message).code("previous_response_not_found")
        }
        "conversation" => {
            let message = format!("There is no conversation {shown:?} of yours here. {advice}");
            GatewayError::invalid(*field, message)
        }
        "input" => {
            let message = format!("There is no item {shown:?} of yours here. {advice}");
            GatewayError::invalid("input", message)
        }
        field => {
            let what = KINDS.iter().find(|(key, _)| *key == field).map_or("object", |it| it.1);
            let message = format!(
                "There is no {what} {shown:?} of yours here. Ids pass that your account was given in \
                 answers, and those that the operator shares."
            );
            GatewayError::invalid(field, message)
        }
    }
}

/// Parts of a request that all later turns of its conversation repeat.
fn beginning<'a>(request: &Request<'a>) -> Option<Vec<&'a [u8]>> {
    let object = request.json().ok()?;
    let mut parts = Vec::new();
    // Anthropic's, OpenAI's and Google's names of what stands before the messages.
    for name in ["system", "instructions", "systemInstruction", "system_instruction"] {
        parts.extend(object.get_non_null(name).map(|value| value.text()));
    }
    let mut messages = ["messages", "input", "contents"].into_iter();
    let messages = messages.find_map(|name| object.get_non_null(name));
    if let Some(messages) = messages.and_then(|messages| messages.elements()) {
        for message in messages.take(MESSAGES_MAX) {
            parts.push(message.text());
            let role = message.as_object().ok()?.get("role").and_then(|role| role.as_str());
            if role.as_deref() == Some("user") {
                break;
            }
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_protocols::json::Object;

    fn affinity_of(mode: Affinity, name: Option<&'static str>, body: &str) -> Option<u64> {
        affinity_by(7, mode, name.map(|name| (SESSION_HEADERS[0], name)), body)
    }

    fn affinity_by(
        account: u64,
        mode: Affinity,
        header: Option<(&'static str, &'static str)>,
        body: &str,
    ) -> Option<u64> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        let object = Object::parse(body.as_bytes()).expect("JSON");
        affinity(mode, AccountId::from_number(account), &headers, &Request::Json(object))
    }

    #[test]
    fn turns_of_a_conversation_belong_together_and_conversations_do_not() {
        let first =
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}"#;
        let second = r#"{"temperature":1,"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}"#;
        let other =
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"d"}]}"#;
        let of = |body| affinity_of(Affinity::Conversation, None, body);
        assert!(of(first).is_some());
        assert_eq!(of(first), of(second));
        assert_ne!(of(first), of(other));
        assert_eq!(of(r#"{"input":"an embedding"}"#), None);
    }

    #[test]
    fn a_named_session_comes_first_and_none_is_none() {
        let body = r#"{"messages":[{"role":"user","content":"a"}]}"#;
        let other = r#"{"messages":[{"role":"user","content":"b"}]}"#;
        for mode in [Affinity::Header, Affinity::Conversation] {
            let named = affinity_of(mode, Some("s-1"), body);
            assert!(named.is_some() && named == affinity_of(mode, Some("s-1"), other));
            assert_ne!(named, affinity_of(mode, Some("s-2"), body));
        }
        assert_eq!(affinity_of(Affinity::Header, None, body), None);
        assert_eq!(affinity_of(Affinity::None, Some("s-1"), body), None);
    }

    #[test]
    fn a_session_has_its_name_in_any_header_of_its_client_or_in_a_field() {
        let by = |header: Option<(&'static str, &'static str)>, body: &str| {
            affinity_by(7, Affinity::Conversation, header, body)
        };
        let plain = r#"{"messages":[{"role":"user","content":"a"}]}"#;
        let named = by(Some((SESSION_HEADERS[0], "s-1")), plain);
        for header in SESSION_HEADERS {
            assert_eq!(by(Some((header, "s-1")), plain), named, "{header}");
            assert_ne!(by(Some((header, "s-2")), plain), named, "{header}");
            assert_eq!(by(Some((header, "")), plain), by(None, plain), "{header} is empty");
        }
        for body in [
            r#"{"input":"a","prompt_cache_key":"s-1"}"#,
            r#"{"input":[{"role":"user","content":"b"}],"prompt_cache_key":"s-1"}"#,
            r#"{"messages":[],"prompt_cache_key":"s\u002d1"}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"metadata":{"user_id":"s-1"}}"#,
        ] {
            assert_eq!(by(None, body), named, "{body}");
        }
        let unnamed = r#"{"messages":[{"role":"user","content":"a"}],"prompt_cache_key":"","metadata":{"user_id":7}}"#;
        assert_eq!(by(None, unnamed), by(None, plain), "what is no name is none");
        let field = r#"{"input":"a","prompt_cache_key":"s-1"}"#;
        assert_eq!(affinity_by(7, Affinity::Header, None, field), None, "it is no header");
    }

    #[test]
    fn whoever_guesses_the_name_of_anothers_session_shares_nothing_with_it() {
        let body = r#"{"input":"a","prompt_cache_key":"s-1"}"#;
        let of = |account| affinity_by(account, Affinity::Conversation, None, body);
        assert_ne!(of(1), of(2));
    }
}
