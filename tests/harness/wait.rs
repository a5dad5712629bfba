//! Waiting for conditions: polled until they hold, with a deadline and a text that says what was awaited.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use tollgate::clock::UnixMs;

/// Longer than any condition takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two checks of a condition: short beside what tests wait for, long beside a check.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `holds`, and fails with `what` after 20 seconds.
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    within(TIMEOUT, holds, || format!("{what} did not happen within {TIMEOUT:?}"));
}

/// Waits until `holds`, and fails with the message after `time`.
pub(crate) fn within(
    time: Duration,
    mut holds: impl FnMut() -> bool,
    message: impl Fn() -> String,
) {
    let deadline = Instant::now() + time;
    while !holds() {
        assert!(Instant::now() < deadline, "{}", message());
        std::thread::sleep(PAUSE);
    }
}

/// The first value of `probe`; fails with `what` and the last error after `time`.
pub(crate) fn poll<T, E: Debug>(
    what: &str,
    time: Duration,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + time;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < deadline, "{what}, within {time:?}: {error:?}"),
        }
        std::thread::sleep(PAUSE);
    }
}

/// Lets time pass where a test shows that something does *not* happen, or where no event shows that it has.
/// `why` says which. Everything else is awaited with the functions above.
pub(crate) fn let_pass(time: Duration, why: &str) {
    assert!(!why.is_empty(), "a reason");
    std::thread::sleep(time);
}

/// [`let_pass`], without blocking the runtime's thread.
pub(crate) async fn let_pass_async(time: Duration, why: &str) {
    assert!(!why.is_empty(), "a reason");
    tokio::time::sleep(time).await;
}

/// A server that never answers: its thread is left when the test's process ends.
pub(crate) fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Waits until the clock shows another millisecond: what happens now and what happened before are told apart
/// by their times, which have this precision.
pub(crate) async fn next_millisecond() {
    // Longer than one, so that the lower bits of a timer do not matter.
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Waits for the next UTC day if it begins within `time`, for tests of what is counted by the day.
pub(crate) fn away_from_midnight(time: Duration) {
    const DAY_MS: u64 = 86_400_000;
    let rest = Duration::from_millis(DAY_MS - UnixMs::now().0 % DAY_MS);
    if rest < time {
        std::thread::sleep(rest + Duration::from_millis(100));
    }
}

/// [`eventually`], without blocking the runtime's thread. Returns how long it took.
pub(crate) async fn eventually_async(what: &str, holds: impl AsyncFnMut() -> bool) -> Duration {
    within_async(TIMEOUT, what, holds).await
}

/// Waits until `holds`, and fails with `what` after `time`. Returns how long it took.
pub(crate) async fn within_async(
    time: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) -> Duration {
    let begun = Instant::now();
    poll_async(what, time, async || if holds().await { Ok(()) } else { Err("not yet") }).await;
    begun.elapsed()
}

/// [`poll`], without blocking the runtime's thread.
pub(crate) async fn poll_async<T, E: Debug>(
    what: &str,
    time: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + time;
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < deadline, "{what}, within {time:?}: {error:?}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
