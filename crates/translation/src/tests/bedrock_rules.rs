//! Rules of the validators of Bedrock's Converse API; each names the public report of its error.

use serde_json::{Value, json};

use super::target;
use crate::dialect::{CustomerDialect, Losses, ThinkingStyle, TranslationTarget, UpstreamDialect};
use crate::{Chat, Converse, Gemini, Messages, Responses};

fn written(
    customer: &dyn CustomerDialect,
    target: &TranslationTarget,
    body: &Value,
) -> (Value, Vec<String>) {
    let body = body.to_string();
    let read = customer.read_request(body.as_bytes()).expect("read");
    let mut losses = Losses::default();
    let written = Converse.write_request(&read.parts, target, &mut losses).expect("written");
    let losses = losses.fields().iter().map(|field| field.clone().into_owned()).collect();
    (serde_json::from_slice(&written).expect("JSON"), losses)
}

fn other_maker() -> TranslationTarget {
    TranslationTarget { thinking: ThinkingStyle::None, ..target() }
}

/// Histories with a call and its result and no tools, as compaction of agents sends them.
fn histories() -> [(&'static dyn CustomerDialect, Value); 4] {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    [
        (
            &Chat,
            json!({"messages": [{"role": "user", "content": "hi"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "a", "content": "1"}]}),
        ),
        (
            &Messages,
            json!({"max_tokens": 9, "messages": [{"role": "user", "content": "hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}]}),
        ),
        (
            &Responses,
            json!({"input": [{"role": "user", "content": "hi"},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "1"}]}),
        ),
        (
            &Gemini,
            json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "f", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "f", "response": {"output": "1"}}}]}]}),
        ),
    ]
}

#[test]
fn a_history_with_calls_declares_their_tools_in_every_customers_words() {
    for (customer, body) in histories() {
        let (claude, losses) = written(customer, &target(), &body);
        let spec = &claude["toolConfig"]["tools"][0]["toolSpec"];
        assert_eq!(spec["name"], "f", "{customer:?}: {claude}");
        let schema = json!({"json": {"type": "object", "properties": {}}});
        assert_eq!(spec["inputSchema"], schema);
        let choice = &claude["additionalModelRequestFields"]["tool_choice"];
        assert_eq!(choice, &json!({"type": "none"}), "{customer:?}");
        assert_eq!(losses, Vec::<String>::new(), "{customer:?}");
        let (other, losses) = written(customer, &other_maker(), &body);
        assert_eq!(other["toolConfig"]["tools"][0]["toolSpec"]["name"], "f");
        assert_eq!(other["toolConfig"]["toolChoice"], Value::Null);
        assert_eq!(other["additionalModelRequestFields"], Value::Null);
        assert_eq!(losses, ["tool_choice"], "the model may call it all the same");
    }
}

#[test]
fn models_of_other_makers_get_only_fields_that_they_accept() {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "tool_choice": "none",
        "tools": [{"type": "function", "function": {"name": "f"}}]});
    let (sent, losses) = written(&Chat, &other_maker(), &body);
    assert_eq!((&sent["toolConfig"], losses.len()), (&Value::Null, 0), "none is none");
    body["tool_choice"] = json!("auto");
    body["parallel_tool_calls"] = json!(false);
    let (sent, losses) = written(&Chat, &other_maker(), &body);
    assert_eq!(sent["toolConfig"]["tools"].as_array().map(Vec::len), Some(1));
    assert_eq!(losses, ["parallel_tool_calls"]);
    let text = |text: &str| json!({"text": text});
    let body = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1",
            "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be quick."}]},
        {"role": "assistant", "content": "So"}]});
    let (sent, losses) = written(&Messages, &other_maker(), &body);
    assert_eq!(losses, ["messages: prefill", "tool_choice", "cache_control"]);
    let turns: Vec<(&Value, &Value)> = sent["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .skip(2)
        .map(|turn| (&turn["role"], &turn["content"]))
        .collect();
    let result = json!([{"toolResult": {"toolUseId": "a", "content": [text("1")]}}]);
    let (user, assistant) = (json!("user"), json!("assistant"));
    let (received, quick) =
        (json!([text("(The results were received.)")]), json!([text("Be quick.")]));
    let (so, more) = (json!([text("So")]), json!([text("Continue.")]));
    let expected = [
        (&user, &result),
        (&assistant, &received),
        (&user, &quick),
        (&assistant, &so),
        (&user, &more),
    ];
    assert_eq!(turns, expected);
}

#[test]
fn failures_and_documents_have_texts() {
    let body = json!({"max_tokens": 9, "messages": [
        {"role": "user", "content": [{"type": "document", "source":
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjc="}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": true}]}]});
    let (sent, _) = written(&Messages, &target(), &body);
    assert_eq!(sent["messages"][0]["content"][1], json!({"text": "(See the document.)"}));
    let result = &sent["messages"][2]["content"][0]["toolResult"];
    assert_eq!(result["content"], json!([{"text": "The tool failed."}]));
}

#[test]
fn marks_for_the_cache_are_four_and_the_long_ones_first() {
    let text = |text: &str, ttl: &str| {
        json!({"type": "text", "text": text,
        "cache_control": {"type": "ephemeral", "ttl": ttl}})
    };
    let body = json!({"max_tokens": 9, "system": [text("a", "5m"), text("b", "5m")], "messages": [
        {"role": "user", "content": [text("c", "1h"), text("d", "5m"), text("e", "5m"), text(" ", "1h")]},
        {"role": "assistant", "content": "f"},
        {"role": "user", "content": [text("g", "1h")]}]});
    let (sent, losses) = written(&Messages, &target(), &body);
    let marks = sent.to_string().matches("cachePoint").count();
    assert_eq!((marks, losses), (4, vec!["cache_control".to_owned()]), "{sent}");
    assert!(!sent.to_string().contains("1h"), "none behind a short one: {sent}");
    assert_eq!(
        sent["system"],
        json!([{"text": "a"}, {"text": "b"}, {"cachePoint": {"type": "default"}}])
    );
    assert_eq!(sent["messages"][2]["content"][1]["cachePoint"]["type"], "default");
}
