//! Debts of accounts, in SQL: paid by whatever becomes available, written off by operators only; and losses
//! of the operator that no customer pays.

use tokio_postgres::Row;

use super::columns::{count, encoded, number, size};
use super::error::WriteRefused;
use super::statement_line::put_line;
use super::{Db, DbError, Transaction};
use crate::lease::SyncRequest;
use crate::treasury::Treasury;
use tollgate_ledger::{
    AccountId, ListedLoss, LossReport, LossSum, NodeId, Record, Seq, read_chunk,
};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// Pays what an account owes out of what it has available, if there is both, and writes the line of it.
/// The account's row is locked by what made the money available.
pub(super) async fn pay(transaction: &Transaction<'_>, account: AccountId) -> Result<(), DbError> {
    const PAY: &str = "UPDATE tollgate.accounts a
        SET available = a.available - p.paid, spent = a.spent + p.paid, debt = a.debt - p.paid
        FROM (SELECT id, LEAST(available, debt) AS paid FROM tollgate.accounts
              WHERE id = $1 AND debt > 0 AND available > 0) p
        WHERE a.id = p.id RETURNING p.paid, (SELECT seq FROM tollgate.head WHERE id = 1)";
    let Some(row) = transaction.query_opt(PAY, &[&account.to_string()]).await? else {
        return Ok(());
    };
    let (amount, place) = (Nanousd::new(row.try_get(0)?), count(row.try_get(1)?));
    put_payment(transaction, account, amount, place).await
}

async fn put_payment(
    transaction: &Transaction<'_>,
    account: AccountId,
    amount: Nanousd,
    place: Seq,
) -> Result<(), DbError> {
    let line = Record::DebtPaid { account, amount, at: UnixMs::now() };
    put_line(transaction, &line, place).await
}

/// The part of an account's debt that a sync paid, including the debt that its report added.
pub(super) fn paid(
    sync: &SyncRequest,
    before: &Treasury,
    after: &Treasury,
    account: AccountId,
) -> Nanousd {
    let debt =
        |treasury: &Treasury| treasury.funds(account).map(|funds| funds.debt).unwrap_or_default();
    let settled = sync.report.iter().flat_map(|report| &report.settled);
    // A report can add a debt and pay it: what was owed at the most is what tells.
    let owed = settled
        .filter(|settled| settled.account == account)
        .map(|settled| settled.owed)
        .fold(debt(before), |sum, more| sum.saturating_add(more));
    owed.saturating_sub(debt(after)).max(Nanousd::ZERO)
}

/// Writes a line for each debt that a sync has paid.
pub(super) async fn put_paid(
    transaction: &Transaction<'_>,
    sync: &SyncRequest,
    before: &Treasury,
    after: &Treasury,
) -> Result<(), DbError> {
    for (account, _) in after.accounts() {
        let amount = paid(sync, before, after, account);
        if amount > Nanousd::ZERO {
            put_payment(transaction, account, amount, after.directory).await?;
        }
    }
    Ok(())
}

/// Writes off debt of an account; returns the reason for a refusal.
pub(super) async fn give_up(
    transaction: &Transaction<'_>,
    record: &Record,
) -> Result<Option<WriteRefused>, DbError> {
    const GIVE_UP: &str = "UPDATE tollgate.accounts
        SET debt = debt - $2,
            written_off = LEAST(written_off::numeric + $2, 9223372036854775807)::bigint
        WHERE id = $1 AND debt >= $2";
    const NOTE: &str = "INSERT INTO tollgate.write_offs (account, id, amount, note, at)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let Record::WrittenOff { account, id, amount, note, at } = record else { return Ok(None) };
    let (account, amount) = (account.to_string(), amount.get());
    if transaction.execute(GIVE_UP, &[&account, &amount]).await? == 0 {
        return Ok(Some(WriteRefused::NotOwed));
    }
    // A write under a used id is refused, which takes back the change above.
    let noted = transaction.execute(NOTE, &[&account, id, &amount, note, &number(at.0)]).await?;
    Ok((noted == 0).then_some(WriteRefused::GivenBefore))
}

/// Writes down losses that a node has reported.
pub(super) async fn put_losses(
    transaction: &Transaction<'_>,
    losses: &[ListedLoss],
) -> Result<(), DbError> {
    const PUT: &str = "INSERT INTO tollgate.losses (seq, account, cause, amount, at, bytes)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[],
            $6::bytea[])";
    if losses.is_empty() {
        return Ok(());
    }
    let seqs: Vec<i64> = losses.iter().map(|loss| number(loss.seq)).collect();
    let accounts: Vec<String> = losses.iter().map(|loss| loss.lost.account.to_string()).collect();
    let causes: Vec<&str> = losses.iter().map(|loss| &*loss.lost.cause).collect();
    let amounts: Vec<i64> = losses.iter().map(|loss| loss.lost.amount.get()).collect();
    let at: Vec<i64> = losses.iter().map(|loss| number(loss.lost.at.0)).collect();
    let bytes = losses.iter().map(|loss| encoded(&loss.lost)).collect::<Result<Vec<_>, _>>()?;
    transaction.execute(PUT, &[&seqs, &accounts, &causes, &amounts, &at, &bytes]).await?;
    Ok(())
}

fn listed(row: &Row) -> Result<ListedLoss, DbError> {
    let lost = postcard::from_bytes(row.try_get(1)?);
    let lost = lost.map_err(|error| DbError::Failed(format!("a loss cannot be read: {error}")))?;
    Ok(ListedLoss { seq: count(row.try_get(0)?), lost })
}

impl Db {
    /// The operator's losses by calls of all nodes: the totals by cause, and the last `limit`.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`.
    pub(crate) async fn losses(&self, limit: usize) -> Result<LossReport, DbError> {
        const SUMS: &str = "SELECT cause, COUNT(*), LEAST(SUM(amount), 9223372036854775807)::bigint
            FROM tollgate.losses GROUP BY cause";
        const LAST: &str = "SELECT seq, bytes FROM tollgate.losses ORDER BY number DESC LIMIT $1";
        let mut losses = LossReport::default();
        for row in self.query(SUMS, &[]).await? {
            let amount = Nanousd::new(row.try_get(2)?);
            let sum = LossSum { count: count(row.try_get(1)?), amount };
            losses.sums.insert(row.try_get(0)?, sum);
        }
        // By `number`, the order in which they were reported: `seq` counts within a node.
        let rows = self.query(LAST, &[&size(limit)]).await?;
        losses.last = rows.iter().map(listed).collect::<Result<_, _>>()?;
        Ok(losses)
    }

    /// Lines of an account that the treasury wrote itself, in their order: payments of debts and changes
    /// of its credit line.
    pub(crate) async fn moved_of(&self, account: AccountId) -> Result<Vec<Record>, DbError> {
        const SQL: &str = "SELECT bytes FROM tollgate.entries
            WHERE account = $1 AND last_seq > $2 AND last_seq <= $3 ORDER BY number";
        let node = NodeId::DIRECTORY;
        let (begin, end) = (number(node.begin()), number(node.end()));
        let mut moved = Vec::new();
        for row in self.query(SQL, &[&account.to_string(), &begin, &end]).await? {
            let lines = read_chunk(row.try_get(0)?);
            let lines = lines.map_err(|error| DbError::Failed(format!("a line: {error}")))?;
            let is_moved = |record: &Record| {
                matches!(record, Record::DebtPaid { .. } | Record::CreditSet { .. })
            };
            moved.extend(lines.into_iter().map(|line| line.record).filter(is_moved));
        }
        Ok(moved)
    }

    /// All losses of an account, in the order of their reports.
    pub(crate) async fn losses_of(&self, account: AccountId) -> Result<Vec<ListedLoss>, DbError> {
        const SQL: &str =
            "SELECT seq, bytes FROM tollgate.losses WHERE account = $1 ORDER BY number";
        let rows = self.query(SQL, &[&account.to_string()]).await?;
        rows.iter().map(listed).collect()
    }
}
