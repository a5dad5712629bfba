//! `tollgate serve` with files, a ledger and ports of its own.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::child::Running;
use super::wait::{TIMEOUT, poll};
use super::wire::{Answer, ask};

const ADMIN_TOKEN: &str = "admin-token-of-a-test";
/// The key that the gateway sends to the recorder; no customer may ever read it.
pub(crate) const UPSTREAM_KEY: &str = "sk-upstream-of-a-test";

/// A running gateway with one account of $10 and a key of it; ended on drop.
pub(crate) struct Gateway {
    /// The customers' address.
    pub(crate) address: SocketAddr,
    /// All of the customers' addresses, in the order of `listeners`.
    pub(crate) listeners: Vec<SocketAddr>,
    /// A key of the account.
    pub(crate) key: String,
    /// The admin API's address.
    pub(crate) admin: SocketAddr,
    /// The account's id.
    pub(crate) account: String,
    process: Running,
    directory: tempfile::TempDir,
}

impl Gateway {
    /// Starts a gateway whose only upstream is at `upstream`. Its model `m` does chat; of
    /// `endless` an answer may be as long as the upstream likes. Bodies are at most 1 MiB, and must
    /// arrive within 2 s.
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        Self::start_with(upstream, "")
    }

    /// Starts the same with `more` in `routes.yaml`.
    pub(crate) fn start_with(upstream: SocketAddr, more: &str) -> Self {
        Self::serving(&format!("{}{more}", upstreams(upstream)), MODELS)
    }

    /// Starts a gateway with these `upstreams` and what follows them in `routes.yaml`, and this
    /// `models.yaml`.
    pub(crate) fn serving(upstreams: &str, models: &str) -> Self {
        Self::run("", "", upstreams, models, false)
    }

    /// The same with further `limits`, as lines of YAML.
    pub(crate) fn limited(limits: &str, upstreams: &str, models: &str) -> Self {
        Self::run("", limits, upstreams, models, false)
    }

    /// Like [`Gateway::start`], with more `listeners` behind the first, and `more` at the end of
    /// `routes.yaml`. What it logs is in the file `log`.
    pub(crate) fn listening(listeners: &str, more: &str, upstream: SocketAddr) -> Self {
        let upstreams = format!("{}{more}", self::upstreams(upstream));
        Self::run(listeners, "", &upstreams, MODELS, true)
    }

    /// Like [`Gateway::serving`]; what it logs is in the file `log`.
    pub(crate) fn logging(upstreams: &str, models: &str) -> Self {
        Self::run("", "", upstreams, models, true)
    }

    /// Like [`Gateway::logging`], with these variables in its environment.
    pub(crate) fn in_environment(
        environment: &[(&str, &str)],
        upstreams: &str,
        models: &str,
    ) -> Self {
        let process = Process { logs: true, environment, ..Process::default() };
        Self::run_in("", "", "", (upstreams, models), process)
    }

    /// A node of the fleet whose database is there, with the schema; its lease is as short as it can
    /// be. It has an account of its own, which the others know as well.
    pub(crate) fn node(database: &str, upstreams: &str, models: &str) -> Self {
        let postgres = format!("  postgres: {{ url: '{database}', tls: disable, lease: 2s }}\n");
        Self::run_in(&postgres, "", "", (upstreams, models), Process::default())
    }

    /// Like [`Gateway::listening`], with further `limits`, or others in the place of the usual ones, as
    /// lines of YAML. The process may have so many descriptors, if it is said, and only a half of them
    /// unless it asks for more.
    pub(crate) fn bounded(
        descriptors: Option<u32>,
        listeners: &str,
        limits: &str,
        more: &str,
        upstream: SocketAddr,
    ) -> Self {
        let upstreams = format!("{}{more}", self::upstreams(upstream));
        let files = (upstreams.as_str(), MODELS);
        Self::run_in(
            "",
            listeners,
            limits,
            files,
            Process { logs: true, descriptors, ..Process::default() },
        )
    }

    /// A gateway with the bounds that are shipped but for these `limits`, as lines of YAML, and at most so
    /// many descriptors. What it logs is in the file `log`.
    pub(crate) fn defended(
        descriptors: Option<u32>,
        limits: &str,
        upstreams: &str,
        models: &str,
    ) -> Self {
        let process = Process { logs: true, descriptors, ..Process::default() };
        let gateway = Self::run_in("", "", "", (upstreams, models), process);
        let path = gateway.path("routes.yaml");
        let text = std::fs::read_to_string(&path).expect("the file");
        let is_bound = |line: &&str| {
            let name = line.trim_start().split(':').next().unwrap_or_default();
            line.starts_with("  ") && (name.starts_with("body_") || name.ends_with("_timeout"))
        };
        let kept = text.lines().filter(|line| !is_bound(line));
        let text = kept.fold(String::new(), |all, line| all + line + "\n");
        let limits = match limits {
            "" => "limits: {}\n".to_owned(),
            lines => format!("limits:\n{lines}"),
        };
        std::fs::write(&path, text.replace("limits:\n", &limits)).expect("written");
        gateway.admin("POST", "/admin/v1/reload", &Value::Null);
        gateway
    }

    /// Like [`Gateway::start_with`], with all of its files below `place`.
    pub(crate) fn below(place: &std::path::Path, upstream: SocketAddr, more: &str) -> Self {
        let directory = tempfile::tempdir_in(place).expect("a directory");
        let upstreams = format!("{}{more}", self::upstreams(upstream));
        Self::run_at(directory, "", "", "", (&upstreams, MODELS), Process::default())
    }

    fn run(listeners: &str, limits: &str, upstreams: &str, models: &str, logs: bool) -> Self {
        let process = Process { logs, ..Process::default() };
        Self::run_in("", listeners, limits, (upstreams, models), process)
    }

    fn run_in(
        store: &str,
        listeners: &str,
        limits: &str,
        (upstreams, models): (&str, &str),
        process: Process<'_>,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self::run_at(directory, store, listeners, limits, (upstreams, models), process)
    }

    fn run_at(
        directory: tempfile::TempDir,
        store: &str,
        listeners: &str,
        limits: &str,
        (upstreams, models): (&str, &str),
        process: Process<'_>,
    ) -> Self {
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("the file is written");
            path
        };
        let head = head(directory.path(), listeners).replace("limits:", &format!("{store}limits:"));
        let is_replaced = |line: &&str| {
            let name = line.split(':').next().unwrap_or_default();
            name.starts_with(' ')
                && limits.lines().any(|other| other.split(':').next() == Some(name))
        };
        let kept = head.lines().filter(|line| !is_replaced(line));
        let head = kept.fold(String::new(), |all, line| all + line + "\n");
        let routes = file("routes.yaml", format!("{head}{limits}upstreams:\n{upstreams}"));
        let models = file("models.yaml", models.to_owned());
        let log = process.logs.then(|| directory.path().join("log"));
        let (process, listeners, admin) = spawn(&routes, &models, log.as_deref(), process);
        let (key, account) = (String::new(), String::new());
        let address = listeners[0];
        let mut gateway = Self { address, listeners, key, admin, account, process, directory };
        let account = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "test"}));
        gateway.account = text(&account, "id");
        gateway.grant("10.00", "first");
        let path = format!("/admin/v1/accounts/{}/keys", gateway.account);
        gateway.key = text(&gateway.admin("POST", &path, &json!({"name": "test"})), "key");
        gateway
    }

    /// Ends the process at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends the process at once, and starts another over the same files.
    pub(crate) fn kill_and_restart(&mut self) {
        self.process.kill();
        let (routes, models) = (self.path("routes.yaml"), self.path("models.yaml"));
        (self.process, self.listeners, self.admin) =
            spawn(&routes, &models, None, Process::default());
        self.address = self.listeners[0];
    }

    /// Ends the process, and starts another over the same files in this control group. What it logs is in
    /// the file `log`.
    pub(crate) fn restart_in(&mut self, group: &std::path::Path) {
        self.process.kill();
        let (routes, models) = (self.path("routes.yaml"), self.path("models.yaml"));
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(group);
        command.arg(env!("CARGO_BIN_EXE_tollgate"));
        let log = self.path("log");
        (self.process, self.listeners, self.admin) =
            spawn_as(command, &routes, &models, Some(&log));
        self.address = self.listeners[0];
    }

    /// The same gateway, asked with another key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// A key of another account, which has no money.
    pub(crate) fn stranger(&self) -> String {
        self.customer("stranger", None)
    }

    /// A key of another account, which is granted `money`.
    pub(crate) fn customer(&self, name: &str, money: Option<&str>) -> String {
        let account = self.admin("POST", "/admin/v1/accounts", &json!({"name": name}));
        let path = format!("/admin/v1/accounts/{}", text(&account, "id"));
        if let Some(amount) = money {
            let grant = json!({"amount": amount, "id": "first"});
            self.admin("POST", &format!("{path}/grants"), &grant);
        }
        text(&self.admin("POST", &format!("{path}/keys"), &json!({"name": name})), "key")
    }

    /// Gives the account more money, once per `id`.
    pub(crate) fn grant(&self, amount: &str, id: &str) {
        let path = format!("/admin/v1/accounts/{}/grants", self.account);
        self.admin("POST", &path, &json!({"amount": amount, "id": id}));
    }

    /// The account's balance: `granted`, `available`, `held` and `spent`, as decimal texts.
    pub(crate) fn balance(&self) -> Value {
        let path = format!("/admin/v1/accounts/{}", self.account);
        self.admin("GET", &path, &Value::Null)["balance"].clone()
    }

    /// The balance once nothing is held any more.
    pub(crate) fn settled(&self) -> Value {
        poll("no hold is open", TIMEOUT, || {
            let balance = self.balance();
            if balance["held"] == "0.00" { Ok(balance) } else { Err(balance) }
        })
    }

    /// A chat request with these header lines beside host and key, and this body.
    pub(crate) fn chat(&self, lines: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
        self.post("/v1/chat/completions", lines, body)
    }

    /// A request to `path` with these header lines beside host and key, and this body.
    pub(crate) fn post(&self, path: &str, lines: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\n{lines}\r\n",
            self.key
        );
        [head.as_bytes(), body.as_ref()].concat()
    }

    /// The answer to a request with another account's key.
    pub(crate) fn ask_as(&self, key: &str, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        ask(self.address, &[head.as_bytes(), body.as_bytes()].concat())
    }

    /// A `GET` with the key.
    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
        format!(
            "GET {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\r\n",
            self.key
        )
        .into_bytes()
    }

    /// A chat request with this body and its length.
    pub(crate) fn chat_json(&self, body: impl AsRef<[u8]>) -> Vec<u8> {
        let body = body.as_ref();
        self.chat(&format!("Content-Length: {}\r\n", body.len()), body)
    }

    /// The memory of the process that is resident, in bytes.
    pub(crate) fn rss_bytes(&self) -> u64 {
        self.resident("VmRSS:")
    }

    /// The most memory that the process has had resident, in bytes.
    pub(crate) fn rss_bytes_max(&self) -> u64 {
        self.resident("VmHWM:")
    }

    /// Resident bytes of mapped files of the process.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.resident("RssFile:")
    }

    /// Value of a line of the process's status, in bytes.
    fn resident(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id()));
        let status = status.expect("the process lives");
        let line = status.lines().find(|line| line.starts_with(name)).expect(name);
        let kib: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("KiB");
        kib * 1024
    }

    /// The files and sockets that the process has open.
    pub(crate) fn descriptors(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.process.0.id()));
        open.expect("the process lives").count()
    }

    /// The file of that name which the gateway reads, or the directory that it keeps.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// The process's id.
    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Sends the process a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.process.0.id().to_string())
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Waits for the process to end by itself, and says how.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.process.0.wait().expect("the process can be waited for")
    }

    /// The admin API's address.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// True if the process has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.0.try_wait(), Ok(None))
    }

    /// The metrics as Prometheus scrapes them.
    pub(crate) fn metrics(&self) -> String {
        let request = b"GET /metrics HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n";
        String::from_utf8(ask(self.admin, request).body()).expect("text")
    }

    /// A request to the admin API, which must succeed.
    pub(crate) fn admin(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.admin_answer(method, path, body);
        let status = answer.status();
        assert!((200..300).contains(&status), "{method} {path} answered {answer:?}");
        answer.json()
    }

    /// Answer of the admin API.
    pub(crate) fn admin_answer(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        ask(self.admin, request.as_bytes())
    }

    /// Status of `/readyz`; 0 without an answer.
    pub(crate) fn ready(&self) -> u16 {
        let Ok(mut stream) = std::net::TcpStream::connect(self.admin) else { return 0 };
        let request = stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n");
        let mut bytes = Vec::new();
        let read = request.and_then(|()| stream.read_to_end(&mut bytes));
        read.map_or(0, |_| Answer { bytes, ..Answer::default() }.status())
    }

    /// The value of a series, such as `tollgate_x_total{outcome="ok"}`; 0 where there is none.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let answer = self.admin_answer("GET", "/metrics", &Value::Null);
        let text = String::from_utf8(answer.body()).expect("text");
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// A request to the admin API: the status and the JSON of its answer.
    pub(crate) fn try_admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.admin_answer(method, path, body);
        (answer.status(), answer.json())
    }
}

/// How a gateway's process is started.
#[derive(Clone, Copy, Default)]
struct Process<'a> {
    /// Logs to the file `log`.
    logs: bool,
    /// The file descriptors that it may have.
    descriptors: Option<u32>,
    /// Variables beside those of the test.
    environment: &'a [(&'a str, &'a str)],
}

/// Starts a gateway over these files, and waits until it is ready. It logs warnings to standard
/// error, or more to a file.
fn spawn(
    routes: &std::path::Path,
    models: &std::path::Path,
    log: Option<&std::path::Path>,
    process: Process<'_>,
) -> (Running, Vec<SocketAddr>, SocketAddr) {
    let mut command = match process.descriptors {
        None => Command::new(env!("CARGO_BIN_EXE_tollgate")),
        Some(descriptors) => {
            let limits = format!("ulimit -H -n {descriptors} && ulimit -S -n {}", descriptors / 2);
            let mut shell = Command::new("sh");
            shell.args([
                "-c",
                &format!("ulimit -S -n {descriptors} && {limits} && exec \"$0\" \"$@\""),
            ]);
            shell.arg(env!("CARGO_BIN_EXE_tollgate"));
            shell
        }
    };
    command.envs(process.environment.iter().copied());
    spawn_as(command, routes, models, log)
}

fn spawn_as(
    mut command: Command,
    routes: &std::path::Path,
    models: &std::path::Path,
    log: Option<&std::path::Path>,
) -> (Running, Vec<SocketAddr>, SocketAddr) {
    let log_file = log.map(|path| std::fs::File::create(path).expect("the log"));
    let mut child = command
        .arg("serve")
        .arg("--routes")
        .arg(routes)
        .arg("--models")
        .arg(models)
        .args(["--ready-json", "--log", if log.is_some() { "info" } else { "warn" }])
        .stdout(Stdio::piped())
        .stderr(log_file.map_or_else(Stdio::inherit, Stdio::from))
        .spawn()
        .expect("the binary starts");
    let stdout = child.stdout.take().expect("standard output is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line when it is ready");
    let ready: Value = serde_json::from_str(&line).expect("a JSON line when it is ready");
    let address = |url: &Value| {
        let url = url.as_str().unwrap_or_else(|| panic!("no address in {line}"));
        let (_, address) = url.split_once("://").expect("a URL");
        address.parse().expect("an address")
    };
    let listeners = ready["listeners"].as_array().expect("the listeners").iter().map(address);
    (Running(child), listeners.collect(), address(&ready["admin_url"]))
}

fn text(document: &Value, field: &str) -> String {
    document[field].as_str().unwrap_or_else(|| panic!("no {field} in {document}")).to_owned()
}

fn head(directory: &std::path::Path, listeners: &str) -> String {
    let data = directory.join("data");
    let data = data.display();
    format!(
        "listeners:
  - address: 127.0.0.1:0
    h2c: true
{listeners}admin:
  address: 127.0.0.1:0
  token: {ADMIN_TOKEN}
store:
  data_dir: {data}
limits:
  body_max: 1MiB
  body_memory_max: 64MiB
  body_timeout: 2s
  read_timeout: 2s
  write_timeout: 2s
"
    )
}

fn upstreams(upstream: SocketAddr) -> String {
    format!(
        "  recorder:
    protocol: openai
    base_url: http://{upstream}/v1
    credential: {UPSTREAM_KEY}
  anthropic:
    protocol: anthropic
    base_url: http://{upstream}
    credential: {UPSTREAM_KEY}
routes:
  - {{ path: /v1/chat/completions, operation: chat }}
  - {{ path: /v1/messages, operation: messages }}
"
    )
}

const MODELS: &str = "models:
  m:
    operations: [chat]
    targets:
      - { upstream: recorder }
    prices:
      input_per_1m_tokens: 1
      output_per_1m_tokens: 10
    limits:
      context_tokens_max: 100000
      output_tokens_max: 1000
    reasoning: false
    pass_fields: [x_unknown]
    pass_headers: [x-kept, x-nominated]
  claude:
    operations: [messages]
    targets:
      - { upstream: anthropic }
    prices:
      input_per_1m_tokens: 1
      cached_input_per_1m_tokens: 0.1
      cache_write_per_1m_tokens: 1.25
      cache_write_1h_per_1m_tokens: 2
      output_per_1m_tokens: 10
    limits:
      context_tokens_max: 100000
      output_tokens_max: 1000
    pass_fields: [x_unknown]
  claude-x-*:
    operations: [messages]
    targets:
      - { upstream: anthropic }
    prices:
      input_per_1m_tokens: 1
      output_per_1m_tokens: 10
    limits:
      context_tokens_max: 100000
      output_tokens_max: 1000
  endless:
    operations: [chat]
    targets:
      - { upstream: recorder, model: m }
    prices:
      input_per_1m_tokens: 0.000001
      output_per_1m_tokens: 0.000001
    limits:
      context_tokens_max: 100000
      output_tokens_max: 1000000000
    reasoning: false
";
