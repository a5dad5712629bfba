//! A strict reader for the top level of a JSON object: one pass, borrowed slices, nothing rebuilt.
//!
//! It refuses what JSON parsers disagree on, because a disagreement between the gateway and an
//! upstream is a way past billing: duplicate keys, a byte-order mark, numbers that overflow a
//! double, lone surrogates, NUL, nesting past [`DEPTH_MAX`] and anything behind the closing brace.
//! `grammar` is where it refuses; here is what one can ask of the text that was read. Nothing is
//! collected but the members of one object: arrays are gone through, however long they are.
//!
//! # Which reader for which text
//!
//! Three readers of our own and `serde_json`, by where a text comes from and how often:
//!
//! | Text | Reader | Why not another |
//! |---|---|---|
//! | a customer's request, once | [`Object`], with the typed fields of `fields` | `serde_json` takes the last of two keys and forgets where a value stood; an edit needs its bytes |
//! | an upstream's event, thousands a second | `json_cursor::Cursor`; `counts` reads a `usage` in its usual form with it | a check of the whole event costs more than the few members that count |
//! | an upstream's document that arrives in pieces, of any size | [`json_scan`](super::json_scan) | both others need the whole text at once |
//! | what is rebuilt as a tree: errors, records of tasks, a `usage` in an unusual form | `serde_json` | – |
//!
//! The check of a whole document notes where its long values end (`skips`). `Cursor::of_member` reads the same
//! document again by these notes, so that of a tool's schema or a picture no byte is looked at twice.
//!
//! Translation reads a request that was checked here once more, through `raw` of its own crate, which
//! lies below this one: it keeps every byte of a value, and needs no positions in the body.

mod count;
mod find;
mod grammar;
mod skips;
mod spelling;
mod unquote;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

pub use count::{VALUES_MAX, from_upstream, values_within};
pub(super) use find::{
    marks, numbers_end, plain_text_end, quote_or_backslash, short_string_end, string_marks,
    structure,
};
pub use grammar::DEPTH_MAX;
use grammar::Scanner;
pub(crate) use skips::{SkipReader, SkipTable};
pub(crate) use spelling::DecodedText;
use spelling::Spelling;
use unquote::unquote;

/// Reason why a body is not acceptable JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Byte offset in the body.
    pub offset: usize,
    /// Description of the fault, for the customer.
    pub message: Cow<'static, str>,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.offset)
    }
}

/// The members of one JSON object, by position in the text that was read.
#[derive(Debug)]
pub struct Object<'a> {
    text: &'a str,
    members: Vec<Member<'a>>,
    /// Lengths of its keys, as bits: a look-up mostly misses, and ends here.
    key_lengths: u64,
    close: usize,
    keys_escaped: bool,
    values: usize,
    spelling: Spelling,
    skips: SkipTable,
}

#[derive(Debug)]
struct Member<'a> {
    key: Cow<'a, str>,
    /// Position of the key, its quotes included.
    key_range: Range<usize>,
    value: Range<usize>,
}

/// A value inside an [`Object`]: its text and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    text: &'a str,
    /// Its byte range in the text that the object was read from.
    pub range: Range<usize>,
}

impl<'a> Object<'a> {
    /// Reads `text`, which must be exactly one JSON object, with white space around it at most.
    ///
    /// # Errors
    /// The first thing that is wrong, with its byte offset.
    pub fn parse(text: &'a [u8]) -> Result<Self, JsonError> {
        Self::parse_within(text, usize::MAX)
    }

    /// Reads `text`, which must be exactly one JSON object, with at most `values_max` values at any
    /// depth: what reads it further takes time and memory by their number.
    ///
    /// # Errors
    /// As for [`Self::parse`], and more values than that.
    pub fn parse_within(text: &'a [u8], values_max: usize) -> Result<Self, JsonError> {
        if text.starts_with(b"\xef\xbb\xbf") {
            return Err(JsonError { offset: 0, message: "a byte-order mark is not JSON".into() });
        }
        let text = simdutf8::compat::from_utf8(text).map_err(|error| JsonError {
            offset: error.valid_up_to(),
            message: "the body is not valid UTF-8".into(),
        })?;
        Scanner::within(text, values_max).document().map_err(|refusal| *refusal)
    }

    /// Number of values inside, at any depth.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// The value of `key`.
    #[must_use]
    #[inline]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        // Most look-ups are for fields that are not there: one bit says so without comparing keys.
        let may_be_there = self.key_lengths & length_bit(key) != 0;
        if may_be_there { self.find(key) } else { None }
    }

    fn find(&self, key: &str) -> Option<Value<'a>> {
        let member = self.members.iter().find(|member| member.key == key)?;
        let text = self.text.get(member.value.clone())?;
        Some(Value { text, range: member.value.clone() })
    }

    /// Every key with its value, in the order of the text.
    pub fn members(&self) -> impl Iterator<Item = (&str, Value<'a>)> {
        self.members.iter().map(|member| {
            let text = self.text.get(member.value.clone()).unwrap_or_default();
            (member.key.as_ref(), Value { text, range: member.value.clone() })
        })
    }

    /// Position of `key`, its quotes included.
    #[must_use]
    pub fn key_range(&self, key: &str) -> Option<Range<usize>> {
        let member = self.members.iter().find(|member| member.key == key)?;
        Some(member.key_range.clone())
    }

    /// The keys, without their escapes and in the order of the text.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.key.as_ref())
    }

    /// Position of a member with its comma: the object stays valid without these bytes.
    #[must_use]
    pub fn member_range(&self, key: &str) -> Option<Range<usize>> {
        self.member_ranges(&[key]).pop()
    }

    /// Positions of the members named by `keys`, with their commas: the object stays valid without all these
    /// ranges. They do not overlap.
    #[must_use]
    pub fn member_ranges(&self, keys: &[&str]) -> Vec<Range<usize>> {
        let is_named = |member: &&Member<'_>| keys.contains(&member.key.as_ref());
        let mut ranges = Vec::new();
        let mut kept: Option<&Member<'_>> = None;
        // Neighbours go together: each would take a comma with it that the other needs.
        let mut run: Option<(&Member<'_>, &Member<'_>)> = None;
        for member in &self.members {
            if is_named(&member) {
                run = Some(run.map_or((member, member), |(first, _)| (first, member)));
                continue;
            }
            if let Some((first, _)) = run.take() {
                ranges.push(first.key_range.start..member.key_range.start);
            }
            kept = Some(member);
        }
        if let Some((first, last)) = run {
            let start = kept.map_or(first.key_range.start, |kept| kept.value.end);
            ranges.push(start..last.value.end);
        }
        ranges
    }

    /// The value of `key` unless it is absent or `null`, which the field treats alike.
    #[must_use]
    #[inline]
    pub fn get_non_null(&self, key: &str) -> Option<Value<'a>> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// A key that equals one of `names` but for upper and lower case: some parsers would take it.
    #[must_use]
    pub fn case_variant_of(&self, names: &[&str]) -> Option<&str> {
        let is_variant =
            |key: &str| names.iter().any(|name| *name != key && name.eq_ignore_ascii_case(key));
        self.members.iter().map(|member| member.key.as_ref()).find(|key| is_variant(key))
    }

    /// True if any key, at any depth, was written with an escape.
    #[must_use]
    pub fn has_escaped_keys(&self) -> bool {
        self.keys_escaped
    }

    /// Position at which a further member can be inserted; true if a comma must precede it.
    #[must_use]
    pub fn insertion_point(&self) -> (usize, bool) {
        match self.members.last() {
            Some(last) => (last.value.end, true),
            None => (self.close, false),
        }
    }

    /// Bytes of the document in its compact form without escapes, whichever way it is written.
    #[must_use]
    pub fn decoded_bytes(&self) -> usize {
        self.text.len() - self.spelling.excess
    }

    /// Bytes by which the numbers of a document can grow where a provider writes them anew for its prompt.
    pub(crate) fn rewritten_bytes(&self) -> usize {
        self.spelling.number_bytes
    }

    /// The media in the document, as base64 without escapes.
    pub(crate) fn media_texts(&self) -> Vec<Cow<'a, str>> {
        self.spelling.media_texts(self.text)
    }

    /// Ranges of the text that are left without its strings of media. Their quotes are left.
    pub(crate) fn around_media(&self) -> impl Iterator<Item = Range<usize>> {
        let end = self.text.len()..self.text.len();
        let mut start = 0;
        self.spelling.media().chain([end]).map(move |media| {
            let before = start..media.start;
            start = media.end;
            before
        })
    }

    /// The document in its compact form without escapes, with its media or without.
    pub(crate) fn decoded_text(&self, without_media: bool) -> DecodedText<'_> {
        DecodedText::new(self.text(), &self.spelling, without_media)
    }

    /// Looks up where long values end, from a position of the document on. Only an object that was read
    /// from a whole document has notes on that.
    pub(crate) fn skips(&self, position: usize) -> SkipReader<'_> {
        self.skips.reader(position)
    }

    /// The same object without notes on where long values end.
    #[cfg(test)]
    pub(crate) fn without_skips(self) -> Self {
        Self { skips: SkipTable::NONE, ..self }
    }

    /// True if it has notes on where long values end.
    #[cfg(test)]
    pub(crate) fn has_skips(&self) -> bool {
        self.skips.bytes() > 0
    }

    /// Bytes that the notes take on where long values end.
    #[cfg(test)]
    pub(crate) fn skip_bytes(&self) -> usize {
        self.skips.bytes()
    }

    /// The text of the object, as it was read.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text.as_bytes()
    }
}

/// The bit of all keys that are as long as this one, or of all long ones.
fn length_bit(key: &str) -> u64 {
    1 << key.len().min(63)
}

impl<'a> Value<'a> {
    /// A value that was parsed before, with its exact `text`.
    pub(super) fn new(text: &'a [u8]) -> Self {
        // It is a part of a document that was checked.
        let text = simdutf8::basic::from_utf8(text).unwrap_or_default();
        Self { text, range: 0..text.len() }
    }

    /// True if the value is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.text == "null"
    }

    /// The text of the value.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// The boolean, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The unsigned integer, if it is written as one: no sign, point or exponent.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        let are_digits = self.text.bytes().all(|byte| byte.is_ascii_digit());
        Some(self.text).filter(|_| are_digits)?.parse().ok()
    }

    /// The number, if it is one.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        let is_number = self.text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        Some(self.text).filter(|_| is_number)?.parse().ok()
    }

    /// The string without its escapes, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        unquote(self.text)
    }

    /// Its bytes in its compact form without escapes, whichever way it is written.
    #[must_use]
    pub fn decoded_bytes(&self) -> usize {
        self.text.len() - Scanner::new(self.text).excess()
    }

    /// The members, if it is an object. Their ranges count from the start of this value.
    ///
    /// # Errors
    /// When it is not an object, or has a duplicate key.
    pub fn as_object(&self) -> Result<Object<'a>, JsonError> {
        Scanner::new(self.text).document().map_err(|refusal| *refusal)
    }

    /// The elements, if it is an array, each read when it is asked for. Their ranges count from the
    /// start of this value.
    #[must_use]
    pub fn elements(&self) -> Option<Elements<'a>> {
        let mut scanner = Scanner::new(self.text);
        scanner.enter_array().then_some(Elements(scanner))
    }

    /// True for an array.
    #[must_use]
    pub fn is_array(&self) -> bool {
        self.text.starts_with('[')
    }
}

/// Iterator over the elements of an array that was parsed before.
pub struct Elements<'a>(Scanner<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.0.element()
    }
}

#[cfg(test)]
mod tests;
