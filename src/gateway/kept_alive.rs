//! Streams that are kept alive while an upstream thinks: comments go to the customer, so that nothing
//! in between takes the silence for an end.
//!
//! Pingora writes only what an upstream sends. So with `limits.sse_keepalive` the gateway makes the
//! calls for streams itself: with the same choice of targets, the same hold before the first byte, and
//! the same meter. The customer's head goes out with the first comment, when no upstream has answered
//! yet; a refusal that comes later is an error event.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::Session;
use pingora::{Error, ErrorType, Result, RetryType};
use tokio::time::Instant;

use super::body;
use super::exchange::{Attempt, Exchange, Stage};
use super::proxy::Gateway;
use super::{cors, headers, peer, relay, respond};
use crate::balance::Outcome;
use crate::error::{ErrorKind, GatewayError};
use crate::outbound::{Answer, OutboundError};
use crate::pipeline;

/// A comment is a line that begins with a colon; readers skip it (HTML standard, 9.2.5). Behind a
/// whole event it has an empty line of its own, for readers that look for those.
const COMMENT: &[u8] = b": keep-alive\n\n";
const COMMENT_IN_AN_EVENT: &[u8] = b": keep-alive\n";
/// The largest refusal of an upstream that is passed on in an event.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// How far the customer's stream is.
struct Stream {
    interval: Duration,
    head: RequestHeader,
    /// The head has been sent.
    begun: bool,
    written: Instant,
    /// What the customer has ends with these two bytes.
    last: [u8; 2],
}

/// Answers a paid request for a stream.
pub(super) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    interval: Duration,
) -> Result<()> {
    let head = session.req_header().clone();
    let (begun, written, last) = (false, Instant::now(), *b"\n\n");
    let mut stream = Stream { interval, head, begun, written, last };
    let mut answer = stream.ask(gateway, session, exchange).await?;
    stream.relay_head(session, exchange, &mut answer).await?;
    loop {
        let piece = stream.wait(session, exchange, answer.chunk()).await?;
        let (chunk, is_end) = match piece {
            Ok(Some(chunk)) => (chunk, false),
            Ok(None) => (Bytes::new(), true),
            Err(error) => return Err(broken(&error)),
        };
        let mut out = Some(chunk);
        relay::piece(session, &mut out, is_end, exchange)?;
        let out = out.unwrap_or_default();
        if out.is_empty() && !is_end {
            continue;
        }
        stream.passed(&out);
        session.write_response_body(Some(out), is_end).await?;
        if is_end {
            return Ok(());
        }
    }
}

impl Stream {
    /// Asks one target after the other, until one answers.
    async fn ask(
        &mut self,
        gateway: &Gateway,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Answer> {
        loop {
            let (upstream, sent) = match next_call(gateway, &self.head, exchange)? {
                Some(call) => call,
                None => continue,
            };
            let asked = self.wait(session, exchange, sent).await?;
            match asked {
                Ok(answer) => match relay::accept(&head_of(&answer)?, exchange) {
                    Ok(()) => return Ok(answer),
                    // A target is left, and the try is paid for.
                    Err(error) if matches!(error.retry, RetryType::Decided(true)) => {}
                    Err(error) => return Err(error),
                },
                Err(error) => {
                    let Stage::Sending(sending) = &mut exchange.stage else { return Err(gone()) };
                    sending.report(outcome(&error), &exchange.metrics);
                    let failure = failure(&error);
                    if !matches!(error, OutboundError::Unreachable(_)) {
                        // The upstream may be at work: another one would cost twice.
                        return Err(exchange.fail(failure));
                    }
                    log::debug!("{upstream} cannot be reached: {error}");
                    sending.last_failure = Some(failure);
                }
            }
        }
    }

    /// Waits for the upstream, and keeps the customer's stream alive meanwhile.
    async fn wait<T>(
        &mut self,
        session: &mut Session,
        exchange: &Exchange,
        upstream: impl Future<Output = T>,
    ) -> Result<T> {
        tokio::pin!(upstream);
        loop {
            tokio::select! {
                biased;
                done = &mut upstream => return Ok(done),
                left = session.as_downstream_mut().read_body_or_idle(true) => {
                    left?;
                    return Err(gone());
                }
                () = tokio::time::sleep_until(self.written + self.interval) => {
                    self.comment(session, exchange).await?;
                }
            }
        }
    }

    async fn comment(&mut self, session: &mut Session, exchange: &Exchange) -> Result<()> {
        if !self.begun {
            // What costs money does not begin before its hold is on disk.
            if let Stage::Sending(sending) = &exchange.stage {
                let durable = sending.admitted.payment.durable().await;
                durable.map_err(|error| {
                    Error::because(ErrorType::InternalError, "the hold is not on disk", error)
                })?;
            }
            respond::begin_events(session, exchange.stamp(), exchange.envelope).await?;
            self.begun = true;
        }
        self.written = Instant::now();
        let comment = match self.last {
            [b'\n', b'\n'] => COMMENT,
            [_, b'\n'] => COMMENT_IN_AN_EVENT,
            // In the middle of a line, which the upstream has to end.
            _ => return Ok(()),
        };
        session.write_response_body(Some(Bytes::from_static(comment)), false).await
    }

    /// Sends the upstream's head as the customer's, if there is none yet.
    async fn relay_head(
        &mut self,
        session: &mut Session,
        exchange: &mut Exchange,
        answer: &mut Answer,
    ) -> Result<()> {
        let mut header = head_of(answer)?;
        let is_stream = header.status.is_success()
            && header
                .headers
                .get(CONTENT_TYPE)
                .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        if self.begun && !is_stream {
            return Err(refusal(exchange, answer).await);
        }
        relay::begin(&mut header, exchange).await?;
        if self.begun {
            return Ok(());
        }
        cors::allow(&mut header, session.req_header())?;
        self.begun = true;
        self.written = Instant::now();
        session.write_response_header(Box::new(header), false).await
    }

    fn passed(&mut self, out: &Bytes) {
        if out.is_empty() {
            return;
        }
        self.written = Instant::now();
        for byte in out.iter().skip(out.len().saturating_sub(2)) {
            self.last = [self.last[1], *byte];
        }
    }
}

/// The customer's head has gone out, and the upstream refuses: its words become an event.
async fn refusal(exchange: &mut Exchange, answer: &mut Answer) -> Box<Error> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > REFUSAL_BYTES_MAX {
            break;
        }
    }
    let message = serde_json::from_slice::<serde_json::Value>(&body)
        .ok()
        .and_then(|body| Some(body["error"]["message"].as_str()?.to_owned()))
        .unwrap_or_else(|| format!("The upstream refused the request ({}).", answer.status()));
    exchange.failure = Some(GatewayError::new(ErrorKind::InvalidRequest, message));
    Error::new_up(ErrorType::HTTPStatus(answer.status()))
}

type Sent<'a> = futures_util::future::BoxFuture<'a, std::result::Result<Answer, OutboundError>>;

/// The call to the next target; `None` for a target that cannot be called this way.
fn next_call<'a>(
    gateway: &'a Gateway,
    customers: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<Option<(String, Sent<'a>)>> {
    let budget = exchange.snapshot.limits.body_memory_bytes_max;
    let id = exchange.id;
    let Stage::Sending(sending) = &mut exchange.stage else { return Err(gone()) };
    let Some(candidate) = sending.next(&exchange.metrics) else {
        let failure = sending.give_up();
        return Err(exchange.fail(failure));
    };
    let (query, body) = (customers.uri.query(), &sending.body.bytes);
    let Some(request) = pipeline::rewrite(&sending.admitted, &candidate, query, body) else {
        return Ok(None);
    };
    if !sending.body.share_with(&request.body, budget) {
        return Err(exchange.fail(body::budget_used_up()));
    }
    let mut head = customers.clone();
    headers::to_upstream(&mut head, &request, id)?;
    let upstream = candidate.target.upstream.clone();
    let (path, body, name) = (request.path.clone(), request.body.clone(), upstream.name.clone());
    let attempt = Attempt::begin(candidate, request);
    sending.attempt = Some(Attempt { body_emitted: true, ..attempt });
    let outbound = &gateway.outbound;
    let sent = async move { outbound.post(&upstream, &path, head.headers.clone(), body).await };
    Ok(Some((name, Box::pin(sent))))
}

/// The upstream's head as Pingora would have read it.
fn head_of(answer: &Answer) -> Result<ResponseHeader> {
    let mut header = ResponseHeader::build(answer.status(), Some(answer.headers().len()))?;
    for (name, value) in answer.headers() {
        header.append_header(name.clone(), value.clone())?;
    }
    header.remove_header(&CACHE_CONTROL);
    Ok(header)
}

fn outcome(error: &OutboundError) -> Outcome {
    match error {
        OutboundError::Unreachable(_) => Outcome::Unreachable,
        OutboundError::TimedOut => Outcome::TimedOut,
        OutboundError::Broken(_) | OutboundError::Forbidden(_) | OutboundError::TooLarge => {
            Outcome::Broken
        }
    }
}

fn failure(error: &OutboundError) -> GatewayError {
    match error {
        OutboundError::TimedOut => peer::timed_out().cause(error),
        error => peer::at_fault(error),
    }
}

/// The upstream breaks off in the middle of an answer.
fn broken(error: &OutboundError) -> Box<Error> {
    let kind = match error {
        OutboundError::TimedOut => ErrorType::ReadTimedout,
        _ => ErrorType::ReadError,
    };
    let mut broken = Error::new_up(kind);
    broken.set_context(error.to_string());
    broken
}

/// The customer is gone.
fn gone() -> Box<Error> {
    Error::new_down(ErrorType::ConnectionClosed)
}
