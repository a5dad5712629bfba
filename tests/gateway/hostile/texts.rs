//! Texts of customers in upstream paths, queries and bodies, and the operator's credential in answers. One
//! account is hostile; what the other one gets is asserted beside.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Act, Gateway, Reply, Responder, Scripted, ask, eventually};

const KEY: &str = "sk-upstream/of-a-test-1";

const CHAT: &str = "/v1/chat/completions";

/// Models behind patterns at upstreams of three dialects, two of which name them in paths.
const MODELS: &str = "\
models:
  'az-*':
    operations: [chat]
    targets: [{ upstream: az }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 1000, output_tokens_max: 100 }
  'gem-*':
    operations: [generate_content]
    targets: [{ upstream: gem }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 1000, output_tokens_max: 100 }
  claude:
    operations: [messages]
    targets: [{ upstream: anth }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 10 }
    limits: { context_tokens_max: 1000, output_tokens_max: 100 }
  m:
    operations: [responses, chat]
    targets: [{ upstream: plain, weight: 9 }, { upstream: sharing, weight: 1 }]
    prices:
      input_per_1m_tokens: 1
      output_per_1m_tokens: 10
      per_1k_file_searches: 2.50
      per_container_session: 0.03
    limits: { context_tokens_max: 1000, output_tokens_max: 100 }
  whisper-1:
    operations: [transcription]
    targets: [{ upstream: plain }]
    prices: { per_audio_second: 0.0001 }
";

/// A gateway all of whose upstreams are `at`, and a second account's key.
fn gateway(at: SocketAddr) -> (Gateway, String) {
    let upstreams = format!(
        "  az: {{ protocol: azure, base_url: 'http://{at}', api_version: 2024-10-21, credential: '{KEY}' }}
  gem: {{ protocol: gemini, base_url: 'http://{at}/v1beta', credential: '{KEY}' }}
  anth: {{ protocol: anthropic, base_url: 'http://{at}', credential: '{KEY}' }}
  plain: {{ protocol: openai, base_url: 'http://{at}/plain', credential: '{KEY}' }}
  sharing: {{ protocol: openai, base_url: 'http://{at}/sharing', credential: '{KEY}',
    shared_ids: [vs_shared, 'pmpt_shared*'] }}\n"
    );
    let gateway = Gateway::serving(&upstreams, MODELS);
    let key = gateway.customer("other", Some("1.00"));
    (gateway, key)
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

/// A good answer in the words of the path that is asked.
fn good(path: &str) -> Value {
    match path {
        path if path.contains("count_tokens") => json!({"input_tokens": 3}),
        path if path.contains("/messages") => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
            "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 1},
        }),
        path if path.contains("enerateContent") => json!({
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]},
                "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1,
                "totalTokenCount": 4},
        }),
        path if path.contains("/responses") => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [
                {"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1",
                    "status": "completed", "code": "1", "outputs": null},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
        }),
        path if path.contains("/audio/") => json!({"text": "Hi"}),
        _ => json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"},
                "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        }),
    }
}

fn responder() -> Responder {
    Responder::start(|_, request| -> Reply {
        let (_, path) = request.target();
        (200, "content-type: application/json\r\n".to_owned(), good(path).to_string())
    })
}

/// Servers that decode a path before they normalise it would be asked elsewhere with the operator's key.
#[test]
fn names_of_models_that_lead_elsewhere_reach_no_upstream() {
    let upstream = responder();
    let (gateway, other) = gateway(upstream.address);
    for rest in [
        "x/../../admin",
        "x\\..\\admin",
        "x/./y",
        "x//y",
        "x/",
        "x%2f..%2f..%2fadmin",
        "x%252f%252e%252e%252fadmin",
        "x/%2e%2e/y",
        "x/..;/admin",
        "x?api-version=1",
        "x#y",
        "x\u{7f}y",
        "x/%c0%ae%c0%ae/y",
        "x/．．/y",
    ] {
        let answer = gateway.ask_as(&gateway.key, CHAT, &chat(&format!("az-{rest}")));
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status(), &error["param"]), (404, &json!("model")), "{rest}: {error}");
        let encoded: String = rest.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/v1beta/models/gem-{encoded}:generateContent");
        let body = json!({"contents": [{"parts": [{"text": "hi"}]}]});
        let answer = gateway.ask_as(&gateway.key, &path, &body);
        assert_eq!(answer.status(), 404, "{rest}: {answer:?}");
        assert_eq!(answer.json()["error"]["status"], "NOT_FOUND", "{rest}: {answer:?}");
    }
    assert!(upstream.requests().is_empty(), "no upstream was asked");
    assert_eq!(gateway.settled()["spent"], "0.00");
    let answer = gateway.ask_as(&other, CHAT, &chat("az-gpt/4.1:x"));
    assert_eq!(answer.status(), 200, "{answer:?}");
    let body = json!({"contents": [{"parts": [{"text": "hi"}]}]});
    let answer = gateway.ask_as(&other, "/v1beta/models/gem-2.5/x:generateContent", &body);
    assert_eq!(answer.status(), 200, "{answer:?}");
    let paths: Vec<String> =
        upstream.requests().iter().map(|request| request.target().1.to_owned()).collect();
    let expected = [
        "/openai/deployments/az-gpt%2F4.1%3Ax/chat/completions?api-version=2024-10-21",
        "/v1beta/models/gem-2.5%2Fx:generateContent",
    ];
    assert_eq!(paths, expected);
}

/// Query parameters are not forwarded unless an operation lists them.
#[test]
fn queries_reach_upstreams_by_a_list() {
    let upstream = responder();
    let (gateway, other) = gateway(upstream.address);
    let key = gateway.key.clone();
    let messages = json!({"model": "claude", "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}]});
    let content = json!({"contents": [{"parts": [{"text": "hi"}]}]});
    let responses = json!({"model": "m", "input": "hi"});
    let junk = format!("key={key}&api_key={key}&api-version=9&../x&b=1;beta=2");
    for (path, body, expected) in [
        (format!("/v1/messages?{junk}&beta=%74rue&utm=1"), &messages, "/v1/messages?beta=%74rue"),
        (format!("/v1/messages?{junk}"), &messages, "/v1/messages"),
        ("/v1/messages?beta=true;x=1".to_owned(), &messages, "/v1/messages"),
        (
            format!("/v1/messages/count_tokens?beta=true&{junk}"),
            &messages,
            "/v1/messages/count_tokens?beta=true",
        ),
        (format!("{CHAT}?{junk}&beta=true"), &chat("m"), "/plain/chat/completions"),
        (format!("/v1/responses?{junk}&stream=true"), &responses, "/plain/responses"),
        (
            format!("{CHAT}?{junk}"),
            &chat("az-x"),
            "/openai/deployments/az-x/chat/completions?api-version=2024-10-21",
        ),
        (
            "/v1beta/models/gem-x:generateContent?alt=json&$alt=x&fields=y".to_owned(),
            &content,
            "/v1beta/models/gem-x:generateContent",
        ),
    ] {
        let before = upstream.requests().len();
        let answer = gateway.ask_as(&key, &path, body);
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        let requests = upstream.requests();
        let (_, target) = requests.get(before).expect("a request").target();
        // Which of two upstreams is asked is drawn.
        assert_eq!(target.replace("/sharing/", "/plain/"), expected, "{path}");
    }
    // A kept response is read with the parameters that its API has.
    let query = "include[]=a&limit=2&order=asc&after=b&key=c";
    let get = |key: &str| {
        let head = format!(
            "GET /v1/responses/resp_1/input_items?{query} HTTP/1.1\r\nHost: gateway\r\n\
             Authorization: Bearer {key}\r\n\r\n"
        );
        ask(gateway.address, head.as_bytes())
    };
    assert_eq!(get(&other).status(), 404, "another account's");
    assert_eq!(get(&key).status(), 200);
    let requests = upstream.requests();
    let (_, target) = requests.last().expect("a request").target();
    assert!(target.ends_with("/input_items?include[]=a&limit=2&order=asc&after=b"), "{target}");
    for request in requests {
        assert!(!request.head.contains(&key), "{}", request.head);
    }
}

/// Upstreams know all accounts as one: an id opens what is behind it to whoever names it.
#[test]
fn what_upstreams_keep_is_named_by_those_who_were_given_it() {
    let upstream = responder();
    let (gateway, other) = gateway(upstream.address);
    let file = json!([{"type": "input_file", "file_id": "file-operators"}]);
    let code = json!({"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1",
        "status": "completed", "code": "1"});
    let store = |id: &str| json!([{"type": "file_search", "vector_store_ids": [id]}]);
    let respond = |key: &str, fields: &Value| {
        let mut body = json!({"model": "m", "input": "hi"});
        for (name, value) in fields.as_object().expect("fields") {
            body[name] = value.clone();
        }
        gateway.ask_as(key, "/v1/responses", &body)
    };
    for fields in [
        json!({"input": [{"role": "user", "content": file}]}),
        json!({"input": [{"type": "function_call_output", "call_id": "c", "output": file}]}),
        json!({"prompt": {"id": "pmpt_operators"}}),
        json!({"tools": store("vs_operators")}),
        json!({"tools": store("vs_shared_not")}),
        json!({"input": [code]}),
    ] {
        let answer = respond(&gateway.key, &fields);
        let error = answer.json()["error"].clone();
        assert_eq!(answer.status(), 400, "{fields}: {answer:?}");
        let text_found = error["message"].as_str().unwrap_or_default();
        assert!(text_found.contains("of yours here"), "{fields}: {error}");
    }
    let document = json!([{"type": "document", "source": {"type": "file", "file_id": "file_a"}}]);
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let body = json!({"model": "claude", "max_tokens": 9,
            "messages": [{"role": "user", "content": document}]});
        let answer = gateway.ask_as(&gateway.key, path, &body);
        assert_eq!(answer.status(), 400, "{path}: {answer:?}");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error", "{answer:?}");
    }
    let mut body = chat("m");
    body["messages"][0]["content"] = json!([{"type": "file", "file": {"file_id": "file-a"}}]);
    assert_eq!(gateway.ask_as(&gateway.key, CHAT, &body).status(), 400);
    assert!(upstream.requests().is_empty(), "no upstream was asked");
    assert_eq!(gateway.settled()["spent"], "0.00");
    // What the operator shares goes where it is, whoever names it.
    for key in [&gateway.key, &other] {
        for fields in
            [json!({"prompt": {"id": "pmpt_shared_1"}}), json!({"tools": store("vs_shared")})]
        {
            for _ in 0..4 {
                let answer = respond(key, &fields);
                assert_eq!(answer.status(), 200, "{fields}: {answer:?}");
                let requests = upstream.requests();
                let (_, path) = requests.last().expect("a request").target();
                assert_eq!(path, "/sharing/responses", "{fields}");
            }
        }
    }
    // Both have been given the container by now, and a third account has not.
    let answer = respond(&other, &json!({"input": [code]}));
    assert_eq!(answer.status(), 200, "{answer:?}");
    let third = gateway.customer("third", Some("1.00"));
    assert_eq!(respond(&third, &json!({"input": [code]})).status(), 400);
    // Files on the web are anybody's.
    let web = json!([{"type": "input_file", "file_url": "https://example.com/a.pdf"}]);
    let answer = respond(&other, &json!({"input": [{"role": "user", "content": web}]}));
    assert_eq!(answer.status(), 200, "{answer:?}");
}

/// Parsers disagree on which of two file names counts, so only one goes upstream.
#[test]
fn a_form_has_one_file_name_when_it_goes_upstream() {
    let upstream = responder();
    let (gateway, _) = gateway(upstream.address);
    let sound = [
        &b"RIFF\x24\x7d\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\0\x7d\0\0"[..],
        &[0; 32_000],
    ]
    .concat();
    let form = |head: &str| {
        let model = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n";
        let file = format!("--b\r\nContent-Disposition: form-data; name=\"file\"; {head}\r\n\r\n");
        [model.as_bytes(), file.as_bytes(), &sound, b"\r\n--b--\r\n"].concat()
    };
    let body = form("filename=\"a.wav\"; filename*=utf-8''b.php; x=1\r\nX-Sent-By: me");
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
         Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
        gateway.key,
        body.len()
    );
    let answer = ask(gateway.address, &[head.as_bytes(), &body].concat());
    assert_eq!(answer.status(), 200, "{answer:?}");
    let requests = upstream.requests();
    assert!(requests[0].body == form("filename=\"a.wav\""), "the contents stay as they were");
}

/// An upstream whose answers, whole or in events, come in these pieces.
fn pieces(media_type: &str, pieces: &[&str]) -> Scripted {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nConnection: close\r\n\r\n");
    let all: Vec<Vec<u8>> = std::iter::once(head.as_str())
        .chain(pieces.iter().copied())
        .map(|piece| piece.as_bytes().to_vec())
        .collect();
    Scripted::start(None, move |_, _, _| Act::Pieces(all.clone(), Duration::from_millis(60)))
}

fn delta(text: &str) -> String {
    let delta = json!({"content": text});
    let event = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    format!("data: {event}\n\n")
}

const END: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9,\"total_tokens\":12}}\n\ndata: [DONE]\n\n";

#[test]
fn a_stream_with_the_operators_credential_ends_before_it() {
    let (begun, message) = (delta("Hello"), delta(&format!("It is {KEY}, you know")));
    let middle = message.find("test-1").expect("a key");
    let escaped = message.replace('/', "\\/");
    for cut in
        [vec![message.as_str()], vec![&message[..middle], &message[middle..]], vec![&escaped]]
    {
        let mut all = vec![begun.as_str()];
        all.extend(&cut);
        all.push(END);
        let upstream = pieces("text/event-stream", &all);
        let (gateway, _) = gateway(upstream.address);
        let mut body = chat("m");
        body["stream"] = json!(true);
        let answer = gateway.ask_as(&gateway.key, CHAT, &body);
        let text = String::from_utf8_lossy(&answer.body()).into_owned();
        assert_eq!(answer.status(), 200, "{text}");
        assert!(text.contains("Hello"), "what came before is the customer's: {text}");
        assert!(!text.contains("sk-upstream"), "{text}");
        assert!(text.contains("could not be passed on") && !text.contains("[DONE]"), "{text}");
        let spent = gateway.settled()["spent"].as_str().expect("dollars").to_owned();
        assert!(spent != "0.00", "what was delivered is charged: {spent}");
        let series = "tollgate_upstream_answers_withheld_total{upstream=";
        let counted = gateway.metrics();
        let counted = counted.lines().filter(|line| line.starts_with(series));
        let counts: f64 =
            counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        assert!(counts == 1.0, "{counts} answers were withheld");
    }
}

/// The beginning of a credential is none: such texts come as they were sent, byte for byte.
#[test]
fn texts_that_begin_like_the_credential_pass_unchanged() {
    let begun = delta(&format!("{} and sk-upstream/", &KEY[..KEY.len() - 1]));
    let at = begun.rfind("upstream/").expect("a beginning");
    let upstream = pieces("text/event-stream", &[&begun[..at], &begun[at..], END]);
    let (gateway, other) = gateway(upstream.address);
    let mut body = chat("m");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let answer = gateway.ask_as(&other, CHAT, &body);
    let text = String::from_utf8_lossy(&answer.body()).into_owned();
    assert!(text.contains(&begun) && text.contains(END), "{text}");
}

#[test]
fn a_document_with_the_operators_credential_is_not_delivered() {
    for (path, body, message) in [
        (CHAT, chat("m"), good(CHAT).to_string().replace("Hi", KEY)),
        (
            "/v1/responses",
            json!({"model": "m", "input": "hi"}),
            good("/responses").to_string().replace("Hi", &KEY.replace('/', "\\/")),
        ),
        (
            "/v1/messages",
            json!({"model": "claude", "max_tokens": 9,
                "messages": [{"role": "user", "content": "hi"}]}),
            good("/messages").to_string().replace("Hi", KEY),
        ),
        // It is translated, so that all of it is put together first.
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
            good("/responses").to_string().replace("Hi", KEY),
        ),
    ] {
        let is_reported = Arc::new(AtomicBool::new(true));
        let tells = Arc::clone(&is_reported);
        let honest = message.replace(KEY, "Hi").replace(&KEY.replace('/', "\\/"), "Hi");
        let upstream = Responder::start(move |_, _| -> Reply {
            let message = if tells.load(Ordering::SeqCst) { &message } else { &honest };
            (200, "content-type: application/json\r\n".to_owned(), message.clone())
        });
        let (gateway, other) = gateway(upstream.address);
        let answer = gateway.ask_as(&gateway.key, path, &body);
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert_eq!(answer.status(), 502, "{path}: {text}");
        assert!(!text.contains("sk-upstream"), "{path}: {text}");
        assert_eq!(gateway.settled()["spent"], "0.00", "{path}: nothing was delivered");
        eventually("the loss is in the books", || {
            gateway.metrics().lines().any(|line| {
                line.starts_with("tollgate_operator_loss_dollars_total") && !line.ends_with(" 0")
            })
        });
        // The target is still there for the other account.
        is_reported.store(false, Ordering::SeqCst);
        let answer = gateway.ask_as(&other, path, &body);
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
    }
}
