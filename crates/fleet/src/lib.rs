//! Several gateways that spend the same money.
//!
//! Each node keeps a journal and a ledger of its own and spends from leases. What all of them share
//! stands in PostgreSQL: the treasury, the directory of what operators and customers wrote, tasks and
//! limits. `docs/fleet.md` says what is promised; ADR 14 why it is made so.
//!
//! | File | What it knows |
//! |---|---|
//! | `lease` | what a node and the treasury say to each other |
//! | `borrower` | the node's side of leases, pure |
//! | `treasury` | the treasury's rules, pure: what simulations run over |
//! | `shares` | how a limit is divided among the nodes, pure |
//! | `caps` | the same for what a key may spend in a period |
//! | `share_queue` | where requests wait for a share of a limit |
//! | `node` | a node at work: it joins, and syncs for as long as it runs |
//! | `directory` | a node's part of the log of what people wrote |
//! | `secrets` | keys that all nodes have in common |
//! | `overview` | what operators see of the fleet, asked for every few seconds at most |
//! | `moving` | a single gateway's ledger on its way into a fleet, and the way back |
//! | `shared` | what the ledger needs of the fleet: money, tasks and what people write |
//! | `local` | a node's own money, as its borrower sees it |
//! | `identity` | which node a data directory belongs to |
//! | `postgres` | the database: connections, transactions, the schema, and the SQL of all the above |

pub mod borrower;
pub mod caps;
pub mod share_queue;
pub mod directory;
mod identity;
mod local;
mod shared;
pub mod lease;
pub mod moving;
pub mod node;
pub mod postgres;
mod secrets;
pub mod shares;
mod overview;
pub mod treasury;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use self::directory::Directory;
use self::identity::NodeIdentity;
use self::lease::Epoch;
pub(crate) use self::local::LocalMoney;
use self::overview::OverviewQuery;
use self::postgres::{DatabaseObserver, Db, DbError, PostgresOptions};
use self::share_queue::ShareQueue;
pub use self::shared::HasFleet;
use tollgate_ledger::{AccountId, LeaseWait, NodeId, Seq};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::uptime;

/// Attempts at a number for a new node. Another node has taken each one before, so this exceeds the nodes
/// that start together.
const NEW_NODE_TRIES: u32 = 1000;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The connection to the fleet's database.
    pub postgres: PostgresOptions,
    /// The operators' name for this node.
    pub name: String,
    /// The time for which the node may spend its leases after the last answered sync.
    pub term: Duration,
    /// Period for which money is leased in advance, at the current rate of spending.
    pub cover: Duration,
    /// Data directory of the node.
    pub data_dir: PathBuf,
}

/// The reason why a node cannot join.
#[derive(Debug)]
pub enum FleetError {
    /// An error of the database.
    Db(DbError),
    /// The data directory cannot be used.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The data directory has the ledger of a gateway that is in no fleet.
    SingleLedger(PathBuf),
    /// The data directory belongs to a node of another fleet, or of this one before it was restored.
    OtherFleet(PathBuf),
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Db(error) => write!(f, "{error}"),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::SingleLedger(dir) => write!(
                f,
                "{}: this is the ledger of a gateway that is in no fleet. Move it in with `tollgate \
                 migrate ledger --to postgres`, then start the node on an empty directory",
                dir.display()
            ),
            Self::OtherFleet(dir) => write!(
                f,
                "{}: this is the data of a node that the database does not know. Start the node on \
                 an empty directory; what is in this one is its own copy",
                dir.display()
            ),
        }
    }
}

impl std::error::Error for FleetError {}

impl From<DbError> for FleetError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

/// A ledger's fleet: the database, and the permission to spend leased money.
pub struct Fleet {
    db: Db,
    directory: Arc<Directory>,
    node: NodeId,
    name: String,
    term: Duration,
    /// The start of the node's clock, which runs on while the machine is suspended.
    began: Duration,
    /// Period for which money is leased in advance.
    cover: Duration,
    /// Time until which holds may be made, in nanoseconds since `began`; zero outside any term.
    spend_until_ns: AtomicU64,
    /// A term has begun.
    renewed: Notify,
    epoch: AtomicU64,
    /// The last answered sync.
    last_sync: Mutex<LastSync>,
    /// Accounts of which the treasury had less than requested in the last sync.
    scarce: Mutex<HashSet<AccountId>>,
    /// The cached overview for operators.
    overview_query: OverviewQuery,
    /// Events for the next sync.
    inbox: Mutex<Vec<NodeEvent>>,
    /// Notified when an event is queued.
    hurry: Notify,
    /// Requests that wait for shares of limits.
    share_queue: ShareQueue,
}

/// The result of the last answered sync.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastSync {
    /// The time of its transmission, by the node's own clock; `None` before the first.
    sent_at: Option<Duration>,
    /// The last record of this node's journal that the treasury has.
    pub reported: Seq,
    /// Nodes in their term.
    pub nodes: u32,
}

/// An event for a node's next sync.
enum NodeEvent {
    /// A call waits for money.
    Waits { account: AccountId, amount: Nanousd, since: Duration, tell: oneshot::Sender<LeaseWait> },
    /// Little is left of an account here.
    RunsLow(AccountId),
    /// Another node needs money.
    Recalled,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fleet({}, {:?})", self.node, self.db)
    }
}

impl Fleet {
    /// Connects to the database and finds out which node this is: the one that the data directory
    /// belongs to, or a new one. The node has not joined then.
    ///
    /// # Errors
    /// [`FleetError`], in words for the operator.
    pub async fn open(
        options: FleetOptions,
        observer: Option<DatabaseObserver>,
    ) -> Result<Arc<Self>, FleetError> {
        let db = Db::connect(&options.postgres, observer).await?;
        let node = own_node(&db, &options.name, &options.data_dir).await?;
        secrets::share(&db, &options.data_dir).await?;
        Ok(Arc::new(Self {
            directory: Arc::new(Directory::new(db.clone())),
            db,
            node,
            name: options.name,
            term: options.term,
            began: uptime(),
            cover: options.cover,
            spend_until_ns: AtomicU64::new(0),
            renewed: Notify::new(),
            epoch: AtomicU64::new(0),
            last_sync: Mutex::default(),
            scarce: Mutex::default(),
            overview_query: OverviewQuery::default(),
            inbox: Mutex::default(),
            hurry: Notify::new(),
            share_queue: ShareQueue::default(),
        }))
    }

    /// The database of the fleet.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// This node's access to the fleet's log of writes.
    #[must_use]
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The number of this node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The operators' name for this node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time for which the node may spend its leases after the last answered sync.
    #[must_use]
    pub fn term(&self) -> Duration {
        self.term
    }

    /// The node's life: what it writes under an older one is refused.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Acquire)
    }

    /// True if holds may be made now: a sync was answered within the term.
    #[must_use]
    pub fn may_spend(&self) -> bool {
        as_ns(self.now()) < self.spend_until_ns.load(Ordering::Acquire)
    }

    /// Holds may be made until then.
    fn begin_term(&self, until: Duration) {
        self.spend_until_ns.store(as_ns(until), Ordering::Release);
        self.renewed.notify_waiters();
    }

    /// Ends the term: no hold may be made, and no call waits for a new one.
    fn end_term(&self) {
        self.begin_term(Duration::ZERO);
    }

    /// The queue of requests that wait for shares of limits.
    #[must_use]
    pub fn share_queue(&self) -> &ShareQueue {
        &self.share_queue
    }

    /// Remaining time of the term, which an answered sync renews.
    #[must_use]
    pub fn term_left(&self) -> Duration {
        let until = Duration::from_nanos(self.spend_until_ns.load(Ordering::Acquire));
        until.saturating_sub(self.now())
    }

    /// The result of the last answered sync.
    #[must_use]
    pub fn last_sync(&self) -> LastSync {
        *self.last_sync.lock()
    }

    /// The time since the last answered sync was sent: the treasury may lack later records of the journal.
    /// Zero before the first.
    #[must_use]
    pub fn since_last_sync(&self) -> Duration {
        let sent_at = self.last_sync.lock().sent_at;
        sent_at.map_or(Duration::ZERO, |sent_at| self.now().saturating_sub(sent_at))
    }

    /// Applies the result of a sync that was sent at `sent_at`.
    fn note_sync(&self, sent_at: Duration, reported: Seq, nodes: u32) {
        *self.last_sync.lock() = LastSync { sent_at: Some(sent_at), reported, nodes };
    }

    /// Stores the accounts of which the treasury has less than requested.
    fn note_scarce(&self, accounts: HashSet<AccountId>) {
        *self.scarce.lock() = accounts;
    }

    /// Now, as this node counts.
    pub(crate) fn now(&self) -> Duration {
        uptime().saturating_sub(self.began)
    }

    /// Another node needs money and waits for it.
    pub(crate) fn recalled(&self) {
        self.inbox.lock().push(NodeEvent::Recalled);
        self.hurry.notify_one();
    }
}

/// The node that the directory belongs to, or a new one.
async fn own_node(db: &Db, name: &str, data_dir: &Path) -> Result<NodeId, FleetError> {
    let io = |source| FleetError::Io { path: data_dir.to_owned(), source };
    std::fs::create_dir_all(data_dir).map_err(io)?;
    let fleet = db.fleet().await?;
    if let Some(identity) = NodeIdentity::find(data_dir).map_err(io)? {
        return match identity.fleet == fleet {
            true => Ok(identity.node),
            false => Err(FleetError::OtherFleet(data_dir.to_owned())),
        };
    }
    // Its records have the numbers of a single gateway: no node may go on with them.
    if data_dir.join("journal").exists() {
        return Err(FleetError::SingleLedger(data_dir.to_owned()));
    }
    // A crash between the two lines leaves a number in the database that never joins. The other way around,
    // two directories could have the same one.
    let node = made_node(db, name).await?;
    NodeIdentity { fleet, node }.keep(data_dir).map_err(io)?;
    Ok(node)
}

/// Creates a node. Simultaneous joins get consecutive numbers.
async fn made_node(db: &Db, name: &str) -> Result<NodeId, FleetError> {
    for _ in 0..NEW_NODE_TRIES {
        if let Some(node) = db.new_node(name).await? {
            return Ok(node);
        }
    }
    Err(FleetError::Db(DbError::Unavailable("too many nodes are made at the same time".to_owned())))
}

fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
