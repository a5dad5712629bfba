//! Opaque tokens of one dialect that travel in the opaque fields of another: signatures of thoughts,
//! encrypted reasoning, signatures of calls.
//!
//! A seal is `tg1.<dialect>.<token>`, with the token as its upstream wrote it. Only the dialect that
//! made it opens it; what another made is left out, as it would be refused there. Nothing is kept
//! between requests.

use std::borrow::Cow;

use serde::Deserialize;

use crate::dialect::MalformedAnswer;
use crate::json;
use crate::part::{PromptPart, Reasoning, ToolCall};

/// Prefix of every seal.
const PREFIX: &str = "tg1.";

/// A signature at most, in bytes: it is kept until it is whole, and those of long thoughts have some ten
/// thousand.
const SIGNATURE_BYTES_MAX: usize = 512 * 1024;

/// Dialect whose token a seal wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// OpenAI's chat completions: an entry of `reasoning_details`, as JSON.
    Chat,
    /// Anthropic's `signature` of a `thinking` block.
    Messages,
    /// Anthropic's `data` of a `redacted_thinking` block.
    MessagesRedacted,
    /// OpenAI's responses: a whole `reasoning` item, as JSON.
    Responses,
    /// Gemini's `thoughtSignature` of a part.
    Gemini,
    /// The `signature` of a `reasoningText` of Amazon Bedrock's Converse API.
    Converse,
    /// The `redactedContent` of a `reasoningContent` of Amazon Bedrock's Converse API.
    ConverseRedacted,
}

impl Maker {
    fn word(self) -> &'static str {
        match self {
            Self::Chat => "c",
            Self::Messages => "m",
            Self::MessagesRedacted => "x",
            Self::Responses => "r",
            Self::Gemini => "g",
            Self::Converse => "b",
            Self::ConverseRedacted => "bx",
        }
    }
}

/// The token as it travels.
#[must_use]
pub fn wrap(maker: Maker, token: &str) -> String {
    format!("{PREFIX}{}.{token}", maker.word())
}

/// The token, if this dialect made it.
#[must_use]
pub fn open(maker: Maker, seal: &str) -> Option<&str> {
    seal.strip_prefix(PREFIX)?.strip_prefix(maker.word())?.strip_prefix('.')
}

/// True if the text is a seal that this gateway wrote.
#[must_use]
pub fn is_wrapped(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Reads a token that a customer of the dialect `maker` sends back: a seal stays as it is, and a bare token
/// is that dialect's own and is wrapped.
#[must_use]
pub fn from_customer<'a>(maker: Maker, token: &'a str) -> Cow<'a, str> {
    if is_wrapped(token) { token.into() } else { wrap(maker, token).into() }
}

/// The signature of a call that Gemini's compatible API puts beside it.
pub(crate) fn thought_signature(value: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Extra<'a> {
        #[serde(borrow)]
        google: Google<'a>,
    }
    #[derive(Deserialize)]
    struct Google<'a> {
        #[serde(borrow)]
        thought_signature: Cow<'a, str>,
    }
    json::read::<Extra<'_>>(value).map(|extra| extra.google.thought_signature)
}

/// Adds a piece to the signature of thoughts.
pub(crate) fn push_signature(signature: &mut String, more: &str) -> Result<(), MalformedAnswer> {
    if signature.len() + more.len() > SIGNATURE_BYTES_MAX {
        return Err(MalformedAnswer("a signature that has no end".to_owned()));
    }
    signature.push_str(more);
    Ok(())
}

/// Gives calls the seals that travelled in thoughts of their own before them, in dialects whose calls
/// have no place for one.
pub(crate) fn attach_to_calls(parts: &mut Vec<PromptPart<'_>>) {
    let mut kept = Vec::with_capacity(parts.len());
    let mut carried = None;
    for part in parts.drain(..) {
        match part {
            PromptPart::Reasoning(Reasoning { text, seal: Some(seal) })
                if text.is_empty() && open(Maker::Gemini, &seal).is_some() =>
            {
                carried = Some(seal);
            }
            PromptPart::ToolCall(call) => {
                let seal = call.seal.clone().or(carried.take());
                kept.push(PromptPart::ToolCall(ToolCall { seal, ..call }));
            }
            other => kept.push(other),
        }
    }
    *parts = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_maker_opens_a_seal() {
        let seal = wrap(Maker::Messages, "a.b=");
        assert_eq!(open(Maker::Messages, &seal), Some("a.b="));
        assert_eq!(open(Maker::Responses, &seal), None);
        assert_eq!(open(Maker::Messages, "a.b="), None);
        assert_eq!(from_customer(Maker::Responses, &seal), seal);
        assert_eq!(from_customer(Maker::Responses, "e"), "tg1.r.e");
    }
}
