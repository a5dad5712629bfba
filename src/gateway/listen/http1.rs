//! Requests over HTTP/1.1, as Pingora's hooks read and answer them.
//!
//! Pingora takes sessions of any kind. This one has the head that was read and checked before, so that
//! nothing is parsed twice; it reads bodies by the scanner that checks them; and it writes the head of an
//! answer together with the first of its body. What a hook asks for, and what a customer sees, is as with
//! Pingora's own session ([ADR 55](../../../docs/adr/0055-customers-over-http1.md)).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::l4::socket::SocketAddr as PeerAddr;
use pingora::protocols::{Digest, Stream};
use pingora::time::timeout;
use pingora::{Error, ErrorType, OrErr as _, Result};
use pingora_proxy::Session;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};

use crate::gateway::listen::custom::{Timeouts, plain_session};

mod answer;
mod head;
mod request_body;

pub(crate) use head::Head;

use answer::AnswerBody;

/// A customer's connection, and what is known of it.
pub(crate) struct Wire {
    pub(crate) stream: Stream,
    digest: Digest,
}

impl Wire {
    pub(crate) fn new(stream: Stream) -> Self {
        let digest = Digest {
            ssl_digest: stream.get_ssl_digest(),
            timing_digest: stream.get_timing_digest(),
            proxy_digest: stream.get_proxy_digest(),
            socket_digest: stream.get_socket_digest(),
        };
        Self { stream, digest }
    }
}

/// Where a session leaves its connection for the next request.
pub(crate) type Returned = Arc<Mutex<Option<Wire>>>;

/// The connection is to be closed behind the answer.
#[derive(Clone)]
struct CloseBehind;

/// The connection is to be kept although the answer comes before the end of the request, whose rest is
/// read and thrown away.
#[derive(Clone)]
struct DrainBehind;

/// Has the connection closed behind the answer, which has not begun. Nothing over HTTP/2.
pub(crate) fn close_behind(session: &mut Session) {
    session.req_header_mut().extensions_mut().insert(CloseBehind);
}

/// Keeps the connection for the next request although this one, which is short, was not read to its end.
/// Nothing over HTTP/2.
pub(crate) fn drain_behind(session: &mut Session) {
    session.req_header_mut().extensions_mut().insert(DrainBehind);
}

/// One request over HTTP/1.1, and its answer.
pub(crate) struct Http1Session {
    /// `None` once it was left for the next request.
    wire: Option<Wire>,
    returned: Returned,
    head: Box<Head>,
    /// The customer has closed their half of the connection.
    has_left: bool,
    written: Option<Box<ResponseHeader>>,
    answer: AnswerBody,
    /// The head of the answer, as long as it waits for the first of the body.
    unsent: BytesMut,
    bytes_read: usize,
    bytes_sent: usize,
    timeouts: Timeouts,
}

impl Http1Session {
    /// Over the request whose head was read from `wire`. The connection is left in `returned` when it can
    /// have another request.
    pub(crate) fn new(head: Box<Head>, wire: Wire, returned: Returned) -> Self {
        Self {
            wire: Some(wire),
            returned,
            head,
            has_left: false,
            written: None,
            answer: AnswerBody::NotBegun,
            unsent: BytesMut::new(),
            bytes_read: 0,
            bytes_sent: 0,
            timeouts: Timeouts::default(),
        }
    }

    fn stream(&mut self) -> Result<&mut Stream> {
        match &mut self.wire {
            Some(wire) => Ok(&mut wire.stream),
            None => Error::e_explain(ErrorType::InternalError, "the session is over"),
        }
    }

    fn has(&self, is_marked: impl Fn(&http::Extensions) -> bool) -> bool {
        is_marked(&self.head.request.extensions)
    }

    /// Whether the connection can have another request behind this answer, as far as is known.
    fn will_keep(&self) -> bool {
        let is_over = self.head.body.is_done() || self.has(|it| it.get::<DrainBehind>().is_some());
        self.head.keeps && is_over && !self.has(|it| it.get::<CloseBehind>().is_some())
    }

    /// Begins the answer. Its head waits for the first of its body if the length of that is known.
    async fn begin(&mut self, mut header: Box<ResponseHeader>) -> Result<()> {
        if self.written.as_ref().is_some_and(|written| is_final(written.status)) {
            log::warn!("the head of an answer was written twice");
            return Ok(());
        }
        if is_final(header.status) {
            self.head.keeps = self.will_keep();
            self.answer = AnswerBody::behind(&self.head.request, &mut header);
            self.head.keeps &= !self.answer.ends_with_connection();
            if header.status == StatusCode::SWITCHING_PROTOCOLS {
                self.head.body.switch_protocols();
            }
        }
        answer::write_head(&mut self.unsent, &mut header, self.head.keeps);
        self.written = Some(header);
        if self.answer.is_waited_for() { Ok(()) } else { self.send(Bytes::new()).await }
    }

    /// Writes a piece of the answer's body, the last one or another.
    async fn write(&mut self, piece: Bytes, is_last: bool) -> Result<()> {
        let (piece, behind) = self.answer.frame(&mut self.unsent, piece);
        self.bytes_sent = self.bytes_sent.saturating_add(piece.len());
        let end = if is_last { self.answer.end() } else { Ok(b"".as_slice()) };
        // What there is of an answer that lacks its end is sent all the same.
        self.send(piece.chain(behind).chain(end.as_ref().copied().unwrap_or_default())).await?;
        end.map(|_| ())
    }

    /// Sends what waits, and `behind` after it.
    async fn send(&mut self, mut behind: impl Buf + Send) -> Result<()> {
        if self.unsent.is_empty() && !behind.has_remaining() {
            return Ok(());
        }
        let (limit, mut unsent) = (self.timeouts.write, std::mem::take(&mut self.unsent));
        let stream = self.stream()?;
        let sending = async {
            if answer::is_sooner_copied(&unsent, &behind) {
                unsent.put(behind);
                stream.write_all(&unsent).await?;
                unsent.clear();
            } else {
                stream.write_all_buf(&mut (&mut unsent).chain(&mut behind)).await?;
            }
            stream.flush().await
        };
        let sent = match limit {
            Some(limit) => match timeout(limit, sending).await {
                Ok(sent) => sent,
                Err(_) => return Error::e_explain(ErrorType::WriteTimedout, "writing an answer"),
            },
            None => sending.await,
        };
        // Its memory serves for what comes next.
        self.unsent = unsent;
        sent.or_err(ErrorType::WriteError, "writing an answer")
    }

    /// What comes next of the request's body.
    async fn read(&mut self) -> Result<Option<Bytes>> {
        let limit = self.timeouts.read;
        let Some(wire) = &mut self.wire else {
            return Error::e_explain(ErrorType::InternalError, "the session is over");
        };
        let reading = self.head.body.next(&mut wire.stream);
        let read = match limit {
            Some(limit) => match timeout(limit, reading).await {
                Ok(read) => read?,
                Err(_) => return Error::e_explain(ErrorType::ReadTimedout, "reading a body"),
            },
            None => reading.await?,
        };
        self.bytes_read = self.bytes_read.saturating_add(read.as_ref().map_or(0, Bytes::len));
        Ok(read)
    }

    /// Waits until the customer leaves, or sends what nobody has asked for.
    async fn idle(&mut self) -> Result<Option<Bytes>> {
        if !self.has_left {
            let read = self.stream()?.read_u8().await;
            match read {
                Ok(_) => {
                    return Error::e_explain(ErrorType::ConnectError, "data behind the request");
                }
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
                Err(error) => {
                    return Error::e_because(ErrorType::ReadError, "waiting for an answer", error);
                }
            }
        }
        (self.has_left, self.head.keeps) = (true, false);
        Error::e_explain(ErrorType::ConnectionClosed, "before the answer was complete")
    }

    /// Leaves the connection for the next request, or closes it.
    async fn leave(&mut self) -> Result<()> {
        if self.answer != AnswerBody::NotBegun {
            self.write(Bytes::new(), true).await?;
        }
        if self.will_keep() && self.answer == AnswerBody::Whole {
            self.drain_request_body().await?;
            if self.head.body.is_followed() {
                // A request that was not waited for. Its client asks again (RFC 9112, section 9.3.2).
                return Ok(());
            }
            *self.returned.lock() = self.wire.take();
        } else if let Some(mut wire) = self.wire.take() {
            // Who is gone does not mind.
            let _is_shut = AsyncWriteExt::shutdown(&mut wire.stream).await;
        }
        Ok(())
    }
}

/// Whether no other head follows the one with this status.
fn is_final(status: StatusCode) -> bool {
    !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS
}

#[async_trait]
impl CustomSession for Http1Session {
    plain_session!();

    fn req_header(&self) -> &RequestHeader {
        &self.head.request
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.head.request
    }

    fn is_upgrade_req(&self) -> bool {
        answer::may_switch(&self.head.request)
    }

    fn was_upgraded(&self) -> bool {
        let switched = |written: &ResponseHeader| written.status == StatusCode::SWITCHING_PROTOCOLS;
        self.written.as_deref().is_some_and(switched)
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        self.read().await
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if no_body_expected || self.head.body.is_done() {
            self.idle().await
        } else {
            self.read().await
        }
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        if self.head.body.is_done() {
            return Ok(());
        }
        let limit = self.timeouts.drain;
        let draining = async {
            while self.read().await?.is_some() {}
            Ok(())
        };
        match limit {
            Some(limit) => match timeout(limit, draining).await {
                Ok(drained) => drained,
                Err(_) => Error::e_explain(ErrorType::ReadTimedout, "draining a body"),
            },
            None => draining.await,
        }
    }

    fn is_body_done(&mut self) -> bool {
        self.head.body.is_done()
    }

    fn is_body_empty(&mut self) -> bool {
        self.bytes_read == 0 && self.head.body.is_done()
    }

    fn body_bytes_read(&self) -> usize {
        self.bytes_read
    }

    /// Nothing is sent twice from here: the gateway keeps bodies itself.
    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        None
    }

    async fn write_response_header(
        &mut self,
        header: Box<ResponseHeader>,
        end: bool,
    ) -> Result<()> {
        self.begin(header).await?;
        if end { self.write(Bytes::new(), true).await } else { Ok(()) }
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.write(data, end).await
    }

    /// Nobody reads trailers over HTTP/1.1.
    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        self.write(Bytes::new(), true).await
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        for task in tasks {
            let is_end = task.is_end();
            match task {
                HttpTask::Header(header, _) => self.begin(header).await?,
                HttpTask::Body(data, _) | HttpTask::UpgradedBody(data, _) => {
                    self.write(data.unwrap_or_default(), false).await?;
                }
                HttpTask::Trailer(_) | HttpTask::Done => {}
                HttpTask::Failed(error) => return Err(error),
            }
            if is_end {
                self.write(Bytes::new(), true).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn finish(&mut self) -> Result<()> {
        self.leave().await
    }

    /// The connection is closed as it is, which nobody takes for the end of an answer.
    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.head.keeps = false;
        if let Some(mut wire) = self.wire.take() {
            let _is_shut = AsyncWriteExt::shutdown(&mut wire.stream).await;
        }
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written.as_deref()
    }

    fn body_bytes_sent(&self) -> usize {
        self.bytes_sent
    }

    fn digest(&self) -> Option<&Digest> {
        self.wire.as_ref().map(|wire| &wire.digest)
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.wire.as_mut().map(|wire| &mut wire.digest)
    }

    fn client_addr(&self) -> Option<&PeerAddr> {
        self.digest()?.socket_digest.as_ref()?.peer_addr()
    }

    fn server_addr(&self) -> Option<&PeerAddr> {
        self.digest()?.socket_digest.as_ref()?.local_addr()
    }
}

#[cfg(test)]
mod tests;
