//! The field `admin` of `routes.yaml`.

use std::net::{Ipv4Addr, SocketAddr};

use schemars::JsonSchema;

use super::Tls;

use crate::scalar::{Address, SecretText};

/// The operator's API, probes and metrics.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Admin {
    /// The IP address and port to listen on. Default: `127.0.0.1:9090`.
    pub(crate) address: Address,
    /// The bearer token of the admin API. Default: one is made at the first start and kept in
    /// `admin-token` in the data directory.
    pub(crate) token: Option<SecretText>,
    /// TLS on the admin address. Default: none. Whether there is any takes effect at a restart.
    pub(crate) tls: Option<Tls>,
    /// Operators with tokens of their own, so that the audit tells them apart. At most 100. Whoever
    /// uses `token` is `admin`.
    pub(crate) operators: Vec<Operator>,
    /// `true` serves a console for operators at `/operator`. Default: `true`. Takes effect at a restart.
    pub(crate) console: bool,
}

impl Default for Admin {
    fn default() -> Self {
        let address = Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)));
        Self { address, token: None, tls: None, operators: Vec::new(), console: true }
    }
}

/// One operator.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operator {
    /// The name under which the audit tells what they did.
    pub(crate) name: String,
    /// Their bearer token.
    pub(crate) token: SecretText,
}
