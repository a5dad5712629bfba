//! Calls of tools and their results, as OpenAI's dialects and those who copied them take them: each call
//! has one result, and the results of a turn stand directly behind it in the order of its calls.
//!
//! OpenAI refuses a result without its call ("No tool call found for function call output", agno 9372)
//! and a call without its result ("An assistant message with 'tool_calls' must be followed by tool
//! messages", llm-memory-api 179). Histories that were cut or interrupted have both, and some clients
//! write what the model said behind its calls as a message of its own (cursor-byok 307).

use std::borrow::Cow;
use std::collections::HashMap;

use crate::part::{ContentPart, PromptPart, Speaker, Text, ToolResult};

/// The result of a call that has none: the customer interrupted it, or has cut it out of the history.
const INTERRUPTED: &str = "The call was interrupted and has no result.";

/// The parts with one result directly behind the turn of each call. Each id stands for one call
/// ([`crate::names`]).
pub(crate) fn paired<'p, 'a>(parts: &'p [PromptPart<'a>]) -> Cow<'p, [PromptPart<'a>]> {
    match is_paired(parts) {
        true => Cow::Borrowed(parts),
        false => Cow::Owned(Pairing::new(parts).pair(parts)),
    }
}

fn is_paired(parts: &[PromptPart<'_>]) -> bool {
    // The calls of the open turn, and how many of them have their results.
    let (mut calls, mut answered): (Vec<&str>, usize) = (Vec::new(), 0);
    let mut role = Speaker::User;
    for part in parts {
        let is_open = answered < calls.len();
        match part {
            PromptPart::Turn(Speaker::User) => role = Speaker::User,
            PromptPart::Turn(Speaker::Assistant) | PromptPart::Instruction(_) if is_open => {
                return false;
            }
            PromptPart::Turn(Speaker::Assistant) => {
                role = Speaker::Assistant;
                calls.clear();
                answered = 0;
            }
            PromptPart::ToolCall(_) if role == Speaker::User => return false,
            PromptPart::ToolCall(call) => calls.push(&call.id),
            PromptPart::ToolResult(result) => {
                let is_next = calls.get(answered).is_some_and(|id| *id == result.id);
                if role == Speaker::Assistant || !is_next {
                    return false;
                }
                answered += 1;
            }
            PromptPart::Content(_) | PromptPart::Reasoning(_)
                if role == Speaker::User && is_open =>
            {
                return false;
            }
            _ => {}
        }
    }
    answered == calls.len()
}

/// A conversation that is being put in order.
struct Pairing<'p, 'a> {
    /// The results, by the ids of their calls. The first of several is the result, as providers take it.
    results: HashMap<&'p str, usize>,
    /// The calls of the open turn of the assistant.
    open: Vec<&'p str>,
    out: Vec<PromptPart<'a>>,
    role: Option<Speaker>,
}

impl<'p, 'a> Pairing<'p, 'a> {
    fn new(parts: &'p [PromptPart<'a>]) -> Self {
        let mut calls: HashMap<&str, usize> = HashMap::new();
        let mut results: HashMap<&str, usize> = HashMap::new();
        for (place, part) in parts.iter().enumerate() {
            match part {
                PromptPart::ToolCall(call) => drop(calls.insert(&call.id, place)),
                // What stands before its call is the result of another.
                PromptPart::ToolResult(result) if calls.contains_key(&*result.id) => {
                    results.entry(&result.id).or_insert(place);
                }
                _ => {}
            }
        }
        Self { results, open: Vec::new(), out: Vec::with_capacity(parts.len()), role: None }
    }

    fn pair(mut self, parts: &'p [PromptPart<'a>]) -> Vec<PromptPart<'a>> {
        for (place, part) in parts.iter().enumerate() {
            match part {
                // What the assistant says behind its calls belongs to the same turn.
                PromptPart::Turn(Speaker::Assistant) if self.role == Some(Speaker::Assistant) => {
                    if self.open.is_empty() {
                        self.out.push(part.clone());
                    }
                }
                PromptPart::Turn(role) => {
                    self.answer(parts);
                    // What the user says behind results is one turn with them.
                    let goes_on = *role == Speaker::User
                        && matches!(self.out.last(), Some(PromptPart::ToolResult(_)));
                    if !goes_on {
                        self.out.push(part.clone());
                    }
                    self.role = Some(*role);
                }
                PromptPart::ToolCall(call) => {
                    self.begin(Speaker::Assistant);
                    self.open.push(&call.id);
                    self.out.push(part.clone());
                }
                PromptPart::ToolResult(result) => {
                    self.answer(parts);
                    let own = self.results.get(&*result.id).copied();
                    // Clients that resume a session repeat results.
                    let is_repeated = own.is_some_and(|own| parts.get(own) == Some(part));
                    if own != Some(place) && !is_repeated {
                        self.begin(Speaker::User);
                        self.orphan(result);
                    }
                }
                PromptPart::Instruction(_) => {
                    self.answer(parts);
                    self.out.push(part.clone());
                }
                other => self.out.push(other.clone()),
            }
        }
        self.answer(parts);
        self.out
    }

    fn begin(&mut self, role: Speaker) {
        if self.role != Some(role) {
            self.out.push(PromptPart::Turn(role));
            self.role = Some(role);
        }
    }

    /// Ends the assistant's turn with the results of its calls.
    fn answer(&mut self, parts: &'p [PromptPart<'a>]) {
        let open = std::mem::take(&mut self.open);
        if open.is_empty() {
            return;
        }
        self.begin(Speaker::User);
        for id in open {
            let result = self.results.get(id).and_then(|place| parts.get(*place));
            self.out.push(result.cloned().unwrap_or_else(|| interrupted(id)));
        }
    }

    /// A result whose call is nowhere, as a text of the user's.
    fn orphan(&mut self, result: &ToolResult<'a>) {
        let says = if result.is_error {
            "An earlier tool call failed:"
        } else {
            "An earlier tool call returned:"
        };
        let text = Text { text: Cow::Borrowed(says), cache: None };
        self.out.push(PromptPart::Content(ContentPart::Text(text)));
        self.out.extend(result.content.iter().cloned().map(PromptPart::Content));
    }
}

fn interrupted<'a>(id: &str) -> PromptPart<'a> {
    let text = Text { text: Cow::Borrowed(INTERRUPTED), cache: None };
    let (id, content) = (Cow::Owned(id.to_owned()), vec![ContentPart::Text(text)]);
    PromptPart::ToolResult(ToolResult { id, content, is_error: true, cache: None })
}
