//! Parts as a request for content for an upstream.

use std::collections::HashMap;

use crate::dialect::{Losses, ThinkingStyle, TranslationTarget, Untranslatable};
use crate::gemini::FOREIGN_CALL_SIGNATURE;
use crate::gemini::read::media_type_of;
use crate::gemini::write_settings;
use crate::json::Members;
use crate::kit;
use crate::part::{
    ContentPart, MediaPart, PromptPart, Reasoning, Source, Speaker, ToolCall, ToolResult,
};
use crate::seal::{self, Maker};

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    let conversation = WrittenConversation::gather(parts);
    if !conversation.system.is_empty() {
        members.key(&mut out, "systemInstruction");
        let mut content = Members::object(&mut out);
        content.key(&mut out, "parts");
        let mut list = Members::array(&mut out);
        for one in &conversation.system {
            list.next(&mut out);
            text(one, &mut out);
        }
        list.end(&mut out);
        content.end(&mut out);
    }
    write_settings::tools(parts, target.mode, losses, &mut members, &mut out)?;
    members.key(&mut out, "contents");
    let mut list = Members::array(&mut out);
    for turn in &conversation.turns {
        list.next(&mut out);
        let mut written = WrittenTurn { conversation: &conversation, target, losses };
        written.write(turn, &mut out)?;
    }
    list.end(&mut out);
    write_settings::generation(parts, target, losses, &mut members, &mut out)?;
    members.end(&mut out);
    Ok(out)
}

/// What is said, in turns of changing roles.
struct WrittenConversation<'p> {
    /// The instructions before the first turn.
    system: Vec<&'p str>,
    turns: Vec<MergedTurn<'p>>,
    /// The names of the tools that were called, by the ids of the calls.
    calls: HashMap<&'p str, &'p str>,
}

struct MergedTurn<'p> {
    role: Speaker,
    /// What it is made of, with the results of tools before all else.
    parts: Vec<&'p PromptPart<'p>>,
}

impl<'p> WrittenConversation<'p> {
    fn gather(parts: &'p [PromptPart<'p>]) -> Self {
        let mut gathered = Self { system: Vec::new(), turns: Vec::new(), calls: HashMap::new() };
        for part in parts {
            match part {
                PromptPart::Instruction(text) if gathered.turns.is_empty() => {
                    gathered.system.push(&text.text);
                }
                // In the middle of a conversation only a user can give one.
                PromptPart::Instruction(_) => gathered.turn(Speaker::User).push(part),
                PromptPart::Turn(role) => drop(gathered.turn(*role)),
                PromptPart::ToolResult(_) => {
                    let parts = gathered.turn(Speaker::User);
                    let is_result =
                        |part: &&&PromptPart<'_>| matches!(part, PromptPart::ToolResult(_));
                    let place = parts.iter().take_while(is_result).count();
                    parts.insert(place, part);
                }
                PromptPart::Reasoning(one) if own_token(one).is_none() => {}
                PromptPart::ToolCall(call) => {
                    gathered.calls.insert(&call.id, &call.name);
                    gathered.turn(Speaker::Assistant).push(part);
                }
                PromptPart::Content(_) | PromptPart::Reasoning(_) => {
                    if let Some(turn) = gathered.turns.last_mut() {
                        turn.parts.push(part);
                    }
                }
                _ => {}
            }
        }
        gathered.turns.retain(|turn| !turn.parts.is_empty());
        gathered.merge();
        gathered
    }

    /// The parts of the open turn, if this role speaks in it, or of a new one.
    fn turn(&mut self, role: Speaker) -> &mut Vec<&'p PromptPart<'p>> {
        if self.turns.last().is_none_or(|turn| turn.role != role) {
            self.turns.push(MergedTurn { role, parts: Vec::new() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last].parts
    }

    /// Turns of one role that stand together become one.
    fn merge(&mut self) {
        let mut merged: Vec<MergedTurn<'p>> = Vec::with_capacity(self.turns.len());
        for turn in self.turns.drain(..) {
            match merged.last_mut() {
                Some(last) if last.role == turn.role => last.parts.extend(turn.parts),
                _ => merged.push(turn),
            }
        }
        self.turns = merged;
    }

    /// The name of the tool whose call has this id: of several, the last.
    fn name(&self, id: &str) -> Result<&'p str, Untranslatable> {
        let wanted = "the result of a call that stands before it";
        let lost = || Untranslatable::malformed("messages: tool result", wanted);
        self.calls.get(id).copied().ok_or_else(lost)
    }
}

/// The signature that Gemini has given a thought; empty thoughts without one say nothing.
fn own_token<'s>(one: &'s Reasoning<'_>) -> Option<&'s str> {
    let token = one.seal.as_deref().and_then(|seal| seal::open(Maker::Gemini, seal));
    // A summary that was not signed is none of the prompt's.
    token.filter(|token| !token.is_empty())
}

fn text(text: &str, out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    object.text(out, "text", text);
    object.end(out);
}

/// A turn that is being written.
struct WrittenTurn<'w> {
    conversation: &'w WrittenConversation<'w>,
    target: &'w TranslationTarget,
    losses: &'w mut Losses,
}

impl WrittenTurn<'_> {
    fn write(&mut self, turn: &MergedTurn<'_>, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
        let mut content = Members::object(out);
        let role = if turn.role == Speaker::User { "user" } else { "model" };
        content.text(out, "role", role);
        content.key(out, "parts");
        let mut list = Members::array(out);
        let has_seal = |part: &&PromptPart<'_>| matches!(part, PromptPart::ToolCall(call) if call_signature(call).is_some());
        // Only the first of parallel calls is signed.
        let mut lacks_signature =
            self.target.thinking == ThinkingStyle::Effort && !turn.parts.iter().any(has_seal);
        for part in &turn.parts {
            match part {
                PromptPart::Instruction(one) => {
                    list.next(out);
                    text(&one.text, out);
                }
                PromptPart::Reasoning(one) => {
                    list.next(out);
                    thought(one, out);
                }
                PromptPart::ToolCall(call) => {
                    list.next(out);
                    let is_foreign = std::mem::take(&mut lacks_signature);
                    let foreign = is_foreign.then_some(FOREIGN_CALL_SIGNATURE);
                    tool_call(call, call_signature(call).or(foreign), out)?;
                }
                PromptPart::ToolResult(result) => self.result(result, &mut list, out)?,
                PromptPart::Content(one) => self.content(one, turn.role, &mut list, out)?,
                _ => {}
            }
        }
        list.end(out);
        content.end(out);
        Ok(())
    }

    fn result(
        &mut self,
        result: &ToolResult<'_>,
        list: &mut Members,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let name = self.conversation.name(&result.id)?;
        let (mut texts, mut media) = (Vec::new(), Vec::new());
        for content in &result.content {
            match content {
                ContentPart::Text(text) => texts.push(&*text.text),
                ContentPart::Refusal(text) => texts.push(&**text),
                other => media.push(other),
            }
        }
        list.next(out);
        let mut part = Members::object(out);
        part.key(out, "functionResponse");
        let mut response = Members::object(out);
        response.text(out, "id", &result.id);
        response.text(out, "name", name);
        response.key(out, "response");
        let mut output = Members::object(out);
        let key = if result.is_error { "error" } else { "output" };
        output.text(out, key, &texts.join("\n"));
        output.end(out);
        response.end(out);
        part.end(out);
        if !media.is_empty() {
            list.next(out);
            text(&format!("The tool call {} has shown:", result.id), out);
        }
        for one in media {
            self.content(one, Speaker::User, list, out)?;
        }
        Ok(())
    }

    fn content(
        &mut self,
        content: &ContentPart<'_>,
        role: Speaker,
        list: &mut Members,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        match content {
            // An empty text says nothing, and is refused in some places.
            ContentPart::Text(one) if one.text.is_empty() => {}
            ContentPart::Text(one) => {
                list.next(out);
                text(&one.text, out);
            }
            ContentPart::Refusal(one) => {
                list.next(out);
                text(one, out);
            }
            ContentPart::Image(media)
            | ContentPart::File(media)
            | ContentPart::Audio(media)
            | ContentPart::Video(media) => {
                if role == Speaker::Assistant {
                    let field = "messages.content: media of the assistant";
                    return Err(Untranslatable::uncarried(field));
                }
                if media.name.is_some() {
                    self.losses.drop_hint(self.target.mode, "filename")?;
                }
                if media.detail.as_deref().is_some_and(|detail| detail != "auto") {
                    self.losses.drop_hint(self.target.mode, "detail")?;
                }
                list.next(out);
                write_media(media, out);
            }
        }
        Ok(())
    }
}

fn thought(one: &Reasoning<'_>, out: &mut Vec<u8>) {
    let mut part = Members::object(out);
    part.text(out, "text", &one.text);
    if !one.text.is_empty() {
        part.boolean(out, "thought", true);
    }
    part.text(out, "thoughtSignature", own_token(one).unwrap_or_default());
    part.end(out);
}

/// The signature that Gemini has given a call.
fn call_signature<'c>(call: &'c ToolCall<'_>) -> Option<&'c str> {
    let token = call.seal.as_deref().and_then(|seal| seal::open(Maker::Gemini, seal));
    token.filter(|token| !token.is_empty())
}

fn tool_call(
    call: &ToolCall<'_>,
    signature: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut part = Members::object(out);
    part.key(out, "functionCall");
    let mut inner = Members::object(out);
    inner.text(out, "id", &call.id);
    inner.text(out, "name", &call.name);
    inner.raw(out, "args", &kit::object_input(call)?);
    inner.end(out);
    if let Some(signature) = signature {
        part.text(out, "thoughtSignature", signature);
    }
    part.end(out);
    Ok(())
}

fn write_media(media: &MediaPart<'_>, out: &mut Vec<u8>) {
    let mut part = Members::object(out);
    match &media.source {
        Source::Inline { media_type, data } => {
            part.key(out, "inlineData");
            let mut inner = Members::object(out);
            inner.text(out, "mimeType", media_type);
            inner.text(out, "data", data);
            inner.end(out);
        }
        Source::Url(url) => {
            part.key(out, "fileData");
            let mut inner = Members::object(out);
            if let Some(media_type) = media_type_of(url) {
                inner.text(out, "mimeType", media_type);
            }
            inner.text(out, "fileUri", url);
            inner.end(out);
        }
        Source::Plain(text) => part.text(out, "text", text),
    }
    part.end(out);
}
