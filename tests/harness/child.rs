//! A child process that ends with its test.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Killed and reaped on drop.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Ends the process at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        // One that has ended by itself is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }

    /// Waits for it to end by itself; `None` if it has not within `time`.
    pub(crate) fn wait_for(&mut self, time: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time;
        loop {
            match self.0.try_wait().expect("it can be waited for") {
                None if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                status => return status,
            }
        }
    }
}

/// A crash at a moment that the test chooses: lets a process run for `time`, and ends it as `kill -9` does.
pub(crate) fn kill_after(child: &mut Child, time: Duration) -> ExitStatus {
    std::thread::sleep(time);
    // One that has ended by itself is as good.
    drop(child.kill());
    child.wait().expect("it can be waited for")
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
