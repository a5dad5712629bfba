//! `…:countTokens`: nothing is generated, and nothing is billed.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::{DIALECTS, check_lists, check_spelling, named, path_of};
use crate::codec::bounds_in_field;
use crate::fields::no_object;
use crate::json::Object;
use crate::limits::ModelLimits;
use crate::metering::{JsonMeter, MeterContext};
use crate::prompt_count::{MediaCount, prompt_tokens};
use crate::splice::{Splice, json_string};
use crate::{
    Call, Codec, Dialect, Framing, Meter, Operation, PathVariables, Request, RequestBounds,
    request_policy,
};
use tollgate_money::price::Usage;
use tollgate_types::error::GatewayError;

/// Codec of Google's `countTokens`.
#[derive(Debug)]
pub struct GeminiCountTokens;

impl Codec for GeminiCountTokens {
    fn operation(&self) -> Operation {
        Operation::CountContentTokens
    }

    fn dialects(&self) -> &'static [Dialect] {
        DIALECTS
    }

    fn path(&self) -> &'static str {
        "/models/{model}:countTokens"
    }

    fn path_to(&self, request: &PathVariables<'_>) -> Option<Cow<'static, str>> {
        path_of(request.model, "countTokens")
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        check_spelling(body)?;
        let inner_model = check_counted(body)?;
        let tokens = prompt_tokens(body, MediaCount::Google, limits.pictures);
        let inner = WRAPPERS.into_iter().find_map(|key| body.get_non_null(key));
        let inner = inner.as_ref().and_then(|inner| inner.as_object().ok());
        let counted = inner.as_ref().unwrap_or(body);
        let bounds = RequestBounds::from_body(body, Usage::ZERO, Usage::ZERO)
            .with_references(request_policy::references(counted, &request_policy::GEMINI));
        Ok(Box::new(CountCall {
            bounds: bounds.with_model_in_path(named(request)?),
            tokens,
            inner_model,
        }))
    }
}

/// Fields that hold a whole `generateContent` request instead of its fields.
const WRAPPERS: [&str; 2] = ["generateContentRequest", "generate_content_request"];

/// Checks that there is something to count: `contents`, or a whole `generateContent` request. Returns the
/// position of the model in such a request, which Google requires to equal the path's.
pub(crate) fn check_counted(body: &Object<'_>) -> Result<Option<Range<usize>>, GatewayError> {
    const FIELD: &str = WRAPPERS[0];
    let Some(inner) = WRAPPERS.into_iter().find_map(|key| body.get_non_null(key)) else {
        return check_lists(body).map(|()| None);
    };
    let request = inner.as_object();
    let request =
        request.map_err(|error| GatewayError::invalid(FIELD, no_object(FIELD, &inner, &error)))?;
    check_lists(&request)?;
    let offset = inner.range.start;
    let place = |range: Range<usize>| offset + range.start..offset + range.end;
    Ok(request.get("model").map(|model| place(model.range)))
}

#[derive(Debug)]
struct CountCall {
    bounds: RequestBounds,
    /// The tokens of the prompt, by an estimate.
    tokens: u64,
    /// Position of the model's name in the body.
    inner_model: Option<Range<usize>>,
}

impl Call for CountCall {
    bounds_in_field!();

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = Splice::default();
        if let Some(place) = &self.inner_model {
            splice.replace(place.clone(), json_string(&format!("models/{upstream_model}")));
        }
        splice
    }

    fn local_answer(&self) -> Option<Bytes> {
        Some(format!(r#"{{"totalTokens":{}}}"#, self.tokens).into())
    }

    fn meter(&self, _: Framing) -> Box<dyn Meter> {
        Box::new(JsonMeter::new(MeterContext::default(), Box::new(|_| None)))
    }
}
