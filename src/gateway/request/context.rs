//! The state of a request: its route, its slots, and the stage that it has reached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora::http::RequestHeader;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::config::snapshot::{Model, Route, Snapshot, Target};
use crate::error::GatewayError;
use crate::gateway::listen::deadline::{self, Deadline};
use crate::gateway::listen::request_slots::RequestSlot;
use crate::gateway::request::content_path::{self, PathParams};
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::gateway_headers::GatewayHeaders;
use crate::gateway::request::json_array::ArrayWriter;
use crate::gateway::request::response::{ClientResponse, Response};
use crate::gateway::request::sending::{Attempt, Sending};
use crate::gateway::request::upstream_slots::UpstreamSlot;
use crate::gateway::request::{status, upstream_error};
use crate::gateway::wire::head;
use crate::holds::RunningCall;
use crate::ledger::{Key, Ledger, RequestId};
use crate::limits::{InUseGuard, Permit, RateLimitStatus};
use crate::metrics::Metrics;
use crate::money::Nanousd;
use crate::pipeline::SettlementOutcome;
use crate::protocols::Delivery;
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
    pub(crate) slot: Option<RequestSlot>,
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
    /// A response is being relayed.
    Relaying(Box<Response>),
    /// The request was settled, with this result.
    Settled(SettlementOutcome),
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
        // Pingora carries a status only; `fail_to_proxy` finds the error itself in the context.
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

    /// The target that answers, or was tried last.
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

    /// The fallback model that answers instead of the requested one.
    fn fallback(&self) -> Option<&Arc<Model>> {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.fallback(),
            RequestStage::Relaying(response) => response.relaying.admitted().fallback(),
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        }
    }

    /// The current try, if any.
    pub(crate) fn attempt(&mut self) -> Option<&mut Attempt> {
        match &mut self.stage {
            RequestStage::Sending(sending) => sending.attempt.as_mut(),
            _ => None,
        }
    }

    /// The headers of every response about the request itself.
    pub(crate) fn gateway_headers(&self) -> GatewayHeaders {
        let limited = self.response.failure.as_ref().and_then(|failure| failure.limited.as_ref());
        let standing = match (limited, &self.admission.permit) {
            // A request that a limit refused has no permit, and its client needs the figures most.
            (Some(limited), _) => limited.standing,
            (None, Some(permit)) => permit.standing(),
            (None, None) => RateLimitStatus::default(),
        };
        // An error of the gateway's own is no model's answer.
        let fallback = self.fallback().filter(|_| self.response.failure.is_none());
        let fallback = fallback.map(|model| Arc::clone(&model.id));
        GatewayHeaders { id: self.id, standing, fallback, clamped: self.clamped() }
    }

    /// The output limit, in tokens for each choice, to which the request was lowered.
    pub(crate) fn clamped(&self) -> Option<u64> {
        match &self.stage {
            RequestStage::Sending(sending) => sending.admitted.clamped,
            RequestStage::Relaying(response) => response.relaying.admitted().clamped,
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        }
    }

    /// An answer with a status of success came to nothing: no other target is asked.
    pub(crate) fn fail_answer(&mut self, failure: CallFailure) {
        let (delivery, metrics) = (self.delivery(), Arc::clone(&self.services.metrics));
        if let RequestStage::Sending(sending) = &mut self.stage {
            sending.fail_try(failure, delivery, &metrics);
        }
    }

    /// Error for a response with a status of success that cannot be read. Its cost is unknown.
    pub(crate) fn unread(&mut self, cause: &'static str) -> Box<Error> {
        self.fail_answer(CallFailure::Unreadable);
        self.fail(upstream_error::unreadable(cause))
    }

    /// The last of the answer is about to be sent: the customer may come with another request.
    pub(crate) fn release_slots(&mut self) {
        if let Some(permit) = &mut self.admission.permit {
            permit.leave();
        }
        self.admission.upstream_slot = None;
    }
}
