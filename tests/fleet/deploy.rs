//! The example of a fleet that is shipped: its script starts it, and a node may go.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::harness::child::Running;
use crate::harness::postgres::Postgres;
use crate::harness::{Answer, ask, eventually, free_address, poll, simulator, tool};
use serde_json::{Value, json};

const ADMIN_TOKEN: &str = "admin-token-of-the-example";
/// Longer than a schema and three nodes take to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than nodes take to let calls end and to give back what they have out.
const END_TIMEOUT: Duration = Duration::from_secs(60);
const CHAT: &str = r#"{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}"#;

fn shipped(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/fleet").join(file)
}

fn post(address: SocketAddr, path: &str, token: &str, body: &str) -> Answer {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: fleet\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    ask(address, request.as_bytes())
}

/// Does something with the admin API of a node, which must succeed.
fn admin(address: SocketAddr, path: &str, body: &Value) -> Value {
    let answer = post(address, &format!("/admin/v1{path}"), ADMIN_TOKEN, &body.to_string());
    assert!((200..300).contains(&answer.status()), "{path}: {answer:?}");
    answer.json()
}

/// The script at work. It ends its nodes when it is told to end.
struct Example {
    script: Running,
    front: SocketAddr,
    admins: [SocketAddr; 3],
    data: tempfile::TempDir,
}

impl Example {
    fn start(database: &str, upstream: SocketAddr) -> Self {
        let (front, data) = (free_address(), tempfile::tempdir().expect("a directory"));
        let admins = [(); 3].map(|()| free_address());
        let mut script = Command::new(shipped("start.sh"));
        script
            .env("TOLLGATE", env!("CARGO_BIN_EXE_tollgate"))
            .env("TOLLGATE_PG_URL", database)
            .env("TOLLGATE_ADMIN_TOKEN", ADMIN_TOKEN)
            .env("TOLLGATE_UPSTREAM_URL", format!("http://{upstream}/v1"))
            .env("OPENAI_API_KEY", "sk-upstream-of-a-test")
            .env("FLEET_DATA", data.path())
            .env("FLEET_LISTEN", front.to_string())
            .stdout(Stdio::null());
        for (admin, number) in admins.iter().zip(1..) {
            script.env(format!("FLEET_ADMIN_{number}"), admin.port().to_string());
            script.env(format!("FLEET_NODE_{number}"), free_address().to_string());
        }
        let script = Running(script.spawn().expect("the script starts"));
        let mut example = Self { script, front, admins, data };
        poll("HAProxy listens", START_TIMEOUT, || {
            let ended = example.script.0.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "the script has ended: {ended:?}");
            std::net::TcpStream::connect(front)
        });
        example
    }

    fn kill(&self, of: &str) {
        let pid = std::fs::read_to_string(self.data.path().join(of)).expect("a process id");
        assert!(Command::new("kill").arg(pid.trim()).status().is_ok_and(|done| done.success()));
    }

    /// Ends the script, which ends what it has started.
    fn end(&mut self) -> ExitStatus {
        let status = self.try_end();
        status.unwrap_or_else(|| panic!("it does not end: {}", self.log("haproxy.log")))
    }

    /// How the script ends when it is told to; `None` for one that does not.
    fn try_end(&mut self) -> Option<ExitStatus> {
        let id = self.script.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        if !sent.is_ok_and(|status| status.success()) {
            return None;
        }
        self.script.wait_for(END_TIMEOUT)
    }

    fn log(&self, of: &str) -> String {
        std::fs::read_to_string(self.data.path().join(of)).expect("a log")
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended by itself, with all that it started.
        if let Ok(None) = self.script.0.try_wait() {
            self.try_end();
        }
    }
}

#[test]
fn the_example_serves_and_goes_on_without_one_node() {
    let (database, url) = Postgres::shared().database("example");
    let upstream = simulator(&[]);
    let mut example = Example::start(&url, upstream.addr());
    let [first, ..] = example.admins;
    let account = admin(first, "/accounts", &json!({"name": "a customer"}));
    let path = |of: &str| format!("/accounts/{}/{of}", account["id"].as_str().expect("an id"));
    admin(first, &path("grants"), &json!({"amount": "10.00", "id": "invoice-1"}));
    let key = admin(first, &path("keys"), &json!({"name": "a key"}));
    let key = key["key"].as_str().expect("a key").to_owned();
    let chat = || post(example.front, "/v1/chat/completions", &key, CHAT).status();
    // Each of the three hears of the key within a second.
    let mut in_a_row = 0;
    eventually("an answer from each node", || {
        in_a_row = if chat() == 200 { in_a_row + 1 } else { 0 };
        in_a_row == 6
    });
    example.kill("node-1.pid");
    eventually("the end of a node", || std::net::TcpStream::connect(first).is_err());
    for _ in 0..6 {
        assert_eq!(chat(), 200, "the others serve: {}", example.log("haproxy.log"));
    }
    assert_eq!(example.end().code(), Some(143), "as it was told");
    let sums = "SELECT granted - spent - available, leased + held + suspense, spent > 0
                FROM tollgate.accounts";
    let row = Postgres::shared().sql(&database, sums);
    assert_eq!(row, "0|0|t", "all that was out came back: {}", example.log("node-2.log"));
}

#[test]
fn the_configuration_of_haproxy_is_in_order() {
    let check = tool("haproxy").arg("-c").arg("-f").arg(shipped("haproxy.cfg")).output();
    let check = check.expect("haproxy runs");
    assert!(check.status.success(), "{check:?}");
}

/// The script says what is missing, and starts nothing.
#[test]
fn without_a_database_the_script_ends_at_once() {
    let script = Command::new(shipped("start.sh")).env_remove("TOLLGATE_PG_URL").output();
    let script = script.expect("the script runs");
    let errors = String::from_utf8_lossy(&script.stderr);
    assert!(!script.status.success() && errors.contains("TOLLGATE_PG_URL"), "{script:?}");
}
