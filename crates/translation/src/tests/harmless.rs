//! Fields without a meaning for another provider stop no request: they are left out by name, for every pair
//! of dialects.

use serde_json::{Value, json};

use crate::dialect::{
    AnswerFrame, CustomerDialect, Losses, Mode, NamespacedTool, TranslationTarget, UpstreamDialect,
};
use crate::part::{AnswerPart, Counts, PromptPart, Stop, Thinking};
use crate::{Chat, Converse, Gemini, Messages, Responses};

use super::{target, write_events};

const UPSTREAMS: [&dyn UpstreamDialect; 5] = [&Chat, &Messages, &Responses, &Gemini, &Converse];

/// The request in each other dialect, and the names of the fields that its reader left out.
fn translated(customer: &dyn CustomerDialect, body: &Value) -> (Vec<Value>, Vec<String>) {
    let text = body.to_string();
    let mut names = Vec::new();
    let others = UPSTREAMS.into_iter().filter(|up| format!("{up:?}") != format!("{customer:?}"));
    let sent = others.map(|upstream| {
        let read = customer.read_request(text.as_bytes()).unwrap_or_else(|error| {
            panic!("{customer:?}: {error:?} {text}");
        });
        let mut losses = Losses::from_request(read.left_out, Mode::Lenient).expect("lenient");
        names = losses.fields().iter().map(ToString::to_string).collect();
        names.sort();
        let sent = upstream.write_request(&read.parts, &target(), &mut losses);
        let sent = sent.unwrap_or_else(|error| panic!("{upstream:?}: {error:?} {text}"));
        serde_json::from_slice(&sent).expect("JSON")
    });
    (sent.collect(), names)
}

/// Asserts that the request reaches every other dialect without these names.
fn left_out(customer: &dyn CustomerDialect, body: &Value, expected: &[&str]) {
    let (_, names) = translated(customer, body);
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected, "{customer:?} {body}");
    let text = body.to_string();
    let read = customer.read_request(text.as_bytes()).expect("read");
    let strict = Losses::from_request(read.left_out, Mode::Strict);
    assert_eq!(strict.is_err(), !expected.is_empty(), "{customer:?} {body}");
}

fn refused(customer: &dyn CustomerDialect, body: &Value) -> String {
    let text = body.to_string();
    let refusal = customer.read_request(text.as_bytes()).expect_err(&text);
    format!("{} | {}", refusal.field, refusal.message)
}

/// A request with these messages, items or turns behind something that a user has said.
fn after_hi(customer: &dyn CustomerDialect, message: Value) -> Value {
    let key = if format!("{customer:?}") == "Responses" { "input" } else { "messages" };
    json!({"model": "m", key: [{"role": "user", "content": "hi"}, message, {"role": "user", "content": "on"}]})
}

fn with(customer: &dyn CustomerDialect, field: &str, value: Value) -> Value {
    let mut body = match format!("{customer:?}").as_str() {
        "Responses" => json!({"input": "hi"}),
        "Gemini" => json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        _ => json!({"messages": [{"role": "user", "content": "hi"}]}),
    };
    body[field] = value;
    body
}

#[test]
fn fields_that_repeat_or_hint_are_left_out_of_chat() {
    let with_field = |key: &str, value: Value| {
        after_hi(&Chat, json!({"role": "assistant", "content": "so", key: value}))
    };
    let citation = json!([{"type": "url_citation", "url_citation": {"url": "https://a"}}]);
    for (key, value, names) in [
        ("annotations", citation, vec!["messages.annotations"]),
        ("annotations", json!([]), vec![]),
        ("refusal", Value::Null, vec![]),
        ("audio", Value::Null, vec![]),
        ("audio", json!({"id": "a"}), vec!["messages.audio"]),
        ("function_call", Value::Null, vec![]),
        (
            "reasoning_details",
            json!([{"type": "reasoning.text", "format": "x", "data": 7}]),
            vec![],
        ),
        ("reasoning_opaque", json!("x"), vec!["messages.reasoning_opaque"]),
        ("provider_options", json!({"a": 1}), vec!["messages.provider_options"]),
        ("name", json!("bob"), vec!["messages.name"]),
        ("phase", json!("commentary"), vec![]),
        ("of_tomorrow", json!(7), vec!["messages.of_tomorrow"]),
    ] {
        left_out(&Chat, &with_field(key, value), &names);
    }
    let call = json!({"id": "c1", "type": "function", "index": 0, "extra": 1,
        "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}});
    let messages = json!({"messages": [
        {"role": "user", "content": "hi", "createdAt": 7},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "out", "status": "success"},
    ]});
    let names = ["messages.createdAt", "messages.tool_calls.extra", "messages.status"];
    left_out(&Chat, &messages, &names);
    for (field, value, names) in [
        ("prediction", json!({"type": "content", "content": "x"}), vec!["prediction"]),
        ("web_search_options", json!({"search_context_size": "low"}), vec!["web_search_options"]),
        ("usage", json!({"include": true}), vec![]),
        ("provider", json!({"sort": "price"}), vec!["provider"]),
        ("intent", json!(true), vec!["intent"]),
        ("snippy", json!({"enabled": false}), vec!["snippy"]),
        ("cache_control", json!({"type": "ephemeral"}), vec![]),
        ("tools", json!([{"type": "web_search"}]), vec!["tools: web_search"]),
        ("stream_options", json!({"include_usage": true, "x": 1}), vec!["stream_options.x"]),
    ] {
        left_out(&Chat, &with(&Chat, field, value), &names);
    }
}

#[test]
fn marks_for_the_cache_are_found_wherever_clients_put_them() {
    let mark = json!({"type": "ephemeral", "scope": "global"});
    let tool = json!({"name": "f", "parameters": {"type": "object", "properties": {}}});
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let body = json!({
        "tools": [{"type": "function", "function": tool, "copilot_cache_control": mark}],
        "messages": [
            {"role": "system", "content": "x", "cache_control": mark},
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": mark}]},
            {"role": "assistant", "content": null, "tool_calls": [call], "cache_control": mark},
            {"role": "tool", "tool_call_id": "c1", "content": "out", "cache_control": mark},
            {"role": "user", "content": "b", "copilot_cache_control": mark},
        ],
    });
    let (sent, names) = translated(&Chat, &body);
    assert!(names.is_empty(), "{names:?}");
    let marked = sent.iter().map(|sent| sent.to_string().matches("ephemeral").count());
    // Anthropic's dialect has marks, and Bedrock's has points: four at most.
    assert_eq!(marked.collect::<Vec<_>>(), [4, 0, 0, 0]);
    assert_eq!(sent[3].to_string().matches("cachePoint").count(), 4, "{}", sent[3]);
    let body = with(&Chat, "cache_control", json!({"type": "ephemeral"})).to_string();
    assert!(Chat.read_request(body.as_bytes()).expect("read").caches);
}

#[test]
fn items_of_earlier_answers_are_left_out_of_responses() {
    for kind in [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "hologram_call",
    ] {
        let item = json!({"type": kind, "id": "i1", "status": "odd", "action": {"type": "search"}});
        left_out(&Responses, &after_hi(&Responses, item), &[&format!("input: {kind}")]);
    }
    let text = json!({"type": "output_text", "text": "so", "logprobs": [],
        "annotations": [{"type": "url_citation", "url": "https://a"}]});
    let message = json!({"type": "message", "role": "assistant", "status": "completed", "id": "m1",
        "phase": "final_answer", "content": [text],
        "internal_chat_message_metadata_passthrough": {"turn_id": "t"}});
    let names = ["input.content.annotations"];
    left_out(&Responses, &after_hi(&Responses, message), &names);
    let thought = json!({"type": "reasoning", "summary": [], "content": null, "odd": 1,
        "internal_chat_message_metadata_passthrough": {"turn_id": "t"}});
    left_out(&Responses, &after_hi(&Responses, thought), &["input.odd"]);
    for (kind, word) in [
        ("compaction", "summary that only the provider"),
        ("compaction_trigger", "sum up the conversation"),
        ("item_reference", "stores"),
        ("hologram", "is not known"),
    ] {
        let item = json!({"type": kind, "id": "i", "encrypted_content": "x"});
        let refusal = refused(&Responses, &after_hi(&Responses, item));
        assert!(refusal.starts_with("input[1].type | "), "{refusal}");
        assert!(refusal.contains(&format!("`{kind}`")) && refusal.contains(word), "{refusal}");
    }
}

#[test]
fn calls_that_the_customer_ran_are_carried_whatever_their_kind() {
    let body = json!({"input": [
        {"role": "user", "content": "hi"},
        {"type": "local_shell_call", "id": "l1", "call_id": "c1", "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "l1", "output": "files"},
        {"type": "shell_call", "call_id": "c2", "action": {"commands": ["pwd"]}},
        {"type": "shell_call_output", "call_id": "c2", "max_output_length": 100,
            "output": [{"stdout": "home", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
        {"type": "apply_patch_call", "call_id": "c3", "status": "completed",
            "operation": {"type": "delete_file", "path": "a.txt"}},
        {"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "none"},
        {"type": "computer_call", "id": "i4", "call_id": "c4", "status": "completed",
            "pending_safety_checks": [], "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c4", "acknowledged_safety_checks": [],
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}},
        {"role": "user", "content": "on"},
    ]});
    let (sent, names) = translated(&Responses, &body);
    assert!(names.is_empty(), "{names:?}");
    for sent in sent {
        let text = sent.to_string().replace("\\\"", "\"");
        for expected in
            ["\"ls\"", "files", "pwd", "home", "delete_file", "none", "screenshot", "AAAA"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}

/// Codex sends its tools as an item, in a namespace, and more of them later.
#[test]
fn tools_that_come_as_items_are_offered() {
    let function = |name: &str, about: &str| {
        json!({"type": "function", "name": name, "description": about, "strict": false,
            "parameters": {"type": "object", "properties": {}}})
    };
    let custom = json!({"type": "custom", "name": "exec", "description": "Runs",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}});
    let item =
        |tools: Value| json!({"type": "additional_tools", "role": "developer", "tools": tools});
    let body = json!({"input": [
        item(json!([{"type": "namespace", "name": "functions", "description": "All",
            "tools": [custom, function("wait", "Waits")]}, {"type": "web_search"}])),
        {"role": "user", "content": "hi"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "namespace": "functions", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "files"},
        item(json!([function("late", "Old"), function("late", "New")])),
    ]});
    let (sent, names) = translated(&Responses, &body);
    assert_eq!(names, ["input.tools: web_search"]);
    for sent in &sent {
        let text = sent.to_string();
        let places = ["functions__exec", "functions__wait", "\"late\""].map(|name| text.find(name));
        assert!(places.iter().all(Option::is_some), "{text}");
        assert!(text.contains("New") && !text.contains("Old"), "{text}");
    }
    let text = body.to_string();
    let frame = Responses.read_request(text.as_bytes()).expect("read").frame;
    let exec = NamespacedTool::joined("functions", "exec");
    assert_eq!(frame.free_tools, [&*exec]);
    assert_eq!(frame.apart(&exec), (Some("functions"), "exec"));
}

fn search_body(execution: &str) -> Value {
    let found = json!({"type": "namespace", "name": "mcp__cal", "description": "Dates", "tools": [
        {"type": "function", "name": "add", "defer_loading": true, "parameters": {"type": "object", "properties": {}}},
    ]});
    json!({
        "tools": [
            {"type": "tool_search", "execution": execution, "description": "Finds tools",
                "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
            {"type": "function", "name": "waits", "defer_loading": true, "parameters": {"type": "object", "properties": {}}},
        ],
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "tool_search_call", "call_id": "s1", "execution": execution, "status": "completed",
                "arguments": {"query": "dates", "limit": 1}},
            {"type": "tool_search_output", "call_id": "s1", "execution": execution, "status": "completed",
                "tools": [found]},
            {"role": "user", "content": "on"},
        ],
    })
}

#[test]
fn a_search_for_tools_that_the_customer_runs_is_a_function() {
    let body = search_body("client");
    let (sent, names) = translated(&Responses, &body);
    assert!(names.is_empty(), "{names:?}");
    for sent in &sent {
        let text = sent.to_string();
        for expected in [
            "tool_search",
            "Finds tools",
            "dates",
            "These tools can be called now",
            "mcp__cal__add",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("waits"), "{text}");
    }
    let text = body.to_string();
    let frame = Responses.read_request(text.as_bytes()).expect("read").frame;
    let answer = [
        AnswerPart::Begin { id: "a".into(), counts: Counts::default() },
        AnswerPart::ToolCall { id: "s2".into(), name: "tool_search".into(), seal: None },
        AnswerPart::Input("{\"query\":".into()),
        AnswerPart::Input("\"x\"}".into()),
        AnswerPart::Stop(Stop::Tools),
        AnswerPart::End(Counts::default()),
    ];
    let document: Value =
        serde_json::from_slice(&Responses.write_answer(&answer, &frame)).expect("JSON");
    let item = &document["output"][0];
    let expected = [("type", "tool_search_call"), ("call_id", "s2"), ("execution", "client")];
    expected.iter().for_each(|(key, value)| assert_eq!(item[key], *value, "{item}"));
    assert_eq!(item["arguments"], json!({"query": "x"}));
    let mut writer = Responses.stream_writer(&frame);
    let mut events = Vec::new();
    answer.iter().for_each(|piece| writer.write(piece, &mut events));
    let events = String::from_utf8(events).expect("text");
    assert!(!events.contains("function_call_arguments"), "{events}");
    assert_eq!(events.matches("\"arguments\":{\"query\":\"x\"}").count(), 2, "{events}");
    drop(write_events(&Responses, &answer));
}

#[test]
fn a_search_for_tools_that_a_provider_would_run_leaves_all_tools_in_the_prompt() {
    let (sent, names) = translated(&Responses, &search_body("server"));
    let expected = ["input: tool_search_call", "input: tool_search_output", "tools: tool_search"];
    assert_eq!(names, expected);
    for sent in sent {
        let text = sent.to_string();
        assert!(text.contains("waits") && text.contains("mcp__cal__add"), "{text}");
        assert!(!text.contains("dates"), "{text}");
    }
}

/// Claude Code keeps the tools of its servers out of the prompt until its own search has found them.
#[test]
fn tools_that_wait_stay_out_until_something_refers_to_them() {
    let tool = |name: &str, waits: bool| {
        json!({"name": name, "defer_loading": waits,
        "input_schema": {"type": "object", "properties": {}}})
    };
    let tools = json!([
        tool("mcp__a__x", true),
        tool("ToolSearch", false),
        tool("mcp__b__y", true),
        tool("Read", false)
    ]);
    let hi = json!({"role": "user", "content": "hi"});
    let first = json!({"tools": tools, "messages": [hi]});
    let (sent, names) = translated(&Messages, &first);
    assert!(names.is_empty(), "{names:?}");
    for sent in &sent {
        let text = sent.to_string();
        assert!(text.contains("ToolSearch") && !text.contains("mcp__"), "{text}");
    }
    let reference = json!({"type": "tool_reference", "tool_name": "mcp__b__y"});
    let second = json!({"tools": tools, "messages": [hi,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {"query": "y"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [reference]}]},
    ]});
    let (sent, _) = translated(&Messages, &second);
    for sent in &sent {
        let text = sent.to_string();
        assert!(text.contains("These tools can be called now: mcp__b__y"), "{text}");
        assert!(!text.contains("mcp__a__x"), "{text}");
        // Behind those that were there, so that the prompt keeps its beginning.
        let list = sent["tools"].to_string() + &sent["toolConfig"].to_string();
        assert!(list.find("mcp__b__y") > list.find("Read"), "{list}");
    }
    let mut server = second.clone();
    let search =
        json!({"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"});
    server["tools"].as_array_mut().expect("tools").push(search);
    let (sent, names) = translated(&Messages, &server);
    assert_eq!(names, ["tools: tool_search_tool_regex_20251119"]);
    assert!(sent.iter().all(|sent| sent.to_string().contains("mcp__a__x")));
}

#[test]
fn blocks_of_earlier_answers_are_left_out_of_messages() {
    let with_block = |block: Value| {
        after_hi(
            &Messages,
            json!({"role": "assistant", "content": [{"type": "text", "text": "so"}, block]}),
        )
    };
    for kind in [
        "server_tool_use",
        "mcp_tool_use",
        "mcp_tool_result",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "container_upload",
        "hologram_tool_result",
    ] {
        let block =
            json!({"type": kind, "id": "s", "tool_use_id": "s", "name": "n", "content": []});
        left_out(&Messages, &with_block(block), &[&format!("messages.content: {kind}")]);
    }
    let cited = json!({"type": "text", "text": "x", "citations": [{"type": "char_location"}]});
    left_out(&Messages, &with_block(cited), &["messages.content.citations"]);
    left_out(&Messages, &with_block(json!({"type": "fallback", "from": {}, "to": {}})), &[]);
    let caller = json!({"type": "code_execution_20260120", "tool_id": "s"});
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": caller});
    left_out(&Messages, &with_block(call), &["messages.content.caller"]);
    let turn =
        json!({"role": "user", "content": "x", "output_config": {"effort": "low"}, "id": "m"});
    left_out(&Messages, &after_hi(&Messages, turn), &["messages.output_config"]);
    for (field, value, names) in [
        ("mcp_servers", json!([]), vec![]),
        ("mcp_servers", json!([{"type": "url"}]), vec!["mcp_servers"]),
        ("speed", json!("standard"), vec![]),
        ("diagnostics", json!({"previous_message_id": null}), vec!["diagnostics"]),
        ("context_management", json!({"edits": [{}]}), vec!["context_management"]),
        ("output_config", json!({"task_budget": {"total": 1}}), vec!["output_config.task_budget"]),
        ("metadata", json!({"user_id": null, "x": 1}), vec!["metadata.x"]),
        (
            "tools",
            json!([{"type": "web_search_20250305", "name": "web_search"}]),
            vec!["tools: web_search_20250305"],
        ),
    ] {
        left_out(&Messages, &with(&Messages, field, value), &names);
    }
    let bash = json!([{"type": "bash_20250124", "name": "bash"}]);
    let (sent, names) = translated(&Messages, &with(&Messages, "tools", bash));
    assert!(names.is_empty() && sent.iter().all(|sent| sent.to_string().contains("restart")));
}

#[test]
fn a_summary_replaces_the_turns_before_it() {
    let summary = json!({"type": "compaction", "content": "We greeted.", "encrypted_content": "x"});
    let body = after_hi(
        &Messages,
        json!({"role": "assistant", "content": [summary, {"type": "text", "text": "so"}]}),
    );
    for sent in translated(&Messages, &body).0 {
        let text = sent.to_string();
        assert!(text.contains("We greeted.") && !text.contains("\"hi\""), "{text}");
    }
}

#[test]
fn parts_of_earlier_answers_are_left_out_of_gemini() {
    let turn = |part: Value| {
        json!({"contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "so"}, part], "groundingMetadata": {"a": 1}},
            {"role": "user", "parts": [{"text": "on"}]},
        ]})
    };
    let grounding = "contents.groundingMetadata";
    for (part, name) in [
        (
            json!({"executableCode": {"language": "PYTHON", "code": "1"}}),
            "contents.parts.executableCode",
        ),
        (json!({"codeExecutionResult": {"outcome": "OK"}}), "contents.parts.codeExecutionResult"),
        (
            json!({"fileData": {"fileUri": "files/1", "mimeType": "image/png"}}),
            "contents.parts.fileData",
        ),
        (
            json!({"inlineData": {"data": "AAAA", "mimeType": "image/png"}}),
            "contents.parts.inlineData",
        ),
        (json!({"toolCall": {"toolType": "GOOGLE_SEARCH"}}), "contents.parts.toolCall"),
        (json!({"text": "x", "partMetadata": {"a": 1}}), "contents.parts.partMetadata"),
    ] {
        left_out(&Gemini, &turn(part), &[name, grounding]);
    }
    left_out(&Gemini, &turn(json!({"thought": true})), &[grounding]);
    left_out(&Gemini, &turn(json!({"thought": true, "thoughtSignature": "AAAA"})), &[grounding]);
    let search = json!([{"googleSearch": {}}, {"urlContext": {}}, {"codeExecution": {}}]);
    let names = ["tools: googleSearch", "tools: urlContext", "tools: codeExecution"];
    left_out(&Gemini, &with(&Gemini, "tools", search), &names);
    let two = json!([{"functionDeclarations": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}]);
    let mut body = with(&Gemini, "tools", two);
    body["toolConfig"] =
        json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "b"]}});
    for sent in translated(&Gemini, &body).0 {
        let text = sent.to_string();
        assert!(text.contains("\"b\"") && !text.contains("\"c\""), "{text}");
    }
}

#[test]
fn a_choice_of_a_tool_that_a_provider_runs_is_refused() {
    let rows: [(&dyn CustomerDialect, Value, Value); 4] = [
        (&Responses, json!([{"type": "web_search"}]), json!({"type": "web_search"})),
        (&Responses, json!([{"type": "web_search"}]), json!("required")),
        (
            &Messages,
            json!([{"type": "web_search_20250305", "name": "web_search"}]),
            json!({"type": "tool", "name": "web_search"}),
        ),
        (&Chat, json!([{"type": "web_search"}]), json!("required")),
    ];
    for (customer, tools, choice) in rows {
        let mut body = with(customer, "tools", tools);
        body["tool_choice"] = choice;
        let refusal = refused(customer, &body);
        assert!(refusal.starts_with("tool_choice | `tool_choice` cannot"), "{refusal}");
    }
}

#[test]
fn a_request_that_says_nothing_is_refused_in_its_providers_words() {
    for (customer, body, words) in [
        (&Gemini as &dyn CustomerDialect, json!({}), "contents is not specified"),
        (&Gemini, json!({"contents": []}), "contents is not specified"),
        (&Chat, json!({}), "Missing required parameter: 'messages'."),
        (&Chat, json!({"messages": []}), "at least one message"),
        (&Messages, json!({"max_tokens": 5}), "messages: Field required"),
        (&Messages, json!({"messages": []}), "at least one message is required"),
        (&Responses, json!({"input": []}), "at least one item"),
        (&Responses, json!({}), "at least one item"),
    ] {
        let refusal = refused(customer, &body);
        assert!(refusal.contains(words), "{customer:?}: {refusal}");
    }
}

#[test]
fn fields_with_two_names_are_read_once() {
    let mut body = with(&Chat, "reasoning", json!({"effort": "high", "exclude": null}));
    body["reasoning_effort"] = json!("high");
    body["enable_thinking"] = json!(true);
    body["user"] = json!("u");
    body["safety_identifier"] = json!("s");
    let (sent, _) = translated(&Chat, &body);
    assert_eq!(sent[1]["reasoning"]["effort"], "high", "{}", sent[1]);
    let text = body.to_string();
    let read = Chat.read_request(text.as_bytes()).expect("read");
    let sent = Responses.write_request(&read.parts, &target(), &mut Losses::default());
    let sent = String::from_utf8(sent.expect("written")).expect("text");
    for key in ["\"reasoning\":", "\"safety_identifier\":"] {
        assert_eq!(sent.matches(key).count(), 1, "{sent}");
    }
    let most = with(&Responses, "reasoning", json!({"effort": "ultra", "context": "all"}));
    left_out(&Responses, &most, &[]);
    let off = with(&Chat, "thinking", json!({"type": "disabled"})).to_string();
    let read = Chat.read_request(off.as_bytes()).expect("read");
    assert!(read.parts.contains(&PromptPart::Thinking(Thinking::Off)), "{read:?}");
}

#[test]
fn a_choice_among_tools_offers_these_alone() {
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let mut body =
        with(&Chat, "tools", json!([function("alpha"), function("beta"), function("gamma")]));
    body["tool_choice"] = json!({"type": "allowed_tools", "allowed_tools":
        {"mode": "required", "tools": [function("alpha"), function("beta")]}});
    for sent in translated(&Chat, &body).0 {
        let text = sent.to_string();
        assert!(text.contains("beta") && !text.contains("gamma"), "{text}");
    }
    let function = |name: &str| json!({"type": "function", "name": name});
    let mut body = with(&Responses, "tools", json!([function("alpha"), function("beta")]));
    body["tool_choice"] =
        json!({"type": "allowed_tools", "mode": "auto", "tools": [function("beta")]});
    for sent in translated(&Responses, &body).0 {
        let text = sent.to_string();
        assert!(text.contains("beta") && !text.contains("alpha"), "{text}");
    }
}

/// The names go into a header, and the customer writes some of them.
#[test]
fn names_of_what_is_left_out_fit_a_header() {
    let mut turn = json!({"role": "assistant", "content": "so"});
    for place in 0..100 {
        turn[format!("k{place}\r\nx-evil: 1, é")] = json!(1);
    }
    let text = after_hi(&Chat, turn).to_string();
    let read = Chat.read_request(text.as_bytes()).expect("read");
    assert_eq!(read.left_out.len(), 32);
    for omission in &read.left_out {
        let fits = |letter: char| letter.is_ascii_graphic() && letter != ',';
        assert!(omission.name.chars().all(fits), "{omission:?}");
    }
    let strict = TranslationTarget { mode: Mode::Strict, ..target() };
    let refusal = Losses::from_request(read.left_out, strict.mode).expect_err("strict");
    assert!(refusal.field.starts_with("messages[1].k"), "{refusal:?}");
    assert_eq!(AnswerFrame::default().tool_search, None);
}
