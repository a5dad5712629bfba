//! Start, reload, drain: what operators do to a running gateway.

mod harness;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Admin, Demo, Gateway, Recorder, ask};
use serde_json::Value;
use tollgate::sim::{Behaviour, Sim, SimOptions};

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not happen within 10 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn simulator(settings: &[&str]) -> Sim {
    let mut behaviour = Behaviour::default();
    for setting in settings {
        behaviour.set_pair(setting).expect("a setting");
    }
    let listen = "127.0.0.1:0".parse().expect("an address");
    Sim::start(SimOptions { listen, behaviour }).expect("the simulator starts")
}

#[test]
fn sigterm_lets_a_stream_finish_and_exits() {
    let sim = simulator(&["chunks=20", "interval-ms=50"]);
    let mut gateway = Gateway::start(sim.addr());
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let (address, request) = (gateway.address, gateway.chat_json(body));
    let stream = std::thread::spawn(move || ask(address, &request));
    std::thread::sleep(Duration::from_millis(300));
    gateway.signal("TERM");
    let status = gateway.wait();
    let ended = Instant::now();
    assert!(status.success(), "exit 0 after a drain: {status:?}");
    let answer = stream.join().expect("no panic");
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    assert!(text.contains("data: [DONE]"), "the stream was cut: {text}");
    assert!(ended.elapsed() < Duration::from_secs(1), "the process outlived its last answer");
    let data = gateway.path("data");
    let verified = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["ledger", "verify", "--data"])
        .arg(data)
        .output()
        .expect("the binary runs");
    let report = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.success() && report.contains("open holds 0"), "{report}");
}

#[test]
fn a_stream_that_the_end_cuts_is_paid_for() {
    let sim = simulator(&["chunks=1000", "words=1", "interval-ms=20"]);
    let mut gateway = Gateway::start(sim.addr());
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let (address, request) = (gateway.address, gateway.chat_json(body));
    let stream = std::thread::spawn(move || ask(address, &request));
    std::thread::sleep(Duration::from_millis(500));
    // What the deadline of a drain does to a stream, at once.
    gateway.signal("INT");
    assert!(gateway.wait().success(), "exit 0");
    let answer = stream.join().expect("no panic");
    assert!(String::from_utf8_lossy(&answer.bytes).matches("data: ").count() > 5, "{answer:?}");
    let verified = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["ledger", "verify", "--json", "--data"])
        .arg(gateway.path("data"))
        .output()
        .expect("the binary runs");
    let report: Value = serde_json::from_slice(&verified.stdout).expect("JSON");
    assert_eq!(report["open_holds"], 0, "{report}");
    assert_ne!(report["total"]["spent"], "0.00", "what was delivered is charged: {report}");
}

#[test]
fn an_idle_gateway_ends_at_once() {
    let recorder = Recorder::start();
    for signal in ["TERM", "INT"] {
        let mut gateway = Gateway::start(recorder.address);
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
        let asked = Instant::now();
        gateway.signal(signal);
        assert!(gateway.wait().success(), "exit 0 after SIG{signal}");
        assert!(asked.elapsed() < Duration::from_secs(3), "SIG{signal} took {:?}", asked.elapsed());
    }
}

#[test]
fn a_bad_file_never_stops_a_running_gateway_and_a_good_one_is_taken() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let models = gateway.path("models.yaml");
    let good = std::fs::read_to_string(&models).expect("the file");
    let renamed = |model: &str| {
        let body = GOOD.replace("\"m\"", &format!("{model:?}"));
        ask(gateway.address, &gateway.chat_json(body)).status()
    };
    for bad in ["models: [", "", "models:\n  m:\n    operations: [chatt]\n"] {
        std::fs::write(&models, bad).expect("written");
        gateway.signal("HUP");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(renamed("m"), 200, "the last good configuration stays in force after {bad:?}");
    }
    std::fs::write(&models, good.replace("  m:\n", "  renamed:\n")).expect("written");
    gateway.signal("HUP");
    eventually("the reload", || renamed("renamed") == 200);
    assert_eq!(renamed("m"), 404, "the old name is gone");
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let data = tempfile::tempdir().expect("a directory");
    let _first = Demo::on(data.path());
    let second = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["demo", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{text}");
    assert!(second.stdout.is_empty(), "nothing on standard output");
    assert!(text.contains("another process") || text.contains("in use"), "says why: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_demo_finds_its_account_again_and_the_disk_holds_no_key() {
    let data = tempfile::tempdir().expect("a directory");
    let first = Demo::on(data.path());
    let call = |demo: &Demo| {
        let url = format!("{}/v1/chat/completions", demo.base_url);
        let body = serde_json::json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]});
        harness::http().post(url).bearer_auth(&demo.api_key).json(&body).send()
    };
    assert_eq!(call(&first).await.expect("an answer").status(), 200);
    let accounts = Admin::of(&first).get("/accounts").await;
    let account = accounts["data"][0]["id"].as_str().expect("an id").to_owned();
    let before = Admin::of(&first).settled(&account).await;
    let key = first.api_key.clone();
    drop(first);

    let mut second = Demo::on(data.path());
    let found: Value = Admin::of(&second).get("/accounts").await;
    assert_eq!(found["data"].as_array().map(Vec::len), Some(1), "no second account: {found}");
    let after = Admin::of(&second).settled(&account).await;
    assert_eq!(before, after, "the balance is the same, also after kill -9");
    second.api_key = key;
    assert_eq!(call(&second).await.expect("an answer").status(), 200, "the old key works on");

    let keys = [second.api_key.clone(), second.admin_token.clone()];
    drop(second);
    let mut left = vec![data.path().to_owned()];
    let mut files = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                std::fs::read_dir(&path).expect("a directory").map(|e| e.expect("e").path()),
            );
        } else if !path.ends_with("admin-token") {
            let bytes = std::fs::read(&path).expect("a file");
            assert!(memchr::memmem::find(&bytes, b"sk-").is_none(), "{} holds sk-", path.display());
            for key in &keys {
                assert!(
                    memchr::memmem::find(&bytes, key.as_bytes()).is_none(),
                    "{}",
                    path.display()
                );
            }
            files += 1;
        }
    }
    assert!(files >= 3, "journal, sled and lock were looked at");
}
