//! Finds the top-level `usage` and `error` of a JSON response while it streams past, holding nothing
//! else, and counts the objects in `data`.
//!
//! An embeddings response can be tens of megabytes of numbers, and `usage` stands behind them.

use super::json;

/// The longest `usage` value that is kept. Real ones are below 1 KiB.
const USAGE_BYTES_MAX: usize = 64 * 1024;
/// The bytes of an `error` that are kept: enough to tell it from `null`.
const ERROR_BYTES_MAX: usize = 8;
/// Objects with one key twice are read as their first or their last by different parsers: so many are
/// kept.
const USAGES_MAX: usize = 4;
/// The longest top-level key that is compared.
const KEY_BYTES_MAX: usize = 32;

/// A reader of one JSON object that is fed in pieces.
#[derive(Debug, Default)]
pub struct UsageScan {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// At the top level, the next string is a key.
    key_next: bool,
    key: Vec<u8>,
    in_key: bool,
    captured: Captured,
    usage: Vec<u8>,
    /// Those that stood before it.
    earlier_usages: Vec<Vec<u8>>,
    error: Vec<u8>,
    data_items: u64,
    text_bytes: u64,
    output_bytes: u64,
    started: bool,
    done: bool,
    broken: bool,
}

/// The top-level member that is being read, if it is one to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Captured {
    #[default]
    Nothing,
    Usage,
    Error,
    Data,
    Output,
}

impl UsageScan {
    /// Takes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while !rest.is_empty() {
            let read = if self.in_string { self.in_string(rest) } else { self.outside(rest) };
            rest = rest.get(read..).unwrap_or_default();
        }
    }

    /// Whether exactly one whole object was fed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.done && !self.broken
    }

    /// The text of the last top-level `usage`, once the object is whole.
    #[must_use]
    pub fn usage(&self) -> Option<&[u8]> {
        let whole = self.is_whole() && self.usage.len() <= USAGE_BYTES_MAX;
        Some(self.usage.as_slice()).filter(|usage| whole && !usage.is_empty())
    }

    /// The texts of all top-level `usage`, once the object is whole.
    pub fn usages(&self) -> impl Iterator<Item = &[u8]> {
        let earlier = self.earlier_usages.iter().filter(|_| self.is_whole());
        earlier
            .map(Vec::as_slice)
            .filter(|usage| usage.len() <= USAGE_BYTES_MAX)
            .chain(self.usage())
    }

    /// Whether there is a top-level `error` that is not `null`.
    #[must_use]
    pub fn has_error(&self) -> bool {
        !self.error.is_empty() && self.error != b"null"
    }

    /// How many objects the top-level `data` has so far.
    #[must_use]
    pub fn data_items(&self) -> u64 {
        self.data_items
    }

    /// Bytes inside string values: what an estimate of the output goes by.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Bytes inside string values of what the answer is about: its `choices`, `content` or `output`.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// Reads bytes outside strings up to the quote that begins the next one, and says how many.
    fn outside(&mut self, bytes: &[u8]) -> usize {
        // Where in `bytes` the part of `usage` begins that is not kept yet.
        let mut from = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b'"' => {
                    self.broken |= self.depth == 0;
                    self.in_string = true;
                    self.in_key = std::mem::take(&mut self.key_next);
                    self.capture(bytes.get(from..=at).unwrap_or_default());
                    return at + 1;
                }
                b'{' | b'[' => {
                    self.broken |= self.done || (!self.started && byte == b'[');
                    self.started = true;
                    let is_item = self.captured == Captured::Data && self.depth == 2;
                    self.data_items += u64::from(is_item && byte == b'{');
                    self.depth += 1;
                    self.key_next = self.depth == 1;
                }
                b',' | b'}' | b']' if self.depth == 1 => {
                    self.capture(bytes.get(from..at).unwrap_or_default());
                    self.captured = Captured::Nothing;
                    self.key_next = byte == b',';
                    self.done = byte != b',';
                    self.depth = u32::from(byte == b',');
                }
                b'}' | b']' => {
                    self.broken |= self.depth == 0;
                    self.depth = self.depth.saturating_sub(1);
                }
                b':' if self.depth == 1 && !self.key.is_empty() => {
                    self.captured = match self.key.as_slice() {
                        b"usage" => Captured::Usage,
                        b"error" => Captured::Error,
                        b"data" => Captured::Data,
                        b"choices" | b"content" | b"output" => Captured::Output,
                        _ => Captured::Nothing,
                    };
                    if self.captured == Captured::Usage {
                        self.begin_usage();
                    }
                    from = at + 1;
                    self.key.clear();
                }
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => self.broken |= self.depth == 0,
            }
        }
        self.capture(bytes.get(from..).unwrap_or_default());
        bytes.len()
    }

    /// Reads bytes inside a string up to the next that is no plain text, and says how many.
    fn in_string(&mut self, bytes: &[u8]) -> usize {
        if std::mem::take(&mut self.escaped) {
            self.string_text(bytes.get(..1).unwrap_or_default());
            return 1;
        }
        let length = json::plain_text_end(bytes, 0);
        let read = bytes.get(..=length).unwrap_or(bytes);
        if !self.in_key && !matches!(self.captured, Captured::Usage | Captured::Error) {
            self.text_bytes += length as u64;
            let is_output = self.captured == Captured::Output;
            self.output_bytes += if is_output { length as u64 } else { 0 };
        }
        match bytes.get(length) {
            Some(b'"') => {
                self.capture(read);
                if self.in_key {
                    self.take_key(bytes.get(..length).unwrap_or_default());
                }
                self.in_string = false;
                self.in_key = false;
            }
            end => {
                self.string_text(read);
                self.escaped = end == Some(&b'\\');
            }
        }
        read.len()
    }

    fn begin_usage(&mut self) {
        let earlier = std::mem::take(&mut self.usage);
        if !earlier.is_empty() && self.earlier_usages.len() < USAGES_MAX {
            self.earlier_usages.push(earlier);
        }
    }

    fn string_text(&mut self, text: &[u8]) {
        self.capture(text);
        if self.in_key {
            self.take_key(text);
        }
    }

    fn take_key(&mut self, text: &[u8]) {
        let room = KEY_BYTES_MAX.saturating_sub(self.key.len());
        self.key.extend_from_slice(text.get(..room).unwrap_or(text));
    }

    /// Keeps `bytes` if they belong to what is kept. Of `usage` no more than the limit and one run,
    /// so that the length tells that it was too long.
    fn capture(&mut self, bytes: &[u8]) {
        match self.captured {
            Captured::Usage if self.usage.len() <= USAGE_BYTES_MAX => {
                self.usage.extend_from_slice(bytes);
            }
            Captured::Error => {
                let text = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
                let room = ERROR_BYTES_MAX.saturating_sub(self.error.len());
                self.error.extend(text.take(room));
            }
            Captured::Usage | Captured::Data | Captured::Output | Captured::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(pieces: &[&[u8]]) -> UsageScan {
        let mut scan = UsageScan::default();
        for piece in pieces {
            scan.feed(piece);
        }
        scan
    }

    #[test]
    fn only_the_top_level_usage_counts() {
        let text = br#"{"choices":[{"usage":{"no":1},"text":"\"usage\":{}"}], "usage" : {"a":[1,{"b":"}"}]} ,"x":"usage"}"#;
        let scanned = scan(&[text]);
        assert_eq!(scanned.usage().map(<[u8]>::trim_ascii), Some(&br#"{"a":[1,{"b":"}"}]}"#[..]));
    }

    #[test]
    fn every_usage_of_one_object_is_seen() {
        let text =
            br#"{"usage":{"a":1},"choices":["four"],"usage" : null,"usage":{"a":2},"id":"x"}"#;
        let scanned = scan(&[&text[..9], &text[9..30], &text[30..]]);
        let seen: Vec<&[u8]> = scanned.usages().map(<[u8]>::trim_ascii).collect();
        assert_eq!(seen, [&br#"{"a":1}"#[..], b"null", br#"{"a":2}"#]);
        assert_eq!((scanned.output_bytes(), scanned.text_bytes()), (4, 5));
        assert_eq!(scan(&[&text[..50]]).usages().count(), 0, "not whole");
    }

    #[test]
    fn an_error_that_is_not_null_is_seen() {
        let seen = |text: &str| scan(&[text.as_bytes()]).has_error();
        assert!(seen(r#"{"error":{"message":"no"}}"#) && seen(r#"{"a":1,"error" : "no"}"#));
        assert!(!seen(r#"{"error":null}"#) && !seen(r#"{"error" : null ,"a":1}"#));
        assert!(!seen(r#"{"choices":[{"error":1}]}"#) && !seen("{}"));
    }

    #[test]
    fn the_objects_in_data_are_counted() {
        let count = |text: &str| scan(&[text.as_bytes()]).data_items();
        assert_eq!(count(r#"{"data":[{"a":{"b":[{}]}}, {"c":"},{"} ],"x":[{}]}"#), 2);
        assert_eq!(count(r#"{"data":[],"usage":{"data":[{}]}}"#), 0);
        assert_eq!(count(r#"{"data":[[{}],1]}"#), 0, "only objects in the list itself");
    }

    #[test]
    fn what_is_not_one_whole_object_has_no_usage() {
        for text in ["", "{\"usage\":{}", "[]", "{\"usage\":1}x", "<html>", "{\"usage\":1}{", "}"] {
            let scanned = scan(&[text.as_bytes()]);
            assert!(!scanned.is_whole() && scanned.usage().is_none(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn cutting_changes_nothing(cut in 0usize..80, cut2 in 0usize..80) {
            let text = br#"{"id":"a\\\"b","usage":{"prompt_tokens":1,"s":"\\"},"data":[1.5,{"usage":2}]}"#;
            let (a, b) = (cut.min(cut2).min(text.len()), cut.max(cut2).min(text.len()));
            let pieces = scan(&[&text[..a], &text[a..b], &text[b..]]);
            let whole = scan(&[text]);
            prop_assert!(pieces.is_whole());
            prop_assert_eq!(pieces.usage(), whole.usage());
            prop_assert_eq!(whole.usage(), Some(&br#"{"prompt_tokens":1,"s":"\\"}"#[..]));
        }
    }
}
