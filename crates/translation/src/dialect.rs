//! The trait of a dialect: reading and writing requests, answers, streams and failures.

use std::borrow::Cow;
use std::fmt;

use crate::names::{self, Aliases, CallIds, Naming};
use crate::part::{AnswerPart, Effort, PromptPart, UpstreamFailure};

/// A sign of life in dialects without an event for it: a comment, which readers of server-sent events skip
/// (HTML standard, section 9.2.5).
pub(crate) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// One protocol for talking to language models, on the side of upstreams: it writes requests, and reads
/// answers.
pub trait UpstreamDialect: Sync + fmt::Debug {
    /// The names of tools and the ids of calls that such an upstream takes.
    fn naming(&self, target: &TranslationTarget) -> Naming;

    /// Writes a request for an upstream, with aliases for names and ids that it does not take. What it
    /// cannot carry is a loss: hints go into `losses`, anything else is refused.
    ///
    /// # Errors
    /// The part that this dialect has no words for.
    fn write_request(
        &self,
        parts: &[PromptPart<'_>],
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<Vec<u8>, Untranslatable>;

    /// Parses an upstream's complete answer.
    ///
    /// # Errors
    /// It is not an answer of this dialect.
    fn read_answer<'a>(&self, body: &'a [u8]) -> Result<Vec<AnswerPart<'a>>, MalformedAnswer>;

    /// Creates a reader for an upstream's stream.
    fn stream_reader(&self) -> Box<dyn ReadStream>;

    /// Parses an upstream's error with a status of 400 or above.
    fn read_failure(&self, status: u16, body: &[u8]) -> UpstreamFailure;

    /// Reads the same where a header names the failure, as those of Amazon's services do.
    fn read_failure_by_name(&self, status: u16, _name: &str, body: &[u8]) -> UpstreamFailure {
        self.read_failure(status, body)
    }
}

/// One protocol for talking to language models, on both of its sides: on the customers' it reads
/// requests, and writes answers.
pub trait CustomerDialect: UpstreamDialect {
    /// Parses a client's request, which must be valid JSON.
    ///
    /// # Errors
    /// The field that is malformed, or that means or costs something which no other dialect can say.
    fn read_request<'a>(&self, body: &'a [u8]) -> Result<TranslatableRequest<'a>, Untranslatable>;

    /// Writes a complete answer for a client.
    fn write_answer(&self, answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8>;

    /// Creates a writer of a stream for a customer.
    fn stream_writer(&self, frame: &AnswerFrame) -> Box<dyn WriteStream>;
}

/// A request as its dialect reads it.
#[derive(Clone, Debug)]
pub struct TranslatableRequest<'a> {
    /// The parts of the prompt and its settings, in order.
    pub parts: Vec<PromptPart<'a>>,
    /// Data of the request that the answer repeats or needs.
    pub frame: AnswerFrame,
    /// Fields that no part carries, reported to the customer: hints, and repetitions of earlier answers.
    pub left_out: Vec<Omission>,
    /// The prompt is to be cached up to its end, as far as the upstream has marks for that.
    pub caches: bool,
}

/// A field or an item of a customer's request that does not go upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omission {
    /// Name shown to the client, without indexes: `messages.annotations`.
    pub name: String,
    /// First occurrence of the field: `messages[3].annotations`.
    pub field: String,
}

/// Data of a request that its answer repeats or needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerFrame {
    /// The model, as the customer calls it.
    pub model: String,
    /// The customer wants events.
    pub streams: bool,
    /// The customer wants the usage at the end of a stream, where the dialect leaves that to them.
    pub shows_usage: bool,
    /// Tools that take free text: their inputs are unwrapped by [`crate::call_input::unwrap_free`].
    pub free_tools: Vec<String>,
    /// Tools that stand in a namespace, which other dialects do not have.
    pub namespaced: Vec<NamespacedTool>,
    /// The aliases by which the upstream knows tools. Whoever translates fills them in, and restores the
    /// names in the answer.
    pub aliases: Aliases,
    /// The name by which an upstream knows the search for tools that the customer runs, as the Responses
    /// API has it.
    pub tool_search: Option<String>,
    /// Members that the dialect repeats in its answer, as JSON without the braces, each followed by a
    /// comma.
    pub repeated: String,
    /// Seconds since 1970, for dialects whose answers say when they were made. Whoever translates
    /// fills it in.
    pub created: u64,
    /// A random word for ids in answers. Whoever translates fills it in.
    pub nonce: String,
}

/// A tool of a namespace, as the Responses API has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespacedTool {
    /// The name by which parts know the tool: [`joined`](Self::joined).
    pub joined: String,
    /// The name of the namespace.
    pub namespace: String,
    /// The name of the tool within it.
    pub name: String,
}

impl NamespacedTool {
    /// The name for a tool of a namespace where there are none. An upstream sees `namespace__name`.
    #[must_use]
    pub fn joined(namespace: &str, name: &str) -> String {
        names::in_namespace(namespace, name)
    }
}

impl AnswerFrame {
    /// An id of the customer's dialect, such as `msg_` with the nonce behind it.
    #[must_use]
    pub fn id(&self, prefix: &str) -> String {
        [prefix, &self.nonce].concat()
    }

    /// The namespace of a tool that was called, and its name within that.
    #[must_use]
    pub fn apart<'f>(&'f self, name: &'f str) -> (Option<&'f str>, &'f str) {
        let tool = self.namespaced.iter().find(|tool| tool.joined == name);
        tool.map_or((None, name), |tool| (Some(&tool.namespace), &tool.name))
    }
}

/// Capabilities of the upstream's model, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranslationTarget {
    /// Handling of hints that the upstream's dialect cannot express.
    pub mode: Mode,
    /// Form of the reasoning setting.
    pub thinking: ThinkingStyle,
    /// True if the model accepts `temperature`, `top_p` and `top_k`; the newest models of some providers
    /// refuse them.
    pub takes_sampling: bool,
    /// Variant of chat completions: OpenAI's current one, or its copies'.
    pub chat: ChatStyle,
    /// Format of call ids that the upstream accepts, in OpenAI's chat.
    pub call_ids: CallIds,
    /// The words for how much to think that the model knows, over OpenAI's dialects.
    pub efforts: Efforts,
    /// Field of chat completions that controls the model's thinking.
    pub thinking_field: ThinkingField,
    /// Output limit of the model, in tokens, for dialects that require one when the client sets none.
    pub output_max: u64,
    /// True if the prompt is marked for the upstream's cache where the customer's dialect has no cache marks.
    pub caches: bool,
    /// The answer is to come as events.
    pub streams: bool,
}

/// Handling of hints that cannot be carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Hints are dropped, and listed in a response header.
    #[default]
    Lenient,
    /// The request is refused.
    Strict,
}

/// Form of the reasoning setting of a model with Anthropic's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingStyle {
    /// `output_config.effort` and adaptive thinking, as in models since Opus 4.6.
    #[default]
    Effort,
    /// `budget_tokens`, as in earlier models.
    Budget,
    /// No thinking parameter: a model other than Anthropic's.
    None,
}

/// Variant of chat completions that an upstream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatStyle {
    /// Fields that every copy understands: `max_tokens`, `system`.
    #[default]
    Common,
    /// OpenAI's own: `max_completion_tokens`, `developer`.
    Openai,
}

/// Field of chat completions that controls a model's thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingField {
    /// None: requests carry no such field.
    #[default]
    None,
    /// `thinking: {type: enabled}` or `disabled`, as in the APIs of DeepSeek, Zhipu, Moonshot and MiniMax.
    Thinking,
    /// `enable_thinking` and `thinking_budget`, as in Alibaba's and SiliconFlow's APIs.
    EnableThinking,
    /// `reasoning_effort` alone, with `none`, as Groq, Ollama and Mistral have it.
    ReasoningEffort,
    /// `chat_template_kwargs`, as vLLM and SGLang hand it to the template of the model.
    ChatTemplateKwargs,
}

/// The words for how much to think that a model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Efforts(u8);

impl Efforts {
    /// All efforts, from the lowest to the highest.
    pub const WORDS: [&'static str; 7] =
        ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

    /// The empty set: the model accepts no effort.
    pub const NONE: Self = Self(0);

    /// The efforts of these words; others are passed over.
    #[must_use]
    pub fn from_words<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let places = words.into_iter().filter_map(|word| {
            let found = Self::WORDS.iter().position(|candidate| *candidate == word);
            found.and_then(|place| u32::try_from(place).ok())
        });
        Self(places.fold(0, |words, place| words | 1_u8.wrapping_shl(place)))
    }

    /// The word for an effort that comes nearest among those that the model knows: the next below it,
    /// or else the least. `none` is no effort.
    #[must_use]
    pub fn nearest(self, effort: Effort) -> Option<&'static str> {
        let level = match effort {
            Effort::Minimal => 1,
            Effort::Low => 2,
            Effort::Medium => 3,
            Effort::High => 4,
            Effort::ExtraHigh => 5,
            Effort::Max => 6,
        };
        let supported = || (1..Self::WORDS.len()).filter(|place| self.has(*place));
        let below = supported().rfind(|place| *place <= level);
        below.or_else(|| supported().next()).and_then(|place| Self::WORDS.get(place).copied())
    }

    /// The word for no thoughts, if the model knows it.
    #[must_use]
    pub fn off(self) -> Option<&'static str> {
        self.has(0).then_some(Self::WORDS[0])
    }

    fn has(self, place: usize) -> bool {
        u32::try_from(place).is_ok_and(|place| self.0 & 1_u8.wrapping_shl(place) != 0)
    }
}

impl Default for Efforts {
    /// The efforts of OpenAI's APIs.
    fn default() -> Self {
        Self::from_words(["none", "minimal", "low", "medium", "high", "xhigh"])
    }
}

impl Default for TranslationTarget {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            thinking: ThinkingStyle::default(),
            takes_sampling: true,
            chat: ChatStyle::default(),
            call_ids: CallIds::default(),
            efforts: Efforts::default(),
            thinking_field: ThinkingField::default(),
            output_max: 4096,
            caches: false,
            streams: false,
        }
    }
}

/// Fields that did not go upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(Vec<Cow<'static, str>>);

impl Losses {
    /// Starts with the fields that the reader of a request left out.
    ///
    /// # Errors
    /// The first of it, where nothing may be dropped.
    pub fn from_request(left_out: Vec<Omission>, mode: Mode) -> Result<Self, Untranslatable> {
        match left_out.into_iter() {
            mut all if mode == Mode::Strict => match all.next() {
                Some(first) => Err(Untranslatable::uncarried(first.field)),
                None => Ok(Self::default()),
            },
            all => Ok(Self(all.map(|one| one.name.into()).collect())),
        }
    }

    /// Notes that a hint is not carried.
    ///
    /// # Errors
    /// Its name, where nothing may be dropped.
    pub fn drop_hint(
        &mut self,
        mode: Mode,
        field: impl Into<Cow<'static, str>>,
    ) -> Result<(), Untranslatable> {
        let field = field.into();
        if mode == Mode::Strict {
            return Err(Untranslatable::uncarried(field));
        }
        if !self.0.contains(&field) {
            self.0.push(field);
        }
        Ok(())
    }

    /// The fields, in the order in which they were met.
    #[must_use]
    pub fn fields(&self) -> &[Cow<'static, str>] {
        &self.0
    }
}

/// Reason why a request cannot be translated, returned to the customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untranslatable {
    /// The field at fault, such as `messages[2].content`.
    pub field: Cow<'static, str>,
    /// The fault, as a complete sentence.
    pub message: String,
}

impl Untranslatable {
    /// A field that the upstream's dialect has no words for.
    #[must_use]
    pub fn uncarried(field: impl Into<Cow<'static, str>>) -> Self {
        let field = field.into();
        let message = format!(
            "`{field}` cannot be carried to this model, whose provider speaks another protocol."
        );
        Self { field, message }
    }

    /// A field that costs or means what the upstream's dialect cannot say, and why: "it is stored there".
    #[must_use]
    pub fn refused(field: impl Into<Cow<'static, str>>, reason: &str) -> Self {
        let mut refusal = Self::uncarried(field);
        refusal.message.pop();
        refusal.message.push_str(&format!(": {reason}."));
        refusal
    }

    /// A field of the wrong form; `expected` describes the right one, such as "a string".
    #[must_use]
    pub fn malformed(field: impl Into<Cow<'static, str>>, expected: &str) -> Self {
        let field = field.into();
        let message = format!("`{field}` must be {expected}.");
        Self { field, message }
    }
}

/// An upstream's answer that violates its dialect, with the reason for the operator's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedAnswer(pub String);

impl fmt::Display for MalformedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads an upstream's stream, event by event.
pub trait ReadStream: Send + Sync {
    /// Parses the data of one event and passes on its parts. Comments and empty events are filtered before.
    /// Calls without an id are passed on with an empty one.
    ///
    /// # Errors
    /// It is no event of this dialect.
    fn read(
        &mut self,
        data: &[u8],
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer>;

    /// The upstream ended the stream in an orderly way, with or without the dialect's last event: hands
    /// on what was held back.
    fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>));

    /// True if the reader holds parts back until others have arrived.
    fn has_waiting(&self) -> bool {
        false
    }

    /// Bytes of what waits, and of what must be known of blocks to read more of them.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// Writes a stream for a customer.
pub trait WriteStream: Send + Sync {
    /// Writes the events for one piece of the answer behind what `out` has, each ended by a blank line.
    fn write(&mut self, answer: &AnswerPart<'_>, out: &mut Vec<u8>);

    /// Bytes of the answer that are kept because a later event repeats them.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// Implements both traits for a dialect whose module has the submodules `read`, `write` and `answer`, from
/// its names of tools and the types that read and write its streams. Its failures have OpenAI's shape.
macro_rules! implement_dialect {
    ($dialect:ty, $target:ident => $naming:expr, $reader:ty, $writer:ty) => {
        impl $crate::dialect::UpstreamDialect for $dialect {
            fn naming(
                &self,
                $target: &$crate::dialect::TranslationTarget,
            ) -> $crate::names::Naming {
                $naming
            }

            fn write_request(
                &self,
                parts: &[$crate::part::PromptPart<'_>],
                target: &$crate::dialect::TranslationTarget,
                losses: &mut $crate::dialect::Losses,
            ) -> Result<Vec<u8>, $crate::dialect::Untranslatable> {
                let naming = $crate::dialect::UpstreamDialect::naming(self, target);
                write::request(&naming.applied(parts), target, losses)
            }

            fn read_answer<'a>(
                &self,
                body: &'a [u8],
            ) -> Result<Vec<$crate::part::AnswerPart<'a>>, $crate::dialect::MalformedAnswer> {
                answer::read(body)
            }

            fn stream_reader(&self) -> Box<dyn $crate::dialect::ReadStream> {
                Box::new(<$reader>::default())
            }

            fn read_failure(&self, status: u16, body: &[u8]) -> $crate::part::UpstreamFailure {
                $crate::failure::of_response(status, body)
            }
        }

        impl $crate::dialect::CustomerDialect for $dialect {
            fn read_request<'a>(
                &self,
                body: &'a [u8],
            ) -> Result<$crate::dialect::TranslatableRequest<'a>, $crate::dialect::Untranslatable>
            {
                read::request(body)
            }

            fn write_answer(
                &self,
                answer: &[$crate::part::AnswerPart<'_>],
                frame: &$crate::dialect::AnswerFrame,
            ) -> Vec<u8> {
                answer::write(answer, frame)
            }

            fn stream_writer(
                &self,
                frame: &$crate::dialect::AnswerFrame,
            ) -> Box<dyn $crate::dialect::WriteStream> {
                Box::new(<$writer>::new(frame))
            }
        }
    };
}
pub(crate) use implement_dialect;
