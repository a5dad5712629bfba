//! Logins, codes, suspended accounts, doubts, tasks and the audit over HTTP, and writes that are made
//! once.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    Actor, DeliveryAttempt, Intent, KeyId, Ledger, Options, REPEATED_WITHIN, RequestId, Reserve,
    SignUp, Task, TaskId, TaskPhase, Webhook,
};
use tollgate::money::Nanousd;
use tollgate::password::Passwords;
use tollgate::price::Prices;
use tollgate::secret::Secret;

use super::{ADAS_TOKEN, Admin, TOKEN, answer, log_lines, text};
use crate::harness::Demo;

impl Admin {
    /// Sends a write under a name of the caller's, as this operator.
    async fn named(
        &self,
        token: &str,
        (method, path): (Method, &str),
        key: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let request = self.request(method, path).bearer_auth(token).json(&body);
        answer(request.header("Idempotency-Key", key)).await
    }
}

#[tokio::test]
async fn a_suspended_account_is_refused_at_the_door() {
    let demo = Demo::start();
    let (admin, http) = (crate::harness::Admin::of(&demo), crate::harness::http());
    let customer = admin.customer("1.00").await;
    let status = async || {
        let url = format!("{}/v1/balance", demo.base_url);
        let response = http.get(url).bearer_auth(&customer.key).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a body"))
    };
    let suspend = async |suspended: bool| {
        let url = format!("{}/admin/v1/accounts/{}", demo.admin_url, customer.account);
        let patch = http.patch(url).bearer_auth(&demo.admin_token);
        let patched = patch.json(&json!({"suspended": suspended})).send().await.expect("an answer");
        let account: Value = patched.json().await.expect("JSON");
        assert_eq!(account["suspended"], suspended, "{account}");
    };
    assert_eq!(status().await.0, 200);
    suspend(true).await;
    let (code, body) = status().await;
    assert_eq!(code, 403, "{body}");
    assert!(body.contains("The account is suspended.") && body.contains("permission_denied"));
    suspend(false).await;
    assert_eq!(status().await.0, 200);
}

#[tokio::test]
async fn operators_actions_are_listed_by_name() {
    let dir = TempDir::new().expect("a directory");
    let admin = Admin::start(dir.path());
    let account = admin.account("customer").await;
    let as_ada = async |path: &str, body: Value| {
        answer(admin.request(Method::POST, path).bearer_auth(ADAS_TOKEN).json(&body)).await
    };
    let (status, grant) =
        as_ada(&format!("{account}/grants"), json!({"amount": 1, "id": "g"})).await;
    assert_eq!(status, 201, "{grant}");
    let id = account.rsplit('/').next().expect("an id");
    let acts = admin.get(&format!("/admin/v1/audit?account={id}&limit=1")).await;
    let act = &acts["data"][0];
    assert_eq!(
        (&act["what"], &act["by"], &act["subject"], &act["account_id"]),
        (&json!("grant"), &json!({"kind": "operator", "name": "ada"}), &json!("g"), &json!(id))
    );
    let older = format!("/admin/v1/audit?account={id}&before={}", acts["next_before"]);
    let older = admin.get(&older).await;
    assert_eq!(older["data"][0]["what"], "account.create");
    assert_eq!(older["data"][0]["by"]["name"], "admin");
    assert_eq!((&older["has_more"], &older["next_before"]), (&json!(false), &Value::Null));
    let (status, refused) =
        answer(admin.request(Method::GET, "/admin/v1/audit").bearer_auth("adas-token")).await;
    assert_eq!(status, 401, "{refused}");
    admin.stop().await;
}

#[tokio::test]
async fn a_write_with_a_key_is_made_once() {
    let dir = TempDir::new().expect("a directory");
    let admin = Admin::start(dir.path());
    let accounts = (Method::POST, "/admin/v1/accounts");
    let body = json!({"name": "a"});
    let (status, first) = admin.named(TOKEN, accounts.clone(), "k1", body.clone()).await;
    let (again, same) = admin.named(TOKEN, accounts.clone(), "k1", body.clone()).await;
    assert_eq!((status.as_u16(), again.as_u16()), (201, 200));
    assert_eq!(first, same);
    let (status, other) = admin.named(TOKEN, accounts.clone(), "k1", json!({"name": "b"})).await;
    assert_eq!(status, 409, "{other}");
    assert_eq!(other["error"]["param"], "Idempotency-Key");
    let (status, anothers) = admin.named(ADAS_TOKEN, accounts, "k1", body).await;
    assert_eq!(status, 201, "another operator's key: {anothers}");
    let account = format!("/admin/v1/accounts/{}", text(&first["id"]));

    let keys = format!("{account}/keys");
    let keys = (Method::POST, keys.as_str());
    let (_, made) = admin.named(TOKEN, keys.clone(), "k2", json!({"name": "x"})).await;
    let (status, again) = admin.named(TOKEN, keys.clone(), "k2", json!({"name": "x"})).await;
    assert_eq!((status.as_u16(), &again["id"]), (200, &made["id"]));
    assert!(made["key"].is_string() && again.get("key").is_none(), "the key is shown once");
    let path = format!("/admin/v1/keys/{}", text(&made["id"]));
    let off = json!({"disabled": true});
    admin.named(TOKEN, (Method::PATCH, &path), "k3", off.clone()).await;
    admin.send(Method::PATCH, &path, Some(json!({"disabled": false}))).await;
    let (status, late) = admin.named(TOKEN, (Method::PATCH, &path), "k3", off).await;
    assert_eq!((status.as_u16(), &late["disabled"]), (200, &json!(false)), "as it is");

    let codes = (Method::POST, "/admin/v1/codes");
    let new = json!({"kind": "credit", "amount": "5.00"});
    let (status, code) = admin.named(TOKEN, codes.clone(), "k4", new.clone()).await;
    assert_eq!(status, 201, "{code}");
    let (status, again) = admin.named(TOKEN, codes, "k4", new).await;
    assert_eq!((status.as_u16(), &again["id"], again.get("code")), (200, &code["id"], None));
    for wrong in ["", "with space", &"x".repeat(257)] {
        let keys = (Method::POST, "/admin/v1/accounts");
        let (status, refused) = admin.named(TOKEN, keys, wrong, json!({"name": "a"})).await;
        assert_eq!((status.as_u16(), &refused["error"]["param"]), (400, &json!("Idempotency-Key")));
    }
    assert_eq!(admin.get("/admin/v1/accounts").await["data"].as_array().map(Vec::len), Some(2));
    admin.stop().await;
}

#[tokio::test]
async fn a_login_is_set_and_its_password_is_nowhere() {
    let dir = TempDir::new().expect("a directory");
    let admin = Admin::start(dir.path());
    let (one, two) = (admin.account("a").await, admin.account("b").await);
    let put = async |account: &str, key: &str, email: &str, password: &str| {
        let path = format!("{account}/login");
        let body = json!({"email": email, "password": password});
        admin.named(TOKEN, (Method::PUT, &path), key, body).await
    };
    let (status, login) = put(&one, "k1", " Ada@Example.com", "password-canary-1").await;
    assert_eq!((status.as_u16(), &login["email"]), (200, &json!("ada@example.com")), "{login}");
    assert_eq!(admin.get(&one).await["email"], "ada@example.com");
    let (status, _) = put(&one, "k1", "ada@example.com", "password-canary-1").await;
    assert_eq!(status, 200, "the same again");
    let (status, _) = put(&one, "k1", "ada@example.com", "password-canary-2").await;
    assert_eq!(status, 409, "another password under the same key");
    let (status, taken) = put(&two, "k2", "ADA@example.com", "password-canary-1").await;
    assert_eq!(status, 409, "{taken}");
    assert_eq!(
        (&taken["error"]["code"], &taken["error"]["param"]),
        (&json!("conflict"), &json!("email"))
    );
    for (email, password, param) in
        [("ada", "password-canary-1", "email"), ("b@c", "short", "password")]
    {
        let (status, refused) = put(&two, "k3", email, password).await;
        assert_eq!((status.as_u16(), &refused["error"]["param"]), (400, &json!(param)));
    }
    let login = admin.ledger.login_by_email("ada@example.com").expect("a login");
    let right = Secret::new("password-canary-1".to_owned());
    let is_right = Passwords::default().is_right(right, Some(&login.password)).await;
    assert_eq!(is_right, Ok(true));
    admin.stop().await;
    let log = String::from_utf8_lossy(&log_lines().lock()).into_owned();
    assert!(!log.contains("password-canary"), "the log has a password");
    for entry in std::fs::read_dir(dir.path().join("journal")).expect("a directory") {
        let bytes = std::fs::read(entry.expect("readable").path()).expect("readable");
        let found = bytes.windows(15).any(|window| window == b"password-canary");
        assert!(!found, "the journal has a password");
    }
}

#[tokio::test]
async fn codes_are_made_listed_and_revoked() {
    let dir = TempDir::new().expect("a directory");
    let admin = Admin::start(dir.path());
    let new = json!({"kind": "invite", "amount": "2.50", "uses_max": 3, "note": "fair",
        "expires_at": "2100-01-01T00:00:00Z"});
    let (status, made) = admin.post("/admin/v1/codes", new).await;
    assert_eq!(status, 201, "{made}");
    let invite = Some(text(&made["code"]).to_owned());
    let sign_up = SignUp {
        name: "n".to_owned(),
        email: "n@example.com".to_owned(),
        password: "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g".to_owned(),
        invite,
        trial: None,
    };
    admin.ledger.by(&Actor::Customer).sign_up(&sign_up).await.expect("signed up");
    let path = format!("/admin/v1/codes/{}", text(&made["id"]));
    let shown = admin.get(&path).await;
    assert_eq!(
        (&shown["used"], &shown["amount"], &shown["note"]),
        (&json!(1), &json!("2.50"), &json!("fair"))
    );
    assert!(shown.get("code").is_none() && shown.get("hash").is_none(), "{shown}");
    let (status, revoked) = admin.post(&format!("{path}/revoke"), json!({})).await;
    assert_eq!(status, 200, "{revoked}");
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    assert_eq!(admin.get("/admin/v1/codes").await["data"], json!([revoked]));
    for (wrong, param) in [
        (json!({"kind": "credit"}), "amount"),
        (json!({"kind": "credit", "amount": 1, "uses_max": 0}), "uses_max"),
        (json!({"kind": "credit", "amount": 1, "note": "x".repeat(257)}), "note"),
    ] {
        let (status, refused) = admin.post("/admin/v1/codes", wrong).await;
        assert_eq!((status.as_u16(), &refused["error"]["param"]), (400, &json!(param)));
    }
    let nothing = "/admin/v1/codes/code_0000000000000000";
    assert_eq!(admin.send(Method::GET, nothing, None).await.0, 404);
    assert_eq!(admin.post(&format!("{nothing}/revoke"), json!({})).await.0, 404);
    admin.stop().await;
}

#[tokio::test]
async fn a_call_in_doubt_is_resolved_with_its_refund() {
    let dir = TempDir::new().expect("a directory");
    let account = {
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        let account = ledger.create_account("a").await.expect("an account").id;
        ledger.grant(account, "g", Nanousd::new(5_000_000_000)).await.expect("given");
        let reserve = Reserve {
            account,
            key: KeyId::random(),
            model: "m".into(),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(2_000_000_000),
            floor: Nanousd::new(1_000_000_000),
        };
        let hold = ledger.reserve(reserve).expect("held");
        ledger.close();
        // A closed ledger cannot end it, as a dead process cannot.
        hold.void(tollgate::ledger::VoidReason::Unreached);
        account
    };
    let admin = Admin::start(dir.path());
    let doubts = admin.get("/admin/v1/holds/in-doubt").await;
    let hold = text(&doubts["data"][0]["call"]["hold"]).to_owned();
    let path = format!("/admin/v1/holds/{hold}/resolve");
    let too_much = json!({"note": "n", "refund": {"id": "r", "amount": "1.01"}});
    let (status, refused) = admin.post(&path, too_much).await;
    assert_eq!((status.as_u16(), &refused["error"]["param"]), (400, &json!("amount")));
    let body = json!({"note": "asked the upstream", "refund": {"id": "r", "amount": "1.00"}});
    let resolve = (Method::POST, path.as_str());
    let (status, done) = admin.named(TOKEN, resolve.clone(), "k", body.clone()).await;
    assert_eq!(status, 200, "{done}");
    let (status, again) = admin.named(TOKEN, resolve, "k", body.clone()).await;
    assert_eq!((status.as_u16(), &again), (200, &done), "repeated");
    assert_eq!(admin.post(&path, body).await.0, 404, "it is not in doubt any more");
    assert_eq!(admin.get("/admin/v1/holds/in-doubt").await["data"], json!([]));
    let balance = admin.ledger.account(account).expect("kept").balance;
    assert_eq!((balance.available.get(), balance.spent.get()), (5_000_000_000, 0));
    admin.stop().await;
}

/// A task in doubt with a receiver for its end, opened in the ledger.
async fn task_in_doubt(admin: &Admin, account: tollgate::ledger::AccountId, key: &Value) -> TaskId {
    let hold = admin.hold(account, key, 100);
    let intent = Intent {
        id: TaskId::random(),
        account,
        key: text(&key["id"]).parse().expect("a key id"),
        hold: hold.id(),
        model: "video".into(),
        protocol: "xai".to_owned(),
        prices: Prices::default(),
        facts: Vec::new(),
        webhook_url: Some("http://127.0.0.1:9/hook".to_owned()),
        repeat: None,
        at: UnixMs::now(),
        expires_at: UnixMs(u64::MAX),
    };
    let task = Task {
        intent: Arc::new(intent),
        upstream: "xai".to_owned(),
        upstream_model: "grok".to_owned(),
        stage: TaskPhase::Submitting,
        webhook: Webhook::Due { tries: 0, at: UnixMs::now() },
    };
    let id = task.id();
    admin.ledger.open_task(hold, Arc::new(task), REPEATED_WITHIN).await.expect("opened");
    let doubt = |task: &Task| Task { stage: TaskPhase::InDoubt, ..task.clone() };
    admin.ledger.change_task((account, id), doubt).await.expect("open").expect("changed");
    crate::harness::next_millisecond().await;
    id
}

#[tokio::test]
async fn a_task_in_doubt_is_ended_by_hand_and_tasks_are_listed() {
    let dir = TempDir::new().expect("a directory");
    let admin = Admin::start(dir.path());
    let (_, id, key) = admin.customer("1.00").await;
    let (_, other, others_key) = admin.customer("1.00").await;
    let charged = task_in_doubt(&admin, id, &key).await;
    let voided = task_in_doubt(&admin, id, &key).await;
    let left = task_in_doubt(&admin, other, &others_key).await;
    let resolve = async |task: TaskId, body: Value| {
        admin.post(&format!("/admin/v1/tasks/{task}/resolve"), body).await
    };
    for wrong in [
        json!({"action": "charge"}),
        json!({"action": "void", "amount": 1}),
        json!({"action": "charge", "amount": "0.000000101"}),
    ] {
        let (status, refused) = resolve(charged, wrong).await;
        assert_eq!((status.as_u16(), &refused["error"]["param"]), (400, &json!("amount")));
    }
    let (status, ended) =
        resolve(charged, json!({"action": "charge", "amount": "0.00000004"})).await;
    assert_eq!(status, 200, "{ended}");
    assert_eq!((&ended["state"], &ended["charged"]), (&json!("failed"), &json!("0.00000004")));
    let (status, ended) = resolve(voided, json!({"action": "void"})).await;
    assert_eq!((status.as_u16(), &ended["charged"]), (200, &json!("0.00")), "{ended}");
    assert_eq!(resolve(voided, json!({"action": "void"})).await.0, 404, "no doubt any more");
    let balance = admin.ledger.account(id).expect("kept").balance;
    assert_eq!((balance.held.get(), balance.spent.get()), (0, 40));

    let ids = |list: &Value| -> Vec<String> {
        let data = list["data"].as_array().expect("a list");
        data.iter().map(|task| text(&task["id"]).to_owned()).collect()
    };
    let all = admin.get("/admin/v1/tasks").await;
    assert_eq!(ids(&all), [left, voided, charged].map(|id| id.to_string()), "newest first");
    assert_eq!(ids(&admin.get(&format!("/admin/v1/tasks?account={other}")).await).len(), 1);
    let doubts = admin.get("/admin/v1/tasks?state=in_doubt").await;
    assert_eq!(ids(&doubts), [left.to_string()]);
    let page = admin.get("/admin/v1/tasks?limit=2").await;
    assert_eq!((ids(&page).len(), &page["next_after"]), (2, &json!(voided.to_string())));
    let rest = admin.get(&format!("/admin/v1/tasks?limit=2&after={voided}")).await;
    assert_eq!((ids(&rest), &rest["has_more"]), (vec![charged.to_string()], &json!(false)));

    // Its end is announced to nobody who listens.
    let tried = DeliveryAttempt::now(Err("nobody listens".to_owned()));
    let due = |task: &Task| Task { webhook: Webhook::GivenUp, ..task.clone() };
    admin.ledger.announced((id, voided), tried, due).await.expect("open");
    let path = format!("/admin/v1/accounts/{id}/tasks/{voided}");
    let shown = admin.get(&path).await;
    assert_eq!(shown["webhook"]["url"], "http://127.0.0.1:9/hook");
    assert!(shown["webhook"]["last_try"]["at"].is_string(), "{shown}");
    assert!(shown["webhook"]["last_try"]["error"].is_string(), "{shown}");
    assert!(shown["record"].is_object(), "{shown}");
    let strangers = format!("/admin/v1/accounts/{other}/tasks/{voided}");
    assert_eq!(admin.send(Method::GET, &strangers, None).await.0, 404);
    admin.stop().await;
}
