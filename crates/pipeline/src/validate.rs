//! Validation: parses the request with the codecs of the model's targets and bounds its usage.

use std::sync::Arc;

use crate::ResolvedRequest;
use tollgate_balance::TargetRank;
use tollgate_config::snapshot::Target;
use tollgate_protocols::codec_choice::CodecKind;
use tollgate_protocols::json::Value;
use tollgate_protocols::openai_compact::not_translated;
use tollgate_protocols::{Call, Codec, Dialect, Operation, Request};
use tollgate_types::error::{ErrorKind, GatewayError};

/// A request that passed validation.
#[derive(Debug)]
pub struct ValidatedRequest {
    /// Key, operation and model of the request.
    pub resolved: ResolvedRequest,
    /// Reading for its first target.
    pub call: Box<dyn Call>,
    /// The protocol in which `call` reads the request.
    pub(super) codec: &'static dyn Codec,
    /// Access kind of that target.
    pub(super) kind: CodecKind,
    /// Readings for the other targets and for those of fallback models.
    pub(super) others: Vec<ProtocolReading>,
}

/// A request parsed by one protocol for one model.
#[derive(Debug)]
pub(super) struct ProtocolReading {
    /// The [rank](Resolved::model_at) of the model.
    pub(super) rank: usize,
    pub(super) kind: CodecKind,
    pub(super) codec: &'static dyn Codec,
    pub(super) call: Box<dyn Call>,
}

/// Parse the request with each protocol of the model's targets. Targets whose protocol rejects it are
/// skipped, and so are targets of fallbacks whose limits or prices do not fit. Targets that need
/// translation come behind native ones, and never replace one that rejects the request.
///
/// # Errors
/// `InvalidRequest`, naming the field, from the first protocol, if none accepts the request;
/// `UpstreamUnavailable` for a model without a target.
pub fn validate(
    mut resolved: ResolvedRequest,
    request: &Request<'_>,
) -> Result<ValidatedRequest, GatewayError> {
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
    // The delivery is chosen before a target is, and holds for all of them.
    others.retain(|other| is_answered_alike(call.as_ref(), other.call.as_ref()));
    Ok(ValidatedRequest { resolved, call, codec, kind, others })
}

/// Parse the request for the requested model: returns the first reading, the others, or the reason for
/// the refusal. Audio and video in chat completions prefer targets with a translation: Google's chat
/// completions endpoints do not support them.
fn read_for_model(
    resolved: &mut ResolvedRequest,
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

/// True if targets that need translation may serve the request: its own protocol accepts it, and it refers to
/// no stored object.
fn may_be_translated(resolved: &ResolvedRequest, read: &[ProtocolReading]) -> bool {
    let may_all = || read.iter().all(|reading| may_fall_back(reading.call.as_ref()));
    resolved.operation.is_billed() && !read.is_empty() && may_all()
}

/// True if a message has a part of one of these types.
fn has_part(request: &Request<'_>, kinds: &[&str]) -> bool {
    let Ok(body) = request.json() else { return false };
    // Fast path: most requests do not contain the type's name at all.
    if !kinds.iter().any(|kind| memchr::memmem::find(body.text(), kind.as_bytes()).is_some()) {
        return false;
    }
    let is_listed_part = |part: Value<'_>| {
        let kind = part.as_object().ok().and_then(|part| part.get("type"));
        kind.and_then(|kind| kind.as_str()).is_some_and(|kind| kinds.contains(&&*kind))
    };
    let messages = body.get_non_null("messages").and_then(|messages| messages.elements());
    messages.into_iter().flatten().any(|message| {
        let content = message.as_object().ok().and_then(|message| message.get("content"));
        content
            .and_then(|content| content.elements())
            .is_some_and(|mut parts| parts.any(is_listed_part))
    })
}

/// Readings of the request by the protocols of one model's targets.
fn readings<'a>(
    resolved: &'a ResolvedRequest,
    rank: usize,
    request: &'a Request<'_>,
) -> impl Iterator<Item = ProtocolReading> + 'a {
    let dialects = resolved.dialects(rank).into_iter();
    dialects.filter_map(move |(kind, dialect)| {
        reading(resolved, rank, kind, dialect, request).ok().flatten()
    })
}

/// Parse the request for upstreams of one model that speak this dialect.
fn reading(
    resolved: &ResolvedRequest,
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

/// True if another model may serve the request: not for the submit of a task, nor for a request that
/// refers to a stored object.
fn may_fall_back(call: &dyn Call) -> bool {
    call.submit().is_none() && call.refers_to().is_empty()
}

/// True if the answers to two readings can be delivered in the same way: both relayed, or both collected
/// first.
fn is_answered_alike(one: &dyn Call, other: &dyn Call) -> bool {
    let can_be_collected =
        |call: &dyn Call| call.collected().is_some() || !call.streams() && !call.answers_binary();
    let both_passed_on = one.collected().is_none() && other.collected().is_none();
    one.streams() == other.streams()
        && one.submit().is_some() == other.submit().is_some()
        && (both_passed_on || can_be_collected(one) && can_be_collected(other))
}

impl ProtocolReading {
    /// True if this reading is for the model of this rank and for `dialect`.
    pub(super) fn is_for(&self, rank: usize, dialect: Dialect) -> bool {
        self.rank == rank && self.codec.dialects().contains(&dialect)
    }
}

impl ValidatedRequest {
    /// True if there is a reading for the model of this rank and for `dialect`.
    #[must_use]
    pub fn is_for(&self, rank: usize, dialect: Dialect) -> bool {
        rank == 0 && self.codec.dialects().contains(&dialect)
            || self.others.iter().any(|other| other.is_for(rank, dialect))
    }

    /// Usable targets, with their rank in the order of tries.
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

    /// True if everything that the answer costs is visible in it as it streams, at whichever target:
    /// then a hold can [grow](crate::Holding::Slice) meanwhile.
    #[must_use]
    pub fn can_roll(&self) -> bool {
        self.resolved.operation.is_billed()
            && self.calls().all(|call| call.streams() && call.is_all_shown())
    }

    /// All readings, the first one first.
    pub(super) fn calls(&self) -> impl Iterator<Item = &dyn Call> {
        let others = self.others.iter().map(|other| other.call.as_ref());
        [self.call.as_ref()].into_iter().chain(others)
    }
}
