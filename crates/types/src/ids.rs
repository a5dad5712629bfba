//! The names of things: accounts, keys, requests, holds and places in the journal.
//!
//! Each is an integer with a prefix in text. In binary formats (the journal) it is the integer, in
//! JSON the text.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::sync::Lazy;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::UnixMs;
use crate::secret::random_bytes;

/// A record's place in the journal, counted from 1. Zero stands before the first record.
pub type Seq = u64;

/// A node of a fleet. Its journal begins behind [`NodeId::begin`], so no two nodes have a place, and
/// so a hold, in common.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct NodeId(u16);

/// The bits of a [`Seq`] that count a node's own records: some 280 million million.
const SEQ_BITS: u32 = 48;

impl NodeId {
    /// A gateway that is in no fleet, and what was moved into one from such a gateway.
    pub const SINGLE: Self = Self(0);
    /// Positions in the fleet's directory: no node has this number.
    pub const DIRECTORY: Self = Self(0x7fff);

    /// The node of this number, which is above zero and below [`NodeId::DIRECTORY`].
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Some(Self(number)).filter(|node| Self::SINGLE < *node && *node < Self::DIRECTORY)
    }

    /// The number of the node in its fleet.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The node whose journal has this place.
    #[must_use]
    pub fn of(seq: Seq) -> Self {
        Self(u16::try_from(seq >> SEQ_BITS).unwrap_or(u16::MAX))
    }

    /// Number of records that the node of this sequence number has made up to it.
    #[must_use]
    pub fn count(seq: Seq) -> u64 {
        seq.saturating_sub(Self::of(seq).begin())
    }

    /// Position before the node's first record.
    #[must_use]
    pub fn begin(self) -> Seq {
        Seq::from(self.0) << SEQ_BITS
    }

    /// Last possible position of the node.
    #[must_use]
    pub fn end(self) -> Seq {
        self.begin() | ((1 << SEQ_BITS) - 1)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// Fault of a text that is no id of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseIdError {
    prefix: &'static str,
    digits: usize,
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected \"{}\" and {} lower-case hex digits", self.prefix, self.digits)
    }
}

impl std::error::Error for ParseIdError {}

/// Two digits for each byte.
const DIGITS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 0xf]];
        byte += 1;
    }
    pairs
};

/// `prefix` and two digits a byte, which together have this length. An id is written several times a
/// request; the formatting of `core` takes thirty times as long.
#[inline]
fn hex_text<const LENGTH: usize>(prefix: &str, bytes: &[u8]) -> [u8; LENGTH] {
    let mut text = [0; LENGTH];
    let (head, tail) = text.split_at_mut(prefix.len());
    head.copy_from_slice(prefix.as_bytes());
    let (pairs, _) = tail.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(bytes) {
        *pair = DIGITS[usize::from(*byte)];
    }
    text
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty), $prefix:literal, $digits:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($int);

        impl $name {
            /// The id with this number.
            #[must_use]
            pub const fn from_number(number: $int) -> Self {
                Self(number)
            }

            /// The number that the id is written with.
            #[must_use]
            pub const fn number(self) -> $int {
                self.0
            }

            /// Its text, all of which is ASCII: what [`Display`](fmt::Display) shows, for those who write
            /// bytes.
            #[must_use]
            pub fn ascii(self) -> [u8; $prefix.len() + $digits] {
                hex_text($prefix, &self.0.to_be_bytes())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(std::str::from_utf8(&self.ascii()).unwrap_or_default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let error = ParseIdError { prefix: $prefix, digits: $digits };
                let hex = text.strip_prefix($prefix).ok_or(error)?;
                // Exactly one text per id, so that an id in a log or a URL compares as text.
                let canonical = hex.len() == $digits
                    && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if !canonical {
                    return Err(error);
                }
                <$int>::from_str_radix(hex, 16).map(Self).map_err(|_| error)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let pattern = format!("^{}[0-9a-f]{{{}}}$", $prefix, $digits);
                schemars::json_schema!({ "type": "string", "pattern": pattern })
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    <$int>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

id!(
    /// A customer's account, `acct_` and 16 hex digits. Random.
    AccountId(u64), "acct_", 16
);
id!(
    /// A customer's API key, `key_` and 16 hex digits. Random, and no secret.
    KeyId(u64), "key_", 16
);
id!(
    /// One customer request, `req_` and 32 hex digits. Ordered by time.
    RequestId(u128), "req_", 32
);
id!(
    /// A hold, `hold_` and 16 hex digits: the [`Seq`] of the record that made it.
    HoldId(u64), "hold_", 16
);

id!(
    /// A task, `gt_` and 32 hex digits. Random, so that nobody can guess one.
    TaskId(u128), "gt_", 32
);

id!(
    /// A code to redeem or to sign up with, `code_` and 16 hex digits. Random, and no secret.
    CodeId(u64), "code_", 16
);

id!(
    /// A write of a fleet's directory, `write_` and 32 hex digits. Random: it is made once.
    WriteId(u128), "write_", 32
);

macro_rules! random {
    ($($name:ident($int:ty)),+) => {
        $(impl $name {
            /// A new random id.
            #[must_use]
            pub fn random() -> Self {
                Self(<$int>::from_le_bytes(random_bytes()))
            }
        })+
    };
}

random!(AccountId(u64), KeyId(u64), TaskId(u128), CodeId(u64), WriteId(u128));

impl AccountId {
    /// The gateway's own account, which is in every ledger: what is no customer's belongs to it, such
    /// as codes. It has no money and no keys, and is never listed.
    pub const OPERATOR: Self = Self(0);
}

/// Distinguishes this process's request ids from those of other processes started in the same
/// millisecond.
static PROCESS: Lazy<u32> = Lazy::new(|| u32::from_le_bytes(random_bytes()));

/// Requests named so far by this process.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

impl RequestId {
    /// A new id: 48 bits of milliseconds since 1970, 32 bits of this process, 48 bits of a counter.
    /// Costs one clock reading and one atomic addition.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "every call gives another id")]
    pub fn new() -> Self {
        const BITS_48: u128 = (1 << 48) - 1;
        let time_ms = u128::from(UnixMs::now().0) & BITS_48;
        let count = u128::from(REQUESTS.fetch_add(1, Ordering::Relaxed)) & BITS_48;
        Self(time_ms << 80 | u128::from(*PROCESS) << 48 | count)
    }

    /// Time of the creation.
    #[must_use]
    pub fn began_at(self) -> UnixMs {
        UnixMs(u64::try_from(self.0 >> 80).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_text() {
        let id = AccountId::from_number(0xabc);
        assert_eq!(id.to_string(), "acct_0000000000000abc");
        assert_eq!(&id.ascii(), b"acct_0000000000000abc");
        assert_eq!("acct_0000000000000abc".parse(), Ok(id));
        for wrong in
            ["acct_abc", "key_0000000000000abc", "acct_0000000000000ABC", "acct_+00000000000abc"]
        {
            assert!(wrong.parse::<AccountId>().is_err(), "{wrong:?} was accepted");
        }
        assert_eq!(serde_json::to_string(&id).expect("serializes"), "\"acct_0000000000000abc\"");
        let bytes = postcard::to_stdvec(&id).expect("encodes");
        assert_eq!(bytes, [0xbc, 0x15], "the varint of the number");
        assert_eq!(postcard::from_bytes(&bytes), Ok(id));
    }

    #[test]
    fn request_ids_differ_and_ascend() {
        let ids: Vec<RequestId> = (0..1000).map(|_| RequestId::new()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "ids must ascend with time");
        assert_eq!(ids[0].to_string().len(), "req_".len() + 32);
    }
}
