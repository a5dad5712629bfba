//! The field `admin` of `routes.yaml`.

use std::net::{Ipv4Addr, SocketAddr};

use schemars::JsonSchema;

use super::Tls;

use crate::scalar::{ListenAddress, SecretText};

/// The operator's API, probes and metrics.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename = "Admin")]
pub(crate) struct AdminSection {
    /// The IP address and port to listen on. Default: `127.0.0.1:9090`.
    pub(crate) address: ListenAddress,
    /// The bearer token of the admin API. Default: one is made at the first start and kept in
    /// `admin-token` in the data directory.
    pub(crate) token: Option<SecretText>,
    /// TLS on the admin address. Default: none. Whether there is any takes effect at a restart.
    pub(crate) tls: Option<Tls>,
    /// Operators with their own tokens, so that the audit log distinguishes them. At most 100. Users of
    /// `token` appear as `admin`.
    pub(crate) operators: Vec<OperatorEntry>,
    /// `true` serves a console for operators at `/operator`. Default: `true`. Takes effect at a restart.
    pub(crate) console: bool,
}

impl Default for AdminSection {
    fn default() -> Self {
        let address = ListenAddress(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)));
        Self { address, token: None, tls: None, operators: Vec::new(), console: true }
    }
}

/// An operator with a token.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Operator")]
pub(crate) struct OperatorEntry {
    /// Name of the operator in the audit log.
    pub(crate) name: String,
    /// The operator's bearer token.
    pub(crate) token: SecretText,
}
