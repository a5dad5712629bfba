//! What a language model's answer says, in whichever of the two protocols it was given, and the tool's
//! result that says it again.

use std::borrow::Cow;

use serde::de::MapAccess;
use serde_json::{Value, json};

use super::caller::CallOutcome;
use super::conversation;
use super::members::{ByMembers, First, ReadMembers};
use super::text::TextOrTree;
use super::writer::ObjectWriter;
use crate::protocols::json::{self, Object};

/// What an answer says.
#[derive(Default)]
pub(super) struct ChatReply<'a> {
    model: TextOrTree<'a>,
    text: ReplyText<'a>,
    finish_reason: TextOrTree<'a>,
    usage: ReplyUsage<'a>,
    /// The functions that it wants called, as chat completions has them; null for none.
    tool_calls: Value,
}

/// The text of an answer.
enum ReplyText<'a> {
    /// The only text in it.
    Whole(TextOrTree<'a>),
    /// What was put together of several.
    Joined(String),
}

/// What an answer has used, as it says itself.
enum ReplyUsage<'a> {
    /// JSON in which there is nothing that two readers could take for two things.
    Written(&'a str),
    Tree(Value),
}

impl<'a> ChatReply<'a> {
    /// Reads an answer of chat completions, or, `by_messages`, of Anthropic's API.
    ///
    /// # Errors
    /// When it is no JSON.
    pub(super) fn read(answer: &'a [u8], by_messages: bool) -> serde_json::Result<Self> {
        if by_messages {
            let ByMembers(message) =
                serde_json::from_slice::<ByMembers<MessagesReply<'a>>>(answer)?;
            return Ok(message.into());
        }
        let ByMembers(completion) = serde_json::from_slice::<ByMembers<Completion<'a>>>(answer)?;
        Ok(completion.into())
    }

    /// The reply of a chat completion that was read strictly, as [`Self::read`] would find it; `None` for
    /// one that only that can read.
    pub(super) fn plain(answer: &Object<'a>) -> Option<Self> {
        if answer.has_escaped_keys() {
            return None;
        }
        let any = |value: Option<json::Value<'a>>| match value {
            None => Some(TextOrTree::default()),
            Some(value) => TextOrTree::from_read(value.as_str(), value.text()),
        };
        let choice = answer.get("choices").and_then(|choices| choices.first_element());
        let [message, finish_reason] =
            choice.map(|choice| choice.members(["message", "finish_reason"])).unwrap_or_default();
        let [content, tool_calls] =
            message.map(|message| message.members(["content", "tool_calls"])).unwrap_or_default();
        let tool_calls = match tool_calls {
            None => Value::Null,
            Some(calls) => serde_json::from_slice(calls.text()).ok()?,
        };
        let usage = answer.get("usage").map_or("null", |usage| usage.as_text());
        Some(Self {
            model: any(answer.get("model"))?,
            text: ReplyText::Whole(any(content)?),
            finish_reason: any(finish_reason)?,
            usage: ReplyUsage::Written(usage),
            tool_calls,
        })
    }

    /// What is shown of it: what is called is the answer, where nothing is said beside it.
    pub(super) fn shown(&self) -> Cow<'_, str> {
        let text = self.text.as_str();
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
        for (name, value) in [("finish_reason", &self.finish_reason), ("model", &self.model)] {
            match value {
                TextOrTree::Text(text) => content.text(name, text),
                TextOrTree::Tree(tree) => content.value(name, tree),
            }
        }
        content.text("request_id", outcome.request_id);
        if !outcome.served_by.is_empty() {
            content.text("served_by", outcome.served_by);
        }
        content.text("text", self.text.as_str());
        if !self.tool_calls.is_null() {
            content.value("tool_calls", &self.tool_calls);
        }
        match &self.usage {
            ReplyUsage::Written(usage) => content.json("usage", usage),
            ReplyUsage::Tree(usage) => content.value("usage", usage),
        }
        content.end()
    }

    /// All of it as a tree, for results that are one.
    pub(super) fn into_tree(self) -> Value {
        let mut content = json!({
            "model": self.model,
            "text": self.text.as_str(),
            "finish_reason": self.finish_reason,
            "usage": match self.usage {
                // It was read before.
                ReplyUsage::Written(usage) => serde_json::from_str(usage).unwrap_or_default(),
                ReplyUsage::Tree(usage) => usage,
            },
        });
        if !self.tool_calls.is_null() {
            content["tool_calls"] = self.tool_calls;
        }
        content
    }
}

impl ReplyText<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Whole(text) => text.as_str().unwrap_or_default(),
            Self::Joined(text) => text,
        }
    }
}

impl Default for ReplyText<'_> {
    fn default() -> Self {
        Self::Joined(String::new())
    }
}

impl Default for ReplyUsage<'_> {
    fn default() -> Self {
        Self::Tree(Value::Null)
    }
}

/// An answer of chat completions.
#[derive(Default)]
struct Completion<'a> {
    model: TextOrTree<'a>,
    choices: First<ByMembers<Choice<'a>>>,
    usage: Value,
}

#[derive(Default)]
struct Choice<'a> {
    message: ByMembers<AssistantMessage<'a>>,
    finish_reason: TextOrTree<'a>,
}

#[derive(Default)]
struct AssistantMessage<'a> {
    content: TextOrTree<'a>,
    tool_calls: Value,
}

/// An answer of Anthropic's API.
#[derive(Default)]
struct MessagesReply<'a> {
    model: TextOrTree<'a>,
    content: Value,
    stop_reason: TextOrTree<'a>,
    usage: Value,
}

/// Reads those members of an object that have a field of the same name; of two of one name, the last.
macro_rules! reads_members {
    ($type:ident: $($field:ident),+) => {
        impl<'de> ReadMembers<'de> for $type<'de> {
            fn read<A: MapAccess<'de>>(
                &mut self,
                name: &str,
                members: &mut A,
            ) -> Result<bool, A::Error> {
                match name {
                    $(stringify!($field) => self.$field = members.next_value()?,)+
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

reads_members!(Completion: model, choices, usage);
reads_members!(Choice: message, finish_reason);
reads_members!(AssistantMessage: content, tool_calls);
reads_members!(MessagesReply: model, content, stop_reason, usage);

impl<'a> From<Completion<'a>> for ChatReply<'a> {
    fn from(Completion { model, choices, usage }: Completion<'a>) -> Self {
        let ByMembers(Choice { message, finish_reason }) = choices.0.unwrap_or_default();
        let ByMembers(AssistantMessage { content, tool_calls }) = message;
        let (text, usage) = (ReplyText::Whole(content), ReplyUsage::Tree(usage));
        Self { model, text, finish_reason, usage, tool_calls }
    }
}

impl<'a> From<MessagesReply<'a>> for ChatReply<'a> {
    fn from(MessagesReply { model, content, stop_reason, usage }: MessagesReply<'a>) -> Self {
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let text = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let tool_calls = conversation::calls_in(blocks);
        let (text, usage) = (ReplyText::Joined(text), ReplyUsage::Tree(usage));
        Self { model, text, finish_reason: stop_reason, usage, tool_calls }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::Union;

    use super::*;
    use crate::mcp::by_trees::{self, mostly};

    fn object(
        fields: Vec<(&'static str, BoxedStrategy<String>)>,
        most: usize,
    ) -> BoxedStrategy<String> {
        let named =
            fields.into_iter().map(|(name, values)| values.prop_map(move |one| (name, one)));
        let members = proptest::collection::vec(Union::new(named), 0..most);
        members.prop_map(|members| by_trees::object(&members)).boxed()
    }

    /// What an upstream may answer with: members twice, of other types, or missing.
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
        let usage = mostly(&[r#"{"total_tokens": 1, "b": {"a": 1.5}, "a": 2}"#, "null"]).boxed();
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

    type Told = Option<(String, String)>;

    /// What is shown, and the structured content but for the order and the writing of what was used.
    fn reply(answer: &[u8], by_messages: bool) -> Told {
        let plain = Object::parse(answer).ok().filter(|_| !by_messages);
        let plain = plain.and_then(|answer| ChatReply::plain(&answer));
        let reply = plain.or_else(|| ChatReply::read(answer, by_messages).ok())?;
        let outcome = CallOutcome { request_id: "req_1", served_by: "", cost: "0.5".parse().ok() };
        let content = String::from_utf8(reply.write(outcome, Vec::new())).expect("text");
        let shown = reply.shown().into_owned();
        let usage = match &reply.usage {
            ReplyUsage::Written(usage) => (*usage).to_owned(),
            ReplyUsage::Tree(usage) => usage.to_string(),
        };
        let mut tree = reply.into_tree();
        let read: Value = serde_json::from_str(&usage).expect("JSON");
        assert_eq!(tree["usage"], read, "{usage}");
        tree["request_id"] = json!("req_1");
        tree["cost_usd"] = json!("0.50");
        let content = content.strip_suffix(&format!("{usage}}}")).expect("at the end").to_owned();
        let content = format!("{content}{read}}}");
        assert_eq!(tree.to_string(), content);
        Some((shown, content))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        /// An answer says what its tree says, in the same order, and is none where there is no tree.
        #[test]
        fn answers_are_read_as_trees_were(answer in documents(), by_messages in any::<bool>()) {
            let text = String::from_utf8_lossy(&answer);
            let expected = by_trees::reply(&answer, by_messages);
            prop_assert_eq!(reply(&answer, by_messages), expected, "{}", text);
        }
    }

    #[test]
    fn what_is_called_is_shown_where_nothing_is_said() {
        let answer =
            br#"{"choices": [{"message": {"content": null, "tool_calls": [{"id": "1"}]}}]}"#;
        let (shown, content) = reply(answer, false).expect("an answer");
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
