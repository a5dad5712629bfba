//! Tools and settings of a customer's request for content, as parts.

use std::borrow::Cow;

use crate::customer_tools::CustomerTools;
use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, Raw, is_given};
use crate::gemini::fields;
use crate::gemini::members::members;
use crate::gemini::schema::json_schema;
use crate::part::{AnswerFormat, Effort, PromptPart, Sampling, Thinking, Tool, ToolChoice};

pub(super) fn tools<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &mut CustomerTools<'a>,
) -> Result<(), Untranslatable> {
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        for (key, value) in members(&at, value)? {
            let at_tool = at;
            let at = at.key(&key);
            match &*key {
                _ if !is_given(value) => {}
                "functionDeclarations" => {
                    for (place, value) in at.list(value)?.into_iter().enumerate() {
                        declaration(&at.index(place), value, tools)?;
                    }
                }
                // Tools that Google runs.
                _ => tools.leave_out(&at_tool, &key),
            }
        }
    }
    Ok(())
}

fn declaration<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &mut CustomerTools<'a>,
) -> Result<(), Untranslatable> {
    let (mut name, mut description, mut schema) = (None, None, None);
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "name" => name = Some(at.text(value)?),
            "description" => description = Some(at.text(value)?),
            "parameters" | "parametersJsonSchema" if schema.is_some() => {
                return Err(at.malformed("there in one form"));
            }
            "parameters" => schema = Some(json_schema(&at, value)?),
            "parametersJsonSchema" => schema = Some(at.json_object(value)?),
            _ => fields::DECLARATION.field(&at, &key, value)?,
        }
    }
    let name = at.needed("name", name)?;
    let (is_strict, is_free, cache) = (None, false, None);
    tools.offer(Tool { name, description, schema, is_strict, is_free, cache }, false);
    Ok(())
}

/// Reads which tools may be called. `VALIDATED` makes all calls fit their schemas.
pub(super) fn tool_config<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &mut CustomerTools<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "functionCallingConfig" => function_calling(&at, value, tools, parts)?,
            _ => fields::TOOL_CONFIG.field(&at, &key, value)?,
        }
    }
    Ok(())
}

fn function_calling<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &mut CustomerTools<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let (mut mode, mut names) = (Cow::Borrowed("AUTO"), Vec::new());
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "mode" => mode = at.text(value)?,
            "allowedFunctionNames" => {
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    names.push(at.index(place).text(value)?);
                }
            }
            _ => fields::CALLING.field(&at, &key, value)?,
        }
    }
    let choice = match (&*mode, &names[..]) {
        ("NONE", _) => ToolChoice::None,
        ("ANY", [name]) => ToolChoice::Named(name.clone()),
        ("ANY", _) => ToolChoice::Any,
        ("AUTO" | "MODE_UNSPECIFIED" | "VALIDATED", _) => ToolChoice::Auto,
        _ => return Err(at.key("mode").uncarried()),
    };
    if names.len() > 1 || (!names.is_empty() && choice == ToolChoice::Auto) {
        // A choice among some has no words elsewhere: the others are not offered.
        tools.allow(names);
    }
    tools.check(at, &choice)?;
    if mode == "VALIDATED" {
        tools.make_strict();
        return Ok(());
    }
    parts.push(PromptPart::ToolChoice(choice));
    Ok(())
}

pub(super) fn generation<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let mut format = ReadFormat::default();
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "temperature" => {
                parts.push(PromptPart::Sampling(Sampling::Temperature(at.number(value)?)));
            }
            "topP" => parts.push(PromptPart::Sampling(Sampling::TopP(at.number(value)?))),
            "topK" => parts.push(PromptPart::Sampling(Sampling::TopK(whole_number(&at, value)?))),
            "seed" => parts.push(PromptPart::Sampling(Sampling::Seed(at.integer(value)?))),
            "presencePenalty" => {
                parts.push(PromptPart::Sampling(Sampling::PresencePenalty(at.number(value)?)));
            }
            "frequencyPenalty" => {
                parts.push(PromptPart::Sampling(Sampling::FrequencyPenalty(at.number(value)?)));
            }
            "maxOutputTokens" => parts.push(PromptPart::OutputMax(at.count(value)?)),
            "stopSequences" => parts.push(PromptPart::Stop(at.texts(value)?)),
            "thinkingConfig" => parts.extend(thinking(&at, value)?.map(PromptPart::Thinking)),
            "responseModalities" if is_text(&at, value)? => {}
            "responseMimeType" | "responseSchema" | "responseJsonSchema" => {
                format.take(&at, &key, value)?;
            }
            "responseModalities" => return Err(at.refused("the answer is text only")),
            _ => fields::GENERATION.field(&at, &key, value)?,
        }
    }
    parts.extend(format.part(at)?);
    Ok(())
}

/// An integer, which Python's SDK writes as a float.
fn whole_number(at: &FieldPath<'_>, value: Raw<'_>) -> Result<u64, Untranslatable> {
    let text = value.get();
    let digits = text.strip_suffix(".0").unwrap_or(text);
    digits.parse().map_err(|_| at.malformed("an integer from 0 up"))
}

/// True if text is the only response modality.
fn is_text(at: &FieldPath<'_>, value: Raw<'_>) -> Result<bool, Untranslatable> {
    let mut is_text = true;
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        is_text &= at.index(place).text(value)?.eq_ignore_ascii_case("text");
    }
    Ok(is_text)
}

/// Fields that describe the format of the answer.
#[derive(Default)]
struct ReadFormat<'a> {
    media_type: Option<Cow<'a, str>>,
    schema: Option<Cow<'a, str>>,
}

impl<'a> ReadFormat<'a> {
    fn take(
        &mut self,
        at: &FieldPath<'_>,
        key: &str,
        value: Raw<'a>,
    ) -> Result<(), Untranslatable> {
        match key {
            "responseMimeType" => self.media_type = Some(at.text(value)?),
            _ if self.schema.is_some() => return Err(at.malformed("there in one form")),
            "responseSchema" => self.schema = Some(json_schema(at, value)?),
            _ => self.schema = Some(at.json_object(value)?),
        }
        Ok(())
    }

    fn part(self, at: &FieldPath<'_>) -> Result<Option<PromptPart<'a>>, Untranslatable> {
        match (self.media_type.as_deref(), self.schema) {
            (None | Some("text/plain"), None) => Ok(None),
            (Some("application/json"), None) => Ok(Some(PromptPart::Format(AnswerFormat::Json))),
            (Some("application/json"), Some(schema)) => {
                let (name, description, is_strict) = (None, None, Some(true));
                let format = AnswerFormat::Schema { name, description, schema, is_strict };
                Ok(Some(PromptPart::Format(format)))
            }
            _ => Err(at.key("responseMimeType").uncarried()),
        }
    }
}

fn thinking(at: &FieldPath<'_>, value: Raw<'_>) -> Result<Option<Thinking>, Untranslatable> {
    let (mut budget, mut level, mut shows) = (None, None, false);
    for (key, value) in members(at, value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "includeThoughts" => shows = at.boolean(value)?,
            "thinkingBudget" => budget = Some(at.integer(value)?),
            "thinkingLevel" => {
                level = Some(match at.text(value)?.to_ascii_lowercase().as_str() {
                    "minimal" => Some(Effort::Minimal),
                    "low" => Some(Effort::Low),
                    "medium" => Some(Effort::Medium),
                    "high" => Some(Effort::High),
                    "thinking_level_unspecified" => None,
                    _ => return Err(at.malformed("minimal, low, medium or high")),
                });
            }
            _ => fields::THINKING.field(&at, &key, value)?,
        }
    }
    let at_budget = at.key("thinkingBudget");
    match (level.flatten(), budget) {
        (Some(_), Some(_)) => Err(at_budget.malformed("there without a level")),
        (Some(effort), None) => Ok(Some(Thinking::Effort(effort))),
        (None, Some(0)) => Ok(Some(Thinking::Off)),
        (None, Some(-1)) => Ok(Some(Thinking::Adaptive)),
        (None, Some(tokens)) => {
            let tokens = u64::try_from(tokens);
            tokens.map(|tokens| Some(Thinking::Budget(tokens))).map_err(|_| {
                at_budget.malformed("a number of tokens, or -1 for as many as the model likes")
            })
        }
        // Without either the model thinks as much as it likes.
        (None, None) => Ok(shows.then_some(Thinking::Adaptive)),
    }
}
