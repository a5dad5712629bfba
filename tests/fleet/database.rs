//! A fleet's database that will not do: what is said of it at the start and later, and what it costs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::harness::child::Running;
use crate::harness::postgres::{Postgres, ReplicatedPair, Settings};
use crate::harness::tls::TestCertificate;
use crate::harness::{ask, eventually};
use serde_json::Value;

/// A password that nobody may ever read.
const CANARY: &str = "hunter2-canary";
/// How long a command may take that finds a database wanting: two addresses that do not answer, and a
/// busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
const TOKEN: &str = "admin-token-of-a-test";

/// The files of a gateway whose `store.postgres` has these fields.
struct GatewayFiles {
    directory: tempfile::TempDir,
}

impl GatewayFiles {
    fn with(fields: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data").display().to_string();
        let routes = format!(
            "listeners: [{{ address: 127.0.0.1:0 }}]
admin: {{ address: 127.0.0.1:0, token: {TOKEN} }}
store:
  data_dir: {data}
  postgres: {{ {fields} }}
upstreams:
  here: {{ protocol: openai, base_url: http://127.0.0.1:1/v1 }}
"
        );
        let models = "models:
  m:
    operations: [chat]
    targets: [{ upstream: here }]
    free: true
    limits: { context_tokens_max: 1000, output_tokens_max: 10 }
";
        std::fs::write(directory.path().join("routes.yaml"), routes).expect("a file");
        std::fs::write(directory.path().join("models.yaml"), models).expect("a file");
        Self { directory }
    }

    fn at(url: &str) -> Self {
        Self::with(&format!("url: '{url}'"))
    }

    /// A node on a database that has the schema.
    fn migrated(name: &str) -> (Self, String) {
        let (name, url) = Postgres::shared().database(name);
        let node = Self::at(&url);
        node.succeeds(&["migrate", "up"]);
        (node, name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Output of a command that must end within the time limit.
    fn run(&self, arguments: &[&str]) -> Output {
        ended(self.command(arguments).spawn().expect("the binary runs"), arguments)
    }

    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Both `serve` and `migrate status` exit with this code, and say all of this.
    fn is_refused(&self, code: i32, message: &[&str]) {
        self.refuses(&["serve"], code, message);
        self.refuses(&["migrate", "status"], code, message);
    }

    fn refuses(&self, arguments: &[&str], code: i32, message: &[&str]) {
        let output = self.run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        for part in message {
            assert!(errors.contains(part), "{arguments:?} does not say {part:?}: {errors}");
        }
        let all = errors + &text(&output.stdout);
        assert!(!all.contains(CANARY), "{arguments:?} says the password: {all}");
    }

    /// Runs the gateway; what it logs is in the file `log`.
    fn serve(&self, level: &str) -> Serving {
        let log = self.directory.path().join("log");
        let file = std::fs::File::create(&log).expect("a file");
        let mut command = self.command(&["serve", "--ready-json", "--log", level]);
        let mut child = command.stderr(file).spawn().expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("standard output");
        BufReader::new(stdout).read_line(&mut line).expect("a line when it is ready");
        let message = || std::fs::read_to_string(&log).expect("the log");
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{}", message()));
        let admin = ready["admin_url"].as_str().expect("an address").trim_start_matches("http://");
        Serving { admin: admin.parse().expect("an address"), process: Running(child), log }
    }
}

/// A gateway that runs.
struct Serving {
    admin: SocketAddr,
    process: Running,
    log: PathBuf,
}

impl Serving {
    fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = ask(self.admin, request.as_bytes());
        (answer.status(), answer.json())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log")
    }

    /// Stops it as an operator does, and gives all that it has logged.
    fn stop(mut self) -> String {
        let pid = self.process.0.id().to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(killed.success(), "SIGTERM");
        let status = self.process.0.wait().expect("it ends");
        let log = self.log();
        assert!(status.success(), "{status}: {log}");
        log
    }
}

fn ended(child: Child, arguments: &[&str]) -> Output {
    let mut child = Running(child);
    let status = child.wait_for(TIMEOUT);
    let status = status.unwrap_or_else(|| panic!("{arguments:?} does not end within {TIMEOUT:?}"));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.0.stdout.take().expect("piped").read_to_end(&mut stdout).expect("read");
    child.0.stderr.take().expect("piped").read_to_end(&mut stderr).expect("read");
    Output { status, stdout, stderr }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server that asks for a password and for TLS, and its certificate.
fn guarded() -> (Postgres, TestCertificate) {
    let certificate = TestCertificate::new();
    let tls = Some((certificate.certificate.clone(), certificate.key.clone()));
    let settings = Settings { password: Some(CANARY.to_owned()), tls, ..Settings::default() };
    (Postgres::start_with(&settings), certificate)
}

#[test]
fn a_password_comes_from_a_file_or_variable_and_is_never_shown() {
    let (server, certificate) = guarded();
    let url = server.url();
    let trusted = format!("tls: verify-full, ca_file: {}", certificate.certificate.display());
    let with = |password: &str| GatewayFiles::with(&format!("url: '{url}', {trusted}{password}"));
    with("").is_refused(4, &["it asks for a password", "store.postgres.password"]);
    let wrong = with(", password: wrong-hunter2-canary");
    wrong.is_refused(4, &["the user or the password is wrong", "28P01"]);

    let named = with(", password: \"${PG_PASSWORD}\"");
    let mut up = named.command(&["migrate", "up"]);
    let up = ended(up.env("PG_PASSWORD", CANARY).spawn().expect("it runs"), &["from a variable"]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    let filed = with(", password: { file: password }");
    std::fs::write(filed.directory.path().join("password"), format!("{CANARY}\n")).expect("a file");
    // Whatever is logged, of every library.
    let serving = filed.serve("trace");
    let log = serving.stop();
    assert!(log.contains("has joined the fleet"), "{log}");
    assert!(!log.contains(CANARY), "the log has the password");
}

#[test]
fn whom_the_connection_does_not_trust_gets_no_password() {
    let (server, _certificate) = guarded();
    let (url, password) = (server.url(), format!("password: {CANARY}"));
    let authority = |path: &std::path::Path| format!("ca_file: {}", path.display());
    let other = TestCertificate::new();
    let message = ["TLS failed", "store.postgres.tls"];
    let unknown = authority(&other.certificate);
    GatewayFiles::with(&format!("url: '{url}', tls: verify-full, {password}, {unknown}"))
        .is_refused(4, &message);
    GatewayFiles::with(&format!("url: '{url}', tls: verify-full, {password}"))
        .is_refused(4, &message);
    // The server insists on TLS, and the gateway is told not to.
    let plain = GatewayFiles::with(&format!("url: '{url}', tls: disable, {password}"));
    plain.is_refused(4, &["does not let this user in", "pg_hba.conf"]);
    // The other way round.
    let trusting = Postgres::shared().url();
    let node = GatewayFiles::with(&format!("url: '{trusting}', tls: verify-full"));
    node.is_refused(4, &["the server offers no TLS", "store.postgres.tls"]);
}

#[test]
fn a_certificate_of_another_name_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let params = rcgen::CertificateParams::new(["db.internal".to_owned()]).expect("names");
    let pair = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&pair).expect("a certificate");
    std::fs::write(&certificate, made.pem()).expect("written");
    std::fs::write(&key, pair.serialize_pem()).expect("written");
    let tls = Some((certificate.clone(), key));
    let server = Postgres::start_with(&Settings { tls, ..Settings::default() });
    let (url, file) = (server.url(), certificate.display());
    let node = GatewayFiles::with(&format!("url: '{url}', tls: verify-full, ca_file: {file}"));
    node.is_refused(4, &["TLS failed", "db.internal"]);
}

#[test]
fn an_unreachable_database_is_reported() {
    let server = Postgres::shared();
    let missing = server.url_of("nobody_made_it");
    GatewayFiles::at(&missing).is_refused(4, &["there is no such database", "nobody_made_it"]);
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = nobody.local_addr().expect("an address").port();
    // It accepts, and says nothing.
    let silent = GatewayFiles::at(&format!("postgres://tollgate@127.0.0.1:{port}/tollgate"));
    let place = format!("127.0.0.1:{port}");
    silent.is_refused(5, &[&place, "did not answer within 5 s"]);
    drop(nobody);
    silent.is_refused(5, &[&place, "refused"]);
    let unnamed = GatewayFiles::at("postgres://tollgate@no-such-host.invalid/tollgate");
    unnamed.is_refused(5, &["no-such-host.invalid"]);
}

#[test]
fn an_unusable_schema_is_reported() {
    let server = Postgres::shared();
    let (empty, url) = server.database("never_migrated");
    let node = GatewayFiles::at(&url);
    node.refuses(&["serve"], 4, &["there is no schema", "tollgate migrate up"]);
    node.refuses(&["migrate", "status"], 1, &["there is no schema", "tollgate migrate up"]);
    let there = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = 'tollgate'";
    assert_eq!(server.sql(&empty, there), "0", "nothing is made unasked");

    let (node, name) = GatewayFiles::migrated("changed");
    let change = |sql: &str| server.sql(&name, sql);
    change("UPDATE tollgate.schema_version SET sha256 = 'other' WHERE version = 1");
    node.is_refused(4, &["step 1 of the schema is not the one that this version has"]);
    node.refuses(&["migrate", "up"], 4, &["step 1"]);

    let (node, name) = GatewayFiles::migrated("future");
    let insert = "INSERT INTO tollgate.schema_version VALUES (999, 'flying_cars', 'x')";
    server.sql(&name, insert);
    node.is_refused(4, &["from the future", "999", "newer version of tollgate"]);
    node.refuses(&["migrate", "up"], 4, &["from the future"]);
    node.refuses(&["migrate", "up", "--dry-run"], 4, &["from the future"]);
    let status: Value = {
        let output = node.run(&["migrate", "status", "--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    assert_eq!(status["standing"], "ahead");

    let (node, name) = GatewayFiles::migrated("incomplete");
    server.sql(&name, "DROP TABLE tollgate.accounts CASCADE");
    node.is_refused(4, &["tollgate.accounts is missing", "restore"]);

    server.sql("postgres", "CREATE DATABASE others_own");
    server.sql("others_own", "REVOKE CREATE ON SCHEMA public FROM public");
    let node = GatewayFiles::at(&server.url_of("others_own"));
    node.refuses(&["migrate", "up"], 4, &["lacks a right"]);
}

#[test]
fn a_read_only_or_full_database_is_reported() {
    let server = Postgres::shared();
    let (node, name) = GatewayFiles::migrated("busy");
    server.read_only(&name, true);
    node.is_refused(5, &["takes no writes", "primary"]);
    server.read_only(&name, false);
    server.sql("postgres", &format!("ALTER DATABASE {name} CONNECTION LIMIT 0"));
    node.is_refused(5, &["no more connections", "max_connections", "store.postgres.connections"]);
    server.sql("postgres", &format!("ALTER DATABASE {name} CONNECTION LIMIT -1"));
    node.succeeds(&["migrate", "status"]);

    server.sql("postgres", &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    node.refuses(&["serve"], 4, &["synchronous_commit is off"]);

    let pair = ReplicatedPair::start();
    let standby = GatewayFiles::at(&pair.standby.url());
    standby.is_refused(5, &["takes no writes"]);
    // Of two machines, the one that takes writes.
    let url =
        format!("postgres://tollgate@127.0.0.1:{},127.0.0.1:{}/tollgate", 1, pair.primary.port());
    GatewayFiles::at(&url).succeeds(&["migrate", "up"]);
}

#[test]
fn processes_that_migrate_at_once_do_each_step_once() {
    let server = Postgres::shared();
    for round in 0..3 {
        let (_, url) = server.database("three");
        let node = GatewayFiles::at(&url);
        let planned = node.succeeds(&["migrate", "up", "--dry-run"]);
        let steps = planned.lines().filter(|line| line.starts_with("-- Step ")).count();
        assert!(steps >= 1, "{planned}");
        let start = || node.command(&["migrate", "up"]).spawn().expect("the binary runs");
        let all = [start(), start(), start()].map(|child| ended(child, &["migrate", "up"]));
        let mut taken = Vec::new();
        for output in &all {
            assert!(output.status.success(), "round {round}: {}", text(&output.stderr));
            taken.extend(text(&output.stdout).lines().map(str::to_owned));
        }
        assert_eq!(taken.len(), steps, "round {round}: {taken:?}");
        assert_eq!(node.succeeds(&["migrate", "up"]), "", "nothing is left to do");
        assert_eq!(node.succeeds(&["migrate", "up", "--dry-run"]), "");
        let status = node.succeeds(&["migrate", "status", "--json"]);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        assert_eq!(status["standing"], "current");
        assert_eq!(status["data"].as_array().map(Vec::len), Some(steps), "{status}");
    }
}

#[test]
fn a_database_that_fails_later_is_found_again_and_nothing_is_lost() {
    let server = Postgres::shared();
    let (node, name) = GatewayFiles::migrated("later");
    let serving = node.serve("info");
    let account = |name: &str| serde_json::json!({ "name": name });
    let (status, made) = serving.admin("POST", "/admin/v1/accounts", &account("first"));
    assert_eq!(status, 201, "{made}");
    let path = format!("/admin/v1/accounts/{}/grants", made["id"].as_str().expect("an id"));
    let grant =
        |id: &str| serving.admin("POST", &path, &serde_json::json!({ "amount": "1.00", "id": id }));
    assert_eq!(grant("before").0, 201);
    let limit = |limit: i32| {
        server.sql("postgres", &format!("ALTER DATABASE {name} CONNECTION LIMIT {limit}"));
        server.send_away(&name);
    };
    let trouble: [(&str, &dyn Fn(bool)); 3] = [
        ("takes no writes", &|on| server.read_only(&name, on)),
        ("takes no more connections", &|on| limit(if on { 0 } else { -1 })),
        ("takes no connections now", &|on| server.accept_connections(&name, !on)),
    ];
    for (what, make) in trouble {
        make(true);
        let (status, message) = grant(what);
        assert_eq!(status, 503, "{what}: {message}");
        eventually(&format!("{what:?} in the log"), || serving.log().contains(what));
        make(false);
        eventually(&format!("a grant after {what:?}"), || {
            let (status, message) = grant(what);
            assert!(matches!(status, 200 | 201 | 503), "{what}: {status} {message}");
            status != 503
        });
    }
    let account = path.trim_end_matches("/grants");
    let (_, shown) = serving.admin("GET", account, &Value::Null);
    assert_eq!(shown["balance"]["granted"], "4.00", "each grant once: {shown}");
    serving.stop();
}
