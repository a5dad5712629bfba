//! The events of a response for a customer.
//!
//! The last event repeats the whole output, so what was written of it is kept until then: the one place
//! where a stream takes memory by its length.

use crate::dialect;
use crate::dialect::{AnswerFrame, WriteStream};
use crate::json::{self, Members};
use crate::part::{AnswerPart, Citation, Counts, UpstreamFailure};
use crate::responses::answer::{
    self, CitedPages, OutputItem, ResponseState, ResponseStatus, item_id, refusal_content, sealed,
    text_content,
};

/// Writes events for a customer.
pub(super) struct ResponseWriter {
    frame: AnswerFrame,
    /// The number of the next event.
    number: u64,
    /// Complete items, separated by commas.
    output: Vec<u8>,
    /// Number of items so far: the index of the open one.
    place: usize,
    open: Option<OutputItem>,
    status: ResponseStatus,
    has_begun: bool,
}

impl ResponseWriter {
    pub(super) fn new(frame: &AnswerFrame) -> Self {
        Self {
            frame: frame.clone(),
            number: 0,
            output: Vec::new(),
            place: 0,
            open: None,
            status: ResponseStatus::Completed,
            has_begun: false,
        }
    }

    /// Writes one event; `write` writes its members after type and number.
    fn event(
        &mut self,
        kind: &str,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Members, &mut Vec<u8>),
    ) {
        for piece in ["event: ", kind, "\ndata: "] {
            out.extend_from_slice(piece.as_bytes());
        }
        let mut event = Members::object(out);
        event.text(out, "type", kind);
        event.integer(out, "sequence_number", self.number);
        self.number += 1;
        write(&mut event, out);
        event.end(out);
        out.extend_from_slice(b"\n\n");
    }

    /// An event about the open item.
    fn item_event(
        &mut self,
        kind: &str,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Members, &mut Vec<u8>),
    ) {
        let Some(open) = &self.open else { return };
        let (id, place) = (item_id(open, &self.frame, self.place), self.place as u64);
        self.event(kind, out, |event, out| {
            event.text(out, "item_id", &id);
            event.integer(out, "output_index", place);
            write(event, out);
        });
    }

    fn response(&mut self, kind: &str, shown: &ResponseState<'_>, out: &mut Vec<u8>) {
        let mut response = Vec::new();
        answer::response(&self.frame, shown, &mut response);
        self.event(kind, out, |event, out| {
            event.key(out, "response");
            out.extend_from_slice(&response);
        });
    }

    /// Writes the open item in its current state, in an event of type `kind`.
    fn full_item(&mut self, kind: &str, status: &str, out: &mut Vec<u8>) -> Vec<u8> {
        let Some(open) = &self.open else { return Vec::new() };
        let mut item = Vec::new();
        open.write(&item_id(open, &self.frame, self.place), status, &mut item);
        let place = self.place as u64;
        self.event(kind, out, |event, out| {
            event.integer(out, "output_index", place);
            event.key(out, "item");
            out.extend_from_slice(&item);
        });
        item
    }

    fn begin(&mut self, item: OutputItem, out: &mut Vec<u8>) {
        self.close(out);
        // As it begins, it is empty.
        let begun = match &item {
            OutputItem::Message { .. } => OutputItem::message("", ""),
            OutputItem::Reasoning { .. } => {
                OutputItem::Reasoning { text: String::new(), seal: None }
            }
            call => call.clone(),
        };
        // The event that adds an item shows it empty: SDKs append the deltas to what stands there.
        self.open = Some(begun);
        drop(self.full_item("response.output_item.added", "in_progress", out));
        self.open = Some(item);
    }

    fn begin_message(&mut self, is_refusal: bool, out: &mut Vec<u8>) {
        self.begin(OutputItem::message("", ""), out);
        self.item_event("response.content_part.added", out, |event, out| {
            event.integer(out, "content_index", 0);
            event.key(out, "part");
            match is_refusal {
                true => refusal_content("", out),
                false => text_content("", &CitedPages::default(), out),
            }
        });
    }

    /// Ends the open item: writes it completely, and keeps it for the final response.
    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(open) = self.open.clone() else { return };
        match &open {
            OutputItem::Message { text, refusal, cited } if refusal.is_empty() => {
                self.item_event("response.output_text.done", out, |event, out| {
                    event.integer(out, "content_index", 0);
                    event.text(out, "text", text);
                    event.raw(out, "logprobs", "[]");
                });
                self.item_event("response.content_part.done", out, |event, out| {
                    event.integer(out, "content_index", 0);
                    event.key(out, "part");
                    text_content(text, cited, out);
                });
            }
            OutputItem::Message { refusal, .. } => {
                self.item_event("response.refusal.done", out, |event, out| {
                    event.integer(out, "content_index", 0);
                    event.text(out, "refusal", refusal);
                });
                self.item_event("response.content_part.done", out, |event, out| {
                    event.integer(out, "content_index", 0);
                    event.key(out, "part");
                    refusal_content(refusal, out);
                });
            }
            // Sealed thoughts without words have no summary whose end could be told.
            OutputItem::Reasoning { text, .. } if text.is_empty() => {}
            OutputItem::Reasoning { text, .. } => {
                self.item_event("response.reasoning_summary_text.done", out, |event, out| {
                    event.integer(out, "summary_index", 0);
                    event.text(out, "text", text);
                });
                self.item_event("response.reasoning_summary_part.done", out, |event, out| {
                    event.integer(out, "summary_index", 0);
                    summary_part(text, event, out);
                });
            }
            // Its arguments come with the whole item.
            OutputItem::Call { is_search: true, .. } => {}
            OutputItem::Call { name, is_free, .. } => {
                let input = open.customers_input();
                let (kind, field) = match is_free {
                    true => ("response.custom_tool_call_input", "input"),
                    false => ("response.function_call_arguments", "arguments"),
                };
                if *is_free {
                    // Free text was unwrapped only now that it is whole, so it is one delta.
                    let kind = format!("{kind}.delta");
                    self.item_event(&kind, out, |event, out| event.text(out, "delta", &input));
                }
                self.item_event(&format!("{kind}.done"), out, |event, out| {
                    if !is_free {
                        event.text(out, "name", name);
                    }
                    event.text(out, field, &input);
                });
            }
        }
        let item = self.full_item("response.output_item.done", "completed", out);
        if self.place > 0 {
            self.output.push(b',');
        }
        // The last event repeats the whole output, so it is kept until then and counted as held
        // memory.
        self.output.extend_from_slice(&item);
        self.place += 1;
        self.open = None;
    }

    fn say(&mut self, more: &str, is_refusal: bool, out: &mut Vec<u8>) {
        let is_open = match &self.open {
            Some(OutputItem::Message { refusal, text, .. }) => match is_refusal {
                // A message has one content here, a text or a refusal: the other kind begins another
                // message.
                true => text.is_empty(),
                false => refusal.is_empty(),
            },
            _ => false,
        };
        if !is_open {
            self.begin_message(is_refusal, out);
        }
        if let Some(OutputItem::Message { text, refusal, .. }) = &mut self.open {
            if is_refusal { refusal.push_str(more) } else { text.push_str(more) }
        }
        let kind = if is_refusal { "response.refusal.delta" } else { "response.output_text.delta" };
        self.item_event(kind, out, |event, out| {
            event.integer(out, "content_index", 0);
            event.key(out, "delta");
            json::push_string(out, more);
            if !is_refusal {
                event.raw(out, "logprobs", "[]");
            }
        });
    }

    fn cite(&mut self, citation: &Citation<'_>, out: &mut Vec<u8>) {
        let Some(OutputItem::Message { text, cited, .. }) = &mut self.open else { return };
        // What cannot be placed in the text is left out: a citation is no reason to end an answer.
        let Some((annotation, place)) = cited.add(text, citation) else { return };
        self.item_event("response.output_text.annotation.added", out, |event, out| {
            event.integer(out, "content_index", 0);
            event.integer(out, "annotation_index", place);
            event.key(out, "annotation");
            out.extend_from_slice(&annotation);
        });
    }

    fn think(&mut self, more: &str, out: &mut Vec<u8>) {
        if !matches!(&self.open, Some(OutputItem::Reasoning { seal: None, .. })) {
            self.begin(OutputItem::Reasoning { text: String::new(), seal: None }, out);
        }
        let mut is_first = false;
        if let Some(OutputItem::Reasoning { text, .. }) = &mut self.open {
            is_first = text.is_empty();
            text.push_str(more);
        }
        if is_first {
            self.item_event("response.reasoning_summary_part.added", out, |event, out| {
                event.integer(out, "summary_index", 0);
                summary_part("", event, out);
            });
        }
        self.item_event("response.reasoning_summary_text.delta", out, |event, out| {
            event.integer(out, "summary_index", 0);
            event.text(out, "delta", more);
        });
    }

    fn seal(&mut self, own: &str, out: &mut Vec<u8>) {
        match &mut self.open {
            Some(OutputItem::Reasoning { seal: seal @ None, .. }) => *seal = Some(own.to_owned()),
            // A seal without thoughts before it, as Gemini signs calls: an item of its own carries
            // it.
            _ => self.begin(sealed(own), out),
        }
        self.close(out);
    }

    fn end(&mut self, counts: &Counts, out: &mut Vec<u8>) {
        self.close(out);
        let kind = match self.status {
            ResponseStatus::Incomplete(_) => "response.incomplete",
            _ => "response.completed",
        };
        let output = std::mem::take(&mut self.output);
        let shown = ResponseState {
            status: self.status,
            output: &output,
            counts: Some(counts),
            error: None,
        };
        self.response(kind, &shown, out);
    }

    fn fail(&mut self, failure: &UpstreamFailure, out: &mut Vec<u8>) {
        let output = std::mem::take(&mut self.output);
        let shown = ResponseState {
            status: ResponseStatus::Failed,
            output: &output,
            counts: None,
            error: Some(failure),
        };
        self.response("response.failed", &shown, out);
    }
}

fn summary_part(text: &str, event: &mut Members, out: &mut Vec<u8>) {
    event.key(out, "part");
    let mut part = Members::object(out);
    part.text(out, "type", "summary_text");
    part.text(out, "text", text);
    part.end(out);
}

impl WriteStream for ResponseWriter {
    fn write(&mut self, answer: &AnswerPart<'_>, out: &mut Vec<u8>) {
        match answer {
            AnswerPart::Begin { .. } if std::mem::replace(&mut self.has_begun, true) => {}
            AnswerPart::Begin { .. } => {
                let shown = ResponseState {
                    status: ResponseStatus::InProgress,
                    output: b"",
                    counts: None,
                    error: None,
                };
                self.response("response.created", &shown, out);
                self.response("response.in_progress", &shown, out);
            }
            AnswerPart::Text(text) | AnswerPart::Refusal(text) | AnswerPart::Reasoning(text)
                if text.is_empty() => {}
            AnswerPart::Alive => out.extend_from_slice(dialect::KEEP_ALIVE),
            AnswerPart::Text(text) => self.say(text, false, out),
            AnswerPart::Citation(citation) => self.cite(citation, out),
            AnswerPart::Refusal(text) => self.say(text, true, out),
            AnswerPart::Reasoning(text) => self.think(text, out),
            AnswerPart::Seal(seal) => self.seal(seal, out),
            AnswerPart::ToolCall { id, name, seal } => {
                if let Some(seal) = seal {
                    self.seal(seal, out);
                }
                self.begin(OutputItem::call(id, name, &self.frame), out);
            }
            AnswerPart::Input(more) => {
                let Some(OutputItem::Call { input, is_free, is_search, .. }) = &mut self.open
                else {
                    return;
                };
                input.push_str(more);
                // Free text is unwrapped when it is whole.
                if !*is_free && !*is_search && !more.is_empty() {
                    self.item_event("response.function_call_arguments.delta", out, |event, out| {
                        event.text(out, "delta", more);
                    });
                }
            }
            AnswerPart::Stop(stop) => {
                self.close(out);
                self.status = ResponseStatus::after(stop);
            }
            AnswerPart::End(counts) => self.end(counts, out),
            AnswerPart::Error(failure) => self.fail(failure, out),
        }
    }

    fn held_bytes(&self) -> usize {
        self.output.len() + self.open.as_ref().map_or(0, OutputItem::held_bytes)
    }
}
