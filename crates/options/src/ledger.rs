//! Recovery of open holds at a start, retention in sled, and recognition of repeated submits.

use std::time::Duration;

/// Minimum growth of the file between two compactions, in bytes.
const GROWTH_MIN: u64 = 64 << 20;
/// Maximum time in which a repeated submit is recognised.
pub const REPEATED_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Settlement at boot of a hold that a crash left open. In both cases it is listed as in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryPolicy {
    /// The customer pays nothing; what the upstream billed falls on the operator.
    #[default]
    Void,
    /// The customer pays the least that the call must have cost (its estimated input).
    Floor,
}

/// Retention of statement lines and hourly usage in sled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruning {
    /// So long they stay, as far as there is room for them.
    pub keep: Duration,
    /// Approximate maximum size of statement lines, in bytes.
    pub lines_max: u64,
    /// Sled's file grows by so much at least, and by half, before it is made anew; 0 is for tests, and
    /// makes it anew each second.
    pub growth_min: u64,
}

impl Default for Pruning {
    fn default() -> Self {
        let keep = Duration::from_secs(90 * 24 * 60 * 60);
        Self { keep, lines_max: 128 << 20, growth_min: GROWTH_MIN }
    }
}
