//! The limit on file descriptors. Shells and containers start processes with a soft limit that is far
//! below what they may have, for programs that use `select`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is assumed where there is no limit.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit to the hard one, and returns what holds from then on.
pub(super) fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum.unwrap_or(UNLIMITED),
        Err(error) => {
            log::warn!("the limit on file descriptors stays at {current:?}: {error}");
            current.unwrap_or(UNLIMITED)
        }
    }
}
