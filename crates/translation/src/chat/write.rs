//! Parts as a chat completion for an upstream.

use std::borrow::Cow;

use crate::answer_format;
use crate::call_input;
use crate::chat::conversation::{self, AssistantMessage, PromptMessage};
use crate::chat::thoughts::TurnReasoning;
use crate::dialect::{ChatStyle, Losses, ThinkingField, TranslationTarget, Untranslatable};
use crate::json::Members;
use crate::media;
use crate::names;
use crate::openai_tools;
use crate::pairing;
use crate::part;
use crate::part::{
    AnswerFormat, ContentPart, Effort, MediaPart, PromptPart, Sampling, Source, Text, Thinking,
    Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::seal::{self, Maker};
use crate::thinking;
use crate::tool_schema;

/// Maximum number of stop sequences.
const STOP_MAX: usize = 4;
/// The longest name for prompts that begin alike that OpenAI takes, in bytes.
const CACHE_KEY_BYTES_MAX: usize = 64;
/// The longest name of a customer's user that OpenAI takes, in bytes.
const USER_BYTES_MAX: usize = 64;

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    members.key(&mut out, "messages");
    messages(&pairing::paired(parts), target, &mut out)?;
    tools(parts, target, losses, &mut members, &mut out)?;
    let mut settings = ChatSettings { target, losses, members: &mut members, out: &mut out };
    for part in parts {
        settings.part(part)?;
    }
    if let Some(thinking) = thinking::requested(parts) {
        settings.thinking(thinking)?;
    }
    if target.streams {
        members.raw(&mut out, "stream", "true");
        members.raw(&mut out, "stream_options", r#"{"include_usage":true}"#);
    }
    members.end(&mut out);
    Ok(out)
}

/// Top-level fields other than messages and tools.
struct ChatSettings<'w> {
    target: &'w TranslationTarget,
    losses: &'w mut Losses,
    members: &'w mut Members,
    out: &'w mut Vec<u8>,
}

impl ChatSettings<'_> {
    fn part(&mut self, part: &PromptPart<'_>) -> Result<(), Untranslatable> {
        let is_openai = self.target.chat == ChatStyle::Openai;
        match part {
            PromptPart::OutputMax(tokens) => {
                let field = if is_openai { "max_completion_tokens" } else { "max_tokens" };
                // Anthropic takes none, to fill a cache; here one is the least.
                self.members.integer(self.out, field, (*tokens).max(1));
            }
            PromptPart::Stop(texts) => self.stop(texts)?,
            PromptPart::Format(format) => self.format(format)?,
            PromptPart::Sampling(sampling) => return self.sampling(*sampling),
            PromptPart::Verbosity(word) if is_openai => {
                self.members.text(self.out, "verbosity", word)
            }
            PromptPart::Verbosity(_) => return self.drop_hint("verbosity"),
            PromptPart::CacheKey(key) if is_openai => {
                let key = names::shortened(key, CACHE_KEY_BYTES_MAX);
                self.members.text(self.out, "prompt_cache_key", &key);
            }
            PromptPart::CacheKey(_) => return self.drop_hint("prompt_cache_key"),
            PromptPart::User(user) if is_openai && user.len() <= USER_BYTES_MAX => {
                self.members.text(self.out, "safety_identifier", user);
            }
            PromptPart::User(_) => return self.drop_hint("user"),
            _ => {}
        }
        Ok(())
    }

    fn drop_hint(&mut self, field: &'static str) -> Result<(), Untranslatable> {
        self.losses.drop_hint(self.target.mode, field)
    }

    /// Writes the thinking setting: OpenAI has an effort, compatible APIs have their own fields.
    fn thinking(&mut self, thinking: Thinking) -> Result<(), Untranslatable> {
        if self.target.chat == ChatStyle::Openai {
            return self.effort(thinking);
        }
        let is_on = thinking != Thinking::Off;
        let kind = if is_on { "enabled" } else { "disabled" };
        match self.target.thinking_field {
            ThinkingField::ReasoningEffort => return self.effort(thinking),
            ThinkingField::None if thinking == Thinking::Adaptive => {}
            ThinkingField::None => return self.drop_thinking(thinking),
            ThinkingField::Thinking => {
                let value = format!(r#"{{"type":"{kind}"}}"#);
                self.members.raw(self.out, "thinking", &value);
            }
            ThinkingField::EnableThinking => {
                self.members.boolean(self.out, "enable_thinking", is_on);
                if let Thinking::Budget(tokens) = thinking {
                    self.members.integer(self.out, "thinking_budget", tokens);
                }
            }
            // Templates have either name (Qwen's and Zhipu's the first, DeepSeek's the second), and pass
            // over the other.
            ThinkingField::ChatTemplateKwargs => {
                let value = format!(r#"{{"enable_thinking":{is_on},"thinking":{is_on}}}"#);
                self.members.raw(self.out, "chat_template_kwargs", &value);
            }
        }
        match thinking {
            Thinking::Effort(_) => self.drop_thinking(thinking),
            _ => Ok(()),
        }
    }

    /// Writes `reasoning_effort` with a value that the model accepts.
    fn effort(&mut self, thinking: Thinking) -> Result<(), Untranslatable> {
        let efforts = self.target.efforts;
        let word = match thinking {
            Thinking::Adaptive => return Ok(()),
            Thinking::Off => efforts.off(),
            Thinking::Effort(effort) => efforts.nearest(effort),
            Thinking::Budget(tokens) => efforts.nearest(thinking::effort_of(tokens)),
        };
        if word.is_none() {
            self.drop_thinking(thinking)?;
        }
        // A model that cannot do without thinks as little as it can.
        if let Some(word) = word.or_else(|| efforts.nearest(Effort::Minimal)) {
            self.members.text(self.out, "reasoning_effort", word);
        }
        Ok(())
    }

    fn drop_thinking(&mut self, thinking: Thinking) -> Result<(), Untranslatable> {
        match thinking {
            Thinking::Effort(Effort::Low | Effort::Medium | Effort::High) => {
                self.drop_hint("reasoning_effort")
            }
            _ => self.drop_hint("thinking"),
        }
    }

    fn stop(&mut self, texts: &[Cow<'_, str>]) -> Result<(), Untranslatable> {
        let texts = part::stop_texts(texts);
        if texts.len() > STOP_MAX {
            return Err(Untranslatable::uncarried("stop"));
        }
        if texts.is_empty() {
            return Ok(());
        }
        self.members.key(self.out, "stop");
        let mut list = Members::array(self.out);
        for text in texts {
            list.next(self.out);
            crate::json::push_string(self.out, text);
        }
        list.end(self.out);
        Ok(())
    }

    fn format(&mut self, format: &AnswerFormat<'_>) -> Result<(), Untranslatable> {
        let is_loose = matches!(format, AnswerFormat::Schema { schema, is_strict: Some(true), .. }
            if !tool_schema::is_strict(schema));
        if is_loose {
            self.drop_hint("response_format: strict")?;
        }
        self.members.key(self.out, "response_format");
        let mut object = Members::object(self.out);
        match format {
            AnswerFormat::Json => object.text(self.out, "type", "json_object"),
            AnswerFormat::Schema { name, description, schema, is_strict } => {
                object.text(self.out, "type", "json_schema");
                object.key(self.out, "json_schema");
                let mut inner = Members::object(self.out);
                inner.text(self.out, "name", name.as_deref().unwrap_or(answer_format::SCHEMA_NAME));
                if let Some(description) = description {
                    inner.text(self.out, "description", description);
                }
                inner.raw(self.out, "schema", schema);
                if let Some(is_strict) = is_strict {
                    inner.boolean(self.out, "strict", *is_strict && !is_loose);
                }
                inner.end(self.out);
            }
        }
        object.end(self.out);
        Ok(())
    }

    fn sampling(&mut self, sampling: Sampling) -> Result<(), Untranslatable> {
        let field = sampling.field();
        match sampling {
            Sampling::TopK(_) => return self.drop_hint(field),
            // Models that reason refuse penalties too.
            Sampling::Temperature(_)
            | Sampling::TopP(_)
            | Sampling::PresencePenalty(_)
            | Sampling::FrequencyPenalty(_)
                if !self.target.takes_sampling =>
            {
                return self.drop_hint(field);
            }
            Sampling::Temperature(number)
            | Sampling::TopP(number)
            | Sampling::PresencePenalty(number)
            | Sampling::FrequencyPenalty(number) => {
                self.members.key(self.out, field);
                crate::json::push_number(self.out, number);
            }
            Sampling::Seed(seed) => self.members.raw(self.out, field, &seed.to_string()),
        }
        Ok(())
    }
}

fn tools(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
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
        tool(one, target, losses, out)?;
    }
    list.end(out);
    for part in parts {
        match part {
            PromptPart::ToolChoice(choice) => {
                members.key(out, "tool_choice");
                let is_custom =
                    target.chat == ChatStyle::Openai && openai_tools::names_free(parts, choice);
                tool_choice(choice, is_custom, out);
            }
            PromptPart::ParallelTools(may) => members.boolean(out, "parallel_tool_calls", *may),
            _ => {}
        }
    }
    Ok(())
}

fn tool(
    tool: &Tool<'_>,
    target: &TranslationTarget,
    losses: &mut Losses,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let is_custom = tool.is_free && target.chat == ChatStyle::Openai;
    let kind = if is_custom { "custom" } else { "function" };
    let mut object = Members::object(out);
    object.text(out, "type", kind);
    object.key(out, kind);
    let mut inner = Members::object(out);
    inner.text(out, "name", &tool.name);
    if let Some(description) = &tool.description {
        inner.text(out, "description", description);
    }
    if tool.is_free && !is_custom {
        inner.raw(out, "parameters", call_input::FREE_SCHEMA);
    }
    if !tool.is_free {
        let (schema, is_strict) = openai_tools::openai_schema(tool, target.mode, losses)?;
        inner.raw(out, "parameters", &schema);
        if is_strict || tool.is_strict.is_some() && target.chat == ChatStyle::Openai {
            inner.boolean(out, "strict", is_strict);
        }
    }
    inner.end(out);
    object.end(out);
    Ok(())
}

fn tool_choice(choice: &ToolChoice<'_>, is_custom: bool, out: &mut Vec<u8>) {
    let word = match choice {
        ToolChoice::Auto => "auto",
        ToolChoice::None => "none",
        ToolChoice::Any => "required",
        ToolChoice::Named(name) => {
            let mut object = Members::object(out);
            let kind = if is_custom { "custom" } else { "function" };
            object.text(out, "type", kind);
            object.key(out, kind);
            let mut inner = Members::object(out);
            inner.text(out, "name", name);
            inner.end(out);
            object.end(out);
            return;
        }
    };
    crate::json::push_string(out, word);
}

fn messages(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut list = Members::array(out);
    for message in conversation::messages(parts, target)? {
        list.next(out);
        match message {
            PromptMessage::Instructions(texts) => instructions(&texts, target, out),
            PromptMessage::User(contents) => user(&contents, target, out)?,
            PromptMessage::Assistant(message) => assistant(message, target, out)?,
            PromptMessage::Result(result) => tool_result(result, out),
        }
    }
    list.end(out);
    Ok(())
}

fn instructions(texts: &[&str], target: &TranslationTarget, out: &mut Vec<u8>) {
    let role = if target.chat == ChatStyle::Openai { "developer" } else { "system" };
    let mut message = message(role, out);
    // Chat templates of open models take one text at the beginning.
    message.text(out, "content", &texts.join("\n\n"));
    message.end(out);
}

fn user(
    contents: &[Cow<'_, ContentPart<'_>>],
    target: &TranslationTarget,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut message = message("user", out);
    message.key(out, "content");
    match contents {
        [one] if let ContentPart::Text(text) = one.as_ref() => {
            crate::json::push_string(out, &text.text);
        }
        all => {
            let mut parts = Members::array(out);
            for one in all {
                parts.next(out);
                check_picture(one, target)?;
                content(one, out)?;
            }
            parts.end(out);
        }
    }
    message.end(out);
    Ok(())
}

fn assistant(
    assistant: AssistantMessage<'_>,
    target: &TranslationTarget,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut message = message("assistant", out);
    let thoughts = TurnReasoning::from_turn(&assistant.reasoning);
    message.key(out, "content");
    thoughts.write_content(&assistant.text, out);
    if !assistant.refusal.is_empty() {
        message.text(out, "refusal", &assistant.refusal);
    }
    thoughts.write_fields(&mut message, out);
    if !assistant.calls.is_empty() {
        message.key(out, "tool_calls");
        let mut list = Members::array(out);
        for call in &assistant.calls {
            list.next(out);
            tool_call(call, target, out)?;
        }
        list.end(out);
    }
    if assistant.is_prefix {
        message.boolean(out, "prefix", true);
    }
    message.end(out);
    Ok(())
}

fn message(role: &str, out: &mut Vec<u8>) -> Members {
    let mut message = Members::object(out);
    message.text(out, "role", role);
    message
}

fn tool_result(result: &ToolResult<'_>, out: &mut Vec<u8>) {
    let mut message = message("tool", out);
    message.text(out, "tool_call_id", &result.id);
    let texts = result.content.iter().filter_map(|content| match content {
        ContentPart::Text(text) => Some(&*text.text),
        ContentPart::Refusal(text) => Some(&**text),
        _ => None,
    });
    let text = texts.collect::<Vec<&str>>().join("\n");
    message.text(out, "content", &openai_tools::marked_output(&text, result.is_error));
    message.end(out);
}

fn tool_call(
    call: &ToolCall<'_>,
    target: &TranslationTarget,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let is_custom = call.is_free && target.chat == ChatStyle::Openai;
    let kind = if is_custom { "custom" } else { "function" };
    let mut object = Members::object(out);
    object.text(out, "id", &call.id);
    object.text(out, "type", kind);
    object.key(out, kind);
    let mut inner = Members::object(out);
    inner.text(out, "name", &call.name);
    if is_custom {
        inner.text(out, "input", &call.input);
    } else {
        inner.text(out, "arguments", &call_input::object_input(call)?);
    }
    inner.end(out);
    let signature = call.seal.as_deref().and_then(|it| seal::open(Maker::Gemini, it));
    // A member of Google's copy of chat completions; OpenAI refuses members that it does not know.
    if let Some(signature) = signature.filter(|_| target.chat == ChatStyle::Common) {
        object.key(out, "extra_content");
        let mut extra = Members::object(out);
        extra.key(out, "google");
        let mut google = Members::object(out);
        google.text(out, "thought_signature", signature);
        google.end(out);
        extra.end(out);
    }
    object.end(out);
    Ok(())
}

/// OpenAI takes four types of inline pictures; copies take others, as Alibaba's TIFF.
fn check_picture(
    content: &ContentPart<'_>,
    target: &TranslationTarget,
) -> Result<(), Untranslatable> {
    match content {
        ContentPart::Image(MediaPart { source: Source::Inline { media_type, data }, .. })
            if target.chat == ChatStyle::Openai =>
        {
            media::check_openai_picture(&media::media_type(media_type, data))
        }
        _ => Ok(()),
    }
}

fn content(content: &ContentPart<'_>, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    match content {
        ContentPart::Text(Text { text, .. }) | ContentPart::Refusal(text) => {
            object.text(out, "type", "text");
            object.text(out, "text", text);
        }
        ContentPart::Image(media) => {
            object.text(out, "type", "image_url");
            object.key(out, "image_url");
            let mut inner = Members::object(out);
            inner.text(out, "url", &url(media, "image")?);
            if let Some(detail) = &media.detail {
                inner.text(out, "detail", detail);
            }
            inner.end(out);
        }
        ContentPart::Video(media) => media_by_url("video_url", media, "a video", &mut object, out)?,
        ContentPart::Audio(media @ MediaPart { source: Source::Url(_), .. }) => {
            media_by_url("audio_url", media, "audio", &mut object, out)?;
        }
        ContentPart::Audio(media) => {
            object.text(out, "type", "input_audio");
            object.key(out, "input_audio");
            let Source::Inline { media_type, data } = &media.source else {
                return Err(Untranslatable::uncarried("messages.content: audio as text"));
            };
            let mut inner = Members::object(out);
            inner.text(out, "data", data);
            inner.text(out, "format", media_type.strip_prefix("audio/").unwrap_or(media_type));
            inner.end(out);
        }
        ContentPart::File(MediaPart { source: Source::Plain(text), .. }) => {
            object.text(out, "type", "text");
            object.text(out, "text", text);
        }
        ContentPart::File(media) => {
            object.text(out, "type", "file");
            object.key(out, "file");
            let Source::Inline { media_type, data } = &media.source else {
                return Err(Untranslatable::uncarried("messages.content: a document by URL"));
            };
            let mut inner = Members::object(out);
            inner.text(out, "filename", media.name.as_deref().unwrap_or(media::FILE_NAME));
            inner.text(out, "file_data", &media::to_data_url(media_type, data));
            inner.end(out);
        }
    }
    object.end(out);
    Ok(())
}

/// A part that names its media by a URL, in which they can stand themselves.
fn media_by_url(
    kind: &'static str,
    media: &MediaPart<'_>,
    what: &str,
    object: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    object.text(out, "type", kind);
    object.key(out, kind);
    let mut inner = Members::object(out);
    inner.text(out, "url", &url(media, what)?);
    inner.end(out);
    Ok(())
}

fn url<'m>(media: &'m MediaPart<'_>, what: &str) -> Result<Cow<'m, str>, Untranslatable> {
    match &media.source {
        Source::Url(url) => Ok(Cow::Borrowed(url)),
        Source::Inline { media_type, data } => {
            Ok(media::to_data_url(&media::media_type(media_type, data), data).into())
        }
        Source::Plain(_) => {
            Err(Untranslatable::uncarried(format!("messages.content: {what} as text")))
        }
    }
}
