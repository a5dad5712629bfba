//! One JSON object on one line, written field by field without a tree in between.
//!
//! Every request has a line, of two dozen fields, so what stands in each of them is written as it is:
//! names with what is around them ([`FieldName`]), numbers, ids and amounts as their digits. None of it goes
//! through the formatting of `core`, which takes longer for one number than a short line does here.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use log::Level;

use tollgate_types::clock::UnixMs;

/// A line longer than this gives its memory back after it was written, so that one long line does
/// not stay with every thread.
const KEPT_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    static REUSED: RefCell<Line> = const { RefCell::new(Line::new()) };
}

/// A field's name as it stands in a line behind other fields: comma, quotes and colon around it. Made by
/// [`name!`].
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldName(pub(super) &'static str);

/// The [`FieldName`] of a literal that JSON needs no escapes for.
macro_rules! name {
    ($name:literal) => {
        $crate::logging::line::FieldName(concat!(",\"", $name, "\":"))
    };
}
pub(super) use name;

/// The line being written by a thread. Its memory is used again for the next one.
#[derive(Debug)]
pub(super) struct Line {
    json: Vec<u8>,
    /// Last formatted second, and the beginning of a line up to its fraction.
    second: u64,
    second_text: Vec<u8>,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self { json: Vec::new(), second: u64::MAX, second_text: Vec::new() }
    }

    /// Begins a line with time, level and target; `write` adds the rest.
    pub(super) fn with(now: UnixMs, level: Level, target: &str, write: impl FnOnce(&mut Self)) {
        let begin = |line: &mut Self| {
            line.begin(now, level, target);
            write(line);
        };
        REUSED.with(|reused| match reused.try_borrow_mut() {
            Ok(mut line) => begin(&mut line),
            // A value that logs while it is being printed.
            Err(_) => begin(&mut Self::new()),
        });
    }

    pub(super) fn begin(&mut self, now: UnixMs, level: Level, target: &str) {
        self.json.clear();
        self.json.shrink_to(KEPT_BYTES_MAX);
        self.up_to_the_second(now);
        self.three_digits(now.0 % 1000);
        self.json.extend_from_slice(match level {
            Level::Error => b"Z\",\"level\":\"error\"",
            Level::Warn => b"Z\",\"level\":\"warn\"",
            Level::Info => b"Z\",\"level\":\"info\"",
            Level::Debug => b"Z\",\"level\":\"debug\"",
            Level::Trace => b"Z\",\"level\":\"trace\"",
        });
        self.text(name!("target"), target);
    }

    /// Ends the line and gives it, with its newline.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.json.extend_from_slice(b"}\n");
        &self.json
    }

    #[inline]
    pub(super) fn text(&mut self, name: FieldName, value: &str) {
        self.name(name);
        self.json.push(b'"');
        escape(&mut self.json, value);
        self.json.push(b'"');
    }

    pub(super) fn text_if_some(&mut self, name: FieldName, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// A text of letters, digits and signs that need no escapes.
    #[inline]
    pub(super) fn plain(&mut self, name: FieldName, value: &[u8]) {
        self.name(name);
        self.json.push(b'"');
        self.json.extend_from_slice(value);
        self.json.push(b'"');
    }

    pub(super) fn display(&mut self, name: FieldName, value: impl fmt::Display) {
        self.name(name);
        self.printed(value);
    }

    #[inline]
    pub(super) fn number(&mut self, name: FieldName, value: u64) {
        self.name(name);
        self.digits(value);
    }

    #[inline]
    pub(super) fn truth(&mut self, name: FieldName, value: bool) {
        self.name(name);
        self.truth_word(value);
    }

    /// Milliseconds with three decimals.
    #[inline]
    pub(super) fn milliseconds(&mut self, name: FieldName, value: Duration) {
        let whole = value.as_secs().saturating_mul(1_000_000);
        let micros = whole.saturating_add(value.subsec_micros().into());
        self.number(name, micros / 1000);
        self.json.push(b'.');
        self.three_digits(micros % 1000);
    }

    pub(super) fn address(&mut self, name: FieldName, address: IpAddr) {
        // IPv6 has a canonical form with rules of its own, which `Display` knows.
        let IpAddr::V4(address) = address else { return self.display(name, address) };
        self.name(name);
        for (octet, before) in address.octets().into_iter().zip(*b"\"...") {
            self.json.push(before);
            self.digits(octet.into());
        }
        self.json.push(b'"');
    }

    /// An object as the value of `name`.
    pub(super) fn object(&mut self, name: FieldName, write: impl FnOnce(&mut LineObject<'_>)) {
        self.name(name);
        self.json.push(b'{');
        write(&mut LineObject { line: self, is_empty: true });
        self.json.push(b'}');
    }

    /// A number whose name is one of a unit's, which need no escapes.
    pub(super) fn units(&mut self, name: &str, count: u64) {
        self.json.extend_from_slice(b",\"");
        self.json.extend_from_slice(name.as_bytes());
        self.json.extend_from_slice(b"\":");
        self.digits(count);
    }

    #[inline]
    fn name(&mut self, name: FieldName) {
        self.json.extend_from_slice(name.0.as_bytes());
    }

    #[inline]
    fn digits(&mut self, value: u64) {
        self.json.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn truth_word(&mut self, value: bool) {
        self.json.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn printed(&mut self, value: impl fmt::Display) {
        self.json.push(b'"');
        let begin = self.json.len();
        if write!(JsonEscaper(&mut self.json), "{value}").is_err() {
            self.json.truncate(begin);
            self.json.extend_from_slice(b"(could not be printed)");
        }
        self.json.push(b'"');
    }

    /// Like [`UnixMs::to_rfc3339`], but the date is worked out once a second.
    fn up_to_the_second(&mut self, now: UnixMs) {
        if self.second != now.seconds() {
            self.second = now.seconds();
            let whole = UnixMs(self.second.saturating_mul(1000)).to_rfc3339();
            self.second_text.clear();
            self.second_text.extend_from_slice(b"{\"ts\":\"");
            self.second_text.extend_from_slice(whole.trim_end_matches('Z').as_bytes());
            self.second_text.push(b'.');
        }
        self.json.extend_from_slice(&self.second_text);
    }

    fn three_digits(&mut self, number: u64) {
        let mut buffer = itoa::Buffer::new();
        let with_one = buffer.format(1000 + number % 1000).as_bytes();
        self.json.extend_from_slice(with_one.get(1..).unwrap_or_default());
    }
}

/// An object within a line, whose names are free.
pub(super) struct LineObject<'a> {
    line: &'a mut Line,
    is_empty: bool,
}

impl LineObject<'_> {
    pub(super) fn display(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        self.line.printed(value);
    }

    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.line.digits(value);
    }

    pub(super) fn truth(&mut self, name: &str, value: bool) {
        self.name(name);
        self.line.truth_word(value);
    }

    fn name(&mut self, name: &str) {
        let begin: &[u8] = if std::mem::take(&mut self.is_empty) { b"\"" } else { b",\"" };
        self.line.json.extend_from_slice(begin);
        escape(&mut self.line.json, name);
        self.line.json.extend_from_slice(b"\":");
    }
}

/// Sink for formatted text that escapes it as the inside of a JSON string.
struct JsonEscaper<'a>(&'a mut Vec<u8>);

impl fmt::Write for JsonEscaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(self.0, text);
        Ok(())
    }
}

/// Appends `text` as the inside of a JSON string. Beside what JSON asks for, the rest of the control
/// characters is escaped: some terminals obey them.
fn escape(json: &mut Vec<u8>, text: &str) {
    if is_plain(text.as_bytes()) {
        json.extend_from_slice(text.as_bytes());
    } else {
        escape_each(json, text);
    }
}

#[cold]
fn escape_each(json: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        match character {
            '"' => json.extend_from_slice(b"\\\""),
            '\\' => json.extend_from_slice(b"\\\\"),
            '\n' => json.extend_from_slice(b"\\n"),
            control if control.is_control() => {
                // The last control character is U+009F.
                let code = u32::from(control);
                json.extend_from_slice(b"\\u00");
                for digit in [code >> 4, code & 0xf] {
                    let digit = char::from_digit(digit, 16).and_then(|it| u8::try_from(it).ok());
                    json.push(digit.unwrap_or(b'0'));
                }
            }
            other => json.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// True if `text` needs no escapes in a JSON string: printable ASCII without a quote or a backslash. Looks at
/// eight bytes at a time.
fn is_plain(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let all = words.iter().fold(0, |all, word| all | special(u64::from_le_bytes(*word)));
    let plain = |byte: &u8| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    match text.last_chunk::<8>() {
        // The last eight bytes have the rest, and some that were looked at.
        Some(last) => all | special(u64::from_le_bytes(*last)) == 0,
        None => rest.iter().all(plain),
    }
}

/// Non-zero if one of eight bytes needs an escape. The upper bit of a byte is set for values below 0x20, from
/// 0x7f on, and for quotes and backslashes: subtracting from zero or a smaller value borrows.
fn special(word: u64) -> u64 {
    const UPPER: u64 = each(0x80);
    let below = |word: u64, bound: u8| word.wrapping_sub(each(bound)) & !word;
    let high = word | word.wrapping_add(each(1));
    let small = below(word, 0x20);
    let quote = below(word ^ each(b'"'), 1);
    let backslash = below(word ^ each(b'\\'), 1);
    (high | small | quote | backslash) & UPPER
}

/// Eight times this byte.
const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, a byte at a time.
    fn is_plain_by_byte(text: &[u8]) -> bool {
        text.iter().all(|byte| (0x20..0x7f).contains(byte) && *byte != b'"' && *byte != b'\\')
    }

    #[test]
    fn one_special_byte_is_found_in_any_place() {
        for length in 0..40 {
            assert!(is_plain(&vec![b'x'; length]), "{length} letters");
            for (at, byte) in (0..length).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
                for around in [b' ', b'!', b'#', b'[', b']', b'~'] {
                    let mut text = vec![around; length];
                    text[at] = byte;
                    assert_eq!(is_plain(&text), is_plain_by_byte(&text), "{byte} at {at}");
                }
            }
        }
    }
}
