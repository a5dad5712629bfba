//! The tools of a request as Anthropic, Bedrock and Google take them.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::call_input;
use crate::dialect::{Losses, TranslationTarget, Untranslatable};
use crate::part::{Cache, PromptPart, ToolChoice};
use crate::schemas::{self, Subset};
use crate::tool_schema;
use crate::turns::AlternatingTurns;

/// Description of a tool that the conversation calls and the request no longer offers.
const NOT_OFFERED: &str =
    "Was called earlier in this conversation and is not available any more. Do not call it.";
/// The most strict tools of a request to Claude (Anthropic's documentation of structured outputs, "Schema
/// complexity limits").
const STRICT_MAX: usize = 20;

/// A tool that the model is told of.
pub(crate) struct UpstreamTool<'p> {
    pub(crate) name: &'p str,
    pub(crate) description: Option<&'p str>,
    pub(crate) schema: Cow<'p, str>,
    /// Inputs that do not fit the schema must not come.
    pub(crate) is_strict: bool,
}

/// The tools that the model is told of.
#[derive(Default)]
pub(crate) struct UpstreamTools<'p> {
    pub(crate) tools: Vec<UpstreamTool<'p>>,
    /// Cache marks after them.
    pub(crate) marks: Vec<Option<Cache>>,
    /// The tools occur only in the conversation and may not be called.
    pub(crate) is_history: bool,
}

impl<'p> UpstreamTools<'p> {
    /// The tools of the request. Where it offers none, and the conversation has calls, those that were
    /// called: "Requests which include `tool_use` or `tool_result` blocks must define tools" (Anthropic,
    /// litellm 4689), "The toolConfig field must be defined when using toolUse and toolResult content
    /// blocks" (Bedrock, opencode 10259).
    ///
    /// # Errors
    /// What cannot be carried, where nothing may be dropped.
    pub(crate) fn gather(
        parts: &'p [PromptPart<'p>],
        conversation: &AlternatingTurns<'p>,
        subset: Option<Subset>,
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<Self, Untranslatable> {
        let mut gathered = Self::default();
        let mut names = HashSet::new();
        let all = parts.iter().filter_map(|part| match part {
            PromptPart::Tool(tool) => Some(tool),
            _ => None,
        });
        for (place, tool) in all.enumerate() {
            // "Tool names must be unique": MCP clients offer servers twice.
            if !names.insert(&*tool.name) {
                losses.drop_hint(target.mode, format!("tools[{place}]"))?;
                continue;
            }
            let schema =
                if tool.is_free { Some(call_input::FREE_SCHEMA) } else { tool.schema.as_deref() };
            let input = schemas::tool_input(schema, subset);
            if input.is_uncallable {
                losses.drop_hint(target.mode, format!("tools[{place}]"))?;
                continue;
            }
            if !input.left_out.is_empty() {
                let field = format!("tools[{place}].parameters.properties");
                losses.drop_hint(target.mode, field)?;
            }
            let mut offered = UpstreamTool {
                name: &tool.name,
                description: tool.description.as_deref().filter(|text| !text.trim().is_empty()),
                schema: input.schema,
                is_strict: tool.is_strict == Some(true),
            };
            let stays_strict = match subset {
                Some(Subset::Claude) => offered.is_strict && offered.tighten(),
                // Over Bedrock models of other makers want closed objects as well, and nothing says what else.
                None => offered.is_strict && tool_schema::is_strict(&offered.schema),
                Some(_) => offered.is_strict,
            };
            if std::mem::replace(&mut offered.is_strict, stays_strict) && !stays_strict {
                losses.drop_hint(target.mode, "tools.strict")?;
            }
            gathered.tools.push(offered);
            gathered.marks.push(tool.cache);
        }
        if subset == Some(Subset::Claude) {
            gathered.limit_strict(target, losses)?;
        }
        if gathered.tools.is_empty() {
            gathered.declare(conversation);
        }
        Ok(gathered)
    }

    /// Declares the tools that were called, with inputs of any kind.
    pub(crate) fn declare(&mut self, conversation: &AlternatingTurns<'p>) {
        let called = conversation.called();
        self.marks = vec![None; called.len()];
        self.tools = called.into_iter().map(UpstreamTool::no_longer_offered).collect();
        self.is_history = true;
    }

    fn limit_strict(
        &mut self,
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<(), Untranslatable> {
        if self.tools.iter().filter(|tool| tool.is_strict).count() > STRICT_MAX {
            self.tools.iter_mut().for_each(|tool| tool.is_strict = false);
            losses.drop_hint(target.mode, "tools.strict")?;
        }
        Ok(())
    }
}

impl<'p> UpstreamTool<'p> {
    fn no_longer_offered(name: &'p str) -> Self {
        let schema = tool_schema::EMPTY_SCHEMA.into();
        Self { name, description: Some(NOT_OFFERED), schema, is_strict: false }
    }

    /// Converts the schema for Claude's strict tools; returns true if nothing is lost. Other tools may have
    /// any schema.
    fn tighten(&mut self) -> bool {
        let fitted = schemas::fit(&self.schema, Subset::Claude).ok();
        let fitted = fitted.filter(|fitted| !fitted.is_looser).map(|fitted| fitted.text);
        match fitted {
            Some(Cow::Borrowed(_)) => true,
            Some(Cow::Owned(text)) => {
                self.schema = text.into();
                true
            }
            None => false,
        }
    }
}

/// The choice of tools of a request.
pub(crate) fn tool_choice<'p>(parts: &'p [PromptPart<'p>]) -> Option<&'p ToolChoice<'p>> {
    parts.iter().rev().find_map(|part| match part {
        PromptPart::ToolChoice(choice) => Some(choice),
        _ => None,
    })
}

/// True if only one tool may be called at a time.
pub(crate) fn is_single(parts: &[PromptPart<'_>]) -> bool {
    parts.iter().any(|part| matches!(part, PromptPart::ParallelTools(false)))
}
