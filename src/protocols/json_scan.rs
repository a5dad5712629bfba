//! Finds the top-level `usage` of a JSON response while it streams past, holding nothing else.
//!
//! An embeddings response can be tens of megabytes of numbers, and `usage` stands behind them.

/// The longest `usage` value that is kept. Real ones are below 1 KiB.
const USAGE_BYTES_MAX: usize = 64 * 1024;
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
    capturing: bool,
    usage: Vec<u8>,
    text_bytes: u64,
    started: bool,
    done: bool,
    broken: bool,
}

impl UsageScan {
    /// Takes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            if self.in_string && !self.escaped && !self.in_key && !self.capturing {
                let rest = piece.get(at..).unwrap_or_default();
                let plain = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                self.text_bytes += plain as u64;
                at += plain;
                if plain > 0 {
                    continue;
                }
            }
            self.byte(byte);
            at += 1;
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

    /// Bytes inside string values: what an estimate of the output goes by.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            self.string_byte(byte);
            return;
        }
        let ends_value = self.depth == 1 && matches!(byte, b',' | b'}');
        if self.capturing && ends_value {
            self.capturing = false;
        }
        self.capture(byte);
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ if self.done => self.broken = true,
            b'{' | b'[' => {
                self.broken |= !self.started && byte == b'[';
                self.started = true;
                self.depth += 1;
                self.key_next = self.depth == 1;
            }
            b'}' | b']' => {
                self.broken |= self.depth == 0;
                self.depth = self.depth.saturating_sub(1);
                self.done = self.depth == 0;
            }
            b',' => self.key_next = self.depth == 1,
            b':' if self.depth == 1 && !self.key.is_empty() => {
                self.capturing = self.key == b"usage";
                if self.capturing {
                    self.usage.clear();
                }
                self.key.clear();
            }
            b'"' => {
                self.broken |= self.depth == 0;
                self.in_string = true;
                self.in_key = std::mem::take(&mut self.key_next);
            }
            _ => self.broken |= self.depth == 0,
        }
    }

    fn string_byte(&mut self, byte: u8) {
        self.capture(byte);
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_string = false;
                self.in_key = false;
                return;
            }
            _ => {}
        }
        if self.in_key && self.key.len() < KEY_BYTES_MAX {
            self.key.push(byte);
        }
    }

    fn capture(&mut self, byte: u8) {
        if self.capturing && self.usage.len() <= USAGE_BYTES_MAX {
            self.usage.push(byte);
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
