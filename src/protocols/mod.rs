//! Pure codecs: bytes in, data out; no I/O and no clock.

pub mod json;
pub mod json_splice;
pub mod sse;

use std::fmt;

/// What a customer can ask for: one per kind of endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/images/generations`
    ImageGeneration,
    /// `POST /v1/images/edits`
    ImageEdit,
    /// `POST /v1/videos/generations`
    Video,
    /// `POST /v1/audio/speech`
    Speech,
}

impl Operation {
    /// Every operation, in the order in which documents list them.
    pub const ALL: [Self; 8] = [
        Self::Chat,
        Self::Messages,
        Self::Responses,
        Self::Embeddings,
        Self::ImageGeneration,
        Self::ImageEdit,
        Self::Video,
        Self::Speech,
    ];

    /// The word used in YAML, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::ImageGeneration => "image_generation",
            Self::ImageEdit => "image_edit",
            Self::Video => "video",
            Self::Speech => "speech",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The protocol family that an upstream speaks: `protocol` in `routes.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's API and the many servers that copy it.
    Openai,
    /// Anthropic's Messages API.
    Anthropic,
    /// DashScope's native API.
    Dashscope,
    /// Ark / ModelArk.
    Ark,
    /// xAI's native API.
    Xai,
    /// Voyage's embeddings API.
    Voyage,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 6] =
        [Self::Openai, Self::Anthropic, Self::Dashscope, Self::Ark, Self::Xai, Self::Voyage];

    /// The word used in YAML.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Dashscope => "dashscope",
            Self::Ark => "ark",
            Self::Xai => "xai",
            Self::Voyage => "voyage",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether this build can serve `operation` over an upstream that speaks `dialect`.
#[must_use]
pub fn is_served(operation: Operation, dialect: Dialect) -> bool {
    matches!((operation, dialect), (Operation::Chat | Operation::Embeddings, Dialect::Openai))
}
