//! Customers' own prices: factors and lists by account and by group, with dates; fixed at admission and named
//! on the entry.
//!
//! Each call is answered with 5 tokens of input and 1 of output: by the list it costs $0.000015.

use serde_json::{Value, json};

use tollgate::sim::{Sim, SimOptions};

use crate::harness::{Gateway, Recorder, ask, chat_model, eventually};

fn gateway(upstream: &Recorder) -> Gateway {
    let address = upstream.address;
    let upstreams = format!("  u: {{ protocol: openai, base_url: 'http://{address}/v1' }}\n");
    let models = ["m-one", "m-two", "other"].map(|name| chat_model(name, "u"));
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

fn call(gateway: &Gateway, model: &str) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    let answer = ask(gateway.address, &gateway.chat_json(body.to_string()));
    assert_eq!(answer.status(), 200, "{model}: {answer:?}");
}

fn set(gateway: &Gateway, body: &Value) {
    let path = format!("/admin/v1/accounts/{}/prices", gateway.account);
    gateway.admin("PUT", &path, body);
}

/// Charges of calls of these models, with their price sources.
fn charged(gateway: &Gateway, models: &[&str]) -> Vec<(String, String)> {
    models.iter().for_each(|model| call(gateway, model));
    gateway.settled();
    let path = format!("/admin/v1/accounts/{}/entries?limit={}", gateway.account, models.len());
    let entries = || gateway.admin("GET", &path, &Value::Null)["data"].clone();
    let is_settled = |entries: &Value| {
        entries.as_array().expect("a list").iter().all(|entry| entry["kind"] == "settlement")
    };
    eventually("settlements", || is_settled(&entries()));
    let prices = || gateway.admin("GET", "/admin/v1/prices", &Value::Null)["data"].clone();
    let source = |version: &Value| {
        let prices = prices();
        let existing = prices.as_array().expect("a list").iter();
        let mut found = existing.filter(|price| price["version"] == *version);
        found.next().map(|price| price["sources"][0].as_str().expect("text").to_owned())
    };
    let entries = entries();
    let mut charged: Vec<_> = entries.as_array().expect("a list").iter().collect();
    charged.reverse();
    let charged = charged.into_iter().map(|entry| {
        let version = &entry["call"]["price"];
        assert!(version.is_string(), "{entry}");
        eventually("the price", || source(version).is_some());
        let amount = entry["charged"].as_str().expect("an amount").to_owned();
        (amount, source(version).expect("a source"))
    });
    charged.collect()
}

fn pair(charged: &str, source: &str) -> (String, String) {
    (charged.to_owned(), source.to_owned())
}

#[test]
fn a_customers_price_rule_precedes_the_groups_and_the_list() {
    let recorder = Recorder::start();
    let mut gateway = gateway(&recorder);
    let models = ["m-one", "m-two", "other"];
    let list = || pair("0.000015", "models.yaml");
    assert_eq!(charged(&gateway, &models), [list(), list(), list()]);
    let resellers = json!({"rules": [
        {"models": "m-*", "factor": "0.5"},
        {"models": "m-two", "prices": {"output_per_1m_tokens": "0"}},
    ]});
    gateway.admin("PUT", "/admin/v1/price-groups/resellers", &resellers);
    set(&gateway, &json!({"group": "resellers", "rules": []}));
    let expected = [
        pair("0.0000075", "group resellers: m-*"),
        pair("0.000005", "group resellers: m-two"),
        list(),
    ];
    assert_eq!(charged(&gateway, &models), expected);
    let own = json!({"models": "*", "factor": "2", "until": "2020-01-01T00:00:00Z"});
    let rules = json!([own, {"models": "other", "factor": "3"}]);
    set(&gateway, &json!({"group": "resellers", "rules": rules}));
    let expected = [expected[0].clone(), expected[1].clone(), pair("0.000045", "account: other")];
    assert_eq!(charged(&gateway, &models), expected, "what has ended counts no more");
    gateway.kill_and_restart();
    assert_eq!(charged(&gateway, &models), expected, "after a crash");
    let models_shown = ask(gateway.address, &gateway.get("/v1/models")).json();
    let priced = |id: &str| {
        let data = models_shown["data"].as_array().expect("a list");
        data.iter().find(|model| model["id"] == id).expect("a model")["pricing"].clone()
    };
    assert_eq!(priced("m-one")["input_per_1m_tokens"], "0.50", "{models_shown}");
    assert_eq!(priced("other")["output_per_1m_tokens"], "30.00");
    assert!(priced("other")["version"].is_string());
    set(&gateway, &json!({"rules": []}));
    assert_eq!(charged(&gateway, &models), [list(), list(), list()], "the list again");
}

/// A unit without a list price stays unsold: nothing would be held for it.
#[test]
fn own_prices_of_units_that_a_model_does_not_sell_have_no_effect() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder);
    let prices = json!({"input_per_1m_tokens": "2", "per_request": "0.5", "per_image": "1"});
    set(&gateway, &json!({"rules": [{"models": "m-one", "prices": prices}]}));
    let expected = [pair("0.00002", "account: m-one")];
    assert_eq!(charged(&gateway, &["m-one"]), expected);
    let shown = ask(gateway.address, &gateway.get("/v1/models/m-one")).json();
    assert_eq!(shown["pricing"]["input_per_1m_tokens"], "2.00", "{shown}");
    assert_eq!(shown["pricing"]["per_request"], Value::Null, "{shown}");
}

#[test]
fn a_rule_is_frozen_with_the_hold() {
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let base = format!("http://{}/sim:delay-ms=700/v1", sim.addr());
    let upstreams = format!("  u: {{ protocol: openai, base_url: '{base}' }}\n");
    let models = format!("models:\n{}", chat_model("m", "u"));
    let gateway = Gateway::serving(&upstreams, &models);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let request = gateway.chat_json(body.to_string());
    let query = || {
        assert_eq!(ask(gateway.address, &request).status(), 200);
        let spent = gateway.settled()["spent"].as_str().expect("an amount").parse::<f64>();
        spent.expect("a number")
    };
    let alone = query();
    let both = std::thread::scope(|scope| {
        let under_way = scope.spawn(query);
        eventually("a hold", || gateway.balance()["held"] != "0.00");
        set(&gateway, &json!({"rules": [{"models": "*", "factor": "100"}]}));
        under_way.join().expect("no panic")
    });
    assert!((both - 2.0 * alone).abs() < 1e-9, "{both}: charged as it was when the call came");
    let dear = query() - both;
    assert!((dear - 100.0 * alone).abs() < 1e-9, "{dear}: the next one pays more");
}

#[test]
fn what_can_be_no_rule_is_refused_by_name() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder);
    let path = format!("/admin/v1/accounts/{}/prices", gateway.account);
    for (rules, says) in [
        (json!([{"models": "*"}]), "either a `factor` or `prices`"),
        (json!([{"models": "*", "factor": "1", "prices": {}}]), "either a `factor` or `prices`"),
        (json!([{"models": "a b", "factor": "1"}]), "`models` is a model's name"),
        (json!([{"models": "*", "factor": "1001"}]), "from 0 to 1000"),
        (json!([{"models": "*", "factor": "-1"}]), "from 0 to 1000"),
        (json!([{"models": "*", "prices": {"per_word": "1"}}]), "`per_word` is no price"),
        (json!([{"models": "*", "prices": {"per_image": "-1"}}]), "dollars as a decimal"),
        (json!([{"models": "*", "factor": "1"}, {"models": "*", "factor": "2"}]), "same models"),
    ] {
        let (status, answer) = gateway.try_admin("PUT", &path, &json!({"rules": rules}));
        let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(status, 400, "{rules}: {message}");
        assert!(message.contains(says), "{rules}: {message}");
    }
    let (status, answer) =
        gateway.try_admin("PUT", &path, &json!({"group": "nobody", "rules": []}));
    assert_eq!(status, 400, "{answer}");
}
