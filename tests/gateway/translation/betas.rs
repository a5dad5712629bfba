//! Betas of Anthropic's API: a header and the fields that belong to it travel together or not at all.

use serde_json::{Value, json};

use crate::harness::{Answer, Gateway, Responder, ask};

/// Betas that Claude Code 2.1.332 requests with `claude-opus-5-5`.
const BETAS: &str = "claude-code-20250219,interleaved-thinking-2025-05-14,\
    context-management-2025-06-27,per-turn-control-2026-07-01,\
    mid-conversation-tool-changes-2026-07-01,thinking-token-count-2026-05-13,\
    advanced-tool-use-2025-11-20,effort-2025-11-24";

fn anthropic() -> Responder {
    Responder::start(|_, _| {
        let answer = json!({"id": "a", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 5, "output_tokens": 2}});
        (200, "Content-Type: application/json\r\n".to_owned(), answer.to_string())
    })
}

fn gateway(upstream: &Responder, context: u64, more: &str) -> Gateway {
    let address = upstream.address;
    let upstreams = format!("  a: {{ protocol: anthropic, base_url: 'http://{address}' }}\n");
    let models = format!(
        "models:
  m:
    operations: [messages]
    targets: [{{ upstream: a }}]
    prices: {{ input_per_1m_tokens: 3, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: {context}, output_tokens_max: 64000 }}
{more}"
    );
    Gateway::serving(&upstreams, &models)
}

fn call(gateway: &Gateway, betas: &str, body: &str) -> Answer {
    let length = body.len();
    let lines = format!("Content-Length: {length}\r\nanthropic-beta: {betas}\r\n");
    ask(gateway.address, &gateway.post("/v1/messages?beta=true", &lines, body))
}

#[test]
fn claude_codes_first_call_goes_upstream_as_it_is() {
    let upstream = anthropic();
    let gateway = gateway(&upstream, 200_000, "");
    let body = json!({
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "system", "content": [{"type": "text", "text": "be kind"},
                {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}],
                "output_config": {"effort": "medium"}},
        ],
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"},
            "defer_loading": true}],
        "metadata": {"user_id": "u"},
        "max_tokens": 64000,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
    })
    .to_string();
    let answer = call(&gateway, BETAS, &body);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.header("x-tollgate-left-out"), None, "{answer:?}");
    let request = &upstream.requests()[0];
    assert_eq!(request.header("anthropic-beta"), BETAS);
    assert_eq!(String::from_utf8_lossy(&request.body), body);
}

#[test]
fn what_a_beta_costs_goes_nowhere_without_a_price_and_is_named() {
    let betas = format!(
        "{BETAS},context-1m-2025-08-07,dangerous-tool-use-2026-09-03,nobody-knows-2027-01-01"
    );
    let body = r#"{"model":"m","max_tokens":9,"safeguards":[{"type":"dangerous_tool_use"}],
        "messages":[{"role":"user","content":"hi"}]}"#;
    let upstream = anthropic();
    let plain = gateway(&upstream, 200_000, "");
    let answer = call(&plain, &betas, body);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(
        answer.header("x-tollgate-left-out").as_deref(),
        Some(
            "safeguards, anthropic-beta: context-1m-2025-08-07, \
             anthropic-beta: dangerous-tool-use-2026-09-03"
        )
    );
    let request = &upstream.requests()[0];
    assert_eq!(request.header("anthropic-beta"), format!("{BETAS},nobody-knows-2027-01-01"));
    let sent: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert!(sent.get("safeguards").is_none(), "{sent}");
    assert_eq!(sent["messages"][0]["content"], "hi");
    // With a context of that length in the model, and the operator's word for the field, both go.
    let allowing = gateway(&upstream, 1_000_000, "    pass_fields: [safeguards]\n");
    let answer = call(&allowing, &betas, body);
    assert_eq!(answer.header("x-tollgate-left-out"), None, "{answer:?}");
    let request = &upstream.requests()[1];
    assert_eq!(request.header("anthropic-beta"), betas);
    assert_eq!(String::from_utf8_lossy(&request.body), body);
    // What is dear and means something is refused, header or not.
    for (fields, param) in [
        (r#""speed":"fast""#, "speed"),
        (r#""mcp_servers":[{"type":"url","url":"https://a"}]"#, "mcp_servers"),
        (r#""thread":{"type":"continue","previous_message_id":"msg_1"}"#, "thread"),
    ] {
        let body = format!(
            r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"hi"}}],{fields}}}"#
        );
        let answer = call(&plain, "fast-mode-2026-02-01,mcp-client-2025-11-20", &body);
        assert_eq!(answer.status(), 400, "{param} {answer:?}");
        assert!(String::from_utf8_lossy(&answer.body()).contains(param), "{answer:?}");
    }
}
