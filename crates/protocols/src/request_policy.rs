//! Request policy: the fields, tools and contents that a request may have, and the bound of its tokens by its
//! bytes; one rule for every dialect.
//!
//! Denied by default, twice. What is not in a dialect's table may have a price that nobody knows, and
//! is refused unless the operator passes it. What is in the table and not known to be bounded by its
//! bytes, such as media and whatever stands for input elsewhere, has the whole context held for it.
//!
//! Names are compared as parsers see them: escapes are resolved, and a key that is there twice, or
//! that some parsers would take for another, is never taken for what it looks like.

mod allowlist;
mod prompt;
mod field;
mod content;
mod item;
mod tool;
mod names;
mod inline;
mod references;
mod omitted_tools;
mod search_limit;
mod setting;
mod chat;
mod converse;
mod gemini;
mod messages;
mod responses;

use super::json::Object;
use super::limits::{ModelLimits, PassList, PricedFeatures};
use super::media::PictureFamily;
use super::server_tools::{CallLimit, RereadBilling, ServerTool, ToolContextCost};
use super::stored::Reference;
use tollgate_money::price::{CacheWrites, Unit, Usage};
use tollgate_types::error::GatewayError;

use names::{folded, not_lower_case, not_offered, resolved, shown};

pub(super) use allowlist::{
    Allowlist, Field, Key, Kind, MediaShape, ObjectTable, Size, Tool, ToolKey,
    are_tools_recognized_by_keys,
};
pub(super) use chat::CHAT;
pub(super) use converse::CONVERSE;
pub(super) use gemini::GEMINI;
pub(super) use messages::MESSAGES;
pub(super) use omitted_tools::{OmittedTools, searches};
pub(super) use prompt::Prompt;
pub(super) use responses::{COMPACT, RESPONSES};
pub(super) use search_limit::SearchLimit;
pub(super) use setting::{Setting, SettingTable};

/// Tokens that an upstream adds to a prompt with tools: Anthropic's system prompt for them has some 700, and
/// the definition of a tool that it names itself as many.
pub(super) const TOOLS_TOKENS_MAX: u64 = 1024;
/// Maximum readings of the context within one request: one, and one after each call of a tool that the
/// upstream runs itself. Anthropic stops after ten.
const ROUNDS_MAX: u64 = 10;

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
    if let Some(ToolContextCost { limit: Some(limit), .. }) = prompt.search {
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
    /// Maximum number of tool calls run by the upstream, if all tools declare one.
    uses: Option<u64>,
    /// The searches of a tool that sets no limit, where one is set for it; zero where none is.
    searches_max: u64,
    has_server_tools: bool,
    /// Addition of a search to the prompt.
    search: Option<ToolContextCost>,
    /// The upstream may run tools other than searches, whose result sizes are unknown.
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
    /// Current top-level field.
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

    /// Index of a key among the known ones. Refuses keys that only some parsers take for a known one.
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

    fn refuse_content(&mut self, what: &str) {
        self.refuse(not_offered(self.param, what, "pass_content"));
    }

    #[cold]
    fn refuse(&mut self, error: GatewayError) {
        self.refusal.get_or_insert_with(|| Box::new(error));
    }
}

#[cfg(test)]
mod tests;
