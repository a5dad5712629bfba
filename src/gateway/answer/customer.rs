//! The client's side of a response: watching its connection, and what follows when it disconnects.
//!
//! A stream is kept alive with comments while its upstream thinks, if that is configured. When the client
//! disconnects, or its response has timed out, the call ends if all of its cost has been shown; else the
//! upstream is read on without a client, for its bill.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::respond;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::gateway_headers::GatewayHeaders;
use crate::gateway::upstream::client::UpstreamCall;
use crate::gateway::wire::error::describe_error;
use crate::gateway::wire::head::{self, AnswerHead};

/// A comment is a line that begins with a colon; readers skip it (HTML standard, 9.2.5). Behind a
/// whole event it has an empty line of its own, for readers that look for those.
const COMMENT: &[u8] = b": keep-alive\n\n";
const COMMENT_IN_AN_EVENT: &[u8] = b": keep-alive\n";

/// Keep-alive for Google's clients in the place of a comment: their SDKs for Python and Go take a comment for
/// a broken chunk (google-genai 3.6.1, `_iter_response_stream`), and skip blank lines. It ends an event, so
/// it is sent between whole events only.
const BLANK_LINES: &[u8] = b"\n\n";

/// The client's side of a response: its session, its progress, and its keep-alive timer.
pub(crate) struct Customer<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) ctx: &'a mut RequestContext,
    /// Interval of keep-alive comments; `None` without them.
    interval: Option<Duration>,
    /// Time of the next keep-alive comment, unless something else is written before.
    comment_at: Option<Instant>,
    /// Wakes when a comment may be needed; made when something is waited for first.
    timer: Option<Pin<Box<Sleep>>>,
    /// The head has been sent, or waits.
    begun: bool,
    /// The head of a document that is written anew once its upstream's is whole: until then it can turn
    /// out to be none.
    waiting: Option<AnswerHead>,
    /// Last two bytes sent to the client.
    last: [u8; 2],
}

impl<'a> Customer<'a> {
    pub(crate) fn new(session: &'a mut Session, ctx: &'a mut RequestContext) -> Self {
        let interval = ctx.keepalive_interval();
        let mut customer = Self {
            session,
            ctx,
            interval,
            comment_at: None,
            timer: None,
            begun: false,
            waiting: None,
            last: *b"\n\n",
        };
        customer.put_off_comment();
        customer
    }

    /// Something is written: a comment is needed only an interval later.
    fn put_off_comment(&mut self) {
        self.comment_at = self.interval.map(|interval| Instant::now() + interval);
    }

    /// Schedule the next keep-alive comment of a stream for this time, unless one is due before.
    pub(crate) fn comment_by(&mut self, at: Instant) {
        let earlier = self.comment_at.map(|due| due.min(at));
        if earlier != self.comment_at {
            self.comment_at = earlier;
            // The timer is only ever put off.
            self.timer = None;
        }
    }

    /// True once the head of the response was sent.
    pub(crate) fn has_head(&self) -> bool {
        self.begun
    }

    /// Waits for an upstream, notices a customer who leaves, and keeps a stream alive meanwhile.
    ///
    /// # Errors
    /// The customer has left, and nobody needs to know what the upstream says; or nobody listens, and
    /// it takes longer than that may.
    pub(crate) async fn wait<T>(
        &mut self,
        mut upstream: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T> {
        while self.ctx.response.orphan.is_none() {
            tokio::select! {
                biased;
                done = &mut upstream => return Ok(done),
                left = self.session.as_downstream_mut().read_body_or_idle(true) => {
                    let error = left.err().unwrap_or_else(|| Error::new(ErrorType::ConnectionClosed));
                    self.leave(error.into_down())?;
                }
                // Boxed: it is large, and most responses do without it.
                () = tick(&mut self.timer, self.comment_at) => Box::pin(self.comment()).await?,
            }
        }
        let Some(orphan) = &self.ctx.response.orphan else { return Err(disconnected()) };
        tokio::select! {
            biased;
            done = &mut upstream => Ok(done),
            () = sleep_until(orphan.until) => Err(given_up()),
            () = self.ctx.services.deadline.reached() => Err(given_up()),
        }
    }

    async fn comment(&mut self) -> Result<()> {
        let Self { session, ctx, .. } = self;
        if !self.begun {
            // What costs money does not begin before its hold is on disk.
            if let RequestStage::Sending(sending) = &ctx.stage {
                let durable = sending.admitted.payment.durable().await;
                durable.map_err(|error| {
                    Error::because(ErrorType::InternalError, "the hold is not on disk", error)
                })?;
            }
            // No target has answered, so no fallback can be named.
            let gateway_headers = GatewayHeaders { fallback: None, ..ctx.gateway_headers() };
            let begun = respond::begin_events(session, gateway_headers, ctx.routing.envelope).await;
            self.begun = true;
            if let Err(error) = begun {
                return self.leave(error.into_down());
            }
        }
        self.put_off_comment();
        let comment = match (self.last, self.ctx.routing.envelope) {
            ([b'\n', b'\n'], Envelope::Google) => BLANK_LINES,
            (_, Envelope::Google) => return Ok(()),
            ([b'\n', b'\n'], _) => COMMENT,
            ([_, b'\n'], _) => COMMENT_IN_AN_EVENT,
            // In the middle of a line, which the upstream has to end.
            _ => return Ok(()),
        };
        let sent = self.session.write_response_body(Some(Bytes::from_static(comment)), false).await;
        sent.or_else(|error| self.leave(error.into_down()))
    }

    /// Sends the response head, unless a comment was sent before or the client has disconnected. If the
    /// response is validated only as a whole, the head waits for the first piece.
    ///
    /// # Errors
    /// The customer has left, and nobody needs to know how the answer goes on.
    pub(crate) async fn send_head(&mut self, header: AnswerHead) -> Result<()> {
        if std::mem::replace(&mut self.begun, true) || self.ctx.response.orphan.is_some() {
            return Ok(());
        }
        if self.ctx.rewrites_document() {
            self.waiting = Some(header);
            return Ok(());
        }
        self.write_head(header).await
    }

    async fn write_head(&mut self, header: AnswerHead) -> Result<()> {
        self.put_off_comment();
        let sent = head::write(self.session, header, false).await;
        sent.or_else(|error| self.leave(error.into_down()))
    }

    /// Sends a piece of the response. Without a client nothing is sent.
    ///
    /// # Errors
    /// The customer has left, and nobody needs to know how it goes on; or nobody listens, and it is
    /// longer than that may be.
    pub(crate) async fn send(&mut self, piece: Bytes, is_end: bool) -> Result<()> {
        if self.ctx.response.orphan.is_some() {
            return Ok(());
        }
        let piece = self.ctx.as_sent(piece, is_end);
        if piece.is_empty() && !is_end {
            return Ok(());
        }
        if let Some(mut header) = self.waiting.take() {
            if is_end {
                // The whole document is here, so that its length is known, and the head leaves in one write with it.
                header.headers.remove(&TRANSFER_ENCODING);
                header.headers.insert(CONTENT_LENGTH, HeaderValue::from(piece.len()));
            }
            self.write_head(header).await?;
        }
        if self.interval.is_some() && !piece.is_empty() {
            self.put_off_comment();
            for byte in piece.iter().skip(piece.len().saturating_sub(2)) {
                self.last = [self.last[1], *byte];
            }
        }
        let sent = self.session.write_response_body(Some(piece), is_end).await;
        sent.or_else(|error| self.leave(error.into_down()))
    }

    /// Notes that the client has disconnected, and starts to read on for the bill where the upstream's work may
    /// cost more than was shown.
    ///
    /// # Errors
    /// The one given, where nothing is read on.
    fn leave(&mut self, error: Box<Error>) -> Result<()> {
        let ctx = &mut *self.ctx;
        // At the deadline nobody reads on: the process is about to end.
        if ctx.services.deadline.is_over() || !ctx.read_on() {
            return Err(error);
        }
        let message = "The customer went away.";
        let error =
            GatewayError::new(ErrorKind::ClientDisconnected, message).cause(describe_error(&error));
        ctx.response.failure.get_or_insert(error);
        Ok(())
    }

    /// Ends the client's response with `error`, and starts to read the upstream's to its end for the bill.
    ///
    /// # Errors
    /// The one given, where nothing is read on.
    pub(crate) async fn end_and_read_on(
        &mut self,
        filters: &impl UpstreamFilters,
        call: &mut UpstreamCall,
        error: Box<Error>,
    ) -> Result<()> {
        if !self.ctx.read_on() {
            return Err(error);
        }
        // Boxed: it is large, and most responses do without it.
        let answered = filters.fail_downstream(self.session, &error, self.ctx);
        let _reuse = Box::pin(answered).await;
        // Over HTTP/1.1 a client would keep the connection, and its next request would wait there. Over HTTP/2
        // this resets the stream, unless the answer has ended.
        self.session.as_downstream_mut().shutdown().await;
        call.wait_without_limit();
        Ok(())
    }
}

/// Completes when a keep-alive comment is due.
async fn tick(timer: &mut Option<Pin<Box<Sleep>>>, comment_at: Option<Instant>) {
    let Some(at) = comment_at else { return std::future::pending().await };
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
    loop {
        timer.as_mut().await;
        // Every piece puts the comment off. The timer is not set anew for each of them, but when it
        // wakes: once in an interval.
        if timer.deadline() >= at {
            return;
        }
        timer.as_mut().reset(at);
    }
}

/// The customer is gone.
pub(crate) fn disconnected() -> Box<Error> {
    Error::new_down(ErrorType::ConnectionClosed)
}

/// The error of reading on beyond the time or bytes allowed for it.
pub(crate) fn given_up() -> Box<Error> {
    Error::new_down(ErrorType::Custom("an answer that nobody reads took too much"))
}
