//! The ways to ask one upstream for a request, and which of them takes it.
//!
//! A provider has doors that take different things: OpenAI's chat completions take stop sequences and
//! several answers, its Responses API takes tools beside reasoning. A request goes through the first door
//! that carries all of it that has a meaning. The customer's own door comes first, then those of
//! [`BRIDGES`](super::bridge) in their order. Few requests are written for a second one: those that the
//! first refuses, and those that lose a hint there which the second is known to carry.

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
pub struct Doors<'a> {
    /// The operation of the customer's request.
    pub operation: Operation,
    /// The dialect that the upstreams speak.
    pub dialect: Dialect,
    /// The operations that the model is sold for.
    pub operations: &'a [Operation],
    /// The model's limits, and its settings for translation.
    pub limits: &'a ModelLimits,
}

/// A way to upstreams of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorKind {
    /// In the customer's own words.
    Native,
    /// Translated into the dialect of the upstreams.
    Translated,
}

/// A request as one door takes it.
pub type TakenRequest = (&'static dyn Codec, Box<dyn Call>);

impl Doors<'_> {
    /// The way to these upstreams; `None` where no request gets there.
    #[must_use]
    pub fn kind(&self) -> Option<DoorKind> {
        if self.native().is_some() {
            return Some(DoorKind::Native);
        }
        self.translated().next().map(|_| DoorKind::Translated)
    }

    /// The customer's own door, if the model is for that.
    fn native(&self) -> Option<&'static dyn Codec> {
        let is_sold = self.operations.contains(&self.operation.granted_by());
        codec(self.operation, self.dialect).filter(|_| is_sold)
    }

    /// The doors with a translation, the first choice first.
    fn translated(&self) -> impl Iterator<Item = &'static dyn Codec> {
        let is_on = self.limits.translation.is_some();
        let Doors { operation, dialect, operations, .. } = *self;
        let found = is_on.then(|| bridge::bridges(operation, dialect, operations));
        found.into_iter().flatten()
    }

    /// Has the first door read the request that takes it: the customer's own, or else one with a
    /// translation; `None` without a door.
    ///
    /// # Errors
    /// The field that the first door does not carry, where none takes the request.
    #[must_use]
    pub fn read(&self, request: &Request<'_>) -> Option<Result<TakenRequest, GatewayError>> {
        match self.native() {
            Some(_) if self.is_elsewhere(request) => {
                let refusal = |error| of_both(error, &self.limits.chat_tools.refusal());
                self.read_translated(request).map(|taken| taken.map_err(refusal))
            }
            Some(codec) => Some(codec.read(request, self.limits).map(|call| (codec, call))),
            None => self.read_translated(request),
        }
    }

    /// Has the first door with a translation read the request that takes it; `None` without one.
    ///
    /// # Errors
    /// The field that the first door does not carry, where none takes the request.
    #[must_use]
    pub fn read_translated(
        &self,
        request: &Request<'_>,
    ) -> Option<Result<TakenRequest, GatewayError>> {
        let mut doors = self.translated();
        let first = doors.next()?;
        let read = |codec: &'static dyn Codec| -> Result<TakenRequest, GatewayError> {
            codec.read(request, self.limits).map(|call| (codec, call))
        };
        match read(first) {
            Ok(taken) if !self.loses_a_hint(taken.1.as_ref()) => Some(Ok(taken)),
            Ok(taken) => {
                let others = doors.filter_map(|door| read(door).ok());
                let all = std::iter::once(taken).chain(others);
                all.min_by_key(|(_, call)| losses(call.as_ref())).map(Ok)
            }
            Err(refused) => {
                let mut of_others = None;
                for door in doors {
                    match read(door) {
                        Ok(taken) => return Some(Ok(taken)),
                        Err(error) => of_others = of_others.or(Some(error)),
                    }
                }
                Some(Err(match of_others {
                    Some(other) => of_both(refused, &other),
                    None => refused,
                }))
            }
        }
    }

    /// True for a chat request with tools that this model takes through another door alone, which it has.
    fn is_elsewhere(&self, request: &Request<'_>) -> bool {
        self.operation == Operation::Chat
            && self.limits.chat_tools != ChatTools::Always
            && self.operations.contains(&Operation::Responses)
            && request.json().is_ok_and(|body| self.limits.chat_tools.refuses(body))
            && self.translated().next().is_some()
    }

    /// True for a call that has lost a hint which another door would carry. A model that reasons keeps its
    /// thoughts to itself there, which is the greater loss.
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

/// Joins two refusals: the fields that the first operation does not carry, and the obstacle to the other.
fn of_both(first: GatewayError, other: &GatewayError) -> GatewayError {
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
