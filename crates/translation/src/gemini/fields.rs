//! Handling of the fields of Google's requests that no other dialect can express.
//!
//! Sources: Google's reference and SDKs, and the requests of gemini-cli.

use crate::fate::{FateTable, FieldFate};

const STORED: FieldFate = FieldFate::Refused("it is stored by the provider of another model");
const UNKNOWN: FieldFate =
    FieldFate::Refused("the gateway does not know it, and it may change the price or the meaning");

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        ("cachedContent", STORED),
        (
            "serviceTier",
            FieldFate::Usual(
                &["\"standard\"", "\"SERVICE_TIER_STANDARD\"", "\"SERVICE_TIER_UNSPECIFIED\""],
                &FieldFate::Refused("a tier has a price of that provider's"),
            ),
        ),
        // The path names the model.
        ("model", FieldFate::Silent),
        ("safetySettings", FieldFate::LeftOut),
        ("labels", FieldFate::LeftOut),
        ("store", FieldFate::LeftOut),
        ("modelArmorConfig", FieldFate::LeftOut),
    ],
    others: UNKNOWN,
};

/// Fields of `systemInstruction` and of turns, beside their parts. Google does not look at the role of
/// an instruction; what else stands there repeats an answer.
pub(super) const CONTENT: FateTable =
    FateTable { rows: &[("role", FieldFate::Silent)], others: FieldFate::LeftOut };

/// Fields of parts: what a provider ran, and hints on how media are read.
pub(super) const PART: FateTable = FateTable {
    rows: &[
        ("executableCode", FieldFate::LeftOut),
        ("codeExecutionResult", FieldFate::LeftOut),
        ("toolCall", FieldFate::LeftOut),
        ("toolResponse", FieldFate::LeftOut),
        ("videoMetadata", FieldFate::LeftOut),
        ("mediaResolution", FieldFate::LeftOut),
        ("partMetadata", FieldFate::LeftOut),
        ("groundingMetadata", FieldFate::LeftOut),
        ("citationMetadata", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};
/// Fields of calls, results and media.
pub(super) const INSIDE: FateTable = FateTable {
    rows: &[
        (
            "willContinue",
            FieldFate::Usual(&["false"], &FieldFate::Refused("a result comes once, and whole")),
        ),
        ("scheduling", FieldFate::LeftOut),
        ("partialArgs", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};

/// Fields of a function's declaration.
pub(super) const DECLARATION: FateTable = FateTable {
    rows: &[
        ("response", FieldFate::LeftOut),
        ("responseJsonSchema", FieldFate::LeftOut),
        (
            "behavior",
            FieldFate::Usual(
                &["\"BLOCKING\"", "\"UNSPECIFIED\""],
                &FieldFate::Refused("the answer waits for each call"),
            ),
        ),
    ],
    others: FieldFate::LeftOut,
};
/// Fields of `toolConfig`: where the tools of the provider's search.
pub(super) const TOOL_CONFIG: FateTable =
    FateTable { rows: &[("retrievalConfig", FieldFate::LeftOut)], others: FieldFate::LeftOut };
/// Uncarried fields of `functionCallingConfig`, in the tool settings.
pub(super) const CALLING: FateTable =
    FateTable { rows: &[("streamFunctionCallArguments", FieldFate::LeftOut)], others: UNKNOWN };

/// Uncarried fields of `generationConfig`, such as other outputs than text.
pub(super) const GENERATION: FateTable = FateTable {
    rows: &[
        (
            "candidateCount",
            FieldFate::Usual(
                &["1"],
                &FieldFate::Refused("the model gives one answer to a request"),
            ),
        ),
        (
            "responseLogprobs",
            FieldFate::Usual(
                &["false"],
                &FieldFate::Refused("no probabilities come with the answer"),
            ),
        ),
        ("speechConfig", FieldFate::Refused("the answer is text only")),
        ("logprobs", FieldFate::LeftOut),
        ("mediaResolution", FieldFate::LeftOut),
        ("imageConfig", FieldFate::LeftOut),
        ("audioTimestamp", FieldFate::Usual(&["false"], &FieldFate::LeftOut)),
        ("enableEnhancedCivicAnswers", FieldFate::Usual(&["false"], &FieldFate::LeftOut)),
        ("enableAffectiveDialog", FieldFate::Usual(&["false"], &FieldFate::LeftOut)),
        ("routingConfig", FieldFate::LeftOut),
        ("modelSelectionConfig", FieldFate::LeftOut),
        ("modelConfig", FieldFate::LeftOut),
    ],
    others: UNKNOWN,
};
/// Uncarried fields of `thinkingConfig`: all of them are hints.
pub(super) const THINKING: FateTable = FateTable { rows: &[], others: FieldFate::LeftOut };
