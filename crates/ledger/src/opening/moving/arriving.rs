//! A single gateway's journal, made of what is said in a fleet.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::projection::load;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::files::directory::sync_directory;
use crate::files::lock::DirectoryLock;
use crate::files::moved::MovedMarker;
use crate::journal::segment::{Position, Writer};
use crate::records::error::OpenError;
use crate::records::record::{JournaledRecord, Record};
use crate::rules::account::{Balance, Movement};
use crate::rules::core::Core;
use crate::rules::shards::{new_cores, shard_index};
use tollgate_types::ids::{AccountId, Seq};

/// Records that are written as one group: some 300 bytes each.
const GROUP_RECORDS: usize = 4096;

/// Key files that are written before the ledger is complete.
const KEYS: [&str; 2] = ["webhook-key", "session-key"];

/// A ledger that is being made. Nobody can open it before [`MovedMarker::remove`].
pub struct MoveTarget {
    dir: PathBuf,
    cores: Vec<Core>,
    writer: Writer,
    group: Vec<JournaledRecord>,
    seq: Seq,
    lock: DirectoryLock,
}

impl MoveTarget {
    /// Begins a ledger in `dir`, which is empty or contains an unfinished one.
    ///
    /// # Errors
    /// When there is anything else in it, or it cannot be written.
    pub fn begin(dir: &Path, moved: &MovedMarker) -> Result<Self, OpenError> {
        let was_begun = MovedMarker::find(dir)?.is_some();
        let lock = DirectoryLock::take(dir)?;
        for entry in fs::read_dir(dir).map_err(OpenError::io(dir))? {
            let entry = entry.map_err(OpenError::io(dir))?;
            let (path, name) = (entry.path(), entry.file_name());
            if name == "lock" || name.to_string_lossy().starts_with("moved.json") {
                continue;
            }
            if was_begun && KEYS.iter().any(|key| name == *key) {
                continue;
            }
            if !was_begun || !(name == "journal" || name == "sled") {
                let error = io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the directory must be empty: a ledger is made in it",
                );
                return Err(OpenError::Io { path, source: error });
            }
            fs::remove_dir_all(&path).map_err(OpenError::io(&path))?;
        }
        moved.keep(dir)?;
        let journal = dir.join("journal");
        fs::create_dir(&journal).map_err(OpenError::io(&journal))?;
        sync_directory(dir).map_err(OpenError::io(dir))?;
        Ok(Self {
            dir: dir.to_owned(),
            cores: new_cores(),
            writer: Writer::open(&journal, Position::default())?,
            group: Vec::new(),
            seq: 0,
            lock,
        })
    }

    /// Adds a record and gives its place.
    ///
    /// # Errors
    /// When it contradicts what was added before, or the disk refuses it.
    pub fn add(&mut self, record: Record) -> Result<Seq, OpenError> {
        let seq = self.seq.saturating_add(1);
        let core = &mut self.cores[shard_index(record.account())];
        core.apply(seq, &record).map_err(OpenError::Violation)?;
        self.seq = seq;
        self.group.push(JournaledRecord { seq, record, hold: None });
        if self.group.len() >= GROUP_RECORDS {
            self.write()?;
        }
        Ok(seq)
    }

    fn write(&mut self) -> Result<(), OpenError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let written = self.writer.write(&self.group).and_then(|end| self.writer.flush(end));
        written.map_err(OpenError::io(self.dir.join("journal")))?;
        self.group.clear();
        Ok(())
    }

    /// The money of an account now.
    pub fn balance(&self, account: AccountId) -> Balance {
        let account = self.cores[shard_index(account)].account(account);
        account.map(|account| account.balance).unwrap_or_default()
    }

    /// True where the account's money allows this record, which extends and ends no hold.
    pub fn allows(&self, record: &Record) -> bool {
        let account = self.cores[shard_index(record.account())].account(record.account());
        let movement = Movement::of(record, None);
        account.zip(movement.ok()).is_some_and(|(account, movement)| {
            let after = account.after(&movement);
            match record {
                Record::CreditSet { limit, .. } => {
                    after.is_ok_and(|(balance, _)| balance.credit == *limit)
                }
                _ => after.is_ok(),
            }
        })
    }

    /// Writes what is left, and makes sled of the journal.
    ///
    /// # Errors
    /// When the disk refuses it, or sled and the journal do not say the same.
    pub fn end(mut self) -> Result<(), OpenError> {
        self.write()?;
        drop(self.writer);
        load::load(&self.dir, &[], None)?;
        drop(self.lock);
        Ok(())
    }
}
