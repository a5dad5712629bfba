//! Items of an upstream's answer: messages, thoughts and calls.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::Malformed;
use crate::json::Borrowed;
use crate::part::AnswerPart;
use crate::seal::{self, Maker};

/// An item, with the fields of all of its types.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireItem<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Borrowed<'a>,
    #[serde(borrow)]
    content: Option<Vec<WireContent<'a>>>,
    #[serde(borrow)]
    summary: Option<Vec<WireContent<'a>>>,
    #[serde(borrow)]
    encrypted_content: Option<Borrowed<'a>>,
    #[serde(borrow)]
    pub(super) call_id: Borrowed<'a>,
    #[serde(borrow)]
    pub(super) name: Borrowed<'a>,
    #[serde(borrow)]
    arguments: Option<Borrowed<'a>>,
    #[serde(borrow)]
    input: Option<Borrowed<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireContent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Borrowed<'a>,
    #[serde(borrow)]
    text: Borrowed<'a>,
    #[serde(borrow)]
    refusal: Borrowed<'a>,
}

/// Reads an item of the output.
pub(super) fn read(item: &RawValue) -> Result<WireItem<'_>, Malformed> {
    serde_json::from_str(item.get())
        .map_err(|error| Malformed(format!("no item of a response: {error}")))
}

impl<'a> WireItem<'a> {
    /// The whole input of a call.
    pub(super) fn input(&mut self) -> Option<Borrowed<'a>> {
        // Free text is wrapped as other dialects have it, and unwrapped for the customer.
        let free = self.input.take().map(|text| Borrowed(crate::kit::wrap_free(&text.0).into()));
        self.arguments.take().or(free)
    }

    /// The seal of thoughts: the whole item as it came, which goes back as it is.
    pub(super) fn seal(&self, whole: &RawValue) -> Option<AnswerPart<'static>> {
        let is_sealed = self.encrypted_content.as_ref().is_some_and(|text| !text.0.is_empty());
        is_sealed.then(|| AnswerPart::Seal(seal::wrap(Maker::Responses, whole.get()).into()))
    }

    /// All that the item says.
    pub(super) fn say(
        mut self,
        whole: &'a RawValue,
        out: &mut dyn FnMut(AnswerPart<'a>),
    ) -> Result<(), Malformed> {
        match &*self.kind.0 {
            "message" => {
                for content in self.content.into_iter().flatten() {
                    match &*content.kind.0 {
                        "output_text" => out(AnswerPart::Text(content.text.0)),
                        "refusal" => out(AnswerPart::Refusal(content.refusal.0)),
                        other => return Err(Malformed(format!("a content of type {other:?}"))),
                    }
                }
            }
            "reasoning" => {
                let seal = self.seal(whole);
                let texts = self.summary.into_iter().flatten();
                let texts = texts.chain(self.content.into_iter().flatten());
                let texts = texts.filter(|content| !content.text.0.is_empty());
                texts.for_each(|content| out(AnswerPart::Reasoning(content.text.0)));
                if let Some(seal) = seal {
                    out(seal);
                }
            }
            "function_call" | "custom_tool_call" => {
                let input = self.input();
                out(AnswerPart::ToolCall { id: self.call_id.0, name: self.name.0, seal: None });
                if let Some(input) = input {
                    out(AnswerPart::Input(input.0));
                }
            }
            _ => return Err(self.uncarried()),
        }
        Ok(())
    }

    /// What is wrong with an item that cannot be told in other dialects.
    pub(super) fn uncarried(&self) -> Malformed {
        Malformed(format!("an item of type {:?}, which nobody asked for", self.kind.0))
    }
}
