//! Failures of upstreams, in every format that providers use, and how customers of OpenAI's APIs see them.

use serde_json::Value;

use crate::json::Members;
use crate::part::{FailureKind, UpstreamFailure};

/// Phrases for a prompt that is too long: OpenAI's code, and other providers' messages.
const TOO_LONG: [&str; 11] = [
    "context_length",
    "context length",
    "prompt is too long",
    "context window",
    "maximum context",
    "input token count",
    // llama.cpp
    "exceed_context_size",
    "context size",
    // Moonshot
    "exceeded model token limit",
    // Zhipu
    "more than max tokens allowed",
    // SiliconFlow
    "max_seq_len",
];
/// Phrases for a filtered prompt or answer.
const FILTERED: [&str; 3] = ["content_filter", "content_policy", "content management policy"];
/// Zhipu's code of a prompt that is too long. Source of both: <https://docs.bigmodel.cn/cn/api/api-code>.
const ZHIPU_TOO_LONG: &str = "1261";
/// Zhipu's error code for filtered content.
const ZHIPU_FILTERED: &str = "1301";
/// The longest text of a page or a proxy that is repeated, in bytes.
const PLAIN_TEXT_BYTES_MAX: usize = 300;

/// Reads a failure with a status of 400 or above, in any of the shapes that providers use.
pub(crate) fn of_response(status: u16, body: &[u8]) -> UpstreamFailure {
    let value = serde_json::from_slice::<Value>(body);
    let value = value.unwrap_or_else(|_| plain_text(body));
    let value = value.as_array().and_then(|all| all.first()).unwrap_or(&value);
    of_error(status, value)
}

/// Reads an error object: `{"error": {"message", …}}` and its relatives.
pub(crate) fn of_error(status: u16, value: &Value) -> UpstreamFailure {
    let error = match &value["error"] {
        Value::Null => value,
        error => error,
    };
    let messages =
        [&error["message"], error, &value["message"], &error["detail"], &value["detail"]];
    let message = messages.into_iter().find_map(|one| one.as_str()).filter(|text| !text.is_empty());
    let (named, param) = match first_detail(value) {
        Some((message, field)) => (Some(message), Some(field)),
        None => (None, error["param"].as_str().map(str::to_owned)),
    };
    let message = match message.map(str::to_owned).or(named) {
        Some(text) => text,
        None => format!("The provider refused the request ({status})."),
    };
    let word = |key: &str| word(&error[key]);
    let words = [word("code"), word("type"), word("status")].join(" ");
    let lower = message.to_ascii_lowercase();
    let has = |all: &[&str]| all.iter().any(|one| words.contains(one) || lower.contains(one));
    let kind = match status {
        401..=403 => FailureKind::Denied,
        // Google says so with 400 of a credential that it does not know.
        400 if lower.starts_with("api key not valid") || lower.starts_with("api key expired") => {
            FailureKind::Denied
        }
        404 => FailureKind::NotFound,
        429 => FailureKind::Busy,
        500.. => FailureKind::Upstream,
        _ if has(&TOO_LONG) || word("code") == ZHIPU_TOO_LONG => FailureKind::TooLong,
        _ if has(&FILTERED) || word("code") == ZHIPU_FILTERED => FailureKind::Filtered,
        _ if words.contains("rate_limit") => FailureKind::Busy,
        _ if has(&["server_error", "api_error", "overloaded"]) => FailureKind::Upstream,
        _ => FailureKind::Invalid,
    };
    UpstreamFailure { kind, message, param }
}

/// A word of an error, whose codes are numbers at some.
fn word(value: &Value) -> String {
    match value {
        Value::String(word) => word.to_ascii_lowercase(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A body that is not JSON, as a JSON string if it is a short plain text: SiliconFlow and proxies answer so.
fn plain_text(body: &[u8]) -> Value {
    let text = std::str::from_utf8(body).unwrap_or_default().trim();
    let is_readable = text.len() <= PLAIN_TEXT_BYTES_MAX
        && !text.starts_with(['<', '{', '['])
        && !text.contains(char::is_control);
    Value::from(if is_readable { text } else { "" })
}

/// The first complaint of a list, and the field that it is about, as FastAPI and Mistral have it.
fn first_detail(value: &Value) -> Option<(String, String)> {
    let places = [&value["detail"], &value["message"]["detail"], &value["message"]];
    let first = places.into_iter().find_map(|list| list.as_array()?.first())?;
    let steps = first["loc"].as_array().into_iter().flatten().map(|step| match step {
        Value::String(step) => step.clone(),
        other => other.to_string(),
    });
    let field: Vec<String> = steps.filter(|step| step != "body").collect();
    let (field, message) = (field.join("."), first["msg"].as_str()?);
    Some((format!("{message}: {field}"), field))
}

/// Reads an error inside an answer of successful status. Its code is an HTTP status at OpenRouter and at
/// local servers.
pub(crate) fn in_answer(value: &Value) -> UpstreamFailure {
    let code = &value["error"]["code"];
    let code = code.as_u64().or_else(|| code.as_str()?.parse().ok());
    let status = code.and_then(|code| u16::try_from(code).ok());
    let status = status.filter(|status| (400..600).contains(status)).unwrap_or(500);
    let failure = of_error(status, value);
    match status {
        401 | 402 => UpstreamFailure { message: refused(status.into()), ..failure },
        _ => failure,
    }
}

/// Message for a failure that concerns the operator alone, such as an empty account.
fn refused(code: i64) -> String {
    format!("The provider refused the request ({code}).")
}

/// Reads MiniMax's `base_resp`; `None` if it reports success.
///
/// Source of the codes: <https://platform.minimax.io/docs/api-reference/errorcode>.
pub(crate) fn of_base_resp(base_resp: &Value) -> Option<UpstreamFailure> {
    let code = base_resp["status_code"].as_i64().filter(|code| *code != 0)?;
    let kind = match code {
        1002 | 1039 | 1041 | 2056 => FailureKind::Busy,
        1004 | 1008 | 2049 => FailureKind::Denied,
        1026 | 1027 => FailureKind::Filtered,
        1042 | 2013 => FailureKind::Invalid,
        _ => FailureKind::Upstream,
    };
    let message = base_resp["status_msg"].as_str().unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| message.to_ascii_lowercase().contains(word));
    let kind =
        if kind == FailureKind::Invalid && has(&TOO_LONG) { FailureKind::TooLong } else { kind };
    let message = match kind {
        FailureKind::Denied => refused(code),
        _ => format!("The provider refused the request ({code}): {message}"),
    };
    Some(UpstreamFailure { kind, message, param: None })
}

/// The failure of a model that ended for this reason in the place of an answer. It may do better when it
/// is asked again.
pub(crate) fn of_stop(reason: &str) -> UpstreamFailure {
    let message = format!("The model gave no usable answer ({reason}). Send the request again.");
    UpstreamFailure { kind: FailureKind::Upstream, message, param: None }
}

/// A failure as OpenAI's error document.
pub(crate) fn openai_document(failure: &UpstreamFailure) -> Vec<u8> {
    let mut out = Vec::new();
    let mut document = Members::object(&mut out);
    document.key(&mut out, "error");
    let mut error = Members::object(&mut out);
    error.text(&mut out, "message", &failure.message);
    let (kind, code) = match failure.kind {
        FailureKind::Invalid | FailureKind::NotFound => {
            ("invalid_request_error", "invalid_request")
        }
        FailureKind::TooLong => ("invalid_request_error", "context_length_exceeded"),
        FailureKind::Filtered => ("invalid_request_error", "content_policy_violation"),
        FailureKind::Busy => ("rate_limit_error", "rate_limit_exceeded"),
        FailureKind::Denied | FailureKind::Upstream => ("server_error", "bad_gateway"),
    };
    error.text(&mut out, "type", kind);
    match &failure.param {
        Some(param) => error.text(&mut out, "param", param),
        None => error.raw(&mut out, "param", "null"),
    }
    error.text(&mut out, "code", code);
    error.end(&mut out);
    document.end(&mut out);
    out
}
