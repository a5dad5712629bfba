//! A whole chat completion: from an upstream, and for a customer.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call_input;
use crate::chat::DETAIL_FORMAT;
use crate::chat::thoughts::ThoughtReader;
use crate::chat::wire::{WireMessage, citations};
use crate::dialect::{AnswerFrame, MalformedAnswer};
use crate::failure;
use crate::json::{self, BorrowedStr, Members};
use crate::part::{AnswerPart, Citation, Counts, FailureKind, Stop, UpstreamFailure};
use crate::seal::{self, Maker};
use crate::usage;

#[derive(Deserialize)]
pub(super) struct WireCompletion<'a> {
    #[serde(borrow, default)]
    id: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    choices: Option<Vec<WholeChoice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    base_resp: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WholeChoice<'a> {
    #[serde(borrow, default)]
    message: Option<WireMessage<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Writes an entry of `annotations` for a text of `length` characters so far.
pub(super) fn annotation(citation: &Citation<'_>, length: u64, out: &mut Vec<u8>) {
    let (start, end) = citation.back;
    let mut entry = Members::object(out);
    entry.text(out, "type", "url_citation");
    entry.key(out, "url_citation");
    let mut cited = Members::object(out);
    cited.integer(out, "start_index", length.saturating_sub(start));
    cited.integer(out, "end_index", length.saturating_sub(end));
    cited.text(out, "url", &citation.url);
    cited.text(out, "title", &citation.title);
    cited.end(out);
    entry.end(out);
}

/// Reasoning tokens within the output. The meter reads `usage` in more forms; one that does not parse here
/// has no reasoning tokens, and is no error.
pub(super) fn reasoning(usage: &RawValue) -> Option<u64> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ThoughtUsage {
        completion_tokens_details: Option<ThoughtDetails>,
        /// Reasoning tokens at the place where SGLang counts them.
        reasoning_tokens: Option<u64>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ThoughtDetails {
        reasoning_tokens: Option<u64>,
    }
    let usage = json::read::<ThoughtUsage>(usage.get())?;
    let details = usage.completion_tokens_details.and_then(|details| details.reasoning_tokens);
    details.or(usage.reasoning_tokens)
}

/// The failure that an upstream sends instead of an answer: in `error`, or in MiniMax's `base_resp`.
pub(super) fn failure(
    error: Option<&RawValue>,
    base_resp: Option<&RawValue>,
) -> Option<UpstreamFailure> {
    let value = |raw: Option<&RawValue>| json::read::<Value>(raw?.get());
    if let Some(error) = value(error).filter(|error| !error.is_null()) {
        return Some(failure::in_answer(&serde_json::json!({"error": error})));
    }
    value(base_resp).and_then(|base_resp| failure::of_base_resp(&base_resp))
}

/// The failure that an upstream sends instead of a choice: OpenRouter in the choice's `error`, Zhipu in its
/// `finish_reason`.
pub(super) fn failure_of_choice(
    error: Option<&RawValue>,
    finish_reason: Option<&str>,
) -> Option<UpstreamFailure> {
    let word = finish_reason.unwrap_or_default().to_ascii_lowercase();
    // DeepSeek's and Zhipu's words for an answer that was given up, and those of Gemini's compatible API
    // for calls that are none.
    let has_failed = matches!(&*word, "error" | "network_error" | "insufficient_system_resource")
        || ["malformed_function_call", "malformed_response", "unexpected_tool_call"]
            .iter()
            .any(|failed| word.contains(failed));
    failure(error, None).or_else(|| {
        let message = match &*word {
            "error" | "network_error" => "The provider failed while it answered.".to_owned(),
            word => return has_failed.then(|| failure::of_stop(word)),
        };
        Some(UpstreamFailure { kind: FailureKind::Upstream, message, param: None })
    })
}

/// Reads the `finish_reason` of a choice.
pub(super) fn stop(word: &str) -> Stop<'static> {
    match word {
        // Mistral and Zhipu have words of their own for a context that is full.
        "length" | "model_length" | "model_context_window_exceeded" => Stop::Length,
        "content_filter" | "sensitive" => Stop::Refused,
        _ => Stop::Done,
    }
}

/// Joins the stop reasons of two choices.
pub(super) fn last_stop(first: Option<Stop<'static>>, second: Stop<'static>) -> Stop<'static> {
    match first {
        Some(stop @ (Stop::Length | Stop::Refused)) => stop,
        _ => second,
    }
}

/// Turns a regular end into a stop for tools if the model made calls: some upstreams end such answers with
/// `stop`.
pub(super) fn stop_with(stop: Stop<'static>, has_calls: bool) -> Stop<'static> {
    match stop {
        Stop::Done if has_calls => Stop::Tools,
        stop => stop,
    }
}

/// Reads the text, reasoning and refusal of a choice.
fn read_message(
    message: &mut WireMessage<'_>,
    out: &mut Vec<AnswerPart<'_>>,
) -> Result<(), MalformedAnswer> {
    let mut thoughts = ThoughtReader::default();
    let mut push = |piece: AnswerPart<'_>| out.push(piece.into_owned());
    thoughts.fields(message, &mut push);
    if let Some(value) = message.content {
        thoughts.content(value, &mut push)?;
    }
    thoughts.finish(&mut push);
    let cited = message.annotations.map(citations).unwrap_or_default();
    if !cited.is_empty() {
        let of_piece = |piece: &AnswerPart<'_>| match piece {
            AnswerPart::Text(text) => text.chars().count() as u64,
            _ => 0,
        };
        let length = out.iter().map(of_piece).sum();
        for citation in cited.iter().filter_map(|cited| cited.at_end_of(length)) {
            out.push(citation.into_owned());
        }
    }
    if let Some(refusal) = message.refusal.take().filter(|text| !text.0.is_empty()) {
        out.push(AnswerPart::Refusal(refusal.0).into_owned());
    }
    Ok(())
}

pub(super) fn read(body: &[u8]) -> Result<Vec<AnswerPart<'_>>, MalformedAnswer> {
    let wire: WireCompletion<'_> = json::parse(body)
        .map_err(|error| MalformedAnswer(format!("no chat completion: {error}")))?;
    let id = wire.id.unwrap_or_default().0;
    let mut out = vec![AnswerPart::Begin { id, counts: Counts::default() }];
    if let Some(failure) = failure(wire.error, wire.base_resp) {
        out.push(AnswerPart::Error(failure));
        return Ok(out);
    }
    let choices = wire.choices.unwrap_or_default();
    if choices.is_empty() {
        return Err(MalformedAnswer("a chat completion without choices".to_owned()));
    }
    let (mut calls, mut stopped) = (Vec::new(), None);
    for choice in choices {
        let word = choice.finish_reason.unwrap_or_default();
        if let Some(failure) = failure_of_choice(choice.error, Some(&word.0)) {
            out.push(AnswerPart::Error(failure));
            return Ok(out);
        }
        let mut message = choice.message.unwrap_or_default();
        read_message(&mut message, &mut out)?;
        calls.extend(message.tool_calls.into_iter().flatten());
        stopped = Some(last_stop(stopped, stop(&word.0)));
    }
    let has_calls = !calls.is_empty();
    let mut ids = HashSet::new();
    for call in calls {
        let name = call.function.name.clone().unwrap_or_default().0;
        if name.is_empty() {
            return Err(MalformedAnswer("a tool call without a name".to_owned()));
        }
        let (seal, input) = (call.seal(), call.function.input());
        // One id for two calls would give both the same result: the second gets one of the gateway's.
        let id = call.id.map(|id| id.0).filter(|id| ids.insert(id.clone())).unwrap_or_default();
        out.push(AnswerPart::ToolCall { id, name, seal });
        out.extend(input.filter(|input| !input.is_empty()).map(AnswerPart::Input));
    }
    out.push(AnswerPart::Stop(stop_with(stopped.unwrap_or(Stop::Done), has_calls)));
    let reasoning = wire.usage.and_then(reasoning).unwrap_or(0);
    out.push(AnswerPart::End(Counts { reasoning, ..Counts::default() }));
    Ok(out)
}

/// Writes the `usage` object of chat completions.
pub(super) fn usage(counts: &Counts, out: &mut Vec<u8>) {
    let (input, output) = (counts.input_total(), counts.output_total());
    let mut usage = Members::object(out);
    usage.integer(out, "prompt_tokens", input);
    usage.integer(out, "completion_tokens", output);
    usage.integer(out, "total_tokens", input.saturating_add(output));
    usage.key(out, "prompt_tokens_details");
    let mut details = Members::object(out);
    details.integer(out, "cached_tokens", counts.cache_read);
    usage::cache_writes(&mut details, counts, false, out);
    usage::media_input(&mut details, counts, out);
    details.end(out);
    usage.key(out, "completion_tokens_details");
    let mut details = Members::object(out);
    details.integer(out, "reasoning_tokens", counts.reasoning);
    usage::counted(&mut details, "audio_tokens", counts.audio_output, out);
    details.end(out);
    usage::searches(&mut usage, counts, out);
    usage.end(out);
}

/// Name of the reason why the model stopped.
pub(super) fn finish_reason(stop: &Stop<'_>) -> &'static str {
    match stop {
        Stop::Done | Stop::Sequence(_) | Stop::Paused => "stop",
        Stop::Tools => "tool_calls",
        Stop::Length => "length",
        Stop::Refused => "content_filter",
    }
}

/// An entry of `reasoning_details` with a seal for the thoughts before it.
pub(super) fn detail(seal: &str, text_bytes: usize, index: usize, out: &mut Vec<u8>) {
    let mut entry = Members::object(out);
    entry.text(out, "type", "reasoning.encrypted");
    entry.text(out, "data", seal);
    entry.text(out, "format", DETAIL_FORMAT);
    entry.integer(out, "text_bytes", text_bytes as u64);
    entry.integer(out, "index", index as u64);
    entry.end(out);
}

/// A call of a tool that is being written.
#[derive(Default)]
struct WrittenCall {
    id: String,
    name: String,
    input: String,
    seal: Option<String>,
}

/// The members of a message, collected before it is written.
#[derive(Default)]
struct WrittenMessage<'a> {
    text: String,
    refusal: String,
    thoughts: String,
    /// Seals, each with how many bytes of the thoughts it belongs to.
    seals: Vec<(String, usize)>,
    /// Entries of `annotations`, with commas between them.
    annotations: Vec<u8>,
    sealed_bytes: usize,
    calls: Vec<WrittenCall>,
    reason: &'static str,
    counts: Counts,
    failure: Option<&'a UpstreamFailure>,
}

impl<'a> WrittenMessage<'a> {
    fn take(&mut self, piece: &'a AnswerPart<'_>) {
        match piece {
            AnswerPart::Begin { .. } | AnswerPart::Alive => {}
            AnswerPart::Text(more) => self.text.push_str(more),
            AnswerPart::Citation(citation) => {
                if !self.annotations.is_empty() {
                    self.annotations.push(b',');
                }
                let length = self.text.chars().count() as u64;
                annotation(citation, length, &mut self.annotations);
            }
            AnswerPart::Refusal(more) => self.refusal.push_str(more),
            AnswerPart::Reasoning(more) => self.thoughts.push_str(more),
            AnswerPart::Seal(seal) => {
                let bytes = self.thoughts.len() - self.sealed_bytes;
                self.seals.push((seal.clone().into_owned(), bytes));
                self.sealed_bytes = self.thoughts.len();
            }
            AnswerPart::ToolCall { id, name, seal } => self.calls.push(WrittenCall {
                id: id.clone().into_owned(),
                name: name.clone().into_owned(),
                input: String::new(),
                seal: seal.as_deref().map(str::to_owned),
            }),
            AnswerPart::Input(more) => {
                if let Some(call) = self.calls.last_mut() {
                    call.input.push_str(more);
                }
            }
            AnswerPart::Stop(stop) => self.reason = finish_reason(stop),
            AnswerPart::End(reported) => self.counts = *reported,
            AnswerPart::Error(failure) => self.failure = Some(failure),
        }
    }

    fn write(&self, frame: &AnswerFrame, out: &mut Vec<u8>) {
        let mut message = Members::object(out);
        message.text(out, "role", "assistant");
        match self.text.is_empty() {
            true => message.raw(out, "content", "null"),
            false => message.text(out, "content", &self.text),
        }
        match self.refusal.is_empty() {
            true => message.raw(out, "refusal", "null"),
            false => message.text(out, "refusal", &self.refusal),
        }
        message.key(out, "annotations");
        out.push(b'[');
        out.extend_from_slice(&self.annotations);
        out.push(b']');
        if !self.thoughts.is_empty() {
            message.text(out, "reasoning_content", &self.thoughts);
        }
        if !self.seals.is_empty() {
            message.key(out, "reasoning_details");
            let mut details = Members::array(out);
            for (index, (seal, text_bytes)) in self.seals.iter().enumerate() {
                details.next(out);
                detail(seal, *text_bytes, index, out);
            }
            details.end(out);
        }
        if !self.calls.is_empty() {
            message.key(out, "tool_calls");
            let mut list = Members::array(out);
            for call in &self.calls {
                list.next(out);
                call.write(frame, out);
            }
            list.end(out);
        }
        message.end(out);
    }
}

pub(super) fn write(answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8> {
    let mut gathered = WrittenMessage { reason: "stop", ..WrittenMessage::default() };
    answer.iter().for_each(|piece| gathered.take(piece));
    if let Some(failure) = gathered.failure {
        return failure::openai_document(failure);
    }
    let mut out = Vec::with_capacity(512 + gathered.text.len() + gathered.thoughts.len());
    let mut document = Members::object(&mut out);
    document.text(&mut out, "id", &frame.id("chatcmpl-"));
    document.text(&mut out, "object", "chat.completion");
    document.integer(&mut out, "created", frame.created);
    document.text(&mut out, "model", &frame.model);
    document.key(&mut out, "choices");
    let mut choices = Members::array(&mut out);
    choices.next(&mut out);
    let mut choice = Members::object(&mut out);
    choice.integer(&mut out, "index", 0);
    choice.key(&mut out, "message");
    gathered.write(frame, &mut out);
    choice.text(&mut out, "finish_reason", gathered.reason);
    choice.raw(&mut out, "logprobs", "null");
    choice.end(&mut out);
    choices.end(&mut out);
    document.key(&mut out, "usage");
    usage(&gathered.counts, &mut out);
    document.end(&mut out);
    out
}

impl WrittenCall {
    fn write(&self, frame: &AnswerFrame, out: &mut Vec<u8>) {
        let is_free = frame.free_tools.contains(&self.name);
        let kind = if is_free { "custom" } else { "function" };
        let mut object = Members::object(out);
        object.text(out, "id", &self.id);
        object.text(out, "type", kind);
        object.key(out, kind);
        let mut inner = Members::object(out);
        inner.text(out, "name", &self.name);
        match is_free {
            true => inner.text(out, "input", &call_input::unwrap_free(&self.input)),
            false if self.input.is_empty() => inner.text(out, "arguments", "{}"),
            false => inner.text(out, "arguments", &self.input),
        }
        inner.end(out);
        if let Some(seal) = &self.seal {
            extra_content(seal, &mut object, out);
        }
        object.end(out);
    }
}

/// The seal of a call, where Gemini's compatible API has its signature.
pub(super) fn extra_content(seal: &str, object: &mut Members, out: &mut Vec<u8>) {
    let signature = seal::open(Maker::Gemini, seal).unwrap_or(seal);
    object.key(out, "extra_content");
    let mut extra = Members::object(out);
    extra.key(out, "google");
    let mut google = Members::object(out);
    google.text(out, "thought_signature", signature);
    google.end(out);
    extra.end(out);
}
