//! Reads the items of a customer's response request as parts: items have no turns, so consecutive items of
//! one role form one.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::cache_marks;
use crate::customer_tools;
use crate::dialect::{NamespacedTool, Untranslatable};
use crate::field_path::{FieldPath, MemberList, Raw, is_given, is_object};
use crate::media;
use crate::part::{
    ContentPart, MediaPart, PromptPart, Reasoning, Source, Speaker, Text, ToolCall, ToolResult,
};
use crate::responses::fields;
use crate::responses::read_tools::ReadTools;
use crate::seal::{self, Maker};

/// The items of a request, as they are read.
pub(super) struct ItemReader<'r, 'a> {
    parts: &'r mut Vec<PromptPart<'a>>,
    tools: &'r mut ReadTools<'a>,
    role: Option<Speaker>,
    /// The ids of calls by those of their items, for results that name the item.
    calls: HashMap<Cow<'a, str>, Cow<'a, str>>,
}

/// Reads `input`: a text, or a list of items.
///
/// # Errors
/// The item that is malformed, or that means what no other dialect can say.
pub(super) fn input<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
    tools: &mut ReadTools<'a>,
) -> Result<(), Untranslatable> {
    if value.get().starts_with('"') {
        let text = Text { text: at.text(value)?, cache: None };
        parts.push(PromptPart::Turn(Speaker::User));
        parts.push(PromptPart::Content(ContentPart::Text(text)));
        return Ok(());
    }
    let mut reader = ItemReader { parts, tools, role: None, calls: HashMap::new() };
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        reader.item(&at.index(place), value)?;
    }
    Ok(())
}

impl<'a> ItemReader<'_, 'a> {
    fn item(&mut self, at: &FieldPath<'_>, value: Raw<'a>) -> Result<(), Untranslatable> {
        let members = at.object(value)?;
        let kind = match members.iter().any(|(key, _)| key == "type") {
            true => at.kind(&members)?,
            false if members.iter().any(|(key, _)| key == "role") => Cow::Borrowed("message"),
            // The type of references can be left away.
            false => Cow::Borrowed("item_reference"),
        };
        match &*kind {
            "message" => self.message(at, members),
            "reasoning" => {
                let reasoning = reasoning_item(at, value, members)?;
                self.say(Speaker::Assistant, PromptPart::Reasoning(reasoning));
                Ok(())
            }
            "additional_tools" => self.additional_tools(at, members),
            "tool_search_call" | "tool_search_output" => self.tool_search(at, members, &kind),
            _ if CLIENTS_CALLS.iter().any(|calls| calls.call == kind) => {
                self.call(at, members, &kind)
            }
            _ if CLIENTS_CALLS.iter().any(|calls| calls.output == kind) => self.result(at, members),
            // An unknown item that is done repeats an earlier answer; any other may mean or cost
            // something.
            _ if fields::ITEMS.knows(&kind) || !fields::is_done(&kind) => {
                fields::ITEMS.item(at, &kind)
            }
            _ => {
                at.leave_out_kind(&kind);
                Ok(())
            }
        }
    }

    fn begin(&mut self, role: Speaker) {
        self.parts.push(PromptPart::Turn(role));
        self.role = Some(role);
    }

    fn say(&mut self, role: Speaker, part: PromptPart<'a>) {
        if self.role != Some(role) {
            self.begin(role);
        }
        self.parts.push(part);
    }

    fn message(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<(), Untranslatable> {
        let (mut role, mut contents, mut cache) = (None, Vec::new(), None);
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "role" => role = Some(at.text(value)?),
                _ if !is_given(value) => {}
                "content" => contents = content_list(&at, value)?,
                "cache_control" | "copilot_cache_control" => {
                    cache = cache_marks::cache_control(&at, value)?;
                }
                _ => fields::ITEM.field(&at, &key, value)?,
            }
        }
        let begin = self.parts.len();
        match &*at.needed("role", role)? {
            "system" | "developer" => {
                for content in contents {
                    let ContentPart::Text(text) = content else {
                        return Err(at.key("content").malformed("text"));
                    };
                    // An instruction ends the turn before it: what the same role says next is a turn
                    // of its own.
                    self.parts.push(PromptPart::Instruction(text));
                }
                self.role = None;
            }
            "user" => {
                // Results of tools and what a user says behind them are one turn.
                if self.role != Some(Speaker::User) {
                    self.begin(Speaker::User);
                }
                self.parts.extend(contents.into_iter().map(PromptPart::Content));
            }
            "assistant" => {
                for content in contents {
                    self.say(Speaker::Assistant, PromptPart::Content(content));
                }
            }
            _ => return Err(at.key("role").uncarried()),
        }
        cache_marks::mark_last(self.parts.get_mut(begin..).unwrap_or_default(), cache);
        Ok(())
    }

    /// Tools that come with an item, as Codex sends all of its: they are offered as those of `tools` are.
    fn additional_tools(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<(), Untranslatable> {
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                "tools" if is_given(value) => drop(self.tools.list(&at, value, false)?),
                _ => fields::ITEM.field(&at, &key, value)?,
            }
        }
        Ok(())
    }

    /// A search for tools and what it found. One that the customer ran is a call and its result; of one
    /// that the provider ran the tools remain.
    fn tool_search(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
        kind: &str,
    ) -> Result<(), Untranslatable> {
        let (mut id, mut input, mut found) = (None, Cow::Borrowed("{}"), Vec::new());
        let mut is_clients = true;
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                _ if !is_given(value) => {}
                "execution" => is_clients = at.text(value)? != "server",
                "call_id" => id = Some(at.text(value)?),
                "arguments" if value.get().starts_with('"') => input = at.text(value)?,
                "arguments" => input = at.json_object(value)?,
                "tools" => found = self.tools.list(&at, value, true)?,
                _ => fields::ITEM.field(&at, &key, value)?,
            }
        }
        let Some(id) = id.filter(|_| is_clients) else {
            at.leave_out_kind(kind);
            return Ok(());
        };
        if kind == "tool_search_call" {
            if !is_object(&input) {
                return Err(at.key("arguments").malformed("an object"));
            }
            let name = self.tools.search_name();
            let call = ToolCall { id, name, input, is_free: false, seal: None, cache: None };
            self.say(Speaker::Assistant, PromptPart::ToolCall(call));
        } else {
            let text = customer_tools::found_text(found.iter().map(|name| &**name)).into();
            let content = vec![ContentPart::Text(Text { text, cache: None })];
            let result = ToolResult { id, content, is_error: false, cache: None };
            self.say(Speaker::User, PromptPart::ToolResult(result));
        }
        Ok(())
    }

    fn call(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
        kind: &str,
    ) -> Result<(), Untranslatable> {
        let is_free = kind == "custom_tool_call";
        let (mut id, mut name, mut input) = (None, None, None);
        let (mut namespace, mut item, mut cache) = (None, None, None);
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                _ if !is_given(value) => {}
                "call_id" => id = Some(at.text(value)?),
                "id" => item = Some(at.text(value)?),
                "name" => name = Some(at.text(value)?),
                // The API wants a string; some clients send the object itself.
                "arguments" if value.get().starts_with('{') => input = Some(value.get().into()),
                "arguments" | "input" => input = Some(at.text(value)?),
                // What a tool of the provider's kind does is an object.
                "action" | "operation" | "actions" => input = Some(as_object(&key, value)),
                "namespace" => namespace = Some(at.text(value)?),
                "cache_control" => cache = cache_marks::cache_control(&at, value)?,
                _ => fields::ITEM.field(&at, &key, value)?,
            }
        }
        let input = input.unwrap_or_default();
        if !is_free && !input.is_empty() && !is_object(&input) {
            return Err(at.key("arguments").malformed("a JSON object as a string"));
        }
        let fixed = CLIENTS_CALLS.iter().find(|calls| calls.call == kind);
        let fixed = fixed.and_then(|calls| calls.name).map(Cow::Borrowed);
        // A local shell's call may have the id of its item alone.
        let id = at.needed("call_id", id.or_else(|| item.clone()))?;
        let name = at.needed("name", fixed.or(name))?;
        let name = match namespace.filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => NamespacedTool::joined(&namespace, &name).into(),
            None => name,
        };
        self.calls.extend(item.map(|item| (item, id.clone())));
        let call = ToolCall { id, name, input, is_free, seal: None, cache };
        self.say(Speaker::Assistant, PromptPart::ToolCall(call));
        Ok(())
    }

    fn result(
        &mut self,
        at: &FieldPath<'_>,
        members: MemberList<'a>,
    ) -> Result<(), Untranslatable> {
        let (mut id, mut item, mut content, mut cache) = (None, None, Vec::new(), None);
        let mut is_error = false;
        for (key, value) in members {
            let at = at.key(&key);
            match &*key {
                _ if !is_given(value) => {}
                "call_id" => id = Some(at.text(value)?),
                "id" => item = Some(at.text(value)?),
                "status" => is_error = at.text(value)? == "failed",
                "output" => content = output(&at, value)?,
                "name" | "namespace" | "acknowledged_safety_checks" => {}
                "cache_control" => cache = cache_marks::cache_control(&at, value)?,
                _ => fields::ITEM.field(&at, &key, value)?,
            }
        }
        // The result of a local shell names the item of its call.
        let named = item.map(|item| self.calls.get(&item).cloned().unwrap_or(item));
        let id = at.needed("call_id", id.or(named))?;
        let result = ToolResult { id, content, is_error, cache };
        self.say(Speaker::User, PromptPart::ToolResult(result));
        Ok(())
    }
}

/// Calls of tools that customers run, whatever their kind: the types of the items, and the name of the
/// tool where its kind has one.
struct ClientsCall {
    call: &'static str,
    output: &'static str,
    name: Option<&'static str>,
}

const CLIENTS_CALLS: [ClientsCall; 6] = [
    ClientsCall { call: "function_call", output: "function_call_output", name: None },
    ClientsCall { call: "custom_tool_call", output: "custom_tool_call_output", name: None },
    ClientsCall {
        call: "local_shell_call",
        output: "local_shell_call_output",
        name: Some("local_shell"),
    },
    ClientsCall { call: "shell_call", output: "shell_call_output", name: Some("shell") },
    ClientsCall {
        call: "apply_patch_call",
        output: "apply_patch_call_output",
        name: Some("apply_patch"),
    },
    ClientsCall { call: "computer_call", output: "computer_call_output", name: Some("computer") },
];

/// The action of a provider's tool, as the input of a function.
fn as_object<'a>(key: &str, value: Raw<'a>) -> Cow<'a, str> {
    match value.get().starts_with('{') {
        true => value.get().into(),
        false => format!("{{\"{key}\":{}}}", value.get()).into(),
    }
}

/// Reads a tool's output: a text, contents, a screenshot, or the streams of a shell.
fn output<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Vec<ContentPart<'a>>, Untranslatable> {
    let is_contents = |value: &Raw<'_>| {
        value.members().is_some_and(|members| members.iter().any(|(key, _)| key == "type"))
    };
    match value.get().as_bytes().first() {
        Some(b'"') => content_list(at, value),
        Some(b'{') if is_contents(&value) => Ok(content(at, value)?.into_iter().collect()),
        Some(b'[') if at.list(value)?.iter().all(is_contents) => content_list(at, value),
        // What a shell or a screen has put out is an object of its kind: the model reads it as JSON.
        _ => Ok(vec![ContentPart::Text(Text { text: value.get().into(), cache: None })]),
    }
}

/// A text, or a list of contents.
fn content_list<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<Vec<ContentPart<'a>>, Untranslatable> {
    if value.get().starts_with('"') {
        return Ok(vec![ContentPart::Text(Text { text: at.text(value)?, cache: None })]);
    }
    let values = at.list(value)?.into_iter().enumerate();
    let contents = values.map(|(place, value)| content(&at.index(place), value));
    contents.filter_map(Result::transpose).collect()
}

fn content<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<Option<ContentPart<'a>>, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let table = match &*kind {
        "input_text" | "output_text" | "text" | "refusal" => &fields::TEXT,
        "input_image" | "computer_screenshot" | "input_file" | "input_audio" => &fields::MEDIA,
        _ => return fields::CONTENTS.item(at, &kind).map(|()| None),
    };
    let (mut text, mut media, mut name, mut detail) = (None, None, None, None);
    let mut cache = None;
    for (key, value) in members {
        let at = at.key(&key);
        match (&*kind, &*key) {
            (_, "type") => {}
            _ if !is_given(value) => {}
            ("input_text" | "output_text" | "text", "text") | ("refusal", "refusal") => {
                text = Some(at.text(value)?);
            }
            ("input_image" | "computer_screenshot", "image_url")
            | ("input_file", "file_data" | "file_url") => {
                media = Some(media::source_of_url(&at, at.text(value)?)?);
            }
            ("input_audio", "input_audio") => media = Some(audio(&at, value)?),
            ("input_image" | "computer_screenshot", "detail") => detail = Some(at.text(value)?),
            ("input_file", "filename") => name = Some(at.text(value)?),
            (_, "cache_control" | "copilot_cache_control") => {
                cache = cache_marks::cache_control(&at, value)?;
            }
            _ => table.field(&at, &key, value)?,
        }
    }
    let shown = |field| {
        let source = at.needed(field, media.clone())?;
        Ok(MediaPart { source, name: name.clone(), detail: detail.clone(), cache })
    };
    Ok(Some(match &*kind {
        "refusal" => ContentPart::Refusal(at.needed("refusal", text)?),
        "input_image" | "computer_screenshot" => ContentPart::Image(shown("image_url")?),
        "input_file" => ContentPart::File(shown("file_data")?),
        "input_audio" => ContentPart::Audio(shown("input_audio")?),
        _ => ContentPart::Text(Text { text: at.needed("text", text)?, cache }),
    }))
}

fn audio<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<Source<'a>, Untranslatable> {
    let (mut data, mut media_type) = (None, None);
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            "data" => data = Some(at.text(value)?),
            "format" => media_type = Some(format!("audio/{}", at.text(value)?)),
            _ => fields::MEDIA.field(&at, &key, value)?,
        }
    }
    let media_type = at.needed("format", media_type)?.into();
    Ok(Source::Inline { media_type, data: at.needed("data", data)? })
}

/// Reads a `reasoning` item: one of its own dialect is kept whole, a wrapped one is unwrapped.
fn reasoning_item<'a>(
    at: &FieldPath<'_>,
    whole: Raw<'a>,
    members: MemberList<'a>,
) -> Result<Reasoning<'a>, Untranslatable> {
    let (mut text, mut seal) = (String::new(), None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "encrypted_content" => seal = Some(at.text(value)?),
            "summary" | "content" => {
                for (place, value) in at.list(value)?.into_iter().enumerate() {
                    let at = at.index(place);
                    for (key, value) in at.object(value)? {
                        if key == "text" {
                            text.push_str(&at.key("text").text(value)?);
                        }
                    }
                }
            }
            _ => fields::ITEM.field(&at, &key, value)?,
        }
    }
    let seal = match seal {
        Some(seal) if seal::is_wrapped(&seal) => Some(seal),
        Some(_) => Some(seal::wrap(Maker::Responses, whole.get()).into()),
        None => None,
    };
    Ok(Reasoning { text: text.into(), seal })
}
