//! How much a model is to think: words and token budgets, and which of several settings counts.

use crate::dialect::Untranslatable;
use crate::field_path::{FieldPath, Raw};
use crate::part::{Effort, PromptPart, Thinking};

/// Reasoning budget in tokens for an effort word. Anthropic's minimum is 1,024.
pub(crate) fn budget_of(effort: Effort) -> u64 {
    match effort {
        Effort::Minimal => 1024,
        Effort::Low => 4096,
        Effort::Medium => 10_240,
        Effort::High => 24_576,
        Effort::ExtraHigh => 32_768,
        Effort::Max => 63_999,
    }
}

/// Effort that corresponds to a thinking budget.
pub(crate) fn effort_of(budget: u64) -> Effort {
    match budget {
        // Anthropic's least, 1,024, is no `minimal`, which models since gpt-5.1 refuse.
        0..=6144 => Effort::Low,
        6145..=16_384 => Effort::Medium,
        _ => Effort::High,
    }
}

/// Parses an effort of OpenAI or Anthropic.
pub(crate) fn effort_of_word(word: &str) -> Option<Effort> {
    Some(match word {
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" => Effort::High,
        "xhigh" => Effort::ExtraHigh,
        // Codex offers `ultra` beyond `max`.
        "max" | "ultra" => Effort::Max,
        _ => return None,
    })
}

/// Parses an effort of OpenAI's APIs.
pub(crate) fn of_openai(at: &FieldPath<'_>, value: Raw<'_>) -> Result<Thinking, Untranslatable> {
    let word = at.text(value)?;
    match effort_of_word(&word) {
        Some(effort) => Ok(Thinking::Effort(effort)),
        None if word == "none" => Ok(Thinking::Off),
        None => Err(at.malformed("none, minimal, low, medium, high or xhigh")),
    }
}

/// Of several settings for thinking, the most specific one: off, or an amount.
pub(crate) fn strongest(all: &[Thinking]) -> Option<Thinking> {
    let off = all.iter().find(|one| **one == Thinking::Off);
    let definite = all.iter().find(|one| **one != Thinking::Adaptive);
    off.or(definite).or(all.first()).copied()
}

/// The requested reasoning where a request sets it several times: Anthropic's has a switch and an effort.
pub(crate) fn requested(parts: &[PromptPart<'_>]) -> Option<Thinking> {
    let requested = parts.iter().filter_map(|part| match part {
        PromptPart::Thinking(thinking) => Some(*thinking),
        _ => None,
    });
    let weight = |thinking: &Thinking| match thinking {
        Thinking::Adaptive => 0,
        Thinking::Effort(_) | Thinking::Budget(_) => 1,
        Thinking::Off => 2,
    };
    requested.max_by_key(weight)
}
