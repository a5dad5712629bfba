//! A conversation as the validators of Anthropic, Bedrock and Google take it: the instructions first, then
//! turns in which user and assistant alternate and the user is the first, with a result for every call at
//! the beginning of the turn behind it. Agents leave calls without results when they are interrupted, and
//! results without calls when they shorten a conversation; both are the same in every later turn.

use std::borrow::Cow;

use crate::part::{Cache, ContentPart, PromptPart, Reasoning, Speaker, Text, ToolCall, ToolResult};

mod marks;

pub(crate) use marks::CacheMarks;

/// User text inserted before a conversation that begins with the assistant: "first message must use the user
/// role" (Anthropic), "A conversation must start with a user message" (Bedrock), "function call turn comes
/// immediately after a user turn" (Gemini).
const OPENING: &str = "(The conversation begins here.)";
/// User text appended to a conversation that ends with the assistant, where the model cannot continue its own
/// words.
const CONTINUE: &str = "Continue.";
/// Assistant text inserted between tool results and a user's text, where a turn holds only one of the two.
const RECEIVED: &str = "(The results were received.)";
/// The result of a call that has none: "`tool_use` ids were found without `tool_result` blocks immediately
/// after" (claude-code 7929).
pub(crate) const NO_RESULT: &str = "There is no result: the call was interrupted.";
/// A failure that says nothing: "content cannot be empty if `is_error` is true".
pub(crate) const EMPTY_FAILURE: &str = "The tool failed.";

/// A conversation in turns of alternating roles.
pub(crate) struct AlternatingTurns<'p> {
    /// The instructions before the first turn.
    pub(crate) system: Vec<SystemText<'p>>,
    pub(crate) turns: Vec<MergedTurn<'p>>,
}

/// An instruction before the first turn.
pub(crate) struct SystemText<'p> {
    pub(crate) text: &'p str,
    /// The prompt up to here is to be cached.
    pub(crate) cache: Option<Cache>,
}

/// Everything that one role says before the other.
pub(crate) struct MergedTurn<'p> {
    pub(crate) role: Speaker,
    /// Its blocks, with the results of tools before all else.
    pub(crate) blocks: Vec<TurnBlock<'p>>,
}

/// A block of a turn.
pub(crate) struct TurnBlock<'p> {
    pub(crate) content: TurnContent<'p>,
    /// The prompt up to here is to be cached.
    pub(crate) cache: Option<Cache>,
}

/// The content of a block.
pub(crate) enum TurnContent<'p> {
    /// Content of a turn.
    Content(&'p ContentPart<'p>),
    /// A text that no part has as it is: an instruction in the middle of a conversation, which only a user
    /// can give there, or a remark on what is missing.
    Note(Cow<'p, str>),
    /// Reasoning that this upstream itself produced, so that it accepts it back; other reasoning is not
    /// carried.
    Reasoning(&'p Reasoning<'p>),
    /// A call of a tool.
    Call(&'p ToolCall<'p>),
    /// The result of a call; `None` if the conversation has none.
    Result(&'p ToolCall<'p>, Option<&'p ToolResult<'p>>),
}

impl TurnContent<'_> {
    pub(crate) fn is_result(&self) -> bool {
        matches!(self, Self::Result(..))
    }

    pub(crate) fn is_thought(&self) -> bool {
        matches!(self, Self::Reasoning(_))
    }
}

/// Handling of reasoning at the end of an assistant's turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrailingThoughts {
    /// The block keeps its position: Gemini signs the last part of a turn.
    Stay,
    /// "The final block in an assistant message cannot be `thinking`" (forgecode 2107): an interrupted
    /// turn has nothing behind its thoughts.
    Drop,
}

/// A call, and the turn in which it stands.
struct OpenCall<'p> {
    turn: usize,
    call: &'p ToolCall<'p>,
    result: Option<&'p ToolResult<'p>>,
}

impl<'p> AlternatingTurns<'p> {
    /// Groups the parts of a request into turns. `is_own` recognises reasoning that the upstream has sealed
    /// itself; other reasoning is dropped.
    pub(crate) fn gather(
        parts: &'p [PromptPart<'p>],
        thoughts_at_end: TrailingThoughts,
        is_own: impl Fn(&Reasoning<'_>) -> bool,
    ) -> Self {
        let mut gathered = Self { system: Vec::new(), turns: Vec::new() };
        let mut calls: Vec<OpenCall<'p>> = Vec::new();
        for part in parts {
            match part {
                PromptPart::Instruction(text) if gathered.turns.is_empty() => {
                    gathered.instruct(text);
                }
                // Only a user can give one in the middle: these APIs have instructions at the
                // beginning alone.
                PromptPart::Instruction(text) => {
                    gathered.turn(Speaker::User).push_text(&text.text, text.cache);
                }
                PromptPart::Turn(role) => drop(gathered.turn(*role)),
                PromptPart::ToolCall(call) => {
                    gathered.turn(Speaker::Assistant).push(TurnContent::Call(call), call.cache);
                    let turn = gathered.turns.len() - 1;
                    calls.push(OpenCall { turn, call, result: None });
                }
                PromptPart::ToolResult(result) => {
                    let turn = gathered.turn(Speaker::User);
                    match open_call(&mut calls, &result.id) {
                        Some(call) => call.result = Some(result),
                        // Agents cut old calls off when they shorten a conversation, and leave their
                        // results.
                        None => turn.push_lost(result),
                    }
                }
                // Another maker's signature is refused here, and reasoning without a signature is
                // too.
                PromptPart::Reasoning(one) if !is_own(one) => {}
                PromptPart::Reasoning(one) => {
                    if let Some(turn) = gathered.turns.last_mut() {
                        turn.push(TurnContent::Reasoning(one), None);
                    }
                }
                PromptPart::Content(content) => {
                    if let Some(turn) = gathered.turns.last_mut() {
                        turn.push_content(content);
                    }
                }
                _ => {}
            }
        }
        if thoughts_at_end == TrailingThoughts::Drop {
            gathered.turns.iter_mut().for_each(MergedTurn::drop_thoughts_at_end);
        }
        gathered.merge(calls);
        gathered
    }

    /// Adds an instruction, unless it is blank: "system: text content blocks must contain non-whitespace
    /// text". A cache mark stays at its position in the prompt.
    fn instruct(&mut self, text: &'p Text<'p>) {
        match is_blank(&text.text) {
            false => self.system.push(SystemText { text: &text.text, cache: text.cache }),
            true => {
                if let Some(last) = self.system.last_mut() {
                    last.cache = last.cache.or(text.cache);
                }
            }
        }
    }

    /// The open turn, if this role speaks in it, or a new one.
    fn turn(&mut self, role: Speaker) -> &mut MergedTurn<'p> {
        if self.turns.last().is_none_or(|turn| turn.role != role) {
            self.turns.push(MergedTurn { role, blocks: Vec::new() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// Moves results directly after their calls, in the order of the calls, and merges adjacent turns of one
    /// role.
    fn merge(&mut self, calls: Vec<OpenCall<'p>>) {
        let turns = std::mem::take(&mut self.turns);
        let mut calls = calls.into_iter().peekable();
        for (place, turn) in turns.into_iter().enumerate() {
            if turn.blocks.is_empty() {
                continue;
            }
            let role = turn.role;
            let open = self.turn(role);
            open.blocks.extend(turn.blocks);
            // Calls stand in the order of their turns, so one pass puts all results where they
            // belong.
            while let Some(call) = calls.next_if(|call| call.turn == place) {
                let cache = call.result.and_then(cache_of_result);
                let results = self.turn(Speaker::User);
                results.push(TurnContent::Result(call.call, call.result), cache);
            }
        }
        // A conversation of instructions or of blank texts alone has no turn left.
        if self.turns.first().is_none_or(|turn| turn.role == Speaker::Assistant) {
            let mut opening = MergedTurn { role: Speaker::User, blocks: Vec::new() };
            opening.push(TurnContent::Note(OPENING.into()), None);
            self.turns.insert(0, opening);
        }
    }

    /// True if the last turn is the assistant's.
    pub(crate) fn ends_with_assistant(&self) -> bool {
        self.turns.last().is_some_and(|turn| turn.role == Speaker::Assistant)
    }

    /// Lets the user speak last.
    pub(crate) fn end_with_user(&mut self) {
        if self.ends_with_assistant() {
            self.turn(Speaker::User).push(TurnContent::Note(CONTINUE.into()), None);
        }
    }

    /// Makes the last turn, which is the assistant's, a beginning of the answer: "final assistant content
    /// cannot end with trailing whitespace", and "when thinking is disabled, an `assistant` message in the
    /// final position cannot contain `thinking`" (forgecode 1853).
    pub(crate) fn prefill(&mut self) {
        let Some(turn) = self.turns.last_mut().filter(|turn| turn.role == Speaker::Assistant)
        else {
            return;
        };
        // Thoughts come out first: what is trimmed below must be the last block that is sent.
        turn.blocks.retain(|block| !block.content.is_thought());
        if let Some(last) = turn.blocks.last_mut() {
            match &last.content {
                TurnContent::Content(ContentPart::Text(text)) => {
                    last.content = TurnContent::Note(text.text.trim_end().into());
                }
                TurnContent::Content(ContentPart::Refusal(text)) => {
                    last.content = TurnContent::Note(text.trim_end().into());
                }
                _ => {}
            }
        }
        self.turns.retain(|turn| !turn.blocks.is_empty());
    }

    /// Leaves nothing in a turn with results but these: "Conversation blocks and tool result blocks cannot
    /// be provided in the same turn" (strands harness-sdk 1223, of Llama over Bedrock).
    pub(crate) fn separate_results(&mut self) {
        let turns = std::mem::take(&mut self.turns);
        for mut turn in turns {
            let results = turn.blocks.iter().take_while(|block| block.content.is_result()).count();
            let rest = turn.blocks.split_off(results);
            let role = turn.role;
            match (results, rest.is_empty()) {
                (0, _) => self.turns.push(MergedTurn { role, blocks: rest }),
                (_, true) => self.turns.push(turn),
                (_, false) => {
                    self.turns.push(turn);
                    self.turn(Speaker::Assistant).push(TurnContent::Note(RECEIVED.into()), None);
                    self.turns.push(MergedTurn { role, blocks: rest });
                }
            }
        }
    }

    /// The tools that were called, in the order of their first calls.
    pub(crate) fn called(&self) -> Vec<&'p str> {
        let mut names: Vec<&'p str> = Vec::new();
        for block in self.turns.iter().flat_map(|turn| &turn.blocks) {
            if let TurnContent::Call(call) = block.content
                && !names.contains(&&*call.name)
            {
                names.push(&call.name);
            }
        }
        names
    }

    /// True if the assistant's last turn calls tools without beginning with reasoning sealed by this dialect:
    /// "Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final
    /// `assistant` message must start with a thinking block" (pydantic-ai 2075).
    pub(crate) fn has_unsealed_calls(&self) -> bool {
        let last = self.turns.iter().rev().find(|turn| turn.role == Speaker::Assistant);
        let ends_in_result = self
            .turns
            .last()
            .is_some_and(|turn| turn.blocks.iter().any(|block| block.content.is_result()));
        let is_thought = |turn: &MergedTurn<'_>| {
            turn.blocks.first().is_some_and(|block| block.content.is_thought())
        };
        ends_in_result && last.is_some_and(|turn| !is_thought(turn))
    }
}

impl<'p> MergedTurn<'p> {
    fn push(&mut self, content: TurnContent<'p>, cache: Option<Cache>) {
        self.blocks.push(TurnBlock { content, cache });
    }

    /// Adds a text, unless it is blank: "text content blocks must contain non-whitespace text"
    /// (Anthropic), "The text field in the ContentBlock object is blank" (Bedrock), "Model input cannot be
    /// empty" (Vertex AI).
    fn push_text(&mut self, text: &'p str, cache: Option<Cache>) {
        match is_blank(text) {
            false => self.push(TurnContent::Note(text.into()), cache),
            true => self.mark_last(cache),
        }
    }

    fn push_content(&mut self, content: &'p ContentPart<'p>) {
        let cache = cache_of(content);
        match content {
            ContentPart::Text(one) if is_blank(&one.text) => self.mark_last(cache),
            ContentPart::Refusal(text) if is_blank(text) => {}
            _ => self.push(TurnContent::Content(content), cache),
        }
    }

    /// A result whose call is not in the conversation: "unexpected `tool_use_id` found in `tool_result`
    /// blocks".
    fn push_lost(&mut self, result: &'p ToolResult<'p>) {
        let mut note = String::from("The result of an earlier call of a tool:");
        for text in result.content.iter().filter_map(text_of) {
            note.push('\n');
            note.push_str(text);
        }
        self.push(TurnContent::Note(note.into()), result.cache);
        let media = result.content.iter().filter(|one| text_of(one).is_none());
        media.for_each(|one| self.push(TurnContent::Content(one), cache_of(one)));
    }

    /// Marks what stands before a text that is left out: thoughts cannot be marked.
    fn mark_last(&mut self, cache: Option<Cache>) {
        let last = self.blocks.last_mut().filter(|block| !block.content.is_thought());
        // The prompt up to here is the same without the blank text, so the mark keeps its meaning.
        if let Some(last) = last {
            last.cache = last.cache.or(cache);
        }
    }

    fn drop_thoughts_at_end(&mut self) {
        while self.blocks.last().is_some_and(|block| block.content.is_thought()) {
            self.blocks.pop();
        }
    }
}

/// The call whose result this is: of the latest turn with an open one, the first.
fn open_call<'c, 'p>(calls: &'c mut [OpenCall<'p>], id: &str) -> Option<&'c mut OpenCall<'p>> {
    // Some clients use an id again in a later turn; results belong to the latest call that lacks
    // one.
    let is_open = |call: &OpenCall<'_>| call.result.is_none() && call.call.id == id;
    let turn = calls.iter().rev().find(|call| is_open(call))?.turn;
    let first = calls.partition_point(|call| call.turn < turn);
    calls.get_mut(first..)?.iter_mut().find(|call| is_open(call))
}

/// True if a text is empty or white space.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim_start().is_empty()
}

/// The text of a part that is one.
pub(crate) fn text_of<'c>(content: &'c ContentPart<'_>) -> Option<&'c str> {
    match content {
        ContentPart::Text(text) => Some(&text.text),
        ContentPart::Refusal(text) => Some(text),
        _ => None,
    }
}

/// A mark within a result is one behind it: Bedrock knows no other.
fn cache_of_result(result: &ToolResult<'_>) -> Option<Cache> {
    result.cache.or_else(|| result.content.iter().find_map(cache_of))
}

fn cache_of(content: &ContentPart<'_>) -> Option<Cache> {
    match content {
        ContentPart::Text(text) => text.cache,
        ContentPart::Image(media)
        | ContentPart::File(media)
        | ContentPart::Audio(media)
        | ContentPart::Video(media) => media.cache,
        ContentPart::Refusal(_) => None,
    }
}
