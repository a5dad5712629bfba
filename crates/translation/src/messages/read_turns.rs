//! Reads the turns of a customer's message request as parts.

use std::borrow::Cow;

use crate::cache_marks;
use crate::customer_tools::{self, CustomerTools};
use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, MemberList, Raw, is_given};
use crate::messages::fields;
use crate::part::{
    Cache, ContentPart, MediaPart, PromptPart, Reasoning, Source, Speaker, Text, ToolCall,
    ToolResult,
};
use crate::seal::{self, Maker};

/// Prefix of a line in Claude Code's instructions that changes with each request. Anthropic strips it before
/// the model reads the rest; elsewhere it would spoil every cache.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// The turns of a request, as they are read.
pub(super) struct TurnReader<'r, 'a> {
    pub(super) parts: &'r mut Vec<PromptPart<'a>>,
    /// Tools, to which blocks can refer.
    pub(super) tools: &'r mut CustomerTools<'a>,
}

impl<'a> TurnReader<'_, 'a> {
    /// Reads instructions: a text, or a list of blocks.
    ///
    /// # Errors
    /// The block that is malformed.
    pub(super) fn instructions(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
    ) -> Result<(), Untranslatable> {
        if value.get().starts_with('"') {
            let text = Text { text: at.text(value)?, cache: None };
            self.instruct(at, text);
            return Ok(());
        }
        for (place, value) in at.list(value)?.into_iter().enumerate() {
            let at = at.index(place);
            let members = at.object(value)?;
            match &*at.kind(&members)? {
                "text" => {
                    let text = text(&at, members)?;
                    self.instruct(&at, text);
                }
                kind @ ("tool_addition" | "tool_removal") => {
                    self.tool_change(&at, members, kind)?;
                }
                "mid_conv_system" => self.mid_conversation(&at, members)?,
                _ => return Err(at.malformed("a text")),
            }
        }
        Ok(())
    }

    fn instruct(&mut self, at: &FieldPath<'_>, text: Text<'a>) {
        match text.text.starts_with(BILLING_HEADER) {
            // It changes with each request, and nothing behind it would be found in a provider's
            // cache.
            true => at.leave_out_kind(BILLING_HEADER.trim_end_matches(':')),
            false => self.parts.push(PromptPart::Instruction(text)),
        }
    }

    /// Reads the conversation turn by turn.
    ///
    /// # Errors
    /// The block that is malformed, or that means what no other dialect can say.
    pub(super) fn messages(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
    ) -> Result<(), Untranslatable> {
        let all = at.list(value)?;
        if all.is_empty() {
            let message = "messages: at least one message is required".to_owned();
            return Err(Untranslatable { field: "messages".into(), message });
        }
        for (place, value) in all.into_iter().enumerate() {
            self.message(&at.index(place), value)?;
        }
        Ok(())
    }

    fn message(&mut self, at: &FieldPath<'_>, value: Raw<'a>) -> Result<(), Untranslatable> {
        let (mut role, mut content, mut cache) = (None, None, None);
        for (key, value) in at.object(value)? {
            let at = at.key(&key);
            match &*key {
                "role" => role = Some(at.text(value)?),
                "content" => content = Some(value),
                "cache_control" => cache = cache_marks::cache_control(&at, value)?,
                _ => fields::MESSAGE.field(&at, &key, value)?,
            }
        }
        let content = at.needed("content", content)?;
        let begin = self.parts.len();
        let at_content = at.key("content");
        match &*at.needed("role", role)? {
            "user" => self.turn(&at_content, content, Speaker::User)?,
            "assistant" => self.turn(&at_content, content, Speaker::Assistant)?,
            // Instructions can stand between the turns as well, with a role of their own.
            "system" => self.instructions(&at_content, content)?,
            _ => return Err(at.key("role").malformed("user or assistant")),
        }
        cache_marks::mark_last(self.parts.get_mut(begin..).unwrap_or_default(), cache);
        Ok(())
    }

    /// A text, or a list of blocks.
    fn turn(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
        speaker: Speaker,
    ) -> Result<(), Untranslatable> {
        self.parts.push(PromptPart::Turn(speaker));
        if value.get().starts_with('"') {
            let text = Text { text: at.text(value)?, cache: None };
            self.parts.push(PromptPart::Content(ContentPart::Text(text)));
            return Ok(());
        }
        for (place, value) in at.list(value)?.into_iter().enumerate() {
            self.block(&at.index(place), value, speaker)?;
        }
        Ok(())
    }

    fn block(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
        speaker: Speaker,
    ) -> Result<(), Untranslatable> {
        let members = at.object(value)?;
        let kind = at.kind(&members)?;
        match &*kind {
            "thinking" | "redacted_thinking" => {
                self.parts.push(PromptPart::Reasoning(thought(at, members, &kind)?));
            }
            "tool_use" => self.parts.push(PromptPart::ToolCall(tool_use(at, members)?)),
            "tool_result" => {
                let result = self.tool_result(at, members)?;
                self.parts.push(PromptPart::ToolResult(result));
            }
            "mid_conv_system" => {
                self.mid_conversation(at, members)?;
                // What follows is said by the same role.
                self.parts.push(PromptPart::Turn(speaker));
            }
            "tool_addition" | "tool_removal" => self.tool_change(at, members, &kind)?,
            "tool_reference" => self.reference(at, members)?,
            "tool_search_tool_result" => {
                // The search itself has no words elsewhere, but what it found can be called from
                // here on.
                self.found(&members);
                at.leave_out_kind(&kind);
            }
            "compaction" => self.compaction(at, members)?,
            _ => {
                let parts = &mut *self.parts;
                if !content(at, members, &kind, |one| parts.push(PromptPart::Content(one)))? {
                    other(at, &kind)?;
                }
            }
        }
        Ok(())
    }

    /// Instructions in the middle of a turn.
    fn mid_conversation(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<(), Untranslatable> {
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "content" => self.instructions(&at, value)?,
                "cache_control" => {
                    cache_marks::mark_last(self.parts, cache_marks::cache_control(&at, value)?)
                }
                _ => fields::BLOCK.field(&at, &key, value)?,
            }
        }
        Ok(())
    }

    /// Reads a block that offers or withdraws a named tool from this turn on.
    fn tool_change(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
        kind: &str,
    ) -> Result<(), Untranslatable> {
        let tool = members.into_iter().find(|(key, _)| key == "tool");
        let (_, tool) = at.needed("tool", tool)?;
        let at = at.key("tool");
        let members = at.object(tool)?;
        if at.kind(&members)? != "tool_reference" {
            // Tools of servers that the provider asks.
            at.leave_out();
            return Ok(());
        }
        let name = members.into_iter().find(|(key, _)| key == "name");
        let (_, name) = at.needed("name", name)?;
        let name = at.key("name").text(name)?;
        match kind {
            "tool_addition" => self.tools.refer(name),
            _ => self.tools.remove(name),
        }
        Ok(())
    }

    /// A reference to a tool that waits, outside of a result.
    fn reference(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<(), Untranslatable> {
        let name = members.into_iter().find(|(key, _)| key == "tool_name");
        let (_, name) = at.needed("tool_name", name)?;
        self.tools.refer(at.key("tool_name").text(name)?);
        Ok(())
    }

    /// Tools that a search of the provider's has found, as far as they can be read.
    fn found(&mut self, members: &MemberList<'a>) {
        let member = |value: Raw<'a>, name: &str| {
            value.members()?.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
        };
        let content = members.iter().find(|(key, _)| key == "content").map(|(_, value)| *value);
        let list = content.and_then(|content| member(content, "tool_references")?.elements());
        for reference in list.into_iter().flatten() {
            let name = member(reference, "tool_name").and_then(Raw::string);
            name.into_iter().for_each(|name| self.tools.refer(name));
        }
    }

    /// Reads a summary that replaces all earlier turns; refuses one without text.
    fn compaction(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<(), Untranslatable> {
        let (mut summary, mut is_sealed, mut cache) = (None, false, None);
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                _ if !is_given(value) => {}
                "content" => summary = Some(at.text(value)?),
                "encrypted_content" => is_sealed = true,
                "cache_control" => cache = cache_marks::cache_control(&at, value)?,
                _ => fields::BLOCK.field(&at, &key, value)?,
            }
        }
        match summary {
            Some(text) => {
                // As Anthropic reads it: what stands before it is no longer part of the prompt.
                self.parts.clear();
                self.parts.push(PromptPart::Turn(Speaker::User));
                let text = Text { text, cache };
                self.parts.push(PromptPart::Content(ContentPart::Text(text)));
                // The block stands in the assistant's turn, which goes on behind the summary.
                self.parts.push(PromptPart::Turn(Speaker::Assistant));
                Ok(())
            }
            // Only the provider that wrote it can read it: the conversation before it would be lost
            // unseen.
            None if is_sealed => fields::BLOCKS.item(at, "compaction"),
            // One that failed says nothing.
            None => Ok(()),
        }
    }

    fn tool_result(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<ToolResult<'a>, Untranslatable> {
        let (mut id, mut content, mut is_error, mut cache) = (None, Vec::new(), false, None);
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "tool_use_id" => id = Some(at.text(value)?),
                _ if !is_given(value) => {}
                "is_error" => is_error = at.boolean(value)?,
                "cache_control" => cache = cache_marks::cache_control(&at, value)?,
                "content" => content = self.output(&at, value)?,
                _ => fields::BLOCK.field(&at, &key, value)?,
            }
        }
        let id = at.needed("tool_use_id", id)?;
        Ok(ToolResult { id, content, is_error, cache })
    }

    /// Reads a tool's output. References to deferred tools bring these into the prompt, and become a text
    /// that names them.
    fn output(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
    ) -> Result<Vec<ContentPart<'a>>, Untranslatable> {
        if value.get().starts_with('"') {
            return Ok(vec![ContentPart::Text(Text { text: at.text(value)?, cache: None })]);
        }
        let (mut contents, mut found) = (Vec::new(), Vec::new());
        for (place, value) in at.list(value)?.into_iter().enumerate() {
            let at = at.index(place);
            let members = at.object(value)?;
            let kind = at.kind(&members)?;
            if kind == "tool_reference" {
                let name = members.into_iter().find(|(key, _)| key == "tool_name");
                let (_, name) = at.needed("tool_name", name)?;
                let name = at.key("tool_name").text(name)?;
                self.tools.refer(name.clone());
                found.push(name);
            } else if !self::content(&at, members, &kind, |one| contents.push(one))? {
                if matches!(&*kind, "tool_use" | "tool_result" | "thinking") {
                    return Err(at.malformed("a text, an image or a document"));
                }
                other(&at, &kind)?;
            }
        }
        if !found.is_empty() {
            let text = customer_tools::found_text(found.iter().map(|name| &**name)).into();
            contents.push(ContentPart::Text(Text { text, cache: None }));
        }
        Ok(contents)
    }
}

/// A block of a type that is not carried.
fn other(at: &FieldPath<'_>, kind: &str) -> Result<(), Untranslatable> {
    if !fields::BLOCKS.knows(kind) && fields::is_done(kind) {
        at.leave_out_kind(kind);
        return Ok(());
    }
    fields::BLOCKS.item(at, kind)
}

/// Reads a content block; false if it is not one.
fn content<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    kind: &str,
    mut put: impl FnMut(ContentPart<'a>),
) -> Result<bool, Untranslatable> {
    match kind {
        "text" => put(ContentPart::Text(text(at, members)?)),
        "image" => media(at, members, |media| put(ContentPart::Image(media)))?,
        "document" => document(at, members, put)?,
        "search_result" => put(ContentPart::Text(search_result(at, members)?)),
        _ => return Ok(false),
    }
    Ok(true)
}

fn text<'a>(at: &FieldPath<'_>, members: MemberList<'a>) -> Result<Text<'a>, Untranslatable> {
    let (mut text, mut cache) = (None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "text" => text = Some(at.text(value)?),
            "cache_control" => cache = cache_marks::cache_control(&at, value)?,
            _ => fields::BLOCK.field(&at, &key, value)?,
        }
    }
    Ok(Text { text: at.needed("text", text)?, cache })
}

/// A result of a search that the customer ran: its title, its source and its texts.
fn search_result<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
) -> Result<Text<'a>, Untranslatable> {
    let (mut title, mut source, mut texts, mut cache) = (None, None, Vec::new(), None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "title" => title = Some(at.text(value)?),
            "source" => source = Some(at.text(value)?),
            "content" => {
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    let at = at.index(place);
                    texts.push(text(&at, at.object(value)?)?.text);
                }
            }
            "cache_control" => cache = cache_marks::cache_control(&at, value)?,
            _ => fields::SEARCH_RESULT.field(&at, &key, value)?,
        }
    }
    let (title, source) = (at.needed("title", title)?, at.needed("source", source)?);
    let text = format!("{title}\n{source}\n\n{}", texts.join("\n"));
    Ok(Text { text: text.into(), cache })
}

/// Reads a block with a `source` (picture or document) as a media part.
fn media<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    mut put: impl FnMut(MediaPart<'a>),
) -> Result<(), Untranslatable> {
    let (mut source, mut cache) = (None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "source" => source = Some(self::source(&at, value)?),
            "cache_control" => cache = cache_marks::cache_control(&at, value)?,
            _ => fields::MEDIA.field(&at, &key, value)?,
        }
    }
    put(MediaPart { source: at.needed("source", source)?, name: None, detail: None, cache });
    Ok(())
}

/// Reads a document after its description. A document made of blocks is replaced by them.
fn document<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    mut put: impl FnMut(ContentPart<'a>),
) -> Result<(), Untranslatable> {
    let (mut source, mut name, mut context, mut cache) = (None, None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            _ if !is_given(value) => {}
            "source" => source = Some(value),
            "title" => name = Some(at.text(value)?),
            "context" => context = Some(at.text(value)?),
            "cache_control" => cache = cache_marks::cache_control(&at, value)?,
            _ => fields::MEDIA.field(&at, &key, value)?,
        }
    }
    let value = at.needed("source", source)?;
    if let Some(text) = context.filter(|text| !text.is_empty()) {
        put(ContentPart::Text(Text { text, cache: None }));
    }
    let at = at.key("source");
    let members = at.object(value)?;
    if at.kind(&members)? != "content" {
        let source = self::source(&at, value)?;
        put(ContentPart::File(MediaPart { source, name, detail: None, cache }));
        return Ok(());
    }
    let blocks = members.into_iter().find(|(key, _)| key == "content");
    let (_, blocks) = at.needed("content", blocks)?;
    let at = at.key("content");
    if blocks.get().starts_with('"') {
        put(ContentPart::Text(Text { text: at.text(blocks)?, cache }));
        return Ok(());
    }
    for (place, value) in at.list(blocks)?.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        match &*at.kind(&members)? {
            "text" => put(ContentPart::Text(text(&at, members)?)),
            "image" => media(&at, members, |media| put(ContentPart::Image(media)))?,
            _ => return Err(at.malformed("a text or an image")),
        }
    }
    Ok(())
}

fn source<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Source<'a>, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let (mut media_type, mut data, mut url) = (None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "media_type" => media_type = Some(at.text(value)?),
            "data" => data = Some(at.text(value)?),
            "url" => url = Some(at.text(value)?),
            _ => fields::MEDIA.field(&at, &key, value)?,
        }
    }
    match &*kind {
        "base64" => Ok(Source::Inline {
            media_type: at.needed("media_type", media_type)?,
            data: at.needed("data", data)?,
        }),
        "url" => Ok(Source::Url(at.needed("url", url)?)),
        "text" => Ok(Source::Plain(at.needed("data", data)?)),
        _ => Err(at.key("type").uncarried()),
    }
}

fn thought<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    kind: &str,
) -> Result<Reasoning<'a>, Untranslatable> {
    let (mut text, mut seal) = (Cow::Borrowed(""), None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "thinking" => text = at.text(value)?,
            "signature" | "data" => seal = Some(at.text(value)?),
            // Thoughts cannot be marked; a mark is a hint.
            "cache_control" => {}
            _ => fields::BLOCK.field(&at, &key, value)?,
        }
    }
    let maker = if kind == "thinking" { Maker::Messages } else { Maker::MessagesRedacted };
    let seal = seal.filter(|seal| !seal.is_empty());
    let seal = seal.map(|seal| Cow::Owned(seal::from_customer(maker, &seal).into_owned()));
    Ok(Reasoning { text, seal })
}

fn tool_use<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
) -> Result<ToolCall<'a>, Untranslatable> {
    let (mut id, mut name, mut input) = (None, None, None);
    let mut cache: Option<Cache> = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "id" => id = Some(at.text(value)?),
            "name" => name = Some(at.text(value)?),
            "input" => input = Some(at.json_object(value)?),
            "cache_control" => cache = cache_marks::cache_control(&at, value)?,
            // Who calls is the model itself, where nothing else is said.
            "caller" if value.get().contains("\"direct\"") => {}
            _ => fields::BLOCK.field(&at, &key, value)?,
        }
    }
    let (id, name) = (at.needed("id", id)?, at.needed("name", name)?);
    let input = at.needed("input", input)?;
    Ok(ToolCall { id, name, input, is_free: false, seal: None, cache })
}
