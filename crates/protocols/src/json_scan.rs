//! Finds the top-level `usage` (`usageMetadata`), `meta`, `service_tier`, `error` and `base_resp` of a
//! JSON response while it streams past, holding nothing else, counts the objects in `data` or `results`,
//! and sees whether one of its `choices` has failed.
//!
//! An embeddings response can be tens of megabytes of numbers, and `usage` stands behind them.

use super::base_resp;
use super::json::{self, SkipTable};

mod strings;

use strings::{CutString, StartOfText, StringRole};

/// The longest `usage` or `meta` that is kept. Real ones are below 1 KiB.
const USAGE_BYTES_MAX: usize = 64 * 1024;
/// Number of bytes kept of an `error`: enough to distinguish it from `null`.
const ERROR_BYTES_MAX: usize = 8;
/// The longest reason to end that is kept, with its quotes.
const END_BYTES_MAX: usize = 32;
/// The longest name of a tier that is kept, with its quotes.
const TIER_BYTES_MAX: usize = 16;
/// Objects with one key twice are read as their first or their last by different parsers: so many are
/// kept.
const USAGES_MAX: usize = 4;
/// Depth of the members of a choice.
const CHOICE_DEPTH: u32 = 3;

/// Incremental reader of a JSON object that arrives in pieces.
#[derive(Debug, Default)]
pub struct UsageScan {
    depth: u32,
    /// At the top level, the next string is a key.
    key_next: bool,
    /// The string in which the last piece has ended, if it has ended in one.
    cut_string: Option<CutString>,
    /// The role of the top-level member whose key was read last, until its colon.
    named: Option<MemberRole>,
    captured: MemberRole,
    usage: Vec<u8>,
    /// Usages before the last.
    earlier_usages: Vec<Vec<u8>>,
    /// Each `meta` at the top level.
    metas: Vec<Vec<u8>>,
    error: StartOfText<ERROR_BYTES_MAX>,
    tier: StartOfText<TIER_BYTES_MAX>,
    base_resp: Vec<u8>,
    /// The last key or word among the members of a choice.
    word: ChoiceWord,
    has_failed_choice: bool,
    /// A choice ended at the requested output limit.
    has_long_choice: bool,
    /// The top-level reason for the end of the answer.
    end: StartOfText<END_BYTES_MAX>,
    data_items: u64,
    /// Bytes inside string values of the member that is being read, and what those before it have had.
    member_bytes: u64,
    text_bytes: u64,
    output_bytes: u64,
    started: bool,
    done: bool,
    broken: bool,
    /// Bytes of the pieces before the one that is read.
    fed_bytes: usize,
    /// Position of a list of which only numbers were read so far.
    numbers: Option<usize>,
    /// Lists of numbers that have ended.
    lists: SkipTable,
}

/// The top-level member that is being read, if it is one to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MemberRole {
    #[default]
    Other,
    Usage,
    Meta,
    Error,
    Tier,
    BaseResp,
    Data,
    Choices,
    Candidates,
    Output,
    End,
}

impl MemberRole {
    /// The role of the top-level member with this key.
    fn named(key: &[u8]) -> Self {
        match key {
            b"usage" | b"usageMetadata" => Self::Usage,
            b"meta" => Self::Meta,
            b"error" => Self::Error,
            b"service_tier" => Self::Tier,
            b"data" | b"results" => Self::Data,
            b"base_resp" => Self::BaseResp,
            b"choices" => Self::Choices,
            b"candidates" => Self::Candidates,
            b"content" | b"output" => Self::Output,
            b"stop_reason" | b"stopReason" | b"status" => Self::End,
            _ => Self::Other,
        }
    }
}

/// A key or a word among the members of a choice, as far as it tells a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChoiceWord {
    #[default]
    Other,
    Error,
    NetworkError,
    Length,
    FinishReason,
}

impl ChoiceWord {
    fn read(word: &[u8]) -> Self {
        match word {
            b"error" => Self::Error,
            b"network_error" => Self::NetworkError,
            b"length" | b"max_tokens" | b"MAX_TOKENS" => Self::Length,
            b"finish_reason" | b"finishReason" => Self::FinishReason,
            _ => Self::Other,
        }
    }
}

impl UsageScan {
    /// A scan that notes where so many lists of numbers end, for whoever reads the whole text afterwards.
    #[must_use]
    pub(crate) fn noting_lists(lists_max: usize) -> Self {
        Self { lists: SkipTable::for_lists(lists_max), ..Self::default() }
    }

    /// The lists of numbers that were read whole, by their positions in all that was fed.
    pub(crate) fn lists(&self) -> &SkipTable {
        &self.lists
    }

    /// Processes the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        // Where in `piece` the part of a captured value begins that is not kept yet.
        let mut from = 0;
        let mut at = match self.cut_string.take() {
            Some(string) => self.long_string(piece, 0, string) + 1,
            None => 0,
        };
        while let Some(&byte) = piece.get(at) {
            // Most of an answer is inside of members: that part is searched in wide steps, without a
            // look at commas.
            if self.depth > 1 {
                at = self.inside(piece, at);
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => {}
                b'"' => {
                    self.broken |= self.depth == 0;
                    at = self.string(piece, at + 1);
                }
                b'{' | b'[' => self.open(byte),
                b',' | b'}' | b']' if self.depth == 1 => {
                    self.capture(piece.get(from..at).unwrap_or_default());
                    self.end_member(byte);
                }
                b':' if self.depth == 1 => {
                    if let Some(named) = self.named.take() {
                        self.capture(piece.get(from..at).unwrap_or_default());
                        self.begin_member(named);
                        from = at + 1;
                    }
                }
                _ => self.broken |= self.depth == 0,
            }
            at += 1;
        }
        self.capture(piece.get(from..).unwrap_or_default());
        self.fed_bytes = self.fed_bytes.saturating_add(piece.len());
    }

    /// Scans the inside of a member from `at`; returns where the member or the piece ends. Commas and numbers
    /// are irrelevant there.
    #[inline(never)]
    fn inside(&mut self, piece: &[u8], at: usize) -> usize {
        // A list of numbers can be longer than a piece.
        let begin = if self.numbers.is_some() { json::numbers_end(piece, at) } else { at };
        let mut marks = json::marks(piece, begin);
        while let Some(at) = marks.next() {
            let list = self.numbers.take();
            match piece.get(at) {
                Some(b'"') => {
                    let role = self.role();
                    let is_string_mark = |at: &usize| matches!(piece.get(*at), Some(b'"' | b'\\'));
                    let near = std::iter::from_fn(|| marks.next_near()).find(is_string_mark);
                    let end = near.unwrap_or_else(|| {
                        // Long texts, such as vectors in base64, are searched for two bytes alone.
                        json::quote_or_backslash(piece, marks.searched_end())
                    });
                    if piece.get(end) == Some(&b'"') {
                        self.end_string(role, piece.get(at + 1..end).unwrap_or_default());
                        if near.is_none() {
                            marks.go_on(end + 1);
                        }
                    } else {
                        marks.go_on(self.long_string(piece, at + 1, CutString::new(role)) + 1);
                    }
                }
                Some(b'[') if begins_with_number(piece, at + 1) => {
                    self.open(b'[');
                    self.numbers = Some(self.fed_bytes + at);
                    marks.go_on(json::numbers_end(piece, at + 1));
                }
                Some(&open @ (b'{' | b'[')) => self.open(open),
                Some(&close @ (b'}' | b']')) => {
                    if let Some(start) = list.filter(|_| close == b']') {
                        self.lists.add(start, self.fed_bytes + at + 1);
                    }
                    self.depth -= 1;
                    if self.depth == 1 {
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        piece.len()
    }

    /// True if exactly one complete object was fed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done && !self.broken
    }

    /// The text of the last top-level `usage`, once the object is whole.
    #[must_use]
    pub fn usage(&self) -> Option<&[u8]> {
        let whole = self.is_complete() && self.usage.len() <= USAGE_BYTES_MAX;
        Some(self.usage.as_slice()).filter(|usage| whole && !usage.is_empty())
    }

    /// The texts of all top-level `usage`, once the object is whole.
    pub fn usages(&self) -> impl Iterator<Item = &[u8]> {
        let earlier = self.earlier_usages.iter().filter(|_| self.is_complete());
        earlier
            .map(Vec::as_slice)
            .filter(|usage| usage.len() <= USAGE_BYTES_MAX)
            .chain(self.usage())
    }

    /// The texts of all top-level `meta`, once the object is whole: where some report what was used.
    pub fn metas(&self) -> impl Iterator<Item = &[u8]> {
        let metas = self.metas.iter().filter(|_| self.is_complete()).map(Vec::as_slice);
        metas.filter(|meta| meta.len() <= USAGE_BYTES_MAX)
    }

    /// True if there is a top-level `error` that is not `null`.
    #[must_use]
    pub fn has_error(&self) -> bool {
        self.error.length > 0 && self.error.text() != b"null"
    }

    /// True if the answer reports its own failure: by `error`, by MiniMax's `base_resp`, or by the `error` or
    /// `finish_reason` of a choice, as OpenRouter and Zhipu do.
    #[must_use]
    pub fn says_it_failed(&self) -> bool {
        self.has_error() || self.has_failed_choice || base_resp::has_failed(&self.base_resp)
    }

    /// True if the answer ended at the requested maximum of output, or at the end of the context.
    #[must_use]
    pub fn ended_at_limit(&self) -> bool {
        let is_limit = |end: &[u8]| {
            matches!(
                end,
                b"\"max_tokens\"" | b"\"model_context_window_exceeded\"" | b"\"incomplete\""
            )
        };
        self.has_long_choice || is_limit(self.end.text())
    }

    /// True if a `usage` was too long to be kept.
    #[must_use]
    pub fn has_unread_usage(&self) -> bool {
        self.usage.len() > USAGE_BYTES_MAX
    }

    /// True if there is an `error`, and no object in `data` or `results` beside it.
    #[must_use]
    pub fn has_only_error(&self) -> bool {
        self.has_error() && self.data_items == 0
    }

    /// The top-level `service_tier` as it is written, with its quotes.
    #[must_use]
    pub fn service_tier(&self) -> Option<&[u8]> {
        Some(self.tier.text()).filter(|tier| !tier.is_empty())
    }

    /// Number of objects in the top-level `data`, or `results`, so far.
    #[must_use]
    pub fn data_items(&self) -> u64 {
        self.data_items
    }

    /// Number of bytes within string values, the basis of an output estimate.
    #[must_use]
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes + self.member_text().0
    }

    /// Bytes inside string values of what the answer is about: its `choices`, `content`, `output` or `candidates`.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.output_bytes + self.member_text().1
    }

    fn open(&mut self, bracket: u8) {
        self.broken |= self.done || (!self.started && bracket == b'[');
        self.started = true;
        let is_item = self.captured == MemberRole::Data && self.depth == 2;
        self.data_items += u64::from(is_item && bracket == b'{');
        // Only an object counts: `"error":null` stands in choices that are well.
        self.has_failed_choice |= self.captured == MemberRole::Choices
            && self.depth == CHOICE_DEPTH
            && bracket == b'{'
            && self.word == ChoiceWord::Error;
        self.depth += 1;
        self.key_next = self.depth == 1;
    }

    /// A value begins at the top level, behind its key and the colon.
    fn begin_member(&mut self, named: MemberRole) {
        self.count_text();
        self.captured = named;
        match named {
            // The last of several counts, as parsers read it.
            MemberRole::Tier => self.tier.length = 0,
            MemberRole::End => self.end.length = 0,
            MemberRole::Meta if self.metas.len() < USAGES_MAX => self.metas.push(Vec::new()),
            MemberRole::Meta => self.captured = MemberRole::Other,
            MemberRole::Usage => {
                let earlier = std::mem::take(&mut self.usage);
                // Parsers differ in which of several they take; the dearest of those kept is
                // charged.
                if !earlier.is_empty() && self.earlier_usages.len() < USAGES_MAX {
                    self.earlier_usages.push(earlier);
                }
            }
            _ => {}
        }
    }

    /// A value has ended at the top level, before a comma or the closing bracket.
    fn end_member(&mut self, byte: u8) {
        self.count_text();
        self.captured = MemberRole::Other;
        self.key_next = byte == b',';
        self.done = byte != b',';
        self.depth = u32::from(byte == b',');
    }

    /// The bytes inside string values of the member that is being read, as far as they are text, and as
    /// far as they are what the answer is about.
    fn member_text(&self) -> (u64, u64) {
        match self.captured {
            // Texts of reports and errors are no output, and must not look like a visible answer.
            MemberRole::Usage | MemberRole::Error | MemberRole::BaseResp => (0, 0),
            MemberRole::Choices | MemberRole::Candidates | MemberRole::Output => {
                (self.member_bytes, self.member_bytes)
            }
            MemberRole::Other
            | MemberRole::Meta
            | MemberRole::Tier
            | MemberRole::Data
            | MemberRole::End => (self.member_bytes, 0),
        }
    }

    fn count_text(&mut self) {
        let (text, output) = self.member_text();
        self.text_bytes += text;
        self.output_bytes += output;
        self.member_bytes = 0;
    }

    /// The role of the string that begins.
    fn role(&mut self) -> StringRole {
        match self.captured {
            _ if std::mem::take(&mut self.key_next) => StringRole::Key,
            MemberRole::Choices | MemberRole::Candidates if self.depth == CHOICE_DEPTH => {
                StringRole::Word
            }
            _ => StringRole::Text,
        }
    }

    /// Reads a string from `begin`, after its opening quote; returns the position of its closing quote, or
    /// the end of the piece.
    fn string(&mut self, piece: &[u8], begin: usize) -> usize {
        let role = self.role();
        let Some(end) = json::short_string_end(piece, begin) else {
            return self.long_string(piece, begin, CutString::new(role));
        };
        self.end_string(role, piece.get(begin..end).unwrap_or_default());
        end
    }

    /// Reads a string that may have begun in an earlier piece.
    #[inline(never)]
    fn long_string(&mut self, piece: &[u8], begin: usize, mut string: CutString) -> usize {
        let mut marks = json::string_marks(piece, begin);
        // Where the text goes on behind an escape: what is before it has no meaning of its own.
        let mut from = begin + usize::from(string.ends_escaping);
        let mut bytes = 0;
        let end = loop {
            let Some(at) = marks.next() else { break piece.len() };
            if at < from {
                continue;
            }
            bytes += at - from;
            from = at + 2;
            if piece.get(at) == Some(&b'"') {
                break at;
            }
        };
        string.start.add(piece.get(begin..end).unwrap_or_default());
        if end == piece.len() {
            self.count_string(string.role, bytes + end.saturating_sub(from));
            // The piece ends behind a backslash: the first letter of the next piece belongs to the
            // escape.
            string.ends_escaping = from > end;
            self.cut_string = Some(string);
        } else {
            self.count_string(string.role, bytes);
            self.use_string(string.role, string.start.text());
        }
        end
    }

    /// Reads a string of which no byte has a meaning of its own.
    #[inline(always)]
    fn end_string(&mut self, role: StringRole, text: &[u8]) {
        self.count_string(role, text.len());
        self.use_string(role, text);
    }

    /// Bytes of strings are text, unless they are of keys at the top level.
    fn count_string(&mut self, role: StringRole, bytes: usize) {
        let is_text = !matches!(role, StringRole::Key);
        self.member_bytes += if is_text { bytes as u64 } else { 0 };
    }

    /// Compares a string, or as much as is compared of it.
    #[inline(always)]
    fn use_string(&mut self, role: StringRole, text: &[u8]) {
        match role {
            StringRole::Text => {}
            StringRole::Key => self.named = Some(MemberRole::named(text)),
            StringRole::Word => {
                let word = ChoiceWord::read(text);
                if self.word == ChoiceWord::FinishReason {
                    self.has_failed_choice |=
                        matches!(word, ChoiceWord::Error | ChoiceWord::NetworkError);
                    self.has_long_choice |= word == ChoiceWord::Length;
                }
                self.word = word;
            }
        }
    }

    /// Keeps `bytes` if they belong to what is kept.
    #[inline(always)]
    fn capture(&mut self, bytes: &[u8]) {
        use MemberRole::{Candidates, Choices, Data, Other, Output};
        if !matches!(self.captured, Other | Data | Choices | Candidates | Output) {
            self.keep_captured(bytes);
        }
    }

    fn keep_captured(&mut self, bytes: &[u8]) {
        match self.captured {
            MemberRole::Usage => keep(&mut self.usage, bytes),
            MemberRole::Meta => {
                if let Some(meta) = self.metas.last_mut() {
                    keep(meta, bytes);
                }
            }
            MemberRole::Error => self.error.add_dense(bytes),
            MemberRole::Tier => self.tier.add_dense(bytes),
            MemberRole::End => self.end.add_dense(bytes),
            MemberRole::BaseResp => keep(&mut self.base_resp, bytes),
            MemberRole::Data
            | MemberRole::Choices
            | MemberRole::Candidates
            | MemberRole::Output
            | MemberRole::Other => {}
        }
    }
}

/// True if a number begins at this position, or behind white space there.
fn begins_with_number(piece: &[u8], at: usize) -> bool {
    let rest = piece.get(at..).unwrap_or_default();
    let first = rest.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_some_and(|first| matches!(first, b'-' | b'0'..=b'9'))
}

/// Keeps at most the limit plus one byte, which shows that the value was too long.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = (USAGE_BYTES_MAX + 1).saturating_sub(kept.len());
    kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
}

#[cfg(test)]
mod tests;
