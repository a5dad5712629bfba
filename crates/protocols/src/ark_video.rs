//! Video of family S over Ark's tasks: the customer's body is the upstream's, but for `wait`, and so is
//! the record. Spec sections 2.5, 2.7, 3, 7 and 8; BytePlus ModelArk, "Video generation API: create and
//! retrieve a task" and "Error codes".

use bytes::Bytes;
use serde_json::Value;

use super::fields;
use super::json::Object;
use super::limits::{ModelLimits, VideoLimits};
use super::media_url;
use super::task::{
    self, EXPIRES_AFTER_S, TaskCodec, TaskFacts, TaskRecordView, TaskReport, TaskState,
};
use super::video::{
    self, DURATION_OUT_OF_RANGE, INVALID, MISSING, RESOLUTION_NOT_SUPPORTED, VideoCall,
    VideoRequest, VideoUpstream, WAIT, WEBHOOK_URL, refuse,
};
use super::{Call, Codec, Dialect, Operation, Request, UpstreamFault};
use tollgate_money::price::{Resolution, Traits, Usage};
use tollgate_types::error::GatewayError;

mod content;
mod failure;
mod record;
mod series;

use content::Content;
use series::SeriesFeatures;

/// The path of submits, and of tasks with their id behind it.
const TASKS_PATH: &str = "/api/v3/contents/generations/tasks";

/// Request fields (spec section 2.5, and `service_tier`). Ark also has `tools` that search the web, at a
/// price.
const FIELDS: [&str; 19] = [
    "model",
    "content",
    "duration",
    "resolution",
    "ratio",
    "generate_audio",
    "draft",
    "seed",
    "frames",
    "execution_expires_after",
    "callback_url",
    "service_tier",
    "camera_fixed",
    "watermark",
    "return_last_frame",
    "safety_identifier",
    "priority",
    WAIT,
    WEBHOOK_URL,
];
/// Tiers that cost no more than the prices in `models.yaml`.
const SERVICE_TIERS: [&str; 2] = ["default", "flex"];
const RATIOS: [&str; 7] = ["16:9", "4:3", "1:1", "3:4", "9:16", "21:9", "adaptive"];
/// `duration` and `seed` of who leaves them to the model.
const OF_THE_MODELS_CHOICE: i64 = -1;
/// Maximum billed seconds of input video, in addition to the output video.
const INPUT_SECONDS_MAX: u64 = 15;
/// Minimum number of frames of a video.
const FRAMES_MIN: u64 = 29;
const FRAMES_MAX: u64 = 289;
/// Frames per second, the same for all models.
const FRAMES_PER_SECOND: u64 = 24;
/// Pixels of one frame that count as one token.
const PIXELS_PER_TOKEN: u64 = 1024;

/// The codec of Ark's video tasks.
#[derive(Debug)]
pub struct ArkVideo;

impl Codec for ArkVideo {
    fn operation(&self) -> Operation {
        Operation::Video
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Ark]
    }

    fn path(&self) -> &'static str {
        TASKS_PATH
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let video_request = read(body, limits).map_err(video::coded)?;
        Ok(Box::new(VideoCall::<Ark>::read(body, video_request).map_err(video::coded)?))
    }
}

fn read(body: &Object<'_>, limits: &ModelLimits) -> Result<VideoRequest, GatewayError> {
    let (pass, references_min) = (&limits.pass.fields, limits.images.references_min);
    let limits = &limits.video;
    fields::refuse_case_variants(body, &FIELDS)?;
    fields::refuse_unknown_fields(body, &FIELDS, pass)?;
    let model = fields::text(body, "model")?.filter(|model| !model.is_empty());
    let model = model.ok_or_else(|| refuse(MISSING, "model", "`model` is required"))?;
    let series = SeriesFeatures::from_model(&model);
    let content = Content::read(body, series, pass)?;
    content.check_start(&model, references_min)?;
    let (audio, draft) = check_switches(body, series)?;
    let resolution = resolution(body, limits, draft, &content)?;
    let seconds = seconds(body, limits, series, &content)?;
    let ratio = video::word_of(body, "ratio", "ratio", &RATIOS)?;
    check_seed(body, limits)?;
    let expires_after_s = check_rest(body, pass)?;

    let input_seconds = if content.has_video { INPUT_SECONDS_MAX } else { 0 };
    let billed_seconds = seconds.saturating_add(input_seconds);
    // What is left open can be the dearest: for the hold, and for the price.
    let largest = resolution.unwrap_or_else(|| largest(limits));
    let max_usage = Usage {
        output_tokens: tokens(billed_seconds, largest),
        // For operators who price family S by the second.
        seconds: billed_seconds,
        ..Usage::ZERO
    };
    // A video that goes on from a draft has the draft's sound, whatever is asked for now.
    let audio = audio.filter(|_| content.tasks.is_empty() && !content.commands.audio);
    let draft = Some(draft).filter(|_| !content.commands.draft);
    Ok(VideoRequest {
        facts: TaskFacts {
            max_usage,
            seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
            resolution: resolution.map_or("", Resolution::as_str).to_owned(),
            aspect_ratio: ratio.unwrap_or_default().to_owned(),
            expires_after_s,
        },
        traits: Traits {
            resolution,
            audio,
            draft,
            video_input: Some(content.has_video),
            ..Traits::default()
        },
        tasks: content.tasks,
        respelled: None,
    })
}

/// The resolution, where the request decides it.
fn resolution(
    body: &Object<'_>,
    limits: &VideoLimits,
    draft: bool,
    content: &Content,
) -> Result<Option<Resolution>, GatewayError> {
    let requested = video::resolution(body, limits)?;
    if draft {
        if requested.is_some_and(|requested| requested != Resolution::P480) {
            let message = "a draft is made in 480p only";
            return Err(refuse(RESOLUTION_NOT_SUPPORTED, "resolution", message));
        }
        return Ok(Some(Resolution::P480).filter(|_| !content.commands.any));
    }
    Ok(requested.filter(|_| !content.commands.any))
}

/// The longest that the video can be, in seconds.
fn seconds(
    body: &Object<'_>,
    limits: &VideoLimits,
    series: Option<SeriesFeatures>,
    content: &Content,
) -> Result<u64, GatewayError> {
    let longest = u64::from(limits.seconds_max);
    let seconds = match body.get_non_null("duration") {
        None => longest,
        Some(value) => match video::integer(&value) {
            Some(OF_THE_MODELS_CHOICE) if !limits.minus_one => {
                return Err(video::out_of_range(limits));
            }
            Some(OF_THE_MODELS_CHOICE) if series.is_none_or(|series| series.chooses) => longest,
            Some(OF_THE_MODELS_CHOICE) => {
                let message = "this model does not choose the `duration` itself";
                return Err(refuse(DURATION_OUT_OF_RANGE, "duration", message));
            }
            Some(seconds) => u64::from(video::check_seconds(seconds, limits)?),
            None => {
                let message = "`duration` must be a whole number of seconds";
                return Err(refuse(INVALID, "duration", message));
            }
        },
    };
    let frames = frames(body, series)?;
    // Both can be said; which of them counts is the upstream's to know.
    let seconds = seconds.max(frames.unwrap_or(0).div_ceil(FRAMES_PER_SECOND));
    // A command in the text can say it otherwise, in frames too; and a draft has said it before.
    Ok(if content.commands.any {
        seconds.max(longest).max(FRAMES_MAX.div_ceil(FRAMES_PER_SECOND))
    } else if content.tasks.is_empty() {
        seconds
    } else {
        seconds.max(longest)
    })
}

/// `frames`: in steps of four.
fn frames(body: &Object<'_>, series: Option<SeriesFeatures>) -> Result<Option<u64>, GatewayError> {
    let Some(value) = body.get_non_null("frames") else { return Ok(None) };
    if series.is_some_and(|series| !series.frames) {
        return Err(refuse(INVALID, "frames", "this model does not take `frames`"));
    }
    let is_step = |frames: &u64| (FRAMES_MIN..=FRAMES_MAX).contains(frames) && frames % 4 == 1;
    match value.as_u64().filter(is_step) {
        Some(frames) => Ok(Some(frames)),
        None => {
            let message = format!("`frames` must be 25 + 4n, from {FRAMES_MIN} to {FRAMES_MAX}");
            Err(refuse(INVALID, "frames", message))
        }
    }
}

/// Checks what can be on or off, and says whether there is sound, if that is known, and whether the
/// video is a draft.
fn check_switches(
    body: &Object<'_>,
    series: Option<SeriesFeatures>,
) -> Result<(Option<bool>, bool), GatewayError> {
    for field in ["camera_fixed", "watermark", "return_last_frame"] {
        fields::boolean(body, field)?;
    }
    let audio = fields::boolean(body, "generate_audio")?;
    if audio == Some(true) && series.is_some_and(|series| !series.audio) {
        let message = "this model makes no sound";
        return Err(refuse(INVALID, "generate_audio", message));
    }
    let draft = fields::boolean(body, "draft")?.unwrap_or(false);
    if draft && series.is_some_and(|series| !series.draft) {
        return Err(refuse(INVALID, "draft", "this model makes no drafts"));
    }
    let audio = audio.or(series.map(|series| series.audio));
    Ok((audio, draft))
}

/// `seed`: spec section 8.
fn check_seed(body: &Object<'_>, limits: &VideoLimits) -> Result<(), GatewayError> {
    let Some(seed) = body.get_non_null("seed") else { return Ok(()) };
    let least = if limits.minus_one { OF_THE_MODELS_CHOICE } else { 0 };
    let range = least..=i64::from(u32::MAX);
    if video::integer(&seed).is_some_and(|seed| range.contains(&seed)) {
        return Ok(());
    }
    let message = format!("`seed` must be an integer from {least} to {}", u32::MAX);
    Err(refuse(INVALID, "seed", message))
}

/// Checks what has no part in the price, and says when the task is given up.
fn check_rest(body: &Object<'_>, pass: &[String]) -> Result<u64, GatewayError> {
    if !pass.iter().any(|field| field == "service_tier") {
        video::word_of(body, "service_tier", "service_tier", &SERVICE_TIERS)?;
    }
    if let Some(url) = fields::text(body, "callback_url")? {
        media_url::check_https("callback_url", &url)?;
    }
    if body.get_non_null(WEBHOOK_URL).is_some() {
        let message = "this family has `callback_url` in the place of `webhook_url`";
        return Err(refuse(INVALID, WEBHOOK_URL, message));
    }
    let expires_after_s = fields::integer(body, "execution_expires_after", 3600..=259_200)?;
    Ok(expires_after_s.unwrap_or(EXPIRES_AFTER_S))
}

/// The largest resolution of the model.
fn largest(limits: &VideoLimits) -> Resolution {
    let largest = limits.resolutions.iter().copied().max_by_key(|resolution| pixels(*resolution));
    largest.unwrap_or(Resolution::P1080)
}

/// The pixels of a frame: no fewer than the widest of Ark's sizes of this resolution has (960×448 …,
/// 1504×640, 1920×1088), since the ratio can be the model's choice.
fn pixels(resolution: Resolution) -> u64 {
    match resolution {
        Resolution::P480 => 480_000,
        Resolution::P720 => 970_000,
        Resolution::P1080 => 2_100_000,
    }
}

/// Tokens billed for a video of this length and resolution.
fn tokens(seconds: u64, resolution: Resolution) -> u64 {
    let frames = seconds.saturating_mul(FRAMES_PER_SECOND);
    frames.saturating_mul(pixels(resolution)).div_ceil(PIXELS_PER_TOKEN)
}

/// Ark's side of submitting a task.
#[derive(Debug)]
struct Ark;

impl VideoUpstream for Ark {
    const CUT: &'static [&'static str] = &[WAIT];

    fn read(answer: &Bytes) -> Result<String, UpstreamFault> {
        if failure::is_in(answer) {
            return Err(failure::fault(200, answer));
        }
        video::task_id(&video::object(answer)?["id"])
    }

    fn refusal(status: u16, body: &Bytes) -> UpstreamFault {
        failure::fault(status, body)
    }

    fn failure(status: u16, body: &Bytes) -> Option<GatewayError> {
        failure::customer_error(status, body)
    }
}

/// The tasks of family S.
#[derive(Debug)]
pub struct ArkTasks;

impl TaskCodec for ArkTasks {
    fn dialect(&self) -> Dialect {
        Dialect::Ark
    }

    fn is_native(&self) -> bool {
        true
    }

    fn query_path(&self, upstream_id: &str) -> String {
        format!("{TASKS_PATH}/{upstream_id}")
    }

    fn read(
        &self,
        status: u16,
        answer: &Bytes,
        facts: &TaskFacts,
    ) -> Result<TaskReport, UpstreamFault> {
        if !(200..300).contains(&status) {
            return Err(failure::fault(status, answer));
        }
        let read = video::object(answer)?;
        let Some(state) = read["status"].as_str().and_then(state_of) else {
            // With a status, an error is the task's; without one, it is the answer's.
            return Err(failure::fault(status, answer));
        };
        let mut document = record::text_of(answer, &read);
        if failure::is_operators(&read["error"]) {
            document = record::with(&document, &[("error", video::neutral_error().to_string())]);
        }
        let usage = match state {
            TaskState::Succeeded => used(&read, facts),
            _ => None,
        };
        Ok(TaskReport { state, usage, billed: None, document })
    }

    /// The upstream's own record, with what the gateway knows better.
    fn record(&self, shown: &TaskRecordView<'_>) -> String {
        record::shown(shown)
    }

    fn given_up(&self, record: &str, error: &task::TaskError) -> String {
        let error = serde_json::to_string(error).unwrap_or_default();
        record::with(record, &[("error", error)])
    }
}

fn state_of(word: &str) -> Option<TaskState> {
    Some(match word {
        "queued" => TaskState::Queued,
        "running" => TaskState::Running,
        "succeeded" => TaskState::Succeeded,
        "failed" => TaskState::Failed,
        "expired" => TaskState::Expired,
        "cancelled" => TaskState::Cancelled,
        _ => return None,
    })
}

/// Usage of a task that succeeded, if its record reports it. It reports the seconds of the generated video;
/// those of input videos stay as they were held.
fn used(document: &Value, facts: &TaskFacts) -> Option<Usage> {
    let usage = &document["usage"];
    let tokens = usage["completion_tokens"].as_u64().max(usage["total_tokens"].as_u64());
    let input_seconds = facts.max_usage.seconds.saturating_sub(u64::from(facts.seconds));
    let seconds = video::reported_seconds(&document["duration"]);
    Some(Usage {
        output_tokens: tokens.filter(|tokens| *tokens > 0)?,
        seconds: seconds
            .map_or(facts.max_usage.seconds, |seconds| seconds.saturating_add(input_seconds)),
        ..Usage::ZERO
    })
}

#[cfg(test)]
mod tests;
