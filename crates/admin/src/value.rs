//! Amounts and times as operators type and read them.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::MapAccess;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// The names that a price group can have.
pub(super) const GROUP_PATTERN: &str = "^[A-Za-z0-9_.-]{1,64}$";

/// A JSON object. On its own, serde takes an array for an object too, by the order of the fields.
pub(super) struct ObjectBody<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ObjectBody<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for ObjectVisitor<T> {
            type Value = ObjectBody<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<ObjectBody<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields)).map(ObjectBody)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for ObjectBody<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// An amount of dollars above zero: a decimal string, or a JSON integer. A JSON number with a
/// fraction is refused: many programs round it on its way.
pub(super) struct PositiveAmount(pub(super) Nanousd);

impl<'de> Deserialize<'de> for PositiveAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        struct DollarsVisitor;

        impl serde::de::Visitor<'_> for DollarsVisitor {
            type Value = PositiveAmount;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("US dollars above zero as a decimal string such as \"10.00\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PositiveAmount, E> {
                let amount: Nanousd = text.parse().map_err(E::custom)?;
                if amount.is_zero() {
                    return Err(E::invalid_value(serde::de::Unexpected::Str(text), &self));
                }
                Ok(PositiveAmount(amount))
            }

            fn visit_u64<E: Error>(self, dollars: u64) -> Result<PositiveAmount, E> {
                self.visit_str(&dollars.to_string())
            }
        }

        deserializer.deserialize_any(DollarsVisitor)
    }
}

impl JsonSchema for PositiveAmount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "US dollars above zero: a decimal string with up to nine decimals, or an \
                            integer.",
            "oneOf": [
                {"type": "string", "pattern": AMOUNT_PATTERN, "examples": ["10.00"]},
                {"type": "integer", "minimum": 1, "maximum": DOLLARS_MAX},
            ],
        })
    }
}

/// Digits, of which one is not zero, with up to nine decimals, below [`DOLLARS_MAX`]. The gateway
/// itself takes somewhat more, and leading zeros.
pub(super) const AMOUNT_PATTERN: &str = r"^([1-9][0-9]{0,8}(\.[0-9]{1,9})?|0\.[0-9]{0,8}[1-9])$";

/// Maximum number of whole dollars of an amount.
pub(super) const DOLLARS_MAX: u64 = 9_223_372_036;

/// A time in RFC 3339.
#[derive(Clone, Copy)]
pub(super) struct Time(pub(super) UnixMs);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected = "expected a time in RFC 3339 such as \"2027-01-31T12:00:00Z\"";
        UnixMs::parse_rfc3339(&text).map(Self).ok_or_else(|| serde::de::Error::custom(expected))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339())
    }
}

impl From<UnixMs> for Time {
    fn from(time: UnixMs) -> Self {
        Self(time)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A time in RFC 3339, not before 1970. Answers use UTC.",
            "type": "string",
            "format": "date-time",
            "pattern": "^(19[7-9]|[2-9][0-9]{2})[0-9]-",
            "examples": ["2026-01-31T12:00:00.123Z"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_or_refused() {
        for (json, nanousd) in
            [(r#""10.00""#, 10_000_000_000), ("3", 3_000_000_000), (r#""0.000000001""#, 1)]
        {
            let amount: PositiveAmount = serde_json::from_str(json).expect(json);
            assert_eq!(amount.0.get(), nanousd, "{json} in nano-dollars");
        }
        for json in [
            "10.0",
            "1e1",
            "0",
            r#""0.00""#,
            "-1",
            r#""-1""#,
            r#""1e3""#,
            "null",
            "99999999999",
            r#""""#,
        ] {
            assert!(serde_json::from_str::<PositiveAmount>(json).is_err(), "{json} was accepted");
        }
    }

    #[test]
    fn an_array_is_not_an_object() {
        #[derive(Deserialize)]
        struct NamedFields {
            name: String,
        }
        let object: ObjectBody<NamedFields> =
            serde_json::from_str(r#"{"name": "n"}"#).expect("an object");
        assert_eq!(object.0.name, "n");
        assert!(
            serde_json::from_str::<NamedFields>(r#"["n"]"#).is_ok(),
            "what serde does on its own"
        );
        assert!(serde_json::from_str::<ObjectBody<NamedFields>>(r#"["n"]"#).is_err());
    }
}
