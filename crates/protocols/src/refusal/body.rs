//! The shapes in which providers write errors, read into one.

use std::time::Duration;

use serde_json::Value;

use crate::json;

/// Wrappers in which resellers repeat their upstream's words: what comes before the first of these
/// stands there, and has no more than this many bytes.
const WRAPPER_BYTES_MAX: usize = 96;
/// A text that is no JSON and longer than this is a page.
const PLAIN_TEXT_BYTES_MAX: usize = 2048;
/// Longest part of a message that is compared, in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Phrases that validators write behind the name of a field.
const COMPLAINTS: [&str; 10] = [
    ": extra inputs",
    ": extra fields",
    ": input should",
    ": field required",
    ": string should",
    ": value error",
    ": value is not",
    ": unexpected",
    ": unknown",
    ": cannot find field",
];

/// The contents of a refusal, of any shape.
#[derive(Debug, Default)]
pub(super) struct RefusalBody {
    /// The answer's status; of an answer with a status of success the one that the body names, if it
    /// does.
    pub(super) status: u16,
    /// Codes, types, statuses and reasons in small letters, the most telling first.
    pub(super) words: Vec<String>,
    /// The message for people.
    pub(super) message: String,
    /// The message in small letters, for comparing.
    pub(super) lower: String,
    /// It names a field of the request.
    pub(super) has_param: bool,
    /// The message begins with the name of a field, which the customer may have chosen.
    pub(super) begins_with_field: bool,
    /// Delay before a retry.
    pub(super) delay: Option<Duration>,
    /// The refusal of another provider that it repeats.
    pub(super) inner: Option<Box<RefusalBody>>,
}

impl RefusalBody {
    /// Reads a body, and what a header calls the failure.
    pub(super) fn read(status: u16, name: Option<&str>, body: &[u8]) -> Self {
        let value = match json::from_upstream::<Value>(body) {
            Some(value) => value,
            None => plain_text(body),
        };
        let mut read = Self::from_value(status, &value, true);
        if let Some(name) = name {
            read.words.insert(0, bare_name(name));
        }
        read
    }

    fn from_value(status: u16, value: &Value, is_outer: bool) -> Self {
        // Google's API answers with an array over some paths.
        let value = value.as_array().and_then(|all| all.first()).unwrap_or(value);
        let places = places(value);
        let mut read = Self { status, ..Self::default() };
        for place in &places {
            read.take_words(place);
        }
        read.message = places.iter().find_map(message_of).unwrap_or_default();
        if let Some(base_resp) = value.get("base_resp") {
            read.words.insert(0, format!("base_resp.{}", word(&base_resp["status_code"])));
            read.message = base_resp["status_msg"].as_str().unwrap_or_default().to_owned();
        }
        read.has_param = places.iter().any(names_field);
        read.delay = places.iter().find_map(delay_in);
        if status < 300 {
            let mut codes = places.iter().flat_map(|place| [&place["code"], &place["status_code"]]);
            read.status = codes.find_map(status_in).unwrap_or(status);
        }
        read.lower = lower(&read.message);
        read.begins_with_field = begins_with_field(&read.lower, &places);
        if is_outer && !read.begins_with_field {
            read.inner = places.iter().find_map(|place| inner_of(status, place)).map(Box::new);
        }
        let mut end = read.lower.len().min(MESSAGE_BYTES_MAX);
        while !read.lower.is_char_boundary(end) {
            end -= 1;
        }
        read.lower.truncate(end);
        read
    }

    /// Collects the words by which an object names the failure.
    fn take_words(&mut self, error: &Value) {
        let keys = ["code", "type", "status", "__type", "err_code", "error_code", "reason"];
        let named = keys.into_iter().map(|key| word(&error[key]));
        // A frame of Amazon's, of which the name alone tells.
        let frame = error.get("payload").map(|_| word(&error["name"]));
        let named = frame.into_iter().chain(named);
        let details = error["details"].as_array().into_iter().flatten();
        let reasons = details.map(|detail| word(&detail["reason"]));
        for one in reasons.chain(named).filter(|one| !one.is_empty()) {
            let one = bare_name(&one);
            if !self.words.contains(&one) {
                self.words.push(one);
            }
        }
    }
}

/// The objects in which an error is described, the innermost first.
fn places(value: &Value) -> Vec<Value> {
    let mut places = Vec::new();
    let choices = value["choices"].as_array().into_iter().flatten();
    let nested = [
        &value["error"]["error"],
        &value["error"],
        &value["response"]["error"],
        &value["payload"],
        &value["detail"],
    ];
    for place in choices.map(|choice| &choice["error"]).chain(nested) {
        if place.is_object() {
            places.push(place.clone());
        }
    }
    places.push(value.clone());
    places
}

/// The message of an object.
fn message_of(error: &Value) -> Option<String> {
    let texts = [
        &error["message"],
        &error["Message"],
        &error["error"],
        &error["msg"],
        &error["detail"],
        &error["error_description"],
        &error["originalMessage"],
        error,
    ];
    let text = texts.into_iter().find_map(Value::as_str).filter(|text| !text.is_empty())?;
    Some(text.to_owned())
}

/// True if an error names a field of the request.
fn names_field(error: &Value) -> bool {
    let param = &error["param"];
    let violations = error["details"].as_array().into_iter().flatten();
    let named = ["fieldViolations", "field_violations"];
    param.as_str().is_some_and(|param| !param.is_empty())
        || violations.into_iter().any(|detail| named.iter().any(|key| detail[*key].is_array()))
        || [&error["detail"], &error["message"]["detail"], &error["message"]]
            .into_iter()
            .any(|list| list.as_array().is_some_and(|list| !list.is_empty()))
}

/// Google's `RetryInfo`: `"retryDelay": "34.07s"`.
fn delay_in(error: &Value) -> Option<Duration> {
    let mut details = error["details"].as_array()?.iter();
    let text = details.find_map(|detail| detail["retryDelay"].as_str())?;
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The refusal that a reseller repeats: OpenRouter in `metadata.raw`, others as JSON within the message, some
/// with a prefix.
fn inner_of(status: u16, error: &Value) -> Option<RefusalBody> {
    if let Some(raw) = error["metadata"]["raw"].as_str() {
        return Some(inner_text(status, raw));
    }
    let message = error["message"].as_str().or_else(|| error["error"].as_str())?;
    if let Some(text) = unwrapped(message) {
        return Some(inner_text(status, text));
    }
    // What goes on behind a document may be about one that the customer has sent.
    let is_document = message.starts_with(['{', '[']);
    let value: Value = serde_json::from_str(message).ok().filter(|_| is_document)?;
    Some(RefusalBody::from_value(status, &value, false))
}

fn inner_text(status: u16, text: &str) -> RefusalBody {
    // Some write on behind the document, such as which of their groups it was.
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = match documents.next() {
        Some(Ok(value)) => value,
        _ => plain_text(text.as_bytes()),
    };
    RefusalBody::from_value(status, &value, false)
}

/// The message behind a familiar wrapper: `litellm.BadRequestError: AnthropicException - …`, `anthropic
/// error: …`, `API error (status 403 Forbidden): …`, `Upstream error: 400 …`.
fn unwrapped(message: &str) -> Option<&str> {
    let litellm = || {
        let rest = message.strip_prefix("litellm.")?;
        let at = rest.find("Exception - ")?;
        let is_wrapper = at <= WRAPPER_BYTES_MAX && !rest.get(..at)?.contains(['"', '\'', '{']);
        rest.get(at + "Exception - ".len()..).filter(|_| is_wrapper)
    };
    let portkey = || {
        let (provider, rest) = message.split_once(" error: ")?;
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
        let is_wrapper = provider.len() <= WRAPPER_BYTES_MAX && provider.chars().all(is_name);
        Some(rest).filter(|_| is_wrapper && !provider.is_empty())
    };
    let api_error = || {
        let rest = message.strip_prefix("API error (status ")?;
        let (status, rest) = rest.split_once("): ")?;
        Some(rest).filter(|_| status.len() <= WRAPPER_BYTES_MAX && !status.contains(['"', '\'']))
    };
    litellm().or_else(portkey).or_else(api_error).map(str::trim_start)
}

/// A word of an error, whose codes are numbers at some.
fn word(value: &Value) -> String {
    match value {
        Value::String(word) => word.to_ascii_lowercase(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// A failure's name without the namespace before it and the address behind it, as Amazon writes them:
/// `com.amazon.coral.validate#ValidationException:http://…`.
fn bare_name(name: &str) -> String {
    let name = name.rsplit('#').next().unwrap_or_default();
    let name = name.split(":http").next().unwrap_or_default().trim();
    name.trim_end_matches(':').to_ascii_lowercase()
}

/// A code that is an HTTP status.
fn status_in(code: &Value) -> Option<u16> {
    let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    u16::try_from(code).ok().filter(|status| (400..600).contains(status))
}

/// A body that is not JSON, as a JSON string if it is a short plain text.
fn plain_text(body: &[u8]) -> Value {
    let text = std::str::from_utf8(body).unwrap_or_default().trim();
    let is_readable = text.len() <= PLAIN_TEXT_BYTES_MAX && !text.starts_with(['<', '{', '[']);
    Value::from(if is_readable { text } else { "" })
}

/// A message in small letters.
fn lower(message: &str) -> String {
    message.trim_start().replace('’', "'").to_ascii_lowercase()
}

/// True if a message may begin with the name of a field: validators write so, and the rest may quote the
/// customer's text.
fn begins_with_field(lower: &str, places: &[Value]) -> bool {
    let params = places.iter().filter_map(|place| place["param"].as_str());
    let begins = |param: &str| lower.starts_with(param.trim().to_ascii_lowercase().as_str());
    params.filter(|param| !param.trim().is_empty()).any(begins)
        || COMPLAINTS.iter().any(|complaint| lower.contains(complaint))
}
