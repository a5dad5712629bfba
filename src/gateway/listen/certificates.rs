//! TLS certificates of listeners: the configured one, or a newer version of its files that was read since.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring::{self, Ticketer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::clock::UnixMs;
use crate::config::snapshot::Listener;
use crate::config::{Certificate, CertificateError, CertificateFiles, ConfigHandle};

/// Certificate of one address, loaded at every handshake.
pub struct Certificates {
    config: Arc<ConfigHandle>,
    place: TlsEndpoint,
    in_force: ArcSwap<InForce>,
}

/// The address that a certificate belongs to.
#[derive(Debug)]
enum TlsEndpoint {
    /// The customers': its place in the list of listeners, and what it was opened as.
    Listener(usize, Listener),
    /// The listener of the operators.
    Admin,
}

struct InForce {
    /// The certificate of the configuration from which the current one was chosen.
    configured: Arc<Certificate>,
    /// Certificate presented to clients.
    shown: Arc<Certificate>,
}

impl Certificates {
    /// Certificates of the listener at `index`; `None` if it was opened without TLS.
    #[must_use]
    pub fn for_listener(
        config: &Arc<ConfigHandle>,
        index: usize,
        opened: &Listener,
    ) -> Option<Arc<Self>> {
        let configured = Arc::clone(opened.tls.as_ref()?);
        Some(Self::new(config, TlsEndpoint::Listener(index, opened.clone()), configured))
    }

    /// Certificates of the admin address; `None` if it has no TLS.
    #[must_use]
    pub fn of_admin(config: &Arc<ConfigHandle>) -> Option<Arc<Self>> {
        let configured = config.load().admin.tls.clone()?;
        Some(Self::new(config, TlsEndpoint::Admin, configured))
    }

    fn new(
        config: &Arc<ConfigHandle>,
        place: TlsEndpoint,
        configured: Arc<Certificate>,
    ) -> Arc<Self> {
        let in_force =
            ArcSwap::from_pointee(InForce { shown: Arc::clone(&configured), configured });
        Arc::new(Self { config: Arc::clone(config), place, in_force })
    }

    /// TLS 1.2 and 1.3 with these certificates, no early data: that could be replayed.
    ///
    /// # Errors
    /// When TLS cannot be prepared.
    pub fn into_tls(self: Arc<Self>, protocols: &[&[u8]]) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // Sessions resume without memory of ours.
        config.ticketer = Ticketer::new()?;
        Ok(config)
    }

    /// Paths of the current certificate and its key.
    #[must_use]
    pub fn files(&self) -> CertificateFiles {
        self.current().shown.files.clone()
    }

    /// End of the validity of the active certificate.
    #[must_use]
    pub fn not_after(&self) -> UnixMs {
        self.current().shown.not_after
    }

    /// Looks into the files again: whether they have changed.
    ///
    /// # Errors
    /// Why what is in the files now cannot be used; what was shown before goes on.
    pub fn renew(&self) -> Result<bool, Vec<CertificateError>> {
        let current = self.current();
        let Some(renewed) = current.shown.renewed(UnixMs::now())? else { return Ok(false) };
        let configured = Arc::clone(&current.configured);
        self.in_force.store(Arc::new(InForce { configured, shown: Arc::new(renewed) }));
        Ok(true)
    }

    /// The certificate to present: the configured one, or the result of a later renewal.
    fn current(&self) -> Arc<InForce> {
        let current = self.in_force.load_full();
        let snapshot = self.config.load();
        let configured = match &self.place {
            // A listener that has changed in another way takes effect at a restart, whole.
            TlsEndpoint::Listener(index, opened) => snapshot
                .listeners
                .get(*index)
                .filter(|listener| listener.is_served_like(opened))
                .and_then(|listener| listener.tls.as_ref()),
            TlsEndpoint::Admin => snapshot.admin.tls.as_ref(),
        };
        match configured {
            Some(configured) if !Arc::ptr_eq(configured, &current.configured) => {
                let (configured, shown) = (Arc::clone(configured), Arc::clone(configured));
                let reloaded = Arc::new(InForce { configured, shown });
                self.in_force.store(Arc::clone(&reloaded));
                reloaded
            }
            _ => current,
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current().shown.certified))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("place", &self.place).finish_non_exhaustive()
    }
}
