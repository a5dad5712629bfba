//! Tasks that were submitted: videos, which take time and are asked after.
//!
//! The only thing that a simulated upstream remembers besides the last requests. What a task is
//! depends on nothing but its submit and the time since then, so nobody needs to work on it.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::offset;

use super::answer::Answer;
use super::asked::ReceivedRequest;
use super::behaviour::{Behaviour, Refusal, TaskEnd, TaskSettings};
use super::{ark, dashscope, xai};
use tollgate_types::clock::UnixMs;

/// How many tasks are remembered; then the oldest are forgotten. More than any test submits.
const TASKS_MAX: usize = 100_000;

/// Whose task it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskProtocol {
    /// The tasks of DashScope's video synthesis.
    Dashscope,
    /// The tasks of Ark's contents generation.
    Ark,
    /// The tasks of xAI's videos.
    Xai,
}

impl TaskProtocol {
    /// The protocol in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dashscope => "dashscope",
            Self::Ark => "ark",
            Self::Xai => "xai",
        }
    }
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It waits for its turn.
    Pending,
    /// It is worked on.
    Running,
    /// It is over, and ended like this.
    Ended(TaskEnd),
}

impl TaskState {
    /// `pending`, `running`, or the end as the setting `task-end` names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Ended(end) => end.as_str(),
        }
    }
}

/// A task that a simulated upstream has taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimTask {
    /// Its id, as the submit was answered.
    pub id: String,
    /// Whose task it is.
    pub protocol: TaskProtocol,
    /// The model that was asked for.
    pub model: String,
    /// When it was taken in.
    pub submitted: UnixMs,
    /// The SHA-256 of the submit's body, in lower-case hex.
    pub body_sha256: String,
    /// How many queries named it, in whatever way they were answered.
    pub queries: u64,
    /// How far it is.
    pub state: TaskState,
}

impl SimTask {
    fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "protocol": self.protocol.as_str(),
            "model": self.model,
            "submitted": self.submitted.to_rfc3339(),
            "body_sha256": self.body_sha256,
            "queries": self.queries,
            "state": self.state.as_str(),
        })
    }
}

/// What is made, in the words of its protocol.
#[derive(Debug)]
pub(super) enum Work {
    Dashscope(dashscope::video::DashscopeVideo),
    Ark(ark::ArkVideo),
    Xai(xai::Video),
}

/// A task, and all that decides what becomes of it.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) submitted: UnixMs,
    pub(super) work: Work,
    /// The code of its failure, where it is not the protocol's usual one.
    pub(super) error_code: Option<String>,
    /// When it was cancelled, if it was.
    pub(super) cancelled: Option<UnixMs>,
    /// Whether its record was deleted.
    pub(super) is_deleted: bool,
    /// What the clock on the wall says may jump; what has become of a task may not.
    began: Instant,
    settings: TaskSettings,
    is_lost: bool,
    body_sha256: String,
    queries: u64,
}

impl Task {
    pub(super) fn state(&self) -> TaskState {
        if self.cancelled.is_some() {
            return TaskState::Ended(TaskEnd::Cancelled);
        }
        let [_, running, ended] = self.course();
        let now = Instant::now();
        match () {
            () if now >= ended.0 => ended.1,
            () if now >= running.0 => running.1,
            () => TaskState::Pending,
        }
    }

    /// The states that it goes through unless it is cancelled, and when each begins.
    pub(super) fn course(&self) -> [(Instant, TaskState); 3] {
        let running = self.began + self.settings.pending;
        let ended = running + self.settings.running;
        [
            (self.began, TaskState::Pending),
            (running, TaskState::Running),
            (ended, TaskState::Ended(self.settings.end)),
        ]
    }

    /// When it came into `state`.
    pub(super) fn changed(&self, state: TaskState) -> UnixMs {
        let after = match state {
            TaskState::Pending => 0,
            TaskState::Running => self.settings.pending.as_millis(),
            TaskState::Ended(_) => (self.settings.pending + self.settings.running).as_millis(),
        };
        let planned = self.submitted.0.saturating_add(u64::try_from(after).unwrap_or(u64::MAX));
        self.cancelled.unwrap_or(UnixMs(planned))
    }

    /// The code of its failure.
    pub(super) fn code<'a>(&'a self, usual: &'a str) -> &'a str {
        self.error_code.as_deref().unwrap_or(usual)
    }

    fn shown(&self) -> SimTask {
        let protocol = match self.work {
            Work::Dashscope(_) => TaskProtocol::Dashscope,
            Work::Ark(_) => TaskProtocol::Ark,
            Work::Xai(_) => TaskProtocol::Xai,
        };
        SimTask {
            id: self.id.clone(),
            protocol,
            model: self.model.clone(),
            submitted: self.submitted,
            body_sha256: self.body_sha256.clone(),
            queries: self.queries,
            state: self.state(),
        }
    }
}

/// The last tasks, oldest first.
#[derive(Debug)]
pub(super) struct TaskStore {
    /// Keeps the ids of two simulators apart.
    salt: u64,
    kept: Mutex<StoredTasks>,
}

#[derive(Debug, Default)]
struct StoredTasks {
    tasks: VecDeque<Task>,
    /// By id, how many tasks were submitted before.
    numbers: HashMap<String, u64>,
    submitted: u64,
}

impl Default for TaskStore {
    fn default() -> Self {
        Self { salt: fastrand::u64(..), kept: Mutex::default() }
    }
}

impl TaskStore {
    /// Takes a task in and gives its id.
    pub(super) fn submit(
        &self,
        asked: &ReceivedRequest<'_>,
        model: String,
        work: Work,
        behaviour: &Behaviour,
    ) -> String {
        let mut kept = self.kept.lock();
        let (number, submitted) = (kept.submitted, UnixMs::now());
        let id = match work {
            Work::Dashscope(_) | Work::Xai(_) => self.uuid(number),
            Work::Ark(_) => ark::task_id(submitted, (self.salt >> 8) + number),
        };
        if kept.tasks.len() == TASKS_MAX
            && let Some(oldest) = kept.tasks.pop_front()
        {
            kept.numbers.remove(&oldest.id);
        }
        kept.submitted += 1;
        kept.numbers.insert(id.clone(), number);
        kept.tasks.push_back(Task {
            id: id.clone(),
            model,
            submitted,
            work,
            error_code: behaviour.error_code.clone(),
            cancelled: None,
            is_deleted: false,
            began: Instant::now(),
            settings: behaviour.task,
            is_lost: behaviour.faults.task_lost,
            body_sha256: asked.body_sha256.to_owned(),
            queries: 0,
        });
        id
    }

    /// Looks at a task and may change it. `None` for one that is not known, or must not seem so.
    pub(super) fn with<T>(&self, id: &str, look: impl FnOnce(&mut Task) -> T) -> Option<T> {
        self.kept.lock().find(id).filter(|task| !task.is_lost && !task.is_deleted).map(look)
    }

    /// Looks at all tasks that seem known, newest first.
    pub(super) fn each_from_newest(&self, look: impl FnMut(&Task)) {
        let kept = self.kept.lock();
        kept.tasks.iter().rev().filter(|task| !task.is_lost && !task.is_deleted).for_each(look);
    }

    /// Counts a query, if there is such a task.
    pub(super) fn count_query(&self, id: &str) {
        if let Some(task) = self.kept.lock().find(id) {
            task.queries += 1;
        }
    }

    pub(super) fn all(&self) -> Vec<SimTask> {
        self.kept.lock().tasks.iter().map(Task::shown).collect()
    }

    /// How many tasks were taken in, those no longer remembered included.
    pub(super) fn submitted(&self) -> u64 {
        self.kept.lock().submitted
    }

    pub(super) fn to_json(&self) -> Value {
        self.all().iter().map(SimTask::to_json).collect()
    }

    /// In the form of a random UUID (RFC 9562, 5.4).
    fn uuid(&self, number: u64) -> String {
        let (high, low) = (self.salt >> 32, self.salt & 0xffff);
        let (third, fourth) = (self.salt >> 16 & 0xfff, self.salt >> 20 & 0xfff);
        format!("{high:08x}-{low:04x}-4{third:03x}-a{fourth:03x}-{number:012x}")
    }
}

impl StoredTasks {
    fn find(&mut self, id: &str) -> Option<&mut Task> {
        let forgotten = self.submitted - self.tasks.len() as u64;
        let place = usize::try_from(self.numbers.get(id)?.checked_sub(forgotten)?).ok()?;
        self.tasks.get_mut(place)
    }
}

/// The answer to a submit whose task was taken in, as far as it is given.
pub(super) fn taken_in(body: &Value, behaviour: &Behaviour) -> Answer {
    Answer { withheld: behaviour.faults.submit, ..record(body, behaviour) }
}

/// The answer that shows tasks.
pub(super) fn record(body: &Value, behaviour: &Behaviour) -> Answer {
    if behaviour.faults.refusal == Some(Refusal::Garbage) {
        return Answer::garbage(false);
    }
    Answer::json(body.to_string(), behaviour)
}

/// The time in Beijing, which is what DashScope's times and Ark's ids show.
pub(super) fn in_beijing(at: UnixMs) -> Option<OffsetDateTime> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000).ok()?;
    Some(time.to_offset(offset!(+8)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;

    #[test]
    fn only_the_last_tasks_are_remembered() {
        let (tasks, behaviour) = (TaskStore::default(), Behaviour::default());
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        let asked = ReceivedRequest {
            method: &Method::POST,
            path: "/v1/videos/generations",
            query: "",
            headers: &headers,
            host: "sim",
            body: &body,
            body_sha256: "",
            number: 0,
        };
        let submit = |model: &str| {
            let video = xai::Video { url: String::new(), seconds: 1, usage: None };
            tasks.submit(&asked, model.to_owned(), Work::Xai(video), &behaviour)
        };
        let model = |id: &str| tasks.with(id, |task| task.model.clone());
        let first = submit("first");
        let second = submit("second");
        assert_eq!(model(&first).as_deref(), Some("first"));
        for _ in 2..TASKS_MAX {
            submit("another");
        }
        assert_eq!(model(&first).as_deref(), Some("first"), "there is room for this many");
        let last = submit("last");
        assert_eq!(model(&first), None, "the oldest is forgotten");
        assert_eq!(model(&second).as_deref(), Some("second"), "the places of the others are right");
        assert_eq!(model(&last).as_deref(), Some("last"));
        assert_eq!(tasks.all().len(), TASKS_MAX);
        assert_eq!(tasks.submitted(), TASKS_MAX as u64 + 1, "the forgotten one still counts");
        let shape: Vec<usize> = last.split('-').map(str::len).collect();
        assert_eq!(shape, [8, 4, 4, 4, 12], "{last}");
    }
}
