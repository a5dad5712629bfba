//! OpenAI's Responses API, without what it keeps for its customers: every request brings all of its
//! conversation, and reasoning travels encrypted.
//!
//! Thoughts are `reasoning` items, whose `encrypted_content` holds the seal.

mod answer;
mod item;
mod fields;
mod open_items;
mod read;
mod read_items;
mod read_tools;
mod read_stream;
mod write;
mod write_stream;

use crate::dialect::{
    AnswerFrame, Dialect, Losses, Malformed, ReadStream, TranslatableRequest, TranslationTarget,
    Untranslatable, UpstreamDialect, WriteStream,
};
use crate::kit;
use crate::names::Naming;
use crate::part::{AnswerPart, PromptPart, UpstreamFailure};

/// The dialect of OpenAI's Responses API.
#[derive(Debug)]
pub struct Responses;

impl UpstreamDialect for Responses {
    fn naming(&self, _: &TranslationTarget) -> Naming {
        Naming::RESPONSES
    }

    fn write_request(
        &self,
        parts: &[PromptPart<'_>],
        target: &TranslationTarget,
        losses: &mut Losses,
    ) -> Result<Vec<u8>, Untranslatable> {
        write::request(&self.naming(target).applied(parts), target, losses)
    }

    fn read_answer<'a>(&self, body: &'a [u8]) -> Result<Vec<AnswerPart<'a>>, Malformed> {
        answer::read(body)
    }

    fn stream_reader(&self) -> Box<dyn ReadStream> {
        Box::new(read_stream::ResponseReader::default())
    }

    fn read_failure(&self, status: u16, body: &[u8]) -> UpstreamFailure {
        kit::failure(status, body)
    }
}

impl Dialect for Responses {
    fn read_request<'a>(&self, body: &'a [u8]) -> Result<TranslatableRequest<'a>, Untranslatable> {
        read::request(body)
    }

    fn write_answer(&self, answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8> {
        answer::write(answer, frame)
    }

    fn stream_writer(&self, frame: &AnswerFrame) -> Box<dyn WriteStream> {
        Box::new(write_stream::ResponseWriter::new(frame))
    }
}
