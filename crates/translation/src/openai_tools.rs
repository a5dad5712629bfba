//! Tools as both of OpenAI's APIs have them: definitions, choices and grammars.

use std::borrow::Cow;

use crate::cache_marks::cache_control;
use crate::dialect::{Losses, Mode, Untranslatable};
use crate::field_path::{FieldPath, MemberList, Raw, is_given};
use crate::field_rules::{FieldRule, FieldRules};
use crate::part::{PromptPart, Tool, ToolChoice};
use crate::tool_schema;

/// A tool of OpenAI's: name, description, schema. The grammar of one that takes free text follows its
/// description, as other dialects have no place for it.
pub(crate) fn tool<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
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

/// True if the tool choice names a tool that takes free text.
pub(crate) fn names_free(parts: &[PromptPart<'_>], choice: &ToolChoice<'_>) -> bool {
    let ToolChoice::Named(name) = choice else { return false };
    parts
        .iter()
        .any(|part| matches!(part, PromptPart::Tool(tool) if tool.is_free && tool.name == *name))
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

/// Schema of a tool in OpenAI's form, and whether strict mode applies to it.
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

/// A tool's output in dialects without a field for its failure: marked by a prefix.
pub(crate) fn marked_output(text: &str, is_error: bool) -> Cow<'_, str> {
    let says_so = text.trim_start().to_ascii_lowercase().starts_with("error");
    if is_error && !says_so { format!("Error: {text}").into() } else { text.into() }
}
