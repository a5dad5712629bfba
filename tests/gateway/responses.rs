//! `POST /v1/responses`: OpenAI's Responses API end to end, on the wire and in the ledger.

use crate::harness::{Admin, Answer, Customer, Demo, Gateway, Recorder, ask, simulator};
use serde_json::{Value, json};
use tollgate::sim::Sim;

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
    // Nothing has been delivered, so there is a status for it.
    assert_eq!(failed.status(), 502);
    let body: Value = failed.json().await.expect("JSON");
    assert_eq!(body["error"]["code"], "service_unavailable", "{body}");
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
    let request = json!({"input": "hi", "tools": tools});
    let called: Value = serde_json::from_str(&ask(request.clone()).await).expect("JSON");
    let item = &called["output"][0];
    assert_eq!((&item["type"], &item["name"]), (&json!("function_call"), &json!("weather")));
    assert_eq!(item["arguments"], r#"{"city":"sample"}"#, "{item}");

    let mut streamed = request.clone();
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

/// Upstreams at one simulator with two credentials, and one that speaks Anthropic's protocol.
fn storing(sim: &Sim) -> Gateway {
    let at = sim.addr();
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{at}/v1', credentials: {{ one: sk-one, two: sk-two }} }}
  a: {{ protocol: anthropic, base_url: 'http://{at}' }}\n"
    );
    let model = |name: &str, operation: &str, upstream: &str| {
        format!(
            "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 3, cached_input_per_1m_tokens: 0.30, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}\n"
        )
    };
    let models = [model("m", "responses", "o"), model("claude", "messages", "a")].concat();
    Gateway::serving(&upstreams, &format!("models:\n{models}"))
}

/// A request with a key.
fn ask_as(gateway: &Gateway, key: &str, method: &str, path: &str, body: &str) -> Answer {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    ask(gateway.address, request.as_bytes())
}

/// A credential of the simulator's, for each request to this path and what is below it.
fn keys_used(sim: &Sim, path: &str) -> Vec<String> {
    let all = sim.requests();
    let query = all.iter().filter(|request| request.path.starts_with(path));
    query.map(|request| request.header("authorization").unwrap_or_default().to_owned()).collect()
}

#[test]
fn stored_objects_are_read_by_their_account_with_its_credential() {
    let sim = simulator(&[]);
    let gateway = storing(&sim);
    let (own, stranger) = (gateway.key.clone(), gateway.stranger());
    let mut ids = Vec::new();
    for turn in 0..12 {
        let body = json!({"model": "m", "input": format!("turn {turn}")}).to_string();
        let answer = ask_as(&gateway, &own, "POST", "/v1/responses", &body);
        ids.push(answer.json()["id"].as_str().expect("an id").to_owned());
    }
    let spent = gateway.settled()["spent"].clone();
    for (turn, id) in ids.iter().enumerate() {
        let path = format!("/v1/responses/{id}");
        let read = ask_as(&gateway, &own, "GET", &path, "");
        assert_eq!((read.status(), &read.json()["id"]), (200, &json!(id)), "{read:?}");
        let made = sim.requests().into_iter().find(|request| {
            let body = String::from_utf8_lossy(request.body.as_deref().unwrap_or_default());
            request.path.ends_with("/responses") && body.contains(&format!("turn {turn}\""))
        });
        let made = made.and_then(|made| made.header("authorization").map(str::to_owned));
        assert_eq!(keys_used(&sim, &path), [made.expect("a credential")], "whoever made it");
        let items = ask_as(&gateway, &own, "GET", &format!("{path}/input_items?limit=1"), "");
        assert_eq!(items.json()["data"][0]["content"], format!("turn {turn}"), "{items:?}");
        let cancelled = ask_as(&gateway, &own, "POST", &format!("{path}/cancel"), "");
        let reply = cancelled.json()["error"]["message"].clone();
        assert_eq!(
            (cancelled.status(), reply),
            (400, json!("Cannot cancel a synchronous response."))
        );
    }
    let used = keys_used(&sim, "/v1/responses/");
    assert!(
        ["Bearer sk-one", "Bearer sk-two"].iter().all(|key| used.iter().any(|used| used == key))
    );
    assert_eq!(gateway.settled()["spent"], spent, "it costs nothing");

    // What is another's is as unknown as what is nobody's, and no upstream is asked.
    let before = sim.requests_total();
    for (method, below) in
        [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]
    {
        let answers = [&ids[0], "resp_sim_none"].map(|id| {
            let path = format!("/v1/responses/{id}{below}");
            let answer = ask_as(&gateway, &stranger, method, &path, "");
            (answer.status(), answer.json().to_string().replace(id, "ID"))
        });
        assert_eq!(answers[0].0, 404, "{method} {below}: {answers:?}");
        let shown = answers.clone().map(|(status, body)| (status, without_id(&body)));
        assert_eq!(shown[0], shown[1], "{method} {below}");
    }
    assert_eq!(sim.requests_total(), before);
    let unnamed = ask_as(&gateway, "sk-wrong", "GET", &format!("/v1/responses/{}", ids[0]), "");
    assert_eq!(unnamed.status(), 401);

    let path = format!("/v1/responses/{}", ids[0]);
    let deleted = ask_as(&gateway, &own, "DELETE", &path, "");
    assert_eq!((deleted.status(), &deleted.json()["deleted"]), (200, &json!(true)), "{deleted:?}");
    assert_eq!(ask_as(&gateway, &own, "GET", &path, "").status(), 404, "it is gone");
    for (method, path, status) in [
        ("PUT", path.clone(), 405),
        ("POST", format!("{path}/input_items"), 405),
        ("GET", format!("{path}/cancel"), 405),
        ("GET", format!("{path}?stream=true"), 400),
        ("GET", format!("{path}/other"), 404),
    ] {
        let answer = ask_as(&gateway, &own, method, &path, "");
        assert_eq!(answer.status(), status, "{method} {path}: {answer:?}");
    }
}

/// The body of an error without the id of its request.
fn without_id(body: &str) -> Value {
    let mut body: Value = serde_json::from_str(body).expect("JSON");
    if let Some(fields) = body["error"].as_object_mut() {
        fields.remove("request_id");
    }
    body
}

#[test]
fn a_conversation_is_summed_up_for_what_that_used_and_nowhere_else_than_at_its_provider() {
    let sim = simulator(&["usage=prompt=1000,cached=400,completion=20"]);
    let gateway = storing(&sim);
    let key = gateway.key.clone();
    let item = json!({"role": "user", "content": "hi"});
    let tools = json!([{"type": "function", "name": "f", "parameters": {}}]);
    let body = json!({"model": "m", "input": [item], "instructions": "Be brief.", "tools": tools});
    let answer = ask_as(&gateway, &key, "POST", "/v1/responses/compact", &body.to_string());
    assert_eq!(answer.status(), 200, "{answer:?}");
    let compacted = answer.json();
    assert_eq!(compacted["object"], "response.compaction", "{compacted}");
    // $3 a million for input, $0.30 for what was cached, $15 for output.
    assert_eq!(gateway.settled()["spent"], "0.00222");
    // The next request begins with it.
    let next = json!({"model": "m", "input": [compacted["output"][0], item]}).to_string();
    let answer = ask_as(&gateway, &key, "POST", "/v1/responses", &next);
    assert_eq!(answer.status(), 200, "{answer:?}");

    let (before, spent) = (sim.requests_total(), gateway.settled()["spent"].clone());
    for (field, value, says) in [
        ("model", json!("claude"), "is not translated"),
        ("stream", json!(true), "`stream`"),
        ("previous_response_id", json!("resp_of_another"), "no response"),
    ] {
        let mut body = json!({"model": "m", "input": "hi"});
        body[field] = value;
        let answer = ask_as(&gateway, &key, "POST", "/v1/responses/compact", &body.to_string());
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status(), &error["param"]), (400, &json!(field)), "{answer:?}");
        assert!(
            error["message"].as_str().is_some_and(|text_found| text_found.contains(says)),
            "{error}"
        );
    }
    assert_eq!((sim.requests_total(), gateway.settled()["spent"].clone()), (before, spent));
}

#[test]
fn input_tokens_are_counted_for_nothing_by_the_upstream_or_here() {
    let sim = simulator(&["usage=prompt=1000,cached=400,completion=20"]);
    let gateway = storing(&sim);
    let key = gateway.key.clone();
    let path = "/v1/responses/input_tokens";
    let count = |model: &str| {
        let body = json!({"model": model, "instructions": "Be brief.", "input": "hi there"});
        let answer = ask_as(&gateway, &key, "POST", path, &body.to_string());
        assert_eq!(answer.status(), 200, "{model}: {answer:?}");
        let counted = answer.json();
        assert_eq!(counted["object"], "response.input_tokens", "{model}: {counted}");
        counted["input_tokens"].as_u64().expect("a number")
    };
    assert_eq!(count("m"), 1000, "the upstream says so");
    let request_count = sim.requests_total();
    assert!((5..100).contains(&count("claude")), "an estimate");
    assert_eq!(sim.requests_total(), request_count, "nobody was asked");
    assert_eq!(gateway.settled()["spent"], "0.00");
    let wrong = json!({"model": "m", "Input": "hi"}).to_string();
    assert_eq!(ask_as(&gateway, &key, "POST", path, &wrong).status(), 400);
}

/// A gateway with a model that has a price for searches, and one that leaves requests as they are.
fn searching(recorder: &Recorder) -> Gateway {
    let at = recorder.address;
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{at}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{at}' }}\n"
    );
    let model = |name: &str, operation: &str, upstream: &str, more: &str| {
        format!(
            "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 3, output_per_1m_tokens: 15, per_1k_web_searches: 10 }}
    limits: {{ context_tokens_max: 1000000, output_tokens_max: 1000 }}\n{more}"
        )
    };
    let models = [
        model("gpt", "responses", "o", ""),
        model("claude", "messages", "a", "    searches_max: 3\n"),
        model("untouched", "responses", "o", "    searches_max: 0\n"),
    ];
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

#[test]
fn a_search_without_a_limit_gets_one_and_all_else_goes_as_it_was_sent() {
    let recorder = Recorder::start();
    let gateway = searching(&recorder);
    let key = gateway.key.clone();
    let responses = |model: &str, more: &str| {
        format!(
            r#"{{"model":"{model}" , "input":"h\u0069", "tools":[{{"type":"web_search","external_web_access":true}}]{more}}}"#
        )
    };
    let messages = |more: &str| {
        format!(
            r#"{{"model":"claude","max_tokens":9,"messages":[{{"role":"user","content":"hi"}}],"tools":[{{"type":"web_search_20250305","name":"web_search"{more}}}]}}"#
        )
    };
    for (path, sent, expected) in [
        ("/v1/responses", responses("gpt", ""), Some(responses("gpt", r#","max_tool_calls":5"#))),
        ("/v1/responses", responses("gpt", r#","max_tool_calls":2"#), None),
        ("/v1/messages", messages(""), Some(messages(r#","max_uses":3"#))),
        ("/v1/messages", messages(r#","max_uses":8"#), None),
    ] {
        ask_as(&gateway, &key, "POST", path, &sent);
        let body = recorder.requests().pop().expect("it went upstream").body;
        let expected = expected.unwrap_or(sent);
        assert_eq!(String::from_utf8_lossy(&body), expected);
    }
    let request_count = recorder.requests().len();
    let answer = ask_as(&gateway, &key, "POST", "/v1/responses", &responses("untouched", ""));
    // Ten contexts are $30.
    assert_eq!(answer.status(), 402, "{answer:?}");
    assert_eq!(recorder.requests().len(), request_count);
}

#[test]
fn a_prompt_in_escapes_is_as_long_as_in_letters() {
    let sim = simulator(&["usage=prompt=1000,completion=20"]);
    let gateway = storing(&sim);
    let key = gateway.key.clone();
    let text = "Привет! ".repeat(15_000);
    let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    for text in [text.as_str(), &escaped] {
        let body = format!("{{\n  \"model\": \"m\",\n  \"input\": \"{text}\"\n}}");
        let answer = ask_as(&gateway, &key, "POST", "/v1/responses", &body);
        assert_eq!(answer.status(), 200, "{} bytes: {answer:?}", body.len());
    }
    let mut counts = Vec::new();
    for text in [text.as_str(), &escaped] {
        let body = format!(r#"{{"model":"claude","input":"{text}"}}"#);
        let answer = ask_as(&gateway, &key, "POST", "/v1/responses/input_tokens", &body);
        counts.push(answer.json()["input_tokens"].as_u64().expect("a count"));
    }
    assert_eq!(counts[0], counts[1]);
}
