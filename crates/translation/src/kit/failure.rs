//! Failures in providers' formats that differ from OpenAI's.

use serde_json::Value;

use crate::part::{FailureKind, UpstreamFailure};

/// Phrases for a prompt that is too long: OpenAI's code, and other providers' messages.
pub(super) const TOO_LONG: [&str; 11] = [
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
pub(super) const FILTERED: [&str; 3] =
    ["content_filter", "content_policy", "content management policy"];
/// Zhipu's code of a prompt that is too long. Source of both: <https://docs.bigmodel.cn/cn/api/api-code>.
pub(super) const ZHIPU_TOO_LONG: &str = "1261";
/// Zhipu's code of what it takes for sensitive.
pub(super) const ZHIPU_FILTERED: &str = "1301";
/// The longest text of a page or a proxy that is repeated, in bytes.
const PLAIN_TEXT_BYTES_MAX: usize = 300;

/// A word of an error, whose codes are numbers at some.
pub(super) fn word(value: &Value) -> String {
    match value {
        Value::String(word) => word.to_ascii_lowercase(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A body that is not JSON, as a JSON string if it is a short plain text: SiliconFlow and proxies answer so.
pub(super) fn plain_text(body: &[u8]) -> Value {
    let text = std::str::from_utf8(body).unwrap_or_default().trim();
    let is_readable = text.len() <= PLAIN_TEXT_BYTES_MAX
        && !text.starts_with(['<', '{', '['])
        && !text.contains(char::is_control);
    Value::from(if is_readable { text } else { "" })
}

/// The first complaint of a list, and the field that it is about, as FastAPI and Mistral have it.
pub(super) fn first_detail(value: &Value) -> Option<(String, String)> {
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
    let failure = super::failure_of(status, value);
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
