//! The fields of `routes.yaml`. Those with much inside them have a file of their own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;

use super::{
    AdminSection, ConsoleSection, FreeCallsSection, HoldsSection, ListenerEntry, McpSection,
    ModelEntry, OrderedMap, PerAccountSection, RatesSection, StoreSection, UnauthenticatedSection,
    UpstreamEntry,
};
use crate::names::{AffinityName, OperationName};
use crate::network::Network;
use crate::scalar::{ByteSize, DurationText, Fraction, ListenAddress};
use crate::snapshot::Affinity;
use crate::webhook_host::WebhookHost;
use crate::window::OptionalDuration;
use tollgate_protocols::json::VALUES_MAX;

/// Listeners, upstreams, routes, limits and the store of a Tollgate gateway.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Routes {
    /// Addresses for customers. Default: `0.0.0.0:8080` with `h2c: true`. Takes effect at a restart.
    #[serde(default = "default_listeners")]
    pub(crate) listeners: Vec<ListenerEntry>,
    /// Networks of proxies whose `X-Forwarded-For` is trusted. Default: none; the header is ignored.
    #[serde(default)]
    pub(crate) trusted_proxies: Vec<Network>,
    /// The operator's API, probes and metrics. Takes effect at a restart.
    #[serde(default)]
    pub(crate) admin: AdminSection,
    /// Storage of the ledger. Takes effect at a restart.
    #[serde(default)]
    pub(crate) store: StoreSection,
    /// Shutdown of the gateway. Takes effect at a restart.
    #[serde(default)]
    pub(crate) shutdown: Shutdown,
    /// Reloads of changed files.
    #[serde(default)]
    pub(crate) reload: ReloadSection,
    /// Limits on requests from customers.
    #[serde(default)]
    pub(crate) limits: LimitsSection,
    /// Rate limits of keys and accounts. Keys and accounts can have limits of their own, by the admin API.
    /// Default: no limit.
    #[serde(default)]
    pub(crate) rate_limits: RateLimitsSection,
    /// Holds of requests that exceed the account's balance. The admin API can set rules for single accounts.
    #[serde(default)]
    pub(crate) holds: HoldsSection,
    /// Polling and webhooks of tasks, such as video.
    #[serde(default)]
    pub(crate) tasks: TasksSection,
    /// Target selection, circuits and retries.
    #[serde(default)]
    pub(crate) balancing: BalancingSection,
    /// Settings of the customers' console.
    #[serde(default)]
    pub(crate) console: ConsoleSection,
    /// The server for agents: the Model Context Protocol.
    #[serde(default)]
    pub(crate) mcp: McpSection,
    /// Sampling of the access log. Metrics count all requests.
    #[serde(default)]
    pub(crate) access_log: AccessLogSection,
    /// Storage of finished requests for the consoles and the admin API. Takes effect at a restart.
    #[serde(default)]
    pub(crate) request_log: RequestLogSection,
    /// The providers' APIs, by a name of your own.
    pub(crate) upstreams: OrderedMap<UpstreamEntry>,
    /// Paths and their operations. Default: every operation that this build serves, at OpenAI's path.
    #[serde(default)]
    pub(crate) routes: Option<Vec<RouteEntry>>,
    /// The models, instead of a separate `models.yaml`.
    #[serde(default)]
    #[expect(dead_code, reason = "it is taken out, and read as a `models.yaml` is")]
    pub(crate) models: OrderedMap<ModelEntry>,
}

fn default_listeners() -> Vec<ListenerEntry> {
    let address = ListenAddress(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)));
    vec![ListenerEntry { address, h2c: true, proxy_protocol: false, tls: None }]
}

/// Shutdown of the gateway.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Shutdown {
    /// Time after SIGTERM in which requests are still accepted, while `/readyz` reports that the gateway is
    /// stopping. Default: none.
    pub(crate) delay: Option<DurationText>,
    /// Time for requests in flight to finish after that. Default: `30s`.
    pub(crate) grace: DurationText,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { delay: None, grace: DurationText(Duration::from_secs(30)) }
    }
}

/// Reloads of changed files.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Reload")]
pub(crate) struct ReloadSection {
    /// `true` reloads changed files automatically. Default: `true`.
    pub(crate) watch: bool,
}

impl Default for ReloadSection {
    fn default() -> Self {
        Self { watch: true }
    }
}

/// Limits on requests from customers.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[serde(rename = "Limits")]
pub(crate) struct LimitsSection {
    /// Maximum size of a request body. Default: `64MiB`, or half of `body_memory_max`.
    pub(crate) body_max: Option<ByteSize>,
    /// Memory for all request bodies, including the structures built while reading them. Default: `512MiB`,
    /// or a quarter of the memory available to the process, if that is less.
    pub(crate) body_memory_max: Option<ByteSize>,
    /// Maximum number of values in a JSON request body, at any depth: the time and memory of a parser depend
    /// on it. Embeddings may have ten times as many, since each token id is a value. Default: 100000.
    #[schemars(range(min = 1_000, max = 100_000_000))]
    pub(crate) json_values_max: usize,
    /// Timeout for a complete request body. Default: `60s`.
    pub(crate) body_timeout: DurationText,
    /// Timeout for a client that does not continue its request. Default: `60s`.
    pub(crate) read_timeout: DurationText,
    /// Timeout for a client that does not read its answer. Default: `60s`.
    pub(crate) write_timeout: DurationText,
    /// Maximum number of customers' requests in flight; more are rejected. Default: 10000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests_in_flight_max: usize,
    /// Requests without a valid key, and those of the console.
    pub(crate) unauthenticated: UnauthenticatedSection,
    /// Maximum number of these per account at one time.
    pub(crate) per_account: PerAccountSection,
    /// Free calls, such as token counts.
    pub(crate) free_calls: FreeCallsSection,
    /// Maximum number of client connections. Beyond it, the connection that has been idle longest is closed.
    /// File descriptors limit it further. Default: what these allow, at most 20000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) connections_max: Option<usize>,
    /// Maximum number of connections from one address: an IPv4 address or an IPv6 /64 network. Does not apply
    /// to `trusted_proxies`. Default: half of `connections_max`.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) connections_per_address_max: Option<usize>,
    /// Maximum number of concurrent calls to upstreams, including those whose client disconnected. File
    /// descriptors and memory limit it further. Default: what these allow.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) upstream_calls_max: Option<usize>,
    /// Interval of comments in a stream while its upstream is silent, so that no proxy closes it as idle;
    /// `none` sends none. Default: `15s`.
    pub(crate) sse_keepalive: OptionalDuration,
}

impl Default for LimitsSection {
    fn default() -> Self {
        let minute = DurationText(Duration::from_secs(60));
        Self {
            body_max: None,
            body_memory_max: None,
            json_values_max: VALUES_MAX,
            body_timeout: minute,
            read_timeout: minute,
            write_timeout: minute,
            // At 70 KiB each, in 700 MiB and 20,000 descriptors: what a small machine has.
            requests_in_flight_max: 10_000,
            unauthenticated: UnauthenticatedSection::default(),
            per_account: PerAccountSection::default(),
            free_calls: FreeCallsSection::default(),
            connections_max: None,
            connections_per_address_max: None,
            upstream_calls_max: None,
            // Load balancers wait for 30 s and more, and most upstreams refuse sooner.
            sse_keepalive: OptionalDuration(Some(Duration::from_secs(15))),
        }
    }
}

/// Rate limits of keys and accounts.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "RateLimits")]
pub(crate) struct RateLimitsSection {
    /// Limits of every key.
    pub(crate) key: RatesSection,
    /// Limits of every account, for all its keys together.
    pub(crate) account: RatesSection,
}

/// Polling and webhooks of tasks, such as video.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[serde(rename = "Tasks")]
pub(crate) struct TasksSection {
    /// Polling interval of a young task. Default: `5s`.
    pub(crate) poll_min: DurationText,
    /// Polling interval of an old task. Default: `30s`.
    pub(crate) poll_max: DurationText,
    /// The customers who may wait for the end of a task at one time. Default: 256.
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) waiting_max: u32,
    /// Time after its answer, or after the end of its `wait`, in which a submit that is repeated under the
    /// same key without an `Idempotency-Key` is recognised and rejected; `none` for not at all. Default:
    /// `5s`.
    pub(crate) repeat_window: OptionalDuration,
    /// Maximum number of unsuccessful tasks per account and minute, since they are free. Default: 30.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) unpaid_per_minute: u32,
    /// Hosts outside the public internet that may receive webhooks, also over `http`: on ports 80 and 443, on
    /// a given port, or with `:*` on all ports. Default: none.
    pub(crate) webhook_hosts: Vec<WebhookHost>,
    /// Timeout for a webhook receiver's answer, at most `15s`. Default: `15s`.
    pub(crate) webhook_timeout: DurationText,
    /// Maximum number of concurrent webhooks. Default: 128.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) webhooks_max: u32,
    /// Maximum number of concurrent webhooks per account. Default: 4.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) webhooks_per_account: u32,
    /// Maximum number of concurrent webhooks to one receiver, for all accounts. Default: 8.
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) webhooks_per_receiver: u32,
}

impl Default for TasksSection {
    fn default() -> Self {
        let seconds = |count| DurationText(Duration::from_secs(count));
        Self {
            poll_min: seconds(5),
            poll_max: seconds(30),
            waiting_max: 256,
            repeat_window: OptionalDuration(Some(Duration::from_secs(5))),
            unpaid_per_minute: 30,
            webhook_hosts: Vec::new(),
            webhook_timeout: seconds(15),
            webhooks_max: 128,
            webhooks_per_account: 4,
            webhooks_per_receiver: 8,
        }
    }
}

/// Target selection, circuits and retries.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Balancing")]
pub(crate) struct BalancingSection {
    /// Requests that stay on the same target while it works. Default: `conversation`.
    pub(crate) affinity: AffinityName,
    /// Order of targets with the same priority. Default: `weight`.
    pub(crate) prefer: Prefer,
    /// Rules for opening a circuit.
    pub(crate) circuit: CircuitSection,
    /// Rules for trying another target.
    pub(crate) retries: Retries,
    /// Time until a recovered target gets its full share again. Default: `30s`.
    pub(crate) slow_start: DurationText,
}

impl Default for BalancingSection {
    fn default() -> Self {
        Self {
            affinity: AffinityName(Affinity::Conversation),
            prefer: Prefer::Weight,
            circuit: CircuitSection::default(),
            retries: Retries::default(),
            slow_start: DurationText(Duration::from_secs(30)),
        }
    }
}

/// Order of targets with the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Prefer {
    /// By weight and current load.
    Weight,
    /// By cost: a more expensive target gets requests only if no cheaper one works.
    LeastCost,
}

/// Rules for opening a circuit.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Circuit")]
pub(crate) struct CircuitSection {
    /// Number of consecutive failures that opens the circuit. Default: 5.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) failures: u32,
    /// Percentage of failures within 30 s, of at least 20 calls, that opens the circuit. Default: 50.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) failure_percent: u32,
    /// Time for which the circuit opens first; doubled each time it opens again without a success in between.
    /// Default: `5s`.
    pub(crate) open: DurationText,
    /// Longest open time. Default: `2m`.
    pub(crate) open_max: DurationText,
}

impl Default for CircuitSection {
    fn default() -> Self {
        Self {
            failures: 5,
            failure_percent: 50,
            open: DurationText(Duration::from_secs(5)),
            open_max: DurationText(Duration::from_secs(120)),
        }
    }
}

/// Rules for trying another target.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retries {
    /// Maximum number of attempts per request, including the first. Default: 4.
    #[schemars(range(min = 1, max = 16))]
    pub(crate) tries_max: u32,
    /// Retries per 100 requests, over all requests of the gateway. Default: 20.
    #[schemars(range(min = 0, max = 100))]
    pub(crate) budget_percent: u32,
    /// Retries per second that are always allowed. Default: 10.
    #[schemars(range(min = 0, max = 10_000))]
    pub(crate) per_second_min: u32,
    /// Time after which no further attempt of a request begins. Default: `60s`.
    pub(crate) deadline: DurationText,
}

impl Default for Retries {
    fn default() -> Self {
        let deadline = DurationText(Duration::from_secs(60));
        Self { tries_max: 4, budget_percent: 20, per_second_min: 10, deadline }
    }
}

/// Sampling of the access log.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "AccessLog")]
pub(crate) struct AccessLogSection {
    /// The share of ordinary requests that are logged, from `0` to `1`. Requests that ended in an
    /// error, and slow ones, are always logged. Default: `1`.
    pub(crate) sample: Fraction,
    /// Duration from which a request counts as slow. Default: `10s`.
    pub(crate) slow: DurationText,
}

impl Default for AccessLogSection {
    fn default() -> Self {
        Self { sample: Fraction::ALL, slow: DurationText(Duration::from_secs(10)) }
    }
}

/// Storage of finished requests for the consoles and the admin API.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[serde(rename = "RequestLog")]
pub(crate) struct RequestLogSection {
    /// `true` stores finished requests. Default: `true`.
    pub(crate) enabled: bool,
    /// Maximum size on disk, from `1MiB`. The oldest requests are removed first. Default: `1GiB`.
    pub(crate) size_max: ByteSize,
}

impl Default for RequestLogSection {
    fn default() -> Self {
        Self { enabled: true, size_max: ByteSize(1 << 30) }
    }
}

/// A path and its operation.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Route")]
pub(crate) struct RouteEntry {
    /// The exact path, such as `/v1/chat/completions`.
    pub(crate) path: String,
    /// Operation of the path.
    pub(crate) operation: OperationName,
    /// Maximum size of a request body on this path. Default: `body_max` of `limits`.
    #[serde(default)]
    pub(crate) body_max: Option<ByteSize>,
    /// Maximum number of JSON values in a request body on this path. Default: `json_values_max` of `limits`,
    /// ten times that for embeddings.
    #[serde(default)]
    #[schemars(range(min = 1_000, max = 100_000_000))]
    pub(crate) json_values_max: Option<usize>,
}
