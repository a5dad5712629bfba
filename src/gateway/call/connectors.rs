//! Where connections to upstreams come from: one connector for those over TLS, one for others.
//!
//! A connector for TLS has the machine's root certificates, which take longer to read than the rest of a
//! start and a few megabytes: so there is none before an upstream is called over TLS.

use std::sync::{Arc, OnceLock};

use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::{Error, ErrorType, Result};

use crate::config::snapshot::Snapshot;

/// A file of root certificates that has none.
pub(crate) const NO_ROOTS: &str = "/dev/null";

/// The connectors to all upstreams.
pub struct Connectors {
    plain: TransportConnector,
    tls: Arc<OnceLock<TransportConnector>>,
}

impl Default for Connectors {
    /// The one for TLS is made when it is needed.
    fn default() -> Self {
        let options = ConnectorOptions { ca_file: Some(NO_ROOTS.to_owned()), ..options() };
        Self { plain: TransportConnector::new(Some(options)), tls: Arc::default() }
    }
}

impl Connectors {
    /// Begins to read the root certificates if an upstream of `config` will be called over TLS, so that
    /// its first call need not wait for them.
    pub fn begin(&self, config: &Snapshot) {
        if config.upstreams.values().any(|upstream| upstream.tls) {
            let tls = Arc::clone(&self.tls);
            tokio::task::spawn_blocking(move || {
                tls.get_or_init(over_tls);
            });
        }
    }

    /// The one for upstreams with or without TLS.
    ///
    /// # Errors
    /// When the machine's root certificates cannot be read.
    pub(crate) async fn get(&self, tls: bool) -> Result<&TransportConnector> {
        if !tls {
            return Ok(&self.plain);
        }
        if let Some(connector) = self.tls.get() {
            return Ok(connector);
        }
        let made = Arc::clone(&self.tls);
        let make = move || {
            made.get_or_init(over_tls);
        };
        let unread = |error| Error::because(ErrorType::InvalidCert, "the root certificates", error);
        tokio::task::spawn_blocking(make).await.map_err(unread)?;
        self.tls.get().ok_or_else(|| Error::new(ErrorType::InvalidCert))
    }
}

/// Panics where the root certificates cannot be read.
fn over_tls() -> TransportConnector {
    TransportConnector::new(Some(options()))
}

/// Unused connections are kept elsewhere.
fn options() -> ConnectorOptions {
    ConnectorOptions::new(0)
}
