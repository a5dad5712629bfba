//! Three gateways, each a process of its own, that share tasks.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate::sim::{Sim, SimOptions};

use crate::harness::child::Running;
use crate::harness::fleet::make_schema;
use crate::harness::postgres::{Postgres, Stop};
use crate::harness::{Answer, ask};
use crate::member::TIMEOUT;

const TOKEN: &str = "admin-token-of-a-test";
const PATH: &str = "/v1/videos/generations";
const MODELS: &str = "models:
  gif-video:
    operations: [video]
    targets: [{ upstream: xai, model: grok-imagine-video }]
    prices: { per_second: 0.07 }
    limits: { resolutions: [480p, 720p], seconds_min: 1, seconds_max: 15, reference_images_max: 1 }
";

/// A gateway that is a node of the fleet.
struct Process {
    address: SocketAddr,
    admin: SocketAddr,
    running: Running,
    _directory: tempfile::TempDir,
}

impl Process {
    fn start(name: &str, url: &str, sim: &Sim, running_ms: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (routes, models) =
            (directory.path().join("routes.yaml"), directory.path().join("models.yaml"));
        let base =
            format!("http://{}/sim:task-pending-ms=20;task-running-ms={running_ms}", sim.addr());
        let text = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]
admin: {{ address: 127.0.0.1:0, token: {TOKEN} }}
store:
  data_dir: {}
  postgres: {{ url: '{url}', tls: disable, node: {name}, lease: 2s }}
upstreams:
  xai: {{ protocol: xai, base_url: '{base}' }}
tasks: {{ poll_min: 50ms, poll_max: 100ms, webhook_hosts: [127.0.0.1] }}
",
            directory.path().join("data").display()
        );
        std::fs::write(&routes, text).expect("written");
        std::fs::write(&models, MODELS).expect("written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--ready-json", "--log", "error", "--routes"])
            .arg(routes)
            .arg("--models")
            .arg(models)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("standard output is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line when it is ready");
        let ready: Value = serde_json::from_str(&line).expect("a JSON line when it is ready");
        let address = |url: &Value| {
            let (_, address) = url.as_str().expect("a URL").split_once("://").expect("a URL");
            address.parse().expect("an address")
        };
        Self {
            address: address(&ready["listeners"][0]),
            admin: address(&ready["admin_url"]),
            running: Running(child),
            _directory: directory,
        }
    }

    fn send(&self, at: SocketAddr, head: &str, key: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{head} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n",
            body.len()
        );
        let mark = if body.contains("marked") { "Idempotency-Key: one\r\n" } else { "" };
        ask(at, format!("{request}{mark}\r\n{body}").as_bytes())
    }

    fn operator(&self, head: &str, body: &Value) -> Value {
        let answer = self.send(self.admin, head, TOKEN, body);
        assert!((200..300).contains(&answer.status()), "{head}: {answer:?}");
        answer.json()
    }

    fn submit(&self, key: &str, prompt: &str) -> Answer {
        let body = json!({"model": "gif-video", "prompt": prompt, "duration": 2});
        self.send(self.address, &format!("POST {PATH}"), key, &body)
    }

    fn record(&self, key: &str, id: &str) -> Answer {
        self.send(self.address, &format!("GET {PATH}/{id}"), key, &Value::Null)
    }

    /// A customer with a dollar: the account and a key.
    fn customer(&self) -> (String, String) {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let made = self.operator("POST /admin/v1/accounts", &json!({"name": "test"}));
        let account = text(&made["id"]);
        let grants = format!("POST /admin/v1/accounts/{account}/grants");
        self.operator(&grants, &json!({"amount": "1.00", "id": "first"}));
        let keys = format!("POST /admin/v1/accounts/{account}/keys");
        let key = self.operator(&keys, &json!({"name": "test"}));
        (account, text(&key["key"]))
    }

    fn balance(&self, account: &str) -> Value {
        self.operator(&format!("GET /admin/v1/accounts/{account}"), &Value::Null)["balance"].clone()
    }
}

/// What comes of something that is asked again and again, once it is as it should be.
fn until<T: std::fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    is_so: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let seen = look();
        if is_so(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < TIMEOUT, "{what} does not come: {seen:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A server of its own, and the name and place of a fleet's database there.
fn migrated() -> (Postgres, String, String) {
    let server = Postgres::start();
    let (name, url) = server.database("processes");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(make_schema(&url));
    (server, name, url)
}

#[test]
fn a_fleet_answers_for_its_tasks_and_ends_those_of_a_killed_node() {
    let (server, name, url) = migrated();
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let mut a = Process::start("a", &url, &sim, 1500);
    let [b, c] = ["b", "c"].map(|name| Process::start(name, &url, &sim, 1500));
    let (account, key) = a.customer();
    let (_, stranger) = b.customer();

    let taken = until("money", || a.submit(&key, "a lighthouse"), |answer| answer.status() == 202);
    let id = taken.json()["id"].as_str().expect("an id").to_owned();
    for node in [&b, &c] {
        let known = |answer: &Answer| answer.status() != 401;
        let record = until("the key", || node.record(&key, &id), known);
        assert_eq!(record.status(), 200, "{record:?}");
        assert_eq!(record.json()["id"], json!(id));
        let theirs = until("the key", || node.record(&stranger, &id), known);
        let unknown = node.record(&stranger, "gt_00000000000000000000000000000000");
        assert_eq!(
            (theirs.status(), theirs.body()),
            (404, unknown.body()),
            "as if there were none"
        );
    }
    a.running.kill();
    let ended = |answer: &Answer| answer.status() == 200 && answer.json()["status"] == "succeeded";
    for node in [&b, &c] {
        until("the end", || node.record(&key, &id), ended);
    }
    // What the killed node had out beside is in suspense.
    let sums = format!("SELECT held, spent FROM tollgate.accounts WHERE id = '{account}'");
    until("the money", || server.sql(&name, &sums), |sums| sums == "0|140000000");
    let statement = format!("GET /admin/v1/accounts/{account}/entries");
    let statement = c.operator(&statement, &Value::Null).to_string();
    assert!(statement.contains("settlement"), "{statement}");

    // The same submit to two nodes at one time.
    let both = std::thread::scope(|scope| {
        let submits = [&b, &c].map(|node| scope.spawn(|| node.submit(&key, "marked")));
        submits.map(|submit| submit.join().expect("no panic"))
    });
    let taken = both.iter().filter(|answer| answer.status() == 202).count();
    assert!(taken >= 1, "{both:?}");
    for answer in &both {
        assert!([202, 409].contains(&answer.status()), "{answer:?}");
    }
    assert_eq!(sim.tasks().len(), 2, "one task more");

    server.stop(Stop::Fast);
    let refused = b.submit(&key, "a lighthouse");
    assert_eq!(refused.status(), 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(b.record(&key, &id).status(), 503);
    assert_eq!(sim.tasks().len(), 2, "the upstream was not asked");
    server.start_again();
    until("a submit", || b.submit(&key, "a lighthouse"), |answer| answer.status() == 202);
    until("the money", || server.sql(&name, &sums), |sums| sums == "0|420000000");
    assert_eq!(c.balance(&account)["spent"], "0.42");
}
