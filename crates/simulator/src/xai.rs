//! xAI's videos, which are tasks.
//!
//! The shapes are those of xAI's API reference, "Video generation", and of the clients that read them.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, TaskEnd};
use super::received_request::ReceivedRequest;
use super::results;
use super::tasks::{
    self, Product, SimulatedTask, SimulatedTaskState, TaskHistory, TaskNumber, TaskProtocol,
};
use super::usage::ReportedUsage;
use tollgate_types::clock::UnixMs;

/// Default duration of a video, in seconds.
const SECONDS: u32 = 8;
/// The longest video, in seconds.
const SECONDS_MAX: u32 = 15;
/// Price per second at 480p and 720p: 5 and 7 cents, in ticks of 10⁻¹⁰ dollars.
const TICKS_PER_SECOND: [usize; 2] = [500_000_000, 700_000_000];

/// Fields of a request that affect the answer.
#[derive(Deserialize)]
struct XaiVideoFields {
    model: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    duration: Option<u32>,
    #[serde(default)]
    resolution: Option<String>,
    #[serde(default)]
    image: Option<Image>,
}

/// Input image; must be an object, a string is refused.
#[derive(Deserialize)]
struct Image {
    url: String,
}

/// Video to generate, from a submit.
#[derive(Debug)]
pub(super) struct Video {
    pub(super) url: String,
    pub(super) seconds: u32,
    /// Usage, counted by the output.
    pub(super) usage: Option<ReportedUsage>,
}

/// Answers the submit of a video: `…/videos/generations`.
pub(super) fn submit(
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    tasks: &TaskHistory,
) -> Answer {
    let request = match serde_json::from_slice::<XaiVideoFields>(http_request.body) {
        Ok(request) => request,
        Err(error) => return invalid(&format!("The body: {error}."), behaviour),
    };
    let image = request.image.as_ref();
    if image.is_some_and(|image| image.url.is_empty()) {
        return invalid("image.url must not be empty.", behaviour);
    }
    if image.is_none() && request.prompt.is_empty() {
        return invalid("There must be a prompt or an image.", behaviour);
    }
    let seconds = request.duration.unwrap_or(SECONDS);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return invalid("duration must be 1 to 15.", behaviour);
    }
    let is_hd = match request.resolution.as_deref() {
        None | Some("480p") => false,
        Some("720p") => true,
        Some(_) => return invalid("resolution must be 480p or 720p.", behaviour),
    };
    let [plain, hd] = TICKS_PER_SECOND;
    let ticks = if is_hd { hd } else { plain } * usize::try_from(seconds).unwrap_or_default();
    let usage = ReportedUsage::reported(0, ticks, behaviour);
    let video = Video { url: results::video_url(http_request), seconds, usage };
    let id = tasks.submit(http_request, request.model, video, behaviour);
    tasks::taken_in(&json!({"request_id": id}), behaviour)
}

/// Answers a query of a video: `…/videos/{request_id}`.
pub(super) fn query(id: &str, behaviour: &Behaviour, tasks: &TaskHistory) -> Answer {
    let shown = |task: &mut SimulatedTask| Some(task.product::<Video>()?.record(task));
    let found = (!behaviour.faults.task_lost).then(|| tasks.with(id, shown)).flatten().flatten();
    match found {
        Some(record) => tasks::record(&record, behaviour),
        None => {
            let message = format!("There is no video {id}.");
            Answer::refused(ErrorFormat::Xai, StatusCode::NOT_FOUND, &message, behaviour)
        }
    }
}

impl Product for Video {
    fn protocol(&self) -> TaskProtocol {
        TaskProtocol::Xai
    }

    fn task_id(&self, _: UnixMs, number: TaskNumber) -> String {
        number.uuid()
    }
}

impl Video {
    /// Record of the video; done and failed both have status 200.
    fn record(&self, task: &SimulatedTask) -> Value {
        let model = &task.model;
        let failed = |code: &str, message: &str| {
            let error = json!({"code": task.code(code), "message": message});
            json!({"status": "failed", "model": model, "error": error})
        };
        match task.state() {
            SimulatedTaskState::Pending => {
                json!({"status": "pending", "model": model, "progress": 0})
            }
            SimulatedTaskState::Running => {
                json!({"status": "pending", "model": model, "progress": 50})
            }
            SimulatedTaskState::Ended(TaskEnd::Succeeded) => self.done(model, true),
            SimulatedTaskState::Ended(TaskEnd::Moderated) => self.done(model, false),
            SimulatedTaskState::Ended(TaskEnd::Expired) => {
                json!({"status": "expired", "model": model})
            }
            SimulatedTaskState::Ended(TaskEnd::Failed) => {
                failed("internal_error", "The simulated upstream was told to fail.")
            }
            SimulatedTaskState::Ended(TaskEnd::Cancelled) => {
                failed("cancelled", "The simulated upstream was told to cancel it.")
            }
        }
    }

    /// Record of a finished video; a moderated one is billed too.
    fn done(&self, model: &str, is_shown: bool) -> Value {
        let mut video = json!({"duration": self.seconds, "respect_moderation": is_shown});
        if is_shown {
            video["url"] = self.url.as_str().into();
        }
        let mut body = json!({"status": "done", "video": video, "model": model, "progress": 100});
        if let Some(usage) = self.usage {
            body["usage"] = json!({"cost_in_usd_ticks": usage.output});
        }
        body
    }
}

fn invalid(message: &str, behaviour: &Behaviour) -> Answer {
    Answer::refused(ErrorFormat::Xai, StatusCode::BAD_REQUEST, message, behaviour)
}
