//! Reading a whole request body, under a cap and a budget for all bodies together.

use std::fmt;
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
use crate::gateway::listen::places::Place;
use crate::gateway::receive::gathered::GatheredBody;
use crate::gateway::receive::reading::BodyReading;
use crate::limits::{Count, InUse};
use crate::metrics::{Metrics, Shed};
use crate::protocols::splice::EditedBody;

/// A body of at most this size is sooner read than a connection made anew.
const SHORT_BYTES_MAX: usize = 64 * 1024;
/// What reading a JSON body makes of it while it is read: a copy of its texts without their escapes, and
/// for each value at most a reference to what an upstream keeps, with its id's place.
const READ_BYTES_PER_VALUE: usize = 64;
/// When to try again after the budget was used up. Bodies leave as fast as upstreams take them.
const RETRY_BUDGET: Duration = Duration::from_secs(1);

/// The bytes of all request bodies that are held at one time.
pub(crate) struct BodyBudget {
    held: Count,
    metrics: Arc<Metrics>,
}

impl BodyBudget {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { held: Count::default(), metrics })
    }

    /// Turns a body away.
    pub(crate) fn shed(&self, full: Full) -> GatewayError {
        let reason = match full {
            Full::All => Shed::BodyMemory,
            Full::Account => Shed::AccountBodyMemory,
        };
        self.metrics.request_shed(reason);
        full.to_error()
    }
}

/// What has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The budget of all bodies.
    All,
    /// What the account may have of it.
    Account,
}

impl Full {
    /// What a customer reads whose body finds no room.
    pub(crate) fn to_error(self) -> GatewayError {
        let (kind, message) = match self {
            Self::All => {
                (ErrorKind::Overloaded, "Too many large requests are in flight. Try again shortly.")
            }
            Self::Account => (
                ErrorKind::RateLimited,
                "This account's requests in flight take all of its share of the memory for \
                 bodies. Send fewer large ones at one time, and try again when one has ended.",
            ),
        };
        GatewayError::new(kind, message).retry_after(RETRY_BUDGET)
    }
}

/// What an account has in use of the budget, and may.
#[derive(Clone, Debug)]
pub(crate) struct OfAccount {
    pub(crate) in_use: Arc<InUse>,
    pub(crate) bytes_max: usize,
}

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
        let BudgetShare { budget, account, .. } = &self.share;
        let of_account = account.as_ref().map_or(max, |account| account.bytes_max.min(max));
        let mut room =
            BudgetShare { budget: Arc::clone(budget), account: account.clone(), bytes: 0 };
        let bytes = bytes.min((of_account - of_account / 8).saturating_sub(self.share.bytes));
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

/// The budget, for services that hold more than the bodies of their requests.
#[derive(Clone)]
pub struct Memory {
    budget: Arc<BodyBudget>,
    max: usize,
}

impl Memory {
    pub(crate) fn new(budget: &Arc<BodyBudget>, max: usize) -> Self {
        Self { budget: Arc::clone(budget), max }
    }

    /// A part of it that is empty so far.
    #[must_use]
    pub fn part(&self) -> MemoryPart {
        MemoryPart {
            share: BudgetShare { budget: Arc::clone(&self.budget), account: None, bytes: 0 },
            max: self.max,
        }
    }
}

/// A part of the budget, given back on drop.
pub struct MemoryPart {
    share: BudgetShare,
    max: usize,
}

impl MemoryPart {
    /// Takes so many bytes more; false if there are none.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.share.grow(bytes, self.max)
    }
}

impl fmt::Debug for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPart").field("bytes", &self.share.bytes).finish_non_exhaustive()
    }
}

/// A share of the budget, given back on drop.
pub(crate) struct BudgetShare {
    budget: Arc<BodyBudget>,
    /// Whose it is; `None` for one of nobody's.
    account: Option<OfAccount>,
    bytes: usize,
}

impl BudgetShare {
    /// Makes the share `bytes` large; false if the budget does not have them.
    pub(crate) fn resize(&mut self, bytes: usize, max: usize) -> bool {
        self.try_resize(bytes, max).is_ok()
    }

    fn try_resize(&mut self, bytes: usize, max: usize) -> Result<(), Full> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => Ok(()),
            Some(more) => self.try_grow(more, max),
            None => {
                self.release();
                self.try_grow(bytes, max)
            }
        }
    }

    fn release(&mut self) {
        self.budget.held.give_back(self.bytes);
        if let Some(account) = &self.account {
            account.in_use.body_bytes.give_back(self.bytes);
        }
        self.budget.metrics.body_bytes_sub(self.bytes);
        self.bytes = 0;
    }

    /// Takes `more` bytes of the budget, or nothing.
    fn grow(&mut self, more: usize, max: usize) -> bool {
        self.try_grow(more, max).is_ok()
    }

    fn try_grow(&mut self, more: usize, max: usize) -> Result<(), Full> {
        if !self.budget.held.take(more, max) {
            return Err(Full::All);
        }
        if let Some(account) = &self.account
            && !account.in_use.body_bytes.take(more, account.bytes_max)
        {
            self.budget.held.give_back(more);
            return Err(Full::Account);
        }
        self.bytes += more;
        self.budget.metrics.body_bytes_add(more);
        Ok(())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.release();
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
        let account = exchange.place.as_ref().and_then(Place::account).cloned();
        let timeout = match account {
            Some(_) => limits.body_timeout,
            None => limits.body_timeout.min(limits.unauthenticated.timeout),
        };
        let bytes_max = limits.per_account.body_memory_bytes_max;
        Self {
            body_bytes_max,
            budget_bytes_max: limits.body_memory_bytes_max,
            account: account.map(|in_use| OfAccount { in_use, bytes_max }),
            timeout,
        }
    }

    /// A share of the budget that is empty so far.
    pub(crate) fn share(&self, budget: &Arc<BodyBudget>) -> BudgetShare {
        BudgetShare { budget: Arc::clone(budget), account: self.account.clone(), bytes: 0 }
    }

    /// What would have no room for this many bytes more.
    fn full_for(&self, length: usize, budget: &BodyBudget) -> Option<Full> {
        let has_room = |taken: usize, max| taken.saturating_add(length) <= max;
        if !has_room(budget.held.taken(), self.budget_bytes_max) {
            return Some(Full::All);
        }
        let account = self.account.as_ref()?;
        let taken = account.in_use.body_bytes.taken();
        (!has_room(taken, account.bytes_max)).then_some(Full::Account)
    }
}

/// Reads the whole body.
///
/// # Errors
/// What `reading` finds wrong, `PayloadTooLarge`, `Overloaded` when the budget is used up,
/// `RateLimited` when the account's share of it is, `RequestTimeout`, and `ClientGone` or `BadFraming` when the body cannot be read to its end.
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
    if let Some(full) = limits.full_for(length.unwrap_or(0), budget) {
        return Err(budget.shed(full));
    }
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
            ErrorKind::ClientGone
        }
        ErrorType::ReadTimedout => ErrorKind::RequestTimeout,
        _ => ErrorKind::BadFraming,
    };
    GatewayError::new(kind, "The request body could not be read to its end.")
        .cause(describe_error(error))
}
