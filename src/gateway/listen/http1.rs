//! Requests over HTTP/1.1, as Pingora's hooks read and answer them.
//!
//! Pingora takes sessions of any kind. This one has the head that was read and checked before, so that
//! nothing is parsed twice; it reads bodies by the scanner that checks them; and it writes the head of an
//! answer together with the first of its body. What a hook asks for, and what a customer sees, is as with
//! Pingora's own session ([ADR 15](../../../docs/adr/0015-http-on-both-sides.md)).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use parking_lot::Mutex;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::l4::socket::SocketAddr as PeerAddr;
use pingora::protocols::{Digest, Stream};
use pingora::{Error, ErrorType, OrErr as _, Result};
use pingora_proxy::Session;
use tokio::io::AsyncWriteExt;

use crate::gateway::listen::origin::Origin;
use crate::gateway::listen::session_parts::{Timeouts, plain_session, within, write_tasks};
use crate::gateway::wire::head::AnswerHead;
use crate::gateway::wire::shared_read;

mod answer;
mod head;
mod request_body;

pub(crate) use head::CheckedHead;

use answer::BodyFraming;

/// A client's HTTP/1.1 connection with its metadata.
pub(crate) struct ClientConnection {
    pub(crate) stream: Stream,
    digest: Digest,
}

impl ClientConnection {
    pub(crate) fn new(stream: Stream, origin: Origin) -> Self {
        let digest = Digest {
            ssl_digest: stream.get_ssl_digest(),
            timing_digest: stream.get_timing_digest(),
            proxy_digest: origin.into_digest(),
            socket_digest: stream.get_socket_digest(),
        };
        Self { stream, digest }
    }
}

/// The most that may come behind a request while its answer is waited for, in bytes. A line break behind a
/// body, or another request, is no reason to take the answer from whoever pays for it.
const STRAY_BYTES_MAX: usize = 64 * 1024;
/// The largest buffer that is kept from one piece of an answer to the next, in bytes: most events fit.
const KEPT_BYTES_MAX: usize = 1024;
/// Timeout for closing a connection if nothing else limits it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Slot in which a session leaves its connection for the next request.
pub(crate) type KeepAliveSlot = Arc<Mutex<Option<ClientConnection>>>;

/// True if the connection is closed after the response.
#[derive(Clone)]
struct CloseBehind;

/// The connection is to be kept although the answer comes before the end of the request, whose rest is
/// read and thrown away.
#[derive(Clone)]
struct DrainBehind;

/// A body of a long declared length is to come in one piece, into which it is read.
#[derive(Clone)]
struct GatherBody;

/// Asks for the body, if it is long and its length is declared, in one piece, with an empty piece for each read
/// before it. `body_bytes_read` then says what has come. No effect over HTTP/2.
pub(crate) fn gather_body(session: &mut Session) {
    session.req_header_mut().extensions_mut().insert(GatherBody);
}

/// Closes the connection after the answer, which has not begun. No effect over HTTP/2.
pub(crate) fn close_behind(session: &mut Session) {
    session.req_header_mut().extensions_mut().insert(CloseBehind);
}

/// Keeps the connection for the next request although this one, which is short, was not read to its end.
/// Nothing over HTTP/2.
pub(crate) fn drain_behind(session: &mut Session) {
    session.req_header_mut().extensions_mut().insert(DrainBehind);
}

/// An HTTP/1.1 request with its response.
pub(crate) struct Http1Session {
    /// `None` once it was left for the next request, or closed.
    wire: Option<ClientConnection>,
    /// Digest of the connection, kept once it is closed.
    closed: Option<Digest>,
    returned: KeepAliveSlot,
    head: Box<CheckedHead>,
    /// The customer has closed their half of the connection.
    reader_dropped: bool,
    /// The written response head, without its fields.
    written: Option<Box<ResponseHeader>>,
    answer: BodyFraming,
    /// The head of the answer, as long as it waits for the first of the body.
    unsent: BytesMut,
    /// A piece of the answer may have left in part: nothing can follow it.
    is_torn: bool,
    /// Bytes that arrived after the request while its answer was pending.
    stray_bytes: usize,
    bytes_sent: usize,
    timeouts: Timeouts,
}

impl Http1Session {
    /// Over the request whose head was read from `wire`. The connection is left in `returned` when it can
    /// have another request.
    pub(crate) fn new(
        head: Box<CheckedHead>,
        wire: ClientConnection,
        returned: KeepAliveSlot,
    ) -> Self {
        Self {
            wire: Some(wire),
            closed: None,
            returned,
            head,
            reader_dropped: false,
            written: None,
            answer: BodyFraming::NotBegun,
            unsent: BytesMut::new(),
            is_torn: false,
            stray_bytes: 0,
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

    fn is_marked<M: Send + Sync + 'static>(&self) -> bool {
        self.head.request.extensions.get::<M>().is_some()
    }

    /// True if the connection can serve another request after this answer, as far as can be decided by now.
    fn will_keep(&self) -> bool {
        let is_over = self.head.body.is_done() || self.is_marked::<DrainBehind>();
        self.head.keeps && !self.is_torn && is_over && !self.is_marked::<CloseBehind>()
    }

    /// Begins the answer. If the length of the body is known, the head is sent together with its first piece.
    async fn begin(&mut self, mut header: Box<ResponseHeader>) -> Result<()> {
        if self.answer != BodyFraming::NotBegun {
            log::warn!("the head of an answer was written twice");
            return Ok(());
        }
        // Whoever asks for it wants to know the status, and the body behind it may take hours.
        let status = ResponseHeader::build_no_case(header.status, Some(0))?;
        let mut head = AnswerHead::from(std::mem::replace(&mut *header, status));
        self.written = Some(header);
        if head.is_final() {
            self.head.keeps = self.will_keep();
            self.answer = BodyFraming::behind(&self.head.request, &mut head);
            self.head.keeps &= !self.answer.ends_with_connection();
            if head.switches_protocols() {
                self.head.body.switch_protocols();
            }
        }
        answer::write_head(&mut self.unsent, &head, self.head.keeps);
        if self.answer.is_waited_for() { Ok(()) } else { self.send(Bytes::new()).await }
    }

    /// Writes a piece of the answer's body, the last one or another.
    async fn write(&mut self, piece: Bytes, is_last: bool) -> Result<()> {
        let (piece, behind) = self.answer.frame(&mut self.unsent, piece);
        let bytes = piece.len();
        let end = if is_last { self.answer.end() } else { Ok(b"".as_slice()) };
        // What there is of an answer that lacks its end is sent all the same.
        self.send(piece.chain(behind).chain(end.as_ref().copied().unwrap_or_default())).await?;
        self.bytes_sent = self.bytes_sent.saturating_add(bytes);
        end.map(|_| ())
    }

    /// Sends what waits, and `behind` after it. If that fails, or is given up, nothing more is sent: what
    /// came next would be read as a part of what is missing.
    async fn send(&mut self, mut behind: impl Buf + Send) -> Result<()> {
        if self.unsent.is_empty() && !behind.has_remaining() {
            return Ok(());
        }
        if std::mem::replace(&mut self.is_torn, true) {
            return Error::e_explain(ErrorType::WriteError, "a piece before was not sent whole");
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
        let sending = async { sending.await.or_err(ErrorType::WriteError, "writing an answer") };
        within(limit, ErrorType::WriteTimedout, "writing an answer", pin!(sending)).await?;
        self.is_torn = false;
        if unsent.capacity() <= KEPT_BYTES_MAX {
            // Its memory serves for what comes next; more of it would wait idly between two events.
            self.unsent = unsent;
        }
        Ok(())
    }

    /// The next piece of the request body; `None` at its end.
    async fn read(&mut self) -> Result<Option<Bytes>> {
        let Some(wire) = &mut self.wire else {
            return Error::e_explain(ErrorType::InternalError, "the session is over");
        };
        if self.head.request.extensions_mut().remove::<GatherBody>().is_some() {
            self.head.body.gather();
        }
        self.head.body.next(&mut wire.stream, self.timeouts.read).await
    }

    /// Waits until the client disconnects. Data that arrives meanwhile is unexpected: it is not read as a
    /// request, and the connection is closed after the response.
    async fn idle(&mut self) -> Result<Option<Bytes>> {
        while !self.reader_dropped {
            match shared_read::discard(self.stream()?).await {
                Ok(0) => self.reader_dropped = true,
                Ok(bytes) => self.stray_bytes = self.stray_bytes.saturating_add(bytes),
                Err(error) => {
                    // The end of the time that the process has is told to one who is there.
                    self.reader_dropped = error.kind() != std::io::ErrorKind::TimedOut;
                    self.head.keeps = false;
                    return Error::e_because(ErrorType::ReadError, "waiting for an answer", error);
                }
            }
            self.head.keeps = false;
            if self.stray_bytes > STRAY_BYTES_MAX {
                return Error::e_explain(ErrorType::ConnectError, "data behind the request");
            }
        }
        Error::e_explain(ErrorType::ConnectionClosed, "before the answer was complete")
    }

    /// Ends the answer and keeps the connection for the next request, or closes it. An interrupted answer
    /// gets no end marker, which would make it look complete.
    async fn leave(&mut self) -> Result<()> {
        if self.reader_dropped || self.is_torn || self.closed.is_some() {
            return Ok(());
        }
        if self.answer != BodyFraming::NotBegun {
            self.write(Bytes::new(), true).await?;
        }
        if !self.will_keep() || self.answer != BodyFraming::Whole {
            return self.close().await;
        }
        self.drain_request_body().await?;
        if !self.head.body.is_followed() {
            *self.returned.lock() = self.wire.take();
        }
        Ok(())
    }

    /// Closes the connection after a complete answer.
    async fn close(&mut self) -> Result<()> {
        let limit = Some(self.timeouts.write.unwrap_or(CLOSE_TIMEOUT));
        let stream = self.stream()?;
        let closing = async {
            let closed = AsyncWriteExt::shutdown(stream).await;
            closed.or_err(ErrorType::WriteError, "closing a connection")
        };
        let closed =
            within(limit, ErrorType::WriteTimedout, "closing a connection", pin!(closing)).await;
        if self.answer == BodyFraming::Whole && self.timeouts.drain.is_some() {
            // With unread bytes it would be reset, and the answer could be lost with it.
            self.drain_request_body().await?;
        }
        closed
    }
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

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        self.read().await
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if no_body_expected || self.head.body.is_done() {
            self.idle().await
        } else {
            // Boxed: it is large, and a stream waits in the other.
            Box::pin(self.read()).await
        }
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        if self.head.body.is_done() {
            return Ok(());
        }
        self.head.body.stop_gathering();
        let limit = self.timeouts.drain;
        let draining = async {
            while self.read().await?.is_some() {}
            Ok(())
        };
        within(limit, ErrorType::ReadTimedout, "draining a body", pin!(draining)).await
    }

    fn is_body_done(&mut self) -> bool {
        self.head.body.is_done()
    }

    fn is_body_empty(&mut self) -> bool {
        self.head.body.bytes_read() == 0 && self.head.body.is_done()
    }

    fn body_bytes_read(&self) -> usize {
        self.head.body.bytes_read()
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

    /// Discards trailers: HTTP/1.1 clients do not read them.
    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        self.write(Bytes::new(), true).await
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        write_tasks(self, tasks).await
    }

    async fn finish(&mut self) -> Result<()> {
        self.leave().await
    }

    /// Closes the connection without an end marker, so that the response does not look complete. A head that
    /// waits for its body is sent before: it contains the id of a request that may be charged.
    async fn shutdown(&mut self, _code: u32, _context: &str) {
        if !self.reader_dropped {
            // Who does not take it is gone.
            let _is_sent = self.send(Bytes::new()).await;
        }
        self.head.keeps = false;
        // They are looked up when somebody asks, which the log does later.
        let _addresses = (self.client_addr(), self.server_addr());
        if let Some(wire) = self.wire.take() {
            self.closed = Some(wire.digest);
        }
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written.as_deref()
    }

    fn body_bytes_sent(&self) -> usize {
        self.bytes_sent
    }

    fn digest(&self) -> Option<&Digest> {
        self.wire.as_ref().map(|wire| &wire.digest).or(self.closed.as_ref())
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.wire.as_mut().map(|wire| &mut wire.digest).or(self.closed.as_mut())
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
