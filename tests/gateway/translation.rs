//! Customers of one dialect over upstreams of another: every cell of docs/translation.md that is
//! translated, JSON and streamed, on the wire and in the ledger.
//!
//! Each model is at a simulated upstream that speaks one dialect. It costs $3 for a million tokens of
//! input, $0.30 where a cache has read them, and $15 for a million of output: so many nano-dollars a
//! token as `price` says.

use serde_json::{Value, json};

use crate::harness::{Answer, Gateway, Recorder, ask, simulator};

mod bedrock;
mod betas;
mod codecs;
mod documents;
mod harmless;
mod hostile;
mod names;
mod prefix;
mod settling;
mod streams;
mod wire;

use wire::Customer;

/// The simulator's reported usage unless a test sets another.
const USAGE: &str = "usage=prompt=1000,cached=400,completion=20,reasoning=7";

/// A model at `upstream`, for `operation`.
fn model(name: &str, operation: &str, upstream: &str, more: &str) -> String {
    format!(
        "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 3, cached_input_per_1m_tokens: 0.30, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
{more}"
    )
}

/// The models of all dialects at upstreams below `address`, whose paths begin with `prefix`.
fn gateway(address: std::net::SocketAddr, prefix: &str, more: &str) -> Gateway {
    gateway_with("", address, prefix, more)
}

/// The same with lines of `limits`.
fn gateway_with(limits: &str, address: std::net::SocketAddr, prefix: &str, more: &str) -> Gateway {
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{address}{prefix}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{address}{prefix}' }}
  b: {{ protocol: bedrock, base_url: 'http://{address}{prefix}' }}
  g: {{ protocol: gemini, base_url: 'http://{address}{prefix}/v1beta' }}
  v: {{ protocol: vertex, base_url: 'http://{address}{prefix}/v1/publishers/google' }}\n"
    );
    let models = [
        model("on-chat", "chat", "o", more),
        model("on-messages", "messages", "a", more),
        model("on-responses", "responses", "o", more),
        model("on-converse", "chat", "b", more),
        model("on-gemini", "generate_content", "g", more),
        model("on-vertex", "generate_content", "v", more),
    ];
    Gateway::limited(limits, &upstreams, &format!("models:\n{}", models.concat()))
}

/// Every pair that is translated.
const CELLS: [(Customer, &str); 17] = [
    (Customer::Chat, "on-messages"),
    (Customer::Chat, "on-responses"),
    (Customer::Messages, "on-chat"),
    (Customer::Messages, "on-responses"),
    (Customer::Responses, "on-chat"),
    (Customer::Responses, "on-messages"),
    (Customer::Chat, "on-converse"),
    (Customer::Messages, "on-converse"),
    (Customer::Responses, "on-converse"),
    (Customer::Chat, "on-gemini"),
    (Customer::Messages, "on-gemini"),
    (Customer::Responses, "on-gemini"),
    (Customer::Chat, "on-vertex"),
    (Customer::Gemini, "on-chat"),
    (Customer::Gemini, "on-messages"),
    (Customer::Gemini, "on-responses"),
    (Customer::Gemini, "on-converse"),
];

/// The pairs of chat completions, messages and responses: whose upstreams have customers of their own, so
/// that there is a call to compare with, and whose requests tests can write by hand.
fn cells_with_natives() -> impl Iterator<Item = (Customer, &'static str)> {
    let own = ["on-chat", "on-messages", "on-responses"];
    CELLS
        .into_iter()
        .filter(move |(customer, model)| *customer != Customer::Gemini && own.contains(model))
}

fn call(gateway: &Gateway, customer: Customer, body: &Value) -> Answer {
    let (path, body) = customer.request(body);
    let lines = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post(&path, &lines, &body))
}

/// Spent amount in nano-dollars.
fn spent(gateway: &Gateway) -> u64 {
    let text = gateway.settled()["spent"].as_str().expect("an amount").to_owned();
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{decimals:0<9}").parse().expect("nano-dollars")
}

#[test]
fn what_the_customer_reads_as_usage_is_what_is_charged() {
    let sim = simulator(&[USAGE]);
    for (customer, model) in CELLS {
        for stream in [false, true] {
            let gateway = gateway(sim.addr(), "", "");
            let answer = call(&gateway, customer, &customer.body(model, stream));
            assert_eq!(answer.status(), 200, "{customer:?} {model} {stream}: {answer:?}");
            let read = customer.read(&answer, stream);
            let usage = &read.usage;
            // Anthropic's input and Bedrock's leave out what a cache has read.
            let is_disjoint = ["on-messages", "on-converse"].contains(&model);
            let input = if is_disjoint { 1000 } else { 600 };
            assert_eq!((usage.input, usage.cache_read, usage.output), (input, 400, 20), "{read:?}");
            let price = usage.input * 3_000 + usage.cache_read * 300 + usage.output * 15_000;
            assert_eq!(spent(&gateway), price, "{customer:?} {model} {stream}");
            assert!(!read.text.is_empty() && read.stop == "done", "{read:?} {answer:?}");
            assert_eq!(answer.header("x-tollgate-left-out"), None, "{answer:?}");
        }
    }
}

#[test]
fn the_text_of_a_stream_is_that_of_the_document() {
    let sim = simulator(&["chunks=40"]);
    let gateway = gateway(sim.addr(), "", "");
    for (customer, model) in CELLS {
        let texts = [false, true].map(|stream| {
            let answer = call(&gateway, customer, &customer.body(model, stream));
            customer.read(&answer, stream).text
        });
        assert_eq!(texts[0], texts[1], "{customer:?} {model}");
    }
}

#[test]
fn agents_finish_their_tool_loops() {
    let sim = simulator(&[]);
    let gateway = gateway(sim.addr(), "", "");
    for (customer, model) in CELLS {
        for stream in [false, true] {
            let mut body = customer.body(model, stream);
            customer.add_tool(&mut body);
            for turn in 0..3 {
                let answer = call(&gateway, customer, &body);
                assert_eq!(answer.status(), 200, "{customer:?} {model} {turn}: {answer:?}");
                let read = customer.read(&answer, stream);
                let [called] = &read.calls[..] else { panic!("one call: {read:?} {answer:?}") };
                assert_eq!((called.name.as_str(), read.stop.as_str()), ("weather", "tools"));
                let input: Value = serde_json::from_str(&called.input).expect("JSON");
                assert_eq!(input, json!({"city": "sample"}), "{customer:?} {model}");
                customer.add_result(&mut body, called);
                let answer = call(&gateway, customer, &body);
                let read = customer.read(&answer, stream);
                assert!(read.calls.is_empty() && !read.text.is_empty(), "{read:?} {answer:?}");
                customer.add_turn(&mut body, &read.text);
            }
        }
    }
}

#[test]
fn refusals_come_in_the_customers_envelope() {
    let sim = simulator(&[]);
    for (customer, model) in CELLS {
        for (fault, status) in [("status=400", 400), ("status=500", 502), ("status=429", 429)] {
            for stream in [false, true] {
                let gateway = gateway(sim.addr(), &format!("/sim:fault={fault}"), "");
                let answer = call(&gateway, customer, &customer.body(model, stream));
                let what = format!("{customer:?} {model} {fault} {stream}: {answer:?}");
                assert_eq!(answer.status(), status, "{what}");
                customer.check_error(&answer.json(), &what);
                assert_eq!(spent(&gateway), 0, "{what}");
            }
        }
    }
}

#[test]
fn a_stream_that_breaks_says_so_and_what_was_delivered_is_charged() {
    let sim = simulator(&[]);
    for (customer, model) in CELLS {
        for fault in ["cut-after=3", "eof-after=3", "error-after=3"] {
            let gateway = gateway(sim.addr(), &format!("/sim:fault={fault}"), "");
            let answer = call(&gateway, customer, &customer.body(model, true));
            let what = format!("{customer:?} {model} {fault}: {answer:?}");
            assert_eq!(answer.status(), 200, "{what}");
            customer.check_broken(&answer, &what);
            assert!(spent(&gateway) > 0 || fault.starts_with("error"), "{what}");
        }
    }
}

#[test]
fn garbage_is_no_answer() {
    let sim = simulator(&[]);
    for (customer, model) in CELLS {
        for stream in [false, true] {
            let gateway = gateway(sim.addr(), "/sim:fault=garbage", "");
            let answer = call(&gateway, customer, &customer.body(model, stream));
            let what = format!("{customer:?} {model} {stream}: {answer:?}");
            match stream {
                // The head of a stream does not wait for its body.
                true => customer.check_broken(&answer, &what),
                false => {
                    assert_eq!(answer.status(), 502, "{what}");
                    customer.check_error(&answer.json(), &what);
                }
            }
        }
    }
}

#[test]
fn awkward_streams_lose_nothing() {
    let sim = simulator(&[]);
    for (customer, model) in CELLS {
        let plain = gateway(sim.addr(), "/sim:chunks=12", "");
        let whole = customer.read(&call(&plain, customer, &customer.body(model, true)), true);
        for fault in ["split", "crlf", "cr", "comments", "done-missing"] {
            let gateway = gateway(sim.addr(), &format!("/sim:chunks=12;fault={fault}"), "");
            let answer = call(&gateway, customer, &customer.body(model, true));
            let read = customer.read(&answer, true);
            assert_eq!(read.text, whole.text, "{customer:?} {model} {fault}: {answer:?}");
            assert_eq!(read.usage, whole.usage, "{customer:?} {model} {fault}: {answer:?}");
        }
    }
}

#[test]
fn hints_are_named_or_refused_and_what_has_meaning_is_never_dropped() {
    let recorder = Recorder::start();
    let lenient = gateway(recorder.address, "", "");
    let strict = gateway(recorder.address, "", "    translation: strict\n");
    let off = gateway(recorder.address, "", "    translation: off\n");
    let mut body = Customer::Chat.body("on-messages", false);
    body["seed"] = json!(7);
    let answer = call(&lenient, Customer::Chat, &body);
    assert_eq!(answer.header("x-tollgate-left-out").as_deref(), Some("seed"), "{answer:?}");
    let sent = recorder.requests().pop().expect("a request");
    assert!(sent.head.contains("anthropic-version: 2023-06-01\r\n"), "{}", sent.head);
    assert!(!String::from_utf8_lossy(&sent.body).contains("seed"), "{sent:?}");
    let answer = call(&strict, Customer::Chat, &body);
    assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("seed")));
    let answer = call(&off, Customer::Chat, &body);
    assert_eq!(answer.status(), 400, "{answer:?}");
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("cannot be used for chat"), "{message}");
    for (field, value) in [
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("service_tier", json!("priority")),
        ("response_format", json!({"type": "json_object"})),
        ("audio", json!({"voice": "a", "format": "wav"})),
        ("something_new", json!(1)),
    ] {
        let mut body = Customer::Chat.body("on-messages", false);
        body[field] = value;
        let answer = call(&lenient, Customer::Chat, &body);
        let what = format!("{field}: {answer:?}");
        assert_eq!(answer.status(), 400, "{what}");
        let param = answer.json()["error"]["param"].clone();
        assert!(param.as_str().is_some_and(|param| param.starts_with(field)), "{what}");
    }
    assert_eq!(recorder.requests().len(), 1, "nothing else went upstream");
}

#[test]
fn tokens_are_counted_here_for_upstreams_that_cannot() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    let body = json!({"model": "on-chat", "messages": [{"role": "user", "content": "hi there"}]});
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/messages/count_tokens", &lines, &body));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(answer.json()["input_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{answer:?}");
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"hi there"}]}]}"#;
    let lines = format!("Content-Length: {}\r\n", body.len());
    for model in ["on-chat", "on-messages", "on-responses"] {
        let path = format!("/v1beta/models/{model}:countTokens");
        let answer = ask(gateway.address, &gateway.post(&path, &lines, body));
        assert_eq!(answer.status(), 200, "{model}: {answer:?}");
        let tokens = answer.json()["totalTokens"].as_u64();
        assert!(tokens.is_some_and(|tokens| tokens > 0), "{model}: {answer:?}");
    }
    assert!(recorder.requests().is_empty(), "no upstream is asked");
    assert_eq!(spent(&gateway), 0);
}

#[test]
fn a_target_that_speaks_the_customers_dialect_is_preferred() {
    let recorder = Recorder::start();
    let address = recorder.address;
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{address}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{address}' }}\n"
    );
    let both = "  both:
    operations: [chat, messages]
    targets: [{ upstream: a }, { upstream: o }]
    prices: { input_per_1m_tokens: 3, output_per_1m_tokens: 15 }
    limits: { context_tokens_max: 100000, output_tokens_max: 1000 }
";
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{both}"));
    for _ in 0..10 {
        let body = r#"{"model":"both",  "messages":[{"role":"user","content":"hi"}]}"#;
        let answer = ask(gateway.address, &gateway.chat_json(body));
        assert_eq!(answer.status(), 200, "{answer:?}");
        let sent = recorder.requests().pop().expect("a request");
        assert_eq!(sent.body, body.as_bytes(), "byte for byte");
    }
}
