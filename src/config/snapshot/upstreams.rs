//! The providers' APIs, and how they are reached.

use std::time::Duration;

use crate::protocols::Dialect;
use crate::secret::Secret;

/// A provider's API.
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
    /// TCP port.
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
}

impl Upstream {
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
    /// The key.
    pub secret: Secret,
}

/// How to find out whether an upstream works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for, with `GET`; `None` when a connection is enough.
    pub path: Option<String>,
    /// How often.
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
