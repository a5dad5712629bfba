//! The items of an upstream's response while their pieces come, in any order.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::dialect::MalformedAnswer;
use crate::part::AnswerPart;
use crate::responses::item::{CitedText, ItemKind, PartKind, WireItem};
use crate::sequence::{PassedText, Sequencer};

/// Reference of an event to its item.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemName<'n> {
    /// The `output_index` of the event.
    pub(super) index: Option<u64>,
    /// The `item_id` of the event.
    pub(super) id: Option<&'n str>,
}

/// An item that has begun.
struct OpenItem {
    index: Option<u64>,
    id: Option<String>,
    kind: ItemKind,
    has_ended: bool,
    parts: Sequencer<PartKind>,
    passed: Vec<(PartKind, PassedText)>,
    /// Citations in the texts of a message.
    cited: Vec<CitedText>,
}

/// All items of a response so far.
#[derive(Default)]
pub(super) struct OpenItems {
    items: Vec<OpenItem>,
    /// The most recently updated item.
    last: usize,
    order: Sequencer<usize>,
    has_calls: bool,
}

impl OpenItems {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// True if an item or a part waits for another to end.
    pub(super) fn has_waiting(&self) -> bool {
        let open = self.items.iter().filter(|item| !item.has_ended);
        self.order.has_waiting() || open.into_iter().any(|item| item.parts.has_waiting())
    }

    pub(super) fn held_bytes(&self) -> usize {
        let items = self.items.iter().map(|item| size_of::<OpenItem>() + item.held_bytes());
        self.order.held_bytes() + items.sum::<usize>()
    }

    /// Begins an item, and ends an open item with the same index.
    pub(super) fn begin(
        &mut self,
        name: ItemName<'_>,
        kind: ItemKind,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) {
        // One without a name is the only one that is open; one whose number is there already takes its
        // place.
        let same = match name.index {
            None if name.id.is_none() => self.items.iter().rposition(|item| !item.has_ended),
            None => None,
            index => self.items.iter().rposition(|item| item.index == index && !item.has_ended),
        };
        if let Some(same) = same {
            self.close(same, out);
        }
        self.last = self.items.len();
        self.items.push(OpenItem {
            index: name.index,
            id: name.id.map(str::to_owned),
            kind,
            has_ended: false,
            parts: Sequencer::default(),
            passed: Vec::new(),
            cited: Vec::new(),
        });
        // Nobody waits for the end of an item of which nothing is said.
        if kind != ItemKind::PassedOver {
            self.order.begin(self.last);
        }
    }

    /// The call that the item which began last is.
    pub(super) fn call(&mut self, call: AnswerPart<'_>, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.has_calls = true;
        self.order.push(self.last, call, out);
    }

    /// The place of the item of this name; one that has ended only if it is named by both.
    fn find(&self, name: ItemName<'_>) -> Option<usize> {
        let is_named = |item: &OpenItem| match (name.index, name.id) {
            (None, None) => !item.has_ended,
            // Some upstreams give an item another id with each event, and others all the same number.
            (Some(index), _) if item.index.is_some() => item.index == Some(index),
            (_, Some(id)) => item.id.as_deref() == Some(id),
            (Some(_), None) => !item.has_ended,
        };
        let is_last = self.items.get(self.last).is_some_and(&is_named);
        if is_last {
            return Some(self.last);
        }
        self.items.iter().rposition(is_named)
    }

    /// The item in which a part of this kind of an item of this name stands. Texts and thoughts begin one
    /// where the upstream has left that out.
    fn item_of(
        &mut self,
        name: ItemName<'_>,
        part: PartKind,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<Option<usize>, MalformedAnswer> {
        let found = self.find(name);
        let kind = found.and_then(|place| self.items.get(place)).map(|item| item.kind);
        match (found, kind) {
            (_, Some(ItemKind::PassedOver)) => Ok(None),
            (Some(place), Some(kind)) if kind.has(part) => {
                self.last = place;
                Ok(found)
            }
            // What an upstream calls the end of a call's input says nothing new of a call of another kind.
            (Some(_), _) if part == PartKind::FreeInput => Ok(None),
            _ => {
                let Some(kind) = part.item() else {
                    return Err(MalformedAnswer("the input of a call that is not open".to_owned()));
                };
                if let Some(place) = found {
                    self.close(place, out);
                }
                self.begin(name, kind, out);
                Ok(Some(self.last))
            }
        }
    }

    /// Passes on further text of a part.
    pub(super) fn say(
        &mut self,
        name: ItemName<'_>,
        part: PartKind,
        text: Cow<'_, str>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let Some(place) = self.item_of(name, part, out)? else { return Ok(()) };
        let (order, Some(item)) = (&mut self.order, self.items.get_mut(place)) else {
            return Ok(());
        };
        if item.has_ended {
            return Err(MalformedAnswer("a piece of an item that has ended".to_owned()));
        }
        item.say(part, text, &mut |piece| order.push(place, piece, out));
        Ok(())
    }

    /// A part as a whole: it has ended.
    pub(super) fn complete(
        &mut self,
        name: ItemName<'_>,
        part: PartKind,
        whole: &str,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        if part.item().is_none() && self.find(name).is_none() {
            // The end of its item says it again, and more.
            return Ok(());
        }
        let Some(place) = self.item_of(name, part, out)? else { return Ok(()) };
        let (order, Some(item)) = (&mut self.order, self.items.get_mut(place)) else {
            return Ok(());
        };
        if !item.has_ended {
            item.complete(part, whole, &mut |piece| order.push(place, piece, out));
        }
        Ok(())
    }

    /// A page that a text of a message refers to.
    pub(super) fn cite(&mut self, name: ItemName<'_>, content: u64, cited: Option<CitedText>) {
        let found = self.find(name).and_then(|place| self.items.get_mut(place));
        if let (Some(item), Some(cited)) = (found, cited) {
            item.cited.push(CitedText { content, ..cited });
        }
    }

    /// An item as a whole: it has ended.
    pub(super) fn end(
        &mut self,
        name: ItemName<'_>,
        item: &WireItem<'_>,
        whole: &RawValue,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let kind = ItemKind::from_item(item);
        let is_same = |place: &usize| {
            self.items.get(*place).is_some_and(|open| open.kind == kind && !open.has_ended)
        };
        let place = match self.find(name).filter(is_same) {
            Some(place) => place,
            None if self.has_ended_item(name, kind) => return Ok(()),
            None => {
                self.begin(name, kind, out);
                if let Some(call) = item.call() {
                    self.call(call, out);
                }
                self.last
            }
        };
        self.last = place;
        let (order, Some(open)) = (&mut self.order, self.items.get_mut(place)) else {
            return Ok(());
        };
        open.complete_all(item, whole, &mut |piece| order.push(place, piece, out));
        self.close(place, out);
        Ok(())
    }

    /// True if an item of this name and kind has already ended.
    fn has_ended_item(&self, name: ItemName<'_>, kind: ItemKind) -> bool {
        let found = self.find(name).and_then(|place| self.items.get(place));
        let is_named = name.index.is_some() || name.id.is_some();
        is_named && found.is_some_and(|item| item.kind == kind && item.has_ended)
    }

    fn close(&mut self, place: usize, out: &mut dyn FnMut(AnswerPart<'_>)) {
        let (order, Some(item)) = (&mut self.order, self.items.get_mut(place)) else { return };
        item.parts.end_all(&mut |piece| order.push(place, piece, out));
        item.has_ended = true;
        item.passed = Vec::new();
        order.end(place, out);
    }

    /// Ends all open items.
    pub(super) fn end_all(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        for place in 0..self.items.len() {
            if self.items.get(place).is_some_and(|item| !item.has_ended) {
                self.close(place, out);
            }
        }
    }
}

impl OpenItem {
    fn held_bytes(&self) -> usize {
        let cited = self.cited.iter().map(CitedText::held_bytes).sum::<usize>();
        let passed = self.passed.len() * size_of::<(PartKind, PassedText)>();
        self.parts.held_bytes() + cited + passed + self.id.as_ref().map_or(0, String::len)
    }

    fn say(&mut self, part: PartKind, text: Cow<'_, str>, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if text.is_empty() {
            return self.parts.begin(part);
        }
        let entry = self.passed.iter().rposition(|(entry, _)| *entry == part);
        let place = entry.unwrap_or_else(|| {
            // Parts of a summary are paragraphs.
            if let PartKind::Summary(1..) = part {
                self.parts.push(part, AnswerPart::Reasoning("\n\n".into()), out);
            }
            self.passed.push((part, PassedText::default()));
            self.passed.len() - 1
        });
        if let Some((_, passed)) = self.passed.get_mut(place) {
            passed.take(&text);
        }
        self.parts.push(part, part.piece(text), out);
    }

    /// Passes on what is missing of a complete part, and ends it.
    fn complete(&mut self, part: PartKind, whole: &str, out: &mut dyn FnMut(AnswerPart<'_>)) {
        let entry = self.passed.iter().find(|(entry, _)| *entry == part);
        let rest = entry.map_or(whole, |(_, passed)| passed.rest(whole));
        if entry.is_none() && part == PartKind::FreeInput {
            self.passed.push((part, PassedText::default()));
            // Free text can be empty, and is an object with nothing in it then.
            self.parts.push(part, part.piece(whole.into()), out);
        } else if !rest.is_empty() {
            self.say(part, rest.into(), out);
        }
        self.parts.end(part, out);
    }

    /// Passes on what is missing of a complete item.
    fn complete_all(
        &mut self,
        item: &WireItem<'_>,
        whole: &RawValue,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) {
        let mut cited = item.citations();
        if cited.is_empty() {
            cited = std::mem::take(&mut self.cited);
        }
        for (part, text) in item.parts() {
            self.complete(part, text, out);
            let PartKind::Text(content) = part else { continue };
            for cited in cited.iter().filter(|cited| cited.content == content) {
                let length = text.chars().count() as u64;
                cited.at_end_of(length).into_iter().for_each(&mut *out);
            }
        }
        if let Some(seal) = item.seal(whole) {
            self.parts.end_all(out);
            out(seal);
        }
    }
}
