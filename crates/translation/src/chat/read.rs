//! Reads a customer's chat completion request as parts.

use std::borrow::Cow;

use crate::answer_format;
use crate::cache_marks;
use crate::chat::{fields, read_messages};
use crate::customer_tools::{CustomerTools, RUN_BY_PROVIDER};
use crate::dialect::{AnswerFrame, TranslatableRequest, Untranslatable};
use crate::field_path::{FieldPath, OmissionLog, Raw, document, is_given};
use crate::openai_tools;
use crate::part::{AnswerFormat, PromptPart, Sampling, Thinking, Tool, ToolChoice};
use crate::thinking;

pub(super) fn request(body: &[u8]) -> Result<TranslatableRequest<'_>, Untranslatable> {
    let left_out = OmissionLog::default();
    let root = FieldPath::root(&left_out);
    let (mut parts, mut frame) = (Vec::new(), AnswerFrame::default());
    let (mut output, mut completion) = (None, None);
    let mut tools = CustomerTools::default();
    let (mut choice, mut has_messages, mut caches) = (None, false, false);
    // Some of these have two names, and are said once.
    let (mut user, mut thoughts) = (None, Vec::new());
    for (key, value) in root.object(document(body)?)? {
        let at = root.key(&key);
        if !is_given(value) {
            continue;
        }
        match &*key {
            "model" => frame.model = at.text(value)?.into_owned(),
            "messages" => {
                has_messages = true;
                read_messages::messages(&at, value, &mut parts)?;
            }
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
            "tools" => self::tools(&at, value, &mut tools)?,
            "tool_choice" => choice = Some(value),
            "parallel_tool_calls" => parts.push(PromptPart::ParallelTools(at.boolean(value)?)),
            "response_format" => parts.extend(response_format(&at, value)?),
            "reasoning_effort" | "reasoning" | "thinking" | "enable_thinking"
            | "thinking_budget" => thoughts.extend(thinking(&at, &key, value)?),
            "cache_control" => caches = cache_marks::cache_control(&at, value)?.is_some(),
            "verbosity" => parts.push(PromptPart::Verbosity(at.text(value)?)),
            "user" | "safety_identifier" => user = Some(at.text(value)?),
            "prompt_cache_key" => parts.push(PromptPart::CacheKey(at.text(value)?)),
            _ => fields::REQUEST.field(&at, &key, value)?,
        }
    }
    if !has_messages {
        return Err(Untranslatable {
            field: "messages".into(),
            message: "Missing required parameter: 'messages'.".to_owned(),
        });
    }
    if let Some(value) = choice {
        let at = root.key("tool_choice");
        let choice = tool_choice(&at, value, &mut tools)?;
        tools.check(&at, &choice)?;
        parts.push(PromptPart::ToolChoice(choice));
    }
    let messages_from = parts.len();
    tools.put(&[], &mut parts);
    frame.free_tools = openai_tools::free_tools(parts.get(messages_from..).unwrap_or_default());
    parts.extend(completion.or(output).map(PromptPart::OutputMax));
    parts.extend(user.map(PromptPart::User));
    parts.extend(thinking::strongest(&thoughts).map(PromptPart::Thinking));
    let left_out = left_out.into_omissions();
    Ok(TranslatableRequest { parts, frame, left_out, caches })
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
            _ => fields::STREAM_OPTIONS.field(&at, &key, value)?,
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
            Ok(Some(PromptPart::Format(answer_format::schema_format(&at, at.object(*schema)?)?)))
        }
        _ => Err(at.key("type").uncarried()),
    }
}

/// Reads the reasoning effort: OpenAI's word, OpenRouter's or Anthropic's object, or Qwen's fields.
fn thinking(
    at: &FieldPath<'_>,
    key: &str,
    value: Raw<'_>,
) -> Result<Option<Thinking>, Untranslatable> {
    match key {
        "reasoning_effort" => return thinking::of_openai(at, value).map(Some),
        "enable_thinking" => {
            return Ok(Some(if at.boolean(value)? { Thinking::Adaptive } else { Thinking::Off }));
        }
        "thinking_budget" => return Ok(Some(Thinking::Budget(at.count(value)?))),
        _ => {}
    }
    let (mut is_on, mut effort, mut budget) = (None, None, None);
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "type" => is_on = Some(at.text(value)? != "disabled"),
            "enabled" => is_on = Some(at.boolean(value)?),
            "effort" => effort = Some(thinking::of_openai(&at, value)?),
            "max_tokens" | "budget_tokens" => budget = Some(Thinking::Budget(at.count(value)?)),
            _ => fields::REASONING.field(&at, &key, value)?,
        }
    }
    Ok(match is_on {
        Some(false) => Some(Thinking::Off),
        Some(true) => budget.or(effort).or(Some(Thinking::Adaptive)),
        None => budget.or(effort),
    })
}

fn tools<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &mut CustomerTools<'a>,
) -> Result<(), Untranslatable> {
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        let kind = at.kind(&members)?;
        if !matches!(&*kind, "function" | "custom") {
            tools.leave_out(&at, &kind);
            continue;
        }
        let is_free = kind == "custom";
        let (mut found, mut cache) = (None, None);
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "type" => {}
                _ if key == kind => {
                    found = Some(openai_tools::tool(&at, at.object(value)?, is_free)?)
                }
                "cache_control" | "copilot_cache_control" => {
                    cache = cache_marks::cache_control(&at, value)?;
                }
                _ => openai_tools::TOOL.field(&at, &key, value)?,
            }
        }
        let tool = at.needed(&kind, found)?;
        tools.offer(Tool { cache: cache.or(tool.cache), ..tool }, false);
    }
    Ok(())
}

fn tool_choice<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &mut CustomerTools<'a>,
) -> Result<ToolChoice<'a>, Untranslatable> {
    if value.get().starts_with('"') {
        let word = at.text(value)?;
        return openai_tools::choice_word(&word)
            .ok_or_else(|| at.malformed("auto, none, required or a tool"));
    }
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let inner = members.iter().find(|(key, _)| *key == kind).map(|(_, value)| *value);
    let at = at.key(&kind);
    match (&*kind, inner) {
        ("function" | "custom", Some(value)) => Ok(ToolChoice::Named(name(&at, value)?)),
        ("function" | "custom", None) => Err(at.malformed("there")),
        ("allowed_tools", Some(value)) => {
            let (choice, names) = openai_tools::allowed_tools(&at, value, |at, tool| {
                let members = at.object(tool)?;
                let kind = at.kind(&members)?;
                let inner = members.iter().find(|(key, _)| *key == kind).map(|(_, value)| *value);
                name(&at.key(&kind), at.needed(&kind, inner)?)
            })?;
            tools.allow(names);
            Ok(choice)
        }
        (word, _) => openai_tools::choice_word(word).ok_or_else(|| at.refused(RUN_BY_PROVIDER)),
    }
}

/// The name in an object that has one.
fn name<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Cow<'a, str>, Untranslatable> {
    let name = at.object(value)?.into_iter().find(|(key, _)| key == "name");
    let (_, name) = at.needed("name", name)?;
    at.key("name").text(name)
}
