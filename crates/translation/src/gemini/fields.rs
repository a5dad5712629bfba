//! Handling of the fields of Google's requests that no other dialect can express.
//!
//! Sources: Google's reference and SDKs, and the requests of gemini-cli.

use crate::field_rules::{FieldRule, FieldRules};

const STORED: FieldRule = FieldRule::Refused("it is stored by the provider of another model");
const UNKNOWN: FieldRule =
    FieldRule::Refused("the gateway does not know it, and it may change the price or the meaning");

/// Fields of the request.
pub(super) const REQUEST: FieldRules = FieldRules {
    rows: &[
        ("cachedContent", STORED),
        (
            "serviceTier",
            FieldRule::Usual(
                &["\"standard\"", "\"SERVICE_TIER_STANDARD\"", "\"SERVICE_TIER_UNSPECIFIED\""],
                &FieldRule::Refused("a tier has a price of that provider's"),
            ),
        ),
        // The path names the model.
        ("model", FieldRule::Silent),
        ("safetySettings", FieldRule::LeftOut),
        ("labels", FieldRule::LeftOut),
        ("store", FieldRule::LeftOut),
        ("modelArmorConfig", FieldRule::LeftOut),
    ],
    others: UNKNOWN,
};

/// Fields of `systemInstruction` and of turns other than their parts. Google ignores the role of an
/// instruction; other fields repeat an answer.
pub(super) const CONTENT: FieldRules =
    FieldRules { rows: &[("role", FieldRule::Silent)], others: FieldRule::LeftOut };

/// Rules for untranslated fields of `parts`: all are dropped and named in `x-tollgate-left-out`. They record
/// what the provider ran, or are hints on media.
pub(super) const PART: FieldRules = FieldRules {
    rows: &[
        ("executableCode", FieldRule::LeftOut),
        ("codeExecutionResult", FieldRule::LeftOut),
        ("toolCall", FieldRule::LeftOut),
        ("toolResponse", FieldRule::LeftOut),
        ("videoMetadata", FieldRule::LeftOut),
        ("mediaResolution", FieldRule::LeftOut),
        ("partMetadata", FieldRule::LeftOut),
        ("groundingMetadata", FieldRule::LeftOut),
        ("citationMetadata", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};
/// Fields of calls, results and media.
pub(super) const INSIDE: FieldRules = FieldRules {
    rows: &[
        (
            "willContinue",
            FieldRule::Usual(&["false"], &FieldRule::Refused("a result comes once, and whole")),
        ),
        ("scheduling", FieldRule::LeftOut),
        ("partialArgs", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};

/// Fields of a function's declaration.
pub(super) const DECLARATION: FieldRules = FieldRules {
    rows: &[
        ("response", FieldRule::LeftOut),
        ("responseJsonSchema", FieldRule::LeftOut),
        (
            "behavior",
            FieldRule::Usual(
                &["\"BLOCKING\"", "\"UNSPECIFIED\""],
                &FieldRule::Refused("the answer waits for each call"),
            ),
        ),
    ],
    others: FieldRule::LeftOut,
};
/// Fields of `toolConfig`: where the tools of the provider's search.
pub(super) const TOOL_CONFIG: FieldRules =
    FieldRules { rows: &[("retrievalConfig", FieldRule::LeftOut)], others: FieldRule::LeftOut };
/// Uncarried fields of `functionCallingConfig`, in the tool settings.
pub(super) const CALLING: FieldRules =
    FieldRules { rows: &[("streamFunctionCallArguments", FieldRule::LeftOut)], others: UNKNOWN };

/// Uncarried fields of `generationConfig`, such as other outputs than text.
pub(super) const GENERATION: FieldRules = FieldRules {
    rows: &[
        (
            "candidateCount",
            FieldRule::Usual(
                &["1"],
                &FieldRule::Refused("the model gives one answer to a request"),
            ),
        ),
        (
            "responseLogprobs",
            FieldRule::Usual(
                &["false"],
                &FieldRule::Refused("no probabilities come with the answer"),
            ),
        ),
        ("speechConfig", FieldRule::Refused("the answer is text only")),
        ("logprobs", FieldRule::LeftOut),
        ("mediaResolution", FieldRule::LeftOut),
        ("imageConfig", FieldRule::LeftOut),
        ("audioTimestamp", FieldRule::Usual(&["false"], &FieldRule::LeftOut)),
        ("enableEnhancedCivicAnswers", FieldRule::Usual(&["false"], &FieldRule::LeftOut)),
        ("enableAffectiveDialog", FieldRule::Usual(&["false"], &FieldRule::LeftOut)),
        ("routingConfig", FieldRule::LeftOut),
        ("modelSelectionConfig", FieldRule::LeftOut),
        ("modelConfig", FieldRule::LeftOut),
    ],
    others: UNKNOWN,
};
/// Uncarried fields of `thinkingConfig`: all of them are hints.
pub(super) const THINKING: FieldRules = FieldRules { rows: &[], others: FieldRule::LeftOut };
