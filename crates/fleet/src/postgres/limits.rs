//! Shares of limits in SQL: the limits are locked in the order of their names, `shares` and `caps` decide,
//! and the node's rows are written. One transaction for all its limits.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio_postgres::Row;

use super::columns::{amount, count, number};
use super::{Db, DbError, Param, Transaction};
use crate::caps::{self, NodeCapShare};
use crate::lease::{Epoch, Turn};
use crate::shares::{self, Claim, Pool, ShareDecision};
use tollgate_ledger::{AccountId, KeyId, NodeId};
use tollgate_ledger::{CapGrant, CapRequest};
use tollgate_limits::{ShareGrant, ShareRequest, Subject};
use tollgate_money::money::Nanousd;

/// The terms after which a silent node's shares go to others, as its leases do in the treasury.
const TERMS_WAITED: u32 = crate::treasury::TERMS_WAITED;

/// Takes a turn, unless it is outdated or comes from an excluded process.
const TAKE_TURN: &str = "INSERT INTO tollgate.limit_turns AS t (node, epoch, turn)
    SELECT id, epoch, $3 FROM tollgate.nodes WHERE id = $1 AND epoch = $2
    ON CONFLICT (node) DO UPDATE SET epoch = EXCLUDED.epoch, turn = EXCLUDED.turn
    WHERE t.epoch < EXCLUDED.epoch OR t.epoch = EXCLUDED.epoch AND t.turn < EXCLUDED.turn
    RETURNING (SELECT count(*) FROM tollgate.nodes WHERE term_ends > now()),
        (extract(epoch FROM now()) * 1000)::bigint";

const LOCK: &str = "SELECT name, units, micros, at_ms FROM tollgate.limits
    WHERE name = ANY($1) ORDER BY name FOR UPDATE";

const ADD: &str = "INSERT INTO tollgate.limits (name, units, micros, at_ms)
    SELECT d.name, d.units, d.units * 1000000, $3
    FROM unnest($1::text[], $2::bigint[]) AS d (name, units) ORDER BY d.name
    ON CONFLICT (name) DO NOTHING";

const SHARES: &str = "SELECT name, node, share, demand, need, at_least FROM tollgate.limit_shares
    WHERE name = ANY($1) AND until > now()";

const PUT: &str = "UPDATE tollgate.limits l SET units = d.units, micros = d.micros, at_ms = d.at_ms
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS d (name, units, micros, at_ms)
    WHERE l.name = d.name";

const PUT_SHARES: &str = "INSERT INTO tollgate.limit_shares
        (name, node, share, whole, demand, need, at_least, until)
    SELECT d.name, $1, d.share, d.whole, d.demand, d.need, d.at_least,
        now() + $2::bigint * interval '1 millisecond'
    FROM unnest($3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
        AS d (name, share, whole, demand, need, at_least)
    ON CONFLICT (name, node) DO UPDATE SET share = EXCLUDED.share, whole = EXCLUDED.whole,
        demand = EXCLUDED.demand, need = EXCLUDED.need, at_least = EXCLUDED.at_least,
        until = EXCLUDED.until";

const END_SHARES: &str = "DELETE FROM tollgate.limit_shares WHERE node = $1 AND name = ANY($2)";

const ADD_CAPS: &str = "INSERT INTO tollgate.caps (name, until)
    SELECT d.name, to_timestamp(d.ends_at)
    FROM unnest($1::text[], $2::bigint[]) AS d (name, ends_at) ORDER BY d.name
    ON CONFLICT (name) DO NOTHING";

const LOCK_CAPS: &str =
    "SELECT name FROM tollgate.caps WHERE name = ANY($1) ORDER BY name FOR UPDATE";

/// Reads the shares of a spending limit. Waiting calls count for the longest time that they may wait; a
/// silent node returns nothing.
const CAP_SHARES: &str = "SELECT name, node, share, spent,
        CASE WHEN at > now() - interval '10 seconds' THEN held ELSE share - spent END,
        CASE WHEN at > now() - interval '2 seconds' THEN lacks ELSE 0 END
    FROM tollgate.cap_shares WHERE name = ANY($1)";

const PUT_CAP_SHARES: &str = "INSERT INTO tollgate.cap_shares
        (name, node, share, spent, held, lacks, at)
    SELECT d.name, $1, d.share, d.spent, d.held, d.lacks, now()
    FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
        AS d (name, share, spent, held, lacks)
    ON CONFLICT (name, node) DO UPDATE SET share = EXCLUDED.share, spent = EXCLUDED.spent,
        held = EXCLUDED.held, lacks = EXCLUDED.lacks, at = EXCLUDED.at";

/// Deletes rows that no request can need. A limit unused for two minutes is full, like a new one; the clocks
/// of nodes may differ by an hour before yesterday's spending is counted again.
const CLEAN: [&str; 4] = [
    "DELETE FROM tollgate.limit_shares WHERE until < now() - interval '1 minute'",
    "DELETE FROM tollgate.limits l
        WHERE l.at_ms < (extract(epoch FROM now()) * 1000)::bigint - 120000
        AND NOT EXISTS (SELECT 1 FROM tollgate.limit_shares s WHERE s.name = l.name)",
    "DELETE FROM tollgate.cap_shares
        WHERE name IN (SELECT name FROM tollgate.caps WHERE until < now() - interval '1 hour')",
    "DELETE FROM tollgate.caps WHERE until < now() - interval '1 hour'",
];

/// A node's reports and requests about limits in one sync.
#[derive(Clone, Debug)]
pub(crate) struct ShareSync {
    /// The node that makes the sync.
    pub(crate) node: NodeId,
    /// Number of the node's join.
    pub(crate) epoch: Epoch,
    /// Counted for limits alone, from one.
    pub(crate) turn: Turn,
    /// The lifetime of its shares after it has sent this.
    pub(crate) term: Duration,
    /// Limits a minute and of places.
    pub(crate) share_requests: Vec<ShareRequest>,
    /// Requests for shares of spending limits.
    pub(crate) caps: Vec<CapRequest>,
}

/// The response, in the order of the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareSyncResponse {
    pub(crate) grant: Vec<ShareGrant>,
    pub(crate) caps: Vec<CapGrant>,
}

/// The row of a limit.
fn name(request: &ShareRequest) -> String {
    match &request.subject {
        Subject::Key(key) => format!("{}/{}", KeyId::from_number(*key), request.kind),
        Subject::Account(account) => {
            format!("{}/{}", AccountId::from_number(*account), request.kind)
        }
        Subject::Model(model) => format!("model/{model}/{}", request.kind),
    }
}

fn cap_name(request: &CapRequest) -> String {
    format!("{}/{}", request.key, request.period)
}

fn unit(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

impl Db {
    /// Applies a sync of limits. `None` if it is late, or if another process has joined as this node: nothing
    /// has changed then.
    ///
    /// # Errors
    /// [`DbError`]. It is never sent again: the next one says how things are then.
    pub(crate) async fn share(
        &self,
        sync: &ShareSync,
    ) -> Result<Option<ShareSyncResponse>, DbError> {
        self.ahead().transact(|tx| Box::pin(share(tx, sync))).await
    }

    /// Ends a node's shares of rate limits and places, unless another process has joined as this node.
    ///
    /// # Errors
    /// [`DbError`].
    pub(crate) async fn leave_limits(&self, node: NodeId, epoch: Epoch) -> Result<(), DbError> {
        const LEAVE: &str = "DELETE FROM tollgate.limit_shares
            WHERE node = (SELECT id FROM tollgate.nodes WHERE id = $1 AND epoch = $2)";
        let (node, epoch) = (i32::from(node.number()), number(epoch));
        self.execute(LEAVE, &[&node, &epoch]).await.map(|_| ())
    }

    /// Removes expired rows.
    ///
    /// # Errors
    /// [`DbError`].
    pub(crate) async fn clean_limits(&self) -> Result<(), DbError> {
        self.transact(|tx| {
            Box::pin(async move {
                for sql in CLEAN {
                    tx.execute(sql, &[]).await?;
                }
                Ok(())
            })
        })
        .await
    }
}

async fn share(
    tx: &Transaction<'_>,
    sync: &ShareSync,
) -> Result<Option<ShareSyncResponse>, DbError> {
    let node = i32::from(sync.node.number());
    let (epoch, turn) = (number(sync.epoch), number(sync.turn));
    // Syncs of limits are not repeated. One that was given up on may still arrive behind the next one,
    // whose state is newer.
    let Some(row) = tx.query_opt(TAKE_TURN, &[&node, &epoch, &turn]).await? else {
        return Ok(None);
    };
    // One clock refills what nobody has claimed, whatever the clocks of the nodes say: the database's.
    let (nodes, now_ms) = (unit(row.try_get(0)?), count(row.try_get(1)?));
    let mut answer = ShareSyncResponse::default();
    if !sync.share_requests.is_empty() {
        answer.grant = share_limits(tx, sync, nodes, now_ms).await?;
    }
    if !sync.caps.is_empty() {
        answer.caps = share_caps(tx, sync, nodes).await?;
    }
    Ok(Some(answer))
}

/// Locks the rows of these names in one order, and creates those that are missing.
async fn lock(
    tx: &Transaction<'_>,
    names: &[String],
    lock: &str,
    add: &str,
    new: &[Param<'_>],
) -> Result<Vec<Row>, DbError> {
    let mut rows = tx.query(lock, &[&names]).await?;
    if rows.len() < names.len() {
        tx.execute(add, new).await?;
        rows = tx.query(lock, &[&names]).await?;
    }
    if rows.len() == names.len() { Ok(rows) } else { Err(missing_row()) }
}

/// A row that was cleaned away in the moment before it was locked: the next sync creates it again.
fn missing_row() -> DbError {
    DbError::Unavailable("a limit was removed at the same time".to_owned())
}

/// The parts that nodes have of a limit, by node.
type PartsByLimit<T> = HashMap<String, BTreeMap<i32, T>>;

/// Reads the parts of all nodes, by the name of the limit: a name and a node, and what `read` reads.
async fn parts<T>(
    tx: &Transaction<'_>,
    sql: &str,
    names: &[String],
    read: fn(&Row) -> Result<T, DbError>,
) -> Result<PartsByLimit<T>, DbError> {
    let mut parts = PartsByLimit::new();
    for row in tx.query(sql, &[&names]).await? {
        parts.entry(row.try_get(0)?).or_default().insert(row.try_get(1)?, read(&row)?);
    }
    Ok(parts)
}

async fn share_limits(
    tx: &Transaction<'_>,
    sync: &ShareSync,
    nodes: u32,
    now_ms: u64,
) -> Result<Vec<ShareGrant>, DbError> {
    let node = sync.node.number();
    let names: Vec<String> = sync.share_requests.iter().map(name).collect();
    let whole: Vec<i64> = sync.share_requests.iter().map(|request| request.limit.into()).collect();
    let new: [Param<'_>; 3] = [&names, &whole, &number(now_ms)];
    // `LOCK` has an `ORDER BY`: without it two nodes could wait for each other.
    let rows = lock(tx, &names, LOCK, ADD, &new).await?;
    let mut claims = parts(tx, SHARES, &names, claim).await?;
    let mut settled = Vec::with_capacity(names.len());
    // The rows are locked, and so read, in the order of their names, which is not that of the requests.
    let rows = rows.iter().map(|row| Ok((row.try_get(0)?, pool(row)?)));
    let pools = rows.collect::<Result<HashMap<&str, Pool>, DbError>>()?;
    for (name, request) in names.iter().zip(&sync.share_requests) {
        let mut others = claims.remove(name).unwrap_or_default();
        let had = others.remove(&node.into()).map_or(0, |claim| claim.share);
        let others: Vec<_> = others.into_values().collect();
        let node = i16::try_from(node).unwrap_or(i16::MAX);
        let pool = *pools.get(&**name).ok_or_else(missing_row)?;
        settled.push(shares::settle(pool, now_ms, &others, node, had, request, nodes));
    }
    put(tx, sync, &names, &settled).await?;
    Ok(settled.into_iter().map(|settled| settled.grant).collect())
}

fn pool(row: &Row) -> Result<Pool, DbError> {
    let (micros, at_ms) = (count(row.try_get(2)?), count(row.try_get(3)?));
    Ok(Pool { units: unit(row.try_get(1)?), micros, at_ms })
}

fn claim(row: &Row) -> Result<Claim, DbError> {
    let node: i32 = row.try_get(1)?;
    Ok(Claim {
        node: i16::try_from(node).unwrap_or(i16::MAX),
        share: unit(row.try_get(2)?),
        demand: count(row.try_get(3)?),
        need: unit(row.try_get(4)?),
        floor: unit(row.try_get(5)?),
    })
}

async fn put(
    tx: &Transaction<'_>,
    sync: &ShareSync,
    names: &[String],
    settled: &[ShareDecision],
) -> Result<(), DbError> {
    let node = i32::from(sync.node.number());
    let pools = |part: fn(&Pool) -> u64| -> Vec<i64> {
        settled.iter().map(|settled| number(part(&settled.pool))).collect()
    };
    let (units, micros) = (pools(|pool| pool.units.into()), pools(|pool| pool.micros));
    tx.execute(PUT, &[&names, &units, &micros, &pools(|pool| pool.at_ms)]).await?;
    let all = names.iter().zip(settled).zip(&sync.share_requests);
    let rows: Vec<_> = all
        .filter_map(|((name, settled), request)| settled.row.map(|row| (name, row, request.limit)))
        .collect();
    if !rows.is_empty() {
        let named: Vec<&str> = rows.iter().map(|(name, ..)| name.as_str()).collect();
        let claims = |part: fn(&Claim) -> u64| -> Vec<i64> {
            rows.iter().map(|(_, row, _)| number(part(row))).collect()
        };
        let whole: Vec<i64> = rows.iter().map(|(.., limit)| (*limit).into()).collect();
        // The node stops using its shares a term after it has sent this, by its own clock. Others wait for
        // twice as long, since clocks differ and an answer travels.
        let term = sync.term.saturating_mul(TERMS_WAITED);
        let until_ms = number(u64::try_from(term.as_millis()).unwrap_or(u64::MAX));
        let (share, demand) = (claims(|row| row.share.into()), claims(|row| row.demand));
        let (need, floor) = (claims(|row| row.need.into()), claims(|row| row.floor.into()));
        let values: [Param<'_>; 8] =
            [&node, &until_ms, &named, &share, &whole, &demand, &need, &floor];
        tx.execute(PUT_SHARES, &values).await?;
    }
    if rows.len() < settled.len() {
        let over = names.iter().zip(settled).filter(|(_, settled)| settled.row.is_none());
        let over: Vec<&str> = over.map(|(name, _)| name.as_str()).collect();
        tx.execute(END_SHARES, &[&node, &over]).await?;
    }
    Ok(())
}

async fn share_caps(
    tx: &Transaction<'_>,
    sync: &ShareSync,
    nodes: u32,
) -> Result<Vec<CapGrant>, DbError> {
    let node = i32::from(sync.node.number());
    let names: Vec<String> = sync.caps.iter().map(cap_name).collect();
    let ends_at: Vec<i64> = sync.caps.iter().map(|request| request.span.ends_at_s()).collect();
    lock(tx, &names, LOCK_CAPS, ADD_CAPS, &[&names, &ends_at]).await?;
    let mut rows = parts(tx, CAP_SHARES, &names, cap_share).await?;
    let settled = names.iter().zip(&sync.caps).map(|(name, request)| {
        let mut others = rows.remove(name).unwrap_or_default();
        // Shares of spending have no end in the period: what a lost node was granted counts as spent.
        let had = others.remove(&node);
        let others: Vec<_> = others.into_values().collect();
        caps::settle(&others, had, request, nodes)
    });
    let (own, grant): (Vec<NodeCapShare>, Vec<CapGrant>) = settled.unzip();
    let amounts = |part: fn(&NodeCapShare) -> Nanousd| -> Vec<i64> {
        own.iter().map(|row| part(row).get()).collect()
    };
    let (share, spent) = (amounts(|row| row.share), amounts(|row| row.spent));
    let (held, lacks) = (amounts(|row| row.held), amounts(|row| row.lacks));
    tx.execute(PUT_CAP_SHARES, &[&node, &names, &share, &spent, &held, &lacks]).await?;
    Ok(grant)
}

fn cap_share(row: &Row) -> Result<NodeCapShare, DbError> {
    let amount = |column| amount(row, column);
    Ok(NodeCapShare { share: amount(2)?, spent: amount(3)?, held: amount(4)?, lacks: amount(5)? })
}
