//! Use of the sled ledger when the journal next to it is damaged.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use super::Survey;
use crate::projection::store::{Store, StoreError};
use crate::records::key::Key;
use crate::records::record::Record;
use crate::rules::account::{Account, Balance};
use crate::rules::audit;
use crate::rules::core::Core;
use crate::rules::shards::new_cores;
use tollgate_types::ids::{AccountId, Seq};

/// True if sled has other records than the journal under the same numbers.
fn differs(store: &Store, journal: &Survey) -> Result<bool, StoreError> {
    let samples: BTreeMap<Seq, &Record> =
        journal.samples.iter().map(|(seq, record)| (*seq, record)).collect();
    let found = store.records_of(&|seq| samples.contains_key(&seq))?;
    // Of a hold it knows what was held in the end.
    let mut found = found.iter().filter(|(_, record)| !matches!(record, Record::Reserved(_)));
    Ok(found.any(|(seq, record)| samples.get(seq).is_some_and(|sample| *sample != record)))
}

/// Contents of sled for a repair.
#[derive(Default)]
pub(super) struct SledContents {
    /// Description for the operator.
    pub(super) says: String,
    /// True if it belongs to another ledger.
    pub(super) is_foreign: bool,
    /// Position of its last record.
    pub(super) last: Option<Seq>,
    /// Lost records.
    pub(super) records: BTreeMap<Seq, Record>,
    pub(super) accounts: Vec<Account>,
    pub(super) keys: Vec<Arc<Key>>,
}

impl SledContents {
    /// Result for a sled that must not be used.
    pub(super) fn refused() -> Self {
        Self { says: "not asked; it is put aside".to_owned(), ..Self::default() }
    }

    /// Reads from the sled ledger in `dir` the records that the journal has lost.
    pub(super) fn of(dir: &Path, journal: &Survey) -> Self {
        let sled = dir.join("sled");
        if !sled.exists() {
            return Self { says: "there is none".to_owned(), ..Self::default() };
        }
        // Sled panics on some kinds of corruption that it does not expect.
        let read = catch_unwind(AssertUnwindSafe(|| Self::read(&sled, journal)));
        match read {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => Self { says: format!("cannot be read: {error}"), ..Self::default() },
            Err(_) => Self { says: "cannot be read".to_owned(), ..Self::default() },
        }
    }

    fn read(sled: &Path, journal: &Survey) -> Result<Self, StoreError> {
        let store = Store::open(sled)?;
        let mut cores = new_cores();
        store.load(&mut cores)?;
        let Some(end) = store.end()? else {
            return Ok(Self { says: "it is empty".to_owned(), ..Self::default() });
        };
        if let Some(violation) = audit::violations(cores.iter()).first() {
            return Err(StoreError::new(violation.clone()));
        }
        let is_lost = |seq: Seq| {
            (seq > journal.last && seq <= end.seq)
                || journal.lost.iter().any(|(from, to)| (*from..=*to).contains(&seq))
        };
        let is_other = !is_lost(end.seq) && journal.chains.get(&end.seq) != Some(&end.chain);
        if is_other || differs(&store, journal)? {
            return Ok(Self {
                says: format!(
                    "it was made from another journal: its record {} is not this one's. It is put \
                     aside, and built again at the next start",
                    end.seq
                ),
                is_foreign: true,
                ..Self::default()
            });
        }
        let keys = |core: &Core| {
            let keys = core.accounts.values().flat_map(|state| state.keys.values());
            keys.cloned().collect::<Vec<_>>()
        };
        let mut records = store.records_of(&is_lost)?;
        for (id, hold) in cores.iter().flat_map(Core::holds).filter(|(id, _)| is_lost(id.number()))
        {
            records.insert(id.number(), Record::Reserved(Arc::clone(&hold.reservation)));
        }
        Ok(Self {
            says: format!("it is whole up to record {}", end.seq),
            is_foreign: false,
            last: Some(end.seq),
            records,
            accounts: cores.iter().flat_map(Core::accounts).cloned().collect(),
            keys: cores.iter().flat_map(keys).collect(),
        })
    }

    /// The money of accounts as it has it.
    pub(super) fn balances(&self) -> HashMap<AccountId, Balance> {
        self.accounts.iter().map(|account| (account.id, account.balance)).collect()
    }
}
