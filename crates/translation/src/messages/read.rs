//! What a customer's message asks for, as parts.

use std::borrow::Cow;

use crate::at::{FieldPath, LeftOut, Members, Raw, document, is_given};
use crate::dialect::{AnswerFrame, TranslatableRequest, Untranslatable};
use crate::kit;
use crate::part::{
    AnswerFormat, ContentPart, MediaPart, PromptPart, Reasoning, Sampling, Source, Speaker, Text,
    Thinking, Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::seal::{self, Maker};

/// What Claude Code begins its instructions with: it changes with each request, and Anthropic takes it
/// away before the model reads the rest. Elsewhere it would spoil every cache.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

pub(super) fn request(body: &[u8]) -> Result<TranslatableRequest<'_>, Untranslatable> {
    let left_out = LeftOut::default();
    let root = FieldPath::root(&left_out);
    let (mut parts, mut frame) = (Vec::new(), AnswerFrame::default());
    // Instructions stand before the first turn, wherever the field stands.
    let mut said = Vec::new();
    for (key, value) in root.object(document(body)?)? {
        let at = root.key(&key);
        if !is_given(value) {
            continue;
        }
        match &*key {
            "model" => frame.model = at.text(value)?.into_owned(),
            "system" => instructions(&at, value, &mut parts)?,
            "messages" => messages(&at, value, &mut said)?,
            "max_tokens" => parts.push(PromptPart::OutputMax(at.count(value)?)),
            "stream" => frame.streams = at.boolean(value)?,
            "temperature" => {
                parts.push(PromptPart::Sampling(Sampling::Temperature(at.number(value)?)))
            }
            "top_p" => parts.push(PromptPart::Sampling(Sampling::TopP(at.number(value)?))),
            "top_k" => parts.push(PromptPart::Sampling(Sampling::TopK(at.count(value)?))),
            "stop_sequences" => parts.push(PromptPart::Stop(at.texts(value)?)),
            "tools" => tools(&at, value, &mut parts)?,
            "tool_choice" => tool_choice(&at, value, &mut parts)?,
            "thinking" => parts.push(PromptPart::Thinking(thinking(&at, value)?)),
            "output_config" => output_config(&at, value, &mut parts)?,
            "metadata" => metadata(&at, value, &mut parts)?,
            "service_tier" if matches!(&*at.text(value)?, "auto" | "standard_only") => {}
            "cache_control" => drop(kit::cache_control(&at, value)?),
            "context_management" => at.leave_out(),
            _ => return Err(at.uncarried()),
        }
    }
    prefer_effort(&mut parts);
    kit::attach_seals(&mut said);
    parts.extend(said);
    frame.shows_usage = true;
    let left_out = left_out.into_omissions();
    Ok(TranslatableRequest { parts, frame, left_out, caches: false })
}

/// Adaptive thinking with an effort is that effort.
fn prefer_effort(parts: &mut Vec<PromptPart<'_>>) {
    let has_effort =
        parts.iter().any(|part| matches!(part, PromptPart::Thinking(Thinking::Effort(_))));
    let is_off = parts.iter().any(|part| matches!(part, PromptPart::Thinking(Thinking::Off)));
    parts.retain(|part| match part {
        PromptPart::Thinking(Thinking::Effort(_)) => !is_off,
        PromptPart::Thinking(Thinking::Off) => true,
        PromptPart::Thinking(_) => !has_effort,
        _ => true,
    });
}

fn instructions<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let mut put = |at: &FieldPath<'_>, text: Text<'a>| match text.text.starts_with(BILLING_HEADER) {
        true => at.leave_out_kind(BILLING_HEADER.trim_end_matches(':')),
        false => parts.push(PromptPart::Instruction(text)),
    };
    if value.get().starts_with('"') {
        put(at, Text { text: at.text(value)?, cache: None });
        return Ok(());
    }
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        match block(&at, value)? {
            PromptPart::Content(ContentPart::Text(text)) => put(&at, text),
            _ => return Err(at.malformed("a text")),
        }
    }
    Ok(())
}

fn messages<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let (mut role, mut content) = (None, None);
        for (key, value) in at.object(value)? {
            match &*key {
                "role" => role = Some(at.key("role").text(value)?),
                "content" => content = Some(value),
                _ => return Err(at.key(&key).uncarried()),
            }
        }
        let content = at.needed("content", content)?;
        match &*at.needed("role", role)? {
            "user" => parts.push(PromptPart::Turn(Speaker::User)),
            "assistant" => parts.push(PromptPart::Turn(Speaker::Assistant)),
            "system" => {
                instructions(&at.key("content"), content, parts)?;
                continue;
            }
            _ => return Err(at.key("role").malformed("user or assistant")),
        }
        blocks(&at.key("content"), content, |part| parts.push(part))?;
    }
    Ok(())
}

/// A text, or a list of blocks.
fn blocks<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    mut put: impl FnMut(PromptPart<'a>),
) -> Result<(), Untranslatable> {
    if value.get().starts_with('"') {
        put(PromptPart::Content(ContentPart::Text(Text { text: at.text(value)?, cache: None })));
        return Ok(());
    }
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        put(block(&at.index(place), value)?);
    }
    Ok(())
}

fn block<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<PromptPart<'a>, Untranslatable> {
    let members = at.object(value)?;
    match &*at.kind(&members)? {
        "text" => text(at, members),
        "image" => Ok(PromptPart::Content(ContentPart::Image(media(at, members)?))),
        "document" => Ok(PromptPart::Content(ContentPart::File(media(at, members)?))),
        "thinking" => thought(at, members, "thinking"),
        "redacted_thinking" => thought(at, members, "redacted_thinking"),
        "tool_use" => tool_use(at, members),
        "tool_result" => tool_result(at, members),
        _ => Err(at.key("type").uncarried()),
    }
}

fn text<'a>(at: &FieldPath<'_>, members: Members<'a>) -> Result<PromptPart<'a>, Untranslatable> {
    let (mut text, mut cache) = (None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "text" => text = Some(at.text(value)?),
            "cache_control" => cache = kit::cache_control(&at, value)?,
            "citations" if !is_given(value) || value.get() == "[]" => {}
            _ => return Err(at.uncarried()),
        }
    }
    let text = at.needed("text", text)?;
    Ok(PromptPart::Content(ContentPart::Text(Text { text, cache })))
}

/// A picture or a document.
fn media<'a>(at: &FieldPath<'_>, members: Members<'a>) -> Result<MediaPart<'a>, Untranslatable> {
    let (mut source, mut name, mut cache) = (None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "source" => source = Some(self::source(&at, value)?),
            "title" if is_given(value) => name = Some(at.text(value)?),
            "title" | "context" | "citations" if !is_given(value) => {}
            "citations"
                if value.get().split_whitespace().collect::<String>() == "{\"enabled\":false}" => {}
            "cache_control" => cache = kit::cache_control(&at, value)?,
            _ => return Err(at.uncarried()),
        }
    }
    Ok(MediaPart { source: at.needed("source", source)?, name, detail: None, cache })
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
            _ => return Err(at.uncarried()),
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
    members: Members<'a>,
    kind: &str,
) -> Result<PromptPart<'a>, Untranslatable> {
    let (mut text, mut seal) = (Cow::Borrowed(""), None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "thinking" => text = at.text(value)?,
            "signature" | "data" if is_given(value) => seal = Some(at.text(value)?),
            "signature" | "data" => {}
            _ => return Err(at.uncarried()),
        }
    }
    let maker = if kind == "thinking" { Maker::Messages } else { Maker::MessagesRedacted };
    let seal = seal.filter(|seal| !seal.is_empty());
    let seal = seal.map(|seal| Cow::Owned(seal::of_customer(maker, &seal).into_owned()));
    Ok(PromptPart::Reasoning(Reasoning { text, seal }))
}

fn tool_use<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
) -> Result<PromptPart<'a>, Untranslatable> {
    let (mut id, mut name, mut input, mut cache) = (None, None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "id" => id = Some(at.text(value)?),
            "name" => name = Some(at.text(value)?),
            "input" => input = Some(at.json_object(value)?),
            "cache_control" => cache = kit::cache_control(&at, value)?,
            "caller" if value.get().contains("\"direct\"") => {}
            _ => return Err(at.uncarried()),
        }
    }
    Ok(PromptPart::ToolCall(ToolCall {
        id: at.needed("id", id)?,
        name: at.needed("name", name)?,
        input: at.needed("input", input)?,
        is_free: false,
        seal: None,
        cache,
    }))
}

fn tool_result<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
) -> Result<PromptPart<'a>, Untranslatable> {
    let (mut id, mut content, mut is_error, mut cache) = (None, Vec::new(), false, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "tool_use_id" => id = Some(at.text(value)?),
            _ if !is_given(value) => {}
            "is_error" => is_error = at.boolean(value)?,
            "cache_control" => cache = kit::cache_control(&at, value)?,
            "content" => {
                let mut others = false;
                blocks(&at, value, |part| match part {
                    PromptPart::Content(one) => content.push(one),
                    _ => others = true,
                })?;
                if others {
                    return Err(at.malformed("texts, images and documents"));
                }
            }
            _ => return Err(at.uncarried()),
        }
    }
    let id = at.needed("tool_use_id", id)?;
    Ok(PromptPart::ToolResult(ToolResult { id, content, is_error, cache }))
}

fn tools<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let (mut name, mut description, mut schema) = (None, None, None);
        let (mut is_strict, mut cache) = (None, None);
        for (key, value) in at.object(value)? {
            let at = at.key(&key);
            match &*key {
                _ if !is_given(value) => {}
                "type" if at.text(value)? == "custom" => {}
                "name" => name = Some(at.text(value)?),
                "description" => description = Some(at.text(value)?),
                "input_schema" => schema = Some(at.json_object(value)?),
                "strict" => is_strict = Some(at.boolean(value)?),
                "cache_control" => cache = kit::cache_control(&at, value)?,
                "eager_input_streaming" | "input_examples" => at.leave_out(),
                "defer_loading" if !at.boolean(value)? => {}
                _ => return Err(at.uncarried()),
            }
        }
        parts.push(PromptPart::Tool(Tool {
            name: at.needed("name", name)?,
            description,
            schema: Some(at.needed("input_schema", schema)?),
            is_strict,
            is_free: false,
            cache,
        }));
    }
    Ok(())
}

fn tool_choice<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let mut name = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "name" => name = Some(at.text(value)?),
            "disable_parallel_tool_use" => {
                parts.push(PromptPart::ParallelTools(!at.boolean(value)?))
            }
            _ => return Err(at.uncarried()),
        }
    }
    parts.push(PromptPart::ToolChoice(match &*kind {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Any,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(at.needed("name", name)?),
        _ => return Err(at.key("type").uncarried()),
    }));
    Ok(())
}

fn thinking(at: &FieldPath<'_>, value: Raw<'_>) -> Result<Thinking, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let mut budget = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" | "display" => {}
            "budget_tokens" => budget = Some(at.count(value)?),
            _ => return Err(at.uncarried()),
        }
    }
    match &*kind {
        "enabled" => Ok(Thinking::Budget(at.needed("budget_tokens", budget)?)),
        "adaptive" => Ok(Thinking::Adaptive),
        "disabled" => Ok(Thinking::Off),
        _ => Err(at.key("type").uncarried()),
    }
}

fn output_config<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "effort" => {
                let effort = kit::effort(&at.text(value)?);
                let effort = effort.ok_or_else(|| at.malformed("low, medium, high or max"))?;
                parts.push(PromptPart::Thinking(Thinking::Effort(effort)));
            }
            "format" => {
                let members = at.object(value)?;
                if at.kind(&members)? != "json_schema" {
                    return Err(at.key("type").uncarried());
                }
                let mut schema = None;
                for (key, value) in members {
                    let at = at.key(&key);
                    match &*key {
                        "type" => {}
                        "schema" => schema = Some(at.json_object(value)?),
                        _ => return Err(at.uncarried()),
                    }
                }
                let schema = at.needed("schema", schema)?;
                parts.push(PromptPart::Format(AnswerFormat::Schema {
                    name: None,
                    description: None,
                    schema,
                    is_strict: Some(true),
                }));
            }
            _ => return Err(at.uncarried()),
        }
    }
    Ok(())
}

fn metadata<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "user_id" => parts.push(PromptPart::User(at.text(value)?)),
            _ => return Err(at.uncarried()),
        }
    }
    Ok(())
}
