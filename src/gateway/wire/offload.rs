//! Work on large bodies, off the event loop: while a body of tens of megabytes is read, checked or
//! copied, the thread that does it serves nobody else. Short ones stay where they are, since going
//! elsewhere would take longer than the work.

use std::num::NonZero;
use std::thread;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task;

pub(crate) use tollgate_process_memory::{LARGE_BYTES, run_now};

/// Limit of concurrent work on large bodies.
#[derive(Debug)]
pub(crate) struct Offload(Semaphore);

/// Permit to work on a body, given back on drop.
#[must_use]
pub(crate) enum OffloadPermit<'a> {
    /// The work is short, so it is done in place.
    Here,
    /// A large body, processed on another thread with one of the permits.
    Elsewhere {
        /// Its place among them.
        _permit: Option<SemaphorePermit<'a>>,
    },
}

impl Offload {
    /// Permits for half of the processors, so that the other half keeps serving requests.
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self(Semaphore::new((processors / 2).max(1)))
    }

    /// Waits for a permit to process so many bytes.
    pub(crate) async fn enter(&self, bytes: usize) -> OffloadPermit<'_> {
        if bytes < LARGE_BYTES {
            return OffloadPermit::Here;
        }
        // Nobody closes it.
        OffloadPermit::Elsewhere { _permit: self.0.acquire().await.ok() }
    }

    /// Runs `work` on a body of so many bytes where it blocks no other request.
    pub(crate) async fn run<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        self.enter(bytes).await.run(work)
    }
}

impl OffloadPermit<'_> {
    /// True if the body is large.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self, Self::Elsewhere { .. })
    }

    /// Does the work: a large one while the other tasks of the thread go on in another.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Here => work(),
            // The other tasks of this thread go on in another.
            Self::Elsewhere { .. } => task::block_in_place(work),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_bodies_are_few_at_a_time_and_short_ones_pass_them() {
        let offload = Offload(Semaphore::new(1));
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = || async {
            let work = || {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
                at_once.fetch_sub(1, Ordering::SeqCst);
            };
            offload.run(LARGE_BYTES, work).await;
        };
        tokio::join!(one(), one(), one());
        assert_eq!(most.load(Ordering::SeqCst), 1, "large ones take turns");
        let leave = offload.enter(LARGE_BYTES).await;
        assert!(leave.is_large() && !offload.enter(LARGE_BYTES - 1).await.is_large());
        assert_eq!(offload.run(LARGE_BYTES - 1, || 7).await, 7, "a short one waits for nobody");
    }
}
