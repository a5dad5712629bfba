//! What is known to be wrong still. The lists may only become shorter: take a line away to see its
//! examples.

use tollgate_simulator::strict::StrictDialect;

/// Rules of providers that requests still break.
pub(crate) const FAULTS: &[(StrictDialect, &str)] = &[
    (StrictDialect::ChatCommon, "json-word"),
    (StrictDialect::ChatCommon, "stop"),
    (StrictDialect::ChatCommon, "tool-schema"),
    (StrictDialect::OpenaiChat, "answer-schema"),
    (StrictDialect::OpenaiChat, "effort-of-others"),
    (StrictDialect::OpenaiChat, "effort-word"),
    (StrictDialect::OpenaiChat, "json-word"),
    (StrictDialect::OpenaiChat, "length"),
    (StrictDialect::OpenaiChat, "picture-type"),
    (StrictDialect::OpenaiChat, "stop-empty"),
    (StrictDialect::OpenaiChat, "tool-schema"),
    (StrictDialect::OpenaiChat, "tool-schema-strict"),
    (StrictDialect::OpenaiChat, "unknown-message-parameter"),
    (StrictDialect::OpenaiResponses, "answer-schema"),
    (StrictDialect::OpenaiResponses, "effort-word"),
    (StrictDialect::OpenaiResponses, "json-word"),
    (StrictDialect::OpenaiResponses, "length"),
    (StrictDialect::OpenaiResponses, "max-output-tokens"),
    (StrictDialect::OpenaiResponses, "picture-type"),
    (StrictDialect::OpenaiResponses, "reasoning-of-others"),
    (StrictDialect::OpenaiResponses, "tool-schema"),
    (StrictDialect::OpenaiResponses, "tool-schema-strict"),
    (StrictDialect::Anthropic, "answer-schema"),
    (StrictDialect::Anthropic, "tool-schema-strict"),
    (StrictDialect::Gemini, "answer-schema"),
    (StrictDialect::Gemini, "answer-with-tools"),
    (StrictDialect::Gemini, "stop"),
    (StrictDialect::Gemini, "tool-schema"),
    (StrictDialect::Bedrock, "answer-schema"),
    (StrictDialect::Bedrock, "stop"),
    (StrictDialect::Bedrock, "tool-schema"),
    (StrictDialect::Bedrock, "tool-schema-strict"),
];

/// Fields by which more requests are refused than should be.
pub(crate) const REFUSALS: &[&str] = &["stop"];
