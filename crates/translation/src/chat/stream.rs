//! The chunks of a chat completion: from an upstream, and for a customer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call_input;
use crate::chat::answer::{self, detail, finish_reason};
use crate::chat::open_calls::OpenCalls;
use crate::chat::thoughts::ThoughtReader;
use crate::chat::wire::{self, CitedUrl, WireMessage};
use crate::dialect;
use crate::dialect::{AnswerFrame, MalformedAnswer, ReadStream, WriteStream};
use crate::failure;
use crate::json::{self, BorrowedStr, Members};
use crate::part::{AnswerPart, Counts, Stop, UpstreamFailure};

#[derive(Deserialize)]
struct WireChunk<'a> {
    #[serde(borrow, default)]
    id: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    choices: Option<Vec<WireChoice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    base_resp: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireChoice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<WireMessage<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads the chunks of an upstream.
#[derive(Default)]
pub(super) struct ChatReader {
    has_begun: bool,
    has_choice: bool,
    blocks: OpenCalls,
    /// The state of each choice. One answer alone is requested, yet some upstreams put calls into a second
    /// choice (GitHub Copilot).
    choices: Vec<ChoiceState>,
    stop: Option<Stop<'static>>,
    reasoning: u64,
    has_ended: bool,
}

#[derive(Default)]
struct ChoiceState {
    index: u64,
    thoughts: ThoughtReader,
    /// Characters of its text.
    characters: u64,
    /// Citations in its text.
    cited: Vec<CitedUrl>,
}

impl ReadStream for ChatReader {
    fn read(
        &mut self,
        data: &[u8],
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        if self.has_ended {
            return Ok(());
        }
        if data.trim_ascii() == b"[DONE]" {
            if !self.has_choice {
                return Err(MalformedAnswer("a chat completion without choices".to_owned()));
            }
            self.end(out);
            return Ok(());
        }
        let chunk: WireChunk<'_> = json::parse(data)
            .map_err(|error| MalformedAnswer(format!("no chunk of a chat completion: {error}")))?;
        // Every chunk repeats the id; the first one decides, also where later ones differ.
        if !std::mem::replace(&mut self.has_begun, true) {
            let id = chunk.id.unwrap_or_default().0;
            out(AnswerPart::Begin { id, counts: Counts::default() });
        }
        if let Some(failure) = answer::failure(chunk.error, chunk.base_resp) {
            return self.fail(failure, out);
        }
        let tokens = chunk.usage.and_then(answer::reasoning);
        // Some upstreams report usage in every chunk, cumulatively: the last count stands.
        self.reasoning = tokens.unwrap_or(self.reasoning);
        for choice in chunk.choices.into_iter().flatten() {
            let index = choice.index.unwrap_or(0);
            self.has_choice = true;
            if let Some(delta) = choice.delta {
                self.delta(index, delta, out)?;
            }
            // Some write an empty `finish_reason` where others write `null`.
            let word = choice.finish_reason.filter(|word| !word.0.is_empty());
            let word = word.as_ref().map(|word| &*word.0);
            if let Some(failure) = answer::failure_of_choice(choice.error, word) {
                return self.fail(failure, out);
            }
            if let Some(word) = word {
                self.end_content(index, out);
                self.stop = Some(answer::last_stop(self.stop.take(), answer::stop(word)));
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        // Some servers leave out the last event.
        if self.stop.is_some() {
            self.end(out);
        }
    }

    fn has_waiting(&self) -> bool {
        self.blocks.has_waiting()
    }

    fn held_bytes(&self) -> usize {
        let of_choice = |choice: &ChoiceState| {
            size_of::<ChoiceState>() + choice.cited.iter().map(CitedUrl::held_bytes).sum::<usize>()
        };
        self.blocks.held_bytes() + self.choices.iter().map(of_choice).sum::<usize>()
    }
}

impl ChatReader {
    fn end(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let choices: Vec<u64> = self.choices.iter().map(|choices| choices.index).collect();
            choices.into_iter().for_each(|index| self.end_content(index, out));
            self.blocks.end_all(out);
            // A missing reason counts as the usual end: the answer itself is whole.
            let stop = self.stop.take().unwrap_or(Stop::Done);
            out(AnswerPart::Stop(answer::stop_with(stop, self.blocks.has_calls())));
            out(AnswerPart::End(Counts { reasoning: self.reasoning, ..Counts::default() }));
        }
    }

    /// Reports that the upstream failed before or within the answer.
    fn fail(
        &mut self,
        failure: UpstreamFailure,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        self.has_ended = true;
        out(AnswerPart::Error(failure));
        Ok(())
    }

    /// The state of the choice `index`, and the blocks of all choices.
    fn choice(&mut self, index: u64) -> (&mut ChoiceState, &mut OpenCalls) {
        let existing = self.choices.iter().position(|choices| choices.index == index);
        let place = existing.unwrap_or_else(|| {
            self.choices.push(ChoiceState { index, ..ChoiceState::default() });
            self.choices.len() - 1
        });
        (&mut self.choices[place], &mut self.blocks)
    }

    fn delta(
        &mut self,
        index: u64,
        mut delta: WireMessage<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let (ChoiceState { thoughts, characters, cited, .. }, blocks) = self.choice(index);
        let mut say = |piece: AnswerPart<'_>| {
            if let AnswerPart::Text(text) = &piece {
                *characters += text.chars().count() as u64;
            }
            blocks.say(index, piece, out);
        };
        thoughts.fields(&mut delta, &mut say);
        if let Some(content) = delta.content {
            thoughts.content(content, &mut say)?;
        }
        cited.extend(delta.annotations.into_iter().flat_map(wire::citations));
        if let Some(refusal) = delta.refusal.filter(|text| !text.0.is_empty()) {
            // The refusal takes the place of a text: thoughts that were held back come before it.
            thoughts.finish(&mut say);
            say(AnswerPart::Refusal(refusal.0));
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.end_thoughts(index, out);
            self.blocks.call(index, &call, out)?;
        }
        Ok(())
    }

    /// Ends the thoughts before other content.
    fn end_thoughts(&mut self, index: u64, out: &mut dyn FnMut(AnswerPart<'_>)) {
        let (ChoiceState { thoughts, characters, cited, .. }, blocks) = self.choice(index);
        thoughts.finish(&mut |piece| {
            if let AnswerPart::Text(text) = &piece {
                *characters += text.chars().count() as u64;
            }
            blocks.say(index, piece, out);
        });
        for cited in std::mem::take(cited) {
            if let Some(citation) = cited.at_end_of(*characters) {
                blocks.say(index, citation, out);
            }
        }
    }

    fn end_content(&mut self, index: u64, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.end_thoughts(index, out);
        self.blocks.end_content(index, out);
    }
}

/// Writes chunks for a customer.
pub(super) struct ChatWriter {
    /// Beginning of every chunk, up to its choices.
    head: Vec<u8>,
    /// End of every chunk with a choice.
    tail: &'static [u8],
    shows_usage: bool,
    free_tools: Vec<String>,
    calls: usize,
    /// The input of a call that takes free text, which is unwrapped when it is whole.
    free: Option<String>,
    /// True once a piece of the open call's input has come.
    has_input: bool,
    thought_bytes: usize,
    seals: usize,
    /// Characters of the text so far.
    characters: u64,
    stop: &'static str,
}

impl ChatWriter {
    pub(super) fn new(frame: &AnswerFrame) -> Self {
        let mut head = b"data: ".to_vec();
        let mut chunk = Members::object(&mut head);
        chunk.text(&mut head, "id", &frame.id("chatcmpl-"));
        chunk.text(&mut head, "object", "chat.completion.chunk");
        chunk.integer(&mut head, "created", frame.created);
        chunk.text(&mut head, "model", &frame.model);
        chunk.key(&mut head, "choices");
        // With `include_usage`, OpenAI writes `"usage":null` into every chunk but the last.
        let tail: &[u8] = if frame.shows_usage { b"],\"usage\":null}\n\n" } else { b"]}\n\n" };
        Self {
            head,
            tail,
            shows_usage: frame.shows_usage,
            free_tools: frame.free_tools.clone(),
            calls: 0,
            free: None,
            has_input: false,
            thought_bytes: 0,
            seals: 0,
            characters: 0,
            stop: "stop",
        }
    }

    /// A chunk with this delta, whose inside `write` writes.
    fn delta(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b"[{\"index\":0,\"delta\":{");
        write(out);
        out.extend_from_slice(b"},\"finish_reason\":null}");
        out.extend_from_slice(self.tail);
    }

    fn text(&self, key: &str, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        self.delta(out, |out| {
            out.push(b'"');
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(b"\":");
            json::push_string(out, text);
        });
    }

    /// A piece of the call that began last, whose inside `write` writes.
    fn call(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Members, &mut Vec<u8>)) {
        self.delta(out, |out| {
            out.extend_from_slice(b"\"tool_calls\":");
            let mut list = Members::array(out);
            list.next(out);
            let mut call = Members::object(out);
            call.integer(out, "index", self.calls.saturating_sub(1) as u64);
            write(&mut call, out);
            call.end(out);
            list.end(out);
        });
    }

    fn input(&self, text: &str, out: &mut Vec<u8>) {
        self.call(out, |call, out| {
            call.key(out, "function");
            let mut function = Members::object(out);
            function.text(out, "arguments", text);
            function.end(out);
        });
    }

    fn begin_call(&mut self, id: &str, name: &str, seal: Option<&str>, out: &mut Vec<u8>) {
        self.calls += 1;
        let is_free = self.free_tools.iter().any(|free| free == name);
        self.free = is_free.then(String::new);
        self.has_input = false;
        let kind = if is_free { "custom" } else { "function" };
        self.call(out, |call, out| {
            call.text(out, "id", id);
            call.text(out, "type", kind);
            call.key(out, kind);
            let mut inner = Members::object(out);
            inner.text(out, "name", name);
            // OpenAI begins a call with an empty text as well, to which clients append the pieces.
            inner.text(out, if is_free { "input" } else { "arguments" }, "");
            inner.end(out);
            if let Some(seal) = seal {
                answer::extra_content(seal, call, out);
            }
        });
    }

    /// The last chunks: why the model stopped, what was used, and that this is all.
    fn end(&self, counts: &Counts, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b"[{\"index\":0,\"delta\":{},\"finish_reason\":");
        json::push_string(out, self.stop);
        out.push(b'}');
        out.extend_from_slice(self.tail);
        if self.shows_usage {
            out.extend_from_slice(&self.head);
            // The chunk with the usage has no choice: clients tell it by that.
            out.extend_from_slice(b"[],\"usage\":");
            answer::usage(counts, out);
            out.extend_from_slice(b"}\n\n");
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// Writes the rest of the open call.
    fn end_call(&mut self, out: &mut Vec<u8>) {
        if let Some(input) = self.free.take() {
            self.call(out, |call, out| {
                call.key(out, "custom");
                let mut custom = Members::object(out);
                custom.text(out, "input", &call_input::unwrap_free(&input));
                custom.end(out);
            });
        } else if self.calls > 0 && !self.has_input {
            // Clients parse the joined input as JSON when the call ends, and an empty text is none.
            self.input("{}", out);
        }
        self.has_input = true;
    }
}

impl WriteStream for ChatWriter {
    fn write(&mut self, answer: &AnswerPart<'_>, out: &mut Vec<u8>) {
        // A sign of life may come in the middle of an input, and ends nothing.
        if !matches!(answer, AnswerPart::Input(_) | AnswerPart::Alive) && self.calls > 0 {
            self.end_call(out);
        }
        match answer {
            AnswerPart::Begin { .. } => {
                self.delta(out, |out| {
                    out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
                });
            }
            AnswerPart::Alive => out.extend_from_slice(dialect::KEEP_ALIVE),
            AnswerPart::Text(text) => {
                self.characters += text.chars().count() as u64;
                self.text("content", text, out);
            }
            AnswerPart::Citation(citation) => {
                self.delta(out, |out| {
                    out.extend_from_slice(b"\"annotations\":[");
                    answer::annotation(citation, self.characters, out);
                    out.push(b']');
                });
            }
            AnswerPart::Refusal(text) => self.text("refusal", text, out),
            AnswerPart::Reasoning(text) => {
                self.thought_bytes += text.len();
                self.text("reasoning_content", text, out);
            }
            AnswerPart::Seal(seal) => {
                // The seal says how many bytes of thoughts it belongs to: the text beside it carries
                // no borders.
                let (bytes, index) = (std::mem::take(&mut self.thought_bytes), self.seals);
                self.seals += 1;
                self.delta(out, |out| {
                    out.extend_from_slice(b"\"reasoning_details\":[");
                    detail(seal, bytes, index, out);
                    out.push(b']');
                });
            }
            AnswerPart::ToolCall { id, name, seal } => {
                self.begin_call(id, name, seal.as_deref(), out)
            }
            AnswerPart::Input(text) => {
                self.has_input |= !text.is_empty();
                match &mut self.free {
                    Some(input) => input.push_str(text),
                    None if text.is_empty() => {}
                    None => self.input(text, out),
                }
            }
            AnswerPart::Stop(stop) => self.stop = finish_reason(stop),
            AnswerPart::End(counts) => self.end(counts, out),
            AnswerPart::Error(failure) => {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&failure::openai_document(failure));
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn held_bytes(&self) -> usize {
        self.free.as_ref().map_or(0, String::len)
    }
}
