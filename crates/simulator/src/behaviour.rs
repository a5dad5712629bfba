//! What a simulated upstream does.

mod settings;
mod tasks;

use std::time::Duration;

use crate::provider::ChatProvider;

pub use settings::BadSetting;
pub use tasks::{TaskEnd, TaskSettings, Withheld};

/// What a simulated upstream does with a request.
///
/// The default is an upstream that works, answers at once and reports honest usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// How long to wait between a request's last byte and the answer's first. At most an hour.
    pub delay: Duration,
    /// How many pieces of content an answer has, each a chunk when streamed. 0 to 100,000.
    pub chunks: u32,
    /// How long to wait between two chunks. At most an hour.
    pub interval: Duration,
    /// How many words a chunk has, each counted as one token. 0 to 10,000.
    pub words_per_chunk: u32,
    /// Whether `max_tokens` and `max_completion_tokens` of a request are ignored.
    pub ignores_max_tokens: bool,
    /// Whose chat completions are answered.
    pub provider: ChatProvider,
    /// The reported usage, where it is not what the request and the answer suggest.
    pub usage: UsageFigures,
    /// The size of embedding vectors when the request does not ask for one. 1 to 65,536.
    pub dimensions: u32,
    /// Whether embeddings come in base64 when a request asks for that.
    pub knows_base64: bool,
    /// How many characters of base64 each image has, which are no picture then; 0 for a picture of one
    /// pixel. 0 to 64 Mi; multiples of four are valid base64.
    pub image_bytes: u32,
    /// How DashScope's image models report usage.
    pub usage_dialect: UsageDialect,
    /// What happens to tasks, such as videos.
    pub task: TaskSettings,
    /// What happens to requests that have tokens counted.
    pub count: CountSettings,
    /// The key that requests must carry as `Authorization: Bearer`; `None` asks for none.
    pub key: Option<String>,
    /// The `retry-after` header of error answers.
    pub retry_after: Option<String>,
    /// `error.code` of error answers, where it is not the one that goes with the status, and the code
    /// of tasks that fail.
    pub error_code: Option<String>,
    /// Whether requests are answered by path alone: the body is counted and thrown away, nothing is
    /// hashed or recorded, and every chat gets the same JSON, as does every request for images. For
    /// measuring large bodies, where reading JSON here would take the processor from what is
    /// measured.
    pub blind: bool,
    /// Whether requests to language models are refused that the real provider's validator refuses, as
    /// [`strict`](crate::strict) has it.
    pub strict: bool,
    /// What goes wrong on the way, and when.
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

/// What happens to requests that have tokens counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountSettings {
    /// How long to wait before the count, where that is not as for other answers. At most an hour.
    pub delay: Option<Duration>,
    /// What comes instead of a count. Nothing else has this fault.
    pub fault: Option<Refusal>,
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
    /// The tokens that `prompt_tokens_details.cached_tokens` reports.
    pub cached: Option<i64>,
    /// The tokens that `completion_tokens_details.reasoning_tokens` reports.
    pub reasoning: Option<i64>,
}

/// How DashScope's image models report usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageDialect {
    /// With `image_count`, `width` and `height`.
    #[default]
    Counted,
    /// `output_width`, `output_height`, `input_image_count`, `output_image_count`.
    Output,
}

/// What goes wrong. The default is nothing; faults of different fields combine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// What comes instead of an answer.
    pub refusal: Option<Refusal>,
    /// Where an answer breaks off.
    pub stop: Option<Stop>,
    /// How usage is reported.
    pub usage: UsageForm,
    /// How a stream ends.
    pub done: DoneMarker,
    /// How the lines of a stream end.
    pub line_end: LineEnd,
    /// How a body is cut into writes.
    pub writes: Writes,
    /// Whether the checksum of the second piece of content is wrong, in streams of binary frames.
    pub checksum: bool,
    /// Whether comments stand between events and inside them.
    pub comments: bool,
    /// The size in bytes of the one huge piece of content that is added.
    pub giant_bytes: Option<u32>,
    /// Whether the answer's headers carry a cookie and what looks like the operator's credentials.
    pub leak: bool,
    /// What comes instead of the answer to a submit whose task was taken in.
    pub submit: Option<Withheld>,
    /// Whether tasks that are submitted or queried are unknown to queries.
    pub task_lost: bool,
}

/// What comes instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This status with an error body. 400 to 599.
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

/// Where an answer breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// How many chunks of content are sent before. An unstreamed body breaks off in its middle.
    pub after_chunks: u32,
    /// How it breaks off.
    pub how: Break,
}

/// How an answer breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The connection closes and the body is left unfinished.
    Cut,
    /// The body ends as if it were whole, without usage and `[DONE]`.
    Eof,
    /// Nothing more comes, and the connection stays open.
    Hang,
    /// An error event comes, and the body ends. Unstreamed answers ignore it.
    ErrorFrame,
}

/// How usage is reported. A forgery claims ten times what is true unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageForm {
    /// The usage is reported once, and right.
    #[default]
    Honest,
    /// Not at all, asked for or not.
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

/// How a stream ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoneMarker {
    /// With one `[DONE]` at the end.
    #[default]
    Once,
    /// With two `[DONE]` at the end.
    Twice,
    /// Without a `[DONE]` at the end.
    Missing,
}

/// How the lines of a stream end. The standard of server-sent events allows all three.
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
    /// The bytes that end a line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }
}

/// How a body is cut into writes, each its own chunk of the transfer coding.
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
