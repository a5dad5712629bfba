//! What becomes of the fields and items of a response that no other dialect has words for.
//!
//! Sources: OpenAI's reference and SDKs, and the requests of Codex.

use crate::fate::{Fate, FateTable};

/// Values by which a customer asks for no tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"default\"", "\"standard\""];
const STORED: Fate = Fate::Refused("it is stored by the provider of another model");

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        ("previous_response_id", STORED),
        ("conversation", STORED),
        ("prompt", STORED),
        ("background", Fate::Usual(&["false"], &Fate::Refused("an answer comes at once"))),
        (
            "service_tier",
            Fate::Usual(USUAL_TIER, &Fate::Refused("a tier has a price of that provider's")),
        ),
        ("moderation", Fate::Refused("the provider of another model has its own moderation")),
        // Nothing is stored here, and thoughts come encrypted whether they are asked for or not.
        ("store", Fate::Silent),
        ("include", Fate::Silent),
        ("stream_options", Fate::Silent),
        ("generate", Fate::Usual(&["true"], &Fate::Refused("an answer is always made"))),
        // Hints.
        ("metadata", Fate::LeftOut),
        ("truncation", Fate::LeftOut),
        ("top_logprobs", Fate::LeftOut),
        ("max_tool_calls", Fate::LeftOut),
        ("client_metadata", Fate::LeftOut),
        ("prompt_cache_retention", Fate::LeftOut),
        ("prompt_cache_options", Fate::LeftOut),
        ("image", Fate::LeftOut),
        ("access_programs", Fate::LeftOut),
        ("context_management", Fate::LeftOut),
        ("provider_options", Fate::LeftOut),
        ("providerOptions", Fate::LeftOut),
        ("extra_body", Fate::LeftOut),
    ],
    others: Fate::Refused(
        "the gateway does not know it, and it may change the price or the meaning",
    ),
};

/// Fields of `reasoning`: how thoughts are shown, which other dialects do as they like.
pub(super) const REASONING: FateTable = FateTable {
    rows: &[
        ("summary", Fate::Silent),
        ("generate_summary", Fate::Silent),
        ("context", Fate::Silent),
    ],
    others: Fate::LeftOut,
};

/// Types of items that are not carried. Items of an answer have been run and are done: their provider's
/// model said what it made of them.
pub(super) const ITEMS: FateTable = FateTable {
    rows: &[
        ("web_search_call", Fate::LeftOut),
        ("file_search_call", Fate::LeftOut),
        ("code_interpreter_call", Fate::LeftOut),
        ("image_generation_call", Fate::LeftOut),
        ("mcp_call", Fate::LeftOut),
        ("mcp_list_tools", Fate::LeftOut),
        ("mcp_approval_request", Fate::LeftOut),
        ("mcp_approval_response", Fate::LeftOut),
        ("program", Fate::LeftOut),
        ("program_output", Fate::LeftOut),
        // Codex' snapshots of a repository: they are no part of a prompt.
        ("ghost_snapshot", Fate::Silent),
        ("compaction", COMPACTED),
        ("compaction_summary", COMPACTED),
        ("context_compaction", COMPACTED),
        (
            "compaction_trigger",
            Fate::Refused(
                "asks the provider of another model to sum up the conversation, which this one cannot",
            ),
        ),
        (
            "item_reference",
            Fate::Refused("stands for an item that the provider of another model stores"),
        ),
    ],
    others: Fate::Refused("is not known to the gateway"),
};
const COMPACTED: Fate = Fate::Refused(
    "holds a summary that only the provider that wrote it can read, and the conversation with it; \
     begin a new one, or go on with a model of that provider",
);

/// Whether an item of a type that has no row is of an answer, and done: a call that a provider ran, or
/// what came of it.
pub(super) fn is_done(kind: &str) -> bool {
    kind.ends_with("_call") || kind.ends_with("_call_output")
}

/// Fields of items, beside what they say: they repeat what an answer had.
pub(super) const ITEM: FateTable = FateTable {
    rows: &[
        ("type", Fate::Silent),
        ("id", Fate::Silent),
        ("status", Fate::Silent),
        ("phase", Fate::Silent),
        ("role", Fate::Silent),
        ("execution", Fate::Silent),
        ("created_by", Fate::Silent),
        ("internal_chat_message_metadata_passthrough", Fate::Silent),
        ("max_output_length", Fate::Silent),
        ("caller", Fate::LeftOut),
        ("environment", Fate::LeftOut),
    ],
    others: Fate::LeftOut,
};

/// Fields beside a text.
pub(super) const TEXT: FateTable = FateTable {
    rows: &[
        ("annotations", Fate::LeftOut),
        ("logprobs", Fate::LeftOut),
        ("prompt_cache_breakpoint", Fate::LeftOut),
    ],
    others: Fate::LeftOut,
};
/// Fields beside a picture, a recording or a file.
pub(super) const MEDIA: FateTable = FateTable {
    rows: &[
        ("prompt_cache_breakpoint", Fate::LeftOut),
        ("file_id", STORED),
        ("detail", Fate::LeftOut),
        ("filename", Fate::LeftOut),
    ],
    others: Fate::Refused("the gateway does not know it, and it may change the price"),
};
/// Types of contents that are not carried.
pub(super) const CONTENTS: FateTable = FateTable {
    rows: &[
        ("encrypted_content", Fate::LeftOut),
        ("reasoning_text", Fate::LeftOut),
        ("summary_text", Fate::LeftOut),
    ],
    others: Fate::Refused("is not known to the gateway"),
};
