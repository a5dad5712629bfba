//! A file in base64, of which only the bytes that somebody looks at are decoded.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 of either padding, as customers of any dialect write it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The value of each letter of base64, in the standard alphabet and in that of URLs.
static VALUES: [Option<u8>; 256] = {
    let mut values = [None; 256];
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut value = 0;
    while value < 64 {
        values[letters[value as usize] as usize] = Some(value);
        value += 1;
    }
    values[b'-' as usize] = Some(62);
    values[b'_' as usize] = Some(63);
    values
};

/// A file in base64 of either alphabet, with or without padding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineBytes<'a> {
    letters: &'a [u8],
}

impl<'a> InlineBytes<'a> {
    pub(crate) fn new(letters: &'a [u8]) -> Self {
        Self { letters }
    }

    /// Decodes the whole file; empty if it is not base64.
    pub(crate) fn decode(&self) -> Vec<u8> {
        let is_url_safe = memchr::memchr2(b'-', b'_', self.letters).is_some();
        if !is_url_safe {
            return BASE64.decode(self.letters).unwrap_or_default();
        }
        let standard = |letter: &u8| match letter {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        };
        BASE64.decode(self.letters.iter().map(standard).collect::<Vec<u8>>()).unwrap_or_default()
    }

    /// The letters of the file.
    pub(crate) fn letters(&self) -> usize {
        self.letters.len()
    }

    /// The bytes from a position on; `None` where there are fewer, or a letter that base64 does not have.
    pub(crate) fn read<const N: usize>(&self, position: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(position.checked_add(index)?)?;
        }
        Some(bytes)
    }

    /// Decodes one byte from the two letters that contain its bits.
    pub(crate) fn byte(&self, position: usize) -> Option<u8> {
        let letter = (position / 3).checked_mul(4)?.checked_add(position % 3)?;
        let value = |letter: usize| VALUES[usize::from(*self.letters.get(letter)?)];
        let (left, right) = (value(letter)?, value(letter + 1)?);
        Some(match position % 3 {
            0 => left << 2 | right >> 4,
            1 => left << 4 | right >> 2,
            _ => left << 6 | right,
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_byte_is_read_from_any_spelling_of_base64(
            file in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            for text in [STANDARD.encode(&file), STANDARD_NO_PAD.encode(&file), URL_SAFE.encode(&file)] {
                let bytes = InlineBytes::new(text.as_bytes());
                let read: Vec<u8> = (0..).map_while(|at| bytes.byte(at)).collect();
                prop_assert_eq!(&read, &file);
                prop_assert_eq!(bytes.decode(), &file[..]);
            }
        }
    }

    #[test]
    fn letters_that_base64_does_not_have_are_no_bytes() {
        let bytes = InlineBytes::new(b"AA A");
        assert_eq!(bytes.read::<1>(0), Some([0]));
        assert_eq!(bytes.read::<2>(0), None);
        assert_eq!(bytes.byte(usize::MAX), None);
    }
}
