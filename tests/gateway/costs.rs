//! The operator's cost of calls: by prices at a target, by a share of the list, and unknown.
//!
//! Each call is answered with 5 tokens of input and 1 of output, and is charged $0.000015.

use serde_json::json;

use crate::harness::{Gateway, Recorder, ask, chat_model, eventually};

fn gateway(upstream: &Recorder) -> Gateway {
    let address = upstream.address;
    let upstreams = format!(
        "  u: {{ protocol: openai, base_url: 'http://{address}/v1' }}
  v: {{ protocol: openai, base_url: 'http://{address}/v1' }}
"
    );
    let with = |name: &str, upstream: &str, cost: &str| {
        let target = format!("{{ upstream: {upstream} }}");
        let costly = format!("{{ upstream: {upstream}, cost: {cost} }}");
        chat_model(name, upstream).replace(&target, &costly)
    };
    let models = [
        with("own", "u", "{ input_per_1m_tokens: 0.5, output_per_1m_tokens: 4 }"),
        with(
            "long",
            "u",
            "{ input_per_1m_tokens: 0.5, output_per_1m_tokens: 4, prices_when: [{ when: \
             { input_tokens_above: 4 }, prices: { output_per_1m_tokens: 8 } }] }",
        ),
        with(
            "fee",
            "u",
            "{ input_per_1m_tokens: 0.5, output_per_1m_tokens: 4, per_request: 0.01 }",
        ),
        with("share", "v", "{ of: list, times: 0.8 }"),
        with("silent", "u", "{ of: reported }"),
        chat_model("unknown", "u"),
    ];
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

#[test]
fn what_calls_cost_is_kept_beside_what_they_brought_in() {
    let recorder = Recorder::start();
    let mut gateway = gateway(&recorder);
    for model in ["own", "long", "fee", "share", "share", "silent", "unknown"] {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let answer = ask(gateway.address, &gateway.chat_json(body.to_string()));
        assert_eq!(answer.status(), 200, "{model}: {answer:?}");
    }
    gateway.settled();
    let margins = |gateway: &Gateway, query: &str| {
        let path = format!("/admin/v1/margins{query}");
        gateway.admin("GET", &path, &json!(null))["data"].clone()
    };
    let row = |model, calls, charged, cost, margin| {
        json!({
            "day": null, "account_id": null, "model": model, "upstream": null,
            "calls": calls, "charged": charged, "cost": cost, "margin": margin, "unpaid": "0.00",
        })
    };
    let expected = json!([
        row("fee", 1, "0.000015", "0.0100065", "-0.0099915"),
        row("long", 1, "0.000015", "0.0000105", "0.0000045"),
        row("own", 1, "0.000015", "0.0000065", "0.0000085"),
        row("share", 2, "0.00003", "0.000024", "0.000006"),
    ]);
    eventually("margins", || margins(&gateway, "?by=model") == expected);
    let of_v = r#"{model="share",upstream="v"}"#;
    assert_eq!(gateway.metric(&format!("tollgate_cost_dollars_total{of_v}")), 0.000_024);
    assert_eq!(gateway.metric(&format!("tollgate_margin_charged_dollars_total{of_v}")), 0.000_03);
    let apart = margins(&gateway, "");
    assert_eq!(apart.as_array().map(Vec::len), Some(4), "{apart}");
    assert!(apart[0]["account_id"].is_string() && apart[0]["upstream"] == "u", "{apart}");
    // They are in the journal, and so outlive a crash.
    gateway.kill_and_restart();
    eventually("margins after a crash", || margins(&gateway, "?by=model") == expected);
}
