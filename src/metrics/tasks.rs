//! What is counted of work that outlives its request.

use prometheus::{IntCounterVec, Registry};

use super::register::int_counters;
use super::{Metrics, series};
use crate::finished::TaskEnded;

/// The counters of tasks.
pub(super) struct TaskCounters {
    ended: IntCounterVec,
    webhook_tries: IntCounterVec,
}

impl TaskCounters {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            ended: int_counters(
                r,
                "tollgate_tasks_ended_total",
                "Tasks that are over, by how they ended.",
                &["model", "upstream", "state"],
            ),
            webhook_tries: int_counters(
                r,
                "tollgate_webhook_tries_total",
                "Tries to announce a task's end, by what came of them.",
                &["outcome"],
            ),
        }
    }
}

impl Metrics {
    /// Counts a task that is over, and what was billed for it.
    pub fn task_ended(&self, task: &TaskEnded<'_>) {
        self.tasks.ended.with_label_values(&[task.model, task.upstream, task.state]).inc();
        if let Some(settled) = &task.settled {
            series::Billed::new(self, task.model).record(settled);
        }
    }

    /// Counts a try to announce a task's end.
    pub fn webhook_tried(&self, outcome: &'static str) {
        self.tasks.webhook_tries.with_label_values(&[outcome]).inc();
    }
}
