//! Headers that every response has.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use crate::gateway::wire::head::{self, AnswerHeaders, NO_SNIFFING, X_REQUEST_ID, millis_up, text};
use crate::ledger::RequestId;
use crate::limits::{LimitStatus, RateLimitStatus};

/// Header with the name of the fallback model that served the request.
const SERVED_BY: HeaderName = HeaderName::from_static("x-tollgate-model");
/// The header that names the output limit, in tokens for each choice, to which a request was lowered.
const MAX_TOKENS: HeaderName = HeaderName::from_static("x-tollgate-max-tokens");
/// Headers of a rate limit: the limit, the remainder, and the time until it is full again.
const LIMITS_OF_REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const LIMITS_OF_TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// The data in the headers of every response: request id, rate limits, the fallback that served it, and the
/// output limit to which it was lowered.
#[derive(Clone)]
pub(crate) struct GatewayHeaders {
    pub(crate) id: RequestId,
    pub(crate) standing: RateLimitStatus,
    /// Id of the fallback model that served the request.
    pub(crate) fallback: Option<Arc<str>>,
    /// Output limit to which the request was lowered.
    pub(crate) clamped: Option<u64>,
}

impl From<RequestId> for GatewayHeaders {
    fn from(id: RequestId) -> Self {
        Self { id, standing: RateLimitStatus::default(), fallback: None, clamped: None }
    }
}

impl GatewayHeaders {
    /// Adds the headers that every answer of the gateway has.
    pub(crate) fn put(&self, headers: &mut AnswerHeaders) {
        headers.insert(NO_SNIFFING.0, NO_SNIFFING.1);
        headers.insert(X_REQUEST_ID, head::id(self.id));
        self.put_optional(headers);
    }

    /// Adds headers for rate limits, the fallback model and a lowered output limit, where they apply.
    pub(crate) fn put_optional(&self, headers: &mut AnswerHeaders) {
        if let Some(fallback) = &self.fallback
            && let Ok(fallback) = HeaderValue::from_str(fallback)
        {
            headers.insert(SERVED_BY, fallback);
        }
        if let Some(tokens) = self.clamped {
            headers.insert(MAX_TOKENS, tokens.into());
        }
        self.put_limits(headers);
    }

    /// Adds rate-limit headers as in OpenAI's API.
    fn put_limits(&self, headers: &mut AnswerHeaders) {
        let RateLimitStatus { requests, tokens } = self.standing;
        for (gauge, [limit, remaining, reset]) in
            [(requests, LIMITS_OF_REQUESTS), (tokens, LIMITS_OF_TOKENS)]
        {
            if let Some(gauge) = gauge {
                let LimitStatus { limit: value, remaining: left, reset: after } = gauge;
                headers.insert(limit, value.into());
                headers.insert(remaining, left.into());
                headers.insert(reset, text(format!("{}ms", millis_up(after))));
            }
        }
    }
}
