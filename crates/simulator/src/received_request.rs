//! Requests as received.

use bytes::Bytes;
use http::{HeaderMap, Method};

/// Prefix of a path segment with settings.
pub(super) const PATH_SETTINGS: &str = "sim:";

/// A fully read request.
pub(super) struct ReceivedRequest<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    /// Query string; empty if absent.
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// Authority from the `Host` header; empty if absent.
    pub(super) host: &'a str,
    pub(super) body: &'a Bytes,
    /// SHA-256 of the body in lower-case hex; empty in a blind simulator.
    pub(super) body_sha256: &'a str,
    /// Number of the request, unique within one simulator.
    pub(super) number: u64,
}

impl ReceivedRequest<'_> {
    /// Path segments that contain settings.
    pub(super) fn settings(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter(|segment| segment.starts_with(PATH_SETTINGS))
    }
}
