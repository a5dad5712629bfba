//! The tools of a customer's message, as they are offered.

use crate::cache_marks;
use crate::customer_tools::CustomerTools;
use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, MemberList, Raw, is_given};
use crate::messages::fields;
use crate::openai_tools;
use crate::part::{PromptPart, Tool, ToolChoice};

/// A tool that the customer runs and that Anthropic's models know without a schema.
struct BuiltinTool {
    /// The beginning of its type: a date follows.
    kind: &'static str,
    description: &'static str,
    schema: &'static str,
}

/// Source: Anthropic's documentation of its bash, text editor and memory tools.
const BUILTIN_TOOLS: [BuiltinTool; 3] = [
    BuiltinTool {
        kind: "bash_2",
        description: "Runs a command in a bash session that goes on from call to call.",
        schema: r#"{"type":"object","properties":{"command":{"type":"string","description":"The command to run."},"restart":{"type":"boolean","description":"Restart the session instead."}}}"#,
    },
    BuiltinTool {
        kind: "text_editor_2",
        description: "Views, creates and edits text files.",
        schema: r#"{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert"]},"path":{"type":"string","description":"The path of the file or directory."},"view_range":{"type":"array","items":{"type":"integer"},"description":"First and last line to view, counted from 1; -1 is the end."},"file_text":{"type":"string","description":"The text of the file to create."},"old_str":{"type":"string","description":"The text to replace, which must be there once."},"new_str":{"type":"string","description":"The text to put in its place."},"insert_line":{"type":"integer","description":"The line behind which to insert; 0 is the beginning."},"insert_text":{"type":"string","description":"The text to insert."}},"required":["command","path"]}"#,
    },
    BuiltinTool {
        kind: "memory_2",
        description: "Keeps notes in files under /memories from one conversation to the next.",
        schema: r#"{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},"path":{"type":"string","description":"The path below /memories."},"view_range":{"type":"array","items":{"type":"integer"}},"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},"old_path":{"type":"string"},"new_path":{"type":"string"}},"required":["command"]}"#,
    },
];

/// Reads the tools.
///
/// # Errors
/// The field that is malformed.
pub(super) fn tools<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &mut CustomerTools<'a>,
) -> Result<(), Untranslatable> {
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        let kind = members.iter().find(|(key, value)| key == "type" && is_given(*value));
        let kind = kind.map(|(_, value)| at.key("type").text(*value)).transpose()?;
        let kind = kind.filter(|kind| kind != "custom");
        let builtin = kind
            .as_ref()
            .and_then(|kind| BUILTIN_TOOLS.iter().find(|builtin| kind.starts_with(builtin.kind)));
        let has_schema = members.iter().any(|(key, _)| key == "input_schema");
        match kind {
            Some(kind) if builtin.is_none() && !has_schema => {
                // Nothing here searches as the provider would: all that waits is in the prompt.
                tools.needs_all |= kind.starts_with("tool_search_tool");
                tools.leave_out(&at, &kind);
            }
            _ => tool(&at, members, builtin, tools)?,
        }
    }
    Ok(())
}

fn tool<'a>(
    at: &FieldPath<'_>,
    members: MemberList<'a>,
    builtin: Option<&BuiltinTool>,
    tools: &mut CustomerTools<'a>,
) -> Result<(), Untranslatable> {
    let (mut name, mut is_strict, mut cache) = (None, None, None);
    let mut description = builtin.map(|builtin| builtin.description.into());
    let mut schema = builtin.map(|builtin| builtin.schema.into());
    let mut waits = false;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            _ if !is_given(value) => {}
            "name" => name = Some(at.text(value)?),
            "description" => description = Some(at.text(value)?),
            "input_schema" => schema = Some(at.json_object(value)?),
            "strict" => is_strict = Some(at.boolean(value)?),
            "cache_control" => cache = cache_marks::cache_control(&at, value)?,
            "defer_loading" => waits = at.boolean(value)?,
            _ => openai_tools::TOOL.field(&at, &key, value)?,
        }
    }
    let name = at.needed("name", name)?;
    let schema = Some(at.needed("input_schema", schema)?);
    tools.offer(Tool { name, description, schema, is_strict, is_free: false, cache }, waits);
    Ok(())
}

/// Reads which tool is to be called.
///
/// # Errors
/// A tool that the provider would run.
pub(super) fn tool_choice<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    tools: &CustomerTools<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let mut name = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            _ if !is_given(value) => {}
            "name" => name = Some(at.text(value)?),
            "disable_parallel_tool_use" => {
                parts.push(PromptPart::ParallelTools(!at.boolean(value)?));
            }
            _ => fields::TOOL_CHOICE.field(&at, &key, value)?,
        }
    }
    let choice = match &*kind {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Any,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Named(at.needed("name", name)?),
        _ => return Err(at.key("type").malformed("auto, any, tool or none")),
    };
    tools.check(at, &choice)?;
    parts.push(PromptPart::ToolChoice(choice));
    Ok(())
}
