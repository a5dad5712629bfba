//! Contents and calls of a chat completion while their pieces arrive, in any order.
//!
//! Nothing in a stream of chat completions says where a call ends. It has ended where its input is a whole
//! JSON object and something else follows; what else comes before that waits.

use std::borrow::Cow;

use crate::chat::wire::WireCall;
use crate::dialect::MalformedAnswer;
use crate::part::AnswerPart;
use crate::sequence::{ObjectEnd, Sequencer};

/// A block of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerBlock {
    /// Text and reasoning of the choice of this index.
    Content(u64),
    /// The call at this place among all.
    Call(usize),
}

/// A call that has begun.
struct StartedCall {
    choice: u64,
    index: usize,
    id: String,
    end: ObjectEnd,
    has_ended: bool,
}

/// The blocks of all choices.
#[derive(Default)]
pub(super) struct OpenCalls {
    order: Sequencer<AnswerBlock>,
    calls: Vec<StartedCall>,
}

impl OpenCalls {
    /// True if a call has begun.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// True if a block waits for another to end.
    pub(super) fn has_waiting(&self) -> bool {
        self.order.has_waiting()
    }

    pub(super) fn held_bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| size_of::<StartedCall>() + call.id.len());
        self.order.held_bytes() + calls.sum::<usize>()
    }

    /// Passes on further text or reasoning of a choice.
    pub(super) fn say(
        &mut self,
        choice: u64,
        piece: AnswerPart<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) {
        let block = AnswerBlock::Content(choice);
        let is_blank = matches!(&piece, AnswerPart::Text(text) if text.trim().is_empty());
        let is_calling = matches!(self.order.open(), Some(AnswerBlock::Call(_)));
        // Templates write line breaks between calls, and servers pass them on (SGLang, vLLM).
        if is_blank && is_calling && !self.order.is_waiting(block) {
            return;
        }
        self.end_whole_calls(None, out);
        self.order.push(block, piece, out);
    }

    /// Ends the text and reasoning of a choice before its calls.
    pub(super) fn end_content(&mut self, choice: u64, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.order.end(AnswerBlock::Content(choice), out);
    }

    /// The beginning of a call, or more of its input.
    ///
    /// # Errors
    /// More of a call that has not begun, or has ended.
    pub(super) fn call(
        &mut self,
        choice: u64,
        wire: &WireCall<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let id = wire.id.as_ref().map(|id| &*id.0).filter(|id| !id.is_empty());
        let name = wire.function.name.as_ref().map(|name| &*name.0).filter(|name| !name.is_empty());
        let place = match (self.find(choice, wire.index, id, name.is_some()), name) {
            (Some(place), _) => place,
            (None, Some(name)) => self.begin(choice, wire, id, name, out),
            (None, None) => {
                return Err(MalformedAnswer("a piece of a tool call that is not open".to_owned()));
            }
        };
        let input = wire.function.input().filter(|input| !input.is_empty());
        input.map_or(Ok(()), |input| self.input(place, input, out))
    }

    /// Finds a call that has begun. Some upstreams number all calls 0, others none; some repeat id and name
    /// in each piece, and some give each piece its own id.
    fn find(
        &self,
        choice: u64,
        index: Option<usize>,
        id: Option<&str>,
        has_name: bool,
    ) -> Option<usize> {
        let last = |is_it: &dyn Fn(&StartedCall) -> bool| {
            self.calls.iter().rposition(|call| call.choice == choice && is_it(call))
        };
        match (index, id) {
            (_, Some(id)) => {
                let is_numbered =
                    |call: &StartedCall| !has_name || index.is_none_or(|index| call.index == index);
                let named = last(&|call| call.id == id && is_numbered(call));
                let numbered = || last(&|call| !has_name && Some(call.index) == index);
                named.or_else(numbered)
            }
            // A second name begins another call, unless the first has no input yet.
            (Some(index), None) => {
                last(&|call| call.index == index && !(has_name && call.end.is_complete()))
            }
            (None, None) => last(&|_| !has_name),
        }
    }

    fn begin(
        &mut self,
        choice: u64,
        wire: &WireCall<'_>,
        id: Option<&str>,
        name: &str,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> usize {
        let place = self.calls.len();
        self.order.end(AnswerBlock::Content(choice), out);
        self.end_whole_calls(Some(place), out);
        // One id for two calls would give both the same result: the second gets one here.
        let is_taken = |id: &&str| self.calls.iter().any(|call| call.id == *id);
        let shown = id.filter(|id| !is_taken(id)).unwrap_or_default().to_owned();
        let (id, index) = (id.unwrap_or_default().to_owned(), wire.index.unwrap_or(place));
        let end = ObjectEnd::default();
        self.calls.push(StartedCall { choice, index, id, end, has_ended: false });
        let (id, name, seal) = (shown.into(), name.into(), wire.seal());
        self.order.push(AnswerBlock::Call(place), AnswerPart::ToolCall { id, name, seal }, out);
        place
    }

    fn input(
        &mut self,
        place: usize,
        input: Cow<'_, str>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        self.end_whole_calls(Some(place), out);
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        if call.has_ended {
            let is_blank = input.trim().is_empty();
            let ended = || MalformedAnswer("more input of a call that has ended".to_owned());
            return is_blank.then_some(()).ok_or_else(ended);
        }
        call.end.take(&input);
        self.order.push(AnswerBlock::Call(place), AnswerPart::Input(input), out);
        Ok(())
    }

    /// Ends calls with complete input, up to the one at `place`, which continues.
    fn end_whole_calls(&mut self, place: Option<usize>, out: &mut dyn FnMut(AnswerPart<'_>)) {
        while let Some(AnswerBlock::Call(open)) = self.order.open()
            && Some(open) != place
            && let Some(call) = self.calls.get_mut(open)
            && call.end.is_complete()
        {
            call.has_ended = true;
            self.order.end(AnswerBlock::Call(open), out);
        }
    }

    /// Ends all calls.
    pub(super) fn end_all(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.order.end_all(out);
    }
}
