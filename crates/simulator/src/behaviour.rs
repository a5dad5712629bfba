//! Behaviour of a simulated upstream, and its settings.

mod settings;
mod tasks;

use std::time::Duration;

use crate::provider::ChatProvider;

pub use settings::BadSetting;
pub use tasks::{TaskEnd, TaskSettings, WithheldAnswer};

/// Behaviour of a simulated upstream for one request.
///
/// The default is an upstream that works, answers at once and reports honest usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Delay between a request's last byte and the answer's first. At most an hour.
    pub delay: Duration,
    /// Pieces of content in an answer, each a chunk when streamed. 0 to 100,000.
    pub chunks: u32,
    /// Delay between two chunks. At most an hour.
    pub interval: Duration,
    /// Words per chunk, each counted as one token. 0 to 10,000.
    pub words_per_chunk: u32,
    /// True to ignore `max_tokens` and `max_completion_tokens`.
    pub ignores_max_tokens: bool,
    /// Provider whose chat completions dialect is imitated.
    pub provider: ChatProvider,
    /// The reported usage, where it is not what the request and the answer suggest.
    pub usage: UsageFigures,
    /// The size of embedding vectors when the request does not ask for one. 1 to 65,536.
    pub dimensions: u32,
    /// True to return embeddings in base64 on request.
    pub knows_base64: bool,
    /// Base64 characters of each image, which is no valid picture then; 0 for a picture of one pixel. 0
    /// to 64 Mi; multiples of four are valid base64.
    pub image_bytes: u32,
    /// Form of the usage reports of DashScope's image models.
    pub usage_dialect: UsageDialect,
    /// Behaviour of tasks, such as videos.
    pub task: TaskSettings,
    /// Behaviour of token counting requests.
    pub count: CountSettings,
    /// API key required as `Authorization: Bearer`; `None` for no authentication.
    pub key: Option<String>,
    /// The `retry-after` header of error answers.
    pub retry_after: Option<String>,
    /// `error.code` of error answers, where it is not the one that goes with the status, and the code
    /// of tasks that fail.
    pub error_code: Option<String>,
    /// True to answer by path alone: the body is counted and discarded, nothing is hashed or recorded,
    /// and every chat gets the same JSON, as does every request for images. For benchmarks with large
    /// bodies, where parsing here would take CPU from the gateway under test.
    pub blind: bool,
    /// True to refuse requests to language models that the real provider's validator refuses, as
    /// implemented in [`strict`](crate::strict).
    pub strict: bool,
    /// Faults injected into every answer.
    pub faults: Faults,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            chunks: 8,
            interval: Duration::ZERO,
            words_per_chunk: 2,
            ignores_max_tokens: false,
            provider: ChatProvider::default(),
            usage: UsageFigures::default(),
            dimensions: 256,
            knows_base64: true,
            image_bytes: 0,
            usage_dialect: UsageDialect::default(),
            task: TaskSettings::default(),
            count: CountSettings::default(),
            key: None,
            retry_after: None,
            error_code: None,
            blind: false,
            strict: false,
            faults: Faults::default(),
        }
    }
}

/// Behaviour of token counting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountSettings {
    /// Delay before a count, if it differs from other answers. At most an hour.
    pub delay: Option<Duration>,
    /// Refusal in place of a count only.
    pub fault: Option<SimulatedRefusal>,
    /// The count in hundredths of the true one. 0 to 1,000.
    pub percent: u32,
}

impl Default for CountSettings {
    fn default() -> Self {
        Self { delay: None, fault: None, percent: 100 }
    }
}

/// Reported token counts. `None` leaves a figure to what the request and the answer suggest.
///
/// They are signed so that an impossible usage can be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageFigures {
    /// `prompt_tokens`, or what else went in: DashScope's characters, for example.
    pub prompt: Option<i64>,
    /// `completion_tokens`, or what else came out: DashScope's images and seconds, for example.
    pub completion: Option<i64>,
    /// Reported `prompt_tokens_details.cached_tokens`.
    pub cached: Option<i64>,
    /// Reported `completion_tokens_details.reasoning_tokens`.
    pub reasoning: Option<i64>,
}

/// Form of the usage reports of DashScope's image models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageDialect {
    /// Usage with `image_count`, `width` and `height`.
    #[default]
    Counted,
    /// `output_width`, `output_height`, `input_image_count`, `output_image_count`.
    Output,
}

/// Injected faults. The default is none; faults of different fields combine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Refusal in place of an answer.
    pub refusal: Option<SimulatedRefusal>,
    /// Position at which an answer breaks off.
    pub stop: Option<BreakPoint>,
    /// Form of the usage report.
    pub usage: UsageForm,
    /// Terminator of a stream.
    pub done: DoneMarker,
    /// Line terminator of a stream.
    pub line_end: LineEnd,
    /// Segmentation of a body into writes.
    pub writes: Writes,
    /// True to corrupt the checksum of the second piece of content, in streams of binary frames.
    pub checksum: bool,
    /// True to send comments between and inside events.
    pub comments: bool,
    /// The size in bytes of the one huge piece of content that is added.
    pub giant_bytes: Option<u32>,
    /// True to send a cookie and credential-like values in response headers.
    pub leak: bool,
    /// Failure in place of the answer to a submit whose task was accepted.
    pub submit: Option<WithheldAnswer>,
    /// True to answer queries of existing tasks with "not found".
    pub task_lost: bool,
}

/// Refusal in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedRefusal {
    /// Error response with this status, 400 to 599.
    Status(u16),
    /// 200 with the error body of a 500, as providers send who fail after all.
    ErrorIn200,
    /// TCP RST as soon as the head is read. Over HTTP/2 the stream is reset.
    Reset,
    /// TCP RST after the whole request is read. Over HTTP/2 the stream is reset.
    ResetAfterBody,
    /// The request is read and never answered.
    Hang,
    /// 200 with bytes that are neither JSON nor events.
    Garbage,
}

/// Position at which an answer breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakPoint {
    /// Chunks of content sent before it. An unstreamed body breaks off in its middle.
    pub after_chunks: u32,
    /// Manner of the break.
    pub how: Break,
}

/// Manner in which an answer breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The connection closes and the body is left unfinished.
    Cut,
    /// The body ends as if it were whole, without usage and `[DONE]`.
    Eof,
    /// Send nothing more, and keep the connection open.
    Hang,
    /// An error event comes, and the body ends. Unstreamed answers ignore it.
    ErrorFrame,
}

/// Form of the usage report. A forgery claims ten times the true usage unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageForm {
    /// The usage is reported once, and right.
    #[default]
    Honest,
    /// No report, requested or not.
    Missing,
    /// Right, but as a string that holds JSON, as DashScope has been seen to do. DashScope's tasks only.
    Text,
    /// The usage is reported with counts below zero.
    Negative,
    /// The largest counts that 64 bits hold.
    Huge,
    /// The honest report, then a forged one. Streams only.
    Twice,
    /// A forged report in the middle of the content, the honest one at the end. Streams only.
    Early,
    /// The honest report, and a forged one after `[DONE]`. Streams only.
    Late,
}

impl UsageForm {
    /// Select the report of this form: `None` if it is missing, or an impossible one in place of the honest
    /// one. Forgeries beside the honest report are up to the stream.
    pub(crate) fn select<T>(self, negative: T, huge: T, honest: impl FnOnce() -> T) -> Option<T> {
        match self {
            Self::Missing => None,
            Self::Negative => Some(negative),
            Self::Huge => Some(huge),
            Self::Honest | Self::Text | Self::Twice | Self::Early | Self::Late => Some(honest()),
        }
    }
}

/// Terminator of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoneMarker {
    /// One `[DONE]` at the end.
    #[default]
    Once,
    /// Two `[DONE]` at the end.
    Twice,
    /// No `[DONE]` at the end.
    Missing,
}

/// Line terminator of a stream; the standard of server-sent events allows all three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// A line feed: `\n`.
    #[default]
    Lf,
    /// A carriage return and a line feed: `\r\n`.
    CrLf,
    /// A carriage return: `\r`.
    Cr,
}

impl LineEnd {
    /// Bytes of the line terminator.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }
}

/// Segmentation of a body into writes, each a chunk of the transfer coding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// One write for each event.
    #[default]
    Whole,
    /// Cuts inside the field name, in the middle, and between the line ends of each event.
    Split,
    /// The words are not ASCII, and there is a cut inside each of their characters.
    Utf8Split,
    /// One byte for each write.
    Trickle,
}
