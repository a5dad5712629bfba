//! Attempts of a customer to end the process: bodies that are nested, broken and odd, at
//! every endpoint, for models of every dialect.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::harness::attack::door::{self, Caller};
use crate::harness::attack::upstream::Pace;
use crate::harness::attack::{Arena, Standing};
use crate::harness::child::Running;
use crate::harness::container::Container;
use crate::harness::{http, rounds};

/// Values inside each other; a recursion without a bound ends at a tenth of that.
const DEPTH: usize = 100_000;

/// A body with `nested` at the place of the word NESTED.
const NESTED: [(&str, &str); 14] = [
    ("/v1/chat/completions", "NESTED"),
    ("/v1/chat/completions", r#"{"model":"m","messages":NESTED}"#),
    ("/v1/chat/completions", r#"{"model":"m","messages":[{"role":"user","content":NESTED}]}"#),
    (
        "/v1/chat/completions",
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":NESTED}}]}"#,
    ),
    (
        "/v1/chat/completions",
        r#"{"model":"m","messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":NESTED}}}"#,
    ),
    ("/v1/chat/completions", r#"{"model":"claude","messages":[{"role":"user","content":NESTED}]}"#),
    (
        "/v1/chat/completions",
        r#"{"model":"g","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":NESTED}}]}"#,
    ),
    (
        "/v1/messages",
        r#"{"model":"claude","max_tokens":9,"messages":[{"role":"user","content":NESTED}]}"#,
    ),
    (
        "/v1/messages",
        r#"{"model":"g","max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":NESTED}]}"#,
    ),
    ("/v1/messages/count_tokens", r#"{"model":"claude","messages":NESTED}"#),
    ("/v1/responses", r#"{"model":"m-responses","input":NESTED}"#),
    ("/v1/responses", r#"{"model":"claude","input":[{"role":"user","content":NESTED}]}"#),
    ("/v1beta/models/g:generateContent", r#"{"contents":NESTED}"#),
    (
        "/mcp",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chat","arguments":{"model":"m","messages":NESTED}}}"#,
    ),
];

/// A stack that overflows ends the process, and what it can be filled with is depth. Frames of a build for
/// tests are larger than those of a release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a control group where there are some"]
async fn attack_of_nested_bodies_ends_no_process() {
    let standing = match Container::can_be_made() {
        true => Standing::Container,
        false => Standing::Descriptors(1024),
    };
    let mut arena = Arena::start(standing, Pace::Silent, 1, "100.00").await;
    let (open, object) = ("[".repeat(DEPTH), r#"{"type":"object","properties":{"a":"#);
    let whole = format!("{open}{}", "]".repeat(DEPTH));
    let objects = format!("{}1{}", object.repeat(DEPTH / 10), "}}".repeat(DEPTH / 10));
    // Within the depth that is read: the recursion behind the reader.
    let shallow = format!("{}1{}", object.repeat(60), "}}".repeat(60));
    let mut sent = 0;
    for (path, body) in NESTED {
        for nested in [&open, &whole, &objects, &shallow] {
            let body = body.replace("NESTED", nested);
            let ended = arena.hostile(0).call_path(path, &body).await;
            assert!(arena.gateway.is_running(), "{path} {body:.200}: {ended:?}");
            sent += 1;
        }
    }
    for nested in [&open, &whole, &objects, &shallow] {
        for message in [
            nested.clone(),
            format!(r#"{{"type":"response.create","model":"m-responses","input":{nested}}}"#),
            format!(
                r#"{{"type":"response.create","model":"claude","input":"x","tools":{nested}}}"#
            ),
        ] {
            let caller: Caller = arena.hostile(0);
            let mut stream = caller.websocket().await.expect("a WebSocket");
            let written =
                tokio::io::AsyncWriteExt::write_all(&mut stream, &door::frame(&message)).await;
            let answer = door::next_text(&mut stream);
            let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
            assert!(arena.gateway.is_running(), "{message:.200}: {written:?} {answer:?}");
            sent += 1;
        }
    }
    let log = std::fs::read_to_string(arena.gateway.path("log")).expect("the log");
    assert!(!log.contains("panicked"), "{log}");
    let mut seen = crate::harness::attack::HonestCalls::default();
    arena.honest_round("m", &mut seen).await;
    assert_eq!(seen.failures, Vec::<String>::new(), "the honest account is served");
    let rss = arena.gateway.rss_bytes_max() >> 20;
    println!("{sent} nested bodies of up to {} bytes: at most {rss} MiB resident", objects.len());
}

/// A demo that logs to a file.
struct Logged {
    url: String,
    key: String,
    process: Running,
    directory: tempfile::TempDir,
}

impl Logged {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let log = File::create(directory.path().join("log")).expect("a log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["demo", "--json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"])
            .arg(directory.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout");
        BufReader::new(stdout).read_line(&mut line).expect("a line when it is ready");
        let ready: Value = serde_json::from_str(&line).expect("JSON");
        let field =
            |name: &str| ready[name].as_str().unwrap_or_else(|| panic!("{ready}")).to_owned();
        let (url, key) = (field("base_url"), field("api_key"));
        Self { url, key, process: Running(child), directory }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).expect("the log")
    }
}

/// Requests that are good, of every kind.
#[expect(clippy::too_many_lines, reason = "a list of inputs, one for each operation")]
fn seeds(models: &[String]) -> Vec<(String, Value)> {
    let tool = json!({"type": "object", "properties": {"city": {"type": "string", "enum": ["a", "b"]}},
        "required": ["city"]});
    let picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let mut all = Vec::new();
    for model in models {
        all.push(("/v1/chat/completions".to_owned(), json!({"model": model, "stream": true,
            "max_tokens": 20, "temperature": 0.5, "n": 1, "stop": ["x"], "metadata": {"a": "b"},
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": tool}},
            "tools": [{"type": "function", "function": {"name": "f.x", "parameters": tool}}],
            "tool_choice": {"type": "function", "function": {"name": "f.x"}},
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [
                {"type": "text", "text": "hé"}, {"type": "image_url", "image_url": {"url": picture}}]},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "call-1", "type": "function",
                    "function": {"name": "f.x", "arguments": "{\"city\":\"a\"}"}}]},
                {"role": "tool", "tool_call_id": "call-1", "content": "sun"}]})));
        all.push(("/v1/messages".to_owned(), json!({"model": model, "max_tokens": 2000, "stream": false,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "thinking": {"type": "enabled", "budget_tokens": 1024}, "stop_sequences": ["x"],
            "tools": [{"name": "f", "input_schema": tool}], "tool_choice": {"type": "auto"},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": &picture[22..]}}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"city": "a"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "sun"}]}]})));
        all.push(("/v1/responses".to_owned(), json!({"model": model, "max_output_tokens": 30, "store": false,
            "instructions": "i", "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}},
            "tools": [{"type": "function", "name": "f", "parameters": tool}],
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"},
                {"type": "input_image", "image_url": picture}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "x"}]})));
        all.push((
            format!("/v1beta/models/{model}:generateContent"),
            json!({
            "systemInstruction": {"parts": [{"text": "s"}]},
            "generationConfig": {"maxOutputTokens": 20, "temperature": 0.1, "responseSchema": tool},
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": tool}]}],
            "contents": [{"role": "user", "parts": [{"text": "hi"},
                {"inlineData": {"mimeType": "image/png", "data": &picture[22..]}}]}]}),
        ));
        for (tool, arguments) in [
            (
                "chat",
                json!({"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 5, "extra": {"seed": 1}}),
            ),
            ("generate_image", json!({"model": model, "prompt": "x", "size": "1024x1024", "n": 1})),
            (
                "submit_video",
                json!({"model": model, "prompt": "x", "duration": 5, "resolution": "720p"}),
            ),
            ("speak", json!({"model": model, "input": "x", "voice": "alloy"})),
            ("embed", json!({"model": model, "input": ["x"], "dimensions": 64})),
        ] {
            all.push((
                "/mcp".to_owned(),
                json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}}),
            ));
        }
        for (path, body) in [
            (
                "/v1/messages/count_tokens",
                json!({"model": model, "messages": [{"role": "user", "content": "x"}]}),
            ),
            (
                "/v1/responses/compact",
                json!({"model": model, "input": [{"role": "user", "content": "x"}]}),
            ),
            ("/v1/responses/input_tokens", json!({"model": model, "input": "x"})),
            (
                "/v1/embeddings",
                json!({"model": model, "input": ["x", "y"], "dimensions": 64, "encoding_format": "base64"}),
            ),
            (
                "/v1/rerank",
                json!({"model": model, "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}),
            ),
            ("/v1/moderations", json!({"model": model, "input": [{"type": "text", "text": "x"}]})),
            (
                "/v1/images/generations",
                json!({"model": model, "prompt": "x", "size": "1024x1024", "n": 1, "quality": "high"}),
            ),
            (
                "/v1/images/edits",
                json!({"model": model, "prompt": "x", "images": [{"image_url": picture}]}),
            ),
            (
                "/v1/videos/generations",
                json!({"model": model, "prompt": "x", "duration": 5, "resolution": "720p"}),
            ),
            (
                "/v1/audio/speech",
                json!({"model": model, "input": "x", "voice": "alloy", "response_format": "wav"}),
            ),
        ] {
            all.push((path.to_owned(), body));
        }
    }
    all
}

/// A value that nobody expects.
fn odd(rng: &mut Rng) -> Value {
    match rng.u8(..16) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(i64::MIN),
        5 => json!(1e308),
        6 => json!(0.1),
        7 => json!(""),
        8 => json!("\u{0}\u{1f600}\u{d7ff}é"),
        9 => json!("x".repeat(rng.usize(..5_000))),
        10 => json!([]),
        11 => json!({}),
        12 => json!([[[{"a": [null]}]]]),
        13 => json!("data:image/png;base64,AAAA"),
        14 => json!({"$ref": "#/a", "type": ["object", "null"], "anyOf": [{}], "properties": 3}),
        _ => json!("😀".repeat(rng.usize(..70))),
    }
}

/// Changes something somewhere within `value`.
fn mutate(value: &mut Value, rng: &mut Rng) {
    let stays = rng.u8(..4) == 0;
    match value {
        Value::Object(fields) if !fields.is_empty() && !stays => {
            let name = rng.choice(fields.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
            match rng.u8(..10) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert(format!("{name}x"), odd(rng))),
                2 => drop(fields.insert(name, odd(rng))),
                _ => mutate(&mut fields[&name], rng),
            }
        }
        Value::Array(items) if !items.is_empty() && !stays => {
            let place = rng.usize(..items.len());
            match rng.u8(..10) {
                0 => drop(items.remove(place)),
                1 => items.push(items[place].clone()),
                2 => items[place] = odd(rng),
                _ => mutate(&mut items[place], rng),
            }
        }
        _ => *value = odd(rng),
    }
}

/// A mutated request as it is sent: sometimes no JSON any more.
fn mutated(seed: &Value, rng: &mut Rng) -> Vec<u8> {
    let mut value = seed.clone();
    for _ in 0..rng.u8(1..4) {
        mutate(&mut value, rng);
    }
    let mut bytes = value.to_string().into_bytes();
    match rng.u8(..12) {
        0 => bytes.truncate(rng.usize(..=bytes.len())),
        1 if !bytes.is_empty() => {
            let place = rng.usize(..bytes.len());
            bytes[place] = rng.u8(..);
        }
        // Half of a pair of UTF-16.
        2 => {
            let text = String::from_utf8(bytes).expect("JSON").replacen("x\"", "\\ud83d\"", 1);
            bytes = text.into_bytes();
        }
        _ => {}
    }
    bytes
}

/// Requests at random, for what no reader of the code would find: none may panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "sends thousands of requests"]
async fn attack_of_mutated_bodies_panics_nowhere() {
    let mut demo = Logged::start();
    let client = http();
    let listed = client.get(format!("{}/v1/models", demo.url)).bearer_auth(&demo.key);
    let listed: Value = listed.send().await.expect("models").json().await.expect("JSON");
    let models = listed["data"].as_array().expect("models").iter();
    let models: Vec<String> =
        models.map(|model| model["id"].as_str().expect("an id").to_owned()).collect();
    let seeds = seeds(&models);
    let mut rng = Rng::with_seed(38);
    let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
    let mut faults = Vec::new();
    for round in 0..rounds(1_500) {
        let calls = (0..16).map(|_| {
            let (path, seed) = &seeds[rng.usize(..seeds.len())];
            let body = mutated(seed, &mut rng);
            let request = client
                .post(format!("{}{path}", demo.url))
                .bearer_auth(&demo.key)
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .timeout(Duration::from_secs(30))
                .body(body.clone());
            async move {
                let answer = request.send().await;
                let status = match answer {
                    Ok(answer) => (answer.status().as_u16(), answer.bytes().await.is_ok()),
                    Err(_) => (0, false),
                };
                (status, path, body)
            }
        });
        let calls: Vec<_> = calls.collect();
        for ((status, is_whole), path, body) in futures_util::future::join_all(calls).await {
            *statuses.entry(status).or_default() += 1;
            if status == 0 || status == 500 || !is_whole {
                let body = String::from_utf8_lossy(&body).into_owned();
                faults.push(format!("{path}: {status}, whole: {is_whole}: {body:.1500}"));
            }
        }
        let running = matches!(demo.process.0.try_wait(), Ok(None));
        assert!(running, "round {round}: the process has ended:\n{}", demo.log());
    }
    println!("{} models, {} kinds of request: {statuses:?}", models.len(), seeds.len());
    let log = demo.log();
    assert!(!log.contains("panicked"), "{log}");
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults[..faults.len().min(10)].join("\n")
    );
}
