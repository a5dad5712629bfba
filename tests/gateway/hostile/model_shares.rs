//! One account that takes a model's places for as long as it can, and hangs up on what it has begun: other
//! accounts are served at once.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Answer, Gateway, Responder, ask, chat_model, connect, eventually, hang, http_builder,
    within_async,
};

/// The model's places, and the most of them that one account gets.
const PLACES: usize = 8;
const MOST: usize = 6;
/// A call on which the upstream works for ever.
const SLOW: &str = r#"{"model":"m","messages":[{"role":"user","content":"slow"}]}"#;
const FAST: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// A gateway with a model of eight places, and two accounts: the hostile one and an honest one.
struct Shared {
    gateway: Gateway,
    upstream: Responder,
    hostile: String,
}

impl Shared {
    fn new(limits: &str) -> Self {
        let upstream = Responder::start(|_, request| {
            if String::from_utf8_lossy(&request.body).contains("slow") {
                hang();
            }
            let answer = json!({
                "id": "1", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop",
                             "message": {"role": "assistant", "content": "ho"}}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            });
            (200, "Content-Type: application/json\r\n".to_owned(), answer.to_string())
        });
        let upstreams =
            format!("  u: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", upstream.address);
        let of_model = format!(
            "    rate_limits: {{ concurrent_requests: {PLACES} }}
    on_disconnect: {{ time: 1h, bytes: 10MiB }}\n"
        );
        let models = format!("models:\n{}{of_model}", chat_model("m", "u"));
        let gateway = Gateway::limited(limits, &upstreams, &models);
        let hostile = gateway.customer("hostile", Some("1000.00"));
        Self { gateway, upstream, hostile }
    }

    /// The hostile account's request over HTTP/1.1.
    fn slow_request(&self) -> Vec<u8> {
        let hostile = format!("Bearer {}", self.hostile);
        let text = String::from_utf8(self.gateway.chat_json(SLOW)).expect("text");
        text.replace(&format!("Bearer {}", self.gateway.key), &hostile).into_bytes()
    }

    /// The hostile account's requests that the upstream works at.
    fn at_work(&self) -> usize {
        let requests = self.upstream.requests();
        requests.iter().filter(|one| String::from_utf8_lossy(&one.body).contains("slow")).count()
    }

    /// Another request of the hostile account is refused, and names its share.
    fn assert_refuses_the_hostile_account(&self) {
        let answer = ask(self.gateway.address, &self.slow_request());
        assert_eq!(answer.status(), 429, "{answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "ConcurrencyExceeded", "{answer:?}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("may have 6 of the 8 requests"), "{message}");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
        assert_eq!(self.at_work(), MOST, "no more than its bound reaches the upstream");
        let series =
            r#"tollgate_rate_limited_total{limit="concurrency",model="m",scope="account"}"#;
        assert!(self.gateway.metric(series) >= 1.0, "{series}");
    }

    /// Twenty requests of the honest account, which are served at once. The slowest is what it took.
    fn assert_serves(&self, door: &str) {
        let honest = |_| ask(self.gateway.address, &self.gateway.chat_json(FAST));
        let answers: Vec<Answer> = (0..20).map(honest).collect();
        let slowest = answers.iter().map(|answer| answer.took).max().expect("twenty");
        for answer in &answers {
            assert_eq!(answer.status(), 200, "the honest account, beside {door}: {answer:?}");
        }
        println!("{door}: the honest account's slowest call took {slowest:?}");
        assert!(slowest < Duration::from_secs(1), "{slowest:?} beside {door}");
    }
}

#[test]
fn calls_abandoned_over_http1_leave_a_model_to_others() {
    let shared = Shared::new("");
    for count in 1..=MOST {
        let mut stream = connect(shared.gateway.address);
        stream.write_all(&shared.slow_request()).expect("sent");
        eventually("the upstream works at it", || shared.at_work() == count);
    }
    let orphans = || shared.gateway.metric("tollgate_orphans");
    eventually("all of them are read on", || orphans().to_string() == MOST.to_string());
    for _ in 0..PLACES {
        shared.assert_refuses_the_hostile_account();
    }
    shared.assert_serves("HTTP/1.1");
}

#[test]
fn calls_abandoned_over_http2_leave_a_model_to_others() {
    let shared = Shared::new("");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let client = http_builder().http2_prior_knowledge().build().expect("a client");
        let url = format!("http://{}/v1/chat/completions", shared.gateway.address);
        for count in 1..=MOST {
            let request = client.post(&url).bearer_auth(&shared.hostile);
            let request = request.header("content-type", "application/json").body(SLOW);
            let call = tokio::spawn(request.send());
            let works = async || shared.at_work() == count;
            within_async(Duration::from_secs(5), "the upstream works at it", works).await;
            call.abort();
        }
        let orphans = || shared.gateway.metric("tollgate_orphans");
        eventually("all of them are read on", || orphans().to_string() == MOST.to_string());
        shared.assert_refuses_the_hostile_account();
        shared.assert_serves("HTTP/2");
    });
}

/// Whoever stays connected has no more of a model than whoever hangs up.
#[test]
fn calls_that_are_waited_for_leave_a_model_to_others() {
    let shared = Shared::new("");
    let mut waiting = Vec::new();
    for _ in 0..2 * PLACES {
        let mut stream = connect(shared.gateway.address);
        stream.write_all(&shared.slow_request()).expect("sent");
        waiting.push(stream);
    }
    eventually("the upstream works at its part", || shared.at_work() == MOST);
    shared.assert_refuses_the_hostile_account();
    shared.assert_serves("waiting calls");
    drop(waiting);
}

/// An operator with one account for everybody lets it have everything.
#[test]
fn with_100_percent_one_account_has_all_places() {
    let shared = Shared::new("  per_account: { model_concurrency_percent: 100 }\n");
    let mut waiting = Vec::new();
    for _ in 0..2 * PLACES {
        let mut stream = connect(shared.gateway.address);
        stream.write_all(&shared.slow_request()).expect("sent");
        waiting.push(stream);
    }
    eventually("the upstream works at all", || shared.at_work() == PLACES);
    let answer = ask(shared.gateway.address, &shared.gateway.chat_json(FAST));
    assert_eq!(answer.status(), 429, "{answer:?}");
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("This model is limited to 8 requests at one time"), "{message}");
}
