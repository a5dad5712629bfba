//! A way to a model: one target with one credential, and what is known of how it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::choose::View;
use super::circuit::{Caller, Circuit, CircuitStanding, Verdict};
use super::credential_scan::CredentialFinder;
use super::kind::{CallKind, OtherKinds};
use super::quota::{QuotaReport, QuotaStanding, Quotas};
use super::stored::Home;
use crate::clock::UnixMs;
use crate::config::snapshot::{CircuitRules, Credential, CredentialKind, Target};
use crate::credentials::Token;

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served to its end.
    Ok,
    /// An answer has begun.
    Begun,
    /// The customer's request was refused.
    Refused,
    /// The target does not have what the customer named: a model, or a path that not all have. That
    /// says nothing of how it works.
    NotOffered,
    /// The upstream is busy, for as long as it says.
    Busy(Option<Duration>),
    /// The upstream failed to serve the request.
    Failed,
    /// It refuses the operator's credential, or the account behind it.
    Credential,
    /// No connection came about.
    Unreachable,
    /// The forward proxy in front of the upstream failed. Its circuit opens as for an upstream that cannot
    /// be reached, since no call gets through, under another word.
    Proxy,
    /// It took too long.
    TimedOut,
    /// The connection to the upstream broke.
    Broken,
}

impl Outcome {
    /// Every word in metrics and in the admin API.
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

    /// The verdict on the endpoint that was called; `None` where the outcome says nothing of it.
    pub(super) fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Ok | Self::Refused => Some(Verdict::Good),
            Self::Begun => Some(Verdict::Begun),
            Self::Busy(asked) => Some(Verdict::Busy(asked)),
            Self::Failed | Self::TimedOut | Self::Broken => Some(Verdict::Bad),
            Self::Unreachable | Self::Proxy => Some(Verdict::Down),
            Self::Credential | Self::NotOffered => None,
        }
    }

    /// Its word in metrics and in the admin API: one of [`Self::WORDS`].
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

/// What all channels to an upstream share.
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
    /// What a health check found. Says whether that is news.
    pub fn set_healthy(&self, healthy: bool) -> bool {
        self.healthy.swap(healthy, Ordering::Relaxed) != healthy
    }

    /// What a health check found last; true where there is none.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// The number of calls under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Calls under way whose answers nobody waits for any more.
    #[must_use]
    pub fn orphans(&self) -> u32 {
        self.orphans.load(Ordering::Relaxed)
    }
}

/// An answer of an upstream that is read on although nobody waits for it, counted until it is dropped.
#[derive(Debug)]
pub struct Orphaned(pub(super) Arc<UpstreamState>);

impl Drop for Orphaned {
    fn drop(&mut self) {
        self.0.orphans.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One target with one credential.
#[derive(Debug)]
pub struct Channel {
    /// The credential; `None` for an upstream that asks for none.
    pub credential: Option<Credential>,
    /// Finders of what the upstream is shown.
    pub(super) finders: Finders,
    pub(super) upstream: Arc<UpstreamState>,
    /// The credential's breaker, shared by all targets at the upstream.
    pub(super) account: Arc<Mutex<Circuit>>,
    /// The kind of call that speaks for the target.
    pub(super) kind: CallKind,
    /// The circuit of that kind.
    pub(super) circuit: Mutex<Circuit>,
    /// The circuits of other kinds, which shut nothing but themselves.
    pub(super) others: OtherKinds,
    /// Calls under way that are paid for.
    pub(super) in_flight: AtomicU32,
    pub(super) seed: u64,
    /// The seed of its target, whatever the credential.
    pub(super) target_seed: u64,
    /// Where that is which the upstream keeps of calls this way.
    pub(super) home: Home,
    pub(super) last_failure: Mutex<Option<(UnixMs, Outcome)>>,
    pub(super) quotas: Mutex<Quotas>,
}

/// Finders of what an upstream is shown over one channel.
#[derive(Debug, Default)]
pub(super) struct Finders {
    /// The key, where one is sent with requests.
    key: Option<Arc<CredentialFinder>>,
    /// The token that was used last, where the gateway signs in.
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

/// A call that is to be made, as far as a choice among channels depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedCall {
    /// The account and the size of its prompt.
    pub(super) caller: Caller,
    /// The kind of the call.
    pub(super) kind: CallKind,
}

impl Channel {
    /// A finder of what the upstream is shown in a try: the key, or this token. `None` where nothing is
    /// shown that can be told from other texts.
    #[must_use]
    pub fn finder(&self, token: Option<&Token>) -> Option<Arc<CredentialFinder>> {
        let Some(token) = token else { return self.finders.key.clone() };
        let mut last = self.finders.token.lock();
        if let Some(known) = last.as_ref().filter(|known| known.is_of(token.secrets())) {
            return Some(Arc::clone(known));
        }
        let finder = CredentialFinder::new(token.secrets()).map(Arc::new);
        last.clone_from(&finder);
        finder
    }

    /// Whether a document holds what the upstream is shown in a try: the key, or this token.
    #[must_use]
    pub fn has_credential_in(&self, document: &[u8], token: Option<&Token>) -> bool {
        self.finder(token).is_some_and(|finder| finder.is_in(document))
    }

    /// Notes what an answer says of the operator's quota.
    pub fn note_quota(&self, report: &QuotaReport, now: Instant) {
        self.quotas.lock().take(report, now);
    }

    /// What is known of the operator's quotas.
    #[must_use]
    pub fn quotas(&self, now: Instant) -> Vec<QuotaStanding> {
        self.quotas.lock().standings(now)
    }

    /// Whether a call of the kind that speaks for the target is worth making now for this account; for any,
    /// where none is named. Prompts are short ones.
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
            Some(account) => circuit.standing(Caller { account, tokens: 0 }, now, rules),
            None => circuit.standing_for_all(now, rules),
        };
        of(&self.circuit.lock()).or_worse(of(&self.account.lock()))
    }

    /// Whether `call` is worth making now.
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
            let of = |circuit: &Mutex<Circuit>| circuit.lock().standing(call.caller, now, rules);
            return of(&self.circuit).or_worse(of(&self.account));
        }
        let of = |circuit: &Mutex<Circuit>| circuit.lock().standing_for_other_kinds(now);
        let own = self.others.standing(call.kind, call.caller, now, rules);
        of(&self.circuit).or_worse(of(&self.account)).or_worse(own)
    }

    /// The kind of call that speaks for the target.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        self.kind
    }

    /// The other kinds of calls that are not worth making now.
    #[must_use]
    pub fn shut_kinds(
        &self,
        now: Instant,
        rules: &CircuitRules,
    ) -> Vec<(CallKind, CircuitStanding)> {
        self.others.shut(now, rules)
    }

    /// How many accounts get no calls because their own failed, while others may.
    #[must_use]
    pub fn accounts_shut_out(&self, now: Instant, rules: &CircuitRules) -> usize {
        let of = |circuit: &Mutex<Circuit>| circuit.lock().accounts_shut_out(now, rules);
        of(&self.circuit).max(of(&self.account))
    }

    /// The number of calls under way that are paid for.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The last try that failed, and when.
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
    ) -> View {
        // Quotas are those of the calls that speak for the target.
        let is_short = || self.quotas.lock().is_short(call.caller.tokens, now);
        View {
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
    /// A channel without a credential, of whose calls nothing is known.
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
