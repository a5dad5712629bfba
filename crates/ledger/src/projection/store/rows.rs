//! The rows as they are, for checkpoints: everything but the lines of statements, which are the most by
//! far and can be read from the journal.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use sled::IVec;

use super::{
    Batch, ENTRIES, ENTRIES_FROM, LAYOUT_VERSION, META, Meta, PACKED, Store, StoreError, put,
};
use crate::journal::segment::Position;
use crate::rules::audit;
use crate::rules::core::Core;
use crate::rules::shards::new_cores;
use tollgate_types::ids::Seq;

/// Rows that are written together when a checkpoint is read.
const BATCH_ROWS: usize = 1_000;

/// A row's key and value.
pub(crate) type Row = (IVec, IVec);

/// Source of a state's rows.
pub(crate) trait RowSource {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError>;

    /// The rows whose keys begin so, in order.
    fn with_prefix<'a>(
        &'a self,
        prefix: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Row, StoreError>> + 'a>;
}

impl RowSource for sled::Db {
    fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        Ok(sled::Tree::get(self, key)?)
    }

    fn with_prefix<'a>(
        &'a self,
        prefix: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Row, StoreError>> + 'a> {
        Box::new(self.scan_prefix(prefix).map(|row| row.map_err(StoreError::from)))
    }
}

/// Rows in memory, for a start that has no room for sled.
#[derive(Default)]
pub(crate) struct MemoryRows(BTreeMap<IVec, IVec>);

impl MemoryRows {
    /// Adds a row, unless it only serves queries and is no part of the state.
    pub(crate) fn take(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let is_of_use = key.first().is_some_and(|prefix| !super::is_for_queries(*prefix));
        if is_of_use {
            self.0.insert(key.into(), value.into());
        }
    }
}

impl MemoryRows {
    /// Removes a row from its tree.
    pub(super) fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
    }
}

impl RowSource for MemoryRows {
    fn get(&self, key: &[u8]) -> Result<Option<IVec>, StoreError> {
        Ok(self.0.get(key).cloned())
    }

    fn with_prefix<'a>(
        &'a self,
        prefix: &[u8],
    ) -> Box<dyn Iterator<Item = Result<Row, StoreError>> + 'a> {
        let prefix = IVec::from(prefix);
        let rows = self.0.range(prefix.clone()..);
        let rows = rows.take_while(move |(key, _)| key.starts_with(&prefix));
        Box::new(rows.map(|(key, value)| Ok((key.clone(), value.clone()))))
    }
}

/// Snapshot of rows while a checkpoint is written.
pub(crate) struct RowsSnapshot {
    /// Position up to which the journal was applied.
    pub(crate) end: Position,
    /// The hash of the state.
    pub(crate) state_hash: [u8; 32],
    pub(crate) layout: u32,
}

impl Store {
    /// Gives all rows to `take`, while nothing is applied. `None` when nothing ever was.
    pub(crate) fn at_rest<T>(
        &self,
        take: impl FnOnce(RowsSnapshot, &mut dyn Iterator<Item = Result<Row, StoreError>>) -> T,
    ) -> Result<Option<T>, StoreError> {
        // Hash and rows must be of one record: a window that was applied between them would fail the
        // check of every start.
        let _applied = self.applying.lock();
        let Some(end) = self.end()? else { return Ok(None) };
        let mut cores = new_cores();
        self.load(&mut cores)?;
        let state_hash = audit::state_hash(cores.iter());
        // The whole state a second time: freed before the rows are read, which takes as long as the
        // disk.
        drop(cores);
        let before = self.db.range::<&[u8], _>(..&[ENTRIES][..]);
        let behind: (Bound<&[u8]>, Bound<&[u8]>) =
            (Bound::Included(&[ENTRIES + 1]), Bound::Unbounded);
        let is_row = |row: &sled::Result<Row>| {
            row.as_ref()
                .map_or(true, |(key, _)| key != META && key != ENTRIES_FROM && key != PACKED)
        };
        let rows = before.chain(self.db.range::<&[u8], _>(behind)).filter(is_row);
        let mut rows = rows.map(|row| {
            let row = row?;
            // It goes through the cache like everything else.
            let bytes = (row.0.len() + row.1.len()) as u64;
            self.cached_bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(row)
        });
        Ok(Some(take(RowsSnapshot { end, state_hash, layout: LAYOUT_VERSION }, &mut rows)))
    }

    /// Fills an empty store with the rows of a checkpoint, which knows of the journal up to `end`. They
    /// count once all of them are there.
    pub(crate) fn fill(
        &self,
        end: Position,
        rows: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>), StoreError>>,
    ) -> Result<(), StoreError> {
        // A crash may have left rows without their position; together with these they would pass for one
        // state.
        self.clear()?;
        let (mut batch, mut waiting) = (Batch::default(), 0);
        for row in rows {
            let (key, value) = row?;
            batch.insert(key, value);
            waiting += 1;
            if waiting == BATCH_ROWS {
                self.write(std::mem::take(&mut batch))?;
                waiting = 0;
            }
        }
        put(&mut batch, ENTRIES_FROM.to_vec(), &end.seq.saturating_add(1))?;
        put(&mut batch, META.to_vec(), &Meta { layout: LAYOUT_VERSION, end })?;
        self.write(batch)?;
        self.flush()
    }

    /// Removes rows of an interrupted [`Store::fill`].
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        if !self.db.is_empty() {
            self.db.clear()?;
        }
        Ok(())
    }

    /// The first record from which on statements are here; those before are read from the journal.
    pub(crate) fn entries_from(&self) -> Result<Seq, StoreError> {
        Ok(self.value(ENTRIES_FROM)?.unwrap_or(0))
    }

    /// Loads the state from the store's rows, as one core per shard.
    pub(crate) fn loaded(&self) -> Result<Vec<Core>, StoreError> {
        let mut cores = new_cores();
        self.load(&mut cores)?;
        Ok(cores)
    }
}
