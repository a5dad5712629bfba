//! Fields of JSON bodies that several protocols have, read by the same rules.

use std::ops::RangeInclusive;

use super::json::{JsonError, Object, Value};
use super::limits::{ModelLimits, has};
use tollgate_money::price::ServiceTier;
use tollgate_types::error::GatewayError;

/// Refuses a key that some parsers would take for a billing field and others would not.
pub(super) fn refuse_case_variants(body: &Object<'_>, fields: &[&str]) -> Result<(), GatewayError> {
    match body.case_variant_of(fields) {
        None => Ok(()),
        Some(key) => {
            let message = format!("`{key}` is not a field; field names are lower-case");
            Err(GatewayError::invalid(key.to_owned(), message))
        }
    }
}

/// Refuses a field that is neither known to have no price of its own nor let through by the operator,
/// whatever its value: an upstream may bill for it. One with a letter beyond ASCII is refused even
/// then, since some parsers fold such letters into others.
pub(super) fn refuse_unknown_fields(
    body: &Object<'_>,
    allowed: &[&str],
    pass: &[String],
) -> Result<(), GatewayError> {
    body.keys().try_for_each(|key| check_listed("", key, allowed, pass))
}

/// Refuses members of the object at `at`, such as `parameters`, that are neither `allowed` nor let
/// through by the operator, who names them with a dot: `parameters.foo`.
pub(super) fn refuse_unknown_members(
    object: &Object<'_>,
    at: &str,
    allowed: &[&str],
    pass: &[String],
) -> Result<(), GatewayError> {
    object.keys().try_for_each(|key| check_listed(at, key, allowed, pass))
}

/// Refuses the field `key` of the object at `at` (empty for the body itself) unless it is `allowed`
/// or the operator lets it through with `pass`.
pub(super) fn check_listed(
    at: &str,
    key: &str,
    allowed: &[&str],
    pass: &[String],
) -> Result<(), GatewayError> {
    if allowed.contains(&key) {
        return Ok(());
    }
    let shown: String = key.chars().take(KEY_CHARS_MAX).collect();
    let name = if at.is_empty() { shown } else { format!("{at}.{shown}") };
    if key.is_ascii() && is_passed(at, key, pass) {
        return Ok(());
    }
    let message = format!(
        "`{name}` is not offered here: what it costs is not known. An operator can allow it for this \
         model with `pass_fields` in models.yaml."
    );
    Err(GatewayError::invalid(name, message))
}

/// True if an operator lets the field `key` of the object at `at` through. An entry with a trailing `*`
/// reaches into an object if it names it up to its dot: `parameters.*` is all of `parameters`, and `p*`
/// matches fields of the body alone.
pub(super) fn is_passed(at: &str, key: &str, pass: &[String]) -> bool {
    if at.is_empty() {
        // A dot is no part of a name: it separates one from the next.
        return !key.contains('.') && has(pass, key);
    }
    // Where blocks stand does not matter to who lets their fields through.
    let path = format!("{}.{key}", without_places(at));
    let names = |entry: &String| entry.contains('.') && has(std::slice::from_ref(entry), &path);
    pass.iter().any(names)
}

/// The path `at` without the places in arrays: `content[3].image_url` as `content.image_url`.
fn without_places(at: &str) -> String {
    at.split('.')
        .map(|part| part.split('[').next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(".")
}

/// Characters of an unknown key that an answer repeats.
const KEY_CHARS_MAX: usize = 64;

/// `messages` must be an array that is not empty. What is in it is the upstream's to judge.
pub(super) fn check_messages(body: &Object<'_>) -> Result<(), GatewayError> {
    let missing = || GatewayError::invalid("messages", "`messages` must be a non-empty array");
    let messages = body.get_non_null("messages").ok_or_else(missing)?;
    let first = messages.text().get(1..).map(<[u8]>::trim_ascii_start).unwrap_or_default();
    if !messages.is_array() || first.starts_with(b"]") {
        return Err(missing());
    }
    Ok(())
}

/// Error for a `field` that is not an object, or not a readable one.
pub(super) fn no_object(field: &str, value: &Value<'_>, error: &JsonError) -> String {
    if value.text().starts_with(b"{") {
        format!("`{field}` is not acceptable: {error}")
    } else {
        format!("`{field}` must be an object")
    }
}

/// An optional integer field within `range`.
pub(super) fn integer(
    body: &Object<'_>,
    field: &'static str,
    range: RangeInclusive<u64>,
) -> Result<Option<u64>, GatewayError> {
    let Some(value) = body.get_non_null(field) else { return Ok(None) };
    let Some(number) = value.as_u64().filter(|number| range.contains(number)) else {
        let (from, to) = range.into_inner();
        let message = match to {
            u64::MAX => format!("`{field}` must be an integer of at least {from}"),
            _ if from == to => format!("`{field}` must be {from}"),
            _ => format!("`{field}` must be an integer from {from} to {to}"),
        };
        return Err(GatewayError::invalid(field, message));
    };
    Ok(Some(number))
}

/// Output tokens that an optional field requests, limited to the model's maximum.
pub(super) fn output_tokens(
    body: &Object<'_>,
    field: &'static str,
    min: u64,
    limits: &ModelLimits,
) -> Result<Option<u64>, GatewayError> {
    let requested = integer(body, field, min..=u64::MAX)?;
    match requested {
        Some(tokens) if tokens > limits.output_tokens_max => {
            let max = limits.output_tokens_max;
            let message = format!("`{field}` must be at most {max} for this model, not {tokens}");
            Err(GatewayError::invalid(field, message))
        }
        requested => Ok(requested),
    }
}

/// An optional text field.
pub(super) fn text(body: &Object<'_>, field: &'static str) -> Result<Option<String>, GatewayError> {
    match body.get_non_null(field) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(value) => Ok(Some(value.into_owned())),
            None => Err(GatewayError::invalid(field, format!("`{field}` must be a string"))),
        },
    }
}

/// An optional boolean field.
pub(super) fn boolean(
    body: &Object<'_>,
    field: &'static str,
) -> Result<Option<bool>, GatewayError> {
    match body.get_non_null(field) {
        None => Ok(None),
        Some(value) => match value.as_bool() {
            Some(value) => Ok(Some(value)),
            None => Err(GatewayError::invalid(field, format!("`{field}` must be a boolean"))),
        },
    }
}

/// Requested service tier, or `None`.
pub(super) fn service_tier(body: &Object<'_>) -> Option<ServiceTier> {
    let requested = body.get_non_null("service_tier").or_else(|| body.get_non_null("serviceTier"));
    requested?.as_str().and_then(|word| ServiceTier::named(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str, at: &str, pass: &[&str]) -> Option<String> {
        let pass: Vec<String> = pass.iter().map(|field| (*field).to_owned()).collect();
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let checked = match at {
            "" => refuse_unknown_fields(&object, &["model", "prompt"], &pass),
            at => refuse_unknown_members(&object, at, &["model", "prompt"], &pass),
        };
        checked.err().map(|error| {
            let param = error.param.as_deref().unwrap_or_default();
            assert!(error.message.starts_with(&format!("`{param}` is not offered")), "{error}");
            param.to_owned()
        })
    }

    #[test]
    fn unlisted_fields_are_refused_unless_an_operator_permits_them() {
        assert_eq!(refused(r#"{"model":"m","prom\u0070t":"p"}"#, "", &[]), None);
        for body in [r#"{"model":"m","foo":1}"#, r#"{"f\u006fo":null}"#] {
            assert_eq!(refused(body, "", &[]).as_deref(), Some("foo"), "{body}");
            assert_eq!(refused(body, "", &["foo"]), None, "{body}");
            assert_eq!(refused(body, "", &["bar", "a.foo"]).as_deref(), Some("foo"), "{body}");
        }
        let folded = "{\"\u{212A}ey\":1}";
        assert_eq!(refused(folded, "", &["\u{212A}ey"]).as_deref(), Some("\u{212A}ey"));
        let long = format!(r#"{{"{}":1}}"#, "x".repeat(1000));
        assert_eq!(refused(&long, "", &[]), Some("x".repeat(64)), "cut before it is repeated");
    }

    #[test]
    fn members_are_named_by_their_whole_path() {
        let body = r#"{"foo":1}"#;
        let at = "content[3].image_url";
        assert_eq!(refused(body, at, &["foo"]).as_deref(), Some("content[3].image_url.foo"));
        assert_eq!(refused(body, at, &["content.image_url.foo"]), None, "in any block");
        assert_eq!(refused(body, "parameters", &["parameters.foo"]), None);
        assert_eq!(refused(body, "parameters", &["input.foo"]).as_deref(), Some("parameters.foo"));
    }

    #[test]
    fn a_star_stands_for_any_ending_at_every_depth() {
        let (top, inner) = ("", "content[3].image_url");
        for (at, entry, passes) in [
            (top, "foo", true),
            (top, "fo*", true),
            (top, "foo*", true),
            (top, "bar*", false),
            (top, "foo.*", false),
            (inner, "content.image_url.*", true),
            (inner, "content.image_url.fo*", true),
            (inner, "content.image_url.foo*", true),
            (inner, "content.*", true),
            (inner, "content.image_url.bar*", false),
            (inner, "content.image*", true),
            (inner, "content*", false),
            (inner, "foo*", false),
            (inner, "content.video_url.*", false),
            ("parameters", "parameters.*", true),
            ("parameters", "parameters.foo", true),
            ("parameters", "parameter*", false),
            ("parameters", "input.*", false),
        ] {
            let is_refused = refused(r#"{"foo":1}"#, at, &[entry]).is_some();
            assert_eq!(is_refused, !passes, "`foo` of {at:?} with {entry}");
        }
        let dotted = refused(r#"{"parameters.foo":1}"#, top, &["parameters.*", "parameters.foo"]);
        assert_eq!(dotted.as_deref(), Some("parameters.foo"), "a name with a dot is no path");
    }
}
