//! Validation of `generateContent` requests as Google does it.

use serde_json::Value;

use super::models::{self, Fact};
use super::{
    StrictRequest, StrictRule, ViolationWords, duplicate, found, has, is_word, list, media, schema,
    text, unknown_key,
};

/// The reference of the endpoint.
const REFERENCE: &str = "https://ai.google.dev/api/generate-content";
/// The documentation of function calling.
const FUNCTIONS: &str = "https://ai.google.dev/gemini-api/docs/function-calling";
/// The documentation of thinking and its budgets.
const THINKING: &str = "https://ai.google.dev/gemini-api/docs/thinking";

/// The rules, in the order in which they are checked.
pub(super) const RULES: &[StrictRule] = &[
    StrictRule {
        name: "unknown-name",
        source: REFERENCE,
        words: "Invalid JSON payload received. Unknown name \"{}\": Cannot find field.",
        check: |request| unknown_key(request.body, &FIELDS).and_then(|key| found![key]),
        taken: r#"{"systemInstruction": {"parts": [{"text": "a"}]}}"#,
        refused: r#"{"messages": []}"#,
    },
    StrictRule {
        name: "unknown-setting",
        source: "https://ai.google.dev/api/generate-content#generationconfig",
        words: "Invalid JSON payload received. Unknown name \"{}\" at 'generation_config': Cannot find field.",
        check: |request| {
            unknown_key(&request.body["generationConfig"], &SETTINGS).and_then(|key| found![key])
        },
        taken: r#"{"generationConfig": {"maxOutputTokens": 9, "topK": 3}}"#,
        refused: r#"{"generationConfig": {"max_tokens": 9}}"#,
    },
    StrictRule {
        name: "unknown-part",
        source: "https://ai.google.dev/api/caching#Part",
        words: "Invalid JSON payload received. Unknown name \"{}\" at 'contents[{}].parts[{}]': Cannot find field.",
        check: |request| {
            let (place, part_place, part) =
                parts(request).find(|(.., part)| unknown_key(part, &PARTS).is_some())?;
            found![unknown_key(part, &PARTS).unwrap_or_default(), place, part_place]
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"text": "a", "type": "text"}]}]}"#,
    },
    StrictRule {
        name: "contents-needed",
        source: REFERENCE,
        words: "* GenerateContentRequest.contents: contents is not specified",
        check: |request| list(request.body, "contents").is_empty().then(Vec::new),
        taken: "{}",
        refused: r#"{"contents": []}"#,
    },
    StrictRule {
        name: "role",
        source: "https://ai.google.dev/api/caching#Content",
        words: "Please use a valid role: user, model.",
        check: |request| {
            let allowed = ["", "user", "model", "function"];
            let mut contents = list(request.body, "contents").iter();
            contents.any(|content| !allowed.contains(&text(content, "role"))).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "assistant", "parts": [{"text": "a"}]}]}"#,
    },
    StrictRule {
        name: "parts-needed",
        source: "https://ai.google.dev/api/caching#Content",
        words: "* GenerateContentRequest.contents[{}].parts: contents.parts must not be empty.",
        check: |request| {
            let mut contents = list(request.body, "contents").iter();
            contents
                .position(|content| list(content, "parts").is_empty())
                .and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": []}]}"#,
    },
    StrictRule {
        name: "part-data",
        source: "https://ai.google.dev/api/caching#Part",
        words: "* GenerateContentRequest.contents[{}].parts[{}].data: required oneof field 'data' must have one initialized field",
        check: |request| {
            let lacks = |part: &Value| {
                let kinds = [
                    "inlineData",
                    "fileData",
                    "functionCall",
                    "functionResponse",
                    "executableCode",
                    "codeExecutionResult",
                ];
                // A thought that is hidden has an empty text and its signature.
                let has_text = part["text"].as_str().is_some_and(|text_part| !text_part.is_empty())
                    || (part["text"].is_string() && has(part, "thoughtSignature"));
                !has_text && !kinds.iter().any(|kind| has(part, kind))
            };
            let (place, part_place, _) = parts(request).find(|(.., part)| lacks(part))?;
            found![place, part_place]
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"text": ""}]}]}"#,
    },
    StrictRule {
        name: "instruction-text",
        source: "https://ai.google.dev/gemini-api/docs/text-generation#system-instructions",
        words: "* GenerateContentRequest.system_instruction.parts: must not be empty.",
        check: |request| {
            let instruction = request.body.get("systemInstruction")?;
            let all = list(instruction, "parts");
            let lacks = all.is_empty() || all.iter().any(|part| text(part, "text").is_empty());
            lacks.then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"systemInstruction": {"parts": []}}"#,
    },
    StrictRule {
        name: "user-first",
        source: "https://github.com/google-gemini/gemini-cli/issues/26486",
        words: "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
        check: call_turn,
        taken: r#"{"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]}, {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}"#,
        refused: r#"{"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]}, {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}"#,
    },
    StrictRule {
        name: "responses-equal-calls",
        source: "https://github.com/google-gemini/gemini-cli/issues/7410",
        words: "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
        check: call_numbers,
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]}, {"role": "user", "parts": [{"text": "b"}]}]}"#,
    },
    StrictRule {
        name: "responses-behind-calls",
        source: "https://github.com/google-gemini/gemini-cli/issues/26956",
        words: "Please ensure that function response turn comes immediately after a function call turn.",
        check: |request| {
            let mut before = 0;
            for content in list(request.body, "contents") {
                if before == 0 && count(content, "functionResponse") > 0 {
                    return Some(Vec::new());
                }
                before = count(content, "functionCall");
            }
            None
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}"#,
    },
    StrictRule {
        name: "response-name",
        source: "https://ai.google.dev/api/caching#FunctionResponse",
        words: "* GenerateContentRequest.contents[{}].parts[{}].function_response.name: Name cannot be empty.",
        check: |request| {
            let lacks = |part: &Value| {
                let response = &part["functionResponse"];
                response.is_object() && text(response, "name").is_empty()
            };
            let (place, part_place, _) = parts(request).find(|(.., part)| lacks(part))?;
            found![place, part_place]
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]}, {"role": "user", "parts": [{"functionResponse": {"response": {}}}]}]}"#,
    },
    StrictRule {
        name: "response-object",
        source: "https://ai.google.dev/api/caching#FunctionResponse",
        words: "Invalid value at 'contents[{}].parts[{}].function_response.response' (type.googleapis.com/google.protobuf.Struct)",
        check: |request| {
            let is_odd = |part: &Value| {
                (part["functionResponse"].is_object()
                    && !part["functionResponse"]["response"].is_object())
                    || (part["functionCall"].is_object()
                        && part["functionCall"].get("args").is_some_and(|args| !args.is_object()))
            };
            let (place, part_place, _) = parts(request).find(|(.., part)| is_odd(part))?;
            found![place, part_place]
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]}, {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": "x"}}]}]}"#,
    },
    StrictRule {
        name: "signature-missing",
        source: "https://ai.google.dev/gemini-api/docs/thought-signatures",
        words: "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `{}`, position {}.",
        check: unsigned_call,
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}, {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}"#,
    },
    StrictRule {
        name: "signature-base64",
        source: "https://ai.google.dev/gemini-api/docs/thought-signatures",
        words: "Invalid value at 'contents[{}].parts[{}].thought_signature' (TYPE_BYTES), Base64 decoding failed",
        check: |request| {
            let is_odd = |part: &Value| {
                let signature = text(part, "thoughtSignature");
                let is_dummy =
                    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"]
                        .contains(&signature);
                has(part, "thoughtSignature") && !is_dummy && !is_word(signature, "+/=-_")
            };
            let (place, part_place, _) = parts(request).find(|(.., part)| is_odd(part))?;
            found![place, part_place]
        },
        taken: r#"{"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}]}, {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}"#,
        refused: r#"{"contents": [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "tg1.a b"}]}, {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]}"#,
    },
    StrictRule {
        name: "media-type",
        source: "https://ai.google.dev/gemini-api/docs/image-understanding#supported-formats; https://ai.google.dev/gemini-api/docs/document-processing",
        words: "Unsupported MIME type: {}",
        check: |request| {
            let kinds = parts(request)
                .map(|(.., part)| &part["inlineData"])
                .filter(|data| data.is_object());
            let mut kinds = kinds.map(|data| text(data, "mimeType"));
            kinds.find(|kind| !takes_media(kind)).and_then(|kind| found![kind])
        },
        taken: r#"{"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}]}"#,
        refused: r#"{"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "application/msword", "data": "0M8R4A=="}}]}]}"#,
    },
    StrictRule {
        name: "media-base64",
        source: "https://ai.google.dev/api/caching#Blob",
        words: "Invalid value at 'contents[{}].parts[{}].inline_data.data' (TYPE_BYTES), Base64 decoding failed",
        check: |request| {
            let is_odd = |part: &Value| {
                part["inlineData"].is_object()
                    && !media::is_base64(text(&part["inlineData"], "data"))
            };
            let (place, part_place, _) = parts(request).find(|(.., part)| is_odd(part))?;
            found![place, part_place]
        },
        taken: "{}",
        refused: r#"{"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "?"}}]}]}"#,
    },
    StrictRule {
        name: "tool-name",
        source: "https://github.com/kaitranntt/ccs/issues/25; https://github.com/google-gemini/gemini-cli/issues/7869",
        words: "* GenerateContentRequest.tools[0].function_declarations[{}].name: Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.",
        check: |request| {
            let is_odd = |name: &str| {
                let begins =
                    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
                !begins || !is_word(name, "_.:-") || name.len() > 64
            };
            let mut names = declarations(request).map(|tool| text(tool, "name"));
            names.position(is_odd).and_then(|place| found![place])
        },
        taken: r#"{"tools": [{"functionDeclarations": [{"name": "a.b:c-d"}]}]}"#,
        refused: r#"{"tools": [{"functionDeclarations": [{"name": "1a"}]}]}"#,
    },
    StrictRule {
        name: "tool-names-unique",
        source: FUNCTIONS,
        words: "Duplicate function declaration found: {}",
        check: |request| {
            let names = declarations(request).map(|tool| text(tool, "name"));
            duplicate(names).and_then(|name| found![name])
        },
        taken: "{}",
        refused: r#"{"tools": [{"functionDeclarations": [{"name": "a"}, {"name": "a"}]}]}"#,
    },
    StrictRule {
        name: "tool-schema-keywords",
        source: "https://ai.google.dev/api/caching#Schema",
        words: "Invalid JSON payload received. Unknown name \"{}\" at 'tools[0].function_declarations[{}].parameters{}': Cannot find field.",
        check: |request| {
            for (place, tool) in declarations(request).enumerate() {
                let Some(parameters) = tool.get("parameters") else { continue };
                if let Some(fault) = schema::gemini_unknown(parameters) {
                    return found![fault.words, place, fault.place];
                }
            }
            None
        },
        taken: r#"{"tools": [{"functionDeclarations": [{"name": "a", "parameters": {"type": "OBJECT", "properties": {"b": {"type": "STRING"}}}}]}]}"#,
        refused: r#"{"tools": [{"functionDeclarations": [{"name": "a", "parameters": {"type": "object", "$schema": "x"}}]}]}"#,
    },
    StrictRule {
        name: "tool-schema",
        source: "https://github.com/cline/cline/issues/7339; https://ai.google.dev/api/caching#FunctionDeclaration",
        words: "* GenerateContentRequest.tools[0].function_declarations[{}].parameters{}: {}",
        check: |request| {
            for (place, tool) in declarations(request).enumerate() {
                let Some(parameters) = tool.get("parametersJsonSchema") else { continue };
                if let Some(fault) = schema::gemini_json(parameters) {
                    return found![place, fault.place, fault.words];
                }
            }
            None
        },
        taken: "{}",
        refused: r#"{"tools": [{"functionDeclarations": [{"name": "a", "parametersJsonSchema": {"type": "object", "properties": {"b": {"type": "array"}}}}]}]}"#,
    },
    StrictRule {
        name: "tool-schema-root",
        source: "https://ai.google.dev/api/caching#FunctionDeclaration",
        words: "* GenerateContentRequest.tools[0].function_declarations[{}].parameters.type: schema type should be OBJECT",
        check: |request| {
            let is_odd = |tool: &Value| {
                let schema = tool.get("parametersJsonSchema").or_else(|| tool.get("parameters"));
                schema.is_some_and(|schema| !text(schema, "type").eq_ignore_ascii_case("object"))
            };
            declarations(request).position(is_odd).and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"tools": [{"functionDeclarations": [{"name": "a", "parametersJsonSchema": {"properties": {}}}]}]}"#,
    },
    StrictRule {
        name: "config-without-tools",
        source: FUNCTIONS,
        words: "Function calling config is set without function_declarations.",
        check: |request| {
            let is_set = has(&request.body["toolConfig"], "functionCallingConfig");
            (is_set && declarations(request).next().is_none()).then(Vec::new)
        },
        taken: r#"{"tools": [{"functionDeclarations": [{"name": "a"}]}], "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a"]}}}"#,
        refused: r#"{"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}"#,
    },
    StrictRule {
        name: "allowed-names",
        source: "https://ai.google.dev/api/caching#FunctionCallingConfig",
        words: "Function '{}' of allowed_function_names is not declared, or the mode is not ANY or VALIDATED.",
        check: |request| {
            let config = &request.body["toolConfig"]["functionCallingConfig"];
            let takes = ["ANY", "VALIDATED"].contains(&text(config, "mode"));
            let mut names = list(config, "allowedFunctionNames").iter().filter_map(Value::as_str);
            let is_there = |name: &str| declarations(request).any(|tool| tool["name"] == name);
            names.find(|name| !takes || !is_there(name)).and_then(|name| found![name])
        },
        taken: "{}",
        refused: r#"{"tools": [{"functionDeclarations": [{"name": "a"}]}], "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["b"]}}}"#,
    },
    StrictRule {
        name: "tools-empty",
        source: "https://ai.google.dev/api/caching#Tool",
        words: "* GenerateContentRequest.tools[{}].function_declarations: must not be empty.",
        check: |request| {
            let is_empty =
                |tool: &Value| tool["functionDeclarations"].as_array().is_some_and(Vec::is_empty);
            list(request.body, "tools").iter().position(is_empty).and_then(|place| found![place])
        },
        taken: "{}",
        refused: r#"{"tools": [{"functionDeclarations": []}]}"#,
    },
    StrictRule {
        name: "max-output-tokens",
        source: "https://ai.google.dev/api/generate-content#generationconfig",
        words: "* GenerateContentRequest.generation_config.max_output_tokens: max_output_tokens must be positive",
        check: |request| (request.body["generationConfig"]["maxOutputTokens"] == 0).then(Vec::new),
        taken: r#"{"generationConfig": {"maxOutputTokens": 1}}"#,
        refused: r#"{"generationConfig": {"maxOutputTokens": 0}}"#,
    },
    StrictRule {
        name: "sampling-range",
        source: "https://ai.google.dev/api/generate-content#generationconfig",
        words: "* GenerateContentRequest.generation_config.{}: must be in the range [0.0, {}].",
        check: |request| {
            let config = &request.body["generationConfig"];
            let is_over = |field: &str, most: f64| {
                let number = config.get(field).and_then(Value::as_f64);
                number.is_some_and(|number| !(0.0..=most).contains(&number))
            };
            let ranges = [("temperature", 2.0), ("topP", 1.0)];
            let (field, most) = ranges.into_iter().find(|(field, most)| is_over(field, *most))?;
            found![field, most]
        },
        taken: r#"{"generationConfig": {"temperature": 2}}"#,
        refused: r#"{"generationConfig": {"temperature": 2.1}}"#,
    },
    StrictRule {
        name: "seed",
        source: "https://ai.google.dev/api/generate-content#generationconfig",
        words: "Invalid value at 'generation_config.seed' (TYPE_INT32), {}",
        check: |request| {
            let seed = request.body["generationConfig"].get("seed")?;
            let fits = seed.as_i64().is_some_and(|seed| i32::try_from(seed).is_ok());
            if fits { None } else { found![seed] }
        },
        taken: r#"{"generationConfig": {"seed": 7}}"#,
        refused: r#"{"generationConfig": {"seed": 2147483648}}"#,
    },
    StrictRule {
        name: "penalties",
        source: "https://github.com/google-gemini/cookbook/issues/1290; https://github.com/BerriAI/litellm/pull/32273",
        words: "Penalty is not enabled for this model",
        check: |request| {
            let config = &request.body["generationConfig"];
            let is_set =
                |field: &str| config.get(field).and_then(Value::as_f64).is_some_and(|it| it != 0.0);
            let is_newer =
                request.model.contains("gemini-2.5") || request.model.contains("gemini-3");
            (is_newer && (is_set("presencePenalty") || is_set("frequencyPenalty"))).then(Vec::new)
        },
        taken: r#"{"generationConfig": {"presencePenalty": 0}}"#,
        refused: r#"{"generationConfig": {"presencePenalty": 0.2}}"#,
    },
    StrictRule {
        name: "stop",
        source: "https://ai.google.dev/api/generate-content#generationconfig",
        words: "* GenerateContentRequest.generation_config.stop_sequences: at most 5, none empty.",
        check: |request| {
            let stops = list(&request.body["generationConfig"], "stopSequences");
            (stops.len() > 5 || stops.iter().any(|stop| stop == "")).then(Vec::new)
        },
        taken: r#"{"generationConfig": {"stopSequences": ["a"]}}"#,
        refused: r#"{"generationConfig": {"stopSequences": [""]}}"#,
    },
    StrictRule {
        name: "thinking-both",
        source: THINKING,
        words: "You can only set only one of thinking budget and thinking level.",
        check: |request| {
            let config = &request.body["generationConfig"]["thinkingConfig"];
            (has(config, "thinkingBudget") && has(config, "thinkingLevel")).then(Vec::new)
        },
        taken: r#"{"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}"#,
        refused: r#"{"generationConfig": {"thinkingConfig": {"thinkingLevel": "low", "thinkingBudget": 9}}}"#,
    },
    StrictRule {
        name: "thinking-level",
        source: "https://github.com/juspay/neurolink/pull/1707",
        words: "Thinking level is not supported for this model.",
        check: |request| {
            let config = &request.body["generationConfig"]["thinkingConfig"];
            let is_older = request.model.contains("gemini-2");
            (is_older && has(config, "thinkingLevel")).then(Vec::new)
        },
        taken: r#"{"model": "gemini-2.5-flash", "generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}"#,
        refused: r#"{"model": "gemini-2.5-flash", "generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}"#,
    },
    StrictRule {
        name: "thinking-level-word",
        source: "https://ai.google.dev/gemini-api/docs/thinking#thinking-levels",
        words: "Invalid value at 'generation_config.thinking_config.thinking_level': \"{}\"",
        check: |request| {
            let config = &request.body["generationConfig"]["thinkingConfig"];
            let word = text(config, "thinkingLevel").to_ascii_lowercase();
            if ["", "minimal", "low", "medium", "high"].contains(&word.as_str()) {
                None
            } else {
                found![word]
            }
        },
        taken: "{}",
        refused: r#"{"generationConfig": {"thinkingConfig": {"thinkingLevel": "max"}}}"#,
    },
    StrictRule {
        name: "thinking-off",
        source: "https://ai.google.dev/gemini-api/docs/thinking#set-budget",
        words: "Budget 0 is invalid. This model only works in thinking mode.",
        check: |request| {
            let config = &request.body["generationConfig"]["thinkingConfig"];
            (models::is(request.model, Fact::AlwaysThinks) && config["thinkingBudget"] == 0)
                .then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "gemini-2.5-pro", "generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}"#,
    },
    StrictRule {
        name: "thinking-budget",
        source: "https://github.com/juspay/neurolink/pull/1707",
        words: "The thinking budget {} is invalid. Please choose a value between {} and {}.",
        check: |request| {
            let budget = request.body["generationConfig"]["thinkingConfig"]
                .get("thinkingBudget")?
                .as_i64()?;
            let (least, most) = match request.model {
                model if model.contains("2.5-pro") => (128, 32_768),
                model if model.contains("flash-lite") => (512, 24_576),
                model if model.contains("2.5-flash") => (0, 24_576),
                _ => return None,
            };
            // -1 leaves it to the model, and 0 has a rule of its own.
            let fits = budget == -1 || budget == 0 || (least..=most).contains(&budget);
            if fits { None } else { found![budget, least, most] }
        },
        taken: r#"{"model": "gemini-2.5-pro", "generationConfig": {"thinkingConfig": {"thinkingBudget": 128}}}"#,
        refused: r#"{"model": "gemini-2.5-pro", "generationConfig": {"thinkingConfig": {"thinkingBudget": 40000}}}"#,
    },
    StrictRule {
        name: "answer-type",
        source: "https://ai.google.dev/gemini-api/docs/structured-output",
        words: "* GenerateContentRequest.generation_config.response_schema: only allowed with response_mime_type 'application/json'",
        check: |request| {
            let config = &request.body["generationConfig"];
            let has_schema = has(config, "responseSchema") || has(config, "responseJsonSchema");
            (has_schema && config["responseMimeType"] != "application/json").then(Vec::new)
        },
        taken: r#"{"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object", "properties": {}}}}"#,
        refused: r#"{"generationConfig": {"responseJsonSchema": {"type": "object"}}}"#,
    },
    StrictRule {
        name: "answer-schema",
        source: "https://ai.google.dev/gemini-api/docs/structured-output#json-schema-support",
        words: "* GenerateContentRequest.generation_config.response_schema{}: {}",
        check: |request| {
            let schema = request.body["generationConfig"].get("responseJsonSchema")?;
            let fault = schema::gemini_json(schema)?;
            found![fault.place, fault.words]
        },
        taken: "{}",
        refused: r#"{"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}}}"#,
    },
    StrictRule {
        name: "answer-with-tools",
        source: "https://ai.google.dev/gemini-api/docs/structured-output#structured-outputs-with-tools",
        words: "Function calling with a response mime type: 'application/json' is unsupported",
        check: |request| {
            let is_json =
                request.body["generationConfig"]["responseMimeType"] == "application/json";
            let is_older = request.model.contains("gemini-2");
            (is_json && is_older && declarations(request).next().is_some()).then(Vec::new)
        },
        taken: "{}",
        refused: r#"{"model": "gemini-2.5-flash", "tools": [{"functionDeclarations": [{"name": "a"}]}], "generationConfig": {"responseMimeType": "application/json"}}"#,
    },
];

/// Fields at the top of a request.
const FIELDS: [&str; 10] = [
    "contents",
    "tools",
    "toolConfig",
    "safetySettings",
    "systemInstruction",
    "generationConfig",
    "cachedContent",
    "model",
    "store",
    "labels",
];
/// Fields of `generationConfig` that the API knows.
const SETTINGS: [&str; 22] = [
    "stopSequences",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "_responseJsonSchema",
    "responseModalities",
    "candidateCount",
    "maxOutputTokens",
    "temperature",
    "topP",
    "topK",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseLogprobs",
    "logprobs",
    "enableEnhancedCivicAnswers",
    "speechConfig",
    "thinkingConfig",
    "imageConfig",
    "mediaResolution",
    "audioTimestamp",
];
/// Members of a part.
const PARTS: [&str; 13] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "mediaResolution",
    "partMetadata",
    "toolCall",
];

/// True if models accept media of this type.
fn takes_media(kind: &str) -> bool {
    let pictures =
        ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "image/gif"];
    pictures.contains(&kind)
        || kind == "application/pdf"
        || kind == "application/json"
        || ["audio/", "video/", "text/"].iter().any(|family| kind.starts_with(family))
}

/// All parts, with the places of content and part.
fn parts<'r>(
    request: &StrictRequest<'r>,
) -> impl Iterator<Item = (usize, usize, &'r Value)> + use<'r> {
    let contents = list(request.body, "contents").iter().enumerate();
    contents.flat_map(|(place, content)| {
        let parts = list(content, "parts").iter().enumerate();
        parts.map(move |(part_place, part)| (place, part_place, part))
    })
}

fn declarations<'r>(request: &StrictRequest<'r>) -> impl Iterator<Item = &'r Value> + use<'r> {
    list(request.body, "tools").iter().flat_map(|tool| list(tool, "functionDeclarations"))
}

fn count(content: &Value, kind: &str) -> usize {
    list(content, "parts").iter().filter(|part| part[kind].is_object()).count()
}

/// A turn with calls that does not stand behind one of the user.
fn call_turn(request: &StrictRequest<'_>) -> ViolationWords {
    let mut before_is_user = false;
    for content in list(request.body, "contents") {
        let is_model = content["role"] == "model";
        if is_model && !before_is_user && count(content, "functionCall") > 0 {
            return Some(Vec::new());
        }
        before_is_user = !is_model;
    }
    None
}

/// Calls that are not answered, each once, by the turn behind them.
fn call_numbers(request: &StrictRequest<'_>) -> ViolationWords {
    let contents = list(request.body, "contents");
    let breaks = |(place, content): (usize, &Value)| {
        let calls = count(content, "functionCall");
        let next = contents.get(place + 1).map_or(0, |next| count(next, "functionResponse"));
        // Counted, not matched: Google compares the numbers of calls and responses only.
        calls > 0 && calls != next
    };
    contents.iter().enumerate().any(breaks).then(Vec::new)
}

/// A call of the turn that is going on that stands first in its content and is not signed.
fn unsigned_call(request: &StrictRequest<'_>) -> ViolationWords {
    if !models::is(request.model, Fact::SignsCalls) {
        return None;
    }
    let contents = list(request.body, "contents");
    let has_text = |content: &&Value| {
        content["role"] != "model"
            && list(content, "parts").iter().any(|part| part["text"].is_string())
    };
    // The turn that is going on begins with the last text of the user; results are no text.
    let from = contents.iter().rposition(|content| has_text(&content)).unwrap_or(0);
    for (place, content) in contents.iter().enumerate().skip(from) {
        let mut calls =
            list(content, "parts").iter().filter(|part| part["functionCall"].is_object());
        if let Some(first) = calls.next()
            && text(first, "thoughtSignature").is_empty()
        {
            return found![text(&first["functionCall"], "name"), place];
        }
    }
    None
}
