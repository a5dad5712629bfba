//! Record of one request, and its encoding.
//!
//! ```text
//! content  previous position u64 | account u64 | ended at u64 | postcard of the rest
//!          | postcard of what is owed, where something is, or where more follows
//!          | postcard of the model that was asked for, where a fallback has served it
//! ```
//!
//! All integers are little-endian. The frame around it is that of [`ring`]. The previous position is
//! that of the same account's record before; zero for none.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_journal::EncodeError;
use tollgate_journal::ring::{self, CONTENT_AT, Layout};

use crate::finished::{FinishedRequest, RequestSettlement, TaskEnded};
use tollgate_ledger::{AccountId, KeyId, RequestId, TaskId};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::clock::UnixMs;

/// Layout of the log's files.
pub(super) const LAYOUT: Layout = Layout {
    magic: b"TGREQUESTLOG",
    version: 1,
    extension: "log",
    frame_bytes_min: ring::FRAME_BYTES + HEAD_BYTES,
    // A record has some 150 bytes; names are cut so that none comes near this.
    frame_bytes_max: 2048,
};
/// Length at which a name is cut, in bytes: a model's id has at most as many.
const NAME_BYTES_MAX: usize = 256;
/// Previous position, account and end.
const HEAD_BYTES: usize = 24;

/// The account under which requests are kept whose key was not recognised. Ids are random: none is
/// zero.
pub(super) const NOBODY: u64 = 0;

/// A record's place in the log. Later records have larger ones.
pub use tollgate_journal::ring::RingPosition;

/// Record of a finished request or task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Position in the log, the cursor for the next page.
    pub position: RingPosition,
    /// The request's id; `None` for the end of a task.
    pub request_id: Option<RequestId>,
    /// The task that the request has started, or whose end this is.
    pub task_id: Option<TaskId>,
    /// The word for how the task ended; `None` for a request.
    pub task_state: Option<String>,
    /// Account; `None` when the key was not recognised.
    pub account_id: Option<AccountId>,
    /// The key (its id); `None` when it was not recognised.
    pub key_id: Option<KeyId>,
    /// Time of its end.
    pub ended_at: UnixMs,
    /// The configured path; empty when none matched.
    pub route: String,
    /// Name of the operation; empty if there was none.
    pub operation: String,
    /// The id of the model that answered or was tried last; empty when none was found.
    pub model: String,
    /// The id of the model that the request names, where a fallback answered or was tried last.
    pub requested_model: Option<String>,
    /// The name of the upstream that answered or was tried last; empty when none was.
    pub upstream: String,
    /// The status sent; 0 when none was, and for the end of a task.
    pub status: u16,
    /// `error.code` as sent, or the word for a failure after the first byte; empty when all went
    /// well.
    pub error_code: String,
    /// True if the answer was a stream of events.
    pub streamed: bool,
    /// Settlement; `None` without one.
    pub settled: Option<RequestSettlement>,
    /// Time to the first byte of the answer; `None` if none was sent.
    pub ttfb: Option<Duration>,
    /// Total duration.
    pub duration: Duration,
    /// Bytes of the request body that were read.
    pub bytes_in: u64,
    /// Bytes of the response body that were sent.
    pub bytes_out: u64,
    /// The output limit, in tokens for each choice, to which the request was lowered.
    pub max_tokens_clamped: Option<u64>,
}

impl RequestRecord {
    /// Time of its beginning.
    #[must_use]
    pub fn began_at(&self) -> UnixMs {
        let took_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        UnixMs(self.ended_at.0.saturating_sub(took_ms))
    }

    /// True if the request failed, whoever's fault it was.
    #[must_use]
    pub fn is_error(&self) -> bool {
        is_error(self.status, &self.error_code, self.task_state.as_deref().unwrap_or_default())
    }

    /// Output tokens per second from the first byte to the end; `None` where either is unknown.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "tokens of one answer are far below 2^53")]
    pub fn output_tokens_per_second(&self) -> Option<f64> {
        let tokens = self.settled?.usage.output_tokens;
        let took = self.duration.checked_sub(self.ttfb?)?.as_secs_f64();
        (tokens > 0 && took > 0.0).then(|| tokens as f64 / took)
    }
}

fn is_error(status: u16, error_code: &str, task_state: &str) -> bool {
    if !task_state.is_empty() {
        return task_state != "succeeded";
    }
    !(200..400).contains(&status) || !error_code.is_empty()
}

/// Content of a frame behind its head. The order of the fields is the format: it changes with the version of
/// the segments.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FrameContent<'a> {
    request: Option<RequestId>,
    task: Option<TaskId>,
    pub(super) key: Option<KeyId>,
    route: &'a str,
    operation: &'a str,
    pub(super) model: &'a str,
    upstream: &'a str,
    pub(super) status: u16,
    error_code: &'a str,
    task_state: &'a str,
    streamed: bool,
    settled: Option<(Usage, UsageSource, Nanousd)>,
    ttfb_us: Option<u64>,
    duration_us: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Optional field at the end, present only if something is owed: older records lack it, and older
    /// versions ignore it.
    #[serde(skip)]
    owed: Nanousd,
    /// Optional field after `owed`; empty if the requested model served.
    #[serde(skip)]
    requested_model: &'a str,
    /// Optional field after the requested model; zero if the limit was not lowered.
    #[serde(skip)]
    max_tokens_clamped: u64,
}

impl<'a> FrameContent<'a> {
    pub(super) fn of_request(finished: &FinishedRequest<'a>) -> Self {
        Self {
            request: Some(finished.request_id),
            task: finished.task_id,
            key: finished.key_id,
            route: cut(finished.route),
            operation: finished.operation.map_or("", |operation| operation.as_str()),
            model: cut(finished.model),
            upstream: cut(finished.upstream),
            status: finished.status,
            error_code: cut(finished.error_code),
            task_state: "",
            streamed: finished.streamed,
            settled: finished.settled.map(|it| (it.usage, it.source, it.cost)),
            ttfb_us: finished.ttfb.map(micros),
            duration_us: micros(finished.duration),
            bytes_in: finished.bytes_in,
            bytes_out: finished.bytes_out,
            owed: finished.settled.map_or(Nanousd::ZERO, |it| it.owed),
            requested_model: cut(finished.requested_model.unwrap_or_default()),
            max_tokens_clamped: finished.max_tokens_clamped.unwrap_or(0),
        }
    }

    pub(super) fn of_task(ended: &TaskEnded<'a>) -> Self {
        Self {
            request: None,
            task: Some(ended.task_id),
            key: Some(ended.key_id),
            route: "",
            operation: "",
            model: cut(ended.model),
            upstream: cut(ended.upstream),
            status: 0,
            error_code: "",
            task_state: ended.state,
            streamed: false,
            settled: ended.settled.map(|it| (it.usage, it.source, it.cost)),
            ttfb_us: None,
            duration_us: micros(ended.duration),
            bytes_in: 0,
            bytes_out: 0,
            owed: ended.settled.map_or(Nanousd::ZERO, |it| it.owed),
            requested_model: "",
            max_tokens_clamped: 0,
        }
    }

    pub(super) fn is_error(&self) -> bool {
        is_error(self.status, self.error_code, self.task_state)
    }

    /// True if the record names the model, as the requested or the serving one.
    pub(super) fn names(&self, model: &str) -> bool {
        self.model == model || !self.requested_model.is_empty() && self.requested_model == model
    }

    /// The record as readers get it.
    pub(super) fn shown(&self, position: RingPosition, head: &FrameHead) -> RequestRecord {
        let text = str::to_owned;
        RequestRecord {
            position,
            request_id: self.request,
            task_id: self.task,
            task_state: Some(text(self.task_state)).filter(|state| !state.is_empty()),
            account_id: Some(head.account)
                .filter(|account| *account != NOBODY)
                .map(AccountId::from_number),
            key_id: self.key,
            ended_at: head.ended_at,
            route: text(self.route),
            operation: text(self.operation),
            model: text(self.model),
            requested_model: Some(text(self.requested_model)).filter(|model| !model.is_empty()),
            upstream: text(self.upstream),
            status: self.status,
            error_code: text(self.error_code),
            streamed: self.streamed,
            settled: self.settled.map(|(usage, source, cost)| {
                let owed = self.owed;
                RequestSettlement { usage, source, cost, owed }
            }),
            ttfb: self.ttfb_us.map(Duration::from_micros),
            duration: Duration::from_micros(self.duration_us),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            max_tokens_clamped: Some(self.max_tokens_clamped).filter(|tokens| *tokens > 0),
        }
    }
}

/// The longest beginning of `name` that is short enough.
fn cut(name: &str) -> &str {
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    // At the boundary of a character: the middle of one is no text.
    let end = (0..=NAME_BYTES_MAX).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Head of every frame's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Position of the same account's previous record; zero for none.
    pub(super) previous: RingPosition,
    pub(super) account: u64,
    pub(super) ended_at: UnixMs,
}

/// Writes a frame into `frame`, whose capacity is reused. [`seal`] completes it.
pub(super) fn encode(
    frame: &mut Vec<u8>,
    account: u64,
    ended_at: UnixMs,
    stored: &FrameContent<'_>,
) -> Result<(), EncodeError> {
    ring::begin_frame(frame);
    frame.extend_from_slice(&[0; 8]);
    frame.extend_from_slice(&account.to_le_bytes());
    frame.extend_from_slice(&ended_at.0.to_le_bytes());
    tollgate_journal::encode(frame, stored)?;
    // Each of these values implies those before it: a reader knows them by what is left of the frame.
    let is_clamped = stored.max_tokens_clamped > 0;
    let has_requested_model = !stored.requested_model.is_empty() || is_clamped;
    if stored.owed > Nanousd::ZERO || has_requested_model {
        tollgate_journal::encode(frame, &stored.owed)?;
    }
    if has_requested_model {
        tollgate_journal::encode(frame, stored.requested_model)?;
    }
    if is_clamped {
        tollgate_journal::encode(frame, &stored.max_tokens_clamped)?;
    }
    ring::end_frame(frame);
    Ok(())
}

/// Enters the previous position into a frame that [`encode`] has made, and its checksum.
pub(super) fn seal(frame: &mut [u8], previous: RingPosition) {
    if let Some(place) = frame.get_mut(CONTENT_AT..CONTENT_AT + 8) {
        place.copy_from_slice(&previous.to_le_bytes());
    }
    // The checksum covers the position, which only the writer's thread knows.
    ring::seal_frame(frame);
}

/// Header of a frame that may be incomplete.
pub(super) fn head(frame: &[u8]) -> Option<FrameHead> {
    let (previous, rest) = frame.get(CONTENT_AT..)?.split_first_chunk()?;
    let (account, rest) = rest.split_first_chunk()?;
    let ended_at = rest.first_chunk()?;
    Some(FrameHead {
        previous: u64::from_le_bytes(*previous),
        account: u64::from_le_bytes(*account),
        ended_at: UnixMs(u64::from_le_bytes(*ended_at)),
    })
}

/// First bytes behind the head of a request's frame.
pub(super) fn mark_of(request: RequestId) -> Vec<u8> {
    // The id is the first field of `FrameContent`, so its encoding begins the record.
    postcard::to_stdvec(&Some(request)).unwrap_or_default()
}

/// True if the bytes behind a frame's head begin with `mark`.
pub(super) fn has_mark(frame: &[u8], mark: &[u8]) -> bool {
    frame.get(CONTENT_AT + HEAD_BYTES..).is_some_and(|rest| rest.starts_with(mark))
}

/// Record of a complete frame.
pub(super) fn stored(frame: &[u8]) -> Option<FrameContent<'_>> {
    let content = ring::content(frame)?.get(HEAD_BYTES..)?;
    let (mut stored, rest): (FrameContent<'_>, _) = postcard::take_from_bytes(content).ok()?;
    if !rest.is_empty() {
        let (owed, rest) = postcard::take_from_bytes(rest).ok()?;
        stored.owed = owed;
        if !rest.is_empty() {
            let (requested_model, rest) = postcard::take_from_bytes(rest).ok()?;
            stored.requested_model = requested_model;
            if !rest.is_empty() {
                (stored.max_tokens_clamped, _) = postcard::take_from_bytes(rest).ok()?;
            }
        }
    }
    Some(stored)
}
