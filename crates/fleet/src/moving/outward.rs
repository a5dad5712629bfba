//! Moves all data out of the database, into the ledger of a single gateway.
//!
//! The ledger is made beside the fleet and cannot be opened before the database says that it was left:
//! so a crash leaves one of them.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use super::account::AccountTransfer;
use super::calls::CallLines;
use super::{AccountTally, MoveError, MoveReport, ReadDirectory, Tallies};
use crate::postgres::Db;
use crate::postgres::moving::NodeOut;
use crate::secrets;
use tollgate_ledger::moved::MovedMarker as Marker;
use tollgate_ledger::moving::{DirectoryState, MoveSource, MoveTarget};
use tollgate_ledger::{AccountId, NodeId, Record, WriteId, verify};
use tollgate_money::money::Nanousd;

/// The interval between checks of the nodes' terms.
const POLL: Duration = Duration::from_millis(500);
/// The longest that the treasury waits for a node: twice the longest term.
const TERMS_MAX: Duration = Duration::from_secs(130);

/// The writes that move money, which wait for their account's turn.
type MoneyBacklog = BTreeMap<AccountId, VecDeque<Record>>;

/// Moves all money and everything else out of the database and into `dir`, which is empty. All nodes
/// must be stopped. Begun again after whatever has ended it, it does the same once.
///
/// # Errors
/// [`MoveError`]; the fleet is as it was then, and the new ledger cannot be opened. After
/// [`DbError::Unknown`](crate::postgres::DbError::Unknown) it may have moved: move it out again.
pub async fn move_out(db: &Db, dir: &Path) -> Result<MoveReport, MoveError> {
    if let Some(id) = db.head().await?.moved_out {
        return moved_before(dir, id);
    }
    let nodes = stopped(db).await?;
    let id = format!("out-{}", WriteId::random());
    let marker = Marker {
        says: "this ledger is being made of a fleet and is not complete: run `tollgate migrate \
               ledger --from postgres` again"
            .to_owned(),
        id: id.clone(),
    };
    let mut target = MoveTarget::begin(dir, &marker)?;
    let (mut directory, mut backlog) = (ReadDirectory::default(), MoneyBacklog::new());
    let add = |record| match record {
        Record::Central(record) => {
            let of_account = backlog.entry(record.account()).or_default();
            of_account.push_back(Record::clone(&record));
            Ok(())
        }
        record => Ok(target.add(record).map(drop)?),
    };
    directory.catch_up(db, add).await?;
    let followed = &directory.followed;
    let expected = write_accounts(db, &mut target, followed, backlog, &nodes).await?;
    target.end()?;
    // Before the fleet is left: until then its nodes can start again as if nothing had been.
    let (found, mut differences) = count(dir, Some(followed))?;
    differences.extend(expected.differences(&found));
    if !differences.is_empty() {
        return Err(MoveError::Differs(differences));
    }
    // All that the gateway needs is in place before the database says that it was left.
    secrets::share(db, dir).await?;
    if !db.mark_moved_out(&id, directory.head, &nodes).await? {
        let changed = "something was written into the directory while it was moved out";
        return Err(MoveError::NotStopped(vec![changed.to_owned()]));
    }
    arrived(id).arrive(dir)?;
    Ok(MoveReport { tallies: found, was_done: false })
}

/// Everything has left the database with the move `id`: into `dir`, or elsewhere.
fn moved_before(dir: &Path, id: String) -> Result<MoveReport, MoveError> {
    let is_it = |marker: Option<Marker>| marker.is_some_and(|marker| marker.id == id);
    let is_closed = is_it(Marker::find(dir)?);
    if !is_closed && !is_it(Marker::arrived(dir)?) {
        return Err(MoveError::MovedOut);
    }
    let (tallies, _) = count(dir, None)?;
    if is_closed {
        arrived(id).arrive(dir)?;
    }
    Ok(MoveReport { tallies, was_done: !is_closed })
}

/// The marker of a ledger's origin.
fn arrived(id: String) -> Marker {
    let says = "this ledger was made of a fleet with `tollgate migrate ledger --from postgres`";
    Marker { says: says.to_owned(), id }
}

/// The nodes, once the terms of all are over. Refuses while one runs, or has money out.
async fn stopped(db: &Db) -> Result<Vec<NodeOut>, MoveError> {
    let (begun, first) = (Instant::now(), db.nodes_out().await?);
    loop {
        let nodes = db.nodes_out().await?;
        let mut found = Vec::new();
        for node in &nodes {
            let name = format!("{} ({})", node.node, node.name);
            if !first.iter().any(|before| (before.node, before.at) == (node.node, node.at)) {
                found.push(format!("{name} is running"));
            } else if node.out > Nanousd::ZERO {
                found.push(format!("{name} has {} out", node.out));
            }
        }
        if !found.is_empty() {
            return Err(MoveError::NotStopped(found));
        }
        if nodes.iter().all(|node| node.term_left.is_zero()) {
            return Ok(nodes);
        }
        if begun.elapsed() > TERMS_MAX {
            let late = "a node's term does not end".to_owned();
            return Err(MoveError::NotStopped(vec![late]));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Adds the money of each account, and gives what there must be in the end.
async fn write_accounts(
    db: &Db,
    target: &mut MoveTarget,
    followed: &DirectoryState,
    mut backlog: MoneyBacklog,
    nodes: &[NodeOut],
) -> Result<Tallies, MoveError> {
    let nodes: Vec<NodeId> =
        [NodeId::SINGLE].into_iter().chain(nodes.iter().map(|node| node.node)).collect();
    let ids = db.account_ids().await?;
    let mut expected = db.tallies_of(&ids).await?;
    (expected.codes, expected.uses) = followed.codes();
    for (account, keys) in followed.keys() {
        expected.of(account).keys = keys;
    }
    for id in ids {
        let tally = expected.of(id);
        let money = backlog.remove(&id).unwrap_or_default();
        tell_account(db, target, id, money, &nodes, tally).await?;
    }
    Ok(expected)
}

/// Adds the grants, calls and refunds of an account in the order of time.
async fn tell_account(
    db: &Db,
    target: &mut MoveTarget,
    id: AccountId,
    money: VecDeque<Record>,
    nodes: &[NodeId],
    tally: &mut AccountTally,
) -> Result<(), MoveError> {
    let tasks = db.tasks_out(id).await?;
    let holds = tasks.iter().map(|moved| moved.task.intent.hold).collect();
    let moved = db.moved_of(id).await?;
    let mut account = AccountTransfer::new(id, with_lines(money, &moved), holds);
    let unaccounted = db.charged_in_suspense(id).await?;
    let payments: Vec<_> = moved
        .iter()
        .filter_map(|record| match record {
            Record::DebtPaid { amount, at, .. } => Some((*at, *amount)),
            _ => None,
        })
        .collect();
    let calls = CallLines::new(db, id, nodes);
    // All calls are read twice: what was lost or borne is known only of their sum, and each is written with
    // its part of it.
    let lost = account.weigh(calls, &payments, tally.spent, tally.debt, unaccounted).await?;
    let mut calls = CallLines::new(db, id, nodes);
    while let Some(call) = calls.next().await? {
        if call.record.ends_hold() {
            account.add(target, call)?;
        }
    }
    account.add_the_rest(target)?;
    if lost > Nanousd::ZERO {
        account.add_lost(target, lost)?;
        tally.calls = tally.calls.saturating_add(1);
        tally.cost = tally.cost.saturating_add(lost);
    }
    for loss in db.losses_of(id).await? {
        target.add(Record::Lost(loss.lost))?;
    }
    for moved in tasks {
        account.add_task(target, moved)?;
    }
    // Each of these has a line of its own.
    let given = tally.grants.saturating_add(tally.refunds).saturating_add(tally.write_offs);
    tally.lines = account.lines().saturating_add(given);
    Ok(())
}

/// The writes about an account's money, with the amounts that changes of its credit line moved in the
/// treasury: the directory has the limits alone, but for those that were moved in.
fn with_lines(money: VecDeque<Record>, moved: &[Record]) -> VecDeque<Record> {
    let mut lines =
        moved.iter().filter(|record| matches!(record, Record::CreditSet { .. })).peekable();
    let mut whole = VecDeque::with_capacity(money.len());
    for record in money {
        let Record::CreditSet { limit, lent, withdrawn, owed, at, .. } = &record else {
            whole.push_back(record);
            continue;
        };
        if [lent, withdrawn, owed].iter().any(|amount| !amount.is_zero()) {
            whole.push_back(record);
            continue;
        }
        // A change that moved nothing has no line.
        let is_its_line = |line: &&Record| {
            matches!(line, Record::CreditSet { limit: of, .. } if of == limit) && line.at() == *at
        };
        whole.extend(lines.next_if(is_its_line).cloned());
    }
    whole
}

/// Checks the ledger in `dir`, journal and sled, and counts its content. Also returns the differences of its
/// writes from those of `followed`.
fn count(
    dir: &Path,
    followed: Option<&DirectoryState>,
) -> Result<(Tallies, Vec<String>), MoveError> {
    let report = verify(dir)?;
    if !report.violations.is_empty() {
        return Err(MoveError::Unsound(report.violations));
    }
    let source = MoveSource::open(dir)?;
    let mut parts = source.parts()?;
    while parts.next_part()?.is_some() {}
    let differences = followed.map(|followed| followed.differences(source.cores()));
    Ok((parts.tallies(&parts.tasks()), differences.unwrap_or_default()))
}
