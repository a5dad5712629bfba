//! Work that outlives its request: video. A [`Codec`](super::Codec) of such an operation reads a
//! submit into a call that is a [`Submit`]; a [`TaskCodec`] asks the upstream how the task is, and
//! writes the record that the customer reads.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Dialect, Fault};
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;
use tollgate_types::error::GatewayError;
use tollgate_types::words::words;

/// How long tasks are waited for where the request does not say (spec section 2.5).
pub const EXPIRES_AFTER_S: u64 = 172_800;
/// The document of a result that is kept as it came, in bytes. Two prompts of 4,096 characters are
/// 48 KiB at most, and nothing else in a result has come to 4 KiB. What is cut above it are texts:
/// never a URL, what was used, or a seed.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 10;

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
        /// It is done, and its result is there.
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

    /// What the customer reads of a failure of the upstream's own, if no other target can serve: `None`
    /// for what every failure is answered with.
    fn failure(&self, _status: u16, _body: &Bytes) -> Option<GatewayError> {
        None
    }
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
    /// Encodes the facts in few bytes: they are kept with every task.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Encoding into memory fails for no type that is used here.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Reads what [`Self::encode`] wrote; `None` for anything else.
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

    /// The record that the customer reads: a JSON object.
    fn record(&self, shown: &Shown<'_>) -> String;

    /// The document of a task that the gateway ends itself with this `error`, after `said` was the
    /// document of the last report: empty where there was none.
    fn given_up(&self, _said: &str, error: &Error) -> String {
        json!({"error": error}).to_string()
    }
}

/// How a task is. What it used is as the upstream reports it, also beyond what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The state in which the task is.
    pub state: TaskState,
    /// What it used, of a task that has ended: `None` for "nothing that is charged" where it came to
    /// nothing, and for "not told" where it succeeded.
    pub usage: Option<Usage>,
    /// What the upstream says that it bills, where it says so in money.
    pub billed: Option<Nanousd>,
    /// What the customer's record needs of the answer, without the operator's matters: JSON, and no
    /// larger than [`DOCUMENT_BYTES_MAX`] but for what the customer has paid for.
    pub document: String,
}

/// Why a task came to nothing, as its record says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Error {
    /// A word for programs.
    pub code: &'static str,
    /// What happened, in words for the customer.
    pub message: &'static str,
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
    /// The document of the last report; empty before the first.
    pub document: &'a str,
    /// When it was submitted, in seconds since 1970.
    pub created_at: u64,
    /// When its state was last seen to change, likewise.
    pub updated_at: u64,
}
