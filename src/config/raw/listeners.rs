//! The field `listeners` of `routes.yaml`.

use schemars::JsonSchema;

use crate::config::scalar::Address;

/// One address where customers connect.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Listener {
    /// The IP address and port to listen on, such as `0.0.0.0:8080`. Port 0 takes any free port.
    pub(in crate::config) address: Address,
    /// Whether HTTP/2 without TLS is spoken there, beside HTTP/1.1. Default: `true`.
    #[serde(default = "yes")]
    pub(in crate::config) h2c: bool,
    /// Whether every connection begins with a header of the PROXY protocol, version 1 or 2, as load
    /// balancers send it. A connection without one is closed. Default: `false`.
    #[serde(default)]
    pub(in crate::config) proxy_protocol: bool,
    /// TLS, with HTTP/2 and HTTP/1.1. Default: none.
    #[serde(default)]
    pub(in crate::config) tls: Option<Tls>,
}

/// TLS on a listener. The files are read again at a reload, and when they change.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Tls {
    /// The path of a PEM file: the server's own certificate first, then the intermediates. A
    /// relative path begins at the directory of this file.
    pub(in crate::config) certificate: String,
    /// The path of a PEM file with the certificate's private key, without a passphrase.
    pub(in crate::config) key: String,
}

fn yes() -> bool {
    true
}
