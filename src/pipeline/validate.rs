//! Whether the request is one that the model can be asked, and what it can use at most.

use std::sync::Arc;

use crate::balance::TargetRank;
use crate::config::snapshot::Target;
use crate::error::{ErrorKind, GatewayError};
use crate::pipeline::Resolved;
use crate::protocols::codec_choice::CodecKind;
use crate::protocols::json::Value;
use crate::protocols::openai_compact::not_translated;
use crate::protocols::{Call, Codec, Dialect, Operation, Request};

/// A request that was found valid.
#[derive(Debug)]
pub struct Validated {
    /// Who asks for which model.
    pub resolved: Resolved,
    /// What the protocol of its first target says about it.
    pub call: Box<dyn Call>,
    /// The protocol in which `call` reads the request.
    pub(super) codec: &'static dyn Codec,
    /// The way by which the request reaches that target.
    pub(super) kind: CodecKind,
    /// What the protocols of other targets say about it, and those of the targets of fallbacks.
    pub(super) others: Vec<ProtocolReading>,
}

/// A request as one protocol reads it for one model.
#[derive(Debug)]
pub(super) struct ProtocolReading {
    /// The [rank](Resolved::model_at) of the model.
    pub(super) rank: usize,
    pub(super) kind: CodecKind,
    pub(super) codec: &'static dyn Codec,
    pub(super) call: Box<dyn Call>,
}

/// Lets each protocol among those of the model's targets read the request. Targets whose protocol does
/// not take it are not asked. So it is with the targets of fallbacks: one whose limits or prices do not
/// fit the request is left out. Targets that the request is translated for come behind those that speak
/// its protocol, and never in the place of one that refuses it.
///
/// # Errors
/// `InvalidRequest`, naming the field, in the words of the first protocol, where none takes the
/// request; `UpstreamUnavailable` for a model without a target.
pub fn validate(mut resolved: Resolved, request: &Request<'_>) -> Result<Validated, GatewayError> {
    let (first, mut others, refused) = read_for_model(&mut resolved, request);
    let Some(ProtocolReading { kind, codec, call, .. }) = first else {
        return Err(refused.unwrap_or_else(|| {
            if resolved.operation == Operation::Compact {
                return not_translated(&resolved.model.id);
            }
            let message = "No upstream serves this model at the moment.";
            GatewayError::new(ErrorKind::UpstreamUnavailable, message)
        }));
    };
    let may_all = others.iter().all(|other| may_fall_back(other.call.as_ref()));
    if may_all && may_fall_back(call.as_ref()) {
        for rank in 1..=resolved.fallbacks.len() {
            let read = readings(&resolved, rank, request);
            others.extend(read.filter(|reading| may_fall_back(reading.call.as_ref())));
        }
    }
    others.retain(|other| is_answered_alike(call.as_ref(), other.call.as_ref()));
    Ok(Validated { resolved, call, codec, kind, others })
}

/// What the protocols of the model's targets make of the request: the first that takes it, the others,
/// and else why it is refused. Sound and videos in chat completions go where a translation takes them, if
/// there is such a target: the endpoints that Google has for chat completions do not know their words.
fn read_for_model(
    resolved: &mut Resolved,
    request: &Request<'_>,
) -> (Option<ProtocolReading>, Vec<ProtocolReading>, Option<GatewayError>) {
    let can_be_bridged = resolved.can_be_bridged();
    let is_better = can_be_bridged && has_part(request, &["video_url", "audio_url"]);
    let is_possible = is_better || can_be_bridged && has_part(request, &["input_audio"]);
    let mut refused = None;
    for is_bridged in [is_better, !is_better] {
        if is_bridged && !is_possible {
            continue;
        }
        resolved.is_bridged = is_bridged;
        let mut read: Vec<ProtocolReading> = Vec::new();
        let mut has_native = false;
        for (kind, dialect) in resolved.dialects(0) {
            has_native |= kind == CodecKind::Native;
            if kind == CodecKind::Translated && has_native && !may_be_translated(resolved, &read) {
                break;
            }
            match reading(resolved, 0, kind, dialect, request) {
                Ok(reading) => read.extend(reading),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if !read.is_empty() {
            let others = read.split_off(1);
            return (read.pop(), others, None);
        }
    }
    resolved.is_bridged = false;
    (None, Vec::new(), refused)
}

/// True for a request that may also go to targets of other protocols than its own. One that its own protocol
/// refuses is refused, and one that goes on from something kept at one place stays there.
fn may_be_translated(resolved: &Resolved, read: &[ProtocolReading]) -> bool {
    let may_all = || read.iter().all(|reading| may_fall_back(reading.call.as_ref()));
    resolved.operation.is_billed() && !read.is_empty() && may_all()
}

/// Whether a message has a part of one of these types.
fn has_part(request: &Request<'_>, kinds: &[&str]) -> bool {
    let Ok(body) = request.json() else { return false };
    // Most requests have none, and most of those that name one have it in a tool's schema.
    if !kinds.iter().any(|kind| memchr::memmem::find(body.text(), kind.as_bytes()).is_some()) {
        return false;
    }
    let is_meant = |part: Value<'_>| {
        let kind = part.as_object().ok().and_then(|part| part.get("type"));
        kind.and_then(|kind| kind.as_str()).is_some_and(|kind| kinds.contains(&&*kind))
    };
    let messages = body.get_non_null("messages").and_then(|messages| messages.elements());
    messages.into_iter().flatten().any(|message| {
        let content = message.as_object().ok().and_then(|message| message.get("content"));
        content.and_then(|content| content.elements()).is_some_and(|mut parts| parts.any(is_meant))
    })
}

/// What each protocol among those of the targets of one model makes of the request.
fn readings<'a>(
    resolved: &'a Resolved,
    rank: usize,
    request: &'a Request<'_>,
) -> impl Iterator<Item = ProtocolReading> + 'a {
    let dialects = resolved.dialects(rank).into_iter();
    dialects.filter_map(move |(kind, dialect)| {
        reading(resolved, rank, kind, dialect, request).ok().flatten()
    })
}

/// The request as upstreams of one model read it that speak this dialect.
fn reading(
    resolved: &Resolved,
    rank: usize,
    kind: CodecKind,
    dialect: Dialect,
    request: &Request<'_>,
) -> Result<Option<ProtocolReading>, GatewayError> {
    let codec_choice = resolved.codec_choice(rank, dialect);
    let read = match kind {
        CodecKind::Native => codec_choice.read(request),
        CodecKind::Translated => codec_choice.read_translated(request),
    };
    let read = read.transpose()?;
    Ok(read.map(|(codec, call)| ProtocolReading { rank, kind, codec, call }))
}

/// Whether another model may serve the request: not the submit of a task, and not what goes on from
/// something that is kept at one place.
fn may_fall_back(call: &dyn Call) -> bool {
    call.submit().is_none() && call.refers_to().is_empty()
}

/// Whether the answers to two readings of a request can go to the customer in the same way: either
/// both are passed on as they come, or both can be put together first.
fn is_answered_alike(one: &dyn Call, other: &dyn Call) -> bool {
    let can_be_collected =
        |call: &dyn Call| call.collected().is_some() || !call.streams() && !call.answers_binary();
    let both_passed_on = one.collected().is_none() && other.collected().is_none();
    one.streams() == other.streams()
        && one.submit().is_some() == other.submit().is_some()
        && (both_passed_on || can_be_collected(one) && can_be_collected(other))
}

impl ProtocolReading {
    /// Whether upstreams of the model of this rank that speak `dialect` read the request so.
    pub(super) fn is_for(&self, rank: usize, dialect: Dialect) -> bool {
        self.rank == rank && self.codec.dialects().contains(&dialect)
    }
}

impl Validated {
    /// Whether upstreams of the model of this rank that speak `dialect` can be asked.
    #[must_use]
    pub fn is_for(&self, rank: usize, dialect: Dialect) -> bool {
        rank == 0 && self.codec.dialects().contains(&dialect)
            || self.others.iter().any(|other| other.is_for(rank, dialect))
    }

    /// The targets that can be asked, with their places in the order of tries.
    pub fn targets(&self) -> impl Iterator<Item = (TargetRank, &Arc<Target>)> {
        let ranks = 0..=self.resolved.fallbacks.len();
        ranks.flat_map(move |model| {
            let targets = self.resolved.targets(model);
            let targets =
                targets.filter(move |(target, _)| self.is_for(model, target.upstream.dialect));
            targets.map(move |(target, kind)| {
                (TargetRank { model, is_translated: kind == CodecKind::Translated }, target)
            })
        })
    }

    /// True where all that the answer costs arrives with it, piece by piece, whichever target answers:
    /// then a hold can [grow](crate::pipeline::Holding::Slice) while it streams.
    #[must_use]
    pub fn can_roll(&self) -> bool {
        self.resolved.operation.is_billed()
            && self.calls().all(|call| call.streams() && call.is_all_shown())
    }

    /// What each protocol says about it.
    pub(super) fn calls(&self) -> impl Iterator<Item = &dyn Call> {
        let others = self.others.iter().map(|other| other.call.as_ref());
        [self.call.as_ref()].into_iter().chain(others)
    }
}
