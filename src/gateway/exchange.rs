//! One request's state: what every hook knows, and the stage that it has reached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use pingora::http::{RequestHeader, ResponseHeader};

use super::body::{HeldBody, Share};
use super::deadline::Deadline;
use super::envelope::Envelope;
use super::overload::Place;
use super::peer;
use super::respond::Stamp;
use super::submit::Mark;
use crate::balance::{Candidate, Candidates, Outcome, Retry};
use crate::config::snapshot::{Model, Route, Snapshot};
use crate::error::GatewayError;
use crate::ledger::{Key, RequestId, TaskId};
use crate::limits::{Permit, Standing};
use crate::metrics::Metrics;
use crate::pipeline::{Admitted, Bill, Ending, Relaying, Settled, UpstreamRequest};
use crate::price::{Usage, UsageSource};
use crate::protocols::{Call, Framing};
use crate::request_log::RequestLog;

/// A request on its way.
pub struct Exchange {
    pub(super) id: RequestId,
    pub(super) started: Instant,
    /// The configuration that this request sees from beginning to end.
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) route: Option<Arc<Route>>,
    /// How errors are written to this client.
    pub(super) envelope: Envelope,
    pub(super) key: Option<Arc<Key>>,
    /// The path of a request that was answered here, as logs name it.
    pub(super) local_route: &'static str,
    pub(super) model: Option<Arc<Model>>,
    pub(super) stream: bool,
    pub(super) request_bytes: u64,
    pub(super) first_byte: Option<Duration>,
    pub(super) stage: Stage,
    /// What lets it go on beside others, until it is settled.
    pub(super) permit: Option<Permit>,
    /// What to answer in the place of an upstream that cannot.
    pub(super) local_answer: Option<Bytes>,
    /// What went wrong, to be answered by `fail_to_proxy` or told to the log.
    pub(super) failure: Option<GatewayError>,
    /// The task that it has started.
    pub(super) task: Option<TaskId>,
    pub(super) metrics: Arc<Metrics>,
    /// Where it is kept for people to look at once it is over.
    pub(super) requests: Arc<RequestLog>,
    /// When it must end, come what may.
    pub(super) deadline: Arc<Deadline>,
    /// Its place among the requests that are being served.
    pub(super) place: Option<Place>,
}

/// How far a request has come. Each stage is made from the one before.
pub(super) enum Stage {
    /// Nothing is promised yet, or it was answered without an upstream.
    Unpaid,
    /// The money is held; targets are being tried.
    Sending(Box<Sending>),
    /// A response is on its way to the customer.
    Relaying(Box<Response>),
    /// It is over.
    Settled(Settled),
}

/// A paid request that no target has answered yet.
pub(super) struct Sending {
    pub(super) admitted: Admitted,
    pub(super) body: HeldBody,
    /// What marks repetitions of it, for one that starts a task.
    pub(super) mark: Option<Mark>,
    /// The targets still to try.
    pub(super) candidates: Candidates,
    /// The try under way.
    pub(super) attempt: Option<Attempt>,
    /// Tries that ended because the upstream had closed an idle connection.
    pub(super) stale_tries: u8,
    /// Why the last try failed.
    pub(super) last_failure: Option<GatewayError>,
}

/// One try of one target.
pub(super) struct Attempt {
    pub(super) candidate: Candidate,
    pub(super) request: UpstreamRequest,
    pub(super) began: Instant,
    /// The body was handed to Pingora in this try.
    pub(super) body_emitted: bool,
}

/// A response that is being relayed.
pub(super) struct Response {
    pub(super) relaying: Relaying,
    pub(super) framing: Framing,
    pub(super) candidate: Candidate,
    pub(super) began: Instant,
    /// What is held back of it, in the budget of all bodies.
    pub(super) held: Share,
    /// Bytes given to Pingora to send.
    pub(super) bytes_passed: usize,
    /// The closing event was passed, for this reason; whatever still comes is swallowed.
    pub(super) cut: Option<Cut>,
}

/// Why a response ended before its upstream did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Hold and balance are used up.
    Exhausted,
    /// It took longer than answers may.
    Overdue,
    /// The process is about to end.
    Stopping,
}

impl Exchange {
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        metrics: Arc<Metrics>,
        requests: Arc<RequestLog>,
        deadline: Arc<Deadline>,
    ) -> Self {
        Self {
            id: RequestId::new(),
            started: Instant::now(),
            snapshot,
            route: None,
            envelope: Envelope::default(),
            key: None,
            local_route: "",
            model: None,
            stream: false,
            request_bytes: 0,
            first_byte: None,
            stage: Stage::Unpaid,
            permit: None,
            local_answer: None,
            failure: None,
            task: None,
            metrics,
            requests,
            deadline,
            place: None,
        }
    }

    /// Finds the route that the request asks for, and how its client reads errors.
    pub(super) fn route_to(&mut self, head: &RequestHeader) {
        let path = head.uri.path();
        self.route = self.snapshot.routes.iter().find(|route| route.path == path).cloned();
        let operation = self.route.as_ref().map(|route| route.operation);
        self.envelope = Envelope::of(operation, &head.headers);
    }

    /// Whether it starts a task.
    pub(super) fn is_submitted(&self) -> bool {
        match &self.stage {
            Stage::Sending(sending) => sending.admitted.call.submit().is_some(),
            _ => false,
        }
    }

    /// Whether its answer is put together here rather than relayed.
    pub(super) fn is_collected(&self) -> bool {
        match &self.stage {
            Stage::Sending(sending) => sending.admitted.call.collected().is_some(),
            _ => false,
        }
    }

    /// How often its stream is kept alive, if that is wanted.
    pub(super) fn keeps_alive(&self) -> Option<Duration> {
        self.snapshot.limits.sse_keepalive.filter(|_| self.stream)
    }

    /// Whether money is held for it.
    pub(super) fn is_paid(&self) -> bool {
        match &self.stage {
            Stage::Sending(sending) => sending.admitted.payment.is_held(),
            Stage::Relaying(response) => response.relaying.is_paid(),
            Stage::Unpaid | Stage::Settled(_) => false,
        }
    }

    /// The name of the upstream that was tried last, or answers now.
    pub(super) fn upstream_name(&self) -> &str {
        match &self.stage {
            Stage::Sending(sending) => {
                sending.attempt.as_ref().map_or("", |attempt| attempt.upstream_name())
            }
            Stage::Relaying(response) => &response.candidate.target.upstream.name,
            Stage::Unpaid | Stage::Settled(_) => "",
        }
    }

    /// The try under way, if there is one.
    pub(super) fn attempt(&mut self) -> Option<&mut Attempt> {
        match &mut self.stage {
            Stage::Sending(sending) => sending.attempt.as_mut(),
            _ => None,
        }
    }

    /// Moves from sending to relaying: the target has answered well. The request body is let go.
    pub(super) fn begin_relaying(&mut self, framing: Framing) -> Option<&mut Response> {
        self.begin(framing, |admitted| Relaying::new(admitted, framing))
    }

    /// Moves from sending to relaying an answer of which everything is known.
    pub(super) fn begin_known(&mut self, framing: Framing, usage: Usage, source: UsageSource) {
        self.begin(framing, |admitted| Relaying::known(admitted, usage, source));
    }

    /// All of an answer of which everything is known has been sent, or is about to be.
    pub(super) fn finish_known(&mut self) {
        self.leave();
        if let Stage::Relaying(response) = &mut self.stage {
            // Such an answer has nothing left behind its end.
            drop(response.relaying.finish());
        }
    }

    fn begin(
        &mut self,
        framing: Framing,
        relaying: impl FnOnce(Admitted) -> Relaying,
    ) -> Option<&mut Response> {
        let stage = std::mem::replace(&mut self.stage, Stage::Unpaid);
        let Stage::Sending(sending) = stage else {
            self.stage = stage;
            return None;
        };
        let Sending { admitted, attempt, body, .. } = *sending;
        let relaying = relaying(admitted);
        let Attempt { candidate, began, .. } = attempt?;
        let held = body.into_share();
        let (bytes_passed, cut) = (0, None);
        let response = Response { relaying, framing, candidate, began, held, bytes_passed, cut };
        self.stage = Stage::Relaying(Box::new(response));
        match &mut self.stage {
            Stage::Relaying(response) => Some(response),
            _ => None,
        }
    }

    /// What every answer says beside its body.
    pub(super) fn stamp(&self) -> Stamp {
        let limited = self.failure.as_ref().and_then(|failure| failure.limited.as_ref());
        let standing = match (limited, &self.permit) {
            (Some(limited), _) => limited.standing,
            (None, Some(permit)) => permit.standing(),
            (None, None) => Standing::default(),
        };
        Stamp { id: self.id, standing }
    }

    /// Whether all that the customer waits for has come: clients stop reading at a stream's last
    /// event.
    pub(super) fn is_whole(&self) -> bool {
        matches!(&self.stage, Stage::Relaying(response) if response.relaying.is_complete())
    }

    /// The last of the answer is about to be sent: the customer may come with another request.
    pub(super) fn leave(&mut self) {
        if let Some(permit) = &mut self.permit {
            permit.leave();
        }
    }

    /// What the request has come to, with such an ending.
    pub(super) fn bill(&self, ending: Ending) -> Bill {
        match &self.stage {
            Stage::Sending(sending) => sending.admitted.bill(ending),
            Stage::Relaying(response) => response.relaying.bill(ending),
            Stage::Unpaid | Stage::Settled(_) => None,
        }
    }

    /// Sets aside what a bill comes to beyond the hold, as far as that is elsewhere in a fleet.
    pub(super) async fn cover(&mut self, bill: &Bill) {
        match (&mut self.stage, bill) {
            (Stage::Sending(sending), Some(bill)) => sending.admitted.cover(bill).await,
            (Stage::Relaying(response), Some(bill)) => response.relaying.cover(bill).await,
            _ => {}
        }
    }

    /// Ends the money's part of the request. Later calls return what the first one settled.
    pub(super) fn settle(&mut self, bill: Bill) -> Settled {
        let settled = match std::mem::replace(&mut self.stage, Stage::Unpaid) {
            Stage::Unpaid => Settled::NOTHING,
            Stage::Sending(sending) => sending.admitted.settle(bill),
            Stage::Relaying(response) => response.relaying.settle(bill),
            Stage::Settled(settled) => settled,
        };
        self.stage = Stage::Settled(settled);
        if let Some(permit) = self.permit.take() {
            let usage = &settled.usage;
            permit.settle(usage.input_tokens_total().saturating_add(usage.output_tokens));
        }
        settled
    }
}

impl Attempt {
    /// A first or a further try.
    pub(super) fn begin(candidate: Candidate, request: UpstreamRequest) -> Self {
        Self { candidate, request, began: Instant::now(), body_emitted: false }
    }

    pub(super) fn upstream_name(&self) -> &str {
        &self.candidate.target.upstream.name
    }

    /// Notes what came of it.
    pub(super) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        report(&mut self.candidate, self.began, outcome, metrics);
    }
}

impl Response {
    /// Notes that it did not end well.
    pub(super) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        report(&mut self.candidate, self.began, outcome, metrics);
    }
}

/// Notes what came of a try, for those that follow and for the metrics.
pub(super) fn report(
    candidate: &mut Candidate,
    began: Instant,
    outcome: Outcome,
    metrics: &Metrics,
) {
    candidate.report(outcome, Instant::now());
    metrics.upstream_answered(&candidate.target.upstream.name, outcome.as_str(), began.elapsed());
}

impl Sending {
    /// Notes what came of the try under way.
    pub(super) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        if let Some(attempt) = &mut self.attempt {
            attempt.report(outcome, metrics);
        }
    }

    /// The next target to try.
    pub(super) fn next(&mut self, metrics: &Metrics) -> Option<Candidate> {
        if self.candidates.has_tried() && !self.may_retry(metrics) {
            return None;
        }
        let candidate = self.candidates.next(Instant::now())?;
        if candidate.is_retry {
            let model = &self.admitted.resolved.model.id;
            metrics.retried(model, &candidate.target.upstream.name);
        }
        Some(candidate)
    }

    /// Whether another target may be tried; if so, the next try is paid for.
    pub(super) fn may_retry(&mut self, metrics: &Metrics) -> bool {
        match self.candidates.retry(Instant::now()) {
            Retry::Granted => true,
            Retry::NoneLeft => false,
            Retry::OverBudget => {
                metrics.retry_denied();
                false
            }
        }
    }

    /// What to answer when no target is left.
    pub(super) fn give_up(&mut self) -> GatewayError {
        if let Some(failure) = self.last_failure.take() {
            return failure;
        }
        match self.candidates.busy_for(Instant::now()) {
            // Nobody was asked: all have said when to come again.
            Some(time) => peer::busy_for(time),
            None => peer::unavailable(),
        }
    }
}

/// How a successful response is framed, or `None` for one that no client of ours could read.
pub(super) fn framing(header: &ResponseHeader, call: &dyn Call) -> Option<Framing> {
    // What is compressed, although it was asked for as it is, cannot be metered.
    if header.headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return None;
    }
    let value = header.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let media_type = value.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("text/event-stream") {
        Some(Framing::Sse)
    } else if media_type.eq_ignore_ascii_case("application/json") || media_type.ends_with("+json") {
        Some(Framing::Json).filter(|_| !call.answers_binary())
    } else {
        Some(Framing::Binary).filter(|_| call.answers_binary())
    }
}
