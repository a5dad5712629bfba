//! A gateway without a file descriptor for calls to upstreams: nobody else is blamed for it, and whatever it
//! takes for granted of an upstream it still takes for granted afterwards.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::harness::{
    Answer, Gateway, Recorder, ask, ask_over, chat_model, connect, eventually, let_pass,
};

/// Refused calls of each customer.
const CALLS: usize = 20;

/// Takes all further descriptors from the gateway, until it is dropped.
struct NoDescriptors {
    pid: Option<Pid>,
    before: Rlimit,
}

impl NoDescriptors {
    /// Leaves none, whatever is closed meanwhile.
    fn of(gateway: &Gateway) -> Self {
        Self::below(gateway, 3)
    }

    /// Leaves none until one is closed.
    fn until_one_is_closed(gateway: &Gateway) -> Self {
        let open = std::fs::read_dir(format!("/proc/{}/fd", gateway.id()));
        let open = open.expect("the process lives").filter_map(Result::ok);
        let open: BTreeSet<u64> =
            open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let free = (0..).find(|number| !open.contains(number));
        Self::below(gateway, free.expect("the lowest that is free"))
    }

    /// Leaves those below this number. What is open stays open, also above it.
    fn below(gateway: &Gateway, number: u64) -> Self {
        let pid = Pid::from_raw(i32::try_from(gateway.id()).expect("an id"));
        let lowered = |maximum| Rlimit { current: Some(number), maximum };
        let before = prlimit(pid, Resource::Nofile, lowered(None)).or_else(|_| {
            let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
            prlimit(pid, Resource::Nofile, lowered(hard))
        });
        Self { pid, before: before.expect("the limit of a child") }
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        prlimit(self.pid, Resource::Nofile, self.before).expect("the limit of a child");
    }
}

fn over(kept: &mut TcpStream, request: &[u8]) -> Answer {
    let socket = kept.try_clone().expect("a second handle");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    ask_over(kept, &socket, request)
}

/// A connection on which a customer has shown its key.
fn customer(gateway: &Gateway) -> TcpStream {
    let mut kept = connect(gateway.address);
    let answer = over(&mut kept, &gateway.get("/v1/models"));
    assert_eq!(answer.status(), 200, "{answer:?}");
    kept
}

fn chat(gateway: &Gateway, model: &str) -> Vec<u8> {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    gateway.chat_json(body.to_string())
}

fn messages(gateway: &Gateway) -> Vec<u8> {
    let body = json!({
        "model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]
    });
    let body = body.to_string();
    let lines = format!("anthropic-version: 2023-06-01\r\nContent-Length: {}\r\n", body.len());
    gateway.post("/v1/messages", &lines, body)
}

/// Two targets behind one model. The first is checked so often, and out at the first failure.
fn gateway(a: &Recorder, b: &Recorder, interval: &str) -> Gateway {
    let (a, b) = (a.address, b.address);
    let upstreams = format!(
        "  a:
    protocol: openai
    base_url: 'http://{a}/v1'
    health_check: {{ interval: {interval}, timeout: {interval}, unhealthy_after: 1 }}
  b: {{ protocol: openai, base_url: 'http://{b}/v1' }}
"
    );
    let both = chat_model("m", "a, priority: 1 }, { upstream: b, priority: 2");
    let models = format!("models:\n{both}{}", chat_model("other", "b"));
    Gateway::logging(&upstreams, &models)
}

fn upstreams(gateway: &Gateway) -> Vec<Value> {
    let all = gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
    all["upstreams"].as_array().expect("upstreams").clone()
}

fn assert_nobody_is_blamed(gateway: &Gateway) {
    for upstream in upstreams(gateway) {
        assert_eq!(upstream["healthy"], true, "{upstream}");
        assert_eq!(upstream["last_connect_failure"], Value::Null, "{upstream}");
        for target in upstream["targets"].as_array().expect("targets") {
            assert_eq!(target["state"], "ready", "{upstream}");
            assert_eq!(target["last_failure"], Value::Null, "{upstream}");
            assert_eq!(target["accounts_shut_out"], 0, "{upstream}");
        }
    }
    let metrics = gateway.metrics();
    let blames = |line: &&str| {
        line.starts_with("tollgate_upstream_connect_failures_total{")
            || line.starts_with("tollgate_upstream_requests_total{")
                && !line.contains("outcome=\"ok\"")
            || line.starts_with("tollgate_retries_total{")
    };
    let blamed: Vec<&str> =
        metrics.lines().filter(blames).filter(|line| !line.ends_with(" 0")).collect();
    assert!(blamed.is_empty(), "{blamed:?}");
}

#[test]
fn without_descriptors_no_upstream_is_blamed_and_the_next_call_is_served() {
    let (a, b) = (Recorder::start(), Recorder::start());
    let gateway = gateway(&a, &b, "100ms");
    // Behind a refused call its connection is closed, which gives a descriptor back where there is one.
    let mut customers: Vec<TcpStream> = (0..CALLS + 2).map(|_| customer(&gateway)).collect();
    let (mut other, mut translated) = (customers.remove(0), customers.remove(0));
    let stranger = gateway.stranger();
    let before = gateway.balance();
    let lack = NoDescriptors::of(&gateway);
    for (call, one) in customers.iter_mut().enumerate() {
        let answer = over(one, &chat(&gateway, "m"));
        assert_eq!(answer.status(), 503, "call {call}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], "ServiceUnavailable", "{answer:?}");
        assert_eq!(answer.header("retry-after").as_deref(), Some("1"), "{answer:?}");
        assert!(answer.took < Duration::from_secs(1), "call {call} took {:?}", answer.took);
    }
    let answer = over(&mut translated, &messages(&gateway));
    assert_eq!(answer.json()["error"]["type"], "overloaded_error", "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    let_pass(Duration::from_millis(500), "several health checks fail unseen");
    drop(lack);

    let began = Instant::now();
    let gateway = gateway.with_key(&stranger);
    let path = format!("/admin/v1/accounts/{}/grants", account_of(&gateway));
    gateway.admin("POST", &path, &json!({"amount": "1.00", "id": "second"}));
    let answer = over(&mut other, &chat(&gateway, "m"));
    assert_eq!(answer.status(), 200, "another account, at once: {answer:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(a.requests().len(), 1, "the first target serves, and nothing else came to it");
    assert_eq!(b.requests().len(), 0, "no retry went to the second");
    assert_nobody_is_blamed(&gateway);
    assert_eq!(gateway.balance(), before, "nothing was charged or is held");
    let counted =
        gateway.metric("tollgate_local_resource_exhausted_total{resource=\"descriptors\"}");
    assert!(counted > 20.0, "calls and health checks: {counted}");
    for resource in ["ports", "memory"] {
        let series = format!("tollgate_local_resource_exhausted_total{{resource=\"{resource}\"}}");
        assert!(gateway.metric(&series).abs() < f64::EPSILON, "{series}");
    }
    let log = std::fs::read_to_string(gateway.path("log")).expect("the log");
    let lines = log.lines().filter(|line| line.contains("no descriptors left")).count();
    assert_eq!(lines, 1, "one line a minute: {log}");
}

/// The account of the gateway's key that is not its first one.
fn account_of(gateway: &Gateway) -> String {
    let all = gateway.admin("GET", "/admin/v1/accounts", &Value::Null);
    let all = all["data"].as_array().expect("accounts").clone();
    let other = all.iter().find(|account| account["id"] != gateway.account.as_str());
    other.expect("two accounts")["id"].as_str().expect("an id").to_owned()
}

/// An unused connection to one upstream is worth less than a call to another.
#[test]
fn an_unused_connection_gives_way_to_a_call() {
    let (a, b) = (Recorder::start(), Recorder::start());
    let gateway = gateway(&a, &b, "60s");
    let mut kept = customer(&gateway);
    assert_eq!(over(&mut kept, &chat(&gateway, "m")).status(), 200);
    eventually("the connection to the first upstream is kept", || {
        gateway.settled()["held"] == "0.00"
    });
    let lack = NoDescriptors::until_one_is_closed(&gateway);
    let answer = over(&mut kept, &chat(&gateway, "other"));
    assert_eq!(answer.status(), 200, "{answer:?}");
    drop(lack);
    assert_eq!(b.requests().len(), 1, "the second upstream was called");
    assert_eq!(ask(gateway.address, &chat(&gateway, "m")).status(), 200);
    assert_nobody_is_blamed(&gateway);
}
