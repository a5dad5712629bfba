//! Clamping: reading a request again with a lower output limit, where its headers allow that.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use crate::config::snapshot::{Route, Snapshot};
use crate::error::GatewayError;
use crate::gateway::request::content_path::PathParams;
use crate::ledger::Key;
use crate::pipeline::{self, ValidatedRequest};
use crate::protocols::Request;
use crate::protocols::json::Object;
use crate::protocols::limits::ModelLimits;
use crate::protocols::output_limit::OutputLimit;

/// Header with which a client forbids lowering its output limit.
const CLAMP: &str = "x-tollgate-clamp";

/// True if the request with these headers may be clamped: unless it has `x-tollgate-clamp: never`.
///
/// # Errors
/// A 400 that names the header, for any other value.
pub(crate) fn may_be_clamped(headers: &HeaderMap) -> Result<bool, GatewayError> {
    let mut values = headers.get_all(CLAMP).iter().peekable();
    if values.peek().is_none() {
        return Ok(true);
    }
    if values.all(|value| value.as_bytes().eq_ignore_ascii_case(b"never")) {
        return Ok(false);
    }
    Err(GatewayError::invalid(CLAMP, "`x-tollgate-clamp` must be `never`, or left out"))
}

/// The inputs by which a request body was read, to read it again.
pub(crate) struct Rereading {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) key: Arc<Key>,
    pub(crate) route: Arc<Route>,
    pub(crate) path_params: Option<Arc<PathParams>>,
}

impl Rereading {
    /// The request in these bytes; `None` for a form, and for what is no longer valid.
    fn request<'a>(&'a self, body: &'a [u8]) -> Option<Request<'a>> {
        if self.route.operation.takes_form() {
            return None;
        }
        let object = Object::parse_within(body, self.route.json_values_max).ok()?;
        Some(match &self.path_params {
            Some(params) => Request::JsonAt(object, params.named()),
            None => Request::Json(object),
        })
    }

    /// Output limit of the request, if it may be lowered to `floor`.
    pub(crate) fn limit(
        &self,
        body: &Bytes,
        limits: &ModelLimits,
        floor: u64,
    ) -> Option<OutputLimit> {
        let limit = OutputLimit::read(self.route.operation, &self.request(body)?, limits)?;
        limit.lowered(floor).is_some().then_some(limit)
    }

    /// The body with the limit lowered, and the request that it is then. Native and translated targets
    /// follow from it alike.
    pub(crate) fn lowered(
        &self,
        body: &Bytes,
        limit: &OutputLimit,
        tokens: u64,
    ) -> Option<(Bytes, ValidatedRequest)> {
        let body = limit.lowered(tokens)?.apply(body);
        let request = self.request(&body)?;
        let key = Arc::clone(&self.key);
        let resolved =
            pipeline::resolve(&self.snapshot, key, self.route.operation, &request).ok()?;
        let validated = pipeline::validate(resolved, &request).ok()?;
        drop(request);
        Some((body, validated))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_request_may_be_clamped_unless_its_header_says_never() {
        let headers = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CLAMP, HeaderValue::from_static(value));
            }
            headers
        };
        let may_be = |values: &[&'static str]| {
            may_be_clamped(&headers(values)).map_err(|error| error.param.expect("a name"))
        };
        assert_eq!(may_be(&[]), Ok(true));
        assert_eq!(may_be(&["never"]), Ok(false));
        assert_eq!(may_be(&["Never", "never"]), Ok(false));
        for wrong in [&["always"][..], &[""], &["never", "always"], &["never, never"]] {
            assert_eq!(may_be(wrong), Err("x-tollgate-clamp".into()), "{wrong:?}");
        }
    }
}
