//! Parts as a message for an upstream.

use std::borrow::Cow;

use crate::claude::{self, Thinks};
use crate::dialect::{Losses, TranslationTarget, Untranslatable};
use crate::json::{self, Members};
use crate::kit;
use crate::part::{
    AnswerFormat, Cache, ContentPart, MediaPart, PromptPart, Reasoning, Sampling, Source, Speaker,
    Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::seal::{self, Maker};
use crate::turns::{AlternatingTurns, Block, CacheMarks};

/// The longest name of a customer's user, in bytes.
const USER_BYTES_MAX: usize = 256;

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let conversation = AlternatingTurns::gather(parts, |one| own_seal(one).is_some());
    let marks = CacheMarks::new(parts, &conversation, target);
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    let asked = parts.iter().find_map(|part| match part {
        PromptPart::OutputMax(tokens) => Some(*tokens),
        _ => None,
    });
    let output_max = asked.unwrap_or(target.output_max);
    members.integer(&mut out, "max_tokens", output_max);
    let thinks = claude::thinking(parts, output_max, target, losses, &conversation)?;
    tools(parts, &marks, &mut members, &mut out);
    if !conversation.system.is_empty() {
        members.key(&mut out, "system");
        let mut list = Members::array(&mut out);
        for (place, one) in conversation.system.iter().enumerate() {
            list.next(&mut out);
            let mark = marks.system.filter(|marked| *marked == place).map(|_| Cache::Short);
            text(&one.text, one.cache.or(mark), &mut out);
        }
        list.end(&mut out);
    }
    members.key(&mut out, "messages");
    messages(&conversation, &marks, &mut out)?;
    let mut settings = MessageSettings {
        target,
        losses,
        members: &mut members,
        out: &mut out,
        thinks: thinks.is_some_and(Thinks::is_on),
    };
    settings.write(parts, thinks)?;
    if target.streams {
        members.raw(&mut out, "stream", "true");
    }
    members.end(&mut out);
    Ok(out)
}

/// The token of a thought that Anthropic sealed.
fn own_seal<'s>(one: &'s Reasoning<'_>) -> Option<OwnSeal<'s>> {
    let seal = one.seal.as_deref()?;
    let signature = seal::open(Maker::Messages, seal).map(OwnSeal::Signature);
    signature.or_else(|| seal::open(Maker::MessagesRedacted, seal).map(OwnSeal::Redacted))
}

enum OwnSeal<'s> {
    Signature(&'s str),
    Redacted(&'s str),
}

fn cache_control(cache: Option<Cache>, object: &mut Members, out: &mut Vec<u8>) {
    match cache {
        None => {}
        Some(Cache::Short) => object.raw(out, "cache_control", r#"{"type":"ephemeral"}"#),
        Some(Cache::Long) => {
            object.raw(out, "cache_control", r#"{"type":"ephemeral","ttl":"1h"}"#);
        }
    }
}

fn text(text: &str, cache: Option<Cache>, out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    object.text(out, "type", "text");
    object.text(out, "text", text);
    cache_control(cache, &mut object, out);
    object.end(out);
}

fn tools(parts: &[PromptPart<'_>], marks: &CacheMarks, members: &mut Members, out: &mut Vec<u8>) {
    let all: Vec<&Tool<'_>> = parts
        .iter()
        .filter_map(|part| match part {
            PromptPart::Tool(tool) => Some(tool),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        return;
    }
    members.key(out, "tools");
    let mut list = Members::array(out);
    for (place, tool) in all.iter().enumerate() {
        list.next(out);
        let mut object = Members::object(out);
        object.text(out, "name", &tool.name);
        if let Some(description) = &tool.description {
            object.text(out, "description", description);
        }
        let schema = if tool.is_free { Some(kit::FREE_SCHEMA) } else { tool.schema.as_deref() };
        object.raw(out, "input_schema", schema.unwrap_or(kit::EMPTY_SCHEMA));
        if tool.is_strict == Some(true) {
            object.boolean(out, "strict", true);
        }
        let mark = (marks.tools && place + 1 == all.len()).then_some(Cache::Short);
        cache_control(tool.cache.or(mark), &mut object, out);
        object.end(out);
    }
    list.end(out);
    let choice = parts.iter().find_map(|part| match part {
        PromptPart::ToolChoice(choice) => Some(choice),
        _ => None,
    });
    let is_single = parts.iter().any(|part| matches!(part, PromptPart::ParallelTools(false)));
    if choice.is_some() || is_single {
        members.key(out, "tool_choice");
        claude::tool_choice(choice.unwrap_or(&ToolChoice::Auto), is_single, out);
    }
}

fn messages(
    conversation: &AlternatingTurns<'_>,
    marks: &CacheMarks,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut list = Members::array(out);
    for (place, turn) in conversation.turns.iter().enumerate() {
        list.next(out);
        let mut message = Members::object(out);
        let role = if turn.role == Speaker::User { "user" } else { "assistant" };
        message.text(out, "role", role);
        message.key(out, "content");
        let mut blocks = Members::array(out);
        let is_marked = marks.turns.contains(&place);
        for (place, block) in turn.blocks.iter().enumerate() {
            let mark = (is_marked && place + 1 == turn.blocks.len()).then_some(Cache::Short);
            write_block(block, mark, &mut blocks, out)?;
        }
        blocks.end(out);
        message.end(out);
    }
    list.end(out);
    Ok(())
}

fn write_block(
    block: &Block<'_>,
    mark: Option<Cache>,
    list: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    match block {
        Block::Instruction(one) => {
            list.next(out);
            text(&one.text, one.cache.or(mark), out);
        }
        Block::Part(PromptPart::Reasoning(one)) => {
            let Some(own) = own_seal(one) else { return Ok(()) };
            list.next(out);
            let mut object = Members::object(out);
            match own {
                OwnSeal::Signature(signature) => {
                    object.text(out, "type", "thinking");
                    object.text(out, "thinking", &one.text);
                    object.text(out, "signature", signature);
                }
                OwnSeal::Redacted(data) => {
                    object.text(out, "type", "redacted_thinking");
                    object.text(out, "data", data);
                }
            }
            object.end(out);
        }
        Block::Part(PromptPart::ToolCall(call)) => {
            list.next(out);
            tool_use(call, mark, out)?;
        }
        Block::Part(PromptPart::ToolResult(result)) => {
            list.next(out);
            tool_result(result, mark, out)?;
        }
        Block::Part(PromptPart::Content(one)) => content(one, mark, list, out)?,
        Block::Part(_) => {}
    }
    Ok(())
}

fn tool_use(
    call: &ToolCall<'_>,
    mark: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", "tool_use");
    object.text(out, "id", &call.id);
    object.text(out, "name", &call.name);
    object.raw(out, "input", &kit::object_input(call)?);
    cache_control(call.cache.or(mark), &mut object, out);
    object.end(out);
    Ok(())
}

fn tool_result(
    result: &ToolResult<'_>,
    mark: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", "tool_result");
    object.text(out, "tool_use_id", &result.id);
    if !result.content.is_empty() {
        object.key(out, "content");
        let mut list = Members::array(out);
        for one in &result.content {
            content(one, None, &mut list, out)?;
        }
        list.end(out);
    }
    if result.is_error {
        object.boolean(out, "is_error", true);
    }
    cache_control(result.cache.or(mark), &mut object, out);
    object.end(out);
    Ok(())
}

fn content(
    content: &ContentPart<'_>,
    mark: Option<Cache>,
    list: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    match content {
        // An empty text is refused there, and says nothing.
        ContentPart::Text(one) if one.text.is_empty() => {}
        ContentPart::Text(one) => {
            list.next(out);
            text(&one.text, one.cache.or(mark), out);
        }
        ContentPart::Refusal(one) => {
            list.next(out);
            text(one, mark, out);
        }
        ContentPart::Image(media) => {
            list.next(out);
            write_media("image", media, mark, out)?;
        }
        ContentPart::File(media) => {
            list.next(out);
            write_media("document", media, mark, out)?;
        }
        ContentPart::Audio(_) => return Err(Untranslatable::uncarried("messages.content: audio")),
        ContentPart::Video(_) => {
            return Err(Untranslatable::uncarried("messages.content: a video"));
        }
    }
    Ok(())
}

fn write_media(
    kind: &str,
    media: &MediaPart<'_>,
    mark: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", kind);
    object.key(out, "source");
    let mut source = Members::object(out);
    match &media.source {
        Source::Url(url) => {
            source.text(out, "type", "url");
            source.text(out, "url", url);
        }
        Source::Inline { media_type, data } => {
            source.text(out, "type", "base64");
            source.text(out, "media_type", media_type);
            source.text(out, "data", data);
        }
        Source::Plain(text) => {
            source.text(out, "type", "text");
            source.text(out, "media_type", "text/plain");
            source.text(out, "data", text);
        }
    }
    source.end(out);
    if let Some(name) = media.name.as_ref().filter(|_| kind == "document") {
        object.text(out, "title", name);
    }
    cache_control(media.cache.or(mark), &mut object, out);
    object.end(out);
    Ok(())
}

/// Top-level fields beside tools and what is said.
struct MessageSettings<'w> {
    target: &'w TranslationTarget,
    losses: &'w mut Losses,
    members: &'w mut Members,
    out: &'w mut Vec<u8>,
    thinks: bool,
}

impl MessageSettings<'_> {
    fn write(
        &mut self,
        parts: &[PromptPart<'_>],
        thinks: Option<Thinks>,
    ) -> Result<(), Untranslatable> {
        if let Some(thinks) = thinks {
            self.members.key(self.out, "thinking");
            thinks.write(self.out);
        }
        let has_temperature =
            parts.iter().any(|part| matches!(part, PromptPart::Sampling(Sampling::Temperature(_))));
        let mut format = None;
        for part in parts {
            match part {
                PromptPart::Stop(texts) => self.stop(texts),
                PromptPart::Format(one) => format = Some(one),
                PromptPart::Sampling(one) => self.sampling(*one, has_temperature)?,
                PromptPart::User(user) if user.len() <= USER_BYTES_MAX => {
                    self.members.key(self.out, "metadata");
                    let mut object = Members::object(self.out);
                    object.text(self.out, "user_id", user);
                    object.end(self.out);
                }
                PromptPart::User(_) => self.drop_hint("user")?,
                PromptPart::Verbosity(_) => self.drop_hint("verbosity")?,
                _ => {}
            }
        }
        self.output_config(thinks.and_then(Thinks::effort), format)
    }

    fn drop_hint(&mut self, field: &'static str) -> Result<(), Untranslatable> {
        self.losses.drop_hint(self.target.mode, field)
    }

    fn stop(&mut self, texts: &[Cow<'_, str>]) {
        if texts.is_empty() {
            return;
        }
        self.members.key(self.out, "stop_sequences");
        let mut list = Members::array(self.out);
        for text in texts {
            list.next(self.out);
            json::push_string(self.out, text);
        }
        list.end(self.out);
    }

    fn output_config(
        &mut self,
        effort: Option<&str>,
        format: Option<&AnswerFormat<'_>>,
    ) -> Result<(), Untranslatable> {
        if effort.is_none() && format.is_none() {
            return Ok(());
        }
        self.members.key(self.out, "output_config");
        let mut object = Members::object(self.out);
        if let Some(effort) = effort {
            object.text(self.out, "effort", effort);
        }
        match format {
            None => {}
            Some(AnswerFormat::Json) => return Err(Untranslatable::uncarried("response_format")),
            Some(AnswerFormat::Schema { schema, .. }) => {
                object.key(self.out, "format");
                let mut format = Members::object(self.out);
                format.text(self.out, "type", "json_schema");
                format.raw(self.out, "schema", schema);
                format.end(self.out);
            }
        }
        object.end(self.out);
        Ok(())
    }

    fn sampling(
        &mut self,
        sampling: Sampling,
        has_temperature: bool,
    ) -> Result<(), Untranslatable> {
        let field = sampling.field();
        let is_taken =
            self.target.takes_sampling && claude::takes(sampling, self.thinks, has_temperature);
        if !is_taken {
            return self.drop_hint(field);
        }
        match sampling {
            Sampling::Temperature(number) | Sampling::TopP(number) => {
                self.members.key(self.out, field);
                json::push_number(self.out, number);
            }
            Sampling::TopK(count) => self.members.integer(self.out, field, count),
            _ => {}
        }
        Ok(())
    }
}
