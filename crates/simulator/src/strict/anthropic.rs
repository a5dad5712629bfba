//! Validation of Messages requests as Anthropic does it.

use serde_json::Value;

use super::models::{self, Fact};
use super::{
    StrictRequest, StrictRule, ViolationWords, duplicate, found, has, is_word, list, media, schema,
    text, unknown_key,
};

/// The reference of the endpoint.
const REFERENCE: &str = "https://platform.claude.com/docs/en/api/messages/create";
/// Documentation of extended thinking.
const THINKING: &str = "https://platform.claude.com/docs/en/build-with-claude/extended-thinking";
/// Documentation of the JSON schemas for answers and strict tools.
const SCHEMAS: &str = "https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations";

/// The rules, in the order in which they are checked.
pub(super) const RULES: &[StrictRule] = &[
    StrictRule {
        name: "version",
        source: "https://platform.claude.com/docs/en/api/versioning",
        words: "anthropic-version: header is required",
        check: |request| {
            let lacks = request.headers.is_some_and(|all| !all.contains_key("anthropic-version"));
            lacks.then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"headers": null}"#,
    },
    StrictRule {
        name: "extra-inputs",
        source: "https://github.com/amrit110/oli/issues/7; https://github.com/Aider-AI/aider/issues/4404",
        words: "{}: Extra inputs are not permitted",
        check: |request| unknown_key(request.body, &FIELDS).and_then(|key| found![key]),
        taken: r#"{"metadata": {"user_id": "u"}, "service_tier": "auto"}"#,
        refused: r#"{"frequency_penalty": 0}"#,
    },
    StrictRule {
        name: "extra-block-inputs",
        source: "https://github.com/anthropics/claude-code/issues/4378",
        words: "messages.{}.content.{}.{}: Extra inputs are not permitted",
        check: extra_block_inputs,
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "annotations": []}]}]}"#,
    },
    StrictRule {
        name: "max-tokens-needed",
        source: REFERENCE,
        words: "max_tokens: Field required",
        check: |request| request.body["max_tokens"].as_u64().is_none().then(Vec::new),
        taken: "{}",
        refused: r#"{"max_tokens": null}"#,
    },
    StrictRule {
        name: "max-tokens-least",
        source: REFERENCE,
        words: "max_tokens: Input should be greater than or equal to 1",
        check: |request| (request.body["max_tokens"] == 0).then(Vec::new),
        taken: r#"{"max_tokens": 1}"#,
        refused: r#"{"max_tokens": 0}"#,
    },
    StrictRule {
        name: "max-tokens-most",
        source: "https://github.com/opencode-ai/opencode/issues/140",
        words: "max_tokens: {} > {}, which is the maximum allowed number of output tokens for {}",
        check: |request| {
            let (max_tokens, most) =
                (request.body["max_tokens"].as_u64()?, models::output_max(request.model)?);
            if max_tokens > most { found![max_tokens, most, request.model] } else { None }
        },
        taken: r#"{"model": "claude-haiku-4-5", "max_tokens": 64000}"#,
        refused: r#"{"model": "claude-haiku-4-5", "max_tokens": 64001}"#,
    },
    StrictRule {
        name: "messages-needed",
        source: REFERENCE,
        words: "messages: at least one message is required",
        check: |request| list(request.body, "messages").is_empty().then(Vec::new),
        taken: "{}",
        refused: r#"{"messages": []}"#,
    },
    StrictRule {
        name: "role",
        source: "https://platform.claude.com/docs/en/api/messages/create#body-messages; https://github.com/ianarawjo/ChainForge/issues/271",
        words: "messages: Unexpected role \"{}\". Allowed roles are \"user\" or \"assistant\".",
        check: |request| {
            let takes_system = models::is(request.model, Fact::SystemInTheMiddle);
            let is_valid_role = |role: &str| {
                ["user", "assistant"].contains(&role) || takes_system && role == "system"
            };
            let mut messages = list(request.body, "messages").iter();
            let odd = messages.find(|message| !is_valid_role(text(message, "role")))?;
            found![text(odd, "role")]
        },
        taken: r#"{"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}"#,
        refused: r#"{"model": "claude-haiku-4-5", "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}"#,
    },
    StrictRule {
        name: "system-place",
        source: "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages",
        words: "messages.{}: a system message must follow a user message, and end the conversation or precede an assistant message",
        check: |request| {
            let messages = list(request.body, "messages");
            let role = |place: usize| messages.get(place).map(|message| text(message, "role"));
            let is_misplaced = |place: &usize| {
                let before = place.checked_sub(1).and_then(role);
                role(*place) == Some("system")
                    && (before != Some("user")
                        || role(place + 1).is_some_and(|role| role != "assistant"))
            };
            let place = (0..messages.len()).find(is_misplaced)?;
            found![place]
        },
        taken: r#"{"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]}"#,
        refused: r#"{"model": "claude-opus-4-8", "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}]}"#,
    },
    StrictRule {
        name: "user-first",
        source: "https://platform.claude.com/docs/en/api/messages/create#body-messages",
        words: "messages: first message must use the \"user\" role",
        check: |request| {
            let first = list(request.body, "messages").first()?;
            (first["role"] != "user").then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}"#,
    },
    StrictRule {
        name: "content-needed",
        source: "https://platform.claude.com/docs/en/api/messages/create#body-messages",
        words: "messages.{}: all messages must have non-empty content except for the optional final assistant message",
        check: |request| {
            let lacks = |message: &Value| match &message["content"] {
                Value::String(text) => text.is_empty(),
                Value::Array(blocks) => blocks.is_empty(),
                _ => true,
            };
            list(request.body, "messages").iter().position(lacks).and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": []}]}"#,
    },
    StrictRule {
        name: "text-empty",
        source: "https://github.com/anthropics/claude-code/issues/59812",
        words: "{}: text content blocks must be non-empty",
        check: |request| {
            texts(request).find(|(_, text)| text.is_empty()).and_then(|(at, _)| found![at])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}"#,
    },
    StrictRule {
        name: "text-blank",
        source: "https://github.com/anthropics/claude-code/issues/23440; https://github.com/anomalyco/opencode/issues/31259",
        words: "{}: text content blocks must contain non-whitespace text",
        check: |request| {
            texts(request).find(|(_, text)| text.trim().is_empty()).and_then(|(at, _)| found![at])
        },
        taken: "{}",
        refused: r#"{"system": " \n", "messages": [{"role": "user", "content": "a"}]}"#,
    },
    StrictRule {
        name: "last-whitespace",
        source: "https://platform.claude.com/docs/en/build-with-claude/working-with-messages#putting-words-in-claudes-mouth",
        words: "messages: final assistant content cannot end with trailing whitespace",
        check: |request| {
            let last =
                list(request.body, "messages").last().filter(|last| last["role"] == "assistant")?;
            let last_text = match &last["content"] {
                Value::String(text) => text.as_str(),
                _ => list(last, "content").last().map(|block| text(block, "text"))?,
            };
            last_text.ends_with(char::is_whitespace).then(Vec::new)
        },
        taken: r#"{"model": "claude-haiku-4-5", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#,
        refused: r#"{"model": "claude-haiku-4-5", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}]}"#,
    },
    StrictRule {
        name: "prefill",
        source: "https://github.com/Kilo-Org/kilocode/issues/8260; https://github.com/anomalyco/opencode/issues/13768",
        words: "This model does not support assistant message prefill. The conversation must end with a user message.",
        check: |request| {
            let last = list(request.body, "messages").last()?;
            let refuses = models::is(request.model, Fact::NoPrefill) || thinks(request.body);
            (refuses && last["role"] == "assistant").then(Vec::new)
        },
        taken: r#"{"model": "claude-haiku-4-5", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#,
        refused: r#"{"model": "claude-opus-4-6", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#,
    },
    StrictRule {
        name: "block-kind",
        source: REFERENCE,
        words: "messages.{}.content.{}: Input tag '{}' found using 'type' does not match any of the expected tags",
        check: block_kind,
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]}"#,
    },
    StrictRule {
        name: "picture-type",
        source: "https://platform.claude.com/docs/en/build-with-claude/vision",
        words: "messages.{}.content: image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
        check: |request| {
            pictures(request)
                .find(|(_, source)| {
                    source["type"] == "base64"
                        && !media::PICTURES.contains(&text(source, "media_type"))
                })
                .and_then(|(place, _)| found![place])
        },
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "Qk0="}}]}]}"#,
    },
    StrictRule {
        name: "picture-bytes",
        source: "https://platform.claude.com/docs/en/build-with-claude/vision",
        words: "messages.{}.content: The image was specified using the {} media type, but the image appears to be another",
        check: |request| {
            let (place, source) = pictures(request).find(|(_, source)| {
                let found = media::picture_type(text(source, "data"));
                source["type"] == "base64" && found != Some(text(source, "media_type"))
            })?;
            found![place, text(source, "media_type")]
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "iVBORw0KGgo="}}]}]}"#,
    },
    StrictRule {
        name: "document",
        source: "https://platform.claude.com/docs/en/build-with-claude/pdf-support",
        words: "messages.{}.content: document.source: {}",
        check: document,
        taken: r#"{"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "media_type": "text/csv", "data": "YQ=="}}]}]}"#,
    },
    StrictRule {
        name: "calls-answered",
        source: "https://github.com/anthropics/claude-code/issues/2697",
        words: "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        check: unanswered_call,
        taken: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}, {"type": "text", "text": "d"}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}, {"role": "user", "content": "b"}]}"#,
    },
    StrictRule {
        name: "results-first",
        source: "https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls",
        words: "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}.",
        check: late_result,
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "text", "text": "d"}, {"type": "tool_result", "tool_use_id": "c", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "results-behind-calls",
        source: "https://github.com/openai/openai-agents-python/issues/1797",
        words: "messages.{}.content.{}: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
        check: stray_result,
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "result-once",
        source: "https://github.com/BerriAI/litellm/pull/20049",
        words: "messages.{}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {}",
        check: |request| {
            for (place, message) in list(request.body, "messages").iter().enumerate() {
                let ids =
                    blocks(message, "tool_result").map(|(_, block)| text(block, "tool_use_id"));
                if let Some(id) = duplicate(ids) {
                    return found![place, id];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}, {"type": "tool_result", "tool_use_id": "c", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "call-ids-unique",
        source: "https://github.com/trycua/cua/issues/524",
        words: "messages: `tool_use` ids must be unique: {}",
        check: |request| {
            duplicate(calls(request).map(|call| text(call, "id"))).and_then(|id| found![id])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "call-id-letters",
        source: REFERENCE,
        words: "messages: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$': {}",
        check: |request| {
            let mut ids = calls(request).map(|call| text(call, "id"));
            ids.find(|id| !is_word(id, "_-")).and_then(|id| found![id])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c:1", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c:1", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "call-name",
        source: REFERENCE,
        words: "messages: tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,200}$': {}",
        check: |request| {
            let mut names = calls(request).map(|call| text(call, "name"));
            names
                .find(|name| !is_word(name, "_-") || name.len() > 200)
                .and_then(|name| found![name])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f.g", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "call-input",
        source: REFERENCE,
        words: "messages: tool_use.input: Input should be a valid dictionary",
        check: |request| calls(request).any(|call| !call["input"].is_object()).then(Vec::new),
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": "x"}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "tool-name",
        source: "https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools",
        words: "tools.{}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        check: |request| {
            let is_odd = |tool: &Value| {
                let name = text(tool, "name");
                !is_word(name, "_-") || name.len() > 128
            };
            list(request.body, "tools").iter().position(is_odd).and_then(|place| found![place])
        },
        taken: r#"{"tools": [{"name": "a_b-c", "input_schema": {"type": "object"}}]}"#,
        refused: r#"{"tools": [{"name": "a.b", "input_schema": {"type": "object"}}]}"#,
    },
    StrictRule {
        name: "tool-names-unique",
        source: "https://github.com/eclipse-theia/theia/issues/16122",
        words: "tools: Tool names must be unique.",
        check: |request| {
            let names = list(request.body, "tools").iter().map(|tool| text(tool, "name"));
            duplicate(names).map(|_| Vec::new())
        },
        taken: "{}",
        refused: r#"{"tools": [{"name": "a", "input_schema": {"type": "object"}}, {"name": "a", "input_schema": {"type": "object"}}]}"#,
    },
    StrictRule {
        name: "tool-schema-type",
        source: "https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools",
        words: "tools.{}.custom.input_schema.type: Field required",
        check: |request| {
            let lacks = |tool: &Value| is_custom(tool) && tool["input_schema"]["type"] != "object";
            list(request.body, "tools").iter().position(lacks).and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"tools": [{"name": "a", "input_schema": {"properties": {}}}]}"#,
    },
    StrictRule {
        name: "tool-schema-root",
        source: "https://github.com/anthropics/claude-code/issues/5973",
        words: "tools.{}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
        check: |request| {
            let is_odd = |tool: &Value| {
                let schema = &tool["input_schema"];
                ["oneOf", "allOf", "anyOf"].iter().any(|key| schema.get(*key).is_some())
            };
            list(request.body, "tools").iter().position(is_odd).and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"tools": [{"name": "a", "input_schema": {"type": "object", "anyOf": []}}]}"#,
    },
    StrictRule {
        name: "tool-schema-draft",
        source: "https://github.com/openclaw/openclaw/issues/29416",
        words: "tools.{}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12 (https://json-schema.org/draft/2020-12). Learn more about tool use at https://docs.claude.com/en/docs/tool-use.",
        check: |request| {
            let is_odd =
                |tool: &Value| is_custom(tool) && !schema::is_draft_2020(&tool["input_schema"]);
            list(request.body, "tools").iter().position(is_odd).and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"tools": [{"name": "a", "input_schema": {"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": true}}}}]}"#,
    },
    StrictRule {
        name: "tool-schema-keys",
        source: "https://github.com/diegosouzapw/OmniRoute/issues/13552",
        words: "tools.{}.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$': {}",
        check: |request| {
            for (place, tool) in list(request.body, "tools").iter().enumerate() {
                if let Some(words) = schema::odd_property(&tool["input_schema"]) {
                    return found![place, words.concat()];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"tools": [{"name": "a", "input_schema": {"type": "object", "properties": {"$a": {}}}}]}"#,
    },
    StrictRule {
        name: "tool-schema-strict",
        source: SCHEMAS,
        words: "tools.{}.custom: {}",
        check: |request| {
            for (place, tool) in list(request.body, "tools").iter().enumerate() {
                if tool["strict"] != true {
                    continue;
                }
                if let Some(fault) = schema::anthropic_strict(&tool["input_schema"]) {
                    return found![place, fault.words];
                }
            }
            None
        },
        taken: r#"{"tools": [{"name": "a", "strict": true, "input_schema": {"type": "object", "properties": {}, "additionalProperties": false}}]}"#,
        refused: r#"{"tools": [{"name": "a", "strict": true, "input_schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "additionalProperties": false}}]}"#,
    },
    StrictRule {
        name: "tools-extra-inputs",
        source: "https://github.com/anthropics/claude-code/issues/31033",
        words: "tools.{}.custom.{}: Extra inputs are not permitted",
        check: |request| {
            for (place, tool) in list(request.body, "tools").iter().enumerate() {
                if let Some(key) = unknown_key(tool, &TOOL_FIELDS).filter(|_| is_custom(tool)) {
                    return found![place, key];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"tools": [{"name": "a", "input_schema": {"type": "object"}, "parameters": {}}]}"#,
    },
    StrictRule {
        name: "choice-without-tools",
        source: REFERENCE,
        words: "tool_choice: `tool_choice` may only be specified while providing `tools`.",
        check: |request| {
            let refuses =
                has(request.body, "tool_choice") && list(request.body, "tools").is_empty();
            refuses.then(Vec::new)
        },
        taken: r#"{"tools": [{"name": "a", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "a"}}"#,
        refused: r#"{"tool_choice": {"type": "auto"}}"#,
    },
    StrictRule {
        name: "choice-names-a-tool",
        source: REFERENCE,
        words: "tool_choice.tool: Tool '{}' not found in provided tools",
        check: |request| {
            let choice = &request.body["tool_choice"];
            let name = text(choice, "name");
            let is_there = list(request.body, "tools").iter().any(|tool| tool["name"] == name);
            if choice["type"] == "tool" && !is_there { found![name] } else { None }
        },
        taken: "{}",
        refused: r#"{"tools": [{"name": "a", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "b"}}"#,
    },
    StrictRule {
        name: "thinking-forced",
        source: THINKING,
        words: "Thinking may not be enabled when tool_choice forces tool use.",
        check: |request| {
            let forces = ["any", "tool"].contains(&text(&request.body["tool_choice"], "type"));
            (forces && thinks(request.body)).then(Vec::new)
        },
        taken: r#"{"thinking": {"type": "adaptive"}}"#,
        refused: r#"{"thinking": {"type": "adaptive"}, "tools": [{"name": "a", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}}"#,
    },
    StrictRule {
        name: "thinking-least",
        source: THINKING,
        words: "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        check: |request| {
            let budget = request.body["thinking"].get("budget_tokens")?.as_u64()?;
            (budget < 1024).then(Vec::new)
        },
        taken: r#"{"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 1024}}"#,
        refused: r#"{"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 1023}}"#,
    },
    StrictRule {
        name: "thinking-most",
        source: THINKING,
        words: "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size",
        check: |request| {
            let budget = request.body["thinking"].get("budget_tokens")?.as_u64()?;
            (budget >= request.body["max_tokens"].as_u64()?).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "claude-haiku-4-5", "max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 2000}}"#,
    },
    StrictRule {
        name: "thinking-kind",
        source: "https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking",
        words: "thinking.type.{}: is not supported for this model. Use \"thinking.type.{}\".",
        check: thinking_kind,
        taken: r#"{"model": "claude-opus-4-6", "thinking": {"type": "enabled", "budget_tokens": 2000}}"#,
        refused: r#"{"model": "claude-opus-4-8", "thinking": {"type": "enabled", "budget_tokens": 2000}}"#,
    },
    StrictRule {
        name: "thinking-last",
        source: "https://github.com/tailcallhq/forgecode/issues/2107",
        words: "messages.{}: The final block in an assistant message cannot be `thinking`.",
        check: |request| {
            let is_thought = |message: &Value| {
                let last = list(message, "content").last();
                last.is_some_and(|block| {
                    ["thinking", "redacted_thinking"].contains(&text(block, "type"))
                })
            };
            let place = list(request.body, "messages").iter().position(is_thought)?;
            found![place]
        },
        taken: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "b", "signature": "c2ln"}, {"type": "text", "text": "c"}]}, {"role": "user", "content": "d"}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "b", "signature": "c2ln"}]}, {"role": "user", "content": "d"}]}"#,
    },
    StrictRule {
        name: "thinking-signature",
        source: THINKING,
        words: "messages.{}.content.{}: Invalid `signature` in `thinking` block",
        check: |request| {
            for (place, message) in list(request.body, "messages").iter().enumerate() {
                let mut all = blocks(message, "thinking");
                if let Some((block, _)) = all.find(|(_, block)| text(block, "signature").is_empty())
                {
                    return found![place, block];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "b", "signature": ""}, {"type": "text", "text": "c"}]}, {"role": "user", "content": "d"}]}"#,
    },
    StrictRule {
        name: "thinking-first",
        source: "https://github.com/openai/openai-agents-python/issues/1704",
        words: "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks).",
        check: thinking_first,
        taken: "{}",
        refused: r#"{"model": "claude-haiku-4-5", "thinking": {"type": "enabled", "budget_tokens": 1024}, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "b"}]}]}"#,
    },
    StrictRule {
        name: "sampling-of-models",
        source: "https://platform.claude.com/docs/en/about-claude/models/migration-guide",
        words: "`{}` is deprecated for this model.",
        check: |request| {
            let refuses = models::is(request.model, Fact::NoSampling);
            let fields = ["temperature", "top_p", "top_k"];
            let field =
                fields.into_iter().find(|field| has(request.body, field)).filter(|_| refuses)?;
            found![field]
        },
        taken: r#"{"model": "claude-haiku-4-5", "temperature": 0.5}"#,
        refused: r#"{"model": "claude-opus-4-8", "temperature": 0.5}"#,
    },
    StrictRule {
        name: "sampling-one",
        source: "https://platform.claude.com/docs/en/about-claude/models/migration-guide",
        words: "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        check: |request| {
            let both = has(request.body, "temperature") && has(request.body, "top_p");
            (both && models::is(request.model, Fact::OneSampling)).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "claude-haiku-4-5", "temperature": 0.5, "top_p": 0.5}"#,
    },
    StrictRule {
        name: "sampling-range",
        source: REFERENCE,
        words: "{}: range: 0..1",
        check: |request| {
            let is_over = |field: &&str| {
                let number = request.body.get(*field).and_then(Value::as_f64);
                number.is_some_and(|number| !(0.0..=1.0).contains(&number))
            };
            ["temperature", "top_p"]
                .into_iter()
                .find(|field| is_over(field))
                .and_then(|field| found![field])
        },
        taken: "{}",
        refused: r#"{"model": "claude-haiku-4-5", "temperature": 1.5}"#,
    },
    StrictRule {
        name: "sampling-of-thought",
        source: "https://platform.claude.com/docs/en/build-with-claude/extended-thinking#feature-compatibility",
        words: "`{}` may not be set as it is when thinking is enabled. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#important-considerations-when-using-extended-thinking",
        check: |request| {
            let number = |field: &str| request.body.get(field).and_then(Value::as_f64);
            let odd = [
                ("temperature", number("temperature").is_some_and(|it| it < 1.0)),
                ("top_p", number("top_p").is_some_and(|it| it < 0.95)),
                ("top_k", has(request.body, "top_k")),
            ];
            let (field, _) = odd.into_iter().find(|(_, is_odd)| *is_odd)?;
            if thinks(request.body) { found![field] } else { None }
        },
        taken: r#"{"model": "claude-haiku-4-5", "temperature": 1, "thinking": {"type": "enabled", "budget_tokens": 1024}}"#,
        refused: r#"{"model": "claude-haiku-4-5", "top_k": 3, "thinking": {"type": "enabled", "budget_tokens": 1024}}"#,
    },
    StrictRule {
        name: "stop-blank",
        source: "https://github.com/BerriAI/litellm/issues/3286",
        words: "stop_sequences: each stop sequence must contain non-whitespace",
        check: |request| {
            let is_blank = |stop: &Value| stop.as_str().is_none_or(|stop| stop.trim().is_empty());
            list(request.body, "stop_sequences").iter().any(is_blank).then(Vec::new)
        },
        taken: r#"{"stop_sequences": ["a"]}"#,
        refused: r#"{"stop_sequences": ["\n"]}"#,
    },
    StrictRule {
        name: "effort-word",
        source: "https://platform.claude.com/docs/en/build-with-claude/effort",
        words: "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'",
        check: |request| {
            let word = text(&request.body["output_config"], "effort");
            let allowed = ["", "low", "medium", "high", "xhigh", "max"].contains(&word);
            (!allowed).then(Vec::new)
        },
        taken: r#"{"output_config": {"effort": "max"}}"#,
        refused: r#"{"output_config": {"effort": "minimal"}}"#,
    },
    StrictRule {
        name: "effort-of-models",
        source: "https://platform.claude.com/docs/en/build-with-claude/effort",
        words: "This model does not support the effort parameter.",
        check: |request| {
            let knows =
                !models::is(request.model, Fact::Budget) || request.model.contains("opus-4-5");
            (!knows && has(&request.body["output_config"], "effort")).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "claude-haiku-4-5", "output_config": {"effort": "low"}}"#,
    },
    StrictRule {
        name: "answer-schema",
        source: SCHEMAS,
        words: "output_config.format.schema: {}",
        check: |request| {
            let schema = request.body["output_config"].get("format")?.get("schema")?;
            let fault = schema::anthropic_strict(schema)?;
            found![fault.words]
        },
        taken: r#"{"output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false}}}}"#,
        refused: r#"{"output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}"#,
    },
    StrictRule {
        name: "answer-schema-prefill",
        source: SCHEMAS,
        words: "Structured outputs are incompatible with message prefilling",
        check: |request| {
            let last = list(request.body, "messages").last()?;
            let has_format = has(&request.body["output_config"], "format");
            (has_format && last["role"] == "assistant").then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "claude-haiku-4-5", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": false}}}}"#,
    },
    StrictRule {
        name: "cache-most",
        source: "https://github.com/tghamm/Anthropic.SDK/issues/50",
        words: "A maximum of 4 blocks with cache_control may be provided. Found {}.",
        check: |request| {
            let count = marks(request).len();
            if count > 4 { found![count] } else { None }
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]}"#,
    },
    StrictRule {
        name: "cache-order",
        source: "https://github.com/headroomlabs-ai/headroom/issues/2939",
        words: "messages: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.",
        check: |request| {
            let marks = marks(request);
            // Every mark for an hour must stand before the first one for five minutes.
            let mut marks = marks.iter().skip_while(|is_long| **is_long);
            marks.any(|is_long| *is_long).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}], "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}]}"#,
    },
    StrictRule {
        name: "cache-thinking",
        source: "https://github.com/router-for-me/CLIProxyAPI/issues/512",
        words: "messages: thinking.cache_control: Extra inputs are not permitted",
        check: |request| {
            let messages = list(request.body, "messages").iter();
            let mut thoughts = messages.flat_map(|message| blocks(message, "thinking"));
            thoughts.any(|(_, block)| has(block, "cache_control")).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "b", "signature": "c2ln", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "c"}]}, {"role": "user", "content": "d"}]}"#,
    },
    StrictRule {
        name: "user-id",
        source: "https://platform.claude.com/docs/en/api/messages/create#body-metadata",
        words: "metadata.user_id: String should have at most 256 characters",
        check: |request| {
            (text(&request.body["metadata"], "user_id").chars().count() > 256).then(Vec::new)
        },
        taken: r#"{"metadata": {"user_id": "u"}}"#,
        refused: LONG_USER,
    },
];

/// A user's id of 257 letters.
const LONG_USER: &str = concat!(
    r#"{"metadata": {"user_id": ""#,
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdefg",
    r#""}}"#
);
/// Fields at the top of a request.
const FIELDS: [&str; 20] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "metadata",
    "stop_sequences",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "tools",
    "tool_choice",
    "thinking",
    "service_tier",
    "output_config",
    "cache_control",
    "container",
    "inference_geo",
    "context_management",
    "mcp_servers",
];
/// Fields of a tool of the customer's.
const TOOL_FIELDS: [&str; 11] = [
    "type",
    "name",
    "description",
    "input_schema",
    "cache_control",
    "strict",
    "defer_loading",
    "input_examples",
    "eager_input_streaming",
    "allowed_callers",
    "max_uses",
];
/// Fields allowed in every kind of block.
const BLOCK_FIELDS: [&str; 19] = [
    "type",
    "text",
    "cache_control",
    "citations",
    "source",
    "id",
    "name",
    "input",
    "tool_use_id",
    "content",
    "is_error",
    "thinking",
    "signature",
    "data",
    "title",
    "context",
    "caller",
    "tool_name",
    "file_id",
];
/// Kinds of blocks of a user.
const USER_BLOCKS: [&str; 10] = [
    "text",
    "image",
    "document",
    "tool_result",
    "search_result",
    "container_upload",
    "tool_reference",
    "web_search_tool_result",
    "mid_conv_system",
    "web_fetch_tool_result",
];
/// Kinds of blocks of the assistant.
const ASSISTANT_BLOCKS: [&str; 10] = [
    "text",
    "tool_use",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "tool_search_tool_result",
    "compaction",
];

fn is_custom(tool: &Value) -> bool {
    tool.get("type").is_none_or(|kind| kind == "custom")
}

fn thinks(body: &Value) -> bool {
    ["enabled", "adaptive"].contains(&text(&body["thinking"], "type"))
}

/// The blocks of this kind in a message, with their places.
fn blocks<'v>(message: &'v Value, kind: &'v str) -> impl Iterator<Item = (usize, &'v Value)> {
    list(message, "content").iter().enumerate().filter(move |(_, block)| block["type"] == kind)
}

/// All calls, whichever message they stand in.
fn calls<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = &'r Value> + use<'r> {
    let messages = list(request.body, "messages").iter();
    messages.flat_map(|message| blocks(message, "tool_use").map(|(_, block)| block))
}

/// All texts, with where they stand.
fn texts<'r>(
    request: &StrictRequest<'r>,
) -> impl Iterator<Item = (&'static str, &'r str)> + use<'r> {
    fn texts_under<'v>(holder: &'v Value, key: &str) -> Box<dyn Iterator<Item = &'v str> + 'v> {
        if let Some(text) = holder.get(key).and_then(Value::as_str) {
            return Box::new(std::iter::once(text));
        }
        let blocks = list(holder, key).iter();
        Box::new(blocks.filter(|block| block["type"] == "text").map(|block| text(block, "text")))
    }
    let messages = list(request.body, "messages").iter();
    let results = messages.clone().flat_map(|message| blocks(message, "tool_result"));
    // A result may be an empty string, but its blocks may not.
    let results = results.filter(|(_, block)| block["content"].is_array());
    let system = texts_under(request.body, "system").map(|text| ("system", text));
    system
        .chain(
            messages
                .flat_map(|message| texts_under(message, "content"))
                .map(|text| ("messages", text)),
        )
        .chain(
            results
                .flat_map(|(_, block)| texts_under(block, "content"))
                .map(|text| ("messages", text)),
        )
}

fn extra_block_inputs(request: &StrictRequest<'_>) -> ViolationWords {
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        for (block_place, block) in list(message, "content").iter().enumerate() {
            if let Some(key) = unknown_key(block, &BLOCK_FIELDS) {
                return found![place, block_place, key];
            }
        }
    }
    None
}

fn block_kind(request: &StrictRequest<'_>) -> ViolationWords {
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        let is_users = message["role"] == "user";
        let allowed: &[&str] = if is_users { &USER_BLOCKS } else { &ASSISTANT_BLOCKS };
        for (block_place, block) in list(message, "content").iter().enumerate() {
            let kind = text(block, "type");
            if !allowed.contains(&kind) {
                return found![place, block_place, kind];
            }
            let results = list(block, "content").iter().map(|inner| text(inner, "type"));
            let mut results = results.filter(|_| kind == "tool_result");
            let inner = ["text", "image", "document", "search_result", "tool_reference"];
            if let Some(odd) = results.find(|kind| !inner.contains(kind)) {
                return found![place, block_place, odd];
            }
        }
    }
    None
}

/// The sources of blocks of this kind, in messages and in results of tools, with the message's place.
fn sources<'r>(
    request: &StrictRequest<'r>,
    kind: &'static str,
) -> impl Iterator<Item = (usize, &'r Value)> + use<'r> {
    let messages = list(request.body, "messages").iter().enumerate();
    messages.flat_map(move |(place, message)| {
        let all = list(message, "content").iter();
        let inner = all.clone().flat_map(|block| list(block, "content"));
        let found = all.chain(inner).filter(move |block| block["type"] == kind);
        found.map(move |block| (place, &block["source"]))
    })
}

fn pictures<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = (usize, &'r Value)> + use<'r> {
    sources(request, "image")
}

fn document(request: &StrictRequest<'_>) -> ViolationWords {
    for (place, source) in sources(request, "document") {
        let data = text(source, "data");
        let fault = match text(source, "type") {
            "base64" if text(source, "media_type") != "application/pdf" => {
                Some("base64.media_type: Input should be 'application/pdf'")
            }
            "base64" if !media::is_base64(data) => Some("The PDF specified was not valid."),
            "text" if text(source, "media_type") != "text/plain" => {
                Some("text.media_type: Input should be 'text/plain'")
            }
            "text" if data.trim().is_empty() => Some("text.data: must not be empty"),
            "base64" | "text" | "url" | "file" | "content" => None,
            _ => Some("Input tag does not match any of the expected tags"),
        };
        if let Some(fault) = fault {
            return found![place, fault];
        }
    }
    None
}

fn unanswered_call(request: &StrictRequest<'_>) -> ViolationWords {
    let messages = list(request.body, "messages");
    for (place, message) in messages.iter().enumerate() {
        // Behind the last message there is nothing: its calls are unanswered too.
        let next = messages.get(place + 1).unwrap_or(&Value::Null);
        let answers: Vec<&str> =
            blocks(next, "tool_result").map(|(_, block)| text(block, "tool_use_id")).collect();
        let mut ids = blocks(message, "tool_use").map(|(_, block)| text(block, "id"));
        if let Some(id) = ids.find(|id| !answers.contains(id)) {
            return found![place, id];
        }
    }
    None
}

/// A result behind something else in its message.
fn late_result(request: &StrictRequest<'_>) -> ViolationWords {
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        let all = list(message, "content").iter();
        let mut behind = all.skip_while(|block| block["type"] == "tool_result");
        if let Some(block) = behind.find(|block| block["type"] == "tool_result") {
            return found![place.saturating_sub(1), text(block, "tool_use_id")];
        }
    }
    None
}

fn stray_result(request: &StrictRequest<'_>) -> ViolationWords {
    let mut open: Vec<&str> = Vec::new();
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        for (block_place, block) in blocks(message, "tool_result") {
            let id = text(block, "tool_use_id");
            if !open.contains(&id) {
                return found![place, block_place, id];
            }
        }
        // Results answer the message right before them and no earlier one.
        open = blocks(message, "tool_use").map(|(_, block)| text(block, "id")).collect();
    }
    None
}

fn thinking_kind(request: &StrictRequest<'_>) -> ViolationWords {
    match text(&request.body["thinking"], "type") {
        "enabled" if models::is(request.model, Fact::Adaptive) => found!["enabled", "adaptive"],
        "adaptive" if models::is(request.model, Fact::Budget) => found!["adaptive", "enabled"],
        _ => None,
    }
}

/// With a thinking budget in tokens, the continued assistant turn must begin with a thinking block.
fn thinking_first(request: &StrictRequest<'_>) -> ViolationWords {
    // Adaptive thinking may begin a turn without a thought.
    if request.body["thinking"]["type"] != "enabled" {
        return None;
    }
    let messages = list(request.body, "messages");
    let is_result = |message: &Value| blocks(message, "tool_result").next().is_some();
    if !messages.last().is_some_and(is_result) {
        return None;
    }
    let place = messages.iter().rposition(|message| message["role"] == "assistant")?;
    let first = list(&messages[place], "content").first()?;
    let kind = text(first, "type");
    if kind == "thinking" || kind == "redacted_thinking" { None } else { found![place, kind] }
}

/// The marks of the cache in the order in which they count: whether each is for an hour.
fn marks(request: &StrictRequest<'_>) -> Vec<bool> {
    let mut marks = Vec::new();
    let mut note = |holder: &Value| {
        if let Some(mark) = holder.get("cache_control").filter(|mark| !mark.is_null()) {
            marks.push(mark["ttl"] == "1h");
        }
    };
    list(request.body, "tools").iter().for_each(&mut note);
    list(request.body, "system").iter().for_each(&mut note);
    for block in list(request.body, "messages").iter().flat_map(|one| list(one, "content")) {
        list(block, "content").iter().for_each(&mut note);
        note(block);
    }
    // The mark of the whole request counts as one behind the last message.
    note(request.body);
    marks
}
