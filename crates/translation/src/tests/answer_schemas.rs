//! Schemas of answers over Claude: what is written is checked by a reader of its own of the rules in
//! Anthropic's documentation ("JSON Schema limitations").

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::target;
use crate::dialect::{CustomerDialect, Losses, Untranslatable, UpstreamDialect};
use crate::{Chat, Converse, Messages};

/// Finds violations of the documentation's rules in a schema.
fn check(schema: &Value) -> Result<(), String> {
    let Some(members) = schema.as_object() else { return Err(format!("no object: {schema}")) };
    let words = ["type", "enum", "anyOf", "$ref"];
    if !words.iter().any(|word| members.contains_key(*word)) {
        return Err(format!("untyped: {schema}"));
    }
    let types = match &members.get("type") {
        Some(Value::Array(all)) => all.clone(),
        Some(one) => vec![(*one).clone()],
        None => Vec::new(),
    };
    let has = |word: &str| types.contains(&json!(word));
    if has("object") && schema["additionalProperties"] != json!(false) {
        return Err(format!("open: {schema}"));
    }
    for (key, value) in members {
        match key.as_str() {
            "type" | "title" | "description" => {}
            "required" | "additionalProperties" if has("object") => {}
            "enum"
                if !value
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one.is_object() || one.is_array())) => {
            }
            "properties" | "$defs" => {
                value.as_object().ok_or("no object")?.values().try_for_each(check)?;
            }
            "items" if has("array") => check(value)?,
            "anyOf" => value.as_array().ok_or("no array")?.iter().try_for_each(check)?,
            "minItems" if has("array") && (value == &json!(0) || value == &json!(1)) => {}
            "format" if has("string") => {
                let keywords = [
                    "date-time",
                    "time",
                    "date",
                    "duration",
                    "email",
                    "hostname",
                    "uri",
                    "ipv4",
                    "ipv6",
                    "uuid",
                ];
                if !keywords.iter().any(|word| value == word) {
                    return Err(format!("format {value}"));
                }
            }
            "$ref" if members.keys().all(|key| matches!(key.as_str(), "$ref" | "$defs")) => {}
            other => return Err(format!("{other} in {schema}")),
        }
    }
    Ok(())
}

fn request(schema: &Value) -> String {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "response_format":
        {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}})
    .to_string()
}

/// The text of the schema, as Claude gets it.
fn sent(schema: &Value) -> Result<String, Untranslatable> {
    let body = request(schema);
    let read = Chat.read_request(body.as_bytes()).expect("read");
    let written = Messages.write_request(&read.parts, &target(), &mut Losses::default())?;
    // As it stands in the request: the order of properties is part of the prompt.
    let member = |text: &str, key: &str| {
        let members: HashMap<String, Box<RawValue>> = serde_json::from_str(text).expect("JSON");
        members[key].get().to_owned()
    };
    let text = String::from_utf8(written).expect("text");
    Ok(["output_config", "format", "schema"].iter().fold(text, |text, key| member(&text, key)))
}

fn value_of(schema: &Value) -> Value {
    serde_json::from_str(&sent(schema).expect("written")).expect("JSON")
}

/// Schemas as Pydantic and Zod write them, with what Claude does not take.
fn any_schema() -> impl Strategy<Value = Value> {
    let constraint = prop::sample::select(vec![
        ("minimum", json!(1)),
        ("maxLength", json!(5)),
        ("pattern", json!("^\\d+$")),
        ("format", json!("uuid")),
        ("format", json!("phone")),
        ("default", json!(null)),
        ("title", json!("A title")),
        ("minItems", json!(1)),
        ("maxItems", json!(9)),
        ("description", json!("Says \"so\".")),
        ("$comment", json!("x")),
    ]);
    let leaf = prop::sample::select(vec![
        json!({"type": "string"}),
        json!({"type": "integer"}),
        json!({"type": ["number", "null"]}),
        json!({"enum": ["a", 1, null]}),
        json!({"const": "x"}),
        json!({"type": "array"}),
        json!({"$ref": "#/$defs/A"}),
        json!({"$ref": "#/definitions/B", "description": "b"}),
    ]);
    let with = move |base: Value, more: Vec<(&'static str, Value)>| {
        let mut members = base.as_object().cloned().unwrap_or_default();
        for (key, value) in more {
            members.entry(key).or_insert(value);
        }
        Value::Object(members)
    };
    let leaf = (leaf, prop::collection::vec(constraint, 0..4))
        .prop_map(move |(base, more)| with(base, more));
    let level = leaf.prop_recursive(4, 40, 4, |inner| {
        let named = prop::collection::btree_map("[a-z\"é]{1,4}", inner.clone(), 1..4)
            .prop_map(|all| all.into_iter().collect::<Map<_, _>>());
        prop_oneof![
            (named.clone(), any::<bool>()).prop_map(|(properties, is_typed)| match is_typed {
                true => json!({"type": "object", "properties": properties, "minProperties": 1}),
                false => json!({"properties": properties, "required": [], "additionalProperties": true}),
            }),
            (inner.clone(), 0..3).prop_map(|(items, least)| json!({"type": "array", "items": items,
                "minItems": least, "uniqueItems": true})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({"anyOf": all})),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({"oneOf": all, "title": "t"})),
            prop::collection::vec(named.clone(), 1..3).prop_map(|all| {
                let all: Vec<Value> =
                    all.into_iter().map(|one| json!({"type": "object", "properties": one})).collect();
                json!({"allOf": all, "description": "both"})
            }),
            (named, inner).prop_map(|(properties, one)| json!({"type": "object", "properties": properties,
                "anyOf": [{"type": "object", "properties": {"k": one}}, {"required": ["k"], "properties": {}}]})),
        ]
    });
    level.prop_map(|schema| {
        json!({"type": "object", "properties": {"root": schema}, "$defs": {"A": {"type": "string", "maxLength": 3}},
            "definitions": {"B": {"properties": {"x": {"$ref": "#/$defs/A"}}}}})
    })
}

proptest! {
    /// A written schema follows the rules, is unchanged by a second pass, and is the same each time.
    #[test]
    fn what_is_written_keeps_the_rules_and_stays(mut schema in any_schema(), has_both in any::<bool>()) {
        if !has_both {
            // Most schemas have one place for definitions.
            let text = schema.to_string().replace("#/definitions/B", "#/$defs/B");
            schema = serde_json::from_str(&text).expect("JSON");
            let b = schema.as_object_mut().expect("an object").remove("definitions").expect("B");
            schema["$defs"]["B"] = b["B"].clone();
        }
        let text = sent(&schema).expect("written");
        let written: Value = serde_json::from_str(&text).expect("JSON");
        prop_assert_eq!(check(&written), Ok(()), "{} became {}", schema, written);
        prop_assert_eq!(sent(&schema).expect("written"), text.clone(), "stable");
        prop_assert_eq!(sent(&written).expect("written"), written.to_string(), "idempotent");
    }
}

#[test]
fn constraints_become_words_and_properties_keep_their_order() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"z":{"type":"integer","minimum":0,"maximum":150,"description":"Age."},"a":{"type":"string","maxLength":5},"m":{"type":"array","items":{"type":"string","format":"phone"},"minItems":2,"maxItems":3}},"required":["z"]}}}}"#;
    let expected = r#"{"type":"object","properties":{"z":{"type":"integer","description":"Age.\n\n{minimum: 0, maximum: 150}"},"a":{"type":"string","description":"{maxLength: 5}"},"m":{"type":"array","items":{"type":"string","description":"{format: \"phone\"}"},"description":"{minItems: 2, maxItems: 3}"}},"required":["z"],"additionalProperties":false}"#;
    let read = Chat.read_request(body.as_bytes()).expect("read");
    let written = Messages.write_request(&read.parts, &target(), &mut Losses::default());
    let written = String::from_utf8(written.expect("written")).expect("text");
    assert!(written.contains(expected), "{written}");
    // Bedrock has it as a text.
    let written = Converse.write_request(&read.parts, &target(), &mut Losses::default());
    let written: Value = serde_json::from_slice(&written.expect("written")).expect("JSON");
    let structure = &written["outputConfig"]["textFormat"]["structure"];
    assert_eq!(structure["jsonSchema"]["schema"], expected);
}

#[test]
fn what_fits_stays_byte_for_byte() {
    let schema = r##"{ "type" : "object", "properties": {"b": {"type": "string", "format": "date"}, "a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}}, "required": ["b"], "additionalProperties": false, "$defs": {"A": {"enum": [1, 2]}} }"##;
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":{schema}}}}}}}"#
    );
    let read = Chat.read_request(body.as_bytes()).expect("read");
    let written = Messages.write_request(&read.parts, &target(), &mut Losses::default());
    let written = String::from_utf8(written.expect("written")).expect("text");
    assert!(written.contains(schema), "{written}");
}

#[test]
fn schemas_of_libraries_become_what_they_mean() {
    for (schema, expected) in [
        (
            json!({"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}],
                "$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}),
            json!({"$defs": {"A": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}},
                "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "required": ["a", "b"], "additionalProperties": false}),
        ),
        (
            json!({"oneOf": [{"type": "object", "properties": {"t": {"const": 1}}}, {"type": "null"}]}),
            json!({"anyOf": [{"type": "object", "properties": {"t": {"enum": [1]}}, "additionalProperties": false}, {"type": "null"}]}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "description": "{anyOf: [{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", "additionalProperties": false}),
        ),
    ] {
        assert_eq!(value_of(&schema), expected, "{schema}");
    }
}

#[test]
fn what_no_grammar_has_is_refused_by_its_path() {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let deep = (0..100)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    for (schema, field) in [
        (object(json!({"a": {}})), ".properties.a"),
        (object(json!({"a": true})), ".properties.a"),
        (object(json!({"a": {"type": "object"}})), ".properties.a"),
        (
            object(json!({"a": {"type": "object", "additionalProperties": {"type": "string"}}})),
            ".properties.a",
        ),
        (object(json!({"a": {"allOf": [{"$ref": "https://x.example/y"}]}})), ""),
        (object(json!({"a": {"$ref": "#/$defs/Gone"}})), ""),
        (
            json!({"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "object", "properties":
                {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}}}),
            ".$defs.Node",
        ),
        (object(json!({"a": {"$ref": "#"}})), ""),
    ] {
        let refusal = sent(&schema).expect_err("refused");
        assert_eq!(refusal.field, format!("response_format.schema{field}"), "{schema}");
        assert!(refusal.message.contains("must be"), "{refusal:?}");
    }
    assert!(sent(&object(json!({"a": deep}))).is_err(), "deeper than the stack");
}
