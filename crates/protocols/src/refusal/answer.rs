//! Errors within answers whose status is one of success: as a document in the place of one, or as the
//! first event of a stream. Nothing has been delivered then, so another target can answer.

use std::borrow::Cow;

use serde_json::Value;

use crate::event_stream::EventFrames;
use crate::json_cursor::Cursor;
use crate::{bedrock_converse, json};

/// Verdict on the beginning of an answer's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerStart {
    /// Nothing: white space, comments, pings.
    Blank,
    /// Events that come before any output, such as the role of who answers; or a document that is not
    /// whole.
    Preamble,
    /// The beginning of an answer.
    Answer,
    /// An error in its place, as JSON.
    Error(Vec<u8>),
}

/// Longest error that is waited for, in bytes: a longer document is an answer.
const ERROR_BYTES_MAX: usize = 16 * 1024;

/// Judges the beginning of a body of JSON or server-sent events, whatever its headers say. `is_all` marks a
/// complete body.
#[must_use]
pub fn beginning(body: &[u8], is_all: bool) -> AnswerStart {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    // A byte-order mark is no part of an answer, and an error behind it is still one.
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => AnswerStart::Blank,
        Some(b'{' | b'[') if !is_all && body.len() > ERROR_BYTES_MAX => AnswerStart::Answer,
        Some(b'{' | b'[') if !is_all => AnswerStart::Preamble,
        Some(b'{' | b'[') => document(body),
        // A comment, or one of the fields `data`, `event`, `id` and `retry`: nothing else begins a
        // line of events.
        Some(b':' | b'd' | b'e' | b'i' | b'r') => events(body, is_all),
        Some(_) => AnswerStart::Answer,
    }
}

/// Judges the beginning of a body in Amazon's binary frames.
#[must_use]
pub fn frames_beginning(body: &[u8]) -> AnswerStart {
    let mut shown = AnswerStart::Blank;
    let read = EventFrames::default().read(body, |frame| {
        if !matches!(shown, AnswerStart::Blank | AnswerStart::Preamble) {
            return;
        }
        let is_event = frame.header(":message-type") == Some("event");
        shown = match frame.header(":event-type") {
            // Exceptions of Amazon's services come in frames of a stream that has begun with 200.
            _ if !is_event => AnswerStart::Error(bedrock_converse::event_data(frame)),
            Some("messageStart") => AnswerStart::Preamble,
            _ => AnswerStart::Answer,
        };
    });
    // Whoever meters it says what is wrong with it.
    if read.is_err() { AnswerStart::Answer } else { shown }
}

fn document(body: &[u8]) -> AnswerStart {
    if may_be_error(body)
        && let Some(value) = json::from_upstream::<Value>(body)
        && is_error(&value)
    {
        return AnswerStart::Error(body.to_vec());
    }
    AnswerStart::Answer
}

/// The longest document that is looked through for an error without the word in it, in bytes.
const BARE_ERROR_BYTES_MAX: usize = 2048;

/// A cheap look before the document is parsed, which few need.
fn may_be_error(body: &[u8]) -> bool {
    let has = |key: &str| memchr::memmem::find(body, key.as_bytes()).is_some();
    let is_bare = body.len() <= BARE_ERROR_BYTES_MAX && has("\"code\"") && has("\"message\"");
    names_error(body) || has("\"base_resp\"") || has("_error\"") || is_bare
}

/// True if some member named `error` is not `null`, or some text is just that word.
fn names_error(body: &[u8]) -> bool {
    const KEY: &[u8] = b"\"error\"";
    memchr::memmem::find_iter(body, KEY).any(|at| {
        let rest = body.get(at + KEY.len()..).unwrap_or_default().trim_ascii_start();
        let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_none_or(|value| !value.starts_with(b"null"))
    })
}

/// True if a document, or the data of an event, is an error: it names one, has no output, and reports nothing
/// billable.
fn is_error(value: &Value) -> bool {
    if let Some(all) = value.as_array() {
        // Google wraps errors of its OpenAI-compatible API in an array.
        return all.first().is_some_and(is_error);
    }
    let value = match value["type"].as_str() {
        Some("response.failed") => &value["response"],
        _ => value,
    };
    // With output or a bill beside it, the customer gets the answer as it is: asking again would
    // cost twice.
    says_error(value) && !has_output(value) && !has_usage(&value["usage"])
}

fn says_error(value: &Value) -> bool {
    let is_error_value =
        |error: &Value| !matches!(error, Value::Null | Value::Bool(false)) && error != "";
    let choices = value["choices"].as_array().into_iter().flatten();
    let has_failed_choice = || {
        choices.into_iter().any(|choice| {
            let reason = choice["finish_reason"].as_str().unwrap_or_default();
            is_error_value(&choice["error"]) || matches!(reason, "error" | "network_error")
        })
    };
    let is_bare = || {
        let code = &value["code"];
        let is_code = match code {
            Value::String(code) => {
                // Providers that put a code into every answer say with these that all is well.
                !matches!(code.as_str(), "" | "0" | "200" | "Success" | "success")
            }
            Value::Number(number) => !matches!(number.as_i64(), Some(0 | 200)),
            _ => false,
        };
        is_code && value["message"].is_string()
    };
    is_error_value(&value["error"])
        || value["type"] == "error"
        || value["object"] == "error"
        || is_error_value(&value["x_groq"]["error"])
        || value["base_resp"]["status_code"].as_i64().is_some_and(|code| code != 0)
        || is_bare()
        || has_failed_choice()
}

/// True if it contains any output.
fn has_output(value: &Value) -> bool {
    let is_there = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => false,
    };
    let choices = value["choices"].as_array().into_iter().flatten();
    let has_content = |choice: &Value| {
        let parts = [&choice["message"], &choice["delta"]];
        let keys = ["content", "reasoning_content", "reasoning", "tool_calls", "audio", "refusal"];
        is_there(&choice["text"])
            || parts.iter().any(|part| keys.iter().any(|key| is_there(&part[*key])))
    };
    let keys = [
        "candidates",
        "content",
        "data",
        "delta",
        "embeddings",
        "images",
        "output",
        "output_text",
        "results",
        "text",
        "transcript",
        "vectors",
    ];
    choices.into_iter().any(has_content) || keys.iter().any(|key| is_there(&value[*key]))
}

/// True if a billable count is reported.
fn has_usage(usage: &Value) -> bool {
    let counts = usage.as_object().into_iter().flatten();
    counts
        .filter(|(name, _)| name.ends_with("tokens"))
        .any(|(_, count)| count != 0 && !count.is_null())
}

/// Judges the first events of a stream.
fn events(body: &[u8], is_all: bool) -> AnswerStart {
    let (mut shown, mut rest) = (AnswerStart::Blank, body);
    while let Some((event, behind)) = next_event(rest, is_all) {
        rest = behind;
        match judge(event) {
            AnswerStart::Blank => {}
            AnswerStart::Preamble => shown = AnswerStart::Preamble,
            decided => return decided,
        }
    }
    shown
}

/// The first event of a stream without its blank line, and the rest; `None` if it is incomplete.
fn next_event(body: &[u8], is_all: bool) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let line = body.get(from..)?;
        let Some(length) = memchr::memchr2(b'\n', b'\r', line) else {
            return (is_all && !body.is_empty()).then_some((body, &[]));
        };
        let behind = line.get(length..)?;
        let end = if behind.starts_with(b"\r\n") { 2 } else { 1 };
        if length == 0 {
            return Some((body.get(..from)?, behind.get(end..)?));
        }
        from += length + end;
    }
}

/// Judges one event.
fn judge(event: &[u8]) -> AnswerStart {
    let data = crate::sse::data(event);
    let name = name_of(event);
    match name {
        // The name of the event alone says so: its data may be any text.
        b"error" if !data.is_empty() => return AnswerStart::Error(data.into_owned()),
        _ if data.trim_ascii().is_empty() => return AnswerStart::Blank,
        _ => {}
    }
    if may_be_error(&data)
        && let Some(value) = json::from_upstream::<Value>(&data)
        && is_error(&value)
    {
        return AnswerStart::Error(data.into_owned());
    }
    match kind_of(&data).as_ref() {
        b"ping" => AnswerStart::Blank,
        b"message_start" | b"response.created" | b"response.in_progress" | b"response.queued" => {
            AnswerStart::Preamble
        }
        _ if is_empty_chunk(&data) => AnswerStart::Preamble,
        _ => AnswerStart::Answer,
    }
}

fn name_of(event: &[u8]) -> &[u8] {
    let lines = event.split(|byte| matches!(byte, b'\n' | b'\r'));
    let mut names = lines.filter_map(|line| line.strip_prefix(b"event:"));
    names.next_back().unwrap_or_default().trim_ascii()
}

/// The `type` of an event, which Anthropic and the Responses API name in its data.
fn kind_of(data: &[u8]) -> Cow<'_, [u8]> {
    let mut kind: &[u8] = b"";
    let _is_whole = Cursor::new(data).object(|key, value| {
        match key {
            b"type" => kind = value.raw()?,
            _ => value.skip()?,
        }
        Some(())
    });
    let kind = kind.strip_prefix(b"\"").and_then(|kind| kind.strip_suffix(b"\""));
    Cow::Borrowed(kind.unwrap_or_default())
}

/// True if a chunk of a chat completion has nothing of the answer: a role, or a filter's results for the
/// prompt.
fn is_empty_chunk(data: &[u8]) -> bool {
    let (mut has_choices, mut is_empty) = (false, true);
    let read = Cursor::new(data).object(|key, value| {
        match key {
            b"choices" => {
                has_choices = value.next_byte() == Some(b'[');
                value.array(|choice| {
                    is_empty &= is_empty_choice(choice)?;
                    Some(())
                })?;
            }
            b"usage" => is_empty &= value.non_null()?.is_none(),
            _ => value.skip()?,
        }
        Some(())
    });
    read.is_some() && has_choices && is_empty
}

fn is_empty_choice(choice: &mut Cursor<'_>) -> Option<bool> {
    let mut is_empty = true;
    choice.object(|key, value| {
        match key {
            b"finish_reason" => is_empty &= value.non_null()?.is_none(),
            b"text" => is_empty &= matches!(value.raw()?, b"\"\"" | b"null"),
            b"delta" => value.object(|key, value| {
                let text = value.raw()?;
                // The first chunks say who answers, and nothing yet: an error may still follow.
                is_empty &= key == b"role" || matches!(text, b"\"\"" | b"null" | b"[]");
                Some(())
            })?,
            _ => value.skip()?,
        }
        Some(())
    })?;
    Some(is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(body: &str) -> &'static str {
        named(&beginning(body.as_bytes(), true))
    }

    fn named(beginning: &AnswerStart) -> &'static str {
        match beginning {
            AnswerStart::Blank => "blank",
            AnswerStart::Preamble => "preamble",
            AnswerStart::Answer => "answer",
            AnswerStart::Error(_) => "error",
        }
    }

    #[test]
    fn a_document_is_an_error_that_says_so_and_has_nothing_of_use() {
        for (body, expected) in [
            (r#"{"error":{"message":"no"}}"#, "error"),
            (r#"[{"error":{"code":400,"message":"no"}}]"#, "error"),
            (r#"{"type":"error","error":{"type":"overloaded_error"}}"#, "error"),
            (r#"{"object":"error","message":"no","type":"invalid_model"}"#, "error"),
            (
                r#"{"id":"x","choices":null,"base_resp":{"status_code":1008,"status_msg":"x"}}"#,
                "error",
            ),
            (r#"{"code":20012,"message":"no","data":null}"#, "error"),
            (r#"{"code":"Arrearage","message":"no","request_id":"r"}"#, "error"),
            (
                r#"{"choices":[{"error":{"code":502,"message":"x"},"finish_reason":"error","message":{"role":"assistant","content":""}}]}"#,
                "error",
            ),
            (
                r#"{"id":"r","status":"failed","error":{"code":"server_error"},"output":[],"usage":null}"#,
                "error",
            ),
            (
                r#"{"id":"r","status":"failed","error":{"code":"x"},"output":[],"usage":{"input_tokens":3}}"#,
                "answer",
            ),
            (r#"{"id":"r","error":null,"output":[{"type":"message"}]}"#, "answer"),
            (
                r#"{"choices":[{"message":{"content":"{\"error\":{\"message\":\"no\"}}"}}]}"#,
                "answer",
            ),
            (r#"{"choices":[{"message":{"content":"half"},"error":{"code":502}}]}"#, "answer"),
            (
                r#"{"choices":[{"message":{"content":"x"}}],"base_resp":{"status_code":0}}"#,
                "answer",
            ),
            (r#"{"code":0,"message":"ok","data":[1]}"#, "answer"),
            (r#"{"text":"error","error":{}}"#, "answer"),
            ("\n \n", "blank"),
            ("<html>", "answer"),
        ] {
            assert_eq!(shown(body), expected, "{body}");
        }
        assert_eq!(named(&beginning(b"{\"error\":", false)), "preamble", "it is not whole");
        let long = format!("{{\"choices\":[\"{}", "x".repeat(ERROR_BYTES_MAX));
        assert_eq!(named(&beginning(long.as_bytes(), false)), "answer", "no error is so long");
    }

    #[test]
    fn a_stream_in_frames_is_judged_by_its_first_meaningful_frame() {
        let frame = crate::event_stream::tests::frame;
        let start = [(":message-type", "event"), (":event-type", "messageStart")];
        let word = [(":message-type", "event"), (":event-type", "contentBlockDelta")];
        let failed = [(":message-type", "exception"), (":exception-type", "throttlingException")];
        let start = frame(&start, br#"{"role":"assistant"}"#);
        let word = frame(&word, br#"{"delta":{"text":"Hi"}}"#);
        let failed = frame(&failed, br#"{"message":"Too many tokens, please wait."}"#);
        for (frames, expected) in [
            (vec![&start], "preamble"),
            (vec![&start, &word, &failed], "answer"),
            (vec![&failed], "error"),
            (vec![&start, &failed], "error"),
        ] {
            let bytes: Vec<u8> = frames.into_iter().flatten().copied().collect();
            let shown = frames_beginning(&bytes);
            assert_eq!(named(&shown), expected);
            if let AnswerStart::Error(error) = shown {
                let read = crate::refusal::read(crate::Dialect::Bedrock, 200, None, &error);
                assert_eq!(read.fault, Some(crate::refusal::RefusalFault::Busy), "{read:?}");
            }
        }
        assert_eq!(named(&frames_beginning(&start[..8])), "blank", "its frame is not whole");
    }

    #[test]
    fn a_stream_is_judged_by_its_first_meaningful_event() {
        let role = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
        let filter = r#"data: {"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#;
        let error = r#"data: {"error":{"message":"overloaded","code":503}}"#;
        let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}";
        let created = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}";
        let failed = r#"event: response.failed
data: {"type":"response.failed","response":{"status":"failed","error":{"code":"server_error"},"output":[],"usage":null}}"#;
        for (events, expected) in [
            (vec![": OPENROUTER PROCESSING"], "blank"),
            (vec!["event: ping\ndata: {\"type\":\"ping\"}"], "blank"),
            (vec![role], "preamble"),
            (vec![filter, role], "preamble"),
            (vec![": wait", error], "error"),
            (vec![role, error], "error"),
            (
                vec![
                    start,
                    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
                ],
                "error",
            ),
            (vec![created, failed], "error"),
            (vec![r#"data: {"type":"error","code":"server_error","message":"x"}"#], "error"),
            (vec![r#"data: {"choices":[{"delta":{"content":"Hi"}}]}"#, error], "answer"),
            (vec![r#"data: {"choices":[{"delta":{"content":"\"error\": no"}}]}"#], "answer"),
            (vec![r#"data: {"choices":[{"delta":{"reasoning_content":"Hm"}}]}"#], "answer"),
            (vec![r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#], "answer"),
            (
                vec![
                    r#"data: {"choices":[{"delta":{"content":""},"finish_reason":"network_error"}]}"#,
                ],
                "error",
            ),
            (vec![r#"data: {"candidates":[{"content":{}}]}"#], "answer"),
            (vec![r#"data: [{"error":{"code":503}}]"#], "error"),
            (vec!["data: [DONE]"], "answer"),
        ] {
            for separator in ["\n\n", "\r\n\r\n"] {
                let text = events.join(separator) + separator;
                assert_eq!(named(&beginning(text.as_bytes(), false)), expected, "{text}");
            }
        }
        let half = error.as_bytes();
        assert_eq!(named(&beginning(half, false)), "blank", "its event is not whole");
        assert_eq!(named(&beginning(half, true)), "error", "nothing comes behind it");
    }
}
