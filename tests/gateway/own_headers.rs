//! Headers of the operator's own in requests to upstreams.

use crate::harness::{Gateway, Recorded, Reply, Responder, ask, chat_model, eventually};
use serde_json::{Value, json};

const COMPLETION: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;

const HEADERS: &str = "headers: { HTTP-Referer: 'https://gateway.example/of-ours', X-Title: 'Our gateway', \
     cf-aig-authorization: 'Bearer cf-canary-of-ours', user-agent: tollgate-of-ours }";

fn has_all(request: &Recorded) -> bool {
    request.header("http-referer") == "https://gateway.example/of-ours"
        && request.header("x-title") == "Our gateway"
        && request.header("cf-aig-authorization") == "Bearer cf-canary-of-ours"
        && request.header("user-agent") == "tollgate-of-ours"
        && request.head.to_ascii_lowercase().matches("user-agent:").count() == 1
}

fn answer(request: &Recorded) -> Reply {
    let body = match request.target() {
        (_, path) if path.contains("/embeddings") => {
            let one =
                |index: u32| json!({"object": "embedding", "index": index, "embedding": [1.0]});
            let usage = json!({"prompt_tokens": 4, "total_tokens": 4});
            json!({"object": "list", "data": [one(0), one(1)], "model": "m", "usage": usage})
                .to_string()
        }
        ("POST", path) if path.contains("/videos/") => json!({"request_id": "task-1"}).to_string(),
        ("GET", path) if path.contains("/videos/") => {
            let video = json!({"url": "https://example.com/v.mp4", "duration": 5});
            json!({"status": "done", "video": video, "model": "grok-imagine-video"}).to_string()
        }
        _ => COMPLETION.to_owned(),
    };
    (200, "content-type: application/json\r\n".to_owned(), body)
}

/// Relayed calls, parts of answers that are put together, submits, questions about tasks and health
/// checks all have them, and a customer's own of the same name stays here.
#[test]
fn every_request_to_the_upstream_has_them() {
    let upstream = Responder::start(|_, request| answer(request));
    let at = upstream.address;
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{at}/v1', credential: sk-canary-of-ours, {HEADERS}, \
         pass_headers: [x-title], health_check: {{ path: /healthz, interval: 100ms, timeout: 100ms }} }}\n  \
         xai: {{ protocol: xai, base_url: 'http://{at}', {HEADERS} }}\n\
         tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms }}\n\
         routes:\n  - {{ path: /v1/chat/completions, operation: chat }}\n  \
         - {{ path: /v1/embeddings, operation: embeddings }}\n  \
         - {{ path: /v1/videos/generations, operation: video }}\n"
    );
    let models = format!(
        "models:\n{}  vectors:\n    operations: [embeddings]\n    targets: [{{ upstream: a }}]\n    \
         prices: {{ input_per_1m_tokens: 1 }}\n    \
         limits: {{ context_tokens_max: 100000, batch_inputs_max: 2 }}\n  gif-video:\n    \
         operations: [video]\n    targets: [{{ upstream: xai, model: grok-imagine-video }}]\n    \
         prices: {{ per_second: 0.07 }}\n    limits: {{ resolutions: [480p, 720p], seconds_min: 1, \
         seconds_max: 15, reference_images_max: 1 }}\n",
        chat_model("m", "a")
    );
    let gateway = Gateway::serving(&upstreams, &models);
    let post = |path: &str, body: Value| {
        let body = body.to_string();
        let lines = format!(
            "Content-Length: {}\r\nUser-Agent: customer\r\nX-Title: customer\r\n",
            body.len()
        );
        let answer = ask(gateway.address, &gateway.post(path, &lines, body));
        assert!([200, 202].contains(&answer.status()), "{path}: {answer:?}");
        answer
    };
    let messages = json!([{"role": "user", "content": "hi"}]);
    post("/v1/chat/completions", json!({"model": "m", "messages": messages}));
    post("/v1/embeddings", json!({"model": "vectors", "input": ["a", "b", "c", "d"]}));
    let video = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 5});
    post("/v1/videos/generations", video);
    let paths =
        ["/v1/chat/completions", "/v1/embeddings", "POST /v1/videos", "GET /v1/videos", "/healthz"];
    for path in paths {
        let of_path = || {
            let all = upstream.requests().into_iter();
            all.filter(|request| {
                request.head.lines().next().is_some_and(|line| line.contains(path))
            })
            .collect::<Vec<_>>()
        };
        eventually(path, || !of_path().is_empty());
        for request in of_path() {
            assert!(has_all(&request), "{path}: {}", request.head);
            assert!(!request.head.contains("customer"), "{path}: {}", request.head);
        }
    }
}

/// A value is shown to nobody: not in the configuration that operators see, not in logs, and not where an
/// upstream repeats it.
#[test]
fn their_values_stay_here() {
    let words = r#"{"error":{"message":"Bearer cf-canary-of-ours may not"}}"#;
    let upstream = Responder::start(move |_, _| {
        (
            400,
            "content-type: application/json\r\nopenai-version: cf-canary-of-ours\r\n".to_owned(),
            words.to_owned(),
        )
    });
    let at = upstream.address;
    let secret =
        "headers: { cf-aig-authorization: 'cf-canary-of-ours', X-Title: 'Our canary-title' }";
    let upstreams = format!("  a: {{ protocol: openai, base_url: 'http://{at}/v1', {secret} }}\n");
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{}", chat_model("m", "a")));
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "m", "messages": messages}).to_string();
    let answer = ask(gateway.address, &gateway.chat_json(body));
    assert_eq!(answer.status(), 400, "{answer:?}");
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("canary"), "{answer:?}");
    for path in ["/admin/v1/config", "/admin/v1/upstreams"] {
        let shown = gateway.admin("GET", path, &Value::Null).to_string();
        assert!(!shown.contains("canary"), "{path}: {shown}");
    }
}
