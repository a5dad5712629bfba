//! `POST /v1/rerank`: each way of billing end to end, what is held for it, and what is refused.

use serde_json::{Value, json};
use tollgate::sim::Sim;

use crate::harness::{Answer, Gateway, ask, simulator};

const PATH: &str = "/v1/rerank";

/// Models at a simulator with these settings: by tokens for $10 a million, by rerank units for $2 a
/// thousand, by both, by the request, for nothing, and Voyage's.
fn gateway(sim: &Sim, settings: &str) -> Gateway {
    let at = |name: &str, protocol: &str, version: &str| {
        let address = sim.addr();
        format!(
            "  {name}: {{ protocol: {protocol}, base_url: 'http://{address}/sim:{settings}/{version}', \
             timeouts: {{ connect: 1s, read: 2s }} }}\n"
        )
    };
    let model = |name: &str, upstream: &str, prices: &str| {
        format!(
            "  {name}:\n    operations: [rerank]\n    targets: [{{ upstream: {upstream} }}]\n\
             {prices}    limits: {{ documents_max: 10000 }}\n"
        )
    };
    let priced = |prices: &str| format!("    prices: {{ {prices} }}\n");
    let (tokens, units) = ("input_per_1m_tokens: 10", "per_1k_rerank_units: 2");
    let models = [
        model("tokens", "jina", &priced(tokens)),
        model("units", "cohere", &priced(units)),
        model("units-unreported", "jina", &priced(units)),
        model("both", "jina", &priced(&format!("{tokens}, {units}"))),
        model("requests", "jina", &priced("per_request: 0.001")),
        model("nothing", "jina", "    free: true\n"),
        model("rerank-2.5", "voyage", &priced(tokens)),
    ];
    let upstreams =
        [at("jina", "openai", "v1"), at("cohere", "openai", "v2"), at("voyage", "voyage", "v1")];
    Gateway::serving(&upstreams.concat(), &format!("models:\n{}", models.concat()))
}

fn rank(gateway: &Gateway, body: &[u8]) -> Answer {
    let length = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post(PATH, &length, body))
}

fn rerank_request(model: &str, query: &str, documents: &Value) -> Vec<u8> {
    json!({"model": model, "query": query, "documents": documents}).to_string().into_bytes()
}

fn document(answer: &Answer) -> Value {
    match answer.header("transfer-encoding") {
        Some(_) => serde_json::from_slice(&answer.content()).unwrap_or_default(),
        None => answer.json(),
    }
}

/// Spent amount of the account in nano-dollars.
fn spent(gateway: &Gateway) -> i64 {
    nanousd(gateway.settled()["spent"].as_str().expect("an amount"))
}

fn nanousd(dollars: &str) -> i64 {
    let (whole, decimals) = dollars.split_once('.').unwrap_or((dollars, ""));
    let digits = format!("{whole}{decimals:0<9}");
    digits.parse().unwrap_or_else(|_| panic!("no amount: {dollars}"))
}

/// The most that a request can cost, as it is said to who cannot pay it.
fn held(gateway: &Gateway, body: &[u8]) -> i64 {
    let key = gateway.stranger();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = ask(gateway.address, &[head.as_bytes(), body].concat());
    let reply = document(&answer);
    let message = reply["error"]["message"].as_str().unwrap_or_default();
    assert_eq!((answer.status(), &reply["error"]["code"]), (402, &json!("insufficient_balance")));
    let amount = message.split('$').nth(1).and_then(|rest| rest.split([',', ' ']).next());
    nanousd(amount.unwrap_or_else(|| panic!("no amount: {message}")))
}

#[test]
fn rankings_cost_what_their_providers_report() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    let documents = json!(["closed on Sundays", {"text": "opens at six"}, "six to nine"]);
    let mut before = 0;
    // A token is four bytes and one more. The query has 4, and documents have 5, 4 and 3.
    let tokens = 3 * 4 + 5 + 4 + 3;
    for (model, cost) in [
        ("tokens", tokens * 10_000),
        ("units", 2_000_000),
        ("requests", 1_000_000),
        ("nothing", 0),
        ("rerank-2.5", tokens * 10_000),
    ] {
        let body = json!({
            "model": model, "query": "opens at six", "documents": documents, "top_n": 2,
            "return_documents": true,
        });
        let answer = rank(&gateway, body.to_string().as_bytes());
        assert_eq!(answer.status(), 200, "{model}: {answer:?}");
        let results = document(&answer)["results"].clone();
        let order: Vec<u64> = results
            .as_array()
            .expect("results")
            .iter()
            .filter_map(|it| it["index"].as_u64())
            .collect();
        assert_eq!(order, [1, 2], "{model}: {results}");
        if model != "units" {
            assert_eq!(results[0]["document"], json!({"text": "opens at six"}), "{model}");
        }
        assert!(
            answer.head().to_lowercase().contains("application/json"),
            "{model}: {}",
            answer.head()
        );
        let after = spent(&gateway);
        assert_eq!(after - before, cost, "{model}");
        before = after;
    }
    let sent = sim.requests();
    let paths: Vec<&str> = sent.iter().map(|request| request.path.as_str()).collect();
    let ends = |at: usize, end: &str| paths[at].ends_with(end);
    assert!(ends(0, "/v1/rerank") && ends(1, "/v2/rerank") && ends(4, "/v1/rerank"), "{paths:?}");
}

#[test]
fn what_is_not_reported_is_estimated_and_marked() {
    let sim = simulator(&[]);
    let documents = json!(["closed on Sundays", "opens at six"]);
    for (fault, model) in [
        ("fault=usage-missing", "tokens"),
        ("fault=usage-missing", "units"),
        ("fault=usage-missing", "rerank-2.5"),
        ("fault=usage-negative", "tokens"),
        ("usage=prompt=0", "units"),
        ("delay-ms=0", "units-unreported"),
        ("delay-ms=0", "both"),
    ] {
        let gateway = gateway(&sim, fault);
        let body = rerank_request(model, "when does it open", &documents);
        let most = held(&gateway, &body);
        let answer = rank(&gateway, &body);
        assert_eq!(answer.status(), 200, "{model}: {answer:?}");
        let paid = spent(&gateway);
        assert!((1..=most).contains(&paid), "{fault} {model}: {paid} of {most}");
        let path = format!("/admin/v1/accounts/{}/entries", gateway.account);
        let entries = gateway.admin("GET", &path, &Value::Null).to_string();
        assert!(entries.contains("\"estimated\""), "{fault} {model}: {entries}");
    }
}

/// Nobody is charged less than the upstream bills, as long as the account can pay it.
#[test]
fn a_report_above_the_hold_is_charged() {
    let sim = simulator(&[]);
    for (model, reported, cost) in [("tokens", 100_000, 1_000_000_000), ("units", 400, 800_000_000)]
    {
        let gateway = gateway(&sim, &format!("usage=prompt={reported}"));
        let body = rerank_request(model, "q", &json!(["a"]));
        assert!(held(&gateway, &body) < cost / 100, "{model}");
        assert_eq!(rank(&gateway, &body).status(), 200);
        assert_eq!(spent(&gateway), cost, "{model}");
    }
}

/// Requests that are made to cost more than they look like: what is held for each is no less than what
/// the simulator, which counts a token for four bytes, bills.
#[test]
fn no_request_costs_more_than_is_held_for_it() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    gateway.grant("90000.00", "for all of it");
    let chinese = "\u{4e2d}\u{6587}".repeat(2730);
    let mut before = 0;
    for (what, query, documents) in [
        ("10,000 short documents", "q".to_owned(), json!(vec!["a"; 10_000])),
        ("10,000 empty documents", "q".to_owned(), json!(vec![""; 10_000])),
        ("16 KiB of Chinese", "\u{95ee}".to_owned(), json!([chinese])),
        ("a query of 400 KB with 1,000 documents", "q".repeat(400_000), json!(vec!["a"; 1000])),
        ("documents of one token too many", "q".repeat(400), json!(vec!["d".repeat(1600); 101])),
        ("objects", "q".repeat(250), json!(vec![json!({"text": "d".repeat(999)}); 101])),
        ("escapes", "\u{1}".repeat(99), json!(vec!["\"\\\n\u{1}".repeat(100); 200])),
    ] {
        for model in ["tokens", "units", "both", "rerank-2.5"] {
            if model == "rerank-2.5" && documents.as_array().is_some_and(|all| all.len() > 1000) {
                continue;
            }
            let body = rerank_request(model, &query, &documents);
            let most = held(&gateway, &body);
            let answer = rank(&gateway, &body);
            assert_eq!(answer.status(), 200, "{what}, {model}: {:?}", document(&answer)["error"]);
            let after = spent(&gateway);
            assert!(after - before <= most, "{what}, {model}: {} of {most}", after - before);
            assert!(after > before, "{what}, {model}");
            before = after;
        }
    }
    // 400,000 bytes with each of 1,000 documents, at $10 a million.
    let body = rerank_request("tokens", &"q".repeat(400_000), &json!(vec!["a"; 1000]));
    assert!(held(&gateway, &body) >= 4_000_000_000_000, "$4,000 at the least");
}

#[test]
fn what_cannot_be_paid_or_bounded_never_reaches_an_upstream() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    let body = rerank_request("tokens", &"q".repeat(400_000), &json!(vec!["a"; 1000]));
    let answer = rank(&gateway, &body);
    let reply = document(&answer);
    assert_eq!((answer.status(), &reply["error"]["code"]), (402, &json!("insufficient_balance")));
    for (more, param) in [
        (json!({"documents": [1]}), "documents"),
        (json!({"documents": [null]}), "documents"),
        (json!({"documents": []}), "documents"),
        (json!({"documents": "a"}), "documents"),
        (json!({"documents": [{"title": "a"}]}), "documents"),
        (json!({"documents": [{"text": "a", "image": "https://example.com/a.png"}]}), "documents"),
        (json!({"documents": vec!["a"; 10_001]}), "documents"),
        (json!({"query": ""}), "query"),
        (json!({"query": null}), "query"),
        (json!({"query": ["a"]}), "query"),
        (json!({"top_n": 0}), "top_n"),
        (json!({"top_n": -1}), "top_n"),
        (json!({"top_n": "1"}), "top_n"),
        (json!({"max_tokens_per_doc": 0}), "max_tokens_per_doc"),
        (json!({"rank_fields": ["title"]}), "rank_fields"),
        (json!({"overlap_tokens": 80}), "overlap_tokens"),
        (json!({"stream": true}), "stream"),
    ] {
        let mut body = json!({"model": "tokens", "query": "q", "documents": ["a"]});
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let answer = rank(&gateway, body.to_string().as_bytes());
        let reply = document(&answer);
        assert_eq!(
            (answer.status(), &reply["error"]["param"]),
            (400, &json!(param)),
            "{more}: {reply}"
        );
    }
    for body in [
        r#"{"model":"tokens","query":"q","documents":["a"],"documents":["a","b"]}"#,
        r#"{"model":"tokens","query":"q","documents":[{"text":"a","text":"b"}]}"#,
        r#"{"model":"tokens","query":"q","query":"long","documents":["a"]}"#,
        r#"{"model":"tokens","query":"q","documents":["a"],"Documents":["a"]}"#,
    ] {
        assert_eq!(rank(&gateway, body.as_bytes()).status(), 400, "{body}");
    }
    assert_eq!((sim.requests_total(), spent(&gateway)), (0, 0));
}

#[test]
fn a_failed_call_costs_nothing() {
    let sim = simulator(&[]);
    for (fault, status) in
        [("status=400", 400), ("status=500", 502), ("status=429", 429), ("status=401", 502)]
    {
        let gateway = gateway(&sim, &format!("fault={fault}"));
        for model in ["tokens", "units", "rerank-2.5"] {
            let answer = rank(&gateway, &rerank_request(model, "q", &json!(["a"])));
            assert_eq!(answer.status(), status, "{fault} {model}: {answer:?}");
        }
        assert_eq!(spent(&gateway), 0, "{fault}");
    }
}

/// A model of another kind is not for rankings, and the other way round.
#[test]
fn models_without_the_operation_are_refused() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=0");
    let body = r#"{"model":"tokens","input":"a"}"#;
    let length = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/embeddings", &length, body));
    let reply = document(&answer);
    assert_eq!((answer.status(), &reply["error"]["param"]), (400, &json!("model")), "{reply}");
    assert!(
        reply["error"]["message"].as_str().is_some_and(|text| text.contains("it is for rerank"))
    );
}

/// As Cohere's own SDK asks.
#[test]
fn the_path_is_the_operators_to_choose() {
    let sim = simulator(&[]);
    let upstreams = format!(
        "  cohere: {{ protocol: openai, base_url: 'http://{}/v2' }}\n\
         routes: [{{ path: /v2/rerank, operation: rerank }}]\n",
        sim.addr()
    );
    let models = "models:\n  rerank-v3.5:\n    operations: [rerank]\n    targets: [{ upstream: cohere }]\n    \
                  prices: { per_1k_rerank_units: 2 }\n";
    let gateway = Gateway::serving(&upstreams, models);
    let body = rerank_request("rerank-v3.5", "q", &json!(["a", "b"]));
    let length = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v2/rerank", &length, &body));
    let reply = document(&answer);
    assert_eq!((answer.status(), reply["results"].as_array().map(Vec::len)), (200, Some(2)));
    assert_eq!(reply["meta"]["billed_units"], json!({"search_units": 1}));
    assert_eq!(spent(&gateway), 2_000_000);
    assert_eq!(rank(&gateway, &body).status(), 404);
}
