//! The name of a price: a hash of all that it says, so that the same price has the same name everywhere.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Bytes of the hash that are kept. Of ten thousand prices two have the same with a chance of one in
/// five million.
const BYTES: usize = 6;
/// Letters of it as text.
const LETTERS: usize = 8;

/// The version of a price, eight letters as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String", extend("pattern" = "^[A-Za-z0-9_-]{8}$"))]
pub struct PriceVersion([u8; BYTES]);

impl PriceVersion {
    /// The version of the price that this text is all of.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let mut bytes = [0; BYTES];
        for (byte, hashed) in bytes.iter_mut().zip(hash) {
            *byte = hashed;
        }
        Self(bytes)
    }

    /// The bytes that name it in rows.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
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
        bytes.try_into().map(Self).map_err(|_| ())
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
        for text in ["", "short", "far too long", "néàé", "++++++++"] {
            assert_eq!(text.parse::<PriceVersion>(), Err(()), "{text}");
        }
    }
}
