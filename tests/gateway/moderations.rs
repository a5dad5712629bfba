//! `POST /v1/moderations`: what it costs where it has a price, and nothing where it has none.

use serde_json::{Value, json};
use tollgate::sim::Sim;

use crate::harness::{Answer, Gateway, ask, simulator};

/// Models at a simulator with these settings: for nothing, by the request, by tokens for $10 a million,
/// and by tokens with a context.
fn gateway(sim: &Sim, settings: &str) -> Gateway {
    let upstreams = format!(
        "  openai: {{ protocol: openai, base_url: 'http://{}/sim:{settings}/v1', \
         timeouts: {{ connect: 1s, read: 2s }} }}\n",
        sim.addr()
    );
    let model = |name: &str, more: &str| {
        format!(
            "  {name}:\n    operations: [moderations]\n    targets: [{{ upstream: openai }}]\n    {more}\n"
        )
    };
    let tokens = "prices: { input_per_1m_tokens: 10 }";
    let models = [
        model("omni-moderation-latest", "free: true"),
        model("requests", "prices: { per_request: 0.001 }"),
        model("tokens", tokens),
        model("pictures", &format!("{tokens}\n    limits: {{ context_tokens_max: 32768 }}")),
    ];
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

fn judge(gateway: &Gateway, body: &Value) -> Answer {
    let body = body.to_string();
    let length = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post("/v1/moderations", &length, body))
}

/// Spent amount of the account.
fn spent(gateway: &Gateway) -> Value {
    gateway.settled()["spent"].clone()
}

#[test]
fn moderations_default_to_openais_model_and_are_free() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    for (input, flagged) in [
        (json!("a walk in the park"), json!([false])),
        (json!(["a walk", "an attack"]), json!([false, true])),
        (
            json!([{"type": "text", "text": "an attack"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
            json!([true]),
        ),
    ] {
        let answer = judge(&gateway, &json!({"input": input}));
        let reply = answer.json();
        assert_eq!((answer.status(), &reply["model"]), (200, &json!("omni-moderation-latest")));
        let results = reply["results"].as_array().expect("results");
        let found: Vec<&Value> = results.iter().map(|result| &result["flagged"]).collect();
        assert_eq!(json!(found), flagged, "{input}");
    }
    assert_eq!((spent(&gateway), sim.requests_total()), (json!("0.00"), 3));
    for model in [json!(""), json!(5), json!(["omni-moderation-latest"])] {
        let answer = judge(&gateway, &json!({"model": model, "input": "a"}));
        assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("model")));
    }
    let length = "Content-Length: 26\r\n";
    let unnamed = gateway.post("/v1/embeddings", length, r#"{"input":"a","model":null}"#);
    let answer = ask(gateway.address, &unnamed);
    assert_eq!((answer.status(), &answer.json()["error"]["param"]), (400, &json!("model")));
}

#[test]
fn moderations_cost_what_they_are_priced_at() {
    let sim = simulator(&[]);
    for (model, settings, cost) in [
        ("requests", "delay-ms=0", "0.001"),
        ("tokens", "usage=prompt=400", "0.004"),
        ("pictures", "usage=prompt=40000", "0.40"),
    ] {
        let gateway = gateway(&sim, settings);
        let answer = judge(&gateway, &json!({"model": model, "input": "a walk in the park"}));
        assert_eq!(answer.status(), 200, "{model}: {answer:?}");
        assert_eq!(spent(&gateway), json!(cost), "{model}");
    }
    let gateway = gateway(&sim, "delay-ms=0");
    let answer = judge(&gateway, &json!({"model": "tokens", "input": "a walk in the park"}));
    assert_eq!(answer.status(), 200);
    assert_ne!(spent(&gateway), json!("0.00"), "what is not reported is estimated");
}

#[test]
fn what_cannot_be_paid_or_bounded_never_reaches_an_upstream() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    let picture = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    for (body, status, param) in [
        (json!({"model": "tokens", "input": [picture]}), 400, json!("input")),
        (json!({"model": "tokens", "input": []}), 400, json!("input")),
        (json!({"model": "tokens", "input": ["a", 1]}), 400, json!("input")),
        (json!({"model": "tokens", "input": vec!["a"; 2049]}), 400, json!("input")),
        (json!({"model": "tokens", "input": "a", "policy": "b"}), 400, json!("policy")),
        // $0.33 for a picture, and $10 there are.
        (json!({"model": "pictures", "input": vec![picture; 31]}), 402, Value::Null),
        (json!({"model": "tokens", "input": vec!["a"; 2048]}), 402, Value::Null),
    ] {
        let answer = judge(&gateway, &body);
        assert_eq!((answer.status(), &answer.json()["error"]["param"]), (status, &param));
    }
    assert_eq!((spent(&gateway), sim.requests_total()), (json!("0.00"), 0));
}
