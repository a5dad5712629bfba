//! Requests that go upstream with their output limit lowered, as their customers and operators see it.

use serde_json::{Value, json};
use tollgate::sim::Sim;

use crate::harness::{Answer, Gateway, ask, eventually, simulator};

/// A gateway over one simulated provider of every dialect, and an account with two cents: 2,000 tokens of
/// output, or less beside a prompt.
fn gateway(sim: &Sim) -> (Gateway, String) {
    let up = sim.addr();
    let upstreams = format!(
        "  a: {{ protocol: anthropic, base_url: 'http://{up}' }}
  o: {{ protocol: openai, base_url: 'http://{up}/v1' }}
  g: {{ protocol: gemini, base_url: 'http://{up}/v1beta' }}
holds: {{ means: [clamp], output_floor: 100 }}\n"
    );
    let model = |name: &str, operations: &str, upstream: &str| {
        format!(
            "  {name}:
    operations: [{operations}]
    targets: [{{ upstream: {upstream}, model: real-{name} }}]
    prices: {{ input_per_1m_tokens: 1, output_per_1m_tokens: 10 }}
    limits: {{ context_tokens_max: 200000, output_tokens_max: 8000 }}\n"
        )
    };
    let models = [
        model("claude", "messages", "a"),
        model("gpt", "responses, chat", "o"),
        model("gemini", "generate_content", "g"),
    ];
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()));
    let account = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "small"}));
    let id = account["id"].as_str().expect("an id").to_owned();
    let grant = json!({"amount": "0.02", "id": "two"});
    gateway.admin("POST", &format!("/admin/v1/accounts/{id}/grants"), &grant);
    let key =
        gateway.admin("POST", &format!("/admin/v1/accounts/{id}/keys"), &json!({"name": "k"}));
    (gateway.with_key(key["key"].as_str().expect("a key")), id)
}

fn post(gateway: &Gateway, path: &str, body: &str, lines: &str) -> Answer {
    let lines = format!(
        "Anthropic-Version: 2023-06-01\r\nOrigin: https://page.example\r\n{lines}Content-Length: {}\r\n",
        body.len()
    );
    ask(gateway.address, &gateway.post(path, &lines, body))
}

fn counted(gateway: &Gateway, metric: &str, model: &str) -> String {
    let series = format!("{metric}{{model=\"{model}\"}} ");
    let metrics = gateway.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("no {series}")).to_owned()
}

/// In each dialect the digits change, or one field is added, and everybody is told.
#[test]
fn a_clamped_request_differs_in_its_limit_and_says_so() {
    let chat =
        r#"{"model":"gpt", "max_tokens" : 8000,"messages":[{"role":"user","content":"hi"}]}"#;
    let messages =
        r#"{"model":"claude","messages":[{"role":"user","content":"hi"}] , "max_tokens":8000}"#;
    let responses = r#"{"model":"gpt","input":"hi" }"#;
    let gemini = r#"{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"topK":1}}"#;
    for (path, model, body, from, to) in [
        ("/v1/chat/completions", "gpt", chat, "8000", "N"),
        ("/v1/messages", "claude", messages, "8000", "N"),
        ("/v1/responses", "gpt", responses, "\"hi\" ", "\"hi\",\"max_output_tokens\":N "),
        (
            "/v1beta/models/gemini:generateContent",
            "gemini",
            gemini,
            "\"topK\":1",
            "\"topK\":1,\"maxOutputTokens\":N",
        ),
    ] {
        let sim = simulator(&[]);
        let (gateway, _) = gateway(&sim);
        for metric in ["tollgate_clamps_total", "tollgate_clamps_ignored_total"] {
            assert_eq!(counted(&gateway, metric, model), "0");
        }
        let answer = post(&gateway, path, body, "X-Tollgate-Clamp: never\r\n");
        assert_eq!(answer.status(), 402, "{path}: {answer:?}");
        assert_eq!(answer.header("x-tollgate-max-tokens"), None);
        let answer = post(&gateway, path, body, "");
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        let tokens = answer.header("x-tollgate-max-tokens").expect("the limit").to_owned();
        let limit: u64 = tokens.parse().expect("a number");
        assert!((1_850..2_000).contains(&limit), "{path}: {limit}");
        let exposed = answer.header("access-control-expose-headers").expect("for browsers");
        assert!(exposed.contains("x-tollgate-max-tokens"), "{exposed}");
        let sent = sim.requests().pop().expect("a request");
        assert!(!format!("{sent:?}").contains("x-tollgate-clamp"), "{sent:?}");
        let sent = String::from_utf8(sent.body.expect("a body").to_vec()).expect("text");
        let expected = body.replacen(from, &to.replace('N', &tokens), 1);
        let expected = expected
            .replace(&format!("\"model\":\"{model}\""), &format!("\"model\":\"real-{model}\""));
        assert_eq!(sent, expected, "{path}");
        let logged =
            || gateway.admin("GET", "/admin/v1/requests?limit=1", &Value::Null)["data"][0].clone();
        eventually("the request log", || logged()["max_tokens_clamped"] == limit);
        assert_eq!(counted(&gateway, "tollgate_clamps_total", model), "1");
        assert_eq!(counted(&gateway, "tollgate_clamps_ignored_total", model), "0");
    }
}

/// An error that an upstream gives behind the admission says the limit as well.
#[test]
fn an_upstreams_refusal_of_a_clamped_request_says_the_limit() {
    let sim = simulator(&["fault=status=400"]);
    let (gateway, _) = gateway(&sim);
    let body = r#"{"model":"gpt","max_tokens":8000,"messages":[{"role":"user","content":"hi"}]}"#;
    let answer = post(&gateway, "/v1/chat/completions", body, "");
    assert_ne!(answer.status(), 200, "{answer:?}");
    assert!(answer.header("x-tollgate-max-tokens").is_some(), "{answer:?}");
}

/// Usage beyond the limit is charged, and the rest is the account's debt.
#[test]
fn an_upstream_that_ignores_the_limit_is_named_and_what_it_bills_is_owed() {
    let sim = simulator(&["usage=prompt=100,completion=7000"]);
    let (gateway, account) = gateway(&sim);
    let body = r#"{"model":"gpt","max_tokens":8000,"messages":[{"role":"user","content":"hi"}]}"#;
    let answer = post(&gateway, "/v1/chat/completions", body, "");
    assert_eq!(answer.status(), 200, "{answer:?}");
    let path = format!("/admin/v1/accounts/{account}");
    let balance = || gateway.admin("GET", &path, &Value::Null)["balance"].clone();
    eventually("the settlement", || balance()["held"] == "0.00");
    // 7,000 tokens cost seven cents, and the prompt a hundredth of one.
    let balance = balance();
    assert_eq!((&balance["spent"], &balance["debt"]), (&json!("0.02"), &json!("0.0501")));
    assert_eq!(counted(&gateway, "tollgate_clamps_total", "gpt"), "1");
    assert_eq!(counted(&gateway, "tollgate_clamps_ignored_total", "gpt"), "1");
}
