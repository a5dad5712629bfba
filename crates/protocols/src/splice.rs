//! Edits to a body, JSON or a form, that leave every other byte where it was.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::json::{Object, plain_text_end};

/// Body size, in bytes, from which an edited body shares its unchanged parts instead of copying them.
const SHARED_BYTES_MIN: usize = 64 * 1024;

/// An edited body, in the pieces that are sent.
#[derive(Clone, Debug)]
pub enum EditedBody {
    /// A body in one piece.
    Whole(Bytes),
    /// A long body that shares its unchanged parts with the original.
    Pieces(Vec<Bytes>),
}

impl EditedBody {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(Bytes::is_empty)
    }

    /// The pieces in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Self::Whole(whole) => std::slice::from_ref(whole),
            Self::Pieces(pieces) => pieces,
        }
    }

    /// The whole body in one piece: a copy if there are several.
    #[must_use]
    pub fn into_whole(self) -> Bytes {
        match self {
            Self::Whole(whole) => whole,
            Self::Pieces(pieces) => pieces.concat().into(),
        }
    }

    /// Number of bytes in memory of their own, beside the `original` body.
    #[must_use]
    pub fn copied_bytes(&self, original: &Bytes) -> usize {
        let shared = original.as_ptr_range();
        let own = self.pieces().iter().filter(|piece| !shared.contains(&piece.as_ptr()));
        own.map(Bytes::len).sum()
    }
}

impl From<Bytes> for EditedBody {
    fn from(whole: Bytes) -> Self {
        Self::Whole(whole)
    }
}

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

    /// True if there are no edits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The edited body. What is long is not copied but for the edits, and nothing is without edits.
    #[must_use]
    pub fn apply_in_pieces(self, body: &Bytes) -> EditedBody {
        if self.edits.is_empty() {
            return body.clone().into();
        }
        if body.len() < SHARED_BYTES_MIN {
            return self.apply(body).into();
        }
        let mut pieces = Vec::with_capacity(2 * self.edits.len() + 1);
        self.each_piece(
            |piece| {
                pieces.push(match piece {
                    EditPiece::Kept(range) => body.slice(range.start..range.end.min(body.len())),
                    EditPiece::New(Cow::Borrowed(text)) => Bytes::from_static(text.as_bytes()),
                    EditPiece::New(Cow::Owned(text)) => text.into(),
                });
            },
            body.len(),
        );
        pieces.retain(|piece| !piece.is_empty());
        EditedBody::Pieces(pieces)
    }

    /// The edited body in one piece: a copy, unless there are no edits.
    #[must_use]
    pub fn apply(self, body: &Bytes) -> Bytes {
        if self.edits.is_empty() {
            return body.clone();
        }
        let added: usize = self.edits.iter().map(|(_, text)| text.len()).sum();
        let removed: usize = self.edits.iter().map(|(range, _)| range.len()).sum();
        // Bytes of just the length that was asked for take the memory over as it is.
        let mut edited = Vec::with_capacity((body.len() + added).saturating_sub(removed));
        self.each_piece(
            |piece| match piece {
                EditPiece::Kept(range) => {
                    edited.extend_from_slice(body.get(range).unwrap_or_default());
                }
                EditPiece::New(text) => edited.extend_from_slice(text.as_bytes()),
            },
            body.len(),
        );
        edited.into()
    }

    /// Passes the parts of the edited body to `take`, in order.
    fn each_piece(mut self, mut take: impl FnMut(EditPiece), length: usize) {
        // An insertion goes before what is replaced at the same place, however they were added.
        self.edits.sort_by_key(|(range, _)| (range.start, range.end));
        let mut taken = 0;
        for (range, text) in self.edits {
            if range.start < taken && range.end <= taken {
                // It stands in something that was replaced or removed as a whole.
                continue;
            }
            // What is removed twice is removed once.
            take(EditPiece::Kept(taken..range.start.max(taken)));
            take(EditPiece::New(text));
            taken = range.end.max(taken);
        }
        take(EditPiece::Kept(taken.min(length)..length));
    }
}

/// A part of an edited body.
enum EditPiece {
    /// Bytes of the body before.
    Kept(Range<usize>),
    /// An edit's text.
    New(Cow<'static, str>),
}

/// `text` as a JSON string with its quotes.
#[must_use]
pub fn json_string(text: &str) -> String {
    if plain_text_end(text.as_bytes(), 0) == text.len() {
        return ["\"", text, "\""].concat();
    }
    serde_json::Value::String(text.to_owned()).to_string()
}

/// Appends `text` to `json` as a string with its quotes.
pub fn push_json_string(json: &mut Vec<u8>, text: &str) {
    if plain_text_end(text.as_bytes(), 0) < text.len() {
        // A text can always be written, and a vector takes all.
        let _is_written = serde_json::to_writer(json, text);
        return;
    }
    json.reserve(text.len() + 2);
    json.push(b'"');
    json.extend_from_slice(text.as_bytes());
    json.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_edit_within_a_removed_range_is_dropped() {
        let mut splice = Splice::default();
        splice.replace(2..4, "x");
        splice.replace(1..6, "");
        splice.replace(3..3, "y");
        splice.replace(6..6, "z");
        assert_eq!(splice.apply(&Bytes::from_static(b"01234567")), "0z67");
    }

    proptest! {
        #[test]
        fn a_text_is_written_as_by_serde_json(text in "[\\PC\\x00-\\x1f\\x7f\"\\\\]{0,40}") {
            let mut json = b"[".to_vec();
            push_json_string(&mut json, &text);
            let expected = serde_json::to_string(&text).expect("JSON");
            prop_assert_eq!(&json[1..], expected.as_bytes());
            prop_assert_eq!(json_string(&text), expected);
        }
    }

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
        assert_eq!(Splice::default().apply_in_pieces(&body).copied_bytes(&body), 0, "same memory");
    }

    proptest! {
        #[test]
        fn a_long_body_is_shared_but_for_its_edits(
            extra in 0..100_usize,
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0..40_usize, ".{0,20}"), 0..5),
        ) {
            let body: Bytes = (0..SHARED_BYTES_MIN + extra).map(|at| at.to_le_bytes()[0]).collect();
            let (mut one, mut other, mut own, mut from) = (Splice::default(), Splice::default(), 0, 0);
            for (place, length, text) in edits {
                let start = from + place.index(body.len() - from);
                from = (start + length).min(body.len() - 1);
                own += text.len();
                one.replace(start..from, text.clone());
                other.replace(start..from, text);
            }
            let edited = one.apply_in_pieces(&body);
            prop_assert_eq!(edited.copied_bytes(&body), own);
            prop_assert_eq!(edited.len(), edited.clone().into_whole().len());
            prop_assert_eq!(edited.into_whole(), other.apply(&body));
        }
    }
}
