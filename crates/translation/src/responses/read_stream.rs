//! The events of an upstream's response.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{Malformed, ReadStream};
use crate::json::{self, Borrowed};
use crate::part::{AnswerPart, Counts};
use crate::responses::answer::{self, WireResponse};
use crate::responses::item::{self, WireItem};

/// An event, with the fields of all of its types.
#[derive(Deserialize)]
struct WireEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Borrowed<'a>,
    #[serde(borrow, default)]
    delta: Option<Borrowed<'a>>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<WireResponse<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    arguments: Option<Borrowed<'a>>,
    #[serde(borrow, default)]
    text: Option<Borrowed<'a>>,
    #[serde(borrow, default)]
    summary_index: Option<&'a RawValue>,
}

/// Reads the events of an upstream.
#[derive(Default)]
pub(super) struct ResponseReader {
    has_begun: bool,
    /// Something of the open item has come in deltas: what is whole behind them says it again.
    has_deltas: bool,
    has_calls: bool,
}

impl ReadStream for ResponseReader {
    fn read(&mut self, data: &[u8], out: &mut dyn FnMut(AnswerPart<'_>)) -> Result<(), Malformed> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let event: WireEvent<'_> = json::parse(data)
            .map_err(|error| Malformed(format!("no event of a response: {error}")))?;
        match &*event.kind.0 {
            "response.created" | "response.in_progress" | "response.queued" => {
                let id = event.response.map(|response| response.id.0).unwrap_or_default();
                if !std::mem::replace(&mut self.has_begun, true) {
                    out(AnswerPart::Begin { id, counts: Counts::default() });
                }
            }
            "response.output_item.added" => self.begin(event.item, out)?,
            "response.output_item.done" => self.end_item(event.item, out)?,
            "response.output_text.delta" => {
                self.say(event.delta.map(|it| AnswerPart::Text(it.0)), out)
            }
            "response.refusal.delta" => {
                self.say(event.delta.map(|it| AnswerPart::Refusal(it.0)), out)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.say(event.delta.map(|it| AnswerPart::Reasoning(it.0)), out);
            }
            // Parts of a summary are paragraphs.
            "response.reasoning_summary_part.added"
                if event.summary_index.is_some_and(|index| index.get() != "0") =>
            {
                self.say(Some(AnswerPart::Reasoning("\n\n".into())), out);
            }
            "response.function_call_arguments.delta" => {
                self.say(event.delta.map(|it| AnswerPart::Input(it.0)), out);
            }
            "response.function_call_arguments.done" if !self.has_deltas => {
                self.say(event.arguments.map(|it| AnswerPart::Input(it.0)), out);
            }
            "response.output_text.done" if !self.has_deltas => {
                self.say(event.text.map(|it| AnswerPart::Text(it.0)), out);
            }
            "response.completed" | "response.incomplete" => {
                let response = event.response.unwrap_or_default();
                out(AnswerPart::Stop(response.stop(self.has_calls)));
                let reasoning = response.reasoning();
                out(AnswerPart::End(Counts { reasoning, ..Counts::default() }));
            }
            "response.failed" | "error" => {
                let inside = event.response.and_then(|response| response.error);
                out(AnswerPart::Error(answer::failure(inside.or(event.error))));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn FnMut(AnswerPart<'_>)) {
        // Without its last event a response is not whole.
    }
}

impl ResponseReader {
    fn say(&mut self, piece: Option<AnswerPart<'_>>, out: &mut dyn FnMut(AnswerPart<'_>)) {
        let Some(piece) = piece else { return };
        self.has_deltas = true;
        out(piece);
    }

    fn begin(
        &mut self,
        item: Option<&RawValue>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        let item = item.map(item::read).transpose()?.unwrap_or_default();
        self.has_deltas = false;
        match &*item.kind.0 {
            "message" | "reasoning" => {}
            "function_call" | "custom_tool_call" => {
                self.has_calls = true;
                out(AnswerPart::ToolCall { id: item.call_id.0, name: item.name.0, seal: None });
            }
            _ => return Err(item.uncarried()),
        }
        Ok(())
    }

    fn end_item(
        &mut self,
        whole: Option<&RawValue>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        let Some(whole) = whole else { return Ok(()) };
        let mut item: WireItem<'_> = item::read(whole)?;
        match &*item.kind.0 {
            "reasoning" if self.has_deltas => {
                if let Some(seal) = item.seal(whole) {
                    out(seal);
                }
            }
            "message" if self.has_deltas => {}
            "message" | "reasoning" => item.say(whole, out)?,
            "function_call" if self.has_deltas => {}
            "function_call" => {
                if let Some(input) = item.input().filter(|input| !input.0.is_empty()) {
                    out(AnswerPart::Input(input.0));
                }
            }
            "custom_tool_call" => {
                // The item has the whole input: its deltas are left out, as it is wrapped as a whole.
                if let Some(input) = item.input() {
                    out(AnswerPart::Input(input.0));
                }
            }
            _ => return Err(item.uncarried()),
        }
        self.has_deltas = false;
        Ok(())
    }
}
