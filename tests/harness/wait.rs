//! Waiting for conditions.

use std::time::{Duration, Instant};

/// Longer than any condition takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(20);

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
