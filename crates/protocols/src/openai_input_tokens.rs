//! `POST /v1/responses/input_tokens` over upstreams that speak OpenAI's protocol: nothing is generated, and
//! nothing is billed.
//!
//! Fields and answer: OpenAI's API reference, "Get input token counts".

use bytes::Bytes;

use super::fields;
use super::limits::ModelLimits;
use super::metering::{JsonMeter, MeterContext};
use super::prompt_count::{MediaCount, prompt_tokens};
use super::stored;
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::Usage;
use tollgate_types::error::GatewayError;

/// Fields that decide what is counted. A key that differs from one only in case is refused, as some parsers
/// would accept it.
const COUNTED_FIELDS: [&str; 4] = ["model", "input", "instructions", "tools"];

/// The codec of OpenAI's counts of input tokens.
#[derive(Debug)]
pub struct OpenaiInputTokens;

impl Codec for OpenaiInputTokens {
    fn operation(&self) -> Operation {
        Operation::InputTokens
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/responses/input_tokens"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        fields::refuse_case_variants(body, &COUNTED_FIELDS)?;
        Ok(Box::new(InputTokensCall {
            tokens: prompt_tokens(body, MediaCount::Openai, limits.pictures),
            bounds: RequestBounds::from_body(body, Usage::ZERO, Usage::ZERO)
                .with_references(stored::references(body))
                .with_references(request_policy::references(body, &request_policy::RESPONSES)),
        }))
    }
}

#[derive(Debug)]
struct InputTokensCall {
    bounds: RequestBounds,
    /// The tokens of the prompt, by an estimate.
    tokens: u64,
}

impl Call for InputTokensCall {
    bounds_in_field!();

    fn local_answer(&self) -> Option<Bytes> {
        // What the upstream keeps is not here to be counted.
        self.bounds.references.is_empty().then(|| answer(self.tokens))
    }

    fn meter(&self, _: Framing) -> Box<dyn Meter> {
        Box::new(JsonMeter::new(MeterContext::default(), Box::new(|_| None)))
    }
}

/// The answer with this number of tokens.
pub(super) fn answer(tokens: u64) -> Bytes {
    format!(r#"{{"object":"response.input_tokens","input_tokens":{tokens}}}"#).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Object;

    fn read(body: &str) -> Result<Box<dyn Call>, GatewayError> {
        let object = Object::parse(body.as_bytes()).expect("JSON");
        OpenaiInputTokens.read(&Request::Json(object), &ModelLimits::default())
    }

    #[test]
    fn a_count_is_free_and_made_here_where_an_upstream_has_none() {
        let call = read(r#"{"model":"m","instructions":"Be brief.","input":"Hello, world!"}"#);
        let call = call.expect("valid");
        assert_eq!((call.max_usage(), call.min_usage()), (Usage::ZERO, Usage::ZERO));
        let answer = call.local_answer().expect("an estimate");
        let answer = Object::parse(&answer).expect("JSON");
        let word = answer.get("object").and_then(|word| word.as_str());
        assert_eq!(word.as_deref(), Some("response.input_tokens"));
        let tokens = answer.get("input_tokens").and_then(|tokens| tokens.as_u64());
        assert!(tokens.is_some_and(|tokens| (8..60).contains(&tokens)), "{tokens:?}");
        let kept = read(r#"{"model":"m","previous_response_id":"resp_1","input":"hi"}"#);
        let kept = kept.expect("valid");
        assert!(kept.local_answer().is_none() && kept.refers_to().len() == 1);
        assert!(read(r#"{"model":"m","Input":"hi"}"#).is_err());
    }
}
