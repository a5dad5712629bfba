//! Tools and settings of a request for content for an upstream.

use std::borrow::Cow;

use crate::dialect::{Losses, ThinkingStyle, TranslationTarget, Untranslatable};
use crate::json::{self, Members};
use crate::part::{AnswerFormat, Effort, PromptPart, Sampling, Thinking, ToolChoice};
use crate::schemas::{self, Subset};
use crate::thinking;
use crate::tool_schema;
use crate::turns::AlternatingTurns;
use crate::upstream_tools::{self, UpstreamTools};

/// The refusal of a JSON answer beside tools.
const FORMAT_BESIDE_TOOLS: &str = "`response_format` cannot be combined with `tools` for this model: leave \
     one of them out, or use a Gemini 3 model.";
/// Maximum number of stop sequences.
const STOP_MAX: usize = 5;
/// The fewest and the most tokens that every model that is told a budget can be told to think: Flash-Lite
/// begins at 512 and ends, as Flash does, at 24,576 ("Thinking" of Vertex AI's documentation).
const BUDGETS: std::ops::RangeInclusive<u64> = 512..=24_576;

pub(super) fn tools<'p>(
    parts: &'p [PromptPart<'p>],
    conversation: &AlternatingTurns<'p>,
    target: &TranslationTarget,
    losses: &mut Losses,
    members: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let offer =
        UpstreamTools::gather(parts, conversation, Some(Subset::GeminiTools), target, losses)?;
    if offer.tools.is_empty() {
        return Ok(());
    }
    if upstream_tools::is_single(parts) && !offer.is_history {
        losses.drop_hint(target.mode, "parallel_tool_calls")?;
    }
    members.key(out, "tools");
    let mut list = Members::array(out);
    list.next(out);
    let mut object = Members::object(out);
    object.key(out, "functionDeclarations");
    let mut declarations = Members::array(out);
    for tool in &offer.tools {
        declarations.next(out);
        let mut declaration = Members::object(out);
        declaration.text(out, "name", tool.name);
        if let Some(description) = tool.description {
            declaration.text(out, "description", description);
        }
        declaration.raw(out, "parametersJsonSchema", &tool_schema::with_items(&tool.schema));
        declaration.end(out);
    }
    declarations.end(out);
    object.end(out);
    list.end(out);
    let is_strict = offer.tools.iter().any(|tool| tool.is_strict);
    let choice =
        if offer.is_history { Some(&ToolChoice::None) } else { upstream_tools::tool_choice(parts) };
    let (word, name) = match choice {
        Some(ToolChoice::None) => ("NONE", None),
        // Calls that must come fit their schemas.
        Some(ToolChoice::Any) => ("ANY", None),
        Some(ToolChoice::Named(name)) => ("ANY", Some(name)),
        Some(ToolChoice::Auto) | None if is_strict => ("VALIDATED", None),
        Some(ToolChoice::Auto) => ("AUTO", None),
        None => return Ok(()),
    };
    tool_config(word, name.map(|name| &**name), members, out);
    Ok(())
}

fn tool_config(mode: &str, name: Option<&str>, members: &mut Members, out: &mut Vec<u8>) {
    members.key(out, "toolConfig");
    let mut object = Members::object(out);
    object.key(out, "functionCallingConfig");
    let mut config = Members::object(out);
    config.text(out, "mode", mode);
    if let Some(name) = name {
        config.key(out, "allowedFunctionNames");
        let mut names = Members::array(out);
        names.next(out);
        json::push_string(out, name);
        names.end(out);
    }
    config.end(out);
    object.end(out);
}

/// `generationConfig`, if anything is set.
pub(super) fn generation(
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
    losses: &mut Losses,
    members: &mut Members,
    out: &mut Vec<u8>,
) -> Result<(), Untranslatable> {
    let mut written = Vec::new();
    let mut object = Members::object(&mut written);
    let is_empty = written.len();
    let mut settings = ContentSettings { target, losses, members: &mut object, out: &mut written };
    // "Function calling with a response mime type: 'application/json' is unsupported", say models before
    // Gemini 3. Neither can be left out.
    // Tools that were called earlier are declared as well.
    let is_offered =
        |part: &PromptPart<'_>| matches!(part, PromptPart::Tool(_) | PromptPart::ToolCall(_));
    let is_formed = |part: &PromptPart<'_>| matches!(part, PromptPart::Format(_));
    if target.thinking == ThinkingStyle::Budget
        && parts.iter().any(is_offered)
        && parts.iter().any(is_formed)
    {
        return Err(Untranslatable {
            field: "response_format".into(),
            message: FORMAT_BESIDE_TOOLS.to_owned(),
        });
    }
    for part in parts {
        settings.part(part)?;
    }
    // Of several the last counts.
    let thinking = parts.iter().rev().find_map(|part| match part {
        PromptPart::Thinking(thinking) => Some(*thinking),
        _ => None,
    });
    if let Some(thinking) = thinking {
        settings.thinking(thinking)?;
    }
    let has_any = written.len() > is_empty;
    object.end(&mut written);
    if has_any {
        members.key(out, "generationConfig");
        out.extend_from_slice(&written);
    }
    Ok(())
}

/// Settings of `generationConfig`, and what has no place in a request at all.
struct ContentSettings<'w> {
    target: &'w TranslationTarget,
    losses: &'w mut Losses,
    members: &'w mut Members,
    out: &'w mut Vec<u8>,
}

impl ContentSettings<'_> {
    fn part(&mut self, part: &PromptPart<'_>) -> Result<(), Untranslatable> {
        match part {
            PromptPart::OutputMax(tokens) => {
                self.members.integer(self.out, "maxOutputTokens", *tokens);
            }
            PromptPart::Stop(texts) => self.stop(texts)?,
            PromptPart::Format(format) => {
                self.members.text(self.out, "responseMimeType", "application/json");
                if let AnswerFormat::Schema { schema, .. } = format {
                    let fitted = schemas::fit(schema, Subset::Gemini)?;
                    let schema = tool_schema::with_items(&fitted.text);
                    self.members.raw(self.out, "responseJsonSchema", &schema);
                }
            }
            PromptPart::Sampling(sampling) => self.sampling(*sampling)?,
            PromptPart::Verbosity(_) => self.drop_hint("verbosity")?,
            PromptPart::CacheKey(_) => self.drop_hint("prompt_cache_key")?,
            PromptPart::User(_) => self.drop_hint("user")?,
            _ => {}
        }
        Ok(())
    }

    fn drop_hint(&mut self, field: &'static str) -> Result<(), Untranslatable> {
        self.losses.drop_hint(self.target.mode, field)
    }

    fn stop(&mut self, texts: &[Cow<'_, str>]) -> Result<(), Untranslatable> {
        let texts: Vec<&Cow<'_, str>> = texts.iter().filter(|text| !text.is_empty()).collect();
        if texts.len() > STOP_MAX {
            return Err(Untranslatable::uncarried("stop"));
        }
        if texts.is_empty() {
            return Ok(());
        }
        self.members.key(self.out, "stopSequences");
        let mut list = Members::array(self.out);
        for text in texts {
            list.next(self.out);
            json::push_string(self.out, text);
        }
        list.end(self.out);
        Ok(())
    }

    /// Writes the thinking setting: a level for models since Gemini 3, which cannot be turned off, and a
    /// budget for earlier ones. Models with neither do not think.
    fn thinking(&mut self, thinking: Thinking) -> Result<(), Untranslatable> {
        let is_leveled = match self.target.thinking {
            ThinkingStyle::Effort if thinking == Thinking::Off => {
                return self.drop_hint("thinking");
            }
            ThinkingStyle::None => return self.drop_hint("thinking"),
            ThinkingStyle::Effort => true,
            ThinkingStyle::Budget => false,
        };
        self.members.key(self.out, "thinkingConfig");
        let mut config = Members::object(self.out);
        if thinking != Thinking::Off {
            config.boolean(self.out, "includeThoughts", true);
        }
        let effort = match thinking {
            Thinking::Effort(effort) => Some(effort),
            Thinking::Budget(tokens) => Some(thinking::effort_of(tokens)),
            Thinking::Off | Thinking::Adaptive => None,
        };
        match (is_leveled, thinking, effort) {
            (true, _, Some(effort)) => {
                // The largest models know no `minimal`.
                let level = match effort {
                    Effort::Minimal | Effort::Low => "low",
                    Effort::Medium => "medium",
                    Effort::High | Effort::ExtraHigh | Effort::Max => "high",
                };
                config.text(self.out, "thinkingLevel", level);
            }
            (false, Thinking::Off, _) => config.integer(self.out, "thinkingBudget", 0),
            (false, Thinking::Budget(tokens), _) => {
                let budget = tokens.clamp(*BUDGETS.start(), *BUDGETS.end());
                config.integer(self.out, "thinkingBudget", budget);
            }
            (false, _, Some(effort)) => {
                let budget = thinking::budget_of(effort).min(*BUDGETS.end());
                config.integer(self.out, "thinkingBudget", budget);
            }
            // As much as the model likes.
            (true, _, None) => {}
            (false, _, None) => config.raw(self.out, "thinkingBudget", "-1"),
        }
        config.end(self.out);
        Ok(())
    }

    fn sampling(&mut self, sampling: Sampling) -> Result<(), Untranslatable> {
        let field = sampling.field();
        let has_words = match sampling {
            Sampling::Temperature(_) | Sampling::TopP(_) | Sampling::TopK(_) => {
                self.target.takes_sampling
            }
            Sampling::Seed(seed) => i32::try_from(seed).is_ok(),
            // "Penalty is not enabled for this model", since Gemini 2.5.
            Sampling::PresencePenalty(_) | Sampling::FrequencyPenalty(_) => {
                self.target.thinking == ThinkingStyle::None
            }
        };
        if !has_words {
            return self.drop_hint(field);
        }
        let (key, number) = match sampling {
            Sampling::Temperature(number) => ("temperature", number),
            Sampling::TopP(number) => ("topP", number),
            Sampling::PresencePenalty(number) => ("presencePenalty", number),
            Sampling::FrequencyPenalty(number) => ("frequencyPenalty", number),
            Sampling::TopK(count) => {
                self.members.integer(self.out, "topK", count);
                return Ok(());
            }
            Sampling::Seed(seed) => {
                self.members.raw(self.out, "seed", &seed.to_string());
                return Ok(());
            }
        };
        self.members.key(self.out, key);
        json::push_number(self.out, number);
        Ok(())
    }
}
