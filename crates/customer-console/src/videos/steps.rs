//! The way of a task, step by step.

use super::record::VideoRecord;
use tollgate_ledger::{DeliveryAttempt, Task, TaskPhase, Webhook};
use tollgate_types::clock::UnixMs;
use tollgate_web_kit::show;

/// One step of a task, taken or to come.
pub(super) struct TaskStep {
    /// Name of the step, in a few words.
    pub(super) what: String,
    /// Time of the step, or another remark.
    pub(super) note: String,
    /// The class of the step: empty when it was done.
    pub(super) class: &'static str,
}

impl TaskStep {
    fn done(what: impl Into<String>, note: impl Into<String>) -> Self {
        Self { what: what.into(), note: note.into(), class: "" }
    }

    fn bad(what: impl Into<String>, note: impl Into<String>) -> Self {
        Self { class: "bad", ..Self::done(what, note) }
    }

    fn waiting(what: impl Into<String>, note: impl Into<String>) -> Self {
        Self { class: "waiting", ..Self::done(what, note) }
    }
}

/// The steps of a task, taken and to come.
pub(super) fn list(
    task: &Task,
    record: &VideoRecord,
    tried: Option<&DeliveryAttempt>,
) -> Vec<TaskStep> {
    let mut steps = vec![TaskStep::done("Submitted", utc(task.intent.at)), taken(task)];
    match (&task.stage, task.ended()) {
        (_, Some(ended)) if ended.state == "succeeded" => {
            steps.push(TaskStep::done("Succeeded", utc(ended.at)));
        }
        (_, Some(ended)) => steps.push(TaskStep::bad(capitalized(&ended.state), utc(ended.at))),
        (TaskPhase::Submitted { .. }, None) => {
            let since = UnixMs(record.updated_at.saturating_mul(1000));
            let state = capitalized(&record.state);
            steps.push(TaskStep::waiting(state, format!("since {}", utc(since))));
        }
        _ => {
            let until = format!("given up at {}", utc(task.intent.expires_at));
            steps.push(TaskStep::waiting("End", until));
        }
    }
    steps.extend(announced(task, tried));
    steps
}

/// Step of the submission to an upstream.
fn taken(task: &Task) -> TaskStep {
    match &task.stage {
        TaskPhase::Submitting => TaskStep::waiting("Handed to a provider", ""),
        TaskPhase::InDoubt => {
            let note = "the answer was lost; it is not sent again, and costs nothing unless the \
                        operator finds otherwise";
            TaskStep::bad("It is not known whether a provider has it", note)
        }
        TaskPhase::Ended(ended) if ended.upstream_id.is_none() => {
            TaskStep::bad("No provider took it", "")
        }
        TaskPhase::Submitted { .. } | TaskPhase::Ended(_) => {
            TaskStep::done("A provider took it", "")
        }
    }
}

/// Step of the webhook, where one was requested.
fn announced(task: &Task, tried: Option<&DeliveryAttempt>) -> Option<TaskStep> {
    let last =
        tried.map_or_else(String::new, |tried| format!("{} at {}", answer(tried), utc(tried.at)));
    Some(match task.webhook {
        Webhook::None => return None,
        Webhook::Delivered => TaskStep::done("Announced", last),
        Webhook::GivenUp => TaskStep::bad("Not announced: given up", last),
        Webhook::Due { .. } if task.ended().is_none() => {
            TaskStep::waiting("Announced at its end", "")
        }
        Webhook::Due { tries: 0, .. } => TaskStep::waiting("Announcement is due", last),
        Webhook::Due { tries, at } => {
            let tries = if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
            let note = format!("{last}; {tries} failed, the next is at {}", utc(at));
            TaskStep::waiting("Announcement is due", note)
        }
    })
}

/// Response of a receiver.
pub(crate) fn answer(tried: &DeliveryAttempt) -> String {
    match (tried.status, &tried.error) {
        (Some(status), _) => format!("answered {status}"),
        (None, Some(error)) => error.clone(),
        (None, None) => "not sent".to_owned(),
    }
}

fn utc(at: UnixMs) -> String {
    format!("{} UTC", show::time(&at))
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
