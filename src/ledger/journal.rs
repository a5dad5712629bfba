//! The journal: the truth about money, appended and hash-chained.
//!
//! [`Journal::enqueue`] gives a record its place under a short lock and returns; one thread, the
//! [`committer`], writes what has gathered as one frame and flushes it once. Who must know that a
//! record is on disk waits with [`Journal::durable`].

pub(crate) mod committer;
pub(crate) mod frame;
pub(crate) mod records;
pub(crate) mod segment;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::ledger::Seq;
use crate::ledger::record::{Journaled, OpenHold, Record};
use crate::ledger::waiters::Waiters;

/// How long records that nobody waits for gather before they are written: settlements come fast, and
/// a flush for each would cost more than it is worth. A crash within this time leaves their holds in
/// doubt.
const GATHER_WINDOW: Duration = Duration::from_millis(2);

/// The queue in front of the committer, shared with everyone who records something.
pub(crate) struct Journal {
    queue: Mutex<Queue>,
    /// Wakes the committer.
    work: Condvar,
    /// The last record that is on disk.
    durable: AtomicU64,
    /// Whether the disk is too full for new holds.
    disk_full: AtomicBool,
}

struct Queue {
    /// The place of the record that comes next.
    next_seq: Seq,
    records: Vec<Journaled>,
    waiters: Waiters,
    /// The last record for which someone waits.
    demanded: Seq,
    /// How many of [`Together`] there are.
    together: u32,
    stopping: bool,
}

/// While it lives, what is recorded stays in one group: a crash takes all of it or nothing.
pub(crate) struct Together<'a>(&'a Journal);

impl Drop for Together<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.together = queue.together.saturating_sub(1);
        drop(queue);
        self.0.work.notify_one();
    }
}

/// The journal takes no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

impl Journal {
    /// A journal whose last record is `last`.
    pub(crate) fn new(last: Seq) -> Self {
        let queue = Queue {
            next_seq: last.saturating_add(1),
            records: Vec::new(),
            waiters: Waiters::default(),
            demanded: last,
            together: 0,
            stopping: false,
        };
        Self {
            queue: Mutex::new(queue),
            work: Condvar::new(),
            durable: AtomicU64::new(last),
            disk_full: AtomicBool::new(false),
        }
    }

    /// Gives `record` its place. It will be on disk within [`GATHER_WINDOW`] and a flush.
    ///
    /// # Errors
    /// After [`Journal::stop`].
    pub(crate) fn enqueue(&self, record: Record, hold: Option<OpenHold>) -> Result<Seq, Stopped> {
        let mut queue = self.queue.lock();
        if queue.stopping && queue.together == 0 {
            return Err(Stopped);
        }
        let seq = queue.next_seq;
        queue.next_seq = seq.saturating_add(1);
        let is_first = queue.records.is_empty();
        queue.records.push(Journaled { seq, record, hold });
        drop(queue);
        if is_first {
            self.work.notify_one();
        }
        Ok(seq)
    }

    /// Begins records that belong together. To be held for as long as it takes to record them.
    ///
    /// # Errors
    /// After [`Journal::stop`].
    pub(crate) fn together(&self) -> Result<Together<'_>, Stopped> {
        let mut queue = self.queue.lock();
        if queue.stopping {
            return Err(Stopped);
        }
        queue.together = queue.together.saturating_add(1);
        Ok(Together(self))
    }

    /// The last record that has its place.
    pub(crate) fn last_seq(&self) -> Seq {
        self.queue.lock().next_seq.saturating_sub(1)
    }

    /// Whether the record at `seq`, and so everything before it, is on disk.
    pub(crate) fn is_durable(&self, seq: Seq) -> bool {
        self.durable.load(Ordering::Acquire) >= seq
    }

    /// Waits until the record at `seq` is on disk, and asks for a flush now.
    ///
    /// # Errors
    /// When the journal stopped before that.
    pub(crate) async fn durable(&self, seq: Seq) -> Result<(), Stopped> {
        if self.is_durable(seq) {
            return Ok(());
        }
        let committed = {
            let mut queue = self.queue.lock();
            if self.is_durable(seq) {
                return Ok(());
            }
            queue.demanded = queue.demanded.max(seq);
            queue.waiters.wait_for(seq)
        };
        self.work.notify_one();
        committed.await.map_err(|_| Stopped)
    }

    /// Whether new holds must be refused to leave room for settlements.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Takes no more records; the committer writes those that it has and ends.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.work.notify_one();
    }

    /// Waits for records worth a flush: someone waits for one, or they have gathered for long enough.
    fn next_group(&self, idle: Duration) -> Next {
        let mut queue = self.queue.lock();
        let mut deadline = None;
        loop {
            if queue.together > 0 {
                self.work.wait(&mut queue);
                continue;
            }
            let Some(first) = queue.records.first() else {
                if queue.stopping {
                    return Next::Stop;
                }
                let waited = self.work.wait_for(&mut queue, idle);
                if waited.timed_out() && queue.records.is_empty() {
                    return Next::Idle;
                }
                continue;
            };
            let is_due = queue.demanded >= first.seq || queue.stopping;
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + GATHER_WINDOW);
            if is_due || self.work.wait_until(&mut queue, deadline).timed_out() {
                let capacity = queue.records.len();
                return Next::Group(std::mem::replace(
                    &mut queue.records,
                    Vec::with_capacity(capacity),
                ));
            }
        }
    }

    /// Says that everything up to `seq` is on disk.
    fn committed(&self, seq: Seq) {
        let mut queue = self.queue.lock();
        self.durable.store(seq, Ordering::Release);
        let woken = queue.waiters.take_up_to(seq);
        drop(queue);
        woken.tell();
    }

    /// Lets those who still wait know that nothing more will come.
    fn dismiss_waiters(&self) {
        self.queue.lock().waiters.dismiss();
    }
}

/// What the committer does next.
enum Next {
    /// Write these.
    Group(Vec<Journaled>),
    /// Nothing came for a while.
    Idle,
    /// Nothing will come any more.
    Stop,
}
