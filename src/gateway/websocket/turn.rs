//! Messages of a client: a turn, which becomes a request like any other, or a conversation to remember for
//! the next turn.
//!
//! Messages: OpenAI's guide "WebSocket mode", and what Codex sends.

use std::borrow::Cow;

use bytes::Bytes;

use crate::error::GatewayError;
use crate::pipeline;
use crate::protocols::json::{Object, Value};
use crate::protocols::splice::json_string;

/// Fields of a message that are for the connection, or rewritten, and are not copied into the request.
const OWN_FIELDS: [&str; 4] = ["type", "generate", "stream", "previous_response_id"];
/// Value of `include` with which a provider returns encrypted reasoning, so that it can come back with the
/// next turn.
const SEALED_REASONING: &str = r#""reasoning.encrypted_content""#;
/// Parts of a prompt above which they are joined: each takes memory of its own, and time whenever the prompt
/// is cloned. A session of an agent has some hundred turns.
const PARTS_MAX: usize = 512;
/// Memory that a part takes besides its bytes: its entry, twice while the list grows, and a block of the
/// allocator's.
const PART_BYTES: usize = 96;

/// A parsed message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientMessage {
    /// Generate a response: a turn.
    Turn {
        /// The body of the request for it.
        body: Bytes,
        /// Everything that the turn consists of.
        prompt: TurnHistory,
    },
    /// Remember this conversation for the next turn. It costs nothing.
    WarmUp(TurnHistory),
    /// No response: Codex reports that it has processed one.
    Nothing,
}

/// Conversation behind a response, as far as the gateway has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TurnHistory {
    /// The response that an upstream keeps, from which the first of the items goes on.
    after: Option<String>,
    /// Items of the Responses API: of each turn those that were added, with commas between them. Clones
    /// share them, so that a turn takes no second copy of the conversation that it continues.
    parts: Vec<Bytes>,
}

/// The last response of a connection, from which its next turn can go on: OpenAI keeps the same for a
/// connection, whatever is stored.
#[derive(Debug)]
pub(super) struct LastResponse {
    /// Id of the response, as sent to the client.
    pub(super) id: String,
    /// Input and output of the response.
    pub(super) conversation: TurnHistory,
}

impl TurnHistory {
    /// Appends `items` to the prompt.
    pub(super) fn followed_by<'a>(mut self, items: impl Iterator<Item = &'a [u8]>) -> Self {
        let items: Vec<&[u8]> = items.filter(|item| !item.is_empty()).collect();
        if items.is_empty() {
            return self;
        }
        // A copy: a slice of the message would keep all of the message in memory.
        self.parts.push(joined(&items));
        if self.parts.len() > PARTS_MAX {
            self.parts = vec![joined(&self.parts)];
        }
        self
    }

    /// Memory of the prompt, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(part_bytes).sum()
    }

    /// Memory of the prompt that is not shared with `other`, in bytes.
    pub(super) fn bytes_beside(&self, other: Option<&Self>) -> usize {
        let others = other.map_or(&[][..], |other| &other.parts);
        let is_same = |(own, other): &(&Bytes, &Bytes)| own.as_ptr() == other.as_ptr();
        let shared = self.parts.iter().zip(others).take_while(is_same).count();
        self.parts.iter().skip(shared).map(part_bytes).sum()
    }
}

impl LastResponse {
    /// Memory of the prompt, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.conversation.bytes()
    }
}

fn part_bytes(part: &Bytes) -> usize {
    part.len() + PART_BYTES
}

/// A copy of these, with commas between them, in a block of exactly its size.
fn joined<T: AsRef<[u8]>>(items: &[T]) -> Bytes {
    let length = items.iter().map(|item| item.as_ref().len() + 1).sum::<usize>().saturating_sub(1);
    let mut all = Vec::with_capacity(length);
    for item in items {
        if !all.is_empty() {
            all.push(b',');
        }
        all.extend_from_slice(item.as_ref());
    }
    all.into()
}

impl ClientMessage {
    /// Reads a message on a connection whose last response was `last`. `thinks` says whether the model of
    /// this name may have reasoning that the next turn needs.
    ///
    /// # Errors
    /// What is no message that the gateway knows. What is wrong with a request is found where all are
    /// read.
    pub(super) fn read(
        text: &[u8],
        last: Option<&LastResponse>,
        values_max: usize,
        thinks: impl FnOnce(&str) -> bool,
    ) -> Result<Self, GatewayError> {
        let message = Object::parse_within(text, values_max);
        let message = message.map_err(|error| pipeline::bad_json(&error))?;
        let field = |name: &str| message.get_non_null(name);
        match field("type").and_then(|kind| kind.as_str()).as_deref() {
            Some("response.create") => {}
            Some("response.processed") => return Ok(Self::Nothing),
            _ => {
                let message = "`type` must be `response.create`: no other message is known here.";
                return Err(GatewayError::invalid("type", message));
            }
        }
        let previous = field("previous_response_id").and_then(|id| id.as_str());
        let last = last.filter(|last| previous.as_deref() == Some(&last.id));
        let input = field("input");
        let before = match last {
            Some(last) => last.conversation.clone(),
            None => TurnHistory { after: previous.map(Cow::into_owned), parts: Vec::new() },
        };
        let added = input.as_ref().map(items);
        let prompt = before.followed_by(added.iter().map(AsRef::as_ref));
        let generates = field("generate").map(|value| {
            let wrong = || GatewayError::invalid("generate", "`generate` must be true or false");
            value.as_bool().ok_or_else(wrong)
        });
        if generates.transpose()? == Some(false) {
            return Ok(Self::WarmUp(prompt));
        }
        let body = Vec::with_capacity(text.len() + last.map_or(0, |_| prompt.bytes()) + 64);
        let body = write(body, &message, last.map(|_| &prompt), thinks);
        Ok(Self::Turn { body: body.into(), prompt })
    }
}

/// The items of an `input`, with commas between them.
fn items<'a>(input: &Value<'a>) -> Cow<'a, [u8]> {
    let text = input.text();
    if input.is_array() {
        let inside = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
        return Cow::Borrowed(inside.unwrap_or_default().trim_ascii());
    }
    let item = [br#"{"type":"message","role":"user","content":"#, text, b"}"];
    Cow::Owned(item.concat())
}

/// Writes the request of the turn that a message begins into `body`: its fields unchanged, with `prompt`
/// instead of its input if the turn continues an earlier response.
fn write(
    mut body: Vec<u8>,
    message: &Object<'_>,
    prompt: Option<&TurnHistory>,
    thinks: impl FnOnce(&str) -> bool,
) -> Vec<u8> {
    body.extend_from_slice(b"{\"stream\":true");
    let mut put = |name: &str, value: &[&[u8]]| {
        body.extend_from_slice(b",");
        body.extend_from_slice(json_string(name).as_bytes());
        body.extend_from_slice(b":");
        value.iter().for_each(|part| body.extend_from_slice(part));
    };
    for (name, value) in message.members() {
        let is_own = OWN_FIELDS.contains(&name) || prompt.is_some() && name == "input";
        if !is_own {
            put(name, &[value.text()]);
        }
    }
    match prompt {
        Some(TurnHistory { after, parts }) => {
            if let Some(after) = after {
                put("previous_response_id", &[json_string(after).as_bytes()]);
            }
            let mut input = vec![&b"["[..]];
            for (number, part) in parts.iter().enumerate() {
                if number > 0 {
                    input.push(b",");
                }
                input.push(part);
            }
            input.push(b"]");
            put("input", &input);
        }
        None => {
            if let Some(previous) = message.get("previous_response_id") {
                put("previous_response_id", &[previous.text()]);
            }
        }
    }
    // What no upstream keeps must be with the customer, or it is gone with the next turn.
    let is_kept = message.get_non_null("store").and_then(|store| store.as_bool()) != Some(false);
    let model = message.get_non_null("model").and_then(|model| model.as_str());
    if !is_kept
        && message.get_non_null("include").is_none()
        && model.is_some_and(|name| thinks(&name))
    {
        put("include", &[b"[", SEALED_REASONING.as_bytes(), b"]"]);
    }
    body.push(b'}');
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn read(message: &Json, last: Option<&LastResponse>) -> Result<ClientMessage, GatewayError> {
        ClientMessage::read(message.to_string().as_bytes(), last, 1000, |model| model == "thinker")
    }

    /// Body of a turn, and the prompt that the connection keeps for the next one.
    fn turn(message: &Json, last: Option<&LastResponse>) -> (Json, TurnHistory) {
        match read(message, last).expect("a turn") {
            ClientMessage::Turn { body, prompt } => {
                (serde_json::from_slice(&body).expect("JSON"), prompt)
            }
            other => panic!("a turn: {other:?}"),
        }
    }

    fn user(text: &str) -> Json {
        json!({"role": "user", "content": text})
    }

    /// All items of a prompt, separated by commas.
    fn items(prompt: &TurnHistory) -> Bytes {
        joined(&prompt.parts)
    }

    fn last(id: &str, after: Option<&str>, items: &[Json]) -> LastResponse {
        let texts: Vec<String> = items.iter().map(Json::to_string).collect();
        let prompt = TurnHistory { after: after.map(str::to_owned), parts: Vec::new() };
        let conversation = prompt.followed_by(texts.iter().map(|text| text.as_bytes()));
        LastResponse { id: id.to_owned(), conversation }
    }

    #[test]
    fn a_turn_is_a_request_without_what_is_for_the_connection() {
        let tools = json!([{"type": "function", "name": "f"}]);
        let message = json!({"type": "response.create", "model": "m", "input": [user("a")],
            "tools": tools, "generate": true, "stream": false, "x": null});
        let (body, prompt) = turn(&message, None);
        let expected =
            json!({"stream": true, "model": "m", "input": [user("a")], "tools": tools, "x": null});
        assert_eq!(body, expected);
        assert_eq!(items(&prompt), user("a").to_string().as_bytes());
        let elsewhere = json!({"type": "response.create", "previous_response_id": "resp_0",
            "input": "a"});
        let (body, prompt) = turn(&elsewhere, Some(&last("resp_1", None, &[user("b")])));
        assert_eq!(body["previous_response_id"], "resp_0", "an upstream may keep it: {body}");
        assert_eq!((&body["input"], prompt.after.as_deref()), (&json!("a"), Some("resp_0")));
    }

    #[test]
    fn a_following_turn_has_the_whole_conversation() {
        let answer = json!({"type": "message", "role": "assistant", "content": "b"});
        let before = last("resp_1", None, &[user("a"), answer.clone()]);
        for (input, added) in [
            (json!([user("c"), user("d")]), vec![user("c"), user("d")]),
            (json!("e"), vec![json!({"type": "message", "role": "user", "content": "e"})]),
            (json!([]), vec![]),
            (Json::Null, vec![]),
        ] {
            let message = json!({"type": "response.create", "model": "m", "input": input,
                "previous_response_id": "resp_1"});
            let (body, prompt) = turn(&message, Some(&before));
            let all = [vec![user("a"), answer.clone()], added].concat();
            assert_eq!(body, json!({"stream": true, "model": "m", "input": all}), "{input}");
            let remembered: Json =
                serde_json::from_slice(&[b"[", &items(&prompt)[..], b"]"].concat()).expect("JSON");
            assert_eq!(remembered, json!(all));
        }
        let kept = last("resp_2", Some("resp_of_upstream"), &[user("a")]);
        let message =
            json!({"type": "response.create", "previous_response_id": "resp_2", "input": "b"});
        let (body, _) = turn(&message, Some(&kept));
        assert_eq!(body["previous_response_id"], "resp_of_upstream", "where it began: {body}");
    }

    #[test]
    fn a_warm_up_is_no_turn() {
        let message = json!({"type": "response.create", "generate": false, "input": [user("a")]});
        let Ok(ClientMessage::WarmUp(prompt)) = read(&message, None) else { panic!("a warm-up") };
        assert_eq!(items(&prompt), user("a").to_string().as_bytes());
        assert_eq!(prompt.bytes(), items(&prompt).len() + PART_BYTES);
        assert_eq!(
            read(&json!({"type": "response.processed"}), None).ok(),
            Some(ClientMessage::Nothing)
        );
    }

    #[test]
    fn a_turn_shares_the_conversation_that_it_goes_on_from() {
        let before = last("resp_1", None, &[user("a")]);
        let message = json!({"type": "response.create", "previous_response_id": "resp_1",
            "input": [user("b")]});
        let (_, prompt) = turn(&message, Some(&before));
        let added = user("b").to_string().len() + PART_BYTES;
        assert_eq!(prompt.bytes_beside(Some(&before.conversation)), added);
        assert_eq!(prompt.bytes(), before.bytes() + added);
        let (_, other) = turn(&message, None);
        assert_eq!(other.bytes_beside(Some(&before.conversation)), other.bytes());
        // Thousands of short parts are one in the end.
        let mut long = TurnHistory::default();
        for _ in 0..2 * PARTS_MAX {
            long = long.followed_by([&b"1"[..]].into_iter());
        }
        assert!(long.parts.len() <= PARTS_MAX, "{}", long.parts.len());
        let all: Vec<u8> =
            serde_json::from_slice(&[b"[", &items(&long)[..], b"]"].concat()).expect("JSON");
        assert_eq!(all, vec![1; 2 * PARTS_MAX]);
    }

    #[test]
    fn encrypted_reasoning_is_requested_where_nothing_is_stored() {
        let message = |model: &str, more: Json| {
            let mut message = json!({"type": "response.create", "model": model, "store": false});
            more.as_object().expect("fields").iter().for_each(|(name, value)| {
                message[name] = value.clone();
            });
            turn(&message, None).0["include"].clone()
        };
        assert_eq!(message("thinker", json!({})), json!(["reasoning.encrypted_content"]));
        assert_eq!(message("plain", json!({})), Json::Null);
        assert_eq!(message("thinker", json!({"store": true})), Json::Null);
        assert_eq!(message("thinker", json!({"include": []})), json!([]), "as it was asked");
    }

    #[test]
    fn what_is_no_message_is_refused_by_name() {
        for (message, param) in [
            (json!({}), "type"),
            (json!({"type": "response.steer"}), "type"),
            (json!({"type": 7}), "type"),
            (json!({"type": "response.create", "generate": "no"}), "generate"),
        ] {
            let error = read(&message, None).expect_err("refused");
            assert_eq!(error.param.as_deref(), Some(param), "{message}");
        }
        for text in ["", "[]", "{\"type\":\"response.create\",\"type\":\"response.create\"}"] {
            assert!(ClientMessage::read(text.as_bytes(), None, 1000, |_| false).is_err(), "{text}");
        }
        let many = json!({"type": "response.create", "input": vec![1; 1001]});
        assert!(read(&many, None).is_err(), "more values than a request may have");
    }
}
