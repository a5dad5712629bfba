//! The field `upstreams` of `routes.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use super::Entries;
use crate::config::scalar::{DialectName, Period, SecretText};
use crate::config::url::BaseUrl;

/// A provider's API.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Upstream {
    /// The protocol that it speaks.
    pub(in crate::config) protocol: DialectName,
    /// Where its API begins, such as `https://api.openai.com/v1`. For the protocols `openai` and
    /// `voyage` this ends with the version; the others add their own paths in full.
    pub(in crate::config) base_url: BaseUrl,
    /// Your key at the provider. Leave it out for a server that asks for none.
    #[serde(default)]
    pub(in crate::config) credential: Option<SecretText>,
    /// Several keys at the provider, by names of your own, in the place of `credential`. Calls are
    /// spread over them, and one that is refused or busy is left to the others.
    #[serde(default)]
    pub(in crate::config) credentials: Entries<SecretText>,
    /// Asks regularly whether the upstream works. Default: only calls show it.
    #[serde(default)]
    pub(in crate::config) health_check: Option<HealthCheck>,
    /// Switches the upstream off, with a warning, when a variable or file that it names is missing.
    /// Default: `false`, which makes that an error.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "it is looked at before the values are complete enough to be read"
    )]
    pub(in crate::config) optional: bool,
    /// How long to wait for it.
    #[serde(default)]
    pub(in crate::config) timeouts: Timeouts,
}

/// How to find out whether an upstream works.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct HealthCheck {
    /// What is asked for, with `GET` and without a credential: any answer below 500 is good.
    /// Default: a connection is enough.
    pub(in crate::config) path: Option<String>,
    /// How often. Default: `10s`.
    pub(in crate::config) interval: Period,
    /// How long an answer may take. Default: `5s`.
    pub(in crate::config) timeout: Period,
    /// So many failures in a row take it out. Default: 3.
    #[schemars(range(min = 1, max = 100))]
    pub(in crate::config) unhealthy_after: u32,
    /// So many successes in a row bring it back. Default: 2.
    #[schemars(range(min = 1, max = 100))]
    pub(in crate::config) healthy_after: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        let seconds = |count| Period(Duration::from_secs(count));
        Self {
            path: None,
            interval: seconds(10),
            timeout: seconds(5),
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }
}

/// How long to wait for an upstream.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Timeouts {
    /// For the TCP and TLS handshakes. Default: `5s`.
    pub(in crate::config) connect: Period,
    /// The longest silence, before a response begins and between two pieces of it. Default: `300s`.
    pub(in crate::config) read: Period,
    /// Until a piece of a request is taken. Default: `30s`.
    pub(in crate::config) write: Period,
    /// The longest that an answer may take, from the request's beginning: a stream is then ended with
    /// an error event, and what was delivered is charged. Default: `1h`.
    pub(in crate::config) total: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |count| Period(Duration::from_secs(count));
        Self { connect: seconds(5), read: seconds(300), write: seconds(30), total: seconds(3600) }
    }
}
