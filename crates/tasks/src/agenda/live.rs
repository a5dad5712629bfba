//! Latest status of open tasks, in the memory of this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::UpstreamStatus;
use tollgate_ledger::{Task, TaskId};

/// State of an open task in this process.
pub(super) struct LiveTask {
    pub(super) status: Mutex<UpstreamStatus>,
    /// Time of the last poll. Locked during a poll, so that only one runs at a time.
    pub(super) last_poll: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// Notified when the task ends.
    pub(super) ended: Notify,
}

/// All open tasks with a status. Not persisted: a restart polls the upstreams again.
#[derive(Default)]
pub(super) struct LiveTasks(Mutex<HashMap<TaskId, Arc<LiveTask>>>);

impl LiveTasks {
    /// The entry of a task, created if missing. The caller checks afterwards whether the task has ended
    /// and then removes the entry, since the end may have come first.
    pub(super) fn entry(&self, task: &Task) -> Arc<LiveTask> {
        let new = || {
            Arc::new(LiveTask {
                status: Mutex::new(UpstreamStatus::initial(task)),
                last_poll: Arc::default(),
                ended: Notify::new(),
            })
        };
        Arc::clone(self.0.lock().entry(task.id()).or_insert_with(new))
    }

    /// Remove the entry of a task that has ended.
    pub(super) fn forget(&self, task: TaskId) {
        self.0.lock().remove(&task);
    }

    /// Latest status of a task; the initial one if there is no entry.
    pub(super) fn last_status(&self, task: &Task) -> UpstreamStatus {
        let live = self.0.lock().get(&task.id()).cloned();
        live.map_or_else(|| UpstreamStatus::initial(task), |live| live.status.lock().clone())
    }
}
