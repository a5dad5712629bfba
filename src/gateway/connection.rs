//! Customers' connections: request heads are read here, within a time and a size, and refused in
//! the gateway's own words, before Pingora parses them.
//!
//! Pingora 0.9.1 bounds each read but not a whole head, waits without end for the first 24 bytes
//! where HTTP/2 is spoken without TLS, and answers a malformed head with an empty 400. So this
//! stands in front of its `HttpProxy`: it hands over heads that are complete and sound, and the
//! streams of connections that speak HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use pingora::apps::{HttpPersistentSettings, HttpServerApp, ServerApp};
use pingora::protocols::http::ServerSession;
use pingora::protocols::l4::stream::Stream as TcpStream;
use pingora::protocols::{ALPN, Stream};
use pingora::proxy::{HttpProxy, ProxyHttp, http_proxy};
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;
use pingora::time::timeout;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::deadline::{Cuttable, Deadline};
use super::transport::Transport;
use super::{framing, http2};
use crate::error::{ErrorKind, GatewayError};
use crate::metrics::Metrics;

/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest request head, over HTTP/2 too. Browsers stay below 16 KiB.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// What a head gets at first; ordinary ones need no more.
const HEAD_BYTES_INITIAL: usize = 4 * 1024;
/// The time within which a head must be complete, and within which the first one must begin.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that has just been accepted may take to begin its first request when the
/// gateway shuts down: the request is on its way, and closing would lose it.
const FRESH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection may wait for its next request. Cloud load balancers keep idle connections
/// for up to 600 s, and lose a request when the other end closes first.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(620);
/// Requests on one connection before it is closed, so that clients spread anew over load-balanced
/// gateways.
pub(super) const REQUESTS_MAX: u32 = 10_000;
/// How long, and for how many bytes, a refused customer is listened to after the answer. Closing
/// with unread bytes resets the connection, and the answer may be lost with it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// Writes a refusal as a whole HTTP/1.1 message that says `connection: close`.
pub(super) type Refuse = fn(&GatewayError) -> Bytes;

/// The application behind every customer-facing address.
pub struct Connections<P> {
    proxy: Arc<HttpProxy<P>>,
    transport: Transport,
    /// Whether HTTP/2 may begin without having been agreed on.
    h2c: bool,
    refuse: Refuse,
    open: Arc<AtomicUsize>,
    deadline: Arc<Deadline>,
    metrics: Option<Arc<Metrics>>,
}

impl<P> Connections<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Puts `proxy` behind a listener; `open` counts its connections.
    ///
    /// On shutdown idle connections are closed, so `open` is zero as soon as the last answer has
    /// left: requests that are still being read and bytes that are still being written count.
    pub(super) fn new(
        conf: &Arc<ServerConf>,
        proxy: P,
        transport: Transport,
        h2c: bool,
        refuse: Refuse,
        open: Arc<AtomicUsize>,
    ) -> Self {
        let h2c = h2c && !transport.is_tls();
        let (proxy, deadline) = (Arc::new(http_proxy(conf, proxy)), Arc::default());
        Self { proxy, transport, h2c, refuse, open, deadline, metrics: None }
    }

    /// Cuts requests at this deadline, and shows these metrics how many connections are open.
    pub(super) fn tied_to(self, deadline: Arc<Deadline>, metrics: Arc<Metrics>) -> Self {
        Self { deadline, metrics: Some(metrics), ..self }
    }

    async fn serve(&self, stream: Stream, mut shutdown: ShutdownWatch) {
        let opened = tokio::select! {
            biased; // most connections are open at once
            opened = self.transport.open(stream) => opened,
            () = closing(&mut shutdown, true) => None,
        };
        let Some(mut stream) = opened else { return };
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            return self.serve_http2(stream, shutdown).await;
        }
        let mut reused: Option<HttpPersistentSettings> = None;
        loop {
            let head = match self.next_head(&mut stream, reused.is_none(), &mut shutdown).await {
                Head::Sound(head) => head,
                Head::Refused(error) => return say_and_close(stream, &(self.refuse)(&error)).await,
                Head::Http2(begun) => {
                    // Only plain TCP gets here: over TLS the protocol was agreed on.
                    let Ok(mut stream) = stream.into_any().downcast::<TcpStream>() else { return };
                    stream.rewind(&begun);
                    return self.serve_http2(stream, shutdown).await;
                }
                Head::None => return,
            };
            if reused.is_none() {
                stream = Cuttable::wrap(stream, &self.deadline);
            }
            let mut session = ServerSession::new_http1(stream);
            match reused {
                Some(settings) => settings.apply_to_session(&mut session),
                None => {
                    session.set_keepalive(Some(IDLE_TIMEOUT.as_secs()));
                    session.set_keepalive_reuses_remaining(Some(REQUESTS_MAX));
                }
            }
            session.set_pipelined_prefix(head);
            let Some(next) = self.proxy.process_new_http(session, &shutdown).await else { return };
            (stream, reused) = next.consume();
        }
    }

    async fn serve_http2(&self, stream: Stream, shutdown: ShutdownWatch) {
        let begin = |session, busy| {
            let (proxy, shutdown) = (Arc::clone(&self.proxy), shutdown.clone());
            tokio::spawn(async move {
                let _busy: http2::Busy = busy;
                proxy.process_new_http(ServerSession::new_http2(session), &shutdown).await;
            });
        };
        http2::serve(stream, shutdown.clone(), begin).await;
    }

    /// Reads the next head.
    async fn next_head(
        &self,
        stream: &mut Stream,
        is_first: bool,
        shutdown: &mut ShutdownWatch,
    ) -> Head {
        let mut head = BytesMut::with_capacity(HEAD_BYTES_INITIAL);
        let wait = if is_first { HEAD_TIMEOUT } else { IDLE_TIMEOUT };
        tokio::select! {
            biased; // what has arrived is served, even while shutting down
            begun = timeout(wait, stream.read_buf(&mut head)) => match begun {
                Ok(Ok(bytes)) if bytes > 0 => {}
                _ => return Head::None,
            },
            () = closing(shutdown, is_first) => return Head::None,
        }
        let may_be_http2 = is_first && self.h2c;
        match timeout(HEAD_TIMEOUT, complete(stream, head, may_be_http2)).await {
            Ok(head) => head,
            Err(_) => Head::Refused(GatewayError::new(
                ErrorKind::RequestTimeout,
                "The request head did not arrive in time.",
            )),
        }
    }
}

/// Waits until a connection without a request is to be closed. One that has just been accepted is
/// about to have one.
async fn closing(shutdown: &mut ShutdownWatch, is_first: bool) {
    // A sender that is gone shuts down as well.
    drop(shutdown.wait_for(|is_shutting_down| *is_shutting_down).await);
    if is_first {
        tokio::time::sleep(FRESH_TIMEOUT).await;
    }
}

/// What came over a connection.
enum Head {
    /// A complete and sound HTTP/1 head, and what follows it.
    Sound(BytesMut),
    /// The beginning of an HTTP/2 connection.
    Http2(BytesMut),
    /// A head that is not taken.
    Refused(GatewayError),
    /// Nothing: the customer is gone, or had nothing more to ask.
    None,
}

/// Reads until the head in `bytes` is complete, and checks it.
async fn complete(stream: &mut Stream, mut bytes: BytesMut, may_be_http2: bool) -> Head {
    let mut lines = LineScan::default();
    loop {
        if may_be_http2 && bytes.starts_with(HTTP2_PREFACE) {
            return Head::Http2(bytes);
        }
        // The preface holds an empty line, at which it would look like a complete head.
        let is_undecided = may_be_http2 && HTTP2_PREFACE.starts_with(&bytes);
        if !is_undecided && let Some(head) = lines.head_of(&bytes) {
            return match framing::check_head(head) {
                Ok(()) => Head::Sound(bytes),
                Err(error) => Head::Refused(error),
            };
        }
        if bytes.len() >= HEAD_BYTES_MAX {
            return Head::Refused(GatewayError::new(
                ErrorKind::HeaderTooLarge,
                "The request head is too large.",
            ));
        }
        match stream.read_buf(&mut bytes).await {
            Ok(count) if count > 0 => {}
            _ => return Head::None,
        }
    }
}

/// Finds the end of a head that arrives in pieces, looking at each byte once.
#[derive(Default)]
struct LineScan {
    line_start: usize,
    scanned: usize,
}

impl LineScan {
    /// The head, up to its empty line, or up to the first line that ends in a bare LF: such a head
    /// may never have an end that both sides agree on, and the check refuses it.
    fn head_of<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        while let Some(offset) = memchr::memchr(b'\n', bytes.get(self.scanned..)?) {
            let end = self.scanned + offset;
            let line = bytes.get(self.line_start..end)?;
            if line == b"\r" || !line.ends_with(b"\r") {
                return bytes.get(..=end);
            }
            self.line_start = end + 1;
            self.scanned = end + 1;
        }
        self.scanned = bytes.len();
        None
    }
}

/// Sends `answer`, says that no more will come, and listens a little for what is still under way.
async fn say_and_close(mut stream: Stream, answer: &[u8]) {
    let said = async {
        stream.write_all(answer).await?;
        stream.flush().await?;
        AsyncWriteExt::shutdown(&mut stream).await?;
        let mut unread = BytesMut::with_capacity(HEAD_BYTES_MAX);
        let mut bytes_read = 0;
        while bytes_read < LINGER_BYTES_MAX {
            unread.clear();
            match stream.read_buf(&mut unread).await? {
                0 => break,
                count => bytes_read += count,
            }
        }
        std::io::Result::Ok(())
    };
    // A customer who does not read the answer has been refused all the same.
    drop(timeout(LINGER_TIMEOUT, said).await);
}

/// Counts a connection for as long as it lives.
struct Counted<'a>(&'a AtomicUsize, Option<&'a Metrics>);

impl<'a> Counted<'a> {
    fn new(open: &'a AtomicUsize, metrics: Option<&'a Metrics>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        if let Some(metrics) = metrics {
            metrics.connection_begin();
        }
        Self(open, metrics)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        if let Some(metrics) = self.1 {
            metrics.connection_end();
        }
    }
}

#[async_trait]
impl<P> ServerApp for Connections<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let _counted = Counted::new(&self.open, self.metrics.as_deref());
        self.serve(stream, shutdown.clone()).await;
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
    }
}

#[cfg(test)]
mod tests;
