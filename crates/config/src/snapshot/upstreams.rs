//! The providers' APIs, and how they are reached.

use std::time::Duration;

use tollgate_money::secret::Secret;
use tollgate_protocols::Dialect;
use tollgate_protocols::limits::Pass;

/// A provider's API, as requests are sent to it.
#[derive(Debug)]
pub struct Upstream {
    /// Its name in `routes.yaml`.
    pub name: String,
    /// The protocol that it speaks.
    pub dialect: Dialect,
    /// Whether it is reached over TLS.
    pub tls: bool,
    /// DNS name or IP address, without brackets.
    pub host: String,
    /// The TCP port of the host.
    pub port: u16,
    /// The `Host` header: the host, with the port unless it is the scheme's own.
    pub authority: String,
    /// What the base URL's path adds before a protocol's own path: empty, or `/v1` and the like,
    /// without a slash at its end.
    pub path_prefix: String,
    /// The operator's keys at the provider; none for a server that asks for none.
    pub credentials: Vec<Credential>,
    /// How to find out whether it works, beside what calls show.
    pub health_check: Option<HealthCheck>,
    /// How long to wait for it.
    pub timeouts: UpstreamTimeouts,
    /// What a request is repeated after at another target although this one may have done the work.
    pub repeat_after: Vec<RepeatAfter>,
    /// What of a request is let through to it.
    pub pass: Pass,
    /// Top-level fields of a request that are left out of what is sent to it.
    pub leave_out_fields: Vec<String>,
    /// Headers of a request that are sent on to it.
    pub pass_headers: PassedHeaders,
    /// Names of headers of its answers that are passed on beside those that always are, in small
    /// letters; a `*` at the end stands for any ending.
    pub pass_response_headers: Vec<String>,
}

/// What happened to a try whose work may have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatAfter {
    /// The upstream answered with this status.
    Status(u16),
    /// The upstream answered with a status of 500 or more.
    ServerError,
    /// The upstream did not answer in time.
    Timeout,
    /// The connection was lost after the request had been sent.
    ConnectionLost,
}

/// Headers of a request that are sent on beside those that always are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedHeaders {
    /// Names, in small letters; a `*` at the end stands for any ending.
    pub names: Vec<String>,
    /// The betas of Anthropic's API that are sent on.
    pub betas: Vec<String>,
}

impl PassedHeaders {
    /// These and the others, each once.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        let both = |these: &[String], others: &[String]| {
            let new = others.iter().filter(|other| !these.contains(other));
            these.iter().chain(new).cloned().collect()
        };
        Self { names: both(&self.names, &others.names), betas: both(&self.betas, &others.betas) }
    }
}

impl Upstream {
    /// Whether a request may be repeated elsewhere after an answer with this status, although this
    /// upstream may have done the work.
    #[must_use]
    pub fn repeats_after_status(&self, status: u16) -> bool {
        self.repeat_after.iter().any(|after| match after {
            RepeatAfter::Status(known) => *known == status,
            RepeatAfter::ServerError => status >= 500,
            RepeatAfter::Timeout | RepeatAfter::ConnectionLost => false,
        })
    }

    /// The credential of this name; the only one has none.
    #[must_use]
    pub fn credential(&self, name: &str) -> Option<&Credential> {
        self.credentials.iter().find(|credential| credential.name == name)
    }
}

/// One of the operator's keys at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its name in `routes.yaml`; empty for one that has none because it is the only one.
    pub name: String,
    /// The key that is sent with requests.
    pub secret: Secret,
}

/// How to find out whether an upstream works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for, with `GET`; `None` when a connection is enough.
    pub path: Option<String>,
    /// The time between two checks.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// So many failures in a row take it out.
    pub unhealthy_after: u32,
    /// So many successes in a row bring it back.
    pub healthy_after: u32,
}

/// How long to wait for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// TCP and TLS handshakes.
    pub connect: Duration,
    /// The longest silence, before a response and inside it.
    pub read: Duration,
    /// Between two pieces of a request being taken.
    pub write: Duration,
    /// The longest that an answer may take, from the request's beginning.
    pub total: Duration,
}
