//! One request's state: what every hook knows, and the stage that it has reached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::balance::{Candidate, CredentialScan, Outcome};
use crate::clock::UnixMs;
use crate::config::snapshot::{Model, Route, Snapshot, Target};
use crate::error::GatewayError;
use crate::gateway::answer::array::ArrayWriter;
use crate::gateway::answer::envelope::Envelope;
use crate::gateway::answer::respond::{self, Stamp};
use crate::gateway::call::failure::CallFailure;
use crate::gateway::call::orphan::Orphan;
use crate::gateway::call::peer;
use crate::gateway::call::sending::{self, Attempt, Sending};
use crate::gateway::call::slots::UpstreamSlot;
use crate::gateway::listen::deadline::{self, Deadline};
use crate::gateway::listen::places::AdmissionSlot;
use crate::gateway::receive::budget::BudgetShare;
use crate::gateway::receive::content_path::{self, AskedAt};
use crate::holds::RunningCall;
use crate::ledger::{CallCost, CostKind, Key, Ledger, Loss, LossCause, RequestId, TaskId};
use crate::limits::{InUseGuard, Permit, RateLimitStatus};
use crate::metrics::Metrics;
use crate::money::Nanousd;
use crate::pipeline::{Admitted, Bill, Ending, Relaying, Settled, TryCost};
use crate::price::{Side, Usage, UsageSource};
use crate::protocols::{Delivery, Framing};
use crate::request_log::RequestLog;

/// A request on its way.
pub struct Exchange {
    pub(super) id: RequestId,
    pub(super) started: Instant,
    /// The configuration that this request sees from beginning to end.
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) route: Option<Arc<Route>>,
    /// What the path says, of operations that are asked for there.
    pub(super) asked_at: Option<Arc<AskedAt>>,
    /// Turns the events of the answer into one array, for clients of Google's that want that.
    array: Option<ArrayWriter>,
    /// How errors are written to this client.
    pub(super) envelope: Envelope,
    pub(super) key: Option<Arc<Key>>,
    /// The path of a request that was answered here, as logs name it.
    pub(super) local_route: &'static str,
    pub(super) model: Option<Arc<Model>>,
    pub(super) stream: bool,
    pub(super) request_bytes: u64,
    pub(super) first_byte: Option<Duration>,
    pub(super) stage: RequestStage,
    /// What lets it go on beside others, until it is settled.
    pub(super) permit: Option<Permit>,
    /// Its seat among the parallel calls of an account with little money, until it is settled.
    pub(super) seat: Option<RunningCall>,
    /// What to answer in the place of an upstream that cannot.
    pub(super) local_answer: Option<Bytes>,
    /// What went wrong, to be answered by `fail_to_proxy` or told to the log.
    pub(super) failure: Option<GatewayError>,
    /// What the upstream that has failed or refused calls the request.
    pub(super) upstreams_id: Option<String>,
    /// The task that it has started.
    pub(super) task: Option<TaskId>,
    pub(super) metrics: Arc<Metrics>,
    /// Where it is noted what the operator loses by it.
    ledger: Arc<Ledger>,
    /// Where it is kept for people to look at once it is over.
    pub(super) requests: Arc<RequestLog>,
    /// When it must end, come what may.
    pub(super) deadline: Arc<Deadline>,
    /// Its place among the requests that are being served.
    pub(super) place: Option<AdmissionSlot>,
    /// Its part in the budget of calls to upstreams, for one that makes any.
    pub(super) upstream_slot: Option<UpstreamSlot>,
    /// Its place among those that wait for the end of a task.
    pub(super) waiting: Option<InUseGuard>,
    /// It counts among the requests in flight.
    is_in_flight: bool,
    /// It was turned away: it has no place, and its answer little time.
    pub(super) is_shed: bool,
    /// Nobody waits for the answer any more, and it is read on.
    pub(super) orphan: Option<Orphan>,
}

/// How far a request has come. Each stage is made from the one before.
pub(super) enum RequestStage {
    /// Nothing is promised yet, or it was answered without an upstream.
    Unpaid,
    /// The money is held; targets are being tried.
    Sending(Box<Sending>),
    /// A response is on its way to the customer.
    Relaying(Box<Response>),
    /// The request was settled, with this result.
    Settled(Settled),
}

/// A response that is being relayed.
pub(super) struct Response {
    pub(super) relaying: Relaying,
    pub(super) framing: Framing,
    pub(super) candidate: Candidate,
    pub(super) began: Instant,
    /// What is held back of it, in the budget of all bodies.
    pub(super) held: BudgetShare,
    /// The closing event was passed, for this reason; whatever still comes is not the customer's.
    pub(super) cut: Option<CutReason>,
    /// A piece that no hold on disk pays for yet, and whether it is the last.
    pub(super) uncovered: Option<(Bytes, bool)>,
    /// Its body has shown that it is what its head says.
    pub(super) is_as_said: bool,
    /// Looks for the operator's credential in what the customer gets.
    pub(super) scan: CredentialScan,
}

/// Why a response ended before its upstream did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutReason {
    /// Hold and balance are used up.
    Exhausted,
    /// It took longer than answers may.
    Overdue,
    /// The process is about to end.
    Stopping,
    /// It held the operator's credential.
    Withheld,
}

impl Exchange {
    /// A request that [`Metrics::in_flight_begin`] has counted.
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        metrics: Arc<Metrics>,
        ledger: Arc<Ledger>,
        requests: Arc<RequestLog>,
        deadline: Arc<Deadline>,
    ) -> Self {
        Self {
            id: RequestId::new(),
            started: Instant::now(),
            snapshot,
            route: None,
            asked_at: None,
            array: None,
            envelope: Envelope::default(),
            key: None,
            local_route: "",
            model: None,
            stream: false,
            request_bytes: 0,
            first_byte: None,
            stage: RequestStage::Unpaid,
            permit: None,
            seat: None,
            local_answer: None,
            failure: None,
            upstreams_id: None,
            task: None,
            metrics,
            ledger,
            requests,
            deadline,
            place: None,
            upstream_slot: None,
            waiting: None,
            is_in_flight: true,
            is_shed: false,
            orphan: None,
        }
    }

    /// Whether its account has money available.
    pub(super) fn is_funded(&self) -> bool {
        let available = |key: &Arc<Key>| self.ledger.available_and_held(key.account).0;
        self.key.as_ref().is_none_or(|key| available(key) > Nanousd::ZERO)
    }

    /// Counts the request no longer as in flight: nothing of it is left to be served.
    pub(super) fn leave_in_flight(&mut self) {
        if std::mem::take(&mut self.is_in_flight) {
            self.metrics.in_flight_end();
        }
    }

    /// Finds the route that the request asks for, and how its client reads errors.
    pub(super) fn route_to(&mut self, head: &RequestHeader) {
        let path = head.uri.path();
        let mut routes = self.snapshot.routes.iter();
        let is_asked =
            |route: &&Arc<Route>| route.path == path && !route.operation.names_model_in_path();
        self.route = routes.find(is_asked).cloned();
        if self.route.is_none()
            && let Some((route, asked)) = content_path::find(&self.snapshot, path, head.uri.query())
        {
            self.route = Some(route);
            self.array = asked.is_array.then(ArrayWriter::default);
            self.asked_at = Some(Arc::new(asked));
        }
        let operation = self.route.as_ref().map(|route| route.operation);
        let is_googles = || content_path::is_googles(&self.snapshot, &head.method, path);
        self.envelope = match self.route.is_none() && is_googles() {
            true => Envelope::Google,
            false => Envelope::for_request(operation, &head.headers),
        };
    }

    /// How its answer travels to the customer.
    pub(super) fn delivery(&self) -> Delivery {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.delivery(),
            _ if self.stream => Delivery::Stream,
            _ => Delivery::Relay,
        }
    }

    /// How often its stream is kept alive, if that is wanted.
    pub(super) fn keepalive_interval(&self) -> Option<Duration> {
        // An array has no comments.
        self.snapshot.limits.sse_keepalive.filter(|_| self.stream && self.array.is_none())
    }

    /// Whether its events go to the customer as the elements of an array.
    pub(super) fn is_array(&self) -> bool {
        let is_of_events = |response: &Response| response.framing == Framing::Sse;
        self.array.is_some()
            && matches!(&self.stage, RequestStage::Relaying(response) if is_of_events(response))
    }

    /// A piece of the answer's body as it is sent, and whether that is its end.
    pub(super) fn as_sent(&mut self, piece: Bytes, is_end: bool) -> Bytes {
        match (self.is_array(), &mut self.array) {
            (true, Some(array)) => array.write(&piece, is_end),
            _ => piece,
        }
    }

    /// The request while targets are tried.
    ///
    /// # Errors
    /// It is not admitted, or is answered already: that is the gateway's fault.
    pub(super) fn sending(&mut self) -> Result<&mut Sending> {
        match &mut self.stage {
            RequestStage::Sending(sending) => Ok(sending),
            _ => Err(Error::explain(ErrorType::InternalError, "no target is being tried")),
        }
    }

    /// Notes what to answer, and ends the request with the error that says so.
    pub(super) fn fail(&mut self, error: GatewayError) -> Box<Error> {
        let error = self.envelope.in_its_words(error);
        let (status, _, _) = respond::wire(error.kind);
        self.failure = Some(error);
        self.leave();
        Error::new(ErrorType::HTTPStatus(status))
    }

    /// Notes that the deadline of the process has cut it.
    pub(super) fn stopped(&mut self, session: &Session) -> Box<Error> {
        self.fail(deadline::stopping(respond::begun(session)))
    }

    /// Whether money is held for it.
    pub(super) fn is_paid(&self) -> bool {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.payment.is_held(),
            RequestStage::Relaying(response) => response.relaying.is_paid(),
            RequestStage::Unpaid | RequestStage::Settled(_) => false,
        }
    }

    /// The target that was tried last, or answers now.
    pub(super) fn tried_target(&self) -> Option<&Arc<Target>> {
        match &self.stage {
            RequestStage::Sending(sending) => {
                sending.attempt.as_ref().map(|attempt| &attempt.candidate.target)
            }
            RequestStage::Relaying(response) => Some(&response.candidate.target),
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        }
    }

    /// The name of the upstream that was tried last, or answers now.
    pub(super) fn upstream_name(&self) -> &str {
        self.tried_target().map_or("", |target| &target.upstream.name)
    }

    /// The model whose target was tried last, or answers now: the one that the request names, or one of
    /// its fallbacks.
    pub(super) fn tried_model(&self) -> Option<&Arc<Model>> {
        match &self.stage {
            RequestStage::Sending(sending) => Some(sending.admitted.model()),
            RequestStage::Relaying(response) => Some(response.relaying.admitted().model()),
            RequestStage::Unpaid | RequestStage::Settled(_) => self.model.as_ref(),
        }
    }

    /// The model that answers in the place of the one that the request names.
    fn fallback(&self) -> Option<&Arc<Model>> {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.fallback(),
            RequestStage::Relaying(response) => response.relaying.admitted().fallback(),
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        }
    }

    /// The try under way, if there is one.
    pub(super) fn attempt(&mut self) -> Option<&mut Attempt> {
        match &mut self.stage {
            RequestStage::Sending(sending) => sending.attempt.as_mut(),
            _ => None,
        }
    }

    /// Moves from sending to relaying: the target has answered well. The request body is let go.
    pub(super) fn begin_relaying(&mut self, framing: Framing) -> Option<&mut Response> {
        self.begin(framing, |admitted| Relaying::new(admitted, framing))
    }

    /// Moves from sending to relaying an answer of which everything is known.
    pub(super) fn begin_known(&mut self, framing: Framing, usage: Usage, source: UsageSource) {
        self.begin(framing, |admitted| Relaying::with_usage(admitted, usage, source));
    }

    /// All of an answer of which everything is known has been sent, or is about to be.
    pub(super) fn finish_known(&mut self) {
        self.leave();
        if let RequestStage::Relaying(response) = &mut self.stage {
            // Such an answer has nothing left behind its end.
            drop(response.relaying.finish());
        }
    }

    fn begin(
        &mut self,
        framing: Framing,
        relaying: impl FnOnce(Box<Admitted>) -> Relaying,
    ) -> Option<&mut Response> {
        let stage = std::mem::replace(&mut self.stage, RequestStage::Unpaid);
        let RequestStage::Sending(sending) = stage else {
            self.stage = stage;
            return None;
        };
        let (admitted, body, attempt, candidates) = sending.into_parts();
        let Attempt { candidate, began, .. } = attempt?;
        let relaying = relaying(admitted).with_id_recorder(|| candidates.id_recorder(&candidate));
        let held = body.into_share();
        let (cut, uncovered, is_as_said) = (None, None, false);
        let framing = framing.for_customers();
        let scan = CredentialScan::new(candidate.channel.finder(candidate.token.as_ref()));
        let response = Response {
            relaying,
            framing,
            candidate,
            began,
            held,
            cut,
            uncovered,
            is_as_said,
            scan,
        };
        self.stage = RequestStage::Relaying(Box::new(response));
        match &mut self.stage {
            RequestStage::Relaying(response) => Some(response),
            _ => None,
        }
    }

    /// What every answer says beside its body.
    pub(super) fn stamp(&self) -> Stamp {
        let limited = self.failure.as_ref().and_then(|failure| failure.limited.as_ref());
        let standing = match (limited, &self.permit) {
            (Some(limited), _) => limited.standing,
            (None, Some(permit)) => permit.standing(),
            (None, None) => RateLimitStatus::default(),
        };
        // An error of the gateway's own is no model's answer.
        let fallback = self.fallback().filter(|_| self.failure.is_none());
        let fallback = fallback.map(|model| Arc::clone(&model.id));
        Stamp { id: self.id, standing, fallback, clamped: self.clamped() }
    }

    /// The output limit, in tokens for each choice, to which the request was lowered.
    pub(super) fn clamped(&self) -> Option<u64> {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.clamped,
            RequestStage::Relaying(response) => response.relaying.admitted().clamped,
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        }
    }

    /// Whether a stream has come to its last event.
    pub(super) fn is_whole_stream(&self) -> bool {
        matches!(&self.stage, RequestStage::Relaying(response) if response.framing == Framing::Sse)
            && self.is_whole()
    }

    /// Whether the answer is a document that is put together anew when all of it has come.
    pub(super) fn rewrites_document(&self) -> bool {
        let RequestStage::Relaying(response) = &self.stage else { return false };
        response.framing == Framing::Json && response.relaying.changes_length()
    }

    /// Whether the answer does not just go on: it was cut, or a piece waits for the hold that pays for it.
    pub(super) fn is_held_up(&self) -> bool {
        let is_held_up =
            |response: &Response| response.cut.is_some() || response.uncovered.is_some();
        matches!(&self.stage, RequestStage::Relaying(response) if is_held_up(response))
    }

    /// Whether the answer was ended because it held the operator's credential. None of the rest is read.
    pub(super) fn is_withheld(&self) -> bool {
        let is_withheld = |response: &Response| response.cut == Some(CutReason::Withheld);
        matches!(&self.stage, RequestStage::Relaying(response) if is_withheld(response))
    }

    /// Whether a piece of the answer waits for the hold that pays for it.
    pub(super) fn has_uncovered(&self) -> bool {
        matches!(&self.stage, RequestStage::Relaying(response) if response.uncovered.is_some())
    }

    /// An answer with a status of success came to nothing: no other target is asked.
    pub(super) fn fail_answer(&mut self, failure: CallFailure) {
        let (delivery, metrics) = (self.delivery(), Arc::clone(&self.metrics));
        if let RequestStage::Sending(sending) = &mut self.stage {
            sending.fail_try(failure, delivery, &metrics);
        }
    }

    /// The upstream's answer says that all is well, and cannot be read. What it may bill is not known.
    pub(super) fn unread(&mut self, cause: &'static str) -> Box<Error> {
        self.fail_answer(CallFailure::Unreadable);
        self.fail(peer::unreadable(cause))
    }

    /// Whether all that the customer waits for has come: clients stop reading at a stream's last
    /// event.
    pub(super) fn is_whole(&self) -> bool {
        matches!(&self.stage, RequestStage::Relaying(response) if response.relaying.is_complete())
    }

    /// The last of the answer is about to be sent: the customer may come with another request.
    pub(super) fn leave(&mut self) {
        if let Some(permit) = &mut self.permit {
            permit.leave();
        }
        self.upstream_slot = None;
    }

    /// What the request has come to, with such an ending.
    pub(super) fn bill(&self, ending: Ending) -> Bill {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.bill(ending),
            RequestStage::Relaying(response) => response.relaying.bill(ending),
            RequestStage::Unpaid | RequestStage::Settled(_) => Bill::NOTHING,
        }
    }

    /// Sets aside what a bill comes to beyond the hold, as far as that is elsewhere in a fleet.
    pub(super) async fn cover(&mut self, bill: &Bill) {
        match (&mut self.stage, &bill.settlement) {
            (RequestStage::Sending(sending), Some(bill)) => sending.admitted.cover(bill).await,
            (RequestStage::Relaying(response), Some(bill)) => response.relaying.cover(bill).await,
            _ => {}
        }
    }

    /// Notes what the upstreams may bill that the customer does not pay.
    fn note_losses(&self, bill: &Bill) {
        let (Some(key), Some(asked)) = (&self.key, &self.model) else { return };
        let last = self.tried_model().unwrap_or(asked);
        let retried = Some((LossCause::Retry, bill.retried));
        for (cause, amount) in bill.loss.into_iter().chain(retried) {
            // Tries that were followed by others began with the model that the request names.
            let model = if cause == LossCause::Retry { asked } else { last };
            if amount > Nanousd::ZERO {
                self.ledger.record_loss(Loss {
                    account: key.account,
                    key: key.id,
                    model: Arc::clone(&model.id),
                    upstream: self.upstream_name().to_owned(),
                    request: self.id,
                    cause,
                    amount,
                });
            }
        }
    }

    /// What the tries have cost the operator of a request that is about to be settled.
    fn costs(&mut self, bill: &Bill) -> Vec<TryCost> {
        match &mut self.stage {
            RequestStage::Sending(sending) => {
                let at = sending.tried_at();
                sending.admitted.costs(bill, at)
            }
            RequestStage::Relaying(response) => {
                let Response { relaying, candidate, .. } = &mut **response;
                relaying.costs(bill, &candidate.target, || sending::at(candidate))
            }
            RequestStage::Unpaid | RequestStage::Settled(_) => Vec::new(),
        }
    }

    /// Notes what a try has cost the operator, beside what was charged for an answer.
    fn note_cost(&self, one: TryCost, settled: &Settled) {
        let Some(key) = &self.key else { return };
        let charged = match one.kind {
            CostKind::Answer => settled.charged.checked_add(settled.owed).unwrap_or(Nanousd::MAX),
            CostKind::Unpaid | CostKind::Retry => Nanousd::ZERO,
        };
        let upstream: Arc<str> = one.at.target.upstream.name.as_str().into();
        if one.kind == CostKind::Answer {
            self.metrics.costed(&one.model, &upstream, charged, one.cost);
        }
        let (usage, source) = one.usage;
        self.ledger.record_cost(CallCost {
            account: key.account,
            key: key.id,
            model: one.model,
            upstream,
            credential: one.at.credential.into(),
            upstream_model: one.upstream_model.into(),
            request: self.id,
            kind: one.kind,
            usage,
            source,
            charged,
            cost: one.cost,
            at: UnixMs::now(),
        });
    }

    /// Ends the money's part of the request. Later calls return what the first one settled.
    pub(super) fn settle(&mut self, bill: Bill) -> Settled {
        self.note_losses(&bill);
        let costs = self.costs(&bill);
        let settlement = bill.settlement;
        let settled = match std::mem::replace(&mut self.stage, RequestStage::Unpaid) {
            RequestStage::Unpaid => Settled::NOTHING,
            RequestStage::Sending(sending) => sending.admitted.settle(settlement),
            RequestStage::Relaying(response) => response.relaying.settle(settlement),
            RequestStage::Settled(settled) => settled,
        };
        self.stage = RequestStage::Settled(settled);
        for cost in costs {
            self.note_cost(cost, &settled);
        }
        self.seat = None;
        if let Some(permit) = self.permit.take() {
            let usage = &settled.usage;
            permit.settle(usage.input_tokens_total().saturating_add(usage.total(Side::Output)));
        }
        settled
    }
}

impl Response {
    /// Notes that it did not end well.
    pub(super) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        sending::report(&mut self.candidate, self.began, outcome, metrics);
    }
}
