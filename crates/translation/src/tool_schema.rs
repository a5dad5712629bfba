//! Schemas of tools and answers as OpenAI takes them.
//!
//! Its validators want an object at the root of a schema with nothing beside it that chooses between
//! several ("schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top
//! level", kimi-cli 2531), `items` for each array ("array schema missing items"), and for `strict: true` the
//! rules of structured outputs (developers.openai.com/api/docs/guides/structured-outputs). Servers of MCP
//! write schemas with none of that.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::field_path::FieldPath;
use crate::json;
use crate::raw::Raw;

/// The schema of a tool that takes nothing.
pub(crate) const EMPTY_SCHEMA: &str = r#"{"type":"object","properties":{}}"#;
/// Keywords that OpenAI forbids at the root of a schema.
const CHOICES: [&str; 6] = ["anyOf", "oneOf", "allOf", "enum", "not", "$ref"];
/// Keywords that a strict schema may contain beside those that [`is_strict`] checks.
const STRICT_KEYWORDS: [&str; 20] = [
    "$schema",
    "$id",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "$defs",
    "definitions",
    "pattern",
    "format",
    "multipleOf",
    "minItems",
    "maxItems",
];
const STRICT_BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
const STRICT_FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
/// Maximum nesting of objects in a strict schema.
const STRICT_DEPTH_MAX: usize = 10;

/// The schema of a tool, and whether it could not be said as it was written.
pub(crate) struct ToolSchema<'s> {
    pub(crate) text: Cow<'s, str>,
    pub(crate) is_loosened: bool,
}

/// The schema of a tool with an object at its root. Most are taken as they are, byte for byte.
pub(crate) fn of_tool(schema: &str) -> ToolSchema<'_> {
    if is_object(schema) && lacking_items(schema).is_none() {
        return ToolSchema { text: Cow::Borrowed(schema), is_loosened: false };
    }
    let Some(Value::Object(mut root)) = json::read(schema) else {
        // Nothing that is no object can be a tool's schema; without one the model may still call the
        // tool.
        return ToolSchema { text: Cow::Borrowed(EMPTY_SCHEMA), is_loosened: true };
    };
    let is_loosened = loosen(&mut root);
    let kind = root.get("type").and_then(Value::as_str);
    if kind != Some("object") {
        root.insert("type".to_owned(), Value::from("object"));
    }
    if !root.get("properties").is_some_and(Value::is_object) {
        root.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    let mut root = Value::Object(root);
    add_items(&mut root);
    ToolSchema { text: root.to_string().into(), is_loosened }
}

/// The schema with `items` for each array, as Google's validator wants it too ("items: missing field").
pub(crate) fn with_items(schema: &str) -> Cow<'_, str> {
    let Some(mut root) = lacking_items(schema) else { return Cow::Borrowed(schema) };
    add_items(&mut root);
    root.to_string().into()
}

/// True if the root is an object with properties, and nothing else.
fn is_object(schema: &str) -> bool {
    let Some(root) = Raw::document(schema).and_then(|raw| FieldPath::ROOT.object(raw).ok()) else {
        return false;
    };
    let (mut has_type, mut has_properties) = (false, false);
    for (key, value) in &root {
        match &**key {
            "type" => has_type = value.get() == "\"object\"",
            "properties" => has_properties = value.get().starts_with('{'),
            key if CHOICES.contains(&key) => return false,
            _ => {}
        }
    }
    has_type && has_properties
}

/// The schema, if an array somewhere in it lacks its `items`.
fn lacking_items(schema: &str) -> Option<Value> {
    // Most schemas have no array at all, and parsing them would cost more than the rest of the tool.
    memchr::memmem::find(schema.as_bytes(), b"\"array\"")?;
    json::read::<Value>(schema).filter(any_array_lacks_items)
}

fn any_array_lacks_items(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            is_array_without_items(members) || members.values().any(any_array_lacks_items)
        }
        Value::Array(all) => all.iter().any(any_array_lacks_items),
        _ => false,
    }
}

fn is_array_without_items(members: &Map<String, Value>) -> bool {
    let is_array = match members.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    };
    is_array && !members.get("items").is_some_and(|items| items.is_object() || items.is_boolean())
}

fn add_items(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if is_array_without_items(members) {
                // A tuple's schemas, as older drafts have them, become those of any item.
                let items = match members.remove("items") {
                    Some(Value::Array(all)) => Value::from_iter([("anyOf", Value::from(all))]),
                    _ => Value::Object(Map::new()),
                };
                members.insert("items".to_owned(), items);
            }
            members.values_mut().for_each(add_items);
        }
        Value::Array(all) => all.iter_mut().for_each(add_items),
        _ => {}
    }
}

/// Puts what a root chooses from into the root itself: all properties, of which those are required that
/// each choice requires. The model may then write what fits no choice, which the tool refuses.
fn loosen(root: &mut Map<String, Value>) -> bool {
    let mut is_loosened = false;
    if let Some(referred) = root.get("$ref").and_then(Value::as_str).map(str::to_owned) {
        let path = referred.strip_prefix('#').unwrap_or_default().to_owned();
        let found = Value::Object(root.clone()).pointer(&path).cloned();
        root.remove("$ref");
        match found {
            Some(Value::Object(found)) => {
                for (key, value) in found {
                    root.entry(key).or_insert(value);
                }
            }
            _ => is_loosened = true,
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(choices)) = root.remove(key) else { continue };
        is_loosened = true;
        merge(root, &choices, key == "allOf");
    }
    for key in ["enum", "not"] {
        is_loosened |= root.remove(key).is_some();
    }
    is_loosened
}

fn merge(root: &mut Map<String, Value>, choices: &[Value], is_all: bool) {
    let whole = Value::Object(root.clone());
    let choices = choices.iter().map(|choice| {
        let referred = choice["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        referred.and_then(|path| whole.pointer(path)).unwrap_or(choice)
    });
    let mut properties = match root.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    let mut shared: Option<Vec<Value>> = None;
    for choice in choices {
        for (key, value) in choice["properties"].as_object().into_iter().flatten() {
            properties.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let required = choice["required"].as_array().cloned().unwrap_or_default();
        shared = Some(match shared {
            None => required,
            Some(shared) if is_all => shared.into_iter().chain(required).collect(),
            // Of alternatives only what each of them requires can be required of all.
            Some(shared) => shared.into_iter().filter(|one| required.contains(one)).collect(),
        });
    }
    let mut required = match root.remove("required") {
        Some(Value::Array(required)) => required,
        _ => Vec::new(),
    };
    for one in shared.into_iter().flatten() {
        if !required.contains(&one) {
            required.push(one);
        }
    }
    root.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        root.insert("required".to_owned(), Value::Array(required));
    }
}

/// True if OpenAI accepts the schema with `strict: true`.
pub(crate) fn is_strict(schema: &str) -> bool {
    let Some(root) = json::read::<Value>(schema) else { return false };
    root["type"] == "object" && root.get("anyOf").is_none() && is_strict_node(&root, 0)
}

fn is_strict_node(node: &Value, depth: usize) -> bool {
    let Some(members) = node.as_object().filter(|_| depth <= STRICT_DEPTH_MAX) else {
        return false;
    };
    let is_supported = |key: &String| {
        STRICT_KEYWORDS.contains(&key.as_str()) || STRICT_BOUNDS.contains(&key.as_str())
    };
    if !members.keys().all(is_supported) {
        return false;
    }
    let has_kind = ["type", "anyOf", "$ref"].iter().any(|key| members.contains_key(*key));
    let format = members.get("format").map(|format| format.as_str().unwrap_or_default());
    if !has_kind || format.is_some_and(|format| !STRICT_FORMATS.contains(&format)) {
        return false;
    }
    let is_kind = |expected: &str| match members.get("type") {
        Some(Value::String(kind)) => kind == expected,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == expected),
        _ => false,
    };
    // An object without a type is one as well: OpenAI judges by the properties.
    if (is_kind("object") || members.contains_key("properties")) && !is_strict_object(members) {
        return false;
    }
    if is_kind("array") && !members.get("items").is_some_and(Value::is_object) {
        return false;
    }
    let inside = ["properties", "$defs", "definitions"].iter().filter_map(|key| members.get(*key));
    let inside = inside.filter_map(Value::as_object).flat_map(Map::values);
    let choices = members.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let items = members.get("items").into_iter();
    inside.chain(choices).chain(items).all(|inner| is_strict_node(inner, depth + 1))
}

/// All properties are required, and no others may come.
fn is_strict_object(members: &Map<String, Value>) -> bool {
    let Some(properties) = members.get("properties").and_then(Value::as_object) else {
        return false;
    };
    let none = Vec::new();
    let required = members.get("required").and_then(Value::as_array).unwrap_or(&none);
    members.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.keys().all(|key| required.iter().any(|one| one == key))
        && required.iter().all(|one| one.as_str().is_some_and(|one| properties.contains_key(one)))
}
