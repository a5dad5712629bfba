//! Reads a customer's response request as parts.

use crate::answer_format;
use crate::dialect::{AnswerFrame, TranslatableRequest, Untranslatable};
use crate::field_path::{FieldPath, MemberList, OmissionLog, Raw, document, is_given};
use crate::part::{PromptPart, Sampling, Text};
use crate::responses::fields;
use crate::responses::read_items;
use crate::responses::read_tools::ReadTools;
use crate::seal;
use crate::thinking;

/// Request members that an answer repeats, with the defaults for absent ones.
const REPEATED: [(&str, &str); 17] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("presence_penalty", "0.0"),
    ("frequency_penalty", "0.0"),
    ("prompt_cache_key", "null"),
    ("reasoning", "{\"effort\":null,\"summary\":null}"),
    ("safety_identifier", "null"),
    ("temperature", "1.0"),
    ("text", "{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "1.0"),
    ("truncation", "\"disabled\""),
];

pub(super) fn request(body: &[u8]) -> Result<TranslatableRequest<'_>, Untranslatable> {
    let left_out = OmissionLog::default();
    let root = FieldPath::root(&left_out);
    let (mut parts, mut frame) = (Vec::new(), AnswerFrame::default());
    let members = root.object(document(body)?)?;
    frame.repeated = repeated(&members);
    // Instructions stand before the first turn, wherever the field stands.
    let mut items = Vec::new();
    let (mut tools, mut choice, mut user) = (ReadTools::default(), None, None);
    for (key, value) in members {
        let at = root.key(&key);
        if !is_given(value) {
            continue;
        }
        match &*key {
            "model" => frame.model = at.text(value)?.into_owned(),
            "instructions" => {
                let text = Text { text: at.text(value)?, cache: None };
                parts.push(PromptPart::Instruction(text));
            }
            "input" => read_items::input(&at, value, &mut items, &mut tools)?,
            "stream" => frame.streams = at.boolean(value)?,
            "max_output_tokens" => parts.push(PromptPart::OutputMax(at.count(value)?)),
            "temperature" => {
                parts.push(PromptPart::Sampling(Sampling::Temperature(at.number(value)?)))
            }
            "top_p" => parts.push(PromptPart::Sampling(Sampling::TopP(at.number(value)?))),
            "tools" => drop(tools.list(&at, value, false)?),
            "tool_choice" => choice = Some(value),
            "parallel_tool_calls" => parts.push(PromptPart::ParallelTools(at.boolean(value)?)),
            "reasoning" => reasoning(&at, value, &mut parts)?,
            "text" => text(&at, value, &mut parts)?,
            // Two names of one thing, which is said once.
            "user" | "safety_identifier" => user = Some(at.text(value)?),
            "prompt_cache_key" => parts.push(PromptPart::CacheKey(at.text(value)?)),
            _ => fields::REQUEST.field(&at, &key, value)?,
        }
    }
    // Instructions alone say what to do.
    if items.is_empty() && !parts.iter().any(|part| matches!(part, PromptPart::Instruction(_))) {
        return Err(root.key("input").malformed("a text, or an array with at least one item"));
    }
    if let Some(value) = choice {
        parts.push(PromptPart::ToolChoice(tools.choice(&root.key("tool_choice"), value)?));
    }
    tools.put(&items, &mut parts, &mut frame);
    parts.extend(user.map(PromptPart::User));
    seal::attach_to_calls(&mut items);
    parts.extend(items);
    frame.shows_usage = true;
    let left_out = left_out.into_omissions();
    Ok(TranslatableRequest { parts, frame, left_out, caches: false })
}

/// The members that the answer repeats, as [`AnswerFrame::repeated`] has them.
fn repeated(members: &MemberList<'_>) -> String {
    let mut out = Vec::new();
    for (field, otherwise) in REPEATED {
        let given = members.iter().find(|(key, value)| key == field && is_given(*value));
        let value = given.map_or(otherwise, |(_, value)| value.get());
        for piece in ["\"", field, "\":", value, ","] {
            out.extend_from_slice(piece.as_bytes());
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

fn reasoning<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "effort" => parts.push(PromptPart::Thinking(thinking::of_openai(&at, value)?)),
            _ => fields::REASONING.field(&at, &key, value)?,
        }
    }
    Ok(())
}

fn text<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "verbosity" => parts.push(PromptPart::Verbosity(at.text(value)?)),
            "format" => {
                let members = at.object(value)?;
                match &*at.kind(&members)? {
                    "text" => {}
                    "json_object" => {
                        parts.push(PromptPart::Format(crate::part::AnswerFormat::Json))
                    }
                    "json_schema" => {
                        parts.push(PromptPart::Format(answer_format::schema_format(&at, members)?))
                    }
                    _ => return Err(at.key("type").uncarried()),
                }
            }
            _ => return Err(at.uncarried()),
        }
    }
    Ok(())
}
