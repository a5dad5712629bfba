//! Token counts without a tokenizer, for when an upstream reports none.
//!
//! Models differ in their tokenizers, so even the right one for one model is an estimate for the
//! next. This one errs to the operator's side: it goes by which character stands behind which, since
//! letters that rarely meet are no part of words that a vocabulary knows, and it was fitted so that
//! samples of every script and of dense text (code, base64, hexadecimal, digits) come out at what the
//! dearest of four public vocabularies makes of them, or a little above. ADR 0016 has the figures.
//! What is billed this way is always marked `usage_source: estimated` and never exceeds the hold.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::slice;
use std::sync::LazyLock;

use crate::json::DecodedText;
use weights::{Costs, PARTS};

mod weights;

/// Bytes per token of unexamined text, as in dense text.
const UNREAD_BYTES_PER_TOKEN: u64 = 2;

/// Prompts up to this length are measured whole: less than a microsecond.
const WHOLE_BYTES_MAX: usize = 256;
/// Longer ones are measured in as many places, of so many bytes each.
const PLACES: usize = 16;
const PLACE_BYTES: usize = WHOLE_BYTES_MAX / PLACES;
/// Raise of an estimate from samples, as one part in so many, for the text between them.
const PLACES_RESERVE: u64 = 8;
/// Seed of the samples' places. It is secret: otherwise dense text could be put between them.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Maximum ratio of an estimate to a real count: the estimate follows the dearest vocabulary, and samples
/// have a reserve. Measured 2.3 for English, 2.2 for code, 2.9 for Chinese in the newest vocabularies (see
/// the tests below).
const EXCESS_MAX: u64 = 3;

/// The fewest tokens that a text can come to which was estimated so.
#[must_use]
pub fn least(estimated: u64) -> u64 {
    estimated / EXCESS_MAX
}

/// Texts up to this length are measured whole where they are all that is read, and longer ones in some
/// places: far more than any model reads at once.
const READ_BYTES_MAX: usize = 1024 * 1024;

/// The tokens of a text that a model reads and answers with no text of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTokens {
    /// Upper bound over all tokenizers.
    pub most: u64,
    /// Approximate tokens. It errs upwards, and can exceed the maximum.
    pub about: u64,
}

impl ReadTokens {
    /// The tokens of a text.
    #[must_use]
    pub fn measure(text: &str) -> Self {
        let is_short = text.len() <= READ_BYTES_MAX;
        let measure = if is_short { TextSize::measure } else { TextSize::of_prompt };
        Self { most: tokens_max(text), about: measure(text.as_bytes()).tokens() }
    }

    /// These tokens, with the estimate limited to the upper bound.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self { about: self.about.min(self.most), ..self }
    }

    /// The tokens of two texts together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            most: self.most.saturating_add(more.most),
            about: self.about.saturating_add(more.about),
        }
    }
}

/// The most tokens that any tokenizer makes of a text: one for each byte, and more where a letter is
/// taken apart before it is read. Compatibility forms become several letters: NFKC, which XLM-RoBERTa's
/// and many other tokenizers of rankers begin with, makes 33 bytes of U+FDFA, and what any form makes of
/// others is at most three for each byte (the FAQ on normalization of unicode.org has the figures).
fn tokens_max(text: &str) -> u64 {
    if text.is_ascii() {
        return text.len() as u64;
    }
    text.chars().fold(0, |sum: u64, letter| sum.saturating_add(letter_tokens_max(letter)))
}

/// Maximum number of tokens of a character.
fn letter_tokens_max(letter: char) -> u64 {
    let bytes = letter.len_utf8() as u64;
    match letter {
        // Latin, Cyrillic, Armenian, Hebrew, Arabic, kana, ideographs, Hangul and pictures stay as long.
        '\0'..='\u{7f}'
        | '\u{c0}'..='\u{17f}'
        | '\u{400}'..='\u{674}'
        | '\u{3041}'..='\u{309a}'
        | '\u{30a1}'..='\u{30fe}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{1f300}'..='\u{1faff}' => bytes,
        '\u{fdfa}' => 33,
        '\u{fdfb}' => 15,
        _ => bytes * 3,
    }
}

/// The size of a text, as far as an estimate needs it. The sizes of two pieces add up to the size of
/// the whole, wherever between two characters it was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSize {
    /// Cost of all characters but the first, whose cost depends on the character before it.
    parts: u64,
    /// Alternative estimate from words and punctuation alone. Text of many symbols, such as code, has more
    /// tokens than the sum of its parts predicts.
    marks: u64,
    /// The classes of the first character and the last; [`weights::NONE`] for no text.
    first: u8,
    last: u8,
}

impl TextSize {
    /// Measures a text in UTF-8.
    #[must_use]
    #[inline]
    pub fn measure(text: &[u8]) -> Self {
        if text.first().is_none_or(u8::is_ascii) && text.is_ascii() {
            return Self::measure_ascii(text);
        }
        let mut bytes = text.iter();
        let (mut parts, mut marks, mut last) = (0, 0, weights::NONE);
        while let Some(&byte) = bytes.next() {
            let class = match weights::ascii_class(byte) {
                weights::NONE => {
                    let (class, own) = weights::character(byte, &mut bytes);
                    parts += u64::from(own);
                    class
                }
                class => class,
            };
            let costs = weights::behind(last, class);
            parts += costs.parts();
            marks += costs.marks();
            last = class;
        }
        let first = match text.first().map_or(weights::NONE, |byte| weights::ascii_class(*byte)) {
            weights::NONE if !text.is_empty() => Self::first_class(text.iter()),
            class => class,
        };
        Self { parts, marks, first, last }
    }

    /// Measures text of ASCII alone like [`Self::measure`]: each byte has a class.
    #[inline(never)]
    fn measure_ascii(text: &[u8]) -> Self {
        let (mut parts, mut marks, mut last) = (0, 0, weights::NONE);
        for piece in text.chunks(Costs::SUM_MAX) {
            let costs = ascii_costs(piece, &mut last);
            parts += costs.parts();
            marks += costs.marks();
        }
        let first = text.first().map_or(weights::NONE, |byte| weights::ascii_class(*byte));
        Self { parts, marks, first, last }
    }

    fn first_class(mut bytes: slice::Iter<'_, u8>) -> u8 {
        let Some(&byte) = bytes.next() else { return weights::NONE };
        weights::character(byte, &mut bytes).0
    }

    /// Measures a prompt, of which only some places are looked at when it is long.
    #[must_use]
    pub fn of_prompt(text: &[u8]) -> Self {
        if text.len() <= WHOLE_BYTES_MAX {
            return Self::measure(text);
        }
        let head = text.get(..PLACE_BYTES).unwrap_or_default();
        Self::from_samples(text.len(), head, |position| {
            let behind = text.get(position..).unwrap_or_default();
            match behind.first_chunk() {
                Some(place) if place.is_ascii() => (ascii_place_parts(place), PLACE_BYTES),
                _ => {
                    let is_inside = |byte: &u8| byte & 0xC0 == 0x80;
                    let first = behind.iter().position(|byte| !is_inside(byte)).unwrap_or(0);
                    let place = behind.get(first..).unwrap_or_default();
                    let place = place.get(..PLACE_BYTES).unwrap_or(place);
                    (Self::measure(place).begun(), place.len())
                }
            }
        })
    }

    /// Measures the text of a document. Of a long one, samples at fixed positions of the decoded text are
    /// examined, independent of its escapes.
    #[must_use]
    pub(crate) fn from_document(document: &DecodedText<'_>) -> Self {
        if let Some(text) = document.as_written() {
            return Self::of_prompt(text);
        }
        let bytes = document.bytes();
        let mut whole = [0; WHOLE_BYTES_MAX];
        if bytes <= WHOLE_BYTES_MAX {
            let copied = document.copy(0, &mut whole);
            return Self::measure(whole.get(..copied).unwrap_or_default());
        }
        let mut place = [0; PLACE_BYTES];
        let copied = document.copy(0, &mut place);
        let head = place;
        Self::from_samples(bytes, head.get(..copied).unwrap_or_default(), |position| {
            let copied = document.copy(position, &mut place);
            if copied == PLACE_BYTES && place.is_ascii() {
                return (ascii_place_parts(&place), PLACE_BYTES);
            }
            let place = place.get(..copied).unwrap_or_default();
            (Self::measure(place).begun(), place.len())
        })
    }

    /// Measures a text by some places. `place` says what the one at a position costs, and its bytes.
    fn from_samples(
        text_bytes: usize,
        head: &[u8],
        mut place: impl FnMut(usize) -> (u64, usize),
    ) -> Self {
        let (mut parts, mut bytes) = (0_u64, 0_u64);
        let mut random = secret_hash(text_bytes, head);
        // One place in each stretch of the text.
        let stretch_bytes = text_bytes / PLACES;
        let choices = stretch_bytes.saturating_sub(PLACE_BYTES) as u64 + 1;
        for stretch in 0..PLACES {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let choice = usize::try_from((random >> 32).wrapping_mul(choices) >> 32).unwrap_or(0);
            let (place_parts, place_bytes) = place(stretch * stretch_bytes + choice);
            parts += place_parts;
            bytes += place_bytes as u64;
        }
        let scaled = u128::from(parts) * text_bytes as u128 / u128::from(bytes.max(1));
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        let parts = scaled.saturating_add(scaled / PLACES_RESERVE);
        Self { parts, marks: 0, first: weights::OTHER, last: weights::OTHER }
    }

    /// A text of which only the number of bytes is known.
    #[must_use]
    pub fn unread(bytes: u64) -> Self {
        if bytes == 0 {
            return Self::default();
        }
        let parts = bytes.saturating_mul(PARTS / UNREAD_BYTES_PER_TOKEN);
        Self { parts, marks: 0, first: weights::OTHER, last: weights::OTHER }
    }

    /// Adds the text that follows.
    pub fn add(&mut self, more: Self) {
        if more.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = more;
            return;
        }
        let seam = weights::behind(self.last, more.first);
        self.parts = self.parts.saturating_add(more.parts).saturating_add(seam.parts());
        self.marks = self.marks.saturating_add(more.marks).saturating_add(seam.marks());
        self.last = more.last;
    }

    /// True for no text.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.first == weights::NONE
    }

    /// The estimated number of tokens, rounded up.
    #[must_use]
    pub fn tokens(self) -> u64 {
        self.begun().div_ceil(PARTS)
    }

    /// Cost of all characters, the first as if behind a space.
    fn begun(self) -> u64 {
        let begin = weights::behind(weights::SPACE, self.first);
        let parts = self.parts.saturating_add(begin.parts());
        parts.max(self.marks.saturating_add(begin.marks()))
    }
}

/// Unpredictable hash of a prompt that is longer than one sample.
fn secret_hash(bytes: usize, head: &[u8]) -> u64 {
    let mut hasher = SECRET.build_hasher();
    hasher.write_usize(bytes);
    hasher.write(head);
    hasher.finish()
}

/// Cost of a sample of ASCII, begun like [`TextSize::begun`]: the first character counts as if behind a
/// space.
#[inline(never)]
fn ascii_place_parts(place: &[u8; PLACE_BYTES]) -> u64 {
    let costs = ascii_costs(place, &mut { weights::SPACE });
    costs.parts().max(costs.marks())
}

/// Costs of ASCII text behind a character of class `last`, which becomes the class of the text's last one; at
/// most [`Costs::SUM_MAX`] bytes.
#[inline(always)]
fn ascii_costs(text: &[u8], last: &mut u8) -> Costs {
    let mut costs = Costs::NONE;
    for &byte in text {
        let class = weights::ascii_class(byte);
        costs = costs.plus(weights::behind(*last, class));
        *last = class;
    }
    costs
}

#[cfg(test)]
mod tests;
