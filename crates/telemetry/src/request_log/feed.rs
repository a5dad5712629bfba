//! The live feed of records.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};

use super::Scope;
use super::record::{self, LAYOUT, RequestRecord, RingPosition};

/// Records that a follower may be behind: some 400 KB of memory, shared by all.
pub(super) const FEED_RECORDS_MAX: usize = 1024;

/// Sends the records that were written at `at` to the followers. Costs nothing without one.
pub(super) fn tell(live: &Sender<Arc<RequestRecord>>, frames: &[u8], mut at: RingPosition) {
    if live.receiver_count() == 0 {
        return;
    }
    let mut rest = frames;
    for length in LAYOUT.frames(frames) {
        let (frame, behind) = rest.split_at(length);
        if let Some((head, stored)) = record::head(frame).zip(record::stored(frame)) {
            // The last follower may have gone meanwhile.
            live.send(Arc::new(stored.shown(at, &head))).ok();
        }
        at += length as u64;
        rest = behind;
    }
}

/// The records of one scope from now on.
#[derive(Debug)]
pub struct Feed {
    receiver: Receiver<Arc<RequestRecord>>,
    scope: Scope,
}

/// Item of a feed.
#[derive(Clone, Debug)]
pub enum Live {
    /// One more record of the log.
    Record(Arc<RequestRecord>),
    /// The reader was too slow: it missed so many records, of whatever scope.
    Missed(u64),
}

impl Feed {
    pub(super) fn new(receiver: Receiver<Arc<RequestRecord>>, scope: Scope) -> Self {
        Self { receiver, scope }
    }

    /// Waits for the next; `None` once the log is closed.
    pub async fn next(&mut self) -> Option<Live> {
        loop {
            match self.receiver.recv().await {
                Ok(logged) if self.scope.has(logged.account_id) => {
                    return Some(Live::Record(logged));
                }
                Ok(_) => {}
                // The sender never waits: a slow reader loses records and is told how many.
                Err(RecvError::Lagged(missed)) => return Some(Live::Missed(missed)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
