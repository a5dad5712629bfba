//! A way to a model: one target with one credential, and what is known of how it works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::choose::View;
use super::circuit::{Change, Circuit, Standing, Verdict};
use crate::clock::UnixMs;
use crate::config::snapshot::{CircuitRules, Credential, Target};

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served to its end.
    Ok,
    /// An answer has begun.
    Begun,
    /// The customer's request was refused.
    Refused,
    /// The upstream is busy, for as long as it says.
    Busy(Option<Duration>),
    /// The upstream failed.
    Failed,
    /// It refuses the operator's credential, or the account behind it.
    Credential,
    /// No connection came about.
    Unreachable,
    /// It took too long.
    TimedOut,
    /// The connection broke.
    Broken,
}

impl Outcome {
    /// Its word in metrics and in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok | Self::Begun => "ok",
            Self::Refused => "refused",
            Self::Busy(_) => "busy",
            Self::Failed => "failed",
            Self::Credential => "credential",
            Self::Unreachable => "unreachable",
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
}

impl Default for UpstreamState {
    fn default() -> Self {
        Self { healthy: AtomicBool::new(true), in_flight: AtomicU32::new(0) }
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

    /// Calls under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// One target with one credential.
#[derive(Debug)]
pub struct Channel {
    /// The credential; `None` for an upstream that asks for none.
    pub credential: Option<Credential>,
    pub(super) upstream: Arc<UpstreamState>,
    /// The credential's breaker, shared by all targets at the upstream.
    pub(super) account: Arc<Mutex<Circuit>>,
    pub(super) circuit: Mutex<Circuit>,
    pub(super) in_flight: AtomicU32,
    pub(super) seed: u64,
    pub(super) last_failure: Mutex<Option<(UnixMs, Outcome)>>,
}

impl Channel {
    /// Whether a call is worth making now.
    #[must_use]
    pub fn standing(&self, now: Instant, rules: &CircuitRules) -> Standing {
        if !self.upstream.is_healthy() {
            return Standing::Open(Duration::ZERO);
        }
        let account = self.account.lock().standing(now, rules);
        let own = self.circuit.lock().standing(now, rules);
        if rank(&account) > rank(&own) { account } else { own }
    }

    /// Calls under way.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The last try that failed, and when.
    #[must_use]
    pub fn last_failure(&self) -> Option<(UnixMs, Outcome)> {
        *self.last_failure.lock()
    }

    pub(super) fn view(&self, target: &Target, now: Instant, rules: &CircuitRules) -> View {
        View {
            priority: target.priority,
            weight: target.weight,
            in_flight: self.in_flight(),
            standing: self.standing(now, rules),
            seed: self.seed,
        }
    }
}

/// The further from ready, the greater.
fn rank(standing: &Standing) -> u8 {
    match standing {
        Standing::Ready { share } if *share >= 1.0 => 0,
        Standing::Ready { .. } => 1,
        Standing::Cooling => 2,
        Standing::ProbeDue => 3,
        Standing::Probing => 4,
        Standing::Busy(_) => 5,
        Standing::Open(_) => 6,
    }
}

/// A channel that was chosen for a try. It counts as under way until it is dropped.
#[derive(Debug)]
pub struct Candidate {
    /// Where the model is served.
    pub target: Arc<Target>,
    /// The way there.
    pub channel: Arc<Channel>,
    /// Whether another try came before.
    pub is_retry: bool,
    pub(super) slot: usize,
    rules: CircuitRules,
    /// This call finds out whether the target works again, and whether the credential does.
    probes: [bool; 2],
}

impl Candidate {
    pub(super) fn begin(
        (target, channel): (Arc<Target>, Arc<Channel>),
        slot: usize,
        is_retry: bool,
        (now, rules): (Instant, CircuitRules),
    ) -> Self {
        let probes = [channel.circuit.lock().begin(now), channel.account.lock().begin(now)];
        channel.in_flight.fetch_add(1, Ordering::Relaxed);
        channel.upstream.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { target, channel, is_retry, slot, rules, probes }
    }

    /// The name of the upstream, and of the credential behind a slash where it has one.
    #[must_use]
    pub fn place(&self) -> String {
        let upstream = &self.target.upstream.name;
        match &self.channel.credential {
            Some(credential) if !credential.name.is_empty() => {
                format!("{upstream}/{}", credential.name)
            }
            _ => upstream.clone(),
        }
    }

    /// Notes what came of the try, for those that follow.
    pub fn report(&mut self, outcome: Outcome, now: Instant) {
        let (own, account) = match outcome {
            Outcome::Ok | Outcome::Refused => (Some(Verdict::Good), Some(Verdict::Good)),
            Outcome::Begun => (Some(Verdict::Begun), Some(Verdict::Good)),
            Outcome::Busy(asked) => (Some(Verdict::Busy(asked)), Some(Verdict::Good)),
            // The credential may be good or not.
            Outcome::Failed | Outcome::Unreachable | Outcome::TimedOut | Outcome::Broken => {
                (Some(Verdict::Bad), None)
            }
            Outcome::Credential => (None, Some(Verdict::Bad)),
        };
        if !matches!(outcome, Outcome::Ok | Outcome::Begun | Outcome::Refused) {
            *self.channel.last_failure.lock() = Some((UnixMs::now(), outcome));
        }
        for (at, verdict, circuit) in
            [(0, own, &self.channel.circuit), (1, account, &*self.channel.account)]
        {
            let Some(verdict) = verdict else { continue };
            self.probes[at] = false;
            if let Some(change) = circuit.lock().report(verdict, now, &self.rules) {
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
        match change {
            Change::Opened(time) => {
                let (word, seconds) = (outcome.as_str(), time.as_secs_f64());
                log::warn!("{what} gets no calls for {seconds:.1} s: the last one was {word}");
            }
            Change::Closed => log::info!("{what} gets calls again"),
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.channel.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.channel.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.probes == [false, false] {
            return;
        }
        let now = Instant::now();
        for (was_probe, circuit) in
            self.probes.into_iter().zip([&self.channel.circuit, &*self.channel.account])
        {
            if was_probe {
                circuit.lock().abandon(now);
            }
        }
    }
}
