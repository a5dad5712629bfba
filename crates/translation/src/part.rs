//! Parts of a conversation with a language model, independent of any dialect.
//!
//! A request is a list of [`PromptPart`]s in the order in which its dialect writes them; an answer is a
//! stream of [`AnswerPart`]s. Texts are those of the request or the answer, unchanged: what is JSON there
//! (arguments, schemas) stays the same bytes here, so that prompts have the same prefix from turn to
//! turn and an upstream's cache finds them again.

use std::borrow::Cow;

/// A part of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptPart<'a> {
    /// Instructions for every turn: `system`, `developer`, `instructions`.
    Instruction(Text<'a>),
    /// Start of a turn of this role; it lasts until the next one.
    Turn(Speaker),
    /// Content of the current turn.
    Content(ContentPart<'a>),
    /// A call of a tool in the assistant's turn that is open.
    ToolCall(ToolCall<'a>),
    /// The result of a tool call, in the user's turn that is open.
    ToolResult(ToolResult<'a>),
    /// The assistant's reasoning, in the turn that is open.
    Reasoning(Reasoning<'a>),
    /// A tool that the customer runs.
    Tool(Tool<'a>),
    /// The tool to call.
    ToolChoice(ToolChoice<'a>),
    /// True if several tools may be called in one turn.
    ParallelTools(bool),
    /// Output limit in tokens, including thinking.
    OutputMax(u64),
    /// Texts before which the answer ends.
    Stop(Vec<Cow<'a, str>>),
    /// The format of the answer.
    Format(AnswerFormat<'a>),
    /// The amount of reasoning before the answer.
    Thinking(Thinking),
    /// A sampling setting.
    Sampling(Sampling),
    /// Identifier of the end user, chosen by the customer.
    User(Cow<'a, str>),
    /// A name for prompts that begin alike, for the upstream's cache.
    CacheKey(Cow<'a, str>),
    /// Desired length and detail of the answer: `low`, `medium` or `high`.
    Verbosity(Cow<'a, str>),
}

/// Role of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The customer, or a tool of the customer's.
    User,
    /// The model that answers the customer.
    Assistant,
}

/// A text, and whether the prompt is to be cached up to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The text, unescaped.
    pub text: Cow<'a, str>,
    /// The prompt up to here is to be cached.
    pub cache: Option<Cache>,
}

/// For how long a prompt is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// The prompt is kept for five minutes.
    Short,
    /// The prompt is kept for an hour.
    Long,
}

/// Content of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentPart<'a> {
    /// A text.
    Text(Text<'a>),
    /// The assistant's text of a refusal.
    Refusal(Cow<'a, str>),
    /// An image.
    Image(MediaPart<'a>),
    /// A document, such as a PDF file.
    File(MediaPart<'a>),
    /// An audio recording.
    Audio(MediaPart<'a>),
    /// A video.
    Video(MediaPart<'a>),
}

/// A picture, a document, a recording or a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaPart<'a> {
    /// Location of the bytes.
    pub source: Source<'a>,
    /// The name of its file.
    pub name: Option<Cow<'a, str>>,
    /// Resolution at which the model looks at a picture: `low`, `high`, `auto`.
    pub detail: Option<Cow<'a, str>>,
    /// The prompt up to here is to be cached.
    pub cache: Option<Cache>,
}

/// Location of the bytes of media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// URL from which the upstream fetches the medium.
    Url(Cow<'a, str>),
    /// Data embedded in the request.
    Inline {
        /// The media type, such as `image/png`.
        media_type: Cow<'a, str>,
        /// The bytes in base64.
        data: Cow<'a, str>,
    },
    /// It is a text, as documents can be.
    Plain(Cow<'a, str>),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall<'a> {
    /// Id that connects the call with its result.
    pub id: Cow<'a, str>,
    /// The name of the tool that is called.
    pub name: Cow<'a, str>,
    /// A JSON object as text, byte for byte as it was written; for a tool that takes free text, that.
    pub input: Cow<'a, str>,
    /// The tool takes free text instead of a JSON object.
    pub is_free: bool,
    /// An opaque token that belongs to the call, as Gemini signs its calls.
    pub seal: Option<Cow<'a, str>>,
    /// The prompt up to here is to be cached.
    pub cache: Option<Cache>,
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult<'a> {
    /// The id of the call.
    pub id: Cow<'a, str>,
    /// The output: texts, pictures and documents.
    pub content: Vec<ContentPart<'a>>,
    /// The tool reported a failure.
    pub is_error: bool,
    /// The prompt up to here is to be cached.
    pub cache: Option<Cache>,
}

/// Reasoning of the assistant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasoning<'a> {
    /// The thoughts, or a summary of them; empty where only the upstream can read them.
    pub text: Cow<'a, str>,
    /// Token by which the upstream recognises its own reasoning, wrapped as described in [`crate::seal`].
    pub seal: Option<Cow<'a, str>>,
}

/// A tool that the customer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool<'a> {
    /// The name by which the model calls it.
    pub name: Cow<'a, str>,
    /// Description of the tool's purpose.
    pub description: Option<Cow<'a, str>>,
    /// The JSON schema of its input, byte for byte; `None` where it takes none, or free text.
    pub schema: Option<Cow<'a, str>>,
    /// Inputs that do not fit the schema must not come.
    pub is_strict: Option<bool>,
    /// It takes free text instead of a JSON object.
    pub is_free: bool,
    /// The prompt up to here is to be cached.
    pub cache: Option<Cache>,
}

/// The tool to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// The model calls tools as it likes.
    Auto,
    /// No tool may be called.
    None,
    /// At least one tool is to be called.
    Any,
    /// The tool of this name is to be called.
    Named(Cow<'a, str>),
}

/// The format of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerFormat<'a> {
    /// The answer is any JSON object.
    Json,
    /// JSON that fits a schema.
    Schema {
        /// The name of the schema, where it has one.
        name: Option<Cow<'a, str>>,
        /// Description of the schema's purpose.
        description: Option<Cow<'a, str>>,
        /// The schema, byte for byte.
        schema: Cow<'a, str>,
        /// Answers that do not fit must not come.
        is_strict: Option<bool>,
    },
}

/// The amount of reasoning before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// Nothing is thought before the answer.
    Off,
    /// The model thinks as much as it likes.
    Adaptive,
    /// The model thinks what this word stands for.
    Effort(Effort),
    /// Maximum number of tokens.
    Budget(u64),
}

/// The amount of reasoning, as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// The lowest effort above none.
    Minimal,
    /// Below the usual effort.
    Low,
    /// The model's usual amount.
    Medium,
    /// Above the usual effort.
    High,
    /// More than `high`, where a model knows it.
    ExtraHigh,
    /// The model's highest effort.
    Max,
}

/// A setting of how words are chosen: a hint, which an upstream without it can do without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// `temperature`, from 0 to 2; Anthropic's ends at 1.
    Temperature(f64),
    /// `top_p`, from 0 to 1.
    TopP(f64),
    /// `top_k`, an integer above 0.
    TopK(u64),
    /// `seed`, which is any integer.
    Seed(i64),
    /// `presence_penalty`, from −2 to 2.
    PresencePenalty(f64),
    /// `frequency_penalty`, from −2 to 2.
    FrequencyPenalty(f64),
}

impl Sampling {
    /// The field's name in most dialects.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Temperature(_) => "temperature",
            Self::TopP(_) => "top_p",
            Self::TopK(_) => "top_k",
            Self::Seed(_) => "seed",
            Self::PresencePenalty(_) => "presence_penalty",
            Self::FrequencyPenalty(_) => "frequency_penalty",
        }
    }
}

/// A piece of an answer. Pieces of one block stand together: text, then a call, then another call.
/// Upstreams that send blocks side by side are put into that order ([`crate::sequence`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart<'a> {
    /// The upstream has begun. First of all, once.
    Begin {
        /// The upstream's id of the answer.
        id: Cow<'a, str>,
        /// Usage reported so far.
        counts: Counts,
    },
    /// A sign of life of the upstream, which says nothing. Anywhere before the end.
    Alive,
    /// Further text of the answer.
    Text(Cow<'a, str>),
    /// A source of the preceding text.
    Citation(Citation<'a>),
    /// Further text of a refusal.
    Refusal(Cow<'a, str>),
    /// Further reasoning.
    Reasoning(Cow<'a, str>),
    /// Token by which the upstream recognizes the reasoning that ends here, wrapped as [`crate::seal`]
    /// describes. Reasoning without text has only this.
    Seal(Cow<'a, str>),
    /// A call of a tool begins; its input follows.
    ToolCall {
        /// Id that the result must name.
        id: Cow<'a, str>,
        /// The name of the tool that is called.
        name: Cow<'a, str>,
        /// An opaque token that belongs to the call.
        seal: Option<Cow<'a, str>>,
    },
    /// More of the input of the call that began last: a JSON object, as text.
    Input(Cow<'a, str>),
    /// The stop reason; once, after all content.
    Stop(Stop<'a>),
    /// End of the answer; always the last part.
    End(Counts),
    /// The upstream failed in the middle of its answer, and says why. Nothing follows.
    Error(UpstreamFailure),
}

impl AnswerPart<'_> {
    /// The part, without a share in the bytes that it was read from.
    #[must_use]
    pub fn into_owned(self) -> AnswerPart<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            AnswerPart::Begin { id, counts } => AnswerPart::Begin { id: own(id), counts },
            AnswerPart::Alive => AnswerPart::Alive,
            AnswerPart::Text(text) => AnswerPart::Text(own(text)),
            AnswerPart::Citation(Citation { back, url, title }) => {
                AnswerPart::Citation(Citation { back, url: own(url), title: own(title) })
            }
            AnswerPart::Refusal(text) => AnswerPart::Refusal(own(text)),
            AnswerPart::Reasoning(text) => AnswerPart::Reasoning(own(text)),
            AnswerPart::Seal(text) => AnswerPart::Seal(own(text)),
            AnswerPart::ToolCall { id, name, seal } => {
                AnswerPart::ToolCall { id: own(id), name: own(name), seal: seal.map(own) }
            }
            AnswerPart::Input(text) => AnswerPart::Input(own(text)),
            AnswerPart::Stop(stop) => AnswerPart::Stop(stop.into_owned()),
            AnswerPart::End(counts) => AnswerPart::End(counts),
            AnswerPart::Error(failure) => AnswerPart::Error(failure),
        }
    }

    /// Bytes of its text.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text)
            | Self::Refusal(text)
            | Self::Reasoning(text)
            | Self::Seal(text)
            | Self::Input(text) => text.len(),
            Self::ToolCall { id, name, seal } => {
                id.len() + name.len() + seal.as_ref().map_or(0, |seal| seal.len())
            }
            Self::Citation(citation) => citation.url.len() + citation.title.len(),
            Self::Begin { .. } | Self::Alive | Self::Stop(_) | Self::End(_) | Self::Error(_) => 0,
        }
    }

    /// Appends `more` if it continues the same text; false otherwise.
    pub(crate) fn join(&mut self, more: &AnswerPart<'_>) -> bool {
        let (text, more) = match (self, more) {
            (Self::Text(text), AnswerPart::Text(more))
            | (Self::Refusal(text), AnswerPart::Refusal(more))
            | (Self::Reasoning(text), AnswerPart::Reasoning(more))
            | (Self::Input(text), AnswerPart::Input(more)) => (text, more),
            _ => return false,
        };
        text.to_mut().push_str(more);
        true
    }
}

/// A page of the web that a text refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation<'a> {
    /// Start and end of the cited words: in characters, counted back from the end of the text so far.
    pub back: (u64, u64),
    /// The address of the page.
    pub url: Cow<'a, str>,
    /// The title of the page.
    pub title: Cow<'a, str>,
}

/// Reason why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop<'a> {
    /// The model finished its answer.
    Done,
    /// The model produced a stop sequence, which the upstream may name.
    Sequence(Option<Cow<'a, str>>),
    /// The model waits for results of tools.
    Tools,
    /// The output limit was reached.
    Length,
    /// It, or a filter, refused.
    Refused,
    /// The upstream interrupted a long turn, which may be sent again as it is.
    Paused,
}

impl Stop<'_> {
    /// The reason, without a part in the bytes that it was read from.
    #[must_use]
    pub fn into_owned(self) -> Stop<'static> {
        match self {
            Self::Sequence(text) => Stop::Sequence(text.map(|text| Cow::Owned(text.into_owned()))),
            Self::Done => Stop::Done,
            Self::Tools => Stop::Tools,
            Self::Length => Stop::Length,
            Self::Refused => Stop::Refused,
            Self::Paused => Stop::Paused,
        }
    }
}

/// Usage of an answer, in disjoint kinds of input; zero where nothing was reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens of input that no cache has read or written.
    pub input: u64,
    /// Tokens of input that a cache has read.
    pub cache_read: u64,
    /// Tokens of input that were written to a cache for five minutes.
    pub cache_write: u64,
    /// Tokens of input that were written to a cache for an hour.
    pub cache_write_1h: u64,
    /// Tokens of input that are sound, in no other kind.
    pub audio_input: u64,
    /// Tokens of input that are pictures, where the upstream counts them apart; in no other kind then.
    pub image_input: u64,
    /// Tokens of input that are video, where the upstream counts them apart; in no other kind then.
    pub video_input: u64,
    /// Tokens of output, with those of thoughts, but for those of sound.
    pub output: u64,
    /// Audio output tokens.
    pub audio_output: u64,
    /// Searches in the web that the upstream ran, asked for or not.
    pub web_searches: u64,
    /// Reasoning tokens within the output, as far as the upstream reports them.
    pub reasoning: u64,
}

impl Counts {
    /// All input, whatever it is and whatever a cache did with it.
    #[must_use]
    pub fn input_total(&self) -> u64 {
        let cached = [self.cache_read, self.cache_write, self.cache_write_1h];
        cached.into_iter().fold(self.input_uncached(), u64::saturating_add)
    }

    /// All input that no cache had to do with.
    #[must_use]
    pub fn input_uncached(&self) -> u64 {
        let media = [self.audio_input, self.image_input, self.video_input];
        media.into_iter().fold(self.input, u64::saturating_add)
    }

    /// All output, whatever it is.
    #[must_use]
    pub fn output_total(&self) -> u64 {
        self.output.saturating_add(self.audio_output)
    }
}

/// An upstream's failure, before or in the middle of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFailure {
    /// The kind of fault.
    pub kind: FailureKind,
    /// The upstream's own words.
    pub message: String,
    /// The field at fault, in the upstream's words, where it names one.
    pub param: Option<String>,
}

/// The kind of fault in a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request is malformed, or the upstream does not support it.
    Invalid,
    /// The prompt is longer than the model's context.
    TooLong,
    /// The request breaks the upstream's content policy.
    Filtered,
    /// The credential is invalid, or lacks a permission.
    Denied,
    /// The model, or another named object, does not exist.
    NotFound,
    /// Too many concurrent requests.
    Busy,
    /// The upstream itself failed.
    Upstream,
}

/// Texts at which an answer ends, each once. An empty one is refused, and ends nothing.
pub(crate) fn stop_texts<'s>(texts: &'s [Cow<'_, str>]) -> Vec<&'s str> {
    let mut stops: Vec<&str> = Vec::new();
    for text in texts.iter().map(|text| &**text).filter(|text| !text.is_empty()) {
        if !stops.contains(&text) {
            stops.push(text);
        }
    }
    stops
}
