//! Parts as a request for content for an upstream.

use crate::call_input;
use crate::claude::PREFILL;
use crate::dialect::{Losses, ThinkingStyle, TranslationTarget, Untranslatable};
use crate::gemini::FOREIGN_CALL_SIGNATURE;
use crate::gemini::read::media_type_of;
use crate::gemini::write_settings;
use crate::json::Members;
use crate::media::MediaContent;
use crate::part::{ContentPart, MediaPart, PromptPart, Reasoning, Speaker, ToolCall, ToolResult};
use crate::seal::{self, Maker};
use crate::turns::{self, AlternatingTurns, MergedTurn, TrailingThoughts, TurnBlock, TurnContent};

/// The pictures that Gemini takes.
const IMAGES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    let is_own = |one: &Reasoning<'_>| own_token(one).is_some();
    let mut conversation = AlternatingTurns::gather(parts, TrailingThoughts::Stay, is_own);
    if target.thinking == ThinkingStyle::Effort && conversation.ends_with_assistant() {
        // "Requests ending with a model turn are not supported" (litellm PR 38652, of Gemini 3).
        losses.drop_hint(target.mode, PREFILL)?;
        conversation.end_with_user();
    }
    if !conversation.system.is_empty() {
        members.key(&mut out, "systemInstruction");
        let mut content = Members::object(&mut out);
        content.key(&mut out, "parts");
        let mut list = Members::array(&mut out);
        for one in &conversation.system {
            list.next(&mut out);
            text(one.text, &mut out);
        }
        list.end(&mut out);
        content.end(&mut out);
    }
    write_settings::tools(parts, &conversation, target, losses, &mut members, &mut out)?;
    members.key(&mut out, "contents");
    let mut list = Members::array(&mut out);
    for turn in &conversation.turns {
        let mut written = WrittenTurn { target, losses };
        written.write(turn, &mut list, &mut out)?;
    }
    list.end(&mut out);
    write_settings::generation(parts, target, losses, &mut members, &mut out)?;
    members.end(&mut out);
    Ok(out)
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

/// A turn being written.
struct WrittenTurn<'w> {
    target: &'w TranslationTarget,
    losses: &'w mut Losses,
}

impl WrittenTurn<'_> {
    /// Writes the results of a turn as one content and the rest as another: Vertex AI refuses both in one
    /// with "Requests ending with a model turn are not supported" (CLIProxyAPI 5607), and takes results
    /// that follow each other in several contents for too few (llumiverse PR 620).
    fn write(
        &mut self,
        turn: &MergedTurn<'_>,
        contents: &mut Members,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let count = turn.blocks.iter().take_while(|block| block.content.is_result()).count();
        // Results stand first in a turn, as `turns` has put them.
        let (results, rest) = turn.blocks.split_at(count);
        let mut shown = Vec::new();
        if !results.is_empty() {
            let mut list = begin_content(turn.role, contents, out);
            for block in results {
                if let TurnContent::Result(call, result) = &block.content {
                    list.next(out);
                    function_response(call, *result, out);
                    let media = result.map_or(&[][..], |result| &result.content);
                    let mut media = media.iter().filter(|one| turns::text_of(one).is_none());
                    if let Some(first) = media.next() {
                        // A function's response is JSON: pictures follow in a content of their own,
                        // named by the call.
                        shown.push((&call.id, first, media));
                    }
                }
            }
            end_content(list, out);
        }
        if shown.is_empty() && rest.is_empty() {
            return Ok(());
        }
        let mut list = begin_content(turn.role, contents, out);
        for (id, first, more) in shown {
            list.next(out);
            text(&format!("The tool call {id} has shown:"), out);
            for one in std::iter::once(first).chain(more) {
                self.content(one, Speaker::User, &mut list, out)?;
            }
        }
        self.blocks(turn.role, rest, &mut list, out)?;
        end_content(list, out);
        Ok(())
    }

    fn blocks(
        &mut self,
        role: Speaker,
        blocks: &[TurnBlock<'_>],
        list: &mut Members,
        out: &mut Vec<u8>,
    ) -> Result<(), Untranslatable> {
        let has_seal = |block: &TurnBlock<'_>| matches!(block.content, TurnContent::Call(call) if call_signature(call).is_some());
        // Only the first of parallel calls is signed.
        let mut lacks_signature =
            self.target.thinking == ThinkingStyle::Effort && !blocks.iter().any(has_seal);
        for block in blocks {
            match &block.content {
                TurnContent::Note(one) => {
                    list.next(out);
                    text(one, out);
                }
                TurnContent::Reasoning(one) => {
                    list.next(out);
                    thought(one, out);
                }
                TurnContent::Call(call) => {
                    list.next(out);
                    // The first call alone needs one, as Gemini signs only that of parallel calls.
                    let is_foreign = std::mem::take(&mut lacks_signature);
                    let foreign = is_foreign.then_some(FOREIGN_CALL_SIGNATURE);
                    tool_call(call, call_signature(call).or(foreign), out)?;
                }
                TurnContent::Content(one) => self.content(one, role, list, out)?,
                // They stand before all else.
                TurnContent::Result(..) => {}
            }
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
                write_media(media, out)?;
            }
        }
        Ok(())
    }
}

/// Begins a content, and the list of its parts.
fn begin_content(role: Speaker, contents: &mut Members, out: &mut Vec<u8>) -> Members {
    contents.next(out);
    let role: &[u8] = if role == Speaker::User { b"user" } else { b"model" };
    out.extend_from_slice(b"{\"role\":\"");
    out.extend_from_slice(role);
    out.extend_from_slice(b"\",\"parts\":");
    Members::array(out)
}

fn end_content(parts: Members, out: &mut Vec<u8>) {
    parts.end(out);
    out.push(b'}');
}

/// Writes the result of a call. "the number of function response parts is equal to the number of function
/// call parts of the function call turn" (gemini-cli 3814), so a call without a result gets a placeholder.
fn function_response(call: &ToolCall<'_>, result: Option<&ToolResult<'_>>, out: &mut Vec<u8>) {
    let content = result.map_or(&[][..], |result| &result.content);
    let texts: Vec<&str> = content.iter().filter_map(turns::text_of).collect();
    let text = match result {
        Some(_) => texts.join("\n"),
        None => turns::NO_RESULT.to_owned(),
    };
    let mut part = Members::object(out);
    part.key(out, "functionResponse");
    let mut response = Members::object(out);
    response.text(out, "id", &call.id);
    response.text(out, "name", &call.name);
    response.key(out, "response");
    let mut output = Members::object(out);
    let is_error = result.is_none_or(|result| result.is_error);
    output.text(out, if is_error { "error" } else { "output" }, &text);
    output.end(out);
    response.end(out);
    part.end(out);
}

fn thought(one: &Reasoning<'_>, out: &mut Vec<u8>) {
    let mut part = Members::object(out);
    part.text(out, "text", &one.text);
    // Without text it is the part of a signature alone, which Gemini marks as no thought.
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
    inner.raw(out, "args", &call_input::object_input(call)?);
    inner.end(out);
    if let Some(signature) = signature {
        part.text(out, "thoughtSignature", signature);
    }
    part.end(out);
    Ok(())
}

/// A picture, a document, a recording or a video, by what it is. Pictures are of the types that Google
/// lists ("Image understanding"), documents are PDF files, and texts are texts: other files are "Unsupported
/// MIME type".
fn write_media(media: &MediaPart<'_>, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
    let mut part = Members::object(out);
    let (media_type, data) = match MediaContent::from_part(media) {
        MediaContent::Url(url) => {
            part.key(out, "fileData");
            let mut inner = Members::object(out);
            if let Some(media_type) = media_type_of(url) {
                inner.text(out, "mimeType", media_type);
            }
            inner.text(out, "fileUri", url);
            inner.end(out);
            part.end(out);
            return Ok(());
        }
        MediaContent::Text(text) => {
            part.text(out, "text", &text);
            part.end(out);
            return Ok(());
        }
        MediaContent::Image(media_type, data) if IMAGES.contains(&&*media_type) => {
            (media_type, data)
        }
        MediaContent::Image(..) => {
            return Err(Untranslatable::uncarried("messages.content: an image of this type"));
        }
        MediaContent::Pdf(data) => ("application/pdf".into(), data),
        MediaContent::Other(media_type, data)
            if media_type.starts_with("audio/") || media_type.starts_with("video/") =>
        {
            (media_type, data)
        }
        MediaContent::Other(..) => {
            return Err(Untranslatable::uncarried("messages.content: a document of this type"));
        }
    };
    part.key(out, "inlineData");
    let mut inner = Members::object(out);
    inner.text(out, "mimeType", &media_type);
    inner.text(out, "data", data);
    inner.end(out);
    part.end(out);
    Ok(())
}
