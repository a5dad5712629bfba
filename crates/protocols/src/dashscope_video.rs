//! Video of families V and H over DashScope's tasks. Spec sections 2.4, 2.7, 3 and 7; Alibaba Cloud
//! Model Studio, "Wan - text-to-video", "image-to-video" and "reference-to-video API reference".
//!
//! `duration`, `resolution` and `aspect_ratio` are the gateway's, for billing; they are checked, priced
//! and cut out, and what DashScope reads in `parameters` must say the same. `input` and `parameters`
//! reach it with the same bytes: what nobody knows there is held for as the dearest, or refused where
//! it multiplies what is billed.

use bytes::Bytes;
use serde_json::{Value, json};

use super::dashscope::{self, object_in};
use super::fields;
use super::json::Object;
use super::limits::ModelLimits;
use super::task::{EXPIRES_AFTER_S, TaskCodec, TaskFacts, TaskRecordView, TaskReport, TaskState};
use super::video::{
    self, MISSING, VideoCall, VideoRequest, VideoUpstream, WAIT, WEBHOOK_URL, refuse,
};
use super::{Call, Codec, Dialect, Operation, Request, UpstreamFault};
use tollgate_money::price::{Resolution, Traits, Usage};
use tollgate_types::error::GatewayError;

mod input;
mod parameters;

pub(super) use input::{ApiVersion, ModelClass, VideoSource};
use parameters::BillingParameters;
pub(super) use parameters::size_of;

/// Request fields (spec section 2.4).
const FIELDS: [&str; 8] =
    ["model", "input", "parameters", "duration", "resolution", "aspect_ratio", WAIT, WEBHOOK_URL];
/// Seconds of a video if the request gives none (spec section 2.4).
pub(super) const SECONDS_DEFAULT: u32 = 5;
pub(super) const RESOLUTION_DEFAULT: Resolution = Resolution::P720;
pub(super) const ASPECT_RATIO_DEFAULT: &str = "16:9";
/// The ratios of all the models' references together.
const ASPECT_RATIOS: [&str; 11] =
    ["16:9", "9:16", "1:1", "4:3", "3:4", "21:9", "9:21", "3:2", "2:3", "5:4", "4:5"];
/// Maximum billed seconds of input video, in addition to the output video.
const INPUT_SECONDS_MAX: u32 = 15;

/// The codec of video tasks over DashScope's native API.
#[derive(Debug)]
pub struct DashscopeVideo;

impl Codec for DashscopeVideo {
    fn operation(&self) -> Operation {
        Operation::Video
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Dashscope]
    }

    fn path(&self) -> &'static str {
        "/api/v1/services/aigc/video-generation/video-synthesis"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let video_request = read(body, limits).map_err(video::coded)?;
        let call = VideoCall::<Dashscope>::read(body, video_request).map_err(video::coded)?;
        Ok(Box::new(call))
    }
}

fn read(body: &Object<'_>, limits: &ModelLimits) -> Result<VideoRequest, GatewayError> {
    fields::refuse_case_variants(body, &FIELDS)?;
    fields::refuse_unknown_fields(body, &FIELDS, &limits.pass.fields)?;
    let model = fields::text(body, "model")?.unwrap_or_default();
    let group = ModelClass::from_model(&model);
    let billed = billed(body, limits)?;
    let input =
        object_in(body, "input")?.ok_or_else(|| refuse(MISSING, "input", "`input` is required"))?;
    let media = input::check(group, &input, limits)?;
    let parameters = object_in(body, "parameters")?.ok_or_else(|| {
        let message = "`parameters` is required: it tells the upstream what is billed, as in \
                           `{\"resolution\": \"720P\", \"duration\": 5}`";
        refuse(MISSING, "parameters", message)
    })?;
    let audio = parameters::check(group, &parameters, &billed, &limits.pass.fields)?;
    // A video that is given sound has it, whatever else is said.
    let audio = audio.filter(|audio| *audio || !media.has_audio);
    let video_input = media.has_video;
    let made = parameters::ratio(&parameters, &ASPECT_RATIOS);

    let input_seconds = if video_input == Some(false) { 0 } else { INPUT_SECONDS_MAX };
    let seconds = u64::from(billed.seconds.saturating_add(input_seconds));
    Ok(VideoRequest {
        facts: TaskFacts {
            max_usage: Usage { seconds, ..Usage::ZERO },
            seconds: billed.seconds,
            resolution: billed.resolution.as_str().to_owned(),
            aspect_ratio: billed.aspect_ratio.or(made).unwrap_or(ASPECT_RATIO_DEFAULT).to_owned(),
            expires_after_s: EXPIRES_AFTER_S,
        },
        traits: Traits {
            resolution: Some(billed.resolution),
            audio,
            video_input,
            ..Traits::default()
        },
        tasks: Vec::new(),
        respelled: None,
    })
}

/// The fields by which a request is billed.
fn billed(body: &Object<'_>, limits: &ModelLimits) -> Result<BillingParameters, GatewayError> {
    let limits = &limits.video;
    let resolution = video::resolution(body, limits)?.unwrap_or(RESOLUTION_DEFAULT);
    video::check_resolution(resolution, limits)?;
    let seconds = video::seconds(body, limits)?.unwrap_or(SECONDS_DEFAULT);
    Ok(BillingParameters {
        seconds: video::check_seconds(i64::from(seconds), limits)?,
        resolution,
        aspect_ratio: video::word_of(body, "aspect_ratio", "aspect_ratio", &ASPECT_RATIOS)?,
    })
}

/// DashScope's side of submitting a task.
#[derive(Debug)]
struct Dashscope;

impl VideoUpstream for Dashscope {
    /// Without it, it refuses to make videos at all.
    const HEADERS: &'static [(&'static str, &'static str)] = &[("X-DashScope-Async", "enable")];
    const CUT: &'static [&'static str] =
        &["duration", "resolution", "aspect_ratio", WAIT, WEBHOOK_URL];

    fn read(answer: &Bytes) -> Result<String, UpstreamFault> {
        if dashscope::error_in(answer).is_some() {
            return Err(dashscope::fault(200, answer));
        }
        video::task_id(&video::object(answer)?["output"]["task_id"])
    }

    fn refusal(status: u16, body: &Bytes) -> UpstreamFault {
        dashscope::fault(status, body)
    }
}

/// The tasks of families V and H.
#[derive(Debug)]
pub struct DashscopeTasks;

impl TaskCodec for DashscopeTasks {
    fn dialect(&self) -> Dialect {
        Dialect::Dashscope
    }

    fn query_path(&self, upstream_id: &str) -> String {
        format!("/api/v1/tasks/{upstream_id}")
    }

    fn read(
        &self,
        status: u16,
        answer: &Bytes,
        _: &TaskFacts,
    ) -> Result<TaskReport, UpstreamFault> {
        if !(200..300).contains(&status) || dashscope::error_in(answer).is_some() {
            return Err(dashscope::fault(status, answer));
        }
        let answer = video::object(answer)?;
        let output = &answer["output"];
        let state = match output["task_status"].as_str() {
            Some("PENDING" | "SUSPENDED") => TaskState::Queued,
            Some("RUNNING") => TaskState::Running,
            Some("SUCCEEDED") => TaskState::Succeeded,
            Some("FAILED") => TaskState::Failed,
            Some("CANCELED") => TaskState::Cancelled,
            // `UNKNOWN` is a task that never was, or was forgotten.
            other => {
                let cause = format!("the task's status is {:?}", other.unwrap_or_default());
                return Err(UpstreamFault::Upstreams(cause));
            }
        };
        let (usage, document) = match state {
            TaskState::Succeeded => succeeded(&answer)?,
            TaskState::Failed => (None, json!({"error": error(output)})),
            _ => (None, Value::Null),
        };
        let document = video::document(document);
        Ok(TaskReport { state, usage, billed: None, document })
    }

    fn record(&self, shown: &TaskRecordView<'_>) -> String {
        video::record(shown)
    }
}

fn succeeded(answer: &Value) -> Result<(Option<Usage>, Value), UpstreamFault> {
    let output = &answer["output"];
    if output["video_url"].as_str().is_none_or(str::is_empty) {
        return Err(UpstreamFault::Upstreams("the task succeeded without a video".to_owned()));
    }
    // It has come as a string.
    let usage = match &answer["usage"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
        usage => usage.clone(),
    };
    let seconds = billed_seconds(&usage);
    let document = json!({
        "video_url": output["video_url"],
        "orig_prompt": video::shown_text(&output["orig_prompt"]),
        "actual_prompt": video::shown_text(&output["actual_prompt"]),
        "seed": Some(&output["seed"]).filter(|seed| seed.is_number()),
        "usage": Some(usage).filter(Value::is_object),
    });
    Ok((seconds.map(|seconds| Usage { seconds, ..Usage::ZERO }), document))
}

/// Billed seconds: from version 2.6 on with the input, before that of each video. The largest of the figures
/// counts.
fn billed_seconds(usage: &Value) -> Option<u64> {
    let seconds = |field: &str| video::reported_seconds(&usage[field]);
    let videos = usage["video_count"].as_u64().unwrap_or(1).max(1);
    let parts = seconds("output_video_duration").map(|made| {
        made.saturating_mul(videos).saturating_add(seconds("input_video_duration").unwrap_or(0))
    });
    let each = seconds("video_duration").map(|each| each.saturating_mul(videos));
    seconds("duration").max(parts).max(each)
}

fn error(output: &Value) -> Value {
    let code = output["code"].as_str().unwrap_or_default();
    if dashscope::is_operators(code) {
        return video::neutral_error();
    }
    video::error(&output["code"], &output["message"])
}

#[cfg(test)]
mod tests;
