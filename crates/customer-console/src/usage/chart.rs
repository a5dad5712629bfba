//! Charts of usage: one line for each of the dearest models, and one for all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::UsagePeriod;
use super::sums::UsageSums;
use tollgate_ledger::UsageTotal;
use tollgate_money::money::Nanousd;
use tollgate_money::price::Side;
use tollgate_types::clock::UnixMs;

/// Models with a line of their own; all others share one more.
const MODELS_MAX: usize = 7;

/// Charges of each model by day, in the form that the chart's script reads.
pub(super) fn cost(period: &UsagePeriod, sums: &UsageSums) -> String {
    series(period, sums, "$", |total| dollars(total.charged))
}

/// The tokens of each model on each day.
pub(super) fn tokens(period: &UsagePeriod, sums: &UsageSums) -> String {
    series(period, sums, "", |total| {
        let usage = &total.usage;
        json!(usage.input_tokens_total().saturating_add(usage.total(Side::Output)))
    })
}

fn series(
    period: &UsagePeriod,
    sums: &UsageSums,
    unit: &str,
    value: impl Fn(&UsageTotal) -> Value,
) -> String {
    let none = UsageTotal::default();
    let values = |days: &BTreeMap<UnixMs, UsageTotal>| -> Vec<Value> {
        period.all().map(|day| value(days.get(&day).unwrap_or(&none))).collect()
    };
    // The dearest come first; more lines than these cannot be told apart by colour.
    let (own, others) = sums.models.split_at(sums.models.len().min(MODELS_MAX));
    let days_of = |model: &Arc<str>| sums.models_by_day.get(model);
    let line = |label: &str, days: &BTreeMap<UnixMs, UsageTotal>| json!({"label": label, "values": values(days)});
    let mut lines: Vec<Value> =
        own.iter().filter_map(|(model, _)| Some(line(model, days_of(model)?))).collect();
    if !others.is_empty() {
        let mut sum: BTreeMap<UnixMs, UsageTotal> = BTreeMap::new();
        for (day, total) in others.iter().filter_map(|(model, _)| days_of(model)).flatten() {
            sum.entry(*day).or_default().add(total);
        }
        lines.push(line("all others", &sum));
    }
    let seconds: Vec<u64> = period.all().map(UnixMs::seconds).collect();
    json!({"x": seconds, "lines": lines, "unit": unit}).to_string()
}

/// Dollars as a chart needs them: near enough for a point on a screen. Tables have every place.
fn dollars(amount: Nanousd) -> Value {
    amount.to_string().parse::<f64>().map_or(Value::Null, |dollars| json!(dollars))
}
