//! Call kind of each operation, for the circuits of targets.

use crate::CallKind;
use tollgate_protocols::Operation;

impl From<Operation> for CallKind {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Chat
            | Operation::Messages
            | Operation::Responses
            | Operation::GenerateContent => Self::Generation,
            Operation::Embeddings => Self::Embeddings,
            Operation::Rerank => Self::Rerank,
            Operation::Moderations => Self::Moderations,
            Operation::ImageGeneration => Self::ImageGeneration,
            Operation::ImageEdit => Self::ImageEdit,
            Operation::Video => Self::Video,
            Operation::Speech => Self::Speech,
            Operation::Transcription => Self::Transcription,
            Operation::AudioTranslation => Self::AudioTranslation,
            Operation::Compact => Self::Compact,
            Operation::CountTokens | Operation::CountContentTokens | Operation::InputTokens => {
                Self::TokenCount
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_costs_nothing_is_a_free_kind() {
        let unnamed = [
            Operation::CountTokens,
            Operation::CountContentTokens,
            Operation::InputTokens,
            Operation::Compact,
        ];
        for operation in Operation::ALL.into_iter().chain(unnamed) {
            let kind = CallKind::from(operation);
            assert_eq!(kind.is_free(), !operation.is_billed(), "{operation:?}");
        }
    }
}
