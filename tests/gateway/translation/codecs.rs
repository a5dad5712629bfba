//! Models with several codecs, and with targets that speak other protocols: which one a request reaches, and
//! what it costs there.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{Customer, call, spent};
use crate::harness::{Answer, Gateway, Recorded, Responder};

/// An upstream that speaks every protocol, by the path of a request. Each answer reports 5 tokens of input
/// and 2 of output.
fn provider() -> Responder {
    Responder::start(|_, request| {
        let (_, path) = request.target();
        let answer = match path {
            "/v1/chat/completions" => json!({"id": "c", "object": "chat.completion", "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "over chat"}}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}),
            "/v1/responses" => json!({"id": "r", "object": "response", "status": "completed",
                "model": "m", "output": [{"type": "message", "id": "msg", "role": "assistant",
                    "status": "completed", "content": [{"type": "output_text",
                        "text": "over responses", "annotations": []}]}],
                "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}}),
            _ => json!({"id": "a", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "over messages"}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 5, "output_tokens": 2}}),
        };
        (200, "Content-Type: application/json\r\n".to_owned(), answer.to_string())
    })
}

/// Price of each answer in nano-dollars.
const PRICE: u64 = 5 * 3_000 + 2 * 15_000;

fn model(name: &str, operations: &str, targets: &str, more: &str) -> String {
    format!(
        "  {name}:
    operations: [{operations}]
    targets: [{targets}]
    prices: {{ input_per_1m_tokens: 3, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
{more}"
    )
}

/// `o` and `a` are up; `down` speaks Anthropic's protocol, and nobody listens there.
fn gateway(up: SocketAddr, models: &[String]) -> Gateway {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let down = unused.local_addr().expect("an address");
    drop(unused);
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{up}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{up}' }}
  down: {{ protocol: anthropic, base_url: 'http://{down}' }}\n"
    );
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

fn paths(provider: &Responder) -> Vec<String> {
    provider.requests().iter().map(|request| request.target().1.to_owned()).collect()
}

fn sent(request: &Recorded) -> Value {
    serde_json::from_slice(&request.body).expect("JSON")
}

fn with(mut body: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

fn ask(gateway: &Gateway, customer: Customer, model: &str, fields: &Value) -> Answer {
    call(gateway, customer, &with(customer.body(model, false), fields))
}

#[test]
fn chat_completions_with_tools_go_to_responses_of_the_same_upstream() {
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f",
        "parameters": {"type": "object", "properties": {}}}}]});
    let none = with(tools.clone(), &json!({"reasoning_effort": "none"}));
    for (fields, path) in [
        (&json!({}), "/v1/chat/completions"),
        (&tools, "/v1/responses"),
        (&none, "/v1/chat/completions"),
    ] {
        let provider = provider();
        let both = model(
            "both",
            "chat, responses",
            "{ upstream: o, model: there }",
            "    translated: { chat_tools: effort_none }\n",
        );
        let gateway = gateway(provider.address, &[both]);
        let answer = ask(&gateway, Customer::Chat, "both", fields);
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert_eq!(paths(&provider), [path], "{fields}");
        assert_eq!(sent(&provider.requests()[0])["model"], "there");
        let read = Customer::Chat.read(&answer, false);
        assert_eq!((read.usage.input, read.usage.output), (5, 2), "{answer:?}");
        assert_eq!(spent(&gateway), PRICE);
        // What neither carries is refused before anybody is asked.
        let answer = ask(&gateway, Customer::Chat, "both", &with(tools.clone(), &json!({"n": 2})));
        assert_eq!(answer.status(), 400, "{answer:?}");
        let error: Value = serde_json::from_slice(&answer.body()).expect("JSON");
        assert_eq!(error["error"]["param"], "n", "{error}");
        assert_eq!(provider.requests().len(), 1);
    }
}

#[test]
fn stop_sequences_go_over_chat_completions() {
    for (customer, fields, path) in [
        (Customer::Messages, json!({}), "/v1/responses"),
        (Customer::Messages, json!({"stop_sequences": ["x"]}), "/v1/chat/completions"),
        (
            Customer::Gemini,
            json!({"generationConfig": {"stopSequences": ["x"]}}),
            "/v1/chat/completions",
        ),
    ] {
        let provider = provider();
        let both = model("both", "chat, responses", "{ upstream: o }", "");
        let gateway = gateway(provider.address, &[both]);
        let answer = ask(&gateway, customer, "both", &fields);
        assert_eq!(answer.status(), 200, "{customer:?} {answer:?}");
        assert_eq!(paths(&provider), [path], "{customer:?} {fields}");
        if path.contains("chat") {
            assert_eq!(sent(&provider.requests()[0])["stop"], json!(["x"]));
        }
        assert_eq!(spent(&gateway), PRICE);
    }
}

#[test]
fn a_translating_target_serves_when_the_native_ones_are_down() {
    let provider = provider();
    let native = "{ upstream: a, priority: 9 }";
    let down = "{ upstream: down, priority: 9 }";
    let gateway = gateway(
        provider.address,
        &[
            model("up", "messages", &format!("{{ upstream: o }}, {native}"), ""),
            model("failing", "messages", &format!("{{ upstream: o }}, {down}"), ""),
            model(
                "off",
                "messages",
                &format!("{{ upstream: o }}, {down}"),
                "    translation: off\n",
            ),
            model(
                "strict",
                "messages",
                &format!("{{ upstream: o }}, {down}"),
                "    translation: strict\n",
            ),
        ],
    );
    // Whatever the priorities, native comes first.
    let answer = ask(&gateway, Customer::Messages, "up", &json!({}));
    assert_eq!((answer.status(), paths(&provider)), (200, vec!["/v1/messages".to_owned()]));
    let answer = ask(&gateway, Customer::Messages, "failing", &json!({"top_k": 7}));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(paths(&provider)[1..], ["/v1/chat/completions"]);
    assert_eq!(Customer::Messages.read(&answer, false).text, "over chat");
    assert_eq!(answer.header("x-tollgate-left-out").as_deref(), Some("top_k"));
    assert_eq!(spent(&gateway), 2 * PRICE);
    // A hint that may not be lost, a document by URL that chat completions do not carry, and no translation
    // at all: the error is that of the target that is down.
    let document = json!({"messages": [{"role": "user", "content": [
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}]}]});
    for (model, fields) in
        [("strict", &json!({"top_k": 7})), ("failing", &document), ("off", &json!({}))]
    {
        let answer = ask(&gateway, Customer::Messages, model, fields);
        assert_eq!(answer.status(), 502, "{model} {answer:?}");
    }
    let strict = ask(&gateway, Customer::Messages, "strict", &json!({}));
    assert_eq!(strict.status(), 200, "{strict:?}");
    assert_eq!(provider.requests().len(), 3);
    assert_eq!(spent(&gateway), 3 * PRICE);
    // What its own protocol refuses is not translated.
    let refused = ask(&gateway, Customer::Messages, "failing", &json!({"mcp_servers": []}));
    assert_eq!(refused.status(), 400, "{refused:?}");
    let explained = gateway.admin("GET", "/admin/v1/route?model=failing", &Value::Null);
    let targets = explained["targets"].as_array().expect("targets");
    let of = |name: &str| targets.iter().find(|one| one["upstream"] == name).expect("a target");
    assert!(of("o")["translated"].as_array().is_some_and(|all| all.contains(&json!("messages"))));
    assert!(
        !of("down")["translated"].as_array().is_some_and(|all| all.contains(&json!("messages")))
    );
}
