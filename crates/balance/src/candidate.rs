//! A channel selected for one try, with its credentials and the report of its outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;
use tollgate_options::auth::Auth;

use super::channel::{Channel, OrphanGuard, Outcome, PlannedCall};
use super::circuit::{CallOrigin, Circuit, CircuitTransition, HalfOpenProbe, Verdict};
use super::free_calls::FreeCall;
use tollgate_config::snapshot::{CallKind, CircuitRules, Target};
use tollgate_credentials::Token;
use tollgate_types::clock::UnixMs;

/// Rank of a target in the order of tries; the lowest available rank is tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetRank {
    /// The rank of its model: 0 is the one that the request names, and its fallbacks follow.
    pub model: usize,
    /// True if the request must be translated for the target.
    pub is_translated: bool,
}

/// A channel that a request has not tried, with its target and rank.
#[derive(Debug)]
pub(super) struct RankedChannel {
    pub(super) rank: TargetRank,
    pub(super) target: Arc<Target>,
    pub(super) channel: Arc<Channel>,
}

/// A channel selected for a try. Counted as in flight until dropped.
#[derive(Debug)]
pub struct Candidate {
    /// Target that serves the model.
    pub target: Arc<Target>,
    /// Channel selected for the try.
    pub channel: Arc<Channel>,
    /// Rank of the target in the order of tries.
    pub rank: TargetRank,
    /// True if it is not the request's first try.
    pub is_retry: bool,
    /// Token for the upstream, if the gateway signs in to it; set before a request is written.
    pub token: Option<Token>,
    /// Slot of a free call, released when the upstream has answered.
    free_call: Option<FreeCall>,
    pub(super) slot: usize,
    call: PlannedCall,
    rules: CircuitRules,
    /// Half-open probes that this call makes: of the call kind at the target, and of the credential.
    probes: [HalfOpenProbe; 2],
}

impl Candidate {
    pub(super) fn begin(
        ranked: RankedChannel,
        slot: usize,
        is_retry: bool,
        call: PlannedCall,
        now: Instant,
        rules: CircuitRules,
    ) -> Self {
        let RankedChannel { rank, target, channel } = ranked;
        let CallOrigin { account, tokens } = call.caller;
        let mut probes = [HalfOpenProbe::default(); 2];
        if call.kind == channel.kind {
            // Before the answer reports it: parallel calls must not all count on the same rest.
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

    /// Begins a free call that has its slot: a waiting one would keep other calls from probing.
    pub fn begin_free(&mut self, place: FreeCall, now: Instant) {
        self.free_call = Some(place);
        let PlannedCall { caller, kind } = self.call;
        self.probes[0] = self.channel.others.begin(kind, caller.account, now);
    }

    /// Kind of the call.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        self.call.kind
    }

    /// Number of the calling account.
    #[must_use]
    pub fn account(&self) -> u64 {
        self.call.caller.account
    }

    /// Channel whose quotas the answer's headers report; `None` for kinds with quotas of their own.
    #[must_use]
    pub fn quota_channel(&self) -> Option<&Arc<Channel>> {
        (self.call.kind == self.channel.kind).then_some(&self.channel)
    }

    /// Name of the credential; empty for an upstream with one unnamed credential.
    #[must_use]
    pub fn credential_name(&self) -> &str {
        self.channel.credential.as_ref().map_or("", |credential| &credential.name)
    }

    /// Sign-in method of the upstream; `None` if it takes an API key or nothing.
    #[must_use]
    pub fn auth(&self) -> Option<&Arc<Auth>> {
        self.channel.credential.as_ref()?.auth()
    }

    /// Label for logs: `upstream`, or `upstream/credential`.
    #[must_use]
    pub fn place(&self) -> String {
        let upstream = &self.target.upstream.name;
        match self.credential_name() {
            "" => upstream.clone(),
            name => format!("{upstream}/{name}"),
        }
    }

    /// Count the answer as orphaned: nobody waits for it any more.
    #[must_use]
    pub fn orphan(&self) -> OrphanGuard {
        self.channel.upstream.orphans.fetch_add(1, Ordering::Relaxed);
        OrphanGuard(Arc::clone(&self.channel.upstream))
    }

    /// Report the outcome of the try to the circuits.
    pub fn report(&mut self, outcome: Outcome, now: Instant) {
        if self.call.kind == self.channel.kind {
            self.report_main(outcome, now);
        } else {
            self.report_other(outcome, now);
        }
    }

    /// Report a call of the target's main kind.
    fn report_main(&mut self, outcome: Outcome, now: Instant) {
        let own = outcome.verdict();
        let account = match (outcome, own) {
            (Outcome::Credential, _) => Some(Verdict::Bad),
            // The failure does not show whether the credential is good.
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
            self.probes[at] = HalfOpenProbe::default();
            let caller = self.call.caller;
            if let Some(change) = circuit.lock().report(caller, verdict, now, &self.rules) {
                self.tell(change, at == 1, outcome);
            }
        }
    }

    /// Report a call of another kind. It affects that kind's circuit at this target, and the target's
    /// main circuit only by whether a connection was made. It never affects the credential, which may
    /// lack permission for this kind, or have it for this kind only.
    fn report_other(&mut self, outcome: Outcome, now: Instant) {
        // The upstream has answered: a client that reads slowly must not hold the slot.
        self.free_call = None;
        let Self { call, channel, rules, .. } = self;
        let of_target = match outcome {
            Outcome::Unreachable | Outcome::Proxy => {
                *channel.last_failure.lock() = Some((UnixMs::now(), outcome));
                channel.circuit.lock().report(call.caller, Verdict::Down, now, rules)
            }
            // Sign-in may have failed, so no call reached the upstream.
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
            self.probes[0] = HalfOpenProbe::default();
        }
        own.into_iter().for_each(|change| self.tell_of_kind(change, outcome));
    }

    fn tell_of_kind(&self, change: CircuitTransition, outcome: Outcome) {
        let (kind, place, word) = (self.call.kind.as_str(), self.place(), outcome.as_str());
        let model = self.target.model.as_deref().unwrap_or_default();
        let space = if model.is_empty() { "" } else { " " };
        match change {
            CircuitTransition::Opened(time) => log::warn!(
                "{model}{space}at {place} gets no {kind} calls for {:.1} s: the last one was {word}; \
                 other calls go on",
                time.as_secs_f64()
            ),
            // Not logged: free calls of many accounts could flood the log.
            CircuitTransition::OpenedForOne(_) => {}
            CircuitTransition::Closed => {
                log::info!("{model}{space}at {place} gets {kind} calls again")
            }
        }
    }

    fn tell(&self, change: CircuitTransition, is_account: bool, outcome: Outcome) {
        let place = self.place();
        let what = match (is_account, &self.target.model) {
            (true, _) => format!("the credential of {place}"),
            (false, Some(model)) => format!("{model} at {place}"),
            (false, None) => place,
        };
        let word = outcome.as_str();
        match change {
            CircuitTransition::Opened(time) => {
                let seconds = time.as_secs_f64();
                log::warn!("{what} gets no calls for {seconds:.1} s: the last one was {word}");
            }
            CircuitTransition::OpenedForOne(time) => {
                let seconds = time.as_secs_f64();
                log::warn!(
                    "{what} gets no calls of one account for {seconds:.1} s: its own fail, and the \
                     last one was {word}"
                );
            }
            CircuitTransition::Closed => log::info!("{what} gets calls again"),
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
        // A probe without a result must be given back, or the circuit would wait for it in vain.
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
