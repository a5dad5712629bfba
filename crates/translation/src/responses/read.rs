//! What a customer's response asks for, as parts.

use std::borrow::Cow;

use crate::at::{FieldPath, LeftOut, Members, Raw, document, is_given, is_object};
use crate::dialect::{AnswerFrame, NamespacedTool, TranslatableRequest, Untranslatable};
use crate::kit;
use crate::part::{
    ContentPart, MediaPart, PromptPart, Reasoning, Sampling, Speaker, Text, Tool, ToolCall,
    ToolChoice, ToolResult,
};
use crate::seal::{self, Maker};

/// Fields that change neither what a request means nor what it costs, and that the answer need not
/// show that they were left out: the gateway stores nothing, and encrypted reasoning always comes.
const UNDERSTOOD: [&str; 3] = ["store", "include", "stream_options"];
/// Hints that other dialects have no words for.
const HINTS: [&str; 10] = [
    "metadata",
    "truncation",
    "top_logprobs",
    "max_tool_calls",
    "client_metadata",
    "prompt_cache_retention",
    "prompt_cache_options",
    "image",
    "access_programs",
    "context_management",
];
/// What an answer repeats of its request, and what it says where the request does not.
const REPEATED: [(&str, &str); 17] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("presence_penalty", "0.0"),
    ("frequency_penalty", "0.0"),
    ("prompt_cache_key", "null"),
    ("reasoning", "{\"effort\":null,\"summary\":null}"),
    ("safety_identifier", "null"),
    ("temperature", "1.0"),
    ("text", "{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "1.0"),
    ("truncation", "\"disabled\""),
];

pub(super) fn request(body: &[u8]) -> Result<TranslatableRequest<'_>, Untranslatable> {
    let left_out = LeftOut::default();
    let root = FieldPath::root(&left_out);
    let (mut parts, mut frame) = (Vec::new(), AnswerFrame::default());
    let members = root.object(document(body)?)?;
    frame.repeated = repeated(&members);
    // Instructions stand before the first turn, wherever the field stands.
    let mut said = Vec::new();
    for (key, value) in members {
        let at = root.key(&key);
        if !is_given(value) {
            continue;
        }
        match &*key {
            "model" => frame.model = at.text(value)?.into_owned(),
            "instructions" => {
                let text = Text { text: at.text(value)?, cache: None };
                parts.push(PromptPart::Instruction(text));
            }
            "input" => input(&at, value, &mut said)?,
            "stream" => frame.streams = at.boolean(value)?,
            "max_output_tokens" => parts.push(PromptPart::OutputMax(at.count(value)?)),
            "temperature" => {
                parts.push(PromptPart::Sampling(Sampling::Temperature(at.number(value)?)))
            }
            "top_p" => parts.push(PromptPart::Sampling(Sampling::TopP(at.number(value)?))),
            "tools" => tools(&at, value, &mut parts, &mut frame)?,
            "tool_choice" => parts.extend(tool_choice(&at, value)?),
            "parallel_tool_calls" => parts.push(PromptPart::ParallelTools(at.boolean(value)?)),
            "reasoning" => reasoning(&at, value, &mut parts)?,
            "text" => text(&at, value, &mut parts)?,
            "user" | "safety_identifier" => parts.push(PromptPart::User(at.text(value)?)),
            "prompt_cache_key" => parts.push(PromptPart::CacheKey(at.text(value)?)),
            "background" if !at.boolean(value)? => {}
            "service_tier" if matches!(&*at.text(value)?, "auto" | "default") => {}
            _ if UNDERSTOOD.contains(&&*key) => {}
            _ if HINTS.contains(&&*key) => at.leave_out(),
            _ => return Err(at.uncarried()),
        }
    }
    kit::attach_seals(&mut said);
    parts.extend(said);
    frame.shows_usage = true;
    let left_out = left_out.into_omissions();
    Ok(TranslatableRequest { parts, frame, left_out, caches: false })
}

/// The members that the answer repeats, as [`AnswerFrame::repeated`] has them.
fn repeated(members: &Members<'_>) -> String {
    let mut out = Vec::new();
    for (field, otherwise) in REPEATED {
        let given = members.iter().find(|(key, value)| key == field && is_given(*value));
        let value = given.map_or(otherwise, |(_, value)| value.get());
        for piece in ["\"", field, "\":", value, ","] {
            out.extend_from_slice(piece.as_bytes());
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

fn reasoning<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "effort" => parts.push(PromptPart::Thinking(kit::openai_thinking(&at, value)?)),
            // How thoughts are shown, which other dialects do as they like.
            "summary" | "generate_summary" | "context" => {}
            _ => return Err(at.uncarried()),
        }
    }
    Ok(())
}

fn text<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    for (key, value) in at.object(value)? {
        let at = at.key(&key);
        match &*key {
            _ if !is_given(value) => {}
            "verbosity" => parts.push(PromptPart::Verbosity(at.text(value)?)),
            "format" => {
                let members = at.object(value)?;
                match &*at.kind(&members)? {
                    "text" => {}
                    "json_object" => {
                        parts.push(PromptPart::Format(crate::part::AnswerFormat::Json))
                    }
                    "json_schema" => {
                        parts.push(PromptPart::Format(kit::schema_format(&at, members)?))
                    }
                    _ => return Err(at.key("type").uncarried()),
                }
            }
            _ => return Err(at.uncarried()),
        }
    }
    Ok(())
}

fn tools<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
    frame: &mut AnswerFrame,
) -> Result<(), Untranslatable> {
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        let kind = at.kind(&members)?;
        let is_free = kind == "custom";
        match &*kind {
            "function" | "custom" => {
                let tool: Tool<'a> = kit::tool(&at, members, is_free)?;
                if is_free {
                    frame.free_tools.push(tool.name.clone().into_owned());
                }
                parts.push(PromptPart::Tool(tool));
            }
            "namespace" => namespace(&at, members, parts, frame)?,
            // Codex offers it with every request.
            "web_search" | "web_search_preview" => at.leave_out_kind("web_search"),
            _ => return Err(at.key("type").uncarried()),
        }
    }
    Ok(())
}

/// The tools of a namespace: each has the namespace's name before its own, and what is said of all of them
/// before what is said of it.
fn namespace<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
    parts: &mut Vec<PromptPart<'a>>,
    frame: &mut AnswerFrame,
) -> Result<(), Untranslatable> {
    let (mut namespace, mut about, mut listed) = (None, None, Vec::new());
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" => {}
            "name" => namespace = Some(at.text(value)?),
            "tools" => listed = at.list(value)?,
            _ if !is_given(value) => {}
            "description" => about = Some(at.text(value)?),
            _ => return Err(at.uncarried()),
        }
    }
    let namespace = at.needed("name", namespace)?;
    let listed_at = at.key("tools");
    for (place, value) in listed.into_iter().enumerate() {
        let at = listed_at.index(place);
        let members = at.object(value)?;
        if &*at.kind(&members)? != "function" {
            return Err(at.key("type").uncarried());
        }
        let mut tool: Tool<'a> = kit::tool(&at, members, false)?;
        let joined = NamespacedTool::joined(&namespace, &tool.name);
        let name = std::mem::replace(&mut tool.name, joined.clone().into()).into_owned();
        tool.description = match (&about, tool.description) {
            (Some(about), Some(own)) => Some(format!("{about}\n\n{own}").into()),
            (about, own) => own.or_else(|| about.clone()),
        };
        let namespace = namespace.clone().into_owned();
        frame.namespaced.push(NamespacedTool { joined, namespace, name });
        parts.push(PromptPart::Tool(tool));
    }
    Ok(())
}

fn tool_choice<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
) -> Result<Option<PromptPart<'a>>, Untranslatable> {
    if value.get().starts_with('"') {
        return Ok(Some(PromptPart::ToolChoice(match &*at.text(value)? {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Any,
            _ => return Err(at.malformed("auto, none, required or a tool")),
        })));
    }
    let members = at.object(value)?;
    if !matches!(&*at.kind(&members)?, "function" | "custom") {
        return Err(at.key("type").uncarried());
    }
    let name = members.into_iter().find(|(key, _)| key == "name");
    let (_, name) = at.needed("name", name)?;
    Ok(Some(PromptPart::ToolChoice(ToolChoice::Named(at.key("name").text(name)?))))
}

fn input<'a>(
    at: &FieldPath<'_>,
    value: Raw<'a>,
    parts: &mut Vec<PromptPart<'a>>,
) -> Result<(), Untranslatable> {
    if value.get().starts_with('"') {
        parts.push(PromptPart::Turn(Speaker::User));
        parts.push(PromptPart::Content(ContentPart::Text(Text {
            text: at.text(value)?,
            cache: None,
        })));
        return Ok(());
    }
    let mut turns = Turns { parts, role: None };
    for (place, value) in at.list(value)?.into_iter().enumerate() {
        let at = at.index(place);
        let members = at.object(value)?;
        let kind = match members.iter().any(|(key, _)| key == "type") {
            true => at.kind(&members)?,
            false => Cow::Borrowed("message"),
        };
        match &*kind {
            "message" => message(&at, members, &mut turns)?,
            "reasoning" => {
                let reasoning = reasoning_item(&at, value, members)?;
                turns.say(Speaker::Assistant, PromptPart::Reasoning(reasoning));
            }
            "function_call" | "custom_tool_call" => {
                let call = tool_call(&at, members, &kind)?;
                turns.say(Speaker::Assistant, PromptPart::ToolCall(call));
            }
            "function_call_output" | "custom_tool_call_output" => {
                let result = tool_result(&at, members)?;
                turns.say(Speaker::User, PromptPart::ToolResult(result));
            }
            _ => return Err(at.key("type").uncarried()),
        }
    }
    Ok(())
}

/// Items have no turns: those of one role that follow each other are one.
struct Turns<'t, 'a> {
    parts: &'t mut Vec<PromptPart<'a>>,
    role: Option<Speaker>,
}

impl<'a> Turns<'_, 'a> {
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
}

fn message<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
    turns: &mut Turns<'_, 'a>,
) -> Result<(), Untranslatable> {
    let (mut role, mut contents) = (None, Vec::new());
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" | "id" | "status" | "phase" => {}
            "role" => role = Some(at.text(value)?),
            "content" => contents = content_list(&at, value)?,
            _ if !is_given(value) => {}
            _ => return Err(at.uncarried()),
        }
    }
    match &*at.needed("role", role)? {
        "system" | "developer" => {
            for content in contents {
                let ContentPart::Text(text) = content else {
                    return Err(at.key("content").malformed("text"));
                };
                turns.parts.push(PromptPart::Instruction(text));
            }
            turns.role = None;
        }
        "user" => {
            // Results of tools and what a user says behind them are one turn.
            if turns.role != Some(Speaker::User) {
                turns.begin(Speaker::User);
            }
            contents.into_iter().for_each(|one| turns.parts.push(PromptPart::Content(one)));
        }
        "assistant" => {
            contents
                .into_iter()
                .for_each(|one| turns.say(Speaker::Assistant, PromptPart::Content(one)));
        }
        _ => return Err(at.key("role").uncarried()),
    }
    Ok(())
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
    values.map(|(place, value)| content(&at.index(place), value)).collect()
}

fn content<'a>(at: &FieldPath<'_>, value: Raw<'a>) -> Result<ContentPart<'a>, Untranslatable> {
    let members = at.object(value)?;
    let kind = at.kind(&members)?;
    let (mut text, mut url, mut name, mut detail) = (None, None, None, None);
    for (key, value) in members {
        let at = at.key(&key);
        match (&*kind, &*key) {
            (_, "type") => {}
            _ if !is_given(value) => {}
            ("input_text" | "output_text" | "text", "text") | ("refusal", "refusal") => {
                text = Some(at.text(value)?);
            }
            ("output_text", "annotations" | "logprobs") => {}
            // Where other providers' caches end is theirs to choose.
            (_, "prompt_cache_breakpoint") => {}
            ("input_image", "image_url") | ("input_file", "file_data" | "file_url") => {
                url = Some(kit::source_of_url(&at, at.text(value)?)?);
            }
            ("input_image", "detail") => detail = Some(at.text(value)?),
            ("input_file", "filename") => name = Some(at.text(value)?),
            _ => return Err(at.uncarried()),
        }
    }
    let media = |field| at.needed(field, url.clone());
    match &*kind {
        "input_text" | "output_text" | "text" => {
            Ok(ContentPart::Text(Text { text: at.needed("text", text)?, cache: None }))
        }
        "refusal" => Ok(ContentPart::Refusal(at.needed("refusal", text)?)),
        "input_image" => {
            let source = media("image_url")?;
            Ok(ContentPart::Image(MediaPart { source, name: None, detail, cache: None }))
        }
        "input_file" => {
            let source = media("file_data")?;
            Ok(ContentPart::File(MediaPart { source, name, detail: None, cache: None }))
        }
        _ => Err(at.key("type").uncarried()),
    }
}

/// A `reasoning` item: what its own dialect made travels as a whole, and what was wrapped is opened.
fn reasoning_item<'a>(
    at: &FieldPath<'_>,
    whole: Raw<'a>,
    members: Members<'a>,
) -> Result<Reasoning<'a>, Untranslatable> {
    let (mut text, mut seal) = (String::new(), None);
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" | "id" | "status" => {}
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
            _ => return Err(at.uncarried()),
        }
    }
    let seal = match seal {
        Some(seal) if seal::is_wrapped(&seal) => Some(seal),
        Some(_) => Some(seal::wrap(Maker::Responses, whole.get()).into()),
        None => None,
    };
    Ok(Reasoning { text: text.into(), seal })
}

fn tool_call<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
    kind: &str,
) -> Result<ToolCall<'a>, Untranslatable> {
    let is_free = kind == "custom_tool_call";
    let (mut id, mut name, mut input) = (None, None, None);
    let mut namespace = None;
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" | "id" | "status" => {}
            "call_id" => id = Some(at.text(value)?),
            "name" => name = Some(at.text(value)?),
            "arguments" | "input" => input = Some(at.text(value)?),
            _ if !is_given(value) => {}
            "namespace" if !is_free => namespace = Some(at.text(value)?),
            _ => return Err(at.uncarried()),
        }
    }
    let input = input.unwrap_or_default();
    if !is_free && !input.is_empty() && !is_object(&input) {
        return Err(at.key("arguments").malformed("a JSON object as a string"));
    }
    let (id, name) = (at.needed("call_id", id)?, at.needed("name", name)?);
    let name = match namespace {
        Some(namespace) => NamespacedTool::joined(&namespace, &name).into(),
        None => name,
    };
    Ok(ToolCall { id, name, input, is_free, seal: None, cache: None })
}

fn tool_result<'a>(
    at: &FieldPath<'_>,
    members: Members<'a>,
) -> Result<ToolResult<'a>, Untranslatable> {
    let (mut id, mut content) = (None, Vec::new());
    for (key, value) in members {
        let at = at.key(&key);
        match &*key {
            "type" | "id" | "status" => {}
            "call_id" => id = Some(at.text(value)?),
            _ if !is_given(value) => {}
            "output" => content = content_list(&at, value)?,
            _ => return Err(at.uncarried()),
        }
    }
    Ok(ToolResult { id: at.needed("call_id", id)?, content, is_error: false, cache: None })
}
