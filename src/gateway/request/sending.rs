//! A paid request that no target has answered yet: what may still be tried, the try under way, and
//! what follows when it fails.

use std::sync::Arc;
use std::time::Instant;

use crate::balance::{Candidate, Candidates, Outcome, Retry};
use crate::config::snapshot::RepeatAfter;
use crate::credentials::Unavailable;
use crate::error::GatewayError;
use crate::gateway::request::failure::{CallFailure, Consequence, NextTarget};
use crate::gateway::request::idempotency::IdempotencyMark;
use crate::gateway::request::progress::{Missing, Progress};
use crate::gateway::request::{refusal, upstream_error};
use crate::gateway::upstream::secrets::UpstreamSecrets;
use crate::gateway::wire::memory::held::HeldBody;
use crate::metrics::Metrics;
use crate::pipeline::{AdmittedRequest, TryTarget, UpstreamRequest};
use crate::protocols::refusal::{RefusalFault, UpstreamRefusal};
use crate::protocols::{Delivery, Framing};

/// A paid request that no target has answered yet.
pub(crate) struct Sending {
    pub(crate) admitted: Box<AdmittedRequest>,
    pub(crate) body: HeldBody,
    /// Idempotency mark of a request that starts a task.
    pub(crate) mark: Option<IdempotencyMark>,
    /// The try that is running.
    pub(crate) attempt: Option<Attempt>,
    /// The targets still to try.
    candidates: Candidates,
    /// The next try uses a new connection: the upstream had closed the reused one.
    needs_new_connection: bool,
    /// A token was refused, and another one taken in its place.
    has_renewed: bool,
    /// The refusal of the current try.
    pub(crate) refusal: Option<UpstreamRefusal>,
    /// The error of the last failed try, for the client.
    last_failure: Option<GatewayError>,
}

/// One try at one target.
pub(crate) struct Attempt {
    pub(crate) candidate: Candidate,
    pub(crate) request: UpstreamRequest,
    pub(crate) began: Instant,
    pub(crate) progress: Progress,
    /// Framing of the response, once a good one has begun.
    pub(crate) framing: Option<Framing>,
}

impl Attempt {
    /// A first or a further try, of which nothing is sent yet.
    pub(crate) fn begin(candidate: Candidate, request: UpstreamRequest) -> Self {
        let (began, progress) = (Instant::now(), Progress::NotSent);
        Self { candidate, request, began, progress, framing: None }
    }

    /// Target and credential of the try.
    pub(crate) fn at(&self) -> TryTarget {
        at(&self.candidate)
    }

    /// Records the outcome of the current try.
    pub(crate) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        report(&mut self.candidate, self.began, outcome, metrics);
    }
}

/// Target and credential of a try.
pub(crate) fn at(candidate: &Candidate) -> TryTarget {
    let (target, credential) = (Arc::clone(&candidate.target), candidate.credential_name().into());
    TryTarget { target, credential }
}

/// Notes what came of a try, for those that follow and for the metrics.
pub(crate) fn report(
    candidate: &mut Candidate,
    began: Instant,
    outcome: Outcome,
    metrics: &Metrics,
) {
    let now = Instant::now();
    candidate.report(outcome, now);
    let (upstream, took) = (&candidate.target.upstream.name, now.saturating_duration_since(began));
    metrics.upstream_answered(upstream, outcome.as_str(), took);
}

impl Sending {
    /// Creates the state of a request that was just admitted.
    pub(crate) fn new(
        admitted: Box<AdmittedRequest>,
        body: HeldBody,
        mark: Option<IdempotencyMark>,
        candidates: Candidates,
    ) -> Self {
        Self {
            admitted,
            body,
            mark,
            candidates,
            attempt: None,
            needs_new_connection: false,
            has_renewed: false,
            refusal: None,
            last_failure: None,
        }
    }

    /// Ends the tries and returns the admitted request, the body, the answered try and the remaining targets.
    pub(crate) fn into_parts(
        self,
    ) -> (Box<AdmittedRequest>, HeldBody, Option<Attempt>, Candidates) {
        (self.admitted, self.body, self.attempt, self.candidates)
    }

    /// Records the outcome of the current try.
    pub(crate) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        if let Some(attempt) = &mut self.attempt {
            attempt.report(outcome, metrics);
        }
    }

    /// Fields and headers of the client's request that did not go upstream, separated by commas.
    pub(crate) fn left_out(&self) -> Option<String> {
        let by_call = self.admitted.call.left_out();
        let by_upstream = self.attempt.iter().flat_map(|attempt| &attempt.request.left_out);
        let by_upstream = by_upstream.map(String::as_str);
        let all: Vec<&str> = by_call.as_deref().into_iter().chain(by_upstream).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Target and credential of the current try.
    pub(crate) fn tried_at(&self) -> Option<TryTarget> {
        self.attempt.as_ref().map(Attempt::at)
    }

    /// The next target to try; `None` where none is left, or there are no more retries.
    pub(crate) fn next(&mut self, metrics: &Metrics) -> Option<Candidate> {
        if self.candidates.has_tried() && !self.may_retry(metrics) {
            return None;
        }
        let candidate = self.candidates.next(Instant::now())?;
        // The hold and the reading follow the target before its request is written.
        self.admitted.switch_target(candidate.rank.model, candidate.target.upstream.dialect);
        if candidate.is_retry {
            let model = &self.admitted.model().id;
            metrics.retried(model, &candidate.target.upstream.name);
        }
        Some(candidate)
    }

    /// Records the failure of the current try, with [`CallFailure::consequence`]. Returns whether another
    /// target is tried; if so, the next try is held for, and the possible cost of this one is recorded as the
    /// operator's loss.
    pub(crate) fn fail_try(
        &mut self,
        failure: CallFailure,
        delivery: Delivery,
        metrics: &Metrics,
    ) -> bool {
        let Consequence { outcome, next, progress, .. } = failure.consequence(delivery);
        if let Some(outcome) = outcome {
            self.report(outcome, metrics);
        }
        self.note_refusal(failure, metrics);
        let Some(attempt) = &mut self.attempt else { return false };
        // Of a submit the task has taken the hold over.
        if delivery != Delivery::Submit {
            attempt.progress = progress;
        }
        match next {
            NextTarget::Same => {
                if failure == CallFailure::ClosedWhileIdle {
                    self.needs_new_connection = true;
                    metrics.reconnected(&attempt.candidate.target.upstream.name);
                }
                self.candidates.again(&attempt.candidate);
                true
            }
            NextTarget::Free(missing) => {
                let now = Instant::now();
                if missing == Missing::Model {
                    self.candidates.unknown(&attempt.candidate.channel, now);
                }
                self.candidates.pass_over(now)
            }
            NextTarget::Another => self.try_another(metrics),
            NextTarget::IfListed(status) => {
                let is_listed = attempt.candidate.target.upstream.repeats_after_status(status);
                is_listed && self.try_another(metrics)
            }
            NextTarget::IfAllowed(after) => {
                let upstream = &attempt.candidate.target.upstream;
                let is_allowed = match after {
                    RepeatAfter::Status(status) => upstream.repeats_after_status(status),
                    after => upstream.repeat_after.contains(&after),
                };
                let is_repeated = is_allowed && self.may_retry(metrics);
                if is_repeated && let Some(at) = self.tried_at() {
                    self.admitted.retry(at);
                    self.let_go();
                }
                is_repeated
            }
            NextTarget::Never => false,
        }
    }

    /// Tries another target, if there are retries: the outcome of the last try is known.
    fn try_another(&mut self, metrics: &Metrics) -> bool {
        let is_repeated = self.may_retry(metrics);
        if is_repeated && let Some(at) = self.tried_at() {
            self.admitted.retry_parts(at);
        }
        is_repeated
    }

    /// Counts and logs a refusal that the operator has to do something about.
    fn note_refusal(&mut self, failure: CallFailure, metrics: &Metrics) {
        let refusal = self.refusal.take();
        let Some(attempt) = &self.attempt else { return };
        let fault = match (failure, refusal.as_ref().and_then(|refusal| refusal.fault)) {
            // Another token is tried; and a name of the customer's own is no fault of the operator's.
            (CallFailure::RefusedToken | CallFailure::NotOffered(_), _) => return,
            (_, Some(fault)) if refusal::is_operators(Some(fault)) => fault,
            (CallFailure::RefusedCredential, _) => RefusalFault::Credential,
            (CallFailure::RefusedAccount, _) => RefusalFault::Account,
            _ => return,
        };
        let candidate = &attempt.candidate;
        let upstream = &candidate.target.upstream.name;
        metrics.operator_at_fault(upstream, candidate.credential_name(), fault.as_str());
        let (place, hidden) = (candidate.place(), UpstreamSecrets::at(candidate));
        let what = match fault {
            RefusalFault::Model => {
                let model = candidate.target.model.as_deref().unwrap_or_default();
                format!("does not offer {model} to the operator's account")
            }
            RefusalFault::Credential => "refuses the operator's credential".to_owned(),
            _ => "refuses the operator's account".to_owned(),
        };
        let words = refusal.map_or_else(String::new, |refusal| {
            let code = refusal::logged_words(&refusal.code, hidden);
            let message = refusal::logged_words(&refusal.message, hidden);
            format!(": {} {code}: {message}", refusal.status)
        });
        log::warn!("{place} {what}{words}");
    }

    /// There is no token to ask a target with: that counts against its credential, and the request goes
    /// on as far as there are retries. Where it could not be fetched for want of a resource of this machine,
    /// nobody is to blame.
    ///
    /// # Errors
    /// The request ends here: another target would need the same resource.
    pub(crate) fn pass_by(
        &mut self,
        mut candidate: Candidate,
        began: Instant,
        cause: &Unavailable,
        metrics: &Metrics,
    ) -> Result<(), GatewayError> {
        if let Some(resource) = cause.exhausted() {
            let error = upstream_error::overloaded().cause(cause);
            if !resource.is_per_destination() {
                return Err(error);
            }
            self.set_last_failure(error);
            return Ok(());
        }
        report(&mut candidate, began, Outcome::Credential, metrics);
        self.set_last_failure(upstream_error::unavailable().cause(cause));
        Ok(())
    }

    /// Refines a failure of the current try whose token may have expired early: the same target is then tried
    /// with another token, once.
    pub(crate) fn refine_by_token(&mut self, failure: CallFailure) -> CallFailure {
        let status = match failure {
            CallFailure::RefusedCredential => 401,
            CallFailure::NotDone(status) => status,
            _ => return failure,
        };
        let token = self.attempt.as_ref().and_then(|attempt| attempt.candidate.token.as_ref());
        // Once: a credential that is wrong is refused with each new token as well.
        if self.has_renewed || !token.is_some_and(|token| token.give_up_after(status)) {
            return failure;
        }
        self.has_renewed = true;
        CallFailure::RefusedToken
    }

    /// The customer has nothing to do with the try under way any more: what it may have cost is a loss.
    fn let_go(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.progress = Progress::NotSent;
        }
        self.admitted.partial = None;
    }

    /// Stores the client's error of a try, for the case that the following ones fail.
    pub(crate) fn set_last_failure(&mut self, failure: GatewayError) {
        self.last_failure = Some(failure);
    }

    /// True if the current try needs a new connection. A request that was sent again gets no second pooled
    /// connection, so it is sent again once.
    pub(crate) fn take_new_connection(&mut self) -> bool {
        std::mem::take(&mut self.needs_new_connection)
    }

    /// True if another target may be tried; the next try is then paid for.
    fn may_retry(&mut self, metrics: &Metrics) -> bool {
        match self.candidates.retry(Instant::now()) {
            Retry::Granted => true,
            Retry::NoneLeft => false,
            Retry::OverBudget => {
                metrics.retry_denied();
                false
            }
        }
    }

    /// The thing that the target of the current try lacks, if it answered with this status: the model, by a
    /// name that the client chose, or a path whose answer the gateway has itself. That is no failure of the
    /// target.
    pub(crate) fn missing_by_status(&self, status: u16) -> Option<Missing> {
        let attempt = self.attempt.as_ref()?;
        if matches!(status, 404 | 405 | 501) && self.admitted.call.local_answer().is_some() {
            return Some(Missing::Path);
        }
        let is_chosen = self.admitted.resolved.is_chosen_at(&attempt.candidate.target);
        (status == 404 && is_chosen).then_some(Missing::Model)
    }

    /// True if the current try uses a model name that the client chose.
    pub(crate) fn is_name_chosen(&self) -> bool {
        let attempt = self.attempt.as_ref();
        attempt.is_some_and(|one| self.admitted.resolved.is_chosen_at(&one.candidate.target))
    }

    /// The error if no target is left.
    pub(crate) fn give_up(&mut self) -> GatewayError {
        if let Some(failure) = self.last_failure.take() {
            return failure;
        }
        let now = Instant::now();
        if self.candidates.is_unknown(now) {
            return self.admitted.resolved.unknown();
        }
        match self.candidates.busy_for(now) {
            // Nobody was asked: all have said when to come again.
            Some(time) => upstream_error::busy_for(time),
            None => upstream_error::unavailable(),
        }
    }
}
