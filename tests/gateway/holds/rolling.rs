//! Streams that are paid for by holds that grow: over real upstreams' dialects, on a few cents.
//!
//! The model costs $1 for a million tokens of input and $10 for a million of output, of which it can make
//! 100,000: a request holds $1, and a slice of it four cents.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tollgate::ledger::{OfflineRecords, Record};

use crate::harness::{Answer, Gateway, ask, simulator};

/// Nano-dollars for a token of output.
const OUTPUT: i64 = 10_000;

/// A gateway over a simulated upstream of three dialects, whose only means is to roll.
fn gateway(upstream: SocketAddr) -> Gateway {
    let upstreams = format!(
        "  openai: {{ protocol: openai, base_url: 'http://{upstream}/v1' }}
  anthropic: {{ protocol: anthropic, base_url: 'http://{upstream}' }}
  gemini: {{ protocol: gemini, base_url: 'http://{upstream}/v1beta' }}
holds: {{ means: [rolling] }}
"
    );
    let model = |name: &str, operations: &str, upstream: &str| {
        format!(
            "  {name}:
    operations: [{operations}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 10 }}
    limits: {{ context_tokens_max: 200000, output_tokens_max: 100000 }}
    reasoning: false
"
        )
    };
    let models = [
        model("m", "chat, responses", "openai"),
        model("c", "messages", "anthropic"),
        model("g", "generate_content", "gemini"),
    ];
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

/// Makes an account with so many dollars the gateway's own.
fn with_balance(gateway: &mut Gateway, dollars: &str) {
    let account = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "small"}));
    gateway.account = account["id"].as_str().expect("an id").to_owned();
    gateway.grant(dollars, &format!("for {}", gateway.account));
    let path = format!("/admin/v1/accounts/{}/keys", gateway.account);
    let key = gateway.admin("POST", &path, &json!({"name": "small"}));
    gateway.key = key["key"].as_str().expect("a key").to_owned();
}

fn stream(gateway: &Gateway, path: &str, body: &Value) -> (Answer, String) {
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\nContent-Type: application/json\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post(path, &lines, &body));
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    (answer, text)
}

fn chat(gateway: &Gateway) -> (Answer, String) {
    let messages = json!([{"role": "user", "content": "hi"}]);
    stream(
        gateway,
        "/v1/chat/completions",
        &json!({"model": "m", "stream": true, "messages": messages}),
    )
}

fn nanousd(balance: &Value, part: &str) -> i64 {
    let text = balance[part].as_str().expect("an amount");
    text.parse::<tollgate::money::Nanousd>().expect("an amount").get()
}

/// The extensions of each hold in the journal of a gateway that has ended, with the holds' first amounts.
fn extensions(gateway: &mut Gateway) -> Vec<(i64, Vec<u64>)> {
    gateway.kill();
    let mut holds = std::collections::BTreeMap::new();
    for record in OfflineRecords::open(&gateway.path("data"), 0).expect("opens") {
        match record.expect("reads") {
            (seq, Record::Reserved(reservation)) => {
                let hold = tollgate::ledger::HoldId::from_number(seq);
                holds.insert(hold, (reservation.amount.get(), Vec::new()));
            }
            (_, Record::Extended { hold, at, .. }) => {
                holds.get_mut(&hold).expect("it was made").1.push(at.0);
            }
            _ => {}
        }
    }
    holds.into_values().collect()
}

#[test]
fn five_cents_serve_an_answer_of_a_model_that_holds_a_dollar() {
    let sim = simulator(&["chunks=600", "words=4", "interval-ms=5"]);
    let mut gateway = gateway(sim.addr());
    with_balance(&mut gateway, "0.05");
    let begun = Instant::now();
    let (answer, text) = chat(&gateway);
    let took = begun.elapsed();
    assert_eq!(answer.status(), 200, "{text}");
    assert!(text.contains("data: [DONE]"), "{}", &text[text.len() - 400..]);
    let balance = gateway.settled();
    let spent = nanousd(&balance, "spent");
    assert!((2_400 * OUTPUT..2_500 * OUTPUT).contains(&spent), "what was reported: {balance}");
    assert_eq!(nanousd(&balance, "available"), 50_000_000 - spent, "the rest is free: {balance}");
    let metrics = gateway.metrics();
    let held = gateway.metric("tollgate_held_dollars_total{model=\"m\"}");
    let charged = gateway.metric("tollgate_spend_dollars_total{model=\"m\"}");
    assert!(held / charged < 2.5, "{held} held, {charged} charged: {metrics}");
    let holds = extensions(&mut gateway);
    let [(first, extended)] = holds.as_slice() else { panic!("{holds:?}") };
    assert!((4_096 * OUTPUT..4_200 * OUTPUT).contains(first), "a slice: {first}");
    let most = usize::try_from(took.as_secs() / 2).expect("short") + 1;
    assert!((1..=most).contains(&extended.len()), "{extended:?} within {took:?}");
}

#[test]
fn a_stream_that_runs_out_of_money_is_cut_in_the_words_of_its_dialect() {
    let sim = simulator(&["chunks=3000", "words=4", "interval-ms=1"]);
    let mut gateway = gateway(sim.addr());
    let messages = json!([{"role": "user", "content": "hi"}]);
    let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
    let input = json!("hi");
    for (path, body, says) in [
        (
            "/v1/chat/completions",
            json!({"model": "m", "stream": true, "messages": messages}),
            "\"code\":\"insufficient_balance\"",
        ),
        (
            "/v1/responses",
            json!({"model": "m", "stream": true, "input": input}),
            "insufficient_balance",
        ),
        (
            "/v1/messages",
            json!({"model": "c", "stream": true, "max_tokens": 100_000, "messages": messages}),
            "event: error",
        ),
        (
            "/v1beta/models/g:streamGenerateContent?alt=sse",
            json!({"contents": contents}),
            "\"code\":402",
        ),
    ] {
        with_balance(&mut gateway, "0.05");
        let (answer, text) = stream(&gateway, path, &body);
        assert_eq!(answer.status(), 200, "{path}: {text}");
        let end = &text[text.len().saturating_sub(700)..];
        assert!(end.contains(says) && end.contains("The answer was cut"), "{path}: {end}");
        let balance = gateway.settled();
        let (spent, available) = (nanousd(&balance, "spent"), nanousd(&balance, "available"));
        assert_eq!(spent + available, 50_000_000, "{path}: {balance}");
        assert_eq!(balance["debt"].as_str().unwrap_or("0.00"), "0.00", "{path}: {balance}");
        assert!(spent > 45_000_000, "{path}: it was served for nearly all there was: {balance}");
    }
    for (first, extended) in extensions(&mut gateway) {
        assert!(first < 4_200 * OUTPUT, "{first}");
        let apart = extended.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(2_000);
        // The ledger's clock is not the one that the extensions are spaced by.
        assert!(apart >= 1_950, "{extended:?}");
    }
}

#[test]
fn an_answer_that_comes_at_once_needs_one_extension() {
    let sim = simulator(&["chunks=1500", "words=16"]);
    let mut gateway = gateway(sim.addr());
    with_balance(&mut gateway, "0.9");
    let (answer, text) = chat(&gateway);
    assert_eq!(answer.status(), 200, "{text}");
    assert!(text.contains("data: [DONE]"), "{}", &text[text.len() - 400..]);
    let spent = nanousd(&gateway.settled(), "spent");
    assert!(spent >= 24_000 * OUTPUT, "{spent}");
    let holds = extensions(&mut gateway);
    let [(_, extended)] = holds.as_slice() else { panic!("{holds:?}") };
    assert!((1..=2).contains(&extended.len()), "{extended:?}");
}

#[test]
fn what_does_not_roll_is_refused_as_before() {
    let sim = simulator(&[]);
    let mut gateway = gateway(sim.addr());
    with_balance(&mut gateway, "0.05");
    let messages = json!([{"role": "user", "content": "hi"}]);
    let (answer, text) =
        stream(&gateway, "/v1/chat/completions", &json!({"model": "m", "messages": messages}));
    assert_eq!(answer.status(), 402, "a document shows its cost at its end: {text}");
    let thinks = json!({"model": "c", "stream": true, "max_tokens": 100_000, "messages": messages,
        "thinking": {"type": "enabled", "budget_tokens": 2_000}});
    let (answer, text) = stream(&gateway, "/v1/messages", &thinks);
    assert_eq!(answer.status(), 402, "thinking is not shown while it is done: {text}");
    assert_eq!(gateway.settled()["spent"], "0.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_who_leaves_pays_what_was_shown_and_has_the_rest_at_once() {
    let sim = simulator(&["chunks=5000", "words=1", "interval-ms=10"]);
    let upstream = sim.addr();
    let mut gateway = tokio::task::block_in_place(|| gateway(upstream));
    tokio::task::block_in_place(|| with_balance(&mut gateway, "0.05"));
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let url = format!("http://{}/v1/chat/completions", gateway.address);
    let call = crate::harness::http().post(url).bearer_auth(&gateway.key).json(&body);
    let mut stream = call.send().await.expect("an answer").bytes_stream();
    for _ in 0..20 {
        stream.next().await.expect("a chunk").expect("bytes");
    }
    drop(stream);
    let balance = tokio::task::block_in_place(|| gateway.settled());
    let spent = nanousd(&balance, "spent");
    assert!((10 * OUTPUT..500 * OUTPUT).contains(&spent), "{balance}");
    assert_eq!(nanousd(&balance, "available"), 50_000_000 - spent, "{balance}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_streams_on_half_a_dollar_never_owe() {
    let sim = simulator(&["chunks=2000", "words=4", "interval-ms=1"]);
    let upstream = sim.addr();
    let mut gateway = tokio::task::block_in_place(|| gateway(upstream));
    tokio::task::block_in_place(|| with_balance(&mut gateway, "0.5"));
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let calls = (0..100).map(|_| {
        let url = format!("http://{}/v1/chat/completions", gateway.address);
        let call = crate::harness::http().post(url).bearer_auth(&gateway.key).json(&body);
        async move {
            let answer = call.timeout(Duration::from_secs(60)).send().await.expect("an answer");
            (answer.status().as_u16(), answer.text().await.expect("text"))
        }
    });
    let answers: Vec<_> = futures_util::stream::iter(calls).buffer_unordered(100).collect().await;
    let served = answers.iter().filter(|(status, _)| *status == 200).count();
    assert!(served >= 8, "{served} of 100 were served");
    for (status, text) in &answers {
        let is_whole = text.contains("data: [DONE]");
        let is_cut = text.contains("The answer was cut");
        let is_served = *status == 200 && (is_whole || is_cut);
        assert!(is_served || [402, 429].contains(status), "{status} {text}");
    }
    let balance = tokio::task::block_in_place(|| gateway.settled());
    let (spent, available) = (nanousd(&balance, "spent"), nanousd(&balance, "available"));
    assert_eq!(spent + available, 500_000_000, "{balance}");
    assert_eq!(balance["debt"].as_str().unwrap_or("0.00"), "0.00", "{balance}");
    let holds = tokio::task::block_in_place(|| extensions(&mut gateway));
    for (_, extended) in &holds {
        let apart = extended.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(2_000);
        assert!(apart >= 1_950, "{extended:?}");
    }
}
