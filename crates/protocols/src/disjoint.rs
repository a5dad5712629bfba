//! Counts of tokens as upstreams report them, made disjoint: what of a prompt a cache has read or
//! written, what is sound or a picture, and what was put out.
//!
//! OpenAI's and Google's totals include their parts; Anthropic's exclude them, and resellers write either
//! in the shape of the other. Numbers that contradict each other are read the dearer possible way, and
//! never past what is reported. docs/billing-conformance.md has the rules.

use std::fmt;
use std::sync::LazyLock;

use memchr::memmem;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tollgate_money::price::{CacheWrites, Unit, Usage};

use super::json::{Object, Value};
use super::json_cursor::Cursor;

/// Finds the marks of what is written to a cache.
pub(super) static CACHE_CONTROL: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(b"\"cache_control\""));

/// Integers up to here are exact when they are written as floats.
const EXACT_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reason why a report cannot be true as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// A cache has read or written more than the prompt has.
    CacheAbovePrompt,
    /// The writes of each lifetime come to more than all writes.
    SplitAboveWrites,
    /// There is more sound, video or pictures than there are tokens.
    MediaAboveTotal,
    /// There is more reasoning than output, and the total has none beside it.
    ReasoningAboveOutput,
    /// The total is less than its parts.
    TotalBelowParts,
    /// A count has two names, and a value for each.
    TwoValues,
    /// A count is negative, a fraction, or no number.
    NoCount,
}

impl Contradiction {
    /// Every way in which counts contradict each other.
    pub const ALL: [Self; 7] = [
        Self::CacheAbovePrompt,
        Self::SplitAboveWrites,
        Self::MediaAboveTotal,
        Self::ReasoningAboveOutput,
        Self::TotalBelowParts,
        Self::TwoValues,
        Self::NoCount,
    ];

    /// The word for it in metrics and the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheAbovePrompt => "cache_above_prompt",
            Self::SplitAboveWrites => "split_above_writes",
            Self::MediaAboveTotal => "media_above_total",
            Self::ReasoningAboveOutput => "reasoning_above_output",
            Self::TotalBelowParts => "total_below_parts",
            Self::TwoValues => "two_values",
            Self::NoCount => "no_count",
        }
    }
}

/// The contradictions of a report, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contradictions(u8);

impl Contradictions {
    /// Adds the contradiction `which` if `is_there`.
    pub(super) fn note(&mut self, which: Contradiction, is_there: bool) {
        self.0 |= u8::from(is_there) << (which as u8);
    }

    /// Adds the contradictions of another report.
    #[must_use]
    pub(super) fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Iterates over the contradictions.
    pub fn iter(self) -> impl Iterator<Item = Contradiction> {
        Contradiction::ALL.into_iter().filter(move |which| self.0 & (1 << (*which as u8)) != 0)
    }

    /// True if there are no contradictions.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Reads a count, also one that is written as a float or as a string. What is no count is not there, and
/// the rest of the usage counts all the same.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(CountVisitor)
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count")
    }

    fn visit_u64<E>(self, count: u64) -> Result<Self::Value, E> {
        Ok(Some(count))
    }

    fn visit_i64<E>(self, count: i64) -> Result<Self::Value, E> {
        Ok(u64::try_from(count).ok())
    }

    fn visit_f64<E>(self, count: f64) -> Result<Self::Value, E> {
        let is_count = count.fract() == 0.0 && (0.0..=EXACT_FLOAT_MAX).contains(&count);
        Ok(is_count.then(|| format!("{count:.0}")).and_then(|count| count.parse().ok()))
    }

    fn visit_str<E>(self, count: &str) -> Result<Self::Value, E> {
        Ok(count.parse().ok())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// One count under all names that a report has for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedCount {
    least: Option<u64>,
    most: u64,
}

impl NamedCount {
    /// Counts from the values of their names, in order; `None` for missing ones.
    pub(super) fn from_values(values: &[Option<u64>]) -> Self {
        let there = || values.iter().copied().flatten();
        Self { least: there().min(), most: there().max().unwrap_or(0) }
    }

    /// True if the count is present under any name.
    pub(super) fn is_there(self) -> bool {
        self.least.is_some()
    }

    fn has_two_values(self) -> bool {
        self.least.is_some_and(|least| least != self.most)
    }
}

/// The writes to a cache of one lifetime each, where a report has them apart.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireLifetimes {
    #[serde(deserialize_with = "count")]
    ephemeral_5m_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    ephemeral_1h_input_tokens: Option<u64>,
}

/// The keys of [`WireLifetimes`].
pub(super) const LIFETIMES: [&str; 2] = ["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"];

impl WireLifetimes {
    /// Cache writes from two counts; `None` if both are missing.
    pub(super) fn plain(short: Option<u64>, hour: Option<u64>) -> Option<Self> {
        let (ephemeral_5m_input_tokens, ephemeral_1h_input_tokens) = (short, hour);
        let is_there = short.is_some() || hour.is_some();
        is_there.then_some(Self { ephemeral_5m_input_tokens, ephemeral_1h_input_tokens })
    }
}

/// Tokens written to a cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheWritten {
    /// Tokens written in all, whatever their lifetime.
    pub(super) total: NamedCount,
    /// Tokens kept for five minutes.
    pub(super) short: u64,
    /// Tokens kept for an hour.
    pub(super) hour: u64,
    /// Tokens kept for twelve hours.
    pub(super) twelve_hours: u64,
}

impl CacheWritten {
    /// A total, and the lifetimes wherever a report may have them: each counts once.
    pub(super) fn new(total: NamedCount, lifetimes: &[Option<WireLifetimes>]) -> Self {
        let each = || lifetimes.iter().flatten();
        let short = each().filter_map(|split| split.ephemeral_5m_input_tokens).max().unwrap_or(0);
        let hour = each().filter_map(|split| split.ephemeral_1h_input_tokens).max().unwrap_or(0);
        Self { total, short, hour, twelve_hours: 0 }
    }

    /// True if a report has any of these counts.
    pub(super) fn is_there(&self) -> bool {
        self.total.is_there() || self.sum() > 0
    }

    fn split(&self) -> u64 {
        self.short.saturating_add(self.hour).saturating_add(self.twelve_hours)
    }

    fn sum(&self) -> u64 {
        self.total.most.max(self.split())
    }

    /// Adds it to a usage. What has no lifetime is billed as `unsplit`.
    pub(super) fn add_to(
        &self,
        usage: &mut Usage,
        unsplit: Unit,
        contradictions: &mut Contradictions,
    ) {
        let is_above = self.total.is_there() && self.split() > self.total.most;
        contradictions.note(Contradiction::SplitAboveWrites, is_above);
        contradictions.note(Contradiction::TwoValues, self.total.has_two_values());
        usage.cache_write_tokens = self.short;
        usage.cache_write_1h_tokens = self.hour;
        usage.cache_write_12h_tokens = self.twelve_hours;
        usage[unsplit] = usage[unsplit].saturating_add(self.sum().saturating_sub(self.split()));
    }
}

/// A report whose totals have their parts in them, as OpenAI and Google count.
#[derive(Clone, Copy, Debug)]
pub(super) struct InclusiveCounts {
    /// Tokens of the prompt, with those that a cache has read.
    pub(super) prompt: Option<u64>,
    /// Input counted in addition to the prompt, such as text that tools have read.
    pub(super) beside_prompt: u64,
    /// Prompt tokens read from a cache.
    pub(super) read: NamedCount,
    /// Prompt tokens written to a cache.
    pub(super) written: CacheWritten,
    /// Audio tokens of the input.
    pub(super) audio_input: u64,
    /// Image tokens of the input.
    pub(super) image_input: u64,
    /// Video tokens of the input.
    pub(super) video_input: u64,
    /// Tokens of the output, with those of media and reasoning.
    pub(super) output: u64,
    /// Reasoning tokens: part of the output, or in addition to it if they exceed it.
    pub(super) reasoning: u64,
    /// Audio tokens of the output.
    pub(super) audio_output: u64,
    /// Image tokens of the output.
    pub(super) image_output: u64,
    /// Input and output together.
    pub(super) total: Option<u64>,
    /// The unit of cache writes without a lifetime.
    pub(super) unsplit: Unit,
}

impl InclusiveCounts {
    /// An empty report.
    pub(super) fn new(unsplit: Unit) -> Self {
        Self {
            prompt: None,
            beside_prompt: 0,
            read: NamedCount::default(),
            written: CacheWritten::default(),
            audio_input: 0,
            image_input: 0,
            video_input: 0,
            output: 0,
            reasoning: 0,
            audio_output: 0,
            image_output: 0,
            total: None,
            unsplit,
        }
    }

    /// The usage in disjoint kinds.
    pub(super) fn disjoint(&self) -> (Usage, Contradictions) {
        let mut usage = Usage::ZERO;
        let mut found = Contradictions::default();
        self.written.add_to(&mut usage, self.unsplit, &mut found);
        found.note(Contradiction::TwoValues, self.read.has_two_values());
        let all = self.filled();
        let prompt = all.prompt.unwrap_or(0);
        let (cached, excess) = (all.cached(prompt), all.excess(prompt));
        found.note(Contradiction::CacheAbovePrompt, cached.is_above);
        let rest = prompt.saturating_sub(cached.inside).saturating_add(all.beside_prompt);
        let media = [all.audio_input, all.image_input, all.video_input];
        let whole = prompt.saturating_add(all.beside_prompt);
        let input = MediaSplit::new(rest, whole, media);
        // What of the total is input that its prompt leaves out is no output. Without a count of the
        // output nothing says that the total has cached tokens that do not fit the prompt: it is
        // dearer if it has not.
        let is_unknown = all.output == 0 && cached.is_above;
        let cached_in_total = if is_unknown { 0 } else { cached.beside };
        let hidden = excess.saturating_sub(cached_in_total).saturating_sub(input.beside);
        let beside = if all.reasoning > all.output { all.reasoning } else { 0 };
        let output = all.output.saturating_add(beside.max(hidden));
        let output = MediaSplit::new(output, output, [all.audio_output, all.image_output]);
        found.note(Contradiction::MediaAboveTotal, input.beside > 0 || output.beside > 0);
        if let Some(total) = all.total.filter(|total| *total > 0) {
            let parts = prompt.saturating_add(all.beside_prompt).saturating_add(all.output);
            found.note(Contradiction::TotalBelowParts, total < parts);
            found.note(Contradiction::ReasoningAboveOutput, total >= parts && beside > excess);
        }
        let ([audio_input, image_input, video_input], [audio_output, image_output]) =
            (input.media, output.media);
        let usage = Usage {
            input_tokens: input.rest,
            audio_input_tokens: audio_input,
            image_input_tokens: image_input,
            video_input_tokens: video_input,
            cache_read_tokens: cached.read,
            output_tokens: output.rest,
            audio_output_tokens: audio_output,
            image_output_tokens: image_output,
            ..usage
        };
        (usage, found)
    }

    /// Derives a missing prompt or output count from the total.
    fn filled(&self) -> Self {
        let has_input = self.prompt.unwrap_or(0) > 0
            || self.beside_prompt > 0
            || self.read.most > 0
            || self.written.sum() > 0;
        let total = self.total.unwrap_or(0);
        let beside = if self.reasoning > self.output { self.reasoning } else { 0 };
        let output = self.output.saturating_add(beside);
        match (has_input, total.checked_sub(output)) {
            (false, Some(prompt)) if output > 0 => Self { prompt: Some(prompt), ..*self },
            // No prompt is empty: all else can be output, which costs most.
            (false, Some(tokens)) if tokens > 0 => {
                Self { prompt: Some(1), output: tokens - 1, ..*self }
            }
            _ => *self,
        }
    }

    /// Tokens of the total beyond prompt and output.
    fn excess(&self, prompt: u64) -> u64 {
        let parts = prompt.saturating_add(self.beside_prompt).saturating_add(self.output);
        self.total.unwrap_or(0).saturating_sub(parts)
    }

    /// Places the cached tokens: within the prompt unless they do not fit, or the total shows that they are
    /// beside it.
    fn cached(&self, prompt: u64) -> CachedCounts {
        let (read, written) = (self.read.least.unwrap_or(0), self.written.sum());
        // The least that was read is the dearest within the prompt, the most beside it.
        let most = self.read.most;
        let excess = self.excess(prompt);
        let is_beside = |tokens: u64| {
            tokens > 0
                && excess != self.reasoning
                && (excess == tokens || excess == tokens.saturating_add(self.reasoning))
        };
        let both = most.saturating_add(written);
        if is_beside(both) {
            return CachedCounts { read: most, inside: 0, beside: both, is_above: false };
        }
        if is_beside(most) && written <= prompt {
            return CachedCounts { read: most, inside: written, beside: most, is_above: false };
        }
        if is_beside(written) && read <= prompt {
            return CachedCounts { read, inside: read, beside: written, is_above: false };
        }
        if both > prompt {
            return CachedCounts { read: most, inside: 0, beside: both, is_above: true };
        }
        CachedCounts { read, inside: read.saturating_add(written), beside: 0, is_above: false }
    }
}

/// Cache reads and writes, and their place.
struct CachedCounts {
    read: u64,
    /// Cached tokens that are part of the prompt.
    inside: u64,
    /// Cached tokens in addition to the prompt.
    beside: u64,
    /// True if they are beside the prompt because they exceed it.
    is_above: bool,
}

/// Tokens of which some are sound, pictures and video.
struct MediaSplit<const KINDS: usize> {
    rest: u64,
    media: [u64; KINDS],
    /// Media tokens in addition to the text tokens, since they exceed them.
    beside: u64,
}

impl<const KINDS: usize> MediaSplit<KINDS> {
    /// Subtracts `media` from the uncached `tokens`. If they fit only into `all` tokens, the rest is cached.
    fn new(tokens: u64, all: u64, mut media: [u64; KINDS]) -> Self {
        let sum = media.iter().copied().fold(0, u64::saturating_add);
        if sum > all {
            return Self { rest: tokens, media, beside: sum };
        }
        let mut rest = tokens;
        for kind in &mut media {
            *kind = (*kind).min(rest);
            rest -= *kind;
        }
        Self { rest, media, beside: 0 }
    }
}

/// Cache lifetime that a request asks for, by the values behind a key such as `cache_control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestedLifetime {
    /// Nothing is marked for a cache.
    None,
    /// For the usual time, which five minutes are.
    Short,
    /// Kept for an hour, or for an unknown time.
    Long,
}

impl RequestedLifetime {
    /// The longest that any object behind `key`, with its quotes, asks for, wherever it stands in the
    /// body. Text in which the key stands has a backslash before its quotes.
    pub(super) fn in_body(body: &Object<'_>, key: &memmem::Finder<'_>) -> Self {
        let text = body.text();
        // Only who hides something writes the letters of a key as escapes.
        if body.has_escaped_keys() && has_escaped_ascii(text) {
            return Self::Long;
        }
        let length = key.needle().len();
        // A string of media is no key, however long it is.
        let found = body.around_media().flat_map(|part| {
            let start = part.start;
            key.find_iter(text.get(part).unwrap_or_default()).map(move |at| start + at + length)
        });
        let behind = found.filter_map(|at| text.get(at..));
        behind.map(Self::behind_key).max().unwrap_or(Self::None)
    }

    /// The lifetime of what stands behind a key.
    fn behind_key(rest: &[u8]) -> Self {
        let Some(value) = rest.trim_ascii_start().strip_prefix(b":") else { return Self::None };
        let value = value.trim_ascii_start();
        if value.first() != Some(&b'{') {
            return Self::None;
        }
        let mut longest = Self::Short;
        // It was parsed before: it is an object that ends.
        let _is_whole = Cursor::new(value).object(|key, value| {
            if key == b"ttl" {
                longest = longest.max(Self::from_ttl(value.raw()?));
            } else {
                value.skip()?;
            }
            Some(())
        });
        longest
    }

    fn from_ttl(ttl: &[u8]) -> Self {
        let is_short =
            ttl == b"null" || Value::new(ttl).as_str().is_some_and(|lifetime| lifetime == "5m");
        if is_short { Self::Short } else { Self::Long }
    }

    /// Units in which the prompt's cache writes can be billed, where only marked parts are written. Fields
    /// that the operator lets through may be marks as well.
    pub(super) fn cache_writes(self, has_passed: bool) -> CacheWrites {
        match self {
            _ if has_passed => CacheWrites::Any,
            Self::None => CacheWrites::None,
            Self::Short => CacheWrites::Short,
            Self::Long => CacheWrites::Any,
        }
    }

    /// The unit of cache writes of which a report does not say how long they are kept.
    pub(super) fn unsplit(self) -> Unit {
        match self {
            Self::None | Self::Short => Unit::CacheWriteTokens,
            Self::Long => Unit::CacheWrite1hTokens,
        }
    }
}

/// True if a letter, digit or mark of ASCII is written as an escape.
fn has_escaped_ascii(text: &[u8]) -> bool {
    memmem::find_iter(text, br"\u00").any(|at| matches!(text.get(at + 4), Some(b'2'..=b'7')))
}

#[cfg(test)]
mod tests;
