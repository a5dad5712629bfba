//! What the allocator of the `tollgate` command has to be told.

use std::hint::black_box;
use std::time::Duration;

/// How often memory is given back: it is as long as mimalloc keeps what was freed.
const INTERVAL: Duration = Duration::from_secs(1);
/// What mimalloc has no place for in its threads, in bytes.
const LARGE_BYTES: usize = 1 << 20;

/// Has the kernel get back what was freed, for as long as it is polled. mimalloc looks for it only when
/// something large is freed, which a gateway that has nothing to do never does.
pub async fn give_back() {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let look = || drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
        // It is no work for a thread that serves requests.
        if tokio::task::spawn_blocking(look).await.is_err() {
            return;
        }
    }
}
