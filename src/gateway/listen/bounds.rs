//! Bounds of connections over HTTP/1.1 and HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use pingora::http::RequestHeader;

/// The largest request head, over HTTP/2 too. Browsers stay below 16 KiB.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The time within which a head must be complete, and within which the first one must begin.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle timeout of a connection. Cloud load balancers keep idle connections for up to 600 s, and lose a
/// request when the other end closes first.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(620);
/// Requests on one connection before it is closed, so that clients spread anew over load-balanced
/// gateways.
pub(crate) const REQUESTS_MAX: u32 = 10_000;

/// Check of a request header: true if it has a valid API key.
pub(crate) type IsAuthenticated = Arc<dyn Fn(&RequestHeader) -> bool + Send + Sync>;
