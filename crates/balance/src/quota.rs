//! Provider quotas of the operator, read from rate-limit headers of answers.
//!
//! | Header | Who sends it |
//! |---|---|
//! | `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}` | Anthropic |
//! | `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` | OpenAI, Azure, Groq and their like |
//! | the same with `-day`, `-hour` or `-minute` behind | Cerebras and others |
//!
//! Some providers count quotas per model and others per account, so a report applies to its channel
//! only: another model of the same account has its own answers.

use std::time::{Duration, Instant};

use tollgate_types::clock::UnixMs;

/// Longest time for which an exhausted quota is trusted. Daily quotas announce a reset in hours and are
/// often raised before: one call in this interval probes.
const RESET_MAX: Duration = Duration::from_secs(5 * 60);
/// Lifetime of a quota without a reset. Azure reports none, and counts in windows of 1 to 10 s.
const RESET_DEFAULT: Duration = Duration::from_secs(5);
/// Longest header value that is parsed, in bytes.
const VALUE_BYTES_MAX: usize = 64;

/// Unit that a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Requests in a window of up to a minute.
    Requests,
    /// Tokens of prompts and answers.
    Tokens,
    /// Prompt tokens, cached ones included.
    InputTokens,
    /// Answer tokens, reasoning included.
    OutputTokens,
    /// Requests in a window of an hour or a day.
    LongRequests,
    /// Tokens in a window of an hour or a day.
    LongTokens,
}

impl QuotaKind {
    /// All kinds, in storage order.
    const ALL: [Self; 6] = [
        Self::Requests,
        Self::Tokens,
        Self::InputTokens,
        Self::OutputTokens,
        Self::LongRequests,
        Self::LongTokens,
    ];

    /// Label in metrics and in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::LongRequests => "long_requests",
            Self::LongTokens => "long_tokens",
        }
    }

    /// Units that a call with a prompt of `tokens` uses.
    fn taken_by(self, tokens: u64) -> u64 {
        match self {
            Self::Requests | Self::LongRequests => 1,
            Self::Tokens | Self::InputTokens | Self::LongTokens => tokens.max(1),
            // The length of the answer is not predictable.
            Self::OutputTokens => 1,
        }
    }
}

/// Quantity that a header reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuotaFigure {
    Limit,
    Remaining,
    Reset,
}

/// Quotas reported by one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaReport([QuotaReading; 6]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QuotaReading {
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<Duration>,
}

impl QuotaReport {
    /// Parse one response header (name in lower case) into `report`. Other headers and impossible values
    /// are ignored.
    pub fn note(report: &mut Option<Self>, name: &[u8], value: &[u8]) {
        // Fast path: nearly all headers return here.
        if !matches!(name.first(), Some(b'x' | b'a')) {
            return;
        }
        let Some((kind, figure)) = named(name) else { return };
        let is_short = value.len() <= VALUE_BYTES_MAX;
        let Some(text) = std::str::from_utf8(value).ok().filter(|_| is_short) else { return };
        let readings = &mut report.get_or_insert_default().0;
        let Some(reading) = readings.get_mut(kind as usize) else { return };
        match figure {
            QuotaFigure::Limit => reading.limit = count(text).or(reading.limit),
            QuotaFigure::Remaining => reading.remaining = count(text).or(reading.remaining),
            QuotaFigure::Reset => reading.reset = reset(text, UnixMs::now()).or(reading.reset),
        }
    }
}

/// Quota kind and quantity of a header name.
fn named(name: &[u8]) -> Option<(QuotaKind, QuotaFigure)> {
    let name = std::str::from_utf8(name).ok()?;
    if let Some(rest) = name.strip_prefix("anthropic-ratelimit-") {
        let (kind, figure) = rest.rsplit_once('-')?;
        let kind = match kind {
            "requests" => QuotaKind::Requests,
            "tokens" => QuotaKind::Tokens,
            "input-tokens" => QuotaKind::InputTokens,
            "output-tokens" => QuotaKind::OutputTokens,
            _ => return None,
        };
        return Some((kind, figure_of(figure)?));
    }
    let (figure, kind) = name.strip_prefix("x-ratelimit-")?.split_once('-')?;
    let kind = match kind {
        "requests" | "requests-minute" => QuotaKind::Requests,
        "tokens" | "tokens-minute" => QuotaKind::Tokens,
        "requests-day" | "requests-hour" => QuotaKind::LongRequests,
        "tokens-day" | "tokens-hour" => QuotaKind::LongTokens,
        _ => return None,
    };
    Some((kind, figure_of(figure)?))
}

fn figure_of(word: &str) -> Option<QuotaFigure> {
    match word {
        "limit" => Some(QuotaFigure::Limit),
        "remaining" => Some(QuotaFigure::Remaining),
        "reset" => Some(QuotaFigure::Reset),
        _ => None,
    }
}

/// Parse a non-negative number; some providers write a fraction.
fn count(text: &str) -> Option<u64> {
    let whole = text.trim().split('.').next()?;
    let is_number = !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
    whole.parse().ok().filter(|_| is_number)
}

/// Parse the time until a reset: a duration such as `6m0s`, `1.5s` and `17ms` (OpenAI, Groq), seconds
/// (Azure), seconds or milliseconds since 1970 (OpenRouter), or a date (Anthropic: RFC 3339).
fn reset(text: &str, now: UnixMs) -> Option<Duration> {
    let text = text.trim();
    let until = |at: u64| Duration::from_millis(at.saturating_sub(now.0));
    // As many seconds as that have passed since 1970 by 2001, and as many milliseconds by 1970.
    const EPOCH_SECONDS_MIN: f64 = 1e9;
    const EPOCH_MS_MIN: f64 = 1e11;
    let found = match text.parse::<f64>() {
        Ok(ms) if ms >= EPOCH_MS_MIN => until(whole(ms)?),
        Ok(seconds) if seconds >= EPOCH_SECONDS_MIN => until(whole(seconds * 1000.0)?),
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) if text.contains('T') => until(UnixMs::parse_rfc3339(text)?.0),
        Err(_) => in_units(text)?,
    };
    Some(found.min(RESET_MAX))
}

/// Integer part of a number in `0..9e15`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive, and as small as checked"
)]
fn whole(number: f64) -> Option<u64> {
    (0.0..9.0e15).contains(&number).then_some(number as u64)
}

/// Parse a duration in Go's notation, such as `1h2m3.5s`.
fn in_units(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, behind) = rest.split_at_checked(digits)?;
        let unit = behind.find(|letter: char| letter.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(unit)?;
        let seconds = match unit {
            "d" => 86_400.0,
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = behind;
    }
    Some(total).filter(|_| !text.is_empty())
}

/// Latest quotas of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quotas([Option<Quota>; 6]);

#[derive(Clone, Copy, Debug)]
struct Quota {
    limit: Option<u64>,
    remaining: u64,
    /// Time of the reset.
    reset: Instant,
}

/// Snapshot of a quota for the admin API and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStanding {
    /// Unit that it counts.
    pub kind: QuotaKind,
    /// Limit, if the provider reports it.
    pub limit: Option<u64>,
    /// Remaining units, less the use of calls since the last answer.
    pub remaining: u64,
    /// Time until the reset.
    pub reset: Duration,
}

impl Quotas {
    /// Apply an answer's report.
    pub(super) fn take(&mut self, report: &QuotaReport, now: Instant) {
        for (quota, reading) in self.0.iter_mut().zip(&report.0) {
            let Some(remaining) = reading.remaining else { continue };
            let reset = now + reading.reset.unwrap_or(RESET_DEFAULT);
            *quota = Some(Quota { limit: reading.limit, remaining, reset });
        }
    }

    /// Subtract a call with a prompt of `tokens` before its answer reports it.
    pub(super) fn spend(&mut self, tokens: u64) {
        for (kind, quota) in QuotaKind::ALL.into_iter().zip(&mut self.0) {
            if let Some(quota) = quota {
                quota.remaining = quota.remaining.saturating_sub(kind.taken_by(tokens));
            }
        }
    }

    /// True if a quota is too low for a call with a prompt of `tokens`.
    pub(super) fn is_short(&self, tokens: u64, now: Instant) -> bool {
        let mut all = QuotaKind::ALL.into_iter().zip(&self.0);
        all.any(|(kind, quota)| {
            quota.is_some_and(|quota| {
                // A prompt estimated above the whole quota is let through when the quota is full.
                let taken = kind.taken_by(tokens).min(quota.limit.unwrap_or(u64::MAX)).max(1);
                quota.reset > now && quota.remaining < taken
            })
        })
    }

    /// Quotas whose reset is still ahead.
    pub(super) fn standings(&self, now: Instant) -> Vec<QuotaStanding> {
        let all = QuotaKind::ALL.into_iter().zip(&self.0);
        let reported = all.filter_map(|(kind, quota)| Some((kind, (*quota)?)));
        let valid = reported.filter(|(_, quota)| quota.reset > now);
        valid
            .map(|(kind, Quota { limit, remaining, reset })| {
                let reset = reset.saturating_duration_since(now);
                QuotaStanding { kind, limit, remaining, reset }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(fields: &[(&str, &str)]) -> QuotaReport {
        let mut report = None;
        for (name, value) in fields {
            QuotaReport::note(&mut report, name.as_bytes(), value.as_bytes());
        }
        report.unwrap_or_default()
    }

    fn quotas_of(fields: &[(&str, &str)], now: Instant) -> Quotas {
        let mut quotas = Quotas::default();
        quotas.take(&report(fields), now);
        quotas
    }

    #[test]
    fn a_reset_is_read_as_each_provider_writes_it() {
        let now = UnixMs::parse_rfc3339("2026-11-27T12:00:00Z").expect("a time");
        let ms = Duration::from_millis;
        for (text, expected) in [
            ("1s", Some(ms(1000))),
            ("4m0s", Some(ms(240_000))),
            ("2m59.56s", Some(ms(179_560))),
            ("17ms", Some(ms(17))),
            ("1m30s", Some(ms(90_000))),
            ("6h0m0s", Some(RESET_MAX)),
            ("8d", Some(RESET_MAX)),
            ("0s", Some(ms(0))),
            ("0", Some(ms(0))),
            ("59", Some(ms(59_000))),
            ("1.5", Some(ms(1500))),
            ("2026-11-27T12:01:00Z", Some(ms(60_000))),
            ("2026-11-27T13:01:00+01:00", Some(ms(60_000))),
            ("2026-11-27T11:00:00Z", Some(ms(0))),
            ("2099-01-01T00:00:00Z", Some(RESET_MAX)),
            (&(now.0 + 30_000).to_string(), Some(ms(30_000))),
            (&(now.0 / 1000 + 30).to_string(), Some(ms(30_000))),
            ("99999999999999999999999", None),
            ("-5", None),
            ("-5s", None),
            ("soon", None),
            ("", None),
            ("NaN", None),
            ("inf", None),
            ("5x", None),
            ("s", None),
        ] {
            assert_eq!(reset(text, now), expected, "{text}");
        }
    }

    #[test]
    fn rate_limit_headers_of_each_provider_are_recognized() {
        use QuotaKind as Kind;
        for (name, expected) in [
            (
                "anthropic-ratelimit-requests-remaining",
                Some((Kind::Requests, QuotaFigure::Remaining)),
            ),
            (
                "anthropic-ratelimit-input-tokens-reset",
                Some((Kind::InputTokens, QuotaFigure::Reset)),
            ),
            (
                "anthropic-ratelimit-output-tokens-limit",
                Some((Kind::OutputTokens, QuotaFigure::Limit)),
            ),
            ("anthropic-ratelimit-unified-status", None),
            ("x-ratelimit-remaining-tokens", Some((Kind::Tokens, QuotaFigure::Remaining))),
            ("x-ratelimit-reset-requests", Some((Kind::Requests, QuotaFigure::Reset))),
            (
                "x-ratelimit-remaining-requests-day",
                Some((Kind::LongRequests, QuotaFigure::Remaining)),
            ),
            ("x-ratelimit-remaining-tokens-minute", Some((Kind::Tokens, QuotaFigure::Remaining))),
            ("x-ratelimit-remaining", None),
            ("x-ratelimit-used-tokens", None),
            ("x-request-id", None),
            ("age", None),
        ] {
            assert_eq!(named(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn nothing_is_believed_that_no_provider_can_mean() {
        let now = Instant::now();
        for value in ["-1", "", "many", "1e9", "99999999999999999999999", "0x10"] {
            let quotas = quotas_of(&[("x-ratelimit-remaining-requests", value)], now);
            assert!(!quotas.is_short(u64::MAX, now), "{value}");
        }
        let long = "0".repeat(VALUE_BYTES_MAX + 1);
        assert!(!quotas_of(&[("x-ratelimit-remaining-requests", &long)], now).is_short(1, now));
    }

    #[test]
    fn a_quota_is_short_until_its_reset() {
        let now = Instant::now();
        let quotas = quotas_of(
            &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "2s")],
            now,
        );
        assert!(quotas.is_short(1, now) && quotas.is_short(1, now + Duration::from_millis(1900)));
        assert!(!quotas.is_short(1, now + Duration::from_millis(2100)));
        let without_reset = quotas_of(&[("x-ratelimit-remaining-requests", "0")], now);
        assert!(without_reset.is_short(1, now) && !without_reset.is_short(1, now + RESET_DEFAULT));
    }

    #[test]
    fn tokens_have_to_last_for_the_prompt() {
        let now = Instant::now();
        let fields = [
            ("anthropic-ratelimit-input-tokens-limit", "1000"),
            ("anthropic-ratelimit-input-tokens-remaining", "300"),
            ("anthropic-ratelimit-input-tokens-reset", "2099-01-01T00:00:00Z"),
        ];
        let mut quotas = quotas_of(&fields, now);
        assert!(!quotas.is_short(300, now) && quotas.is_short(301, now));
        // Calls under way take theirs before any of their answers says so.
        quotas.spend(200);
        assert!(!quotas.is_short(100, now) && quotas.is_short(101, now));
        quotas.take(&report(&fields), now);
        assert!(!quotas.is_short(300, now), "the provider knows better");
        let mut full = fields;
        full[1].1 = "1000";
        assert!(!quotas_of(&full, now).is_short(5000, now), "it never fits better than now");
    }
}
