//! Validation of Converse requests as Amazon Bedrock does it, and Anthropic's models behind it.

use serde_json::Value;

use super::models::{self, Fact};
use super::{
    StrictRequest, StrictRule, ViolationWords, duplicate, found, has, is_word, list, media, schema,
    text, unknown_key,
};

/// The reference of the endpoint.
const REFERENCE: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html";
/// The reference of blocks.
const BLOCKS: &str =
    "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html";
/// Documentation of structured outputs.
const SCHEMAS: &str = "https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html";
/// Documentation of thinking for Anthropic's models.
const THINKING: &str =
    "https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-extended-thinking.html";

/// The rules, in the order in which they are checked.
pub(super) const RULES: &[StrictRule] = &[
    StrictRule {
        name: "extraneous-key",
        source: REFERENCE,
        words: "Malformed input request: #: extraneous key [{}] is not permitted, please reformat your input and try again.",
        check: |request| unknown_key(request.body, &FIELDS).and_then(|key| found![key]),
        taken: r#"{"inferenceConfig": {"maxTokens": 9}}"#,
        refused: r#"{"max_tokens": 9}"#,
    },
    StrictRule {
        name: "extraneous-setting",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html",
        words: "Malformed input request: #/inferenceConfig: extraneous key [{}] is not permitted, please reformat your input and try again.",
        check: |request| {
            let allowed = ["maxTokens", "temperature", "topP", "stopSequences"];
            unknown_key(&request.body["inferenceConfig"], &allowed).and_then(|key| found![key])
        },
        taken: "{}",
        refused: r#"{"inferenceConfig": {"topK": 9}}"#,
    },
    StrictRule {
        name: "messages-needed",
        source: REFERENCE,
        words: "The messages field is empty. Add a message and try again.",
        check: |request| list(request.body, "messages").is_empty().then(Vec::new),
        taken: "{}",
        refused: r#"{"messages": []}"#,
    },
    StrictRule {
        name: "user-first",
        source: "https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html",
        words: "A conversation must start with a user message. Try again with a conversation that starts with a user message.",
        check: |request| (list(request.body, "messages").first()?["role"] != "user").then(Vec::new),
        taken: "{}",
        refused: r#"{"messages": [{"role": "assistant", "content": [{"text": "a"}]}, {"role": "user", "content": [{"text": "a"}]}]}"#,
    },
    StrictRule {
        name: "roles-alternate",
        source: "https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html",
        words: "A conversation must alternate between user and assistant roles. Make sure the conversation alternates between user and assistant roles and try again.",
        check: |request| {
            let roles: Vec<&str> =
                list(request.body, "messages").iter().map(|one| text(one, "role")).collect();
            let is_odd = roles.iter().any(|role| !["user", "assistant"].contains(role))
                || roles.windows(2).any(|pair| pair.first() == pair.last());
            is_odd.then(Vec::new)
        },
        taken: r#"{"messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"text": "b"}]}, {"role": "user", "content": [{"text": "c"}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "user", "content": [{"text": "b"}]}]}"#,
    },
    StrictRule {
        name: "content-needed",
        source: "https://github.com/archestra-ai/archestra/pull/4220; https://github.com/maximhq/bifrost/pull/6732",
        words: "The content field in the Message object at messages.{} is empty. Add a ContentBlock object to the content field and try again.",
        check: |request| {
            let mut messages = list(request.body, "messages").iter();
            messages
                .position(|message| list(message, "content").is_empty())
                .and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": []}]}"#,
    },
    StrictRule {
        name: "block-kind",
        source: BLOCKS,
        words: "The format of the value at messages.{}.content.{} is invalid. Provide a json object for the field and try again.",
        check: block_kind,
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}"#,
    },
    StrictRule {
        name: "text-blank",
        source: "https://github.com/OpenHands/OpenHands/issues/5339; https://github.com/LibreChat-AI/agents/pull/501",
        words: "The text field in the ContentBlock object at messages.{}.content.{} is blank. Add text to the text field, and try again.",
        check: |request| {
            let is_blank = |block: &Value| {
                block.get("text").and_then(Value::as_str).is_some_and(|it| it.trim().is_empty())
            };
            let (place, block_place, _) = blocks(request).find(|(.., block)| is_blank(block))?;
            found![place, block_place]
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"text": " \n"}]}]}"#,
    },
    StrictRule {
        name: "system-blank",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_SystemContentBlock.html",
        words: "The text field in the SystemContentBlock object at system.{} is blank. Add text to the text field, and try again.",
        check: |request| {
            let is_blank = |block: &Value| {
                block.get("text").and_then(Value::as_str).is_some_and(|it| it.trim().is_empty())
            };
            list(request.body, "system").iter().position(is_blank).and_then(|place| found![place])
        },
        taken: r#"{"system": [{"text": "a"}]}"#,
        refused: r#"{"system": [{"text": ""}]}"#,
    },
    StrictRule {
        name: "result-blank",
        source: "https://github.com/earendil-works/pi/pull/3443",
        words: "The text field in the ToolResultContentBlock object at messages.{}.content.{} is blank. Add text to the text field, and try again.",
        check: |request| {
            let is_blank = |block: &Value| {
                block.get("text").and_then(Value::as_str).is_some_and(|it| it.trim().is_empty())
            };
            let has_blank =
                |block: &Value| list(&block["toolResult"], "content").iter().any(is_blank);
            let (place, block_place, _) = blocks(request).find(|(.., block)| has_blank(block))?;
            found![place, block_place]
        },
        taken: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": ""}]}}]}]}"#,
    },
    StrictRule {
        name: "prefill",
        source: "https://github.com/Kilo-Org/kilocode/issues/8260; https://github.com/anomalyco/opencode/issues/13768",
        words: "The model returned the following errors: This model does not support assistant message prefill. The conversation must end with a user message.",
        check: |request| {
            let last = list(request.body, "messages").last()?;
            let refuses = models::is(request.model, Fact::NoPrefill) || thinks(request.body);
            (refuses && last["role"] == "assistant").then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"text": "b"}]}]}"#,
    },
    StrictRule {
        name: "document-text",
        source: "https://github.com/archestra-ai/archestra/pull/4220",
        words: "A text block must be included when using documents.",
        check: |request| {
            let lacks = |message: &Value| {
                let all = list(message, "content");
                all.iter().any(|block| has(block, "document"))
                    && !all.iter().any(|block| has(block, "text"))
            };
            list(request.body, "messages").iter().any(lacks).then(Vec::new)
        },
        taken: r#"{"messages": [{"role": "user", "content": [{"document": {"format": "txt", "name": "a", "source": {"bytes": "YQ=="}}}, {"text": "b"}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"document": {"format": "txt", "name": "a", "source": {"bytes": "YQ=="}}}]}]}"#,
    },
    StrictRule {
        name: "document-name",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html",
        words: "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, parentheses, and square brackets. The name can't contain more than one consecutive whitespace character. {}",
        check: |request| {
            let mut names = documents(request).map(|document| text(document, "name"));
            let is_odd =
                |name: &str| !is_word(name, " -()[]") || name.contains("  ") || name.len() > 200;
            names.find(|name| is_odd(name)).and_then(|name| found![name])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"document": {"format": "txt", "name": "a.txt", "source": {"bytes": "YQ=="}}}, {"text": "b"}]}]}"#,
    },
    StrictRule {
        name: "document-names-unique",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html",
        words: "Messages can't contain duplicate document names: {}. Update the request and try again.",
        check: |request| {
            duplicate(documents(request).map(|document| text(document, "name")))
                .and_then(|name| found![name])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"document": {"format": "txt", "name": "a", "source": {"bytes": "YQ=="}}}, {"document": {"format": "txt", "name": "a", "source": {"bytes": "YQ=="}}}, {"text": "b"}]}]}"#,
    },
    StrictRule {
        name: "media-format",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ImageBlock.html",
        words: "Member must satisfy enum value set: [png, jpeg, gif, webp] or [pdf, csv, doc, docx, xls, xlsx, html, txt, md]: {}",
        check: |request| {
            let pictures = ["png", "jpeg", "gif", "webp"];
            let documents = ["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"];
            for block in all_blocks(request) {
                for (kind, allowed) in [("image", &pictures[..]), ("document", &documents[..])] {
                    let format = text(&block[kind], "format");
                    if has(block, kind) && !allowed.contains(&format) {
                        return found![format];
                    }
                }
            }
            None
        },
        taken: r#"{"messages": [{"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"image": {"format": "jpg", "source": {"bytes": "/9j/4AAQ"}}}]}]}"#,
    },
    StrictRule {
        name: "picture-bytes",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ImageBlock.html",
        words: "The model returned the following errors: The image was specified using the image/{} media type, but the image appears to be another",
        check: |request| {
            let pictures =
                all_blocks(request).map(|block| &block["image"]).filter(|image| image.is_object());
            for image in pictures {
                let format = text(image, "format");
                let found = media::picture_type(text(&image["source"], "bytes"));
                if found.is_none_or(|kind| kind != format!("image/{format}")) {
                    return found![format];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"image": {"format": "jpeg", "source": {"bytes": "iVBORw0KGgo="}}}]}]}"#,
    },
    StrictRule {
        name: "document-bytes",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentSource.html",
        words: "The model returned the following errors: The document {} is empty or not valid.",
        check: |request| {
            for document in documents(request) {
                let source = &document["source"];
                let bytes = text(source, "bytes");
                if has(source, "bytes") && !media::is_base64(bytes) {
                    return found![text(document, "name")];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"document": {"format": "txt", "name": "a", "source": {"bytes": ""}}}, {"text": "b"}]}]}"#,
    },
    StrictRule {
        name: "documents-most",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html",
        words: "You can include up to five documents in a message: {}",
        check: |request| {
            let count = |message: &Value| {
                list(message, "content").iter().filter(|block| has(block, "document")).count()
            };
            let most = list(request.body, "messages").iter().map(count).max()?;
            if most > 5 { found![most] } else { None }
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "b"}, {"document": {"format": "txt", "name": "a", "source": {"bytes": "YQ=="}}}, {"document": {"format": "txt", "name": "b", "source": {"bytes": "YQ=="}}}, {"document": {"format": "txt", "name": "c", "source": {"bytes": "YQ=="}}}, {"document": {"format": "txt", "name": "d", "source": {"bytes": "YQ=="}}}, {"document": {"format": "txt", "name": "e", "source": {"bytes": "YQ=="}}}, {"document": {"format": "txt", "name": "f", "source": {"bytes": "YQ=="}}}]}]}"#,
    },
    StrictRule {
        name: "tool-config",
        source: "https://github.com/patriceckhart/zot/pull/18; https://github.com/anomalyco/opencode/issues/10259",
        words: "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        check: |request| {
            let uses = blocks(request)
                .any(|(.., block)| has(block, "toolUse") || has(block, "toolResult"));
            (uses && !has(request.body, "toolConfig")).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "tools-needed",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolConfiguration.html",
        words: "Value '[]' at 'toolConfig.tools' failed to satisfy constraint: Member must have length greater than or equal to 1",
        check: |request| {
            let config = request.body.get("toolConfig")?;
            list(config, "tools").is_empty().then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": []}}"#,
    },
    StrictRule {
        name: "calls-answered",
        source: "https://github.com/NousResearch/hermes-agent/issues/108584",
        words: "Expected toolResult blocks at messages.{}.content for the following Ids: {}",
        check: unanswered_call,
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"text": "b"}]}]}"#,
    },
    StrictRule {
        name: "results-behind-calls",
        source: "https://github.com/langgenius/dify-official-plugins/issues/765; https://github.com/pydantic/pydantic-ai/issues/2327",
        words: "The number of toolResult blocks at messages.{}.content exceeds the number of toolUse blocks of previous turn.",
        check: stray_result,
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "results-first",
        source: "https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls",
        words: "The model returned the following errors: messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after",
        check: |request| {
            for (place, message) in list(request.body, "messages").iter().enumerate() {
                let mut behind = list(message, "content")
                    .iter()
                    .skip_while(|block| has(block, "toolResult") || has(block, "cachePoint"));
                if behind.any(|block| has(block, "toolResult")) {
                    return found![place];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"text": "d"}, {"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "result-ids-unique",
        source: "https://github.com/BerriAI/litellm/issues/20047",
        words: "The toolResult blocks at messages.{}.content contain duplicate Ids: {}",
        check: |request| duplicate_ids(request, "toolResult"),
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}, {"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "call-ids-unique",
        source: "https://github.com/BerriAI/litellm/pull/20049",
        words: "The toolUse blocks at messages.{}.content contain duplicate Ids: {}",
        check: |request| duplicate_ids(request, "toolUse"),
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}, {"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "call-ids-unique-in-all",
        source: "https://github.com/trycua/cua/issues/524",
        words: "The model returned the following errors: messages: `tool_use` ids must be unique: {}",
        check: |request| {
            if !is_claude(request.model) {
                return None;
            }
            let ids = blocks(request).filter(|(.., block)| has(block, "toolUse"));
            let ids = ids.map(|(.., block)| text(&block["toolUse"], "toolUseId"));
            duplicate(ids).and_then(|id| found![id])
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "call-id",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html",
        words: "Value '{}' at 'messages.{}.member.content.{}.member.toolUse.toolUseId' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.:-]+ and have length less than or equal to 64",
        check: |request| {
            for (place, block_place, block) in blocks(request) {
                for key in ["toolUse", "toolResult"] {
                    let id = text(&block[key], "toolUseId");
                    // Anthropic's models know fewer letters than the API.
                    let signs = if is_claude(request.model) { "_-" } else { "_.:-" };
                    if has(block, key) && (!is_word(id, signs) || id.len() > 64) {
                        return found![id, place, block_place];
                    }
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c|1", "name": "f", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c|1", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "call-name",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html",
        words: "Value '{}' at 'messages.{}.member.content.{}.member.toolUse.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+ and have length less than or equal to 64",
        check: |request| {
            for (place, block_place, block) in blocks(request) {
                let name = text(&block["toolUse"], "name");
                if has(block, "toolUse") && (!is_word(name, "_-") || name.len() > 64) {
                    return found![name, place, block_place];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f.g", "input": {}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "call-input",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html",
        words: "The format of the value at messages.{}.content.{}.toolUse.input is invalid. Provide a json object for the field and try again.",
        check: |request| {
            let is_odd =
                |block: &Value| has(block, "toolUse") && !block["toolUse"]["input"].is_object();
            let (place, block_place, _) = blocks(request).find(|(.., block)| is_odd(block))?;
            found![place, block_place]
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}, "messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": "x"}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "b"}]}}]}]}"#,
    },
    StrictRule {
        name: "tool-name",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolSpecification.html",
        words: "1 validation error detected: Value '{}' at 'toolConfig.tools.{}.member.toolSpec.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+ and have length less than or equal to 64",
        check: |request| {
            let mut names = specs(request).map(|spec| text(spec, "name")).enumerate();
            let (place, name) = names.find(|(_, name)| !is_word(name, "_-") || name.len() > 64)?;
            found![name, place + 1]
        },
        taken: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a_b-c", "inputSchema": {"json": {"type": "object"}}}}]}}"#,
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a.b", "inputSchema": {"json": {"type": "object"}}}}]}}"#,
    },
    StrictRule {
        name: "tool-names-unique",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolConfiguration.html",
        words: "The tool {} is already defined at toolConfig.tools. Tool names must be unique.",
        check: |request| {
            duplicate(specs(request).map(|spec| text(spec, "name"))).and_then(|name| found![name])
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"json": {"type": "object"}}}}, {"toolSpec": {"name": "a", "inputSchema": {"json": {"type": "object"}}}}]}}"#,
    },
    StrictRule {
        name: "tool-description",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolSpecification.html",
        words: "Value '' at 'toolConfig.tools.{}.member.toolSpec.description' failed to satisfy constraint: Member must have length greater than or equal to 1",
        check: |request| {
            let place = specs(request).position(|spec| spec["description"] == "")?;
            found![place + 1]
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a", "description": "", "inputSchema": {"json": {"type": "object"}}}}]}}"#,
    },
    StrictRule {
        name: "tool-schema",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolInputSchema.html",
        words: "The value at toolConfig.tools.{}.toolSpec.inputSchema.json.type must be one of the following: object.",
        check: |request| {
            let place =
                specs(request).position(|spec| spec["inputSchema"]["json"]["type"] != "object")?;
            found![place]
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"json": {"properties": {}}}}}]}}"#,
    },
    StrictRule {
        name: "tool-schema-of-claude",
        source: "https://github.com/anthropics/claude-code/issues/5973; https://github.com/diegosouzapw/OmniRoute/issues/13552",
        words: "The model returned the following errors: tools.{}.custom.input_schema: {}",
        check: |request| {
            if !is_claude(request.model) {
                return None;
            }
            for (place, spec) in specs(request).enumerate() {
                let schema = &spec["inputSchema"]["json"];
                if ["oneOf", "allOf", "anyOf"].iter().any(|key| schema.get(*key).is_some()) {
                    return found![
                        place,
                        "input_schema does not support oneOf, allOf, or anyOf at the top level"
                    ];
                }
                if !schema::is_draft_2020(schema) {
                    return found![
                        place,
                        "JSON schema is invalid. It must match JSON Schema draft 2020-12"
                    ];
                }
                if schema::odd_property(schema).is_some() {
                    return found![
                        place,
                        "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
                    ];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"json": {"type": "object", "anyOf": []}}}}]}}"#,
    },
    StrictRule {
        name: "tool-schema-strict",
        source: SCHEMAS,
        words: "The model returned the following errors: tools.{}.custom: {}",
        check: |request| {
            for (place, spec) in specs(request).enumerate() {
                if spec["strict"] != true {
                    continue;
                }
                if let Some(fault) = schema::anthropic_strict(&spec["inputSchema"]["json"]) {
                    return found![place, fault.words];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a", "strict": true, "inputSchema": {"json": {"type": "object"}}}}]}}"#,
    },
    StrictRule {
        name: "choice-names-a-tool",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_SpecificToolChoice.html",
        words: "The tool {} at toolConfig.toolChoice is not defined in toolConfig.tools.",
        check: |request| {
            let name = text(request.body["toolConfig"]["toolChoice"].get("tool")?, "name");
            let is_there = specs(request).any(|spec| spec["name"] == name);
            if is_there { None } else { found![name] }
        },
        taken: "{}",
        refused: r#"{"toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"json": {"type": "object"}}}}], "toolChoice": {"tool": {"name": "b"}}}}"#,
    },
    StrictRule {
        name: "max-tokens",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html",
        words: "Value '0' at 'inferenceConfig.maxTokens' failed to satisfy constraint: Member must have value greater than or equal to 1",
        check: |request| (request.body["inferenceConfig"]["maxTokens"] == 0).then(Vec::new),
        taken: "{}",
        refused: r#"{"inferenceConfig": {"maxTokens": 0}}"#,
    },
    StrictRule {
        name: "max-tokens-most",
        source: "https://github.com/opencode-ai/opencode/issues/140",
        words: "The maximum tokens you requested exceeds the model limit of {}. Try again with a maximum tokens value that is lower than {}.",
        check: |request| {
            let most = models::output_max(request.model)?;
            let max_tokens = request.body["inferenceConfig"]["maxTokens"].as_u64()?;
            if max_tokens > most { found![most, most] } else { None }
        },
        taken: "{}",
        refused: r#"{"inferenceConfig": {"maxTokens": 128001}}"#,
    },
    StrictRule {
        name: "sampling-range",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html",
        words: "Value at 'inferenceConfig.{}' failed to satisfy constraint: Member must have value less than or equal to 1",
        check: |request| {
            let config = &request.body["inferenceConfig"];
            let is_over = |field: &str| {
                config
                    .get(field)
                    .and_then(Value::as_f64)
                    .is_some_and(|it| !(0.0..=1.0).contains(&it))
            };
            ["temperature", "topP"]
                .into_iter()
                .find(|field| is_over(field))
                .and_then(|field| found![field])
        },
        taken: r#"{"model": "anthropic.claude-haiku-4-5", "inferenceConfig": {"temperature": 1}}"#,
        refused: r#"{"model": "anthropic.claude-haiku-4-5", "inferenceConfig": {"temperature": 1.5}}"#,
    },
    StrictRule {
        name: "sampling-of-models",
        source: "https://platform.claude.com/docs/en/about-claude/models/migration-guide",
        words: "The model returned the following errors: `{}` is deprecated for this model.",
        check: |request| {
            let refuses = models::is(request.model, Fact::NoSampling);
            let config = &request.body["inferenceConfig"];
            let extra = &request.body["additionalModelRequestFields"];
            let fields = [("temperature", config), ("topP", config), ("top_k", extra)];
            let (field, _) =
                fields.into_iter().find(|(field, holder)| refuses && has(holder, field))?;
            found![field]
        },
        taken: "{}",
        refused: r#"{"inferenceConfig": {"topP": 0.5}}"#,
    },
    StrictRule {
        name: "sampling-one",
        source: "https://platform.claude.com/docs/en/about-claude/models/migration-guide",
        words: "The model returned the following errors: `temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        check: |request| {
            let config = &request.body["inferenceConfig"];
            let both = has(config, "temperature") && has(config, "topP");
            (both && models::is(request.model, Fact::OneSampling)).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "anthropic.claude-haiku-4-5", "inferenceConfig": {"temperature": 0.5, "topP": 0.5}}"#,
    },
    StrictRule {
        name: "stop",
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html; https://github.com/BerriAI/litellm/issues/3286",
        words: "Value at 'inferenceConfig.stopSequences' failed to satisfy constraint: {}",
        check: |request| {
            let stops = list(&request.body["inferenceConfig"], "stopSequences");
            if stops.iter().any(|stop| stop == "") {
                return found!["Member must have length greater than or equal to 1"];
            }
            let is_blank = |stop: &Value| stop.as_str().is_none_or(|stop| stop.trim().is_empty());
            if is_claude(request.model) && stops.iter().any(is_blank) {
                return found!["each stop sequence must contain non-whitespace"];
            }
            None
        },
        taken: r#"{"inferenceConfig": {"stopSequences": ["a"]}}"#,
        refused: r#"{"inferenceConfig": {"stopSequences": ["\n"]}}"#,
    },
    StrictRule {
        name: "thinking",
        source: THINKING,
        words: "The model returned the following errors: {}",
        check: thinking,
        taken: r#"{"model": "anthropic.claude-haiku-4-5", "inferenceConfig": {"maxTokens": 2000}, "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1024}}}"#,
        refused: r#"{"model": "anthropic.claude-haiku-4-5", "inferenceConfig": {"maxTokens": 1024}, "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1024}}}"#,
    },
    StrictRule {
        name: "thinking-last",
        source: "https://github.com/tailcallhq/forgecode/issues/2107",
        words: "The model returned the following errors: messages.{}: The final block in an assistant message cannot be `thinking`.",
        check: |request| {
            let is_thought = |message: &Value| {
                let mut all =
                    list(message, "content").iter().rev().filter(|block| !has(block, "cachePoint"));
                all.next().is_some_and(|block| has(block, "reasoningContent"))
            };
            list(request.body, "messages")
                .iter()
                .position(is_thought)
                .and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "b", "signature": "c2ln"}}}]}, {"role": "user", "content": [{"text": "c"}]}]}"#,
    },
    StrictRule {
        name: "answer-schema",
        source: SCHEMAS,
        words: "The model returned the following errors: output_config.format.schema: {}",
        check: |request| {
            let structure = &request.body["outputConfig"]["textFormat"]["structure"];
            let written = structure.get("jsonSchema")?.get("schema")?;
            let Some(schema) =
                written.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok())
            else {
                return found!["must be a JSON schema as a string"];
            };
            let fault = schema::anthropic_strict(&schema)?;
            found![fault.words]
        },
        taken: r#"{"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"}}}}}"#,
        refused: r#"{"outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{\"type\":\"object\",\"properties\":{}}"}}}}}"#,
    },
    StrictRule {
        name: "cache-first",
        source: "https://github.com/strands-agents/harness-sdk/pull/3677",
        words: "There is nothing available to cache.",
        check: |request| {
            let is_first =
                |all: &[Value]| all.first().is_some_and(|block| has(block, "cachePoint"));
            let messages =
                list(request.body, "messages").iter().map(|message| list(message, "content"));
            let others = [list(request.body, "system"), list(&request.body["toolConfig"], "tools")];
            messages.chain(others).any(is_first).then(Vec::new)
        },
        taken: r#"{"messages": [{"role": "user", "content": [{"text": "a"}, {"cachePoint": {"type": "default"}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"cachePoint": {"type": "default"}}, {"text": "a"}]}]}"#,
    },
    StrictRule {
        name: "cache-reasoning",
        source: "https://github.com/anomalyco/opencode/issues/36517",
        words: "Cache point cannot be inserted after reasoning block. Please remove the invalid cache point and try again.",
        check: |request| cached_behind(request, &|block| has(block, "reasoningContent")),
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "b", "signature": "c2ln"}}}, {"cachePoint": {"type": "default"}}, {"text": "c"}]}, {"role": "user", "content": [{"text": "c"}]}]}"#,
    },
    StrictRule {
        name: "cache-document",
        source: "https://github.com/strands-agents/harness-sdk/issues/1966; https://github.com/aws/aws-sdk-java-v2/issues/6277",
        words: "The model returned the following errors: messages.content.type: Field required",
        check: |request| {
            let is_text_file =
                |block: &Value| has(block, "document") && block["document"]["format"] != "pdf";
            cached_behind(request, &is_text_file)
        },
        taken: r#"{"messages": [{"role": "user", "content": [{"text": "a"}, {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0="}}}, {"cachePoint": {"type": "default"}}]}]}"#,
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "a"}, {"document": {"format": "txt", "name": "a", "source": {"bytes": "YQ=="}}}, {"cachePoint": {"type": "default"}}]}]}"#,
    },
    StrictRule {
        name: "cache-most",
        source: "https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html",
        words: "A maximum of 4 blocks with cache_control may be provided. Found {}.",
        check: |request| {
            let count = cache_points(request).count();
            if count > 4 { found![count] } else { None }
        },
        taken: "{}",
        refused: r#"{"messages": [{"role": "user", "content": [{"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "a"}, {"cachePoint": {"type": "default"}}, {"text": "a"}, {"cachePoint": {"type": "default"}}]}]}"#,
    },
    StrictRule {
        name: "cache-order",
        source: "https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html",
        words: "A cachePoint with ttl 1h must not come after one with ttl 5m. Note that they are processed in the following order: tools, system, messages.",
        check: |request| {
            let mut behind = cache_points(request)
                .map(|point| point["ttl"] == "1h")
                .skip_while(|is_long| *is_long);
            behind.any(|is_long| is_long).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"system": [{"text": "a"}, {"cachePoint": {"type": "default"}}], "messages": [{"role": "user", "content": [{"text": "a"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]}]}"#,
    },
];

/// Fields at the top of a request.
const FIELDS: [&str; 12] = [
    "messages",
    "system",
    "inferenceConfig",
    "toolConfig",
    "guardrailConfig",
    "additionalModelRequestFields",
    "promptVariables",
    "additionalModelResponseFieldPaths",
    "requestMetadata",
    "performanceConfig",
    "serviceTier",
    "outputConfig",
];
/// Members of a `ContentBlock`, of which each block has one.
const BLOCK_KINDS: [&str; 12] = [
    "text",
    "image",
    "document",
    "video",
    "audio",
    "toolUse",
    "toolResult",
    "guardContent",
    "cachePoint",
    "reasoningContent",
    "citationsContent",
    "searchResult",
];

fn is_claude(model: &str) -> bool {
    model.contains("claude")
}

fn thinks(body: &Value) -> bool {
    let thinking = &body["additionalModelRequestFields"]["thinking"];
    ["enabled", "adaptive"].contains(&text(thinking, "type"))
}

/// The blocks of all messages, with the places of message and block.
fn blocks<'r>(
    request: &StrictRequest<'r>,
) -> impl Iterator<Item = (usize, usize, &'r Value)> + use<'r> {
    let messages = list(request.body, "messages").iter().enumerate();
    messages.flat_map(|(place, message)| {
        let blocks = list(message, "content").iter().enumerate();
        blocks.map(move |(block_place, block)| (place, block_place, block))
    })
}

/// The blocks of all messages, and those in results of tools.
fn all_blocks<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = &'r Value> + use<'r> {
    blocks(request)
        .flat_map(|(.., block)| std::iter::once(block).chain(list(&block["toolResult"], "content")))
}

fn documents<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = &'r Value> + use<'r> {
    all_blocks(request).map(|block| &block["document"]).filter(|document| document.is_object())
}

fn specs<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = &'r Value> + use<'r> {
    let tools = list(&request.body["toolConfig"], "tools").iter();
    tools.filter_map(|tool| tool.get("toolSpec"))
}

fn block_kind(request: &StrictRequest<'_>) -> ViolationWords {
    let fits = |block: &Value| {
        let members = block.as_object();
        members.is_some_and(|members| {
            members.len() == 1 && members.keys().all(|key| BLOCK_KINDS.contains(&key.as_str()))
        })
    };
    let (place, block_place, _) = blocks(request).find(|(.., block)| !fits(block))?;
    found![place, block_place]
}

/// The ids of blocks of this kind in a message.
fn ids<'v>(message: &'v Value, kind: &'v str) -> impl Iterator<Item = &'v str> {
    let all = list(message, "content").iter().filter(move |block| has(block, kind));
    all.map(move |block| text(&block[kind], "toolUseId"))
}

fn unanswered_call(request: &StrictRequest<'_>) -> ViolationWords {
    let messages = list(request.body, "messages");
    for (place, message) in messages.iter().enumerate() {
        let next = messages.get(place + 1).unwrap_or(&Value::Null);
        let mut calls = ids(message, "toolUse");
        if let Some(id) = calls.find(|id| !ids(next, "toolResult").any(|answer| answer == *id)) {
            return found![place + 1, id];
        }
    }
    None
}

fn stray_result(request: &StrictRequest<'_>) -> ViolationWords {
    let mut open: Vec<&str> = Vec::new();
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        if ids(message, "toolResult").any(|id| !open.contains(&id)) {
            return found![place];
        }
        open = ids(message, "toolUse").collect();
    }
    None
}

fn duplicate_ids(request: &StrictRequest<'_>, kind: &'static str) -> ViolationWords {
    for (place, message) in list(request.body, "messages").iter().enumerate() {
        if let Some(id) = duplicate(ids(message, kind)) {
            return found![place, id];
        }
    }
    None
}

fn thinking(request: &StrictRequest<'_>) -> ViolationWords {
    let fields = &request.body["additionalModelRequestFields"];
    let kind = text(&fields["thinking"], "type");
    if has(fields, "thinking") && !is_claude(request.model) && request.model.contains('.') {
        return found!["extraneous key [thinking] is not permitted"];
    }
    if kind == "adaptive" && models::is(request.model, Fact::Budget) {
        return found!["thinking.type.adaptive: is not supported for this model"];
    }
    if kind == "enabled" && models::is(request.model, Fact::Adaptive) {
        return found!["thinking.type.enabled: is not supported for this model"];
    }
    let forces =
        ["any", "tool"].iter().any(|key| has(&request.body["toolConfig"]["toolChoice"], key));
    if thinks(request.body) && forces {
        return found!["Thinking may not be enabled when tool_choice forces tool use."];
    }
    let config = &request.body["inferenceConfig"];
    let is_cold = config.get("temperature").and_then(Value::as_f64).is_some_and(|it| it < 1.0);
    if thinks(request.body) && (is_cold || has(fields, "top_k")) {
        return found!["`temperature` may only be set to 1 when thinking is enabled"];
    }
    let budget = fields["thinking"].get("budget_tokens")?.as_u64()?;
    if budget < 1024 {
        return found![
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        ];
    }
    if config["maxTokens"].as_u64().is_some_and(|most| budget >= most) {
        return found!["`max_tokens` must be greater than `thinking.budget_tokens`"];
    }
    thinking_first(request)
}

/// With a thinking budget in tokens, the continued assistant turn must begin with a thinking block.
fn thinking_first(request: &StrictRequest<'_>) -> ViolationWords {
    let messages = list(request.body, "messages");
    ids(messages.last()?, "toolResult").next()?;
    let last = messages.iter().rfind(|message| message["role"] == "assistant")?;
    let first = list(last, "content").first()?;
    if has(first, "reasoningContent") {
        return None;
    }
    found![
        "Expected `thinking` or `redacted_thinking`. When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    ]
}

/// The places up to which the prompt is cached, in the order in which they count.
fn cache_points<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = &'r Value> + use<'r> {
    let tools = list(&request.body["toolConfig"], "tools").iter();
    let system = list(request.body, "system").iter();
    let messages = list(request.body, "messages").iter().flat_map(|one| list(one, "content"));
    tools.chain(system).chain(messages).filter_map(|block| block.get("cachePoint"))
}

/// A place in the cache that stands right behind such a block.
fn cached_behind(request: &StrictRequest<'_>, is_odd: &dyn Fn(&Value) -> bool) -> ViolationWords {
    for message in list(request.body, "messages") {
        let breaks = |pair: &[Value]| match pair {
            [one, next] => is_odd(one) && has(next, "cachePoint"),
            _ => false,
        };
        if list(message, "content").windows(2).any(breaks) {
            return Some(Vec::new());
        }
    }
    None
}
