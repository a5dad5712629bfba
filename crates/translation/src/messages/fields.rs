//! Handling of the fields and blocks of a message that no other dialect can express.
//!
//! Sources: Anthropic's reference and SDKs, and the requests of Claude Code. `anthropic-version` changes
//! nothing here: what later versions add stands in the body, and has its row.

use crate::field_rules::{FieldRule, FieldRules};

/// Values that select the default tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"standard_only\"", "\"default\"", "\"standard\""];
const STORED: FieldRule = FieldRule::Refused("it is stored by the provider of another model");
const UNKNOWN: FieldRule =
    FieldRule::Refused("the gateway does not know it, and it may change the price or the meaning");

/// Fields of the request.
pub(super) const REQUEST: FieldRules = FieldRules {
    rows: &[
        (
            "service_tier",
            FieldRule::Usual(
                USUAL_TIER,
                &FieldRule::Refused("a tier has a price of that provider's"),
            ),
        ),
        (
            "speed",
            FieldRule::Usual(
                &["\"standard\""],
                &FieldRule::Refused("the speed has a price of its own"),
            ),
        ),
        (
            "inference_geo",
            FieldRule::Usual(
                &["\"global\""],
                &FieldRule::Refused("the place has a price of its own"),
            ),
        ),
        ("container", STORED),
        // Hints.
        ("context_management", FieldRule::LeftOut),
        ("diagnostics", FieldRule::LeftOut),
        ("user_profile_id", FieldRule::LeftOut),
        ("betas", FieldRule::LeftOut),
        ("anthropic_beta", FieldRule::LeftOut),
        ("anthropic_version", FieldRule::Silent),
        // Other models and tools that the provider would only be ready to use.
        ("fallbacks", FieldRule::LeftOut),
        ("fallback_credit_token", FieldRule::LeftOut),
        ("mcp_servers", FieldRule::LeftOut),
        // Claude Code reviews calls itself where an answer has no `safeguard_results`.
        ("safeguards", FieldRule::LeftOut),
        (
            "thread",
            FieldRule::Usual(
                &["{\"type\":\"create\"}"],
                &FieldRule::Refused("the provider of another model keeps the conversation"),
            ),
        ),
    ],
    others: UNKNOWN,
};

/// Uncarried fields of `thinking`: all of them are hints.
pub(super) const THINKING: FieldRules =
    FieldRules { rows: &[("display", FieldRule::Silent)], others: FieldRule::LeftOut };
/// Fields of `output_config`: hints on how much is put out.
pub(super) const OUTPUT_CONFIG: FieldRules =
    FieldRules { rows: &[("task_budget", FieldRule::LeftOut)], others: UNKNOWN };
/// Uncarried fields of `metadata`: none changes the answer.
pub(super) const METADATA: FieldRules = FieldRules { rows: &[], others: FieldRule::LeftOut };
/// Uncarried fields of `tool_choice`: an unknown one may change the calls.
pub(super) const TOOL_CHOICE: FieldRules = FieldRules { rows: &[], others: UNKNOWN };

/// Fields of messages other than their content. Some programs send whole answers back.
pub(super) const MESSAGE: FieldRules = FieldRules {
    rows: &[
        ("id", FieldRule::Silent),
        ("type", FieldRule::Silent),
        ("model", FieldRule::Silent),
        ("stop_reason", FieldRule::Silent),
        ("stop_sequence", FieldRule::Silent),
        ("stop_details", FieldRule::Silent),
        ("usage", FieldRule::Silent),
        ("container", FieldRule::Silent),
        ("output_config", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};

/// Types of blocks that are dropped.
pub(super) const BLOCKS: FieldRules = FieldRules {
    rows: &[
        // What a provider ran, and what came of it.
        ("server_tool_use", FieldRule::LeftOut),
        ("mcp_tool_use", FieldRule::LeftOut),
        ("web_search_tool_result", FieldRule::LeftOut),
        ("web_fetch_tool_result", FieldRule::LeftOut),
        ("code_execution_tool_result", FieldRule::LeftOut),
        ("bash_code_execution_tool_result", FieldRule::LeftOut),
        ("text_editor_code_execution_tool_result", FieldRule::LeftOut),
        ("tool_search_tool_result", FieldRule::LeftOut),
        ("advisor_tool_result", FieldRule::LeftOut),
        ("mcp_tool_result", FieldRule::LeftOut),
        ("container_upload", FieldRule::LeftOut),
        // Where another model went on: it is no part of the prompt.
        ("fallback", FieldRule::Silent),
        (
            "compaction",
            FieldRule::Refused(
                "holds a summary that only the provider that wrote it can read, and the conversation \
                 with it; begin a new one, or go on with a model of that provider",
            ),
        ),
    ],
    others: FieldRule::Refused("is not known to the gateway"),
};

/// True if an unlisted block type belongs to an answer and needs nothing more: a call that a provider ran, or
/// its result.
pub(super) fn is_done(kind: &str) -> bool {
    kind.ends_with("_tool_result") || kind.ends_with("_tool_use")
}

/// Fields of blocks of an answer, and of what customers say in words.
pub(super) const BLOCK: FieldRules = FieldRules {
    rows: &[
        ("type", FieldRule::Silent),
        ("id", FieldRule::Silent),
        ("citations", FieldRule::LeftOut),
        ("caller", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};

/// Fields of pictures and documents.
pub(super) const MEDIA: FieldRules = FieldRules {
    rows: &[
        (
            "citations",
            FieldRule::Usual(
                &["{\"enabled\":false}"],
                &FieldRule::Refused("only the provider of another model cites documents"),
            ),
        ),
        ("file_id", STORED),
    ],
    others: UNKNOWN,
};

/// Fields of a result of a search that the customer ran.
pub(super) const SEARCH_RESULT: FieldRules =
    FieldRules { rows: &[("citations", FieldRule::LeftOut)], others: FieldRule::LeftOut };
