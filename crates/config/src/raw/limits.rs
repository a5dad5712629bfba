//! Parts of the field `limits` of `routes.yaml`: what those get who share the gateway.

use std::time::Duration;

use schemars::JsonSchema;

use crate::scalar::DurationText;

/// Limits for requests without a valid key and for the console. They are counted separately from customers'
/// requests.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Unauthenticated")]
pub(crate) struct UnauthenticatedSection {
    /// Maximum number of requests in flight; more are rejected. Default: 256.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) requests_in_flight_max: usize,
    /// Maximum number of requests in flight from one IPv4 address or IPv6 /64 network. Default: 32.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) per_address_max: usize,
    /// Timeout for receiving their bodies and for sending answers. Default: `10s`.
    pub(crate) timeout: DurationText,
}

impl Default for UnauthenticatedSection {
    fn default() -> Self {
        Self {
            requests_in_flight_max: 256,
            per_address_max: 32,
            timeout: DurationText(Duration::from_secs(10)),
        }
    }
}

/// Limits for free calls, such as token counts: accounts without money can make them, and they use the
/// operator's credentials.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "FreeCalls")]
pub(crate) struct FreeCallsSection {
    /// The calls of one account in a minute; a whole minute's may come at once. Default: 1200.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) account_requests_per_minute: u32,
    /// The calls of all accounts to one upstream in a minute. Default: 6000.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) upstream_requests_per_minute: u32,
    /// Maximum number of concurrent calls to one upstream. Default: 64.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) upstream_concurrent_requests: usize,
    /// Share of the calls to an upstream for one account, per minute and concurrently, in percent of its own
    /// and the free ones together. Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) account_percent: u32,
}

impl Default for FreeCallsSection {
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

/// Shares of the gateway's capacity for one account, for all its keys together.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "PerAccount")]
pub(crate) struct PerAccountSection {
    /// Share of `requests_in_flight_max` for one account, in percent. Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) requests_in_flight_percent: u32,
    /// Share of `body_memory_max` for one account, in percent; one body and its upstream copy always fit.
    /// Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) body_memory_percent: u32,
    /// Share of `waiting_max` of `tasks` for one account, in percent. Default: 25.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) waiting_percent: u32,
    /// Share of a model's `concurrent_requests` for one account, in percent of its own and the free ones
    /// together; at least one request. Default: 75.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) model_concurrency_percent: u32,
    /// Concurrent large reads: `/v1/usage` and pages of the console. Default: 4.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) reads_max: u32,
}

impl Default for PerAccountSection {
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
#[serde(deny_unknown_fields, default, rename = "Rates")]
pub(crate) struct RatesSection {
    /// Requests per minute; a full minute's requests may arrive at once. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) requests_per_minute: Option<u32>,
    /// Tokens per minute: input counts when a request arrives, output when it ends. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub(crate) tokens_per_minute: Option<u32>,
    /// Concurrent requests. Default: no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) concurrent_requests: Option<u32>,
}
