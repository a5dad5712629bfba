//! The customers' console over HTTP, without JavaScript: the whole way of a customer, and whoever means
//! them harm.

mod attempts;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::harness::{
    Gateway, Shown, TIMEOUT, Visitor, ask, eventually, http_builder, poll_async, simulator,
    within_async,
};
use serde_json::{Value, json};
use tollgate::ledger::{AccountPatch, Actor, CodeKind, Ledger, NewCode, Options};
use tollgate::money::Nanousd;
use tollgate::sim::Sim;

const PASSWORD: &str = "four words in here";
/// Largest size of a page as transferred, in bytes.
const PAGE_BYTES_MAX: usize = 100 * 1024;
/// Every form that changes something, for somebody who is logged in; `{key}` is a key's id.
const FORMS: [&str; 12] = [
    "/start",
    "/keys",
    "/keys/{key}",
    "/keys/{key}/off",
    "/keys/{key}/on",
    "/keys/{key}/revoke",
    "/playground/key",
    "/account/name",
    "/account/email",
    "/account/password",
    "/account/redeem",
    "/logout",
];

/// A gateway with a console, and the simulated upstream that it calls.
struct Server {
    gateway: Gateway,
    _sim: Sim,
}

impl Server {
    /// With these settings of the console.
    fn with(settings: &str) -> Self {
        Self::of(&format!("console: {{ {settings} }}\n"))
    }

    /// With these lines in `routes.yaml`.
    fn of(lines: &str) -> Self {
        let sim = simulator(&[]);
        let gateway = Gateway::start_with(sim.addr(), lines);
        Self { gateway, _sim: sim }
    }

    /// Where everybody may sign up, and has $5.
    fn open() -> Self {
        Self::with("sign_up: open, trial_credit: 5")
    }

    fn console(&self) -> String {
        format!("http://{}/console", self.gateway.address)
    }

    fn visitor(&self) -> Visitor {
        Visitor::new(self.console())
    }

    /// Somebody new who has signed up.
    async fn customer(&self, email: &str) -> Visitor {
        let visitor = self.visitor();
        let answer = sign_up(&visitor, email, "").await;
        assert_eq!((answer.status, answer.location()), (303, "/console"), "{answer:?}");
        // The token of the new session is on the page.
        assert_eq!(visitor.get("").await.status, 200);
        visitor
    }

    /// Status of a call with this key.
    fn call(&self, key: &str) -> u16 {
        let body =
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        ask(self.gateway.address, head.as_bytes()).status()
    }

    /// Does something to the ledger while no gateway runs.
    async fn meanwhile<T>(&mut self, work: impl AsyncFnOnce(&Ledger) -> T) -> T {
        self.gateway.kill();
        let (ledger, _) = Ledger::open(Options::new(self.gateway.path("data"))).expect("opens");
        let done = work(&ledger).await;
        ledger.close();
        drop(ledger);
        self.gateway.kill_and_restart();
        done
    }
}

async fn sign_up(visitor: &Visitor, email: &str, code: &str) -> Shown {
    assert_eq!(visitor.get("/signup").await.status, 200);
    let fields = [("name", "Ann"), ("email", email), ("password", PASSWORD), ("code", code)];
    visitor.post("/signup", &fields).await
}

async fn log_in(visitor: &Visitor, email: &str, password: &str) -> Shown {
    assert_eq!(visitor.get("/login").await.status, 200);
    visitor.post("/login", &[("email", email), ("password", password)]).await
}

/// Makes a key: its id and itself.
async fn make_key(visitor: &Visitor, fields: &[(&str, &str)]) -> (String, String) {
    let before: BTreeSet<String> = ids(&visitor.get("/keys").await);
    let once = visitor.get("/keys/new").await.between("name=\"once\" value=\"", "\"");
    let fields: Vec<_> =
        [("once", once.as_str())].into_iter().chain(fields.iter().copied()).collect();
    let made = visitor.post("/keys", &fields).await;
    assert_eq!(made.status, 200, "{made:?}");
    let key = made.between("<pre id=\"key\" tabindex=\"0\"><code>", "</code>");
    let after = ids(&visitor.get("/keys").await);
    let id = after.difference(&before).next().expect("another key").clone();
    (id, key)
}

/// The ids of keys on a page.
fn ids(shown: &Shown) -> BTreeSet<String> {
    let words = shown.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("key_") && word.len() == 20).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_signs_up_calls_and_revokes() {
    let server = Server::open();
    let visitor = server.customer("ann@example.com").await;
    let start = visitor.get("").await;
    assert!(start.text.contains("$5.00") && start.text.contains("Make my first key"), "{start:?}");
    let once = start.between("name=\"once\" value=\"", "\"");
    let made = visitor.post("/start", &[("once", &once)]).await;
    let key = made.between("<pre id=\"key\" tabindex=\"0\"><code>", "</code>");
    assert!(key.starts_with("sk-") && key.len() == 46, "{key}");
    let curl = made.between("<pre id=\"curl\" tabindex=\"0\"><code>", "</code>");
    let url = format!("http://{}/v1/chat/completions", server.gateway.address);
    assert!(curl.contains(&url) && curl.contains("\"model\": \"m\""), "{curl}");
    let claude = made.between("<pre id=\"claude-code\" tabindex=\"0\"><code>", "</code>");
    assert!(claude.contains("claude --model claude"), "{claude}");
    // What is pasted works.
    let ran = std::process::Command::new("bash").args(["-c", &curl]).output().expect("bash runs");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && printed.contains("data: [DONE]"), "{printed}");
    // Sent twice, the form makes one key, which is not shown again.
    let again = visitor.post("/start", &[("once", &once)]).await;
    assert_eq!(again.status, 409, "{again:?}");
    let list = visitor.get("/keys").await;
    assert_eq!(ids(&list).len(), 1, "{list:?}");
    assert!(!list.text.contains(&key) && !again.text.contains(&key), "a key is shown twice");
    let id = ids(&list).pop_first().expect("a key");
    assert!(visitor.get("").await.text.contains("YOUR_KEY"), "commands without the key");

    assert_eq!(server.call(&key), 200);
    let at = format!("/keys/{id}");
    let off = visitor.post(&format!("{at}/off"), &[]).await;
    assert_eq!(off.location(), format!("/console{at}?done=off"), "{off:?}");
    assert!(visitor.get(&format!("{at}?done=off")).await.text.contains("The key is switched off."));
    assert_eq!(server.call(&key), 403);
    visitor.post(&format!("{at}/on"), &[]).await;
    assert_eq!(server.call(&key), 200);
    visitor.post(&format!("{at}/revoke"), &[]).await;
    assert_eq!(server.call(&key), 401);
    // For good: neither switching on nor another end brings it back.
    visitor.post(&format!("{at}/on"), &[]).await;
    visitor.post(&at, &[("name", "again"), ("ends", "2099-01-01")]).await;
    assert_eq!(server.call(&key), 401);
    assert!(visitor.get(&at).await.text.contains("cannot be changed any more"));
    // Three calls were billed.
    eventually("billing", || {
        let accounts = server.gateway.admin("GET", "/admin/v1/accounts", &Value::Null);
        let accounts = accounts["data"].as_array().expect("accounts").clone();
        let own = accounts.iter().find(|account| account["name"] == "Ann").expect("the account");
        own["balance"]["held"] == "0.00" && own["balance"]["available"] != "5.00"
    });
    let spent = visitor.get("").await;
    assert!(spent.text.contains("$4.99"), "{spent:?}");
    // When a key was used last is told as of a few seconds ago.
    let is_shown = async || visitor.get("/keys").await.text.contains("just now");
    within_async(Duration::from_secs(10), "the key's last use is shown", is_shown).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_what_the_form_says() {
    let server = Server::open();
    let visitor = server.customer("ann@example.com").await;
    let fields = [
        ("name", "narrow"),
        ("models", "some"),
        ("model", "claude"),
        ("others", "claude-x-1 elsewhere"),
        ("ends", "2099-12-31"),
        ("requests", "60"),
        ("tokens", "1000"),
        ("at_once", "2"),
        ("per_day", "2.50"),
        ("per_month", "10"),
    ];
    let (id, key) = make_key(&visitor, &fields).await;
    assert_eq!(server.call(&key), 403, "the key may not call this model");
    let shown = server.gateway.admin("GET", &format!("/admin/v1/keys/{id}"), &Value::Null);
    assert_eq!(shown["models"], json!(["claude", "claude-x-1", "elsewhere"]), "{shown}");
    assert_eq!(shown["expires_at"], "2100-01-01T00:00:00Z");
    assert_eq!(
        shown["limits"],
        json!({"requests_per_minute": 60, "tokens_per_minute": 1000, "concurrent_requests": 2,
            "spend_per_day": "2.50", "spend_per_month": "10.00"})
    );
    let page = visitor.get(&format!("/keys/{id}")).await;
    for value in ["value=\"2.50\"", "value=\"2099-12-31\"", "value=\"claude-x-1 elsewhere\""] {
        assert!(page.text.contains(value), "{value}: {page:?}");
    }
    // Emptied fields are limits that are taken away.
    visitor.post(&format!("/keys/{id}"), &[("name", "wide"), ("models", "all")]).await;
    let shown = server.gateway.admin("GET", &format!("/admin/v1/keys/{id}"), &Value::Null);
    assert_eq!((&shown["name"], &shown["models"]), (&json!("wide"), &Value::Null), "{shown}");
    assert!(shown["limits"].as_object().expect("limits").values().all(Value::is_null), "{shown}");
    assert_eq!(server.call(&key), 200);
}

/// A list goes on where it ended, by the last key on the page.
#[tokio::test(flavor = "multi_thread")]
async fn many_keys_come_in_pages() {
    let mut server = Server::open();
    let mut visitor = server.customer("ann@example.com").await;
    server
        .meanwhile(async |ledger| {
            let login = ledger.login_by_email("ann@example.com").expect("a login");
            for number in 0..60 {
                let new = tollgate::ledger::NewKey {
                    name: format!("number {number}"),
                    ..Default::default()
                };
                ledger.create_key(login.account, new).await.expect("a key");
            }
        })
        .await;
    visitor.moved(server.console());
    let first = visitor.get("/keys").await;
    assert_eq!(ids(&first).len(), 50, "{first:?}");
    let older = first.between("<p class=\"older\"><a href=\"/console", "\"");
    let second = visitor.get(&older).await;
    assert_eq!(ids(&second).len(), 10, "{second:?}");
    assert!(ids(&first).is_disjoint(&ids(&second)) && !second.text.contains("Older"));
    let elsewhere = visitor.get("/keys?before=key_0000000000000000").await;
    assert_eq!(elsewhere.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_consoles_own_pages_send_forms() {
    let server = Server::open();
    let visitor = server.customer("ann@example.com").await;
    let (id, key) = make_key(&visitor, &[("name", "a key")]).await;
    let stranger = server.customer("eve@example.com").await;
    let origin = [("origin", "http://evil.example")];
    let site = [("sec-fetch-site", "cross-site")];
    let before = visitor.get(&format!("/keys/{id}")).await.text;
    let (own, foreign) = (visitor.token(), stranger.token());
    for form in FORMS {
        let path = form.replace("{key}", &id);
        let fields = [("name", "stolen"), ("password", PASSWORD), ("new", "other words in here")];
        for (what, token, headers) in [
            ("no token", "", &[][..]),
            ("a wrong token", "AAAA", &[]),
            ("another session's token", &foreign, &[]),
            ("another site's form", &own, &origin),
            ("another site's script", &own, &site),
        ] {
            let answer = visitor.post_as(&path, token, headers, &fields).await;
            assert_eq!(answer.status, 403, "{path} with {what}: {answer:?}");
            assert!(answer.headers.get("set-cookie").is_none(), "{path} with {what}");
        }
        // Nor may it be asked for.
        let request = visitor.get(&path).await;
        assert!(matches!(request.status, 200 | 405), "GET {path}: {}", request.status);
    }
    assert_eq!(visitor.get(&format!("/keys/{id}")).await.text, before, "something was changed");
    assert_eq!(server.call(&key), 200);
    // A guest's form is bound to the guest's session as well.
    let guest = server.visitor();
    guest.get("/login").await;
    let fields = [("email", "ann@example.com"), ("password", PASSWORD)];
    for path in ["/login", "/signup"] {
        assert_eq!(guest.post_as(path, &foreign, &[], &fields).await.status, 403, "{path}");
        assert_eq!(guest.post_as(path, "", &[], &fields).await.status, 403, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_nobody_elses_to_choose_or_to_keep() {
    let server = Server::open();
    let ann = server.customer("ann@example.com").await;
    // Fixation: who has put a cookie into somebody's browser is not logged in with it.
    let attacker = server.visitor();
    attacker.get("/login").await;
    let victim = server.visitor();
    victim.keep(attacker.cookie());
    assert_eq!(log_in(&victim, "ann@example.com", PASSWORD).await.status, 303);
    assert_ne!(victim.cookie(), attacker.cookie(), "a log-in gives another session");
    assert_eq!(attacker.get("/keys").await.location(), "/console/login");
    // Nobody makes one up, and a form's token is not kept over a log-in.
    for made_up in ["tollgate_console=", "tollgate_console=AAAA", "tollgate_console=%00"] {
        let guest = server.visitor();
        guest.keep(made_up);
        assert_eq!(guest.get("/keys").await.location(), "/console/login", "{made_up}");
    }
    // A cookie that was copied is worth nothing after its owner has logged out.
    let copy = ann.copy();
    assert_eq!(copy.get("/keys").await.status, 200);
    ann.get("").await;
    let out = ann.post("/logout", &[]).await;
    assert_eq!((out.status, out.location()), (303, "/console/login"));
    assert_eq!(copy.get("/keys").await.location(), "/console/login");
    assert_eq!(victim.get("/keys").await.status, 200, "another session goes on");
    // Another password ends all others, and this one goes on under another id.
    let old = victim.copy();
    victim.get("/account").await;
    let fields = [("password", PASSWORD), ("new", "other words in here")];
    let changed = victim.post("/account/password", &fields).await;
    assert_eq!(changed.location(), "/console/account?done=password", "{changed:?}");
    assert_ne!(victim.cookie(), old.cookie());
    assert_eq!(victim.get("/account").await.status, 200);
    assert_eq!(old.get("/account").await.location(), "/console/login");
    assert_eq!(log_in(&server.visitor(), "ann@example.com", PASSWORD).await.status, 403);
    let again = log_in(&server.visitor(), " ANN@example.com ", "other words in here").await;
    assert_eq!(again.status, 303, "however the address is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_the_consoles_alone() {
    let server = Server::open();
    let set = |shown: &Shown| shown.headers["set-cookie"].to_str().expect("text").to_owned();
    let page = server.visitor().get("/login").await;
    assert!(page.headers.get("strict-transport-security").is_none(), "{page:?}");
    let plain = set(&page);
    for word in ["HttpOnly", "SameSite=Lax", "Path=/console"] {
        assert!(plain.contains(word), "{word} in {plain}");
    }
    assert!(!plain.contains("Secure"), "over plain HTTP it would not be sent back: {plain}");
    let server = Server::with("public_url: 'https://gateway.example.com'");
    let page = server.visitor().get("/login").await;
    assert!(set(&page).contains("Secure"), "{page:?}");
    assert_eq!(page.headers["strict-transport-security"], "max-age=31536000");
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_cannot_be_guessed() {
    let server = Server::open();
    server.customer("ann@example.com").await;
    let timed = async |email: &str, password: &str| {
        let visitor = server.visitor();
        visitor.get("/login").await;
        let began = Instant::now();
        let fields = [("email", email), ("password", password)];
        let answer = visitor.post("/login", &fields).await;
        (answer, began.elapsed())
    };
    // The best of three: what else the machine does only ever makes one slower.
    let (mut took, mut as_long) = (Duration::MAX, Duration::MAX);
    for _ in 0..3 {
        let (wrong, one) = timed("ann@example.com", "wrong words in here").await;
        let (unknown, other) = timed("nobody@example.com", "wrong words in here").await;
        assert_eq!((wrong.status, unknown.status), (403, 403));
        let message = |shown: &Shown| shown.between("role=\"status\">", "<");
        assert_eq!(message(&wrong), message(&unknown), "the page tells whose address is known");
        (took, as_long) = (took.min(one), as_long.min(other));
    }
    // A hash takes tens of milliseconds; whatever else a page takes is far below.
    let least = took.min(as_long);
    assert!(least > Duration::from_millis(8), "no hash was computed: {took:?}, {as_long:?}");
    assert!(took.max(as_long) < least * 4, "the time tells who is known: {took:?}, {as_long:?}");
    // From one address ten tries, of which six were made here; then nobody gets in, not even with the
    // right password.
    let mut tries = 6;
    let last = loop {
        let (answer, _) = timed("ann@example.com", "wrong words in here").await;
        if answer.status != 403 {
            break answer;
        }
        tries += 1;
        assert!(tries < 12, "passwords can be tried without end");
    };
    assert_eq!(last.status, 429, "{last:?}");
    let (right, _) = timed("ann@example.com", PASSWORD).await;
    assert_eq!(right.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_are_too_long_are_reported_beside_their_fields() {
    let server = Server::open();
    let long = "x".repeat(5_000);
    let guest = server.visitor();
    guest.get("/signup").await;
    let good =
        [("name", "Ann"), ("email", "ann@example.com"), ("password", PASSWORD), ("code", "")];
    for (field, value) in [
        ("name", long.as_str()),
        ("name", ""),
        ("email", &format!("{long}@example.com")),
        ("email", "nobody"),
        ("password", &long),
        ("password", "short"),
        ("code", &long),
    ] {
        let fields = good.map(|(name, typed)| (name, if name == field { value } else { typed }));
        let answer = guest.post("/signup", &fields).await;
        assert_eq!(answer.status, 422, "{field}: {}", answer.status);
        assert!(answer.text.contains(&format!("id=\"{field}-wrong\"")), "{field}: {}", answer.text);
        if field != "name" {
            assert!(answer.text.contains("value=\"Ann\""), "what was typed is kept");
        }
        assert!(!answer.text.contains(PASSWORD), "a password is shown again");
    }
    let ann = server.customer("ann@example.com").await;
    let (id, _) = make_key(&ann, &[("name", "a key")]).await;
    for (path, fields, field) in [
        ("/keys".to_owned(), vec![("name", long.as_str())], "name"),
        (format!("/keys/{id}"), vec![("name", long.as_str())], "name"),
        ("/keys".to_owned(), vec![("name", "k"), ("per_day", "1e9")], "per_day"),
        ("/keys".to_owned(), vec![("name", "k"), ("ends", "2000-01-01")], "ends"),
        ("/keys".to_owned(), vec![("name", "k"), ("models", "some")], "models"),
        ("/account/name".to_owned(), vec![("name", long.as_str())], "name"),
        ("/account/email".to_owned(), vec![("email", long.as_str())], "email"),
        ("/account/password".to_owned(), vec![("new", "short")], "new"),
        ("/account/redeem".to_owned(), vec![("code", long.as_str())], "code"),
    ] {
        let answer = ann.post(&path, &fields).await;
        assert_eq!(answer.status, 422, "{path} {field}: {answer:?}");
        assert!(answer.text.contains(&format!("id=\"{field}-wrong\"")), "{path} {field}");
    }
    let huge = "x".repeat(70_000);
    assert_eq!(ann.post("/account/name", &[("name", &huge)]).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_strangers_stay_texts() {
    let server = Server::open();
    let visitor = server.visitor();
    let evil = "\"><script>alert(1)</script>";
    visitor.get("/signup").await;
    let fields = [("name", evil), ("email", "\"><script>@example.com"), ("password", PASSWORD)];
    assert_eq!(visitor.post("/signup", &fields).await.status, 303);
    visitor.get("").await;
    let fields = [("name", evil), ("models", "some"), ("others", evil)];
    let (id, _) = make_key(&visitor, &fields).await;
    let key = format!("/keys/{id}");
    for path in ["", "/keys", &key, "/account", "/playground", "/keys/new"] {
        let page = visitor.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.contains("script&#62;alert"), "{path} shows the name: {page:?}");
        assert!(!page.text.contains("<script>"), "{path}: {page:?}");
    }
    for path in ["/account/email", "/account/redeem"] {
        let fields = [("email", "<script>"), ("code", "<script>"), ("password", "<script>")];
        let page = visitor.post(path, &fields).await;
        assert!(!page.text.contains("<script>"), "{path}: {page:?}");
    }
    let page = visitor.get("/keys?before=<script>").await;
    assert!(!page.text.contains("<script>"), "{page:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_accounts_keys_do_not_exist() {
    let server = Server::open();
    let ann = server.customer("ann@example.com").await;
    let (id, key) = make_key(&ann, &[("name", "ann's")]).await;
    let eve = server.customer("eve@example.com").await;
    let nobody = "key_0123456789abcdef";
    for path in ["/keys/{key}", "/keys?before={key}"] {
        let theirs = eve.get(&path.replace("{key}", &id)).await;
        let none = eve.get(&path.replace("{key}", nobody)).await;
        assert_eq!((theirs.status, none.status), (404, 404), "{path}");
        assert_eq!(theirs.text, none.text, "{path} tells a key that exists from one that does not");
    }
    for form in FORMS.iter().filter(|form| form.contains("{key}")) {
        let theirs = eve.post(&form.replace("{key}", &id), &[("name", "eve's")]).await;
        let none = eve.post(&form.replace("{key}", nobody), &[("name", "eve's")]).await;
        assert_eq!((theirs.status, none.status), (404, 404), "{form}");
        assert_eq!(theirs.text, none.text, "{form}");
    }
    assert_eq!(server.call(&key), 200, "the key was changed");
    assert!(ann.get("/keys").await.text.contains("ann&#39;s"));
    assert!(!eve.get("/keys").await.text.contains(&id));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_playground_has_a_key_for_an_hour() {
    let server = Server::open();
    let ann = server.customer("ann@example.com").await;
    let page = ann.get("/playground").await;
    let setup = page.between("data-setup=\"", "\"");
    let setup: Value = serde_json::from_str(&setup).expect("JSON");
    let kinds: Vec<_> = setup["models"].as_array().expect("models").iter().collect();
    assert_eq!(kinds.len(), 1, "there are models for chat alone: {setup}");
    let names: Vec<_> = kinds[0]["models"].as_array().expect("models").iter().collect();
    let names: Vec<_> = names.iter().map(|model| model["id"].as_str().expect("a name")).collect();
    assert_eq!(names, ["m", "endless", "claude"], "patterns cannot be chosen");
    let policy = page.headers["content-security-policy"].to_str().expect("text");
    assert!(policy.contains("img-src 'self' data: blob:"), "{policy}");
    let elsewhere = ann.get("/keys").await;
    let policy = elsewhere.headers["content-security-policy"].to_str().expect("text");
    assert!(!policy.contains("blob:"), "{policy}");

    let key = async || {
        let token = ann.token();
        let made = ann.post_as("/playground/key", "", &[("x-csrf-token", &token)], &[]).await;
        assert_eq!(made.status, 200, "{made:?}");
        let made: Value = serde_json::from_str(&made.text).expect("JSON");
        made["key"].as_str().expect("a key").to_owned()
    };
    let (first, second) = (key().await, key().await);
    assert_eq!((server.call(&first), server.call(&second)), (403, 200), "one works at a time");
    let keys = ids(&ann.get("/keys").await);
    let ends = keys.iter().map(|id| {
        let key = server.gateway.admin("GET", &format!("/admin/v1/keys/{id}"), &Value::Null);
        assert_eq!(key["name"], "Playground");
        key["expires_at"].as_str().expect("an end").to_owned()
    });
    assert_eq!(ends.collect::<Vec<_>>().len(), 2);

    // What a call was billed is told to its own account only.
    let client = http_builder().build().expect("a client");
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let url = format!("http://{}/v1/chat/completions", server.gateway.address);
    let answer = client.post(url).bearer_auth(&second).json(&body).send().await.expect("an answer");
    let request = answer.headers()["x-request-id"].to_str().expect("text").to_owned();
    answer.bytes().await.expect("an answer");
    let path = format!("/playground/cost?request={request}");
    let message = poll_async("the call is settled", TIMEOUT, async || {
        let message: Value = serde_json::from_str(&ann.get(&path).await.text).expect("JSON");
        if message["settled"] == true { Ok(message) } else { Err(message) }
    })
    .await;
    assert_ne!(message["charged"], "0.00", "{message}");
    let eve = server.customer("eve@example.com").await;
    assert_eq!(eve.get(&path).await.status, 404);
    assert_eq!(ann.get("/playground/cost?request=x").await.status, 404);

    // Who logs out leaves no key behind.
    ann.get("").await;
    ann.post("/logout", &[]).await;
    assert_eq!(server.call(&second), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_cannot_be_made_without_end() {
    let server = Server::open();
    let ann = server.customer("ann@example.com").await;
    let token = ann.token();
    let mut made = 0;
    let last = loop {
        let answer = ann.post_as("/playground/key", "", &[("x-csrf-token", &token)], &[]).await;
        if answer.status != 200 {
            break answer;
        }
        made += 1;
        assert!(made <= 30, "keys are made without end");
    };
    assert_eq!(last.status, 429, "{last:?}");
    assert!(last.text.contains("message"), "the page's script reads it: {last:?}");
    let once = ann.get("/keys/new").await.between("name=\"once\" value=\"", "\"");
    let refused = ann.post("/keys", &[("once", &once), ("name", "one more")]).await;
    assert_eq!(refused.status, 429);
    assert!(refused.text.contains("value=\"one more\""), "what was typed is kept: {refused:?}");
}

fn code(kind: CodeKind, amount: Option<i64>) -> NewCode {
    let amount = amount.map(|dollars| Nanousd::new(dollars * 1_000_000_000));
    NewCode { kind, amount, uses_max: 1, expires_at: None, note: String::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_open_accounts_and_give_credit() {
    let mut server = Server::with("sign_up: invite, trial_credit: 1");
    let (invite, another, credit) = server
        .meanwhile(async |ledger| {
            let by = ledger.by(&Actor::operator("test"));
            let make = async |kind, amount| {
                let (secret, _) = by.create_code(code(kind, amount)).await.expect("a code").value;
                secret.expect("a new code").expose().to_owned()
            };
            let invite = make(CodeKind::Invite, Some(2)).await;
            let another = make(CodeKind::Invite, None).await;
            (invite, another, make(CodeKind::Credit, Some(3)).await)
        })
        .await;
    let ann = server.visitor();
    for refused in ["", "tg-aaaaaaaaaaaaaaaaaaaaaaaaaa", credit.as_str()] {
        let answer = sign_up(&ann, "ann@example.com", refused).await;
        assert!(matches!(answer.status, 409 | 422), "{refused:?}: {answer:?}");
        assert!(answer.text.contains("id=\"code-wrong\""), "{refused:?}: {answer:?}");
    }
    assert_eq!(sign_up(&ann, "ann@example.com", &invite).await.status, 303);
    let start = ann.get("").await;
    assert!(start.text.contains("$3.00"), "the trial and the invite's amount: {start:?}");
    let eve = server.visitor();
    assert_eq!(sign_up(&eve, "eve@example.com", &invite).await.status, 409, "it is used up");
    // Who has no invite is not told who has an account.
    let taken = sign_up(&eve, "Ann@Example.com", &invite).await;
    assert_eq!(taken.status, 409);
    assert!(!taken.text.contains("id=\"email-wrong\""), "{taken:?}");
    let taken = sign_up(&eve, "Ann@Example.com", &another).await;
    assert_eq!(taken.status, 409);
    assert!(taken.text.contains("id=\"email-wrong\""), "{taken:?}");
    assert_eq!(sign_up(&eve, "eve@example.com", &another).await.status, 303, "it was not used");

    ann.get("/account").await;
    for (code, status) in [("nothing", 409), (&invite, 409), (&credit, 303), (&credit, 409)] {
        let answer = ann.post("/account/redeem", &[("code", code)]).await;
        assert_eq!(answer.status, status, "{code}: {answer:?}");
    }
    let done = ann.get("/account?done=code&amount=3.00").await;
    assert!(done.text.contains("$3.00 were added"), "{done:?}");
    assert!(ann.get("").await.text.contains("$6.00"));
    // Codes cannot be tried without end.
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(ann.post("/account/redeem", &[("code", "nothing")]).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

/// Each change is in the ledger for ever and costs nothing: there is an end to them. A key that has got
/// out can be switched off and revoked all the same.
#[tokio::test(flavor = "multi_thread")]
async fn changes_that_cost_nothing_are_bounded() {
    let server = Server::open();
    let ann = server.customer("ann@example.com").await;
    let (id, key) = make_key(&ann, &[("name", "a key")]).await;
    let mut statuses = Vec::new();
    for number in 0..70 {
        let name = format!("a key {number}");
        statuses.push(ann.post(&format!("/keys/{id}"), &[("name", &name)]).await.status);
        statuses.push(ann.post("/account/name", &[("name", &name)]).await.status);
    }
    assert_eq!(statuses[..100], [303; 100]);
    assert_eq!(*statuses.last().expect("many"), 429, "{statuses:?}");
    for _ in 0..3 {
        assert_eq!(ann.post(&format!("/keys/{id}/off"), &[]).await.status, 303);
    }
    assert_eq!(server.call(&key), 403, "it is off");
    assert_eq!(ann.post(&format!("/keys/{id}/on"), &[]).await.status, 429);
    assert_eq!(ann.post(&format!("/keys/{id}/revoke"), &[]).await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_signing_up_is_closed_nobody_does() {
    let server = Server::with("sign_up: closed");
    let guest = server.visitor();
    let page = guest.get("/signup").await;
    assert!(page.text.contains("Nobody can sign up here"), "{page:?}");
    assert!(!page.text.contains("<form"), "{page:?}");
    assert!(!guest.get("/login").await.text.contains("/signup"));
    let fields = [("name", "Ann"), ("email", "ann@example.com"), ("password", PASSWORD)];
    let refused = guest.post("/signup", &fields).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(log_in(&server.visitor(), "ann@example.com", PASSWORD).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ups_from_one_address_are_bounded() {
    let server = Server::open();
    let mut statuses = BTreeSet::new();
    for number in 0..12 {
        let visitor = server.visitor();
        statuses.insert(sign_up(&visitor, &format!("{number}@example.com"), "").await.status);
    }
    assert_eq!(statuses, BTreeSet::from([303, 429]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_customer_sees_and_does_nothing() {
    let mut server = Server::open();
    let mut ann = server.customer("ann@example.com").await;
    let (id, key) = make_key(&ann, &[("name", "a key")]).await;
    let suspend = async |ledger: &Ledger, suspended| {
        let account = ledger.login_by_email("ann@example.com").expect("a login").account;
        let patch = AccountPatch { suspended: Some(suspended), ..AccountPatch::default() };
        let by = ledger.by(&Actor::operator("test"));
        by.update_account(account, patch).await.expect("suspended");
    };
    server.meanwhile(async |ledger| suspend(ledger, true).await).await;
    // The session goes on over a restart.
    ann.moved(server.console());
    for path in ["", "/keys", "/playground", "/account"] {
        let page = ann.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text.contains("This account is suspended"), "{path}: {page:?}");
    }
    let key_page = ann.get(&format!("/keys/{id}")).await;
    assert!(key_page.text.contains("This account is suspended"), "{key_page:?}");
    assert_eq!(ann.post("/keys", &[("name", "another")]).await.status, 403);
    assert_eq!(ann.post("/start", &[]).await.status, 403);
    assert_eq!(ann.post("/playground/key", &[]).await.status, 403);
    assert_eq!(log_in(&server.visitor(), "ann@example.com", PASSWORD).await.status, 303);
    assert!(matches!(server.call(&key), 401..=403), "the key calls");
    server.meanwhile(async |ledger| suspend(ledger, false).await).await;
    assert_eq!(server.call(&key), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_small_and_says_how_to_treat_it() {
    let server = Server::open();
    let ann = server.customer("ann@example.com").await;
    let (id, _) = make_key(&ann, &[("name", "a key")]).await;
    let guest = server.visitor();
    let key = format!("/keys/{id}");
    for (visitor, paths) in [
        (&guest, &["/login", "/signup"][..]),
        (&ann, &["", "/keys", "/keys/new", &key, "/playground", "/account", "/nowhere"]),
    ] {
        for path in paths {
            let page = visitor.get(path).await;
            let header = |name: &str| {
                page.headers.get(name).map_or("", |value| value.to_str().expect("text"))
            };
            let policy = header("content-security-policy");
            for rule in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"] {
                assert!(policy.contains(rule), "{path}: {rule} in {policy:?}");
            }
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
            for (name, value) in [
                ("cache-control", "no-store"),
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("cross-origin-opener-policy", "same-origin"),
            ] {
                assert_eq!(header(name), value, "{path}: {name}");
            }
            assert!(page.text.starts_with("<!doctype html>"), "{path}");
            assert!(page.text.matches("<h1").count() == 1, "{path} has one heading");
            for inline in ["<style", " style=", " onclick=", "javascript:"] {
                assert!(!page.text.contains(inline), "{path} has {inline}");
            }
            let text = page.text.as_str();
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, text.matches("<script src=\"/console/assets/").count(), "{path}");
            let sent = wire_bytes(&server, visitor, path).await;
            assert!(sent <= PAGE_BYTES_MAX, "{path} weighs {sent} bytes");
        }
    }
}

/// The consoles have the origin of the APIs beside them: no browser may take an answer of these for a
/// page.
#[tokio::test(flavor = "multi_thread")]
async fn answers_beside_the_consoles_are_what_they_say() {
    let server = Server::open();
    let (customers, operators) = (server.gateway.address, server.gateway.admin);
    let key = format!("Authorization: Bearer {}\r\n", server.gateway.key);
    for (address, request, status) in [
        (customers, "GET /v1/models HTTP/1.1\r\nHost: a\r\n".to_owned(), 401),
        (customers, format!("GET /v1/models HTTP/1.1\r\nHost: a\r\n{key}"), 200),
        (customers, format!("GET /v1/usage HTTP/1.1\r\nHost: a\r\n{key}"), 200),
        (customers, "GET /nowhere HTTP/1.1\r\nHost: a\r\n".to_owned(), 404),
        (customers, "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n".to_owned(), 401),
        (customers, format!("POST /mcp HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 0\r\n"), 406),
        (customers, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n".to_owned(), 400),
        (operators, "GET /admin/v1/accounts HTTP/1.1\r\nHost: a\r\n".to_owned(), 401),
        (operators, "GET /healthz HTTP/1.1\r\nHost: a\r\n".to_owned(), 200),
        (operators, "GET /nowhere HTTP/1.1\r\nHost: a\r\n".to_owned(), 404),
    ] {
        let answer = ask(address, format!("{request}\r\n").as_bytes());
        assert_eq!(answer.status(), status, "{request}: {answer:?}");
        let reply = answer.header("x-content-type-options");
        assert_eq!(reply.as_deref(), Some("nosniff"), "{request}: {}", answer.head());
    }
}

/// Bytes of a page and its files as a browser receives them, compressed.
async fn wire_bytes(server: &Server, visitor: &Visitor, path: &str) -> usize {
    let client = http_builder().build().expect("a client");
    let origin = format!("http://{}", server.gateway.address);
    let page = visitor.get(path).await.text;
    let files = page.split(['"', ' ']).filter(|word| word.starts_with("/console/assets/"));
    let files: BTreeSet<String> = files.map(str::to_owned).collect();
    assert!(files.len() >= 3, "style, script and icon: {files:?}");
    let mut bytes = 0;
    for path in files.into_iter().chain([format!("/console{path}")]) {
        let request = client.get(format!("{origin}{path}")).header("accept-encoding", "gzip");
        let answer = request.header("cookie", visitor.cookie()).send().await.expect("an answer");
        assert!(matches!(answer.status().as_u16(), 200 | 404), "{path}: {}", answer.status());
        bytes += answer.bytes().await.expect("a body").len();
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_where_the_configuration_says_or_nowhere() {
    let server = Server::with("path: /people/console");
    let base = format!("http://{}", server.gateway.address);
    let there = Visitor::new(format!("{base}/people/console"));
    let page = there.get("/login").await;
    assert!(page.text.contains("action=\"/people/console/login\""), "{page:?}");
    assert_eq!(there.get("").await.location(), "/people/console/login");
    assert_eq!(there.get("/").await.location(), "/people/console");
    assert_eq!(Visitor::new(format!("{base}/console")).get("").await.status, 404);
    let server = Server::with("enabled: false");
    assert_eq!(server.visitor().get("").await.status, 404);
    assert_eq!(server.visitor().get("/login").await.status, 404);
}
