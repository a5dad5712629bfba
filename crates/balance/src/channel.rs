//! A channel: one target with one credential, and its health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::breaker::CircuitStanding;
use super::choose::ChannelView;
use super::circuit::{CallOrigin, Circuit, Verdict};
use super::credential_scan::CredentialFinder;
use super::other_kinds::OtherKinds;
use super::quota::{QuotaReport, QuotaStanding, Quotas};
use super::stored_ids::Home;
use tollgate_config::snapshot::{CallKind, CircuitRules, Credential, CredentialKind, Target};
use tollgate_credentials::Token;
use tollgate_types::clock::UnixMs;

/// Outcome of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered completely, without an error.
    Ok,
    /// The answer has begun.
    Begun,
    /// The upstream refused the customer's request.
    Refused,
    /// The target lacks the named model, or the path, which not all upstreams have. No sign of a
    /// failure.
    NotOffered,
    /// The upstream is busy (429, 503), with its `Retry-After`.
    Busy(Option<Duration>),
    /// The upstream failed to serve the request.
    Failed,
    /// The upstream refused the operator's credential, or the account behind it.
    Credential,
    /// No connection was made.
    Unreachable,
    /// The forward proxy to the upstream failed. Opens the circuit like `Unreachable`, under a label of
    /// its own.
    Proxy,
    /// A timeout expired before the end.
    TimedOut,
    /// The connection to the upstream broke.
    Broken,
}

impl Outcome {
    /// Every label in metrics and in the admin API.
    pub const WORDS: [&str; 9] = [
        "ok",
        "refused",
        "busy",
        "failed",
        "credential",
        "unreachable",
        "proxy",
        "timeout",
        "broken",
    ];

    /// Verdict on the endpoint; `None` if the outcome is no evidence.
    pub(super) fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Ok | Self::Refused => Some(Verdict::Good),
            Self::Begun => Some(Verdict::Begun),
            Self::Busy(retry_after) => Some(Verdict::Busy(retry_after)),
            Self::Failed | Self::TimedOut | Self::Broken => Some(Verdict::Bad),
            Self::Unreachable | Self::Proxy => Some(Verdict::Down),
            Self::Credential | Self::NotOffered => None,
        }
    }

    /// Label in metrics and in the admin API: one of [`Self::WORDS`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok | Self::Begun => "ok",
            Self::Refused | Self::NotOffered => "refused",
            Self::Busy(_) => "busy",
            Self::Failed => "failed",
            Self::Credential => "credential",
            Self::Unreachable => "unreachable",
            Self::Proxy => "proxy",
            Self::TimedOut => "timeout",
            Self::Broken => "broken",
        }
    }
}

/// State shared by all channels to an upstream.
#[derive(Debug)]
pub struct UpstreamState {
    healthy: AtomicBool,
    pub(super) in_flight: AtomicU32,
    pub(super) orphans: AtomicU32,
}

impl Default for UpstreamState {
    fn default() -> Self {
        Self {
            healthy: AtomicBool::new(true),
            in_flight: AtomicU32::new(0),
            orphans: AtomicU32::new(0),
        }
    }
}

impl UpstreamState {
    /// Store the result of a health check. Returns true if it changed.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.healthy.swap(healthy, Ordering::Relaxed) != healthy
    }

    /// Latest result of the health check; true if there is none.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// Number of calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Number of orphans: calls in flight whose client has disconnected.
    #[must_use]
    pub fn orphans(&self) -> u32 {
        self.orphans.load(Ordering::Relaxed)
    }
}

/// Guard that counts an orphan until dropped.
#[derive(Debug)]
pub struct OrphanGuard(pub(super) Arc<UpstreamState>);

impl Drop for OrphanGuard {
    fn drop(&mut self) {
        self.0.orphans.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One target with one credential.
#[derive(Debug)]
pub struct Channel {
    /// Credential; `None` for an upstream without authentication.
    pub credential: Option<Credential>,
    /// Finders of the secrets sent to the upstream.
    pub(super) finders: Finders,
    pub(super) upstream: Arc<UpstreamState>,
    /// Circuit of the credential, shared by all targets at the upstream.
    pub(super) account: Arc<Mutex<Circuit>>,
    /// Main call kind of the target.
    pub(super) kind: CallKind,
    /// Circuit of the main call kind.
    pub(super) circuit: Mutex<Circuit>,
    /// Circuits of the other call kinds, which affect those kinds only.
    pub(super) others: OtherKinds,
    /// Billed calls in flight.
    pub(super) in_flight: AtomicU32,
    pub(super) seed: u64,
    /// Seed of its target, independent of the credential.
    pub(super) target_seed: u64,
    /// Storage location at the upstream of what calls over this channel create.
    pub(super) home: Home,
    pub(super) last_failure: Mutex<Option<(UnixMs, Outcome)>>,
    pub(super) quotas: Mutex<Quotas>,
}

/// Finders of the secrets sent over one channel.
#[derive(Debug, Default)]
pub(super) struct Finders {
    /// Finder of the API key, if one is configured.
    key: Option<Arc<CredentialFinder>>,
    /// Finder of the latest token, if the gateway signs in.
    token: Mutex<Option<Arc<CredentialFinder>>>,
}

impl Finders {
    pub(super) fn new(credential: Option<&Credential>) -> Self {
        let key = credential.and_then(|one| match &one.kind {
            CredentialKind::Key(key) => CredentialFinder::new(std::iter::once(key.expose())),
            CredentialKind::Auth(_) => None,
        });
        Self { key: key.map(Arc::new), token: Mutex::default() }
    }
}

/// Properties of a call that the selection depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedCall {
    /// Account and prompt size.
    pub(super) caller: CallOrigin,
    /// The kind of the call.
    pub(super) kind: CallKind,
}

impl Channel {
    /// Finder of the secrets sent in a try: the API key or `token`. `None` if they are too short to tell
    /// from other text.
    #[must_use]
    pub fn finder(&self, token: Option<&Token>) -> Option<Arc<CredentialFinder>> {
        let Some(token) = token else { return self.finders.key.clone() };
        // Kept for the next try: building a finder takes longer than its search in a short answer.
        let mut last = self.finders.token.lock();
        if let Some(existing) = last.as_ref().filter(|existing| existing.is_of(token.secrets())) {
            return Some(Arc::clone(existing));
        }
        let finder = CredentialFinder::new(token.secrets()).map(Arc::new);
        last.clone_from(&finder);
        finder
    }

    /// True if a document contains the secrets sent in a try: the API key or `token`.
    #[must_use]
    pub fn has_credential_in(&self, document: &[u8], token: Option<&Token>) -> bool {
        self.finder(token).is_some_and(|finder| finder.is_in(document))
    }

    /// Store the operator's quota as an answer reports it.
    pub fn note_quota(&self, report: &QuotaReport, now: Instant) {
        self.quotas.lock().take(report, now);
    }

    /// Unexpired quotas of the operator.
    #[must_use]
    pub fn quotas(&self, now: Instant) -> Vec<QuotaStanding> {
        self.quotas.lock().standings(now)
    }

    /// Circuit status for a short call of the main kind by this account, or by any if `None`.
    #[must_use]
    pub fn standing(
        &self,
        account: Option<u64>,
        now: Instant,
        rules: &CircuitRules,
    ) -> CircuitStanding {
        if !self.upstream.is_healthy() {
            return CircuitStanding::Open(Duration::ZERO);
        }
        let of = |circuit: &Circuit| match account {
            Some(account) => circuit.standing(CallOrigin { account, tokens: 0 }, now, rules),
            None => circuit.standing_for_all(now, rules),
        };
        of(&self.circuit.lock()).or_worse(of(&self.account.lock()))
    }

    /// Circuit status for `call`.
    pub(super) fn standing_of(
        &self,
        call: PlannedCall,
        now: Instant,
        rules: &CircuitRules,
    ) -> CircuitStanding {
        if !self.upstream.is_healthy() {
            return CircuitStanding::Open(Duration::ZERO);
        }
        if call.kind == self.kind {
            // Locked one after the other, never both: calls end while others are chosen.
            let of = |circuit: &Mutex<Circuit>| circuit.lock().standing(call.caller, now, rules);
            return of(&self.circuit).or_worse(of(&self.account));
        }
        let of = |circuit: &Mutex<Circuit>| circuit.lock().standing_for_other_kinds(now);
        let own = self.others.standing(call.kind, call.caller, now, rules);
        of(&self.circuit).or_worse(of(&self.account)).or_worse(own)
    }

    /// Main call kind of the target.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        self.kind
    }

    /// Other call kinds whose circuit is open.
    #[must_use]
    pub fn shut_kinds(
        &self,
        now: Instant,
        rules: &CircuitRules,
    ) -> Vec<(CallKind, CircuitStanding)> {
        self.others.shut(now, rules)
    }

    /// Number of accounts whose own breaker is open while the shared one is closed.
    #[must_use]
    pub fn accounts_shut_out(&self, now: Instant, rules: &CircuitRules) -> usize {
        let of = |circuit: &Mutex<Circuit>| circuit.lock().accounts_shut_out(now, rules);
        of(&self.circuit).max(of(&self.account))
    }

    /// Number of billed calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Time and outcome of the latest failure.
    #[must_use]
    pub fn last_failure(&self) -> Option<(UnixMs, Outcome)> {
        *self.last_failure.lock()
    }

    pub(super) fn view(
        &self,
        target: &Target,
        call: PlannedCall,
        now: Instant,
        rules: &CircuitRules,
    ) -> ChannelView {
        // Quotas apply to the main call kind; looked at last, since that takes a lock.
        let is_short = || self.quotas.lock().is_short(call.caller.tokens, now);
        ChannelView {
            target: target.index,
            priority: target.priority,
            weight: target.weight,
            in_flight: self.in_flight(),
            standing: self.standing_of(call, now, rules),
            has_quota: call.kind != self.kind || !is_short(),
            seed: self.seed,
            target_seed: self.target_seed,
        }
    }
}

#[cfg(test)]
impl Channel {
    /// Create a channel without a credential and without history.
    pub(super) fn unused(kind: CallKind) -> Self {
        Self {
            credential: None,
            finders: Finders::default(),
            upstream: Arc::default(),
            account: Arc::default(),
            kind,
            circuit: Mutex::default(),
            others: OtherKinds::default(),
            in_flight: AtomicU32::new(0),
            seed: 0,
            target_seed: 0,
            home: Home(0),
            last_failure: Mutex::new(None),
            quotas: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests;
