//! The events of an upstream's response.
//!
//! An event names its item by `output_index` and `item_id`, and the part of it by `content_index` or
//! `summary_index`; items and parts can be open side by side. What an item has said as a whole at its end
//! is compared with its pieces, and the rest of it is said too: some upstreams send no pieces.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{MalformedAnswer, ReadStream};
use crate::json::{self, BorrowedStr, MaybeText};
use crate::part::{AnswerPart, Counts};
use crate::responses::answer::{self, WireResponse};
use crate::responses::item::{self, ItemKind, PartKind, WireItem};
use crate::responses::open_items::{ItemName, OpenItems};

/// An event, with the fields of all of its types.
#[derive(Deserialize)]
struct WireResponseEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: BorrowedStr<'a>,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(borrow, default)]
    item_id: Option<BorrowedStr<'a>>,
    #[serde(default)]
    content_index: Option<u64>,
    #[serde(default)]
    summary_index: Option<u64>,
    #[serde(borrow, default)]
    delta: MaybeText<'a>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<WireResponse<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    arguments: MaybeText<'a>,
    #[serde(borrow, default)]
    text: MaybeText<'a>,
    #[serde(borrow, default)]
    refusal: MaybeText<'a>,
    #[serde(borrow, default)]
    input: MaybeText<'a>,
    #[serde(borrow, default)]
    annotation: Option<&'a RawValue>,
}

/// True if an event that does not parse is of a type that is not known here.
fn is_new(data: &[u8]) -> bool {
    let kind = std::str::from_utf8(data).ok().and_then(json::kind);
    let read_types =
        ["response.output_", "response.reasoning", "response.refusal", "response.function"];
    let last = ["response.completed", "response.incomplete", "response.failed", "error"];
    kind.is_some_and(|kind| {
        !read_types.iter().any(|prefix| kind.starts_with(prefix)) && !last.contains(&&*kind)
    })
}

/// Reads the events of an upstream.
#[derive(Default)]
pub(super) struct ResponseReader {
    has_begun: bool,
    items: OpenItems,
}

impl ReadStream for ResponseReader {
    fn read(
        &mut self,
        data: &[u8],
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let event: WireResponseEvent<'_> = match json::parse(data) {
            Ok(event) => event,
            Err(_) if is_new(data) => return Ok(()),
            Err(error) => return Err(MalformedAnswer(format!("no event of a response: {error}"))),
        };
        match &*event.kind.0 {
            "response.created" | "response.in_progress" | "response.queued" => {
                let id = event.response.map(|response| response.id.0).unwrap_or_default();
                if !std::mem::replace(&mut self.has_begun, true) {
                    out(AnswerPart::Begin { id, counts: Counts::default() });
                }
            }
            "response.output_item.added" => self.begin(&event, out)?,
            "response.output_item.done" => self.end_item(&event, out)?,
            "response.completed" | "response.incomplete" => {
                let response = event.response.unwrap_or_default();
                self.end(&response, out)?;
            }
            "response.failed" | "error" => {
                let inside = event.response.and_then(|response| response.error);
                out(AnswerPart::Error(answer::failure(inside.or(event.error))));
            }
            "keepalive" | "ping" => out(AnswerPart::Alive),
            _ => self.piece(event, out)?,
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn FnMut(AnswerPart<'_>)) {
        // Without its last event a response is not whole.
    }

    fn has_waiting(&self) -> bool {
        self.items.has_waiting()
    }

    fn held_bytes(&self) -> usize {
        self.items.held_bytes()
    }
}

impl ResponseReader {
    /// An event about a part of an item. What is new among them is passed over.
    fn piece(
        &mut self,
        event: WireResponseEvent<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let name =
            ItemName { index: event.output_index, id: event.item_id.as_ref().map(|id| &*id.0) };
        let content = event.content_index.unwrap_or(0);
        let summary = event.summary_index.unwrap_or(0);
        let (kind, text, is_complete) = match &*event.kind.0 {
            "response.output_text.delta" => (PartKind::Text(content), event.delta, false),
            "response.output_text.done" => (PartKind::Text(content), event.text, true),
            "response.refusal.delta" => (PartKind::Refusal(content), event.delta, false),
            "response.refusal.done" => (PartKind::Refusal(content), event.refusal, true),
            "response.reasoning_text.delta" => (PartKind::Thought(content), event.delta, false),
            "response.reasoning_text.done" => (PartKind::Thought(content), event.text, true),
            "response.reasoning_summary_text.delta" => {
                (PartKind::Summary(summary), event.delta, false)
            }
            "response.reasoning_summary_text.done" => {
                (PartKind::Summary(summary), event.text, true)
            }
            "response.function_call_arguments.delta" => (PartKind::Input, event.delta, false),
            "response.function_call_arguments.done" => (PartKind::Input, event.arguments, true),
            // Free text is wrapped as a whole, so its pieces are left out.
            "response.custom_tool_call_input.done" => (PartKind::FreeInput, event.input, true),
            "response.output_text.annotation.added" => {
                let citation = event.annotation.and_then(item::citation);
                self.items.cite(name, content, citation);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let Some(text) = text.0 else { return Ok(()) };
        match is_complete {
            true => self.items.complete(name, kind, &text, out),
            false => self.items.say(name, kind, text, out),
        }
    }

    fn begin(
        &mut self,
        event: &WireResponseEvent<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let item = event.item.map(item::read).transpose()?.unwrap_or_default();
        let name = ItemName { index: event.output_index, id: item.id() };
        self.items.begin(name, ItemKind::from_item(&item), out);
        if let Some(call) = item.call() {
            self.items.call(call, out);
        }
        Ok(())
    }

    fn end_item(
        &mut self,
        event: &WireResponseEvent<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let Some(whole) = event.item else { return Ok(()) };
        let item: WireItem<'_> = item::read(whole)?;
        let name = ItemName { index: event.output_index, id: item.id() };
        self.items.end(name, &item, whole, out)
    }

    /// The last event repeats all items: those that came in no event of their own are said now.
    fn end(
        &mut self,
        response: &WireResponse<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        if self.items.is_empty() {
            for (place, whole) in response.output.iter().enumerate() {
                let item = item::read(whole)?;
                let name = ItemName { index: Some(place as u64), id: item.id() };
                self.items.end(name, &item, whole, out)?;
            }
        }
        self.items.end_all(out);
        out(AnswerPart::Stop(response.stop(self.items.has_calls())));
        let reasoning = response.reasoning();
        out(AnswerPart::End(Counts { reasoning, ..Counts::default() }));
        Ok(())
    }
}
