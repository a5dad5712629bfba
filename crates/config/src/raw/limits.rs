//! Parts of the field `limits` of `routes.yaml`: what those get who share the gateway.

use std::time::Duration;

use schemars::JsonSchema;

use crate::scalar::Period;

/// Requests of those who have shown no valid key, and of the console: they have places of their own
/// and take none from customers.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Unauthenticated")]
pub(crate) struct UnauthenticatedSection {
    /// Most requests in flight; more are rejected. Default: 256.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests_in_flight_max: usize,
    /// Most requests in flight from one address, or one network of IPv6 (/64). Default: 32.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) per_address_max: usize,
    /// The time within which their bodies must arrive and our answers be taken. Default: `10s`.
    pub(crate) timeout: Period,
}

impl Default for UnauthenticatedSection {
    fn default() -> Self {
        Self {
            requests_in_flight_max: 256,
            per_address_max: 32,
            timeout: Period(Duration::from_secs(10)),
        }
    }
}

/// Calls that cost nothing, such as counts of tokens: accounts without money can make them, and they go
/// out under the operator's credentials.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FreeCalls {
    /// The calls of one account in a minute; a whole minute's may come at once. Default: 1200.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) account_requests_per_minute: u32,
    /// The calls of all accounts to one upstream in a minute. Default: 6000.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) upstream_requests_per_minute: u32,
    /// The calls under way at one upstream at one time. Default: 64.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) upstream_concurrent_requests: usize,
    /// The share of one account of the calls to an upstream, in a minute and at one time, in percent of
    /// what it has and what is free together. Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) account_percent: u32,
}

impl Default for FreeCalls {
    fn default() -> Self {
        // Claude Code counts some 200 texts of a session at one time, and little else. Providers take 2,000
        // to 8,000 counts a minute (Anthropic, by tier) or 3,000 (Google) from an operator that pays.
        Self {
            account_requests_per_minute: 1200,
            upstream_requests_per_minute: 6000,
            upstream_concurrent_requests: 64,
            account_percent: 25,
        }
    }
}

/// The most that one account, all of its keys together, may have of the gateway at one time.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PerAccount {
    /// Its share of `requests_in_flight_max`, in percent. Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) requests_in_flight_percent: u32,
    /// Its share of `body_memory_max`, in percent; one body, and what goes upstream of it, always
    /// fits. Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) body_memory_percent: u32,
    /// Its share of `waiting_max` of `tasks`, in percent. Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) waiting_percent: u32,
    /// Its share of the `concurrent_requests` of a model, in percent of those that it has and that are free
    /// together, and one at least. Default: 75.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) model_concurrency_percent: u32,
    /// Reads of much at once: `/v1/usage` and pages of the console. Default: 4.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) reads_max: u32,
}

impl Default for PerAccount {
    fn default() -> Self {
        Self {
            requests_in_flight_percent: 25,
            body_memory_percent: 25,
            waiting_percent: 25,
            // Models have few places, which one busy customer should nearly fill: of eight it has six.
            model_concurrency_percent: 75,
            reads_max: 4,
        }
    }
}

/// Rate limits.
#[derive(Clone, Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rates {
    /// Requests a minute; a whole minute's may come at once. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) requests_per_minute: Option<u32>,
    /// Tokens a minute: input when a request comes, output when it is over. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) tokens_per_minute: Option<u32>,
    /// Requests at one time. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) concurrent_requests: Option<u32>,
}
