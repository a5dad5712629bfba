//! Records that wait to be written: a bounded buffer, and who wakes the writer.
//!
//! The writer is woken by the first record after a pause, lets more gather and takes them all; so a
//! request pays for a copy under a lock, and an idle process nothing.

use std::mem;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Dropped;

/// Memory for records that wait, in bytes: some 14,000 of them, a [`GATHER`] of the busiest gateway
/// three times over.
const BYTES_MAX: usize = 2 << 20;
/// How long records gather before they are written. It bounds how many writes there are, and how far
/// the live feed is behind.
const GATHER: Duration = Duration::from_millis(200);
/// Records of requests without a recognised key that are kept in one second. Anybody can make as many
/// as he likes: more would push those of customers out of the log.
const STRANGERS_PER_SECOND_MAX: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Tells the writer that there is something to do.
    wake: Condvar,
    /// Tells [`Queue::flush`] that records were written.
    written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    frames: Vec<u8>,
    /// Bytes that were ever taken in, and how many of them were dealt with.
    bytes_in: u64,
    bytes_done: u64,
    records: u64,
    /// The writer waits without a timeout.
    writer_idle: bool,
    urgent: bool,
    closed: bool,
    dropped: Dropped,
    /// The second that strangers are counted in, and how many there were.
    strangers: (u64, u32),
}

impl Queue {
    /// Takes a frame in, or drops it.
    pub(super) fn push(&self, frame: &[u8], is_stranger: bool, second: u64) {
        let mut state = self.state.lock();
        if state.closed || state.frames.len() + frame.len() > BYTES_MAX {
            state.dropped.queue_full += 1;
            return;
        }
        if is_stranger {
            if state.strangers.0 != second {
                state.strangers = (second, 0);
            }
            if state.strangers.1 >= STRANGERS_PER_SECOND_MAX {
                state.dropped.strangers += 1;
                return;
            }
            state.strangers.1 += 1;
        }
        state.frames.extend_from_slice(frame);
        state.bytes_in += frame.len() as u64;
        state.records += 1;
        // Waking costs a system call, so once is enough.
        let wake = mem::take(&mut state.writer_idle);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Waits for frames, lets more come, and moves them to `batch`, which is empty. Gives what
    /// [`Queue::done`] wants to hear; `None` when nothing will come any more.
    pub(super) fn gather(&self, batch: &mut Vec<u8>) -> Option<u64> {
        let mut state = self.state.lock();
        while state.frames.is_empty() {
            if state.closed {
                return None;
            }
            state.urgent = false;
            state.writer_idle = true;
            self.wake.wait(&mut state);
        }
        state.writer_idle = false;
        let until = Instant::now() + GATHER;
        while !state.urgent && !state.closed && !self.wake.wait_until(&mut state, until).timed_out()
        {
        }
        state.urgent = false;
        mem::swap(&mut state.frames, batch);
        Some(state.bytes_in)
    }

    /// All up to there was dealt with; `lost` of it could not be written.
    pub(super) fn done(&self, up_to: u64, lost: u64) {
        let mut state = self.state.lock();
        state.bytes_done = up_to;
        state.dropped.disk += lost;
        drop(state);
        self.written.notify_all();
    }

    /// Waits until all that was taken in so far is dealt with, or the time is up.
    pub(super) fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
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

    /// Takes nothing more; the writer writes what there is and ends.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Records that were ever taken in, and what was dropped.
    pub(super) fn counts(&self) -> (u64, Dropped) {
        let state = self.state.lock();
        (state.records, state.dropped)
    }
}
