//! Rules of Anthropic's validator; each names the public report of its error.

use serde_json::{Value, json};

use super::target;
use crate::dialect::{
    CustomerDialect, Losses, Mode, ThinkingStyle, TranslationTarget, UpstreamDialect,
};
use crate::seal::{self, Maker};
use crate::{Chat, Messages};

/// A request of chat completions, as Anthropic gets it, and what is left out.
fn sent(target: &TranslationTarget, body: &Value) -> (Value, Vec<String>) {
    let body = body.to_string();
    let read = Chat.read_request(body.as_bytes()).expect("read");
    let mut losses = Losses::default();
    let written = Messages.write_request(&read.parts, target, &mut losses).expect("written");
    let losses = losses.fields().iter().map(|field| field.clone().into_owned()).collect();
    (serde_json::from_slice(&written).expect("JSON"), losses)
}

fn messages(messages: Value) -> Value {
    json!({"model": "m", "messages": messages})
}

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
}

fn budget() -> TranslationTarget {
    TranslationTarget { thinking: ThinkingStyle::Budget, ..target() }
}

#[test]
fn a_conversation_with_calls_declares_their_tools_and_calls_none() {
    let (body, losses) = sent(
        &target(),
        &messages(json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [call("a", "f"), call("b", "g"), call("c", "f")]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "tool", "tool_call_id": "c", "content": "3"},
            {"role": "user", "content": "Sum it up."},
        ])),
    );
    let names: Vec<&Value> =
        body["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["f", "g"]);
    assert_eq!(body["tools"][0]["input_schema"], json!({"type": "object", "properties": {}}));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn results_stand_behind_their_calls_in_their_order_and_none_is_missing() {
    let (body, _) = sent(
        &target(),
        &messages(json!([
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "hi"},
            {"role": "tool", "tool_call_id": "lost", "content": "of before"},
            {"role": "assistant", "tool_calls": [call("a", "f"), call("b", "g"), call("c", "h")]},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "user", "content": "Wait."},
            {"role": "tool", "tool_call_id": "a", "content": " \n"},
            {"role": "assistant", "content": "\n"},
            {"role": "user", "content": "Go on."},
        ])),
    );
    let text = |text: &str| json!({"type": "text", "text": text});
    let expected = json!([
        {"role": "user", "content": [text("(The conversation begins here.)")]},
        {"role": "assistant", "content": [text("Hello.")]},
        {"role": "user", "content": [text("hi"),
            text("The result of an earlier call of a tool:\nof before")]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            {"type": "tool_use", "id": "c", "name": "h", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a"},
            {"type": "tool_result", "tool_use_id": "b", "content": [text("2")]},
            {"type": "tool_result", "tool_use_id": "c", "is_error": true, "content":
                [text("There is no result: the call was interrupted.")]},
            text("Wait."), text("Go on.")]},
    ]);
    assert_eq!(body["messages"], expected, "{}", body["messages"]);
}

#[test]
fn an_interrupted_end_gets_results_and_a_user() {
    let (body, losses) = sent(
        &target(),
        &messages(json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "I call.", "tool_calls": [call("a", "f")]},
        ])),
    );
    let last = &body["messages"][2];
    assert_eq!((&last["role"], &last["content"][0]["tool_use_id"]), (&json!("user"), &json!("a")));
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn a_beginning_of_the_answer_is_one_only_where_the_model_takes_it() {
    let ends = |end: &str| {
        messages(json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": end}]))
    };
    let (body, losses) = sent(&target(), &ends("{ "));
    assert_eq!(body["messages"][1]["content"][0]["text"], "{ ", "as it was said");
    assert_eq!(body["messages"][2]["role"], "user");
    assert_eq!(losses, ["messages: prefill"]);
    let (body, losses) = sent(&budget(), &ends("{ \n"));
    assert_eq!(body["messages"][1]["content"][0]["text"], "{");
    assert_eq!((body["messages"].as_array().map(Vec::len), losses.len()), (Some(2), 0));
    let mut thinking = ends("{");
    thinking["reasoning_effort"] = json!("high");
    thinking["max_tokens"] = json!(30_000);
    let (body, losses) = sent(&budget(), &thinking);
    assert_eq!((&body["messages"][2]["role"], losses.len()), (&json!("user"), 1), "{body}");
    let strict = TranslationTarget { mode: Mode::Strict, ..target() };
    let text = ends("{").to_string();
    let read = Chat.read_request(text.as_bytes()).expect("read");
    let refusal = Messages.write_request(&read.parts, &strict, &mut Losses::default());
    assert_eq!(refusal.expect_err("refused").field, "messages: prefill");
}

#[test]
fn thoughts_of_an_interrupted_turn_are_left_out() {
    let thought = json!({"type": "thinking", "thinking": "Hm.",
        "signature": seal::wrap(Maker::Messages, "c2ln")});
    let text = |text: &str| json!({"type": "text", "text": text});
    let body = messages(json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [thought]},
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": [thought, text("So."), thought]},
        {"role": "user", "content": "And?"},
    ]))
    .to_string();
    let read = Messages.read_request(body.as_bytes()).expect("read");
    let written = Messages.write_request(&read.parts, &target(), &mut Losses::default());
    let written: Value = serde_json::from_slice(&written.expect("written")).expect("JSON");
    let own = json!({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"});
    let expected = json!([
        {"role": "user", "content": [text("hi"), text("Well?")]},
        {"role": "assistant", "content": [own, text("So.")]},
        {"role": "user", "content": [text("And?")]},
    ]);
    assert_eq!(written["messages"], expected);
}

#[test]
fn blank_stops_and_names_of_people_are_left_out() {
    let mut body = messages(json!([{"role": "user", "content": "hi"}]));
    body["stop"] = json!(["\n\n", "END", ""]);
    for (user, is_sent) in
        [("u-1", true), ("a@example.com", false), ("+49 (170) 123-4567", false), ("42", true)]
    {
        body["user"] = json!(user);
        let (sent, losses) = sent(&target(), &body);
        assert_eq!(sent["stop_sequences"], json!(["END"]));
        assert_eq!(sent["metadata"].is_object(), is_sent, "{user}");
        assert!(losses.contains(&"stop".to_owned()), "{losses:?}");
        assert_eq!(losses.contains(&"user".to_owned()), !is_sent, "{user}: {losses:?}");
    }
    body["stop"] = json!(" ");
    assert_eq!(sent(&target(), &body).0["stop_sequences"], Value::Null);
}

#[test]
fn of_temperature_and_top_p_the_one_that_is_taken_stays() {
    let mut body = messages(json!([{"role": "user", "content": "hi"}]));
    body["temperature"] = json!(0.5);
    body["top_p"] = json!(0.9);
    let (written, losses) = sent(&target(), &body);
    assert_eq!((written["temperature"].as_f64(), &written["top_p"]), (Some(0.5), &Value::Null));
    assert_eq!(losses, ["top_p"]);
    body["temperature"] = json!(1.7);
    let (written, losses) = sent(&target(), &body);
    assert_eq!((&written["temperature"], written["top_p"].as_f64()), (&Value::Null, Some(0.9)));
    assert_eq!(losses, ["temperature"]);
}

#[test]
fn pictures_and_documents_are_what_their_bytes_are() {
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ";
    let url = |label: &str, data: &str| {
        messages(json!([{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": format!("data:{label};base64,{data}")}}]}]))
    };
    let file = |label: &str, data: &str| {
        messages(json!([{"role": "user", "content": [{"type": "file", "file":
            {"filename": "a", "file_data": format!("data:{label};base64,{data}")}}]}]))
    };
    let block = |body: &Value| sent(&target(), body).0["messages"][0]["content"][0].clone();
    assert_eq!(block(&url("image/jpeg", png))["source"]["media_type"], "image/png");
    assert_eq!(block(&url("image/jpg", "AAAA"))["source"]["media_type"], "image/jpeg");
    let read = block(&file("application/octet-stream", png));
    assert_eq!(
        (&read["type"], &read["source"]["media_type"]),
        (&json!("image"), &json!("image/png"))
    );
    let read = block(&file("text/markdown", "IyBIaQ=="));
    let source = json!({"type": "text", "media_type": "text/plain", "data": "# Hi"});
    assert_eq!((&read["type"], &read["source"]), (&json!("document"), &source));
    for (body, field) in [
        (url("image/heic", "AAAA"), "messages.content: an image of this type"),
        (file("application/zip", "AAAA"), "messages.content: a document of this type"),
    ] {
        let text = body.to_string();
        let read = Chat.read_request(text.as_bytes()).expect("read");
        let refusal = Messages.write_request(&read.parts, &target(), &mut Losses::default());
        assert_eq!(refusal.expect_err(field).field, field);
    }
}

#[test]
fn tools_have_an_object_at_their_root_names_once_and_properties_that_are_taken() {
    let tool = |name: &str, schema: Value| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let mut body = messages(json!([{"role": "user", "content": "hi"}]));
    let plain = json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}});
    body["tools"] = json!([
        tool("plain", plain.clone()),
        {"type": "function", "function": {"name": "none"}},
        tool("empty", json!({})),
        tool("go", json!({"type": "object", "properties": null, "required": null})),
        tool("either", json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})),
        tool("one", json!({"oneOf": [{"$ref": "#/$defs/A"},
            {"type": "object", "properties": {"y": {"type": "integer"}}}],
            "$defs": {"A": {"type": "object", "properties": {"x": {"type": "string"}}}}})),
        tool("keys", json!({"type": "object", "properties": {"filter[x]": {}, "ok.a-b": {}}})),
        tool("must", json!({"type": "object", "properties": {"$top": {}}, "required": ["$top"]})),
    ]);
    let (sent, losses) = sent(&target(), &body);
    let schema = |name: &str| {
        let tools = sent["tools"].as_array().expect("tools");
        let found: Vec<&Value> = tools.iter().filter(|tool| tool["name"] == name).collect();
        assert!(found.len() < 2, "{name} once: {sent}");
        found.first().map_or(Value::Null, |tool| tool["input_schema"].clone())
    };
    let empty = json!({"type": "object", "properties": {}});
    assert_eq!(schema("plain"), plain, "as it was: no grammar is made of it");
    for name in ["none", "empty", "go"] {
        assert_eq!(schema(name), empty, "{name}");
    }
    let either = schema("either");
    assert_eq!(
        (&either["anyOf"], either["properties"].as_object().map(|all| all.len())),
        (&Value::Null, Some(2))
    );
    assert!(
        either["description"].as_str().is_some_and(|text| text.contains("anyOf: [{")),
        "{either}"
    );
    let one = schema("one");
    assert_eq!(one["properties"], json!({"x": {"type": "string"}, "y": {"type": "integer"}}));
    assert_eq!((&one["type"], &one["oneOf"]), (&json!("object"), &Value::Null));
    assert_eq!(schema("keys")["properties"], json!({"ok.a-b": {}}));
    assert_eq!(schema("must"), Value::Null, "it could not be called");
    assert_eq!(losses, ["tools[6].parameters.properties", "tools[7]"]);
}

#[test]
fn strict_tools_have_schemas_of_the_grammar_or_are_not_strict() {
    let tool = |name: &str, schema: Value| {
        json!({"type": "function", "function":
        {"name": name, "parameters": schema, "strict": true}})
    };
    let mut body = messages(json!([{"role": "user", "content": "hi"}]));
    let fits = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
        "additionalProperties": false});
    let mut zod = fits.clone();
    zod["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    let mut long = fits.clone();
    long["properties"]["a"]["maxLength"] = json!(5);
    body["tools"] =
        json!([tool("fits", fits.clone()), tool("zod", zod), tool("long", long.clone())]);
    let (written, losses) = sent(&target(), &body);
    let strict: Vec<&Value> =
        written["tools"].as_array().expect("tools").iter().map(|tool| &tool["strict"]).collect();
    assert_eq!(strict, [&json!(true), &json!(true), &Value::Null]);
    assert_eq!(written["tools"][1]["input_schema"], fits);
    assert_eq!(written["tools"][2]["input_schema"], long, "as it was");
    assert_eq!(losses, ["tools.strict"]);
    let many: Vec<Value> = (0..21).map(|place| tool(&format!("t{place}"), fits.clone())).collect();
    body["tools"] = json!(many);
    let (written, losses) = sent(&target(), &body);
    assert!(!written["tools"].to_string().contains("strict"), "more than are taken");
    assert_eq!(losses, ["tools.strict"]);
}
