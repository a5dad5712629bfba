//! A downstream session whose request body has been read.
//!
//! Pingora 0.9 sends a request body upstream from its replay buffer once the body was read, and
//! calls `request_body_filter` only if that buffer is there and was not overrun. A body of unknown
//! length overruns it past 64 KiB, and the upstream would wait for ever. This session says what is
//! true by then, that the body is done and that something is there to send; `request_body_filter`
//! puts the real body in its place on every try. All else goes to the real session.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session as CustomSession;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use tokio_stream::Stream;

type Messages = Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

/// What stands in the replay buffer; `request_body_filter` replaces it.
const STAND_IN: &[u8] = b"\0";

pub(super) struct Replayed {
    inner: ServerSession,
}

impl Replayed {
    /// Wraps the session in place. A custom session never gives its connection back, so an
    /// HTTP/1.1 client is told that it closes.
    pub(super) fn wrap(slot: &mut ServerSession) {
        let mut inner = std::mem::replace(slot, ServerSession::new_custom(Box::new(())));
        inner.set_keepalive(None);
        *slot = ServerSession::new_custom(Box::new(Self { inner }));
    }
}

#[async_trait]
impl CustomSession for Replayed {
    fn is_body_done(&mut self) -> bool {
        true
    }

    fn is_body_empty(&mut self) -> bool {
        false
    }

    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        Some(Bytes::from_static(STAND_IN))
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    async fn read_body_or_idle(&mut self, _no_body_expected: bool) -> Result<Option<Bytes>> {
        self.inner.read_body_or_idle(true).await
    }

    fn req_header(&self) -> &RequestHeader {
        self.inner.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner.req_header_mut()
    }

    async fn write_response_header(&mut self, header: Box<ResponseHeader>, _: bool) -> Result<()> {
        self.inner.write_response_header(header).await
    }

    async fn write_response_header_ref(&mut self, header: &ResponseHeader, _: bool) -> Result<()> {
        self.inner.write_response_header_ref(header).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.inner.write_response_body(data, end).await
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner.write_response_trailers(trailers).await
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        self.inner.response_duplex_vec(tasks).await
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_read_timeout(timeout);
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.inner.get_read_timeout()
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.inner.get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.inner.get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        self.inner.request_summary()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.inner.response_written()
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.inner.shutdown().await;
    }

    async fn finish(&mut self) -> Result<()> {
        self.inner.finish_body().await
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner.body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.inner.body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.inner.to_h1_raw()
    }

    fn take_custom_message_reader(&mut self) -> Option<Messages> {
        None
    }

    fn restore_custom_message_reader(&mut self, _reader: Messages) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
