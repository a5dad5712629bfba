//! Ark's videos, which are tasks.
//!
//! The shapes are those of Volcengine Ark's API reference, "Create a video generation task" and what
//! follows it there. As Ark does, it refuses what it does not know.

mod callback;
mod request;

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use self::request::{Invalid, TaskRequest};
use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, TaskEnd};
use super::received_request::ReceivedRequest;
use super::tasks::{
    self, Product, SimulatedTask, SimulatedTaskState, TaskHistory, TaskNumber, TaskProtocol,
};
use super::usage::ReportedUsage;
use super::{error, results};
use tollgate_types::clock::UnixMs;

/// Frame rate, in frames per second.
const FRAMES_PER_SECOND: u32 = 24;
/// Pixels, over all frames, per token.
const PIXELS_PER_TOKEN: u32 = 1024;
/// Format of the time in an id.
const ID_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day][hour][minute][second]");
/// Alphabet of an id's suffix.
const ID_DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Length of an id's suffix.
const ID_CHARS: u32 = 5;
/// Step that makes neighbouring ids look unrelated. It has no factor in common with 36, so that 36⁵
/// consecutive ids differ.
const ID_STEP: u64 = 23_456_789;
/// Default and largest page size of a list, and its last page.
const PAGE_SIZE: usize = 10;
const PAGES_MAX: usize = 500;

/// Video to generate, from a submit.
#[derive(Debug)]
pub(super) struct ArkVideoTask {
    request: TaskRequest,
    url: String,
    last_frame_url: Option<String>,
    /// Seed of the generation.
    seed: u64,
    usage: Option<ReportedUsage>,
}

impl Product for ArkVideoTask {
    fn protocol(&self) -> TaskProtocol {
        TaskProtocol::Ark
    }

    fn task_id(&self, submitted: UnixMs, number: TaskNumber) -> String {
        task_id(submitted, number.salted())
    }
}

/// Id of a task; `number` distinguishes those of one second.
fn task_id(submitted: UnixMs, number: u64) -> String {
    let time = tasks::in_beijing(submitted).and_then(|time| time.format(ID_TIME).ok());
    let base = ID_DIGITS.len() as u64;
    let mut left = (number % base.pow(ID_CHARS)) * ID_STEP % base.pow(ID_CHARS);
    let end: String = (0..ID_CHARS)
        .map(|_| {
            let digit = usize::try_from(left % base).unwrap_or_default();
            left /= base;
            ID_DIGITS.get(digit).copied().map_or('0', char::from)
        })
        .collect();
    format!("cgt-{}-{end}", time.unwrap_or_default())
}

/// Answers a `POST` to `…/contents/generations/tasks`.
pub(super) fn submit(
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    tasks: &Arc<TaskHistory>,
) -> Answer {
    let request = match TaskRequest::read(http_request.body) {
        Ok(request) => request,
        Err(invalid) => return refused(&invalid, behaviour),
    };
    let (width, height) = request.size();
    // Multiplied before it is divided, as a bill would.
    let tokens = u64::from(request.frames()) * u64::from(width) * u64::from(height)
        / u64::from(PIXELS_PER_TOKEN);
    let usage =
        ReportedUsage::reported(0, usize::try_from(tokens).unwrap_or(usize::MAX), behaviour);
    let model = request.model.clone();
    let callback_url = request.callback_url.clone();
    let last_frame_url = request.return_last_frame.then(|| results::image_url(http_request, 0));
    let seed = request.seed.unwrap_or(http_request.number);
    let url = results::video_url(http_request);
    let video = ArkVideoTask { request, url, last_frame_url, seed, usage };
    let id = tasks.submit(http_request, model, video, behaviour);
    if let Some(url) = callback_url {
        tokio::spawn(callback::follow(Arc::clone(tasks), id.clone(), url));
    }
    tasks::taken_in(&json!({"id": id}), behaviour)
}

/// Answers a `GET` of `…/contents/generations/tasks/{id}`.
pub(super) fn query(id: &str, behaviour: &Behaviour, tasks: &TaskHistory) -> Answer {
    let shown = |task: &mut SimulatedTask| record(task, task.state());
    let found = (!behaviour.faults.task_lost).then(|| tasks.with(id, shown)).flatten().flatten();
    match found {
        Some(record) => tasks::record(&record, behaviour),
        None => unknown(id, behaviour),
    }
}

/// Answers a `GET` of `…/contents/generations/tasks`.
pub(super) fn list(
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    tasks: &TaskHistory,
) -> Answer {
    let mut page = (1, PAGE_SIZE);
    for (name, value) in url::form_urlencoded::parse(http_request.query.as_bytes()) {
        let field = match &*name {
            "page_num" => &mut page.0,
            "page_size" => &mut page.1,
            _ => return refused(&Invalid::unknown(&name), behaviour),
        };
        match value.parse() {
            Ok(number) if (1..=PAGES_MAX).contains(&number) => *field = number,
            _ => return refused(&Invalid::new(&name, "must be 1 to 500"), behaviour),
        }
    }
    let (number, size) = page;
    let before = (number - 1) * size;
    let (mut items, mut total) = (Vec::new(), 0_usize);
    if !behaviour.faults.task_lost {
        tasks.each_from_newest(|task| {
            if task.product::<ArkVideoTask>().is_none() {
                return;
            }
            if (before..before + size).contains(&total) {
                items.extend(record(task, task.state()));
            }
            total += 1;
        });
    }
    tasks::record(&json!({"items": items, "total": total}), behaviour)
}

/// Answers a `DELETE` of `…/contents/generations/tasks/{id}`: a queued task is cancelled, and the
/// record of one that is over is deleted.
pub(super) fn cancel(id: &str, behaviour: &Behaviour, tasks: &Arc<TaskHistory>) -> Answer {
    let changed = tasks.with(id, |task| {
        let callback_url = task.product::<ArkVideoTask>()?.request.callback_url.clone();
        match task.state() {
            SimulatedTaskState::Pending => {
                task.cancelled = Some(UnixMs::now());
                let record = record(task, task.state());
                if let (Some(url), Some(record)) = (callback_url, record) {
                    tokio::spawn(callback::deliver(url, record.to_string()));
                }
                Some(true)
            }
            SimulatedTaskState::Running | SimulatedTaskState::Ended(TaskEnd::Cancelled) => {
                Some(false)
            }
            SimulatedTaskState::Ended(_) => {
                task.is_deleted = true;
                Some(true)
            }
        }
    });
    match changed.flatten() {
        Some(true) => tasks::record(&json!({}), behaviour),
        Some(false) => {
            let message = format!("The task {id} is running or cancelled: it cannot be deleted.");
            Answer::refused(ErrorFormat::Ark, StatusCode::CONFLICT, &message, behaviour)
        }
        None => unknown(id, behaviour),
    }
}

/// Record of a task in `state`; `None` if it is not one of Ark's.
fn record(task: &SimulatedTask, state: SimulatedTaskState) -> Option<Value> {
    let video = task.product::<ArkVideoTask>()?;
    let request = &video.request;
    let status = match state {
        SimulatedTaskState::Pending => "queued",
        SimulatedTaskState::Running => "running",
        SimulatedTaskState::Ended(TaskEnd::Succeeded) => "succeeded",
        SimulatedTaskState::Ended(TaskEnd::Failed | TaskEnd::Moderated) => "failed",
        SimulatedTaskState::Ended(TaskEnd::Expired) => "expired",
        SimulatedTaskState::Ended(TaskEnd::Cancelled) => "cancelled",
    };
    let failure = failure(state).map(|(code, message)| {
        let code = task.code(code);
        json!({"code": code, "message": message})
    });
    let mut record = json!({
        "id": task.id,
        "model": task.model,
        "status": status,
        "created_at": task.submitted.seconds(),
        "updated_at": task.changed(state).seconds(),
        "resolution": request.resolution(),
        "ratio": request.ratio(),
        "framespersecond": FRAMES_PER_SECOND,
        "service_tier": request.service_tier,
        "execution_expires_after": request.execution_expires_after,
        "draft": request.draft,
        "error": failure,
    });
    match request.frames {
        Some(frames) => record["frames"] = frames.into(),
        None => record["duration"] = request.seconds().into(),
    }
    if state == SimulatedTaskState::Ended(TaskEnd::Succeeded) {
        record["seed"] = video.seed.into();
        record["content"] = json!({"video_url": video.url});
        if let Some(url) = &video.last_frame_url {
            record["content"]["last_frame_url"] = url.as_str().into();
        }
        if let Some(usage) = video.usage {
            let total = usage.total();
            record["usage"] = json!({"completion_tokens": usage.output, "total_tokens": total});
        }
    }
    Some(record)
}

/// The code and the message of a failure.
fn failure(state: SimulatedTaskState) -> Option<(&'static str, &'static str)> {
    match state {
        SimulatedTaskState::Ended(TaskEnd::Failed) => {
            Some(("InternalServiceError", "The simulated upstream was told to fail."))
        }
        SimulatedTaskState::Ended(TaskEnd::Moderated) => Some((
            "OutputVideoSensitiveContentDetected",
            "The request failed because the output video may contain sensitive information.",
        )),
        _ => None,
    }
}

fn refused(invalid: &Invalid, behaviour: &Behaviour) -> Answer {
    let status = StatusCode::BAD_REQUEST;
    let code = behaviour.error_code.as_deref();
    let body = error::ark(status, code, Some(&invalid.param), &invalid.message);
    Answer::with_error(status, &body, behaviour)
}

fn unknown(id: &str, behaviour: &Behaviour) -> Answer {
    let message = format!("The specified resource task {id} is not found.");
    Answer::refused(ErrorFormat::Ark, StatusCode::NOT_FOUND, &message, behaviour)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_of_one_second_differ() {
        let ids: HashSet<String> =
            (u64::MAX - 99_999..=u64::MAX).map(|number| task_id(UnixMs(0), number)).collect();
        assert_eq!(ids.len(), 100_000, "as many as are remembered");
        assert!(ids.iter().all(|id| id.starts_with("cgt-19700101080000-") && id.len() == 24));
    }
}
