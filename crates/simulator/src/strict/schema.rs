//! JSON schemas, as validators of providers read them.

use serde_json::Value;

use super::{found, list, text};

/// A fault of a schema: where, and what.
pub(super) struct SchemaFault {
    /// The keys down to it, such as `('properties', 'a')`.
    pub(super) place: String,
    /// Message in the provider's words.
    pub(super) words: String,
}

/// Members that hold one schema.
const SINGLE: [&str; 4] = ["items", "additionalProperties", "contains", "not"];
/// Members that hold a list of schemas.
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// Members that hold schemas by name.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];

/// Walks a schema and all in it; the first fault counts.
fn walk(
    schema: &Value,
    place: &mut Vec<String>,
    fault: &dyn Fn(&Value, bool) -> Option<String>,
) -> Option<SchemaFault> {
    if let Some(words) = fault(schema, place.is_empty()) {
        let place: Vec<String> = place.iter().map(|key| format!("'{key}'")).collect();
        return Some(SchemaFault { place: format!("({})", place.join(", ")), words });
    }
    let mut inner = |keys: &[&str], schema: &Value| {
        place.extend(keys.iter().map(|key| (*key).to_owned()));
        let found = walk(schema, place, fault);
        // The path is shared by all levels: each takes off what it has put on.
        place.truncate(place.len() - keys.len());
        found
    };
    for key in SINGLE {
        if let Some(schema) = schema.get(key).filter(|schema| schema.is_object())
            && let Some(found) = inner(&[key], schema)
        {
            return Some(found);
        }
    }
    for key in LISTS {
        for (place, schema) in list(schema, key).iter().enumerate() {
            if let Some(found) = inner(&[key, &place.to_string()], schema) {
                return Some(found);
            }
        }
    }
    for key in NAMED {
        for (name, schema) in schema.get(key).and_then(Value::as_object).into_iter().flatten() {
            if let Some(found) = inner(&[key, name], schema) {
                return Some(found);
            }
        }
    }
    None
}

fn is_type(schema: &Value, kind: &str) -> bool {
    schema["type"] == kind
        || schema["type"].as_array().is_some_and(|all| all.iter().any(|one| one == kind))
}

/// OpenAI's rule of any schema of a function.
pub(super) fn openai(schema: &Value) -> Option<SchemaFault> {
    walk(schema, &mut Vec::new(), &|schema, is_root| {
        if is_root && schema["type"] != "object" {
            let kind = schema["type"].as_str().unwrap_or("None");
            return Some(format!(
                "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
            ));
        }
        if is_root && !schema["properties"].is_object() {
            return Some("object schema missing properties.".to_owned());
        }
        let lacks_items = schema["type"] == "array" && schema.get("items").is_none();
        lacks_items.then(|| "array schema missing items.".to_owned())
    })
}

/// Keywords that OpenAI's strict mode does not have.
const STRICT_FORBIDDEN: [&str; 12] = [
    "allOf",
    "not",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "then",
    "else",
    "oneOf",
    "patternProperties",
    "default",
    "uniqueItems",
    "propertyNames",
];
/// Formats that OpenAI's strict mode has.
const STRICT_FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The first fault of a schema by the rules of OpenAI's structured outputs.
pub(super) fn openai_strict(schema: &Value) -> Option<SchemaFault> {
    openai(schema)
        .or_else(|| walk(schema, &mut Vec::new(), &|schema, _| openai_strict_fault(schema)))
}

fn openai_strict_fault(schema: &Value) -> Option<String> {
    let members = schema.as_object()?;
    // The only keyword that stands alone; a description beside it is refused as well.
    if members.contains_key("$ref") && members.len() > 1 {
        let others: Vec<String> =
            members.keys().filter(|key| *key != "$ref").map(|key| format!("'{key}'")).collect();
        return Some(format!("$ref cannot have keywords {{{}}}.", others.join(", ")));
    }
    if let Some(key) = STRICT_FORBIDDEN.iter().find(|key| members.contains_key(**key)) {
        return Some(format!("'{key}' is not permitted."));
    }
    let has_kind =
        ["type", "anyOf", "$ref", "enum", "const"].iter().any(|key| members.contains_key(*key));
    if !has_kind {
        return Some("schema must have a 'type' key.".to_owned());
    }
    let format = text(schema, "format");
    if !format.is_empty() && !STRICT_FORMATS.contains(&format) {
        return Some(format!("'{format}' is not a valid format."));
    }
    if !is_type(schema, "object") {
        return None;
    }
    if schema["additionalProperties"] != false {
        return Some(
            "'additionalProperties' is required to be supplied and to be false.".to_owned(),
        );
    }
    let required = list(schema, "required");
    let mut names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name);
    let missing = names.find(|name| !required.iter().any(|one| one == name.as_str()))?;
    Some(format!(
        "'required' is required to be supplied and to be an array including every key in properties. Missing '{missing}'."
    ))
}

/// Constraints that Anthropic's structured outputs do not have, by type.
const ANTHROPIC_FORBIDDEN: [(&str, &[&str]); 5] = [
    ("integer", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    ("string", &["minLength", "maxLength"]),
    ("array", &["maxItems", "uniqueItems", "contains"]),
    ("object", &["minProperties", "maxProperties", "patternProperties", "propertyNames"]),
];

/// Anthropic's structured outputs, of answers and of strict tools.
pub(super) fn anthropic_strict(schema: &Value) -> Option<SchemaFault> {
    walk(schema, &mut Vec::new(), &|schema, _| {
        for (kind, forbidden) in ANTHROPIC_FORBIDDEN {
            if !is_type(schema, kind) {
                continue;
            }
            if let Some(key) = forbidden.iter().find(|key| schema.get(**key).is_some()) {
                return Some(format!("For '{kind}' type, property '{key}' is not supported"));
            }
        }
        if schema.get("minItems").is_some_and(|least| least.as_u64().is_none_or(|least| least > 1))
        {
            return Some(
                "For 'array' type, 'minItems' values other than 0 or 1 are not supported"
                    .to_owned(),
            );
        }
        if is_type(schema, "object") && schema["additionalProperties"] != false {
            return Some(
                "For 'object' type, 'additionalProperties' must be explicitly set to false"
                    .to_owned(),
            );
        }
        let forbidden = ["oneOf", "not", "if", "then", "else"]
            .into_iter()
            .find(|key| schema.get(*key).is_some());
        forbidden.map(|key| format!("Schema keyword '{key}' is not supported"))
    })
}

/// The types of JSON Schema.
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// True unless Anthropic rejects the schema as invalid draft 2020-12.
pub(super) fn is_draft_2020(schema: &Value) -> bool {
    walk(schema, &mut Vec::new(), &|schema, _| {
        let is_valid_type = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
        let kind_is_right = match schema.get("type") {
            None => true,
            Some(Value::Array(kinds)) => !kinds.is_empty() && kinds.iter().all(is_valid_type),
            Some(kind) => is_valid_type(kind),
        };
        let required_is_right = match schema.get("required") {
            None => true,
            Some(Value::Array(names)) => {
                names.iter().all(Value::is_string)
                    && super::duplicate(names.iter().filter_map(Value::as_str)).is_none()
            }
            Some(_) => false,
        };
        let is_right = kind_is_right
            && required_is_right
            && schema.get("items").is_none_or(|items| items.is_object() || items.is_boolean())
            && schema.get("properties").is_none_or(Value::is_object)
            && ["exclusiveMinimum", "exclusiveMaximum"]
                .iter()
                .all(|key| schema.get(*key).is_none_or(Value::is_number));
        (!is_right).then(String::new)
    })
    .is_none()
}

/// A name of a property that Anthropic refuses.
pub(super) fn odd_property(schema: &Value) -> super::ViolationWords {
    let fault = walk(schema, &mut Vec::new(), &|schema, _| {
        let names = schema["properties"].as_object()?.keys();
        let mut odd = names.filter(|name| !super::is_word(name, "_.-") || name.len() > 64);
        odd.next().cloned()
    })?;
    found![fault.words]
}

/// Keywords of a Gemini schema in `parameters` and `responseSchema`: a part of OpenAPI's.
const GEMINI_KEYS: [&str; 23] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "items",
    "minimum",
    "maximum",
    "additionalProperties",
];

/// Keyword that Google's own schema dialect lacks.
pub(super) fn gemini_unknown(schema: &Value) -> Option<SchemaFault> {
    walk(schema, &mut Vec::new(), &|schema, _| {
        super::unknown_key(schema, &GEMINI_KEYS).map(str::to_owned)
    })
}

/// First construct of a JSON schema that Gemini refuses: an unknown type, a list without items, a
/// non-string enum.
pub(super) fn gemini_json(schema: &Value) -> Option<SchemaFault> {
    walk(schema, &mut Vec::new(), &|schema, _| {
        if !schema.is_object() {
            return Some("must be an object".to_owned());
        }
        let kind = schema.get("type").filter(|kind| kind.is_string()).and_then(Value::as_str);
        if kind.is_some_and(|kind| !TYPES.contains(&kind)) {
            return Some(format!("unknown type {}", kind.unwrap_or_default()));
        }
        let lacks_items = schema["type"] == "array"
            && schema.get("items").is_none()
            && schema.get("prefixItems").is_none();
        lacks_items.then(|| "items: missing field.".to_owned())
    })
}
