//! Five dollars and eight parallel turns of an agent on the dearest models that are shipped.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::money::Nanousd;

use crate::harness::{Gateway, ask, poll, simulator};

/// Usage of a turn: most of the prompt is read from the cache, and the answer is short.
const TURN: &str = "usage=prompt=18000,cached=15000,completion=1200";
const PARALLEL: usize = 8;

/// The models of this id in the shipped `models.yaml`, as the only one of a file.
fn shipped(model: &str) -> String {
    let all = include_str!("../../../models.yaml");
    let begin = all.find(&format!("\n  {model}:\n")).expect("a shipped model") + 1;
    let rest = &all[begin..];
    let is_of_next =
        |at: &usize| rest[*at + 1..].starts_with("  ") && !rest[*at + 1..].starts_with("   ");
    let end = rest.match_indices('\n').map(|(at, _)| at).find(is_of_next);
    format!("models:\n{}\n", &rest[..end.unwrap_or(rest.len())])
}

/// A gateway with one shipped model, whose provider is simulated, and an account with $5.
fn gateway(model: &str, protocol: &str, settings: &[&str], more: &str) -> (Gateway, String) {
    let sim = Box::leak(Box::new(simulator(settings)));
    let base = if protocol == "openai" { "/v1" } else { "" };
    let upstreams = format!(
        "  {protocol}: {{ protocol: {protocol}, base_url: 'http://{}{base}', credential: key }}\n{more}",
        sim.addr()
    );
    let gateway = Gateway::serving(&upstreams, &shipped(model));
    let account = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "small"}));
    let id = account["id"].as_str().expect("an id").to_owned();
    let grant = json!({"amount": "5.00", "id": "five"});
    gateway.admin("POST", &format!("/admin/v1/accounts/{id}/grants"), &grant);
    let key =
        gateway.admin("POST", &format!("/admin/v1/accounts/{id}/keys"), &json!({"name": "k"}));
    let gateway = gateway.with_key(key["key"].as_str().expect("a key"));
    (gateway, id)
}

/// 71 KB of instructions and tools, as agents send them, and 64,000 tokens of output.
fn claude_turn(model: &str) -> String {
    let text = "You are a coding agent. You are precise, safe and helpful. ".repeat(1_200);
    let cache = json!({"type": "ephemeral", "ttl": "1h"});
    json!({
        "model": model, "max_tokens": 64_000, "stream": true,
        "thinking": {"type": "adaptive"},
        "system": [{"type": "text", "text": text, "cache_control": cache}],
        "messages": [{"role": "user", "content": "Go on."}],
    })
    .to_string()
}

fn codex_turn(model: &str) -> String {
    let text = "You are a coding agent. You are precise, safe and helpful. ".repeat(1_200);
    json!({
        "model": model, "stream": true, "store": false, "max_output_tokens": 64_000,
        "instructions": text, "reasoning": {"effort": "medium"},
        "input": [{"type": "message", "role": "user", "content": "Go on."}],
    })
    .to_string()
}

/// The statuses and the clamps of as many turns at one time.
fn eight_at_once(gateway: &Gateway, path: &str, body: &str) -> Vec<(u16, u64)> {
    let turns: Vec<_> = (0..PARALLEL)
        .map(|_| {
            let lines = format!("Content-Length: {}\r\n", body.len());
            let (address, request) = (gateway.address, gateway.post(path, &lines, body));
            thread::spawn(move || {
                let answer = ask(address, &request);
                let clamp = answer.header("x-tollgate-max-tokens");
                let clamp = clamp.and_then(|tokens| tokens.parse().ok()).unwrap_or(64_000);
                if answer.status() != 200 {
                    println!("{}", String::from_utf8_lossy(&answer.body()));
                }
                (answer.status(), clamp)
            })
        })
        .collect();
    turns.into_iter().map(|turn| turn.join().expect("no panic")).collect()
}

fn dollars(balance: &Value, part: &str) -> Nanousd {
    balance[part].as_str().and_then(|text| text.parse().ok()).expect("an amount")
}

fn assert_all_served(gateway: &Gateway, account: &str, turns: &[(u16, u64)]) {
    println!("{turns:?}");
    for (status, clamp) in turns {
        assert_eq!(*status, 200, "{turns:?}");
        assert!((4_096..=64_000).contains(clamp), "{turns:?}");
    }
    let path = format!("/admin/v1/accounts/{account}");
    let balance = poll("no hold is open", Duration::from_secs(10), || {
        let balance = gateway.admin("GET", &path, &Value::Null)["balance"].clone();
        if balance["held"] == "0.00" { Ok(balance) } else { Err(balance) }
    });
    let spent = dollars(&balance, "spent");
    println!("charged ${spent}");
    assert!(spent > Nanousd::ZERO && spent <= dollars(&balance, "granted"), "{balance}");
    assert_eq!(balance["debt"], "0.00", "{balance}");
    let sum = |metric: &str| -> f64 {
        let metrics = gateway.metrics();
        let lines = metrics.lines().filter(|line| line.starts_with(metric));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let ratio = sum("tollgate_held_dollars_total") / sum("tollgate_spend_dollars_total");
    println!("held ÷ charged: {ratio:.1}");
    assert!((1.0..=10.0).contains(&ratio), "{ratio}");
}

#[test]
fn five_dollars_serve_eight_parallel_turns_on_the_dearest_claude() {
    let model = "claude-fable-5-2";
    let (gateway, account) = gateway(model, "anthropic", &["delay-ms=1500", TURN], "");
    let turns = eight_at_once(&gateway, "/v1/messages", &claude_turn(model));
    assert_all_served(&gateway, &account, &turns);
    // The page has this as its example.
    let page = include_str!("../../../docs/how-to/small-balances.md");
    for (_, clamp) in turns {
        assert!(page.contains(&format!("`max_tokens: {clamp}`")), "{clamp}");
    }
}

#[test]
fn five_dollars_serve_eight_parallel_turns_on_the_dearest_gpt() {
    let model = "gpt-6-astra";
    let (gateway, account) = gateway(model, "openai", &["delay-ms=1500", TURN], "");
    let turns = eight_at_once(&gateway, "/v1/responses", &codex_turn(model));
    assert_all_served(&gateway, &account, &turns);
}

/// Where nothing is lowered, the others may wait until the first has ended.
#[test]
fn turns_that_may_not_be_clamped_wait_for_each_other() {
    let model = "claude-fable-5-2";
    let more = "holds: { means: [], wait: 60s }\n";
    let (gateway, account) = gateway(model, "anthropic", &["delay-ms=100", TURN], more);
    // With 64,000 tokens, the last of them could not be paid for any more.
    let turn = claude_turn(model).replace("64000", "32000");
    let turns = eight_at_once(&gateway, "/v1/messages", &turn);
    for (status, _) in &turns {
        assert_eq!(*status, 200, "{turns:?}");
    }
    let path = format!("/admin/v1/accounts/{account}");
    let balance = gateway.admin("GET", &path, &Value::Null)["balance"].clone();
    assert_eq!(balance["debt"], "0.00", "{balance}");
}
