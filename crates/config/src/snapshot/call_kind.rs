//! Call kinds: a provider's endpoints with separate limits, permissions and failures.

use super::Model;
use tollgate_protocols::Operation;

/// A kind of upstream endpoint: failures of one kind say nothing about another at the same target. Prompts are
/// one kind in every dialect, because a translated request reaches another operation's endpoint.
///
/// A kind is represented by its first operation, and ordered as operations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKind(Operation);

impl CallKind {
    /// Prompts: the kind of a model that lists no operation.
    pub const GENERATION: Self = Self(Operation::Chat);

    /// True if such calls cost nothing, so that accounts without money can make them.
    #[must_use]
    pub fn is_free(self) -> bool {
        !self.0.is_billed()
    }

    /// Name in logs, metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0.call_kind()
    }
}

impl From<Operation> for CallKind {
    fn from(operation: Operation) -> Self {
        let is_alike = |other: &&Operation| other.call_kind() == operation.call_kind();
        Self(Operation::EVERY.iter().find(is_alike).copied().unwrap_or(operation))
    }
}

impl Model {
    /// The kind that stands for a target of this model: the first of its operations'.
    #[must_use]
    pub fn main_kind(&self) -> CallKind {
        let kinds = self.operations.iter().map(|operation| CallKind::from(*operation));
        kinds.min().unwrap_or(CallKind::GENERATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_costs_nothing_is_a_free_kind() {
        for operation in Operation::EVERY {
            let kind = CallKind::from(*operation);
            assert_eq!(kind.is_free(), !operation.is_billed(), "{operation:?}");
        }
    }

    #[test]
    fn kinds_are_distinguished_as_endpoints_are() {
        let kinds: std::collections::BTreeSet<_> =
            Operation::EVERY.iter().map(|operation| CallKind::from(*operation).as_str()).collect();
        let expected = [
            "audio_translation",
            "compact",
            "embeddings",
            "generation",
            "image_edit",
            "image_generation",
            "moderations",
            "rerank",
            "speech",
            "token_count",
            "transcription",
            "video",
        ];
        assert_eq!(kinds, expected.into());
    }
}
