//! The thread that writes the journal: gather, write, flush once, wake who waits, hand on.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fs4::FileExt as _;

use super::segment::{Position, Writer};
use super::{Journal, Next};
use crate::ledger::projector::{Backlog, Group};
use crate::ledger::record::Journaled;
use crate::ledger::{Commit, OnCommit, fatal};

/// Below this many free bytes new holds are refused. At 200 bytes for hold and settlement it is room
/// for the settlements of some hundred thousand calls in flight, and for sled.
pub(crate) const FREE_BYTES_MIN: u64 = 64 << 20;
/// Room that is kept allocated, and given up when the disk is full in spite of the above (someone
/// else filled it).
const BALLAST_BYTES: u64 = 16 << 20;
/// How often free space is looked at.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a write to a full disk is tried again.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// An idle committer looks up this rarely, and once in [`SPACE_CHECK_INTERVAL`] while the disk is full.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);

/// What the committer thread owns.
pub(crate) struct Committer {
    pub(crate) journal: Arc<Journal>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) writer: Writer,
    pub(crate) on_commit: Option<OnCommit>,
    pub(crate) space: Space,
}

impl Committer {
    /// Runs until [`Journal::stop`]. An error that is not a full disk ends the process: after a
    /// failed flush the kernel may have dropped the pages, and a second flush would say that all is
    /// well.
    pub(crate) fn run(mut self) {
        loop {
            let is_full = self.space.check();
            self.journal.disk_full.store(is_full, Ordering::Relaxed);
            match self.journal.next_group(if is_full {
                SPACE_CHECK_INTERVAL
            } else {
                IDLE_INTERVAL
            }) {
                Next::Group(records) => {
                    let end = self.commit(&records);
                    self.backlog.push(Group { records, end });
                    self.journal.committed(end.seq);
                }
                Next::Idle => {}
                Next::Stop => break,
            }
        }
        self.journal.dismiss_waiters();
        self.backlog.stop();
    }

    fn commit(&mut self, records: &[Journaled]) -> Position {
        let began = Instant::now();
        let before = self.writer.position();
        let end = loop {
            match self.writer.write(records) {
                Ok(end) => break end,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    self.journal.disk_full.store(true, Ordering::Relaxed);
                    self.space.make_room();
                }
                Err(error) => fatal(&format!("the journal cannot be written: {error}")),
            }
        };
        if let Err(error) = self.writer.flush(end) {
            fatal(&format!("the journal cannot be flushed: {error}"));
        }
        if let Some(on_commit) = &self.on_commit {
            let bytes = end.offset.checked_sub(before.offset).unwrap_or(end.offset);
            on_commit(Commit { records: records.len(), bytes, took: began.elapsed() });
        }
        end
    }
}

/// Watches free space and keeps the ballast.
pub(crate) struct Space {
    dir: PathBuf,
    free_bytes_min: u64,
    checked_at: Option<Instant>,
    is_full: bool,
}

impl Space {
    /// Watches the disk under `dir`.
    pub(crate) fn new(dir: PathBuf, free_bytes_min: u64) -> Self {
        Self { dir, free_bytes_min, checked_at: None, is_full: false }
    }

    /// Whether less than the minimum is free, as it was found within the last second.
    fn check(&mut self) -> bool {
        if self.checked_at.is_some_and(|at| at.elapsed() < SPACE_CHECK_INTERVAL) {
            return self.is_full;
        }
        self.checked_at = Some(Instant::now());
        let was_full = self.is_full;
        match fs4::available_space(&self.dir) {
            Ok(free_bytes) => {
                self.is_full = free_bytes < self.free_bytes_min;
                if !self.is_full {
                    self.keep_ballast();
                }
            }
            Err(error) => log::warn!("free space under {} is unknown: {error}", self.dir.display()),
        }
        if self.is_full && !was_full {
            log::error!(
                "less than {} MiB are free under {}: new calls are refused until there is room",
                self.free_bytes_min >> 20,
                self.dir.display()
            );
        } else if was_full && !self.is_full {
            log::info!("there is room again under {}", self.dir.display());
        }
        self.is_full
    }

    fn keep_ballast(&self) {
        let path = self.dir.join("ballast");
        if path.exists() {
            return;
        }
        let allocated = File::create(&path).and_then(|file| file.allocate(BALLAST_BYTES));
        if let Err(error) = allocated {
            log::warn!("no room could be set aside in {}: {error}", path.display());
        }
    }

    /// Gives up the ballast, or waits a little if it is gone already.
    fn make_room(&mut self) {
        self.is_full = true;
        self.checked_at = Some(Instant::now());
        match fs::remove_file(self.dir.join("ballast")) {
            Ok(()) => log::error!("the disk is full: the ballast file was given up"),
            Err(_) => {
                log::error!("the disk is full: the journal waits for room");
                std::thread::sleep(FULL_RETRY_INTERVAL);
            }
        }
    }
}
