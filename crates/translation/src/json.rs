//! Reading and writing JSON without losing bytes that must stay as they are.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Reads a value of this type; `None` for what is none.
pub(crate) fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Reads a document of this type. That it is UTF-8 is checked once, and not again with each text in it.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, serde_json::Error> {
    match std::str::from_utf8(text) {
        Ok(text) => serde_json::from_str(text),
        // For an error of the same type, with line and column. It lets such bytes pass where nothing reads them.
        Err(_) => serde_json::from_slice(text),
    }
}

/// The text of a value that is a string.
pub(crate) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    read::<BorrowedStr<'_>>(value.get()).map(|text| text.0)
}

/// A string that is borrowed where it has no escapes. A `Cow` behind an `Option` or in a `Vec` never is.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct BorrowedStr<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A string, or nothing if the value has another type.
#[derive(Clone, Debug, Default)]
pub(crate) struct MaybeText<'a>(pub(crate) Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for MaybeText<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl<'de> Visitor<'de> for AnyValue {
            type Value = Option<Cow<'de, str>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                // The parser must stand behind the array afterwards, so all of it is read.
                while all.next_element::<IgnoredAny>()?.is_some() {}
                Ok(None)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                while all.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(None)
            }
        }
        reader.deserialize_any(AnyValue).map(Self)
    }
}

/// The member `type` of an object, regardless of its other members.
pub(crate) fn kind(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct TypeMember {
        #[serde(rename = "type")]
        kind: String,
    }
    read::<TypeMember>(text).map(|typed| typed.kind)
}

/// Writes a string with its quotes.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    if !needs_escapes(text.as_bytes()) {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    // A string is always valid JSON, and a vector takes all.
    drop(serde_json::to_writer(out, text));
}

/// True if a text must be escaped inside quotes. Every byte is checked without a branch, so the compiler
/// vectorizes the loop.
fn needs_escapes(text: &[u8]) -> bool {
    text.iter()
        .fold(false, |found, byte| found | (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\'))
}

/// Writes a number as short as it can be read back.
pub(crate) fn push_number(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(number.to_string().as_bytes());
}

/// An object or an array that is being written: it knows where commas go.
#[derive(Debug)]
pub(crate) struct Members {
    is_first: bool,
    close: u8,
}

impl Members {
    /// Begins an object at the end of `out`.
    pub(crate) fn object(out: &mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { is_first: true, close: b'}' }
    }

    /// Begins an array at the end of `out`.
    pub(crate) fn array(out: &mut Vec<u8>) -> Self {
        out.push(b'[');
        Self { is_first: true, close: b']' }
    }

    /// The place of the next element of an array.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.is_first) {
            out.push(b',');
        }
    }

    /// The key of the next member of an object, whose value the caller writes. The key needs no escape.
    pub(crate) fn key(&mut self, out: &mut Vec<u8>, key: &str) {
        self.next(out);
        out.push(b'"');
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
    }

    /// A member whose value is a string.
    pub(crate) fn text(&mut self, out: &mut Vec<u8>, key: &str, value: &str) {
        self.key(out, key);
        push_string(out, value);
    }

    /// A member whose value is JSON already.
    pub(crate) fn raw(&mut self, out: &mut Vec<u8>, key: &str, value: &str) {
        self.key(out, key);
        out.extend_from_slice(value.as_bytes());
    }

    /// A member whose value is an integer.
    pub(crate) fn integer(&mut self, out: &mut Vec<u8>, key: &str, value: u64) {
        self.raw(out, key, &value.to_string());
    }

    /// A member whose value is a boolean.
    pub(crate) fn boolean(&mut self, out: &mut Vec<u8>, key: &str, value: bool) {
        self.raw(out, key, if value { "true" } else { "false" });
    }

    /// Ends the object or the array.
    pub(crate) fn end(self, out: &mut Vec<u8>) {
        out.push(self.close);
    }
}
