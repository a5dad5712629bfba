//! The fields of `routes.yaml`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;

use super::Entries;
use crate::config::scalar::{Address, DialectName, OperationName, Period, SecretText, Size};
use crate::config::url::BaseUrl;

/// Listeners, upstreams, routes, limits and the store of a Tollgate gateway.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Routes {
    /// Where customers connect. Default: `0.0.0.0:8080` with `h2c: true`. Takes effect at a restart.
    #[serde(default = "default_listeners")]
    pub(in crate::config) listeners: Vec<Listener>,
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
    /// How tasks, such as video, are followed.
    #[serde(default)]
    pub(in crate::config) tasks: Tasks,
    /// The providers' APIs, by a name of your own.
    pub(in crate::config) upstreams: Entries<Upstream>,
    /// Which path does what. Default: every operation that this build serves, at OpenAI's path.
    #[serde(default)]
    pub(in crate::config) routes: Option<Vec<Route>>,
}

fn default_listeners() -> Vec<Listener> {
    let address = Address(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)));
    vec![Listener { address, h2c: true }]
}

/// One address where customers connect.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Listener {
    /// The IP address and port to listen on, such as `0.0.0.0:8080`. Port 0 takes any free port.
    pub(in crate::config) address: Address,
    /// Whether HTTP/2 without TLS is spoken there, beside HTTP/1.1. Default: `true`.
    #[serde(default = "yes")]
    pub(in crate::config) h2c: bool,
}

fn yes() -> bool {
    true
}

/// The operator's API, probes and metrics.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Admin {
    /// The IP address and port to listen on. Default: `127.0.0.1:9090`.
    pub(in crate::config) address: Address,
    /// The bearer token of the admin API. Default: one is made at the first start and kept in
    /// `admin-token` in the data directory.
    pub(in crate::config) token: Option<SecretText>,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090))), token: None }
    }
}

/// Where the ledger is kept.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Store {
    /// The directory of the ledger, for one process at a time. Default: `data`.
    pub(in crate::config) data_dir: String,
    /// What becomes of calls that a crash left open. Default: `void`.
    pub(in crate::config) recovery: Recovery,
}

impl Default for Store {
    fn default() -> Self {
        Self { data_dir: "data".to_owned(), recovery: Recovery::Void }
    }
}

/// What becomes of calls that a crash left open.
#[derive(Clone, Copy, Debug, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(title = "a way of recovery", inline)]
pub(in crate::config) enum Recovery {
    /// The customer pays nothing.
    Void,
    /// The customer pays the least that the call must have cost: its estimated input.
    Floor,
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
            // At 40 KiB each, in 400 MiB and 20,000 descriptors: what a small machine has.
            requests_in_flight_max: 10_000,
        }
    }
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

/// A provider's API.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Upstream {
    /// The protocol that it speaks.
    pub(in crate::config) protocol: DialectName,
    /// Where its API begins, such as `https://api.openai.com/v1`. For the protocols `openai` and
    /// `voyage` this ends with the version; the others add their own paths in full.
    pub(in crate::config) base_url: BaseUrl,
    /// Your key at the provider. Leave it out for a server that asks for none.
    #[serde(default)]
    pub(in crate::config) credential: Option<SecretText>,
    /// Switches the upstream off, with a warning, when a variable or file that it names is missing.
    /// Default: `false`, which makes that an error.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "it is looked at before the values are complete enough to be read"
    )]
    pub(in crate::config) optional: bool,
    /// How long to wait for it.
    #[serde(default)]
    pub(in crate::config) timeouts: Timeouts,
}

/// How long to wait for an upstream.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Timeouts {
    /// For the TCP and TLS handshakes. Default: `5s`.
    pub(in crate::config) connect: Period,
    /// The longest silence, before a response begins and between two pieces of it. Default: `300s`.
    pub(in crate::config) read: Period,
    /// Until a piece of a request is taken. Default: `30s`.
    pub(in crate::config) write: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |count| Period(Duration::from_secs(count));
        Self { connect: seconds(5), read: seconds(300), write: seconds(30) }
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
