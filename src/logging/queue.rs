//! A bounded buffer of lines, and the one thread that writes them in batches.
//!
//! The writer is woken by the first line after a pause, lets lines gather for a moment and writes
//! them with one system call; so a line costs its thread a copy, and an idle process nothing.

use std::io::Write;
use std::mem;
use std::time::{Duration, Instant};

use log::Level;
use parking_lot::{Condvar, Mutex};

use super::line::Line;
use crate::clock::UnixMs;

/// Memory for lines that wait, in bytes: a tenth of a second of the busiest access log.
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// What warnings and errors may take beyond that, in bytes.
const BYTES_RESERVED: usize = 256 * 1024;
/// Past this the writer gathers no longer.
const BYTES_GATHERED_MAX: usize = BYTES_MAX / 4;

/// When a line has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// With those that come after it.
    Gather,
    /// Now.
    AtOnce,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// How long lines gather before they are written.
    gather_for: Duration,
    state: Mutex<State>,
    /// Tells the writer that there is something to do.
    wake: Condvar,
    /// Tells [`Queue::flush`] that a batch was written.
    written: Condvar,
}

#[derive(Debug)]
struct State {
    lines: Vec<u8>,
    /// Bytes that were ever taken in, and how many of them were written.
    bytes_in: u64,
    bytes_written: u64,
    /// The writer waits without a timeout.
    writer_idle: bool,
    urgent: bool,
    dropped: u64,
    /// Dropped lines that the log itself has not told of yet.
    dropped_untold: u64,
}

impl Queue {
    pub(super) const fn new(gather_for: Duration) -> Self {
        let state = State {
            lines: Vec::new(),
            bytes_in: 0,
            bytes_written: 0,
            writer_idle: false,
            urgent: false,
            dropped: 0,
            dropped_untold: 0,
        };
        Self { gather_for, state: Mutex::new(state), wake: Condvar::new(), written: Condvar::new() }
    }

    /// Takes a line in, or drops it when the buffer is full.
    pub(super) fn push(&self, line: &[u8], urgency: Urgency) {
        let mut state = self.state.lock();
        let reserve = if urgency == Urgency::AtOnce { BYTES_RESERVED } else { 0 };
        if state.lines.len() + line.len() > BYTES_MAX + reserve {
            state.dropped += 1;
            state.dropped_untold += 1;
            return;
        }
        state.lines.extend_from_slice(line);
        state.bytes_in += line.len() as u64;
        let hurry = urgency == Urgency::AtOnce || state.lines.len() > BYTES_GATHERED_MAX;
        // Waking costs a system call, so once is enough.
        let wake = mem::take(&mut state.writer_idle) || (hurry && !state.urgent);
        state.urgent |= hurry;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    pub(super) fn lines_dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    /// Waits until all that was taken in so far is written, or the time is up.
    pub(super) fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        let goal = state.bytes_in;
        state.urgent = true;
        self.wake.notify_one();
        while state.bytes_written < goal {
            if self.written.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Writes lines as they come, for ever.
    pub(super) fn write_to(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        loop {
            let goal = self.gather(&mut batch);
            // A log that cannot be written has nowhere to say so; its lines are lost.
            drop(sink.write_all(&batch).and_then(|()| sink.flush()));
            batch.clear();
            batch.shrink_to(BYTES_GATHERED_MAX);
            self.state.lock().bytes_written = goal;
            self.written.notify_all();
        }
    }

    /// Waits for lines, lets more come, and moves them to `batch`. Gives the count of bytes taken
    /// in up to then.
    fn gather(&self, batch: &mut Vec<u8>) -> u64 {
        let mut state = self.state.lock();
        while state.lines.is_empty() {
            state.urgent = false;
            state.writer_idle = true;
            self.wake.wait(&mut state);
        }
        state.writer_idle = false;
        let until = Instant::now() + self.gather_for;
        while !state.urgent && !self.wake.wait_until(&mut state, until).timed_out() {}
        state.urgent = false;
        mem::swap(&mut state.lines, batch);
        let untold = mem::take(&mut state.dropped_untold);
        let goal = state.bytes_in;
        drop(state);
        if untold > 0 {
            batch.extend_from_slice(&dropped_line(untold));
        }
        goal
    }
}

fn dropped_line(lines: u64) -> Vec<u8> {
    let mut line = Line::new();
    line.begin(UnixMs::now(), Level::Warn, module_path!());
    line.text("msg", "log lines were dropped: they could not be written fast enough");
    line.number("lines", lines);
    line.finish().to_vec()
}
