//! What providers say of the operator's quota in the headers of their answers, and whether it is enough
//! for another call.
//!
//! | Header | Who sends it |
//! |---|---|
//! | `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}` | Anthropic |
//! | `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` | OpenAI, Azure, Groq and their like |
//! | the same with `-day`, `-hour` or `-minute` behind | Cerebras and others |
//!
//! Quotas are counted by model at some providers and by account at others, so what an answer says is kept
//! for its channel alone: another model of the same account has its own answers.

use std::time::{Duration, Instant};

use crate::clock::UnixMs;

/// The longest time for which a quota that is used up is believed to stay so. Quotas of a day reset in
/// hours by what they say, and are often raised before: one call in so long finds out.
const RESET_MAX: Duration = Duration::from_secs(5 * 60);
/// How long a quota without a reset is believed. Azure says none, and counts in windows of 1 to 10 s.
const RESET_UNSAID: Duration = Duration::from_secs(5);
/// The longest header that is read, in bytes.
const VALUE_BYTES_MAX: usize = 64;

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Requests of a minute or less.
    Requests,
    /// Tokens of prompts and answers.
    Tokens,
    /// Tokens of prompts, cached ones or not.
    InputTokens,
    /// Tokens of answers, hidden ones too.
    OutputTokens,
    /// Requests of a day or an hour, beside those of a minute.
    LongRequests,
    /// Tokens of a day or an hour, beside those of a minute.
    LongTokens,
}

impl QuotaKind {
    /// All of them, in the order in which they are kept.
    const ALL: [Self; 6] = [
        Self::Requests,
        Self::Tokens,
        Self::InputTokens,
        Self::OutputTokens,
        Self::LongRequests,
        Self::LongTokens,
    ];

    /// Its word in metrics and in the admin API.
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

    /// How much of it a call takes whose prompt has so many tokens.
    fn taken_by(self, tokens: u64) -> u64 {
        match self {
            Self::Requests | Self::LongRequests => 1,
            Self::Tokens | Self::InputTokens | Self::LongTokens => tokens.max(1),
            // Nobody knows how long an answer becomes.
            Self::OutputTokens => 1,
        }
    }
}

/// What a header says of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Limit,
    Remaining,
    Reset,
}

/// What one answer says of the quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaReport([QuotaReading; 6]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QuotaReading {
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<Duration>,
}

impl QuotaReport {
    /// Takes one header of an answer, whose name is in small letters, into `report`. What says nothing of
    /// a quota, or what no provider can mean, is passed over.
    pub fn note(report: &mut Option<Self>, name: &[u8], value: &[u8]) {
        // Nearly all headers end here.
        if !matches!(name.first(), Some(b'x' | b'a')) {
            return;
        }
        let Some((kind, figure)) = named(name) else { return };
        let is_short = value.len() <= VALUE_BYTES_MAX;
        let Some(text) = std::str::from_utf8(value).ok().filter(|_| is_short) else { return };
        let readings = &mut report.get_or_insert_default().0;
        let Some(reading) = readings.get_mut(kind as usize) else { return };
        match figure {
            Figure::Limit => reading.limit = count(text).or(reading.limit),
            Figure::Remaining => reading.remaining = count(text).or(reading.remaining),
            Figure::Reset => reading.reset = reset(text, UnixMs::now()).or(reading.reset),
        }
    }
}

/// The quota that a header is about, and what it says of it.
fn named(name: &[u8]) -> Option<(QuotaKind, Figure)> {
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

fn figure_of(word: &str) -> Option<Figure> {
    match word {
        "limit" => Some(Figure::Limit),
        "remaining" => Some(Figure::Remaining),
        "reset" => Some(Figure::Reset),
        _ => None,
    }
}

/// A number that is not negative; some providers write a fraction.
fn count(text: &str) -> Option<u64> {
    let whole = text.trim().split('.').next()?;
    let is_number = !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
    whole.parse().ok().filter(|_| is_number)
}

/// The time until a reset: a duration such as `6m0s`, `1.5s` and `17ms` (OpenAI, Groq), seconds (Azure),
/// seconds or milliseconds since 1970 (OpenRouter), or a date (Anthropic: RFC 3339).
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

/// A number of at most 2^53 as a whole one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive, and as small as checked"
)]
fn whole(number: f64) -> Option<u64> {
    (0.0..9.0e15).contains(&number).then_some(number as u64)
}

/// A duration in Go's notation: numbers with their units, the largest first.
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

/// What is known of the quotas of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quotas([Option<Quota>; 6]);

#[derive(Clone, Copy, Debug)]
struct Quota {
    limit: Option<u64>,
    remaining: u64,
    /// When it is there again.
    reset: Instant,
}

/// A quota of the operator's at a provider, for those who look on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStanding {
    /// Whether it counts requests or tokens.
    pub kind: QuotaKind,
    /// The most of it, where the provider says so.
    pub limit: Option<u64>,
    /// What is left, less what calls since the last answer take.
    pub remaining: u64,
    /// How long until it is there again.
    pub reset: Duration,
}

impl Quotas {
    /// Takes over what an answer says.
    pub(super) fn take(&mut self, report: &QuotaReport, now: Instant) {
        for (known, said) in self.0.iter_mut().zip(&report.0) {
            let Some(remaining) = said.remaining else { continue };
            let reset = now + said.reset.unwrap_or(RESET_UNSAID);
            *known = Some(Quota { limit: said.limit, remaining, reset });
        }
    }

    /// Takes what a call uses off, whose prompt has so many tokens: answers to calls that are under way
    /// say nothing of it yet.
    pub(super) fn spend(&mut self, tokens: u64) {
        for (kind, known) in QuotaKind::ALL.into_iter().zip(&mut self.0) {
            if let Some(quota) = known {
                quota.remaining = quota.remaining.saturating_sub(kind.taken_by(tokens));
            }
        }
    }

    /// Whether one of them does not last for a call whose prompt has so many tokens.
    pub(super) fn is_short(&self, tokens: u64, now: Instant) -> bool {
        let mut all = QuotaKind::ALL.into_iter().zip(&self.0);
        all.any(|(kind, known)| {
            known.is_some_and(|quota| {
                // A prompt that is larger than the whole quota never fits, or its estimate is too high.
                let taken = kind.taken_by(tokens).min(quota.limit.unwrap_or(u64::MAX)).max(1);
                quota.reset > now && quota.remaining < taken
            })
        })
    }

    /// Those that are not over.
    pub(super) fn standings(&self, now: Instant) -> Vec<QuotaStanding> {
        let all = QuotaKind::ALL.into_iter().zip(&self.0);
        let known = all.filter_map(|(kind, known)| Some((kind, (*known)?)));
        let valid = known.filter(|(_, quota)| quota.reset > now);
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

    fn known(fields: &[(&str, &str)], now: Instant) -> Quotas {
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
    fn headers_of_each_provider_are_told_apart() {
        use QuotaKind as Kind;
        for (name, expected) in [
            ("anthropic-ratelimit-requests-remaining", Some((Kind::Requests, Figure::Remaining))),
            ("anthropic-ratelimit-input-tokens-reset", Some((Kind::InputTokens, Figure::Reset))),
            ("anthropic-ratelimit-output-tokens-limit", Some((Kind::OutputTokens, Figure::Limit))),
            ("anthropic-ratelimit-unified-status", None),
            ("x-ratelimit-remaining-tokens", Some((Kind::Tokens, Figure::Remaining))),
            ("x-ratelimit-reset-requests", Some((Kind::Requests, Figure::Reset))),
            ("x-ratelimit-remaining-requests-day", Some((Kind::LongRequests, Figure::Remaining))),
            ("x-ratelimit-remaining-tokens-minute", Some((Kind::Tokens, Figure::Remaining))),
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
            let quotas = known(&[("x-ratelimit-remaining-requests", value)], now);
            assert!(!quotas.is_short(u64::MAX, now), "{value}");
        }
        let long = "0".repeat(VALUE_BYTES_MAX + 1);
        assert!(!known(&[("x-ratelimit-remaining-requests", &long)], now).is_short(1, now));
    }

    #[test]
    fn a_quota_is_short_until_its_reset() {
        let now = Instant::now();
        let quotas = known(
            &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "2s")],
            now,
        );
        assert!(quotas.is_short(1, now) && quotas.is_short(1, now + Duration::from_millis(1900)));
        assert!(!quotas.is_short(1, now + Duration::from_millis(2100)));
        let unsaid = known(&[("x-ratelimit-remaining-requests", "0")], now);
        assert!(unsaid.is_short(1, now) && !unsaid.is_short(1, now + RESET_UNSAID));
    }

    #[test]
    fn tokens_have_to_last_for_the_prompt() {
        let now = Instant::now();
        let fields = [
            ("anthropic-ratelimit-input-tokens-limit", "1000"),
            ("anthropic-ratelimit-input-tokens-remaining", "300"),
            ("anthropic-ratelimit-input-tokens-reset", "2099-01-01T00:00:00Z"),
        ];
        let mut quotas = known(&fields, now);
        assert!(!quotas.is_short(300, now) && quotas.is_short(301, now));
        // Calls under way take theirs before any of their answers says so.
        quotas.spend(200);
        assert!(!quotas.is_short(100, now) && quotas.is_short(101, now));
        quotas.take(&report(&fields), now);
        assert!(!quotas.is_short(300, now), "the provider knows better");
        let mut full = fields;
        full[1].1 = "1000";
        assert!(!known(&full, now).is_short(5000, now), "it never fits better than now");
    }
}
