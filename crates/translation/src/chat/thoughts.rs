//! Places where models put their reasoning in chat completions, and how it is sent back to them.
//!
//! Those who copied chat completions have found five places for it, and many refuse thoughts that come
//! back in another one than their own. So the seal of a thought says where it stood.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::wire::WireMessage;
use crate::dialect::MalformedAnswer;
use crate::json::{self, BorrowedStr, Members};
use crate::part::{AnswerPart, Reasoning};
use crate::seal::{self, Maker};

/// Tags around reasoning within the text.
const TAGS: (&str, &str) = ("<think>", "</think>");
/// The keys of an entry of `reasoning_details` that has words for people.
const DETAIL_WORDS: [&str; 2] = ["text", "summary"];

/// An entry of `reasoning_details`. In a seal its words are replaced by how many bytes they have, as
/// the words themselves travel beside it.
type Detail = Map<String, Value>;

/// Place of reasoning in an answer.
#[derive(Clone, Debug, PartialEq)]
enum ThoughtPlace {
    /// In `reasoning_content`: DeepSeek and most others.
    ReasoningContent,
    /// In `reasoning`: Groq, OpenRouter, Ollama, newer releases of vLLM.
    Reasoning,
    /// At the beginning of `content`, between [`TAGS`]: MiniMax, and local servers without a parser.
    Tags {
        /// White space between the thoughts and the text.
        gap: String,
    },
    /// In blocks of `content`: Mistral.
    Blocks,
    /// In `reasoning_details`, with signatures: OpenRouter.
    Details(Vec<Detail>),
}

impl ThoughtPlace {
    fn seal(&self) -> String {
        let token: Cow<'_, str> = match self {
            Self::ReasoningContent => "".into(),
            Self::Reasoning => "reasoning".into(),
            Self::Tags { gap } => format!("think:{}", Value::from(gap.as_str())).into(),
            Self::Blocks => "blocks".into(),
            Self::Details(details) => serde_json::to_string(details).unwrap_or_default().into(),
        };
        seal::wrap(Maker::Chat, &token)
    }

    /// `None` for what no model of this dialect has thought.
    fn from_seal(seal: &str) -> Option<Self> {
        let token = seal::open(Maker::Chat, seal)?;
        let gap = || json::read(token.strip_prefix("think:")?);
        Some(match token {
            "reasoning" => Self::Reasoning,
            "blocks" => Self::Blocks,
            _ if token.starts_with('[') => Self::Details(json::read(token)?),
            // The empty token, and any that cannot be read, is the commonest place.
            _ => gap().map_or(Self::ReasoningContent, |gap| Self::Tags { gap }),
        })
    }
}

/// Incremental reader of thoughts and texts of an answer.
#[derive(Default)]
pub(super) struct ThoughtReader {
    /// Place of the reasoning that has begun and not ended.
    open: Option<ThoughtPlace>,
    /// Entries of `reasoning_details` to send back.
    details: Vec<Detail>,
    text: TextState,
}

/// Progress in the text of an answer, with respect to `<think>` tags.
enum TextState {
    /// A possible beginning of a tag, held back until it is decided.
    Beginning(String),
    /// Thoughts, up to what may be the beginning of their end.
    Thoughts(String),
    /// White space behind thoughts.
    Gap(String),
    /// Text alone, whatever may come.
    Plain,
}

impl Default for TextState {
    fn default() -> Self {
        Self::Beginning(String::new())
    }
}

impl ThoughtReader {
    /// Reads the reasoning fields of a message or a piece of one.
    pub(super) fn fields(
        &mut self,
        message: &mut WireMessage<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) {
        let details: Vec<Detail> = message
            .reasoning_details
            .and_then(|details| json::read(details.get()))
            .unwrap_or_default();
        let mut has_words = false;
        for detail in details {
            self.leave_beginning(out);
            if let Some(words) = words(&detail).filter(|words| !words.is_empty()) {
                has_words = true;
                out(AnswerPart::Reasoning(words.into()));
            }
            self.add_detail(detail);
        }
        let named = [
            (message.reasoning_content.take(), ThoughtPlace::ReasoningContent),
            (message.reasoning.take(), ThoughtPlace::Reasoning),
        ];
        let mut named = named.into_iter().filter_map(|(text, place)| Some((text?.0, place)));
        // OpenRouter writes the words of `reasoning_details` once more in `reasoning`: one of both
        // is read.
        if let Some((text, place)) = named.find(|(text, _)| !text.is_empty() && !has_words) {
            self.leave_beginning(out);
            self.open.get_or_insert(place);
            out(AnswerPart::Reasoning(text));
        }
    }

    /// Keeps what goes back of a detail: pieces of one are put together.
    fn add_detail(&mut self, mut detail: Detail) {
        let mut has_words = false;
        for key in DETAIL_WORDS {
            if let Some(Value::String(words)) = detail.get(key) {
                // The words travel as reasoning beside the seal. Only their length goes into it, so
                // a prompt has them once.
                let length = Value::from(words.len());
                detail.insert(key.to_owned(), length);
                has_words = true;
            }
        }
        let alike = |last: &Detail, key: &str| last.get(key) == detail.get(key);
        let has_length = |last: &Detail| DETAIL_WORDS.iter().any(|key| last.contains_key(*key));
        // Streams cut one detail into pieces of the same type and index; it goes back whole, as it
        // was signed.
        let goes_on = self.details.last_mut().filter(|last| {
            has_words && has_length(last) && alike(last, "type") && alike(last, "index")
        });
        let Some(last) = goes_on else { return self.details.push(detail) };
        for (key, value) in detail {
            let sum = |last: &Value| Some(last.as_u64()?.saturating_add(value.as_u64()?));
            let is_length = DETAIL_WORDS.contains(&key.as_str());
            match last.get_mut(&key) {
                Some(length) if is_length => *length = Value::from(sum(length)),
                // Later pieces may repeat members as `null`, which takes nothing back.
                _ if value.is_null() => {}
                _ => drop(last.insert(key, value)),
            }
        }
    }

    /// Reads what stands in `content`: a text, or a list of texts and thoughts.
    pub(super) fn content(
        &mut self,
        value: &RawValue,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Block<'a> {
            #[serde(borrow)]
            text: Option<BorrowedStr<'a>>,
            #[serde(borrow)]
            thinking: Option<Vec<Block<'a>>>,
        }
        if value.get() == "null" {
            return Ok(());
        }
        if let Some(text) = json::string(value) {
            self.text(&text, out);
            return Ok(());
        }
        let Some(blocks) = json::read::<Vec<Block<'_>>>(value.get()) else {
            return Err(MalformedAnswer("`content` is no text".to_owned()));
        };
        self.leave_beginning(out);
        for Block { text, thinking } in blocks {
            let thoughts = thinking.into_iter().flatten().filter_map(|block| block.text);
            for BorrowedStr(text) in thoughts.filter(|text| !text.0.is_empty()) {
                self.open.get_or_insert(ThoughtPlace::Blocks);
                out(AnswerPart::Reasoning(text));
            }
            if let Some(BorrowedStr(text)) = text.filter(|text| !text.0.is_empty()) {
                self.end(out);
                out(AnswerPart::Text(text));
            }
        }
        Ok(())
    }

    /// Reads a piece of the text. A beginning that may be a tag waits for what follows.
    fn text(&mut self, piece: &str, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if piece.is_empty() {
            return;
        }
        let (open, close) = TAGS;
        match std::mem::replace(&mut self.text, TextState::Plain) {
            TextState::Plain => {
                self.end(out);
                out(AnswerPart::Text(piece.into()));
            }
            TextState::Beginning(held) => {
                let text = held + piece;
                let begin = text.trim_start();
                if let Some(thoughts) = begin.strip_prefix(open) {
                    self.open = Some(ThoughtPlace::Tags { gap: String::new() });
                    self.text = TextState::Thoughts(String::new());
                    self.text(thoughts, out);
                // So far it may be a tag: a few letters wait, and only at the very beginning of an
                // answer.
                } else if open.starts_with(begin) {
                    self.text = TextState::Beginning(text);
                } else {
                    self.text(&text, out);
                }
            }
            TextState::Thoughts(held) => {
                let text = held + piece;
                let (thoughts, rest) = match text.split_once(close) {
                    Some((thoughts, rest)) => (thoughts, Some(rest)),
                    // The closing tag may be cut anywhere between two chunks: what can be its
                    // beginning waits.
                    None => (without_beginning_of(close, &text), None),
                };
                if !thoughts.is_empty() {
                    out(AnswerPart::Reasoning(thoughts.into()));
                }
                match rest {
                    Some(rest) => {
                        self.text = TextState::Gap(String::new());
                        self.text(rest, out);
                    }
                    None => {
                        let held = text.get(thoughts.len()..).unwrap_or_default().to_owned();
                        self.text = TextState::Thoughts(held);
                    }
                }
            }
            TextState::Gap(mut gap) => {
                let text = piece.trim_start();
                // The white space goes into the seal and back to the model: its prompt stays the
                // same byte for byte.
                gap.push_str(piece.strip_suffix(text).unwrap_or_default());
                if text.is_empty() {
                    self.text = TextState::Gap(gap);
                } else {
                    self.open = Some(ThoughtPlace::Tags { gap });
                    self.text(text, out);
                }
            }
        }
    }

    /// Whoever has another place for thoughts writes no tags.
    fn leave_beginning(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        let TextState::Beginning(held) = &mut self.text else { return };
        let held = std::mem::take(held);
        self.text = TextState::Plain;
        if !held.is_empty() {
            out(AnswerPart::Text(held.into()));
        }
    }

    /// Ends the open thoughts with a seal that records their form.
    fn end(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        let details = std::mem::take(&mut self.details);
        let open = self.open.take();
        // Signed details are refused in another place than their own, so they win over a plain
        // field.
        let place = if details.is_empty() { open } else { Some(ThoughtPlace::Details(details)) };
        if let Some(place) = place {
            out(AnswerPart::Seal(place.seal().into()));
        }
    }

    /// Ends thoughts and text, and passes on what was held back.
    pub(super) fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        match std::mem::replace(&mut self.text, TextState::Plain) {
            TextState::Beginning(held) if !held.is_empty() => self.text(&held, out),
            TextState::Thoughts(held) if !held.is_empty() => {
                out(AnswerPart::Reasoning(held.into()))
            }
            TextState::Gap(gap) => self.open = Some(ThoughtPlace::Tags { gap }),
            _ => {}
        }
        self.end(out);
    }
}

/// The words that an entry of `reasoning_details` has for people.
fn words(detail: &Detail) -> Option<&str> {
    DETAIL_WORDS.iter().find_map(|key| detail.get(*key)?.as_str())
}

/// `text` without the longest end of it with which `tag` may begin.
fn without_beginning_of<'t>(tag: &str, text: &'t str) -> &'t str {
    let lengths = (1..tag.len()).rev();
    let held = lengths.filter_map(|length| tag.get(..length)).find(|begin| text.ends_with(begin));
    text.strip_suffix(held.unwrap_or_default()).unwrap_or(text)
}

/// Reasoning of one turn, at the places where models of this dialect expect it back.
#[derive(Default)]
pub(super) struct TurnReasoning {
    /// Value of the field `reasoning_content`.
    reasoning_content: String,
    /// Value of the field `reasoning`.
    reasoning: String,
    /// The entries of the field `reasoning_details`.
    reasoning_details: Vec<Detail>,
    /// Reasoning in tags, before the text.
    before_text: String,
    /// Blocks of thoughts before that of the text.
    blocks: Vec<String>,
}

impl TurnReasoning {
    /// Collects the reasoning of a turn. That of other dialects' models is left out: only they can read its
    /// seal.
    pub(super) fn from_turn(turn: &[&Reasoning<'_>]) -> Self {
        let mut sent = Self::default();
        for Reasoning { text, seal } in turn {
            let place = seal.as_deref().and_then(ThoughtPlace::from_seal);
            match place {
                None => {}
                Some(ThoughtPlace::ReasoningContent) => sent.reasoning_content.push_str(text),
                Some(ThoughtPlace::Reasoning) => sent.reasoning.push_str(text),
                Some(ThoughtPlace::Blocks) => sent.blocks.push(text.clone().into_owned()),
                Some(ThoughtPlace::Tags { gap }) => {
                    let (open, close) = TAGS;
                    sent.before_text.extend([open, text, close, &gap]);
                }
                Some(ThoughtPlace::Details(details)) => sent.add_details(details, text),
            }
        }
        sent
    }

    /// True if reasoning stands in `content` itself, or in details signed by a provider: a message of
    /// reasoning alone is valid only where the provider wrote it so.
    pub(super) fn has_content(&self) -> bool {
        !(self.before_text.is_empty()
            && self.blocks.is_empty()
            && self.reasoning_details.is_empty())
    }

    /// Writes `content`, with the thoughts that belong there before the text.
    pub(super) fn write_content(&self, text: &str, out: &mut Vec<u8>) {
        let text = [&self.before_text, text].concat();
        match &self.blocks[..] {
            // So OpenAI writes a message of calls alone.
            [] if text.is_empty() => out.extend_from_slice(b"null"),
            [] => json::push_string(out, &text),
            thoughts => {
                let mut blocks = Members::array(out);
                for thought in thoughts {
                    blocks.next(out);
                    let mut block = Members::object(out);
                    block.text(out, "type", "thinking");
                    block.key(out, "thinking");
                    let mut inner = Members::array(out);
                    inner.next(out);
                    write_text(thought, out);
                    inner.end(out);
                    block.end(out);
                }
                if !text.is_empty() {
                    blocks.next(out);
                    write_text(&text, out);
                }
                blocks.end(out);
            }
        }
    }

    /// Writes the fields of a message in which thoughts go.
    pub(super) fn write_fields(self, message: &mut Members, out: &mut Vec<u8>) {
        for (key, text) in
            [("reasoning_content", &self.reasoning_content), ("reasoning", &self.reasoning)]
        {
            if !text.is_empty() {
                message.text(out, key, text);
            }
        }
        if !self.reasoning_details.is_empty() {
            let details = Value::from_iter(self.reasoning_details);
            message.raw(out, "reasoning_details", &details.to_string());
        }
    }

    /// Restores the texts of details. If some are missing, the remaining text is added to details without
    /// one.
    fn add_details(&mut self, details: Vec<Detail>, text: &str) {
        let mut left = text;
        let filled: Option<Vec<Detail>> =
            details.iter().cloned().map(|detail| with_words(detail, &mut left)).collect();
        match filled.filter(|_| left.is_empty()) {
            Some(filled) => self.reasoning_details.extend(filled),
            None => {
                self.reasoning.push_str(text);
                let has_words =
                    |detail: &Detail| DETAIL_WORDS.iter().any(|key| detail.contains_key(*key));
                self.reasoning_details
                    .extend(details.into_iter().filter(|detail| !has_words(detail)));
            }
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    let mut block = Members::object(out);
    block.text(out, "type", "text");
    block.text(out, "text", text);
    block.end(out);
}

/// The detail with its text, taken from the beginning of `left`, instead of its length.
fn with_words(mut detail: Detail, left: &mut &str) -> Option<Detail> {
    for key in DETAIL_WORDS {
        let Some(length) = detail.get_mut(key).filter(|value| value.is_u64()) else { continue };
        let bytes = usize::try_from(length.as_u64()?).ok()?;
        let (words, rest) = left.split_at_checked(bytes)?;
        *length = Value::from(words);
        *left = rest;
    }
    Some(detail)
}
