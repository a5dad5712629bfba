//! Money of nodes that have fallen silent, and what operators make of it.

use std::collections::BTreeMap;

use super::columns::id;
use super::statement_line::put_line;
use super::{Db, DbError, Transaction, debts};
use crate::lease::SyncRequest;
use crate::treasury::{SuspenseRelease, Treasury};
use tollgate_ledger::{AccountId, NodeId, Record, SuspenseEnd};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

impl Db {
    /// A silent node's lease of an account; `None` if the node is not silent, or has none.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`.
    pub async fn in_suspense(
        &self,
        node: NodeId,
        account: AccountId,
    ) -> Result<Option<Nanousd>, DbError> {
        const SQL: &str = "SELECT l.amount FROM tollgate.leases l
            JOIN tollgate.nodes n ON n.id = l.node AND n.suspended_at IS NOT NULL
            WHERE l.node = $1 AND l.account = $2 AND l.amount > 0";
        let node = i32::from(node.number());
        let rows = self.query(SQL, &[&node, &account.to_string()]).await?;
        let amount = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(amount.map(Nanousd::new))
    }
}

/// Takes exactly `amount` of a silent node's lease out of suspense; returns false if the lease is another
/// amount. This ends the node's epoch: a process that wakes up as this node is rejected, and joins again. Its
/// first sync reverts this.
pub(super) async fn resolve(
    transaction: &Transaction<'_>,
    node: NodeId,
    account: AccountId,
    amount: Nanousd,
    end: SuspenseEnd,
) -> Result<bool, DbError> {
    // The node's row first, then the account's: the order in which syncs lock them.
    const SHUT_OUT: &str = "UPDATE tollgate.nodes SET epoch = epoch + 1
        WHERE id = $1 AND suspended_at IS NOT NULL";
    const TAKE: &str = "DELETE FROM tollgate.leases
        WHERE node = $1 AND account = $2 AND amount = $3 AND amount > 0";
    const RELEASE: &str = "UPDATE tollgate.accounts
        SET suspense = suspense - $2, available = available + $2 WHERE id = $1";
    const CHARGE: &str = "UPDATE tollgate.accounts
        SET suspense = suspense - $2, spent = spent + $2 WHERE id = $1";
    const KNOW: &str = "INSERT INTO tollgate.resolved AS r (node, account, released, charged)
        VALUES ($1, $2, $3, $4) ON CONFLICT (node, account) DO UPDATE
        SET released = r.released + EXCLUDED.released, charged = r.charged + EXCLUDED.charged";
    let (node, account, amount) = (i32::from(node.number()), account.to_string(), amount.get());
    if transaction.execute(SHUT_OUT, &[&node]).await? == 0 {
        return Ok(false);
    }
    // The amount that the operator saw, and no other: it may have changed since.
    if transaction.execute(TAKE, &[&node, &account, &amount]).await? == 0 {
        return Ok(false);
    }
    let (shift, released, charged) = match end {
        SuspenseEnd::Release => (RELEASE, amount, 0),
        SuspenseEnd::Charge => (CHARGE, 0, amount),
    };
    transaction.execute(KNOW, &[&node, &account, &released, &charged]).await?;
    Ok(transaction.execute(shift, &[&account, &amount]).await? > 0)
}

/// The money of a node's leases that operators have resolved, by account.
pub(super) async fn resolved(
    transaction: &Transaction<'_>,
    node: NodeId,
) -> Result<BTreeMap<AccountId, SuspenseRelease>, DbError> {
    const SQL: &str = "SELECT account, released, charged FROM tollgate.resolved WHERE node = $1";
    let rows = transaction.query(SQL, &[&i32::from(node.number())]).await?;
    let resolved = rows.iter().map(|row| {
        let (released, charged) = (row.try_get(1)?, row.try_get(2)?);
        let (released, charged) = (Nanousd::new(released), Nanousd::new(charged));
        Ok((id(row.try_get(0)?)?, SuspenseRelease { released, charged }))
    });
    resolved.collect()
}

/// Reverts what operators resolved, as the node is back.
pub(super) async fn forget_resolved(
    transaction: &Transaction<'_>,
    node: NodeId,
) -> Result<(), DbError> {
    let sql = "DELETE FROM tollgate.resolved WHERE node = $1";
    transaction.execute(sql, &[&i32::from(node.number())]).await?;
    Ok(())
}

/// Writes a statement line for the money that a sync returns to an account beside its calls' charges and paid
/// debts: the amount that counted as spent while the node was silent, and the cost of its calls beyond
/// released money that is spent. The lines of a statement therefore always add up to the account's spending.
pub(super) async fn put_given_back(
    transaction: &Transaction<'_>,
    sync: &SyncRequest,
    before: &Treasury,
    after: &Treasury,
) -> Result<(), DbError> {
    let settled = sync.report.iter().flat_map(|report| &report.settled);
    let charged: BTreeMap<_, _> =
        settled.map(|settled| (settled.account, settled.charged)).collect();
    for (account, funds) in after.accounts() {
        let spent = before.funds(account).map(|funds| funds.spent).unwrap_or_default();
        let charged = charged.get(&account).copied().unwrap_or_default();
        let paid = debts::paid(sync, before, after, account);
        let with_charges =
            [charged, paid].into_iter().fold(spent, |sum, more| sum.saturating_add(more));
        let amount = with_charges.saturating_sub(funds.spent);
        if amount > Nanousd::ZERO {
            let (node, end, note, at) =
                (sync.node, SuspenseEnd::Release, String::new(), UnixMs::now());
            let line = Record::SuspenseResolved { account, node, amount, end, note, at };
            put_line(transaction, &line, after.directory).await?;
        }
    }
    Ok(())
}
