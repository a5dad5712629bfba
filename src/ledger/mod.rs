//! Money: accounts, keys, holds and settlements, exact across crashes.

/// What happens at boot to a hold that a crash left open. Either way it is listed as in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryPolicy {
    /// The customer pays nothing; what the upstream billed falls on the operator.
    #[default]
    Void,
    /// The customer pays the least that the call must have cost (its estimated input).
    Floor,
}
