//! Series of the overview's charts: the last day by minute, the last days by charges.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use tollgate_ledger::{Grain, Ledger, LedgerError, UsageTotal};
use tollgate_money::money::Nanousd;
use tollgate_telemetry::metrics::Minute;
use tollgate_types::clock::{MS_PER_DAY, MS_PER_HOUR, UnixMs};
use tollgate_web_kit::show;

const MINUTE_MS: u64 = 60 * 1000;
/// Number of days shown.
const DAYS: u64 = 30;

/// Totals of one hour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hour {
    pub(super) begin: UnixMs,
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) broken: u64,
    /// Of the worst of its minutes: quantiles do not add up.
    pub(super) ttfb_p50: Option<Duration>,
    pub(super) ttfb_p95: Option<Duration>,
    pub(super) spend: Nanousd,
    /// Amount that was held for the charged calls.
    pub(super) held: Nanousd,
}

impl Hour {
    /// Ratio of holds to charges; empty where nothing was charged.
    pub(super) fn held_over_charged(&self) -> String {
        if self.spend.is_zero() {
            return String::new();
        }
        let ratio = show::dollars(self.held) / show::dollars(self.spend);
        if ratio < 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
    }
}

/// Charges of all customers on one day.
pub(super) struct DayTotal {
    pub(super) begin: UnixMs,
    pub(super) total: UsageTotal,
}

/// Requests a minute, as app.js draws them.
pub(super) fn requests(minutes: &[Minute]) -> String {
    let of = |count: fn(&Minute) -> u64| -> Vec<u64> { minutes.iter().map(count).collect() };
    let lines = json!([
        {"label": "All", "values": of(Minute::requests)},
        {"label": "Refused", "values": of(|minute| minute.refused)},
        {"label": "Failed", "values": of(|minute| minute.failed + minute.broken)},
    ]);
    json!({"x": seconds(minutes), "lines": lines}).to_string()
}

/// The time to the first byte, as app.js draws it.
pub(super) fn ttfb(minutes: &[Minute]) -> String {
    let ms = |time: Option<Duration>| time.map_or(Value::Null, |time| json!(time.as_millis()));
    let p50: Vec<Value> = minutes.iter().map(|minute| ms(minute.ttfb_p50)).collect();
    let p95: Vec<Value> = minutes.iter().map(|minute| ms(minute.ttfb_p95)).collect();
    let lines = json!([{"label": "p50", "values": p50}, {"label": "p95", "values": p95}]);
    json!({"x": seconds(minutes), "lines": lines, "unit": "ms"}).to_string()
}

fn seconds(minutes: &[Minute]) -> Vec<u64> {
    minutes.iter().map(|minute| minute.end.seconds()).collect()
}

/// The minutes summed up by the hour, newest first.
pub(super) fn hours(minutes: &[Minute]) -> Vec<Hour> {
    let mut hours: BTreeMap<u64, Hour> = BTreeMap::new();
    for minute in minutes {
        // A minute belongs to the hour in which it began.
        // The last minute of an hour ends in the next one.
        let begin = minute.end.0.saturating_sub(MINUTE_MS) / MS_PER_HOUR * MS_PER_HOUR;
        let hour = hours.entry(begin).or_default();
        hour.begin = UnixMs(begin);
        hour.requests += minute.requests();
        hour.refused += minute.refused;
        hour.failed += minute.failed;
        hour.broken += minute.broken;
        hour.ttfb_p50 = hour.ttfb_p50.max(minute.ttfb_p50);
        hour.ttfb_p95 = hour.ttfb_p95.max(minute.ttfb_p95);
        hour.spend = hour.spend.saturating_add(minute.spend);
        hour.held = hour.held.saturating_add(minute.held);
    }
    hours.into_values().rev().collect()
}

/// Charges since the full hour and since midnight UTC.
pub(super) async fn spent(ledger: &Ledger, now: UnixMs) -> Result<(Nanousd, Nanousd), LedgerError> {
    let midnight = UnixMs(now.0 / MS_PER_DAY * MS_PER_DAY);
    let hour = now.0 / MS_PER_HOUR * MS_PER_HOUR;
    let rows = ledger.usage_of_all(Grain::Hour, midnight..UnixMs(now.0 + 1)).await?;
    let sum = |from: u64| {
        let charged = rows.iter().filter(|row| row.begin.0 >= from).map(|row| row.total.charged);
        charged.fold(Nanousd::ZERO, |sum, one| sum.saturating_add(one))
    };
    Ok((sum(hour), sum(midnight.0)))
}

/// The last days on which something was used, newest first.
pub(super) async fn days(ledger: &Ledger, now: UnixMs) -> Result<Vec<DayTotal>, LedgerError> {
    let first = (now.0 / MS_PER_DAY * MS_PER_DAY).saturating_sub((DAYS - 1) * MS_PER_DAY);
    let rows = ledger.usage_of_all(Grain::Day, UnixMs(first)..UnixMs(now.0 + 1)).await?;
    let mut days: BTreeMap<UnixMs, UsageTotal> = BTreeMap::new();
    for row in rows {
        days.entry(row.begin).or_default().add(&row.total);
    }
    Ok(days.into_iter().rev().map(|(begin, total)| DayTotal { begin, total }).collect())
}

/// Charges by day up to now, days without usage included, in the form that app.js draws.
pub(super) fn spend(days: &[DayTotal], now: UnixMs) -> String {
    // The ledger has no rows for days without usage.
    let first = (now.0 / MS_PER_DAY + 1).saturating_sub(DAYS);
    let x: Vec<u64> = (first..first + DAYS).map(|day| day * MS_PER_DAY / 1000).collect();
    let charged = x.iter().map(|begin| {
        let day = days.iter().find(|day| day.begin.seconds() == *begin);
        day.map_or(0.0, |day| show::dollars(day.total.charged))
    });
    let lines = json!([{"label": "Charged", "values": charged.collect::<Vec<f64>>()}]);
    json!({"x": x, "lines": lines, "unit": "$", "bars": true}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_add_up_to_hours() {
        let minute = |end_min: u64, failed, p95| Minute {
            end: UnixMs(end_min * MINUTE_MS),
            succeeded: 2,
            failed,
            ttfb_p95: Some(Duration::from_millis(p95)),
            spend: Nanousd::new(5),
            held: Nanousd::new(if failed > 0 { 6 } else { 0 }),
            ..Minute::default()
        };
        // The minute that ends with an hour belongs to it.
        let hours = hours(&[minute(59, 1, 30), minute(60, 0, 90), minute(61, 4, 20)]);
        let [last, first] = hours.as_slice() else { panic!("{hours:?}") };
        assert_eq!((first.begin, first.requests, first.failed), (UnixMs(0), 5, 1));
        assert_eq!(first.ttfb_p95, Some(Duration::from_millis(90)));
        assert_eq!(first.spend, Nanousd::new(10));
        let nothing = Hour { spend: Nanousd::ZERO, ..*first };
        let ratios = [last, first, &nothing].map(Hour::held_over_charged);
        assert_eq!(ratios, ["1.2", "0.6", ""], "6 over 5, and 6 over 10");
        assert_eq!((last.begin, last.requests), (UnixMs(MS_PER_HOUR), 6));
    }
}
