//! What becomes of the fields of a chat completion that no other dialect has words for.
//!
//! Sources: OpenAI's reference and SDKs; the bodies of opencode, VS Code's Copilot Chat, aider,
//! LangChain and Vercel's AI SDK; OpenRouter's, DeepSeek's, Qwen's and vLLM's references.

use crate::fate::{Fate, FateTable, Rows};

/// Why a field that the gateway does not know is refused.
const UNKNOWN: Fate =
    Fate::Refused("the gateway does not know it, and it may change the price or the meaning");
/// Values by which a customer asks for no tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"default\"", "\"standard\"", "\"standard_only\""];

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        ("n", Fate::Usual(&["1"], &Fate::Refused("the model gives one answer to a request"))),
        ("logprobs", Fate::Usual(&["false"], &Fate::Refused("no probabilities come with it"))),
        ("modalities", Fate::Usual(&["[\"text\"]"], &Fate::Refused("the answer is text only"))),
        ("audio", Fate::Refused("the answer is text only")),
        (
            "service_tier",
            Fate::Usual(USUAL_TIER, &Fate::Refused("a tier has a price of that provider's")),
        ),
        ("functions", Fate::Refused("`tools` has taken its place")),
        ("function_call", Fate::Refused("`tool_choice` has taken its place")),
        ("moderation", Fate::Refused("the provider of another model has its own moderation")),
        ("guided_json", STRUCTURE),
        ("guided_regex", STRUCTURE),
        ("guided_choice", STRUCTURE),
        ("guided_grammar", STRUCTURE),
        ("structured_outputs", STRUCTURE),
        ("grammar", STRUCTURE),
        // Hints on how words are chosen.
        ("logit_bias", Fate::LeftOut),
        ("top_logprobs", Fate::LeftOut),
        ("repetition_penalty", Fate::LeftOut),
        ("repeat_penalty", Fate::LeftOut),
        ("min_p", Fate::LeftOut),
        ("top_a", Fate::LeftOut),
        ("typical_p", Fate::LeftOut),
        ("min_tokens", Fate::LeftOut),
        ("do_sample", Fate::LeftOut),
        ("chat_template_kwargs", Fate::LeftOut),
        // A prediction makes an answer faster, and costs more where it is wrong.
        ("prediction", Fate::LeftOut),
        // What is kept, and under which names.
        ("store", Fate::Usual(&["false"], &Fate::LeftOut)),
        ("metadata", Fate::LeftOut),
        ("prompt_cache_retention", Fate::LeftOut),
        ("prompt_cache_options", Fate::LeftOut),
        ("request_id", Fate::LeftOut),
        ("user_id", Fate::LeftOut),
        ("extra_body", Fate::LeftOut),
        // Tools that a provider runs are only offered.
        ("web_search_options", Fate::LeftOut),
        ("plugins", Fate::LeftOut),
        ("search_parameters", Fate::LeftOut),
        ("enable_search", Fate::Usual(&["false"], &Fate::LeftOut)),
        // OpenRouter's choice among providers, and its reports.
        ("provider", Fate::LeftOut),
        ("models", Fate::LeftOut),
        ("route", Fate::LeftOut),
        ("transforms", Fate::LeftOut),
        ("session_id", Fate::LeftOut),
        ("trace", Fate::LeftOut),
        ("usage", Fate::Silent),
        ("include_reasoning", Fate::Silent),
        // What clients keep for themselves: VS Code's Copilot Chat, LiteLLM, the AI SDK, Zhipu's.
        ("intent", Fate::LeftOut),
        ("intent_threshold", Fate::LeftOut),
        ("intent_content", Fate::LeftOut),
        ("intent_model", Fate::LeftOut),
        ("intent_tokenizer", Fate::LeftOut),
        ("state", Fate::LeftOut),
        ("snippy", Fate::LeftOut),
        ("copilot_thread_id", Fate::LeftOut),
        ("secret_key", Fate::LeftOut),
        ("include", Fate::LeftOut),
        ("truncation", Fate::LeftOut),
        ("context_management", Fate::LeftOut),
        ("drop_params", Fate::LeftOut),
        ("provider_options", Fate::LeftOut),
        ("providerOptions", Fate::LeftOut),
        ("tool_stream", Fate::LeftOut),
    ],
    others: UNKNOWN,
};
const STRUCTURE: Fate = Fate::Refused("`response_format` is the way to a schema for the answer");

/// Fields of `stream_options`: how a stream comes in pieces, which the gateway decides.
pub(super) const STREAM_OPTIONS: FateTable = FateTable {
    rows: &[("include_obfuscation", Fate::Silent), ("continuous_usage_stats", Fate::LeftOut)],
    others: Fate::LeftOut,
};

/// Fields of `reasoning`, as OpenRouter has it.
pub(super) const REASONING: FateTable = FateTable {
    rows: &[("exclude", Fate::LeftOut), ("summary", Fate::Silent)],
    others: Fate::LeftOut,
};

/// What a customer says beside the fields that all dialects have: pictures and files under names of
/// other programs' are part of what is said.
const ATTACHED: Fate = Fate::Refused("what is shown to the model stands in `content`");
const SAID: Rows = &[
    ("images", ATTACHED),
    ("files", ATTACHED),
    ("attachments", ATTACHED),
    ("experimental_attachments", ATTACHED),
    ("id", Fate::Silent),
    ("prompt_cache_breakpoint", Fate::LeftOut),
];
/// Fields of messages of a user, of instructions, and of results of tools.
pub(super) const MESSAGE: FateTable = FateTable { rows: SAID, others: Fate::LeftOut };

/// Fields of messages of the assistant: they repeat what an answer had.
pub(super) const ASSISTANT: FateTable = FateTable {
    rows: &[
        ("function_call", Fate::Refused("`tool_calls` has taken its place")),
        ("id", Fate::Silent),
        ("index", Fate::Silent),
        ("status", Fate::Silent),
        ("phase", Fate::Silent),
        // Claude's thoughts as LiteLLM and Copilot repeat them: their seals are those of another door.
        ("thinking_blocks", Fate::LeftOut),
        ("reasoning_opaque", Fate::LeftOut),
        ("annotations", Fate::LeftOut),
        ("audio", Fate::LeftOut),
        ("images", Fate::LeftOut),
    ],
    others: Fate::LeftOut,
};

/// Fields of a call of a tool.
pub(super) const CALL: FateTable = FateTable {
    rows: &[("type", Fate::Silent), ("index", Fate::Silent), ("status", Fate::Silent)],
    others: Fate::LeftOut,
};

/// Fields beside the text of a content that is text.
pub(super) const TEXT: FateTable = FateTable {
    rows: &[("prompt_cache_breakpoint", Fate::LeftOut), ("annotations", Fate::LeftOut)],
    others: Fate::LeftOut,
};
/// Fields beside a picture, a recording, a video or a file: some change what they cost.
pub(super) const MEDIA: FateTable = FateTable {
    rows: &[
        ("prompt_cache_breakpoint", Fate::LeftOut),
        ("fps", Fate::Refused("it changes what a video costs")),
        ("file_id", Fate::Refused("the file is stored by the provider of another model")),
        ("format", Fate::LeftOut),
        ("media_type", Fate::LeftOut),
    ],
    others: UNKNOWN,
};

/// Types of contents.
pub(super) const CONTENTS: FateTable = FateTable {
    rows: &[("video", Fate::Refused("is frames, which other providers do not take as a video"))],
    others: Fate::Refused("is not known to the gateway"),
};
/// Types of contents of the assistant: they repeat what an answer had.
pub(super) const SAID_CONTENTS: FateTable = FateTable { rows: &[], others: Fate::LeftOut };
