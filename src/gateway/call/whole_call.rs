//! Calls to upstreams whose responses the gateway reads completely: their results, and what a client may read
//! of a failure.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::error::{GatewayError, UpstreamErrorBody};
use crate::gateway::call::try_result::FallbackAnswer;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::refusal::own_words;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::secrets::{UpstreamSecrets, contains_secret, hides};
use crate::outbound::OutboundError;
use crate::protocols::refusal::UpstreamRefusal;
use crate::protocols::{Delivery, UpstreamFault, json};

/// The answer of an upstream to a call that the gateway makes itself.
pub(crate) enum WholeAnswer<T> {
    /// The result of the call.
    Done(T),
    /// The upstream's status and own words about the customer's request.
    Words(u16, Bytes),
}

/// A call of the gateway without a usable answer.
pub(crate) struct FailedCall {
    pub(crate) failure: CallFailure,
    /// The refusal as the upstream wrote it, if there is one.
    pub(crate) refusal: Option<UpstreamRefusal>,
    answer: FailureAnswer,
}

/// The answer for the client if no other target is tried.
enum FailureAnswer {
    /// The upstream's status and own words.
    Words(u16, Bytes),
    /// The gateway's own error.
    Error(GatewayError),
}

impl FailedCall {
    /// A failure of which the customer reads this error.
    pub(crate) fn new(failure: CallFailure, error: GatewayError) -> Self {
        Self { failure, refusal: None, answer: FailureAnswer::Error(error) }
    }

    /// A failure whose error text comes from the table of failures.
    pub(crate) fn by_table(failure: CallFailure, delivery: Delivery) -> Self {
        Self::new(failure, failure.error(delivery))
    }

    /// A missing or incomplete answer.
    pub(crate) fn unanswered(
        failure: CallFailure,
        delivery: Delivery,
        error: &OutboundError,
    ) -> Self {
        Self::new(failure, failure.error(delivery).cause(error))
    }

    /// The upstream's own words about the customer's request.
    pub(crate) fn words(status: u16, words: Bytes) -> Self {
        let answer = FailureAnswer::Words(status, words);
        Self { failure: CallFailure::RefusedRequest(status), refusal: None, answer }
    }

    /// A failure with the error that the protocol has read in the answer.
    pub(crate) fn read(failure: CallFailure, delivery: Delivery, fault: UpstreamFault) -> Self {
        match (failure, fault) {
            (_, UpstreamFault::Relayed(status, words)) => Self::words(status, words),
            (_, UpstreamFault::Customers(error)) => Self::new(failure, error),
            (CallFailure::Unreadable, UpstreamFault::Upstreams(cause)) => {
                Self::new(failure, upstream_error::unreadable(cause))
            }
            // The status says how it went, and the words are about the rest.
            (CallFailure::Doubtful(_), UpstreamFault::Upstreams(_)) | (_, UpstreamFault::Busy) => {
                Self::by_table(failure, delivery)
            }
            (_, UpstreamFault::Upstreams(cause)) => {
                Self::new(failure, upstream_error::at_fault(cause))
            }
        }
    }

    /// Replaces the gateway's error by the upstream's, if the failure is the upstream's. Its text is included
    /// only if it reveals nothing about the operator.
    pub(crate) fn in_its_words(
        self,
        error: GatewayError,
        headers: &HeaderMap,
        hidden: UpstreamSecrets<'_>,
    ) -> Self {
        if matches!(self.failure, CallFailure::RefusedRequest(_)) {
            return self;
        }
        let is_secret = |error: &UpstreamErrorBody| hides(&error.body, headers, Some(hidden));
        let upstream_error = error.upstream_error.clone().filter(|error| !is_secret(error));
        let error = GatewayError { upstream_error, ..error };
        match self.failure {
            CallFailure::Busy { delay: Some(delay), .. } => {
                Self::new(self.failure, error.retry_after(delay)).with_refusal(self.refusal)
            }
            failure => Self::new(failure, error).with_refusal(self.refusal),
        }
    }

    /// Adds the upstream's error body, for the log.
    pub(crate) fn with_refusal(self, refusal: Option<UpstreamRefusal>) -> Self {
        Self { refusal, ..self }
    }

    /// Removes secrets: an answer with these `headers` that contains one, or is unreadable, is replaced by an
    /// error.
    pub(crate) fn without_secrets(self, headers: &HeaderMap, hidden: UpstreamSecrets<'_>) -> Self {
        let is_refused = matches!(self.failure, CallFailure::RefusedRequest(_));
        let status = match &self.answer {
            FailureAnswer::Words(status, words) => {
                hides(words, headers, Some(hidden)).then_some(*status)
            }
            FailureAnswer::Error(error) => {
                (is_refused && contains_secret(error.message.as_bytes(), hidden)).then_some(400)
            }
        };
        match status {
            Some(status) => Self::new(self.failure, own_words(status)).with_refusal(self.refusal),
            None => self,
        }
    }

    /// The error that the log and the customer read; `None` for an upstream's own words.
    pub(crate) fn error(&self) -> Option<&GatewayError> {
        match &self.answer {
            FailureAnswer::Words(..) => None,
            FailureAnswer::Error(error) => Some(error),
        }
    }

    /// The answer for the client if no other target is tried.
    pub(crate) fn otherwise<T>(self) -> FallbackAnswer<WholeAnswer<T>> {
        match self.answer {
            FailureAnswer::Words(status, words) => {
                FallbackAnswer::Answer(WholeAnswer::Words(status, words))
            }
            FailureAnswer::Error(error) => FallbackAnswer::Error(error),
        }
    }
}

/// True if a body is an error in the format of any protocol.
pub(crate) fn is_error(answer: &Bytes) -> bool {
    json::from_upstream::<Value>(answer)
        .is_some_and(|answer| !answer["code"].is_null() || !answer["error"].is_null())
}
