//! Whoever issues tokens for one credential: what they have issued, and how they are doing.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tollgate_options::auth::{Auth, AuthKind};
use tollgate_outbound::LocalResource;
use tollgate_types::clock::uptime;

use crate::Unavailable;
use crate::cell::Cell;
use crate::issued::{AwsSigner, IssuedCredential, Proof};

/// Maximum number of accounts with their own session per credential; the least recently used one is evicted.
/// Each takes some two kilobytes.
pub(crate) const ACCOUNTS_MAX: usize = 4096;
/// Maximum number of concurrent requests to one token endpoint.
const CALLS_MAX: usize = 16;
/// The first pause after a call that has failed; each further failure doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause between two calls that fail.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest pause that a token endpoint may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// A configured credential with the tokens issued for it.
#[derive(Debug)]
pub(crate) struct TokenSource {
    pub(crate) auth: Arc<Auth>,
    /// Keys from the configuration, for an upstream without a token endpoint.
    pub(crate) configured: Option<Arc<IssuedCredential>>,
    accounts: Mutex<AccountCells>,
    health: Mutex<Health>,
    /// The offset of the endpoint's clock from ours, in milliseconds, as last measured.
    ahead_ms: AtomicI64,
    pub(crate) calls: Semaphore,
}

/// Credential cells by account number; 0 is shared by all accounts.
#[derive(Debug, Default)]
struct AccountCells {
    cells: HashMap<u64, (Arc<Cell>, u64)>,
    /// A counter of lookups, for eviction of the least recently used account.
    looks: u64,
}

#[derive(Debug, Default)]
struct Health {
    /// Failures in a row.
    failures: u32,
    /// The earliest time of the next token request.
    not_before: Duration,
    /// The reason for the last failure.
    cause: Arc<str>,
    /// The resource of this machine for want of which the last call could not be made.
    exhausted: Option<LocalResource>,
}

/// A failed token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchFailure {
    pub(crate) outcome: RefreshOutcome,
    /// Description for the operator, without secrets.
    pub(crate) cause: String,
    /// Pause requested with `Retry-After`.
    pub(crate) pause: Option<Duration>,
}

/// The outcome of a token request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshOutcome {
    /// A token was issued.
    Ok,
    /// The credential was refused.
    Refused,
    /// The endpoint failed or is busy.
    Failed,
    /// No connection could be opened, or it broke.
    Unreachable,
    /// Timeout without an answer.
    TimedOut,
    /// The response is not a token response.
    Unreadable,
    /// The call could not be made for want of a resource of this machine.
    Exhausted(LocalResource),
}

impl RefreshOutcome {
    /// All values, in the order of the documentation; of several exhausted resources the first is reported.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Refused,
        Self::Failed,
        Self::Unreachable,
        Self::TimedOut,
        Self::Unreadable,
        Self::Exhausted(LocalResource::Descriptors),
    ];

    /// Its word in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timeout",
            Self::Unreadable => "unreadable",
            Self::Exhausted(_) => "exhausted",
        }
    }
}

impl TokenSource {
    pub(crate) fn new(auth: Arc<Auth>) -> Self {
        let configured = match &auth.kind {
            AuthKind::Aws(aws) if !auth.is_issued() => {
                let proof = Proof::Signer(AwsSigner::new(aws, aws.keys.clone(), 0));
                Some(Arc::new(IssuedCredential {
                    proof,
                    renew_at: Duration::MAX,
                    ends_at: Duration::MAX,
                }))
            }
            _ => None,
        };
        Self {
            auth,
            configured,
            accounts: Mutex::default(),
            health: Mutex::default(),
            ahead_ms: AtomicI64::new(0),
            calls: Semaphore::new(CALLS_MAX),
        }
    }

    /// The key of the session tag with the account's name, if accounts have separate sessions.
    pub(crate) fn account_tag(&self) -> Option<&str> {
        let AuthKind::Aws(aws) = &self.auth.kind else { return None };
        aws.assume_role.as_ref()?.account_tag.as_deref()
    }

    /// Returns the cache of the account with this number.
    pub(crate) fn cell(&self, account: u64) -> Arc<Cell> {
        let mut accounts = self.accounts.lock();
        // A count instead of a clock: its order is all that eviction needs, and no two are equal.
        accounts.looks += 1;
        let look = accounts.looks;
        if let Some((cell, last)) = accounts.cells.get_mut(&account) {
            *last = look;
            return Arc::clone(cell);
        }
        if accounts.cells.len() >= ACCOUNTS_MAX
            && let Some(oldest) = accounts
                .cells
                .iter()
                .min_by_key(|(_, (_, last))| *last)
                .map(|(account, _)| *account)
        {
            accounts.cells.remove(&oldest);
        }
        let cell = Arc::new(Cell::default());
        accounts.cells.insert(account, (Arc::clone(&cell), look));
        cell
    }

    /// The longest remaining lifetime of any account's credential.
    pub(crate) fn left(&self) -> Option<Duration> {
        let accounts = self.accounts.lock();
        let ends = accounts.cells.values().filter_map(|(cell, _)| Some(cell.good()?.ends_at));
        ends.max().map(|end| end.saturating_sub(uptime()))
    }

    /// The number of accounts with a valid credential; one if they share it.
    pub(crate) fn good_count(&self) -> usize {
        let accounts = self.accounts.lock();
        accounts.cells.values().filter(|(cell, _)| cell.good().is_some()).count()
    }

    /// True if a token request is allowed now.
    pub(crate) fn may_call(&self) -> bool {
        uptime() >= self.health.lock().not_before
    }

    /// Consecutive failures of the token endpoint.
    pub(crate) fn failures(&self) -> u32 {
        self.health.lock().failures
    }

    /// Returns the reason for the last failure.
    pub(crate) fn unavailable(&self) -> Unavailable {
        let health = self.health.lock();
        Unavailable { cause: Arc::clone(&health.cause), exhausted: health.exhausted }
    }

    pub(crate) fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ahead_ms(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    pub(crate) fn note_success(&self) {
        let was_failing = std::mem::take(&mut *self.health.lock()).failures > 0;
        if was_failing {
            log::info!("{self} gets tokens again");
        }
    }

    /// Records a failure; the next request follows after a pause.
    pub(crate) fn note_failure(&self, failure: &FetchFailure) {
        let mut health = self.health.lock();
        health.cause = failure.cause.as_str().into();
        health.exhausted = match failure.outcome {
            RefreshOutcome::Exhausted(resource) => Some(resource),
            _ => None,
        };
        // Nobody was called, so nobody needs a pause. Metrics count it, and the log has it from there.
        if health.exhausted.is_some() {
            return;
        }
        let doubled = PAUSE_MIN.saturating_mul(1 << health.failures.min(10));
        let pause = doubled.min(PAUSE_MAX).mul_f64(0.8 + 0.4 * fastrand::f64());
        let retry_after = failure.pause.unwrap_or_default().min(RETRY_AFTER_MAX);
        let pause = pause.max(retry_after);
        health.failures = health.failures.saturating_add(1);
        health.not_before = uptime().saturating_add(pause);
        let seconds = pause.as_secs_f64();
        log::warn!("{self} got no token, and asks again in {seconds:.1} s: {}", failure.cause);
    }
}

/// For the log: the credential of the upstream.
impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Auth { upstream, credential, .. } = &*self.auth;
        match credential.as_str() {
            "" => write!(f, "the credential of {upstream}"),
            name => write!(f, "the credential of {upstream}/{name}"),
        }
    }
}
