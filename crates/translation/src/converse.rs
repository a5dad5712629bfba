//! Amazon Bedrock's Converse API, which only upstreams speak: `POST /model/{modelId}/converse` and
//! `/converse-stream`.
//!
//! Its models are of many makers. Anthropic's are told in Anthropic's own words what the API has none
//! for; the others are known by [`ThinkingStyle::None`](crate::dialect::ThinkingStyle::None).
//!
//! A stream has no text of its own: whoever takes its binary frames apart hands on each message as
//! [`Converse::stream_event`] writes it. Shapes: Amazon Bedrock API Reference, "Converse" and "ConverseStream".

mod answer;
mod content;
mod stream;
mod write;

use crate::dialect::{
    Losses, MalformedAnswer, ReadStream, TranslationTarget, Untranslatable, UpstreamDialect,
};
use crate::names::Naming;
use crate::part::{AnswerPart, PromptPart, UpstreamFailure};

/// The dialect of Amazon Bedrock's Converse API.
#[derive(Debug)]
pub struct Converse;

impl Converse {
    /// Writes one message of a stream behind `out`, as [`UpstreamDialect::stream_reader`] takes it: its
    /// kind (`event`, `exception` or `error`, as the header `:message-type` has it), its name, and its
    /// payload, which is JSON. An empty payload is none.
    pub fn stream_event(kind: &str, name: &str, payload: &[u8], out: &mut Vec<u8>) {
        stream::write_event(kind, name, payload, out);
    }
}

impl UpstreamDialect for Converse {
    fn naming(&self, _: &TranslationTarget) -> Naming {
        Naming::CONVERSE
    }

    fn write_request(
        &self,
        parts: &[PromptPart<'_>],
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<Vec<u8>, Untranslatable> {
        write::request(&self.naming(target).applied(parts), target, losses)
    }

    fn read_answer<'a>(&self, body: &'a [u8]) -> Result<Vec<AnswerPart<'a>>, MalformedAnswer> {
        answer::read(body)
    }

    fn stream_reader(&self) -> Box<dyn ReadStream> {
        Box::new(stream::ConverseReader::default())
    }

    fn read_failure(&self, status: u16, body: &[u8]) -> UpstreamFailure {
        answer::failure(status, None, body)
    }

    fn read_failure_by_name(&self, status: u16, name: &str, body: &[u8]) -> UpstreamFailure {
        answer::failure(status, Some(name), body)
    }
}
