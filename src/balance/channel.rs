//! A way to a model: one target with one credential, and what is known of how it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollgate_options::auth::Auth;

use super::choose::View;
use super::circuit::{Caller, Change, Circuit, CircuitStanding, Probe, Verdict};
use super::credential_scan::CredentialFinder;
use super::free::FreeCall;
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
    in_flight: AtomicU32,
    orphans: AtomicU32,
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
pub struct Orphaned(Arc<UpstreamState>);

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

/// The place of a target in the order of tries: of all that can be tried, those of the lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetRank {
    /// The rank of its model: 0 is the one that the request names, and its fallbacks follow.
    pub model: usize,
    /// Set for a target that the request is translated for.
    pub is_translated: bool,
}

/// A way that a request may still take.
#[derive(Debug)]
pub(super) struct UntriedWay {
    pub(super) rank: TargetRank,
    pub(super) target: Arc<Target>,
    pub(super) channel: Arc<Channel>,
}

/// A channel that was chosen for a try. It counts as under way until it is dropped.
#[derive(Debug)]
pub struct Candidate {
    /// Where the model is served.
    pub target: Arc<Target>,
    /// The channel that was chosen.
    pub channel: Arc<Channel>,
    /// Its place in the order of tries.
    pub rank: TargetRank,
    /// Whether another try came before.
    pub is_retry: bool,
    /// What the upstream is shown, where the gateway signs in to it: it is there before a request is
    /// written.
    pub token: Option<Token>,
    /// The place of a call that costs nothing among those at its upstream, until the upstream has answered.
    free_call: Option<FreeCall>,
    pub(super) slot: usize,
    call: PlannedCall,
    rules: CircuitRules,
    /// This call finds out whether its kind works again at the target, and whether the credential does.
    probes: [Probe; 2],
}

impl Candidate {
    pub(super) fn begin(
        way: UntriedWay,
        slot: usize,
        is_retry: bool,
        call: PlannedCall,
        now: Instant,
        rules: CircuitRules,
    ) -> Self {
        let UntriedWay { rank, target, channel } = way;
        let Caller { account, tokens } = call.caller;
        let mut probes = [Probe::default(); 2];
        if call.kind == channel.kind {
            channel.quotas.lock().spend(tokens);
            let begin = |circuit: &Mutex<Circuit>| circuit.lock().begin(account, now);
            probes = [begin(&channel.circuit), begin(&channel.account)];
        } else if !call.kind.is_free() {
            probes[0] = channel.others.begin(call.kind, account, now);
        }
        // Calls that cost nothing take no share of the load from those that are paid for.
        if !call.kind.is_free() {
            channel.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        channel.upstream.in_flight.fetch_add(1, Ordering::Relaxed);
        let (token, free_call) = (None, None);
        Self { target, channel, rank, is_retry, token, free_call, slot, call, rules, probes }
    }

    /// Begins a call that costs nothing, which has its place: one that waits for a place keeps no others
    /// from finding out whether their kind works again.
    pub fn begin_free(&mut self, place: FreeCall, now: Instant) {
        self.free_call = Some(place);
        let PlannedCall { caller, kind } = self.call;
        self.probes[0] = self.channel.others.begin(kind, caller.account, now);
    }

    /// The kind of the call.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        self.call.kind
    }

    /// The account whose call it is, by its number.
    #[must_use]
    pub fn account(&self) -> u64 {
        self.call.caller.account
    }

    /// The channel if its quotas are those that an answer to the call tells of: providers have others for
    /// other endpoints.
    #[must_use]
    pub fn quota_channel(&self) -> Option<&Arc<Channel>> {
        (self.call.kind == self.channel.kind).then_some(&self.channel)
    }

    /// The name of the credential; empty where the upstream has only one.
    #[must_use]
    pub fn credential_name(&self) -> &str {
        self.channel.credential.as_ref().map_or("", |credential| &credential.name)
    }

    /// How the gateway signs in to the upstream; `None` where that takes a key, or nothing.
    #[must_use]
    pub fn auth(&self) -> Option<&Arc<Auth>> {
        self.channel.credential.as_ref()?.auth()
    }

    /// The name of the upstream, and of the credential behind a slash where it has one.
    #[must_use]
    pub fn place(&self) -> String {
        let upstream = &self.target.upstream.name;
        match self.credential_name() {
            "" => upstream.clone(),
            name => format!("{upstream}/{name}"),
        }
    }

    /// Counts its answer as one that nobody waits for any more.
    #[must_use]
    pub fn orphan(&self) -> Orphaned {
        self.channel.upstream.orphans.fetch_add(1, Ordering::Relaxed);
        Orphaned(Arc::clone(&self.channel.upstream))
    }

    /// Notes what came of the try, for those that follow.
    pub fn report(&mut self, outcome: Outcome, now: Instant) {
        if self.call.kind == self.channel.kind {
            self.report_main(outcome, now);
        } else {
            self.report_other(outcome, now);
        }
    }

    /// Notes what came of a call that speaks for the target.
    fn report_main(&mut self, outcome: Outcome, now: Instant) {
        let (own, account) = match outcome {
            Outcome::Ok | Outcome::Refused => (Some(Verdict::Good), Some(Verdict::Good)),
            Outcome::Begun => (Some(Verdict::Begun), Some(Verdict::Good)),
            Outcome::Busy(asked) => (Some(Verdict::Busy(asked)), Some(Verdict::Good)),
            // The credential may be good or not.
            Outcome::Failed | Outcome::TimedOut | Outcome::Broken => (Some(Verdict::Bad), None),
            Outcome::Unreachable | Outcome::Proxy => (Some(Verdict::Down), None),
            Outcome::Credential => (None, Some(Verdict::Bad)),
            Outcome::NotOffered => (None, None),
        };
        if !matches!(outcome, Outcome::Ok | Outcome::Begun | Outcome::Refused | Outcome::NotOffered)
        {
            *self.channel.last_failure.lock() = Some((UnixMs::now(), outcome));
        }
        for (at, verdict, circuit) in
            [(0, own, &self.channel.circuit), (1, account, &*self.channel.account)]
        {
            let Some(verdict) = verdict else { continue };
            self.probes[at] = Probe::default();
            let caller = self.call.caller;
            if let Some(change) = circuit.lock().report(caller, verdict, now, &self.rules) {
                self.tell(change, at == 1, outcome);
            }
        }
    }

    /// Notes what came of a call of another kind: its kind at this target alone is concerned, and the target
    /// by whether there was a connection. The credential is not: it may have no permission for this kind,
    /// or one for nothing else.
    fn report_other(&mut self, outcome: Outcome, now: Instant) {
        // The upstream has done its part. Whoever takes the answer slowly holds no place.
        self.free_call = None;
        let Self { call, channel, rules, .. } = self;
        let of_target = match outcome {
            Outcome::Unreachable | Outcome::Proxy => {
                *channel.last_failure.lock() = Some((UnixMs::now(), outcome));
                channel.circuit.lock().report(call.caller, Verdict::Down, now, rules)
            }
            // It may be for want of a token that the upstream was not asked at all.
            Outcome::Credential => None,
            _ => channel.circuit.lock().connected(now),
        };
        let own = channel.others.report(call.kind, call.caller, outcome, now, rules);
        of_target.into_iter().for_each(|change| self.tell(change, false, outcome));
        if !matches!(outcome, Outcome::Unreachable | Outcome::Proxy | Outcome::NotOffered) {
            self.probes[0] = Probe::default();
        }
        own.into_iter().for_each(|change| self.tell_of_kind(change, outcome));
    }

    fn tell_of_kind(&self, change: Change, outcome: Outcome) {
        let (kind, place, word) = (self.call.kind.as_str(), self.place(), outcome.as_str());
        let model = self.target.model.as_deref().unwrap_or_default();
        let space = if model.is_empty() { "" } else { " " };
        match change {
            Change::Opened(time) => log::warn!(
                "{model}{space}at {place} gets no {kind} calls for {:.1} s: the last one was {word}; \
                 other calls go on",
                time.as_secs_f64()
            ),
            // The accounts that make such calls can be many, and cost nothing.
            Change::OpenedForOne(_) => {}
            Change::Closed => log::info!("{model}{space}at {place} gets {kind} calls again"),
        }
    }

    fn tell(&self, change: Change, is_account: bool, outcome: Outcome) {
        let place = self.place();
        let what = match (is_account, &self.target.model) {
            (true, _) => format!("the credential of {place}"),
            (false, Some(model)) => format!("{model} at {place}"),
            (false, None) => place,
        };
        let word = outcome.as_str();
        match change {
            Change::Opened(time) => {
                let seconds = time.as_secs_f64();
                log::warn!("{what} gets no calls for {seconds:.1} s: the last one was {word}");
            }
            Change::OpenedForOne(time) => {
                let seconds = time.as_secs_f64();
                log::warn!(
                    "{what} gets no calls of one account for {seconds:.1} s: its own fail, and the \
                     last one was {word}"
                );
            }
            Change::Closed => log::info!("{what} gets calls again"),
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let Self { channel, call, .. } = self;
        if !call.kind.is_free() {
            channel.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        channel.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.probes.iter().any(|probe| probe.is_any()) {
            return;
        }
        let (now, account) = (Instant::now(), call.caller.account);
        if call.kind != channel.kind {
            channel.others.abandon(call.kind, account, self.probes[0], now);
            return;
        }
        for (probe, circuit) in
            self.probes.into_iter().zip([&self.channel.circuit, &*self.channel.account])
        {
            if probe.is_any() {
                circuit.lock().abandon(account, probe, now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
