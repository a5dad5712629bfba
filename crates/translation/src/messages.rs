//! Anthropic's Messages API.
//!
//! Thoughts are `thinking` blocks whose `signature` holds the seal, and those that only their maker can
//! read are `redacted_thinking` blocks.

mod answer;
mod fields;
mod read;
mod read_tools;
mod read_turns;
mod stream;
mod write;

use crate::dialect::{
    AnswerFrame, Dialect, Losses, Malformed, ReadStream, TranslatableRequest, TranslationTarget,
    Untranslatable, UpstreamDialect, WriteStream,
};
use crate::kit;
use crate::names::Naming;
use crate::part::{AnswerPart, PromptPart, UpstreamFailure};

/// The dialect of Anthropic's Messages API.
#[derive(Debug)]
pub struct Messages;

impl UpstreamDialect for Messages {
    fn naming(&self, _: &TranslationTarget) -> Naming {
        Naming::MESSAGES
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
        Box::new(stream::MessageReader::default())
    }

    fn read_failure(&self, status: u16, body: &[u8]) -> UpstreamFailure {
        kit::failure(status, body)
    }
}

impl Dialect for Messages {
    fn read_request<'a>(&self, body: &'a [u8]) -> Result<TranslatableRequest<'a>, Untranslatable> {
        read::request(body)
    }

    fn write_answer(&self, answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8> {
        answer::write(answer, frame)
    }

    fn stream_writer(&self, frame: &AnswerFrame) -> Box<dyn WriteStream> {
        Box::new(stream::MessageWriter::new(frame))
    }
}
