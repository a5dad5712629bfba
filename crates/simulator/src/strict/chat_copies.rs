//! Validation of chat completions as OpenAI-compatible providers do it, and the chat templates of open
//! models behind them.

use serde_json::Value;

use super::models::{self, Fact};
use super::openai_chat::{
    calls, choice_without_tools, duplicate_tool, empty_tools, least, name_of, stray_result,
    tool_names, unanswered_call,
};
use super::{
    StrictRequest, StrictRule, ViolationWords, found, has, is_word, list, media, schema, text,
    unknown_key,
};

/// Mistral's reference, whose validator names each field that is too much.
const MISTRAL: &str = "https://docs.mistral.ai/api/endpoint/chat";

/// The rules, in the order in which they are checked.
pub(super) const RULES: &[StrictRule] = &[
    StrictRule {
        name: "unknown-parameter",
        source: MISTRAL,
        words: "Extra inputs are not permitted: {}",
        check: unknown_parameter,
        taken: r#"{"max_tokens": 9, "stream": true, "stream_options": {"include_usage": true}}"#,
        refused: r#"{"max_completion_tokens": 9}"#,
    },
    StrictRule {
        name: "unknown-message-parameter",
        source: MISTRAL,
        words: "Extra inputs are not permitted: messages.{}.{}",
        check: unknown_message_key,
        taken: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "c"}, {"role": "user", "content": "d"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "a", "cache_control": {"type": "ephemeral"}}]}"#,
    },
    StrictRule {
        name: "messages-needed",
        source: MISTRAL,
        words: "list index out of range: messages must not be empty",
        check: |request| list(request.body, "messages").is_empty().then(Vec::new),
        taken: "{}",
        refused: r#"{"messages": []}"#,
    },
    StrictRule {
        name: "role",
        source: "https://github.com/aliou/pi-neuralwatt/issues/12",
        words: "Unexpected message role: {}",
        check: |request| {
            let allowed = ["system", "user", "assistant", "tool"];
            let mut messages = list(request.body, "messages").iter();
            let odd = messages.find(|message| !allowed.contains(&text(message, "role")))?;
            found![text(odd, "role")]
        },
        taken: r#"{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}"#,
    },
    StrictRule {
        name: "system-first",
        source: "https://github.com/vllm-project/vllm/issues/41114; https://github.com/anomalyco/opencode/issues/42909",
        words: "System message must be at the beginning.",
        check: |request| {
            let mut behind = list(request.body, "messages").iter().skip(1);
            behind.any(|message| message["role"] == "system").then(Vec::new)
        },
        taken: r#"{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "b"}, {"role": "system", "content": "a"}]}"#,
    },
    StrictRule {
        name: "system-text",
        source: "https://github.com/langgenius/dify/issues/33152",
        words: "System message cannot contain images.",
        check: |request| {
            let first = list(request.body, "messages").first()?;
            let is_text = first["content"].is_string()
                || list(first, "content").iter().all(|part| part["type"] == "text");
            (first["role"] == "system" && !is_text).then(Vec::new)
        },
        taken: r#"{"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}, {"role": "user", "content": "b"}]}"#,
    },
    StrictRule {
        name: "user-query",
        source: "https://github.com/langgenius/dify/issues/33152",
        words: "No user query found in messages.",
        check: |request| {
            let mut messages = list(request.body, "messages").iter();
            messages.all(|message| message["role"] != "user").then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "system", "content": "a"}]}"#,
    },
    StrictRule {
        name: "content",
        source: "https://github.com/mistralai/mistral-common/blob/main/src/mistral_common/protocol/instruct/validator.py",
        words: "Assistant message must have either content or tool_calls, but not none.",
        check: content,
        taken: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "c"}]}"#,
    },
    StrictRule {
        name: "user-content",
        source: "https://github.com/MoonshotAI/kimi-code/issues/1985",
        words: "messages[{}].content must not be empty",
        check: user_content,
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}"#,
    },
    StrictRule {
        name: "content-part",
        source: "https://docs.vllm.ai/en/stable/features/multimodal_inputs.html",
        words: "Unknown part type: {}",
        check: content_part,
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}"#,
    },
    StrictRule {
        name: "picture",
        source: "https://docs.vllm.ai/en/stable/features/multimodal_inputs.html",
        words: "cannot identify image file",
        check: |request| {
            let messages = list(request.body, "messages").iter();
            let parts = messages.flat_map(|message| list(message, "content"));
            let mut urls = parts.filter_map(|part| part["image_url"]["url"].as_str());
            let is_odd = |url: &str| match media::data_url(url) {
                Some((_, data)) => !media::is_base64(data),
                None => url.starts_with("data:"),
            };
            urls.any(is_odd).then(Vec::new)
        },
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}]}]}"#,
    },
    StrictRule {
        name: "calls-answered",
        source: "https://github.com/TurixAI/TuriX-CUA/issues/15; https://github.com/charmbracelet/crush/issues/279",
        words: "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. (insufficient tool messages following tool_calls message): {}",
        check: unanswered_call,
        taken: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "b"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "user", "content": "b"}]}"#,
    },
    StrictRule {
        name: "results-behind-calls",
        source: "https://github.com/zed-industries/zed/issues/37021",
        words: "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        check: stray_result,
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "c", "content": "b"}]}"#,
    },
    StrictRule {
        name: "arguments",
        source: "https://github.com/vllm-project/vllm/pull/50861; https://github.com/sgl-project/sglang/pull/28035",
        words: "Can only get item pairs from a mapping: messages[{}].tool_calls[{}].function.arguments",
        check: |request| {
            let is_object = |call: &Value| {
                let arguments = text(&call["function"], "arguments");
                serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object())
            };
            let mut all = calls(request);
            let (place, call, _) = all.find(|(.., call)| !is_object(call))?;
            found![place, call]
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]}, {"role": "tool", "tool_call_id": "c", "content": "b"}]}"#,
    },
    StrictRule {
        name: "call-name",
        source: "https://github.com/openai/codex/issues/46188",
        words: "Invalid 'messages[{}].tool_calls[{}].function.name'",
        check: |request| {
            let is_odd = |name: &str| !is_word(name, "_-") || name.len() > 64;
            let mut all = calls(request);
            let (place, call, _) = all.find(|(.., call)| is_odd(name_of(call)))?;
            found![place, call]
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "b"}]}"#,
    },
    StrictRule {
        name: "mistral-call-id",
        source: "https://github.com/jackmpcollins/magentic/issues/276",
        words: "Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9.",
        check: |request| {
            if !models::is(request.model, Fact::MistralTemplate) {
                return None;
            }
            let mut ids = calls(request).map(|(.., call)| text(call, "id"));
            ids.find(|id| !is_word(id, "") || id.len() != 9).and_then(|id| found![id])
        },
        taken: r#"{"model": "mistral-large-latest", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "abcdefgh1", "content": "b"}]}"#,
        refused: r#"{"model": "mistral-large-latest", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "b"}]}"#,
    },
    StrictRule {
        name: "mistral-order",
        source: "https://github.com/avante-corp/avante.nvim/pull/2695; https://github.com/BerriAI/litellm/issues/17761; https://github.com/onyx-dot-app/onyx/issues/6458",
        words: "Unexpected role 'user' after role 'tool'",
        check: |request| {
            let messages = list(request.body, "messages");
            let breaks = |pair: &[Value]| match pair {
                [one, next] => one["role"] == "tool" && next["role"] == "user",
                _ => false,
            };
            let is_mistral = models::is(request.model, Fact::MistralTemplate);
            (is_mistral && messages.windows(2).any(breaks)).then(Vec::new)
        },
        taken: r#"{"model": "mistral-large-latest"}"#,
        refused: r#"{"model": "mistral-large-latest", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "abcdefgh1", "content": "b"}, {"role": "user", "content": "d"}]}"#,
    },
    StrictRule {
        name: "mistral-last",
        source: "https://github.com/0xPlaygrounds/rig/pull/1130",
        words: "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        check: |request| {
            let last = list(request.body, "messages").last()?;
            let is_prefix = last["prefix"] == true;
            let is_mistral = models::is(request.model, Fact::MistralTemplate);
            (is_mistral && last["role"] == "assistant" && !is_prefix).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "mistral-large-latest", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#,
    },
    StrictRule {
        name: "tools-empty",
        source: "https://docs.vllm.ai/en/stable/features/tool_calling.html",
        words: "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        check: empty_tools,
        taken: "{}",
        refused: r#"{"tools": []}"#,
    },
    StrictRule {
        name: "tool-kind",
        source: "https://docs.vllm.ai/en/stable/features/tool_calling.html",
        words: "tools.{}.type: Input should be 'function'",
        check: |request| {
            let mut tools = list(request.body, "tools").iter();
            tools.position(|tool| tool["type"] != "function").and_then(|place| found![place])
        },
        taken: r#"{"tools": [{"type": "function", "function": {"name": "f"}}]}"#,
        refused: r#"{"tools": [{"type": "custom", "custom": {"name": "f"}}]}"#,
    },
    StrictRule {
        name: "tool-name",
        source: MISTRAL,
        words: "Function name was {} but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64.",
        check: |request| {
            let is_odd = |(_, name): &(usize, &str)| !is_word(name, "_-") || name.len() > 64;
            tool_names(request).find(is_odd).and_then(|(_, name)| found![name])
        },
        taken: r#"{"tools": [{"type": "function", "function": {"name": "a_b-c"}}]}"#,
        refused: r#"{"tools": [{"type": "function", "function": {"name": "a.b"}}]}"#,
    },
    StrictRule {
        name: "tool-names-unique",
        source: "https://github.com/liliMozi/openhanako/issues/789; https://github.com/xinnan-tech/xiaozhi-esp32-server/issues/3180",
        words: "Tool names must be unique: {}",
        check: duplicate_tool,
        taken: "{}",
        refused: r#"{"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]}"#,
    },
    StrictRule {
        name: "tool-schema",
        source: "https://github.com/bnb-chain/bnbchain-mcp/issues/68",
        words: "Invalid schema for function '{}': In context={}, {}",
        check: |request| {
            for tool in list(request.body, "tools") {
                let Some(parameters) = tool["function"].get("parameters") else { continue };
                if let Some(fault) = schema::openai(parameters) {
                    return found![name_of(tool), fault.place, fault.words];
                }
            }
            None
        },
        taken: r#"{"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]}"#,
        refused: r#"{"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}]}"#,
    },
    StrictRule {
        name: "choice-without-tools",
        source: "https://docs.vllm.ai/en/stable/features/tool_calling.html",
        words: "When using `{}`, `tools` must be set: {}",
        check: choice_without_tools,
        taken: "{}",
        refused: r#"{"tool_choice": "none"}"#,
    },
    StrictRule {
        name: "max-tokens-least",
        source: "https://github.com/vllm-project/vllm/blob/main/vllm/sampling_params.py",
        words: "{} must be at least 1, got {}.",
        check: |request| least(request, &["max_tokens"], 1.0),
        taken: r#"{"max_tokens": 1}"#,
        refused: r#"{"max_tokens": 0}"#,
    },
    StrictRule {
        name: "stop",
        source: "https://github.com/vllm-project/vllm/blob/main/vllm/sampling_params.py",
        words: "stop cannot contain an empty string, nor more than 4.",
        check: |request| {
            let stops = list(request.body, "stop");
            (stops.len() > 4 || stops.iter().any(|stop| stop == "")).then(Vec::new)
        },
        taken: r#"{"stop": ["a"]}"#,
        refused: r#"{"stop": [""]}"#,
    },
    StrictRule {
        name: "json-word",
        source: "https://api-docs.deepseek.com/guides/json_mode; https://help.aliyun.com/zh/model-studio/json-mode",
        words: "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.",
        check: |request| {
            let refuses = request.body["response_format"]["type"] == "json_object"
                && !super::openai_chat::says_json(&request.body["messages"]);
            refuses.then(Vec::new)
        },
        taken: r#"{"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "As JSON"}]}"#,
        refused: r#"{"response_format": {"type": "json_object"}}"#,
    },
];

/// Fields that copies of the API know.
const FIELDS: [&str; 30] = [
    "model",
    "messages",
    "max_tokens",
    "temperature",
    "top_p",
    "stop",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "user",
    "reasoning_effort",
    // Some say by one of these whether the model thinks.
    "thinking",
    "enable_thinking",
    "chat_template_kwargs",
    "reasoning",
    "thinking_budget",
    "top_k",
    "min_p",
    "repetition_penalty",
    "prompt_cache_key",
];
/// Fields of a message, with the thoughts that several providers want back.
const MESSAGE_FIELDS: [&str; 11] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "refusal",
    "prefix",
    "reasoning_opaque",
];

fn unknown_parameter(request: &StrictRequest<'_>) -> ViolationWords {
    unknown_key(request.body, &FIELDS).and_then(|key| found![key])
}

fn unknown_message_key(request: &StrictRequest<'_>) -> ViolationWords {
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        if let Some(key) = unknown_key(message, &MESSAGE_FIELDS) {
            return found![place, key];
        }
    }
    None
}

/// True for empty content.
fn is_empty(content: &Value) -> bool {
    match content {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(parts) => {
            parts.iter().all(|part| part["type"] == "text" && text(part, "text").is_empty())
        }
        _ => false,
    }
}

fn content(request: &StrictRequest<'_>) -> ViolationWords {
    let lacks = |message: &&Value| {
        message["role"] == "assistant"
            && is_empty(&message["content"])
            && !has(message, "refusal")
            && list(message, "tool_calls").is_empty()
    };
    list(request.body, "messages").iter().find(lacks).map(|_| Vec::new())
}

fn user_content(request: &StrictRequest<'_>) -> ViolationWords {
    let lacks = |message: &Value| message["role"] == "user" && is_empty(&message["content"]);
    list(request.body, "messages").iter().position(lacks).and_then(|place| found![place])
}

fn content_part(request: &StrictRequest<'_>) -> ViolationWords {
    let allowed = ["text", "image_url", "input_audio", "video_url", "file", "thinking"];
    let messages = list(request.body, "messages").iter();
    let mut parts = messages.flat_map(|message| list(message, "content"));
    let odd = parts.find(|part| !allowed.contains(&text(part, "type")))?;
    found![text(odd, "type")]
}
