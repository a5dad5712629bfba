//! Single settings of `routes.yaml`, for who reads no others.

use super::{archive, secrets, store};
use crate::document::Document;
use crate::raw;
use crate::spans::Path;
use tollgate_options::archive::Archive;
use tollgate_options::network::ProxyRules;
use tollgate_options::postgres::PostgresOptions;
use tollgate_types::secret::Secret;

/// The secret at the path of these keys; one that cannot be sent in a header is noted.
pub(crate) fn sendable(
    document: &mut Document,
    keys: &[&str],
    secret: Option<Secret>,
) -> Option<Secret> {
    let path = keys.iter().fold(Path::root(), |path, key| path.key(key));
    secrets::check_secret(document, &path, secret.as_ref());
    secret
}

/// How the database of `store.postgres` is reached.
pub(crate) fn database_of(document: &mut Document, raw: raw::Postgres) -> PostgresOptions {
    store::postgres(document, &Path::root().key("store").key("postgres"), raw).options
}

/// Where `store.journal.archive` puts closed files.
pub(crate) fn archive_of(
    document: &mut Document,
    raw: raw::Archive,
    data_dir: &std::path::Path,
    proxies: &ProxyRules,
) -> Option<Archive> {
    archive::compile(document, &Path::root().key("store"), raw, data_dir, proxies)
}
