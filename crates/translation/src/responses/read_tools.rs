//! The tools of a customer's response, wherever they stand: in `tools`, in items, in results of a search.

use std::borrow::Cow;

use crate::customer_tools::{CustomerTools, RUN_BY_PROVIDER};
use crate::dialect::{AnswerFrame, NamespacedTool, Untranslatable};
use crate::field_path::{FieldPath, MemberList, Raw, is_given};
use crate::openai_tools;
use crate::part::{PromptPart, Tool, ToolChoice};

/// The name by which a model knows the search for tools that the customer runs.
const TOOL_SEARCH: &str = "tool_search";

/// The tools of a request, as they are read.
#[derive(Default)]
pub(super) struct ReadTools<'a> {
    offered: CustomerTools<'a>,
    namespaced: Vec<NamespacedTool>,
    /// A search that the customer runs is offered.
    has_search: bool,
}

impl<'a> ReadTools<'a> {
    /// Offers tools, and says by which names. Those that a search has found need not wait for one.
    ///
    /// # Errors
    /// The field that is malformed.
    pub(super) fn list(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
        are_found: bool,
    ) -> Result<Vec<Cow<'a, str>>, Untranslatable> {
        let mut names = Vec::new();
        for (place, value) in at.list(value)?.into_iter().enumerate() {
            let at = at.index(place);
            let members = at.object(value)?;
            match &*at.kind(&members)? {
                kind @ ("function" | "custom") => {
                    let (tool, waits) = read_tool(&at, members, kind == "custom")?;
                    names.push(tool.name.clone());
                    self.offered.offer(tool, waits && !are_found);
                }
                "namespace" => self.namespace(&at, members, are_found, &mut names)?,
                "tool_search" => self.search(&at, members)?,
                // A preview is the same tool.
                "web_search_preview" => self.offered.leave_out(&at, "web_search"),
                // Codex offers some with every request; the model answers without.
                kind => self.offered.leave_out(&at, kind),
            }
        }
        Ok(names)
    }

    /// Reads the tools of a namespace: each gets the namespace as prefix of its name and description.
    fn namespace(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
        are_found: bool,
        names: &mut Vec<Cow<'a, str>>,
    ) -> Result<(), Untranslatable> {
        let (mut namespace, mut about, mut listed) = (None, None, Vec::new());
        let mut waits = false;
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "type" => {}
                "name" => namespace = Some(at.text(value)?),
                _ if !is_given(value) => {}
                "tools" => listed = at.list(value)?,
                "description" => about = Some(at.text(value)?),
                "defer_loading" => waits = at.boolean(value)?,
                _ => openai_tools::TOOL.field(&at, &key, value)?,
            }
        }
        let namespace = at.needed("name", namespace)?;
        let about = about.filter(|about| !about.is_empty());
        let listed_at = at.key("tools");
        for (place, value) in listed.into_iter().enumerate() {
            let at = listed_at.index(place);
            let members = at.object(value)?;
            let kind = at.kind(&members)?;
            if !matches!(&*kind, "function" | "custom") {
                self.offered.leave_out(&at, &kind);
                continue;
            }
            let (mut tool, waits_itself) = read_tool(&at, members, kind == "custom")?;
            let joined = NamespacedTool::joined(&namespace, &tool.name);
            let name = std::mem::replace(&mut tool.name, joined.clone().into()).into_owned();
            tool.description = match (&about, tool.description) {
                (Some(about), Some(own)) => Some(format!("{about}\n\n{own}").into()),
                (about, own) => own.or_else(|| about.clone()),
            };
            if !self.namespaced.iter().any(|tool| tool.joined == joined) {
                let namespace = namespace.clone().into_owned();
                self.namespaced.push(NamespacedTool { joined, namespace, name });
            }
            names.push(tool.name.clone());
            self.offered.offer(tool, (waits || waits_itself) && !are_found);
        }
        Ok(())
    }

    /// A search for tools. One that the customer runs is a function; of one that the provider would run
    /// nothing is left to find tools, so all of them are in the prompt.
    fn search(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<(), Untranslatable> {
        let (mut description, mut schema, mut is_clients) = (None, None, false);
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "type" => {}
                _ if !is_given(value) => {}
                "execution" => is_clients = at.text(value)? == "client",
                "description" => description = Some(at.text(value)?),
                "parameters" => schema = Some(at.json_object(value)?),
                _ => openai_tools::TOOL.field(&at, &key, value)?,
            }
        }
        if !is_clients {
            self.offered.needs_all = true;
            self.offered.leave_out(at, TOOL_SEARCH);
            return Ok(());
        }
        self.has_search = true;
        let (is_strict, is_free, cache) = (None, false, None);
        let name = self.search_name();
        self.offered.offer(Tool { name, description, schema, is_strict, is_free, cache }, false);
        Ok(())
    }

    /// The name of the search that the customer runs.
    pub(super) fn search_name(&self) -> Cow<'a, str> {
        TOOL_SEARCH.into()
    }

    /// Reads which tool is to be called.
    ///
    /// # Errors
    /// A tool that the provider would run.
    pub(super) fn choice(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
    ) -> Result<ToolChoice<'a>, Untranslatable> {
        let choice = self.read_choice(at, value)?;
        self.offered.check(at, &choice)?;
        Ok(choice)
    }

    fn read_choice(
        &mut self,
        at: &FieldPath<'_>,
        value: Raw<'a>,
    ) -> Result<ToolChoice<'a>, Untranslatable> {
        if value.get().starts_with('"') {
            let word = at.text(value)?;
            return openai_tools::choice_word(&word)
                .ok_or_else(|| at.malformed("auto, none, required or a tool"));
        }
        let members = at.object(value)?;
        match &*at.kind(&members)? {
            "allowed_tools" => {
                let (choice, names) = openai_tools::allowed_tools(at, value, chosen)?;
                self.offered.allow(names);
                Ok(choice)
            }
            "function" | "custom" | TOOL_SEARCH => chosen(at, value).map(ToolChoice::Named),
            word => openai_tools::choice_word(word).ok_or_else(|| at.refused(RUN_BY_PROVIDER)),
        }
    }

    /// Writes the tools that the model sees, and what the answer must know of them.
    pub(super) fn put(
        self,
        items: &[PromptPart<'a>],
        parts: &mut Vec<PromptPart<'a>>,
        frame: &mut AnswerFrame,
    ) {
        let begin = parts.len();
        frame.tool_search = self.has_search.then(|| self.search_name().into_owned());
        self.offered.put(items, parts);
        frame.free_tools = openai_tools::free_tools(parts.get(begin..).unwrap_or_default());
        frame.namespaced = self.namespaced;
    }
}

/// The name of a tool that was chosen.
fn chosen<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Cow<'a, str>, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let (mut name, mut namespace) = (None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "name" => name = Some(at.text(value)?),
            "namespace" if is_given(value) => namespace = Some(at.text(value)?),
            _ => {}
        }
    }
    match namespace {
        Some(namespace) => Ok(NamespacedTool::joined(&namespace, &at.needed("name", name)?).into()),
        // Tools of a provider's kind are chosen by it.
        None if matches!(&*kind, "function" | "custom") => at.needed("name", name),
        None => Ok(name.unwrap_or(kind)),
    }
}

/// A function or a tool that takes free text, and whether it waits until a search has found it.
fn read_tool<'a>(
    at: &FieldPath<'_>,
    mut members: MemberList<'a>,
    is_free: bool,
) -> Result<(Tool<'a>, bool), Untranslatable> {
    let mut waits = false;
    let deferral = members.iter().position(|(key, _)| key == "defer_loading");
    if let Some((_, value)) = deferral.map(|place| members.remove(place)) {
        waits = is_given(value) && at.key("defer_loading").boolean(value)?;
    }
    Ok((openai_tools::tool(at, members, is_free)?, waits))
}
