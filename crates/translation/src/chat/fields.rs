//! Handling of the fields of a chat completion that exist in no other dialect.
//!
//! Sources: OpenAI's reference and SDKs; the bodies of opencode, VS Code's Copilot Chat, aider,
//! LangChain and Vercel's AI SDK; OpenRouter's, DeepSeek's, Qwen's and vLLM's references.

use crate::fate::{FateTable, FieldFate, Rows};

/// Refusal of a field that the gateway does not know.
const UNKNOWN: FieldFate =
    FieldFate::Refused("the gateway does not know it, and it may change the price or the meaning");
/// Values by which a customer asks for no tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"default\"", "\"standard\"", "\"standard_only\""];

/// Fields of the request.
pub(super) const REQUEST: FateTable = FateTable {
    rows: &[
        (
            "n",
            FieldFate::Usual(
                &["1"],
                &FieldFate::Refused("the model gives one answer to a request"),
            ),
        ),
        (
            "logprobs",
            FieldFate::Usual(&["false"], &FieldFate::Refused("no probabilities come with it")),
        ),
        (
            "modalities",
            FieldFate::Usual(&["[\"text\"]"], &FieldFate::Refused("the answer is text only")),
        ),
        ("audio", FieldFate::Refused("the answer is text only")),
        (
            "service_tier",
            FieldFate::Usual(
                USUAL_TIER,
                &FieldFate::Refused("a tier has a price of that provider's"),
            ),
        ),
        ("functions", FieldFate::Refused("`tools` has taken its place")),
        ("function_call", FieldFate::Refused("`tool_choice` has taken its place")),
        ("moderation", FieldFate::Refused("the provider of another model has its own moderation")),
        ("guided_json", STRUCTURE),
        ("guided_regex", STRUCTURE),
        ("guided_choice", STRUCTURE),
        ("guided_grammar", STRUCTURE),
        ("structured_outputs", STRUCTURE),
        ("grammar", STRUCTURE),
        // Hints on how words are chosen.
        ("logit_bias", FieldFate::LeftOut),
        ("top_logprobs", FieldFate::LeftOut),
        ("repetition_penalty", FieldFate::LeftOut),
        ("repeat_penalty", FieldFate::LeftOut),
        ("min_p", FieldFate::LeftOut),
        ("top_a", FieldFate::LeftOut),
        ("typical_p", FieldFate::LeftOut),
        ("min_tokens", FieldFate::LeftOut),
        ("do_sample", FieldFate::LeftOut),
        ("chat_template_kwargs", FieldFate::LeftOut),
        // A prediction makes an answer faster, and costs more where it is wrong.
        ("prediction", FieldFate::LeftOut),
        // What is kept, and under which names.
        ("store", FieldFate::Usual(&["false"], &FieldFate::LeftOut)),
        ("metadata", FieldFate::LeftOut),
        ("prompt_cache_retention", FieldFate::LeftOut),
        ("prompt_cache_options", FieldFate::LeftOut),
        ("request_id", FieldFate::LeftOut),
        ("user_id", FieldFate::LeftOut),
        ("extra_body", FieldFate::LeftOut),
        // Tools that a provider runs are only offered.
        ("web_search_options", FieldFate::LeftOut),
        ("plugins", FieldFate::LeftOut),
        ("search_parameters", FieldFate::LeftOut),
        ("enable_search", FieldFate::Usual(&["false"], &FieldFate::LeftOut)),
        // OpenRouter's choice among providers, and its reports.
        ("provider", FieldFate::LeftOut),
        ("models", FieldFate::LeftOut),
        ("route", FieldFate::LeftOut),
        ("transforms", FieldFate::LeftOut),
        ("session_id", FieldFate::LeftOut),
        ("trace", FieldFate::LeftOut),
        ("usage", FieldFate::Silent),
        ("include_reasoning", FieldFate::Silent),
        // What clients keep for themselves: VS Code's Copilot Chat, LiteLLM, the AI SDK, Zhipu's.
        ("intent", FieldFate::LeftOut),
        ("intent_threshold", FieldFate::LeftOut),
        ("intent_content", FieldFate::LeftOut),
        ("intent_model", FieldFate::LeftOut),
        ("intent_tokenizer", FieldFate::LeftOut),
        ("state", FieldFate::LeftOut),
        ("snippy", FieldFate::LeftOut),
        ("copilot_thread_id", FieldFate::LeftOut),
        ("secret_key", FieldFate::LeftOut),
        ("include", FieldFate::LeftOut),
        ("truncation", FieldFate::LeftOut),
        ("context_management", FieldFate::LeftOut),
        ("drop_params", FieldFate::LeftOut),
        ("provider_options", FieldFate::LeftOut),
        ("providerOptions", FieldFate::LeftOut),
        ("tool_stream", FieldFate::LeftOut),
    ],
    others: UNKNOWN,
};
const STRUCTURE: FieldFate =
    FieldFate::Refused("`response_format` is the way to a schema for the answer");

/// Fields of `stream_options`: how a stream comes in pieces, which the gateway decides.
pub(super) const STREAM_OPTIONS: FateTable = FateTable {
    rows: &[
        ("include_obfuscation", FieldFate::Silent),
        ("continuous_usage_stats", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};

/// Fields of `reasoning`, as OpenRouter has it.
pub(super) const REASONING: FateTable = FateTable {
    rows: &[("exclude", FieldFate::LeftOut), ("summary", FieldFate::Silent)],
    others: FieldFate::LeftOut,
};

/// Refusal of media under field names of other programs: they belong to the content, so dropping them would
/// change the question.
const ATTACHED: FieldFate = FieldFate::Refused("what is shown to the model stands in `content`");
const MESSAGE_ROWS: Rows = &[
    ("images", ATTACHED),
    ("files", ATTACHED),
    ("attachments", ATTACHED),
    ("experimental_attachments", ATTACHED),
    ("id", FieldFate::Silent),
    ("prompt_cache_breakpoint", FieldFate::LeftOut),
];
/// Fields of messages of a user, of instructions, and of results of tools.
pub(super) const MESSAGE: FateTable = FateTable { rows: MESSAGE_ROWS, others: FieldFate::LeftOut };

/// Fields of messages of the assistant: they repeat what an answer had.
pub(super) const ASSISTANT: FateTable = FateTable {
    rows: &[
        ("function_call", FieldFate::Refused("`tool_calls` has taken its place")),
        ("id", FieldFate::Silent),
        ("index", FieldFate::Silent),
        ("status", FieldFate::Silent),
        ("phase", FieldFate::Silent),
        // Claude's thoughts as LiteLLM and Copilot repeat them: their seals are those of another door.
        ("thinking_blocks", FieldFate::LeftOut),
        ("reasoning_opaque", FieldFate::LeftOut),
        ("annotations", FieldFate::LeftOut),
        ("audio", FieldFate::LeftOut),
        ("images", FieldFate::LeftOut),
    ],
    others: FieldFate::LeftOut,
};

/// Fields of a call of a tool.
pub(super) const CALL: FateTable = FateTable {
    rows: &[
        ("type", FieldFate::Silent),
        ("index", FieldFate::Silent),
        ("status", FieldFate::Silent),
    ],
    others: FieldFate::LeftOut,
};

/// Fields beside the text of a content that is text.
pub(super) const TEXT: FateTable = FateTable {
    rows: &[("prompt_cache_breakpoint", FieldFate::LeftOut), ("annotations", FieldFate::LeftOut)],
    others: FieldFate::LeftOut,
};
/// Fields beside a picture, a recording, a video or a file: some change what they cost.
pub(super) const MEDIA: FateTable = FateTable {
    rows: &[
        ("prompt_cache_breakpoint", FieldFate::LeftOut),
        ("fps", FieldFate::Refused("it changes what a video costs")),
        ("file_id", FieldFate::Refused("the file is stored by the provider of another model")),
        ("format", FieldFate::LeftOut),
        ("media_type", FieldFate::LeftOut),
    ],
    others: UNKNOWN,
};

/// Types of content parts that the reader does not carry.
pub(super) const CONTENTS: FateTable = FateTable {
    rows: &[(
        "video",
        FieldFate::Refused("is frames, which other providers do not take as a video"),
    )],
    others: FieldFate::Refused("is not known to the gateway"),
};
/// Types of contents of the assistant: they repeat what an answer had.
pub(super) const ASSISTANT_CONTENTS: FateTable =
    FateTable { rows: &[], others: FieldFate::LeftOut };
