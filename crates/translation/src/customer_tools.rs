//! Tools that a customer offers, of which some wait until a search has found them.
//!
//! Anthropic's `defer_loading` and OpenAI's `tool_search` keep definitions out of the prompt until
//! something refers to them. Tools that were found stand behind those that were there from the
//! beginning, in the order in which they were found, so that a prompt keeps its beginning.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::dialect::Untranslatable;
use crate::field_path::FieldPath;
use crate::names;
use crate::part::{PromptPart, Tool, ToolChoice};

/// Reason for refusing a choice that names a tool that was left out.
pub(crate) const RUN_BY_PROVIDER: &str =
    "it asks for a call of a tool that only the provider of another model runs";

/// The tools of a request, as they are read.
#[derive(Default)]
pub(crate) struct CustomerTools<'a> {
    tools: Vec<CustomerTool<'a>>,
    places: HashMap<Cow<'a, str>, usize>,
    /// Names in the order in which something referred to them.
    referenced: Vec<Cow<'a, str>>,
    /// Names of removed tools.
    removed: HashSet<Cow<'a, str>>,
    /// A search that the provider would run is offered: nothing else finds what waits.
    pub(crate) needs_all: bool,
    /// A tool was left out, as the provider would run it.
    has_omissions: bool,
    /// The only tools that may be called, if the client restricts them.
    allowed: Option<HashSet<Cow<'a, str>>>,
}

struct CustomerTool<'a> {
    tool: Tool<'a>,
    is_deferred: bool,
}

impl<'a> CustomerTools<'a> {
    /// Adds a tool, or replaces the one with the same name: providers accept each name once.
    pub(crate) fn offer(&mut self, tool: Tool<'a>, is_deferred: bool) {
        match self.places.get(&tool.name).and_then(|place| self.tools.get_mut(*place)) {
            Some(offered) => {
                // One of the two stands in the prompt: the name must not vanish from it.
                let is_deferred = is_deferred && offered.is_deferred;
                *offered = CustomerTool { tool, is_deferred };
            }
            None => {
                self.places.insert(tool.name.clone(), self.tools.len());
                self.tools.push(CustomerTool { tool, is_deferred });
            }
        }
    }

    /// Brings a tool that waits into the prompt.
    pub(crate) fn refer(&mut self, name: Cow<'a, str>) {
        self.removed.remove(&name);
        self.referenced.push(name);
    }

    /// Removes a tool by its name.
    pub(crate) fn remove(&mut self, name: Cow<'a, str>) {
        self.removed.insert(name);
    }

    /// Keeps only the tools of these names in the prompt.
    pub(crate) fn allow(&mut self, names: impl IntoIterator<Item = Cow<'a, str>>) {
        self.allowed = Some(names.into_iter().collect());
    }

    /// Has calls of all tools fit their schemas.
    pub(crate) fn make_strict(&mut self) {
        self.tools.iter_mut().for_each(|offered| offered.tool.is_strict = Some(true));
    }

    /// Leaves out a tool that the provider would run: the model would only be offered it.
    pub(crate) fn leave_out(&mut self, at: &FieldPath<'_>, kind: &str) {
        at.leave_out_kind(kind);
        self.has_omissions = true;
    }

    /// Refuses a requested call of a tool that was dropped.
    ///
    /// # Errors
    /// The path of the choice.
    pub(crate) fn check(
        &self,
        at: &FieldPath<'_>,
        choice: &ToolChoice<'_>,
    ) -> Result<(), Untranslatable> {
        let is_there = match choice {
            ToolChoice::Auto | ToolChoice::None => true,
            ToolChoice::Any => !self.tools.is_empty(),
            ToolChoice::Named(name) => self.places.contains_key(name),
        };
        match is_there || !self.has_omissions {
            true => Ok(()),
            false => Err(at.refused(RUN_BY_PROVIDER)),
        }
    }

    /// Writes the tools that the model sees. What was called, or is to be called, has been found.
    pub(crate) fn put(mut self, conversation: &[PromptPart<'a>], parts: &mut Vec<PromptPart<'a>>) {
        // Most requests defer nothing, and their conversation need not be walked.
        if self.tools.iter().any(|offered| offered.is_deferred) {
            for part in conversation.iter().chain(parts.iter()) {
                match part {
                    PromptPart::ToolCall(call) => self.referenced.push(call.name.clone()),
                    PromptPart::ToolChoice(ToolChoice::Named(name)) => {
                        self.referenced.push(name.clone());
                    }
                    _ => {}
                }
            }
        }
        let mut found = Vec::new();
        for name in std::mem::take(&mut self.referenced) {
            let place = self.places.get(&name).copied();
            let waiting = place.and_then(|place| Some((place, self.tools.get_mut(place)?)));
            if let Some((place, offered)) = waiting.filter(|(_, offered)| offered.is_deferred) {
                // Taken out of the waiting at its first reference, so a second one does not place it
                // again.
                offered.is_deferred = self.needs_all;
                found.push(place);
            }
        }
        let is_there = |name: &Cow<'a, str>| {
            !self.removed.contains(name)
                && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(name))
        };
        let mut late: Vec<Option<Tool<'a>>> = Vec::new();
        if !self.needs_all {
            // Found tools go behind the others: the beginning of the prompt stays as the cache knows
            // it.
            late.resize_with(found.len(), || None);
        }
        for (place, CustomerTool { tool, is_deferred }) in self.tools.into_iter().enumerate() {
            if !is_there(&tool.name) || (is_deferred && !self.needs_all) {
                continue;
            }
            let order = found.iter().position(|late| *late == place);
            match order.and_then(|order| late.get_mut(order)) {
                Some(slot) => *slot = Some(tool),
                None => parts.push(PromptPart::Tool(tool)),
            }
        }
        parts.extend(late.into_iter().flatten().map(PromptPart::Tool));
    }
}

/// Text that a model reads instead of a tool search's result: the tools themselves stand in the prompt.
pub(crate) fn found_text<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    // As providers see the tools of a namespace.
    let names: Vec<String> = names.into_iter().map(names::shown).collect();
    match names.is_empty() {
        true => "No tools were found.".to_owned(),
        false => format!("These tools can be called now: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &'static str, about: &'static str) -> Tool<'static> {
        Tool {
            name: name.into(),
            description: Some(about.into()),
            schema: None,
            is_strict: None,
            is_free: false,
            cache: None,
        }
    }

    fn names(tools: CustomerTools<'static>) -> Vec<String> {
        let mut parts = Vec::new();
        tools.put(&[], &mut parts);
        let name = |part: &PromptPart<'_>| match part {
            PromptPart::Tool(tool) => Some(tool.name.clone().into_owned()),
            _ => None,
        };
        parts.iter().filter_map(name).collect()
    }

    fn offered() -> CustomerTools<'static> {
        let mut tools = CustomerTools::default();
        for (name, is_deferred) in [("a", true), ("b", false), ("c", true), ("d", true)] {
            tools.offer(tool(name, ""), is_deferred);
        }
        tools
    }

    #[test]
    fn tools_that_wait_come_behind_the_others_in_the_order_in_which_they_were_found() {
        assert_eq!(names(offered()), ["b"]);
        let mut tools = offered();
        for name in ["d", "b", "nobody", "d", "a"] {
            tools.refer(name.into());
        }
        assert_eq!(names(tools), ["b", "d", "a"]);
        let mut tools = offered();
        tools.needs_all = true;
        tools.refer("d".into());
        assert_eq!(names(tools), ["a", "b", "c", "d"]);
    }

    #[test]
    fn tools_are_withdrawn_replaced_and_chosen_among() {
        let mut tools = offered();
        tools.refer("a".into());
        tools.remove("b".into());
        tools.remove("a".into());
        tools.refer("a".into());
        assert_eq!(names(tools), ["a"]);
        let mut tools = offered();
        tools.offer(tool("b", "again"), true);
        tools.offer(tool("a", "found"), false);
        tools.allow(["b".into(), "nobody".into()]);
        let mut parts = Vec::new();
        tools.put(&[], &mut parts);
        assert_eq!(parts, [PromptPart::Tool(tool("b", "again"))]);
    }
}
