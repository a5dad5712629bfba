//! What calls used, in the words of people.

use std::time::Duration;

use crate::price::{Usage, UsageSource};
use crate::web::show;

/// Input tokens of all kinds.
pub(super) fn tokens_in(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.cache_read_tokens).saturating_add(cache_writes(usage))
}

/// Tokens that were written to a prompt cache, for however long.
pub(super) fn cache_writes(usage: &Usage) -> u64 {
    usage.cache_write_tokens.saturating_add(usage.cache_write_1h_tokens)
}

/// What came out: `1,204`, `2 images`, `5 s`, or `–` for nothing.
pub(super) fn out(usage: &Usage) -> String {
    let one_or = |count: u64, one: &str, many: &str| {
        let word = if count == 1 { one } else { many };
        format!("{} {word}", show::count(&count))
    };
    let mut parts = Vec::new();
    if usage.output_tokens > 0 {
        parts.push(show::count(&usage.output_tokens));
    }
    if usage.images > 0 {
        parts.push(one_or(usage.images, "image", "images"));
    }
    if usage.seconds > 0 {
        parts.push(format!("{} s", show::count(&usage.seconds)));
    }
    if usage.characters > 0 {
        parts.push(one_or(usage.characters, "character", "characters"));
    }
    if parts.is_empty() { "–".to_owned() } else { parts.join(", ") }
}

/// Every kind of unit of which some were used, with its name.
pub(super) fn all(usage: &Usage) -> Vec<(&'static str, u64)> {
    let kinds = [
        ("Input tokens", usage.input_tokens),
        ("Cached input tokens read", usage.cache_read_tokens),
        ("Cached input tokens written", cache_writes(usage)),
        ("Output tokens", usage.output_tokens),
        ("Images", usage.images),
        ("Seconds of video", usage.seconds),
        ("Characters", usage.characters),
    ];
    kinds.into_iter().filter(|(_, units)| *units > 0).collect()
}

/// Who says what was used.
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

/// How long it took until the first byte.
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
        assert_eq!(tokens_in(&cached), 4321);
        let kinds: u64 = all(&cached).into_iter().map(|(_, units)| units).sum();
        assert_eq!(kinds, 4321, "every kind is told once");
    }
}
