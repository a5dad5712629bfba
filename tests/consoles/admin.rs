//! The admin API over HTTP: a real ledger in a directory of its own, a real socket.

mod people;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tollgate::admin::{self, AdminState, Readiness};
use tollgate::balance::Balancer;
use tollgate::clock::UnixMs;
use tollgate::config::snapshot::{AccessLog, Operator};
use tollgate::config::{ConfigHandle, Overrides, Sources};
use tollgate::credentials::RefreshOutcome;
use tollgate::finished::{FinishedRequest, RequestSettlement, TaskEnded};
use tollgate::fleet::postgres::{DbOperation, FleetOverview, RoundTrip, RoundTripOutcome};
use tollgate::ledger::{
    AccountId, KeyId, Ledger, Loss, LossCause, NodeId, NodeStatus, Options, RecoveryPolicy,
    RequestId, Reserve, Settlement, TaskId, VoidReason,
};
use tollgate::limits::{Limit, Scope};
use tollgate::logging;
use tollgate::metrics::{
    CircuitFigures, CredentialFigures, LedgerFigures, Metrics, WebhookOutcome,
};
use tollgate::money::Nanousd;
use tollgate::outbound::Outbound;
use tollgate::password::Passwords;
use tollgate::price::{Usage, UsageSource};
use tollgate::protocols::Contradiction;
use tollgate::request_log::{LogFigures, RequestLog};
use tollgate::secret::Secret;
use tollgate::tasks::Tasks;

/// A token that would be seen if it got anywhere.
const TOKEN: &str = "admin-token-canary-5f2c";

/// The token of an operator with a name.
const ADAS_TOKEN: &str = "adas-token-canary-77aa";

/// A running admin API.
struct Admin {
    base: String,
    client: Client,
    ledger: Arc<Ledger>,
    metrics: Arc<Metrics>,
    requests: Arc<RequestLog>,
    readiness: Arc<Readiness>,
    /// A model that the configuration lists.
    model: String,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Admin {
    fn start(dir: &Path) -> Self {
        log_lines();
        // Where a ledger that is still open has the directory, a copy of it goes on.
        let accept_fork = true;
        let options = Options { recovery: RecoveryPolicy::Floor, accept_fork, ..Options::new(dir) };
        let (ledger, _) = Ledger::open(options).expect("the ledger opens");
        // Nobody listens there: no model is called.
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let overrides = Overrides {
            every_upstream_at: Some(nowhere),
            data_dir: Some(dir.to_owned()),
            ..Overrides::default()
        };
        let Ok((mut snapshot, _)) = tollgate::config::load(&Sources::Embedded, &overrides) else {
            panic!("the embedded configuration does not load");
        };
        snapshot.admin.operators =
            vec![Operator { name: "ada".to_owned(), token: Secret::new(ADAS_TOKEN.to_owned()) }];
        let model = snapshot.models.first().expect("a model").id.to_string();
        let (metrics, readiness) = (Arc::new(Metrics::new()), Arc::new(Readiness::default()));
        let config = Arc::new(ConfigHandle::new(snapshot, Sources::Embedded, overrides));
        let outbound = Outbound::new(&metrics, Arc::default());
        let credentials = Arc::clone(&outbound.credentials);
        let (followed, seen) = (Arc::clone(&ledger), Arc::clone(&metrics));
        let requests = RequestLog::open(dir.join("requests"), 1 << 20).expect("a request log");
        let kept = Arc::clone(&requests);
        let tasks = Tasks::start(followed, Arc::clone(&config), outbound, seen, kept, dir);
        let state = AdminState {
            ledger: Arc::clone(&ledger),
            tasks: tasks.expect("tasks"),
            metrics: Arc::clone(&metrics),
            requests: Arc::clone(&requests),
            balancer: Balancer::new(&config.load()),
            credentials,
            config,
            readiness: Arc::clone(&readiness),
            token: Secret::new(TOKEN.to_owned()),
            passwords: Passwords::default(),
            guesses: Arc::default(),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a non-blocking socket");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let task =
            tokio::spawn(admin::serve(listener, admin::app(state).expect("a router"), 64, None));
        Self {
            base,
            client: crate::harness::http(),
            ledger,
            metrics,
            requests,
            readiness,
            model,
            task,
        }
    }

    async fn stop(self) {
        self.task.abort();
        self.ledger.close();
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Sends with the token; gives the status and the JSON.
    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let mut request = self.request(method, path).bearer_auth(TOKEN);
        if let Some(body) = body {
            request = request.json(&body);
        }
        answer(request).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, None).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send(Method::POST, path, Some(body)).await
    }

    /// A new account, by its path.
    async fn account(&self, name: &str) -> String {
        let (status, body) = self.post("/admin/v1/accounts", json!({"name": name})).await;
        assert_eq!(status, 201, "an account is created: {body}");
        format!("/admin/v1/accounts/{}", text(&body["id"]))
    }

    /// A new account with credit and a key: its path, its id and the key's document.
    async fn customer(&self, dollars: &str) -> (String, AccountId, Value) {
        let account = self.account("customer").await;
        let grant = json!({"amount": dollars, "id": "first"});
        assert_eq!(self.post(&format!("{account}/grants"), grant).await.0, 201, "a grant");
        let (status, key) = self.post(&format!("{account}/keys"), json!({"name": "k"})).await;
        assert_eq!(status, 201, "a key is created: {key}");
        let id = account.rsplit('/').next().and_then(|id| id.parse().ok()).expect("an id");
        (account, id, key)
    }

    /// Holds `amount` for a call.
    fn hold(&self, account: AccountId, key: &Value, amount: i64) -> tollgate::ledger::Hold {
        let reserve = Reserve {
            account,
            key: text(&key["id"]).parse::<KeyId>().expect("a key id"),
            model: self.model.as_str().into(),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(amount),
            floor: Nanousd::new(amount / 10),
        };
        self.ledger.reserve(reserve).expect("the account can pay")
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.expect("an answer");
    let id = response.headers().get("x-request-id").expect("x-request-id on every answer");
    assert!(id.to_str().is_ok_and(|id| id.starts_with("req_")), "{id:?} is a request id");
    let status = response.status();
    let text = response.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn charge(nanousd: i64) -> Settlement {
    let usage = Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() };
    Settlement { charge: Nanousd::new(nanousd), usage, source: UsageSource::Upstream }
}

/// A call that went well.
fn finished(account_id: AccountId, key_id: KeyId, model: &str) -> FinishedRequest<'_> {
    FinishedRequest {
        request_id: RequestId::new(),
        account_id: Some(account_id),
        key_id: Some(key_id),
        client: Some(Ipv4Addr::LOCALHOST.into()),
        method: "POST",
        route: "/v1/chat/completions",
        operation: None,
        model,
        requested_model: None,
        upstream: "up",
        upstream_request_id: None,
        status: 200,
        error_code: "",
        streamed: false,
        bytes_in: 1,
        bytes_out: 2,
        ended_at: tollgate::clock::UnixMs::now(),
        duration: Duration::from_millis(3),
        ttfb: Some(Duration::from_millis(2)),
        settled: Some(RequestSettlement {
            usage: Usage { input_tokens: 3, ..Usage::default() },
            source: UsageSource::Upstream,
            cost: Nanousd::new(1_000_000),
            owed: Nanousd::ZERO,
        }),
        held: Nanousd::ZERO,
        max_tokens_clamped: None,
        task_id: None,
        traceparent: None,
    }
}

/// Everything that this process logs.
fn log_lines() -> &'static Mutex<Vec<u8>> {
    struct Kept;

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            log_lines().lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    static LINES: OnceLock<Mutex<Vec<u8>>> = OnceLock::new();
    let mut first = false;
    let lines = LINES.get_or_init(|| {
        first = true;
        Mutex::default()
    });
    if first {
        logging::install_to(log::LevelFilter::Trace, Kept);
    }
    lines
}

#[tokio::test]
async fn a_debt_is_shown_paid_first_and_written_off() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let (account, id, key) = admin.customer("0.01").await;
    let write_offs = format!("{account}/write-offs");
    let request = |amount: &str| json!({"amount": amount, "note": "agreed", "id": "w"});
    let (status, refused) = admin.post(&write_offs, request("0.001")).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (409, &json!("conflict")));
    admin.hold(id, &key, 10_000_000).post(charge(15_000_000));
    let shown = admin.get(&account).await;
    assert_eq!(shown["balance"]["debt"], "0.005");
    let metrics = admin.get("/metrics").await;
    assert!(text(&metrics).contains("tollgate_debt_dollars 0.005"), "{metrics}");
    let (status, written) = admin.post(&write_offs, request("0.001")).await;
    assert_eq!((status.as_u16(), &written["amount"]), (201, &json!("0.001")), "{written}");
    assert_eq!(admin.post(&write_offs, request("0.001")).await, (StatusCode::OK, written));
    let grant = json!({"amount": "0.01", "id": "second"});
    assert_eq!(admin.post(&format!("{account}/grants"), grant).await.0, 201);
    let shown = admin.get(&account).await;
    let found = ["available", "spent", "debt"].map(|part| text(&shown["balance"][part]));
    assert_eq!(found, ["0.006", "0.014", "0.00"]);
    let entries = admin.get(&format!("{account}/entries")).await;
    let entries = entries["data"].as_array().expect("entries");
    let kinds: Vec<_> = entries.iter().map(|entry| text(&entry["kind"])).collect();
    assert_eq!(kinds, ["debt_payment", "grant", "write_off", "settlement", "grant"]);
    assert_eq!(entries[3]["owed"], "0.005");
}

#[tokio::test]
async fn losses_are_listed_by_cause() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let none = json!({"totals": {}, "data": []});
    assert_eq!(admin.get("/admin/v1/ledger/losses").await, none);
    let (_, account, key) = admin.customer("0.01").await;
    admin.ledger.record_loss(Loss {
        account,
        key: text(&key["id"]).parse::<KeyId>().expect("a key id"),
        model: admin.model.as_str().into(),
        upstream: "u".to_owned(),
        request: RequestId::new(),
        cause: LossCause::ConnectionLost,
        amount: Nanousd::new(200_000_000),
    });
    let losses = admin.get("/admin/v1/ledger/losses?limit=1").await;
    let sum = json!({"count": 1, "amount": "0.20"});
    assert_eq!(losses["totals"], json!({"connection_lost": sum}));
    let listed = &losses["data"][0];
    assert_eq!((&listed["cause"], &listed["upstream"]), (&json!("connection_lost"), &json!("u")));
    assert_eq!(listed["account_id"], account.to_string());
    let metrics = admin.get("/metrics").await;
    let line = r#"tollgate_operator_loss_dollars_total{cause="connection_lost"} 0.2"#;
    assert!(text(&metrics).contains(line), "{metrics}");
}

#[tokio::test]
async fn an_account_is_made_paid_in_and_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let (status, made) = admin.post("/admin/v1/accounts", json!({"name": "Ünïcorn"})).await;
    assert_eq!(status, 201);
    let parts = ["granted", "available", "held", "spent", "debt", "credit_limit", "credit_used"];
    let zero: Value = parts.map(|part| (part, "0.00")).into_iter().collect();
    assert_eq!(made["balance"], zero, "a new account has nothing");
    assert_eq!(made["name"], "Ünïcorn");
    assert!(text(&made["id"]).starts_with("acct_"));
    assert!(text(&made["created_at"]).ends_with('Z'), "a time in UTC");

    let account = format!("/admin/v1/accounts/{}", text(&made["id"]));
    let grants = format!("{account}/grants");
    let (status, first) = admin.post(&grants, json!({"amount": "10.00", "id": "a"})).await;
    assert_eq!(status, 201, "{first}");
    assert_eq!((&first["amount"], &first["id"]), (&json!("10.00"), &json!("a")));
    let (status, again) = admin.post(&grants, json!({"amount": 10, "id": "a"})).await;
    assert_eq!((status, again), (StatusCode::OK, first), "a repeated grant answers the same");
    let (status, other) = admin.post(&grants, json!({"amount": "10.01", "id": "a"})).await;
    assert_eq!(status, 409, "{other}");
    assert_eq!(other["error"]["code"], "idempotency_conflict");
    let (status, _) = admin.post(&grants, json!({"amount": "0.000000001", "id": "b"})).await;
    assert_eq!(status, 201);
    let shown = admin.get(&account).await;
    assert_eq!(shown["balance"]["available"], "10.000000001", "to the nano-dollar");
    assert_eq!(shown["balance"]["granted"], "10.000000001");
    let list = admin.get("/admin/v1/accounts").await;
    assert_eq!(list, json!({"data": [shown], "has_more": false, "next_after": null}));
    admin.stop().await;
}

/// A line is shown apart from what was paid in, drawn after it, and lowered only as far as calls allow.
#[tokio::test]
async fn a_credit_line_is_set_drawn_shown_and_taken_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let account = admin.account("team").await;
    admin.post(&format!("{account}/grants"), json!({"amount": "1.00", "id": "a"})).await;
    let set = async |limit: Value| {
        admin.send(Method::PATCH, &account, Some(json!({"credit_limit": limit}))).await
    };
    let (status, shown) = set(json!("10.00")).await;
    assert_eq!(status, 200, "{shown}");
    let balance = &shown["balance"];
    assert_eq!((&balance["granted"], &balance["available"]), (&json!("1.00"), &json!("11.00")));
    assert_eq!(balance["credit_limit"], "10.00");
    let id: AccountId = text(&shown["id"]).parse().expect("an id");
    let usd = |cents: i64| Nanousd::new(cents * 10_000_000);
    let reserve = |cents| Reserve { amount: usd(cents), ..crate::harness::ledger::reserve(id, 0) };
    let settle = |cents| Settlement { charge: usd(cents), ..crate::harness::ledger::settlement(0) };
    let ledger = &admin.ledger;
    ledger.reserve(reserve(300)).expect("a hold").post(settle(300));
    let hold = ledger.reserve(reserve(500)).expect("a hold");
    assert_eq!(admin.get(&account).await["balance"]["credit_used"], "2.00");
    let (status, refused) = set(Value::Null).await;
    assert_eq!(
        (status.as_u16(), &refused["error"]["code"]),
        (409, &json!("conflict")),
        "{refused}"
    );
    let message = text(&refused["error"]["message"]);
    assert!(message.contains("at least 5.00"), "{message}");
    for wrong in [json!("-1"), json!("a"), json!(1.5), json!("99999999999")] {
        let (status, _) = set(wrong.clone()).await;
        assert_eq!(status, 400, "{wrong}");
    }
    drop(hold);
    let (status, shown) = set(json!(0)).await;
    assert_eq!((status.as_u16(), &shown["balance"]["debt"]), (200, &json!("2.00")), "{shown}");
    assert_eq!(shown["balance"]["credit_limit"], "0.00");
    let entries = admin.get(&format!("{account}/entries")).await;
    let line = &entries["data"][0];
    assert_eq!((&line["kind"], &line["owed"]), (&json!("credit_line"), &json!("2.00")), "{line}");
    let (_, verified) = admin.post("/admin/v1/ledger/verify", json!({})).await;
    assert_eq!((&verified["ok"], &verified["total"]["debt"]), (&json!(true), &json!("2.00")));
    let (_, _) = set(json!("7.50")).await;
    let metrics = admin.get("/metrics").await;
    for line in ["tollgate_credit_lines_dollars 7.5", "tollgate_credit_used_dollars 2"] {
        assert!(text(&metrics).contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn hold_rules_of_an_account_are_set_and_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let account = admin.account("agents").await;
    let none = json!({"means": null, "output_floor": null, "slice": null, "wait_ms": null});
    assert_eq!(admin.get(&account).await["holds"], none);
    let set = async |holds: Value| {
        admin.send(Method::PATCH, &account, Some(json!({"holds": holds}))).await
    };
    let (status, shown) = set(json!({"means": ["clamp", "credit"], "wait_ms": 0})).await;
    assert_eq!(status, 200, "{shown}");
    let (_, shown) = set(json!({"output_floor": 512})).await;
    let expected =
        json!({"means": ["clamp", "credit"], "output_floor": 512, "slice": null, "wait_ms": 0});
    assert_eq!(shown["holds"], expected);
    for wrong in [
        json!({"means": ["clamp", "clamp"]}),
        json!({"means": ["hope"]}),
        json!({"slice": 0}),
        json!({"wait_ms": 600_001}),
        json!({"more": 1}),
    ] {
        let (status, _) = set(wrong.clone()).await;
        assert_eq!(status, 400, "{wrong}");
    }
    let (_, shown) = set(none.clone()).await;
    assert_eq!(shown["holds"], none);
}

#[tokio::test]
async fn one_grant_sent_a_hundred_times_at_once_is_given_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Arc::new(Admin::start(dir.path()));
    let account = admin.account("busy").await;
    let mut sent = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (admin, grants) = (Arc::clone(&admin), format!("{account}/grants"));
        sent.spawn(async move { admin.post(&grants, json!({"amount": "1.50", "id": "x"})).await });
    }
    let answers = sent.join_all().await;
    let made = answers.iter().filter(|(status, _)| *status == 201).count();
    assert_eq!(made, 1, "one answer says that it was made");
    assert!(answers.iter().all(|(status, _)| status.is_success()), "the others say the same");
    let bodies: HashSet<String> = answers.iter().map(|(_, body)| body.to_string()).collect();
    assert_eq!(bodies.len(), 1, "all bodies are one: {bodies:?}");
    assert_eq!(admin.get(&account).await["balance"]["granted"], "1.50");
}

#[tokio::test]
async fn a_key_is_made_changed_and_shown_without_its_secret() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let account = admin.account("keys").await;
    let new = json!({
        "name": "ci", "models": [admin.model, "not-yet"], "expires_at": "2099-01-01T01:00:00+01:00",
    });
    let (status, made) = admin.post(&format!("{account}/keys"), new).await;
    assert_eq!(status, 201, "{made}");
    let secret = text(&made["key"]).to_owned();
    assert!(secret.starts_with("sk-") && secret.len() == 46, "a whole key is shown once");
    assert_eq!(made["expires_at"], "2099-01-01T00:00:00Z", "times are given in UTC");
    assert_eq!(made["warnings"].as_array().map(Vec::len), Some(1), "{}", made["warnings"]);
    assert!(text(&made["warnings"][0]).contains("not-yet"), "the unlisted model is named");

    let path = format!("/admin/v1/keys/{}", text(&made["id"]));
    let patch = json!({"models": null, "expires_at": null, "disabled": true});
    let (status, changed) = admin.send(Method::PATCH, &path, Some(patch)).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!((&changed["models"], &changed["expires_at"]), (&Value::Null, &Value::Null));
    assert_eq!((&changed["disabled"], &changed["name"]), (&json!(true), &json!("ci")));
    let (_, renamed) = admin.send(Method::PATCH, &path, Some(json!({"name": "cd"}))).await;
    assert_eq!((&renamed["disabled"], &renamed["name"]), (&json!(true), &json!("cd")));
    let (_, expired) =
        admin.send(Method::PATCH, &path, Some(json!({"expires_at": "2001-01-01T00:00:00Z"}))).await;
    assert!(text(&expired["warnings"][0]).contains("past"), "a key that has ended is pointed out");

    let shown = admin.get(&path).await;
    assert_eq!(shown["name"], "cd");
    assert!(shown.get("key").is_none() && !shown.to_string().contains(&secret[3..]));
    let list = admin.get(&format!("{account}/keys")).await;
    assert_eq!(list["data"], json!([shown]));
    admin.stop().await;
}

#[tokio::test]
async fn every_path_requires_the_token() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let account = admin.account("hidden").await;
    let paths = [
        "/admin",
        "/admin/v1",
        "/admin/v1/accounts",
        &account,
        "/admin/v1/keys/key_1",
        "/admin/v1/holds/in-doubt",
        "/admin/v2/anything",
    ];
    let bearer = format!("Bearer {TOKEN}");
    let wrong: [&[&str]; 8] = [
        &[],
        &[""],
        &["Bearer"],
        &["Bearer "],
        &["Basic YWRtaW46YWRtaW4="],
        &["Bearer admin-token-canary-5f2"],
        &["Bearer admin-token-canary-5f2c2"],
        &[&bearer, &bearer],
    ];
    let mut refused = 0;
    for path in paths {
        for values in wrong {
            for method in [Method::GET, Method::POST, Method::PATCH] {
                let mut request = admin.request(method.clone(), path);
                for value in values {
                    request = request.header("authorization", *value);
                }
                let (status, body) = answer(request).await;
                // An address that guesses is not listened to any more after so many guesses.
                let is_guess = values.iter().any(|value| value.starts_with("Bearer admin-token"));
                let message = (status.as_u16(), body["error"]["code"].as_str());
                let is_refused = message == (401, Some("unauthorized"))
                    || is_guess && message == (429, Some("too_many_requests"));
                assert!(is_refused, "{method} {path} with {values:?}: {body}");
                assert!(body["error"].as_object().is_some_and(|error| error.len() == 4));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 7 * 8 * 3);
    for path in ["/healthz", "/readyz", "/metrics"] {
        let (status, _) = answer(admin.request(Method::GET, path)).await;
        assert_ne!(status, 401, "{path} asks for no token");
    }
    admin.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let (account, _, key) = admin.customer("1.00").await;
    let (grants, keys) = (format!("{account}/grants"), format!("{account}/keys"));
    let refunds = format!("{account}/refunds");
    let key = format!("/admin/v1/keys/{}", text(&key["id"]));
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(257));
    let (post, patch) = (Method::POST, Method::PATCH);
    let cases: &[(&Method, &str, &str, Value)] = &[
        (&post, "/admin/v1/accounts", "", Value::Null),
        (&post, "/admin/v1/accounts", "{", Value::Null),
        (&post, "/admin/v1/accounts", "[]", Value::Null),
        (&post, "/admin/v1/accounts", "{}", json!("name")),
        (&post, "/admin/v1/accounts", r#"{"name":"a"}{}"#, Value::Null),
        (&post, "/admin/v1/accounts", r#"{"name":"a","name":"b"}"#, json!("name")),
        (&post, "/admin/v1/accounts", r#"{"name":7}"#, json!("name")),
        (&post, "/admin/v1/accounts", r#"{"name":""}"#, json!("name")),
        (&post, "/admin/v1/accounts", r#"{"name":"a\nb"}"#, json!("name")),
        (&post, "/admin/v1/accounts", &long, json!("name")),
        (&post, "/admin/v1/accounts", r#"{"name":"a","credit":1}"#, json!("credit")),
        (&post, &grants, r#"{"amount":"1.00"}"#, json!("id")),
        (&post, &grants, r#"{"amount":1.5,"id":"g"}"#, json!("amount")),
        (&post, &grants, r#"{"amount":1e400,"id":"g"}"#, json!("amount")),
        (&post, &grants, r#"{"amount":"0","id":"g"}"#, json!("amount")),
        (&post, &grants, r#"{"amount":-1,"id":"g"}"#, json!("amount")),
        (&post, &grants, r#"{"amount":"1.0000000001","id":"g"}"#, json!("amount")),
        (&post, &grants, r#"{"amount":"9300000000","id":"g"}"#, json!("amount")),
        (&post, &grants, r#"{"amount":"1","id":""}"#, json!("id")),
        (&post, &refunds, r#"{"amount":"1","id":"r","hold":"hold_1"}"#, json!("hold")),
        (
            &post,
            &refunds,
            r#"{"amount":"1","id":"r","hold":"hold_00000000000000ff"}"#,
            json!("hold"),
        ),
        (&post, &keys, r#"{"name":"k","models":"m"}"#, json!("models")),
        (&post, &keys, r#"{"name":"k","models":["m",7]}"#, json!("models[1]")),
        (&post, &keys, r#"{"name":"k","models":[""]}"#, json!("models")),
        (&post, &keys, r#"{"name":"k","expires_at":"tomorrow"}"#, json!("expires_at")),
        (&post, &keys, r#"{"name":"k","disabled":true}"#, json!("disabled")),
        (&patch, &key, r#"{"name":null,"key":"sk-x"}"#, json!("key")),
        (&patch, &key, r#"{"disabled":"yes"}"#, json!("disabled")),
    ];
    for (method, path, body, param) in cases {
        let request = admin.request((*method).clone(), path).bearer_auth(TOKEN);
        let (status, answer) = answer(request.body((*body).to_owned())).await;
        assert_eq!(status, 400, "{method} {path} {body}: {answer}");
        assert_eq!(answer["error"]["param"], *param, "{method} {path} {body}: {answer}");
        assert_eq!(answer["error"]["type"], "invalid_request_error", "{body}");
    }
    for query in [
        "limit=0",
        "limit=501",
        "limit=x",
        "page=2",
        "limit=1&limit=2",
        "after=acct_00000000000000ff",
    ] {
        let path = format!("/admin/v1/accounts?{query}");
        let (status, answer) = admin.send(Method::GET, &path, None).await;
        assert_eq!(status, 400, "{query}: {answer}");
    }
    let balance = &admin.get(&account).await["balance"];
    assert_eq!(balance["granted"], "1.00", "no bad request has moved money");
    admin.stop().await;
}

#[tokio::test]
async fn unknown_paths_are_404_and_wrong_methods_405() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let nobody = "/admin/v1/accounts/acct_0000000000000001";
    for path in [nobody, "/admin/v1/accounts/x", "/admin/v1/keys/key_0000000000000001", "/nothing"]
    {
        let (status, body) = admin.send(Method::GET, path, None).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (StatusCode::NOT_FOUND, &json!("not_found")),
            "{path}"
        );
    }
    for (tail, body) in
        [("grants", json!({"amount": "1", "id": "g"})), ("keys", json!({"name": "k"}))]
    {
        let (status, _) = admin.post(&format!("{nobody}/{tail}"), body).await;
        assert_eq!(status, 404, "{tail} of an account that is not there");
    }
    let (status, body) = admin.send(Method::DELETE, "/admin/v1/accounts", None).await;
    assert_eq!(status, 405, "{body}");
    assert_eq!(body["error"]["code"], "method_not_allowed");
    admin.stop().await;
}

#[tokio::test]
async fn a_body_past_the_cap_is_refused_however_it_comes() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let huge = vec![b' '; 1024 * 1024 + 1];
    let whole = admin.request(Method::POST, "/admin/v1/accounts").bearer_auth(TOKEN);
    let (status, body) = answer(whole.body(huge.clone())).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("request_too_large"))
    );
    let pieces = huge.chunks(64 * 1024).map(|piece| Ok::<_, std::io::Error>(piece.to_vec()));
    let stream = reqwest::Body::wrap_stream(tokio_stream::iter(pieces.collect::<Vec<_>>()));
    let chunked = admin.request(Method::POST, "/admin/v1/accounts").bearer_auth(TOKEN);
    let (status, _) = answer(chunked.body(stream)).await;
    assert_eq!(status, 413, "a chunked body is counted too");
    admin.stop().await;
}

#[tokio::test]
async fn lists_come_in_pages_that_neither_overlap_nor_miss() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let mut made = HashSet::new();
    for number in 0..7 {
        made.insert(admin.account(&format!("account {number}")).await);
    }
    let (mut seen, mut after, mut pages) = (HashSet::new(), String::new(), 0);
    loop {
        let page = admin.get(&format!("/admin/v1/accounts?limit=3{after}")).await;
        for account in page["data"].as_array().expect("a list") {
            let path = format!("/admin/v1/accounts/{}", text(&account["id"]));
            assert!(seen.insert(path), "{account} came twice");
        }
        pages += 1;
        if page["has_more"] == false {
            assert_eq!(page["next_after"], Value::Null);
            break;
        }
        after = format!("&after={}", text(&page["next_after"]));
    }
    assert_eq!((seen, pages), (made, 3), "seven accounts in pages of three");
    admin.stop().await;
}

#[tokio::test]
async fn entries_tell_every_movement_newest_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let (account, id, key) = admin.customer("10.00").await;
    let hold = admin.hold(id, &key, 5_000_000);
    let hold_id = hold.id().to_string();
    let posted = hold.post(charge(2_000_000));
    assert_eq!(posted.charged, Nanousd::new(2_000_000));
    let refunds = format!("{account}/refunds");
    let refund = json!({"hold": hold_id, "amount": "0.0015", "id": "r"});
    let (status, first) = admin.post(&refunds, refund.clone()).await;
    assert_eq!(status, 201, "{first}");
    assert_eq!(
        admin.post(&refunds, refund).await,
        (StatusCode::OK, first),
        "a refund is given once"
    );
    let more = json!({"hold": hold_id, "amount": "0.0006", "id": "r2"});
    let (status, refused) = admin.post(&refunds, more).await;
    assert_eq!(status, 400, "refunds stay within the charge: {refused}");
    assert_eq!(refused["error"]["param"], "amount");
    let balance = admin.get(&account).await["balance"].clone();
    assert_eq!((&balance["spent"], &balance["held"]), (&json!("0.0005"), &json!("0.00")));

    let open = admin.hold(id, &key, 1_000_000);
    let all = admin.get(&format!("{account}/entries")).await;
    let entries = all["data"].as_array().expect("a list");
    let kinds: Vec<&str> = entries.iter().map(|entry| text(&entry["kind"])).collect();
    // A hold that has ended is told by its settlement.
    assert_eq!(kinds, ["hold", "refund", "settlement", "grant"], "newest first");
    let settlement = entries.iter().find(|entry| entry["kind"] == "settlement").expect("one");
    assert_eq!(settlement["charged"], "0.002", "{settlement}");
    assert_eq!(settlement["call"]["model"], admin.model, "{settlement}");
    assert_eq!(settlement["usage"]["output_tokens"], 4, "{settlement}");
    assert_eq!(settlement["call"]["hold"], hold_id, "{settlement}");
    assert_eq!(settlement["call"]["key_id"], key["id"], "{settlement}");

    let (mut paged, mut before) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("{account}/entries?limit=2{before}")).await;
        paged.extend(page["data"].as_array().expect("a list").clone());
        if page["has_more"] == false {
            break;
        }
        before = format!("&before={}", page["next_before"]);
    }
    assert_eq!(&paged, entries, "pages add up to the whole");
    open.void(VoidReason::ClientDisconnected);
    admin.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_everything_and_lists_what_is_in_doubt() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    assert_eq!(admin.get("/admin/v1/holds/in-doubt").await["data"], json!([]));
    let (account, id, key) = admin.customer("10.00").await;
    let posted = admin.hold(id, &key, 1_000_000).post(charge(1_000_000));
    assert_eq!(posted.charged, Nanousd::new(1_000_000));
    // The call that a crash cuts: its hold is neither posted nor voided.
    std::mem::forget(admin.hold(id, &key, 3_000_000));
    let before = admin.get(&account).await;
    assert_eq!(before["balance"]["held"], "0.003");
    admin.stop().await;

    // The forgotten hold keeps its ledger, and with it the directory's lock.
    let copy = tempfile::tempdir().expect("a directory");
    copy_files(dir.path(), copy.path());
    let admin = Admin::start(copy.path());
    let after = admin.get(&account).await;
    assert_eq!(after["name"], before["name"]);
    let balance = &after["balance"];
    assert_eq!(
        (&balance["held"], &balance["spent"]),
        (&json!("0.00"), &json!("0.0013")),
        "a tenth of the hold is its floor"
    );
    let doubt = admin.get("/admin/v1/holds/in-doubt").await;
    let doubt = doubt["data"].as_array().expect("a list");
    assert_eq!(doubt.len(), 1, "{doubt:?}");
    assert_eq!(doubt[0]["account_id"], after["id"]);
    assert_eq!(
        (&doubt[0]["call"]["held"], &doubt[0]["charged"]),
        (&json!("0.003"), &json!("0.0003"))
    );
    let key_path = format!("/admin/v1/keys/{}", text(&key["id"]));
    assert_eq!(admin.get(&key_path).await["name"], "k");
    let grants = format!("{account}/grants");
    let (status, _) = admin.post(&grants, json!({"amount": "10.00", "id": "first"})).await;
    assert_eq!(status, 200, "a grant's id is remembered");
    admin.stop().await;
}

fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).expect("a directory");
            copy_files(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

#[tokio::test]
async fn accounts_are_found_by_the_beginning_of_a_name_or_an_id() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let first = admin.account("Example Ltd").await;
    admin.account("Another").await;
    admin.account("example two").await;
    let found = async |query: &str| -> Vec<String> {
        let list = admin.get(&format!("/admin/v1/accounts?{query}")).await;
        let data = list["data"].as_array().expect("a list");
        data.iter().map(|account| text(&account["name"]).to_owned()).collect()
    };
    assert_eq!(found("query=EXAMPLE").await, ["Example Ltd", "example two"]);
    assert_eq!(found("query=ample").await, [""; 0], "only its beginning");
    let id = first.rsplit('/').next().expect("an id");
    assert_eq!(found(&format!("query={id}")).await, ["Example Ltd"]);
    assert_eq!(found("query=acct_").await.len(), 3);
    assert_eq!(found("query=example&limit=1").await, ["Example Ltd"], "in pages too");
    assert_eq!(found(&format!("query=example&after={id}")).await, ["example two"]);
    admin.stop().await;
}

#[tokio::test]
async fn models_are_listed_with_exact_prices() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let list = admin.get("/admin/v1/models").await;
    let models = list["data"].as_array().expect("a list");
    let yaml: serde_yaml::Value =
        serde_yaml::from_str(include_str!("../../models.yaml")).expect("YAML");
    assert_eq!(Some(models.len()), yaml["models"].as_mapping().map(serde_yaml::Mapping::len));
    let model = models.iter().find(|model| model["id"] == json!(admin.model)).expect("the first");
    let typed = &yaml["models"][admin.model.as_str()]["prices"]["input_per_1m_tokens"];
    let typed = typed.as_f64().expect("a price");
    let shown: f64 = text(&model["prices"]["input_per_1m_tokens"]).parse().expect("dollars");
    assert!((typed - shown).abs() < 1e-9, "{typed} in the file, {shown} in the list");
    assert!(!model["targets"].as_array().expect("targets").is_empty());
    admin.stop().await;
}

#[tokio::test]
async fn readiness_follows_the_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let ready = async || answer(admin.request(Method::GET, "/readyz")).await;
    let (status, body) = ready().await;
    assert_eq!((status, &body["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("starting")));
    admin.readiness.set_ready();
    let (status, body) = ready().await;
    assert_eq!((status, &body["ready"]), (StatusCode::OK, &json!(true)), "{body}");
    admin.readiness.set_draining();
    let (status, body) = ready().await;
    assert_eq!((status, &body["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("draining")));
    let (status, _) = answer(admin.request(Method::GET, "/healthz")).await;
    assert_eq!(status, 200, "a draining process is alive");
    admin.stop().await;
}

#[tokio::test]
async fn metrics_keep_prometheus_rules_and_no_secret_gets_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let (account, id, key) = admin.customer("10.00").await;
    let secret = text(&key["key"]).to_owned();
    let posted = admin.hold(id, &key, 1_000_000).post(charge(1_000_000));
    assert_eq!(posted.charged, Nanousd::new(1_000_000));
    let key_id = text(&key["id"]).parse().expect("an id");
    let finished = finished(id, key_id, &admin.model);
    finished.report(&admin.metrics, &admin.requests, &AccessLog::default());
    FinishedRequest { status: 429, error_code: "rate", settled: None, ..finished.clone() }.report(
        &admin.metrics,
        &admin.requests,
        &AccessLog::default(),
    );
    let (status, _) = answer(admin.request(Method::GET, &format!("/{secret}"))).await;
    assert_eq!(status, 404);
    let (status, _) = admin.send(Method::GET, &format!("/admin/v1/keys/{secret}"), None).await;
    assert_eq!(status, 404, "a key pasted in the place of its id");
    let wrong = admin.request(Method::GET, &account).bearer_auth(&secret);
    assert_eq!(answer(wrong).await.0, 401, "a customer's key is no admin token");

    let (status, metrics) = answer(admin.request(Method::GET, "/metrics")).await;
    assert_eq!(status, 200);
    let metrics = text(&metrics).to_owned();
    let samples = check_exposition(&metrics);
    assert!(samples > 60, "{samples} samples were checked");
    for pool in ["customers", "unauthenticated"] {
        let places = format!("tollgate_places_taken{{pool=\"{pool}\"}} 0");
        assert!(metrics.contains(&places), "{places} is missing");
    }
    for id in [&id.to_string(), text(&key["id"]), "req_"] {
        assert!(!metrics.contains(id), "{id} is a label");
    }
    logging::flush();
    let log = String::from_utf8(log_lines().lock().clone()).expect("UTF-8");
    assert!(log.contains("req_") && log.contains(&account), "both kinds of line are there");
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "one JSON object a line: {line}");
    }
    for secret in [secret.as_str(), TOKEN] {
        assert!(!log.contains(secret), "a secret is in the log");
        assert!(!metrics.contains(secret), "a secret is in the metrics");
    }
    admin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_reference_work_when_pasted() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let reference = include_str!("../../docs/admin-api.md");
    let blocks = reference.split("```sh\n").skip(1);
    let commands: Vec<&str> = blocks.filter_map(|block| Some(block.split_once("```")?.0)).collect();
    assert_eq!(commands.len(), 4, "commands in the reference");
    let output = std::process::Command::new("bash")
        .args(["-euo", "pipefail", "-c", &commands.concat()])
        .env("ADMIN", &admin.base)
        .env("TOKEN", TOKEN)
        .output()
        .expect("bash runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["invoice-4711", r#""key":"sk-"#, r#""available": "10.00""#] {
        assert!(printed.contains(expected), "{expected} is missing: {printed}");
    }
    admin.stop().await;
}

/// A node of a fleet with nothing to tell.
fn standing() -> NodeStatus {
    NodeStatus {
        node: NodeId::from_number(1).expect("a node"),
        name: "gw-1".to_owned(),
        epoch: 1,
        term: Duration::from_secs(10),
        term_left: Duration::ZERO,
        unreported: 0,
        report_lag: Duration::ZERO,
        followed: 0,
        head: 0,
        stopped: None,
    }
}

#[tokio::test]
async fn the_reference_lists_every_metric() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let (_, id, _) = admin.customer("10.00").await;
    admin.metrics.upstream_answered("upstream", "ok", Duration::from_secs(1));
    admin.metrics.retried(&admin.model, "upstream");
    finished(id, KeyId::from_number(1), &admin.model).report(
        &admin.metrics,
        &admin.requests,
        &AccessLog::default(),
    );
    TaskEnded {
        task_id: TaskId::random(),
        account_id: id,
        key_id: KeyId::from_number(1),
        model: &admin.model,
        upstream: "upstream",
        state: "failed",
        duration: Duration::from_secs(1),
        settled: None,
        held: tollgate::money::Nanousd::ZERO,
    }
    .report(&admin.metrics, &admin.requests);
    admin.metrics.webhook_tried(WebhookOutcome::Taken);
    admin.metrics.rate_limited(&admin.model, Limit::Requests, Scope::Key);
    admin.metrics.usage_above_limits(&admin.model);
    admin.metrics.usage_contradicts("upstream", Contradiction::TwoValues);
    admin.metrics.costed(&admin.model, "upstream", Nanousd::new(2), Nanousd::new(1));
    admin.metrics.certificate_shown("0.0.0.0:8443", UnixMs::now());
    let (_, single) = answer(admin.request(Method::GET, "/metrics")).await;
    assert!(!text(&single).contains("tollgate_fleet_"), "this gateway is in no fleet");
    let record_round_trip = admin.metrics.in_fleet();
    record_round_trip(RoundTrip {
        operation: DbOperation::Sync,
        outcome: RoundTripOutcome::Done,
        took: Duration::ZERO,
    });
    admin.metrics.show_fleet(&standing(), Some(&FleetOverview::default()));
    let (_, shown) = answer(admin.request(Method::GET, "/metrics")).await;
    // A scrape shows the credentials of the configuration, and none of these is issued.
    admin.metrics.credential_refreshed("upstream", RefreshOutcome::Ok);
    let upstream = "upstream".to_owned();
    let figures = CredentialFigures { upstream, credential: String::new(), left_seconds: 60 };
    admin.metrics.show_credentials(&[figures]);
    // And no upstream of it has said what is left of a quota.
    let circuit = CircuitFigures {
        model: admin.model.clone(),
        upstream: "upstream".to_owned(),
        target: "target".to_owned(),
        credential: String::new(),
        state: 0,
        quotas: vec![("requests", 1)],
    };
    admin.metrics.show_targets(&[], &[circuit]);
    let of_upstreams = admin.metrics.encode(&LedgerFigures::default(), LogFigures::default());
    let shown: BTreeSet<&str> = text(&shown)
        .lines()
        .chain(of_upstreams.lines().filter(|line| {
            line.contains(" tollgate_credential_") || line.contains(" tollgate_upstream_quota_")
        }))
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let listed: BTreeSet<&str> = include_str!("../../docs/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .filter(|(name, _)| name.starts_with("tollgate_") || name.starts_with("process_"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(listed, shown, "docs/metrics.md and /metrics");
    admin.stop().await;
}

/// Checks the exposition as `promtool check metrics` does, and that each series occurs once. Returns the
/// number of samples.
fn check_exposition(text: &str) -> usize {
    let (mut help, mut types) = (HashMap::new(), HashMap::new());
    let mut series = HashSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').expect("a name and its help");
            assert!(!words.trim().is_empty(), "{name} has no help");
            assert!(help.insert(name, words).is_none(), "{name} has two helps");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and its type");
            assert!(types.insert(name, kind).is_none(), "{name} has two types");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a series and its value");
            value.parse::<f64>().unwrap_or_else(|_| panic!("{line:?} has no number"));
            assert!(series.insert(sample), "{sample} is given twice");
            let name = sample.split('{').next().unwrap_or(sample);
            check_name(name, &types, &help);
        }
    }
    for name in types.keys() {
        assert!(help.contains_key(name), "{name} has no help");
    }
    series.len()
}

fn check_name(name: &str, types: &HashMap<&str, &str>, help: &HashMap<&str, &str>) {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.chars().all(legal), "{name} has an odd character");
    assert!(name.starts_with("tollgate_") || name.starts_with("process_"), "{name} has no prefix");
    let parts = ["_bucket", "_sum", "_count"];
    let family = parts.iter().find_map(|part| name.strip_suffix(part));
    let family = family.filter(|family| types.get(family) == Some(&"histogram")).unwrap_or(name);
    let kind = types.get(family).unwrap_or_else(|| panic!("{name} has no type before it"));
    assert!(help.contains_key(family), "{name} has no help before it");
    assert_eq!(family.ends_with("_total"), *kind == "counter", "{family} is a {kind}");
    for unit in ["_ms", "_milliseconds", "_minutes", "_kb", "_kilobytes", "_percent", "_cents"] {
        assert!(!family.contains(unit), "{family} has no base unit");
    }
}

/// Tokens are long, so this is for those that are not: who guesses is not listened to for a minute, and
/// who has the right one and comes from the same address is.
#[tokio::test(flavor = "multi_thread")]
async fn guesses_at_the_token_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let admin = Admin::start(dir.path());
    let ask = async |token: &str| {
        let request = admin.client.get(format!("{}/admin/v1/accounts", admin.base));
        let answer = request.bearer_auth(token).send().await.expect("an answer");
        answer.status().as_u16()
    };
    assert_eq!(ask(TOKEN).await, 200);
    let mut statuses = Vec::new();
    for number in 0..60 {
        statuses.push(ask(&format!("guess-{number}")).await);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 20, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    assert_eq!(ask(ADAS_TOKEN).await, 429, "one that was not seen before is not looked at either");
    assert_eq!(ask(TOKEN).await, 200, "one that was right is");
    admin.stop().await;
}
