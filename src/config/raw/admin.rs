//! The field `admin` of `routes.yaml`.

use std::net::{Ipv4Addr, SocketAddr};

use schemars::JsonSchema;

use crate::config::scalar::{Address, SecretText};

/// The operator's API, probes and metrics.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct Admin {
    /// The IP address and port to listen on. Default: `127.0.0.1:9090`.
    pub(in crate::config) address: Address,
    /// The bearer token of the admin API. Default: one is made at the first start and kept in
    /// `admin-token` in the data directory.
    pub(in crate::config) token: Option<SecretText>,
    /// Operators with tokens of their own, so that the audit tells them apart. At most 100. Whoever
    /// uses `token` is `admin`.
    pub(in crate::config) operators: Vec<Operator>,
    /// Whether there is a console for operators at `/operator`. Default: `true`. Takes effect at a
    /// restart.
    pub(in crate::config) console: bool,
}

impl Default for Admin {
    fn default() -> Self {
        let address = Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)));
        Self { address, token: None, operators: Vec::new(), console: true }
    }
}

/// One operator.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Operator {
    /// The name under which the audit tells what they did.
    pub(in crate::config) name: String,
    /// Their bearer token.
    pub(in crate::config) token: SecretText,
}
