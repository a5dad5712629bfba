//! The compiled configuration: immutable, cross-checked, shared by `Arc`. A request loads it once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::RecoveryPolicy;
use crate::price::PriceList;
use crate::protocols::limits::ModelLimits;
use crate::protocols::{Dialect, Operation};
use crate::secret::Secret;

/// Everything that the two YAML files say.
#[derive(Debug)]
pub struct Snapshot {
    /// The first 12 hex digits of the SHA-256 of both files' text: says which configuration runs.
    pub hash: String,
    /// Both files as typed, in one document: variables by their names, secrets by a fingerprint.
    pub described: serde_json::Value,
    /// Customer-facing addresses. Restart-only.
    pub listeners: Vec<Listener>,
    /// The operator's address. Restart-only.
    pub admin: Admin,
    /// Where the ledger lives. Restart-only.
    pub store: Store,
    /// How long requests are still taken after SIGTERM, while load balancers look elsewhere.
    /// Restart-only.
    pub shutdown_delay: Duration,
    /// Time that requests in flight get after that. Restart-only.
    pub shutdown_grace: Duration,
    /// How changes of the files are taken up.
    pub reload: Reload,
    /// Bounds on what is taken in.
    pub limits: Limits,
    /// How tasks are followed.
    pub tasks: Tasks,
    /// Which path does what, in the order of `routes.yaml`.
    pub routes: Vec<Arc<Route>>,
    /// Every upstream that is switched on, by name.
    pub upstreams: HashMap<String, Arc<Upstream>>,
    /// Every model that can be called, in the order of `models.yaml`.
    pub models: Vec<Arc<Model>>,
    /// `models` by id.
    pub models_by_id: HashMap<Arc<str>, Arc<Model>>,
    /// Those whose id is a pattern, the longest first.
    pub wildcards: Vec<Arc<Model>>,
}

/// One customer-facing address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where to listen. Port 0 takes any free port.
    pub address: SocketAddr,
    /// Whether HTTP/2 without TLS is spoken beside HTTP/1.1.
    pub h2c: bool,
}

/// The admin API's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where to listen.
    pub address: SocketAddr,
    /// The bearer token; `None` makes `serve` create one in `<data_dir>/admin-token`.
    pub token: Option<Secret>,
}

/// The embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The directory of journal and sled ledger; one process at a time.
    pub data_dir: PathBuf,
    /// What happens to holds that a crash left open.
    pub recovery: RecoveryPolicy,
}

/// How changes of the files are taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Whether the files are put in force as soon as they have changed.
    pub watch: bool,
}

/// Bounds on what is taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest request body, in bytes. Routes may set less or more.
    pub body_bytes_max: usize,
    /// All request bodies held at one time, in bytes.
    pub body_memory_bytes_max: usize,
    /// The time within which a whole body must arrive.
    pub body_timeout: Duration,
    /// The time within which a downstream read must bring something.
    pub read_timeout: Duration,
    /// The time within which a downstream write must get rid of something.
    pub write_timeout: Duration,
    /// The requests that are served at one time.
    pub requests_in_flight_max: usize,
}

/// How tasks are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// How soon an upstream is asked again about a young task.
    pub poll_min: Duration,
    /// How soon an upstream is asked again about an old task.
    pub poll_max: Duration,
    /// The customers who may wait for the end of a task at one time.
    pub waiting_max: u32,
    /// How long the same submit without an `Idempotency-Key` is taken for a repetition.
    pub repeat_window: Option<Duration>,
    /// Hosts that webhooks may be sent to although they are not on the public internet.
    pub webhook_hosts: Vec<String>,
}

/// A path and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The exact path, such as `/v1/chat/completions`.
    pub path: String,
    /// What it does.
    pub operation: Operation,
    /// The largest request body, in bytes.
    pub body_bytes_max: usize,
}

/// A provider's API.
#[derive(Debug)]
pub struct Upstream {
    /// Its name in `routes.yaml`.
    pub name: String,
    /// The protocol that it speaks.
    pub dialect: Dialect,
    /// Whether it is reached over TLS.
    pub tls: bool,
    /// DNS name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The `Host` header: the host, with the port unless it is the scheme's own.
    pub authority: String,
    /// What the base URL's path adds before a protocol's own path: empty, or `/v1` and the like,
    /// without a slash at its end.
    pub path_prefix: String,
    /// The operator's key at the provider; `None` for a server that asks for none.
    pub credential: Option<Secret>,
    /// How long to wait for it.
    pub timeouts: UpstreamTimeouts,
}

/// How long to wait for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// TCP and TLS handshakes.
    pub connect: Duration,
    /// The longest silence, before a response and inside it.
    pub read: Duration,
    /// Between two pieces of a request being taken.
    pub write: Duration,
}

/// The longest name of anything that can be named.
pub(super) const NAME_BYTES_MAX: usize = 128;
/// What names of models have beside ASCII letters and digits.
pub(super) const MODEL_PUNCTUATION: &str = "-_.:/@";

/// A model that customers can name.
#[derive(Debug)]
pub struct Model {
    /// The public id; shared, because every hold and record of a request names it.
    pub id: Arc<str>,
    /// What it can be asked to do.
    pub operations: Vec<Operation>,
    /// Where it is served, best first: ascending `priority`, then the order of `models.yaml`.
    pub targets: Vec<Target>,
    /// What a unit costs; all zero only where the file says `free: true`.
    pub prices: PriceList,
    /// What one request can use at most.
    pub limits: ModelLimits,
    /// `owned_by` in model lists.
    pub owned_by: String,
}

/// One place where a model is served.
#[derive(Clone, Debug)]
pub struct Target {
    /// The provider.
    pub upstream: Arc<Upstream>,
    /// The provider's name for the model; `None` for the name that the customer used, of which only
    /// a pattern says that it is the provider's.
    pub model: Option<String>,
    /// Lower is tried first.
    pub priority: u32,
    /// The share among targets of one priority.
    pub weight: u32,
}

impl Snapshot {
    /// The model that customers call by this name: the one with this id, or the one whose pattern
    /// fits best.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<&Arc<Model>> {
        let exact = self.models_by_id.get(name).filter(|model| !model.is_wildcard());
        exact.or_else(|| {
            let punctuation = MODEL_PUNCTUATION.as_bytes();
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || punctuation.contains(&byte);
            let fits = name.len() <= NAME_BYTES_MAX && name.bytes().all(is_name);
            let mut wildcards = self.wildcards.iter().filter(|_| fits);
            wildcards.find(|model| name.starts_with(model.literal()))
        })
    }
}

impl Model {
    /// Whether its id is a pattern: the beginning of names, and an asterisk.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.id.ends_with('*')
    }

    /// Its id without the asterisk.
    #[must_use]
    pub fn literal(&self) -> &str {
        self.id.strip_suffix('*').unwrap_or(&self.id)
    }
}
