//! Asynchronous tasks, such as videos.
//!
//! The only state of a simulated upstream besides the recorded requests. A task's state is a function of
//! its submit and the elapsed time, so no worker is needed.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::offset;

use super::answer::Answer;
use super::behaviour::{Behaviour, SimulatedRefusal, TaskEnd, TaskSettings};
use super::received_request::ReceivedRequest;
use tollgate_types::clock::UnixMs;

/// Largest number of tasks kept, more than any test submits; the oldest are evicted.
const TASKS_MAX: usize = 100_000;

/// Provider protocol of a task.
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

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedTaskState {
    /// Accepted and waiting in the queue.
    Pending,
    /// Taken from the queue and running.
    Running,
    /// Ended in this final state.
    Ended(TaskEnd),
}

impl SimulatedTaskState {
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

/// A task that a simulated upstream has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimTask {
    /// Id from the answer to the submit.
    pub id: String,
    /// Provider protocol of a task.
    pub protocol: TaskProtocol,
    /// Model named in the request.
    pub model: String,
    /// Time of the submit.
    pub submitted: UnixMs,
    /// The SHA-256 of the submit's body, in lower-case hex.
    pub body_sha256: String,
    /// Number of queries for it, whatever their answers.
    pub queries: u64,
    /// State at the time of the listing.
    pub state: SimulatedTaskState,
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

/// Product of a task. Each protocol implements it for its videos, so that the store need not name them.
pub(super) trait Product: Any + Debug + Send {
    /// Protocol of the task.
    fn protocol(&self) -> TaskProtocol;

    /// Id of the task in the protocol's form.
    fn task_id(&self, submitted: UnixMs, number: TaskNumber) -> String;
}

/// Number of a task, unique within a simulator, and a salt that differs between simulators.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskNumber {
    salt: u64,
    number: u64,
}

impl TaskNumber {
    /// In the form of a random UUID (RFC 9562, 5.4).
    pub(super) fn uuid(self) -> String {
        let Self { salt, number } = self;
        let (high, low) = (salt >> 32, salt & 0xffff);
        let (third, fourth) = (salt >> 16 & 0xfff, salt >> 20 & 0xfff);
        format!("{high:08x}-{low:04x}-4{third:03x}-a{fourth:03x}-{number:012x}")
    }

    /// As one salted number; consecutive tasks have consecutive ones.
    pub(super) fn salted(self) -> u64 {
        (self.salt >> 8) + self.number
    }
}

/// A task, and everything that decides its course.
#[derive(Debug)]
pub(super) struct SimulatedTask {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) submitted: UnixMs,
    product: Box<dyn Product>,
    /// Error code of its failure, if it differs from the protocol's usual one.
    pub(super) error_code: Option<String>,
    /// Time of the cancellation, if any.
    pub(super) cancelled: Option<UnixMs>,
    /// True if its record was deleted.
    pub(super) is_deleted: bool,
    /// Monotonic start time: the wall clock may jump, a task's state may not.
    began: Instant,
    settings: TaskSettings,
    is_lost: bool,
    body_sha256: String,
    queries: u64,
}

impl SimulatedTask {
    /// The product, if it is of this type: tasks of other protocols share the store.
    pub(super) fn product<P: Product>(&self) -> Option<&P> {
        let product: &dyn Any = &*self.product;
        product.downcast_ref()
    }

    pub(super) fn state(&self) -> SimulatedTaskState {
        if self.cancelled.is_some() {
            return SimulatedTaskState::Ended(TaskEnd::Cancelled);
        }
        let [_, running, ended] = self.course();
        let now = Instant::now();
        match () {
            // From the last state to the first: with no time in between, a task ends at once.
            () if now >= ended.0 => ended.1,
            () if now >= running.0 => running.1,
            () => SimulatedTaskState::Pending,
        }
    }

    /// States in order, unless it is cancelled, with the start of each.
    pub(super) fn course(&self) -> [(Instant, SimulatedTaskState); 3] {
        let running = self.began + self.settings.pending;
        let ended = running + self.settings.running;
        [
            (self.began, SimulatedTaskState::Pending),
            (running, SimulatedTaskState::Running),
            (ended, SimulatedTaskState::Ended(self.settings.end)),
        ]
    }

    /// Time at which it entered `state`.
    pub(super) fn changed(&self, state: SimulatedTaskState) -> UnixMs {
        let after = match state {
            SimulatedTaskState::Pending => 0,
            SimulatedTaskState::Running => self.settings.pending.as_millis(),
            SimulatedTaskState::Ended(_) => {
                (self.settings.pending + self.settings.running).as_millis()
            }
        };
        let planned = self.submitted.0.saturating_add(u64::try_from(after).unwrap_or(u64::MAX));
        self.cancelled.unwrap_or(UnixMs(planned))
    }

    /// Error code of its failure.
    pub(super) fn code<'a>(&'a self, usual: &'a str) -> &'a str {
        self.error_code.as_deref().unwrap_or(usual)
    }

    fn shown(&self) -> SimTask {
        SimTask {
            id: self.id.clone(),
            protocol: self.product.protocol(),
            model: self.model.clone(),
            submitted: self.submitted,
            body_sha256: self.body_sha256.clone(),
            queries: self.queries,
            state: self.state(),
        }
    }
}

/// Latest tasks, oldest first.
#[derive(Debug)]
pub(super) struct TaskHistory {
    /// Salt that distinguishes the ids of two simulators.
    salt: u64,
    kept: Mutex<StoredTasks>,
}

#[derive(Debug, Default)]
struct StoredTasks {
    tasks: VecDeque<SimulatedTask>,
    /// Number of tasks submitted before, by id.
    numbers: HashMap<String, u64>,
    submitted: u64,
}

impl Default for TaskHistory {
    fn default() -> Self {
        Self { salt: fastrand::u64(..), kept: Mutex::default() }
    }
}

impl TaskHistory {
    /// Accept a task and return its id.
    pub(super) fn submit(
        &self,
        http_request: &ReceivedRequest<'_>,
        model: String,
        product: impl Product,
        behaviour: &Behaviour,
    ) -> String {
        let mut kept = self.kept.lock();
        let (number, submitted) = (kept.submitted, UnixMs::now());
        let id = product.task_id(submitted, TaskNumber { salt: self.salt, number });
        if kept.tasks.len() == TASKS_MAX
            && let Some(oldest) = kept.tasks.pop_front()
        {
            kept.numbers.remove(&oldest.id);
        }
        // Never lowered, also where the oldest task goes: places are counted from it.
        kept.submitted += 1;
        kept.numbers.insert(id.clone(), number);
        kept.tasks.push_back(SimulatedTask {
            id: id.clone(),
            model,
            submitted,
            product: Box::new(product),
            error_code: behaviour.error_code.clone(),
            cancelled: None,
            is_deleted: false,
            began: Instant::now(),
            settings: behaviour.task,
            // Decided at the submit: settings that change later do not bring a lost task back.
            is_lost: behaviour.faults.task_lost,
            body_sha256: http_request.body_sha256.to_owned(),
            queries: 0,
        });
        id
    }

    /// Access a task, possibly changing it. `None` for one that is unknown, deleted or simulated as
    /// lost.
    pub(super) fn with<T>(
        &self,
        id: &str,
        look: impl FnOnce(&mut SimulatedTask) -> T,
    ) -> Option<T> {
        self.kept.lock().find(id).filter(|task| !task.is_lost && !task.is_deleted).map(look)
    }

    /// Visit all visible tasks, newest first.
    pub(super) fn each_from_newest(&self, look: impl FnMut(&SimulatedTask)) {
        let kept = self.kept.lock();
        kept.tasks.iter().rev().filter(|task| !task.is_lost && !task.is_deleted).for_each(look);
    }

    /// Count a query of a task, if it exists.
    pub(super) fn count_query(&self, id: &str) {
        if let Some(task) = self.kept.lock().find(id) {
            task.queries += 1;
        }
    }

    pub(super) fn all(&self) -> Vec<SimTask> {
        self.kept.lock().tasks.iter().map(SimulatedTask::shown).collect()
    }

    /// Tasks accepted, evicted ones included.
    pub(super) fn submitted(&self) -> u64 {
        self.kept.lock().submitted
    }

    pub(super) fn to_json(&self) -> Value {
        self.all().iter().map(SimTask::to_json).collect()
    }
}

impl StoredTasks {
    fn find(&mut self, id: &str) -> Option<&mut SimulatedTask> {
        // The queue only loses its oldest tasks, so a number and what was lost give the place.
        let forgotten = self.submitted - self.tasks.len() as u64;
        let place = usize::try_from(self.numbers.get(id)?.checked_sub(forgotten)?).ok()?;
        self.tasks.get_mut(place)
    }
}

/// Answer to an accepted submit, unless `behaviour` withholds it.
pub(super) fn taken_in(body: &Value, behaviour: &Behaviour) -> Answer {
    // The task is in the store by now: the fault takes only the answer away, and the upstream works.
    Answer { withheld: behaviour.faults.submit, ..record(body, behaviour) }
}

/// Answer with task records.
pub(super) fn record(body: &Value, behaviour: &Behaviour) -> Answer {
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(false);
    }
    Answer::json(body.to_string(), behaviour)
}

/// Time in Beijing, as in DashScope's times and Ark's ids.
pub(super) fn in_beijing(at: UnixMs) -> Option<OffsetDateTime> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000).ok()?;
    Some(time.to_offset(offset!(+8)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;

    #[derive(Debug)]
    struct TestProduct;

    impl Product for TestProduct {
        fn protocol(&self) -> TaskProtocol {
            TaskProtocol::Xai
        }

        fn task_id(&self, _: UnixMs, number: TaskNumber) -> String {
            number.uuid()
        }
    }

    #[test]
    fn only_the_last_tasks_are_remembered() {
        let (tasks, behaviour) = (TaskHistory::default(), Behaviour::default());
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        let http_request = ReceivedRequest {
            method: &Method::POST,
            path: "/v1/videos/generations",
            query: "",
            headers: &headers,
            host: "sim",
            body: &body,
            body_sha256: "",
            number: 0,
        };
        let submit =
            |model: &str| tasks.submit(&http_request, model.to_owned(), TestProduct, &behaviour);
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
