//! Limit of file descriptors. Shells and containers start processes with a soft limit far below the hard
//! one, for programs that use `select`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Assumed value without a limit.
const UNLIMITED: u64 = 1 << 20;

/// Raise the soft limit to the hard one, and return the resulting limit.
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
