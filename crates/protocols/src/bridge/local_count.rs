//! Counts of tokens that are made here, for upstreams that have nothing like it.

use bytes::Bytes;
use tollgate_money::price::Usage;
use tollgate_types::error::GatewayError;

use crate::codec::bounds_in_field;
use crate::fields::check_messages;
use crate::gemini_content::check_counted;
use crate::limits::ModelLimits;
use crate::openai_input_tokens;
use crate::prompt_count::{MediaCount, prompt_tokens};
use crate::{Call, Codec, Dialect, Operation, Request, RequestBounds};

/// Local token counts, each for upstreams without a counting endpoint.
pub(super) static LOCAL_COUNTS: &[LocalCount] = &[
    count(Operation::CountTokens, MediaCount::Openai, OPENAI),
    count(Operation::CountTokens, MediaCount::Anthropic, &[Dialect::Bedrock]),
    count(Operation::CountTokens, MediaCount::Google, GOOGLE),
    count(Operation::CountContentTokens, MediaCount::Openai, OPENAI),
    count(Operation::CountContentTokens, MediaCount::Anthropic, ANTHROPIC),
    // An upstream of OpenAI's protocol whose model is for chat has no such path.
    count(Operation::InputTokens, MediaCount::Openai, OPENAI),
    count(Operation::InputTokens, MediaCount::Anthropic, ANTHROPIC),
    count(Operation::InputTokens, MediaCount::Google, GOOGLE),
];

const OPENAI: &[Dialect] = &[Dialect::Openai];
const ANTHROPIC: &[Dialect] = &[Dialect::Anthropic, Dialect::Bedrock];
const GOOGLE: &[Dialect] = &[Dialect::Gemini, Dialect::Vertex];

const fn count(
    operation: Operation,
    media: MediaCount,
    dialects: &'static [Dialect],
) -> LocalCount {
    LocalCount { operation, media, dialects }
}

/// The codec of a count for upstreams of other dialects.
#[derive(Debug)]
pub(super) struct LocalCount {
    operation: Operation,
    /// Counting of media by the makers of the models.
    media: MediaCount,
    dialects: &'static [Dialect],
}

impl Codec for LocalCount {
    fn operation(&self) -> Operation {
        self.operation
    }

    fn dialects(&self) -> &'static [Dialect] {
        self.dialects
    }

    fn path(&self) -> &'static str {
        ""
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let tokens = prompt_tokens(body, self.media, limits.pictures);
        let bounds = RequestBounds::from_body(body, Usage::ZERO, Usage::ZERO);
        Ok(Box::new(match (request.model_in_path(), self.operation) {
            (None, Operation::InputTokens) => {
                LocalCountCall { bounds, answer: openai_input_tokens::answer(tokens) }
            }
            (None, _) => {
                check_messages(body)?;
                let answer = format!(r#"{{"input_tokens":{tokens}}}"#).into();
                LocalCountCall { bounds, answer }
            }
            (Some(named), _) => {
                check_counted(body)?;
                let answer = format!(r#"{{"totalTokens":{tokens}}}"#).into();
                LocalCountCall { bounds: bounds.with_model_in_path(named), answer }
            }
        }))
    }
}

/// A count that is made without asking an upstream.
#[derive(Debug)]
struct LocalCountCall {
    bounds: RequestBounds,
    answer: Bytes,
}

impl Call for LocalCountCall {
    bounds_in_field!();

    fn local_answer(&self) -> Option<Bytes> {
        Some(self.answer.clone())
    }

    fn is_local(&self) -> bool {
        true
    }
}
