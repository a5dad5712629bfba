//! The rows of statements, usage and holds in doubt that a report adds, written in the transaction of its
//! money.

use super::columns::{encoded, number};
use super::usage::put_usage;
use super::{DbError, Transaction, debts};
use tollgate_ledger::FleetHistory;

const PUT_ENTRIES: &str =
    "INSERT INTO tollgate.entries (account, first_seq, last_seq, last_at, bytes)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])";

const PUT_KEYS_USED: &str = "INSERT INTO tollgate.keys_used AS k (key, account, at)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
    ON CONFLICT (key) DO UPDATE SET at = GREATEST(k.at, EXCLUDED.at)";

const PUT_DOUBTS: &str = "INSERT INTO tollgate.in_doubt (hold, account, at, bytes)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bytea[])
    ON CONFLICT (hold) DO NOTHING";

/// Writes what statements, usage and the list of doubts need.
pub(super) async fn put_history(
    tx: &Transaction<'_>,
    history: &FleetHistory,
) -> Result<(), DbError> {
    let FleetHistory { entries, usage, used, doubts, losses } = history;
    if !entries.is_empty() {
        let accounts: Vec<String> = entries.iter().map(|(id, _)| id.to_string()).collect();
        let place = |place: u64| number(place);
        let first: Vec<i64> = entries.iter().map(|(_, chunk)| place(chunk.first_seq)).collect();
        let last: Vec<i64> = entries.iter().map(|(_, chunk)| place(chunk.last_seq)).collect();
        let at: Vec<i64> = entries.iter().map(|(_, chunk)| number(chunk.last_at.0)).collect();
        let bytes: Vec<&[u8]> = entries.iter().map(|(_, chunk)| &chunk.bytes[..]).collect();
        tx.execute(PUT_ENTRIES, &[&accounts, &first, &last, &at, &bytes]).await?;
    }
    put_usage(tx, usage).await?;
    debts::put_losses(tx, losses).await?;
    if !used.is_empty() {
        // Nodes report in any order; the statement keeps the latest.
        let keys: Vec<String> = used.iter().map(|(key, ..)| key.to_string()).collect();
        let accounts: Vec<String> =
            used.iter().map(|(_, account, _)| account.to_string()).collect();
        let at: Vec<i64> = used.iter().map(|(.., at)| number(at.0)).collect();
        tx.execute(PUT_KEYS_USED, &[&keys, &accounts, &at]).await?;
    }
    if !doubts.is_empty() {
        let holds = doubts.iter().filter_map(|doubt| doubt.record.open_hold());
        let holds: Vec<i64> = holds.map(|hold| number(hold.number())).collect();
        let accounts: Vec<String> =
            doubts.iter().map(|doubt| doubt.record.account().to_string()).collect();
        let at: Vec<i64> = doubts.iter().map(|doubt| number(doubt.record.at().0)).collect();
        let bytes = doubts.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
        tx.execute(PUT_DOUBTS, &[&holds, &accounts, &at, &bytes]).await?;
    }
    Ok(())
}
