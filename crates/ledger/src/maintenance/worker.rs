//! Maintenance threads: one seals closed segments and writes checkpoints, the other moves old segments to the
//! archive.
//!
//! Nothing waits for them, and failures are retried. They read closed files and add files beside them; a file
//! is removed only after its copy was read back.

mod mover;

use crate::projection::load;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use self::mover::Mover;
use crate::archive::Archive;
use crate::files::seal::{self, Seal};
use crate::journal::head::{Checkpoint, HeadFile};
use crate::journal::sealing::{SegmentStart, make_seal};
use crate::journal::segment::{self, Position};
use crate::journal::{FREE_BYTES_MIN, Journal, enqueue};
use crate::projection::backlog::Backlog;
use crate::projection::checkpoint;
use crate::projection::projected::ProjectionSlot;
use crate::projection::store::{Store, StoreError};
use crate::records::error::OpenError;
use crate::records::record::Record;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::Seq;

/// Interval between two checks for work.
const INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failure.
const REST: Duration = Duration::from_secs(60);
/// Number of checkpoints kept: if the last is unreadable, the one before serves.
const CHECKPOINTS_KEPT: usize = 2;
/// Minimum time between two checkpoints. Each blocks sled while its rows are read.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum time for a checkpoint's record to become durable.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval while a checkpoint's record is flushed.
const RECORD_POLL: Duration = Duration::from_millis(5);

/// Settings for the journal's closed segments.
pub struct MaintenanceOptions {
    /// Minimum time between two checkpoints; otherwise there is one per closed segment.
    pub checkpoint_interval: Duration,
    /// Destination of old segments; `None` keeps them in the data directory.
    pub archive: Option<Archive>,
    /// Callback for each event.
    pub on_event: Option<OnMaintenance>,
}

/// Callback of the maintenance threads; must be quick.
pub type OnMaintenance = Box<dyn Fn(MaintenanceEvent) + Send + Sync>;

/// Event of the maintenance threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaintenanceEvent {
    /// Total size of the journal's files in the data directory.
    Journal {
        /// Size of the files, in bytes.
        bytes: u64,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// Time of the checkpoint.
        at: UnixMs,
    },
    /// A segment was moved away.
    Archived {
        /// Its length.
        bytes: u64,
    },
    /// A step failed and is retried.
    Failed,
}

impl Default for MaintenanceOptions {
    fn default() -> Self {
        Self { checkpoint_interval: CHECKPOINT_INTERVAL, archive: None, on_event: None }
    }
}

/// Shared state of the maintenance threads.
pub(crate) struct Maintenance {
    dir: PathBuf,
    options: MaintenanceOptions,
    head: Arc<HeadFile>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    /// The same as `stopping`, for transfers in progress.
    broken_off: Arc<AtomicBool>,
}

impl Maintenance {
    pub(crate) fn new(dir: &Path, options: MaintenanceOptions, head: Arc<HeadFile>) -> Self {
        let (stopping, stopped) = (Mutex::new(false), Condvar::new());
        let broken_off = Arc::default();
        Self { dir: dir.to_owned(), options, head, stopping, stopped, broken_off }
    }

    /// Creates the worker that seals segments and writes checkpoints.
    pub(crate) fn worker(
        self: &Arc<Self>,
        journal: Arc<Journal>,
        backlog: Arc<Backlog>,
        projected: Arc<ProjectionSlot>,
    ) -> MaintenanceWorker {
        let maintenance = Arc::clone(self);
        // A process that is started again and again does not write one each time.
        let checkpointed = (!self.head.now().notes.checkpoints.is_empty()).then(Instant::now);
        MaintenanceWorker {
            maintenance,
            journal,
            backlog,
            projected,
            seen: Vec::new(),
            checkpointed,
        }
    }

    /// Stops the threads after their current step; a transfer to the archive is cancelled.
    pub(crate) fn stop(&self) {
        *self.stopping.lock() = true;
        // Transfers look at this between two pieces: a process that stops does not wait for a slow
        // bucket.
        self.broken_off.store(true, Ordering::Relaxed);
        self.stopped.notify_all();
    }

    /// Creates the worker that moves segments to the archive; `None` without an archive.
    pub(crate) fn mover(self: &Arc<Self>) -> Option<Mover> {
        self.options.archive.as_ref().map(|_| Mover::new(Arc::clone(self)))
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.lock()
    }

    /// Waits for `time`. False once stopped.
    fn rest(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.stopped.wait_for(&mut stopping, time);
        }
        !*stopping
    }

    fn journal_dir(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Reports the size of the segments in the data directory.
    fn measure(&self, here: &[Seq]) {
        let dir = self.journal_dir();
        let length = |first_seq: &Seq| std::fs::metadata(segment::path(&dir, *first_seq));
        let lengths = here.iter().filter_map(|seq| length(seq).ok());
        self.notify(MaintenanceEvent::Journal { bytes: lengths.map(|found| found.len()).sum() });
    }

    /// Repeats a step of work until stopped, and reports failures.
    fn repeat(&self, mut turn: impl FnMut() -> Result<(), OpenError>) {
        let mut rest = INTERVAL;
        while self.rest(rest) {
            rest = match turn() {
                Ok(()) => INTERVAL,
                // What it was doing was broken off.
                Err(_) if self.is_stopping() => return,
                Err(error) => {
                    log::error!("the journal's closed segments cannot be looked after: {error}");
                    self.notify(MaintenanceEvent::Failed);
                    REST
                }
            };
        }
    }

    fn notify(&self, event: MaintenanceEvent) {
        if let Some(on_event) = &self.options.on_event {
            on_event(event);
        }
    }
}

/// Thread that seals segments and writes checkpoints.
pub(crate) struct MaintenanceWorker {
    maintenance: Arc<Maintenance>,
    journal: Arc<Journal>,
    backlog: Arc<Backlog>,
    projected: Arc<ProjectionSlot>,
    /// Segments at the last step, all but the last of them sealed.
    seen: Vec<Seq>,
    /// Time at which the last checkpoint was written or found.
    checkpointed: Option<Instant>,
}

/// Free space required for a checkpoint: one of the size of the last, and the reserve for settlements
/// once new calls are refused.
fn room_for_checkpoint(dir: &Path, last: Seq) -> u64 {
    let last = std::fs::metadata(checkpoint::path(dir, last)).map_or(0, |file| file.len());
    FREE_BYTES_MIN.saturating_add(last.saturating_mul(2))
}

impl MaintenanceWorker {
    pub(crate) fn run(mut self) {
        let maintenance = Arc::clone(&self.maintenance);
        maintenance.repeat(|| self.turn());
    }

    fn turn(&mut self) -> Result<(), OpenError> {
        self.seal()?;
        self.checkpoint()
    }

    /// Seals every segment that has a successor: its last frame was flushed before the successor began.
    fn seal(&mut self) -> Result<(), OpenError> {
        let dir = self.maintenance.journal_dir();
        let here = segment::list_here(&dir)?;
        // Seals are read from disk; the list of names shows at no cost that nothing has begun.
        if here == self.seen {
            return Ok(());
        }
        for (first_seq, next) in here.iter().zip(here.iter().skip(1)) {
            if Seal::find(&dir, *first_seq)?.is_some() {
                continue;
            }
            // The next one is being made.
            let Some(chain) = seal::chain_before(&dir, *next) else { return Ok(()) };
            let begun = Instant::now();
            let made = make_seal(
                &dir,
                *first_seq,
                SegmentStart { first_seq: *next, chain_before: chain },
            )?;
            log::debug!(
                "records {first_seq} to {} were sealed: {} bytes in {} ms",
                made.last_seq,
                made.bytes,
                begun.elapsed().as_millis()
            );
            self.maintenance.head.reached(Position {
                segment: made.first_seq,
                offset: made.bytes,
                seq: made.last_seq,
                chain: made.chain,
            })?;
            // Reading a segment of 64 MiB takes a while, and the next start does the rest.
            if self.maintenance.is_stopping() {
                return Ok(());
            }
        }
        self.maintenance.measure(&here);
        self.seen = here;
        Ok(())
    }

    /// Writes a checkpoint if a segment was closed since the last one.
    fn checkpoint(&mut self) -> Result<(), OpenError> {
        let (maintenance, dir) = (&self.maintenance, &self.maintenance.dir);
        let is_early = |at: Instant| at.elapsed() < maintenance.options.checkpoint_interval;
        if self.checkpointed.is_some_and(is_early) || self.seen.len() < 2 {
            return Ok(());
        }
        let last =
            maintenance.head.now().notes.checkpoints.last().map_or(0, |checkpoint| checkpoint.seq);
        let applied = self.backlog.applied_seq();
        // Sled is in a segment that has begun since, so at least one behind the last checkpoint was
        // closed and would not be needed any more.
        let in_segment = self.seen.iter().rfind(|first_seq| **first_seq <= applied);
        if in_segment.is_none_or(|first_seq| *first_seq <= last) || self.seen.first() == in_segment
        {
            return Ok(());
        }
        // A checkpoint must not take the room that settlements of open calls need.
        load::check_room(dir, room_for_checkpoint(dir, last))?;
        let begun = Instant::now();
        let written = self.ask(|store| checkpoint::write(dir, store))?.flatten();
        let Some((written, bytes)) = written else { return Ok(()) };
        let took = begun.elapsed();
        let (seq, sha256, at) = (written.seq, written.sha256, written.at);
        let record = Record::Checkpointed(Arc::new(written));
        // The journal stops, and the file is one that it does not tell of.
        let Ok(record_seq) = enqueue(&self.journal, record, None) else {
            return Ok(());
        };
        // `head.json` may name the checkpoint only when its record is durable: a start trusts a checkpoint
        // because the hash-chained journal has its hash.
        while !self.journal.is_durable(record_seq) {
            if begun.elapsed() > took + RECORD_TIMEOUT {
                return Ok(());
            }
            std::thread::sleep(RECORD_POLL);
        }
        maintenance.head.note(|head| {
            head.notes.checkpoints.push(Checkpoint { seq, sha256, record_seq });
            let old = head.notes.checkpoints.len().saturating_sub(CHECKPOINTS_KEPT);
            head.notes.checkpoints.drain(..old);
        })?;
        self.checkpointed = Some(Instant::now());
        log::info!("checkpoint of record {seq} written: {bytes} bytes in {} ms", took.as_millis());
        maintenance.notify(MaintenanceEvent::Checkpoint { at });
        let directory = checkpoint::directory(dir);
        // Last: until the head names the new one, a start needs the old ones.
        checkpoint::tidy(dir, &maintenance.head.now().notes.checkpoints)
            .map_err(OpenError::io(directory))
    }

    /// Queries sled. `None` while it is unavailable or fails: the projector repairs it, and the next step
    /// asks again.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&Store) -> Result<T, OpenError>,
    ) -> Result<Option<T>, OpenError> {
        let answered = self.projected.ask(|store| match ask(store) {
            Err(OpenError::Store(cause)) => Err(StoreError::new(cause)),
            Err(OpenError::NoRoom(cause)) => Err(StoreError::full(cause)),
            answer => Ok(answer),
        });
        let Ok(answer) = answered else {
            self.backlog.suspect();
            return Ok(None);
        };
        answer.map(Some)
    }
}
