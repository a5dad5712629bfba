//! Relaying of a response whose head has come: `response_filter`, `response_body_filter` and the client's
//! connection, piece by piece, until the end of the response or of its bill.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use pingora::{Error, ErrorType, Result};

use crate::gateway::answer::customer::Customer;
use crate::gateway::answer::refused;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::services::Gateway;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::client::{UpstreamCall, delimit};
use crate::gateway::wire::cors;
use crate::gateway::wire::head::AnswerHead;
use crate::gateway::wire::response_framing::{self, ShownFraming};
use crate::protocols::Framing;

/// Approximate maximum size, in bytes, up to which pieces that are available at once are sent together.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// A response on its way from an upstream to the client.
pub(crate) struct Relay<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) customer: Customer<'a>,
    pub(crate) call: Box<UpstreamCall>,
}

/// A piece of the answer as the customer gets it, and whether it is the last.
type AnswerPiece = (Bytes, bool);

impl Relay<'_> {
    /// Passes on the response with this head, a success or a refusal, and keeps the upstream's connection.
    ///
    /// # Errors
    /// The failure that `fail_to_proxy` answers or logs.
    pub(crate) async fn answer(mut self, mut header: AnswerHead) -> Result<()> {
        self.sniff_body(&mut header).await?;
        if header.status.is_success() {
            let first = self.begin(header).await?;
            self.pass_on(first).await?;
        } else {
            let Self { gateway, customer, call } = &mut self;
            // Boxed: it is large, and most requests do without it.
            Box::pin(refused::answer(*gateway, customer, call, header)).await?;
        }
        self.gateway.upstreams.release(self.call);
        Ok(())
    }

    /// Corrects the framing of a response that is declared as JSON by the beginning of its body, which decides:
    /// events, or nothing that can be read. The head of declared events does not wait for its body.
    async fn sniff_body(&mut self, header: &mut AnswerHead) -> Result<()> {
        let declared = self.customer.ctx.attempt().and_then(|attempt| attempt.framing);
        if declared != Some(Framing::Json) {
            return Ok(());
        }
        // Blank lines before a document keep its client's connection alive, so they are passed on as they come.
        let streams = self.customer.ctx.stream;
        let is_enough = |begun: &[u8], _: bool| {
            !streams || response_framing::shown_framing(begun) != ShownFraming::Blank
        };
        let begun = loop {
            let shown = self.customer.wait(pin!(self.call.look(!streams, is_enough))).await?;
            match shown {
                Ok(begun) => break begun,
                Err(error) => {
                    self.customer.ctx.fail_answer(CallFailure::refine_by_body(&error));
                    self.broken_off(error).await?;
                }
            }
        };
        // Who did not ask for events cannot read them.
        if streams && response_framing::shown_framing(&begun) == ShownFraming::Only(Framing::Sse) {
            header.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            header.headers.remove(&CONTENT_LENGTH);
            if let Some(attempt) = self.customer.ctx.attempt() {
                attempt.framing = Some(Framing::Sse);
            }
            return Ok(());
        }
        match no_document(&begun, self.call.has_shown_all()) {
            Some(cause) => Err(self.customer.ctx.unread(cause)),
            None => Ok(()),
        }
    }

    /// Sends the response head to the client, unless it was sent. A document that has arrived completely is
    /// checked first, so that an invalid one can still become a 502; it is then returned.
    async fn begin(&mut self, mut header: AnswerHead) -> Result<Option<AnswerPiece>> {
        let framing = self.customer.ctx.attempt().and_then(|attempt| attempt.framing);
        let is_stream = framing.is_some_and(|framing| framing.for_customers() == Framing::Sse);
        let has_head = self.customer.has_head();
        let Customer { session, ctx, .. } = &mut self.customer;
        if has_head && !is_stream && ctx.response.orphan.is_none() {
            return Err(
                ctx.fail(upstream_error::unreadable("events were asked for, and none came"))
            );
        }
        delimit(&mut header);
        self.gateway.response_filter(Some(&mut header), ctx).await?;
        cors::allow(&mut header.headers, session.req_header());
        let mut first = None;
        if framing == Some(Framing::Json)
            && self.call.has_shown_all()
            && let Some(Some(document)) = self.call.chunk_now()
        {
            first = Some(self.gather(document)?);
        }
        self.customer.send_head(header).await?;
        Ok(first)
    }

    /// Relays the response body, or reads it to its end after a disconnect. Bytes that were read before the
    /// head was sent come first.
    async fn pass_on(&mut self, mut first: Option<AnswerPiece>) -> Result<()> {
        loop {
            let (piece, is_end) = if let Some(piece) = first.take() {
                piece
            } else {
                let chunk = self.customer.wait(pin!(self.call.chunk())).await?;
                match chunk {
                    Ok(Some(chunk)) => self.gather(chunk)?,
                    Ok(None) => self.metered(Bytes::new(), true)?,
                    // What a connection does behind a stream's last event is nobody's concern.
                    Err(_) if self.customer.ctx.is_whole_stream() => {
                        self.metered(Bytes::new(), true)?
                    }
                    Err(error) => {
                        self.broken_off(error).await?;
                        continue;
                    }
                }
            };
            self.customer.send(piece, is_end).await?;
            let ctx = &mut *self.customer.ctx;
            if ctx.is_held_up() && ctx.response.orphan.is_none() {
                if ctx.has_uncovered() {
                    // Boxed: it is large, and most responses never wait.
                    first = Some(Box::pin(self.gateway.uncovered_body_filter(ctx)).await?);
                    continue;
                }
                let cut = Error::new(ErrorType::Custom("the answer was cut"));
                if is_end || ctx.services.deadline.is_over() || ctx.is_withheld() {
                    return Err(cut);
                }
                self.customer.end_and_read_on(self.gateway, &mut self.call, cut).await?;
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// All of the response that has arrived, as the client receives it, and true if that is its end.
    fn gather(&mut self, first: Bytes) -> Result<AnswerPiece> {
        let (mut out, mut is_end) = self.metered(first, self.call.is_done())?;
        let mut gathered = BytesMut::new();
        while !is_end && gathered.len().max(out.len()) < GATHERED_BYTES_MAX {
            // A piece without a durable hold, or the event that ends the answer, is the last to be sent.
            if self.customer.ctx.is_held_up() {
                break;
            }
            let Some(piece) = self.call.chunk_now() else { break };
            let is_last = piece.is_none() || self.call.is_done();
            let more;
            (more, is_end) = self.metered(piece.unwrap_or_default(), is_last)?;
            if more.is_empty() {
                continue;
            }
            if gathered.is_empty() {
                gathered.extend_from_slice(&out);
            }
            gathered.extend_from_slice(&more);
        }
        if !gathered.is_empty() {
            out = gathered.freeze();
        }
        Ok((out, is_end))
    }

    /// A piece of the answer as the customer gets it, once it is metered and paid for. One that has to wait for
    /// the hold that pays for it is not the end of the answer.
    fn metered(&mut self, piece: Bytes, is_end: bool) -> Result<AnswerPiece> {
        let mut body = Some(piece);
        pingora_proxy::ProxyHttp::response_body_filter(
            self.gateway,
            self.customer.session,
            &mut body,
            is_end,
            self.customer.ctx,
        )?;
        Ok((body.unwrap_or_default(), is_end && !self.customer.ctx.has_uncovered()))
    }

    /// The upstream broke off, or has been silent for too long. In that case the customer is told, and
    /// it is read on where it may go on to cost money.
    ///
    /// # Errors
    /// The one given, where nothing is read on.
    async fn broken_off(&mut self, error: Box<Error>) -> Result<()> {
        if *error.etype() != ErrorType::ReadTimedout || self.customer.ctx.response.orphan.is_some()
        {
            return Err(error);
        }
        self.customer.end_and_read_on(self.gateway, &mut self.call, error).await
    }
}

/// The reason why these first bytes cannot begin a JSON object; `None` if they can. The meter checks the
/// rest.
fn no_document(begun: &[u8], is_all: bool) -> Option<&'static str> {
    let text = begun.trim_ascii_start();
    match text.first() {
        None => is_all.then_some("its answer is empty"),
        Some(b'{') => None,
        Some(_) => Some("its answer is no JSON object"),
    }
}
