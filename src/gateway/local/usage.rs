//! `GET /v1/usage`: what the key's account has used, by day, model and key.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::clock::{MS_PER_DAY, UnixMs};
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::{Grain, Key, KeyId, Ledger, LedgerError, UsageTotal};

/// Delay before a retry while a fleet's database is away: a failover takes seconds.
const RETRY_DATABASE: Duration = Duration::from_secs(5);
/// Default length of the period, in days.
const DAYS_DEFAULT: u64 = 30;
/// Longest period: one year, in days.
const DAYS_MAX: u64 = 366;

/// Answers with the usage document for the period in `query`.
pub(crate) async fn answer(
    ledger: &Ledger,
    key: &Key,
    query: Option<&str>,
    now: UnixMs,
) -> Result<Value, GatewayError> {
    let days = days(query)?;
    let today = now.0 - now.0 % MS_PER_DAY;
    let begin = UnixMs(today.saturating_sub((days - 1) * MS_PER_DAY));
    let rows =
        ledger.usage_lately(key.account, Grain::Day, begin..UnixMs(today + MS_PER_DAY)).await;
    let mut rows = rows.map_err(|error| unread("usage", &error))?;
    // In one order, whichever store the rows come from.
    rows.sort_by(|a, b| (a.begin, &a.model, a.key).cmp(&(b.begin, &b.model, b.key)));
    let data: Vec<Value> =
        rows.iter().map(|row| shown(row.begin, &row.model, row.key, &row.total)).collect();
    Ok(json!({
        "object": "list",
        "currency": "USD",
        "from": date(begin),
        "to": date(UnixMs(today)),
        "data": data,
    }))
}

/// The error for usage or a balance that cannot be read.
pub(crate) fn unread(what: &str, error: &LedgerError) -> GatewayError {
    match error {
        LedgerError::Unavailable(_) | LedgerError::Store(_) => GatewayError::new(
            ErrorKind::Overloaded,
            format!("The {what} cannot be read at the moment. Try again shortly."),
        )
        .retry_after(RETRY_DATABASE),
        _ => GatewayError::new(ErrorKind::Internal, format!("The {what} could not be read.")),
    }
    .cause(error)
}

fn days(query: Option<&str>) -> Result<u64, GatewayError> {
    let mut days = DAYS_DEFAULT;
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if name == "days" {
            let read = value.parse().ok().filter(|days| (1..=DAYS_MAX).contains(days));
            let message = format!("`days` goes from 1 to {DAYS_MAX}.");
            days = read.ok_or_else(|| GatewayError::invalid("days", message))?;
        }
    }
    Ok(days)
}

fn shown(day: UnixMs, model: &str, key: KeyId, total: &UsageTotal) -> Value {
    let mut shown = Map::new();
    shown.insert("date".to_owned(), json!(date(day)));
    shown.insert("model".to_owned(), json!(model));
    shown.insert("key_id".to_owned(), json!(key));
    shown.insert("calls".to_owned(), json!(total.calls));
    for (unit, count) in total.usage.shown() {
        if count > 0 {
            shown.insert(unit.name.to_owned(), json!(count));
        }
    }
    shown.insert("cost".to_owned(), json!(total.charged));
    Value::Object(shown)
}

/// The day in UTC, such as `2026-01-31`.
fn date(day: UnixMs) -> String {
    day.to_rfc3339().chars().take(10).collect()
}
