//! The small languages inside a YAML value: durations, sizes, addresses, URLs and the words of the
//! protocols. Each type here reads its text, describes itself to JSON Schema, and is checked by
//! name of its `format` when a document's shape is checked.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use tollgate_money::price;
use tollgate_types::secret::Secret;

/// The reason why a text is not valid for a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScalarError {
    /// Message about the problem.
    pub(super) message: String,
    /// Probably intended value.
    pub(super) help: Option<String>,
}

impl ScalarError {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }
}

/// A value written as one YAML scalar.
pub(super) trait Scalar: Sized {
    /// Its name in JSON Schema's `format`.
    const FORMAT: &'static str;
    /// Description of valid values, for people.
    const DESCRIPTION: &'static str;
    /// True if a YAML number is also valid.
    const NUMBER: bool;
    /// A regular expression that every value matches, for editors.
    const PATTERN: &'static str;

    /// Reads the text. Errors do not repeat it: it may have come out of the environment.
    fn parse(text: &str) -> Result<Self, ScalarError>;
}

/// Implements `Deserialize` and `JsonSchema` for [`Scalar`] types.
macro_rules! scalar {
    ($($type:ident),+) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::scalar::deserialize(deserializer)
            }
        }

        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$type as $crate::scalar::Scalar>::FORMAT.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::scalar::schema::<$type>()
            }
        }
    )+};
}
pub(super) use scalar;

/// Reads a [`Scalar`] out of a YAML string or integer.
pub(super) fn deserialize<'de, T: Scalar, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = match serde_yaml::Value::deserialize(deserializer)? {
        serde_yaml::Value::String(text) => text,
        // An unquoted size in bytes, such as `65536`, is a number to YAML.
        serde_yaml::Value::Number(number) if T::NUMBER => number.to_string(),
        _ => return Err(serde::de::Error::custom(format!("expected {}", T::DESCRIPTION))),
    };
    T::parse(&text).map_err(|error| serde::de::Error::custom(error.message))
}

/// The JSON Schema of a [`Scalar`].
pub(super) fn schema<T: Scalar>() -> Schema {
    let mut schema = json_schema!({
        "type": "string",
        "format": T::FORMAT,
        "title": T::DESCRIPTION,
        "pattern": T::PATTERN,
    });
    if T::NUMBER {
        schema.insert("type".to_owned(), ["string", "number"].as_slice().into());
    }
    schema
}

/// A duration: `250ms`, `5s`, `2m`, `1h`. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DurationText(pub(super) Duration);

impl Scalar for DurationText {
    const FORMAT: &'static str = "tollgate-duration";
    const DESCRIPTION: &'static str = "a duration such as `250ms`, `30s`, `5m` or `1h`";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^([0-9]+(ms|s|m|h)|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        /// Nothing in a gateway waits longer than a day.
        const MAX: Duration = Duration::from_secs(24 * 60 * 60);
        let wrong =
            || ScalarError::new("this is not a duration", format!("write {}", Self::DESCRIPTION));
        let (digits, unit) = split_unit(text);
        let count: u64 = digits.parse().map_err(|_| wrong())?;
        let per_count_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            // A bare number is seconds to some tools and milliseconds to others.
            "" => {
                return Err(ScalarError::new(
                    "a duration needs a unit",
                    "one of `ms`, `s`, `m`, `h`: `30s`",
                ));
            }
            _ => return Err(wrong()),
        };
        let period = Duration::from_millis(count.saturating_mul(per_count_ms));
        if period.is_zero() || period > MAX {
            let message = "a duration must be more than zero and at most 24h";
            return Err(ScalarError { message: message.to_owned(), help: None });
        }
        Ok(Self(period))
    }
}

/// A size in bytes: `65536`, `64KiB`, `64MiB`, `1GiB`. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteSize(pub(super) usize);

impl Scalar for ByteSize {
    const FORMAT: &'static str = "tollgate-size";
    const DESCRIPTION: &'static str =
        "a size such as `64KiB`, `64MiB`, `1GiB` or a number of bytes";
    const NUMBER: bool = true;
    const PATTERN: &'static str = r"^([0-9]+(KiB|MiB|GiB)?|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        let (digits, unit) = split_unit(text);
        let wrong =
            || ScalarError::new("this is not a size", format!("write {}", Self::DESCRIPTION));
        let count: usize = digits.parse().map_err(|_| wrong())?;
        let per_count = match unit {
            "" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            // Refused rather than guessed: a KB is 1000 bytes to some and 1024 to others.
            "K" | "KB" | "kB" | "kb" | "k" | "kib" => return Err(binary_unit_error("KiB")),
            "M" | "MB" | "mb" | "m" | "mib" => return Err(binary_unit_error("MiB")),
            "G" | "GB" | "gb" | "g" | "gib" => return Err(binary_unit_error("GiB")),
            _ => return Err(wrong()),
        };
        match count.checked_mul(per_count) {
            Some(0) => {
                Err(ScalarError { message: "a size must be more than zero".to_owned(), help: None })
            }
            Some(bytes) => Ok(Self(bytes)),
            None => Err(ScalarError {
                message: "this is larger than any memory".to_owned(),
                help: None,
            }),
        }
    }
}

fn binary_unit_error(unit: &str) -> ScalarError {
    let help =
        format!("did you mean `{unit}`? The units are `KiB`, `MiB` and `GiB`, powers of 1024");
    ScalarError::new("this is not a unit of size", help)
}

/// The digits at the beginning, and the remaining text.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// A share of all: `0.01` is one in a hundred. Kept in millionths, so that it is compared exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction(pub(super) u32);

impl Fraction {
    /// The whole: one million millionths.
    pub(super) const ALL: Self = Self(1_000_000);
    /// Decimals that millionths can hold.
    const DECIMALS: u32 = 6;
}

impl Scalar for Fraction {
    const FORMAT: &'static str = "tollgate-share";
    const DESCRIPTION: &'static str = "a share from `0` to `1`, such as `0.01`";
    const NUMBER: bool = true;
    const PATTERN: &'static str = r"^([01](\.[0-9]+)?|[0-9]+(\.[0-9]+)?[eE]-[0-9]+|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        let wrong = || {
            let help = format!("write {}, with at most six decimals", Self::DESCRIPTION);
            ScalarError::new("this is not a share", help)
        };
        // Numbers as small as a millionth come out of YAML in scientific notation.
        // Exact decimals: a float would turn 0.000001 into 0 or 1 millionths by its rounding.
        let exact = Decimal::from_str_exact(text).or_else(|_| Decimal::from_scientific(text));
        let millionths = exact
            .ok()
            .and_then(|share| share.checked_mul(Decimal::from(10_u32.pow(Self::DECIMALS))))
            .filter(Decimal::is_integer)
            .and_then(|millionths| u32::try_from(millionths).ok())
            .filter(|millionths| *millionths <= Self::ALL.0);
        millionths.map(Self).ok_or_else(wrong)
    }
}

/// An IP address and a port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListenAddress(pub(super) SocketAddr);

impl Scalar for ListenAddress {
    const FORMAT: &'static str = "tollgate-address";
    const DESCRIPTION: &'static str =
        "an IP address with a port, such as `127.0.0.1:8080` or `[::]:8080`";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^(.+:[0-9]+|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        text.parse().map(Self).map_err(|_| {
            let help = match text.rsplit_once(':') {
                Some(("" | "*", port)) => format!("to listen everywhere: `0.0.0.0:{port}`"),
                Some(("localhost", port)) => {
                    format!("a name has no place here: `127.0.0.1:{port}`")
                }
                _ => format!("write {}", Self::DESCRIPTION),
            };
            ScalarError::new("this is not an address to listen on", help)
        })
    }
}

/// The size of an image: `1024x1024`, or `1024*1024` as one provider writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageSizeText(pub(super) price::ImageSize);

impl Scalar for ImageSizeText {
    const FORMAT: &'static str = "tollgate-image-size";
    const DESCRIPTION: &'static str = "a size in pixels such as `1024x1024`";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^([1-9][0-9]*[x*][1-9][0-9]*|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        price::ImageSize::parse(text).map(Self).ok_or_else(|| {
            ScalarError::new("this is not the size of an image", "width by height: `1024x1024`")
        })
    }
}

/// A time of the day in UTC, over midnight or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DayWindowText(pub(super) price::DayWindow);

impl Scalar for DayWindowText {
    const FORMAT: &'static str = "tollgate-day-window";
    const DESCRIPTION: &'static str = "a time of the day in UTC such as `16:30-00:30`";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^([0-2][0-9]:[0-5][0-9]-[0-2][0-9]:[0-5][0-9]|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        price::DayWindow::parse(text).map(Self).ok_or_else(|| {
            ScalarError::new("this is not a time of the day", "from and until: `16:30-00:30`")
        })
    }
}

scalar!(DurationText, ByteSize, Fraction, ListenAddress, ImageSizeText, DayWindowText);

/// A secret: in the file itself, out of the environment, or out of a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretText(pub(super) Secret);

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Secret::new(text)))
    }
}

impl JsonSchema for SecretText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let file = json_schema!({ "type": "string", "description": "The path of a file with the secret in it." });
        json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "object", "properties": { "file": file }, "required": ["file"], "additionalProperties": false },
            ],
            "writeOnly": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_a_range() {
        for (text, ms) in [("250ms", 250), ("5s", 5_000), ("2m", 120_000), ("24h", 86_400_000)] {
            assert_eq!(
                DurationText::parse(text).map(|p| p.0),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for text in ["", "5", "s", "0s", "-5s", "1.5s", "5 s", "5S", "25h", "99999999999999999999h"]
        {
            assert!(DurationText::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn sizes_are_powers_of_two_or_bytes() {
        for (text, bytes) in [("1", 1), ("64KiB", 65_536), ("64MiB", 67_108_864), ("1GiB", 1 << 30)]
        {
            assert_eq!(ByteSize::parse(text).map(|s| s.0), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "0", "0MiB", "64MB", "64 MiB", "-1", "1.5MiB", "99999999999GiB"] {
            assert!(ByteSize::parse(text).is_err(), "{text:?} was accepted");
        }
        let help = ByteSize::parse("64MB").expect_err("a decimal unit").help.unwrap_or_default();
        assert!(help.contains("`MiB`"), "{help}");
    }

    #[test]
    fn shares_are_between_nothing_and_all() {
        for (text, millionths) in
            [("0", 0), ("1", 1_000_000), ("1.0", 1_000_000), ("0.01", 10_000), ("1e-6", 1)]
        {
            assert_eq!(Fraction::parse(text).map(|share| share.0), Ok(millionths), "{text}");
        }
        for text in ["", "-0.1", "1.000001", "2", "1%", "0.0000001", ".", "NaN", "1e9", "1e-99999"]
        {
            assert!(Fraction::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn addresses_are_numeric() {
        for text in ["127.0.0.1:8080", "[::1]:0"] {
            assert!(ListenAddress::parse(text).is_ok(), "{text}");
        }
        for (text, help) in
            [(":80", "0.0.0.0:80"), ("localhost:80", "127.0.0.1:80"), ("8080", "such as")]
        {
            let error = ListenAddress::parse(text).expect_err(text);
            assert!(error.help.as_ref().is_some_and(|found| found.contains(help)), "{error:?}");
        }
    }
}
