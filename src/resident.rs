//! What the `tollgate` command does, once it serves, so that no more of it is resident than it needs.

use std::hint::black_box;
use std::time::Duration;

/// How often memory is given back.
const INTERVAL: Duration = Duration::from_millis(500);
/// What mimalloc has no place for in its threads, and does not map by itself, in bytes.
const LARGE_BYTES: usize = 768 * 1024;

/// Has the kernel get back what is no longer needed, for as long as it is polled: at first what only the
/// start has used of the program, then, twice a second, memory that was freed.
pub async fn give_back() {
    let mut work: fn() = leave_the_start;
    loop {
        tokio::time::sleep(INTERVAL).await;
        // It is no work for a thread that serves requests.
        if tokio::task::spawn_blocking(work).await.is_err() {
            return;
        }
        work = free;
    }
}

fn leave_the_start() {
    if let Err(error) = tollgate_resident::unmap_program() {
        log::debug!("what the start used of the program stays mapped: {error}");
    }
    free();
}

fn free() {
    tollgate_resident::free_unused();
    // mimalloc looks for what was freed only when something large is freed, which a gateway that has
    // nothing to do never does.
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}
