//! What becomes of the fields and blocks of a message that no other dialect has words for.
//!
//! Sources: Anthropic's reference and SDKs, and the requests of Claude Code. `anthropic-version` changes
//! nothing here: what later versions add stands in the body, and has its row.

use crate::fate::{Fate, FateTable};

/// Values by which a customer asks for no tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"standard_only\"", "\"default\"", "\"standard\""];
const STORED: Fate = Fate::Refused("it is stored by the provider of another model");
const UNKNOWN: Fate =
    Fate::Refused("the gateway does not know it, and it may change the price or the meaning");

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        (
            "service_tier",
            Fate::Usual(USUAL_TIER, &Fate::Refused("a tier has a price of that provider's")),
        ),
        (
            "speed",
            Fate::Usual(&["\"standard\""], &Fate::Refused("the speed has a price of its own")),
        ),
        (
            "inference_geo",
            Fate::Usual(&["\"global\""], &Fate::Refused("the place has a price of its own")),
        ),
        ("container", STORED),
        // Hints.
        ("context_management", Fate::LeftOut),
        ("diagnostics", Fate::LeftOut),
        ("user_profile_id", Fate::LeftOut),
        ("betas", Fate::LeftOut),
        ("anthropic_beta", Fate::LeftOut),
        ("anthropic_version", Fate::Silent),
        // Other models and tools that the provider would only be ready to use.
        ("fallbacks", Fate::LeftOut),
        ("fallback_credit_token", Fate::LeftOut),
        ("mcp_servers", Fate::LeftOut),
        // Claude Code reviews calls itself where an answer has no `safeguard_results`.
        ("safeguards", Fate::LeftOut),
        (
            "thread",
            Fate::Usual(
                &["{\"type\":\"create\"}"],
                &Fate::Refused("the provider of another model keeps the conversation"),
            ),
        ),
    ],
    others: UNKNOWN,
};

/// Fields of `thinking`.
pub(super) const THINKING: FateTable =
    FateTable { rows: &[("display", Fate::Silent)], others: Fate::LeftOut };
/// Fields of `output_config`: hints on how much is put out.
pub(super) const OUTPUT_CONFIG: FateTable =
    FateTable { rows: &[("task_budget", Fate::LeftOut)], others: UNKNOWN };
/// Fields of `metadata`.
pub(super) const METADATA: FateTable = FateTable { rows: &[], others: Fate::LeftOut };
/// Fields of `tool_choice`.
pub(super) const TOOL_CHOICE: FateTable = FateTable { rows: &[], others: UNKNOWN };

/// Fields of messages, beside what they say. Some programs send back all of an answer.
pub(super) const MESSAGE: FateTable = FateTable {
    rows: &[
        ("id", Fate::Silent),
        ("type", Fate::Silent),
        ("model", Fate::Silent),
        ("stop_reason", Fate::Silent),
        ("stop_sequence", Fate::Silent),
        ("stop_details", Fate::Silent),
        ("usage", Fate::Silent),
        ("container", Fate::Silent),
        ("output_config", Fate::LeftOut),
    ],
    others: Fate::LeftOut,
};

/// Types of blocks that are not carried.
pub(super) const BLOCKS: FateTable = FateTable {
    rows: &[
        // What a provider ran, and what came of it.
        ("server_tool_use", Fate::LeftOut),
        ("mcp_tool_use", Fate::LeftOut),
        ("web_search_tool_result", Fate::LeftOut),
        ("web_fetch_tool_result", Fate::LeftOut),
        ("code_execution_tool_result", Fate::LeftOut),
        ("bash_code_execution_tool_result", Fate::LeftOut),
        ("text_editor_code_execution_tool_result", Fate::LeftOut),
        ("tool_search_tool_result", Fate::LeftOut),
        ("advisor_tool_result", Fate::LeftOut),
        ("mcp_tool_result", Fate::LeftOut),
        ("container_upload", Fate::LeftOut),
        // Where another model went on: it is no part of the prompt.
        ("fallback", Fate::Silent),
        (
            "compaction",
            Fate::Refused(
                "holds a summary that only the provider that wrote it can read, and the conversation \
                 with it; begin a new one, or go on with a model of that provider",
            ),
        ),
    ],
    others: Fate::Refused("is not known to the gateway"),
};

/// Whether a block of a type that has no row is of an answer, and done: a call that a provider ran, or
/// what came of it.
pub(super) fn is_done(kind: &str) -> bool {
    kind.ends_with("_tool_result") || kind.ends_with("_tool_use")
}

/// Fields of blocks of an answer, and of what customers say in words.
pub(super) const BLOCK: FateTable = FateTable {
    rows: &[
        ("type", Fate::Silent),
        ("id", Fate::Silent),
        ("citations", Fate::LeftOut),
        ("caller", Fate::LeftOut),
    ],
    others: Fate::LeftOut,
};

/// Fields of pictures and documents.
pub(super) const MEDIA: FateTable = FateTable {
    rows: &[
        (
            "citations",
            Fate::Usual(
                &["{\"enabled\":false}"],
                &Fate::Refused("only the provider of another model cites documents"),
            ),
        ),
        ("file_id", STORED),
    ],
    others: UNKNOWN,
};

/// Fields of a result of a search that the customer ran.
pub(super) const SEARCH_RESULT: FateTable =
    FateTable { rows: &[("citations", Fate::LeftOut)], others: Fate::LeftOut };
