//! Names of tools and ids of calls, within what each upstream takes.
//!
//! Providers refuse names and ids above a length or with other letters than theirs, and customers send
//! them: Codex joins a namespace to a name, Claude Code names tools after plugins, servers and tools,
//! gateways put tokens into ids. What does not fit gets an alias: a readable beginning and a hash of the
//! whole, the same in every request, so that caches of prompts find a conversation again. The names of
//! tools are restored in the answer.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::part::{AnswerFormat, AnswerPart, PromptPart, ToolChoice};

/// Separator of a namespace and a name until both are written as one: a control character, which no tool's
/// name contains.
const NAMESPACE_END: char = '\u{1f}';
/// The separator of namespace and name for upstreams without namespaces.
const NAMESPACE_END_WRITTEN: &str = "__";
/// Letters of the hash in the alias of a name: 41 bits. Two names of one request never share an alias
/// ([`Aliases::new`] looks), so it need not be longer.
const NAME_HASH_CHARS: usize = 8;
/// Letters of the hash in the alias of an id: all 64 bits, as results are matched by it.
const ID_HASH_CHARS: usize = 13;
/// Number of characters of an alias that come from the beginning of a long name. The others come from its
/// end, where MCP clients put the name of the tool.
const NAME_HEAD_CHARS: usize = 22;
/// The length of ids at Mistral, which takes no other.
const NINE: usize = 9;

/// The name of a tool within a namespace, as parts have it: [`Naming`] writes both as one,
/// `namespace__name`, or an alias where that is another tool's name.
#[must_use]
pub fn in_namespace(namespace: &str, name: &str) -> String {
    format!("{namespace}{NAMESPACE_END}{name}")
}

/// An id for the call at `place` of an answer whose upstream gives none. `answer` is a word that no other
/// answer has, so the id is that of one call in the whole conversation.
#[must_use]
pub fn call_id(answer: &str, place: usize) -> String {
    let word: String = answer.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("call_{}_{place}", word.get(word.len().saturating_sub(24)..).unwrap_or(&word))
}

/// A tool's name as a text for a model shows it: `namespace__name`.
pub(crate) fn shown(name: &str) -> String {
    name.replace(NAMESPACE_END, "__")
}

/// The names of tools and the ids of calls that an upstream takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Maximum length of a name, in characters.
    pub name_chars_max: usize,
    /// Names may have dots.
    pub takes_dots: bool,
    /// Names begin with a letter or an underscore.
    pub begins_with_letter: bool,
    /// The ids of calls.
    pub ids: IdNaming,
}

/// Format of tool call ids that an upstream accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallIds {
    /// Any: they stay as they are.
    #[default]
    Any,
    /// Nine letters and digits, as Mistral does: others are replaced by such, the same for the same id.
    Nine,
}

/// The ids of calls that an upstream takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdNaming {
    /// Any characters, up to so many bytes.
    Any(usize),
    /// ASCII letters, digits, `_` and `-`, up to so many.
    Word(usize),
    /// Nine ASCII letters and digits.
    Nine,
}

impl Naming {
    /// OpenAI's chat completions, and those who copied them: names of 64 letters
    /// (`^[a-zA-Z0-9_-]{1,64}$`) and ids of 40. Moonshot refuses names that begin with a digit
    /// (kimi-cli 2531).
    #[must_use]
    pub fn chat(ids: CallIds) -> Self {
        let ids = match ids {
            CallIds::Any => IdNaming::Any(40),
            CallIds::Nine => IdNaming::Nine,
        };
        Self { name_chars_max: 64, takes_dots: false, begins_with_letter: true, ids }
    }

    /// OpenAI's responses: `call_id` of 64 letters (9router 393). Which letters it takes beside those of
    /// `id` is a guess.
    pub const RESPONSES: Self = Self {
        name_chars_max: 64,
        takes_dots: false,
        begins_with_letter: false,
        ids: IdNaming::Word(64),
    };
    /// Anthropic's messages: names of `^[a-zA-Z0-9_-]{1,128}$`, ids of `^[a-zA-Z0-9_-]+$`. No length of
    /// ids is documented; its own have 30 letters.
    pub const MESSAGES: Self = Self { name_chars_max: 128, ..Self::RESPONSES };
    /// Bedrock's Converse API: `ToolSpecification.name` and `toolUseId` of `[a-zA-Z0-9_-]+`, of 64
    /// letters.
    pub const CONVERSE: Self = Self::RESPONSES;
    /// Gemini's `FunctionDeclaration.name`: 64 letters, with dots, the first a letter or an underscore
    /// (gemini-cli 2966). Newer endpoints take colons (gemini-cli 9535), Vertex AI does not. Ids are any.
    pub const GEMINI: Self = Self {
        name_chars_max: 64,
        takes_dots: true,
        begins_with_letter: true,
        ids: IdNaming::Any(64),
    };

    /// True if every name and id of the parts is accepted unchanged.
    #[must_use]
    pub fn fits(&self, parts: &[PromptPart<'_>]) -> bool {
        let mut calls = HashSet::new();
        parts.iter().all(|part| match part {
            PromptPart::Tool(tool) => self.takes_name(&tool.name),
            PromptPart::ToolChoice(ToolChoice::Named(name)) => self.takes_name(name),
            PromptPart::ToolCall(call) => {
                self.takes_name(&call.name)
                    && self.ids.takes(&call.id)
                    // An id of two calls fits nothing, however it is spelled: results would go to
                    // the wrong one.
                    && calls.insert(call.id.as_ref())
            }
            PromptPart::ToolResult(result) => self.ids.takes(&result.id),
            PromptPart::Format(AnswerFormat::Schema { name: Some(name), .. }) => {
                self.takes_name(name)
            }
            _ => true,
        })
    }

    /// The parts with aliases where they need some. A bridge has put them in by then, as it needs to
    /// know them for the answer.
    pub(crate) fn applied<'p, 'a>(&self, parts: &'p [PromptPart<'a>]) -> Cow<'p, [PromptPart<'a>]> {
        if self.fits(parts) {
            return Cow::Borrowed(parts);
        }
        let mut parts = parts.to_vec();
        self.apply(&mut parts);
        Cow::Owned(parts)
    }

    /// Replaces names and ids that the upstream does not accept by aliases, and separates ids that several
    /// calls share.
    pub fn apply(&self, parts: &mut [PromptPart<'_>]) -> Aliases {
        if self.fits(parts) {
            return Aliases::default();
        }
        let aliases = Aliases::new(self, parts);
        let mut ids = IdAliases { naming: self.ids, calls: HashMap::new(), taken: HashSet::new() };
        let rename = |name: &mut Cow<'_, str>| {
            if let Some(alias) = aliases.by_name.get(name.as_ref()) {
                *name = Cow::Owned(alias.clone());
            }
        };
        // Before the first alias: an id that is taken later in the conversation must not be given
        // away here.
        ids.reserve(parts);
        let mut turn = 0;
        for part in parts {
            match part {
                PromptPart::Turn(_) => turn += 1,
                PromptPart::Tool(tool) => rename(&mut tool.name),
                PromptPart::ToolChoice(ToolChoice::Named(name)) => rename(name),
                PromptPart::ToolCall(call) => {
                    rename(&mut call.name);
                    ids.call(&mut call.id, turn);
                }
                PromptPart::ToolResult(result) => ids.result(&mut result.id),
                PromptPart::Format(AnswerFormat::Schema { name: Some(name), .. })
                    if !self.takes_name(name) =>
                {
                    // It names nothing else, and no answer repeats it.
                    *name = Cow::Owned(self.alias(name, 0));
                }
                _ => {}
            }
        }
        aliases
    }

    fn takes_name(&self, name: &str) -> bool {
        let first = name.as_bytes().first();
        (1..=self.name_chars_max).contains(&name.len())
            && name.bytes().all(|byte| is_word(byte) || self.takes_dots && byte == b'.')
            && !(self.begins_with_letter
                && first.is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.')))
    }

    /// An acceptable name derived from `name` and the number of collisions so far.
    fn alias(&self, name: &str, salt: u64) -> String {
        let hash = hash_word(name, salt, NAME_HASH_CHARS);
        let mut readable = words(name, if self.takes_dots { "." } else { "" });
        if readable.is_empty() || self.begins_with_letter && !self.takes_name(&readable[..1]) {
            readable.insert_str(0, "tool_");
        }
        if readable.len() + 1 + hash.len() <= self.name_chars_max {
            return format!("{readable}_{hash}");
        }
        // All lengths are in ASCII here, so no letter is cut.
        let end = self.name_chars_max - NAME_HEAD_CHARS - hash.len() - 2;
        let (head, tail) = (&readable[..NAME_HEAD_CHARS], &readable[readable.len() - end..]);
        format!("{head}_{hash}_{tail}")
    }
}

impl IdNaming {
    fn takes(self, id: &str) -> bool {
        match self {
            Self::Any(max) => (1..=max).contains(&id.len()),
            Self::Word(max) => (1..=max).contains(&id.len()) && id.bytes().all(is_word),
            Self::Nine => id.len() == NINE && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        }
    }

    /// An id that is taken, by the id and how many calls had it before.
    fn alias(self, id: &str, earlier: u64) -> String {
        let max = match self {
            Self::Nine => return nine(id, earlier),
            Self::Any(max) | Self::Word(max) => max,
        };
        let mut readable = words(id, "");
        readable.truncate(max - ID_HASH_CHARS - 1);
        let readable = readable.trim_matches(['_', '-']);
        let readable = if readable.is_empty() { "call" } else { readable };
        format!("{readable}_{}", hash_word(id, earlier, ID_HASH_CHARS))
    }
}

/// The aliases of the tools of a request: what its answer needs to name them as the customer does. Empty
/// where every name is taken as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aliases {
    /// The aliases, by the names that customers know.
    by_name: HashMap<String, String>,
}

impl Aliases {
    fn new(naming: &Naming, parts: &[PromptPart<'_>]) -> Self {
        let names = || {
            parts.iter().filter_map(|part| match part {
                PromptPart::Tool(tool) => Some(tool.name.as_ref()),
                PromptPart::ToolChoice(ToolChoice::Named(name)) => Some(name.as_ref()),
                PromptPart::ToolCall(call) => Some(call.name.as_ref()),
                _ => None,
            })
        };
        // Names that are taken stay, wherever they stand: no alias may be one of them.
        let mut taken: HashSet<Cow<'_, str>> =
            names().filter(|name| naming.takes_name(name)).map(Cow::Borrowed).collect();
        let mut by_name: HashMap<String, String> = HashMap::new();
        for name in names().filter(|name| !naming.takes_name(name)) {
            if by_name.contains_key(name) {
                continue;
            }
            let joined = name.replace(NAMESPACE_END, NAMESPACE_END_WRITTEN);
            // A readable `namespace__name` is best for the model; a hash follows only where that is
            // taken.
            let plain = (joined != name && naming.takes_name(&joined)).then_some(joined);
            let hashed = (0..).map(|salt| naming.alias(name, salt));
            let mut all = plain.into_iter().chain(hashed);
            if let Some(alias) = all.find(|alias| !taken.contains(alias.as_str())) {
                taken.insert(Cow::Owned(alias.clone()));
                by_name.insert(name.to_owned(), alias);
            }
        }
        Self { by_name }
    }

    /// Restores the client's name of a tool in an answer part.
    #[must_use]
    pub fn restore<'a>(&self, piece: AnswerPart<'a>) -> AnswerPart<'a> {
        match piece {
            AnswerPart::ToolCall { id, name, seal } if !self.by_name.is_empty() => {
                // Few names of a request have aliases, so a second map for the way back does not
                // pay.
                let original = self.by_name.iter().find(|(_, alias)| **alias == name);
                let name = original.map_or(name, |(original, _)| Cow::Owned(original.clone()));
                AnswerPart::ToolCall { id, name, seal }
            }
            other => other,
        }
    }
}

/// The ids of the calls of a conversation, as they become others.
struct IdAliases {
    naming: IdNaming,
    /// The calls that customers gave an id, in order.
    calls: HashMap<String, Vec<AliasedCall>>,
    /// Ids that no alias may be.
    taken: HashSet<String>,
}

struct AliasedCall {
    id: String,
    turn: usize,
    has_result: bool,
}

impl IdAliases {
    /// Reserves acceptable ids, so that no alias equals them.
    fn reserve(&mut self, parts: &[PromptPart<'_>]) {
        for part in parts {
            if let PromptPart::ToolCall(call) = part
                && self.naming.takes(&call.id)
            {
                self.taken.insert(call.id.clone().into_owned());
            }
        }
    }

    fn call(&mut self, id: &mut Cow<'_, str>, turn: usize) {
        let earlier = self.calls.entry(id.clone().into_owned()).or_default();
        // The count is part of the alias, so later turns give the same calls the same ids again.
        let count = earlier.len() as u64;
        let written = if count == 0 && self.naming.takes(id) {
            id.clone().into_owned()
        } else {
            // An id of nine letters has 53 bits: that two become one is unlikely, and looked at.
            let mut all = (count..).map(|count| self.naming.alias(id, count));
            all.find(|alias| self.taken.insert(alias.clone())).unwrap_or_default()
        };
        earlier.push(AliasedCall { id: written.clone(), turn, has_result: false });
        if *id != written {
            *id = Cow::Owned(written);
        }
    }

    /// A result belongs to the latest turn that called by its id, and there to the first call without a
    /// result.
    fn result(&mut self, id: &mut Cow<'_, str>) {
        // No call has this id; the writer decides what becomes of such a result.
        let Some(calls) = self.calls.get_mut(id.as_ref()) else {
            if !self.naming.takes(id) {
                *id = Cow::Owned(self.naming.alias(id, 0));
            }
            return;
        };
        let turn = calls.iter().rev().find(|call| !call.has_result).map(|call| call.turn);
        let open = calls.iter().position(|call| !call.has_result && Some(call.turn) == turn);
        let place = open.unwrap_or(calls.len().saturating_sub(1));
        if let Some(call) = calls.get_mut(place) {
            call.has_result = true;
            if *id != call.id {
                *id = Cow::Owned(call.id.clone());
            }
        }
    }
}

/// A key of at most `bytes_max`: the text, or its beginning and a hash of the whole.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> Cow<'_, str> {
    match text.len() <= bytes_max {
        true => Cow::Borrowed(text),
        false => Cow::Owned(IdNaming::Any(bytes_max).alias(text, 0)),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The text in ASCII letters, digits, `_`, `-` and these, with `_` in the place of each run of others.
fn words(text: &str, more: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut is_gap = false;
    for letter in text.chars() {
        let is_taken =
            letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') || more.contains(letter);
        match is_taken {
            true => written.push(letter),
            false if is_gap => {}
            false => written.push('_'),
        }
        is_gap = !is_taken;
    }
    written
}

/// FNV-1a, 64 bits: the same on every machine and in every release.
fn hash(text: &str, salt: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let hash = text.bytes().fold(0xCBF2_9CE4_8422_2325_u64, step);
    match salt {
        0 => hash,
        salt => salt.to_le_bytes().into_iter().fold(hash, step),
    }
}

/// The hash in lower-case letters and digits.
fn hash_word(text: &str, salt: u64, length: usize) -> String {
    // FNV's high bits are mixed best.
    digits(hash(text, salt).rotate_left(32), b"0123456789abcdefghijklmnopqrstuvwxyz", length)
}

fn nine(text: &str, salt: u64) -> String {
    const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    digits(hash(text, salt), LETTERS, NINE)
}

fn digits(mut number: u64, letters: &[u8], length: usize) -> String {
    let base = letters.len() as u64;
    let mut written = String::with_capacity(length);
    for _ in 0..length {
        let place = usize::try_from(number % base).unwrap_or_default();
        written.extend(letters.get(place).map(|letter| char::from(*letter)));
        number /= base;
    }
    written
}
