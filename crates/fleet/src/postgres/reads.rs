//! Reads of the whole fleet: statements, calls, usage, holds in doubt and balances. They lack the records
//! that nodes have not reported yet: of the last second, or since a node lost its connection.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use tokio_postgres::Row;

use super::columns::{amount, count, id, number, size};
use super::usage::{USAGE, USAGE_OF_ALL, total};
use super::{Db, DbError};
use tollgate_ledger::{
    AccountId, Balance, CallName, Grain, HoldId, JournaledRecord, KeyId, NodeId, OpenHold, Record,
    Seq, Totals, UsageCell, UsageOfModel, UsageTotal, charged_in, read_chunk,
};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// The bits of a line's cursor that count the lines of its chunk; those above are the chunk's number.
/// A chunk takes no more lines once it has 16 KiB, and a line has more than eight bytes. The numbers
/// of chunks reach 2^42 before a cursor is no integer to JavaScript.
const LINE_BITS: u32 = 11;
/// The most chunks that one query gives: at 16 KiB each, one and a half megabytes.
const CHUNKS_PER_QUERY: usize = 100;
/// The most chunks that are read for one call: where few calls are made, those of hours.
const CHUNKS_MAX: usize = 512;
/// The most bytes of them: some 13,000 lines.
const BYTES_MAX: usize = 2 << 20;
/// The slack before the stated time in a search for the end of a call: first for equal clocks that are never
/// set back, which is fast for accounts with very many calls, then for others.
const SLACKS_MS: [u64; 2] = [100, CLOCKS_APART_MS];
/// The most that the clocks of two nodes, or of one before and after it was set, are taken to differ.
const CLOCKS_APART_MS: u64 = 5_000;
/// Maximum number of open tasks searched for the one of a request: a task is opened within a second of its
/// request.
const TASKS_MAX: usize = 200;
const HOURS_PER_DAY: u32 = 24;

/// Chunks behind a place of one node, in the order of their places.
const BY_PLACE: &str = "SELECT number, last_seq, bytes FROM tollgate.entries
    WHERE account = $1 AND last_seq <= $2 AND (last_seq, number) > ($3, $4)
    ORDER BY last_seq, number LIMIT $5";
/// Chunks behind a moment, in the order of their times.
const BY_TIME: &str = "SELECT number, last_at, bytes FROM tollgate.entries
    WHERE account = $1 AND last_at <= $2 AND (last_at, number) > ($3, $4)
    ORDER BY last_at, number LIMIT $5";

/// The last chunks up to a number.
const ENTRIES: &str = "SELECT number, bytes FROM tollgate.entries
    WHERE account = $1 AND number <= $2 ORDER BY number DESC LIMIT $3";
/// The open task that a hold pays for.
const TASK_OF_HOLD: &str = "SELECT hold, open_hold FROM tollgate.tasks
    WHERE account = $1 AND hold = $2 AND stage NOT IN ('ended', 'never')";
/// The first open tasks behind a moment.
const TASKS_BEHIND: &str = "SELECT hold, open_hold FROM tollgate.tasks
    WHERE account = $1 AND submitted_at >= $2 AND stage NOT IN ('ended', 'never')
    ORDER BY submitted_at, id LIMIT $3";
/// The refunds of a hold.
const REFUNDS: &str = "SELECT id, amount, charged, at FROM tollgate.refunds
    WHERE account = $1 AND hold = $2 ORDER BY at, id LIMIT $3";
/// The last use of each key.
const KEYS_USED: &str = "SELECT key, at FROM tollgate.keys_used WHERE account = $1";
/// Query for balances and debts of accounts.
const BALANCES: &str = "SELECT id, granted, available + leased, held + suspense, spent, debt,
        written_off, credit FROM tollgate.accounts WHERE id = ANY($1)";

/// Sums, which stay at the end of their range.
macro_rules! sums {
    ($($column:literal),+) => {
        concat!($(", LEAST(SUM(", $column, "), 9223372036854775807)::bigint"),+)
    };
}

/// The range of chunks to search for a call.
struct SearchRange {
    account: AccountId,
    /// Behind this place or moment,
    from: i64,
    /// and up to this one.
    to: i64,
    chunks_max: usize,
    bytes_max: usize,
}

impl Db {
    /// At most `limit` statement lines of an account before `before`, the last reported first. A cursor
    /// consists of the number of a chunk and the position in it.
    ///
    /// # Errors
    /// See [`DbError`]; never `Unknown`. So do all reads fail.
    pub(crate) async fn entries(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, DbError> {
        let (account, mut last) = (account.to_string(), number(before >> LINE_BITS));
        // Lines are filtered after they are read, so one query may give too few of them.
        let mut found = Vec::new();
        while found.len() < limit {
            let most = limit.saturating_sub(found.len()).min(CHUNKS_PER_QUERY);
            let rows = self.query(ENTRIES, &[&account, &last, &size(most)]).await?;
            for row in &rows {
                let chunk: i64 = row.try_get(0)?;
                last = chunk.saturating_sub(1);
                let older = lines(chunk, row.try_get(1)?)?;
                let older = older.into_iter().rev().filter(|line| line.seq < before);
                found.extend(older.take(limit.saturating_sub(found.len())));
            }
            if rows.len() < most {
                break;
            }
        }
        Ok(found)
    }

    /// The line with which a call of an account ended. `None` if there is none, or if very many stand
    /// between it and where it may have been at the earliest.
    pub(crate) async fn end_of_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, DbError> {
        let find = |chunk: i64, bytes: &[u8]| {
            Ok(lines(chunk, bytes)?.into_iter().find(|line| name.is_ended_by(line)))
        };
        let range =
            SearchRange { account, from: 0, to: 0, chunks_max: CHUNKS_MAX, bytes_max: BYTES_MAX };
        let from = match name {
            CallName::Request(_, from) => Some(from),
            CallName::Hold(hold, from) => {
                // The number of a hold names its node and its place there, so this reads least; the time is
                // for ends that lie too far behind it.
                let found = self.search(BY_PLACE, range.behind(hold), find).await?;
                if found.is_some() {
                    return Ok(found);
                }
                from
            }
        };
        let Some(from) = from else { return Ok(None) };
        for slack in SLACKS_MS {
            let from = number(from.0.saturating_sub(slack));
            let range = SearchRange { from, to: i64::MAX, ..range };
            let found = self.search(BY_TIME, range, find).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The hold of a call whose open task pays with it, whichever node took the task.
    pub(crate) async fn open_hold_of(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, DbError> {
        let account = account.to_string();
        let rows = match name {
            CallName::Hold(hold, _) => {
                self.query(TASK_OF_HOLD, &[&account, &number(hold.number())]).await?
            }
            CallName::Request(_, from) => {
                let from = number(from.0.saturating_sub(CLOCKS_APART_MS));
                self.query(TASKS_BEHIND, &[&account, &from, &size(TASKS_MAX)]).await?
            }
        };
        for row in &rows {
            let hold: OpenHold = postcard::from_bytes(row.try_get(1)?).map_err(unreadable)?;
            let id = HoldId::from_number(count(row.try_get(0)?));
            let is_match = match name {
                CallName::Hold(id_of_call, _) => id == id_of_call,
                CallName::Request(id_of_call, _) => hold.reservation.request == id_of_call,
            };
            if is_match {
                return Ok(Some((id, hold)));
            }
        }
        Ok(None)
    }

    /// The charge of a settled hold, from any node; `None` if no node has reported the hold.
    pub(crate) async fn charged(
        &self,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, DbError> {
        let (from, to) = (0, 0);
        let all = SearchRange { account, from, to, chunks_max: usize::MAX, bytes_max: usize::MAX };
        let find = |_, bytes: &[u8]| charged_in(bytes, hold).map_err(unreadable);
        Ok(self.search(BY_PLACE, all.behind(hold), find).await?.flatten())
    }

    /// The first thing that `find` finds in the chunks of a stretch.
    async fn search<T>(
        &self,
        sql: &str,
        range: SearchRange,
        find: impl Fn(i64, &[u8]) -> Result<Option<T>, DbError>,
    ) -> Result<Option<T>, DbError> {
        let SearchRange { account, mut from, to, mut chunks_max, mut bytes_max } = range;
        // Behind all chunks of the place or moment before the first.
        from = from.saturating_sub(1);
        let (account, mut chunk) = (account.to_string(), i64::MAX);
        while chunks_max > 0 && bytes_max > 0 {
            let most = chunks_max.min(CHUNKS_PER_QUERY);
            let rows = self.query(sql, &[&account, &to, &from, &chunk, &size(most)]).await?;
            for row in &rows {
                (chunk, from) = (row.try_get(0)?, row.try_get(1)?);
                let bytes: &[u8] = row.try_get(2)?;
                if let Some(found) = find(chunk, bytes)? {
                    return Ok(Some(found));
                }
                chunks_max = chunks_max.saturating_sub(1);
                bytes_max = bytes_max.saturating_sub(bytes.len());
            }
            if rows.len() < most {
                break;
            }
        }
        Ok(None)
    }

    /// The first `limit` refunds of a hold, without positions.
    pub(crate) async fn refunds_of(
        &self,
        account: AccountId,
        hold: HoldId,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, DbError> {
        let params: [super::Param<'_>; 3] =
            [&account.to_string(), &number(hold.number()), &size(limit)];
        let rows = self.query(REFUNDS, &params).await?;
        let refund = |row: &Row| {
            let record = Record::Refunded {
                account,
                hold,
                id: row.try_get(0)?,
                amount: Nanousd::new(row.try_get(1)?),
                charged: Nanousd::new(row.try_get(2)?),
                at: UnixMs(count(row.try_get(3)?)),
            };
            Ok(JournaledRecord { seq: 0, record, hold: None })
        };
        rows.iter().map(refund).collect()
    }

    /// The ends of all holds in doubt that no operator has resolved, oldest first.
    pub(crate) async fn in_doubt(&self) -> Result<Vec<JournaledRecord>, DbError> {
        let rows = self.query("SELECT bytes FROM tollgate.in_doubt ORDER BY at, hold", &[]).await?;
        let doubt = |row: &Row| postcard::from_bytes(row.try_get(0)?).map_err(unreadable);
        rows.iter().map(doubt).collect()
    }

    /// The usage of an account in the hours or days of `times`, by that, key and model.
    pub(crate) async fn usage(
        &self,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, DbError> {
        let Hours { first, end, each } = Hours::new(grain, &times);
        let rows = self.query(&USAGE, &[&account.to_string(), &first, &end, &each]).await?;
        let mut found: BTreeMap<UsageCell, UsageTotal> = BTreeMap::new();
        for row in &rows {
            let model: &str = row.try_get(2)?;
            let (time, key) = (time(row.try_get(0)?, each), id::<KeyId>(row.try_get(1)?)?);
            let cell = UsageCell { account, time, key, model: model.into() };
            // Units without a column of their own come in rows of their own.
            found.entry(cell).or_default().add(&total(row, 3)?);
        }
        Ok(found.into_iter().collect())
    }

    /// The usage of all accounts together in the hours or days of `times`, by that and model.
    pub(crate) async fn usage_of_all(
        &self,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<UsageOfModel>, DbError> {
        let Hours { first, end, each } = Hours::new(grain, &times);
        let rows = self.query(&USAGE_OF_ALL, &[&first, &end, &each]).await?;
        let mut found: BTreeMap<(u32, Arc<str>), UsageTotal> = BTreeMap::new();
        for row in &rows {
            let model: &str = row.try_get(1)?;
            let cell = (time(row.try_get(0)?, each), model.into());
            found.entry(cell).or_default().add(&total(row, 2)?);
        }
        Ok(found.into_iter().map(|((time, model), total)| (time, model, total)).collect())
    }

    /// The time of the last charged call of each key of an account; unused keys are left out.
    pub(crate) async fn keys_last_used(
        &self,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, DbError> {
        let rows = self.query(KEYS_USED, &[&account.to_string()]).await?;
        let used = |row: &Row| Ok((id(row.try_get(0)?)?, UnixMs(count(row.try_get(1)?))));
        rows.iter().map(used).collect()
    }

    /// The balances and write-offs of these accounts. Leases count as available, since only the nodes know
    /// which part covers calls in flight.
    pub(crate) async fn balances(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, (Balance, Nanousd)>, DbError> {
        let accounts: Vec<String> = accounts.iter().map(AccountId::to_string).collect();
        let rows = self.query(BALANCES, &[&accounts]).await?;
        rows.iter().map(|row| Ok((id(row.try_get(0)?)?, balance(row)?))).collect()
    }

    /// The sums and number of all accounts.
    pub(crate) async fn totals(&self) -> Result<Totals, DbError> {
        const SQL: &str = concat!(
            "SELECT COUNT(*)",
            sums!("granted", "available + leased", "held + suspense", "spent", "debt"),
            sums!("written_off", "credit"),
            sums!("GREATEST(credit - available - leased - held - suspense, 0)"),
            " FROM tollgate.accounts HAVING COUNT(*) > 0"
        );
        let rows = self.query(SQL, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Totals::default()) };
        let accounts = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
        let (balance, written_off) = balance(row)?;
        let credit_used = Nanousd::new(row.try_get(8)?);
        Ok(Totals { accounts, balance, credit_used, written_off })
    }
}

impl SearchRange {
    /// The chunks in which the end of a hold can stand: behind its beginning, in the journal of the
    /// same node.
    fn behind(&self, hold: HoldId) -> Self {
        let (from, to) = (number(hold.number()), number(NodeId::of(hold.number()).end()));
        Self { from, to, ..*self }
    }
}

/// A range of hours, with the hours of each row.
struct Hours {
    first: i32,
    end: i32,
    each: i32,
}

impl Hours {
    fn new(grain: Grain, times: &Range<u32>) -> Self {
        let each = match grain {
            Grain::Hour => 1,
            Grain::Day => HOURS_PER_DAY,
        };
        let hours = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let hour = |time: u32| hours(time.saturating_mul(each));
        Self { first: hour(times.start), end: hour(times.end), each: hours(each) }
    }
}

/// The hour or day that begins with an hour.
fn time(hour: i32, each: i32) -> u32 {
    u32::try_from(hour.checked_div(each).unwrap_or(0)).unwrap_or(0)
}

fn unreadable(error: postcard::Error) -> DbError {
    DbError::Failed(format!("what a node has reported cannot be read: {error}"))
}

/// The lines of a chunk, each with its cursor as its place.
fn lines(chunk: i64, bytes: &[u8]) -> Result<Vec<JournaledRecord>, DbError> {
    let mut lines = read_chunk(bytes).map_err(unreadable)?;
    let first = count(chunk) << LINE_BITS;
    // Two lines would have the same cursor, and a page would begin in the wrong place.
    if lines.len() > 1 << LINE_BITS {
        return Err(DbError::Failed(format!("chunk {chunk} of entries has too many lines")));
    }
    for (line, cursor) in lines.iter_mut().zip(first..) {
        line.seq = cursor;
    }
    Ok(lines)
}

/// Reads a balance and its write-off from a row, after its first column.
fn balance(row: &Row) -> Result<(Balance, Nanousd), DbError> {
    let amount = |column| amount(row, column);
    let balance = Balance {
        granted: amount(1)?,
        available: amount(2)?,
        held: amount(3)?,
        spent: amount(4)?,
        debt: amount(5)?,
        credit: amount(7)?,
    };
    Ok((balance, amount(6)?))
}

#[cfg(test)]
mod tests;
