//! Announcements of ended tasks: signed so that the published libraries accept them, repeated until
//! they are taken.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::{Answer, Gateway, ask, eventually, let_pass, node, python, videos};
use serde_json::{Value, json};
use tollgate::sim::{Sim, SimOptions};

/// An announcement as it arrived.
#[derive(Clone, Debug)]
struct Announced {
    headers: Vec<(String, String)>,
    body: String,
}

impl Announced {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("{name} in {self:?}"))
    }
}

/// A receiver that answers with these heads, the last one for ever.
struct Receiver {
    address: SocketAddr,
    announced: Arc<Mutex<Vec<Announced>>>,
}

impl Receiver {
    fn start(heads: &[&str]) -> Self {
        let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let announced = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&announced);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().expect("a handle"));
                let mut headers = Vec::new();
                loop {
                    let mut line = String::new();
                    if lines.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                        break;
                    }
                    if let Some((name, value)) = line.split_once(':') {
                        headers.push((name.to_lowercase(), value.trim().to_owned()));
                    }
                }
                let length = headers.iter().find(|(name, _)| name == "content-length");
                let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
                let mut body = vec![0; length];
                if lines.read_exact(&mut body).is_err() {
                    continue;
                }
                let mut log = log.lock().expect("no poison");
                let head = heads.get(log.len()).or(heads.last()).expect("a head");
                log.push(Announced { headers, body: String::from_utf8(body).expect("text") });
                drop(log);
                let mut stream = stream;
                // The gateway may be gone by now.
                drop(write!(
                    stream,
                    "HTTP/1.1 {head}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                ));
            }
        });
        Self { address, announced }
    }

    fn all(&self) -> Vec<Announced> {
        self.announced.lock().expect("no poison").clone()
    }

    /// The announcements once there are so many.
    fn wait_for(&self, count: usize) -> Vec<Announced> {
        crate::harness::within(
            Duration::from_secs(15),
            || self.all().len() >= count,
            || format!("{} of {count} announcements", self.all().len()),
        );
        self.all()
    }
}

fn gateway(sim: &Sim) -> Gateway {
    let (upstreams, models) = videos(sim, "task-pending-ms=5;task-running-ms=5");
    Gateway::serving(&upstreams, models)
}

fn submit(gateway: &Gateway, receiver: &Receiver) -> String {
    submit_as(gateway, &gateway.key, receiver.address)
}

fn ask_for(gateway: &Gateway, key: &str, webhook_url: &str) -> Answer {
    let body = json!({
        "model": "gif-video",
        "prompt": "a lighthouse",
        "duration": 2,
        "webhook_url": webhook_url,
    })
    .to_string();
    let head = format!(
        "POST /v1/videos/generations HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    ask(gateway.address, head.as_bytes())
}

fn submit_as(gateway: &Gateway, key: &str, receiver: SocketAddr) -> String {
    let answer = ask_for(gateway, key, &format!("http://{receiver}/hook"));
    assert_eq!(answer.status(), 202, "{}", answer.json());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_webhook_is_retried_until_accepted_and_verifies_with_published_libraries() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim);
    let receiver = Receiver::start(&["500 No", "204 Taken"]);
    let id = submit(&gateway, &receiver);
    let all = receiver.wait_for(2);
    assert_eq!(all[0].header("webhook-id"), all[1].header("webhook-id"), "one id for all tries");
    let event: Value = serde_json::from_str(&all[1].body).expect("JSON");
    assert_eq!(event["type"], "video.task.succeeded", "{event}");
    assert_eq!((&event["data"]["id"], &event["data"]["status"]), (&json!(id), &json!("succeeded")));
    let path = format!("/admin/v1/accounts/{}/webhook-secret", gateway.account);
    let secret = gateway.admin("GET", &path, &Value::Null)["secret"].clone();
    let secret = secret.as_str().expect("a secret").to_owned();
    for announced in &all {
        verify_with_the_libraries(&secret, announced);
    }
    let_pass(Duration::from_millis(500), "a third try must not come");
    assert_eq!(receiver.all().len(), 2, "taken is taken");
    let again = format!("/admin/v1/accounts/{}/tasks/{id}/announce", gateway.account);
    gateway.admin("POST", &again, &json!({}));
    let all = receiver.wait_for(3);
    assert_eq!(all[2].body, all[1].body, "what was announced before");
}

/// Python's and JavaScript's `standardwebhooks` accept it, and neither takes it with one letter changed.
fn verify_with_the_libraries(secret: &str, announced: &Announced) {
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers: Value =
        names.iter().map(|name| ((*name).to_owned(), json!(announced.header(name)))).collect();
    let [packages, node] = node::commands();
    let modules = packages.parent().expect("node_modules").to_owned();
    let root = env!("CARGO_MANIFEST_DIR");
    let python = python::environment().join("bin/python");
    for (body, accepted) in [
        (announced.body.clone(), true),
        (announced.body.replacen("succeeded", "Succeeded", 1), false),
    ] {
        let mut by_python = Command::new(&python);
        by_python.arg("tests/python/verify_webhook.py");
        let mut by_node = Command::new(node.join("node"));
        by_node.arg("tests/node/verify_webhook.cjs").env("NODE_PATH", &modules);
        for command in [&mut by_python, &mut by_node] {
            let status = command
                .args([secret, &headers.to_string(), &body])
                .current_dir(root)
                .output()
                .expect("the verifier runs");
            let printed = String::from_utf8_lossy(&status.stdout);
            assert_eq!(printed.trim(), if accepted { "valid" } else { "invalid" }, "{status:?}");
        }
    }
}

#[test]
fn redirects_and_410_of_a_receiver_are_not_followed() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let gateway = gateway(&sim);
    let elsewhere = Receiver::start(&["204 Taken"]);
    let location = format!("302 Found\r\nlocation: http://{}/hook", elsewhere.address);
    let redirecting = Receiver::start(&[&location, "410 Gone"]);
    submit(&gateway, &redirecting);
    let all = redirecting.wait_for(2);
    assert_eq!(all.len(), 2, "tried again, and then gone");
    assert!(elsewhere.all().is_empty(), "a redirect is not followed");
    let_pass(Duration::from_millis(500), "a third try must not come");
    assert_eq!(redirecting.all().len(), 2, "gone is gone");
}

/// kill -9 between an end and its announcement: it is announced after the restart.
#[test]
fn announcements_outlive_the_process() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let mut gateway = gateway(&sim);
    let receiver = Receiver::start(&["503 Later", "204 Taken"]);
    submit(&gateway, &receiver);
    receiver.wait_for(1);
    let failed = r#"tollgate_webhook_tries_total{outcome="failed"}"#;
    eventually("the try is counted", || gateway.metric(failed) == 1.0);
    gateway.kill_and_restart();
    let all = receiver.wait_for(2);
    assert_eq!(all[0].header("webhook-id"), all[1].header("webhook-id"));
    assert_eq!(gateway.settled()["spent"], "0.14");
}

/// Receivers that take connections and never answer.
fn silent_receivers(count: usize) -> Vec<TcpListener> {
    (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect()
}

/// 400 announcements to dead receivers of one account hold up nobody else's.
#[test]
fn dead_receivers_of_one_account_delay_no_others() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    // What an account has under way at one time where nothing else is configured.
    const AT_ONCE: f64 = 4.0;
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let (upstreams, models) = videos(&sim, "task-pending-ms=5;task-running-ms=5");
    let upstreams = upstreams.replace("webhook_hosts:", "webhook_timeout: 3s, webhook_hosts:");
    let gateway = Gateway::serving(&upstreams, models);
    gateway.grant("100.00", "more");
    let dead = silent_receivers(40);
    let key = gateway.customer("another", Some("10.00"));
    let begun = Instant::now();
    for number in 0..400 {
        let address = dead[number % dead.len()].local_addr().expect("an address");
        submit_as(&gateway, &gateway.key, address);
    }
    // All of them have ended, and wait for their turns.
    gateway.settled();
    for _ in 0..3 {
        let receiver = Receiver::start(&["204 Taken"]);
        let started = Instant::now();
        submit_as(&gateway, &key, receiver.address);
        receiver.wait_for(1);
        let took = started.elapsed();
        assert!(took < TIMEOUT, "another account's announcement came after {took:?}");
    }
    let tried = gateway.metric("tollgate_webhook_tries_total{outcome=\"failed\"}");
    // Each try takes its whole time, however slowly the machine gets through the 400 submits.
    let rounds = begun.elapsed().as_secs_f64() / TIMEOUT.as_secs_f64();
    assert!(tried <= AT_ONCE * (rounds + 1.0), "{tried} tries in {rounds} rounds");
}

/// Of a host that the operator lists, only the ports are reached that are meant: who may name a URL is
/// told what became of it, and could look for what else listens there.
#[test]
fn a_listed_host_is_reached_on_the_listed_ports_alone() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let (upstreams, models) = videos(&sim, "task-pending-ms=5;task-running-ms=5");
    let receiver = Receiver::start(&["204 Taken"]);
    let listed = format!("[localhost, '{}']", receiver.address);
    let upstreams = upstreams.replace("['127.0.0.1:*']", &listed);
    let gateway = Gateway::serving(&upstreams, models);
    let other = Receiver::start(&["204 Taken"]);
    for (url, status) in [
        (format!("http://{}/hook", receiver.address), 202),
        (format!("http://{}/hook", other.address), 400),
        ("http://127.0.0.1/hook".to_owned(), 400),
        ("http://localhost/hook".to_owned(), 202),
        ("http://localhost:8099/hook".to_owned(), 400),
    ] {
        let answer = ask_for(&gateway, &gateway.key, &url);
        assert_eq!(answer.status(), status, "{url}: {}", answer.json());
        if status == 400 {
            assert_eq!(answer.json()["error"]["param"], "webhook_url", "{url}: {}", answer.json());
        }
    }
    receiver.wait_for(1);
    assert!(other.all().is_empty());
}
