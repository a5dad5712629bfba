//! Edits to a body, JSON or a form, that leave every other byte where it was.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::json::{Object, plain_text_end};

/// Replacements of byte ranges, applied together.
#[derive(Debug, Default)]
pub struct Splice {
    edits: Vec<(Range<usize>, Cow<'static, str>)>,
}

impl Splice {
    /// Replaces the bytes of `range`.
    pub fn replace(&mut self, range: Range<usize>, text: impl Into<Cow<'static, str>>) {
        self.edits.push((range, text.into()));
    }

    /// Adds a member to the JSON `object`, whose text starts at `offset` in the body.
    pub fn insert(&mut self, object: &Object<'_>, offset: usize, member: &str) {
        let (at, comma) = object.insertion_point();
        let text = if comma { format!(",{member}") } else { member.to_owned() };
        self.edits.push((offset + at..offset + at, text.into()));
    }

    /// True when the body stays as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The edited body. Without edits it is the same bytes, not a copy.
    #[must_use]
    pub fn apply(mut self, body: &Bytes) -> Bytes {
        if self.edits.is_empty() {
            return body.clone();
        }
        // An insertion goes before what is replaced at the same place, however they were added.
        self.edits.sort_by_key(|(range, _)| (range.start, range.end));
        let added: usize = self.edits.iter().map(|(_, text)| text.len()).sum();
        let removed: usize = self.edits.iter().map(|(range, _)| range.len()).sum();
        // Bytes of just the length that was asked for take the memory over as it is.
        let mut edited = Vec::with_capacity((body.len() + added).saturating_sub(removed));
        let mut copied = 0;
        for (range, text) in &self.edits {
            edited.extend_from_slice(body.get(copied..range.start).unwrap_or_default());
            edited.extend_from_slice(text.as_bytes());
            copied = range.end;
        }
        edited.extend_from_slice(body.get(copied..).unwrap_or_default());
        edited.into()
    }
}

/// `text` as a JSON string with its quotes.
#[must_use]
pub fn json_string(text: &str) -> String {
    if plain_text_end(text.as_bytes(), 0) == text.len() {
        return ["\"", text, "\""].concat();
    }
    serde_json::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_edited_bytes_change() {
        let body = Bytes::from_static(br#"{ "model" : "a" ,"o": {} , "x":1.0e0}"#);
        let object = Object::parse(&body).expect("valid");
        let mut splice = Splice::default();
        splice.replace(object.get("model").expect("model").range, json_string("b\"c"));
        let nested = object.get("o").expect("o");
        splice.insert(&nested.as_object().expect("object"), nested.range.start, "\"u\":true");
        splice.insert(&object, 0, "\"y\":2");
        let edited = splice.apply(&body);
        assert_eq!(
            std::str::from_utf8(&edited),
            Ok(r#"{ "model" : "b\"c" ,"o": {"u":true} , "x":1.0e0,"y":2}"#)
        );
    }

    proptest! {
        #[test]
        fn strings_are_written_as_a_serializer_writes_them(text in ".{0,40}|[a-z\"\\\\\0-\x1F\x7F]{0,20}") {
            prop_assert_eq!(json_string(&text), serde_json::to_string(&text).expect("a string"));
        }
    }

    #[test]
    fn an_insertion_where_something_is_removed_does_not_bring_it_back() {
        let mut splice = Splice::default();
        splice.replace(0..2, "");
        splice.replace(0..0, "new");
        assert_eq!(splice.apply(&Bytes::from_static(b"ab cd")), "new cd");
    }

    #[test]
    fn no_edit_is_no_copy() {
        let body = Bytes::from_static(b"{}");
        assert_eq!(Splice::default().apply(&body).as_ptr(), body.as_ptr(), "same memory");
    }
}
