//! Work on large bodies, off the event loop.

use tokio::task;

/// Length in bytes from which a body counts as large: work on less takes below half a millisecond.
pub const LARGE_BYTES: usize = 256 * 1024;

/// Does work on a body of so many bytes, at once and in this thread. While a large one is worked on, another
/// thread takes over the other tasks of this one.
///
/// # Panics
/// For a large body in a runtime with a single thread, which has no other to hand its tasks to.
pub fn run_now<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < LARGE_BYTES { work() } else { task::block_in_place(work) }
}
