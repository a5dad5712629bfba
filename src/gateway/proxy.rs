//! The one [`ProxyHttp`]: every hook says what happens, in a few lines.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType, Result, RetryType};

use super::body::{self, BodyBudget};
use super::connection::Connections;
use super::deadline::Deadline;
use super::exchange::{Attempt, Exchange, Stage};
use super::hosted::Hosted;
use super::inward::Inward;
use super::overload::InFlight;
use super::receive::Received;
use super::transport::Transport;
use super::{
    collect, cors, deadline, framing, headers, kept_alive, peer, receive, relay, respond, submit,
};
use crate::balance::{Addresses, Balancer, Outcome};
use crate::config::ConfigHandle;
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::pipeline;
use crate::request_log::RequestLog;
use crate::tasks::Tasks;

/// The most tries that Pingora makes for one request. Its targets bound them; Pingora's own bound
/// must not be lower.
pub(super) const TRIES_MAX: usize = 64;

/// A connection that its upstream had closed while it was idle fails within a round trip. One that
/// fails later may have had the request.
const STALE_WITHIN: Duration = Duration::from_secs(1);
/// So many idle connections may turn out to be closed before the request is given up.
const STALE_TRIES_MAX: u8 = 3;

/// What the gateway works with.
#[derive(Clone)]
pub struct GatewayParts {
    /// The running configuration.
    pub config: Arc<ConfigHandle>,
    /// Accounts, keys and money.
    pub ledger: Arc<Ledger>,
    /// What Prometheus reads.
    pub metrics: Arc<Metrics>,
    /// What people read of requests that are over.
    pub requests: Arc<RequestLog>,
    /// Calls that are not relayed.
    pub outbound: Outbound,
    /// Work that outlives its request.
    pub tasks: Arc<Tasks>,
    /// How the targets are doing.
    pub balancer: Arc<Balancer>,
    /// How much everybody has used of their limits.
    pub limits: Arc<Limits>,
    /// When requests in flight must end.
    pub deadline: Arc<Deadline>,
    /// Services that answer below paths of their own.
    pub hosted: Vec<Hosted>,
    /// What is to lead to the gateway from inside the process.
    pub inward: Inward,
}

/// The proxy. What it keeps is shared by its clones: one for each listener.
#[derive(Clone)]
pub struct Gateway {
    pub(super) config: Arc<ConfigHandle>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) metrics: Arc<Metrics>,
    requests: Arc<RequestLog>,
    pub(super) bodies: Arc<BodyBudget>,
    pub(super) outbound: Outbound,
    pub(super) tasks: Arc<Tasks>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) balancer: Arc<Balancer>,
    pub(super) limits: Arc<Limits>,
    pub(super) hosted: Arc<[Hosted]>,
    deadline: Arc<Deadline>,
    addresses: Arc<Addresses>,
}

impl Gateway {
    /// A gateway over these parts.
    #[must_use]
    pub fn new(parts: GatewayParts) -> Self {
        let GatewayParts {
            config,
            ledger,
            metrics,
            requests,
            outbound,
            tasks,
            balancer,
            limits,
            deadline,
            hosted,
            inward,
        } = parts;
        let bodies = BodyBudget::new(Arc::clone(&metrics));
        let inner = Self {
            config,
            ledger,
            metrics,
            requests,
            bodies,
            outbound,
            tasks,
            in_flight: Arc::default(),
            balancer,
            limits,
            hosted: Arc::default(),
            deadline: Arc::clone(&deadline),
            addresses: Arc::default(),
        };
        inward.lead_to(inner.clone(), deadline);
        Self { hosted: hosted.into(), ..inner }
    }

    /// The gateway behind a listener. `h2c` says whether HTTP/2 is spoken without TLS; `open` counts
    /// the listener's connections.
    #[must_use]
    pub fn behind(
        self,
        transport: Transport,
        h2c: bool,
        open: Arc<AtomicUsize>,
    ) -> Connections<Self> {
        let conf = ServerConf { max_retries: TRIES_MAX, ..ServerConf::default() };
        let (deadline, metrics) = (Arc::clone(&self.deadline), Arc::clone(&self.metrics));
        Connections::new(&Arc::new(conf), self, transport, h2c, respond::refusal, open)
            .tied_to(deadline, metrics)
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        self.metrics.in_flight_begin();
        let (metrics, deadline) = (Arc::clone(&self.metrics), Arc::clone(&self.deadline));
        Exchange::new(self.config.load(), metrics, Arc::clone(&self.requests), deadline)
    }

    /// None: what Pingora would add, compression, is not for streams that are metered.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<()> {
        exchange.route_to(session.req_header());
        if self.deadline.is_near() {
            session.set_keepalive(None);
        }
        let limits = &exchange.snapshot.limits;
        session.set_read_timeout(Some(limits.read_timeout));
        session.set_write_timeout(Some(limits.write_timeout));
        match session.as_http2() {
            // The heads of HTTP/1.1 were checked before Pingora read them.
            None => Ok(()),
            Some(_) => framing::check_fields(&session.req_header().headers)
                .map_err(|error| exchange.fail(error)),
        }
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        match receive::receive(self, session, exchange).await {
            Ok(Received::Answered) => Ok(true),
            Ok(Received::Paid) if exchange.is_submitted() => {
                Box::pin(submit::answer(self, session, exchange)).await.map(|()| true)
            }
            Ok(Received::Paid) if exchange.is_collected() => {
                // It is large, and most requests do without it.
                let answered = Box::pin(collect::answer(self, session, exchange));
                let answered = self.deadline.or_done(answered).await;
                answered.unwrap_or_else(|| Err(exchange.stopped(session))).map(|()| true)
            }
            Ok(Received::Paid) => match exchange.keeps_alive() {
                Some(interval) => {
                    let answered = Box::pin(kept_alive::answer(self, session, exchange, interval));
                    let answered = self.deadline.or_done(answered).await;
                    answered.unwrap_or_else(|| Err(exchange.stopped(session))).map(|()| true)
                }
                None => Ok(false),
            },
            Err(error) => Err(exchange.fail(error)),
        }
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Box<HttpPeer>> {
        let budget = exchange.snapshot.limits.body_memory_bytes_max;
        let failure = 'next: {
            let Stage::Sending(sending) = &mut exchange.stage else {
                break 'next GatewayError::new(
                    ErrorKind::Internal,
                    "The request was not admitted.",
                );
            };
            while let Some(mut candidate) = sending.next(&self.metrics) {
                let upstream = &candidate.target.upstream;
                let found = self.addresses.find(&upstream.host, upstream.port).await;
                let request = pipeline::rewrite(
                    &sending.admitted,
                    &candidate,
                    session.req_header().uri.query(),
                    &sending.body.bytes,
                );
                match (found, request) {
                    (Ok(_), Some(request)) if !sending.body.share_with(&request.body, budget) => {
                        break 'next body::budget_used_up();
                    }
                    (Ok(address), Some(request)) => {
                        let peer = peer::peer(upstream, address);
                        sending.attempt = Some(Attempt::begin(candidate, request));
                        return Ok(Box::new(peer));
                    }
                    (Err(error), _) => {
                        candidate.report(Outcome::Unreachable, Instant::now());
                        sending.last_failure = Some(peer::unresolved(&error));
                    }
                    (Ok(_), None) => {}
                }
            }
            sending.give_up()
        };
        Err(exchange.fail(failure))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        header: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let id = exchange.id;
        let Some(attempt) = exchange.attempt() else { return Ok(()) };
        attempt.body_emitted = false;
        headers::to_upstream(header, &attempt.request, id)
    }

    /// Puts the whole rewritten body in the place of what Pingora replays, once a try.
    async fn request_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let Some(attempt) = exchange.attempt() else { return Ok(()) };
        *body = if !std::mem::replace(&mut attempt.body_emitted, true) {
            Some(attempt.request.body.clone())
        } else if end_of_stream {
            None
        } else {
            // `None` would end the upstream's body here.
            Some(Bytes::new())
        };
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _: &mut Session,
        header: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        relay::accept(header, exchange)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        header: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        relay::begin(header, exchange).await?;
        cors::allow(header, session.req_header())
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        exchange: &mut Exchange,
    ) -> Result<Option<Duration>> {
        relay::piece(session, body, end_of_stream, exchange).map(|()| None)
    }

    /// Nothing reached the target: the next one may be tried.
    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        exchange: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if let Stage::Sending(sending) = &mut exchange.stage {
            sending.report(peer::outcome(&error), &self.metrics);
            sending.last_failure = Some(peer::failed(&error));
            // With no target left, `upstream_peer` says so.
            error.set_retry(true);
        }
        error
    }

    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        exchange: &mut Exchange,
        connection_reused: bool,
    ) -> Box<Error> {
        let retry = !respond::begun(session) && exchange.may_retry(&error, connection_reused);
        error.set_retry(retry);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        exchange: &mut Exchange,
    ) -> FailToProxy {
        relay::fail(session, error, exchange).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, exchange: &mut Exchange) {
        let bill = exchange.bill(exchange.ending(session, error));
        exchange.cover(&bill).await;
        exchange.finish(session, bill);
    }

    /// Failures are in the access log, with the request's id.
    fn suppress_error_log(&self, _: &Session, _: &Exchange, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Exchange,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

impl Exchange {
    /// Notes what to answer, and stops Pingora.
    pub(super) fn fail(&mut self, error: GatewayError) -> Box<Error> {
        let error = self.envelope.in_its_words(error);
        let (status, _, _) = respond::wire(error.kind);
        self.failure = Some(error);
        self.leave();
        Error::new(ErrorType::HTTPStatus(status))
    }

    /// Notes that the deadline has cut it, and stops Pingora.
    fn stopped(&mut self, session: &Session) -> Box<Error> {
        self.fail(deadline::stopping(respond::begun(session)))
    }

    /// Whether another try is safe: never for work that a target may have begun.
    fn may_retry(&mut self, error: &Error, connection_reused: bool) -> bool {
        if matches!(error.retry, RetryType::Decided(true)) {
            // `relay::accept` has seen a refusal, and a target is left.
            return true;
        }
        let Stage::Sending(sending) = &mut self.stage else { return false };
        if *error.esource() != ErrorSource::Upstream {
            return false;
        }
        sending.last_failure = Some(peer::failed(error));
        let unanswered = matches!(
            error.etype(),
            ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError
        );
        let stale = |attempt: &mut Attempt| {
            connection_reused && unanswered && attempt.began.elapsed() < STALE_WITHIN
        };
        let may_be_stale = sending.stale_tries < STALE_TRIES_MAX;
        let Some(attempt) = sending.attempt.take_if(|attempt| may_be_stale && stale(attempt))
        else {
            sending.report(peer::outcome(error), &self.metrics);
            return false;
        };
        sending.stale_tries += 1;
        // The upstream closed an idle connection while the request was on its way: try it again,
        // on what will sooner or later be a new one.
        sending.candidates.again(&attempt.candidate);
        true
    }
}
