//! Periodic release of memory by a serving process.

use std::hint::black_box;
use std::time::Duration;

/// Interval of the release of memory.
const INTERVAL: Duration = Duration::from_millis(500);
/// An allocation size above mimalloc's thread-local bins and below its mmap threshold, in bytes; freeing
/// one makes it purge its caches.
const LARGE_BYTES: usize = 768 * 1024;

/// Returns unused memory to the kernel while it is polled: first the program pages that only startup used,
/// then, twice per second, freed memory. `body_bytes_max` is the current limit of bodies.
pub async fn give_back(body_bytes_max: impl Fn() -> usize) {
    let mut is_first = true;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let body_bytes_max = body_bytes_max();
        let work = move || {
            if is_first {
                leave_the_start();
            }
            free(body_bytes_max);
        };
        // It is no work for a thread that serves requests.
        if tokio::task::spawn_blocking(work).await.is_err() {
            return;
        }
        is_first = false;
    }
}

fn leave_the_start() {
    if let Err(error) = tollgate_process_memory::unmap_program() {
        log::debug!("what the start used of the program stays mapped: {error}");
    }
}

fn free(body_bytes_max: usize) {
    tollgate_process_memory::free_unused(body_bytes_max);
    // mimalloc looks for what was freed only when something large is freed, which a gateway that has
    // nothing to do never does.
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}
