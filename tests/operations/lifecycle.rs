//! Start, reload, drain: what operators do to a running gateway.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    Admin, Demo, Gateway, Recorder, ask, ask_over, begin, connect, eventually, read_events, rest,
    simulator,
};
use serde_json::Value;

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

#[test]
fn sigterm_lets_a_stream_finish_and_exits() {
    let sim = simulator(&["chunks=20", "interval-ms=50"]);
    let mut gateway = Gateway::start(sim.addr());
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let (address, request) = (gateway.address, gateway.chat_json(body));
    let stream = begin(address, &request);
    let stream = std::thread::spawn(move || rest(stream));
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
    let mut stream = begin(address, &request);
    read_events(&mut stream, 6);
    // What the deadline of a drain does to a stream, at once.
    gateway.signal("INT");
    assert!(gateway.wait().success(), "exit 0");
    drop(stream);
    let report = verified(&gateway);
    assert_eq!(report["open_holds"], 0, "{report}");
    assert_ne!(report["total"]["spent"], "0.00", "what was delivered is charged: {report}");
}

/// Result of `ledger verify` for a gateway that has ended.
fn verified(gateway: &Gateway) -> Value {
    let verified = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["ledger", "verify", "--json", "--data"])
        .arg(gateway.path("data"))
        .output()
        .expect("the binary runs");
    assert!(verified.status.success(), "{verified:?}");
    serde_json::from_slice(&verified.stdout).expect("JSON")
}

#[test]
fn sigterm_says_not_ready_before_it_takes_no_more() {
    let recorder = Recorder::start();
    let mut gateway = Gateway::start_with(recorder.address, "shutdown: { delay: 1500ms }\n");
    assert_eq!(gateway.ready(), 200);
    let started = Instant::now();
    gateway.signal("TERM");
    eventually("not ready", || gateway.ready() == 503);
    assert!(started.elapsed() < Duration::from_millis(500), "at once: {:?}", started.elapsed());
    while started.elapsed() < Duration::from_millis(1200) {
        let answer = ask(gateway.address, &gateway.chat_json(GOOD));
        assert_eq!(answer.status(), 200, "still taken after {:?}", started.elapsed());
        assert_eq!(answer.header("connection").as_deref(), Some("close"), "{answer:?}");
    }
    assert!(gateway.wait().success(), "exit 0");
    let took = started.elapsed();
    assert!((1500..3000).contains(&took.as_millis()), "the delay, and no more: {took:?}");
}

#[test]
fn sigint_ends_a_drain_that_waits() {
    let recorder = Recorder::start();
    let mut gateway = Gateway::start_with(recorder.address, "shutdown: { delay: 1h }\n");
    gateway.signal("TERM");
    eventually("not ready", || gateway.ready() == 503);
    let started = Instant::now();
    gateway.signal("INT");
    assert!(gateway.wait().success(), "exit 0");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

/// A machine that is so busy that the signal and the last requests are seen at the same moment.
#[test]
fn queued_connections_are_answered_at_shutdown() {
    let recorder = Recorder::start();
    for round in 0..10 {
        let mut gateway = Gateway::start(recorder.address);
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
        gateway.signal("STOP");
        let request = gateway.chat_json(GOOD);
        let query: Vec<_> = (0..20)
            .map(|_| {
                let mut stream = connect(gateway.address);
                stream.write_all(&request).expect("sent");
                stream
            })
            .collect();
        gateway.signal("TERM");
        gateway.signal("CONT");
        for mut stream in query {
            let socket = stream.try_clone().expect("a second handle");
            let answer = ask_over(&mut stream, &socket, b"");
            assert_eq!(answer.status(), 200, "round {round}: {answer:?}");
        }
        assert!(gateway.wait().success(), "exit 0");
    }
}

/// Streams that flow, slowly and fast enough to have a piece at the very moment, and streams whose upstream
/// is silent, in each envelope that has one.
#[test]
fn a_stream_that_the_deadline_cuts_ends_in_an_error_event_and_is_paid_for() {
    let flowing = &["chunks=1000", "interval-ms=20"][..];
    let fast = &["chunks=3000", "interval-ms=1", "max-tokens=ignore"];
    let silent = &["chunks=2", "interval-ms=60000"][..];
    for (settings, keeps_alive) in
        [(flowing, false), (fast, false), (silent, false), (silent, true)]
    {
        let sim = simulator(settings);
        let mut gateway = Gateway::start_with(sim.addr(), "shutdown: { grace: 700ms }\n");
        if keeps_alive {
            let path = gateway.path("routes.yaml");
            let text = std::fs::read_to_string(&path).expect("the file");
            let text = text.replace("limits:\n", "limits:\n  sse_keepalive: 100ms\n");
            std::fs::write(&path, text).expect("written");
            gateway.admin("POST", "/admin/v1/reload", &Value::Null);
        }
        let stream = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
        let message = r#"{"model":"claude","max_tokens":900,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
        let length = format!("Content-Length: {}\r\n", message.len());
        let address = gateway.address;
        let requests = [gateway.chat_json(stream), gateway.post("/v1/messages", &length, message)];
        let streams = requests.map(|request| {
            let stream = begin(address, &request);
            std::thread::spawn(move || rest(stream))
        });
        let started = Instant::now();
        gateway.signal("TERM");
        assert!(gateway.wait().success(), "exit 0");
        let took = started.elapsed();
        assert!((700..3000).contains(&took.as_millis()), "{settings:?} took {took:?}");
        let texts = streams.map(|stream| {
            let answer = stream.join().expect("no panic");
            assert_eq!(answer.status(), 200);
            assert!(answer.is_whole(), "the body has its end: {answer:?}");
            String::from_utf8_lossy(&answer.bytes).into_owned()
        });
        let end = |text: &str| text.trim_end().rsplit("data: ").next().unwrap_or("").to_owned();
        assert!(end(&texts[0]).starts_with(r#"{"error":{"#), "{settings:?}: {}", texts[0]);
        assert!(end(&texts[1]).contains(r#""type":"error""#), "{settings:?}: {}", texts[1]);
        for text in &texts {
            assert!(end(text).contains("The gateway is stopping"), "{settings:?}: {text}");
            assert!(!text.contains("[DONE]"), "{text}");
        }
        let report = verified(&gateway);
        assert_eq!(report["open_holds"], 0, "{report}");
        assert_ne!(report["total"]["spent"], "0.00", "what was delivered is charged: {report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_over_http2_that_the_deadline_cuts_ends_in_an_error_event() {
    let sim = simulator(&["chunks=1000", "interval-ms=20"]);
    let mut gateway = Gateway::start_with(sim.addr(), "shutdown: { grace: 500ms }\n");
    let client = crate::harness::http_builder().http2_prior_knowledge().build().expect("a client");
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let call = client
        .post(format!("http://{}/v1/chat/completions", gateway.address))
        .bearer_auth(&gateway.key)
        .body(body);
    let answer = call.header("content-type", "application/json").send().await.expect("an answer");
    gateway.signal("TERM");
    let text = answer.text().await.expect("a whole stream");
    assert!(text.contains("The gateway is stopping"), "{text}");
    assert!(gateway.wait().success(), "exit 0");
    assert_eq!(verified(&gateway)["open_holds"], 0);
}

#[test]
fn a_request_without_an_answer_at_the_deadline_gets_a_503_and_costs_nothing() {
    let sim = simulator(&["delay-ms=60000"]);
    let mut gateway = Gateway::start_with(sim.addr(), "shutdown: { grace: 500ms }\n");
    let (address, request) = (gateway.address, gateway.chat_json(GOOD));
    let waiting = std::thread::spawn(move || ask(address, &request));
    eventually("the upstream works at it", || sim.requests_in_flight() == 1);
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "exit 0");
    let answer = waiting.join().expect("no panic");
    assert_eq!(answer.status(), 503, "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "ServiceUnavailable", "{answer:?}");
    let report = verified(&gateway);
    assert_eq!((&report["open_holds"], &report["total"]["spent"]), (&0.into(), &"0.00".into()));
}

#[test]
fn an_idle_gateway_ends_at_once() {
    let recorder = Recorder::start();
    for signal in ["TERM", "INT"] {
        let mut gateway = Gateway::start(recorder.address);
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
        let started = Instant::now();
        gateway.signal(signal);
        assert!(gateway.wait().success(), "exit 0 after SIG{signal}");
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "SIG{signal} took {:?}",
            started.elapsed()
        );
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
    let refused = r#"tollgate_config_reloads_total{outcome="refused"}"#;
    for bad in ["models: [", "", "models:\n  m:\n    operations: [chatt]\n"] {
        let before = gateway.metric(refused);
        std::fs::write(&models, bad).expect("written");
        gateway.signal("HUP");
        eventually("the file is refused", || gateway.metric(refused) > before);
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
async fn a_second_demo_reuses_its_account_and_key() {
    let data = tempfile::tempdir().expect("a directory");
    let first = Demo::on(data.path());
    let call = |demo: &Demo| {
        let url = format!("{}/v1/chat/completions", demo.base_url);
        let body = serde_json::json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]});
        crate::harness::http().post(url).bearer_auth(&demo.api_key).json(&body).send()
    };
    assert_eq!(call(&first).await.expect("an answer").status(), 200);
    let accounts = Admin::of(&first).get("/accounts").await;
    let account = accounts["data"][0]["id"].as_str().expect("an id").to_owned();
    let before = Admin::of(&first).settled(&account).await;
    let key = first.api_key.clone();
    drop(first);

    let second = Demo::on(data.path());
    let found: Value = Admin::of(&second).get("/accounts").await;
    assert_eq!(found["data"].as_array().map(Vec::len), Some(1), "no second account: {found}");
    let after = Admin::of(&second).settled(&account).await;
    assert_eq!(before, after, "the balance is the same, also after kill -9");
    assert_eq!(second.api_key, key, "what was pasted before works on");
    assert_eq!(call(&second).await.expect("an answer").status(), 200);
    let keys = Admin::of(&second).get(&format!("/accounts/{account}/keys")).await;
    assert_eq!(keys["data"].as_array().map(Vec::len), Some(1), "no second key: {keys}");

    let keys = [second.api_key.clone(), second.admin_token.clone()];
    drop(second);
    let mut left = vec![data.path().to_owned()];
    let mut files = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                std::fs::read_dir(&path).expect("a directory").map(|e| e.expect("e").path()),
            );
        } else if !path.ends_with("admin-token") && !path.ends_with("demo-key") {
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

/// The ledger has addresses, password hashes and balances in it: whatever the umask is, and whatever an
/// older build or a shell has left, nobody but their owner reads its files.
#[test]
fn nobody_but_their_owner_reads_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    std::fs::create_dir_all(data.join("left")).expect("made");
    std::fs::write(data.join("left/behind"), "x").expect("written");
    for (path, mode) in [(&data, 0o755), (&data.join("left/behind"), 0o644)] {
        let opened = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, opened).expect("opened");
    }
    let demo = format!(
        "umask 0000; exec {} demo --listen 127.0.0.1:0 --admin 127.0.0.1:0 --json --data {}",
        env!("CARGO_BIN_EXE_tollgate"),
        data.display()
    );
    let mut child = std::process::Command::new("sh")
        .args(["-c", &demo])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut line = String::new();
    let out = child.stdout.take().expect("standard output is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
    let mut left = vec![data];
    let (mut files, mut open) = (0, Vec::new());
    while let Some(path) = left.pop() {
        let metadata = std::fs::metadata(&path).expect("there");
        if metadata.permissions().mode() & 0o077 != 0 {
            open.push((path.clone(), metadata.permissions().mode()));
        }
        if metadata.is_dir() {
            left.extend(std::fs::read_dir(&path).expect("listed").map(|it| it.expect("it").path()));
        } else {
            files += 1;
        }
    }
    child.kill().expect("ended");
    child.wait().expect("waited for");
    assert!(line.contains("admin_token"), "{line}");
    assert!(files > 5 && open.is_empty(), "{files} files, open to others: {open:?}");
}

/// A start executes functions all over the program, most of which are not needed again.
#[test]
fn what_only_the_start_used_of_the_program_is_unmapped() {
    let sim = simulator(&[]);
    let gateway = Gateway::start(sim.addr());
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_tollgate")).expect("the program").len();
    // A machine that is busy may look when it has happened.
    let started = gateway.mapped_bytes().max(program / 4);
    eventually("the program is unmapped", || gateway.mapped_bytes() < started / 2);
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(gateway.mapped_bytes() < started, "{started} bytes, and then as many");
}
