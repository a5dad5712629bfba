//! The fields of `routes.yaml`. Those with much inside them have a file of their own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;

use super::{Admin, Console, Entries, Listener, Mcp, Store, Upstream};
use crate::config::network::Network;
use crate::config::scalar::{Address, AffinityName, OperationName, Period, Share, Size};
use crate::config::snapshot::Affinity;

/// Listeners, upstreams, routes, limits and the store of a Tollgate gateway.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Routes {
    /// Where customers connect. Default: `0.0.0.0:8080` with `h2c: true`. Takes effect at a restart.
    #[serde(default = "default_listeners")]
    pub(in crate::config) listeners: Vec<Listener>,
    /// Networks of proxies whose `X-Forwarded-For` says where a request comes from. Default: none,
    /// and the header is ignored.
    #[serde(default)]
    pub(in crate::config) trusted_proxies: Vec<Network>,
    /// The operator's API, probes and metrics. Takes effect at a restart.
    #[serde(default)]
    pub(in crate::config) admin: Admin,
    /// Where the ledger is kept. Takes effect at a restart.
    #[serde(default)]
    pub(in crate::config) store: Store,
    /// How the gateway stops. Takes effect at a restart.
    #[serde(default)]
    pub(in crate::config) shutdown: Shutdown,
    /// How changes of the files are taken up.
    #[serde(default)]
    pub(in crate::config) reload: Reload,
    /// Bounds on what is taken in from customers.
    #[serde(default)]
    pub(in crate::config) limits: Limits,
    /// How much keys and accounts may be used. Keys and accounts can have limits of their own, by the
    /// admin API. Default: no limit.
    #[serde(default)]
    pub(in crate::config) rate_limits: RateLimits,
    /// How tasks, such as video, are followed.
    #[serde(default)]
    pub(in crate::config) tasks: Tasks,
    /// How targets are chosen and given up.
    #[serde(default)]
    pub(in crate::config) balancing: Balancing,
    /// The customers' console.
    #[serde(default)]
    pub(in crate::config) console: Console,
    /// The server for agents: the Model Context Protocol.
    #[serde(default)]
    pub(in crate::config) mcp: Mcp,
    /// Which finished requests get a line in the log. Metrics count all of them.
    #[serde(default)]
    pub(in crate::config) access_log: AccessLog,
    /// What is kept of finished requests for people to look at. Takes effect at a restart.
    #[serde(default)]
    pub(in crate::config) request_log: RequestLog,
    /// The providers' APIs, by a name of your own.
    pub(in crate::config) upstreams: Entries<Upstream>,
    /// Which path does what. Default: every operation that this build serves, at OpenAI's path.
    #[serde(default)]
    pub(in crate::config) routes: Option<Vec<Route>>,
}

fn default_listeners() -> Vec<Listener> {
    let address = Address(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)));
    vec![Listener { address, h2c: true, proxy_protocol: false, tls: None }]
}

/// How the gateway stops.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Shutdown {
    /// How long requests are still taken after SIGTERM, while `/readyz` says that none are wanted.
    /// Default: not at all.
    pub(in crate::config) delay: Option<Period>,
    /// The time that requests in flight get after that. Default: `30s`.
    pub(in crate::config) grace: Period,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { delay: None, grace: Period(Duration::from_secs(30)) }
    }
}

/// How changes of the files are taken up.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Reload {
    /// Whether the files are put in force as soon as they have changed. Default: `true`.
    pub(in crate::config) watch: bool,
}

impl Default for Reload {
    fn default() -> Self {
        Self { watch: true }
    }
}

/// Bounds on what is taken in from customers.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Limits {
    /// The largest request body. Default: `64MiB`.
    pub(in crate::config) body_max: Size,
    /// All request bodies held in memory at one time. Default: `512MiB`.
    pub(in crate::config) body_memory_max: Size,
    /// The time within which a whole request body must arrive. Default: `60s`.
    pub(in crate::config) body_timeout: Period,
    /// The time within which a customer who is sending must send something. Default: `60s`.
    pub(in crate::config) read_timeout: Period,
    /// The time within which a customer who is receiving must take something. Default: `60s`.
    pub(in crate::config) write_timeout: Period,
    /// The requests that are served at one time; more are turned away. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) requests_in_flight_max: usize,
    /// How often a stream gets a comment while its upstream is silent, so that nothing in between
    /// takes it for dead. Default: never.
    pub(in crate::config) sse_keepalive: Option<Period>,
}

impl Default for Limits {
    fn default() -> Self {
        let minute = Period(Duration::from_secs(60));
        Self {
            body_max: Size(64 << 20),
            body_memory_max: Size(512 << 20),
            body_timeout: minute,
            read_timeout: minute,
            write_timeout: minute,
            // At 70 KiB each, in 700 MiB and 20,000 descriptors: what a small machine has.
            requests_in_flight_max: 10_000,
            sse_keepalive: None,
        }
    }
}

/// How much keys and accounts may be used.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct RateLimits {
    /// For every key.
    pub(in crate::config) key: Rates,
    /// For every account: all of its keys together.
    pub(in crate::config) account: Rates,
}

/// How much something may be used.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Rates {
    /// Requests a minute; a whole minute's may come at once. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(in crate::config) requests_per_minute: Option<u32>,
    /// Tokens a minute: input when a request comes, output when it is over. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(in crate::config) tokens_per_minute: Option<u32>,
    /// Requests at one time. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) concurrent_requests: Option<u32>,
}

/// How tasks, such as video, are followed.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Tasks {
    /// How soon an upstream is asked again about a young task. Default: `5s`.
    pub(in crate::config) poll_min: Period,
    /// How soon an upstream is asked again about an old task. Default: `30s`.
    pub(in crate::config) poll_max: Period,
    /// The customers who may wait for the end of a task at one time. Default: 256.
    #[schemars(range(min = 1, max = 100_000))]
    pub(in crate::config) waiting_max: u32,
    /// How long the same submit with the same key, without an `Idempotency-Key`, is taken for a
    /// repetition, which gets the first answer again. Default: it is not.
    pub(in crate::config) repeat_window: Option<Period>,
    /// Hosts that webhooks may be sent to although they are not on the public internet, over `http`
    /// as well. Default: none.
    pub(in crate::config) webhook_hosts: Vec<String>,
}

impl Default for Tasks {
    fn default() -> Self {
        let seconds = |count| Period(Duration::from_secs(count));
        Self {
            poll_min: seconds(5),
            poll_max: seconds(30),
            waiting_max: 256,
            repeat_window: None,
            webhook_hosts: Vec::new(),
        }
    }
}

/// How targets are chosen and given up.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Balancing {
    /// Which requests go to the same target as long as that is in order. Default: `conversation`.
    pub(in crate::config) affinity: AffinityName,
    /// When a target gets no calls.
    pub(in crate::config) circuit: Circuit,
    /// When another target is tried.
    pub(in crate::config) retries: Retries,
    /// How long a recovered target takes to get its whole share again. Default: `30s`.
    pub(in crate::config) slow_start: Period,
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            affinity: AffinityName(Affinity::Conversation),
            circuit: Circuit::default(),
            retries: Retries::default(),
            slow_start: Period(Duration::from_secs(30)),
        }
    }
}

/// When a target gets no calls.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Circuit {
    /// After so many failures in a row. Default: 5.
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::config) failures: u32,
    /// When this share of calls fails, in percent, over 30 s and at least 20 calls. Default: 50.
    #[schemars(range(min = 1, max = 100))]
    pub(in crate::config) failure_percent: u32,
    /// How long at first; doubled each time that it happens again without a success. Default: `5s`.
    pub(in crate::config) open: Period,
    /// How long at most. Default: `2m`.
    pub(in crate::config) open_max: Period,
}

impl Default for Circuit {
    fn default() -> Self {
        Self {
            failures: 5,
            failure_percent: 50,
            open: Period(Duration::from_secs(5)),
            open_max: Period(Duration::from_secs(120)),
        }
    }
}

/// When another target is tried.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Retries {
    /// Tries for one request, the first included. Default: 4.
    #[schemars(range(min = 1, max = 16))]
    pub(in crate::config) tries_max: u32,
    /// Retries in 100 requests, over all requests of the gateway. Default: 20.
    #[schemars(range(min = 0, max = 100))]
    pub(in crate::config) budget_percent: u32,
    /// Retries a second that there may be in any case. Default: 10.
    #[schemars(range(min = 0, max = 10_000))]
    pub(in crate::config) per_second_min: u32,
    /// After this long no further try of a request begins. Default: `60s`.
    pub(in crate::config) deadline: Period,
}

impl Default for Retries {
    fn default() -> Self {
        let deadline = Period(Duration::from_secs(60));
        Self { tries_max: 4, budget_percent: 20, per_second_min: 10, deadline }
    }
}

/// Which finished requests get a line in the log.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct AccessLog {
    /// The share of ordinary requests that are logged, from `0` to `1`. Requests that ended in an
    /// error, and slow ones, are always logged. Default: `1`.
    pub(in crate::config) sample: Share,
    /// A request that took this long or longer is slow. Default: `10s`.
    pub(in crate::config) slow: Period,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { sample: Share::ALL, slow: Period(Duration::from_secs(10)) }
    }
}

/// What is kept of finished requests for people to look at: in the consoles and the admin API.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct RequestLog {
    /// Whether anything is kept. Default: `true`.
    pub(in crate::config) enabled: bool,
    /// The most that it takes of the disk, from `1MiB`. The oldest requests are removed. Default:
    /// `1GiB`.
    pub(in crate::config) size_max: Size,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self { enabled: true, size_max: Size(1 << 30) }
    }
}

/// A path and what it does.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Route {
    /// The exact path, such as `/v1/chat/completions`.
    pub(in crate::config) path: String,
    /// What it does.
    pub(in crate::config) operation: OperationName,
    /// The largest request body here. Default: `body_max` of `limits`.
    #[serde(default)]
    pub(in crate::config) body_max: Option<Size>,
}
