//! What OpenAI and those who copied its API refuse of a request, beside its grammar.

use super::*;
use crate::dialect::CallIds;

fn common() -> TranslationTarget {
    TranslationTarget::default()
}

fn mistral() -> TranslationTarget {
    TranslationTarget { call_ids: CallIds::Nine, ..common() }
}

/// What a customer's request becomes over an upstream.
fn over(
    customer: &dyn Dialect,
    upstream: &dyn UpstreamDialect,
    target: &TranslationTarget,
    request: &Value,
) -> Value {
    written(customer, upstream, target, request).0
}

/// The same, with the names of what is left out.
fn written(
    customer: &dyn Dialect,
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
    for (upstream, target) in [(&Chat as &dyn Dialect, common()), (&Chat, target())] {
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
