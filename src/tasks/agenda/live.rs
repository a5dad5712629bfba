//! What upstreams said last of tasks that have not ended, in the memory of this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Said;
use crate::ledger::{Task, TaskId};

/// A task that has not ended, as this process knows it.
pub(super) struct Live {
    pub(super) said: Mutex<Said>,
    /// When the upstream was asked last. Locked while it is: one question at a time.
    pub(super) asked: Arc<tokio::sync::Mutex<Option<Instant>>>,
    /// The task has ended.
    pub(super) ended: Notify,
}

/// All of them. In memory: after a restart the upstreams are asked again.
#[derive(Default)]
pub(super) struct AllLive(Mutex<HashMap<TaskId, Arc<Live>>>);

impl AllLive {
    /// The entry of a task, made if it is not there. Who makes one looks afterwards whether the task
    /// has ended, and lets it go then: the end may have come before the entry.
    pub(super) fn entry(&self, task: &Task) -> Arc<Live> {
        let new = || {
            Arc::new(Live {
                said: Mutex::new(Said::nothing(task)),
                asked: Arc::default(),
                ended: Notify::new(),
            })
        };
        Arc::clone(self.0.lock().entry(task.id()).or_insert_with(new))
    }

    /// The task has ended.
    pub(super) fn let_go(&self, task: TaskId) {
        self.0.lock().remove(&task);
    }

    /// What the upstream said last of a task; nothing where no entry is.
    pub(super) fn last_said(&self, task: &Task) -> Said {
        let live = self.0.lock().get(&task.id()).cloned();
        live.map_or_else(|| Said::nothing(task), |live| live.said.lock().clone())
    }
}
