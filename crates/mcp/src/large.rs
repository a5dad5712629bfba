//! Work on large bodies, off the event loop.

use tokio::task;

/// The length from which on a body is worked on elsewhere: less takes below half a millisecond.
const LARGE_BYTES: usize = 256 * 1024;

/// Works on a body of this size. The other tasks of the thread go on in another one meanwhile if it is large.
pub(super) fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE_BYTES { work() } else { task::block_in_place(work) }
}
