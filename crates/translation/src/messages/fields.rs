//! Handling of the fields and blocks of a message that no other dialect can express.
//!
//! Sources: Anthropic's reference and SDKs, and the requests of Claude Code. `anthropic-version` changes
//! nothing here: what later versions add stands in the body, and has its row.

use crate::fate::{FateTable, FieldFate};

/// Values by which a customer asks for no tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"standard_only\"", "\"default\"", "\"standard\""];
const STORED: FieldFate = FieldFate::Refused("it is stored by the provider of another model");
const UNKNOWN: FieldFate =
    FieldFate::Refused("the gateway does not know it, and it may change the price or the meaning");

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        (
            "service_tier",
            FieldFate::Usual(
                USUAL_TIER,
                &FieldFate::Refused("a tier has a price of that provider's"),
            ),
        ),
        (
            "speed",
            FieldFate::Usual(
                &["\"standard\""],
                &FieldFate::Refused("the speed has a price of its own"),
            ),
        ),
        (
            "inference_geo",
            FieldFate::Usual(
                &["\"global\""],
                &FieldFate::Refused("the place has a price of its own"),
            ),
        ),
        ("container", STORED),
        // Hints.
        ("context_management", FieldFate::LeftOut),
        ("diagnostics", FieldFate::LeftOut),
        ("user_profile_id", FieldFate::LeftOut),
        ("betas", FieldFate::LeftOut),
        ("anthropic_beta", FieldFate::LeftOut),
        ("anthropic_version", FieldFate::Silent),
        // Other models and tools that the provider would only be ready to use.
        ("fallbacks", FieldFate::LeftOut),
        ("fallback_credit_token", FieldFate::LeftOut),
        ("mcp_servers", FieldFate::LeftOut),
        // Claude Code reviews calls itself where an answer has no `safeguard_results`.
        ("safeguards", FieldFate::LeftOut),
        (
            "thread",
            FieldFate::Usual(
                &["{\"type\":\"create\"}"],
                &FieldFate::Refused("the provider of another model keeps the conversation"),
            ),
        ),
    ],
    others: UNKNOWN,
};

/// Uncarried fields of `thinking`: all of them are hints.
pub(super) const THINKING: FateTable =
    FateTable { rows: &[("display", FieldFate::Silent)], others: FieldFate::LeftOut };
/// Fields of `output_config`: hints on how much is put out.
pub(super) const OUTPUT_CONFIG: FateTable =
    FateTable { rows: &[("task_budget", FieldFate::LeftOut)], others: UNKNOWN };
/// Uncarried fields of `metadata`: none changes the answer.
pub(super) const METADATA: FateTable = FateTable { rows: &[], others: FieldFate::LeftOut };
/// Uncarried fields of `tool_choice`: an unknown one may change the calls.
pub(super) const TOOL_CHOICE: FateTable = FateTable { rows: &[], others: UNKNOWN };

/// Fields of messages, beside what they say. Some programs send back all of an answer.
pub(super) const MESSAGE: FateTable = FateTable {
    rows: &[
        ("id", FieldFate::Silent),
        ("type", FieldFate::Silent),
        ("model", FieldFate::Silent),
        ("stop_reason", FieldFate::Silent),
        ("stop_sequence", FieldFate::Silent),
        ("stop_details", FieldFate::Silent),
        ("usage", FieldFate::Silent),
        ("container", FieldFate::Silent),
        ("output_config", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};

/// Types of blocks that are not carried.
pub(super) const BLOCKS: FateTable = FateTable {
    rows: &[
        // What a provider ran, and what came of it.
        ("server_tool_use", FieldFate::LeftOut),
        ("mcp_tool_use", FieldFate::LeftOut),
        ("web_search_tool_result", FieldFate::LeftOut),
        ("web_fetch_tool_result", FieldFate::LeftOut),
        ("code_execution_tool_result", FieldFate::LeftOut),
        ("bash_code_execution_tool_result", FieldFate::LeftOut),
        ("text_editor_code_execution_tool_result", FieldFate::LeftOut),
        ("tool_search_tool_result", FieldFate::LeftOut),
        ("advisor_tool_result", FieldFate::LeftOut),
        ("mcp_tool_result", FieldFate::LeftOut),
        ("container_upload", FieldFate::LeftOut),
        // Where another model went on: it is no part of the prompt.
        ("fallback", FieldFate::Silent),
        (
            "compaction",
            FieldFate::Refused(
                "holds a summary that only the provider that wrote it can read, and the conversation \
                 with it; begin a new one, or go on with a model of that provider",
            ),
        ),
    ],
    others: FieldFate::Refused("is not known to the gateway"),
};

/// True if an unlisted block type belongs to an answer and needs nothing more: a call that a provider ran, or
/// its result.
pub(super) fn is_done(kind: &str) -> bool {
    kind.ends_with("_tool_result") || kind.ends_with("_tool_use")
}

/// Fields of blocks of an answer, and of what customers say in words.
pub(super) const BLOCK: FateTable = FateTable {
    rows: &[
        ("type", FieldFate::Silent),
        ("id", FieldFate::Silent),
        ("citations", FieldFate::LeftOut),
        ("caller", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};

/// Fields of pictures and documents.
pub(super) const MEDIA: FateTable = FateTable {
    rows: &[
        (
            "citations",
            FieldFate::Usual(
                &["{\"enabled\":false}"],
                &FieldFate::Refused("only the provider of another model cites documents"),
            ),
        ),
        ("file_id", STORED),
    ],
    others: UNKNOWN,
};

/// Fields of a result of a search that the customer ran.
pub(super) const SEARCH_RESULT: FateTable =
    FateTable { rows: &[("citations", FieldFate::LeftOut)], others: FieldFate::LeftOut };
