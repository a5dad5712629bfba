//! The gateway: what all of its requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::balance::Balancer;
use crate::config::ConfigHandle;
use crate::gateway::listen::connection_table::ConnectionTable;
use crate::gateway::listen::deadline::Deadline;
use crate::gateway::listen::descriptors::Descriptors;
use crate::gateway::listen::loopback::LoopbackClient;
use crate::gateway::listen::request_slots::RequestSlots;
use crate::gateway::request::hosted::HostedService;
use crate::gateway::request::upstream_slots::UpstreamSlots;
use crate::gateway::upstream::client::UpstreamPool;
use crate::gateway::upstream::connectors::Connectors;
use crate::gateway::upstream::token_counts::TokenCounts;
use crate::gateway::wire::memory::budget::BodyBudget;
use crate::gateway::wire::offload::Offload;
use crate::holds::HoldQueue;
use crate::ledger::Ledger;
use crate::limits::Limiter;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::request_log::RequestLog;
use crate::tasks::Tasks;

/// Services of a gateway.
#[derive(Clone)]
pub struct GatewayParts {
    /// The active configuration.
    pub config: Arc<ConfigHandle>,
    /// Accounts, keys and money.
    pub ledger: Arc<Ledger>,
    /// The metrics that Prometheus reads.
    pub metrics: Arc<Metrics>,
    /// Log of finished requests.
    pub requests: Arc<RequestLog>,
    /// Dialers for relayed calls.
    pub connectors: Arc<Connectors>,
    /// Client for calls other than relayed requests.
    pub outbound: Outbound,
    /// Work that outlives its request.
    pub tasks: Arc<Tasks>,
    /// Health and choice of targets.
    pub balancer: Arc<Balancer>,
    /// Usage of rate limits.
    pub limits: Arc<Limiter>,
    /// Deadline of requests in flight during a shutdown.
    pub deadline: Arc<Deadline>,
    /// Services that answer below paths of their own.
    pub hosted: Vec<HostedService>,
    /// Handle that this gateway is connected to, for in-process requests.
    pub loopback: LoopbackClient,
    /// Shares of the file descriptors.
    pub descriptors: Descriptors,
    /// Number of open client connections.
    pub open: Arc<AtomicUsize>,
}

/// The proxy. What it keeps is shared by its clones: one for each listener.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) config: Arc<ConfigHandle>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) requests: Arc<RequestLog>,
    pub(crate) bodies: Arc<BodyBudget>,
    pub(crate) offload: Arc<Offload>,
    pub(crate) outbound: Outbound,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) request_slots: Arc<RequestSlots>,
    /// The budget of calls to upstreams.
    pub(crate) upstream_slots: Arc<UpstreamSlots>,
    pub(crate) balancer: Arc<Balancer>,
    pub(crate) limits: Arc<Limiter>,
    /// Parallel calls of accounts with little money: their number, and their queue.
    pub(crate) hold_queue: Arc<HoldQueue>,
    /// Counts of tokens by providers.
    pub(crate) counts: Arc<TokenCounts>,
    pub(crate) hosted: Arc<[HostedService]>,
    /// Client for turns of WebSockets. Not connected for loopback requests, which have no turns.
    pub(crate) loopback: LoopbackClient,
    pub(crate) deadline: Arc<Deadline>,
    pub(crate) upstreams: Arc<UpstreamPool>,
    pub(crate) open: Arc<ConnectionTable>,
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
            loopback,
            descriptors,
            open,
        } = parts;
        let bodies = BodyBudget::new(Arc::clone(&metrics));
        let request_slots = RequestSlots::new(Arc::clone(&limits), Arc::clone(&metrics));
        let upstream_slots = Arc::new(UpstreamSlots::new(Arc::clone(&metrics)));
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
            request_slots,
            upstream_slots,
            balancer,
            limits,
            hold_queue: Arc::default(),
            counts: Arc::new(TokenCounts::new()),
            // In-process requests reach no hosted service, which would call itself, and make none of their own.
            hosted: Arc::default(),
            loopback: LoopbackClient::default(),
            deadline: Arc::clone(&deadline),
            upstreams: Arc::new(UpstreamPool::new(connectors, descriptors.idle_upstream)),
            open: Arc::new(open),
        };
        loopback.connect(inner.clone(), deadline);
        Self { hosted: hosted.into(), loopback, ..inner }
    }
}
