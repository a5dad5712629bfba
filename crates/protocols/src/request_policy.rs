//! Request policy: the fields, tools and contents that a request may have, and the bound of its tokens by its
//! bytes; one rule for every dialect.
//!
//! Denied by default, twice. What is not in a dialect's table may have a price that nobody knows, and
//! is refused unless the operator passes it. What is in the table and not known to be bounded by its
//! bytes, such as media and whatever stands for input elsewhere, has the whole context held for it.
//!
//! Names are compared as parsers see them: escapes are resolved, and a key that is there twice, or
//! that some parsers would take for another, is never taken for what it looks like.

mod chat;
mod converse;
mod embeddings;
mod gemini;
mod inline;
mod references;
mod omitted_tools;
mod messages;
mod moderations;
mod rerank;
mod responses;
mod search_limit;
mod setting;

use std::borrow::Cow;

use super::json::{Object, Value};
use super::json_cursor::Cursor;
use super::limits::{ModelLimits, PassList, PricedFeatures};
use super::media::PictureFamily;
use super::public_url;
use super::server_tools::{CallLimit, RereadBilling, ServerTool, ToolResult};
use super::stored::Reference;
use tollgate_money::price::{CacheWrites, InputWays, Unit, Usage};
use tollgate_types::error::GatewayError;

use inline::MediaShape;

pub(super) use chat::CHAT;
pub(super) use converse::CONVERSE;
pub(super) use embeddings::{OPENAI_EMBEDDINGS, VOYAGE_EMBEDDINGS};
pub(super) use gemini::GEMINI;
pub(super) use messages::MESSAGES;
pub(super) use moderations::MODERATIONS;
pub(super) use omitted_tools::{OmittedTools, searches};
pub(super) use rerank::{OPENAI_RERANK, VOYAGE_RERANK};
pub(super) use responses::{COMPACT, RESPONSES};
pub(super) use search_limit::SearchLimit;
pub(super) use setting::{Setting, SettingTable};

/// Tokens that an upstream adds to a prompt with tools: Anthropic's system prompt for them has some 700, and
/// the definition of a tool that it names itself as many.
pub(super) const TOOLS_TOKENS_MAX: u64 = 1024;
/// Maximum readings of the context within one request: one, and one after each call of a tool that the
/// upstream runs itself. Anthropic stops after ten.
const ROUNDS_MAX: u64 = 10;
/// The key of xAI's `search_parameters` that says how many sources an answer may use.
const SOURCES_MAX_KEY: &str = "max_search_results";
/// Letters of a customer's name for something that a message repeats.
const SHOWN_MAX: usize = 64;

/// The allowlist of an operation in one dialect.
pub(super) struct Allowlist {
    /// Its top-level fields, the commonest first.
    pub(super) fields: &'static [(&'static str, Field)],
    /// The types of its tools.
    pub(super) tools: &'static [Tool],
    /// The tools that the upstream runs, which need a price.
    pub(super) server_tools: &'static [ServerTool],
    /// The keys of its tools.
    pub(super) tool_keys: &'static [(&'static str, ToolKey)],
}

/// Content of a top-level field.
pub(super) enum Field {
    /// It changes no price.
    Plain,
    /// Text, or entries of these kinds.
    Items(&'static ObjectTable),
    /// A list of tools, each of a type that is offered.
    Tools,
    /// It stands for input that is not in the body.
    Reference,
    /// It changes no price with one of these words, or with a list of them; others need one.
    Words(&'static [&'static str]),
    /// It says whether the model thinks, or how much. That needs a price.
    Thinking,
    /// It has the upstream run something, so often at most unless it says so. That needs a price.
    Runs(Unit, u64),
    /// It says how the answer sounds, which needs a price.
    Sounds,
    /// It says what the answer is made of: sound and pictures need a price.
    Modalities,
    /// Handling of a long context by the upstream.
    ContextManagement,
    /// An object whose members are looked at by their values.
    Settings(SettingTable),
    /// A wish that the answer does without, and of which nobody knows what it costs: it is left out of
    /// what goes upstream, by name. With a key and a word, only an object that has them is; any other
    /// means more than a wish.
    Omitted(Option<(&'static str, &'static str)>),
}

/// The objects of an array: messages, items or parts of a content.
pub(super) struct ObjectTable {
    /// Name of the objects in a refusal.
    pub(super) what: &'static str,
    /// Keys that say no more than their bytes do; 64 at most.
    pub(super) keys: &'static [(&'static str, Key)],
    /// Their types. The empty name is that of objects without a type.
    pub(super) kinds: &'static [Kind],
}

/// Value behind a key.
pub(super) enum Key {
    /// Data that says no more than its bytes do.
    Plain,
    /// Data that is not for people: as many bytes as tokens at least, and mostly more.
    Opaque,
    /// The type of the object, as its kinds name it.
    Type,
    /// Text, or entries of these kinds.
    Items(&'static ObjectTable),
    /// A list of tools, each of a type that is offered.
    Tools,
    /// A tool of a type that is offered, wherever it stands.
    Definition,
    /// URL of a picture. Some upstreams take other media there as sound, at another price.
    Picture,
    /// A medium, inline or at an address.
    Medium(MediaShape),
    /// The level of detail at which the model reads the medium beside it.
    Detail,
    /// Citations of a text, or whether a document is to be cited: then it is cut into pieces, each with marks of
    /// which nobody knows the size.
    Citations,
    /// A setting of how a medium is read, with an undocumented effect on its tokens.
    Media,
    /// Reference to a file. One in the operator's account may belong to another customer.
    File,
    /// Billed in this unit, which needs a price, unless it is `null`.
    Billed(Unit),
    /// Inline sound, which needs a price.
    Sound,
    /// An object whose members are looked at by their values.
    Settings(SettingTable),
}

/// A type of objects.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) size: Size,
}

/// Bound of an object's tokens.
pub(super) enum Size {
    /// Its bytes, if it has all these keys: without them it may stand for what is elsewhere.
    Bytes(&'static [&'static str]),
    /// The definition of one tool of the request, once more.
    ToolAgain,
    /// Its bytes, if it has all these keys, and so many tokens of a result that it stands for.
    Result(&'static [&'static str], u64),
    /// The model's context alone.
    Context,
    /// The model's context alone, of which some is billed as this unit. That needs a price.
    Billed(Unit),
    /// Its bytes, if it has all these keys, and sound, which needs a price.
    Sound(&'static [&'static str]),
}

/// Value behind a key of a tool.
#[derive(Clone, Copy)]
pub(super) enum ToolKey {
    /// Description of the tool.
    Plain,
    /// The type of the tool.
    Type,
    /// A key that [`Tool::needs`] may require.
    Needed,
    /// Tools that it is made of.
    Tools,
    /// Maximum calls by the upstream.
    Uses,
    /// The most entries of one of its results.
    Results,
    /// Makes the tool dearer, unless it is one of these values, as they are written.
    Dearer(&'static [&'static str]),
}

/// A type of tools that the customer runs.
pub(super) struct Tool {
    /// The empty name is that of tools without a type.
    pub(super) name: &'static str,
    /// True if types have a date behind the name.
    pub(super) is_dated: bool,
    /// A key that must be there, and the word that must be its value or the value's type; any, where
    /// that is empty.
    pub(super) needs: Option<(&'static str, &'static str)>,
    /// Tokens that the upstream adds to the prompt for it; `None` if unknown.
    pub(super) added_tokens: Option<u64>,
}

/// Properties of a prompt that bound its usage.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The most tokens that an upstream adds to those of the body; `None` when the body does not bound
    /// the prompt.
    pub(super) added_tokens_max: Option<u64>,
    /// Bytes of the body that are inline media, whose tokens are among those that are added.
    pub(super) media_bytes: u64,
    /// True where some of it can be a picture, sound or video.
    pub(super) has_media: bool,
    /// True if all of it is text for the model.
    pub(super) is_text: bool,
    /// Maximum number of times that the upstream reads its context and answers.
    pub(super) rounds: u64,
    /// Addition of each round but the last to the prompt, where searches are all that the upstream runs and
    /// the prompt is bounded but for them.
    pub(super) search: Option<ToolResult>,
    /// The limit of searches that goes upstream, since the customer has set none.
    pub(super) search_limit: Option<SearchLimit>,
    /// True if the upstream may summarize the prompt first, which is one more answer.
    pub(super) is_compacted: bool,
    /// True if it has something that only the operator permits.
    pub(super) has_passed: bool,
    /// Maximum usage of tools that the upstream runs beside the model.
    pub(super) server_calls_max: Usage,
    /// Lifetimes of prompt cache writes that it may cause.
    pub(super) cache_writes: CacheWrites,
    /// The dearest unit of a cache that the request asks for, beside the usual one: what a report that
    /// does not tell lifetimes apart counts as.
    pub(super) written_as: Option<Unit>,
    /// Top-level fields that do not go upstream.
    pub(super) left_out_fields: Vec<&'static str>,
    /// Upstream objects that it refers to, but for responses and their items.
    pub(super) references: Vec<Reference>,
}

impl Prompt {
    /// A prompt of text alone, or of that and media.
    pub(super) fn of_text(is_text: bool) -> Self {
        Self {
            added_tokens_max: is_text.then_some(0),
            media_bytes: 0,
            has_media: !is_text,
            is_text: false,
            rounds: 1,
            search: None,
            search_limit: None,
            is_compacted: false,
            has_passed: false,
            server_calls_max: Usage::ZERO,
            cache_writes: CacheWrites::Hour,
            written_as: None,
            left_out_fields: Vec::new(),
            references: Vec::new(),
        }
    }

    /// The ways in which it can be billed. A cache that is kept longer than an hour is written only where
    /// something asks for it.
    pub(super) fn input_ways(&self) -> InputWays {
        let has_media = self.has_media;
        let cache_writes = if self.has_passed { CacheWrites::Any } else { self.cache_writes };
        InputWays { cache_writes, has_media }
    }

    /// True if the upstream may run a tool.
    pub(super) fn has_server_tools(&self) -> bool {
        self.server_calls_max != Usage::ZERO
    }

    /// True if nothing is hidden: text in, one round, nothing else.
    pub(super) fn is_plain(&self) -> bool {
        self.added_tokens_max.is_some()
            && !self.has_media
            && self.rounds == 1
            && !self.is_compacted
            && !self.has_passed
    }
}

/// Reads a request's fields, its tools and what stands in its prompt.
///
/// # Errors
/// The first thing that is not offered, and the list with which an operator can allow it.
pub(super) fn read(
    body: &Object<'_>,
    allowlist: &'static Allowlist,
    limits: &ModelLimits,
) -> Result<Prompt, GatewayError> {
    read_without(body, allowlist, limits, None)
}

/// Reads a request's fields, its tools and what stands in its prompt, but for the tools that are
/// `left_out` of what goes upstream.
///
/// # Errors
/// As for [`read`].
pub(super) fn read_without(
    body: &Object<'_>,
    allowlist: &'static Allowlist,
    limits: &ModelLimits,
    left_out: Option<&OmittedTools>,
) -> Result<Prompt, GatewayError> {
    let mut reader = PolicyReader::new(body, allowlist, limits, left_out);
    for (name, value) in body.members() {
        reader.field(name, &value);
        let refusal = reader.refusal.take().or_else(|| reader.setting_refusal.take());
        if let Some(refusal) = refusal {
            return Err(*refusal);
        }
    }
    let calls_max = body.get_non_null("max_tool_calls").and_then(|value| value.as_u64());
    let mut prompt = reader.prompt(calls_max);
    if let Some(ToolResult { limit: Some(limit), .. }) = prompt.search {
        let searches_max = limits.searches_max;
        prompt.search_limit = SearchLimit::for_request(body, limit, searches_max, allowlist);
    }
    Ok(prompt)
}

/// Upstream objects that a request refers to, permitted or not.
pub(super) fn references(body: &Object<'_>, allowlist: &'static Allowlist) -> Vec<Reference> {
    let limits = ModelLimits::default();
    let mut reader = PolicyReader::new(body, allowlist, &limits, None);
    body.members().for_each(|(name, value)| reader.field(name, &value));
    reader.references
}

/// Refuses the top-level fields that `allowlist` does not have. True when the operator's word let one
/// through.
///
/// # Errors
/// The first field that is not offered.
pub(super) fn check_fields(
    body: &Object<'_>,
    allowlist: &'static Allowlist,
    limits: &ModelLimits,
) -> Result<bool, GatewayError> {
    read(body, allowlist, limits).map(|prompt| prompt.has_passed)
}

struct PolicyReader<'a> {
    body: &'a Object<'a>,
    allowlist: &'static Allowlist,
    /// The formula by which the model counts pictures; `None` where the configuration has none.
    pictures: Option<PictureFamily>,
    has_media: bool,
    /// Bytes of inline media, which are no text.
    media_bytes: u64,
    pass: &'a PassList,
    priced: &'a PricedFeatures,
    /// The places of tools that do not go upstream, in order.
    left_out: &'a [usize],
    is_bounded: bool,
    is_text: bool,
    added_tokens: u64,
    has_tools: bool,
    is_compacted: bool,
    has_passed: bool,
    /// The most calls of tools that the upstream runs, if all of them say so.
    uses: Option<u64>,
    /// The searches of a tool that sets no limit, where one is set for it; zero where none is.
    searches_max: u64,
    has_server_tools: bool,
    /// Addition of a search to the prompt.
    search: Option<ToolResult>,
    /// The upstream may run something else than searches of which it is known what they add.
    runs_others: bool,
    /// Billing units of the calls, and their maximum where it is not one after each round.
    units: Vec<(Unit, Option<u64>)>,
    cache_writes: CacheWrites,
    written_as: Option<Unit>,
    left_out_fields: Vec<&'static str>,
    references: Vec<Reference>,
    /// The number of references to tools of the request, each of which repeats a definition.
    tools_again: u64,
    /// The bytes of the longest of them.
    tool_bytes_max: u64,
    /// The top-level field that is read.
    param: &'static str,
    /// The first thing that is not offered. There is mostly nothing, which is moved around for each
    /// object and so takes no more than a word.
    refusal: Option<Box<GatewayError>>,
    /// The first value of a setting that is not offered. No content around it makes it data.
    setting_refusal: Option<Box<GatewayError>>,
}

impl<'a> PolicyReader<'a> {
    fn new(
        body: &'a Object<'a>,
        allowlist: &'static Allowlist,
        limits: &'a ModelLimits,
        left_out: Option<&'a OmittedTools>,
    ) -> Self {
        Self {
            body,
            allowlist,
            pictures: limits.pictures,
            has_media: false,
            media_bytes: 0,
            pass: &limits.pass,
            priced: &limits.priced,
            left_out: left_out.map_or(&[], |left_out| &left_out.places),
            is_bounded: true,
            is_text: true,
            added_tokens: 0,
            has_tools: false,
            is_compacted: false,
            has_passed: false,
            uses: Some(0),
            searches_max: limits.searches_max.into(),
            has_server_tools: false,
            search: None,
            runs_others: false,
            units: Vec::new(),
            cache_writes: CacheWrites::Hour,
            written_as: None,
            left_out_fields: Vec::new(),
            references: Vec::new(),
            tools_again: 0,
            tool_bytes_max: 0,
            param: "",
            refusal: None,
            setting_refusal: None,
        }
    }
}

impl PolicyReader<'_> {
    fn prompt(self, calls_max: Option<u64>) -> Prompt {
        let is_bounded = self.is_bounded && !self.is_compacted;
        // A prompt of which nobody knows the size is a whole context in each round, and no more rounds are
        // made of it than of any other.
        let search = self.search.filter(|search| {
            !self.is_compacted
                && !self.runs_others
                && !self.has_passed
                && (search.limit.is_none() || self.searches_max > 0)
        });
        // A customer who says nothing gets a limit that is written into the request.
        let set = search.filter(|search| search.limit == Some(CallLimit::Request));
        let calls_max = calls_max.or(set.map(|_| self.searches_max));
        let rounds = match (self.has_server_tools, calls_max) {
            (false, _) => 1,
            (true, Some(calls)) => calls.saturating_add(1),
            (true, None) => {
                self.uses.map_or(ROUNDS_MAX, |uses| uses.saturating_add(1).min(ROUNDS_MAX))
            }
        };
        let is_bounded = is_bounded && (!self.has_server_tools || search.is_some());
        let tools = if self.has_tools { TOOLS_TOKENS_MAX } else { 0 };
        let tools = tools.saturating_add(self.tools_again.saturating_mul(self.tool_bytes_max));
        Prompt {
            added_tokens_max: is_bounded.then(|| self.added_tokens.saturating_add(tools)),
            media_bytes: self.media_bytes,
            // What is not bounded may stand for a picture that is elsewhere.
            has_media: self.has_media || !is_bounded,
            is_text: is_bounded && self.is_text && !self.has_media,
            rounds,
            search,
            search_limit: None,
            is_compacted: self.is_compacted,
            has_passed: self.has_passed,
            server_calls_max: self.server_calls_max(rounds),
            cache_writes: self.cache_writes,
            written_as: self.written_as,
            left_out_fields: self.left_out_fields,
            references: self.references,
        }
    }

    /// Each round but the last ends with a call. All code runs in one container.
    fn server_calls_max(&self, rounds: u64) -> Usage {
        let mut most = Usage::ZERO;
        for (unit, limit) in &self.units {
            most[*unit] = match (unit, limit) {
                (_, Some(limit)) => most[*unit].saturating_add(*limit),
                (Unit::ContainerSessions, None) => 1,
                (_, None) => most[*unit].max(rounds.saturating_sub(1).max(1)),
            };
        }
        most
    }

    fn field(&mut self, name: &str, value: &Value<'_>) {
        let entry = self.allowlist.fields.iter().find(|(entry, _)| *entry == name);
        let Some((name, field)) = entry else { return self.unlisted_field(name, value) };
        self.param = name;
        match field {
            Field::Plain => {}
            Field::Reference if value.is_null() => {}
            Field::Reference => {
                self.is_bounded = false;
                if *name == "prompt" {
                    self.note_kept(name.as_bytes(), value.text());
                }
                // What is kept there may have marks of its own.
                self.cache_writes = CacheWrites::Any;
            }
            Field::Settings(settings) => self.settings(name, value, settings),
            Field::Words(words) => self.words(name, value, words),
            Field::Modalities => self.modalities(name, value),
            Field::Thinking if self.priced.thinking || value.is_null() => {}
            Field::Runs(..) | Field::Sounds if matches!(value.text(), b"null" | b"false") => {}
            Field::Runs(unit, most) if self.priced.has_unit(*unit) => {
                self.searches(*unit, value, *most);
            }
            Field::Sounds if self.priced.has_unit(Unit::AudioOutputTokens) => {
                self.note_kept(name.as_bytes(), value.text());
            }
            Field::Thinking | Field::Runs(..) | Field::Sounds => self.passed_field(name, value),
            Field::ContextManagement => self.is_compacted |= !only_clears(value.text()),
            Field::Items(table) => self.within(value, |reader, cursor| reader.items(cursor, table)),
            Field::Tools => self.within(value, Self::all_tools),
            Field::Omitted(needed) if !self.pass.has_field(name) && is_wish(value, *needed) => {
                self.left_out_fields.push(name);
            }
            Field::Omitted(_) => self.passed_field(name, value),
        }
    }

    /// Notes an unreadable value as unbounded.
    fn within(
        &mut self,
        value: &Value<'_>,
        read: impl FnOnce(&mut Self, &mut Cursor<'_>) -> Option<()>,
    ) {
        let is_read = read(self, &mut Cursor::new(value.text())).is_some();
        self.is_bounded &= is_read;
    }

    fn unlisted_field(&mut self, name: &str, value: &Value<'_>) {
        let shown = shown(name);
        if !name.is_ascii() {
            // Some parsers fold letters: the Kelvin sign to `k`, the long s to `s`.
            let message = format!("`{shown}` is not a field; field names are ASCII");
            return self.refuse(GatewayError::invalid(shown, message));
        }
        if self.allowlist.fields.iter().any(|(listed, _)| listed.eq_ignore_ascii_case(name)) {
            return self.refuse(not_lower_case(&shown));
        }
        self.passed_field(name, value);
    }

    /// A field that only the operator's word lets through.
    fn passed_field(&mut self, name: &str, value: &Value<'_>) {
        self.note_kept(name.as_bytes(), value.text());
        if self.pass.has_field(name) {
            self.has_passed = true;
            self.is_bounded &= value.is_null();
            return;
        }
        let shown = shown(name);
        let error = not_offered("", &format!("`{shown}`"), "pass_fields");
        self.refuse(GatewayError { param: Some(shown.into()), ..error });
    }

    fn words(&mut self, name: &'static str, value: &Value<'_>, words: &[&str]) {
        let is_word =
            |value: &Value<'_>| value.as_str().is_some_and(|word| words.contains(&&*word));
        // What is priced is one word: of a list nobody knows which one counts.
        let priced_as = priced_as(name);
        let is_priced =
            || value.as_str().is_some_and(|word| self.priced.has_word(priced_as, &word));
        let are_words = || value.elements().is_some_and(|mut all| all.all(|one| is_word(&one)));
        if value.is_null() || is_word(value) || is_priced() || are_words() {
            return;
        }
        if self.pass.has_field(name) {
            self.has_passed = true;
            return;
        }
        // A word can have several prices, such as one for long prompts: it is named once.
        let mut takes = words.to_vec();
        for (_, word) in self.priced.words.iter().filter(|(field, _)| *field == priced_as) {
            if !takes.contains(word) {
                takes.push(word);
            }
        }
        let message = format!(
            "`{name}` must be {}: what else costs is not known. An operator can give it a price for \
             this model with `prices_when`, or allow it with `pass_fields`, in models.yaml.",
            takes.join(" or ")
        );
        self.refuse(GatewayError::invalid(name, message));
    }

    /// Reads a word, or a list of them.
    fn modalities(&mut self, name: &'static str, value: &Value<'_>) {
        let priced = self.priced;
        let has_price = |word: &str| match word {
            "text" => true,
            "audio" => priced.has_unit(Unit::AudioOutputTokens),
            "image" => priced.has_unit(Unit::ImageOutputTokens),
            _ => false,
        };
        let is_priced = |one: Value<'_>| one.as_str().is_some_and(|word| has_price(&word));
        if value.elements().is_some_and(|mut all| all.all(is_priced)) {
            return;
        }
        self.words(name, value, &["text"]);
    }

    /// Reads text, or one entry, or an array of them.
    fn items(&mut self, value: &mut Cursor<'_>, table: &'static ObjectTable) -> Option<()> {
        match value.next_byte()? {
            b'"' => value.skip(),
            b'[' => value.array(|item| self.item(item, table)),
            _ => self.item(value, table),
        }
    }

    fn item(&mut self, value: &mut Cursor<'_>, table: &'static ObjectTable) -> Option<()> {
        match value.next_byte()? {
            b'{' => {}
            b'"' | b'n' => return value.skip(),
            _ => {
                self.is_bounded = false;
                return value.skip();
            }
        }
        let mut item = Item::default();
        let references_before = self.references.len();
        value.object(|key, value| self.member(&mut item, key, value, table))?;
        let size = self.size(item.kind, table);
        if references::is_output(item.kind) {
            self.references.truncate(references_before);
        }
        if let Some((shape, medium)) = item.medium {
            self.medium(shape, medium, &item);
        }
        self.is_bounded &= match size {
            Some(Size::Bytes(needs) | Size::Sound(needs)) => {
                !item.is_odd && item.has_all(table, needs)
            }
            Some(Size::ToolAgain) => {
                self.tools_again = self.tools_again.saturating_add(1);
                !item.is_odd
            }
            Some(Size::Result(needs, tokens)) => {
                self.is_text = false;
                self.added_tokens = self.added_tokens.saturating_add(*tokens);
                !item.is_odd && item.has_all(table, needs)
            }
            Some(Size::Context | Size::Billed(_)) | None => false,
        };
        // Inside of what holds the whole context, what is not known is data: the result of a tool.
        let counts = !matches!(size, Some(Size::Context | Size::Billed(_)));
        if let Some(refusal) = item.inner_refusal.filter(|_| counts) {
            self.refusal.get_or_insert(refusal);
        }
        Some(())
    }

    fn member<'a>(
        &mut self,
        item: &mut Item<'a>,
        key: &'a [u8],
        value: &mut Cursor<'a>,
        table: &'static ObjectTable,
    ) -> Option<()> {
        let Some((index, role)) = self.key(key, table) else {
            return self.odd_member(item, key, value);
        };
        let bit = 1_u64 << (index & 63);
        let is_repeated = item.seen & bit != 0;
        item.is_odd |= is_repeated;
        item.seen |= bit;
        match role {
            Key::Plain => value.skip(),
            Key::Opaque => {
                self.is_text = false;
                value.skip()
            }
            Key::Type => {
                let kind = value.non_null()?.unwrap_or_default();
                // Which of two is meant, parsers disagree on: none is offered.
                item.kind = if is_repeated { b"two" } else { kind };
                Some(())
            }
            // In a text there is nothing to refuse.
            Key::Items(_) if value.next_byte()? == b'"' => value.skip(),
            Key::Items(_) | Key::Tools => {
                let earlier = self.refusal.take();
                match role {
                    Key::Items(nested) => self.items(value, nested)?,
                    _ => self.tools(value)?,
                }
                let inner = std::mem::replace(&mut self.refusal, earlier);
                item.inner_refusal = item.inner_refusal.take().or(inner);
                Some(())
            }
            Key::Definition => self.definition(value),
            Key::Picture => self.picture(item, value),
            Key::Medium(shape) => {
                if let Some(raw) = value.non_null()? {
                    item.add_medium(*shape, raw);
                }
                Some(())
            }
            Key::Detail => {
                item.add_detail(value.non_null()?);
                Some(())
            }
            Key::Citations => {
                let raw = value.raw()?;
                item.is_cited = raw.starts_with(b"{") && !inline::is_switched_off(raw);
                Some(())
            }
            Key::Media => {
                self.is_bounded &= value.non_null()?.is_none();
                Some(())
            }
            Key::File => self.file(key, value, table),
            Key::Settings(settings) => {
                let object = Value::new(value.raw()?);
                self.settings(&resolved(key)?, &object, settings);
                Some(())
            }
            Key::Billed(unit) => {
                let raw = value.non_null()?;
                self.is_bounded &= raw.is_none();
                self.billed(*unit, raw, key, table)
            }
            Key::Sound => {
                let raw = value.non_null()?;
                if let Some(raw) = raw {
                    item.add_medium(MediaShape::Sound, raw);
                }
                self.billed(Unit::AudioInputTokens, raw, key, table)
            }
        }
    }

    /// A member that is in no table: what it may refer to is known by its name.
    fn odd_member(
        &mut self,
        item: &mut Item<'_>,
        key: &[u8],
        value: &mut Cursor<'_>,
    ) -> Option<()> {
        if let Some(odd) = value.non_null()? {
            item.is_odd = true;
            self.note_kept(key, odd);
        }
        Some(())
    }

    /// Refuses what is there and has no price.
    fn billed(
        &mut self,
        unit: Unit,
        raw: Option<&[u8]>,
        key: &[u8],
        table: &'static ObjectTable,
    ) -> Option<()> {
        let name = resolved(key)?;
        // Of sound the answer that it goes on from is named, by an id of the chat's own.
        if let Some(raw) = raw.filter(|_| unit != Unit::AudioInputTokens || name != "audio") {
            self.note_kept(key, raw);
        }
        if raw.is_some() && !self.priced.has_unit(unit) && !self.pass.has_content(&name) {
            let what = format!("`{}` in {}", shown(&name), table.what);
            self.refuse_content(&what);
        }
        Some(())
    }

    /// A tool within a message: what it costs does not depend on the content around it.
    fn definition(&mut self, value: &mut Cursor<'_>) -> Option<()> {
        let earlier = self.refusal.take();
        self.tool(value)?;
        let refusal = std::mem::replace(&mut self.refusal, earlier);
        self.setting_refusal = self.setting_refusal.take().or(refusal);
        Some(())
    }

    fn file(
        &mut self,
        key: &[u8],
        value: &mut Cursor<'_>,
        table: &'static ObjectTable,
    ) -> Option<()> {
        let file = value.non_null()?;
        self.is_bounded &= file.is_none();
        if let Some(file) = file {
            self.note_file(file);
        }
        let name = resolved(key)?;
        if file.is_some_and(|file| !is_public_file(file)) && !self.pass.has_content(&name) {
            let what = format!("`{}` in {} that is not on the web", shown(&name), table.what);
            self.refuse_content(&what);
        }
        Some(())
    }

    /// The key's place in the table.
    fn key(
        &mut self,
        written: &[u8],
        table: &'static ObjectTable,
    ) -> Option<(usize, &'static Key)> {
        let index = self.place(written, table.keys)?;
        table.keys.get(index).map(|(_, role)| (index, role))
    }

    /// The place of a key among those that are known. Refuses one that only some parsers take for it.
    fn place<T>(&mut self, written: &[u8], table: &[(&str, T)]) -> Option<usize> {
        let find = |name: &[u8]| table.iter().position(|(entry, _)| entry.as_bytes() == name);
        find(written).or_else(|| {
            let name = resolved(written)?;
            let folded = folded(&name);
            let found = find(folded.as_bytes())?;
            if folded != name {
                self.refuse(not_lower_case(&shown(&name)));
            }
            Some(found)
        })
    }

    /// The bound of an object of this type, as written; notes a refusal of a type that is not allowed.
    fn size(&mut self, written: &[u8], table: &'static ObjectTable) -> Option<&'static Size> {
        let inner = written.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
        let find = |name: &[u8]| table.kinds.iter().find(|kind| kind.name.as_bytes() == name);
        let priced = self.priced;
        let is_offered = |kind: &&Kind| match kind.size {
            Size::Bytes(_) | Size::ToolAgain | Size::Result(..) | Size::Context => true,
            Size::Billed(unit) => priced.has_unit(unit),
            Size::Sound(_) => priced.has_unit(Unit::AudioInputTokens),
        };
        if let Some(kind) = find(inner.unwrap_or(written)).filter(is_offered) {
            return Some(&kind.size);
        }
        let name = inner.and_then(resolved).unwrap_or_default();
        let kind = find(name.as_bytes()).filter(|kind| !kind.name.is_empty());
        if let Some(kind) = kind.filter(is_offered) {
            return Some(&kind.size);
        }
        if !name.is_empty() && self.pass.has_content(&name) {
            self.has_passed = true;
            return Some(&Size::Context);
        }
        let what = match (&*name, written) {
            ("", b"") => format!("{} without a `type`", table.what),
            ("", _) => format!("{} with such a `type`", table.what),
            (name, _) => format!("{} of type `{}`", table.what, shown(name)),
        };
        self.refuse_content(&what);
        None
    }

    /// A picture is at an address, or in the body as `data:image/…`.
    fn picture<'a>(&mut self, item: &mut Item<'a>, value: &mut Cursor<'a>) -> Option<()> {
        let mut is_picture = true;
        if value.next_byte()? == b'{' {
            value.object(|key, value| {
                let name = resolved(key)?;
                match &*name {
                    "url" => {
                        let url = value.raw()?;
                        is_picture &= may_be_picture(url);
                        item.add_medium(MediaShape::Url, url);
                    }
                    "detail" if item.detail.is_none() => item.detail = value.non_null()?,
                    // What else is there may say how large the upstream makes the picture.
                    name => {
                        is_picture &= !name.eq_ignore_ascii_case("url");
                        self.odd_member(item, key, value)?;
                    }
                }
                Some(())
            })?;
        } else {
            let url = value.raw()?;
            is_picture = may_be_picture(url);
            item.add_medium(MediaShape::Url, url);
        }
        if !is_picture {
            self.refuse_content("an `image_url` with data that is no image");
        }
        Some(())
    }

    /// The tools of the request itself, but for those that do not go upstream.
    fn all_tools(&mut self, value: &mut Cursor<'_>) -> Option<()> {
        if self.left_out.is_empty() {
            return self.tools(value);
        }
        let mut place = 0;
        value.array(|tool| {
            place += 1;
            let stays = self.left_out.binary_search(&(place - 1)).is_ok();
            if stays { tool.skip() } else { self.tool(tool) }
        })
    }

    fn tools(&mut self, value: &mut Cursor<'_>) -> Option<()> {
        match value.next_byte()? {
            b'[' => value.array(|tool| self.tool(tool)),
            b'n' => value.skip(),
            _ => {
                self.is_bounded = false;
                value.skip()
            }
        }
    }

    fn tool(&mut self, value: &mut Cursor<'_>) -> Option<()> {
        let allowlist = self.allowlist;
        let mut read = ReadTool::default();
        if value.next_byte()? != b'{' {
            self.is_bounded = false;
            return value.skip();
        }
        self.has_tools = true;
        let bytes_before = value.rest().len();
        let references_before = self.references.len();
        value.object(|key, value| {
            let place = self.place(key, allowlist.tool_keys);
            let Some((name, role)) = place.and_then(|place| allowlist.tool_keys.get(place)) else {
                if let Some(odd) = value.non_null()? {
                    read.odd_count += 1;
                    let name = resolved(key)?;
                    read.has_authorization |= name == "authorization" && odd != b"\"\"";
                    read.odd = Some(shown(&name));
                    self.note_kept(key, odd);
                }
                return Some(());
            };
            match role {
                ToolKey::Plain => value.skip()?,
                ToolKey::Type => {
                    read.is_odd |= read.kind.is_some();
                    read.kind = Some(value.non_null()?.unwrap_or_default());
                }
                ToolKey::Tools => {
                    read.needed.push((name, value.rest()));
                    self.tools(value)?;
                }
                ToolKey::Needed => {
                    let needed = value.non_null()?;
                    if let Some(needed) =
                        needed.filter(|needed| needed.starts_with(b"{") || *name == "container")
                    {
                        self.note_kept(key, needed);
                    }
                    read.needed.extend(needed.map(|value| (*name, value)));
                }
                ToolKey::Uses => read.uses = Value::new(value.raw()?).as_u64(),
                ToolKey::Results => {
                    let entries = value.non_null()?.map(|value| Value::new(value).as_u64());
                    read.has_results_odd |= entries == Some(None);
                    read.results = entries.flatten();
                }
                ToolKey::Dearer(usual) => {
                    let word = Value::new(value.raw()?);
                    let is_usual = usual.iter().any(|usual| usual.as_bytes() == word.text());
                    if !is_usual && !word.is_null() {
                        read.dearer.get_or_insert(name);
                    }
                }
            }
            Some(())
        })?;
        let bytes = bytes_before.saturating_sub(value.rest().len()) as u64;
        self.tool_bytes_max = self.tool_bytes_max.max(bytes);
        if read.has_authorization {
            self.forget_connectors(references_before);
        }
        self.judge(&read);
        Some(())
    }

    fn judge(&mut self, read: &ReadTool<'_>) {
        let kind = Value::new(read.kind.unwrap_or_default()).as_str().filter(|_| !read.is_odd);
        let name = kind.as_deref().unwrap_or_default();
        let is_untyped = read.kind.is_none_or(<[u8]>::is_empty) && !read.is_odd;
        let fits = |tool: &&Tool| {
            let is_named = match tool.name {
                "" => is_untyped && read.odd.is_none(),
                listed if tool.is_dated => {
                    let date = name.strip_prefix(listed);
                    date.is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit()))
                }
                listed => listed == name,
            };
            is_named && tool.needs.is_none_or(|(key, word)| read.has(key, word))
        };
        if let Some(tool) = self.allowlist.tools.iter().find(fits) {
            // A key that nobody knows is no reason to refuse a tool that the customer runs.
            self.is_bounded &= tool.added_tokens.is_some() && read.odd.is_none();
            let added = tool.added_tokens.unwrap_or(0);
            self.added_tokens = self.added_tokens.saturating_add(added);
            return;
        }
        // Some upstreams know their own tools by a key in the place of a type. Of two nobody knows which.
        let odd = read.odd.as_deref().filter(|_| is_untyped && read.odd_count == 1);
        let are_recognized_by_keys = are_tools_recognized_by_keys(self.allowlist);
        let name = odd.filter(|_| are_recognized_by_keys).unwrap_or(name);
        // A larger container costs more, and one that is named may be another customer's.
        let is_usual = |(key, value): &(&'static str, &[u8])| {
            let container = Value::new(value).as_object();
            let is_new = |value: Value<'_>| value.as_str().as_deref() == Some("auto");
            *key != "container"
                || container.is_ok_and(|one| {
                    one.members().all(|(name, value)| name == "type" && is_new(value))
                })
        };
        let unusual = read.needed.iter().find(|needed| !is_usual(needed)).map(|(key, _)| *key);
        let dearer = unusual.or(read.dearer);
        let runs = |tool: &&ServerTool| {
            dearer.is_none()
                && tool.is_named(name)
                && tool.unit.is_none_or(|unit| self.priced.has_unit(unit))
        };
        if let Some(tool) = self.allowlist.server_tools.iter().find(runs) {
            let result = tool.result.filter(|_| !read.has_results_odd);
            let result = result.map(|result| result.with_entries(read.results));
            return self.runs(tool.unit, result, read.uses);
        }
        let name = odd.unwrap_or(name);
        if !name.is_empty() && self.pass.has_tool(name) {
            self.has_passed = true;
            return self.runs(None, None, read.uses);
        }
        let what = match name {
            "" => "a tool without a known `type`".to_owned(),
            name => format!("the tool `{}`", shown(name)),
        };
        let unit = self.allowlist.server_tools.iter().find(|tool| tool.is_named(name));
        let price = unit.and_then(|tool| tool.unit).filter(|unit| !self.priced.has_unit(*unit));
        self.refuse(match (price, dearer) {
            (Some(unit), _) => not_priced("tools", &what, unit.info().price),
            (None, Some(key)) => {
                not_offered("tools", &format!("such a `{key}` of {what}"), "pass_tools")
            }
            (None, None) => not_offered("tools", &what, "pass_tools"),
        });
    }

    /// The upstream may search for the answer, and use as many sources as the field says, or so many.
    fn searches(&mut self, unit: Unit, value: &Value<'_>, most: u64) {
        let parameters = value.as_object().ok();
        let parameters =
            parameters.as_ref().and_then(|parameters| parameters.get_non_null(SOURCES_MAX_KEY));
        let most = match parameters.map(|parameters| parameters.as_u64()) {
            None => most,
            Some(Some(sources)) => sources.max(1),
            Some(None) => {
                let message = format!("`{}.{SOURCES_MAX_KEY}` must be a whole number", self.param);
                return self.refuse(GatewayError::invalid(self.param, message));
            }
        };
        self.runs(None, None, Some(1));
        self.units.push((unit, Some(most)));
    }

    /// The upstream may run something, so often at most.
    fn runs(&mut self, unit: Option<Unit>, result: Option<ToolResult>, uses: Option<u64>) {
        self.has_server_tools = true;
        self.runs_others |= result.is_none();
        // Which of several tools a call is for, nobody knows: each may be for the longest result.
        self.search = match (self.search, result) {
            (Some(one), Some(other)) => Some(one.longer(other)),
            (one, other) => one.or(other),
        };
        let is_limited_itself = result.is_some_and(|one| one.limit == Some(CallLimit::Tool));
        let is_set = is_limited_itself && self.searches_max > 0;
        let uses = uses.or(is_set.then_some(self.searches_max));
        self.units.extend(unit.map(|unit| (unit, None)));
        self.uses = self.uses.zip(uses).map(|(sum, uses)| sum.saturating_add(uses));
    }

    fn refuse_content(&mut self, what: &str) {
        self.refuse(not_offered(self.param, what, "pass_content"));
    }

    #[cold]
    fn refuse(&mut self, error: GatewayError) {
        self.refusal.get_or_insert_with(|| Box::new(error));
    }
}

/// True for a field that can be left out: any, or an object whose `key` is `word`.
fn is_wish(value: &Value<'_>, needed: Option<(&str, &str)>) -> bool {
    let Some((key, word)) = needed.filter(|_| !value.is_null()) else { return true };
    let object = value.as_object().ok();
    let found = object.as_ref().and_then(|object| object.get(key));
    found.is_some_and(|found| found.as_str().as_deref() == Some(word))
}

/// The name of a field where prices depend on it. Google's has two spellings.
fn priced_as(name: &'static str) -> &'static str {
    if name == "serviceTier" { "service_tier" } else { name }
}

/// True if all tools are recognized by their keys, and none by a type.
pub(super) fn are_tools_recognized_by_keys(allowlist: &Allowlist) -> bool {
    allowlist.tools.iter().all(|tool| tool.name.is_empty())
}

/// An object as read.
#[derive(Default)]
struct Item<'a> {
    /// Its type, as it is written.
    kind: &'a [u8],
    /// Keys of the table that are present, as bits.
    seen: u64,
    /// A key is there that is not known, or is there twice.
    is_odd: bool,
    /// Refusal of something further inside.
    inner_refusal: Option<Box<GatewayError>>,
    /// The medium that it holds or refers to, as it is written.
    medium: Option<(MediaShape, &'a [u8])>,
    /// The level of detail at which the model reads that.
    detail: Option<&'a [u8]>,
    /// Its text is cut into pieces that the model can cite.
    is_cited: bool,
}

impl<'a> Item<'a> {
    /// Of two media nobody knows which one is read.
    fn add_medium(&mut self, shape: MediaShape, written: &'a [u8]) {
        self.is_odd |= self.medium.replace((shape, written)).is_some();
    }

    /// Google's level has two names, and of two levels either may count.
    fn add_detail(&mut self, written: Option<&'a [u8]>) {
        self.is_odd |= written.is_some() && self.detail.is_some();
        self.detail = written.or(self.detail);
    }

    fn has_all(&self, table: &ObjectTable, needs: &[&str]) -> bool {
        needs.iter().all(|need| {
            let index = table.keys.iter().position(|(key, _)| key == need);
            index.is_some_and(|index| self.seen & 1 << (index & 63) != 0)
        })
    }
}

/// A tool as read.
#[derive(Default)]
struct ReadTool<'a> {
    /// Its type, as it is written.
    kind: Option<&'a [u8]>,
    /// Values that a [`Tool`] may need.
    needed: Vec<(&'static str, &'a [u8])>,
    /// The last key that is not known.
    odd: Option<String>,
    /// Number of unlisted keys: each may be a tool of its own.
    odd_count: usize,
    /// A key with a value that costs more.
    dearer: Option<&'static str>,
    /// Its type is there twice.
    is_odd: bool,
    /// A credential of the customer's own is there.
    has_authorization: bool,
    uses: Option<u64>,
    /// The most entries of one result, if it says so.
    results: Option<u64>,
    /// The most entries are no whole number.
    has_results_odd: bool,
}

impl ReadTool<'_> {
    /// True if `key` is present once, and its value or the value's type is `word`.
    fn has(&self, key: &str, word: &str) -> bool {
        let mut values = self.needed.iter().filter(|(needed, _)| *needed == key);
        let (Some((_, value)), None) = (values.next(), values.next()) else { return false };
        let value = Value::new(value);
        let is_word = |value: &Value<'_>| value.as_str().as_deref() == Some(word);
        let kind = || value.as_object().ok()?.get("type");
        word.is_empty() || is_word(&value) || kind().is_some_and(|kind| is_word(&kind))
    }
}

/// True if the management of a long context only removes parts of it.
fn only_clears(text: &[u8]) -> bool {
    let mut clears = true;
    let mut edit = |edit: &mut Cursor<'_>| {
        let mut kinds = 0;
        edit.object(|key, value| {
            let value = value.raw()?;
            if key == b"type" {
                kinds += 1;
                clears &= value.starts_with(b"\"clear_");
            }
            Some(())
        })?;
        clears &= kinds == 1;
        Some(())
    };
    let mut edits = |key: &[u8], value: &mut Cursor<'_>| match (key, value.next_byte()?) {
        (b"edits", b'[') => value.array(&mut edit),
        _ => None,
    };
    let is_read = Cursor::new(text).object(&mut edits).is_some();
    text == b"null" || (text.starts_with(b"{") && is_read && clears)
}

/// True if a URL, as written, is no data URL, or one of an image.
fn may_be_picture(written: &[u8]) -> bool {
    /// More than a media type has.
    const START: usize = 64;
    let start = written.get(..written.len().min(START)).unwrap_or_default();
    if start.contains(&b'\\') {
        let url = Value::new(written).as_str();
        return url.is_none_or(|url| begins_as_picture(url.as_bytes()));
    }
    begins_as_picture(start.get(1..).unwrap_or_default())
}

fn begins_as_picture(url: &[u8]) -> bool {
    const START: usize = 64;
    let start = url.get(..url.len().min(START)).unwrap_or_default();
    let start = start.trim_ascii_start().to_ascii_lowercase();
    start.strip_prefix(b"data:").is_none_or(|data| data.starts_with(b"image/"))
}

/// True if a file, as written, is on the public web, where any customer could fetch it: not in Google's
/// storage, to which the operator's account has access.
fn is_public_file(written: &[u8]) -> bool {
    let Ok(file) = Value::new(written).as_object() else { return false };
    let uris = ["fileUri", "file_uri"].into_iter().filter_map(|key| file.get(key));
    let mut uris = uris.map(|uri| public_url::parse_web(&uri.as_str().unwrap_or_default()).ok());
    let (Some(Some(url)), None) = (uris.next(), uris.next()) else { return false };
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    !["googleapis.com", "cloud.google.com"].into_iter().any(|domain| {
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// The text without its escapes.
fn resolved(written: &[u8]) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', written).is_none() {
        return std::str::from_utf8(written).ok().map(Cow::Borrowed);
    }
    let quoted = [b"\"", written, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).ok().map(Cow::Owned)
}

/// The name as the most lenient parsers see it. Go's takes the Kelvin sign for a `k` and the long s
/// for an `s`.
fn folded(name: &str) -> String {
    let fold = |letter: char| match letter {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        letter => letter.to_ascii_lowercase(),
    };
    name.chars().map(fold).collect()
}

fn shown(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(SHOWN_MAX).collect()
}

fn not_lower_case(shown: &str) -> GatewayError {
    let message = format!("`{shown}` is not a field; field names are lower-case");
    GatewayError::invalid(shown.to_owned(), message)
}

fn not_offered(param: &'static str, what: &str, list: &str) -> GatewayError {
    let message = format!(
        "{what} is not offered here: what it costs is not known. An operator can allow it for this \
         model with `{list}` in models.yaml."
    );
    GatewayError::invalid(param, message)
}

fn not_priced(param: &'static str, what: &str, price: &str) -> GatewayError {
    let message = format!(
        "{what} is not offered here: it has no price. An operator can give it one for this model \
         with `{price}` in models.yaml, or allow it with `pass_tools`."
    );
    GatewayError::invalid(param, message)
}

#[cfg(test)]
mod tests;
