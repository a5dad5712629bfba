//! Parts as a request of the Converse API.

use std::borrow::Cow;

use crate::claude::{self, ThinkingSetting};
use crate::converse::content::{self, ContentWriter, own_seal};
use crate::dialect::{Losses, ThinkingStyle, TranslationTarget, Untranslatable};
use crate::json::{self, Members};
use crate::part::{AnswerFormat, PromptPart, Reasoning, Sampling, Speaker, ToolChoice};
use crate::schemas::{self, Subset};
use crate::turns::{self, AlternatingTurns, CacheMarks, TrailingThoughts};
use crate::upstream_tools::{self, UpstreamTools};

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let is_own = |one: &Reasoning<'_>| own_seal(one).is_some();
    let mut conversation = AlternatingTurns::gather(parts, TrailingThoughts::Drop, is_own);
    // Read first: whether the model thinks decides below how the conversation may end.
    let mut settings = Settings::read(parts, target, losses, &conversation)?;
    let is_claude = is_anthropics(target);
    if is_claude {
        claude::end_turns(&mut conversation, parts, settings.thinks, target, losses)?;
    } else if conversation.ends_with_assistant() {
        // "A conversation must end with a user message" (Converse, of models of other makers).
        losses.drop_hint(target.mode, claude::PREFILL)?;
        conversation.end_with_user();
    }
    if !is_claude {
        conversation.separate_results();
    }
    // Other makers' models take any schema: only Claude's validator knows a part of JSON Schema.
    let subset = is_claude.then_some(Subset::Claude);
    let mut offer = UpstreamTools::gather(parts, &conversation, subset, target, losses)?;
    let choice = settings.choose_tools(parts, &mut offer, &conversation, target, losses)?;
    let marks = std::mem::take(&mut offer.marks);
    let marks = match is_claude || target.caches {
        true => CacheMarks::place(marks, &mut conversation, target, losses)?,
        // "You invoked an unsupported model or your request did not allow prompt caching."
        false => CacheMarks::remove(marks, &mut conversation, target, losses)?,
    };
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    if !offer.tools.is_empty() {
        members.key(&mut out, "toolConfig");
        tool_config(&offer, choice, &marks, &mut out);
    }
    if !conversation.system.is_empty() {
        members.key(&mut out, "system");
        let mut list = Members::array(&mut out);
        for one in &conversation.system {
            content::text(one.text, &mut list, &mut out);
            content::cache_point(one.cache, &mut list, &mut out);
        }
        list.end(&mut out);
    }
    members.key(&mut out, "messages");
    messages(&conversation, &mut out)?;
    settings.write(&mut members, &mut out)?;
    members.end(&mut out);
    Ok(out)
}

fn messages(conversation: &AlternatingTurns<'_>, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
    let mut writer = ContentWriter::default();
    let mut list = Members::array(out);
    for turn in &conversation.turns {
        list.next(out);
        let mut message = Members::object(out);
        let role = if turn.role == Speaker::User { "user" } else { "assistant" };
        message.text(out, "role", role);
        message.key(out, "content");
        writer.turn(turn, out)?;
        message.end(out);
    }
    list.end(out);
    Ok(())
}

fn tool_config(
    offer: &UpstreamTools<'_>,
    choice: Option<&ToolChoice<'_>>,
    marks: &CacheMarks,
    out: &mut Vec<u8>,
) {
    let mut config = Members::object(out);
    config.key(out, "tools");
    let mut list = Members::array(out);
    for (tool, mark) in offer.tools.iter().zip(&marks.tools) {
        list.next(out);
        let mut object = Members::object(out);
        object.key(out, "toolSpec");
        let mut spec = Members::object(out);
        spec.text(out, "name", tool.name);
        if let Some(description) = tool.description {
            spec.text(out, "description", description);
        }
        spec.key(out, "inputSchema");
        let mut schema = Members::object(out);
        schema.raw(out, "json", &tool.schema);
        schema.end(out);
        if tool.is_strict {
            spec.boolean(out, "strict", true);
        }
        spec.end(out);
        object.end(out);
        // A mark is an element of its own behind the tool, not a member of it.
        content::cache_point(*mark, &mut list, out);
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

/// Settings of a request beside tools and turns.
struct Settings<'p> {
    output_max: u64,
    thinks: Option<ThinkingSetting>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u64>,
    stops: Vec<&'p str>,
    schema: Option<&'p AnswerFormat<'p>>,
    /// Anthropic's form of a choice of tools that Converse cannot express.
    tool_choice: Option<Vec<u8>>,
}

impl<'p> Settings<'p> {
    fn read(
        parts: &'p [PromptPart<'p>],
        target: &TranslationTarget,
        losses: &mut Losses,
        conversation: &AlternatingTurns<'_>,
    ) -> Result<Self, Untranslatable> {
        let requested = parts.iter().find_map(|part| match part {
            PromptPart::OutputMax(tokens) => Some(*tokens),
            _ => None,
        });
        let output_max = requested.unwrap_or(target.output_max);
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
            claude::has_temperature(parts, settings.thinks.is_some_and(ThinkingSetting::is_on));
        for part in parts {
            match part {
                PromptPart::Stop(texts) => settings.stop(texts, target, losses)?,
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
                self.thinks.is_some_and(ThinkingSetting::is_on),
                has_temperature,
            );
        }
        match sampling {
            Sampling::Temperature(number) => number <= 1.0,
            Sampling::TopP(_) => true,
            _ => false,
        }
    }

    /// Writes stop sequences. Each must have a character, and Claude accepts no blank one (litellm 3286).
    fn stop(
        &mut self,
        texts: &'p [Cow<'p, str>],
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<(), Untranslatable> {
        let fits = |text: &&str| match is_anthropics(target) {
            true => !turns::is_blank(text),
            false => !text.is_empty(),
        };
        self.stops = texts.iter().map(|text| &**text).filter(fits).collect();
        if self.stops.len() < texts.len() {
            losses.drop_hint(target.mode, "stop")?;
        }
        Ok(())
    }

    /// The API's own choice of tools. It cannot say that none may be called, or one at a time, which
    /// Anthropic's models are told in their own words instead. Models of other makers are told of no tools
    /// that may not be called, but for those that the conversation has, and whether they call one at a time
    /// is theirs.
    fn choose_tools(
        &mut self,
        parts: &'p [PromptPart<'p>],
        offer: &mut UpstreamTools<'p>,
        conversation: &AlternatingTurns<'p>,
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<Option<&'p ToolChoice<'p>>, Untranslatable> {
        let choice = if offer.is_history {
            Some(&ToolChoice::None)
        } else {
            upstream_tools::tool_choice(parts)
        };
        let is_none = choice == Some(&ToolChoice::None);
        let is_single = upstream_tools::is_single(parts);
        if offer.tools.is_empty() || !is_none && !is_single {
            return Ok(choice);
        }
        if is_anthropics(target) {
            let mut written = Vec::new();
            claude::tool_choice(choice.unwrap_or(&ToolChoice::Auto), is_single, &mut written);
            self.tool_choice = Some(written);
            return Ok(None);
        }
        if is_none {
            offer.declare(conversation);
            if !offer.tools.is_empty() {
                losses.drop_hint(target.mode, "tool_choice")?;
            }
            return Ok(None);
        }
        losses.drop_hint(target.mode, "parallel_tool_calls")?;
        Ok(choice)
    }

    fn write(&self, members: &mut Members, out: &mut Vec<u8>) -> Result<(), Untranslatable> {
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
            let fitted = schemas::fit(schema, Subset::Claude)?;
            output_config(name.as_deref(), description.as_deref(), &fitted.text, out);
        }
        self.write_anthropics(members, out);
        Ok(())
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

/// The schema is a text there.
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
