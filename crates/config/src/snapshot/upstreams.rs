//! The providers' APIs, and how they are reached.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use tollgate_options::auth::Auth;
use tollgate_options::network::Destination;
use tollgate_protocols::limits::PassList;
use tollgate_protocols::{Dialect, Operation};
use tollgate_types::secret::Secret;

/// A provider's API, as requests are sent to it.
#[derive(Debug)]
pub struct Upstream {
    /// Its name in `routes.yaml`.
    pub name: String,
    /// Dialect of the upstream.
    pub dialect: Dialect,
    /// Azure's variations; `None` for other providers.
    pub azure: Option<Azure>,
    /// Address, proxy and TLS settings.
    pub destination: Arc<Destination>,
    /// The `Host` header: the host, with the port unless it is the scheme's own.
    pub authority: String,
    /// Path of the base URL, before a protocol's own path: empty, or `/v1` and the like, without a trailing
    /// slash.
    pub path_prefix: String,
    /// The operator's keys at the provider, or how the gateway signs in there; none for a server that
    /// asks for neither.
    pub credentials: Vec<Credential>,
    /// Headers of the operator's own that every request to it gets.
    pub headers: Arc<[UpstreamHeader]>,
    /// Active health check, if configured.
    pub health_check: Option<HealthCheck>,
    /// Timeouts of calls to the upstream.
    pub timeouts: UpstreamTimeouts,
    /// Outcomes after which a request is repeated at another target although this upstream may have done the
    /// work.
    pub repeat_after: Vec<RepeatAfter>,
    /// Fields, tools and content that operators allow beyond the known ones.
    pub pass: PassList,
    /// Top-level fields that are removed from requests to it.
    pub leave_out_fields: Vec<String>,
    /// Request headers that are forwarded.
    pub pass_headers: PassedHeaders,
    /// Lower-case names of additional response headers that are relayed; a trailing `*` matches any ending.
    pub pass_response_headers: Vec<String>,
    /// Ids of what the operator's account keeps there that every customer may name; a `*` at the end stands
    /// for any ending.
    pub shared_ids: Vec<String>,
}

/// Azure's variations from OpenAI: the key is in the header `api-key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Azure {
    /// The version of the API in whose paths deployments are named; `None` for the API below
    /// `/openai/v1`, whose paths are OpenAI's.
    pub api_version: Option<String>,
}

/// Outcome of an attempt whose work may have been done.
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

/// Additional request headers that are forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedHeaders {
    /// Names, in small letters; a `*` at the end stands for any ending.
    pub names: Vec<String>,
    /// Anthropic's betas that are forwarded.
    pub betas: Vec<String>,
    /// Betas that are sent on because the model has a price or another thing that they need.
    pub granted_betas: Vec<&'static str>,
}

impl PassedHeaders {
    /// These and the others, each once.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        let both = |these: &[String], others: &[String]| {
            let new = others.iter().filter(|other| !these.contains(other));
            these.iter().chain(new).cloned().collect()
        };
        Self {
            names: both(&self.names, &others.names),
            betas: both(&self.betas, &others.betas),
            granted_betas: [self.granted_betas.as_slice(), &others.granted_betas].concat(),
        }
    }
}

impl Upstream {
    /// True for an upstream with TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.destination.tls.is_some()
    }

    /// True if a request may be repeated elsewhere after this status, although this upstream may have done
    /// the work.
    #[must_use]
    pub fn repeats_after_status(&self, status: u16) -> bool {
        self.repeat_after.iter().any(|after| match after {
            RepeatAfter::Status(listed) => *listed == status,
            RepeatAfter::ServerError => status >= 500,
            RepeatAfter::Timeout | RepeatAfter::ConnectionLost => false,
        })
    }

    /// Name of its protocol in `routes.yaml`.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        if self.azure.is_some() { "azure" } else { self.dialect.as_str() }
    }

    /// The header that carries one of its keys, and the header's value.
    #[must_use]
    pub fn key_header(&self, key: &str) -> (&'static str, String) {
        match &self.azure {
            Some(_) => ("api-key", key.to_owned()),
            None => self.dialect.credential_header(key),
        }
    }

    /// The upstream's path, below its prefix, for its dialect's `path`, with a query if it needs one; `None`
    /// if it has none.
    #[must_use]
    pub fn path_for(&self, path: Cow<'static, str>, model: &str) -> Option<Cow<'static, str>> {
        match self.azure.as_ref().and_then(|azure| azure.api_version.as_deref()) {
            None => Some(path),
            Some(version) => {
                tollgate_protocols::azure::deployment_path(&path, model, version).map(Cow::from)
            }
        }
    }

    /// True if the upstream has a path for an operation of its dialect.
    #[must_use]
    pub fn offers(&self, operation: Operation) -> bool {
        let has_version = self.azure.as_ref().is_some_and(|azure| azure.api_version.is_some());
        let codec = tollgate_protocols::codec(operation, self.dialect);
        !has_version || codec.is_some_and(|codec| tollgate_protocols::azure::has_path(codec.path()))
    }

    /// True if every customer may name the operator's object with this id there.
    #[must_use]
    pub fn shares(&self, id: &str) -> bool {
        self.shared_ids.iter().any(|shared| match shared.strip_suffix('*') {
            Some(start) => id.starts_with(start),
            None => id == shared,
        })
    }

    /// The credential of this name; the only one has none.
    #[must_use]
    pub fn credential(&self, name: &str) -> Option<&Credential> {
        self.credentials.iter().find(|credential| credential.name == name)
    }
}

/// One of the operator's credentials at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its name in `routes.yaml`; empty for one that has none because it is the only one.
    pub name: String,
    /// A key, or how the gateway signs in.
    pub kind: CredentialKind,
}

/// Kind of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// A key that is sent unchanged with requests.
    Key(Secret),
    /// A token issued for the operator, or a signature.
    Auth(Arc<Auth>),
}

impl Credential {
    /// A key of the operator's by this name.
    #[must_use]
    pub fn key(name: &str, key: Secret) -> Self {
        Self { name: name.to_owned(), kind: CredentialKind::Key(key) }
    }

    /// The way to sign in; `None` for a key.
    #[must_use]
    pub fn auth(&self) -> Option<&Arc<Auth>> {
        match &self.kind {
            CredentialKind::Key(_) => None,
            CredentialKind::Auth(auth) => Some(auth),
        }
    }

    /// All secrets of the credential.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let (key, auth) = match &self.kind {
            CredentialKind::Key(key) => (Some(key.expose()), None),
            CredentialKind::Auth(auth) => (None, Some(auth.secrets())),
        };
        key.into_iter().chain(auth.into_iter().flatten())
    }
}

/// A header of the operator's own in requests to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamHeader {
    /// The name of the field.
    pub name: HeaderName,
    /// Its value: ASCII without line breaks. It may be a secret.
    pub value: Secret,
}

/// Active health check of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path to `GET`; `None` if a connection is enough.
    pub path: Option<String>,
    /// The time between two checks.
    pub interval: Duration,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// Number of consecutive failures that mark the upstream as unhealthy.
    pub unhealthy_after: u32,
    /// Number of consecutive successes that mark the upstream as healthy.
    pub healthy_after: u32,
}

/// Timeouts of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// TCP and TLS handshakes.
    pub connect: Duration,
    /// The longest silence, before a response and inside it.
    pub read: Duration,
    /// Timeout between two accepted pieces of a request.
    pub write: Duration,
    /// The longest that an answer may take, from the request's beginning.
    pub total: Duration,
    /// The longest that an unused connection is kept for the next request.
    pub idle: Duration,
}
