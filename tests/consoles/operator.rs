//! The operators' console as a browser without JavaScript has it: every page and every form of a real
//! gateway, and what its forms do as the admin API tells it.

use crate::harness::{
    Admin, Demo, Gateway, Page, Pages, ask, chat_model, eventually, simulator, videos,
};
use serde_json::{Value, json};

/// The most that a page may have, compressed (and none of the ones here comes near it uncompressed).
const PAGE_BYTES_MAX: usize = 100 * 1024;
/// A text that would run if a page did not escape it.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;";

/// A browser in which an operator has logged in.
pub(crate) async fn logged_in(admin_url: &str, token: &str) -> Pages {
    let pages = Pages::at(admin_url);
    let page = pages.get("/operator/login").await;
    let answer = pages.fill(&page, "/operator/login", &[("token", token)]).await;
    assert_eq!((answer.status, answer.location()), (303, "/operator"), "{answer:?}");
    pages
}

pub(crate) async fn operator(demo: &Demo) -> Pages {
    logged_in(&demo.admin_url, &demo.admin_token).await
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

/// The status of a customer's call.
pub(crate) async fn call(demo: &Demo, key: &str) -> u16 {
    let call = demo.post("/v1/chat/completions", &chat("gpt-4o-mini"), "").bearer_auth(key);
    let answer = call.send().await.expect("an answer");
    let status = answer.status().as_u16();
    answer.bytes().await.ok();
    status
}

/// Security headers of every answer of the console.
fn check_headers(page: &Page, path: &str) {
    let header = |name: &str| page.headers.get(name).and_then(|value| value.to_str().ok());
    let policy = header("content-security-policy").unwrap_or_else(|| panic!("{path}: no policy"));
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{path}: {policy}");
    for (name, expected) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(header(name), Some(expected), "{name} of {path}");
    }
}

/// The first text between two others.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from} in {text}"));
    rest.split(to).next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_in() {
    let demo = Demo::start();
    let pages = Pages::at(&demo.admin_url);
    for path in ["/operator", "/operator/customers", "/operator/nothing"] {
        let answer = pages.get(path).await;
        assert_eq!((answer.status, answer.location()), (303, "/operator/login"), "{path}");
    }
    let page = pages.get("/operator/login").await;
    check_headers(&page, "/operator/login");
    let set = page.headers["set-cookie"].to_str().expect("text");
    for part in ["HttpOnly", "SameSite=Lax", "Path=/operator"] {
        assert!(set.contains(part), "{part} of {set}");
    }

    // A form without its token, with another session's, or of another site is not taken.
    let login = [("token".to_owned(), demo.admin_token.clone())];
    assert_eq!(pages.post("/operator/login", &login).await.status, 403, "without a token");
    let strange = Pages::at(&demo.admin_url);
    strange.get("/operator/login").await;
    let fields = page.form("/operator/login", &[("token", &demo.admin_token)]);
    assert_eq!(strange.post("/operator/login", &fields).await.status, 403, "another's");
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&fields).finish();
    let elsewhere = pages.request(reqwest::Method::POST, "/operator/login").body(body);
    let elsewhere = elsewhere.header("origin", "https://elsewhere.example").send().await;
    assert_eq!(elsewhere.expect("an answer").status(), 403, "another site's");

    // Logging in begins another session: the one from before is nobody's.
    let guest = pages.cookie().expect("a cookie");
    let wrong = pages.fill(&page, "/operator/login", &[("token", "wrong")]).await;
    assert_eq!(wrong.status, 403);
    assert!(wrong.body.contains("This is not a token of the admin API."), "{}", wrong.body);
    let answer = pages.post("/operator/login", &fields).await;
    assert_eq!((answer.status, answer.location()), (303, "/operator"));
    let found = pages.cookie().expect("a cookie");
    assert_ne!(found, guest);
    pages.set_cookie(Some(&guest));
    assert_eq!(pages.get("/operator").await.status, 303, "the guest's cookie stays a guest's");
    pages.set_cookie(Some(&found));
    let overview = pages.get("/operator").await;
    assert_eq!(overview.status, 200);

    // Logging out ends it, also for whoever has kept the cookie.
    let out = pages.fill(&overview, "/operator/logout", &[]).await;
    assert_eq!((out.status, out.location()), (303, "/operator/login"));
    assert_eq!(pages.cookie(), None, "the browser forgets it");
    pages.set_cookie(Some(&found));
    assert_eq!(pages.get("/operator").await.status, 303, "and the gateway knows it no more");
}

/// A session that was logged out stays so, whoever has kept its cookie and however often the gateway
/// starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_out_outlives_the_process() {
    let sim = simulator(&[]);
    let mut gateway = Gateway::start(sim.addr());
    let address = |gateway: &Gateway| format!("http://{}", gateway.admin);
    let token = "admin-token-of-a-test";
    let pages = logged_in(&address(&gateway), token).await;
    let other = logged_in(&address(&gateway), token).await;
    let found = pages.cookie().expect("a cookie");
    let overview = pages.get("/operator").await;
    pages.fill(&overview, "/operator/logout", &[]).await;
    // After one kill the journal tells it, after the next the store does.
    for start in 0..3 {
        let stolen = Pages::at(&address(&gateway));
        stolen.set_cookie(Some(&found));
        assert_eq!(stolen.get("/operator").await.status, 303, "at start {start}");
        stolen.set_cookie(other.cookie().as_deref());
        assert_eq!(stolen.get("/operator").await.status, 200, "another session, {start}");
        gateway.kill_and_restart();
    }
    let message = gateway.admin("GET", "/admin/v1/audit?limit=1", &Value::Null);
    assert_eq!(message["data"][0]["what"], "session.end", "{message}");
}

/// Behind a proxy with TLS that is trusted, the cookie is never sent without.
#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_cookie_is_secure() {
    let sim = simulator(&[]);
    for (more, secure) in [("trusted_proxies: [127.0.0.1/32]\n", true), ("", false)] {
        let gateway = Gateway::start_with(sim.addr(), more);
        let request = "GET /operator/login HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n";
        let answer = ask(gateway.admin, request.as_bytes());
        let set = answer.header("set-cookie").expect("a cookie");
        assert_eq!(set.contains("Secure"), secure, "{set}");
        let hsts = answer.header("strict-transport-security");
        assert_eq!(hsts.is_some(), secure, "{hsts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_to_log_in_are_bounded() {
    let demo = Demo::start();
    let pages = Pages::at(&demo.admin_url);
    let page = pages.get("/operator/login").await;
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let answer = pages.fill(&page, "/operator/login", &[("token", "wrong")]).await;
        statuses.push(answer.status);
    }
    assert_eq!(statuses.first(), Some(&403));
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    let right = pages.fill(&page, "/operator/login", &[("token", &demo.admin_token)]).await;
    assert_eq!(right.status, 429, "who has guessed too often does not get in with a good guess");
}

#[tokio::test(flavor = "multi_thread")]
async fn customers_have_no_way_to_operators() {
    let demo = Demo::start();
    let pages = operator(&demo).await;
    let public = Pages::at(&demo.base_url);
    public.set_cookie(pages.cookie().as_deref());
    for path in ["/operator", "/operator/login", "/operator/customers", "/operator/figures"] {
        assert_eq!(public.get(path).await.status, 404, "{path} on the customers' address");
    }
    // A cookie of the other console's name or key is nobody's here.
    let value = pages.cookie().expect("a cookie");
    let (_, value) = value.split_once('=').expect("a pair");
    for cookie in [format!("tollgate_console={value}"), format!("tollgate_operator={value}x")] {
        pages.set_cookie(Some(&cookie));
        assert_eq!(pages.get("/operator").await.status, 303, "{cookie}");
    }
    // A customer's key opens neither the console nor, with a cookie, the admin API.
    let page = Pages::at(&demo.admin_url).get("/operator/login").await;
    let answer = Pages::at(&demo.admin_url)
        .fill(&page, "/operator/login", &[("token", &demo.api_key)])
        .await;
    assert_eq!(answer.status, 403);
    pages.set_cookie(Some(&format!("tollgate_operator={value}")));
    assert_eq!(pages.get("/operator").await.status, 200);
    assert_eq!(pages.get("/admin/v1/accounts").await.status, 401, "the admin API has no cookies");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_small_and_guarded() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("10.00").await;
    for _ in 0..60 {
        assert_eq!(call(&demo, &customer.key).await, 200);
    }
    let pages = operator(&demo).await;
    let newest = admin.get("/requests?limit=1").await["data"][0]["request_id"].clone();
    let request = format!("/operator/requests/{}", newest.as_str().expect("an id"));
    let of = |tab: &str| format!("/operator/customers/{}{tab}", customer.account);
    let paths = [
        "/operator",
        "/operator/figures",
        "/operator/requests",
        "/operator/requests?errors=yes&status=4xx&model=m",
        "/operator/requests?status=nonsense&before=9999999",
        &request,
        "/operator/customers",
        "/operator/customers?q=test",
        "/operator/customers?after=nonsense",
        &of(""),
        &of("/keys"),
        &of("/entries"),
        &of("/usage"),
        &of("/prices"),
        &of("/tasks"),
        &of("/audit"),
        "/operator/prices",
        "/operator/margins",
        "/operator/margins?by=day&days=7",
        "/operator/margins?by=nonsense&days=0",
        "/operator/codes",
        "/operator/in-doubt",
        "/operator/webhooks",
        "/operator/upstreams",
        "/operator/upstreams?model=gpt-4o-mini&key=nonsense",
        "/operator/configuration",
        "/operator/configuration/files",
        "/operator/audit",
        "/operator/ledger",
    ];
    for path in paths {
        let page = pages.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        check_headers(&page, path);
        assert!(!page.body.contains("<script>") && !page.body.contains("style=\""), "{path}");
        assert!(!page.body.contains(&demo.admin_token), "{path} shows the token");
        let packed = pages.request(reqwest::Method::GET, path).header("accept-encoding", "gzip");
        let packed = packed.send().await.expect("an answer").bytes().await.expect("bytes").len();
        assert!(packed <= PAGE_BYTES_MAX, "{path} has {packed} bytes");
        if path != "/operator/figures" {
            let title = between(&page.body, "<title>", "</title>").to_owned();
            assert!(title.ends_with(" · Tollgate") && title.len() > 12, "{path}: {title}");
            assert_eq!(page.body.matches("<h1").count(), 1, "{path} has one heading");
        }
        // Nobody sees it without logging in.
        let stranger = Pages::at(&demo.admin_url).get(path).await;
        assert_eq!(stranger.status, 303, "{path} for a stranger");
    }
    let found = pages.get(&of("/entries")).await;
    let older = between(&found.body, "class=\"older\"><a href=\"", "\"");
    let older = pages.get(&format!("{}{older}", of("/entries"))).await;
    assert!(older.body.contains("grant"), "the oldest entry is on the second page: {}", older.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_objects_are_reported() {
    let demo = Demo::start();
    let pages = operator(&demo).await;
    for path in [
        "/operator/nothing",
        // A single gateway has none, and no way to it.
        "/operator/fleet",
        "/operator/customers/acct_0000000000000000",
        "/operator/customers/acct_0000000000000000/keys",
        "/operator/customers/nonsense/entries",
        "/operator/customers/acct_0000000000000000/usage",
        "/operator/customers/acct_0000000000000000/prices",
        "/operator/prices/nonsense",
        "/operator/prices/aaaaaaaa",
        "/operator/prices/groups/none",
        "/operator/customers/acct_0000000000000000/tasks",
        "/operator/customers/acct_0000000000000000/audit",
        "/operator/requests/req_00000000000000000000000000000001",
        "/operator/requests/nonsense",
    ] {
        let page = pages.get(path).await;
        assert_eq!(page.status, 404, "{path}");
        assert!(!page.body.contains("href=\"/operator/fleet\""), "{path}");
        check_headers(&page, path);
    }
    // What a script asks for in the background does not put the log-in page into a part of a page.
    let stranger = Pages::at(&demo.admin_url).request(reqwest::Method::GET, "/operator/figures");
    let answer = stranger.header("hx-request", "true").send().await.expect("an answer");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["hx-redirect"]),
        (401, &"/operator/login".parse().expect("a header"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_from_the_first_form_to_the_last() {
    let demo = Demo::start();
    let (admin, pages) = (Admin::of(&demo), operator(&demo).await);
    let list = pages.get("/operator/customers").await;
    let refused = pages.fill(&list, "/operator/customers", &[("name", "")]).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("This is needed."), "{}", refused.body);
    let long = "x".repeat(300);
    let refused = pages.fill(&list, "/operator/customers", &[("name", &long)]).await;
    assert!(refused.status == 422 && refused.body.contains(&long), "what was typed is kept");

    let form = list.form("/operator/customers", &[("name", "Ada & Co")]);
    let opened = pages.post("/operator/customers", &form).await;
    let again = pages.post("/operator/customers", &form).await;
    assert_eq!(again.location(), opened.location(), "sent twice, it is one account");
    let page = pages.follow(&opened).await;
    assert!(page.body.contains("The account was opened.") && page.body.contains("Ada &#38; Co"));
    let path = opened.location().split('?').next().expect("a path").to_owned();
    let id = path.rsplit('/').next().expect("an id").to_owned();
    let found = pages.get("/operator/customers?q=ADA").await;
    assert!(found.body.contains(&id) && !found.body.contains("demo"), "{}", found.body);

    granted(&admin, &pages, &page, &path).await;
    lent(&admin, &pages, &path).await;

    // Limits and name.
    let limits = format!("{path}/limits");
    let refused = pages.fill(&page, &limits, &[("requests_per_minute", "many")]).await;
    assert_eq!(refused.status, 422);
    let set = pages.fill(&page, &limits, &[("requests_per_minute", "600")]).await;
    let page = pages.follow(&set).await;
    assert!(page.body.contains("value=\"600\""), "{}", page.body);
    let shown = admin.get(&format!("/accounts/{id}")).await;
    assert_eq!(shown["limits"]["requests_per_minute"], 600);
    let renamed = pages.fill(&page, &format!("{path}/name"), &[("name", "Ada")]).await;
    let page = pages.follow(&renamed).await;
    assert_eq!(admin.get(&format!("/accounts/{id}")).await["name"], "Ada");

    let key = key_of(&demo, &pages, &path).await;
    password_set(&admin, &pages, &path, &id).await;

    // Suspended, and taken up again.
    let suspend = format!("{path}/suspend");
    let suspended = pages.fill(&page, &suspend, &[]).await;
    let page = pages.follow(&suspended).await;
    assert!(page.body.contains("suspended</span>"), "{}", page.body);
    assert_eq!(call(&demo, &key).await, 403);
    let resumed = pages.fill(&page, &suspend, &[]).await;
    assert!(pages.follow(&resumed).await.body.contains("taken up again"));
    assert_eq!(call(&demo, &key).await, 200);

    refunded(&admin, &pages, &path, &id).await;

    // Who did all that.
    let audit = pages.get(&format!("{path}/audit")).await;
    for what in [
        "account.create",
        "grant",
        "account.update",
        "key.create",
        "key.update",
        "account.suspend",
        "account.resume",
        "refund",
    ] {
        assert!(audit.body.contains(&format!("<code>{what}</code>")), "{what}: {}", audit.body);
    }
    let usage = pages.get(&format!("{path}/usage")).await;
    assert!(usage.body.contains("gpt-4o-mini") && usage.body.contains("data-chart"));
}

/// Gives money by the form of a customer's page, twice, which is once.
async fn granted(admin: &Admin, pages: &Pages, page: &Page, path: &str) {
    let id = path.rsplit('/').next().expect("an id");
    let grants = format!("{path}/grants");
    let refused = pages.fill(page, &grants, &[("amount", "-5")]).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("value=\"-5\""), "what was typed is kept: {}", refused.body);
    let form = page.form(&grants, &[("amount", "7.50"), ("note", "invoice 42")]);
    for _ in 0..2 {
        let given = pages.post(&grants, &form).await;
        assert!(pages.follow(&given).await.body.contains("The money was given."));
    }
    assert_eq!(admin.balance(id).await.granted, 7_500_000_000);
    let entries = admin.entries(id).await;
    assert!(
        entries[0]["id"].as_str().is_some_and(|id| id.starts_with("invoice 42")),
        "{entries:?}"
    );
    let other = page.form(&grants, &[("amount", "9.00"), ("note", "invoice 42")]);
    assert_eq!(pages.post(&grants, &other).await.status, 409, "the same form with another amount");
    assert_eq!(admin.balance(id).await.granted, 7_500_000_000);
}

/// Sets a credit line and hold rules by the forms of a customer's page, and takes both away.
async fn lent(admin: &Admin, pages: &Pages, path: &str) {
    let id = path.rsplit('/').next().expect("an id");
    let set = async |form: &str, fields: &[(&str, &str)]| {
        let page = pages.get(path).await;
        let at = format!("{path}/{form}");
        let sent = pages.post(&at, &page.form(&at, fields)).await;
        pages.follow(&sent).await.body
    };
    let page = set("credit", &[("credit_limit", "12.50")]).await;
    assert!(page.contains("The credit line was set.") && page.contains("$12.50"), "{page}");
    let page = set("holds", &[("means", "credit, rolling"), ("wait_ms", "250")]).await;
    assert!(page.contains("The hold rules were set."), "{page}");
    assert!(page.contains(r#"value="credit, rolling""#), "{page}");
    let shown = admin.get(&format!("/accounts/{id}")).await;
    assert_eq!(shown["balance"]["credit_limit"], "12.50");
    assert_eq!(shown["holds"]["wait_ms"], 250);
    let page = pages.get(path).await;
    let holds = format!("{path}/holds");
    let refused = pages.fill(&page, &holds, &[("means", "hope")]).await;
    assert_eq!(refused.status, 422);
    set("holds", &[("means", ""), ("wait_ms", "")]).await;
    set("credit", &[("credit_limit", "")]).await;
    let shown = admin.get(&format!("/accounts/{id}")).await;
    assert_eq!(shown["balance"]["credit_limit"], "0.00");
    assert_eq!(shown["holds"]["means"], serde_json::Value::Null);
}

/// Makes a key by the form, switches it off and on, and gives it.
async fn key_of(demo: &Demo, pages: &Pages, path: &str) -> String {
    let keys = format!("{path}/keys");
    let page = pages.get(&keys).await;
    let form = page.form(
        &keys,
        &[("name", "laptop"), ("models", "gpt-4o-mini, gpt-4o"), ("spend_per_day", "2.00")],
    );
    let made = pages.post(&keys, &form).await;
    let key = between(&made.body, "<pre id=\"made\" tabindex=\"0\"><code>", "</code>").to_owned();
    assert!(key.starts_with("sk-"), "{key}");
    let again = pages.post(&keys, &form).await;
    assert!(again.body.contains("made before") && !again.body.contains(&key), "{}", again.body);
    assert_eq!(again.body.matches("laptop").count(), 1, "one key: {}", again.body);
    assert!(again.body.contains("gpt-4o-mini, gpt-4o") && again.body.contains("$2.00 a day"));
    assert_eq!(call(demo, &key).await, 200);
    let switch = between(&again.body, "action=\"/operator/customers/", "\"");
    let switch = format!("/operator/customers/{switch}");
    let off = pages.fill(&again, &switch, &[]).await;
    let page = pages.follow(&off).await;
    assert!(page.body.contains("The key is switched off."), "{}", page.body);
    assert_ne!(call(demo, &key).await, 200);
    let on = pages.fill(&page, &switch, &[]).await;
    assert!(pages.follow(&on).await.body.contains("The key is switched on."));
    assert_eq!(call(demo, &key).await, 200);
    // Another customer's path does not lead to it.
    let id = switch.rsplit('/').next().expect("an id");
    let other = pages.get("/operator/customers?q=demo").await;
    let other = format!(
        "/operator/customers/{}",
        between(&other.body, "<td class=\"break\"><a href=\"/operator/customers/", "\"")
    );
    let fields = page.form(&switch, &[]);
    let answer = pages.post(&format!("{other}/keys/{id}"), &fields).await;
    assert_eq!(answer.status, 404, "{other}");
    key
}

/// Sets a log-in by the form, twice, which is once.
async fn password_set(admin: &Admin, pages: &Pages, path: &str, id: &str) {
    let (page, login) = (pages.get(path).await, format!("{path}/login"));
    let refused = pages.fill(&page, &login, &[("email", "no address")]).await;
    assert!(refused.status == 422 && refused.body.contains("no address"), "{}", refused.body);
    let form = page.form(&login, &[("email", "Ada@Example.com")]);
    let set = pages.post(&login, &form).await;
    let password = between(&set.body, "<pre id=\"made\" tabindex=\"0\"><code>", "</code>");
    assert_eq!(password.len(), 20, "{}", set.body);
    let again = pages.post(&login, &form).await;
    assert!(again.body.contains("made before") && !again.body.contains(password));
    let found = pages.get("/operator/customers?q=ada%40example.com").await;
    assert!(found.body.contains(id), "found by its address: {}", found.body);
    let audit = admin.get(&format!("/audit?account={id}")).await;
    let sets =
        audit["data"].as_array().expect("acts").iter().filter(|act| act["what"] == "login.set");
    assert_eq!(sets.count(), 1, "{audit}");
    // Nobody else gets the address.
    let demo = pages.get("/operator/customers?q=demo").await;
    let other = between(&demo.body, "<td class=\"break\"><a href=\"", "\"").to_owned();
    let page = pages.get(&other).await;
    let taken = pages.fill(&page, &format!("{other}/login"), &[("email", "ada@example.com")]).await;
    assert!(taken.status == 422 && taken.body.contains("Another account has this address."));
}

/// Gives back a part of the newest settlement, once.
async fn refunded(admin: &Admin, pages: &Pages, path: &str, id: &str) {
    let before = admin.settled(id).await;
    let page = pages.get(&format!("{path}/entries")).await;
    let refunds = format!("{path}/refunds");
    let too_much = pages.fill(&page, &refunds, &[("amount", "5.00")]).await;
    assert_eq!(too_much.status, 422);
    assert!(too_much.body.contains("refunds cannot exceed the charge"), "{}", too_much.body);
    let form = page.form(&refunds, &[("amount", "0.000001")]);
    for _ in 0..2 {
        let given = pages.post(&refunds, &form).await;
        assert!(pages.follow(&given).await.body.contains("The money was given back."));
    }
    assert_eq!(admin.settled(id).await.spent, before.spent - 1000, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_are_shown_once_and_revoked() {
    let demo = Demo::start();
    let pages = operator(&demo).await;
    let page = pages.get("/operator/codes").await;
    let refused = pages.fill(&page, "/operator/codes", &[("kind", "credit")]).await;
    assert_eq!(refused.status, 422, "credit needs an amount");
    let typed = [("kind", "credit"), ("amount", "5.00"), ("uses_max", "3"), ("code_note", HOSTILE)];
    let form = page.form("/operator/codes", &typed);
    let made = pages.post("/operator/codes", &form).await;
    let code = between(&made.body, "<pre id=\"made\" tabindex=\"0\"><code>", "</code>").to_owned();
    assert!(code.starts_with("tg-"), "{}", made.body);
    assert!(!made.body.contains(HOSTILE) && made.body.contains("&#60;script&#62;alert(1)"));
    let again = pages.post("/operator/codes", &form).await;
    assert!(again.body.contains("made before") && !again.body.contains(&code));
    assert_eq!(again.body.matches("0 of 3").count(), 1, "one code: {}", again.body);
    let revoke = between(&again.body, "action=\"/operator/codes/", "\"");
    let revoke = format!("/operator/codes/{revoke}");
    let revoked = pages.fill(&again, &revoke, &[]).await;
    let page = pages.follow(&revoked).await;
    assert!(page.body.contains("badge bad\">revoked"), "{}", page.body);
    let fields = again.form(&revoke, &[]);
    let unknown = pages.post("/operator/codes/nonsense/revoke", &fields).await;
    assert_eq!(unknown.status, 404);
    let audit = pages.get("/operator/audit").await;
    assert!(audit.body.contains("code.create") && audit.body.contains("code.revoke"));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_doubt_after_a_crash_are_resolved() {
    let data = tempfile::tempdir().expect("a directory");
    let account = {
        let mut demo = Demo::on(data.path());
        let customer = Admin::of(&demo).customer("10.00").await;
        let mut body = chat("gpt-4o-mini");
        body["stream"] = json!(true);
        let slow = demo.post("/v1/chat/completions", &body, "chunks:200 words:1 interval-ms:50");
        let answer = slow.bearer_auth(&customer.key).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        demo.process.kill();
        customer.account
    };
    let demo = Demo::on(data.path());
    let (admin, pages) = (Admin::of(&demo), operator(&demo).await);
    let overview = pages.get("/operator").await;
    assert!(overview.body.contains("1 call is in doubt"), "{}", overview.body);
    let page = pages.get("/operator/in-doubt").await;
    assert!(page.body.contains(&account), "{}", page.body);
    let action = between(&page.body, "action=\"/operator/in-doubt/holds/", "\"");
    let action = format!("/operator/in-doubt/holds/{action}");
    let refused = pages.fill(&page, &action, &[("note", " ")]).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body.contains("Say what came of it."), "{}", refused.body);
    let form = page.form(&action, &[("note", "the provider billed nothing")]);
    for _ in 0..2 {
        let done = pages.post(&action, &form).await;
        assert!(pages.follow(&done).await.body.contains("The doubt is resolved."));
    }
    let left = admin.get("/holds/in-doubt").await;
    assert_eq!(left["data"], json!([]), "{left}");
    let page = pages.get("/operator/in-doubt").await;
    assert!(page.body.contains("No call is in doubt."), "{}", page.body);
    let audit = pages.get("/operator/audit").await;
    assert_eq!(audit.body.matches("<code>doubt.resolve</code>").count(), 1, "{}", audit.body);
}

/// Operators with tokens of their own stand in the audit by their names, and are out as soon as their
/// token is another one.
#[tokio::test(flavor = "multi_thread")]
async fn each_operator_has_a_name() {
    let sim = simulator(&[]);
    let upstreams = format!(
        "  here: {{ protocol: openai, base_url: 'http://{}/v1', credential: x }}\n\
         routes: [{{ path: /v1/chat/completions, operation: chat }}]\nreload: {{ watch: false }}\n",
        sim.addr()
    );
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{}", chat_model("one", "here")));
    let url = format!("http://{}", gateway.admin_address());
    let path = gateway.path("routes.yaml");
    let routes = std::fs::read_to_string(&path).expect("the file");
    let with_token = |token: &str| {
        let operators = format!("admin:\n  operators: [{{ name: ada, token: {token} }}]\n");
        std::fs::write(&path, routes.replacen("admin:\n", &operators, 1)).expect("written");
        gateway.admin("POST", "/admin/v1/reload", &Value::Null);
    };
    with_token("token-of-ada-in-a-test");
    let ada = logged_in(&url, "token-of-ada-in-a-test").await;
    let page = ada.get("/operator/customers").await;
    assert!(page.body.contains("<span title=\"ada\">ada</span>"), "{}", page.body);
    let opened = ada.fill(&page, "/operator/customers", &[("name", "by ada")]).await;
    assert_eq!(opened.status, 303);
    let audit = gateway.admin("GET", "/admin/v1/audit?limit=1", &Value::Null);
    assert_eq!(audit["data"][0]["by"], json!({"kind": "operator", "name": "ada"}), "{audit}");
    let admin = logged_in(&url, "admin-token-of-a-test").await;
    with_token("another-token-of-ada-in-a-test");
    assert_eq!(ada.get("/operator").await.status, 303, "her session has ended");
    assert_eq!(admin.get("/operator").await.status, 200, "others go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_is_verified_and_exported() {
    let demo = Demo::start();
    assert_eq!(call(&demo, &demo.api_key).await, 200);
    let pages = operator(&demo).await;
    let page = pages.get("/operator/ledger").await;
    let verified = pages.fill(&page, "/operator/ledger/verify", &[]).await;
    assert_eq!(verified.status, 200, "{}", verified.body);
    assert!(verified.body.contains("The journal is in order."), "{}", verified.body);
    assert!(verified.body.contains("<dt>Granted</dt><dd>$10.00</dd>"), "{}", verified.body);
    let csv = pages.get("/operator/ledger/export?format=csv&account=&from_seq=").await;
    assert_eq!(csv.headers["content-disposition"], "attachment; filename=\"ledger.csv\"");
    assert!(csv.body.starts_with("seq,") && csv.body.contains("settlement"), "{}", csv.body);
    let lines = pages.get("/operator/ledger/export?format=jsonl&from_seq=2").await;
    let first: Value = lines.body.lines().next().expect("a line").parse().expect("JSON");
    assert_eq!(first["seq"], 2, "{first}");
    let refused = pages.get("/operator/ledger/export?account=nobody").await;
    assert_eq!(refused.status, 422);
    let stranger = Pages::at(&demo.admin_url).get("/operator/ledger/export").await;
    assert_eq!(stranger.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_texts_do_not_run() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let account = admin.post("/accounts", json!({"name": HOSTILE})).await;
    let id = account["id"].as_str().expect("an id").to_owned();
    admin.post(&format!("/accounts/{id}/grants"), json!({"amount": "5.00", "id": HOSTILE})).await;
    let key = json!({"name": HOSTILE, "models": [HOSTILE.replace(' ', "/"), "gpt-4o-mini", "wan2.6-t2v"]});
    let key = admin.post(&format!("/accounts/{id}/keys"), key).await;
    let key = key["key"].as_str().expect("a key").to_owned();
    // A model that does not exist, and an error of an upstream's.
    let call = demo.post("/v1/chat/completions", &chat(HOSTILE), "").bearer_auth(&key);
    call.send().await.expect("an answer");
    let failing = demo.post("/v1/chat/completions", &chat("gpt-4o-mini"), "fault:status=500");
    failing.bearer_auth(&key).send().await.expect("an answer");
    let pages = operator(&demo).await;
    let query = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect::<String>();
    for path in [
        "/operator/customers".to_owned(),
        format!("/operator/customers?q={query}"),
        format!("/operator/customers/{id}"),
        format!("/operator/customers/{id}/keys"),
        format!("/operator/customers/{id}/entries"),
        format!("/operator/customers/{id}/audit"),
        "/operator/requests".to_owned(),
        format!("/operator/requests?model={query}&account={query}&status={query}&key={query}"),
        format!("/operator/upstreams?model={query}&key={query}"),
        "/operator/audit".to_owned(),
        format!("/operator?done={query}"),
        format!("/operator/configuration?done={query}"),
    ] {
        let page = pages.get(&path).await;
        assert_eq!(page.status, 200, "{path}");
        for piece in ["<script>alert", "<img src=x", "\"'>"] {
            assert!(!page.body.contains(piece), "{path} has {piece}: {}", page.body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tail_tells_of_requests_as_they_end() {
    use futures_util::StreamExt as _;
    let demo = Demo::start();
    let pages = operator(&demo).await;
    let tail = pages.request(reqwest::Method::GET, "/operator/requests/tail").send().await;
    let tail = tail.expect("an answer");
    assert_eq!(tail.headers()["content-type"], "text/event-stream");
    let mut events = tail.bytes_stream();
    assert_eq!(call(&demo, &demo.api_key).await, 200);
    let mut text = String::new();
    let read = async {
        while !text.contains("\n\n") || !text.contains("event: row") {
            let piece = events.next().await.expect("more").expect("bytes");
            text.push_str(&String::from_utf8_lossy(&piece));
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), read).await.expect("in time");
    assert!(text.contains("<tr>") && text.contains("gpt-4o-mini"), "{text}");
    // So many look on, and no more.
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..17 {
        let tail = pages.request(reqwest::Method::GET, "/operator/requests/tail").send().await;
        let tail = tail.expect("an answer");
        refused += usize::from(tail.status() == 503);
        open.push(tail);
    }
    assert!((1..=2).contains(&refused), "{refused} of 18 were refused");
    let stranger = Pages::at(&demo.admin_url).get("/operator/requests/tail").await;
    assert_eq!(stranger.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_are_tried_out_and_put_in_force() {
    let sim = simulator(&[]);
    let upstreams = format!(
        "  here: {{ protocol: openai, base_url: 'http://{}/v1', credential: canary-of-a-test }}\n\
         routes: [{{ path: /v1/chat/completions, operation: chat }}]\nreload: {{ watch: false }}\n",
        sim.addr()
    );
    let models = format!("models:\n{}", chat_model("one", "here"));
    let gateway = Gateway::serving(&upstreams, &models);
    let url = format!("http://{}", gateway.admin_address());
    let pages = logged_in(&url, "admin-token-of-a-test").await;
    let page = pages.get("/operator/configuration").await;
    assert!(page.body.contains("The files are what runs."), "{}", page.body);
    assert!(page.body.contains("There was none since the start."));
    let files = pages.get("/operator/configuration/files").await;
    assert!(files.body.contains("one:") && files.body.contains("secret "), "{}", files.body);
    assert!(
        !files.body.contains("canary-of-a-test") && !files.body.contains("admin-token-of-a-test")
    );

    let path = gateway.path("models.yaml");
    let write = |text: &str| std::fs::write(&path, text).expect("the file is written");
    write(&format!("{models}{}", chat_model("two", "nowhere")));
    let page = pages.get("/operator/configuration").await;
    assert!(page.body.contains("models.two"), "the difference: {}", page.body);
    let tried = pages.fill(&page, "/operator/configuration/try", &[]).await;
    assert_eq!(tried.status, 422);
    assert!(tried.body.contains("nowhere") && tried.body.contains("error"), "{}", tried.body);
    let refused = pages.fill(&page, "/operator/configuration/reload", &[]).await;
    assert_eq!(refused.status, 422);
    let overview = pages.get("/operator").await;
    assert!(overview.body.contains("The last reload was refused"), "{}", overview.body);

    write(&format!("{models}{}", chat_model("two", "here")));
    let tried = pages.fill(&page, "/operator/configuration/try", &[]).await;
    assert_eq!(tried.status, 200);
    assert!(tried.body.contains("They are not in force yet."), "{}", tried.body);
    let done = pages.fill(&tried, "/operator/configuration/reload", &[]).await;
    let page = pages.follow(&done).await;
    assert!(page.body.contains("The files are in force.") && page.body.contains("in force</span>"));
    let audit = pages.get("/operator/audit").await;
    assert_eq!(audit.body.matches("<code>reload</code>").count(), 1, "once: {}", audit.body);
    let running = gateway.admin("GET", "/admin/v1/config", &Value::Null);
    let version = gateway.admin("GET", "/admin/v1/version", &Value::Null);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"), "{version}");
    assert_eq!(version["configuration"], running["hash"], "{version}");
    assert!(running["config"]["models"]["two"].is_object(), "{running}");
    // The customers' listener knows nothing of all that.
    let answer = ask(
        gateway.address,
        b"GET /operator HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(answer.status(), 404);
}

/// Submits a video; gives the answer's status.
fn submit(gateway: &Gateway, webhook_url: Option<&str>) -> u16 {
    let mut body = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 2});
    if let Some(url) = webhook_url {
        body["webhook_url"] = json!(url);
    }
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, &body)).status()
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_tasks_are_announced_again() {
    let sim = simulator(&[]);
    let (upstreams, models) = videos(&sim, "task-pending-ms=5;task-running-ms=5");
    let gateway = Gateway::serving(&upstreams, models);
    let receiver = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hook = format!(
        "http://{}/'hook?<script>alert(1)</script>",
        receiver.local_addr().expect("an address")
    );
    let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&taken);
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut stream in receiver.incoming().flatten() {
            // The head is in the first piece; what it says is another test's.
            let read = stream.read(&mut [0; 4096]);
            let message = stream.write_all(b"HTTP/1.1 204 Taken\r\nconnection: close\r\n\r\n");
            count.fetch_add(
                usize::from(read.is_ok() && message.is_ok()),
                std::sync::atomic::Ordering::SeqCst,
            );
        }
    });
    let so_far = || taken.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(submit(&gateway, Some(&hook)), 202);
    eventually("the announcement", || so_far() >= 1);
    let pages =
        logged_in(&format!("http://{}", gateway.admin_address()), "admin-token-of-a-test").await;
    let path = format!("/operator/customers/{}/tasks", gateway.account);
    eventually("the note of it", || {
        let page = gateway.admin("GET", "/admin/v1/tasks", &Value::Null).to_string();
        page.contains("delivered")
    });
    for list in ["/operator/webhooks", &path] {
        let page = pages.get(list).await;
        assert!(
            page.body.contains("succeeded") && page.body.contains("delivered"),
            "{}",
            page.body
        );
        assert!(!page.body.contains("<script>alert"), "{}", page.body);
    }
    let page = pages.get(&path).await;
    let action = format!("{path}/{}", between(&page.body, &format!("action=\"{path}/"), "\""));
    let before = so_far();
    let form = page.form(&action, &[]);
    let announced = pages.post(&action, &form).await;
    assert_eq!(announced.location(), format!("{path}?done=announced"));
    eventually("another announcement", || so_far() > before);
    let other = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "another"}));
    let other = other["id"].as_str().expect("an id");
    let unknown = format!("{path}/nonsense/announce");
    for path in [action.replace(&gateway.account, other), unknown] {
        let answer = pages.post(&path, &form).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_in_doubt_are_charged_or_given_back() {
    let sim = simulator(&[]);
    let (upstreams, models) = videos(&sim, "fault=submit-reset");
    let gateway = Gateway::serving(&upstreams, models);
    for _ in 0..2 {
        submit(&gateway, None);
    }
    let pages =
        logged_in(&format!("http://{}", gateway.admin_address()), "admin-token-of-a-test").await;
    let overview = pages.get("/operator").await;
    assert!(overview.body.contains("2 tasks are in doubt"), "{}", overview.body);
    let first = |page: &Page| {
        format!(
            "/operator/in-doubt/tasks/{}",
            between(&page.body, "action=\"/operator/in-doubt/tasks/", "\"")
        )
    };
    let page = pages.get("/operator/in-doubt").await;
    let action = first(&page);
    let refused = pages.fill(&page, &action, &[("resolution", "charge"), ("charge", "")]).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    let form = page.form(&action, &[("resolution", "charge"), ("charge", "0.05")]);
    for _ in 0..2 {
        let done = pages.post(&action, &form).await;
        assert!(pages.follow(&done).await.body.contains("The doubt is resolved."));
    }
    assert_eq!(gateway.balance()["spent"], "0.05", "once");
    let page = pages.get("/operator/in-doubt").await;
    let action = first(&page);
    let done = pages.fill(&page, &action, &[("resolution", "void")]).await;
    assert!(pages.follow(&done).await.body.contains("No task is in doubt."));
    let balance = gateway.balance();
    assert_eq!(
        (&balance["spent"], &balance["held"]),
        (&json!("0.05"), &json!("0.00")),
        "{balance}"
    );
}

/// Pages show the beginning of what customers and receivers have written, however long it is.
#[tokio::test(flavor = "multi_thread")]
async fn long_texts_are_cut_on_pages() {
    let sim = simulator(&[]);
    let (upstreams, models) = videos(&sim, "task-pending-ms=60000");
    let gateway = Gateway::serving(&upstreams, models);
    let url = format!("http://127.0.0.1:1/{}", "x".repeat(1_500));
    let names: Vec<String> = (0..100).map(|n| format!("{n}-{}", "y".repeat(120))).collect();
    let keys = format!("/admin/v1/accounts/{}/keys", gateway.account);
    gateway.admin("POST", &keys, &json!({"name": "many", "models": names}));
    let body = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 2,
        "webhook_url": url})
    .to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, &body));
    assert_eq!(answer.status(), 202, "{}", answer.json());
    let pages = logged_in(&format!("http://{}", gateway.admin), "admin-token-of-a-test").await;
    for path in [
        "/operator/webhooks",
        &format!("/operator/customers/{}/tasks", gateway.account),
        &format!("/operator/customers/{}/keys", gateway.account),
    ] {
        let page = pages.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        for (letters, what) in [("x", "a URL"), ("y", "names of models")] {
            assert!(!page.body.contains(&letters.repeat(250)), "{path} shows all of {what}");
        }
        assert!(page.body.contains('…'), "{path}: {}", page.body);
    }
    let listed = gateway.admin("GET", "/admin/v1/tasks", &Value::Null);
    assert_eq!(listed["data"][0]["webhook"]["url"], url, "programs get what is allowed now");
}
