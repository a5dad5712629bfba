//! The sled ledger: what queries read. Only it names sled.
//!
//! It is a projection of the journal and can be rebuilt from it at any time. One tree, keys with a
//! one-letter prefix, everything of one window in one batch together with the journal's position.

mod batch;
mod calls;
mod losses;
mod margins;
mod pack;
mod customers;
mod prices;
mod rows;
mod salvage;
mod sweep;
mod tasks;
mod usage;

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::directory::sync_directory;
use crate::journal::segment::Position;
use crate::projection::window::Window;
use crate::records::error::OpenError;
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::records::record::JournaledRecord;
use crate::records::reservation::OpenHold;
use crate::rules::account::Account;
use crate::rules::core::{Core, GrantMemo, Refund};
use crate::rules::key_spend::SpendTotals;
use crate::rules::shards::shard_index;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq};
use tollgate_types::limit::Rates;

use batch::Batch;
pub use calls::CallName;
pub(crate) use customers::each_act;
use pack::Packing;
pub(crate) use pack::{PruneCutoff, settle};
pub(crate) use rows::{MemoryRows, Row, RowSource};
use sweep::Sweep;
pub(crate) use sweep::{SweepFigures, SweptRows};

/// Raised whenever keys or values change their meaning; another version is rebuilt from the journal.
pub(crate) const LAYOUT_VERSION: u32 = 9;
/// Sled's page cache. Boot reads accounts, keys and open holds once; afterwards only the rows of
/// accounts that are active are touched.
const CACHE_BYTES: u64 = 8 << 20;
/// Sled moves what is larger than a quarter of this to blob files, which it does not flush. Its
/// leaves hold up to 17 rows; the largest row is a key's, with 100 models of 256 bytes. Each segment
/// that is being written is that much memory.
const SEGMENT_BYTES: usize = 2 << 20;

/// A store through which so many bytes of rows have passed is opened again. Sled looks at what its
/// cache holds only when a page's shard was touched 64 times, and has 256 shards: the limit above is
/// passed by 16,384 pages, some 170 MiB. While the store is made anew, this holds for each of the two.
const WORN_BYTES: u64 = 2 << 20;
/// Memory of a written row, without its statement's entries, in bytes.
const ROW_BYTES: u64 = 256;
/// Memory of a query, in bytes: one or two pages.
const QUERY_BYTES: u64 = 32 << 10;

/// Maximum time for sled to release a directory that this process had open.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

const META: &[u8] = b"m";
/// Size of the file after the last compaction.
const PACKED: &[u8] = b"Z";
/// The first record from which on the lines of statements are here.
const ENTRIES_FROM: &[u8] = b"M";
/// The first hour of which usage is here by the hour.
const HOURS_FROM: &[u8] = b"N";
const ACCOUNT: u8 = b'a';
const IN_DOUBT: u8 = b'd';
const ENTRIES: u8 = b'e';
const GRANT: u8 = b'g';
const HOLD: u8 = b'h';
const KEY: u8 = b'k';
const KEY_LIMITS: u8 = b'l';
const REFUND: u8 = b'r';
const RATES: u8 = b'q';
const SPENT: u8 = b'p';
const WRITE_OFF: u8 = b'W';

/// Failure of a read or write of sled.
#[derive(Debug)]
pub(crate) struct StoreError {
    what: String,
    /// True if the disk was full.
    pub(crate) is_full: bool,
}

impl StoreError {
    /// An error with this description.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_full: false }
    }

    /// An error due to a full disk.
    pub(crate) fn full(what: impl Into<String>) -> Self {
        Self { what: what.into(), is_full: true }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<sled::Error> for StoreError {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => error.into(),
            error => Self::new(error.to_string()),
        }
    }
}

impl From<postcard::Error> for StoreError {
    fn from(error: postcard::Error) -> Self {
        Self::new(format!("a value cannot be read or written: {error}"))
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        Self { what: error.to_string(), is_full }
    }
}

/// The error with which a start reports a failure of sled: a full disk is told apart, since freeing space mends it.
pub(crate) fn store_error(error: StoreError) -> OpenError {
    if error.is_full {
        OpenError::NoRoom(error.to_string())
    } else {
        OpenError::Store(error.to_string())
    }
}

#[derive(Serialize, Deserialize)]
struct Meta {
    layout: u32,
    end: Position,
}

/// True for rows that only serve queries and are not part of the state.
fn is_for_queries(prefix: u8) -> bool {
    prefix == ENTRIES
        || prefix == margins::MARGIN
        || prefix == prices::NOTE
        || usage::PREFIXES.contains(&prefix)
        || tasks::LISTED.contains(&prefix)
}

/// The open sled ledger.
pub(crate) struct Store {
    db: sled::Db,
    /// Sled's log file. Sled's own `flush` is `sync_file_range`, which is no barrier, so the file is synced after it.
    log: File,
    /// Held while something is applied, and while a checkpoint is read.
    applying: Mutex<()>,
    /// See [`Store::is_worn`].
    cached_bytes: AtomicU64,
    /// Compaction in progress: see [`Store::pack`].
    packing: Mutex<Option<Packing>>,
    /// Read of all rows in progress. Locked after `packing`.
    sweep: Mutex<Option<Sweep>>,
}

/// Opens sled, whose background threads can hold its lock for a moment after the last handle is gone.
/// No other process has it: the ledger's own lock is taken by now.
fn open_sled(dir: &Path) -> sled::Result<sled::Db> {
    let begun = Instant::now();
    loop {
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(CACHE_BYTES)
            .segment_size(SEGMENT_BYTES)
            // The projector flushes once a window, and syncs the file after it, which sled does not do.
            .flush_every_ms(None);
        match config.open() {
            Err(sled::Error::Io(error))
                if error.to_string().contains("acquire lock") && begun.elapsed() < LOCK_TIMEOUT =>
            {
                // Sled gives no notice of the release.
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

impl Store {
    /// Opens or creates it in `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self, StoreError> {
        let is_new = !dir.exists();
        let db = open_sled(dir)?;
        let log = fs::OpenOptions::new().read(true).write(true).open(dir.join("db"))?;
        if is_new {
            for entry in fs::read_dir(dir)? {
                let path = entry?.path();
                if path.is_dir() {
                    sync_directory(&path)?
                } else {
                    File::open(&path)?.sync_all()?
                }
            }
            sync_directory(dir)?;
            sync_directory(dir.parent().unwrap_or(dir))?;
        }
        Ok(Self {
            db,
            log,
            applying: Mutex::new(()),
            cached_bytes: AtomicU64::new(0),
            packing: Mutex::new(None),
            sweep: Mutex::new(None),
        })
    }

    /// Position up to which the journal was applied; `None` in a new store.
    pub(crate) fn end(&self) -> Result<Option<Position>, StoreError> {
        let Some(value) = self.db.get(META)? else { return Ok(None) };
        let meta: Meta = postcard::from_bytes(&value)?;
        // Rebuilt rather than converted: the journal has everything, and a conversion would be code that
        // runs once.
        if meta.layout != LAYOUT_VERSION {
            return Err(StoreError::new(format!("its layout is version {}", meta.layout)));
        }
        Ok(Some(meta.end))
    }

    /// Loads the state into `cores`, one per shard.
    pub(crate) fn load(&self, cores: &mut [Core]) -> Result<(), StoreError> {
        load(&self.db, cores)
    }

    /// True if the cache may have grown so much that the store should be reopened.
    pub(crate) fn is_worn(&self) -> bool {
        self.cached_bytes.load(Ordering::Relaxed) >= WORN_BYTES
    }

    /// Notes that a query is about to be made.
    pub(crate) fn wear(&self) {
        self.cached_bytes.fetch_add(QUERY_BYTES, Ordering::Relaxed);
    }

    /// Writes what `window` changed, and that the journal was applied up to `end`.
    pub(crate) fn apply(&self, mut window: Window, end: Position) -> Result<(), StoreError> {
        let _applying = self.applying.lock();
        let entries = window.entries.values().flatten().map(|chunk| chunk.bytes.len() as u64);
        let bytes = entries.sum::<u64>() + window.rows() as u64 * ROW_BYTES;
        self.cached_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut batch = Batch::default();
        for (id, movement) in &window.movements {
            let mut account = match window.created.remove(id) {
                Some(account) => account,
                None => self
                    .account(*id)?
                    .ok_or_else(|| StoreError::new(format!("there is no {id}")))?,
            };
            (account.balance, account.written_off) =
                account.after(movement).map_err(|rule| StoreError::new(format!("{id}: {rule}")))?;
            window.customers.change(&mut account);
            batch.insert(key(ACCOUNT, &[&id.number().to_be_bytes()]), account_row(&account)?);
        }
        for (id, row) in &window.keys {
            put(&mut batch, key(KEY, &[&id.number().to_be_bytes()]), row)?;
        }
        for row @ (account, id, _) in &window.grants {
            put(&mut batch, key(GRANT, &[&account.number().to_be_bytes(), id.as_bytes()]), row)?;
        }
        for row @ (account, id, _) in &window.refunds {
            put(&mut batch, key(REFUND, &[&account.number().to_be_bytes(), id.as_bytes()]), row)?;
        }
        for row @ (account, id, _) in &window.write_offs {
            let key = key(WRITE_OFF, &[&account.number().to_be_bytes(), id.as_bytes()]);
            put(&mut batch, key, row)?;
        }
        self.put_losses(&mut batch, &window.losses)?;
        for (id, hold) in &window.holds {
            let key = key(HOLD, &[&id.number().to_be_bytes()]);
            match hold {
                Some(hold) => put(&mut batch, key, &(id, hold))?,
                None => batch.remove(key),
            }
        }
        for task in window.tasks.values() {
            tasks::put_task(&mut batch, task)?;
        }
        for journaled in &window.in_doubt {
            let hold = journaled.record.open_hold().map_or(0, HoldId::number);
            put(&mut batch, key(IN_DOUBT, &[&hold.to_be_bytes()]), journaled)?;
        }
        for (account, chunks) in std::mem::take(&mut window.entries) {
            for chunk in chunks {
                batch.insert(entries_key(account, chunk.first_seq), chunk.bytes);
            }
        }
        self.put_usage(&mut batch, &window)?;
        self.put_margins(&mut batch, &window)?;
        self.put_limits(&mut batch, &window)?;
        customers::put_people(&mut batch, &window.customers)?;
        self.put_notes(&mut batch, &window.customers)?;
        // In the same batch as the rows: a crash leaves both or neither, so a replay neither repeats nor
        // skips a record.
        put(&mut batch, META.to_vec(), &Meta { layout: LAYOUT_VERSION, end })?;
        self.write(batch)?;
        Ok(())
    }

    fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError> {
        let row = self.db.get(&key(ACCOUNT, &[&id.number().to_be_bytes()]))?;
        Ok(row.map(|row| read_account(&row)).transpose()?)
    }

    /// Writes the limits of keys and accounts, the keys' spending, and their last use.
    fn put_limits(&self, batch: &mut Batch, window: &Window) -> Result<(), StoreError> {
        for row @ (account, _) in &window.rates {
            put(batch, key(RATES, &[&account.number().to_be_bytes()]), &row)?;
        }
        for (id, (account, limits)) in &window.key_limits {
            put(batch, key(KEY_LIMITS, &[&id.number().to_be_bytes()]), &(account, id, limits))?;
        }
        // Whatever is charged was used.
        for ((account, id), used) in &window.used {
            let row = key(SPENT, &[&account.number().to_be_bytes(), &id.number().to_be_bytes()]);
            let before: Option<(AccountId, KeyId, SpendTotals, UnixMs)> = self.value(&row)?;
            let (mut spent, used_before) =
                before.map_or_else(Default::default, |(_, _, spent, used)| (spent, used));
            let days = window.charges.get(&(*account, *id)).into_iter().flatten();
            days.for_each(|(day, charged)| spent.add(*day, *charged));
            put(batch, row, &(account, id, spent, used_before.max(*used)))?;
        }
        Ok(())
    }

    /// Makes everything applied so far durable.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.db.flush()?;
        self.log.sync_data()?;
        Ok(())
    }

    /// At most `limit` entries of an account before `before`, newest first.
    pub(crate) fn entries(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, StoreError> {
        let mut found = Vec::new();
        for row in self.db.range(entries_key(account, 0)..entries_key(account, before)).rev() {
            let mut chunk = read_chunk(&row?.1)?;
            // A chunk is found by its first record; the page may begin in its middle.
            chunk.retain(|journaled| journaled.seq < before);
            found.extend(chunk.into_iter().rev().take(limit.saturating_sub(found.len())));
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// Charge of a settled hold; `None` if the account has no such hold.
    pub(crate) fn charged(
        &self,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, StoreError> {
        // The end stands behind the beginning, as far as the call took: usually in the first chunk
        // that reaches so far.
        let reaches = entries_key(account, hold.number());
        let before = self.db.range(entries_key(account, 0)..=reaches.clone()).next_back();
        let begin = before.transpose()?.map_or_else(|| sled::IVec::from(reaches), |(key, _)| key);
        for row in self.db.range(begin..entries_key(account, Seq::MAX).into()) {
            if let Some(charged) = charged_in(&row?.1, hold)? {
                return Ok(charged);
            }
        }
        Ok(None)
    }

    /// The ends of all holds that crashes had left open and nobody has looked into, oldest first.
    pub(crate) fn in_doubt(&self) -> Result<Vec<JournaledRecord>, StoreError> {
        let rows = self.db.scan_prefix([IN_DOUBT]);
        rows.map(|row| Ok(postcard::from_bytes(&row?.1)?)).collect()
    }

    fn value<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, StoreError> {
        value(&self.db, key)
    }
}

fn value<T: DeserializeOwned>(rows: &dyn RowSource, key: &[u8]) -> Result<Option<T>, StoreError> {
    Ok(rows.get(key)?.map(|value| postcard::from_bytes(&value)).transpose()?)
}

/// Encodes the row of an account. A credit line is appended only if there is one.
fn account_row(account: &Account) -> Result<Vec<u8>, postcard::Error> {
    let mut row = postcard::to_stdvec(account)?;
    if !account.balance.credit.is_zero() {
        row = postcard::to_extend(&account.balance.credit, row)?;
    }
    Ok(row)
}

fn read_account(row: &[u8]) -> Result<Account, postcard::Error> {
    let (mut account, rest) = postcard::take_from_bytes::<Account>(row)?;
    if !rest.is_empty() {
        account.balance.credit = postcard::from_bytes(rest)?;
    }
    Ok(account)
}

/// Loads the state that `rows` give into `cores`, one per shard.
pub(crate) fn load(rows: &dyn RowSource, cores: &mut [Core]) -> Result<(), StoreError> {
    let unknown = || StoreError::new("a row belongs to no account".to_owned());
    for row in rows.with_prefix(&[ACCOUNT]) {
        let account = read_account(&row?.1)?;
        cores[shard_index(account.id)].restore_account(account);
    }
    for row in rows.with_prefix(&[KEY]) {
        let key: Arc<Key> = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(key.account)].state_mut(key.account).ok_or_else(unknown)?;
        state.keys.insert(key.id, key);
    }
    for row in rows.with_prefix(&[RATES]) {
        let (account, rates): (AccountId, Rates) = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.rates = rates;
    }
    for row in rows.with_prefix(&[KEY_LIMITS]) {
        let (account, key, limits): (AccountId, KeyId, KeyLimits) = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.spendings.restore_limits(key, limits);
    }
    for row in rows.with_prefix(&[SPENT]) {
        let (account, key, spent, _): (AccountId, KeyId, SpendTotals, UnixMs) =
            postcard::from_bytes(&row?.1)?;
        if spent != SpendTotals::default() {
            let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
            state.spendings.restore_spent(key, spent);
        }
    }
    for row in rows.with_prefix(&[GRANT]) {
        let (account, id, grant): (AccountId, String, GrantMemo) = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.grants.insert(id, grant);
    }
    for row in rows.with_prefix(&[REFUND]) {
        let (account, id, refund): (AccountId, String, Refund) = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.restore_refund(id, refund);
    }
    for row in rows.with_prefix(&[WRITE_OFF]) {
        let (account, id, grant): (AccountId, String, GrantMemo) = postcard::from_bytes(&row?.1)?;
        let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
        state.write_offs.insert(id, grant);
    }
    losses::load_losses(rows, cores)?;
    tasks::load_tasks(rows, cores)?;
    for row in rows.with_prefix(&[HOLD]) {
        let (id, hold): (HoldId, OpenHold) = postcard::from_bytes(&row?.1)?;
        cores[shard_index(hold.reservation.account)].restore_hold(id, hold);
    }
    customers::load_people(rows, cores)
}

fn put(batch: &mut Batch, key: Vec<u8>, value: &impl Serialize) -> Result<(), StoreError> {
    batch.insert(key, postcard::to_stdvec(value)?);
    Ok(())
}

fn key(prefix: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![prefix];
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

fn entries_key(account: AccountId, first_seq: Seq) -> Vec<u8> {
    key(ENTRIES, &[&account.number().to_be_bytes(), &first_seq.to_be_bytes()])
}

/// Charge of the hold if its end is in this chunk of a statement; `Some(None)` if it ended without
/// one.
///
/// # Errors
/// For bytes that are no chunk.
pub fn charged_in(chunk: &[u8], hold: HoldId) -> Result<Option<Option<Nanousd>>, postcard::Error> {
    let lines = read_chunk(chunk)?.into_iter().map(|journaled| journaled.record);
    let mut ends = lines.filter(|end| end.ends_hold() && end.open_hold() == Some(hold));
    Ok(ends.next().map(|end| end.charged()))
}

/// The entries of a chunk of a statement.
///
/// # Errors
/// For bytes that are no chunk.
pub fn read_chunk(mut bytes: &[u8]) -> Result<Vec<JournaledRecord>, postcard::Error> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (journaled, rest) = postcard::take_from_bytes(bytes)?;
        entries.push(journaled);
        bytes = rest;
    }
    Ok(entries)
}
