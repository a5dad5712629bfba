//! A child process that ends with its test.

use std::process::Child;

/// Killed and reaped on drop.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Ends the process at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        // One that has ended by itself is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
