//! The machine's trusted root certificates.
//!
//! There are hundreds, each in a file of its own, and reading them takes longer than the rest of a
//! start: so they are read when the first server shows a certificate, and once for all clients.

use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    WantsVerifier,
};
use rustls_platform_verifier::Verifier;

use crate::local::LocalResource;

/// The protocol that all calls are made in, as TLS names it.
pub(crate) const HTTP_1: &[u8] = b"http/1.1";

static ROOTS: LazyLock<Arc<MachineRoots>> = LazyLock::new(|| Arc::new(MachineRoots::new()));
static CONFIG: LazyLock<Result<Arc<ClientConfig>, Error>> = LazyLock::new(configure);

/// The TLS settings for servers. Session tickets are shared by all clients.
///
/// # Errors
/// When TLS cannot be spoken at all.
pub(crate) fn client_config() -> Result<Arc<ClientConfig>, Error> {
    CONFIG.clone()
}

/// The common start of TLS settings.
///
/// # Errors
/// When TLS cannot be spoken at all.
pub(crate) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&ROOTS.provider));
    builder.with_safe_default_protocol_versions()
}

/// Has servers verified by the machine's root certificates, as ever but for when those are read.
pub(crate) fn by_machine(
    builder: ConfigBuilder<ClientConfig, WantsVerifier>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let roots: Arc<MachineRoots> = Arc::clone(&ROOTS);
    builder.dangerous().with_custom_certificate_verifier(roots)
}

/// Reads the root certificates, unless that was done. Blocks for a while.
pub(crate) fn read() {
    // Whoever needs them meets the error.
    drop(ROOTS.read());
}

/// Waits until the root certificates are read.
///
/// # Errors
/// The resource of this machine that is too short to read them. Other failures are met by the handshake.
pub(crate) async fn ready() -> Result<(), LocalResource> {
    if ROOTS.read.get().is_some() {
        return Ok(());
    }
    let read = || match ROOTS.read() {
        Err(Error::Other(error)) => error.0.downcast_ref().map_or(Ok(()), |unread| {
            let RootsUnread(resource) = unread;
            Err(*resource)
        }),
        Ok(_) | Err(_) => Ok(()),
    };
    // A runtime that ends needs none.
    tokio::task::spawn_blocking(read).await.unwrap_or(Ok(()))
}

/// The root certificates could not be read for want of a resource of this machine.
#[derive(Debug)]
pub(crate) struct RootsUnread(pub(crate) LocalResource);

impl fmt::Display for RootsUnread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the root certificates could not be read: no {} left", self.0.as_str())
    }
}

impl std::error::Error for RootsUnread {}

fn configure() -> Result<Arc<ClientConfig>, Error> {
    let mut config = by_machine(builder()?).with_no_client_auth();
    config.alpn_protocols = vec![HTTP_1.to_vec()];
    Ok(Arc::new(config))
}

/// Verifies servers by the machine's root certificates, once it has read them.
#[derive(Debug)]
struct MachineRoots {
    provider: Arc<CryptoProvider>,
    read: OnceLock<Verifier>,
}

impl MachineRoots {
    fn new() -> Self {
        Self { provider: Arc::new(ring::default_provider()), read: OnceLock::new() }
    }

    /// Reads them, unless that was done. What has failed is tried again by the next caller.
    fn read(&self) -> Result<&Verifier, Error> {
        if let Some(verifier) = self.read.get() {
            return Ok(verifier);
        }
        // Files that cannot be opened are left out without an error, and what was read is kept for good:
        // a moment without descriptors must not cost a certificate.
        let before = LocalResource::find_exhausted();
        let verifier = Verifier::new(Arc::clone(&self.provider));
        if let Some(resource) = before.or_else(LocalResource::find_exhausted) {
            return Err(Error::Other(OtherError(Arc::new(RootsUnread(resource)))));
        }
        let verifier = verifier?;
        Ok(self.read.get_or_init(|| verifier))
    }
}

impl ServerCertVerifier for MachineRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.read()?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    #[test]
    fn clients_are_made_without_reading_the_roots() {
        drop(client_config().expect("settings"));
        assert!(ROOTS.read.get().is_none(), "nobody has shown a certificate");
    }

    #[test]
    fn a_certificate_that_no_root_vouches_for_is_refused() {
        let roots = MachineRoots::new();
        let own = rcgen::generate_simple_self_signed(["example.com".to_owned()]).expect("made");
        let server = ServerName::try_from("example.com").expect("a name");
        let verified = roots.verify_server_cert(own.cert.der(), &[], &server, &[], UnixTime::now());
        let refused = verified.expect_err("nobody vouches for it");
        // A machine without any roots refuses as well, and says so.
        if roots.read.get().is_some() {
            let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
            assert_eq!(refused, unknown);
        }
    }
}
