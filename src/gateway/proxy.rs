//! The one [`ProxyHttp`]: every hook says what happens, in a few lines.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use pingora::http::RequestHeader;
use pingora::modules::http::HttpModules;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use crate::balance::Balancer;
use crate::clock::UnixMs;
use crate::config::ConfigHandle;
use crate::gateway::answer::{relay, respond};
use crate::gateway::call;
use crate::gateway::call::connectors::{Connectors, NO_ROOTS};
use crate::gateway::call::count::TokenCounts;
use crate::gateway::call::slots::UpstreamSlots;
use crate::gateway::call::upstream::Upstreams;
use crate::gateway::exchange::Exchange;
use crate::gateway::listen::connection::Connections;
use crate::gateway::listen::deadline::Deadline;
use crate::gateway::listen::descriptors::Descriptors;
use crate::gateway::listen::framing;
use crate::gateway::listen::http1;
use crate::gateway::listen::open::ConnectionTable;
use crate::gateway::listen::places::Admission;
use crate::gateway::listen::transport::Transport;
use crate::gateway::local::hosted::Hosted;
use crate::gateway::local::inward::Inward;
use crate::gateway::receive::budget::BodyBudget;
use crate::gateway::receive::offload::Offload;
use crate::gateway::receive::{self, Received, admission};
use crate::holds::HoldQueue;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::pipeline;
use crate::request_log::RequestLog;
use crate::tasks::Tasks;

/// What the gateway works with.
#[derive(Clone)]
pub struct GatewayParts {
    /// The configuration that is in force.
    pub config: Arc<ConfigHandle>,
    /// Accounts, keys and money.
    pub ledger: Arc<Ledger>,
    /// The metrics that Prometheus reads.
    pub metrics: Arc<Metrics>,
    /// What people read of requests that are over.
    pub requests: Arc<RequestLog>,
    /// Where connections for calls that are relayed come from.
    pub connectors: Arc<Connectors>,
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
    /// Who gets how many file descriptors.
    pub descriptors: Descriptors,
    /// Customers' connections that are open.
    pub open: Arc<AtomicUsize>,
}

/// The proxy. What it keeps is shared by its clones: one for each listener.
#[derive(Clone)]
pub struct Gateway {
    pub(super) config: Arc<ConfigHandle>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) metrics: Arc<Metrics>,
    requests: Arc<RequestLog>,
    pub(super) bodies: Arc<BodyBudget>,
    pub(super) offload: Arc<Offload>,
    pub(super) outbound: Outbound,
    pub(super) tasks: Arc<Tasks>,
    pub(super) places: Arc<Admission>,
    /// The budget of calls to upstreams.
    pub(super) slots: Arc<UpstreamSlots>,
    pub(super) balancer: Arc<Balancer>,
    pub(super) limits: Arc<Limits>,
    /// Where calls of accounts with little money are counted, and wait.
    pub(super) desk: Arc<HoldQueue>,
    /// Counts of tokens by providers.
    pub(super) counts: Arc<TokenCounts>,
    pub(super) hosted: Arc<[Hosted]>,
    /// The way to the gateway from a connection that has one request after the other; it leads nowhere
    /// for those that come that way.
    pub(super) inward: Inward,
    pub(super) deadline: Arc<Deadline>,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) open: Arc<ConnectionTable>,
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
            connectors,
            outbound,
            tasks,
            balancer,
            limits,
            deadline,
            hosted,
            inward,
            descriptors,
            open,
        } = parts;
        let bodies = BodyBudget::new(Arc::clone(&metrics));
        let places = Admission::new(Arc::clone(&limits), Arc::clone(&metrics));
        let slots = Arc::new(UpstreamSlots::new(Arc::clone(&metrics)));
        let open =
            ConnectionTable::new(descriptors, open, Arc::clone(&config), Arc::clone(&metrics));
        let inner = Self {
            config,
            ledger,
            metrics,
            requests,
            bodies,
            offload: Arc::new(Offload::new()),
            outbound,
            tasks,
            places,
            slots,
            balancer,
            limits,
            desk: Arc::default(),
            counts: Arc::new(TokenCounts::new()),
            hosted: Arc::default(),
            inward: Inward::default(),
            deadline: Arc::clone(&deadline),
            upstreams: Arc::new(Upstreams::new(connectors, descriptors.idle_upstream)),
            open: Arc::new(open),
        };
        inward.lead_to(inner.clone(), deadline);
        Self { hosted: hosted.into(), inward, ..inner }
    }

    /// The gateway behind a listener. `h2c` says whether HTTP/2 is spoken without TLS.
    #[must_use]
    pub fn behind(self, transport: Transport, h2c: bool) -> Connections<Self> {
        let conf = server_conf();
        let (deadline, open) = (Arc::clone(&self.deadline), Arc::clone(&self.open));
        let ledger = Arc::clone(&self.ledger);
        let is_known = Arc::new(move |header: &RequestHeader| {
            pipeline::authenticate(&ledger, &header.headers, None, UnixMs::now()).is_ok()
        });
        Connections::new(&Arc::new(conf), self, transport, h2c, respond::refusal, open)
            .tied_to(deadline, is_known)
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        self.metrics.in_flight_begin();
        let (metrics, deadline) = (Arc::clone(&self.metrics), Arc::clone(&self.deadline));
        let (ledger, requests) = (Arc::clone(&self.ledger), Arc::clone(&self.requests));
        Exchange::new(self.config.load(), metrics, ledger, requests, deadline)
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
            http1::close_behind(session);
        }
        admission::hurry(session, exchange);
        match session.as_http2() {
            // The heads of HTTP/1.1 were checked before Pingora read them.
            None => Ok(()),
            Some(_) => framing::check_fields(&session.req_header().headers)
                .map_err(|error| self.refuse(session, exchange, error)),
        }
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        match receive::receive(self, session, exchange).await {
            Ok(Received::Answered) => Ok(true),
            Ok(Received::Paid) => call::answer(self, session, exchange).await.map(|()| true),
            Err(error) => Err(self.refuse(session, exchange, error)),
        }
    }

    /// Pingora never asks for one: `request_filter` answers every request, and asks upstreams itself.
    async fn upstream_peer(&self, _: &mut Session, _: &mut Exchange) -> Result<Box<HttpPeer>> {
        Err(Error::explain(ErrorType::InternalError, "Pingora's own loop is not used"))
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        exchange: &mut Exchange,
    ) -> FailToProxy {
        if exchange.orphan.is_some() {
            // Nobody listens, or the customer has been told.
            return FailToProxy { error_code: 0, can_reuse_downstream: false };
        }
        relay::fail(session, error, exchange).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, exchange: &mut Exchange) {
        let bill = exchange.bill(exchange.ending(error));
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

/// How Pingora is set up. It makes connections to upstreams for its own loop, which is not used: that
/// needs no root certificates.
pub(super) fn server_conf() -> ServerConf {
    ServerConf { ca_file: Some(NO_ROOTS.to_owned()), ..ServerConf::default() }
}
