//! What statements, usage and the list of doubts need of a report, written beside its money.

use super::exchange::{encoded, number};
use super::{DbError, Transaction};
use crate::ledger::{History, UsageCell, UsageTotal};
use crate::money::Nanousd;

const PUT_USAGE: &str = "INSERT INTO tollgate.usage AS u
    (account, hour, key, model, calls, charged, written_off, input_tokens, cache_read_tokens,
     cache_write_tokens, cache_write_1h_tokens, output_tokens, images, seconds, characters)
    SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
        $13::bigint[], $14::bigint[], $15::bigint[])
    ON CONFLICT (account, hour, key, model) DO UPDATE SET
        calls = LEAST(u.calls::numeric + EXCLUDED.calls, 9223372036854775807),
        charged = LEAST(u.charged::numeric + EXCLUDED.charged, 9223372036854775807),
        written_off = LEAST(u.written_off::numeric + EXCLUDED.written_off, 9223372036854775807),
        input_tokens = LEAST(u.input_tokens::numeric + EXCLUDED.input_tokens, 9223372036854775807),
        cache_read_tokens = LEAST(u.cache_read_tokens::numeric + EXCLUDED.cache_read_tokens, 9223372036854775807),
        cache_write_tokens = LEAST(u.cache_write_tokens::numeric + EXCLUDED.cache_write_tokens, 9223372036854775807),
        cache_write_1h_tokens = LEAST(u.cache_write_1h_tokens::numeric + EXCLUDED.cache_write_1h_tokens, 9223372036854775807),
        output_tokens = LEAST(u.output_tokens::numeric + EXCLUDED.output_tokens, 9223372036854775807),
        images = LEAST(u.images::numeric + EXCLUDED.images, 9223372036854775807),
        seconds = LEAST(u.seconds::numeric + EXCLUDED.seconds, 9223372036854775807),
        characters = LEAST(u.characters::numeric + EXCLUDED.characters, 9223372036854775807)";

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
pub(super) async fn put_history(tx: &Transaction<'_>, history: &History) -> Result<(), DbError> {
    let History { entries, usage, used, doubts } = history;
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
    if !used.is_empty() {
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

/// Adds to the sums of usage.
pub(super) async fn put_usage(
    tx: &Transaction<'_>,
    usage: &[(UsageCell, UsageTotal)],
) -> Result<(), DbError> {
    if usage.is_empty() {
        return Ok(());
    }
    let accounts: Vec<String> = usage.iter().map(|(cell, _)| cell.account.to_string()).collect();
    let hours: Vec<i32> =
        usage.iter().map(|(cell, _)| i32::try_from(cell.time).unwrap_or(i32::MAX)).collect();
    let keys: Vec<String> = usage.iter().map(|(cell, _)| cell.key.to_string()).collect();
    let models: Vec<&str> = usage.iter().map(|(cell, _)| &*cell.model).collect();
    let money = |of: fn(&UsageTotal) -> Nanousd| -> Vec<i64> {
        usage.iter().map(|(_, total)| of(total).get()).collect()
    };
    let units = |of: fn(&UsageTotal) -> u64| -> Vec<i64> {
        usage.iter().map(|(_, total)| number(of(total))).collect()
    };
    let params: [super::Param<'_>; 15] = [
        &accounts,
        &hours,
        &keys,
        &models,
        &units(|total| total.calls),
        &money(|total| total.charged),
        &money(|total| total.written_off),
        &units(|total| total.usage.input_tokens),
        &units(|total| total.usage.cache_read_tokens),
        &units(|total| total.usage.cache_write_tokens),
        &units(|total| total.usage.cache_write_1h_tokens),
        &units(|total| total.usage.output_tokens),
        &units(|total| total.usage.images),
        &units(|total| total.usage.seconds),
        &units(|total| total.usage.characters),
    ];
    tx.execute(PUT_USAGE, &params).await?;
    Ok(())
}
