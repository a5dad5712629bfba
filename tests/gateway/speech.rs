//! `POST /v1/audio/speech`: both families end to end, on the wire and in the ledger.

use crate::harness::{Admin, Customer, Demo, Gateway, ask};
use serde_json::{Value, json};
use tollgate::sim::{Sim, SimOptions};

/// Cost of a character of `qf3-tts-flash`, in nano-dollars.
const FLASH: i64 = 10_000;

async fn speak(demo: &Demo, customer: &Customer, body: &Value, sim: &str) -> reqwest::Response {
    let call = demo.post("/v1/audio/speech", body, sim).bearer_auth(&customer.key);
    call.send().await.expect("an answer")
}

fn media_type(answer: &reqwest::Response) -> &str {
    answer.headers()["content-type"].to_str().expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_audio_and_is_billed_by_the_character() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    for (body, sim, kind, begin, cost) in [
        (
            json!({"model": "qf3-tts-flash", "input": "Hello"}),
            "",
            "audio/mpeg",
            "\u{FF}",
            5 * FLASH,
        ),
        (
            json!({"model": "qf3-tts-flash", "input": "你好", "voice": "alloy", "speed": 2}),
            "usage:prompt=4",
            "audio/mpeg",
            "\u{FF}",
            4 * FLASH,
        ),
        (
            json!({"model": "qf3-tts-flash", "input": "Hello", "voice": "Ethan", "response_format": "wav"}),
            "",
            "audio/wav",
            "R",
            5 * FLASH,
        ),
        (
            json!({"model": "qf3-tts-instruct-flash", "input": "Hello", "instructions": "whisper"}),
            "",
            "audio/wav",
            "R",
            5 * 11_500,
        ),
        (
            json!({"model": "tts-1", "input": "Hello", "voice": "alloy", "response_format": "wav"}),
            "",
            "audio/wav",
            "R",
            5 * 15_000,
        ),
    ] {
        let customer = admin.customer("1.00").await;
        let answer = speak(&demo, &customer, &body, sim).await;
        assert_eq!(answer.status(), 200, "{body}");
        assert_eq!(media_type(&answer), kind, "{body}");
        assert!(answer.headers().contains_key("x-request-id"));
        let audio = answer.bytes().await.expect("a whole answer");
        assert!(audio.len() > 1000, "{body}: {} bytes", audio.len());
        assert_eq!(u32::from(audio[0]), begin.chars().next().map_or(0, u32::from), "{body}");
        assert_eq!(admin.settled(&customer.account).await.spent, cost, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_events_pass_as_they_are() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let body = json!({"model": "tts-1", "input": "Hi", "voice": "alloy", "stream_format": "sse"});
    let answer = speak(&demo, &customer, &body, "").await;
    assert!(media_type(&answer).starts_with("text/event-stream"), "{answer:?}");
    let text = answer.text().await.expect("text");
    assert!(text.contains("speech.audio.delta") && text.contains("speech.audio.done"), "{text}");
    assert!(!text.contains("\"error\""), "{text}");
    assert_eq!(admin.settled(&customer.account).await.spent, 2 * 15_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_spoken_is_refused_and_costs_nothing() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let flash = |fields: Value| {
        let mut body = json!({"model": "qf3-tts-flash", "input": "Hello"});
        let members = fields.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(members);
        body
    };
    let arrears = "fault:error-in-200 error-code:Arrearage";
    for (body, sim, status, code) in [
        (flash(json!({"input": ""})), "", 400, "invalid_request_error"),
        (flash(json!({"input": "x".repeat(601)})), "", 400, "invalid_request_error"),
        (flash(json!({"voice": "Nobody"})), "", 400, "invalid_request_error"),
        (flash(json!({"response_format": "opus"})), "", 400, "invalid_request_error"),
        (flash(json!({"instructions": "whisper"})), "", 400, "invalid_request_error"),
        (flash(json!({"model": "gpt-4o"})), "", 400, "endpoint_model_mismatch"),
        (flash(json!({"model": "qf9"})), "", 404, "model_not_found"),
        (flash(json!({})), "fault:status=401", 502, "service_unavailable"),
        (flash(json!({})), arrears, 502, "service_unavailable"),
        (flash(json!({})), "fault:status=429", 429, "rate_limit_exceeded"),
        (flash(json!({})), "fault:reset-after-body", 502, "service_unavailable"),
        (
            json!({"model": "tts-1", "input": "Hello"}),
            "fault:status=500",
            502,
            "service_unavailable",
        ),
        (json!({"model": "tts-1", "input": ""}), "", 400, "invalid_request_error"),
    ] {
        let answer = speak(&demo, &customer, &body, sim).await;
        let found = answer.status().as_u16();
        let answer: Value = answer.json().await.expect("JSON");
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{body} {sim}");
        assert!(!answer.to_string().contains("Arrearage"), "the operator's account: {answer}");
    }
    let voice = speak(&demo, &customer, &flash(json!({"voice": "Nobody"})), "").await;
    let voice: Value = voice.json().await.expect("JSON");
    let message = voice["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("Nobody"), "the upstream's own words: {voice}");
    let balance = admin.settled(&customer.account).await;
    assert_eq!((balance.spent, balance.available), (0, 1_000_000_000));
}

/// A gateway whose upstream makes speech that cannot be fetched, or not wholly.
fn gateway(sim: &Sim, fault: &str) -> Gateway {
    let upstreams = format!(
        "  dashscope:
    protocol: dashscope
    base_url: http://{}/sim:fault={fault};chunks=4
",
        sim.addr()
    );
    let models = "models:
  tts:
    operations: [speech]
    targets: [{ upstream: dashscope }]
    prices: { per_1m_characters: 10 }
";
    Gateway::serving(&upstreams, models)
}

#[test]
fn speech_costs_nothing_until_some_of_it_arrives() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let ask_for = |gateway: &Gateway, format: &str| {
        let body = json!({"model": "tts", "input": "Hello there", "response_format": format});
        let body = body.to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        ask(gateway.address, &gateway.post("/v1/audio/speech", &lines, &body))
    };
    let lost = gateway(&sim, "cut-after=0");
    for format in ["mp3", "wav"] {
        let answer = ask_for(&lost, format);
        assert_eq!(answer.status(), 502, "{answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "BadGateway");
        assert!(!error.to_string().contains("results"), "the URL is nobody's business: {error}");
    }
    assert_eq!(lost.settled()["spent"], "0.00");
    let cut = gateway(&sim, "cut-after=2");
    for format in ["mp3", "wav"] {
        let answer = ask_for(&cut, format);
        assert_eq!(answer.status(), 200, "it had begun");
        assert!(!answer.is_whole(), "{format}: a customer can tell");
    }
    // Both were made and begun, and who reads slowly can make the rest break off.
    assert_eq!(cut.settled()["spent"], "0.00022");
    let whole = gateway(&sim, "none");
    assert!(ask_for(&whole, "mp3").is_whole());
    assert_eq!(whole.settled()["spent"], "0.00011");
}
