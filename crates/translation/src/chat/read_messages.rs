//! Reads the messages of a customer's chat completion request as parts.

use std::borrow::Cow;

use crate::cache_marks;
use crate::chat::{DETAIL_FORMAT, fields};
use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, MemberList, Raw, is_given, is_object};
use crate::field_rules::FieldRules;
use crate::media;
use crate::part::{
    Cache, ContentPart, MediaPart, PromptPart, Reasoning, Source, Speaker, Text, ToolCall,
    ToolResult,
};
use crate::seal::{self, Maker};

pub(super) fn messages<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let all = at.list(value)?;
    if all.is_empty() {
        return Err(at.malformed("an array with at least one message"));
    }
    let mut is_among_results = false;
    for (place, value) in all.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        let role = members.iter().find(|(key, _)| key == "role");
        let (_, role) = at.needed("role", role)?;
        let role = at.key("role").text(*role)?;
        let is_result = role == "tool";
        let begin = parts.len();
        let cache = match &*role {
            "system" | "developer" => instruction(&at, members, parts)?,
            "user" => user(&at, members, parts)?,
            "assistant" => assistant(&at, members, parts)?,
            "tool" => {
                // Results that stand together are one turn of the user, as other dialects need them.
                if !is_among_results {
                    parts.push(PromptPart::Turn(Speaker::User));
                }
                let result = tool_result(&at, members)?;
                parts.push(PromptPart::ToolResult(result));
                None
            }
            _ => return Err(at.key("role").uncarried()),
        };
        // opencode and others mark a message; here its last part has the mark.
        cache_marks::mark_last(parts.get_mut(begin..).unwrap_or_default(), cache);
        is_among_results = is_result;
    }
    Ok(())
}

fn user<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<Option<Cache>, Untranslatable> {
    parts.push(PromptPart::Turn(Speaker::User));
    let mut cache = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "role" => {}
            _ if !is_given(value) => {}
            "content" => contents(&at, value, &fields::CONTENTS, |content| {
                parts.push(PromptPart::Content(content));
            })?,
            "cache_control" | "copilot_cache_control" => {
                cache = cache_marks::cache_control(&at, value)?
            }
            _ => fields::MESSAGE.field(&at, &key, value)?,
        }
    }
    Ok(cache)
}

fn instruction<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<Option<Cache>, Untranslatable> {
    let mut cache = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "role" => {}
            _ if !is_given(value) => {}
            "content" => {
                let mut others = false;
                contents(&at, value, &fields::CONTENTS, |content| match content {
                    // Each text keeps its own part: joined they would lose their marks for the
                    // cache.
                    ContentPart::Text(text) => parts.push(PromptPart::Instruction(text)),
                    _ => others = true,
                })?;
                if others {
                    return Err(at.malformed("text"));
                }
            }
            "cache_control" | "copilot_cache_control" => {
                cache = cache_marks::cache_control(&at, value)?
            }
            _ => fields::MESSAGE.field(&at, &key, value)?,
        }
    }
    Ok(cache)
}

fn tool_result<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
) -> Result<ToolResult<'a>, Untranslatable> {
    let (mut id, mut content, mut cache) = (None, Vec::new(), None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "role" | "name" => {}
            _ if !is_given(value) => {}
            "tool_call_id" => id = Some(at.text(value)?),
            "content" => contents(&at, value, &fields::CONTENTS, |one| content.push(one))?,
            "cache_control" | "copilot_cache_control" => {
                cache = cache_marks::cache_control(&at, value)?
            }
            _ => fields::MESSAGE.field(&at, &key, value)?,
        }
    }
    let id = at.needed("tool_call_id", id)?;
    Ok(ToolResult { id, content, is_error: false, cache })
}

fn assistant<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<Option<Cache>, Untranslatable> {
    parts.push(PromptPart::Turn(Speaker::Assistant));
    let mut cache = None;
    let (mut content, mut calls) = (Vec::new(), Vec::new());
    let (mut thoughts, mut details) = (Cow::Borrowed(""), Vec::new());
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "role" => {}
            _ if !is_given(value) => {}
            "content" => contents(&at, value, &fields::ASSISTANT_CONTENTS, |part| {
                content.push(PromptPart::Content(part));
            })?,
            "refusal" if value.get() == "\"\"" => {}
            "refusal" => content.push(PromptPart::Content(ContentPart::Refusal(at.text(value)?))),
            // Some programs say it in both.
            "reasoning_content" | "reasoning" | "reasoning_text"
                if value.get().starts_with('"') =>
            {
                let text = at.text(value)?;
                thoughts = if text.is_empty() { thoughts } else { text };
            }
            "reasoning_details" if value.get().starts_with('[') => details = seals(&at, value)?,
            "tool_calls" => {
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    calls.push(PromptPart::ToolCall(tool_call(&at.index(place), value)?));
                }
            }
            "cache_control" | "copilot_cache_control" => {
                cache = cache_marks::cache_control(&at, value)?
            }
            _ => fields::ASSISTANT.field(&at, &key, value)?,
        }
    }
    reasoning(thoughts, details, parts);
    parts.extend(content);
    parts.extend(calls);
    Ok(cache)
}

/// A seal, and how many bytes of the thoughts it belongs to.
struct SealedThought<'a> {
    seal: Cow<'a, str>,
    text_bytes: usize,
}

/// The seals that were written here. What other programs keep in the same field is theirs.
fn seals<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Vec<SealedThought<'a>>, Untranslatable> {
    let mut found = Vec::new();
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let (mut is_ours, mut seal, mut text_bytes) = (false, None, 0);
        for (key, value) in at.object(value)? {
            match &*key {
                "format" => is_ours = value.string().is_some_and(|name| name == DETAIL_FORMAT),
                "data" => seal = value.string(),
                "text_bytes" => text_bytes = value.get().parse().unwrap_or(0),
                _ => {}
            }
        }
        let seal = seal.filter(|seal| is_ours && seal::is_wrapped(seal));
        found.extend(seal.map(|seal| SealedThought { seal, text_bytes }));
    }
    Ok(found)
}

/// Gives each seal its part of the thoughts. Seals whose texts are not all there are of no use, and
/// thoughts without a seal were made by a model of this dialect, or by none that wants them back.
fn reasoning<'a>(
    thoughts: Cow<'a, str>,
    sealed: Vec<SealedThought<'a>>,
    parts: &mut Vec<PromptPart<'a>>,
) {
    let length: usize = sealed.iter().map(|one| one.text_bytes).sum();
    if sealed.is_empty() || length != thoughts.len() {
        if !thoughts.is_empty() {
            let seal = Some(seal::wrap(Maker::Chat, "").into());
            parts.push(PromptPart::Reasoning(Reasoning { text: thoughts, seal }));
        }
        return;
    }
    let mut from = 0;
    for SealedThought { seal, text_bytes } in sealed {
        let range = from..from + text_bytes;
        from = range.end;
        let text = match &thoughts {
            Cow::Borrowed(text) => text.get(range).map(Cow::Borrowed),
            Cow::Owned(text) => text.get(range).map(|text| Cow::Owned(text.to_owned())),
        };
        let text = text.unwrap_or_default();
        parts.push(PromptPart::Reasoning(Reasoning { text, seal: Some(seal) }));
    }
}

fn tool_call<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<ToolCall<'a>, Untranslatable> {
    let members = at.object(value)?;
    let is_free = members.iter().any(|(key, _)| key == "custom");
    let (mut id, mut name, mut input, mut seal) = (None, None, None, None);
    let mut cache = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "id" => id = Some(at.text(value)?),
            "function" | "custom" => {
                for (key, value) in at.object(value)? {
                    let at = at.key(&key);
                    match &*key {
                        _ if !is_given(value) => {}
                        "name" => name = Some(at.text(value)?),
                        "arguments" | "input" => input = Some(at.text(value)?),
                        "thought_signature" => seal = Some(at.text(value)?),
                        _ => fields::CALL.field(&at, &key, value)?,
                    }
                }
            }
            "extra_content" => seal = seal::thought_signature(value.get()).or(seal),
            "cache_control" | "copilot_cache_control" => {
                cache = cache_marks::cache_control(&at, value)?
            }
            _ => fields::CALL.field(&at, &key, value)?,
        }
    }
    let input = input.unwrap_or_default();
    if !is_free && !input.is_empty() && !is_object(&input) {
        return Err(at.key("function").key("arguments").malformed("a JSON object as a string"));
    }
    Ok(ToolCall {
        id: at.needed("id", id)?,
        name: at.needed("function", name)?,
        input,
        is_free,
        seal: seal.map(|seal| seal::wrap(Maker::Gemini, &seal).into()),
        cache,
    })
}

/// A text, or a list of contents, of which `others` says what becomes of types that are not carried.
fn contents<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    others: &FieldRules,
    mut put: impl FnMut(ContentPart<'a>),
) -> Result<(), Untranslatable> {
    if value.get().starts_with('"') {
        put(ContentPart::Text(Text { text: at.text(value)?, cache: None }));
        return Ok(());
    }
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        if let Some(content) = content(&at.index(place), value, others)? {
            put(content);
        }
    }
    Ok(())
}

fn content<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    others: &FieldRules,
) -> Result<Option<ContentPart<'a>>, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let table = match &*kind {
        "text" | "refusal" => &fields::TEXT,
        "image_url" | "input_audio" | "video_url" | "audio_url" | "file" => &fields::MEDIA,
        _ => return others.item(at, &kind).map(|()| None),
    };
    let (mut text, mut media, mut cache) = (None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match (&*kind, &*key) {
            (_, "type") => {}
            (_, "cache_control" | "copilot_cache_control") => {
                cache = cache_marks::cache_control(&at, value)?;
            }
            ("text", "text") | ("refusal", "refusal") => text = Some(at.text(value)?),
            ("image_url", "image_url") => media = Some(image(&at, value)?),
            ("input_audio", "input_audio") => media = Some(audio(&at, value)?),
            ("video_url", "video_url") | ("audio_url", "audio_url") => {
                media = Some(image(&at, value)?);
            }
            ("file", "file") => media = Some(file(&at, value)?),
            _ => table.field(&at, &key, value)?,
        }
    }
    let media = media.map(|media| MediaPart { cache, ..media });
    Ok(Some(match &*kind {
        "text" => ContentPart::Text(Text { text: at.needed("text", text)?, cache }),
        "refusal" => ContentPart::Refusal(at.needed("refusal", text)?),
        "image_url" => ContentPart::Image(at.needed(&kind, media)?),
        "video_url" => ContentPart::Video(at.needed(&kind, media)?),
        "file" => ContentPart::File(at.needed(&kind, media)?),
        _ => ContentPart::Audio(at.needed(&kind, media)?),
    }))
}

fn image<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<MediaPart<'a>, Untranslatable> {
    let (mut url, mut detail) = (None, None);
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            "url" => url = Some(at.text(value)?),
            "detail" if is_given(value) => detail = Some(at.text(value)?),
            _ => fields::MEDIA.field(&at, &key, value)?,
        }
    }
    let source = media::source_of_url(&at.key("url"), at.needed("url", url)?)?;
    Ok(MediaPart { source, name: None, detail, cache: None })
}

fn audio<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<MediaPart<'a>, Untranslatable> {
    let (mut data, mut media_type) = (None, None);
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            "data" => data = Some(at.text(value)?),
            "format" => media_type = Some(format!("audio/{}", at.text(value)?)),
            _ => return Err(at.uncarried()),
        }
    }
    let media_type = at.needed("format", media_type)?.into();
    let source = Source::Inline { media_type, data: at.needed("data", data)? };
    Ok(MediaPart { source, name: None, detail: None, cache: None })
}

fn file<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<MediaPart<'a>, Untranslatable> {
    let (mut data, mut name) = (None, None);
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            "file_data" => data = Some(at.text(value)?),
            "filename" if is_given(value) => name = Some(at.text(value)?),
            _ => fields::MEDIA.field(&at, &key, value)?,
        }
    }
    let source = media::source_of_url(&at.key("file_data"), at.needed("file_data", data)?)?;
    match source {
        Source::Inline { .. } => Ok(MediaPart { source, name, detail: None, cache: None }),
        _ => Err(at.key("file_data").malformed("a data URL in base64")),
    }
}
