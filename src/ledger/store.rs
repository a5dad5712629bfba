//! The sled ledger: what queries read. Only it names sled.
//!
//! It is a projection of the journal and can be rebuilt from it at any time. One tree, keys with a
//! one-letter prefix, everything of one window in one batch together with the journal's position.

mod calls;
mod people;
mod tasks;
mod usage;

use std::fmt;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::account::Account;
use super::core::{Core, Grant, Refund};
use super::journal::segment::Position;
use super::projection::Window;
use super::record::{Journaled, Key, OpenHold, Record};
use super::spend::{KeyLimits, Spent};
use super::{AccountId, HoldId, KeyId, Seq, shard_index, sync_directory};
use crate::clock::UnixMs;
use crate::limits::Rates;
use crate::money::Nanousd;

pub use calls::CallName;

/// Raised whenever keys or values change their meaning; another version is rebuilt from the journal.
const LAYOUT_VERSION: u32 = 6;
/// Sled's page cache. Boot reads accounts, keys and open holds once; afterwards only the rows of
/// accounts that are active are touched.
const CACHE_BYTES: u64 = 8 << 20;
/// Sled moves what is larger than a quarter of this to blob files, which it does not flush. Its
/// leaves hold up to 17 rows; the largest row is a key's, with 100 models of 256 bytes. Each segment
/// that is being written is that much memory.
const SEGMENT_BYTES: usize = 2 << 20;

/// How long sled may take to let go of a directory that this process had open.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

const META: &[u8] = b"m";
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

/// Why sled could not be read or written, in words.
#[derive(Debug)]
pub(super) struct StoreError(pub(super) String);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<sled::Error> for StoreError {
    fn from(error: sled::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<postcard::Error> for StoreError {
    fn from(error: postcard::Error) -> Self {
        Self(format!("a value cannot be read or written: {error}"))
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

#[derive(Serialize, Deserialize)]
struct Meta {
    layout: u32,
    end: Position,
}

/// The open sled ledger.
pub(super) struct Store {
    db: sled::Db,
    /// Sled's log. Its own `flush` reaches the kernel, not the disk, so this is flushed after it.
    log: File,
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
            .flush_every_ms(None);
        match config.open() {
            Err(sled::Error::Io(error))
                if error.to_string().contains("acquire lock") && begun.elapsed() < LOCK_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

impl Store {
    /// Opens or creates it in `dir`.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
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
        Ok(Self { db, log })
    }

    /// How much of the journal was applied; `None` when nothing ever was.
    pub(super) fn end(&self) -> Result<Option<Position>, StoreError> {
        let Some(value) = self.db.get(META)? else { return Ok(None) };
        let meta: Meta = postcard::from_bytes(&value)?;
        if meta.layout != LAYOUT_VERSION {
            return Err(StoreError(format!("its layout is version {}", meta.layout)));
        }
        Ok(Some(meta.end))
    }

    /// Loads the state into `cores`, one per shard.
    pub(super) fn load(&self, cores: &mut [Core]) -> Result<(), StoreError> {
        let unknown = || StoreError("a row belongs to no account".to_owned());
        for row in self.db.scan_prefix([ACCOUNT]) {
            let account: Account = postcard::from_bytes(&row?.1)?;
            cores[shard_index(account.id)].restore_account(account);
        }
        for row in self.db.scan_prefix([KEY]) {
            let key: Arc<Key> = postcard::from_bytes(&row?.1)?;
            let state =
                cores[shard_index(key.account)].state_mut(key.account).ok_or_else(unknown)?;
            state.keys.insert(key.id, key);
        }
        for row in self.db.scan_prefix([RATES]) {
            let (account, rates): (AccountId, Rates) = postcard::from_bytes(&row?.1)?;
            let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
            state.rates = rates;
        }
        for row in self.db.scan_prefix([KEY_LIMITS]) {
            let (account, key, limits): (AccountId, KeyId, KeyLimits) =
                postcard::from_bytes(&row?.1)?;
            let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
            state.spendings.restore_limits(key, limits);
        }
        for row in self.db.scan_prefix([SPENT]) {
            let (account, key, spent, _): (AccountId, KeyId, Spent, UnixMs) =
                postcard::from_bytes(&row?.1)?;
            if spent != Spent::default() {
                let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
                state.spendings.restore_spent(key, spent);
            }
        }
        for row in self.db.scan_prefix([GRANT]) {
            let (account, id, grant): (AccountId, String, Grant) = postcard::from_bytes(&row?.1)?;
            let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
            state.grants.insert(id, grant);
        }
        for row in self.db.scan_prefix([REFUND]) {
            let (account, id, refund): (AccountId, String, Refund) = postcard::from_bytes(&row?.1)?;
            let state = cores[shard_index(account)].state_mut(account).ok_or_else(unknown)?;
            state.restore_refund(id, refund);
        }
        self.load_tasks(cores)?;
        for row in self.db.scan_prefix([HOLD]) {
            let (id, hold): (HoldId, OpenHold) = postcard::from_bytes(&row?.1)?;
            cores[shard_index(hold.reservation.account)].restore_hold(id, hold);
        }
        self.load_people(cores)
    }

    /// Writes what `window` changed, and that the journal was applied up to `end`.
    pub(super) fn apply(&self, mut window: Window, end: Position) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        for (id, movement) in &window.movements {
            let mut account = match window.created.remove(id) {
                Some(account) => account,
                None => self
                    .value(&key(ACCOUNT, &[&id.number().to_be_bytes()]))?
                    .ok_or_else(|| StoreError(format!("there is no {id}")))?,
            };
            (account.balance, account.written_off) =
                account.after(movement).map_err(|rule| StoreError(format!("{id}: {rule}")))?;
            window.people.change(&mut account);
            put(&mut batch, key(ACCOUNT, &[&id.number().to_be_bytes()]), &account)?;
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
        self.put_limits(&mut batch, &window)?;
        people::put_people(&mut batch, &window.people)?;
        put(&mut batch, META.to_vec(), &Meta { layout: LAYOUT_VERSION, end })?;
        self.db.apply_batch(batch)?;
        Ok(())
    }

    /// What keys and accounts may use, what keys have spent, and when they were used last.
    fn put_limits(&self, batch: &mut sled::Batch, window: &Window) -> Result<(), StoreError> {
        for row @ (account, _) in &window.rates {
            put(batch, key(RATES, &[&account.number().to_be_bytes()]), &row)?;
        }
        for (id, (account, limits)) in &window.key_limits {
            put(batch, key(KEY_LIMITS, &[&id.number().to_be_bytes()]), &(account, id, limits))?;
        }
        // Whatever is charged was used.
        for ((account, id), used) in &window.used {
            let row = key(SPENT, &[&account.number().to_be_bytes(), &id.number().to_be_bytes()]);
            let before: Option<(AccountId, KeyId, Spent, UnixMs)> = self.value(&row)?;
            let (mut spent, used_before) =
                before.map_or_else(Default::default, |(_, _, spent, used)| (spent, used));
            let days = window.charges.get(&(*account, *id)).into_iter().flatten();
            days.for_each(|(day, charged)| spent.add(*day, *charged));
            put(batch, row, &(account, id, spent, used_before.max(*used)))?;
        }
        Ok(())
    }

    /// Makes everything applied so far durable.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        self.db.flush()?;
        self.log.sync_data()?;
        Ok(())
    }

    /// At most `limit` entries of an account from before `before`, newest first.
    pub(super) fn entries(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Journaled>, StoreError> {
        let mut found = Vec::new();
        for row in self.db.range(entries_key(account, 0)..entries_key(account, before)).rev() {
            let mut chunk = read_chunk(&row?.1)?;
            chunk.retain(|journaled| journaled.seq < before);
            found.extend(chunk.into_iter().rev().take(limit.saturating_sub(found.len())));
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// What a settled hold of an account was charged; `None` if there is none of this id.
    pub(super) fn charged(
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
    pub(super) fn in_doubt(&self) -> Result<Vec<Journaled>, StoreError> {
        let rows = self.db.scan_prefix([IN_DOUBT]);
        rows.map(|row| Ok(postcard::from_bytes(&row?.1)?)).collect()
    }

    fn value<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, StoreError> {
        Ok(self.db.get(key)?.map(|value| postcard::from_bytes(&value)).transpose()?)
    }
}

fn put(batch: &mut sled::Batch, key: Vec<u8>, value: &impl Serialize) -> Result<(), StoreError> {
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

/// What the hold was charged, if its end is in this chunk of a statement; `Some(None)` for one that
/// ended without a charge.
///
/// # Errors
/// For bytes that are no chunk.
pub fn charged_in(chunk: &[u8], hold: HoldId) -> Result<Option<Option<Nanousd>>, postcard::Error> {
    Ok(read_chunk(chunk)?.into_iter().find_map(|journaled| match journaled.record {
        Record::Posted { hold: ended, charged, .. }
        | Record::Recovered { hold: ended, charged, .. }
            if ended == hold =>
        {
            Some(Some(charged))
        }
        Record::Voided { hold: ended, .. } if ended == hold => Some(None),
        _ => None,
    }))
}

/// The entries of a chunk of a statement.
pub(crate) fn read_chunk(mut bytes: &[u8]) -> Result<Vec<Journaled>, postcard::Error> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (journaled, rest) = postcard::take_from_bytes(bytes)?;
        entries.push(journaled);
        bytes = rest;
    }
    Ok(entries)
}
