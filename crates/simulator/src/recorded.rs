//! Record of received requests.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};
use parking_lot::Mutex;
use serde_json::{Value, json};

use tollgate_types::clock::UnixMs;

/// Largest number of recorded requests; enough for a burst of a test.
const KEPT_MAX: usize = 1024;
/// Largest body that is kept whole: with `KEPT_MAX`, at most 64 MiB in total.
const KEPT_BODY_BYTES_MAX: usize = 64 * 1024;

/// A request received completely.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Time at which its last byte was read.
    pub received: UnixMs,
    /// The method of the request.
    pub method: Method,
    /// Its path with the query, as sent.
    pub path: String,
    /// The version of HTTP: HTTP/1.1 or HTTP/2.
    pub version: Version,
    /// The headers of the request.
    pub headers: HeaderMap,
    /// The SHA-256 of its body, in lower-case hex.
    pub body_sha256: String,
    /// The length of its body.
    pub body_bytes: usize,
    /// Its body, if it has at most 64 KiB.
    pub body: Option<Bytes>,
}

impl RecordedRequest {
    /// The header's value, if it is there and is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn to_json(&self) -> Value {
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]));
        json!({
            "received": self.received.to_rfc3339(),
            "method": self.method.as_str(),
            "path": self.path,
            "version": format!("{:?}", self.version),
            "headers": headers.collect::<Vec<_>>(),
            "body_sha256": self.body_sha256,
            "body_bytes": self.body_bytes,
            "body": self.body.as_deref().map(String::from_utf8_lossy),
        })
    }
}

/// The last requests, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recorder(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<RecordedRequest>,
    received: u64,
}

impl Recorder {
    pub(super) fn add(&self, mut request: RecordedRequest) {
        if request.body_bytes > KEPT_BODY_BYTES_MAX {
            request.body = None;
        }
        let mut ring = self.0.lock();
        // Counted before the oldest goes, so that tests under load can wait for a number.
        ring.received += 1;
        if ring.kept.len() == KEPT_MAX {
            ring.kept.pop_front();
        }
        ring.kept.push_back(request);
    }

    pub(super) fn all(&self) -> Vec<RecordedRequest> {
        self.0.lock().kept.iter().cloned().collect()
    }

    /// Requests received, evicted ones included.
    pub(super) fn received(&self) -> u64 {
        self.0.lock().received
    }

    pub(super) fn to_json(&self) -> Value {
        self.all().iter().map(RecordedRequest::to_json).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_requests_and_small_bodies_are_kept() {
        let recorder = Recorder::default();
        for number in 0..KEPT_MAX + 2 {
            let body = Bytes::from(vec![b' '; KEPT_BODY_BYTES_MAX + number % 2]);
            recorder.add(RecordedRequest {
                received: UnixMs(0),
                method: Method::GET,
                path: number.to_string(),
                version: Version::HTTP_11,
                headers: HeaderMap::new(),
                body_sha256: String::new(),
                body_bytes: body.len(),
                body: Some(body),
            });
        }
        let kept = recorder.all();
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!(kept[0].path, "2", "the two oldest are dropped");
        assert!(kept[0].body.is_some(), "a body at the limit is kept");
        assert!(kept[1].body.is_none(), "a body above the limit is not kept");
        assert_eq!(recorder.received(), KEPT_MAX as u64 + 2, "the dropped ones still count");
    }
}
