//! Dialects of customers and upstreams, and the requests that are sent in them.

use serde_json::{Value, json};

use super::agent::{AgentDialect, AgentRequest};

/// A protocol of language models. Bedrock's is spoken by upstreams only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dialect {
    Chat,
    Messages,
    Responses,
    Gemini,
    Bedrock,
}

/// Size and structure of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A question of 1 KiB.
    Small,
    /// A conversation of 16 KiB in plain text.
    Conversation,
    /// A coding agent's request with its tools and results, 105 to 120 KB.
    Agent,
    /// The agent's request with a picture of 1 MiB.
    Screenshot,
}

/// Seed of agents' requests: the same in every benchmark, so that their figures are of the same bytes.
const SEED: u64 = 40;

impl Dialect {
    pub(crate) const CUSTOMERS: [Self; 4] =
        [Self::Chat, Self::Messages, Self::Responses, Self::Gemini];
    pub(crate) const UPSTREAMS: [Self; 5] =
        [Self::Chat, Self::Messages, Self::Responses, Self::Gemini, Self::Bedrock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "Gemini",
            Self::Bedrock => "Bedrock",
        }
    }

    /// The operation of a model at an upstream of this dialect.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Chat | Self::Bedrock => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "generate_content",
        }
    }

    /// `protocol` of an upstream in `routes.yaml`.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "openai",
            Self::Messages => "anthropic",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
        }
    }

    /// The end of an upstream's `base_url` in `routes.yaml`.
    pub(crate) fn version_path(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "/v1",
            Self::Gemini => "/v1beta",
            Self::Messages | Self::Bedrock => "",
        }
    }

    /// The path of a request.
    pub(crate) fn path(self, model: &str, stream: bool) -> String {
        match (self, stream) {
            (Self::Chat, _) => "/v1/chat/completions".to_owned(),
            (Self::Messages, _) => "/v1/messages".to_owned(),
            (Self::Responses, _) => "/v1/responses".to_owned(),
            (Self::Gemini, false) => format!("/v1beta/models/{model}:generateContent"),
            (Self::Gemini, true) => {
                format!("/v1beta/models/{model}:streamGenerateContent?alt=sse")
            }
            (Self::Bedrock, false) => format!("/model/{model}/converse"),
            (Self::Bedrock, true) => format!("/model/{model}/converse-stream"),
        }
    }

    /// The last bytes of a complete stream to a customer. Where no event says that it was the last, any is.
    pub(crate) fn stream_end(self) -> &'static [u8] {
        match self {
            Self::Chat => b"data: [DONE]\n\n",
            Self::Messages => b"data: {\"type\":\"message_stop\"}\n\n",
            Self::Responses => b"}\n\n",
            Self::Gemini | Self::Bedrock => b"\n",
        }
    }

    /// The body of a customer's request.
    pub(crate) fn body(self, shape: Shape, model: &'static str, stream: bool) -> Vec<u8> {
        let has_picture = shape == Shape::Screenshot;
        match shape {
            Shape::Small => self.conversation(1, model, stream),
            Shape::Conversation => self.conversation(21, model, stream),
            Shape::Agent | Shape::Screenshot => {
                let dialect = match self {
                    // Nobody asks in Bedrock's dialect.
                    Self::Chat | Self::Bedrock => AgentDialect::Chat,
                    Self::Messages => AgentDialect::Messages,
                    Self::Responses => AgentDialect::Responses,
                    Self::Gemini => AgentDialect::Gemini,
                };
                let (is_streamed, seed) = (stream, SEED);
                let request = AgentRequest { dialect, model, is_streamed, has_picture, seed };
                request.body().into_bytes()
            }
        }
    }

    /// A conversation in turns of 748 bytes.
    fn conversation(self, turns: usize, model: &str, stream: bool) -> Vec<u8> {
        let text = "Every quarter of an hour, from six to nine. ".repeat(17);
        let turn = |place: usize| match (self, place.is_multiple_of(2)) {
            (Self::Gemini, true) => json!({"role": "user", "parts": [{"text": text}]}),
            (Self::Gemini, false) => json!({"role": "model", "parts": [{"text": text}]}),
            (_, true) => json!({"role": "user", "content": text}),
            (_, false) => json!({"role": "assistant", "content": text}),
        };
        let turns: Vec<Value> = (0..turns).map(turn).collect();
        let system = "You are a travel assistant. Answer in two sentences, without a greeting.";
        let mut body = match self {
            Self::Chat | Self::Bedrock => {
                let first = json!({"role": "system", "content": system});
                let turns: Vec<Value> = std::iter::once(first).chain(turns).collect();
                json!({"max_tokens": 16_000, "messages": turns})
            }
            Self::Messages => json!({"max_tokens": 16_000, "system": system, "messages": turns}),
            Self::Responses => json!({"max_output_tokens": 16_000, "instructions": system,
                "input": turns, "store": false}),
            Self::Gemini => json!({
                "contents": turns,
                "systemInstruction": {"parts": [{"text": system}]},
                "generationConfig": {"maxOutputTokens": 16_000, "temperature": 0.2},
            }),
        };
        if self != Self::Gemini {
            body["model"] = json!(model);
            body["temperature"] = json!(0.2);
            body["stream"] = json!(stream);
        }
        body.to_string().into_bytes()
    }
}
