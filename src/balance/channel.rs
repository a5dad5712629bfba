//! A way to a model: one target with one credential, and what is known of how it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tollgate_options::auth::Auth;

use super::choose::View;
use super::circuit::{Change, Circuit, CircuitStanding, Probe, Verdict};
use super::credential_scan::CredentialFinder;
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
    pub(super) circuit: Mutex<Circuit>,
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
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallSize {
    /// Whose call it is; `None` for one of anybody's.
    pub(super) account: Option<u64>,
    /// The least number of tokens that its prompt has.
    pub(super) tokens: u64,
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

    /// Whether a call of this account is worth making now; of any, where none is named.
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
            Some(account) => circuit.standing(account, now, rules),
            None => circuit.standing_for_all(now, rules),
        };
        of(&self.circuit.lock()).or_worse(of(&self.account.lock()))
    }

    /// How many accounts get no calls because their own failed, while others may.
    #[must_use]
    pub fn accounts_shut_out(&self, now: Instant, rules: &CircuitRules) -> usize {
        let of = |circuit: &Mutex<Circuit>| circuit.lock().accounts_shut_out(now, rules);
        of(&self.circuit).max(of(&self.account))
    }

    /// The number of calls under way.
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
        call: CallSize,
        now: Instant,
        rules: &CircuitRules,
    ) -> View {
        View {
            target: target.index,
            priority: target.priority,
            weight: target.weight,
            in_flight: self.in_flight(),
            standing: self.standing(call.account, now, rules),
            has_quota: !self.quotas.lock().is_short(call.tokens, now),
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
    pub(super) slot: usize,
    /// Whose call it is.
    account: u64,
    rules: CircuitRules,
    /// This call finds out whether the target works again, and whether the credential does.
    probes: [Probe; 2],
}

impl Candidate {
    pub(super) fn begin(
        way: UntriedWay,
        slot: usize,
        is_retry: bool,
        (account, tokens): (u64, u64),
        now: Instant,
        rules: CircuitRules,
    ) -> Self {
        let UntriedWay { rank, target, channel } = way;
        channel.quotas.lock().spend(tokens);
        let begin = |circuit: &Mutex<Circuit>| circuit.lock().begin(account, now);
        let probes = [begin(&channel.circuit), begin(&channel.account)];
        channel.in_flight.fetch_add(1, Ordering::Relaxed);
        channel.upstream.in_flight.fetch_add(1, Ordering::Relaxed);
        let token = None;
        Self { target, channel, rank, is_retry, token, slot, account, rules, probes }
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
            if let Some(change) = circuit.lock().report(self.account, verdict, now, &self.rules) {
                self.tell(change, at == 1, outcome);
            }
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
        self.channel.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.channel.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.probes.iter().any(|probe| probe.is_any()) {
            return;
        }
        let now = Instant::now();
        for (probe, circuit) in
            self.probes.into_iter().zip([&self.channel.circuit, &*self.channel.account])
        {
            if probe.is_any() {
                circuit.lock().abandon(self.account, probe, now);
            }
        }
    }
}
