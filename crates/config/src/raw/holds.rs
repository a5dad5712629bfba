//! The fields of `holds`: how requests are held that do not fit their accounts.

use std::time::Duration;

use schemars::JsonSchema;

use crate::names::MeansName;
use crate::scalar::Period;
use crate::window::Window;

/// Holds of requests that do not fit their accounts, for all models and accounts without rules of their own.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[serde(rename = "Holds")]
pub(crate) struct HoldsSection {
    /// The means by which a request is served that does not fit, in the order in which they are tried.
    /// Default: `[credit, count, clamp, rolling]`.
    pub(crate) means: Vec<MeansName>,
    /// The lowest output limit, in tokens, that a request is clamped to. Default: 4096.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) output_floor: u64,
    /// The output, in tokens, that a rolling hold covers at first. Default: 4096.
    #[schemars(range(min = 256, max = 1_000_000))]
    pub(crate) slice: u64,
    /// The longest time that a request waits until others of its account have ended; `none` for no
    /// waiting. Default: `none`.
    pub(crate) wait: Window,
    /// The longest time that a provider may take to count the tokens of a prompt. Default: `2s`.
    pub(crate) count_timeout: Period,
}

impl Default for HoldsSection {
    fn default() -> Self {
        let rules = tollgate_options::holds::HoldRules::default();
        Self {
            means: rules.means.into_iter().map(MeansName).collect(),
            output_floor: rules.output_floor,
            slice: rules.slice,
            wait: Window(None),
            count_timeout: Period(Duration::from_secs(2)),
        }
    }
}

/// Rules of one model, each in the place of the one in `holds` of `routes.yaml`.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelHolds {
    /// The means of this model, in order. Default: those of `routes.yaml`.
    pub(crate) means: Option<Vec<MeansName>>,
    /// The lowest output limit, in tokens, that a request to this model is clamped to.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub(crate) output_floor: Option<u64>,
    /// The output, in tokens, that a rolling hold for this model covers at first.
    #[schemars(range(min = 256, max = 1_000_000))]
    pub(crate) slice: Option<u64>,
    /// The longest time that a request to this model waits, or `none`.
    pub(crate) wait: Option<Window>,
}
