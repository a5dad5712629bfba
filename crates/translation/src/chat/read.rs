//! What a customer's chat completion asks for, as parts.

use std::borrow::Cow;

use crate::at::{FieldPath, LeftOut, Members, Raw, document, is_given, is_object};
use crate::chat::DETAIL_FORMAT;
use crate::dialect::{AnswerFrame, TranslatableRequest, Untranslatable};
use crate::kit;
use crate::part::{
    AnswerFormat, Cache, ContentPart, MediaPart, PromptPart, Reasoning, Sampling, Source, Speaker,
    Text, Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::seal::{self, Maker};

/// Fields that change neither what a request means nor what it costs.
const HINTS: [&str; 7] = [
    "metadata",
    "logit_bias",
    "top_logprobs",
    "prompt_cache_retention",
    "prompt_cache_options",
    "repetition_penalty",
    "min_p",
];

pub(super) fn request(body: &[u8]) -> Result<TranslatableRequest<'_>, Untranslatable> {
    let left_out = LeftOut::default();
    let root = FieldPath::root(&left_out);
    let (mut parts, mut frame) = (Vec::new(), AnswerFrame::default());
    let (mut output, mut completion) = (None, None);
    for (key, value) in root.object(document(body)?)? {
        let at = root.key(&key);
        if !is_given(value) {
            continue;
        }
        match &*key {
            "model" => frame.model = at.text(value)?.into_owned(),
            "messages" => messages(&at, value, &mut parts)?,
            "stream" => frame.streams = at.boolean(value)?,
            "stream_options" => stream_options(&at, value, &mut frame)?,
            "max_tokens" => output = Some(at.count(value)?),
            "max_completion_tokens" => completion = Some(at.count(value)?),
            "temperature" => {
                parts.push(PromptPart::Sampling(Sampling::Temperature(at.number(value)?)))
            }
            "top_p" => parts.push(PromptPart::Sampling(Sampling::TopP(at.number(value)?))),
            "top_k" => parts.push(PromptPart::Sampling(Sampling::TopK(at.count(value)?))),
            "seed" => parts.push(PromptPart::Sampling(Sampling::Seed(at.integer(value)?))),
            "presence_penalty" => {
                parts.push(PromptPart::Sampling(Sampling::PresencePenalty(at.number(value)?)));
            }
            "frequency_penalty" => {
                parts.push(PromptPart::Sampling(Sampling::FrequencyPenalty(at.number(value)?)));
            }
            "stop" => parts.push(PromptPart::Stop(stop(&at, value)?)),
            "tools" => tools(&at, value, &mut parts, &mut frame)?,
            "tool_choice" => parts.push(PromptPart::ToolChoice(tool_choice(&at, value)?)),
            "parallel_tool_calls" => parts.push(PromptPart::ParallelTools(at.boolean(value)?)),
            "response_format" => parts.extend(response_format(&at, value)?),
            "reasoning_effort" => {
                parts.push(PromptPart::Thinking(kit::openai_thinking(&at, value)?))
            }
            "verbosity" => parts.push(PromptPart::Verbosity(at.text(value)?)),
            "user" | "safety_identifier" => parts.push(PromptPart::User(at.text(value)?)),
            "prompt_cache_key" => parts.push(PromptPart::CacheKey(at.text(value)?)),
            "n" if at.count(value)? == 1 => {}
            "logprobs" if !at.boolean(value)? => {}
            "store" if !at.boolean(value)? => {}
            "store" => at.leave_out(),
            "modalities" if value.get().split_whitespace().collect::<String>() == "[\"text\"]" => {}
            "service_tier" if matches!(&*at.text(value)?, "auto" | "default") => {}
            _ if HINTS.contains(&&*key) => at.leave_out(),
            _ => return Err(at.uncarried()),
        }
    }
    parts.extend(completion.or(output).map(PromptPart::OutputMax));
    let left_out = left_out.into_omissions();
    Ok(TranslatableRequest { parts, frame, left_out, caches: false })
}

fn stream_options(
    at: &FieldPath<'_>,
    value: Raw<'_>,
    frame: &mut AnswerFrame,
) -> Result<(), Untranslatable> {
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "include_usage" => frame.shows_usage = at.boolean(value)?,
            "include_obfuscation" => {}
            _ => return Err(at.uncarried()),
        }
    }
    Ok(())
}

fn stop<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Vec<Cow<'a, str>>, Untranslatable> {
    if value.get().starts_with('"') {
        return Ok(vec![at.text(value)?]);
    }
    at.texts(value)
}

fn response_format<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<Option<PromptPart<'a>>, Untranslatable> {
    let members = at.object(value)?;
    match &*at.kind(&members)? {
        "text" => Ok(None),
        "json_object" => Ok(Some(PromptPart::Format(AnswerFormat::Json))),
        "json_schema" => {
            let at = at.key("json_schema");
            let schema = members.iter().find(|(key, _)| key == "json_schema");
            let (_, schema) = schema.ok_or_else(|| at.malformed("an object"))?;
            Ok(Some(PromptPart::Format(kit::schema_format(&at, at.object(*schema)?)?)))
        }
        _ => Err(at.key("type").uncarried()),
    }
}

fn tools<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
    frame: &mut AnswerFrame,
) -> Result<(), Untranslatable> {
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        let kind = at.kind(&members)?;
        if !matches!(&*kind, "function" | "custom") {
            return Err(at.key("type").uncarried());
        }
        let is_free = kind == "custom";
        let (mut found, mut cache) = (None, None);
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "type" => {}
                _ if key == kind => found = Some(kit::tool(&at, at.object(value)?, is_free)?),
                "cache_control" => cache = kit::cache_control(&at, value)?,
                _ => return Err(at.uncarried()),
            }
        }
        let tool = at.needed(&kind, found)?;
        if is_free {
            frame.free_tools.push(tool.name.clone().into_owned());
        }
        parts.push(PromptPart::Tool(Tool { cache, ..tool }));
    }
    Ok(())
}

fn tool_choice<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<ToolChoice<'a>, Untranslatable> {
    if value.get().starts_with('"') {
        return match &*at.text(value)? {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Any),
            _ => Err(at.malformed("auto, none, required or a tool")),
        };
    }
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let named =
        members.iter().find(|(key, _)| *key == kind && (key == "function" || key == "custom"));
    let Some((key, value)) = named else { return Err(at.key("type").uncarried()) };
    let at = at.key(key);
    let name = at.object(*value)?.into_iter().find(|(key, _)| key == "name");
    let (_, name) = at.needed("name", name)?;
    Ok(ToolChoice::Named(at.key("name").text(name)?))
}

fn messages<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let mut is_among_results = false;
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        let role = members.iter().find(|(key, _)| key == "role");
        let (_, role) = at.needed("role", role)?;
        let role = at.key("role").text(*role)?;
        let is_result = role == "tool";
        match &*role {
            "system" | "developer" => instruction(&at, members, parts)?,
            "user" => {
                parts.push(PromptPart::Turn(Speaker::User));
                for (key, value) in members {
                    let at = at.key(&key);
                    match &*key {
                        "role" => {}
                        _ if !is_given(value) => {}
                        "content" => contents(&at, value, |content| {
                            parts.push(PromptPart::Content(content));
                        })?,
                        "name" => at.leave_out(),
                        _ => return Err(at.uncarried()),
                    }
                }
            }
            "assistant" => assistant(&at, members, parts)?,
            "tool" => {
                if !is_among_results {
                    parts.push(PromptPart::Turn(Speaker::User));
                }
                parts.push(PromptPart::ToolResult(tool_result(&at, members)?));
            }
            _ => return Err(at.key("role").uncarried()),
        }
        is_among_results = is_result;
    }
    Ok(())
}

fn instruction<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "role" => {}
            _ if !is_given(value) => {}
            "content" => {
                let mut others = false;
                contents(&at, value, |content| match content {
                    ContentPart::Text(text) => parts.push(PromptPart::Instruction(text)),
                    _ => others = true,
                })?;
                if others {
                    return Err(at.malformed("text"));
                }
            }
            "name" => at.leave_out(),
            _ => return Err(at.uncarried()),
        }
    }
    Ok(())
}

fn tool_result<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
) -> Result<ToolResult<'a>, Untranslatable> {
    let (mut id, mut content) = (None, Vec::new());
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "role" | "name" => {}
            _ if !is_given(value) => {}
            "tool_call_id" => id = Some(at.text(value)?),
            "content" => contents(&at, value, |one| content.push(one))?,
            _ => return Err(at.uncarried()),
        }
    }
    let id = at.needed("tool_call_id", id)?;
    Ok(ToolResult { id, content, is_error: false, cache: None })
}

fn assistant<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    parts.push(PromptPart::Turn(Speaker::Assistant));
    let (mut said, mut calls) = (Vec::new(), Vec::new());
    let (mut thoughts, mut details) = (Cow::Borrowed(""), Vec::new());
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "role" => {}
            _ if !is_given(value) => {}
            "content" => contents(&at, value, |content| said.push(PromptPart::Content(content)))?,
            "refusal" => said.push(PromptPart::Content(ContentPart::Refusal(at.text(value)?))),
            "reasoning_content" | "reasoning" => thoughts = at.text(value)?,
            "reasoning_details" => details = seals(&at, value)?,
            "tool_calls" => {
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    calls.push(PromptPart::ToolCall(tool_call(&at.index(place), value)?));
                }
            }
            "name" => at.leave_out(),
            "annotations" if value.get() == "[]" => {}
            _ => return Err(at.uncarried()),
        }
    }
    reasoning(thoughts, details, parts);
    parts.extend(said);
    parts.extend(calls);
    Ok(())
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
            let at = at.key(&key);
            match &*key {
                "format" if is_given(value) => is_ours = at.text(value)? == DETAIL_FORMAT,
                "data" if is_given(value) => seal = Some(at.text(value)?),
                "text_bytes" => text_bytes = usize::try_from(at.count(value)?).unwrap_or(0),
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
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" | "index" => {}
            "id" => id = Some(at.text(value)?),
            "function" | "custom" => {
                for (key, value) in at.object(value)? {
                    let at = at.key(&key);
                    match &*key {
                        "name" => name = Some(at.text(value)?),
                        "arguments" | "input" => input = Some(at.text(value)?),
                        "thought_signature" => seal = Some(at.text(value)?),
                        _ => return Err(at.uncarried()),
                    }
                }
            }
            "extra_content" => seal = kit::thought_signature(value.get()).or(seal),
            _ => return Err(at.uncarried()),
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
        cache: None,
    })
}

/// A text, or a list of contents.
fn contents<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    mut put: impl FnMut(ContentPart<'a>),
) -> Result<(), Untranslatable> {
    if value.get().starts_with('"') {
        put(ContentPart::Text(Text { text: at.text(value)?, cache: None }));
        return Ok(());
    }
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        put(content(&at.index(place), value)?);
    }
    Ok(())
}

fn content<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<ContentPart<'a>, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let (mut text, mut media, mut cache) = (None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match (&*kind, &*key) {
            (_, "type") => {}
            (_, "cache_control") => cache = kit::cache_control(&at, value)?,
            // Where other providers' caches end is theirs to choose.
            (_, "prompt_cache_breakpoint") => {}
            ("text", "text") | ("refusal", "refusal") => text = Some(at.text(value)?),
            ("image_url", "image_url") => media = Some(image(&at, value)?),
            ("input_audio", "input_audio") => media = Some(audio(&at, value)?),
            ("video_url", "video_url") | ("audio_url", "audio_url") => {
                media = Some(image(&at, value)?);
            }
            ("file", "file") => media = Some(file(&at, value)?),
            (
                "text" | "refusal" | "image_url" | "input_audio" | "video_url" | "audio_url"
                | "file",
                _,
            ) => {
                return Err(at.uncarried());
            }
            _ => {}
        }
    }
    let media = |cache: Option<Cache>| {
        let media = media.clone().map(|media| MediaPart { cache, ..media });
        at.needed(&kind, media)
    };
    match &*kind {
        "text" => Ok(ContentPart::Text(Text { text: at.needed("text", text)?, cache })),
        "refusal" => Ok(ContentPart::Refusal(at.needed("refusal", text)?)),
        "image_url" => Ok(ContentPart::Image(media(cache)?)),
        "input_audio" => Ok(ContentPart::Audio(media(cache)?)),
        "video_url" => Ok(ContentPart::Video(media(cache)?)),
        "audio_url" => Ok(ContentPart::Audio(media(cache)?)),
        "file" => Ok(ContentPart::File(media(cache)?)),
        _ => Err(at.key("type").uncarried()),
    }
}

fn image<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<MediaPart<'a>, Untranslatable> {
    let (mut url, mut detail) = (None, None);
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            "url" => url = Some(at.text(value)?),
            "detail" if is_given(value) => detail = Some(at.text(value)?),
            "detail" => {}
            _ => return Err(at.uncarried()),
        }
    }
    let source = kit::source_of_url(&at.key("url"), at.needed("url", url)?)?;
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
            "filename" => name = Some(at.text(value)?),
            _ => return Err(at.uncarried()),
        }
    }
    let source = kit::source_of_url(&at.key("file_data"), at.needed("file_data", data)?)?;
    match source {
        Source::Inline { .. } => Ok(MediaPart { source, name, detail: None, cache: None }),
        _ => Err(at.key("file_data").malformed("a data URL in base64")),
    }
}
