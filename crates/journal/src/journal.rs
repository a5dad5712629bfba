//! Queue before the journal's thread: numbered records that are not yet on disk.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Seq;
use crate::schedule::{NextStep, Schedule};
use crate::urgency::Urgency;
use crate::waiters::Waiters;

/// A journal open for writing, shared by all recorders.
///
/// [`Journal::enqueue`] gives a record its number under a short lock and returns; one thread, the
/// [`Committer`](crate::committer::Committer), writes what has gathered as one frame and flushes it
/// once. Who must know that a record is on disk waits with [`Journal::durable`].
pub struct Journal<E> {
    queue: Mutex<Queue<E>>,
    /// Wakes the thread of the committer.
    work: Condvar,
    /// Position of the last record on disk.
    durable: AtomicU64,
    /// First record of the group that was taken last.
    last_group_from: AtomicU64,
    /// True if disk space is low.
    disk_full: AtomicBool,
}

struct Queue<E> {
    /// The number of the record that comes next.
    next_seq: Seq,
    /// Earlier records that the committer has not taken yet.
    entries: Vec<E>,
    waiters: Waiters,
    /// Schedule of the writes.
    schedule: Schedule,
    /// Nothing is written any more, also of what has its number.
    ended: bool,
}

impl<E> Queue<E> {
    /// Number of the first record that the committer has not taken yet, or of the next one without any.
    fn first_gathered(&self) -> Seq {
        self.next_seq.saturating_sub(self.entries.len() as u64)
    }
}

/// Guard: records enqueued while it lives form one group, which a crash keeps or loses as a whole.
#[must_use = "the group ends when it is dropped"]
pub struct AtomicGroup<'a, E>(&'a Journal<E>);

impl<E> Drop for AtomicGroup<'_, E> {
    fn drop(&mut self) {
        let wakes = self.0.queue.lock().schedule.close_group();
        self.0.wake_if(wakes);
    }
}

/// Error of a journal that accepts no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal takes no more records")]
pub struct JournalStopped;

impl<E> Journal<E> {
    /// A journal whose last record is `last`.
    #[must_use]
    pub fn new(last: Seq) -> Self {
        let queue = Queue {
            next_seq: last.saturating_add(1),
            entries: Vec::new(),
            waiters: Waiters::default(),
            schedule: Schedule::default(),
            ended: false,
        };
        Self {
            queue: Mutex::new(queue),
            work: Condvar::new(),
            durable: AtomicU64::new(last),
            last_group_from: AtomicU64::new(last),
            disk_full: AtomicBool::new(false),
        }
    }

    /// Gives a record the next number, of which `entry` makes it while the journal is locked.
    ///
    /// With [`Urgency::AtOnce`] the flush that takes it begins now, or when the one that goes on is over
    /// and has rested; at the latest 2 ms after that one began. With [`Urgency::Gather`] it is on disk with
    /// the next such record, or 50 ms and a flush from now.
    ///
    /// # Errors
    /// After [`Journal::stop`].
    pub fn enqueue(
        &self,
        urgency: Urgency,
        entry: impl FnOnce(Seq) -> E,
    ) -> Result<Seq, JournalStopped> {
        let mut queue = self.queue.lock();
        // An open group may finish after the stop: half of it on disk is what the group exists to
        // prevent.
        if queue.schedule.is_stopping() && !queue.schedule.is_open() {
            return Err(JournalStopped);
        }
        let seq = queue.next_seq;
        queue.next_seq = seq.saturating_add(1);
        // Number and place are taken under one lock, so that the order in the file is that of the
        // numbers.
        queue.entries.push(entry(seq));
        // The lock is released before the wake-up: the woken thread takes it first of all, and would
        // only block.
        let wakes = queue.schedule.gathered(urgency);
        drop(queue);
        self.wake_if(wakes);
        Ok(seq)
    }

    /// Begins records that belong together. To be held for as long as it takes to record them: nothing
    /// is written meanwhile.
    ///
    /// # Errors
    /// After [`Journal::stop`].
    pub fn atomic_group(&self) -> Result<AtomicGroup<'_, E>, JournalStopped> {
        let mut queue = self.queue.lock();
        if queue.schedule.is_stopping() {
            return Err(JournalStopped);
        }
        queue.schedule.open_group();
        Ok(AtomicGroup(self))
    }

    /// Position of the last enqueued record.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.queue.lock().next_seq.saturating_sub(1)
    }

    /// Position of the last record on disk.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        self.durable.load(Ordering::Acquire)
    }

    /// True if record `seq`, and so everything before it, is on disk.
    #[must_use]
    pub fn is_durable(&self, seq: Seq) -> bool {
        self.durable_seq() >= seq
    }

    /// Waits until the record `seq` is on disk, and asks for a flush as [`Urgency::AtOnce`] does.
    ///
    /// # Errors
    /// When the journal ended before that.
    pub async fn durable(&self, seq: Seq) -> Result<(), JournalStopped> {
        if self.is_durable(seq) {
            // Older records are of slow answers, for whose callers no lock is taken.
            if seq >= self.last_group_from.load(Ordering::Relaxed) {
                let wakes = self.queue.lock().schedule.wait_for_last();
                self.wake_if(wakes);
            }
            return Ok(());
        }
        let (committed, wakes) = {
            let mut queue = self.queue.lock();
            if self.is_durable(seq) {
                return Ok(());
            }
            if queue.ended {
                return Err(JournalStopped);
            }
            // What stands before those that gather is being written.
            let gathers = seq >= queue.first_gathered();
            let schedule = &mut queue.schedule;
            let wakes = if gathers { schedule.wait_for_next() } else { schedule.wait_for_last() };
            (queue.waiters.wait_for(seq), wakes)
        };
        self.wake_if(wakes);
        committed.await.map_err(|_| JournalStopped)
    }

    /// True if disk space is low. New work should be refused then, so that the records that follow
    /// from earlier work still fit.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Stops accepting records; the committer writes the remaining ones and ends.
    pub fn stop(&self) {
        let wakes = self.queue.lock().schedule.stop();
        self.wake_if(wakes);
    }

    /// Number of times that a recorder or waiter had to wake the committer's thread.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.queue.lock().schedule.wakes()
    }

    /// Waking costs a system call, so it is done where the schedule says so and nowhere else.
    fn wake_if(&self, wakes: bool) {
        if wakes {
            self.work.notify_one();
        }
    }

    /// True if the process is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.queue.lock().schedule.is_stopping()
    }

    /// Drops what has gathered; gives the number of records.
    pub(crate) fn drop_queued(&self) -> usize {
        std::mem::take(&mut self.queue.lock().entries).len()
    }

    pub(crate) fn set_disk_full(&self, is_full: bool) {
        self.disk_full.store(is_full, Ordering::Relaxed);
    }

    /// Waits for records that are to be written, or for as long as `idle` when none come.
    pub(crate) fn next_group(&self, idle: Duration, group: &mut Vec<E>) -> CommitterWork {
        let mut queue = self.queue.lock();
        loop {
            match queue.schedule.next(Instant::now()) {
                NextStep::Write => {
                    self.last_group_from.store(queue.first_gathered(), Ordering::Relaxed);
                    // Two vectors take turns, so that neither grows anew for each group.
                    std::mem::swap(&mut queue.entries, group);
                    return CommitterWork::Group;
                }
                NextStep::RestUntil(date) => {
                    self.work.wait_until(&mut queue, date);
                }
                NextStep::Rest => {
                    if self.work.wait_for(&mut queue, idle).timed_out() {
                        return CommitterWork::Idle;
                    }
                }
                NextStep::Stop => return CommitterWork::Stop,
            }
        }
    }

    /// Everything up to `seq` is on disk.
    pub(crate) fn committed(&self, seq: Seq) {
        let mut queue = self.queue.lock();
        // Under the lock: a waiter that has just looked at `durable` registers before this, or sees the
        // new value.
        self.durable.store(seq, Ordering::Release);
        let woken = queue.waiters.take_up_to(seq);
        drop(queue);
        woken.wake();
    }

    /// Has those fail who still wait: nothing more will come.
    pub(crate) fn dismiss_waiters(&self) {
        let mut queue = self.queue.lock();
        // Before the waiters go: whoever comes later would wait for a thread that has ended.
        queue.ended = true;
        queue.waiters.dismiss();
    }
}

/// Next step of the committer.
pub(crate) enum CommitterWork {
    /// Write the entries that it was given as one group.
    Group,
    /// Nothing came for a while.
    Idle,
    /// Nothing will come any more.
    Stop,
}
