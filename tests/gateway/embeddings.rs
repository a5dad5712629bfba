//! `POST /v1/embeddings`: every family end to end, on the wire and in the ledger.

use crate::harness::{Admin, Answer, Customer, Demo, Gateway, Responder, ask};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

async fn embed(demo: &Demo, customer: &Customer, body: &Value, sim: &str) -> (u16, Value) {
    let call = demo.post("/v1/embeddings", body, sim).bearer_auth(&customer.key);
    let answer = call.send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.expect("JSON"))
}

/// A vector, however it is written.
fn vector(item: &Value) -> Vec<f32> {
    match &item["embedding"] {
        Value::String(text) => {
            let bytes = STANDARD.decode(text).expect("base64");
            let float = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
            bytes.chunks_exact(4).map(float).collect()
        }
        numbers => serde_json::from_value(numbers.clone()).expect("numbers"),
    }
}

/// DashScope takes ten inputs in one call.
#[tokio::test(flavor = "multi_thread")]
async fn an_array_that_is_too_long_for_the_upstream_is_answered_as_one() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let inputs: Vec<String> = (0..25).map(|number| format!("input number {number}")).collect();
    let mut one_by_one = Vec::new();
    let customer = admin.customer("1.00").await;
    for input in &inputs {
        let body = json!({"model": "text-embedding-v4", "input": input, "dimensions": 64});
        let (status, answer) = embed(&demo, &customer, &body, "").await;
        assert_eq!(status, 200, "{answer}");
        one_by_one.push(vector(&answer["data"][0]));
    }
    let singly = admin.settled(&customer.account).await.spent;
    for format in ["float", "base64"] {
        let customer = admin.customer("1.00").await;
        let body = json!({
            "model": "text-embedding-v4",
            "input": inputs,
            "dimensions": 64,
            "encoding_format": format,
        });
        let (status, answer) = embed(&demo, &customer, &body, "").await;
        assert_eq!(status, 200, "{answer}");
        let data = answer["data"].as_array().expect("vectors");
        let order: Vec<u64> = data.iter().filter_map(|item| item["index"].as_u64()).collect();
        assert_eq!(order, (0..25).collect::<Vec<_>>(), "in order");
        assert_eq!(data.iter().map(vector).collect::<Vec<_>>(), one_by_one, "{format}");
        assert_eq!(data[0]["embedding"].is_string(), format == "base64");
        let tokens = answer["usage"]["total_tokens"].as_i64().expect("one total");
        // $0.07 a million.
        let spent = admin.settled(&customer.account).await.spent;
        assert_eq!((spent, spent), (tokens * 70, singly), "{format}: as much as one by one");
    }
}

/// Arrays are split for every family (spec section 2.8), whatever its upstream takes in one call.
#[tokio::test(flavor = "multi_thread")]
async fn every_family_takes_as_many_inputs_as_openai() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    for model in ["vyg-4", "gmn-embedding-001", "text-embedding-v4", "text-embedding-3-small"] {
        let of = |count: usize| {
            json!({"model": model, "input": vec!["a"; count], "dimensions": 256,
                   "encoding_format": "float"})
        };
        let (status, answer) = embed(&demo, &customer, &of(2048), "").await;
        assert_eq!(status, 200, "{model}: {}", answer["error"]);
        let data = answer["data"].as_array().expect("vectors");
        let order: Vec<u64> = data.iter().filter_map(|item| item["index"].as_u64()).collect();
        assert_eq!(order, (0..2048).collect::<Vec<_>>(), "{model}: in order");
        let usage = &answer["usage"];
        assert!(usage["prompt_tokens"].as_u64() >= Some(2048), "{model}: {usage}");
        assert_eq!(usage["prompt_tokens"], usage["total_tokens"], "{model}");
        let (status, answer) = embed(&demo, &customer, &of(2049), "").await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("input")), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_fails_all_and_costs_nothing() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let body = json!({"model": "text-embedding-v4", "input": vec!["a"; 25]});
    for (fault, status) in
        [("status=400", 400), ("status=500", 502), ("status=429", 429), ("garbage", 502)]
    {
        let (found, answer) = embed(&demo, &customer, &body, &format!("fault:{fault}")).await;
        assert_eq!(found, status, "{fault}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{fault}: {answer}");
    }
    let balance = admin.settled(&customer.account).await;
    assert_eq!((balance.spent, balance.available), (0, 1_000_000_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gemini_does_not_report_is_estimated_and_marked() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let body =
        json!({"model": "gmn-embedding-001", "input": "hello there", "encoding_format": "base64"});
    let (status, answer) = embed(&demo, &customer, &body, "").await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer["data"][0]["embedding"].is_string(), "as its SDK decodes it: {answer}");
    assert!(answer["usage"]["prompt_tokens"].as_u64() > Some(0), "the contract has one: {answer}");
    assert!(admin.settled(&customer.account).await.spent > 0);
    let path = format!("/accounts/{}/entries", customer.account);
    let entries = admin.get(&path).await.to_string();
    assert!(entries.contains("\"estimated\""), "{entries}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_does_not_take_is_refused_with_what_to_do() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    for model in ["text-embedding-v4", "gmn-embedding-001", "vyg-4"] {
        let body = json!({"model": model, "input": [[6151, 12]]});
        let (status, answer) = embed(&demo, &customer, &body, "").await;
        assert_eq!(status, 400, "{model}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("check_embedding_ctx_length=False"), "{model}: {message}");
    }
    let ids = json!({"model": "text-embedding-3-small", "input": [[6151, 12]]});
    assert_eq!(embed(&demo, &customer, &ids, "").await.0, 200, "OpenAI takes them");
    for (model, dimensions, status) in
        [("vyg-4-lite", 2048, 200), ("vyg-4-lite", 300, 400), ("text-embedding-v4", 100, 400)]
    {
        let body = json!({"model": model, "input": "a", "dimensions": dimensions});
        let (found, answer) = embed(&demo, &customer, &body, "").await;
        assert_eq!(found, status, "{model} {dimensions}: {answer}");
        let size = answer["data"][0]["embedding"].as_array().map_or(0, Vec::len);
        assert_eq!(size, if status == 200 { dimensions } else { 0 }, "{model}");
    }
    for (model, dimensions, message) in [
        ("vyg-4", json!(0), "`dimensions` must be one of 256, 512, 1024, 2048 for this model"),
        ("vyg-4", json!("256"), "`dimensions` must be one of 256, 512, 1024, 2048 for this model"),
        ("gmn-embedding-001", json!(0), "`dimensions` must be an integer of at least 1"),
        ("gmn-embedding-001", json!(1.5), "`dimensions` must be an integer of at least 1"),
    ] {
        let body = json!({"model": model, "input": "a", "dimensions": dimensions});
        let (status, answer) = embed(&demo, &customer, &body, "").await;
        assert_eq!((status, &answer["error"]["message"]), (400, &json!(message)));
    }
}

/// A gateway whose model `e` sends up to three inputs in one call, and `v` is Voyage's.
fn gateway_over(upstream: &Responder) -> Gateway {
    let at = upstream.address;
    let upstreams = format!(
        "  u: {{ protocol: openai, base_url: 'http://{at}/v1' }}
  v: {{ protocol: voyage, base_url: 'http://{at}/v1' }}\n"
    );
    let model = |name: &str, upstream: &str, limits: &str| {
        format!(
            "  {name}:
    operations: [embeddings]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 1000{limits} }}\n"
        )
    };
    let models = [model("e", "u", ", batch_inputs_max: 3"), model("v", "v", "")].concat();
    Gateway::serving(&upstreams, &format!("models:\n{models}"))
}

/// Answers each input with its number as its vector, in the order that `shuffle` makes of their indices.
fn upstream_that_answers(shuffle: fn(Vec<i64>) -> Vec<Value>) -> Responder {
    Responder::start(move |_, request| {
        let query: Value = serde_json::from_slice(&request.body).expect("JSON");
        let inputs: Vec<f32> = match &query["input"] {
            Value::String(text) => vec![text.parse().expect("a number")],
            all => {
                let all = all.as_array().expect("inputs").iter();
                all.map(|one| one.as_str().expect("text").parse().expect("a number")).collect()
            }
        };
        let in_base64 = query["encoding_format"] == "base64";
        let item = |index: Value| {
            let at = index.as_u64().and_then(|at| usize::try_from(at).ok());
            let number = at.and_then(|at| inputs.get(at)).copied().unwrap_or(-1.0);
            let embedding = match in_base64 {
                true => json!(STANDARD.encode(number.to_le_bytes())),
                false => json!([number]),
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        };
        let count = i64::try_from(inputs.len()).expect("few");
        let data: Vec<Value> = shuffle((0..count).collect()).into_iter().map(item).collect();
        let usage = json!({"prompt_tokens": count, "total_tokens": count});
        let body = json!({"object": "list", "data": data, "model": "up", "usage": usage});
        (200, "content-type: application/json\r\n".to_owned(), body.to_string())
    })
}

fn embed_numbers(gateway: &Gateway, model: &str, count: usize, format: &str) -> Answer {
    let inputs: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let body = json!({"model": model, "input": inputs, "encoding_format": format}).to_string();
    let length = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post("/v1/embeddings", &length, body))
}

/// The document of an answer, in chunks or not.
fn document(answer: &Answer) -> Value {
    let is_chunked = answer.header("transfer-encoding").is_some();
    let body = if is_chunked { answer.content() } else { answer.body() };
    serde_json::from_slice(&body).expect("JSON")
}

#[test]
fn vectors_come_back_in_the_order_of_their_inputs() {
    let upstream = upstream_that_answers(|all| all.into_iter().rev().map(Value::from).collect());
    let gateway = gateway_over(&upstream);
    // One call, and three of which each comes in another order.
    for (model, count) in [("e", 1), ("e", 3), ("e", 8), ("v", 5)] {
        for format in ["float", "base64"] {
            let answer = embed_numbers(&gateway, model, count, format);
            assert_eq!(answer.status(), 200, "{model} {count}: {answer:?}");
            let document = document(&answer);
            let data = document["data"].as_array().expect("vectors");
            let found: Vec<_> =
                data.iter().map(|item| (item["index"].as_u64(), vector(item))).collect();
            let numbers = (0u8..).take(count).map(|at| (Some(u64::from(at)), vec![f32::from(at)]));
            assert_eq!(found, numbers.collect::<Vec<_>>(), "{model} {count} {format}");
            assert_eq!(data[0]["embedding"].is_string(), format == "base64");
        }
    }
}

#[test]
fn an_answer_that_lacks_a_vector_is_the_upstreams_fault_and_costs_nothing() {
    type Indexes = fn(Vec<i64>) -> Vec<Value>;
    let faults: [(&str, Indexes); 6] = [
        ("one twice", |all| all.iter().map(|at| json!(*at / 2 * 2)).collect()),
        ("from 1", |all| all.iter().map(|at| json!(at + 1)).collect()),
        ("one too few", |all| all.iter().skip(1).map(|at| json!(at - 1)).collect()),
        ("one too many", |all| (0..=all.len()).map(|at| json!(at)).collect()),
        ("as text", |all| all.iter().map(|at| json!(at.to_string())).collect()),
        ("none", |all| all.iter().map(|_| Value::Null).collect()),
    ];
    for (fault, shuffle) in faults {
        let upstream = upstream_that_answers(shuffle);
        let gateway = gateway_over(&upstream);
        for (model, count) in [("e", 2), ("e", 8), ("v", 2)] {
            for format in ["float", "base64"] {
                let answer = embed_numbers(&gateway, model, count, format);
                assert_eq!(answer.status(), 502, "{fault} {model} {count}: {answer:?}");
                assert_eq!(document(&answer)["error"]["type"], "api_error", "{fault}: {answer:?}");
            }
        }
        assert_eq!(gateway.settled()["spent"], "0.00", "{fault}");
    }
}
