//! Fields of JSON bodies that several protocols have, read by the same rules.

use std::ops::RangeInclusive;

use super::json::{JsonError, Object, Value};
use crate::error::GatewayError;

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

/// Tiers that cost no more than the prices in `models.yaml`. Others multiply what the upstream bills.
const SERVICE_TIERS: [&str; 3] = ["auto", "default", "flex"];

/// OpenAI's `service_tier` must not change the price.
pub(super) fn check_service_tier(body: &Object<'_>) -> Result<(), GatewayError> {
    let tier = body.get_non_null("service_tier");
    if tier.is_some_and(|tier| tier.as_str().is_none_or(|tier| !SERVICE_TIERS.contains(&&*tier))) {
        let message = format!("`service_tier` must be one of {}", SERVICE_TIERS.join(", "));
        return Err(GatewayError::invalid("service_tier", message));
    }
    Ok(())
}

/// Whether `is_mark` holds for what stands before and behind any quote of a JSON text. Long prompts
/// have few quotes, so looking for many keys at once costs one pass over a body.
pub(super) fn has_quote_where(text: &[u8], is_mark: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    memchr::memchr_iter(b'"', text).any(|at| {
        let (before, behind) = text.split_at_checked(at).unwrap_or_default();
        is_mark(before, behind.get(1..).unwrap_or_default())
    })
}

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

/// What a customer reads whose `field` is no object, or one that is not read.
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
