//! Videos and sound in chat completions: what goes upstream, what is held, and what is charged.
//!
//! Text costs $1 for a million tokens, a video $3, sound $5, and output $10.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::{Answer, Gateway, Recorded, Responder, ask};

const PRICES: &str = "input_per_1m_tokens: 1, output_per_1m_tokens: 10";
const MP4: &str = "data:video/mp4;base64,AAAAIGZ0eXA=";

/// Model `q` is Qwen's, with a price for videos; `p` is as Qwen's without one; `g` is Google's, over both
/// of its APIs.
fn gateway(address: SocketAddr) -> Gateway {
    let upstreams = format!(
        "  qwen: {{ protocol: openai, base_url: 'http://{address}/qwen/v1', credential: operator-key }}
  compatible: {{ protocol: openai, base_url: 'http://{address}/compatible', credential: operator-key }}
  google: {{ protocol: gemini, base_url: 'http://{address}/google', credential: operator-key }}\n"
    );
    let model = |name: &str, operations: &str, targets: &str, prices: &str| {
        format!(
            "  {name}:
    operations: [{operations}]
    targets: [{targets}]
    prices: {{ {PRICES}{prices} }}
    limits: {{ context_tokens_max: 10000, output_tokens_max: 100 }}
"
        )
    };
    let both = "{ upstream: google }, { upstream: compatible, priority: 2 }";
    let sound = ", audio_input_per_1m_tokens: 5";
    let models = [
        model("q", "chat", "{ upstream: qwen }", ", video_input_per_1m_tokens: 3"),
        model("p", "chat", "{ upstream: qwen }", ""),
        model("g", "chat, generate_content", both, sound),
    ];
    Gateway::serving(&upstreams, &format!("models:\n{}", models.concat()))
}

/// Answers as each API does: 1000 tokens of input, of which 600 are video and 300 sound.
fn upstream() -> Responder {
    Responder::start(|_, request: &Recorded| {
        let (_, path) = request.target();
        let json = "content-type: application/json\r\n".to_owned();
        let body = if path.starts_with("/google") {
            json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "A cat."}]},
                "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 7,
                    "totalTokenCount": 1007, "promptTokensDetails": [
                        {"modality": "TEXT", "tokenCount": 100},
                        {"modality": "VIDEO", "tokenCount": 600},
                        {"modality": "AUDIO", "tokenCount": 300}]}})
        } else {
            json!({"id": "c", "object": "chat.completion", "created": 1, "model": "up",
                "choices": [{"index": 0, "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "A cat."}}],
                "usage": {"prompt_tokens": 1000, "completion_tokens": 7, "total_tokens": 1007,
                    "prompt_tokens_details": {"text_tokens": 400, "video_tokens": 600}}})
        };
        (200, json, body.to_string())
    })
}

fn chat(gateway: &Gateway, model: &str, block: &Value) -> Answer {
    let text = json!({"type": "text", "text": "What is to be seen?"});
    let messages = json!([{"role": "user", "content": [block, text]}]);
    let body = json!({"model": model, "messages": messages}).to_string();
    ask(gateway.address, &gateway.chat_json(body))
}

/// The document of an answer, in chunks or not.
fn document(answer: &Answer) -> Value {
    let is_chunked = answer.header("transfer-encoding").is_some();
    let body = if is_chunked { answer.content() } else { answer.body() };
    serde_json::from_slice(&body).expect("JSON")
}

fn spent(gateway: &Gateway) -> u64 {
    let text = gateway.settled()["spent"].as_str().expect("an amount").to_owned();
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{decimals:0<9}").parse().expect("nano-dollars")
}

#[test]
fn a_video_goes_to_qwen_as_it_is_and_is_charged_at_its_price() {
    let upstream = upstream();
    let gateway = gateway(upstream.address);
    let blocks = [
        json!({"type": "video_url", "video_url": {"url": "https://a.example/1.mp4"}, "fps": 2}),
        json!({"type": "video_url", "video_url": {"url": MP4}}),
        json!({"type": "video", "video": ["https://a.example/1.png", "https://a.example/2.png"]}),
    ];
    for (count, block) in (1..).zip(&blocks) {
        let answer = chat(&gateway, "q", block);
        assert_eq!(answer.status(), 200, "{block}: {answer:?}");
        let requests = upstream.requests();
        assert_eq!(requests.len() as u64, count, "{block}");
        let sent: Value =
            serde_json::from_slice(&requests.last().expect("one").body).expect("JSON");
        assert_eq!(&sent["messages"][0]["content"][0], block, "as it is");
        let each = 400 * 1_000 + 600 * 3_000 + 7 * 10_000;
        assert_eq!(spent(&gateway), count * each, "{block}");
    }
}

/// The whole context is held, at the dearest way in which it can be billed: nobody knows how long a video is.
#[test]
fn what_a_video_can_come_to_is_held() {
    let upstream = upstream();
    let gateway = gateway(upstream.address);
    // 10,000 tokens at $3 and 100 at $10 a million are $0.031.
    // Over Google's API sound is the dearest: 10,000 tokens at $5.
    let penniless = gateway.stranger();
    for (model, most) in [("q", "$0.031"), ("g", "$0.051")] {
        let block = json!({"type": "video_url", "video_url": {"url": "https://a.example/1.mp4"}});
        let messages = json!([{"role": "user", "content": [block]}]);
        let body = json!({"model": model, "messages": messages}).to_string();
        let request = String::from_utf8(gateway.chat_json(body)).expect("text");
        let answer = ask(gateway.address, request.replace(&gateway.key, &penniless).as_bytes());
        assert_eq!(answer.status(), 402, "{answer:?}");
        let message = document(&answer)["error"]["message"].to_string();
        assert!(message.contains(most), "{model}: {message}");
    }
    assert!(upstream.requests().is_empty());
}

#[test]
fn videos_and_sound_go_to_googles_own_api() {
    let upstream = upstream();
    let gateway = gateway(upstream.address);
    let each = 100 * 1_000 + 600 * 1_000 + 300 * 5_000 + 7 * 10_000;
    let url = "https://a.example/1.mp4";
    let inline = json!({"mimeType": "video/mp4", "data": "AAAAIGZ0eXA="});
    let rows = [
        (
            json!({"type": "video_url", "video_url": {"url": url}}),
            json!({"fileData": {"mimeType": "video/mp4", "fileUri": url}}),
        ),
        (json!({"type": "video_url", "video_url": {"url": MP4}}), json!({"inlineData": inline})),
        (
            json!({"type": "audio_url", "audio_url": {"url": "https://a.example/1.mp3"}}),
            json!({"fileData": {"mimeType": "audio/mpeg", "fileUri": "https://a.example/1.mp3"}}),
        ),
        (
            json!({"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,UklGRg=="}}),
            json!({"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}),
        ),
    ];
    for (count, (block, part)) in (1..).zip(&rows) {
        let answer = chat(&gateway, "g", block);
        assert_eq!(answer.status(), 200, "{block}: {answer:?}");
        let requests = upstream.requests();
        let sent = requests.last().expect("one");
        assert_eq!(sent.target().1, "/google/models/g:generateContent", "{block}");
        let body: Value = serde_json::from_slice(&sent.body).expect("JSON");
        assert_eq!(&body["contents"][0]["parts"][0], part, "{block}");
        let usage = document(&answer)["usage"].clone();
        let details = &usage["prompt_tokens_details"];
        assert_eq!(
            (&details["video_tokens"], &details["audio_tokens"]),
            (&json!(600), &json!(300))
        );
        assert_eq!(usage["prompt_tokens"], 1000, "{usage}");
        assert_eq!(spent(&gateway), count * each, "{block}");
    }
    let before = upstream.requests().len();
    let text = json!({"type": "text", "text": "and in words: \"type\":\"video_url\""});
    assert_eq!(chat(&gateway, "g", &text).status(), 200);
    let schema = json!({"type": "object", "properties": {"video_url": {"type": "string"}}});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": schema}});
    let messages = json!([{"role": "user", "content": "Which video?"}]);
    let with_tool = json!({"model": "g", "messages": messages, "tools": [tool]}).to_string();
    assert_eq!(ask(gateway.address, &gateway.chat_json(with_tool)).status(), 200);
    let sound =
        json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}});
    assert_eq!(chat(&gateway, "g", &sound).status(), 200);
    for request in &upstream.requests()[before..] {
        assert_eq!(request.target().1, "/compatible/chat/completions", "byte for byte, as ever");
    }
}

#[test]
fn what_a_model_does_not_take_is_refused_by_name() {
    let upstream = upstream();
    let gateway = gateway(upstream.address);
    let url = json!({"url": "https://a.example/1.mp4"});
    for (model, kind, word) in [
        ("p", "video_url", "`video_url`"),
        ("p", "audio_url", "`audio_url`"),
        ("p", "video", "`video`"),
        ("q", "audio_url", "`audio_url`"),
        ("g", "video", "`video`"),
    ] {
        let answer = chat(&gateway, model, &json!({"type": kind, kind: url}));
        assert_eq!(answer.status(), 400, "{model} {kind}: {answer:?}");
        let message = document(&answer)["error"]["message"].to_string();
        assert!(message.contains(word), "{model} {kind}: {message}");
    }
    // What only the operator's account could fetch.
    for private in ["gs://bucket/1.mp4", "https://storage.googleapis.com/bucket/1.mp4"] {
        let block = json!({"type": "video_url", "video_url": {"url": private}});
        let answer = chat(&gateway, "g", &block);
        assert_eq!(answer.status(), 400, "{private}: {answer:?}");
    }
    assert!(upstream.requests().is_empty(), "nothing of it goes upstream");
    assert_eq!(spent(&gateway), 0);
}
