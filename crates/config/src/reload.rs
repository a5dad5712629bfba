//! The configuration that is in force, and its replacement while the gateway runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::snapshot::{Listener, Snapshot};
use super::{Diagnostic, Overrides, RedactedConfig, Sources};
use tollgate_types::clock::UnixMs;

/// Holder of the active configuration. A reload replaces it completely or not at all.
#[derive(Debug)]
pub struct ConfigHandle {
    current: ArcSwap<Snapshot>,
    /// The configuration at the start of the process: restart-only fields keep its values.
    started: Arc<Snapshot>,
    sources: Sources,
    overrides: Overrides,
    /// Contents of the files at the last attempt, accepted or refused. Its lock keeps two simultaneous
    /// reloads from finishing in the wrong order.
    tried: Mutex<String>,
    /// Time when the configuration in force was loaded, in milliseconds since 1970.
    loaded_at: AtomicU64,
    last: Mutex<Option<Arc<LastReload>>>,
}

/// Cause of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A signal to the process.
    Signal,
    /// A change of the files.
    Watch,
    /// The operator of this name.
    Operator(String),
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal => f.write_str("a signal"),
            Self::Watch => f.write_str("a change of the files"),
            Self::Operator(name) => f.write_str(name),
        }
    }
}

/// Result of the last attempt to reload.
#[derive(Clone, Debug)]
pub struct LastReload {
    /// Time of the attempt.
    pub at: UnixMs,
    /// Cause of the attempt.
    pub by: Trigger,
    /// Changes, or all diagnostics of faulty files.
    pub result: Result<ReloadSummary, Vec<Diagnostic>>,
}

/// Outcome of a successful reload.
#[derive(Clone, Debug)]
pub struct ReloadSummary {
    /// The hash of the files.
    pub hash: String,
    /// Warnings about probable mistakes.
    pub warnings: Vec<Diagnostic>,
    /// Fields that differ from what the process started with, and take effect at a restart.
    pub restart_only: Vec<&'static str>,
}

impl ConfigHandle {
    /// A handle on a configuration that was loaded from `sources` with `overrides`.
    #[must_use]
    pub fn new(snapshot: Snapshot, sources: Sources, overrides: Overrides) -> Self {
        let started = Arc::new(snapshot);
        let current = ArcSwap::new(Arc::clone(&started));
        // A file that has changed since it was loaded has another hash, and is tried.
        let tried = Mutex::new(started.hash.clone());
        let loaded_at = AtomicU64::new(UnixMs::now().0);
        Self { current, started, sources, overrides, tried, loaded_at, last: Mutex::default() }
    }

    /// Time when the active configuration was loaded.
    #[must_use]
    pub fn loaded_at(&self) -> UnixMs {
        UnixMs(self.loaded_at.load(Ordering::Relaxed))
    }

    /// Result of the last reload; `None` before the first.
    #[must_use]
    pub fn last_reload(&self) -> Option<Arc<LastReload>> {
        self.last.lock().clone()
    }

    /// Keeps how a reload ended for those who ask later.
    pub fn remember(&self, by: Trigger, result: &Result<ReloadSummary, Vec<Diagnostic>>) {
        let last = LastReload { at: UnixMs::now(), by, result: result.clone() };
        *self.last.lock() = Some(Arc::new(last));
    }

    /// The hash of the files as they are now, and both as typed in one document.
    ///
    /// # Errors
    /// What keeps the files from being YAML.
    pub fn describe_files(&self) -> Result<(String, RedactedConfig), Vec<Diagnostic>> {
        match &self.sources {
            Sources::Files { routes, models } => super::describe(routes, models),
            Sources::Embedded => {
                let running = self.load();
                Ok((running.hash.clone(), running.described.clone()))
            }
        }
    }

    /// The active configuration. A request loads it once.
    #[must_use]
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Reloads the files.
    ///
    /// # Errors
    /// Everything that is wrong with them; the configuration in force then stays.
    pub fn reload(&self) -> Result<ReloadSummary, Vec<Diagnostic>> {
        let mut tried = self.tried.lock();
        self.reload_locked(&mut tried)
    }

    /// Reloads the files if their content has changed since the last attempt.
    ///
    /// # Errors
    /// As of [`ConfigHandle::reload`].
    pub fn reload_if_changed(&self) -> Option<Result<ReloadSummary, Vec<Diagnostic>>> {
        let mut tried = self.tried.lock();
        (self.sources.content() != *tried).then(|| self.reload_locked(&mut tried))
    }

    /// True if the files differ from those of the last attempt.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        let tried = self.tried.lock().clone();
        self.sources.content() != tried
    }

    /// Reports the result of a reload without any change.
    ///
    /// # Errors
    /// Everything that is wrong with the files.
    pub fn try_out(&self) -> Result<ReloadSummary, Vec<Diagnostic>> {
        self.load_files().map(|(_, reloaded)| reloaded)
    }

    /// Directories of the files.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        self.sources.directories()
    }

    /// A text that changes exactly when the contents of the files change.
    #[must_use]
    pub fn content(&self) -> String {
        self.sources.content()
    }

    fn reload_locked(&self, tried: &mut String) -> Result<ReloadSummary, Vec<Diagnostic>> {
        // Before they are read: what is written meanwhile is then tried once more, never missed.
        *tried = self.sources.content();
        let (snapshot, reloaded) = self.load_files()?;
        // Requests that run keep the snapshot that they began with.
        self.current.store(Arc::new(snapshot));
        self.loaded_at.store(UnixMs::now().0, Ordering::Relaxed);
        Ok(reloaded)
    }

    fn load_files(&self) -> Result<(Snapshot, ReloadSummary), Vec<Diagnostic>> {
        let (snapshot, warnings) = super::load(&self.sources, &self.overrides)?;
        let restart_only = restart_only(&self.started, &snapshot);
        let hash = snapshot.hash.clone();
        Ok((snapshot, ReloadSummary { hash, warnings, restart_only }))
    }
}

/// True if open sockets can be kept unchanged.
fn same_listeners(started: &Snapshot, now: &Snapshot) -> bool {
    let (started, now) = (&started.listeners, &now.listeners);
    let same = |(one, other): (&Listener, &Listener)| one.is_served_like(other);
    started.len() == now.len() && started.iter().zip(now).all(same)
}

/// The fields that a running process cannot change.
fn restart_only(started: &Snapshot, now: &Snapshot) -> Vec<&'static str> {
    [
        ("listeners", !same_listeners(started, now)),
        ("admin.address", started.admin.address != now.admin.address),
        ("admin.token", started.admin.token != now.admin.token),
        // Files of a certificate are reloaded; only TLS or none is fixed when the socket opens.
        ("admin.tls", started.admin.tls.is_some() != now.admin.tls.is_some()),
        ("admin.console", started.admin.console != now.admin.console),
        ("console.enabled", started.console.enabled != now.console.enabled),
        ("console.path", started.console.path != now.console.path),
        ("store.data_dir", started.store.data_dir != now.store.data_dir),
        ("store.recovery", started.store.recovery != now.store.recovery),
        ("store.postgres", started.store.postgres != now.store.postgres),
        ("store.journal", started.store.archive != now.store.archive),
        ("request_log", started.request_log != now.request_log),
        ("mcp.enabled", started.mcp.enabled != now.mcp.enabled),
        ("mcp.path", started.mcp.path != now.mcp.path),
        ("mcp.json_values_max", started.mcp.json_values_max != now.mcp.json_values_max),
        ("mcp.body_max", started.mcp.body_bytes_max != now.mcp.body_bytes_max),
        ("shutdown.delay", started.shutdown_delay != now.shutdown_delay),
        ("shutdown.grace", started.shutdown_grace != now.shutdown_grace),
    ]
    .into_iter()
    .filter_map(|(field, changed)| changed.then_some(field))
    .collect()
}
