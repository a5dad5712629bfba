//! Reading a whole request body, under a cap and a budget for all bodies together.

use std::sync::Arc;
use std::time::Duration;

use http::header::EXPECT;
use pingora_proxy::Session;

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::listen::http1;
use crate::gateway::listen::request_slots::RequestSlot;
use crate::gateway::receive::reading::BodyReading;
use crate::gateway::request::context::RequestContext;
use crate::gateway::wire::error::describe_error;
use crate::gateway::wire::framing;
use crate::gateway::wire::length::{SHORT_BYTES_MAX, content_length, expects_continue};
use crate::gateway::wire::memory::budget::{AccountMemory, BodyBudget, BudgetShare};
use crate::gateway::wire::memory::gathered::GatheredBody;
use crate::gateway::wire::memory::held::HeldBody;

/// Limits of reading a body: size and time.
#[derive(Clone, Debug)]
pub(crate) struct ReadLimits {
    /// The largest body, in bytes.
    pub(crate) body_bytes_max: usize,
    /// Memory for all bodies together, in bytes.
    pub(crate) budget_bytes_max: usize,
    /// The account's share of that.
    pub(crate) account: Option<AccountMemory>,
    /// Timeout for the whole body.
    pub(crate) timeout: Duration,
}

impl ReadLimits {
    /// Limits for a body of at most `body_bytes_max`. Unauthenticated clients get a short timeout.
    pub(crate) fn new(ctx: &RequestContext, body_bytes_max: usize) -> Self {
        let limits = &ctx.snapshot.limits;
        let account = ctx.admission.slot.as_ref().and_then(RequestSlot::account).cloned();
        let timeout = match account {
            Some(_) => limits.body_timeout,
            None => limits.body_timeout.min(limits.unauthenticated.timeout),
        };
        let bytes_max = limits.per_account.body_memory_bytes_max;
        let number = ctx.key.as_ref().map_or(0, |key| key.account.number());
        Self {
            body_bytes_max,
            budget_bytes_max: limits.body_memory_bytes_max,
            account: account.map(|in_use| AccountMemory {
                number,
                in_use,
                bytes_max,
                is_funded: true,
            }),
            timeout,
        }
    }

    /// The limits for the body of this request. A large body of an account without money, or one whose length
    /// is not known, counts among those of all such accounts.
    pub(crate) fn of_body(mut self, session: &Session, ctx: &RequestContext) -> Self {
        if let Some(account) = &mut self.account
            && content_length(session).is_none_or(|length| length > SHORT_BYTES_MAX)
        {
            account.is_funded = ctx.is_funded();
        }
        self
    }

    /// An empty share of the budget.
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
    // Room is made before the client is asked to send.
    budget
        .make_room(length.unwrap_or(0), limits.budget_bytes_max, limits.account.as_ref())
        .map_err(|full| budget.shed(full))?;
    if expects_continue(session) {
        // Pingora sends none by itself, and no upstream is asked before the body is whole. Removed, since from
        // here on the client does not wait for it any more.
        session.write_continue_response().await.map_err(|error| unreadable(&error))?;
        session.req_header_mut().remove_header(&EXPECT);
    }
    if matches!(reading, BodyReading::Json) {
        // Nothing looks at its beginning.
        http1::gather_body(session);
    }
    let mut share = limits.share(budget);
    let (mut gathered, mut counted) = (GatheredBody::default(), 0);
    let all = async {
        while !session.is_body_done() {
            let piece = session.read_request_body().await.map_err(|error| unreadable(&error))?;
            let Some(piece) = piece else { break };
            let read =
                (gathered.len() + piece.len()).max(session.as_downstream().body_bytes_read());
            if read > limits.body_bytes_max {
                return Err(too_large());
            }
            share
                .try_grow(read - counted, limits.budget_bytes_max)
                .map_err(|full| budget.shed(full))?;
            counted = read;
            if piece.is_empty() {
                continue;
            }
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
