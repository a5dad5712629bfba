//! Usage of the account by day, model and key.

mod chart;
mod csv;
mod sums;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use serde::Deserialize;

use super::CustomerConsole;
use super::customer::{LoggedInCustomer, PageResult};
use super::key_names::KeyNames;
use super::units;
use sums::UsageSums;
use tollgate_ledger::{Grain, UsageRow, UsageTotal};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::{MS_PER_DAY, UnixMs};
use tollgate_web_kit::{HtmlPage, PageFrame, show};

pub(super) use csv::download;

/// The choices of days, today included.
const DAYS: [u64; 4] = [7, 30, 90, 365];
/// The choice where none is made.
const DAYS_DEFAULT: u64 = 30;
/// Rows of the tables of models and keys. What is left out is in the CSV file.
const ROWS_MAX: usize = 100;
/// Rows of the table of days: one for each.
const DAYS_MAX: usize = 365;

#[derive(Template)]
#[template(path = "customer_usage.html")]
struct UsagePage {
    frame: PageFrame,
    days: u64,
    choices: [u64; 4],
    from: String,
    to: String,
    total: UsageTotal,
    cost_chart: String,
    token_chart: String,
    models: UsageTable,
    keys: UsageTable,
    by_day: UsageTable,
}

/// A table of sums.
struct UsageTable {
    rows: Vec<UsageLine>,
    /// Number of omitted rows.
    left_out: usize,
}

/// A row of the table.
struct UsageLine {
    name: String,
    calls: u64,
    tokens_in: u64,
    out: String,
    cost: Nanousd,
}

impl UsageTable {
    fn new<T>(
        sums: impl ExactSizeIterator<Item = (T, UsageTotal)>,
        rows_max: usize,
        name: impl Fn(T) -> String,
    ) -> Self {
        let left_out = sums.len().saturating_sub(rows_max);
        let row = |(what, total): (T, UsageTotal)| UsageLine {
            name: name(what),
            calls: total.calls,
            tokens_in: total.usage.input_tokens_total(),
            out: units::out(&total.usage),
            cost: total.charged,
        };
        Self { rows: sums.take(rows_max).map(row).collect(), left_out }
    }
}

/// Number of days.
#[derive(Deserialize)]
pub(super) struct UsageDaysQuery {
    days: Option<String>,
}

/// The days that are shown: from the first one until now.
struct UsagePeriod {
    days: u64,
    begin: UnixMs,
    today: UnixMs,
}

impl UsagePeriod {
    /// The requested period if it is one of [`DAYS`], else [`DAYS_DEFAULT`].
    fn from_query(query: &UsageDaysQuery, now: UnixMs) -> Self {
        let days = query.days.as_deref().and_then(|days| days.parse().ok());
        // Only these periods: any number would let a link make the ledger add up years.
        let days = days.filter(|days| DAYS.contains(days)).unwrap_or(DAYS_DEFAULT);
        let today = UnixMs(now.0 - now.0 % MS_PER_DAY);
        Self { days, begin: UnixMs(today.0.saturating_sub((days - 1) * MS_PER_DAY)), today }
    }

    /// The days, the oldest first.
    fn all(&self) -> impl ExactSizeIterator<Item = UnixMs> + DoubleEndedIterator {
        let (begin, days) = (self.begin.0, usize::try_from(self.days).unwrap_or(0));
        (0..days).map(move |day| UnixMs(begin + day as u64 * MS_PER_DAY))
    }
}

/// Usage in a period, as of a few seconds ago.
async fn used(
    console: &CustomerConsole,
    customer: &LoggedInCustomer,
    period: &UsagePeriod,
) -> PageResult<Vec<UsageRow>> {
    let range = period.begin..UnixMs(period.today.0 + MS_PER_DAY);
    let rows = console.ledger.usage_lately(customer.account.id, Grain::Day, range).await;
    rows.map_err(|error| customer.failed(console, &error))
}

/// `GET /usage`
pub(super) async fn page(
    State(console): State<CustomerConsole>,
    customer: LoggedInCustomer,
    Query(query): Query<UsageDaysQuery>,
) -> PageResult {
    let period = UsagePeriod::from_query(&query, UnixMs::now());
    let used = used(&console, &customer, &period).await?;
    let sums = UsageSums::add_up(&used);
    let names = KeyNames::load(&console, &customer);
    let day = |at: UnixMs| show::day(&at);
    let by_day: Vec<_> =
        period.all().rev().filter_map(|at| Some((at, *sums.days.get(&at)?))).collect();
    let shown = UsagePage {
        frame: customer.frame(&console, "/usage"),
        days: period.days,
        choices: DAYS,
        from: day(period.begin),
        to: day(period.today),
        cost_chart: chart::cost(&period, &sums),
        token_chart: chart::tokens(&period, &sums),
        models: UsageTable::new(sums.models.iter().cloned(), ROWS_MAX, |model| model.to_string()),
        keys: UsageTable::new(sums.keys.iter().copied(), ROWS_MAX, |key| names.name(key)),
        by_day: UsageTable::new(by_day.into_iter(), DAYS_MAX, day),
        total: sums.total,
    };
    Ok(HtmlPage(shown).into_response())
}
