//! Work that outlives its request: video. A [`Codec`](super::Codec) of such an operation reads a
//! submit into a call that is a [`Submit`]; a [`TaskCodec`] asks the upstream how the task is, and
//! writes the record that the customer reads.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Dialect, UpstreamFault};
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;
use tollgate_types::error::GatewayError;
use tollgate_types::words::words;

/// Lifetime of tasks whose request sets none (spec section 2.5).
pub const EXPIRES_AFTER_S: u64 = 172_800;
/// The document of a result that is kept as it came, in bytes. Two prompts of 4,096 characters are
/// 48 KiB at most, and nothing else in a result has come to 4 KiB. What is cut above it are texts:
/// never a URL, what was used, or a seed.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 10;

words! {
    /// State of a task, in the customers' words (spec section 3).
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    TaskState {
        /// The task was accepted; its state is unknown.
        Processing = "processing",
        /// The upstream has queued the task.
        Queued = "queued",
        /// The upstream is at work.
        Running = "running",
        /// The task is finished and its result is available.
        Succeeded = "succeeded",
        /// The task failed.
        Failed = "failed",
        /// It was not done in time.
        Expired = "expired",
        /// The task was cancelled.
        Cancelled = "cancelled",
    }
}

impl TaskState {
    /// True if the state is final.
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

    /// Facts of the request that are needed when the task ends: stored with the task.
    fn facts(&self) -> TaskFacts;

    /// True if the customer's connection waits for the end.
    fn waits(&self) -> bool;

    /// URL that receives a webhook at the end.
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
    fn read(&self, answer: &Bytes) -> Result<String, UpstreamFault>;

    /// Classifies a refusal by its fault.
    fn refusal(&self, status: u16, body: &Bytes) -> UpstreamFault;

    /// The error shown to the customer for a failure of the upstream's own, if no other target can serve;
    /// `None` for the general error.
    fn failure(&self, _status: u16, _body: &Bytes) -> Option<GatewayError> {
        None
    }
}

/// Facts of a submit that are stored with its task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFacts {
    /// Maximum usage: the amount held, and the charge of a successful task without reported usage.
    pub max_usage: Usage,
    /// Requested seconds of video.
    pub seconds: u32,
    /// The resolution, in the customers' words.
    pub resolution: String,
    /// The aspect ratio, in the customers' words.
    pub aspect_ratio: String,
    /// Time limit of the task, in seconds.
    pub expires_after_s: u64,
}

impl TaskFacts {
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

/// A dialect's polling and presentation of tasks.
pub trait TaskCodec: Sync {
    /// The upstreams' dialect.
    fn dialect(&self) -> Dialect;

    /// True if customers get the upstream's id and answer to a submit unchanged; otherwise the gateway gives
    /// a task an id of its own.
    fn is_native(&self) -> bool {
        false
    }

    /// The path below an upstream's base URL at which the task is asked about.
    fn query_path(&self, upstream_id: &str) -> String;

    /// Reads how a task is.
    ///
    /// # Errors
    /// When the answer tells nothing about the task: it is asked again later.
    fn read(
        &self,
        status: u16,
        answer: &Bytes,
        facts: &TaskFacts,
    ) -> Result<TaskReport, UpstreamFault>;

    /// The record that the customer reads: a JSON object.
    fn record(&self, shown: &TaskRecordView<'_>) -> String;

    /// The document of a task that the gateway ends itself with this `error`, after `said` was the
    /// document of the last report: empty where there was none.
    fn given_up(&self, _document: &str, error: &TaskError) -> String {
        json!({"error": error}).to_string()
    }
}

/// State of a task. Its usage is the upstream's report, also beyond what was requested.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// The state in which the task is.
    pub state: TaskState,
    /// Usage of a task that has ended. `None` means no charge for a task that failed, and no report for one
    /// that succeeded.
    pub usage: Option<Usage>,
    /// The amount that the upstream bills, where it reports money.
    pub billed: Option<Nanousd>,
    /// Members of the answer for the customer's record, without the operator's matters: JSON, and no larger
    /// than [`DOCUMENT_BYTES_MAX`] but for paid content.
    pub document: String,
}

/// Error of a failed task, as its record shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TaskError {
    /// A word for programs.
    pub code: &'static str,
    /// Description of the error for the customer.
    pub message: &'static str,
}

/// Contents of a task's record.
#[derive(Clone, Copy, Debug)]
pub struct TaskRecordView<'a> {
    /// The id that the customer knows.
    pub id: &'a str,
    /// The public id of the model.
    pub model: &'a str,
    /// State of the task.
    pub state: TaskState,
    /// Facts of the request.
    pub facts: &'a TaskFacts,
    /// The document of the last report; empty before the first.
    pub document: &'a str,
    /// Time of the submit, in seconds since 1970.
    pub created_at: u64,
    /// Time of the last observed change of state, in seconds since 1970.
    pub updated_at: u64,
}
