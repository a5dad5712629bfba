//! Rules of the validators of the Gemini API and of Vertex AI; each names the public report of its error.

use serde_json::{Value, json};

use super::target;
use crate::dialect::{CustomerDialect, Losses, ThinkingStyle, TranslationTarget, UpstreamDialect};
use crate::{Chat, Gemini, Messages};

fn written(
    customer: &dyn CustomerDialect,
    target: &TranslationTarget,
    body: &Value,
) -> (Value, Vec<String>) {
    let body = body.to_string();
    let read = customer.read_request(body.as_bytes()).expect("read");
    let mut losses = Losses::default();
    let written = Gemini.write_request(&read.parts, target, &mut losses).expect("written");
    let losses = losses.fields().iter().map(|field| field.clone().into_owned()).collect();
    (serde_json::from_slice(&written).expect("JSON"), losses)
}

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
}

#[test]
fn results_are_as_many_as_calls_and_alone_in_their_content() {
    let body = json!({"messages": [
        {"role": "assistant", "tool_calls": [call("a", "f"), call("b", "g")]},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "user", "content": "Be quick."},
        {"role": "assistant", "content": ""},
        {"role": "tool", "tool_call_id": "x", "content": "lost"},
    ]});
    let (sent, losses) = written(&Chat, &target(), &body);
    let response = |id: &str, name: &str, key: &str, text: &str| json!({"functionResponse": {"id": id, "name": name, "response": {key: text}}});
    let none = "There is no result: the call was interrupted.";
    let contents = &sent["contents"];
    assert_eq!(contents[0]["role"], "user", "{contents}");
    assert_eq!(contents[1]["parts"].as_array().map(Vec::len), Some(2), "{contents}");
    let results = json!([response("a", "f", "error", none), response("b", "g", "output", "2")]);
    assert_eq!(contents[2], json!({"role": "user", "parts": results}));
    let rest = json!([{"text": "Be quick."},
        {"text": "The result of an earlier call of a tool:\nlost"}]);
    assert_eq!(contents[3], json!({"role": "user", "parts": rest}));
    assert_eq!(contents.as_array().map(Vec::len), Some(4), "no empty content");
    let mode = &sent["toolConfig"]["functionCallingConfig"]["mode"];
    assert_eq!((mode, losses.len()), (&json!("NONE"), 0), "declared from the history");
    assert_eq!(sent["tools"][0]["functionDeclarations"].as_array().map(Vec::len), Some(2));
}

#[test]
fn pictures_of_results_follow_in_a_content_of_their_own() {
    let picture = json!({"type": "image", "source":
        {"type": "base64", "media_type": "image/jpeg", "data": "iVBORw0KGgoAAAANSUhEUgAA"}});
    let body = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [picture]}]}]});
    let (sent, _) = written(&Messages, &target(), &body);
    assert_eq!(sent["contents"][2]["parts"].as_array().map(Vec::len), Some(1));
    let shown = &sent["contents"][3]["parts"];
    assert_eq!(shown[0]["text"], "The tool call a has shown:");
    assert_eq!(shown[1]["inlineData"]["mimeType"], "image/png", "what its bytes are");
}

#[test]
fn a_model_with_a_thinking_level_never_continues_a_prefill() {
    let body = json!({"messages": [{"role": "user", "content": "hi"},
        {"role": "assistant", "content": "So"}]});
    let (sent, losses) = written(&Chat, &target(), &body);
    assert_eq!(sent["contents"][2]["role"], "user");
    assert_eq!(losses, ["messages: prefill"]);
    let budget = TranslationTarget { thinking: ThinkingStyle::Budget, ..target() };
    let (sent, losses) = written(&Chat, &budget, &body);
    assert_eq!((sent["contents"].as_array().map(Vec::len), losses.len()), (Some(2), 0));
    let system = json!({"messages": [{"role": "system", "content": "Say hello."}]});
    let (sent, _) = written(&Chat, &target(), &system);
    assert_eq!(sent["contents"][0]["role"], "user", "contents are required");
}

#[test]
fn settings_and_files_are_those_that_it_takes() {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}],
        "presence_penalty": 0.5, "stop": ["", "a"]});
    let (sent, losses) = written(&Chat, &target(), &body);
    assert_eq!(sent["generationConfig"], json!({"stopSequences": ["a"]}));
    assert_eq!(losses, ["presence_penalty"]);
    let old = TranslationTarget { thinking: ThinkingStyle::None, ..target() };
    assert_eq!(written(&Chat, &old, &body).0["generationConfig"]["presencePenalty"], json!(0.5));
    let file = |label: &str, data: &str| {
        json!({"messages": [{"role": "user", "content": [{"type": "file", "file":
        {"file_data": format!("data:{label};base64,{data}")}}]}]})
    };
    body = file("application/json", "eyJhIjoxfQ==");
    assert_eq!(written(&Chat, &target(), &body).0["contents"][0]["parts"][0]["text"], "{\"a\":1}");
    for (body, field) in [
        (file("image/gif", "R0lGODlhAQABAAAA"), "messages.content: an image of this type"),
        (file("application/msword", "0M8R4KGxGuE="), "messages.content: a document of this type"),
    ] {
        let text = body.to_string();
        let read = Chat.read_request(text.as_bytes()).expect("read");
        let refusal = Gemini.write_request(&read.parts, &target(), &mut Losses::default());
        assert_eq!(refusal.expect_err(field).field, field);
    }
}

#[test]
fn inputs_of_tools_are_objects_without_empty_values() {
    let tool = |name: &str, schema: Value| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let kept = json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}},
        "$schema": "http://json-schema.org/draft-07/schema#", "additionalProperties": false});
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "tools": [
        tool("kept", kept.clone()),
        tool("none", json!({"properties": {"a": {"type": "string"}}})),
        tool("unset", json!({"type": "object", "properties": {
            "a": {"type": "string", "enum": ["", "x"]},
            "b": {"anyOf": [{"type": "string", "enum": [""]}, {"type": "null"}]}}})),
    ]});
    let (sent, losses) = written(&Chat, &target(), &body);
    let schema =
        |place: usize| &sent["tools"][0]["functionDeclarations"][place]["parametersJsonSchema"];
    assert_eq!(schema(0), &kept);
    assert_eq!(schema(1), &json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let expected = json!({"a": {"type": "string", "enum": ["x"]},
        "b": {"anyOf": [{"type": "string", "description": "{enum: [\"\"]}"}, {"type": "null"}]}});
    assert_eq!(schema(2)["properties"], expected);
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn schemas_of_answers_have_the_documented_keywords_alone() {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string", "minLength": 2, "description": "A name."},
        "kind": {"const": "x"},
        "old": {"$ref": "#/definitions/Old", "description": "gone"},
        "maybe": {"type": ["string", "null"], "enum": ["a", null]},
        "count": {"type": "integer", "minimum": 1}},
        "definitions": {"Old": {"type": "boolean", "default": false}},
        "additionalProperties": false});
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "response_format":
        {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    let (sent, _) = written(&Chat, &target(), &body);
    let expected = json!({"type": "object", "properties": {
        "name": {"type": "string", "description": "A name.\n\n{minLength: 2}"},
        "kind": {"enum": ["x"]},
        "old": {"$ref": "#/$defs/Old"},
        "maybe": {"type": ["string", "null"], "description": "{enum: [\"a\",null]}"},
        "count": {"type": "integer", "minimum": 1}},
        "$defs": {"Old": {"type": "boolean", "description": "{default: false}"}},
        "additionalProperties": false});
    assert_eq!(sent["generationConfig"]["responseJsonSchema"], expected);
}
