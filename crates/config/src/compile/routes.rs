//! `routes.yaml`: listeners, admin, store, limits, upstreams and routes.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::{bodies, upstreams};
use crate::document::{Document, Fault};
use crate::snapshot::{
    AccessLog, Admin, Balancing, CircuitRules, Console, FreeCallLimits, IntakeLimits, Listener,
    Mcp, PerAccount, RateLimits, Reload, RequestLogSettings, RetryRules, Route, StorageSettings,
    TaskPolicy, UnauthenticatedLimits, Upstream, WebhookHost, WebhookShares,
};
use crate::spans::DocumentPath;
use crate::{Overrides, raw};
use tollgate_options::holds::HoldRules;
use tollgate_options::ledger::REPEATED_WITHIN;
use tollgate_options::network::ProxyRules;
use tollgate_options::request_log::SIZE_MIN;
use tollgate_protocols::{BodyKind, Dialect, Operation};

/// The time that a receiver of webhooks may take at most: with as long in line, a node of a fleet is
/// done before its time with the task is over.
const WEBHOOK_TIMEOUT_MAX: Duration = Duration::from_secs(15);

/// Bodies of embeddings may have so many times the values of others: each token id is one, and they are
/// counted and not collected. OpenAI takes 300,000 of them in one request.
const TOKEN_IDS_FACTOR: usize = 10;

/// The compiled form of `routes.yaml`.
pub(super) struct CompiledRoutes {
    pub(super) listeners: Vec<Listener>,
    pub(super) trusted_proxies: Vec<IpNet>,
    pub(super) admin: Admin,
    pub(super) store: StorageSettings,
    pub(super) shutdown_delay: Duration,
    pub(super) shutdown_grace: Duration,
    pub(super) reload: Reload,
    pub(super) limits: IntakeLimits,
    pub(super) rate_limits: RateLimits,
    pub(super) holds: HoldRules,
    pub(super) tasks: TaskPolicy,
    pub(super) mcp: Mcp,
    pub(super) balancing: Balancing,
    pub(super) console: Console,
    pub(super) access_log: AccessLog,
    pub(super) request_log: RequestLogSettings,
    pub(super) upstreams: HashMap<String, Arc<Upstream>>,
    pub(super) routes: Vec<Arc<Route>>,
}

/// Compiles valid settings, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::Routes,
    overrides: &Overrides,
    proxies: &ProxyRules,
) -> CompiledRoutes {
    let admin = super::admin::compile(document, raw.admin, overrides);
    let listeners = super::listeners::compile(document, &raw.listeners, &admin, overrides);
    let store = super::store::compile(document, raw.store, overrides, proxies);
    let tasks = tasks(document, raw.tasks, overrides);
    let mut limits = limits(document, &raw.limits, tasks.waiting_max);
    let access_log =
        AccessLog { sample_per_million: raw.access_log.sample.0, slow: raw.access_log.slow.0 };
    let request_log = request_log(document, &raw.request_log);
    let routes = routes(document, raw.routes, &limits);
    // After the routes, and the console after both: each checks that its path is free.
    let mcp = super::mcp::compile(document, raw.mcp, &limits, &routes);
    // An account's part of the body memory must hold the largest body of any path, however small its share.
    let largest = routes.iter().map(|route| route.body_bytes_max).chain([mcp.body_bytes_max]).max();
    let percent = raw.limits.per_account.body_memory_percent;
    limits.per_account.body_memory_bytes_max =
        bodies::of_one_account(&limits, percent, largest.unwrap_or(0));
    let console = super::console::compile(document, raw.console, &routes, &mcp, overrides);
    let balancing = balancing(document, &raw.balancing);
    let upstreams = upstreams::compile(document, raw.upstreams.0, overrides, proxies);
    CompiledRoutes {
        listeners,
        trusted_proxies: raw.trusted_proxies.into_iter().map(|network| network.0).collect(),
        admin,
        store,
        shutdown_delay: raw.shutdown.delay.map_or(Duration::ZERO, |delay| delay.0),
        shutdown_grace: raw.shutdown.grace.0,
        reload: Reload { watch: raw.reload.watch },
        limits,
        rate_limits: RateLimits {
            key: super::rates(&raw.rate_limits.key),
            account: super::rates(&raw.rate_limits.account),
        },
        holds: super::holds::compile(document, &raw.holds),
        tasks,
        mcp,
        balancing,
        console,
        access_log,
        request_log,
        upstreams,
        routes,
    }
}

fn request_log(document: &mut Document, raw: &raw::RequestLogSection) -> RequestLogSettings {
    let size_max = raw.size_max.0 as u64;
    if size_max < SIZE_MIN {
        let path = DocumentPath::root().key("request_log").key("size_max");
        let fault = Fault::at_value(&path, "a log of this size keeps next to nothing");
        document.note(fault.help("from `1MiB`"));
    }
    RequestLogSettings { enabled: raw.enabled, size_max }
}

fn limits(document: &mut Document, raw: &raw::LimitsSection, waiting_max: u32) -> IntakeLimits {
    let bodies = bodies::compile(document, raw);
    let (strangers, account) = (&raw.unauthenticated, &raw.per_account);
    let of_account = |all, percent| bodies::part_of(all, percent);
    let waiting_max = usize::try_from(waiting_max).unwrap_or(usize::MAX);
    IntakeLimits {
        body_bytes_max: bodies.one,
        body_memory_bytes_max: bodies.all,
        json_values_max: raw.json_values_max,
        body_timeout: raw.body_timeout.0,
        read_timeout: raw.read_timeout.0,
        write_timeout: raw.write_timeout.0,
        requests_in_flight_max: raw.requests_in_flight_max,
        unauthenticated: UnauthenticatedLimits {
            requests_in_flight_max: strangers.requests_in_flight_max,
            per_address_max: strangers.per_address_max,
            timeout: strangers.timeout.0,
        },
        per_account: PerAccount {
            requests_in_flight_max: of_account(
                raw.requests_in_flight_max,
                account.requests_in_flight_percent,
            ),
            requests_in_flight_percent: usize::try_from(account.requests_in_flight_percent)
                .unwrap_or(100),
            body_memory_bytes_max: of_account(bodies.all, account.body_memory_percent),
            waiting_max: of_account(waiting_max, account.waiting_percent),
            model_concurrency_percent: account.model_concurrency_percent,
            reads_max: usize::try_from(account.reads_max).unwrap_or(usize::MAX),
        },
        free_calls: free_calls(&raw.free_calls),
        memory_bytes: bodies.memory,
        body_memory_is_default: bodies.is_default,
        connections_max: raw.connections_max,
        connections_per_address_max: raw.connections_per_address_max,
        upstream_calls_max: raw.upstream_calls_max,
        sse_keepalive: raw.sse_keepalive.0,
    }
}

fn free_calls(raw: &raw::FreeCallsSection) -> FreeCallLimits {
    // Of 0 the schema has said that it is none.
    let at_least_one = |limit| NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN);
    FreeCallLimits {
        account_per_minute: at_least_one(raw.account_requests_per_minute),
        upstream_per_minute: at_least_one(raw.upstream_requests_per_minute),
        upstream_concurrent_max: raw.upstream_concurrent_requests,
        account_percent: usize::try_from(raw.account_percent).unwrap_or(100),
    }
}

fn tasks(document: &mut Document, raw: raw::TasksSection, overrides: &Overrides) -> TaskPolicy {
    let path = DocumentPath::root().key("tasks");
    if raw.poll_min.0 > raw.poll_max.0 {
        let message = "young tasks would be asked about less often than old ones";
        document.note(Fault::at_value(&path.key("poll_min"), message).help("at most `poll_max`"));
    }
    let mut webhook_hosts = raw.webhook_hosts;
    if overrides.every_upstream_at.is_some() {
        // Who tries the gateway out has a receiver on the same machine.
        webhook_hosts.extend(["127.0.0.1", "localhost"].map(WebhookHost::any_port_of));
    }
    if raw.webhook_timeout.0 > WEBHOOK_TIMEOUT_MAX {
        let message = "a receiver would be waited for longer than a node keeps a task to itself";
        document.note(Fault::at_value(&path.key("webhook_timeout"), message).help("at most `15s`"));
    }
    TaskPolicy {
        poll_min: raw.poll_min.0,
        poll_max: raw.poll_max.0,
        waiting_max: raw.waiting_max,
        // Records of submits are kept no longer than this, so a longer window could not be honoured.
        repeat_window: raw.repeat_window.0.map(|window| window.min(REPEATED_WITHIN)),
        unpaid_per_minute: raw.unpaid_per_minute,
        webhook_hosts,
        webhook_timeout: raw.webhook_timeout.0,
        webhooks: WebhookShares {
            all: raw.webhooks_max as usize,
            per_account: raw.webhooks_per_account as usize,
            per_receiver: raw.webhooks_per_receiver as usize,
        },
    }
}

fn balancing(document: &mut Document, raw: &raw::BalancingSection) -> Balancing {
    let (circuit, retries) = (&raw.circuit, &raw.retries);
    if circuit.open.0 > circuit.open_max.0 {
        let path = DocumentPath::root().key("balancing").key("circuit").key("open");
        let message = "a target would get no calls for longer at first than at most";
        document.note(Fault::at_value(&path, message).help("at most `open_max`"));
    }
    Balancing {
        affinity: raw.affinity.0,
        circuit: CircuitRules {
            failures: circuit.failures,
            failure_percent: circuit.failure_percent,
            open: circuit.open.0,
            open_max: circuit.open_max.0,
            slow_start: raw.slow_start.0,
        },
        retries: RetryRules {
            tries_max: retries.tries_max,
            budget_percent: retries.budget_percent,
            per_second_min: retries.per_second_min,
            deadline: retries.deadline.0,
        },
    }
}

/// True if this build has a codec for `operation` in any dialect.
fn is_served(operation: Operation) -> bool {
    Dialect::ALL.into_iter().any(|dialect| tollgate_protocols::is_served(operation, dialect))
}

/// Default maximum number of JSON values of a body of this kind.
fn json_values_max(limits: &IntakeLimits, operation: Operation) -> usize {
    match operation.info().body {
        BodyKind::JsonWithTokenIds => limits.json_values_max.saturating_mul(TOKEN_IDS_FACTOR),
        BodyKind::Json | BodyKind::ModelInPath | BodyKind::Form => limits.json_values_max,
    }
}

fn routes(
    document: &mut Document,
    raw: Option<Vec<raw::RouteEntry>>,
    limits: &IntakeLimits,
) -> Vec<Arc<Route>> {
    let body_bytes_max = limits.body_bytes_max;
    let Some(raw) = raw else {
        let route = |operation| {
            let json_values_max = json_values_max(limits, operation);
            let path = operation.info().path.to_owned();
            Arc::new(Route { path, operation, body_bytes_max, json_values_max })
        };
        let routes = Operation::ALL.into_iter().filter(|op| is_served(*op)).map(route).collect();
        return with_paths_below(routes);
    };
    let mut seen = HashSet::new();
    let mut routes = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let at = DocumentPath::root().key("routes").index(index);
        let path_at = at.key("path");
        // Unreserved characters of RFC 3986 alone: paths are compared byte by byte, without percent-decoding.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        if !raw.path.starts_with('/') || !raw.path.bytes().all(plain) || raw.path.contains("//") {
            let help = format!("such as `{}`", raw.operation.0.info().path);
            document.note(Fault::at_value(&path_at, "this is not a plain path").help(help));
        } else if super::hosted::OWN_PATHS.contains(&raw.path.as_str()) {
            document.note(Fault::at_value(&path_at, "the gateway answers this path itself"));
        } else if !seen.insert(raw.path.clone()) {
            document.note(Fault::at_value(&path_at, format!("`{}` is here twice", raw.path)));
        }
        let bytes_max = raw.body_max.map_or(body_bytes_max, |size| {
            bodies::largest_of(document, &at.key("body_max"), size.0, limits)
        });
        if is_served(raw.operation.0) {
            let (path, operation) = (raw.path, raw.operation.0);
            let values_max = raw.json_values_max;
            routes.push(Arc::new(Route {
                path,
                operation,
                body_bytes_max: bytes_max,
                json_values_max: values_max.unwrap_or_else(|| json_values_max(limits, operation)),
            }));
        } else {
            let message = format!(
                "this build does not serve `{}` yet: the path is left out",
                raw.operation.0
            );
            document.note(Fault::at_value(&at.key("operation"), message).warning());
        }
    }
    with_paths_below(routes)
}

/// Adds the paths on which Anthropic's, Google's and OpenAI's clients have the tokens of a prompt counted,
/// and OpenAI's have a conversation summed up.
fn with_paths_below(mut routes: Vec<Arc<Route>>) -> Vec<Arc<Route>> {
    let below = routes.iter().flat_map(|route| {
        route.operation.children().map(|(operation, below)| {
            let path = format!("{}{below}", route.path);
            Arc::new(Route { path, operation, ..Route::clone(route) })
        })
    });
    let below: Vec<_> = below.collect();
    // A path that is there already was asked for: it comes first.
    routes.extend(below);
    routes
}
