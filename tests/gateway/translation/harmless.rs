//! Client additions without meaning for another provider: the request is answered, and the answer names the
//! omissions.

use serde_json::{Value, json};

use super::wire::Customer;
use super::{CELLS, call, gateway};
use crate::harness::{Recorder, simulator};

/// Adds parts of an earlier answer, and a tool that only another provider runs.
fn with_leavings(customer: Customer, mut body: Value) -> (Value, &'static str) {
    let (turns, message, tools, names) = match customer {
        Customer::Chat => (
            "messages",
            json!({"role": "assistant", "content": "So.", "annotations": [{"type": "url_citation"}]}),
            json!([{"type": "web_search"}]),
            "messages.annotations, tools: web_search",
        ),
        Customer::Messages => (
            "messages",
            json!({"role": "assistant", "content": [{"type": "text", "text": "So."},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]}),
            json!([{"type": "web_search_20250305", "name": "web_search"}]),
            "messages.content: server_tool_use, tools: web_search_20250305",
        ),
        Customer::Responses => (
            "input",
            json!({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
            json!([{"type": "image_generation", "output_format": "png"}]),
            "input: web_search_call, tools: image_generation",
        ),
        Customer::Gemini => (
            "contents",
            json!({"role": "model", "parts": [{"text": "So."}, {"executableCode": {"code": "1"}}]}),
            json!([{"googleSearch": {}}]),
            "contents.parts.executableCode, tools: googleSearch",
        ),
    };
    let list = body[turns].as_array_mut().expect("turns");
    let hi = list.last().expect("a turn").clone();
    list.extend([message, hi]);
    body["tools"] = tools;
    (body, names)
}

#[test]
fn leavings_of_other_providers_are_named_and_stop_no_request() {
    let sim = simulator(&[]);
    let lenient = gateway(sim.addr(), "", "");
    let recorder = Recorder::start();
    let strict = gateway(recorder.address, "", "    translation: strict\n");
    for (customer, model) in CELLS {
        for stream in [false, true] {
            let (body, names) = with_leavings(customer, customer.body(model, stream));
            let answer = call(&lenient, customer, &body);
            assert_eq!(answer.status(), 200, "{customer:?} {model}: {answer:?}");
            let mut named: Vec<String> = answer
                .header("x-tollgate-left-out")
                .expect("names")
                .split(", ")
                .map(String::from)
                .collect();
            named.sort();
            let mut expected: Vec<&str> = names.split(", ").collect();
            expected.sort();
            assert_eq!(named, expected, "{customer:?} {model}");
        }
        let (body, _) = with_leavings(customer, customer.body(model, false));
        let answer = call(&strict, customer, &body);
        assert_eq!(answer.status(), 400, "{customer:?} {model}: {answer:?}");
    }
    assert!(recorder.requests().is_empty());
}

#[test]
fn a_request_without_contents_is_refused_in_googles_words() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    let mut body = Customer::Gemini.body("on-responses", false);
    body["contents"] = json!([]);
    let answer = call(&gateway, Customer::Gemini, &body);
    assert_eq!(answer.status(), 400, "{answer:?}");
    let error = &answer.json()["error"];
    assert_eq!(error["status"], "INVALID_ARGUMENT", "{error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("GenerateContentRequest.contents: contents is not specified"),
        "{error}"
    );
    assert!(recorder.requests().is_empty());
}
