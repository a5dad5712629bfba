//! `tollgate serve`: one process from its configuration to its last settlement.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use tokio::sync::watch;

use super::listen::{self, Bound};
use super::signals::{Asked, Signals};
use crate::admin::{self, AdminState, Readiness};
use crate::balance::Balancer;
use crate::config::snapshot::Snapshot;
use crate::config::{ConfigHandle, Diagnostic, Overrides, Sources};
use crate::gateway::{GatewayParts, check_upstreams};
use crate::ledger::{self, Ledger};
use crate::logging;
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::secret::{self, Secret};
use crate::tasks::Tasks;

/// How often the end of the requests in flight is looked for while draining.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// Run the gateway.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Listeners, upstreams, routes, limits and the store.
    #[arg(long, default_value = "routes.yaml", value_name = "FILE")]
    routes: PathBuf,
    /// Models, their targets and prices.
    #[arg(long, default_value = "models.yaml", value_name = "FILE")]
    models: PathBuf,
    #[command(flatten)]
    places: Places,
    /// Print one JSON line with the addresses on standard output when ready.
    #[arg(long)]
    ready_json: bool,
}

/// How long the end may take of what the drain's deadline has cut.
const CUT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a gateway listens and keeps its data, when not as `routes.yaml` says.
#[derive(Clone, Debug, Args)]
pub(super) struct Places {
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
        let sources = Sources::Files { routes: self.routes, models: self.models };
        let overrides = self.places.overrides();
        let Some(config) = load(&sources, &overrides) else { return Ok(ExitCode::FAILURE) };
        let ready_json = self.ready_json;
        run(Start { sources, overrides, config, log: self.places.log }, |running| {
            if ready_json {
                let line = serde_json::json!({
                    "base_url": running.base_url(),
                    "listeners": running.listeners,
                    "admin_url": running.admin_url(),
                });
                println!("{line}");
            }
            Ok(())
        })
    }
}

impl Places {
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
}

/// A gateway that takes requests.
pub(super) struct Running {
    pub(super) ledger: Arc<Ledger>,
    pub(super) admin_token: Secret,
    /// The customers' addresses, as URLs without a path.
    pub(super) listeners: Vec<String>,
    admin: SocketAddr,
}

impl Running {
    /// The first of the customers' addresses, as a URL without a path.
    pub(super) fn base_url(&self) -> String {
        self.listeners.first().cloned().unwrap_or_default()
    }

    /// The admin API's address, as a URL without a path.
    pub(super) fn admin_url(&self) -> String {
        listen::url("http", self.admin)
    }
}

/// Loads the configuration and prints what there is to say about it. `None` when it has errors.
pub(super) fn load(sources: &Sources, overrides: &Overrides) -> Option<Snapshot> {
    match crate::config::load(sources, overrides) {
        Ok((snapshot, warnings)) => {
            print(&warnings);
            Some(snapshot)
        }
        Err(errors) => {
            print(&errors);
            None
        }
    }
}

fn print(diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        eprintln!("{}", diagnostic.render());
    }
}

/// Runs a gateway until a signal ends it. `ready` is called once it takes requests.
pub(super) fn run(
    start: Start,
    ready: impl FnOnce(&Running) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    logging::install(start.log);
    #[cfg(feature = "otlp")]
    crate::traces::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(start, ready));
    // Drops what the deadline has cut. Each request is settled as it is dropped, so the ledger
    // closes behind them.
    runtime.shutdown_timeout(CUT_TIMEOUT);
    let result = served.map(|ledger| {
        ledger.close();
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
    ready: impl FnOnce(&Running) -> anyhow::Result<()>,
) -> anyhow::Result<Arc<Ledger>> {
    let Start { sources, overrides, config, .. } = start;
    let grace = config.shutdown_grace;
    let metrics = Arc::new(Metrics::new());
    let listeners = listen::bind_all(&config, listen::bind)?;
    let admin_listener = listen::bind(config.admin.address)?;
    let admin_address = admin_listener.local_addr()?;

    let ledger = open_ledger(&config, &metrics)?;
    let admin_token = match &config.admin.token {
        Some(token) => token.clone(),
        None => kept_token(&config.store.data_dir)?,
    };
    let urls = listeners.iter().map(Bound::url).collect();
    let handle = Arc::new(ConfigHandle::new(config, sources, overrides));
    let readiness = Arc::new(Readiness::default());
    let mut signals = Signals::listen()?;

    let (stop, stopped) = watch::channel(false);
    let outbound = Outbound::new().context("cannot prepare calls to upstreams")?;
    let tasks = start_tasks(&handle, &ledger, &outbound, &metrics)?;
    let balancer = Balancer::new(&handle.load());
    let parts = GatewayParts {
        config: Arc::clone(&handle),
        ledger: Arc::clone(&ledger),
        metrics: Arc::clone(&metrics),
        outbound,
        tasks: Arc::clone(&tasks),
        balancer: Arc::clone(&balancer),
        limits: Arc::default(),
    };
    let open = Arc::new(AtomicUsize::new(0));
    let services = listen::start(&parts, listeners, &stopped, &open)?;
    let state = AdminState {
        ledger: Arc::clone(&ledger),
        tasks,
        metrics: Arc::clone(&metrics),
        config: Arc::clone(&handle),
        balancer,
        readiness: Arc::clone(&readiness),
        token: admin_token.clone(),
    };
    let checks = tokio::spawn(check_upstreams(Arc::clone(&handle), Arc::clone(&state.balancer)));
    let admin = tokio::spawn(admin::serve(admin_listener, state));
    metrics.config_reloaded(true);
    readiness.set_ready();
    let running =
        Running { ledger: Arc::clone(&ledger), admin_token, listeners: urls, admin: admin_address };
    ready(&running)?;

    loop {
        match signals.next().await {
            Asked::Reload => reload(&handle, &metrics),
            Asked::Stop => break,
            Asked::Drain => {
                readiness.set_draining();
                stop.send_replace(true);
                drain(&open, grace, &mut signals).await;
                break;
            }
        }
    }
    stop.send_replace(true);
    services.iter().for_each(tokio::task::JoinHandle::abort);
    admin.abort();
    checks.abort();
    Ok(ledger)
}

/// Waits until the last connection is closed, the grace is over, or SIGINT asks not to wait. Idle
/// connections close at once; the others when their request has been answered.
async fn drain(open: &AtomicUsize, grace: Duration, signals: &mut Signals) {
    let started = Instant::now();
    let left = || open.load(Ordering::Relaxed);
    log::info!("draining: {} connections open", left());
    while left() > 0 && started.elapsed() < grace {
        tokio::select! {
            () = tokio::time::sleep(DRAIN_POLL) => {}
            asked = signals.next() => if asked == Asked::Stop { break },
        }
    }
    log::info!("drained: {} connections cut", left());
}

/// Swaps the configuration, or keeps the one that runs and says why.
fn reload(handle: &ConfigHandle, metrics: &Metrics) {
    match handle.reload() {
        Ok(reloaded) => {
            metrics.config_reloaded(true);
            for warning in &reloaded.warnings {
                log::warn!("{}", warning.render());
            }
            for field in &reloaded.restart_only {
                log::warn!("configuration: {field} has changed and takes effect after a restart");
            }
            log::info!("configuration reloaded: {}", handle.load().hash);
        }
        Err(errors) => {
            metrics.config_reloaded(false);
            for error in &errors {
                log::error!("{}", error.render());
            }
            log::error!("configuration not reloaded: the running one stays in force");
        }
    }
}

fn open_ledger(config: &Snapshot, metrics: &Arc<Metrics>) -> anyhow::Result<Arc<Ledger>> {
    let observer = Arc::clone(metrics);
    let options = ledger::Options {
        recovery: config.store.recovery,
        on_commit: Some(Box::new(move |commit| {
            observer.journal_committed(commit.took, commit.records);
        })),
        ..ledger::Options::new(&config.store.data_dir)
    };
    let (ledger, recovery) = Ledger::open(options).with_context(|| {
        format!("cannot open the ledger in {}", config.store.data_dir.display())
    })?;
    log::info!(
        "ledger open: {} records replayed, {} holds in doubt, {} ms",
        recovery.records_replayed,
        recovery.in_doubt.len(),
        recovery.took.as_millis(),
    );
    Ok(ledger)
}

fn start_tasks(
    config: &Arc<ConfigHandle>,
    ledger: &Arc<Ledger>,
    outbound: &Outbound,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Arc<Tasks>> {
    let data_dir = config.load().store.data_dir.clone();
    let (ledger, config) = (Arc::clone(ledger), Arc::clone(config));
    Tasks::start(ledger, config, outbound.clone(), Arc::clone(metrics), &data_dir)
        .context("cannot go on with the tasks of the ledger")
}

/// The admin token that a gateway without a configured one made for itself, at its first start.
fn kept_token(data_dir: &Path) -> anyhow::Result<Secret> {
    let path = data_dir.join("admin-token");
    match std::fs::read_to_string(&path) {
        Ok(token) if !token.trim().is_empty() => return Ok(Secret::new(token.trim().to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
    }
    let token = Secret::new_token();
    secret::write_private(&path, token.expose())
        .with_context(|| format!("cannot write {}", path.display()))?;
    log::info!("admin token written to {}", path.display());
    Ok(token)
}
