//! Reports to process supervisors: systemd over its socket, container engines by exit code.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::child::Running;
use crate::harness::{Gateway, Recorder, spawn_demo};

fn tollgate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
}

/// A demo in `directory` whose environment is changed, and its admin address.
fn demo(directory: &std::path::Path, environment: &[(&str, &str)]) -> (Running, SocketAddr) {
    let (process, ready, _) = spawn_demo(&directory.join("data"), environment);
    let url = ready["admin_url"].as_str().expect("a URL").to_owned();
    (process, url.trim_start_matches("http://").parse().expect("an address"))
}

/// Listens where systemd would, and gives what hears the next message.
fn listen(path: &std::path::Path) -> impl Fn() -> String {
    let socket = UnixDatagram::bind(path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    move || {
        let mut bytes = [0; 1024];
        let count = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..count]).trim_end().to_owned()
    }
}

fn signal(process: &Running, name: &str) {
    let sent =
        Command::new("kill").arg(format!("-{name}")).arg(process.0.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
}

#[test]
fn systemd_hears_of_the_start_of_reloads_of_the_watchdog_and_of_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let hear = listen(&path);
    // The watchdog speaks between the other messages.
    let hear_next = || loop {
        let signals = hear();
        if signals != "WATCHDOG=1" {
            return signals;
        }
    };
    let socket_name = path.to_str().expect("text");
    let environment = [("NOTIFY_SOCKET", socket_name), ("WATCHDOG_USEC", "200000")];
    let (mut process, _) = demo(directory.path(), &environment);
    assert_eq!(hear_next(), "READY=1");

    let began = Instant::now();
    let signals: Vec<_> = (0..5).map(|_| hear()).collect();
    assert_eq!(signals, ["WATCHDOG=1"; 5]);
    let took = began.elapsed();
    assert!((250..1500).contains(&took.as_millis()), "every 100 ms: {took:?}");

    signal(&process, "HUP");
    let reloading = hear_next();
    let (word, time) = reloading.split_once('\n').expect("two lines");
    assert_eq!(word, "RELOADING=1");
    let microseconds = time.strip_prefix("MONOTONIC_USEC=").expect("the time");
    assert!(microseconds.parse::<u64>().is_ok_and(|time| time > 0), "{reloading}");
    assert_eq!(hear_next(), "READY=1");

    signal(&process, "TERM");
    assert_eq!(hear_next(), "STOPPING=1");
    assert!(process.0.wait().expect("it ends").success());
}

/// The process before may give its streams minutes, longer than the watchdog waits.
#[test]
fn a_process_that_waits_to_take_over_says_that_it_lives() {
    let recorder = Recorder::start();
    let mut files = Gateway::start(recorder.address);
    files.signal("TERM");
    assert!(files.wait().success());
    let path = files.path("notify");
    let hear = listen(&path);
    // This test is the process before.
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    let next = tollgate()
        .args(["serve", "--take-over", "--routes"])
        .arg(files.path("routes.yaml"))
        .arg("--models")
        .arg(files.path("models.yaml"))
        .envs([("NOTIFY_SOCKET", path.as_os_str()), ("WATCHDOG_USEC", "200000".as_ref())])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn();
    let next = Running(next.expect("the binary starts"));
    ours.read_exact(&mut [0]).expect("it comes up");
    let signals: Vec<_> = (0..5).map(|_| hear()).collect();
    assert_eq!(signals, ["WATCHDOG=1"; 5]);
    drop(ours);
    let deadline = Instant::now() + Duration::from_secs(10);
    while hear() != "READY=1" {
        assert!(Instant::now() < deadline, "it does not take over");
    }
    drop(next);
}

#[test]
fn the_healthcheck_answers_by_its_exit_code_and_in_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut process, admin) = demo(directory.path(), &[]);
    let check = |address: SocketAddr| {
        let mut command = tollgate();
        command.args(["healthcheck", "--timeout-ms", "500", "--admin", &address.to_string()]);
        let began = Instant::now();
        let output = command.output().expect("the binary runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            began.elapsed(),
        )
    };
    let (code, message, _) = check(admin);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains(r#""ready":true"#), "{message}");
    // As an address that listens everywhere is written in the configuration.
    let everywhere = SocketAddr::from(([0, 0, 0, 0], admin.port()));
    assert_eq!(check(everywhere).0, Some(0));

    signal(&process, "TERM");
    process.0.wait().expect("it ends");
    assert_eq!(check(admin).0, Some(1), "nobody listens");

    // Somebody listens and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let (code, _, took) = check(silent.local_addr().expect("an address"));
    assert_eq!(code, Some(1));
    assert!((500..2000).contains(&took.as_millis()), "the timeout: {took:?}");
}
