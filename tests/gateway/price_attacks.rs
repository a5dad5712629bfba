//! Attempts to change the price of a call or to corrupt the books: changes during a call, absurd counts,
//! prices at the end of the range.

use serde_json::{Value, json};
use tollgate::clock::UnixMs;
use tollgate::sim::Sim;

use crate::harness::{Gateway, Recorder, ask, chat_model, eventually, simulator};

fn gateway(sim: &Sim, settings: &str, models: &str) -> Gateway {
    let base = format!("http://{}/sim:{settings}/v1", sim.addr());
    let upstreams = format!("  u: {{ protocol: openai, base_url: '{base}' }}\n");
    Gateway::serving(&upstreams, &format!("models:\n{models}"))
}

fn body(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string()
}

/// Charge of a call of `m` while `change` is made, in nano-dollars.
fn charged(gateway: &Gateway, change: impl FnOnce() + Send) -> i64 {
    let nano = |balance: &Value| {
        let dollars = balance["spent"].as_str().expect("an amount");
        let (whole, decimals) = dollars.split_once('.').expect("decimals");
        format!("{whole}{decimals:0<9}").parse::<i64>().expect("a number")
    };
    let before = nano(&gateway.settled());
    std::thread::scope(|scope| {
        let call = || ask(gateway.address, &gateway.chat_json(body("m")));
        let under_way = scope.spawn(call);
        eventually("a hold", || gateway.balance()["held"] != "0.00");
        change();
        let answer = under_way.join().expect("no panic");
        assert_eq!(answer.status(), 200, "{answer:?}");
    });
    nano(&gateway.settled()) - before
}

/// Whatever is changed, and whichever way it goes: the price is that of the moment of the hold.
#[test]
fn nothing_that_changes_while_a_call_is_open_changes_its_price() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=600", &chat_model("m", "u"));
    let account = format!("/admin/v1/accounts/{}/prices", gateway.account);
    let of_account = |body: Value| gateway.admin("PUT", &account, &body);
    let of_group = |rules: Value| {
        gateway.admin("PUT", "/admin/v1/price-groups/resellers", &json!({"rules": rules}))
    };
    let list = charged(&gateway, || {});
    of_group(json!([{"models": "m", "factor": "100"}]));
    of_account(json!({"group": "resellers", "rules": []}));
    let dear = charged(&gateway, || {
        of_group(json!([]));
    });
    assert_eq!(dear, 100 * list, "the group has lost its rules while the call was open");
    of_group(json!([{"models": "m", "factor": "100"}]));
    let dear = charged(&gateway, || {
        of_account(json!({"rules": []}));
    });
    assert_eq!(dear, 100 * list, "the account has left the group while the call was open");
    let ends = UnixMs(UnixMs::now().0 + 400).to_rfc3339();
    of_account(json!({"rules": [{"models": "m*", "factor": "100", "until": ends}]}));
    let dear = charged(&gateway, || {});
    assert_eq!(dear, 100 * list, "the rule has ended while the call was open");
    assert_eq!(charged(&gateway, || {}), list, "and counts no more");
    let file = gateway.path("models.yaml");
    let typed = std::fs::read_to_string(&file).expect("the file");
    let reloaded = charged(&gateway, || {
        let dearer = typed.replace("output_per_1m_tokens: 10", "output_per_1m_tokens: 1000");
        std::fs::write(&file, dearer).expect("written");
        gateway.admin("POST", "/admin/v1/reload", &Value::Null);
    });
    assert_eq!(reloaded, list, "the list has changed while the call was open");
    assert!(charged(&gateway, || {}) > 50 * list, "and counts from now on");
}

/// An upstream that reports more tokens than there are numbers for ruins nobody's books: the account
/// owes it, calls no more, and debits are credits.
#[test]
fn absurd_counts_ruin_no_books() {
    let sim = simulator(&[]);
    let cost = "targets: [{ upstream: u, cost: { of: list, times: 1000 } }]";
    let models = chat_model("m", "u").replace("targets: [{ upstream: u }]", cost);
    let settings = "delay-ms=400;usage=prompt=4000000000000000000,completion=4000000000000000000";
    let gateway = gateway(&sim, settings, &models);
    std::thread::scope(|scope| {
        let call = || ask(gateway.address, &gateway.chat_json(body("m")));
        let calls = [scope.spawn(call), scope.spawn(call), scope.spawn(call)];
        for one in calls {
            assert_eq!(one.join().expect("no panic").status(), 200);
        }
    });
    let balance = gateway.settled();
    assert_eq!((&balance["spent"], &balance["available"]), (&json!("10.00"), &json!("0.00")));
    assert_eq!(balance["debt"], "9223372036.854775807", "{balance}");
    let refused = ask(gateway.address, &gateway.chat_json(body("m")));
    assert_eq!(refused.status(), 402, "{refused:?}");
    let books = gateway.admin("POST", "/admin/v1/ledger/trial-balance", &Value::Null);
    assert_eq!((&books["ok"], &books["adds_up"]), (&json!(true), &json!(true)), "{books}");
    let margins = || gateway.admin("GET", "/admin/v1/margins?by=model", &Value::Null);
    eventually("the margin", || margins()["data"][0]["calls"] == 3);
    assert_eq!(margins()["data"][0]["cost"], "9223372036.854775807", "it stays at its end");
}

/// The dearest list times the largest factor is past the range: refused as what nobody can pay, and
/// never free.
#[test]
fn prices_at_the_end_of_the_range_are_not_free() {
    let recorder = Recorder::start();
    let address = recorder.address;
    let upstreams = format!("  u: {{ protocol: openai, base_url: 'http://{address}/v1' }}\n");
    let dear = "prices: { input_per_1m_tokens: 9000000000, output_per_1m_tokens: 9000000000 }";
    let usual = "prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }";
    let models = format!("models:\n{}", chat_model("m", "u").replace(usual, dear));
    let gateway = Gateway::serving(&upstreams, &models);
    let path = format!("/admin/v1/accounts/{}/prices", gateway.account);
    for factor in ["1", "1000"] {
        gateway.admin("PUT", &path, &json!({"rules": [{"models": "*", "factor": factor}]}));
        let answer = ask(gateway.address, &gateway.chat_json(body("m")));
        assert_eq!(answer.status(), 402, "times {factor}: {answer:?}");
    }
    assert!(recorder.requests().is_empty(), "nothing went upstream");
    // At a price of nothing even an account without money is served, and charged nothing.
    gateway.admin("PUT", &path, &json!({"rules": [{"models": "*", "factor": "0"}]}));
    let answer = ask(gateway.address, &gateway.chat_json(body("m")));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(gateway.settled()["spent"], "0.00");
}
