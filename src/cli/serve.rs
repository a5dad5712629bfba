//! `tollgate serve`: one process from its configuration to its last settlement.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::sync::watch;

use super::admin_token;
use super::descriptors;
use super::drain::Drain;
use super::files::Files;
use super::handover::{self, Handover, Inherited, Successor};
use super::listen::{self, Bound};
use super::private;
use super::signals::Signals;
use super::stores::{self, Stores};
use super::supervisor;
use super::terminal;
use crate::admin::{self, AdminState, Readiness};
use crate::balance::Balancer;
use crate::config::snapshot::Snapshot;
use crate::config::{ConfigHandle, Overrides, Sources};
use crate::console::{self, ConsoleParts};
use crate::gateway::{Connectors, Descriptors, GatewayParts, Hosted, Inward, check_upstreams};
use crate::ledger::Ledger;
use crate::logging;
use crate::mcp;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::password::Passwords;
use crate::reload;
use crate::request_log::RequestLog;
use crate::resident;
use crate::secret::Secret;
use crate::tasks::Tasks;

/// Run the gateway.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    places: ServeOverrides,
    /// Print one JSON line with the addresses on standard output when ready.
    #[arg(long)]
    ready_json: bool,
    /// Go on with a data directory that is a copy of another one, or was restored from one: what the
    /// other one has beyond it is given up.
    #[arg(long)]
    accept_fork: bool,
    /// Wait for the process that has started this one, and take its sockets and its ledger.
    #[arg(long, hide = true)]
    take_over: bool,
}

/// How long the end may take of what the drain's deadline has cut.
const CUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a gateway listens and keeps its data, when not as `routes.yaml` says.
#[derive(Clone, Debug, Args)]
pub(super) struct ServeOverrides {
    /// Customer-facing address; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Address of the admin API.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) admin: Option<SocketAddr>,
    /// Directory of the ledger.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// What is logged: error, warn, info, debug or trace.
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    pub(super) log: log::LevelFilter,
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        tollgate_process_memory::keep_little();
        let sources = self.files.sources();
        let overrides = self.places.overrides();
        let Some(config) = load(&sources, &overrides) else { return Ok(ExitCode::FAILURE) };
        let (ready_json, bodies) = (self.ready_json, config.limits.told_of_bodies());
        let role = match (self.take_over, self.accept_fork) {
            (true, _) => Role::TakesOver,
            (false, true) => Role::GoesOnAsCopy,
            (false, false) => Role::Serves,
        };
        run(Start { sources, overrides, config, log: self.places.log, role }, |running| {
            if ready_json {
                let line = serde_json::json!({
                    "base_url": running.base_url(),
                    "listeners": running.listeners,
                    "admin_url": running.admin_url,
                });
                // Nobody may be there to read it: whoever started the process before this one.
                drop(writeln!(terminal::out(), "{line}"));
            }
            log::info!("{bodies}");
            log::info!("serving at {}, admin API at {}", running.base_url(), running.admin_url);
            Ok(())
        })
    }
}

impl ServeOverrides {
    pub(super) fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen,
            admin: self.admin,
            data_dir: self.data.clone(),
            ..Overrides::default()
        }
    }
}

/// What a gateway starts from.
pub(super) struct Start {
    pub(super) sources: Sources,
    pub(super) overrides: Overrides,
    pub(super) config: Snapshot,
    pub(super) log: log::LevelFilter,
    pub(super) role: Role,
}

/// A process's place among those that serve one ledger one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// There is no other one.
    Demonstrates,
    /// It can hand over to another one.
    Serves,
    /// Serves requests, and its data directory may be a copy of another one.
    GoesOnAsCopy,
    /// Serves requests, after it has taken over from another process.
    TakesOver,
}

/// A gateway that takes requests.
pub(super) struct RunningGateway {
    pub(super) ledger: Arc<Ledger>,
    pub(super) admin_token: Secret,
    /// The customers' addresses, as URLs without a path.
    pub(super) listeners: Vec<String>,
    /// The admin API's address, as a URL without a path.
    pub(super) admin_url: String,
}

impl RunningGateway {
    /// The first of the customers' addresses, as a URL without a path.
    pub(super) fn base_url(&self) -> String {
        self.listeners.first().cloned().unwrap_or_default()
    }
}

/// Loads the configuration and prints what there is to say about it. `None` when it has errors.
pub(super) fn load(sources: &Sources, overrides: &Overrides) -> Option<Snapshot> {
    match crate::config::load(sources, overrides) {
        Ok((snapshot, warnings)) => {
            terminal::diagnostics(&warnings);
            Some(snapshot)
        }
        Err(errors) => {
            terminal::diagnostics(&errors);
            None
        }
    }
}

/// Runs a gateway until a signal ends it. `ready` is called once it takes requests.
pub(super) fn run(
    start: Start,
    ready: impl FnOnce(&RunningGateway) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    logging::install(start.log);
    private::only_for_owner();
    private::guard(&start.config.store.data_dir);
    // Before there are threads: the variables that name the sockets are taken out.
    let inherited = Inherited::from_environment()?;
    let shares = Descriptors::from_limit(descriptors::raise());
    #[cfg(feature = "otlp")]
    crate::traces::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(start, inherited, shares, ready));
    // Drops what the deadline has cut. Each request is settled as it is dropped, so the ledger
    // closes behind them.
    runtime.shutdown_timeout(CUT_TIMEOUT);
    let result = served.map(|(stores, successor)| {
        stores.close();
        // What waits for the ledger goes on when this is dropped.
        drop(successor);
        ExitCode::SUCCESS
    });
    #[cfg(feature = "otlp")]
    crate::traces::flush();
    logging::flush();
    result
}

/// Serves until it is told to stop. What is in flight then goes on until the runtime ends.
async fn serve(
    start: Start,
    mut inherited: Inherited,
    shares: Descriptors,
    ready: impl FnOnce(&RunningGateway) -> anyhow::Result<()>,
) -> anyhow::Result<(Stores, Option<Successor>)> {
    let Start { sources, overrides, config, role, .. } = start;
    let mut signals = Signals::listen()?;
    // Before the wait for a predecessor, which may be longer than a watchdog's interval.
    let watchdog = tokio::spawn(supervisor::feed_the_watchdog());
    let (delay, grace) = (config.shutdown_delay, config.shutdown_grace);
    let metrics = Arc::new(Metrics::new());
    let listeners = listen::bind_all(&config, |address| inherited.bind(address))?;
    let admin_listener = inherited.bind(config.admin.address)?;
    // Nobody would ever accept what comes to those that are left.
    drop(inherited);
    let handover = handover(role, &listeners, &admin_listener)?;
    let admin_address = admin_listener.local_addr()?;

    let connectors = Arc::new(Connectors::default());
    connectors.begin(&config);
    // Before the process that runs gives up its place to this one.
    let fleet = stores::open_fleet(&config, &metrics).await?;
    if role == Role::TakesOver {
        handover::wait_for_predecessor(grace)?;
    }
    let mut stores = Stores::open(&config, &metrics, role, fleet).await?;
    let (ledger, requests) = (Arc::clone(&stores.ledger), Arc::clone(&stores.requests));
    let admin_token = admin_token::configured_or_made(&config)?;
    let urls = listeners.iter().map(Bound::url).collect();
    let handle = Arc::new(ConfigHandle::new(config, sources, overrides));
    let readiness = Arc::new(Readiness::default());
    let (stop, stopped) = watch::channel(false);
    let outbound = Outbound::new(&metrics, Arc::clone(connectors.dialer()));
    let (credentials, connecting) = (Arc::clone(&outbound.credentials), Arc::clone(&connectors));
    let tasks = start_tasks(&handle, &ledger, &outbound, &metrics, &requests)?;
    let passwords = Passwords::default();
    let parts =
        parts(&handle, &stores, &metrics, (connectors, outbound), &tasks, &passwords, shares)?;
    let (balancer, deadline) = (Arc::clone(&parts.balancer), Arc::clone(&parts.deadline));
    let open = Arc::clone(&parts.open);
    let listening = listen::start(&parts, listeners, &stopped)?;
    let state = AdminState {
        ledger: Arc::clone(&ledger),
        tasks,
        metrics: Arc::clone(&metrics),
        requests: Arc::clone(&requests),
        config: Arc::clone(&handle),
        balancer,
        credentials,
        readiness: Arc::clone(&readiness),
        token: admin_token.clone(),
        passwords,
        guesses: Arc::default(),
    };
    let watching = watch(&handle, &metrics, &state.balancer, connecting);
    let app = admin::app(state).context("cannot prepare the operators' console")?;
    let tls = listen::admin_tls(&handle, &metrics, &stopped)?;
    let has_tls = tls.is_some();
    let admin = tokio::spawn(admin::serve(admin_listener, app, shares.admin, tls));
    metrics.config_loaded();
    readiness.set_ready();
    let admin_url = listen::url(if has_tls { "https" } else { "http" }, admin_address);
    let running =
        RunningGateway { ledger: Arc::clone(&ledger), admin_token, listeners: urls, admin_url };
    ready(&running)?;
    supervisor::ready();

    let mut drain = Drain { readiness, stop, listening, open, deadline, delay, grace, handover };
    let successor = drain.until_told(&mut signals, &handle, &metrics).await;
    drain.stop.send_replace(true);
    drain.listening.iter().for_each(tokio::task::JoinHandle::abort);
    admin.abort();
    watching.iter().chain([&watchdog]).for_each(tokio::task::JoinHandle::abort);
    stores.leave().await;
    Ok((stores, successor))
}

/// What is done every few seconds: upstreams are checked, files looked at, figures read, memory given
/// back.
fn watch(
    config: &Arc<ConfigHandle>,
    metrics: &Arc<Metrics>,
    balancer: &Arc<Balancer>,
    connectors: Arc<Connectors>,
) -> [tokio::task::JoinHandle<()>; 4] {
    let limits = Arc::clone(config);
    [
        tokio::spawn(resident::give_back(move || limits.load().limits.body_memory_bytes_max)),
        tokio::spawn(check_upstreams(
            Arc::clone(config),
            Arc::clone(balancer),
            connectors,
            Arc::clone(metrics),
        )),
        tokio::spawn(reload::watch(Arc::clone(config), Arc::clone(metrics))),
        tokio::spawn(Arc::clone(metrics).watch_recent()),
    ]
}

/// What the next process will need.
fn handover(
    role: Role,
    listeners: &[Bound],
    admin: &TcpListener,
) -> anyhow::Result<Option<Arc<Handover>>> {
    if role == Role::Demonstrates {
        return Ok(None);
    }
    let sockets = listeners.iter().map(|bound| &bound.socket).chain([admin]);
    let sockets = sockets.map(TcpListener::try_clone).collect::<std::io::Result<_>>()?;
    Ok(Some(Arc::new(Handover::prepare(sockets)?)))
}

/// What the gateway is made of.
fn parts(
    config: &Arc<ConfigHandle>,
    stores: &Stores,
    metrics: &Arc<Metrics>,
    (connectors, outbound): (Arc<Connectors>, Outbound),
    tasks: &Arc<Tasks>,
    passwords: &Passwords,
    descriptors: Descriptors,
) -> anyhow::Result<GatewayParts> {
    let mut parts = GatewayParts {
        config: Arc::clone(config),
        ledger: Arc::clone(&stores.ledger),
        metrics: Arc::clone(metrics),
        requests: Arc::clone(&stores.requests),
        connectors,
        outbound,
        tasks: Arc::clone(tasks),
        balancer: Balancer::new(&config.load()),
        limits: Arc::clone(&stores.limits),
        deadline: Arc::default(),
        hosted: Vec::new(),
        inward: Inward::default(),
        descriptors,
        open: Arc::default(),
    };
    parts.hosted = hosted(&parts, passwords)?;
    Ok(parts)
}

/// The gateway's own services on the customers' listeners.
fn hosted(gateway: &GatewayParts, passwords: &Passwords) -> anyhow::Result<Vec<Hosted>> {
    let parts = ConsoleParts {
        ledger: Arc::clone(&gateway.ledger),
        tasks: Arc::clone(&gateway.tasks),
        requests: Arc::clone(&gateway.requests),
        config: Arc::clone(&gateway.config),
        passwords: passwords.clone(),
        limits: Arc::clone(&gateway.limits),
        metrics: Arc::clone(&gateway.metrics),
    };
    let console = console::hosted(parts).context("cannot prepare the customers' console")?;
    let agents = mcp::hosted(&gateway.config, &gateway.inward);
    Ok(console.into_iter().chain(agents).collect())
}

fn start_tasks(
    config: &Arc<ConfigHandle>,
    ledger: &Arc<Ledger>,
    outbound: &Outbound,
    metrics: &Arc<Metrics>,
    requests: &Arc<RequestLog>,
) -> anyhow::Result<Arc<Tasks>> {
    let data_dir = config.load().store.data_dir.clone();
    let (ledger, config) = (Arc::clone(ledger), Arc::clone(config));
    let (metrics, requests) = (Arc::clone(metrics), Arc::clone(requests));
    Tasks::start(ledger, config, outbound.clone(), metrics, requests, &data_dir)
        .context("cannot go on with the tasks of the ledger")
}
