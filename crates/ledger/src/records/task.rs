//! A task as it is: what never changes of it, the stages that it goes through, its end and the
//! announcement of that.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_money::price::{Prices, Usage};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, TaskId};

/// An asynchronous task with its current state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Immutable part of the task.
    pub intent: Arc<Intent>,
    /// The last called upstream, by its name in `routes.yaml`; if it has several credentials, followed by a
    /// slash and the name of the one used.
    pub upstream: String,
    /// The upstream's name of the model.
    pub upstream_model: String,
    /// Phase of the task.
    pub stage: TaskPhase,
    /// The announcement of its end.
    pub webhook: Webhook,
}

/// Immutable facts of a task, fixed at its submit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Unique id, assigned at creation.
    pub id: TaskId,
    /// Account of the task.
    pub account: AccountId,
    /// With which key it was submitted.
    pub key: KeyId,
    /// Hold that pays for it.
    pub hold: HoldId,
    /// The public id of the model.
    pub model: Arc<str>,
    /// Name of the upstream's protocol.
    pub protocol: String,
    /// Prices at the submit; a reload does not change them.
    pub prices: Prices,
    /// Facts that the protocol keeps of the request, in its own encoding.
    pub facts: Vec<u8>,
    /// Webhook that the end is announced to.
    pub webhook_url: Option<String>,
    /// Idempotency key of the submit.
    pub repeat: Option<RepeatKey>,
    /// Time of the submit.
    pub at: UnixMs,
    /// Time at which the gateway gives the task up.
    pub expires_at: UnixMs,
}

/// Idempotency key of a submit, with the digest of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatKey {
    /// The SHA-256 of what the customer calls the submit.
    pub key: [u8; 32],
    /// The SHA-256 of its body.
    pub body: [u8; 32],
}

/// Phase of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "nearly all tasks there are have ended")]
pub enum TaskPhase {
    /// The upstream is about to be asked, or has been and has not answered. Found at a start, it is in
    /// doubt: the upstream may be at work.
    Submitting,
    /// The upstream did not answer a submit that it may have taken: in doubt until it expires.
    InDoubt,
    /// The upstream accepted the task.
    Submitted {
        /// Id and answer of the upstream.
        upstream_id: UpstreamTask,
    },
    /// It is over, and its hold with it.
    Ended(EndedTask),
}

/// An upstream's id of a task, and its answer to the submit if that is kept.
///
/// It is written as one text, the id and behind a line feed the answer: journals from before it was kept
/// have the id alone. Ids become a part of paths, and have no line feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UpstreamTask(String);

impl UpstreamTask {
    /// The longest answer that is kept, in bytes. Real ones have a hundred.
    pub const ANSWER_BYTES_MAX: usize = 4096;

    /// An id, and the answer that it stood in.
    #[must_use]
    pub fn with_answer(id: &str, answer: &str) -> Self {
        if answer.len() > Self::ANSWER_BYTES_MAX {
            return Self::from(id);
        }
        Self(format!("{id}\n{answer}"))
    }

    /// The upstream's id of the task.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.split_once('\n').map_or(&self.0, |(id, _)| id)
    }

    /// The answer to the submit, if it is kept.
    #[must_use]
    pub fn answer(&self) -> Option<&str> {
        self.0.split_once('\n').map(|(_, answer)| answer)
    }
}

impl From<&str> for UpstreamTask {
    /// An id alone.
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTask {
    /// Id and answer of the upstream, if one accepted the task.
    pub upstream_id: Option<UpstreamTask>,
    /// Final state, as customers read it.
    pub state: String,
    /// Last answer of the upstream in JSON, reduced to the customer's record.
    pub document: String,
    /// Amount paid by the customer.
    pub charged: Nanousd,
    /// Usage of the call, by unit.
    pub usage: Usage,
    /// Time of the end.
    pub at: UnixMs,
}

/// The webhook of a finished task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Webhook {
    /// No webhook is sent.
    None,
    /// It is due, or will be when the task ends.
    Due {
        /// Tries that failed.
        tries: u32,
        /// Time of the next attempt; not before the end.
        at: UnixMs,
    },
    /// The webhook was delivered.
    Delivered,
    /// It could not be delivered, and is not tried again.
    GivenUp,
}

impl Task {
    /// Unique id, assigned at creation.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.intent.id
    }

    /// The upstream's id of the task, once known.
    #[must_use]
    pub fn upstream_id(&self) -> Option<&str> {
        match &self.stage {
            TaskPhase::Submitting | TaskPhase::InDoubt => None,
            TaskPhase::Submitted { upstream_id } => Some(upstream_id.id()),
            TaskPhase::Ended(ended) => ended.upstream_id.as_ref().map(UpstreamTask::id),
        }
    }

    /// Id and answer of the upstream that accepted it.
    #[must_use]
    pub fn taken(&self) -> Option<&UpstreamTask> {
        match &self.stage {
            TaskPhase::Submitting | TaskPhase::InDoubt => None,
            TaskPhase::Submitted { upstream_id } => Some(upstream_id),
            TaskPhase::Ended(ended) => ended.upstream_id.as_ref(),
        }
    }

    /// The name of its upstream.
    #[must_use]
    pub fn upstream_name(&self) -> &str {
        self.upstream.split_once('/').map_or(&self.upstream, |(name, _)| name)
    }

    /// The name of the credential that the upstream knows it by; empty where there is only one.
    #[must_use]
    pub fn credential_name(&self) -> &str {
        self.upstream.split_once('/').map_or("", |(_, name)| name)
    }

    /// Its end, if it is over.
    #[must_use]
    pub fn ended(&self) -> Option<&EndedTask> {
        match &self.stage {
            TaskPhase::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// True if no work remains.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ended().is_some() && !matches!(self.webhook, Webhook::Due { .. })
    }

    /// Transition table of task phases: true if `self` can become `next`.
    #[must_use]
    pub fn can_become(&self, next: &Self) -> bool {
        use TaskPhase::{Ended, InDoubt, Submitted, Submitting};
        let stages = match (&self.stage, &next.stage) {
            // Another upstream is asked; it was taken; nobody knows; nobody took it.
            (Submitting, _)
            | (InDoubt, Submitted { .. } | Ended(_))
            | (Submitted { .. }, Ended(_)) => true,
            // The announcement goes on.
            (Ended(before), Ended(after)) => before == after,
            _ => false,
        };
        stages && self.intent == next.intent
    }
}

/// The longest reason for a failed try that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 256;

/// The last try of an announcement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryAttempt {
    /// The status that the receiver answered; `None` where it did not answer.
    pub status: Option<u16>,
    /// Reason for a failed connection.
    pub error: Option<String>,
    /// Time of the attempt.
    pub at: UnixMs,
}

impl DeliveryAttempt {
    /// A try that was answered, or failed for a reason, now.
    #[must_use]
    pub fn now(came_of_it: Result<u16, String>) -> Self {
        let at = UnixMs::now();
        match came_of_it {
            Ok(status) => Self { status: Some(status), error: None, at },
            Err(mut error) => {
                let fits = (0..=ERROR_BYTES_MAX.min(error.len()))
                    .rev()
                    .find(|end| error.is_char_boundary(*end));
                error.truncate(fits.unwrap_or(0));
                Self { status: None, error: Some(error), at }
            }
        }
    }
}
