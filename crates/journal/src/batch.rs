//! A bounded buffer of bytes in front of one thread that writes them in batches.

use std::mem;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::urgency::Urgency;

/// With nothing to write for so long, both buffers are given back.
const IDLE_AFTER: Duration = Duration::from_millis(1200);

/// Bounds of a [`BatchQueue`], and the time its writer gathers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Memory for what waits, in bytes: more is dropped.
    pub bytes_max: usize,
    /// Bytes that [`Urgency::AtOnce`] items may take beyond that.
    pub reserved_bytes: usize,
    /// With more than this waiting, in bytes, the writer gathers no longer.
    pub gathered_bytes_max: usize,
    /// Time the writer waits for more after the first item.
    pub gather_for: Duration,
}

impl BatchLimits {
    /// Reserves memory in an empty buffer for everything that may wait.
    fn make_room(&self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0 {
            buffer.reserve_exact(self.bytes_max + self.reserved_bytes);
        }
    }
}

/// A bounded buffer of bytes in front of one thread that writes them.
///
/// The writer is woken by the first item after a pause, lets more come for a while and takes them all:
/// an item costs its thread a copy under a lock, and an idle process nothing. What the writer cannot
/// keep up with is dropped and counted; nobody waits. Two buffers take turns. Each has room for all
/// that may wait from its first item on, which takes memory only as far as it was ever filled, and is
/// given back when nothing comes any more: one that grows under a load leaves all that it outgrew.
///
/// ```
/// use std::time::Duration;
/// use tollgate_journal::{BatchQueue, BatchLimits, Urgency};
///
/// static QUEUE: BatchQueue = BatchQueue::new(BatchLimits {
///     bytes_max: 1 << 20,
///     reserved_bytes: 0,
///     gathered_bytes_max: 1 << 18,
///     gather_for: Duration::from_millis(20),
/// });
///
/// assert!(QUEUE.push(b"one ", Urgency::Gather));
/// assert!(QUEUE.push(b"two", Urgency::AtOnce));
/// // On the writer's thread:
/// let mut batch = Vec::new();
/// let gathered = QUEUE.gather(&mut batch).expect("the queue is open");
/// assert_eq!(batch, b"one two");
/// QUEUE.done(&gathered);
/// ```
#[derive(Debug)]
pub struct BatchQueue {
    limits: BatchLimits,
    state: Mutex<BatchState>,
    /// Notifies the writer of work.
    wake: Condvar,
    /// Notifies [`BatchQueue::flush`] of a processed batch.
    written: Condvar,
}

#[derive(Debug)]
struct BatchState {
    buffer: Vec<u8>,
    /// Number of bytes ever queued.
    bytes_in: u64,
    bytes_done: u64,
    /// The writer waits for the first item.
    writer_idle: bool,
    urgent: bool,
    closed: bool,
    taken: u64,
    dropped: u64,
    /// Dropped items that no batch has reported.
    dropped_unreported: u64,
}

/// Result of [`BatchQueue::gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "BatchQueue::done wants to have it"]
pub struct GatherResult {
    /// Number of bytes queued up to this point.
    bytes_in: u64,
    /// Number of items dropped since the last batch.
    pub dropped: u64,
}

impl BatchQueue {
    /// An empty queue with these limits.
    #[must_use]
    pub const fn new(limits: BatchLimits) -> Self {
        let state = BatchState {
            buffer: Vec::new(),
            bytes_in: 0,
            bytes_done: 0,
            writer_idle: false,
            urgent: false,
            closed: false,
            taken: 0,
            dropped: 0,
            dropped_unreported: 0,
        };
        Self { limits, state: Mutex::new(state), wake: Condvar::new(), written: Condvar::new() }
    }

    /// Takes an item in; false if it was dropped, because the buffer is full or the queue is closed.
    pub fn push(&self, item: &[u8], urgency: Urgency) -> bool {
        let mut state = self.state.lock();
        let reserve = if urgency == Urgency::AtOnce { self.limits.reserved_bytes } else { 0 };
        if state.closed || state.buffer.len() + item.len() > self.limits.bytes_max + reserve {
            state.dropped += 1;
            state.dropped_unreported += 1;
            return false;
        }
        self.limits.make_room(&mut state.buffer);
        state.buffer.extend_from_slice(item);
        state.bytes_in += item.len() as u64;
        state.taken += 1;
        let hurry =
            urgency == Urgency::AtOnce || state.buffer.len() > self.limits.gathered_bytes_max;
        // Waking costs a system call, so once is enough.
        let wake = mem::take(&mut state.writer_idle) || (hurry && !state.urgent);
        state.urgent |= hurry;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        true
    }

    /// Number of accepted items.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.state.lock().taken
    }

    /// Number of dropped items.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    /// Waits until all that was taken in so far is dealt with, or the time is up. The writer gathers no
    /// longer meanwhile.
    pub fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        // Items that come during the flush do not count: under load it would never end.
        let goal = state.bytes_in;
        if state.bytes_done >= goal {
            return;
        }
        state.urgent = true;
        self.wake.notify_one();
        while state.bytes_done < goal {
            if self.written.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Stops accepting bytes; the writer gets the remaining ones, and then `None`.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// For the writer: waits for items, lets more come, and moves them to `batch`, which is to be empty
    /// and whose memory is used for what comes next. `None` when the queue is closed and empty.
    pub fn gather(&self, batch: &mut Vec<u8>) -> Option<GatherResult> {
        let mut state = self.state.lock();
        while state.buffer.is_empty() {
            if state.closed {
                return None;
            }
            state.urgent = false;
            state.writer_idle = true;
            if batch.capacity().max(state.buffer.capacity()) == 0 {
                // Without buffers there is nothing to give back, so an idle process sleeps without a
                // timer.
                self.wake.wait(&mut state);
            } else if self.wake.wait_for(&mut state, IDLE_AFTER).timed_out() {
                (*batch, state.buffer) = (Vec::new(), Vec::new());
            }
        }
        state.writer_idle = false;
        // From the first item on, not from the last: a steady stream of items would postpone the batch
        // for ever.
        let until = Instant::now() + self.limits.gather_for;
        while !state.urgent && !state.closed && !self.wake.wait_until(&mut state, until).timed_out()
        {
        }
        state.urgent = false;
        // By this thread: else one that pushes would have to take the memory.
        self.limits.make_room(batch);
        mem::swap(&mut state.buffer, batch);
        let dropped = mem::take(&mut state.dropped_unreported);
        Some(GatherResult { bytes_in: state.bytes_in, dropped })
    }

    /// Reports to waiters that the writer has processed what it gathered.
    pub fn done(&self, gathered: &GatherResult) {
        self.state.lock().bytes_done = gathered.bytes_in;
        self.written.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits = BatchLimits {
        bytes_max: 8,
        reserved_bytes: 4,
        gathered_bytes_max: 4,
        gather_for: Duration::from_secs(3600),
    };

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_and_urgent_items_have_room_of_their_own() {
        let queue = BatchQueue::new(LIMITS);
        assert!(queue.push(b"12345678", Urgency::Gather));
        assert!(!queue.push(b"9", Urgency::Gather), "the buffer is full");
        assert!(queue.push(b"abcd", Urgency::AtOnce));
        assert!(!queue.push(b"e", Urgency::AtOnce), "so is the reserve");
        let mut batch = Vec::new();
        let gathered = queue.gather(&mut batch).expect("a batch");
        assert_eq!((batch.as_slice(), gathered.dropped), (&b"12345678abcd"[..], 2));
        queue.done(&gathered);
        queue.flush(Duration::ZERO);
        assert_eq!((queue.taken(), queue.dropped()), (2, 2));
        batch.clear();
        assert!(queue.push(b"f", Urgency::AtOnce));
        let gathered = queue.gather(&mut batch).expect("a batch");
        assert_eq!((batch.as_slice(), gathered.dropped), (&b"f"[..], 0), "reported once");
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_then_nothing() {
        let queue = BatchQueue::new(LIMITS);
        assert!(queue.push(b"1", Urgency::Gather));
        queue.close();
        assert!(!queue.push(b"2", Urgency::AtOnce));
        let mut batch = Vec::new();
        let gathered = queue.gather(&mut batch).expect("what was there");
        assert_eq!((batch.as_slice(), gathered.dropped), (&b"1"[..], 1));
        assert!(queue.gather(&mut Vec::new()).is_none());
    }

    #[test]
    fn buffers_have_room_for_all_that_may_wait_and_are_given_back_when_nothing_comes() {
        let queue = BatchQueue::new(LIMITS);
        assert!(queue.push(b"1", Urgency::AtOnce));
        let mut batch = Vec::new();
        let gathered = queue.gather(&mut batch).expect("a batch");
        let room = LIMITS.bytes_max + LIMITS.reserved_bytes;
        assert_eq!(batch.capacity(), room, "it does not grow");
        queue.done(&gathered);
        batch.clear();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(queue.gather(&mut batch).is_none()));
            std::thread::sleep(IDLE_AFTER + Duration::from_millis(200));
            queue.close();
        });
        assert_eq!(batch.capacity(), 0);
    }

    #[test]
    fn a_flush_ends_the_gathering_and_waits_for_the_writer() {
        let queue = BatchQueue::new(LIMITS);
        let written = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut batch = Vec::new();
                while let Some(gathered) = queue.gather(&mut batch) {
                    written.lock().append(&mut batch);
                    queue.done(&gathered);
                }
            });
            for item in [b"a", b"b", b"c"] {
                assert!(queue.push(item, Urgency::Gather));
                queue.flush(Duration::from_secs(10));
            }
            assert_eq!(*written.lock(), b"abc");
            queue.close();
        });
    }
}
