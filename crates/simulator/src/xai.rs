//! xAI's videos, which are tasks.
//!
//! The shapes are those of xAI's API reference, "Video generation", and of the clients that read them.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Envelope};
use super::asked::ReceivedRequest;
use super::behaviour::{Behaviour, TaskEnd};
use super::results;
use super::tasks::{self, Task, TaskState, TaskStore, Work};
use super::usage::Usage;

/// How long a video is for which no duration was asked, in seconds.
const SECONDS: u32 = 8;
/// The longest video, in seconds.
const SECONDS_MAX: u32 = 15;
/// What a second costs in 480p and in 720p: 5 and 7 cents, of 10¹⁰ ticks to the dollar.
const TICKS_PER_SECOND: [usize; 2] = [500_000_000, 700_000_000];

/// The parts of a request that shape the answer.
#[derive(Deserialize)]
struct VideoRequest {
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

/// A string is refused: it must be an object.
#[derive(Deserialize)]
struct Image {
    url: String,
}

/// A video that was ordered.
#[derive(Debug)]
pub(super) struct Video {
    pub(super) url: String,
    pub(super) seconds: u32,
    /// What it costs is what came out.
    pub(super) usage: Option<Usage>,
}

/// Answers the submit of a video: `…/videos/generations`.
pub(super) fn submit(
    asked: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    tasks: &TaskStore,
) -> Answer {
    let request = match serde_json::from_slice::<VideoRequest>(asked.body) {
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
    let usage = Usage::reported(0, ticks, behaviour);
    let video = Video { url: results::video_url(asked), seconds, usage };
    let id = tasks.submit(asked, request.model, Work::Xai(video), behaviour);
    tasks::taken_in(&json!({"request_id": id}), behaviour)
}

/// Answers a query of a video: `…/videos/{request_id}`.
pub(super) fn query(id: &str, behaviour: &Behaviour, tasks: &TaskStore) -> Answer {
    let shown = |task: &mut Task| match &task.work {
        Work::Xai(video) => Some(video.record(task)),
        Work::Dashscope(_) | Work::Ark(_) => None,
    };
    let known = (!behaviour.faults.task_lost).then(|| tasks.with(id, shown)).flatten().flatten();
    match known {
        Some(record) => tasks::record(&record, behaviour),
        None => {
            let message = format!("There is no video {id}.");
            Answer::refused(Envelope::Xai, StatusCode::NOT_FOUND, &message, behaviour)
        }
    }
}

impl Video {
    /// Done and failed both come with status 200.
    fn record(&self, task: &Task) -> Value {
        let model = &task.model;
        let failed = |code: &str, message: &str| {
            let error = json!({"code": task.code(code), "message": message});
            json!({"status": "failed", "model": model, "error": error})
        };
        match task.state() {
            TaskState::Pending => json!({"status": "pending", "model": model, "progress": 0}),
            TaskState::Running => json!({"status": "pending", "model": model, "progress": 50}),
            TaskState::Ended(TaskEnd::Succeeded) => self.done(model, true),
            TaskState::Ended(TaskEnd::Moderated) => self.done(model, false),
            TaskState::Ended(TaskEnd::Expired) => json!({"status": "expired", "model": model}),
            TaskState::Ended(TaskEnd::Failed) => {
                failed("internal_error", "The simulated upstream was told to fail.")
            }
            TaskState::Ended(TaskEnd::Cancelled) => {
                failed("cancelled", "The simulated upstream was told to cancel it.")
            }
        }
    }

    /// A video that is not shown is paid for all the same.
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
    Answer::refused(Envelope::Xai, StatusCode::BAD_REQUEST, message, behaviour)
}
