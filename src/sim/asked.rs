//! A request before it is answered.

use bytes::Bytes;
use http::{HeaderMap, Method};

/// The start of a path segment that holds settings.
pub(super) const PATH_SETTINGS: &str = "sim:";

/// A request that was read.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// The host and port by which the client knows this simulator; empty if it named none.
    pub(super) host: &'a str,
    pub(super) body: &'a Bytes,
    /// Unique among the answers of one simulator.
    pub(super) number: u64,
}

impl Asked<'_> {
    /// The segments of the path that hold settings.
    pub(super) fn settings(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter(|segment| segment.starts_with(PATH_SETTINGS))
    }
}
