//! `POST /v1/responses`: OpenAI's Responses API end to end, on the wire and in the ledger.

use crate::harness::{Admin, Customer, Demo};
use serde_json::{Value, json};

async fn call(demo: &Demo, customer: &Customer, stream: bool, sim: &str) -> reqwest::Response {
    let body = json!({"model": "gpt-4o-mini", "input": "hi", "stream": stream});
    let call = demo.post("/v1/responses", &body, sim).bearer_auth(&customer.key);
    call.send().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_charged_to_the_nano_dollar() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    for stream in [false, true] {
        let customer = admin.customer("1.00").await;
        let sim = "usage:prompt=1000,cached=400,completion=20";
        let answer = call(&demo, &customer, stream, sim).await;
        assert_eq!(answer.status(), 200);
        answer.bytes().await.expect("a whole answer");
        // $0.15 a million for input, $0.075 for what was cached, $0.60 for output.
        let spent = admin.settled(&customer.account).await.spent;
        assert_eq!(spent, 600 * 150 + 400 * 75 + 20 * 600, "stream {stream}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_cost_nothing() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    for (fault, status) in [("status=400", 400), ("status=500", 502), ("reset", 502)] {
        let answer = call(&demo, &customer, false, &format!("fault:{fault}")).await;
        assert_eq!(answer.status(), status, "{fault}");
        let body: Value = answer.json().await.expect("JSON");
        assert!(body["error"]["message"].is_string(), "{fault}: {body}");
    }
    let failed = call(&demo, &customer, true, "fault:error-after=0").await;
    let text = failed.text().await.expect("text");
    assert_eq!(text.matches("event: response.failed").count(), 1, "said once: {text}");
    assert_eq!(admin.settled(&customer.account).await.spent, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_ends_in_the_event_that_its_clients_act_on() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let answer = call(&demo, &customer, true, "fault:cut-after=3").await;
    let text = answer.text().await.expect("text");
    let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let data = last.strip_prefix("event: response.failed\ndata: ").expect(last);
    let event: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(event["response"]["status"], "failed", "{event}");
    assert!(event["error"]["message"].is_string(), "OpenAI's SDKs raise for it: {event}");
    let spent = admin.settled(&customer.account).await.spent;
    assert!(spent > 0, "what was delivered is charged");
}

/// An agent that tries itself out on the demo is asked to call its tool, and answered when it has.
#[tokio::test(flavor = "multi_thread")]
async fn simulated_models_call_tools_and_keep_to_schemas() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let ask = async |mut body: Value| {
        body["model"] = json!("gpt-4o-mini");
        let call = demo.post("/v1/responses", &body, "").bearer_auth(&customer.key);
        let answer = call.send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{body}");
        answer.text().await.expect("text")
    };
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tools = json!([{"type": "function", "name": "weather", "parameters": schema}]);
    let asked = json!({"input": "hi", "tools": tools});
    let called: Value = serde_json::from_str(&ask(asked.clone()).await).expect("JSON");
    let item = &called["output"][0];
    assert_eq!((&item["type"], &item["name"]), (&json!("function_call"), &json!("weather")));
    assert_eq!(item["arguments"], r#"{"city":"sample"}"#, "{item}");

    let mut streamed = asked.clone();
    streamed["stream"] = json!(true);
    let text = ask(streamed).await;
    assert!(text.contains("event: response.function_call_arguments.delta\n"), "{text}");
    assert!(text.contains("event: response.function_call_arguments.done\n"), "{text}");
    assert!(!text.contains("output_text"), "{text}");

    let result = json!({"type": "function_call_output", "call_id": item["call_id"], "output": "x"});
    let answered = ask(json!({"input": [item, result], "tools": tools})).await;
    let answered: Value = serde_json::from_str(&answered).expect("JSON");
    assert_eq!(answered["output"][0]["type"], "message", "{answered}");

    let format = json!({"format": {"type": "json_schema", "name": "place", "schema": schema}});
    let answered = ask(json!({"input": "hi", "text": format})).await;
    let answered: Value = serde_json::from_str(&answered).expect("JSON");
    assert_eq!(answered["output"][0]["content"][0]["text"], r#"{"city":"sample"}"#, "{answered}");
}
