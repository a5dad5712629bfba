//! A conversation as Anthropic and those who follow it take it: the instructions first, then turns in
//! which user and assistant alternate, with the results of tools at the beginning of a user's turn.

use crate::dialect::TranslationTarget;
use crate::part::{ContentPart, PromptPart, Reasoning, Speaker, Text};

/// What is said, in turns of changing roles.
pub(crate) struct AlternatingTurns<'p> {
    /// The instructions before the first turn.
    pub(crate) system: Vec<&'p Text<'p>>,
    pub(crate) turns: Vec<MergedTurn<'p>>,
}

/// All that one role says before the other does.
pub(crate) struct MergedTurn<'p> {
    pub(crate) role: Speaker,
    /// Its blocks, with the results of tools before all else.
    pub(crate) blocks: Vec<Block<'p>>,
}

/// Something said in a turn.
pub(crate) enum Block<'p> {
    /// A part of the request.
    Part(&'p PromptPart<'p>),
    /// An instruction in the middle of a conversation: only a user can give it there.
    Instruction(&'p Text<'p>),
}

impl<'p> AlternatingTurns<'p> {
    /// Puts the parts of a request in turns. Of what was thought, `is_own` says what the upstream has
    /// sealed itself: the rest is no part of the prompt.
    pub(crate) fn gather(
        parts: &'p [PromptPart<'p>],
        is_own: impl Fn(&Reasoning<'_>) -> bool,
    ) -> Self {
        let mut conversation = Self { system: Vec::new(), turns: Vec::new() };
        for part in parts {
            match part {
                PromptPart::Instruction(text) if conversation.turns.is_empty() => {
                    conversation.system.push(text);
                }
                PromptPart::Instruction(text) => {
                    conversation.turn(Speaker::User).blocks.push(Block::Instruction(text));
                }
                PromptPart::Turn(role) => drop(conversation.turn(*role)),
                PromptPart::ToolResult(_) => {
                    let blocks = &mut conversation.turn(Speaker::User).blocks;
                    let is_result =
                        |block: &Block<'_>| matches!(block, Block::Part(PromptPart::ToolResult(_)));
                    let place = blocks.iter().take_while(|block| is_result(block)).count();
                    blocks.insert(place, Block::Part(part));
                }
                PromptPart::Reasoning(one) if !is_own(one) => {}
                // An empty text is refused.
                PromptPart::Content(ContentPart::Text(one)) if one.text.is_empty() => {}
                PromptPart::Content(_) | PromptPart::ToolCall(_) | PromptPart::Reasoning(_) => {
                    if let Some(turn) = conversation.turns.last_mut() {
                        turn.blocks.push(Block::Part(part));
                    }
                }
                _ => {}
            }
        }
        conversation.turns.retain(|turn| !turn.blocks.is_empty());
        conversation.merge();
        conversation
    }

    /// The open turn, if this role speaks in it, or a new one.
    fn turn(&mut self, role: Speaker) -> &mut MergedTurn<'p> {
        if self.turns.last().is_none_or(|turn| turn.role != role) {
            self.turns.push(MergedTurn { role, blocks: Vec::new() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// Turns of one role that stand together become one.
    fn merge(&mut self) {
        let mut merged: Vec<MergedTurn<'p>> = Vec::with_capacity(self.turns.len());
        for turn in self.turns.drain(..) {
            match merged.last_mut() {
                Some(last) if last.role == turn.role => last.blocks.extend(turn.blocks),
                _ => merged.push(turn),
            }
        }
        self.turns = merged;
    }

    /// Whether the last that the assistant did was to call tools without a thought of its own that this
    /// dialect has sealed.
    pub(crate) fn has_unsealed_calls(&self) -> bool {
        let last = self.turns.iter().rev().find(|turn| turn.role == Speaker::Assistant);
        let ends_in_result = self.turns.last().is_some_and(|turn| {
            turn.blocks.iter().any(|block| matches!(block, Block::Part(PromptPart::ToolResult(_))))
        });
        ends_in_result
            && last.is_some_and(|turn| {
                let is_thought =
                    |block: &Block<'_>| matches!(block, Block::Part(PromptPart::Reasoning(_)));
                !turn.blocks.iter().any(is_thought)
            })
    }
}

/// Up to where the prompt is marked for the cache where the customer's dialect has no marks.
#[derive(Default)]
pub(crate) struct CacheMarks {
    /// All tools, behind the last.
    pub(crate) tools: bool,
    /// The place of an instruction.
    pub(crate) system: Option<usize>,
    /// The places of turns, whose last block is marked.
    pub(crate) turns: Vec<usize>,
}

impl CacheMarks {
    /// The marks that the target's cache needs; none where the request has its own.
    pub(crate) fn new(
        parts: &[PromptPart<'_>],
        conversation: &AlternatingTurns<'_>,
        target: &TranslationTarget,
    ) -> Self {
        let is_marked = |part: &PromptPart<'_>| match part {
            PromptPart::Instruction(text) | PromptPart::Content(ContentPart::Text(text)) => {
                text.cache.is_some()
            }
            PromptPart::Content(
                ContentPart::Image(media)
                | ContentPart::File(media)
                | ContentPart::Audio(media)
                | ContentPart::Video(media),
            ) => media.cache.is_some(),
            PromptPart::Tool(tool) => tool.cache.is_some(),
            PromptPart::ToolCall(call) => call.cache.is_some(),
            PromptPart::ToolResult(result) => result.cache.is_some(),
            _ => false,
        };
        if !target.caches || parts.iter().any(is_marked) {
            return Self::default();
        }
        let users = conversation.turns.iter().enumerate().rev();
        let users = users.filter(|(_, turn)| turn.role == Speaker::User).take(2);
        Self {
            tools: true,
            system: conversation.system.len().checked_sub(1),
            turns: users.map(|(place, _)| place).collect(),
        }
    }
}
