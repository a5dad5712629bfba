//! Calls that cost nothing hurt nobody: their failures shut no paid call, and nobody floods an upstream
//! with them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Act, Answer, Gateway, Recorded, Responder, Scripted, ask, eventually};

/// Faults of the secondary endpoint at the upstream.
const FAULTS: [&str; 7] = ["429", "500", "529", "503", "403", "401", "reset"];

/// A way in: the operation of its models, the upstream's protocol and base path, where the paid call goes,
/// where the other one does, and an answer to the paid call.
struct Door {
    operation: &'static str,
    upstream: &'static str,
    paid: &'static str,
    other: &'static str,
    answer: &'static str,
    /// True if accounts without money can make the other call.
    is_free: bool,
}

const RESPONSE: &str = r#"{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hi","annotations":[]}]}],"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":6}}"#;
const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}"#;
const CONTENT: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":1,"totalTokenCount":6},"modelVersion":"m"}"#;

const DOORS: [Door; 4] = [
    Door {
        operation: "messages",
        upstream: "protocol: anthropic, base_url: 'http://AT'",
        paid: "/v1/messages",
        other: "/v1/messages/count_tokens",
        answer: MESSAGE,
        is_free: true,
    },
    Door {
        operation: "generate_content",
        upstream: "protocol: gemini, base_url: 'http://AT/v1beta'",
        paid: "/v1beta/models/MODEL:generateContent",
        other: "/v1beta/models/MODEL:countTokens",
        answer: CONTENT,
        is_free: true,
    },
    Door {
        operation: "responses",
        upstream: "protocol: openai, base_url: 'http://AT/v1'",
        paid: "/v1/responses",
        other: "/v1/responses/input_tokens",
        answer: RESPONSE,
        is_free: true,
    },
    Door {
        operation: "responses",
        upstream: "protocol: openai, base_url: 'http://AT/v1'",
        paid: "/v1/responses",
        other: "/v1/responses/compact",
        answer: RESPONSE,
        is_free: false,
    },
];

fn answer(status: u16, lines: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         {lines}\r\n{body}"
    )
    .into_bytes()
}

/// Upstream answer of a failing count or other call.
fn failing(fault: &str) -> Act {
    let status: u16 = fault.parse().unwrap_or(0);
    let lines = if status == 429 { "retry-after: 60\r\n" } else { "" };
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        0 => return Act::CloseRead,
        _ => "api_error",
    };
    let body = json!({"type": "error", "error": {"type": kind, "message": "no", "code": kind}});
    Act::Answer(answer(status, lines, &body.to_string()))
}

/// A gateway over one upstream with a model for each fault, whose calls other than the main ones fail as
/// its model says.
fn gateway(door: &'static Door, limits: &str, more: &str) -> (Gateway, Arc<Mutex<&'static str>>) {
    let fault = Arc::new(Mutex::new(""));
    let current = Arc::clone(&fault);
    let is_other = if door.operation == "generate_content" { ":countTokens" } else { door.other };
    let up = Scripted::start(None, move |_, _, begun: &str| {
        let fault = *current.lock().expect("no poison");
        let path = begun.split(' ').nth(1).unwrap_or_default();
        match path.contains(is_other) {
            true if fault.is_empty() => Act::Answer(answer(
                200,
                "",
                r#"{"object":"response.input_tokens","input_tokens":5,"totalTokens":5}"#,
            )),
            true => failing(fault),
            false => Act::Answer(answer(200, "", door.answer)),
        }
    });
    let upstream = door.upstream.replace("AT", &up.address.to_string());
    let upstreams = format!(
        "  a: {{ {upstream}, credential: sk-operator }}\nbalancing: {{ circuit: {{ open: 1m }} }}\n{more}"
    );
    let models: String = FAULTS
        .iter()
        .map(|fault| {
            format!(
                "  m-{fault}:
    operations: [{}]
    targets: [{{ upstream: a, model: real-{fault} }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 10000, output_tokens_max: 100 }}
    reasoning: false\n",
                door.operation
            )
        })
        .collect();
    (Gateway::limited(limits, &upstreams, &format!("models:\n{models}")), fault)
}

fn body(path: &str, model: &str, text: &str) -> Value {
    let user = json!([{"role": "user", "content": text}]);
    match path {
        "/v1/messages" => json!({"model": model, "max_tokens": 10, "messages": user}),
        "/v1/messages/count_tokens" => json!({"model": model, "messages": user}),
        _ if path.starts_with("/v1beta") => {
            json!({"contents": [{"role": "user", "parts": [{"text": text}]}]})
        }
        "/v1/responses" => {
            json!({"model": model, "input": text, "store": false, "max_output_tokens": 100})
        }
        _ => json!({"model": model, "input": text}),
    }
}

fn call(gateway: &Gateway, key: &str, path: &str, model: &str) -> Answer {
    call_with(gateway, key, path, model, "hi")
}

fn call_with(gateway: &Gateway, key: &str, path: &str, model: &str, text: &str) -> Answer {
    let (body, path) = (body(path, model, text).to_string(), path.replace("MODEL", model));
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
         Anthropic-Version: 2023-06-01\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    ask(gateway.address, &[head.as_bytes(), body.as_bytes()].concat())
}

fn target(gateway: &Gateway, model: &str) -> Value {
    let all = gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
    let targets = all["upstreams"][0]["targets"].as_array().expect("targets").clone();
    targets.into_iter().find(|target| target["model"] == model).expect("the target")
}

/// Three accounts without money, or with some where a call costs some, do what brings faults about. The
/// paying account's calls, before, meanwhile and after, are served.
#[test]
fn failures_of_free_and_separate_endpoints_shut_no_paid_call() {
    for door in &DOORS {
        let (gateway, fault) = gateway(door, "", "");
        let money = (!door.is_free).then_some("1.00");
        let hostile = ["one", "two", "three"].map(|name| gateway.customer(name, money));
        for name in &FAULTS {
            let model = format!("m-{name}");
            *fault.lock().expect("no poison") = name;
            for round in 0..6 {
                for key in &hostile {
                    let answer = call(&gateway, key, door.other, &model);
                    assert!(answer.status() >= 400, "{} {name}: {answer:?}", door.other);
                }
                let paid = call(&gateway, &gateway.key, door.paid, &model);
                assert_eq!(paid.status(), 200, "{} {name}, round {round}: {paid:?}", door.other);
            }
            let target = target(&gateway, &model);
            assert_eq!(target["state"], "ready", "{name}: {target}");
            let shut = target["shut_kinds"].as_array().expect("kinds");
            let state = match *name {
                "429" => "busy",
                // An overload without a time has others come first, and shuts nothing.
                "529" => continue,
                _ => "open",
            };
            assert_eq!(shut.len(), 1, "its own kind is shut, {} {name}: {target}", door.other);
            assert_eq!(shut[0]["state"], state, "{name}: {target}");
            let kind = if door.is_free { "token_count" } else { "compact" };
            assert_eq!(shut[0]["kind"], kind, "{name}: {target}");
            // An account that has made no count before is not sent into what is shut for all.
            let late = call(&gateway, &gateway.key, door.other, &model);
            assert!(late.status() >= 400, "{name}: {late:?}");
            if *name == "429" {
                assert!(late.header("retry-after").is_some(), "{late:?}");
            }
        }
        gateway.settled();
    }
}

/// An account without money cannot flood an upstream: it has a rate, all have one together, and neither
/// concerns what is paid for.
#[test]
fn a_flood_of_counts_is_bounded_by_account_and_by_upstream() {
    let limits =
        "  free_calls: { account_requests_per_minute: 60, upstream_requests_per_minute: 100 }\n";
    let (gateway, _fault) = gateway(&DOORS[0], limits, "");
    let hostile = ["one", "two"].map(|name| gateway.customer(name, None));
    let flood = |key: &str| {
        let statuses: Vec<u16> = (0..150)
            .map(|_| {
                let answer = call(&gateway, key, DOORS[0].other, "m-429");
                if answer.status() == 429 {
                    let seconds = answer.header("retry-after").expect("a time");
                    assert!(
                        (1..=60).contains(&seconds.parse::<u32>().expect("seconds")),
                        "{seconds}"
                    );
                    assert_eq!(answer.json()["error"]["type"], "rate_limit_error", "{answer:?}");
                }
                answer.status()
            })
            .collect();
        statuses.iter().filter(|status| **status == 200).count()
    };
    // A quarter of what it has and what is free, together: a third of what is free.
    assert_eq!(flood(&hostile[0]), 25);
    assert_eq!(flood(&hostile[1]), 19, "each that comes leaves the same part of the rest");
    let other = gateway.customer("other", None);
    for _ in 0..10 {
        let count = call(&gateway, &other, DOORS[0].other, "m-429");
        assert_eq!(count.status(), 200, "another account's counts are served: {count:?}");
    }
    let paid = call(&gateway, &gateway.key, DOORS[0].paid, "m-429");
    assert_eq!(paid.status(), 200, "{paid:?}");
    assert_eq!(target(&gateway, "m-429")["state"], "ready");
    let shed = |reason: &str| {
        gateway.metric(&format!("tollgate_requests_shed_total{{reason=\"{reason}\"}}"))
    };
    assert!(
        shed("account_free_calls") >= 80.0 && shed("free_calls") >= 1.0,
        "{}",
        gateway.metrics()
    );
}

/// Counts at one time: an upstream gets as many as its limit, of one account a share, and an account with
/// few counts is before those with many. A burst waits, and is served.
#[test]
fn counts_at_one_time_are_bounded_and_shared() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&starts);
    let pause = Duration::from_millis(200);
    let up = Scripted::start(None, move |_, _, _: &str| {
        log.lock().expect("no poison").push(Instant::now());
        let answer = answer(200, "", r#"{"input_tokens":5}"#);
        let (head, rest) = answer.split_at(20);
        Act::Pieces(vec![head.to_vec(), rest.to_vec()], pause)
    });
    let upstreams = format!("  a: {{ protocol: anthropic, base_url: 'http://{}' }}\n", up.address);
    let models = "models:
  m:
    operations: [messages]
    targets: [{ upstream: a }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
    reasoning: false\n";
    let limits = "  free_calls: { upstream_concurrent_requests: 8, account_percent: 50 }\n";
    let gateway = Gateway::limited(limits, &upstreams, models);
    let hostile = ["one", "two"].map(|name| gateway.customer(name, None));
    let other = gateway.customer("other", None);
    std::thread::scope(|scope| {
        let counts: Vec<_> = (0..60)
            .map(|at| {
                let key = &hostile[at % 2];
                scope.spawn(|| call(&gateway, key, "/v1/messages/count_tokens", "m").status())
            })
            .collect();
        let in_flight = || gateway.metric("tollgate_requests_in_flight");
        eventually("a burst waits", || in_flight() >= 30.0);
        let began = Instant::now();
        let answer = call(&gateway, &other, "/v1/messages/count_tokens", "m");
        assert_eq!(answer.status(), 200, "{answer:?}");
        let took = began.elapsed();
        assert!(took < Duration::from_millis(1500), "before those with many: {took:?}");
        for count in counts {
            assert_eq!(count.join().expect("joined"), 200, "a burst is served in turn");
        }
    });
    let starts = starts.lock().expect("no poison");
    let within = |at: &Instant| {
        let under_way = |other: &&Instant| *other <= at && *at - **other < pause;
        starts.iter().filter(under_way).count()
    };
    let most = starts.iter().map(within).max().expect("counts");
    assert!(most <= 8, "{most} at one time");
    assert!(most >= 4, "and not one after the other: {most}");
}

/// Counts count as requests of their key, account and model.
#[test]
fn counts_count_as_requests_a_minute() {
    for scope in ["key", "account"] {
        let more = format!("rate_limits: {{ {scope}: {{ requests_per_minute: 3 }} }}\n");
        let (gateway, _fault) = gateway(&DOORS[0], "", &more);
        for count in 0..3 {
            let answer = call(&gateway, &gateway.key, DOORS[0].other, "m-429");
            assert_eq!(answer.status(), 200, "{count}: {answer:?}");
        }
        for path in [DOORS[0].other, DOORS[0].paid] {
            let answer = call(&gateway, &gateway.key, path, "m-429");
            assert_eq!(answer.status(), 429, "{scope} {path}: {answer:?}");
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
        }
    }
}

/// A limit for long prompts that two accounts meet keeps long prompts away, and no short one.
#[test]
fn a_limit_of_long_prompts_is_no_limit_of_short_ones() {
    let up = Responder::start(|_, request: &Recorded| {
        let (status, lines, body) = if request.body.len() > 100_000 {
            let words = "This request would exceed your rate limit for long context requests.";
            let error = json!({"type": "rate_limit_error", "message": words});
            (429, "retry-after: 60\r\n", json!({"type": "error", "error": error}).to_string())
        } else {
            (200, "", MESSAGE.to_owned())
        };
        (status, format!("content-type: application/json\r\n{lines}"), body)
    });
    let upstreams = format!("  a: {{ protocol: anthropic, base_url: 'http://{}' }}\n", up.address);
    let models = "models:
  m:
    operations: [messages]
    targets: [{ upstream: a }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    limits: { context_tokens_max: 2000000, output_tokens_max: 100 }
    reasoning: false\n";
    let gateway = Gateway::serving(&upstreams, models);
    let hostile = ["one", "two"].map(|name| gateway.customer(name, Some("5.00")));
    let long = "word ".repeat(200_000);
    for key in &hostile {
        let answer = call_with(&gateway, key, "/v1/messages", "m", &long);
        assert_eq!(answer.status(), 429, "{answer:?}");
        let answer = call(&gateway, key, "/v1/messages", "m");
        assert_eq!(answer.status(), 200, "its own short ones go on: {answer:?}");
    }
    let request_count = up.requests().len();
    let third = gateway.customer("third", Some("5.00"));
    let answer = call(&gateway, &third, "/v1/messages", "m");
    assert_eq!(answer.status(), 200, "{answer:?}");
    let answer = call_with(&gateway, &third, "/v1/messages", "m", &long);
    assert_eq!(
        (answer.status(), up.requests().len()),
        (429, request_count + 1),
        "it is not sent: {answer:?}"
    );
    gateway.settled();
}
