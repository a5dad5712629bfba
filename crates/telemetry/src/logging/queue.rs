//! Lines that wait to be written, and the one thread that writes them in batches.

use std::io::Write;
use std::time::Duration;

use log::Level;
use tollgate_journal::{BatchLimits, BatchQueue};

pub(super) use tollgate_journal::Urgency;

use super::line::{Line, name};
use tollgate_types::clock::UnixMs;

/// Memory for lines that wait, in bytes: a tenth of a second of the busiest access log.
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// Reserve for warnings and errors beyond that, in bytes.
const BYTES_RESERVED: usize = 256 * 1024;
/// Past this the writer gathers no longer, in bytes.
const BYTES_GATHERED_MAX: usize = 128 * 1024;

/// Lines that wait to be written. When they come faster than they can be written, they are dropped.
#[derive(Debug)]
pub(super) struct LineQueue(BatchQueue);

impl LineQueue {
    /// An empty queue, in which lines gather for this long before they are written.
    pub(super) const fn new(gather_for: Duration) -> Self {
        Self(BatchQueue::new(BatchLimits {
            bytes_max: BYTES_MAX,
            reserved_bytes: BYTES_RESERVED,
            gathered_bytes_max: BYTES_GATHERED_MAX,
            gather_for,
        }))
    }

    /// Takes a line in, or drops it when the buffer is full.
    pub(super) fn push(&self, line: &[u8], urgency: Urgency) {
        self.0.push(line, urgency);
    }

    /// Lines dropped since the start.
    pub(super) fn lines_dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Waits until all that was taken in so far is written, or the time is up.
    pub(super) fn flush(&self, timeout: Duration) {
        self.0.flush(timeout);
    }

    /// Writes lines as they come, for ever.
    pub(super) fn write_to(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        while let Some(gathered) = self.0.gather(&mut batch) {
            // In the place of the lines: a reader of the log sees the gap where it is.
            if gathered.dropped > 0 {
                batch.extend_from_slice(&dropped_line(gathered.dropped));
            }
            // A log that cannot be written has nowhere to say so; its lines are lost.
            drop(sink.write_all(&batch).and_then(|()| sink.flush()));
            batch.clear();
            self.0.done(&gathered);
        }
    }
}

fn dropped_line(lines: u64) -> Vec<u8> {
    let mut line = Line::new();
    line.begin(UnixMs::now(), Level::Warn, module_path!());
    line.text(name!("msg"), "log lines were dropped: they could not be written fast enough");
    line.number(name!("lines"), lines);
    line.finish().to_vec()
}
