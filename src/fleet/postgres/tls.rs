//! Whom the connection to the database trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::DbError;

/// Makes connections to servers that prove their name with a certificate of `ca_file`, or of one of the
/// machine's authorities.
///
/// # Errors
/// When the certificates cannot be read.
pub(super) fn connector(ca_file: Option<&Path>) -> Result<MakeRustlsConnect, DbError> {
    let roots = match ca_file {
        Some(path) => authorities_of(path).map_err(|error| {
            let path = path.display();
            DbError::Failed(format!("store.postgres.ca_file {path} cannot be used: {error}"))
        })?,
        None => {
            let mut roots = RootCertStore::empty();
            // One that cannot be read is one authority less; the server's own may be among the others.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| DbError::Failed(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// The certificates of a file, as whom to trust.
///
/// # Errors
/// Why they cannot be used.
pub fn authorities_of(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let read = CertificateDer::pem_file_iter(path).map_err(|error| told(&error))?;
    for certificate in read {
        let certificate = certificate.map_err(|error| told(&error))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

fn told(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        error => format!("it is not PEM: {error:?}"),
    }
}
