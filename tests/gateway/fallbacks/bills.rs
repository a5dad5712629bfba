//! Hold, charge and reported model of a request that another model may serve.

use serde_json::{Value, json};
use tollgate::sim::Behaviour;

use super::{CHEAP, DEAR, NAMED, body, chat, dollars, gateway, model, nothing, serve, upstream};
use crate::harness::{Gateway, Recorder, ask, eventually, simulator};
use crate::odd_upstreams::{json_with, upstream_that_says};

/// The most that a request can cost, as a refusal for want of money says it.
fn bound(gateway: &Gateway, model: &str) -> String {
    let key = gateway.stranger();
    let request = String::from_utf8(gateway.chat_json(body(model, nothing()))).expect("text");
    let answer = ask(gateway.address, request.replace(&gateway.key, &key).as_bytes());
    assert_eq!(answer.status(), 402, "{answer:?}");
    let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    let amount = message.strip_prefix("This request can cost up to $").expect("an amount");
    amount.split(',').next().expect("an amount").to_owned()
}

#[test]
fn logs_metrics_costs_and_the_ledger_name_the_model_that_served() {
    let (sim, recorder) = (simulator(&[]), Recorder::start());
    let upstreams = [
        upstream("bad", sim.addr(), "/sim:fault=status=500", ""),
        upstream("good", recorder.address, "", ""),
    ];
    let dear =
        model("dear", "good", DEAR, "").replace("dear-there", "dear-there, cost: { of: list }");
    let cheap = model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n");
    let gateway = serve(&upstreams, &[cheap, dear]);
    let answer = chat(&gateway, "cheap", nothing());
    assert_eq!(answer.status(), 200, "{answer:?}");
    gateway.settled();
    let requests = || gateway.admin("GET", "/admin/v1/requests", &Value::Null)["data"].clone();
    eventually("the request log", || requests()[0]["cost"] == "0.00015");
    let logged = &requests()[0];
    assert_eq!(
        (&logged["model"], &logged["asked_model"], &logged["upstream"]),
        (&json!("dear"), &json!("cheap"), &json!("good")),
        "{logged}"
    );
    for model in ["cheap", "dear", "alone"] {
        let path = format!("/admin/v1/requests?model={model}");
        let found = gateway.admin("GET", &path, &Value::Null)["data"].clone();
        let count = usize::from(model != "alone");
        assert_eq!(found.as_array().map(Vec::len), Some(count), "{model}: {found}");
    }
    assert_eq!(gateway.metric(r#"tollgate_spend_dollars_total{model="dear"}"#), 0.000_15);
    let margins =
        || gateway.admin("GET", "/admin/v1/margins?by=model", &Value::Null)["data"].clone();
    eventually("the margin", || margins()[0]["model"] == "dear");
    assert_eq!(margins()[0]["cost"], "0.00015", "{}", margins());
    let path = format!("/admin/v1/accounts/{}/entries", gateway.account);
    let settlement = || {
        let entries = gateway.admin("GET", &path, &Value::Null)["data"].clone();
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.into_iter().find(|entry| entry["kind"] == "settlement").unwrap_or_default()
    };
    eventually("the entry", || settlement()["charged"] == "0.00015");
    let call = settlement()["call"].clone();
    assert_eq!(call["model"], "dear", "{call}");
    let prices = || gateway.admin("GET", "/admin/v1/prices", &Value::Null)["data"].clone();
    let noted = || {
        let prices = prices().as_array().cloned().unwrap_or_default();
        prices.into_iter().find(|price| price["version"] == call["price"]).unwrap_or_default()
    };
    eventually("the price that it was charged by", || noted()["model"] == "dear");
}

#[test]
fn the_hold_covers_the_most_expensive_fallback() {
    let sim = simulator(&["delay-ms=1500"]);
    let upstreams =
        format!("  slow: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", sim.addr());
    // The names are of one length: a request is estimated by its bytes.
    let models = [
        model("cheap", "slow", CHEAP, "    fallbacks: [costs]\n"),
        model("alone", "slow", CHEAP, ""),
        model("costs", "slow", DEAR, ""),
    ];
    let gateway = serve(&[upstreams], &models);
    let [cheap, alone, dear] = ["cheap", "alone", "costs"].map(|model| bound(&gateway, model));
    assert_eq!(cheap, dear, "a refusal names the amount of the dearest");
    let ratio = dollars(&json!(dear)) / dollars(&json!(alone));
    assert!((ratio - 10.0).abs() < 1e-9, "{dear} is ten times {alone}");
    let before = gateway.balance()["spent"].clone();
    assert_eq!(before, "0.00");
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| chat(&gateway, "cheap", nothing()));
        eventually("a hold", || gateway.balance()["held"] != "0.00");
        assert_eq!(dollars(&gateway.balance()["held"]), dollars(&json!(dear)));
        assert_eq!(caller.join().expect("no panic").header(NAMED), None);
    });
    let as_requested = dollars(&gateway.settled()["spent"]);
    assert_eq!(chat(&gateway, "alone", nothing()).status(), 200);
    let both = dollars(&gateway.settled()["spent"]);
    assert!((both - 2.0 * as_requested).abs() < 1e-12, "charged as if it had no fallback");

    // Money for one alone and not for the other is a refusal, and not an answer without a fallback.
    let key = gateway.customer("poor", Some(alone.as_str()));
    for (model, status) in [("cheap", 402), ("alone", 200)] {
        let request = String::from_utf8(gateway.chat_json(body(model, nothing()))).expect("text");
        let answer = ask(gateway.address, request.replace(&gateway.key, &key).as_bytes());
        assert_eq!(answer.status(), status, "{model}: {answer:?}");
    }
}

/// An unknown cost is charged, or lost, at most at the bound of the model that was called, not at the hold
/// for a more expensive one.
#[test]
fn what_a_model_may_have_done_costs_no_more_than_that_model() {
    let (hanging, recorder) = (simulator(&[]), Recorder::start());
    let total = ", timeouts: { connect: 1s, read: 300ms, total: 1s }";
    let hang = format!("/sim:{}", "fault=hang");
    let silent = upstream("bad", hanging.addr(), &hang, "")
        .replace(", timeouts: { connect: 1s, read: 300ms }", total);
    let models = [
        model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n    on_disconnect: { time: 1s }\n"),
        model("alone", "bad", CHEAP, ""),
        model("dear", "good", DEAR, ""),
    ];
    let good = upstream("good", recorder.address, "", "");
    let gateway = serve(&[silent, good.clone()], &models);
    let answer = chat(&gateway, "cheap", nothing());
    assert_eq!((answer.status(), answer.header(NAMED)), (504, None), "{answer:?}");
    assert_eq!(recorder.requests().len(), 0, "the work may have been done");
    let most = dollars(&json!(bound(&gateway, "alone")));
    assert_eq!(dollars(&gateway.settled()["spent"]), most);

    // Where the operator lets it be repeated, the loss is that of the model which was asked first.
    let bad = upstream("bad", hanging.addr(), &hang, ", retries: { on: [timeout] }");
    let gateway = serve(&[bad, good], &models);
    let answer = chat(&gateway, "cheap", nothing());
    assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.00015");
    let losses = || gateway.admin("GET", "/admin/v1/ledger/losses", &Value::Null)["data"].clone();
    eventually("the loss", || losses()[0]["cause"] == "retry");
    let loss = losses()[0].clone();
    assert_eq!((&loss["model"], dollars(&loss["amount"])), (&json!("cheap"), most), "{loss}");
}

#[test]
fn a_crash_while_a_fallback_works_gives_the_hold_back() {
    let (bad, slow) = (simulator(&[]), simulator(&["delay-ms=5000"]));
    let upstreams = [
        upstream("bad", bad.addr(), "/sim:fault=status=500", ""),
        format!("  good: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", slow.addr()),
    ];
    let models =
        [model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n"), model("dear", "good", DEAR, "")];
    let mut gateway = serve(&upstreams, &models);
    let (address, request) = (gateway.address, gateway.chat_json(body("cheap", nothing())));
    let caller = std::thread::spawn(move || {
        std::panic::catch_unwind(|| ask(address, &request)).map(|answer| answer.status()).ok()
    });
    eventually("the fallback is asked", || slow.requests_total() == 1);
    gateway.kill_and_restart();
    assert_ne!(caller.join().expect("no panic"), Some(200));
    let balance = gateway.settled();
    assert_eq!((&balance["spent"], &balance["available"]), (&json!("0.00"), &json!("10.00")));
    slow.set_behaviour(Behaviour::default());
    assert_eq!(chat(&gateway, "cheap", nothing()).header(NAMED).as_deref(), Some("dear"));
}

#[test]
fn the_hold_stays_that_of_the_dearest_and_each_model_has_its_own_entries() {
    let (bad, slow) = (simulator(&[]), simulator(&["delay-ms=1000"]));
    let upstreams = [
        upstream("bad", bad.addr(), "/sim:fault=status=500", ""),
        format!("  good: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", slow.addr()),
    ];
    let middle = "{ input_per_1m_tokens: 2, output_per_1m_tokens: 20 }";
    let models = [
        model("cheap", "bad", CHEAP, "    fallbacks: [plain, costs]\n"),
        model("plain", "good", middle, ""),
        model("costs", "good", DEAR, ""),
    ];
    let mut gateway = serve(&upstreams, &models);
    let dearest = dollars(&json!(bound(&gateway, "costs")));
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| chat(&gateway, "cheap", nothing()));
        eventually("the fallback is asked", || slow.requests_total() == 1);
        assert_eq!(dollars(&gateway.balance()["held"]), dearest, "it may come to the dearest yet");
        let answer = caller.join().expect("no panic");
        assert_eq!(answer.header(NAMED).as_deref(), Some("plain"), "{answer:?}");
    });
    let once = dollars(&gateway.settled()["spent"]);
    assert_eq!(chat(&gateway, "plain", nothing()).status(), 200);
    let twice = dollars(&gateway.settled()["spent"]);
    assert!((twice - 2.0 * once).abs() < 1e-12, "{once} of {twice}: the price of `plain`");

    let kinds = |gateway: &Gateway| {
        let path = format!("/admin/v1/accounts/{}/entries", gateway.account);
        let entries = gateway.admin("GET", &path, &Value::Null)["data"].clone();
        let entries = entries.as_array().cloned().unwrap_or_default();
        let call = |entry: &Value| (entry["kind"].clone(), entry["call"]["model"].clone());
        entries.iter().map(call).filter(|(_, model)| !model.is_null()).collect::<Vec<_>>()
    };
    let settled = (json!("settlement"), json!("plain"));
    let expected = [settled.clone(), settled, (json!("void"), json!("cheap"))];
    eventually("the entries", || kinds(&gateway) == expected);
    let usage = |gateway: &Gateway| {
        let path = format!("/admin/v1/accounts/{}/usage?by=day", gateway.account);
        gateway.admin("GET", &path, &Value::Null)["data"].clone()
    };
    eventually("the usage", || usage(&gateway)[0]["calls"] == 2);
    assert_eq!(usage(&gateway).as_array().map(Vec::len), Some(1), "{}", usage(&gateway));
    assert_eq!(usage(&gateway)[0]["model"], "plain");
    gateway.kill_and_restart();
    assert_eq!(dollars(&gateway.settled()["spent"]), twice, "it is in the journal");
}

#[test]
fn a_customer_pays_its_own_price_for_a_fallback() {
    let (bad, recorder) = (simulator(&[]), Recorder::start());
    let upstreams = [
        upstream("bad", bad.addr(), "/sim:fault=status=500", ""),
        upstream("good", recorder.address, "", ""),
    ];
    let models =
        [model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n"), model("dear", "good", DEAR, "")];
    let gateway = serve(&upstreams, &models);
    let path = format!("/admin/v1/accounts/{}/prices", gateway.account);
    let rules = json!({"rules": [{"models": "dear", "factor": "0.5"}]});
    gateway.admin("PUT", &path, &rules);
    let answer = chat(&gateway, "cheap", nothing());
    assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.000075");
}

/// An estimate is limited by the bound of the model that served, not by the hold for a more expensive one.
#[test]
fn an_estimate_comes_to_no_more_than_the_bound_of_the_model_that_served() {
    let text_found = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}],
                   "usage":{"completion_tokens":5000}}"#;
    let (odd, recorder) = (upstream_that_says(json_with("", text_found)), Recorder::start());
    let gateway = gateway((odd, ""), recorder.address, "");
    let answer = chat(&gateway, "cheap", nothing());
    assert_eq!((answer.status(), answer.header(NAMED)), (200, None), "{answer:?}");
    let spent = dollars(&gateway.settled()["spent"]);
    let most = dollars(&json!(bound(&gateway, "alone")));
    assert!(spent > 0.0 && spent <= most, "{spent} of {most}");
}

/// A request in progress is served and charged by the configuration that it began with.
#[test]
fn a_reload_before_a_fallback_changes_nothing_of_its_price() {
    let (bad, recorder) = (simulator(&[]), Recorder::start());
    let upstreams = [
        upstream("bad", bad.addr(), "/sim:delay-ms=250;fault=status=500", ""),
        upstream("good", recorder.address, "", ""),
    ];
    let models =
        [model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n"), model("dear", "good", DEAR, "")];
    let gateway = serve(&upstreams, &models);
    let answer = std::thread::scope(|scope| {
        let under_way = scope.spawn(|| chat(&gateway, "cheap", nothing()));
        eventually("the first model is asked", || bad.requests_total() == 1);
        let file = gateway.path("models.yaml");
        let typed = std::fs::read_to_string(&file).expect("the file");
        std::fs::write(&file, typed.replace(DEAR, CHEAP)).expect("written");
        gateway.admin("POST", "/admin/v1/reload", &Value::Null);
        under_way.join().expect("no panic")
    });
    assert_eq!(answer.header(NAMED).as_deref(), Some("dear"), "{answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.00015");
    let later = chat(&gateway, "dear", nothing());
    assert_eq!((later.status(), &gateway.settled()["spent"]), (200, &json!("0.000165")));
}

#[test]
fn a_request_that_no_model_serves_costs_nothing() {
    let bad = simulator(&[]);
    let upstreams = [upstream("bad", bad.addr(), "/sim:fault=status=500", "")];
    let models =
        [model("cheap", "bad", CHEAP, "    fallbacks: [dear]\n"), model("dear", "bad", DEAR, "")];
    let gateway = serve(&upstreams, &models);
    let answer = chat(&gateway, "cheap", nothing());
    assert_eq!((answer.status(), answer.header(NAMED)), (502, None), "{answer:?}");
    assert_eq!(bad.requests_total(), 2);
    let balance = gateway.settled();
    assert_eq!((&balance["spent"], &balance["available"]), (&json!("0.00"), &json!("10.00")));
}
