//! Prompts that a provider's free counter counts, where their bytes do not fit the account.

use std::io::Write as _;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::protocols::Dialect;
use tollgate::protocols::counter::Counter;
use tollgate::sim::Sim;

use crate::harness::{Answer, Gateway, Recorded, Responder, ask, connect, simulator};

/// A prompt of 100,000 bytes and 25,000 tokens, as the simulator counts.
fn prompt() -> String {
    "word ".repeat(20_000)
}

/// A gateway whose account has $10, over a simulated provider of every dialect. A million tokens cost
/// `price` dollars.
fn gateway(sim: &Sim, price: u32, timeout: &str) -> Gateway {
    let up = sim.addr();
    let upstreams = format!(
        "  a: {{ protocol: anthropic, base_url: 'http://{up}' }}
  o: {{ protocol: openai, base_url: 'http://{up}/v1' }}
  g: {{ protocol: gemini, base_url: 'http://{up}/v1beta' }}
holds: {{ means: [count], count_timeout: {timeout} }}\n"
    );
    let model = |name: &str, operations: &str, upstream: &str| {
        format!(
            "  {name}:
    operations: [{operations}]
    targets: [{{ upstream: {upstream}, model: real-{name} }}]
    prices: {{ input_per_1m_tokens: {price}, output_per_1m_tokens: {price} }}
    limits: {{ context_tokens_max: 200000, output_tokens_max: 1000 }}
    reasoning: false\n"
        )
    };
    let models = [
        model("claude", "messages", "a"),
        model("gpt", "responses, chat", "o"),
        model("old", "chat", "o"),
        model("gemini", "generate_content", "g"),
    ];
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

fn post(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let lines = format!("Anthropic-Version: 2023-06-01\r\nContent-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post(path, &lines, body))
}

fn messages(text: &str) -> Value {
    json!({"model": "claude", "max_tokens": 100, "stream": false, "temperature": 1.0,
        "messages": [{"role": "user", "content": text}]})
}

/// The paths and bodies of what the provider got.
fn received(sim: &Sim) -> Vec<(String, Value)> {
    let read = |body: &[u8]| serde_json::from_slice(body).unwrap_or_default();
    let all = sim.requests().into_iter();
    all.map(|one| (one.path, read(&one.body.unwrap_or_default()))).collect()
}

fn counted(gateway: &Gateway, outcome: &str) -> u64 {
    let series = format!("tollgate_token_counts_total{{outcome=\"{outcome}\"}} ");
    let metrics = gateway.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.expect("there from the start").parse().expect("a number")
}

fn dollars(balance: &Value, field: &str) -> f64 {
    balance[field].as_str().expect(field).parse().expect("dollars")
}

/// Each dialect's prompt is 100,000 bytes, which are $15, and 25,000 tokens, which are $3.75.
#[test]
fn a_prompt_whose_bytes_do_not_fit_is_counted_and_served_in_every_dialect() {
    let text = prompt();
    for (path, body, counter, paid) in [
        ("/v1/messages", messages(&text), "/v1/messages/count_tokens", "/v1/messages"),
        (
            "/v1/responses",
            json!({"model": "gpt", "input": text, "max_output_tokens": 100, "store": false}),
            "/v1/responses/input_tokens",
            "/v1/responses",
        ),
        (
            "/v1/chat/completions",
            json!({"model": "gpt", "max_tokens": 100, "stop": "x",
                "messages": [{"role": "user", "content": text}]}),
            "/v1/responses/input_tokens",
            "/v1/chat/completions",
        ),
        (
            "/v1beta/models/gemini:generateContent",
            json!({"contents": [{"role": "user", "parts": [{"text": text}]}],
                "generationConfig": {"maxOutputTokens": 100}}),
            "/v1beta/models/real-gemini:countTokens",
            "/v1beta/models/real-gemini:generateContent",
        ),
    ] {
        let sim = simulator(&["strict=on"]);
        let gateway = gateway(&sim, 150, "2s");
        let answer = post(&gateway, path, &body);
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        let received = received(&sim);
        let paths: Vec<&str> = received.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, [counter, paid], "{path}");
        let spent = dollars(&gateway.settled(), "spent");
        assert!((3.74..3.78).contains(&spent), "{path}: {spent}");
        assert_eq!(counted(&gateway, "counted"), 1, "{path}");
    }
}

#[test]
fn the_same_prompt_is_counted_once_and_an_account_with_plenty_never_asks() {
    let sim = simulator(&["strict=on"]);
    let gateway = gateway(&sim, 150, "2s");
    for _ in 0..2 {
        assert_eq!(post(&gateway, "/v1/messages", &messages(&prompt())).status(), 200);
        gateway.settled();
    }
    assert_eq!((counted(&gateway, "counted"), counted(&gateway, "cached")), (1, 1));
    gateway.grant("1000.00", "plenty");
    assert_eq!(post(&gateway, "/v1/messages", &messages(&prompt())).status(), 200);
    let counts = received(&sim).iter().filter(|(path, _)| path.ends_with("count_tokens")).count();
    assert_eq!(counts, 1);
}

/// A fallback has another tokenizer: one that could cost more than what was counted is given up, and one
/// that could not stays.
#[test]
fn a_fallback_that_nobody_has_counted_stays_where_it_costs_no_more() {
    let sim = simulator(&[]);
    let counts_alone = Responder::start(|_, request: &Recorded| {
        let json = "content-type: application/json\r\n".to_owned();
        let is_count = request.head.starts_with("POST /v1/messages/count_tokens ");
        match is_count {
            true => (200, json, r#"{"input_tokens":25000}"#.to_owned()),
            false => (500, json, r#"{"type":"error","error":{"type":"api_error"}}"#.to_owned()),
        }
    });
    let (good, bad) = (sim.addr(), counts_alone.address);
    for (fallback, price, status) in [("dear", 100, 500), ("cheap", 2, 200)] {
        let upstreams = format!(
            "  a: {{ protocol: anthropic, base_url: 'http://{bad}' }}
  b: {{ protocol: anthropic, base_url: 'http://{good}' }}
holds: {{ means: [count] }}\n"
        );
        let models = format!(
            "models:
  claude:
    operations: [messages]
    targets: [{{ upstream: a }}]
    fallbacks: [{fallback}]
    prices: {{ input_per_1m_tokens: 150, output_per_1m_tokens: 150 }}
    limits: {{ context_tokens_max: 200000, output_tokens_max: 1000 }}
  {fallback}:
    operations: [messages]
    targets: [{{ upstream: b }}]
    prices: {{ input_per_1m_tokens: {price}, output_per_1m_tokens: 150 }}
    limits: {{ context_tokens_max: 200000, output_tokens_max: 1000 }}\n"
        );
        let gateway = Gateway::serving(&upstreams, &models);
        let answer = post(&gateway, "/v1/messages", &messages(&prompt()));
        assert_eq!(answer.status(), status, "{fallback}: {answer:?}");
        assert_eq!(counted(&gateway, "counted"), 1, "{fallback}");
    }
}

/// A model that is sold over chat completions alone has no counter.
#[test]
fn without_a_counter_the_bytes_are_held_as_before() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, 150, "2s");
    let body = json!({"model": "old", "max_tokens": 100,
        "messages": [{"role": "user", "content": prompt()}]});
    let answer = post(&gateway, "/v1/chat/completions", &body);
    assert_eq!(answer.status(), 402, "{answer:?}");
    assert_eq!(counted(&gateway, "unsupported"), 1);
    assert!(received(&sim).is_empty());
}

/// Whatever is wrong with a counter, the request is refused as without one, and the paid path of the
/// same upstream is as open as before.
#[test]
fn a_counter_that_fails_says_nothing_of_paid_calls() {
    for (fault, outcome, counted_again) in [
        ("count-fault=status=404", "unsupported", false),
        ("count-fault=status=429", "refused", false),
        ("count-fault=status=400", "refused", true),
        ("count-fault=status=500", "failed", false),
        ("count-fault=garbage", "failed", false),
        ("count-fault=reset", "failed", false),
        ("count-fault=hang", "timed_out", false),
        ("count-percent=0", "failed", false),
    ] {
        let sim = simulator(&[fault]);
        let gateway = gateway(&sim, 150, "300ms");
        for _ in 0..2 {
            let answer = post(&gateway, "/v1/messages", &messages(&prompt()));
            assert_eq!(answer.status(), 402, "{fault}: {answer:?}");
        }
        let request = counted(&gateway, outcome);
        assert!(request >= 1, "{fault}");
        let counts = received(&sim).len();
        let most = if counted_again { 2 } else { 1 };
        assert!(counts <= most, "{fault}: asked {counts} times");
        // Every account's paid calls go on: nothing of it is a failure of the upstream.
        let text = "hi ".repeat(10);
        assert_eq!(post(&gateway, "/v1/messages", &messages(&text)).status(), 200, "{fault}");
        let circuits = gateway.metrics();
        let is_open =
            |line: &&str| line.starts_with("tollgate_circuit_state") && !line.ends_with(" 0");
        assert_eq!(circuits.lines().find(is_open), None, "{fault}");
        let tries = "tollgate_upstream_requests_total{outcome=\"ok\",upstream=\"a\"} 1";
        assert!(circuits.contains(tries), "{fault}: counts are none of the tries");
    }
}

/// A bill above a count that was too low is charged from the balance, and the rest is debt, as for any hold
/// that was too low.
#[test]
fn a_counter_that_lies_costs_debt_at_most() {
    let sim = simulator(&["count-percent=50"]);
    let gateway = gateway(&sim, 600, "2s");
    let answer = post(&gateway, "/v1/messages", &messages(&prompt()));
    assert_eq!(answer.status(), 200, "12,500 tokens and the margin are $7.69: {answer:?}");
    let balance = gateway.settled();
    assert_eq!(balance["available"], "0.00", "{balance}");
    let debt = dollars(&balance, "debt");
    assert!((5.0..5.1).contains(&debt), "$15 were billed: {balance}");
    let refused = post(&gateway, "/v1/messages", &messages("hi"));
    assert_eq!(refused.status(), 402, "who owes buys nothing: {refused:?}");
}

#[test]
fn a_customer_who_leaves_cancels_the_count_at_once() {
    let sim = simulator(&["count-delay-ms=20000"]);
    let gateway = gateway(&sim, 150, "30s");
    let body = messages(&prompt()).to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let mut stream = connect(gateway.address);
    stream.write_all(&gateway.post("/v1/messages", &lines, body)).expect("sent");
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        crate::harness::within(Duration::from_secs(5), is_so, || what.to_owned());
    };
    until("the counter is asked", &|| sim.requests_in_flight() == 1 && sim.requests_total() == 1);
    drop(stream);
    until("the call to the counter is cut", &|| sim.requests_in_flight() == 0);
    assert_eq!(gateway.settled()["spent"], "0.00");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The simulator's bill fits its own count plus the margin; otherwise the tests above would show nothing.
    #[test]
    fn a_simulated_bill_fits_its_simulated_count(
        text in "[a-z \u{4e00}-\u{4e20}\n\"]{0,400}",
        tools in 0..4_usize,
        user in "[a-z]{0,250}",
    ) {
        let sim = simulator(&["strict=on"]);
        let ask = |path: &str, body: &[u8]| -> Value {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: sim\r\nAnthropic-Version: 2023-06-01\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            ask(sim.addr(), &[head.as_bytes(), body].concat()).json()
        };
        let schema = json!({"type": "object", "properties": {}});
        let named = |at: usize| format!("tool_{at}");
        let (anthropic, openai): (Vec<Value>, Vec<Value>) = (0..tools)
            .map(|at| {
                (
                    json!({"name": named(at), "input_schema": schema}),
                    json!({"type": "function", "name": named(at), "parameters": schema}),
                )
            })
            .unzip();
        let text = format!("x{text}");
        for (counter, dialect, paths, body, billed) in [
            (
                Counter::Messages,
                Dialect::Anthropic,
                ["/v1/messages/count_tokens", "/v1/messages"],
                json!({"model": "m", "max_tokens": 9, "metadata": {"user_id": user},
                    "tools": anthropic, "messages": [{"role": "user", "content": text}]}),
                "/usage/input_tokens",
            ),
            (
                Counter::Responses,
                Dialect::Openai,
                ["/v1/responses/input_tokens", "/v1/responses"],
                json!({"model": "m", "max_output_tokens": 16, "metadata": {"user_id": user},
                    "tools": openai, "input": text}),
                "/usage/input_tokens",
            ),
            (
                Counter::Content,
                Dialect::Gemini,
                ["/v1beta/models/m:countTokens", "/v1beta/models/m:generateContent"],
                json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}),
                "/usageMetadata/promptTokenCount",
            ),
        ] {
            let body: bytes::Bytes = body.to_string().into();
            let query = counter.request(dialect, "m", &body).expect("countable").into_whole();
            let answer = ask(paths[0], &query).to_string();
            let count = counter.read(answer.as_bytes());
            let count = count.unwrap_or_else(|| panic!("{counter:?}: {answer}"));
            let paid = ask(paths[1], &body);
            let billed = paid.pointer(billed).and_then(Value::as_u64);
            let billed = billed.unwrap_or_else(|| panic!("{counter:?}: {paid}"));
            prop_assert!(billed <= count + count / 50 + 64, "{:?}: {} > {}", counter, billed, count);
            prop_assert!(count < body.len() as u64, "a count is below the bytes");
        }
    }
}
