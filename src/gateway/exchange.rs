//! One request's state: what every hook knows, and the stage that it has reached.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use pingora::http::{RequestHeader, ResponseHeader};

use super::body::{HeldBody, Share};
use super::deadline::Deadline;
use super::envelope::Envelope;
use super::overload::Place;
use super::submit::Mark;
use crate::config::snapshot::{Model, Route, Snapshot, Target};
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::{Key, RequestId};
use crate::metrics::Metrics;
use crate::pipeline::{Admitted, Ending, Relaying, Settled, UpstreamRequest};
use crate::price::{Usage, UsageSource};
use crate::protocols::{Call, Framing};

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
    /// What to answer in the place of an upstream that cannot.
    pub(super) local_answer: Option<Bytes>,
    /// What went wrong, to be answered by `fail_to_proxy` or told to the log.
    pub(super) failure: Option<GatewayError>,
    pub(super) metrics: Arc<Metrics>,
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
    /// The targets still to try, the next one first.
    pub(super) targets: VecDeque<Target>,
    /// The try under way.
    pub(super) attempt: Option<Attempt>,
    /// Tries that ended because the upstream had closed an idle connection.
    pub(super) stale_tries: u8,
    /// Why the last try failed.
    pub(super) last_failure: Option<GatewayError>,
}

/// One try of one target.
pub(super) struct Attempt {
    pub(super) target: Target,
    pub(super) request: UpstreamRequest,
    pub(super) began: Instant,
    /// The body was handed to Pingora in this try.
    pub(super) body_emitted: bool,
}

/// A response that is being relayed.
pub(super) struct Response {
    pub(super) relaying: Relaying,
    pub(super) framing: Framing,
    pub(super) target: Target,
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
    /// The process is about to end.
    Stopping,
}

impl Exchange {
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        metrics: Arc<Metrics>,
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
            local_answer: None,
            failure: None,
            metrics,
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
                sending.attempt.as_ref().map_or("", |attempt| &attempt.target.upstream.name)
            }
            Stage::Relaying(response) => &response.target.upstream.name,
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
        let target = attempt?.target;
        let held = body.into_share();
        let response = Response { relaying, framing, target, held, bytes_passed: 0, cut: None };
        self.stage = Stage::Relaying(Box::new(response));
        match &mut self.stage {
            Stage::Relaying(response) => Some(response),
            _ => None,
        }
    }

    /// Ends the money's part of the request. Later calls return what the first one settled.
    pub(super) fn settle(&mut self, ending: Ending) -> Settled {
        let settled = match std::mem::replace(&mut self.stage, Stage::Unpaid) {
            Stage::Unpaid => Settled::NOTHING,
            Stage::Sending(sending) => sending.admitted.settle(ending),
            Stage::Relaying(response) => response.relaying.settle(ending),
            Stage::Settled(settled) => settled,
        };
        self.stage = Stage::Settled(settled);
        settled
    }
}

impl Sending {
    /// What to answer when no target is left.
    pub(super) fn give_up(&mut self) -> GatewayError {
        self.last_failure.take().unwrap_or_else(|| {
            let message = "No upstream could serve the request. Try again shortly.";
            GatewayError::new(ErrorKind::UpstreamUnavailable, message)
        })
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
