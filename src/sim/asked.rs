//! A request before it is answered.

use bytes::Bytes;
use http::{HeaderMap, Method};

/// A request that was read.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
    /// Unique among the answers of one simulator.
    pub(super) number: u64,
}
