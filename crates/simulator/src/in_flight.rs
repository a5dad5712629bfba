//! Counter of requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts one request from its head to the end of its answer.
#[derive(Debug)]
pub(super) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
