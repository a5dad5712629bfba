//! Calls to upstreams that cost nothing, within the limits of their accounts and upstreams.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::balance::{Candidate, FreeCall, FreeRefusal};
use crate::config::snapshot::FreeCallLimits;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::request::services::Gateway;
use crate::metrics::Shed;

impl Gateway {
    /// Counts a request that costs nothing for its account.
    ///
    /// # Errors
    /// `RateLimited`, with the time until the account may make another one.
    pub(crate) fn count_free_call(
        &self,
        account: u64,
        limits: &FreeCallLimits,
    ) -> Result<(), GatewayError> {
        let counted = self.balancer.free_calls().count(account, limits);
        counted.map_err(|refusal| self.refuse_free_call(refusal))
    }

    /// Takes a slot for a free call at the candidate's upstream, after a short wait.
    ///
    /// # Errors
    /// `RateLimited`, where the upstream gets as many as it may.
    pub(crate) async fn enter_free_call(
        &self,
        candidate: &Candidate,
        limits: &FreeCallLimits,
    ) -> Result<FreeCall, GatewayError> {
        let (calls, upstream) = (self.balancer.free_calls(), &candidate.target.upstream.name);
        let entered = calls.enter(upstream, candidate.account(), limits).await;
        entered.map_err(|refusal| self.refuse_free_call(refusal))
    }

    fn refuse_free_call(&self, refusal: FreeRefusal) -> GatewayError {
        let (shed, message, wait) = match refusal {
            FreeRefusal::AccountRate(limit, wait) => {
                (Shed::AccountFreeCalls, account_message(limit, wait), wait)
            }
            FreeRefusal::UpstreamRate(wait) | FreeRefusal::Places(wait) => {
                let message = "Too many tokens are being counted at the moment. Try again shortly.";
                (Shed::FreeCalls, message.to_owned(), wait)
            }
        };
        self.metrics.request_shed(shed);
        let error = GatewayError::new(ErrorKind::RateLimited, message).retry_after(wait);
        match refusal {
            FreeRefusal::Places(_) => error.code("ConcurrencyExceeded"),
            FreeRefusal::AccountRate(..) | FreeRefusal::UpstreamRate(_) => error,
        }
    }
}

fn account_message(limit: NonZeroU32, wait: Duration) -> String {
    let seconds = wait.as_secs().saturating_add(1);
    format!(
        "This account is limited to {limit} counts of tokens a minute. Try again in {seconds} s."
    )
}
