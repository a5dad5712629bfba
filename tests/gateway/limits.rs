//! Limits of requests, tokens, requests at one time and money, over HTTP: each at its edge.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::{
    Answer, Gateway, Recorder, ask, away_from_midnight, chat_model, connect, eventually, let_pass,
    poll, simulator,
};
use serde_json::{Value, json};
use tollgate::clock::{MS_PER_DAY, UnixMs};
use tollgate::money::Nanousd;

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// A gateway whose models `m` and `n` do chat, `c` messages and `e` embeddings at `upstream`.
/// `limits` goes into `routes.yaml`, `of_m` beside the prices of `m`.
fn gateway(upstream: SocketAddr, limits: &str, of_m: &str) -> Gateway {
    Gateway::serving(&upstreams(upstream, limits), &models(of_m))
}

fn upstreams(upstream: SocketAddr, limits: &str) -> String {
    format!(
        "  u: {{ protocol: openai, base_url: 'http://{upstream}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{upstream}' }}
  v: {{ protocol: voyage, base_url: 'http://{upstream}/v1' }}
{limits}"
    )
}

fn models(of_m: &str) -> String {
    let [m, n] = ["m", "n"].map(|name| chat_model(name, "u"));
    format!(
        "models:
{m}{of_m}
{n}
  c:
    operations: [messages]
    targets: [{{ upstream: a }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 10 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
  e:
    operations: [embeddings]
    targets: [{{ upstream: v }}]
    prices: {{ input_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 100000, batch_inputs_max: 2 }}
"
    )
}

/// Sends `count` such requests over as many threads as there are requests, all at a time.
fn burst(gateway: &Gateway, request: &[u8], count: usize) -> Vec<Answer> {
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..count).map(|_| scope.spawn(|| ask(gateway.address, request))).collect();
        calls.into_iter().map(|call| call.join().expect("no panic")).collect()
    })
}

fn statuses(answers: &[Answer]) -> HashMap<u16, usize> {
    let mut found = HashMap::new();
    for answer in answers {
        *found.entry(answer.status()).or_default() += 1;
    }
    found
}

fn number(answer: &Answer, header: &str) -> u64 {
    let value = answer.header(header).unwrap_or_else(|| panic!("no {header}: {}", answer.head()));
    value.trim_end_matches("ms").parse().unwrap_or_else(|_| panic!("{header}: {value}"))
}

fn code(answer: &Answer) -> String {
    answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// The value of this series in `/metrics`; 0 when there is none.
fn metric(gateway: &Gateway, series: &str) -> u64 {
    let text = gateway.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().expect("a number"))
}

/// The id of the gateway's first key.
fn key_id(gateway: &Gateway) -> String {
    let list = gateway.admin("GET", &keys(gateway), &Value::Null);
    list["data"][0]["id"].as_str().expect("an id").to_owned()
}

fn keys(gateway: &Gateway) -> String {
    format!("/admin/v1/accounts/{}/keys", gateway.account)
}

fn limit_key(gateway: &Gateway, limits: &Value) -> Value {
    let path = format!("/admin/v1/keys/{}", key_id(gateway));
    gateway.admin("PATCH", &path, &json!({"limits": limits}))["limits"].clone()
}

/// Another key of the gateway's account.
fn second_key(gateway: &Gateway, limits: &Value) -> String {
    let made = gateway.admin("POST", &keys(gateway), &json!({"name": "2", "limits": limits}));
    made["key"].as_str().expect("a key").to_owned()
}

fn with_key(gateway: &Gateway, key: &str, body: &str) -> Vec<u8> {
    let request = String::from_utf8(gateway.chat_json(body)).expect("text");
    request.replace(&gateway.key, key).into_bytes()
}

#[test]
fn exactly_the_limit_of_requests_passes_at_once() {
    let recorder = Recorder::start();
    const LIMIT: usize = 10;
    let of = |scope: &str| format!("rate_limits:\n  {scope}: {{ requests_per_minute: {LIMIT} }}\n");
    let of_model = format!("    rate_limits: {{ requests_per_minute: {LIMIT} }}");
    for (scope, whose, limits, of_m) in [
        ("key", "This API key", of("key"), ""),
        ("account", "This account", of("account"), ""),
        ("model", "This model", String::new(), of_model.as_str()),
    ] {
        let gateway = gateway(recorder.address, &limits, of_m);
        let before = recorder.requests().len();
        let answers = burst(&gateway, &gateway.chat_json(GOOD), LIMIT + 20);
        let expected = HashMap::from([(200, LIMIT), (429, 20)]);
        assert_eq!(statuses(&answers), expected, "{scope}");
        assert_eq!(recorder.requests().len() - before, LIMIT, "{scope}: refused ones stay here");
        for answer in &answers {
            assert_eq!(number(answer, "x-ratelimit-limit-requests"), LIMIT as u64);
            assert!(answer.header("x-ratelimit-limit-tokens").is_none(), "{scope}: no such limit");
        }
        let mut left: Vec<u64> = answers
            .iter()
            .filter(|answer| answer.status() == 200)
            .map(|answer| number(answer, "x-ratelimit-remaining-requests"))
            .collect();
        left.sort_unstable();
        assert_eq!(left, (0..LIMIT as u64).collect::<Vec<_>>(), "{scope}: each took one");
        for refused in answers.iter().filter(|answer| answer.status() == 429) {
            assert_eq!(code(refused), "rate_limit_exceeded", "{scope}");
            let message = refused.json()["error"]["message"].to_string();
            assert!(
                message.contains(whose) && message.contains("10 requests a minute"),
                "{message}"
            );
            let wait = number(refused, "retry-after-ms");
            assert!((1..=6000).contains(&wait), "{scope}: one comes back each 6 s, not {wait}");
            assert_eq!(number(refused, "retry-after"), wait.div_ceil(1000), "{scope}");
            assert_eq!(number(refused, "x-ratelimit-remaining-requests"), 0, "{scope}");
            assert!(refused.header("x-should-retry").is_none(), "{scope}: SDKs may come again");
            let reset = number(refused, "x-ratelimit-reset-requests");
            assert!((54_000..=60_000).contains(&reset), "{scope}: {reset} ms until all are back");
        }
        let labels = format!("{{limit=\"requests\",model=\"m\",scope=\"{scope}\"}}");
        let series = format!("tollgate_rate_limited_total{labels}");
        // A request is counted behind its answer.
        eventually("all are counted", || metric(&gateway, &series) >= 20);
        assert_eq!(metric(&gateway, &series), 20);
        // Who else is not limited by it.
        let second = second_key(&gateway, &Value::Null);
        let stranger = gateway.stranger();
        let (other_key, stranger, other_model) = (
            ask(gateway.address, &with_key(&gateway, &second, GOOD)).status(),
            ask(gateway.address, &with_key(&gateway, &stranger, GOOD)).status(),
            ask(gateway.address, &gateway.chat_json(GOOD.replace("\"m\"", "\"n\""))).status(),
        );
        // A stranger without money gets past the limits, to a 402.
        let expected = match scope {
            "key" => (200, 402, 429),
            "account" => (429, 402, 429),
            _ => (429, 429, 200),
        };
        assert_eq!((other_key, stranger, other_model), expected, "{scope}");
        assert_eq!(gateway.settled()["held"], "0.00", "{scope}");
    }
}

#[test]
fn requests_pass_after_retry_after_and_not_before() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    let limits = limit_key(&gateway, &json!({"requests_per_minute": 30}));
    assert_eq!(limits["requests_per_minute"], 30);
    let request = gateway.chat_json(GOOD);
    let answers = burst(&gateway, &request, 40);
    let refused = answers.iter().filter(|answer| answer.status() == 429).count();
    assert!(refused >= 9, "{:?}", statuses(&answers));
    let mut stream = connect(gateway.address);
    let mut turn = || {
        stream.write_all(&request).expect("sent");
        read_answer(&mut stream)
    };
    for _ in 0..3 {
        let refused = turn();
        let started = Instant::now();
        assert_eq!(refused.status(), 429);
        let wait = Duration::from_millis(number(&refused, "retry-after-ms"));
        let early = wait.saturating_sub(Duration::from_millis(100));
        let_pass(early.saturating_sub(started.elapsed()), "not yet as long as the answer says");
        if started.elapsed() < wait.saturating_sub(Duration::from_millis(30)) {
            assert_eq!(turn().status(), 429, "too early, of {wait:?}");
        }
        let_pass(wait.saturating_sub(started.elapsed()), "as long as the answer says");
        assert_eq!(turn().status(), 200, "after {:?} of {wait:?}", started.elapsed());
    }
}

/// One answer over a connection that stays open.
fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut answer = Answer::default();
    let mut chunk = [0; 4096];
    while !answer.is_whole() {
        let count = stream.read(&mut chunk).expect("an answer");
        assert!(count > 0, "the connection closed: {answer:?}");
        answer.bytes.extend_from_slice(&chunk[..count]);
    }
    answer
}

#[test]
fn tokens_are_counted_when_a_request_comes_and_corrected_when_it_is_over() {
    // Each answer is billed with 5 tokens of input and 3000 of output, whatever it says.
    let sim = simulator(&["usage=prompt=5,completion=900"]);
    let gateway = gateway(sim.addr(), "rate_limits:\n  key: { tokens_per_minute: 1000 }\n", "");
    let request = gateway.chat_json(GOOD);
    let first = ask(gateway.address, &request);
    assert_eq!(first.status(), 200, "{first:?}");
    let estimate = 1000 - number(&first, "x-ratelimit-remaining-tokens");
    assert!((1..80).contains(&estimate), "about {} bytes are {estimate} tokens", GOOD.len());
    // 905 were used, and some 17 a second come back.
    gateway.settled();
    let second = ask(gateway.address, &request);
    let left = number(&second, "x-ratelimit-remaining-tokens");
    let most = 1000 - 905 - estimate;
    assert_eq!(second.status(), 200);
    assert!((most..most + 30).contains(&left), "{left} are left of {most}");
    gateway.settled();
    // The second one's output made a debt of some 800.
    let refused = ask(gateway.address, &request);
    assert_eq!((refused.status(), code(&refused).as_str()), (429, "rate_limit_exceeded"));
    let wait = number(&refused, "retry-after-ms");
    assert!((45_000..55_000).contains(&wait), "810 + {estimate} tokens of 1000 a minute: {wait}");
    assert_eq!(number(&refused, "x-ratelimit-remaining-tokens"), 0);
    let labels = "{limit=\"tokens\",model=\"m\",scope=\"key\"}";
    assert_eq!(metric(&gateway, &format!("tollgate_rate_limited_total{labels}")), 1);

    // What cannot ever pass is told so.
    let long = GOOD.replace("hi", &"hi ".repeat(3000));
    let never = ask(gateway.address, &gateway.chat_json(long));
    assert_eq!(never.status(), 429, "{never:?}");
    assert_eq!(never.header("x-should-retry").as_deref(), Some("false"));
    assert!(never.header("retry-after").is_none(), "no wait helps: {}", never.head());

    // The estimate of this is above the limit, and what it comes to is not.
    let text =
        "The committee met on Tuesday to discuss the new budget for the coming year. ".repeat(32);
    let roomy = simulator(&["usage=prompt=600,completion=5"]);
    let gateway =
        self::gateway(roomy.addr(), "rate_limits:\n  key: { tokens_per_minute: 1000 }\n", "");
    let long = ask(gateway.address, &gateway.chat_json(GOOD.replace("hi", &text)));
    assert_eq!(long.status(), 200, "{} letters: {long:?}", text.len());
    gateway.settled();
    let next = ask(gateway.address, &gateway.chat_json(GOOD));
    assert_eq!(next.status(), 200, "what it did not use is back: {next:?}");
    let left = number(&next, "x-ratelimit-remaining-tokens");
    assert!((300..420).contains(&left), "1000 less 600 and a little: {left}");

    // Requests that cost no tokens give theirs back.
    let failing = simulator(&["fault=status=500"]);
    let gateway =
        self::gateway(failing.addr(), "rate_limits:\n  key: { tokens_per_minute: 100 }\n", "");
    for round in 0..12 {
        let answer = ask(gateway.address, &gateway.chat_json(GOOD));
        assert_eq!(answer.status(), 502, "round {round}: {answer:?}");
    }
}

#[test]
fn a_place_is_free_again_however_a_request_ends() {
    let sim = simulator(&["chunks=1000", "interval-ms=20", "words=1"]);
    let gateway = gateway(sim.addr(), "rate_limits:\n  key: { concurrent_requests: 2 }\n", "");
    let open = || {
        let mut stream = connect(gateway.address);
        stream.write_all(&gateway.chat_json(STREAM)).expect("sent");
        let mut first = [0; 256];
        let count = stream.read(&mut first).expect("the answer begins");
        let head = String::from_utf8_lossy(&first[..count]).into_owned();
        (stream, head)
    };
    let (first, head) = open();
    let (second, _) = open();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for _ in 0..5 {
        let refused = ask(gateway.address, &gateway.chat_json(STREAM));
        assert_eq!((refused.status(), code(&refused).as_str()), (429, "ConcurrencyExceeded"));
        assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
        assert!(refused.header("x-should-retry").is_none());
    }
    let labels = "{limit=\"concurrency\",model=\"m\",scope=\"key\"}";
    assert_eq!(metric(&gateway, &format!("tollgate_rate_limited_total{labels}")), 5);
    drop(first);
    let (third, head) = until_free(open);
    assert!(head.starts_with("HTTP/1.1 200"), "the place of the one who hung up: {head}");
    drop((second, third));
    gateway.settled();

    // One after the other needs one place, over one connection or many, whatever the answer.
    let one_place = "rate_limits:\n  account: { concurrent_requests: 1 }\n";
    let sim = simulator(&[]);
    let gateway = self::gateway(sim.addr(), one_place, "");
    for round in 0..100 {
        let body = if round % 2 == 0 { GOOD } else { STREAM };
        let answer = ask_closing(&gateway, body);
        assert_eq!(answer.status(), 200, "round {round}: {answer:?}");
    }
    for round in 0..50 {
        // Clients leave at the last event, before the response has ended.
        let mut stream = connect(gateway.address);
        stream.write_all(&gateway.chat_json(STREAM)).expect("sent");
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains("[DONE]") {
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).expect("a stream");
            assert!(count > 0, "round {round}: {}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&chunk[..count]);
        }
    }
    let mut stream = connect(gateway.address);
    for round in 0..50 {
        stream.write_all(&gateway.chat_json(GOOD)).expect("sent");
        assert_eq!(read_answer(&mut stream).status(), 200, "round {round}");
    }
    for fault in ["status=500", "reset", "garbage", "status=400", "cut-after=0"] {
        let failing = simulator(&[&format!("fault={fault}")]);
        let gateway = self::gateway(failing.addr(), one_place, "");
        for round in 0..5 {
            let answer = ask(gateway.address, &gateway.chat_json(GOOD));
            assert_ne!(answer.status(), 429, "{fault} {round}: {answer:?}");
            assert_ne!(answer.status(), 0, "{fault} {round}: no answer");
        }
    }
}

/// Esc, and again: what the upstream still works at is nobody's second request.
#[test]
fn a_customer_who_hangs_up_has_its_place_back_while_the_upstream_is_read_on() {
    let sim = simulator(&["chunks=100", "interval-ms=100"]);
    let one_place = "rate_limits:\n  key: { concurrent_requests: 1 }\n";
    // A model that may think: the upstream is read on for what that costs.
    let models = models("").replace("reasoning: false", "reasoning: true");
    let gateway = Gateway::serving(&upstreams(sim.addr(), one_place), &models);
    let open = || {
        let mut stream = connect(gateway.address);
        stream.write_all(&gateway.chat_json(STREAM)).expect("sent");
        let mut first = [0; 256];
        let count = stream.read(&mut first).expect("the answer begins");
        (stream, String::from_utf8_lossy(&first[..count]).into_owned())
    };
    let orphans = || gateway.metric("tollgate_orphans");
    let (first, head) = open();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(open().1.starts_with("HTTP/1.1 429"), "one at a time");
    drop(first);
    let (second, head) = until_free(open);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(orphans() >= 1.0, "the first is read on");
    // As many go on without a customer as there are places: the next one keeps its own.
    drop(second);
    crate::harness::eventually("two are read on", || orphans() >= 2.0);
    assert!(open().1.starts_with("HTTP/1.1 429"), "twice the limit is at work");
}

/// One request over a connection of its own, without waiting for what comes behind the answer.
fn ask_closing(gateway: &Gateway, body: &str) -> Answer {
    let mut stream = connect(gateway.address);
    stream.write_all(&gateway.chat_json(body)).expect("sent");
    read_answer(&mut stream)
}

/// Tries until the answer is not a 429: a hang-up is seen a moment later.
fn until_free<T>(open: impl Fn() -> (T, String)) -> (T, String) {
    poll("a place becomes free", Duration::from_secs(5), || {
        let (stream, head) = open();
        if head.starts_with("HTTP/1.1 429") { Err(head) } else { Ok((stream, head)) }
    })
}

/// Streams whose upstream is called without Pingora are limited like others.
#[test]
fn streams_that_are_kept_alive_are_limited_too() {
    let sim = simulator(&["delay-ms=150"]);
    let limits = "rate_limits:\n  key: { requests_per_minute: 50, concurrent_requests: 1 }\n";
    let keep_alive = "  sse_keepalive: 50ms\n";
    let gateway = Gateway::limited(keep_alive, &upstreams(sim.addr(), limits), &models(""));
    for round in 0..10 {
        let answer = ask_closing(&gateway, STREAM);
        assert_eq!(answer.status(), 200, "round {round}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert!(text.contains(": keep-alive") && text.contains("[DONE]"), "{text}");
        assert_eq!(number(&answer, "x-ratelimit-limit-requests"), 50);
    }
    let answers = burst(&gateway, &gateway.chat_json(STREAM), 5);
    assert_eq!(statuses(&answers), HashMap::from([(200, 1), (429, 4)]));
    let left = number(&answers[0], "x-ratelimit-remaining-requests");
    assert!((37..50).contains(&left), "refused ones are not counted: {left}");
}

#[test]
fn every_kind_of_answer_says_how_the_limits_stand() {
    let sim = simulator(&[]);
    let limits = "rate_limits:
  key: { requests_per_minute: 100, tokens_per_minute: 100000 }
  account: { requests_per_minute: 1000 }
";
    let gateway = gateway(sim.addr(), limits, "");
    let embeddings = json!({"model": "e", "input": ["a", "b", "c", "d", "e"]}).to_string();
    let messages =
        json!({"model": "c", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
    let length = |body: &str| format!("Content-Length: {}\r\n", body.len());
    let mut request_count = 0;
    for request in [
        gateway.chat_json(GOOD),
        gateway.chat_json(STREAM),
        gateway.post("/v1/embeddings", &length(&embeddings), &embeddings),
        gateway.post("/v1/messages", &length(&messages.to_string()), messages.to_string()),
        gateway.chat("Content-Length: 57\r\nx-sim-fault: status=500\r\n", GOOD),
    ] {
        let answer = ask(gateway.address, &request);
        request_count += 1;
        assert_eq!(number(&answer, "x-ratelimit-limit-requests"), 100, "{answer:?}");
        let left = number(&answer, "x-ratelimit-remaining-requests");
        // One comes back each 600 ms.
        assert!((100 - request_count..=100).contains(&left), "{left} after {request_count}");
        assert_eq!(number(&answer, "x-ratelimit-limit-tokens"), 100_000);
        assert!(number(&answer, "x-ratelimit-remaining-tokens") > 90_000);
        assert!(number(&answer, "x-ratelimit-reset-tokens") > 0);
    }
    // What is wrong is not counted, and neither is what is answered here.
    for request in [gateway.chat_json("{"), gateway.get("/v1/models")] {
        assert!(ask(gateway.address, &request).header("x-ratelimit-limit-requests").is_none());
    }
    limit_key(&gateway, &json!({"concurrent_requests": 1, "tokens_per_minute": 1}));
    let refused =
        gateway.post("/v1/messages", &length(&messages.to_string()), messages.to_string());
    let refused = ask(gateway.address, &refused);
    assert_eq!(refused.status(), 429);
    let error = &refused.json()["error"];
    assert_eq!(error["type"], "rate_limit_error", "in Anthropic's words: {error}");
    assert_eq!(error["details"]["error_code"], "rate_limit_exceeded");
}

#[test]
fn limits_of_keys_and_accounts_stand_above_the_defaults_and_survive_a_restart() {
    let recorder = Recorder::start();
    let defaults = "rate_limits:\n  key: { requests_per_minute: 5 }\n";
    let mut gateway = gateway(recorder.address, defaults, "");
    let of_account = format!("/admin/v1/accounts/{}", gateway.account);
    let passed = |gateway: &Gateway, count| {
        let request = gateway.chat_json(GOOD);
        burst(gateway, &request, count).iter().filter(|answer| answer.status() == 200).count()
    };
    limit_key(&gateway, &json!({"requests_per_minute": 12}));
    let account = json!({"limits": {"requests_per_minute": 9, "tokens_per_minute": 1000000}});
    let shown = gateway.admin("PATCH", &of_account, &account)["limits"].clone();
    assert_eq!(
        shown,
        json!({"requests_per_minute": 9, "tokens_per_minute": 1000000, "concurrent_requests": null})
    );
    assert_eq!(passed(&gateway, 20), 9, "the account's, for all its keys together");
    let second = second_key(&gateway, &json!({"requests_per_minute": 2}));
    assert_eq!(ask(gateway.address, &with_key(&gateway, &second, GOOD)).status(), 429);

    gateway.kill_and_restart();
    assert_eq!(gateway.admin("GET", &of_account, &Value::Null)["limits"], shown);
    let request = with_key(&gateway, &second, GOOD);
    let of_second = burst(&gateway, &request, 10);
    assert_eq!(statuses(&of_second)[&200], 2, "the key's own, also after a restart");
    let account = json!({"limits": {"requests_per_minute": null}});
    gateway.admin("PATCH", &of_account, &account);
    assert_eq!(passed(&gateway, 20), 12, "the first key's own");
    limit_key(&gateway, &json!({"requests_per_minute": null}));
    assert_eq!(passed(&gateway, 3), 0, "5 by default, and 12 were used");
    let third = second_key(&gateway, &Value::Null);
    let request = with_key(&gateway, &third, GOOD);
    assert_eq!(statuses(&burst(&gateway, &request, 10))[&200], 5, "the default");

    for (limits, param) in [
        (json!({"requests_per_minute": 0}), "limits.requests_per_minute"),
        (json!({"tokens_per_minute": -1}), "limits.tokens_per_minute"),
        (json!({"spend_per_day": "0"}), "limits.spend_per_day"),
        (json!({"spend_per_day": 1.5}), "limits.spend_per_day"),
        (json!({"spend_per_year": "1"}), "spend_per_year"),
    ] {
        let (status, answer) =
            gateway.try_admin("POST", &keys(&gateway), &json!({"name": "x", "limits": limits}));
        assert_eq!(status, 400, "{limits}: {answer}");
        assert_eq!(answer["error"]["param"], param, "{answer}");
    }
}

#[test]
fn a_reload_changes_limits_and_keeps_what_was_used() {
    let recorder = Recorder::start();
    let limits = "rate_limits:\n  key: { requests_per_minute: 10 }\n  account: { requests_per_minute: 100 }\n";
    let gateway = gateway(recorder.address, limits, "");
    let routes = gateway.path("routes.yaml");
    let reload = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&routes).expect("the file");
        std::fs::write(&routes, text.replace(from, to)).expect("written");
        gateway.admin("POST", "/admin/v1/reload", &Value::Null);
    };
    let request = gateway.chat_json(GOOD);
    let passed = |count| {
        burst(&gateway, &request, count).iter().filter(|answer| answer.status() == 200).count()
    };
    assert_eq!(passed(8), 8);
    reload("account: { requests_per_minute: 100 }", "account: { requests_per_minute: 50 }");
    // On a slow machine some come back meanwhile: one of the key's each 6 s.
    let more = passed(8);
    assert!((2..=3).contains(&more), "8 of 10 were used, and the limit is what it was: {more}");
    reload("key: { requests_per_minute: 10 }", "key: { requests_per_minute: 20 }");
    let more = passed(20);
    assert!((9..=13).contains(&more), "10 of 20 were used: {more}");
    reload("key: { requests_per_minute: 20 }", "key: {}");
    assert_eq!(passed(20), 20, "no limit any more but the account's");
    let left = passed(20);
    assert!((6..=17).contains(&left), "40 of the account's 50 were used: {left}");
}

/// Dollars in nano-dollars.
fn nanousd(value: &Value) -> i64 {
    value.as_str().expect("a text").parse::<Nanousd>().expect("dollars").get()
}

#[test]
fn a_key_never_spends_more_than_it_may_also_across_crashes() {
    away_from_midnight(Duration::from_secs(30));
    // Each answer costs 5 × $0.000001 + 100 × $0.00001, and is held with at most 110 tokens more.
    let sim = simulator(&["usage=prompt=5,completion=100", "delay-ms=30"]);
    let mut gateway = gateway(sim.addr(), "", "");
    let limits = limit_key(&gateway, &json!({"spend_per_day": "0.02", "spend_per_month": "5"}));
    assert_eq!(
        (&limits["spend_per_day"], &limits["spend_per_month"]),
        (&json!("0.02"), &json!("5.00"))
    );
    let body = GOOD.replace("\"messages\"", "\"max_tokens\":110,\"messages\"");
    let limit = nanousd(&json!("0.02"));
    let mut answers = Vec::new();
    for round in 0..3 {
        let request = gateway.chat_json(&body);
        answers = burst(&gateway, &request, 100);
        let found = statuses(&answers);
        assert!(found.keys().all(|status| [200, 429].contains(status)), "{found:?}");
        let spent = nanousd(&gateway.settled()["spent"]);
        assert!(spent <= limit, "round {round}: {spent} of {limit}");
        if round == 1 {
            // Die with calls in flight, too.
            let calls: Vec<_> = (0..5)
                .map(|_| {
                    let mut stream = connect(gateway.address);
                    stream.write_all(&request).expect("sent");
                    stream
                })
                .collect();
            let_pass(Duration::from_millis(15), "half of what the upstream takes: some are there");
            gateway.kill_and_restart();
            drop(calls);
        }
    }
    let spent = nanousd(&gateway.settled()["spent"]);
    assert!(limit - spent < 1_300_000, "all that fits was spent: {spent} of {limit}");
    let refused = answers.iter().filter(|answer| answer.status() == 429).collect::<Vec<_>>();
    assert!(refused.len() >= 95, "little was left: {:?}", statuses(&answers));
    gateway.kill_and_restart();
    let refused = ask(gateway.address, &gateway.chat_json(&body));
    assert_eq!((refused.status(), code(&refused).as_str()), (429, "rate_limit_exceeded"));
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("$0.02 a day") && message.contains("T00:00:00Z"), "{message}");
    let left = (MS_PER_DAY - UnixMs::now().0 % MS_PER_DAY) / 1000;
    let wait = number(&refused, "retry-after");
    assert!((left..=left + 2).contains(&wait), "{wait} s until midnight, not {left}");
    if wait > 60 {
        assert_eq!(refused.header("x-should-retry").as_deref(), Some("false"));
    }
    let labels = "{limit=\"spend\",model=\"m\",scope=\"key\"}";
    assert_eq!(metric(&gateway, &format!("tollgate_rate_limited_total{labels}")), 1);
    let second = second_key(&gateway, &json!({"spend_per_day": "0.0000001"}));
    let never = ask(gateway.address, &with_key(&gateway, &second, &body));
    assert_eq!(never.status(), 429);
    assert!(never.header("retry-after").is_none(), "it never fits: {}", never.head());
    assert_eq!(never.header("x-should-retry").as_deref(), Some("false"));

    limit_key(&gateway, &json!({"spend_per_day": "0.03"}));
    assert_eq!(ask(gateway.address, &gateway.chat_json(&body)).status(), 200, "a higher limit");
    gateway.settled();
    gateway.kill();
    let verified = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["ledger", "verify", "--data"])
        .arg(gateway.path("data"))
        .output()
        .expect("the binary runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn a_stream_that_reaches_what_its_key_may_spend_is_cut() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    limit_key(&gateway, &json!({"spend_per_month": "0.01"}));
    let body = STREAM.replace("\"messages\"", "\"max_tokens\":10,\"messages\"");
    // Each event is worth some $0.04, and there is no end of them.
    let answer = ask(gateway.address, &gateway.chat_json(body));
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    assert!(text.contains("rate_limit_exceeded") && text.contains("may spend no more"), "{text}");
    let spent = nanousd(&gateway.settled()["spent"]);
    assert!(spent <= 10_000_000, "{spent} nano-dollars");
}

#[test]
fn a_submit_is_one_request_and_holds_no_place_afterwards() {
    let sim = simulator(&["task-running-ms=60000"]);
    let upstreams = format!(
        "  ark: {{ protocol: ark, base_url: 'http://{}' }}
rate_limits:
  key: {{ requests_per_minute: 4, tokens_per_minute: 10, concurrent_requests: 1 }}
",
        sim.addr()
    );
    let models = "models:
  video:
    operations: [video]
    targets: [{ upstream: ark }]
    prices: { output_per_1m_tokens: 1 }
    limits: { resolutions: [480p, 720p], seconds_max: 10, output_tokens_max: 1000000 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let request = |round: u32| {
        let text = format!("{round} cats ").repeat(50);
        let body = json!({"model": "video", "content": [{"type": "text", "text": text}]});
        let body = body.to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        gateway.post("/v1/videos/generations", &lines, &body)
    };
    for round in 0..4 {
        let answer = ask(gateway.address, &request(round));
        assert!((200..300).contains(&answer.status()), "round {round}: {answer:?}");
        assert_eq!(number(&answer, "x-ratelimit-remaining-requests"), 3 - u64::from(round));
    }
    let refused = ask(gateway.address, &request(4));
    assert_eq!((refused.status(), code(&refused).as_str()), (429, "rate_limit_exceeded"));
}
