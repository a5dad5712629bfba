//! Conversations that go on: the customer's SDK appends what it was answered, and the prompt of the next
//! turn begins with that of the one before, byte for byte, so that an upstream's cache finds it again.

use serde_json::{Value, json};
use tollgate_simulator::strict::{self, StrictDialect};
use tollgate_translation::dialect::{AnswerFrame, Losses, TranslationTarget};

use crate::cells::{TargetModel, cells, models, reader, writer};
use crate::talk::Customer;

/// Turns of the model in one conversation.
const TURNS: usize = 8;

/// The tool that the conversations call.
const TOOL: &str = "run_command";

/// An answer of the upstream in its own words: a thought, a text, and calls with these ids.
fn answer(dialect: StrictDialect, name: &str, turn: usize, calls: &[String]) -> Value {
    let text = format!("Turn {turn}: I see.");
    let signature = format!("c2lnbmF0dXJl{turn:04}");
    match dialect {
        StrictDialect::ChatCopies | StrictDialect::OpenaiChat => {
            let call = |id: &String| {
                json!({"id": id, "type": "function",
                "function": {"name": name, "arguments": "{\"command\": \"ls\"}"}})
            };
            let calls: Vec<Value> = calls.iter().map(call).collect();
            let mut message = json!({"role": "assistant", "content": text});
            if dialect == StrictDialect::ChatCopies {
                message["reasoning_content"] = json!("Let me think.");
            }
            if !calls.is_empty() {
                message["tool_calls"] = json!(calls);
            }
            let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
            json!({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": finish}]})
        }
        StrictDialect::OpenaiResponses => {
            let mut output = vec![
                json!({"type": "reasoning", "id": format!("rs_{turn}"), "summary": [], "encrypted_content": signature}),
                json!({"type": "message", "id": format!("msg_{turn}"), "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}]}),
            ];
            output.extend(calls.iter().map(|id| json!({"type": "function_call", "id": format!("fc_{id}"),
                "call_id": id, "name": name, "arguments": "{\"command\": \"ls\"}", "status": "completed"})));
            json!({"id": "resp_1", "object": "response", "status": "completed", "output": output})
        }
        StrictDialect::Anthropic => {
            let mut content = vec![
                json!({"type": "thinking", "thinking": "Let me think.", "signature": signature}),
                json!({"type": "text", "text": text}),
            ];
            content.extend(calls.iter().map(|id| {
                json!({"type": "tool_use", "id": id, "name": name, "input": {"command": "ls"}})
            }));
            let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
            json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": stop})
        }
        StrictDialect::Gemini => {
            let mut parts =
                vec![json!({"text": "Let me think.", "thought": true}), json!({"text": text})];
            parts.extend(calls.iter().enumerate().map(|(place, id)| {
                let mut part =
                    json!({"functionCall": {"id": id, "name": name, "args": {"command": "ls"}}});
                if place == 0 {
                    part["thoughtSignature"] = json!(signature);
                }
                part
            }));
            json!({"responseId": "r", "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
        }
        StrictDialect::Bedrock => {
            let mut content = vec![
                json!({"reasoningContent": {"reasoningText": {"text": "Let me think.", "signature": signature}}}),
                json!({"text": text}),
            ];
            content.extend(calls.iter().map(|id| {
                json!({"toolUse": {"toolUseId": id, "name": name, "input": {"command": "ls"}}})
            }));
            let stop = if calls.is_empty() { "end_turn" } else { "tool_use" };
            json!({"output": {"message": {"role": "assistant", "content": content}}, "stopReason": stop})
        }
    }
}

/// A request of the customer's that begins a conversation.
fn first_request(customer: Customer) -> Value {
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
    match customer {
        Customer::Chat => {
            json!({"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}],
            "tools": [{"type": "function", "function": {"name": TOOL, "parameters": schema}}]})
        }
        Customer::Messages => json!({"model": "m", "max_tokens": 8000, "system": "Be brief.",
            "messages": [{"role": "user", "content": "Go."}], "tools": [{"name": TOOL, "input_schema": schema}]}),
        Customer::Responses => {
            json!({"model": "m", "instructions": "Be brief.", "input": [{"role": "user", "content": "Go."}],
            "tools": [{"type": "function", "name": TOOL, "parameters": schema, "strict": false}]})
        }
        Customer::Gemini => json!({"systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
            "tools": [{"functionDeclarations": [{"name": TOOL, "parametersJsonSchema": schema}]}]}),
    }
}

/// The list that grows in a customer's request.
fn history(customer: Customer, request: &mut Value) -> &mut Vec<Value> {
    let key = match customer {
        Customer::Chat | Customer::Messages => "messages",
        Customer::Responses => "input",
        Customer::Gemini => "contents",
    };
    request[key].as_array_mut().expect("a list")
}

/// Appends an answer as the customer's SDK does, with results of its calls, and a reminder behind them as
/// agents have it; the names of the tools that were called.
fn append(customer: Customer, request: &mut Value, answer: &Value, reminder: &str) -> Vec<String> {
    let mut names = Vec::new();
    let history = history(customer, request);
    let mut note = |name: &Value| names.push(name.as_str().unwrap_or_default().to_owned());
    match customer {
        Customer::Chat => {
            let message = answer["choices"][0]["message"].clone();
            let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
            history.push(message);
            for call in calls {
                note(&call["function"]["name"]);
                history
                    .push(json!({"role": "tool", "tool_call_id": call["id"], "content": "a.txt"}));
            }
            history.push(json!({"role": "user", "content": reminder}));
        }
        Customer::Messages => {
            let content = answer["content"].clone();
            let mut blocks = Vec::new();
            for call in content
                .as_array()
                .expect("blocks")
                .iter()
                .filter(|block| block["type"] == "tool_use")
            {
                note(&call["name"]);
                blocks.push(
                    json!({"type": "tool_result", "tool_use_id": call["id"], "content": "a.txt"}),
                );
            }
            blocks.push(json!({"type": "text", "text": reminder}));
            history.push(json!({"role": "assistant", "content": content}));
            history.push(json!({"role": "user", "content": blocks}));
        }
        Customer::Responses => {
            let output = answer["output"].as_array().expect("items").clone();
            let mut results = Vec::new();
            for call in output.iter().filter(|item| item["type"] == "function_call") {
                note(&call["name"]);
                results.push(json!({"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}));
            }
            history.extend(output);
            history.extend(results);
            history.push(json!({"role": "user", "content": reminder}));
        }
        Customer::Gemini => {
            let content = answer["candidates"][0]["content"].clone();
            let mut parts = Vec::new();
            for part in content["parts"]
                .as_array()
                .expect("parts")
                .iter()
                .filter(|part| part["functionCall"].is_object())
            {
                let call = &part["functionCall"];
                note(&call["name"]);
                let mut response = json!({"name": call["name"], "response": {"output": "a.txt"}});
                if !call["id"].is_null() {
                    response["id"] = call["id"].clone();
                }
                parts.push(json!({"functionResponse": response}));
            }
            parts.push(json!({"text": reminder}));
            history.push(content);
            history.push(json!({"role": "user", "parts": parts}));
        }
    }
    names
}

/// The list that grows in an upstream's request, each element as it was written.
fn turn_texts(document: &Value) -> Vec<String> {
    let list =
        ["messages", "input", "contents"].into_iter().find_map(|key| document[key].as_array());
    list.expect("a list").iter().map(Value::to_string).collect()
}

/// The request as it is written for the model, and what its answer needs.
fn written(customer: Customer, request: &Value, model: &TargetModel) -> (Value, AnswerFrame) {
    let text = request.to_string();
    let read = reader(customer).read_request(text.as_bytes()).expect("read");
    let target = TranslationTarget { streams: read.frame.streams, ..model.target };
    let body = writer(model.dialect)
        .write_request(&read.parts, &target, &mut Losses::default())
        .expect("written");
    let mut document: Value = serde_json::from_slice(&body).expect("JSON");
    if !matches!(model.dialect, StrictDialect::Gemini | StrictDialect::Bedrock) {
        document["model"] = json!(model.name);
    }
    (document, AnswerFrame { nonce: "n1".to_owned(), ..read.frame })
}

fn converse(customer: Customer, model: &TargetModel) {
    let cell = format!("{customer:?} over {}", model.name);
    let mut request = first_request(customer);
    let mut before: Vec<String> = Vec::new();
    for turn in 0..TURNS {
        let (document, frame) = written(customer, &request, model);
        let taken = strict::check(model.dialect, model.name, None, &document);
        assert!(taken.is_ok(), "{cell}, turn {turn}: {taken:?}: {document}");
        let now = turn_texts(&document);
        assert!(now.starts_with(&before), "{cell}, turn {turn}:\n{before:#?}\n{now:#?}");
        before = now;
        // A turn with two calls, one with one, one with none.
        let ids: Vec<String> =
            (0..2 - turn % 3).map(|place| format!("call_{turn}_{place}")).collect();
        let body = answer(model.dialect, TOOL, turn, &ids).to_string();
        let parts = writer(model.dialect).read_answer(body.as_bytes()).expect("an answer");
        let answer = reader(customer).write_answer(&parts, &frame);
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let called = append(customer, &mut request, &answer, "Go on as JSON.");
        assert_eq!(called, vec![TOOL; ids.len()], "{cell}, turn {turn}: {answer}");
    }
}

#[test]
fn each_turn_begins_with_the_turn_before() {
    for (customer, dialect) in cells() {
        for model in models(dialect) {
            converse(customer, &model);
        }
    }
}
