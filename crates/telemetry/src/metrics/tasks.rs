//! Metrics of work that outlives its request.

use prometheus::{IntCounterVec, Registry};

use super::register::int_counters;
use super::{Metrics, series};
use crate::finished::TaskEnded;
use tollgate_types::words::words;

words! {
    /// Outcome of an attempt to deliver a webhook.
    WebhookOutcome {
        /// The receiver took it.
        Taken = "taken",
        /// The receiver does not want any more of them.
        Gone = "gone",
        /// The receiver did not accept it: it is retried or given up.
        Failed = "failed",
    }
}

/// The counters of tasks.
pub(super) struct TaskCounters {
    ended: IntCounterVec,
    webhook_tries: IntCounterVec,
}

impl TaskCounters {
    pub(super) fn new(r: &Registry) -> Self {
        let made = Self {
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
        };
        for outcome in WebhookOutcome::ALL {
            // A rate needs the zero that comes before the first.
            made.webhook_tries.with_label_values(&[outcome.as_str()]).inc_by(0);
        }
        made
    }

    /// The counter of one way to end at zero.
    pub(super) fn begin(&self, model: &str, upstream: &str, state: &str) {
        self.ended.with_label_values(&[model, upstream, state]).inc_by(0);
    }
}

impl Metrics {
    /// Counts a finished task and its charge.
    pub fn task_ended(&self, task: &TaskEnded<'_>) {
        self.tasks.ended.with_label_values(&[task.model, task.upstream, task.state]).inc();
        if let Some(settled) = &task.settled {
            series::BillingMetrics::new(self, task.model).record(settled, task.held);
        }
    }

    /// Counts a try to announce a task's end.
    pub fn webhook_tried(&self, outcome: WebhookOutcome) {
        self.tasks.webhook_tries.with_label_values(&[outcome.as_str()]).inc();
    }
}
