//! The fleet as operators see it: nodes, leases, and sums of all money.

use tokio_postgres::Row;

use super::columns::{count, funds, id, node};
use super::{Db, DbError};
use crate::treasury::AccountFunds;
use tollgate_ledger::{AccountId, NodeId, Seq};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// Sums of accounts. What upstreams report is not bounded, so what was written off may be past the range:
/// it stays at its end.
macro_rules! sums {
    ($($column:literal),+) => {
        concat!($(
            ", LEAST(COALESCE(SUM(", $column, "), 0), 9223372036854775807)::bigint AS ", $column
        ),+)
    };
}

/// The whole treasury at one moment, by one statement. The last column is true if every account adds up and
/// the sums of the leases equal those in the accounts.
const SUMS: &str = concat!(
    "SELECT a.*, l.leased = a.leased AND l.suspense = a.suspense AND a.unsound = 0
    FROM (SELECT COUNT(*)",
    sums!(
        "granted",
        "available",
        "leased",
        "held",
        "spent",
        "suspense",
        "debt",
        "written_off",
        "credit"
    ),
    ", LEAST(COALESCE(SUM(GREATEST(credit - available - leased - held - suspense, 0)), 0),
          9223372036854775807)::bigint AS credit_used",
    ", COALESCE(SUM(CASE WHEN granted = available + leased + held + spent + suspense
                THEN 0 ELSE 1 END), 0)::bigint AS unsound
          FROM tollgate.accounts) a,
        (SELECT COALESCE(SUM(CASE WHEN n.suspended_at IS NULL THEN l.amount END), 0)::bigint
                AS leased,
            COALESCE(SUM(CASE WHEN n.suspended_at IS NULL THEN NULL ELSE l.amount END), 0)::bigint
                AS suspense
         FROM tollgate.leases l JOIN tollgate.nodes n ON n.id = l.node) l"
);

const NODES: &str = "SELECT n.id, n.name, n.version, n.epoch, n.reported,
        (EXTRACT(EPOCH FROM n.joined_at) * 1000)::bigint,
        (EXTRACT(EPOCH FROM n.seen_at) * 1000)::bigint,
        (EXTRACT(EPOCH FROM n.suspended_at) * 1000)::bigint,
        GREATEST((EXTRACT(EPOCH FROM n.term_ends - now()) * 1000)::bigint, 0),
        GREATEST((EXTRACT(EPOCH FROM now() - n.seen_at) * 1000)::bigint, 0),
        n.term_ends > now(), n.epoch = 0 OR n.joined_at > n.seen_at,
        COALESCE(l.amount, 0), COALESCE(l.accounts, 0)
    FROM tollgate.nodes n
    LEFT JOIN (SELECT node, SUM(amount)::bigint AS amount, COUNT(*) AS accounts
               FROM tollgate.leases WHERE amount > 0 GROUP BY node) l ON l.node = n.id
    ORDER BY n.id";

const LEASES: &str = "SELECT l.node, n.name, l.account, a.name, l.amount,
        (EXTRACT(EPOCH FROM n.suspended_at) * 1000)::bigint
    FROM tollgate.leases l
    JOIN tollgate.nodes n ON n.id = l.node
    JOIN tollgate.accounts a ON a.id = l.account
    WHERE l.amount > 0 AND (l.node, l.account) > ($1, $2)
      AND ($3::int IS NULL OR l.node = $3) AND ($4::text IS NULL OR l.account = $4)
      AND (NOT $5 OR n.suspended_at IS NOT NULL)
    ORDER BY l.node, l.account LIMIT $6";

/// The state of a fleet at one moment.
#[derive(Clone, Debug, Default)]
pub struct FleetOverview {
    /// All money of the fleet.
    pub sums: FleetSums,
    /// Its nodes, by their numbers.
    pub nodes: Vec<NodeOverview>,
}

/// Total money of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetSums {
    /// The number of accounts.
    pub accounts: u64,
    /// The sums of their money.
    pub money: AccountFunds,
    /// Spent part of all credit lines.
    pub credit_used: Nanousd,
    /// True if every account and all leases add up.
    pub adds_up: bool,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It is in its term.
    Alive,
    /// A process has joined as this node, or is about to, and has nothing yet.
    Joining,
    /// Its term is over, and it has money out.
    Silent,
    /// Its term is over, and it has nothing out: it was stopped.
    Gone,
}

impl NodeState {
    /// All states in the order of display.
    pub const ALL: [Self; 4] = [Self::Alive, Self::Joining, Self::Silent, Self::Gone];

    /// Name of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Joining => "joining",
            Self::Silent => "silent",
            Self::Gone => "gone",
        }
    }
}

/// A node as the treasury sees it. Times are the database's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOverview {
    /// The node that the row is about.
    pub node: NodeId,
    /// The operators' name for it.
    pub name: String,
    /// Its program version; empty before it has joined for the first time.
    pub version: String,
    /// Its state.
    pub state: NodeState,
    /// Its life: raised with each join.
    pub epoch: u64,
    /// The last place of its journal that the treasury has.
    pub reported: Seq,
    /// The time of its last join.
    pub joined_at: UnixMs,
    /// The time of its last sync.
    pub seen_at: UnixMs,
    /// The time since then, in milliseconds.
    pub seen_ms_ago: u64,
    /// The time at which its leases went to suspense.
    pub suspended_at: Option<UnixMs>,
    /// The time until the treasury considers it silent, in milliseconds.
    pub term_left_ms: u64,
    /// The sum of its leases.
    pub out: Nanousd,
    /// Number of accounts with leases.
    pub accounts: u64,
}

/// A node's lease of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOut {
    /// Node with the lease.
    pub node: NodeId,
    /// The operators' name for the node.
    pub node_name: String,
    /// The account whose money it is.
    pub account: AccountId,
    /// The account's name.
    pub account_name: String,
    /// The leased amount; above zero.
    pub amount: Nanousd,
    /// Since when it is in suspense.
    pub suspended_at: Option<UnixMs>,
}

/// A filter of leases.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseFilter {
    /// Only leases of one node.
    pub node: Option<NodeId>,
    /// Only leases of one account.
    pub account: Option<AccountId>,
    /// Only leases in suspense.
    pub only_suspended: bool,
    /// Only leases after this one.
    pub after: Option<(NodeId, AccountId)>,
    /// Maximum number of items.
    pub limit: u32,
}

impl Db {
    /// Reads the state of the fleet.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`.
    pub async fn overview(&self) -> Result<FleetOverview, DbError> {
        // Each is one statement: they may lie a moment apart, but either adds up in itself.
        let (sums, nodes) = tokio::try_join!(self.sums(), self.nodes())?;
        Ok(FleetOverview { sums, nodes })
    }

    async fn sums(&self) -> Result<FleetSums, DbError> {
        let row = &self.query_one(SUMS, &[]).await?;
        Ok(FleetSums {
            accounts: count(row.try_get(0)?),
            money: funds(row)?,
            credit_used: Nanousd::new(row.try_get(10)?),
            adds_up: row.try_get(12)?,
        })
    }

    /// All nodes that ever joined, sorted by number.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`.
    pub async fn nodes(&self) -> Result<Vec<NodeOverview>, DbError> {
        let rows = self.query(NODES, &[]).await?;
        rows.iter().map(read_node).collect()
    }

    /// Lists leases by node and account.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`.
    pub async fn leases(&self, filter: LeaseFilter) -> Result<Vec<LeaseOut>, DbError> {
        let (after_node, after_account) = match filter.after {
            Some((node, account)) => (i32::from(node.number()), account.to_string()),
            // Before the first: nodes are counted from 1.
            None => (0, String::new()),
        };
        let node = filter.node.map(|node| i32::from(node.number()));
        let account = filter.account.map(|account| account.to_string());
        let (only_suspended, limit) = (filter.only_suspended, i64::from(filter.limit));
        let params: [super::Param<'_>; 6] =
            [&after_node, &after_account, &node, &account, &only_suspended, &limit];
        let rows = self.query(LEASES, &params).await?;
        rows.iter().map(read_lease).collect()
    }
}

fn time(row: &Row, column: usize) -> Result<Option<UnixMs>, DbError> {
    let at: Option<i64> = row.try_get(column)?;
    Ok(at.map(|at| UnixMs(count(at))))
}

fn read_node(row: &Row) -> Result<NodeOverview, DbError> {
    let (is_alive, is_joining): (bool, bool) = (row.try_get(10)?, row.try_get(11)?);
    let out = Nanousd::new(row.try_get(12)?);
    let state = match (is_alive, is_joining) {
        (true, _) => NodeState::Alive,
        // Before the next line: a process that is about to join does not have the money of the one before
        // it.
        (false, _) if out > Nanousd::ZERO => NodeState::Silent,
        (false, true) => NodeState::Joining,
        (false, false) => NodeState::Gone,
    };
    Ok(NodeOverview {
        node: node(row, 0)?,
        name: row.try_get(1)?,
        version: row.try_get(2)?,
        state,
        epoch: count(row.try_get(3)?),
        reported: count(row.try_get(4)?),
        joined_at: time(row, 5)?.unwrap_or_default(),
        seen_at: time(row, 6)?.unwrap_or_default(),
        seen_ms_ago: count(row.try_get(9)?),
        suspended_at: time(row, 7)?,
        term_left_ms: count(row.try_get(8)?),
        out,
        accounts: count(row.try_get(13)?),
    })
}

fn read_lease(row: &Row) -> Result<LeaseOut, DbError> {
    Ok(LeaseOut {
        node: node(row, 0)?,
        node_name: row.try_get(1)?,
        account: id(row.try_get(2)?)?,
        account_name: row.try_get(3)?,
        amount: Nanousd::new(row.try_get(4)?),
        suspended_at: time(row, 5)?,
    })
}
