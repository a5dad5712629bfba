//! A JSON value that a JSON Schema accepts: what a model that follows instructions would answer.

use serde_json::{Map, Value, json};

/// Nesting limit for references and values; a recursive schema ends there with `null`.
const DEPTH_MAX: u32 = 16;

/// A small value for `schema`. Covers what clients generate from their types, not all of the
/// standard: where in doubt the value is a string.
pub(super) fn sample(schema: &Value) -> Value {
    Sampler { root: schema }.value(schema, DEPTH_MAX)
}

struct Sampler<'a> {
    root: &'a Value,
}

impl Sampler<'_> {
    fn value(&self, schema: &Value, depth: u32) -> Value {
        let Some(depth) = depth.checked_sub(1) else { return Value::Null };
        if let Some(reference) = schema["$ref"].as_str() {
            let target = reference.strip_prefix('#').and_then(|path| self.root.pointer(path));
            return target.map_or(Value::Null, |target| self.value(target, depth));
        }
        if let Some(only) = schema.get("const").or_else(|| schema["enum"].get(0)) {
            return only.clone();
        }
        for choice in ["anyOf", "oneOf", "allOf"] {
            if let Some(first) = schema[choice].get(0) {
                return self.value(first, depth);
            }
        }
        let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
        match kind {
            Some("object") => self.object(schema, depth),
            None if schema["properties"].is_object() => self.object(schema, depth),
            Some("array") => {
                let items = schema["minItems"].as_u64().unwrap_or(1).min(8);
                (0..items).map(|_| self.value(&schema["items"], depth)).collect()
            }
            Some("integer" | "number") => match schema["exclusiveMinimum"].as_i64() {
                Some(bound) => json!(bound.saturating_add(1)),
                None => schema.get("minimum").cloned().unwrap_or(json!(1)),
            },
            Some("boolean") => Value::Bool(true),
            Some("null") => Value::Null,
            _ => json!("sample"),
        }
    }

    /// Include every property, required or not.
    fn object(&self, schema: &Value, depth: u32) -> Value {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let sampled = properties.map(|(name, schema)| (name.clone(), self.value(schema, depth)));
        Value::Object(sampled.collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_fits_its_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 3},
                "nights": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9},
                "note": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
                "at": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
            },
            "$defs": {"Point": {"properties": {"x": {"type": ["number", "null"]}}}},
        });
        let expected = json!({
            "city": "sample", "unit": "celsius", "days": 3, "nights": 1, "note": true, "at": [{"x": 1}],
        });
        assert_eq!(sample(&schema), expected);
    }

    #[test]
    fn a_recursive_schema_ends() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(sample(&schema).to_string().ends_with("null}}}}}}}}"), "{}", sample(&schema));
    }
}
