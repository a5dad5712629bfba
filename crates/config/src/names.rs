//! The words of the protocols and of the snapshot, as values of a file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use tollgate_money::price::{InferenceGeo, Quality, Resolution, ServiceTier, Speed};
use tollgate_options::holds::Means;
use tollgate_protocols::limits::{AudioFormat, ImageFormat, ResponseFormat};
use tollgate_protocols::media::PictureFamily;
use tollgate_protocols::{Dialect, Operation};

use super::scalar::{Scalar, ScalarError, scalar};
use super::snapshot::{Affinity, RepeatAfter};

/// The field `protocol` of an upstream: a dialect, or a provider with a variant of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A dialect as its maker speaks it.
    Dialect(Dialect),
    /// OpenAI's dialect with Azure's paths and headers.
    Azure,
}

impl Protocol {
    /// Every protocol name of the configuration.
    pub(super) const ALL: [Self; Dialect::ALL.len() + 1] = {
        let mut all = [Self::Azure; Dialect::ALL.len() + 1];
        let mut at = 0;
        while at < Dialect::ALL.len() {
            all[at] = Self::Dialect(Dialect::ALL[at]);
            at += 1;
        }
        all
    };

    /// The dialect that requests are written in.
    pub(super) fn dialect(self) -> Dialect {
        match self {
            Self::Dialect(dialect) => dialect,
            Self::Azure => Dialect::Openai,
        }
    }

    /// Name in the YAML files.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Dialect(dialect) => dialect.as_str(),
            Self::Azure => "azure",
        }
    }
}

/// Declares a newtype of an enum with `ALL` and `as_str`, which is written as its word.
macro_rules! word {
    ($type:ident, $inner:ident, $description:literal) => {
        #[doc = concat!("[`", stringify!($inner), "`] by its word.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $type(pub(super) $inner);

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = String::deserialize(deserializer)?;
                let found = $inner::ALL.iter().find(|one| one.as_str() == word);
                let expected = || serde::de::Error::custom(concat!("expected ", $description));
                found.copied().map(Self).ok_or_else(expected)
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($inner).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let words: Vec<_> = $inner::ALL.iter().map(|one| one.as_str()).collect();
                json_schema!({ "type": "string", "title": $description, "enum": words })
            }
        }
    };
}

word!(OperationName, Operation, "an operation");
word!(ProtocolName, Protocol, "a protocol");
word!(ResolutionName, Resolution, "a resolution");
word!(ServiceTierName, ServiceTier, "a service tier");
word!(SpeedName, Speed, "a speed");
word!(InferenceGeoName, InferenceGeo, "a place where models run");
word!(QualityName, Quality, "a quality");
word!(ImageFormatName, ImageFormat, "a format of images");
word!(PictureFamilyName, PictureFamily, "a way to count pictures");
word!(ResponseFormatName, ResponseFormat, "a way to answer");
word!(AudioFormatName, AudioFormat, "a format of audio");
word!(MeansName, Means, "a means to serve a request that does not fit its account");
word!(AffinityName, Affinity, "a way to keep requests together");

/// Errors after which a request may be repeated although its upstream may have begun with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RepeatAfterName(pub(super) RepeatAfter);

impl Scalar for RepeatAfterName {
    const FORMAT: &'static str = "tollgate-repeat-after";
    const DESCRIPTION: &'static str =
        "a status from 400 to 599, `timeout`, `connection_lost` or `server_error`";
    const NUMBER: bool = true;
    const PATTERN: &'static str =
        r"^([45][0-9][0-9]|timeout|connection_lost|server_error|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        let status = || text.parse().ok().filter(|status| (400..600).contains(status));
        let read = match text {
            "timeout" => Some(RepeatAfter::Timeout),
            "connection_lost" => Some(RepeatAfter::ConnectionLost),
            "server_error" => Some(RepeatAfter::ServerError),
            _ => status().map(RepeatAfter::Status),
        };
        read.map(Self).ok_or_else(|| {
            ScalarError::new(
                "nothing can be repeated after this",
                format!("write {}", Self::DESCRIPTION),
            )
        })
    }
}

scalar!(RepeatAfterName);
