//! The directory in the database: what operators and customers wrote, in one order for all nodes, and
//! what it does to money, in the transaction that writes it down.

use std::time::{Duration, Instant};

use super::columns::{at_ms, place, read_place};
pub use super::error::WriteRefused;
use super::statement_line::put_line;
use super::{Db, DbError, Transaction, credit, debts, suspense};
use tollgate_ledger::{AccountId, Record, Seq, SuspenseEnd};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// Channel on which writes are announced.
pub const CHANNEL: &str = "tollgate_directory";
/// The time spent on resolving an unanswered COMMIT: a failover takes seconds, and a caller waits.
const UNKNOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause before another check; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Outcome of an append to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryAppend {
    /// It was written at this position.
    At(Seq),
    /// Others have written meanwhile; nothing has changed.
    Behind,
    /// The treasury's money does not allow it; nothing has changed.
    Refused(WriteRefused),
}

/// One write, as stored in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryWrite {
    /// Position of the write in the directory.
    pub seq: Seq,
    /// The idempotency id of the write.
    pub write_id: String,
    /// Its records, encoded: this version may not know them.
    pub bytes: Vec<u8>,
}

/// Writes of the directory behind a given one, at most one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryPage {
    /// Position of the last entry.
    pub head: Seq,
    /// The write at the requested position; `None` at the beginning.
    pub at: Option<String>,
    /// The writes after the requested position, in order.
    pub groups: Vec<DirectoryWrite>,
}

/// The columns of a write.
struct WriteColumns<'a> {
    after: i64,
    write_id: &'a str,
    records: &'a [Record],
    bytes: Vec<u8>,
    what: &'a str,
    account: String,
    subject: &'a str,
}

impl<'a> WriteColumns<'a> {
    fn new(after: Seq, write_id: &'a str, records: &'a [Record]) -> Result<Self, DbError> {
        let unwritable = |error| DbError::Failed(format!("records cannot be encoded: {error}"));
        let bytes = postcard::to_stdvec(records).map_err(unwritable)?;
        let act = records.iter().rev().find_map(|record| match record {
            Record::Acted(act) => Some(act),
            _ => None,
        });
        let (what, subject) = act.map_or(("", ""), |act| (act.what.as_str(), act.subject.as_str()));
        let account = act.map_or(AccountId::OPERATOR, |act| act.account).to_string();
        Ok(Self { after: place(after)?, write_id, records, bytes, what, account, subject })
    }
}

impl Db {
    /// Writes records after the position `after`, if that is the end, with their effects on money. The same
    /// `write_id` is written once; after an unanswered COMMIT the database is queried until the outcome is
    /// clear.
    ///
    /// # Errors
    /// See [`DbError`]. After `Unknown` the write may stand.
    pub async fn append(
        &self,
        after: Seq,
        write_id: &str,
        records: &[Record],
    ) -> Result<DirectoryAppend, DbError> {
        let row = WriteColumns::new(after, write_id, records)?;
        let (begun, mut wait) = (Instant::now(), FIRST_WAIT);
        let mut unknown = None;
        loop {
            let error = match (self.append_once(&row).await, &unknown) {
                // Whether the first try was made is still not known.
                (Err(DbError::Unavailable(_)), Some(unknown)) => DbError::clone(unknown),
                (Err(error @ DbError::Unknown(_)), _) => error,
                (answer, _) => {
                    if matches!(answer, Ok(DirectoryAppend::At(_))) {
                        self.announce();
                    }
                    return answer;
                }
            };
            if begun.elapsed() + wait >= UNKNOWN_TIMEOUT {
                return Err(error);
            }
            // The same id again: written, it is found; not written, it is written now.
            unknown = Some(error);
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    async fn append_once(&self, row: &WriteColumns<'_>) -> Result<DirectoryAppend, DbError> {
        let db = self.ahead();
        let done = db.transact_or_refuse(|transaction| Box::pin(write(transaction, row))).await?;
        if let Err(WriteRefused::CreditInFlight(account, _)) = done {
            // What no call holds comes back before the write is tried again.
            db.recall(account).await?;
        }
        Ok(done.unwrap_or_else(DirectoryAppend::Refused))
    }

    /// Notifies other nodes, which would otherwise find it with their next poll. A database without
    /// notifications rejects this, so it follows the transaction and is not awaited.
    pub(super) fn announce(&self) {
        let db = self.clone();
        tokio::spawn(async move {
            if let Err(error) = db.query("SELECT pg_notify($1, '')", &[&CHANNEL]).await {
                log::debug!("a write was not announced to other nodes: {error}");
            }
        });
    }

    /// Reads at most `limit` writes after `after`, in order, and the end of the directory.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`.
    pub async fn pull(&self, after: Seq, limit: u32) -> Result<DirectoryPage, DbError> {
        const SQL: &str = "SELECT head.seq, entry.seq, entry.write_id, entry.records,
                (SELECT write_id FROM tollgate.directory WHERE seq = $1)
            FROM tollgate.head AS head
            LEFT JOIN (
                SELECT seq, write_id, records FROM tollgate.directory
                WHERE seq > $1 ORDER BY seq LIMIT $2
            ) AS entry ON TRUE
            WHERE head.id = 1 ORDER BY entry.seq";
        let rows = self.ahead().query(SQL, &[&place(after)?, &i64::from(limit)]).await?;
        let mut pulled = DirectoryPage::default();
        for row in rows {
            pulled.head = read_place(row.try_get(0)?)?;
            if let Some(seq) = row.try_get::<_, Option<i64>>(1)? {
                let (write_id, bytes) = (row.try_get(2)?, row.try_get(3)?);
                pulled.groups.push(DirectoryWrite { seq: read_place(seq)?, write_id, bytes });
            }
            pulled.at = row.try_get(4)?;
        }
        Ok(pulled)
    }
}

/// The transaction of a write. Writers queue at the row of the head: of two that have followed equally far
/// one proceeds, and the other finds the head moved.
async fn write(
    transaction: &Transaction<'_>,
    row: &WriteColumns<'_>,
) -> Result<Result<DirectoryAppend, WriteRefused>, DbError> {
    let moved = transaction
        .query_opt(
            "UPDATE tollgate.head SET seq = seq + 1 WHERE id = 1 AND seq = $1 RETURNING seq",
            &[&row.after],
        )
        .await?;
    let Some(moved) = moved else {
        // By another node, or by this very write, whose answer was lost.
        let made = transaction
            .query_opt("SELECT seq FROM tollgate.directory WHERE write_id = $1", &[&row.write_id])
            .await?;
        let made = made.map(|made| read_place(made.try_get(0)?)).transpose()?;
        return Ok(Ok(made.map_or(DirectoryAppend::Behind, DirectoryAppend::At)));
    };
    let seq: i64 = moved.try_get(0)?;
    transaction
        .execute(
            "INSERT INTO tollgate.directory (seq, write_id, what, account, subject, records)
             VALUES ($1, $2, $3, $4, $5, $6)",
            &[&seq, &row.write_id, &row.what, &row.account, &row.subject, &row.bytes],
        )
        .await?;
    for record in row.records {
        if let Some(why) = take_effect(transaction, record, seq).await? {
            return Ok(Err(why));
        }
    }
    Ok(Ok(DirectoryAppend::At(read_place(seq)?)))
}

/// Applies a record at this position to the treasury's money; returns the reason for a refusal.
async fn take_effect(
    transaction: &Transaction<'_>,
    record: &Record,
    seq: i64,
) -> Result<Option<WriteRefused>, DbError> {
    match record {
        Record::AccountCreated { account, name, at } => {
            let sql = "INSERT INTO tollgate.accounts (id, name, created_at) VALUES ($1, $2, $3)";
            transaction.execute(sql, &[&account.to_string(), name, &at_ms(*at)]).await?;
            Ok(None)
        }
        Record::AccountRenamed { account, name, .. } => {
            let sql = "UPDATE tollgate.accounts SET name = $2 WHERE id = $1";
            let renamed = transaction.execute(sql, &[&account.to_string(), name]).await?;
            Ok((renamed == 0).then_some(WriteRefused::UnknownAccount(*account)))
        }
        Record::Central(record) => match &**record {
            Record::Granted { account, id, amount, at } => {
                put_line(transaction, record, read_place(seq)?).await?;
                let refused = give(transaction, *account, id, *amount, *at).await?;
                debts::pay(transaction, *account).await?;
                Ok(refused)
            }
            Record::Refunded { account, .. } => {
                put_line(transaction, record, read_place(seq)?).await?;
                let refused = give_back(transaction, record).await?;
                debts::pay(transaction, *account).await?;
                Ok(refused)
            }
            Record::CreditSet { account, limit, at, .. } => {
                credit::set(transaction, *account, *limit, *at, read_place(seq)?).await
            }
            Record::WrittenOff { .. } => {
                put_line(transaction, record, read_place(seq)?).await?;
                debts::give_up(transaction, record).await
            }
            Record::DoubtResolved { account, hold, .. } => {
                let sql = "DELETE FROM tollgate.in_doubt WHERE hold = $1 AND account = $2";
                let (number, account) = (place(hold.number())?, account.to_string());
                let resolved = transaction.execute(sql, &[&number, &account]).await?;
                Ok((resolved == 0).then_some(WriteRefused::NotInDoubt(*hold)))
            }
            _ => Ok(None),
        },
        Record::SuspenseResolved { account, node, amount, end, .. } => {
            if *end == SuspenseEnd::Charge {
                put_line(transaction, record, read_place(seq)?).await?;
            }
            let resolved = suspense::resolve(transaction, *node, *account, *amount, *end).await?;
            debts::pay(transaction, *account).await?;
            Ok((!resolved).then_some(WriteRefused::NotInSuspense(*node, *account)))
        }
        _ => Ok(None),
    }
}

async fn give(
    transaction: &Transaction<'_>,
    account: AccountId,
    id: &str,
    amount: Nanousd,
    at: UnixMs,
) -> Result<Option<WriteRefused>, DbError> {
    // In the condition, not read before: two grants at one time must not pass the end of the range
    // together.
    let (name, room) = (account.to_string(), i64::MAX.saturating_sub(amount.get()));
    let given = transaction
        .execute(
            "UPDATE tollgate.accounts SET granted = granted + $2, available = available + $2
             WHERE id = $1 AND granted <= $3",
            &[&name, &amount.get(), &room],
        )
        .await?;
    if given == 0 {
        let sql = "SELECT 1 FROM tollgate.accounts WHERE id = $1";
        let exists = transaction.query_opt(sql, &[&name]).await?.is_some();
        let unknown = WriteRefused::UnknownAccount(account);
        return Ok(Some(if exists { WriteRefused::DoesNotFit } else { unknown }));
    }
    let noted = transaction
        .execute(
            "INSERT INTO tollgate.grants (account, id, amount, at) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            &[&name, &id, &amount.get(), &at_ms(at)],
        )
        .await?;
    Ok((noted == 0).then_some(WriteRefused::GivenBefore))
}

async fn give_back(
    transaction: &Transaction<'_>,
    record: &Record,
) -> Result<Option<WriteRefused>, DbError> {
    let Record::Refunded { account, id, hold, amount, charged, at } = record else {
        return Ok(None);
    };
    let name = account.to_string();
    let given = transaction
        .execute(
            "UPDATE tollgate.accounts SET spent = spent - $2, available = available + $2
             WHERE id = $1 AND spent >= $2",
            &[&name, &amount.get()],
        )
        .await?;
    if given == 0 {
        return Ok(Some(WriteRefused::NotSpent));
    }
    let hold = place(hold.number())?;
    let noted = transaction
        .execute(
            "INSERT INTO tollgate.refunds (account, id, hold, amount, charged, at)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            &[&name, id, &hold, &amount.get(), &charged.get(), &at_ms(*at)],
        )
        .await?;
    Ok((noted == 0).then_some(WriteRefused::GivenBefore))
}
