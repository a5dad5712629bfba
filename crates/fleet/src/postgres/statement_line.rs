//! Lines of statements that are written once for all nodes.

use super::columns::{at_ms, encoded, place};
use super::{DbError, Transaction};
use tollgate_ledger::{JournaledRecord, NodeId, Record, Seq};

/// Writes the line of a statement: as a node reports those of its calls, and once for all nodes.
pub(super) async fn put_line(
    transaction: &Transaction<'_>,
    record: &Record,
    seq: Seq,
) -> Result<(), DbError> {
    const SQL: &str = "INSERT INTO tollgate.entries (account, first_seq, last_seq, last_at, bytes)
        VALUES ($1, $2, $2, $3, $4)";
    let seq = NodeId::DIRECTORY.begin() | seq;
    let line = JournaledRecord { seq, record: record.clone(), hold: None };
    let (account, at) = (record.account().to_string(), at_ms(record.at()));
    transaction.execute(SQL, &[&account, &place(seq)?, &at, &encoded(&line)?]).await?;
    Ok(())
}
