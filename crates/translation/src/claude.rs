//! Request settings that Anthropic's models share across APIs: reasoning, tool choice and sampling.

use crate::dialect::{Losses, ThinkingStyle, TranslationTarget, Untranslatable};
use crate::json::Members;
use crate::part::{Effort, PromptPart, Sampling, Thinking, ToolChoice};
use crate::thinking;
use crate::turns::AlternatingTurns;

/// Minimum thinking budget, in tokens.
const BUDGET_MIN: u64 = 1024;
/// The least `top_p` with which a model thinks.
const THINKING_TOP_P_MIN: f64 = 0.95;

/// The name of a beginning of the answer, among what is left out.
pub(crate) const PREFILL: &str = "messages: prefill";

/// Reasoning setting sent to an Anthropic model.
#[derive(Clone, Copy)]
pub(crate) enum ThinkingSetting {
    /// The model decides how much to think, guided by the effort.
    Adaptive(Option<Effort>),
    /// Maximum number of thinking tokens.
    Budget(u64),
    /// Nothing is thought before the answer.
    Off,
}

/// Chooses the reasoning setting for the requested effort, as far as the model's protocol and the
/// conversation allow it.
///
/// # Errors
/// What is asked for and cannot be, where nothing may be dropped.
pub(crate) fn thinking(
    parts: &[PromptPart<'_>],
    output_max: u64,
    target: &TranslationTarget,
    losses: &mut Losses,
    conversation: &AlternatingTurns<'_>,
) -> Result<Option<ThinkingSetting>, Untranslatable> {
    let requested = parts.iter().rev().find_map(|part| match part {
        PromptPart::Thinking(thinking) => Some(*thinking),
        _ => None,
    });
    let setting = match (requested, target.thinking) {
        (None, _) => return Ok(None),
        (Some(Thinking::Off), ThinkingStyle::None) => return Ok(None),
        (Some(Thinking::Off), _) => return Ok(Some(ThinkingSetting::Off)),
        (Some(_), ThinkingStyle::None) => {
            losses.drop_hint(target.mode, "reasoning_effort")?;
            return Ok(None);
        }
        (Some(Thinking::Adaptive), ThinkingStyle::Effort) => ThinkingSetting::Adaptive(None),
        (Some(Thinking::Effort(effort)), ThinkingStyle::Effort) => {
            ThinkingSetting::Adaptive(Some(effort))
        }
        (Some(Thinking::Budget(tokens)), ThinkingStyle::Effort) => {
            ThinkingSetting::Adaptive(Some(thinking::effort_of(tokens)))
        }
        (Some(Thinking::Adaptive), ThinkingStyle::Budget) => {
            ThinkingSetting::Budget(thinking::budget_of(Effort::Medium))
        }
        (Some(Thinking::Effort(effort)), ThinkingStyle::Budget) => {
            ThinkingSetting::Budget(thinking::budget_of(effort))
        }
        (Some(Thinking::Budget(tokens)), ThinkingStyle::Budget) => ThinkingSetting::Budget(tokens),
    };
    // "Thinking may not be enabled when tool_choice forces tool use" (Anthropic).
    let is_forced = parts
        .iter()
        .any(|part| matches!(part, PromptPart::ToolChoice(ToolChoice::Any | ToolChoice::Named(_))));
    let setting = match setting {
        ThinkingSetting::Budget(tokens) => {
            // The budget must be below `max_tokens`, which the customer may have set without knowing
            // that.
            ThinkingSetting::Budget(budget_below(tokens, output_max))
        }
        other => other,
    };
    let is_refused = match setting {
        ThinkingSetting::Budget(tokens) => tokens < BUDGET_MIN || conversation.has_unsealed_calls(),
        _ => false,
    };
    if is_forced || is_refused {
        losses.drop_hint(target.mode, "reasoning_effort")?;
        return Ok(None);
    }
    Ok(Some(setting))
}

/// A budget of `tokens` for an answer of `output_max` tokens, which Anthropic has it be below. One that is
/// not leaves a quarter of them, and 1,024 at least, for the answer, as far as the least budget lets it:
/// nothing but thoughts helps nobody.
fn budget_below(tokens: u64, output_max: u64) -> u64 {
    if tokens < output_max {
        return tokens;
    }
    let answer = (output_max / 4).max(1024);
    let most = output_max.saturating_sub(answer).max(BUDGET_MIN);
    most.min(output_max.saturating_sub(1))
}

/// Lets the user speak last where the model cannot go on with words of its own: "This model does not
/// support assistant message prefill. The conversation must end with a user message" (since Opus 4.6,
/// opencode 13768), no model can that thinks, and "Structured outputs are incompatible with message
/// prefilling".
///
/// # Errors
/// The assistant speaks last, and nothing may be dropped.
pub(crate) fn end_turns(
    conversation: &mut AlternatingTurns<'_>,
    parts: &[PromptPart<'_>],
    thinks: Option<ThinkingSetting>,
    target: &TranslationTarget,
    losses: &mut Losses,
) -> Result<(), Untranslatable> {
    if !conversation.ends_with_assistant() {
        return Ok(());
    }
    // A begun answer would not be JSON from its first byte.
    let has_format = parts.iter().any(|part| matches!(part, PromptPart::Format(_)));
    if has_format
        || target.thinking == ThinkingStyle::Effort
        || thinks.is_some_and(ThinkingSetting::is_on)
    {
        losses.drop_hint(target.mode, PREFILL)?;
        conversation.end_with_user();
    } else {
        conversation.prefill();
    }
    Ok(())
}

/// True if a request has a temperature that the model accepts.
pub(crate) fn has_temperature(parts: &[PromptPart<'_>], thinks: bool) -> bool {
    parts.iter().any(|part| match part {
        PromptPart::Sampling(one @ Sampling::Temperature(_)) => takes(*one, thinks, true),
        _ => false,
    })
}

impl ThinkingSetting {
    /// Writes the object `thinking`.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let mut object = Members::object(out);
        match self {
            Self::Adaptive(_) => object.text(out, "type", "adaptive"),
            Self::Budget(tokens) => {
                object.text(out, "type", "enabled");
                object.integer(out, "budget_tokens", tokens);
            }
            Self::Off => object.text(out, "type", "disabled"),
        }
        object.end(out);
    }

    /// Value of `output_config.effort`, if it is sent.
    pub(crate) fn effort(self) -> Option<&'static str> {
        let Self::Adaptive(Some(effort)) = self else { return None };
        Some(match effort {
            Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High | Effort::ExtraHigh => "high",
            Effort::Max => "max",
        })
    }

    /// True if the model reasons before its answer.
    pub(crate) fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// True if a model accepts a sampling setting beside its reasoning and temperature.
pub(crate) fn takes(sampling: Sampling, thinks: bool, has_temperature: bool) -> bool {
    match sampling {
        Sampling::Temperature(number) => {
            number <= 1.0 && (!thinks || (number - 1.0).abs() < f64::EPSILON)
        }
        // The newest models take one of the two.
        Sampling::TopP(number) => !has_temperature && (!thinks || number >= THINKING_TOP_P_MIN),
        Sampling::TopK(_) => !thinks,
        _ => false,
    }
}

/// Writes the object `tool_choice`.
pub(crate) fn tool_choice(choice: &ToolChoice<'_>, is_single: bool, out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    match choice {
        ToolChoice::Auto => object.text(out, "type", "auto"),
        ToolChoice::None => object.text(out, "type", "none"),
        ToolChoice::Any => object.text(out, "type", "any"),
        ToolChoice::Named(name) => {
            object.text(out, "type", "tool");
            object.text(out, "name", name);
        }
    }
    // Where no tool may be called there is nothing to limit.
    if is_single && *choice != ToolChoice::None {
        object.boolean(out, "disable_parallel_tool_use", true);
    }
    object.end(out);
}
