//! The field `upstreams` of `routes.yaml`.

use std::time::Duration;

use schemars::JsonSchema;

use super::{AuthSection, OrderedMap};
use crate::names::{ProtocolName, RepeatAfterName};
use crate::scalar::{DurationText, SecretText};
use crate::url::BaseUrl;
use crate::window::OptionalDuration;

/// A provider's API.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Upstream")]
pub(crate) struct UpstreamEntry {
    /// Protocol of the upstream.
    pub(crate) protocol: ProtocolName,
    /// Base URL of the API, such as `https://api.openai.com/v1`. For the protocols `openai`, `voyage` and
    /// `gemini` this ends with the version; for `vertex` with `/publishers/google`; for `azure` with
    /// `/openai/v1`, or with the host beside an `api_version`; the others add their own paths in full.
    pub(crate) base_url: BaseUrl,
    /// The version of Azure's API in whose paths deployments are named, such as `2024-10-21`: for the
    /// protocol `azure`. Leave it out where the URL ends with `/openai/v1`.
    #[serde(default)]
    pub(crate) api_version: Option<String>,
    /// Your key at the provider. Omit it for a server that needs none.
    #[serde(default)]
    pub(crate) credential: Option<SecretText>,
    /// Several keys at the provider, by names that you choose, instead of `credential`. Calls are distributed
    /// among them; a refused or busy key is avoided.
    #[serde(default)]
    pub(crate) credentials: OrderedMap<SecretText>,
    /// Sign-in instead of a `credential`: with tokens of Microsoft Entra or Google, or with AWS's signatures.
    #[serde(default)]
    pub(crate) auth: Option<AuthSection>,
    /// Several ways to sign in, by names that you choose, instead of `auth`. Calls are distributed among them
    /// as with `credentials`.
    #[serde(default)]
    pub(crate) auths: OrderedMap<AuthSection>,
    /// Headers that are added to every request to the upstream, including health checks. They replace headers
    /// of the same name from the client. Values can come from a variable or a file, like keys.
    #[serde(default)]
    pub(crate) headers: OrderedMap<SecretText>,
    /// Regular health checks of the upstream. Default: none; only calls reveal failures.
    #[serde(default)]
    pub(crate) health_check: Option<HealthCheckSection>,
    /// Switches the upstream off, with a warning, when a variable or file that it names is missing.
    /// Default: `false`, which makes that an error.
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "it is looked at before the values are complete enough to be read"
    )]
    pub(crate) optional: bool,
    /// Timeouts.
    #[serde(default)]
    pub(crate) timeouts: TimeoutsSection,
    /// The forward proxy through which it is reached, such as
    /// `http://user:${PROXY_PASSWORD}@proxy.internal:3128`, or `none` for no proxy. The URL begins with
    /// `http://`, `https://`, `socks5://` or `socks5h://`. Tokens for it are fetched through the same
    /// proxy. Default: the one that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` names in the environment,
    /// unless `NO_PROXY` lists the host or it is this machine.
    #[serde(default)]
    pub(crate) proxy: Option<SecretText>,
    /// TLS settings. Default: the certificate must be from an authority that this machine trusts.
    #[serde(default)]
    pub(crate) tls: Option<UpstreamTls>,
    /// Outcomes after which another target is tried although this one may have processed the request.
    #[serde(default)]
    pub(crate) retries: UpstreamRetries,
    /// Additional top-level fields of requests that are forwarded for models whose upstreams all list them.
    /// See the same field of a model.
    #[serde(default)]
    pub(crate) pass_fields: Vec<String>,
    /// Top-level fields of requests that the upstream refuses and that are not essential. They are removed
    /// and listed in `x-tollgate-left-out`; `stream_options`, which the gateway adds, is not listed.
    #[serde(default)]
    pub(crate) leave_out_fields: Vec<String>,
    /// Additional headers of requests that are forwarded to the upstream.
    #[serde(default)]
    pub(crate) pass_headers: Vec<String>,
    /// Additional headers of answers that are relayed.
    #[serde(default)]
    pub(crate) pass_response_headers: Vec<String>,
    /// Additional types of tools that are forwarded for models whose upstreams all list them.
    #[serde(default)]
    pub(crate) pass_tools: Vec<String>,
    /// Additional types of messages, items and content that are forwarded for models whose upstreams all list
    /// them.
    #[serde(default)]
    pub(crate) pass_content: Vec<String>,
    /// Ids of objects in your account at the provider that any customer may use: files, vector stores,
    /// prompts, containers and the like, such as `vs_abc123`; a trailing `*` matches any ending. Default:
    /// none. Ids that an account received through the gateway are always allowed.
    #[serde(default)]
    pub(crate) shared_ids: Vec<String>,
}

/// TLS settings of an upstream. The files are read again at a reload.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTls {
    /// The path of a PEM file with the authorities that are trusted, in the place of those of this
    /// machine. A relative path begins at the directory of this file.
    pub(crate) ca_file: Option<String>,
    /// The path of a PEM file with a client certificate, and the intermediates behind it.
    pub(crate) certificate: Option<String>,
    /// The path of a PEM file with the client certificate's private key, without a passphrase.
    pub(crate) key: Option<String>,
    /// Host name that the upstream's certificate must have. Default: the host of `base_url`.
    pub(crate) server_name: Option<String>,
}

/// Outcomes after which another target is tried although this one may have processed the request.
#[derive(Debug, Default, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamRetries {
    /// Statuses from 400 to 599, `timeout`, `connection_lost` and `server_error` (any other status of
    /// 500 and more): what the upstream may bill for a try that is repeated after one of these is
    /// noted as your loss. Tasks are never submitted twice. Default: none.
    pub(crate) on: Vec<RepeatAfterName>,
}

/// Active health check of an upstream.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "HealthCheck")]
pub(crate) struct HealthCheckSection {
    /// Path that is requested with `GET` and no credential; any status below 500 counts as healthy. Default:
    /// a successful connection is enough.
    pub(crate) path: Option<String>,
    /// Interval of checks. Default: `10s`.
    pub(crate) interval: DurationText,
    /// Timeout of an answer. Default: `5s`.
    pub(crate) timeout: DurationText,
    /// Number of consecutive failures that mark the upstream as unhealthy. Default: 3.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) unhealthy_after: u32,
    /// Number of consecutive successes that mark the upstream as healthy. Default: 2.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) healthy_after: u32,
}

impl Default for HealthCheckSection {
    fn default() -> Self {
        let seconds = |count| DurationText(Duration::from_secs(count));
        Self {
            path: None,
            interval: seconds(10),
            timeout: seconds(5),
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }
}

/// Timeouts of an upstream.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Timeouts")]
pub(crate) struct TimeoutsSection {
    /// Timeout of the TCP and TLS handshakes. Default: `5s`.
    pub(crate) connect: DurationText,
    /// Timeout without data, before an answer begins and within it. Default: `610s`.
    pub(crate) read: DurationText,
    /// Timeout for writing a piece of a request. Default: `30s`.
    pub(crate) write: DurationText,
    /// Maximum duration from the beginning of the request. A longer stream is ended with an error event, and
    /// what was delivered is charged. Default: `1h`.
    pub(crate) total: DurationText,
    /// Time for which an idle connection is kept; choose less than the upstream's own. A shorter `Keep-Alive:
    /// timeout` of the upstream takes precedence. `none` keeps no connections. Default: `10s`.
    pub(crate) idle: OptionalDuration,
}

impl Default for TimeoutsSection {
    fn default() -> Self {
        let seconds = |count| DurationText(Duration::from_secs(count));
        Self {
            connect: seconds(5),
            // SDKs wait for 600 s, and proxies in front for 620 s: who waits longest hears of the others.
            read: seconds(610),
            write: seconds(30),
            total: seconds(3600),
            // OpenAI and Anthropic close after 15 s.
            idle: OptionalDuration(Some(Duration::from_secs(10))),
        }
    }
}
