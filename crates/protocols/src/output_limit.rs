//! The limit of output tokens in a customer's request, and the edit that lowers it: only digits change, or
//! one field is added.
//!
//! Fields: OpenAI's API reference, "Chat completions" (`max_completion_tokens`, deprecated `max_tokens`)
//! and "Responses" (`max_output_tokens`), Anthropic's "Messages" (`max_tokens`) and "Extended thinking"
//! (`budget_tokens`), the Gemini API's `GenerationConfig`.

use std::ops::Range;

use super::json::{Object, Value};
use super::limits::{ChatStyle, ModelLimits};
use super::splice::Splice;
use super::{Operation, Request};

/// Tokens that a lowered thinking budget leaves for the answer at least, unless the request left fewer
/// itself.
const ANSWER_TOKENS_MIN: u64 = 1_024;
/// The part of a lowered limit, one in so many, that a lowered thinking budget leaves for the answer.
const ANSWER_PART: u64 = 4;
/// The least thinking budget: "The minimum budget is 1,024 tokens" (Anthropic, "Extended thinking").
const CLAUDE_BUDGET_MIN: u64 = 1_024;
/// The least thinking budget above zero of any Gemini model, 2.5 Flash-Lite ("Gemini thinking").
const GEMINI_BUDGET_MIN: u64 = 512;
/// The least `max_output_tokens` that OpenAI's Responses API takes.
const RESPONSES_LIMIT_MIN: u64 = 16;

/// A request's limit of output tokens, and where it is written.
#[derive(Clone, Debug)]
pub struct OutputLimit {
    tokens: u64,
    choices: u64,
    /// Smallest limit that the providers accept.
    tokens_min: u64,
    place: LimitPlace,
    budgets: Vec<ThinkingBudget>,
}

/// Position of a limit in the body, or of its insertion.
#[derive(Clone, Debug)]
enum LimitPlace {
    /// These numbers, each with its place in the body.
    Numbers(Vec<(Range<usize>, u64)>),
    /// There is none: a field goes in the place of these bytes, as this text around the number.
    Nowhere { at: Range<usize>, before: String, after: &'static str },
}

/// Tokens that a model may think, out of its output limit.
#[derive(Clone, Debug)]
struct ThinkingBudget {
    range: Range<usize>,
    tokens: u64,
    tokens_min: u64,
}

/// The name of the field that limits the output of a request, as its dialect and model write it; `None` for
/// operations without a limit of output tokens.
#[must_use]
pub fn field_name(operation: Operation, limits: &ModelLimits) -> Option<&'static str> {
    match (operation, chat_style(limits)) {
        (Operation::Chat, ChatStyle::Openai) => Some("max_completion_tokens"),
        _ => operation.info().output_limit,
    }
}

/// Name of the limit in chat completions. OpenAI-compatible APIs know `max_tokens`, which OpenAI's own models
/// refuse; a model that is never translated does not say which it is.
fn chat_style(limits: &ModelLimits) -> ChatStyle {
    limits.translation.map_or(ChatStyle::Common, |target| target.chat)
}

impl OutputLimit {
    /// Reads the limit of a request that its codec has found valid; `None` for operations without a limit
    /// of output tokens, and for a limit that is no plain number.
    #[must_use]
    pub fn read(operation: Operation, request: &Request<'_>, limits: &ModelLimits) -> Option<Self> {
        let field = field_name(operation, limits)?;
        // Forms have no output tokens to limit.
        let body = request.json().ok()?;
        match operation {
            Operation::Chat => {
                // Both, where both are there: copies differ in which one they read.
                let fields = ["max_tokens", "max_completion_tokens"];
                let place = LimitPlace::at_top(body, &fields, field)?;
                let budgets = [("thinking", "budget_tokens"), ("reasoning", "max_tokens")];
                let budgets = budgets.iter().filter_map(|&(object, member)| {
                    ThinkingBudget::read(body, 0, [object; 2], [member; 2], CLAUDE_BUDGET_MIN)
                });
                Some(Self {
                    choices: body.get_non_null("n").map_or(Some(1), |n| n.as_u64())?,
                    budgets: budgets.collect(),
                    ..Self::single(place, limits)
                })
            }
            Operation::Messages => {
                let budget = ThinkingBudget::read(
                    body,
                    0,
                    ["thinking"; 2],
                    ["budget_tokens"; 2],
                    CLAUDE_BUDGET_MIN,
                );
                let place = LimitPlace::at_top(body, &[field], field)?;
                Some(Self { budgets: budget.into_iter().collect(), ..Self::single(place, limits) })
            }
            Operation::Responses => {
                let place = LimitPlace::at_top(body, &[field], field)?;
                Some(Self { tokens_min: RESPONSES_LIMIT_MIN, ..Self::single(place, limits) })
            }
            _ => Self::from_content(body, limits),
        }
    }

    /// The limit of a request for one choice, as Gemini's `generationConfig` has it.
    fn from_content(body: &Object<'_>, limits: &ModelLimits) -> Option<Self> {
        let keys = ["generationConfig", "generation_config"];
        let Some(config) = find(body, keys) else {
            let (at, comma) = body.insertion_point();
            let comma = if comma { "," } else { "" };
            // The object itself is missing, so the edit writes it around the number.
            let before = format!("{comma}\"generationConfig\":{{\"maxOutputTokens\":");
            let place = LimitPlace::Nowhere { at: at..at, before, after: "}" };
            return Some(Self::single(place, limits));
        };
        if config.is_null() {
            let (at, before) = (config.range, "{\"maxOutputTokens\":".to_owned());
            let place = LimitPlace::Nowhere { at, before, after: "}" };
            return Some(Self::single(place, limits));
        }
        let offset = config.range.start;
        let config = config.as_object().ok()?;
        let place = match find(&config, ["maxOutputTokens", "max_output_tokens"]) {
            Some(value) => LimitPlace::from_value(&value, offset)?,
            None => LimitPlace::beside(&config, offset, "maxOutputTokens"),
        };
        let choices = find(&config, ["candidateCount", "candidate_count"]);
        let choices = choices.filter(|value| !value.is_null());
        let budget = ThinkingBudget::read(
            &config,
            offset,
            ["thinkingConfig", "thinking_config"],
            ["thinkingBudget", "thinking_budget"],
            GEMINI_BUDGET_MIN,
        );
        Some(Self {
            choices: choices.map_or(Some(1), |choices| choices.as_u64())?,
            budgets: budget.into_iter().collect(),
            ..Self::single(place, limits)
        })
    }

    fn single(place: LimitPlace, limits: &ModelLimits) -> Self {
        let tokens = match &place {
            LimitPlace::Numbers(numbers) => numbers.iter().map(|(_, tokens)| *tokens).max(),
            LimitPlace::Nowhere { .. } => None,
        };
        let tokens = tokens.unwrap_or(limits.output_tokens_max);
        Self { tokens, choices: 1, tokens_min: 1, place, budgets: Vec::new() }
    }

    /// Effective limit per choice: the request's, or else the model's.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The number of choices, each of which may come to the limit.
    #[must_use]
    pub fn choices(&self) -> u64 {
        self.choices
    }

    /// True if `tokens` is lower than the effective limit.
    #[must_use]
    pub fn is_lowered_by(&self, tokens: u64) -> bool {
        tokens < self.tokens
    }

    /// The edit that lowers the limit of each choice to `tokens`; `None` where that is no lower than what
    /// holds already, or lower than providers take.
    ///
    /// A thinking budget that the new limit does not exceed by enough is lowered as well: it leaves a
    /// quarter of the limit, and 1,024 tokens at least, for the answer, or what it left before if that is
    /// less. One that was as large as the limit before stays: it is for all turns of interleaved thinking.
    #[must_use]
    pub fn lowered(&self, tokens: u64) -> Option<Splice> {
        if !self.is_lowered_by(tokens) || tokens < self.tokens_min {
            return None;
        }
        let mut splice = Splice::default();
        match &self.place {
            LimitPlace::Numbers(numbers) => {
                // A number that is lower already stays: raising it would change what the customer
                // asked for.
                for (range, _) in numbers.iter().filter(|(_, number)| *number > tokens) {
                    splice.replace(range.clone(), tokens.to_string());
                }
            }
            LimitPlace::Nowhere { at, before, after } => {
                splice.replace(at.clone(), format!("{before}{tokens}{after}"));
            }
        }
        for budget in &self.budgets {
            // No edit at all where a budget cannot follow: providers refuse a budget above the
            // limit.
            let lowered = budget.below(tokens, self.tokens)?;
            if lowered < budget.tokens {
                splice.replace(budget.range.clone(), lowered.to_string());
            }
        }
        Some(splice)
    }
}

impl LimitPlace {
    /// The place of the limit at the top of a body whose limit may stand in these `fields`; without one it
    /// goes into the field `added`.
    fn at_top(body: &Object<'_>, fields: &[&str], added: &str) -> Option<Self> {
        let values = fields.iter().filter_map(|field| body.get_non_null(field));
        let numbers = values.map(|value| Some((value.range.clone(), value.as_u64()?)));
        let numbers = numbers.collect::<Option<Vec<_>>>()?;
        if !numbers.is_empty() {
            return Some(Self::Numbers(numbers));
        }
        match body.get(added) {
            Some(null) => Self::from_value(&null, 0),
            None => Some(Self::beside(body, 0, added)),
        }
    }

    /// The place of a limit whose field has this value: a number, or `null`.
    fn from_value(value: &Value<'_>, offset: usize) -> Option<Self> {
        let range = offset + value.range.start..offset + value.range.end;
        if value.is_null() {
            return Some(Self::Nowhere { at: range, before: String::new(), after: "" });
        }
        Some(Self::Numbers(vec![(range, value.as_u64()?)]))
    }

    /// The place of a limit that goes into a further member of `object`.
    fn beside(object: &Object<'_>, offset: usize, field: &str) -> Self {
        let (at, comma) = object.insertion_point();
        let (at, comma) = (offset + at, if comma { "," } else { "" });
        Self::Nowhere { at: at..at, before: format!("{comma}\"{field}\":"), after: "" }
    }
}

impl ThinkingBudget {
    /// Reads the budget from the first existing member of these names in the first existing object; `None` if
    /// it is missing or below one, which means none or the model's choice.
    fn read(
        body: &Object<'_>,
        offset: usize,
        object: [&str; 2],
        member: [&str; 2],
        tokens_min: u64,
    ) -> Option<Self> {
        let value = find(body, object)?;
        let offset = offset + value.range.start;
        let budget = find(&value.as_object().ok()?, member)?;
        let tokens = budget.as_u64().filter(|tokens| *tokens > 0)?;
        let range = offset + budget.range.start..offset + budget.range.end;
        Some(Self { range, tokens, tokens_min })
    }

    /// The budget for a limit that was lowered to `tokens` from `before`; `None` where it cannot be so low.
    fn below(&self, tokens: u64, before: u64) -> Option<u64> {
        let left = before.saturating_sub(self.tokens);
        if left == 0 {
            return Some(self.tokens);
        }
        let answer = left.min(ANSWER_TOKENS_MIN.max(tokens / ANSWER_PART));
        let most = tokens.saturating_sub(answer);
        if self.tokens <= most {
            return Some(self.tokens);
        }
        Some(most).filter(|most| *most >= self.tokens_min)
    }
}

/// The value of the first of these keys that is there, also one that is `null`.
fn find<'a>(object: &Object<'a>, keys: [&str; 2]) -> Option<Value<'a>> {
    keys.into_iter().find_map(|key| object.get(key))
}

#[cfg(test)]
mod tests;
