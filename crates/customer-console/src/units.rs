//! Usage of calls in everyday words.

use std::time::Duration;

use tollgate_money::price::{Side, Usage, UsageSource};
use tollgate_web_kit::show;

/// Output of a call: `1,204`, `2 images`, `5 s`, or `–` for nothing.
pub(super) fn out(usage: &Usage) -> String {
    let mut parts = Vec::new();
    let tokens = usage.total(Side::Output);
    if tokens > 0 {
        parts.push(show::count(&tokens));
    }
    for (unit, count) in usage.shown().filter(|(unit, count)| unit.side == Side::Made && *count > 0)
    {
        let [one, more] = unit.words;
        let word = if count == 1 { one } else { more };
        parts.push(format!("{} {word}", show::count(&count)));
    }
    if parts.is_empty() { "–".to_owned() } else { parts.join(", ") }
}

/// Every kind of unit of which some were used, with its name.
pub(super) fn all(usage: &Usage) -> Vec<(&'static str, u64)> {
    usage.shown().filter(|(_, count)| *count > 0).map(|(unit, count)| (unit.label, count)).collect()
}

/// Source of the usage figures.
pub(super) fn source(source: UsageSource) -> &'static str {
    match source {
        UsageSource::Upstream => "as the provider reported it",
        UsageSource::Estimated => "estimated from what was sent",
        UsageSource::None => "nothing was used",
    }
}

/// Tokens per second with one decimal.
pub(super) fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.1}"))
}

/// Time until the first byte.
pub(super) fn first_byte(ttfb: Option<Duration>) -> String {
    ttfb.map_or_else(|| "–".to_owned(), |ttfb| show::took(&ttfb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_out_is_named() {
        for (usage, expected) in [
            (Usage::ZERO, "–"),
            (Usage { output_tokens: 1204, ..Usage::ZERO }, "1,204"),
            (Usage { images: 1, ..Usage::ZERO }, "1 image"),
            (Usage { images: 2, output_tokens: 7, ..Usage::ZERO }, "7, 2 images"),
            (Usage { seconds: 5, ..Usage::ZERO }, "5 s"),
            (Usage { characters: 12, ..Usage::ZERO }, "12 characters"),
        ] {
            assert_eq!(out(&usage), expected);
        }
        let cached = Usage {
            input_tokens: 1,
            cache_read_tokens: 20,
            cache_write_tokens: 300,
            cache_write_1h_tokens: 4000,
            ..Usage::ZERO
        };
        assert_eq!(cached.input_tokens_total(), 4321);
        let kinds: u64 = all(&cached).into_iter().map(|(_, units)| units).sum();
        assert_eq!(kinds, 4321, "every kind is told once");
    }
}
