//! All rows of the store read once, some at a time, while it is written to.
//!
//! The rows come in the order of their keys, and what is written meanwhile to rows that were read is
//! followed. So what has been gathered at the end is the state at one record of the journal, whatever
//! happened on the way. Only what a state needs is kept; the rest is read so that damage shows.

use std::ops::Bound;

use sha2::{Digest as _, Sha256};
use sled::IVec;

use super::batch::Batch;
use super::customers::{ACT, ACT_ID, ACT_OF};
use super::rows::MemoryRows;
use super::{Store, StoreError, is_for_queries, load, losses, tasks};
use crate::journal::segment::Position;
use crate::records::act::Act;
use crate::rules::audit;
use crate::rules::core::Core;
use crate::rules::shards::new_cores;
use tollgate_types::ids::Seq;

/// The bytes of rows that are read under one lock: a few milliseconds, for which nothing is written. Few
/// in tests, so that writes fall between all rows of a small store.
const STEP_BYTES: usize = if cfg!(test) { 64 } else { 128 << 10 };

/// A read of all rows in progress.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Random id of this sweep. A sweep continues in a reopened store, so the id must not repeat.
    name: u64,
    /// Rows that a state needs, without those of tasks.
    state: MemoryRows,
    /// The hash of who did what.
    acts: Sha256,
    /// The rows up to this key were read.
    read_to: IVec,
    figures: SweepFigures,
}

/// Progress of a read of all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepFigures {
    pub(crate) rows: u64,
    /// Keys and values, without what sled has around them.
    pub(crate) bytes: u64,
}

/// All rows, as they stood at one record of the journal.
pub(crate) struct SweptRows {
    state: MemoryRows,
    /// The hash of who did what up to there.
    pub(crate) acts: [u8; 32],
    /// Journal position up to which records are included in the rows; `None` if none was applied.
    pub(crate) end: Option<Position>,
    pub(crate) figures: SweepFigures,
}

impl SweptRows {
    /// The state that the rows give.
    ///
    /// # Errors
    /// For rows that cannot be read, or contradict each other.
    pub(crate) fn state(&self) -> Result<Vec<Core>, StoreError> {
        let mut cores = new_cores();
        load(&self.state, &mut cores)?;
        Ok(cores)
    }
}

impl Sweep {
    /// Applies the part of `batch` that changes rows which were read.
    pub(super) fn follow(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut acts = Vec::new();
        let read_to = self.read_to.clone();
        for (key, value) in batch.changes().filter(|(key, _)| **key <= read_to) {
            match value {
                Some(value) if is_act(key) => acts.push((key, value)),
                Some(value) => self.keep(key, value),
                None => self.state.remove(key),
            }
        }
        // Acts are only ever added, behind those that were there.
        acts.sort_unstable();
        acts.into_iter().try_for_each(|(_, value)| self.add_act(value))
    }

    fn take(&mut self, key: &IVec, value: &IVec) -> Result<(), StoreError> {
        let bytes = key.len().saturating_add(value.len());
        self.figures.rows = self.figures.rows.saturating_add(1);
        self.figures.bytes =
            self.figures.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if is_act(key) {
            return self.add_act(value);
        }
        self.keep(key, value);
        Ok(())
    }

    /// Keeps a row that a state needs. Documents of tasks may take gigabytes, and a state has those alone
    /// of which something remains to be done: they are fetched at the end.
    fn keep(&mut self, key: &[u8], value: &[u8]) {
        let is_kept = key.first().is_some_and(|prefix| {
            !is_for_queries(*prefix)
                && ![ACT_OF, ACT_ID, losses::LOSS, tasks::TASK, tasks::DOCUMENT_PART]
                    .contains(prefix)
        });
        if is_kept {
            self.state.take(key.to_vec(), value.to_vec());
        }
    }

    fn add_act(&mut self, value: &[u8]) -> Result<(), StoreError> {
        let (seq, act): (Seq, Act) = postcard::from_bytes(value)?;
        audit::add_act(&mut self.acts, seq, &act);
        Ok(())
    }
}

fn is_act(key: &[u8]) -> bool {
    key.first() == Some(&ACT)
}

impl Store {
    /// Begins to read all rows and returns the number of the read; `None` if one is in progress.
    pub(crate) fn begin_sweep(&self) -> Option<u64> {
        let mut slot = self.sweep.lock();
        if slot.is_some() {
            return None;
        }
        // Random, since the store may be replaced while a reader waits: a counter would begin again and
        // name another's reading.
        let name = fastrand::u64(..);
        *slot = Some(Sweep { name, ..Sweep::default() });
        Some(name)
    }

    /// Ends the read with this number, if it is in progress, so that the next can begin.
    pub(crate) fn end_sweep(&self, name: u64) {
        self.sweep.lock().take_if(|sweep| sweep.name == name);
    }

    /// Reads some rows, and gives how much was read so far; all of it once these were the last.
    ///
    /// # Errors
    /// For rows that cannot be read, and when no reading is under way.
    pub(crate) fn sweep_some(
        &self,
        name: u64,
    ) -> Result<Result<SweptRows, SweepFigures>, StoreError> {
        // Writes wait for this lock: what is read under it belongs together.
        let mut slot = self.sweep.lock();
        let Some(sweep) = slot.as_mut().filter(|sweep| sweep.name == name) else {
            return Err(StoreError::new("it was exchanged while its rows were read"));
        };
        let begin: Bound<&[u8]> = Bound::Excluded(&sweep.read_to.clone());
        let mut bytes = 0_usize;
        for row in self.db.range::<&[u8], _>((begin, Bound::Unbounded)) {
            let (key, value) = row?;
            sweep.take(&key, &value)?;
            bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
            sweep.read_to = key;
            if bytes >= STEP_BYTES {
                return Ok(Err(sweep.figures));
            }
        }
        let end = self.end()?;
        // Under the same lock as the last rows, so that the tasks are those of the same record.
        self.add_open_tasks(&mut sweep.state)?;
        // The empty one in its place follows nothing.
        let Sweep { state, acts, figures, .. } =
            std::mem::replace(sweep, Sweep { name, ..Sweep::default() });
        Ok(Ok(SweptRows { state, acts: acts.finalize().into(), end, figures }))
    }

    /// Removes the first row whose key begins so. False if there is none.
    #[cfg(test)]
    pub(crate) fn remove_first(&self, prefix: u8) -> Result<bool, StoreError> {
        let Some(row) = self.db.scan_prefix([prefix]).next() else { return Ok(false) };
        self.db.remove(row?.0)?;
        Ok(true)
    }

    /// Reads every row and keeps nothing.
    ///
    /// # Errors
    /// For rows that cannot be read.
    pub(crate) fn read_all(&self) -> Result<SweepFigures, StoreError> {
        let mut figures = SweepFigures::default();
        for row in self.db.iter() {
            let (key, value) = row?;
            let bytes = key.len().saturating_add(value.len());
            figures.rows = figures.rows.saturating_add(1);
            figures.bytes = figures.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        Ok(figures)
    }
}
