//! A JSON document with its numbers as they were typed: no price passes through a float.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON value. Fields keep their order, and those that are there twice are there twice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree<'a> {
    /// JSON's `null`, `true` or `false`, of which no price is made.
    Word,
    /// A number, as its text.
    Number(&'a str),
    /// A string without its quotes.
    Text(String),
    /// The items of an array.
    List(Vec<Tree<'a>>),
    /// The fields of an object.
    Fields(Vec<(String, Tree<'a>)>),
}

/// Nesting limit of values; price lists need seven levels.
const DEPTH_MAX: usize = 16;

impl<'a> Tree<'a> {
    /// Reads a document.
    ///
    /// # Errors
    /// When it is no JSON, or is nested deeper than any list of prices.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Self::read(raw, DEPTH_MAX)
    }

    fn read(raw: &'a RawValue, depth: usize) -> Result<Self, String> {
        let text = raw.get();
        // A downloaded file may be nested until the stack ends.
        let depth = depth.checked_sub(1).ok_or("it is nested too deeply")?;
        let wrong = |error: serde_json::Error| error.to_string();
        match text.bytes().next() {
            Some(b'{') => {
                let RawFields(pairs) = serde_json::from_str(text).map_err(wrong)?;
                let fields = pairs.into_iter().map(|(key, raw)| Ok((key, Self::read(raw, depth)?)));
                fields.collect::<Result<_, String>>().map(Self::Fields)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
                let items = items.into_iter().map(|raw| Self::read(raw, depth));
                items.collect::<Result<_, String>>().map(Self::List)
            }
            Some(b'"') => serde_json::from_str(text).map_err(wrong).map(Self::Text),
            Some(b'n' | b't' | b'f') | None => Ok(Self::Word),
            Some(_) => Ok(Self::Number(text)),
        }
    }

    /// The value of a field; `None` where this is no object, too.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.fields().iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The fields of an object; none of anything else.
    pub(crate) fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Fields(fields) => fields,
            _ => &[],
        }
    }

    /// The items of an array; none of anything else.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// True for an object, even an empty one.
    pub(crate) const fn is_object(&self) -> bool {
        matches!(self, Self::Fields(_))
    }

    /// The text of a string or a number.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Number(text) => Some(text),
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Name of a duplicate field; either of the two could count.
    pub(crate) fn twice(&self) -> Option<&str> {
        let fields = self.fields();
        let is_again =
            |index: usize, key: &str| fields.iter().take(index).any(|(earlier, _)| earlier == key);
        let mut numbered = fields.iter().enumerate();
        let own = numbered.find(|(index, (key, _))| is_again(*index, key));
        own.map(|(_, (key, _))| key.as_str())
    }
}

/// The fields of an object in their order, with values that are still text.
struct RawFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CollectPairs;
        impl<'de> Visitor<'de> for CollectPairs {
            type Value = RawFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                // A map would drop the first of two equal keys, and such an entry is refused.
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(RawFields(pairs))
            }
        }
        deserializer.deserialize_map(CollectPairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_they_were_typed() {
        let tree = Tree::parse(r#" {"a": 1.50e-07, "b": ["0.1", null, true, -1], "a\u0062": {}} "#)
            .expect("JSON");
        assert_eq!(tree.get("a"), Some(&Tree::Number("1.50e-07")));
        let items = tree.get("b").map(Tree::items).expect("a list");
        let expected = [Tree::Text("0.1".to_owned()), Tree::Word, Tree::Word, Tree::Number("-1")];
        assert_eq!(items, expected);
        assert!(tree.get("ab").is_some_and(Tree::is_object), "an escaped name");
        assert_eq!(tree.twice(), None);
    }

    #[test]
    fn fields_that_are_there_twice_are_found() {
        let tree = Tree::parse(r#"{"a": 1, "b": 2, "a": 3}"#).expect("JSON");
        assert_eq!(tree.twice(), Some("a"));
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_refused() {
        for text in ["", "{", "[1,]", "{\"a\" 1}", "{} {}", "nul"] {
            assert!(Tree::parse(text).is_err(), "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Tree::parse(&deep).is_err(), "a hundred thousand brackets");
    }
}
