//! Token counting by providers: the request to a counting endpoint, and the effect of its result.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::upstream_request::ChannelTarget;
use crate::{ResolvedRequest, UpstreamRequest, ValidatedRequest};
use tollgate_balance::{Channel, TargetRank};
use tollgate_config::snapshot::Target;
use tollgate_credentials::Token;
use tollgate_protocols::codec_choice::CodecChoice;
use tollgate_protocols::counter::Counter;
use tollgate_protocols::json::Object;
use tollgate_protocols::splice::{EditedBody, Splice};
use tollgate_protocols::{Call, Codec, Dialect, Operation, PathVariables, Request, codec};

/// Chat completions fields that affect the answer only, not the prompt.
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

/// A provider's token count of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptCount {
    /// The [rank](Resolved::model_at) of the model.
    pub rank: usize,
    /// Dialect of the upstreams that the count applies to.
    pub dialect: Dialect,
    /// Tokens of the prompt.
    pub tokens: u64,
}

/// A request to a counting endpoint.
#[derive(Debug)]
pub struct CountRequest {
    /// Provider's counter to call.
    pub counter: Counter,
    /// Path below the upstream's prefix.
    path: String,
    /// Headers that the endpoint requires.
    headers: &'static [(&'static str, &'static str)],
    body: EditedBody,
}

impl CountRequest {
    /// Add everything that decides the count to `digest`.
    pub fn digest(&self, digest: &mut Sha256) {
        // The length first: no path and body may run together to the bytes of another pair.
        digest.update((self.path.len() as u64).to_le_bytes());
        digest.update(&self.path);
        self.body.pieces().iter().for_each(|piece| digest.update(piece));
    }

    /// Convert to an upstream request; `None` if the gateway must sign in first.
    #[must_use]
    pub fn into_upstream(
        self,
        target: &Target,
        channel: &Channel,
        token: Option<&Token>,
    ) -> Option<UpstreamRequest> {
        let Self { counter, path, headers, body } = self;
        let codec = codec(counter.operation(), target.upstream.dialect)?;
        let channel_target = ChannelTarget { target, channel, token };
        let request = UpstreamRequest::to(channel_target, codec, &path, body)?;
        Some(UpstreamRequest { headers, ..request })
    }
}

impl ValidatedRequest {
    /// True if the request can be counted at a target of this rank: of its own model only, and where the
    /// counter covers everything in the input bound. A fallback's count is not valid for the model
    /// itself.
    #[must_use]
    pub fn is_countable_at(&self, rank: TargetRank, target: &Target) -> bool {
        let reading = || self.reading(target.upstream.dialect);
        rank.model == 0
            && reading().is_some_and(|(codec, call)| {
                call.bounds().is_countable() && has_counter(&self.resolved, target, codec)
            })
    }

    /// Build the counting request at `target` for the customer's `body`; `None` if it could not
    /// represent the whole prompt.
    #[must_use]
    pub fn count_request(&self, target: &Target, body: &Bytes) -> Option<CountRequest> {
        let (codec, call) = self.reading(target.upstream.dialect)?;
        let model = self.resolved.name_at(target);
        if codec.counter().is_some() {
            let written = call.splice(model).apply(body);
            return count_request(target, model, codec, &written);
        }
        // OpenAI counts for the Responses API only; the translated prompt has equal tokens.
        let codec_choice = responses_codecs(&self.resolved, target)?;
        let prompt = chat_prompt(body)?;
        let object = Object::parse(&prompt).ok()?;
        let (codec, call) = codec_choice.read_translated(&Request::Json(object))?.ok()?;
        let written = call.splice(model).apply(&prompt);
        count_request(target, model, codec, &written)
    }

    /// Lower the input bound of the counted reading and make it the first one. Returns true if the bound
    /// is lower now; otherwise nothing has changed.
    pub(super) fn apply_count(&mut self, counted: &PromptCount) -> bool {
        let PromptCount { rank: 0, dialect, tokens } = *counted else { return false };
        if !self.codec.dialects().contains(&dialect) {
            let at = self.others.iter().position(|other| other.is_for(0, dialect));
            let Some(other) = at.and_then(|at| self.others.get_mut(at)) else { return false };
            if !other.call.bounds_mut().count_input(tokens) {
                return false;
            }
            std::mem::swap(&mut self.codec, &mut other.codec);
            std::mem::swap(&mut self.call, &mut other.call);
            std::mem::swap(&mut self.kind, &mut other.kind);
        } else if !self.call.bounds_mut().count_input(tokens) {
            return false;
        }
        true
    }

    /// Reading of the request for upstreams of its own model that speak `dialect`.
    fn reading(&self, dialect: Dialect) -> Option<(&'static dyn Codec, &dyn Call)> {
        if self.codec.dialects().contains(&dialect) {
            return Some((self.codec, self.call.as_ref()));
        }
        let other = self.others.iter().find(|other| other.is_for(0, dialect))?;
        Some((other.codec, other.call.as_ref()))
    }
}

/// True if requests of `codec` can be counted at the target.
fn has_counter(resolved: &ResolvedRequest, target: &Target, codec: &dyn Codec) -> bool {
    let counter = codec.counter();
    let operation = counter.map_or(Operation::InputTokens, Counter::operation);
    let has_any_counter = counter.is_some() || responses_codecs(resolved, target).is_some();
    has_any_counter && target.upstream.offers(operation)
}

/// Translation of a chat request for OpenAI's counter, if the model is also sold over the Responses API,
/// which alone has one.
fn responses_codecs<'a>(resolved: &'a ResolvedRequest, target: &Target) -> Option<CodecChoice<'a>> {
    const RESPONSES: &[Operation] = &[Operation::Responses];
    let model = &resolved.model;
    let is_counted = resolved.operation == Operation::Chat
        && target.upstream.dialect == Dialect::Openai
        && model.operations.contains(&Operation::Responses);
    is_counted.then_some(CodecChoice {
        operation: Operation::Chat,
        dialect: Dialect::Openai,
        operations: RESPONSES,
        limits: &model.limits,
    })
}

/// Chat request without answer-only fields, some of which the Responses API lacks.
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
    let path_query = PathVariables { dialect: upstream.dialect, model, streams: false };
    let codec = codec(counter.operation(), upstream.dialect)?;
    let path = upstream.path_for(codec.path_to(&path_query)?, model)?;
    let body = counter.request(upstream.dialect, model, written)?;
    Some(CountRequest { counter, path: path.into_owned(), headers: written_by.headers(), body })
}
