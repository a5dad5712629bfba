//! Money of nodes that have fallen silent, and what operators make of it.

use super::{Db, DbError, Transaction};
use crate::ledger::{AccountId, NodeId, SuspenseEnd};
use crate::money::Nanousd;

impl Db {
    /// What a silent node has out of an account; `None` if it is not silent, or has nothing.
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

/// Takes exactly `amount`, which a silent node has out of an account, out of suspense. Says whether it
/// was there. The node's life ends with it: a process that wakes up as this node is refused, and joins
/// anew with nothing.
pub(super) async fn resolve(
    transaction: &Transaction<'_>,
    (node, account): (NodeId, AccountId),
    amount: Nanousd,
    end: SuspenseEnd,
) -> Result<bool, DbError> {
    // The node's row first, then the account's: the order in which exchanges lock them.
    const SHUT_OUT: &str = "UPDATE tollgate.nodes SET epoch = epoch + 1
        WHERE id = $1 AND suspended_at IS NOT NULL";
    const TAKE: &str = "DELETE FROM tollgate.leases
        WHERE node = $1 AND account = $2 AND amount = $3 AND amount > 0";
    const RELEASE: &str = "UPDATE tollgate.accounts
        SET suspense = suspense - $2, available = available + $2 WHERE id = $1";
    const CHARGE: &str = "UPDATE tollgate.accounts
        SET suspense = suspense - $2, spent = spent + $2 WHERE id = $1";
    let (node, account, amount) = (i32::from(node.number()), account.to_string(), amount.get());
    if transaction.execute(SHUT_OUT, &[&node]).await? == 0 {
        return Ok(false);
    }
    if transaction.execute(TAKE, &[&node, &account, &amount]).await? == 0 {
        return Ok(false);
    }
    let shift = match end {
        SuspenseEnd::Release => RELEASE,
        SuspenseEnd::Charge => CHARGE,
    };
    Ok(transaction.execute(shift, &[&account, &amount]).await? > 0)
}
