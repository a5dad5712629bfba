//! Finds the top-level `usage` (`usageMetadata`), `meta`, `service_tier`, `error` and `base_resp` of a
//! JSON response while it streams past, holding nothing else, counts the objects in `data` or `results`,
//! and sees whether one of its `choices` has failed.
//!
//! An embeddings response can be tens of megabytes of numbers, and `usage` stands behind them.

use super::{base_resp, json};

/// The longest `usage` or `meta` that is kept. Real ones are below 1 KiB.
const USAGE_BYTES_MAX: usize = 64 * 1024;
/// The bytes of an `error` that are kept: enough to tell it from `null`.
const ERROR_BYTES_MAX: usize = 8;
/// The longest name of a tier that is kept, with its quotes.
const TIER_BYTES_MAX: usize = 16;
/// Objects with one key twice are read as their first or their last by different parsers: so many are
/// kept.
const USAGES_MAX: usize = 4;
/// The longest top-level key that is compared.
const KEY_BYTES_MAX: usize = 32;
/// The longest key or word of a choice that is compared.
const WORD_BYTES_MAX: usize = 16;
/// How deep the members of a choice are.
const CHOICE_DEPTH: u32 = 3;

/// A reader of one JSON object that is fed in pieces.
#[derive(Debug, Default)]
pub struct UsageScan {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// At the top level, the next string is a key.
    key_next: bool,
    /// The key at the top level that was read last, until its colon.
    key: StartOfText<KEY_BYTES_MAX>,
    in_key: bool,
    captured: Captured,
    usage: Vec<u8>,
    /// Those that stood before it.
    earlier_usages: Vec<Vec<u8>>,
    /// Each top-level `meta`.
    metas: Vec<Vec<u8>>,
    error: StartOfText<ERROR_BYTES_MAX>,
    tier: StartOfText<TIER_BYTES_MAX>,
    base_resp: Vec<u8>,
    /// The last key or word among the members of a choice, and whether it says why the choice ended.
    word: StartOfText<WORD_BYTES_MAX>,
    in_word: bool,
    is_finish_reason: bool,
    has_failed_choice: bool,
    data_items: u64,
    text_bytes: u64,
    output_bytes: u64,
    started: bool,
    done: bool,
    broken: bool,
}

/// The beginning of a text: so many bytes at most.
#[derive(Debug)]
struct StartOfText<const BYTES_MAX: usize> {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl<const BYTES_MAX: usize> Default for StartOfText<BYTES_MAX> {
    fn default() -> Self {
        Self { bytes: [0; BYTES_MAX], length: 0 }
    }
}

impl<const BYTES_MAX: usize> StartOfText<BYTES_MAX> {
    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds what follows, as far as there is room for it.
    fn add(&mut self, text: impl IntoIterator<Item = u8>) {
        let room = self.bytes.iter_mut().skip(self.length);
        for (place, byte) in room.zip(text) {
            *place = byte;
            self.length += 1;
        }
    }
}

/// The top-level member that is being read, if it is one to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Captured {
    #[default]
    Nothing,
    Usage,
    Meta,
    Error,
    Tier,
    BaseResp,
    Data,
    Choices,
    Output,
}

impl UsageScan {
    /// Takes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        // Where in `piece` the part of a captured value begins that is not kept yet.
        let mut from = 0;
        let mut at = if self.in_string { self.string(piece, 0) } else { 0 };
        while let Some(&byte) = piece.get(at) {
            match byte {
                b'"' => {
                    self.broken |= self.depth == 0;
                    self.in_key = std::mem::take(&mut self.key_next);
                    self.in_word = self.depth == CHOICE_DEPTH && self.captured == Captured::Choices;
                    if self.in_word {
                        self.word.length = 0;
                    }
                    at = self.string(piece, at + 1);
                    continue;
                }
                b'{' | b'[' => self.open(byte),
                b',' | b'}' | b']' if self.depth == 1 => {
                    self.capture(piece.get(from..at).unwrap_or_default());
                    self.end_member(byte);
                }
                b'}' | b']' => {
                    self.broken |= self.depth == 0;
                    self.depth = self.depth.saturating_sub(1);
                }
                b':' if self.depth == 1 && self.key.length > 0 => {
                    self.capture(piece.get(from..at).unwrap_or_default());
                    self.begin_member();
                    from = at + 1;
                }
                // Far inside, neither commas nor numbers matter.
                _ if self.depth > 1 => {
                    at += 1;
                    if piece.get(at) != Some(&b'"') {
                        at = json::structure(piece, at);
                    }
                    continue;
                }
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => self.broken |= self.depth == 0,
            }
            at += 1;
        }
        self.capture(piece.get(from..).unwrap_or_default());
    }

    /// Whether exactly one whole object was fed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.done && !self.broken
    }

    /// The text of the last top-level `usage`, once the object is whole.
    #[must_use]
    pub fn usage(&self) -> Option<&[u8]> {
        let whole = self.is_whole() && self.usage.len() <= USAGE_BYTES_MAX;
        Some(self.usage.as_slice()).filter(|usage| whole && !usage.is_empty())
    }

    /// The texts of all top-level `usage`, once the object is whole.
    pub fn usages(&self) -> impl Iterator<Item = &[u8]> {
        let earlier = self.earlier_usages.iter().filter(|_| self.is_whole());
        earlier
            .map(Vec::as_slice)
            .filter(|usage| usage.len() <= USAGE_BYTES_MAX)
            .chain(self.usage())
    }

    /// The texts of all top-level `meta`, once the object is whole: where some report what was used.
    pub fn metas(&self) -> impl Iterator<Item = &[u8]> {
        let metas = self.metas.iter().filter(|_| self.is_whole()).map(Vec::as_slice);
        metas.filter(|meta| meta.len() <= USAGE_BYTES_MAX)
    }

    /// Whether there is a top-level `error` that is not `null`.
    #[must_use]
    pub fn has_error(&self) -> bool {
        self.error.length > 0 && self.error.text() != b"null"
    }

    /// Whether the answer says that there is none: by an `error`, by MiniMax's `base_resp`, or by the
    /// `error` or the `finish_reason` of a choice, as OpenRouter and Zhipu have it.
    #[must_use]
    pub fn says_it_failed(&self) -> bool {
        self.has_error() || self.has_failed_choice || base_resp::has_failed(&self.base_resp)
    }

    /// Whether there is an `error`, and no object in `data` or `results` beside it.
    #[must_use]
    pub fn has_only_error(&self) -> bool {
        self.has_error() && self.data_items == 0
    }

    /// The top-level `service_tier` as it is written, with its quotes.
    #[must_use]
    pub fn service_tier(&self) -> Option<&[u8]> {
        Some(self.tier.text()).filter(|tier| !tier.is_empty())
    }

    /// How many objects the top-level `data`, or `results`, has so far.
    #[must_use]
    pub fn data_items(&self) -> u64 {
        self.data_items
    }

    /// Bytes inside string values: what an estimate of the output goes by.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Bytes inside string values of what the answer is about: its `choices`, `content`, `output` or `candidates`.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    fn open(&mut self, bracket: u8) {
        self.broken |= self.done || (!self.started && bracket == b'[');
        self.started = true;
        let is_item = self.captured == Captured::Data && self.depth == 2;
        self.data_items += u64::from(is_item && bracket == b'{');
        self.has_failed_choice |= self.captured == Captured::Choices
            && self.depth == CHOICE_DEPTH
            && bracket == b'{'
            && self.word.text() == b"error";
        self.depth += 1;
        self.key_next = self.depth == 1;
    }

    /// A value begins at the top level, behind its key and the colon.
    fn begin_member(&mut self) {
        self.captured = match self.key.text() {
            b"usage" | b"usageMetadata" => Captured::Usage,
            b"meta" if self.metas.len() < USAGES_MAX => Captured::Meta,
            b"error" => Captured::Error,
            b"service_tier" => Captured::Tier,
            b"data" | b"results" => Captured::Data,
            b"base_resp" => Captured::BaseResp,
            b"choices" => Captured::Choices,
            b"candidates" | b"content" | b"output" => Captured::Output,
            _ => Captured::Nothing,
        };
        self.key.length = 0;
        if self.captured == Captured::Tier {
            self.tier.length = 0;
        }
        if self.captured == Captured::Meta {
            self.metas.push(Vec::new());
        }
        if self.captured == Captured::Usage {
            let earlier = std::mem::take(&mut self.usage);
            if !earlier.is_empty() && self.earlier_usages.len() < USAGES_MAX {
                self.earlier_usages.push(earlier);
            }
        }
    }

    /// A value has ended at the top level, before a comma or the closing bracket.
    fn end_member(&mut self, byte: u8) {
        self.captured = Captured::Nothing;
        self.key_next = byte == b',';
        self.done = byte != b',';
        self.depth = u32::from(byte == b',');
    }

    /// Reads a string from `begin` on, inside its quotes, and says where it or the piece ends.
    fn string(&mut self, piece: &[u8], begin: usize) -> usize {
        let mut at = begin + usize::from(std::mem::take(&mut self.escaped));
        let mut plain_bytes = 0;
        let end = loop {
            let end = json::plain_text_end(piece, at);
            plain_bytes += end.saturating_sub(at);
            match piece.get(end) {
                Some(b'"') => break end,
                Some(b'\\') => at = end + 2,
                Some(_) => at = end + 1,
                None => {
                    // The piece can end between a backslash and what it escapes.
                    self.escaped = at > piece.len();
                    break piece.len();
                }
            }
        };
        self.in_string = end == piece.len();
        if self.in_key {
            self.key.add(piece.get(begin..end).unwrap_or_default().iter().copied());
            self.in_key = self.in_string;
        } else if !matches!(self.captured, Captured::Usage | Captured::Error | Captured::BaseResp) {
            self.text_bytes += plain_bytes as u64;
            let is_output = matches!(self.captured, Captured::Choices | Captured::Output);
            self.output_bytes += if is_output { plain_bytes as u64 } else { 0 };
        }
        if self.in_word {
            self.word.add(piece.get(begin..end).unwrap_or_default().iter().copied());
            self.in_word = self.in_string;
            if !self.in_word {
                self.end_word();
            }
        }
        end + 1
    }

    /// A key or a word of a choice has ended.
    fn end_word(&mut self) {
        let is_failure = matches!(self.word.text(), b"error" | b"network_error");
        self.has_failed_choice |= self.is_finish_reason && is_failure;
        self.is_finish_reason = self.word.text() == b"finish_reason";
    }

    /// Keeps `bytes` if they belong to what is kept.
    fn capture(&mut self, bytes: &[u8]) {
        match self.captured {
            Captured::Usage => keep(&mut self.usage, bytes),
            Captured::Meta => {
                if let Some(meta) = self.metas.last_mut() {
                    keep(meta, bytes);
                }
            }
            Captured::Error => {
                self.error.add(bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()));
            }
            Captured::Tier => {
                self.tier.add(bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()));
            }
            Captured::BaseResp => keep(&mut self.base_resp, bytes),
            Captured::Data | Captured::Choices | Captured::Output | Captured::Nothing => {}
        }
    }
}

/// Keeps no more than the limit and a byte, so that the length tells that it was too long.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = (USAGE_BYTES_MAX + 1).saturating_sub(kept.len());
    kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
}

#[cfg(test)]
mod tests;
