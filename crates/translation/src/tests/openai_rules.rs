//! Rules of OpenAI and of its API's copies beyond the request's grammar.

use super::*;
use crate::names::CallIds;

fn common() -> TranslationTarget {
    TranslationTarget::default()
}

fn mistral() -> TranslationTarget {
    TranslationTarget { call_ids: CallIds::Nine, ..common() }
}

/// Translates a customer's request for an upstream.
fn over(
    customer: &dyn CustomerDialect,
    upstream: &dyn UpstreamDialect,
    target: &TranslationTarget,
    request: &Value,
) -> Value {
    written(customer, upstream, target, request).0
}

/// The request as the upstream gets it, with the names of the fields that are left out.
fn written(
    customer: &dyn CustomerDialect,
    upstream: &dyn UpstreamDialect,
    target: &TranslationTarget,
    request: &Value,
) -> (Value, Vec<String>) {
    let request = request.to_string();
    let read = customer.read_request(request.as_bytes()).expect("read");
    let mut losses = Losses::default();
    let body = upstream.write_request(&read.parts, target, &mut losses).expect("written");
    let losses = losses.fields().iter().map(|field| field.clone().into_owned()).collect();
    (serde_json::from_slice(&body).expect("JSON"), losses)
}

fn roles(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["role"].as_str().expect("a role")).collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn claude(messages: Value) -> Value {
    json!({"max_tokens": 9, "system": "S", "messages": messages})
}

fn tool_use(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn tool_result(id: &str, text: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": text})
}

#[test]
fn common_chat_has_one_system_message_at_the_beginning() {
    let request = claude(json!([user("a"), {"role": "system", "content": "later"}, user("b"),
        {"role": "assistant", "content": "c"}, {"role": "system", "content": "last"}]));
    let sent = over(&Messages, &Chat, &common(), &request);
    assert_eq!(roles(&sent), ["system", "user", "assistant", "user"], "{sent}");
    let texts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "later"},
        {"type": "text", "text": "b"}]);
    assert_eq!(sent["messages"][1]["content"], texts, "{sent}");
    assert_eq!(sent["messages"][3]["content"], "last", "{sent}");
    // OpenAI's own models take a developer's message anywhere.
    let sent = over(&Messages, &Chat, &target(), &request);
    assert_eq!(roles(&sent)[..3], ["developer", "user", "developer"], "{sent}");
}

#[test]
fn common_chat_begins_with_the_user_and_alternates() {
    let request = json!({"messages": [{"role": "assistant", "content": "Hi."}, user("a"), user("b"),
        {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"}]});
    let request = json!({"max_tokens": 9, "messages": request["messages"]});
    let sent = over(&Messages, &Chat, &common(), &request);
    assert_eq!(roles(&sent), ["user", "assistant", "user", "assistant"], "{sent}");
    assert_eq!(sent["messages"][3]["content"], "c\n\nd", "{sent}");
    let alone = json!({"input": [], "instructions": "Say hello."});
    let sent = over(&Responses, &Chat, &common(), &alone);
    assert_eq!(sent["messages"], json!([user("Say hello.")]));
}

#[test]
fn mistral_has_the_assistant_between_a_result_and_a_text() {
    let request =
        claude(json!([user("a"), {"role": "assistant", "content": [tool_use("toolu_1")]},
        {"role": "user", "content": [tool_result("toolu_1", "x"), {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "It"}]));
    let sent = over(&Messages, &Chat, &mistral(), &request);
    let expected = ["system", "user", "assistant", "tool", "assistant", "user", "assistant"];
    assert_eq!(roles(&sent), expected, "{sent}");
    assert_eq!(sent["messages"][6]["prefix"], true, "{sent}");
    let sent = over(&Messages, &Chat, &common(), &request);
    assert_eq!(roles(&sent), ["system", "user", "assistant", "tool", "user", "assistant"]);
    assert_eq!(sent["messages"][5].get("prefix"), None, "{sent}");
}

#[test]
fn every_call_has_its_result_directly_behind_it_and_every_result_its_call() {
    let request = claude(json!([
        user("a"),
        {"role": "assistant", "content": [tool_use("c1"), tool_use("c2"), tool_use("c3")]},
        {"role": "user", "content": [{"type": "text", "text": "stop"}, tool_result("c3", "three"),
            tool_result("c1", "one"), tool_result("lost", "nobody's")]},
        {"role": "assistant", "content": [tool_use("c4")]},
    ]));
    for (upstream, target) in [(&Chat as &dyn CustomerDialect, common()), (&Chat, target())] {
        let sent = over(&Messages, upstream, &target, &request);
        let messages = sent["messages"].as_array().expect("messages");
        let results: Vec<(&str, &str)> = messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|one| {
                (one["tool_call_id"].as_str().expect("id"), one["content"].as_str().expect("text"))
            })
            .collect();
        let none = "Error: The call was interrupted and has no result.";
        assert_eq!(results, [("c1", "one"), ("c2", none), ("c3", "three"), ("c4", none)], "{sent}");
        assert_eq!(
            roles(&sent)[1..],
            ["user", "assistant", "tool", "tool", "tool", "user", "assistant", "tool"]
        );
        let texts = messages[6]["content"].to_string();
        assert!(texts.contains("stop") && texts.contains("nobody's"), "{texts}");
    }
    let sent = over(&Messages, &Responses, &target(), &request);
    let input = sent["input"].as_array().expect("items");
    let items: Vec<String> = input
        .iter()
        .map(|item| match item["call_id"].as_str() {
            Some(id) => format!("{} {id}", item["type"].as_str().expect("a type")),
            None => item["role"].as_str().expect("a role").to_owned(),
        })
        .collect();
    let expected = [
        "developer",
        "user",
        "function_call c1",
        "function_call c2",
        "function_call c3",
        "function_call_output c1",
        "function_call_output c2",
        "function_call_output c3",
        "user",
        "function_call c4",
        "function_call_output c4",
    ];
    assert_eq!(items, expected);
}

/// cursor-byok 307: what the model said behind its calls is a message of its own.
#[test]
fn a_text_between_calls_and_results_stays_in_their_turn() {
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let request = json!({"messages": [user("a"), {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "content": "Reading."},
        {"role": "tool", "tool_call_id": "c1", "content": "x"}]});
    let sent = over(&Chat, &Responses, &target(), &request);
    let kinds: Vec<&str> = sent["input"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|item| item["type"].as_str())
        .collect();
    assert_eq!(kinds, ["message", "function_call", "message", "function_call_output"], "{sent}");
    let chat = Chat.read_request(request.to_string().as_bytes()).expect("read").parts.len();
    assert!(chat > 0);
}

#[test]
fn messages_that_say_nothing_are_left_out() {
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"});
    let request =
        claude(json!([user("a"), {"role": "assistant", "content": [thought]}, user("  "),
        user("b")]));
    let sent = over(&Messages, &Chat, &common(), &request);
    assert_eq!(roles(&sent), ["system", "user"], "{sent}");
    let texts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(sent["messages"][1]["content"], texts, "{sent}");
}

#[test]
fn what_is_in_order_stays_as_it_is() {
    let request = claude(json!([user("a"), {"role": "assistant", "content": [tool_use("c1")]},
        {"role": "user", "content": [tool_result("c1", "x")]}, {"role": "assistant", "content": "b"}]));
    let read = request.to_string();
    let read = Messages.read_request(read.as_bytes()).expect("read");
    assert!(matches!(crate::pairing::paired(&read.parts), Cow::Borrowed(_)));
}

/// A request with one tool of this schema, as Anthropic's customers write it.
fn with_tool(schema: Value) -> Value {
    let tool = json!({"name": "f", "input_schema": schema});
    json!({"max_tokens": 9, "tools": [tool], "messages": [user("a")]})
}

/// The schema and `strict` of the only tool over both of OpenAI's dialects.
fn sent_tools(customer: &dyn CustomerDialect, request: &Value) -> [(Value, Value, Vec<String>); 2] {
    let (chat, chat_losses) = written(customer, &Chat, &target(), request);
    let (responses, losses) = written(customer, &Responses, &target(), request);
    let (chat, responses) = (&chat["tools"][0]["function"], &responses["tools"][0]);
    [
        (chat["parameters"].clone(), chat["strict"].clone(), chat_losses),
        (responses["parameters"].clone(), responses["strict"].clone(), losses),
    ]
}

#[test]
fn schemas_have_an_object_with_properties_at_their_root() {
    let empty = json!({"type": "object", "properties": {}});
    let string = json!({"type": "string"});
    let object = json!({"type": "object", "properties": {"a": string}, "required": ["a"]});
    let choice =
        |key: &str| json!({key: [object, {"type": "object", "properties": {"b": string}}]});
    let merged = json!({"type": "object", "properties": {"a": string, "b": string}});
    let referred = json!({"$ref": "#/$defs/A", "$defs": {"A": object}});
    let mut resolved = object.clone();
    resolved["$defs"] = json!({"A": object});
    let bare = json!({"type": "object", "properties": {"a": {"type": "array"}}});
    let filled = json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}});
    for (schema, expected, is_loosened) in [
        (json!({}), empty.clone(), false),
        (json!({"type": "object"}), empty.clone(), false),
        (json!({"type": "object", "properties": null}), empty, false),
        (object.clone(), object.clone(), false),
        (choice("anyOf"), merged.clone(), true),
        (choice("oneOf"), merged, true),
        (referred, resolved, false),
        (bare, filled, false),
    ] {
        for (sent, _, losses) in sent_tools(&Messages, &with_tool(schema.clone())) {
            assert_eq!(sent, expected, "{schema}");
            let named = losses.contains(&"tools: choices at the root of a schema".to_owned());
            assert_eq!(named, is_loosened, "{schema}: {losses:?}");
        }
    }
    let absent = json!({"messages": [user("a")], "tools":
        [{"type": "function", "function": {"name": "f"}}]});
    let absent = over(&Chat, &Responses, &target(), &absent);
    assert_eq!(absent["tools"][0]["parameters"], json!({"type": "object", "properties": {}}));
}

#[test]
fn schemas_in_order_stay_byte_for_byte() {
    let schema = r#"{ "type":"object", "properties": {"b":{"type":"array","items":{"type":"string"}},"a":{}} }"#;
    let sent = crate::tool_schema::of_tool(schema);
    assert!(matches!(&sent.text, Cow::Borrowed(text) if *text == schema) && !sent.is_loosened);
}

#[test]
fn strict_is_set_for_strict_schemas_alone() {
    let string = json!({"type": "string"});
    let object = |properties: Value, required: Value| {
        json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": false})
    };
    let strict = object(json!({"a": string}), json!(["a"]));
    for (schema, is_strict) in [
        (strict.clone(), true),
        (object(json!({"a": string, "b": string}), json!(["a"])), false),
        (json!({"type": "object", "properties": {"a": string}, "required": ["a"]}), false),
        (object(json!({"a": {"type": "array", "items": strict}}), json!(["a"])), true),
        (
            object(
                json!({"a": {"type": "array", "items": {"type": "object", "properties": {}}}}),
                json!(["a"]),
            ),
            false,
        ),
        (object(json!({"a": {"anyOf": [strict, {"type": "null"}]}}), json!(["a"])), true),
        (object(json!({"a": {"type": "string", "minLength": 1}}), json!(["a"])), false),
        (object(json!({"a": {"type": "string", "format": "uri"}}), json!(["a"])), false),
        (object(json!({"a": {"oneOf": [string]}}), json!(["a"])), false),
    ] {
        let mut request = with_tool(schema.clone());
        request["tools"][0]["strict"] = json!(true);
        for (_, strict, losses) in sent_tools(&Messages, &request) {
            assert_eq!(strict, json!(is_strict), "{schema}");
            assert_eq!(losses.contains(&"tools: strict".to_owned()), !is_strict, "{schema}");
        }
        let format = json!({"type": "json_schema",
            "json_schema": {"name": "a", "schema": schema, "strict": true}});
        let request = json!({"messages": [user("a")], "response_format": format});
        let sent = over(&Chat, &Responses, &target(), &request);
        assert_eq!(sent["text"]["format"]["strict"], json!(is_strict), "{schema}");
    }
}

#[test]
fn effort_is_mapped_to_words_that_the_model_accepts() {
    use crate::dialect::Efforts;
    let gpt_5 = Efforts::from_words(["minimal", "low", "medium", "high"]);
    let newer = Efforts::from_words(["none", "low", "medium", "high", "xhigh"]);
    let request = |effort: &str| json!({"messages": [user("a")], "reasoning_effort": effort});
    for (efforts, effort, word, is_named) in [
        (newer, "none", "none", false),
        (gpt_5, "none", "minimal", true),
        (newer, "minimal", "low", false),
        (gpt_5, "minimal", "minimal", false),
        (gpt_5, "xhigh", "high", false),
        (newer, "xhigh", "xhigh", false),
        (Efforts::default(), "none", "none", false),
    ] {
        let target = TranslationTarget { efforts, ..target() };
        let (sent, losses) = written(&Chat, &Responses, &target, &request(effort));
        assert_eq!(sent["reasoning"]["effort"], word, "{effort}");
        assert_eq!(!losses.is_empty(), is_named, "{effort}: {losses:?}");
        let again = json!({"input": "a", "reasoning": {"effort": effort}});
        let sent = over(&Responses, &Chat, &target, &again);
        assert_eq!(sent["reasoning_effort"], word, "{effort}");
    }
    let budget = json!({"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [user("a")]});
    assert_eq!(over(&Messages, &Responses, &target(), &budget)["reasoning"]["effort"], "low");
    let mut off = budget;
    off["thinking"] = json!({"type": "disabled"});
    let sent = over(&Messages, &Responses, &target(), &off);
    assert_eq!(sent["reasoning"], json!({"effort": "none"}));
}

#[test]
fn copies_have_thinking_switched_by_their_own_field() {
    use crate::dialect::ThinkingField::{
        ChatTemplateKwargs, EnableThinking, None as Nothing, ReasoningEffort, Thinking,
    };
    let request = |thinking: Value| json!({"max_tokens": 9000, "thinking": thinking, "messages": [user("a")]});
    let off = request(json!({"type": "disabled"}));
    let on = request(json!({"type": "enabled", "budget_tokens": 2048}));
    for (field, when_off, when_on) in [
        (
            Thinking,
            json!({"thinking": {"type": "disabled"}}),
            json!({"thinking": {"type": "enabled"}}),
        ),
        (
            EnableThinking,
            json!({"enable_thinking": false}),
            json!({"enable_thinking": true, "thinking_budget": 2048}),
        ),
        (ReasoningEffort, json!({"reasoning_effort": "none"}), json!({"reasoning_effort": "low"})),
        (
            ChatTemplateKwargs,
            json!({"chat_template_kwargs": {"enable_thinking": false, "thinking": false}}),
            json!({"chat_template_kwargs": {"enable_thinking": true, "thinking": true}}),
        ),
        (Nothing, json!({}), json!({})),
    ] {
        let target = TranslationTarget { thinking_field: field, ..common() };
        for (request, expected) in [(&off, when_off), (&on, when_on)] {
            let (mut sent, losses) = written(&Messages, &Chat, &target, request);
            let members = sent.as_object_mut().expect("an object");
            members.retain(|key, _| !matches!(key.as_str(), "messages" | "max_tokens"));
            assert_eq!(sent, expected, "{field:?}");
            assert_eq!(losses.is_empty(), field != Nothing, "{losses:?}");
        }
    }
}

#[test]
fn least_values_and_lengths_are_kept() {
    let probe = json!({"max_tokens": 1, "messages": [user("a")]});
    assert_eq!(over(&Messages, &Responses, &target(), &probe)["max_output_tokens"], 16);
    assert_eq!(over(&Messages, &Chat, &target(), &probe)["max_completion_tokens"], 1);
    let key = "k".repeat(100);
    let request = json!({"messages": [user("a")], "prompt_cache_key": key, "stop": ["", ""]});
    let sent = over(&Chat, &Responses, &target(), &request);
    let written = sent["prompt_cache_key"].as_str().expect("a key");
    assert!(written.len() <= 64 && written != key, "{written}");
    let stops = json!({"max_tokens": 9, "messages": [user("a")],
        "stop_sequences": ["a", "", "b", "a", "c", "d"]});
    assert_eq!(over(&Messages, &Chat, &target(), &stops)["stop"], json!(["a", "b", "c", "d"]));
}

#[test]
fn models_that_reason_get_no_settings_of_sampling() {
    let request = json!({"messages": [user("a")], "temperature": 0.5, "top_p": 0.9, "seed": 1,
        "presence_penalty": 1, "frequency_penalty": 1});
    for reasons in [target(), common()] {
        let target = TranslationTarget { takes_sampling: false, ..reasons };
        let read = request.to_string();
        let read = Chat.read_request(read.as_bytes()).expect("read");
        let mut losses = Losses::default();
        let body = Chat.write_request(&read.parts, &target, &mut losses).expect("written");
        let sent: Value = serde_json::from_slice(&body).expect("JSON");
        for field in ["temperature", "top_p", "presence_penalty", "frequency_penalty"] {
            assert_eq!(sent.get(field), None, "{sent}");
            assert!(losses.fields().iter().any(|lost| lost == field), "{losses:?}");
        }
        assert_eq!(sent["seed"], 1);
    }
}

#[test]
fn json_mode_adds_an_instruction_to_the_prompt() {
    let request =
        |text: &str| json!({"messages": [user(text)], "response_format": {"type": "json_object"}});
    let sent = over(&Chat, &Responses, &target(), &request("a"));
    assert_eq!(sent["input"][0]["content"][0]["text"], "Answer with a JSON object.", "{sent}");
    let sent = over(&Chat, &Responses, &target(), &request("Write Json."));
    assert_eq!(sent["input"].as_array().map(Vec::len), Some(1), "{sent}");
    let request = json!({"input": "a", "text": {"format": {"type": "json_object"}}});
    let sent = over(&Responses, &Chat, &common(), &request);
    assert_eq!(
        sent["messages"][0],
        json!({"role": "system", "content": "Answer with a JSON object."})
    );
}

#[test]
fn pictures_have_types_that_openai_takes() {
    let picture = |media_type: &str| {
        let source = json!({"type": "base64", "media_type": media_type, "data": "AAAA"});
        claude(json!([{"role": "user", "content": [{"type": "image", "source": source}]}]))
    };
    for upstream in [&Chat as &dyn CustomerDialect, &Responses] {
        let request = picture("image/bmp").to_string();
        let read = Messages.read_request(request.as_bytes()).expect("read");
        let refused = upstream.write_request(&read.parts, &target(), &mut Losses::default());
        let field = refused.expect_err("refused").field;
        assert_eq!(field, "messages.content: an image of type image/bmp");
        over(&Messages, upstream, &target(), &picture("image/webp"));
    }
}

#[test]
fn free_text_has_its_own_kind_of_output_and_choice() {
    let request = json!({"tools": [{"type": "custom", "name": "patch"}],
        "tool_choice": {"type": "custom", "name": "patch"},
        "input": [user("a"),
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "y"}]});
    let sent = over(&Responses, &Responses, &target(), &request);
    assert_eq!(sent["tool_choice"]["type"], "custom", "{sent}");
    assert_eq!(sent["input"][2]["type"], "custom_tool_call_output", "{sent}");
    let sent = over(&Responses, &Chat, &target(), &request);
    assert_eq!(sent["tool_choice"], json!({"type": "custom", "custom": {"name": "patch"}}));
    let sent = over(&Responses, &Chat, &common(), &request);
    assert_eq!(sent["tool_choice"]["type"], "function", "{sent}");
}

#[test]
fn thoughts_with_nothing_behind_them_are_left_out() {
    let thought =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"});
    let cut = json!({"input": [user("a"), thought, user("b")]});
    let sent = over(&Responses, &Responses, &target(), &cut);
    assert!(!sent.to_string().contains("rs_1"), "{sent}");
    let whole = json!({"input": [user("a"), thought, {"role": "assistant", "content": "x"}]});
    let sent = over(&Responses, &Responses, &target(), &whole);
    assert!(sent.to_string().contains("rs_1"), "{sent}");
}
