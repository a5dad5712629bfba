//! JSON documents whose numbers are read as they were typed, and whose faults have a place.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::amount::{Currency, Femtousd};
use crate::statement::StatementError;

/// The field of an amount, which is a number, text or an object.
const AMOUNT: &str = "amount";

/// A value with its place in the document, such as `data[0].results[2].model`.
#[derive(Clone, Debug)]
pub(crate) struct JsonPlace<'a> {
    text: &'a str,
    path: String,
}

/// The fields of an object that were not taken yet. Those that are `null` count as missing.
#[derive(Debug)]
pub(crate) struct JsonFields<'a> {
    path: String,
    fields: BTreeMap<String, JsonPlace<'a>>,
}

/// Fields of an object; duplicates are an error, as either could count.
struct UniqueFields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> JsonPlace<'a> {
    /// Reads a document, whose place is `name`.
    pub(crate) fn parse(text: &'a str, name: &str) -> Result<Self, StatementError> {
        let raw: Result<&RawValue, _> = serde_json::from_str(text);
        let raw =
            raw.map_err(|error| StatementError::new(name, format!("is not JSON: {error}")))?;
        Ok(Self { text: raw.get(), path: name.to_owned() })
    }

    /// An error about this value.
    pub(crate) fn refuse(&self, why: &str) -> StatementError {
        StatementError::new(&self.path, why)
    }

    pub(crate) fn is_list(&self) -> bool {
        self.text.starts_with('[')
    }

    pub(crate) fn is_true(&self) -> bool {
        self.text == "true"
    }

    pub(crate) fn is_null(&self) -> bool {
        self.text == "null"
    }

    /// True for a non-zero number.
    pub(crate) fn is_some_count(&self) -> bool {
        self.text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
            && self.count().is_none_or(|count| count > 0)
    }

    pub(crate) fn fields(&self) -> Result<JsonFields<'a>, StatementError> {
        let unique: Result<UniqueFields<'a>, _> = serde_json::from_str(self.text);
        let UniqueFields(unique) = unique
            .map_err(|error| self.refuse(&format!("is not an object as expected: {error}")))?;
        let fields = unique.into_iter().map(|(name, raw)| {
            let path = format!("{}.{name}", self.path);
            (name, Self { text: raw.get(), path })
        });
        let fields = fields.filter(|(_, value)| !value.is_null()).collect();
        Ok(JsonFields { path: self.path.clone(), fields })
    }

    pub(crate) fn items(&self) -> Result<Vec<Self>, StatementError> {
        let items: Result<Vec<&'a RawValue>, _> = serde_json::from_str(self.text);
        let items = items.map_err(|error| self.refuse(&format!("is not a list: {error}")))?;
        let place = |(index, raw): (usize, &'a RawValue)| {
            let path = format!("{}[{index}]", self.path);
            Self { text: raw.get(), path }
        };
        Ok(items.into_iter().enumerate().map(place).collect())
    }

    pub(crate) fn string(&self) -> Result<String, StatementError> {
        serde_json::from_str(self.text).map_err(|_| self.refuse("is not a string"))
    }

    /// A whole number, which may be written with decimals that are zeros.
    pub(crate) fn whole(&self) -> Result<u64, StatementError> {
        self.count().ok_or_else(|| self.refuse("is not a whole number within 64 bits"))
    }

    fn count(&self) -> Option<u64> {
        let (whole, decimals) = self.text.split_once('.').unwrap_or((self.text, "0"));
        let is_whole = !decimals.is_empty() && decimals.bytes().all(|byte| byte == b'0');
        whole.parse().ok().filter(|_| is_whole)
    }

    /// Take an amount, as a number or a numeric string.
    pub(crate) fn amount(&self, currency: Currency) -> Result<Femtousd, StatementError> {
        let text = if self.text.starts_with('"') { self.string()? } else { self.text.to_owned() };
        Femtousd::parse(&text, currency).map_err(|why| self.refuse(why))
    }
}

impl<'a> JsonFields<'a> {
    /// Take an optional field.
    pub(crate) fn take(&mut self, name: &str) -> Option<JsonPlace<'a>> {
        self.fields.remove(name)
    }

    /// Take a required field.
    pub(crate) fn require(&mut self, name: &str) -> Result<JsonPlace<'a>, StatementError> {
        let missing = || StatementError::new(&self.path, format!("has no `{name}`"));
        self.fields.remove(name).ok_or_else(missing)
    }

    /// Take an optional, non-empty string.
    pub(crate) fn take_string(&mut self, name: &str) -> Result<Option<String>, StatementError> {
        let text = self.take(name).map(|value| value.string()).transpose()?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// Take a whole number; zero if absent.
    pub(crate) fn take_count(&mut self, name: &str) -> Result<u64, StatementError> {
        Ok(self.take_optional_count(name)?.unwrap_or_default())
    }

    /// Take an optional whole number.
    pub(crate) fn take_optional_count(
        &mut self,
        name: &str,
    ) -> Result<Option<u64>, StatementError> {
        self.take(name).map(|value| value.whole()).transpose()
    }

    /// Names of untaken fields with a non-zero count.
    pub(crate) fn counted_rest(&self) -> Vec<String> {
        let counted = self.fields.iter().filter(|(_, value)| value.is_some_count());
        counted.map(|(name, _)| name.clone()).collect()
    }

    /// Text fields that identify the object, without its counts. Of an amount in text form, only the
    /// presence.
    pub(crate) fn subject(&self) -> Vec<(&str, &'a str)> {
        let is_word = |value: &JsonPlace<'_>| value.text.starts_with(['"', 't', 'f']);
        let words = self.fields.iter().filter_map(|(name, value)| match name.as_str() {
            AMOUNT => Some((AMOUNT, "")),
            name => is_word(value).then_some((name, value.text)),
        });
        words.collect()
    }

    /// An error about the object.
    pub(crate) fn refuse(&self, why: &str) -> StatementError {
        StatementError::new(&self.path, why)
    }

    /// True if the object has a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }
}

impl<'de> Deserialize<'de> for UniqueFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CollectFields;
        impl<'de> Visitor<'de> for CollectFields {
            type Value = UniqueFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("`{name}` is there twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(UniqueFields(fields))
            }
        }
        deserializer.deserialize_map(CollectFields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_a_place() {
        let text = r#"{"data": [{"n": -1, "m": "x", "k": 2.50, "z": 3.0}]}"#;
        let document = JsonPlace::parse(text, "f.json").expect("JSON");
        let data = document.fields().expect("an object").require("data").expect("a list");
        let mut item = data.items().expect("items")[0].fields().expect("an object");
        assert_eq!(item.take_count("z").expect("a number"), 3);
        assert_eq!(item.take_count("none").expect("missing is zero"), 0);
        assert_eq!(item.counted_rest(), ["k", "n"]);
        let error = item.take_count("n").expect_err("negative").to_string();
        assert_eq!(error, "f.json.data[0].n is not a whole number within 64 bits");
        let error = item.require("q").expect_err("missing").to_string();
        assert_eq!(error, "f.json.data[0] has no `q`");
        assert!(JsonPlace::parse("{\"a\": 1, \"a\": 2}", "f").expect("JSON").fields().is_err());
        assert!(JsonPlace::parse("{", "f").is_err());
        assert!(JsonPlace::parse(&"[".repeat(100_000), "f").is_err(), "brackets");
    }
}
