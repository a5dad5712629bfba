//! The accepted grammar of JSON, to the byte.

use std::borrow::Cow;
use std::ops::Range;

use super::find::{base64_end, plain_text_end, short_string_end, special_marks};
use super::skips::{NOTED_BYTES_MIN, NOTED_LEVELS, SkipTable};
use super::spelling::{MEDIA_BYTES_MIN, Spelling};
use super::unquote::unquote;
use super::{JsonError, Member, Object, Value, length_bit};

/// A refusal, small enough to be handed up in a register: there is none in nearly every step.
type JsonRefusal = Box<JsonError>;

/// The deepest nesting accepted. Real requests stay below 20; a stack of bits fits one word.
pub const DEPTH_MAX: u32 = 64;
/// The most members that a top-level object may have. Real requests have fewer than 40.
const MEMBERS_MAX: usize = 512;
/// The longest number accepted, in bytes. Without an exponent it is then below 10³⁰⁰, so finite.
const NUMBER_BYTES_MAX: usize = 300;
/// Bytes that a number without an exponent has more, at most, where a provider writes it anew: a blank
/// before it, and `.0` behind it where all numbers are doubles (`google.protobuf.Struct`).
const REWRITTEN_BYTES: usize = 3;
/// The longest double as programs write it: `-1.7976931348623157e+308`. JavaScript writes `1e20` out.
const DOUBLE_BYTES_MAX: usize = 24;

/// Goes through a text once, from its beginning.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    keys_escaped: bool,
    /// Values seen so far, at any depth.
    values: usize,
    values_max: usize,
    /// Position of the key that was read last.
    last_key: Range<usize>,
    spelling: Spelling,
    skips: SkipTable,
    /// Containers in fewer others than this are noted.
    noted_levels: u32,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            keys_escaped: false,
            values: 0,
            values_max: usize::MAX,
            last_key: 0..0,
            spelling: Spelling::for_part(),
            skips: SkipTable::NONE,
            noted_levels: 0,
        }
    }

    /// A scanner of a whole document that stops after `values_max` values.
    pub(super) fn within(text: &'a str, values_max: usize) -> Self {
        let spelling = Spelling::for_document(text.len());
        let skips = SkipTable::for_document(text.len());
        Self { values_max, spelling, skips, noted_levels: NOTED_LEVELS, ..Self::new(text) }
    }

    #[cold]
    fn fail<T>(&self, message: impl Into<Cow<'static, str>>) -> Result<T, JsonRefusal> {
        self.fail_at(self.at, message)
    }

    #[cold]
    fn fail_at<T>(
        &self,
        offset: usize,
        message: impl Into<Cow<'static, str>>,
    ) -> Result<T, JsonRefusal> {
        Err(Box::new(JsonError { offset, message: message.into() }))
    }

    #[cold]
    fn too_many<T>(&self) -> Result<T, JsonRefusal> {
        let max = self.values_max;
        self.fail(format!("more than {max} values (`json_values_max`): send fewer, or in parts"))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn space(&mut self) {
        self.behind_space();
    }

    /// Skips white space and returns the next byte without consuming it.
    #[inline(always)]
    fn behind_space(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => {
                    self.at += 1;
                    self.spelling.excess += 1;
                }
                other => return other,
            }
        }
    }

    /// Skips white space, and `byte` if it follows.
    #[inline(always)]
    fn eat_behind_space(&mut self, byte: u8) -> bool {
        let found = self.behind_space() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// The object that the text is.
    pub(super) fn document(mut self) -> Result<Object<'a>, JsonRefusal> {
        self.space();
        if self.at == self.text.len() {
            return self.fail("the body is empty; it must be a JSON object");
        }
        if !self.eat(b'{') {
            return self.fail("the body must be a JSON object");
        }
        let mut members: Vec<Member<'a>> = Vec::with_capacity(12);
        let mut key_lengths = 0;
        self.space();
        let mut more = !self.eat(b'}');
        while more {
            self.space();
            let start = self.at;
            let (key, key_range) = self.key()?;
            let length = length_bit(&key);
            if key_lengths & length != 0 && members.iter().any(|member| member.key == key) {
                return self.fail_at(start, format!("duplicate key {key:?}"));
            }
            if members.len() == MEMBERS_MAX {
                return self.fail(format!("more than {MEMBERS_MAX} members in one object"));
            }
            self.space();
            let value_start = self.at;
            self.value(1)?;
            key_lengths |= length;
            members.push(Member { key, key_range, value: value_start..self.at });
            more = match self.behind_space() {
                Some(b',') => true,
                Some(b'}') => false,
                _ => return self.fail("expected `,` or `}`"),
            };
            self.at += 1;
        }
        let close = self.at.saturating_sub(1);
        self.space();
        if self.at < self.text.len() {
            return self.fail("unexpected text behind the JSON object");
        }
        let Self { text, keys_escaped, values, spelling, skips, .. } = self;
        Ok(Object { text, members, key_lengths, close, keys_escaped, values, spelling, skips })
    }

    /// Bytes by which the spelling of the value in the text exceeds its meaning.
    pub(super) fn excess(mut self) -> usize {
        // It was read as a part of a document before.
        let _is_whole = self.value(1).is_ok();
        self.spelling.excess
    }

    /// Stands before the first element of the array that the text is; false for another value.
    pub(super) fn enter_array(&mut self) -> bool {
        self.eat(b'[')
    }

    /// Next element of the entered array; `None` at the end.
    pub(super) fn element(&mut self) -> Option<Value<'a>> {
        self.space();
        if self.peek() == Some(b']') {
            return None;
        }
        let start = self.at;
        self.value(1).ok()?;
        let range = start..self.at;
        self.space();
        self.eat(b',');
        Some(Value { text: self.text.get(range.clone())?, range })
    }

    /// Reads a key and its colon.
    fn key(&mut self) -> Result<(Cow<'a, str>, Range<usize>), JsonRefusal> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return self.fail("expected a key in double quotes");
        }
        let is_escaped = self.key_text()?;
        let range = start..self.at;
        if !self.eat_behind_space(b':') {
            return self.fail("expected `:` behind the key");
        }
        let key = if is_escaped {
            self.text.get(range.clone()).and_then(unquote)
        } else {
            self.text.get(start + 1..range.end - 1).map(Cow::Borrowed)
        };
        match key {
            Some(key) => Ok((key, range)),
            None => self.fail("the key is not a valid string"),
        }
    }

    /// A key with its quotes; true for one that was written with an escape.
    #[inline(always)]
    fn key_text(&mut self) -> Result<bool, JsonRefusal> {
        let start = self.at;
        let is_escaped = self.string()?;
        self.last_key = start + 1..self.at - 1;
        self.keys_escaped |= is_escaped;
        Ok(is_escaped)
    }

    /// Skips any value, without recursion: one bit per open level says whether it is an object.
    fn value(&mut self, depth_outside: u32) -> Result<(), JsonRefusal> {
        let mut objects: u64 = 0;
        let mut depth: u32 = 0;
        loop {
            self.values += 1;
            if self.values > self.values_max {
                return self.too_many();
            }
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    if depth + depth_outside >= DEPTH_MAX {
                        return self.fail(format!("nested deeper than {DEPTH_MAX} levels"));
                    }
                    let start = self.at;
                    self.at += 1;
                    objects = objects << 1 | u64::from(open == b'{');
                    if !self.eat_behind_space(if open == b'{' { b'}' } else { b']' }) {
                        if depth < self.noted_levels {
                            self.skips.open(depth, start);
                        }
                        depth += 1;
                        self.member_key(objects)?;
                        continue;
                    }
                    objects >>= 1;
                }
                Some(b'"') => match short_string_end(self.text.as_bytes(), self.at + 1) {
                    Some(end) => self.at = end + 1,
                    None => self.long_value(depth)?,
                },
                Some(b'-' | b'0'..=b'9') => {
                    let rewritten_bytes = self.number()?;
                    // Those at the top are settings, which are no part of a prompt.
                    self.spelling.number_bytes += if depth > 0 { rewritten_bytes } else { 0 };
                }
                _ => self.literal()?,
            }
            if self.spelling.is_mark_due(self.at) {
                self.spelling.mark(self.at, 0, false);
            }
            // A value ended here: close what closes behind it, or go on to the next element.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let in_object = objects & 1 == 1;
                match self.behind_space() {
                    Some(b',') => {
                        self.at += 1;
                        self.space();
                        self.member_key(objects)?;
                        break;
                    }
                    Some(b'}') if in_object => self.at += 1,
                    Some(b']') if !in_object => self.at += 1,
                    _ if in_object => return self.fail("expected `,` or `}`"),
                    _ => return self.fail("expected `,` or `]`"),
                }
                depth -= 1;
                objects >>= 1;
                if depth < self.noted_levels {
                    self.skips.close(depth, self.at);
                }
            }
        }
    }

    /// Inside an object: the key and colon before the next value. Inside an array: nothing.
    #[inline(always)]
    fn member_key(&mut self, objects: u64) -> Result<(), JsonRefusal> {
        if objects & 1 == 0 {
            return Ok(());
        }
        if self.peek() != Some(b'"') {
            return self.fail("expected a key in double quotes");
        }
        self.key_text()?;
        if !self.eat_behind_space(b':') {
            return self.fail("expected `:` behind the key");
        }
        self.space();
        Ok(())
    }

    fn literal(&mut self) -> Result<(), JsonRefusal> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        for word in [&b"true"[..], b"false", b"null"] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(());
            }
        }
        self.fail(if rest.is_empty() {
            "the JSON text ends too early"
        } else {
            "expected a JSON value"
        })
    }

    /// Skips a number; returns by how many bytes it can grow when it is rewritten.
    fn number(&mut self) -> Result<usize, JsonRefusal> {
        let start = self.at;
        self.eat(b'-');
        let leading_zero = self.eat(b'0');
        let digits = self.digits();
        if leading_zero == (digits > 0) {
            return self.fail("malformed number");
        }
        if self.eat(b'.') && self.digits() == 0 {
            return self.fail("malformed number");
        }
        let exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            if self.digits() == 0 {
                return self.fail("malformed number");
            }
        }
        let written = self.text.get(start..self.at).unwrap_or_default();
        let finite = !exponent || written.parse().is_ok_and(f64::is_finite);
        if finite && written.len() <= NUMBER_BYTES_MAX {
            let double = DOUBLE_BYTES_MAX.saturating_sub(written.len()) + 1;
            Ok(if exponent { double } else { REWRITTEN_BYTES })
        } else {
            self.fail("the number is out of range")
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    /// A string with its quotes; true for one with an escape.
    #[inline(always)]
    fn string(&mut self) -> Result<bool, JsonRefusal> {
        self.at += 1;
        if let Some(end) = short_string_end(self.text.as_bytes(), self.at) {
            self.at = end + 1;
            return Ok(false);
        }
        self.long_string()
    }

    /// Skips the rest of a string; true if it has an escape.
    fn long_string(&mut self) -> Result<bool, JsonRefusal> {
        let bytes = self.text.as_bytes();
        // Most strings end soon; in one with escapes, such as code, they stand so close that their positions are
        // found many at a time.
        let mut start = self.at;
        let first = plain_text_end(bytes, start);
        if bytes.get(first) == Some(&b'"') {
            self.end_string(start, first);
            return Ok(false);
        }
        let mut specials = special_marks(bytes, first);
        let mut is_escaped = false;
        self.at = first;
        loop {
            match specials.next() {
                // A part of the escape that was read last.
                Some(at) if at < self.at => continue,
                Some(at) => self.at = at,
                None => self.at = bytes.len(),
            }
            match self.peek() {
                Some(b'"') => {
                    self.end_string(start, self.at);
                    return Ok(is_escaped);
                }
                Some(b'\\') => {
                    if self.spelling.is_mark_due(self.at) {
                        self.spelling.mark(self.at, self.at - start, true);
                    }
                    self.escape()?;
                    is_escaped = true;
                    start = self.at;
                }
                Some(_) => return self.fail("an unescaped control character in a string"),
                None => return self.fail("the JSON text ends inside a string"),
            }
        }
    }

    /// Leaves a string behind at its quote; from `start` on it has no escape.
    #[inline(always)]
    fn end_string(&mut self, start: usize, quote: usize) {
        self.at = quote + 1;
        if self.spelling.is_mark_due(self.at) {
            self.spelling.mark(self.at, self.at - start, false);
        }
    }

    fn escape(&mut self) -> Result<(), JsonRefusal> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                self.spelling.excess += 1;
                Ok(())
            }
            Some(b'u') => {
                // Six bytes of a letter that has one to three, and twelve of one that has four.
                self.spelling.excess += match self.unicode_escape()? {
                    0 => return self.fail("a NUL character in a string"),
                    0xD800..=0xDBFF => {
                        let low = self.eat(b'\\') && self.peek() == Some(b'u');
                        if !low || !(0xDC00..=0xDFFF).contains(&self.unicode_escape()?) {
                            return self.fail("a lone surrogate in a string");
                        }
                        8
                    }
                    0xDC00..=0xDFFF => return self.fail("a lone surrogate in a string"),
                    1..0x80 => 5,
                    0x80..0x800 => 4,
                    _ => 3,
                };
                Ok(())
            }
            _ => self.fail("an unknown escape in a string"),
        }
    }

    /// A string in `depth` containers that is a value and not short.
    #[inline(never)]
    fn long_value(&mut self, depth: u32) -> Result<(), JsonRefusal> {
        let (start, bytes) = (self.at, self.text.as_bytes());
        self.at += 1;
        let key = bytes.get(self.last_key.clone()).unwrap_or_default();
        let behind = bytes.get(self.at..).unwrap_or_default();
        // A picture is looked at once: whether it is base64 says where it ends as well.
        let data = self.spelling.data_start(behind, key).map(|data| self.at + data);
        let data = data.map(|data| data..base64_end(bytes, data));
        match data.filter(|data| bytes.get(data.end) == Some(&b'"')) {
            Some(data) => {
                self.end_string(start + 1, data.end);
                if data.len() >= MEDIA_BYTES_MIN {
                    self.spelling.push_media(data.len(), start + 1..data.end);
                }
            }
            None => {
                self.long_string()?;
                if self.at - start >= MEDIA_BYTES_MIN {
                    self.note_media(start);
                }
            }
        }
        if depth <= self.noted_levels && self.at - start >= NOTED_BYTES_MIN {
            self.skips.add(start, self.at);
        }
        Ok(())
    }

    /// Notes a long string, if it holds media.
    fn note_media(&mut self, start: usize) {
        let written = self.text.get(start + 1..self.at - 1).unwrap_or_default();
        let key = self.text.get(self.last_key.clone()).unwrap_or_default();
        self.spelling.note_media(written, self.at, key);
    }

    /// Reads the `u` of an escape and its four hexadecimal digits.
    fn unicode_escape(&mut self) -> Result<u32, JsonRefusal> {
        let digits = self.text.get(self.at + 1..self.at + 5);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                self.at += 5;
                Ok(code)
            }
            None => self.fail("a malformed \\u escape"),
        }
    }
}
