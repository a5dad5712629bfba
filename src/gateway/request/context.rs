//! One request's state: what every hook knows, and the stage that it has reached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::balance::{Candidate, CredentialScan, Outcome};
use crate::config::snapshot::{Model, Route, Snapshot, Target};
use crate::error::GatewayError;
use crate::gateway::listen::deadline::{self, Deadline};
use crate::gateway::listen::places::AdmissionSlot;
use crate::gateway::request::array::ArrayWriter;
use crate::gateway::request::content_path::{self, PathParams};
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::orphan::Orphan;
use crate::gateway::request::progress::Progress;
use crate::gateway::request::sending::{self, Attempt, Sending};
use crate::gateway::request::slots::UpstreamSlot;
use crate::gateway::request::stamp::Stamp;
use crate::gateway::request::{peer, status};
use crate::gateway::wire::head;
use crate::gateway::wire::memory::budget::BudgetShare;
use crate::holds::RunningCall;
use crate::ledger::{Key, Ledger, RequestId, TaskId};
use crate::limits::{InUseGuard, Permit, RateLimitStatus};
use crate::metrics::Metrics;
use crate::money::Nanousd;
use crate::pipeline::{AdmittedRequest, Relaying, SettlementOutcome};
use crate::price::{Usage, UsageSource};
use crate::protocols::{Delivery, Framing};
use crate::request_log::RequestLog;

/// The context of one request: Pingora's `CTX`.
pub struct RequestContext {
    pub(crate) id: RequestId,
    pub(crate) started: Instant,
    /// The configuration of this request, whatever is reloaded meanwhile.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) routing: Routing,
    pub(crate) key: Option<Arc<Key>>,
    pub(crate) model: Option<Arc<Model>>,
    pub(crate) stream: bool,
    pub(crate) request_bytes: u64,
    pub(crate) stage: RequestStage,
    pub(crate) admission: AdmissionState,
    pub(crate) response: ClientResponse,
    pub(crate) services: RequestServices,
}

/// The route of a request, and the form of its response and errors that follows from it.
#[derive(Default)]
pub(crate) struct Routing {
    pub(crate) route: Option<Arc<Route>>,
    /// The model and method in the path, for operations of Google's API.
    pub(crate) path_params: Option<Arc<PathParams>>,
    /// Writer of a response as one JSON array, for Google's clients that ask for one.
    pub(crate) array: Option<ArrayWriter>,
    /// The form of errors for this client.
    pub(crate) envelope: Envelope,
    /// The path as logs name it, for a request that was answered without an upstream.
    pub(crate) local_route: &'static str,
}

/// Slots and permits of a request, given back on drop.
pub(crate) struct AdmissionState {
    /// Slot among the requests in flight.
    pub(crate) slot: Option<AdmissionSlot>,
    /// Slot among the calls to upstreams.
    pub(crate) upstream_slot: Option<UpstreamSlot>,
    /// Slot among the submits that wait for the end of their task.
    pub(crate) waiting: Option<InUseGuard>,
    /// Permit of the rate limits, until the request is settled.
    pub(crate) permit: Option<Permit>,
    /// Running call among the parallel calls of an account with little money, until the request is settled.
    pub(crate) seat: Option<RunningCall>,
    /// The request counts in the metric of requests in flight.
    is_in_flight: bool,
    /// The request was shed: it has no slot, and its response little time.
    pub(crate) is_shed: bool,
}

/// The response to the client, as far as it has come.
#[derive(Default)]
pub(crate) struct ClientResponse {
    /// Time from the request to the first byte of the response.
    pub(crate) first_byte: Option<Duration>,
    /// Response in the place of an upstream that cannot give one.
    pub(crate) local_answer: Option<Bytes>,
    /// The failure for `fail_to_proxy` and the log.
    pub(crate) failure: Option<GatewayError>,
    /// The id that the upstream gave the request that it failed or refused.
    pub(crate) upstream_request_id: Option<String>,
    /// The task that the request has started.
    pub(crate) task: Option<TaskId>,
    /// Present while the upstream's response is read on after the client has disconnected.
    pub(crate) orphan: Option<Orphan>,
}

/// The services that a request reports to.
pub(crate) struct RequestServices {
    pub(crate) metrics: Arc<Metrics>,
    /// Ledger for losses and costs of the operator.
    pub(crate) ledger: Arc<Ledger>,
    /// Log of finished requests.
    pub(crate) requests: Arc<RequestLog>,
    /// Deadline of the process.
    pub(crate) deadline: Arc<Deadline>,
}

/// Progress of a request. Each stage is made from the one before.
pub(crate) enum RequestStage {
    /// Nothing is promised yet, or it was answered without an upstream.
    Unpaid,
    /// The money is held; targets are being tried.
    Sending(Box<Sending>),
    /// A response is on its way to the customer.
    Relaying(Box<Response>),
    /// The request was settled, with this result.
    Settled(SettlementOutcome),
}

/// A response that is being relayed.
pub(crate) struct Response {
    pub(crate) relaying: Relaying,
    pub(crate) framing: Framing,
    pub(crate) candidate: Candidate,
    pub(crate) began: Instant,
    /// Memory of the part that is held back, in the budget of bodies.
    pub(crate) held: BudgetShare,
    /// The closing event was passed, for this reason; whatever still comes is not the customer's.
    pub(crate) cut: Option<CutReason>,
    /// A piece that no hold on disk pays for yet, and whether it is the last.
    pub(crate) uncovered: Option<(Bytes, bool)>,
    /// Its body has shown that it is what its head says.
    pub(crate) is_framing_confirmed: bool,
    /// Looks for the operator's credential in what the customer gets.
    pub(crate) scan: CredentialScan,
}

/// Reason for ending a response before its upstream did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutReason {
    /// Hold and balance are used up.
    Exhausted,
    /// It took longer than answers may.
    Overdue,
    /// The process is about to end.
    Stopping,
    /// It held the operator's credential.
    Withheld,
}

impl RequestContext {
    /// The context of a request that [`Metrics::in_flight_begin`] has counted.
    pub(crate) fn new(snapshot: Arc<Snapshot>, services: RequestServices) -> Self {
        Self {
            id: RequestId::new(),
            started: Instant::now(),
            snapshot,
            routing: Routing::default(),
            key: None,
            model: None,
            stream: false,
            request_bytes: 0,
            admission: AdmissionState {
                slot: None,
                upstream_slot: None,
                waiting: None,
                permit: None,
                seat: None,
                is_in_flight: true,
                is_shed: false,
            },
            stage: RequestStage::Unpaid,
            response: ClientResponse::default(),
            services,
        }
    }

    /// True if the account has money available.
    pub(crate) fn is_funded(&self) -> bool {
        let available = |key: &Arc<Key>| self.services.ledger.available_and_held(key.account).0;
        self.key.as_ref().is_none_or(|key| available(key) > Nanousd::ZERO)
    }

    /// Counts the request no longer as in flight: nothing of it is left to be served.
    pub(crate) fn end_in_flight(&mut self) {
        if std::mem::take(&mut self.admission.is_in_flight) {
            self.services.metrics.in_flight_end();
        }
    }

    /// Finds the route that the request asks for, and how its client reads errors.
    pub(crate) fn route_to(&mut self, head: &RequestHeader) {
        let path = head.uri.path();
        let mut routes = self.snapshot.routes.iter();
        let is_match =
            |route: &&Arc<Route>| route.path == path && !route.operation.names_model_in_path();
        self.routing.route = routes.find(is_match).cloned();
        if self.routing.route.is_none()
            && let Some((route, params)) =
                content_path::find(&self.snapshot, path, head.uri.query())
        {
            self.routing.route = Some(route);
            self.routing.array = params.is_array.then(ArrayWriter::default);
            self.routing.path_params = Some(Arc::new(params));
        }
        let operation = self.routing.route.as_ref().map(|route| route.operation);
        let is_googles = || content_path::is_googles(&self.snapshot, &head.method, path);
        self.routing.envelope = match self.routing.route.is_none() && is_googles() {
            true => Envelope::Google,
            false => Envelope::for_request(operation, &head.headers),
        };
    }

    /// Delivery of the response.
    pub(crate) fn delivery(&self) -> Delivery {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.delivery(),
            _ if self.stream => Delivery::Stream,
            _ => Delivery::Relay,
        }
    }

    /// Interval of keep-alive comments; `None` without them.
    pub(crate) fn keepalive_interval(&self) -> Option<Duration> {
        // An array has no comments.
        self.snapshot.limits.sse_keepalive.filter(|_| self.stream && self.routing.array.is_none())
    }

    /// True if the events of the response are sent as the elements of a JSON array.
    pub(crate) fn is_array(&self) -> bool {
        let is_of_events = |response: &Response| response.framing == Framing::Sse;
        self.routing.array.is_some()
            && matches!(&self.stage, RequestStage::Relaying(response) if is_of_events(response))
    }

    /// A piece of the answer's body as it is sent, and whether that is its end.
    pub(crate) fn as_sent(&mut self, piece: Bytes, is_end: bool) -> Bytes {
        match (self.is_array(), &mut self.routing.array) {
            (true, Some(array)) => array.write(&piece, is_end),
            _ => piece,
        }
    }

    /// The request while targets are tried.
    ///
    /// # Errors
    /// It is not admitted, or is answered already: that is the gateway's fault.
    pub(crate) fn sending(&mut self) -> Result<&mut Sending> {
        match &mut self.stage {
            RequestStage::Sending(sending) => Ok(sending),
            _ => Err(Error::explain(ErrorType::InternalError, "no target is being tried")),
        }
    }

    /// Notes what to answer, and ends the request with the error that says so.
    pub(crate) fn fail(&mut self, error: GatewayError) -> Box<Error> {
        let error = self.routing.envelope.in_its_words(error);
        let (status, _, _) = status::wire(error.kind);
        self.response.failure = Some(error);
        self.release_slots();
        Error::new(ErrorType::HTTPStatus(status))
    }

    /// Notes that the deadline of the process has cut it.
    pub(crate) fn stopped(&mut self, session: &Session) -> Box<Error> {
        self.fail(deadline::stopping(head::begun(session)))
    }

    /// True if money is held for the request.
    pub(crate) fn is_paid(&self) -> bool {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.payment.is_held(),
            RequestStage::Relaying(response) => response.relaying.is_paid(),
            RequestStage::Unpaid | RequestStage::Settled(_) => false,
        }
    }

    /// The target that was tried last, or answers now.
    pub(crate) fn tried_target(&self) -> Option<&Arc<Target>> {
        match &self.stage {
            RequestStage::Sending(sending) => {
                sending.attempt.as_ref().map(|attempt| &attempt.candidate.target)
            }
            RequestStage::Relaying(response) => Some(&response.candidate.target),
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        }
    }

    /// The name of the upstream that was tried last, or answers now.
    pub(crate) fn upstream_name(&self) -> &str {
        self.tried_target().map_or("", |target| &target.upstream.name)
    }

    /// The model whose target was tried last, or answers now: the one that the request names, or one of
    /// its fallbacks.
    pub(crate) fn tried_model(&self) -> Option<&Arc<Model>> {
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
    pub(crate) fn attempt(&mut self) -> Option<&mut Attempt> {
        match &mut self.stage {
            RequestStage::Sending(sending) => sending.attempt.as_mut(),
            _ => None,
        }
    }

    /// Moves from sending to relaying: the target has answered well. The request body is let go.
    pub(crate) fn begin_relaying(&mut self, framing: Framing) -> Option<&mut Response> {
        self.begin(framing, |admitted| Relaying::new(admitted, framing))
    }

    /// Moves from sending to relaying an answer of which everything is known.
    pub(crate) fn begin_collected(&mut self, framing: Framing, usage: Usage, source: UsageSource) {
        self.begin(framing, |admitted| Relaying::with_usage(admitted, usage, source));
    }

    /// All of an answer of which everything is known has been sent, or is about to be.
    pub(crate) fn finish_collected(&mut self) {
        self.release_slots();
        if let RequestStage::Relaying(response) = &mut self.stage {
            // Such an answer has nothing left behind its end.
            drop(response.relaying.finish());
        }
    }

    fn begin(
        &mut self,
        framing: Framing,
        relaying: impl FnOnce(Box<AdmittedRequest>) -> Relaying,
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
        let (cut, uncovered, is_framing_confirmed) = (None, None, false);
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
            is_framing_confirmed,
            scan,
        };
        self.stage = RequestStage::Relaying(Box::new(response));
        match &mut self.stage {
            RequestStage::Relaying(response) => Some(response),
            _ => None,
        }
    }

    /// The headers of every response about the request itself.
    pub(crate) fn stamp(&self) -> Stamp {
        let limited = self.response.failure.as_ref().and_then(|failure| failure.limited.as_ref());
        let standing = match (limited, &self.admission.permit) {
            (Some(limited), _) => limited.standing,
            (None, Some(permit)) => permit.standing(),
            (None, None) => RateLimitStatus::default(),
        };
        // An error of the gateway's own is no model's answer.
        let fallback = self.fallback().filter(|_| self.response.failure.is_none());
        let fallback = fallback.map(|model| Arc::clone(&model.id));
        Stamp { id: self.id, standing, fallback, clamped: self.clamped() }
    }

    /// The output limit, in tokens for each choice, to which the request was lowered.
    pub(crate) fn clamped(&self) -> Option<u64> {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.clamped,
            RequestStage::Relaying(response) => response.relaying.admitted().clamped,
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        }
    }

    /// True once a stream has come to its last event.
    pub(crate) fn is_whole_stream(&self) -> bool {
        matches!(&self.stage, RequestStage::Relaying(response) if response.framing == Framing::Sse)
            && self.is_whole()
    }

    /// True if the response is a document that is rewritten when all of it has arrived.
    pub(crate) fn rewrites_document(&self) -> bool {
        let RequestStage::Relaying(response) = &self.stage else { return false };
        response.framing == Framing::Json && response.relaying.changes_length()
    }

    /// True if the response was cut, or a piece waits for the hold that pays for it.
    pub(crate) fn is_held_up(&self) -> bool {
        let is_held_up =
            |response: &Response| response.cut.is_some() || response.uncovered.is_some();
        matches!(&self.stage, RequestStage::Relaying(response) if is_held_up(response))
    }

    /// True if the response was ended because it contained the operator's credential. None of the rest is
    /// read.
    pub(crate) fn is_withheld(&self) -> bool {
        let is_withheld = |response: &Response| response.cut == Some(CutReason::Withheld);
        matches!(&self.stage, RequestStage::Relaying(response) if is_withheld(response))
    }

    /// True if a piece of the response waits for the hold that pays for it.
    pub(crate) fn has_uncovered(&self) -> bool {
        matches!(&self.stage, RequestStage::Relaying(response) if response.uncovered.is_some())
    }

    /// An answer with a status of success came to nothing: no other target is asked.
    pub(crate) fn fail_answer(&mut self, failure: CallFailure) {
        let (delivery, metrics) = (self.delivery(), Arc::clone(&self.services.metrics));
        if let RequestStage::Sending(sending) = &mut self.stage {
            sending.fail_try(failure, delivery, &metrics);
        }
    }

    /// The upstream's answer says that all is well, and cannot be read. What it may bill is not known.
    pub(crate) fn unread(&mut self, cause: &'static str) -> Box<Error> {
        self.fail_answer(CallFailure::Unreadable);
        self.fail(peer::unreadable(cause))
    }

    /// True once everything has come that the client waits for: clients stop reading at a stream's last
    /// event.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(&self.stage, RequestStage::Relaying(response) if response.relaying.is_complete())
    }

    /// The last of the answer is about to be sent: the customer may come with another request.
    pub(crate) fn release_slots(&mut self) {
        if let Some(permit) = &mut self.admission.permit {
            permit.leave();
        }
        self.admission.upstream_slot = None;
    }

    /// Nobody waits for the answer any more. Whether the upstream is read on all the same: where it
    /// has the request, what it does costs money, and may cost what nobody has seen.
    pub(crate) fn read_on(&mut self) -> bool {
        if self.response.orphan.is_some() {
            return true;
        }
        let candidate = match &self.stage {
            RequestStage::Sending(sending) => {
                let admitted = &sending.admitted;
                let is_cut = admitted.call.is_all_shown() && admitted.call.streams();
                let attempt = sending.attempt.as_ref();
                let is_pending = |progress| matches!(progress, Progress::Sent | Progress::Silent);
                let attempt = attempt.filter(|attempt| is_pending(attempt.progress));
                attempt.filter(|_| !is_cut && admitted.payment.is_held()).map(|one| &one.candidate)
            }
            RequestStage::Relaying(response) => {
                let relaying = &response.relaying;
                let is_cut = relaying.is_all_shown() && response.framing == Framing::Sse;
                let reads_on = relaying.is_paid() && !is_cut && !relaying.is_complete();
                reads_on.then_some(&response.candidate)
            }
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        };
        let Some((candidate, model)) = candidate.zip(self.tried_model()) else { return false };
        let rules = model.on_disconnect;
        let total = candidate.target.upstream.timeouts.total;
        let until = (Instant::now() + rules.time).min(self.started + total).into();
        if let Some(permit) = &mut self.admission.permit {
            permit.orphan();
        }
        self.response.orphan =
            Some(Orphan::new(candidate, until, rules.bytes, Arc::clone(&self.services.metrics)));
        true
    }
}

impl Response {
    /// Notes that it did not end well.
    pub(crate) fn report(&mut self, outcome: Outcome, metrics: &Metrics) {
        sending::report(&mut self.candidate, self.began, outcome, metrics);
    }
}
