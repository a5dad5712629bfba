//! Parts as a request of the Converse API.

use crate::claude::{self, Thinks};
use crate::converse::content::{self, ContentWriter, own_seal};
use crate::dialect::{Losses, ThinkingStyle, TranslationTarget, Untranslatable};
use crate::json::{self, Members};
use crate::kit;
use crate::part::{AnswerFormat, Cache, PromptPart, Sampling, Speaker, Tool, ToolChoice};
use crate::turns::{AlternatingTurns, CacheMarks};

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let conversation = AlternatingTurns::gather(parts, |one| own_seal(one).is_some());
    let marks = CacheMarks::new(parts, &conversation, target);
    let mut settings = Settings::read(parts, target, losses, &conversation)?;
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    let tools: Vec<&Tool<'_>> = parts
        .iter()
        .filter_map(|part| match part {
            PromptPart::Tool(tool) => Some(tool),
            _ => None,
        })
        .collect();
    if !tools.is_empty() {
        let choice = settings.choose_tools(parts, target)?;
        members.key(&mut out, "toolConfig");
        tool_config(&tools, choice, &marks, &mut out);
    }
    if !conversation.system.is_empty() {
        members.key(&mut out, "system");
        let mut list = Members::array(&mut out);
        for (place, one) in conversation.system.iter().enumerate() {
            content::text(&one.text, &mut list, &mut out);
            let mark = marks.system.filter(|marked| *marked == place).map(|_| Cache::Short);
            content::cache_point(one.cache.or(mark), &mut list, &mut out);
        }
        list.end(&mut out);
    }
    members.key(&mut out, "messages");
    messages(&conversation, &marks, &mut out)?;
    settings.write(&mut members, &mut out);
    members.end(&mut out);
    Ok(out)
}

fn messages(
    conversation: &AlternatingTurns<'_>,
    marks: &CacheMarks,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut writer = ContentWriter::default();
    let mut list = Members::array(out);
    for (place, turn) in conversation.turns.iter().enumerate() {
        list.next(out);
        let mut message = Members::object(out);
        let role = if turn.role == Speaker::User { "user" } else { "assistant" };
        message.text(out, "role", role);
        message.key(out, "content");
        let mut blocks = Members::array(out);
        let is_marked = marks.turns.contains(&place);
        for (place, block) in turn.blocks.iter().enumerate() {
            let mark = (is_marked && place + 1 == turn.blocks.len()).then_some(Cache::Short);
            writer.block(block, mark, &mut blocks, out)?;
        }
        blocks.end(out);
        message.end(out);
    }
    list.end(out);
    Ok(())
}

fn tool_config(
    tools: &[&Tool<'_>],
    choice: Option<&ToolChoice<'_>>,
    marks: &CacheMarks,
    out: &mut Vec<u8>,
) {
    let mut config = Members::object(out);
    config.key(out, "tools");
    let mut list = Members::array(out);
    for (place, tool) in tools.iter().enumerate() {
        list.next(out);
        let mut object = Members::object(out);
        object.key(out, "toolSpec");
        let mut spec = Members::object(out);
        spec.text(out, "name", &tool.name);
        if let Some(description) = tool.description.as_ref().filter(|text| !text.is_empty()) {
            spec.text(out, "description", description);
        }
        spec.key(out, "inputSchema");
        let mut schema = Members::object(out);
        let written = if tool.is_free { Some(kit::FREE_SCHEMA) } else { tool.schema.as_deref() };
        schema.raw(out, "json", written.unwrap_or(kit::EMPTY_SCHEMA));
        schema.end(out);
        if tool.is_strict == Some(true) {
            spec.boolean(out, "strict", true);
        }
        spec.end(out);
        object.end(out);
        let mark = (marks.tools && place + 1 == tools.len()).then_some(Cache::Short);
        content::cache_point(tool.cache.or(mark), &mut list, out);
    }
    list.end(out);
    if let Some(choice) = choice {
        config.key(out, "toolChoice");
        let mut object = Members::object(out);
        match choice {
            ToolChoice::Any => object.raw(out, "any", "{}"),
            ToolChoice::Named(name) => {
                object.key(out, "tool");
                let mut tool = Members::object(out);
                tool.text(out, "name", name);
                tool.end(out);
            }
            ToolChoice::Auto | ToolChoice::None => object.raw(out, "auto", "{}"),
        }
        object.end(out);
    }
    config.end(out);
}

/// What is said beside tools and turns.
struct Settings<'p> {
    output_max: u64,
    thinks: Option<Thinks>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u64>,
    stops: Vec<&'p str>,
    schema: Option<&'p AnswerFormat<'p>>,
    /// In the words of Anthropic's models: what the API's own choice of tools has no words for.
    tool_choice: Option<Vec<u8>>,
}

impl<'p> Settings<'p> {
    fn read(
        parts: &'p [PromptPart<'p>],
        target: &TranslationTarget,
        losses: &mut Losses,
        conversation: &AlternatingTurns<'_>,
    ) -> Result<Self, Untranslatable> {
        let asked = parts.iter().find_map(|part| match part {
            PromptPart::OutputMax(tokens) => Some(*tokens),
            _ => None,
        });
        let output_max = asked.unwrap_or(target.output_max);
        let thinks = claude::thinking(parts, output_max, target, losses, conversation)?;
        let mut settings = Self {
            output_max,
            thinks,
            temperature: None,
            top_p: None,
            top_k: None,
            stops: Vec::new(),
            schema: None,
            tool_choice: None,
        };
        let has_temperature =
            parts.iter().any(|part| matches!(part, PromptPart::Sampling(Sampling::Temperature(_))));
        for part in parts {
            match part {
                PromptPart::Stop(texts) => settings.stops = texts.iter().map(|it| &**it).collect(),
                PromptPart::Format(AnswerFormat::Json) => {
                    return Err(Untranslatable::uncarried("response_format"));
                }
                PromptPart::Format(format) => settings.schema = Some(format),
                PromptPart::Sampling(one) if settings.takes(*one, target, has_temperature) => {
                    match *one {
                        Sampling::Temperature(number) => settings.temperature = Some(number),
                        Sampling::TopP(number) => settings.top_p = Some(number),
                        Sampling::TopK(count) => settings.top_k = Some(count),
                        _ => {}
                    }
                }
                PromptPart::Sampling(one) => losses.drop_hint(target.mode, one.field())?,
                PromptPart::User(_) => losses.drop_hint(target.mode, "user")?,
                PromptPart::Verbosity(_) => losses.drop_hint(target.mode, "verbosity")?,
                _ => {}
            }
        }
        Ok(settings)
    }

    /// The API's own settings end at 1, and only Anthropic's models are known to take `top_k`.
    fn takes(&self, sampling: Sampling, target: &TranslationTarget, has_temperature: bool) -> bool {
        if !target.takes_sampling {
            return false;
        }
        if is_anthropics(target) {
            return claude::takes(
                sampling,
                self.thinks.is_some_and(Thinks::is_on),
                has_temperature,
            );
        }
        match sampling {
            Sampling::Temperature(number) => number <= 1.0,
            Sampling::TopP(_) => true,
            _ => false,
        }
    }

    /// The API's own choice of tools. It cannot say that none may be called, or one at a time, which
    /// Anthropic's models are told in their own words instead.
    fn choose_tools(
        &mut self,
        parts: &'p [PromptPart<'p>],
        target: &TranslationTarget,
    ) -> Result<Option<&'p ToolChoice<'p>>, Untranslatable> {
        let choice = parts.iter().find_map(|part| match part {
            PromptPart::ToolChoice(choice) => Some(choice),
            _ => None,
        });
        let is_none = choice == Some(&ToolChoice::None);
        let is_single = parts.iter().any(|part| matches!(part, PromptPart::ParallelTools(false)));
        if !is_none && !is_single {
            return Ok(choice);
        }
        if !is_anthropics(target) {
            let field = if is_none { "tool_choice" } else { "parallel_tool_calls" };
            return Err(Untranslatable::uncarried(field));
        }
        let mut written = Vec::new();
        claude::tool_choice(choice.unwrap_or(&ToolChoice::Auto), is_single, &mut written);
        self.tool_choice = Some(written);
        Ok(None)
    }

    fn write(&self, members: &mut Members, out: &mut Vec<u8>) {
        members.key(out, "inferenceConfig");
        let mut config = Members::object(out);
        config.integer(out, "maxTokens", self.output_max);
        for (key, number) in [("temperature", self.temperature), ("topP", self.top_p)] {
            if let Some(number) = number {
                config.key(out, key);
                json::push_number(out, number);
            }
        }
        if !self.stops.is_empty() {
            config.key(out, "stopSequences");
            let mut list = Members::array(out);
            for text in &self.stops {
                list.next(out);
                json::push_string(out, text);
            }
            list.end(out);
        }
        config.end(out);
        if let Some(AnswerFormat::Schema { name, description, schema, .. }) = self.schema {
            members.key(out, "outputConfig");
            output_config(name.as_deref(), description.as_deref(), schema, out);
        }
        self.write_anthropics(members, out);
    }

    /// Fields of Anthropic's own API, which goes to its models as they are.
    fn write_anthropics(&self, members: &mut Members, out: &mut Vec<u8>) {
        if self.thinks.is_none() && self.top_k.is_none() && self.tool_choice.is_none() {
            return;
        }
        members.key(out, "additionalModelRequestFields");
        let mut fields = Members::object(out);
        if let Some(thinks) = self.thinks {
            fields.key(out, "thinking");
            thinks.write(out);
            if let Some(effort) = thinks.effort() {
                fields.key(out, "output_config");
                let mut config = Members::object(out);
                config.text(out, "effort", effort);
                config.end(out);
            }
        }
        if let Some(count) = self.top_k {
            fields.integer(out, "top_k", count);
        }
        if let Some(choice) = &self.tool_choice {
            fields.key(out, "tool_choice");
            out.extend_from_slice(choice);
        }
        fields.end(out);
    }
}

/// The schema is a text there, with its own bytes.
fn output_config(name: Option<&str>, description: Option<&str>, schema: &str, out: &mut Vec<u8>) {
    let mut config = Members::object(out);
    config.key(out, "textFormat");
    let mut format = Members::object(out);
    format.text(out, "type", "json_schema");
    format.key(out, "structure");
    let mut structure = Members::object(out);
    structure.key(out, "jsonSchema");
    let mut definition = Members::object(out);
    definition.text(out, "schema", schema);
    if let Some(name) = name {
        definition.text(out, "name", name);
    }
    if let Some(description) = description {
        definition.text(out, "description", description);
    }
    definition.end(out);
    structure.end(out);
    format.end(out);
    config.end(out);
}

fn is_anthropics(target: &TranslationTarget) -> bool {
    target.thinking != ThinkingStyle::None
}
