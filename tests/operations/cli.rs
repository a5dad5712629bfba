//! The commands of operators, against a running gateway: what they print, and with what they exit.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use crate::harness::child::Running;
use crate::harness::{Demo, ask, eventually};
use serde_json::{Value, json};

/// A demo, and the two files by which commands find it.
struct Operated {
    demo: Demo,
    directory: tempfile::TempDir,
}

impl Operated {
    fn start() -> Self {
        let demo = Demo::start();
        let directory = tempfile::tempdir().expect("a directory");
        let address = demo.admin_url.strip_prefix("http://").expect("an address");
        let token = &demo.admin_token;
        let routes = format!(
            "admin: {{ address: {address}, token: {token} }}\nupstreams:\n  here:\n    protocol: \
             openai\n    base_url: http://127.0.0.1:1/v1\n"
        );
        let models = "models:\n  m:\n    operations: [chat]\n    targets: [{ upstream: here }]\n    \
                      free: true\n    limits: { context_tokens_max: 1000, output_tokens_max: 10 }\n";
        std::fs::write(directory.path().join("routes.yaml"), routes).expect("a file");
        std::fs::write(directory.path().join("models.yaml"), models).expect("a file");
        Self { demo, directory }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(arguments).current_dir(self.directory.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Standard output of a command that succeeds.
    fn print(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
        text(&output.stdout)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.print(&[arguments, &["--json"]].concat());
        assert_eq!(printed.lines().count(), 1, "one document a line: {printed}");
        serde_json::from_str(&printed).expect("JSON")
    }

    /// A new account.
    fn account(&self) -> String {
        self.print(&["accounts", "create", "Example Ltd", "--quiet"]).trim().to_owned()
    }

    /// A chat call with the demo's key.
    fn call(&self, model: &str) {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let body = body.to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.demo.api_key,
            body.len()
        );
        let address = self.demo.base_url.strip_prefix("http://").expect("an address");
        ask(address.parse().expect("an address"), request.as_bytes());
    }

    /// The exit code, and what is on standard error.
    fn fails(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(arguments);
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
        (output.status.code(), text(&output.stderr))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_account_is_opened_granted_limited_and_shown() {
    let operated = Operated::start();
    let account = operated.account();
    assert!(account.starts_with("acct_"), "{account}");
    let granted = operated.json(&["grants", "create", &account, "10.00", "--id", "invoice-4711"]);
    assert_eq!(granted["amount"], "10.00");
    // The same once more is the same grant.
    let again = operated.json(&["grants", "create", &account, "10.00", "--id", "invoice-4711"]);
    assert_eq!(granted, again);
    let limits = ["--requests-per-minute", "60", "--tokens-per-minute", "9000"];
    operated.print(&[&["accounts", "limit", &account], &limits[..]].concat());
    operated.print(&["accounts", "limit", &account, "--tokens-per-minute", "none"]);
    let shown = operated.json(&["accounts", "show", &account]);
    assert_eq!(shown["balance"]["available"], "10.00", "{shown}");
    assert_eq!(shown["limits"]["requests_per_minute"], 60, "{shown}");
    assert_eq!(shown["limits"]["tokens_per_minute"], Value::Null, "{shown}");

    let table = operated.print(&["accounts", "list"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID "), "{table}");
    assert_eq!(lines.len(), 3, "the demo's account and this one: {table}");
    // Money ends where its title does.
    let end = lines[0].find("GRANTED").expect("a title") + "GRANTED".len();
    assert!(lines[1][..end].ends_with(" 10.00") && lines[2][..end].ends_with(" 10.00"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colour where there is no terminal");
    let entries = operated.print(&["ledger", "entries", &account]);
    assert!(entries.contains("grant") && entries.contains("10.00"), "{entries}");
}

#[test]
fn an_account_gets_a_credit_line_and_hold_rules() {
    let operated = Operated::start();
    let account = operated.account();
    operated.print(&["accounts", "credit", &account, "25.00"]);
    let rules = ["--means", "credit,clamp", "--output-floor", "512", "--wait-ms", "0"];
    let shown = operated.json(&[&["accounts", "holds", &account], &rules[..]].concat());
    assert_eq!(shown["balance"]["credit_limit"], "25.00", "{shown}");
    assert_eq!(shown["holds"]["means"], json!(["credit", "clamp"]), "{shown}");
    let none = operated.json(&["accounts", "holds", &account, "--means", "none"]);
    assert_eq!(none["holds"]["means"], json!([]), "{none}");
    let back = operated.json(&["accounts", "holds", &account, "--means", "default"]);
    assert_eq!(back["holds"]["means"], Value::Null, "{back}");
    let table = operated.print(&["accounts", "list"]);
    assert!(table.contains("CREDIT LINE") && table.contains(" 25.00"), "{table}");
    let removed = operated.json(&["accounts", "credit", &account, "none"]);
    assert_eq!(removed["balance"]["credit_limit"], "0.00", "{removed}");
    let entries = operated.print(&["ledger", "entries", &account]);
    assert!(entries.contains("credit_line"), "{entries}");
}

#[test]
fn a_key_is_made_for_scripts_changed_and_switched_off() {
    let operated = Operated::start();
    let account = operated.account();
    let key = operated.print(&["keys", "create", &account, "--name", "ci", "--quiet"]);
    assert!(key.starts_with("sk-") && key.lines().count() == 1, "the key and nothing else: {key}");
    let arguments = ["keys", "create", &account, "--name", "trial", "--model", "gpt-4o-mini"];
    let output = operated.run(&[&arguments[..], &["--spend-per-day", "1.00"]].concat());
    assert!(text(&output.stdout).contains("sk-"), "the table has the key");
    assert!(!text(&output.stderr).contains("sk-"), "a secret on standard error");
    let list = operated.json(&["keys", "list", &account]);
    let trial = &list["data"][1];
    assert_eq!(trial["models"], json!(["gpt-4o-mini"]), "{list}");
    let id = trial["id"].as_str().expect("an id");
    operated.print(&[
        "keys",
        "update",
        id,
        "--all-models",
        "--name",
        "paid",
        "--expires-at",
        "never",
    ]);
    operated.print(&["keys", "disable", id]);
    let shown = operated.json(&["keys", "show", id]);
    assert_eq!((&shown["name"], &shown["disabled"]), (&json!("paid"), &json!(true)), "{shown}");
    assert_eq!(shown["models"], Value::Null);
    assert_eq!(shown["limits"]["spend_per_day"], "1.00", "what is left out stays");
    operated.print(&["keys", "enable", id]);
    assert_eq!(operated.json(&["keys", "show", id])["disabled"], false);
    // A slip is said, but not on standard output.
    let slip = operated.run(&["keys", "update", id, "--model", "no-such-model"]);
    assert!(text(&slip.stderr).contains("warning: The configuration lists no model"));
}

#[test]
fn every_exit_code_means_one_thing() {
    let operated = Operated::start();
    let account = operated.account();
    operated.print(&["grants", "create", &account, "1.00", "--id", "once"]);
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port");
    let closed = closed.to_string();
    std::fs::write(operated.directory.path().join("wrong-token"), "wrong").expect("a file");
    let resolve = ["fleet", "suspense", "resolve", "--node", "2", "--account", &account];
    for (code, arguments, message) in [
        (2, &["accounts", "shove"][..], "unrecognized subcommand"),
        (2, &["accounts", "limit", &account], "nothing is to be changed"),
        (2, &["keys", "update", "key_1", "--requests-per-minute", "many"], "invalid value"),
        (3, &["accounts", "show", "acct_0000000000000000"], "The account does not exist."),
        (3, &["keys", "show", "../accounts"], "There is no such key."),
        (3, &["accounts", "show", &account, "--token-file", "no-such-file"], "no-such-file"),
        (3, &["fleet"], "This gateway is in no fleet."),
        (3, &["fleet", "nodes", "--json"], "This gateway is in no fleet."),
        (3, &["fleet", "leases", "--node", "2"], "This gateway is in no fleet."),
        (3, &["fleet", "suspense"], "This gateway is in no fleet."),
        (3, &[&resolve[..], &["--release"]].concat(), "This gateway is in no fleet."),
        (2, &resolve, "<--release|--charge>"),
        (2, &[&resolve[..], &["--release", "--charge"]].concat(), "cannot be used with"),
        (4, &["grants", "create", &account, "2.00", "--id", "once"], "help: use another --id"),
        (4, &["grants", "create", &account, "a lot"], "`amount`"),
        (4, &["accounts", "list", "--token-file", "wrong-token"], "help: give the admin token"),
        (5, &["accounts", "list", "--admin", &closed], "no gateway answers at"),
    ] {
        // A file that is missing is no answer of a gateway's.
        let code = if arguments.contains(&"no-such-file") { 1 } else { code };
        let (found, errors) = operated.fails(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {message:?} in {errors}");
    }
}

/// Commands are about what they are asked for, not about the files that lead them to the gateway.
#[test]
fn commands_find_the_gateway_by_one_file_and_say_nothing_else_of_it() {
    let operated = Operated::start();
    let directory = operated.directory.path();
    let routes = std::fs::read_to_string(directory.join("routes.yaml")).expect("a file");
    let off = ["one", "two"].map(|name| {
        format!(
            "  {name}:\n    protocol: openai\n    base_url: http://127.0.0.1:1/v1\n    \
             credential: ${{NO_SUCH_VARIABLE_{name}}}\n    optional: true\n"
        )
    });
    std::fs::write(directory.join("routes.yaml"), routes + &off.concat()).expect("a file");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let file = directory.join("routes.yaml");
    let file = file.to_str().expect("a path");
    let found = operated.command(&["accounts", "list", "--routes", file]);
    let found = { found }.current_dir(elsewhere.path()).output().expect("the binary runs");
    assert_eq!((found.status.code(), text(&found.stderr).as_str()), (Some(0), ""), "no warnings");

    let checked = operated.run(&["check"]);
    let text_found = text(&checked.stderr);
    assert_eq!(text_found.matches("switched off").count(), 1, "one line for all: {text_found}");
    assert!(
        text_found.contains("`one`, since the environment variable `NO_SUCH_VARIABLE_one`"),
        "{text_found}"
    );

    // The token is not where the files say.
    let without = std::fs::read_to_string(file).expect("a file");
    let token = &operated.demo.admin_token;
    std::fs::write(file, without.replace(&format!(", token: {token}"), "")).expect("a file");
    let (code, errors) = operated.fails(&["accounts", "list"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("there is no admin token in") && errors.contains("--token-file"));
}

/// A newcomer reads where it serves, or why it does not and what to do.
#[test]
fn a_start_says_where_it_serves_and_what_to_do_when_it_cannot() {
    let operated = Operated::start();
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = held.local_addr().expect("a port").to_string();
    let at = |listen: &str| {
        let mut command = operated.command(&["serve", "--data", "served", "--listen", listen]);
        command.args(["--admin", "127.0.0.1:0"]);
        command
    };
    let output = at(&taken).output().expect("the binary runs");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&format!("error: cannot listen on {taken}: ")), "{errors}");
    assert!(errors.contains("help: another process listens there"), "{errors}");

    let log = operated.directory.path().join("log");
    let file = std::fs::File::create(&log).expect("a file");
    let child = at("127.0.0.1:0").stderr(file).stdout(Stdio::null()).spawn();
    let _running = Running(child.expect("the binary runs"));
    eventually("where it serves", || {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        lines.contains("serving at http://127.0.0.1:")
    });
}

/// The id is shown before the gateway has answered, and sent with what is made.
#[test]
fn what_is_made_has_an_id_that_a_retry_can_use() {
    let operated = Operated::start();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a call");
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        // The answer never comes.
        drop(stream);
        head
    });
    let (code, errors) = operated.fails(&["accounts", "create", "x", "--admin", &address]);
    let head = server.join().expect("the call");
    assert_eq!(code, Some(5), "{errors}");
    let id = errors.split_once("id: ").expect("an id").1.split(' ').next().expect("a word");
    let sent = format!("idempotency-key: {id}");
    assert!(head.contains(&sent), "{sent} in {head:?}");

    let account = operated.account();
    let granted = operated.run(&["grants", "create", &account, "1.00", "--json"]);
    let document: Value = serde_json::from_slice(&granted.stdout).expect("JSON");
    let id = document["id"].as_str().expect("an id");
    assert!(text(&granted.stderr).contains(&format!("--id {id}")), "{document}");
}

#[test]
fn a_list_is_read_page_by_page() {
    let operated = Operated::start();
    let account = operated.account();
    for number in 0..5 {
        operated.print(&["grants", "create", &account, "1.00", "--id", &format!("grant-{number}")]);
    }
    let list = |more: &[&str]| operated.run(&[&["ledger", "entries", &account], more].concat());
    let first = list(&["--limit", "2", "--quiet"]);
    assert_eq!(text(&first.stdout).lines().count(), 2);
    let first = list(&["--limit", "2"]);
    let errors = text(&first.stderr);
    let cursor =
        errors.split_once("--from ").expect("a cursor").1.split(',').next().expect("a word");
    let second = text(&list(&["--limit", "2", "--from", cursor, "--quiet"]).stdout);
    let all = text(&list(&["--limit", "2", "--all", "--quiet"]).stdout);
    let all: Vec<&str> = all.lines().collect();
    assert_eq!(all.len(), 5, "every entry once: {all:?}");
    assert_eq!(second.lines().collect::<Vec<_>>(), all[2..4], "the second page");
    let pages = text(&list(&["--limit", "2", "--all", "--json"]).stdout);
    assert_eq!(pages.lines().count(), 3, "each page as it came: {pages}");
}

#[test]
fn the_configuration_is_shown_checked_and_put_in_force() {
    let operated = Operated::start();
    let hash = operated.print(&["config", "show", "--quiet"]);
    assert_eq!(operated.json(&["config", "show"])["hash"], hash.trim());
    assert_eq!(operated.json(&["config", "check"])["in_force"], true);
    assert!(operated.print(&["config", "reload"]).contains(hash.trim()));
    let table = operated.print(&["upstreams"]);
    assert!(table.contains("openai") && table.contains("ready"), "{table}");
    let diff = operated.run(&["config", "diff"]);
    assert_eq!(diff.status.code(), Some(1), "another configuration runs");
    assert!(operated.print(&["holds", "in-doubt"]).starts_with("HOLD "));
    assert!(operated.print(&["tasks", "in-doubt"]).starts_with("TASK "));
    let secret = operated.print(&["accounts", "webhook-secret", &operated.account(), "--quiet"]);
    assert!(secret.starts_with("whsec_"), "{secret}");
}

#[test]
fn customers_are_suspended_coded_and_audited() {
    let operated = Operated::start();
    let account = operated.account();
    operated.print(&["accounts", "suspend", &account]);
    assert_eq!(operated.json(&["accounts", "show", &account])["suspended"], true);
    operated.print(&["accounts", "resume", &account]);
    assert_eq!(operated.json(&["accounts", "show", &account])["suspended"], false);
    operated.print(&["accounts", "rename", &account, "Another Ltd"]);

    // A password comes from standard input, and is never shown.
    let mut command = operated.command(&["accounts", "login", &account, "ada@example.com"]);
    let mut child = command
        .args(["--id", "login-1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("standard input");
    stdin.write_all(b"correct horse battery\n").expect("it is read");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let message = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(message.contains("ada@example.com") && !message.contains("horse"), "{message}");

    let create = ["codes", "create", "credit", "--amount", "1.00", "--uses", "2", "--id", "fair-1"];
    let code = operated.print(&[&create[..], &["--quiet"]].concat());
    assert_eq!(code.lines().count(), 1, "the code and nothing else: {code}");
    // Its secret is shown once: a repetition says so, and prints nothing that is no secret.
    let (exit, message) = operated.fails(&[&create[..], &["--quiet"]].concat());
    assert_eq!(exit, Some(4), "{message}");
    assert!(message.contains("its secret was shown then"), "{message}");
    let listed = operated.json(&["codes", "list"]);
    let id = listed["data"][0]["id"].as_str().unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "made once: {listed}");
    operated.print(&["codes", "revoke", id]);
    assert!(operated.json(&["codes", "show", id])["revoked_at"].is_string());

    let audit = operated.print(&["audit", "--account", &account]);
    assert!(audit.starts_with("ENTRY") && audit.contains("login-1"), "{audit}");
    let usage = operated.json(&["accounts", "usage", &account, "--by", "hour"]);
    assert_eq!(usage["data"], json!([]), "nothing was used: {usage}");
    assert!(operated.print(&["tasks", "list", "--state", "failed"]).starts_with("TASK "));
    for arguments in [
        &["holds", "resolve", "hold_0000000000000001"][..],
        &["tasks", "resolve", "task_00000000000000000000000000000001", "--void"],
        &["tasks", "show", &account, "task_00000000000000000000000000000001"],
        &["tasks", "announce", &account, "task_00000000000000000000000000000001"],
        &["codes", "revoke", "code_0000000000000001"],
    ] {
        assert_eq!(operated.fails(arguments).0, Some(3), "{arguments:?}");
    }
    let (exit, message) = operated.fails(&["tasks", "resolve", "task_1"]);
    assert_eq!(exit, Some(2), "a task is ended with --void or --charge: {message}");
}

#[test]
fn a_running_gateways_ledger_is_exported_and_verified() {
    let operated = Operated::start();
    let account = operated.account();
    operated.print(&["grants", "create", &account, "1.00", "--id", "one"]);
    let verified = operated.json(&["ledger", "verify"]);
    assert_eq!(verified["ok"], true, "{verified}");
    operated.call("gpt-4o-mini");
    let books = operated.json(&["ledger", "trial-balance"]);
    assert_eq!((&books["ok"], &books["adds_up"]), (&true.into(), &true.into()), "{books}");
    let table = operated.print(&["ledger", "trial-balance"]);
    assert!(table.starts_with("ACCOUNT ") && table.contains("customer_available"), "{table}");
    assert!(table.contains("it adds up to zero, and agrees with the balances"), "{table}");
    let lines = operated.print(&["ledger", "export"]);
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.len() as u64 >= verified["records"].as_u64().expect("a count"), "all of them");
    let grant = |line: &&Value| line["kind"] == "grant" && line["account_id"] == *account;
    assert_eq!(lines.iter().filter(grant).count(), 1, "{lines:?}");
    let csv = operated.print(&["ledger", "export", "--format", "csv", "--account", &account]);
    assert!(csv.starts_with("seq,at,") && csv.contains(",one,"), "{csv}");
    let (exit, message) = operated.fails(&["ledger", "export", "--account", "nobody"]);
    assert_eq!(exit, Some(2), "{message}");
}

#[test]
fn requests_are_listed_and_followed() {
    let operated = Operated::start();
    let mut command = operated.command(&["requests", "tail"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
    let lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
    let _running = Running(child);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::clone(&seen);
    std::thread::spawn(move || {
        lines.map_while(Result::ok).for_each(|line| shown.lock().expect("a lock").push(line));
    });
    // A tail begins when it has begun.
    eventually("a request in the tail", || {
        operated.call("gpt-4o-mini");
        seen.lock().expect("a lock").len() >= 3
    });
    let lines = seen.lock().expect("a lock").clone();
    assert!(lines[0].starts_with("ENDED "), "titles: {lines:?}");
    assert!(lines[1].contains("gpt-4o-mini") && lines[1].contains(" 200 "), "{lines:?}");
    operated.call("no-such-model");
    eventually("the failure in the list", || {
        operated.print(&["requests", "list", "--errors", "--quiet"]).lines().count() == 1
    });
    let failed = operated.json(&["requests", "list", "--status", "404"]);
    let id = failed["data"][0]["request_id"].as_str().unwrap_or_else(|| panic!("{failed}"));
    let one = operated.json(&["requests", "show", id]);
    assert_eq!(one["is_error"], true, "{one}");
    assert!(operated.print(&["requests", "show", id]).contains("404"));
}

/// A ledger that no gateway has open is exported whole, by account, and from a place on.
#[test]
fn a_ledger_is_exported_offline() {
    let data = tempfile::tempdir().expect("a directory");
    let data_dir = data.path().join("data");
    std::fs::create_dir(&data_dir).expect("a directory");
    let demo = Demo::on(&data_dir);
    let export = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["ledger", "export", "--data", "data"]).args(more).current_dir(data.path());
        command.output().expect("the binary runs")
    };
    let running = export(&[]);
    assert_eq!(running.status.code(), Some(1), "a gateway has it open");
    assert!(running.stdout.is_empty() && text(&running.stderr).contains("error: "));
    drop(demo);
    let all = export(&[]);
    assert_eq!(all.status.code(), Some(0), "{}", text(&all.stderr));
    let lines: Vec<Value> = text(&all.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect();
    let places: Vec<_> = lines.iter().map(|line| line["seq"].as_u64()).collect();
    assert_eq!(places, (1..=lines.len() as u64).map(Some).collect::<Vec<_>>(), "without a gap");
    let account = lines[0]["account_id"].as_str().expect("an account");
    let of_account = text(&export(&["--account", account]).stdout);
    let expected = lines.iter().filter(|line| line["account_id"] == account).count();
    assert_eq!(of_account.lines().count(), expected);
    assert_eq!(text(&export(&["--account", "acct_0000000000000001"]).stdout), "");
    let last = lines.len().to_string();
    assert_eq!(text(&export(&["--from-seq", &last]).stdout).lines().count(), 1);

    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["ledger", "trial-balance", "--data", "data", "--json"]).current_dir(data.path());
    let books = command.output().expect("the binary runs");
    assert_eq!(books.status.code(), Some(0), "{}", text(&books.stderr));
    let books: Value = serde_json::from_slice(&books.stdout).expect("JSON");
    assert_eq!((&books["ok"], &books["debit"]), (&true.into(), &books["credit"]), "{books}");
    assert_eq!(books["records"], lines.len(), "{books}");

    let csv = export(&["--format", "csv", "--out", "ledger.csv"]);
    assert_eq!(csv.status.code(), Some(0), "{}", text(&csv.stderr));
    let csv = std::fs::read_to_string(data.path().join("ledger.csv")).expect("the file");
    assert!(csv.starts_with("seq,at,"), "a line of names: {csv}");
    assert_eq!(csv.lines().count(), lines.len() + 1);
    assert!(!data.path().join("ledger.csv.partial").exists());
    assert_eq!(export(&["--data", "nowhere"]).status.code(), Some(2), "--data is there twice");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let nowhere = command.args(["ledger", "export", "--data", "nowhere"]).current_dir(data.path());
    assert_eq!(nowhere.output().expect("it runs").status.code(), Some(1));
    assert!(!data.path().join("nowhere").exists(), "nothing is made");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let operated = Operated::start();
    let mut command = operated.command(&["config", "show"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

/// A real bash completes commands and flags.
#[test]
fn bash_completes_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let output = command.args(["completions", shell]).output().expect("the binary runs");
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
        std::fs::write(directory.path().join(shell), output.stdout).expect("a file");
    }
    let script = format!(
        "source {}
complete_line() {{
  COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  _tollgate \"$1\" \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"
  echo \"${{COMPREPLY[*]}}\"
}}
complete_line tollgate acc
complete_line tollgate keys up
complete_line tollgate grants create --i",
        directory.path().join("bash").display()
    );
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    let printed = text(&output.stdout);
    assert_eq!(printed, "accounts\nupdate\n--id\n", "{}", text(&output.stderr));
}

/// Prices are held against a list, and the codes are those of `diff`.
#[test]
fn models_are_held_against_a_list() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("a file");
    };
    let models = |input: &str| {
        format!(
            "models:\n  m:\n    operations: [chat]\n    targets: [{{ upstream: openai }}]\n    prices: \
             {{ input_per_1m_tokens: {input}, output_per_1m_tokens: 0.60 }}\n"
        )
    };
    let list = r#"{"m": {"litellm_provider": "openai", "input_cost_per_token": 1.5e-07,
        "output_cost_per_token": 6e-07}}"#;
    write("prices.json", list);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let command = command.args(["models", "sync", "--models", "models.yaml"]).args(arguments);
        command.current_dir(directory.path()).output().expect("the binary runs")
    };
    write("models.yaml", &models("0.15"));
    let output = run(&["--from", "prices.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    write("models.yaml", &models("0.20"));
    let output = run(&["--from", "prices.json"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("m  input_per_1m_tokens  0.20 → 0.15  litellm"), "{printed}");
    assert!(printed.contains("\n      input_per_1m_tokens: 0.15\n"), "{printed}");
    let output = run(&["--from", "prices.json", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &report["different"]), (Some(1), &Value::Bool(true)));
    assert_eq!(text(&output.stdout).lines().count(), 1, "one document a line");
    for wrong in [&["--from", "nowhere.json"][..], &["--from", "models.yaml"], &[]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    write("models.yaml", &models("cheap"));
    assert_eq!(run(&["--from", "prices.json"]).status.code(), Some(2), "a wrong price of ours");
}

/// The commands of `docs/cli.md` run one after the other, and every command is on that page.
#[test]
fn the_examples_of_the_page_work() {
    let page = include_str!("../../docs/cli.md");
    let operated = Operated::start();
    let directory = operated.directory.path();
    // A ledger that no gateway has open, and a configuration of LiteLLM's.
    drop(Demo::on(&directory.join("backup")));
    let litellm = include_str!("../fixtures/litellm/priced.yaml");
    std::fs::write(directory.join("config.yaml"), litellm).expect("a file");
    let prices = include_str!("../../crates/catalogue/fixtures/litellm.json");
    std::fs::write(directory.join("prices.json"), prices).expect("a file");
    for (name, text) in [
        ("invoice.csv", include_str!("../../crates/reconcile/fixtures/invoice.csv")),
        ("costs.jsonl", include_str!("../../crates/reconcile/fixtures/journal.jsonl")),
    ] {
        std::fs::write(directory.join(name), text).expect("a file");
    }
    operated.call("gpt-4o-mini");
    let (_, database) = crate::harness::postgres::Postgres::shared().database("page");
    let routes = std::fs::read_to_string(directory.join("routes.yaml")).expect("the file");
    let fleet = format!("{routes}store: {{ postgres: {{ url: '{database}' }} }}\n");
    std::fs::write(directory.join("fleet.yaml"), fleet).expect("a file");
    let blocks: Vec<&str> =
        page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 25, "the blocks of the page");
    let binary =
        std::path::Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().expect("a directory");
    let script =
        format!("set -euxo pipefail\nPATH={}:$PATH\n{}", binary.display(), blocks.join("\n"));
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("ADMIN", operated.demo.admin_url.trim_start_matches("http://"))
        .current_dir(directory)
        .output()
        .expect("bash runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let key = std::fs::read_to_string(directory.join("key")).expect("the key");
    assert!(key.starts_with("sk-"), "{key}");

    for command in commands(&[]) {
        assert!(page.contains(&format!("tollgate {command}")), "`{command}` is not on the page");
    }
}

/// Every command without commands below it, as `--help` lists them, each of whose helps has examples.
fn commands(above: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.args(above).arg("--help").output().expect("the binary runs");
    let help = text(&output.stdout);
    let Some((_, list)) = help.split_once("Commands:\n") else {
        return vec![above.join(" ")];
    };
    let names = list.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    names.flat_map(|name| commands(&[above, &[name]].concat())).collect()
}
