//! Peculiarities of Amazon Bedrock's Converse API: paths and credentials, binary frames, named exceptions,
//! and an end without usage.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Customer, call, gateway, model, spent};
use crate::harness::{Gateway, Recorder, simulator};

const CUSTOMERS: [Customer; 4] =
    [Customer::Chat, Customer::Messages, Customer::Responses, Customer::Gemini];

/// The price of so many tokens, in nano-dollars.
fn price(input: u64, cache_read: u64, output: u64) -> u64 {
    input * 3_000 + cache_read * 300 + output * 15_000
}

#[test]
fn requests_go_to_the_models_own_path_with_the_operators_key() {
    let sim = simulator(&["key=bedrock-api-key"]);
    let upstreams = format!(
        "  b: {{ protocol: bedrock, base_url: 'http://{}/prefix', credential: bedrock-api-key }}\n",
        sim.addr()
    );
    let target = "{ upstream: b, model: 'us.anthropic.claude-sonnet-4-5-20250929-v1:0' }";
    let models = model("claude", "messages", "b", "").replace("{ upstream: b }", target);
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{models}"));
    for (customer, stream) in CUSTOMERS.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let answer = call(&gateway, customer, &customer.body("claude", stream));
        assert_eq!(answer.status(), 200, "{answer:?}");
        let sent = sim.requests().pop().expect("a request");
        let way = if stream { "converse-stream" } else { "converse" };
        let model = "us.anthropic.claude-sonnet-4-5-20250929-v1%3A0";
        assert_eq!(sent.path, format!("/prefix/model/{model}/{way}"));
        assert_eq!(sent.header("authorization"), Some("Bearer bedrock-api-key"));
        assert_eq!(sent.header("content-type"), Some("application/json"));
        let types = answer.header("content-type").expect("a type");
        let expected = if stream { "text/event-stream" } else { "application/json" };
        assert!(types.starts_with(expected), "{answer:?}");
        let sent_body = sent.body.as_ref().expect("a body");
        let body: Value = serde_json::from_slice(sent_body).expect("JSON");
        let expected = json!({
            "system": [{"text": "Be short."}],
            "messages": [{"role": "user", "content": [{"text": "Say hello."}]}],
            "inferenceConfig": {"maxTokens": 500},
        });
        assert_eq!(body, expected, "{customer:?}");
    }
}

#[test]
fn a_wrong_checksum_breaks_a_stream_and_what_came_before_it_is_charged() {
    let sim = simulator(&["chunks=20"]);
    for customer in CUSTOMERS {
        let gateway = gateway(sim.addr(), "/sim:fault=checksum", "");
        let answer = call(&gateway, customer, &customer.body("on-converse", true));
        let what = format!("{customer:?}: {answer:?}");
        customer.check_broken(&answer, &what);
        let text = String::from_utf8(answer.content()).expect("text");
        assert!(text.contains("Simulated"), "{what}");
        assert!(!text.contains("answer with"), "nothing of the broken piece: {what}");
        // The first piece has two words; the whole answer has forty.
        let charged = spent(&gateway);
        assert!((1..price(1000, 0, 20)).contains(&charged), "{charged} {what}");
    }
}

#[test]
fn what_an_upstream_reports_is_charged_however_it_reports_it() {
    let usage = "usage=prompt=1000,cached=400,completion=16";
    let whole = price(1000, 400, 16);
    // Of several reports before the end the dearest counts, and none behind it.
    let rows =
        [("usage-twice", whole), ("usage-late", whole), ("usage-early", price(10_000, 400, 160))];
    let sim = simulator(&[usage]);
    for customer in CUSTOMERS {
        for (fault, expected) in rows {
            let gateway = gateway(sim.addr(), &format!("/sim:fault={fault}"), "");
            let answer = call(&gateway, customer, &customer.body("on-converse", true));
            let read = customer.read(&answer, true);
            let used = &read.usage;
            let message = price(used.input, used.cache_read, used.output);
            assert_eq!((spent(&gateway), message), (expected, expected), "{customer:?} {fault}");
        }
        for fault in ["usage-missing", "usage-negative"] {
            for stream in [false, true] {
                let gateway =
                    gateway(sim.addr(), &format!("/sim:fault={fault}"), "    reasoning: false\n");
                let answer = call(&gateway, customer, &customer.body("on-converse", stream));
                let used = customer.read(&answer, stream).usage;
                let message = price(used.input, used.cache_read, used.output);
                assert_eq!(spent(&gateway), message, "{customer:?} {fault} {stream}: {answer:?}");
                assert!(used.output >= 16, "an estimate of what was said: {used:?}");
            }
        }
    }
}

#[test]
fn failures_are_classified_by_the_exception_header() {
    let sim = simulator(&[]);
    for (settings, status) in [
        ("fault=status=400", 400),
        ("fault=status=400;error-code=ServiceQuotaExceededException", 429),
        ("fault=status=403", 502),
        ("fault=status=404", 502),
        ("fault=status=424", 502),
        ("fault=status=429;error-code=ModelNotReadyException", 429),
        ("fault=error-in-200", 502),
    ] {
        for customer in CUSTOMERS {
            let gateway = gateway(sim.addr(), &format!("/sim:{settings}"), "");
            let answer = call(&gateway, customer, &customer.body("on-converse", false));
            let what = format!("{customer:?} {settings}: {answer:?}");
            assert_eq!(answer.status(), status, "{what}");
            customer.check_error(&answer.json(), &what);
            if status == 400 {
                let message = answer.json()["error"]["message"].to_string();
                assert!(message.contains("told to answer 400"), "its own words: {what}");
            }
            assert_eq!(spent(&gateway), 0, "{what}");
        }
    }
}

/// Reads the beginning of an answer, and hangs up.
fn hang_up(gateway: &Gateway, customer: Customer, model: &str) {
    let (path, body) = customer.request(&customer.body(model, true));
    let lines = format!("Content-Length: {}\r\n", body.len());
    let request = gateway.post(&path, &lines, &body);
    let mut stream = TcpStream::connect(gateway.address).expect("a connection");
    stream.write_all(request.as_ref()).expect("sent");
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while String::from_utf8_lossy(&read).matches("answer").count() == 0 {
        let bytes = stream.read(&mut piece).expect("bytes");
        assert!(bytes > 0, "it ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..bytes]);
    }
}

#[test]
fn a_disconnect_is_charged_as_over_messages() {
    let sim = simulator(&[]);
    let slow = "/sim:chunks=100;words=1;interval-ms=10;usage=prompt=1000,completion=300";
    for customer in CUSTOMERS {
        let models = if customer == Customer::Messages {
            vec!["on-converse"]
        } else {
            vec!["on-converse", "on-messages"]
        };
        for model in models {
            // What a model may have thought nobody has seen: it is read to its end.
            let reasons = gateway(sim.addr(), slow, "");
            hang_up(&reasons, customer, model);
            assert_eq!(spent(&reasons), price(1000, 0, 300), "{customer:?} {model}");
            let plain = gateway(sim.addr(), slow, "    reasoning: false\n");
            hang_up(&plain, customer, model);
            let charged = spent(&plain);
            assert!(charged >= price(0, 0, 2), "{customer:?} {model}: {charged}");
            assert!(charged < price(1000, 0, 100), "{customer:?} {model}: {charged}");
        }
    }
}

#[test]
fn the_customers_conversation_is_refused_in_their_words_where_the_api_has_none() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "    translated: { thinking: none }\n");
    let image = json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]);
    for (field, value, param) in [
        (
            "messages",
            json!([{"role": "user", "content": image}]),
            "messages.content: an image by URL",
        ),
        ("response_format", json!({"type": "json_object"}), "response_format"),
        ("n", json!(2), "n"),
    ] {
        let mut body = Customer::Chat.body("on-converse", false);
        body[field] = value;
        let answer = call(&gateway, Customer::Chat, &body);
        assert_eq!(answer.status(), 400, "{answer:?}");
        assert_eq!(answer.json()["error"]["param"], param, "{answer:?}");
    }
    let mut body = Customer::Chat.body("on-converse", false);
    Customer::Chat.add_tool(&mut body);
    body["parallel_tool_calls"] = json!(false);
    assert!(recorder.requests().is_empty(), "nothing went upstream");
    drop(call(&gateway, Customer::Chat, &body));
    let sent = recorder.requests().pop().expect("a request");
    let sent = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(sent.contains("toolSpec") && !sent.contains("parallel"), "{sent}");
    let mut body = Customer::Messages.body("on-converse", false);
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
    body["max_tokens"] = json!(900);
    drop(call(&gateway, Customer::Messages, &body));
    let sent = recorder.requests().pop().expect("a request");
    assert!(!String::from_utf8_lossy(&sent.body).contains("thinking"), "{sent:?}");
}
