//! Which certificate a listener shows: that of the configuration in force, or a newer one that its
//! files have come to hold since.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::clock::UnixMs;
use crate::config::snapshot::Listener;
use crate::config::{Certificate, CertificateError, CertificateFiles, ConfigHandle};

/// The certificate of one listener, asked for at every handshake.
pub struct Certificates {
    config: Arc<ConfigHandle>,
    /// The listener's place in the list.
    index: usize,
    /// What it was opened as.
    opened: Listener,
    in_force: ArcSwap<InForce>,
}

struct InForce {
    /// What the configuration said when it was chosen.
    configured: Arc<Certificate>,
    /// What is shown.
    shown: Arc<Certificate>,
}

impl Certificates {
    /// Those of the listener at `index`; `None` if it was opened without TLS.
    #[must_use]
    pub fn of(config: &Arc<ConfigHandle>, index: usize, opened: &Listener) -> Option<Arc<Self>> {
        let configured = Arc::clone(opened.tls.as_ref()?);
        let in_force = InForce { shown: Arc::clone(&configured), configured };
        Some(Arc::new(Self {
            config: Arc::clone(config),
            index,
            opened: opened.clone(),
            in_force: ArcSwap::from_pointee(in_force),
        }))
    }

    /// Where the certificate in force is kept.
    #[must_use]
    pub fn files(&self) -> CertificateFiles {
        self.current().shown.files.clone()
    }

    /// The end of the validity of the one in force.
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

    /// What is in force: what a reload has read since, before anything older.
    fn current(&self) -> Arc<InForce> {
        let current = self.in_force.load_full();
        let snapshot = self.config.load();
        // A listener that has changed in another way takes effect at a restart, whole.
        let configured = snapshot
            .listeners
            .get(self.index)
            .filter(|listener| listener.is_served_like(&self.opened))
            .and_then(|listener| listener.tls.as_ref());
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
        f.debug_struct("Certificates").field("opened", &self.opened).finish_non_exhaustive()
    }
}
