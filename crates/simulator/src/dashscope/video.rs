//! DashScope's videos, which are tasks.
//!
//! The shapes are those of Alibaba Cloud Model Studio's API reference, "Wan text-to-video", "Wan
//! image-to-video" and "Manage asynchronous tasks".

use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::invalid;
use crate::answer::Answer;
use crate::behaviour::{Behaviour, TaskEnd, UsageForm};
use crate::received_request::ReceivedRequest;
use crate::results;
use crate::tasks::{
    self, Product, SimulatedTask, SimulatedTaskState, TaskHistory, TaskNumber, TaskProtocol,
};
use crate::usage::ReportedUsage;
use tollgate_types::clock::UnixMs;

/// Default duration of a video, in seconds.
const SECONDS: u32 = 5;
/// The longest video, in seconds: that of Wan 2.6 and 2.7.
const SECONDS_MAX: u32 = 15;
/// The most characters of a prompt that are remembered: the longest that Wan takes.
const PROMPT_CHARS_MAX: usize = 1500;
/// Local time without an offset.
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second].[subsecond digits:3]");
/// The classes of resolution: what they are called, the lines, and the size in 16:9.
const RESOLUTIONS: [(&str, u32, (u32, u32)); 3] =
    [("480P", 480, (832, 480)), ("720P", 720, (1280, 720)), ("1080P", 1080, (1920, 1080))];

/// A field of the gateway's own that is still there is refused by its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SynthesisRequest {
    model: String,
    input: Map<String, Value>,
    #[serde(default)]
    parameters: VideoParameters,
}

#[derive(Default, Deserialize)]
struct VideoParameters {
    #[serde(default)]
    duration: Option<u32>,
    /// Resolution name in capitals, for Wan 2.7 and later and for videos from images.
    #[serde(default)]
    resolution: Option<String>,
    /// Up to Wan 2.6, width and height with a `*` between.
    #[serde(default)]
    size: Option<String>,
}

impl VideoParameters {
    /// The lines and the size of the picture; `None` for a size or resolution that is none.
    fn picture(&self) -> Option<(u32, (u32, u32))> {
        let Some(size) = &self.size else {
            let requested = self.resolution.as_deref().unwrap_or("1080P");
            let found = RESOLUTIONS.iter().find(|(name, _, _)| *name == requested);
            return found.map(|(_, lines, size)| (*lines, *size));
        };
        let (width, height) = size.split_once('*')?;
        let (width, height): (u32, u32) = (width.parse().ok()?, height.parse().ok()?);
        // Every ratio of a class has about as many pixels as the one in 16:9.
        let pixels = width.checked_mul(height)?;
        let lines = match pixels {
            ..600_000 => 480,
            600_000..1_400_000 => 720,
            _ => 1080,
        };
        Some((lines, (width, height)))
    }
}

/// Video to generate, from a submit.
#[derive(Debug)]
pub(crate) struct DashscopeVideoTask {
    prompt: String,
    url: String,
    /// Duration, in seconds. The billed duration can be overridden.
    seconds: u32,
    lines: u32,
    size: (u32, u32),
    usage: Option<ReportedUsage>,
    /// True to report usage as a string of JSON.
    usage_is_text: bool,
}

/// Answers the submit of a video: `…/video-generation/video-synthesis`.
pub(crate) fn submit(
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    tasks: &TaskHistory,
) -> Answer {
    if http_request.headers.get("x-dashscope-async").is_none_or(|value| value != "enable") {
        return invalid("current user api does not support synchronous calls", behaviour);
    }
    let request = match serde_json::from_slice::<SynthesisRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return invalid(&format!("The body: {error}."), behaviour),
    };
    if request.input.is_empty() {
        return invalid("input must not be empty.", behaviour);
    }
    let seconds = request.parameters.duration.unwrap_or(SECONDS);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return invalid("parameters.duration must be 1 to 15.", behaviour);
    }
    let Some((lines, size)) = request.parameters.picture() else {
        let message =
            "parameters.size must be width*height, parameters.resolution 480P, 720P or 1080P.";
        return invalid(message, behaviour);
    };
    // The bill includes the input's seconds.
    let input = behaviour.usage.prompt.and_then(|input| usize::try_from(input).ok()).unwrap_or(0);
    let billed = usize::try_from(seconds).unwrap_or_default().saturating_add(input);
    let prompt = request.input.get("prompt").and_then(Value::as_str).unwrap_or_default();
    let video = DashscopeVideoTask {
        prompt: prompt.chars().take(PROMPT_CHARS_MAX).collect(),
        url: results::video_url(http_request),
        seconds,
        lines,
        size,
        usage: ReportedUsage::reported(input, billed, behaviour),
        usage_is_text: behaviour.faults.usage == UsageForm::Text,
    };
    let id = tasks.submit(http_request, request.model, video, behaviour);
    let output = json!({"task_id": id, "task_status": "PENDING"});
    tasks::taken_in(&json!({"output": output, "request_id": request_id(http_request)}), behaviour)
}

/// Answers a query of a task: `…/tasks/{id}`.
pub(crate) fn query(
    id: &str,
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    tasks: &TaskHistory,
) -> Answer {
    let shown = |task: &mut SimulatedTask| Some(task.product::<DashscopeVideoTask>()?.record(task));
    let found = (!behaviour.faults.task_lost).then(|| tasks.with(id, shown)).flatten().flatten();
    // An unknown task is no error.
    let mut body = found.unwrap_or_else(|| unknown(id));
    body["request_id"] = request_id(http_request).into();
    tasks::record(&body, behaviour)
}

fn request_id(http_request: &ReceivedRequest<'_>) -> String {
    format!("req_sim_{}", http_request.number)
}

fn unknown(id: &str) -> Value {
    json!({"output": {"task_id": id, "task_status": "UNKNOWN"}})
}

impl Product for DashscopeVideoTask {
    fn protocol(&self) -> TaskProtocol {
        TaskProtocol::Dashscope
    }

    fn task_id(&self, _: UnixMs, number: TaskNumber) -> String {
        number.uuid()
    }
}

impl DashscopeVideoTask {
    fn record(&self, task: &SimulatedTask) -> Value {
        let state = task.state();
        let status = match state {
            SimulatedTaskState::Pending => "PENDING",
            SimulatedTaskState::Running => "RUNNING",
            SimulatedTaskState::Ended(TaskEnd::Succeeded) => "SUCCEEDED",
            SimulatedTaskState::Ended(TaskEnd::Failed | TaskEnd::Moderated) => "FAILED",
            SimulatedTaskState::Ended(TaskEnd::Cancelled) => "CANCELED",
            SimulatedTaskState::Ended(TaskEnd::Expired) => return unknown(&task.id),
        };
        let mut output = json!({
            "task_id": task.id,
            "task_status": status,
            "submit_time": local(task.submitted),
            "scheduled_time": local(task.changed(SimulatedTaskState::Running)),
        });
        if matches!(state, SimulatedTaskState::Ended(_)) {
            output["end_time"] = local(task.changed(state)).into();
        }
        if let Some((code, message)) = failure(state) {
            output["code"] = task.code(code).into();
            output["message"] = message.into();
        }
        let mut body = json!({});
        if state == SimulatedTaskState::Ended(TaskEnd::Succeeded) {
            output["orig_prompt"] = self.prompt.as_str().into();
            output["video_url"] = self.url.as_str().into();
            if let Some(usage) = self.usage() {
                body["usage"] = usage;
            }
        }
        body["output"] = output;
        body
    }

    fn usage(&self) -> Option<Value> {
        let (width, height) = self.size;
        let usage = self.usage?;
        let usage = json!({
            "duration": usage.output,
            "input_video_duration": usage.input,
            "output_video_duration": self.seconds,
            "SR": self.lines,
            "size": format!("{width}*{height}"),
            "video_count": 1,
        });
        Some(if self.usage_is_text { usage.to_string().into() } else { usage })
    }
}

/// The code and the message of a failure.
fn failure(state: SimulatedTaskState) -> Option<(&'static str, &'static str)> {
    match state {
        SimulatedTaskState::Ended(TaskEnd::Failed) => {
            Some(("InternalError.Algo", "The simulated upstream was told to fail."))
        }
        SimulatedTaskState::Ended(TaskEnd::Moderated) => {
            Some(("DataInspectionFailed", "Output data may contain inappropriate content."))
        }
        _ => None,
    }
}

/// Format a time in Beijing; empty past the year 9999.
fn local(at: UnixMs) -> String {
    tasks::in_beijing(at).and_then(|time| time.format(TIME).ok()).unwrap_or_default()
}
