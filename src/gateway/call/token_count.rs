//! Asks a provider's free counter how many tokens a prompt has, for accounts whose money does not cover
//! the bound by its bytes.
//!
//! A count is help: whatever goes wrong with it is no error of the customer's, and says nothing of the
//! paid calls of the same upstream. Circuits, quotas and health hear nothing of it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use http::header::ACCEPT;
use sha2::Digest as _;
use tollgate_outbound::LocalResource;

use crate::balance::{Candidates, Channel};
use crate::config::snapshot::Target;
use crate::gateway::call::post::{ConnectionReuse, Poster};
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::services::Gateway;
use crate::gateway::upstream::token_counts::UNSUPPORTED_TIME;
use crate::ids::{AccountId, RequestId};
use crate::metrics::CountOutcome;
use crate::outbound::retry_after;
use crate::pipeline::{CountRequest, PromptCount, ValidatedRequest};

/// Longest body that is counted, in bytes, since it is sent twice. Longer text fits no context.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest answer of a counter, in bytes: real ones have some hundred.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Pause after a counter that failed, was too slow or too busy, unless it names a delay.
const FAILED_TIME: Duration = Duration::from_secs(5);
/// Pause after a counter that refused the operator's credential, and the longest delay that a counter can ask
/// for.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Asks the first of `candidates` whose provider offers token counts for the tokens of the prompt, without
/// selecting that candidate, and for at most `within`. `None` without an answer. Dropping the future cancels
/// the call.
///
/// What the count makes of the request, [`ValidatedRequest::counted`] does.
pub(crate) async fn count(
    gateway: &Gateway,
    customers: &HeaderMap,
    validated: &ValidatedRequest,
    candidates: &Candidates,
    body: &Bytes,
    within: Duration,
) -> Option<PromptCount> {
    let began = Instant::now();
    let Some(call) = ProviderCount::choose(gateway, validated, candidates, body.len()) else {
        gateway.metrics.token_count_finished(CountOutcome::Unsupported);
        return None;
    };
    let call_result = call.get(customers, validated, body);
    let (counted, outcome) = match tokio::time::timeout(within, Box::pin(call_result)).await {
        Ok((Ok(tokens), true)) => (Some(tokens), CountOutcome::Cached),
        Ok((Ok(tokens), false)) => (Some(tokens), CountOutcome::Counted),
        Ok((Err(outcome), _)) => (None, outcome),
        Err(_) => {
            call.pause(FAILED_TIME);
            (None, CountOutcome::TimedOut)
        }
    };
    gateway.metrics.token_count_finished(outcome);
    let (upstream, took) = (&call.target.upstream, began.elapsed().as_millis());
    log::debug!("{}: {} after {took} ms: {counted:?} tokens", upstream.name, outcome.as_str());
    let dialect = upstream.dialect;
    counted.map(|tokens| PromptCount { rank: 0, dialect, tokens })
}

/// A call to the counter of one target.
struct ProviderCount<'a> {
    gateway: &'a Gateway,
    account: AccountId,
    target: Arc<Target>,
    channel: Arc<Channel>,
    /// Hash of the upstream and the model.
    place: u64,
}

impl<'a> ProviderCount<'a> {
    /// The call to the first candidate whose provider counts the request and may be asked now.
    fn choose(
        gateway: &'a Gateway,
        validated: &ValidatedRequest,
        candidates: &Candidates,
        body_bytes: usize,
    ) -> Option<Self> {
        if body_bytes > BODY_BYTES_MAX {
            return None;
        }
        let (account, now) = (validated.resolved.key.account, Instant::now());
        let place = |target: &Target| {
            let mut hasher = DefaultHasher::new();
            (&target.upstream.name, validated.resolved.name_at(target)).hash(&mut hasher);
            hasher.finish()
        };
        let is_paused = |target: &Target| {
            let until = gateway.counts.pauses.get(account.number(), place(target), now);
            until.is_some_and(|until| now < until)
        };
        let (target, channel) = candidates.peek(now, |rank, target| {
            validated.is_countable_at(rank, target) && !is_paused(target)
        })?;
        let place = place(&target);
        Some(Self { gateway, account, target, channel, place })
    }

    /// The count, and whether it was known.
    async fn get(
        &self,
        customers: &HeaderMap,
        validated: &ValidatedRequest,
        body: &Bytes,
    ) -> (Result<u64, CountOutcome>, bool) {
        let (gateway, cache) = (self.gateway, &self.gateway.counts.cache);
        let write = || {
            let request = validated.count_request(&self.target, body)?;
            let key = cache.key(|digest| {
                digest.update(self.place.to_le_bytes());
                request.digest(digest);
            });
            Some((request, key))
        };
        let Some((request, key)) = gateway.offload.run(body.len(), write).await else {
            return (Err(CountOutcome::Unsupported), false);
        };
        cache.get_or_fetch(key, || self.ask(customers, request)).await
    }

    async fn ask(&self, customers: &HeaderMap, request: CountRequest) -> Result<u64, CountOutcome> {
        let Self { gateway, target, .. } = self;
        let upstream = &target.upstream;
        // An account with little money can bring about as many counts as one that asks for them.
        let limits = gateway.config.load().limits.free_calls;
        let free_calls = gateway.balancer.free_calls();
        let entered = free_calls.try_enter(&upstream.name, self.account.number(), &limits);
        let Ok(_free_call) = entered else { return Err(CountOutcome::Busy) };
        let auth = self.channel.credential.as_ref().and_then(|credential| credential.auth());
        let token = match auth {
            Some(auth) => {
                let token = gateway.outbound.credentials.token(auth, self.account).await;
                Some(token.map_err(|cause| self.not_sent(cause.exhausted()))?)
            }
            None => None,
        };
        let counter = request.counter;
        let request = request.into_upstream(target, &self.channel, token.as_ref());
        let mut request = request.ok_or(CountOutcome::Failed)?;
        // An answer is one document, whatever the customer takes for the request itself.
        let mut customers = customers.clone();
        customers.remove(ACCEPT);
        let id = RequestId::new();
        let fields = gateway.upstream_request_filter(&customers, &mut request, id, 0);
        let fields: HeaderMap = fields.map_err(|_| CountOutcome::Failed)?;
        let reuse = ConnectionReuse::Allowed;
        let poster = Poster { gateway, upstream, channel: None, reuse };
        let posted = poster.post(&request.path, &fields, request.body).await;
        let answer = posted.map_err(|error| self.not_sent(error.exhausted()))?;
        let (status, delay) = (answer.status(), retry_after(answer.headers()));
        let whole = answer.whole_within(ANSWER_BYTES_MAX).await;
        if !(200..300).contains(&status) {
            return Err(self.refused(status, delay));
        }
        let tokens = whole.ok().and_then(|answer| counter.read(&answer));
        tokens.ok_or_else(|| self.failed(FAILED_TIME))
    }

    /// The outcome of a count that was refused with this status, and the pause that follows.
    fn refused(&self, status: u16, delay: Option<Duration>) -> CountOutcome {
        let pause = match status {
            404 | 405 | 501 => UNSUPPORTED_TIME,
            401..=403 => PAUSE_MAX,
            429 | 500.. => delay.map_or(FAILED_TIME, |time| time.clamp(FAILED_TIME, PAUSE_MAX)),
            // The request itself, which no other is like.
            _ => return CountOutcome::Refused,
        };
        self.pause(pause);
        match status {
            404 | 405 | 501 => CountOutcome::Unsupported,
            500.. => CountOutcome::Failed,
            _ => CountOutcome::Refused,
        }
    }

    /// Pauses counts at the upstream after a missing answer, unless this machine lacked a resource for the
    /// call.
    fn not_sent(&self, exhausted: Option<LocalResource>) -> CountOutcome {
        match exhausted {
            Some(_) => CountOutcome::Failed,
            None => self.failed(FAILED_TIME),
        }
    }

    fn failed(&self, pause: Duration) -> CountOutcome {
        self.pause(pause);
        CountOutcome::Failed
    }

    /// Pauses counts at this upstream for this account.
    fn pause(&self, time: Duration) {
        let now = Instant::now();
        self.gateway.counts.pauses.put(self.account.number(), self.place, now + time, now);
    }
}
