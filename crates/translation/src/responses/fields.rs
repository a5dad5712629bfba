//! Handling of the fields and items of a response that no other dialect can express.
//!
//! Sources: OpenAI's reference and SDKs, and the requests of Codex.

use crate::field_rules::{FieldRule, FieldRules};

/// Values that select the default tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"default\"", "\"standard\""];
const STORED: FieldRule = FieldRule::Refused("it is stored by the provider of another model");

/// Fields of the request.
pub(super) const REQUEST: FieldRules = FieldRules {
    rows: &[
        ("previous_response_id", STORED),
        ("conversation", STORED),
        ("prompt", STORED),
        (
            "background",
            FieldRule::Usual(&["false"], &FieldRule::Refused("an answer comes at once")),
        ),
        (
            "service_tier",
            FieldRule::Usual(
                USUAL_TIER,
                &FieldRule::Refused("a tier has a price of that provider's"),
            ),
        ),
        ("moderation", FieldRule::Refused("the provider of another model has its own moderation")),
        // Nothing is stored here, and thoughts come encrypted whether they are asked for or not.
        ("store", FieldRule::Silent),
        ("include", FieldRule::Silent),
        ("stream_options", FieldRule::Silent),
        ("generate", FieldRule::Usual(&["true"], &FieldRule::Refused("an answer is always made"))),
        // Hints.
        ("metadata", FieldRule::LeftOut),
        ("truncation", FieldRule::LeftOut),
        ("top_logprobs", FieldRule::LeftOut),
        ("max_tool_calls", FieldRule::LeftOut),
        ("client_metadata", FieldRule::LeftOut),
        ("prompt_cache_retention", FieldRule::LeftOut),
        ("prompt_cache_options", FieldRule::LeftOut),
        ("image", FieldRule::LeftOut),
        ("access_programs", FieldRule::LeftOut),
        ("context_management", FieldRule::LeftOut),
        ("provider_options", FieldRule::LeftOut),
        ("providerOptions", FieldRule::LeftOut),
        ("extra_body", FieldRule::LeftOut),
    ],
    others: FieldRule::Refused(
        "the gateway does not know it, and it may change the price or the meaning",
    ),
};

/// Fields of `reasoning`: how thoughts are shown, which other dialects do as they like.
pub(super) const REASONING: FieldRules = FieldRules {
    rows: &[
        ("summary", FieldRule::Silent),
        ("generate_summary", FieldRule::Silent),
        ("context", FieldRule::Silent),
    ],
    others: FieldRule::LeftOut,
};

/// Types of items that are dropped. Items of completed tool runs are dropped since the model's text contains
/// their outcome.
pub(super) const ITEMS: FieldRules = FieldRules {
    rows: &[
        ("web_search_call", FieldRule::LeftOut),
        ("file_search_call", FieldRule::LeftOut),
        ("code_interpreter_call", FieldRule::LeftOut),
        ("image_generation_call", FieldRule::LeftOut),
        ("mcp_call", FieldRule::LeftOut),
        ("mcp_list_tools", FieldRule::LeftOut),
        ("mcp_approval_request", FieldRule::LeftOut),
        ("mcp_approval_response", FieldRule::LeftOut),
        ("program", FieldRule::LeftOut),
        ("program_output", FieldRule::LeftOut),
        // Codex' snapshots of a repository: they are no part of a prompt.
        ("ghost_snapshot", FieldRule::Silent),
        ("compaction", COMPACTED),
        ("compaction_summary", COMPACTED),
        ("context_compaction", COMPACTED),
        (
            "compaction_trigger",
            FieldRule::Refused(
                "asks the provider of another model to sum up the conversation, which this one cannot",
            ),
        ),
        (
            "item_reference",
            FieldRule::Refused("stands for an item that the provider of another model stores"),
        ),
    ],
    others: FieldRule::Refused("is not known to the gateway"),
};
const COMPACTED: FieldRule = FieldRule::Refused(
    "holds a summary that only the provider that wrote it can read, and the conversation with it; \
     begin a new one, or go on with a model of that provider",
);

/// True if an unlisted item type belongs to an answer and needs nothing more: a call that a provider ran, or
/// its result.
pub(super) fn is_done(kind: &str) -> bool {
    kind.ends_with("_call") || kind.ends_with("_call_output")
}

/// Fields of items other than their content: they repeat an answer.
pub(super) const ITEM: FieldRules = FieldRules {
    rows: &[
        ("type", FieldRule::Silent),
        ("id", FieldRule::Silent),
        ("status", FieldRule::Silent),
        ("phase", FieldRule::Silent),
        ("role", FieldRule::Silent),
        ("execution", FieldRule::Silent),
        ("created_by", FieldRule::Silent),
        ("internal_chat_message_metadata_passthrough", FieldRule::Silent),
        ("max_output_length", FieldRule::Silent),
        ("caller", FieldRule::LeftOut),
        ("environment", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};

/// Other fields of a text.
pub(super) const TEXT: FieldRules = FieldRules {
    rows: &[
        ("annotations", FieldRule::LeftOut),
        ("logprobs", FieldRule::LeftOut),
        ("prompt_cache_breakpoint", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};
/// Fields beside a picture, a recording or a file.
pub(super) const MEDIA: FieldRules = FieldRules {
    rows: &[
        ("prompt_cache_breakpoint", FieldRule::LeftOut),
        ("file_id", STORED),
        ("detail", FieldRule::LeftOut),
        ("filename", FieldRule::LeftOut),
    ],
    others: FieldRule::Refused("the gateway does not know it, and it may change the price"),
};
/// Types of contents that are dropped.
pub(super) const CONTENTS: FieldRules = FieldRules {
    rows: &[
        ("encrypted_content", FieldRule::LeftOut),
        ("reasoning_text", FieldRule::LeftOut),
        ("summary_text", FieldRule::LeftOut),
    ],
    others: FieldRule::Refused("is not known to the gateway"),
};
