//! Operators' view of a fleet and of the money of lost nodes: real gateways over a real database.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::harness::child::Running;
use crate::harness::postgres::Postgres;
use crate::harness::{Answer, Pages, ask, chat_model, poll, simulator};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::sim::Sim;

const TOKEN: &str = "admin-token-of-a-fleet";
/// How long nodes spend without the treasury; it waits twice as long for them.
const LEASE: &str = "2s";
/// Longer than anything takes here on a machine that is busy.
const SOON: Duration = Duration::from_secs(30);
const FLEET: &str = "/admin/v1/fleet";
const RESOLVE: &str = "/admin/v1/fleet/suspense/resolve";

/// The database of a fleet, and what its gateways call.
struct Fleet {
    database: String,
    url: String,
    sim: Sim,
}

/// A gateway that is a node; ended on drop.
struct Node {
    directory: TempDir,
    process: Running,
    customers: SocketAddr,
    admin: SocketAddr,
}

impl Fleet {
    fn new(name: &str) -> Self {
        let (database, url) = Postgres::shared().database(name);
        let fleet = Self { database, url, sim: simulator(&[]) };
        let directory = tempfile::tempdir().expect("a directory");
        fleet.write_files(directory.path(), "first");
        let migrated = run(directory.path(), &["migrate", "up"]);
        assert!(migrated.status.success(), "{}", error_text(&migrated));
        fleet
    }

    fn write_files(&self, directory: &Path, name: &str) {
        let routes = format!(
            "listeners:\n  - address: 127.0.0.1:0\nadmin:\n  address: 127.0.0.1:0\n  token: {TOKEN}\n\
             store:\n  data_dir: {}\n  postgres:\n    url: '{}'\n    node: {name}\n    lease: {LEASE}\n\
             upstreams:\n  sim:\n    protocol: openai\n    base_url: http://{}/v1\n    credential: k\n",
            directory.join("data").display(),
            self.url,
            self.sim.addr()
        );
        let models = format!("models:\n{}", chat_model("m", "sim"));
        std::fs::write(directory.join("routes.yaml"), routes).expect("a file");
        std::fs::write(directory.join("models.yaml"), models).expect("a file");
        std::fs::write(directory.join("token"), TOKEN).expect("a file");
    }

    fn node(&self, name: &str) -> Node {
        let directory = tempfile::tempdir().expect("a directory");
        self.write_files(directory.path(), name);
        let (process, customers, admin) = serve(directory.path());
        Node { directory, process, customers, admin }
    }

    /// Result of a query to the database.
    fn sql(&self, sql: &str) -> String {
        Postgres::shared().sql(&self.database, sql)
    }
}

impl Node {
    fn answer(&self, method: &str, path: &str, id: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let id = if id.is_empty() { String::new() } else { format!("Idempotency-Key: {id}\r\n") };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer {TOKEN}\r\n{id}\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        ask(self.admin, request.as_bytes())
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.answer("GET", path, "", &Value::Null);
        assert_eq!(answer.status(), 200, "GET {path}: {answer:?}");
        answer.json()
    }

    fn post(&self, path: &str, id: &str, body: &Value) -> (u16, Value) {
        let answer = self.answer("POST", path, id, body);
        (answer.status(), answer.json())
    }

    fn metric(&self, series: &str) -> Option<f64> {
        let text = self.answer("GET", "/metrics", "", &Value::Null).body();
        let text = String::from_utf8(text).expect("text");
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(value.parse().expect("a number"))
    }

    fn ready(&self) -> (u16, Value) {
        let answer =
            ask(self.admin, b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        (answer.status(), answer.json()["reason"].clone())
    }

    /// A new account with credit and a key.
    fn customer(&self, dollars: &str) -> (String, String) {
        let (status, account) = self.post("/admin/v1/accounts", "", &json!({"name": "Ada"}));
        assert_eq!(status, 201, "{account}");
        let account = account["id"].as_str().expect("an id").to_owned();
        let grant = json!({"amount": dollars, "id": "first"});
        let path = format!("/admin/v1/accounts/{account}");
        assert_eq!(self.post(&format!("{path}/grants"), "", &grant).0, 201);
        let (_, key) = self.post(&format!("{path}/keys"), "", &json!({"name": "k"}));
        (account, key["key"].as_str().expect("a key").to_owned())
    }

    fn call(&self, key: &str) -> u16 {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        let body = body.to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        ask(self.customers, request.as_bytes()).status()
    }

    /// A command of operators, against this node.
    fn command(&self, arguments: &[&str]) -> Output {
        let admin = self.admin.to_string();
        let whom = ["--admin", &admin, "--token-file", "token"];
        run(self.directory.path(), &[arguments, &whom].concat())
    }

    fn print(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", error_text(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    async fn console(&self) -> Pages {
        let pages = Pages::at(&format!("http://{}", self.admin));
        let page = pages.get("/operator/login").await;
        let answer = pages.fill(&page, "/operator/login", &[("token", TOKEN)]).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        pages
    }
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).current_dir(directory).output().expect("the binary runs")
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn serve(directory: &Path) -> (Running, SocketAddr, SocketAddr) {
    let file = |name: &str| -> PathBuf { directory.join(name) };
    let log = std::fs::File::create(file("log")).expect("the log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--ready-json", "--routes"])
        .arg(file("routes.yaml"))
        .arg("--models")
        .arg(file("models.yaml"))
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("the binary starts");
    let stdout = child.stdout.take().expect("standard output is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line when it is ready");
    let log = || std::fs::read_to_string(file("log")).unwrap_or_default();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{}", log()));
    let address = |url: &Value| {
        let url = url.as_str().and_then(|url| url.split_once("://")).expect("a URL").1;
        url.parse().expect("an address")
    };
    (Running(child), address(&ready["listeners"][0]), address(&ready["admin_url"]))
}

/// Waits for what should come soon.
fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    poll(what, SOON, look)
}

fn nanousd(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_else(|| panic!("no amount: {value}"));
    text.parse::<tollgate::money::Nanousd>().expect("an amount").get()
}

/// All money, which adds up.
fn money(node: &Node) -> Value {
    let money = node.get(FLEET)["money"].clone();
    let parts = ["available", "leased", "held", "spent", "suspense"];
    let sum: i64 = parts.iter().map(|part| nanousd(&money[*part])).sum();
    assert_eq!(sum, nanousd(&money["granted"]), "{money}");
    assert_eq!(money["adds_up"], true, "{money}");
    money
}

/// A node that has taken a call of a customer with $10 and was killed then: what it had out is in
/// suspense, and the other node and how much it is.
fn fallen_silent(fleet: &Fleet) -> (Node, Node, String, String, i64) {
    let (first, mut second) = (fleet.node("gw-1"), fleet.node("gw-2"));
    let (account, key) = first.customer("10.00");
    eventually("the other node knows the key", || match second.call(&key) {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    second.process.kill();
    let amount = eventually("its lease is in suspense", || {
        let list = first.get("/admin/v1/fleet/suspense");
        let found = list["data"].as_array().expect("a list").first().cloned();
        found.map(|lease| nanousd(&lease["amount"])).ok_or_else(|| list.to_string())
    });
    assert!(amount > 0);
    (first, second, account, key, amount)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_node_had_is_seen_everywhere_and_resolved_once() {
    let fleet = Fleet::new("operator_lost");
    let (first, second, account, _, amount) = fallen_silent(&fleet);
    // Its disk is gone with it.
    drop(second);
    let money_before = money(&first);
    assert_eq!(nanousd(&money_before["suspense"]), amount, "{money_before}");
    let nodes = first.get(FLEET)["nodes"].clone();
    let states: Vec<_> = nodes.as_array().expect("nodes").iter().map(|n| &n["state"]).collect();
    assert_eq!(states, ["alive", "silent"], "{nodes}");
    assert_eq!((nanousd(&nodes[1]["out"]), &nodes[1]["name"]), (amount, &json!("gw-2")));
    let leases = first.get(&format!("{FLEET}/leases?node=2&account={account}"));
    assert_eq!(leases["data"][0]["account_id"], json!(account), "{leases}");
    assert!(leases["data"][0]["suspended_at"].is_string(), "{leases}");

    let dollars = f64::from(u32::try_from(amount / 1000).expect("small")) / 1e6;
    eventually("the metrics", || {
        let seen = first.metric("tollgate_fleet_money_dollars{part=\"suspense\"}");
        let is_seen = seen.is_some_and(|seen| (seen - dollars).abs() < 1e-5);
        if is_seen { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    assert_eq!(first.metric("tollgate_fleet_nodes{state=\"silent\"}"), Some(1.0));
    assert_eq!(first.metric("tollgate_fleet_cut_off"), Some(0.0));
    let exchanges = "tollgate_fleet_round_trips_total{outcome=\"done\",what=\"exchange\"}";
    assert!(first.metric(exchanges).is_some_and(|count| count > 2.0), "exchanges are counted");

    assert!(first.print(&["fleet"]).contains("adds up"), "a sheet");
    assert!(first.print(&["fleet", "nodes"]).contains("silent"));
    let listed = first.print(&["fleet", "suspense", "--quiet"]);
    assert_eq!(listed.trim(), account);
    assert!(first.print(&["fleet", "leases", "--node", "2"]).contains("gw-2"));
    assert_eq!(first.print(&["fleet", "leases", "--node", "7", "--quiet"]), "");

    let pages = first.console().await;
    let overview = pages.get("/operator").await;
    assert!(overview.body.contains("1 of 2 nodes alive, $0."), "{}", overview.body);
    let page = pages.get("/operator/fleet?node=2").await;
    for text in ["badge bad\">silent", "adds up", "What node 2 has out", account.as_str()] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
    let refused = pages.fill(&page, "/operator/fleet/suspense", &[("note", "lost")]).await;
    assert_eq!(refused.status, 422, "nothing is chosen: {}", refused.body);

    // Two operators at the same moment, one of them in the console.
    let body = json!({"node": 2, "account": account, "how": "release", "note": "disk lost"});
    let form = page.form("/operator/fleet/suspense", &[("note", "lost"), ("how", "release")]);
    let (by_api, by_console) = std::thread::scope(|scope| {
        let api = scope.spawn(|| first.post(RESOLVE, "ticket-1", &body));
        let by_console = tokio::task::block_in_place(|| {
            let post = pages.post("/operator/fleet/suspense", &form);
            tokio::runtime::Handle::current().block_on(post)
        });
        (api.join().expect("no panic"), by_console.status)
    });
    assert!(
        matches!((by_api.0, by_console), (200, 404) | (404, 303)),
        "one of them: {by_api:?} {by_console}"
    );
    let after = money(&first);
    assert_eq!(nanousd(&after["suspense"]), 0, "{after}");
    let available = nanousd(&money_before["available"]) + amount;
    assert_eq!(nanousd(&after["available"]), available, "given back once");
    let acts = first.get("/admin/v1/audit");
    let acts = acts["data"].as_array().expect("acts");
    let resolved = acts.iter().filter(|act| act["what"] == "suspense.resolve");
    assert_eq!(resolved.count(), 1, "{acts:?}");
    // The same request once more has the same answer, and changes nothing.
    if by_api.0 == 200 {
        assert_eq!(first.post(RESOLVE, "ticket-1", &body), by_api);
    } else {
        assert_eq!(first.post(RESOLVE, "ticket-1", &body).0, 404);
    }
    assert_eq!(money(&first)["available"], after["available"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_suspense_was_resolved_is_shut_out_and_joins_anew() {
    let fleet = Fleet::new("operator_back");
    let (first, second) = (fleet.node("gw-1"), fleet.node("gw-2"));
    let (account, key) = first.customer("10.00");
    eventually("the other node knows the key", || match second.call(&key) {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    signal(&second, "-STOP");
    let lease = eventually("its lease is in suspense", || {
        let list = first.get("/admin/v1/fleet/suspense");
        list["data"].as_array().expect("a list").first().cloned().ok_or_else(|| list.to_string())
    });
    let amount = nanousd(&lease["amount"]);
    let resolve = ["fleet", "suspense", "resolve", "--node", "2", "--account", &account];
    let resolve = [&resolve[..], &["--release", "--note", "gone", "--id", "ticket-2"]].concat();
    let printed = first.print(&resolve);
    assert!(printed.contains("release"), "{printed}");
    assert_eq!(first.print(&resolve), printed, "the same id is done once");
    let epoch = || fleet.sql("SELECT epoch FROM tollgate.nodes WHERE id = 2");
    let after = epoch();
    signal(&second, "-CONT");
    // It is refused, and joins anew.
    eventually("it has joined anew", || {
        let log = std::fs::read_to_string(second.directory.path().join("log")).expect("the log");
        match (log.contains("is shut out of the fleet"), second.ready()) {
            (true, (200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(epoch().parse::<u32>().ok(), after.parse::<u32>().ok().map(|epoch| epoch + 1));
    let charge = json!({"node": 2, "account": account, "how": "charge"});
    let (status, late) = second.post(RESOLVE, "ticket-3", &charge);
    assert_eq!(status, 404, "nothing is left to be resolved: {late}");
    assert_eq!(second.call(&key), 200);
    assert!(amount > 0);
    // What the call before has cost is paid with what was released, as if nothing had been.
    assert_eq!(statement_of(&first, &account, 2), ["grant", "settlement", "settlement"]);
}

/// Waits until so many calls stand in an account's statement, and checks that statement, balance, usage
/// and the fleet's money say the same, and that nothing was written off. Gives the kinds of its lines,
/// oldest first.
fn statement_of(node: &Node, account: &str, calls: usize) -> Vec<String> {
    let path = format!("/admin/v1/accounts/{account}");
    let entries = eventually("all calls are reported", || {
        let entries = node.get(&format!("{path}/entries"));
        let entries = entries["data"].as_array().expect("entries").clone();
        let settled = entries.iter().filter(|entry| entry["kind"] == "settlement").count();
        if settled >= calls { Ok(entries) } else { Err(format!("{entries:?}")) }
    });
    let (mut given, mut spent, mut charged) = (0, 0, Vec::new());
    for entry in &entries {
        match entry["kind"].as_str() {
            Some("grant") => given += nanousd(&entry["amount"]),
            Some("suspense_charged") => spent += nanousd(&entry["amount"]),
            Some("suspense_returned") => spent -= nanousd(&entry["amount"]),
            Some("settlement") => charged.push(nanousd(&entry["charged"])),
            other => panic!("{other:?}: {entry}"),
        }
    }
    assert_eq!(charged.len(), calls, "{entries:?}");
    spent += charged.iter().sum::<i64>();
    let balance = node.get(&path)["balance"].clone();
    let found = ["granted", "spent"].map(|part| nanousd(&balance[part]));
    assert_eq!(found, [given, spent], "{balance}");
    let usage = node.get(&format!("{path}/usage"));
    let used = usage["data"].as_array().expect("usage").iter();
    let used: i64 = used.map(|row| nanousd(&row["cost"])).sum();
    assert_eq!(used, charged.iter().sum::<i64>(), "{usage}");
    let sums = money(node);
    let found = ["spent", "written_off"].map(|part| nanousd(&sums[part]));
    assert_eq!(found, [spent, 0], "{sums}");
    entries.iter().rev().map(|entry| entry["kind"].as_str().expect("a kind").to_owned()).collect()
}

/// A node that is cut off takes calls of its customer and is killed with them; an operator resolves what
/// it had out, and it is started again over its disk.
async fn killed_resolved_and_started_again(how: &str) -> (Fleet, Node, String, usize) {
    let fleet = Fleet::new(&format!("operator_again_{how}"));
    let (first, mut second) = (fleet.node("gw-1"), fleet.node("gw-2"));
    let (account, key) = first.customer("10.00");
    eventually("the other node knows the key", || match second.call(&key) {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    let server = Postgres::shared();
    statement_of(&first, &account, 1);
    server.accept_connections(&fleet.database, false);
    server.send_away(&fleet.database);
    let calls = (0..3).filter(|_| second.call(&key) == 200).count();
    assert!(calls > 0, "it goes on with what it was lent");
    crate::harness::let_pass(
        Duration::from_millis(300),
        "the ends are flushed, which shows nowhere without the database",
    );
    second.process.kill();
    server.accept_connections(&fleet.database, true);
    let amount = eventually("its lease is in suspense", || {
        let answer = first.answer("GET", "/admin/v1/fleet/suspense", "", &Value::Null);
        let list = if answer.status() == 200 { answer.json() } else { Value::Null };
        let lease = list["data"][0]["amount"].clone();
        if lease.is_string() { Ok(nanousd(&lease)) } else { Err(list.to_string()) }
    });
    let resolve = json!({"node": 2, "account": account, "how": how, "note": "nobody knows"});
    let (status, resolved) = first.post(RESOLVE, "", &resolve);
    assert_eq!((status, nanousd(&resolved["amount"])), (200, amount), "{resolved}");
    let lines = statement_of(&first, &account, 1);
    let charged = if how == "charge" {
        &["grant", "settlement", "suspense_charged"][..]
    } else {
        &["grant", "settlement"]
    };
    assert_eq!(lines, charged);
    let (process, customers, admin) = serve(second.directory.path());
    second = Node { process, customers, admin, ..second };
    assert_eq!(nanousd(&money(&second)["suspense"]), 0);
    // It is one of the fleet again.
    assert_eq!(second.call(&key), 200);
    statement_of(&second, &account, calls + 2);
    (fleet, first, account, calls + 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_that_is_back_pays_its_calls_and_gives_back_what_was_charged_for_it() {
    let (_fleet, first, account, calls) = killed_resolved_and_started_again("charge").await;
    let mut expected = vec!["grant", "settlement", "suspense_charged", "suspense_returned"];
    expected.resize(calls + 3, "settlement");
    assert_eq!(statement_of(&first, &account, calls), expected);
    let pages = first.console().await;
    let page = pages.get(&format!("/operator/customers/{account}/entries")).await;
    for text in ["node 2 was lost", "node 2 came back"] {
        assert!(page.body.contains(text), "{text}: {}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_that_is_back_pays_its_calls_with_what_was_released() {
    let (_fleet, first, account, calls) = killed_resolved_and_started_again("release").await;
    let mut expected = vec!["grant"];
    expected.resize(calls + 1, "settlement");
    assert_eq!(statement_of(&first, &account, calls), expected);
}

/// The treasury has what accounts owe, whichever node they have called: each of them tells it.
#[tokio::test(flavor = "multi_thread")]
async fn every_node_tells_what_accounts_of_the_fleet_owe() {
    let fleet = Fleet::new("operator_debt");
    let nodes = [fleet.node("gw-1"), fleet.node("gw-2")];
    let debt = |node: &Node| node.metric("tollgate_debt_dollars");
    assert_eq!(nodes.each_ref().map(debt), [Some(0.0); 2]);
    let (status, account) = nodes[0].post("/admin/v1/accounts", "", &json!({"name": "Ada"}));
    assert_eq!(status, 201, "{account}");
    let account = account["id"].as_str().expect("an id");
    fleet.sql(&format!("UPDATE tollgate.accounts SET debt = 2500000000 WHERE id = '{account}'"));
    for node in &nodes {
        eventually("what is owed", || match debt(node) {
            Some(2.5) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    let grant = json!({"amount": "2.00", "id": "second"});
    let path = format!("/admin/v1/accounts/{account}/grants");
    assert_eq!(nodes[1].post(&path, "", &grant).0, 201);
    eventually("less is owed", || match debt(&nodes[0]) {
        Some(0.5) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// A customer's price, set on one node, is charged by the other under the same version.
#[tokio::test(flavor = "multi_thread")]
async fn a_customers_prices_are_charged_by_every_node() {
    let fleet = Fleet::new("operator_prices");
    let nodes = [fleet.node("gw-1"), fleet.node("gw-2")];
    let (account, key) = nodes[0].customer("10.00");
    eventually("the key on the other node", || match nodes[1].call(&key) {
        200 => Ok(()),
        status => Err(status.to_string()),
    });
    let list = charged(&nodes[1], &account, &key);
    let path = format!("/admin/v1/accounts/{account}/prices");
    let dear = json!({"rules": [{"models": "m*", "factor": "10"}]});
    assert_eq!(nodes[0].answer("PUT", &path, "", &dear).status(), 200);
    eventually("the rule on the other node", || match nodes[1].get(&path) {
        prices if prices == dear => Ok(()),
        other => Err(other.to_string()),
    });
    let (own, other) = (charged(&nodes[0], &account, &key), charged(&nodes[1], &account, &key));
    assert_eq!((own.0, other.0), (10 * list.0, 10 * list.0));
    assert_eq!(own.1, other.1, "the same prices have the same version on every node");
    assert_ne!(own.1, list.1);
    let (version, node) = (own.1, &nodes[1]);
    let prices = node.get("/admin/v1/prices");
    let named = prices["data"].as_array().expect("a list").iter();
    let named: Vec<_> = named.filter(|price| price["version"] == version).collect();
    assert_eq!(named.len(), 1, "{prices}");
    assert_eq!((&named[0]["sources"], &named[0]["model"]), (&json!(["account: m*"]), &json!("m")));
}

/// Charge of a call of this node in nano-dollars, and its price version.
fn charged(node: &Node, account: &str, key: &str) -> (i64, Value) {
    let settlements = || {
        let entries = node.get(&format!("/admin/v1/accounts/{account}/entries?limit=50"));
        let entries = entries["data"].as_array().expect("a list").clone();
        entries.into_iter().filter(|entry| entry["kind"] == "settlement").collect::<Vec<_>>()
    };
    let before = settlements();
    assert_eq!(node.call(key), 200);
    eventually("what was charged", || {
        let now = settlements();
        match now.iter().find(|entry| !before.contains(entry)) {
            Some(new) => Ok((nanousd(&new["charged"]), new["call"]["price"].clone())),
            None => Err(format!("{now:?}")),
        }
    })
}

/// A database that is away: a node serves to the end of its term, is not ready then, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_is_not_ready() {
    let fleet = Fleet::new("operator_cut_off");
    let node = fleet.node("gw-1");
    assert_eq!(node.ready(), (200, Value::Null));
    let server = Postgres::shared();
    server.accept_connections(&fleet.database, false);
    server.send_away(&fleet.database);
    eventually("it is not ready", || match node.ready() {
        (503, reason) if reason == "cut_off" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let answer = node.answer("GET", FLEET, "", &Value::Null);
    assert_eq!(answer.status(), 503, "{answer:?}");
    assert_eq!(node.metric("tollgate_fleet_cut_off"), Some(1.0));
    let lag = node.metric("tollgate_fleet_report_lag_seconds");
    assert!(lag.is_some_and(|lag| lag >= 0.0), "{lag:?}");
    let ended = |outcome: &str| {
        let what = format!("{{outcome=\"{outcome}\",what=\"exchange\"}}");
        node.metric(&format!("tollgate_fleet_round_trips_total{what}")).unwrap_or_default()
    };
    let failed = ended("unavailable") + ended("unknown") + ended("failed");
    assert!(failed >= 1.0, "exchanges that came to nothing are counted");
    server.accept_connections(&fleet.database, true);
    eventually("it is ready again", || match node.ready() {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// Stops a node's process, or lets it go on.
fn signal(node: &Node, signal: &str) {
    let id = node.process.0.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().expect("kill runs");
    assert!(sent.success(), "kill {signal} {id}");
}
