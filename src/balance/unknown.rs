//! Names of models that customers have chosen, behind a pattern, and that an upstream does not know.
//!
//! Whoever asks for such a name again within a short while is told so without the upstream being asked.
//! Nobody else is: an upstream can answer "not found" for other reasons that are in a request.

use std::time::{Duration, Instant};

use super::channel::{Channel, PlannedCall};
use super::memory::{Bounds, Memory};

/// A name is unknown for so long: providers add models, and nobody should wait for theirs.
const TIME: Duration = Duration::from_secs(60);
/// Names of all accounts together: some 500 KB.
const NAMES_MAX: usize = 10_000;
/// Names of one account. Who asks for more in a minute is guessing.
const ACCOUNT_NAMES_MAX: usize = 100;

/// What upstreams have said that they do not know.
#[derive(Debug)]
pub(super) struct UnknownNames(Memory<()>);

impl Default for UnknownNames {
    fn default() -> Self {
        let (time, all_max, account_max) = (TIME, NAMES_MAX, ACCOUNT_NAMES_MAX);
        Self(Memory::new(Bounds { time, all_max, account_max }))
    }
}

impl UnknownNames {
    /// Whether the account was answered at `channel`, to calls of this kind, that there is no such model.
    pub(super) fn has(
        &self,
        call: PlannedCall,
        channel: &Channel,
        name: &str,
        now: Instant,
    ) -> bool {
        self.0.get(call.caller.account, (channel.seed, call.kind, name), now).is_some()
    }

    /// The account has just heard it.
    pub(super) fn add(&self, call: PlannedCall, channel: &Channel, name: &str, now: Instant) {
        self.0.put(call.caller.account, (channel.seed, call.kind, name), (), now);
    }
}
