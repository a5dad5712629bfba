//! Whom the connection to the database trusts.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;
use tollgate_options::postgres::authorities_of;

use super::DbError;

/// Creates a TLS connector that verifies the server's name with a certificate of `ca_file`, or of the
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
