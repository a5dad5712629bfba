//! The fleet that this gateway is a node of: its money, its nodes, and what they have out.

use std::str::FromStr as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::caller::Caller;
use super::codes::{NOTE_PATTERN, check_note};
use super::error::{ApiError, ApiResult, NO_FLEET};
use super::request::{Body, ListView, PAGE_DEFAULT, PAGE_MAX, Params, check_limit};
use super::value::Time;
use tollgate_fleet::Fleet;
use tollgate_fleet::HasFleet;
use tollgate_fleet::postgres::{
    FleetOverview, FleetSums, LeaseFilter, LeaseOut, NodeOverview, NodeState,
};
use tollgate_ledger::key_rules::NOTE_CHARS_MAX;
use tollgate_ledger::{
    AccountId, LedgerError, NodeId, NodeStatus, ResolvedSuspense, Seq, SuspenseEnd,
};
use tollgate_money::money::Nanousd;
use tollgate_web_kit::cut_page;

/// The highest number of a node.
const NODE_MAX: u16 = NodeId::DIRECTORY.number() - 1;

/// The fleet.
///
/// # Errors
/// In a single gateway.
pub(super) fn require_fleet(state: &AdminState) -> ApiResult<Arc<Fleet>> {
    state.ledger.fleet().ok_or_else(|| ApiError::not_found(NO_FLEET))
}

/// A fleet as seen by one of its nodes.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Fleet")]
pub(super) struct FleetView {
    this_node: StandingView,
    money: MoneyView,
    /// All nodes that ever joined, sorted by number.
    nodes: Vec<NodeView>,
}

/// The node that sent this answer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NodeStanding")]
struct StandingView {
    #[schemars(range(min = 1, max = NODE_MAX))]
    node: u16,
    name: String,
    /// True if the node has not reached the database for so long that it answers calls with 503.
    cut_off: bool,
    /// Time for which the node may spend its leases without reaching the database.
    term_left_ms: u64,
    /// Records of the node's journal that have not been reported to the treasury.
    unreported_records: u64,
    /// Largest age of unreported calls.
    report_lag_ms: u64,
    /// Position of the last write by operators and customers that the node has applied.
    #[schemars(range(max = Seq::MAX))]
    directory_followed: Seq,
    /// Position of the last directory entry that the node has applied.
    #[schemars(range(max = Seq::MAX))]
    directory_head: Seq,
    /// Reason why the node's copy of the directory is no longer updated; `null` while it is.
    directory_stopped: Option<String>,
}

/// All money of a fleet: `granted` and `credit_limits` together are the sum of `available`, `leased`,
/// `held`, `spent` and `suspense`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FleetMoney")]
struct MoneyView {
    accounts: u64,
    /// Sum of all credit ever added, without the credit line.
    granted: Nanousd,
    /// Money that can be leased to nodes.
    available: Nanousd,
    /// Money leased to nodes.
    leased: Nanousd,
    /// Money held for open tasks.
    held: Nanousd,
    spent: Nanousd,
    /// Money leased to silent nodes.
    suspense: Nanousd,
    /// Unpaid cost of calls, owed by the accounts; not part of the sum.
    debt: Nanousd,
    /// Cost of calls that was written off; not part of the sum.
    written_off: Nanousd,
    /// All credit lines together.
    credit_limits: Nanousd,
    /// Spent part of all credit lines.
    credit_used: Nanousd,
    /// True if every account adds up, and the sum of all nodes' leases is what the accounts have leased.
    adds_up: bool,
}

/// A node as seen by the treasury.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Node")]
struct NodeView {
    #[schemars(range(min = 1, max = NODE_MAX))]
    node: u16,
    name: String,
    /// Version of the gateway; empty before the node has joined for the first time.
    version: String,
    /// `alive` during its term; `joining` after a start, before the first sync; `silent` after its term with
    /// leased money; `gone` without.
    state: StateView,
    /// Number of the node's current join; processes of an earlier one are rejected.
    epoch: u64,
    joined_at: Time,
    /// Time of the node's last contact with the database.
    seen_at: Time,
    /// Time since when the node's leases are in suspense; `null` while it is alive.
    suspended_at: Option<Time>,
    /// Remaining time for which the database waits for the node.
    term_left_ms: u64,
    /// Records of the node's journal that have been reported to the treasury.
    reported_records: u64,
    /// Leases of the node, over all accounts.
    out: Nanousd,
    /// Number of accounts with leases.
    accounts: u64,
}

/// State of a node.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum StateView {
    Alive,
    Joining,
    Silent,
    Gone,
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<NodeStatus> for StandingView {
    fn from(standing: NodeStatus) -> Self {
        Self {
            cut_off: standing.is_cut_off(),
            node: standing.node.number(),
            name: standing.name,
            term_left_ms: millis(standing.term_left),
            unreported_records: standing.unreported,
            report_lag_ms: millis(standing.report_lag),
            directory_followed: standing.followed,
            directory_head: standing.head,
            directory_stopped: standing.stopped.map(|why| why.to_string()),
        }
    }
}

impl From<FleetSums> for MoneyView {
    fn from(sums: FleetSums) -> Self {
        Self {
            accounts: sums.accounts,
            // The treasury books a credit line as granted money; here the two are shown apart.
            granted: sums.money.granted.saturating_sub(sums.money.credit),
            available: sums.money.available,
            leased: sums.money.leased,
            held: sums.money.held,
            spent: sums.money.spent,
            suspense: sums.money.suspense,
            debt: sums.money.debt,
            written_off: sums.money.written_off,
            credit_limits: sums.money.credit,
            credit_used: sums.credit_used,
            adds_up: sums.adds_up,
        }
    }
}

impl From<NodeOverview> for NodeView {
    fn from(seen: NodeOverview) -> Self {
        Self {
            node: seen.node.number(),
            name: seen.name,
            version: seen.version,
            state: match seen.state {
                NodeState::Alive => StateView::Alive,
                NodeState::Joining => StateView::Joining,
                NodeState::Silent => StateView::Silent,
                NodeState::Gone => StateView::Gone,
            },
            epoch: seen.epoch,
            joined_at: seen.joined_at.into(),
            seen_at: seen.seen_at.into(),
            suspended_at: seen.suspended_at.map(Time),
            term_left_ms: seen.term_left_ms,
            reported_records: NodeId::count(seen.reported),
            out: seen.out,
            accounts: seen.accounts,
        }
    }
}

/// `GET /admin/v1/fleet`
pub(super) async fn show(State(state): State<AdminState>) -> ApiResult<Json<FleetView>> {
    let fleet = require_fleet(&state)?;
    let this_node = state.ledger.node_status().ok_or_else(|| ApiError::not_found(NO_FLEET))?;
    // Read from the database now, not from the node's last copy: an operator decides by these figures.
    let FleetOverview { sums, nodes } = fleet.db().overview().await.map_err(LedgerError::from)?;
    Ok(Json(FleetView {
        this_node: this_node.into(),
        money: sums.into(),
        nodes: nodes.into_iter().map(NodeView::from).collect(),
    }))
}

/// Filter of the list of leases.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeasesQuery {
    /// Leases of this node only.
    #[schemars(range(min = 1, max = NODE_MAX))]
    node: Option<u16>,
    /// Leases of this account only.
    account: Option<AccountId>,
    /// Maximum number of items; default 100.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// `next_after` of the previous page.
    after: Option<String>,
}

/// A node's lease of an account's money.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lease")]
pub(super) struct LeaseView {
    #[schemars(range(min = 1, max = NODE_MAX))]
    node: u16,
    node_name: String,
    account_id: AccountId,
    account_name: String,
    amount: Nanousd,
    /// Time since when the money is in suspense; `null` while the node is alive.
    suspended_at: Option<Time>,
}

impl From<LeaseOut> for LeaseView {
    fn from(lease: LeaseOut) -> Self {
        Self {
            node: lease.node.number(),
            node_name: lease.node_name,
            account_id: lease.account,
            account_name: lease.account_name,
            amount: lease.amount,
            suspended_at: lease.suspended_at.map(Time),
        }
    }
}

/// `GET /admin/v1/fleet/leases`: by node and account.
pub(super) async fn leases(
    State(state): State<AdminState>,
    Params(query): Params<LeasesQuery>,
) -> ApiResult<Json<ListView<LeaseView, String>>> {
    list(&state, query, false).await
}

/// `GET /admin/v1/fleet/suspense`: what nodes have out that have fallen silent.
pub(super) async fn suspense(
    State(state): State<AdminState>,
    Params(query): Params<LeasesQuery>,
) -> ApiResult<Json<ListView<LeaseView, String>>> {
    list(&state, query, true).await
}

async fn list(
    state: &AdminState,
    query: LeasesQuery,
    only_suspended: bool,
) -> ApiResult<Json<ListView<LeaseView, String>>> {
    let fleet = require_fleet(state)?;
    let limit = check_limit(query.limit.unwrap_or(PAGE_DEFAULT))?;
    let filter = LeaseFilter {
        node: query.node.map(node).transpose()?,
        account: query.account,
        only_suspended,
        after: query.after.as_deref().map(place).transpose()?,
        // One more than is shown tells whether there are more.
        limit: u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1),
    };
    let mut leases = fleet.db().leases(filter).await.map_err(LedgerError::from)?;
    let next_after =
        cut_page(&mut leases, limit, |last| format!("{}-{}", last.node.number(), last.account));
    Ok(Json(ListView::new(leases.into_iter().map(LeaseView::from).collect(), next_after)))
}

fn node(number: u16) -> ApiResult<NodeId> {
    let text = format!("Nodes have numbers from 1 to {NODE_MAX}.");
    NodeId::from_number(number).ok_or_else(|| ApiError::invalid("node", text))
}

/// A lease's place in a list.
fn place(text: &str) -> ApiResult<(NodeId, AccountId)> {
    let wrong = || ApiError::invalid("after", "This is no `next_after` of this list.");
    // The order of the list is by node, then account: both make its cursor.
    let (number, account) = text.split_once('-').ok_or_else(wrong)?;
    let node = number.parse().ok().and_then(NodeId::from_number).ok_or_else(wrong)?;
    Ok((node, AccountId::from_str(account).map_err(|_| wrong())?))
}

/// Decision about money in suspense.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspenseResolution {
    /// The silent node that leased the money.
    #[schemars(range(min = 1, max = NODE_MAX))]
    node: u16,
    account: AccountId,
    /// `release` returns the money to the customer, `charge` counts it as spent.
    how: SuspenseEnd,
    /// Note of the operator about the outcome.
    #[serde(default)]
    #[schemars(extend("maxLength" = NOTE_CHARS_MAX, "pattern" = NOTE_PATTERN))]
    note: String,
}

/// Money in suspense that was resolved.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ResolvedSuspense")]
pub(super) struct ResolvedView {
    #[schemars(range(min = 1, max = NODE_MAX))]
    node: u16,
    account_id: AccountId,
    amount: Nanousd,
    how: SuspenseEnd,
    note: String,
}

/// `POST /admin/v1/fleet/suspense/resolve`: all that a silent node has out of an account.
pub(super) async fn resolve(
    State(state): State<AdminState>,
    caller: Caller,
    Body(body): Body<SuspenseResolution>,
) -> ApiResult<Json<ResolvedView>> {
    require_fleet(&state)?;
    check_note(&body.note)?;
    let of = (node(body.node)?, body.account);
    let resolved = caller.by(&state).resolve_suspense(of, body.how, &body.note).await?;
    let ResolvedSuspense { node, account, amount, end } = resolved.value;
    Ok(Json(ResolvedView {
        node: node.number(),
        account_id: account,
        amount,
        how: end,
        note: body.note,
    }))
}
