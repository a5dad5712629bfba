//! Schemas in the words of OpenAPI 3.0, which `parameters` and `responseSchema` have, as JSON schemas.

use std::borrow::Cow;

use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, Raw, is_given};
use crate::json::{self, Members};

/// Converts Google's schema to a JSON schema. A JSON schema stays unchanged, byte for byte.
pub(super) fn json_schema<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<Cow<'a, str>, Untranslatable> {
    let mut out = Vec::with_capacity(value.get().len());
    if !schema(at, value, &mut out)? {
        return Ok(Cow::Borrowed(value.get()));
    }
    Ok(String::from_utf8(out).unwrap_or_default().into())
}

/// Writes the schema; true if it differs from the original.
fn schema(at: &FieldPath<'_>, value: Raw<'_>, out: &mut Vec<u8>) -> Result<bool, Untranslatable> {
    if !value.get().starts_with('{') {
        // A schema that is `true` or `false`.
        out.extend_from_slice(value.get().as_bytes());
        return Ok(false);
    }
    let read = at.object(value)?;
    let is_nullable = read.iter().any(|(key, value)| key == "nullable" && value.get() == "true");
    let mut differs = false;
    let mut object = Members::object(out);
    for (written, value) in read {
        let key = keyword(&written);
        differs |= key != written;
        let at = at.key(key);
        match key {
            "nullable" | "propertyOrdering" => differs = true,
            "type" => differs |= kind(&at, value, is_nullable, &mut object, out)?,
            "properties" | "$defs" if value.get().starts_with('{') => {
                object.key(out, key);
                let mut inner = Members::object(out);
                for (name, value) in at.object(value)? {
                    inner.next(out);
                    json::push_string(out, &name);
                    out.push(b':');
                    differs |= schema(&at.key(&name), value, out)?;
                }
                inner.end(out);
            }
            "items" | "additionalProperties" | "not" => {
                object.key(out, key);
                differs |= schema(&at, value, out)?;
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" if value.get().starts_with('[') => {
                object.key(out, key);
                let mut list = Members::array(out);
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    list.next(out);
                    differs |= schema(&at.index(place), value, out)?;
                }
                list.end(out);
            }
            // 64-bit integers are strings in the JSON of Google's SDKs.
            "minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties"
            | "maxProperties"
                if value.get().starts_with('"') =>
            {
                let number = value.string().and_then(|text| text.parse::<u64>().ok());
                let number = number.ok_or_else(|| at.malformed("an integer from 0 up"))?;
                object.integer(out, key, number);
                differs = true;
            }
            _ => {
                object.next(out);
                json::push_string(out, key);
                out.push(b':');
                out.extend_from_slice(value.get().as_bytes());
            }
        }
    }
    object.end(out);
    Ok(differs)
}

/// The keyword in JSON schemas of one that may be written in either way of Google's.
fn keyword(written: &str) -> &str {
    match written {
        "defs" => "$defs",
        "any_of" => "anyOf",
        "min_items" => "minItems",
        "max_items" => "maxItems",
        "min_length" => "minLength",
        "max_length" => "maxLength",
        "min_properties" => "minProperties",
        "max_properties" => "maxProperties",
        "property_ordering" => "propertyOrdering",
        "additional_properties" => "additionalProperties",
        written => written,
    }
}

/// The type in lower case, with `null` if it is permitted.
fn kind(
    at: &FieldPath<'_>,
    value: Raw<'_>,
    is_nullable: bool,
    object: &mut Members,
    out: &mut Vec<u8>,
) -> Result<bool, Untranslatable> {
    if !is_given(value) || !value.get().starts_with('"') {
        object.raw(out, "type", value.get());
        return Ok(false);
    }
    let written = at.text(value)?;
    let word = written.to_ascii_lowercase();
    if word == "type_unspecified" {
        return Ok(true);
    }
    if is_nullable {
        object.key(out, "type");
        let mut list = Members::array(out);
        for word in [word.as_str(), "null"] {
            list.next(out);
            json::push_string(out, word);
        }
        list.end(out);
        return Ok(true);
    }
    object.text(out, "type", &word);
    Ok(word != written)
}
