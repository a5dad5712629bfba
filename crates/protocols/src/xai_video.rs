//! Video of family G over xAI's deferred requests. Spec sections 2.6, 2.7, 3 and 7; xAI's API
//! reference, "Video generation".
//!
//! xAI asks about requests at another path than the contract has, and charges for videos that its
//! moderation withholds: they are `done` without a URL.

use bytes::Bytes;
use serde_json::{Value, json};

use super::fields;
use super::json::{self, Object};
use super::limits::{ModelLimits, VideoLimits};
use super::media_url::{self, Medium, UrlPolicy};
use super::task::{EXPIRES_AFTER_S, TaskCodec, TaskFacts, TaskRecordView, TaskReport, TaskState};
use super::video::{
    self, CONTENT_EMPTY, INVALID, MISSING, Respelling, URL_INVALID, VideoCall, VideoRequest,
    VideoUpstream, WAIT, WEBHOOK_URL, refuse,
};
use super::{Call, Codec, Dialect, Operation, Request, UpstreamFault};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Resolution, Traits, Usage};
use tollgate_types::error::{ErrorKind, GatewayError};

/// Request fields (spec section 2.6), and xAI's `user`. xAI also has fields for reference videos and images,
/// and for a storage place: their cost is in no price.
const FIELDS: [&str; 9] = [
    "model",
    "prompt",
    "duration",
    "resolution",
    "aspect_ratio",
    "image",
    "user",
    WAIT,
    WEBHOOK_URL,
];
/// Fields of an `image`.
const IMAGE_FIELDS: [&str; 1] = ["url"];
/// xAI's billing ticks per nano-dollar: ten billion ticks are a dollar.
const TICKS_PER_NANOUSD: u64 = 10;
/// The length of a video whose request does not say, in seconds.
const SECONDS_DEFAULT: u32 = 8;
/// Models with such names make videos from images alone (spec section 2.6).
const IMAGE_ONLY: &str = "1.5-preview";
/// The code of a video that was made, charged and withheld.
const MODERATED: &str = "moderated";
/// The code of content that is refused, and what the customer reads: xAI's own text has the ids of the
/// operator's team and key in it.
const CONTENT_REFUSED: &str = "DataInspectionFailed";
const REFUSED_CONTENT: &str = "The upstream refused the content: it violates its usage guidelines.";

/// The codec of xAI's videos.
#[derive(Debug)]
pub struct XaiVideo;

impl Codec for XaiVideo {
    fn operation(&self) -> Operation {
        Operation::Video
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Xai]
    }

    fn path(&self) -> &'static str {
        "/v1/videos/generations"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let video_request = read(body, limits).map_err(video::coded)?;
        Ok(Box::new(VideoCall::<Xai>::read(body, video_request).map_err(video::coded)?))
    }
}

fn read(body: &Object<'_>, limits: &ModelLimits) -> Result<VideoRequest, GatewayError> {
    fields::refuse_case_variants(body, &FIELDS)?;
    fields::refuse_unknown_fields(body, &FIELDS, &limits.pass.fields)?;
    let has_image = check_image(body, limits)?;
    match fields::text(body, "prompt")? {
        Some(prompt) if has_image || !prompt.trim().is_empty() => {}
        None if has_image => {}
        Some(_) => return Err(refuse(CONTENT_EMPTY, "prompt", "`prompt` must not be empty")),
        None => return Err(refuse(MISSING, "prompt", "`prompt` is required without an `image`")),
    }
    let resolution = video::resolution(body, &limits.video)?;
    let aspect_ratio = video::aspect_ratio(body)?.unwrap_or_default();
    let (seconds, respelled) = read_seconds(body, &limits.video)?;
    Ok(VideoRequest {
        facts: TaskFacts {
            max_usage: Usage { seconds: u64::from(seconds), ..Usage::ZERO },
            seconds,
            resolution: resolution.map_or("", Resolution::as_str).to_owned(),
            aspect_ratio,
            expires_after_s: EXPIRES_AFTER_S,
        },
        // A resolution that is left to the upstream has no price of its own: the plain one holds.
        traits: Traits { resolution, video_input: Some(false), ..Traits::default() },
        tasks: Vec::new(),
        respelled,
    })
}

/// `duration`: a number (spec section 2.6) of whole seconds. xAI knows them as an integer, so `6.0` goes
/// on as `6`.
fn read_seconds(
    body: &Object<'_>,
    limits: &VideoLimits,
) -> Result<(u32, Option<Respelling>), GatewayError> {
    let Some(value) = body.get_non_null("duration") else {
        return Ok((video::check_seconds(i64::from(SECONDS_DEFAULT), limits)?, None));
    };
    let whole = value.as_f64().filter(|seconds| seconds.fract().abs() <= 0.0);
    let seconds_requested = whole.ok_or_else(|| {
        refuse(INVALID, "duration", "`duration` must be a whole number of seconds")
    })?;
    let min = f64::from(limits.seconds_min);
    let mut seconds = limits.seconds_min..=limits.seconds_max;
    let found = seconds
        .find(|seconds| f64::from(*seconds) >= seconds_requested)
        .filter(|_| seconds_requested >= min);
    let seconds = found.ok_or_else(|| video::out_of_range(limits))?;
    let is_integer = video::integer(&value).is_some();
    Ok((seconds, (!is_integer).then(|| (value.range, seconds.to_string()))))
}

/// `image`: an object with a URL, needed where the model begins with one.
fn check_image(body: &Object<'_>, limits: &ModelLimits) -> Result<bool, GatewayError> {
    const FIELD: &str = "image";
    const URL: &str = "image.url";
    let Some(image) = body.get_non_null(FIELD) else {
        let model = fields::text(body, "model")?.unwrap_or_default();
        let is_needed = limits.images.references_min > 0 || model.ends_with(IMAGE_ONLY);
        return if is_needed {
            let message = "this model makes videos from an `image`: `{\"url\": \"https://…\"}`";
            Err(refuse(MISSING, FIELD, message))
        } else {
            Ok(false)
        };
    };
    if limits.images.references_max == 0 {
        return Err(refuse(INVALID, FIELD, "this model takes no `image`"));
    }
    let image = image.as_object().map_err(|error| {
        let message = match image.as_str() {
            Some(_) => "`image` must be an object: `{\"url\": \"https://…\"}`".to_owned(),
            None => fields::no_object(FIELD, &image, &error),
        };
        refuse(INVALID, FIELD, message)
    })?;
    fields::refuse_case_variants(&image, &IMAGE_FIELDS)?;
    fields::refuse_unknown_members(&image, FIELD, &IMAGE_FIELDS, &limits.pass.fields)?;
    let url =
        image.get_non_null("url").ok_or_else(|| refuse(MISSING, URL, "`image.url` is required"))?;
    let url = url
        .as_str()
        .ok_or_else(|| refuse(URL_INVALID, URL, "`image.url` must be a URL in a string"))?;
    media_url::check(URL, &url, &[Medium::Image], UrlPolicy::Public)?;
    Ok(true)
}

/// xAI's side of submitting a task.
#[derive(Debug)]
struct Xai;

impl VideoUpstream for Xai {
    const CUT: &'static [&'static str] = &[WAIT, WEBHOOK_URL];

    fn read(answer: &Bytes) -> Result<String, UpstreamFault> {
        let answer_read = video::object(answer)?;
        if !answer_read["error"].is_null() {
            return Err(fault(200, answer));
        }
        video::task_id(&answer_read["request_id"])
    }

    fn refusal(status: u16, body: &Bytes) -> UpstreamFault {
        fault(status, body)
    }
}

/// A refusal: `{"error": {"message", "type", "param", "code"}}`, or flat, with two strings, `{"code",
/// "error"}`.
#[derive(Debug, Default)]
struct XaiError {
    code: String,
    message: String,
    param: Option<String>,
    is_flat: bool,
}

impl XaiError {
    fn read(body: &[u8]) -> Self {
        let body: Value = json::from_upstream(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match &body["error"] {
            Value::String(message) => Self {
                code: text(&body["code"]),
                message: message.clone(),
                param: None,
                is_flat: true,
            },
            error => Self {
                code: text(&error["code"]),
                message: text(&error["message"]),
                param: error["param"].as_str().map(str::to_owned),
                is_flat: false,
            },
        }
    }

    /// The operator's key, team or credits are at fault: some of it comes with status 400.
    fn is_operators(&self) -> bool {
        const MARKS: [&str; 5] = ["api key", "credits", "spending limit", "team ", "billing"];
        // Behind a quote or a colon the customer's own words may stand.
        let clause = self.message.split(['"', '\'', '`', ':']).next().unwrap_or_default();
        let message = clause.to_ascii_lowercase();
        MARKS.iter().any(|mark| message.contains(mark))
    }

    /// The content is refused: with status 403 too, and then with the operator's ids in the text.
    fn is_moderation(&self) -> bool {
        self.message.contains("violates usage guidelines")
    }
}

/// Classifies a failure. `status` is the answer's; a failure can come with a successful one.
fn fault(status: u16, body: &Bytes) -> UpstreamFault {
    let refusal = XaiError::read(body);
    if refusal.is_moderation() && status <= 403 {
        let error = GatewayError::new(ErrorKind::InvalidRequest, REFUSED_CONTENT);
        return UpstreamFault::Customers(error.code(CONTENT_REFUSED));
    }
    if status == 429 && !refusal.is_operators() {
        return UpstreamFault::Busy;
    }
    if !matches!(status, 0..=299 | 400 | 413 | 415 | 422)
        || refusal.is_operators()
        || refusal.message.is_empty()
    {
        return UpstreamFault::Upstreams(format!(
            "the upstream answered {status} {}",
            refusal.code
        ));
    }
    let status = if status < 400 { 400 } else { status };
    if !refusal.is_flat {
        return UpstreamFault::Relayed(status, body.clone());
    }
    // OpenAI's SDKs see nothing in the flat shape.
    let code = Some(refusal.code).filter(|code| !code.is_empty());
    let shaped = json!({"error": {
        "message": refusal.message,
        "type": "invalid_request_error",
        "param": refusal.param,
        "code": code,
    }});
    UpstreamFault::Relayed(status, shaped.to_string().into())
}

/// The tasks of family G.
#[derive(Debug)]
pub struct XaiTasks;

impl TaskCodec for XaiTasks {
    fn dialect(&self) -> Dialect {
        Dialect::Xai
    }

    fn query_path(&self, upstream_id: &str) -> String {
        format!("/v1/videos/{upstream_id}")
    }

    fn read(
        &self,
        status: u16,
        answer: &Bytes,
        facts: &TaskFacts,
    ) -> Result<TaskReport, UpstreamFault> {
        if !(200..300).contains(&status) {
            return Err(fault(status, answer));
        }
        let read = video::object(answer)?;
        let has_video = read["video"]["url"].as_str().is_some_and(|url| !url.is_empty());
        let billed = billed(&read["usage"]);
        let unpaid = |state, document| {
            let document = video::document(document);
            TaskReport { state, usage: None, billed, document }
        };
        match read["status"].as_str() {
            Some("pending") => Ok(unpaid(TaskState::Running, Value::Null)),
            Some("done") => done(&read, facts),
            // Some answers leave it out.
            None if has_video => done(&read, facts),
            Some("expired") => Ok(unpaid(TaskState::Expired, Value::Null)),
            Some("failed") => {
                let document = json!({"error": error(&read["error"])});
                Ok(unpaid(TaskState::Failed, document))
            }
            other => {
                let cause = format!("the task's status is {:?}", other.unwrap_or_default());
                Err(UpstreamFault::Upstreams(cause))
            }
        }
    }

    fn record(&self, shown: &TaskRecordView<'_>) -> String {
        video::record(shown)
    }
}

/// A video that was made, and delivered or withheld: charged either way.
fn done(read: &Value, facts: &TaskFacts) -> Result<TaskReport, UpstreamFault> {
    let video = &read["video"];
    let seconds = video::reported_seconds(&video["duration"]);
    let billed = billed(&read["usage"]);
    let usage = seconds.map(|seconds| Usage { seconds, ..Usage::ZERO });
    // What xAI charges the operator is not the customer's matter; the seconds are.
    let shown = seconds.map(|seconds| json!({"duration": seconds}));
    if video["url"].as_str().is_some_and(|url| !url.is_empty()) {
        let document = video::document(json!({"video_url": video["url"], "usage": shown}));
        return Ok(TaskReport { state: TaskState::Succeeded, usage, billed, document });
    }
    if video["respect_moderation"] != json!(false) {
        return Err(UpstreamFault::Upstreams("the task is done without a video".to_owned()));
    }
    let message = "The video was made and withheld by the upstream's moderation. The upstream \
                   charges for it, and so it is charged.";
    let charged = usage.unwrap_or(facts.max_usage);
    let document = video::document(json!({
        "usage": {"duration": charged.seconds},
        "error": {"code": MODERATED, "message": message},
    }));
    Ok(TaskReport { state: TaskState::Failed, usage: Some(charged), billed, document })
}

/// xAI's bill to the operator, rounded up.
fn billed(usage: &Value) -> Option<Nanousd> {
    let ticks = usage["cost_in_usd_ticks"].as_u64()?;
    i64::try_from(ticks.div_ceil(TICKS_PER_NANOUSD)).ok().map(Nanousd::new)
}

/// The `error` of a task that failed.
fn error(error: &Value) -> Value {
    let refusal = XaiError::read(json!({"error": error}).to_string().as_bytes());
    if refusal.is_moderation() {
        return json!({"code": CONTENT_REFUSED, "message": REFUSED_CONTENT});
    }
    if refusal.is_operators() {
        return video::neutral_error();
    }
    video::error(&refusal.code.into(), &refusal.message.into())
}

#[cfg(test)]
mod tests;
