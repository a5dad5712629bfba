//! Handle to the open sled ledger, which may be absent while it is repaired.
//!
//! Queries share it; the projector takes it away when it has failed, and puts back what it has opened
//! again or made anew.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::projection::store::{self, Store, StoreError};
use crate::records::error::LedgerError;
use tollgate_types::ids::Seq;

/// Slot of an open ledger for its sled projection.
#[derive(Default)]
pub(crate) struct ProjectionSlot {
    /// Held for reading by queries, for as long as they last.
    store: RwLock<Option<Store>>,
    /// Reason for its absence.
    away: Mutex<Option<String>>,
    /// Error of a query, not yet examined by the projector.
    suspicion: Mutex<Option<StoreError>>,
    /// Number of repairs since the start.
    mended: AtomicU64,
    /// Number of compactions since the start.
    packed: AtomicU64,
}

/// State of the sled projection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectionState {
    /// Reason why it cannot be read now; a repair is under way.
    pub away: Option<String>,
    /// Number of repairs since the start.
    pub mended: u64,
    /// Number of compactions since the start.
    pub packed: u64,
}

impl ProjectionSlot {
    /// Runs a query.
    ///
    /// # Errors
    /// [`LedgerError::Store`] while there is none, and when it fails: then it soon is none.
    pub(crate) fn ask<T>(
        &self,
        ask: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, LedgerError> {
        let slot = self.store.read();
        let Some(store) = &*slot else { return Err(self.absence()) };
        store.wear();
        // Sled panics on some kinds of corruption that it does not expect.
        let answer = catch_unwind(AssertUnwindSafe(|| ask(store)));
        let answer = answer.unwrap_or_else(|_| Err(StoreError::new("sled panicked")));
        answer.map_err(|error| {
            let cause = error.to_string();
            self.suspicion.lock().get_or_insert(error);
            LedgerError::Store(cause)
        })
    }

    /// Error for queries while sled is absent.
    pub(crate) fn absence(&self) -> LedgerError {
        let away = self.away.lock().clone();
        LedgerError::Store(away.unwrap_or_else(|| "it is being opened again".to_owned()))
    }

    /// Takes the error that a query met.
    pub(crate) fn suspected(&self) -> Option<StoreError> {
        self.suspicion.lock().take()
    }

    /// Runs a write of the projector.
    pub(crate) fn write<T>(
        &self,
        write: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.store.read() {
            Some(store) => write(store),
            None => Err(StoreError::new("it is away")),
        }
    }

    /// It is here from now on.
    pub(crate) fn put(&self, store: Store) {
        *self.store.write() = Some(store);
        *self.away.lock() = None;
        self.suspicion.lock().take();
    }

    /// Restores the store after a failure.
    pub(crate) fn put_back(&self, store: Store) {
        self.put(store);
        self.mended.fetch_add(1, Ordering::Relaxed);
    }

    /// It is not to be used any more, because of `cause`. Waits for the queries that use it.
    pub(crate) fn take_away(&self, cause: &str) {
        // Before the store goes: a query in between is to report the cause.
        *self.away.lock() = Some(cause.to_owned());
        let store = self.store.write().take();
        // Closing flushes and syncs, unless sled has noted an error itself; a sync that fails panics.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(store)));
        if dropped.is_err() {
            log::warn!("sled panicked while it was closed");
        }
    }

    /// Opens it again if its cache has grown: queries wait meanwhile, for some hundredths of a second.
    /// All of it is flushed, up to the record at `applied`.
    pub(crate) fn renew(&self, dir: &Path, applied: Seq) -> Result<(), StoreError> {
        if !self.write(|store| Ok(store.is_worn()))? {
            return Ok(());
        }
        let mut slot = self.store.write();
        Self::exchanged(&mut slot, dir, applied)
    }

    /// Flushes and reopens sled, so that later reads come from the disk. Queries wait some hundredths of a
    /// second.
    ///
    /// # Errors
    /// While there is none, and when it fails: then it soon is none.
    pub(crate) fn reopen(&self, dir: &Path) -> Result<(), StoreError> {
        let mut slot = self.store.write();
        // Sled panics on some kinds of corruption that it does not expect.
        let reopened = catch_unwind(AssertUnwindSafe(|| {
            let Some(store) = &*slot else { return Err(StoreError::new("it is away")) };
            store.flush()?;
            let applied = store.end()?.map_or(0, |end| end.seq);
            Self::exchanged(&mut slot, dir, applied)
        }));
        reopened.unwrap_or_else(|_| Err(StoreError::new("sled panicked")))
    }

    /// Closes it, and opens it anew with what it has begun.
    fn exchanged(slot: &mut Option<Store>, dir: &Path, applied: Seq) -> Result<(), StoreError> {
        let begun = slot.as_ref().map(Store::begun);
        drop(slot.take());
        let store = Self::reopened(dir, applied)?;
        if let Some(begun) = begun {
            store.go_on(begun);
        }
        *slot = Some(store);
        Ok(())
    }

    /// Asks it without what `ask` notes of a query's cost. An error is looked into by the projector once
    /// it is suspected.
    ///
    /// # Errors
    /// While there is none, and when it fails.
    pub(crate) fn inspect<T>(
        &self,
        ask: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let slot = self.store.read();
        let Some(store) = &*slot else { return Err(StoreError::new("it is away")) };
        let answer = catch_unwind(AssertUnwindSafe(|| ask(store)));
        answer.unwrap_or_else(|_| Err(StoreError::new("sled panicked")))
    }

    /// Records an error for the projector to examine.
    pub(crate) fn suspect(&self, error: StoreError) {
        self.suspicion.lock().get_or_insert(error);
    }

    fn reopened(dir: &Path, applied: Seq) -> Result<Store, StoreError> {
        let store = Store::open(dir)?;
        let end = store.end()?.map_or(0, |end| end.seq);
        // Sled may open with an older state than was flushed: queries would then miss records without
        // notice.
        if end != applied {
            return Err(StoreError::new(format!("it has record {end} last, not {applied}")));
        }
        Ok(store)
    }

    /// Replaces sled by its compacted copy: queries wait some hundredths of a second. Both contain all
    /// records up to `applied`. False if the old one stays.
    pub(crate) fn exchange(&self, ledger_dir: &Path, applied: Seq) -> Result<bool, StoreError> {
        let mut slot = self.store.write();
        let Some(store) = &*slot else { return Ok(false) };
        if !store.end_packing()? {
            return Ok(false);
        }
        let begun = store.begun();
        drop(slot.take());
        store::settle(ledger_dir)?;
        let store = Self::reopened(&ledger_dir.join("sled"), applied)?;
        store.go_on(begun);
        *slot = Some(store);
        self.packed.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Current state.
    pub(crate) fn state(&self) -> ProjectionState {
        ProjectionState {
            away: self.away.lock().clone(),
            mended: self.mended.load(Ordering::Relaxed),
            packed: self.packed.load(Ordering::Relaxed),
        }
    }
}
