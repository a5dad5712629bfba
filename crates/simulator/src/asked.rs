//! A request before it is answered.

use bytes::Bytes;
use http::{HeaderMap, Method};

/// The start of a path segment that holds settings.
pub(super) const PATH_SETTINGS: &str = "sim:";

/// A request that was read.
pub(super) struct ReceivedRequest<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    /// What stands after the `?`; empty without one.
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// The host and port by which the client knows this simulator; empty if it named none.
    pub(super) host: &'a str,
    pub(super) body: &'a Bytes,
    /// The SHA-256 of the body in lower-case hex; empty where a blind simulator did not read it.
    pub(super) body_sha256: &'a str,
    /// Unique among the answers of one simulator.
    pub(super) number: u64,
}

impl ReceivedRequest<'_> {
    /// The segments of the path that hold settings.
    pub(super) fn settings(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter(|segment| segment.starts_with(PATH_SETTINGS))
    }
}
