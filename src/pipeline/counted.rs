//! Requests whose prompt a provider's counter counts: what goes to the counter, and what its answer
//! changes.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::balance::{Channel, TargetRank};
use crate::config::snapshot::Target;
use crate::credentials::Token;
use crate::pipeline::upstream_request::WayTo;
use crate::pipeline::{Resolved, UpstreamRequest, Validated};
use crate::protocols::counter::Counter;
use crate::protocols::doors::Doors;
use crate::protocols::json::Object;
use crate::protocols::splice::{EditedBody, Splice};
use crate::protocols::{Call, Codec, Dialect, Operation, PathAsked, Request, codec};

/// Fields of chat completions that decide about the answer and add nothing to the prompt.
const CHAT_ANSWER_FIELDS: [&str; 12] = [
    "stop",
    "n",
    "seed",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
];

/// Tokens of a prompt, as the provider of one of its models counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The [rank](Resolved::model_at) of the model.
    pub rank: usize,
    /// The dialect of the upstreams for which the request was counted.
    pub dialect: Dialect,
    /// Tokens of the prompt.
    pub tokens: u64,
}

/// A question to a counter.
#[derive(Debug)]
pub struct CountRequest {
    /// The counter that reads it.
    pub counter: Counter,
    /// The path below the upstream's prefix.
    path: String,
    /// Headers that the upstream needs.
    headers: &'static [(&'static str, &'static str)],
    body: EditedBody,
}

impl CountRequest {
    /// Adds everything that decides the count to `digest`.
    pub fn digest(&self, digest: &mut Sha256) {
        digest.update((self.path.len() as u64).to_le_bytes());
        digest.update(&self.path);
        self.body.pieces().iter().for_each(|piece| digest.update(piece));
    }

    /// The request as it goes to the target; `None` where the gateway signs in there and has not.
    #[must_use]
    pub fn into_upstream(
        self,
        target: &Target,
        channel: &Channel,
        token: Option<&Token>,
    ) -> Option<UpstreamRequest> {
        let Self { counter, path, headers, body } = self;
        let codec = codec(counter.operation(), target.upstream.dialect)?;
        let way = WayTo { target, channel, token };
        let request = UpstreamRequest::to(way, codec, &path, body)?;
        Some(UpstreamRequest { headers, ..request })
    }
}

impl Validated {
    /// Whether the request can be counted for a target of this rank: of its own model, where the
    /// provider's counter counts everything that the bound of its input stands for. What a fallback
    /// would count says nothing of the model itself.
    #[must_use]
    pub fn is_countable_at(&self, rank: TargetRank, target: &Target) -> bool {
        let reading = || self.reading(target.upstream.dialect);
        rank.model == 0
            && reading().is_some_and(|(codec, call)| {
                call.terms().is_countable() && has_counter(&self.resolved, target, codec)
            })
    }

    /// What goes to the counter of `target` for the customer's `body`; `None` where that would not be
    /// all of the prompt.
    #[must_use]
    pub fn count_request(&self, target: &Target, body: &Bytes) -> Option<CountRequest> {
        let (codec, call) = self.reading(target.upstream.dialect)?;
        let model = self.resolved.name_at(target);
        if codec.counter().is_some() {
            let written = call.splice(model).apply(body);
            return count_request(target, model, codec, &written);
        }
        // OpenAI counts for the Responses API alone: the prompt is the same in its words.
        let doors = responses_doors(&self.resolved, target)?;
        let prompt = chat_prompt(body)?;
        let object = Object::parse(&prompt).ok()?;
        let (codec, call) = doors.read_translated(&Request::Json(object))?.ok()?;
        let written = call.splice(model).apply(&prompt);
        count_request(target, model, codec, &written)
    }

    /// Lowers the bound of the request as the counted upstreams read it, which is its first reading from
    /// here on. Returns whether the bound is lower now; nothing has changed otherwise.
    pub(super) fn counted(&mut self, counted: &Counted) -> bool {
        let Counted { rank: 0, dialect, tokens } = *counted else { return false };
        if !self.codec.dialects().contains(&dialect) {
            let at = self.others.iter().position(|other| other.is_for(0, dialect));
            let Some(other) = at.and_then(|at| self.others.get_mut(at)) else { return false };
            if !other.call.terms_mut().count_input(tokens) {
                return false;
            }
            std::mem::swap(&mut self.codec, &mut other.codec);
            std::mem::swap(&mut self.call, &mut other.call);
            std::mem::swap(&mut self.kind, &mut other.kind);
        } else if !self.call.terms_mut().count_input(tokens) {
            return false;
        }
        true
    }

    /// The request as upstreams of its own model read it that speak `dialect`.
    fn reading(&self, dialect: Dialect) -> Option<(&'static dyn Codec, &dyn Call)> {
        if self.codec.dialects().contains(&dialect) {
            return Some((self.codec, self.call.as_ref()));
        }
        let other = self.others.iter().find(|other| other.is_for(0, dialect))?;
        Some((other.codec, other.call.as_ref()))
    }
}

/// Whether requests that `codec` writes for a target can be counted there.
fn has_counter(resolved: &Resolved, target: &Target, codec: &dyn Codec) -> bool {
    let counter = codec.counter();
    let operation = counter.map_or(Operation::InputTokens, Counter::operation);
    let is_known = counter.is_some() || responses_doors(resolved, target).is_some();
    is_known && target.upstream.offers(operation)
}

/// The way by which a chat request can be written for OpenAI's counter: where the model is sold over the
/// Responses API too, whose upstreams alone have it.
fn responses_doors<'a>(resolved: &'a Resolved, target: &Target) -> Option<Doors<'a>> {
    const RESPONSES: &[Operation] = &[Operation::Responses];
    let model = &resolved.model;
    let is_counted = resolved.operation == Operation::Chat
        && target.upstream.dialect == Dialect::Openai
        && model.operations.contains(&Operation::Responses);
    is_counted.then_some(Doors {
        operation: Operation::Chat,
        dialect: Dialect::Openai,
        operations: RESPONSES,
        limits: &model.limits,
    })
}

/// A chat request without fields that are about the answer alone: the Responses API has no word for some
/// of them.
fn chat_prompt(body: &Bytes) -> Option<Bytes> {
    let mut splice = Splice::default();
    for range in Object::parse(body).ok()?.member_ranges(&CHAT_ANSWER_FIELDS) {
        splice.replace(range, "");
    }
    Some(splice.apply(body))
}

fn count_request(
    target: &Target,
    model: &str,
    written_by: &dyn Codec,
    written: &Bytes,
) -> Option<CountRequest> {
    let counter = written_by.counter()?;
    let upstream = &target.upstream;
    let asked = PathAsked { dialect: upstream.dialect, model, streams: false };
    let codec = codec(counter.operation(), upstream.dialect)?;
    let path = upstream.path_for(codec.path_to(&asked)?, model)?;
    let body = counter.request(upstream.dialect, model, written)?;
    Some(CountRequest { counter, path: path.into_owned(), headers: written_by.headers(), body })
}
