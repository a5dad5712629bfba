//! Values of columns: how numbers, ids, times and records are written to the database and read back.

use tokio_postgres::Row;

use super::DbError;
use crate::treasury::AccountFunds;
use tollgate_ledger::{NodeId, Seq};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// A number of the database's signed type. Places, times and counters stay far below its end.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A non-negative number.
pub(super) fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// An id that this program has written.
pub(super) fn id<T: std::str::FromStr>(text: &str) -> Result<T, DbError> {
    text.parse().map_err(|_| DbError::Failed(format!("{text:?} is no id of this program")))
}

/// Node number in a column.
pub(super) fn node(row: &Row, column: usize) -> Result<NodeId, DbError> {
    let number: i32 = row.try_get(column)?;
    let node = u16::try_from(number).ok().and_then(NodeId::from_number);
    node.ok_or_else(|| DbError::Failed(format!("{number} is no node")))
}

/// The amount of money in a column.
pub(super) fn amount(row: &Row, column: usize) -> Result<Nanousd, DbError> {
    Ok(Nanousd::new(row.try_get(column)?))
}

/// Parts of the money of an account, or of all accounts, in the columns after the first.
pub(super) fn funds(row: &Row) -> Result<AccountFunds, DbError> {
    let amount = |column| amount(row, column);
    Ok(AccountFunds {
        granted: amount(1)?,
        available: amount(2)?,
        leased: amount(3)?,
        held: amount(4)?,
        spent: amount(5)?,
        suspense: amount(6)?,
        debt: amount(7)?,
        written_off: amount(8)?,
        credit: amount(9)?,
    })
}

pub(super) fn encoded(value: &impl serde::Serialize) -> Result<Vec<u8>, DbError> {
    postcard::to_stdvec(value).map_err(|error| DbError::Failed(error.to_string()))
}

/// A journal position as a column value. Positions of nodes stay far below the end of its range.
pub(super) fn place(seq: Seq) -> Result<i64, DbError> {
    i64::try_from(seq).map_err(|_| DbError::Failed(format!("{seq} is no place")))
}

pub(super) fn read_place(place: i64) -> Result<Seq, DbError> {
    Seq::try_from(place).map_err(|_| DbError::Failed(format!("{place} is no place")))
}

/// Times that a clock gives fit for 290 million years.
pub(super) fn at_ms(at: UnixMs) -> i64 {
    number(at.0)
}

/// A number of rows, such as a query's limit.
pub(super) fn size(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
