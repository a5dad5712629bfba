//! Models that serve requests for another one: held at the dearest, charged at what served, and named in
//! a header.
//!
//! `cheap` is at a failing upstream, and `dear` costs ten times as much at one that works. The recorder
//! answers each call with 5 tokens of input and 1 of output: $0.000015 of `cheap`, $0.00015 of `dear`.

mod bills;

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollgate::sim::Behaviour;

use crate::harness::{Answer, Gateway, Recorder, ask, simulator};

const NAMED: &str = "x-tollgate-model";
const DEAR: &str = "{ input_per_1m_tokens: 10, output_per_1m_tokens: 100 }";
const CHEAP: &str = "{ input_per_1m_tokens: 1, output_per_1m_tokens: 10 }";

/// A chat model in `models.yaml`; `more` has further fields.
fn model(name: &str, upstream: &str, prices: &str, more: &str) -> String {
    format!(
        "  {name}:
    operations: [chat]
    targets: [{{ upstream: {upstream}, model: {name}-there }}]
    prices: {prices}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
    reasoning: false
{more}"
    )
}

fn upstream(name: &str, address: SocketAddr, prefix: &str, more: &str) -> String {
    format!(
        "  {name}: {{ protocol: openai, base_url: 'http://{address}{prefix}/v1', \
         timeouts: {{ connect: 1s, read: 300ms }}{more} }}\n"
    )
}

fn serve(upstreams: &[String], models: &[String]) -> Gateway {
    Gateway::serving(&upstreams.concat(), &format!("models:\n{}", models.concat()))
}

/// A gateway with `cheap`, which falls back to `dear`; `alone`, which is like `cheap` without that; and
/// `dear`.
fn gateway(bad: (SocketAddr, &str), good: SocketAddr, bad_more: &str) -> Gateway {
    let upstreams = [upstream("bad", bad.0, bad.1, bad_more), upstream("good", good, "", "")];
    let models = [
        model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n"),
        model("alone", "bad", CHEAP, ""),
        model("dear", "good", DEAR, ""),
    ];
    serve(&upstreams, &models)
}

fn body(model: &str, more: Value) -> Vec<u8> {
    let mut body =
        json!({"model": model, "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body.to_string().into_bytes()
}

fn chat(gateway: &Gateway, model: &str, more: Value) -> Answer {
    ask(gateway.address, &gateway.chat_json(body(model, more)))
}

fn nothing() -> Value {
    json!({})
}

fn dollars(text: &Value) -> f64 {
    text.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no money: {text}"))
}

/// A port at which nobody listens.
fn closed_port() -> SocketAddr {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    unused.local_addr().expect("an address")
}

#[test]
fn another_model_serves_what_no_target_can_and_is_charged_at_its_own_price() {
    let faults = ["fault=status=500", "fault=status=503", "fault=status=401", "fault=status=429"];
    let sim = simulator(&[]);
    let failing = faults.map(|fault| (sim.addr(), format!("/sim:{fault}")));
    let failing = failing.into_iter().chain([(closed_port(), String::new())]);
    for (address, prefix) in failing {
        let recorder = Recorder::start();
        let gateway = gateway((address, &prefix), recorder.address, "");
        let answer = chat(&gateway, "cheap", nothing());
        assert_eq!(answer.status(), 200, "{prefix}: {answer:?}");
        assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{prefix}: {answer:?}");
        assert_eq!(gateway.settled()["spent"], "0.00015", "{prefix}: the price of `dear`");
        let sent = recorder.requests();
        assert_eq!(sent.len(), 1, "{prefix}");
        let request = String::from_utf8(body("cheap", nothing())).expect("text");
        let renamed = request.replace(r#""cheap""#, r#""dear-there""#);
        assert_eq!(String::from_utf8_lossy(&sent[0].body), renamed, "{prefix}: all else stays");
        let direct = chat(&gateway, "dear", nothing());
        assert_eq!(direct.body(), answer.body(), "{prefix}: byte for byte");
        assert_eq!(direct.header(NAMED), None, "{prefix}: it is what was asked for");
    }
}

#[test]
fn an_open_circuit_has_another_model_serve_without_a_try() {
    let (sim, recorder) = (simulator(&[]), Recorder::start());
    let prefix = "/sim:fault=status=500";
    let bad = upstream("bad", sim.addr(), prefix, "");
    let good = upstream("good", recorder.address, "", "");
    let upstreams = [bad, good, "balancing: { circuit: { open: 1m } }\n".to_owned()];
    let models =
        [model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n"), model("dear", "good", DEAR, "")];
    let gateway = serve(&upstreams, &models);
    for call in 0..20 {
        let answer = chat(&gateway, "cheap", nothing());
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
        assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "call {call}");
    }
    assert_eq!((sim.requests_total(), recorder.requests().len()), (5, 20));
    assert_eq!(gateway.metric(r#"tollgate_retries_total{model="dear",upstream="good"}"#), 5.0);
    assert_eq!(gateway.settled()["spent"], "0.003");
}

#[test]
fn the_requested_model_serves_before_its_fallbacks() {
    let (cheap, dear) = (Recorder::start(), Recorder::start());
    let gateway = gateway((cheap.address, ""), dear.address, "");
    let answer = chat(&gateway, "cheap", nothing());
    assert_eq!((answer.status(), answer.header(NAMED)), (200, None), "{answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.000015");
    assert_eq!(dear.requests().len(), 0);
}

#[test]
fn a_key_is_not_served_by_a_model_that_it_may_not_use() {
    let (sim, recorder) = (simulator(&[]), Recorder::start());
    let gateway = gateway((sim.addr(), "/sim:fault=status=500"), recorder.address, "");
    let path = format!("/admin/v1/accounts/{}/keys", gateway.account);
    for (models, status) in [(json!(["cheap"]), 502), (json!(["cheap", "dear"]), 200)] {
        let made = gateway.admin("POST", &path, &json!({"name": "narrow", "models": models}));
        let key = made["key"].as_str().expect("a key");
        let request = String::from_utf8(gateway.chat_json(body("cheap", nothing()))).expect("text");
        let answer = ask(gateway.address, request.replace(&gateway.key, key).as_bytes());
        assert_eq!(answer.status(), status, "{models}: {answer:?}");
    }
    assert_eq!(recorder.requests().len(), 1);
    assert_eq!(gateway.settled()["spent"], "0.00015");
}

#[test]
fn streams_go_to_another_model_before_their_first_byte_only() {
    let (bad, good) = (simulator(&[]), simulator(&[]));
    let refusing = gateway((bad.addr(), "/sim:fault=status=500"), good.addr(), "");
    let stream = json!({"stream": true});
    let answer = chat(&refusing, "cheap", stream.clone());
    let text = String::from_utf8_lossy(&answer.content()).into_owned();
    assert!(answer.status() == 200 && text.contains("[DONE]"), "{answer:?}");
    assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{answer:?}");
    let through = dollars(&refusing.settled()["spent"]);
    assert_eq!(chat(&refusing, "dear", stream.clone()).status(), 200);
    let both = dollars(&refusing.settled()["spent"]);
    assert!((both - 2.0 * through).abs() < 1e-12, "{through} of {both}: the price of `dear`");

    let before = good.requests_total();
    let breaking = gateway((bad.addr(), "/sim:fault=cut-after=1"), good.addr(), "");
    let answer = chat(&breaking, "cheap", stream);
    let text = String::from_utf8_lossy(&answer.content()).into_owned();
    assert!(text.contains("error") && !text.contains("[DONE]"), "{text}");
    assert_eq!((answer.header(NAMED), good.requests_total()), (None, before), "{answer:?}");
}

#[test]
fn only_the_fallbacks_of_the_requested_model_count_in_order() {
    let (bad, recorder) = (simulator(&[]), Recorder::start());
    let upstreams = [
        upstream("bad", bad.addr(), "/sim:fault=status=500", ""),
        upstream("good", recorder.address, "", ""),
    ];
    let models = [
        model("first", "bad", CHEAP, "    fallbacks: [second]\n"),
        model("second", "bad", CHEAP, "    fallbacks: [first, third]\n"),
        model("third", "good", DEAR, ""),
        model("fourth", "good", CHEAP, ""),
        model("all", "bad", CHEAP, "    fallbacks: [second, third, fourth]\n"),
    ];
    let gateway = serve(&upstreams, &models);
    let answer = chat(&gateway, "first", nothing());
    assert_eq!((answer.status(), answer.header(NAMED)), (502, None), "{answer:?}");
    assert_eq!(bad.requests_total(), 2, "its own target, and that of its fallback");
    let answer = chat(&gateway, "all", nothing());
    assert_eq!(answer.header(NAMED).as_deref(), Some("third"), "{answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.00015");
}

#[test]
fn a_fallback_that_does_not_take_the_request_is_left_out() {
    let (bad, recorder) = (simulator(&[]), Recorder::start());
    let upstreams = [
        upstream("bad", bad.addr(), "/sim:fault=status=500", ""),
        upstream("good", recorder.address, "", ""),
    ];
    let (pass, lists) = ("    pass_fields: [vendor_field]\n", "    fallbacks: [strict, lenient]\n");
    let models = [
        model("asked", "bad", CHEAP, &format!("{pass}{lists}")),
        model("strict", "good", CHEAP, ""),
        model("lenient", "good", DEAR, pass),
        model("lonely", "bad", CHEAP, &format!("{pass}    fallbacks: [strict]\n")),
    ];
    let gateway = serve(&upstreams, &models);
    let odd = json!({"vendor_field": 1});
    let answer = chat(&gateway, "asked", odd.clone());
    assert_eq!(answer.header(NAMED).as_deref(), Some("lenient"), "{answer:?}");
    let answer = chat(&gateway, "asked", nothing());
    assert_eq!(answer.header(NAMED).as_deref(), Some("strict"), "{answer:?}");
    let answer = chat(&gateway, "lonely", odd);
    assert_eq!(answer.status(), 502, "what `lonely` answers, and no refusal: {answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.000165");
}

#[test]
fn what_goes_on_from_a_kept_answer_stays_with_its_model() {
    let (request, other) = (simulator(&[]), simulator(&[]));
    let upstreams =
        [upstream("bad", request.addr(), "", ""), upstream("good", other.addr(), "", "")];
    let responses = |model: String| model.replace("[chat]", "[responses]");
    let models = [
        responses(model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n")),
        responses(model("dear", "good", DEAR, "")),
    ];
    let gateway = serve(&upstreams, &models);
    let respond = |more: Value| {
        let mut body = json!({"model": "cheap", "input": "hi", "max_output_tokens": 16});
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let body = body.to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        ask(gateway.address, &gateway.post("/v1/responses", &lines, body))
    };
    let first = respond(nothing());
    assert_eq!(first.status(), 200, "{first:?}");
    let mut failing = Behaviour::default();
    failing.set_pair("fault=status=500").expect("a setting");
    request.set_behaviour(failing);
    let answer = respond(json!({"previous_response_id": first.json()["id"]}));
    assert_eq!((answer.status(), other.requests_total()), (502, 0), "{answer:?}");
    let answer = respond(nothing());
    assert_eq!((answer.status(), other.requests_total()), (200, 1), "{answer:?}");
    assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{answer:?}");
}

#[test]
fn tries_and_retries_are_counted_over_all_models() {
    let (bad, recorder) = (simulator(&[]), Recorder::start());
    let limited = |balancing: &str| {
        let upstreams = [
            upstream("bad", bad.addr(), "/sim:fault=status=500", ""),
            upstream("good", recorder.address, "", ""),
            format!("balancing: {{ {balancing} }}\n"),
        ];
        let models = [
            model("cheap", "bad", CHEAP, "    fallbacks: [also, dear]\n"),
            model("also", "bad", CHEAP, ""),
            model("dear", "good", DEAR, ""),
        ];
        serve(&upstreams, &models)
    };
    let gateway = limited("retries: { tries_max: 2 }");
    assert_eq!(chat(&gateway, "cheap", nothing()).status(), 502);
    assert_eq!((bad.requests_total(), recorder.requests().len()), (2, 0), "two tries");
    let gateway = limited("retries: { tries_max: 3 }");
    assert_eq!(chat(&gateway, "cheap", nothing()).header(NAMED).as_deref(), Some("dear"));
}

#[test]
fn fallbacks_are_explained() {
    let (bad, recorder) = (simulator(&[]), Recorder::start());
    let gateway = gateway((bad.addr(), ""), recorder.address, "");
    let path = format!("/admin/v1/accounts/{}/keys", gateway.account);
    let key = gateway.admin("POST", &path, &json!({"name": "narrow", "models": ["cheap"]}));
    let explain = |more: &str| {
        let path = format!("/admin/v1/route?model=cheap{more}");
        gateway.admin("GET", &path, &Value::Null)["fallbacks"].clone()
    };
    let fallbacks = explain("");
    assert_eq!(fallbacks.as_array().map(Vec::len), Some(1), "{fallbacks}");
    let dear = &fallbacks[0];
    assert_eq!((&dear["model"], &dear["refused"]), (&json!("dear"), &Value::Null), "{dear}");
    assert_eq!(dear["targets"][0]["upstream"], "good", "{dear}");
    let narrow = explain(&format!("&key={}", key["id"].as_str().expect("an id")));
    assert_eq!(narrow[0]["refused"], "the key's list of models does not have it", "{narrow}");
}

#[test]
fn answers_that_are_put_together_come_from_another_model_too() {
    let (bad, good) = (simulator(&[]), simulator(&[]));
    let upstreams = [
        upstream("bad", bad.addr(), "/sim:fault=status=500", ""),
        upstream("good", good.addr(), "", ""),
    ];
    let vectors = |name: &str, upstream: &str, at_once: u32, price: u32, more: &str| {
        format!(
            "  {name}:
    operations: [embeddings]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: {price} }}
    limits: {{ batch_inputs_max: {at_once} }}
{more}"
        )
    };
    let models = [
        vectors("cheap", "bad", 3, 1, "    fallbacks: [dear]\n"),
        vectors("dear", "good", 1, 10, ""),
    ];
    let gateway = serve(&upstreams, &models);
    let embed = |model: &str| {
        let body = json!({"model": model, "input": ["a", "b", "c"]}).to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        ask(gateway.address, &gateway.post("/v1/embeddings", &lines, body))
    };
    let answer = embed("cheap");
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{answer:?}");
    assert_eq!((bad.requests_total(), good.requests_total()), (1, 3), "one call, and then three");
    let once = dollars(&gateway.settled()["spent"]);
    assert_eq!(embed("dear").json()["data"], answer.json()["data"]);
    let twice = dollars(&gateway.settled()["spent"]);
    assert!((twice - 2.0 * once).abs() < 1e-12, "{once} of {twice}: the price of `dear`");
}

#[test]
fn what_costs_nothing_stays_with_its_model() {
    let (bad, good) = (simulator(&[]), simulator(&[]));
    let at = |name: &str, address: SocketAddr, prefix: &str| {
        format!("  {name}: {{ protocol: anthropic, base_url: 'http://{address}{prefix}' }}\n")
    };
    let upstreams = [at("bad", bad.addr(), "/sim:fault=status=500"), at("good", good.addr(), "")];
    let messages = |model: String| model.replace("[chat]", "[messages]");
    let models = [
        messages(model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n")),
        messages(model("dear", "good", DEAR, "")),
    ];
    let gateway = serve(&upstreams, &models);
    let post = |path: &str, more: Value| {
        let body = String::from_utf8(body("cheap", more)).expect("text");
        let lines = format!("Content-Length: {}\r\n", body.len());
        ask(gateway.address, &gateway.post(path, &lines, body))
    };
    let answer = post("/v1/messages/count_tokens", json!({"max_tokens": null}));
    assert_eq!((answer.header(NAMED), good.requests_total()), (None, 0), "{answer:?}");
    let answer = post("/v1/messages", nothing());
    assert_eq!((answer.status(), good.requests_total()), (200, 1), "{answer:?}");
    assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{answer:?}");
}
