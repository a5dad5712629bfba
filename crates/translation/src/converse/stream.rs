//! The messages of a stream of the Converse API.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::converse::answer::{self, WireToolUse};
use crate::dialect::{Malformed, ReadStream};
use crate::json::{self, Borrowed, Members};
use crate::part::{AnswerPart, Counts, Stop};
use crate::seal::{self, Maker};

pub(super) fn write_event(kind: &str, name: &str, payload: &[u8], out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    object.text(out, "kind", kind);
    object.text(out, "name", name);
    if !payload.is_empty() {
        object.key(out, "payload");
        // A line's end is blank space in JSON, and the end of the data in an event stream.
        let letters =
            payload.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte });
        out.extend(letters);
    }
    object.end(out);
}

#[derive(Deserialize)]
struct WireConverseEvent<'a> {
    #[serde(borrow)]
    kind: Borrowed<'a>,
    #[serde(borrow)]
    name: Borrowed<'a>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

impl<'a> WireConverseEvent<'a> {
    fn read<T: Deserialize<'a>>(&self) -> Result<T, Malformed> {
        let payload = self.payload.and_then(|payload| json::read(payload.get()));
        payload.ok_or_else(|| Malformed(format!("no {}", self.name.0)))
    }
}

#[derive(Deserialize)]
struct WireStart<'a> {
    #[serde(rename = "contentBlockIndex")]
    index: u64,
    #[serde(borrow)]
    start: WireBlockStart<'a>,
}

#[derive(Deserialize)]
struct WireBlockStart<'a> {
    #[serde(borrow, default, rename = "toolUse")]
    tool_use: Option<WireToolUse<'a>>,
}

#[derive(Deserialize)]
struct WireDelta<'a> {
    #[serde(rename = "contentBlockIndex")]
    index: u64,
    #[serde(borrow)]
    delta: WireBlockDelta<'a>,
}

/// What is new of a block, which has one of these members.
#[derive(Deserialize)]
struct WireBlockDelta<'a> {
    #[serde(borrow, default)]
    text: Option<Borrowed<'a>>,
    #[serde(borrow, default, rename = "toolUse")]
    tool_use: Option<WireInput<'a>>,
    #[serde(borrow, default, rename = "reasoningContent")]
    reasoning: Option<WireReasoningDelta<'a>>,
}

#[derive(Deserialize)]
struct WireInput<'a> {
    #[serde(borrow, default)]
    input: Borrowed<'a>,
}

#[derive(Deserialize)]
struct WireReasoningDelta<'a> {
    #[serde(borrow, default)]
    text: Option<Borrowed<'a>>,
    #[serde(borrow, default)]
    signature: Option<Borrowed<'a>>,
    #[serde(borrow, default, rename = "redactedContent")]
    redacted: Option<Borrowed<'a>>,
}

#[derive(Deserialize)]
struct WireStop<'a> {
    #[serde(borrow, rename = "stopReason")]
    reason: Borrowed<'a>,
}

/// Reads the messages of an upstream.
#[derive(Default)]
pub(super) struct ConverseReader {
    /// The place of the call that is open.
    call: Option<u64>,
    /// The signature of the open block of thoughts, as far as it has come.
    signature: Option<String>,
    stop: Option<Stop<'static>>,
    has_ended: bool,
}

impl ReadStream for ConverseReader {
    fn read(&mut self, data: &[u8], out: &mut dyn FnMut(AnswerPart<'_>)) -> Result<(), Malformed> {
        let event: WireConverseEvent<'_> = serde_json::from_slice(data)
            .map_err(|error| Malformed(format!("no message of a stream: {error}")))?;
        if self.has_ended {
            return Ok(());
        }
        if event.kind.0 != "event" {
            self.has_ended = true;
            let payload = event.payload.and_then(|payload| json::read(payload.get()));
            let payload = payload.unwrap_or_default();
            out(AnswerPart::Error(answer::failure_of(0, &event.name.0, &payload)));
            return Ok(());
        }
        match &*event.name.0 {
            "messageStart" => out(AnswerPart::Begin { id: "".into(), counts: Counts::default() }),
            "contentBlockStart" => self.begin(event.read()?, out)?,
            "contentBlockDelta" => self.delta(event.read()?, out)?,
            "contentBlockStop" => self.close(out),
            "messageStop" => {
                self.close(out);
                let stop: WireStop<'_> = event.read()?;
                self.stop = Some(answer::stop(&stop.reason.0));
            }
            // What was used comes behind the end of what was said.
            "metadata" => self.finish(out),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if let Some(stop) = self.stop.take() {
            self.has_ended = true;
            out(AnswerPart::Stop(stop));
            out(AnswerPart::End(Counts::default()));
        }
    }
}

impl ConverseReader {
    /// Blocks of text and of thoughts begin with their first delta.
    fn begin(
        &mut self,
        wire: WireStart<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        let Some(call) = wire.start.tool_use else {
            return Err(Malformed("a block that nobody asked for".to_owned()));
        };
        self.close(out);
        self.call = Some(wire.index);
        out(AnswerPart::ToolCall { id: call.id.0, name: call.name.0, seal: None });
        Ok(())
    }

    fn delta(
        &mut self,
        wire: WireDelta<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        match wire.delta {
            WireBlockDelta { text: Some(text), .. } => out(AnswerPart::Text(text.0)),
            WireBlockDelta { tool_use: Some(more), .. } if self.call == Some(wire.index) => {
                if !more.input.0.is_empty() {
                    out(AnswerPart::Input(more.input.0));
                }
            }
            WireBlockDelta { tool_use: Some(_), .. } => {
                return Err(Malformed("the input of a call that is not open".to_owned()));
            }
            WireBlockDelta { reasoning: Some(more), .. } => self.think(more, out)?,
            _ => return Err(Malformed("a delta that nobody asked for".to_owned())),
        }
        Ok(())
    }

    fn think(
        &mut self,
        more: WireReasoningDelta<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        match more {
            WireReasoningDelta { text: Some(text), .. } => out(AnswerPart::Reasoning(text.0)),
            WireReasoningDelta { signature: Some(more), .. } => {
                self.signature.get_or_insert_default().push_str(&more.0);
            }
            WireReasoningDelta { redacted: Some(data), .. } => {
                let sealed = seal::wrap(Maker::ConverseRedacted, &data.0);
                out(AnswerPart::Seal(sealed.into()));
            }
            _ => return Err(Malformed("a thought that nobody can read".to_owned())),
        }
        Ok(())
    }

    fn close(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.call = None;
        if let Some(signature) = self.signature.take() {
            out(AnswerPart::Seal(seal::wrap(Maker::Converse, &signature).into()));
        }
    }
}
