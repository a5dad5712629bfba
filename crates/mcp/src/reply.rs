//! Answer of a language model in either protocol, and the tool's result made from it.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};

use super::caller::{ANSWER_VALUES_MAX, CallOutcome, GatewayAnswer, no_json};
use super::conversation;
use super::text::TextOrTree;
use super::tool_error::ToolError;
use super::writer::ObjectWriter;
use tollgate_process_memory::run_now;
use tollgate_protocols::json::{self, Object, values_within};

/// Answer of a language model.
pub(super) struct ChatReply<'a> {
    model: TextOrTree<'a>,
    /// Text of the answer; empty if there is none.
    text: TextOrTree<'a>,
    finish_reason: TextOrTree<'a>,
    /// Usage as the answer reports it.
    usage: Value,
    /// The functions that it wants called, as chat completions has them; null for none.
    tool_calls: Value,
}

/// Fields whose location differs between chat completions and messages.
struct ReplyMessage<'a> {
    text: TextOrTree<'a>,
    finish_reason: TextOrTree<'a>,
    tool_calls: Value,
}

impl<'a> ChatReply<'a> {
    /// Reply of a language model, parsed from the body of `answer`: a response of messages (`by_messages`)
    /// or of chat completions.
    ///
    /// # Errors
    /// When the body is no JSON, or too large to be made a tree of.
    pub(super) fn parse(
        answer: &mut GatewayAnswer,
        body: &'a Bytes,
        by_messages: bool,
    ) -> Result<Self, ToolError> {
        run_now(body.len(), || {
            // Nearly all answers are what the strict reader takes, which counts on its way.
            let document = Object::parse(body).ok();
            let values = match &document {
                Some(document) => Some(document.values()),
                None => values_within(body, ANSWER_VALUES_MAX),
            };
            answer.make_room(values)?;
            let strict = document.and_then(|answer| Self::read_strict(&answer, by_messages));
            strict.map_or_else(|| Self::read(body, by_messages).map_err(|_| no_json()), Ok)
        })
    }

    /// Reads an answer of chat completions, or, `by_messages`, of Anthropic's API.
    ///
    /// # Errors
    /// When it is no JSON.
    pub(super) fn read(answer: &[u8], by_messages: bool) -> serde_json::Result<Self> {
        let document: Value = serde_json::from_slice(answer)?;
        let message = if by_messages { of_messages(&document) } else { of_chat(&document) };
        let ReplyMessage { text, finish_reason, tool_calls } = message;
        let (model, usage) = (document["model"].clone().into(), document["usage"].clone());
        Ok(Self { model, text, finish_reason, usage, tool_calls })
    }

    /// Like [`Self::read`], from an answer that the strict reader has parsed, without a tree; `None` if only
    /// a tree can represent it.
    pub(super) fn read_strict(answer: &Object<'a>, by_messages: bool) -> Option<Self> {
        // The strict reader compares keys as they are written.
        if answer.has_escaped_keys() {
            return None;
        }
        let message = if by_messages { of_messages_strict(answer) } else { of_chat_strict(answer) };
        let ReplyMessage { text, finish_reason, tool_calls } = message?;
        let model = text_or_tree(answer.get("model"))?;
        let usage = tree(answer.get("usage"))?;
        Some(Self { model, text, finish_reason, usage, tool_calls })
    }

    /// Text of the result: the tool calls if there is no other text.
    pub(super) fn shown(&self) -> Cow<'_, str> {
        let text = self.text();
        match text.is_empty() && !self.tool_calls.is_null() {
            true => self.tool_calls.to_string().into(),
            false => text.into(),
        }
    }

    /// Appends all of it and what the call came to, the members in the order of their names: the
    /// structured content of a result.
    pub(super) fn write(&self, outcome: CallOutcome<'_>, json: Vec<u8>) -> Vec<u8> {
        let mut content = ObjectWriter::new(json);
        if let Some(cost) = outcome.cost {
            content.value("cost_usd", &cost);
        }
        content.text_or_tree("finish_reason", &self.finish_reason);
        content.text_or_tree("model", &self.model);
        content.text("request_id", outcome.request_id);
        if !outcome.served_by.is_empty() {
            content.text("served_by", outcome.served_by);
        }
        content.text("text", self.text());
        if !self.tool_calls.is_null() {
            content.value("tool_calls", &self.tool_calls);
        }
        content.value("usage", &self.usage);
        content.end()
    }

    /// The whole answer as a tree, for structured results.
    pub(super) fn into_tree(self) -> Value {
        let mut content = json!({
            "model": self.model,
            "text": self.text(),
            "finish_reason": self.finish_reason,
            "usage": self.usage,
        });
        if !self.tool_calls.is_null() {
            content["tool_calls"] = self.tool_calls;
        }
        content
    }

    fn text(&self) -> &str {
        self.text.as_str().unwrap_or_default()
    }
}

fn of_chat(document: &Value) -> ReplyMessage<'static> {
    let choice = &document["choices"][0];
    let text = choice["message"]["content"].clone().into();
    let finish_reason = choice["finish_reason"].clone().into();
    ReplyMessage { text, finish_reason, tool_calls: choice["message"]["tool_calls"].clone() }
}

fn of_messages(document: &Value) -> ReplyMessage<'static> {
    let blocks = document["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text: String = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let text = Value::from(text).into();
    let finish_reason = document["stop_reason"].clone().into();
    ReplyMessage { text, finish_reason, tool_calls: conversation::calls_in(blocks) }
}

fn of_chat_strict<'a>(answer: &Object<'a>) -> Option<ReplyMessage<'a>> {
    let choice = answer.get("choices").and_then(|choices| choices.first_element());
    let [message, finish_reason] =
        choice.map(|choice| choice.members(["message", "finish_reason"])).unwrap_or_default();
    let [content, tool_calls] =
        message.map(|message| message.members(["content", "tool_calls"])).unwrap_or_default();
    let (text, finish_reason) = (text_or_tree(content)?, text_or_tree(finish_reason)?);
    Some(ReplyMessage { text, finish_reason, tool_calls: tree(tool_calls)? })
}

fn of_messages_strict<'a>(answer: &Object<'a>) -> Option<ReplyMessage<'a>> {
    let blocks = answer.get("content").and_then(|content| content.elements());
    let (mut text, mut calls) = (String::new(), Vec::new());
    for block in blocks.into_iter().flatten() {
        let [kind, message] = block.members(["type", "text"]).map(text_or_tree);
        text.push_str(message?.as_str().unwrap_or_default());
        if kind?.as_str() == Some("tool_use") {
            calls.push(tree(Some(block))?);
        }
    }
    let finish_reason = text_or_tree(answer.get("stop_reason"))?;
    let (text, tool_calls) = (Value::from(text).into(), conversation::calls_in(&calls));
    Some(ReplyMessage { text, finish_reason, tool_calls })
}

/// A value read strictly; `null` if absent, and `None` if it cannot be represented.
fn text_or_tree(value: Option<json::Value<'_>>) -> Option<TextOrTree<'_>> {
    match value {
        None => Some(TextOrTree::default()),
        Some(value) => TextOrTree::from_read(value.as_str(), value.text()),
    }
}

/// A value that was read strictly as a tree, in which of two members of one name there is the last; `null`
/// where there is no value, and `None` for one that has no tree.
fn tree(value: Option<json::Value<'_>>) -> Option<Value> {
    value.map_or(Some(Value::Null), |value| serde_json::from_slice(value.text()).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::Union;

    use super::*;
    use crate::by_trees::{self, mostly};

    fn object(
        fields: Vec<(&'static str, BoxedStrategy<String>)>,
        most: usize,
    ) -> BoxedStrategy<String> {
        let named =
            fields.into_iter().map(|(name, values)| values.prop_map(move |one| (name, one)));
        let members = proptest::collection::vec(Union::new(named), 0..most);
        members.prop_map(|members| by_trees::object(&members)).boxed()
    }

    /// Possible answers of an upstream: members twice, of other types, or missing.
    fn documents() -> impl Strategy<Value = Vec<u8>> {
        let any = || by_trees::value().boxed();
        let text = || mostly(&[r#""Hi""#, r#""a\n\u00e9""#, "null", r#""""#]).boxed();
        let call = r#"[{"id": "1", "type": "function", "function": {"name": "f"}}]"#;
        let calls = mostly(&[call, "null", "[]"]).boxed();
        let message = object(vec![("content", text()), ("tool_calls", calls), ("other", any())], 5);
        let message = prop_oneof![6 => message, 1 => any()].boxed();
        let choice = object(vec![("message", message), ("finish_reason", text())], 4);
        let choices = proptest::collection::vec(prop_oneof![6 => choice, 1 => any()], 0..3);
        let choices = choices.prop_map(|all| by_trees::array(&all));
        let choices = prop_oneof![6 => choices, 1 => any()].boxed();
        let block = object(
            vec![
                ("type", mostly(&[r#""text""#, r#""tool_use""#]).boxed()),
                ("text", text()),
                ("id", text()),
                ("name", text()),
                ("input", any()),
            ],
            6,
        );
        let content = proptest::collection::vec(block, 0..3).prop_map(|all| by_trees::array(&all));
        let used = r#"{"total_tokens": 1, "b": {"a": 1.5}, "a": 2}"#;
        let twice = r#"{"total_tokens": 1, "total_tokens": 999, "b": {"a": 1, "a": 1e0}}"#;
        let usage = mostly(&[used, twice, "null"]).boxed();
        let document = object(
            vec![
                ("model", text()),
                ("choices", choices),
                ("content", prop_oneof![6 => content, 1 => any()].boxed()),
                ("stop_reason", text()),
                ("usage", usage),
                ("other", any()),
            ],
            8,
        );
        by_trees::broken(prop_oneof![12 => document, 1 => any()])
    }

    /// Text and structured content of an answer, the latter equal to its tree.
    fn write_reply(reply: ChatReply<'_>) -> (String, String) {
        let outcome = CallOutcome { request_id: "req_1", served_by: "", cost: "0.5".parse().ok() };
        let content = String::from_utf8(reply.write(outcome, Vec::new())).expect("text");
        let shown = reply.shown().into_owned();
        let mut tree = reply.into_tree();
        tree["request_id"] = json!("req_1");
        tree["cost_usd"] = json!("0.50");
        assert_eq!(tree.to_string(), content);
        (shown, content)
    }

    pub(super) fn read(answer: &[u8], by_messages: bool) -> Option<(String, String)> {
        ChatReply::read(answer, by_messages).ok().map(write_reply)
    }

    pub(super) fn read_strict(answer: &[u8], by_messages: bool) -> Option<(String, String)> {
        ChatReply::read_strict(&Object::parse(answer).ok()?, by_messages).map(write_reply)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        /// Answers that are read strictly equal their trees.
        #[test]
        fn strictly_read_answers_are_those_of_their_trees(
            answer in documents(),
            by_messages in any::<bool>(),
        ) {
            if let Some(strict) = read_strict(&answer, by_messages) {
                let text = String::from_utf8_lossy(&answer);
                prop_assert_eq!(Some(strict), read(&answer, by_messages), "{}", text);
            }
        }
    }

    #[test]
    fn what_was_used_is_said_once() {
        for (answer, by_messages) in [
            (&br#"{"model":"m","usage":{"total_tokens":1,"total_tokens":999}}"#[..], false),
            (br#"{"content":[],"usage":{"total_tokens":1,"total_tokens":999}}"#, true),
        ] {
            let (_, content) = read_strict(answer, by_messages).expect("an answer");
            assert!(content.ends_with(r#""usage":{"total_tokens":999}}"#), "{content}");
        }
    }

    #[test]
    fn usual_answers_of_both_protocols_are_read_strictly() {
        let chat = br#"{"model": "m", "choices": [{"finish_reason": "stop", "message":
            {"role": "assistant", "content": "a\nb"}}], "usage": {"total_tokens": 7}}"#;
        let messages = br#"{"model": "m", "content": [{"type": "text", "text": "a\n"},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
            {"type": "text", "text": "b"}], "stop_reason": "tool_use", "usage": {"input_tokens": 7}}"#;
        for (answer, by_messages) in [(&chat[..], false), (messages, true)] {
            let (shown, content) = read_strict(answer, by_messages).expect("read strictly");
            assert_eq!(shown, "a\nb");
            assert_eq!(Some((shown, content)), read(answer, by_messages));
        }
    }

    #[test]
    fn what_is_called_is_shown_where_nothing_is_said() {
        let answer =
            br#"{"choices": [{"message": {"content": null, "tool_calls": [{"id": "1"}]}}]}"#;
        let (shown, content) = read(answer, false).expect("an answer");
        assert_eq!(shown, r#"[{"id":"1"}]"#);
        assert!(content.contains(r#""text":"","tool_calls":[{"id":"1"}]"#), "{content}");
    }

    #[test]
    fn what_is_not_read_of_an_answer_is_json_all_the_same() {
        for other in ["1e400", r#""\ud800""#, "[1,]", &"[".repeat(200)] {
            let answer = format!(r#"{{"model": "m", "other": {other}}}"#);
            assert!(ChatReply::read(answer.as_bytes(), false).is_err(), "{other}");
        }
    }
}
