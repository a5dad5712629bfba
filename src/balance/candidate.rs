//! A channel that was chosen for a try: what it is shown, and what comes of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;
use tollgate_options::auth::Auth;

use super::channel::{Channel, Orphaned, Outcome, PlannedCall};
use super::circuit::{Caller, Change, Circuit, Probe, Verdict};
use super::free::FreeCall;
use super::kind::CallKind;
use crate::clock::UnixMs;
use crate::config::snapshot::{CircuitRules, Target};
use crate::credentials::Token;

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
        let own = outcome.verdict();
        let account = match (outcome, own) {
            (Outcome::Credential, _) => Some(Verdict::Bad),
            // The credential may be good or not.
            (_, Some(Verdict::Bad | Verdict::Down) | None) => None,
            (_, Some(Verdict::Good | Verdict::Begun | Verdict::Busy(_))) => Some(Verdict::Good),
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
        let verdict = match outcome {
            // A credential can lack the permission for one endpoint.
            Outcome::Credential => Some(Verdict::Bad),
            _ => outcome.verdict().filter(|verdict| *verdict != Verdict::Down),
        };
        let own = verdict
            .and_then(|verdict| channel.others.report(call.kind, call.caller, verdict, now, rules));
        of_target.into_iter().for_each(|change| self.tell(change, false, outcome));
        if verdict.is_some() {
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
