//! The simulated upstreams, asked by an ordinary client and over raw sockets.

mod dashscope;
mod images;
mod speech;
mod tasks;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate::sim::{Behaviour, Sim, SimOptions};

use crate::harness::within_async;

/// No answer of a simulator takes longer, unless it was told to.
const TIMEOUT: Duration = Duration::from_secs(5);

fn sim(settings: &[&str]) -> Sim {
    let mut behaviour = Behaviour::default();
    for setting in settings {
        behaviour.set_pair(setting).expect("a setting");
    }
    Sim::start(SimOptions { behaviour, ..SimOptions::default() }).expect("a simulator")
}

fn client() -> Client {
    crate::harness::http_builder().timeout(TIMEOUT).build().expect("a client")
}

fn chat(fields: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hello!"}]});
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

fn streamed() -> Value {
    chat(json!({"stream": true, "stream_options": {"include_usage": true}}))
}

async fn post(sim: &Sim, path: &str, body: &Value) -> Response {
    let url = format!("http://{}{path}", sim.addr());
    client().post(url).json(body).send().await.expect("an answer")
}

async fn json_of(response: Response) -> Value {
    response.json().await.expect("JSON")
}

const CHAT: &str = "/v1/chat/completions";

/// The data of the events of a stream with `\n` line ends; comments are skipped.
fn events(text: &str) -> Vec<String> {
    text.split("\n\n")
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")))
        .map(str::to_owned)
        .collect()
}

/// The events before `[DONE]` as JSON.
fn chunks(text: &str) -> Vec<Value> {
    let data = events(text);
    let chunks = data.iter().take_while(|data| *data != "[DONE]");
    chunks.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

fn content(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

#[tokio::test]
async fn a_chat_is_answered_under_any_prefix() {
    let sim = sim(&[]);
    for path in ["/chat/completions", CHAT, "/v1beta/openai/chat/completions?a=b"] {
        let response = post(&sim, path, &chat(json!({}))).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let body = json_of(response).await;
        assert_eq!(body["object"], "chat.completion", "{path}");
        assert_eq!(body["model"], "m", "the model that was asked for");
        assert_eq!(body["choices"][0]["finish_reason"], "stop");
        assert_eq!(body["usage"]["completion_tokens"], 16, "8 chunks of 2 words");
        let text = body["choices"][0]["message"]["content"].as_str().expect("text");
        assert_eq!(text.split_whitespace().count(), 16, "{text}");
    }
    assert_eq!(post(&sim, "/v1/nothing", &json!({})).await.status(), StatusCode::NOT_FOUND);
    let models = client().get(format!("{}/models", sim.base_url())).send().await.expect("models");
    assert_eq!(json_of(models).await["data"][0]["id"], "sim-chat");
}

#[tokio::test]
async fn a_request_is_recorded_and_its_hash_comes_back() {
    let sim = sim(&[]);
    let body = chat(json!({"user": "x".repeat(100)})).to_string();
    let sent = client().post(format!("{}/chat/completions?q=1", sim.base_url()));
    let response = sent.body(body.clone()).header("x-mark", "7").send().await.expect("an answer");
    let hash: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(response.headers()["x-sim-body-sha256"], hash.as_str());
    assert_eq!(response.headers()["x-sim-body-bytes"], body.len().to_string().as_str());
    let recorded = sim.requests().pop().expect("a recorded request");
    assert_eq!(recorded.path, "/v1/chat/completions?q=1");
    assert_eq!(recorded.header("x-mark"), Some("7"));
    assert_eq!(recorded.body.as_deref(), Some(body.as_bytes()));
    assert_eq!(recorded.body_sha256, hash);
    let shown = client().get(format!("http://{}/sim/requests", sim.addr())).send().await;
    let shown = json_of(shown.expect("an answer")).await;
    assert_eq!(shown[0]["body"], body);
    assert_eq!(sim.requests_total(), 1, "looking at requests is not one");
}

#[tokio::test]
async fn usage_is_streamed_only_on_request() {
    let sim = sim(&["usage=prompt=12,completion=34,cached=4,reasoning=3", "chunks=40"]);
    let text = post(&sim, CHAT, &chat(json!({"stream": true}))).await.text().await.expect("text");
    let unasked = chunks(&text);
    assert!(unasked.iter().all(|chunk| chunk.get("usage").is_none()), "nobody asked for usage");
    assert!(unasked.iter().all(|chunk| chunk["choices"][0].is_object()), "each chunk has a choice");
    assert_eq!(content(&unasked).split_whitespace().count(), 80, "40 chunks of 2 words");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");

    let request = chunks(&post(&sim, CHAT, &streamed()).await.text().await.expect("text"));
    let (last, others) = request.split_last().expect("chunks");
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
    assert_eq!(others.last().expect("a chunk")["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["choices"], json!([]));
    let usage = json!({
        "prompt_tokens": 12, "completion_tokens": 34, "total_tokens": 46,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    });
    assert_eq!(last["usage"], usage);
    assert_eq!(json_of(post(&sim, CHAT, &chat(json!({}))).await).await["usage"], usage);
}

#[tokio::test]
async fn max_tokens_caps_the_answer_unless_it_is_ignored() {
    let sim = sim(&[]);
    let request = chat(json!({"max_completion_tokens": 5}));
    let body = json_of(post(&sim, CHAT, &request).await).await;
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["completion_tokens"], 5);
    sim.set_behaviour(Behaviour { ignores_max_tokens: true, ..Behaviour::default() });
    let body = json_of(post(&sim, CHAT, &request).await).await;
    assert_eq!(body["usage"]["completion_tokens"], 16, "the cap is ignored now");
}

#[tokio::test]
async fn choices_tools_and_json() {
    let sim = sim(&[]);
    let body = json_of(post(&sim, CHAT, &chat(json!({"n": 3}))).await).await;
    assert_eq!(body["choices"].as_array().map(Vec::len), Some(3));
    assert_eq!(body["usage"]["completion_tokens"], 48, "three answers of 16 tokens");

    // Longer than the text after which words repeat.
    let reason = "because the arguments of a call are not words, no piece of them comes again";
    let properties = json!({"city": {"type": "string"}, "reason": {"const": reason}});
    let schema = json!({"type": "object", "properties": properties});
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": schema}});
    let expected = json!({"city": "sample", "reason": reason}).to_string();
    let request = json!({"tools": [tool], "tool_choice": "required"});
    let body = json_of(post(&sim, CHAT, &chat(request.clone())).await).await;
    let call = &body["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(*call, json!({"name": "weather", "arguments": expected}));
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");

    let mut request = chat(request);
    request["stream"] = json!(true);
    let all = chunks(&post(&sim, CHAT, &request).await.text().await.expect("text"));
    let call = |chunk: &Value| chunk["choices"][0]["delta"]["tool_calls"][0]["function"].clone();
    assert_eq!(call(&all[0])["name"], "weather");
    let arguments: String = all
        .iter()
        .filter_map(|chunk| call(chunk)["arguments"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(arguments, expected);

    let request = chat(json!({"response_format": {"type": "json_object"}}));
    let body = json_of(post(&sim, CHAT, &request).await).await;
    let text = body["choices"][0]["message"]["content"].as_str().expect("text");
    assert!(serde_json::from_str::<Value>(text).is_ok_and(|json| json.is_object()), "{text}");
}

#[tokio::test]
async fn embeddings_come_as_numbers_and_in_base64() {
    use base64::Engine as _;
    let sim = sim(&["dimensions=6"]);
    let ask = |format: &str| json!({"model": "e", "input": ["a", "b"], "encoding_format": format});
    let numbers = json_of(post(&sim, "/v1/embeddings", &ask("float")).await).await;
    let encoded = json_of(post(&sim, "/v1/embeddings", &ask("base64")).await).await;
    for index in 0..2 {
        let vector = numbers["data"][index]["embedding"].as_array().expect("numbers");
        let text = encoded["data"][index]["embedding"].as_str().expect("base64");
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
        let decoded: Vec<f64> = bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes(four.try_into().expect("4 bytes")).into())
            .collect();
        assert_eq!(decoded.len(), 6, "the size that was set");
        for (left, right) in decoded.iter().zip(vector) {
            assert!((left - right.as_f64().expect("a number")).abs() < 1e-6, "{left} {right}");
        }
    }
    sim.set_behaviour(Behaviour { knows_base64: false, ..Behaviour::default() });
    let plain = json_of(post(&sim, "/v1/embeddings", &ask("base64")).await).await;
    assert!(plain["data"][0]["embedding"].is_array(), "an upstream without base64");
    let tokens = json!({"model": "e", "input": [[6151, 12], [1]], "dimensions": 3});
    let tokens = json_of(post(&sim, "/v1/embeddings", &tokens).await).await;
    assert_eq!(tokens["usage"]["prompt_tokens"], 3);
    assert_eq!(tokens["data"][1]["embedding"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn embeddings_of_other_vendors_differ() {
    let sim = sim(&["dimensions=2"]);
    let ask = |inputs: usize| json!({"model": "e", "input": vec!["a"; inputs], "encoding_format": "base64"});
    let dashscope = "/compatible-mode/v1/embeddings";
    let ten = json_of(post(&sim, dashscope, &ask(10)).await).await;
    assert_eq!(ten["data"].as_array().map(Vec::len), Some(10));
    assert!(ten["data"][9]["embedding"].is_array(), "numbers, whatever was asked: {ten}");
    assert_eq!(ten["usage"]["prompt_tokens"], 10);
    let eleven = post(&sim, dashscope, &ask(11)).await;
    assert_eq!(eleven.status(), StatusCode::BAD_REQUEST);
    let error = json_of(eleven).await["error"].clone();
    assert_eq!(error["code"], "InvalidParameter");
    assert_eq!(error["message"], "batch size is invalid, it should not be larger than 10.");

    let gemini = "/v1beta/openai/embeddings";
    let two = json_of(post(&sim, gemini, &ask(11)).await).await;
    assert!(two["data"][10]["embedding"].is_array(), "numbers, whatever was asked: {two}");
    assert!(two.get("usage").is_none(), "no usage is reported: {two}");
    let tokens = post(&sim, gemini, &json!({"model": "e", "input": [1, 2]})).await;
    assert_eq!(tokens.status(), StatusCode::BAD_REQUEST, "token ids are refused");
}

#[tokio::test]
async fn headers_win_over_the_path_and_the_path_over_the_server() {
    let sim = sim(&["chunks=1"]);
    let tokens = async |path: &str, header: Option<&str>| {
        let mut request =
            client().post(format!("http://{}{path}", sim.addr())).json(&chat(json!({})));
        if let Some(chunks) = header {
            request = request.header("x-sim-chunks", chunks);
        }
        json_of(request.send().await.expect("an answer")).await["usage"]["completion_tokens"]
            .clone()
    };
    let path = "/sim:chunks=2;words=10/v1/chat/completions";
    assert_eq!(tokens(CHAT, None).await, 2, "the server's own");
    assert_eq!(tokens(path, None).await, 20, "the path's");
    assert_eq!(tokens(path, Some("3")).await, 30, "the header's");
    let bad = post(&sim, "/sim:chunk=2/v1/chat/completions", &chat(json!({}))).await;
    assert_eq!(bad.status(), StatusCode::BAD_REQUEST, "a setting that does not exist is refused");
}

#[tokio::test]
async fn statuses_keys_delays_and_leaks() {
    let sim = sim(&["fault=status=429", "retry-after=7", "error-code=insufficient_quota"]);
    let refused = post(&sim, CHAT, &chat(json!({}))).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "7");
    let error = json_of(refused).await["error"].clone();
    assert_eq!(error["code"], "insufficient_quota");
    assert_eq!(error.as_object().map(|error| error.len()), Some(4), "OpenAI's four keys: {error}");

    let path = format!("/sim:fault=error-in-200{CHAT}");
    let late = post(&sim, &path, &chat(json!({}))).await;
    assert_eq!(late.status(), StatusCode::OK, "an error that does not look like one");
    let late = json_of(late).await;
    assert_eq!(late["error"]["code"], "insufficient_quota");
    assert!(late.get("choices").is_none(), "an error and nothing else: {late}");

    sim.set_behaviour(Behaviour { key: Some("sk-1".into()), ..Behaviour::default() });
    let url = format!("http://{}{CHAT}", sim.addr());
    assert_eq!(post(&sim, CHAT, &chat(json!({}))).await.status(), StatusCode::UNAUTHORIZED);
    let right = client().post(&url).bearer_auth("sk-1").json(&chat(json!({}))).send().await;
    assert_eq!(right.expect("an answer").status(), StatusCode::OK);

    let begin = Instant::now();
    let path = "/sim:key=;delay-ms=60;fault=leak/v1/chat/completions";
    let late = post(&sim, path, &chat(json!({}))).await;
    assert!(begin.elapsed() >= Duration::from_millis(60), "it waited {:?}", begin.elapsed());
    assert!(late.headers().contains_key("set-cookie") && late.headers().contains_key("x-api-key"));
}

#[tokio::test]
async fn http2_without_tls_is_spoken() {
    let sim = sim(&[]);
    let h2 = crate::harness::http_builder()
        .http2_prior_knowledge()
        .timeout(TIMEOUT)
        .build()
        .expect("a client");
    let sent = h2.post(format!("{}/chat/completions", sim.base_url())).json(&streamed());
    let response = sent.send().await.expect("an answer");
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    let text = response.text().await.expect("text");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[tokio::test]
async fn an_answer_that_its_client_leaves_is_not_in_flight() {
    let sim = sim(&["fault=hang"]);
    let url = format!("http://{}{CHAT}", sim.addr());
    let request = client().post(url).json(&chat(json!({}))).timeout(Duration::from_millis(100));
    assert!(request.send().await.expect_err("no answer").is_timeout());
    let nothing_in_flight = async || sim.requests_in_flight() == 0;
    within_async(TIMEOUT, "the request of a disconnected client ends", nothing_in_flight).await;
}

/// The status line, headers and body as they came, and how the connection ended.
fn raw(sim: &Sim, fault: &str, body: &Value) -> (String, Result<(), ErrorKind>) {
    raw_at(sim, CHAT, fault, body)
}

/// The same, asked of another path.
fn raw_at(sim: &Sim, path: &str, fault: &str, body: &Value) -> (String, Result<(), ErrorKind>) {
    let mut stream = TcpStream::connect(sim.addr()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: sim\r\nx-sim-fault: {fault}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len(),
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).map(drop).map_err(|error| error.kind());
    (String::from_utf8_lossy(&answer).into_owned(), end)
}

/// The decoded chunks of a chunked body, and whether the last one, of size zero, came.
fn chunked(answer: &str) -> (Vec<String>, bool) {
    let mut rest = answer.split_once("\r\n\r\n").expect("a head").1;
    let mut chunks = Vec::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            return (chunks, true);
        }
        chunks.push(after[..size].to_owned());
        rest = &after[size + 2..];
    }
    (chunks, false)
}

#[test]
fn connections_are_reset_and_left_hanging() {
    let sim = sim(&[]);
    for fault in ["reset", "reset-after-body"] {
        let (answer, end) = raw(&sim, fault, &chat(json!({})));
        assert_eq!((answer.as_str(), end), ("", Err(ErrorKind::ConnectionReset)), "{fault}");
    }
    let (answer, end) = raw(&sim, "hang", &chat(json!({})));
    assert_eq!((answer.as_str(), end), ("", Err(ErrorKind::WouldBlock)), "nothing comes");
}

#[test]
fn streams_break_off_as_configured() {
    let sim = sim(&[]);
    for (fault, is_finished, expected_end) in [
        ("cut-after=3", false, Ok(())),
        ("eof-after=3", true, Ok(())),
        ("hang-after=3", false, Err(ErrorKind::WouldBlock)),
        ("error-after=3", true, Ok(())),
    ] {
        let (answer, end) = raw(&sim, fault, &streamed());
        let (parts, finished) = chunked(&answer);
        assert_eq!((finished, end), (is_finished, expected_end), "{fault}: {answer}");
        let text = parts.concat();
        assert!(!text.contains("[DONE]"), "{fault} ends without [DONE]");
        assert_eq!(content(&chunks(&text)).split_whitespace().count(), 6, "{fault}: 3 × 2 words");
        let is_error = text.contains(r#"data: {"error":{"message""#);
        assert_eq!(is_error, fault.starts_with("error"), "{fault}");
    }
    let (answer, _) = raw(&sim, "cut-after=1", &chat(json!({})));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.expect("a length").parse().expect("a number");
    assert_eq!(body.len(), length / 2, "an unstreamed body is cut in its middle");
}

#[test]
fn streams_are_framed_as_configured() {
    let sim = sim(&[]);
    let body = |fault: &str| chunked(&raw(&sim, fault, &streamed()).0);
    let (honest, _) = body("none");
    let honest = content(&chunks(&honest.concat()));

    let (parts, _) = body("crlf");
    let text = parts.concat();
    assert!(text.ends_with("data: [DONE]\r\n\r\n"), "{text}");
    assert_eq!(content(&chunks(&text.replace("\r\n", "\n"))), honest);
    let (parts, _) = body("cr");
    assert!(!parts.concat().contains('\n'));
    assert_eq!(content(&chunks(&parts.concat().replace('\r', "\n"))), honest);

    let (parts, _) = body("comments");
    assert!(parts.concat().contains("\n: inside\ndata: "), "{parts:?}");
    assert_eq!(content(&chunks(&parts.concat())), honest);

    let (parts, _) = body("split");
    assert!(parts.iter().any(|part| part == "dat") && parts.iter().any(|part| part == "\n"));
    assert_eq!(content(&chunks(&parts.concat())), honest);
    let (parts, finished) = body("trickle");
    assert!(finished && parts.iter().all(|part| part.len() == 1), "{parts:?}");
    assert_eq!(content(&chunks(&parts.concat())), honest);

    let (parts, _) = body("giant=100000");
    assert_eq!(content(&chunks(&parts.concat())).len(), honest.len() + 100_000);
}

#[tokio::test]
async fn characters_are_cut_and_still_arrive() {
    let sim = sim(&["fault=utf8-split"]);
    let text = post(&sim, CHAT, &streamed()).await.text().await.expect("text");
    let message = content(&chunks(&text));
    assert!(message.contains("模拟") && message.contains("👩‍🚀"), "{message}");
}

#[tokio::test]
async fn usage_is_forged_and_done_repeated_as_configured() {
    let sim = sim(&["usage=prompt=10,completion=20", "chunks=40"]);
    let reported = async |fault: &str| {
        let path = format!("/sim:fault={fault}{CHAT}");
        let text = post(&sim, &path, &streamed()).await.text().await.expect("text");
        let all = events(&text);
        let prompts: Vec<i64> = all
            .iter()
            .filter_map(|data| serde_json::from_str::<Value>(data).ok())
            .filter_map(|chunk| chunk["usage"]["prompt_tokens"].as_i64())
            .collect();
        let dones: Vec<usize> =
            (0..all.len()).filter(|at| all[*at] == "[DONE]").map(|at| all.len() - at).collect();
        (prompts, dones)
    };
    for (fault, prompts, dones) in [
        ("none", vec![10], vec![1]),
        ("usage-missing", vec![], vec![1]),
        ("usage-negative", vec![-100], vec![1]),
        ("usage-huge", vec![i64::MAX], vec![1]),
        ("usage-twice", vec![10, 100], vec![1]),
        ("usage-early", vec![100, 10], vec![1]),
        ("usage-late", vec![10, 100], vec![2]),
        ("done-twice", vec![10], vec![2, 1]),
        ("done-missing", vec![10], vec![]),
    ] {
        assert_eq!(reported(fault).await, (prompts, dones), "{fault}");
    }
}

#[tokio::test]
async fn garbage_is_garbage() {
    let sim = sim(&["fault=garbage"]);
    for body in [chat(json!({})), streamed()] {
        let response = post(&sim, CHAT, &body).await;
        assert_eq!(response.status(), StatusCode::OK);
        let bytes = response.bytes().await.expect("bytes");
        assert!(std::str::from_utf8(&bytes).is_err(), "not even text: {bytes:?}");
    }
}

#[tokio::test]
async fn a_blind_simulator_counts_and_forgets() {
    let sim = sim(&["blind=on"]);
    let response = client().post(format!("{}/chat/completions", sim.base_url()));
    let response = response.body(vec![b'x'; 4 << 20]).send().await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["x-sim-body-bytes"], "4194304");
    for (path, usage) in [
        ("/v1/chat/completions", "/usage/total_tokens"),
        ("/v1/responses", "/usage/total_tokens"),
        ("/v1beta/models/m:generateContent", "/usageMetadata/totalTokenCount"),
        ("/model/m/converse", "/usage/totalTokens"),
        ("/v1/messages", "/usage/input_tokens"),
    ] {
        let answer = json_of(post(&sim, path, &json!("no request")).await).await;
        let expected = if path == "/v1/messages" { 12 } else { 18 };
        assert_eq!(answer.pointer(usage), Some(&json!(expected)), "{path}: {answer}");
    }
    assert_eq!(sim.requests_total(), 0, "nothing is recorded");
}

#[test]
fn the_command_runs_until_it_is_ended() {
    use std::io::BufRead as _;
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["sim", "--listen", "127.0.0.1:0", "fault=status=418"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout");
    std::io::BufReader::new(stdout).read_line(&mut line).expect("a line");
    let ready: Value = serde_json::from_str(&line).unwrap_or_default();
    let answer = ready["address"].as_str().map(|address| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(b"GET /v1/models HTTP/1.1\r\nhost: sim\r\n\r\n").expect("a request");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("a status line");
        String::from_utf8_lossy(&status).into_owned()
    });
    child.kill().expect("the command is ended");
    child.wait().expect("the command is gone");
    assert_eq!(answer.as_deref(), Some("HTTP/1.1 418"), "{line}");
}

/// The rules themselves are tested where they stand.
#[tokio::test]
async fn a_strict_simulator_refuses_in_the_words_of_the_provider() {
    let sim = sim(&["strict=on"]);
    let tools = json!([{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]);
    let text_found = |text: &str| json!([{"text": text}]);
    let converse = json!({"messages": [{"role": "user", "content": text_found("a")},
        {"role": "assistant", "content": tools}, {"role": "user", "content": text_found("b")}]});
    let chat = |model: &str| {
        json!({"model": model, "messages": [
        {"role": "user", "content": "a"}, {"role": "system", "content": "b"}]})
    };
    for (path, body, words) in [
        (CHAT, chat("qwen"), Some("System message must be at the beginning.")),
        (CHAT, chat("gpt-5.1"), None),
        (
            "/v1/messages",
            json!({"model": "m", "messages": [{"role": "user", "content": "a"}]}),
            Some("anthropic-version: header is required"),
        ),
        (
            "/v1/responses",
            json!({"model": "m", "input": "a", "max_output_tokens": 1}),
            Some("Expected a value >= 16"),
        ),
        (
            "/model/anthropic.claude-opus-4-8/converse",
            converse,
            Some("The toolConfig field must be defined"),
        ),
        (
            "/v1beta/models/gemini-3-pro:generateContent",
            json!({"contents": []}),
            Some("contents is not specified"),
        ),
    ] {
        let answer = post(&sim, path, &body).await;
        let status = if words.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        assert_eq!(answer.status(), status, "{path}");
        let text = answer.text().await.expect("a body");
        assert!(text.contains(words.unwrap_or("choices")), "{path}: {text}");
    }
}
