//! The messages of a chat completion in an order that upstreams take.
//!
//! OpenAI itself takes almost any order. Those who copied its API put messages through the template of an
//! open model, and many of these take one system message, at the beginning (vllm 41114, ollama 17774),
//! roles that alternate and begin with the user (crush 279), and no message without content. Mistral
//! refuses a user's message behind a tool's ("Unexpected role 'user' after role 'tool'", litellm 17761).

use std::borrow::Cow;

use crate::chat::thoughts::TurnReasoning;
use crate::dialect::{ChatStyle, TranslationTarget, Untranslatable};
use crate::names::CallIds;
use crate::part::{
    AnswerFormat, ContentPart, PromptPart, Reasoning, Speaker, Text, ToolCall, ToolResult,
};

/// Assistant message inserted between a tool's result and a user's text for Mistral, which refuses the two in
/// a row.
const BETWEEN: &str = "Understood.";
/// User message inserted before an assistant's first message, where the conversation must begin with the
/// user.
pub(crate) const BEGIN: &str = "Begin.";
/// Instruction added where an answer in JSON is requested and no message says so: "'messages' must contain
/// the word 'json' in some form, to use 'response_format' of type 'json_object'" (jvm-openai 15).
pub(crate) const SAY_JSON: &str = "Answer with a JSON object.";

/// One message of the `messages` of a request.
pub(super) enum PromptMessage<'p> {
    /// Instructions to the model.
    Instructions(Vec<&'p str>),
    User(Vec<Cow<'p, ContentPart<'p>>>),
    Assistant(AssistantMessage<'p>),
    Result(&'p ToolResult<'p>),
}

/// A message of the assistant, with the reasoning before it.
#[derive(Default)]
pub(super) struct AssistantMessage<'p> {
    pub(super) reasoning: Vec<&'p Reasoning<'p>>,
    pub(super) text: String,
    pub(super) refusal: String,
    pub(super) calls: Vec<&'p ToolCall<'p>>,
    /// The message is the beginning of the answer, which Mistral must be told.
    pub(super) is_prefix: bool,
}

impl AssistantMessage<'_> {
    /// Providers refuse a message with neither content nor calls, such as that of a turn which was
    /// interrupted while the model thought.
    fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.refusal.is_empty()
            && self.text.is_empty()
            && !TurnReasoning::from_turn(&self.reasoning).has_content()
    }

    fn append(&mut self, more: Self) {
        for (text, more) in [(&mut self.text, &more.text), (&mut self.refusal, &more.refusal)] {
            if !text.is_empty() && !more.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(more);
        }
        self.reasoning.extend(more.reasoning);
        self.calls.extend(more.calls);
    }
}

/// The messages of a request whose calls are paired with their results.
///
/// # Errors
/// What no message of an assistant can hold.
pub(super) fn messages<'p>(
    parts: &'p [PromptPart<'p>],
    target: &TranslationTarget,
) -> Result<Vec<PromptMessage<'p>>, Untranslatable> {
    let mut conversation = MessageList { target, messages: Vec::new(), open: None };
    for part in parts {
        conversation.take(part)?;
    }
    conversation.close();
    let mut messages = conversation.messages;
    if target.chat == ChatStyle::Common {
        begin_with_the_user(&mut messages);
    } else if messages.is_empty() {
        messages.push(PromptMessage::User(vec![text_content(BEGIN)]));
    }
    if let Some(PromptMessage::Assistant(last)) = messages.last_mut() {
        last.is_prefix = target.call_ids == CallIds::Nine && last.calls.is_empty();
    }
    if parts.iter().any(|part| matches!(part, PromptPart::Format(AnswerFormat::Json)))
        && !says_json(parts)
    {
        match messages.first_mut() {
            Some(PromptMessage::Instructions(texts)) => texts.push(SAY_JSON),
            _ => messages.insert(0, PromptMessage::Instructions(vec![SAY_JSON])),
        }
    }
    Ok(messages)
}

/// True if a text of the prompt contains the word "json".
pub(crate) fn says_json(parts: &[PromptPart<'_>]) -> bool {
    let has_word =
        |text: &str| text.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"json"));
    let says = |content: &ContentPart<'_>| matches!(content, ContentPart::Text(one) if has_word(&one.text));
    parts.iter().any(|part| match part {
        PromptPart::Instruction(one) => has_word(&one.text),
        PromptPart::Content(content) => says(content),
        PromptPart::ToolResult(result) => result.content.iter().any(says),
        _ => false,
    })
}

/// Some templates refuse a prompt that a user does not begin, or has no part in.
fn begin_with_the_user(messages: &mut Vec<PromptMessage<'_>>) {
    let place =
        messages.iter().take_while(|it| matches!(it, PromptMessage::Instructions(_))).count();
    match messages.get(place) {
        Some(PromptMessage::Assistant(_)) => {
            messages.insert(place, PromptMessage::User(vec![text_content(BEGIN)]))
        }
        None => {
            let contents = match messages.pop() {
                Some(PromptMessage::Instructions(texts)) => {
                    texts.into_iter().map(text_content).collect()
                }
                // All that was said is blank.
                _ => vec![text_content(BEGIN)],
            };
            messages.push(PromptMessage::User(contents));
        }
        Some(_) => {}
    }
}

fn text_content(text: &str) -> Cow<'_, ContentPart<'_>> {
    Cow::Owned(ContentPart::Text(Text { text: Cow::Borrowed(text), cache: None }))
}

/// Messages under construction.
struct MessageList<'p, 't> {
    target: &'t TranslationTarget,
    messages: Vec<PromptMessage<'p>>,
    /// The message to which what follows belongs.
    open: Option<PromptMessage<'p>>,
}

impl<'p> MessageList<'p, '_> {
    fn take(&mut self, part: &'p PromptPart<'p>) -> Result<(), Untranslatable> {
        match part {
            PromptPart::Instruction(text) => self.instruction(&text.text),
            PromptPart::Turn(Speaker::User) => {
                // Pictures that tools have shown, and what the user says behind results, are one turn.
                let follows_results =
                    matches!(self.messages.last(), Some(PromptMessage::Result(_)));
                if !(follows_results && matches!(self.open, Some(PromptMessage::User(_)))) {
                    self.close();
                    self.open = Some(PromptMessage::User(Vec::new()));
                }
            }
            PromptPart::Turn(Speaker::Assistant) => {
                self.close();
                self.open = Some(PromptMessage::Assistant(AssistantMessage::default()));
            }
            PromptPart::Content(content) => self.content(content)?,
            PromptPart::Reasoning(one) => {
                if let Some(PromptMessage::Assistant(message)) = &mut self.open {
                    message.reasoning.push(one);
                }
            }
            PromptPart::ToolCall(call) => {
                if let Some(PromptMessage::Assistant(message)) = &mut self.open {
                    message.calls.push(call);
                }
            }
            PromptPart::ToolResult(result) => self.result(result),
            _ => {}
        }
        Ok(())
    }

    fn instruction(&mut self, text: &'p str) {
        if text.is_empty() {
            return;
        }
        if let Some(PromptMessage::Instructions(texts)) = &mut self.open {
            return texts.push(text);
        }
        let is_first = self.messages.is_empty() && !self.has_open_turn();
        if is_first || self.target.chat == ChatStyle::Openai {
            self.close();
            self.open = Some(PromptMessage::Instructions(vec![text]));
            return;
        }
        // In the middle of a conversation only a user can give one.
        if !matches!(self.open, Some(PromptMessage::User(_))) {
            self.close();
            self.open = Some(PromptMessage::User(Vec::new()));
        }
        if let Some(PromptMessage::User(contents)) = &mut self.open {
            contents.push(text_content(text));
        }
    }

    fn has_open_turn(&self) -> bool {
        match &self.open {
            None | Some(PromptMessage::Instructions(_)) => false,
            Some(PromptMessage::User(contents)) => !contents.is_empty(),
            Some(PromptMessage::Assistant(message)) => !message.is_empty(),
            Some(PromptMessage::Result(_)) => true,
        }
    }

    fn content(&mut self, content: &'p ContentPart<'p>) -> Result<(), Untranslatable> {
        match &mut self.open {
            Some(PromptMessage::Assistant(message)) => match content {
                ContentPart::Text(text) => message.text.push_str(&text.text),
                ContentPart::Refusal(text) => message.refusal.push_str(text),
                ContentPart::Image(_)
                | ContentPart::File(_)
                | ContentPart::Audio(_)
                | ContentPart::Video(_) => {
                    let field = "messages.content: media of the assistant";
                    return Err(Untranslatable::uncarried(field));
                }
            },
            Some(PromptMessage::User(contents)) => contents.push(Cow::Borrowed(content)),
            // A developer's message in the middle of a turn.
            _ => {
                self.close();
                self.open = Some(PromptMessage::User(vec![Cow::Borrowed(content)]));
            }
        }
        Ok(())
    }

    /// A message of a tool has text alone. What else came out goes into a user's message behind those of
    /// all tools of the turn.
    fn result(&mut self, result: &'p ToolResult<'p>) {
        let mut shown = match self.open.take() {
            Some(PromptMessage::User(contents)) => contents,
            other => {
                self.open = other;
                self.close();
                Vec::new()
            }
        };
        self.push(PromptMessage::Result(result));
        let is_text =
            |one: &&ContentPart<'_>| matches!(one, ContentPart::Text(_) | ContentPart::Refusal(_));
        let mut media = result.content.iter().filter(|one| !is_text(one)).peekable();
        if media.peek().is_some() {
            let text = format!("The tool call {} has shown:", result.id).into();
            shown.push(Cow::Owned(ContentPart::Text(Text { text, cache: None })));
        }
        shown.extend(media.map(Cow::Borrowed));
        self.open = Some(PromptMessage::User(shown));
    }

    /// Ends the open message.
    fn close(&mut self) {
        match self.open.take() {
            Some(PromptMessage::User(mut contents)) => {
                contents.retain(
                    |one| !matches!(one.as_ref(), ContentPart::Text(one) if one.text.is_empty()),
                );
                let is_blank = |one: &Cow<'_, ContentPart<'_>>| matches!(one.as_ref(), ContentPart::Text(one) if one.text.trim().is_empty());
                // Moonshot and others refuse a message that says nothing.
                let has_content = match self.target.chat {
                    ChatStyle::Openai => !contents.is_empty(),
                    ChatStyle::Common => !contents.iter().all(is_blank),
                };
                if has_content {
                    self.push(PromptMessage::User(contents));
                }
            }
            Some(PromptMessage::Assistant(message)) if message.is_empty() => {}
            Some(message) => self.push(message),
            None => {}
        }
    }

    fn push(&mut self, message: PromptMessage<'p>) {
        if self.target.chat == ChatStyle::Openai {
            return self.messages.push(message);
        }
        match (self.messages.last_mut(), message) {
            (Some(PromptMessage::User(contents)), PromptMessage::User(more)) => {
                contents.extend(more)
            }
            (Some(PromptMessage::Assistant(last)), PromptMessage::Assistant(more)) => {
                last.append(more)
            }
            (Some(PromptMessage::Result(_)), message @ PromptMessage::User(_))
                if self.target.call_ids == CallIds::Nine =>
            {
                let text = BETWEEN.to_owned();
                let between = AssistantMessage { text, ..AssistantMessage::default() };
                self.messages.extend([PromptMessage::Assistant(between), message]);
            }
            (_, message) => self.messages.push(message),
        }
    }
}
