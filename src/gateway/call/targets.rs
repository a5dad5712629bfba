//! The one loop over targets: choose, ask, and either go on to the next or end.
//!
//! How a target is asked and what its answer is differs with the [`Delivery`]: see
//! [`forward`](super::forward), [`collect`](super::collect) and [`submit`](super::submit). What follows
//! from a failure is in the table of [`CallFailure::consequence`] for all of them.

use std::sync::Arc;

use pingora::Result;

use crate::balance::Candidate;
use crate::error::GatewayError;
use crate::gateway::answer::customer::gone;
use crate::gateway::request::context::Exchange;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::peer;
use crate::gateway::request::services::Gateway;
use crate::protocols::Delivery;

/// One way to ask a target.
pub(crate) trait AskTarget: Send {
    /// What the customer's answer is made of.
    type Answer: Send;

    /// Rewrites the request for a target, sends it, and waits for the answer, or the head of one.
    fn ask(
        &mut self,
        exchange: &mut Exchange,
        candidate: Candidate,
    ) -> impl Future<Output = TryResult<Self::Answer>> + Send;
}

/// What came of asking one target.
#[allow(clippy::large_enum_variant, reason = "it is looked at once and not kept")]
pub(crate) enum TryResult<A> {
    /// The target has answered.
    Answered(A),
    /// It has failed. The second is for the customer, if no target is asked again.
    Failed(CallFailure, Otherwise<A>),
    /// The request cannot be written for it, and it was not asked.
    Skipped,
    /// The request ends here, whatever other targets there are.
    Ended(Box<pingora::Error>),
}

/// What the customer gets of a failure if no target is asked again.
#[allow(clippy::large_enum_variant, reason = "it is looked at once and not kept")]
pub(crate) enum Otherwise<A> {
    /// What the upstream has said.
    Answer(A),
    /// An error of the gateway's.
    Error(GatewayError),
}

/// Asks one target after the other, until one answers.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(crate) async fn ask_targets<W: AskTarget>(
    gateway: &Gateway,
    exchange: &mut Exchange,
    way: &mut W,
) -> Result<W::Answer> {
    let delivery = exchange.delivery();
    loop {
        let candidate = gateway.upstream_peer(exchange).await?;
        let tried = way.ask(exchange, candidate).await;
        if let Some(answer) = exchange.conclude(tried, delivery)? {
            return Ok(answer);
        }
    }
}

impl Exchange {
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
            TryResult::Ended(error) => return Err(error),
        };
        let (metrics, is_orphan) = (Arc::clone(&self.metrics), self.orphan.is_some());
        let sending = self.sending()?;
        let failure = sending.refine_by_token(failure);
        let goes_on = sending.fail_try(failure, delivery, &metrics);
        match (failure, otherwise) {
            // Nobody pays for a try without a customer.
            _ if goes_on && is_orphan => Err(gone()),
            (
                CallFailure::NotOffered(_)
                | CallFailure::ClosedWhileIdle
                | CallFailure::RefusedToken,
                _,
            ) if goes_on => Ok(None),
            (_, otherwise) if goes_on => {
                sending.set_last_failure(match otherwise {
                    Otherwise::Answer(_) => failure.error(delivery),
                    Otherwise::Error(error) => error,
                });
                Ok(None)
            }
            (CallFailure::NotOffered(_), _) => {
                let local_answer = sending.admitted.call.local_answer();
                let error = match &local_answer {
                    Some(_) => peer::unavailable(),
                    None => sending.give_up(),
                };
                self.local_answer = local_answer;
                Err(self.fail(error))
            }
            (_, Otherwise::Answer(answer)) => Ok(Some(answer)),
            (_, Otherwise::Error(_)) if is_orphan => Err(gone()),
            (_, Otherwise::Error(error)) => Err(self.fail(error)),
        }
    }
}
