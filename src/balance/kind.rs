//! Kinds of calls: endpoints of a provider that have limits, permissions and failures of their own.

use std::time::Instant;

use parking_lot::Mutex;

use super::circuit::{Caller, Change, Circuit, CircuitStanding, Probe, Verdict};
use crate::config::snapshot::{CircuitRules, Model};
use crate::words::words;

words! {
    /// A kind of call. What one kind comes to says nothing of another one at the same target. The pipeline
    /// derives it from the operation.
    #[derive(PartialOrd, Ord)]
    CallKind {
        /// Chat, messages, responses and generated content, in every dialect: a request that is translated
        /// reaches the endpoint of another operation.
        Generation = "generation",
        /// Vectors for texts and pictures.
        Embeddings = "embeddings",
        /// Documents in the order of a query.
        Rerank = "rerank",
        /// Classification of harmful content.
        Moderations = "moderations",
        /// Pictures that are made from texts.
        ImageGeneration = "image_generation",
        /// Pictures from pictures and texts.
        ImageEdit = "image_edit",
        /// Tasks that make videos.
        Video = "video",
        /// Audio that is made from texts.
        Speech = "speech",
        /// Texts that are made from audio.
        Transcription = "transcription",
        /// English texts from audio.
        AudioTranslation = "audio_translation",
        /// Summaries of conversations for agents.
        Compact = "compact",
        /// Counts of tokens in every dialect, which are free.
        TokenCount = "token_count",
    }
}

impl CallKind {
    /// Whether its calls cost nothing, so that accounts without money can make them.
    #[must_use]
    pub fn is_free(self) -> bool {
        self == Self::TokenCount
    }

    /// The kind that a model is there for: its calls speak for the target. Of several, the first in the
    /// order of the kinds.
    pub(super) fn main_of(model: &Model) -> Self {
        let kinds = model.operations.iter().map(|operation| Self::from(*operation));
        kinds.min().unwrap_or(Self::Generation)
    }
}

/// The circuits of a channel's other kinds: at most one for each [`CallKind`], made by its first call that
/// is reported, so that a channel without such calls has none.
#[derive(Debug, Default)]
pub(super) struct OtherKinds(Mutex<Vec<(CallKind, Circuit)>>);

impl OtherKinds {
    /// Whether a call of this kind is worth making, as far as its own kind says.
    pub(super) fn standing(
        &self,
        kind: CallKind,
        caller: Caller,
        now: Instant,
        rules: &CircuitRules,
    ) -> CircuitStanding {
        let kinds = self.0.lock();
        let known = kinds.iter().find(|(known, _)| *known == kind);
        known.map_or(CircuitStanding::Ready { share: 1.0 }, |(_, circuit)| {
            circuit.standing(caller, now, rules)
        })
    }

    /// A call begins. Returns what it finds out.
    pub(super) fn begin(&self, kind: CallKind, account: u64, now: Instant) -> Probe {
        self.with(kind, |circuit| circuit.begin(account, now)).unwrap_or_default()
    }

    /// A call that was to find out ended without an answer.
    pub(super) fn abandon(&self, kind: CallKind, account: u64, probe: Probe, now: Instant) {
        self.with(kind, |circuit| circuit.abandon(account, probe, now));
    }

    /// Notes the verdict on a call. Returns what that changed for its kind.
    pub(super) fn report(
        &self,
        kind: CallKind,
        caller: Caller,
        verdict: Verdict,
        now: Instant,
        rules: &CircuitRules,
    ) -> Option<Change> {
        let mut kinds = self.0.lock();
        let at = kinds.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
            kinds.push((kind, Circuit::default()));
            kinds.len() - 1
        });
        let (_, circuit) = kinds.get_mut(at)?;
        circuit.report(caller, verdict, now, rules)
    }

    /// The kinds that get no calls now, of anybody or of those that called last.
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
        kinds.iter_mut().find(|(known, _)| *known == kind).map(|(_, circuit)| act(circuit))
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
