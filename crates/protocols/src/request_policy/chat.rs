//! Allowlist of chat completions over upstreams with OpenAI's protocol.
//!
//! Fields: OpenAI's API reference, "Chat completions", and the sampling of its imitators. What has a
//! price of its own needs one: tiers, `audio`, `input_audio`, Qwen's `enable_thinking`,
//! `thinking_budget` and `enable_search`, and xAI's `search_parameters`. Left out is what nobody can
//! count: `web_search_options`, of whose searches no answer tells, xAI's `deferred`, and `extra_body`,
//! in which Gemini finds the like. `input_audio` costs more than text at those who take it, and so can
//! `video_url`, with or without the `fps` and `max_frames` that Qwen reads beside it. What is
//! kept in a prompt cache for longer than usual needs a price, wherever it is asked for.

use super::Field::Plain;
use super::setting::{CACHE_BREAKPOINT, CACHE_OPTIONS};
use super::{Allowlist, Field, Key, Kind, MediaShape, ObjectTable, Size, Tool, ToolKey, Unit};

/// Searches at most of one answer of Qwen's, which takes a question apart. It says nowhere how far.
const QWEN_SEARCHES_MAX: u64 = 5;
/// Assumed number of sources used by xAI's search without `max_search_results`; clients document 15 or 20.
const XAI_SOURCES_DEFAULT: u64 = 20;

pub(in super::super) static CHAT: Allowlist = Allowlist {
    fields: &[
        ("model", Plain),
        ("messages", Field::Items(&MESSAGES)),
        ("stream", Plain),
        ("max_tokens", Plain),
        ("temperature", Plain),
        ("stream_options", Plain),
        ("max_completion_tokens", Plain),
        ("tools", Field::Tools),
        ("tool_choice", Plain),
        ("top_p", Plain),
        ("reasoning_effort", Plain),
        ("response_format", Plain),
        ("parallel_tool_calls", Plain),
        ("n", Plain),
        ("stop", Plain),
        ("seed", Plain),
        ("user", Plain),
        ("frequency_penalty", Plain),
        ("presence_penalty", Plain),
        ("functions", Plain),
        ("function_call", Plain),
        ("logit_bias", Plain),
        ("logprobs", Plain),
        ("top_logprobs", Plain),
        ("metadata", Plain),
        ("prediction", Field::Items(&PREDICTION)),
        ("prompt_cache_key", Plain),
        ("prompt_cache_options", Field::Settings(CACHE_OPTIONS)),
        ("prompt_cache_retention", Plain),
        ("safety_identifier", Plain),
        ("store", Plain),
        ("verbosity", Plain),
        // Tiers that cost no more than the prices in `models.yaml`.
        ("service_tier", Field::Words(&["default", "flex"])),
        ("modalities", Field::Modalities),
        ("audio", Field::Sounds),
        ("enable_search", Field::Runs(Unit::WebSearches, QWEN_SEARCHES_MAX)),
        ("search_parameters", Field::Runs(Unit::WebSearches, XAI_SOURCES_DEFAULT)),
        ("enable_thinking", Field::Thinking),
        ("thinking_budget", Field::Thinking),
        ("top_k", Plain),
        ("min_p", Plain),
        ("repetition_penalty", Plain),
    ],
    tools: &[
        Tool { name: "function", is_dated: false, needs: None, added_tokens: Some(0) },
        Tool { name: "custom", is_dated: false, needs: None, added_tokens: Some(0) },
        Tool { name: "", is_dated: false, needs: Some(("function", "")), added_tokens: Some(0) },
    ],
    server_tools: &[],
    tool_keys: &[
        ("type", ToolKey::Type),
        ("function", ToolKey::Needed),
        ("custom", ToolKey::Plain),
        ("strict", ToolKey::Plain),
        ("cache_control", ToolKey::Plain),
    ],
};

static MESSAGES: ObjectTable = ObjectTable {
    what: "a message",
    keys: &[
        ("role", Key::Plain),
        ("content", Key::Items(&PARTS)),
        ("tool_calls", Key::Plain),
        ("tool_call_id", Key::Plain),
        ("name", Key::Plain),
        ("reasoning_content", Key::Plain),
        ("reasoning", Key::Plain),
        ("reasoning_details", Key::Opaque),
        ("refusal", Key::Plain),
        ("function_call", Key::Plain),
        ("annotations", Key::Plain),
        ("cache_control", Key::Plain),
        // DeepSeek's and Qwen's for an answer to be gone on with.
        ("prefix", Key::Plain),
        ("partial", Key::Plain),
        // An answer that was spoken, by its id.
        ("audio", Key::Billed(Unit::AudioInputTokens)),
        ("type", Key::Type),
    ],
    kinds: &[
        Kind { name: "", size: Size::Bytes(&[]) },
        Kind { name: "message", size: Size::Bytes(&[]) },
    ],
};

static PREDICTION: ObjectTable = ObjectTable {
    what: "a prediction",
    keys: &[("type", Key::Type), ("content", Key::Items(&PARTS))],
    kinds: &[
        Kind { name: "content", size: Size::Bytes(&[]) },
        Kind { name: "", size: Size::Bytes(&[]) },
    ],
};

static PARTS: ObjectTable = ObjectTable {
    what: "content",
    keys: &[
        ("type", Key::Type),
        ("text", Key::Plain),
        ("image_url", Key::Picture),
        ("file", Key::Medium(MediaShape::File)),
        ("refusal", Key::Plain),
        ("cache_control", Key::Plain),
        ("prompt_cache_breakpoint", Key::Settings(CACHE_BREAKPOINT)),
        ("input_audio", Key::Sound),
        ("audio_url", Key::Billed(Unit::AudioInputTokens)),
        ("video_url", Key::Billed(Unit::VideoInputTokens)),
        // Frames of a video, as Qwen takes them.
        ("video", Key::Billed(Unit::VideoInputTokens)),
        // What Mistral's models have thought.
        ("thinking", Key::Items(&PARTS)),
        ("closed", Key::Plain),
    ],
    kinds: &[
        Kind { name: "text", size: Size::Bytes(&["text"]) },
        Kind { name: "thinking", size: Size::Bytes(&["thinking"]) },
        Kind { name: "refusal", size: Size::Bytes(&["refusal"]) },
        Kind { name: "image_url", size: Size::Bytes(&["image_url"]) },
        Kind { name: "input_audio", size: Size::Sound(&["input_audio"]) },
        Kind { name: "audio_url", size: Size::Billed(Unit::AudioInputTokens) },
        Kind { name: "video_url", size: Size::Billed(Unit::VideoInputTokens) },
        Kind { name: "video", size: Size::Billed(Unit::VideoInputTokens) },
        Kind { name: "file", size: Size::Bytes(&["file"]) },
    ],
};
