//! Values that must not be printed, and the customer's API key.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Prefix of every customer key (spec section 5).
pub const API_KEY_PREFIX: &str = "sk-";
/// Random bytes in a customer key: 256 bits, so a plain SHA-256 is enough to store it by.
const API_KEY_BYTES: usize = 32;

/// Prefix of every code for credit or sign-up.
pub const CODE_PREFIX: &str = "tg-";
/// Random bytes in a code: 128 bits. It is typed by hand, and worth less than a key.
const CODE_BYTES: usize = 16;

/// A text that `Debug` masks: upstream credentials, the admin token, a new API key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`, which is neither shown nor logged from here on.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value itself, for the one place that sends or compares it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares without a shortcut: both sides are hashed first, so time says nothing of the value.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        Sha256::digest(self.0.as_bytes()) == Sha256::digest(candidate)
    }

    /// A new random customer key: `sk-` and 43 characters of URL-safe base64.
    ///
    /// # Panics
    /// When the operating system has no randomness to give; no key may be made then.
    #[must_use]
    pub fn new_api_key() -> Self {
        Self(format!("{API_KEY_PREFIX}{}", random_text()))
    }

    /// A new random code for customers to type: `tg-` and 26 characters of lower-case base32.
    ///
    /// # Panics
    /// When the operating system has no randomness to give.
    #[must_use]
    pub fn new_code() -> Self {
        Self(format!("{CODE_PREFIX}{}", base32(&random_bytes::<CODE_BYTES>())))
    }

    /// A new random token without a prefix, for the admin API.
    ///
    /// # Panics
    /// When the operating system has no randomness to give.
    #[must_use]
    pub fn new_token() -> Self {
        Self(random_text())
    }
}

fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<API_KEY_BYTES>())
}

/// Random bytes from the operating system.
///
/// # Panics
/// When the operating system has no randomness to give.
#[expect(
    clippy::expect_used,
    reason = "without randomness no secret, session or id may be made; there is no way on"
)]
#[must_use]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system's random source failed");
    bytes
}

/// Lower-case base32 (RFC 4648) without padding, whose letters are not confused with digits.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut text, mut bits, mut count) = (String::new(), 0_u32, 0_u32);
    for byte in bytes {
        (bits, count) = (bits << 8 | u32::from(*byte), count + 8);
        while count >= 5 {
            count -= 5;
            text.push(char::from(ALPHABET[(bits >> count & 31) as usize]));
        }
    }
    // 128 bits are no multiple of five: the last letter has three of them.
    if count > 0 {
        text.push(char::from(ALPHABET[(bits << (5 - count) & 31) as usize]));
    }
    text
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The SHA-256 of a customer's API key: the only form in which a key is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a presented key, whatever its bytes.
    #[must_use]
    pub fn of(presented: &[u8]) -> Self {
        Self(Sha256::digest(presented).into())
    }

    /// The 32 bytes of the SHA-256 hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Two bytes tell keys apart in a log, and are no use for looking one up.
        write!(f, "KeyHash({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_masks_a_secret() {
        let secret = Secret::new("hunter2-canary".to_owned());
        assert!(
            !format!("{secret:?} {:?}", Some(&secret)).contains("canary"),
            "Debug leaked the value"
        );
        assert!(secret.matches(b"hunter2-canary") && !secret.matches(b"hunter2"));
    }

    #[test]
    fn codes_are_base32_of_128_bits() {
        for (bytes, text) in [("", ""), ("f", "my"), ("foo", "mzxw6"), ("foobar", "mzxw6ytboi")] {
            assert_eq!(base32(bytes.as_bytes()), text, "RFC 4648 section 10, {bytes}");
        }
        let (one, two) = (Secret::new_code(), Secret::new_code());
        assert!(one.expose().starts_with(CODE_PREFIX) && one.expose().len() == 29);
        assert_ne!(one.expose(), two.expose());
    }

    #[test]
    fn api_keys_are_long_random_and_prefixed() {
        let (one, two) = (Secret::new_api_key(), Secret::new_api_key());
        assert!(
            one.expose().starts_with(API_KEY_PREFIX) && one.expose().len() == 46,
            "{}",
            one.expose()
        );
        assert_ne!(one.expose(), two.expose());
        assert_ne!(KeyHash::of(one.expose().as_bytes()), KeyHash::of(two.expose().as_bytes()));
    }
}
