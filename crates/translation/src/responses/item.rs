//! Items of an upstream's answer: messages, thoughts and calls.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::MalformedAnswer;
use crate::json::{self, BorrowedStr};
use crate::part::{AnswerPart, Citation};
use crate::seal::{self, Maker};

/// Type of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// A call of a tool that takes free text.
    FreeCall,
    /// An item without a counterpart in other dialects: tools that the upstream runs, compactions, and
    /// unknown types.
    PassedOver,
}

impl ItemKind {
    /// The kind of an item by its `type`.
    pub(super) fn from_item(item: &WireItem<'_>) -> Self {
        match &*item.kind.0 {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::Call,
            "custom_tool_call" => Self::FreeCall,
            _ => Self::PassedOver,
        }
    }

    /// True if an item of this kind can contain such a part.
    pub(super) fn has(self, part: PartKind) -> bool {
        match part {
            PartKind::Text(_) | PartKind::Refusal(_) => self == Self::Message,
            PartKind::Summary(_) | PartKind::Thought(_) => self == Self::Reasoning,
            PartKind::Input => self == Self::Call,
            PartKind::FreeInput => self == Self::FreeCall,
        }
    }
}

/// A part of an item, with its place among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text(u64),
    Refusal(u64),
    Summary(u64),
    /// Thoughts as they were, which open models show.
    Thought(u64),
    Input,
    FreeInput,
}

impl PartKind {
    /// The kind of item in which it stands.
    pub(super) fn item(self) -> Option<ItemKind> {
        match self {
            Self::Text(_) | Self::Refusal(_) => Some(ItemKind::Message),
            Self::Summary(_) | Self::Thought(_) => Some(ItemKind::Reasoning),
            Self::Input | Self::FreeInput => None,
        }
    }

    pub(super) fn piece(self, text: Cow<'_, str>) -> AnswerPart<'_> {
        match self {
            Self::Text(_) => AnswerPart::Text(text),
            Self::Refusal(_) => AnswerPart::Refusal(text),
            Self::Summary(_) | Self::Thought(_) => AnswerPart::Reasoning(text),
            Self::Input => AnswerPart::Input(text),
            Self::FreeInput => AnswerPart::Input(crate::call_input::wrap_free(&text).into()),
        }
    }
}

/// An item, with the fields of all of its types.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireItem<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: BorrowedStr<'a>,
    #[serde(borrow)]
    id: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    content: Option<Vec<WireContent<'a>>>,
    #[serde(borrow)]
    summary: Option<Vec<WireContent<'a>>>,
    #[serde(borrow)]
    encrypted_content: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    call_id: BorrowedStr<'a>,
    #[serde(borrow)]
    name: BorrowedStr<'a>,
    #[serde(borrow)]
    arguments: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    input: Option<BorrowedStr<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireContent<'a> {
    #[serde(borrow, rename = "type")]
    kind: BorrowedStr<'a>,
    #[serde(borrow)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    refusal: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    annotations: Option<Vec<&'a RawValue>>,
}

/// A page that a text of a message refers to.
#[derive(Clone, Debug)]
pub(super) struct CitedText {
    /// Index of the text among the content parts of its message.
    pub(super) content: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) url: String,
    pub(super) title: String,
}

impl CitedText {
    /// The citation as a part, once the `length` characters of the text are complete.
    pub(super) fn at_end_of(&self, length: u64) -> Option<AnswerPart<'_>> {
        let back = (length.checked_sub(self.start)?, length.checked_sub(self.end)?);
        let (url, title) = (self.url.as_str().into(), self.title.as_str().into());
        Some(AnswerPart::Citation(Citation { back, url, title }))
    }

    /// Memory of the call, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.url.len() + self.title.len()
    }
}

/// Reads an annotation: `None` for one that refers to no page of the web.
pub(super) fn citation(annotation: &RawValue) -> Option<CitedText> {
    #[derive(Deserialize)]
    struct WireUrlAnnotation {
        #[serde(rename = "type")]
        kind: String,
        start_index: u64,
        end_index: u64,
        url: String,
        #[serde(default)]
        title: String,
    }
    let WireUrlAnnotation { kind, start_index: start, end_index: end, url, title } =
        json::read(annotation.get())?;
    (kind == "url_citation").then_some(CitedText { content: 0, start, end, url, title })
}

/// Reads an item of the output.
///
/// # Errors
/// It is of a known type, and not what such an item is.
pub(super) fn read(item: &RawValue) -> Result<WireItem<'_>, MalformedAnswer> {
    serde_json::from_str(item.get()).or_else(|error| {
        let kind = json::kind(item.get()).map(|kind| BorrowedStr(kind.into()));
        let unread = WireItem { kind: kind.unwrap_or_default(), ..WireItem::default() };
        match ItemKind::from_item(&unread) {
            ItemKind::PassedOver if !unread.kind.0.is_empty() => Ok(unread),
            _ => Err(MalformedAnswer(format!("no item of a response: {error}"))),
        }
    })
}

impl<'a> WireItem<'a> {
    /// The id of the item; `None` if empty.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_ref().map(|id| &*id.0).filter(|id| !id.is_empty())
    }

    /// Beginning of the call, if the item is one.
    pub(super) fn call(&self) -> Option<AnswerPart<'a>> {
        let is_call = matches!(&*self.kind.0, "function_call" | "custom_tool_call");
        let (id, name) = (self.call_id.0.clone(), self.name.0.clone());
        is_call.then_some(AnswerPart::ToolCall { id, name, seal: None })
    }

    /// Its parts with their texts, in order.
    pub(super) fn parts(&self) -> Vec<(PartKind, &str)> {
        let mut parts = Vec::new();
        match ItemKind::from_item(self) {
            ItemKind::Message => {
                for (content, place) in self.content.iter().flatten().zip(0..) {
                    match (&*content.kind.0, &content.text, &content.refusal) {
                        ("refusal", _, Some(text)) => {
                            parts.push((PartKind::Refusal(place), &*text.0));
                        }
                        ("output_text", Some(text), _) => {
                            parts.push((PartKind::Text(place), &*text.0));
                        }
                        // What is new.
                        _ => {}
                    }
                }
            }
            ItemKind::Reasoning => {
                for (content, place) in self.summary.iter().flatten().zip(0..) {
                    parts
                        .extend(content.text.as_ref().map(|it| (PartKind::Summary(place), &*it.0)));
                }
                for (content, place) in self.content.iter().flatten().zip(0..) {
                    parts
                        .extend(content.text.as_ref().map(|it| (PartKind::Thought(place), &*it.0)));
                }
            }
            ItemKind::Call => {
                parts.extend(self.arguments.as_ref().map(|text| (PartKind::Input, &*text.0)));
            }
            ItemKind::FreeCall => {
                parts.extend(self.input.as_ref().map(|text| (PartKind::FreeInput, &*text.0)));
            }
            ItemKind::PassedOver => {}
        }
        parts
    }

    /// Citations of its texts.
    pub(super) fn citations(&self) -> Vec<CitedText> {
        let contents = self.content.iter().flatten().zip(0..);
        let cited = contents.flat_map(|(content, place)| {
            let annotations = content.annotations.iter().flatten();
            annotations.filter_map(move |annotation| {
                Some(CitedText { content: place, ..citation(annotation)? })
            })
        });
        cited.collect()
    }

    /// The seal of thoughts: the whole item as it came, which goes back as it is.
    pub(super) fn seal(&self, whole: &RawValue) -> Option<AnswerPart<'static>> {
        let is_sealed = self.encrypted_content.as_ref().is_some_and(|text| !text.0.is_empty());
        let is_thought = ItemKind::from_item(self) == ItemKind::Reasoning;
        (is_sealed && is_thought)
            .then(|| AnswerPart::Seal(seal::wrap(Maker::Responses, whole.get()).into()))
    }
}
