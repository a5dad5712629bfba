//! `chat`: a whole answer of a language model, whichever of the two protocols it is asked in.

use bytes::Bytes;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::caller::{GatewayAnswer, ToolCaller};
use super::conversation::{self, ChatMessage, Role};
use super::reply::ChatReply;
use super::text::{BorrowedText, ObjectTree};
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::usable_model::UsableModel;
use super::writer::ObjectWriter;
use super::{arguments, schema};
use tollgate_protocols::Operation;

/// The name of the tool.
pub(super) const NAME: &str = "chat";
/// Output limit for a model of Anthropic's where the caller gives none: its API requires a number.
const MAX_TOKENS_DEFAULT: u64 = 4096;
/// Room for the body of the model's request: most fit.
const BODY_BYTES: usize = 1024;

/// Tool that sends messages to a language model.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: NAME,
    title: "Ask a model",
    description: "Sends messages to a language model and returns its answer.",
    operations: &[Operation::Chat, Operation::Messages],
    is_read_only: false,
    schema,
    call: |caller, arguments| Box::pin(call(caller, arguments)),
};

/// The arguments of a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChatArguments<'a> {
    #[serde(borrow)]
    model: BorrowedText<'a>,
    #[serde(borrow)]
    prompt: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    messages: Option<Vec<ChatMessage<'a>>>,
    #[serde(borrow)]
    system: Option<BorrowedText<'a>>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    #[serde(borrow)]
    stop: Option<Vec<BorrowedText<'a>>>,
    extra: Option<ObjectTree>,
}

/// The body of the model's request but for `extra`, before it is written. Its members are in the order of their names.
struct ModelBody<'a> {
    max_tokens: Option<u64>,
    messages: ModelMessages<'a>,
    model: BorrowedText<'a>,
    stop: Option<Vec<BorrowedText<'a>>>,
    stop_sequences: Option<Vec<BorrowedText<'a>>>,
    system: Option<String>,
    temperature: Option<f64>,
    top_p: Option<f64>,
}

/// The messages in the words of the model's protocol.
enum ModelMessages<'a> {
    /// Messages for chat completions.
    Chat(Vec<ChatMessage<'a>>),
    /// Messages for Anthropic's API.
    Messages(Vec<Value>),
}

/// The value of a member.
enum RequestMember<'r, 'a> {
    Count(u64),
    Number(f64),
    Text(&'r str),
    Texts(&'r [BorrowedText<'a>]),
    Messages(&'r ModelMessages<'a>),
}

/// A [`ModelBody`] with `extra`, as JSON.
pub(super) struct WrittenRequest {
    /// True for the Messages API, false for chat completions.
    pub(super) by_messages: bool,
    body: Bytes,
}

/// Schema of the arguments, and the required ones.
pub(super) fn schema(usable: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
    let tokens = usable.iter().map(|usable| usable.model.limits.output_tokens_max).max();
    let properties = json!({
        "model": schema::model(usable),
        "prompt": {"type": "string", "description": "One message of the user, in the place of `messages`."},
        "messages": {
            "type": "array",
            "minItems": 1,
            "description": "The conversation, the last message at its end.",
            "items": conversation::schema(),
        },
        "system": {"type": "string", "description": "How the model is to behave."},
        "max_tokens": {
            "type": "integer",
            "minimum": 1,
            "maximum": tokens.unwrap_or(1),
            "description": "The longest answer. The most that the call can cost grows with it.",
        },
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "stop": {"type": "array", "items": {"type": "string"}, "description": "Texts to end at."},
        "extra": schema::extra(),
    });
    (properties, &["model"])
}

/// Calls the model.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn call(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let request = WrittenRequest::new(caller, arguments::read(arguments)?)?;
    let mut answer = request.send(caller).await?;
    let body = answer.body.clone();
    let reply = ChatReply::parse(&mut answer, &body, request.by_messages)?;
    let shown = ContentBlock::text(reply.shown());
    let mut result = CallToolResult::success(vec![shown]);
    result.structured_content = Some(answer.with_cost(reply.into_tree()));
    Ok(result)
}

impl WrittenRequest {
    /// The request that these arguments make to the model that they name.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn new(
        caller: &ToolCaller,
        arguments: ChatArguments<'_>,
    ) -> Result<Self, ToolError> {
        let model = caller.snapshot.model(&arguments.model);
        let speaks = |operation| model.is_some_and(|model| model.operations.contains(&operation));
        // Whom nobody knows is refused as such, in one protocol as in the other.
        let by_messages = speaks(Operation::Messages) && !speaks(Operation::Chat);
        let most = model.map_or(0, |model| model.limits.output_tokens_max);
        let body = arguments.body(by_messages, most)?.into();
        Ok(Self { by_messages, body })
    }

    /// Sends it to the gateway.
    ///
    /// # Errors
    /// What the gateway refuses, in its words.
    pub(super) async fn send(&self, caller: &ToolCaller) -> Result<GatewayAnswer, ToolError> {
        let operation = if self.by_messages { Operation::Messages } else { Operation::Chat };
        caller.post_written(operation, self.body.clone()).await
    }
}

impl<'a> ChatArguments<'a> {
    /// The body of the request, in the words of the model's protocol.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    pub(super) fn body(
        mut self,
        by_messages: bool,
        output_tokens_max: u64,
    ) -> Result<Vec<u8>, ToolError> {
        let mut extra = self.extra.take().map(|ObjectTree(extra)| extra).unwrap_or_default();
        // An answer in pieces has no reader here.
        extra.remove("stream");
        let request = match by_messages {
            true => self.in_messages(output_tokens_max)?,
            false => self.in_chat()?,
        };
        Ok(request.write(extra))
    }

    /// The messages, which can be written as a single prompt.
    fn conversation(&mut self) -> Result<Vec<ChatMessage<'a>>, ToolError> {
        let messages = match (self.prompt.take(), self.messages.take()) {
            (Some(prompt), None) => vec![ChatMessage::new(Role::User, prompt)],
            (None, Some(messages)) => messages,
            _ => return Err(ToolError::arguments("Give either `prompt` or `messages`.")),
        };
        messages.iter().try_for_each(ChatMessage::check)?;
        Ok(messages)
    }

    fn in_chat(mut self) -> Result<ModelBody<'a>, ToolError> {
        let mut messages = self.conversation()?;
        if let Some(system) = self.system.take() {
            messages.insert(0, ChatMessage::new(Role::System, system));
        }
        let stop = self.stop.take();
        let request = self.request(ModelMessages::Chat(messages));
        Ok(ModelBody { stop, ..request })
    }

    fn in_messages(mut self, output_tokens_max: u64) -> Result<ModelBody<'a>, ToolError> {
        let messages = self.conversation()?;
        let is_system = |message: &&ChatMessage<'_>| message.role == Role::System;
        let own = self.system.as_deref().map(Some);
        let others = messages.iter().filter(is_system).map(|message| message.content.as_str());
        let texts: Option<Vec<&str>> = own.into_iter().chain(others).collect();
        let texts = texts.ok_or_else(|| {
            ToolError::arguments("The content of a system message must be a text.")
        })?;
        let system = (!texts.is_empty()).then(|| texts.join("\n\n"));
        let conversation = messages.iter().filter(|message| !is_system(message));
        let conversation: Result<_, _> = conversation.map(ChatMessage::in_messages).collect();
        let conversation = ModelMessages::Messages(conversation?);
        let default = MAX_TOKENS_DEFAULT.min(output_tokens_max.max(1));
        let max_tokens = Some(self.max_tokens.unwrap_or(default));
        let stop_sequences = self.stop.take();
        let request = self.request(conversation);
        Ok(ModelBody { max_tokens, stop_sequences, system, ..request })
    }

    /// Fields that both protocols share.
    fn request(self, messages: ModelMessages<'a>) -> ModelBody<'a> {
        let Self { model, max_tokens, temperature, top_p, .. } = self;
        let (stop, stop_sequences, system) = (None, None, None);
        ModelBody { max_tokens, messages, model, stop, stop_sequences, system, temperature, top_p }
    }
}

impl<'a> ModelBody<'a> {
    fn members(&self) -> [(&'static str, Option<RequestMember<'_, 'a>>); 8] {
        [
            ("max_tokens", self.max_tokens.map(RequestMember::Count)),
            ("messages", Some(RequestMember::Messages(&self.messages))),
            ("model", Some(RequestMember::Text(&self.model))),
            ("stop", self.stop.as_deref().map(RequestMember::Texts)),
            ("stop_sequences", self.stop_sequences.as_deref().map(RequestMember::Texts)),
            ("system", self.system.as_deref().map(RequestMember::Text)),
            ("temperature", self.temperature.map(RequestMember::Number)),
            ("top_p", self.top_p.map(RequestMember::Number)),
        ]
    }

    /// Writes it with the fields that the tool has no argument for. What it has one for is not theirs to
    /// say.
    fn write(&self, mut extra: Map<String, Value>) -> Vec<u8> {
        let mut object = ObjectWriter::new(Vec::with_capacity(BODY_BYTES));
        let members = self.members();
        let members = members.iter().filter_map(|(name, member)| Some((*name, member.as_ref()?)));
        for (name, _) in members.clone() {
            extra.remove(name);
        }
        // As in a tree, all are in the order of their names.
        let mut extra = extra.into_iter().peekable();
        for (name, member) in members {
            while let Some((other, value)) = extra.next_if(|(other, _)| other.as_str() < name) {
                object.member(&other, &value);
            }
            member.write(&mut object, name);
        }
        extra.for_each(|(name, value)| object.member(&name, &value));
        object.end()
    }
}

impl RequestMember<'_, '_> {
    fn write(&self, object: &mut ObjectWriter, name: &'static str) {
        match self {
            Self::Count(count) => object.value(name, count),
            Self::Number(number) => object.value(name, number),
            Self::Text(text) => object.text(name, text),
            Self::Texts(texts) => object.value(name, texts),
            Self::Messages(ModelMessages::Messages(messages)) => object.value(name, messages),
            Self::Messages(ModelMessages::Chat(messages)) => {
                object.array(name, messages, ChatMessage::write);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_protocols::json::Object;

    fn written(arguments: Value, by_messages: bool) -> Result<Vec<u8>, ToolError> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        arguments::read::<ChatArguments<'_>>(arguments)?.body(by_messages, 1000)
    }

    fn body(arguments: Value, by_messages: bool) -> Result<Value, ToolError> {
        let body = written(arguments, by_messages)?;
        Ok(serde_json::from_slice(&body).expect("JSON"))
    }

    #[test]
    fn both_protocols_are_written() {
        let arguments = json!({"model": "m", "prompt": "Hi", "system": "Be brief.", "stop": ["x"]});
        let chat = body(arguments.clone(), false).expect("a body");
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ]);
        let expected = json!({"model": "m", "messages": messages, "stop": ["x"]});
        assert_eq!(chat, expected);
        let other = body(arguments, true).expect("a body");
        let expected = json!({
            "model": "m",
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 1000,
            "stop_sequences": ["x"],
        });
        assert_eq!(other, expected);
    }

    #[test]
    fn arguments_that_say_two_things_are_refused() {
        for arguments in [
            json!({"model": "m"}),
            json!({"model": "m", "prompt": "a", "messages": []}),
            json!({"prompt": "a"}),
            json!({"model": "m", "prompt": "a", "other": 1}),
            json!({"model": "m", "messages": [{"role": "tool", "content": "a"}]}),
            json!({"model": "m", "messages": "a"}),
            json!({"model": 1, "prompt": "a"}),
        ] {
            assert!(body(arguments.clone(), false).is_err(), "{arguments}");
        }
    }

    #[test]
    fn further_fields_do_not_say_again_what_the_arguments_say() {
        let extra = json!({
            "a": 1,
            "max_tokens": 9,
            "messages": [],
            "model": "n",
            "modela": 2,
            "n": 3,
            "stream": true,
            "temperature": 2,
            "zz": 4,
        });
        let arguments = json!({
            "model": "m", "prompt": "Hi", "max_tokens": 5, "temperature": 0, "extra": extra,
        });
        for by_messages in [false, true] {
            let written = written(arguments.clone(), by_messages).expect("a body");
            // The strict reader takes no name twice.
            let body = Object::parse(&written).expect("an object");
            let text = |name| body.get(name).map(|value| value.text());
            for (name, value) in
                [("model", &br#""m""#[..]), ("max_tokens", b"5"), ("temperature", b"0.0")]
            {
                assert_eq!(text(name), Some(value), "{name}");
            }
            assert_ne!(text("messages"), Some(&b"[]"[..]));
            assert_eq!(text("stream"), None);
            let others = ["a", "modela", "n", "zz"].map(text);
            assert_eq!(others, [b"1", b"2", b"3", b"4"].map(|value| Some(&value[..])));
        }
        let body = body(json!({"model": "m", "prompt": "a", "extra": {"max_tokens": 9}}), false);
        assert_eq!(body.expect("a body")["max_tokens"], 9, "no argument says it");
    }
}
