//! The thread that brings the sled ledger up to the journal, every few seconds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::ledger::Seq;
use crate::ledger::error::LedgerError;
use crate::ledger::journal::segment::Position;
use crate::ledger::projection::Window;
use crate::ledger::record::Journaled;
use crate::ledger::store::{Store, StoreError};
use crate::ledger::waiters::Waiters;

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
    pub(crate) records: Vec<Journaled>,
    /// Where the journal ended behind it.
    pub(crate) end: Position,
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
    failed: Option<String>,
}

enum Due {
    /// Someone waits to read.
    Demanded,
    /// The window or the backlog is full.
    Window,
    /// The journal has stopped.
    Stop,
}

impl Backlog {
    /// A backlog behind what sled has already.
    pub(crate) fn new(applied: Seq) -> Self {
        Self {
            state: Mutex::default(),
            arrived: Condvar::new(),
            room: Condvar::new(),
            applied: AtomicU64::new(applied),
        }
    }

    /// Adds a group; waits while there is no room.
    pub(crate) fn push(&self, group: Group) {
        let mut state = self.state.lock();
        while state.records >= BACKLOG_RECORDS_MAX && state.failed.is_none() {
            self.room.wait(&mut state);
        }
        if state.failed.is_some() {
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
            if let Some(cause) = &state.failed {
                return Err(LedgerError::Store(cause.clone()));
            }
            state.waiters.wait_for(seq)
        };
        self.arrived.notify_one();
        applied.await.map_err(|_| LedgerError::Stopped)
    }

    fn next_window(&self, flush_due: Option<Instant>) -> (Vec<Group>, Due) {
        let mut deadline = flush_due;
        let mut state = self.state.lock();
        let due = loop {
            if state.stopping {
                break Due::Stop;
            }
            if !state.groups.is_empty() {
                if !state.waiters.is_empty() {
                    break Due::Demanded;
                }
                if state.records >= WINDOW_RECORDS_MAX {
                    break Due::Window;
                }
                deadline = deadline.or_else(|| Some(Instant::now() + WINDOW));
            }
            match deadline {
                None => self.arrived.wait(&mut state),
                Some(deadline) => {
                    if self.arrived.wait_until(&mut state, deadline).timed_out() {
                        break Due::Window;
                    }
                }
            }
        };
        state.records = 0;
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
        woken.tell();
    }

    /// Sled cannot go on: the journal does, and the next start brings sled up to it.
    fn fail(&self, cause: &str) {
        log::error!(
            "the sled ledger failed and is left behind until the next start; money is safe in the \
             journal, but statements and usage cannot be read: {cause}"
        );
        let mut state = self.state.lock();
        state.failed = Some(cause.to_owned());
        state.groups.clear();
        state.waiters.dismiss();
        self.room.notify_one();
    }
}

/// What the projector thread owns.
pub(crate) struct Projector {
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) store: Arc<Store>,
}

impl Projector {
    /// Runs until the journal stops, or sled fails.
    pub(crate) fn run(self) {
        // Sled panics on some kinds of corruption that it does not expect.
        match catch_unwind(AssertUnwindSafe(|| self.project())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.backlog.fail(&error.to_string()),
            Err(_) => self.backlog.fail("sled panicked"),
        }
    }

    fn project(&self) -> Result<(), StoreError> {
        let mut flush_due: Option<Instant> = None;
        loop {
            let (groups, due) = self.backlog.next_window(flush_due);
            if let Some(end) = groups.last().map(|group| group.end) {
                self.apply(groups)?;
                self.backlog.has_applied(end.seq);
                flush_due = flush_due.or_else(|| Some(Instant::now() + WINDOW));
            }
            let is_overdue = flush_due.is_some_and(|due| due <= Instant::now());
            if flush_due.is_some() && (is_overdue || !matches!(due, Due::Demanded)) {
                self.store.flush()?;
                flush_due = None;
            }
            if matches!(due, Due::Stop) {
                self.backlog.state.lock().waiters.dismiss();
                return Ok(());
            }
        }
    }

    /// Applies groups in as few batches as their rows allow.
    fn apply(&self, groups: Vec<Group>) -> Result<(), StoreError> {
        let mut window = Window::default();
        let mut end = None;
        for group in groups {
            for journaled in group.records {
                window.add(journaled).map_err(|violation| StoreError(violation.to_string()))?;
            }
            end = Some(group.end);
            if window.rows() >= BATCH_ROWS_MAX {
                self.store.apply(std::mem::take(&mut window), group.end)?;
                end = None;
            }
        }
        end.map_or(Ok(()), |end| self.store.apply(window, end))
    }
}
