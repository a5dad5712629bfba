//! Validation of Responses requests as OpenAI does it.

use serde_json::Value;

use super::models::{self, Fact};
use super::openai_chat::{
    choice_without_tools, effort, empty_tools, is_odd_picture, least, long_word, metadata,
    sampling, sampling_range, says_json,
};
use super::{
    StrictRequest, StrictRule, ViolationWords, found, has, is_word, list, schema, text, unknown_key,
};

/// The reference of the endpoint, where nothing better shows a rule.
const REFERENCE: &str = "https://platform.openai.com/docs/api-reference/responses/create";
/// The reference of the items of an input.
const ITEMS: &str =
    "https://platform.openai.com/docs/api-reference/responses/create#responses-create-input";
/// Documentation of strict schemas.
const STRICT_GUIDE: &str =
    "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas";

/// The rules, in the order in which they are checked.
pub(super) const RULES: &[StrictRule] = &[
    StrictRule {
        name: "unknown-parameter",
        source: "https://github.com/bestruirui/octopus/issues/31",
        words: "Unknown parameter: '{}'.",
        check: |request| unknown_key(request.body, &FIELDS).and_then(|key| found![key]),
        taken: r#"{"store": false, "include": ["reasoning.encrypted_content"]}"#,
        refused: r#"{"stop": ["a"]}"#,
    },
    StrictRule {
        name: "unknown-item-parameter",
        source: "https://github.com/pydantic/pydantic-ai/issues/3653",
        words: "Unknown parameter: 'input[{}].{}'.",
        check: unknown_item_key,
        taken: r#"{"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}"#,
        refused: r#"{"input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "cache_control": {}}]}]}"#,
    },
    StrictRule {
        name: "input-needed",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-input",
        words: "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
        check: |request| {
            let has_content = match &request.body["input"] {
                Value::String(_) => true,
                Value::Array(items) => !items.is_empty(),
                _ => false,
            };
            (!has_content && !has(request.body, "previous_response_id")).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"input": []}"#,
    },
    StrictRule {
        name: "item-kind",
        source: ITEMS,
        words: "Invalid value: '{}'. Supported values are: {}.",
        check: |request| {
            let mut items = list(request.body, "input").iter();
            let odd = items.find(|item| !ITEM_KINDS.contains(&kind_of(item)))?;
            found![kind_of(odd), ITEM_KINDS.join(", ")]
        },
        taken: r#"{"input": [{"type": "message", "role": "user", "content": "a"}]}"#,
        refused: r#"{"input": [{"type": "text", "text": "a"}]}"#,
    },
    StrictRule {
        name: "role",
        source: ITEMS,
        words: "Invalid value: '{}'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
        check: |request| {
            let allowed = ["user", "assistant", "system", "developer"];
            let mut messages = messages(request);
            let (_, odd) = messages.find(|(_, item)| !allowed.contains(&text(item, "role")))?;
            found![text(odd, "role")]
        },
        taken: r#"{"input": [{"role": "developer", "content": "a"}]}"#,
        refused: r#"{"input": [{"role": "tool", "content": "a"}]}"#,
    },
    StrictRule {
        name: "content",
        source: ITEMS,
        words: "Invalid type for 'input[{}].content': expected one of an array of objects or string, but got null or an empty array instead.",
        check: |request| {
            let lacks =
                |item: &Value| !item["content"].is_string() && list(item, "content").is_empty();
            let (place, _) = messages(request).find(|(_, item)| lacks(item))?;
            found![place]
        },
        taken: "{}",
        refused: r#"{"input": [{"role": "user", "content": []}]}"#,
    },
    StrictRule {
        name: "content-part",
        source: "https://github.com/MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark/issues/138; https://platform.openai.com/docs/api-reference/responses/create#responses-create-input",
        words: "Invalid value: '{}'. Supported values are: {}.",
        check: content_part,
        taken: r#"{"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]}"#,
        refused: r#"{"input": [{"role": "user", "content": [{"type": "output_text", "text": "a"}]}]}"#,
    },
    StrictRule {
        name: "picture-type",
        source: "https://platform.openai.com/docs/guides/images-vision#image-input-requirements",
        words: "Invalid 'input[{}].content': The image data you provided does not represent a valid image. Please check your input and try again with one of the supported image formats: ['image/jpeg', 'image/png', 'image/gif', 'image/webp'].",
        check: |request| {
            for (place, item) in list(request.body, "input").iter().enumerate() {
                let parts = list(item, "content").iter().chain(list(item, "output"));
                if parts.map(|part| text(part, "image_url")).any(is_odd_picture) {
                    return found![place];
                }
            }
            None
        },
        taken: r#"{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]}]}"#,
        refused: r#"{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/tiff;base64,SUkqAA=="}]}]}"#,
    },
    StrictRule {
        name: "item-id",
        source: "https://github.com/Wei-Shaw/sub2api/issues/3785; https://github.com/continuedev/continue/issues/11689",
        words: "Invalid 'input[{}].id': '{}'. Expected an ID that begins with '{}'.",
        check: item_id,
        taken: r#"{"input": [{"role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "a"}]}]}"#,
        refused: r#"{"input": [{"type": "function_call", "id": "call_1", "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "b"}]}"#,
    },
    StrictRule {
        name: "item-id-length",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-input",
        words: "Invalid 'input[{}].id': string too long. Expected a string with maximum length 64, but got a string with length {} instead.",
        check: |request| {
            for (place, item) in list(request.body, "input").iter().enumerate() {
                let length = text(item, "id").len();
                // The ids of thoughts are longer.
                if length > 64 && kind_of(item) != "reasoning" {
                    return found![place, length];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"input": [{"role": "assistant", "id": "msg_2345678901234567890123456789012345678901234567890123456789012345", "content": [{"type": "output_text", "text": "a"}]}]}"#,
    },
    StrictRule {
        name: "call-id",
        source: "https://github.com/openclaw/openclaw/pull/875; https://github.com/archestra-ai/archestra/issues/401",
        words: "Invalid 'input[{}].call_id': string of length {}. Expected a string with minimum length 1 and maximum length 64.",
        check: |request| {
            for (place, item) in list(request.body, "input").iter().enumerate() {
                let length = text(item, "call_id").len();
                let needs = CALLS.contains(&kind_of(item)) || OUTPUTS.contains(&kind_of(item));
                if needs && !(1..=64).contains(&length) {
                    return found![place, length];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"input": [{"type": "function_call", "call_id": "", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "", "output": "b"}]}"#,
    },
    StrictRule {
        name: "calls-answered",
        source: "https://github.com/continuedev/continue/pull/11785",
        words: "No tool output found for function call {}.",
        check: unanswered_call,
        taken: r#"{"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "b"}]}"#,
        refused: r#"{"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"role": "user", "content": "b"}]}"#,
    },
    StrictRule {
        name: "results-behind-calls",
        source: "https://github.com/continuedev/continue/pull/11785",
        words: "No tool call found for function call output with call_id {}.",
        check: stray_result,
        taken: "{}",
        refused: r#"{"input": [{"type": "function_call_output", "call_id": "c", "output": "b"}]}"#,
    },
    StrictRule {
        name: "call-name",
        source: ITEMS,
        words: "Invalid 'input[{}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        check: |request| {
            for (place, item) in list(request.body, "input").iter().enumerate() {
                let name = text(item, "name");
                if CALLS.contains(&kind_of(item)) && (!is_word(name, "_-") || name.len() > 128) {
                    return found![place];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"input": [{"type": "function_call", "call_id": "c", "name": "f.g", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "b"}]}"#,
    },
    StrictRule {
        name: "reasoning-followed",
        source: "https://github.com/continuedev/continue/pull/11785",
        words: "Item '{}' of type 'reasoning' was provided without its required following item.",
        check: lone_reasoning,
        taken: r#"{"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}, {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]}"#,
        refused: r#"{"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}, {"role": "user", "content": "a"}]}"#,
    },
    StrictRule {
        name: "reasoning-summary",
        source: "https://github.com/anomalyco/opencode/issues/25065",
        words: "Missing required parameter: 'input[{}].{}'.",
        check: |request| {
            for (place, item) in list(request.body, "input").iter().enumerate() {
                if kind_of(item) != "reasoning" {
                    continue;
                }
                if !item["summary"].is_array() {
                    return found![place, "summary"];
                }
                if text(item, "id").is_empty() {
                    return found![place, "id"];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, {"role": "assistant", "content": "a"}]}"#,
    },
    StrictRule {
        name: "reasoning-of-others",
        source: "https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items",
        words: "Encrypted content is not supported with this model.",
        check: |request| {
            let is_plain = request.model.starts_with("gpt-4");
            let wants =
                list(request.body, "include").iter().any(|it| it == "reasoning.encrypted_content");
            (is_plain && wants).then(Vec::new)
        },
        taken: r#"{"include": ["reasoning.encrypted_content"]}"#,
        refused: r#"{"model": "gpt-4.1", "include": ["reasoning.encrypted_content"]}"#,
    },
    StrictRule {
        name: "effort-word",
        source: "https://github.com/openai/openai-agents-python/issues/2089",
        words: "Unsupported value: '{}' is not supported with this model. Supported values are: {}.",
        check: |request| effort(request.model, text(&request.body["reasoning"], "effort")),
        taken: r#"{"reasoning": {"effort": "none"}}"#,
        refused: r#"{"reasoning": {"effort": "minimal"}}"#,
    },
    StrictRule {
        name: "effort-of-others",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-reasoning",
        words: "Unsupported parameter: 'reasoning.{}' is not supported with this model.",
        check: |request| {
            let is_plain = request.model.starts_with("gpt-4");
            let key = request.body.get("reasoning")?.as_object()?.keys().next()?;
            if is_plain { found![key] } else { None }
        },
        taken: r#"{"model": "gpt-4.1"}"#,
        refused: r#"{"model": "gpt-4.1", "reasoning": {"effort": "low"}}"#,
    },
    StrictRule {
        name: "max-output-tokens",
        source: "https://github.com/BerriAI/litellm/issues/31451",
        words: "Invalid '{}': integer below minimum value. Expected a value >= 16, but got {} instead.",
        check: |request| least(request, &["max_output_tokens"], 16.0),
        taken: r#"{"max_output_tokens": 16}"#,
        refused: r#"{"max_output_tokens": 1}"#,
    },
    StrictRule {
        name: "sampling-of-reasoning-models",
        source: "https://github.com/appatalks/eva-agent/issues/83",
        words: "Unsupported parameter: '{}' is not supported with this model.",
        check: |request| {
            let effort = text(&request.body["reasoning"], "effort");
            sampling(request, effort).and_then(|field| found![field])
        },
        taken: r#"{"temperature": 1}"#,
        refused: r#"{"top_p": 0.5}"#,
    },
    StrictRule {
        name: "sampling-range",
        source: REFERENCE,
        words: "Invalid '{}': decimal above maximum value. Expected a value <= {}, but got {} instead.",
        check: sampling_range,
        taken: "{}",
        refused: r#"{"model": "gpt-4.1", "temperature": 2.5}"#,
    },
    StrictRule {
        name: "tools-empty",
        source: REFERENCE,
        words: "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        // The endpoint takes an empty list; `null` and none at all are better.
        check: |request| empty_tools(request).filter(|_| has(request.body, "tool_choice")),
        taken: r#"{"tools": []}"#,
        refused: r#"{"tools": [], "tool_choice": "required"}"#,
    },
    StrictRule {
        name: "tool-name-letters",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-tools",
        words: "Invalid 'tools[{}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        check: |request| {
            functions(request)
                .find(|(_, tool)| !is_word(text(tool, "name"), "_-"))
                .and_then(|(place, _)| found![place])
        },
        taken: r#"{"tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": false}]}"#,
        refused: r#"{"tools": [{"type": "function", "name": "f.g", "parameters": {"type": "object", "properties": {}}, "strict": false}]}"#,
    },
    StrictRule {
        name: "tool-name-length",
        source: "https://github.com/openai/codex/issues/46188; https://github.com/openai/codex/issues/46358",
        words: "Invalid 'tools[{}].name': string too long. Expected a string with maximum length 64, but got a string with length {} instead.",
        check: |request| {
            let (place, tool) =
                functions(request).find(|(_, tool)| text(tool, "name").len() > 64)?;
            found![place, text(tool, "name").len()]
        },
        taken: "{}",
        refused: r#"{"tools": [{"type": "function", "name": "a2345678901234567890123456789012345678901234567890123456789012345", "parameters": {"type": "object", "properties": {}}, "strict": false}]}"#,
    },
    StrictRule {
        name: "tool-schema",
        source: "https://github.com/bnb-chain/bnbchain-mcp/issues/68",
        words: "Invalid schema for function '{}': In context={}, {}",
        check: |request| {
            for (_, tool) in functions(request) {
                let Some(parameters) = tool.get("parameters").filter(|it| !it.is_null()) else {
                    continue;
                };
                if let Some(fault) = schema::openai(parameters) {
                    return found![text(tool, "name"), fault.place, fault.words];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": false}]}"#,
    },
    StrictRule {
        name: "tool-schema-strict",
        source: STRICT_GUIDE,
        words: "Invalid schema for function '{}': In context={}, {}",
        check: |request| {
            for (_, tool) in functions(request).filter(|(_, tool)| tool["strict"] == true) {
                if let Some(fault) = schema::openai_strict(&tool["parameters"]) {
                    return found![text(tool, "name"), fault.place, fault.words];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": true}]}"#,
    },
    StrictRule {
        name: "choice-without-tools",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-tool_choice",
        words: "Invalid value for '{}': '{}' is only allowed when 'tools' are specified.",
        check: |request| {
            choice_without_tools(request)
                // Both can be kept without a tool.
                .filter(|_| !["auto", "none"].contains(&text(request.body, "tool_choice")))
        },
        taken: r#"{"tool_choice": "auto"}"#,
        refused: r#"{"tool_choice": "required"}"#,
    },
    StrictRule {
        name: "choice-names-a-tool",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-tool_choice",
        words: "Tool choice '{}' not found in 'tools' parameter.",
        check: |request| {
            let name = request.body["tool_choice"].get("name")?.as_str()?;
            let is_there = list(request.body, "tools").iter().any(|tool| tool["name"] == name);
            if is_there { None } else { found![name] }
        },
        taken: "{}",
        refused: r#"{"tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": false}], "tool_choice": {"type": "function", "name": "g"}}"#,
    },
    StrictRule {
        name: "json-word",
        source: "https://platform.openai.com/docs/guides/structured-outputs#json-mode",
        words: "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.",
        check: |request| {
            let refuses = request.body["text"]["format"]["type"] == "json_object"
                && !says_json(&request.body["input"]);
            refuses.then(Vec::new)
        },
        taken: r#"{"input": "As JSON", "text": {"format": {"type": "json_object"}}}"#,
        refused: r#"{"text": {"format": {"type": "json_object"}}}"#,
    },
    StrictRule {
        name: "answer-schema-name",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-text",
        words: "Invalid 'text.format.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        check: |request| {
            let format = request.body["text"].get("format")?;
            let name = text(format, "name");
            let is_odd = !is_word(name, "_-") || name.len() > 64;
            (format["type"] == "json_schema" && is_odd).then(Vec::new)
        },
        taken: r#"{"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object", "properties": {}, "additionalProperties": false}, "strict": true}}}"#,
        refused: r#"{"text": {"format": {"type": "json_schema", "name": "a b", "schema": {"type": "object", "properties": {}}}}}"#,
    },
    StrictRule {
        name: "answer-schema",
        source: STRICT_GUIDE,
        words: "Invalid schema for response_format '{}': In context={}, {}",
        check: |request| {
            let format = request.body["text"].get("format")?;
            if format["type"] != "json_schema" || format["strict"] != true {
                return None;
            }
            let fault = schema::openai_strict(&format["schema"])?;
            found![text(format, "name"), fault.place, fault.words]
        },
        taken: "{}",
        refused: r#"{"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object", "properties": {}}, "strict": true}}}"#,
    },
    StrictRule {
        name: "verbosity",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-text",
        words: "Invalid value: '{}'. Supported values are: 'low', 'medium', and 'high'.",
        check: |request| {
            let word = text(&request.body["text"], "verbosity");
            if ["", "low", "medium", "high"].contains(&word) { None } else { found![word] }
        },
        taken: r#"{"text": {"verbosity": "low"}}"#,
        refused: r#"{"text": {"verbosity": "max"}}"#,
    },
    StrictRule {
        name: "length",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-prompt_cache_key",
        words: "Invalid '{}': string too long. Expected a string with maximum length 64, but got a string with length {} instead.",
        check: long_word,
        taken: r#"{"safety_identifier": "a", "prompt_cache_key": "b"}"#,
        refused: r#"{"safety_identifier": "a2345678901234567890123456789012345678901234567890123456789012345"}"#,
    },
    StrictRule {
        name: "metadata",
        source: "https://platform.openai.com/docs/api-reference/responses/create#responses-create-metadata",
        words: "Invalid 'metadata': {}",
        check: metadata,
        taken: "{}",
        refused: r#"{"metadata": {"a": 1}}"#,
    },
];

/// Fields at the top of a request.
const FIELDS: [&str; 32] = [
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "client_metadata",
];
/// Values of `type` that items of `input` may have.
const ITEM_KINDS: [&str; 25] = [
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "custom_tool_call",
    "custom_tool_call_output",
    "item_reference",
    "web_search_call",
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "compaction",
    "additional_tools",
];
/// Items that call a tool of the customer's.
const CALLS: [&str; 2] = ["function_call", "custom_tool_call"];
/// Items that answer one.
const OUTPUTS: [&str; 2] = ["function_call_output", "custom_tool_call_output"];

/// The kind of an item; a message needs none.
fn kind_of(item: &Value) -> &str {
    match item.get("type").and_then(Value::as_str) {
        Some(kind) => kind,
        None if has(item, "role") => "message",
        None => "",
    }
}

fn messages<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = (usize, &'r Value)> + use<'r> {
    list(request.body, "input").iter().enumerate().filter(|(_, item)| kind_of(item) == "message")
}

fn functions<'r>(
    request: &StrictRequest<'r>,
) -> impl Iterator<Item = (usize, &'r Value)> + use<'r> {
    let is_own = |kind: &str| kind == "function" || kind == "custom";
    let tools = list(request.body, "tools").iter().enumerate();
    tools.filter(move |(_, tool)| is_own(text(tool, "type")))
}

fn unknown_item_key(request: &StrictRequest<'_>) -> ViolationWords {
    let part_fields = [
        "type",
        "text",
        "image_url",
        "detail",
        "file_id",
        "file_data",
        "file_url",
        "filename",
        "annotations",
        "logprobs",
        "refusal",
        "input_audio",
        "prompt_cache_breakpoint",
    ];
    for (place, item) in list(request.body, "input").iter().enumerate() {
        let allowed: &[&str] = match kind_of(item) {
            "message" => &["type", "role", "content", "id", "status", "phase"],
            "function_call" => {
                &["type", "id", "call_id", "name", "arguments", "status", "namespace", "caller"]
            }
            "function_call_output" | "custom_tool_call_output" => {
                &["type", "id", "call_id", "output", "status", "caller"]
            }
            "custom_tool_call" => {
                &["type", "id", "call_id", "name", "input", "status", "namespace"]
            }
            "reasoning" => &["type", "id", "summary", "content", "encrypted_content", "status"],
            _ => continue,
        };
        if let Some(key) = unknown_key(item, allowed) {
            return found![place, key];
        }
        for key in ["content", "output"] {
            for (part_place, part) in list(item, key).iter().enumerate() {
                if let Some(odd) = unknown_key(part, &part_fields) {
                    return found![place, format!("{key}[{part_place}].{odd}")];
                }
            }
        }
    }
    None
}

fn content_part(request: &StrictRequest<'_>) -> ViolationWords {
    for item in list(request.body, "input") {
        let allowed: &[&str] = match (kind_of(item), text(item, "role")) {
            ("message", "assistant") => &["output_text", "refusal"],
            ("message", "user") => &["input_text", "input_image", "input_file", "input_audio"],
            ("message", _) => &["input_text"],
            _ => &["input_text", "input_image", "input_file"],
        };
        let key = if kind_of(item) == "message" { "content" } else { "output" };
        let mut kinds = list(item, key).iter().map(|part| text(part, "type"));
        if let Some(kind) = kinds.find(|kind| !allowed.contains(kind)) {
            return found![kind, allowed.join(", ")];
        }
    }
    None
}

fn item_id(request: &StrictRequest<'_>) -> ViolationWords {
    for (place, item) in list(request.body, "input").iter().enumerate() {
        let prefix = match kind_of(item) {
            "message" if item["role"] == "assistant" => "msg",
            "function_call" => "fc",
            "custom_tool_call" => "ctc",
            "reasoning" => "rs",
            _ => continue,
        };
        let id = text(item, "id");
        if has(item, "id") && !id.starts_with(prefix) {
            return found![place, id, prefix];
        }
    }
    None
}

fn unanswered_call(request: &StrictRequest<'_>) -> ViolationWords {
    // What went before is not in the request, where it goes on with an earlier response.
    let items = list(request.body, "input");
    for (place, item) in items.iter().enumerate() {
        if !CALLS.contains(&kind_of(item)) {
            continue;
        }
        let id = text(item, "call_id");
        let mut behind = items.get(place + 1..).unwrap_or_default().iter();
        let answers = behind.any(|next| OUTPUTS.contains(&kind_of(next)) && next["call_id"] == id);
        if !answers {
            return found![id];
        }
    }
    None
}

fn stray_result(request: &StrictRequest<'_>) -> ViolationWords {
    // The calls may stand in what the provider has stored.
    if has(request.body, "previous_response_id") || has(request.body, "conversation") {
        return None;
    }
    let mut called: Vec<&str> = Vec::new();
    for item in list(request.body, "input") {
        let id = text(item, "call_id");
        if CALLS.contains(&kind_of(item)) {
            called.push(id);
        } else if OUTPUTS.contains(&kind_of(item)) && !called.contains(&id) {
            return found![id];
        }
    }
    None
}

/// A reasoning item without its following item.
fn lone_reasoning(request: &StrictRequest<'_>) -> ViolationWords {
    if !models::is(request.model, Fact::Reasons) {
        return None;
    }
    let items = list(request.body, "input");
    // Reasoning belongs to what the model said or did next, and must be followed by that.
    let is_of_answer = |item: &Value| {
        let kind = kind_of(item);
        kind == "reasoning"
            || (kind == "message" && item["role"] == "assistant")
            || (kind.ends_with("_call") && !kind.ends_with("_output"))
    };
    for (place, item) in items.iter().enumerate() {
        if kind_of(item) == "reasoning" && !items.get(place + 1).is_some_and(is_of_answer) {
            return found![text(item, "id")];
        }
    }
    None
}
