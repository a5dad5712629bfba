//! What becomes of the fields of Google's requests that no other dialect has words for.
//!
//! Sources: Google's reference and SDKs, and the requests of gemini-cli.

use crate::fate::{Fate, FateTable};

const STORED: Fate = Fate::Refused("it is stored by the provider of another model");
const UNKNOWN: Fate =
    Fate::Refused("the gateway does not know it, and it may change the price or the meaning");

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        ("cachedContent", STORED),
        (
            "serviceTier",
            Fate::Usual(
                &["\"standard\"", "\"SERVICE_TIER_STANDARD\"", "\"SERVICE_TIER_UNSPECIFIED\""],
                &Fate::Refused("a tier has a price of that provider's"),
            ),
        ),
        // The path names the model.
        ("model", Fate::Silent),
        ("safetySettings", Fate::LeftOut),
        ("labels", Fate::LeftOut),
        ("store", Fate::LeftOut),
        ("modelArmorConfig", Fate::LeftOut),
    ],
    others: UNKNOWN,
};

/// Fields of `systemInstruction` and of turns, beside their parts. Google does not look at the role of
/// an instruction; what else stands there repeats an answer.
pub(super) const CONTENT: FateTable =
    FateTable { rows: &[("role", Fate::Silent)], others: Fate::LeftOut };

/// Fields of parts: what a provider ran, and hints on how media are read.
pub(super) const PART: FateTable = FateTable {
    rows: &[
        ("executableCode", Fate::LeftOut),
        ("codeExecutionResult", Fate::LeftOut),
        ("toolCall", Fate::LeftOut),
        ("toolResponse", Fate::LeftOut),
        ("videoMetadata", Fate::LeftOut),
        ("mediaResolution", Fate::LeftOut),
        ("partMetadata", Fate::LeftOut),
        ("groundingMetadata", Fate::LeftOut),
        ("citationMetadata", Fate::LeftOut),
    ],
    others: Fate::LeftOut,
};
/// Fields of calls, results and media.
pub(super) const INSIDE: FateTable = FateTable {
    rows: &[
        ("willContinue", Fate::Usual(&["false"], &Fate::Refused("a result comes once, and whole"))),
        ("scheduling", Fate::LeftOut),
        ("partialArgs", Fate::LeftOut),
    ],
    others: Fate::LeftOut,
};

/// Fields of a function's declaration.
pub(super) const DECLARATION: FateTable = FateTable {
    rows: &[
        ("response", Fate::LeftOut),
        ("responseJsonSchema", Fate::LeftOut),
        (
            "behavior",
            Fate::Usual(
                &["\"BLOCKING\"", "\"UNSPECIFIED\""],
                &Fate::Refused("the answer waits for each call"),
            ),
        ),
    ],
    others: Fate::LeftOut,
};
/// Fields of `toolConfig`: where the tools of the provider's search.
pub(super) const TOOL_CONFIG: FateTable =
    FateTable { rows: &[("retrievalConfig", Fate::LeftOut)], others: Fate::LeftOut };
/// Fields of `functionCallingConfig`.
pub(super) const CALLING: FateTable =
    FateTable { rows: &[("streamFunctionCallArguments", Fate::LeftOut)], others: UNKNOWN };

/// Fields of `generationConfig`.
pub(super) const GENERATION: FateTable = FateTable {
    rows: &[
        (
            "candidateCount",
            Fate::Usual(&["1"], &Fate::Refused("the model gives one answer to a request")),
        ),
        (
            "responseLogprobs",
            Fate::Usual(&["false"], &Fate::Refused("no probabilities come with the answer")),
        ),
        ("speechConfig", Fate::Refused("the answer is text only")),
        ("logprobs", Fate::LeftOut),
        ("mediaResolution", Fate::LeftOut),
        ("imageConfig", Fate::LeftOut),
        ("audioTimestamp", Fate::Usual(&["false"], &Fate::LeftOut)),
        ("enableEnhancedCivicAnswers", Fate::Usual(&["false"], &Fate::LeftOut)),
        ("enableAffectiveDialog", Fate::Usual(&["false"], &Fate::LeftOut)),
        ("routingConfig", Fate::LeftOut),
        ("modelSelectionConfig", Fate::LeftOut),
        ("modelConfig", Fate::LeftOut),
    ],
    others: UNKNOWN,
};
/// Fields of `thinkingConfig`.
pub(super) const THINKING: FateTable = FateTable { rows: &[], others: Fate::LeftOut };
