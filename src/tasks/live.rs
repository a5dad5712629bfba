//! What an upstream said last of tasks that have not ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::UnixMs;
use crate::fleet::postgres::tasks;
use crate::ledger::{Task, TaskId};
use crate::protocols::task::TaskState;

/// What the upstream said last.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) state: TaskState,
    pub(super) document: String,
    /// When the state became another.
    pub(super) changed_at: UnixMs,
}

impl Said {
    /// What is known of a task of which its upstream has said nothing.
    pub(super) fn nothing(task: &Task) -> Self {
        Self { state: TaskState::Processing, document: String::new(), changed_at: task.intent.at }
    }

    /// What another node may have heard.
    pub(super) fn heard(task: &Task, said: Option<&tasks::Said>) -> Self {
        let Some(said) = said else { return Self::nothing(task) };
        Self {
            state: TaskState::of(&said.state).unwrap_or(TaskState::Processing),
            document: said.document.clone(),
            changed_at: said.changed_at,
        }
    }
}

/// A task that has not ended, as this process knows it.
pub(super) struct Live {
    pub(super) said: Mutex<Said>,
    /// When the upstream was asked last. Locked while it is: one question at a time.
    pub(super) asked: tokio::sync::Mutex<Option<Instant>>,
    /// The task has ended.
    pub(super) changed: Notify,
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
                asked: tokio::sync::Mutex::default(),
                changed: Notify::new(),
            })
        };
        Arc::clone(self.0.lock().entry(task.id()).or_insert_with(new))
    }

    /// The task has ended.
    pub(super) fn let_go(&self, task: TaskId) {
        self.0.lock().remove(&task);
    }

    /// What is known of a task.
    pub(super) fn said(&self, task: &Task) -> Said {
        let live = self.0.lock().get(&task.id()).cloned();
        live.map_or_else(|| Said::nothing(task), |live| live.said.lock().clone())
    }
}
