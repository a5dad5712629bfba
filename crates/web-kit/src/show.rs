//! Formatting of money, times, counts and states on pages.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_limits::Rates;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// Dollars with as many places as the amount has, at least two: `$0.0123`.
pub fn money(amount: &Nanousd) -> String {
    let text = amount.to_string();
    match text.strip_prefix('-') {
        Some(text) => format!("−${text}"),
        None => format!("${text}"),
    }
}

/// Dollars for a chart, which draws floats: nothing is reckoned with them.
#[expect(clippy::cast_precision_loss, reason = "a chart has fewer pixels than a float has digits")]
pub fn dollars(amount: Nanousd) -> f64 {
    amount.get() as f64 / 1e9
}

/// A time in UTC to the second: `2026-01-31 12:00:00`.
pub fn time(at: &UnixMs) -> String {
    let text = at.to_rfc3339();
    text.get(..19).map_or_else(|| text.clone(), |text| text.replacen('T', " ", 1))
}

/// The day in UTC: `2026-01-31`.
pub fn day(at: &UnixMs) -> String {
    at.to_rfc3339().chars().take(10).collect()
}

/// A count in groups of three: `1,234,567`.
pub fn count(count: &u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len().saturating_mul(4) / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Limits of a key, one after the other: `60 requests a minute`, `$2.50 a day`. Empty without limits.
pub fn limits(
    rates: &Rates,
    spend_per_day: Option<Nanousd>,
    spend_per_month: Option<Nanousd>,
) -> Vec<String> {
    let rate = |limit: Option<NonZeroU32>, what: &str| {
        limit.map(|limit| format!("{} {what}", count(&limit.get().into())))
    };
    let spend =
        |limit: Option<Nanousd>, what: &str| limit.map(|limit| format!("{} {what}", money(&limit)));
    let all = [
        rate(rates.requests_per_minute, "requests a minute"),
        rate(rates.tokens_per_minute, "tokens a minute"),
        rate(rates.concurrent_requests, "at one time"),
        spend(spend_per_day, "a day"),
        spend(spend_per_month, "a month"),
    ];
    all.into_iter().flatten().collect()
}

/// The most characters of a stranger's text in a table, and where it stands alone. Old records have
/// texts of any length, and a page has dozens of them.
const LINE_CHARS_MAX: usize = 200;
const TEXT_CHARS_MAX: usize = 4_000;

/// A text for a table: the beginning of a long one.
pub fn line(text: &str) -> Cow<'_, str> {
    cut(text, LINE_CHARS_MAX)
}

/// A text that stands alone: the beginning of a very long one.
pub fn text(text: &str) -> Cow<'_, str> {
    cut(text, TEXT_CHARS_MAX)
}

/// The first characters of a text, and a sign that there are more.
pub fn cut(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// A duration: `35 ms`, `1.24 s`, `3 min 20 s`.
pub fn took(duration: &Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{:02} s", ms / 1000, ms % 1000 / 10),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

/// Rough age: `just now`, `5 min ago`, `3 h ago`, `12 days ago`.
pub fn ago(at: &UnixMs, now: &UnixMs) -> String {
    let seconds = now.0.saturating_sub(at.0) / 1000;
    match seconds {
        0..60 => "just now".to_owned(),
        60..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(&number), text);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (text, expected) in [("", ""), ("abc", "abc"), ("abcd", "abc…"), ("äöüß", "äöü…")]
        {
            assert_eq!(cut(text, 3), expected);
        }
        let long = "x".repeat(20_000_000);
        assert_eq!((line(&long).len(), self::text(&long).len()), (203, 4_003));
    }

    #[test]
    fn money_keeps_every_place() {
        assert_eq!(money(&Nanousd::new(12_300_000)), "$0.0123");
        assert_eq!(money(&Nanousd::new(-5_000_000_000)), "−$5.00");
    }

    #[test]
    fn times_are_short() {
        let at = UnixMs(1_769_860_800_123);
        assert_eq!(time(&at), "2026-01-31 12:00:00");
        assert_eq!(day(&at), "2026-01-31");
        assert_eq!(ago(&at, &UnixMs(at.0 + 300_000)), "5 min ago");
        assert_eq!(took(&Duration::from_millis(1_245)), "1.24 s");
        assert_eq!(took(&Duration::from_secs(200)), "3 min 20 s");
    }
}
