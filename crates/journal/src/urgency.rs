//! How soon something has to be written.

/// When something has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// With what comes after it.
    Gather,
    /// At once, without waiting for others.
    AtOnce,
}
