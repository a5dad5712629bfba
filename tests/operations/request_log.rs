//! Finished requests as operators see them: over a real gateway, and across its end.

use std::time::Duration;

use crate::harness::{Admin, Customer, Demo, poll_async};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

/// How long the test waits for what is about to be over.
const WITHIN: Duration = Duration::from_secs(10);

fn hello(extra: Value) -> Value {
    let mut body = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]});
    let members = extra.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(members);
    body
}

fn request(demo: &Demo, key: &str, body: &Value, sim: &str) -> reqwest::RequestBuilder {
    demo.post("/v1/chat/completions", body, sim).bearer_auth(key)
}

/// Sends it; gives the status and the request's id.
async fn call(demo: &Demo, key: &str, body: &Value, sim: &str) -> (u16, String) {
    let answer = request(demo, key, body, sim).send().await.expect("an answer");
    let id = answer.headers()["x-request-id"].to_str().expect("text").to_owned();
    let status = answer.status().as_u16();
    answer.bytes().await.ok();
    (status, id)
}

/// The records that `query` asks for, once there are so many.
async fn records(admin: &Admin, query: &str, expected: usize) -> Vec<Value> {
    let data = poll_async("the records are readable", WITHIN, async || {
        let page = admin.get(&format!("/requests?{query}")).await;
        let data = page["data"].as_array().unwrap_or_else(|| panic!("{page}")).clone();
        if data.len() >= expected { Ok(data) } else { Err(data) }
    })
    .await;
    assert_eq!(data.len(), expected, "{data:?}");
    data
}

async fn of(admin: &Admin, customer: &Customer, expected: usize) -> Vec<Value> {
    records(admin, &format!("account={}", customer.account), expected).await
}

/// An upstream reports more than was held, and more than there is.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_leaves_owing_is_kept_beside_what_it_was_charged() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("0.001").await;
    let body = hello(json!({"max_tokens": 5}));
    let sim = "usage:prompt=10,completion=10000";
    assert_eq!(call(&demo, &customer.key, &body, sim).await.0, 200);
    let found = of(&admin, &customer, 1).await;
    let settled = &admin.settlements(&customer.account).await[0];
    assert_ne!(settled["owed"], "0.00", "{settled}");
    for (part, of_ledger) in [("cost", "charged"), ("owed", "owed")] {
        assert_eq!(found[0][part], settled[of_ledger], "as the ledger says: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_end_is_kept() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("10.00").await;
    let (status, first) = call(&demo, &customer.key, &hello(json!({})), "").await;
    assert_eq!(status, 200);
    let streamed = hello(json!({"stream": true}));
    assert_eq!(call(&demo, &customer.key, &streamed, "").await.0, 200);
    let unknown = hello(json!({"model": "no-such-model"}));
    assert_eq!(call(&demo, &customer.key, &unknown, "").await.0, 404);
    let (failed, _) = call(&demo, &customer.key, &hello(json!({})), "fault:status=500").await;
    assert!(failed >= 500, "an upstream's failure: {failed}");

    let found = of(&admin, &customer, 4).await;
    let [failed, unknown, streamed, good] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(good["request_id"], first);
    assert_eq!(good["account_id"], customer.account);
    assert_eq!((&good["status"], &good["is_error"]), (&json!(200), &json!(false)));
    assert_eq!(good["model"], "gpt-4o-mini");
    assert_eq!(good["operation"], "chat");
    assert_eq!(good["kind"], "request");
    assert!(good["usage"]["output_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{good}");
    assert!(good["ttfb_ms"].as_f64() <= good["duration_ms"].as_f64(), "{good}");
    assert!(good["bytes_in"].as_u64() > Some(20) && good["bytes_out"].as_u64() > Some(20));
    let settlements = admin.settlements(&customer.account).await;
    let paid = |id: &Value| {
        let it = settlements.iter().find(|it| it["call"]["request_id"] == *id);
        it.map_or(Value::Null, |it| it["charged"].clone())
    };
    for (record, streams) in [(good, false), (streamed, true)] {
        assert_eq!(record["cost"], paid(&record["request_id"]), "as the ledger says: {record}");
        assert_eq!(record["streamed"], streams, "{record}");
    }
    assert_eq!((&unknown["status"], &unknown["cost"]), (&json!(404), &Value::Null));
    assert_eq!(unknown["model"], Value::Null, "what was typed is not kept: {unknown}");
    assert_eq!((&failed["is_error"], &failed["cost"]), (&json!(true), &json!("0.00")), "{failed}");
    assert!(failed["upstream"].is_string() && failed["error_code"].is_string(), "{failed}");

    let one = admin.get(&format!("/requests/{first}")).await;
    assert_eq!(one, *good);
    let none = admin.get("/requests/req_00000000000000000000000000000001").await;
    assert_eq!(none["error"]["code"], "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_those_who_leave_are_kept() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let poor = admin.customer("0.000001").await;
    assert_eq!(call(&demo, &poor.key, &hello(json!({})), "").await.0, 402);
    let [refused] = of(&admin, &poor, 1).await.try_into().expect("one");
    assert_eq!(
        (&refused["status"], &refused["error_code"]),
        (&json!(402), &json!("insufficient_balance"))
    );

    let busy = admin.customer("10.00").await;
    let patch = json!({"limits": {"requests_per_minute": 1}});
    let url = format!("{}/admin/v1/accounts/{}", demo.admin_url, busy.account);
    let patched = crate::harness::http().patch(url).bearer_auth(&demo.admin_token).json(&patch);
    assert_eq!(patched.send().await.expect("an answer").status(), 200);
    assert_eq!(call(&demo, &busy.key, &hello(json!({})), "").await.0, 200);
    assert_eq!(call(&demo, &busy.key, &hello(json!({})), "").await.0, 429);
    let [limited, _] = of(&admin, &busy, 2).await.try_into().expect("two");
    assert_eq!((&limited["status"], &limited["is_error"]), (&json!(429), &json!(true)));

    assert_eq!(call(&demo, "sk-no-such-key", &hello(json!({})), "").await.0, 401);
    let [unknown] = records(&admin, "account=none", 1).await.try_into().expect("one");
    assert_eq!((&unknown["status"], &unknown["account_id"]), (&json!(401), &Value::Null));

    let removed = admin.customer("10.00").await;
    let slow = "chunks:200 words:1 interval-ms:20";
    let sent = request(&demo, &removed.key, &hello(json!({"stream": true})), slow).send().await;
    let mut stream = sent.expect("an answer").bytes_stream();
    for _ in 0..3 {
        stream.next().await.expect("a chunk").expect("bytes");
    }
    drop(stream);
    let [left] = of(&admin, &removed, 1).await.try_into().expect("one");
    assert_eq!((&left["usage_source"], &left["streamed"]), (&json!("estimated"), &json!(true)));
    assert!(left["cost"].is_string(), "what was relayed is paid: {left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_video_is_kept_when_it_is_submitted_and_when_it_ends() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("10.00").await;
    let body = json!({
        "model": "vf2.7-t2v",
        "input": {"prompt": "a lighthouse"},
        "parameters": {"resolution": "720P", "duration": 5},
    });
    let submit = demo.post("/v1/videos/generations", &body, "").bearer_auth(&customer.key);
    let answer: Value = submit.send().await.expect("an answer").json().await.expect("JSON");
    let task = answer["id"].clone();
    assert!(task.is_string(), "{answer}");
    let [end, submit] = poll_async("the task ends", Duration::from_secs(60), async || {
        let page = admin.get(&format!("/requests?account={}", customer.account)).await;
        <[Value; 2]>::try_from(page["data"].as_array().expect("a list").clone())
    })
    .await;
    assert_eq!((&submit["task_id"], &end["task_id"]), (&task, &task));
    assert_eq!((&submit["kind"], &end["kind"]), (&json!("request"), &json!("task")));
    assert_eq!((&submit["operation"], &submit["cost"]), (&json!("video"), &Value::Null));
    assert_eq!((&end["task_state"], &end["usage"]["seconds"]), (&json!("succeeded"), &json!(5)));
    assert_eq!(end["cost"], admin.settlements(&customer.account).await[0]["charged"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_filtered_and_of_one_account() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let (one, other) = (admin.customer("10.00").await, admin.customer("10.00").await);
    for number in 0..12 {
        let key = if number % 3 == 0 { &other.key } else { &one.key };
        let model = if number % 2 == 0 { "gpt-4o-mini" } else { "no-such-model" };
        call(&demo, key, &hello(json!({"model": model})), "").await;
    }
    let all = of(&admin, &one, 8).await;
    assert!(all.iter().all(|it| it["account_id"] == one.account), "{all:?}");
    let (mut paged, mut before) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/requests?account={}&limit=3{before}", one.account)).await;
        paged.extend(page["data"].as_array().expect("a list").clone());
        if page["has_more"] != true {
            break;
        }
        before = format!("&before={}", page["next_before"]);
    }
    assert_eq!(paged, all);
    let account = format!("account={}", one.account);
    assert_eq!(records(&admin, &format!("{account}&errors=true"), 4).await.len(), 4);
    assert_eq!(records(&admin, &format!("{account}&status=4xx"), 4).await.len(), 4);
    assert_eq!(
        records(&admin, &format!("{account}&status=200&model=gpt-4o-mini"), 4).await.len(),
        4
    );
    let key = all[0]["key_id"].as_str().expect("an id");
    assert_eq!(records(&admin, &format!("{account}&key={key}"), 8).await.len(), 8);
    assert_eq!(records(&admin, &format!("key={key}"), 8).await.len(), 8);
    assert_eq!(records(&admin, "", 12).await.len(), 12);
    // Another one's position is no way into a list.
    let theirs = of(&admin, &other, 4).await[0]["position"].clone();
    for wrong in [format!("{account}&before={theirs}"), format!("{account}&before=7777777")] {
        let refused = admin.get(&format!("/requests?{wrong}")).await;
        assert_eq!(refused["error"]["param"], "before", "{refused}");
    }
    for wrong in
        ["status=9xx", "limit=0", "limit=501", "account=all", "key=sk-1", "errors=maybe", "x=1"]
    {
        let refused = admin.get(&format!("/requests?{wrong}")).await;
        assert_eq!(refused["error"]["code"], "invalid_request_error", "{refused}");
    }
    let refused = admin.get("/requests?account=acct_0000000000000000").await;
    assert_eq!(refused["error"]["code"], "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_goes_on_behind_a_kill() {
    let data = tempfile::tempdir().expect("a directory");
    let (kept, customer) = {
        let demo = Demo::on(data.path());
        let admin = Admin::of(&demo);
        let customer = admin.customer("10.00").await;
        for _ in 0..5 {
            assert_eq!(call(&demo, &customer.key, &hello(json!({})), "").await.0, 200);
        }
        (of(&admin, &customer, 5).await, customer)
    };
    let demo = Demo::on(data.path());
    let admin = Admin::of(&demo);
    assert_eq!(of(&admin, &customer, 5).await, kept, "what was read is there after kill -9");
    assert_eq!(call(&demo, &customer.key, &hello(json!({})), "").await.0, 200);
    let more = of(&admin, &customer, 6).await;
    assert_eq!(more[1..], kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tail_shows_requests_as_they_end() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let (one, other) = (admin.customer("10.00").await, admin.customer("10.00").await);
    let url = format!("{}/admin/v1/requests/tail", demo.admin_url);
    let refused = crate::harness::http().get(&url).send().await.expect("an answer");
    assert_eq!(refused.status(), 401, "without the token");
    let follow = |query: String| {
        let call =
            crate::harness::http().get(format!("{url}{query}")).bearer_auth(&demo.admin_token);
        async move { call.send().await.expect("an answer") }
    };
    let all = follow(String::new()).await;
    assert_eq!(all.headers()["content-type"], "text/event-stream");
    let own = follow(format!("?account={}", one.account)).await;
    let (_, first) = call(&demo, &other.key, &hello(json!({})), "").await;
    let (_, second) = call(&demo, &one.key, &hello(json!({})), "").await;
    assert_eq!(events(all, 2).await, [first, second.clone()]);
    assert_eq!(events(own, 1).await, [second]);
    let mut open = Vec::new();
    let refused = loop {
        let answer = follow(String::new()).await;
        match answer.status().as_u16() {
            200 if open.len() < 40 => open.push(answer),
            status => break status,
        }
    };
    assert_eq!((refused, open.len() >= 14), (429, true), "{} tails", open.len());
}

/// The ids in the first `count` events.
async fn events(answer: reqwest::Response, count: usize) -> Vec<String> {
    let (mut stream, mut text) = (answer.bytes_stream(), String::new());
    while text.matches("\n\n").count() < count {
        let chunk = tokio::time::timeout(WITHIN, stream.next()).await.expect("in time");
        text += std::str::from_utf8(&chunk.expect("more").expect("bytes")).expect("text");
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let records = data.map(|data| serde_json::from_str::<Value>(data).expect("JSON"));
    records.map(|it| it["request_id"].as_str().expect("an id").to_owned()).collect()
}
