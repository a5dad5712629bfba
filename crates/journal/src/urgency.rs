//! Urgency of a write.

/// Urgency of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// With what comes after it.
    Gather,
    /// At once, without waiting for others.
    AtOnce,
}
