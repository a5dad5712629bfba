//! Reads a customer's `generateContent` request as parts.

use std::borrow::Cow;

use crate::customer_tools::CustomerTools;
use crate::dialect::{AnswerFrame, TranslatableRequest, Untranslatable};
use crate::field_path::{FieldPath, OmissionLog, Raw, document, is_given};
use crate::gemini::members::members;
use crate::gemini::{calls, fields, seal_of_signature, settings};
use crate::part::{
    ContentPart, MediaPart, PromptPart, Reasoning, Source, Speaker, Text, ToolCall, ToolResult,
};

/// Google's message for a request without contents.
const NO_CONTENTS: &str = "* GenerateContentRequest.contents: contents is not specified";

pub(super) fn request(body: &[u8]) -> Result<TranslatableRequest<'_>, Untranslatable> {
    let left_out = OmissionLog::default();
    let root = FieldPath::root(&left_out);
    let mut parts = Vec::new();
    // Instructions stand before the first turn, wherever the field stands.
    let mut conversation = ReadConversation::default();
    let (mut config, mut tools, mut has_contents) = (None, CustomerTools::default(), false);
    for (key, value) in members(&root, document(body)?)? {
        let at = root.key(&key);
        if !is_given(value) {
            continue;
        }
        match &*key {
            "contents" => {
                conversation.contents(&at, value)?;
                has_contents = !conversation.parts.is_empty();
            }
            "systemInstruction" => instructions(&at, value, &mut parts)?,
            "tools" => settings::tools(&at, value, &mut tools)?,
            "toolConfig" => config = Some(value),
            "generationConfig" => settings::generation(&at, value, &mut parts)?,
            _ => fields::REQUEST.field(&at, &key, value)?,
        }
    }
    if !has_contents {
        return Err(Untranslatable { field: "contents".into(), message: NO_CONTENTS.to_owned() });
    }
    if let Some(config) = config {
        settings::tool_config(&root.key("toolConfig"), config, &mut tools, &mut parts)?;
    }
    tools.put(&[], &mut parts);
    let ReadConversation { parts: mut conversation_parts, results } = conversation;
    calls::match_results(&mut conversation_parts, results)?;
    parts.extend(joined(conversation_parts));
    let frame = AnswerFrame { shows_usage: true, ..AnswerFrame::default() };
    let left_out = left_out.into_omissions();
    Ok(TranslatableRequest { parts, frame, left_out, caches: false })
}

/// The elements of an array; a single object stands for an array of one, as Google reads it.
fn list<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Vec<Raw<'a>>, Untranslatable> {
    if value.get().starts_with('{') { Ok(vec![value]) } else { at.list(value) }
}

fn instructions<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let mut found = None;
    for (key, value) in members(at, value)? {
        match &*key {
            "parts" => found = Some(value),
            _ => fields::CONTENT.field(&at.key(&key), &key, value)?,
        }
    }
    let at_parts = at.key("parts");
    let all = list(&at_parts, at.needed("parts", found)?)?;
    for (place, value) in all.into_iter().enumerate() {
        let at = at_parts.index(place);
        let mut instructions = None;
        for (key, value) in members(&at, value)? {
            match &*key {
                "text" => instructions = Some(at.key("text").text(value)?),
                _ => fields::PART.field(&at.key(&key), &key, value)?,
            }
        }
        let text = at.needed("text", instructions)?;
        parts.push(PromptPart::Instruction(Text { text, cache: None }));
    }
    Ok(())
}

/// The conversation read so far.
#[derive(Default)]
struct ReadConversation<'a> {
    parts: Vec<PromptPart<'a>>,
    /// References of its results to their calls, in order.
    results: Vec<calls::NamedResult<'a>>,
}

/// Fields of a part. One of them determines its kind; thoughts and signatures are additional.
#[derive(Default)]
struct ReadPart<'a> {
    text: Option<Cow<'a, str>>,
    media: Option<ContentPart<'a>>,
    call: Option<ToolCall<'a>>,
    result: Option<(ToolResult<'a>, Cow<'a, str>)>,
    is_thought: bool,
    signature: Option<Cow<'a, str>>,
    /// The part has other fields, which are dropped.
    has_others: bool,
}

impl<'a> ReadConversation<'a> {
    fn contents(&mut self, at: &FieldPath<'_>, value: Raw<'a>) -> Result<(), Untranslatable> {
        for (place, value) in list(at, value)?.into_iter().enumerate() {
            let at = at.index(place);
            let (mut speaker, mut parts) = (Speaker::User, None);
            for (key, value) in members(&at, value)? {
                let at = at.key(&key);
                match &*key {
                    _ if !is_given(value) => {}
                    "role" => {
                        speaker = match &*at.text(value)? {
                            "user" | "function" => Speaker::User,
                            "model" => Speaker::Assistant,
                            _ => return Err(at.malformed("user or model")),
                        }
                    }
                    "parts" => parts = Some(value),
                    _ => fields::CONTENT.field(&at, &key, value)?,
                }
            }
            self.parts.push(PromptPart::Turn(speaker));
            let Some(parts) = parts else { continue };
            let at = at.key("parts");
            for (place, value) in list(&at, parts)?.into_iter().enumerate() {
                self.part(&at.index(place), value, speaker)?;
            }
        }
        Ok(())
    }

    fn part(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
        speaker: Speaker,
    ) -> Result<(), Untranslatable> {
        let read = ReadPart::read(at, value, speaker)?;
        let ReadPart { text, media, call, result, is_thought, signature, has_others } = read;
        let kinds = [text.is_some(), media.is_some(), call.is_some(), result.is_some()];
        let kinds = kinds.into_iter().filter(|is_there| *is_there).count();
        if kinds > 1 || kinds == 0 && signature.is_none() && !is_thought && !has_others {
            return Err(at.malformed("of one kind"));
        }
        let is_assistant = speaker == Speaker::Assistant;
        let seal = signature.as_deref().and_then(seal_of_signature);
        if is_thought && !is_assistant {
            // Only a model thinks; a customer who repeats a thought as their own says nothing by it.
            at.key("thought").leave_out();
            return Ok(());
        }
        if let Some(call) = call {
            if !is_assistant {
                return Err(at.key("functionCall").malformed("said by the model"));
            }
            self.parts.push(PromptPart::ToolCall(ToolCall { seal, ..call }));
            return Ok(());
        }
        if let Some((result, name)) = result {
            let field = at.key("functionResponse").to_string();
            self.results.push(calls::NamedResult { name, field });
            self.parts.push(PromptPart::ToolResult(result));
        } else if let Some(media) = media {
            self.parts.push(PromptPart::Content(media));
        } else if is_thought && text.is_some() {
            let text = text.unwrap_or_default();
            self.parts.push(PromptPart::Reasoning(Reasoning { text, seal }));
            return Ok(());
        } else if let Some(text) = text.filter(|text| seal.is_none() || !text.is_empty()) {
            self.parts.push(PromptPart::Content(ContentPart::Text(Text { text, cache: None })));
        }
        if is_assistant && seal.is_some() {
            self.parts.push(PromptPart::Reasoning(Reasoning { text: "".into(), seal }));
        }
        Ok(())
    }
}

impl<'a> ReadPart<'a> {
    fn read(at: &FieldPath<'_>, value: Raw<'a>, speaker: Speaker) -> Result<Self, Untranslatable> {
        let mut read = Self::default();
        for (key, value) in members(at, value)? {
            let at = at.key(&key);
            match &*key {
                _ if !is_given(value) => {}
                "text" => read.text = Some(at.text(value)?),
                "thought" => read.is_thought = at.boolean(value)?,
                "thoughtSignature" => read.signature = Some(at.text(value)?),
                // What a model has shown, other models do not take back.
                "inlineData" | "fileData" if speaker == Speaker::Assistant => {
                    at.leave_out();
                    read.has_others = true;
                }
                "inlineData" => read.media = Some(inline(&at, value)?),
                "fileData" => read.media = Some(file(&at, value)?),
                "functionCall" => read.call = Some(call(&at, value)?),
                "functionResponse" => read.result = Some(result(&at, value)?),
                _ => {
                    fields::PART.field(&at, &key, value)?;
                    read.has_others = true;
                }
            }
        }
        Ok(read)
    }
}

/// Media as what they are, by their media type.
fn shown<'a>(at: &FieldPath<'_>, media_type: &str, media: MediaPart<'a>) -> MediaResult<'a> {
    match media_type.split('/').next() {
        Some("image") => Ok(ContentPart::Image(media)),
        Some("audio") => Ok(ContentPart::Audio(media)),
        Some("video") => Ok(ContentPart::Video(media)),
        Some("text") => Ok(ContentPart::File(media)),
        _ if media_type == "application/pdf" => Ok(ContentPart::File(media)),
        _ => Err(at.key("mimeType").uncarried()),
    }
}

type MediaResult<'a> = Result<ContentPart<'a>, Untranslatable>;

fn inline<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> MediaResult<'a> {
    let (mut media_type, mut data, mut name) = (None, None, None);
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "mimeType" => media_type = Some(at.text(value)?),
            "data" => data = Some(standard_base64(at.text(value)?)),
            "displayName" => name = Some(at.text(value)?),
            _ => fields::INSIDE.field(&at, &key, value)?,
        }
    }
    let media_type = at.needed("mimeType", media_type)?;
    let data = at.needed("data", data)?;
    let kind = media_type.clone();
    let source = Source::Inline { media_type, data };
    shown(at, &kind, MediaPart { source, name, detail: None, cache: None })
}

/// Base64 in the alphabet that other dialects take: Google's SDK for Python writes the one for URLs.
fn standard_base64(data: Cow<'_, str>) -> Cow<'_, str> {
    if data.contains(['-', '_']) { data.replace('-', "+").replace('_', "/").into() } else { data }
}

fn file<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> MediaResult<'a> {
    let (mut media_type, mut url, mut name) = (None, None, None);
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "mimeType" => media_type = Some(at.text(value)?),
            "fileUri" => url = Some(at.text(value)?),
            "displayName" => name = Some(at.text(value)?),
            _ => fields::INSIDE.field(&at, &key, value)?,
        }
    }
    let url = at.needed("fileUri", url)?;
    // What Google keeps for somebody is not to be had from there by others.
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(at.key("fileUri").uncarried());
    }
    let guessed = media_type.or_else(|| media_type_of(&url).map(Cow::Borrowed));
    let media_type = at.needed("mimeType", guessed)?;
    let source = Source::Url(url);
    shown(at, &media_type, MediaPart { source, name, detail: None, cache: None })
}

/// The media type that the end of a URL's path tells, of those that models take.
pub(super) fn media_type_of(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "heic" => "image/heic",
        "pdf" => "application/pdf",
        "mp4" | "m4v" => "video/mp4",
        "mov" => "video/quicktime",
        "webm" => "video/webm",
        "mpeg" | "mpg" => "video/mpeg",
        "avi" => "video/avi",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "ogg" => "audio/ogg",
        "flac" => "audio/flac",
        "m4a" => "audio/mp4",
        "aac" => "audio/aac",
        _ => return None,
    })
}

fn call<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<ToolCall<'a>, Untranslatable> {
    let (mut id, mut name, mut input) = (Cow::Borrowed(""), None, Cow::Borrowed("{}"));
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "id" => id = at.text(value)?,
            "name" => name = Some(at.text(value)?),
            "args" => input = at.json_object(value)?,
            _ => fields::INSIDE.field(&at, &key, value)?,
        }
    }
    let name = at.needed("name", name)?;
    Ok(ToolCall { id, name, input, is_free: false, seal: None, cache: None })
}

/// The result of a call, and the name of the tool.
fn result<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<(ToolResult<'a>, Cow<'a, str>), Untranslatable> {
    let (mut id, mut name) = (Cow::Borrowed(""), None);
    let (mut content, mut shown, mut is_error) = (Vec::new(), Vec::new(), false);
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "id" => id = at.text(value)?,
            "name" => name = Some(at.text(value)?),
            "response" => (content, is_error) = output(&at, value)?,
            "parts" => {
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    let at = at.index(place);
                    let ReadPart { media, .. } = ReadPart::read(&at, value, Speaker::User)?;
                    shown.push(media.ok_or_else(|| at.malformed("a picture or a document"))?);
                }
            }
            _ => fields::INSIDE.field(&at, &key, value)?,
        }
    }
    content.extend(shown);
    let name = at.needed("name", name)?;
    Ok((ToolResult { id, content, is_error, cache: None }, name))
}

/// Reads the output of a tool: the text under one of the keys that Google documents, or the whole object as
/// text.
fn output<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<(Vec<ContentPart<'a>>, bool), Untranslatable> {
    let members = at.object(value)?;
    let (text, is_error) = match &members[..] {
        [(key, inner)] if matches!(&**key, "output" | "result" | "error") => {
            let text = inner.string().unwrap_or(Cow::Borrowed(inner.get()));
            (text, key == "error")
        }
        _ => (Cow::Borrowed(value.get()), false),
    };
    let content = Some(text).filter(|text| !text.is_empty());
    let content = content.map(|text| ContentPart::Text(Text { text, cache: None }));
    Ok((content.into_iter().collect(), is_error))
}

/// Joins parts of the model's text: SDKs send each piece of a stream back as its own part or turn. Thoughts
/// end at their signature.
fn joined(parts: Vec<PromptPart<'_>>) -> Vec<PromptPart<'_>> {
    let mut kept: Vec<PromptPart<'_>> = Vec::with_capacity(parts.len());
    let mut speaker = None;
    for part in parts {
        if let PromptPart::Turn(next) = &part {
            let goes_on = speaker == Some(*next) && *next == Speaker::Assistant;
            speaker = Some(*next);
            if goes_on {
                continue;
            }
        }
        let is_assistant = speaker == Some(Speaker::Assistant);
        if is_assistant
            && matches!(&part, PromptPart::Content(ContentPart::Text(text)) if text.text.is_empty())
        {
            // The last piece of a stream says nothing.
            continue;
        }
        match (kept.last_mut(), part) {
            (
                Some(PromptPart::Reasoning(Reasoning { text, seal: last @ None })),
                PromptPart::Reasoning(Reasoning { text: more, seal }),
            ) => {
                text.to_mut().push_str(&more);
                *last = seal;
            }
            (
                Some(PromptPart::Content(ContentPart::Text(text))),
                PromptPart::Content(ContentPart::Text(more)),
            ) if is_assistant => text.text.to_mut().push_str(&more.text),
            (_, part) => kept.push(part),
        }
    }
    kept
}
