//! Tools of a request, whether the customer runs them or the upstream.

use super::PolicyReader;
use super::allowlist::{Tool, ToolKey, are_tools_recognized_by_keys};
use super::names::{not_offered, not_priced, resolved, shown};
use crate::json::Value;
use crate::json_cursor::Cursor;
use crate::server_tools::{CallLimit, ServerTool, ToolContextCost};
use tollgate_money::price::Unit;
use tollgate_types::error::GatewayError;

/// The key of xAI's `search_parameters` that says how many sources an answer may use.
const SOURCES_MAX_KEY: &str = "max_search_results";

impl PolicyReader<'_> {
    /// The tools of the request itself, but for those that do not go upstream.
    pub(super) fn all_tools(&mut self, value: &mut Cursor<'_>) -> Option<()> {
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

    pub(super) fn tools(&mut self, value: &mut Cursor<'_>) -> Option<()> {
        match value.next_byte()? {
            b'[' => value.array(|tool| self.tool(tool)),
            b'n' => value.skip(),
            _ => {
                self.is_bounded = false;
                value.skip()
            }
        }
    }

    pub(super) fn tool(&mut self, value: &mut Cursor<'_>) -> Option<()> {
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
    pub(super) fn searches(&mut self, unit: Unit, value: &Value<'_>, most: u64) {
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

    /// Notes that the upstream may run a tool, at most so often.
    fn runs(&mut self, unit: Option<Unit>, result: Option<ToolContextCost>, uses: Option<u64>) {
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
}

/// A tool as read.
#[derive(Default)]
struct ReadTool<'a> {
    /// Type of the object, as written.
    kind: Option<&'a [u8]>,
    /// Values that a [`Tool`] may need.
    needed: Vec<(&'static str, &'a [u8])>,
    /// Last unknown key.
    odd: Option<String>,
    /// Number of unlisted keys: each may be a tool of its own.
    odd_count: usize,
    /// A key with a value that costs more.
    dearer: Option<&'static str>,
    /// The type is repeated.
    is_odd: bool,
    /// A credential of the customer's own is there.
    has_authorization: bool,
    uses: Option<u64>,
    /// Declared maximum number of entries of one result.
    results: Option<u64>,
    /// The declared maximum is not a whole number.
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
