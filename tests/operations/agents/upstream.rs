//! Upstreams of each dialect, and the models that they serve under the agents' names.

use std::net::SocketAddr;

/// The dialect of an upstream, with the model that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    Chat,
    Responses,
    Messages,
    Gemini,
    Converse,
}

/// Prices of all models: dollars for a million tokens.
pub(crate) const INPUT: u64 = 3;
pub(crate) const CACHED_TENTHS: u64 = 3;
pub(crate) const OUTPUT: u64 = 15;

impl Upstream {
    pub(crate) const ALL: [Self; 5] =
        [Self::Chat, Self::Responses, Self::Messages, Self::Gemini, Self::Converse];

    /// The name in the page of results.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Chat => "chat completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Gemini => "Gemini",
            Self::Converse => "Bedrock Converse",
        }
    }

    /// The lines of `routes.yaml` for an upstream at this address.
    pub(crate) fn routes(self, address: SocketAddr) -> String {
        let (protocol, path) = match self {
            Self::Chat | Self::Responses => ("openai", "/v1"),
            Self::Messages => ("anthropic", ""),
            Self::Gemini => ("gemini", "/v1beta"),
            Self::Converse => ("bedrock", ""),
        };
        format!("  simulated: {{ protocol: {protocol}, base_url: 'http://{address}{path}' }}\n")
    }

    /// The lines of `models.yaml` for a model of this name. The upstream of the agent's own dialect knows it by
    /// that name, any other by one of its own.
    pub(crate) fn model(self, name: &str, is_native: bool) -> String {
        let (operation, model, translated) = match self {
            Self::Chat => ("chat", "qwen3-coder", ""),
            Self::Responses => ("responses", "gpt-5.6-sol", "translated: { sampling: false }"),
            Self::Messages => ("messages", "claude-opus-4-8", "translated: { sampling: false }"),
            Self::Gemini => ("generate_content", "gemini-3.1-pro-preview", ""),
            Self::Converse => {
                ("chat", "anthropic.claude-opus-4-8", "translated: { sampling: false }")
            }
        };
        let model = if is_native { name } else { model };
        let translated = if is_native { "" } else { translated };
        format!(
            "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: simulated, model: {model} }}]
    {translated}
    prices:
      input_per_1m_tokens: {INPUT}
      cached_input_per_1m_tokens: 0.{CACHED_TENTHS}
      output_per_1m_tokens: {OUTPUT}
      per_1k_web_searches: 10
    limits: {{ context_tokens_max: 200000, output_tokens_max: 64000 }}\n"
        )
    }
}
