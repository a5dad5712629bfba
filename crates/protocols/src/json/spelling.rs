//! The size of a document by what it says, whichever way it is spelled: white space between tokens and
//! escapes in strings say nothing, and `\u4f60` says no more than the letter itself.
//!
//! The scanner notes on its way what the spelling has beyond the meaning, and here and there where it
//! is, so that a place of the decoded text is found without decoding what stands before it.

use std::borrow::Cow;
use std::ops::Range;

use super::find::{base64_end, is_base64_letter, plain_text_end, quote_or_backslash};
use super::unquote::unquote_text;

/// Marks in a document, at most: the distance between two is at least as many bytes as this part of it.
const MARKS_MAX: usize = 128;
/// The least distance of two marks in bytes.
const MARK_BYTES_MIN: usize = 64;
/// Strings of this length can be media: a header of a picture and what a few hundred pixels take.
pub(super) const MEDIA_BYTES_MIN: usize = 128;
/// Keys behind which dialects have media in base64 without saying so in the string itself.
const MEDIA_KEYS: [&str; 3] = ["data", "bytes", "file_data"];
/// The longest beginning of a `data:` URL, up to the mark before its data.
const DATA_URL_START_MAX: usize = 128;
/// The mark before the data of a `data:` URL.
const BASE64_MARK: &[u8] = b";base64,";
/// Bytes of a `data:` URL in which its mark stands.
const DATA_URL_HEAD_MAX: usize = DATA_URL_START_MAX + BASE64_MARK.len() - 1;

/// Notes of a scanner on the spelling of a document.
#[derive(Debug)]
pub(super) struct Spelling {
    /// Bytes that the document has beyond its compact form without escapes.
    pub(super) excess: usize,
    /// Number of bytes by which numbers within values can grow when they are rewritten.
    pub(super) number_bytes: usize,
    marks: Vec<SpellingMark>,
    /// The position from which on the next mark is set.
    next_mark: usize,
    mark_bytes: usize,
    /// Media in the order of the text.
    media: Vec<InlineBase64>,
}

/// A string that holds media in base64.
#[derive(Clone, Debug)]
struct InlineBase64 {
    /// Start of the base64 in the decoded text, and its bytes.
    begin: usize,
    bytes: usize,
    /// Position of the string as written, without its quotes.
    written: Range<usize>,
}

/// A place of a document that was passed.
#[derive(Clone, Copy, Debug, Default)]
struct SpellingMark {
    /// Its position in the text as it is written.
    written: usize,
    /// Its position in the decoded text.
    decoded: usize,
    /// Number of preceding bytes, within a string, that are equal in both texts.
    plain: usize,
    in_string: bool,
}

impl Spelling {
    /// Notes for a part of a document: only sizes.
    pub(super) const fn for_part() -> Self {
        Self {
            excess: 0,
            number_bytes: 0,
            marks: Vec::new(),
            next_mark: usize::MAX,
            mark_bytes: 0,
            media: Vec::new(),
        }
    }

    /// Notes for a whole document of this size.
    pub(super) fn for_document(bytes: usize) -> Self {
        let mark_bytes = (bytes / MARKS_MAX).max(MARK_BYTES_MIN);
        Self { next_mark: mark_bytes, mark_bytes, ..Self::for_part() }
    }

    /// The base64 of the media in the text, without escapes and without what stands before it in a URL.
    pub(super) fn media_texts<'a>(&self, text: &'a str) -> Vec<Cow<'a, str>> {
        let data = |media: &InlineBase64| {
            let written = text.get(media.written.clone()).unwrap_or_default();
            match unquote_text(written) {
                Cow::Borrowed(whole) => {
                    let at = whole.len().saturating_sub(media.bytes);
                    Cow::Borrowed(whole.get(at..).unwrap_or_default())
                }
                Cow::Owned(whole) => {
                    let at = whole.len().saturating_sub(media.bytes);
                    Cow::Owned(whole.get(at..).unwrap_or_default().to_owned())
                }
            }
        };
        self.media.iter().map(data).collect()
    }

    /// Positions of the strings that hold media, without their quotes, in the order of the text.
    pub(super) fn media(&self) -> impl Iterator<Item = Range<usize>> {
        self.media.iter().map(|media| media.written.clone())
    }

    /// True if a mark is due at this position.
    #[inline(always)]
    pub(super) fn is_mark_due(&self, at: usize) -> bool {
        at >= self.next_mark
    }

    /// Sets a mark after so many bytes without an escape.
    #[cold]
    #[inline(never)]
    pub(super) fn mark(&mut self, at: usize, plain: usize, in_string: bool) {
        let decoded = at.saturating_sub(self.excess);
        self.marks.push(SpellingMark { written: at, decoded, plain, in_string });
        self.next_mark = at.saturating_add(self.mark_bytes);
    }

    /// Notes a long string that holds media, if it is one: a `data:` URL, or base64 behind a key that
    /// says so. `end` is its position behind its quote, up to which the excess was counted.
    #[cold]
    #[inline(never)]
    pub(super) fn note_media(&mut self, written: &str, end: usize, key: &str) {
        if self.next_mark == usize::MAX {
            return;
        }
        let start = || SpellingCursor::new(written.as_bytes(), 0, true);
        let mut scheme = start();
        let is_url = b"data:".iter().all(|letter| scheme.next() == Some(*letter));
        if !is_url && !MEDIA_KEYS.contains(&&*unquote_text(key)) {
            return;
        }
        // But for its head nothing is copied: a picture with escapes is as large as one without.
        let mut data = start();
        if is_url {
            let mut head = start();
            let head: Vec<u8> =
                std::iter::from_fn(|| head.next()).take(DATA_URL_HEAD_MAX).collect();
            let mark = memchr::memmem::find(&head, BASE64_MARK);
            data.skip(mark.map_or(0, |at| at + BASE64_MARK.len()));
        }
        let Some(bytes) = data.base64_bytes().filter(|bytes| *bytes >= MEDIA_BYTES_MIN) else {
            return;
        };
        self.push_media(bytes, end.saturating_sub(written.len() + 1)..end.saturating_sub(1));
    }

    /// Notes the string at these positions, without its quotes, as media: its last `bytes` decoded bytes are the
    /// base64. The excess was counted up to its end.
    pub(super) fn push_media(&mut self, bytes: usize, written: Range<usize>) {
        let begin = written.end.saturating_sub(self.excess).saturating_sub(bytes);
        self.media.push(InlineBase64 { begin, bytes, written });
    }

    /// Where base64 would begin in a string, if one may be media that stands in it without an escape. `text`
    /// begins behind the quote of the string, and `key` is the last one as written.
    pub(super) fn data_start(&self, text: &[u8], key: &[u8]) -> Option<usize> {
        if self.next_mark == usize::MAX {
            return None;
        }
        if !text.starts_with(b"data:") {
            return MEDIA_KEYS.iter().any(|name| name.as_bytes() == key).then_some(0);
        }
        let head = text.get(..text.len().min(DATA_URL_HEAD_MAX))?;
        let start = memchr::memmem::find(head, BASE64_MARK)? + BASE64_MARK.len();
        (plain_text_end(head, 0) >= start).then_some(start)
    }
}

/// The decoded text of a document: the contents of its strings, without white space between tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodedText<'a> {
    text: &'a [u8],
    spelling: &'a Spelling,
    /// Media are omitted.
    without_media: bool,
}

impl<'a> DecodedText<'a> {
    pub(super) fn new(text: &'a [u8], spelling: &'a Spelling, without_media: bool) -> Self {
        Self { text, spelling, without_media }
    }

    /// The text itself, if decoding does not change it.
    pub(crate) fn as_written(&self) -> Option<&'a [u8]> {
        (self.spelling.excess == 0 && self.media().is_empty()).then_some(self.text)
    }

    /// The length of the decoded text in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let media: usize = self.media().iter().map(|media| media.bytes).sum();
        self.text.len().saturating_sub(self.spelling.excess).saturating_sub(media)
    }

    fn media(&self) -> &'a [InlineBase64] {
        if self.without_media { &self.spelling.media } else { &[] }
    }

    /// Copies the text from a position on, as much as there is room for; without the rest of a letter
    /// that begins before it. Says how many bytes there are.
    pub(crate) fn copy(&self, position: usize, room: &mut [u8]) -> usize {
        let mut at = position;
        let mut copied = 0;
        let mut next = self.media().iter();
        let mut media = next.next();
        // Media before the position move it.
        while let Some(passed) = media.filter(|media| media.begin <= at) {
            at += passed.bytes;
            media = next.next();
        }
        let mut decoder = self.decoder_at(at);
        let mut is_begun = false;
        while copied < room.len() {
            if let Some(passed) = media.filter(|media| media.begin <= at) {
                at = passed.begin + passed.bytes;
                decoder = self.decoder_at(at);
                media = next.next();
                continue;
            }
            let Some(byte) = decoder.next() else { break };
            at += 1;
            is_begun |= byte & 0xC0 != 0x80;
            if is_begun && let Some(place) = room.get_mut(copied) {
                *place = byte;
                copied += 1;
            }
        }
        copied
    }

    /// A decoder that stands at a position of the decoded text, media included.
    fn decoder_at(&self, position: usize) -> SpellingCursor<'a> {
        let marks = &self.spelling.marks;
        let index = marks.partition_point(|mark| mark.decoded <= position);
        if let Some(mark) = marks.get(index) {
            let before = mark.decoded.saturating_sub(position);
            if before <= mark.plain {
                return SpellingCursor::new(self.text, mark.written.saturating_sub(before), true);
            }
        }
        let from = index.checked_sub(1).and_then(|index| marks.get(index)).copied();
        let from = from.unwrap_or_default();
        let mut decoder = SpellingCursor::new(self.text, from.written, from.in_string);
        decoder.skip(position.saturating_sub(from.decoded));
        decoder
    }
}

/// Cursor over a valid document that decodes escapes byte by byte.
struct SpellingCursor<'a> {
    text: &'a [u8],
    at: usize,
    in_string: bool,
    /// The decoded letter of an escape, as far as it is still unread.
    letter: [u8; 4],
    letter_bytes: usize,
    letter_at: usize,
}

impl<'a> SpellingCursor<'a> {
    fn new(text: &'a [u8], at: usize, in_string: bool) -> Self {
        Self { text, at, in_string, letter: [0; 4], letter_bytes: 0, letter_at: 0 }
    }

    /// Skips so many decoded bytes.
    fn skip(&mut self, mut bytes: usize) {
        while bytes > 0 {
            if self.in_string && self.letter_at == self.letter_bytes {
                let end = quote_or_backslash(self.text, self.at);
                let plain = (end - self.at).min(bytes);
                self.at += plain;
                bytes -= plain;
                if bytes == 0 {
                    return;
                }
            }
            if self.next().is_none() {
                return;
            }
            bytes -= 1;
        }
    }

    fn next(&mut self) -> Option<u8> {
        if self.letter_at < self.letter_bytes {
            self.letter_at += 1;
            return self.letter.get(self.letter_at - 1).copied();
        }
        let mut byte = *self.text.get(self.at)?;
        while !self.in_string && matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
            byte = *self.text.get(self.at)?;
        }
        if byte == b'\\' && self.in_string {
            return self.escape();
        }
        self.at += 1;
        self.in_string ^= byte == b'"';
        Some(byte)
    }

    /// The number of bytes of the rest of a string, if all are letters of base64.
    fn base64_bytes(&mut self) -> Option<usize> {
        let mut bytes = 0;
        loop {
            if self.letter_at == self.letter_bytes {
                let end = base64_end(self.text, self.at);
                bytes += end - self.at;
                self.at = end;
            }
            match self.next() {
                Some(byte) if is_base64_letter(byte) => bytes += 1,
                Some(_) => return None,
                None => return Some(bytes),
            }
        }
    }

    fn escape(&mut self) -> Option<u8> {
        let kind = *self.text.get(self.at + 1)?;
        if kind != b'u' {
            self.at += 2;
            return Some(match kind {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 8,
                b'f' => 12,
                other => other,
            });
        }
        let mut code = self.hexadecimal(self.at + 2)?;
        self.at += 6;
        if (0xD800..0xDC00).contains(&code) {
            let low = self.hexadecimal(self.at + 2)?;
            code = 0x1_0000 + ((code - 0xD800) << 10) + (low & 0x3FF);
            self.at += 6;
        }
        let letter = char::from_u32(code)?;
        self.letter_bytes = letter.encode_utf8(&mut self.letter).len();
        self.letter_at = 1;
        self.letter.first().copied()
    }

    fn hexadecimal(&self, at: usize) -> Option<u32> {
        let digits = std::str::from_utf8(self.text.get(at..at + 4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Object;
    use super::*;

    /// Writes a string with some of its letters as escapes.
    fn written(text: &str, escapes: u64) -> String {
        let mut random = escapes;
        let mut written = String::new();
        for letter in text.chars() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match (letter, random >> 58) {
                ('"' | '\\', _) => written.extend(['\\', letter]),
                ('/', 0..32) if escapes != 0 => written.push_str("\\/"),
                (_, 0) if escapes != 0 => written += &format!("\\u{:04x}", u32::from(letter)),
                _ => written.push(letter),
            }
        }
        written
    }

    proptest! {
        /// Whether a string is taken for media depends on what it says, not on how it is written: neither on
        /// escapes nor on where the scan of its letters stops.
        #[test]
        fn media_are_what_a_plain_reading_finds(
            strings in prop::collection::vec((
                prop_oneof![Just("data"), Just("bytes"), Just("file_data"), Just("url"), Just("x")],
                prop_oneof![
                    Just(""), Just("data:"), Just("data:image/png;base64,"), Just("data:;base64,;base64,"),
                    Just("data:\"image\";base64,"), Just("data:a;base64"), Just("Data:image/png;base64,"),
                ],
                0_usize..400,
                prop_oneof![Just("+/"), Just("-_"), Just("==")],
                prop::option::weighted(0.3, (any::<prop::sample::Index>(), "[\"\\\\ .,é\\[\\x7f@`{]")),
                prop_oneof![Just(0_u64), any::<u64>()],
            ), 0..6),
        ) {
            let (mut members, mut expected, mut media_bytes) = (Vec::new(), Vec::new(), 0);
            for (key, start, length, special, other, escapes) in strings {
                let letters = "ABCXYZabcxyz0189".chars().chain(special.chars()).cycle();
                let mut data: String = letters.take(length).collect();
                if let Some((place, other)) = other {
                    data.insert_str(place.index(length + 1), &other);
                }
                let text = format!("{start}{data}");
                let string = written(&text, escapes);
                let is_url = text.starts_with("data:");
                let at = text.find(";base64,").filter(|at| is_url && *at < DATA_URL_START_MAX);
                let data = &text[at.map_or(0, |at| at + 8)..];
                let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
                let is_media = (is_url || MEDIA_KEYS.contains(&key))
                    && string.len() + 2 >= MEDIA_BYTES_MIN
                    && data.len() >= MEDIA_BYTES_MIN
                    && data.bytes().all(is_letter);
                if is_media {
                    media_bytes += data.len();
                    expected.push(data.to_owned());
                }
                members.push(format!("{{\"{key}\":\"{string}\"}}"));
            }
            let body = format!("{{\"a\":[{}]}}", members.join(","));
            let object = Object::parse(body.as_bytes()).expect("JSON");
            prop_assert_eq!(object.media_texts(), expected);
            let bytes = object.decoded_bytes();
            prop_assert_eq!(object.decoded_text(true).bytes(), bytes - media_bytes);
            let mut rest = vec![0; bytes];
            let copied = object.decoded_text(true).copy(0, &mut rest);
            prop_assert_eq!(copied, bytes - media_bytes);
        }
    }
}
