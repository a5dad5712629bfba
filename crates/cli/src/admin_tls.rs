//! TLS to the admin address of a running gateway. The address is an IP while the certificate has a name,
//! so the certificate itself is pinned: the one in the operator's files.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// TLS configuration that accepts only the first certificate in this file.
///
/// # Errors
/// The file has no certificate.
pub(super) fn pinned_to(file: &Path) -> anyhow::Result<Arc<ClientConfig>> {
    let expected = CertificateDer::from_pem_file(file)
        .map_err(|error| anyhow!("{error}"))
        .with_context(|| format!("there is no certificate in {}", file.display()))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(PinnedVerifier { expected, provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Verifier that accepts exactly one certificate.
#[derive(Debug)]
struct PinnedVerifier {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // Neither name nor expiry is checked: the operator has this very certificate, and the address is an
        // IP.
        if *shown == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General("it shows another certificate than the one in the file".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        // The certificate is public: only the signature proves that the server has its key.
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
