//! The chunks of a chat completion: from an upstream, and for a customer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::answer::{self, WireCall, WireMessage, detail, finish_reason};
use crate::chat::thoughts::ThoughtReader;
use crate::dialect::{AnswerFrame, Malformed, ReadStream, WriteStream};
use crate::json::{self, Borrowed, Members};
use crate::kit;
use crate::part::{AnswerPart, Counts, Stop, UpstreamFailure};

#[derive(Deserialize)]
struct WireChunk<'a> {
    #[serde(borrow, default)]
    id: Option<Borrowed<'a>>,
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
    finish_reason: Option<Borrowed<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads the chunks of an upstream.
#[derive(Default)]
pub(super) struct ChatReader {
    /// The upstream's id of the answer, once there is one.
    id: Option<String>,
    thoughts: ThoughtReader,
    /// The call that is open.
    open: Option<StartedCall>,
    /// How many have begun.
    calls: usize,
    stop: Option<Stop<'static>>,
    reasoning: u64,
    has_ended: bool,
}

struct StartedCall {
    index: usize,
    id: String,
}

impl ReadStream for ChatReader {
    fn read(&mut self, data: &[u8], out: &mut dyn FnMut(AnswerPart<'_>)) -> Result<(), Malformed> {
        if self.has_ended {
            return Ok(());
        }
        if data.trim_ascii() == b"[DONE]" {
            self.end(out);
            return Ok(());
        }
        let chunk: WireChunk<'_> = json::parse(data)
            .map_err(|error| Malformed(format!("no chunk of a chat completion: {error}")))?;
        if self.id.is_none() {
            let id = chunk.id.as_ref().map(|id| id.0.clone()).unwrap_or_default();
            self.id = Some(id.clone().into_owned());
            out(AnswerPart::Begin { id, counts: Counts::default() });
        }
        if let Some(failure) = answer::failure(chunk.error, chunk.base_resp) {
            return self.fail(failure, out);
        }
        let tokens = chunk.usage.and_then(answer::reasoning);
        self.reasoning = tokens.unwrap_or(self.reasoning);
        for choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) > 0 {
                return Err(Malformed("a second choice, which nobody asked for".to_owned()));
            }
            if let Some(delta) = choice.delta {
                self.delta(delta, out)?;
            }
            let word = choice.finish_reason.filter(|word| !word.0.is_empty());
            let word = word.as_ref().map(|word| &*word.0);
            if let Some(failure) = answer::failure_of_choice(choice.error, word) {
                return self.fail(failure, out);
            }
            if let Some(word) = word {
                self.stop = Some(answer::stop(word, self.calls > 0));
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
}

impl ChatReader {
    fn end(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.thoughts.finish(out);
            out(AnswerPart::Stop(self.stop.take().unwrap_or(Stop::Done)));
            out(AnswerPart::End(Counts { reasoning: self.reasoning, ..Counts::default() }));
        }
    }

    /// The upstream has said that there is no answer, or no end of it.
    fn fail(
        &mut self,
        failure: UpstreamFailure,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        self.has_ended = true;
        out(AnswerPart::Error(failure));
        Ok(())
    }

    fn delta(
        &mut self,
        mut delta: WireMessage<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        self.thoughts.fields(&mut delta, out);
        if let Some(content) = delta.content {
            self.thoughts.content(content, out)?;
        }
        if let Some(refusal) = delta.refusal.filter(|text| !text.0.is_empty()) {
            self.thoughts.finish(out);
            out(AnswerPart::Refusal(refusal.0));
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.thoughts.finish(out);
            self.call(&call, out)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        call: &WireCall<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        let id = call.id.as_ref().map(|id| &*id.0).filter(|id| !id.is_empty());
        let name = call.function.name.as_ref().map(|name| &*name.0).filter(|name| !name.is_empty());
        // Some upstreams number all calls 0, and others none at all.
        let is_open = self.open.as_ref().is_some_and(|open| match (call.index, id) {
            (_, Some(id)) => open.id == id || name.is_none() && call.index == Some(open.index),
            (Some(index), None) => open.index == index,
            (None, None) => name.is_none(),
        });
        if !is_open {
            let Some(name) = name else {
                return Err(Malformed("a piece of a tool call that is not open".to_owned()));
            };
            let place = self.calls;
            self.calls += 1;
            let id = match id {
                Some(id) => id.to_owned(),
                None => kit::call_id(self.id.as_deref().unwrap_or_default(), place),
            };
            out(AnswerPart::ToolCall {
                id: id.clone().into(),
                name: name.into(),
                seal: call.seal(),
            });
            self.open = Some(StartedCall { index: call.index.unwrap_or(place), id });
        }
        if let Some(input) = call.function.input().filter(|input| !input.is_empty()) {
            out(AnswerPart::Input(input));
        }
        Ok(())
    }
}

/// Writes chunks for a customer.
pub(super) struct ChatWriter {
    /// What every chunk begins with, up to its choices.
    head: Vec<u8>,
    /// What every chunk ends with that has a choice.
    tail: &'static [u8],
    shows_usage: bool,
    free_tools: Vec<String>,
    calls: usize,
    /// The input of a call that takes free text, which is unwrapped when it is whole.
    free: Option<String>,
    /// Whether anything of the input of the open call has come.
    has_input: bool,
    thought_bytes: usize,
    seals: usize,
    stop: &'static str,
}

impl ChatWriter {
    pub(super) fn new(frame: &AnswerFrame) -> Self {
        let mut head = b"data: ".to_vec();
        let mut chunk = Members::object(&mut head);
        chunk.text(&mut head, "id", &kit::id("chatcmpl-", &frame.nonce));
        chunk.text(&mut head, "object", "chat.completion.chunk");
        chunk.integer(&mut head, "created", frame.created);
        chunk.text(&mut head, "model", &frame.model);
        chunk.key(&mut head, "choices");
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
            out.extend_from_slice(b"[],\"usage\":");
            answer::usage(counts, out);
            out.extend_from_slice(b"}\n\n");
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// What is left to write of the open call.
    fn end_call(&mut self, out: &mut Vec<u8>) {
        if let Some(input) = self.free.take() {
            self.call(out, |call, out| {
                call.key(out, "custom");
                let mut custom = Members::object(out);
                custom.text(out, "input", &kit::unwrap_free(&input));
                custom.end(out);
            });
        } else if self.calls > 0 && !self.has_input {
            self.input("{}", out);
        }
        self.has_input = true;
    }
}

impl WriteStream for ChatWriter {
    fn write(&mut self, answer: &AnswerPart<'_>, out: &mut Vec<u8>) {
        if !matches!(answer, AnswerPart::Input(_)) && self.calls > 0 {
            self.end_call(out);
        }
        match answer {
            AnswerPart::Begin { .. } => {
                self.delta(out, |out| {
                    out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
                });
            }
            AnswerPart::Text(text) => self.text("content", text, out),
            AnswerPart::Refusal(text) => self.text("refusal", text, out),
            AnswerPart::Reasoning(text) => {
                self.thought_bytes += text.len();
                self.text("reasoning_content", text, out);
            }
            AnswerPart::Seal(seal) => {
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
                out.extend_from_slice(&kit::openai_error(failure));
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn held_bytes(&self) -> usize {
        self.free.as_ref().map_or(0, String::len)
    }
}
