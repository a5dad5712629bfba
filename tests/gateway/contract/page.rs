//! `docs/contract.md`: every request in it is sent to a gateway with the shipped models, and answered as
//! it says; every field ends where it says; every test that it names is there.

use std::collections::BTreeSet;

use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

use crate::harness::{Admin, Demo, http};

const PAGE: &str = include_str!("../../../docs/contract.md");

const EDITS: &str = "/v1/images/edits";
const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

/// The texts in backticks of a cell.
fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of tables that have this head.
fn rows(head: &str) -> Vec<Vec<&'static str>> {
    let mut found = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if line == head {
            let rows = lines.by_ref().skip(1).take_while(|line| line.starts_with('|'));
            found.extend(rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()));
        }
    }
    found
}

/// A plain request for a model, and its path.
fn plain(model: &str) -> (&'static str, Value) {
    let image = "https://example.com/a.png";
    let (path, mut body) = match model {
        "gpt-4o-mini" | "qwen3.7-plus" | "gemini-2.5-flash" => {
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "hi"}]}))
        }
        "claude-sonnet-4-5" => {
            let messages = json!([{"role": "user", "content": "hi"}]);
            ("/v1/messages", json!({"messages": messages, "max_tokens": 16}))
        }
        "text-embedding-v4" | "vyg-4" => ("/v1/embeddings", json!({"input": "hi"})),
        "omni-moderation-latest" => ("/v1/moderations", json!({"input": "hi"})),
        "rerank-2.5" => ("/v1/rerank", json!({"query": "hi", "documents": ["a", "b"]})),
        "qf3-tts-flash" | "qf3-tts-instruct-flash" => ("/v1/audio/speech", json!({"input": "hi"})),
        "whisper-1" | "gpt-4o-transcribe" => (TRANSCRIPTIONS, json!({})),
        "pimg-2" | "dle-2" => (EDITS, json!({"prompt": "a hat"})),
        "qf-image-2.0" | "qf-image-edit" => (
            "/v1/images/generations",
            json!({"input": {"messages": [{"role": "user", "content": [{"text": "a cat"}]}]}}),
        ),
        "gif-video" => (super::VIDEOS, json!({"prompt": "a cat", "duration": 6})),
        model if model.contains("sf-") => {
            let text = json!([{"type": "text", "text": "a cat"}]);
            (super::VIDEOS, json!({"content": text, "duration": 5, "resolution": "480p"}))
        }
        model => {
            let kind = if model.contains("r2v") { "reference_image" } else { "first_frame" };
            let mut input = json!({"prompt": "a cat"});
            if !model.contains("t2v") {
                input["media"] = json!([{"type": kind, "url": image}]);
            }
            let parameters = json!({"resolution": "720P", "duration": 5});
            let body = json!({"duration": 5, "resolution": "720p", "input": input,
                "parameters": parameters});
            (super::VIDEOS, body)
        }
    };
    body["model"] = model.into();
    (path, body)
}

/// Expands the short forms of a patch: texts of a length, and arrays of a number of elements.
fn written_out(value: &mut Value) {
    match value {
        Value::String(text) => {
            let letters = text.strip_suffix('>').and_then(|text| text.rsplit_once('<'));
            if let Some((head, bytes)) = letters {
                let bytes: usize = bytes.parse().expect("a number");
                *text = format!("{head}{}", "x".repeat(bytes - head.len()));
            }
        }
        Value::Array(elements) => {
            elements.iter_mut().for_each(written_out);
            let times = elements.last().and_then(Value::as_str).and_then(times_of);
            if let Some(times) = times {
                elements.pop();
                let before = elements.len() - 1;
                let last = elements.pop().expect("what is repeated");
                elements.resize(before + times, last);
            }
        }
        Value::Object(members) => members.values_mut().for_each(written_out),
        _ => {}
    }
}

fn times_of(text: &str) -> Option<usize> {
    text.strip_prefix('×').map(|times| times.parse().expect("a number"))
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("an object").remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

/// A customer with money, who sends each request as another.
struct Sender {
    demo: Demo,
    key: String,
    sent: std::cell::Cell<u32>,
}

impl Sender {
    async fn start() -> Self {
        let demo = Demo::start();
        let key = Admin::of(&demo).customer("1000.00").await.key;
        Self { demo, key, sent: std::cell::Cell::default() }
    }

    /// The status, and the body.
    async fn send(&self, model: &str, patch: &str) -> (u16, String) {
        let (path, mut body) = plain(model);
        let mut patch = serde_json::from_str(patch).expect("a patch");
        written_out(&mut patch);
        merge(&mut body, &patch);
        self.sent.set(self.sent.get() + 1);
        let call = http().post(format!("{}{path}", self.demo.base_url)).bearer_auth(&self.key);
        let call = call.header("idempotency-key", format!("row-{}", self.sent.get()));
        let call = match path {
            EDITS => call.multipart(form(&body, ("image", "a.png", PNG))),
            TRANSCRIPTIONS => call.multipart(form(&body, ("file", "a.wav", WAV))),
            _ => call.json(&body),
        };
        let answered = call.send().await.expect("an answer");
        (answered.status().as_u16(), answered.text().await.unwrap_or_default())
    }

    /// A status, with a code behind it unless it is a good one.
    async fn expect(&self, model: &str, patch: &str, answer: &str) {
        let (status, code) = answer.split_once(' ').unwrap_or((answer, ""));
        let (found, text) = self.send(model, patch).await;
        let shown: String = text.chars().take(300).collect();
        assert_eq!(found.to_string(), status, "{model} {patch}: {shown}");
        if !code.is_empty() {
            let message: Value = serde_json::from_str(&text).expect("JSON");
            let error = &message["error"];
            // Anthropic's clients have it among the details.
            let found = error.get("code").unwrap_or(&error["details"]["error_code"]);
            assert_eq!(found, code, "{model} {patch}: {shown}");
        }
    }
}

/// The head of a picture.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x40\0\0\0\x20\x08\x06\0\0\0";
/// Four samples of sound.
const WAV: &[u8] = b"RIFF\x28\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\
    \x01\0\x08\0data\x04\0\0\0\x80\x80\x80\x80";

/// A form with a file of this field, name and content; more of the same where a field says how many.
fn form(
    fields: &Value,
    (field, file_name, content): (&'static str, &'static str, &'static [u8]),
) -> Form {
    let file = || Part::bytes(content).file_name(file_name);
    let mut form = Form::new().part(field, file());
    for (name, value) in fields.as_object().expect("an object") {
        let text = value.as_str().expect("text");
        let Some(times) = times_of(text) else {
            let is_file = name == "mask";
            let part = Part::text(text.to_owned());
            form = form.part(name.clone(), if is_file { part.file_name("a.png") } else { part });
            continue;
        };
        for _ in 0..times {
            form = form.part(name.clone(), file());
        }
    }
    form
}

#[tokio::test]
async fn every_field_of_the_page_ends_where_it_says() {
    let sender = Sender::start().await;
    let rows = rows("| Field | Accepted | At the limit | Beyond the limit |");
    assert!(rows.len() > 50, "{} rows were found", rows.len());
    for row in &rows {
        let [field, _, at, beyond] = row[..] else { panic!("four cells: {row:?}") };
        let [model, _, ..] = codes(field)[..] else { panic!("a model and its fields: {field}") };
        if let [patch] = codes(at)[..] {
            let good = if plain(model).0 == super::VIDEOS && !model.contains("sf-") {
                "202"
            } else {
                "200"
            };
            sender.expect(model, patch, good).await;
        }
        match codes(beyond)[..] {
            [patch, answer] => sender.expect(model, patch, answer).await,
            _ => assert!(!at.is_empty(), "a row that says nothing: {row:?}"),
        }
    }
}

#[tokio::test]
async fn every_request_of_the_page_is_answered_as_it_says() {
    let sender = Sender::start().await;
    let rows = rows("| Request | The interface | Answer | Why |");
    assert!(rows.len() > 30, "{} rows were found", rows.len());
    let mut models = BTreeSet::new();
    for row in &rows {
        let [request, _, answer, _] = row[..] else { panic!("four cells: {row:?}") };
        let [model, patch] = codes(request)[..] else { panic!("a model and a patch: {request}") };
        let [answer] = codes(answer)[..] else { panic!("an answer: {answer}") };
        sender.expect(model, patch, answer).await;
        models.insert(model);
    }
    // What is not patched is taken: the rows show what they say they show.
    for model in models {
        let (status, text) = sender.send(model, "{}").await;
        assert!((200..300).contains(&status), "{model}: {text}");
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let rows = rows("| Case | Behaviour | Tests |");
    assert!(rows.len() > 10, "{} rows were found", rows.len());
    let mut sources = String::new();
    let mut directories: Vec<_> = ["tests", "src", "crates"].map(std::path::PathBuf::from).into();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).expect("text"));
            }
        }
    }
    for row in rows {
        let [_, _, shown] = row[..] else { panic!("three cells: {row:?}") };
        for test in codes(shown) {
            assert!(sources.contains(&format!("fn {test}(")), "no test is called {test}");
        }
        assert!(!codes(shown).is_empty(), "{row:?} is shown by nothing");
    }
}
