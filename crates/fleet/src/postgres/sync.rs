//! Syncs in SQL: the rows that one touches are locked in their order, the rules of
//! [`Treasury`] decide, and what has changed is written.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use super::columns::{count, encoded, funds, id, node, number};
use super::history::put_history;
use super::recall::{FORGET_RECALLS, RECALL, RECALLED};
use super::{Db, DbError, DbOperation, RoundTripOutcome, Transaction, debts, suspense};
use crate::lease::{JoinResponse, Loan, SyncRefusal, SyncRequest, SyncResponse};
use crate::treasury::{AccountFunds, NodeRecord, TERMS_WAITED, Treasury};
use tollgate_ledger::{AccountId, NodeId};
use tollgate_money::money::Nanousd;

/// A moment of the model, which only compares. Terms of nodes that are alive end after it.
const NOW: Duration = Duration::from_secs(1);

/// Takes a turn. Nothing is changed when it is not this node's next one.
const TAKE_TURN: &str = "UPDATE tollgate.nodes
    SET turn = $3::bigint, seen_at = now(), term_ends = now() + $4::bigint * interval '1 millisecond'
    WHERE id = $1 AND epoch = $2 AND turn = $3::bigint - 1
    RETURNING reported, suspended_at IS NOT NULL, (SELECT seq FROM tollgate.head)";

/// The nodes in their term, and the recalled accounts that this node has leased or requests.
const ALIVE: &str = "SELECT id, '' FROM tollgate.nodes WHERE term_ends > now() AND id <> $1
    UNION ALL
    SELECT 0, account FROM tollgate.recalls
    WHERE until > now()
      AND (account = ANY($2) OR account IN (SELECT account FROM tollgate.leases WHERE node = $1
           UNION SELECT account FROM tollgate.resolved WHERE node = $1))";

const OVERDUE: &str = "SELECT id FROM tollgate.nodes
    WHERE suspended_at IS NULL AND term_ends < now() ORDER BY id FOR UPDATE SKIP LOCKED";

const LOCK_OVERDUE: &str = "SELECT id FROM tollgate.accounts
    WHERE id IN (SELECT account FROM tollgate.leases WHERE node = ANY($1))
    ORDER BY id FOR UPDATE";

const SUSPEND: &str = "UPDATE tollgate.accounts a
    SET leased = a.leased - l.amount, suspense = a.suspense + l.amount
    FROM (SELECT account, SUM(amount)::bigint AS amount FROM tollgate.leases
          WHERE node = ANY($1) GROUP BY account) l
    WHERE a.id = l.account";

const MARK_SUSPENDED: &str = "UPDATE tollgate.nodes SET suspended_at = now() WHERE id = ANY($1)";

/// Locks the accounts that a sync touches, in their order, so that no two wait for each other.
const LOCK_ACCOUNTS: &str =
    "SELECT id, granted, available, leased, held, spent, suspense, debt, written_off, credit
    FROM tollgate.accounts
    WHERE id = ANY($1)
       OR $2 AND id IN (SELECT account FROM tollgate.leases WHERE node = $3
                        UNION SELECT account FROM tollgate.resolved WHERE node = $3)
    ORDER BY id FOR UPDATE";

const PUT_ACCOUNTS: &str = "UPDATE tollgate.accounts a
    SET available = d.available, leased = d.leased, spent = d.spent, suspense = d.suspense,
        debt = d.debt, written_off = d.written_off
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
        $7::bigint[]) AS d (id, available, leased, spent, suspense, debt, written_off)
    WHERE a.id = d.id";

const PUT_LEASES: &str = "INSERT INTO tollgate.leases (node, account, amount)
    SELECT $1, d.account, d.amount FROM unnest($2::text[], $3::bigint[]) AS d (account, amount)
    ON CONFLICT (account, node) DO UPDATE SET amount = EXCLUDED.amount";

/// The outcome of a sync.
pub(crate) type SyncRows = Result<SyncResponse, SyncRefusal>;

impl Db {
    /// The id of this fleet.
    ///
    /// # Errors
    /// [`DbError`].
    pub(crate) async fn fleet(&self) -> Result<String, DbError> {
        Ok(self.query_one("SELECT fleet FROM tollgate.head", &[]).await?.try_get(0)?)
    }

    /// Creates a node and returns its number; `None` if another was created at the same time, and nothing has
    /// changed.
    ///
    /// # Errors
    /// [`DbError`]. After `Unknown` a node may stay behind that never joins.
    pub async fn new_node(&self, name: &str) -> Result<Option<NodeId>, DbError> {
        // A node's records begin at its number times 2^48, so that no two nodes have the same.
        const ADD: &str = "INSERT INTO tollgate.nodes
            (id, name, version, epoch, turn, answer, reported)
            SELECT COALESCE(MAX(id), 0) + 1, $1, '', 0, 0, ''::bytea,
                (COALESCE(MAX(id), 0) + 1)::bigint * 281474976710656
            FROM tollgate.nodes ON CONFLICT (id) DO NOTHING RETURNING id";
        let add = self.transact(|tx| async move { tx.query_opt(ADD, &[&name]).await }.boxed());
        let added = add.await?;
        let Some(row) = added else { return Ok(None) };
        let too_many = |_| DbError::Failed("there are too many nodes".to_owned());
        node(&row, 0).map(Some).map_err(too_many)
    }

    /// Joins a process as a node and excludes the process before it. `None` if there is no such node.
    ///
    /// # Errors
    /// [`DbError`]; joining again is safe.
    pub async fn join(
        &self,
        node: NodeId,
        name: &str,
        version: &str,
    ) -> Result<Option<JoinResponse>, DbError> {
        const JOIN: &str = "UPDATE tollgate.nodes
            SET epoch = epoch + 1, name = $2, version = $3, joined_at = now()
            WHERE id = $1 RETURNING epoch, turn, reported";
        let node = i32::from(node.number());
        let join = self.transact(|tx| {
            async move {
                // The head, then the node: rows are locked in this order everywhere.
                super::moving::is_still_here(tx).await?;
                tx.query_opt(JOIN, &[&node, &name, &version]).await
            }
            .boxed()
        });
        let row = join.await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(JoinResponse {
            epoch: count(row.try_get(0)?),
            turn: count(row.try_get(1)?),
            reported: count(row.try_get(2)?),
        }))
    }

    /// Does a sync, once however often it is sent.
    ///
    /// # Errors
    /// [`DbError`]: sent again as it is, it is done or answered as it was.
    pub async fn sync(&self, sync: &SyncRequest, term: Duration) -> Result<SyncRows, DbError> {
        let begun = Instant::now();
        let db = self.ahead();
        // A refusal takes back the turn, too: it was taken before the report was read.
        let outcome = db.transact_or_refuse(|tx| Box::pin(apply(tx, sync, term))).await;
        self.observe(DbOperation::Sync, RoundTripOutcome::from_result(&outcome), begun);
        if let Ok(Ok(answer)) = &outcome
            && is_short(sync, answer)
        {
            self.announce_recall(sync.node);
        }
        outcome
    }

    /// Notifies other nodes, which would otherwise learn of it with their next sync: later than the call
    /// waits. A database without notifications rejects this, so it follows the transaction.
    pub(super) fn announce_recall(&self, node: NodeId) {
        let (db, node) = (self.clone(), node.number().to_string());
        tokio::spawn(async move {
            if let Err(error) = db.query("SELECT pg_notify($1, $2)", &[&RECALLED, &node]).await {
                log::debug!("a recall was not announced to other nodes: {error}");
            }
        });
    }

    /// Moves the leases of nodes whose term is over to suspense. Returns those nodes.
    ///
    /// # Errors
    /// [`DbError`].
    pub async fn sweep(&self) -> Result<Vec<NodeId>, DbError> {
        self.ahead().transact(|tx| Box::pin(suspend_overdue(tx))).await
    }
}

/// True if a call waits for money that other nodes have leased.
fn is_short(sync: &SyncRequest, answer: &SyncResponse) -> bool {
    sync.requests.iter().zip(&answer.loans).any(|(request, (_, loan))| {
        let elsewhere = match loan {
            Loan::Lent(_) => Nanousd::ZERO,
            Loan::Shortage(short) => short.elsewhere,
        };
        request.least > Nanousd::ZERO && elsewhere > Nanousd::ZERO
    })
}

async fn suspend_overdue(tx: &Transaction<'_>) -> Result<Vec<NodeId>, DbError> {
    // A locked row is skipped: its node syncs or joins, or another node sweeps it. Then the accounts, in
    // the order in which syncs lock both.
    let rows = tx.query(OVERDUE, &[]).await?;
    let ids = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i32>, _>>()?;
    if !ids.is_empty() {
        tx.query(LOCK_OVERDUE, &[&ids]).await?;
        tx.execute(SUSPEND, &[&ids]).await?;
        tx.execute(MARK_SUSPENDED, &[&ids]).await?;
    }
    tx.execute(FORGET_RECALLS, &[]).await?;
    Ok(rows.iter().filter_map(|row| node(row, 0).ok()).collect())
}

async fn apply(
    tx: &Transaction<'_>,
    sync: &SyncRequest,
    term: Duration,
) -> Result<SyncRows, DbError> {
    let node = i32::from(sync.node.number());
    let (epoch, turn) = (number(sync.epoch), number(sync.turn));
    let waited_ms = number(u64::try_from(term.as_millis()).unwrap_or(u64::MAX));
    let waited_ms = waited_ms.saturating_mul(i64::from(TERMS_WAITED));
    let Some(row) = tx.query_opt(TAKE_TURN, &[&node, &epoch, &turn, &waited_ms]).await? else {
        return rejection(tx, sync).await;
    };
    let own = NodeRecord {
        epoch: sync.epoch,
        // The statement has taken the turn; the rules see the node as it was before.
        turn: sync.turn.saturating_sub(1),
        reported: count(row.try_get(0)?),
        is_suspended: row.try_get(1)?,
        ..NodeRecord::default()
    };
    let mut before = Treasury { directory: count(row.try_get(2)?), ..Treasury::default() };
    before.nodes.insert(sync.node, own);
    load(tx, &mut before, sync).await?;
    let mut after = before.clone();
    let answer = match after.sync(sync, NOW, term) {
        Ok(answer) => answer,
        Err(refused) => return Ok(Err(refused)),
    };
    store(tx, sync.node, &before, &after).await?;
    suspense::put_given_back(tx, sync, &before, &after).await?;
    if let Some(report) = &sync.report {
        put_history(tx, &report.history).await?;
    }
    // Behind the lines of the calls that are paid for.
    debts::put_paid(tx, sync, &before, &after).await?;
    let reported = after.nodes.get(&sync.node).map_or(0, |node| number(node.reported));
    // Stored with what it says: a repetition of this turn gets the same answer, and lends nothing again.
    let kept = encoded(&answer)?;
    tx.execute(
        "UPDATE tollgate.nodes SET answer = $2, reported = $3, suspended_at = NULL WHERE id = $1",
        &[&node, &kept, &reported],
    )
    .await?;
    Ok(Ok(answer))
}

/// Finds the reason for a rejected turn: it was taken before, or is not this node's next one.
async fn rejection(tx: &Transaction<'_>, sync: &SyncRequest) -> Result<SyncRows, DbError> {
    const STANDING: &str = "SELECT epoch, turn, reported, answer FROM tollgate.nodes WHERE id = $1";
    let node = i32::from(sync.node.number());
    let Some(row) = tx.query_opt(STANDING, &[&node]).await? else {
        return Ok(Err(SyncRefusal::UnknownNode));
    };
    let (epoch, turn) = (count(row.try_get(0)?), count(row.try_get(1)?));
    if epoch != sync.epoch {
        return Ok(Err(SyncRefusal::Superseded));
    }
    if turn != sync.turn || turn == 0 {
        return Ok(Err(SyncRefusal::OutOfOrder { reported: count(row.try_get(2)?), turn }));
    }
    let answer = postcard::from_bytes(row.try_get(3)?);
    answer.map(Ok).map_err(|error| DbError::Failed(format!("an answer cannot be read: {error}")))
}

/// Locks and loads the rows of a sync.
async fn load(
    tx: &Transaction<'_>,
    treasury: &mut Treasury,
    sync: &SyncRequest,
) -> Result<(), DbError> {
    let node = i32::from(sync.node.number());
    let reported = sync.report.iter().flat_map(|report| &report.settled);
    let touched: BTreeSet<AccountId> = reported
        .map(|settled| settled.account)
        .chain(sync.requests.iter().map(|request| request.account))
        .collect();
    let touched: Vec<String> = touched.iter().map(AccountId::to_string).collect();
    for row in tx.query(ALIVE, &[&node, &touched]).await? {
        let account: &str = row.try_get(1)?;
        if account.is_empty() {
            let alive = NodeRecord { term_ends: Duration::MAX, ..NodeRecord::default() };
            treasury.nodes.insert(self::node(&row, 0)?, alive);
        } else {
            treasury.recalls.insert(id(account)?, Duration::MAX);
        }
    }
    let own = treasury.nodes.get(&sync.node);
    // Clearing and coming back move everything that the node has out, of which it names nothing.
    let all_own = sync.is_clear || own.is_some_and(|own| own.is_suspended);
    // Most syncs only renew the term: they must not wait for accounts that others have locked.
    if touched.is_empty() && !all_own && treasury.recalls.is_empty() {
        return Ok(());
    }
    for row in tx.query(LOCK_ACCOUNTS, &[&touched, &all_own, &node]).await? {
        treasury.accounts.insert(id(row.try_get(0)?)?, funds(&row)?);
    }
    const LEASES: &str = "SELECT account, amount FROM tollgate.leases
        WHERE node = $1 AND (account = ANY($2) OR $3)";
    // Its own leases change with its own syncs only, so these need no lock on their accounts.
    let of_interest: Vec<String> =
        touched.into_iter().chain(treasury.recalls.keys().map(AccountId::to_string)).collect();
    for row in tx.query(LEASES, &[&node, &of_interest, &all_own]).await? {
        let (account, amount) = (id(row.try_get(0)?)?, Nanousd::new(row.try_get(1)?));
        if let Some(own) = treasury.nodes.get_mut(&sync.node) {
            own.leases.insert(account, amount);
        }
    }
    if let Some(own) = treasury.nodes.get_mut(&sync.node)
        && own.is_suspended
    {
        own.resolved = suspense::resolved(tx, sync.node).await?;
    }
    Ok(())
}

/// Writes what has changed.
async fn store(
    tx: &Transaction<'_>,
    node: NodeId,
    before: &Treasury,
    after: &Treasury,
) -> Result<(), DbError> {
    let changed =
        after.accounts.iter().filter(|(id, funds)| before.accounts.get(id) != Some(*funds));
    let changed: Vec<_> = changed.collect();
    if !changed.is_empty() {
        let ids: Vec<String> = changed.iter().map(|(id, _)| id.to_string()).collect();
        let part = |part: fn(&AccountFunds) -> Nanousd| -> Vec<i64> {
            changed.iter().map(|(_, funds)| part(funds).get()).collect()
        };
        let (available, leased) = (part(|funds| funds.available), part(|funds| funds.leased));
        let (spent, suspense) = (part(|funds| funds.spent), part(|funds| funds.suspense));
        let (debt, written_off) = (part(|funds| funds.debt), part(|funds| funds.written_off));
        let params: [super::Param<'_>; 7] =
            [&ids, &available, &leased, &spent, &suspense, &debt, &written_off];
        tx.execute(PUT_ACCOUNTS, &params).await?;
    }
    let none = NodeRecord::default();
    let own_before = before.nodes.get(&node).unwrap_or(&none);
    let own_after = after.nodes.get(&node).unwrap_or(&none);
    let (old, new) = (&own_before.leases, &own_after.leases);
    let number = i32::from(node.number());
    let put: Vec<_> = new.iter().filter(|(id, amount)| old.get(id) != Some(*amount)).collect();
    if !put.is_empty() {
        let ids: Vec<String> = put.iter().map(|(id, _)| id.to_string()).collect();
        let amounts: Vec<i64> = put.iter().map(|(_, amount)| amount.get()).collect();
        tx.execute(PUT_LEASES, &[&number, &ids, &amounts]).await?;
    }
    let removed = old.keys().filter(|id| !new.contains_key(id)).map(AccountId::to_string);
    let removed: Vec<String> = removed.collect();
    if !removed.is_empty() {
        let remove = "DELETE FROM tollgate.leases WHERE node = $1 AND account = ANY($2)";
        tx.execute(remove, &[&number, &removed]).await?;
    }
    if !own_before.resolved.is_empty() && own_after.resolved.is_empty() {
        suspense::forget_resolved(tx, node).await?;
    }
    let recalled =
        after.recalls.iter().filter(|(id, until)| before.recalls.get(id) != Some(*until));
    let recalled: Vec<String> = recalled.map(|(id, _)| id.to_string()).collect();
    if !recalled.is_empty() {
        tx.execute(RECALL, &[&recalled]).await?;
    }
    Ok(())
}
