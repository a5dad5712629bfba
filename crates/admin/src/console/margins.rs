//! Revenue, cost and margin of calls by day, model, upstream or customer.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::access::{LenientQuery, LoggedInOperator};
use crate::margins::{MarginBy, MarginRow, summed};
use tollgate_ledger::{Ledger, MarginTotal};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::{MS_PER_DAY, UnixMs};
use tollgate_web_kit::{HtmlPage, PageFrame, show};

/// Entry of the navigation.
const HERE: &str = "/margins";
/// The choices of days, today included.
const DAYS: [u32; 4] = [1, 7, 30, 90];
/// The choice where none is made.
const DAYS_DEFAULT: u32 = 30;
/// Rows of the table; what is left out is in the admin API.
const ROWS_MAX: usize = 200;
/// Groupings of the table, with the heading of the first column.
const WAYS: [(MarginBy, &str, &str); 4] = [
    (MarginBy::Model, "model", "Model"),
    (MarginBy::Upstream, "upstream", "Upstream"),
    (MarginBy::Account, "account", "Customer"),
    (MarginBy::Day, "day", "Day (UTC)"),
];

/// Parameters of the table, as typed.
#[derive(Default, Deserialize)]
pub(super) struct MarginsQuery {
    days: Option<u32>,
    by: Option<MarginBy>,
}

#[derive(Template)]
#[template(path = "operator_margins.html")]
struct MarginsPage {
    frame: PageFrame,
    days: u32,
    choices: [u32; 4],
    /// Grouping, and the heading of the first column.
    by: (&'static str, &'static str),
    ways: [(MarginBy, &'static str, &'static str); 4],
    total: MarginTotal,
    rows: Vec<MarginLine>,
    /// Number of omitted rows.
    left_out: usize,
}

/// One row of the table.
struct MarginLine {
    name: String,
    /// Link to the page of the row's subject.
    href: Option<String>,
    calls: u64,
    money: MarginMoney,
    unpaid: Nanousd,
}

/// Revenue, cost and margin.
struct MarginMoney {
    charged: Nanousd,
    cost: Nanousd,
    margin: Nanousd,
    /// The margin as a share of what was charged.
    share: String,
    /// A class of the style sheet.
    badge_class: &'static str,
}

impl MarginMoney {
    fn new(charged: Nanousd, cost: Nanousd) -> Self {
        let margin = charged.checked_sub(cost).unwrap_or_default();
        let badge_class = if margin < Nanousd::ZERO { "bad" } else { "" };
        Self { charged, cost, margin, share: share(margin, charged), badge_class }
    }
}

impl MarginsPage {
    fn total(&self) -> MarginMoney {
        MarginMoney::new(self.total.charged, self.total.cost)
    }
}

impl MarginLine {
    fn new(row: MarginRow, ledger: &Ledger) -> Self {
        let account = row.account_id.map(|id| {
            let name = ledger.account(id).map_or_else(|| id.to_string(), |account| account.name);
            (name, format!("/customers/{id}"))
        });
        let (name, href) = match (account, row.day, row.model.or(row.upstream)) {
            (Some((name, href)), ..) => (name, Some(href)),
            (None, Some(day), _) => (show::day(&day.0), None),
            (None, None, name) => (name.map(|name| name.to_string()).unwrap_or_default(), None),
        };
        let money = MarginMoney::new(row.charged, row.cost);
        Self { name, href, calls: row.calls, money, unpaid: row.unpaid }
    }
}

/// The share in tenths of a percent, cut off; empty where nothing was charged.
fn share(margin: Nanousd, charged: Nanousd) -> String {
    let (margin, charged) = (i128::from(margin.get()), i128::from(charged.get()));
    let Some(tenths) = (margin * 1000).checked_div(charged) else { return String::new() };
    let sign = if tenths < 0 { "−" } else { "" };
    format!("{sign}{}.{} %", tenths.abs() / 10, tenths.abs() % 10)
}

/// `GET /operator/margins`
pub(super) async fn page(
    operator: LoggedInOperator,
    LenientQuery(query): LenientQuery<MarginsQuery>,
) -> Response {
    let days = query.days.filter(|days| DAYS.contains(days)).unwrap_or(DAYS_DEFAULT);
    let by = query.by.unwrap_or(MarginBy::Model);
    // One below the largest, since the end of the range is `today + 1`.
    let today = u32::try_from(UnixMs::now().0 / MS_PER_DAY).unwrap_or(u32::MAX - 1);
    let cells = operator.ledger().margins(today.saturating_sub(days - 1)..today + 1).await;
    let cells = match cells {
        Ok(cells) => cells,
        Err(error) => return operator.failed(error),
    };
    let mut total = MarginTotal::default();
    cells.iter().for_each(|(_, one)| total.add(one));
    let mut rows = summed(cells, Some(by));
    match by {
        MarginBy::Day => rows.reverse(),
        // The worst first: a page is cut at its end, and losses must not be what is left out.
        _ => rows.sort_by_key(|row| row.margin),
    }
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let way = WAYS.iter().find(|(way, ..)| *way == by);
    let page = MarginsPage {
        frame: operator.frame(HERE),
        days,
        choices: DAYS,
        by: way.map_or(("model", "Model"), |(_, word, heading)| (*word, *heading)),
        ways: WAYS,
        total,
        rows: rows.into_iter().map(|row| MarginLine::new(row, operator.ledger())).collect(),
        left_out,
    };
    HtmlPage(page).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_cut_off_and_keep_their_sign() {
        let of = |margin, charged| share(Nanousd::new(margin), Nanousd::new(charged));
        assert_eq!(of(1, 3), "33.3 %");
        assert_eq!(of(-5, 1000), "−0.5 %");
        assert_eq!(of(-2000, 1000), "−200.0 %");
        assert_eq!(of(-1, 0), "");
    }
}
