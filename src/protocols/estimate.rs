//! Token counts without a tokenizer, for when an upstream reports none.
//!
//! Models differ in their tokenizers, so even the right one for one model is an estimate for the
//! next. The rule of thumb that providers publish is about four characters of English to a token;
//! scripts outside ASCII come out near one token a character. What is billed this way is always
//! marked `usage_source: estimated` and never exceeds the hold.

use serde::de::{Deserialize, Deserializer, Visitor};
use std::fmt;

/// ASCII characters to one token.
const ASCII_PER_TOKEN: u64 = 4;

/// The size of a text, as far as an estimate needs it. As a serde field it takes any value, and
/// measures a string without keeping it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSize {
    ascii: u64,
    other: u64,
}

impl TextSize {
    /// Measures UTF-8 text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let other_bytes = text.iter().filter(|byte| **byte >= 0x80).count();
        let other_chars = text.iter().filter(|byte| **byte >= 0xC0).count();
        Self { ascii: (text.len() - other_bytes) as u64, other: other_chars as u64 }
    }

    /// A text of which only the number of bytes is known.
    #[must_use]
    pub fn of_ascii(bytes: u64) -> Self {
        Self { ascii: bytes, other: 0 }
    }

    /// Adds another text.
    pub fn add(&mut self, more: Self) {
        self.ascii = self.ascii.saturating_add(more.ascii);
        self.other = self.other.saturating_add(more.other);
    }

    /// True for no text.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.ascii == 0 && self.other == 0
    }

    /// The estimated number of tokens, rounded up.
    #[must_use]
    pub fn tokens(self) -> u64 {
        self.ascii.div_ceil(ASCII_PER_TOKEN).saturating_add(self.other)
    }
}

impl<'de> Deserialize<'de> for TextSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Measure;
        impl<'de> Visitor<'de> for Measure {
            type Value = TextSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or null")
            }
            fn visit_str<E>(self, text: &str) -> Result<TextSize, E> {
                Ok(TextSize::of(text.as_bytes()))
            }
            fn visit_unit<E>(self) -> Result<TextSize, E> {
                Ok(TextSize::default())
            }
        }
        deserializer.deserialize_any(Measure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_counts_in_fours_and_other_scripts_by_character() {
        assert_eq!(TextSize::of(b"").tokens(), 0);
        assert_eq!(TextSize::of(b"hello").tokens(), 2);
        assert_eq!(TextSize::of("你好吗".as_bytes()).tokens(), 3);
        let parsed: TextSize = serde_json::from_str(r#""a\nbcd""#).expect("string");
        assert_eq!(parsed.tokens(), 2);
        assert!(serde_json::from_str::<TextSize>("null").expect("null").is_empty());
    }
}
