//! A whole answer of the Converse API, and its failures.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::dialect::MalformedAnswer;
use crate::failure;
use crate::json::BorrowedStr;
use crate::media;
use crate::part::{AnswerPart, Counts, FailureKind, Stop, UpstreamFailure};
use crate::seal::{self, Maker};

#[derive(Deserialize)]
struct WireConverseAnswer<'a> {
    #[serde(borrow)]
    output: WireConverseOutput<'a>,
    #[serde(borrow, default, rename = "stopReason")]
    stop_reason: BorrowedStr<'a>,
}

#[derive(Deserialize)]
struct WireConverseOutput<'a> {
    #[serde(borrow)]
    message: WireConverseMessage<'a>,
}

#[derive(Deserialize)]
struct WireConverseMessage<'a> {
    #[serde(borrow)]
    content: Vec<WireConverseContent<'a>>,
}

/// One content block, which has one of these members.
#[derive(Deserialize)]
struct WireConverseContent<'a> {
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, default, rename = "toolUse")]
    tool_use: Option<WireToolUse<'a>>,
    #[serde(borrow, default, rename = "reasoningContent")]
    reasoning: Option<WireReasoning<'a>>,
    #[serde(borrow, default)]
    image: Option<&'a RawValue>,
}

/// A call of a tool. In a stream its input follows.
#[derive(Deserialize)]
pub(super) struct WireToolUse<'a> {
    #[serde(borrow, rename = "toolUseId")]
    pub(super) id: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) name: BorrowedStr<'a>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireReasoning<'a> {
    #[serde(borrow, default, rename = "reasoningText")]
    text: Option<WireReasoningText<'a>>,
    #[serde(borrow, default, rename = "redactedContent")]
    redacted: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct WireReasoningText<'a> {
    #[serde(borrow, default)]
    text: BorrowedStr<'a>,
    #[serde(borrow, default)]
    signature: Option<BorrowedStr<'a>>,
}

pub(super) fn read(body: &[u8]) -> Result<Vec<AnswerPart<'_>>, MalformedAnswer> {
    let wire: WireConverseAnswer<'_> = serde_json::from_slice(body)
        .map_err(|error| MalformedAnswer(format!("no answer: {error}")))?;
    let mut out = vec![AnswerPart::Begin { id: "".into(), counts: Counts::default() }];
    for content in wire.output.message.content {
        match content {
            WireConverseContent { text: Some(text), .. } => out.push(AnswerPart::Text(text.0)),
            WireConverseContent { tool_use: Some(call), .. } => {
                let (id, name) = (call.id.0, call.name.0);
                out.push(AnswerPart::ToolCall { id, name, seal: None });
                out.extend(call.input.map(|input| AnswerPart::Input(input.get().into())));
            }
            WireConverseContent { reasoning: Some(reasoning), .. } => {
                read_reasoning(reasoning, &mut out);
            }
            WireConverseContent { image: Some(_), .. } => {
                return Err(media::undeliverable_picture());
            }
            // Citations, results of tools that ran there, and what is new.
            _ => {}
        }
    }
    let has_calls = out.iter().any(|piece| matches!(piece, AnswerPart::ToolCall { .. }));
    if let Some(failure) = failure_of_stop(&wire.stop_reason.0, has_calls) {
        out.push(AnswerPart::Error(failure));
        return Ok(out);
    }
    out.push(AnswerPart::Stop(stop(&wire.stop_reason.0, has_calls)));
    out.push(AnswerPart::End(Counts::default()));
    Ok(out)
}

fn read_reasoning<'a>(reasoning: WireReasoning<'a>, out: &mut Vec<AnswerPart<'a>>) {
    match reasoning {
        WireReasoning { text: Some(thought), .. } => {
            if !thought.text.0.is_empty() {
                out.push(AnswerPart::Reasoning(thought.text.0));
            }
            // Models that do not sign their thoughts do not read them again.
            let sealed = thought.signature.map(|token| seal::wrap(Maker::Converse, &token.0));
            out.extend(sealed.map(|sealed| AnswerPart::Seal(sealed.into())));
        }
        WireReasoning { redacted: Some(data), .. } => {
            out.push(AnswerPart::Seal(seal::wrap(Maker::ConverseRedacted, &data.0).into()));
        }
        _ => {}
    }
}

/// Reads a `stopReason`. A model that made calls stops for their results unless the reason says otherwise.
pub(super) fn stop(reason: &str, has_calls: bool) -> Stop<'static> {
    match reason {
        "stop_sequence" => Stop::Sequence(None),
        "tool_use" => Stop::Tools,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "guardrail_intervened" | "content_filtered" => Stop::Refused,
        _ if has_calls => Stop::Tools,
        _ => Stop::Done,
    }
}

/// The failure that a `stopReason` stands for: what the model wrote was no answer, or no call. Calls
/// that came before it are whole.
pub(super) fn failure_of_stop(reason: &str, has_calls: bool) -> Option<UpstreamFailure> {
    let is_malformed = matches!(reason, "malformed_model_output" | "malformed_tool_use");
    (is_malformed && !has_calls).then(|| failure::of_stop(reason))
}

/// Reads a failure whose name stands in a header, in the body, or nowhere.
pub(super) fn failure(status: u16, name: Option<&str>, body: &[u8]) -> UpstreamFailure {
    let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let name = name.or_else(|| value["__type"].as_str()).unwrap_or_default();
    failure_of(status, bare_name(name), &value)
}

/// The name of a failure without the namespace before it and the address behind it:
/// `com.amazon.coral.validate#ValidationException:http://…`.
fn bare_name(name: &str) -> &str {
    let name = name.split(':').next().unwrap_or_default();
    name.rsplit('#').next().unwrap_or_default().trim()
}

/// Classifies a failure by its name; `status` is 0 in the middle of a stream, where there is only the name.
pub(super) fn failure_of(status: u16, name: &str, value: &Value) -> UpstreamFailure {
    let messages = [&value["message"], &value["Message"], &value["originalMessage"]];
    let message = messages.into_iter().find_map(Value::as_str).filter(|text| !text.is_empty());
    let message = message.map_or_else(
        || match (name, status) {
            ("", status) => format!("The provider refused the request ({status})."),
            (name, _) => format!("The provider answered with {name}."),
        },
        str::to_owned,
    );
    let kind = kind_of(status, name, &message);
    UpstreamFailure { kind, message, param: None }
}

fn kind_of(status: u16, name: &str, message: &str) -> FailureKind {
    let name: Cow<'_, str> = name.to_ascii_lowercase().into();
    match name.strip_suffix("exception").unwrap_or(&name) {
        "throttling" | "toomanyrequests" | "servicequotaexceeded" | "modelnotready" => {
            return FailureKind::Busy;
        }
        "accessdenied"
        | "unrecognizedclient"
        | "expiredtoken"
        | "invalidsignature"
        | "incompletesignature"
        | "missingauthenticationtoken" => return FailureKind::Denied,
        "resourcenotfound" => return FailureKind::NotFound,
        "validation" => return kind_of_invalid(message),
        "internalserver" | "serviceunavailable" | "modelerror" | "modelstreamerror"
        | "modeltimeout" => return FailureKind::Upstream,
        _ => {}
    }
    match status {
        401 | 403 => FailureKind::Denied,
        404 => FailureKind::NotFound,
        429 => FailureKind::Busy,
        400..=499 if status != 408 && status != 424 => kind_of_invalid(message),
        _ => FailureKind::Upstream,
    }
}

/// Kind of a validation error: a prompt that is too long is recognised by the text of the model's vendor.
fn kind_of_invalid(message: &str) -> FailureKind {
    let message = message.to_ascii_lowercase();
    let is_long = [
        "input is too long",
        "prompt is too long",
        "too many input tokens",
        "maximum context",
        "context length",
        "context window",
        "exceed context limit",
    ];
    if is_long.iter().any(|one| message.contains(one)) {
        FailureKind::TooLong
    } else {
        FailureKind::Invalid
    }
}
