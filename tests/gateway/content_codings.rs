//! Answers that are compressed although the gateway asked for them as they are.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::harness::{Act, Answer, Gateway, Scripted, ask, chat_model, connect};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

const CODINGS: [&str; 5] = ["gzip", "deflate", "raw deflate", "br", "zstd"];

/// The texts, each flushed, with the end behind the last.
fn encoded(coding: &str, texts: &[&str]) -> Vec<Vec<u8>> {
    fn pieces<W: std::io::Write>(
        mut encoder: W,
        texts: &[&str],
        inner: impl Fn(&mut W) -> &mut Vec<u8>,
        end: impl FnOnce(W) -> Vec<u8>,
    ) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        for text in texts {
            encoder.write_all(text.as_bytes()).expect("encoded");
            encoder.flush().expect("flushed");
            pieces.push(std::mem::take(inner(&mut encoder)));
        }
        pieces.push(end(encoder));
        pieces
    }
    let level = Compression::default();
    match coding {
        "gzip" => pieces(GzEncoder::new(Vec::new(), level), texts, GzEncoder::get_mut, |end| {
            end.finish().expect("an end")
        }),
        "deflate" => {
            pieces(ZlibEncoder::new(Vec::new(), level), texts, ZlibEncoder::get_mut, |end| {
                end.finish().expect("an end")
            })
        }
        "raw deflate" => {
            pieces(DeflateEncoder::new(Vec::new(), level), texts, DeflateEncoder::get_mut, |end| {
                end.finish().expect("an end")
            })
        }
        "br" => pieces(
            brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22),
            texts,
            brotli::CompressorWriter::get_mut,
            brotli::CompressorWriter::into_inner,
        ),
        _ => pieces(
            zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder"),
            texts,
            zstd::stream::write::Encoder::get_mut,
            |end| end.finish().expect("an end"),
        ),
    }
}

fn whole(coding: &str, text: &str) -> Vec<u8> {
    encoded(coding, &[text]).concat()
}

fn token(coding: &str) -> &str {
    coding.rsplit(' ').next().expect("a word")
}

/// An answer that says how long it is, coded.
fn reply(status: &str, more: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{more}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn coded(coding: &str, status: &str, text: &str) -> Vec<u8> {
    let line = format!("content-encoding: {}\r\n", token(coding));
    reply(status, &line, &whole(coding, text))
}

const COMPLETION: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;
const EVENTS: [&str; 3] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n",
    "data: [DONE]\n\n",
];

fn gateway(upstream: &Scripted) -> Gateway {
    let at = upstream.address;
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{at}/v1', credential: sk-canary-of-ours }}\n\
         routes:\n  - {{ path: /v1/chat/completions, operation: chat }}\n  \
         - {{ path: /v1/embeddings, operation: embeddings }}\n"
    );
    let models = format!(
        "models:\n{}  vectors:\n    operations: [embeddings]\n    targets: [{{ upstream: a }}]\n    \
         prices: {{ input_per_1m_tokens: 1 }}\n    \
         limits: {{ context_tokens_max: 100000, batch_inputs_max: 2 }}\n",
        chat_model("m", "a")
    );
    Gateway::serving(&upstreams, &models)
}

fn request(gateway: &Gateway, stream: bool) -> Vec<u8> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    gateway.chat_json(json!({"model": "m", "stream": stream, "messages": messages}).to_string())
}

fn always(answer: Vec<u8>) -> Gateway {
    gateway(&Scripted::start(None, move |_, _, _| Act::Answer(answer.clone())))
}

/// A customer's answer from such an upstream, and its charge.
fn call(answer: Vec<u8>) -> (Answer, String) {
    let gateway = always(answer);
    let answer = ask(gateway.address, &request(&gateway, false));
    (answer, gateway.settled()["spent"].as_str().expect("dollars").to_owned())
}

#[test]
fn a_document_is_decoded_and_charged() {
    for coding in CODINGS {
        let (answer, spent) = call(coded(coding, "200 OK", COMPLETION));
        assert_eq!(answer.status(), 200, "{coding}: {answer:?}");
        assert_eq!(answer.content(), COMPLETION.as_bytes(), "{coding}");
        assert_eq!(answer.header("content-encoding"), None, "{coding}: {answer:?}");
        let length = answer.header("content-length");
        assert!(length.is_none_or(|length| length == COMPLETION.len().to_string()), "{coding}");
        assert_eq!(spent, "0.000015", "{coding}");
    }
}

/// Each event reaches the customer before the upstream sends the next one.
#[test]
fn a_stream_is_decoded_event_by_event() {
    const BETWEEN: Duration = Duration::from_millis(400);
    for coding in CODINGS {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {}\r\n\
             transfer-encoding: chunked\r\n\r\n",
            token(coding)
        );
        let chunk = |piece: Vec<u8>| match piece.len() {
            0 => piece,
            length => [format!("{length:x}\r\n").as_bytes(), &piece, b"\r\n"].concat(),
        };
        let mut pieces = vec![head.into_bytes()];
        pieces.extend(encoded(coding, &EVENTS).into_iter().map(chunk));
        pieces.push(b"0\r\n\r\n".to_vec());
        let upstream = Scripted::start(None, move |_, _, _| Act::Pieces(pieces.clone(), BETWEEN));
        let gateway = gateway(&upstream);
        let begun = Instant::now();
        let mut stream = connect(gateway.address);
        stream.write_all(&request(&gateway, true)).expect("sent");
        let mut answer = Answer::default();
        let mut first = None;
        while !answer.is_whole() {
            let mut piece = [0; 4096];
            let count = std::io::Read::read(&mut stream, &mut piece).expect("an answer");
            assert!(count > 0, "{coding}: {answer:?}");
            answer.bytes.extend_from_slice(&piece[..count]);
            if first.is_none() && String::from_utf8_lossy(&answer.bytes).contains("Hi") {
                first = Some(begun.elapsed());
            }
        }
        let (first, last) = (first.expect("an event"), begun.elapsed());
        assert!(last - first > BETWEEN, "{coding}: first after {first:?}, last after {last:?}");
        let text = String::from_utf8(answer.content()).expect("text");
        assert!(text.contains("Hi") && text.ends_with("data: [DONE]\n\n"), "{coding}: {text}");
        assert_eq!(answer.header("content-encoding"), None, "{coding}");
        assert_eq!(gateway.settled()["spent"], "0.000015", "{coding}");
    }
}

/// An upstream's words about a request are read, and searched for secrets, once they are decoded.
#[test]
fn a_refusal_is_decoded_and_searched() {
    let words = r#"{"error":{"message":"`temperature` is odd","type":"invalid_request_error"}}"#;
    let secret = r#"{"error":{"message":"sk-canary-of-ours is odd"}}"#;
    for coding in CODINGS {
        let (answer, _) = call(coded(coding, "400 Bad Request", words));
        assert_eq!((answer.status(), answer.body()), (400, words.into()), "{coding}: {answer:?}");
        let (answer, _) = call(coded(coding, "400 Bad Request", secret));
        assert_eq!(answer.status(), 400, "{coding}: {answer:?}");
        assert!(!String::from_utf8_lossy(&answer.bytes).contains("canary"), "{coding}");
    }
}

#[test]
fn an_answer_that_is_put_together_is_decoded() {
    let vectors = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0]},{"object":"embedding","index":1,"embedding":[2.0]}],"model":"m","usage":{"prompt_tokens":4,"total_tokens":4}}"#;
    for coding in CODINGS {
        let gateway = always(coded(coding, "200 OK", vectors));
        let body = json!({"model": "vectors", "input": ["a", "b", "c", "d"]}).to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        let answer = ask(gateway.address, &gateway.post("/v1/embeddings", &lines, body));
        assert_eq!(answer.status(), 200, "{coding}: {answer:?}");
        assert_eq!(answer.json()["data"].as_array().map(Vec::len), Some(4), "{coding}");
        assert_eq!(gateway.settled()["spent"], "0.000008", "{coding}");
    }
}

/// Both the submit and what is asked about the task afterwards.
#[test]
fn a_task_is_submitted_and_followed() {
    let upstream = Scripted::start(None, |_, _, begun| {
        let document = if begun.starts_with("POST") {
            json!({"request_id": "task-1"})
        } else {
            json!({
                "status": "done",
                "video": {"url": "https://example.com/v.mp4", "duration": 5},
                "model": "grok-imagine-video",
            })
        };
        Act::Answer(coded("gzip", "200 OK", &document.to_string()))
    });
    let upstreams = format!(
        "  xai: {{ protocol: xai, base_url: 'http://{}' }}\n\
         tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms }}\n",
        upstream.address
    );
    let models = "models:
  gif-video:
    operations: [video]
    targets: [{ upstream: xai, model: grok-imagine-video }]
    prices: { per_second: 0.07 }
    limits: { resolutions: [480p, 720p], seconds_min: 1, seconds_max: 15, reference_images_max: 1 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let body = json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 5}).to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/videos/generations", &lines, body));
    assert!([200, 202].contains(&answer.status()), "{answer:?}");
    crate::harness::eventually("the task is paid", || {
        gateway.admin("GET", "/admin/v1/accounts", &Value::Null).to_string().contains("0.35")
    });
}

/// A body that is not what its head says is the upstream's fault, and nobody pays for it.
#[test]
fn an_undecodable_body_is_a_bad_gateway() {
    for coding in CODINGS {
        let body = whole(coding, COMPLETION);
        let line = format!("content-encoding: {}\r\n", token(coding));
        let truncated = &body[..body.len() / 2];
        let mut damaged = body.clone();
        for byte in damaged.iter_mut().skip(12).take(40) {
            *byte ^= 0x5a;
        }
        for broken in [truncated, damaged.as_slice(), COMPLETION.as_bytes()] {
            let (answer, spent) = call(reply("200 OK", &line, broken));
            assert_eq!((answer.status(), spent.as_str()), (502, "0.00"), "{coding}: {answer:?}");
        }
    }
    for line in [
        "content-encoding: gzip, br",
        "content-encoding: compress",
        "content-encoding: aws-chunked",
    ] {
        let answer = reply("200 OK", &format!("{line}\r\n"), &whole("gzip", COMPLETION));
        let (answer, spent) = call(answer);
        assert_eq!((answer.status(), spent.as_str()), (502, "0.00"), "{line}: {answer:?}");
    }
    let line = "content-encoding: identity\r\n";
    let (answer, spent) = call(reply("200 OK", line, COMPLETION.as_bytes()));
    assert_eq!((answer.status(), spent.as_str()), (200, "0.000015"), "{answer:?}");
}

/// Some kilobytes that would become 300 MB.
#[test]
fn a_bomb_fills_no_memory_and_is_cut() {
    let zeros = "0".repeat(300 << 20);
    for coding in ["gzip", "zstd", "br"] {
        let body = whole(coding, &format!("{{\"pad\":\"{zeros}"));
        assert!(body.len() < 1 << 20, "{coding}: {}", body.len());
        let line = format!("content-encoding: {}\r\n", token(coding));
        for status in ["200 OK", "400 Bad Request"] {
            let gateway = always(reply(status, &line, &body));
            let before = gateway.rss_bytes_max();
            let answer = ask(gateway.address, &request(&gateway, false));
            let grown = gateway.rss_bytes_max().saturating_sub(before);
            assert!(grown < 64 << 20, "{coding} {status}: {grown} bytes more");
            assert!(answer.bytes.len() < 64 << 20, "{coding} {status}: {}", answer.bytes.len());
            assert_eq!(gateway.settled()["held"], "0.00", "{coding} {status}");
        }
    }
}
