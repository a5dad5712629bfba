//! Readiness of the process for load balancers.

use std::sync::atomic::{AtomicU8, Ordering};

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

/// State of the process: starting, ready, draining. It never goes back.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// The configuration is loaded, the ledger is open and the listeners take requests.
    pub fn set_ready(&self) {
        self.0.fetch_max(READY, Ordering::Relaxed);
    }

    /// The process is about to end: send requests elsewhere.
    pub fn set_draining(&self) {
        self.0.fetch_max(DRAINING, Ordering::Relaxed);
    }

    /// Reason why the process is not ready, or `None` if it is.
    #[must_use]
    pub fn reason_against(&self) -> Option<&'static str> {
        match self.0.load(Ordering::Relaxed) {
            STARTING => Some("starting"),
            READY => None,
            _ => Some("draining"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draining_process_does_not_become_ready_again() {
        let readiness = Readiness::default();
        assert_eq!(readiness.reason_against(), Some("starting"));
        readiness.set_ready();
        assert_eq!(readiness.reason_against(), None);
        readiness.set_draining();
        readiness.set_ready();
        assert_eq!(readiness.reason_against(), Some("draining"));
    }
}
