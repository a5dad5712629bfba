//! The admin API's token in a file: one that the operator names, or the one that a gateway without a
//! configured token has made for itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use tollgate_config::snapshot::Snapshot;
use tollgate_types::secret::Secret;

/// Reads the token in a file that the operator names.
pub(super) fn read(file: &Path) -> anyhow::Result<Secret> {
    find(file)?.with_context(|| format!("there is no admin token in {}", file.display()))
}

/// Reads the token that the gateway with this data directory has made.
pub(super) fn kept(data_dir: &Path) -> anyhow::Result<Secret> {
    read(&place(data_dir))
}

/// The token of a gateway: its configuration's, or else one of its own.
pub fn configured_or_made(config: &Snapshot) -> anyhow::Result<Secret> {
    match &config.admin.token {
        Some(token) => Ok(token.clone()),
        None => kept_or_made(&config.store.data_dir),
    }
}

/// The token in a data directory, made at the gateway's first start.
fn kept_or_made(data_dir: &Path) -> anyhow::Result<Secret> {
    let path = place(data_dir);
    if let Some(token) = find(&path)? {
        return Ok(token);
    }
    let token = Secret::new_token();
    tollgate_ledger::write_private(&path, token.expose())
        .with_context(|| format!("cannot write {}", path.display()))?;
    log::info!("admin token written to {}", path.display());
    Ok(token)
}

fn place(data_dir: &Path) -> PathBuf {
    data_dir.join("admin-token")
}

/// What the file holds; `None` when there is no such file, or nothing in it.
fn find(file: &Path) -> anyhow::Result<Option<Secret>> {
    match std::fs::read_to_string(file) {
        Ok(token) => {
            let token = token.trim();
            Ok((!token.is_empty()).then(|| Secret::new(token.to_owned())))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}
