//! Usage of images and speech: how much went in, and how much came out.

use super::behaviour::Behaviour;
use super::reply::Reply;

/// Approximate bytes of a prompt per token.
const BYTES_PER_TOKEN: usize = 4;

/// Approximate number of tokens in `text`.
pub(super) fn tokens_of(text: &str) -> usize {
    1 + text.len() / BYTES_PER_TOKEN
}

/// Reported usage in the endpoint's unit: tokens, characters or images.
///
/// The figures are signed so that an impossible usage can be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportedUsage {
    pub(super) input: i64,
    pub(super) output: i64,
}

impl ReportedUsage {
    /// Compute the reported usage, if any: as counted, unless `behaviour` overrides it.
    pub(super) fn reported(input: usize, output: usize, behaviour: &Behaviour) -> Option<Self> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let overrides = behaviour.usage;
        behaviour.faults.usage.select(
            Self { input: -100, output: -200 },
            Self { input: i64::MAX, output: i64::MAX },
            || Self {
                input: overrides.prompt.unwrap_or(number(input)),
                output: overrides.completion.unwrap_or(number(output)),
            },
        )
    }

    pub(super) fn total(self) -> i64 {
        self.input.saturating_add(self.output)
    }
}

/// Reported usage of a language model with a prompt cache, in tokens.
#[derive(Clone, Copy)]
pub(super) struct CachedUsage {
    pub(super) input: i64,
    pub(super) cache_read: i64,
    pub(super) output: i64,
}

impl CachedUsage {
    /// Compute the reported usage of a reply to a prompt of `input` tokens, unless `behaviour` overrides it.
    pub(super) fn reported(input: u64, reply: &Reply, behaviour: &Behaviour) -> Option<Self> {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let overrides = behaviour.usage;
        behaviour.faults.usage.select(
            Self { input: -100, cache_read: -50, output: -200 },
            Self { input: i64::MAX, cache_read: 0, output: i64::MAX },
            || Self {
                input: overrides.prompt.unwrap_or(number(input)),
                cache_read: overrides.cached.unwrap_or(0),
                output: overrides.completion.unwrap_or(number(reply.tokens)),
            },
        )
    }

    pub(super) fn tenfold(self) -> Self {
        let Self { input, output, .. } = self;
        Self { input: input.saturating_mul(10), output: output.saturating_mul(10), ..self }
    }
}
