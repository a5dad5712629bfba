//! Credit lines and hold rules of accounts, as operators set and read them.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::limits::present;
use super::value::{AMOUNT_PATTERN, DOLLARS_MAX};
use tollgate_ledger::HoldsPatch;
use tollgate_money::money::Nanousd;
use tollgate_options::holds::{HoldOverrides, Means};

/// An amount of dollars that may be zero: a decimal string, or a JSON integer.
pub(super) struct CreditLimit(pub(super) Nanousd);

impl<'de> Deserialize<'de> for CreditLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        struct DollarsVisitor;

        impl serde::de::Visitor<'_> for DollarsVisitor {
            type Value = CreditLimit;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("US dollars as a decimal string such as \"100.00\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CreditLimit, E> {
                text.parse().map(CreditLimit).map_err(E::custom)
            }

            // No `visit_f64`: a JSON number with a fraction is refused, since many programs round it on its
            // way.
            fn visit_u64<E: Error>(self, dollars: u64) -> Result<CreditLimit, E> {
                self.visit_str(&dollars.to_string())
            }
        }

        deserializer.deserialize_any(DollarsVisitor)
    }
}

impl JsonSchema for CreditLimit {
    fn schema_name() -> Cow<'static, str> {
        "CreditLimit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = format!("{AMOUNT_PATTERN}|^0$");
        json_schema!({
            "description": "US dollars: a decimal string with up to nine decimals, or an integer; zero \
                            for no credit line.",
            "oneOf": [
                {"type": "string", "pattern": pattern, "examples": ["100.00"]},
                {"type": "integer", "minimum": 0, "maximum": DOLLARS_MAX},
            ],
        })
    }
}

/// A way to serve a request that exceeds the account's balance.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum MeansBody {
    Credit,
    Count,
    Clamp,
    Rolling,
}

impl From<MeansBody> for Means {
    fn from(body: MeansBody) -> Self {
        match body {
            MeansBody::Credit => Self::Credit,
            MeansBody::Count => Self::Count,
            MeansBody::Clamp => Self::Clamp,
            MeansBody::Rolling => Self::Rolling,
        }
    }
}

/// Hold rules of an account; `null` for the configured ones.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AccountHolds")]
pub(super) struct HoldsView {
    /// The means in the order in which they are tried; omitted means are never used.
    means: Option<Vec<&'static str>>,
    /// Lowest output limit, in tokens, to which a request may be clamped.
    output_floor: Option<u64>,
    /// Output, in tokens, that a rolling hold covers initially.
    slice: Option<u64>,
    /// Longest wait for money held by earlier calls, in milliseconds.
    wait_ms: Option<u64>,
}

impl From<&HoldOverrides> for HoldsView {
    fn from(holds: &HoldOverrides) -> Self {
        Self {
            means: holds.means_words(),
            output_floor: holds.output_floor,
            slice: holds.slice,
            wait_ms: holds.wait_ms(),
        }
    }
}

/// Changes to hold rules. Omitted rules keep their values; `null` restores the configured rule.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "AccountHoldsPatch")]
#[serde(deny_unknown_fields)]
pub(super) struct HoldsBody {
    /// The means, each at most once, in the order in which they are tried.
    #[serde(default, deserialize_with = "present")]
    #[schemars(extend("uniqueItems" = true))]
    means: Option<Option<Vec<MeansBody>>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u64::MAX))]
    output_floor: Option<Option<NonZeroU64>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u64::MAX))]
    slice: Option<Option<NonZeroU64>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = 600_000))]
    wait_ms: Option<Option<u64>>,
}

impl From<HoldsBody> for HoldsPatch {
    fn from(body: HoldsBody) -> Self {
        let HoldsBody { means, output_floor, slice, wait_ms } = body;
        let tokens = |tokens: Option<NonZeroU64>| tokens.map(NonZeroU64::get);
        let words = |means: Vec<MeansBody>| means.into_iter().map(Means::from).collect();
        Self {
            means: means.map(|means| means.map(words)),
            output_floor: output_floor.map(tokens),
            slice: slice.map(tokens),
            wait: wait_ms.map(|wait| wait.map(Duration::from_millis)),
        }
    }
}
