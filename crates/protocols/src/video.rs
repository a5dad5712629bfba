//! Shared parts of the families of video: the codes of their refusals, the call that submits a task, and the
//! record that customers of families V, H and G read. Spec sections 2.4 to 2.7 and 7.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::fields;
use super::json::{self, Object};
use super::limits::VideoLimits;
use super::splice::Splice;
use super::task::{DOCUMENT_BYTES_MAX, Submit, TaskFacts, TaskRecordView, TaskState};
use super::{Call, RequestBounds, UpstreamFault};
use crate::codec::bounds_in_field;
use tollgate_money::price::{Resolution, Traits, Usage};
use tollgate_types::error::GatewayError;

/// Codes of spec section 7.
pub(super) const INVALID: &str = "InvalidParameter";
pub(super) const MISSING: &str = "InvalidParameter.MissingRequired";
pub(super) const NOT_IN_ENUM: &str = "InvalidParameter.NotInEnum";
pub(super) const CONTENT_EMPTY: &str = "InvalidParameter.ContentEmpty";
pub(super) const RESOLUTION_NOT_SUPPORTED: &str = "InvalidParameter.ResolutionNotSupported";
pub(super) const DURATION_OUT_OF_RANGE: &str = "InvalidParameter.DurationOutOfRange";
pub(super) use super::media_url::URL_INVALID;

/// The code and the message of what is the operator's matter, or the upstream's own: nothing that a
/// customer could do anything about.
const INTERNAL: (&str, &str) = ("InternalError", "The upstream failed to make the video.");

/// The gateway's fields, which no upstream knows.
pub(super) const WAIT: &str = "wait";
pub(super) const WEBHOOK_URL: &str = "webhook_url";

/// `object` of a record, in OpenAI's style.
pub(super) const OBJECT: &str = "video.generation";

/// The longest URL of a customer's that a task keeps, in bytes: as long as browsers and servers take.
const WEBHOOK_URL_BYTES_MAX: usize = 2048;
/// The longest ratio that a task keeps, in bytes.
const ASPECT_RATIO_BYTES_MAX: usize = 16;
/// The longest id of a task, in bytes. Real ones are below 64.
const TASK_ID_BYTES_MAX: usize = 128;
/// The longest text of an upstream that a record repeats, in characters.
const TEXT_CHARS_MAX: usize = 4096;
/// The longest prompt in a document that would be too large.
const CUT_CHARS_MAX: usize = 256;
/// Members of a document that hold prompts: the customer's, and the upstream's rewriting.
const PROMPTS: [&str; 2] = ["orig_prompt", "actual_prompt"];

/// A 400 with a code of spec section 7.
pub(super) fn refuse(
    code: &'static str,
    param: impl Into<Cow<'static, str>>,
    message: impl Into<Cow<'static, str>>,
) -> GatewayError {
    GatewayError::invalid(param, message).code(code)
}

/// The error with the family's plain code, unless it has a finer one.
pub(super) fn coded(error: GatewayError) -> GatewayError {
    GatewayError { code: error.code.or(Some(INVALID)), ..error }
}

/// An integer, signed or not.
pub(super) fn integer(value: &json::Value<'_>) -> Option<i64> {
    std::str::from_utf8(value.text()).ok()?.parse().ok()
}

/// `duration`: whole seconds, as many as the model makes.
pub(super) fn seconds(
    body: &Object<'_>,
    limits: &VideoLimits,
) -> Result<Option<u32>, GatewayError> {
    let Some(value) = body.get_non_null("duration") else { return Ok(None) };
    let seconds = integer(&value).ok_or_else(|| {
        refuse(INVALID, "duration", "`duration` must be a whole number of seconds")
    })?;
    check_seconds(seconds, limits).map(Some)
}

/// The model must make videos of this length.
pub(super) fn check_seconds(seconds: i64, limits: &VideoLimits) -> Result<u32, GatewayError> {
    let range = limits.seconds_min..=limits.seconds_max;
    match u32::try_from(seconds) {
        Ok(seconds) if range.contains(&seconds) => Ok(seconds),
        _ => Err(out_of_range(limits)),
    }
}

/// The model makes no videos of this length.
pub(super) fn out_of_range(limits: &VideoLimits) -> GatewayError {
    let (min, max) = (limits.seconds_min, limits.seconds_max);
    let message = format!("`duration` must be from {min} to {max} seconds for this model");
    refuse(DURATION_OUT_OF_RANGE, "duration", message)
}

/// Reads `resolution`, which must be one of the model's.
pub(super) fn resolution(
    body: &Object<'_>,
    limits: &VideoLimits,
) -> Result<Option<Resolution>, GatewayError> {
    let Some(value) = body.get_non_null("resolution") else { return Ok(None) };
    let Some(resolution) = value.as_str().as_deref().and_then(Resolution::of) else {
        let message = format!("`resolution` must be one of {}", words(Resolution::ALL));
        return Err(refuse(NOT_IN_ENUM, "resolution", message));
    };
    check_resolution(resolution, limits)?;
    Ok(Some(resolution))
}

/// The model must have the resolution.
pub(super) fn check_resolution(
    resolution: Resolution,
    limits: &VideoLimits,
) -> Result<(), GatewayError> {
    if limits.resolutions.is_empty() || limits.resolutions.contains(&resolution) {
        return Ok(());
    }
    let message = format!(
        "`resolution` {resolution} is not one of this model's: {}",
        words(&limits.resolutions)
    );
    Err(refuse(RESOLUTION_NOT_SUPPORTED, "resolution", message))
}

fn words(resolutions: &[Resolution]) -> String {
    let words: Vec<&str> = resolutions.iter().map(|resolution| resolution.as_str()).collect();
    words.join(", ")
}

/// Reads `field`, which must be one of `allowed`.
pub(super) fn word_of(
    object: &Object<'_>,
    field: &'static str,
    param: &'static str,
    allowed: &[&'static str],
) -> Result<Option<&'static str>, GatewayError> {
    let Some(value) = object.get_non_null(field) else { return Ok(None) };
    let word = value.as_str();
    match allowed.iter().find(|candidate| word.as_deref() == Some(**candidate)) {
        Some(candidate) => Ok(Some(candidate)),
        None => {
            let message = format!("`{param}` must be one of {}", allowed.join(", "));
            Err(refuse(NOT_IN_ENUM, param, message))
        }
    }
}

/// `webhook_url`. Where it may lead is configured, so the gateway checks that.
fn webhook_url(body: &Object<'_>) -> Result<Option<String>, GatewayError> {
    let url = fields::text(body, WEBHOOK_URL)?;
    if url.as_ref().is_some_and(|url| url.len() > WEBHOOK_URL_BYTES_MAX) {
        let message = format!("`{WEBHOOK_URL}` must have at most {WEBHOOK_URL_BYTES_MAX} bytes");
        return Err(refuse(URL_INVALID, WEBHOOK_URL, message));
    }
    Ok(url)
}

/// `aspect_ratio` of an upstream whose ratios are not listed: two whole numbers, `16:9`.
pub(super) fn aspect_ratio(body: &Object<'_>) -> Result<Option<String>, GatewayError> {
    const FIELD: &str = "aspect_ratio";
    let Some(ratio) = fields::text(body, FIELD)? else { return Ok(None) };
    let is_side = |side: &str| !side.is_empty() && side.bytes().all(|byte| byte.is_ascii_digit());
    let is_ratio = ratio.len() <= ASPECT_RATIO_BYTES_MAX
        && ratio.split_once(':').is_some_and(|(wide, high)| is_side(wide) && is_side(high));
    if !is_ratio {
        let message = format!("`{FIELD}` must be two whole numbers, such as `16:9`");
        return Err(refuse(NOT_IN_ENUM, FIELD, message));
    }
    Ok(Some(ratio))
}

/// An upstream's side of submitting a task.
pub(super) trait VideoUpstream: fmt::Debug + Send + Sync + 'static {
    /// Additional request headers.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// The fields of the body that are not for it.
    const CUT: &'static [&'static str];

    /// Reads a good answer.
    fn read(answer: &Bytes) -> Result<String, UpstreamFault>;

    /// Classifies a refusal by its fault.
    fn refusal(status: u16, body: &Bytes) -> UpstreamFault;

    /// The error shown to the customer for a failure of the upstream's own, if no other target can serve;
    /// `None` for the general error.
    fn failure(_status: u16, _body: &Bytes) -> Option<GatewayError> {
        None
    }
}

/// Position of a value in the body, and its spelling for the upstream.
pub(super) type Respelling = (Range<usize>, String);

/// A request as read.
#[derive(Debug, Default)]
pub(super) struct VideoRequest {
    pub(super) facts: TaskFacts,
    pub(super) traits: Traits,
    /// Ids of tasks whose results are inputs.
    pub(super) tasks: Vec<String>,
    /// A value that the upstream reads in another spelling only.
    pub(super) respelled: Option<Respelling>,
}

/// A call that submits a task.
#[derive(Debug)]
pub(super) struct VideoCall<U> {
    bounds: RequestBounds,
    video_request: VideoRequest,
    waits: bool,
    webhook_url: Option<String>,
    cut: Vec<Range<usize>>,
    upstream: PhantomData<U>,
}

impl<U: VideoUpstream> VideoCall<U> {
    /// The call of a `body` whose own fields were read into `video_request`.
    pub(super) fn read(
        body: &Object<'_>,
        video_request: VideoRequest,
    ) -> Result<Self, GatewayError> {
        let has_webhook = U::CUT.contains(&WEBHOOK_URL);
        Ok(Self {
            // A submit that is refused costs nothing, and a task that was begun is settled later.
            bounds: RequestBounds::from_body(body, video_request.facts.max_usage, Usage::ZERO),
            waits: fields::boolean(body, WAIT)?.unwrap_or(false),
            webhook_url: if has_webhook { webhook_url(body)? } else { None },
            cut: body.member_ranges(U::CUT),
            video_request,
            upstream: PhantomData,
        })
    }
}

impl<U: VideoUpstream> Call for VideoCall<U> {
    bounds_in_field!();

    fn traits(&self) -> Traits {
        self.video_request.traits
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        for range in &self.cut {
            splice.replace(range.clone(), "");
        }
        if let Some((range, text)) = &self.video_request.respelled {
            splice.replace(range.clone(), text.clone());
        }
        splice
    }

    /// Its answer is read, not relayed.
    fn submit(&self) -> Option<&(dyn Submit + Sync)> {
        Some(self)
    }
}

impl<U: VideoUpstream> Submit for VideoCall<U> {
    fn body(&self, upstream_model: &str, body: &Bytes) -> Bytes {
        self.splice(upstream_model).apply(body)
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        U::HEADERS
    }

    fn facts(&self) -> TaskFacts {
        self.video_request.facts.clone()
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn webhook_url(&self) -> Option<&str> {
        self.webhook_url.as_deref()
    }

    fn tasks(&self) -> Vec<String> {
        self.video_request.tasks.clone()
    }

    fn read(&self, answer: &Bytes) -> Result<String, UpstreamFault> {
        U::read(answer)
    }

    fn refusal(&self, status: u16, body: &Bytes) -> UpstreamFault {
        U::refusal(status, body)
    }

    fn failure(&self, status: u16, body: &Bytes) -> Option<GatewayError> {
        U::failure(status, body)
    }
}

/// An upstream's id of a task. It becomes a part of a path, so nothing but plain characters is in it.
pub(super) fn task_id(id: &Value) -> Result<String, UpstreamFault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match id.as_str() {
        Some(id) if (1..=TASK_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_plain) => {
            Ok(id.to_owned())
        }
        _ => Err(UpstreamFault::Upstreams("the upstream's answer has no id of a task".to_owned())),
    }
}

/// Reads an answer that must be a JSON object.
pub(super) fn object(answer: &Bytes) -> Result<Value, UpstreamFault> {
    match json::from_upstream(answer) {
        Some(value @ Value::Object(_)) => Ok(value),
        _ => Err(UpstreamFault::Upstreams("the upstream's answer is no JSON object".to_owned())),
    }
}

/// Seconds that an upstream reports, begun ones whole; `None` for what is none, or nothing at all: an
/// upstream that has made a video has made more than that.
pub(super) fn reported_seconds(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    // Refuses what is negative, infinite or no number, which a cast would turn into some number.
    let seconds = Duration::try_from_secs_f64(seconds?).ok()?;
    let whole = seconds.as_secs().saturating_add(u64::from(seconds.subsec_nanos() > 0));
    Some(whole).filter(|seconds| *seconds > 0)
}

/// A text of an upstream as a record repeats it.
pub(super) fn shown_text(value: &Value) -> Value {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map_or(Value::Null, |text| text.chars().take(TEXT_CHARS_MAX).collect::<String>().into())
}

/// An `error` object with the upstream's code and message.
pub(super) fn error(code: &Value, message: &Value) -> Value {
    let (code, message) = (shown_text(code), shown_text(message));
    let or = |value: Value, other: &str| if value.is_null() { other.into() } else { value };
    json!({"code": or(code, INTERNAL.0), "message": or(message, INTERNAL.1)})
}

/// The document of a result, within [`DOCUMENT_BYTES_MAX`] unless it is what cannot be cut: the prompts
/// are the only texts of any length in it.
pub(super) fn document(mut document: Value) -> String {
    let text = document.to_string();
    if text.len() <= DOCUMENT_BYTES_MAX {
        return text;
    }
    for field in PROMPTS {
        if let Some(prompt) = document.get_mut(field) {
            // Prompts alone are cut: an address or a usage that is cut would be worth nothing.
            let cut = prompt.as_str().map(|text| text.chars().take(CUT_CHARS_MAX).collect());
            *prompt = cut.map_or(Value::Null, Value::String);
        }
    }
    document.to_string()
}

/// The `error` that replaces one which concerns only the operator.
pub(super) fn neutral_error() -> Value {
    error(&Value::Null, &Value::Null)
}

/// The `error` of an unsuccessful task for which the upstream gave none.
pub(super) fn error_of(state: TaskState) -> Option<Value> {
    match state {
        TaskState::Failed => Some(neutral_error()),
        TaskState::Expired => {
            Some(json!({"code": "expired", "message": "The video was not made in time."}))
        }
        TaskState::Cancelled => {
            Some(json!({"code": "cancelled", "message": "The task was cancelled."}))
        }
        _ => None,
    }
}

/// The record of families V, H and G. A document has, as far as they are known, `video_url`, `usage`,
/// `seed`, `orig_prompt`, `actual_prompt` and `error`.
pub(super) fn record(shown: &TaskRecordView<'_>) -> String {
    let document: Value = serde_json::from_str(shown.document).unwrap_or_default();
    record_of(shown, &document).to_string()
}

fn record_of(shown: &TaskRecordView<'_>, document: &Value) -> Value {
    let facts = shown.facts;
    let mut record = json!({
        "id": shown.id,
        "object": OBJECT,
        "model": shown.model,
        "status": shown.state.as_str(),
        "created_at": shown.created_at,
        "updated_at": shown.updated_at,
        "duration": facts.seconds,
        "resolution": shown_text(&facts.resolution.as_str().into()),
        "aspect_ratio": shown_text(&facts.aspect_ratio.as_str().into()),
    });
    // Until the end the upstream can change its mind about everything below.
    if !shown.state.is_end() {
        return record;
    }
    // What the contract says that a record of the end has, known or not.
    for field in ["usage", "seed"] {
        record[field] = document[field].clone();
    }
    if shown.state == TaskState::Succeeded {
        record["content"] = json!([{"video_url": document["video_url"]}]);
        for field in PROMPTS {
            if !document[field].is_null() {
                record[field] = document[field].clone();
            }
        }
    } else {
        let error = Some(document["error"].clone()).filter(|error| !error.is_null());
        record["error"] = error.or_else(|| error_of(shown.state)).unwrap_or_default();
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole_and_there_are_some() {
        for (value, expected) in [
            (json!(5), Some(5)),
            (json!(5.0), Some(5)),
            (json!(5.0417), Some(6)),
            (json!("10"), Some(10)),
            (json!("9.5"), Some(10)),
            (json!(0), None),
            (json!(-5), None),
            (json!(1e300), None),
            (json!("NaN"), None),
            (json!("x"), None),
            (json!(null), None),
            (json!([5]), None),
        ] {
            assert_eq!(reported_seconds(&value), expected, "{value}");
        }
    }

    #[test]
    fn an_id_stays_one_segment_of_a_path() {
        for id in ["", "a/b", "..", "a?b", "a#b", "a%2fb", "a b", "é", &"a".repeat(129)] {
            assert!(task_id(&json!(id)).is_err(), "{id:?} was accepted");
        }
        assert!(task_id(&json!(5)).is_err() && task_id(&json!(null)).is_err());
        for id in ["cgt-20260101120000-abcde", "0385dc79-5ff8-4d82-bcb6-000000000000", "a_1"] {
            assert!(matches!(task_id(&json!(id)), Ok(read) if read == id), "{id:?}");
        }
    }

    #[test]
    fn a_record_has_what_its_state_can_have() {
        let facts = TaskFacts {
            seconds: 5,
            resolution: "720p".to_owned(),
            aspect_ratio: String::new(),
            ..TaskFacts::default()
        };
        let document = json!({"video_url": "https://a.example/v.mp4", "usage": {"duration": 5},
            "seed": 7, "actual_prompt": "p", "orig_prompt": null});
        let shown = |state, document: &Value| -> Value {
            let record = record(&TaskRecordView {
                id: "gt_1",
                model: "m",
                state,
                facts: &facts,
                document: &document.to_string(),
                created_at: 1,
                updated_at: 2,
            });
            serde_json::from_str(&record).expect("JSON")
        };
        let common = json!({"id": "gt_1", "object": "video.generation", "model": "m",
            "created_at": 1, "updated_at": 2, "duration": 5, "resolution": "720p",
            "aspect_ratio": null});
        let with = |more: Value| {
            let mut all = common.clone();
            let members = more.as_object().expect("an object").clone();
            all.as_object_mut().expect("an object").extend(members);
            all
        };
        for state in [TaskState::Processing, TaskState::Queued, TaskState::Running] {
            let expected = with(json!({"status": state.as_str()}));
            assert_eq!(shown(state, &document), expected, "nothing of a result before the end");
        }
        assert_eq!(
            shown(TaskState::Succeeded, &document),
            with(json!({"status": "succeeded", "usage": {"duration": 5}, "seed": 7,
                "actual_prompt": "p", "content": [{"video_url": "https://a.example/v.mp4"}]}))
        );
        let failed = json!({"error": {"code": "c", "message": "m"}});
        assert_eq!(shown(TaskState::Failed, &failed)["error"], failed["error"]);
        for (state, code) in [
            (TaskState::Failed, "InternalError"),
            (TaskState::Expired, "expired"),
            (TaskState::Cancelled, "cancelled"),
        ] {
            let record = shown(state, &Value::Null);
            assert_eq!(record["error"]["code"], code, "{record}");
            assert!(record.get("content").is_none(), "{record}");
        }
    }
}
