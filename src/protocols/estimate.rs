//! Token counts without a tokenizer, for when an upstream reports none.
//!
//! Models differ in their tokenizers, so even the right one for one model is an estimate for the
//! next. The rule of thumb that providers publish is about four characters of English to a token;
//! scripts outside ASCII come out near one token a character. What is billed this way is always
//! marked `usage_source: estimated` and never exceeds the hold.

/// ASCII characters to one token.
const ASCII_PER_TOKEN: u64 = 4;

/// Runs of base64 letters of this length are no words of any language.
const MEDIA_BYTES_MIN: usize = 1024;

fn is_base64(text: &[u8]) -> bool {
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() | matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
    // Without an early end the compiler looks at many bytes at a time.
    let all = |some: &[u8]| some.iter().fold(true, |all, &byte| all & is_letter(byte));
    text.chunks(4096).all(all)
}

/// The size of a text, as far as an estimate needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSize {
    ascii: u64,
    other: u64,
}

impl TextSize {
    /// Measures UTF-8 text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let (mut ascii, mut other) = (0, 0);
        // The compiler looks at many bytes at a time as long as their sum fits a byte.
        for some in text.chunks(usize::from(u8::MAX)) {
            ascii += u64::from(some.iter().map(|byte| u8::from(*byte < 0x80)).sum::<u8>());
            other += u64::from(some.iter().map(|byte| u8::from(*byte >= 0xC0)).sum::<u8>());
        }
        Self { ascii, other }
    }

    /// Measures JSON without the strings that hold media: a picture in base64 has a thousandth of
    /// the tokens that so many letters would have.
    #[must_use]
    pub fn of_strings(json: &[u8]) -> Self {
        let mut size = Self::default();
        for string in json.split(|byte| *byte == b'"') {
            let data = memchr::memmem::find(string, b";base64,").map_or(0, |at| at + 8);
            let (before, data) = string.split_at_checked(data).unwrap_or((string, &[]));
            size.add(Self::of(before));
            if data.len() < MEDIA_BYTES_MIN || !is_base64(data) {
                size.add(Self::of(data));
            }
        }
        size
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_counts_in_fours_and_other_scripts_by_character() {
        assert_eq!(TextSize::of(b"").tokens(), 0);
        assert_eq!(TextSize::of(b"hello").tokens(), 2);
        assert_eq!(TextSize::of("你好吗".as_bytes()).tokens(), 3);
        let picture =
            format!(r#"{{"url":"data:image/png;base64,{}","a":"b"}}"#, "A1b+".repeat(9999));
        let words = r#"{url:data:image/png;base64,,a:b}"#;
        assert_eq!(TextSize::of_strings(picture.as_bytes()), TextSize::of(words.as_bytes()));
        assert_eq!(TextSize::of("é".repeat(300).as_bytes()).tokens(), 300, "over several sums");
    }
}
