//! A whole answer: from an upstream, and for a customer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call_input;
use crate::dialect::{AnswerFrame, MalformedAnswer};
use crate::failure;
use crate::gemini::signature_of_seal;
use crate::json::{self, BorrowedStr, Members};
use crate::media;
use crate::part::{AnswerPart, Counts, FailureKind, Stop, UpstreamFailure};
use crate::seal::{self, Maker};
use crate::usage;

/// An answer, or a chunk of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireContentAnswer<'a> {
    #[serde(borrow, default)]
    response_id: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    candidates: Option<Vec<WireCandidate<'a>>>,
    #[serde(borrow, default)]
    prompt_feedback: Option<WireFeedback<'a>>,
    #[serde(borrow, default)]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCandidate<'a> {
    #[serde(borrow, default)]
    content: Option<WireCandidateContent<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct WireCandidateContent<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<WirePart<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFeedback<'a> {
    #[serde(borrow, default)]
    block_reason: Option<BorrowedStr<'a>>,
}

/// The part of the usage with reasoning tokens; the meter reads the rest.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireThoughts {
    thoughts_token_count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePart<'a> {
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(default)]
    thought: Option<bool>,
    #[serde(borrow, default)]
    thought_signature: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    function_call: Option<WireFunctionCall<'a>>,
    #[serde(borrow, default)]
    inline_data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireFunctionCall<'a> {
    #[serde(borrow, default)]
    id: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    name: BorrowedStr<'a>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

/// Reading of a `finishReason`.
enum FinishOutcome {
    /// The model gave an answer, and stopped for this reason.
    Stopped(Stop<'static>),
    /// The model gave no answer; this is the `finishReason`.
    Failed(String),
}

/// Reads a `finishReason` with what came before it. Reasons without a usable answer become failures: a client
/// that took them for a regular end would give up in the middle of its work.
///
/// Source: <https://ai.google.dev/api/generate-content#FinishReason>.
fn ended(reason: &str, has_text: bool, has_calls: bool) -> FinishOutcome {
    let stopped = if has_calls { Stop::Tools } else { Stop::Done };
    match reason {
        // Google says `STOP` behind calls as well, where clients need to hear of the tools.
        "STOP" => FinishOutcome::Stopped(stopped),
        "MAX_TOKENS" => FinishOutcome::Stopped(Stop::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => FinishOutcome::Stopped(Stop::Refused),
        // Calls that came whole are run. Without one, the text announces one that is not there.
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE"
            if !has_calls =>
        {
            FinishOutcome::Failed(reason.to_owned())
        }
        // A reason that is new ends an answer that is there; only nothing at all is a failure.
        _ if has_text || has_calls => FinishOutcome::Stopped(stopped),
        _ => FinishOutcome::Failed(reason.to_owned()),
    }
}

/// Progress of an answer whose parts arrive.
#[derive(Default)]
pub(super) struct ContentState {
    has_begun: bool,
    /// Thoughts have come that no signature has ended.
    is_thinking: bool,
    has_text: bool,
    has_calls: bool,
    ended: Option<FinishOutcome>,
    /// Tokens of thoughts, as they were told last.
    reasoning: u64,
    has_ended: bool,
}

impl ContentState {
    /// Passes on the parts of an answer or chunk.
    ///
    /// # Errors
    /// It says what has no words in other dialects.
    pub(super) fn take(
        &mut self,
        wire: WireContentAnswer<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        if self.has_ended {
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            let id = wire.response_id.unwrap_or_default().0;
            out(AnswerPart::Begin { id, counts: Counts::default() });
        }
        if let Some(error) = wire.error.filter(|error| error.get() != "null") {
            self.has_ended = true;
            out(AnswerPart::Error(failure(error)));
            return Ok(());
        }
        let usage = wire.usage_metadata.filter(|usage| usage.get() != "null");
        // Who counts otherwise has what was thought counted as what was said.
        let thought = usage.and_then(|usage| json::read::<WireThoughts>(usage.get()));
        self.reasoning = thought.map_or(self.reasoning, |usage| usage.thoughts_token_count);
        let blocked = wire.prompt_feedback.and_then(|feedback| feedback.block_reason);
        if let Some(reason) = blocked.filter(|reason| !reason.0.is_empty()) {
            // A blocked prompt has no candidates, so the refusal is all that the customer would
            // read.
            out(AnswerPart::Refusal(format!("The prompt was blocked: {}.", reason.0).into()));
            self.ended = Some(FinishOutcome::Stopped(Stop::Refused));
        }
        for candidate in wire.candidates.into_iter().flatten() {
            let parts = candidate.content.and_then(|content| content.parts);
            for part in parts.into_iter().flatten() {
                self.part(part, out)?;
            }
            let reason = candidate.finish_reason.filter(|reason| !reason.0.is_empty());
            if let Some(reason) = reason {
                self.ended = Some(ended(&reason.0, self.has_text, self.has_calls));
            }
        }
        if usage.is_some() {
            // Why it stopped and what was used is all that there is to wait for.
            self.end(out);
        }
        Ok(())
    }

    fn part(
        &mut self,
        part: WirePart<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let signature = part.thought_signature.filter(|one| !one.0.is_empty());
        let seal = signature.map(|one| seal::wrap(Maker::Gemini, &one.0));
        if let Some(call) = part.function_call {
            self.end_thoughts(out);
            return self.call(&call, seal, out);
        }
        let Some(text) = part.text else {
            // A part can have nothing but a signature. Code that ran there and what it came to, and parts
            // of new kinds, have no words in other dialects; a picture is what was asked for.
            if part.inline_data.is_some() {
                return Err(media::undeliverable_picture());
            }
            if let Some(seal) = seal {
                self.seal(seal, out);
            }
            return Ok(());
        };
        if part.thought == Some(true) {
            self.is_thinking = true;
            if !text.0.is_empty() {
                out(AnswerPart::Reasoning(text.0));
            }
        } else if !text.0.is_empty() {
            self.has_text = true;
            self.end_thoughts(out);
            out(AnswerPart::Text(text.0));
        }
        if let Some(seal) = seal {
            self.seal(seal, out);
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: &WireFunctionCall<'_>,
        seal: Option<String>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        if call.name.0.is_empty() {
            return Err(MalformedAnswer("a function call without a name".to_owned()));
        }
        let id = call.id.clone().unwrap_or_default().0;
        self.has_calls = true;
        let (name, seal) = (call.name.0.clone(), seal.map(Into::into));
        out(AnswerPart::ToolCall { id, name, seal });
        let input = call.args.filter(|args| args.get() != "null").map_or("{}", RawValue::get);
        out(AnswerPart::Input(input.into()));
        Ok(())
    }

    fn seal(&mut self, seal: String, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.is_thinking = false;
        out(AnswerPart::Seal(seal.into()));
    }

    /// Ends unsigned thoughts.
    fn end_thoughts(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if std::mem::take(&mut self.is_thinking) {
            // The empty seal keeps these thoughts apart from the next ones; sent back, it is left
            // out.
            out(AnswerPart::Seal(seal::wrap(Maker::Gemini, "").into()));
        }
    }

    /// Ends the answer, and passes on the finish reason if there is one.
    pub(super) fn end(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if self.has_ended {
            return;
        }
        // Usage is reported in every chunk: without a reason to finish, more follows.
        let Some(ended) = self.ended.take() else { return };
        self.has_ended = true;
        let stop = match ended {
            FinishOutcome::Stopped(stop) => stop,
            FinishOutcome::Failed(reason) => {
                return out(AnswerPart::Error(failure::of_stop(&reason)));
            }
        };
        self.end_thoughts(out);
        out(AnswerPart::Stop(stop));
        out(AnswerPart::End(Counts { reasoning: self.reasoning, ..Counts::default() }));
    }
}

pub(super) fn read(body: &[u8]) -> Result<Vec<AnswerPart<'_>>, MalformedAnswer> {
    let wire: WireContentAnswer<'_> = serde_json::from_slice(body)
        .map_err(|error| MalformedAnswer(format!("no generated content: {error}")))?;
    let mut state = ContentState::default();
    let mut answer = Vec::new();
    state.take(wire, &mut |piece| answer.push(piece.into_owned()))?;
    state.end(&mut |piece| answer.push(piece.into_owned()));
    match answer.last() {
        Some(AnswerPart::End(_) | AnswerPart::Error(_)) => Ok(answer),
        _ => Err(MalformedAnswer("generated content without an end".to_owned())),
    }
}

/// Reads an error that comes with a successful status.
fn failure(error: &RawValue) -> UpstreamFailure {
    let value = serde_json::json!({"error": json::read::<serde_json::Value>(error.get())});
    let status = value["error"]["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    failure::of_error(status.filter(|code| *code >= 400).unwrap_or(500), &value)
}

/// Name of the reason why the model stopped.
fn finish_reason(stop: &Stop<'_>) -> &'static str {
    match stop {
        Stop::Done | Stop::Sequence(_) | Stop::Tools | Stop::Paused => "STOP",
        Stop::Length => "MAX_TOKENS",
        Stop::Refused => "SAFETY",
    }
}

/// Writes `usageMetadata`: the prompt with its cached tokens, and reasoning apart from the rest of the
/// output. Cache writes and searches have no field at Google, so they get ones of ours.
fn usage(counts: &Counts, out: &mut Vec<u8>) {
    let (input, output) = (counts.input_total(), counts.output_total());
    // What is subtracted below must not exceed what it is a part of, whatever was reported.
    let reasoning = counts.reasoning.min(counts.output);
    let mut usage = Members::object(out);
    usage.integer(out, "promptTokenCount", input);
    usage.integer(out, "candidatesTokenCount", output.saturating_sub(reasoning));
    usage.integer(out, "totalTokenCount", input.saturating_add(output));
    usage::counted(&mut usage, "cachedContentTokenCount", counts.cache_read, out);
    let written = counts.cache_write.saturating_add(counts.cache_write_1h);
    usage::counted(&mut usage, "cacheWriteTokenCount", written, out);
    usage::counted(&mut usage, "cacheWrite1hTokenCount", counts.cache_write_1h, out);
    usage::counted(&mut usage, "thoughtsTokenCount", reasoning, out);
    usage::counted(&mut usage, "webSearchCount", counts.web_searches, out);
    let media = [counts.audio_input, counts.image_input, counts.video_input];
    let text = media.into_iter().fold(input, u64::saturating_sub);
    modalities("promptTokensDetails", text, media, &mut usage, out);
    let text = output.saturating_sub(reasoning).saturating_sub(counts.audio_output);
    modalities("candidatesTokensDetails", text, [counts.audio_output, 0, 0], &mut usage, out);
    usage.end(out);
}

/// Writes the tokens per modality, where not all of them are text.
fn modalities(
    key: &str,
    text: u64,
    [sound, pictures, video]: [u64; 3],
    usage: &mut Members,
    out: &mut Vec<u8>,
) {
    if [sound, pictures, video] == [0; 3] {
        return;
    }
    usage.key(out, key);
    let mut list = Members::array(out);
    let all = [("TEXT", text), ("AUDIO", sound), ("IMAGE", pictures), ("VIDEO", video)];
    for (modality, tokens) in all {
        if tokens > 0 {
            list.next(out);
            let mut one = Members::object(out);
            one.text(out, "modality", modality);
            one.integer(out, "tokenCount", tokens);
            one.end(out);
        }
    }
    list.end(out);
}

/// A failure as Google's error document.
pub(super) fn error(failure: &UpstreamFailure) -> Vec<u8> {
    let mut out = Vec::new();
    let mut document = Members::object(&mut out);
    document.key(&mut out, "error");
    let mut error = Members::object(&mut out);
    let (code, status) = match failure.kind {
        FailureKind::Invalid | FailureKind::TooLong | FailureKind::Filtered => {
            (400, "INVALID_ARGUMENT")
        }
        FailureKind::NotFound => (404, "NOT_FOUND"),
        FailureKind::Busy => (429, "RESOURCE_EXHAUSTED"),
        FailureKind::Denied | FailureKind::Upstream => (502, "UNAVAILABLE"),
    };
    error.integer(&mut out, "code", code);
    error.text(&mut out, "message", &failure.message);
    error.text(&mut out, "status", status);
    error.end(&mut out);
    document.end(&mut out);
    out
}

/// Writes documents: whole answers, or chunks of one.
pub(super) struct ContentFrame {
    model: String,
    id: String,
}

impl ContentFrame {
    pub(super) fn new(frame: &AnswerFrame) -> Self {
        Self { model: frame.model.clone(), id: frame.id("gen-") }
    }

    /// A document with these parts, which `write` writes; with an end, the last.
    pub(super) fn write(
        &self,
        end: Option<(&Stop<'_>, &Counts)>,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        out.extend_from_slice(b"{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[");
        write(out);
        out.extend_from_slice(b"]}");
        if let Some((stop, _)) = end {
            out.extend_from_slice(b",\"finishReason\":");
            json::push_string(out, finish_reason(stop));
        }
        // One candidate is all that was requested, so its index is always this one.
        out.extend_from_slice(b",\"index\":0}]");
        if let Some((_, counts)) = end {
            out.extend_from_slice(b",\"usageMetadata\":");
            usage(counts, out);
        }
        out.extend_from_slice(b",\"modelVersion\":");
        json::push_string(out, &self.model);
        out.extend_from_slice(b",\"responseId\":");
        json::push_string(out, &self.id);
        out.push(b'}');
    }
}

/// A text, or a thought with what seals it.
pub(super) fn text(text: &str, is_thought: bool, seal: Option<&str>, out: &mut Vec<u8>) {
    let mut part = Members::object(out);
    part.text(out, "text", text);
    if is_thought {
        part.boolean(out, "thought", true);
    }
    signature(seal, &mut part, out);
    part.end(out);
}

fn signature(seal: Option<&str>, part: &mut Members, out: &mut Vec<u8>) {
    let signature = seal.map(signature_of_seal).filter(|signature| !signature.is_empty());
    if let Some(signature) = signature {
        part.text(out, "thoughtSignature", &signature);
    }
}

/// A function call under construction.
pub(super) struct FunctionCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: String,
    pub(super) seal: Option<String>,
}

impl FunctionCall {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut part = Members::object(out);
        part.key(out, "functionCall");
        let mut call = Members::object(out);
        call.text(out, "id", &self.id);
        call.text(out, "name", &self.name);
        call.key(out, "args");
        call_input::push_input(&self.input, out);
        call.end(out);
        signature(self.seal.as_deref(), &mut part, out);
        part.end(out);
    }
}

/// Parts of an answer, collected before it is written.
#[derive(Default)]
struct WrittenAnswer {
    parts: Vec<WrittenPart>,
    /// True if the next piece begins a new part.
    is_closed: bool,
}

enum WrittenPart {
    Text(String),
    Thought { text: String, seal: Option<String> },
    Call(FunctionCall),
}

impl WrittenAnswer {
    fn take(&mut self, piece: &AnswerPart<'_>) {
        let is_closed = std::mem::take(&mut self.is_closed);
        let last = self.parts.last_mut().filter(|_| !is_closed);
        match (piece, last) {
            (AnswerPart::Text(more) | AnswerPart::Refusal(more), Some(WrittenPart::Text(text))) => {
                text.push_str(more);
            }
            (AnswerPart::Text(more) | AnswerPart::Refusal(more), _) => {
                self.parts.push(WrittenPart::Text(more.clone().into_owned()));
            }
            (AnswerPart::Reasoning(more), Some(WrittenPart::Thought { text, .. })) => {
                text.push_str(more);
            }
            (AnswerPart::Reasoning(more), _) => {
                let text = more.clone().into_owned();
                self.parts.push(WrittenPart::Thought { text, seal: None });
            }
            (AnswerPart::Seal(token), Some(WrittenPart::Thought { seal, .. })) => {
                *seal = Some(token.clone().into_owned());
                self.is_closed = true;
            }
            (AnswerPart::Seal(token), _) => {
                let seal = Some(token.clone().into_owned());
                self.parts.push(WrittenPart::Thought { text: String::new(), seal });
                self.is_closed = true;
            }
            (AnswerPart::ToolCall { id, name, seal }, _) => {
                self.parts.push(WrittenPart::Call(FunctionCall {
                    id: id.clone().into_owned(),
                    name: name.clone().into_owned(),
                    input: String::new(),
                    seal: seal.as_deref().map(str::to_owned),
                }));
            }
            (AnswerPart::Input(more), Some(WrittenPart::Call(call))) => call.input.push_str(more),
            _ => self.is_closed = is_closed,
        }
    }
}

pub(super) fn write(answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8> {
    if let Some(AnswerPart::Error(failure)) = answer.last() {
        return error(failure);
    }
    let mut gathered = WrittenAnswer::default();
    let (mut stop, mut counts) = (&Stop::Done, Counts::default());
    for piece in answer {
        match piece {
            AnswerPart::Stop(reason) => stop = reason,
            AnswerPart::End(reported) => counts = *reported,
            piece => gathered.take(piece),
        }
    }
    let mut out = Vec::with_capacity(1024);
    ContentFrame::new(frame).write(Some((stop, &counts)), &mut out, |out| {
        if gathered.parts.is_empty() {
            text("", false, None, out);
        }
        for (place, part) in gathered.parts.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            match part {
                WrittenPart::Text(content) => text(content, false, None, out),
                WrittenPart::Thought { text: content, seal } => {
                    text(content, true, seal.as_deref(), out)
                }
                WrittenPart::Call(call) => call.write(out),
            }
        }
    });
    out
}
