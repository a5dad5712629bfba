//! Parts as a response for an upstream.

use crate::answer_format;
use crate::chat::conversation::{BEGIN, SAY_JSON, says_json};
use crate::dialect::{Efforts, Losses, Mode, TranslationTarget, Untranslatable};
use crate::field_path::{FieldPath, Raw, is_object};
use crate::json::{self, Members};
use crate::media;
use crate::names;
use crate::openai_tools;
use crate::pairing;
use crate::part;
use crate::part::{
    AnswerFormat, ContentPart, Effort, MediaPart, PromptPart, Sampling, Source, Speaker, Text,
    Thinking, Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::seal::{self, Maker};
use crate::thinking;
use crate::tool_schema;

/// The least `max_output_tokens` ("integer below minimum value. Expected a value >= 16", litellm 31451).
const OUTPUT_TOKENS_MIN: u64 = 16;
/// The longest name for prompts that begin alike, in bytes.
const CACHE_KEY_BYTES_MAX: usize = 64;
/// The longest name of a customer's user, in bytes.
const USER_BYTES_MAX: usize = 64;

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    members.key(&mut out, "input");
    input(&pairing::paired(parts), &mut out)?;
    tools(parts, target.mode, losses, &mut members, &mut out)?;
    let mut settings = ResponseSettings { target, losses, members: &mut members, out: &mut out };
    settings.write(parts)?;
    members.raw(&mut out, "store", "false");
    // What the model thought comes back with the next request, as nothing is stored. One that never
    // thinks refuses to be told so ("Encrypted content is not supported with this model").
    if target.efforts != Efforts::NONE {
        members.raw(&mut out, "include", r#"["reasoning.encrypted_content"]"#);
    }
    if target.streams {
        members.raw(&mut out, "stream", "true");
    }
    members.end(&mut out);
    Ok(out)
}

/// Items, of which texts that follow each other in one turn are one.
struct Items<'o> {
    list: Members,
    /// The message that is open, with its contents.
    open: Option<OpenMessage>,
    out: &'o mut Vec<u8>,
}

struct OpenMessage {
    message: Members,
    contents: Members,
    role: &'static str,
}

impl Items<'_> {
    /// The list of contents of a message of this role.
    fn message(&mut self, role: &'static str) -> &mut Self {
        if self.open.as_ref().is_some_and(|open| open.role == role) {
            return self;
        }
        self.close();
        self.list.next(self.out);
        let mut message = Members::object(self.out);
        message.text(self.out, "type", "message");
        message.text(self.out, "role", role);
        message.key(self.out, "content");
        let contents = Members::array(self.out);
        self.open = Some(OpenMessage { message, contents, role });
        self
    }

    fn close(&mut self) {
        if let Some(OpenMessage { message, contents, .. }) = self.open.take() {
            contents.end(self.out);
            message.end(self.out);
        }
    }

    fn content(&mut self, content: &ContentPart<'_>) -> Result<(), Untranslatable> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.contents.next(self.out);
        let is_output = open.role == "assistant";
        write_content(content, is_output, self.out)
    }

    /// Position of an item other than a message.
    fn item(&mut self) -> &mut Vec<u8> {
        self.close();
        self.list.next(self.out);
        self.out
    }
}

fn input(parts: &[PromptPart<'_>], out: &mut Vec<u8>) -> Result<(), Untranslatable> {
    let list = Members::array(out);
    let begin = out.len();
    let mut items = Items { list, open: None, out };
    let mut role = Speaker::User;
    let mut free_calls: Vec<&str> = Vec::new();
    let wants_json =
        parts.iter().any(|part| matches!(part, PromptPart::Format(AnswerFormat::Json)));
    if wants_json && !says_json(parts) {
        let text = Text { text: SAY_JSON.into(), cache: None };
        items.message("developer").content(&ContentPart::Text(text))?;
    }
    for (place, part) in parts.iter().enumerate() {
        match part {
            PromptPart::Instruction(text) if text.text.is_empty() => {}
            PromptPart::Content(ContentPart::Text(text)) if text.text.is_empty() => {}
            PromptPart::Instruction(text) => {
                items.message("developer").content(&ContentPart::Text(text.clone()))?;
            }
            PromptPart::Turn(next) => {
                items.close();
                role = *next;
            }
            PromptPart::Content(content) => {
                let role = if role == Speaker::User { "user" } else { "assistant" };
                items.message(role).content(content)?;
            }
            PromptPart::Reasoning(one) => {
                let seal = one.seal.as_deref();
                // What another model thought is no part of the prompt.
                let item = seal.and_then(|seal| seal::open(Maker::Responses, seal));
                // Customers can write seals of their own: what is no thought is no part of it either.
                let item = item.filter(|item| is_followed(parts, place) && is_thought(item));
                if let Some(item) = item {
                    items.item().extend_from_slice(item.as_bytes());
                }
            }
            PromptPart::ToolCall(call) => {
                if call.is_free {
                    free_calls.push(&call.id);
                }
                tool_call(call, items.item());
            }
            PromptPart::ToolResult(result) => {
                let is_free = free_calls.contains(&&*result.id);
                tool_result(result, is_free, items.item())?;
            }
            _ => {}
        }
    }
    // All that was said is blank, and "One of \"input\" … must be provided".
    if items.out.len() == begin {
        items
            .message("user")
            .content(&ContentPart::Text(Text { text: BEGIN.into(), cache: None }))?;
    }
    items.close();
    items.list.end(items.out);
    Ok(())
}

/// True if a text or call of the assistant follows the reasoning in its turn. An interrupted turn ends with
/// reasoning, which OpenAI refuses: "Item of type 'reasoning' was provided without its required following
/// item".
fn is_followed(parts: &[PromptPart<'_>], place: usize) -> bool {
    for part in parts.iter().skip(place + 1) {
        match part {
            PromptPart::ToolCall(_) => return true,
            PromptPart::Content(ContentPart::Text(text)) if text.text.is_empty() => {}
            PromptPart::Content(_) => return true,
            PromptPart::Turn(_) | PromptPart::ToolResult(_) | PromptPart::Instruction(_) => {
                return false;
            }
            _ => {}
        }
    }
    false
}

/// The members of an item that an upstream has thought.
const THOUGHT_MEMBERS: [&str; 6] =
    ["id", "type", "summary", "content", "encrypted_content", "status"];

/// True if the text is one JSON object, and so a reasoning item of an upstream.
fn is_thought(item: &str) -> bool {
    let Some(raw) = Some(item).filter(|item| is_object(item)).and_then(Raw::document) else {
        return false;
    };
    let Ok(members) = FieldPath::ROOT.object(raw) else { return false };
    let kind = FieldPath::ROOT.kind(&members);
    kind.is_ok_and(|kind| kind == "reasoning")
        && members.iter().all(|(key, _)| THOUGHT_MEMBERS.contains(&&**key))
}

fn tool_call(call: &ToolCall<'_>, out: &mut Vec<u8>) {
    let mut item = Members::object(out);
    let (kind, field) = match call.is_free {
        true => ("custom_tool_call", "input"),
        false => ("function_call", "arguments"),
    };
    item.text(out, "type", kind);
    item.text(out, "call_id", &call.id);
    item.text(out, "name", &call.name);
    let is_empty = call.input.is_empty() && !call.is_free;
    item.text(out, field, if is_empty { "{}" } else { &call.input });
    item.end(out);
}

fn tool_result(
    result: &ToolResult<'_>,
    is_free: bool,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut item = Members::object(out);
    let kind = if is_free { "custom_tool_call_output" } else { "function_call_output" };
    item.text(out, "type", kind);
    item.text(out, "call_id", &result.id);
    match &result.content[..] {
        [] => item.text(out, "output", if result.is_error { "Error" } else { "" }),
        [ContentPart::Text(text)] => {
            item.text(out, "output", &openai_tools::marked_output(&text.text, result.is_error));
        }
        all => {
            item.key(out, "output");
            let mut list = Members::array(out);
            if result.is_error {
                list.next(out);
                let text = Text { text: "Error:".into(), cache: None };
                write_content(&ContentPart::Text(text), false, out)?;
            }
            for content in all {
                list.next(out);
                write_content(content, false, out)?;
            }
            list.end(out);
        }
    }
    item.end(out);
    Ok(())
}

fn write_content(
    content: &ContentPart<'_>,
    is_output: bool,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    let text_type = if is_output { "output_text" } else { "input_text" };
    match content {
        ContentPart::Text(text) => {
            object.text(out, "type", text_type);
            object.text(out, "text", &text.text);
        }
        ContentPart::Refusal(text) if is_output => {
            object.text(out, "type", "refusal");
            object.text(out, "refusal", text);
        }
        ContentPart::Refusal(text) => {
            object.text(out, "type", text_type);
            object.text(out, "text", text);
        }
        ContentPart::Image(_) | ContentPart::File(_) if is_output => {
            return Err(Untranslatable::uncarried("messages.content: media of the assistant"));
        }
        ContentPart::Image(media) => {
            if let Source::Inline { media_type, data } = &media.source {
                media::check_openai_picture(&media::media_type(media_type, data))?;
            }
            object.text(out, "type", "input_image");
            object.text(out, "image_url", &url(media));
            if let Some(detail) = &media.detail {
                object.text(out, "detail", detail);
            }
        }
        ContentPart::File(MediaPart { source: Source::Plain(text), .. }) => {
            object.text(out, "type", text_type);
            object.text(out, "text", text);
        }
        ContentPart::File(media) => {
            object.text(out, "type", "input_file");
            match &media.source {
                Source::Url(url) => object.text(out, "file_url", url),
                _ => {
                    let name = media.name.as_deref().unwrap_or(media::FILE_NAME);
                    object.text(out, "filename", name);
                    object.text(out, "file_data", &url(media));
                }
            }
        }
        ContentPart::Audio(_) => return Err(Untranslatable::uncarried("messages.content: audio")),
        ContentPart::Video(_) => {
            return Err(Untranslatable::uncarried("messages.content: a video"));
        }
    }
    object.end(out);
    Ok(())
}

fn url(media: &MediaPart<'_>) -> String {
    match &media.source {
        Source::Url(url) | Source::Plain(url) => url.clone().into_owned(),
        Source::Inline { media_type, data } => {
            media::to_data_url(&media::media_type(media_type, data), data)
        }
    }
}

fn tools(
    parts: &[PromptPart<'_>],
    mode: Mode,
    losses: &mut Losses,
    members: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut all = parts.iter().filter_map(|part| match part {
        PromptPart::Tool(tool) => Some(tool),
        _ => None,
    });
    let Some(first) = all.next() else { return Ok(()) };
    members.key(out, "tools");
    let mut list = Members::array(out);
    for one in std::iter::once(first).chain(all) {
        list.next(out);
        tool(one, mode, losses, out)?;
    }
    list.end(out);
    for part in parts {
        match part {
            PromptPart::ToolChoice(choice) => {
                members.key(out, "tool_choice");
                match choice {
                    ToolChoice::Auto => json::push_string(out, "auto"),
                    ToolChoice::None => json::push_string(out, "none"),
                    ToolChoice::Any => json::push_string(out, "required"),
                    ToolChoice::Named(name) => {
                        let mut object = Members::object(out);
                        let is_free = openai_tools::names_free(parts, choice);
                        object.text(out, "type", if is_free { "custom" } else { "function" });
                        object.text(out, "name", name);
                        object.end(out);
                    }
                }
            }
            PromptPart::ParallelTools(may) => members.boolean(out, "parallel_tool_calls", *may),
            _ => {}
        }
    }
    Ok(())
}

fn tool(
    tool: &Tool<'_>,
    mode: Mode,
    losses: &mut Losses,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", if tool.is_free { "custom" } else { "function" });
    object.text(out, "name", &tool.name);
    if let Some(description) = &tool.description {
        object.text(out, "description", description);
    }
    if !tool.is_free {
        let (schema, is_strict) = openai_tools::openai_schema(tool, mode, losses)?;
        object.raw(out, "parameters", &schema);
        // It is on there where nobody says otherwise, and refuses schemas that others take.
        object.boolean(out, "strict", is_strict);
    }
    object.end(out);
    Ok(())
}

/// Top-level fields other than tools and the conversation.
struct ResponseSettings<'w> {
    target: &'w TranslationTarget,
    losses: &'w mut Losses,
    members: &'w mut Members,
    out: &'w mut Vec<u8>,
}

impl ResponseSettings<'_> {
    fn write(&mut self, parts: &[PromptPart<'_>]) -> Result<(), Untranslatable> {
        let (mut verbosity, mut format) = (None, None);
        for part in parts {
            match part {
                PromptPart::OutputMax(tokens) => {
                    let tokens = (*tokens).max(OUTPUT_TOKENS_MIN);
                    self.members.integer(self.out, "max_output_tokens", tokens);
                }
                PromptPart::Stop(texts) if part::stop_texts(texts).is_empty() => {}
                PromptPart::Stop(_) => return Err(Untranslatable::uncarried("stop")),
                PromptPart::Format(one) => format = Some(one),
                PromptPart::Verbosity(word) => verbosity = Some(word),
                PromptPart::Sampling(sampling) => self.sampling(*sampling)?,
                PromptPart::CacheKey(key) => {
                    let key = names::shortened(key, CACHE_KEY_BYTES_MAX);
                    self.members.text(self.out, "prompt_cache_key", &key);
                }
                PromptPart::User(user) if user.len() <= USER_BYTES_MAX => {
                    self.members.text(self.out, "safety_identifier", user);
                }
                PromptPart::User(_) => self.drop_hint("user")?,
                _ => {}
            }
        }
        if let Some(thinking) = thinking::requested(parts) {
            self.thinking(thinking)?;
        }
        if verbosity.is_none() && format.is_none() {
            return Ok(());
        }
        self.members.key(self.out, "text");
        let mut text = Members::object(self.out);
        if let Some(word) = verbosity {
            text.text(self.out, "verbosity", word);
        }
        if let Some(format) = format {
            text.key(self.out, "format");
            self.format(format)?;
        }
        text.end(self.out);
        Ok(())
    }

    fn drop_hint(&mut self, field: &'static str) -> Result<(), Untranslatable> {
        self.losses.drop_hint(self.target.mode, field)
    }

    fn thinking(&mut self, thinking: Thinking) -> Result<(), Untranslatable> {
        let efforts = self.target.efforts;
        let word = match thinking {
            Thinking::Adaptive => return Ok(()),
            Thinking::Off => efforts.off(),
            Thinking::Effort(effort) => efforts.nearest(effort),
            Thinking::Budget(tokens) => efforts.nearest(thinking::effort_of(tokens)),
        };
        if word.is_none() {
            self.drop_hint("thinking")?;
        }
        // A model that cannot do without thinks as little as it can.
        let Some(word) = word.or_else(|| efforts.nearest(Effort::Minimal)) else { return Ok(()) };
        self.members.key(self.out, "reasoning");
        let mut object = Members::object(self.out);
        object.text(self.out, "effort", word);
        if thinking != Thinking::Off {
            object.text(self.out, "summary", "auto");
        }
        object.end(self.out);
        Ok(())
    }

    fn sampling(&mut self, sampling: Sampling) -> Result<(), Untranslatable> {
        let field = sampling.field();
        match sampling {
            Sampling::Temperature(number) | Sampling::TopP(number)
                if self.target.takes_sampling =>
            {
                self.members.key(self.out, field);
                json::push_number(self.out, number);
                Ok(())
            }
            _ => self.drop_hint(field),
        }
    }

    fn format(&mut self, format: &AnswerFormat<'_>) -> Result<(), Untranslatable> {
        let is_loose = matches!(format, AnswerFormat::Schema { schema, is_strict: Some(true), .. }
            if !tool_schema::is_strict(schema));
        if is_loose {
            self.drop_hint("response_format: strict")?;
        }
        let mut object = Members::object(self.out);
        match format {
            AnswerFormat::Json => object.text(self.out, "type", "json_object"),
            AnswerFormat::Schema { name, description, schema, is_strict } => {
                object.text(self.out, "type", "json_schema");
                object.text(
                    self.out,
                    "name",
                    name.as_deref().unwrap_or(answer_format::SCHEMA_NAME),
                );
                if let Some(description) = description {
                    object.text(self.out, "description", description);
                }
                object.raw(self.out, "schema", schema);
                if let Some(is_strict) = is_strict {
                    object.boolean(self.out, "strict", *is_strict && !is_loose);
                }
            }
        }
        object.end(self.out);
        Ok(())
    }
}
