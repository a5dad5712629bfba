//! Makes the seal of a closed segment out of its records.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use tollgate_journal::sealing::SealedSegment;
pub(crate) use tollgate_journal::sealing::SegmentStart;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::Seq;

use super::LedgerFormat;
use crate::files::seal::{Seal, Summary, accounts_path, list_of};
use crate::records::error::OpenError;

/// Seals the closed segment that begins with the record `first_seq`, and behind which `next` begins. Its
/// accounts are on disk before the seal, so that whoever finds a seal finds them.
///
/// # Errors
/// When it cannot be read, or is damaged, or does not lead to the next one.
pub(crate) fn make_seal(dir: &Path, first_seq: Seq, next: SegmentStart) -> Result<Seal, OpenError> {
    let (mut first_at, mut last_at) = (UnixMs(u64::MAX), UnixMs(0));
    let mut accounts = BTreeSet::new();
    let sealed = SealedSegment::read::<LedgerFormat>(dir, first_seq, next, |record| {
        (first_at, last_at) = (first_at.min(record.at()), last_at.max(record.at()));
        accounts.insert(record.account());
    })?;
    let accounts = list_of(accounts.into_iter());
    let accounts_sha256 = Sha256::digest(&accounts).into();
    let accounts_path = accounts_path(dir, first_seq);
    write_durably(&accounts_path, &accounts).map_err(OpenError::io(&accounts_path))?;
    let seal = sealed.with(Summary { accounts_sha256, first_at, last_at });
    seal.keep(dir)?;
    Ok(seal)
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
