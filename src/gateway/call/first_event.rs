//! Reading the beginning of a response body before its head is sent to the client: as long as it is an error,
//! nothing has been delivered, and another target can answer.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use pingora::Result;
use tokio::time::{Instant, timeout_at};

use crate::error::{GatewayError, UpstreamErrorBody};
use crate::gateway::answer::customer::Customer;
use crate::gateway::answer::refused;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::progress::Missing;
use crate::gateway::request::refusal::{customers_error, judge, judge_success};
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::client::UpstreamCall;
use crate::gateway::upstream::secrets::{UpstreamSecrets, hides};
use crate::protocols::refusal::{self, AnswerStart, RefusalFault, UpstreamRefusal};
use crate::protocols::{Delivery, Framing};

/// Longest delay of a head that only comments and white space follow: longer than providers take to notice
/// that they are full, and shorter than proxies let a connection be silent.
const BLANK_MAX: Duration = Duration::from_secs(15);
/// Longest delay of the events before any output, such as the role of the author. They are of no use to a
/// client alone.
const PREAMBLE_MAX: Duration = Duration::from_secs(1);
/// Longest delay of comments from an upstream of another protocol. After it the client gets comments of the
/// gateway's, and another target can still answer.
const LIFE_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the body of a refusal: its status is there, and another target may be free.
const WORDS_MAX: Duration = Duration::from_secs(3);

/// The error that a response with a status of success reports in its first event; `None` for a regular
/// answer, and if none arrives in time. The bytes that were read are returned by the call again.
///
/// # Errors
/// The customer has left, and nobody needs to know what the upstream says.
pub(crate) async fn error(
    customer: &mut Customer<'_>,
    call: &mut UpstreamCall,
) -> Result<Option<Vec<u8>>> {
    let framing = customer.ctx.attempt().and_then(|attempt| attempt.framing);
    let streams = customer.ctx.stream;
    let read = |body: &[u8], is_all: bool| match framing {
        Some(Framing::EventStream) => refusal::frames_beginning(body),
        // Who did not ask for events gets blank lines as they come.
        Some(Framing::Json) if !streams => match refusal::beginning(body, is_all) {
            AnswerStart::Blank => AnswerStart::Answer,
            shown => shown,
        },
        Some(Framing::Json | Framing::Sse) => refusal::beginning(body, is_all),
        Some(Framing::Binary) | None => AnswerStart::Answer,
    };
    if matches!(framing, Some(Framing::Binary) | None) {
        return Ok(None);
    }
    let is_document = framing == Some(Framing::Json) && !streams;
    let began = Instant::now();
    let mut seen = AnswerStart::Blank;
    // Only translated streams: what is relayed byte for byte has its own comments soon enough.
    let mut shows_life = streams && customer.ctx.is_translated();
    loop {
        let limit = if seen == AnswerStart::Blank { BLANK_MAX } else { PREAMBLE_MAX };
        let mut last = (false, AnswerStart::Blank);
        let is_news = |body: &[u8], is_all: bool| {
            let shown = read(body, is_all);
            let is_news = shown != seen || shows_life && shown == AnswerStart::Blank;
            last = (is_all, shown);
            is_news
        };
        let looking = timeout_at(began + limit, call.look(is_document, is_news));
        let looked = customer.wait(pin!(looking)).await?;
        let begun = match looked {
            Ok(Ok(begun)) => begun,
            Ok(Err(error)) => {
                // Whoever passes the answer on says so.
                call.fail_next(error);
                return Ok(None);
            }
            Err(_) => return Ok(None),
        };
        // Most are decided by the piece that was looked at last.
        let shown = match last {
            (is_all, shown) if is_all == call.has_shown_all() => shown,
            _ => read(&begun, call.has_shown_all()),
        };
        match shown {
            AnswerStart::Error(error) => return Ok(Some(error)),
            AnswerStart::Preamble if seen == AnswerStart::Blank => seen = AnswerStart::Preamble,
            AnswerStart::Blank if std::mem::take(&mut shows_life) && !call.has_shown_all() => {
                customer.comment_by(began + LIFE_MAX);
            }
            // An answer; or as much as is looked at, and all that there is.
            _ => return Ok(None),
        }
    }
}

/// Reads the body of a refusal, within its limits of time and size.
///
/// # Errors
/// The customer has left, and nobody needs to know what the upstream says.
pub(crate) async fn words(customer: &mut Customer<'_>, call: &mut UpstreamCall) -> Result<Bytes> {
    let looking = timeout_at(Instant::now() + WORDS_MAX, call.look(true, |_, is_all| is_all));
    let looked = customer.wait(pin!(looking)).await?;
    Ok(match looked {
        Ok(Ok(words)) => words,
        Ok(Err(error)) => {
            call.fail_next(error);
            Bytes::new()
        }
        Err(_) => Bytes::new(),
    })
}

/// The error for clients of Anthropic's API about a failure of the upstream's own: its body, with the status
/// that belongs to it, as refusals are relayed ([`upstream_error::relays_failure`]).
fn in_anthropics_words(
    read: GatewayError,
    refusal: &UpstreamRefusal,
    error: &[u8],
    hidden: UpstreamSecrets<'_>,
) -> GatewayError {
    let status = match refusal.code.as_str() {
        "overloaded_error" => 529,
        "rate_limit_error" => 429,
        "api_error" => 500,
        _ => return read,
    };
    let is_relayed = upstream_error::relays_failure(hidden.upstream.dialect, status);
    if !is_relayed || hides(error, &HeaderMap::new(), Some(hidden)) {
        return read;
    }
    read.with_upstream_error(UpstreamErrorBody { status, body: Bytes::copy_from_slice(error) })
}

impl RequestContext {
    /// Classifies a refusal by its body, which is kept for the log.
    pub(crate) fn read_refusal(
        &mut self,
        by_status: CallFailure,
        status: u16,
        headers: &HeaderMap,
        words: &[u8],
    ) -> CallFailure {
        let delivery = self.delivery();
        let RequestStage::Sending(sending) = &mut self.stage else { return by_status };
        let Some(attempt) = &sending.attempt else { return by_status };
        let dialect = attempt.candidate.target.upstream.dialect;
        let refusal = refusal::read(dialect, status, refused::name_in(headers), words);
        if refusal.fault == Some(RefusalFault::Model) && sending.is_name_chosen() {
            return CallFailure::NotOffered(Missing::Model);
        }
        let failure = judge(by_status, &refusal, status, headers, delivery);
        sending.refusal = Some(refusal);
        failure
    }

    /// Classifies an error in the place of an answer; and the error for the client, if no other target is
    /// tried.
    pub(crate) fn read_error_in_answer(
        &mut self,
        error: &[u8],
        headers: &HeaderMap,
    ) -> (CallFailure, GatewayError) {
        let failed = CallFailure::FailedWithSuccess;
        let RequestStage::Sending(sending) = &mut self.stage else {
            return (failed, upstream_error::unavailable());
        };
        let Some(attempt) = &sending.attempt else {
            return (failed, upstream_error::unavailable());
        };
        let hidden = UpstreamSecrets::at(&attempt.candidate);
        let refusal = refusal::read(hidden.upstream.dialect, 200, None, error);
        let failure = match judge_success(&refusal, headers) {
            _ if refusal.fault == Some(RefusalFault::Model) && sending.is_name_chosen() => {
                CallFailure::NotOffered(Missing::Model)
            }
            failure => failure,
        };
        let read = match failure {
            CallFailure::RefusedRequest(status) => {
                let call = sending.admitted.call.as_ref();
                let translated = call.refusal(status, None, error);
                let own = customers_error(&refusal, status, error, translated.is_none(), hidden);
                // What the dialect knows of a code is finer than the message alone.
                let finer = translated.and_then(|error| error.code).or(own.code);
                GatewayError { code: finer, ..own }
            }
            CallFailure::RefusedCredential | CallFailure::RefusedAccount => {
                failure.error(Delivery::Relay)
            }
            failure => {
                let is_own = sending.admitted.call.refusal(500, None, error).is_none();
                let read = failure.error(Delivery::Relay);
                if is_own { in_anthropics_words(read, &refusal, error, hidden) } else { read }
            }
        };
        sending.refusal = Some(refusal);
        (failure, read)
    }
}
