//! A chunk of a stream, as OpenAI and its imitators write it.

use super::super::base_resp;
use super::super::estimate::TextSize;
use super::super::json_cursor::Cursor;
use super::super::metering::{VisibleOutput, service_tier};
use tollgate_money::price::ServiceTier;

/// The members of a chunk that count.
#[derive(Default)]
pub(super) struct ChatChunk<'a> {
    /// Text in it, of all kinds that are output: content, refusal, reasoning, tool calls.
    pub(super) shown: VisibleOutput,
    /// The chunk contains thoughts of the model.
    pub(super) has_thoughts: bool,
    pub(super) has_choices: bool,
    /// A choice has a reason to finish.
    pub(super) finishes: bool,
    /// True if the reason why a choice finished is that the output limit was reached.
    pub(super) ends_at_limit: bool,
    pub(super) has_error: bool,
    pub(super) service_tier: Option<ServiceTier>,
    /// The usage objects; more than one only if the key is repeated.
    pub(super) usages: Vec<&'a [u8]>,
}

impl<'a> ChatChunk<'a> {
    /// Reads the data of an event; `None` for what no chunk looks like.
    pub(super) fn read(data: &'a [u8]) -> Option<Self> {
        let mut chunk = Self::default();
        Cursor::new(data).object(|key, value| {
            match key {
                b"choices" => value.array(|choice| chunk.read_choice(choice))?,
                b"usage" => chunk.usages.extend(value.non_null()?),
                b"error" => chunk.has_error |= value.non_null()?.is_some(),
                b"x_groq" => chunk.read_groq(value)?,
                b"base_resp" => chunk.has_error |= base_resp::has_failed(value.raw()?),
                b"service_tier" => chunk.service_tier = value.non_null()?.and_then(service_tier),
                _ => value.skip()?,
            }
            Some(())
        })?;
        Some(chunk)
    }

    fn read_choice(&mut self, choice: &mut Cursor<'a>) -> Option<()> {
        self.has_choices = true;
        let mut text = TextSize::default();
        choice.object(|key, value| {
            match key {
                b"delta" => read_delta(value, &mut text, &mut self.has_thoughts)?,
                b"finish_reason" => {
                    let reason = value.non_null()?;
                    self.finishes |= reason.is_some();
                    self.ends_at_limit |= reason.is_some_and(is_limit);
                    self.has_error |= reason.is_some_and(is_failure);
                }
                // Where Moonshot reports it, in the last chunk.
                b"usage" => self.usages.extend(value.non_null()?),
                // Where OpenRouter says why a provider of its has failed.
                b"error" => self.has_error |= value.non_null()?.is_some(),
                _ => value.skip()?,
            }
            Some(())
        })?;
        self.shown.add(text);
        Some(())
    }

    /// Reads Groq's object beside the answer: the usage, requested or not, and the error that stopped a
    /// stream early.
    fn read_groq(&mut self, groq: &mut Cursor<'a>) -> Option<()> {
        groq.object(|key, value| {
            match key {
                b"usage" => self.usages.extend(value.non_null()?),
                b"error" => self.has_error |= value.non_null()?.is_some(),
                _ => value.skip()?,
            }
            Some(())
        })
    }
}

/// True if a model has stopped at the requested maximum, or at the end of its context.
fn is_limit(finish_reason: &[u8]) -> bool {
    matches!(finish_reason, b"\"length\"" | b"\"max_tokens\"" | b"\"model_length\"")
}

/// True if a model has stopped because its provider failed: OpenRouter's and Zhipu's words, with their
/// quotes.
fn is_failure(finish_reason: &[u8]) -> bool {
    matches!(finish_reason, b"\"error\"" | b"\"network_error\"")
}

fn read_delta(delta: &mut Cursor<'_>, text: &mut TextSize, has_thoughts: &mut bool) -> Option<()> {
    let (mut thoughts, mut details) = (TextSize::default(), TextSize::default());
    let mut thought_in_content = TextSize::default();
    delta.object(|key, value| match key {
        b"content" => read_content(value, text, &mut thought_in_content),
        b"refusal" => {
            text.add(value.text_size()?);
            Some(())
        }
        // Providers have two names for reasoning text.
        b"reasoning_content" | b"reasoning" => {
            thoughts.add(value.text_size()?);
            Some(())
        }
        b"reasoning_details" => {
            let mut inner = TextSize::default();
            value.array(|detail| read_block(detail, &mut details, &mut inner))?;
            details.add(inner);
            Some(())
        }
        b"tool_calls" => value.array(|call| read_tool_call(call, text)),
        _ => value.skip(),
    })?;
    // Who has both says the same in them.
    let mut thought = if thoughts.is_empty() { details } else { thoughts };
    thought.add(thought_in_content);
    *has_thoughts |= !thought.is_empty();
    text.add(thought);
    Some(())
}

/// A text, or a list of texts and thoughts, as Mistral writes it.
fn read_content(
    content: &mut Cursor<'_>,
    text: &mut TextSize,
    thoughts: &mut TextSize,
) -> Option<()> {
    if content.next_byte() == Some(b'[') {
        return content.array(|block| read_block(block, text, thoughts));
    }
    text.add(content.text_size()?);
    Some(())
}

/// The text of a block, and the thoughts of those that it thinks in.
fn read_block(block: &mut Cursor<'_>, text: &mut TextSize, thoughts: &mut TextSize) -> Option<()> {
    block.object(|key, value| match key {
        b"text" | b"summary" | b"data" => {
            text.add(value.text_size()?);
            Some(())
        }
        b"thinking" => value.array(|inner| {
            inner.object(|key, value| {
                match key {
                    b"text" => thoughts.add(value.text_size()?),
                    _ => value.skip()?,
                }
                Some(())
            })
        }),
        _ => value.skip(),
    })
}

fn read_tool_call(call: &mut Cursor<'_>, text: &mut TextSize) -> Option<()> {
    call.object(|key, value| match key {
        b"function" => value.object(|key, value| {
            match key {
                b"name" | b"arguments" => text.add(value.text_size()?),
                _ => value.skip()?,
            }
            Some(())
        }),
        _ => value.skip(),
    })
}
