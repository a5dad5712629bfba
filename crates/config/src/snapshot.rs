//! The compiled configuration: immutable, cross-checked, shared by `Arc`. A request loads it once.
//! `models` is what `models.yaml` lists, `pricing` what calls of it are charged by, `upstreams` where it is
//! served, `call_kind` by what their failures are weighed.

mod call_kind;
mod models;
mod pricing;
mod upstreams;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::certificate::Certificate;
use tollgate_money::money::Nanousd;
use tollgate_options::archive::Archive;
use tollgate_options::holds::HoldRules;
use tollgate_options::ledger::{Pruning, RecoveryPolicy};
use tollgate_options::network::ProxyRules;
use tollgate_options::postgres::PostgresOptions;
use tollgate_protocols::Operation;
use tollgate_types::limit::Rates;
use tollgate_types::secret::Secret;
use tollgate_types::words::words;

pub use super::webhook_host::WebhookHost;
pub use call_kind::CallKind;
pub(super) use models::{MODEL_PUNCTUATION, NAME_BYTES_MAX};
pub use models::{Model, OnDisconnect, Target, TargetCost};
pub use pricing::{LIST, ListedModel, OwnPricing, Pricing};
pub use upstreams::{
    Azure, Credential, CredentialKind, HealthCheck, PassedHeaders, RepeatAfter, Upstream,
    UpstreamHeader, UpstreamTimeouts,
};

/// The compiled contents of both YAML files.
#[derive(Debug)]
pub struct Snapshot {
    /// The first 12 hex digits of the SHA-256 of both files' text: says which configuration runs.
    pub hash: String,
    /// Both files as typed, in one document: variables by their names, secrets by a fingerprint.
    pub described: crate::RedactedConfig,
    /// The addresses that customers connect to. They change with a restart only.
    pub listeners: Vec<Listener>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The operator's address. Restart-only.
    pub admin: Admin,
    /// Storage of the ledger. Restart-only.
    pub store: StorageSettings,
    /// Time after SIGTERM in which requests are still accepted, while load balancers react. Restart-only.
    pub shutdown_delay: Duration,
    /// Time that requests in flight get after that. Restart-only.
    pub shutdown_grace: Duration,
    /// Settings of automatic reloads.
    pub reload: Reload,
    /// Limits that all requests share.
    pub limits: IntakeLimits,
    /// Rate limits of keys and accounts without limits of their own.
    pub rate_limits: RateLimits,
    /// Rules for holds of requests that do not fit their accounts.
    pub holds: HoldRules,
    /// Polling and webhooks of tasks.
    pub tasks: TaskPolicy,
    /// The server for agents.
    pub mcp: Mcp,
    /// Target selection, circuits and retries.
    pub balancing: Balancing,
    /// Settings of the customers' console.
    pub console: Console,
    /// Sampling of the access log.
    pub access_log: AccessLog,
    /// Storage of finished requests for the consoles. Restart-only.
    pub request_log: RequestLogSettings,
    /// The forward proxies that the environment names.
    pub proxies: Arc<ProxyRules>,
    /// Paths and their operations, in the order of `routes.yaml`.
    pub routes: Vec<Arc<Route>>,
    /// Every enabled upstream, by name.
    pub upstreams: HashMap<String, Arc<Upstream>>,
    /// Every callable model, in the order of `models.yaml`.
    pub models: Vec<Arc<Model>>,
    /// The models of `models.yaml` by their ids.
    pub models_by_id: HashMap<Arc<str>, Arc<Model>, foldhash::fast::RandomState>,
    /// Models whose id is a pattern, longest id first.
    pub wildcards: Vec<Arc<Model>>,
}

/// One address that customers connect to.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Address to listen on. Port 0 takes any free port.
    pub address: SocketAddr,
    /// True if HTTP/2 without TLS is accepted beside HTTP/1.1.
    pub h2c: bool,
    /// True if every connection begins with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// Certificate for clients; `None` without TLS.
    pub tls: Option<Arc<Certificate>>,
}

impl Listener {
    /// True if a socket that was opened for `other` behaves as this listener. Certificates and their paths
    /// may differ: they change while the gateway runs.
    #[must_use]
    pub fn is_served_like(&self, other: &Self) -> bool {
        self.address == other.address
            && self.h2c == other.h2c
            && self.proxy_protocol == other.proxy_protocol
            && self.tls.is_some() == other.tls.is_some()
    }
}

/// The admin API's address.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The bearer token; `None` makes `serve` create one in `<data_dir>/admin-token`.
    pub token: Option<Secret>,
    /// Certificate for clients; `None` without TLS.
    pub tls: Option<Arc<Certificate>>,
    /// Operators with tokens of their own.
    pub operators: Vec<Operator>,
    /// True if operators have a console.
    pub console: bool,
}

/// Settings of the customers' console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Console {
    /// True if it is served. Restart-only.
    pub enabled: bool,
    /// Its path, without a slash at the end. Restart-only.
    pub path: String,
    /// Rule for who may register.
    pub sign_up: SignUpPolicy,
    /// Credit of a new account.
    pub trial_credit: Nanousd,
    /// Lifetime of a login.
    pub session: Duration,
    /// URL of the gateway for customers, if configured.
    pub public_url: Option<PublicUrl>,
}

/// Rule for who may register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignUpPolicy {
    /// Nobody: operators create the accounts.
    Closed,
    /// Anyone with an invite code.
    Invite,
    /// Everybody who reaches the console.
    Open,
}

/// URL of the gateway for customers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// The URL, without a slash at the end.
    pub text: String,
    /// True for `https`, false for `http`.
    pub tls: bool,
}

/// An operator with a token of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Name of the operator in the audit log.
    pub name: String,
    /// Bearer token of the operator.
    pub token: Secret,
}

/// Storage of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSettings {
    /// The directory of journal and sled ledger; one process at a time.
    pub data_dir: PathBuf,
    /// Resolution of holds that a crash left open.
    pub recovery: RecoveryPolicy,
    /// The database of a fleet, unless this is the only gateway.
    pub postgres: Option<Postgres>,
    /// Archive of closed journal files; `None` without one.
    pub archive: Option<Archive>,
    /// Retention of statement lines in sled.
    pub pruning: Pruning,
}

/// The database of a fleet, and this gateway's place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postgres {
    /// Connection to the database.
    pub options: PostgresOptions,
    /// Name of this gateway in the fleet.
    pub node: String,
    /// Time that this gateway continues without the database.
    pub lease: Duration,
    /// Period for which money is leased in advance.
    pub cover: Duration,
}

/// Storage of finished requests for the consoles and the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLogSettings {
    /// True if finished requests are stored.
    pub enabled: bool,
    /// Maximum size on disk, in bytes.
    pub size_max: u64,
}

/// Settings of automatic reloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    /// True if changed files are reloaded automatically.
    pub watch: bool,
}

/// Limits that all requests share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// The largest request body, in bytes. Routes may set less or more.
    pub body_bytes_max: usize,
    /// Memory for all request bodies, in bytes.
    pub body_memory_bytes_max: usize,
    /// The values that a JSON body may have. Routes may set less or more.
    pub json_values_max: usize,
    /// Timeout for a whole body.
    pub body_timeout: Duration,
    /// Timeout for a read from a client.
    pub read_timeout: Duration,
    /// The time within which a downstream write must get rid of something.
    pub write_timeout: Duration,
    /// Maximum number of customers' requests in flight.
    pub requests_in_flight_max: usize,
    /// Limits of unauthenticated requests.
    pub unauthenticated: UnauthenticatedLimits,
    /// Limits of one account.
    pub per_account: PerAccount,
    /// Limits of free calls.
    pub free_calls: FreeCallLimits,
    /// The memory that this process may use, in bytes, as far as that is known.
    pub memory_bytes: Option<u64>,
    /// True if `body_memory_bytes_max` is the default for this machine.
    pub body_memory_is_default: bool,
    /// Maximum number of client connections; by default limited by file descriptors.
    pub connections_max: Option<usize>,
    /// Maximum number of connections per address; default half of `connections_max`.
    pub connections_per_address_max: Option<usize>,
    /// Maximum number of upstream calls; by default limited by file descriptors and memory.
    pub upstream_calls_max: Option<usize>,
    /// Interval of comments in a stream while its upstream is silent.
    pub sse_keepalive: Option<Duration>,
}

impl IntakeLimits {
    /// Summary of the bounds of body memory, for operators: the figures depend on the machine.
    #[must_use]
    pub fn body_memory_summary(&self) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let (all, one) = (self.body_memory_bytes_max as u64, self.body_bytes_max as u64);
        let (all_mib, one_mib) = (mib(all), mib(one));
        let summary = format!("request bodies: {all_mib} MiB in all, {one_mib} MiB each");
        match self.memory_bytes {
            None => summary,
            Some(memory) if !self.body_memory_is_default && all > memory / 2 => format!(
                "{summary}: more than half of the {} MiB of memory that this process may use; lower \
                 `limits.body_memory_max`, or the kernel may end it",
                mib(memory)
            ),
            Some(memory) => {
                format!("{summary}, of {} MiB of memory that this process may use", mib(memory))
            }
        }
    }
}

/// Limits of unauthenticated requests and of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnauthenticatedLimits {
    /// Maximum number of requests in flight.
    pub requests_in_flight_max: usize,
    /// Maximum number of requests in flight from one address.
    pub per_address_max: usize,
    /// The time within which bodies must arrive and answers be taken.
    pub timeout: Duration,
}

/// Shares of one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerAccount {
    /// Requests of the account in flight.
    pub requests_in_flight_max: usize,
    /// Requests in flight in percent of all, which holds for connections with a request under way
    /// as well.
    pub requests_in_flight_percent: usize,
    /// Bytes of bodies in memory.
    pub body_memory_bytes_max: usize,
    /// Requests that wait for the end of a task.
    pub waiting_max: usize,
    /// The percentage of a model's concurrent requests that is the account's share.
    pub model_concurrency_percent: u32,
    /// Reads of much at once.
    pub reads_max: usize,
}

/// Limits of calls that cost nothing, such as token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeCallLimits {
    /// Calls of one account in a minute.
    pub account_per_minute: NonZeroU32,
    /// Calls of all accounts to one upstream in a minute.
    pub upstream_per_minute: NonZeroU32,
    /// Maximum number of concurrent calls to one upstream.
    pub upstream_concurrent_max: usize,
    /// The share of one account of the calls to an upstream, in percent of what it has and what is free.
    pub account_percent: usize,
}

/// Rate limits of keys and accounts without limits of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Limits of every key.
    pub key: Rates,
    /// Limits of every account, for all its keys together.
    pub account: Rates,
}

/// Polling and webhooks of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPolicy {
    /// Polling interval of a young task.
    pub poll_min: Duration,
    /// Polling interval of an old task.
    pub poll_max: Duration,
    /// The customers who may wait for the end of a task at one time.
    pub waiting_max: u32,
    /// Time after the answer in which a repeated submit without an `Idempotency-Key` is recognised.
    pub repeat_window: Option<Duration>,
    /// Maximum number of unsuccessful tasks per account and minute.
    pub unpaid_per_minute: u32,
    /// Hosts that webhooks may be sent to although they are not on the public internet.
    pub webhook_hosts: Vec<WebhookHost>,
    /// The time that a receiver of webhooks may take.
    pub webhook_timeout: Duration,
    /// Largest numbers of concurrent webhooks.
    pub webhooks: WebhookShares,
}

/// Largest numbers of concurrent webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookShares {
    /// Maximum for the whole process.
    pub all: usize,
    /// Maximum number for one account.
    pub per_account: usize,
    /// Maximum per receiver, that is, per scheme, host and port.
    pub per_receiver: usize,
}

/// The server for agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mcp {
    /// True if it is served. Restart-only.
    pub enabled: bool,
    /// The path below which it answers. It changes with a restart only.
    pub path: String,
    /// Hosts in lower case, with a port or for any; empty when every name will do.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages as browsers write them, or with `*` for every port.
    pub allowed_origins: Vec<String>,
    /// The largest request body, in bytes. Restart-only.
    pub body_bytes_max: usize,
    /// The values that a request body may have. Restart-only.
    pub json_values_max: usize,
    /// The most media that an answer has in itself, in bytes before base64.
    pub media_bytes_max: usize,
    /// The longest that one call may wait for a video.
    pub wait_max: Duration,
}

/// Target selection, circuits and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balancing {
    /// Affinity of requests to targets.
    pub affinity: Affinity,
    /// Rules for opening circuits.
    pub circuit: CircuitRules,
    /// Rules for trying another target.
    pub retries: RetryRules,
}

words! {
    /// Requests that go to the same target as long as it works.
    Affinity {
        /// No affinity: every request is balanced by itself.
        None = "none",
        /// Requests whose headers name the same session.
        Header = "header",
        /// Requests of one session; without that header, of one conversation.
        Conversation = "conversation",
    }
}

/// Rules for opening a circuit, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitRules {
    /// Number of consecutive failures.
    pub failures: u32,
    /// Percentage of failures within 30 s, of at least 20 calls, that opens the circuit.
    pub failure_percent: u32,
    /// First open time; doubled at each further opening without a success between.
    pub open: Duration,
    /// Longest time for which a circuit stays open.
    pub open_max: Duration,
    /// Time until a recovered target has its whole share again.
    pub slow_start: Duration,
}

/// Rules for trying another target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// Tries for one request, the first included.
    pub tries_max: u32,
    /// Retries in 100 requests, over all requests of the gateway.
    pub budget_percent: u32,
    /// Retries a second that there may be in any case.
    pub per_second_min: u32,
    /// Time after which no further try begins.
    pub deadline: Duration,
}

/// Sampling of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The share of ordinary requests that are, in millionths: 1,000,000 is all of them.
    pub sample_per_million: u32,
    /// A request that took this long is not ordinary.
    pub slow: Duration,
}

impl Default for AccessLog {
    /// Every request is logged, and counts as slow from 10 s.
    fn default() -> Self {
        Self { sample_per_million: 1_000_000, slow: Duration::from_secs(10) }
    }
}

/// A path and its operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The exact path, such as `/v1/chat/completions`.
    pub path: String,
    /// The operation that the route serves.
    pub operation: Operation,
    /// The largest request body, in bytes.
    pub body_bytes_max: usize,
    /// The values that a JSON body may have.
    pub json_values_max: usize,
}
