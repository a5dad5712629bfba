//! Parts as a message for an upstream.

use std::borrow::Cow;

use crate::dialect::{Losses, ThinkingStyle, TranslationTarget, Untranslatable};
use crate::json::{self, Members};
use crate::kit;
use crate::part::{
    AnswerFormat, Cache, ContentPart, Effort, MediaPart, PromptPart, Reasoning, Sampling, Source,
    Speaker, Text, Thinking, Tool, ToolCall, ToolChoice, ToolResult,
};
use crate::seal::{self, Maker};

/// The least that a model can be told to think, in tokens.
const BUDGET_MIN: u64 = 1024;
/// The longest name of a customer's user, in bytes.
const USER_BYTES_MAX: usize = 256;
/// The least `top_p` with which a model thinks.
const THINKING_TOP_P_MIN: f64 = 0.95;

pub(super) fn request(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<Vec<u8>, Untranslatable> {
    let conversation = Conversation::gather(parts);
    let marks = Marks::new(parts, &conversation, target);
    let mut out = Vec::with_capacity(1024);
    let mut members = Members::object(&mut out);
    let asked = parts.iter().find_map(|part| match part {
        PromptPart::OutputMax(tokens) => Some(*tokens),
        _ => None,
    });
    let output_max = asked.unwrap_or(target.output_max);
    members.integer(&mut out, "max_tokens", output_max);
    let thinks = thinking(parts, output_max, target, losses, &conversation)?;
    tools(parts, &marks, &mut members, &mut out);
    if !conversation.system.is_empty() {
        members.key(&mut out, "system");
        let mut list = Members::array(&mut out);
        for (place, one) in conversation.system.iter().enumerate() {
            list.next(&mut out);
            let mark = marks.system.filter(|marked| *marked == place).map(|_| Cache::Short);
            text(&one.text, one.cache.or(mark), &mut out);
        }
        list.end(&mut out);
    }
    members.key(&mut out, "messages");
    messages(&conversation, &marks, &mut out)?;
    let mut settings = MessageSettings {
        target,
        losses,
        members: &mut members,
        out: &mut out,
        thinks: thinks.is_some(),
    };
    settings.write(parts, thinks)?;
    if target.streams {
        members.raw(&mut out, "stream", "true");
    }
    members.end(&mut out);
    Ok(out)
}

/// What is said, in turns of changing roles.
struct Conversation<'p> {
    /// The instructions before the first turn.
    system: Vec<&'p Text<'p>>,
    turns: Vec<MergedTurn<'p>>,
}

struct MergedTurn<'p> {
    role: Speaker,
    /// Its blocks, with the results of tools before all else.
    blocks: Vec<Block<'p>>,
}

enum Block<'p> {
    Part(&'p PromptPart<'p>),
    /// An instruction in the middle of a conversation: only a user can give it there.
    Instruction(&'p Text<'p>),
}

impl<'p> Conversation<'p> {
    fn gather(parts: &'p [PromptPart<'p>]) -> Self {
        let mut conversation = Self { system: Vec::new(), turns: Vec::new() };
        for part in parts {
            match part {
                PromptPart::Instruction(text) if conversation.turns.is_empty() => {
                    conversation.system.push(text);
                }
                PromptPart::Instruction(text) => {
                    conversation.turn(Speaker::User).blocks.push(Block::Instruction(text));
                }
                PromptPart::Turn(role) => drop(conversation.turn(*role)),
                PromptPart::ToolResult(_) => {
                    let blocks = &mut conversation.turn(Speaker::User).blocks;
                    let is_result =
                        |block: &Block<'_>| matches!(block, Block::Part(PromptPart::ToolResult(_)));
                    let place = blocks.iter().take_while(|block| is_result(block)).count();
                    blocks.insert(place, Block::Part(part));
                }
                // What another model thought is no part of the prompt, and an empty text is refused.
                PromptPart::Reasoning(one) if own_seal(one).is_none() => {}
                PromptPart::Content(ContentPart::Text(one)) if one.text.is_empty() => {}
                PromptPart::Content(_) | PromptPart::ToolCall(_) | PromptPart::Reasoning(_) => {
                    if let Some(turn) = conversation.turns.last_mut() {
                        turn.blocks.push(Block::Part(part));
                    }
                }
                _ => {}
            }
        }
        conversation.turns.retain(|turn| !turn.blocks.is_empty());
        conversation.merge();
        conversation
    }

    /// The open turn, if this role speaks in it, or a new one.
    fn turn(&mut self, role: Speaker) -> &mut MergedTurn<'p> {
        if self.turns.last().is_none_or(|turn| turn.role != role) {
            self.turns.push(MergedTurn { role, blocks: Vec::new() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// Turns of one role that stand together become one.
    fn merge(&mut self) {
        let mut merged: Vec<MergedTurn<'p>> = Vec::with_capacity(self.turns.len());
        for turn in self.turns.drain(..) {
            match merged.last_mut() {
                Some(last) if last.role == turn.role => last.blocks.extend(turn.blocks),
                _ => merged.push(turn),
            }
        }
        self.turns = merged;
    }

    /// Whether the last that the assistant did was to call tools without a thought of its own that this
    /// dialect has sealed.
    fn has_unsealed_calls(&self) -> bool {
        let last = self.turns.iter().rev().find(|turn| turn.role == Speaker::Assistant);
        let ends_in_result = self.turns.last().is_some_and(|turn| {
            turn.blocks.iter().any(|block| matches!(block, Block::Part(PromptPart::ToolResult(_))))
        });
        ends_in_result
            && last.is_some_and(|turn| {
                !turn.blocks.iter().any(|block| match block {
                    Block::Part(PromptPart::Reasoning(one)) => own_seal(one).is_some(),
                    _ => false,
                })
            })
    }
}

/// The token of a thought that Anthropic sealed.
fn own_seal<'s>(one: &'s Reasoning<'_>) -> Option<OwnSeal<'s>> {
    let seal = one.seal.as_deref()?;
    let signature = seal::open(Maker::Messages, seal).map(OwnSeal::Signature);
    signature.or_else(|| seal::open(Maker::MessagesRedacted, seal).map(OwnSeal::Redacted))
}

enum OwnSeal<'s> {
    Signature(&'s str),
    Redacted(&'s str),
}

/// Up to where the prompt is marked for the cache where the customer's dialect has no marks.
#[derive(Default)]
struct Marks {
    tools: bool,
    /// The place of an instruction.
    system: Option<usize>,
    /// The places of turns, whose last block is marked.
    turns: Vec<usize>,
}

impl Marks {
    fn new(
        parts: &[PromptPart<'_>],
        conversation: &Conversation<'_>,
        target: &TranslationTarget,
    ) -> Self {
        let is_marked = |part: &PromptPart<'_>| match part {
            PromptPart::Instruction(text) | PromptPart::Content(ContentPart::Text(text)) => {
                text.cache.is_some()
            }
            PromptPart::Content(ContentPart::Image(media) | ContentPart::File(media)) => {
                media.cache.is_some()
            }
            PromptPart::Tool(tool) => tool.cache.is_some(),
            PromptPart::ToolCall(call) => call.cache.is_some(),
            PromptPart::ToolResult(result) => result.cache.is_some(),
            _ => false,
        };
        if !target.caches || parts.iter().any(is_marked) {
            return Self::default();
        }
        let users = conversation.turns.iter().enumerate().rev();
        let users = users.filter(|(_, turn)| turn.role == Speaker::User).take(2);
        Self {
            tools: true,
            system: conversation.system.len().checked_sub(1),
            turns: users.map(|(place, _)| place).collect(),
        }
    }
}

fn cache_control(cache: Option<Cache>, object: &mut Members, out: &mut Vec<u8>) {
    match cache {
        None => {}
        Some(Cache::Short) => object.raw(out, "cache_control", r#"{"type":"ephemeral"}"#),
        Some(Cache::Long) => {
            object.raw(out, "cache_control", r#"{"type":"ephemeral","ttl":"1h"}"#);
        }
    }
}

fn text(text: &str, cache: Option<Cache>, out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    object.text(out, "type", "text");
    object.text(out, "text", text);
    cache_control(cache, &mut object, out);
    object.end(out);
}

fn tools(parts: &[PromptPart<'_>], marks: &Marks, members: &mut Members, out: &mut Vec<u8>) {
    let all: Vec<&Tool<'_>> = parts
        .iter()
        .filter_map(|part| match part {
            PromptPart::Tool(tool) => Some(tool),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        return;
    }
    members.key(out, "tools");
    let mut list = Members::array(out);
    for (place, tool) in all.iter().enumerate() {
        list.next(out);
        let mut object = Members::object(out);
        object.text(out, "name", &tool.name);
        if let Some(description) = &tool.description {
            object.text(out, "description", description);
        }
        let schema = if tool.is_free { Some(kit::FREE_SCHEMA) } else { tool.schema.as_deref() };
        object.raw(out, "input_schema", schema.unwrap_or(kit::EMPTY_SCHEMA));
        if tool.is_strict == Some(true) {
            object.boolean(out, "strict", true);
        }
        let mark = (marks.tools && place + 1 == all.len()).then_some(Cache::Short);
        cache_control(tool.cache.or(mark), &mut object, out);
        object.end(out);
    }
    list.end(out);
    let choice = parts.iter().find_map(|part| match part {
        PromptPart::ToolChoice(choice) => Some(choice),
        _ => None,
    });
    let is_single = parts.iter().any(|part| matches!(part, PromptPart::ParallelTools(false)));
    if choice.is_some() || is_single {
        members.key(out, "tool_choice");
        tool_choice(choice.unwrap_or(&ToolChoice::Auto), is_single, out);
    }
}

fn tool_choice(choice: &ToolChoice<'_>, is_single: bool, out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    match choice {
        ToolChoice::Auto => object.text(out, "type", "auto"),
        ToolChoice::None => object.text(out, "type", "none"),
        ToolChoice::Any => object.text(out, "type", "any"),
        ToolChoice::Named(name) => {
            object.text(out, "type", "tool");
            object.text(out, "name", name);
        }
    }
    if is_single && *choice != ToolChoice::None {
        object.boolean(out, "disable_parallel_tool_use", true);
    }
    object.end(out);
}

fn messages(
    conversation: &Conversation<'_>,
    marks: &Marks,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
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
            write_block(block, mark, &mut blocks, out)?;
        }
        blocks.end(out);
        message.end(out);
    }
    list.end(out);
    Ok(())
}

fn write_block(
    block: &Block<'_>,
    mark: Option<Cache>,
    list: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    match block {
        Block::Instruction(one) => {
            list.next(out);
            text(&one.text, one.cache.or(mark), out);
        }
        Block::Part(PromptPart::Reasoning(one)) => {
            let Some(own) = own_seal(one) else { return Ok(()) };
            list.next(out);
            let mut object = Members::object(out);
            match own {
                OwnSeal::Signature(signature) => {
                    object.text(out, "type", "thinking");
                    object.text(out, "thinking", &one.text);
                    object.text(out, "signature", signature);
                }
                OwnSeal::Redacted(data) => {
                    object.text(out, "type", "redacted_thinking");
                    object.text(out, "data", data);
                }
            }
            object.end(out);
        }
        Block::Part(PromptPart::ToolCall(call)) => {
            list.next(out);
            tool_use(call, mark, out)?;
        }
        Block::Part(PromptPart::ToolResult(result)) => {
            list.next(out);
            tool_result(result, mark, out)?;
        }
        Block::Part(PromptPart::Content(one)) => content(one, mark, list, out)?,
        Block::Part(_) => {}
    }
    Ok(())
}

/// An id as Anthropic takes it: other dialects know more letters.
fn id(id: &str) -> Cow<'_, str> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if !id.is_empty() && id.chars().all(fits) {
        return id.into();
    }
    // Each other byte is written so that no two ids become one.
    let mut written = String::from("enc_");
    for byte in id.bytes() {
        match char::from(byte) {
            letter if letter.is_ascii_alphanumeric() => written.push(letter),
            _ => written.push_str(&format!("-{byte:02x}")),
        }
    }
    written.into()
}

fn tool_use(
    call: &ToolCall<'_>,
    mark: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", "tool_use");
    object.text(out, "id", &id(&call.id));
    object.text(out, "name", &call.name);
    object.raw(out, "input", &kit::object_input(call)?);
    cache_control(call.cache.or(mark), &mut object, out);
    object.end(out);
    Ok(())
}

fn tool_result(
    result: &ToolResult<'_>,
    mark: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", "tool_result");
    object.text(out, "tool_use_id", &id(&result.id));
    if !result.content.is_empty() {
        object.key(out, "content");
        let mut list = Members::array(out);
        for one in &result.content {
            content(one, None, &mut list, out)?;
        }
        list.end(out);
    }
    if result.is_error {
        object.boolean(out, "is_error", true);
    }
    cache_control(result.cache.or(mark), &mut object, out);
    object.end(out);
    Ok(())
}

fn content(
    content: &ContentPart<'_>,
    mark: Option<Cache>,
    list: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    match content {
        // An empty text is refused there, and says nothing.
        ContentPart::Text(one) if one.text.is_empty() => {}
        ContentPart::Text(one) => {
            list.next(out);
            text(&one.text, one.cache.or(mark), out);
        }
        ContentPart::Refusal(one) => {
            list.next(out);
            text(one, mark, out);
        }
        ContentPart::Image(media) => {
            list.next(out);
            write_media("image", media, mark, out)?;
        }
        ContentPart::File(media) => {
            list.next(out);
            write_media("document", media, mark, out)?;
        }
        ContentPart::Audio(_) => return Err(Untranslatable::uncarried("messages.content: audio")),
    }
    Ok(())
}

fn write_media(
    kind: &str,
    media: &MediaPart<'_>,
    mark: Option<Cache>,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut object = Members::object(out);
    object.text(out, "type", kind);
    object.key(out, "source");
    let mut source = Members::object(out);
    match &media.source {
        Source::Url(url) => {
            source.text(out, "type", "url");
            source.text(out, "url", url);
        }
        Source::Inline { media_type, data } => {
            source.text(out, "type", "base64");
            source.text(out, "media_type", media_type);
            source.text(out, "data", data);
        }
        Source::Plain(text) => {
            source.text(out, "type", "text");
            source.text(out, "media_type", "text/plain");
            source.text(out, "data", text);
        }
    }
    source.end(out);
    if let Some(name) = media.name.as_ref().filter(|_| kind == "document") {
        object.text(out, "title", name);
    }
    cache_control(media.cache.or(mark), &mut object, out);
    object.end(out);
    Ok(())
}

/// How the model is told to think, if it is.
#[derive(Clone, Copy)]
enum Thinks {
    Adaptive(Option<Effort>),
    Budget(u64),
    Off,
}

fn thinking(
    parts: &[PromptPart<'_>],
    output_max: u64,
    target: &TranslationTarget,
    losses: &mut Losses,
    conversation: &Conversation<'_>,
) -> Result<Option<Thinks>, Untranslatable> {
    let asked = parts.iter().rev().find_map(|part| match part {
        PromptPart::Thinking(thinking) => Some(*thinking),
        _ => None,
    });
    let wanted = match (asked, target.thinking) {
        (None, _) => return Ok(None),
        (Some(Thinking::Off), _) => return Ok(Some(Thinks::Off)),
        (Some(Thinking::Adaptive), ThinkingStyle::Effort) => Thinks::Adaptive(None),
        (Some(Thinking::Effort(effort)), ThinkingStyle::Effort) => Thinks::Adaptive(Some(effort)),
        (Some(Thinking::Budget(tokens)), ThinkingStyle::Effort) => {
            Thinks::Adaptive(Some(kit::effort_of(tokens)))
        }
        (Some(Thinking::Adaptive), ThinkingStyle::Budget) => {
            Thinks::Budget(kit::budget_of(Effort::Medium))
        }
        (Some(Thinking::Effort(effort)), ThinkingStyle::Budget) => {
            Thinks::Budget(kit::budget_of(effort))
        }
        (Some(Thinking::Budget(tokens)), ThinkingStyle::Budget) => Thinks::Budget(tokens),
    };
    let is_forced = parts
        .iter()
        .any(|part| matches!(part, PromptPart::ToolChoice(ToolChoice::Any | ToolChoice::Named(_))));
    let wanted = match wanted {
        Thinks::Budget(tokens) => Thinks::Budget(tokens.min(output_max.saturating_sub(1))),
        other => other,
    };
    let is_refused = match wanted {
        Thinks::Budget(tokens) => tokens < BUDGET_MIN || conversation.has_unsealed_calls(),
        _ => false,
    };
    if is_forced || is_refused {
        losses.drop_hint(target.mode, "reasoning_effort")?;
        return Ok(None);
    }
    Ok(Some(wanted))
}

/// Top-level fields beside tools and what is said.
struct MessageSettings<'w> {
    target: &'w TranslationTarget,
    losses: &'w mut Losses,
    members: &'w mut Members,
    out: &'w mut Vec<u8>,
    thinks: bool,
}

impl MessageSettings<'_> {
    fn write(
        &mut self,
        parts: &[PromptPart<'_>],
        thinks: Option<Thinks>,
    ) -> Result<(), Untranslatable> {
        let mut effort = None;
        match thinks {
            Some(Thinks::Adaptive(word)) => {
                self.members.raw(self.out, "thinking", r#"{"type":"adaptive"}"#);
                effort = word;
            }
            Some(Thinks::Budget(tokens)) => {
                self.members.key(self.out, "thinking");
                let mut object = Members::object(self.out);
                object.text(self.out, "type", "enabled");
                object.integer(self.out, "budget_tokens", tokens);
                object.end(self.out);
            }
            Some(Thinks::Off) => {
                self.thinks = false;
                self.members.raw(self.out, "thinking", r#"{"type":"disabled"}"#);
            }
            None => {}
        }
        let has_temperature =
            parts.iter().any(|part| matches!(part, PromptPart::Sampling(Sampling::Temperature(_))));
        let mut format = None;
        for part in parts {
            match part {
                PromptPart::Stop(texts) => self.stop(texts),
                PromptPart::Format(one) => format = Some(one),
                PromptPart::Sampling(one) => self.sampling(*one, has_temperature)?,
                PromptPart::User(user) if user.len() <= USER_BYTES_MAX => {
                    self.members.key(self.out, "metadata");
                    let mut object = Members::object(self.out);
                    object.text(self.out, "user_id", user);
                    object.end(self.out);
                }
                PromptPart::User(_) => self.drop_hint("user")?,
                PromptPart::Verbosity(_) => self.drop_hint("verbosity")?,
                PromptPart::Hint(field) => self.drop_hint(field)?,
                _ => {}
            }
        }
        self.output_config(effort, format)
    }

    fn drop_hint(&mut self, field: &'static str) -> Result<(), Untranslatable> {
        self.losses.drop_hint(self.target.mode, field)
    }

    fn stop(&mut self, texts: &[Cow<'_, str>]) {
        if texts.is_empty() {
            return;
        }
        self.members.key(self.out, "stop_sequences");
        let mut list = Members::array(self.out);
        for text in texts {
            list.next(self.out);
            json::push_string(self.out, text);
        }
        list.end(self.out);
    }

    fn output_config(
        &mut self,
        effort: Option<Effort>,
        format: Option<&AnswerFormat<'_>>,
    ) -> Result<(), Untranslatable> {
        if effort.is_none() && format.is_none() {
            return Ok(());
        }
        self.members.key(self.out, "output_config");
        let mut object = Members::object(self.out);
        if let Some(effort) = effort {
            let word = match effort {
                Effort::Minimal | Effort::Low => "low",
                Effort::Medium => "medium",
                Effort::High | Effort::ExtraHigh => "high",
                Effort::Max => "max",
            };
            object.text(self.out, "effort", word);
        }
        match format {
            None => {}
            Some(AnswerFormat::Json) => return Err(Untranslatable::uncarried("response_format")),
            Some(AnswerFormat::Schema { schema, .. }) => {
                object.key(self.out, "format");
                let mut format = Members::object(self.out);
                format.text(self.out, "type", "json_schema");
                format.raw(self.out, "schema", schema);
                format.end(self.out);
            }
        }
        object.end(self.out);
        Ok(())
    }

    fn sampling(
        &mut self,
        sampling: Sampling,
        has_temperature: bool,
    ) -> Result<(), Untranslatable> {
        let field = sampling.field();
        let is_taken = self.target.takes_sampling
            && match sampling {
                Sampling::Temperature(number) => {
                    number <= 1.0 && (!self.thinks || (number - 1.0).abs() < f64::EPSILON)
                }
                // The newest models take one of the two.
                Sampling::TopP(number) => {
                    !has_temperature && (!self.thinks || number >= THINKING_TOP_P_MIN)
                }
                Sampling::TopK(_) => !self.thinks,
                _ => false,
            };
        if !is_taken {
            return self.drop_hint(field);
        }
        match sampling {
            Sampling::Temperature(number) | Sampling::TopP(number) => {
                self.members.key(self.out, field);
                json::push_number(self.out, number);
            }
            Sampling::TopK(count) => self.members.integer(self.out, field, count),
            _ => {}
        }
        Ok(())
    }
}
