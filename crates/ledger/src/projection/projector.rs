//! The thread that brings the sled ledger up to the journal, every few seconds.

mod mend;
mod pack;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tollgate_journal::Waiters;

use self::mend::Mender;
use self::pack::Packer;
use crate::journal::head::HeadFile;
use crate::journal::segment::Position;
use crate::projection::projected::Projected;
use crate::projection::store::{Store, StoreError};
use crate::projection::window::Window;
use crate::records::error::LedgerError;
use crate::records::record::Journaled;
use tollgate_money::ids::Seq;
pub use tollgate_options::ledger::Pruning;

/// How long records gather before they are applied. Sled takes some 10 µs to change a row and each
/// account has four per window, so the longer it is, the less a call costs where many accounts are
/// active.
const WINDOW: Duration = Duration::from_secs(5);
/// This many records are applied before the window's time is over: some 8 MB of memory, and a
/// fraction of a second to replay after a crash.
pub(crate) const WINDOW_RECORDS_MAX: usize = 50_000;
/// A batch takes no further group when it changes this many rows. Sled frees the pages that a batch
/// replaces when the batch is over, some 4 KiB for each row, and the memory of a batch of 40,000 rows
/// does not come back.
const BATCH_ROWS_MAX: usize = 256;
/// With this many records waiting the committer waits too.
const BACKLOG_RECORDS_MAX: usize = 2 * WINDOW_RECORDS_MAX;

/// What one group commit wrote.
pub(crate) struct Group {
    pub records: Vec<Journaled>,
    /// Where the journal ended behind it.
    pub end: Position,
}

/// What is in the journal but not yet in sled.
pub(crate) struct Backlog {
    state: Mutex<State>,
    arrived: Condvar,
    room: Condvar,
    applied: AtomicU64,
}

#[derive(Default)]
struct State {
    groups: Vec<Group>,
    records: usize,
    waiters: Waiters,
    stopping: bool,
    /// The last record that was handed over.
    pushed: Seq,
    /// Why sled takes nothing, while it does not: what comes is in the journal, and read from there.
    away: Option<String>,
    /// Whether what comes is kept although sled is away: it is about to be back.
    keeps: bool,
    /// Whether somebody has met an error.
    suspected: bool,
    /// When what has gathered is to be applied.
    window_due: Option<Instant>,
}

enum Due {
    /// Someone waits to read.
    Demanded,
    /// The window or the backlog is full.
    Window,
    /// There is time for other work.
    Woken,
    /// A query has failed.
    Suspected,
    /// The journal has stopped.
    Stop,
}

impl Backlog {
    /// A backlog behind what sled has already.
    pub(crate) fn new(applied: Seq) -> Self {
        Self {
            state: Mutex::new(State { pushed: applied, ..State::default() }),
            arrived: Condvar::new(),
            room: Condvar::new(),
            applied: AtomicU64::new(applied),
        }
    }

    /// Adds a group; waits while there is no room.
    pub(crate) fn push(&self, group: Group) {
        let mut state = self.state.lock();
        while state.records >= BACKLOG_RECORDS_MAX && state.away.is_none() {
            self.room.wait(&mut state);
        }
        state.pushed = group.end.seq;
        if state.away.is_some() && (!state.keeps || state.records >= BACKLOG_RECORDS_MAX) {
            state.let_go();
            return;
        }
        state.records = state.records.saturating_add(group.records.len());
        state.groups.push(group);
        let is_awaited = state.groups.len() == 1
            || state.records >= WINDOW_RECORDS_MAX
            || !state.waiters.is_empty();
        drop(state);
        if is_awaited {
            self.arrived.notify_one();
        }
    }

    /// Nothing more will come.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.arrived.notify_one();
    }

    /// Waits until sled has the record at `seq`, and asks for it now.
    ///
    /// # Errors
    /// When sled has failed, or the ledger closed before that.
    pub(crate) async fn applied(&self, seq: Seq) -> Result<(), LedgerError> {
        let applied = {
            let mut state = self.state.lock();
            if self.applied.load(Ordering::Acquire) >= seq {
                return Ok(());
            }
            if let Some(cause) = &state.away {
                return Err(LedgerError::Store(cause.clone()));
            }
            state.waiters.wait_for(seq)
        };
        self.arrived.notify_one();
        applied.await.map_err(|_| match &self.state.lock().away {
            Some(cause) => LedgerError::Store(cause.clone()),
            None => LedgerError::Stopped,
        })
    }

    /// A query has met an error: the projector looks at sled now.
    pub(crate) fn suspect(&self) {
        self.state.lock().suspected = true;
        self.arrived.notify_one();
    }

    /// What has gathered, when it is due; nothing if `wake` comes before.
    fn next_window(&self, flush_due: Option<Instant>, wake: Option<Instant>) -> (Vec<Group>, Due) {
        let mut state = self.state.lock();
        let due = loop {
            if state.stopping {
                break Due::Stop;
            }
            if std::mem::take(&mut state.suspected) {
                break Due::Suspected;
            }
            if !state.groups.is_empty() {
                if !state.waiters.is_empty() {
                    break Due::Demanded;
                }
                if state.records >= WINDOW_RECORDS_MAX {
                    break Due::Window;
                }
                state.window_due.get_or_insert_with(|| Instant::now() + WINDOW);
            }
            let deadline = flush_due.or(state.window_due);
            match deadline.into_iter().chain(wake).min() {
                None => self.arrived.wait(&mut state),
                Some(until) => {
                    if !self.arrived.wait_until(&mut state, until).timed_out() {
                        continue;
                    }
                    if deadline.is_none_or(|deadline| deadline > Instant::now()) {
                        return (Vec::new(), Due::Woken);
                    }
                    break Due::Window;
                }
            }
        };
        (state.records, state.window_due) = (0, None);
        let groups = std::mem::take(&mut state.groups);
        drop(state);
        self.room.notify_one();
        (groups, due)
    }

    fn has_applied(&self, seq: Seq) {
        let mut state = self.state.lock();
        self.applied.store(seq, Ordering::Release);
        let woken = state.waiters.take_up_to(seq);
        drop(state);
        woken.wake();
    }

    /// Sled cannot go on: the journal does, and sled is brought up to it when it is back.
    pub(crate) fn leave(&self, cause: &str) {
        let mut state = self.state.lock();
        state.away = Some(cause.to_owned());
        state.suspected = false;
        state.let_go();
        state.waiters.dismiss();
        drop(state);
        self.room.notify_one();
    }

    /// The last record that sled has.
    pub(crate) fn applied_seq(&self) -> Seq {
        self.applied.load(Ordering::Acquire)
    }

    /// The last record that came, all of which are on disk.
    pub(crate) fn pushed(&self) -> Seq {
        self.state.lock().pushed
    }

    /// Keeps what comes from here on, and gives the last record that came before.
    pub(crate) fn keep(&self) -> Seq {
        let mut state = self.state.lock();
        state.let_go();
        state.keeps = true;
        state.pushed
    }

    /// Sled is back and has everything that came before [`Backlog::keep`], up to `applied`. False if
    /// too much has come since, and was let go.
    pub(crate) fn resume(&self, applied: Seq) -> bool {
        let mut state = self.state.lock();
        if !state.keeps {
            return false;
        }
        state.keeps = false;
        state.away = None;
        self.applied.store(applied, Ordering::Release);
        true
    }

    /// Waits for a while, and says whether the journal has stopped.
    pub(crate) fn stops_within(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        let mut state = self.state.lock();
        while !state.stopping {
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.stopping
    }
}

impl State {
    /// Gives up what has gathered: it is in the journal.
    fn let_go(&mut self) {
        self.groups = Vec::new();
        self.records = 0;
        self.window_due = None;
        self.keeps = false;
    }
}

/// What the projector thread owns.
pub(crate) struct Projector {
    pub backlog: Arc<Backlog>,
    pub projected: Arc<Projected>,
    /// The ledger's directory.
    pub dir: PathBuf,
    /// The checkpoints with which another sled begins.
    pub head: Arc<HeadFile>,
    /// How long lines and hours are kept.
    pub pruning: Pruning,
}

impl Projector {
    /// Runs until the journal stops. Whenever sled fails it is opened again or made anew meanwhile;
    /// `absence` is why there is none to begin with.
    pub(crate) fn run(self, absence: Option<String>) {
        let mut mender = Mender::new(&self);
        let mut failure = absence.map(StoreError::full);
        loop {
            let cause = match failure.take() {
                Some(cause) => cause,
                // Sled panics on some kinds of corruption that it does not expect.
                None => match catch_unwind(AssertUnwindSafe(|| self.project())) {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => error,
                    Err(_) => StoreError::new("sled panicked"),
                },
            };
            if !mender.mend(&cause) {
                break;
            }
        }
        self.backlog.state.lock().waiters.dismiss();
    }

    fn project(&self) -> Result<(), StoreError> {
        let mut flush_due: Option<Instant> = None;
        let mut packer = Packer::new(self);
        loop {
            let (groups, due) = self.backlog.next_window(flush_due, packer.wake());
            if let Some(end) = groups.last().map(|group| group.end) {
                self.apply(groups)?;
                self.backlog.has_applied(end.seq);
                flush_due = flush_due.or_else(|| Some(Instant::now() + WINDOW));
            }
            let is_overdue = flush_due.is_some_and(|due| due <= Instant::now());
            let is_due = match due {
                // Rows that are copied go through the cache too.
                Due::Window | Due::Demanded | Due::Woken if packer.is_packing() => {
                    self.projected.write(|store| Ok(store.is_worn()))?
                }
                Due::Demanded | Due::Woken => false,
                Due::Window | Due::Suspected | Due::Stop => true,
            };
            if flush_due.is_some() && (is_overdue || is_due) {
                self.projected.write(Store::flush)?;
                flush_due = None;
            }
            match due {
                Due::Stop => return Ok(()),
                Due::Suspected => {
                    if let Some(error) = self.projected.suspected() {
                        return Err(error);
                    }
                }
                Due::Demanded | Due::Window | Due::Woken if flush_due.is_none() => {
                    let applied = self.backlog.applied_seq();
                    self.projected.renew(&self.dir.join("sled"), applied)?;
                }
                Due::Demanded | Due::Window | Due::Woken => {}
            }
            packer.turn()?;
        }
    }

    /// Applies groups in as few batches as their rows allow.
    fn apply(&self, groups: Vec<Group>) -> Result<(), StoreError> {
        let mut window = Window::default();
        let mut end = None;
        for group in groups {
            for journaled in group.records {
                window
                    .add(journaled)
                    .map_err(|violation| StoreError::new(violation.to_string()))?;
            }
            end = Some(group.end);
            if window.rows() >= BATCH_ROWS_MAX {
                let full = std::mem::take(&mut window);
                self.projected.write(|store| store.apply(full, group.end))?;
                end = None;
            }
        }
        end.map_or(Ok(()), |end| self.projected.write(|store| store.apply(window, end)))
    }
}
