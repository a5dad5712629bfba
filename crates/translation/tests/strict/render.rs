//! A conversation as each kind of customer's SDK writes it.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::talk::{
    AssistantTurn, CallDef, Choice, Customer, ResultDef, Talk, TalkFormat, TalkTurn, UserContent,
};

pub(crate) fn request(talk: &Talk, customer: Customer, rng: &mut Rng) -> Value {
    let mut body = match customer {
        Customer::Chat => chat(talk, rng),
        Customer::Messages => messages(talk, rng),
        Customer::Responses => responses(talk, rng),
        Customer::Gemini => gemini(talk, rng),
    };
    if customer != Customer::Gemini {
        body["model"] = json!("m");
        if talk.streams {
            body["stream"] = json!(true);
        }
    }
    body
}

fn put(body: &mut Value, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body[key] = value.into();
    }
}

fn data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}

/// Marks for the cache, at most four, as agents set them: an hour's before those of five minutes.
struct Marks {
    left: u32,
    is_long: bool,
}

impl Marks {
    fn mark(&mut self, rng: &mut Rng, block: &mut Value) {
        if self.left == 0 || rng.u32(0..4) != 0 {
            return;
        }
        self.left -= 1;
        self.is_long = self.is_long && rng.bool();
        block["cache_control"] = if self.is_long {
            json!({"type": "ephemeral", "ttl": "1h"})
        } else {
            json!({"type": "ephemeral"})
        };
    }
}

// Chat completions.

fn chat_part(content: &UserContent) -> Value {
    match content {
        UserContent::Text(text) => json!({"type": "text", "text": text}),
        UserContent::Picture { media_type, data } => {
            json!({"type": "image_url", "image_url": {"url": data_url(media_type, data)}})
        }
        UserContent::PictureUrl(url) => {
            json!({"type": "image_url", "image_url": {"url": url, "detail": "auto"}})
        }
        UserContent::Document { media_type, data, name } => json!({"type": "file",
            "file": {"filename": name.unwrap_or("file.pdf"), "file_data": data_url(media_type, data)}}),
    }
}

fn chat_content(all: &[UserContent]) -> Value {
    match all {
        [UserContent::Text(text)] => json!(text),
        all => all.iter().map(chat_part).collect(),
    }
}

fn chat_assistant(turn: &AssistantTurn, rng: &mut Rng) -> Value {
    let texts = turn.texts.concat();
    let mut message = json!({"role": "assistant", "content": texts});
    if turn.texts.is_empty() {
        message["content"] = Value::Null;
    }
    if let Some(thought) = &turn.thought {
        message["reasoning_content"] = json!(thought.text);
        if let Some(seal) = &thought.seal {
            message["reasoning_details"] =
                json!([{"type": "reasoning.encrypted", "data": seal, "id": "rs_1", "index": 0}]);
        }
    }
    if !turn.calls.is_empty() {
        let call = |call: &CallDef| {
            json!({"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.input.to_string()}})
        };
        message["tool_calls"] = turn.calls.iter().map(call).collect();
    }
    if turn.echoes {
        message["annotations"] = json!([{"type": "url_citation", "url_citation":
            {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 1}}]);
        message["refusal"] = Value::Null;
        message["audio"] = Value::Null;
    }
    if rng.u32(0..10) == 0 {
        message["name"] = json!("agent");
    }
    message
}

fn chat_messages(talk: &Talk, rng: &mut Rng) -> Vec<Value> {
    let mut marks = Marks { left: if rng.u32(0..3) == 0 { 4 } else { 0 }, is_long: false };
    let instruction = if rng.bool() { "system" } else { "developer" };
    let mut all: Vec<Value> =
        talk.system.iter().map(|text| json!({"role": instruction, "content": text})).collect();
    for turn in &talk.turns {
        match turn {
            TalkTurn::System(text) => all.push(json!({"role": instruction, "content": text})),
            TalkTurn::User(content) => {
                all.push(json!({"role": "user", "content": chat_content(content)}))
            }
            TalkTurn::Assistant(turn) => all.push(chat_assistant(turn, rng)),
            TalkTurn::Results(results, behind) => {
                let result = |result: &ResultDef| {
                    let texts = result
                        .content
                        .iter()
                        .filter(|content| matches!(content, UserContent::Text(_)));
                    let texts: Vec<UserContent> = texts.cloned().collect();
                    let content = if texts.is_empty() { json!("") } else { chat_content(&texts) };
                    json!({"role": "tool", "tool_call_id": result.id, "content": content})
                };
                all.extend(results.iter().map(result));
                if !behind.is_empty() {
                    all.push(json!({"role": "user", "content": chat_content(behind)}));
                }
            }
        }
    }
    for message in &mut all {
        // opencode marks messages and their parts for models with "claude" in their names.
        marks.mark(rng, message);
        if let Some(part) = message["content"].as_array_mut().and_then(|parts| parts.last_mut()) {
            marks.mark(rng, part);
        }
    }
    all
}

fn chat(talk: &Talk, rng: &mut Rng) -> Value {
    let mut body = json!({"messages": chat_messages(talk, rng)});
    openai_settings(&mut body, talk);
    let tools: Vec<Value> = talk
        .tools
        .iter()
        .map(|tool| {
            let mut function = json!({"name": tool.name});
            put(&mut function, "description", tool.description);
            put(&mut function, "parameters", tool.schema.clone());
            put(&mut function, "strict", tool.is_strict);
            json!({"type": "function", "function": function})
        })
        .collect();
    if !tools.is_empty() || rng.u32(0..10) == 0 {
        body["tools"] = json!(tools);
    }
    put(
        &mut body,
        "tool_choice",
        match &talk.choice {
            Choice::Unset => None,
            Choice::Auto => Some(json!("auto")),
            Choice::None => Some(json!("none")),
            Choice::Any if talk.tools.is_empty() => None,
            Choice::Any => Some(json!("required")),
            Choice::Named(name) => Some(json!({"type": "function", "function": {"name": name}})),
        },
    );
    let limit = if rng.bool() { "max_tokens" } else { "max_completion_tokens" };
    put(&mut body, limit, talk.output_max);
    if !talk.stops.is_empty() {
        body["stop"] = if talk.stops.len() == 1 { json!(talk.stops[0]) } else { json!(talk.stops) };
    }
    put(&mut body, "reasoning_effort", talk.effort.filter(|word| *word != "max"));
    match &talk.format {
        TalkFormat::Text => {}
        TalkFormat::Json => body["response_format"] = json!({"type": "json_object"}),
        TalkFormat::Schema(schema, is_strict) => {
            body["response_format"] = json!({"type": "json_schema",
            "json_schema": {"name": "answer", "strict": is_strict, "schema": schema}})
        }
    }
    if rng.u32(0..8) == 0 {
        body["seed"] = json!(rng.i64(0..5_000_000_000));
        body["presence_penalty"] = json!(0.1);
    }
    if talk.streams {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// Settings that chat completions and responses share.
fn openai_settings(body: &mut Value, talk: &Talk) {
    put(body, "temperature", talk.temperature);
    put(body, "top_p", talk.top_p);
    put(body, "user", talk.user.clone());
    if talk.is_single {
        body["parallel_tool_calls"] = json!(false);
    }
    if talk.user.is_some() {
        body["metadata"] = json!({"session": "s1"});
        body["store"] = json!(false);
        body["prompt_cache_key"] = json!("0123456789abcdef".repeat(3 + talk.system.len()));
    }
}

// Messages.

fn anthropic_block(content: &UserContent) -> Value {
    match content {
        UserContent::Text(text) => json!({"type": "text", "text": text}),
        UserContent::Picture { media_type, data } => json!({"type": "image",
            "source": {"type": "base64", "media_type": media_type, "data": data}}),
        UserContent::PictureUrl(url) => {
            json!({"type": "image", "source": {"type": "url", "url": url}})
        }
        UserContent::Document { media_type: "text/plain", .. } => json!({"type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Hello there"}}),
        UserContent::Document { media_type, data, name } => {
            let mut block = json!({"type": "document",
                "source": {"type": "base64", "media_type": media_type, "data": data}});
            put(&mut block, "title", *name);
            block
        }
    }
}

fn anthropic_assistant(turn: &AssistantTurn, marks: &mut Marks, rng: &mut Rng) -> Value {
    let mut blocks: Vec<Value> = Vec::new();
    if let Some(thought) = &turn.thought {
        blocks.push(if thought.is_hidden {
            json!({"type": "redacted_thinking", "data": thought.seal.as_deref().unwrap_or("EmwKAhgB")})
        } else {
            json!({"type": "thinking", "thinking": thought.text, "signature": thought.seal.as_deref().unwrap_or("")})
        });
    }
    if turn.echoes {
        blocks.push(json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}}));
        blocks.push(json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "x", "page_age": null}]}));
    }
    for text in &turn.texts {
        let mut block = json!({"type": "text", "text": text});
        if turn.echoes {
            block["citations"] = json!([{"type": "web_search_result_location", "url": "https://a.example",
                "title": "A", "encrypted_index": "x", "cited_text": "a"}]);
        }
        marks.mark(rng, &mut block);
        blocks.push(block);
    }
    for call in &turn.calls {
        let mut block =
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input});
        marks.mark(rng, &mut block);
        blocks.push(block);
    }
    json!({"role": "assistant", "content": blocks})
}

fn anthropic_results(
    results: &[ResultDef],
    behind: &[UserContent],
    marks: &mut Marks,
    rng: &mut Rng,
) -> Value {
    let mut blocks: Vec<Value> = results
        .iter()
        .map(|result| {
            let mut block = json!({"type": "tool_result", "tool_use_id": result.id});
            match &result.content[..] {
                [] => {}
                [UserContent::Text(text)] => block["content"] = json!(text),
                all => block["content"] = all.iter().map(anthropic_block).collect(),
            }
            if result.is_error {
                block["is_error"] = json!(true);
            }
            marks.mark(rng, &mut block);
            block
        })
        .collect();
    blocks.extend(behind.iter().map(anthropic_block));
    json!({"role": "user", "content": blocks})
}

fn messages(talk: &Talk, rng: &mut Rng) -> Value {
    let mut marks = Marks { left: 4, is_long: rng.u32(0..4) == 0 };
    let mut body = json!({"max_tokens": talk.output_max.unwrap_or(32_000)});
    let tools: Vec<Value> = talk
        .tools
        .iter()
        .map(|tool| {
            let mut written = json!({"name": tool.name});
            put(&mut written, "description", tool.description);
            written["input_schema"] =
                tool.schema.clone().unwrap_or_else(|| json!({"type": "object"}));
            put(&mut written, "strict", tool.is_strict.filter(|strict| *strict));
            marks.mark(rng, &mut written);
            written
        })
        .collect();
    if !tools.is_empty() || rng.u32(0..10) == 0 {
        body["tools"] = json!(tools);
    }
    if !talk.system.is_empty() {
        let mut blocks: Vec<Value> =
            talk.system.iter().map(|text| json!({"type": "text", "text": text})).collect();
        blocks.iter_mut().for_each(|block| marks.mark(rng, block));
        body["system"] = if rng.bool() { json!(blocks) } else { json!(talk.system.join("\n")) };
    }
    let mut all: Vec<Value> = Vec::new();
    for turn in &talk.turns {
        all.push(match turn {
            TalkTurn::System(text) => json!({"role": "system", "content": text}),
            TalkTurn::User(content) => match &content[..] {
                [UserContent::Text(text)] if rng.bool() => json!({"role": "user", "content": text}),
                content => {
                    let mut blocks: Vec<Value> = content.iter().map(anthropic_block).collect();
                    blocks.iter_mut().for_each(|block| marks.mark(rng, block));
                    json!({"role": "user", "content": blocks})
                }
            },
            TalkTurn::Assistant(turn) => anthropic_assistant(turn, &mut marks, rng),
            TalkTurn::Results(results, behind) => {
                anthropic_results(results, behind, &mut marks, rng)
            }
        });
    }
    body["messages"] = json!(all);
    if !talk.tools.is_empty() {
        let single = talk.is_single.then_some(true);
        let mut choice = match &talk.choice {
            Choice::Unset => Value::Null,
            Choice::Auto => json!({"type": "auto"}),
            Choice::None => json!({"type": "none"}),
            Choice::Any => json!({"type": "any"}),
            Choice::Named(name) => json!({"type": "tool", "name": name}),
        };
        if choice["type"] != "none" && !choice.is_null() {
            put(&mut choice, "disable_parallel_tool_use", single);
        }
        if !choice.is_null() {
            body["tool_choice"] = choice;
        }
    }
    anthropic_settings(&mut body, talk, rng);
    body
}

fn anthropic_settings(body: &mut Value, talk: &Talk, rng: &mut Rng) {
    if !talk.stops.is_empty() {
        body["stop_sequences"] = json!(talk.stops);
    }
    put(body, "temperature", talk.temperature.filter(|it| *it <= 1.0));
    put(body, "top_p", talk.top_p);
    let effort = talk.effort.filter(|word| !["none", "minimal"].contains(word));
    match (talk.budget, effort) {
        (Some(budget), None) => {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": budget})
        }
        (None, Some(word)) => {
            body["thinking"] = json!({"type": "adaptive"});
            body["output_config"] = json!({"effort": word});
        }
        (None, None) if rng.bool() => body["thinking"] = json!({"type": "disabled"}),
        _ => {}
    }
    if let TalkFormat::Schema(schema, _) = &talk.format {
        body["output_config"]["format"] = json!({"type": "json_schema", "schema": schema});
    }
    if let Some(user) = &talk.user {
        body["metadata"] = json!({"user_id": user});
    }
}

// Responses.

fn responses_part(content: &UserContent) -> Value {
    match content {
        UserContent::Text(text) => json!({"type": "input_text", "text": text}),
        UserContent::Picture { media_type, data } => {
            json!({"type": "input_image", "image_url": data_url(media_type, data), "detail": "auto"})
        }
        UserContent::PictureUrl(url) => json!({"type": "input_image", "image_url": url}),
        UserContent::Document { media_type, data, name } => json!({"type": "input_file",
            "filename": name.unwrap_or("file.pdf"), "file_data": data_url(media_type, data)}),
    }
}

fn responses_assistant(turn: &AssistantTurn, items: &mut Vec<Value>, rng: &mut Rng) {
    if let Some(thought) = &turn.thought {
        let summary = if thought.is_hidden {
            json!([])
        } else {
            json!([{"type": "summary_text", "text": thought.text}])
        };
        items.push(json!({"type": "reasoning", "id": format!("rs_{:08}", rng.u32(0..99_999_999)),
            "summary": summary, "encrypted_content": thought.seal}));
    }
    if turn.echoes {
        items.push(json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": {"type": "search", "query": "a"}}));
    }
    if !turn.texts.is_empty() {
        let annotations = if turn.echoes {
            json!([{"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 1}])
        } else {
            json!([])
        };
        let part = |text: &String| json!({"type": "output_text", "text": text, "annotations": annotations});
        let content: Vec<Value> = turn.texts.iter().map(part).collect();
        items.push(json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}));
    }
    for call in &turn.calls {
        items.push(json!({"type": "function_call", "call_id": call.id, "name": call.name,
            "arguments": call.input.to_string()}));
    }
}

fn responses_items(talk: &Talk, rng: &mut Rng) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for text in talk.system.iter().skip(1) {
        items.push(json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}));
    }
    for turn in &talk.turns {
        match turn {
            TalkTurn::System(text) => items.push(json!({"role": "developer", "content": text})),
            TalkTurn::User(content) => {
                let content: Vec<Value> = content.iter().map(responses_part).collect();
                items.push(json!({"type": "message", "role": "user", "content": content}));
            }
            TalkTurn::Assistant(turn) => responses_assistant(turn, &mut items, rng),
            TalkTurn::Results(results, behind) => {
                for result in results {
                    let output = match &result.content[..] {
                        [] => json!(""),
                        [UserContent::Text(text)] => json!(text),
                        all => all.iter().map(responses_part).collect(),
                    };
                    items.push(json!({"type": "function_call_output", "call_id": result.id, "output": output}));
                }
                if !behind.is_empty() {
                    let content: Vec<Value> = behind.iter().map(responses_part).collect();
                    items.push(json!({"role": "user", "content": content}));
                }
            }
        }
    }
    items
}

fn responses(talk: &Talk, rng: &mut Rng) -> Value {
    let mut body = json!({"input": responses_items(talk, rng)});
    put(&mut body, "instructions", talk.system.first().cloned());
    openai_settings(&mut body, talk);
    let tools: Vec<Value> = talk
        .tools
        .iter()
        .map(|tool| {
            json!({"type": "function", "name": tool.name, "description": tool.description,
            "parameters": tool.schema, "strict": tool.is_strict})
        })
        .collect();
    if !tools.is_empty() || rng.u32(0..6) == 0 {
        body["tools"] = json!(tools);
    }
    put(
        &mut body,
        "tool_choice",
        match &talk.choice {
            Choice::Unset => None,
            Choice::Auto => Some(json!("auto")),
            Choice::None => Some(json!("none")),
            Choice::Any if talk.tools.is_empty() => None,
            Choice::Any => Some(json!("required")),
            Choice::Named(name) => Some(json!({"type": "function", "name": name})),
        },
    );
    put(&mut body, "max_output_tokens", talk.output_max.filter(|most| *most >= 16));
    if let Some(word) = talk.effort.filter(|word| *word != "max") {
        body["reasoning"] = json!({"effort": word, "summary": "auto"});
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    match &talk.format {
        TalkFormat::Text => {}
        TalkFormat::Json => body["text"] = json!({"format": {"type": "json_object"}}),
        TalkFormat::Schema(schema, is_strict) => {
            body["text"] = json!({"verbosity": "low", "format":
            {"type": "json_schema", "name": "answer", "strict": is_strict, "schema": schema}})
        }
    }
    body
}

// Gemini.

fn gemini_part(content: &UserContent) -> Value {
    match content {
        UserContent::Text(text) => json!({"text": text}),
        UserContent::Picture { media_type, data }
        | UserContent::Document { media_type, data, .. } => {
            json!({"inlineData": {"mimeType": media_type, "data": data}})
        }
        UserContent::PictureUrl(url) => {
            json!({"fileData": {"mimeType": "image/png", "fileUri": url}})
        }
    }
}

fn gemini_assistant(turn: &AssistantTurn, has_ids: bool) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    if let Some(thought) = turn.thought.as_ref().filter(|thought| !thought.is_hidden) {
        parts.push(json!({"text": thought.text, "thought": true}));
    }
    parts.extend(turn.texts.iter().map(|text| json!({"text": text})));
    let mut seal = turn.thought.as_ref().and_then(|thought| thought.seal.clone());
    for call in &turn.calls {
        let mut part = json!({"functionCall": {"name": call.name, "args": call.input}});
        if has_ids {
            part["functionCall"]["id"] = json!(call.id);
        }
        put(&mut part, "thoughtSignature", seal.take());
        parts.push(part);
    }
    if let (Some(seal), Some(part)) = (seal, parts.last_mut()) {
        part["thoughtSignature"] = json!(seal);
    }
    json!({"role": "model", "parts": parts})
}

fn gemini(talk: &Talk, rng: &mut Rng) -> Value {
    let has_ids = rng.bool();
    let mut contents: Vec<Value> = Vec::new();
    for turn in &talk.turns {
        contents.push(match turn {
            TalkTurn::System(text) => json!({"role": "user", "parts": [{"text": text}]}),
            TalkTurn::User(content) => {
                json!({"role": "user", "parts": content.iter().map(gemini_part).collect::<Vec<_>>()})
            }
            TalkTurn::Assistant(turn) => gemini_assistant(turn, has_ids),
            TalkTurn::Results(results, behind) => {
                let mut parts: Vec<Value> = results
                    .iter()
                    .map(|result| {
                        let texts = result.content.iter().filter_map(|content| match content {
                            UserContent::Text(text) => Some(text.as_str()),
                            _ => None,
                        });
                        let key = if result.is_error { "error" } else { "output" };
                        let output: Map<String, Value> =
                            [(key.to_owned(), json!(texts.collect::<String>()))]
                                .into_iter()
                                .collect();
                        let mut response = json!({"name": result.name, "response": output});
                        if has_ids {
                            response["id"] = json!(result.id);
                        }
                        json!({"functionResponse": response})
                    })
                    .collect();
                parts.extend(behind.iter().map(gemini_part));
                json!({"role": "user", "parts": parts})
            }
        });
    }
    let mut body = json!({"contents": contents});
    if !talk.system.is_empty() {
        let parts: Vec<Value> = talk.system.iter().map(|text| json!({"text": text})).collect();
        body["systemInstruction"] = json!({"parts": parts});
    }
    let declarations: Vec<Value> = talk
        .tools
        .iter()
        .map(|tool| {
            let mut declaration =
                json!({"name": tool.name, "description": tool.description.unwrap_or("")});
            let key = if rng.bool() { "parametersJsonSchema" } else { "parameters" };
            put(&mut declaration, key, tool.schema.clone());
            declaration
        })
        .collect();
    if !declarations.is_empty() {
        body["tools"] = json!([{"functionDeclarations": declarations}]);
        let mode = match &talk.choice {
            Choice::Unset => None,
            Choice::Auto => Some(json!({"mode": "AUTO"})),
            Choice::None => Some(json!({"mode": "NONE"})),
            Choice::Any => Some(json!({"mode": "ANY"})),
            Choice::Named(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
        };
        if let Some(mode) = mode {
            body["toolConfig"] = json!({"functionCallingConfig": mode});
        }
    }
    let config = gemini_settings(talk);
    if config.as_object().is_some_and(|config| !config.is_empty()) {
        body["generationConfig"] = config;
    }
    body
}

fn gemini_settings(talk: &Talk) -> Value {
    let mut config = json!({});
    put(&mut config, "temperature", talk.temperature);
    put(&mut config, "topP", talk.top_p);
    put(&mut config, "maxOutputTokens", talk.output_max);
    if !talk.stops.is_empty() {
        config["stopSequences"] = json!(talk.stops);
    }
    match (talk.effort, talk.budget) {
        (Some(word @ ("minimal" | "low" | "medium" | "high")), _) => {
            config["thinkingConfig"] = json!({"thinkingLevel": word, "includeThoughts": true});
        }
        (None, Some(budget)) => config["thinkingConfig"] = json!({"thinkingBudget": budget}),
        (Some("none"), None) => config["thinkingConfig"] = json!({"thinkingBudget": 0}),
        _ => {}
    }
    match &talk.format {
        TalkFormat::Text => {}
        TalkFormat::Json => config["responseMimeType"] = json!("application/json"),
        TalkFormat::Schema(schema, _) => {
            config["responseMimeType"] = json!("application/json");
            config["responseJsonSchema"] = schema.clone();
        }
    }
    config
}
