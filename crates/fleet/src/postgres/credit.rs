//! Credit lines in SQL: set by operators, in the transaction that writes it down.

use super::columns::amount;
use super::error::WriteRefused;
use super::recall::RECALL;
use super::statement_line::put_line;
use super::{Db, DbError, Transaction, debts};
use tollgate_ledger::{AccountId, CreditChange, CreditFault, CreditState, NodeId, Seq};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// Sets the credit line of an account, and writes a statement line; returns the reason for a refusal.
pub(super) async fn set(
    transaction: &Transaction<'_>,
    account: AccountId,
    limit: Nanousd,
    at: UnixMs,
    place: Seq,
) -> Result<Option<WriteRefused>, DbError> {
    // What counts as spent of a silent node's money is the node's again when it is heard of.
    const LOCK: &str = "SELECT granted, available,
            leased + held + suspense + (SELECT COALESCE(SUM(r.charged), 0)::bigint
                                        FROM tollgate.resolved r WHERE r.account = a.id),
            credit, debt
        FROM tollgate.accounts a WHERE id = $1 FOR UPDATE";
    const SET: &str = "UPDATE tollgate.accounts
        SET granted = granted + $2 - $3 - $4, available = available + $2 - $3,
            spent = spent - $4, debt = debt + $4, credit = $5
        WHERE id = $1";
    let id = account.to_string();
    let Some(row) = transaction.query_opt(LOCK, &[&id]).await? else {
        return Ok(Some(WriteRefused::UnknownAccount(account)));
    };
    let amount = |column| amount(&row, column);
    let state = CreditState {
        granted: amount(0)?,
        available: amount(1)?,
        in_flight: amount(2)?,
        credit: amount(3)?,
        debt: amount(4)?,
    };
    let change = match CreditChange::new(limit, state) {
        Ok(change) => change,
        Err(CreditFault::Unfit) => return Ok(Some(WriteRefused::UnfitCredit)),
        Err(CreditFault::InFlight(held)) => {
            return Ok(Some(WriteRefused::CreditInFlight(account, held)));
        }
    };
    if !change.moves() {
        return Ok(None);
    }
    let CreditChange { lent, withdrawn, owed, .. } = change;
    let moved = (lent.get(), withdrawn.get(), owed.get(), limit.get());
    transaction.execute(SET, &[&id, &moved.0, &moved.1, &moved.2, &moved.3]).await?;
    put_line(transaction, &change.record(account, at), place).await?;
    debts::pay(transaction, account).await?;
    Ok(None)
}

impl Db {
    /// Recalls the unused leases of an account from the nodes.
    ///
    /// # Errors
    /// See [`DbError`].
    pub(super) async fn recall(&self, account: AccountId) -> Result<(), DbError> {
        self.execute(RECALL, &[&vec![account.to_string()]]).await?;
        self.announce_recall(NodeId::DIRECTORY);
        Ok(())
    }
}
