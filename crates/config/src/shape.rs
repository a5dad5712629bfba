//! Checks a document's fields, types and words against its JSON Schema.
//!
//! Serde stops at the first thing that is wrong. Walking the schema instead finds everything at
//! once, and the schema that editors use is held to be the one that the gateway means. It reads the
//! part of JSON Schema that `schemars` makes of the types in `raw`.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value as Json;
use serde_yaml::Value;

use super::diagnostic::did_you_mean;
use super::fault::Fault;
use super::spans::{Spans, WalkPath};
use super::{format, shown};
use tollgate_types::printable::shortened;

/// Maximum number of characters of a value that a message quotes.
const TYPED_CHARS_MAX: usize = 200;

/// The JSON Schema of a file.
pub(super) fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with_transform(WithoutNull);
    settings.into_generator().into_root_schema_for::<T>()
}

/// Removes `null` from a schema. Optional fields are omitted; an explicit `null` is usually a mistake.
#[derive(Clone, Debug)]
pub struct WithoutNull;

impl Transform for WithoutNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(fields) = schema.as_object_mut() else { return };
        if fields.get("default").is_some_and(Json::is_null) {
            fields.remove("default");
        }
        if let Some(Json::Array(kinds)) = fields.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [kind] = kinds.as_slice() {
                let kind = kind.clone();
                fields.insert("type".to_owned(), kind);
            }
        }
        if let Some(Json::Array(options)) = fields.get_mut("anyOf") {
            options.retain(|option| option["type"] != "null");
            if let [Json::Object(only)] = options.as_slice() {
                let only = only.clone();
                fields.remove("anyOf");
                // What the field says of itself goes before what its type says.
                for (keyword, value) in only {
                    fields.entry(keyword).or_insert(value);
                }
            }
        }
    }
}

/// Everything in `value` that `schema` does not allow.
pub(super) fn check(value: &Value, schema: &Schema, spans: &Spans) -> Vec<Fault> {
    let mut walk = Walk { root: schema.as_value(), spans, faults: Vec::new() };
    walk.value(value, schema.as_value(), &WalkPath::Root);
    walk.faults
}

struct Walk<'a> {
    root: &'a Json,
    spans: &'a Spans,
    faults: Vec<Fault>,
}

impl<'a> Walk<'a> {
    fn value(&mut self, value: &Value, schema: &'a Json, path: &WalkPath<'_>) {
        let schema = self.resolve(schema);
        // Before types: `field:` with nothing behind it is a slip, whatever the field takes.
        if value.is_null() {
            return self.null(schema, path);
        }
        match value {
            Value::Mapping(fields) if allows(schema, "object") => {
                self.mapping(fields, schema, path)
            }
            Value::Sequence(items) if allows(schema, "array") => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, &schema["items"], &path.index(index));
                }
            }
            Value::String(text) if allows(schema, "string") => self.text(text, schema, path),
            Value::Bool(_) if allows(schema, "boolean") => {}
            Value::Number(number) if allows(schema, "integer") => {
                self.integer(number.as_u64(), schema, path);
            }
            // What was typed as a number and is kept as text, such as a price or a size.
            Value::Number(number) if allows(schema, "number") => {
                self.text(&number.to_string(), schema, path);
            }
            _ => self.wrong_type(value, schema, path),
        }
    }

    /// Follows references. What can be written in several ways has been filled in by now and has the
    /// first of them.
    fn resolve(&self, mut schema: &'a Json) -> &'a Json {
        loop {
            schema = if let Some(pointer) = schema["$ref"].as_str() {
                shown::referenced(self.root, pointer).unwrap_or(&Json::Null)
            } else if let Some(options) = schema["anyOf"].as_array() {
                options.first().unwrap_or(&Json::Null)
            } else {
                return schema;
            };
        }
    }

    fn mapping(&mut self, fields: &serde_yaml::Mapping, schema: &'a Json, path: &WalkPath<'_>) {
        let properties = schema["properties"].as_object();
        for (key, value) in fields {
            // Keys of other types were refused with their positions by `Spans`.
            let Some(key) = key.as_str() else { continue };
            let path = path.key(key);
            match properties.and_then(|properties| properties.get(key)) {
                Some(schema) => self.value(value, schema, &path),
                None if schema["additionalProperties"].is_object() => {
                    self.value(value, &schema["additionalProperties"], &path);
                }
                None => {
                    let names = properties.into_iter().flatten().map(|(name, _)| name.as_str());
                    let missing: Vec<&str> =
                        // A field that is present already is no suggestion for a misspelled one.
                        names.filter(|name| !fields.contains_key(name)).collect();
                    let help = did_you_mean(key, "the fields here are", &missing);
                    let fault = Fault::at_key(&path.to_path(), format!("unknown field `{key}`"));
                    self.faults.push(fault.maybe_help(help));
                }
            }
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str);
        for name in required.filter(|name| !fields.contains_key(name)) {
            let described = properties.and_then(|properties| properties.get(name));
            let help = described.and_then(|schema| first_sentence(schema["description"].as_str()?));
            let fault = Fault::at_key(&path.to_path(), format!("missing field `{name}`"));
            self.faults.push(fault.maybe_help(help.map(|help| format!("`{name}`: {help}"))));
        }
    }

    fn text(&mut self, text: &str, schema: &'a Json, path: &WalkPath<'_>) {
        if let Some(words) = schema["enum"].as_array() {
            let words: Vec<&str> = words.iter().filter_map(Json::as_str).collect();
            self.word(text, &words, schema, path);
        } else if let Some(variants) = schema["oneOf"].as_array() {
            let words: Vec<&str> = variants.iter().filter_map(|v| v["const"].as_str()).collect();
            self.word(text, &words, schema, path);
        } else if let Some(format) = schema["format"].as_str()
            && let Err(error) = format::check(format, text)
        {
            self.faults
                .push(Fault::at_value(&path.to_path(), error.message).maybe_help(error.help));
        }
    }

    fn word(&mut self, text: &str, words: &[&str], schema: &Json, path: &WalkPath<'_>) {
        if !words.contains(&text) {
            let path = path.to_path();
            let typed = shortened(self.spans.text(&path).unwrap_or_default(), TYPED_CHARS_MAX);
            let help = did_you_mean(text, "the words here are", words);
            let message = format!("`{typed}` is not {}", description(schema));
            self.faults.push(Fault::at_value(&path, message).maybe_help(help));
        }
    }

    fn integer(&mut self, number: Option<u64>, schema: &Json, path: &WalkPath<'_>) {
        let min = schema["minimum"].as_u64().unwrap_or(0);
        let max = schema["maximum"].as_u64().unwrap_or(u64::MAX);
        if number.is_none_or(|number| number < min || number > max) {
            let path = path.to_path();
            let typed = shortened(self.spans.text(&path).unwrap_or_default(), TYPED_CHARS_MAX);
            let message = format!("`{typed}` is out of range");
            self.faults.push(Fault::at_value(&path, message).help(format!("{min} to {max}")));
        }
    }

    fn null(&mut self, schema: &Json, path: &WalkPath<'_>) {
        let message = format!("expected {}, found nothing", description(schema));
        let help = "give it a value, or leave the whole line out";
        self.faults.push(Fault::at_key(&path.to_path(), message).help(help));
    }

    fn wrong_type(&mut self, value: &Value, schema: &Json, path: &WalkPath<'_>) {
        // Where no plain value belongs, one may be a secret, and so may one in a secret's place.
        let is_shown = shown::is_public(self.root, &path.steps());
        let path = path.to_path();
        let typed = if is_shown { self.spans.text(&path).unwrap_or_default() } else { "…" };
        let typed = shortened(typed, TYPED_CHARS_MAX);
        let found = match value {
            Value::Mapping(_) => "a mapping".to_owned(),
            Value::Sequence(_) => "a list".to_owned(),
            Value::String(_) => format!("the text `{typed}`"),
            Value::Bool(_) => format!("the boolean `{typed}`"),
            _ => format!("the number `{typed}`"),
        };
        let message = format!("expected {}, found {found}", description(schema));
        let help = match value {
            Value::Number(_) if schema["format"] == "tollgate-duration" => {
                Some(format!("with its unit: `{typed}s`"))
            }
            Value::Number(_) | Value::Bool(_) if allows(schema, "string") => {
                Some(format!("put it in quotes: `\"{typed}\"`"))
            }
            Value::String(_) | Value::Mapping(_) if allows(schema, "array") => {
                Some("a list is written `[a, b]`, or one `- item` a line".to_owned())
            }
            _ => None,
        };
        let fault = match value {
            Value::Mapping(_) | Value::Sequence(_) => Fault::at_key(&path, message),
            _ => Fault::at_value(&path, message),
        };
        self.faults.push(fault.maybe_help(help));
    }
}

/// True if `schema` allows a value of this JSON type. Words (`oneOf`) are strings.
fn allows(schema: &Json, kind: &str) -> bool {
    match &schema["type"] {
        Json::String(only) => only == kind,
        Json::Array(several) => several.iter().any(|one| one == kind),
        _ => kind == "string" && schema["oneOf"].is_array(),
    }
}

/// Description of a schema, to be read after "expected" or "is not".
fn description(schema: &Json) -> &str {
    if let Some(title) = schema["title"].as_str() {
        return title;
    }
    let kinds = [
        ("object", "a mapping"),
        ("array", "a list"),
        ("boolean", "`true` or `false`"),
        ("integer", "a whole number"),
    ];
    let found = kinds.iter().find(|(kind, _)| allows(schema, kind));
    found.map_or("text", |(_, words)| words)
}

fn first_sentence(text: &str) -> Option<String> {
    let line = text.replace('\n', " ");
    let sentence = line.split(". ").next()?;
    Some(sentence.trim_end_matches('.').to_owned())
}
