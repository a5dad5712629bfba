//! Single settings of `routes.yaml`, for who reads no others.

use super::{archive, secrets, store};
use crate::document::Document;
use crate::raw;
use crate::spans::DocumentPath;
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
    let path = keys.iter().fold(DocumentPath::root(), |path, key| path.key(key));
    secrets::check_secret(document, &path, secret.as_ref());
    secret
}

/// Compiles `store.postgres` alone, for commands that need no other part of the file.
pub(crate) fn database_of(document: &mut Document, raw: raw::PostgresSection) -> PostgresOptions {
    store::postgres(document, &DocumentPath::root().key("store").key("postgres"), raw).options
}

/// Compiles `store.journal.archive` alone, for commands that need no other part of the file.
pub(crate) fn archive_of(
    document: &mut Document,
    raw: raw::ArchiveSection,
    data_dir: &std::path::Path,
    proxies: &ProxyRules,
) -> Option<Archive> {
    archive::compile(document, &DocumentPath::root().key("store"), raw, data_dir, proxies)
}
