//! Usage reports of chat completions.

use crate::behaviour::Behaviour;
use crate::reply::{ChatRequest, Reply};

/// Approximate bytes of a prompt per token.
const BYTES_PER_TOKEN: usize = 4;

/// Reported usage of a completion, in tokens.
#[derive(Clone, Copy)]
pub(super) struct ChatUsage {
    pub(super) prompt: i64,
    pub(super) completion: i64,
    pub(super) cached: i64,
    pub(super) reasoning: i64,
}

impl ChatUsage {
    const NEGATIVE: Self = Self { prompt: -100, completion: -200, cached: -50, reasoning: -1 };
    const HUGE: Self = Self { prompt: i64::MAX, completion: i64::MAX, cached: 0, reasoning: 0 };

    /// Compute the reported usage: estimated from request and answer, unless `behaviour` overrides it.
    pub(super) fn reported(
        request: &ChatRequest<'_>,
        reply: &Reply,
        choices: u32,
        behaviour: &Behaviour,
    ) -> Option<Self> {
        let prompt = 1 + request.messages.get().len() / BYTES_PER_TOKEN;
        let completion = reply.tokens.saturating_mul(u64::from(choices));
        let overrides = behaviour.usage;
        behaviour.faults.usage.select(Self::NEGATIVE, Self::HUGE, || Self {
            prompt: overrides.prompt.unwrap_or(i64::try_from(prompt).unwrap_or(i64::MAX)),
            completion: overrides
                .completion
                .unwrap_or(i64::try_from(completion).unwrap_or(i64::MAX)),
            cached: overrides.cached.unwrap_or(0),
            reasoning: overrides.reasoning.unwrap_or(0),
        })
    }

    pub(super) fn tenfold(self) -> Self {
        Self {
            prompt: self.prompt.saturating_mul(10),
            completion: self.completion.saturating_mul(10),
            ..self
        }
    }

    pub(super) fn to_field(self) -> String {
        let Self { prompt, completion, cached, reasoning } = self;
        let total = prompt.saturating_add(completion);
        format!(
            r#","usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{cached}}},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}"#
        )
    }
}
