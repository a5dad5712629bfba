//! Records that wait to be written, and those that are dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_journal::{BatchLimits, BatchQueue, GatherResult, Urgency};

use super::DroppedRecords;

/// Largest backlog and latency of a batch.
const LIMITS: BatchLimits = BatchLimits {
    // Some 14,000 records: what the busiest gateway makes in the time of gathering, three times over.
    bytes_max: 2 << 20,
    reserved_bytes: 0,
    gathered_bytes_max: 128 << 10,
    // It bounds how many writes there are, and how far the live feed is behind.
    gather_for: Duration::from_millis(200),
};
/// Records of requests without a recognised key that are kept in one second. Anybody can make as many
/// as he likes: more would push those of customers out of the log.
const UNAUTHENTICATED_PER_SECOND_MAX: u32 = 10;

/// Frames that wait to be written.
#[derive(Debug)]
pub(super) struct FrameQueue {
    frames: BatchQueue,
    unauthenticated: Mutex<UnauthenticatedCount>,
    /// Records that could not be written.
    lost: AtomicU64,
}

/// Records of requests without a recognised key.
#[derive(Debug, Default)]
struct UnauthenticatedCount {
    /// The second that they are counted in, since 1970.
    second: u64,
    /// Records in the current second.
    count: u32,
    /// Records dropped since the start.
    dropped: u64,
}

impl UnauthenticatedCount {
    /// True if one more may be kept in this second; otherwise it counts as dropped.
    fn admit(&mut self, second: u64) -> bool {
        if self.second != second {
            // Any other second begins anew, also an earlier one: a clock that was set back must not lock
            // records out.
            (self.second, self.count) = (second, 0);
        }
        let admitted = self.count < UNAUTHENTICATED_PER_SECOND_MAX;
        if admitted {
            self.count += 1;
        } else {
            self.dropped += 1;
        }
        admitted
    }
}

impl Default for FrameQueue {
    fn default() -> Self {
        Self {
            frames: BatchQueue::new(LIMITS),
            unauthenticated: Mutex::default(),
            lost: AtomicU64::new(0),
        }
    }
}

impl FrameQueue {
    /// Takes a frame in, or drops it. `second` is now, in seconds since 1970.
    pub(super) fn push(&self, frame: &[u8], is_unauthenticated: bool, second: u64) {
        if !is_unauthenticated || self.unauthenticated.lock().admit(second) {
            self.frames.push(frame, Urgency::Gather);
        }
    }

    /// For the writer: waits for frames, lets more come, and moves them to `batch`, which is empty.
    /// `None` when nothing will come any more.
    pub(super) fn gather(&self, batch: &mut Vec<u8>) -> Option<GatherResult> {
        self.frames.gather(batch)
    }

    /// Reports that the writer processed what it gathered; `lost` records could not be written.
    pub(super) fn done(&self, gathered: &GatherResult, lost: u64) {
        self.lost.fetch_add(lost, Ordering::Relaxed);
        self.frames.done(gathered);
    }

    /// Waits until all that was taken in so far is dealt with, or the time is up.
    pub(super) fn flush(&self, timeout: Duration) {
        self.frames.flush(timeout);
    }

    /// Stops accepting records; the writer writes the remaining ones and ends.
    pub(super) fn close(&self) {
        self.frames.close();
    }

    /// Number of records received, and those dropped.
    pub(super) fn counts(&self) -> (u64, DroppedRecords) {
        let dropped = DroppedRecords {
            queue_full: self.frames.dropped(),
            unauthenticated: self.unauthenticated.lock().dropped,
            disk: self.lost.load(Ordering::Relaxed),
        };
        (self.frames.taken(), dropped)
    }
}
