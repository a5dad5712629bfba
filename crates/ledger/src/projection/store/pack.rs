//! Another sled in the place of this one, with the rows that are still wanted: sled 0.34 does not use
//! again what is removed or replaced in its file, so a file that lasts is made anew from time to time.
//!
//! The rows are copied in the order of their keys, some at a time, while the old one goes on. What is
//! written meanwhile to rows that were copied already is written to both. The new one is in a directory
//! of its own until it is whole and on disk; then it is named so that any start takes it.

use std::fs::{self, File};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use sled::IVec;

use super::batch::{Batch, collect};
use super::sweep::Sweep;
use super::usage::hour_of;
use super::{
    ENTRIES, ENTRIES_FROM, HOURS_FROM, PACKED, RowSource as _, Store, StoreError, WORN_BYTES,
    customers, load, open_sled, put, read_chunk, value,
};
use crate::files::directory::sync_directory;
use crate::rules::audit;
use crate::rules::shards::new_cores;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::Seq;

/// Directory of a compaction in progress.
const NEW: &str = "sled.new";
/// Directory of a complete compaction, which replaces `sled` at once or at the next start.
const WHOLE: &str = "sled.packed";
/// Directory of the replaced sled until it is removed.
const OLD: &str = "sled.old";
/// Bytes copied at a time: a few milliseconds, during which nothing else is written.
const STEP_BYTES: usize = 128 << 10;

/// Lines to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PruneCutoff {
    /// Lines of statements and single losses from before this record: they are in sealed segments.
    pub(crate) lines: Seq,
    /// Usage by the hour from before this hour, counted from 1970. It is the first of a day.
    pub(crate) hours: u32,
    /// Ids of writes from before.
    pub(crate) ids: UnixMs,
}

impl PruneCutoff {
    /// True if a row is copied.
    fn keeps(&self, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let number = |from: usize| key.get(from..).and_then(|rest| rest.first_chunk());
        let number = |from| number(from).map(|bytes| u64::from_be_bytes(*bytes));
        Ok(match key.first() {
            Some(&ENTRIES) if number(9).is_some_and(|first_seq| first_seq < self.lines) => {
                read_chunk(value)?.last().is_some_and(|line| line.seq >= self.lines)
            }
            Some(&super::losses::LOSS) => number(1).is_none_or(|seq| seq >= self.lines),
            Some(&customers::ACT_ID) => number(1).is_none_or(|at| at >= self.ids.0),
            _ if key == ENTRIES_FROM || key == HOURS_FROM || key == PACKED => false,
            _ => hour_of(key).is_none_or(|hour| hour >= self.hours),
        })
    }
}

/// A compacted copy in progress.
pub(super) struct Packing {
    /// Data directory of the ledger.
    dir: PathBuf,
    db: sled::Db,
    cut: PruneCutoff,
    /// The rows up to this key are there.
    copied: IVec,
    /// True if all rows were copied: later writes go to the new store as well.
    is_whole: bool,
    /// Number of bytes that passed through its cache.
    cached_bytes: u64,
}

impl Packing {
    fn begin(dir: &Path, cut: PruneCutoff) -> Result<Self, StoreError> {
        // A crash may have left half a copy, whose rows lack what was written since.
        remove(&dir.join(NEW))?;
        let db = open_sled(&dir.join(NEW))?;
        let mut first = Batch::default();
        put(&mut first, ENTRIES_FROM.to_vec(), &cut.lines)?;
        put(&mut first, HOURS_FROM.to_vec(), &cut.hours)?;
        db.apply_batch(first.into_sled())?;
        Ok(Self {
            dir: dir.to_owned(),
            db,
            cut,
            copied: IVec::default(),
            is_whole: false,
            cached_bytes: 0,
        })
    }

    /// Applies the part of `batch` that changes copied rows.
    fn follow(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut following = Batch::default();
        let is_copied = |key: &IVec| self.is_whole || *key <= self.copied;
        for (key, value) in batch.changes().filter(|(key, _)| is_copied(key)) {
            match value {
                Some(value) if self.cut.keeps(key, value)? => following.insert(key, value),
                Some(_) => {}
                None => following.remove(key),
            }
        }
        self.write(following)
    }

    fn write(&mut self, batch: Batch) -> Result<(), StoreError> {
        let length =
            |(key, value): (&IVec, Option<&IVec>)| key.len() + value.map_or(0, |value| value.len());
        self.cached_bytes += batch.changes().map(length).sum::<usize>() as u64;
        self.db.apply_batch(batch.into_sled())?;
        collect();
        Ok(())
    }

    /// Opens it again, when its cache has grown.
    fn renewed(self) -> Result<Self, StoreError> {
        if self.cached_bytes < WORN_BYTES {
            return Ok(self);
        }
        let Self { dir, db, cut, copied, is_whole, .. } = self;
        db.flush()?;
        drop(db);
        collect();
        let db = open_sled(&dir.join(NEW))?;
        Ok(Self { dir, db, cut, copied, is_whole, cached_bytes: 0 })
    }

    /// Flushes the copy and records its length.
    fn seal(&self) -> Result<(), StoreError> {
        let path = self.dir.join(NEW);
        self.db.flush()?;
        // Measured after a flush: what sled still buffers is not in the file.
        let length = fs::metadata(path.join("db"))?.len();
        let mut last = Batch::default();
        put(&mut last, PACKED.to_vec(), &length)?;
        self.db.apply_batch(last.into_sled())?;
        self.db.flush()?;
        for entry in fs::read_dir(&path)? {
            let entry = entry?.path();
            // Sled's flush writes pages out, and syncs neither the file's length nor the disk's cache. The
            // rename that follows must never name an incomplete file.
            if entry.is_dir() { sync_directory(&entry)? } else { File::open(&entry)?.sync_all()? }
        }
        Ok(sync_directory(&path)?)
    }
}

impl Store {
    /// Writes all of `batch`, or nothing.
    pub(super) fn write(&self, batch: Batch) -> Result<(), StoreError> {
        let mut packing = self.packing.lock();
        if let Some(Err(error)) = packing.as_mut().map(|packing| packing.follow(&batch)) {
            give_up(&mut packing, &error);
        }
        // Held until the batch is in: no rows are read between it and what follows it.
        let mut sweep = self.sweep.lock();
        if let Some(Err(error)) = sweep.as_mut().map(|sweep| sweep.follow(&batch)) {
            log::error!("a check of the sled ledger was given up: {error}");
            *sweep = None;
        }
        self.db.apply_batch(batch.into_sled())?;
        collect();
        Ok(())
    }

    /// The file's length now, and after it was packed.
    pub(crate) fn lengths(&self) -> Result<(u64, u64), StoreError> {
        Ok((self.log.metadata()?.len(), self.value(PACKED)?.unwrap_or(0)))
    }

    /// Begins another one in its place.
    pub(crate) fn pack(&self, dir: &Path, cut: PruneCutoff) -> Result<(), StoreError> {
        *self.packing.lock() = Some(Packing::begin(dir, cut)?);
        Ok(())
    }

    /// True if a compaction is in progress.
    pub(crate) fn is_packing(&self) -> bool {
        self.packing.lock().is_some()
    }

    /// Copies some rows, and says whether these were the last. What fails of the new one ends it, and
    /// not the old one.
    pub(crate) fn copy_some(&self) -> Result<bool, StoreError> {
        let mut slot = self.packing.lock();
        let Some(packing) = slot.take() else { return Ok(false) };
        let (mut rows, mut bytes, mut copied) = (Batch::default(), 0_usize, None);
        let begin: Bound<&[u8]> = Bound::Excluded(&packing.copied);
        let mut is_over = true;
        for row in self.db.range::<&[u8], _>((begin, Bound::Unbounded)) {
            let (key, value) = row?;
            bytes += key.len() + value.len();
            if packing.cut.keeps(&key, &value)? {
                rows.insert(key.clone(), value);
            }
            // Rows that are pruned count as copied too, else a long run of them would be read again at
            // each step.
            copied = Some(key);
            if bytes >= STEP_BYTES {
                is_over = false;
                break;
            }
        }
        self.cached_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let written = packing.renewed().and_then(|mut packing| {
            packing.write(rows)?;
            packing.copied = copied.unwrap_or_else(|| packing.copied.clone());
            packing.is_whole = is_over;
            Ok(packing)
        });
        match written {
            Ok(packing) => *slot = Some(packing),
            Err(error) => {
                give_up(&mut slot, &error);
                return Ok(false);
            }
        }
        Ok(is_over)
    }

    /// Compares what was copied with what is here, and puts it on disk under the name that counts at a
    /// start. From here on nothing may be written to this one. False if it was given up.
    pub(crate) fn end_packing(&self) -> Result<bool, StoreError> {
        let mut slot = self.packing.lock();
        let Some(packing) = slot.take() else { return Ok(false) };
        let (mut old, mut new) = (new_cores(), new_cores());
        load(&self.db, &mut old)?;
        let sealed = load(&packing.db, &mut new).and_then(|()| {
            let hashes = [audit::state_hash(old.iter()), audit::state_hash(new.iter())];
            // The last check before the old file goes: a row that the copy missed would be found when it
            // is too late.
            if hashes[0] != hashes[1] || packing.db.get(super::META)? != self.db.get(super::META)? {
                return Err(StoreError::new("the copy gives another state"));
            }
            packing.seal()
        });
        let dir = packing.dir.clone();
        // Closed before its directory moves: sled finds its blobs by path, and its lock has to be free when the
        // copy is opened.
        drop(packing);
        let named = sealed.and_then(|()| {
            // From here on any start takes the copy, so the name comes after the flush and the
            // comparison.
            fs::rename(dir.join(NEW), dir.join(WHOLE))?;
            Ok(sync_directory(&dir)?)
        });
        match named {
            Ok(()) => Ok(true),
            Err(error) => {
                give_up(&mut slot, &error);
                Ok(false)
            }
        }
    }

    /// Continues the work of the previous store, which is closed.
    pub(crate) fn go_on(&self, begun: PackProgress) {
        *self.packing.lock() = begun.packing;
        *self.sweep.lock() = begun.sweep;
    }

    /// Compaction under way, to be continued by the store that replaces this one.
    pub(crate) fn begun(&self) -> PackProgress {
        PackProgress { packing: self.packing.lock().take(), sweep: self.sweep.lock().take() }
    }

    /// The first hour of which usage is here by the hour.
    pub(super) fn hours_from(&self) -> Result<u32, StoreError> {
        Ok(value(&self.db, HOURS_FROM)?.unwrap_or(0))
    }
}

/// Work on a store that the next store continues: a rewritten sled under construction, and a sweep of all
/// rows.
pub(crate) struct PackProgress {
    packing: Option<Packing>,
    sweep: Option<Sweep>,
}

/// Gives up the compaction; the unfinished copy is removed by the next one.
fn give_up(packing: &mut Option<Packing>, error: &StoreError) {
    *packing = None;
    log::error!("the sled ledger could not be packed, and goes on as it was: {error}");
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.exists() { fs::remove_dir_all(path) } else { Ok(()) }
}

/// Completes an interrupted replacement of sled in `dir`, and removes unfinished copies.
///
/// # Errors
/// When something cannot be moved: the one that counts stays what it was.
pub(crate) fn settle(dir: &Path) -> std::io::Result<()> {
    let (whole, here, old) = (dir.join(WHOLE), dir.join("sled"), dir.join(OLD));
    if whole.exists() {
        if here.exists() {
            remove(&old)?;
            // A crash between the two renames leaves the whole copy and no `sled`: the next start comes
            // here again.
            fs::rename(&here, &old)?;
        }
        fs::rename(&whole, &here)?;
        sync_directory(dir)?;
    }
    remove(&old)?;
    remove(&dir.join(NEW))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::journal::segment::Position;
    use crate::projection::grain::Grain;
    use crate::projection::window::{UsageCell, UsageTotal, Window};
    use crate::records::record::{JournaledRecord, Record};
    use tollgate_money::money::Nanousd;
    use tollgate_types::ids::{AccountId, KeyId};

    const ACCOUNTS: u64 = 5;

    fn write(store: &Store, random: &mut fastrand::Rng, seq: &mut Seq) {
        write_at(store, random, seq, 480_000);
    }

    /// Grants to some account at a record's place, and usage of an hour from `hour` on.
    fn write_at(store: &Store, random: &mut fastrand::Rng, seq: &mut Seq, hour: u32) {
        let mut window = Window::default();
        let first = *seq;
        while *seq < first + 60 {
            *seq += 1;
            let account = AccountId::from_number(random.u64(1..=ACCOUNTS));
            let (id, amount) = (format!("{:0>200}", *seq), Nanousd::new(1));
            let record = if *seq <= ACCOUNTS {
                let account = AccountId::from_number(*seq);
                Record::AccountCreated { account, name: "a".into(), at: UnixMs(0) }
            } else {
                Record::Granted { account, id, amount, at: UnixMs(*seq) }
            };
            window.add(JournaledRecord { seq: *seq, record, hold: None }).expect("allowed");
            let cell = UsageCell {
                account,
                time: hour + random.u32(..24 * 20),
                key: KeyId::from_number(1),
                model: Arc::from(["a", "b"][random.usize(..2)]),
            };
            let more = UsageTotal { calls: 1, charged: amount, ..UsageTotal::default() };
            window.usage.entry(cell).or_default().add(&more);
        }
        let end = Position { seq: *seq, ..Position::default() };
        store.apply(window, end).expect("applied");
    }

    /// Result of queries: lines since `from`, days, and sums of hours.
    fn results(store: &Store, from: Seq) -> String {
        let mut results = format!("{:?}", store.end().expect("an end").map(|end| end.seq));
        for account in (1..=ACCOUNTS).map(AccountId::from_number) {
            let mut lines = store.entries(account, Seq::MAX, usize::MAX).expect("lines");
            lines.retain(|line| line.seq >= from);
            results.push_str(&format!("{lines:?}\n"));
            for times in [0..u32::MAX, 480_100..480_200, 480_200..480_300] {
                let hours = store.usage(account, Grain::Hour, times.clone()).expect("hours");
                let calls: u64 = hours.iter().map(|(_, total)| total.calls).sum();
                let all = store.usage_of_all(Grain::Hour, times.clone()).expect("hours");
                let calls_of_all: u64 = all.iter().map(|(.., total)| total.calls).sum();
                if times.start == 0 {
                    results.push_str(&format!("{calls} {calls_of_all}\n"));
                }
            }
            let days = store.usage(account, Grain::Day, 0..u32::MAX).expect("days");
            let all = store.usage_of_all(Grain::Day, 0..u32::MAX).expect("days");
            results.push_str(&format!("{days:?}\n{all:?}\n"));
        }
        results
    }

    fn settled(dir: &Path) -> Store {
        settle(dir).expect("settled");
        Store::open(&dir.join("sled")).expect("opens")
    }

    /// Rows written during a copy are in both stores, at any point of the copy; dropped lines are
    /// absent, days and sums unchanged.
    #[test]
    fn a_packed_store_tells_the_same_without_what_was_cut() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("sled")).expect("opens");
        let mut seq = 0;
        for _ in 0..40 {
            write(&store, &mut random, &mut seq);
        }
        let cut = PruneCutoff { lines: 1_000, hours: 480_240, ids: UnixMs(0) };
        store.pack(dir.path(), cut).expect("begun");
        let mut steps = 0;
        while !store.copy_some().expect("copied") {
            write(&store, &mut random, &mut seq);
            steps += 1;
        }
        assert!(steps > 3, "{steps} steps");
        // Also behind the last row that there was.
        write_at(&store, &mut random, &mut seq, 480_480);
        let expected = results(&store, cut.lines);
        assert!(store.end_packing().expect("ended"));
        assert!(!store.is_packing());
        drop(store);
        let store = settled(dir.path());
        assert_eq!(results(&store, cut.lines), expected);
        assert_eq!(store.entries_from().expect("read"), cut.lines);
        for account in (1..=ACCOUNTS).map(AccountId::from_number) {
            let old = store.entries(account, cut.lines - 60, 1).expect("lines");
            assert_eq!(old, Vec::new(), "{account}");
            let hours =
                store.db.range(super::super::key(b'u', &[&account.number().to_be_bytes()])..);
            let hours: Vec<u32> =
                hours.map_while(|row| hour_of(&row.expect("a row").0)).take(5).collect();
            assert!(hours.iter().all(|hour| *hour >= cut.hours), "{hours:?}");
        }
        let (length, packed) = store.lengths().expect("lengths");
        assert!(packed > 0 && length >= packed, "{length} {packed}");
        // Hours of a stretch of days, of which some are told by the day.
        let sum = |times| -> u64 {
            let rows = store.usage_of_all(Grain::Hour, times).expect("hours");
            rows.iter().map(|(.., total)| total.calls).sum()
        };
        assert_eq!(sum(480_000..480_215) + sum(480_215..480_960), sum(0..u32::MAX));
        // And it goes on.
        write(&store, &mut random, &mut seq);
    }

    /// A crash at any point leaves a complete sled.
    #[test]
    fn a_crash_while_packing_leaves_one_that_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let sled = dir.path().join("sled");
        let (mut random, mut seq) = (fastrand::Rng::new(), 0);
        let store = Store::open(&sled).expect("opens");
        for _ in 0..10 {
            write(&store, &mut random, &mut seq);
        }
        let cut = PruneCutoff { lines: 100, hours: 480_000, ids: UnixMs(0) };
        let from = |store: Store| store.entries_from().expect("read");
        let expected = results(&store, cut.lines);
        // In the middle of the copy.
        store.pack(dir.path(), cut).expect("begun");
        store.copy_some().expect("copied");
        assert!(dir.path().join(NEW).exists());
        store.flush().expect("on disk");
        drop(store);
        let store = settled(dir.path());
        assert!(!dir.path().join(NEW).exists() && results(&store, cut.lines) == expected);
        // Whole, and not yet in its place; between the two renames; before the old one is removed.
        store.pack(dir.path(), cut).expect("begun");
        while !store.copy_some().expect("copied") {}
        assert!(store.end_packing().expect("ended"));
        assert_eq!(from(store), 0);
        let (whole, old) = (dir.path().join(WHOLE), dir.path().join(OLD));
        let store = settled(dir.path());
        assert!(results(&store, cut.lines) == expected && !whole.exists() && !old.exists());
        assert_eq!(from(store), cut.lines);
        fs::rename(&sled, &whole).expect("renamed");
        fs::create_dir(&old).expect("made");
        let store = settled(dir.path());
        assert!(results(&store, cut.lines) == expected && !old.exists());
        drop(store);
        fs::create_dir(&old).expect("made");
        assert!(results(&settled(dir.path()), cut.lines) == expected && !old.exists());
    }
}
