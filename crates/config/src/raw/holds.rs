//! The fields of `holds`: how requests are held that do not fit their accounts.

use std::time::Duration;

use schemars::JsonSchema;

use crate::names::MeansName;
use crate::scalar::DurationText;
use crate::window::OptionalDuration;

/// Holds of requests that exceed the account's balance, for all models and accounts without their own rules.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[serde(rename = "Holds")]
pub(crate) struct HoldsSection {
    /// Means to serve a request that exceeds the balance, in the order in which they are tried. Default:
    /// `[credit, count, clamp, rolling]`.
    pub(crate) means: Vec<MeansName>,
    /// Lowest output limit, in tokens, to which a request is clamped. Default: 4096.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) output_floor: u64,
    /// Output, in tokens, that a rolling hold covers initially. Default: 4096.
    #[schemars(range(min = 256, max = 1_000_000))]
    pub(crate) slice: u64,
    /// Maximum time for which a request waits for other requests of its account to end; `none` disables
    /// waiting. Default: `none`.
    pub(crate) wait: OptionalDuration,
    /// Timeout for a provider's token count. Default: `2s`.
    pub(crate) count_timeout: DurationText,
}

impl Default for HoldsSection {
    fn default() -> Self {
        let rules = tollgate_options::holds::HoldRules::default();
        Self {
            means: rules.means.into_iter().map(MeansName).collect(),
            output_floor: rules.output_floor,
            slice: rules.slice,
            wait: OptionalDuration(None),
            count_timeout: DurationText(Duration::from_secs(2)),
        }
    }
}

/// Rules of one model. Each replaces the rule in `holds` of `routes.yaml`.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "ModelHolds")]
pub(crate) struct ModelHoldsSection {
    /// The means of this model, in order. Default: those of `routes.yaml`.
    pub(crate) means: Option<Vec<MeansName>>,
    /// Lowest output limit, in tokens, to which a request to this model is clamped.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) output_floor: Option<u64>,
    /// Output, in tokens, that a rolling hold for this model covers initially.
    #[schemars(range(min = 256, max = 1_000_000))]
    pub(crate) slice: Option<u64>,
    /// The longest time that a request to this model waits, or `none`.
    pub(crate) wait: Option<OptionalDuration>,
}
