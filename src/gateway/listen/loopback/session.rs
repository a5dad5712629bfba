//! A downstream session whose request is in memory, and whose answer goes through a queue.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Request, Uri};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::l4::socket::SocketAddr as PeerAddr;
use pingora::{Error, ErrorType, Result};

use super::queue::{QueueWriter, ReaderDropped, SettlementSender};
use super::{LoopbackRequest, Piece};
use crate::gateway::listen::deadline::Deadline;
use crate::gateway::listen::session_parts::{Timeouts, plain_session, write_tasks};

/// `Host` of in-process requests; upstreams get their own names.
const OWN_NAME: HeaderValue = HeaderValue::from_static("localhost");

/// A request in memory, as Pingora serves it.
pub(super) struct LoopbackSession {
    head: RequestHeader,
    /// The body, until it is read: who reads it counts it, and gives it up before the answer ends.
    body: Option<Bytes>,
    body_bytes: usize,
    client: Option<PeerAddr>,
    digest: Digest,
    queue: QueueWriter,
    /// The status of the answer, once its head was sent.
    written: Option<ResponseHeader>,
    bytes_sent: usize,
    has_ended: bool,
    deadline: Arc<Deadline>,
    timeouts: Timeouts,
}

impl LoopbackSession {
    pub(super) fn new(
        request: LoopbackRequest,
        queue: QueueWriter,
        completion: SettlementSender,
        deadline: Arc<Deadline>,
    ) -> Result<Self> {
        let LoopbackRequest { method, path, headers, body, address, origin } = request;
        let uri = path.parse::<Uri>().map_err(|error| {
            Error::because(ErrorType::InvalidHTTPHeader, "a path from inside", error)
        })?;
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (method, uri, headers);
        head.headers.insert(HOST, OWN_NAME);
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        head.extensions.insert(completion);
        let head = RequestHeader::from(head);
        let proxy_digest = origin.and_then(|origin| origin.loopback().into_digest());
        let digest = Digest { proxy_digest, ..Digest::default() };
        // Without a socket there is no port.
        let client = address.map(|address| PeerAddr::Inet(SocketAddr::new(address, 0)));
        Ok(Self {
            head,
            body_bytes: body.len(),
            body: Some(body).filter(|body| !body.is_empty()),
            client,
            digest,
            queue,
            written: None,
            bytes_sent: 0,
            has_ended: false,
            deadline,
            timeouts: Timeouts::default(),
        })
    }

    async fn begin(&mut self, header: Box<ResponseHeader>) -> Result<()> {
        if header.status.is_informational() {
            return Ok(());
        }
        // What is asked of it later is its status.
        let status = ResponseHeader::build_no_case(header.status, Some(0))?;
        self.written = Some(status);
        self.send(Piece::Head(header)).await
    }

    async fn pass(&mut self, data: Option<Bytes>) -> Result<()> {
        let Some(data) = data.filter(|data| !data.is_empty()) else { return Ok(()) };
        self.bytes_sent += data.len();
        self.send(Piece::Data(data)).await
    }

    async fn end(&mut self) -> Result<()> {
        if self.has_ended || self.written.is_none() {
            return Ok(());
        }
        self.has_ended = true;
        self.send(Piece::End).await
    }

    async fn send(&self, piece: Piece) -> Result<()> {
        let disconnected = |_: ReaderDropped| Error::new_down(ErrorType::ConnectionClosed);
        let Some(waiting) = self.queue.try_send(piece).map_err(disconnected)? else {
            return Ok(());
        };
        let sending = self.queue.send(waiting);
        let sent = match self.timeouts.write {
            Some(time) => match tokio::time::timeout(time, sending).await {
                Ok(sent) => sent,
                Err(_) => return Err(Error::new_down(ErrorType::WriteTimedout)),
            },
            None => sending.await,
        };
        sent.map_err(disconnected)
    }
}

#[async_trait]
impl CustomSession for LoopbackSession {
    plain_session!();

    fn req_header(&self) -> &RequestHeader {
        &self.head
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.head
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        Ok(self.body.take())
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.body = None;
        Ok(())
    }

    /// Nothing is left to read: it waits for the caller to disconnect, or for the deadline.
    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if !no_body_expected && self.body.is_some() {
            return self.read_body_bytes().await;
        }
        let closed = self.deadline.or_done(self.queue.left()).await;
        Err(Error::new_down(match closed {
            Some(()) => ErrorType::ConnectionClosed,
            None => ErrorType::ReadTimedout,
        }))
    }

    fn is_body_done(&mut self) -> bool {
        self.body.is_none()
    }

    fn is_body_empty(&mut self) -> bool {
        self.body_bytes == 0
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        // It is for Pingora's own loop, which is not used.
        None
    }

    fn body_bytes_read(&self) -> usize {
        if self.body.is_none() { self.body_bytes } else { 0 }
    }

    async fn write_response_header(
        &mut self,
        header: Box<ResponseHeader>,
        end: bool,
    ) -> Result<()> {
        self.begin(header).await?;
        if end { self.end().await } else { Ok(()) }
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.pass(Some(data)).await?;
        if end { self.end().await } else { Ok(()) }
    }

    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        self.end().await
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        Ok(write_tasks(self, tasks).await? || self.has_ended)
    }

    async fn finish(&mut self) -> Result<()> {
        self.end().await
    }

    /// The caller sees that the response has no end.
    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.has_ended = true;
        self.queue.close();
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written.as_ref()
    }

    fn body_bytes_sent(&self) -> usize {
        self.bytes_sent
    }

    fn digest(&self) -> Option<&Digest> {
        Some(&self.digest)
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        Some(&mut self.digest)
    }

    fn client_addr(&self) -> Option<&PeerAddr> {
        self.client.as_ref()
    }

    fn server_addr(&self) -> Option<&PeerAddr> {
        None
    }
}
