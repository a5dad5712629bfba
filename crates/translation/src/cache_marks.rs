//! Anthropic's marks for the cache of prompts, which customers of other dialects send as well.

use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, Raw, is_given};
use crate::part::{Cache, ContentPart, PromptPart};

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
