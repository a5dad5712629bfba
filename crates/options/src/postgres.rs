//! Connection to a fleet's database, and the authorities it is trusted by.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use tollgate_types::secret::Secret;

/// Encryption of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// No encryption: for a database on the same machine.
    Disable,
    /// Encryption is required, and the server's certificate and name are verified.
    VerifyFull,
}

/// Address and settings of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    /// `postgres://user@host:port/database`, without a password; several hosts with commas between
    /// them, of which the one that takes writes is used.
    pub url: String,
    /// The password of the user, if one is set.
    pub password: Option<Secret>,
    /// Encryption of the connection.
    pub tls: TlsMode,
    /// Certificates that are trusted, as PEM. Default: those of the machine.
    pub ca_file: Option<PathBuf>,
    /// Maximum number of connections, in addition to the one for notifications.
    pub connections_max: usize,
    /// The name under which the database lists the connections.
    pub application: String,
}

/// The certificates of a file, as whom to trust.
///
/// # Errors
/// Why they cannot be used.
pub fn authorities_of(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let read = CertificateDer::pem_file_iter(path).map_err(|error| describe(&error))?;
    for certificate in read {
        let certificate = certificate.map_err(|error| describe(&error))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    // An empty store would trust nobody, and every connection would fail without saying why.
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(roots) }
}

fn describe(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        error => format!("it is not PEM: {error:?}"),
    }
}
