//! A fleet of real processes: three nodes on a database, and HAProxy in front of them.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::child::Running;
use super::faketime::fake_clock;
use super::postgres::{Cut, free_address};
use super::wire::{Answer, ask};
use super::{Customer, eventually, tool};

/// The operators' token at every node.
pub(crate) const ADMIN_TOKEN: &str = "admin-token-of-a-test";

/// Settings of a fleet of three nodes.
pub(crate) struct Plan {
    /// The database.
    pub(crate) url: String,
    /// The database's port, to reach it over a wire that can be cut.
    pub(crate) wire_to: Option<u16>,
    /// How long a node goes on without the database.
    pub(crate) lease: &'static str,
    /// `upstreams:`, and what follows it in `routes.yaml`.
    pub(crate) upstreams: String,
    /// `models.yaml`.
    pub(crate) models: String,
    /// By how much the clock of each node is wrong, such as `+5s`.
    pub(crate) clocks: [Option<&'static str>; 3],
}

/// A running fleet; ended on drop.
pub(crate) struct Nodes {
    /// Its nodes.
    pub(crate) nodes: Vec<Node>,
    /// Where HAProxy takes customers' requests.
    pub(crate) front: SocketAddr,
    haproxy: Option<Running>,
    directory: tempfile::TempDir,
}

/// A node, at addresses that it keeps.
pub(crate) struct Node {
    /// Where it takes customers' requests.
    pub(crate) listen: SocketAddr,
    /// Where its admin API is.
    pub(crate) admin: SocketAddr,
    /// Its data directory.
    pub(crate) data: PathBuf,
    /// Its way to the database.
    pub(crate) wire: Option<Cut>,
    files: [PathBuf; 2],
    log: PathBuf,
    clock: Option<&'static str>,
    process: Option<Running>,
}

impl Nodes {
    /// Makes the schema, and starts all.
    pub(crate) fn start(plan: &Plan) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let models = directory.path().join("models.yaml");
        fs::write(&models, &plan.models).expect("written");
        let place = |number: usize| Node::place(plan, directory.path(), &models, number);
        let mut nodes: Vec<Node> = (0..plan.clocks.len()).map(place).collect();
        nodes[0].migrate();
        nodes.iter_mut().for_each(Node::start);
        nodes.iter().for_each(Node::await_ready);
        let mut fleet = Self { nodes, front: free_address(), haproxy: None, directory };
        fleet.start_haproxy();
        fleet
    }

    fn start_haproxy(&mut self) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/fleet/haproxy.cfg");
        let log = File::create(self.directory.path().join("haproxy.log")).expect("a log");
        let mut haproxy = tool("haproxy");
        haproxy.arg("-db").arg("-f").arg(path).stdout(Stdio::null()).stderr(log);
        haproxy.env("FLEET_LISTEN", self.front.to_string());
        for (node, number) in self.nodes.iter().zip(1..) {
            haproxy.env(format!("FLEET_NODE_{number}"), node.listen.to_string());
            haproxy.env(format!("FLEET_ADMIN_{number}"), node.admin.port().to_string());
        }
        self.haproxy = Some(Running(haproxy.spawn().expect("haproxy starts")));
        let front = self.front;
        eventually("HAProxy", || TcpStream::connect(front).is_ok());
    }

    /// Where each node takes customers' requests.
    pub(crate) fn listens(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.listen).collect()
    }

    /// A new account with so many dollars and a key, which all nodes know.
    pub(crate) fn customer(&self, dollars: &str) -> Customer {
        let first = &self.nodes[0];
        let account = first.post("/accounts", &json!({"name": "test"}));
        let account = account["id"].as_str().expect("an id").to_owned();
        let grant = json!({"amount": dollars, "id": "first"});
        first.post(&format!("/accounts/{account}/grants"), &grant);
        let (_, key) = self.key_of(&account);
        Customer { account, key }
    }

    /// A new key of an account, which all nodes know, and its id.
    pub(crate) fn key_of(&self, account: &str) -> (String, String) {
        let made = self.nodes[0].post(&format!("/accounts/{account}/keys"), &json!({"name": "a"}));
        let text = |field: &str| made[field].as_str().expect("text").to_owned();
        let (id, key) = (text("id"), text("key"));
        let path = format!("/accounts/{account}/keys");
        eventually("the key at every node", || {
            self.nodes.iter().all(|node| {
                let keys = node.admin("GET", &path, &Value::Null).json();
                keys["data"].as_array().is_some_and(|keys| keys.iter().any(|one| one["id"] == *id))
            })
        });
        (id, key)
    }

    /// The account's statement, newest first, from a node that gives it.
    pub(crate) fn entries(&self, account: &str) -> Vec<Value> {
        let (mut entries, mut before) = (Vec::new(), String::new());
        loop {
            let path = format!("/accounts/{account}/entries?limit=500{before}");
            let page = self.nodes[1].get(&path);
            entries.extend(page["data"].as_array().unwrap_or_else(|| panic!("{page}")).clone());
            if page["has_more"] != true {
                return entries;
            }
            before = format!("&before={}", page["next_before"]);
        }
    }

    /// Where a call's answer came from, and what its node logged of it; then what the nodes and HAProxy
    /// logged last.
    pub(crate) fn traces_of(&self, request: Option<&str>) -> String {
        let request = request.unwrap_or("no id: HAProxy answered, or nobody");
        let mut message = format!("{request}\n");
        for (node, number) in self.nodes.iter().zip(0..) {
            for line in node.log().lines().filter(|line| line.contains(request)) {
                message += &format!("node {number}: {line}\n");
            }
        }
        for (node, number) in self.nodes.iter().zip(0..) {
            message += &format!("--- node {number}\n{}\n", node.warnings());
        }
        let haproxy = fs::read_to_string(self.directory.path().join("haproxy.log"));
        message + "--- HAProxy\n" + &haproxy.unwrap_or_default()
    }

    /// Stops all nodes as a supervisor does, and checks that what each has kept is in order.
    pub(crate) fn stop(&mut self) {
        self.nodes.iter().for_each(|node| node.signal("TERM"));
        for node in &mut self.nodes {
            assert!(node.wait().success(), "exit 0: {}", node.log());
            node.verify();
        }
    }
}

impl Node {
    fn place(plan: &Plan, directory: &Path, models: &Path, number: usize) -> Self {
        let wire = plan.wire_to.map(Cut::before);
        let url = wire.as_ref().map_or_else(|| plan.url.clone(), |wire| wire.url(&plan.url));
        let (listen, admin) = (free_address(), free_address());
        let data = directory.join(format!("node-{number}"));
        let text = format!(
            "listeners: [{{ address: '{listen}' }}]
admin: {{ address: '{admin}', token: {ADMIN_TOKEN} }}
store:
  data_dir: {}
  postgres: {{ url: '{url}', node: node-{number}, lease: {}, connections: 6 }}
{}",
            data.display(),
            plan.lease,
            plan.upstreams
        );
        let routes = directory.join(format!("node-{number}.yaml"));
        fs::write(&routes, text).expect("written");
        let log = directory.join(format!("node-{number}.log"));
        let (files, clock) = ([routes, models.to_owned()], plan.clocks[number]);
        Self { listen, admin, data, wire, files, log, clock, process: None }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let [routes, models] = &self.files;
        command.args(arguments).arg("--routes").arg(routes).arg("--models").arg(models);
        command
    }

    fn migrate(&self) {
        let made = self.command(&["migrate", "up"]).output().expect("the binary runs");
        assert!(made.status.success(), "{made:?}");
    }

    /// Its clock is wrong by so much from the next start on.
    pub(crate) fn set_clock(&mut self, offset: &'static str) {
        self.clock = Some(offset);
    }

    /// Starts it, and does not wait.
    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let mut serve = self.command(&["serve", "--log", "info"]);
        serve.stdout(Stdio::null()).stderr(log);
        if let Some(offset) = self.clock {
            serve.envs(fake_clock(offset));
        }
        self.process = Some(Running(serve.spawn().expect("the binary starts")));
    }

    /// Waits until it wants requests.
    pub(crate) fn await_ready(&self) {
        super::within(
            Duration::from_secs(40),
            || self.ready() == 200,
            || format!("a node is not ready:\n{}", self.log()),
        );
    }

    /// Status of `/readyz`; 0 without an answer.
    pub(crate) fn ready(&self) -> u16 {
        let Ok(mut stream) = TcpStream::connect(self.admin) else { return 0 };
        stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        let request = stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n");
        let mut bytes = Vec::new();
        let read = request.and_then(|()| stream.read_to_end(&mut bytes));
        read.map_or(0, |_| Answer { bytes, ..Answer::default() }.status())
    }

    /// Ends the process at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Sends the process a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("it runs").0.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Waits for the process to end by itself, and says how.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.take().expect("it runs").0.wait().expect("it can be waited for")
    }

    /// The node's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last of what it has logged beside requests.
    pub(crate) fn warnings(&self) -> String {
        let log = self.log();
        let own = |line: &&str| {
            !["access", "admin::request", "a hold"].iter().any(|of| line.contains(of))
        };
        let lines: Vec<&str> = log.lines().filter(own).collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Checks the journal of a node that has ended.
    pub(crate) fn verify(&self) {
        let mut verify = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let message =
            verify.args(["ledger", "verify", "--json", "--data"]).arg(&self.data).output();
        let message = message.expect("the binary runs");
        assert!(message.status.success(), "{message:?}\n{}", self.log());
        let report: Value = serde_json::from_slice(&message.stdout).expect("JSON");
        assert_eq!(report["open_holds"], 0, "{report}");
        assert_eq!(report["books"]["adds_up"], true, "{report}");
    }

    /// Answer of the node's admin API.
    pub(crate) fn admin(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} /admin/v1{path} HTTP/1.1\r\nHost: admin\r\nContent-Length: {}\r\n\
             Authorization: Bearer {ADMIN_TOKEN}\r\nContent-Type: application/json\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        ask(self.admin, request.as_bytes())
    }

    /// A write by its admin API, which must succeed.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.admin("POST", path, body);
        assert!((200..300).contains(&answer.status()), "POST {path}: {answer:?}\n{}", self.log());
        answer.json()
    }

    /// A read from its admin API, which must succeed.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.admin("GET", path, &Value::Null);
        assert_eq!(answer.status(), 200, "GET {path}: {answer:?}\n{}", self.log());
        answer.json()
    }
}
