//! Sums of usage in the database: written with each report, and read by the hour or day.
//!
//! The units of the first schema have a column each in `tollgate.usage`; those that came later have rows in
//! `tollgate.usage_units`, by their names. So a node of an earlier version counts and shows what it
//! knows, as before, and a unit that is added needs no step of the schema.

use std::sync::LazyLock;

use tokio_postgres::Row;

use super::columns::{count, number};
use super::{DbError, Param, Transaction};
use tollgate_ledger::{UsageCell, UsageTotal};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{PLACED, UNITS, UnitInfo};

/// Summed columns other than the units.
const MONEY: [&str; 4] = ["calls", "charged", "owed", "written_off"];

/// Units with a column.
fn placed() -> impl Iterator<Item = &'static UnitInfo> {
    UNITS.iter().take(PLACED)
}

/// The columns of sums, in the order in which [`total`] reads them.
fn columns() -> impl Iterator<Item = &'static str> {
    MONEY.into_iter().chain(placed().map(|unit| unit.name))
}

/// A sum of a column. Figures past the range stay at its end: they are statistics, not balances.
fn sum(column: &str) -> String {
    format!("LEAST(SUM({column}), 9223372036854775807)::bigint")
}

/// Adds what an insert has more to a column.
fn add(column: &str) -> String {
    format!("{column} = LEAST(u.{column}::numeric + EXCLUDED.{column}, 9223372036854775807)")
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

static PUT_USAGE: LazyLock<String> = LazyLock::new(|| {
    let names = joined(columns().map(str::to_owned));
    let values = joined((5..).take(columns().count()).map(|at| format!("${at}::bigint[]")));
    format!(
        "INSERT INTO tollgate.usage AS u (account, hour, key, model, {names})
         SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], {values})
         ON CONFLICT (account, hour, key, model) DO UPDATE SET {}",
        joined(columns().map(add))
    )
});

static PUT_UNITS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO tollgate.usage_units AS u (account, hour, key, model, unit, amount)
         SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[],
             $6::bigint[])
         ON CONFLICT (account, hour, key, model, unit) DO UPDATE SET {}",
        add("amount")
    )
});

/// The usage of an account: an hour or day, the key, the model, and what [`total`] reads.
pub(super) static USAGE: LazyLock<String> = LazyLock::new(|| {
    sums("hour - hour % $4, key, model", "WHERE account = $1 AND hour >= $2 AND hour < $3")
});

/// The usage of all accounts: an hour or day, the model, and what [`total`] reads.
pub(super) static USAGE_OF_ALL: LazyLock<String> =
    LazyLock::new(|| sums("hour - hour % $3, model", "WHERE hour >= $1 AND hour < $2"));

/// Builds the query of sums by `cell` over the rows that meet `condition`: first the columns, then one row
/// for each later unit, with its name.
fn sums(cell: &str, condition: &str) -> String {
    let of_columns = joined(columns().map(sum));
    let none = joined(columns().skip(1).map(|_| "0::bigint".to_owned()));
    let amount = sum("amount");
    format!(
        "SELECT {cell}, {of_columns}, NULL::text FROM tollgate.usage {condition} GROUP BY {cell}
         UNION ALL
         SELECT {cell}, {amount}, {none}, unit FROM tollgate.usage_units {condition}
         GROUP BY {cell}, unit"
    )
}

/// All units that accounts have used together, by account.
pub(super) static ALL_UNITS: LazyLock<String> = LazyLock::new(|| {
    let placed: Vec<_> = placed().map(|unit| format!("SUM({})", unit.name)).collect();
    format!(
        "SELECT account, LEAST({}, 9223372036854775807)::bigint FROM tollgate.usage
         WHERE account = ANY($1) GROUP BY account
         UNION ALL
         SELECT account, {} FROM tollgate.usage_units WHERE account = ANY($1) GROUP BY account",
        placed.join(" + "),
        sum("amount")
    )
});

/// The keys of usage cells, as one array each.
struct UsageCellKeys<'a> {
    accounts: Vec<String>,
    hours: Vec<i32>,
    keys: Vec<String>,
    models: Vec<&'a str>,
}

impl<'a> UsageCellKeys<'a> {
    fn new(cells: impl Iterator<Item = &'a UsageCell> + Clone) -> Self {
        // The column is an `int`: hours since 1970 fill it for 245,000 years.
        let hour = |cell: &UsageCell| i32::try_from(cell.time).unwrap_or(i32::MAX);
        Self {
            accounts: cells.clone().map(|cell| cell.account.to_string()).collect(),
            hours: cells.clone().map(hour).collect(),
            keys: cells.clone().map(|cell| cell.key.to_string()).collect(),
            models: cells.map(|cell| &*cell.model).collect(),
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        vec![&self.accounts, &self.hours, &self.keys, &self.models]
    }
}

/// Adds to the sums of usage.
///
/// # Errors
/// See [`DbError`].
pub(super) async fn put_usage(
    tx: &Transaction<'_>,
    usage: &[(UsageCell, UsageTotal)],
) -> Result<(), DbError> {
    if usage.is_empty() {
        return Ok(());
    }
    let cells = UsageCellKeys::new(usage.iter().map(|(cell, _)| cell));
    let money = |amount: fn(&UsageTotal) -> Nanousd| -> Vec<i64> {
        usage.iter().map(|(_, total)| amount(total).get()).collect()
    };
    // In the order of `columns`, which the statement was made of.
    let mut figures = vec![
        usage.iter().map(|(_, total)| number(total.calls)).collect::<Vec<i64>>(),
        money(|total| total.charged),
        money(|total| total.owed),
        money(|total| total.written_off),
    ];
    figures.extend(placed().map(|unit| {
        usage.iter().map(|(_, total)| number(total.usage[unit.unit])).collect::<Vec<i64>>()
    }));
    let mut params = cells.params();
    params.extend(figures.iter().map(|figures| figures as Param<'_>));
    tx.execute(&PUT_USAGE, &params).await?;
    put_units(tx, usage).await
}

/// Adds to the sums of units that have no column.
async fn put_units(tx: &Transaction<'_>, usage: &[(UsageCell, UsageTotal)]) -> Result<(), DbError> {
    let later = usage.iter().flat_map(|(cell, total)| {
        let used = total.usage.units().skip(PLACED).filter(|(_, count)| *count > 0);
        used.map(move |(unit, count)| (cell, unit.name, number(count)))
    });
    let later: Vec<_> = later.collect();
    if later.is_empty() {
        return Ok(());
    }
    let cells = UsageCellKeys::new(later.iter().map(|(cell, ..)| *cell));
    let units: Vec<&str> = later.iter().map(|(_, unit, _)| *unit).collect();
    let amounts: Vec<i64> = later.iter().map(|(.., amount)| *amount).collect();
    let mut params = cells.params();
    params.extend([&units as Param<'_>, &amounts]);
    tx.execute(&PUT_UNITS, &params).await?;
    Ok(())
}

/// Reads the sums of a row of [`USAGE`] or [`USAGE_OF_ALL`], from this column on.
///
/// # Errors
/// For a unit that a later version has counted.
pub(super) fn total(row: &Row, first: usize) -> Result<UsageTotal, DbError> {
    let figures: Vec<i64> =
        (first..).take(columns().count()).map(|at| row.try_get(at)).collect::<Result<_, _>>()?;
    let mut total = UsageTotal::default();
    let (money, units) = figures.split_at(MONEY.len());
    if let Some(name) = row.try_get::<_, Option<&str>>(first.saturating_add(figures.len()))? {
        // Leaving it out would show less than was used.
        let unit = UNITS.iter().find(|unit| unit.name == name).ok_or_else(|| {
            let what = "was counted by a node of a later version";
            DbError::Failed(format!("the unit {name:?} {what}: bring this node up to date"))
        })?;
        total.usage[unit.unit] = money.first().copied().map_or(0, count);
        return Ok(total);
    }
    if let [calls, charged, owed, written_off] = *money {
        total.calls = count(calls);
        total.charged = Nanousd::new(charged);
        total.owed = Nanousd::new(owed);
        total.written_off = Nanousd::new(written_off);
    }
    for (unit, figure) in placed().zip(units) {
        total.usage[unit.unit] = count(*figure);
    }
    Ok(total)
}
