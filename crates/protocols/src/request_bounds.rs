//! Facts of every request, whatever its protocol: its model, and its maximum and minimum usage.

use std::ops::Range;

use super::ModelInPath;
use super::estimate::TextSize;
use super::fields::boolean;
use super::form::{DiscardedBytes, Form, Part};
use super::json::{Object, Value};
use super::limits::ModelLimits;
use super::request_policy::Prompt;
use super::server_tools::{RereadBilling, ToolContextCost};
use super::splice::{Splice, json_string};
use super::stored::Reference;
use tollgate_money::price::{InputWays, Traits, Usage};
use tollgate_types::error::{ErrorKind, GatewayError};

/// Model, usage bounds and references of a request, whatever its protocol.
#[derive(Debug)]
pub struct RequestBounds {
    pub(super) stream: bool,
    pub(super) model: ModelField,
    pub(super) max_usage: Usage,
    pub(super) min_usage: Usage,
    /// The input as the bound was computed from it; `None` where a provider's count does not cover it.
    pub(super) countable: Option<CountableInput>,
    pub(super) output_bound: OutputBound,
    /// Upstream objects that the request refers to.
    pub(super) references: Vec<Reference>,
    pub(super) billing: BillingFacts,
}

/// Facts of a request that decide how its answer is billed, beside the bounds of its usage. The methods of
/// [`Call`](super::Call) with the same names say what each means.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BillingFacts {
    pub(super) is_all_shown: bool,
    pub(super) estimates_unreported: bool,
    pub(super) input_ways: InputWays,
    pub(super) sounds: bool,
    pub(super) makes_pictures: bool,
    pub(super) traits: Traits,
}

/// Derivation of a request's maximum usage from its limit of output tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputBound {
    /// The output limit of one choice, in tokens: the request's own, or else the model's. Zero where no
    /// limit of the request bounds its output.
    pub limit: u64,
    /// Output tokens of the bound for each token of the limit: choices, times rounds of the model.
    pub per_token: u64,
    /// Input tokens that the bound grows by at most where the limit is lowered: the bytes of a field that
    /// is not there yet.
    pub field_tokens_max: u64,
}

/// Bytes that a limit of output tokens adds to a request without one, at most:
/// `,"generationConfig":{"maxOutputTokens":4294967296}`, and the longest name of any dialect.
const LIMIT_FIELD_BYTES_MAX: u64 = 64;

impl RequestBounds {
    /// The terms of a request whose answer is never a stream.
    pub(super) fn from_body(body: &Object<'_>, max_usage: Usage, min_usage: Usage) -> Self {
        Self::from_parts(false, ModelField::read(body), max_usage, min_usage)
    }

    /// The terms of a request that is no prompt.
    pub(super) fn from_parts(
        stream: bool,
        model: ModelField,
        max_usage: Usage,
        min_usage: Usage,
    ) -> Self {
        Self {
            stream,
            model,
            max_usage,
            min_usage,
            countable: None,
            output_bound: OutputBound::default(),
            references: Vec::new(),
            billing: BillingFacts::default(),
        }
    }

    /// Bounds of a prompt, whose input is limited by its bytes unless stated otherwise.
    ///
    /// # Errors
    /// A prompt that the model's context cannot hold, with `context_length_exceeded`, and a `stream`
    /// that is no boolean.
    pub(super) fn from_prompt(
        body: &Object<'_>,
        prompt: &Prompt,
        limits: &ModelLimits,
        output_tokens_max: u64,
    ) -> Result<Self, GatewayError> {
        let input = InputBound::read(body, prompt, limits)?;
        // A picture in base64 has a thousandth of the tokens that so many letters would have.
        let has_media = prompt.has_media;
        let size = TextSize::from_document(&body.decoded_text(has_media));
        let max_usage = PromptBound::new(input, prompt, limits, output_tokens_max);
        Ok(Self {
            stream: boolean(body, "stream")?.unwrap_or(false),
            model: ModelField::read(body),
            max_usage: max_usage.usage(),
            min_usage: Usage { input_tokens: size.tokens().min(input.once()), ..Usage::ZERO },
            countable: CountableInput::new(input, prompt),
            output_bound: max_usage.output_bound(),
            references: prompt.references.clone(),
            billing: BillingFacts::default(),
        })
    }

    /// The terms of a request for this many `choices` whose output the field `requested`, or else the `model`,
    /// limits to so many tokens each.
    pub(super) fn with_output_limit(
        self,
        requested: Option<u64>,
        model: u64,
        choices: u64,
    ) -> Self {
        let OutputBound { per_token, field_tokens_max, .. } = self.output_bound;
        let output_bound = OutputBound {
            limit: requested.unwrap_or(model),
            per_token: per_token.saturating_mul(choices),
            field_tokens_max: if requested.is_some() { 0 } else { field_tokens_max },
        };
        Self { output_bound, ..self }
    }
}

impl RequestBounds {
    /// The terms of a request that refers to these as well.
    pub(super) fn with_references(mut self, references: Vec<Reference>) -> Self {
        self.references.extend(references);
        self
    }

    /// The terms of a request whose answer is billed by these facts.
    pub(super) fn with_billing(self, billing: BillingFacts) -> Self {
        Self { billing, ..self }
    }

    /// True where a provider's count of the request can replace the bound of its input.
    #[must_use]
    pub fn is_countable(&self) -> bool {
        self.countable.is_some()
    }

    /// Replaces the bound of the prompt by the tokens that its provider has counted, if that is lower.
    /// Returns whether it was.
    pub fn count_input(&mut self, tokens: u64) -> bool {
        let Some(countable) = &mut self.countable else { return false };
        let Some((before, after)) = countable.tighten(tokens, self.min_usage.input_tokens) else {
            return false;
        };
        // The estimate errs upward, and the least is never above the most.
        self.min_usage.input_tokens = self.min_usage.input_tokens.min(countable.once());
        // The rest of the bound stays as it is: output, a summary, tools.
        let replaced =
            |all: u64, before: u64, after: u64| all.saturating_sub(before).saturating_add(after);
        let max_usage = &mut self.max_usage;
        max_usage.input_tokens =
            replaced(max_usage.input_tokens, before.input_tokens, after.input_tokens);
        max_usage.cache_read_tokens = replaced(
            max_usage.cache_read_tokens,
            before.cache_read_tokens,
            after.cache_read_tokens,
        );
        true
    }

    /// The terms of a request whose path names its model, and says how it is answered.
    pub(super) fn with_model_in_path(self, named: ModelInPath<'_>) -> Self {
        let model = ModelField { place: ModelLocation::Path, name: named.model.to_owned() };
        Self { stream: named.streams, model, ..self }
    }
}

/// Maximum input tokens of a prompt that is read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InputBound {
    /// Maximum tokens of its text; `None` if its bytes do not limit it.
    text_tokens: Option<u64>,
    /// Tokens that media come to, and that the upstream adds to those of the text.
    added_tokens: u64,
    /// The context window of the model in tokens, which no prompt exceeds.
    context: u64,
}

impl InputBound {
    /// # Errors
    /// A text that the model's context cannot hold, with `context_length_exceeded`.
    fn read(
        body: &Object<'_>,
        prompt: &Prompt,
        limits: &ModelLimits,
    ) -> Result<Self, GatewayError> {
        // Media are counted in tokens, among those that are added.
        let bytes = text_tokens_max(body).saturating_sub(prompt.media_bytes);
        let context = limits.input_tokens_max;
        // Refused before the hold: it would be for a whole context, and the upstream would refuse it
        // anyway.
        if prompt.is_text && bytes / BYTES_PER_TOKEN_MAX > context {
            return Err(too_long(bytes / BYTES_PER_TOKEN_MAX, context));
        }
        Ok(Self {
            text_tokens: prompt.added_tokens_max.map(|_| bytes),
            added_tokens: prompt.added_tokens_max.unwrap_or(0),
            context,
        })
    }

    /// The bound by a provider's count, which covers text, media and whatever the upstream adds.
    pub(super) fn counted(self, tokens: u64) -> Self {
        Self { text_tokens: Some(tokens), added_tokens: 0, context: self.context }
    }

    /// Maximum input tokens of one reading.
    pub(super) fn once(self) -> u64 {
        let bounded = self.text_tokens.map(|text| text.saturating_add(self.added_tokens));
        bounded.map_or(self.context, |tokens| tokens.min(self.context))
    }
}

/// Factors that bound the usage of a prompt: input, output and number of readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptBound {
    input: InputBound,
    output_tokens_max: u64,
    rounds: u64,
    search: Option<ToolContextCost>,
    /// Output tokens at most of an answer that sums the prompt up first, where there can be one.
    summary_tokens_max: Option<u64>,
    server_calls_max: Usage,
}

impl PromptBound {
    fn new(
        input: InputBound,
        prompt: &Prompt,
        limits: &ModelLimits,
        output_tokens_max: u64,
    ) -> Self {
        Self {
            input,
            output_tokens_max,
            rounds: prompt.rounds,
            search: prompt.search,
            // What was asked for does not bound the summary.
            summary_tokens_max: prompt.is_compacted.then_some(limits.output_tokens_max),
            server_calls_max: prompt.server_calls_max,
        }
    }

    /// Maximum usage of the request.
    pub(super) fn usage(&self) -> Usage {
        let mut max_usage = match self.search {
            Some(search) => searching(search, self.rounds, self.input, self.output_tokens_max),
            None => Usage {
                input_tokens: self.input.once().saturating_mul(self.rounds),
                output_tokens: self.output_tokens_max.saturating_mul(self.rounds),
                ..Usage::ZERO
            },
        };
        if let Some(summary) = self.summary_tokens_max {
            // What sums the prompt up reads all of it.
            max_usage.input_tokens = max_usage.input_tokens.saturating_add(self.input.context);
            max_usage.output_tokens = max_usage.output_tokens.saturating_add(summary);
        }
        max_usage.plus(&self.server_calls_max)
    }

    /// Derives [`Self::usage`] from the requested output, which its codec knows.
    fn output_bound(&self) -> OutputBound {
        let room = self.input.context.saturating_sub(self.input.once());
        OutputBound {
            limit: 0,
            // With a search the requested output is that of all rounds together.
            per_token: if self.search.is_some() { 1 } else { self.rounds },
            field_tokens_max: LIMIT_FIELD_BYTES_MAX.min(room).saturating_mul(self.rounds),
        }
    }
}

/// Tokens by which a prompt may exceed its count, beside a fiftieth of it. Anthropic calls its counts an
/// estimate from which "the actual number of input tokens" may "differ by a small amount" (guide "Token
/// counting"). A fiftieth costs 2 % of a hold.
const COUNT_MARGIN_TOKENS: u64 = 64;
/// Divisor of a count: the fraction by which a prompt may exceed it.
const COUNT_MARGIN_PART: u64 = 50;
/// The part of our own estimate below which no count is believed: one of so many. Some servers answer
/// with a constant. Estimates err upward (ADR 16), by a factor of two for short words.
const ESTIMATE_PART_MIN: u64 = 4;

/// Input of a prompt that its provider's counter can count completely.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountableInput {
    input: InputBound,
    /// Number of times that the upstream reads the prompt.
    rounds: u64,
    /// Addition of a search to the prompt for the rounds after it.
    search: Option<ToolContextCost>,
}

impl CountableInput {
    /// `None` where the upstream reads more than it counts: for tools without a bound of their own, and
    /// for fields that only the operator's word lets through.
    fn new(input: InputBound, prompt: &Prompt) -> Option<Self> {
        let (rounds, search) = (prompt.rounds, prompt.search);
        // A counter counts one reading; what later rounds read must be known otherwise.
        let is_covered = search.is_some() || rounds == 1;
        (is_covered && !prompt.has_passed).then_some(Self { input, rounds, search })
    }

    /// Lowers the tokens of the prompt to a count with its margin, and to a part of `estimate` at the
    /// lowest. Returns the input before and after; `None` where the count is no better.
    fn tighten(&mut self, count: u64, estimate: u64) -> Option<(Usage, Usage)> {
        // A server that answers with a constant must not shrink the hold to nothing.
        let count = count.max(estimate / ESTIMATE_PART_MIN);
        let margin = (count / COUNT_MARGIN_PART).saturating_add(COUNT_MARGIN_TOKENS);
        let counted = count.saturating_add(margin);
        if counted >= self.input.once() {
            return None;
        }
        let before = self.usage();
        self.input = self.input.counted(counted);
        Some((before, self.usage()))
    }

    /// Maximum tokens of the prompt when it is read once.
    fn once(&self) -> u64 {
        self.input.once()
    }

    fn usage(&self) -> Usage {
        match self.search {
            Some(search) => searching(search, self.rounds, self.input, 0),
            None => {
                Usage { input_tokens: self.input.once().saturating_mul(self.rounds), ..Usage::ZERO }
            }
        }
    }
}

/// The most tokens that any tokenizer makes of what a document of text says: one for each byte of it,
/// whichever way it is spelled, and what numbers can grow by where a provider writes them anew. ADR 16
/// says why that covers how providers render tools and messages.
fn text_tokens_max(body: &Object<'_>) -> u64 {
    body.decoded_bytes().saturating_add(body.rewritten_bytes()) as u64
}

/// Maximum usage of a prompt whose upstream searches for the answer: each round but the last adds a result to
/// the prompt. The requested output is that of all rounds together, as vendors define it ("for a response",
/// "absolute maximum"). A vendor's bill beyond that is charged by its report.
fn searching(
    search: ToolContextCost,
    rounds: u64,
    input: InputBound,
    output_tokens_max: u64,
) -> Usage {
    /// Rounds of which each is added up by itself; those after it are taken for a whole context.
    const COUNTED_MAX: u64 = 128;
    let (input_once, context) = (input.once(), input.context);
    let calls = rounds.saturating_sub(1);
    let prompt_after =
        |calls: u64| context.min(input_once.saturating_add(search.tokens.saturating_mul(calls)));
    let counted = (1..=calls.min(COUNTED_MAX)).map(|call| prompt_after(call - 1));
    let rest = calls.saturating_sub(COUNTED_MAX).saturating_mul(context);
    let reread = counted.fold(rest, u64::saturating_add);
    let mut max_usage = Usage {
        input_tokens: prompt_after(calls),
        output_tokens: output_tokens_max,
        ..Usage::ZERO
    };
    match search.reread {
        RereadBilling::Cached => max_usage.cache_read_tokens = reread,
        RereadBilling::Input => {
            max_usage.input_tokens = max_usage.input_tokens.saturating_add(reread)
        }
        RereadBilling::Free => {}
    }
    max_usage
}

/// Bytes of a request that a token has at most, on the average of a prompt as long as a context.
/// English has four to five, and the rest of a document next to nothing beside it.
const BYTES_PER_TOKEN_MAX: u64 = 6;

/// Error in the wording that Claude Code and Codex recognise: they shorten their context and retry.
fn too_long(tokens: u64, context: u64) -> GatewayError {
    let message = format!("prompt is too long: {tokens} tokens > {context} maximum");
    GatewayError::new(ErrorKind::InvalidRequest, message).code("context_length_exceeded")
}

/// Position and form of the model's name in a request.
#[derive(Debug)]
pub(super) struct ModelField {
    place: ModelLocation,
    name: String,
}

#[derive(Debug)]
enum ModelLocation {
    /// The value of a JSON member.
    Json(Range<usize>),
    /// The model name in a part of a form, and other parts that are rewritten.
    Form(Box<(Part, DiscardedBytes)>),
    /// The path, which is written anew for each upstream.
    Path,
}

impl ModelField {
    fn read(body: &Object<'_>) -> Self {
        let value = body.get("model");
        let name = value.as_ref().and_then(Value::as_str).unwrap_or_default().into_owned();
        Self {
            place: ModelLocation::Json(value.map(|value| value.range).unwrap_or_default()),
            name,
        }
    }

    pub(super) fn from_part(form: &Form, part: &Part, name: &str) -> Self {
        Self {
            place: ModelLocation::Form(Box::new((part.clone(), form.discarded.clone()))),
            name: name.to_owned(),
        }
    }

    /// Replaces the model name unless the upstream uses the same. Text around the parts of a form is dropped.
    pub(super) fn rename(&self, upstream_model: &str) -> Splice {
        let mut splice = Splice::default();
        if let ModelLocation::Form(form) = &self.place {
            form.1.cut(&mut splice);
        }
        match &self.place {
            _ if self.name == upstream_model => {}
            ModelLocation::Json(range) => {
                splice.replace(range.clone(), json_string(upstream_model))
            }
            ModelLocation::Form(form) => form.0.overwrite(upstream_model, &mut splice),
            ModelLocation::Path => {}
        }
        splice
    }
}
