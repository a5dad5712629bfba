//! Functions that several dialects share.

use std::borrow::Cow;

use serde::Deserialize;

use crate::dialect::{Losses, MalformedAnswer, Mode, Untranslatable};
use crate::field_path::{self, FieldPath, Members as Read, Raw, is_given};
use crate::field_rules::{FieldRule, FieldRules};
use crate::json::{self, Members};
use crate::part::{
    AnswerFormat, AnswerPart, Cache, Citation, ContentPart, Counts, Effort, FailureKind,
    PromptPart, Reasoning, Source, Thinking, Tool, ToolCall, ToolChoice, UpstreamFailure,
};
use crate::seal::{self, Maker};
use crate::tool_schema;

mod failure;

pub(crate) use failure::{in_answer as failure_in_answer, of_base_resp as failure_of_base_resp};

/// The schema of a tool that takes free text, in dialects that know JSON objects only.
pub(crate) const FREE_SCHEMA: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as free text."}},"required":["input"],"additionalProperties":false}"#;

/// Free text as the JSON object of [`FREE_SCHEMA`].
pub(crate) fn wrap_free(text: &str) -> String {
    let mut out = Vec::new();
    let mut object = Members::object(&mut out);
    object.text(&mut out, "input", text);
    object.end(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// The free text in a JSON object of [`FREE_SCHEMA`]; a model that wrote something else meant all of it.
#[must_use]
pub fn unwrap_free(input: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct WrappedInput<'a> {
        #[serde(borrow)]
        input: Cow<'a, str>,
    }
    json::read::<WrappedInput<'_>>(input).map_or(Cow::Borrowed(input), |wrapped| wrapped.input)
}

/// Media type and base64 data of a `data:` URL; `None` for what is no such URL.
pub(crate) fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    Some((media_type.split(';').next().unwrap_or(media_type), data))
}

/// The `data:` URL of bytes in base64.
pub(crate) fn to_data_url(media_type: &str, data: &str) -> String {
    format!("data:{media_type};base64,{data}")
}

/// Reasoning budget in tokens for an effort word. Anthropic's minimum is 1,024.
pub(crate) fn budget_of(effort: Effort) -> u64 {
    match effort {
        Effort::Minimal => 1024,
        Effort::Low => 4096,
        Effort::Medium => 10_240,
        Effort::High => 24_576,
        Effort::ExtraHigh => 32_768,
        Effort::Max => 63_999,
    }
}

/// The word for a number of tokens.
pub(crate) fn effort_of(budget: u64) -> Effort {
    match budget {
        // Anthropic's least, 1,024, is no `minimal`, which models since gpt-5.1 refuse.
        0..=6144 => Effort::Low,
        6145..=16_384 => Effort::Medium,
        _ => Effort::High,
    }
}

/// The effort that a word of OpenAI's or Anthropic's stands for.
pub(crate) fn effort(word: &str) -> Option<Effort> {
    Some(match word {
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" => Effort::High,
        "xhigh" => Effort::ExtraHigh,
        // Codex offers `ultra` beyond `max`.
        "max" | "ultra" => Effort::Max,
        _ => return None,
    })
}

/// Reads an effort word of OpenAI's APIs.
pub(crate) fn openai_thinking(
    at: &FieldPath<'_>,
    value: Raw<'_>,
) -> Result<Thinking, Untranslatable> {
    let word = at.text(value)?;
    match effort(&word) {
        Some(effort) => Ok(Thinking::Effort(effort)),
        None if word == "none" => Ok(Thinking::Off),
        None => Err(at.malformed("none, minimal, low, medium, high or xhigh")),
    }
}

/// Of several ways to say how much is thought, the one that says most: not at all, or how much.
pub(crate) fn strongest(all: &[Thinking]) -> Option<Thinking> {
    let off = all.iter().find(|one| **one == Thinking::Off);
    let definite = all.iter().find(|one| **one != Thinking::Adaptive);
    off.or(definite).or(all.first()).copied()
}

/// The requested reasoning where a request sets it several times: Anthropic's has a switch and an effort.
pub(crate) fn requested_thinking(parts: &[PromptPart<'_>]) -> Option<Thinking> {
    let requested = parts.iter().filter_map(|part| match part {
        PromptPart::Thinking(thinking) => Some(*thinking),
        _ => None,
    });
    let weight = |thinking: &Thinking| match thinking {
        Thinking::Adaptive => 0,
        Thinking::Effort(_) | Thinking::Budget(_) => 1,
        Thinking::Off => 2,
    };
    requested.max_by_key(weight)
}

/// Texts at which an answer ends, each once. An empty one is refused, and ends nothing.
pub(crate) fn stops<'s>(texts: &'s [Cow<'_, str>]) -> Vec<&'s str> {
    let mut stops: Vec<&str> = Vec::new();
    for text in texts.iter().map(|text| &**text).filter(|text| !text.is_empty()) {
        if !stops.contains(&text) {
            stops.push(text);
        }
    }
    stops
}

/// Refuses inline pictures that OpenAI does not take: it takes PNG, JPEG, WebP and GIF.
pub(crate) fn check_openai_picture(media_type: &str) -> Result<(), Untranslatable> {
    match media_type {
        "image/png" | "image/jpeg" | "image/webp" | "image/gif" => Ok(()),
        other => {
            Err(Untranslatable::uncarried(format!("messages.content: an image of type {other}")))
        }
    }
}

/// The source of media from a `data:` or web URL.
pub(crate) fn source_of_url<'a>(
    at: &FieldPath<'_>,
    url: Cow<'a, str>,
) -> Result<Source<'a>, Untranslatable> {
    if !url.starts_with("data:") {
        return Ok(Source::Url(url));
    }
    let inline = match &url {
        Cow::Borrowed(url) => {
            data_url(url).map(|(media_type, data)| (media_type.into(), data.into()))
        }
        Cow::Owned(url) => data_url(url)
            .map(|(media_type, data)| (media_type.to_owned().into(), data.to_owned().into())),
    };
    match inline {
        Some((media_type, data)) => Ok(Source::Inline { media_type, data }),
        None => Err(at.malformed("a URL, or a data URL in base64")),
    }
}

/// Lifetime of a cached prompt by Anthropic's `cache_control`. An unknown `ttl` counts as the shorter one, as
/// a mark is only a hint.
pub(crate) fn cache_control(
    at: &FieldPath<'_>,
    value: Raw<'_>,
) -> Result<Option<Cache>, Untranslatable> {
    if !is_given(value) {
        return Ok(None);
    }
    let members = at.object(value)?;
    let is_long = members
        .iter()
        .any(|(key, value)| key == "ttl" && value.string().is_some_and(|period| period == "1h"));
    Ok((!members.is_empty()).then_some(if is_long { Cache::Long } else { Cache::Short }))
}

/// Marks the last of these parts that can have a mark for the cache, where it has none.
pub(crate) fn mark_last(parts: &mut [PromptPart<'_>], cache: Option<Cache>) {
    let Some(mark) = parts.iter_mut().rev().find_map(mark_of) else { return };
    *mark = mark.or(cache);
}

/// The place for a mark of a part.
fn mark_of<'p>(part: &'p mut PromptPart<'_>) -> Option<&'p mut Option<Cache>> {
    match part {
        PromptPart::Instruction(text) | PromptPart::Content(ContentPart::Text(text)) => {
            Some(&mut text.cache)
        }
        PromptPart::Content(
            ContentPart::Image(media)
            | ContentPart::File(media)
            | ContentPart::Audio(media)
            | ContentPart::Video(media),
        ) => Some(&mut media.cache),
        PromptPart::Tool(tool) => Some(&mut tool.cache),
        PromptPart::ToolCall(call) => Some(&mut call.cache),
        PromptPart::ToolResult(result) => Some(&mut result.cache),
        _ => None,
    }
}

/// A tool of OpenAI's: name, description, schema. The grammar of one that takes free text follows its
/// description, as other dialects have no place for it.
pub(crate) fn tool<'a>(
    at: &FieldPath<'_>,
    members: Read<'a>,
    is_free: bool,
) -> Result<Tool<'a>, Untranslatable> {
    let (mut name, mut description, mut grammar) = (None, None, None);
    let (mut schema, mut is_strict, mut cache) = (None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            _ if !is_given(value) => {}
            "name" => name = Some(at.text(value)?),
            "description" => description = Some(at.text(value)?),
            "parameters" if !is_free => schema = Some(at.json_object(value)?),
            "strict" if !is_free => is_strict = Some(at.boolean(value)?),
            "format" if is_free => grammar = self::grammar(&at, value)?,
            "cache_control" | "copilot_cache_control" => cache = cache_control(&at, value)?,
            _ => TOOL.field(&at, &key, value)?,
        }
    }
    if let Some(grammar) = grammar {
        let about = description.unwrap_or_default();
        let text = format!("{about}\n\nThe input must follow this grammar:\n{grammar}");
        description = Some(text.trim_start().to_owned().into());
    }
    let name = at.needed("name", name)?;
    Ok(Tool { name, description, schema, is_strict, is_free, cache })
}

/// Members of a tool that the customer runs: other dialects have no words for them, and the model can
/// call the tool without.
pub(crate) const TOOL: FieldRules = FieldRules {
    rows: &[
        ("allowed_callers", FieldRule::Usual(&["[\"direct\"]"], &FieldRule::LeftOut)),
        // Readers for which it means something take it before.
        ("defer_loading", FieldRule::Usual(&["false"], &FieldRule::LeftOut)),
    ],
    others: FieldRule::LeftOut,
};

/// The names of the tools among these that take free text.
pub(crate) fn free_tools(parts: &[PromptPart<'_>]) -> Vec<String> {
    let free = |part: &PromptPart<'_>| match part {
        PromptPart::Tool(tool) if tool.is_free => Some(tool.name.clone().into_owned()),
        _ => None,
    };
    parts.iter().filter_map(free).collect()
}

/// A choice of tools by a word of OpenAI's.
pub(crate) fn choice_word(word: &str) -> Option<ToolChoice<'static>> {
    match word {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" | "any" => Some(ToolChoice::Any),
        _ => None,
    }
}

/// A choice and the names of the tools that may be called.
pub(crate) type AllowedTools<'a> = (ToolChoice<'a>, Vec<Cow<'a, str>>);

/// OpenAI's choice among some tools: those that may be called, and whether one must be.
pub(crate) fn allowed_tools<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    name: impl Fn(&FieldPath<'_>, Raw<'a>) -> Result<Cow<'a, str>, Untranslatable>,
) -> Result<AllowedTools<'a>, Untranslatable> {
    let (mut choice, mut names) = (ToolChoice::Auto, Vec::new());
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "mode" => {
                let word = at.text(value)?;
                choice = choice_word(&word).ok_or_else(|| at.malformed("auto or required"))?;
            }
            "tools" => {
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    names.push(name(&at.index(place), value)?);
                }
            }
            _ => return Err(at.uncarried()),
        }
    }
    Ok((choice, names))
}

/// The grammar of a tool that takes free text, if it has one.
fn grammar<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Option<Cow<'a, str>>, Untranslatable> {
    let members = at.object(value)?;
    match &*at.kind(&members)? {
        "text" => return Ok(None),
        "grammar" => {}
        _ => return Err(at.key("type").uncarried()),
    }
    let mut definition = None;
    for (key, value) in members {
        let inner = at.key(&key);
        match &*key {
            "type" | "syntax" => {}
            "definition" => definition = Some(inner.text(value)?),
            // Chat completions have the grammar one level deeper.
            "grammar" => {
                let found = inner.object(value)?.into_iter().find(|(key, _)| key == "definition");
                let (_, text) = inner.needed("definition", found)?;
                definition = Some(inner.key("definition").text(text)?);
            }
            _ => return Err(inner.uncarried()),
        }
    }
    Ok(definition)
}

/// A JSON schema for answers, as OpenAI has it.
pub(crate) fn schema_format<'a>(
    at: &FieldPath<'_>,
    members: Read<'a>,
) -> Result<AnswerFormat<'a>, Untranslatable> {
    let (mut name, mut description, mut schema, mut is_strict) = (None, None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            _ if !is_given(value) => {}
            "name" => name = Some(at.text(value)?),
            "description" => description = Some(at.text(value)?),
            "schema" => schema = Some(at.json_object(value)?),
            "strict" => is_strict = Some(at.boolean(value)?),
            _ => return Err(at.uncarried()),
        }
    }
    let schema = at.needed("schema", schema)?;
    Ok(AnswerFormat::Schema { name, description, schema, is_strict })
}

/// The signature of a call that Gemini's compatible API puts beside it.
pub(crate) fn thought_signature(value: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Extra<'a> {
        #[serde(borrow)]
        google: Google<'a>,
    }
    #[derive(Deserialize)]
    struct Google<'a> {
        #[serde(borrow)]
        thought_signature: Cow<'a, str>,
    }
    json::read::<Extra<'_>>(value).map(|extra| extra.google.thought_signature)
}

/// Reads a failure with a status of 400 or above, in any of the shapes that providers use.
pub(crate) fn failure(status: u16, body: &[u8]) -> UpstreamFailure {
    let value = serde_json::from_slice::<serde_json::Value>(body);
    let value = value.unwrap_or_else(|_| failure::plain_text(body));
    let value = value.as_array().and_then(|all| all.first()).unwrap_or(&value);
    failure_of(status, value)
}

/// Reads an error object: `{"error": {"message", …}}` and its relatives.
pub(crate) fn failure_of(status: u16, value: &serde_json::Value) -> UpstreamFailure {
    let error = match &value["error"] {
        serde_json::Value::Null => value,
        error => error,
    };
    let messages =
        [&error["message"], error, &value["message"], &error["detail"], &value["detail"]];
    let message = messages.into_iter().find_map(|one| one.as_str()).filter(|text| !text.is_empty());
    let (named, param) = match failure::first_detail(value) {
        Some((message, field)) => (Some(message), Some(field)),
        None => (None, error["param"].as_str().map(str::to_owned)),
    };
    let message = match message.map(str::to_owned).or(named) {
        Some(text) => text,
        None => format!("The provider refused the request ({status})."),
    };
    let word = |key: &str| failure::word(&error[key]);
    let words = [word("code"), word("type"), word("status")].join(" ");
    let lower = message.to_ascii_lowercase();
    let has = |all: &[&str]| all.iter().any(|one| words.contains(one) || lower.contains(one));
    let kind = match status {
        401..=403 => FailureKind::Denied,
        // Google says so with 400 of a credential that it does not know.
        400 if lower.starts_with("api key not valid") || lower.starts_with("api key expired") => {
            FailureKind::Denied
        }
        404 => FailureKind::NotFound,
        429 => FailureKind::Busy,
        500.. => FailureKind::Upstream,
        _ if has(&failure::TOO_LONG) || word("code") == failure::ZHIPU_TOO_LONG => {
            FailureKind::TooLong
        }
        _ if has(&failure::FILTERED) || word("code") == failure::ZHIPU_FILTERED => {
            FailureKind::Filtered
        }
        _ if words.contains("rate_limit") => FailureKind::Busy,
        _ if has(&["server_error", "api_error", "overloaded"]) => FailureKind::Upstream,
        _ => FailureKind::Invalid,
    };
    UpstreamFailure { kind, message, param }
}

/// An id of a customer's dialect, such as `msg_` with a random word behind it.
pub(crate) fn id(prefix: &str, nonce: &str) -> String {
    [prefix, nonce].concat()
}

/// An id for the call at `place` of an answer whose upstream gives none. `answer` is a word that no other
/// answer has, so the id is that of one call in the whole conversation.
#[must_use]
pub fn call_id(answer: &str, place: usize) -> String {
    let word: String = answer.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("call_{}_{place}", word.get(word.len().saturating_sub(24)..).unwrap_or(&word))
}

/// A sign of life in dialects without an event for it: a comment, which readers of server-sent events skip
/// (HTML standard, section 9.2.5).
pub(crate) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The schema of a tool as OpenAI takes it, and whether it is one of strict mode where that is asked for.
pub(crate) fn openai_schema<'t>(
    tool: &'t Tool<'_>,
    mode: Mode,
    losses: &mut Losses,
) -> Result<(Cow<'t, str>, bool), Untranslatable> {
    let Some(schema) = tool.schema.as_deref() else {
        return Ok((tool_schema::EMPTY_SCHEMA.into(), false));
    };
    let written = tool_schema::of_tool(schema);
    if written.is_loosened {
        losses.drop_hint(mode, "tools: choices at the root of a schema")?;
    }
    let is_strict = tool.is_strict == Some(true);
    let holds = is_strict && tool_schema::is_strict(&written.text);
    if is_strict && !holds {
        losses.drop_hint(mode, "tools: strict")?;
    }
    Ok((written.text, holds))
}

/// True if the tool choice names a tool that takes free text.
pub(crate) fn names_free(parts: &[PromptPart<'_>], choice: &ToolChoice<'_>) -> bool {
    let ToolChoice::Named(name) = choice else { return false };
    parts
        .iter()
        .any(|part| matches!(part, PromptPart::Tool(tool) if tool.is_free && tool.name == *name))
}

/// The name of a schema where a dialect needs one and the customer's has none.
pub(crate) const SCHEMA_NAME: &str = "answer";
/// The name of a document where a dialect needs one and the customer has given none.
pub(crate) const FILE_NAME: &str = "document.pdf";

/// The input of a call as a JSON object, in dialects that know nothing else.
pub(crate) fn object_input<'c>(call: &'c ToolCall<'_>) -> Result<Cow<'c, str>, Untranslatable> {
    if call.is_free {
        return Ok(wrap_free(&call.input).into());
    }
    match call.input.trim() {
        "" => Ok("{}".into()),
        input if field_path::is_object(input) => Ok(Cow::Borrowed(&call.input)),
        _ => Err(Untranslatable::malformed("arguments", "a JSON object")),
    }
}

/// The member in which an input stands that is no JSON object, as models write them, and as an answer
/// leaves them that reaches its limit. It is the name that Anthropic's documentation of tool streaming
/// has for it.
const INVALID_INPUT: &str = "INVALID_JSON";

/// Writes the input of a call as a JSON object, in dialects whose answers have nothing else.
pub(crate) fn push_input(input: &str, out: &mut Vec<u8>) {
    match input.trim() {
        "" => out.extend_from_slice(b"{}"),
        object if field_path::is_object(object) => out.extend_from_slice(input.as_bytes()),
        _ => {
            let mut wrapped = Members::object(out);
            wrapped.text(out, INVALID_INPUT, input);
            wrapped.end(out);
        }
    }
}

/// A piece of an answer that outlives the bytes that it was read from.
pub(crate) fn owned(piece: AnswerPart<'_>) -> AnswerPart<'static> {
    let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
    match piece {
        AnswerPart::Begin { id, counts } => AnswerPart::Begin { id: own(id), counts },
        AnswerPart::Alive => AnswerPart::Alive,
        AnswerPart::Text(text) => AnswerPart::Text(own(text)),
        AnswerPart::Citation(Citation { back, url, title }) => {
            AnswerPart::Citation(Citation { back, url: own(url), title: own(title) })
        }
        AnswerPart::Refusal(text) => AnswerPart::Refusal(own(text)),
        AnswerPart::Reasoning(text) => AnswerPart::Reasoning(own(text)),
        AnswerPart::Seal(text) => AnswerPart::Seal(own(text)),
        AnswerPart::ToolCall { id, name, seal } => {
            AnswerPart::ToolCall { id: own(id), name: own(name), seal: seal.map(own) }
        }
        AnswerPart::Input(text) => AnswerPart::Input(own(text)),
        AnswerPart::Stop(stop) => AnswerPart::Stop(stop.into_owned()),
        AnswerPart::End(counts) => AnswerPart::End(counts),
        AnswerPart::Error(failure) => AnswerPart::Error(failure),
    }
}

/// A signature at most, in bytes: it is kept until it is whole, and those of long thoughts have some ten
/// thousand.
const SIGNATURE_BYTES_MAX: usize = 512 * 1024;

/// Adds a piece to the signature of thoughts.
pub(crate) fn push_signature(signature: &mut String, more: &str) -> Result<(), MalformedAnswer> {
    if signature.len() + more.len() > SIGNATURE_BYTES_MAX {
        return Err(MalformedAnswer("a signature that has no end".to_owned()));
    }
    signature.push_str(more);
    Ok(())
}

/// Error for an answer that holds a picture: the picture was requested, and must not be charged without being
/// delivered.
pub(crate) fn picture() -> MalformedAnswer {
    MalformedAnswer("a picture, for which the customer's dialect has no words".to_owned())
}

/// The failure of a model that ended for this reason in the place of an answer. It may do better when it
/// is asked again.
pub(crate) fn failed_stop(reason: &str) -> UpstreamFailure {
    let message = format!("The model gave no usable answer ({reason}). Send the request again.");
    UpstreamFailure { kind: FailureKind::Upstream, message, param: None }
}

/// A failure as OpenAI's error document.
pub(crate) fn openai_error(failure: &UpstreamFailure) -> Vec<u8> {
    let mut out = Vec::new();
    let mut document = Members::object(&mut out);
    document.key(&mut out, "error");
    let mut error = Members::object(&mut out);
    error.text(&mut out, "message", &failure.message);
    let (kind, code) = match failure.kind {
        FailureKind::Invalid | FailureKind::NotFound => {
            ("invalid_request_error", "invalid_request")
        }
        FailureKind::TooLong => ("invalid_request_error", "context_length_exceeded"),
        FailureKind::Filtered => ("invalid_request_error", "content_policy_violation"),
        FailureKind::Busy => ("rate_limit_error", "rate_limit_exceeded"),
        FailureKind::Denied | FailureKind::Upstream => ("server_error", "bad_gateway"),
    };
    error.text(&mut out, "type", kind);
    match &failure.param {
        Some(param) => error.text(&mut out, "param", param),
        None => error.raw(&mut out, "param", "null"),
    }
    error.text(&mut out, "code", code);
    error.end(&mut out);
    document.end(&mut out);
    out
}

/// Gives calls the seals that travelled in thoughts of their own before them, in dialects whose calls
/// have no place for one.
pub(crate) fn attach_seals(parts: &mut Vec<PromptPart<'_>>) {
    let mut kept = Vec::with_capacity(parts.len());
    let mut carried = None;
    for part in parts.drain(..) {
        match part {
            PromptPart::Reasoning(Reasoning { text, seal: Some(seal) })
                if text.is_empty() && seal::open(Maker::Gemini, &seal).is_some() =>
            {
                carried = Some(seal);
            }
            PromptPart::ToolCall(call) => {
                let seal = call.seal.clone().or(carried.take());
                kept.push(PromptPart::ToolCall(ToolCall { seal, ..call }));
            }
            other => kept.push(other),
        }
    }
    *parts = kept;
}

/// A tool's output in dialects without a field for its failure: marked by a prefix.
pub(crate) fn marked_output(text: &str, is_error: bool) -> Cow<'_, str> {
    let says_so = text.trim_start().to_ascii_lowercase().starts_with("error");
    if is_error && !says_so { format!("Error: {text}").into() } else { text.into() }
}

/// A count that is shown only where there is something to count.
pub(crate) fn counted(members: &mut Members, key: &str, count: u64, out: &mut Vec<u8>) {
    if count > 0 {
        members.integer(out, key, count);
    }
}

/// Writes Anthropic's `cache_creation`: written tokens by lifetime.
pub(crate) fn cache_creation(counts: &Counts, out: &mut Vec<u8>) {
    let mut creation = Members::object(out);
    creation.integer(out, "ephemeral_5m_input_tokens", counts.cache_write);
    creation.integer(out, "ephemeral_1h_input_tokens", counts.cache_write_1h);
    creation.end(out);
}

/// Writes cache writes for dialects with one lifetime. Tokens kept for an hour have a price of their own, so
/// Anthropic's object follows if there are any.
pub(crate) fn cache_writes(
    details: &mut Members,
    counts: &Counts,
    is_always_shown: bool,
    out: &mut Vec<u8>,
) {
    let written = counts.cache_write.saturating_add(counts.cache_write_1h);
    if written > 0 || is_always_shown {
        details.integer(out, "cache_write_tokens", written);
    }
    if counts.cache_write_1h > 0 {
        details.key(out, "cache_creation");
        cache_creation(counts, out);
    }
}

/// Writes the audio, image and video tokens of the input, if counted apart.
pub(crate) fn media_input(details: &mut Members, counts: &Counts, out: &mut Vec<u8>) {
    counted(details, "audio_tokens", counts.audio_input, out);
    counted(details, "image_tokens", counts.image_input, out);
    counted(details, "video_tokens", counts.video_input, out);
}

/// Searches in the web that the upstream ran, in Anthropic's words, as OpenAI has none in `usage`.
pub(crate) fn searches(usage: &mut Members, counts: &Counts, out: &mut Vec<u8>) {
    if counts.web_searches > 0 {
        usage.key(out, "server_tool_use");
        let mut tools = Members::object(out);
        tools.integer(out, "web_search_requests", counts.web_searches);
        tools.integer(out, "web_fetch_requests", 0);
        tools.end(out);
    }
}

/// Implements both traits for a dialect whose module has the submodules `read`, `write` and `answer`, from
/// its names of tools and the types that read and write its streams. Its failures have OpenAI's shape.
macro_rules! implement_dialect {
    ($dialect:ty, $target:ident => $naming:expr, $reader:ty, $writer:ty) => {
        impl $crate::dialect::UpstreamDialect for $dialect {
            fn naming(
                &self,
                $target: &$crate::dialect::TranslationTarget,
            ) -> $crate::names::Naming {
                $naming
            }

            fn write_request(
                &self,
                parts: &[$crate::part::PromptPart<'_>],
                target: &$crate::dialect::TranslationTarget,
                losses: &mut $crate::dialect::Losses,
            ) -> Result<Vec<u8>, $crate::dialect::Untranslatable> {
                let naming = $crate::dialect::UpstreamDialect::naming(self, target);
                write::request(&naming.applied(parts), target, losses)
            }

            fn read_answer<'a>(
                &self,
                body: &'a [u8],
            ) -> Result<Vec<$crate::part::AnswerPart<'a>>, $crate::dialect::MalformedAnswer> {
                answer::read(body)
            }

            fn stream_reader(&self) -> Box<dyn $crate::dialect::ReadStream> {
                Box::new(<$reader>::default())
            }

            fn read_failure(&self, status: u16, body: &[u8]) -> $crate::part::UpstreamFailure {
                $crate::kit::failure(status, body)
            }
        }

        impl $crate::dialect::Dialect for $dialect {
            fn read_request<'a>(
                &self,
                body: &'a [u8],
            ) -> Result<$crate::dialect::TranslatableRequest<'a>, $crate::dialect::Untranslatable>
            {
                read::request(body)
            }

            fn write_answer(
                &self,
                answer: &[$crate::part::AnswerPart<'_>],
                frame: &$crate::dialect::AnswerFrame,
            ) -> Vec<u8> {
                answer::write(answer, frame)
            }

            fn stream_writer(
                &self,
                frame: &$crate::dialect::AnswerFrame,
            ) -> Box<dyn $crate::dialect::WriteStream> {
                Box::new(<$writer>::new(frame))
            }
        }
    };
}
pub(crate) use implement_dialect;
