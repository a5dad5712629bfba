//! Allowlist of messages over upstreams with Anthropic's protocol.
//!
//! Fields, blocks and tools: Anthropic's API reference, "Messages", with its betas. What has a price of
//! its own needs one: tools that the upstream runs, a faster `speed`, an `inference_geo`. Not offered are
//! `mcp_servers`, `container`, and what only the operator's account has, such as threads. What Claude
//! Code asks for with every request and does without is left out by name: a review of calls
//! (`safeguards`), another model for what one refuses (`fallbacks`), the beginning of a thread.

use super::Field::Plain;
use super::{
    Allowlist, CallLimit, Field, Key, Kind, MediaShape, ObjectTable, RereadBilling, ServerTool,
    Size, TOOLS_TOKENS_MAX, Tool, ToolContextCost, ToolKey, Unit,
};

pub(in super::super) static MESSAGES: Allowlist = Allowlist {
    fields: &[
        ("model", Plain),
        ("messages", Field::Items(&TURNS)),
        ("max_tokens", Plain),
        ("system", Field::Items(&BLOCKS)),
        ("stream", Plain),
        ("tools", Field::Tools),
        ("thinking", Plain),
        ("temperature", Plain),
        ("metadata", Plain),
        ("context_management", Field::ContextManagement),
        ("output_config", Plain),
        ("tool_choice", Plain),
        ("stop_sequences", Plain),
        ("top_p", Plain),
        ("top_k", Plain),
        ("cache_control", Plain),
        ("output_format", Plain),
        ("diagnostics", Plain),
        // The default is `auto`.
        ("service_tier", Field::Words(&["auto", "standard_only"])),
        // A faster mode has prices of its own.
        ("speed", Field::Words(&["standard"])),
        ("inference_geo", Field::Words(&["global"])),
        // Claude Code reviews calls itself where an answer has no `safeguard_results`.
        ("safeguards", Field::Omitted(None)),
        ("fallbacks", Field::Omitted(None)),
        ("fallback_credit_token", Field::Omitted(None)),
        // To go on with a thread means what is kept of it.
        ("thread", Field::Omitted(Some(("type", "create")))),
    ],
    tools: &[
        tool("", false, Some(0)),
        tool("custom", false, Some(0)),
        tool("bash_", true, Some(TOOLS_TOKENS_MAX)),
        tool("text_editor_", true, Some(TOOLS_TOKENS_MAX)),
        tool("memory_", true, Some(TOOLS_TOKENS_MAX)),
        tool("computer_", true, None),
        Tool { needs: None, ..tool("computer_toolset_", true, None) },
    ],
    server_tools: &[
        ServerTool {
            name: "web_search_",
            is_dated: true,
            unit: Some(Unit::WebSearches),
            result: Some(SEARCH),
        },
        // What is fetched is billed as input, and as long as a context.
        ServerTool { name: "web_fetch_", is_dated: true, unit: None, result: None },
        ServerTool {
            name: "code_execution_",
            is_dated: true,
            unit: Some(Unit::ContainerSessions),
            result: None,
        },
        // What is found is billed as input: no price of its own, says
        // https://docs.digitalocean.com/notes/2026/inference-tool-search/, seen 2026-11-27.
        ServerTool { name: "tool_search_tool_regex", is_dated: true, unit: None, result: None },
        ServerTool { name: "tool_search_tool_bm25", is_dated: true, unit: None, result: None },
    ],
    tool_keys: &[
        ("name", ToolKey::Needed),
        ("description", ToolKey::Plain),
        ("input_schema", ToolKey::Plain),
        ("type", ToolKey::Type),
        ("cache_control", ToolKey::Plain),
        ("strict", ToolKey::Plain),
        ("eager_input_streaming", ToolKey::Plain),
        ("defer_loading", ToolKey::Plain),
        ("allowed_callers", ToolKey::Plain),
        ("input_examples", ToolKey::Plain),
        ("max_characters", ToolKey::Plain),
        ("max_uses", ToolKey::Uses),
    ],
};

/// Anthropic's guide "Web search tool": results "are counted as input tokens, in search iterations executed
/// during a single turn and in subsequent conversation turns". It names no size; the usage of its example,
/// one search, has 7,345 tokens that are new and 7,123 that are read again.
const SEARCH: ToolContextCost = ToolContextCost {
    tokens: 8_000,
    entry_tokens: None,
    reread: RereadBilling::Input,
    limit: Some(CallLimit::Tool),
};

const fn tool(name: &'static str, is_dated: bool, added_tokens: Option<u64>) -> Tool {
    Tool { name, is_dated, needs: Some(("name", "")), added_tokens }
}

const fn bytes(name: &'static str, needs: &'static [&'static str]) -> Kind {
    Kind { name, size: Size::Bytes(needs) }
}

const fn context(name: &'static str) -> Kind {
    Kind { name, size: Size::Context }
}

static TURNS: ObjectTable = ObjectTable {
    what: "a message",
    keys: &[
        ("role", Key::Plain),
        ("content", Key::Items(&BLOCKS)),
        // Of messages whose role is `system`.
        ("clear_at", Key::Plain),
        ("output_config", Key::Plain),
        ("type", Key::Type),
    ],
    kinds: &[bytes("", &[]), bytes("message", &[])],
};

static BLOCKS: ObjectTable = ObjectTable {
    what: "content",
    keys: &[
        ("type", Key::Type),
        ("text", Key::Plain),
        ("cache_control", Key::Plain),
        ("content", Key::Items(&BLOCKS)),
        ("tool_use_id", Key::Plain),
        ("id", Key::Plain),
        ("name", Key::Plain),
        ("input", Key::Plain),
        ("is_error", Key::Plain),
        ("thinking", Key::Plain),
        ("signature", Key::Opaque),
        ("data", Key::Opaque),
        ("citations", Key::Citations),
        ("source", Key::Medium(MediaShape::Source)),
        ("title", Key::Plain),
        ("context", Key::Plain),
        ("caller", Key::Plain),
        ("toolset_name", Key::Plain),
        ("tool_name", Key::Plain),
        // Of a change of the tools: which one.
        ("tool", Key::Items(&CHANGED_TOOL)),
    ],
    kinds: &[
        bytes("text", &["text"]),
        bytes("tool_result", &[]),
        bytes("tool_use", &["input"]),
        bytes("thinking", &["thinking"]),
        bytes("redacted_thinking", &["data"]),
        bytes("image", &["source"]),
        bytes("document", &["source"]),
        context("search_result"),
        // A definition of a tool that stands in `tools`, once more.
        Kind { name: "tool_reference", size: Size::ToolAgain },
        Kind { name: "tool_addition", size: Size::ToolAgain },
        bytes("tool_removal", &["tool"]),
        context("compaction"),
        context("fallback"),
        context("server_tool_use"),
        context("web_search_tool_result"),
        context("web_fetch_tool_result"),
        context("code_execution_tool_result"),
        context("bash_code_execution_tool_result"),
        context("text_editor_code_execution_tool_result"),
        context("tool_search_tool_result"),
        context("advisor_tool_result"),
        context("mcp_tool_use"),
        context("mcp_tool_result"),
    ],
};

/// A tool that a message adds or takes away: Anthropic's documentation, "Mid-conversation system messages
/// and tool changes".
static CHANGED_TOOL: ObjectTable = ObjectTable {
    what: "a changed tool",
    keys: &[("type", Key::Type), ("name", Key::Plain), ("definition", Key::Definition)],
    kinds: &[bytes("tool_reference", &["name"]), bytes("tool_definition", &["definition"])],
};
