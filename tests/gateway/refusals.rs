//! Causes of refusals, read from the body, with any status and for every operation. Another target answers if
//! the operator's account is at fault, and the customer learns nothing of it.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    Answer, Gateway, Recorded, Reply, Responder, ask, connect, eventually, paced_stream,
};

const JSON: &str = "content-type: application/json\r\n";
const EVENTS: &str = "content-type: text/event-stream\r\n";
/// Text that no customer may read.
const CANARY: &str = "Plans & Billing";

fn account_refusal() -> String {
    let message = format!(
        "Your credit balance is too low to access the Anthropic API. Please go to {CANARY} to upgrade."
    );
    json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
        .to_string()
}

fn refusal(status: u16, body: impl Into<String>) -> Reply {
    (status, JSON.to_owned(), body.into())
}

fn says(reply: Reply) -> Responder {
    Responder::start(move |_, _| reply.clone())
}

/// Upstreams of every protocol at `bad`, and of the same at `good`, with one model for each operation:
/// `bad` is always tried first, and never shut out.
fn gateway(bad: SocketAddr, good: SocketAddr, more: &str) -> Gateway {
    let upstreams = |at: SocketAddr, name: &str, more: &str| {
        format!(
            "  {name}-o: {{ protocol: openai, base_url: 'http://{at}/v1', \
             credentials: {{ main: sk-upstream-of-a-test }}{more} }}
  {name}-a: {{ protocol: anthropic, base_url: 'http://{at}', credential: sk-of-anthropic{more} }}
  {name}-g: {{ protocol: gemini, base_url: 'http://{at}/v1beta', credential: sk-of-google{more} }}
  {name}-x: {{ protocol: xai, base_url: 'http://{at}', credential: sk-of-xai{more} }}
"
        )
    };
    let circuit = "balancing: { circuit: { failures: 1000, failure_percent: 100 } }\n";
    let all = [upstreams(bad, "bad", more), upstreams(good, "good", ""), circuit.to_owned()];
    Gateway::logging(&all.concat(), &models(&["bad", "good"]))
}

fn models(names: &[&str]) -> String {
    let targets = |kind: &str| {
        let target = |(priority, name): (usize, &&str)| {
            format!("{{ upstream: {name}-{kind}, model: m, priority: {priority} }}")
        };
        names.iter().enumerate().map(target).collect::<Vec<_>>().join(", ")
    };
    let model = |name: &str, operation: &str, kind: &str, prices: &str| {
        let targets = targets(kind);
        format!(
            "  {name}:\n    operations: [{operation}]\n    targets: [{targets}]\n    {prices}\n"
        )
    };
    let tokens = "prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }\n    \
                  limits: { context_tokens_max: 100000, output_tokens_max: 1000 }\n    reasoning: false";
    let input = "prices: { input_per_1m_tokens: 1 }\n    limits: { context_tokens_max: 8192 }";
    let parts = "prices: { input_per_1m_tokens: 1 }\n    \
                 limits: { context_tokens_max: 8192, batch_inputs_max: 1 }";
    [
        "models:\n".to_owned(),
        model("chat", "chat", "o", tokens),
        model("responses", "responses", "o", tokens),
        model("messages", "messages", "a", tokens),
        model("gemini", "generate_content", "g", tokens),
        model("embeddings", "embeddings", "o", input),
        model("parts", "embeddings", "o", parts),
        model(
            "rerank",
            "rerank",
            "o",
            "prices: { input_per_1m_tokens: 10 }\n    limits: { documents_max: 10 }",
        ),
        model("moderations", "moderations", "o", "free: true"),
        model("images", "image_generation", "o", "prices: { per_image: 0.01 }"),
        model("speech", "speech", "o", "prices: { per_1m_characters: 15 }"),
        model("hearing", "transcription", "o", "prices: { per_audio_second: 0.0001 }"),
        model(
            "video",
            "video",
            "x",
            "prices: { per_second: 0.01 }\n    limits: { seconds_min: 1, seconds_max: 15 }",
        ),
    ]
    .concat()
}

/// Requests with name, path and body.
fn requests() -> Vec<(&'static str, &'static str, Value)> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let prompt = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    vec![
        ("chat", "/v1/chat/completions", json!({"model": "chat", "messages": messages})),
        (
            "chat stream",
            "/v1/chat/completions",
            json!({"model": "chat", "messages": messages, "stream": true}),
        ),
        ("responses", "/v1/responses", json!({"model": "responses", "input": "hi"})),
        (
            "responses stream",
            "/v1/responses",
            json!({"model": "responses", "input": "hi", "stream": true}),
        ),
        (
            "messages",
            "/v1/messages",
            json!({"model": "messages", "max_tokens": 9, "messages": messages}),
        ),
        (
            "messages stream",
            "/v1/messages",
            json!({"model": "messages", "max_tokens": 9, "messages": messages, "stream": true}),
        ),
        ("count", "/v1/messages/count_tokens", json!({"model": "messages", "messages": messages})),
        ("gemini", "/v1beta/models/gemini:generateContent", prompt.clone()),
        ("gemini stream", "/v1beta/models/gemini:streamGenerateContent?alt=sse", prompt),
        (
            "translated",
            "/v1/messages",
            json!({"model": "chat", "max_tokens": 9, "messages": messages}),
        ),
        (
            "translated stream",
            "/v1/messages",
            json!({"model": "chat", "max_tokens": 9, "messages": messages, "stream": true}),
        ),
        ("embeddings", "/v1/embeddings", json!({"model": "embeddings", "input": ["a"]})),
        ("parts", "/v1/embeddings", json!({"model": "parts", "input": ["a"]})),
        ("rerank", "/v1/rerank", json!({"model": "rerank", "query": "q", "documents": ["a"]})),
        ("moderations", "/v1/moderations", json!({"model": "moderations", "input": "a"})),
        ("images", "/v1/images/generations", json!({"model": "images", "prompt": "a"})),
        (
            "speech",
            "/v1/audio/speech",
            json!({"model": "speech", "input": "Hi.", "voice": "alloy"}),
        ),
        (
            "video",
            "/v1/videos/generations",
            json!({"model": "video", "prompt": "a cat", "duration": 1}),
        ),
    ]
}

fn post(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post(path, &lines, body))
}

fn transcribe(gateway: &Gateway) -> Answer {
    let wav = {
        let mut file = b"RIFF\x24\x10\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\x10\0\0".to_vec();
        file.resize(file.len() + 4096, 128);
        file
    };
    let mut body =
        b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nhearing\r\n--b\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
            .to_vec();
    body.extend(wav);
    body.extend(b"\r\n--b--\r\n");
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
        gateway.key,
        body.len()
    );
    ask(gateway.address, &[head.as_bytes(), &body].concat())
}

/// An upstream that serves everything.
fn serving() -> Responder {
    Responder::start(|_, request| good(request))
}

fn good(request: &Recorded) -> Reply {
    let (_, path) = request.target();
    let path = path.split('?').next().unwrap_or_default();
    if String::from_utf8_lossy(&request.body).contains("\"stream\":true")
        || path.contains(":stream")
    {
        return good_events(path);
    }
    let document = match path {
        "/v1/chat/completions" => json!({"id": "c", "object": "chat.completion", "created": 1,
            "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"},
            "finish_reason": "stop"}], "usage": chat_usage()}),
        "/v1/responses" => response(),
        "/v1/messages" => {
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 5, "output_tokens": 1}})
        }
        "/v1/messages/count_tokens" => json!({"input_tokens": 5}),
        "/v1beta/models/m:generateContent" => candidate(),
        "/v1/embeddings" => json!({"object": "list", "model": "m",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": 1, "total_tokens": 1}}),
        "/v1/rerank" => json!({"results": [{"index": 0, "relevance_score": 0.5}],
            "usage": {"total_tokens": 1}}),
        "/v1/moderations" => json!({"id": "m", "model": "m", "results": [{"flagged": false}]}),
        "/v1/images/generations" => json!({"created": 1, "data": [{"b64_json": "aGk="}]}),
        "/v1/audio/transcriptions" => json!({"text": "Hi"}),
        "/v1/videos/generations" => json!({"request_id": "task-1"}),
        "/v1/audio/speech" => {
            return (200, "content-type: audio/mpeg\r\n".to_owned(), "ID3 sound".to_owned());
        }
        _ => return refusal(404, "{}"),
    };
    (200, JSON.to_owned(), document.to_string())
}

/// The same as events.
fn good_events(path: &str) -> Reply {
    let events: Vec<String> = match path {
        "/v1/chat/completions" => {
            let chunk = |choices: Value, usage: Value| {
                json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                    "choices": choices, "usage": usage})
            };
            let delta = json!({"role": "assistant", "content": "Hi"});
            let text = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
            let stop = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
            let chunks = [
                chunk(text, Value::Null),
                chunk(stop, Value::Null),
                chunk(json!([]), chat_usage()),
            ];
            let done = "data: [DONE]\n\n".to_owned();
            chunks.into_iter().map(data).chain([done]).collect()
        }
        "/v1/responses" => vec![
            named(json!({"type": "response.created",
                "response": {"id": "resp_1", "status": "in_progress", "output": []}})),
            named(json!({"type": "response.output_text.delta", "item_id": "msg_1",
                "output_index": 0, "content_index": 0, "delta": "Hi"})),
            named(json!({"type": "response.completed", "response": response()})),
        ],
        "/v1/messages" => vec![
            named(json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
                "role": "assistant", "model": "m", "content": [], "stop_reason": null,
                "usage": {"input_tokens": 5, "output_tokens": 0}}})),
            named(json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "text", "text": ""}})),
            named(json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": "Hi"}})),
            named(json!({"type": "content_block_stop", "index": 0})),
            named(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 1}})),
            named(json!({"type": "message_stop"})),
        ],
        "/v1beta/models/m:streamGenerateContent" => vec![data(candidate())],
        _ => return refusal(404, "{}"),
    };
    (200, EVENTS.to_owned(), events.concat())
}

fn chat_usage() -> Value {
    json!({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6})
}

fn response() -> Value {
    let content = json!([{"type": "message", "id": "msg_1", "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi", "annotations": []}]}]);
    json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
        "error": null, "output": content,
        "usage": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}})
}

fn candidate() -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]},
        "finishReason": "STOP", "index": 0}], "usageMetadata": {"promptTokenCount": 5,
        "candidatesTokenCount": 1, "totalTokenCount": 6}})
}

fn data(value: Value) -> String {
    format!("data: {value}\n\n")
}

fn named(value: Value) -> String {
    format!("event: {}\n{}", value["type"].as_str().unwrap_or_default(), data(value.clone()))
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.bytes).into_owned()
}

fn faults(gateway: &Gateway, fault: &str) -> f64 {
    let all = gateway.metrics();
    let of = format!("fault=\"{fault}\"");
    let lines =
        all.lines().filter(|line| line.starts_with("tollgate_upstream_operator_faults_total{"));
    let lines = lines.filter(|line| line.contains(&of));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn log(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("log")).unwrap_or_default()
}

/// Prepaid credit that runs out at night: the next target answers, whatever was asked for.
#[test]
fn an_account_at_fault_is_answered_by_the_next_target_for_every_operation() {
    let bodies = [
        refusal(400, account_refusal()),
        refusal(
            403,
            r#"{"error":{"message":"Your organization has been disabled.","type":"invalid_request_error","param":null,"code":null}}"#,
        ),
        refusal(
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        ),
    ];
    for body in bodies {
        let (bad, good) = (says(body.clone()), serving());
        let gateway = gateway(bad.address, good.address, "");
        let mut request_count = 0;
        for (name, path, request) in requests() {
            let answer = post(&gateway, path, &request);
            request_count += 1;
            let expected = if name == "video" { 202 } else { 200 };
            assert_eq!(answer.status(), expected, "{name} after {body:?}: {}", text(&answer));
            assert!(!text(&answer).contains("illing"), "{name}: {}", text(&answer));
            assert_eq!(
                bad.requests().len(),
                request_count,
                "{name}: the first target was tried, once"
            );
            assert_eq!(good.requests().len(), request_count, "{name}: and then the next one");
        }
        let answer = transcribe(&gateway);
        assert_eq!(answer.status(), 200, "{}", text(&answer));
        request_count += 1;
        assert_eq!(
            faults(&gateway, "account"),
            f64::from(u32::try_from(request_count).expect("few"))
        );
    }
}

/// Where no target is left, the customer reads what stands for every failure, and the operator learns
/// which credential it is and why.
#[test]
fn where_no_target_is_left_the_operator_reads_why_and_the_customer_does_not() {
    let bad = says(refusal(400, account_refusal()));
    let upstreams = format!(
        "  bad-o: {{ protocol: openai, base_url: 'http://{at}/v1', credentials: {{ main: sk-upstream-of-a-test }} }}
  bad-a: {{ protocol: anthropic, base_url: 'http://{at}', credential: sk-of-anthropic }}
  bad-g: {{ protocol: gemini, base_url: 'http://{at}/v1beta', credential: sk-of-google }}
  bad-x: {{ protocol: xai, base_url: 'http://{at}', credential: sk-of-xai }}
",
        at = bad.address
    );
    let gateway = Gateway::logging(&upstreams, &models(&["bad"]));
    let series = |name: &str| {
        format!(
            "tollgate_upstream_operator_faults_total{{credential=\"main\",fault=\"{name}\",upstream=\"bad-o\"}}"
        )
    };
    assert_eq!(gateway.metric(&series("account")), 0.0, "it is there before the first event");
    for (name, path, request) in requests() {
        let answer = post(&gateway, path, &request);
        assert_eq!(answer.status(), 502, "{name}: {}", text(&answer));
        assert!(!text(&answer).contains("credit"), "{name}: {}", text(&answer));
        if name.starts_with("chat") {
            assert_eq!(answer.json()["error"]["code"], "service_unavailable", "{name}");
        }
    }
    assert_eq!(gateway.settled()["spent"], "0.00");
    assert!(gateway.metric(&series("account")) >= 1.0);
    let state = "tollgate_circuit_state{credential=\"main\",model=\"chat\",target=\"m\",upstream=\"bad-o\"}";
    assert!(gateway.metric(state) > 0.0, "its credential gets no calls for a while");
    eventually("a line in the log", || {
        let log = log(&gateway);
        let mut lines =
            log.lines().filter(|line| line.contains("bad-o/main refuses the operator's account"));
        lines.any(|line| line.contains("400 invalid_request_error: Your credit balance is too low"))
    });
    assert!(!log(&gateway).contains("sk-"), "never a key");
}

/// A customer can write what they like: quoted in a refusal of their own request, it shuts nothing out.
#[test]
fn words_of_a_customers_in_a_refusal_are_the_customers_fault() {
    for body in [
        r#"{"error":{"message":"Invalid value: 'credit balance is too low'","type":"invalid_request_error","param":"messages[0].role","code":"invalid_value"}}"#,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.0.content.0.text: Your credit balance is too low to access the Anthropic API."}}"#,
        r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"API key not valid\": Cannot find field.","status":"INVALID_ARGUMENT"}}"#,
    ] {
        let (bad, good) = (says(refusal(400, body)), serving());
        let gateway = gateway(bad.address, good.address, "");
        for (name, path, request) in requests() {
            let answer = post(&gateway, path, &request);
            assert_eq!(answer.status(), 400, "{name}: {}", text(&answer));
        }
        assert_eq!(good.requests().len(), 0, "no other target is asked: {body}");
        for fault in ["account", "credential", "model"] {
            assert_eq!(faults(&gateway, fault), 0.0, "{fault}: {body}");
        }
    }
}

/// Statuses in `retries.on` also apply to refusals.
#[test]
fn a_refusal_whose_status_is_listed_goes_to_the_next_target() {
    let body = r#"{"error":{"message":"`temperature` is odd","type":"invalid_request_error"}}"#;
    for status in [400, 406, 409, 413, 418, 422, 424, 426, 451, 499] {
        for (listed, expected) in [(format!("[{status}]"), 200), ("[timeout]".to_owned(), status)] {
            let (bad, good) = (says(refusal(status, body)), serving());
            let gateway =
                gateway(bad.address, good.address, &format!(", retries: {{ on: {listed} }}"));
            for name in ["chat", "chat stream", "messages", "translated", "parts", "gemini"] {
                let all = requests();
                let (_, path, request) = all.iter().find(|one| one.0 == name).expect("a request");
                let answer = post(&gateway, path, request);
                let is_translated = name == "translated" && expected != 200;
                let expected = if is_translated { 400 } else { expected };
                assert_eq!(
                    answer.status(),
                    expected,
                    "{name} {status} {listed}: {}",
                    text(&answer)
                );
            }
            gateway.settled();
            let lost = gateway.metric(r#"tollgate_operator_loss_dollars_total{cause="retry"}"#);
            assert_eq!(lost, 0.0, "nothing was done by whom refused: {status}");
        }
    }
}

/// A document, or the first events of a stream.
fn first(events: &[&str]) -> Reply {
    match events {
        [document] if document.starts_with(['{', '[']) => refusal(200, *document),
        events => {
            (200, EVENTS.to_owned(), events.iter().map(|event| format!("{event}\n\n")).collect())
        }
    }
}

const ROLE: &str = r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
const OVERLOADED: &str =
    r#"data: {"error":{"message":"The engine is currently overloaded","type":"server_error"}}"#;
const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":3}}}";
const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}";
const ERROR: &str = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}";
const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"error\":null,\"output\":[]}}";
const FAILED: &str = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"x\"},\"output\":[],\"usage\":null}}";

/// Answers with a status of success that are errors: of which requests, the reply, and the status that
/// its customer reads where no other target is left.
fn errors_with_success() -> Vec<(&'static [&'static str], Reply, u16)> {
    let minimax = r#"{"id":"x","choices":null,"usage":{"total_tokens":0},"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#;
    let openrouter = r#"{"error":{"message":"Insufficient credits","code":402},"user_id":"u"}"#;
    let choice = r#"{"id":"g","choices":[{"index":0,"error":{"code":502,"message":"x"},"finish_reason":"error","message":{"role":"assistant","content":""}}]}"#;
    let failed = r#"{"id":"r","object":"response","status":"failed","error":{"code":"server_error","message":"x"},"output":[],"usage":null}"#;
    vec![
        (&["chat", "chat stream", "translated", "translated stream"], first(&[minimax]), 502),
        (
            &[
                "chat",
                "chat stream",
                "translated",
                "embeddings",
                "parts",
                "rerank",
                "images",
                "moderations",
            ],
            first(&[openrouter]),
            502,
        ),
        (&["chat", "translated"], first(&[choice]), 502),
        (&["responses", "responses stream"], first(&[failed]), 502),
        (&["speech"], first(&[openrouter]), 502),
        (
            &["gemini", "gemini stream"],
            first(&[r#"[{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}]"#]),
            429,
        ),
        (
            &["messages", "messages stream"],
            first(&[r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#]),
            529,
        ),
        (&["chat stream", "translated stream"], first(&[OVERLOADED]), 429),
        (
            &["chat stream", "translated stream"],
            first(&[": OPENROUTER PROCESSING", ": OPENROUTER PROCESSING", OVERLOADED]),
            429,
        ),
        (&["chat stream", "translated stream"], first(&[ROLE, OVERLOADED]), 429),
        (&["messages stream"], first(&[ERROR]), 529),
        (&["messages stream"], first(&[START, PING, ERROR]), 529),
        (&["responses stream"], first(&[FAILED]), 502),
        (&["responses stream"], first(&[CREATED, FAILED]), 502),
        (
            &["responses stream"],
            first(&[r#"data: {"type":"error","code":"server_error","message":"x","param":null}"#]),
            502,
        ),
        (
            &["gemini stream"],
            first(&[
                r#"data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#,
            ]),
            429,
        ),
    ]
}

/// An error in the place of an answer, or as the first event of a stream: nothing has been delivered.
#[test]
fn an_error_with_a_status_of_success_is_answered_by_the_next_target() {
    for (names, reply, status) in errors_with_success() {
        let (bad, good) = (says(reply.clone()), serving());
        let both = gateway(bad.address, good.address, "");
        let alone = gateway(bad.address, bad.address, "");
        for (name, path, request) in requests().into_iter().filter(|one| names.contains(&one.0)) {
            let answer = post(&both, path, &request);
            let message = text(&answer);
            assert_eq!(answer.status(), 200, "{name} after {reply:?}: {message}");
            assert!(message.contains("Hi") || !name.contains("chat"), "{name}: {message}");
            assert!(
                !message.to_lowercase().contains("overloaded") && !message.contains("nsufficient"),
                "{name}: {message}"
            );
            let answer = post(&alone, path, &request);
            assert_eq!(answer.status(), status, "{name} alone after {reply:?}: {}", text(&answer));
            assert!(!text(&answer).contains("nsufficient"), "{name}: {}", text(&answer));
        }
        assert_eq!(alone.settled()["spent"], "0.00", "{reply:?}");
        both.settled();
    }
}

/// An error about the customer's own request has a status of its own, in words that their SDK reads.
#[test]
fn a_customers_fault_with_a_status_of_success_is_a_400() {
    for body in [
        r#"{"id":"x","choices":null,"base_resp":{"status_code":2013,"status_msg":"the temperature is odd"}}"#,
        r#"{"error":{"message":"the temperature is odd","code":400}}"#,
    ] {
        let (bad, good) = (says(refusal(200, body)), serving());
        let gateway = gateway(bad.address, good.address, "");
        for name in ["chat", "chat stream", "translated", "translated stream"] {
            let all = requests();
            let (_, path, request) = all.iter().find(|one| one.0 == name).expect("a request");
            let answer = post(&gateway, path, request);
            assert_eq!(answer.status(), 400, "{name}: {}", text(&answer));
            let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.contains("the temperature is odd"), "{name}: {}", text(&answer));
        }
        assert_eq!(good.requests().len(), 0, "{body}");
        assert_eq!(gateway.settled()["spent"], "0.00");
    }
}

/// A submit whose answer tells of success is never made again, whatever it says.
#[test]
fn a_submit_with_a_status_of_success_is_never_sent_again() {
    let (bad, good) =
        (says(refusal(200, r#"{"code":"x","error":"Your team has been suspended"}"#)), serving());
    let gateway = gateway(bad.address, good.address, "");
    let all = requests();
    let (_, path, request) = all.iter().find(|one| one.0 == "video").expect("a request");
    let answer = post(&gateway, path, request);
    assert!(answer.status() >= 500, "{}", text(&answer));
    assert_eq!(good.requests().len(), 0);
}

/// How long after a request a text of the answer has come.
fn seen_after(gateway: &Gateway, expected: &str) -> Duration {
    let all = requests();
    let (_, path, request) = all.iter().find(|one| one.0 == "chat stream").expect("a request");
    let body = request.to_string();
    let mut stream = connect(gateway.address);
    let began = Instant::now();
    let lines = format!("Content-Length: {}\r\n", body.len());
    stream.write_all(&gateway.post(path, &lines, body)).expect("sent");
    let (mut read, mut room) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&read).contains(expected) {
        let count = stream.read(&mut room).expect("more of the answer");
        assert!(count > 0, "no {expected}: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&room[..count]);
    }
    began.elapsed()
}

#[test]
fn a_healthy_first_event_is_passed_on_at_once() {
    let second = Duration::from_secs(1);
    let word = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"},\"finish_reason\":null}]}\n\n";
    let end = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let good = serving();
    let at_once = paced_stream(vec![
        (Duration::ZERO, format!("{ROLE}\n\n{word}")),
        (3 * second, end.to_owned()),
    ]);
    let gateway_at_once = gateway(at_once, good.address, "");
    let took = seen_after(&gateway_at_once, "word");
    assert!(took < second, "{took:?}");
    // Nobody can do anything with a role; it waits for a moment, and not for the thought behind it.
    let thinking = paced_stream(vec![
        (Duration::ZERO, format!("{ROLE}\n\n")),
        (4 * second, format!("{word}{end}")),
    ]);
    let gateway_thinking = gateway(thinking, good.address, "");
    let took = seen_after(&gateway_thinking, "assistant");
    assert!(took < 3 * second, "{took:?}");
    // The word is the second event, and is there at once when it comes.
    let soon = paced_stream(vec![
        (Duration::ZERO, format!("{ROLE}\n\n")),
        (second / 5, word.to_owned()),
        (3 * second, end.to_owned()),
    ]);
    let gateway_soon = gateway(soon, good.address, "");
    let took = seen_after(&gateway_soon, "word");
    assert!(took < second, "{took:?}");
}

/// Comments keep the customer's connection while the first event is waited for; the next target's answer
/// follows in the same stream.
#[test]
fn a_stream_that_is_kept_alive_goes_to_the_next_target_too() {
    let late = paced_stream(vec![
        (Duration::ZERO, ": thinking\n\n".to_owned()),
        (Duration::from_secs(1), format!("{OVERLOADED}\n\n")),
    ]);
    let good = serving();
    let upstreams = format!(
        "  bad-o: {{ protocol: openai, base_url: 'http://{late}/v1' }}
  good-o: {{ protocol: openai, base_url: 'http://{}/v1' }}\n",
        good.address
    );
    let tokens = "    operations: [chat]\n    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }\n    \
                  limits: { context_tokens_max: 1000, output_tokens_max: 100 }\n    reasoning: false\n";
    let models = format!(
        "models:\n  chat:\n{tokens}    targets: [{{ upstream: bad-o }}, {{ upstream: good-o, priority: 1 }}]\n"
    );
    let gateway = Gateway::limited("  sse_keepalive: 200ms\n", &upstreams, &models);
    let all = requests();
    let (_, path, request) = all.iter().find(|one| one.0 == "chat stream").expect("a request");
    let message = String::from_utf8(post(&gateway, path, request).content()).expect("text");
    assert!(message.starts_with(": keep-alive\n\n"), "{message}");
    assert!(message.contains("\"Hi\"") && message.ends_with("data: [DONE]\n\n"), "{message}");
    assert!(!message.contains("overloaded"), "{message}");
    assert_eq!(gateway.settled()["spent"], "0.000015", "the answer, and nothing else");
}

/// RFC 9110, section 10.2.3: a date is as good as a number of seconds; and Google says it in the body.
#[test]
fn when_to_come_again_is_read_as_a_date_and_in_googles_body() {
    let date =
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:57 GMT\r\n";
    let google = r#"{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"19.5s"}]}}"#;
    for reply in [
        (429, format!("{JSON}{date}"), r#"{"error":{"message":"x"}}"#.to_owned()),
        (429, JSON.to_owned(), google.to_owned()),
        (429, format!("{JSON}retry-after-ms: 19500\r\n"), "{}".to_owned()),
    ] {
        let bad = says(reply.clone());
        let gateway = gateway(bad.address, bad.address, "");
        for name in ["chat", "chat stream", "embeddings", "gemini"] {
            let all = requests();
            let (_, path, request) = all.iter().find(|one| one.0 == name).expect("a request");
            let answer = post(&gateway, path, request);
            assert_eq!(answer.status(), 429, "{name}: {}", text(&answer));
            let seconds: u64 =
                answer.header("retry-after").and_then(|value| value.parse().ok()).unwrap_or(0);
            assert!((17..=20).contains(&seconds), "{name} after {reply:?}: {seconds}");
        }
    }
}
