//! Target selection and failover: several simulated upstreams behind one gateway, one of them failing in
//! every way.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::harness::{Answer, Gateway, ask, chat_model, connect, eventually, let_pass, simulator};
use serde_json::{Value, json};
use tollgate::sim::{Behaviour, RecordedRequest, Sim};

fn sims<const N: usize>() -> [Sim; N] {
    std::array::from_fn(|_| simulator(&[]))
}

/// A gateway whose model `m` is served by all of these upstreams, which are called `a`, `b` and so
/// on. The first comes with `settings` of the simulator; `targets` are further words for each target.
fn gateway(sims: &[&Sim], settings: &str, targets: &[&str], balancing: &str) -> Gateway {
    let addresses: Vec<SocketAddr> = sims.iter().map(|sim| sim.addr()).collect();
    gateway_at(&addresses, settings, targets, balancing)
}

fn gateway_at(at: &[SocketAddr], settings: &str, targets: &[&str], balancing: &str) -> Gateway {
    let (mut upstreams, mut listed) = (String::new(), String::new());
    for (index, (address, name)) in at.iter().zip(["a", "b", "c"]).enumerate() {
        let prefix = if index == 0 && !settings.is_empty() {
            format!("/sim:{settings}")
        } else {
            String::new()
        };
        upstreams += &format!(
            "  {name}: {{ protocol: openai, base_url: 'http://{address}{prefix}/v1', \
             timeouts: {{ connect: 1s, read: 300ms }} }}\n"
        );
        let more = targets.get(index).copied().unwrap_or_default();
        listed += &format!("      - {{ upstream: {name}{more} }}\n");
    }
    upstreams += &format!("balancing: {{ {balancing} }}\n");
    let models = format!(
        "models:
  m:
    operations: [chat]
    targets:
{listed}    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 10000, output_tokens_max: 100 }}
"
    );
    Gateway::serving(&upstreams, &models)
}

fn chat_with(gateway: &Gateway, lines: &str, stream: bool, text: &str) -> Answer {
    let messages = json!([{"role": "user", "content": text}]);
    let body = json!({"model": "m", "stream": stream, "messages": messages}).to_string();
    let lines = format!("Content-Length: {}\r\n{lines}", body.len());
    ask(gateway.address, &gateway.chat(&lines, body))
}

fn chat(gateway: &Gateway, text: &str) -> Answer {
    chat_with(gateway, "", false, text)
}

fn target(gateway: &Gateway, upstream: &str) -> Value {
    let all = gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
    let all = all["upstreams"].as_array().expect("upstreams").clone();
    let found = all.into_iter().find(|one| one["name"] == upstream).expect("the upstream");
    found["targets"][0].clone()
}

/// Requests that can safely be repeated go to another upstream without a visible failure, and soon the
/// failing one is avoided.
#[test]
fn a_refusal_goes_to_the_next_upstream_and_the_failing_one_is_left_alone() {
    for fault in ["fault=status=500", "fault=status=503", "fault=status=401", "fault=status=404"] {
        let sims: [Sim; 3] = sims();
        let gateway = gateway(&sims.each_ref(), fault, &[], "circuit: { open: 1m }");
        for call in 0..60 {
            let answer = chat(&gateway, &format!("call {call}"));
            assert_eq!(answer.status(), 200, "{fault}, call {call}: {answer:?}");
        }
        let counts = sims.each_ref().map(Sim::requests_total);
        assert_eq!(counts[0], 5, "{fault}: five failures in a row are enough: {counts:?}");
        assert_eq!(counts[1] + counts[2], 60, "{fault}: {counts:?}");
        assert!(counts[1].min(counts[2]) >= 10, "{fault}: the others share: {counts:?}");
        let target = target(&gateway, "a");
        assert_eq!(target["state"], "open", "{fault}: {target}");
        assert_eq!(gateway.settled()["held"], "0.00");
    }
}

/// A name behind a pattern that one upstream does not know is served by the one that does, also once the
/// first has said so.
#[test]
fn a_name_that_one_upstream_does_not_know_is_served_by_the_other() {
    let sims: [Sim; 2] = sims();
    let [unknowing, knowing] = sims.each_ref().map(Sim::addr);
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{unknowing}/sim:fault=status=404/v1' }}
  b: {{ protocol: openai, base_url: 'http://{knowing}/v1' }}
"
    );
    let targets = "{ upstream: a }, { upstream: b, priority: 1 }";
    let models = chat_model("'m-*'", "a").replace("{ upstream: a }", targets);
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{models}"));
    let body = json!({"model": "m-1", "messages": [{"role": "user", "content": "hi"}]});
    for call in 0..5 {
        let answer = ask(gateway.address, &gateway.chat_json(body.to_string()));
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
    }
    assert_eq!(sims.each_ref().map(Sim::requests_total), [1, 5], "the first is asked once");
}

#[test]
fn an_upstream_that_is_not_there_costs_no_customer_anything() {
    let sims: [Sim; 2] = sims();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = unused.local_addr().expect("an address");
    drop(unused);
    let at = [address, sims[0].addr(), sims[1].addr()];
    let gateway = gateway_at(&at, "", &[], "");
    for call in 0..60 {
        let answer = chat(&gateway, &format!("call {call}"));
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
    }
    assert_eq!(target(&gateway, "a")["last_failure"]["outcome"], "unreachable");
}

/// Work that may have been accepted is not repeated. So customers see these failures, until the
/// circuit opens.
#[test]
fn possibly_accepted_calls_are_not_retried() {
    for (fault, stream, outcome) in [
        ("fault=reset", false, "broken"),
        ("fault=reset-after-body", false, "broken"),
        ("fault=hang", false, "timeout"),
        ("fault=cut-after=1", true, "broken"),
        ("fault=eof-after=1", true, "broken"),
        ("fault=hang-after=1", true, "timeout"),
        ("fault=garbage", true, "broken"),
    ] {
        let sims: [Sim; 3] = sims();
        let gateway = gateway(&sims.each_ref(), fault, &[], "circuit: { open: 1m }");
        let mut failed = 0;
        for call in 0..60 {
            let answer = chat_with(&gateway, "", stream, &format!("call {call}"));
            let body = String::from_utf8_lossy(&answer.body()).into_owned();
            let is_good = answer.status() == 200 && (!stream || body.contains("[DONE]"));
            assert!(is_good || body.contains("error"), "{fault}, call {call}: {answer:?}");
            failed += u32::from(!is_good);
        }
        let counts = sims.each_ref().map(Sim::requests_total);
        let total = counts.iter().sum::<u64>();
        if fault == "fault=reset" {
            // It resets with the head and records nothing. Where that comes before the body was
            // written, the upstream has no whole request, and the call may go elsewhere.
            assert!(failed <= 5, "{fault}: {failed} seen");
            assert_eq!(total, 60 - u64::from(failed), "{fault}: {counts:?}");
        } else {
            assert_eq!(failed, 5, "{fault}: seen until the circuit opened");
            assert_eq!(total, 60, "{fault}: nothing was repeated: {counts:?}");
        }
        let target = target(&gateway, "a");
        assert_eq!(target["state"], "open", "{fault}: {target}");
        assert_eq!(target["last_failure"]["outcome"], outcome, "{fault}: {target}");
    }
}

#[test]
fn a_slow_upstream_is_no_broken_one() {
    let sims: [Sim; 2] = sims();
    let gateway = gateway(&sims.each_ref(), "fault=trickle", &[], "");
    for call in 0..10 {
        assert_eq!(chat_with(&gateway, "", true, &format!("call {call}")).status(), 200);
    }
    assert_eq!(target(&gateway, "a")["state"], "ready");
}

#[test]
fn a_recovered_upstream_is_found_out_by_one_call_and_gets_its_share_again() {
    let sims: [Sim; 2] = sims();
    let balancing = "slow_start: 100ms, circuit: { failures: 2, open: 2s, open_max: 2s }";
    let gateway = gateway(&sims.each_ref(), "", &["", ", priority: 1"], balancing);
    let mut failing = Behaviour::default();
    failing.set_pair("fault=status=503").expect("a setting");
    sims[0].set_behaviour(failing);
    for call in 0..10 {
        assert_eq!(chat(&gateway, &format!("call {call}")).status(), 200);
    }
    assert_eq!(sims.each_ref().map(Sim::requests_total), [2, 10], "the second tier serves");
    let_pass(
        Duration::from_millis(2100),
        "nothing shows that an open circuit would let a call through",
    );
    assert_eq!(chat(&gateway, "finds out").status(), 200);
    assert_eq!(sims.each_ref().map(Sim::requests_total), [3, 11], "one call, and it is not lost");
    sims[0].set_behaviour(Behaviour::default());
    let_pass(Duration::from_millis(2100), "as above");
    for call in 0..10 {
        assert_eq!(chat(&gateway, &format!("later {call}")).status(), 200);
    }
    assert_eq!(sims.each_ref().map(Sim::requests_total), [13, 11], "the first tier again");
}

/// A storm of 429 at one upstream is no customer's business while there are others.
#[test]
fn a_storm_of_429_goes_to_the_others() {
    let sims: [Sim; 3] = sims();
    let fault = "fault=status=429;retry-after=60";
    let gateway = gateway(&sims.each_ref(), fault, &[], "");
    for call in 0..40 {
        let answer = chat(&gateway, &format!("call {call}"));
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
    }
    assert_eq!(sims[0].requests_total(), 1, "it was left alone from the first word on");
}

/// An answer without an end is passed on as it comes, or cut: it is never kept.
#[test]
fn a_giant_answer_fills_no_memory() {
    for stream in [true, false] {
        let [sim]: [Sim; 1] = sims();
        let base = format!("http://{}/sim:fault=giant=100000000/v1", sim.addr());
        let upstreams = format!("  a: {{ protocol: openai, base_url: '{base}' }}\n");
        let models = "models:
  m:
    operations: [chat]
    targets: [{ upstream: a }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
";
        let gateway = Gateway::serving(&upstreams, models);
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"model": "m", "stream": stream, "messages": messages}).to_string();
        let lines = format!("Content-Length: {}\r\nConnection: close\r\n", body.len());
        let mut connection = connect(gateway.address);
        connection.write_all(&gateway.chat(&lines, body)).expect("sent");
        let (mut piece, mut bytes) = (vec![0; 1 << 20], 0);
        while let Ok(count @ 1..) = connection.read(&mut piece) {
            bytes += count;
        }
        let rss = gateway.rss_bytes_max();
        assert!(rss < 100 << 20, "{rss} bytes resident for an answer of {bytes}, stream: {stream}");
        gateway.settled();
    }
}

/// With nowhere else to go, the customer is told when to come again, and the upstream is left alone
/// for as long as it has asked.
#[test]
fn a_busy_upstream_is_left_alone_for_as_long_as_it_says() {
    let [sim]: [Sim; 1] = sims();
    let gateway = gateway(&[&sim], "fault=status=429;retry-after=2", &[], "");
    let began = Instant::now();
    let first = chat(&gateway, "first");
    assert_eq!((first.status(), first.header("retry-after").as_deref()), (429, Some("2")));
    let second = chat(&gateway, "second");
    assert_eq!((second.status(), second.header("retry-after").as_deref()), (429, Some("2")));
    assert_eq!(second.json()["error"]["code"], "rate_limit_exceeded", "{second:?}");
    assert_eq!(sim.requests_total(), 1, "the second call was not made");
    assert_eq!(target(&gateway, "a")["state"], "busy");
    eventually("the upstream is called again", || {
        drop(chat(&gateway, "third"));
        sim.requests_total() == 2
    });
    assert!(began.elapsed() >= Duration::from_secs(2), "after {:?}", began.elapsed());
    assert_eq!(gateway.settled()["spent"], "0.00");
}

#[test]
fn a_dead_gateway_fails_fast_and_says_so() {
    let [sim]: [Sim; 1] = sims();
    let gateway = gateway(&[&sim], "fault=status=500", &[], "circuit: { open: 1m }");
    for call in 0..20 {
        let answer = chat(&gateway, &format!("call {call}"));
        assert_eq!(answer.status(), 502, "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], "service_unavailable", "{answer:?}");
    }
    assert_eq!(sim.requests_total(), 5);
}

/// Two keys at one provider, one of which was revoked: every call is served, by the other.
#[test]
fn a_pool_of_credentials_does_without_the_one_that_is_refused() {
    let [sim]: [Sim; 1] = sims();
    let at = sim.addr();
    let upstreams = format!(
        "  a:
    protocol: openai
    base_url: 'http://{at}/sim:key=sk-good/v1'
    credentials: {{ revoked: sk-revoked, good: sk-good }}
"
    );
    let models = "models:
  m:
    operations: [chat]
    targets: [{ upstream: a }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
";
    let gateway = Gateway::serving(&upstreams, models);
    for call in 0..40 {
        let answer = chat(&gateway, &format!("call {call}"));
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
    }
    let used = |key: &str| {
        let bearer = format!("Bearer {key}");
        let all = sim.requests();
        all.iter().filter(|request| request.header("authorization") == Some(&bearer)).count()
    };
    assert_eq!((used("sk-revoked"), used("sk-good")), (5, 40));
    let all = gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
    let targets = all["upstreams"][0]["targets"].as_array().expect("targets").clone();
    let states: Vec<_> = targets.iter().map(|one| (&one["credential"], &one["state"])).collect();
    assert_eq!(states, [(&json!("revoked"), &json!("open")), (&json!("good"), &json!("ready"))]);
    assert!(!all.to_string().contains("sk-"), "no credential is shown: {all}");
}

/// A task is known to the account that it was submitted with.
#[test]
fn a_task_is_polled_with_the_credential_of_its_submit() {
    let [sim]: [Sim; 1] = sims();
    let at = sim.addr();
    let upstreams = format!(
        "  a:
    protocol: xai
    base_url: 'http://{at}/sim:task-pending-ms=20;task-running-ms=50'
    credentials: {{ one: sk-one, two: sk-two }}
tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms }}
"
    );
    let models = "models:
  v:
    operations: [video]
    targets: [{ upstream: a }]
    prices: { per_second: 0.01 }
    limits: { seconds_min: 1, seconds_max: 15 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let mut ids = Vec::new();
    for _ in 0..12 {
        let body = json!({"model": "v", "prompt": "a cat", "duration": 1}).to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        let path = "/v1/videos/generations";
        let answer = ask(gateway.address, &gateway.post(path, &lines, body));
        assert_eq!(answer.status(), 202, "{answer:?}");
        ids.push(answer.json()["id"].as_str().expect("an id").to_owned());
    }
    assert_eq!(gateway.settled()["spent"], "0.12");
    let (mut submits, mut queries) = (Vec::new(), std::collections::HashMap::new());
    for request in sim.requests() {
        let key = request.header("authorization").expect("a credential").to_owned();
        match request.path.rsplit_once("/videos/") {
            Some((_, "generations")) => submits.push(key),
            Some((_, id)) => {
                let before = queries.insert(id.to_owned(), key.clone());
                assert!(before.is_none_or(|before| before == key), "one task, two credentials");
            }
            None => panic!("{}", request.path),
        }
    }
    let of = |keys: &mut dyn Iterator<Item = &String>, key: &str| {
        keys.filter(|found| *found == key).count()
    };
    for key in ["Bearer sk-one", "Bearer sk-two"] {
        let query = of(&mut queries.values(), key);
        assert!(query > 0, "both are used");
        assert_eq!(of(&mut submits.iter(), key), query, "{key}");
    }
}

#[test]
fn sessions_stay_with_their_upstream_and_spread_over_all() {
    let sims: [Sim; 3] = sims();
    let gateway = gateway(&sims.each_ref(), "", &[], "affinity: header");
    let mut used = [0; 3];
    for session in 0..30 {
        let before = sims.each_ref().map(Sim::requests_total);
        for turn in 0..4 {
            let lines = format!("X-Session-Affinity: session-{session}\r\n");
            let answer = chat_with(&gateway, &lines, false, &format!("turn {turn}"));
            assert_eq!(answer.status(), 200, "{answer:?}");
        }
        let after = sims.each_ref().map(Sim::requests_total);
        let grown: Vec<u64> =
            after.iter().zip(before).map(|(after, before)| after - before).collect();
        let at = grown.iter().position(|count| *count == 4);
        used[at.unwrap_or_else(|| panic!("session {session} was torn apart: {grown:?}"))] += 1;
    }
    assert!(used.iter().all(|count| *count >= 3), "30 sessions over three upstreams: {used:?}");
}

/// A storm is not multiplied: with the budget used up, a failure is the customer's to see.
#[test]
fn retries_have_a_budget() {
    let sims: [Sim; 2] = sims();
    let balancing = "circuit: { failures: 1000, failure_percent: 100 }, \
         retries: { budget_percent: 0, per_second_min: 0 }";
    let targets = ["", ", priority: 1"];
    let gateway = gateway(&sims.each_ref(), "fault=status=500", &targets, balancing);
    let statuses: Vec<u16> =
        (0..19).map(|call| chat(&gateway, &format!("call {call}")).status()).collect();
    assert_eq!(statuses[..10], [200; 10], "ten to begin with");
    assert_eq!(statuses[10..], [502; 9], "then none");
    let metrics = gateway.metrics();
    assert!(metrics.contains("tollgate_retry_budget_exhausted_total 9"), "{metrics}");
    assert!(metrics.contains(r#"tollgate_retries_total{model="m",upstream="b"} 10"#), "{metrics}");
    let failed = r#"tollgate_upstream_requests_total{outcome="failed",upstream="a"} 19"#;
    assert!(metrics.contains(failed), "{metrics}");
}

/// A health check notices a failure before a customer does.
#[test]
fn an_unhealthy_upstream_gets_no_calls() {
    let sims: [Sim; 2] = sims();
    let addresses = sims.each_ref().map(Sim::addr);
    let health = "health_check: { path: /v1/models, interval: 50ms, timeout: 50ms, \
         unhealthy_after: 2, healthy_after: 2 }";
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{}/v1', {health} }}
  b: {{ protocol: openai, base_url: 'http://{}/v1', health_check: {{ interval: 50ms, timeout: 50ms }} }}
",
        addresses[0], addresses[1]
    );
    let models = "models:
  m:
    operations: [chat]
    targets: [{ upstream: a }, { upstream: b, priority: 1 }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let chats = |sim: &Sim| {
        sim.requests().iter().filter(|request| request.path.ends_with("/completions")).count()
    };
    let wait_for = |figure: &str| {
        crate::harness::within(
            Duration::from_secs(10),
            || gateway.metrics().contains(figure),
            || format!("{figure}: {}", gateway.metrics()),
        );
    };
    wait_for(r#"tollgate_upstream_healthy{upstream="a"} 1"#);
    assert_eq!(chat(&gateway, "first").status(), 200);
    let mut failing = Behaviour::default();
    failing.set_pair("fault=status=503").expect("a setting");
    sims[0].set_behaviour(failing);
    wait_for(r#"tollgate_upstream_healthy{upstream="a"} 0"#);
    for call in 0..5 {
        assert_eq!(chat(&gateway, &format!("call {call}")).status(), 200);
    }
    assert_eq!([chats(&sims[0]), chats(&sims[1])], [1, 5]);
    sims[0].set_behaviour(Behaviour::default());
    wait_for(r#"tollgate_upstream_healthy{upstream="a"} 1"#);
    assert_eq!(chat(&gateway, "again").status(), 200);
    assert_eq!([chats(&sims[0]), chats(&sims[1])], [2, 5]);
}

#[test]
fn the_way_of_a_request_is_explained() {
    let sims: [Sim; 3] = sims();
    let targets = [", weight: 3", "", ", priority: 1"];
    let gateway = gateway(&sims.each_ref(), "", &targets, "");
    let explain = |more: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["route", "explain", "--admin", &gateway.admin_address().to_string()])
            .arg("--routes")
            .arg(gateway.path("routes.yaml"))
            .arg("--models")
            .arg(gateway.path("models.yaml"))
            .args(more)
            .output()
            .expect("the command runs");
        let text = String::from_utf8(output.stdout).expect("text");
        (output.status.code(), text, String::from_utf8(output.stderr).expect("text"))
    };
    let (code, text, _) = explain(&["--model", "m"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        text,
        "m: chat
translated: messages, responses, generate_content
  75 %  priority 0  a  m  it is in order and of the best priority
  25 %  priority 0  b  m  it is in order and of the best priority
   0 %  priority 1  c  m  only when no target of priority 0 is left
"
    );
    let path = format!("/admin/v1/accounts/{}/keys", gateway.account);
    let key = gateway.admin("POST", &path, &json!({"name": "narrow", "models": ["other"]}));
    let (code, text, _) = explain(&["--model", "m", "--key", key["id"].as_str().expect("an id")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("refused: the key's list of models does not have it"), "{text}");
    let (code, _, error) = explain(&["--model", "unknown"]);
    assert_eq!(code, Some(3));
    assert!(error.contains("No model of `models.yaml` has this name."), "{error}");
}

/// The share of what the requests asked for, in bytes, that their credential has had before: what a
/// provider's cache of prompts finds again.
fn cached_share(requests: &[RecordedRequest]) -> f64 {
    fn text(request: &RecordedRequest) -> &[u8] {
        request.body.as_deref().expect("a body that is kept")
    }
    let (mut cached, mut all) = (0, 0);
    for (at, request) in requests.iter().enumerate() {
        let (key, body) = (request.header("authorization"), text(request));
        let own = requests[..at].iter().filter(|before| before.header("authorization") == key);
        let common = |before: &RecordedRequest| {
            text(before).iter().zip(body).take_while(|(before, now)| before == now).count()
        };
        cached += own.map(common).max().unwrap_or(0);
        all += body.len();
    }
    cached as f64 / all as f64
}

/// How a client names its session: in a header, or in a field.
#[derive(Clone, Copy, Debug)]
enum Named {
    Header(&'static str),
    CacheKey,
    UserId,
    Beginning,
}

/// Ten turns of a conversation, each with all that was said before.
fn converse(gateway: &Gateway, path: &str, model: &str, named: Named, session: &str) {
    let long = format!("{session}: {}", "how is it there? ".repeat(100));
    let mut turns = Vec::new();
    for turn in 0..10 {
        let message = format!("{turn} {long}");
        turns.push(json!({"role": "user", "content": message}));
        let list = if path == "/v1/responses" { "input" } else { "messages" };
        let mut body = json!({"model": model, list: turns});
        if path == "/v1/messages" {
            body["max_tokens"] = json!(50);
        }
        let mut lines = String::new();
        match named {
            Named::Header(name) => lines = format!("{name}: {session}\r\n"),
            Named::CacheKey => body["prompt_cache_key"] = json!(session),
            Named::UserId => body["metadata"] = json!({"user_id": session}),
            Named::Beginning => {}
        }
        let body = body.to_string();
        let lines = format!("{lines}Content-Length: {}\r\n", body.len());
        let answer = ask(gateway.address, &gateway.post(path, &lines, body));
        assert_eq!(answer.status(), 200, "{path} {named:?} {turn}: {answer:?}");
        turns.push(json!({"role": "assistant", "content": format!("answer {turn}")}));
    }
}

/// A gateway with a model for chats, messages and responses each, at a simulator with credentials.
fn pooled(sim: &Sim, credentials: &str) -> Gateway {
    let at = sim.addr();
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{at}/v1', credentials: {{ {credentials} }} }}\n"
    );
    let model = |name: &str| {
        format!(
            "  {name}:
    operations: [{name}]
    targets: [{{ upstream: o }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 1000000, output_tokens_max: 100 }}\n"
        )
    };
    Gateway::serving(&upstreams, &format!("models:\n{}{}", model("chat"), model("responses")))
}

/// Ten turns over two credentials find as much in the cache as over one, however a client names its
/// session, translated or not; and sessions spread over both.
#[test]
fn a_session_stays_with_the_credential_that_holds_its_cache() {
    let ways = [
        ("/v1/responses", "responses", Named::CacheKey),
        ("/v1/responses", "responses", Named::Header("session-id")),
        ("/v1/responses", "chat", Named::Header("session_id")),
        ("/v1/messages", "chat", Named::UserId),
        ("/v1/messages", "responses", Named::Header("x-claude-code-session-id")),
        ("/v1/chat/completions", "chat", Named::Header("x-session-affinity")),
        ("/v1/chat/completions", "responses", Named::Beginning),
    ];
    let credentials = ["one: sk-one", "one: sk-one, two: sk-two"];
    let sims: [Sim; 2] = sims();
    let gateways = [0, 1].map(|at| pooled(&sims[at], credentials[at]));
    let mut used = [0; 2];
    for (path, model, named) in ways {
        for session in ["s-1", "s-2", "s-3"] {
            let shares = [0, 1].map(|at| {
                let before = sims[at].requests().len();
                converse(&gateways[at], path, model, named, session);
                let requests = sims[at].requests().split_off(before);
                assert_eq!(requests.len(), 10, "{path} {model} {named:?}");
                if at == 1 {
                    let key = requests[0].header("authorization");
                    used[usize::from(key == Some("Bearer sk-two"))] += 1;
                }
                cached_share(&requests)
            });
            assert!(shares[0] > 0.75, "{path} {model} {named:?}: {shares:?}");
            assert!((shares[0] - shares[1]).abs() < 0.001, "{path} {model} {named:?}: {shares:?}");
        }
    }
    assert!(used.iter().all(|count| *count >= 3), "both are used: {used:?}");
}

/// A session goes elsewhere when its credential is out of order, and another account that names the same
/// session is not sent where it is.
#[test]
fn a_session_goes_on_elsewhere_and_belongs_to_its_account() {
    let [sim]: [Sim; 1] = sims();
    let at = sim.addr();
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{at}/sim:key=sk-two/v1', credentials: {{ one: sk-one, two: sk-two }} }}\n"
    );
    let gateway =
        Gateway::serving(&upstreams, &format!("models:\n{}", crate::harness::chat_model("m", "o")));
    for session in 0..6 {
        for _ in 0..3 {
            let lines = format!("session-id: s-{session}\r\n");
            let answer = chat_with(&gateway, &lines, false, "hi");
            assert_eq!(answer.status(), 200, "the other credential serves it: {answer:?}");
        }
    }
    let [sim]: [Sim; 1] = sims();
    let gateway = pooled(&sim, "one: sk-one, two: sk-two");
    let other = gateway.customer("other", Some("1.00"));
    let keys = [gateway.key.as_str(), other.as_str()];
    let mut apart = 0;
    for session in 0..16 {
        for key in keys {
            let body = json!({"model": "chat", "prompt_cache_key": format!("s-{session}"),
                "messages": [{"role": "user", "content": "hi"}]})
            .to_string();
            let request = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let answer = ask(gateway.address, request.as_bytes());
            assert_eq!(answer.status(), 200, "{answer:?}");
        }
        let requests = sim.requests();
        let [.., first, second] = &requests[..] else { panic!("two requests") };
        apart += usize::from(first.header("authorization") != second.header("authorization"));
    }
    assert!((2..=14).contains(&apart), "the name says nothing to another account: {apart} of 16");
}
