//! The chunks of an answer: from an upstream, and for a customer. Each is a document of its own.

use crate::dialect::{AnswerFrame, MalformedAnswer, ReadStream, WriteStream};
use crate::gemini::answer::{self, ContentFrame, ContentState, FunctionCall, WireContentAnswer};
use crate::gemini::signature_of_seal;
use crate::part::{AnswerPart, Counts, Stop};

/// Reads the chunks of an upstream. The last is the one by which it is known why the model stopped and
/// what was used.
#[derive(Default)]
pub(super) struct ContentReader(ContentState);

impl ReadStream for ContentReader {
    fn read(
        &mut self,
        data: &[u8],
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let chunk: WireContentAnswer<'_> = serde_json::from_slice(data)
            .map_err(|error| MalformedAnswer(format!("no chunk of generated content: {error}")))?;
        self.0.take(chunk, out)
    }

    fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.0.end(out);
    }
}

/// Writer of response chunks for customers.
pub(super) struct ChunkWriter {
    frame: ContentFrame,
    /// The call that began last: it is written when it is whole.
    call: Option<FunctionCall>,
    stop: Stop<'static>,
}

impl ChunkWriter {
    pub(super) fn new(frame: &AnswerFrame) -> Self {
        Self { frame: ContentFrame::new(frame), call: None, stop: Stop::Done }
    }

    fn chunk(&self, end: Option<&Counts>, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(b"data: ");
        self.frame.write(end.map(|counts| (&self.stop, counts)), out, write);
        out.extend_from_slice(b"\n\n");
    }
}

impl WriteStream for ChunkWriter {
    fn write(&mut self, answer: &AnswerPart<'_>, out: &mut Vec<u8>) {
        if matches!(answer, AnswerPart::Alive) {
            // Google's SDKs for Python and Go take a comment for a chunk that is broken, and skip blank
            // lines.
            return out.extend_from_slice(b"\n\n");
        }
        if let AnswerPart::Input(more) = answer {
            if let Some(call) = &mut self.call {
                call.input.push_str(more);
            }
            return;
        }
        if let Some(call) = self.call.take() {
            self.chunk(None, out, |out| call.write(out));
        }
        match answer {
            AnswerPart::Begin { .. }
            | AnswerPart::Alive
            | AnswerPart::Citation(_)
            | AnswerPart::Input(_) => {}
            AnswerPart::Text(text) | AnswerPart::Refusal(text) | AnswerPart::Reasoning(text)
                if text.is_empty() => {}
            AnswerPart::Text(text) | AnswerPart::Refusal(text) => {
                self.chunk(None, out, |out| answer::text(text, false, None, out));
            }
            AnswerPart::Reasoning(text) => {
                self.chunk(None, out, |out| answer::text(text, true, None, out));
            }
            AnswerPart::Seal(seal) if signature_of_seal(seal).is_empty() => {}
            AnswerPart::Seal(seal) => {
                self.chunk(None, out, |out| answer::text("", true, Some(seal), out));
            }
            AnswerPart::ToolCall { id, name, seal } => {
                self.call = Some(FunctionCall {
                    id: id.clone().into_owned(),
                    name: name.clone().into_owned(),
                    input: String::new(),
                    seal: seal.as_deref().map(str::to_owned),
                });
            }
            AnswerPart::Stop(stop) => self.stop = stop.clone().into_owned(),
            AnswerPart::End(counts) => {
                // SDKs leave an answer out of their history that has content without parts.
                self.chunk(Some(counts), out, |out| answer::text("", false, None, out));
            }
            AnswerPart::Error(failure) => {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&answer::error(failure));
                out.extend_from_slice(b"\n\n");
            }
        }
    }

    fn held_bytes(&self) -> usize {
        self.call.as_ref().map_or(0, |call| call.input.len())
    }
}
