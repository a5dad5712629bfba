//! The threads that look after what the committer leaves behind: one seals segments that take no more
//! records and writes checkpoints, the other moves old segments away.
//!
//! Nothing waits for them, and what fails is tried again. They read closed files and add files beside
//! them; the only ones that are removed are those of which a copy was read back.

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
use crate::journal::sealing::{Next, make_seal};
use crate::journal::segment::{self, Position};
use crate::journal::{FREE_BYTES_MIN, Journal, enqueue};
use crate::projection::backlog::Backlog;
use crate::projection::checkpoint;
use crate::projection::projected::Projected;
use crate::projection::store::{Store, StoreError};
use crate::records::error::OpenError;
use crate::records::record::Record;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::Seq;

/// How often it looks whether there is something to do.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long it rests after something has failed.
const REST: Duration = Duration::from_secs(60);
/// Checkpoints that are kept: where the last cannot be read, the one before serves.
const CHECKPOINTS_KEPT: usize = 2;
/// Between two checkpoints. Each stops what sled does for as long as it takes to read its rows.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(600);
/// How long a checkpoint's record may take to be on disk.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);
/// How often that is looked at.
const RECORD_POLL: Duration = Duration::from_millis(5);

/// What becomes of the journal's closed segments.
pub struct Keeping {
    /// The least time between two checkpoints. There is one for each closed segment otherwise.
    pub checkpoint_interval: Duration,
    /// Where segments go in the end; `None` for nowhere.
    pub archive: Option<Archive>,
    /// Told about everything that was done.
    pub on_kept: Option<OnKept>,
}

/// Called by the keeper's thread; must be quick.
pub type OnKept = Box<dyn Fn(Kept) + Send + Sync>;

/// Something that the keeper did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The journal's files in the data directory have this length together.
    Journal {
        /// In bytes.
        bytes: u64,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// When.
        at: UnixMs,
    },
    /// A segment was moved away.
    Archived {
        /// Its length.
        bytes: u64,
    },
    /// Something could not be done, and is tried again.
    Failed,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { checkpoint_interval: CHECKPOINT_INTERVAL, archive: None, on_kept: None }
    }
}

/// What others see of the keeper.
pub(crate) struct Keeper {
    dir: PathBuf,
    keeping: Keeping,
    head: Arc<HeadFile>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    /// The same as `stopping`, for what is at work elsewhere.
    broken_off: Arc<AtomicBool>,
}

impl Keeper {
    pub(crate) fn new(dir: &Path, keeping: Keeping, head: Arc<HeadFile>) -> Self {
        let (stopping, stopped) = (Mutex::new(false), Condvar::new());
        let broken_off = Arc::default();
        Self { dir: dir.to_owned(), keeping, head, stopping, stopped, broken_off }
    }

    /// What its thread runs.
    pub(crate) fn at_work(
        self: &Arc<Self>,
        journal: Arc<Journal>,
        backlog: Arc<Backlog>,
        projected: Arc<Projected>,
    ) -> AtWork {
        let keeper = Arc::clone(self);
        // A process that is started again and again does not write one each time.
        let checkpointed = (!self.head.now().notes.checkpoints.is_empty()).then(Instant::now);
        AtWork { keeper, journal, backlog, projected, seen: Vec::new(), checkpointed }
    }

    /// Has it end after what it is doing; what is being sent to an archive is broken off.
    pub(crate) fn stop(&self) {
        *self.stopping.lock() = true;
        self.broken_off.store(true, Ordering::Relaxed);
        self.stopped.notify_all();
    }

    /// What the thread runs that moves segments away, if they go anywhere.
    pub(crate) fn mover(self: &Arc<Self>) -> Option<Mover> {
        self.keeping.archive.as_ref().map(|_| Mover::new(Arc::clone(self)))
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.lock()
    }

    /// Waits, and says whether to go on.
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

    /// Tells how long these segments are that are in the data directory.
    fn measure(&self, here: &[Seq]) {
        let dir = self.journal_dir();
        let length = |first_seq: &Seq| std::fs::metadata(segment::path(&dir, *first_seq));
        let lengths = here.iter().filter_map(|seq| length(seq).ok());
        self.tell(Kept::Journal { bytes: lengths.map(|found| found.len()).sum() });
    }

    /// Does a turn of work again and again until it is stopped, and tells what has failed.
    fn repeat(&self, mut turn: impl FnMut() -> Result<(), OpenError>) {
        let mut rest = INTERVAL;
        while self.rest(rest) {
            rest = match turn() {
                Ok(()) => INTERVAL,
                // What it was doing was broken off.
                Err(_) if self.is_stopping() => return,
                Err(error) => {
                    log::error!("the journal's closed segments cannot be looked after: {error}");
                    self.tell(Kept::Failed);
                    REST
                }
            };
        }
    }

    fn tell(&self, kept: Kept) {
        if let Some(on_kept) = &self.keeping.on_kept {
            on_kept(kept);
        }
    }
}

/// What the keeper's thread owns.
pub(crate) struct AtWork {
    keeper: Arc<Keeper>,
    journal: Arc<Journal>,
    backlog: Arc<Backlog>,
    projected: Arc<Projected>,
    /// The segments that were there when it looked last, all but the last of them sealed.
    seen: Vec<Seq>,
    /// When it has written the last checkpoint, or has found one.
    checkpointed: Option<Instant>,
}

/// The room that a checkpoint may be written with: another one as the last, and what settlements are to
/// find when calls are refused already.
fn room_for_checkpoint(dir: &Path, last: Seq) -> u64 {
    let last = std::fs::metadata(checkpoint::path(dir, last)).map_or(0, |file| file.len());
    FREE_BYTES_MIN.saturating_add(last.saturating_mul(2))
}

impl AtWork {
    pub(crate) fn run(mut self) {
        let keeper = Arc::clone(&self.keeper);
        keeper.repeat(|| self.turn());
    }

    fn turn(&mut self) -> Result<(), OpenError> {
        self.seal()?;
        self.checkpoint()
    }

    /// Seals what is closed: every segment behind which another one has begun. Its last frame was
    /// flushed before that.
    fn seal(&mut self) -> Result<(), OpenError> {
        let dir = self.keeper.journal_dir();
        let here = segment::list_here(&dir)?;
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
            let made = make_seal(&dir, *first_seq, Next { first_seq: *next, chain_before: chain })?;
            log::debug!(
                "records {first_seq} to {} were sealed: {} bytes in {} ms",
                made.last_seq,
                made.bytes,
                begun.elapsed().as_millis()
            );
            self.keeper.head.reached(Position {
                segment: made.first_seq,
                offset: made.bytes,
                seq: made.last_seq,
                chain: made.chain,
            })?;
            if self.keeper.is_stopping() {
                return Ok(());
            }
        }
        self.keeper.measure(&here);
        self.seen = here;
        Ok(())
    }

    /// Writes a checkpoint once a segment was closed since the last one.
    fn checkpoint(&mut self) -> Result<(), OpenError> {
        let (keeper, dir) = (&self.keeper, &self.keeper.dir);
        let is_early = |at: Instant| at.elapsed() < keeper.keeping.checkpoint_interval;
        if self.checkpointed.is_some_and(is_early) || self.seen.len() < 2 {
            return Ok(());
        }
        let last =
            keeper.head.now().notes.checkpoints.last().map_or(0, |checkpoint| checkpoint.seq);
        let applied = self.backlog.applied_seq();
        // Sled is in a segment that has begun since, so at least one behind the last checkpoint was
        // closed and would not be needed any more.
        let in_segment = self.seen.iter().rfind(|first_seq| **first_seq <= applied);
        if in_segment.is_none_or(|first_seq| *first_seq <= last) || self.seen.first() == in_segment
        {
            return Ok(());
        }
        load::check_room(dir, room_for_checkpoint(dir, last))?;
        let begun = Instant::now();
        let written = self.ask(|store| checkpoint::write(dir, store))?.flatten();
        let Some((written, bytes)) = written else { return Ok(()) };
        let took = begun.elapsed();
        let (seq, sha256, at) = (written.seq, written.sha256, written.at);
        let record = Record::Checkpointed(Arc::new(written));
        // The journal stops, and the file is one that it does not tell of.
        let Ok(told_at) = enqueue(&self.journal, record, None) else {
            return Ok(());
        };
        while !self.journal.is_durable(told_at) {
            if begun.elapsed() > took + RECORD_TIMEOUT {
                return Ok(());
            }
            std::thread::sleep(RECORD_POLL);
        }
        keeper.head.note(|head| {
            head.notes.checkpoints.push(Checkpoint { seq, sha256, told_at });
            let old = head.notes.checkpoints.len().saturating_sub(CHECKPOINTS_KEPT);
            head.notes.checkpoints.drain(..old);
        })?;
        self.checkpointed = Some(Instant::now());
        log::info!("checkpoint of record {seq} written: {bytes} bytes in {} ms", took.as_millis());
        keeper.tell(Kept::Checkpoint { at });
        let directory = checkpoint::directory(dir);
        checkpoint::tidy(dir, &keeper.head.now().notes.checkpoints)
            .map_err(OpenError::io(directory))
    }

    /// Asks sled. `None` while it is away or fails: it is mended by whoever has it, and asked again then.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&Store) -> Result<T, OpenError>,
    ) -> Result<Option<T>, OpenError> {
        let asked = self.projected.ask(|store| match ask(store) {
            Err(OpenError::Store(cause)) => Err(StoreError::new(cause)),
            Err(OpenError::NoRoom(cause)) => Err(StoreError::full(cause)),
            answer => Ok(answer),
        });
        let Ok(answer) = asked else {
            self.backlog.suspect();
            return Ok(None);
        };
        answer.map(Some)
    }
}
