//! SIGQUIT: a new process takes sockets and ledger over while customers call.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{
    Gateway, Recorder, TIMEOUT, ask, begin, eventually, let_pass, poll, rest, simulator,
};
use tollgate::money::Nanousd;

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// A process that is nobody's child here; ended on drop.
struct Process(u32);

impl Process {
    /// The one that serves these files, other than those known.
    fn serving(routes: &Path, existing: &[u32]) -> Self {
        poll("a process takes over", TIMEOUT, || {
            for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
                let id: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
                let Some(id) = id.filter(|id| !existing.contains(id)) else { continue };
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                if line.contains("--take-over") && line.contains(routes.to_str().expect("text")) {
                    return Ok(Self(id));
                }
            }
            Err("none yet")
        })
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.0.to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    fn lives(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    }

    fn wait(&self) {
        crate::harness::within(
            Duration::from_secs(20),
            || !self.lives(),
            || format!("process {} did not end", self.0),
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(Command::new("kill").arg("-KILL").arg(self.0.to_string()).status());
    }
}

#[test]
fn a_hand_over_fails_no_request_and_loses_no_money() {
    let recorder = Recorder::start();
    let mut gateway = Gateway::start(recorder.address);
    let routes = gateway.path("routes.yaml");
    let (done, served, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let slowest = std::sync::Mutex::new(Duration::ZERO);
    let (address, request) = (gateway.address, gateway.chat_json(GOOD));
    let third = std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let answer = ask(address, &request);
                    let took = began.elapsed();
                    let mut slowest = slowest.lock().expect("no poison");
                    *slowest = took.max(*slowest);
                    match answer.status() {
                        200 => served.fetch_add(1, Ordering::Relaxed),
                        _ => failed.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
        eventually("the first process serves", || served.load(Ordering::Relaxed) > 20);
        gateway.signal("QUIT");
        let second = Process::serving(&routes, &[]);
        assert!(gateway.wait().success(), "the first process exits with 0");
        let before = served.load(Ordering::Relaxed);
        eventually("the second process serves", || served.load(Ordering::Relaxed) > before + 20);
        // A process that has taken over hands over in the same way.
        second.signal("QUIT");
        let third = Process::serving(&routes, &[second.0]);
        second.wait();
        let before = served.load(Ordering::Relaxed);
        eventually("the third process serves", || served.load(Ordering::Relaxed) > before + 20);
        done.store(true, Ordering::Relaxed);
        third
    });
    let (served, failed) = (served.into_inner(), failed.into_inner());
    assert_eq!(failed, 0, "of {served} requests");
    assert!(served > 50, "there was load: {served}");
    let slowest = slowest.into_inner().expect("no poison");
    println!("{served} requests, the slowest {slowest:?}");
    assert!(slowest < Duration::from_secs(8), "nobody waits long: {slowest:?}");
    // 5 tokens at $1 a million, and one at $10 a million, each time.
    let spent: Nanousd =
        gateway.settled()["spent"].as_str().expect("dollars").parse().expect("dollars");
    assert_eq!(spent.get(), i64::try_from(served).expect("a count") * 15_000);
    third.signal("TERM");
    third.wait();
    let verified = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["ledger", "verify", "--data"])
        .arg(gateway.path("data"))
        .output()
        .expect("the binary runs");
    let report = String::from_utf8_lossy(&verified.stdout);
    assert!(verified.status.success() && report.contains("open holds 0"), "{report}");
}

#[test]
fn a_stream_ends_on_the_old_process_while_new_calls_wait_for_the_new_one() {
    let sim = simulator(&["chunks=30", "interval-ms=50"]);
    let mut gateway = Gateway::start(sim.addr());
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let (address, request) = (gateway.address, gateway.chat_json(body));
    let stream = begin(address, &request);
    let stream = std::thread::spawn(move || rest(stream));
    gateway.signal("QUIT");
    let next = Process::serving(&gateway.path("routes.yaml"), &[]);
    assert!(gateway.is_running(), "the stream needs the ledger until it is settled");
    let_pass(Duration::from_millis(300), "the old process stops to accept, which shows nowhere");
    let waited = ask(address, &gateway.get("/v1/balance"));
    assert_eq!(waited.status(), 200, "{waited:?}");
    assert!(waited.took > Duration::from_millis(300), "it waited: {:?}", waited.took);
    let text = String::from_utf8(stream.join().expect("no panic").bytes).expect("text");
    assert!(text.contains("data: [DONE]"), "the stream was cut: {text}");
    assert!(gateway.wait().success());
    assert_ne!(gateway.settled()["spent"], "0.00", "the new process knows what was spent");
    drop(next);
}

#[test]
fn a_process_whose_successor_cannot_start_goes_on() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    std::fs::write(gateway.path("routes.yaml"), "upstreams: [").expect("written");
    gateway.signal("QUIT");
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
    }
    assert!(gateway.ready() == 200, "and is ready");
}

/// Sockets that systemd has opened are used where the configuration names their addresses.
#[test]
fn sockets_that_are_passed_are_used() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let activated = Command::new("python3")
        .args(["-c", ACTIVATE])
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .arg(gateway.path("routes.yaml"))
        .arg(gateway.path("models.yaml"))
        .arg(gateway.path("other-data"))
        .output()
        .expect("python3 runs");
    let printed = String::from_utf8_lossy(&activated.stdout);
    assert!(activated.status.success(), "{printed}{}", String::from_utf8_lossy(&activated.stderr));
    assert!(printed.contains("200"), "{printed}");
}

/// Opens a socket, sends a request to it before anybody serves there, starts a gateway on it, and
/// prints the answer's status.
const ACTIVATE: &str = r#"
import os, signal, socket, sys
tollgate, routes, models, data = sys.argv[1:]
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
client = socket.create_connection(("127.0.0.1", port))
client.sendall(b"HEAD / HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
process = os.fork()
if process == 0:
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
    os.execv(tollgate, [
        tollgate, "serve", "--routes", routes, "--models", models, "--data", data,
        "--log", "warn", "--listen", f"127.0.0.1:{port}", "--admin", "127.0.0.1:0"])
try:
    client.settimeout(10)
    print(client.recv(1024).split()[1].decode())
finally:
    os.kill(process, signal.SIGTERM)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"#;
