//! Bodies whose parsing costs much more than sending them: none of them takes the memory, or the time
//! of others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::GOOD;
use crate::harness::{Gateway, Recorder, ask, eventually, simulator};

/// Memory of a debug build beside the held bodies, in bytes.
const OWN_BYTES: u64 = 128 << 20;

const EMBEDDINGS: &str = "  vectors:
    operations: [embeddings]
    targets:
      - { upstream: recorder }
    prices:
      input_per_1m_tokens: 0.02
    limits:
      context_tokens_max: 8192
      token_ids: true
";

/// A gateway with the limits that are shipped.
fn start(recorder: &Recorder) -> Gateway {
    let mut gateway = Gateway::start(recorder.address);
    let edit = |name: &str, edit: &dyn Fn(String) -> String| {
        let text = std::fs::read_to_string(gateway.path(name)).expect("the file");
        std::fs::write(gateway.path(name), edit(text)).expect("written");
    };
    edit("routes.yaml", &|text| {
        let more = "  - { path: /v1/embeddings, operation: embeddings }\n  - { path: /v1/responses, \
                    operation: responses }\nmcp:";
        let (head, tail) = text.split_once("limits:\n").expect("limits");
        let (_, tail) = tail.split_once("upstreams:\n").expect("upstreams");
        format!("{head}upstreams:\n{tail}{}\n", more.trim_end_matches("mcp:"))
    });
    edit("models.yaml", &|text| {
        let text = text.replacen("operations: [chat]", "operations: [chat, responses]", 1);
        format!("{text}{EMBEDDINGS}")
    });
    gateway.kill_and_restart();
    gateway
}

fn zeros(before: &str, count: usize, behind: &str) -> String {
    format!("{before}[{}0]{behind}", "0,".repeat(count - 1))
}

fn post(gateway: &Gateway, path: &str, body: &str) -> Vec<u8> {
    let lines = "Accept: application/json, text/event-stream\r\nContent-Length: ";
    gateway.post(path, &format!("{lines}{}\r\n", body.len()), body)
}

/// Asks honestly until told to stop; the longest and the median time that it took.
fn neighbour(gateway: &Gateway, is_over: &AtomicBool) -> (Duration, Duration) {
    let request = gateway.chat_json(GOOD);
    let mut took = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let answer = ask(gateway.address, &request);
        assert_eq!(answer.status(), 200, "an honest request is served: {answer:?}");
        took.push(answer.took);
    }
    took.sort_unstable();
    (took[took.len() - 1], took[took.len() / 2])
}

/// Two attackers send each of these, one after the other, while somebody asks honestly.
fn attack(gateway: &Gateway, rows: &[(&str, Vec<u8>, &[u16])]) -> (Duration, Duration) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| neighbour(gateway, &is_over));
        let attackers = [(); 2].map(|()| {
            scope.spawn(|| {
                for (name, request, statuses) in rows {
                    let begun = Instant::now();
                    let answer = ask(gateway.address, request);
                    let shown = answer.bytes.get(..600).unwrap_or(&answer.bytes).escape_ascii();
                    assert!(statuses.contains(&answer.status()), "{name}: {shown}");
                    println!("{name}: {} after {:?}", answer.status(), begun.elapsed());
                    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
                    let names_limit = text.contains("json_values_max");
                    assert!(answer.status() != 400 || names_limit, "{name}: {shown}");
                }
            })
        });
        let ended = attackers.map(|attacker| attacker.join());
        is_over.store(true, Ordering::Relaxed);
        for end in ended {
            end.expect("an attacker is answered");
        }
        honest.join().expect("an honest customer is served")
    })
}

#[test]
fn millions_of_values_cost_nobody_anything() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let before = gateway.settled();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chat","arguments":{"model":"m","messages":"#;
    let mcp = |count| post(&gateway, "/mcp", &zeros(call, count, "}}}"));
    let chat = |field: &str, count| {
        let before =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"{field}":"#);
        post(&gateway, "/v1/chat/completions", &zeros(&before, count, "}"))
    };
    let other = |path: &str, model: &str, field: &str, count| {
        let before = format!(r#"{{"model":"{model}","max_tokens":1,"{field}":"#);
        post(&gateway, path, &zeros(&before, count, "}"))
    };
    // Trees of these are the dearest: an object of one member takes a node of its own.
    let objects = format!("{call}[{}0]}}}}}}", r#"{"a":0},"#.repeat(200_000));
    let rows: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("mcp: messages, 15 MB", mcp(7_500_000), &[413]),
        ("mcp: messages, 2 MB", mcp(1_000_000), &[400]),
        ("mcp: messages as objects", post(&gateway, "/mcp", &objects), &[400]),
        ("chat: tools, 20 MB", chat("tools", 10_000_000), &[400]),
        ("chat: stop, 20 MB", chat("stop", 10_000_000), &[400]),
        ("chat: another field, 24 MB", chat("metadata", 12_000_000), &[400]),
        ("messages: system, 20 MB", other("/v1/messages", "claude", "system", 10_000_000), &[400]),
        ("responses: input, 20 MB", other("/v1/responses", "m", "input", 10_000_000), &[400]),
        ("embeddings: ids, 20 MB", other("/v1/embeddings", "vectors", "input", 10_000_000), &[400]),
    ];
    let (longest, median) = attack(&gateway, &rows);
    println!("an honest call took {median:?} mostly, {longest:?} at most");
    assert!(longest < Duration::from_millis(500), "an honest call took {longest:?}");
    assert!(recorder.requests().iter().all(|request| request.body.len() < 1000), "none went on");
    gateway.settled();
    // Two bodies of 24 MB at one time, and nothing else.
    let rss_bytes = gateway.rss_bytes_max();
    println!("{} MiB resident", rss_bytes >> 20);
    assert!(rss_bytes < OWN_BYTES + (64 << 20), "{rss_bytes} bytes resident");
    let spent = |balance: &serde_json::Value| balance["spent"].clone();
    assert_eq!(spent(&before), "0.00", "{before}");
}

/// Large valid bodies are read while nobody else waits.
#[test]
fn large_bodies_are_read_beside_those_of_others() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    gateway.grant("1000.00", "more");
    // So much text would fit into no context.
    let picture = format!("data:image/png;base64,{}", "x".repeat(8 << 20));
    let content = format!(r#"[{{"type":"image_url","image_url":{{"url":"{picture}"}}}}]"#);
    let picture = GOOD.replace("\"hi\"", &content);
    let escapes = GOOD.replace("hi", &"\\n".repeat(150_000)).replace("m\"", "endless\"");
    let ids = zeros(r#"{"model":"vectors","input":"#, 900_000, "}");
    let searches = format!(
        r#"{{"model":"m","input":"hi","tools":[{}{{"type":"function","name":"f"}}]}}"#,
        r#"{"type":"web_search"},"#.repeat(20_000)
    );
    let rows: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("chat: a picture, 8 MiB", gateway.chat_json(&picture), &[200]),
        ("chat: escapes", gateway.chat_json(&escapes), &[200]),
        // The recorder answers with a chat, which has no vectors.
        ("embeddings: 900,000 ids", post(&gateway, "/v1/embeddings", &ids), &[502]),
        ("responses: 20,000 searches", post(&gateway, "/v1/responses", &searches), &[200]),
    ];
    let (longest, median) = attack(&gateway, &rows);
    println!("an honest call took {median:?} mostly, {longest:?} at most");
    assert!(longest < Duration::from_millis(500), "an honest call took {longest:?}");
    let rss_bytes = gateway.rss_bytes_max();
    println!("{} MiB resident", rss_bytes >> 20);
    assert!(rss_bytes < OWN_BYTES + (64 << 20), "{rss_bytes} bytes resident");
    gateway.settled();
}

/// Trees of bodies count in the memory for bodies while they exist: calls without room are refused and cost
/// nothing.
#[test]
fn trees_of_agents_calls_count_in_the_memory_of_bodies() {
    const CALLS: usize = 6;
    const VALUES: usize = 12_000;
    let sim = simulator(&["delay-ms=3000"]);
    // 64 MiB for all bodies, of which an account may have a quarter.
    let gateway = Gateway::start(sim.addr());
    let objects = r#"{"a":0},"#.repeat(VALUES / 2);
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"chat","arguments":{{"model":"m","prompt":"hi","extra":{{"x_unknown":[{objects}0]}}}}}}}}"#
    );
    let request = post(&gateway, "/mcp", &call);
    let before = gateway.rss_bytes_max();
    let (held, statuses) = std::thread::scope(|scope| {
        let calls = [(); CALLS].map(|()| scope.spawn(|| ask(gateway.address, &request)));
        eventually("each call is refused or at the upstream", || {
            let refused = calls.iter().filter(|call| call.is_finished()).count();
            refused + sim.requests_in_flight() == CALLS
        });
        let held = gateway.metric("tollgate_request_body_bytes");
        let answer = ask(gateway.address, &gateway.get("/v1/models"));
        assert_eq!(answer.status(), 200, "others are served: {answer:?}");
        (held, calls.map(|call| call.join().expect("no panic").status()))
    });
    let (served, shed): (Vec<&u16>, Vec<&u16>) =
        statuses.iter().partition(|status| **status == 200);
    let is_shed = |status: &&u16| matches!(**status, 429 | 503);
    assert!(!served.is_empty() && shed.iter().all(is_shed), "{statuses:?}");
    assert!(!shed.is_empty(), "16 MiB have room for one tree of 12 MiB: {statuses:?}");
    assert!(held > (served.len() * VALUES * 1000) as f64, "{held} bytes are counted");
    let grown = gateway.rss_bytes_max().saturating_sub(before);
    println!("{held} bytes were counted, {grown} taken by {} calls", served.len());
    assert!(grown as f64 <= held + 32e6, "{grown} bytes were taken, {held} counted");
    gateway.settled();
    assert_eq!(gateway.metric("tollgate_request_body_bytes"), 0.0, "all is given back");
}
