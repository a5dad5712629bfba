//! Whether the request is one that the model can be asked, and what it can use at most.

use crate::error::{ErrorKind, GatewayError};
use crate::pipeline::Resolved;
use crate::protocols::{Call, Codec, Dialect, Request};

/// A request that was found valid.
#[derive(Debug)]
pub struct Validated {
    /// Who asks for which model.
    pub resolved: Resolved,
    /// What the protocol of its first target says about it.
    pub call: Box<dyn Call>,
    /// The protocol in which `call` reads the request.
    pub(super) codec: &'static dyn Codec,
    /// What the protocols of other targets say about it.
    pub(super) others: Vec<ProtocolReading>,
}

/// A request as one protocol reads it.
#[derive(Debug)]
pub(super) struct ProtocolReading {
    pub(super) codec: &'static dyn Codec,
    pub(super) call: Box<dyn Call>,
}

/// Lets each protocol among those of the model's targets read the request. Targets whose protocol does
/// not take it are not asked.
///
/// # Errors
/// `InvalidRequest`, naming the field, in the words of the first protocol, where none takes the
/// request; `UpstreamUnavailable` for a model without a target.
pub fn validate(resolved: Resolved, request: &Request<'_>) -> Result<Validated, GatewayError> {
    let mut first: Option<ProtocolReading> = None;
    let (mut others, mut refused) = (Vec::new(), None);
    for (at, (_, codec)) in resolved.targets().enumerate() {
        let mut before = resolved.targets().take(at);
        if before.any(|(target, _)| codec.dialects().contains(&target.upstream.dialect)) {
            continue;
        }
        match (codec.read(request, &resolved.model.limits), &first) {
            (Ok(call), None) => first = Some(ProtocolReading { codec, call }),
            (Ok(call), Some(_)) => others.push(ProtocolReading { codec, call }),
            (Err(error), _) => refused = refused.or(Some(error)),
        }
    }
    let Some(ProtocolReading { codec, call }) = first else {
        return Err(refused.unwrap_or_else(|| {
            let message = "No upstream serves this model at the moment.";
            GatewayError::new(ErrorKind::UpstreamUnavailable, message)
        }));
    };
    others.retain(|other| is_answered_alike(call.as_ref(), other.call.as_ref()));
    Ok(Validated { resolved, call, codec, others })
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

impl Validated {
    /// Whether upstreams that speak `dialect` can be asked.
    #[must_use]
    pub fn is_for(&self, dialect: Dialect) -> bool {
        let codecs = self.others.iter().map(|other| other.codec).chain([self.codec]);
        codecs.into_iter().any(|codec| codec.dialects().contains(&dialect))
    }

    /// What each protocol says about it.
    pub(super) fn calls(&self) -> impl Iterator<Item = &dyn Call> {
        let others = self.others.iter().map(|other| other.call.as_ref());
        [self.call.as_ref()].into_iter().chain(others)
    }
}
