//! Counts of tokens that are made here, for upstreams that have nothing like it.

use bytes::Bytes;
use tollgate_money::error::GatewayError;
use tollgate_money::price::Usage;

use crate::estimate::TextSize;
use crate::gemini_content::check_counted;
use crate::limits::ModelLimits;
use crate::{Call, Codec, Dialect, Operation, Request, Terms, check_messages};

/// The counts that are made here, each for upstreams that have nothing like it.
pub(super) static LOCAL_COUNTS: &[LocalCount] = &[
    LocalCount {
        operation: Operation::CountTokens,
        dialects: &[Dialect::Openai, Dialect::Bedrock, Dialect::Gemini, Dialect::Vertex],
    },
    LocalCount {
        operation: Operation::CountContentTokens,
        dialects: &[Dialect::Openai, Dialect::Anthropic, Dialect::Bedrock],
    },
];

/// The codec of a count for upstreams of other dialects.
#[derive(Debug)]
pub(super) struct LocalCount {
    operation: Operation,
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

    fn read(&self, request: &Request<'_>, _: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let tokens = TextSize::of_strings(body.text()).tokens();
        let terms = Terms::of_whole(body, Usage::ZERO, Usage::ZERO);
        Ok(Box::new(match request.named_in_path() {
            None => {
                check_messages(body)?;
                LocalCountCall { terms, field: "input_tokens", tokens }
            }
            Some(named) => {
                check_counted(body)?;
                LocalCountCall { terms: terms.named_in_path(named), field: "totalTokens", tokens }
            }
        }))
    }
}

/// A count that is made without asking an upstream.
#[derive(Debug)]
struct LocalCountCall {
    terms: Terms,
    /// Where the answer has it.
    field: &'static str,
    tokens: u64,
}

impl Call for LocalCountCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn local_answer(&self) -> Option<Bytes> {
        Some(format!(r#"{{"{}":{}}}"#, self.field, self.tokens).into())
    }

    fn is_local(&self) -> bool {
        true
    }
}
