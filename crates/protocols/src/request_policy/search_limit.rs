//! The limit of searches that a request gets whose customer sets none.
//!
//! A vendor runs as many searches as the model asks for, and each has a price and is read again in every round
//! after it. So a request that offers them without a limit gets one, where its vendor has a word for that:
//! `max_tool_calls` of responses, `max_uses` of a tool of messages. It is the same in every turn, so caches
//! find the prompt again. All else of the body stays as it is.

use std::ops::Range;

use super::super::json::{Object, Value};
use super::super::server_tools::CallLimit;
use super::super::splice::Splice;
use super::Allowlist;

/// Position of a limit in a body, and its form.
#[derive(Debug)]
pub(in super::super) struct SearchLimit {
    edits: Vec<(Range<usize>, String)>,
}

impl SearchLimit {
    /// The limit for a request that offers searches, unless it has one.
    pub(super) fn for_request(
        body: &Object<'_>,
        place: CallLimit,
        searches_max: u32,
        allowlist: &Allowlist,
    ) -> Option<Self> {
        if searches_max == 0 {
            return None;
        }
        let edits = match place {
            CallLimit::Request => edit(body, "max_tool_calls", searches_max).into_iter().collect(),
            CallLimit::Tool => {
                let tools = body.get_non_null("tools")?;
                let is_search = |tool: &Object<'_>| {
                    let kind = tool.get("type").and_then(|kind| kind.as_str());
                    kind.is_some_and(|kind| {
                        let mut run = allowlist.server_tools.iter();
                        run.any(|tool| tool.result.is_some() && tool.is_named(&kind))
                    })
                };
                let limit = |tool: Value<'_>| {
                    let start = tools.range.start + tool.range.start;
                    let object = tool.as_object().ok().filter(is_search)?;
                    let (range, text) = edit(&object, "max_uses", searches_max)?;
                    Some((start + range.start..start + range.end, text))
                };
                tools.elements()?.filter_map(limit).collect::<Vec<_>>()
            }
        };
        (!edits.is_empty()).then_some(Self { edits })
    }

    /// Writes it into the body.
    pub(in super::super) fn write(&self, splice: &mut Splice) {
        for (range, text) in &self.edits {
            splice.replace(range.clone(), text.clone());
        }
    }
}

/// A member added to an object that does not have it, or written over `null`.
fn edit(object: &Object<'_>, key: &str, number: u32) -> Option<(Range<usize>, String)> {
    match object.get(key) {
        Some(value) if value.is_null() => Some((value.range, number.to_string())),
        Some(_) => None,
        None => {
            let (at, has_members) = object.insertion_point();
            let comma = if has_members { "," } else { "" };
            Some((at..at, format!("{comma}\"{key}\":{number}")))
        }
    }
}
