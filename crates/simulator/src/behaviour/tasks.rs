//! What happens to tasks, which are submitted and then asked after.

use std::str::FromStr;
use std::time::Duration;

use super::Refusal;

/// What happens to tasks. All but the fault of queries is decided when a task is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSettings {
    /// How long a task waits. At most an hour.
    pub pending: Duration,
    /// How long it is worked on after that. At most an hour.
    pub running: Duration,
    /// How the task ends.
    pub end: TaskEnd,
    /// What comes instead of an answer to a query of one task. Nothing else has this fault.
    pub query_fault: Option<Refusal>,
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

/// How a task ends. Where a protocol has no word for it, the nearest one is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskEnd {
    /// It ends with a video.
    #[default]
    Succeeded,
    /// With an error of the upstream's own.
    Failed,
    /// It took too long. DashScope does not know such a task any more.
    Expired,
    /// It was cancelled. xAI calls that failed.
    Cancelled,
    /// The video is not shown because of what is on it. xAI charges for it; elsewhere the task failed.
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

/// What comes instead of the answer to a submit, though its task was taken in and is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// Nothing is answered, and the connection stays open.
    Hang,
    /// TCP RST. Over HTTP/2 the stream is reset.
    Reset,
}
