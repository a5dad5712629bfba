//! How large the log of requests may be.

/// The least size that a log can be bounded to, in bytes.
pub const SIZE_MIN: u64 = 1 << 20;
