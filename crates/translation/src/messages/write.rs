//! Parts as a message for an upstream.

use std::borrow::Cow;

use crate::call_input;
use crate::claude::{self, ThinkingSetting};
use crate::dialect::{Losses, TranslationTarget, Untranslatable};
use crate::json::{self, Members};
use crate::media::MediaContent;
use crate::part::{
    AnswerFormat, Cache, ContentPart, MediaPart, PromptPart, Reasoning, Sampling, Speaker,
    ToolCall, ToolChoice, ToolResult,
};
use crate::schemas::{self, Subset};
use crate::seal::{self, Maker};
use crate::turns::{self, AlternatingTurns, CacheMarks, TrailingThoughts, TurnBlock, TurnContent};
use crate::upstream_tools::{self, UpstreamTools};

/// The pictures that Claude takes.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The longest name of a customer's user, in bytes.
const USER_BYTES_MAX: usize = 256;

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let is_own = |one: &Reasoning<'_>| own_seal(one).is_some();
    let mut conversation = AlternatingTurns::gather(parts, TrailingThoughts::Drop, is_own);
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    let requested = parts.iter().find_map(|part| match part {
        PromptPart::OutputMax(tokens) => Some(*tokens),
        _ => None,
    });
    // `max_tokens` is required here, unlike in all other dialects.
    let output_max = requested.unwrap_or(target.output_max);
    members.integer(&mut out, "max_tokens", output_max);
    // Before the turns are ended: whether the model thinks decides if it may begin with given text.
    let thinks = claude::thinking(parts, output_max, target, losses, &conversation)?;
    claude::end_turns(&mut conversation, parts, thinks, target, losses)?;
    let mut offer =
        UpstreamTools::gather(parts, &conversation, Some(Subset::Claude), target, losses)?;
    let marks = std::mem::take(&mut offer.marks);
    // After the turns have their final form: at most four marks of tools, system and turns together
    // remain.
    let marks = CacheMarks::place(marks, &mut conversation, target, losses)?;
    tools(&offer, &marks, &mut members, &mut out);
    choose_tools(parts, &offer, &mut members, &mut out);
    if !conversation.system.is_empty() {
        members.key(&mut out, "system");
        let mut list = Members::array(&mut out);
        for one in &conversation.system {
            list.next(&mut out);
            text(one.text, one.cache, &mut out);
        }
        list.end(&mut out);
    }
    members.key(&mut out, "messages");
    messages(&conversation, &mut out)?;
    let mut settings = MessageSettings {
        target,
        losses,
        members: &mut members,
        out: &mut out,
        thinks: thinks.is_some_and(ThinkingSetting::is_on),
    };
    settings.write(parts, thinks)?;
    if target.streams {
        members.raw(&mut out, "stream", "true");
    }
    members.end(&mut out);
    Ok(out)
}

/// The token of a thought that Anthropic sealed.
fn own_seal<'s>(one: &'s Reasoning<'_>) -> Option<ThinkingSeal<'s>> {
    let seal = one.seal.as_deref()?;
    let signature = seal::open(Maker::Messages, seal).map(ThinkingSeal::Signature);
    signature.or_else(|| seal::open(Maker::MessagesRedacted, seal).map(ThinkingSeal::Redacted))
}

enum ThinkingSeal<'s> {
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

fn tools(offer: &UpstreamTools<'_>, marks: &CacheMarks, members: &mut Members, out: &mut Vec<u8>) {
    if offer.tools.is_empty() {
        return;
    }
    members.key(out, "tools");
    let mut list = Members::array(out);
    for (tool, mark) in offer.tools.iter().zip(&marks.tools) {
        list.next(out);
        let mut object = Members::object(out);
        object.text(out, "name", tool.name);
        if let Some(description) = tool.description {
            object.text(out, "description", description);
        }
        object.raw(out, "input_schema", &tool.schema);
        if tool.is_strict {
            object.boolean(out, "strict", true);
        }
        cache_control(*mark, &mut object, out);
        object.end(out);
    }
    list.end(out);
}

fn choose_tools(
    parts: &[PromptPart<'_>],
    offer: &UpstreamTools<'_>,
    members: &mut Members,
    out: &mut Vec<u8>,
) {
    let choice = match offer.is_history {
        // The tools are declared for the calls of earlier turns alone: nobody has offered them now.
        true => Some(&ToolChoice::None),
        false => upstream_tools::tool_choice(parts),
    };
    let is_single = upstream_tools::is_single(parts);
    if offer.tools.is_empty() || choice.is_none() && !is_single {
        return;
    }
    members.key(out, "tool_choice");
    claude::tool_choice(choice.unwrap_or(&ToolChoice::Auto), is_single, out);
}

fn messages(conversation: &AlternatingTurns<'_>, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
    let mut list = Members::array(out);
    for turn in &conversation.turns {
        list.next(out);
        let mut message = Members::object(out);
        let role = if turn.role == Speaker::User { "user" } else { "assistant" };
        message.text(out, "role", role);
        message.key(out, "content");
        let mut blocks = Members::array(out);
        for block in &turn.blocks {
            blocks.next(out);
            write_block(block, out)?;
        }
        blocks.end(out);
        message.end(out);
    }
    list.end(out);
    Ok(())
}

fn write_block(block: &TurnBlock<'_>, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
    match &block.content {
        TurnContent::Note(one) => text(one, block.cache, out),
        TurnContent::Reasoning(one) => reasoning(one, out),
        TurnContent::Call(call) => tool_use(call, block.cache, out)?,
        TurnContent::Result(call, result) => tool_result(call, *result, block.cache, out)?,
        TurnContent::Content(one) => content(one, block.cache, out)?,
    }
    Ok(())
}

fn reasoning(one: &Reasoning<'_>, out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    match own_seal(one) {
        Some(ThinkingSeal::Signature(signature)) => {
            object.text(out, "type", "thinking");
            object.text(out, "thinking", &one.text);
            object.text(out, "signature", signature);
        }
        Some(ThinkingSeal::Redacted(data)) => {
            object.text(out, "type", "redacted_thinking");
            object.text(out, "data", data);
        }
        // The others are no part of the conversation.
        None => {}
    }
    object.end(out);
}

fn tool_use(
    call: &ToolCall<'_>,
    cache: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", "tool_use");
    object.text(out, "id", &call.id);
    object.text(out, "name", &call.name);
    object.raw(out, "input", &call_input::object_input(call)?);
    cache_control(cache, &mut object, out);
    object.end(out);
    Ok(())
}

fn tool_result(
    call: &ToolCall<'_>,
    result: Option<&ToolResult<'_>>,
    cache: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", "tool_result");
    object.text(out, "tool_use_id", &call.id);
    let is_error = result.is_none_or(|result| result.is_error);
    let mut list = Vec::new();
    let mut blocks = Members::array(&mut list);
    for one in result.map_or(&[][..], |result| &result.content) {
        if !turns::text_of(one).is_some_and(turns::is_blank) {
            blocks.next(&mut list);
            content(one, None, &mut list)?;
        }
    }
    // Only the bracket is there: "content cannot be empty if `is_error` is true".
    if list.len() == 1 && is_error {
        blocks.next(&mut list);
        let placeholder = if result.is_none() { turns::NO_RESULT } else { turns::EMPTY_FAILURE };
        text(placeholder, None, &mut list);
    }
    if list.len() > 1 {
        blocks.end(&mut list);
        object.key(out, "content");
        out.extend_from_slice(&list);
    }
    if is_error {
        object.boolean(out, "is_error", true);
    }
    cache_control(cache, &mut object, out);
    object.end(out);
    Ok(())
}

fn content(
    content: &ContentPart<'_>,
    cache: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    match content {
        ContentPart::Text(one) => text(&one.text, cache, out),
        ContentPart::Refusal(one) => text(one, cache, out),
        ContentPart::Image(media) | ContentPart::File(media) => {
            let is_image = matches!(content, ContentPart::Image(_));
            write_media(is_image, media, cache, out)?;
        }
        ContentPart::Audio(_) => return Err(Untranslatable::uncarried("messages.content: audio")),
        ContentPart::Video(_) => {
            return Err(Untranslatable::uncarried("messages.content: a video"));
        }
    }
    Ok(())
}

/// A picture or a document, by what it is: "Input should be 'image/jpeg', 'image/png', 'image/gif' or
/// 'image/webp'" (claude-code 8184), and documents in base64 are PDF files.
fn write_media(
    is_image: bool,
    media: &MediaPart<'_>,
    cache: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let shown = MediaContent::from_part(media);
    let is_image = match shown {
        MediaContent::Image(..) => true,
        // The gateway fetches nothing: of a URL there is only the customer's word for what it is.
        MediaContent::Url(_) => is_image,
        MediaContent::Pdf(_) | MediaContent::Text(_) | MediaContent::Other(..) => false,
    };
    let mut object = Members::object(out);
    object.text(out, "type", if is_image { "image" } else { "document" });
    object.key(out, "source");
    let mut source = Members::object(out);
    match &shown {
        MediaContent::Url(url) => {
            source.text(out, "type", "url");
            source.text(out, "url", url);
        }
        MediaContent::Image(media_type, data) if IMAGES.contains(&&**media_type) => {
            base64_source(media_type, data, &mut source, out);
        }
        MediaContent::Pdf(data) => base64_source("application/pdf", data, &mut source, out),
        MediaContent::Text(text) => {
            source.text(out, "type", "text");
            source.text(out, "media_type", "text/plain");
            source.text(out, "data", text);
        }
        MediaContent::Image(..) => {
            return Err(Untranslatable::uncarried("messages.content: an image of this type"));
        }
        MediaContent::Other(..) => {
            return Err(Untranslatable::uncarried("messages.content: a document of this type"));
        }
    }
    source.end(out);
    // Only documents have a title, and a blank one says nothing.
    if let Some(name) = media.name.as_ref().filter(|name| !is_image && !name.trim().is_empty()) {
        object.text(out, "title", name);
    }
    cache_control(cache, &mut object, out);
    object.end(out);
    Ok(())
}

fn base64_source(media_type: &str, data: &str, source: &mut Members, out: &mut Vec<u8>) {
    source.text(out, "type", "base64");
    source.text(out, "media_type", media_type);
    source.text(out, "data", data);
}

/// Top-level fields other than tools and the conversation.
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
        thinks: Option<ThinkingSetting>,
    ) -> Result<(), Untranslatable> {
        if let Some(thinks) = thinks {
            self.members.key(self.out, "thinking");
            thinks.write(self.out);
        }
        let has_temperature =
            self.target.takes_sampling && claude::has_temperature(parts, self.thinks);
        let mut format = None;
        for part in parts {
            match part {
                PromptPart::Stop(texts) => self.stop(texts)?,
                PromptPart::Format(one) => format = Some(one),
                PromptPart::Sampling(one) => self.sampling(*one, has_temperature)?,
                PromptPart::User(user) if is_opaque(user) => {
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
        self.output_config(thinks.and_then(ThinkingSetting::effort), format)
    }

    fn drop_hint(&mut self, field: &'static str) -> Result<(), Untranslatable> {
        self.losses.drop_hint(self.target.mode, field)
    }

    /// "Each stop sequence must contain non-whitespace" (litellm 3286).
    fn stop(&mut self, texts: &[Cow<'_, str>]) -> Result<(), Untranslatable> {
        if texts.iter().any(|text| turns::is_blank(text)) {
            self.drop_hint("stop")?;
        }
        let mut texts = texts.iter().filter(|text| !turns::is_blank(text)).peekable();
        if texts.peek().is_none() {
            return Ok(());
        }
        self.members.key(self.out, "stop_sequences");
        let mut list = Members::array(self.out);
        for text in texts {
            list.next(self.out);
            json::push_string(self.out, text);
        }
        list.end(self.out);
        Ok(())
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
            // Without a schema Claude may answer in prose: that is another answer than the requested
            // one.
            Some(AnswerFormat::Json) => return Err(Untranslatable::uncarried("response_format")),
            Some(AnswerFormat::Schema { schema, .. }) => {
                object.key(self.out, "format");
                let mut format = Members::object(self.out);
                format.text(self.out, "type", "json_schema");
                let fitted = schemas::fit(schema, Subset::Claude)?;
                format.raw(self.out, "schema", &fitted.text);
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
        // Newer models refuse sampling settings altogether, and models that think most of them.
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

/// True if Anthropic accepts the user's name as `user_id`. It refuses e-mail addresses ("user_id appears to
/// contain an email address") and telephone numbers.
fn is_opaque(user: &str) -> bool {
    let is_phone = |letter: char| letter.is_ascii_digit() || " +-().".contains(letter);
    let digits = user.chars().filter(char::is_ascii_digit).count();
    (1..=USER_BYTES_MAX).contains(&user.len())
        && !user.contains('@')
        && !(digits >= 7 && user.chars().all(is_phone))
}
