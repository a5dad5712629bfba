//! Texts of a JSON document as they stand in it: one without escapes is not copied.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A text of a document, borrowed where it has no escapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct BorrowedText<'a>(Cow<'a, str>);

/// A string, or a tree of any other value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TextOrTree<'a> {
    /// A text, which is most often there.
    Text(BorrowedText<'a>),
    /// Any value other than a string.
    Tree(Value),
}

/// A tree of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct ObjectTree(pub(super) Map<String, Value>);

impl Deref for BorrowedText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<BorrowedText<'a>> for TextOrTree<'a> {
    fn from(text: BorrowedText<'a>) -> Self {
        Self::Text(text)
    }
}

impl From<Value> for TextOrTree<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::Text(BorrowedText(text.into())),
            other => Self::Tree(other),
        }
    }
}

impl Default for TextOrTree<'_> {
    fn default() -> Self {
        Self::Tree(Value::Null)
    }
}

impl<'a> TextOrTree<'a> {
    /// A value that is read already, and whose text `json` is otherwise; `None` where that has no tree.
    pub(super) fn from_read(text: Option<Cow<'a, str>>, json: &[u8]) -> Option<Self> {
        match text {
            Some(text) => Some(Self::Text(BorrowedText(text))),
            None => serde_json::from_slice(json).ok().map(Self::Tree),
        }
    }

    /// The text, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Tree(_) => None,
        }
    }

    /// True if it is `null` or absent.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Tree(Value::Null))
    }
}

impl Serialize for TextOrTree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Tree(value) => value.serialize(serializer),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = BorrowedText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(BorrowedText(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(BorrowedText(Cow::Owned(text)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextOrTree<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrTreeVisitor)
    }
}

struct TextOrTreeVisitor;

impl<'de> Visitor<'de> for TextOrTreeVisitor {
    type Value = TextOrTree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        TextVisitor.visit_borrowed_str(text).map(TextOrTree::Text)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        TextVisitor.visit_str(text).map(TextOrTree::Text)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        TextVisitor.visit_string(text).map(TextOrTree::Text)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(TextOrTree::default())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(TextOrTree::Tree(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(TextOrTree::Tree(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(TextOrTree::Tree(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(TextOrTree::Tree(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(elements)).map(TextOrTree::from)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(members)).map(TextOrTree::from)
    }
}

impl<'de> Deserialize<'de> for ObjectTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Map::deserialize(value).map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_without_escapes_stays_where_it_is() {
        let is_borrowed = |json| match serde_json::from_str(json).expect("JSON") {
            TextOrTree::Text(BorrowedText(text)) => matches!(text, Cow::Borrowed(_)),
            TextOrTree::Tree(_) => panic!("no text: {json}"),
        };
        assert!(is_borrowed(r#""plain""#));
        assert!(!is_borrowed(r#""a \"word\"""#));
    }

    #[test]
    fn what_is_no_text_is_the_tree_that_it_always_was() {
        for value in [
            json!(null),
            json!(true),
            json!(-1),
            json!(u64::MAX),
            json!(0.1),
            json!("a \u{1F600} b"),
            json!([1, {"a": [null]}]),
            json!({"b": 1, "a": "x"}),
        ] {
            let text = value.to_string();
            let read: TextOrTree<'_> = serde_json::from_str(&text).expect("JSON");
            assert_eq!(serde_json::to_string(&read).expect("JSON"), text);
            assert_eq!(read, TextOrTree::from(value));
        }
        let object: Result<ObjectTree, _> = serde_json::from_str("[1]");
        assert!(object.is_err(), "no object");
    }
}
