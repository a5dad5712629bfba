//! The configuration that is in force, and its replacement while the gateway runs.

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
    /// Two reloads at a time could otherwise finish in the wrong order.
    reloading: Mutex<()>,
}

/// What a successful reload has to say.
#[derive(Debug)]
pub struct Reloaded {
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
        Self { current, started, sources, overrides, reloading: Mutex::new(()) }
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
        let _one_at_a_time = self.reloading.lock();
        let (snapshot, warnings) = super::load(&self.sources, &self.overrides)?;
        let restart_only = restart_only(&self.started, &snapshot);
        self.current.store(Arc::new(snapshot));
        Ok(Reloaded { warnings, restart_only })
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
        ("store.data_dir", started.store.data_dir != now.store.data_dir),
        ("store.recovery", started.store.recovery != now.store.recovery),
        ("shutdown.grace", started.shutdown_grace != now.shutdown_grace),
    ]
    .into_iter()
    .filter_map(|(field, changed)| changed.then_some(field))
    .collect()
}
