//! Seals, of closed segments: when the records in one happened, and of which accounts they are.
//! The accounts stand in a file of their own, `<first record>.accounts`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tollgate_journal::checked::hex32;

pub(crate) use tollgate_journal::seal::{ArchivedSegment, chain_before, path};

use crate::records::error::OpenError;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, Seq};

/// The seal of a closed segment of the ledger's journal.
pub(crate) type Seal = tollgate_journal::seal::Seal<Summary>;

/// Summary of a sealed segment's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The hash of the list of accounts.
    #[serde(with = "hex32")]
    pub(crate) accounts_sha256: [u8; 32],
    /// The earliest that one of the records happened.
    pub(crate) first_at: UnixMs,
    /// Time of the latest record.
    pub(crate) last_at: UnixMs,
}

/// The path of the list of accounts that a segment has records of.
pub(crate) fn accounts_path(dir: &Path, first_seq: Seq) -> PathBuf {
    dir.join(format!("{first_seq:016x}.accounts"))
}

/// True if a segment may contain records of this account. Also true if the list of accounts is
/// missing or does not match its checksum.
pub(crate) fn may_have(seal: &Seal, dir: &Path, account: AccountId) -> bool {
    let Ok(accounts) = fs::read(accounts_path(dir, seal.first_seq)) else { return true };
    if Sha256::digest(&accounts).as_slice() != seal.summary.accounts_sha256 {
        return true;
    }
    let (accounts, _) = accounts.as_chunks::<4>();
    accounts.binary_search_by_key(&short(account), |bytes| u32::from_le_bytes(*bytes)).is_ok()
}

/// The seals of a journal, in order.
///
/// # Errors
/// When one cannot be read, or was changed.
pub(crate) fn all(dir: &Path) -> Result<Vec<Seal>, OpenError> {
    Ok(tollgate_journal::seal::all(dir)?)
}

/// A set of accounts as its file has it, in order.
pub(crate) fn list_of(accounts: impl Iterator<Item = AccountId>) -> Vec<u8> {
    let short: BTreeSet<u32> = accounts.map(short).collect();
    short.iter().flat_map(|account| account.to_le_bytes()).collect()
}

/// Number of an account folded to 32 bits, for the list of accounts beside a seal. Two accounts rarely share
/// a value.
fn short(account: AccountId) -> u32 {
    let [a, b, c, d, e, f, g, h] = account.number().to_le_bytes();
    u32::from_le_bytes([a ^ e, b ^ f, c ^ g, d ^ h])
}
