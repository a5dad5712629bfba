//! Protocols that upstreams speak.

use std::fmt;

/// The protocol family that an upstream speaks: `protocol` in `routes.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's API and the many servers that copy it.
    Openai,
    /// Anthropic's Messages API.
    Anthropic,
    /// The family of DashScope's native API.
    Dashscope,
    /// The family of Ark, which is ModelArk abroad.
    Ark,
    /// The family of xAI's native API.
    Xai,
    /// The family of Voyage's API for embeddings and rankings.
    Voyage,
    /// Amazon Bedrock's Converse API.
    Bedrock,
    /// Google's Gemini API with an API key.
    Gemini,
    /// Google's Gemini API on Vertex AI with an access token.
    Vertex,
}

impl Dialect {
    /// Every dialect that there is.
    pub const ALL: [Self; 9] = [
        Self::Openai,
        Self::Anthropic,
        Self::Dashscope,
        Self::Ark,
        Self::Xai,
        Self::Voyage,
        Self::Bedrock,
        Self::Gemini,
        Self::Vertex,
    ];

    /// The header that carries the operator's credential, and its value.
    #[must_use]
    pub fn credential_header(self, credential: &str) -> (&'static str, String) {
        match self {
            Self::Anthropic => ("x-api-key", credential.to_owned()),
            Self::Gemini => ("x-goog-api-key", credential.to_owned()),
            Self::Openai
            | Self::Dashscope
            | Self::Ark
            | Self::Xai
            | Self::Voyage
            | Self::Bedrock
            | Self::Vertex => ("authorization", format!("Bearer {credential}")),
        }
    }

    /// Name in the YAML files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Dashscope => "dashscope",
            Self::Ark => "ark",
            Self::Xai => "xai",
            Self::Voyage => "voyage",
            Self::Bedrock => "bedrock",
            Self::Gemini => "gemini",
            Self::Vertex => "vertex",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
