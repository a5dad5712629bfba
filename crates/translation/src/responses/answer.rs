//! A whole response: from an upstream, and for a customer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call_input;
use crate::dialect::{AnswerFrame, MalformedAnswer};
use crate::failure;
use crate::json::{self, BorrowedStr, Members};
use crate::part::{AnswerPart, Citation, Counts, FailureKind, Stop, UpstreamFailure};
use crate::responses::item;
use crate::responses::open_items::{ItemName, OpenItems};
use crate::usage;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireResponse<'a> {
    #[serde(borrow)]
    pub(super) id: BorrowedStr<'a>,
    #[serde(borrow)]
    status: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    pub(super) output: Vec<&'a RawValue>,
    incomplete_details: Option<WireIncomplete>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireIncomplete {
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    output_tokens_details: Option<WireDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDetails {
    reasoning_tokens: Option<u64>,
}

impl WireResponse<'_> {
    /// Of the tokens of output, those of thoughts.
    pub(super) fn reasoning(&self) -> u64 {
        // `usage` is the meter's matter: one that does not parse here is no fault of the answer.
        let usage = self.usage.and_then(|usage| json::read::<WireUsage>(usage.get()));
        let details = usage.and_then(|usage| usage.output_tokens_details);
        details.and_then(|details| details.reasoning_tokens).unwrap_or(0)
    }

    /// The stop reason.
    pub(super) fn stop(&self, has_calls: bool) -> Stop<'static> {
        let reason = self.incomplete_details.as_ref().and_then(|it| it.reason.as_deref());
        match (self.status.as_ref().map(|word| &*word.0), reason) {
            (Some("incomplete"), Some("content_filter")) => Stop::Refused,
            // Any other reason that an answer stops early is treated as its limit, which clients
            // know to continue from.
            (Some("incomplete"), _) => Stop::Length,
            _ if has_calls => Stop::Tools,
            _ => Stop::Done,
        }
    }
}

/// Reads an error that comes with a successful status.
pub(super) fn failure(error: Option<&RawValue>) -> UpstreamFailure {
    let error = error.and_then(|error| json::read::<serde_json::Value>(error.get()));
    let value = serde_json::json!({"error": error});
    let status = match value["error"]["code"].as_str() {
        Some("rate_limit_exceeded") => 429,
        // `failed` without an error is the upstream's own fault: clients try again.
        Some("server_error") | None => 500,
        Some(_) => 400,
    };
    failure::of_error(status, &value)
}

pub(super) fn read(body: &[u8]) -> Result<Vec<AnswerPart<'_>>, MalformedAnswer> {
    let wire: WireResponse<'_> =
        json::parse(body).map_err(|error| MalformedAnswer(format!("no response: {error}")))?;
    let mut out = vec![AnswerPart::Begin { id: wire.id.0.clone(), counts: Counts::default() }];
    let has_failed = wire.status.as_ref().is_some_and(|status| status.0 == "failed");
    if has_failed || wire.error.is_some_and(|error| error.get() != "null") {
        out.push(AnswerPart::Error(failure(wire.error)));
        return Ok(out);
    }
    let mut items = OpenItems::default();
    for (raw, place) in wire.output.iter().zip(0..) {
        let item = item::read(raw)?;
        // In a whole response the place alone names an item: ids may be missing.
        let name = ItemName { index: Some(place), id: None };
        items.end(name, &item, raw, &mut |piece| out.push(piece.into_owned()))?;
    }
    out.push(AnswerPart::Stop(wire.stop(items.has_calls())));
    let reasoning = wire.reasoning();
    out.push(AnswerPart::End(Counts { reasoning, ..Counts::default() }));
    Ok(out)
}

/// Writes the `usage` object of responses.
pub(super) fn usage(counts: &Counts, out: &mut Vec<u8>) {
    let (input, output) = (counts.input_total(), counts.output_total());
    let mut usage = Members::object(out);
    usage.integer(out, "input_tokens", input);
    usage.key(out, "input_tokens_details");
    let mut details = Members::object(out);
    details.integer(out, "cached_tokens", counts.cache_read);
    usage::cache_writes(&mut details, counts, true, out);
    usage::media_input(&mut details, counts, out);
    details.end(out);
    usage.integer(out, "output_tokens", output);
    usage.key(out, "output_tokens_details");
    let mut details = Members::object(out);
    details.integer(out, "reasoning_tokens", counts.reasoning);
    usage::counted(&mut details, "audio_tokens", counts.audio_output, out);
    details.end(out);
    usage.integer(out, "total_tokens", input.saturating_add(output));
    usage::searches(&mut usage, counts, out);
    usage.end(out);
}

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete(&'static str),
    Failed,
}

impl ResponseStatus {
    /// The status in which a model stops.
    pub(super) fn after(stop: &Stop<'_>) -> Self {
        match stop {
            Stop::Length => Self::Incomplete("max_output_tokens"),
            Stop::Refused => Self::Incomplete("content_filter"),
            Stop::Done | Stop::Sequence(_) | Stop::Tools | Stop::Paused => Self::Completed,
        }
    }

    /// Name in the API.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// Members of a response object that do not repeat the request.
pub(super) struct ResponseState<'s> {
    pub(super) status: ResponseStatus,
    /// The items of its output, with commas between them.
    pub(super) output: &'s [u8],
    pub(super) counts: Option<&'s Counts>,
    pub(super) error: Option<&'s UpstreamFailure>,
}

/// Writes a response object.
pub(super) fn response(frame: &AnswerFrame, shown: &ResponseState<'_>, out: &mut Vec<u8>) {
    let mut document = Members::object(out);
    document.text(out, "id", &frame.id("resp_"));
    document.text(out, "object", "response");
    document.integer(out, "created_at", frame.created);
    document.key(out, "completed_at");
    match shown.status {
        // The clock is read once for an answer.
        ResponseStatus::Completed => out.extend_from_slice(frame.created.to_string().as_bytes()),
        _ => out.extend_from_slice(b"null"),
    }
    document.text(out, "status", shown.status.word());
    document.text(out, "model", &frame.model);
    document.key(out, "output");
    out.push(b'[');
    out.extend_from_slice(shown.output);
    out.push(b']');
    document.key(out, "error");
    match shown.error {
        None => out.extend_from_slice(b"null"),
        Some(failure) => {
            let mut error = Members::object(out);
            let code = match failure.kind {
                FailureKind::Busy => "rate_limit_exceeded",
                FailureKind::TooLong => "context_length_exceeded",
                FailureKind::Invalid | FailureKind::NotFound | FailureKind::Filtered => {
                    "invalid_prompt"
                }
                FailureKind::Denied | FailureKind::Upstream => "server_error",
            };
            error.text(out, "code", code);
            error.text(out, "message", &failure.message);
            error.end(out);
        }
    }
    document.key(out, "incomplete_details");
    match shown.status {
        ResponseStatus::Incomplete(reason) => {
            let mut details = Members::object(out);
            details.text(out, "reason", reason);
            details.end(out);
        }
        _ => out.extend_from_slice(b"null"),
    }
    document.raw(out, "previous_response_id", "null");
    // Nothing is stored, whatever was asked for: a later `previous_response_id` would find nothing.
    document.raw(out, "store", "false");
    document.raw(out, "background", "false");
    document.raw(out, "service_tier", "\"default\"");
    if let Some(repeated) = frame.repeated.strip_suffix(',') {
        out.push(b',');
        out.extend_from_slice(repeated.as_bytes());
    }
    document.key(out, "usage");
    match shown.counts {
        Some(counts) => usage(counts, out),
        None => out.extend_from_slice(b"null"),
    }
    document.end(out);
}

/// An output item under construction.
#[derive(Clone, Debug)]
pub(super) enum OutputItem {
    Message {
        text: String,
        refusal: String,
        cited: CitedPages,
    },
    Reasoning {
        text: String,
        seal: Option<String>,
    },
    Call {
        id: String,
        namespace: Option<String>,
        name: String,
        input: String,
        is_free: bool,
        /// It is the search for tools that the customer runs.
        is_search: bool,
    },
}

impl OutputItem {
    /// A message with this content.
    pub(super) fn message(text: &str, refusal: &str) -> Self {
        let (text, refusal) = (text.to_owned(), refusal.to_owned());
        Self::Message { text, refusal, cited: CitedPages::default() }
    }

    /// A call without its input, as the customer knows the tool.
    pub(super) fn call(id: &str, name: &str, frame: &AnswerFrame) -> Self {
        let is_free = frame.free_tools.iter().any(|free| free == name);
        let is_search = frame.tool_search.as_deref() == Some(name);
        let (namespace, name) = frame.apart(name);
        let (id, name) = (id.to_owned(), name.to_owned());
        let namespace = namespace.map(str::to_owned);
        Self::Call { id, namespace, name, input: String::new(), is_free, is_search }
    }

    /// Prefix of the item's id.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            Self::Message { .. } => "msg_",
            Self::Reasoning { .. } => "rs_",
            Self::Call { is_free: true, .. } => "ctc_",
            Self::Call { is_search: true, .. } => "tsc_",
            Self::Call { .. } => "fc_",
        }
    }

    /// Memory of its content so far, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Message { text, refusal, cited } => {
                text.len() + refusal.len() + cited.annotations.len()
            }
            Self::Reasoning { text, seal } => text.len() + seal.as_ref().map_or(0, String::len),
            Self::Call { input, .. } => input.len(),
        }
    }

    /// The input of a call as the customer reads it.
    pub(super) fn customers_input(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Call { input, is_free: true, .. } => call_input::unwrap_free(input),
            Self::Call { input, .. } if input.is_empty() => "{}".into(),
            Self::Call { input, .. } => input.as_str().into(),
            Self::Message { .. } | Self::Reasoning { .. } => "".into(),
        }
    }

    /// Writes the item in its current state.
    pub(super) fn write(&self, id: &str, status: &str, out: &mut Vec<u8>) {
        let mut item = Members::object(out);
        item.text(out, "id", id);
        match self {
            Self::Message { text, refusal, cited } => {
                item.text(out, "type", "message");
                item.text(out, "status", status);
                item.text(out, "role", "assistant");
                item.key(out, "content");
                let mut list = Members::array(out);
                if !text.is_empty() {
                    list.next(out);
                    text_content(text, cited, out);
                }
                if !refusal.is_empty() {
                    list.next(out);
                    refusal_content(refusal, out);
                }
                list.end(out);
            }
            Self::Reasoning { text, seal } => {
                item.text(out, "type", "reasoning");
                item.key(out, "summary");
                let mut list = Members::array(out);
                if !text.is_empty() {
                    list.next(out);
                    let mut summary = Members::object(out);
                    summary.text(out, "type", "summary_text");
                    summary.text(out, "text", text);
                    summary.end(out);
                }
                list.end(out);
                if let Some(seal) = seal {
                    item.text(out, "encrypted_content", seal);
                }
            }
            // Codex takes it with its arguments as an object.
            Self::Call { id, input, is_search: true, .. } => {
                item.text(out, "type", "tool_search_call");
                item.text(out, "status", status);
                item.text(out, "call_id", id);
                item.text(out, "execution", "client");
                item.key(out, "arguments");
                call_input::push_input(input, out);
            }
            Self::Call { id, namespace, name, is_free, .. } => {
                let (kind, field) = match is_free {
                    true => ("custom_tool_call", "input"),
                    false => ("function_call", "arguments"),
                };
                item.text(out, "type", kind);
                item.text(out, "status", status);
                item.text(out, "call_id", id);
                if let Some(namespace) = namespace {
                    item.text(out, "namespace", namespace);
                }
                item.text(out, "name", name);
                let input = self.customers_input();
                let is_begun = status == "in_progress";
                item.text(out, field, if is_begun { "" } else { &input });
            }
        }
        item.end(out);
    }
}

/// The pages to which a text refers.
#[derive(Clone, Debug, Default)]
pub(super) struct CitedPages {
    /// Annotations as JSON, with commas between them.
    annotations: Vec<u8>,
    count: u64,
}

impl CitedPages {
    /// Adds a page that this text refers to. Gives the annotation as JSON, and its place among all.
    pub(super) fn add(&mut self, text: &str, cited: &Citation<'_>) -> Option<(Vec<u8>, u64)> {
        let length = text.chars().count() as u64;
        let (start, end) = cited.back;
        let (start, end) = (length.checked_sub(start)?, length.checked_sub(end)?);
        let mut annotation = Vec::new();
        let mut object = Members::object(&mut annotation);
        object.text(&mut annotation, "type", "url_citation");
        object.integer(&mut annotation, "start_index", start);
        object.integer(&mut annotation, "end_index", end);
        object.text(&mut annotation, "url", &cited.url);
        object.text(&mut annotation, "title", &cited.title);
        object.end(&mut annotation);
        if self.count > 0 {
            self.annotations.push(b',');
        }
        self.annotations.extend_from_slice(&annotation);
        self.count += 1;
        Some((annotation, self.count - 1))
    }
}

/// A text in a message.
pub(super) fn text_content(text: &str, cited: &CitedPages, out: &mut Vec<u8>) {
    let mut content = Members::object(out);
    content.text(out, "type", "output_text");
    content.text(out, "text", text);
    content.key(out, "annotations");
    out.push(b'[');
    out.extend_from_slice(&cited.annotations);
    out.push(b']');
    content.raw(out, "logprobs", "[]");
    content.end(out);
}

/// The words of a refusal in a message.
pub(super) fn refusal_content(text: &str, out: &mut Vec<u8>) {
    let mut content = Members::object(out);
    content.text(out, "type", "refusal");
    content.text(out, "refusal", text);
    content.end(out);
}

pub(super) fn write(answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8> {
    let (mut items, mut status, mut counts) =
        (Vec::new(), ResponseStatus::Completed, Counts::default());
    for piece in answer {
        match piece {
            AnswerPart::Begin { .. } | AnswerPart::Alive => {}
            AnswerPart::Text(more) => match items.last_mut() {
                Some(OutputItem::Message { text, refusal, .. }) if refusal.is_empty() => {
                    text.push_str(more);
                }
                _ => items.push(OutputItem::message(more, "")),
            },
            AnswerPart::Citation(citation) => {
                if let Some(OutputItem::Message { text, cited, .. }) = items.last_mut() {
                    cited.add(text, citation);
                }
            }
            AnswerPart::Refusal(more) => match items.last_mut() {
                Some(OutputItem::Message { refusal, .. }) => refusal.push_str(more),
                _ => items.push(OutputItem::message("", more)),
            },
            AnswerPart::Reasoning(more) => match items.last_mut() {
                Some(OutputItem::Reasoning { text, seal: None }) => text.push_str(more),
                _ => items
                    .push(OutputItem::Reasoning { text: more.clone().into_owned(), seal: None }),
            },
            AnswerPart::Seal(own) => match items.last_mut() {
                Some(OutputItem::Reasoning { seal: seal @ None, .. }) => {
                    *seal = Some(own.clone().into_owned());
                }
                _ => items.push(sealed(own)),
            },
            AnswerPart::ToolCall { id, name, seal } => {
                items.extend(seal.as_deref().map(sealed));
                items.push(OutputItem::call(id, name, frame));
            }
            AnswerPart::Input(more) => {
                if let Some(OutputItem::Call { input, .. }) = items.last_mut() {
                    input.push_str(more);
                }
            }
            AnswerPart::Stop(stop) => status = ResponseStatus::after(stop),
            AnswerPart::End(reported) => counts = *reported,
            AnswerPart::Error(failure) => return failure::openai_document(failure),
        }
    }
    let mut output = Vec::new();
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            output.push(b',');
        }
        item.write(&item_id(item, frame, place), "completed", &mut output);
    }
    let mut out = Vec::with_capacity(output.len() + 1024);
    let shown = ResponseState { status, output: &output, counts: Some(&counts), error: None };
    response(frame, &shown, &mut out);
    out
}

/// Thoughts that only their maker can read.
pub(super) fn sealed(seal: &str) -> OutputItem {
    OutputItem::Reasoning { text: String::new(), seal: Some(seal.to_owned()) }
}

/// The id of an item.
pub(super) fn item_id(item: &OutputItem, frame: &AnswerFrame, place: usize) -> String {
    format!("{}{}{place}", item.prefix(), frame.nonce)
}
