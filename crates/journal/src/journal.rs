//! What stands before the thread that writes: records that have their numbers and are not on disk yet.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Seq;
use crate::waiters::Waiters;

/// How long records that nobody waits for gather before they are written: they may come fast, and a
/// flush for each would cost more than it is worth. A crash within this time loses them.
const GATHER_WINDOW: Duration = Duration::from_millis(2);

/// A journal that is open for writing, shared by all who record something.
///
/// [`Journal::enqueue`] gives a record its number under a short lock and returns; one thread, the
/// [`Committer`](crate::committer::Committer), writes what has gathered as one frame and flushes it
/// once. Who must know that a record is on disk waits with [`Journal::durable`].
pub struct Journal<E> {
    queue: Mutex<Queue<E>>,
    /// Wakes the thread of the committer.
    work: Condvar,
    /// The last record that is on disk.
    durable: AtomicU64,
    /// Whether there is little room on the disk.
    disk_full: AtomicBool,
}

struct Queue<E> {
    /// The number of the record that comes next.
    next_seq: Seq,
    /// Those before it that the committer has not taken.
    entries: Vec<E>,
    waiters: Waiters,
    /// The last record for which someone waits.
    demanded: Seq,
    /// How many of [`Unbroken`] there are.
    unbroken: u32,
    stopping: bool,
    /// Nothing is written any more, also of what has its number.
    ended: bool,
}

/// While it lives, what is recorded stays in one group: a crash takes all of it or nothing.
#[must_use = "the group ends when it is dropped"]
pub struct Unbroken<'a, E>(&'a Journal<E>);

impl<E> Drop for Unbroken<'_, E> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.unbroken = queue.unbroken.saturating_sub(1);
        drop(queue);
        self.0.work.notify_one();
    }
}

/// The journal takes no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal takes no more records")]
pub struct Stopped;

impl<E> Journal<E> {
    /// A journal whose last record is `last`.
    #[must_use]
    pub fn new(last: Seq) -> Self {
        let queue = Queue {
            next_seq: last.saturating_add(1),
            entries: Vec::new(),
            waiters: Waiters::default(),
            demanded: last,
            unbroken: 0,
            stopping: false,
            ended: false,
        };
        Self {
            queue: Mutex::new(queue),
            work: Condvar::new(),
            durable: AtomicU64::new(last),
            disk_full: AtomicBool::new(false),
        }
    }

    /// Gives a record the next number, of which `entry` makes it while the journal is locked. It will be
    /// on disk within 2 ms and a flush.
    ///
    /// # Errors
    /// After [`Journal::stop`].
    pub fn enqueue(&self, entry: impl FnOnce(Seq) -> E) -> Result<Seq, Stopped> {
        let mut queue = self.queue.lock();
        if queue.stopping && queue.unbroken == 0 {
            return Err(Stopped);
        }
        let seq = queue.next_seq;
        queue.next_seq = seq.saturating_add(1);
        let is_first = queue.entries.is_empty();
        queue.entries.push(entry(seq));
        drop(queue);
        if is_first {
            self.work.notify_one();
        }
        Ok(seq)
    }

    /// Begins records that belong together. To be held for as long as it takes to record them: nothing
    /// is written meanwhile.
    ///
    /// # Errors
    /// After [`Journal::stop`].
    pub fn unbroken(&self) -> Result<Unbroken<'_, E>, Stopped> {
        let mut queue = self.queue.lock();
        if queue.stopping {
            return Err(Stopped);
        }
        queue.unbroken = queue.unbroken.saturating_add(1);
        Ok(Unbroken(self))
    }

    /// The last record that has its number.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.queue.lock().next_seq.saturating_sub(1)
    }

    /// The last record that is on disk.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        self.durable.load(Ordering::Acquire)
    }

    /// Whether the record `seq`, and so everything before it, is on disk.
    #[must_use]
    pub fn is_durable(&self, seq: Seq) -> bool {
        self.durable_seq() >= seq
    }

    /// Waits until the record `seq` is on disk, and asks for a flush now.
    ///
    /// # Errors
    /// When the journal ended before that.
    pub async fn durable(&self, seq: Seq) -> Result<(), Stopped> {
        if self.is_durable(seq) {
            return Ok(());
        }
        let committed = {
            let mut queue = self.queue.lock();
            if self.is_durable(seq) {
                return Ok(());
            }
            if queue.ended {
                return Err(Stopped);
            }
            queue.demanded = queue.demanded.max(seq);
            queue.waiters.wait_for(seq)
        };
        self.work.notify_one();
        committed.await.map_err(|_| Stopped)
    }

    /// Whether there is little room on the disk: what can be refused should be, so that what follows
    /// from records that are there can still be written.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Takes no more records; the committer writes those that it has and ends.
    pub fn stop(&self) {
        self.queue.lock().stopping = true;
        self.work.notify_one();
    }

    /// Whether the process is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.queue.lock().stopping
    }

    /// Drops what has gathered; gives the number of records.
    pub(crate) fn drop_queued(&self) -> usize {
        std::mem::take(&mut self.queue.lock().entries).len()
    }

    pub(crate) fn set_disk_full(&self, is_full: bool) {
        self.disk_full.store(is_full, Ordering::Relaxed);
    }

    /// Waits for records worth a flush: someone waits for one, or they have gathered for long enough.
    pub(crate) fn next_group(&self, idle: Duration) -> CommitterWork<E> {
        let mut queue = self.queue.lock();
        let mut deadline = None;
        loop {
            if queue.unbroken > 0 {
                self.work.wait(&mut queue);
                continue;
            }
            if queue.entries.is_empty() {
                if queue.stopping {
                    return CommitterWork::Stop;
                }
                let waited = self.work.wait_for(&mut queue, idle);
                if waited.timed_out() && queue.entries.is_empty() {
                    return CommitterWork::Idle;
                }
                continue;
            }
            let first_seq = queue.next_seq.saturating_sub(queue.entries.len() as u64);
            let is_due = queue.demanded >= first_seq || queue.stopping;
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + GATHER_WINDOW);
            if is_due || self.work.wait_until(&mut queue, deadline).timed_out() {
                let next = Vec::with_capacity(queue.entries.len());
                return CommitterWork::Group(std::mem::replace(&mut queue.entries, next));
            }
        }
    }

    /// Everything up to `seq` is on disk.
    pub(crate) fn committed(&self, seq: Seq) {
        let mut queue = self.queue.lock();
        self.durable.store(seq, Ordering::Release);
        let woken = queue.waiters.take_up_to(seq);
        drop(queue);
        woken.wake();
    }

    /// Has those fail who still wait: nothing more will come.
    pub(crate) fn dismiss_waiters(&self) {
        let mut queue = self.queue.lock();
        queue.ended = true;
        queue.waiters.dismiss();
    }
}

/// What the committer does next.
pub(crate) enum CommitterWork<E> {
    /// Write these entries as one group.
    Group(Vec<E>),
    /// Nothing came for a while.
    Idle,
    /// Nothing will come any more.
    Stop,
}
