//! The pages of the customers' console that show data, against a real gateway and simulated upstreams:
//! they say what the API says, to the last digit, show nobody another one's, and run nothing that a
//! stranger wrote.

mod visitor;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Gateway, ask, chat_model, eventually, simulator};
use serde_json::{Value, json};
use tollgate::sim::Sim;
use visitor::{Shown, Visitor, dollars, utc};

/// Hostile text: markup, the end of an attribute, a spreadsheet formula.
const HOSTILE: &str = "=1+1\"><script>alert(1)</script>";

/// A gateway, and the customer whose account and key it has.
fn start(sim: &Sim) -> (Gateway, Visitor) {
    let at = sim.addr();
    let fast = "task-pending-ms=5;task-running-ms=5";
    let code = "%3Cscript%3Ealert(2)%3C%2Fscript%3E";
    let upstreams = format!(
        "  good: {{ protocol: openai, base_url: 'http://{at}/v1' }}
  bad: {{ protocol: openai, base_url: 'http://{at}/sim:fault=status=500/v1' }}
  slow: {{ protocol: openai, base_url: 'http://{at}/sim:delay-ms=60000/v1' }}
  films: {{ protocol: dashscope, base_url: 'http://{at}/sim:{fast}' }}
  failing: {{ protocol: dashscope, base_url: 'http://{at}/sim:{fast};task-end=failed;error-code={code}' }}
  endless: {{ protocol: dashscope, base_url: 'http://{at}/sim:task-running-ms=3600000' }}
console: {{ sign_up: open }}
tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms, webhook_hosts: ['127.0.0.1:*'] }}
"
    );
    let video = |name: &str, upstream: &str| {
        format!(
            "  {name}:
    operations: [video]
    targets: [{{ upstream: {upstream}, model: wan2.7-t2v }}]
    prices: {{ per_second: 0.10 }}
    limits: {{ resolutions: [720p], seconds_min: 2, seconds_max: 15 }}
"
        )
    };
    let models = format!(
        "models:\n{}{}{}    fallbacks: [m]\n{}{}{}{}{}",
        chat_model("m", "good"),
        chat_model("m-bad", "bad"),
        chat_model("m-moved", "bad"),
        chat_model("m-slow", "slow"),
        chat_model("'x-*'", "good"),
        video("film", "films"),
        video("film-failing", "failing"),
        video("film-endless", "endless"),
    );
    let mut gateway = Gateway::serving(&upstreams, &models);
    let visitor = Visitor::sign_up(&gateway, "first customer");
    let accounts = gateway.admin("GET", "/admin/v1/accounts", &Value::Null)["data"].clone();
    let is_own = |account: &&Value| account["name"] == "first customer";
    let account = accounts.as_array().expect("a list").iter().find(is_own).expect("the account");
    gateway.account = account["id"].as_str().expect("an id").to_owned();
    gateway.grant("25.00", HOSTILE);
    gateway.key = key(&gateway, HOSTILE)["key"].as_str().expect("a key").to_owned();
    (gateway, visitor)
}

/// A new key of the account.
fn key(gateway: &Gateway, name: &str) -> Value {
    let path = format!("/admin/v1/accounts/{}/keys", gateway.account);
    gateway.admin("POST", &path, &json!({"name": name}))
}

/// A chat with this model; gives its id.
fn chat(gateway: &Gateway, model: &str, more: &str) -> String {
    let body = format!(
        r#"{{"model": "{model}", "messages": [{{"role": "user", "content": "hello"}}]{more}}}"#
    );
    let answer = ask(gateway.address, &gateway.chat_json(body));
    answer.header("x-request-id").expect("an id")
}

/// Submits a video; gives the task's id.
fn submit(gateway: &Gateway, model: &str, webhook_url: Option<&str>) -> String {
    let mut body = json!({
        "model": model,
        "duration": 5,
        "resolution": "720p",
        "input": {"prompt": HOSTILE},
        "parameters": {"resolution": "720P", "duration": 5},
    });
    if let Some(url) = webhook_url {
        body["webhook_url"] = url.into();
    }
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, &body));
    assert_eq!(answer.status(), 202, "{answer:?}");
    answer.json()["id"].as_str().expect("an id").to_owned()
}

/// Everything that the admin API says of the account's money, newest first.
fn entries(gateway: &Gateway) -> Vec<Value> {
    everything(gateway, &format!("/admin/v1/accounts/{}/entries?limit=37", gateway.account))
}

/// A list of the admin API, page after page.
fn everything(gateway: &Gateway, path: &str) -> Vec<Value> {
    let (mut all, mut before) = (Vec::new(), String::new());
    loop {
        let page = gateway.admin("GET", &format!("{path}{before}"), &Value::Null);
        all.extend(page["data"].as_array().expect("a list").iter().cloned());
        match &page["next_before"] {
            Value::Null => return all,
            next => before = format!("&before={next}"),
        }
    }
}

/// A list of the console, page after page.
fn walk(visitor: &Visitor, path: &str) -> Vec<Shown> {
    let mut pages = vec![visitor.page(path)];
    while let Some(older) = pages.last().and_then(Shown::older) {
        assert!(pages.len() < 100, "the list has no end");
        pages.push(visitor.page(&older));
    }
    pages
}

/// The beginning and the end of a request's id, as tables show it.
fn short(id: &Value) -> String {
    let id = id.as_str().expect("an id");
    format!("{}…{}", &id[..16], &id[id.len() - 4..])
}

fn customer_get(gateway: &Gateway, path: &str) -> Value {
    ask(gateway.address, &gateway.get(path)).json()
}

/// Nothing that a stranger wrote is markup on any of these pages.
fn is_harmless(shown: &Shown) {
    for script in ["<script>alert", "\"><script", "javascript:"] {
        assert!(!shown.html.contains(script), "{script} is on the page: {}", shown.html);
    }
}

/// A row of the statement says what the admin API says of the entry.
fn is_entry(row: &[String], entry: &Value) {
    let freed = |charged: &str| {
        let nano = |text: &str| text.parse::<tollgate::money::Nanousd>().expect("an amount");
        let held = entry["call"]["held"].as_str().expect("held");
        let freed = nano(held).checked_sub(nano(charged)).expect("within the hold");
        [dollars(&entry["call"]["held"]), format!("${charged}"), format!("${freed}")]
    };
    let charged = entry["charged"].as_str();
    let (what, money) = match entry["kind"].as_str().expect("a kind") {
        "settlement" => ("Paid".to_owned(), freed(charged.expect("a charge"))),
        "in_doubt" => (
            "In doubt the gateway stopped during the call".to_owned(),
            freed(charged.expect("a charge")),
        ),
        "void" => ("Not charged the provider failed".to_owned(), freed("0.00")),
        "grant" => (format!("Credit {}", entry["id"].as_str().expect("an id")), Default::default()),
        "refund" => {
            (format!("Refund {}", entry["id"].as_str().expect("an id")), Default::default())
        }
        other => panic!("{other}"),
    };
    assert_eq!((&row[0], &row[1]), (&utc(&entry["at"]), &what), "{entry}");
    if entry["call"].is_null() {
        assert_eq!(row.last(), Some(&dollars(&entry["amount"])), "{entry}");
    } else {
        let model = entry["call"]["model"].as_str().expect("a model");
        let call = format!("{model} {HOSTILE} {}", short(&entry["call"]["request_id"]));
        assert_eq!((&row[2], &row[3..6]), (&call, &money[..]), "{entry}");
    }
}

fn lines_of_one_request_stand_together(
    visitor: &Visitor,
    pages: &[Shown],
    (paid, expected): (&Value, &[Value]),
) {
    // The request that was refunded has all of its lines on its page.
    let hold = paid["call"]["hold"].as_str().expect("a hold");
    let request = paid["call"]["request_id"].as_str().expect("an id");
    let one = visitor.page(&format!("/requests/{request}"));
    let whats: Vec<String> = one.rows("money").iter().map(|row| row[1].clone()).collect();
    assert_eq!(
        whats,
        ["Held".to_owned(), "Paid".into(), "Refund refund-1".into(), format!("Refund {HOSTILE}")]
    );
    let charged: tollgate::money::Nanousd =
        paid["charged"].as_str().expect("text").parse().expect("money");
    let left = charged.saturating_sub(tollgate::money::Nanousd::new(201));
    assert!(one.text().contains(&format!("It has cost ${left}.")), "{}", one.text());
    is_harmless(&one);
    // A refund's line leads there.
    let refunds = pages.iter().flat_map(|page| page.links(&format!("/balance/{hold}")));
    let link = refunds.into_iter().next().expect("a link");
    let led = visitor.get(&link);
    assert_eq!(led.answer.header("location"), Some(format!("/console/requests/{request}")));
    // So has the one that the crash ended.
    let doubt = expected.iter().find(|entry| entry["kind"] == "in_doubt").expect("one");
    let request = doubt["call"]["request_id"].as_str().expect("an id");
    let one = visitor.page(&format!("/requests/{request}"));
    let whats: Vec<String> = one.rows("money").iter().map(|row| row[1].clone()).collect();
    assert_eq!(whats, ["Held", "In doubt the gateway stopped during the call"]);
}

#[test]
fn balance_and_statement_say_what_the_api_says() {
    let sim = simulator(&["usage=prompt=123", "usage=completion=77"]);
    let (mut gateway, mut visitor) = start(&sim);
    for _ in 0..55 {
        chat(&gateway, "m", "");
        chat(&gateway, "x-typed", r#", "stream": true"#);
    }
    for _ in 0..3 {
        chat(&gateway, "m-bad", "");
    }
    gateway.settled();
    let paid = entries(&gateway).into_iter().find(|entry| entry["kind"] == "settlement");
    let paid = paid.expect("a settlement");
    let hold = paid["call"]["hold"].as_str().expect("a hold");
    let path = format!("/admin/v1/accounts/{}/refunds", gateway.account);
    for (id, amount) in [("refund-1", "0.000000001"), (HOSTILE, "0.0000002")] {
        gateway.admin("POST", &path, &json!({"hold": hold, "amount": amount, "id": id}));
    }
    // One call is in flight when the process dies.
    let body = r#"{"model": "m-slow", "messages": [{"role": "user", "content": "hello"}]}"#;
    let mut waiting = crate::harness::connect(gateway.address);
    waiting.write_all(&gateway.chat_json(body)).expect("sent");
    eventually("a hold is open", || gateway.balance()["held"] != "0.00");
    let open = visitor.page("/balance");
    let first = open.rows("statement").remove(0);
    assert_eq!(first[1], "Held in flight", "{first:?}");
    assert_eq!(open.figure("held for calls in flight"), dollars(&gateway.balance()["held"]));
    gateway.kill_and_restart();
    visitor.moved_to(gateway.address);

    let balance = customer_get(&gateway, "/v1/balance");
    let pages = walk(&visitor, "/balance");
    for (label, field) in [
        ("available", "available"),
        ("held for calls in flight", "held"),
        ("spent", "spent"),
        ("credit ever given", "granted"),
    ] {
        assert_eq!(pages[0].figure(label), dollars(&balance[field]), "{field} of {balance}");
    }
    let expected = entries(&gateway);
    let shown: Vec<Vec<String>> = pages.iter().flat_map(|page| page.rows("statement")).collect();
    assert_eq!(shown.len(), expected.len(), "each entry once");
    assert!(shown.len() > 110 && pages.len() > 2, "{} on {} pages", shown.len(), pages.len());
    for (row, entry) in shown.iter().zip(&expected) {
        is_entry(row, entry);
    }
    pages.iter().for_each(is_harmless);

    lines_of_one_request_stand_together(&visitor, &pages, (&paid, &expected));
}

/// A row of the list says what the admin API says of the request.
fn is_logged(row: &[String], logged: &Value) {
    let request = format!("{} {}", short(&logged["request_id"]), utc(&logged["began_at"]));
    assert_eq!(row[0], request, "{logged}");
    assert!(row[1].starts_with(logged["model"].as_str().unwrap_or_default()), "{logged}");
    let error = logged["error_code"].as_str().map_or(String::new(), |code| format!(" {code}"));
    assert_eq!(row[2], format!("{}{error}", logged["status"]), "{logged}");
    let cost = if logged["cost"].is_null() { "–".to_owned() } else { dollars(&logged["cost"]) };
    assert_eq!(row[7], cost, "{logged}");
    if logged["streamed"] == true && logged["status"] == 200 {
        assert_eq!(row[3], logged["usage"]["input_tokens"].to_string(), "{logged}");
        assert_eq!(row[4], logged["usage"]["output_tokens"].to_string(), "{logged}");
        assert!(row[5].ends_with("ms") || row[5].ends_with('s'), "{row:?}");
    }
}

fn invalid_values_are_reported_beside_their_fields(visitor: &Visitor) {
    for (query, text, typed) in [
        ("status=4x", "A status such as 429", "value=\"4x\""),
        ("key=key_0000000000000000", "There is no such key", ""),
        ("status=%22%3E%3Cscript%3Ealert(1)", "A status such as 429", "&#60;script&#62;alert(1)"),
    ] {
        let shown = visitor.get(&format!("/requests?{query}"));
        assert_eq!(shown.status, 400, "{query}");
        assert!(
            shown.text().contains(text) && shown.html.contains(typed),
            "{query}: {}",
            shown.html
        );
        is_harmless(&shown);
    }
    let long = visitor.get(&format!("/requests?model={}", "m".repeat(300)));
    assert_eq!(long.status, 400, "an over-long model");
    assert!(long.text().contains("at most 256 bytes"), "{}", long.text());
}

#[test]
fn requests_are_filtered_and_walked_exactly_once() {
    let sim = simulator(&[]);
    let (mut gateway, visitor) = start(&sim);
    let mut ids = Vec::new();
    for number in 0..130 {
        let (model, more) = match number % 4 {
            0 => ("m", ""),
            1 => ("x-typed", r#", "stream": true"#),
            2 => ("m-bad", ""),
            _ => ("no-such-model", ""),
        };
        ids.push(chat(&gateway, model, more));
    }
    let second = key(&gateway, "second");
    gateway.key = second["key"].as_str().expect("a key").to_owned();
    ids.push(chat(&gateway, "m", ""));
    gateway.settled();
    let second = second["id"].as_str().expect("an id");

    let of = |filter: &str| {
        let path = format!("/admin/v1/requests?account={}&limit=41{filter}", gateway.account);
        everything(&gateway, &path)
    };
    assert_eq!(of("").len(), ids.len(), "all were kept");
    for (query, filter) in [
        ("", String::new()),
        ("?errors=1", "&errors=true".to_owned()),
        ("?model=m", "&model=m".to_owned()),
        ("?model=x-%2A", "&model=x-%2A".to_owned()),
        ("?status=4xx", "&status=4xx".to_owned()),
        ("?status=5xx&model=m-bad", "&status=5xx&model=m-bad".to_owned()),
        ("?status=200", "&status=200".to_owned()),
        ("?status=429", "&status=429".to_owned()),
        (&format!("?key={second}"), format!("&key={second}")),
        (&format!("?key={second}&errors=1"), format!("&key={second}&errors=true")),
    ] {
        let expected = of(&filter);
        let pages = walk(&visitor, &format!("/requests{query}"));
        let rows: Vec<Vec<String>> = pages.iter().flat_map(|page| page.rows("title")).collect();
        assert_eq!(rows.len(), expected.len(), "{query}");
        for (row, logged) in rows.iter().zip(&expected) {
            is_logged(row, logged);
        }
        pages.iter().for_each(is_harmless);
    }

    // What a list leads to is what the ledger has.
    let listed = visitor.page("/requests?model=m");
    let link = listed.links("/requests/req_").remove(0);
    let one = visitor.page(&link);
    let cost = &listed.rows("title")[0][7];
    assert!(one.text().contains(&format!("It has cost {cost}.")), "{}", one.text());
    let bare = link.split('?').next().expect("a path");
    assert_eq!(visitor.page(bare).rows("money"), one.rows("money"), "without its place");
    let refused = ids
        .iter()
        .rev()
        .find(|id| of("&status=404").iter().any(|it| it["request_id"] == id.as_str()));
    let refused = visitor.page(&format!("/requests/{}", refused.expect("one")));
    assert!(refused.text().contains("Nothing was held for this request"), "{}", refused.text());
    invalid_values_are_reported_beside_their_fields(&visitor);
}

fn the_file_says_the_same(visitor: &Visitor, rows: &[Value]) {
    let file = visitor.page("/usage.csv?days=7");
    let media_type = file.answer.header("content-type").expect("a type");
    assert!(media_type.starts_with("text/csv"), "{media_type}");
    let disposition = file.answer.header("content-disposition").expect("a disposition");
    assert!(disposition.starts_with("attachment; filename=\"usage-20"), "{disposition}");
    assert!(file.html.ends_with("\r\n"), "lines end with CRLF (RFC 4180)");
    let mut reader = csv::Reader::from_reader(file.html.as_bytes());
    let records: Vec<std::collections::HashMap<String, String>> =
        reader.deserialize().collect::<Result<_, _>>().expect("CSV");
    assert_eq!(records.len(), rows.len());
    for row in rows {
        let is_same = |record: &&std::collections::HashMap<String, String>| {
            ["date", "model", "key_id"].iter().all(|name| row[name] == record[*name].as_str())
        };
        let record = records.iter().find(is_same).unwrap_or_else(|| panic!("{row} in {records:?}"));
        assert_eq!(row["cost"], record["cost_usd"].as_str(), "{row}");
        for field in ["calls", "input_tokens", "output_tokens", "seconds", "images"] {
            assert_eq!(
                record[field],
                row[field].as_u64().unwrap_or(0).to_string(),
                "{field} of {row}"
            );
        }
        assert_eq!(record["key_name"], format!("'{HOSTILE}"), "no cell is a formula");
    }
}

#[test]
fn usage_and_its_file_say_what_the_api_says() {
    let sim = simulator(&["usage=prompt=1234", "usage=completion=77"]);
    let (gateway, visitor) = start(&sim);
    for model in ["m", "m", "x-typed", "m-bad"] {
        chat(&gateway, model, "");
    }
    chat(&gateway, "m", r#", "stream": true"#);
    let film = submit(&gateway, "film", None);
    eventually("the video is made", || {
        customer_get(&gateway, &format!("/v1/videos/generations/{film}"))["status"] == "succeeded"
    });
    gateway.settled();
    // The ledger's own reading brings the projection up to here.
    entries(&gateway);
    let reply = customer_get(&gateway, "/v1/usage?days=30");
    let rows = reply["data"].as_array().expect("a list").clone();
    assert_eq!(rows.len(), 3, "{reply}");
    let nano = |text: &str| text.parse::<tollgate::money::Nanousd>().expect("an amount").get();
    let cost: i64 = rows.iter().map(|row| nano(row["cost"].as_str().expect("a cost"))).sum();
    let sum = |field: &str| rows.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();

    for days in [7, 30, 90, 365] {
        let page = visitor.page(&format!("/usage?days={days}"));
        assert_eq!(nano(&page.figure("cost")[1..]), cost, "{days} days");
        assert_eq!(page.figure("calls"), sum("calls").to_string(), "{days} days");
        assert_eq!(page.figure("Input tokens").replace(',', ""), sum("input_tokens").to_string());
        // What the upstream reports counts, also above what was asked for.
        assert_eq!(page.figure("Seconds of video"), "77");
        let models = page.rows("by-model");
        assert_eq!(models.len(), 3, "{models:?}");
        for row in &rows {
            let model = row["model"].as_str().expect("a model");
            let shown = models.iter().find(|shown| shown[0] == model).expect("its row");
            assert_eq!(shown[1], row["calls"].to_string(), "{row}");
            assert_eq!(shown[4], dollars(&row["cost"]), "{row}");
        }
        let keys = page.rows("by-key");
        assert_eq!((keys.len(), keys[0][0].as_str()), (1, HOSTILE));
        assert_eq!(page.rows("by-day").len(), 1);
        // What the charts draw adds up to the same.
        for chart in page.html.split("data-chart=\"").skip(1) {
            let json = chart.split('"').next().expect("a value").replace("&#34;", "\"");
            let series: Value = serde_json::from_str(&json).expect("JSON");
            assert_eq!(series["x"].as_array().expect("days").len(), days, "{series}");
            let values = series["lines"].as_array().expect("lines").iter();
            let values = values.flat_map(|line| line["values"].as_array().expect("values").clone());
            let drawn: f64 = values.map(|value| value.as_f64().expect("a number")).sum();
            let tokens = (sum("input_tokens") + sum("output_tokens")) as f64;
            let expected = if series["unit"] == "$" { cost as f64 / 1e9 } else { tokens };
            assert!((drawn - expected).abs() < 1e-9, "{drawn} is drawn of {expected}");
        }
        is_harmless(&page);
    }

    the_file_says_the_same(&visitor, &rows);
    for wrong in ["/usage?days=8", "/usage?days=x", "/usage?days=-1"] {
        assert_eq!(visitor.page(wrong).figure("calls"), sum("calls").to_string(), "{wrong}");
    }
}

/// Takes announcements, and answers the first with the first status and so on.
fn receiver(statuses: &'static [u16]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let taken = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&taken);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("a handle"));
            let (mut line, mut length, mut signature) = (String::new(), 0, String::new());
            while lines.read_line(&mut line).is_ok_and(|read| read > 2) {
                let lower = line.to_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                if lower.starts_with("webhook-signature:") {
                    signature.clone_from(&line);
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if lines.read_exact(&mut body).is_err() {
                continue;
            }
            let mut log = log.lock().expect("no poison");
            let status = statuses.get(log.len()).or(statuses.last()).expect("a status");
            log.push(signature);
            drop(log);
            drop(write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            ));
        }
    });
    (address, taken)
}

fn announcements_are_sent_again(
    visitor: &Visitor,
    (film, failing, endless): (&str, &str, &str),
    hook: &str,
) {
    let hooks = visitor.page("/webhooks");
    let rows = hooks.rows("title");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (rows[0][1].as_str(), rows[0][2].as_str(), rows[0][3].as_str()),
        (hook, "tried again", "1")
    );
    assert!(rows[0][4].starts_with("answered 500, 20"), "{rows:?}");
    is_harmless(&hooks);
    let replay = format!("/webhooks/{film}/replay");
    assert_eq!(visitor.post(&replay, &[]).status, 403, "without the form's token");
    let token = hooks.token();
    let again = visitor.post(&replay, &[("csrf", &token)]);
    assert_eq!(again.status, 200, "{}", again.html);
    assert!(again.text().contains("It is being sent once more."), "{}", again.text());
    eventually("it is delivered", || visitor.page("/webhooks").rows("title")[0][2] == "delivered");
    let delivered = visitor.page(&format!("/videos/{film}"));
    assert!(delivered.text().contains("Announced answered 204 at"), "{}", delivered.text());
    for (task, text) in [(endless, "has not ended"), (failing, "without a webhook_url")] {
        let refused = visitor.post(&format!("/webhooks/{task}/replay"), &[("csrf", &token)]);
        assert_eq!(refused.status, 409, "{text}");
        assert!(refused.text().contains(text), "{}", refused.text());
    }
    let statuses: Vec<u16> =
        (0..12).map(|_| visitor.post(&replay, &[("csrf", &token)]).status).collect();
    assert!(statuses.contains(&429), "nobody is flooded: {statuses:?}");
}

/// The secret is on no page but the one that was asked for it.
fn the_secret_is_shown_on_demand(gateway: &Gateway, visitor: &Visitor) {
    let token = visitor.page("/webhooks").token();
    let path = format!("/admin/v1/accounts/{}/webhook-secret", gateway.account);
    let secret = gateway.admin("GET", &path, &Value::Null)["secret"].clone();
    let secret = secret.as_str().expect("a secret");
    assert!(!visitor.page("/webhooks").text().contains(secret), "not before it is asked for");
    assert_eq!(visitor.post("/webhooks/secret", &[]).status, 403, "without the form's token");
    assert_eq!(visitor.get("/webhooks/secret").status, 405, "no address leads to it");
    let shown = visitor.post("/webhooks/secret", &[("csrf", &token)]);
    assert!(shown.text().contains(secret), "{}", shown.text());
    assert_eq!(shown.answer.header("cache-control").as_deref(), Some("no-store"));
}

#[test]
fn videos_are_played_and_their_announcements_sent_again() {
    let sim = simulator(&[]);
    let (gateway, visitor) = start(&sim);
    assert!(visitor.page("/videos").text().contains("There are no videos"), "what to do");
    assert!(visitor.page("/webhooks").text().contains("Nothing was to be announced yet"));
    let (address, taken) = receiver(&[500, 204]);
    let hook = format!("http://{address}/hook?x=%22%3E<script>alert(1)</script>");
    let film = submit(&gateway, "film", Some(&hook));
    let count = |required: usize| {
        eventually("an announcement", || taken.lock().expect("no poison").len() == required)
    };
    count(1);
    let failing = submit(&gateway, "film-failing", None);
    let endless = submit(&gateway, "film-endless", None);
    let path = |id: &str| format!("/v1/videos/generations/{id}");
    eventually("it fails", || customer_get(&gateway, &path(&failing))["status"] == "failed");
    eventually("it runs", || customer_get(&gateway, &path(&endless))["status"] == "running");
    let record = customer_get(&gateway, &path(&film));

    let list = visitor.page("/videos");
    let rows = list.rows("title");
    let states: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(states, ["running", "failed", "succeeded"], "newest first");
    let costs: Vec<&str> = rows.iter().map(|row| row[4].as_str()).collect();
    assert_eq!(costs, ["–", "$0.00", "$0.50"]);
    for (state, expected) in [("open", 1), ("succeeded", 1), ("failed", 1), ("expired", 0)] {
        let listed = visitor.page(&format!("/videos?state={state}")).rows("title");
        assert_eq!(listed.len(), expected, "{state}");
    }
    assert_eq!(visitor.get("/videos?state=lost").status, 404, "there is no such state");

    let one = visitor.page(&format!("/videos/{film}"));
    let url = record["content"][0]["video_url"].as_str().expect("a URL");
    assert!(
        one.html.contains(&format!("<video controls preload=\"none\" src=\"{url}\"")),
        "{}",
        one.html
    );
    let policy = one.answer.header("content-security-policy").expect("a policy");
    assert!(policy.contains("media-src 'self' data: blob: https: http:"), "{policy}");
    assert!(!list.answer.header("content-security-policy").expect("one").contains("blob:"));
    assert!(one.text().contains(HOSTILE), "the prompt is there: {}", one.text());
    for step in ["Submitted", "A provider took it", "Succeeded", "Announcement is due answered 500"]
    {
        assert!(one.text().contains(step), "{step} in {}", one.text());
    }
    let lines = one.rows("money");
    let lines: Vec<[&str; 4]> =
        lines.iter().map(|row| [&*row[1], &*row[2], &*row[3], &*row[4]]).collect();
    assert_eq!(
        lines,
        [["Held", "$0.50", "", ""], ["Paid", "$0.50", "$0.50", "$0.00"]],
        "its hold and its end"
    );
    is_harmless(&one);
    let failed = visitor.page(&format!("/videos/{failing}"));
    let error = &customer_get(&gateway, &path(&failing))["error"];
    for part in ["code", "message"] {
        let text = error[part].as_str().expect("a text");
        assert!(failed.text().contains(text), "{text} in {}", failed.text());
    }
    is_harmless(&failed);
    let open = visitor.page(&format!("/videos/{endless}"));
    assert!(open.text().contains("Running since"), "{}", open.text());
    assert_eq!(open.rows("money")[0][1], "Held in flight");
    announcements_are_sent_again(&visitor, (&film, &failing, &endless), &hook);
    the_secret_is_shown_on_demand(&gateway, &visitor);
    assert!(taken.lock().expect("no poison")[0].contains("v1,"), "announcements are signed");
}

/// A customer reads what its own account pays, on the page of prices and beside what it was charged.
#[test]
fn prices_are_the_customers_own() {
    let sim = simulator(&[]);
    let (gateway, visitor) = start(&sim);
    let list = visitor.page("/prices");
    let stranger = Visitor::sign_up(&gateway, "another customer");
    let rules = json!({"rules": [{"models": "m", "factor": "3"}]});
    let path = format!("/admin/v1/accounts/{}/prices", gateway.account);
    gateway.admin("PUT", &path, &rules);

    let own = visitor.page("/prices");
    let reply = customer_get(&gateway, "/v1/models/m");
    let pricing = &reply["pricing"];
    let price = |name: &str| dollars(&pricing[name]);
    let message = format!(
        "input {}, output {} per 1M tokens",
        price("input_per_1m_tokens"),
        price("output_per_1m_tokens")
    );
    let version = pricing["version"].as_str().expect("a version");
    let row = ["m", &message, version];
    assert!(own.rows("main").iter().any(|found| *found == row), "{row:?} in {}", own.text());
    assert!(!list.text().contains(&message), "the list is another");
    assert!(!own.text().contains("x-*"), "no pattern is listed");
    assert_eq!(
        stranger.page("/prices").rows("main"),
        list.rows("main"),
        "a stranger pays the list"
    );
    let found = visitor.page("/prices?q=BAD");
    assert!(found.text().contains("m-bad") && !found.text().contains("film"), "{}", found.text());
    let none = visitor.page("/prices?q=%3Cb%3Enone").text();
    assert!(none.contains("No model has this in its name."), "{none}");

    // What it was charged by stays, whatever is paid later.
    let request = chat(&gateway, "m", "");
    gateway.settled();
    gateway.admin("PUT", &path, &json!({"rules": []}));
    let charged = visitor.page(&format!("/requests/{request}")).text();
    assert!(charged.contains(&format!("{message}version {version}")), "{charged}");
    assert!(!charged.contains("account:"), "not how it came about: {charged}");
}

/// Another model has served it: the page says what that one has cost.
#[test]
fn a_request_that_a_fallback_has_served_shows_what_it_cost() {
    let sim = simulator(&[]);
    let (gateway, visitor) = start(&sim);
    let request = chat(&gateway, "m-moved", "");
    let spent = gateway.settled()["spent"].clone();
    assert_ne!(spent, "0.00");
    let page = visitor.page(&format!("/requests/{request}"));
    let text = page.text();
    assert!(text.contains(&format!("It has cost {}.", dollars(&spent))), "{text}");
    let entries = entries(&gateway);
    let kinds: Vec<_> = entries.iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["settlement", "void", "grant"], "{entries:?}");
    assert_eq!(
        (&entries[1]["reason"], &entries[0]["call"]["model"]),
        (&json!("replaced"), &json!("m"))
    );
}

/// Their pages say what to do.
fn what_a_stranger_has_is_nothing(stranger: &Visitor, secrets: &[&String]) {
    for (path, text) in [
        ("/balance", "Nothing has happened yet"),
        ("/usage", "Nothing was used in these days"),
        ("/requests", "There were no requests yet"),
        ("/videos", "There are no videos"),
        ("/webhooks", "Nothing was to be announced yet"),
    ] {
        let shown = stranger.page(path);
        assert!(shown.text().contains(text), "{path}: {}", shown.text());
        for secret in secrets {
            assert!(!shown.html.contains(secret.as_str()), "{secret} on {path}");
        }
    }
    let before = stranger.page(&format!("/balance?before={}", u64::MAX));
    assert!(before.rows("statement").is_empty(), "another's entries");
    assert_eq!(stranger.page("/usage.csv").html.lines().count(), 1, "the header alone");
}

/// Every id of another's is answered like one that never was; cursors too.
#[test]
fn nothing_of_another_account_is_shown() {
    let sim = simulator(&[]);
    let (gateway, visitor) = start(&sim);
    let (address, taken) = receiver(&[204]);
    let film = submit(&gateway, "film", Some(&format!("http://{address}/hook")));
    let request = chat(&gateway, "m", "");
    for _ in 0..60 {
        chat(&gateway, "m", "");
    }
    eventually("an announcement", || taken.lock().expect("no poison").len() == 1);
    gateway.settled();
    let paid = entries(&gateway).into_iter().find(|entry| entry["kind"] == "settlement");
    let hold = paid.expect("one")["call"]["hold"].as_str().expect("a hold").to_owned();
    let key =
        gateway.admin("GET", &format!("/admin/v1/accounts/{}/keys", gateway.account), &Value::Null);
    let key = key["data"][0]["id"].as_str().expect("an id").to_owned();
    let older = visitor.page("/requests").older().expect("another page");
    let link = visitor.page("/requests").links("/requests/req_").remove(0);

    let stranger = Visitor::sign_up(&gateway, "second customer");
    let token = stranger.page("/webhooks").token();
    let unknown = |path: &str| {
        let shown = stranger.get(path);
        assert_eq!(shown.status, 404, "{path}: {}", shown.html);
        shown.without_token()
    };
    let nothing = unknown("/requests/req_00000000000000000000000000000000");
    for path in [
        format!("/requests/{request}"),
        link,
        older,
        format!("/videos/{film}"),
        format!("/videos?after={film}"),
        format!("/webhooks?after={film}"),
        format!("/balance/{hold}"),
        "/videos/gt_00000000000000000000000000000000".to_owned(),
        "/balance/hold_0000000000000000".to_owned(),
        "/requests/x".to_owned(),
        "/videos/x".to_owned(),
        "/balance/x".to_owned(),
        "/balance?before=x".to_owned(),
        "/videos?after=x".to_owned(),
    ] {
        assert_eq!(unknown(&path), nothing, "{path} is like what never was");
        if !path.contains("/x") && !path.ends_with('x') && !path.contains("0000000000000000") {
            assert_ne!(visitor.get(&path).status, 404, "{path} is its owner's");
        }
    }
    for task in [film.as_str(), "gt_00000000000000000000000000000000", "x"] {
        let shown = stranger.post(&format!("/webhooks/{task}/replay"), &[("csrf", &token)]);
        assert_eq!((shown.status, shown.without_token() == nothing), (404, true), "{task}");
    }
    let filtered = stranger.get(&format!("/requests?key={key}"));
    assert_eq!(filtered.status, 400, "another's key is none");
    assert!(filtered.text().contains("There is no such key"), "{}", filtered.text());
    what_a_stranger_has_is_nothing(&stranger, &[&request, &film, &hold, &key]);
    crate::harness::let_pass(
        Duration::from_millis(100),
        "a webhook must not be sent; those of its owner take less",
    );
    assert_eq!(taken.lock().expect("no poison").len(), 1, "nothing was sent for a stranger");

    // And guests are shown the way in.
    for path in ["/balance", "/usage", "/usage.csv", "/prices", "/requests", "/videos", "/webhooks"]
    {
        let request = format!("GET /console{path} HTTP/1.1\r\nHost: gateway\r\n\r\n");
        let answer = ask(gateway.address, request.as_bytes());
        assert_eq!(answer.header("location").as_deref(), Some("/console/login"), "{path}");
    }
}
