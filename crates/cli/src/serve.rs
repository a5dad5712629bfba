//! `tollgate serve`: its arguments, and what the process that serves is started from.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tollgate_config::snapshot::Snapshot;
use tollgate_config::{Overrides, Sources};
use tollgate_ledger::Ledger;
use tollgate_types::secret::Secret;

use super::Program;
use super::files::Files;
use super::terminal;

/// Run the gateway until a signal ends it.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    places: ServeOverrides,
    /// Print one JSON line with the addresses on standard output when ready.
    #[arg(long)]
    ready_json: bool,
    /// Accept a data directory that is a copy or was restored from one: later records of the original
    /// are abandoned.
    #[arg(long)]
    accept_fork: bool,
    /// Wait for the parent process to end, and take over its sockets and its ledger.
    #[arg(long, hide = true)]
    take_over: bool,
}

/// Overrides of addresses, data directory and log level.
#[derive(Clone, Debug, Args)]
pub(super) struct ServeOverrides {
    /// Customer-facing address; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Address of the admin API.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) admin: Option<SocketAddr>,
    /// Data directory of the ledger.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Log level: error, warn, info, debug or trace.
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    pub(super) log: log::LevelFilter,
}

impl Serve {
    pub(super) fn run(self, program: &Program) -> anyhow::Result<ExitCode> {
        // First of all: the allocator's settings are plain variables, which a second thread may read meanwhile.
        tollgate_process_memory::keep_little();
        let sources = self.files.sources();
        let overrides = self.places.overrides();
        // Before any socket or store is opened: a faulty file must not end a hand-over half done.
        let Some(config) = load(&sources, &overrides) else { return Ok(ExitCode::FAILURE) };
        let (ready_json, bodies) = (self.ready_json, config.limits.body_memory_summary());
        let role = match (self.take_over, self.accept_fork) {
            (true, _) => ServeRole::TakesOver,
            (false, true) => ServeRole::GoesOnAsCopy,
            (false, false) => ServeRole::Serves,
        };
        let start = Start { sources, overrides, config, log: self.places.log, role };
        let ready: Ready = Box::new(move |running| {
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
        });
        (program.serve)(start, ready)
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

/// The action of a command once the gateway takes requests.
pub type Ready = Box<dyn FnOnce(&RunningGateway) -> anyhow::Result<()>>;

/// Inputs of a gateway's start.
#[derive(Debug)]
pub struct Start {
    /// The files of the configuration, for reloads.
    pub sources: Sources,
    /// Values of the command line that replace those of the files, also after a reload.
    pub overrides: Overrides,
    /// The loaded configuration.
    pub config: Snapshot,
    /// Minimum level of log lines.
    pub log: log::LevelFilter,
    /// Relation to another process that serves the same ledger.
    pub role: ServeRole,
}

/// Role of a process in the succession of processes that serve one ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeRole {
    /// Runs the demo, without handover.
    Demonstrates,
    /// Serves, and can hand over to a successor.
    Serves,
    /// Serves from a data directory that may be a copy.
    GoesOnAsCopy,
    /// Serves after taking over from a predecessor.
    TakesOver,
}

/// A gateway that accepts requests.
#[derive(Debug)]
pub struct RunningGateway {
    /// The ledger, open.
    pub ledger: Arc<Ledger>,
    /// The token of the admin API.
    pub admin_token: Secret,
    /// Customer-facing addresses, as URLs without a path.
    pub listeners: Vec<String>,
    /// Admin API address, as a URL without a path.
    pub admin_url: String,
}

impl RunningGateway {
    /// First customer-facing address, as a URL without a path.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.listeners.first().cloned().unwrap_or_default()
    }
}

/// Load the configuration and print its diagnostics. `None` if it has errors.
pub(super) fn load(sources: &Sources, overrides: &Overrides) -> Option<Snapshot> {
    match tollgate_config::load(sources, overrides) {
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
