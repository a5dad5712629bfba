//! Behaviour of asynchronous tasks.

use std::str::FromStr;
use std::time::Duration;

use super::SimulatedRefusal;

/// Behaviour of tasks. All settings but `query_fault` are fixed at the submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSettings {
    /// Time in the pending state. At most an hour.
    pub pending: Duration,
    /// Time in the running state. At most an hour.
    pub running: Duration,
    /// State in which the task ends.
    pub end: TaskEnd,
    /// Refusal with which queries of a single task (not of lists) are answered; `None` for a normal answer.
    pub query_fault: Option<SimulatedRefusal>,
}

impl Default for TaskSettings {
    /// Long enough for a test to see each state, short enough not to wait for.
    fn default() -> Self {
        Self {
            pending: Duration::from_millis(50),
            running: Duration::from_millis(100),
            end: TaskEnd::default(),
            query_fault: None,
        }
    }
}

/// Final state of a task; protocols without a word for it use the nearest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskEnd {
    /// Succeeds with a video.
    #[default]
    Succeeded,
    /// Fails with an upstream error.
    Failed,
    /// Expires; DashScope then forgets the task.
    Expired,
    /// Cancelled, which xAI reports as failed.
    Cancelled,
    /// Blocked by moderation: charged at xAI, failed elsewhere.
    Moderated,
}

impl TaskEnd {
    /// The end as the setting `task-end` names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Moderated => "moderated",
        }
    }
}

impl FromStr for TaskEnd {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Succeeded, Self::Failed, Self::Expired, Self::Cancelled, Self::Moderated]
            .into_iter()
            .find(|end| end.as_str() == text)
            .ok_or("succeeded, failed, expired, cancelled or moderated")
    }
}

/// Failure in place of the answer to a submit, although its task was accepted and runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithheldAnswer {
    /// No response, on an open connection.
    Hang,
    /// TCP RST. Over HTTP/2 the stream is reset.
    Reset,
}
