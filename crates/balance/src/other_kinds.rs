//! Circuits of a channel's calls that are not of its target's main kind.

use std::time::Instant;

use parking_lot::Mutex;

use super::breaker::CircuitStanding;
use super::circuit::{CallOrigin, Circuit, CircuitTransition, HalfOpenProbe, Verdict};
use tollgate_config::snapshot::{CallKind, CircuitRules};

/// Circuits of a channel's other kinds: at most one per [`CallKind`], created by the first reported
/// call.
#[derive(Debug, Default)]
pub(super) struct OtherKinds(Mutex<Vec<(CallKind, Circuit)>>);

impl OtherKinds {
    /// Availability for a call of this kind, by its own circuit.
    pub(super) fn standing(
        &self,
        kind: CallKind,
        caller: CallOrigin,
        now: Instant,
        rules: &CircuitRules,
    ) -> CircuitStanding {
        let kinds = self.0.lock();
        let existing = kinds.iter().find(|(existing, _)| *existing == kind);
        existing.map_or(CircuitStanding::Ready { share: 1.0 }, |(_, circuit)| {
            circuit.standing(caller, now, rules)
        })
    }

    /// Begin a call and return its probe.
    pub(super) fn begin(&self, kind: CallKind, account: u64, now: Instant) -> HalfOpenProbe {
        self.with(kind, |circuit| circuit.begin(account, now)).unwrap_or_default()
    }

    /// End a probe without a result.
    pub(super) fn abandon(&self, kind: CallKind, account: u64, probe: HalfOpenProbe, now: Instant) {
        self.with(kind, |circuit| circuit.abandon(account, probe, now));
    }

    /// Record the verdict on a call. Returns the transition of its kind's circuit.
    pub(super) fn report(
        &self,
        kind: CallKind,
        caller: CallOrigin,
        verdict: Verdict,
        now: Instant,
        rules: &CircuitRules,
    ) -> Option<CircuitTransition> {
        let mut kinds = self.0.lock();
        let at = kinds.iter().position(|(existing, _)| *existing == kind).unwrap_or_else(|| {
            kinds.push((kind, Circuit::default()));
            kinds.len() - 1
        });
        let (_, circuit) = kinds.get_mut(at)?;
        circuit.report(caller, verdict, now, rules)
    }

    /// Kinds that are unavailable for all callers.
    pub(super) fn shut(
        &self,
        now: Instant,
        rules: &CircuitRules,
    ) -> Vec<(CallKind, CircuitStanding)> {
        let kinds = self.0.lock();
        let standings =
            kinds.iter().map(|(kind, circuit)| (*kind, circuit.standing_for_all(now, rules)));
        let is_shut = |standing: &CircuitStanding| {
            !matches!(standing, CircuitStanding::Ready { .. } | CircuitStanding::Cooling)
        };
        standings.filter(|(_, standing)| is_shut(standing)).collect()
    }

    fn with<T>(&self, kind: CallKind, act: impl FnOnce(&mut Circuit) -> T) -> Option<T> {
        let mut kinds = self.0.lock();
        kinds.iter_mut().find(|(existing, _)| *existing == kind).map(|(_, circuit)| act(circuit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_channel_without_other_kinds_keeps_none() {
        let (others, now) = (OtherKinds::default(), Instant::now());
        let caller = CallOrigin { account: 1, tokens: 1 };
        let rules = CircuitRules {
            failures: 3,
            failure_percent: 50,
            open: std::time::Duration::from_secs(1),
            open_max: std::time::Duration::from_secs(1),
            slow_start: std::time::Duration::from_secs(1),
        };
        assert!(!others.begin(sample::token_count(), 1, now).is_any());
        others.standing(sample::token_count(), caller, now, &rules);
        assert_eq!(others.0.lock().capacity(), 0);
        for account in 0..1000 {
            let caller = CallOrigin { account, tokens: 1 };
            for kind in [sample::token_count(), sample::compact()] {
                others.report(kind, caller, Verdict::Bad, now, &rules);
            }
        }
        assert_eq!(others.0.lock().len(), 2, "one for each kind");
    }
}
