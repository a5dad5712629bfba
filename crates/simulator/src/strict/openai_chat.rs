//! Validation of chat completions as OpenAI does it.

use serde_json::Value;

use super::models::{self, Fact};
use super::{
    StrictRequest, StrictRule, ViolationWords, duplicate, found, has, is_word, list, media, schema,
    text, unknown_key,
};

/// The reference of the endpoint, where nothing better shows a rule.
const REFERENCE: &str = "https://platform.openai.com/docs/api-reference/chat/create";
/// Documentation of strict schemas.
const STRICT_GUIDE: &str =
    "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas";

/// The rules, in the order in which they are checked.
pub(super) const RULES: &[StrictRule] = &[
    StrictRule {
        name: "unknown-parameter",
        source: "https://github.com/teabranch/open-responses-server/issues/41",
        words: "Unknown parameter: '{}'.",
        check: unknown_parameter,
        taken: r#"{"seed": 1, "store": false, "metadata": {"a": "b"}}"#,
        refused: r#"{"top_k": 4}"#,
    },
    StrictRule {
        name: "unknown-message-parameter",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages",
        words: "Unknown parameter: 'messages[{}].{}'.",
        check: unknown_message_key,
        taken: r#"{"messages": [{"role": "user", "content": "a", "name": "b"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "a", "cache_control": {"type": "ephemeral"}}]}"#,
    },
    StrictRule {
        name: "messages-needed",
        source: REFERENCE,
        words: "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        check: |request| list(request.body, "messages").is_empty().then(Vec::new),
        taken: "{}",
        refused: r#"{"messages": []}"#,
    },
    StrictRule {
        name: "role",
        source: REFERENCE,
        words: "Invalid value: '{}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
        check: role,
        taken: r#"{"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "model", "content": "a"}]}"#,
    },
    StrictRule {
        name: "content",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages",
        words: "Invalid value for 'content': expected a string, got null.",
        check: content,
        taken: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": null}]}"#,
    },
    StrictRule {
        name: "content-part",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages",
        words: "Invalid value: '{}'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal', 'audio', and 'file'.",
        check: content_part,
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}"#,
    },
    StrictRule {
        name: "picture-type",
        source: "https://platform.openai.com/docs/guides/images-vision#image-input-requirements",
        words: "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].",
        check: picture,
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/tiff;base64,SUkqAA=="}}]}]}"#,
    },
    StrictRule {
        name: "calls-answered",
        source: "https://platform.openai.com/docs/guides/function-calling#handling-function-calls",
        words: "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        check: unanswered_call,
        taken: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "user", "content": "b"}]}"#,
    },
    StrictRule {
        name: "results-behind-calls",
        source: "https://platform.openai.com/docs/guides/function-calling#handling-function-calls",
        words: "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        check: stray_result,
        taken: "{}",
        refused: r#"{"messages": [{"role": "tool", "tool_call_id": "c", "content": "b"}]}"#,
    },
    StrictRule {
        name: "call-id-length",
        source: "https://github.com/agno-agi/agno/issues/5382; https://github.com/Portkey-AI/gateway/issues/1062",
        words: "Invalid 'messages[{}].tool_calls[{}].id': string too long. Expected a string with maximum length 40, but got a string with length {} instead.",
        check: call_id,
        taken: r#"{"messages": [{"role": "assistant", "tool_calls": [{"id": "0123456789012345678901234567890123456789", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "0123456789012345678901234567890123456789", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "assistant", "tool_calls": [{"id": "01234567890123456789012345678901234567890", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "01234567890123456789012345678901234567890", "content": "b"}]}"#,
    },
    StrictRule {
        name: "call-name",
        source: REFERENCE,
        words: "Invalid 'messages[{}].tool_calls[{}].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        check: call_name,
        taken: "{}",
        refused: r#"{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f.g", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "b"}]}"#,
    },
    StrictRule {
        name: "tools-empty",
        source: REFERENCE,
        words: "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        check: empty_tools,
        taken: r#"{"tools": null}"#,
        refused: r#"{"tools": []}"#,
    },
    StrictRule {
        name: "tools-most",
        source: "https://github.com/zed-industries/zed/issues/42393",
        words: "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length {} instead.",
        check: |request| {
            let count = list(request.body, "tools").len();
            if count > 128 { found![count] } else { None }
        },
        taken: "{}",
        refused: TOO_MANY_TOOLS,
    },
    StrictRule {
        name: "tool-name-letters",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tools",
        words: "Invalid 'tools[{}].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        check: |request| {
            let odd = |(_, name): &(usize, &str)| !is_word(name, "_-");
            tool_names(request).find(odd).and_then(|(place, _)| found![place])
        },
        taken: r#"{"tools": [{"type": "function", "function": {"name": "a_b-c"}}]}"#,
        refused: r#"{"tools": [{"type": "function", "function": {"name": "a.b"}}]}"#,
    },
    StrictRule {
        name: "tool-name-length",
        source: "https://github.com/openai/codex/issues/46188",
        words: "Invalid 'tools[{}].function.name': string too long. Expected a string with maximum length 64, but got a string with length {} instead.",
        check: |request| {
            let long = |(_, name): &(usize, &str)| name.len() > 64;
            tool_names(request).find(long).and_then(|(place, name)| found![place, name.len()])
        },
        taken: "{}",
        refused: r#"{"tools": [{"type": "function", "function": {"name": "a2345678901234567890123456789012345678901234567890123456789012345"}}]}"#,
    },
    StrictRule {
        name: "tool-schema",
        source: "https://github.com/bnb-chain/bnbchain-mcp/issues/68; https://github.com/ooples/token-optimizer-mcp/pull/154",
        words: "Invalid schema for function '{}': In context={}, {}",
        check: tool_schema,
        taken: r#"{"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]}"#,
        refused: r#"{"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}"#,
    },
    StrictRule {
        name: "tool-schema-strict",
        source: STRICT_GUIDE,
        words: "Invalid schema for function '{}': In context={}, {}",
        check: strict_tool,
        taken: r#"{"tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}}}]}"#,
        refused: r#"{"tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}}}]}"#,
    },
    StrictRule {
        name: "choice-without-tools",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-tool_choice",
        words: "Invalid value for '{}': '{}' is only allowed when 'tools' are specified.",
        check: choice_without_tools,
        taken: r#"{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required", "parallel_tool_calls": false}"#,
        refused: r#"{"tool_choice": "auto"}"#,
    },
    StrictRule {
        name: "choice-names-a-tool",
        source: REFERENCE,
        words: "Invalid value for 'tool_choice': tool '{}' not found in 'tools' parameter.",
        check: |request| {
            let choice = &request.body["tool_choice"];
            let name = text(choice.get("function").or_else(|| choice.get("custom"))?, "name");
            let is_there = tool_names(request).any(|(_, tool)| tool == name);
            if is_there { None } else { found![name] }
        },
        taken: r#"{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "f"}}}"#,
        refused: r#"{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}}"#,
    },
    StrictRule {
        name: "tools-over-responses-only",
        source: "https://platform.openai.com/docs/guides/latest-model",
        words: "Function tools with reasoning_effort are not supported for {} in /v1/chat/completions. Please use /v1/responses instead.",
        check: |request| {
            let refuses = models::is(request.model, Fact::NoToolsOverChat)
                && !list(request.body, "tools").is_empty()
                && text(request.body, "reasoning_effort") != "none";
            if refuses { found![request.model] } else { None }
        },
        taken: r#"{"model": "gpt-6-sol", "reasoning_effort": "none", "tools": [{"type": "function", "function": {"name": "f"}}]}"#,
        refused: r#"{"model": "gpt-5.4", "tools": [{"type": "function", "function": {"name": "f"}}]}"#,
    },
    StrictRule {
        name: "max-tokens",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-max_tokens",
        words: "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        check: |request| {
            let refuses =
                models::is(request.model, Fact::Reasons) && has(request.body, "max_tokens");
            refuses.then(Vec::new)
        },
        taken: r#"{"max_completion_tokens": 1}"#,
        refused: r#"{"max_tokens": 1}"#,
    },
    StrictRule {
        name: "max-tokens-least",
        source: REFERENCE,
        words: "Invalid '{}': integer below minimum value. Expected a value >= 1, but got {} instead.",
        check: |request| least(request, &["max_tokens", "max_completion_tokens"], 1.0),
        taken: r#"{"max_completion_tokens": 1}"#,
        refused: r#"{"max_completion_tokens": 0}"#,
    },
    StrictRule {
        name: "sampling-of-reasoning-models",
        source: "https://github.com/Chatbox-AI/chatbox/issues/2627; https://github.com/OpenHands/software-agent-sdk/issues/1837",
        words: "Unsupported value: '{}' does not support {} with this model. Only the default (1) value is supported.",
        check: |request| {
            let field = sampling(request, text(request.body, "reasoning_effort"))?;
            found![field, request.body[field]]
        },
        taken: r#"{"temperature": 1}"#,
        refused: r#"{"temperature": 0.2}"#,
    },
    StrictRule {
        name: "sampling-range",
        source: REFERENCE,
        words: "Invalid '{}': decimal above maximum value. Expected a value <= {}, but got {} instead.",
        check: sampling_range,
        taken: r#"{"model": "gpt-4.1", "temperature": 2}"#,
        refused: r#"{"model": "gpt-4.1", "temperature": 2.5}"#,
    },
    StrictRule {
        name: "stop-unsupported",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-stop",
        words: "Unsupported parameter: 'stop' is not supported with this model.",
        check: |request| {
            let refuses = models::is(request.model, Fact::NoStop) && has(request.body, "stop");
            refuses.then(Vec::new)
        },
        taken: r#"{"model": "gpt-4.1", "stop": ["a"]}"#,
        refused: r#"{"model": "o3", "stop": ["a"]}"#,
    },
    StrictRule {
        name: "stop-most",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-stop",
        words: "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length {} instead.",
        check: |request| {
            let count = list(request.body, "stop").len();
            if count > 4 { found![count] } else { None }
        },
        taken: r#"{"stop": ["a", "b", "c", "d"]}"#,
        refused: r#"{"stop": ["a", "b", "c", "d", "e"]}"#,
    },
    StrictRule {
        name: "stop-empty",
        source: REFERENCE,
        words: "Invalid 'stop[{}]': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        check: |request| {
            let place = list(request.body, "stop").iter().position(|stop| stop == "")?;
            found![place]
        },
        taken: r#"{"stop": [" "]}"#,
        refused: r#"{"stop": [""]}"#,
    },
    StrictRule {
        name: "effort-word",
        source: "https://github.com/anomalyco/opencode/issues/4451; https://github.com/kaitranntt/ccs/issues/344",
        words: "Unsupported value: 'reasoning_effort' does not support '{}' with this model. Supported values are: {}.",
        check: |request| effort(request.model, text(request.body, "reasoning_effort")),
        taken: r#"{"reasoning_effort": "none"}"#,
        refused: r#"{"reasoning_effort": "minimal"}"#,
    },
    StrictRule {
        name: "effort-of-others",
        source: "https://github.com/cursor/cursor/issues/2786",
        words: "Unrecognized request argument supplied: reasoning_effort",
        check: |request| {
            let allowed =
                request.model.starts_with("gpt-4") && has(request.body, "reasoning_effort");
            allowed.then(Vec::new)
        },
        taken: r#"{"model": "gpt-4.1"}"#,
        refused: r#"{"model": "gpt-4.1", "reasoning_effort": "low"}"#,
    },
    StrictRule {
        name: "json-word",
        source: "https://platform.openai.com/docs/guides/structured-outputs#json-mode",
        words: "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        check: |request| {
            let refuses = request.body["response_format"]["type"] == "json_object"
                && !says_json(&request.body["messages"]);
            refuses.then(Vec::new)
        },
        taken: r#"{"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "As JSON"}]}"#,
        refused: r#"{"response_format": {"type": "json_object"}}"#,
    },
    StrictRule {
        name: "answer-schema-name",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-response_format",
        words: "Invalid 'response_format.json_schema.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        check: |request| {
            let format = request.body["response_format"].get("json_schema")?;
            let name = text(format, "name");
            (!is_word(name, "_-") || name.len() > 64).then(Vec::new)
        },
        taken: r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}}"#,
        refused: r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {"type": "object"}}}}"#,
    },
    StrictRule {
        name: "answer-schema",
        source: STRICT_GUIDE,
        words: "Invalid schema for response_format '{}': In context={}, {}",
        check: answer_schema,
        taken: r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"], "additionalProperties": false}}}}"#,
        refused: r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}"#,
    },
    StrictRule {
        name: "length",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-safety_identifier",
        words: "Invalid '{}': string too long. Expected a string with maximum length 64, but got a string with length {} instead.",
        check: long_word,
        taken: r#"{"safety_identifier": "0123456789", "prompt_cache_key": "a", "user": "b"}"#,
        refused: r#"{"prompt_cache_key": "a2345678901234567890123456789012345678901234567890123456789012345"}"#,
    },
    StrictRule {
        name: "metadata",
        source: "https://platform.openai.com/docs/api-reference/chat/create#chat-create-metadata",
        words: "Invalid 'metadata': {}",
        check: metadata,
        taken: r#"{"metadata": {"a": "b"}}"#,
        refused: r#"{"metadata": {"a": 1}}"#,
    },
];

/// A hundred and twenty-nine tools.
const TOO_MANY_TOOLS: &str = include_str!("too_many_tools.json");

/// Fields at the top of a request.
const FIELDS: [&str; 38] = [
    "messages",
    "model",
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
    "context_management",
];
/// Fields of a message.
const MESSAGE_FIELDS: [&str; 9] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "refusal",
    "audio",
    "function_call",
    "annotations",
];
/// Fields of a part of a message's content.
const PART_FIELDS: [&str; 7] =
    ["type", "text", "image_url", "input_audio", "file", "refusal", "prompt_cache_breakpoint"];

fn unknown_parameter(request: &StrictRequest<'_>) -> ViolationWords {
    unknown_key(request.body, &FIELDS).and_then(|key| found![key])
}

fn unknown_message_key(request: &StrictRequest<'_>) -> ViolationWords {
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        if let Some(key) = unknown_key(message, &MESSAGE_FIELDS) {
            return found![place, key];
        }
        for (part_place, part) in list(message, "content").iter().enumerate() {
            if let Some(key) = unknown_key(part, &PART_FIELDS) {
                return found![place, format!("content[{part_place}].{key}")];
            }
        }
        for (call_place, call) in list(message, "tool_calls").iter().enumerate() {
            if let Some(key) = unknown_key(call, &["id", "type", "function", "custom"]) {
                return found![place, format!("tool_calls[{call_place}].{key}")];
            }
        }
    }
    None
}

fn role(request: &StrictRequest<'_>) -> ViolationWords {
    let roles = ["system", "assistant", "user", "function", "tool", "developer"];
    let mut messages = list(request.body, "messages").iter();
    let odd = messages.find(|message| !roles.contains(&text(message, "role")))?;
    found![text(odd, "role")]
}

fn content(request: &StrictRequest<'_>) -> ViolationWords {
    let lacks = |message: &&Value| {
        let content = &message["content"];
        let has_content =
            content.is_string() || content.as_array().is_some_and(|all| !all.is_empty());
        // Only the assistant may say nothing, where it calls or refuses instead.
        let may_lack = message["role"] == "assistant"
            && (!list(message, "tool_calls").is_empty() || has(message, "refusal"));
        !has_content && !may_lack
    };
    list(request.body, "messages").iter().find(lacks).map(|_| Vec::new())
}

fn content_part(request: &StrictRequest<'_>) -> ViolationWords {
    for message in list(request.body, "messages") {
        let allowed: &[&str] = match text(message, "role") {
            "assistant" => &["text", "refusal"],
            "user" => &["text", "image_url", "input_audio", "file"],
            _ => &["text"],
        };
        let mut parts = list(message, "content").iter();
        if let Some(part) = parts.find(|part| !allowed.contains(&text(part, "type"))) {
            return found![text(part, "type")];
        }
    }
    None
}

fn picture(request: &StrictRequest<'_>) -> ViolationWords {
    let messages = list(request.body, "messages").iter();
    let parts = messages.flat_map(|message| list(message, "content"));
    let mut urls = parts.filter_map(|part| part["image_url"]["url"].as_str());
    urls.any(is_odd_picture).then(Vec::new)
}

/// True for a `data:` URL of an image that OpenAI cannot read.
pub(super) fn is_odd_picture(url: &str) -> bool {
    match media::data_url(url) {
        Some((media_type, data)) => {
            !media::PICTURES.contains(&media_type) || media::picture_type(data).is_none()
        }
        None => url.starts_with("data:"),
    }
}

/// The first call that is not answered by the messages of tools right behind it.
pub(super) fn unanswered_call(request: &StrictRequest<'_>) -> ViolationWords {
    let messages = list(request.body, "messages");
    for (place, message) in messages.iter().enumerate() {
        let calls = list(message, "tool_calls");
        if calls.is_empty() {
            continue;
        }
        let behind = messages.get(place + 1..).unwrap_or_default().iter();
        let answers: Vec<&str> = behind
            // Anything between a call and its results makes OpenAI refuse, a user's text included.
            .take_while(|message| message["role"] == "tool")
            .map(|message| text(message, "tool_call_id"))
            .collect();
        let mut ids = calls.iter().map(|call| text(call, "id"));
        if let Some(id) = ids.find(|id| !answers.contains(id)) {
            return found![id];
        }
    }
    None
}

/// The first result that does not answer a call right before it.
pub(super) fn stray_result(request: &StrictRequest<'_>) -> ViolationWords {
    let messages = list(request.body, "messages");
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] != "tool" {
            open = list(message, "tool_calls").iter().map(|call| text(call, "id")).collect();
            continue;
        }
        let id = text(message, "tool_call_id");
        match open.iter().position(|call| *call == id) {
            // One result for each call: a second one for the same id is as stray as one without a
            // call.
            Some(place) => drop(open.remove(place)),
            None => return Some(Vec::new()),
        }
    }
    None
}

/// The calls of the messages, with the places of message and call.
pub(super) fn calls<'r>(
    request: &StrictRequest<'r>,
) -> impl Iterator<Item = (usize, usize, &'r Value)> + use<'r> {
    let messages = list(request.body, "messages").iter().enumerate();
    messages.flat_map(|(place, message)| {
        let calls = list(message, "tool_calls").iter().enumerate();
        calls.map(move |(call_place, call)| (place, call_place, call))
    })
}

fn call_id(request: &StrictRequest<'_>) -> ViolationWords {
    let mut all = calls(request);
    let (place, call_place, call) = all.find(|(.., call)| text(call, "id").len() > 40)?;
    found![place, call_place, text(call, "id").len()]
}

/// The name of a tool or of a call.
pub(super) fn name_of(tool: &Value) -> &str {
    let inner = tool.get("function").or_else(|| tool.get("custom"));
    inner.map(|inner| text(inner, "name")).unwrap_or_default()
}

fn call_name(request: &StrictRequest<'_>) -> ViolationWords {
    let mut all = calls(request);
    let is_odd = |name: &str| !is_word(name, "_-") || name.len() > 64;
    let (place, call_place, _) = all.find(|(.., call)| is_odd(name_of(call)))?;
    found![place, call_place]
}

/// Violation of an empty list of tools.
pub(super) fn empty_tools(request: &StrictRequest<'_>) -> ViolationWords {
    let tools = request.body.get("tools")?.as_array()?;
    tools.is_empty().then(Vec::new)
}

/// The names of the tools, with their places.
pub(super) fn tool_names<'r>(
    request: &StrictRequest<'r>,
) -> impl Iterator<Item = (usize, &'r str)> + use<'r> {
    list(request.body, "tools").iter().map(name_of).enumerate()
}

fn tool_schema(request: &StrictRequest<'_>) -> ViolationWords {
    for tool in list(request.body, "tools") {
        let Some(parameters) = tool["function"].get("parameters") else { continue };
        if let Some(fault) = schema::openai(parameters) {
            return found![name_of(tool), fault.place, fault.words];
        }
    }
    None
}

fn strict_tool(request: &StrictRequest<'_>) -> ViolationWords {
    for tool in list(request.body, "tools") {
        if tool["function"]["strict"] != true {
            continue;
        }
        if let Some(fault) = schema::openai_strict(&tool["function"]["parameters"]) {
            return found![name_of(tool), fault.place, fault.words];
        }
    }
    None
}

/// A choice of tools where there are none.
pub(super) fn choice_without_tools(request: &StrictRequest<'_>) -> ViolationWords {
    if !list(request.body, "tools").is_empty() {
        return None;
    }
    let fields = ["tool_choice", "parallel_tool_calls"];
    let field = fields.into_iter().find(|field| has(request.body, field))?;
    found![field, field]
}

/// The first of some numbers that is below the least.
pub(super) fn least(request: &StrictRequest<'_>, fields: &[&str], least: f64) -> ViolationWords {
    for field in fields {
        let number = request.body.get(field).and_then(Value::as_f64);
        if number.is_some_and(|number| number < least) {
            return found![field, request.body[field]];
        }
    }
    None
}

/// A sampling setting that a model which reasons refuses: with the effort `none` the newest take some.
pub(super) fn sampling(request: &StrictRequest<'_>, effort: &str) -> Option<&'static str> {
    if !models::is(request.model, Fact::Reasons) || effort == "none" {
        return None;
    }
    // Defaults are taken from clients that always send them.
    let is_default = |field: &str| match field {
        "temperature" | "top_p" => request.body[field].as_f64() == Some(1.0),
        _ => request.body[field].as_f64() == Some(0.0),
    };
    ["temperature", "top_p", "presence_penalty", "frequency_penalty"]
        .into_iter()
        .find(|field| has(request.body, field) && !is_default(field))
}

/// A sampling setting that is out of its range.
pub(super) fn sampling_range(request: &StrictRequest<'_>) -> ViolationWords {
    let ranges = [
        ("temperature", 2.0),
        ("top_p", 1.0),
        ("presence_penalty", 2.0),
        ("frequency_penalty", 2.0),
    ];
    let is_over = |field: &str, most: f64| {
        let number = request.body.get(field).and_then(Value::as_f64);
        number.is_some_and(|number| number > most)
    };
    let (field, most) = ranges.into_iter().find(|(field, most)| is_over(field, *most))?;
    found![field, most, request.body[field]]
}

/// A word of effort that a model does not know; an empty one is none.
pub(super) fn effort(model: &str, word: &str) -> ViolationWords {
    let allowed = models::efforts(model)?;
    if word.is_empty() || allowed.contains(&word) {
        return None;
    }
    let allowed: Vec<String> = allowed.iter().map(|word| format!("'{word}'")).collect();
    found![word, allowed.join(", ")]
}

/// True if any string in a value contains the word JSON.
pub(super) fn says_json(value: &Value) -> bool {
    match value {
        Value::String(text) => text.to_ascii_lowercase().contains("json"),
        Value::Array(all) => all.iter().any(says_json),
        Value::Object(members) => {
            // Only what the model reads counts: the word in a name or an id does not help.
            ["content", "text", "output"].iter().filter_map(|key| members.get(*key)).any(says_json)
        }
        _ => false,
    }
}

fn answer_schema(request: &StrictRequest<'_>) -> ViolationWords {
    let format = request.body["response_format"].get("json_schema")?;
    if format["strict"] != true {
        return None;
    }
    let fault = schema::openai_strict(&format["schema"])?;
    found![text(format, "name"), fault.place, fault.words]
}

/// A word of at most 64 letters that is longer.
pub(super) fn long_word(request: &StrictRequest<'_>) -> ViolationWords {
    let fields = ["safety_identifier", "prompt_cache_key", "user"];
    let field = fields.into_iter().find(|field| text(request.body, field).chars().count() > 64)?;
    found![field, text(request.body, field).len()]
}

/// Metadata that is too much, or is no text.
pub(super) fn metadata(request: &StrictRequest<'_>) -> ViolationWords {
    let members = request.body.get("metadata")?.as_object()?;
    if members.len() > 16 {
        return found!["too many properties. Expected an object with at most 16 properties."];
    }
    let fits = |(key, value): (&String, &Value)| {
        key.chars().count() <= 64 && value.as_str().is_some_and(|text| text.chars().count() <= 512)
    };
    if members.iter().all(fits) {
        return None;
    }
    found!["expected strings of at most 512 characters, with keys of at most 64."]
}

/// The first name of a tool that stands twice.
pub(super) fn duplicate_tool(request: &StrictRequest<'_>) -> ViolationWords {
    duplicate(tool_names(request).map(|(_, name)| name)).and_then(|name| found![name])
}
