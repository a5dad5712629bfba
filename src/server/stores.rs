//! Stores of a gateway: its ledger, its request log, and its membership in a fleet.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::handover;
use crate::cli::exit::Failure;
use crate::cli::serve::ServeRole;
use crate::config::snapshot::Snapshot;
use crate::fleet::{Fleet, FleetError, FleetOptions, node};
use crate::ledger::{self, Ledger, OpenError, SharedFunds};
use crate::limits::Limiter;
use crate::metrics::Metrics;
use crate::request_log::RequestLog;

/// Persistent state of a gateway.
pub(super) struct Stores {
    pub(super) ledger: Arc<Ledger>,
    pub(super) requests: Arc<RequestLog>,
    pub(super) limits: Arc<Limiter>,
    node: Option<AtWork>,
}

/// A running node of a fleet.
struct AtWork {
    stop: watch::Sender<bool>,
    exchanging: JoinHandle<()>,
    following: JoinHandle<()>,
    sharing: JoinHandle<()>,
}

impl Stores {
    /// Open the stores, and join the fleet if configured.
    pub(super) async fn open(
        config: &Snapshot,
        metrics: &Arc<Metrics>,
        role: ServeRole,
        fleet: Option<Arc<Fleet>>,
    ) -> anyhow::Result<Self> {
        let ledger = open_ledger(config, metrics, role, fleet.as_ref())?;
        // After the ledger, whose lock keeps others away from it too.
        let requests = open_request_log(config)?;
        let limits = match &fleet {
            Some(_) => Arc::new(Limiter::new().shared()),
            None => Arc::default(),
        };
        let node = match &fleet {
            Some(fleet) => Some(join(fleet, &ledger, &limits, config).await?),
            None => None,
        };
        Ok(Self { ledger, requests, limits, node })
    }

    /// Return the node's leases to the fleet, except money that calls still need.
    pub(super) async fn leave(&mut self) {
        let Some(node) = self.node.take() else { return };
        node.following.abort();
        node.stop.send_replace(true);
        if node.sharing.await.is_err() {
            log::error!("the node's exchanges about limits had ended in a panic");
        }
        if node.exchanging.await.is_err() {
            log::error!("the node's exchanges had ended in a panic");
        }
    }

    /// Close the stores: the next process takes them over with the ledger.
    pub(super) fn close(&self) {
        self.requests.close();
        self.ledger.close();
    }
}

/// Connect to the configured fleet, if any, and verify that its database is usable.
///
/// # Errors
/// The error of the database or the data directory, with advice.
pub(super) async fn open_fleet(
    config: &Snapshot,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<Arc<Fleet>>> {
    let Some(postgres) = &config.store.postgres else { return Ok(None) };
    let options = FleetOptions {
        postgres: postgres.options.clone(),
        name: postgres.node.clone(),
        term: postgres.lease,
        cover: postgres.cover,
        data_dir: config.store.data_dir.clone(),
    };
    let opened = Fleet::open(options, Some(metrics.in_fleet())).await;
    opened.map(Some).map_err(failure).context("cannot join the fleet")
}

/// Add the exit code for scripts.
fn failure(error: FleetError) -> anyhow::Error {
    match &error {
        FleetError::Db(cause) => anyhow::Error::new(Failure::of_database(cause)),
        _ => anyhow::Error::new(error),
    }
}

async fn join(
    fleet: &Arc<Fleet>,
    ledger: &Arc<Ledger>,
    limits: &Arc<Limiter>,
    config: &Snapshot,
) -> anyhow::Result<AtWork> {
    let joined = node::join(fleet, ledger, config.store.recovery).await;
    let joined = joined.map_err(failure).context("cannot join the fleet")?;
    log::info!("{} ({}) has joined the fleet", fleet.node(), fleet.name());
    let (stop, stopped) = watch::channel(false);
    let sharing = node::share::share(Arc::clone(ledger), Arc::clone(limits), stopped.clone());
    let sharing = tokio::spawn(sharing);
    let exchanging = tokio::spawn(joined.run(stopped));
    let following = tokio::spawn(node::follow::follow(Arc::clone(ledger)));
    Ok(AtWork { stop, exchanging, following, sharing })
}

fn open_ledger(
    config: &Snapshot,
    metrics: &Arc<Metrics>,
    role: ServeRole,
    fleet: Option<&Arc<Fleet>>,
) -> anyhow::Result<Arc<Ledger>> {
    let observer = Arc::clone(metrics);
    let open = || {
        let observer = Arc::clone(&observer);
        Ledger::open(ledger::Options {
            recovery: config.store.recovery,
            fleet: fleet.cloned().map(|fleet| fleet as Arc<dyn SharedFunds>),
            on_commit: Some(Box::new(move |commit| {
                observer.journal_committed(commit.took, commit.records);
            })),
            accept_fork: role == ServeRole::GoesOnAsCopy,
            maintenance: maintenance(config, metrics),
            pruning: config.store.pruning,
            ..ledger::Options::new(&config.store.data_dir)
        })
    };
    let opened = match role {
        ServeRole::TakesOver => {
            handover::once_unlocked(open, |error| matches!(error, OpenError::InUse(_)))
        }
        ServeRole::Demonstrates | ServeRole::Serves | ServeRole::GoesOnAsCopy => open(),
    };
    let (ledger, recovery) = opened.map_err(|error| {
        // Most of these errors name the directory, or a file in it, themselves.
        let dir = config.store.data_dir.display().to_string();
        let is_named = error.to_string().contains(&dir);
        let place = if is_named { String::new() } else { format!(" in {dir}") };
        anyhow::Error::new(error).context(format!("cannot open the ledger{place}"))
    })?;
    if let Some((path, byte)) = &recovery.torn_at {
        log::warn!(
            "{}: {} bytes of an unfinished write were cut at byte {byte}. Nobody was told that they \
             were durable",
            path.display(),
            recovery.torn_bytes_cut
        );
    }
    if recovery.unrecorded > 0 {
        log::warn!(
            "{} calls were sent upstream before their records were on disk; they are in doubt now, and \
             nobody pays for them",
            recovery.unrecorded
        );
    }
    log::info!(
        "ledger open: {} records replayed, {} holds in doubt, {} ms",
        recovery.records_replayed,
        recovery.in_doubt.len(),
        recovery.took.as_millis(),
    );
    Ok(ledger)
}

/// Settings for the maintenance of the journal's closed files.
fn maintenance(config: &Snapshot, metrics: &Arc<Metrics>) -> ledger::MaintenanceOptions {
    let observer = Arc::clone(metrics);
    ledger::MaintenanceOptions {
        archive: config.store.archive.clone(),
        on_event: Some(Box::new(move |kept| observer.journal_kept(&kept))),
        ..ledger::MaintenanceOptions::default()
    }
}

/// Directory of the request log within the data directory.
const REQUESTS: &str = "requests";

/// Open the request log. Call it after opening the ledger, whose lock protects both.
fn open_request_log(config: &Snapshot) -> anyhow::Result<Arc<RequestLog>> {
    if !config.request_log.enabled {
        return Ok(RequestLog::off());
    }
    let dir = config.store.data_dir.join(REQUESTS);
    RequestLog::open(dir, config.request_log.size_max).context("cannot start the request log")
}
