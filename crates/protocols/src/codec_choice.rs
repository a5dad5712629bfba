//! Chooses the codec that carries a request to an upstream.
//!
//! A provider has several APIs, and each takes other fields: OpenAI's chat completions take stop sequences
//! and several answers, its Responses API takes tools beside reasoning. A request goes through the first
//! codec that carries all of its meaning: the customer's native one, then the translating ones of
//! [`BRIDGES`](super::bridge) in their order. A second codec is tried only for a request that the first
//! refuses, or that loses a hint there which the second carries.

use super::bridge;
use super::json::Object;
use super::limits::{ChatTools, ModelLimits};
use super::{Call, Codec, Dialect, Operation, Request, codec};
use tollgate_types::error::GatewayError;

/// Hints that chat completions carry and the Responses API does not.
const CHAT_HINTS: [&str; 5] =
    ["seed", "presence_penalty", "frequency_penalty", "logit_bias", "top_logprobs"];

/// A model at upstreams of one dialect, as requests of one operation reach it.
#[derive(Clone, Copy, Debug)]
pub struct CodecChoice<'a> {
    /// The operation of the customer's request.
    pub operation: Operation,
    /// The dialect that the upstreams speak.
    pub dialect: Dialect,
    /// The operations that the model is sold for.
    pub operations: &'a [Operation],
    /// The model's limits, and its settings for translation.
    pub limits: &'a ModelLimits,
}

/// Relation of a codec's customer side to the upstreams' dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecKind {
    /// The customer speaks the upstreams' dialect.
    Native,
    /// Requests are translated into the upstreams' dialect.
    Translated,
}

/// A codec with the request that it has read.
pub type CodecCall = (&'static dyn Codec, Box<dyn Call>);

impl CodecChoice<'_> {
    /// The kind of the first codec; `None` without any.
    #[must_use]
    pub fn kind(&self) -> Option<CodecKind> {
        if self.native().is_some() {
            return Some(CodecKind::Native);
        }
        self.translated().next().map(|_| CodecKind::Translated)
    }

    /// The codec without translation, if the model serves the customer's operation.
    fn native(&self) -> Option<&'static dyn Codec> {
        let is_sold = self.operations.contains(&self.operation.granted_by());
        codec(self.operation, self.dialect).filter(|_| is_sold)
    }

    /// The translating codecs, the first choice first.
    fn translated(&self) -> impl Iterator<Item = &'static dyn Codec> {
        let is_on = self.limits.translation.is_some();
        let CodecChoice { operation, dialect, operations, .. } = *self;
        let found = is_on.then(|| bridge::bridges(operation, dialect, operations));
        found.into_iter().flatten()
    }

    /// Reads the request with the first codec that accepts it: the native one, or else a translating one.
    /// `None` without a codec.
    ///
    /// # Errors
    /// The field that the first codec refuses, where none accepts the request.
    #[must_use]
    pub fn read(&self, request: &Request<'_>) -> Option<Result<CodecCall, GatewayError>> {
        match self.native() {
            // The upstream is the same, but this API of it would refuse the tools.
            Some(_) if self.is_elsewhere(request) => {
                let refusal = |error| join_refusals(error, &self.limits.chat_tools.refusal());
                self.read_translated(request).map(|taken| taken.map_err(refusal))
            }
            Some(codec) => Some(codec.read(request, self.limits).map(|call| (codec, call))),
            None => self.read_translated(request),
        }
    }

    /// Reads the request with the first translating codec that accepts it; `None` without one.
    ///
    /// # Errors
    /// The field that the first codec refuses, where none accepts the request.
    #[must_use]
    pub fn read_translated(
        &self,
        request: &Request<'_>,
    ) -> Option<Result<CodecCall, GatewayError>> {
        let mut codecs = self.translated();
        let first = codecs.next()?;
        let read = |codec: &'static dyn Codec| -> Result<CodecCall, GatewayError> {
            codec.read(request, self.limits).map(|call| (codec, call))
        };
        match read(first) {
            Ok(taken) if !self.loses_a_hint(taken.1.as_ref()) => Some(Ok(taken)),
            Ok(taken) => {
                let others = codecs.filter_map(|codec| read(codec).ok());
                let all = std::iter::once(taken).chain(others);
                // The first of equals stays: the order of the bridges is that of preference.
                all.min_by_key(|(_, call)| losses(call.as_ref())).map(Ok)
            }
            Err(refusal) => {
                let mut other_refusal = None;
                for codec in codecs {
                    match read(codec) {
                        Ok(taken) => return Some(Ok(taken)),
                        // Each try translates the whole request: the next one is read only where
                        // this one is refused.
                        Err(error) => other_refusal = other_refusal.or(Some(error)),
                    }
                }
                Some(Err(match other_refusal {
                    Some(other) => join_refusals(refusal, &other),
                    None => refusal,
                }))
            }
        }
    }

    /// True for a chat request with tools that this model accepts only in its Responses API, which is enabled.
    fn is_elsewhere(&self, request: &Request<'_>) -> bool {
        self.operation == Operation::Chat
            && self.limits.chat_tools != ChatTools::Always
            && self.operations.contains(&Operation::Responses)
            && request.json().is_ok_and(|body| self.limits.chat_tools.refuses(body))
            && self.translated().next().is_some()
    }

    /// True for a call that has lost a hint which another codec would carry. Not for models that reason:
    /// chat completions hide their reasoning, which is the greater loss.
    fn loses_a_hint(&self, call: &dyn Call) -> bool {
        let lost = || {
            let left_out = call.left_out();
            let mut fields = left_out.iter().flat_map(|fields| fields.split(", "));
            fields.any(is_chat_hint)
        };
        !self.limits.reasoning && lost()
    }
}

/// True for the name of a hint that chat completions carry, in the words of any protocol:
/// `generationConfig.presencePenalty`.
fn is_chat_hint(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or_default();
    let letters = |name: &str| -> Vec<u8> {
        name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase()).collect()
    };
    CHAT_HINTS.iter().any(|hint| letters(hint) == letters(name))
}

fn losses(call: &dyn Call) -> usize {
    call.left_out().map_or(0, |fields| fields.split(", ").count())
}

/// Joins two refusals: the field that the first codec refuses, and the obstacle to the other.
fn join_refusals(first: GatewayError, other: &GatewayError) -> GatewayError {
    if other.param.is_none() || other.param == first.param {
        return first;
    }
    let message = format!("{} {}", first.message, other.message);
    GatewayError { message: message.into(), ..first }
}

impl ChatTools {
    /// True for a request to chat completions with tools that the model does not take there.
    pub(super) fn refuses(self, body: &Object<'_>) -> bool {
        let effort = || body.get_non_null("reasoning_effort");
        let is_none = || effort().is_some_and(|effort| effort.as_str().as_deref() == Some("none"));
        let is_refused = || match self {
            Self::Always => false,
            Self::WithoutEffort => effort().is_some() && !is_none(),
            Self::EffortNone => !is_none(),
            Self::Never => true,
        };
        let is_there = |field: &str| {
            let tools = body.get_non_null(field);
            // An empty list has no tools. OpenAI refuses it, in words of its own.
            tools.is_some_and(|tools| tools.elements().is_none_or(|mut all| all.next().is_some()))
        };
        self != Self::Always && (is_there("tools") || is_there("functions")) && is_refused()
    }

    /// The refusal of such a request.
    pub(super) fn refusal(self) -> GatewayError {
        let message = match self {
            Self::Never => "Chat completions of this model take no `tools`.",
            _ => "Chat completions of this model take no `tools` beside reasoning.",
        };
        GatewayError::invalid("tools", message)
    }
}

#[cfg(test)]
mod tests;
