//! What happens in its own time.

use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until `holds`; that it does not is a failure that says `what` was waited for.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not happen within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
