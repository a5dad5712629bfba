//! Handling of the fields of a chat completion that exist in no other dialect.
//!
//! Sources: OpenAI's reference and SDKs; the bodies of opencode, VS Code's Copilot Chat, aider,
//! LangChain and Vercel's AI SDK; OpenRouter's, DeepSeek's, Qwen's and vLLM's references.

use crate::field_rules::{FieldRows, FieldRule, FieldRules};

/// Refusal of a field that the gateway does not know.
const UNKNOWN: FieldRule =
    FieldRule::Refused("the gateway does not know it, and it may change the price or the meaning");
/// Values that select the default tier.
const USUAL_TIER: &[&str] = &["\"auto\"", "\"default\"", "\"standard\"", "\"standard_only\""];

/// Fields of the request.
pub(super) const REQUEST: FieldRules = FieldRules {
    rows: &[
        (
            "n",
            FieldRule::Usual(
                &["1"],
                &FieldRule::Refused("the model gives one answer to a request"),
            ),
        ),
        (
            "logprobs",
            FieldRule::Usual(&["false"], &FieldRule::Refused("no probabilities come with it")),
        ),
        (
            "modalities",
            FieldRule::Usual(&["[\"text\"]"], &FieldRule::Refused("the answer is text only")),
        ),
        ("audio", FieldRule::Refused("the answer is text only")),
        (
            "service_tier",
            FieldRule::Usual(
                USUAL_TIER,
                &FieldRule::Refused("a tier has a price of that provider's"),
            ),
        ),
        ("functions", FieldRule::Refused("`tools` has taken its place")),
        ("function_call", FieldRule::Refused("`tool_choice` has taken its place")),
        ("moderation", FieldRule::Refused("the provider of another model has its own moderation")),
        ("guided_json", STRUCTURE),
        ("guided_regex", STRUCTURE),
        ("guided_choice", STRUCTURE),
        ("guided_grammar", STRUCTURE),
        ("structured_outputs", STRUCTURE),
        ("grammar", STRUCTURE),
        // Hints on how words are chosen.
        ("logit_bias", FieldRule::LeftOut),
        ("top_logprobs", FieldRule::LeftOut),
        ("repetition_penalty", FieldRule::LeftOut),
        ("repeat_penalty", FieldRule::LeftOut),
        ("min_p", FieldRule::LeftOut),
        ("top_a", FieldRule::LeftOut),
        ("typical_p", FieldRule::LeftOut),
        ("min_tokens", FieldRule::LeftOut),
        ("do_sample", FieldRule::LeftOut),
        ("chat_template_kwargs", FieldRule::LeftOut),
        // A prediction makes an answer faster, and costs more where it is wrong.
        ("prediction", FieldRule::LeftOut),
        // What is kept, and under which names.
        ("store", FieldRule::Usual(&["false"], &FieldRule::LeftOut)),
        ("metadata", FieldRule::LeftOut),
        ("prompt_cache_retention", FieldRule::LeftOut),
        ("prompt_cache_options", FieldRule::LeftOut),
        ("request_id", FieldRule::LeftOut),
        ("user_id", FieldRule::LeftOut),
        ("extra_body", FieldRule::LeftOut),
        // Tools that a provider runs are only offered.
        ("web_search_options", FieldRule::LeftOut),
        ("plugins", FieldRule::LeftOut),
        ("search_parameters", FieldRule::LeftOut),
        ("enable_search", FieldRule::Usual(&["false"], &FieldRule::LeftOut)),
        // OpenRouter's choice among providers, and its reports.
        ("provider", FieldRule::LeftOut),
        ("models", FieldRule::LeftOut),
        ("route", FieldRule::LeftOut),
        ("transforms", FieldRule::LeftOut),
        ("session_id", FieldRule::LeftOut),
        ("trace", FieldRule::LeftOut),
        ("usage", FieldRule::Silent),
        ("include_reasoning", FieldRule::Silent),
        // What clients keep for themselves: VS Code's Copilot Chat, LiteLLM, the AI SDK, Zhipu's.
        ("intent", FieldRule::LeftOut),
        ("intent_threshold", FieldRule::LeftOut),
        ("intent_content", FieldRule::LeftOut),
        ("intent_model", FieldRule::LeftOut),
        ("intent_tokenizer", FieldRule::LeftOut),
        ("state", FieldRule::LeftOut),
        ("snippy", FieldRule::LeftOut),
        ("copilot_thread_id", FieldRule::LeftOut),
        ("secret_key", FieldRule::LeftOut),
        ("include", FieldRule::LeftOut),
        ("truncation", FieldRule::LeftOut),
        ("context_management", FieldRule::LeftOut),
        ("drop_params", FieldRule::LeftOut),
        ("provider_options", FieldRule::LeftOut),
        ("providerOptions", FieldRule::LeftOut),
        ("tool_stream", FieldRule::LeftOut),
    ],
    others: UNKNOWN,
};
const STRUCTURE: FieldRule =
    FieldRule::Refused("`response_format` is the way to a schema for the answer");

/// Fields of `stream_options`: how a stream comes in pieces, which the gateway decides.
pub(super) const STREAM_OPTIONS: FieldRules = FieldRules {
    rows: &[
        ("include_obfuscation", FieldRule::Silent),
        ("continuous_usage_stats", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};

/// Fields of `reasoning` in OpenRouter's API.
pub(super) const REASONING: FieldRules = FieldRules {
    rows: &[("exclude", FieldRule::LeftOut), ("summary", FieldRule::Silent)],
    others: FieldRule::LeftOut,
};

/// Refusal of media under field names of other programs: they belong to the content, so dropping them would
/// change the question.
const ATTACHED: FieldRule = FieldRule::Refused("what is shown to the model stands in `content`");
const MESSAGE_ROWS: FieldRows = &[
    ("images", ATTACHED),
    ("files", ATTACHED),
    ("attachments", ATTACHED),
    ("experimental_attachments", ATTACHED),
    ("id", FieldRule::Silent),
    ("prompt_cache_breakpoint", FieldRule::LeftOut),
];
/// Fields of messages of a user, of instructions, and of results of tools.
pub(super) const MESSAGE: FieldRules =
    FieldRules { rows: MESSAGE_ROWS, others: FieldRule::LeftOut };

/// Fields of messages of the assistant: they repeat what an answer had.
pub(super) const ASSISTANT: FieldRules = FieldRules {
    rows: &[
        ("function_call", FieldRule::Refused("`tool_calls` has taken its place")),
        ("id", FieldRule::Silent),
        ("index", FieldRule::Silent),
        ("status", FieldRule::Silent),
        ("phase", FieldRule::Silent),
        // Claude's thoughts as LiteLLM and Copilot repeat them: their seals belong to another API.
        ("thinking_blocks", FieldRule::LeftOut),
        ("reasoning_opaque", FieldRule::LeftOut),
        ("annotations", FieldRule::LeftOut),
        ("audio", FieldRule::LeftOut),
        ("images", FieldRule::LeftOut),
    ],
    others: FieldRule::LeftOut,
};

/// Fields of a call of a tool.
pub(super) const CALL: FieldRules = FieldRules {
    rows: &[
        ("type", FieldRule::Silent),
        ("index", FieldRule::Silent),
        ("status", FieldRule::Silent),
    ],
    others: FieldRule::LeftOut,
};

/// Other fields of a text content.
pub(super) const TEXT: FieldRules = FieldRules {
    rows: &[("prompt_cache_breakpoint", FieldRule::LeftOut), ("annotations", FieldRule::LeftOut)],
    others: FieldRule::LeftOut,
};
/// Fields beside a picture, a recording, a video or a file: some change what they cost.
pub(super) const MEDIA: FieldRules = FieldRules {
    rows: &[
        ("prompt_cache_breakpoint", FieldRule::LeftOut),
        ("fps", FieldRule::Refused("it changes what a video costs")),
        ("file_id", FieldRule::Refused("the file is stored by the provider of another model")),
        ("format", FieldRule::LeftOut),
        ("media_type", FieldRule::LeftOut),
    ],
    others: UNKNOWN,
};

/// Types of content parts that the reader does not carry.
pub(super) const CONTENTS: FieldRules = FieldRules {
    rows: &[(
        "video",
        FieldRule::Refused("is frames, which other providers do not take as a video"),
    )],
    others: FieldRule::Refused("is not known to the gateway"),
};
/// Types of contents of the assistant: they repeat what an answer had.
pub(super) const ASSISTANT_CONTENTS: FieldRules =
    FieldRules { rows: &[], others: FieldRule::LeftOut };
