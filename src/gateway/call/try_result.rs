//! The result of a try of one target, and the decision to go on to the next or to end.
//!
//! [`forward`](super::forward), [`collect`](super::collect) and [`submit`](super::submit) each ask targets in a
//! loop: `upstream_peer`, the try, [`conclude`](RequestContext::conclude). What follows from a failure is in
//! the table of [`CallFailure::consequence`] for all of them.

use std::sync::Arc;

use pingora::Result;

use crate::error::GatewayError;
use crate::gateway::answer::customer::disconnected;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::upstream_error;
use crate::protocols::Delivery;

/// The result of a try of one target.
#[allow(clippy::large_enum_variant, reason = "it is looked at once and not kept")]
pub(crate) enum TryResult<A> {
    /// The target has answered.
    Answered(A),
    /// The try failed. The second value is the customer's answer if no other target is tried.
    Failed(CallFailure, FallbackAnswer<A>),
    /// The request cannot be written for it, and it was not asked.
    Skipped,
}

/// The answer for the client if no other target is tried.
#[allow(clippy::large_enum_variant, reason = "it is looked at once and not kept")]
pub(crate) enum FallbackAnswer<A> {
    /// The upstream's own answer.
    Answer(A),
    /// The gateway's own error.
    Error(GatewayError),
}

impl RequestContext {
    /// Draws the consequences of a try: its answer, or `None` where a target is asked again.
    ///
    /// # Errors
    /// The request ends here. Where nobody waits for the answer, no target is asked again.
    pub(crate) fn conclude<A>(
        &mut self,
        tried: TryResult<A>,
        delivery: Delivery,
    ) -> Result<Option<A>> {
        let (failure, otherwise) = match tried {
            TryResult::Answered(answer) => return Ok(Some(answer)),
            TryResult::Failed(failure, otherwise) => (failure, otherwise),
            TryResult::Skipped => return Ok(None),
        };
        let (metrics, is_orphan) =
            (Arc::clone(&self.services.metrics), self.response.orphan.is_some());
        let sending = self.sending()?;
        let failure = sending.refine_by_token(failure);
        let goes_on = sending.fail_try(failure, delivery, &metrics);
        match (failure, otherwise) {
            // Nobody pays for a try without a customer.
            _ if goes_on && is_orphan => Err(disconnected()),
            (
                CallFailure::NotOffered(_)
                | CallFailure::ClosedWhileIdle
                | CallFailure::RefusedToken,
                _,
            ) if goes_on => Ok(None),
            (_, otherwise) if goes_on => {
                sending.set_last_failure(match otherwise {
                    FallbackAnswer::Answer(_) => failure.error(delivery),
                    FallbackAnswer::Error(error) => error,
                });
                Ok(None)
            }
            (CallFailure::NotOffered(_), _) => {
                let local_answer = sending.admitted.call.local_answer();
                let error = match &local_answer {
                    Some(_) => upstream_error::unavailable(),
                    None => sending.give_up(),
                };
                self.response.local_answer = local_answer;
                Err(self.fail(error))
            }
            (_, FallbackAnswer::Answer(answer)) => Ok(Some(answer)),
            (_, FallbackAnswer::Error(_)) if is_orphan => Err(disconnected()),
            (_, FallbackAnswer::Error(error)) => Err(self.fail(error)),
        }
    }
}
