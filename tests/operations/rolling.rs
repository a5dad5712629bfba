//! Two gateways behind a load balancer, restarted one after the other under load: what
//! docs/load-balancers.md says, with the very files that it shows.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::child::Running;
use crate::harness::{Gateway, Recorder, ask, eventually, free_address, let_pass, tool};
use tollgate::money::Nanousd;

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
/// 5 tokens at $1 a million, and one at $10 a million.
const PRICE_NANOUSD: i64 = 15_000;

/// One of the two gateways, at addresses that it keeps.
struct Member {
    listen: SocketAddr,
    admin: SocketAddr,
    data: PathBuf,
    routes: PathBuf,
    models: PathBuf,
    process: Running,
}

impl Member {
    fn start(files: &Gateway, data: PathBuf) -> Self {
        let (listen, admin) = (free_address(), free_address());
        let (routes, models) = (files.path("routes.yaml"), files.path("models.yaml"));
        // Both directories are copies of a third, which nobody uses any more.
        let process = spawn(&routes, &models, &data, listen, admin, &["--accept-fork"]);
        let member = Self { listen, admin, data, routes, models, process };
        member.wait_until_ready();
        member
    }

    fn wait_until_ready(&self) {
        eventually("the gateway", || {
            let mut check = Command::new(env!("CARGO_BIN_EXE_tollgate"));
            check.args(["healthcheck", "--admin", &self.admin.to_string()]);
            check.output().is_ok_and(|output| output.status.success())
        });
    }

    /// Ends the process as a supervisor does, and starts the next one in its place.
    fn restart(&mut self) {
        self.stop();
        let_pass(Duration::from_millis(500), "the load balancer bridges what a roll-out takes");
        self.process = spawn(&self.routes, &self.models, &self.data, self.listen, self.admin, &[]);
        self.wait_until_ready();
    }

    fn stop(&mut self) {
        let id = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().is_ok_and(|s| s.success()));
        assert!(self.process.0.wait().expect("it ends").success(), "exit 0");
    }

    /// Spent amount of this gateway's customers by its ledger; it must have stopped.
    fn spent(&self) -> i64 {
        let verified = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["ledger", "verify", "--json", "--data"])
            .arg(&self.data)
            .output()
            .expect("the binary runs");
        let report: serde_json::Value = serde_json::from_slice(&verified.stdout).expect("JSON");
        assert_eq!(report["open_holds"], 0, "{report}");
        let spent = report["total"]["spent"].as_str().expect("dollars");
        spent.parse::<Nanousd>().expect("dollars").get()
    }
}

fn spawn(
    routes: &Path,
    models: &Path,
    data: &Path,
    listen: SocketAddr,
    admin: SocketAddr,
    more: &[&str],
) -> Running {
    let child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--log", "error", "--listen", &listen.to_string()])
        .args(["--admin", &admin.to_string()])
        .arg("--routes")
        .arg(routes)
        .arg("--models")
        .arg(models)
        .arg("--data")
        .arg(data)
        .args(more)
        .stdout(Stdio::null())
        .spawn();
    Running(child.expect("the binary starts"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).expect("copied");
        }
    }
}

/// The first block of that language in the how-to, with the addresses of this test in the place of
/// those that it shows.
fn shown(language: &str, balancer: SocketAddr, members: &[Member; 2]) -> String {
    let text = include_str!("../../docs/load-balancers.md");
    let (_, rest) = text.split_once(&format!("```{language}\n")).expect("a block");
    let (block, _) = rest.split_once("```").expect("its end");
    let [first, second] = members;
    let mut block = block.to_owned();
    for (shown, real) in [
        ("0.0.0.0:80", balancer.to_string()),
        ("10.0.0.11:8080", first.listen.to_string()),
        ("10.0.0.12:8080", second.listen.to_string()),
        ("addr 10.0.0.11 port 9090", format!("port {}", first.admin.port())),
        ("addr 10.0.0.12 port 9090", format!("port {}", second.admin.port())),
    ] {
        block = block.replace(shown, &real);
    }
    assert!(!block.contains("10.0.0."), "an address is left: {block}");
    block
}

fn balancer(command: &mut Command, address: SocketAddr) -> Running {
    let process = command
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    eventually("the load balancer", || TcpStream::connect(address).is_ok());
    Running(process)
}

/// Restarts both gateways one after the other while customers call through the load balancer that
/// `start` runs from its configuration.
fn roll(language: &str, start: impl FnOnce(&Path, SocketAddr) -> Running) {
    let recorder = Recorder::start();
    let mut files = Gateway::start_with(recorder.address, "shutdown: { delay: 2s, grace: 10s }\n");
    files.signal("TERM");
    assert!(files.wait().success());
    // The same accounts and keys in two ledgers, which go their own ways from here.
    let copies = [files.path("first"), files.path("second")];
    for to in &copies {
        copy(&files.path("data"), to);
    }
    let mut members = copies.map(|data| Member::start(&files, data));
    let address = free_address();
    let configuration = files.path("balancer.conf");
    fs::write(&configuration, shown(language, address, &members)).expect("written");
    let balancer = start(&configuration, address);

    let request = files.chat_json(GOOD);
    let (done, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    eventually("the first answer", || ask(address, &request).status() == 200);
    let before = 1;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let answer = ask(address, &request);
                    if answer.status() == 200 {
                        served.fetch_add(1, Ordering::Relaxed);
                    } else {
                        failures.lock().expect("no poison").push(answer);
                    }
                }
            });
        }
        for member in &mut members {
            let before = served.load(Ordering::Relaxed);
            eventually("load", || served.load(Ordering::Relaxed) > before + 50);
            member.restart();
            let_pass(
                Duration::from_millis(1500),
                "nothing shows that the load balancer has taken it in again",
            );
        }
        done.store(true, Ordering::Relaxed);
    });
    let (served, failures) = (served.into_inner(), failures.into_inner().expect("no poison"));
    assert!(failures.is_empty(), "{} of {served} failed: {:?}", failures.len(), failures.first());
    assert!(served > 200, "there was load: {served}");
    drop(balancer);
    let spent = members.each_mut().map(|member| {
        member.stop();
        member.spent()
    });
    let expected = PRICE_NANOUSD * i64::try_from(served + before).expect("a count");
    assert_eq!(spent.iter().sum::<i64>(), expected, "each answer is paid for once: {spent:?}");
    assert!(spent.iter().all(|spent| *spent > expected / 10), "both served: {spent:?}");
}

#[test]
fn both_gateways_restart_behind_haproxy_and_no_request_fails() {
    roll("haproxy", |configuration, address| {
        balancer(tool("haproxy").arg("-db").arg("-f").arg(configuration), address)
    });
}

#[test]
fn both_gateways_restart_behind_nginx_and_no_request_fails() {
    roll("nginx", |configuration, address| {
        // What surrounds the shown part in a distribution's nginx.conf, without its fixed places.
        let directory = configuration.parent().expect("a directory");
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/{name};\n", directory.display()));
        let root = if directory.metadata().is_ok_and(|found| is_roots(&found)) {
            "user root;"
        } else {
            ""
        };
        let whole = format!(
            "{root}\npid {0}/nginx.pid;\nerror_log stderr error;\ndaemon off;\nmaster_process off;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\naccess_log off;\n{1}include {2};\n}}\n",
            directory.display(),
            places.concat(),
            configuration.display(),
        );
        let path = directory.join("nginx.conf");
        fs::write(&path, whole).expect("written");
        balancer(tool("nginx").args(["-e", "stderr", "-c"]).arg(path), address)
    });
}

fn is_roots(found: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(found) == 0
}
