//! Size limits of the request log.

/// The least size that a log can be bounded to, in bytes.
pub const SIZE_MIN: u64 = 1 << 20;
