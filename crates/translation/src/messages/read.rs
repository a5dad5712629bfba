//! Reads a customer's message request as parts.

use crate::cache_marks;
use crate::customer_tools::CustomerTools;
use crate::dialect::{AnswerFrame, TranslatableRequest, Untranslatable};
use crate::field_path::{FieldPath, OmissionLog, Raw, document, is_given};
use crate::messages::read_turns::TurnReader;
use crate::messages::{fields, read_tools};
use crate::part::{AnswerFormat, PromptPart, Sampling, Thinking};
use crate::seal;
use crate::thinking;

pub(super) fn request(body: &[u8]) -> Result<TranslatableRequest<'_>, Untranslatable> {
    let left_out = OmissionLog::default();
    let root = FieldPath::root(&left_out);
    let (mut parts, mut frame) = (Vec::new(), AnswerFrame::default());
    // Instructions stand before the first turn, wherever the field stands.
    let mut turns = Vec::new();
    let (mut tools, mut choice) = (CustomerTools::default(), None);
    let (mut has_messages, mut caches) = (false, false);
    for (key, value) in root.object(document(body)?)? {
        let at = root.key(&key);
        if !is_given(value) {
            continue;
        }
        match &*key {
            "model" => frame.model = at.text(value)?.into_owned(),
            "system" => {
                TurnReader { parts: &mut parts, tools: &mut tools }.instructions(&at, value)?;
            }
            "messages" => {
                has_messages = true;
                TurnReader { parts: &mut turns, tools: &mut tools }.messages(&at, value)?;
            }
            "max_tokens" => parts.push(PromptPart::OutputMax(at.count(value)?)),
            "stream" => frame.streams = at.boolean(value)?,
            "temperature" => {
                parts.push(PromptPart::Sampling(Sampling::Temperature(at.number(value)?)))
            }
            "top_p" => parts.push(PromptPart::Sampling(Sampling::TopP(at.number(value)?))),
            "top_k" => parts.push(PromptPart::Sampling(Sampling::TopK(at.count(value)?))),
            "stop_sequences" => parts.push(PromptPart::Stop(at.texts(value)?)),
            "tools" => read_tools::tools(&at, value, &mut tools)?,
            "tool_choice" => choice = Some(value),
            "thinking" => parts.push(PromptPart::Thinking(thinking(&at, value)?)),
            "output_format" => parts.push(PromptPart::Format(output_format(&at, value)?)),
            "output_config" => output_config(&at, value, &mut parts)?,
            "metadata" => metadata(&at, value, &mut parts)?,
            "cache_control" => caches = cache_marks::cache_control(&at, value)?.is_some(),
            _ => fields::REQUEST.field(&at, &key, value)?,
        }
    }
    if !has_messages {
        let message = "messages: Field required".to_owned();
        return Err(Untranslatable { field: "messages".into(), message });
    }
    if let Some(value) = choice {
        read_tools::tool_choice(&root.key("tool_choice"), value, &tools, &mut parts)?;
    }
    tools.put(&turns, &mut parts);
    prefer_effort(&mut parts);
    seal::attach_to_calls(&mut turns);
    parts.extend(turns);
    frame.shows_usage = true;
    let left_out = left_out.into_omissions();
    Ok(TranslatableRequest { parts, frame, left_out, caches })
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

fn thinking(at: &FieldPath<'_>, value: Raw<'_>) -> Result<Thinking, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let mut budget = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "budget_tokens" if is_given(value) => budget = Some(at.count(value)?),
            _ => fields::THINKING.field(&at, &key, value)?,
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
                let effort = thinking::effort_of_word(&at.text(value)?);
                let effort = effort.ok_or_else(|| at.malformed("low, medium, high or max"))?;
                parts.push(PromptPart::Thinking(Thinking::Effort(effort)));
            }
            "format" => parts.push(PromptPart::Format(output_format(&at, value)?)),
            _ => fields::OUTPUT_CONFIG.field(&at, &key, value)?,
        }
    }
    Ok(())
}

/// A JSON schema for the answer.
fn output_format<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<AnswerFormat<'a>, Untranslatable> {
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
            // OpenAI's SDKs have more there, which says nothing that the schema does not.
            _ => fields::METADATA.field(&at, &key, value)?,
        }
    }
    let schema = at.needed("schema", schema)?;
    Ok(AnswerFormat::Schema { name: None, description: None, schema, is_strict: Some(true) })
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
            _ => fields::METADATA.field(&at, &key, value)?,
        }
    }
    Ok(())
}
