//! The field `listeners` of `routes.yaml`.

use schemars::JsonSchema;

use crate::scalar::ListenAddress;

/// An address on which the gateway accepts customers.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Listener")]
pub(crate) struct ListenerEntry {
    /// The IP address and port to listen on, such as `0.0.0.0:8080`. Port 0 takes any free port.
    pub(crate) address: ListenAddress,
    /// `true` accepts HTTP/2 without TLS beside HTTP/1.1. Default: `true`.
    #[serde(default = "yes")]
    pub(crate) h2c: bool,
    /// `true` requires a PROXY protocol header, version 1 or 2, at the beginning of every connection, as load
    /// balancers send it. A connection without one is closed. Default: `false`.
    #[serde(default)]
    pub(crate) proxy_protocol: bool,
    /// TLS, with HTTP/2 and HTTP/1.1. Default: none.
    #[serde(default)]
    pub(crate) tls: Option<Tls>,
}

/// TLS on a listener. The files are read again at a reload, and when they change.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// The path of a PEM file: the server's own certificate first, then the intermediates. A
    /// relative path begins at the directory of this file.
    pub(crate) certificate: String,
    /// The path of a PEM file with the certificate's private key, without a passphrase.
    pub(crate) key: String,
}

fn yes() -> bool {
    true
}
