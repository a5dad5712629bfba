//! Reading a whole request body, under a cap and a budget for all bodies together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT};
use pingora::proxy::Session;

use super::overload;
use super::reading::Reading;
use super::replayed::Replayed;
use super::told;
use crate::error::{ErrorKind, GatewayError};
use crate::metrics::Metrics;

/// Pingora replays a body to a second upstream from a buffer of this size.
const REPLAY_BYTES_MAX: usize = 64 * 1024;
/// What is allocated at once for a declared length; pages that are never written take no memory.
const RESERVED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// When to try again after the budget was used up. Bodies leave as fast as upstreams take them.
const RETRY_BUDGET: Duration = Duration::from_secs(1);

/// The bytes of all request bodies that are held at one time.
pub(super) struct BodyBudget {
    held: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl BodyBudget {
    pub(super) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), metrics })
    }

    /// Whether a body of that length would find room now.
    fn has_room_for(&self, length: usize, max: usize) -> bool {
        self.held.load(Ordering::Relaxed).saturating_add(length) <= max
    }

    fn shed(&self) -> GatewayError {
        self.metrics.request_shed(overload::BODY_MEMORY);
        budget_used_up()
    }
}

/// A body and its share of the budget, given back on drop.
pub(super) struct HeldBody {
    pub(super) bytes: Bytes,
    share: Share,
}

impl HeldBody {
    /// Counts what goes upstream as well, where it is a copy; false if the budget does not have that.
    pub(super) fn share_with(&mut self, sent: &Bytes, max: usize) -> bool {
        let copied = if sent.as_ptr() == self.bytes.as_ptr() { 0 } else { sent.len() };
        self.share.resize(self.bytes.len() + copied, max)
    }

    /// Counts bytes of an answer as well; false if the budget does not have them.
    pub(super) fn grow(&mut self, bytes: usize, max: usize) -> bool {
        self.share.grow(bytes, max)
    }

    /// Lets the body go, and keeps an empty share of the budget.
    pub(super) fn into_share(mut self) -> Share {
        self.share.release();
        self.share
    }
}

/// A share of the budget, given back on drop.
pub(super) struct Share {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl Share {
    /// Makes the share `bytes` large; false if the budget does not have them.
    pub(super) fn resize(&mut self, bytes: usize, max: usize) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) => more == 0 || self.grow(more, max),
            None => {
                self.release();
                self.grow(bytes, max)
            }
        }
    }

    fn release(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.metrics.body_bytes_sub(self.bytes);
        self.bytes = 0;
    }

    /// Takes `more` bytes of the budget, or nothing.
    fn grow(&mut self, more: usize, max: usize) -> bool {
        let before = self.budget.held.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > max {
            self.budget.held.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes += more;
        self.budget.metrics.body_bytes_add(more);
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

/// How much may be read, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// The largest body, in bytes.
    pub(super) body_bytes_max: usize,
    /// All bodies together, in bytes.
    pub(super) budget_bytes_max: usize,
    /// The time for the whole body.
    pub(super) timeout: Duration,
}

/// Reads the whole body, and leaves the session so that Pingora calls `request_body_filter` on
/// every try.
///
/// It does if its replay buffer holds the end of the body and was not overrun. With a known length,
/// buffering therefore starts when the rest fits, and a read never returns more than fits. Without
/// one it starts at once, which serves short bodies; for longer ones the session is [`Replayed`].
///
/// # Errors
/// What `reading` finds wrong, `PayloadTooLarge`, `Overloaded` when the budget is used up,
/// `RequestTimeout`, and `ClientGone` or `BadFraming` when the body cannot be read to its end.
pub(super) async fn read(
    session: &mut Session,
    budget: &Arc<BodyBudget>,
    limits: ReadLimits,
    reading: &mut Reading,
) -> Result<HeldBody, GatewayError> {
    let length = content_length(session);
    let too_large = || {
        let max = limits.body_bytes_max;
        let message = format!("The request body is larger than {max} bytes.");
        GatewayError::new(ErrorKind::PayloadTooLarge, message)
    };
    if length.is_some_and(|length| length > limits.body_bytes_max) {
        return Err(too_large());
    }
    if !budget.has_room_for(length.unwrap_or(0), limits.budget_bytes_max) {
        return Err(budget.shed());
    }
    if expects_continue(session) {
        // Pingora leaves it to whoever reads. The upstream must not be asked a second time.
        session.write_continue_response().await.map_err(|error| unreadable(&error))?;
        session.req_header_mut().remove_header(&EXPECT);
    }
    let mut share = Share { budget: Arc::clone(budget), bytes: 0 };
    let mut bytes = BytesMut::new();
    let all = async {
        loop {
            let rest = length.map_or(0, |length| length.saturating_sub(bytes.len()));
            if rest <= REPLAY_BYTES_MAX {
                session.enable_retry_buffering();
            }
            let piece = session.read_request_body().await.map_err(|error| unreadable(&error))?;
            let Some(piece) = piece else { return Ok(()) };
            if bytes.len() + piece.len() > limits.body_bytes_max {
                return Err(too_large());
            }
            if !share.grow(piece.len(), limits.budget_bytes_max) {
                return Err(budget.shed());
            }
            if bytes.is_empty() {
                // What grows is copied, and takes up to three times its size meanwhile.
                bytes.reserve(rest.min(RESERVED_BYTES_MAX).max(piece.len()));
            }
            bytes.extend_from_slice(&piece);
            reading.feed(&bytes)?;
        }
    };
    match tokio::time::timeout(limits.timeout, all).await {
        Ok(result) => result?,
        Err(_) => {
            let seconds = limits.timeout.as_secs();
            let message = format!("The request body did not arrive within {seconds} seconds.");
            return Err(GatewayError::new(ErrorKind::RequestTimeout, message));
        }
    }
    if session.get_retry_buffer().is_none() && !session.is_body_empty() {
        Replayed::wrap(&mut session.downstream_session);
    }
    Ok(HeldBody { bytes: bytes.freeze(), share })
}

/// What a customer reads whose body finds no room.
pub(super) fn budget_used_up() -> GatewayError {
    let message = "Too many large requests are in flight. Try again shortly.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_BUDGET)
}

/// Whether the rest of the body is so short that it is sooner read than a connection made anew.
pub(super) fn is_short(session: &Session) -> bool {
    content_length(session).is_some_and(|length| length <= REPLAY_BYTES_MAX)
        && !expects_continue(session)
}

fn expects_continue(session: &Session) -> bool {
    session.get_header_bytes(EXPECT).eq_ignore_ascii_case(b"100-continue")
}

fn content_length(session: &Session) -> Option<usize> {
    let value = session.req_header().headers.get(CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}

fn unreadable(error: &pingora::Error) -> GatewayError {
    use pingora::ErrorType;
    let kind = match error.etype() {
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::H2Error => {
            ErrorKind::ClientGone
        }
        ErrorType::ReadTimedout => ErrorKind::RequestTimeout,
        _ => ErrorKind::BadFraming,
    };
    GatewayError::new(kind, "The request body could not be read to its end.").cause(told(error))
}
