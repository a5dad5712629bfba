//! Money: accounts, keys, holds and settlements, exact across crashes.
//!
//! The way of a call: [`Ledger::reserve`] → [`Hold::durable`] before the first byte to the customer
//! → [`Hold::post`] or [`Hold::void`].
//!
//! | File | What it knows |
//! |---|---|
//! | `hold` | the money path: set aside, extend, post, void |
//! | `lend` | what a node of a fleet does with leased money |
//! | `admin` | accounts, grants, refunds, keys |
//! | `act` | who did what, and writes that are made once |
//! | `people` | logins, sessions, suspended accounts |
//! | `doubt` | what operators make of calls and submits in doubt |
//! | `code` | codes for credit and to sign up with |
//! | `sign_up` | how customers open accounts themselves |
//! | `delivery` | lists of tasks, and what came of announcing their ends |
//! | `limit` | what keys and accounts may use |
//! | `spend` | what a key has spent on a day and in a month, and may still |
//! | `cap` | how much of that is a node's of a fleet |
//! | `task` | work that outlives its request, and the hold that pays for it; `shared`, where a fleet keeps it |
//! | `statement` | entries, calls in doubt |
//! | `usage` | what was used, by hour and by day |
//! | `call` | what happened to the money of one call |
//! | `core` | the rules, as a pure state machine; `account`, `record` and `ids` are its data, `house` what is no customer's, `submit` what it knows of submits, `audit` its invariants |
//! | `journal` | the truth: records in groups, framed, hash-chained, flushed once per group |
//! | `store` | sled, a projection of the journal for queries; `projection` sums up, `projector` is the thread |
//! | `waiters` | who waits until a record is on disk, or in sled |
//! | `report` | what a node of a fleet tells the treasury |
//! | `recovery` | opening: load, replay, rebuild, end what a crash left open |
//! | `verify` | the whole journal checked |
//! | `write` | how writes of people are decided and made, and what memory keeps beside the core |
//! | `export` | records as JSON and CSV |
//! | `figures` | what accounts have, as it is shown |
//! | `moved` | the file that says that a ledger is elsewhere now |
//! | `moving` | a closed ledger on its way into a fleet, and a new one made of a fleet |
//! | `follow` | writes of a node of a fleet, and what it takes over of other nodes' |
//! | `standing` | how a node of a fleet is doing, as it knows itself |
//! | `suspense` | what operators make of money that a silent node had out |
//! | `scan` | the whole journal read while the ledger is open |
//!
//! Decisions are taken in memory, under the lock of the account's shard: decide, give the record its
//! place in the journal, apply. The journal's order within an account is therefore the order of the
//! decisions, and a replay gives the same state.
//!
//! Who needs several locks takes them in this order: the house's shard, the shards of accounts by
//! their places, and then one of keys, addresses and the ids of writes.

mod account;
mod act;
mod admin;
pub mod audit;
mod call;
mod cap;
mod code;
pub mod core;
mod delivery;
mod doubt;
mod error;
mod export;
mod figures;
mod follow;
mod hold;
mod house;
mod lend;
mod ids;
mod journal;
mod limit;
mod lock;
pub(crate) mod moved;
pub(crate) mod moving;
mod people;
mod offline;
mod projection;
mod projector;
mod record;
mod recovery;
mod report;
mod scan;
mod shared;
mod sign_up;
mod spend;
mod standing;
mod statement;
mod store;
mod submit;
mod suspense;
mod task;
mod usage;
mod verify;
mod waiters;
mod write;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use self::act::Ids;
use self::core::Core;
use self::journal::{Journal, Stopped};
use self::lock::DirectoryLock;
use self::projector::Backlog;
use self::store::Store;
use crate::fleet::Fleet;
use crate::limits::Rates;
use crate::money::Nanousd;
use crate::secret::KeyHash;

pub use self::account::{Account, Balance};
pub use self::act::{Act, Actor, Asked, By, IDS_KEPT, ListedAct, Written};
pub use self::admin::{Granted, KeyPatch, NewKey};
pub use self::call::CallMoney;
pub use self::code::{Code, CodeKind, CodeRefusal, IssuedCode, NewCode};
pub use self::delivery::{ListedTask, TaskFilter, TaskPage, Tried};
pub use self::doubt::DoubtRefund;
pub use self::error::{LedgerError, OpenError, Refusal, Violation};
pub use self::export::{CSV_COLUMNS, ExportFormat, Exported};
pub use self::figures::Totals;
pub use self::hold::{Hold, Posted, Reserve, Settlement};
pub use self::ids::{
    AccountId, CodeId, HoldId, KeyId, NodeId, ParseIdError, RequestId, Seq, TaskId, WriteId,
};
pub use self::journal::records::Records;
pub(crate) use self::lend::LocalMoney;
pub use self::limit::{KeyLimitsPatch, RatesPatch};
pub use self::offline::OfflineRecords;
pub use self::people::{AccountPatch, Login, SessionId, normal_email};
pub(crate) use self::projection::UsageCell;
pub use self::projection::UsageTotal;
pub use self::record::{Journaled, Key, OpenHold, Record, Reservation, SuspenseEnd, VoidReason};
pub use self::recovery::Recovery;
pub use self::report::{History, RECORDS_MAX, settled};
pub use self::scan::Scan;
pub use self::sign_up::SignUp;
pub(crate) use self::spend::Span;
pub use self::spend::{Capped, KeyLimits, Period};
pub use self::standing::Standing;
pub use self::statement::{Call, Entry, EntryKind, InDoubt};
pub(crate) use self::store::read_chunk;
pub use self::store::{CallName, charged_in};
pub use self::suspense::ResolvedSuspense;
pub use self::task::{
    Ended, Intent, KEPT_MS, REPEATED_WITHIN, Repeat, Repeated, Stage, Task, TaskSettlement, Webhook,
};
pub use self::usage::{Grain, UsageOfAll, UsageRow};
pub use self::verify::{Report, verify};

/// Accounts are spread over this many locks: many more than there are threads, so that two calls
/// seldom meet.
const SHARDS: usize = 64;

/// What happens at boot to a hold that a crash left open. Either way it is listed as in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryPolicy {
    /// The customer pays nothing; what the upstream billed falls on the operator.
    #[default]
    Void,
    /// The customer pays the least that the call must have cost (its estimated input).
    Floor,
}

/// One group commit, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Records in it.
    pub records: usize,
    /// Bytes that the journal grew by.
    pub bytes: u64,
    /// How long the write and the flush took.
    pub took: Duration,
}

/// Called by the committer thread after each group commit; must be quick.
pub type OnCommit = Box<dyn Fn(Commit) + Send + Sync>;

/// How to open a ledger.
pub struct Options {
    /// The data directory; made if it does not exist. One process at a time.
    pub dir: PathBuf,
    /// What happens to holds that a crash left open.
    pub recovery: RecoveryPolicy,
    /// Told about each group commit.
    pub on_commit: Option<OnCommit>,
    /// New holds are refused while fewer bytes than this are free.
    pub disk_free_bytes_min: u64,
    /// The fleet that it is to be a node of. A journal that is there already must be this node's.
    pub fleet: Option<Arc<Fleet>>,
}

impl Options {
    /// The usual options for the ledger in `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            recovery: RecoveryPolicy::default(),
            on_commit: None,
            disk_free_bytes_min: journal::committer::FREE_BYTES_MIN,
            fleet: None,
        }
    }
}

/// The open ledger of one data directory.
pub struct Ledger {
    shards: Vec<Mutex<Core>>,
    keys: RwLock<Keys>,
    /// Writes that are recognised when they are repeated. Locked behind all shards.
    ids: Mutex<Ids>,
    /// Whose account an address opens. Locked behind all shards.
    emails: Mutex<HashMap<String, AccountId>>,
    journal: Arc<Journal>,
    backlog: Arc<Backlog>,
    store: Arc<Store>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The directory, for those who read the whole journal.
    dir: PathBuf,
    /// Places of those who read the whole journal at one time.
    scans: Arc<Semaphore>,
    /// The fleet that it is a node of.
    fleet: Option<Arc<Fleet>>,
    /// Locked for as long as the ledger is open.
    _lock: DirectoryLock,
}

/// All keys, for authentication.
#[derive(Default)]
struct Keys {
    by_hash: HashMap<KeyHash, Arc<Key>>,
    by_id: HashMap<KeyId, Arc<Key>>,
    /// What is said of some keys.
    limits: HashMap<KeyId, KeyLimits>,
    /// What is said of some accounts.
    rates: HashMap<AccountId, Rates>,
    /// Whose keys are refused; empty in most gateways.
    suspended: HashSet<AccountId>,
}

impl Keys {
    fn insert(&mut self, key: Arc<Key>) {
        self.by_hash.insert(key.hash, Arc::clone(&key));
        self.by_id.insert(key.id, key);
    }
}

impl Ledger {
    /// Opens the ledger of a directory, or makes one: loads what sled has, replays the rest of the
    /// journal, and ends the holds that a crash left open.
    ///
    /// Blocks; call it before requests are served.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing is changed then, apart from a sled ledger that was moved aside to be
    /// rebuilt.
    pub fn open(options: Options) -> Result<(Arc<Self>, Recovery), OpenError> {
        recovery::open(options)
    }

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

    /// What all calls of this node cost beyond what their accounts could pay.
    #[must_use]
    pub fn written_off(&self) -> Nanousd {
        self.accounts().iter().fold(Nanousd::ZERO, |sum, account| {
            sum.checked_add(account.written_off).unwrap_or(Nanousd::MAX)
        })
    }

    /// How many holds are open.
    #[must_use]
    pub fn open_holds(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().open_holds() as u64).sum()
    }

    /// The hash of the whole state, as [`audit::state_hash`] defines it. Stops all decisions while
    /// it is taken.
    #[must_use]
    pub fn state_hash(&self) -> [u8; 32] {
        let shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        audit::state_hash(shards.iter().map(|shard| &**shard))
    }

    /// Closes the ledger: takes nothing more, and returns once everything is in journal and sled, so
    /// that the next start has nothing to replay. Holds that are still open are in doubt then.
    ///
    /// Blocks for as long as the disk takes.
    pub fn close(&self) {
        self.journal.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                log::error!("a thread of the ledger panicked");
            }
        }
    }

    fn shard(&self, account: AccountId) -> &Mutex<Core> {
        &self.shards[shard_index(account)]
    }

    /// Gives a decided record its place in the journal and makes it so. The caller holds the lock of
    /// the account's shard since before the decision.
    fn commit(&self, core: &mut Core, record: Record) -> Result<Seq, Stopped> {
        let hold = record.open_hold().and_then(|id| core.hold(id).cloned());
        let seq = self.journal.enqueue(record.clone(), hold)?;
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
    fn commit_all(
        &self,
        core: &mut Core,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Seq, Stopped> {
        let together = self.journal.together()?;
        let mut last = 0;
        for record in records {
            last = self.commit(core, record)?;
        }
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

impl From<Stopped> for LedgerError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// The shard of an account; below [`SHARDS`]. Ids are random, so the remainder spreads them.
fn shard_index(account: AccountId) -> usize {
    usize::try_from(account.number() % SHARDS as u64).unwrap_or(0)
}

/// Empty state, one part per shard.
fn new_cores() -> Vec<Core> {
    (0..SHARDS).map(|_| Core::default()).collect()
}

/// Makes names that were added to or removed from a directory durable.
fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Ends the process where going on could lose or invent money.
fn fatal(what: &str) -> ! {
    log::error!("{what}; the process ends so that no money is lost");
    eprintln!("tollgate: {what}; the process ends so that no money is lost");
    std::process::abort()
}
