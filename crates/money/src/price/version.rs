//! The name of a price: a hash of all that it says, so that the same price has the same name everywhere.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Bytes of the hash that are kept, without their first bit. Of ten thousand prices two have the same
/// with a chance of one in three million.
const BYTES: usize = 6;
/// Number of characters as text.
const LETTERS: usize = 8;

/// The version of a price, eight letters as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String", extend("pattern" = "^[A-Za-f][A-Za-z0-9_-]{7}$"))]
pub struct PriceVersion([u8; BYTES]);

impl PriceVersion {
    /// ASCII characters that it can be written as behind a name: see [`Self::characters`].
    pub const CHARACTERS: usize = 7;

    /// The version of the price that this text is all of.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let mut bytes = [0; BYTES];
        for (byte, hashed) in bytes.iter_mut().zip(hash) {
            *byte = hashed;
        }
        // The first of the seven characters must be a control character, which leaves it five bits: 47
        // in all.
        bytes[0] &= 0x7f;
        Self(bytes)
    }

    /// The bytes that name it in rows.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its 47 bits as ASCII: five in a control character, which no name has, and seven in each of the
    /// six that follow.
    #[must_use]
    pub fn characters(self) -> [u8; Self::CHARACTERS] {
        let [a, b, c, d, e, f] = self.0;
        let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let seven = |shift: u32| (number >> shift).to_be_bytes()[7] & 0x7f;
        [seven(42), seven(35), seven(28), seven(21), seven(14), seven(7), seven(0)]
    }

    /// The version that is written as these characters; `None` where the first is no control character.
    #[must_use]
    pub fn from_characters(characters: [u8; Self::CHARACTERS]) -> Option<Self> {
        if characters[0] >= 0x20 {
            return None;
        }
        let number = characters.iter().fold(0, |number, one| number << 7 | u64::from(one & 0x7f));
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Some(Self([a, b, c, d, e, f]))
    }
}

impl fmt::Display for PriceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters = [0; LETTERS];
        let written = URL_SAFE_NO_PAD.encode_slice(self.0, &mut letters);
        written.map_err(|_| fmt::Error)?;
        f.write_str(str::from_utf8(&letters).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for PriceVersion {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| ())?;
        let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| ())?;
        // Such letters name no version; read, they would come back as other ones.
        if bytes[0] < 0x80 { Ok(Self(bytes)) } else { Err(()) }
    }
}

impl Serialize for PriceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for PriceVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            text.parse().map_err(|()| serde::de::Error::custom("no version of a price"))
        } else {
            <[u8; BYTES]>::deserialize(deserializer).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_eight_letters_and_read_as_it_is_written() {
        let version = PriceVersion::from_text("a price");
        let text = version.to_string();
        assert_eq!((text.len(), text.parse()), (LETTERS, Ok(version)));
        assert_ne!(PriceVersion::from_text("another"), version);
        for text in ["", "short", "far too long", "néàé", "++++++++", "zzzzzzzz"] {
            assert_eq!(text.parse::<PriceVersion>(), Err(()), "{text}");
        }
    }

    #[test]
    fn its_characters_are_no_name_and_read_as_they_are_written() {
        for number in 0..10_000 {
            let version = PriceVersion::from_text(&number.to_string());
            let characters = version.characters();
            assert!(characters[0].is_ascii_control() && characters.is_ascii(), "{characters:?}");
            assert_eq!(PriceVersion::from_characters(characters), Some(version));
        }
        assert_eq!(PriceVersion::from_characters(*b"o4-mini"), None);
    }
}
