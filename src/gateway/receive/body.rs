//! Reading a whole request body, under a cap and a budget for all bodies together.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderValue, Version};
use pingora_proxy::Session;

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::describe_error;
use crate::gateway::exchange::Exchange;
use crate::gateway::listen::framing;
use crate::gateway::listen::places::AdmissionSlot;
use crate::gateway::receive::budget::{BodyBudget, BudgetShare, Full, OfAccount};
use crate::gateway::receive::gathered::GatheredBody;
use crate::gateway::receive::reading::BodyReading;
use crate::protocols::splice::EditedBody;

/// A body of at most this size is sooner read than a connection made anew.
const SHORT_BYTES_MAX: usize = 64 * 1024;
/// What reading a JSON body makes of it while it is read: a copy of its texts without their escapes, and
/// for each value at most a reference to what an upstream keeps, with its id's place.
const READ_BYTES_PER_VALUE: usize = 64;

/// A body and its share of the budget, given back on drop.
pub(crate) struct HeldBody {
    pub(crate) bytes: Bytes,
    share: BudgetShare,
}

impl HeldBody {
    /// Room for what is made of the body while it is read, with something for so many values at most;
    /// given back on drop.
    ///
    /// # Errors
    /// Which budget does not have it.
    pub(crate) fn room_to_read(&self, values_max: usize, max: usize) -> Result<BudgetShare, Full> {
        let length = self.bytes.len();
        // The shortest value is one byte and the comma behind it.
        let values = values_max.min(length / 2);
        self.room(values.saturating_mul(READ_BYTES_PER_VALUE).saturating_add(length), max)
    }

    /// Room for so many more bytes. One that is alone finds what there is, but for an eighth: the
    /// bodies of others are mostly short, and fit into that.
    ///
    /// # Errors
    /// Which budget does not have them.
    pub(crate) fn room(&self, bytes: usize, max: usize) -> Result<BudgetShare, Full> {
        let of_account =
            self.share.account_bytes_max().map_or(max, |of_account| of_account.min(max));
        let mut room = self.share.empty();
        let bytes = bytes.min((of_account - of_account / 8).saturating_sub(self.share.bytes()));
        room.try_grow(bytes, max)?;
        Ok(room)
    }

    /// Counts what goes upstream as well, as far as it is a copy.
    ///
    /// # Errors
    /// Which budget does not have that.
    pub(crate) fn share_with(&mut self, sent: &EditedBody, max: usize) -> Result<(), Full> {
        self.share.try_resize(self.bytes.len() + sent.copied_bytes(&self.bytes), max)
    }

    /// Counts bytes of an answer as well; false if the budget does not have them.
    pub(crate) fn grow(&mut self, bytes: usize, max: usize) -> bool {
        self.share.grow(bytes, max)
    }

    /// Lets the body go, and keeps an empty share of the budget.
    pub(crate) fn into_share(mut self) -> BudgetShare {
        self.share.release();
        self.share
    }
}

/// How much may be read, and how long that may take.
#[derive(Clone, Debug)]
pub(crate) struct ReadLimits {
    /// The largest body, in bytes.
    pub(crate) body_bytes_max: usize,
    /// All bodies together, in bytes.
    pub(crate) budget_bytes_max: usize,
    /// The account's share of that.
    pub(crate) account: Option<OfAccount>,
    /// The time for the whole body.
    pub(crate) timeout: Duration,
}

impl ReadLimits {
    /// For a body of at most `body_bytes_max`. A stranger has little time for it.
    pub(crate) fn new(exchange: &Exchange, body_bytes_max: usize) -> Self {
        let limits = &exchange.snapshot.limits;
        let account = exchange.place.as_ref().and_then(AdmissionSlot::account).cloned();
        let timeout = match account {
            Some(_) => limits.body_timeout,
            None => limits.body_timeout.min(limits.unauthenticated.timeout),
        };
        let bytes_max = limits.per_account.body_memory_bytes_max;
        let number = exchange.key.as_ref().map_or(0, |key| key.account.number());
        Self {
            body_bytes_max,
            budget_bytes_max: limits.body_memory_bytes_max,
            account: account.map(|in_use| OfAccount { number, in_use, bytes_max, is_funded: true }),
            timeout,
        }
    }

    /// The limits for the body of this request. A large body of an account without money, or one whose length
    /// is not known, counts among those of all such accounts.
    pub(crate) fn of_body(mut self, session: &Session, exchange: &Exchange) -> Self {
        if let Some(account) = &mut self.account
            && content_length(session).is_none_or(|length| length > SHORT_BYTES_MAX)
        {
            account.is_funded = exchange.is_funded();
        }
        self
    }

    /// A share of the budget that is empty so far.
    pub(crate) fn share(&self, budget: &Arc<BodyBudget>) -> BudgetShare {
        BudgetShare::new(budget, self.account.clone())
    }
}

/// Reads the whole body.
///
/// # Errors
/// What `reading` finds wrong, `PayloadTooLarge`, `Overloaded` when the budget is used up,
/// `RateLimited` when the account's share of it is, `RequestTimeout`, and `ClientDisconnected` or `BadFraming` when the body cannot be read to its end.
pub(crate) async fn read(
    session: &mut Session,
    budget: &Arc<BodyBudget>,
    limits: ReadLimits,
    reading: &mut BodyReading,
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
    // Before its client begins to send it.
    budget
        .make_room(length.unwrap_or(0), limits.budget_bytes_max, limits.account.as_ref())
        .map_err(|full| budget.shed(full))?;
    if expects_continue(session) {
        // It is left to whoever reads. The upstream must not be asked a second time.
        session.write_continue_response().await.map_err(|error| unreadable(&error))?;
        session.req_header_mut().remove_header(&EXPECT);
    }
    let mut share = limits.share(budget);
    let mut gathered = GatheredBody::default();
    let all = async {
        while !session.is_body_done() {
            let piece = session.read_request_body().await.map_err(|error| unreadable(&error))?;
            let Some(piece) = piece else { break };
            if gathered.len() + piece.len() > limits.body_bytes_max {
                return Err(too_large());
            }
            share
                .try_grow(piece.len(), limits.budget_bytes_max)
                .map_err(|full| budget.shed(full))?;
            reading.feed(gathered.push(piece, length))?;
        }
        Ok(())
    };
    match tokio::time::timeout(limits.timeout, all).await {
        Ok(result) => result?,
        Err(_) => {
            let seconds = limits.timeout.as_secs();
            let message = format!("The request body did not arrive within {seconds} seconds.");
            return Err(GatewayError::new(ErrorKind::RequestTimeout, message));
        }
    }
    Ok(HeldBody { bytes: gathered.into_whole(), share })
}

/// Whether the rest of the body is so short that it is sooner read than a connection made anew.
pub(crate) fn is_short(session: &Session) -> bool {
    content_length(session).is_some_and(|length| length <= SHORT_BYTES_MAX)
        && !expects_continue(session)
}

/// Whether the customer waits to be told that a body is wanted. Clients of HTTP/1.0 cannot be told so (RFC
/// 9110, section 10.1.1).
fn expects_continue(session: &Session) -> bool {
    session.req_header().version != Version::HTTP_10
        && session.get_header_bytes(EXPECT).eq_ignore_ascii_case(b"100-continue")
}

fn content_length(session: &Session) -> Option<usize> {
    declared_length(session.req_header().headers.get(CONTENT_LENGTH))
}

/// The length of a body that its head tells in `Content-Length`, in bytes; `None` where it tells none.
pub(crate) fn declared_length<N: FromStr>(length: Option<&HeaderValue>) -> Option<N> {
    length?.to_str().ok()?.parse().ok()
}

fn unreadable(error: &pingora::Error) -> GatewayError {
    use pingora::ErrorType;
    let is_malformed = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::InvalidData;
    if error.root_cause().downcast_ref().is_some_and(is_malformed) {
        return framing::bad_chunks();
    }
    let kind = match error.etype() {
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::H2Error => {
            ErrorKind::ClientDisconnected
        }
        ErrorType::ReadTimedout => ErrorKind::RequestTimeout,
        _ => ErrorKind::BadFraming,
    };
    GatewayError::new(kind, "The request body could not be read to its end.")
        .cause(describe_error(error))
}
