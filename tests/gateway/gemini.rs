//! Google's `generateContent` end to end, over upstreams that speak it: on the wire and in the ledger.
//!
//! The model costs $3 for a million tokens of input, $0.30 where a cache has read them, and $15 for a
//! million of output.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::{Answer, Gateway, Recorder, ask, simulator};

const PROMPT: &str = r#"{ "contents" : [{"role":"user","parts":[{"text":"Say hello."}]}] }"#;

/// A model that Google's API serves below `address`, and one that Vertex AI serves.
fn configuration(address: SocketAddr, prefix: &str) -> (String, String) {
    let upstreams = format!(
        "  g: {{ protocol: gemini, base_url: 'http://{address}{prefix}/v1beta', credential: operator-key }}
  v: {{ protocol: vertex, base_url: 'http://{address}{prefix}/v1/publishers/google', credential: operator-token }}\n"
    );
    let model = |name: &str, upstream: &str| {
        format!(
            "  {name}:
    operations: [generate_content]
    targets: [{{ upstream: {upstream}, model: gemini-3-pro }}]
    prices: {{ input_per_1m_tokens: 3, cached_input_per_1m_tokens: 0.30, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
"
        )
    };
    let models = [model("mine", "g"), model("a/b", "g"), model("clouds", "v")].concat();
    (upstreams, format!("models:\n{models}"))
}

fn gateway(address: SocketAddr, prefix: &str) -> Gateway {
    let (upstreams, models) = configuration(address, prefix);
    Gateway::serving(&upstreams, &models)
}

/// A request as it goes over the wire, with these lines in the place of the usual key.
fn request(path: &str, lines: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: gateway\r\nContent-Length: {length}\r\n");
    format!("{head}Content-Type: application/json\r\n{lines}\r\n{body}").into_bytes()
}

fn call(gateway: &Gateway, path: &str, body: &str) -> Answer {
    let key = format!("x-goog-api-key: {}\r\n", gateway.key);
    ask(gateway.address, &request(path, &key, body))
}

/// Spent amount in nano-dollars.
fn spent(gateway: &Gateway) -> u64 {
    let text = gateway.settled()["spent"].as_str().expect("an amount").to_owned();
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{decimals:0<9}").parse().expect("nano-dollars")
}

#[test]
fn requests_go_on_byte_for_byte_with_the_operators_credential_alone() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "");
    for (path, sent, credential) in [
        (
            "/v1beta/models/mine:generateContent",
            "POST /v1beta/models/gemini-3-pro:generateContent HTTP/1.1\r\n",
            "x-goog-api-key: operator-key\r\n",
        ),
        (
            "/v1beta/models/mine:streamGenerateContent?alt=sse",
            "POST /v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse HTTP/1.1\r\n",
            "x-goog-api-key: operator-key\r\n",
        ),
        // Where SDKs ask that are told of no version.
        (
            "/v1/models/mine:generateContent",
            "POST /v1beta/models/gemini-3-pro:generateContent HTTP/1.1\r\n",
            "x-goog-api-key: operator-key\r\n",
        ),
        // SDKs write a slash in a name in either way, and a colon too.
        (
            "/v1beta/models/a/b:generateContent",
            "POST /v1beta/models/gemini-3-pro:generateContent HTTP/1.1\r\n",
            "x-goog-api-key: operator-key\r\n",
        ),
        (
            "/v1beta/models/a%2Fb%3AgenerateContent",
            "POST /v1beta/models/gemini-3-pro:generateContent HTTP/1.1\r\n",
            "x-goog-api-key: operator-key\r\n",
        ),
        (
            "/v1beta/models/clouds:generateContent",
            "POST /v1/publishers/google/models/gemini-3-pro:generateContent HTTP/1.1\r\n",
            "authorization: Bearer operator-token\r\n",
        ),
        (
            "/v1beta/models/mine:countTokens",
            "POST /v1beta/models/gemini-3-pro:countTokens HTTP/1.1\r\n",
            "x-goog-api-key: operator-key\r\n",
        ),
    ] {
        call(&gateway, path, PROMPT);
        let recorded = recorder.requests().pop().expect("a request");
        let head = recorded.head.to_lowercase();
        assert!(recorded.head.starts_with(sent), "{path}: {}", recorded.head);
        assert!(head.contains(&credential.to_lowercase()), "{path}: {}", recorded.head);
        assert!(!recorded.head.contains(&gateway.key), "{path}: {}", recorded.head);
        assert_eq!(recorded.body, PROMPT.as_bytes(), "{path}");
    }
}

#[test]
fn a_key_in_a_header_or_query_is_never_forwarded() {
    let recorder = Recorder::start();
    let (upstreams, models) = configuration(recorder.address, "");
    let gateway = Gateway::logging(&upstreams, &models);
    let path = "/v1beta/models/mine:generateContent";
    let key = gateway.key.clone();
    let in_query = format!("{path}?key={key}");
    for (path, lines, status) in [
        (path, format!("x-goog-api-key: {key}\r\n"), 200),
        (path, format!("Authorization: Bearer {key}\r\n"), 200),
        (&in_query, String::new(), 200),
        (&format!("{in_query}&key=x"), String::new(), 401),
        (path, String::new(), 401),
        (path, "x-goog-api-key: wrong\r\n".to_owned(), 401),
        // Elsewhere a key has no business in an address.
        (&format!("/v1/chat/completions?key={key}"), String::new(), 401),
    ] {
        let answer = ask(gateway.address, &request(path, &lines, PROMPT));
        assert_eq!(answer.status(), status, "{path} {lines}: {answer:?}");
    }
    for sent in recorder.requests() {
        assert!(!sent.head.contains(&key), "{}", sent.head);
    }
    gateway.settled();
    let log = std::fs::read_to_string(gateway.path("log")).expect("a log");
    assert!(log.contains("generate_content") && !log.contains(&key), "{log}");
}

#[test]
fn what_is_used_is_charged_to_the_nano_dollar_in_every_form() {
    let sim = simulator(&["usage=prompt=1000,cached=400,completion=20,reasoning=7"]);
    for method in ["generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent"] {
        let gateway = gateway(sim.addr(), "");
        let answer = call(&gateway, &format!("/v1beta/models/mine:{method}"), PROMPT);
        assert_eq!(answer.status(), 200, "{method}: {answer:?}");
        let body = String::from_utf8(answer.content()).expect("text");
        let last: Value = match method {
            "generateContent" => answer.json(),
            "streamGenerateContent" => {
                let kind = answer.header("content-type").expect("a type");
                assert_eq!(kind, "application/json", "{answer:?}");
                let all: Vec<Value> = serde_json::from_str(&body).expect("an array");
                assert!(all.len() > 2, "{body}");
                all.last().expect("a chunk").clone()
            }
            _ => {
                let last = body.trim_end().rsplit("data: ").next().expect("an event");
                serde_json::from_str(last).expect("JSON")
            }
        };
        let usage = &last["usageMetadata"];
        assert_eq!(
            (&usage["candidatesTokenCount"], &usage["thoughtsTokenCount"]),
            (&json!(13), &json!(7))
        );
        assert_eq!(spent(&gateway), 600 * 3_000 + 400 * 300 + 20 * 15_000, "{method}");
    }
}

#[test]
fn refusals_come_in_googles_envelope() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "");
    let with = |fields: &str| PROMPT.replacen('{', &format!("{{{fields},"), 1);
    for (path, body, status, word) in [
        ("/v1beta/models/none:generateContent", PROMPT.to_owned(), 404, "NOT_FOUND"),
        ("/v1beta/models/mine", PROMPT.to_owned(), 405, "INVALID_ARGUMENT"),
        ("/v1beta/models/mine:generateContent", "{".to_owned(), 400, "INVALID_ARGUMENT"),
        ("/v1beta/models/mine:generateContent", with("\"x\":1"), 400, "INVALID_ARGUMENT"),
        (
            "/v1beta/models/mine:generateContent",
            with("\"tools\":[{\"google_search\":{}}]"),
            400,
            "INVALID_ARGUMENT",
        ),
        ("/v1beta/models/%FF:generateContent", PROMPT.to_owned(), 404, "NOT_FOUND"),
    ] {
        let answer = call(&gateway, path, &body);
        let error = &answer.json()["error"];
        assert_eq!(answer.status(), status, "{path}: {answer:?}");
        assert_eq!((&error["code"], &error["status"]), (&json!(status), &json!(word)), "{error}");
    }
    assert!(recorder.requests().is_empty(), "nothing of it goes upstream");
    assert_eq!(spent(&gateway), 0);
}

/// Google's SDKs ask models for more than is served here.
#[test]
fn an_unknown_method_of_a_model_is_404_and_says_what_there_is() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "");
    for (path, more) in [
        ("/v1beta/models/mine:embedContent", "Embeddings are at POST /v1/embeddings."),
        ("/v1beta/models/mine:batchEmbedContents", "Embeddings are at POST /v1/embeddings."),
        ("/v1beta/models/none:embedContent", "Embeddings are at POST /v1/embeddings."),
        ("/v1/models/mine:embedContent", "Embeddings are at POST /v1/embeddings."),
        ("/v1beta/models/mine:predict", ""),
        ("/v1beta/models/mine:predictLongRunning", ""),
        ("/v1beta/models/mine:batchGenerateContent", ""),
        ("/v1beta/models/a%2Fb:GenerateContent", ""),
        ("/v1beta/models/mine:", ""),
    ] {
        let answer = call(&gateway, path, PROMPT);
        let error = &answer.json()["error"];
        assert_eq!(answer.status(), 404, "{path}: {answer:?}");
        assert_eq!(
            (&error["code"], &error["status"]),
            (&json!(404), &json!("NOT_FOUND")),
            "{path}"
        );
        let message = error["message"].as_str().expect("a message");
        let all = "There are: generateContent, streamGenerateContent, countTokens.";
        assert!(message.contains(all) && message.ends_with(more), "{path}: {message}");
        assert!(answer.header("allow").is_none(), "{path}: {answer:?}");
    }
    assert!(recorder.requests().is_empty(), "nothing of it goes upstream");
}

#[test]
fn a_stream_that_breaks_says_so_in_both_forms_and_what_was_delivered_is_charged() {
    let sim = simulator(&[]);
    for fault in ["cut-after=3", "eof-after=3", "error-after=3"] {
        for method in ["streamGenerateContent?alt=sse", "streamGenerateContent"] {
            let gateway = gateway(sim.addr(), &format!("/sim:fault={fault}"));
            let answer = call(&gateway, &format!("/v1beta/models/mine:{method}"), PROMPT);
            assert_eq!(answer.status(), 200, "{fault} {method}: {answer:?}");
            let body = String::from_utf8(answer.content()).expect("text");
            let last: Value = match method {
                "streamGenerateContent" => {
                    let all: Vec<Value> = serde_json::from_str(&body).expect("an array");
                    all.last().expect("an element").clone()
                }
                _ => {
                    let last = body.trim_end().rsplit("data: ").next().expect("an event");
                    serde_json::from_str(last).expect("JSON")
                }
            };
            assert!(last["error"]["status"].is_string(), "{fault} {method}: {body}");
            assert!(!body.contains("finishReason"), "{fault} {method}: {body}");
            assert!(spent(&gateway) > 0 || fault.starts_with("error"), "{fault} {method}");
        }
    }
}

#[test]
fn forged_usages_never_make_an_answer_cheaper() {
    let sim = simulator(&["usage=prompt=1000,completion=20"]);
    let price = 1000 * 3_000 + 20 * 15_000;
    for (fault, least) in [
        ("usage-missing", 1),
        ("usage-negative", 1),
        ("usage-twice", price),
        ("usage-early", price),
        ("usage-late", price),
    ] {
        let gateway = gateway(sim.addr(), &format!("/sim:fault={fault}"));
        let path = "/v1beta/models/mine:streamGenerateContent?alt=sse";
        assert_eq!(call(&gateway, path, PROMPT).status(), 200, "{fault}");
        assert!(spent(&gateway) >= least, "{fault}: {}", spent(&gateway));
    }
}

#[test]
fn the_operators_key_is_nobodys_business_when_google_does_not_know_it() {
    let sim = simulator(&["key=another"]);
    let gateway = gateway(sim.addr(), "");
    let answer = call(&gateway, "/v1beta/models/mine:generateContent", PROMPT);
    assert_eq!(answer.status(), 502, "{answer:?}");
    let text = answer.json().to_string();
    assert!(!text.contains("API key") && !text.contains("operator-key"), "{text}");
}

#[test]
fn models_are_listed_in_googles_shape() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "");
    let answer = ask(gateway.address, &gateway.get("/v1beta/models?pageSize=50"));
    let models = answer.json()["models"].as_array().expect("models").clone();
    let names: Vec<&str> = models.iter().filter_map(|model| model["name"].as_str()).collect();
    assert_eq!(names, ["models/mine", "models/a/b", "models/clouds"]);
    for id in ["a/b", "a%2Fb"] {
        let one = ask(gateway.address, &gateway.get(&format!("/v1beta/models/{id}"))).json();
        assert_eq!((&one["name"], &one["outputTokenLimit"]), (&json!("models/a/b"), &json!(1000)));
        assert_eq!(one["supportedGenerationMethods"][0], "generateContent");
    }
    let lines = format!("x-goog-api-key: {}", gateway.key);
    let listed = format!("GET /v1/models HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n\r\n");
    let listed = ask(gateway.address, listed.as_bytes()).json();
    assert_eq!(listed["models"][0]["name"], "models/mine", "by the header of its SDKs: {listed}");
    let lost = ask(gateway.address, &gateway.get("/v1beta/models/none"));
    assert_eq!((lost.status(), &lost.json()["error"]["status"]), (404, &json!("NOT_FOUND")));
    let counted = call(&gateway, "/v1beta/models/mine:countTokens", PROMPT);
    assert_eq!(counted.status(), 200, "{counted:?}");
    assert_eq!(spent(&gateway), 0, "counting costs nothing");
}
