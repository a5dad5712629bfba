//! Reading members of a customer's request, with the path to each of them for refusals.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::dialect::Untranslatable;
use crate::json;

/// A value of a request, as it was written.
pub(crate) type Raw<'a> = &'a RawValue;

/// The members of an object, in the order in which they were written.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, Raw<'a>)>;

/// Where in a request something stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldPath<'p> {
    up: Option<&'p FieldPath<'p>>,
    step: PathStep<'p>,
}

#[derive(Clone, Copy, Debug)]
enum PathStep<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

impl<'p> FieldPath<'p> {
    /// The path of the request itself.
    pub(crate) const ROOT: FieldPath<'static> = FieldPath { up: None, step: PathStep::Root };

    /// The member of this name.
    pub(crate) fn key(&'p self, key: &'p str) -> FieldPath<'p> {
        FieldPath { up: Some(self), step: PathStep::Key(key) }
    }

    /// The element at this place.
    pub(crate) fn index(&'p self, index: usize) -> FieldPath<'p> {
        FieldPath { up: Some(self), step: PathStep::Index(index) }
    }

    /// The refusal of something that other dialects have no words for.
    pub(crate) fn uncarried(&self) -> Untranslatable {
        Untranslatable::uncarried(self.to_string())
    }

    /// The refusal of something that is not what it should be, such as "a string".
    pub(crate) fn malformed(&self, wanted: &str) -> Untranslatable {
        Untranslatable::malformed(self.to_string(), wanted)
    }

    /// The value as a text.
    pub(crate) fn text<'a>(&self, value: Raw<'a>) -> Result<Cow<'a, str>, Untranslatable> {
        json::string(value).ok_or_else(|| self.malformed("a string"))
    }

    /// The value as `true` or `false`.
    pub(crate) fn boolean(&self, value: Raw<'_>) -> Result<bool, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("a boolean"))
    }

    /// The value as an integer from 0 up.
    pub(crate) fn count(&self, value: Raw<'_>) -> Result<u64, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("an integer from 0 up"))
    }

    /// The value as an integer.
    pub(crate) fn integer(&self, value: Raw<'_>) -> Result<i64, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("an integer"))
    }

    /// The value as a number.
    pub(crate) fn number(&self, value: Raw<'_>) -> Result<f64, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("a number"))
    }

    /// The elements of an array.
    pub(crate) fn list<'a>(&self, value: Raw<'a>) -> Result<Vec<Raw<'a>>, Untranslatable> {
        json::read(value.get()).ok_or_else(|| self.malformed("an array"))
    }

    /// The members of an object, of which none is there twice.
    pub(crate) fn object<'a>(&self, value: Raw<'a>) -> Result<Members<'a>, Untranslatable> {
        let Some(MemberList(members)) = json::read(value.get()) else {
            return Err(self.malformed("an object"));
        };
        for (place, (key, _)) in members.iter().enumerate() {
            if members.iter().take(place).any(|(earlier, _)| earlier == key) {
                return Err(self.key(key).malformed("there once"));
            }
        }
        Ok(members)
    }

    /// A JSON object as text, byte for byte.
    pub(crate) fn json_object<'a>(&self, value: Raw<'a>) -> Result<Cow<'a, str>, Untranslatable> {
        if is_object(value.get()) {
            Ok(Cow::Borrowed(value.get()))
        } else {
            Err(self.malformed("an object"))
        }
    }

    /// The type of an object: the text of its member `type`.
    pub(crate) fn kind<'a>(&self, members: &Members<'a>) -> Result<Cow<'a, str>, Untranslatable> {
        let kind = members.iter().find(|(key, _)| key == "type");
        let (_, kind) = kind.ok_or_else(|| self.key("type").malformed("a string"))?;
        self.key("type").text(kind)
    }

    /// Reads something that must be there.
    pub(crate) fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T, Untranslatable> {
        value.ok_or_else(|| self.key(key).malformed("there"))
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            up.fmt(f)?;
        }
        match self.step {
            PathStep::Root => Ok(()),
            PathStep::Key(key) => {
                if self.up.is_some_and(|up| !matches!(up.step, PathStep::Root)) {
                    f.write_char('.')?;
                }
                // A name comes from outside, and may be long.
                key.chars().take(64).try_for_each(|letter| f.write_char(letter))
            }
            PathStep::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Whether a value is there and says something.
pub(crate) fn is_given(value: Raw<'_>) -> bool {
    value.get() != "null"
}

/// Whether a text is one JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && json::read::<Raw<'_>>(text).is_some()
}

/// The text of a request as the value that it is.
pub(crate) fn document(body: &[u8]) -> Result<Raw<'_>, Untranslatable> {
    let text = std::str::from_utf8(body).ok();
    text.and_then(json::read).ok_or_else(|| Untranslatable {
        field: Cow::Borrowed("body"),
        message: "The request body must be a JSON object.".to_owned(),
    })
}

struct MemberList<'a>(Members<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CollectMembers;
        impl<'de> Visitor<'de> for CollectMembers {
            type Value = MemberList<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(json::Borrowed(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                Ok(MemberList(members))
            }
        }
        deserializer.deserialize_map(CollectMembers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_people_write_them() {
        let messages = FieldPath::ROOT.key("messages");
        let second = messages.index(2);
        assert_eq!(second.key("content").to_string(), "messages[2].content");
        let body = document(br#"{"a": 1, "b\u0063": "x"}"#).expect("a document");
        let members = FieldPath::ROOT.object(body).expect("an object");
        assert_eq!(members[1].0, "bc");
        let twice = document(br#"{"a": 1, "\u0061": 2}"#).expect("a document");
        assert_eq!(FieldPath::ROOT.object(twice).expect_err("twice").field, "a");
    }
}
