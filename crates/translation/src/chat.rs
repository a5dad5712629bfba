//! OpenAI's chat completions, and what those who copied them write otherwise.
//!
//! To customers, thoughts travel in `reasoning_content`, as DeepSeek and others have it, and the seals
//! that belong to them in `reasoning_details`, as OpenRouter has it. Upstreams get them back where they
//! have put them.

mod answer;
pub(crate) mod conversation;
mod fields;
mod open_calls;
mod read;
mod read_messages;
mod stream;
mod thoughts;
mod write;

use crate::dialect::{
    AnswerFrame, Dialect, Losses, Malformed, ReadStream, TranslatableRequest, TranslationTarget,
    Untranslatable, UpstreamDialect, WriteStream,
};
use crate::kit;
use crate::names::Naming;
use crate::part::{AnswerPart, PromptPart, UpstreamFailure};

/// `format` of the entries of `reasoning_details` that this gateway writes.
const DETAIL_FORMAT: &str = "tollgate";

/// The dialect of OpenAI's chat completions.
#[derive(Debug)]
pub struct Chat;

impl UpstreamDialect for Chat {
    fn naming(&self, target: &TranslationTarget) -> Naming {
        Naming::chat(target.call_ids)
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
        Box::new(stream::ChatReader::default())
    }

    fn read_failure(&self, status: u16, body: &[u8]) -> UpstreamFailure {
        kit::failure(status, body)
    }
}

impl Dialect for Chat {
    fn read_request<'a>(&self, body: &'a [u8]) -> Result<TranslatableRequest<'a>, Untranslatable> {
        read::request(body)
    }

    fn write_answer(&self, answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8> {
        answer::write(answer, frame)
    }

    fn stream_writer(&self, frame: &AnswerFrame) -> Box<dyn WriteStream> {
        Box::new(stream::ChatWriter::new(frame))
    }
}
