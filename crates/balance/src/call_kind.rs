//! Call kinds: a provider's endpoints with separate limits, permissions and failures.

use std::time::Instant;

use parking_lot::Mutex;

use super::breaker::CircuitStanding;
use super::circuit::{Caller, Change, Circuit, Probe, Verdict};
use tollgate_config::snapshot::{CircuitRules, Model};
use tollgate_types::words::words;

words! {
    /// Kind of a call. The outcomes of one kind are no evidence about another at the same target.
    /// Derived from the operation.
    #[derive(PartialOrd, Ord)]
    CallKind {
        /// Chat, messages, responses and generated content, in every dialect: a translated request
        /// reaches the endpoint of another operation.
        Generation = "generation",
        /// Embeddings of texts and images.
        Embeddings = "embeddings",
        /// Ranking of documents for a query.
        Rerank = "rerank",
        /// Classification of harmful content.
        Moderations = "moderations",
        /// Images that are generated from text.
        ImageGeneration = "image_generation",
        /// Images from images and text.
        ImageEdit = "image_edit",
        /// Video generation in asynchronous tasks.
        Video = "video",
        /// Speech that is synthesized from text.
        Speech = "speech",
        /// Text that is transcribed from speech.
        Transcription = "transcription",
        /// English text from speech.
        AudioTranslation = "audio_translation",
        /// Compaction of an agent's conversation.
        Compact = "compact",
        /// Token counts in every dialect, free of charge.
        TokenCount = "token_count",
    }
}

impl CallKind {
    /// True if its calls are free, so that accounts without money can make them.
    #[must_use]
    pub fn is_free(self) -> bool {
        self == Self::TokenCount
    }

    /// Main kind of a model, whose calls decide about the target; of several, the first in the order of
    /// the kinds.
    pub(super) fn main_of(model: &Model) -> Self {
        let kinds = model.operations.iter().map(|operation| Self::from(*operation));
        kinds.min().unwrap_or(Self::Generation)
    }
}

/// Circuits of a channel's other kinds: at most one per [`CallKind`], created by the first reported
/// call.
#[derive(Debug, Default)]
pub(super) struct OtherKinds(Mutex<Vec<(CallKind, Circuit)>>);

impl OtherKinds {
    /// Availability for a call of this kind, by its own circuit.
    pub(super) fn standing(
        &self,
        kind: CallKind,
        caller: Caller,
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
    pub(super) fn begin(&self, kind: CallKind, account: u64, now: Instant) -> Probe {
        self.with(kind, |circuit| circuit.begin(account, now)).unwrap_or_default()
    }

    /// End a probe without a result.
    pub(super) fn abandon(&self, kind: CallKind, account: u64, probe: Probe, now: Instant) {
        self.with(kind, |circuit| circuit.abandon(account, probe, now));
    }

    /// Record the verdict on a call. Returns the transition of its kind's circuit.
    pub(super) fn report(
        &self,
        kind: CallKind,
        caller: Caller,
        verdict: Verdict,
        now: Instant,
        rules: &CircuitRules,
    ) -> Option<Change> {
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

    #[test]
    fn a_channel_without_other_kinds_keeps_none() {
        let (others, now) = (OtherKinds::default(), Instant::now());
        let caller = Caller { account: 1, tokens: 1 };
        let rules = CircuitRules {
            failures: 3,
            failure_percent: 50,
            open: std::time::Duration::from_secs(1),
            open_max: std::time::Duration::from_secs(1),
            slow_start: std::time::Duration::from_secs(1),
        };
        assert!(!others.begin(CallKind::TokenCount, 1, now).is_any());
        others.standing(CallKind::TokenCount, caller, now, &rules);
        assert_eq!(others.0.lock().capacity(), 0);
        for account in 0..1000 {
            let caller = Caller { account, tokens: 1 };
            for kind in [CallKind::TokenCount, CallKind::Compact] {
                others.report(kind, caller, Verdict::Bad, now, &rules);
            }
        }
        assert_eq!(others.0.lock().len(), 2, "one for each kind");
    }
}
