//! Handling of the fields and items of a response that no other dialect can express.
//!
//! Sources: OpenAI's reference and SDKs, and the requests of Codex.

use crate::fate::{FateTable, FieldFate};

/// Values by which a customer asks for no tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"default\"", "\"standard\""];
const STORED: FieldFate = FieldFate::Refused("it is stored by the provider of another model");

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        ("previous_response_id", STORED),
        ("conversation", STORED),
        ("prompt", STORED),
        (
            "background",
            FieldFate::Usual(&["false"], &FieldFate::Refused("an answer comes at once")),
        ),
        (
            "service_tier",
            FieldFate::Usual(
                USUAL_TIER,
                &FieldFate::Refused("a tier has a price of that provider's"),
            ),
        ),
        ("moderation", FieldFate::Refused("the provider of another model has its own moderation")),
        // Nothing is stored here, and thoughts come encrypted whether they are asked for or not.
        ("store", FieldFate::Silent),
        ("include", FieldFate::Silent),
        ("stream_options", FieldFate::Silent),
        ("generate", FieldFate::Usual(&["true"], &FieldFate::Refused("an answer is always made"))),
        // Hints.
        ("metadata", FieldFate::LeftOut),
        ("truncation", FieldFate::LeftOut),
        ("top_logprobs", FieldFate::LeftOut),
        ("max_tool_calls", FieldFate::LeftOut),
        ("client_metadata", FieldFate::LeftOut),
        ("prompt_cache_retention", FieldFate::LeftOut),
        ("prompt_cache_options", FieldFate::LeftOut),
        ("image", FieldFate::LeftOut),
        ("access_programs", FieldFate::LeftOut),
        ("context_management", FieldFate::LeftOut),
        ("provider_options", FieldFate::LeftOut),
        ("providerOptions", FieldFate::LeftOut),
        ("extra_body", FieldFate::LeftOut),
    ],
    others: FieldFate::Refused(
        "the gateway does not know it, and it may change the price or the meaning",
    ),
};

/// Fields of `reasoning`: how thoughts are shown, which other dialects do as they like.
pub(super) const REASONING: FateTable = FateTable {
    rows: &[
        ("summary", FieldFate::Silent),
        ("generate_summary", FieldFate::Silent),
        ("context", FieldFate::Silent),
    ],
    others: FieldFate::LeftOut,
};

/// Types of items that are not carried. Items of an answer have been run and are done: their provider's
/// model said what it made of them.
pub(super) const ITEMS: FateTable = FateTable {
    rows: &[
        ("web_search_call", FieldFate::LeftOut),
        ("file_search_call", FieldFate::LeftOut),
        ("code_interpreter_call", FieldFate::LeftOut),
        ("image_generation_call", FieldFate::LeftOut),
        ("mcp_call", FieldFate::LeftOut),
        ("mcp_list_tools", FieldFate::LeftOut),
        ("mcp_approval_request", FieldFate::LeftOut),
        ("mcp_approval_response", FieldFate::LeftOut),
        ("program", FieldFate::LeftOut),
        ("program_output", FieldFate::LeftOut),
        // Codex' snapshots of a repository: they are no part of a prompt.
        ("ghost_snapshot", FieldFate::Silent),
        ("compaction", COMPACTED),
        ("compaction_summary", COMPACTED),
        ("context_compaction", COMPACTED),
        (
            "compaction_trigger",
            FieldFate::Refused(
                "asks the provider of another model to sum up the conversation, which this one cannot",
            ),
        ),
        (
            "item_reference",
            FieldFate::Refused("stands for an item that the provider of another model stores"),
        ),
    ],
    others: FieldFate::Refused("is not known to the gateway"),
};
const COMPACTED: FieldFate = FieldFate::Refused(
    "holds a summary that only the provider that wrote it can read, and the conversation with it; \
     begin a new one, or go on with a model of that provider",
);

/// True if an unlisted item type belongs to an answer and needs nothing more: a call that a provider ran, or
/// its result.
pub(super) fn is_done(kind: &str) -> bool {
    kind.ends_with("_call") || kind.ends_with("_call_output")
}

/// Fields of items, beside what they say: they repeat what an answer had.
pub(super) const ITEM: FateTable = FateTable {
    rows: &[
        ("type", FieldFate::Silent),
        ("id", FieldFate::Silent),
        ("status", FieldFate::Silent),
        ("phase", FieldFate::Silent),
        ("role", FieldFate::Silent),
        ("execution", FieldFate::Silent),
        ("created_by", FieldFate::Silent),
        ("internal_chat_message_metadata_passthrough", FieldFate::Silent),
        ("max_output_length", FieldFate::Silent),
        ("caller", FieldFate::LeftOut),
        ("environment", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};

/// Fields beside a text.
pub(super) const TEXT: FateTable = FateTable {
    rows: &[
        ("annotations", FieldFate::LeftOut),
        ("logprobs", FieldFate::LeftOut),
        ("prompt_cache_breakpoint", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};
/// Fields beside a picture, a recording or a file.
pub(super) const MEDIA: FateTable = FateTable {
    rows: &[
        ("prompt_cache_breakpoint", FieldFate::LeftOut),
        ("file_id", STORED),
        ("detail", FieldFate::LeftOut),
        ("filename", FieldFate::LeftOut),
    ],
    others: FieldFate::Refused("the gateway does not know it, and it may change the price"),
};
/// Types of contents that are not carried.
pub(super) const CONTENTS: FateTable = FateTable {
    rows: &[
        ("encrypted_content", FieldFate::LeftOut),
        ("reasoning_text", FieldFate::LeftOut),
        ("summary_text", FieldFate::LeftOut),
    ],
    others: FieldFate::Refused("is not known to the gateway"),
};
