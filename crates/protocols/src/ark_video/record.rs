//! The record of family S: the upstream's own bytes, but for the members that the gateway knows better
//! or adds. Spec section 2.7.

use bytes::Bytes;
use serde_json::Value;

use super::state_of;
use crate::json::Object;
use crate::splice::{Splice, json_string};
use crate::task::{DOCUMENT_BYTES_MAX, TaskRecordView};
use crate::video::{self, OBJECT};

/// Members that are kept regardless of their size: the result, its URL, usage and seed, and identifiers.
const KEPT: [&str; 8] =
    ["id", "model", "status", "content", "usage", "seed", "created_at", "updated_at"];
/// Other members are kept too, of a record that is too large, if they are no longer than this.
const SMALL_BYTES_MAX: usize = 512;

/// The bytes of an answer in the form to store. An answer that the gateway's reader refuses, such as one with
/// a repeated key, is stored as parsed in `read`.
pub(super) fn text_of(answer: &Bytes, read: &Value) -> String {
    let text = std::str::from_utf8(answer).unwrap_or_default().trim();
    match Object::parse(text.as_bytes()) {
        Ok(object) => fit(&object, text),
        Err(_) => read.to_string(),
    }
}

/// Returns `text`. Above `DOCUMENT_BYTES_MAX`, members longer than `SMALL_BYTES_MAX` are removed, except
/// those in `KEPT`.
fn fit(object: &Object<'_>, text: &str) -> String {
    if text.len() <= DOCUMENT_BYTES_MAX {
        return text.to_owned();
    }
    let is_cut = |(key, value): &(&str, _)| -> bool {
        let value: &crate::json::Value<'_> = value;
        !KEPT.contains(key) && value.text().len() > SMALL_BYTES_MAX
    };
    let cut: Vec<&str> = object.members().filter(is_cut).map(|(key, _)| key).collect();
    let mut splice = Splice::default();
    for range in object.member_ranges(&cut) {
        splice.replace(range, "");
    }
    applied(splice, text)
}

/// The object `text` with these members in JSON, which replace existing ones or are appended.
pub(super) fn with(text: &str, members: &[(&str, String)]) -> String {
    let object = Object::parse(text.as_bytes()).or_else(|_| Object::parse(b"{}"));
    let Ok(object) = object else { return text.to_owned() };
    let mut splice = Splice::default();
    let mut added = Vec::new();
    for (key, value) in members {
        match object.get(key) {
            Some(old) => splice.replace(old.range, value.clone()),
            None => added.push(format!("{}:{value}", json_string(key))),
        }
    }
    if !added.is_empty() {
        splice.insert(&object, 0, &added.join(","));
    }
    applied(splice, std::str::from_utf8(object.text()).unwrap_or("{}"))
}

fn applied(splice: Splice, text: &str) -> String {
    let edited = splice.apply(&Bytes::copy_from_slice(text.as_bytes()));
    String::from_utf8(edited.into()).unwrap_or_else(|_| text.to_owned())
}

/// The record that the customer reads.
pub(super) fn shown(shown: &TaskRecordView<'_>) -> String {
    let object = Object::parse(shown.document.as_bytes()).or_else(|_| Object::parse(b"{}"));
    let Ok(object) = object else { return "{}".to_owned() };
    let text = |key: &str| object.get(key).and_then(|value| value.as_str());
    let mut members = Vec::new();
    for (key, value) in [("id", shown.id), ("object", OBJECT)] {
        if text(key).as_deref() != Some(value) {
            members.push((key, json_string(value)));
        }
    }
    if object.get_non_null("model").is_none() {
        members.push(("model", json_string(shown.model)));
    }
    if object.get_non_null("created_at").is_none() {
        members.push(("created_at", shown.created_at.to_string()));
    }
    if text("status").and_then(|status| state_of(&status)) != Some(shown.state) {
        members.push(("status", json_string(shown.state.as_str())));
        // The gateway has ended it, whatever the upstream said last.
        if shown.state.is_end() {
            members.push(("updated_at", shown.updated_at.to_string()));
        }
        if object.get_non_null("error").is_none()
            && let Some(error) = video::error_of(shown.state)
        {
            members.push(("error", error.to_string()));
        }
    }
    with(std::str::from_utf8(object.text()).unwrap_or("{}"), &members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_put_where_they_stand_or_behind_the_last() {
        for (text, expected) in [
            (r#"{ "b" : 1.10 , "a":1e2 }"#, r#"{ "b" : 1.10 , "a":true,"c":2 }"#),
            ("{}", r#"{"a":true,"c":2}"#),
            (r#"{"c" :"é" }"#, r#"{"c" :2,"a":true }"#),
            ("", r#"{"a":true,"c":2}"#),
        ] {
            let members = [("a", "true".to_owned()), ("c", "2".to_owned())];
            assert_eq!(with(text, &members), expected, "{text}");
        }
    }

    #[test]
    fn what_says_a_thing_twice_says_it_once() {
        let answer = Bytes::from_static(br#"{"id":"a","id":"b","x":1}"#);
        let read = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(text_of(&answer, &read), r#"{"id":"b","x":1}"#);
    }

    #[test]
    fn what_is_cut_is_never_what_was_paid_for() {
        let long = "猫".repeat(DOCUMENT_BYTES_MAX / 3);
        let url = format!("https://a.example/v.mp4?Signature={}", "x".repeat(2000));
        let text = format!(
            r#"{{"id":"cgt-1","prompt":"{long}","content":{{"video_url":"{url}"}},"usage":{{"completion_tokens":1.0}},"seed":7,"ratio":"16:9","text":["{long}"]}}"#
        );
        let answer = Bytes::from(text);
        let read: Value = serde_json::from_slice(&answer).expect("JSON");
        let kept = format!(
            r#"{{"id":"cgt-1","content":{{"video_url":"{url}"}},"usage":{{"completion_tokens":1.0}},"seed":7,"ratio":"16:9"}}"#
        );
        assert_eq!(text_of(&answer, &read), kept);
    }
}
