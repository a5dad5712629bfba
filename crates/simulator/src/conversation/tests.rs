use super::*;
use crate::{Behaviour, Sim, SimOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// Start a simulator that calls `shell` twice in parallel until the results arrive.
fn sim() -> Sim {
    let sim = Sim::start(SimOptions { behaviour: Behaviour::default(), ..SimOptions::default() })
        .expect("it starts");
    sim.set_script(ModelScript::new(|request| {
        request.tool("shell")?;
        let call = |command: &str| ScriptedToolCall {
            name: "shell".to_owned(),
            input: json!({"command": command}),
        };
        let is_first = request.calls.is_empty();
        Some(ModelTurn {
            thoughts: "Hm.".to_owned(),
            text: "Done.".to_owned(),
            calls: if is_first { vec![call("one"), call("two")] } else { Vec::new() },
            usage: TurnUsage { input: 100, cached: 40, output: 10, reasoning: 4 },
        })
    }));
    sim
}

fn post(sim: &Sim, path: &str, body: &Value) -> String {
    let body = body.to_string();
    let mut stream = TcpStream::connect(sim.addr()).expect("a connection");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it is sent");
    stream.write_all(body.as_bytes()).expect("it is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A path and a body of each dialect, at the start and with both results.
fn requests() -> Vec<(&'static str, Value, Value)> {
    let schema = json!({"type": "object"});
    let arguments = "{\"command\":\"one\"}";
    let function = json!({"name": "shell", "parameters": schema});
    let call = |id: &str| {
        let function = json!({"name": "shell", "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    };
    let chat = |messages: Value| {
        let tools = json!([{"type": "function", "function": function}]);
        json!({"model": "m", "tools": tools, "messages": messages})
    };
    let responses = |input: Value| {
        let tools = json!([{"type": "namespace", "name": "n",
            "tools": [{"type": "function", "name": "shell", "parameters": schema}]}]);
        json!({"model": "m", "tools": tools, "input": input})
    };
    let messages = |messages: Value| {
        let tools = json!([{"name": "shell", "input_schema": schema}]);
        json!({"model": "m", "max_tokens": 100, "tools": tools, "messages": messages})
    };
    let gemini = |contents: Value| json!({"tools": [{"functionDeclarations": [function]}], "contents": contents});
    let converse = |messages: Value| {
        let spec = json!({"toolSpec": {"name": "shell", "inputSchema": {"json": schema}}});
        json!({"toolConfig": {"tools": [spec]}, "messages": messages})
    };
    let item = json!({"type": "function_call", "call_id": "a", "name": "shell",
        "arguments": arguments});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": "x"});
    let used = json!({"type": "tool_use", "id": "a", "name": "shell", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "x"});
    let function_call = json!({"functionCall": {"name": "shell", "args": {}}});
    let response = json!({"functionResponse": {"name": "shell", "response": {"output": "x"}}});
    let tool_use = json!({"toolUse": {"toolUseId": "a", "name": "shell", "input": {}}});
    let tool_result = json!({"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}});
    let turn = |role: &str, key: &str, part: &Value| json!({"role": role, key: [part]});
    vec![
        (
            "/v1/chat/completions",
            chat(json!([])),
            chat(json!([{"role": "assistant", "tool_calls": [call("a")]},
                {"role": "tool", "tool_call_id": "a", "content": "x"}])),
        ),
        ("/v1/responses", responses(json!([])), responses(json!([item, output]))),
        (
            "/v1/messages",
            messages(json!([])),
            messages(json!([
                turn("assistant", "content", &used),
                turn("user", "content", &result)
            ])),
        ),
        (
            "/v1beta/models/m:generateContent",
            gemini(json!([])),
            gemini(json!([
                turn("model", "parts", &function_call),
                turn("user", "parts", &response)
            ])),
        ),
        (
            "/model/m/converse",
            converse(json!([])),
            converse(json!([
                turn("assistant", "content", &tool_use),
                turn("user", "content", &tool_result)
            ])),
        ),
    ]
}

#[test]
fn a_script_calls_tools_in_every_dialect_until_their_results_are_there() {
    let sim = sim();
    for (path, first, second) in requests() {
        let answer = post(&sim, path, &first);
        assert!(answer.contains("200 OK"), "{path}: {answer}");
        assert_eq!(answer.matches("shell").count(), 2, "{path}: {answer}");
        let answer = post(&sim, path, &second);
        assert!(answer.contains("Done.") && !answer.contains("shell"), "{path}: {answer}");
    }
}

#[test]
fn streams_have_the_calls_of_documents() {
    let sim = sim();
    for (path, mut first, _) in requests() {
        let path = match path {
            "/v1beta/models/m:generateContent" => "/v1beta/models/m:streamGenerateContent?alt=sse",
            "/model/m/converse" => "/model/m/converse-stream",
            other => other,
        };
        first["stream"] = json!(true);
        let answer = post(&sim, path, &first);
        assert!(answer.contains("chunked"), "{path}: {answer}");
        assert!(answer.matches("shell").count() >= 2, "{path}: {answer}");
    }
}

#[test]
fn a_free_input_is_wrapped_for_tools_without_one() {
    let tool = |name: &str, is_free| DeclaredTool {
        name: name.to_owned(),
        namespace: String::new(),
        is_free,
    };
    let request = ModelRequest {
        dialect: ModelDialect::Chat,
        path: String::new(),
        headers: http::HeaderMap::new(),
        tools: vec![tool("functions__exec", false), tool("patch", true)],
        calls: Vec::new(),
        body: Value::Null,
    };
    let declared = |name: &str| {
        let mut call = ScriptedToolCall { name: name.to_owned(), input: json!("text") };
        call.declare(&request);
        (call.name, call.input)
    };
    assert_eq!(declared("exec"), ("functions__exec".to_owned(), json!({"input": "text"})));
    assert_eq!(declared("patch"), ("patch".to_owned(), json!("text")));
}
