//! The server for agents: both eras of the protocol on the wire, every tool, and what is refused.

use std::time::{Duration, Instant};

use crate::harness::{
    Admin, Customer, Demo, Gateway, Recorder, ask, chat_model, eventually, http, simulator,
};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// Versions that begin with `initialize`.
const EARLIER: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The version in which every request stands by itself.
const PRESENT: &str = "2026-07-28";

const ALL_TOOLS: [&str; 9] = [
    "chat",
    "generate_image",
    "edit_image",
    "submit_video",
    "get_video",
    "embed",
    "speak",
    "list_models",
    "get_balance",
];

/// A client that writes the protocol by hand.
struct Client {
    url: String,
    key: String,
    http: reqwest::Client,
}

/// An HTTP answer.
struct Reply {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{} {}", self.status, self.text))
    }

    /// The messages of a stream of events.
    fn events(&self) -> Vec<Value> {
        let data = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

impl Client {
    fn new(base_url: &str, key: &str) -> Self {
        Self { url: format!("{base_url}/mcp"), key: key.to_owned(), http: http() }
    }

    async fn send(&self, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Reply {
        self.send_accepting("application/json, text/event-stream", headers, body).await
    }

    async fn send_accepting(
        &self,
        accept: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Reply {
        let mut request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", accept);
        if !self.key.is_empty() {
            request = request.bearer_auth(&self.key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body).send().await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Reply { status, headers, text: answer.text().await.expect("text") }
    }

    /// A request of an earlier version.
    async fn ask(&self, method: &str, params: Value) -> Reply {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.send(&[("mcp-protocol-version", "2025-06-18")], body.to_string()).await
    }

    /// The result of a tool.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let reply = self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let message = reply.json();
        assert!(message["error"].is_null(), "{tool} {arguments}: {message}");
        message["result"].clone()
    }

    /// The structured content of a tool that must not fail.
    async fn done(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone()).await;
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// The error of a tool that must fail.
    async fn refused(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments.clone()).await;
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        let error = result["structuredContent"]["error"].clone();
        let text = result["content"][0]["text"].as_str().expect("a text");
        let message = error["message"].as_str().expect("a message");
        assert!(text.contains(message), "the agent reads it: {result}");
        error
    }

    async fn tools(&self) -> Vec<Value> {
        let list = self.ask("tools/list", json!({})).await.json();
        list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}")).clone()
    }
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

/// A demo and a customer with $10.
async fn demo() -> (Demo, Admin, Customer, Client) {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("10.00").await;
    let client = Client::new(&demo.base_url, &customer.key);
    (demo, admin, customer, client)
}

const CHAT: &str = "gpt-4o-mini";

#[tokio::test(flavor = "multi_thread")]
async fn earlier_versions_begin_with_a_handshake_and_keep_no_session() {
    let (_demo, _, _, client) = demo().await;
    for version in EARLIER {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }});
        let reply = client.send(&[], body.to_string()).await;
        assert_eq!(reply.status, 200, "{version}: {}", reply.text);
        assert!(!reply.headers.contains_key("mcp-session-id"), "{version}: no session");
        assert!(reply.headers.contains_key("x-request-id"), "{version}");
        let result = reply.json()["result"].clone();
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"]["name"], "tollgate");
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let headers = [("mcp-protocol-version", version)];
        assert_eq!(client.send(&headers, begun.to_string()).await.status, 202, "{version}");
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        let list = client.send(&headers, list.to_string()).await.json();
        let tools = list["result"]["tools"].as_array().expect("tools").clone();
        assert_eq!(names(&tools), ALL_TOOLS, "{version}");
        assert!(list["result"]["resultType"].is_null(), "{version}: {list}");
    }
}

/// A request of the present version: its headers and its body.
fn present<'a>(
    method: &'a str,
    name: &'a str,
    mut params: Value,
) -> (Vec<(&'a str, &'a str)>, String) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": PRESENT,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut headers = vec![("mcp-protocol-version", PRESENT), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", name));
    }
    let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
    (headers, body.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_present_version_every_request_stands_by_itself() {
    let (_demo, _, _, client) = demo().await;
    let (headers, body) = present("server/discover", "", json!({}));
    let discovered = client.send(&headers, body).await.json();
    let versions = discovered["result"]["supportedVersions"].as_array().expect("versions").clone();
    assert!(versions.contains(&json!(PRESENT)), "{discovered}");
    let (headers, body) = present("tools/list", "", json!({}));
    let list = client.send(&headers, body).await.json();
    let tools = list["result"]["tools"].as_array().expect("tools").clone();
    assert_eq!(names(&tools), ALL_TOOLS);
    let arguments = json!({"name": "chat", "arguments": {"model": CHAT, "prompt": "Hi"}});
    let (headers, body) = present("tools/call", "chat", arguments.clone());
    let called = client.send(&headers, body.clone()).await.json();
    assert_eq!(called["result"]["isError"], false, "{called}");
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    // What the headers say must be what the body says.
    for wrong in [
        vec![("mcp-protocol-version", PRESENT), ("mcp-method", "tools/list"), ("mcp-name", "chat")],
        vec![
            ("mcp-protocol-version", PRESENT),
            ("mcp-method", "tools/call"),
            ("mcp-name", "embed"),
        ],
        vec![("mcp-protocol-version", "2025-11-25")],
        vec![("mcp-protocol-version", "2020-01-01")],
    ] {
        let reply = client.send(&wrong, body.clone()).await;
        assert_eq!(reply.status, 400, "{wrong:?}: {}", reply.text);
    }
}

/// Messages besides the usual tool call, and the usual one.
fn messages() -> Vec<Value> {
    let call = |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
    };
    let chat = call("chat", json!({"model": CHAT, "prompt": "Hi"}));
    let with = |at: &str, value: Value| {
        let mut message = chat.clone();
        *message.pointer_mut(at).expect("a place") = value;
        message
    };
    let beside = |at: &str, name: &str, value: Value| {
        let mut message = chat.clone();
        message.pointer_mut(at).expect("a place")[name] = value;
        message
    };
    let mut messages = vec![
        chat.clone(),
        call("embed", json!({"model": "text-embedding-3-small", "input": "Hi"})),
        call("list_models", json!({})),
        call("get_balance", json!({})),
        call("get_balance", json!({"more": 1})),
        call("get_video", json!({"id": "none"})),
        call("chat", json!({"model": "none", "prompt": "Hi"})),
        call("chat", json!({"model": CHAT, "prompt": 7})),
        call("none", json!({})),
        call("chat", json!(null)),
        call("chat", json!([1])),
        with("/method", json!("tools/list")),
        with("/method", json!("none")),
        with("/jsonrpc", json!("1.0")),
        with("/params", json!({"name": "get_balance"})),
        with("/params", json!({})),
        with("/params", json!(null)),
        beside("", "more", json!(1)),
        beside("/params", "more", json!(1)),
        beside("/params", "task", json!({})),
        beside("/params", "requestState", json!("state")),
    ];
    for id in [json!("a"), json!(-1), json!(1.5), json!(null), json!({}), json!(u64::MAX)] {
        messages.push(with("/id", id));
    }
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    for meta in [
        json!({}),
        json!(null),
        json!({"progressToken": "p"}),
        json!({version: PRESENT}),
        json!({version: "2025-06-18"}),
        json!({version: 7}),
        json!({capabilities: {}}),
        json!({version: PRESENT, capabilities: {}}),
        json!({version: PRESENT, capabilities: 7}),
        json!({version: PRESENT, capabilities: {}, "io.modelcontextprotocol/clientInfo": 7}),
        json!({version: PRESENT, capabilities: {}, "more": 1}),
        json!({version: "2025-06-18", capabilities: {}}),
        json!({version: "2020-01-01", capabilities: {}}),
    ] {
        messages.push(beside("/params", "_meta", meta));
    }
    messages
}

/// Texts that are no message as a tree has one: what parsers disagree on, and what is too much.
fn odd_texts() -> Vec<Vec<u8>> {
    let message = |id: &str, arguments: &str| {
        let params = format!(r#"{{"name":"chat","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    let arguments = [
        r#"{"model":"none","prompt":"Hi","model":"gpt-4o-mini"}"#.to_owned(),
        r#"{"mod\u0065l":"gpt-4o-mini","prompt":"\ud83d\ude00 \"Hi\"\n"}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","prompt":"\ud800"}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","prompt":"Hi","temperature":1e400}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","prompt":"Hi","temperature":1,"top_p":1e-1}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","prompt":"Hi","max_tokens":9007199254740993}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","prompt":"Hi","max_tokens":18446744073709551616}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","messages":[["user","Hi",null,null]]}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","messages":[{"role":"user","content":[{"text":"a","text":"b","type":"text"}]}]}"#
            .to_owned(),
        r#"{"model":"gpt-4o-mini","prompt":"Hi","extra":{"stream":true,"model":"none","n":2}}"#.to_owned(),
        r#"{"model":"gpt-4o-mini","prompt":"Hi","extra":{"max_completion_tokens":7,"user":"a"}}"#.to_owned(),
        format!(r#"{{"model":"gpt-4o-mini","prompt":"Hi","extra":{{"a":{deep}}}}}"#),
        r#"["gpt-4o-mini","Hi"]"#.to_owned(),
    ];
    let usual = r#"{"model":"gpt-4o-mini","prompt":"Hi"}"#;
    let ids = ["1e2", "-0", "12345678901234567890123", r#""\u0000""#, r#""\ud800""#];
    let long = format!("\"{}\"", "i".repeat(10_000));
    let mut texts: Vec<String> = arguments.iter().map(|one| message("1", one)).collect();
    texts.extend(ids.iter().map(|id| message(id, usual)));
    texts.push(message(&long, usual));
    texts.push(message("1", usual).replacen("\"id\":1", "\"id\":1,\"id\":2", 1));
    texts.push(format!("{} x", message("1", usual)));
    let mut texts: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    let mut broken = message("1", usual).into_bytes();
    let at = broken.iter().position(|byte| *byte == b'H').expect("the prompt");
    broken[at] = 0xff;
    texts.push(broken);
    texts
}

/// Headers that describe a message.
fn headers() -> Vec<Vec<(&'static str, &'static str)>> {
    let version = |version| ("mcp-protocol-version", version);
    let (method, name) = (("mcp-method", "tools/call"), ("mcp-name", "chat"));
    let mut headers = vec![
        vec![],
        vec![version(PRESENT), method, name],
        vec![version(PRESENT), method, ("mcp-name", "get_balance")],
        vec![version(PRESENT), method, ("mcp-name", "=?base64?Y2hhdA==?=")],
        vec![version(PRESENT), method],
        vec![version(PRESENT), name],
        vec![version(PRESENT)],
        vec![version(PRESENT), method, method, name],
        vec![version(PRESENT), method, name, name],
        vec![version(PRESENT), version(PRESENT), method, name],
        vec![version("2020-01-01")],
        vec![version("")],
        vec![method, name],
    ];
    headers.extend(EARLIER.map(|earlier| vec![version(earlier)]));
    headers.push(vec![version("2025-06-18"), ("mcp-method", "tools/list")]);
    headers
}

/// The usual call of a tool is answered without the protocol's library, and every other request by it.
/// Nobody can tell: a client that writes its `Accept` in another way is always answered by the library.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_usual_call_is_that_of_the_protocols_library() {
    let (_demo, _, _, client) = demo().await;
    let mut calls = 0;
    let texts = messages().into_iter().map(|message| message.to_string().into_bytes());
    for message in texts.chain(odd_texts()) {
        let shown = String::from_utf8_lossy(&message);
        for headers in headers() {
            let mut answers = Vec::new();
            for accept in [
                "application/json, text/event-stream",
                "application/json;q=0.9, text/event-stream;q=0.9",
            ] {
                let reply = client.send_accepting(accept, &headers, message.clone()).await;
                let content_type = reply.headers.get("content-type").cloned();
                answers.push((reply.status, content_type, masked(&reply.text)));
            }
            assert_eq!(answers[0], answers[1], "{headers:?} {shown}");
            calls += u32::from(answers[0].2.contains("\"isError\":false"));
        }
    }
    assert!(calls > 100, "{calls} calls of tools");
    // Two headers are one list, for one as for the other.
    let usual = messages().swap_remove(0).to_string();
    let mut answers = Vec::new();
    for (first, second) in [
        ("application/json", "text/event-stream"),
        ("application/json;q=0.9", "text/event-stream;q=0.9"),
    ] {
        let more = [("accept", second)];
        let reply = client.send_accepting(first, &more, usual.clone()).await;
        answers.push((reply.status, masked(&reply.text)));
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].1.contains("\"isError\":false"), "{answers:?}");
}

/// A text without what differs from request to request: ids, and what was spent so far.
fn masked(text: &str) -> String {
    let Ok(mut message) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    mask(&mut message);
    message.to_string()
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let differs = ["request_id", "available", "held", "spent"];
            members.retain(|name, _| !differs.contains(&name.as_str()));
            members.values_mut().for_each(mask);
        }
        Value::Array(members) => members.iter_mut().for_each(mask),
        Value::String(text) if text.contains(" available, ") => text.clear(),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_without_a_key() {
    let (demo, admin, customer, client) = demo().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for key in ["", "sk-unknown", &customer.key[1..]] {
        let stranger = Client::new(&demo.base_url, key);
        for body in [list.clone(), "no JSON".to_owned(), String::new()] {
            let reply = stranger.send(&[("origin", "http://evil.test")], body).await;
            assert_eq!(reply.status, 401, "{key:?}: {}", reply.text);
            assert_eq!(reply.headers["www-authenticate"], "Bearer");
            assert_eq!(reply.json()["error"]["code"], "unauthorized");
        }
    }
    let by_header = Client::new(&demo.base_url, "");
    let reply = by_header.send(&[("x-api-key", customer.key.as_str())], list.clone()).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    // A key that is revoked between two calls does not get the second one.
    assert_eq!(client.send(&[], list.clone()).await.status, 200);
    let keys = admin.get(&format!("/accounts/{}/keys", customer.account)).await;
    let id = keys["data"][0]["id"].as_str().unwrap_or_else(|| panic!("{keys}"));
    admin.patch(&format!("/keys/{id}"), json!({"disabled": true})).await;
    let reply = client.send(&[], list).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!("permission_denied")));
}

/// A gateway whose server for agents has these settings.
fn gateway(mcp: &str) -> (Gateway, Client) {
    let recorder = Recorder::start();
    let gateway = Gateway::start_with(recorder.address, &format!("mcp: {{ {mcp} }}\n"));
    let client = Client::new(&format!("http://{}", gateway.address), &gateway.key);
    (gateway, client)
}

/// An agent is told which model has served it, where it is not the one that it asked for.
#[tokio::test(flavor = "multi_thread")]
async fn another_model_that_serves_a_call_is_named() {
    let (failing, recorder) = (simulator(&[]), Recorder::start());
    let upstreams = format!(
        "  bad: {{ protocol: openai, base_url: 'http://{}/sim:fault=status=500/v1' }}
  good: {{ protocol: openai, base_url: 'http://{}/v1' }}
",
        failing.addr(),
        recorder.address
    );
    let falls_back = format!("{}    fallbacks: [m]\n", chat_model("cheap", "bad"));
    let models = format!("models:\n{falls_back}{}", chat_model("m", "good"));
    let gateway = Gateway::serving(&upstreams, &models);
    let client = Client::new(&format!("http://{}", gateway.address), &gateway.key);
    let request = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10});
    let reply = client.done("chat", request("cheap")).await;
    assert_eq!(reply["served_by"], "m", "{reply}");
    let reply = client.done("chat", request("m")).await;
    assert_eq!(reply["served_by"], Value::Null, "{reply}");
}

/// An agent finishes its loop with a tool also where its words are translated: the model is sold for
/// responses, or for messages alone, and is listed for all that it can be asked.
#[tokio::test(flavor = "multi_thread")]
async fn agents_chat_with_models_that_are_translated() {
    let sim = simulator(&[]);
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{address}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{address}' }}
",
        address = sim.addr()
    );
    let responses = chat_model("thinker", "o").replace("[chat]", "[responses]");
    let messages = chat_model("writer", "a").replace("[chat]", "[messages]");
    let gateway = Gateway::serving(&upstreams, &format!("models:\n{responses}{messages}"));
    let client = Client::new(&format!("http://{}", gateway.address), &gateway.key);
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let function =
        json!({"type": "function", "function": {"name": "weather", "parameters": schema}});
    let tool = json!({"name": "weather", "input_schema": schema});
    for (model, tool) in [("thinker", function), ("writer", tool)] {
        let mut text_found = vec![json!({"role": "user", "content": "How is it in Rome?"})];
        let request = |text_found: &[Value]| json!({"model": model, "messages": text_found, "max_tokens": 50, "extra": {"tools": [tool]}});
        let reply = client.done("chat", request(&text_found)).await;
        let calls = reply["tool_calls"].as_array().unwrap_or_else(|| panic!("{model}: {reply}"));
        assert_eq!(calls[0]["function"]["name"], "weather", "{model}: {reply}");
        text_found.push(json!({"role": "assistant", "tool_calls": calls}));
        let (id, content) = (calls[0]["id"].clone(), "Sunny");
        text_found.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
        let reply = client.done("chat", request(&text_found)).await;
        assert!(reply["tool_calls"].is_null() && reply["text"] != "", "{model}: {reply}");
    }
    let models = client.done("list_models", json!({})).await["models"].clone();
    assert_eq!(
        models[0]["operations"],
        json!(["responses", "chat", "messages", "generate_content"]),
        "{models}"
    );
    assert_eq!(
        models[1]["operations"],
        json!(["messages", "chat", "responses", "generate_content"]),
        "{models}"
    );
    let path = "/admin/v1/route?model=thinker";
    let explained = gateway.admin("GET", path, &Value::Null);
    assert_eq!(
        explained["translated"],
        json!(["chat", "messages", "generate_content"]),
        "{explained}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_names_are_let_in_as_configured() {
    let settings = "allowed_hosts: [127.0.0.1], allowed_origins: ['https://app.example.com']";
    let (gateway, client) = gateway(settings);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for (name, value, status) in [
        ("origin", "https://app.example.com", 200),
        ("origin", "http://app.example.com", 403),
        ("origin", "https://evil.test", 403),
        ("origin", "null", 403),
        // The listener is on loopback: pages of the same machine may call.
        ("origin", "http://localhost:5173", 200),
        ("origin", "http://127.0.0.1", 200),
        ("origin", "http://[::1]:8080", 200),
        ("origin", "http://localhost.evil.test", 403),
        ("host", "evil.test", 403),
        ("host", "127.0.0.1:1", 200),
    ] {
        let reply = client.send(&[(name, value)], list.clone()).await;
        assert_eq!(reply.status, status, "{name}: {value}: {}", reply.text);
        if status == 403 {
            assert_eq!(reply.json()["error"]["code"], -32600, "{}", reply.text);
            assert!(!reply.headers.contains_key("access-control-allow-origin"), "{value}");
        } else if name == "origin" {
            assert_eq!(reply.headers["access-control-allow-origin"], value);
        }
    }
    // Browsers ask without a key.
    for (origin, status) in [("https://app.example.com", 204), ("https://evil.test", 403)] {
        let request = format!(
            "OPTIONS /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: POST\r\n\
             Access-Control-Request-Headers: authorization, mcp-protocol-version\r\n\r\n"
        );
        let answer = ask(gateway.address, request.as_bytes());
        assert_eq!(answer.status(), status, "{origin}: {answer:?}");
        let allowed = answer.header("access-control-allow-headers");
        assert_eq!(allowed.is_some(), status == 204, "{origin}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_where_the_configuration_says_and_only_if_it_says_so() {
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let (gateway, mut client) = gateway("path: /agents/mcp");
    assert_eq!(client.send(&[], list.clone()).await.status, 404);
    client.url = format!("http://{}/agents/mcp", gateway.address);
    let reply = client.send(&[], list.clone()).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let line = r#"route="/mcp""#;
    eventually("its requests are counted", || gateway.metrics().contains(line));
    let (_off, client) = self::gateway("enabled: false");
    assert_eq!(client.send(&[], list).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused_by_the_protocols_rules() {
    let (_gateway, client) = gateway("body_max: 64KiB");
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}1{}}}"#,
        r#"{"a":"#.repeat(5000),
        "}".repeat(5000)
    );
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (body, status, code) in [
        (String::new(), 400, -32700),
        ("no JSON".to_owned(), 400, -32700),
        ("[]".to_owned(), 400, -32600),
        (format!("[{list},{list}]"), 400, -32600),
        (r#"[1,"garbage",null]"#.to_owned(), 400, -32600),
        ("null".to_owned(), 400, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#.to_owned(), 400, -32600),
        (deep, 400, -32600),
    ] {
        let shown: String = body.chars().take(40).collect();
        let reply = client.send(&[], body).await;
        assert_eq!(reply.status, status, "{shown}: {}", reply.text);
        assert_eq!(reply.headers["content-type"], "application/json", "{shown}");
        assert_eq!(reply.json()["error"]["code"], code, "{shown}: {}", reply.text);
    }
    // Whatever else the transport refuses is JSON as well.
    let large = client.send(&[], "x".repeat(64 * 1024 + 1)).await;
    assert_eq!((large.status, large.json()["error"].is_object()), (413, true), "{}", large.text);
    let both = "application/json, text/event-stream";
    for (content_type, accept, version, status) in [
        ("text/plain", both, "2025-06-18", 415),
        ("application/json", "text/html", "2025-06-18", 406),
        ("application/json", both, "1999-01-01", 400),
    ] {
        let request = client.http.post(&client.url).bearer_auth(&client.key).body(list);
        let request = request.header("content-type", content_type).header("accept", accept);
        let answer = request.header("mcp-protocol-version", version).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), status, "{content_type} {accept} {version}");
        assert_eq!(answer.headers()["content-type"], "application/json", "{status}");
        let error: Value = answer.json().await.expect("JSON");
        assert!(error["error"]["code"].is_i64(), "{status}: {error}");
    }
    for (method, params, code) in [
        ("tools/call", json!({"name": "rm", "arguments": {}}), -32602),
        ("tools/call", json!({"arguments": {}}), -32601),
        ("tools/call", json!({"name": "chat", "arguments": []}), -32601),
        ("no/such", json!({}), -32601),
        ("resources/read", json!({"uri": "file:///etc/passwd"}), -32601),
        ("prompts/get", json!({"name": "x"}), -32601),
    ] {
        let reply = client.ask(method, params.clone()).await;
        assert_eq!(reply.json()["error"]["code"], code, "{method} {params}: {}", reply.text);
    }
    for method in [reqwest::Method::GET, reqwest::Method::DELETE, reqwest::Method::PUT] {
        let other = client.http.request(method.clone(), &client.url).bearer_auth(&client.key);
        let answer = other.send().await.expect("an answer");
        assert_eq!(answer.status(), 405, "{method}");
        assert_eq!(answer.headers()["allow"], "POST", "{method}");
        assert_eq!(answer.headers()["content-type"], "application/json", "{method}");
        let error: Value = answer.json().await.expect("JSON");
        assert_eq!(error["error"]["code"], -32600, "{method}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_are_reported_to_the_agent() {
    let (_demo, admin, customer, client) = demo().await;
    for (tool, arguments, code) in [
        ("chat", json!({}), "invalid_arguments"),
        ("chat", json!({"model": CHAT}), "invalid_arguments"),
        ("chat", json!({"model": CHAT, "prompt": 5}), "invalid_arguments"),
        ("chat", json!({"model": CHAT, "prompt": "a", "temprature": 1}), "invalid_arguments"),
        ("chat", json!({"model": "nope", "prompt": "a"}), "model_not_found"),
        (
            "chat",
            json!({"model": "text-embedding-3-small", "prompt": "a"}),
            "invalid_request_error",
        ),
        ("chat", json!({"model": CHAT, "prompt": "a", "max_tokens": 0}), "invalid_request_error"),
        ("embed", json!({"model": "text-embedding-3-small"}), "invalid_arguments"),
        (
            "generate_image",
            json!({"model": "qf-image-2.0", "prompt": "a", "size": "1x1"}),
            "InvalidParameter",
        ),
        (
            "generate_image",
            json!({"model": "pimg-1", "prompt": "a", "n": 99}),
            "invalid_request_error",
        ),
        (
            "edit_image",
            json!({"model": "pimg-1", "prompt": "a", "images": ["???"]}),
            "invalid_arguments",
        ),
        (
            "edit_image",
            json!({"model": "pimg-1", "prompt": "a", "images": ["aGk="]}),
            "invalid_request_error",
        ),
        (
            "submit_video",
            json!({"model": "vf2.7-t2v", "prompt": "a", "duration": 99}),
            "InvalidParameter.DurationOutOfRange",
        ),
        (
            "submit_video",
            json!({"model": "vf2.7-t2v", "prompt": "a", "idempotency_key": "\n"}),
            "invalid_arguments",
        ),
        ("get_video", json!({"id": "../../v1/balance"}), "invalid_arguments"),
        ("get_video", json!({"id": "x?y"}), "invalid_arguments"),
        ("get_video", json!({"id": ""}), "invalid_arguments"),
        ("get_video", json!({"id": "x".repeat(500)}), "invalid_arguments"),
        ("get_video", json!({"id": "gt_none"}), "ResourceNotFound"),
        ("get_balance", json!({"account": "other"}), "invalid_arguments"),
    ] {
        let error = client.refused(tool, arguments.clone()).await;
        assert_eq!(error["code"], code, "{tool} {arguments}: {error}");
    }
    assert_eq!(admin.settled(&customer.account).await.spent, 0, "nothing was charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_costs_what_the_same_call_costs_over_http() {
    let (demo, admin, _, _) = demo().await;
    let (one, other) = (admin.customer("10.00").await, admin.customer("10.00").await);
    let client = Client::new(&demo.base_url, &one.key);
    let prompt = "Say something about lighthouses.";
    let message = json!([{"role": "user", "content": prompt}]);
    let calls = [
        (
            "chat",
            json!({"model": CHAT, "prompt": prompt, "max_tokens": 20}),
            "/v1/chat/completions",
            json!({"model": CHAT, "messages": message, "max_tokens": 20}),
        ),
        (
            "chat",
            json!({"model": "claude-sonnet-4-5", "prompt": prompt, "max_tokens": 20}),
            "/v1/messages",
            json!({"model": "claude-sonnet-4-5", "messages": message, "max_tokens": 20}),
        ),
        (
            "embed",
            json!({"model": "text-embedding-3-small", "input": ["a", "b"]}),
            "/v1/embeddings",
            json!({"model": "text-embedding-3-small", "input": ["a", "b"]}),
        ),
        (
            "generate_image",
            json!({"model": "gemini-2.5-flash-image", "prompt": "a cat", "n": 2}),
            "/v1/images/generations",
            json!({"model": "gemini-2.5-flash-image", "prompt": "a cat", "n": 2}),
        ),
        (
            "speak",
            json!({"model": "qf3-tts-flash", "input": "The lighthouse stands.", "voice": "Ethan"}),
            "/v1/audio/speech",
            json!({"model": "qf3-tts-flash", "input": "The lighthouse stands.", "voice": "Ethan"}),
        ),
    ];
    let (mut spent_by_one, mut spent_by_other) = (0, 0);
    for (tool, arguments, path, body) in calls {
        let reply = client.done(tool, arguments).await;
        let call = demo.post(path, &body, "").bearer_auth(&other.key);
        let answer = call.send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{path}");
        drop(answer.bytes().await);
        let by_tool = admin.settled(&one.account).await.spent - spent_by_one;
        let by_http = admin.settled(&other.account).await.spent - spent_by_other;
        assert!(by_tool > 0 && by_tool == by_http, "{tool}: {by_tool}, over HTTP {by_http}");
        let cost = reply["cost_usd"].as_str().unwrap_or_else(|| panic!("{reply}"));
        let cost: tollgate::money::Nanousd = cost.parse().expect("dollars");
        assert_eq!(cost.get(), by_tool, "{tool} tells what it cost");
        (spent_by_one, spent_by_other) = (spent_by_one + by_tool, spent_by_other + by_http);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_balance_are_those_of_the_key() {
    let (demo, admin, _, _) = demo().await;
    let poor = admin.customer("0.000001").await;
    let client = Client::new(&demo.base_url, &poor.key);
    let error = client.refused("chat", json!({"model": CHAT, "prompt": "Hi"})).await;
    assert_eq!((&error["code"], &error["status"]), (&json!("insufficient_balance"), &json!(402)));
    // A key for one model sees the tools for it alone, and gets nothing else.
    let path = format!("/accounts/{}/keys", admin.customer("1.00").await.account);
    let key = admin
        .post(&path, json!({"name": "one", "models": [CHAT, "claude-opus-4-5-20251101"]}))
        .await;
    let client = Client::new(&demo.base_url, key["key"].as_str().expect("a key"));
    let tools = client.tools().await;
    assert_eq!(names(&tools), ["chat", "list_models", "get_balance"]);
    let model = &tools[0]["inputSchema"]["properties"]["model"];
    assert_eq!(model["enum"], json!([CHAT, "claude-opus-4-5-20251101"]), "{model}");
    let error = client.refused("chat", json!({"model": "gpt-4o", "prompt": "Hi"})).await;
    assert_eq!(error["code"], "permission_denied", "{error}");
    let listed = client.done("list_models", json!({})).await;
    assert_eq!(listed["models"].as_array().expect("models").len(), 2, "{listed}");
    // Its limits hold, too.
    let limited = admin.customer("1.00").await;
    let keys = admin.get(&format!("/accounts/{}/keys", limited.account)).await;
    let id = keys["data"][0]["id"].as_str().expect("an id").to_owned();
    admin.patch(&format!("/keys/{id}"), json!({"limits": {"requests_per_minute": 1}})).await;
    let client = Client::new(&demo.base_url, &limited.key);
    let ask = json!({"model": CHAT, "prompt": "Hi"});
    client.done("chat", ask.clone()).await;
    let error = client.refused("chat", ask).await;
    assert_eq!(error["code"], "rate_limit_exceeded", "{error}");
    assert!(error["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_say_what_the_running_configuration_has() {
    let (_demo, _, _, client) = demo().await;
    let tools = client.tools().await;
    let properties = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).expect("the tool");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{name}");
        tool["inputSchema"]["properties"].clone()
    };
    let chat = properties("chat");
    let any = chat["model"]["anyOf"].as_array().expect("names and patterns");
    assert!(any[0]["enum"].as_array().expect("names").contains(&json!(CHAT)), "{chat}");
    assert!(any.contains(&json!({"type": "string", "pattern": "^claude-opus-4-5-20"})), "{chat}");
    let video = properties("submit_video");
    assert_eq!(
        (&video["duration"]["minimum"], &video["duration"]["maximum"]),
        (&json!(1), &json!(15))
    );
    assert_eq!(video["resolution"]["enum"], json!(["720p", "1080p", "480p"]));
    assert_eq!(properties("generate_image")["n"]["maximum"], 15);
    let edit = properties("edit_image");
    assert_eq!(
        edit["model"]["enum"],
        json!(["pimg-2", "pimg-1", "dle-2", "gpt-image-2.6-flare", "gpt-image-2.6-sunburst"])
    );
    assert!(properties("speak")["input"]["maxLength"].is_u64());
    let read_only: Vec<&Value> =
        tools.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == true).collect();
    assert_eq!(read_only.len(), 3, "what costs nothing");
}

/// The content blocks of this type.
fn blocks<'a>(result: &'a Value, kind: &str) -> Vec<&'a Value> {
    let content = result["content"].as_array().expect("content");
    content.iter().filter(|block| block["type"] == kind).collect()
}

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_does_what_it_says() {
    let (_demo, _, _, client) = demo().await;
    let chat =
        client.call("chat", json!({"model": CHAT, "prompt": "Hi", "system": "Be brief."})).await;
    assert!(chat["content"][0]["text"].as_str().expect("text").contains("Simulated upstreams"));
    let reply = &chat["structuredContent"];
    assert!(reply["usage"]["total_tokens"].is_u64() && reply["finish_reason"] == "stop", "{reply}");

    let images = client.call("generate_image", json!({"model": "pimg-1", "prompt": "a cat"})).await;
    let image = blocks(&images, "image")[0].clone();
    assert_eq!(image["mimeType"], "image/png", "{image}");
    let linked =
        client.call("generate_image", json!({"model": "qf-image-2.0", "prompt": "a cat"})).await;
    let link = blocks(&linked, "resource_link")[0].clone();
    assert!(link["uri"].as_str().expect("a URI").starts_with("http"), "{link}");

    let edit = json!({"model": "pimg-1", "prompt": "a cat", "images": [PIXEL, PIXEL], "size": "1024x1024"});
    let edited = client.call("edit_image", edit).await;
    assert_eq!(blocks(&edited, "image").len(), 1, "{edited}");

    let embedded =
        client.done("embed", json!({"model": "text-embedding-3-small", "input": ["a", "b"]})).await;
    assert_eq!(embedded["embeddings"].as_array().expect("vectors").len(), 2);

    let speech = json!({"model": "qf3-tts-flash", "input": "Hello.", "voice": "Ethan", "response_format": "wav"});
    let spoken = client.call("speak", speech).await;
    assert!(
        blocks(&spoken, "audio")[0]["mimeType"].as_str().expect("a type").starts_with("audio/")
    );

    let models = client.done("list_models", json!({})).await;
    let video =
        models["models"].as_array().expect("models").iter().find(|one| one["id"] == "vf2.7-t2v");
    assert_eq!(video.expect("listed")["limits"]["seconds"], json!([2, 15]));
    assert_eq!(client.done("get_balance", json!({})).await["granted"], "10.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_video_is_begun_followed_and_kept_from_others() {
    let (demo, admin, customer, client) = demo().await;
    for model in ["vf2.7-t2v", "df-sf-2-0-260128", "gif-video"] {
        let order = json!({
            "model": model,
            "prompt": "a lighthouse",
            "duration": 5,
            "resolution": "720p",
            "idempotency_key": model,
        });
        let begun = client.done("submit_video", order.clone()).await;
        let again = client.done("submit_video", order).await;
        assert_eq!(begun["id"], again["id"], "{model}: one video");
        let id = begun["id"].as_str().expect("an id").to_owned();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "get_video",
            "arguments": {"id": id, "wait_seconds": 60},
            "_meta": {"progressToken": "here"},
        }});
        let reply = client.send(&[], body.to_string()).await;
        let messages =
            if reply.text.starts_with('{') { vec![reply.json()] } else { reply.events() };
        let (last, progress) = messages.split_last().expect("messages");
        let result = &last["result"];
        assert_eq!(result["structuredContent"]["status"], "succeeded", "{model}: {}", reply.text);
        let link = blocks(result, "resource_link")[0].clone();
        assert_eq!(link["mimeType"], "video/mp4", "{model}");
        let mut seen = -1.0;
        for one in progress {
            assert_eq!(one["method"], "notifications/progress", "{one}");
            assert_eq!(one["params"]["progressToken"], "here", "{one}");
            let now = one["params"]["progress"].as_f64().expect("a number");
            assert!(now > seen, "{model}: progress grows: {}", reply.text);
            seen = now;
        }
        assert!(!progress.is_empty(), "{model}: progress is told: {}", reply.text);
        let stranger = Client::new(&demo.base_url, &admin.customer("1.00").await.key);
        let error = stranger.refused("get_video", json!({"id": id})).await;
        assert_eq!(error["code"], "ResourceNotFound", "{model}");
    }
    let spent = admin.settled(&customer.account).await.spent;
    assert!(spent > 0, "videos are settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_has_an_end() {
    let sim = crate::harness::simulator(&["task-pending-ms=60000"]);
    let upstreams = format!(
        "  dashscope: {{ protocol: dashscope, base_url: 'http://{}' }}\nmcp: {{ wait_max: 1s }}\n",
        sim.addr()
    );
    let models = "models:
  vf2.7-t2v:
    operations: [video]
    targets: [{ upstream: dashscope, model: wan2.7-t2v }]
    prices: { per_second: 0.10 }
    limits: { resolutions: [720p], seconds_min: 2, seconds_max: 15 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let client = Client::new(&format!("http://{}", gateway.address), &gateway.key);
    let begun = client.done("submit_video", json!({"model": "vf2.7-t2v", "prompt": "a"})).await;
    let started = Instant::now();
    let reply = client.done("get_video", json!({"id": begun["id"], "wait_seconds": 600})).await;
    assert!(reply["status"] == "processing" || reply["status"] == "queued", "{reply}");
    let took = started.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn media_beyond_the_limit_are_left_out_with_a_note() {
    let sim = crate::harness::simulator(&[]);
    let upstreams = format!(
        "  openai: {{ protocol: openai, base_url: 'http://{}/v1' }}\nmcp: {{ media_max: 10 }}\n",
        sim.addr()
    );
    let models = "models:
  pimg-1:
    operations: [image_generation]
    targets: [{ upstream: openai, model: gpt-image-1 }]
    prices: { per_image: 0.01 }
  tts:
    operations: [speech]
    targets: [{ upstream: openai, model: tts-1 }]
    prices: { per_1m_characters: 15 }
";
    let gateway = Gateway::serving(&upstreams, models);
    let client = Client::new(&format!("http://{}", gateway.address), &gateway.key);
    for (tool, arguments, list) in [
        ("generate_image", json!({"model": "pimg-1", "prompt": "a"}), "images"),
        ("speak", json!({"model": "tts", "input": "Hello.", "voice": "alloy"}), "audio"),
    ] {
        let result = client.call(tool, arguments).await;
        assert_eq!(result["structuredContent"][list][0]["included"], false, "{result}");
        assert!(blocks(&result, "image").is_empty() && blocks(&result, "audio").is_empty());
        assert!(result.to_string().len() < 1000, "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_leaves_frees_its_hold() {
    let sim = crate::harness::simulator(&["delay-ms=2000"]);
    let upstreams =
        format!("  openai: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", sim.addr());
    let models = format!("models:\n{}", crate::harness::chat_model("m", "openai"));
    let mut spent = Vec::new();
    for over_http in [false, true] {
        let gateway = Gateway::serving(&upstreams, &models);
        let url = format!("http://{}", gateway.address);
        let client = Client::new(&url, &gateway.key);
        let call = tokio::spawn(async move {
            if over_http {
                let body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
                let request = client.http.post(format!("{url}/v1/chat/completions"));
                drop(request.bearer_auth(&client.key).json(&body).send().await);
            } else {
                client.call("chat", json!({"model": "m", "prompt": "a"})).await;
            }
        });
        eventually("the upstream is at work", || sim.requests_in_flight() > 0);
        assert_ne!(gateway.balance()["held"], "0.00", "the money is held");
        call.abort();
        eventually("nothing is held any more", || gateway.balance()["held"] == "0.00");
        eventually("nothing is under way", || gateway.metric("tollgate_requests_in_flight") == 0.0);
        eventually("nor at the upstream", || sim.requests_in_flight() == 0);
        spent.push(gateway.balance()["spent"].clone());
    }
    assert_eq!(spent[0], spent[1], "an agent pays as every customer who leaves");
    assert_ne!(spent[0], "0.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_lines_of_the_log_name_the_agents_own_address() {
    let sim = crate::harness::simulator(&[]);
    let upstreams = format!(
        "  openai: {{ protocol: openai, base_url: 'http://{}/v1' }}\ntrusted_proxies: [127.0.0.0/8]\n",
        sim.addr()
    );
    let models = format!("models:\n{}", crate::harness::chat_model("m", "openai"));
    let gateway = Gateway::logging(&upstreams, &models);
    let client = Client::new(&format!("http://{}", gateway.address), &gateway.key);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "chat", "arguments": {"model": "m", "prompt": "Hi"},
    }});
    let from = [("x-forwarded-for", "198.51.100.7, 203.0.113.9")];
    let reply = client.send(&from, call.to_string()).await.json();
    assert_eq!(reply["result"]["isError"], false, "{reply}");
    let line_of = |route: &str| {
        let log = std::fs::read_to_string(gateway.path("log")).expect("the log");
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut lines = lines.filter(|line| line["route"] == route);
        lines.next()
    };
    for route in ["/mcp", "/v1/chat/completions"] {
        eventually(route, || line_of(route).is_some());
        let line = line_of(route).expect("a line");
        assert_eq!(line["client"], "203.0.113.9", "{line}");
        assert_eq!(line["status"], 200, "{line}");
        assert_eq!(line["cost_usd"].is_null(), route == "/mcp", "{line}");
        assert!(line["key_id"].is_string(), "{line}");
    }
}

/// The task that a conflict names can be read with the other tool, in every family.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_video_is_a_conflict_that_names_the_first() {
    let (_demo, _, _, client) = demo().await;
    for model in ["vf2.7-t2v", "happyhorse-1.0-r2v", "df-sf-2-0-260128", "gif-video"] {
        let mut order =
            json!({"model": model, "prompt": "a tide", "duration": 5, "resolution": "720p"});
        if model.ends_with("-r2v") {
            order["image_urls"] = json!(["https://a.example/a.png"]);
        }
        let begun = client.done("submit_video", order.clone()).await;
        let error = client.refused("submit_video", order).await;
        assert_eq!(error["code"], "idempotency_conflict", "{model}: {error}");
        let id = begun["id"].as_str().expect("an id");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(&format!("as the task {id},")), "{model}: {message}");
        let read = client.done("get_video", json!({"id": id})).await;
        assert_eq!(read["record"]["id"], begun["id"], "{model}");
    }
}
