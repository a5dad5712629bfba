//! Allowlist of `generateContent` over upstreams with Google's protocol.
//!
//! Fields, parts and tools: the Gemini API's reference, "Generating content", and that of Vertex AI.
//! Fields have two names there. What has a price of its own needs one: searches, tiers. Left out are
//! `cachedContent`, which the operator's account keeps, maps, stores of files and computers.

use super::Field::Plain;
use super::{
    Allowlist, Field, Key, Kind, MediaShape, ObjectTable, RereadBilling, ServerTool, Size, Tool,
    ToolContextCost, ToolKey, Unit,
};

pub(in super::super) static GEMINI: Allowlist = Allowlist {
    fields: &[
        ("contents", Field::Items(&CONTENTS)),
        ("generationConfig", Plain),
        ("generation_config", Plain),
        ("systemInstruction", Field::Items(&CONTENTS)),
        ("system_instruction", Field::Items(&CONTENTS)),
        ("tools", Field::Tools),
        ("toolConfig", Plain),
        ("tool_config", Plain),
        ("safetySettings", Plain),
        ("safety_settings", Plain),
        ("labels", Plain),
        ("serviceTier", Field::Words(&["standard"])),
        ("service_tier", Field::Words(&["standard"])),
    ],
    tools: &[declared("functionDeclarations"), declared("function_declarations")],
    server_tools: &[
        searches("googleSearch"),
        searches("google_search"),
        searches("googleSearchRetrieval"),
        searches("google_search_retrieval"),
        // What they read and write is billed as tokens, and as nothing else.
        unpriced("codeExecution"),
        unpriced("code_execution"),
        unpriced("urlContext"),
        unpriced("url_context"),
    ],
    tool_keys: &[
        ("functionDeclarations", ToolKey::Needed),
        ("function_declarations", ToolKey::Needed),
    ],
};

const fn declared(key: &'static str) -> Tool {
    Tool { name: "", is_dated: false, needs: Some((key, "")), added_tokens: Some(0) }
}

const fn searches(name: &'static str) -> ServerTool {
    ServerTool { name, is_dated: false, unit: Some(Unit::WebSearches), result: Some(SEARCH) }
}

const fn unpriced(name: &'static str) -> ServerTool {
    ServerTool { name, is_dated: false, unit: None, result: None }
}

/// Google's page "Gemini Developer API pricing" and that of Vertex AI: each query, or each prompt with any, has
/// a price, and what Google finds is not charged as input. The size is a reserve. No field bounds the queries.
const SEARCH: ToolContextCost =
    ToolContextCost { tokens: 800, entry_tokens: None, reread: RereadBilling::Free, limit: None };

static CONTENTS: ObjectTable = ObjectTable {
    what: "content",
    keys: &[("role", Key::Plain), ("parts", Key::Items(&PARTS))],
    kinds: &[Kind { name: "", size: Size::Bytes(&["parts"]) }],
};

/// Parts, which Gemini distinguishes by their keys.
static PARTS: ObjectTable = ObjectTable {
    what: "a part",
    keys: &[
        ("text", Key::Plain),
        ("functionCall", Key::Plain),
        ("functionResponse", Key::Items(&RESPONSE)),
        ("inlineData", Key::Medium(MediaShape::Blob)),
        ("fileData", Key::File),
        ("thought", Key::Plain),
        ("thoughtSignature", Key::Opaque),
        ("videoMetadata", Key::Media),
        ("mediaResolution", Key::Detail),
        // What the upstream ran, and what came of it.
        ("executableCode", Key::Plain),
        ("codeExecutionResult", Key::Plain),
        ("function_call", Key::Plain),
        ("function_response", Key::Items(&RESPONSE)),
        ("inline_data", Key::Medium(MediaShape::Blob)),
        ("file_data", Key::File),
        ("thought_signature", Key::Opaque),
        ("video_metadata", Key::Media),
        ("media_resolution", Key::Detail),
        ("executable_code", Key::Plain),
        ("code_execution_result", Key::Plain),
    ],
    kinds: &[Kind { name: "", size: Size::Bytes(&[]) }],
};

static RESPONSE: ObjectTable = ObjectTable {
    what: "the result of a function",
    keys: &[
        ("id", Key::Plain),
        ("name", Key::Plain),
        ("response", Key::Plain),
        ("parts", Key::Items(&PARTS)),
        ("willContinue", Key::Plain),
        ("will_continue", Key::Plain),
        ("scheduling", Key::Plain),
    ],
    kinds: &[Kind { name: "", size: Size::Bytes(&["response"]) }],
};
