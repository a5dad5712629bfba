//! Usage of images and speech: how much went in, and how much came out.

use super::behaviour::{Behaviour, UsageForm};

/// How many bytes of a prompt make a token, about.
const BYTES_PER_TOKEN: usize = 4;

/// How many tokens `text` counts as.
pub(super) fn tokens_of(text: &str) -> usize {
    1 + text.len() / BYTES_PER_TOKEN
}

/// What a usage report says, in whatever its endpoint counts: tokens, characters, images.
///
/// The figures are signed so that an impossible usage can be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) input: i64,
    pub(super) output: i64,
}

impl Usage {
    /// What is reported, if anything is: what was counted, unless `behaviour` says otherwise.
    pub(super) fn reported(input: usize, output: usize, behaviour: &Behaviour) -> Option<Self> {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let told = behaviour.usage;
        match behaviour.faults.usage {
            UsageForm::Missing => None,
            UsageForm::Negative => Some(Self { input: -100, output: -200 }),
            UsageForm::Huge => Some(Self { input: i64::MAX, output: i64::MAX }),
            UsageForm::Honest
            | UsageForm::Text
            | UsageForm::Twice
            | UsageForm::Early
            | UsageForm::Late => Some(Self {
                input: told.prompt.unwrap_or(number(input)),
                output: told.completion.unwrap_or(number(output)),
            }),
        }
    }

    pub(super) fn total(self) -> i64 {
        self.input.saturating_add(self.output)
    }
}
