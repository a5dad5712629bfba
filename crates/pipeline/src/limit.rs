//! Rate limits of the key, its account and the model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ValidatedRequest;
use tollgate_config::snapshot::Snapshot;
use tollgate_fleet::HasFleet;
use tollgate_fleet::share_queue::ShareQueue;
use tollgate_ledger::{Ledger, Period, SpendLimitStatus};
use tollgate_limits::{
    AccountShare, EstimatedTokens, Limit, LimitRefusal, Limiter, Permit, RateLimitStatus, Scope,
    ShareWait, Subject, Wait,
};
use tollgate_money::money::Nanousd;
use tollgate_protocols::estimate;
use tollgate_types::clock::UnixMs;
use tollgate_types::error::{ErrorKind, GatewayError, LimitReached};

/// `Retry-After` at a concurrency limit. The end of a running request is unpredictable; a second is
/// short beside most answers, and long beside the cost of a refusal.
const RETRY_CONCURRENCY: Duration = Duration::from_secs(1);
/// `Retry-After` when the key's spend limit is held by its own requests.
const RETRY_HELD: Duration = Duration::from_secs(2);
/// `Retry-After` when this node has no share of a limit and the database does not answer.
const RETRY_UNSHARED: Duration = Duration::from_secs(2);

/// Longest wait for a share of a limit: other nodes release unused shares within it, and a longer wait
/// would only delay the refusal.
const SHARE_WAIT: Duration = Duration::from_secs(1);

/// Count the request against the limits of its key, account and model: as a request, as a concurrent
/// one, and with its estimated input tokens. Actual usage is counted at its end; use above the estimate
/// or the limit is charged to the following requests. The submit of a task is a request like others;
/// tokens that the task uses later are not counted.
///
/// One account gets a share of a model's concurrency, in which orphaned answers count.
///
/// In a fleet it waits if this node's share of a limit is used up and more may come.
///
/// # Errors
/// `RateLimited`, with the longest wait of those that are in the way, and `Overloaded` where this node
/// has no share of a limit and cannot get one. Nothing was counted then.
pub async fn limit(
    limits: &Limiter,
    ledger: &Ledger,
    snapshot: &Snapshot,
    validated: &ValidatedRequest,
) -> Result<Permit, GatewayError> {
    let ValidatedRequest { resolved, call, .. } = validated;
    let (key, model) = (&resolved.key, &resolved.model);
    let (of_key, of_account) = ledger.rates(key);
    let subjects = || {
        [
            (Subject::Key(key.id.number()), of_key.or(snapshot.rate_limits.key)),
            (Subject::Account(key.account.number()), of_account.or(snapshot.rate_limits.account)),
            (Subject::Model(Arc::clone(&model.id)), model.rates),
        ]
    };
    let percent = snapshot.limits.per_account.model_concurrency_percent;
    let share = Some(AccountShare { account: key.account.number(), percent });
    let is_counted = resolved.operation.is_billed() && call.submit().is_none();
    // The largest of its readings: whichever target serves, the limit has counted enough.
    let most = || validated.calls().map(|call| call.min_usage().input_tokens_total()).max();
    let about = if is_counted { most() } else { None };
    let estimated = |about| EstimatedTokens { about, least: estimate::least(about) };
    let tokens = about.map(estimated);
    let taken = limits.take_with(subjects(), share, tokens, ShareWait::First);
    let taken = match (taken, ledger.fleet()) {
        // A node of a fleet has a share of each limit, and may get more of it from the others within a second.
        (Err(LimitRefusal { wait: Wait::UntilShared, .. }), Some(fleet)) => {
            let again = |patience| limits.take_with(subjects(), share, tokens, patience);
            wait_for_share(fleet.share_queue(), again).await
        }
        (taken, _) => taken,
    };
    taken.map_err(|refused| limit_error(&refused, about.unwrap_or(0)))
}

/// Retry after each exchange of shares with the database, while more may come.
async fn wait_for_share(
    share_queue: &ShareQueue,
    take: impl Fn(ShareWait) -> Result<Permit, LimitRefusal>,
) -> Result<Permit, LimitRefusal> {
    let until = Instant::now() + SHARE_WAIT;
    while share_queue.wait().await && Instant::now() < until {
        match take(ShareWait::Again) {
            Err(LimitRefusal { wait: Wait::UntilShared, .. }) => {}
            taken => return taken,
        }
    }
    take(ShareWait::Expired)
}

/// Convert a refusal to an error response.
fn limit_error(refused: &LimitRefusal, tokens: u64) -> GatewayError {
    let (whose, value) = (whose(refused.scope), refused.value);
    let unit = match (refused.limit, value) {
        (Limit::Tokens, 1) => "token a minute",
        (Limit::Tokens, _) => "tokens a minute",
        (Limit::Concurrency, 1) => "request at one time",
        (Limit::Concurrency, _) => "requests at one time",
        (_, 1) => "request a minute",
        (_, _) => "requests a minute",
    };
    let (advice, retry_after) = match refused.wait {
        Wait::For(wait) => (format!("Try again in {}.", in_words(wait)), Some(wait)),
        Wait::UntilOneEnds => {
            ("Try again when one of them has ended.".to_owned(), Some(RETRY_CONCURRENCY))
        }
        Wait::UntilShared => return unshared(),
        Wait::Never => (format!("This request alone has about {tokens}: send it in parts."), None),
    };
    let message = match refused.share {
        Some(share) => format!(
            "This account may have {share} of the {value} requests that this model serves at one \
             time. Answers that were abandoned count until the provider has ended them. {advice}"
        ),
        None => format!("{whose} is limited to {value} {unit}. {advice}"),
    };
    let error = limited(refused.limit, refused.scope, refused.standing, message);
    let error = GatewayError { retry_after, ..error };
    match refused.limit {
        Limit::Concurrency => error.code("ConcurrencyExceeded"),
        _ => error,
    }
}

/// Error for a limit whose shares the nodes of the fleet cannot agree on now.
fn unshared() -> GatewayError {
    let message = "The gateway cannot tell how much of your limits is left. Try again in a moment.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_UNSHARED)
}

/// Error for a key at its spend limit. The account has the money, so it is a rate limit, set by the
/// customer.
pub(super) fn capped(capped: &SpendLimitStatus, amount: Nanousd, now: UnixMs) -> GatewayError {
    let SpendLimitStatus { period, limit, spent, held, resets_at } = capped;
    let (a_period, this) = match period {
        Period::Day => ("a day", "today"),
        Period::Month => ("a month", "this month"),
    };
    let until_reset = Duration::from_millis(resets_at.0.saturating_sub(now.0));
    let fits = |spent: &Nanousd| spent.checked_add(amount).is_some_and(|sum| sum <= *limit);
    // First the request that no reset of the limit lets through: it must not be told to come again.
    let (advice, retry_after) = if !fits(&Nanousd::ZERO) {
        ("Lower `max_tokens`, or ask for a higher limit.".to_owned(), None)
    } else if fits(spent) {
        ("Try again when requests in flight have ended.".to_owned(), Some(RETRY_HELD))
    } else {
        (format!("The limit starts again at {}.", resets_at.to_rfc3339()), Some(until_reset))
    };
    let message = format!(
        "This API key may spend ${limit} {a_period} (UTC). ${spent} was spent {this}, ${held} is held \
         by requests in flight, and this request can cost up to ${amount}. {advice}"
    );
    let error = limited(Limit::Spend, Scope::Key, RateLimitStatus::default(), message);
    GatewayError { retry_after, ..error }
}

fn limited(limit: Limit, scope: Scope, standing: RateLimitStatus, message: String) -> GatewayError {
    let limited = Some(Box::new(LimitReached { limit, scope, standing }));
    GatewayError { limited, ..GatewayError::new(ErrorKind::RateLimited, message) }
}

fn whose(scope: Scope) -> &'static str {
    match scope {
        Scope::Key => "This API key",
        Scope::Account => "This account",
        Scope::Model => "This model",
    }
}

/// Format a duration in whole seconds, rounded up.
fn in_words(wait: Duration) -> String {
    let seconds = wait.as_nanos().div_ceil(1_000_000_000);
    if seconds == 1 { "a second".to_owned() } else { format!("{seconds} seconds") }
}
