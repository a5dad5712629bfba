//! Limits of keys and accounts, as operators set and read them.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::value::PositiveAmount;
use tollgate_ledger::{KeyLimits, KeyLimitsPatch, RatesPatch};
use tollgate_limits::Rates;
use tollgate_money::money::Nanousd;

/// Rate limits of an account; `null` for the default.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AccountLimits")]
pub(super) struct RatesView {
    requests_per_minute: Option<NonZeroU32>,
    tokens_per_minute: Option<NonZeroU32>,
    concurrent_requests: Option<NonZeroU32>,
}

impl From<Rates> for RatesView {
    fn from(rates: Rates) -> Self {
        Self {
            requests_per_minute: rates.requests_per_minute,
            tokens_per_minute: rates.tokens_per_minute,
            concurrent_requests: rates.concurrent_requests,
        }
    }
}

/// Limits of a key; `null` for the configured ones.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeyLimits")]
pub(super) struct KeyLimitsView {
    #[serde(flatten)]
    rates: RatesView,
    spend_per_day: Option<Nanousd>,
    spend_per_month: Option<Nanousd>,
}

impl From<KeyLimits> for KeyLimitsView {
    fn from(limits: KeyLimits) -> Self {
        Self {
            rates: limits.rates.into(),
            spend_per_day: limits.spend_per_day,
            spend_per_month: limits.spend_per_month,
        }
    }
}

/// Changes to an account's rate limits. Omitted limits keep their values; `null` removes a limit.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AccountLimitsPatch")]
#[serde(deny_unknown_fields)]
pub(super) struct RatesBody {
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u32::MAX))]
    requests_per_minute: Option<Option<NonZeroU32>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u32::MAX))]
    tokens_per_minute: Option<Option<NonZeroU32>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u32::MAX))]
    concurrent_requests: Option<Option<NonZeroU32>>,
}

impl From<RatesBody> for RatesPatch {
    fn from(body: RatesBody) -> Self {
        Self {
            requests_per_minute: body.requests_per_minute,
            tokens_per_minute: body.tokens_per_minute,
            concurrent_requests: body.concurrent_requests,
        }
    }
}

/// Changes to a key's limits: a limit that is left out stays as it is, `null` removes it. The fields are
/// written out, since serde cannot flatten where unknown fields are denied.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(rename = "KeyLimitsPatch")]
#[serde(deny_unknown_fields)]
pub(super) struct KeyLimitsBody {
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u32::MAX))]
    requests_per_minute: Option<Option<NonZeroU32>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u32::MAX))]
    tokens_per_minute: Option<Option<NonZeroU32>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(range(max = u32::MAX))]
    concurrent_requests: Option<Option<NonZeroU32>>,
    #[serde(default, deserialize_with = "present")]
    spend_per_day: Option<Option<PositiveAmount>>,
    #[serde(default, deserialize_with = "present")]
    spend_per_month: Option<Option<PositiveAmount>>,
}

impl From<KeyLimitsBody> for KeyLimitsPatch {
    fn from(body: KeyLimitsBody) -> Self {
        let money = |amount: Option<PositiveAmount>| amount.map(|amount| amount.0);
        Self {
            rates: RatesPatch {
                requests_per_minute: body.requests_per_minute,
                tokens_per_minute: body.tokens_per_minute,
                concurrent_requests: body.concurrent_requests,
            },
            spend_per_day: body.spend_per_day.map(money),
            spend_per_month: body.spend_per_month.map(money),
        }
    }
}

/// Distinguishes `null` from an omitted field.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
