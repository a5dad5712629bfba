//! Usage of a customer by day.

use std::collections::BTreeMap;

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use super::access::Visit;
use super::customer::{CustomerHead, HERE};
use tollgate_ledger::{Grain, UsageRow, UsageTotal};
use tollgate_types::clock::{MS_PER_DAY, UnixMs};
use tollgate_web_kit::{HtmlPage, PageFrame, show};

/// Number of days shown.
const DAYS: u64 = 30;
/// Maximum number of models shown separately; the table of days contains the rest.
const MODELS_MAX: usize = 50;

#[derive(Template)]
#[template(path = "operator_usage.html")]
struct CustomerUsagePage {
    frame: PageFrame,
    head: CustomerHead,
    /// The sums of each day, newest first.
    days: Vec<(UnixMs, UsageTotal)>,
    /// The sums of each model, dearest first.
    models: Vec<(String, UsageTotal)>,
    chart: String,
}

/// `GET /operator/customers/{account}/usage`
pub(super) async fn page(Visit { operator, account }: Visit) -> Response {
    let now = UnixMs::now().0;
    let first = now / MS_PER_DAY * MS_PER_DAY - (DAYS - 1) * MS_PER_DAY;
    let range = UnixMs(first)..UnixMs(now + 1);
    let rows = match operator.ledger().usage_lately(account.id, Grain::Day, range).await {
        Ok(rows) => rows,
        Err(error) => return operator.failed(error),
    };
    let (mut days, models) = (by_day(&rows, first), by_model(&rows));
    let chart = chart(&days);
    days.retain(|(_, total)| total.calls > 0);
    days.reverse();
    let (frame, head) =
        (operator.frame(HERE), CustomerHead::new(operator.ledger(), &account, "/usage"));
    HtmlPage(CustomerUsagePage { frame, head, days, models, chart }).into_response()
}

/// All days in their order, with those on which nothing was used.
fn by_day(rows: &[UsageRow], first: u64) -> Vec<(UnixMs, UsageTotal)> {
    let day = |number: u64| (UnixMs(first + number * MS_PER_DAY), UsageTotal::default());
    let mut days: Vec<_> = (0..DAYS).map(day).collect();
    for row in rows {
        let number = row.begin.0.checked_sub(first).map(|since| since / MS_PER_DAY);
        let place = number.and_then(|number| usize::try_from(number).ok());
        if let Some((_, total)) = place.and_then(|place| days.get_mut(place)) {
            total.add(&row.total);
        }
    }
    days
}

fn by_model(rows: &[UsageRow]) -> Vec<(String, UsageTotal)> {
    let mut models: BTreeMap<&str, UsageTotal> = BTreeMap::new();
    for row in rows {
        models.entry(&row.model).or_default().add(&row.total);
    }
    let mut models: Vec<_> =
        models.into_iter().map(|(model, total)| (model.to_owned(), total)).collect();
    // Dearest first, so that what the cut leaves out is the cheapest.
    models.sort_by_key(|(_, total)| std::cmp::Reverse(total.charged));
    models.truncate(MODELS_MAX);
    models
}

/// Charges by day, in the form that app.js draws.
fn chart(days: &[(UnixMs, UsageTotal)]) -> String {
    let x: Vec<u64> = days.iter().map(|(day, _)| day.seconds()).collect();
    let values: Vec<f64> = days.iter().map(|(_, total)| show::dollars(total.charged)).collect();
    let lines = json!([{"label": "Charged", "values": values}]);
    json!({"x": x, "lines": lines, "unit": "$", "bars": true}).to_string()
}
