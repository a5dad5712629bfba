//! Work that outlives its request: video. A [`Codec`](super::Codec) of such an operation reads a
//! submit into a call that is a [`Submit`]; a [`TaskCodec`] asks the upstream how the task is, and
//! writes the record that the customer reads.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Dialect, Fault, ark_video, dashscope_video, xai_video};
use crate::price::Usage;
use crate::words::words;

/// How long tasks are waited for where the request does not say (spec section 2.5).
pub const EXPIRES_AFTER_S: u64 = 172_800;

words! {
    /// Where a task is, in the customers' words (spec section 3).
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    TaskState {
        /// It was accepted; nothing more is known yet.
        Processing = "processing",
        /// The upstream has it in its queue.
        Queued = "queued",
        /// The upstream is at work.
        Running = "running",
        /// It is done.
        Succeeded = "succeeded",
        /// It came to nothing.
        Failed = "failed",
        /// It was not done in time.
        Expired = "expired",
        /// It was called off.
        Cancelled = "cancelled",
    }
}

impl TaskState {
    /// Whether nothing more happens.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Expired | Self::Cancelled)
    }
}

/// A call that starts a task.
pub trait Submit {
    /// The body for a target that calls the model `upstream_model`, for a customer's `body`.
    fn body(&self, upstream_model: &str, body: &Bytes) -> Bytes;

    /// Headers that the upstream wants beside the usual ones.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// What must be known of the request when the task ends: it is kept with the task.
    fn facts(&self) -> Facts;

    /// Whether the customer wants to wait for the end.
    fn waits(&self) -> bool;

    /// Where the gateway announces the end.
    fn webhook_url(&self) -> Option<&str> {
        None
    }

    /// Ids of tasks that the request builds on: they must be the customer's own.
    fn tasks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads a good answer: the upstream's id of the task.
    ///
    /// # Errors
    /// What the upstream said instead, with a good status.
    fn read(&self, answer: &Bytes) -> Result<String, Fault>;

    /// What a refusal says.
    fn refusal(&self, status: u16, body: &Bytes) -> Fault;
}

/// What is kept of a submit with its task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The most that it can use: what the hold covers, and what is charged if a task that has
    /// succeeded does not tell.
    pub bound: Usage,
    /// Seconds of video that were asked for.
    pub seconds: u32,
    /// The resolution, in the customers' words.
    pub resolution: String,
    /// The aspect ratio, in the customers' words.
    pub aspect_ratio: String,
    /// After so many seconds the task is given up.
    pub expires_after_s: u64,
}

impl Facts {
    /// As few bytes as say it: they are kept with every task.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Encoding into memory fails for no type that is used here.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// What [`Self::encode`] wrote.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// How the tasks of a dialect are asked about, and shown.
pub trait TaskCodec: Sync {
    /// Which upstreams it is about.
    fn dialect(&self) -> Dialect;

    /// Whether customers know the upstream's id and answer to a submit as they are; else the gateway
    /// gives a task an id of its own.
    fn is_native(&self) -> bool {
        false
    }

    /// The path below an upstream's base URL at which the task is asked about.
    fn query_path(&self, upstream_id: &str) -> String;

    /// Reads how a task is.
    ///
    /// # Errors
    /// When the answer tells nothing about the task: it is asked again later.
    fn read(&self, status: u16, answer: &Bytes, facts: &Facts) -> Result<Report, Fault>;

    /// The record that the customer reads.
    fn record(&self, shown: &Shown<'_>) -> Value;
}

/// How a task is.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Where it is.
    pub state: TaskState,
    /// What it used, of a task that has ended: `None` for "nothing that is charged" where it came to
    /// nothing, and for "not told" where it succeeded.
    pub usage: Option<Usage>,
    /// What the customer's record needs of the answer: small, and without the operator's matters.
    pub document: Value,
}

/// What a record is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The id that the customer knows.
    pub id: &'a str,
    /// The public id of the model.
    pub model: &'a str,
    /// Where the task is.
    pub state: TaskState,
    /// What the request said.
    pub facts: &'a Facts,
    /// The document of the last report; null before the first.
    pub document: &'a Value,
    /// When it was submitted, in seconds since 1970.
    pub created_at: u64,
    /// When its state was last seen to change, likewise.
    pub updated_at: u64,
}

/// Every task codec of this build.
pub static TASK_REGISTRY: &[&dyn TaskCodec] =
    &[&dashscope_video::DashscopeTasks, &ark_video::ArkTasks, &xai_video::XaiTasks];

/// The task codec for upstreams that speak `dialect`.
#[must_use]
pub fn task_codec(dialect: Dialect) -> Option<&'static dyn TaskCodec> {
    TASK_REGISTRY.iter().find(|codec| codec.dialect() == dialect).copied()
}
