//! The configuration that is in force, and its replacement while the gateway runs.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::snapshot::{Listener, Snapshot};
use super::{Diagnostic, Overrides, Sources};

/// Hands out the configuration in force. A reload replaces it whole or not at all.
#[derive(Debug)]
pub struct ConfigHandle {
    current: ArcSwap<Snapshot>,
    /// What the process started with: what restart-only fields still are.
    started: Arc<Snapshot>,
    sources: Sources,
    overrides: Overrides,
    /// What the files held when they were last tried, whether they were taken or refused. Its lock
    /// keeps two reloads at a time from finishing in the wrong order.
    tried: Mutex<String>,
}

/// What a successful reload has to say.
#[derive(Debug)]
pub struct Reloaded {
    /// The hash of the files.
    pub hash: String,
    /// What is probably not as meant.
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
        Self { current, started, sources, overrides, tried }
    }

    /// The configuration in force. A request asks once.
    #[must_use]
    pub fn load(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Loads the files again and puts them in force.
    ///
    /// # Errors
    /// Everything that is wrong with them; the configuration in force then stays.
    pub fn reload(&self) -> Result<Reloaded, Vec<Diagnostic>> {
        let mut tried = self.tried.lock();
        self.reload_locked(&mut tried)
    }

    /// Does the same if the files hold something else than when they were last tried.
    ///
    /// # Errors
    /// As of [`ConfigHandle::reload`].
    pub fn reload_if_changed(&self) -> Option<Result<Reloaded, Vec<Diagnostic>>> {
        let mut tried = self.tried.lock();
        (self.sources.content() != *tried).then(|| self.reload_locked(&mut tried))
    }

    /// Whether the files hold something else than when they were last tried.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        let tried = self.tried.lock().clone();
        self.sources.content() != tried
    }

    /// Says what a reload would, and changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with the files.
    pub fn try_out(&self) -> Result<Reloaded, Vec<Diagnostic>> {
        self.load_files().map(|(_, reloaded)| reloaded)
    }

    /// Where the files are.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        self.sources.directories()
    }

    /// A text that changes whenever what the files hold does.
    #[must_use]
    pub fn content(&self) -> String {
        self.sources.content()
    }

    fn reload_locked(&self, tried: &mut String) -> Result<Reloaded, Vec<Diagnostic>> {
        // Before they are read: what is written meanwhile is then tried once more, never missed.
        *tried = self.sources.content();
        let (snapshot, reloaded) = self.load_files()?;
        self.current.store(Arc::new(snapshot));
        Ok(reloaded)
    }

    fn load_files(&self) -> Result<(Snapshot, Reloaded), Vec<Diagnostic>> {
        let (snapshot, warnings) = super::load(&self.sources, &self.overrides)?;
        let restart_only = restart_only(&self.started, &snapshot);
        let hash = snapshot.hash.clone();
        Ok((snapshot, Reloaded { hash, warnings, restart_only }))
    }
}

/// Whether the sockets that are open can go on as they are.
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
        ("admin.console", started.admin.console != now.admin.console),
        ("console.enabled", started.console.enabled != now.console.enabled),
        ("console.path", started.console.path != now.console.path),
        ("store.data_dir", started.store.data_dir != now.store.data_dir),
        ("store.recovery", started.store.recovery != now.store.recovery),
        ("request_log", started.request_log != now.request_log),
        ("mcp.enabled", started.mcp.enabled != now.mcp.enabled),
        ("mcp.path", started.mcp.path != now.mcp.path),
        ("mcp.body_max", started.mcp.body_bytes_max != now.mcp.body_bytes_max),
        ("shutdown.delay", started.shutdown_delay != now.shutdown_delay),
        ("shutdown.grace", started.shutdown_grace != now.shutdown_grace),
    ]
    .into_iter()
    .filter_map(|(field, changed)| changed.then_some(field))
    .collect()
}
