//! The same value costs the same whichever way its JSON is spelled.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::json::Object;
use crate::limits::{ModelLimits, PricedFeatures};
use crate::prompt_count::{MediaCount, prompt_tokens};
use crate::{Codec, ModelInPath, Request};
use tollgate_money::price::{Unit, Usage};

/// Writes a value with white space and escapes by chance.
struct Speller {
    random: u64,
    spaces: bool,
    escapes: bool,
    json: String,
}

impl Speller {
    fn spell(value: &Value, seed: u64, spaces: bool, escapes: bool) -> String {
        let mut speller = Self { random: seed, spaces, escapes, json: String::new() };
        speller.value(value);
        speller.space();
        speller.json
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (self.random >> 33) % end
    }

    fn space(&mut self) {
        if self.spaces {
            for _ in 0..self.below(4) {
                let space = match self.below(4) {
                    0 => ' ',
                    1 => '\t',
                    2 => '\n',
                    _ => '\r',
                };
                self.json.push(space);
            }
        }
    }

    fn value(&mut self, value: &Value) {
        self.space();
        match value {
            Value::String(text) => self.string(text),
            Value::Array(all) => {
                self.json.push('[');
                for (index, one) in all.iter().enumerate() {
                    self.json.push_str(if index > 0 { "," } else { "" });
                    self.value(one);
                    self.space();
                }
                self.json.push(']');
            }
            Value::Object(all) => {
                self.json.push('{');
                for (index, (key, one)) in all.iter().enumerate() {
                    self.json.push_str(if index > 0 { "," } else { "" });
                    self.space();
                    // Keys keep their spelling: one with an escape is odd, and holds the whole context.
                    self.json.push_str(&Value::from(key.as_str()).to_string());
                    self.space();
                    self.json.push(':');
                    self.value(one);
                    self.space();
                }
                self.json.push('}');
            }
            other => self.json.push_str(&other.to_string()),
        }
    }

    fn string(&mut self, text: &str) {
        self.json.push('"');
        for letter in text.chars() {
            let short = match letter {
                '"' => Some("\\\""),
                '\\' => Some("\\\\"),
                '/' => Some("\\/"),
                '\n' => Some("\\n"),
                '\t' => Some("\\t"),
                _ => None,
            };
            let must = letter < ' ' || matches!(letter, '"' | '\\');
            let chosen = self.escapes && self.below(3) > 0;
            match short {
                Some(short) if must && !chosen || chosen && self.below(2) == 0 => {
                    self.json.push_str(short);
                }
                _ if must || chosen => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        let unit = if self.below(2) == 0 {
                            format!("\\u{unit:04x}")
                        } else {
                            format!("\\u{unit:04X}")
                        };
                        self.json.push_str(&unit);
                    }
                }
                _ => self.json.push(letter),
            }
        }
        self.json.push('"');
    }
}

/// Sizes of a request: hold, estimate and count, or the refusal.
type Sizes = (Result<(Usage, Usage), String>, u64, u64);

fn sizes(codec: &dyn Codec, json: &str, in_path: bool) -> Sizes {
    let limits = ModelLimits {
        input_tokens_max: 4_000,
        output_tokens_max: 100,
        priced: PricedFeatures { units: vec![Unit::WebSearches], ..PricedFeatures::default() },
        ..ModelLimits::default()
    };
    let body = Object::parse(json.as_bytes()).expect(json);
    let counts =
        [MediaCount::Openai, MediaCount::Google].map(|count| prompt_tokens(&body, count, None));
    let named = ModelInPath { model: "m", streams: false };
    let request = if in_path { Request::JsonAt(body, named) } else { Request::Json(body) };
    let read = codec.read(&request, &limits);
    let read =
        read.map(|call| (call.max_usage(), call.min_usage())).map_err(|error| error.to_string());
    (read, counts[0], counts[1])
}

/// A request in each dialect around the same texts.
fn requests(texts: &[String], schema: &Value) -> Vec<(&'static dyn Codec, Value, bool)> {
    let joined = texts.concat();
    let picture = format!("data:image/png;base64,{}", "iVBORw0KGgo/".repeat(40));
    let parts = |kind: &str| -> Vec<Value> {
        texts.iter().map(|text| json!({"type": kind, "text": text})).collect()
    };
    vec![
        (
            &crate::openai_chat::OpenaiChat,
            json!({"model": "m", "messages": [
                {"role": "system", "content": joined},
                {"role": "user", "content": parts("text")},
                {"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
                    "function": {"name": "f", "arguments": schema.to_string()}}]},
            ], "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}),
            false,
        ),
        (
            &crate::openai_chat::OpenaiChat,
            json!({"model": "m", "messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": picture}},
                {"type": "text", "text": joined},
            ]}]}),
            false,
        ),
        (
            &crate::anthropic_messages::AnthropicMessages,
            json!({"model": "m", "max_tokens": 7, "system": parts("text"), "messages": [
                {"role": "user", "content": joined},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "t", "name": "f", "input": schema}]},
            ]}),
            false,
        ),
        (
            &crate::openai_responses::OpenaiResponses,
            json!({"model": "m", "instructions": joined, "input": [
                {"type": "message", "role": "user", "content": parts("input_text")}],
                "tools": [{"type": "function", "name": "f", "parameters": schema},
                    {"type": "web_search", "external_web_access": true}]}),
            false,
        ),
        (
            &crate::gemini_content::GeminiContent,
            json!({"contents": [{"role": "user", "parts": [{"text": joined}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": schema}}]}]}),
            true,
        ),
    ]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    let text = prop_oneof![
        "[a-zA-Z ,.\n\t\"\\\\/]{0,300}",
        "[а-яё ]{0,300}",
        "[一-龥]{0,300}",
        "[😀-🙏ﷺ𝔘a]{0,60}",
        "[A-Za-z0-9+/]{0,2000}",
        any::<String>().prop_map(|text| text.replace('\0', "")),
    ];
    prop::collection::vec(text, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_spelling_of_a_request_comes_to_the_same(
        texts in texts(),
        numbers in prop::collection::vec(any::<i32>(), 0..9),
        seed in any::<u64>(),
    ) {
        let schema = json!({"type": "object", "enum": numbers, "description": texts[0]});
        for (codec, value, in_path) in requests(&texts, &schema) {
            let plain = sizes(codec, &value.to_string(), in_path);
            for (spaces, escapes) in [(true, false), (false, true), (true, true)] {
                let spelled = Speller::spell(&value, seed, spaces, escapes);
                let read: Value = serde_json::from_str(&spelled).expect("the same value");
                prop_assert_eq!(&read, &value);
                let other = sizes(codec, &spelled, in_path);
                prop_assert_eq!(&other, &plain, "seed {}: {}", seed, spelled);
            }
        }
    }
}

#[test]
fn what_programs_write_comes_to_what_the_letters_do() {
    let russian = "Привет, мир! ".repeat(2_000);
    for text in [russian.as_str(), &"你好世界".repeat(500), &"say \"hi\"\n\tC:\\x/y ".repeat(400)]
    {
        for (codec, value, in_path) in requests(&[text.to_owned()], &json!({"type": "object"})) {
            let plain = value.to_string();
            let spelled = Speller::spell(&value, 1, true, true);
            assert!(spelled.len() > plain.len() * 6 / 5);
            assert_eq!(sizes(codec, &spelled, in_path), sizes(codec, &plain, in_path));
        }
    }
}

#[test]
fn numbers_that_grow_where_they_are_written_anew_are_covered() {
    let read = |numbers: &str| {
        let json = format!(
            r#"{{"model":"m","max_tokens":1,"messages":[{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"f","input":{{"n":[{numbers}]}}}}]}}]}}"#
        );
        let rest = (json.len() - numbers.len()) as u64;
        let (max_usage, ..) = sizes(&crate::anthropic_messages::AnthropicMessages, &json, false);
        max_usage.expect("valid").0.input_tokens - rest
    };
    // As `json.dumps` writes them, as JavaScript does, and as a `google.protobuf.Struct` is written.
    for (numbers, rewritten) in [
        ("1,2,3,4", vec!["1, 2, 3, 4", "1,2,3,4", "1.0, 2.0, 3.0, 4.0"]),
        ("1e20,1e15", vec!["1e+20, 1000000000000000.0", "100000000000000000000,1000000000000000"]),
        ("1E-7", vec!["1e-07", "1e-7"]),
        ("-1.5,0.1", vec!["-1.5, 0.1"]),
    ] {
        let most = rewritten.iter().map(|text| text.len() as u64).max().unwrap_or_default();
        assert!(read(numbers) >= most, "{numbers}: {} of {most}", read(numbers));
    }
}

#[test]
fn a_member_that_is_there_twice_counts_twice() {
    let limits = ModelLimits { input_tokens_max: 4_000, ..ModelLimits::default() };
    let json = r#"{"model":"m","input":"hi","text":{"a":"x","a":"yyyyyyyyyy"}}"#;
    let body = Object::parse(json.as_bytes()).expect("JSON");
    let call = crate::openai_responses::OpenaiResponses.read(&Request::Json(body), &limits);
    assert_eq!(
        call.expect("valid").max_usage().input_tokens,
        json.len() as u64,
        "whichever is read"
    );
}
