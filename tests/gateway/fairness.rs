//! Customers share upstreams, and none of them can close one for others or read stored objects of others.

use crate::harness::{Answer, Gateway, simulator};
use serde_json::{Value, json};
use tollgate::sim::{Behaviour, Sim};

/// Answers every request like this from now on.
fn fails(sim: &Sim, fault: &str) {
    let mut failing = Behaviour::default();
    failing.set_pair(fault).expect("a setting");
    sim.set_behaviour(failing);
}

fn works(sim: &Sim) {
    sim.set_behaviour(Behaviour::default());
}

fn chat(gateway: &Gateway, key: &str, model: &str) -> Answer {
    let messages = json!([{"role": "user", "content": "hi"}]);
    gateway.ask_as(key, "/v1/chat/completions", &json!({"model": model, "messages": messages}))
}

/// The admin API's view of the first target at upstream `a`.
fn target(gateway: &Gateway) -> Value {
    let all = gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
    all["upstreams"][0]["targets"][0].clone()
}

/// A gateway with one upstream for each of `sims`, and a model `id` at all of them, the first first.
fn gateway(sims: &[&Sim], id: &str) -> Gateway {
    let (mut upstreams, mut targets) = (String::new(), String::new());
    for (priority, (sim, name)) in sims.iter().zip(["a", "b"]).enumerate() {
        let at = sim.addr();
        upstreams += &format!("  {name}: {{ protocol: openai, base_url: 'http://{at}/v1' }}\n");
        targets += &format!("      - {{ upstream: {name}, priority: {priority} }}\n");
    }
    upstreams += "balancing: { circuit: { open: 1m } }\n";
    let models = format!(
        "models:
  '{id}':
    operations: [chat]
    targets:
{targets}    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 1 }}
    limits: {{ context_tokens_max: 10000, output_tokens_max: 100 }}
"
    );
    Gateway::serving(&upstreams, &models)
}

/// Customers choose names behind a pattern. One that no upstream knows is their own matter: it shuts
/// nothing, and is not asked for again and again.
#[test]
fn names_that_nobody_knows_are_the_customers_matter() {
    let sims = [simulator(&[]), simulator(&[])];
    let gateway = gateway(&sims.each_ref(), "x-*");
    sims.iter().for_each(|sim| fails(sim, "fault=status=404"));
    for call in 0..20 {
        let answer = chat(&gateway, &gateway.key, "x-nope");
        assert_eq!(answer.status(), 404, "call {call}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], "model_not_found", "{answer:?}");
    }
    assert_eq!(sims.each_ref().map(Sim::requests_total), [1, 1], "each was asked once");
    for call in 0..20 {
        let answer = chat(&gateway, &gateway.key, &format!("x-nope-{call}"));
        assert_eq!(answer.status(), 404, "call {call}: {answer:?}");
    }
    assert_eq!(target(&gateway)["state"], "ready", "{}", target(&gateway));
    works(&sims[1]);
    let answer = chat(&gateway, &gateway.key, "x-good");
    assert_eq!(answer.status(), 200, "the second upstream knows it: {answer:?}");
    let other = gateway.customer("other", Some("1.00"));
    assert_eq!(chat(&gateway, &other, "x-nope").status(), 200, "another account asks for itself");
    assert_eq!(chat(&gateway, &gateway.key, "x-nope").status(), 404, "who has heard it has");
    assert!(gateway.metrics().contains("tollgate_retry_budget_exhausted_total 0"));
    gateway.settled();
}

/// A model that the operator has named is the operator's matter.
#[test]
fn a_name_that_the_operator_chose_is_the_operators_matter() {
    let sim = simulator(&["fault=status=404"]);
    let gateway = gateway(&[&sim], "m");
    for _ in 0..10 {
        let answer = chat(&gateway, &gateway.key, "m");
        assert_eq!(answer.status(), 502, "{answer:?}");
    }
    assert_eq!(sim.requests_total(), 5, "then it is left alone");
}

/// Whatever one customer's requests come to, an upstream that serves others goes on serving them.
#[test]
fn one_customers_failures_shut_no_upstream_for_others() {
    for fault in ["fault=status=500", "fault=status=403", "fault=status=401"] {
        let sim = simulator(&[]);
        let gateway = gateway(&[&sim], "m");
        let (one, other) =
            (gateway.customer("one", Some("1.00")), gateway.customer("other", Some("1.00")));
        assert_eq!(chat(&gateway, &other, "m").status(), 200, "{fault}");
        fails(&sim, fault);
        for _ in 0..20 {
            let answer = chat(&gateway, &one, "m");
            assert!(answer.status() >= 500, "{fault}: {answer:?}");
        }
        assert_eq!(sim.requests_total(), 6, "{fault}: five of its own failures are enough");
        works(&sim);
        assert_eq!(chat(&gateway, &one, "m").status(), 502, "{fault}: it is left out");
        assert_eq!(chat(&gateway, &other, "m").status(), 200, "{fault}: the other is served");
        let target = target(&gateway);
        assert_eq!((&target["state"], &target["accounts_shut_out"]), (&json!("ready"), &json!(1)));
    }
}

/// A failure for many customers closes the upstream for all, so the next customer is not affected.
#[test]
fn failures_of_many_customers_shut_an_upstream_for_all() {
    let sim = simulator(&["fault=status=500"]);
    let gateway = gateway(&[&sim], "m");
    for call in 0..5 {
        let key = gateway.customer(&format!("customer {call}"), Some("1.00"));
        assert_eq!(chat(&gateway, &key, "m").status(), 502);
    }
    let next = gateway.customer("next", Some("1.00"));
    assert_eq!(chat(&gateway, &next, "m").status(), 502);
    assert_eq!(sim.requests_total(), 5, "it was not asked any more");
    let target = target(&gateway);
    assert_eq!((&target["state"], &target["accounts_shut_out"]), (&json!("open"), &json!(0)));
}

/// How many vectors are in an answer, which may come in one chunk.
fn vectors(answer: &Answer) -> Option<usize> {
    let body = answer.body();
    let from = body.iter().position(|byte| *byte == b'{')?;
    let end = body.iter().rposition(|byte| *byte == b'}')?;
    let document: Value = serde_json::from_slice(&body[from..=end]).ok()?;
    document["data"].as_array().map(Vec::len)
}

fn bodies(sim: &Sim) -> Vec<Value> {
    let all = sim.requests();
    let parsed = all.iter().map(|request| request.body.as_deref().map(serde_json::from_slice));
    parsed.map(|body| body.expect("kept").expect("JSON")).collect()
}

/// Each target is asked in its own protocol's words, and what one of them does not take goes to those
/// that do.
#[test]
fn targets_of_two_protocols_get_requests_in_their_own_dialects() {
    let sims = [simulator(&["fault=status=500"]), simulator(&[])];
    let [a, b] = sims.each_ref().map(Sim::addr);
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{a}/v1' }}
  b: {{ protocol: voyage, base_url: 'http://{b}/v1' }}
balancing: {{ circuit: {{ failures: 1000 }} }}
"
    );
    let models = "models:
  m:
    operations: [embeddings]
    targets: [{ upstream: a }, { upstream: b, priority: 1 }]
    prices: { input_per_1m_tokens: 1 }
    limits: { context_tokens_max: 8000 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let embed = |input: Value| {
        let body = json!({
            "model": "m", "input": input, "dimensions": 64, "encoding_format": "float",
        });
        gateway.ask_as(&gateway.key, "/v1/embeddings", &body)
    };
    let answer = embed(json!(["one", "two"]));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(vectors(&answer), Some(2), "{answer:?}");
    let [at_a, at_b] = [&bodies(&sims[0])[0], &bodies(&sims[1])[0]];
    assert_eq!((&at_a["dimensions"], &at_a["output_dimension"]), (&json!(64), &Value::Null));
    assert_eq!((&at_b["dimensions"], &at_b["output_dimension"]), (&Value::Null, &json!(64)));
    assert_eq!(at_b["encoding_format"], Value::Null, "{at_b}");
    // More inputs than Voyage takes at once: there it is cut, and nowhere else.
    let long: Vec<String> = (0..1500).map(|number| format!("input {number}")).collect();
    let answer = embed(json!(long));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(vectors(&answer), Some(1500));
    assert_eq!(sims.each_ref().map(Sim::requests_total), [2, 3]);
    works(&sims[0]);
    let answer = embed(json!(long));
    assert_eq!((answer.status(), sims[1].requests_total()), (200, 3), "the first takes it whole");
    // Voyage takes no token ids.
    assert_eq!(embed(json!([[1, 2, 3]])).status(), 200);
    fails(&sims[0], "fault=status=500");
    assert_eq!(embed(json!([[1, 2, 3]])).status(), 502);
    assert_eq!(sims[1].requests_total(), 3, "it was not asked");
    gateway.settled();
}

/// An upstream's stored object belongs to the account that created it, with the credential that did:
/// upstreams cannot tell customers apart.
#[test]
fn what_an_upstream_keeps_is_the_accounts_own() {
    let sim = simulator(&[]);
    let at = sim.addr();
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{at}/v1', credentials: {{ one: sk-one, two: sk-two, three: sk-three }} }}\n"
    );
    let models = "models:
  m:
    operations: [responses]
    targets: [{ upstream: a }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let respond = |key: &str, fields: Value| {
        let mut body = json!({"model": "m", "input": "hi"});
        body.as_object_mut()
            .expect("an object")
            .extend(fields.as_object().expect("fields").clone());
        gateway.ask_as(key, "/v1/responses", &body)
    };
    let stranger = gateway.customer("stranger", Some("1.00"));
    let credential = || {
        let last = sim.requests().pop().expect("a request");
        last.header("authorization").expect("a credential").to_owned()
    };
    for turn in 0..12 {
        let stream = turn % 2 == 0;
        let text = format!("conversation {turn}");
        let answer = respond(&gateway.key, json!({"input": text, "stream": stream}));
        assert_eq!(answer.status(), 200, "{answer:?}");
        let text = String::from_utf8_lossy(&answer.body()).into_owned();
        let id = |prefix: &str| {
            let (_, rest) = text.split_once(&format!("\"{prefix}")).expect(prefix);
            format!("{prefix}{}", rest.split('"').next().unwrap_or_default())
        };
        let (response, item) = (id("resp_"), id("msg_"));
        let made = credential();
        for fields in [
            json!({"previous_response_id": response}),
            json!({"input": [{"type": "item_reference", "id": item}]}),
        ] {
            for _ in 0..4 {
                let answer = respond(&gateway.key, fields.clone());
                assert_eq!(answer.status(), 200, "{answer:?}");
                assert_eq!(credential(), made, "turn {turn}: it goes where it was made");
            }
            let before = sim.requests_total();
            let answer = respond(&stranger, fields.clone());
            assert_eq!(answer.status(), 400, "another account's: {answer:?}");
            assert_eq!(sim.requests_total(), before, "no upstream was asked");
        }
    }
    for (fields, param, code) in [
        (
            json!({"previous_response_id": "resp_x"}),
            "previous_response_id",
            json!("previous_response_not_found"),
        ),
        (json!({"conversation": "conv_x"}), "conversation", json!("invalid_request")),
    ] {
        let answer = respond(&gateway.key, fields);
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status(), &error["param"]), (400, &json!(param)), "{error}");
        assert!(error["code"] == code || param == "conversation", "{error}");
    }
    let answer = respond(&gateway.key, json!({"store": false}));
    let id = answer.json()["id"].clone();
    let answer = respond(&gateway.key, json!({"previous_response_id": id}));
    assert_eq!(answer.status(), 400, "it was not kept: {answer:?}");
    gateway.settled();
}
