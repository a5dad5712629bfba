//! The open ledger of one data directory in memory: accounts by shard, keys, the commit of a record to the
//! journal and to memory; and its parts: audit records, notes of calls in flight, the ports of tasks and figures.
//!
//! Decisions are made in memory under the lock of the account's shard: decide, take a sequence number in the
//! journal, apply. So the journal has the decisions of an account in their order, and a replay gives the same
//! state.
//!
//! Lock order: the operator's shard, shards of accounts by index, then one of keys, places of accounts, e-mail
//! addresses and idempotency keys.
//!
//! It may import the layers below, from `maintenance` on.

pub(crate) mod act;
pub(crate) mod books;
pub(crate) mod follow;
pub(crate) mod hold;
pub(crate) mod registry;
pub(crate) mod in_flight;
pub(crate) mod pages;
pub(crate) mod write;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use crate::files::fatal::fatal;
use crate::files::lock::DirectoryLock;
use crate::journal::{self, Journal, JournalStopped};
use crate::maintenance::worker::Maintenance;
use crate::memory::act::IdempotencyIndex;
use crate::memory::books::Books;
use crate::memory::in_flight::{CrashRemnants, InFlightLog};
use crate::memory::pages::{AccountPlace, KeyPlace};
use crate::memory::registry::TaskRegistry;
use crate::ports::funds::SharedFunds;
use crate::projection::backlog::Backlog;
use crate::projection::projected::{ProjectionSlot, ProjectionState};
use crate::records::error::LedgerError;
use crate::records::id_map::{IdMap, IdSet};
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::records::price::{AccountPrices, PriceGroup};
use crate::records::record::Record;
use crate::rules::account::{Account, Totals};
use crate::rules::audit;
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use crate::rules::sums::AccountSums;
use tollgate_money::money::Nanousd;
use tollgate_options::holds::HoldOverrides;
use tollgate_types::ids::{AccountId, KeyId, Seq};
use tollgate_types::limit::Rates;
use tollgate_types::secret::KeyHash;

/// The open ledger of one data directory.
pub struct Ledger {
    pub(crate) shards: Vec<Mutex<Core>>,
    pub(crate) keys: RwLock<Keys>,
    /// Places of all accounts in lists. Shards are locked before it, never under it.
    pub(crate) account_places: RwLock<BTreeSet<AccountPlace>>,
    /// Writes that are recognised when they are repeated. Locked behind all shards.
    pub(crate) ids: Mutex<IdempotencyIndex>,
    /// Account that each e-mail address opens. Locked after all shards.
    pub(crate) emails: Mutex<HashMap<String, AccountId>>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) projected: Arc<ProjectionSlot>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    /// Calls that this process sends before their hold is durable.
    pub(crate) in_flight: InFlightLog,
    /// Calls that the previous process had in flight.
    pub(crate) remnants: CrashRemnants,
    /// The directory, for those who read the whole journal.
    pub(crate) dir: PathBuf,
    /// Permits for reading the whole journal.
    pub(crate) scans: Arc<Semaphore>,
    /// Permit for reading old statement lines from the journal.
    pub(crate) past: Semaphore,
    /// Money shared with other ledgers of a fleet; `None` in a single gateway.
    pub(crate) fleet: Option<Arc<dyn SharedFunds>>,
    /// Figures of the accounts: local, or shared by a fleet.
    pub(crate) books: Box<dyn Books>,
    /// Tasks: local, or shared by a fleet.
    pub(crate) tasks: Box<dyn TaskRegistry>,
    /// Locked for as long as the ledger is open.
    pub(crate) _lock: DirectoryLock,
    /// Seals, checkpoints and the archive.
    pub(crate) maintenance: Arc<Maintenance>,
}

/// All keys, for authentication.
#[derive(Default)]
pub(crate) struct Keys {
    pub(crate) by_hash: IdMap<KeyHash, Arc<Key>>,
    pub(crate) by_id: IdMap<KeyId, Arc<Key>>,
    /// Keys of each account in the order of lists: by creation, then by id.
    pub(crate) by_account: BTreeSet<KeyPlace>,
    /// Limits of keys that have any.
    pub(crate) limits: IdMap<KeyId, KeyLimits>,
    /// Rate limits of accounts that have any.
    pub(crate) rates: IdMap<AccountId, Rates>,
    /// Price rules of accounts that have any; empty in most gateways.
    pub(crate) prices: IdMap<AccountId, Arc<AccountPrices>>,
    /// Price rules that accounts share.
    pub(crate) groups: HashMap<String, Arc<PriceGroup>>,
    /// Hold rules that some accounts have; empty in most gateways.
    pub(crate) holds: IdMap<AccountId, Arc<HoldOverrides>>,
    /// Accounts whose keys are refused; empty in most gateways.
    pub(crate) suspended: IdSet<AccountId>,
}

impl Keys {
    pub(crate) fn insert(&mut self, key: Arc<Key>) {
        let place = |key: &Key| (key.account, key.created_at, key.id);
        self.by_hash.insert(key.hash, Arc::clone(&key));
        self.by_account.insert(place(&key));
        if let Some(before) = self.by_id.insert(key.id, Arc::clone(&key))
            && place(&before) != place(&key)
        {
            self.by_account.remove(&place(&before));
        }
    }
}

impl Ledger {
    /// The key that was presented, if it exists; whether it may be used is the caller's to check.
    #[must_use]
    pub fn key(&self, hash: &KeyHash) -> Option<Arc<Key>> {
        self.keys.read().by_hash.get(hash).cloned()
    }

    /// The key of this id.
    #[must_use]
    pub fn key_by_id(&self, id: KeyId) -> Option<Arc<Key>> {
        self.keys.read().by_id.get(&id).cloned()
    }

    /// The keys of an account, oldest first.
    #[must_use]
    pub fn keys_of(&self, account: AccountId) -> Vec<Arc<Key>> {
        let mut keys: Vec<_> = self.shard(account).lock().keys(account).cloned().collect();
        keys.sort_by_key(|key| (key.created_at, key.id));
        keys
    }

    /// The account of this id, as it is now. In a fleet its money is what this node has: see
    /// [`Ledger::durable_account`].
    #[must_use]
    pub fn account(&self, id: AccountId) -> Option<Account> {
        self.shard(id).lock().account(id).cloned()
    }

    /// All accounts, oldest first. In a fleet their money is what this node has: see
    /// [`Ledger::with_figures`].
    #[must_use]
    pub fn accounts(&self) -> Vec<Account> {
        let shards = self.shards.iter();
        let mut accounts: Vec<_> =
            shards.flat_map(|shard| shard.lock().accounts().cloned().collect::<Vec<_>>()).collect();
        accounts.sort_by_key(|account| (account.created_at, account.id));
        accounts
    }

    /// Cost of all this node's calls that accounts neither paid nor owe.
    #[must_use]
    pub fn written_off(&self) -> Nanousd {
        self.own_totals().written_off
    }

    /// Sums over all accounts in this process's memory.
    pub(crate) fn own_totals(&self) -> Totals {
        let mut sums = AccountSums::default();
        self.shards.iter().for_each(|shard| sums.add(&shard.lock().sums));
        sums.totals()
    }

    /// Number of open holds.
    #[must_use]
    pub fn open_holds(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().open_holds() as u64).sum()
    }

    /// State of the sled projection.
    #[must_use]
    pub fn projection_state(&self) -> ProjectionState {
        self.projected.state()
    }

    /// The hash of the whole state, as [`audit::state_hash`] defines it. Stops all decisions while
    /// it is taken.
    #[must_use]
    pub fn state_hash(&self) -> [u8; 32] {
        // By index, as the lock order demands: writes that touch two shards would deadlock otherwise.
        let shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        audit::state_hash(shards.iter().map(|shard| &**shard))
    }

    /// Closes the ledger: takes nothing more, and returns once everything is in journal and sled, so
    /// that the next start has nothing to replay. Holds that are still open are in doubt then.
    ///
    /// Blocks for as long as the disk takes.
    pub fn close(&self) {
        // Maintenance first, so that it begins no checkpoint whose record the stopped journal would refuse.
        self.maintenance.stop();
        self.journal.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                log::error!("a thread of the ledger panicked");
            }
        }
    }

    pub(crate) fn shard(&self, account: AccountId) -> &Mutex<Core> {
        &self.shards[shard_index(account)]
    }

    /// Gives a decided record its place in the journal and makes it so. The caller holds the lock of
    /// the account's shard since before the decision.
    pub(crate) fn commit(&self, core: &mut Core, record: Record) -> Result<Seq, JournalStopped> {
        // The hold as it was before this record: applying the record may remove it.
        let hold = record.open_hold().and_then(|id| core.hold(id).cloned());
        // The number is taken under the shard's lock, so the journal has the decisions of an account in
        // their order. If the journal has stopped, memory stays unchanged.
        let seq = journal::enqueue(&self.journal, record.clone(), hold)?;
        self.reflect(core, seq, &record);
        if let Err(violation) = core.apply(seq, &record) {
            // The decision and the rules contradict each other. To go on would put memory and
            // journal apart; the record has most likely not reached the disk.
            fatal(&format!("the ledger contradicts itself: {violation}"));
        }
        Ok(seq)
    }

    /// The same for records that a crash must not part: they reach the disk together, or not at all.
    /// Returns the place of the last.
    pub(crate) fn commit_all(
        &self,
        core: &mut Core,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Seq, JournalStopped> {
        // Before the first commit: the committer could flush the first records and crash before the
        // others.
        let together = self.journal.atomic_group()?;
        let mut last = 0;
        let mut touched = BTreeSet::new();
        for record in records {
            touched.insert(record.account());
            last = self.commit(core, record)?;
        }
        // Within the group: a crash must not separate new money from the debt that it pays.
        touched.into_iter().for_each(|account| self.pay_debt(core, account));
        drop(together);
        Ok(last)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

impl From<JournalStopped> for LedgerError {
    fn from(_: JournalStopped) -> Self {
        Self::Stopped
    }
}
