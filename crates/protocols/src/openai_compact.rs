//! `POST /v1/responses/compact` over upstreams that speak OpenAI's protocol: a conversation summed up in
//! items that only its provider reads, which the next request begins with.
//!
//! Fields and usage figures: OpenAI's API reference, "Compact a response".

use super::allowed_keys::AllowedKey;
use super::fields;
use super::limits::ModelLimits;
use super::metering::{JsonMeter, MeterContext};
use super::openai_responses::report;
use super::request_bounds::BillingFacts;
use super::stored;
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::{Traits, Unit, Usage};
use tollgate_types::error::GatewayError;

/// Codec of OpenAI's compaction of conversations.
#[derive(Debug)]
pub struct OpenaiCompact;

impl Codec for OpenaiCompact {
    fn operation(&self) -> Operation {
        Operation::Compact
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/responses/compact"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_allowlist(&request_policy::COMPACT)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let prompt = request_policy::read(body, &request_policy::COMPACT, limits)?;
        // Nothing in the request bounds what the summary may be, but for the model.
        let bounds = RequestBounds::from_prompt(body, &prompt, limits, limits.output_tokens_max)?
            .with_references(stored::references(body))
            .with_billing(BillingFacts {
                traits: Traits { service_tier: fields::service_tier(body), ..Traits::default() },
                input_ways: prompt.input_ways(),
                ..BillingFacts::default()
            });
        Ok(Box::new(CompactCall {
            bounds,
            written_as: prompt.written_as,
            model_limits: Usage {
                input_tokens: limits.input_tokens_max,
                output_tokens: limits.output_tokens_max,
                ..Usage::ZERO
            },
        }))
    }
}

#[derive(Debug)]
struct CompactCall {
    bounds: RequestBounds,
    /// Unit of reported cache writes without lifetimes.
    written_as: Option<Unit>,
    /// The model's limits: a report above them shows that they are out of date.
    model_limits: Usage,
}

impl Call for CompactCall {
    bounds_in_field!();

    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        let frame = MeterContext::new(&self.bounds, self.model_limits);
        let unsplit = self.written_as.unwrap_or(Unit::CacheWriteTokens);
        let report = move |usage: &[u8]| report(usage, unsplit);
        Box::new(JsonMeter::new(frame, Box::new(report)))
    }
}

/// Error for a model whose provider has another protocol: nobody could read its summary.
#[must_use]
pub fn not_translated(model: &str) -> GatewayError {
    let message = format!(
        "`/v1/responses/compact` is not translated: the provider of the model `{model}` has nothing \
         like it. Ask the model for a summary with `/v1/responses` instead."
    );
    GatewayError::invalid("model", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Object;
    use crate::pieces;
    use tollgate_money::price::UsageSource;

    const ANSWER: &str = r#"{"id":"resp_1","object":"response.compaction","created_at":1,"output":[{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"\"usage\":{}"}]},{"type":"compaction","id":"cmp_1","encrypted_content":"x"}],"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":400},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":1020}}"#;

    fn read(fields: &str) -> Result<Box<dyn Call>, GatewayError> {
        let limits = ModelLimits {
            input_tokens_max: 128_000,
            output_tokens_max: 16_384,
            reasoning: true,
            ..ModelLimits::default()
        };
        let body = format!(r#"{{"model":"m"{fields}}}"#);
        let object = Object::parse(body.as_bytes()).expect("JSON");
        OpenaiCompact.read(&Request::Json(object), &limits)
    }

    #[test]
    fn a_summary_is_held_for_as_long_as_the_model_can_write() {
        let whole = |fields: &str| read(fields).expect("valid").max_usage();
        let text = r#","input":"hi","prompt_cache_key":"k""#;
        let held = whole(text);
        let length = format!(r#"{{"model":"m"{text}}}"#).len() as u64;
        assert_eq!((held.input_tokens, held.output_tokens), (length, 16_384));
        for fields in [
            r#","previous_response_id":"resp_1""#,
            r#","input":[{"type":"compaction","encrypted_content":"x"}]"#,
        ] {
            assert_eq!(whole(fields).input_tokens, 128_000, "{fields}");
        }
        let call = read(r#","previous_response_id":"resp_1""#).expect("valid");
        assert_eq!(call.refers_to().len(), 1, "it goes where that was made");
        assert!(!call.streams() && !call.is_stored());
    }

    #[test]
    fn it_costs_what_it_reports() {
        let expected =
            Usage { input_tokens: 600, cache_read_tokens: 400, output_tokens: 20, ..Usage::ZERO };
        for size in [1, 7, ANSWER.len()] {
            let meter = read(r#","input":"hi""#).expect("valid").meter(Framing::Json);
            let (relayed, meter) = pieces::relay(meter, ANSWER, size);
            assert_eq!(relayed, ANSWER);
            assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "in pieces of {size}");
        }
    }

    #[test]
    fn what_it_does_not_have_is_refused_by_name() {
        for (fields, param) in [
            (r#","stream":true"#, "stream"),
            (r#","max_output_tokens":7"#, "max_output_tokens"),
            (r#","service_tier":"priority""#, "service_tier"),
            (r#","tools":[{"type":"web_search"}]"#, "tools"),
            (r#","Input":"hi""#, "Input"),
        ] {
            let error = read(fields).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param), "{fields}");
        }
    }
}
