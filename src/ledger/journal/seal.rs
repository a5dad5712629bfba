//! What the ledger notes of a closed segment: when its records happened, and of which accounts they are.
//! The accounts stand in a file of their own, `<first record>.accounts`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_journal::checked::hex32;

pub(crate) use tollgate_journal::seal::{Archived, chain_before, path};
pub(crate) use tollgate_journal::sealing::Next;

use super::LedgerFormat;
use crate::clock::UnixMs;
use crate::ids::{AccountId, Seq};
use crate::ledger::records::error::OpenError;

/// The seal of a closed segment of the ledger's journal.
pub(crate) type Seal = tollgate_journal::seal::Seal<Summary>;

/// What a seal says of the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The hash of the list of accounts.
    #[serde(with = "hex32")]
    pub(crate) accounts_sha256: [u8; 32],
    /// The earliest that one of the records happened.
    pub(crate) first_at: UnixMs,
    /// The latest.
    pub(crate) last_at: UnixMs,
}

/// The path of the list of accounts that a segment has records of.
pub(crate) fn accounts_path(dir: &Path, first_seq: Seq) -> PathBuf {
    dir.join(format!("{first_seq:016x}.accounts"))
}

/// Seals the closed segment that begins with the record `first_seq`, and behind which `next` begins. Its
/// accounts are on disk before the seal, so that whoever finds a seal finds them.
///
/// # Errors
/// When it cannot be read, or is damaged, or does not lead to the next one.
pub(crate) fn make(dir: &Path, first_seq: Seq, next: Next) -> Result<Seal, OpenError> {
    let (mut first_at, mut last_at) = (UnixMs(u64::MAX), UnixMs(0));
    let mut accounts = BTreeSet::new();
    let sealed =
        tollgate_journal::sealing::Sealed::read::<LedgerFormat>(dir, first_seq, next, |record| {
            (first_at, last_at) = (first_at.min(record.at()), last_at.max(record.at()));
            accounts.insert(short(record.account()));
        })?;
    let accounts: Vec<u8> = accounts.iter().flat_map(|account| account.to_le_bytes()).collect();
    let accounts_sha256 = Sha256::digest(&accounts).into();
    let accounts_path = accounts_path(dir, first_seq);
    write_durably(&accounts_path, &accounts).map_err(OpenError::io(&accounts_path))?;
    let seal = sealed.with(Summary { accounts_sha256, first_at, last_at });
    seal.keep(dir)?;
    Ok(seal)
}

/// Whether a segment may have records of this account: `true` where nobody knows, because the list is not
/// there or is not the one that was written.
pub(crate) fn may_have(seal: &Seal, dir: &Path, account: AccountId) -> bool {
    let Ok(known) = fs::read(accounts_path(dir, seal.first_seq)) else { return true };
    if Sha256::digest(&known).as_slice() != seal.summary.accounts_sha256 {
        return true;
    }
    let (known, _) = known.as_chunks::<4>();
    known.binary_search_by_key(&short(account), |bytes| u32::from_le_bytes(*bytes)).is_ok()
}

/// The seals of a journal, in order.
///
/// # Errors
/// When one cannot be read, or was changed.
pub(crate) fn all(dir: &Path) -> Result<Vec<Seal>, OpenError> {
    Ok(tollgate_journal::seal::all(dir)?)
}

/// An account in a list: short, and seldom another one's.
fn short(account: AccountId) -> u32 {
    let [a, b, c, d, e, f, g, h] = account.number().to_le_bytes();
    u32::from_le_bytes([a ^ e, b ^ f, c ^ g, d ^ h])
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
