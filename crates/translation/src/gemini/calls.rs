//! Pairs results with calls: ids are optional at Google, and a result without one is matched by the name of
//! its tool.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use crate::dialect::Untranslatable;
use crate::part::{PromptPart, ToolResult};

/// The reference of a result to its call.
pub(super) struct NamedResult<'a> {
    /// The name of the tool.
    pub(super) name: Cow<'a, str>,
    /// Path of the result, for a refusal.
    pub(super) field: String,
}

/// The calls so far, by their place among all.
#[derive(Default)]
struct Calls {
    ids: Vec<String>,
    /// For each call, true if it has its result.
    is_answered: Vec<bool>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, VecDeque<usize>>,
}

impl Calls {
    /// The id of the call whose result has this id and this name.
    fn answer(&mut self, id: &str, name: &str) -> Option<&str> {
        let is_open = |place: &usize| self.is_answered.get(*place) == Some(&false);
        let named = self.by_id.get(id).copied().filter(is_open);
        let place = match (named, self.by_name.get_mut(name)) {
            (Some(place), _) => Some(place),
            (None, None) => None,
            (None, Some(places)) => loop {
                let place = places.pop_front();
                if place.is_none_or(|place| is_open(&place)) {
                    break place;
                }
            },
        }?;
        *self.is_answered.get_mut(place)? = true;
        self.ids.get(place).map(String::as_str)
    }
}

/// Gives each call without an id one that is the same in every later request of the conversation, and
/// each result the id of its call: the one that it names, or else the first of that tool without a
/// result. A result that is there twice, with the same id and content, is one: gemini-cli repeats the last
/// one when it resumes a session, and Google takes it.
///
/// # Errors
/// A result without a call before it.
pub(super) fn match_results(
    parts: &mut Vec<PromptPart<'_>>,
    results: Vec<NamedResult<'_>>,
) -> Result<(), Untranslatable> {
    let mut results = results.into_iter();
    let mut calls = Calls::default();
    let (mut answered, mut repeated) = (HashMap::new(), Vec::new());
    for place in 0..parts.len() {
        let (before, rest) = parts.split_at_mut(place);
        let Some(part) = rest.first_mut() else { break };
        match part {
            PromptPart::ToolCall(call) => {
                let place = calls.ids.len();
                if call.id.is_empty() {
                    // What stands before it never changes, and so neither does its place.
                    call.id = format!("call_{place}").into();
                }
                calls.ids.push(call.id.clone().into_owned());
                calls.is_answered.push(false);
                calls.by_id.insert(call.id.clone().into_owned(), place);
                calls.by_name.entry(call.name.clone().into_owned()).or_default().push_back(place);
            }
            PromptPart::ToolResult(result) => {
                let Some(NamedResult { name, field }) = results.next() else { continue };
                match calls.answer(&result.id, &name) {
                    Some(id) => {
                        answered.insert(id.to_owned(), place);
                        result.id = id.to_owned().into();
                    }
                    None if is_repeated(before, &answered, result) => repeated.push(place),
                    None => {
                        let expected = "the result of a call that stands before it";
                        return Err(Untranslatable::malformed(field, expected));
                    }
                }
            }
            _ => {}
        }
    }
    let mut place = 0;
    parts.retain(|_| {
        let stays = repeated.binary_search(&place).is_err();
        place += 1;
        stays
    });
    Ok(())
}

/// True if the result repeats an earlier one with the same id.
fn is_repeated(
    before: &[PromptPart<'_>],
    answered: &HashMap<String, usize>,
    result: &ToolResult<'_>,
) -> bool {
    let place = answered.get(&*result.id).copied();
    let first = place.and_then(|place| before.get(place));
    matches!(first, Some(PromptPart::ToolResult(first)) if first == result)
}
