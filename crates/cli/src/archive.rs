//! Access of commands to a journal's bucket.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::files::{self, Files};
use tollgate_ledger::{self as ledger, ArchiveTo};

/// Connect to the bucket of the journal in the data directory `data`, as configured in `routes.yaml`.
/// Without archived files, no configuration is needed.
///
/// # Errors
/// Files are archived, and the configuration does not name their bucket.
pub(super) fn connect(data: &Path, files: &Files) -> anyhow::Result<()> {
    // What is wrong with the journal is said by the command itself.
    let buckets = ledger::buckets_of(data).unwrap_or_default();
    let Some(bucket) = buckets.first() else { return Ok(()) };
    let routes = files.routes();
    let archive = files.settings().and_then(|file| file.archive()).map_err(|errors| {
        let otherwise =
            "name the gateway's file with --routes, and set what it needs for its bucket";
        files::failure(&errors, otherwise).context(format!(
            "files of the journal are in the bucket {bucket}, and {} does not say how to reach it",
            routes.display()
        ))
    })?;
    match archive {
        // The journal names its bucket; credentials and endpoint are only in the configuration.
        Some(archive) if matches!(archive.to, ArchiveTo::Bucket(_)) => {
            ledger::connect(&archive).with_context(|| format!("cannot use the bucket {bucket}"))
        }
        _ => bail!(
            "files of the journal are in the bucket {bucket}, and {} has no `store.journal.archive.s3`: \
             name the gateway's with --routes",
            routes.display()
        ),
    }
}
