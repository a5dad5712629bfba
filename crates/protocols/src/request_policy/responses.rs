//! Allowlist of responses over upstreams with OpenAI's protocol.
//!
//! Fields, items and tools: OpenAI's API reference, "Responses", and what Codex sends. Tools that the
//! upstream runs need a price, and so does what is kept in a prompt cache for longer than usual. Left
//! out are `computer` and a `shell` in a container.

use super::Field::Plain;
use super::setting::{CACHE_BREAKPOINT, CACHE_OPTIONS, Setting, SettingTable};
use super::{
    Allowlist, CallLimit, Field, Key, Kind, MediaShape, ObjectTable, RereadBilling, ServerTool,
    Size, Tool, ToolContextCost, ToolKey, Unit,
};

pub(in super::super) static RESPONSES: Allowlist = Allowlist {
    fields: &[
        ("model", Plain),
        ("input", Field::Items(&ITEMS)),
        ("stream", Plain),
        ("instructions", Field::Items(&ITEMS)),
        ("tools", Field::Tools),
        ("tool_choice", Plain),
        ("parallel_tool_calls", Plain),
        ("reasoning", Plain),
        ("store", Plain),
        ("include", Plain),
        ("prompt_cache_key", Plain),
        ("text", Plain),
        ("max_output_tokens", Plain),
        ("client_metadata", Plain),
        ("temperature", Plain),
        ("top_p", Plain),
        ("metadata", Plain),
        ("stream_options", Plain),
        ("previous_response_id", Field::Reference),
        ("conversation", Field::Reference),
        ("prompt", Field::Reference),
        ("truncation", Plain),
        ("user", Plain),
        ("safety_identifier", Plain),
        ("prompt_cache_options", Field::Settings(CACHE_OPTIONS)),
        ("prompt_cache_retention", Plain),
        ("top_logprobs", Plain),
        ("max_tool_calls", Plain),
        // Tiers that cost no more than the prices in `models.yaml`.
        ("service_tier", Field::Words(&["default", "flex"])),
        ("context_management", Field::ContextManagement),
        ("image", Field::Settings(IMAGE)),
        ("access_programs", Field::Settings(ACCESS_PROGRAMS)),
        // Refused where it is asked for.
        ("background", Plain),
    ],
    tools: TOOLS,
    server_tools: &[
        ServerTool { result: Some(SEARCH), ..server_tool("web_search", Unit::WebSearches) },
        ServerTool { result: Some(SEARCH), ..server_tool("web_search_preview", Unit::WebSearches) },
        server_tool("x_search", Unit::WebSearches),
        ServerTool { result: Some(FILE_SEARCH), ..server_tool("file_search", Unit::FileSearches) },
        server_tool("code_interpreter", Unit::ContainerSessions),
        server_tool("image_generation", Unit::Images),
        server_tool("mcp", Unit::ToolCalls),
        // It looks among the tools of the request, and what is found is billed as input:
        // https://developers.openai.com/api/docs/guides/tools-tool-search, seen 2026-11-27.
        ServerTool { name: "tool_search", is_dated: false, unit: None, result: None },
    ],
    tool_keys: TOOL_KEYS,
};

/// Allowlist of requests to compact a conversation: OpenAI's API reference, "Compact a response", and Codex's
/// additional fields. Tools are allowed so that the prompt is found in the cache; none is run.
pub(in super::super) static COMPACT: Allowlist = Allowlist {
    fields: &[
        ("model", Plain),
        ("input", Field::Items(&ITEMS)),
        ("instructions", Field::Items(&ITEMS)),
        ("previous_response_id", Field::Reference),
        ("prompt_cache_key", Plain),
        ("prompt_cache_options", Field::Settings(CACHE_OPTIONS)),
        ("prompt_cache_retention", Plain),
        ("tools", Field::Tools),
        ("parallel_tool_calls", Plain),
        ("reasoning", Plain),
        ("text", Plain),
        ("service_tier", Field::Words(&["default", "flex"])),
        ("image", Field::Settings(IMAGE)),
    ],
    tools: TOOLS,
    server_tools: &[],
    tool_keys: TOOL_KEYS,
};

/// Compression of pictures in the input, which changes the reported tokens.
const IMAGE: SettingTable = &[("context_compression", Setting::Plain)];

/// Programs that the operator's account may be in; `standard` says none of them.
const ACCESS_PROGRAMS: SettingTable = &[("cyber", Setting::Words(&["standard"]))];

const TOOLS: &[Tool] = &[
    bounded("function", None),
    bounded("custom", None),
    bounded("local_shell", None),
    bounded("apply_patch", None),
    bounded("shell", Some(("environment", "local"))),
    bounded("namespace", Some(("tools", ""))),
    bounded("tool_search", Some(("execution", "client"))),
];

const TOOL_KEYS: &[(&str, ToolKey)] = &[
    ("type", ToolKey::Type),
    ("container", ToolKey::Needed),
    ("max_num_results", ToolKey::Results),
    ("name", ToolKey::Plain),
    ("description", ToolKey::Plain),
    ("parameters", ToolKey::Plain),
    ("strict", ToolKey::Plain),
    ("format", ToolKey::Plain),
    ("defer_loading", ToolKey::Plain),
    ("allowed_callers", ToolKey::Plain),
    ("output_schema", ToolKey::Plain),
    ("environment", ToolKey::Needed),
    ("execution", ToolKey::Needed),
    ("tools", ToolKey::Tools),
    // Of the pictures that a tool makes. Their size and quality are what prices can depend on.
    ("size", ToolKey::Plain),
    ("quality", ToolKey::Dearer(&["\"auto\"", "\"low\"", "\"medium\"", "\"high\""])),
    ("output_format", ToolKey::Dearer(&["\"png\"", "\"jpeg\"", "\"webp\""])),
    ("svg", ToolKey::Dearer(&[])),
    ("complexity", ToolKey::Dearer(&[])),
    ("frame_count", ToolKey::Dearer(&[])),
    ("frame_duration_ms", ToolKey::Dearer(&[])),
    // A search has one price, whether it finds texts or pictures (OpenAI's page "Pricing", "Built-in
    // tools"). Codex 0.171 offers both.
    ("search_content_types", ToolKey::Plain),
    // A way into the operator's network.
    ("tunnel_id", ToolKey::Dearer(&[])),
    ("model", ToolKey::Dearer(&[])),
    ("partial_images", ToolKey::Dearer(&["0"])),
    ("input_fidelity", ToolKey::Dearer(&["\"low\""])),
];

const fn server_tool(name: &'static str, unit: Unit) -> ServerTool {
    ServerTool { name, is_dated: true, unit: Some(unit), result: None }
}

/// OpenAI's page "Pricing", "Built-in tools": what a search finds is billed as 8,000 tokens of input for the
/// smaller models, and at the model's rate for the others, and its guide "Prompt caching": prompts from 1,024
/// tokens on are cached unasked.
const SEARCH: ToolContextCost = ToolContextCost {
    tokens: SEARCH_RESULT_TOKENS,
    entry_tokens: None,
    reread: RereadBilling::Cached,
    limit: Some(CallLimit::Request),
};
const SEARCH_RESULT_TOKENS: u64 = 8_000;

/// OpenAI's guide "Retrieval": a file is kept in pieces of 800 tokens, and its API reference, `max_num_results`:
/// 20 of them for a search that does not say, 50 at most. Whoever keeps larger pieces in the stores of the
/// operator's account has longer results.
const FILE_SEARCH: ToolContextCost = ToolContextCost {
    tokens: FILE_RESULT_TOKENS,
    entry_tokens: Some(FILE_PIECE_TOKENS),
    reread: RereadBilling::Cached,
    limit: Some(CallLimit::Request),
};
const FILE_PIECE_TOKENS: u64 = 800;
const FILE_RESULT_TOKENS: u64 = 20 * FILE_PIECE_TOKENS;

const fn bounded(name: &'static str, needs: Option<(&'static str, &'static str)>) -> Tool {
    Tool { name, is_dated: false, needs, added_tokens: Some(0) }
}

const fn bytes(name: &'static str, needs: &'static [&'static str]) -> Kind {
    Kind { name, size: Size::Bytes(needs) }
}

const fn context(name: &'static str) -> Kind {
    Kind { name, size: Size::Context }
}

/// Items without a type are messages, or refer to stored objects of the upstream.
static ITEMS: ObjectTable = ObjectTable {
    what: "an item",
    keys: &[
        ("type", Key::Type),
        ("role", Key::Plain),
        ("content", Key::Items(&PARTS)),
        ("call_id", Key::Plain),
        ("output", Key::Items(&PARTS)),
        ("name", Key::Plain),
        ("arguments", Key::Plain),
        ("id", Key::Plain),
        ("status", Key::Plain),
        ("input", Key::Plain),
        ("summary", Key::Items(&PARTS)),
        ("encrypted_content", Key::Opaque),
        ("action", Key::Plain),
        ("operation", Key::Plain),
        ("phase", Key::Plain),
        ("namespace", Key::Plain),
        ("caller", Key::Plain),
        ("execution", Key::Plain),
        ("environment", Key::Plain),
        ("max_output_length", Key::Plain),
        ("tools", Key::Tools),
        ("acknowledged_safety_checks", Key::Plain),
        // Of a search in files: what was looked for, and what was found where the request wants to see it.
        ("queries", Key::Plain),
        ("results", Key::Plain),
    ],
    kinds: &[
        bytes("message", &["content"]),
        bytes("", &["role", "content"]),
        bytes("function_call", &["arguments"]),
        bytes("function_call_output", &["output"]),
        // Without its encrypted content it stands for what the upstream has kept.
        bytes("reasoning", &["encrypted_content"]),
        bytes("custom_tool_call", &["input"]),
        bytes("custom_tool_call_output", &["output"]),
        bytes("local_shell_call", &["action"]),
        bytes("local_shell_call_output", &["output"]),
        bytes("shell_call", &["action"]),
        bytes("shell_call_output", &["output"]),
        bytes("apply_patch_call", &["operation"]),
        bytes("apply_patch_call_output", &["status"]),
        bytes("tool_search_call", &["arguments"]),
        bytes("tool_search_output", &["tools"]),
        bytes("additional_tools", &["tools"]),
        context("item_reference"),
        context("compaction"),
        context("compaction_summary"),
        context("compaction_trigger"),
        context("computer_call"),
        bytes("computer_call_output", &["output"]),
        // What was found is not in it: it can stand for as much again.
        Kind { name: "web_search_call", size: Size::Result(&["action"], SEARCH_RESULT_TOKENS) },
        Kind { name: "file_search_call", size: Size::Result(&["queries"], FILE_RESULT_TOKENS) },
        context("code_interpreter_call"),
        context("image_generation_call"),
        context("mcp_list_tools"),
        context("mcp_approval_request"),
        context("mcp_approval_response"),
        context("mcp_call"),
    ],
};

static PARTS: ObjectTable = ObjectTable {
    what: "content",
    keys: &[
        ("type", Key::Type),
        ("text", Key::Plain),
        ("annotations", Key::Plain),
        ("logprobs", Key::Plain),
        ("refusal", Key::Plain),
        ("prompt_cache_breakpoint", Key::Settings(CACHE_BREAKPOINT)),
        ("stdout", Key::Plain),
        ("stderr", Key::Plain),
        ("outcome", Key::Plain),
        ("image_url", Key::Medium(MediaShape::Url)),
        ("detail", Key::Detail),
        ("filename", Key::Plain),
        ("file_data", Key::Medium(MediaShape::File)),
    ],
    kinds: &[
        bytes("input_text", &["text"]),
        bytes("output_text", &["text"]),
        bytes("summary_text", &["text"]),
        bytes("reasoning_text", &["text"]),
        bytes("text", &["text"]),
        bytes("refusal", &["refusal"]),
        // What a shell has printed.
        bytes("", &["stdout"]),
        bytes("input_image", &["image_url"]),
        bytes("input_file", &["file_data"]),
        bytes("computer_screenshot", &["image_url"]),
    ],
};
