//! Messages and tool calls as chat completions carry them, whole or in pieces.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{self, BorrowedStr};
use crate::part::{AnswerPart, Citation};
use crate::seal::{self, Maker};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMessage<'a> {
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    pub(super) reasoning: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<WireCall<'a>>>,
    #[serde(borrow)]
    pub(super) annotations: Option<&'a RawValue>,
}

/// A page of the web that a text refers to.
#[derive(Debug, Deserialize)]
pub(super) struct CitedUrl {
    start_index: u64,
    end_index: u64,
    url: String,
    #[serde(default)]
    title: String,
}

impl CitedUrl {
    /// The citation as a part, once the `length` characters of the text are complete.
    pub(super) fn at_end_of(&self, length: u64) -> Option<AnswerPart<'_>> {
        let back = (length.checked_sub(self.start_index)?, length.checked_sub(self.end_index)?);
        let (url, title) = (self.url.as_str().into(), self.title.as_str().into());
        Some(AnswerPart::Citation(Citation { back, url, title }))
    }

    /// Memory of the call, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.url.len() + self.title.len()
    }
}

/// The pages in `annotations`. What is no `url_citation` with places in the text is left out.
pub(super) fn citations(annotations: &RawValue) -> Vec<CitedUrl> {
    #[derive(Deserialize)]
    struct WireAnnotation {
        url_citation: CitedUrl,
    }
    let list = json::read::<Vec<&RawValue>>(annotations.get()).unwrap_or_default();
    let read = |one: &RawValue| json::read::<WireAnnotation>(one.get());
    list.into_iter().filter_map(read).map(|one| one.url_citation).collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    pub(super) index: Option<usize>,
    #[serde(borrow)]
    pub(super) id: Option<BorrowedStr<'a>>,
    #[serde(borrow, alias = "custom")]
    pub(super) function: WireFunction<'a>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireFunction<'a> {
    #[serde(borrow)]
    pub(super) name: Option<BorrowedStr<'a>>,
    #[serde(borrow, alias = "input")]
    pub(super) arguments: Option<&'a RawValue>,
}

impl<'a> WireFunction<'a> {
    /// The input as text. Some upstreams write the object itself.
    pub(super) fn input(&self) -> Option<Cow<'a, str>> {
        let arguments = self.arguments.filter(|arguments| arguments.get() != "null")?;
        Some(json::string(arguments).unwrap_or(Cow::Borrowed(arguments.get())))
    }
}

impl<'a> WireCall<'a> {
    /// The signature of a call in `extra_content`, as Gemini's compatible API sends it.
    pub(super) fn seal(&self) -> Option<Cow<'a, str>> {
        let signature = seal::thought_signature(self.extra_content?.get())?;
        Some(seal::wrap(Maker::Gemini, &signature).into())
    }
}
