//! Customers' connections: request heads are read here, within a time and a size, and refused in
//! the gateway's own words, before Pingora parses them.
//!
//! Pingora 0.9.1 bounds each read but not a whole head, waits without end for the first 24 bytes
//! where HTTP/2 is spoken without TLS, and answers a malformed head with an empty 400. So this
//! stands in front of its hooks: they get heads that are complete and sound, and the streams of
//! connections that speak HTTP/2.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::http::RequestHeader;
use pingora::listeners::ConnectionFilter;
use pingora::protocols::http::ServerSession;
use pingora::protocols::l4::stream::Stream as TcpStream;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use pingora::server::configuration::ServerConf;
use pingora::time::timeout;
use pingora_proxy::{HttpProxy, ProxyHttp, http_proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::listen::bounds::{
    HEAD_BYTES_MAX, HEAD_TIMEOUT, IDLE_TIMEOUT, IsAuthenticated, REQUESTS_MAX,
};
use crate::gateway::listen::connection_table::{ConnectionState, ConnectionTable, OpenConnection};
use crate::gateway::listen::deadline::{Deadline, DeadlineStream};
use crate::gateway::listen::http1::{CheckedHead, ClientConnection, Http1Session, KeepAliveSlot};
use crate::gateway::listen::origin::Origin;
use crate::gateway::listen::transport::{self, Transport};
use crate::gateway::listen::{driver, http2};
use crate::gateway::wire::reused_timer::ReusedTimer;
use crate::gateway::wire::shared_read;

/// Connection preface of HTTP/2 (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Maximum size of a read of a request head, in bytes; ordinary heads come with one.
const HEAD_READ_BYTES_MAX: usize = 4 * 1024;
/// Time that a newly accepted connection has for its first request during a shutdown: the request is probably
/// on its way, and closing would lose it.
const FRESH_TIMEOUT: Duration = Duration::from_secs(1);
/// Idle timeout of a connection without any authenticated request. Browsers and probes reconnect at no cost,
/// and a client that only wants to occupy connections has to open them anew.
const UNAUTHENTICATED_IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time, and below it bytes, for which the gateway goes on reading after a refusal. Closing with unread bytes
/// resets the connection, and the answer may be lost with it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// Formats a refusal as a complete HTTP/1.1 message with `connection: close`.
pub(crate) type Refuse = fn(&GatewayError) -> Bytes;

/// The application behind every customer-facing address.
pub struct Connections<P> {
    /// Application for HTTP/1.1.
    proxy: P,
    /// The proxy wrapped in Pingora's `HttpProxy`, which serves each HTTP/2 stream.
    driven: Arc<HttpProxy<P>>,
    transport: Transport,
    /// Accept HTTP/2 with prior knowledge, that is, without ALPN.
    h2c: bool,
    refuse: Refuse,
    open: Arc<ConnectionTable>,
    deadline: Arc<Deadline>,
    is_authenticated: IsAuthenticated,
}

impl<P> Connections<P>
where
    P: ProxyHttp + Clone + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Creates the service of `proxy` for a listener; `open` counts its connections.
    ///
    /// On shutdown idle connections are closed, so none is open as soon as the last answer has left:
    /// requests that are still being read and bytes that are still being written count.
    pub(crate) fn new(
        conf: &Arc<ServerConf>,
        proxy: P,
        transport: Transport,
        h2c: bool,
        refuse: Refuse,
        open: Arc<ConnectionTable>,
    ) -> Self {
        let h2c = h2c && !transport.is_tls();
        let driven = Arc::new(http_proxy(conf, proxy.clone()));
        let (deadline, is_authenticated) = (Arc::default(), Arc::new(|_: &RequestHeader| true));
        Self { proxy, driven, transport, h2c, refuse, open, deadline, is_authenticated }
    }

    /// Cuts requests at this deadline, and asks `is_authenticated` whose streams are taken.
    pub(crate) fn tied_to(
        self,
        deadline: Arc<Deadline>,
        is_authenticated: IsAuthenticated,
    ) -> Self {
        Self { deadline, is_authenticated, ..self }
    }

    /// The filter that admits connections to this listener before they are accepted.
    #[must_use]
    pub fn filter(&self) -> Arc<dyn ConnectionFilter> {
        self.open.filter(self.transport.is_proxied())
    }

    /// Serves a connection from its handshakes to its end.
    async fn run(
        self: Arc<Self>,
        stream: Stream,
        mut ticket: OpenConnection,
        mut shutdown: ShutdownWatch,
    ) {
        // Boxed, as is HTTP/2 below: each is large, and the connection's task lasts longer.
        let opened = Box::pin(self.open(stream, &mut ticket, &mut shutdown)).await;
        let Some(stream) = opened else { return };
        let state = Arc::clone(ticket.state());
        // What gives way is dropped where it stands; requests are settled as they are dropped.
        tokio::select! {
            biased;
            () = self.serve(stream, &state, shutdown) => {}
            () = ticket.close_requested() => {}
        }
    }

    /// Performs the handshakes of a connection up to HTTP; `None` if they fail.
    async fn open(
        &self,
        stream: Stream,
        ticket: &mut OpenConnection,
        shutdown: &mut ShutdownWatch,
    ) -> Option<Stream> {
        let stream = tokio::select! {
            biased; // most connections are open at once
            opened = self.transport.open(stream) => opened?,
            () = ticket.close_requested() => return None,
            () = closing(shutdown, true) => return None,
        };
        let proxied = self.transport.is_proxied().then(|| transport::peer(&stream)).flatten();
        // It stands behind the handshake, which is bounded by time.
        proxied.is_none_or(|proxied| self.open.set_address(ticket, proxied.ip())).then_some(stream)
    }

    async fn serve(
        &self,
        mut stream: Stream,
        state: &Arc<ConnectionState>,
        mut shutdown: ShutdownWatch,
    ) {
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            return Box::pin(self.serve_http2(stream, state, shutdown)).await;
        }
        let mut timer = ReusedTimer::default();
        match self.next_head(&mut stream, HEAD_TIMEOUT, &mut timer, &mut shutdown).await {
            ReceivedHead::Http2(begun) => {
                // Only plain TCP gets here: over TLS the protocol was agreed on.
                let Ok(mut stream) = stream.into_any().downcast::<TcpStream>() else { return };
                stream.rewind(&begun);
                Box::pin(self.serve_http2(stream, state, shutdown)).await;
            }
            first => {
                let wire = ClientConnection::new(
                    DeadlineStream::wrap(stream, &self.deadline),
                    Origin::new(Arc::clone(state)),
                );
                self.serve_http1(wire, first, timer, state, shutdown).await;
            }
        }
    }

    async fn serve_http1(
        &self,
        mut wire: ClientConnection,
        mut next: ReceivedHead,
        mut timer: ReusedTimer,
        state: &Arc<ConnectionState>,
        mut shutdown: ShutdownWatch,
    ) {
        let (returned, mut session) = (KeepAliveSlot::default(), driver::session());
        let mut requests_left = REQUESTS_MAX;
        loop {
            let mut head = match next {
                ReceivedHead::Checked(head) => head,
                ReceivedHead::Refused(error) => {
                    return say_and_close(wire.stream, &(self.refuse)(&error)).await;
                }
                ReceivedHead::Http2(_) | ReceivedHead::None => return,
            };
            if !state.begin() {
                return;
            }
            requests_left -= 1;
            if requests_left == 0 || *shutdown.borrow() {
                head.close_behind();
            }
            let own = Http1Session::new(head, wire, Arc::clone(&returned));
            driver::serve(&self.proxy, &mut session, Box::new(own)).await;
            let Some(back) = returned.lock().take() else { return };
            wire = back;
            state.end();
            let wait =
                if state.is_authenticated() { IDLE_TIMEOUT } else { UNAUTHENTICATED_IDLE_TIMEOUT };
            next = self.next_head(&mut wire.stream, wait, &mut timer, &mut shutdown).await;
        }
    }

    async fn serve_http2(
        &self,
        stream: Stream,
        state: &Arc<ConnectionState>,
        shutdown: ShutdownWatch,
    ) {
        let begin = |session, stream_guard| {
            let (proxy, shutdown) = (Arc::clone(&self.driven), shutdown.clone());
            tokio::spawn(async move {
                let _guard: http2::ActiveStream = stream_guard;
                proxy.process_new_http(ServerSession::new_http2(session), &shutdown).await;
            });
        };
        let admission = http2::StreamAdmission {
            state,
            streams: self.open.streams(),
            is_authenticated: &self.is_authenticated,
        };
        http2::serve(DeadlineStream::in_turns(stream), shutdown.clone(), &admission, begin).await;
    }

    /// Reads the next head.
    async fn next_head(
        &self,
        stream: &mut Stream,
        wait: Duration,
        timer: &mut ReusedTimer,
        shutdown: &mut ShutdownWatch,
    ) -> ReceivedHead {
        let mut head = BytesMut::new();
        let is_first = wait == HEAD_TIMEOUT;
        let begun = {
            let reading = pin!(shared_read::read(stream, &mut head, HEAD_READ_BYTES_MAX));
            tokio::select! {
                biased; // what has arrived is served, even while shutting down
                begun = timer.within(wait, reading) => begun,
                () = closing(shutdown, is_first) => None,
            }
        };
        if !matches!(begun, Some(Ok(1..))) {
            return ReceivedHead::None;
        }
        let may_be_http2 = is_first && self.h2c;
        match timeout(HEAD_TIMEOUT, complete(stream, head, may_be_http2)).await {
            Ok(head) => head,
            Err(_) => ReceivedHead::Refused(GatewayError::new(
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

/// First bytes of a request, as they were received.
enum ReceivedHead {
    /// A complete and sound HTTP/1 head, and what follows it.
    Checked(Box<CheckedHead>),
    /// First bytes of an HTTP/2 connection.
    Http2(BytesMut),
    /// A refused request head.
    Refused(GatewayError),
    /// Nothing: the customer is gone, or had nothing more to ask.
    None,
}

/// Reads until the head in `bytes` is complete, and checks it.
async fn complete(stream: &mut Stream, mut bytes: BytesMut, may_be_http2: bool) -> ReceivedHead {
    let mut lines = LineScan::default();
    loop {
        if may_be_http2 && bytes.starts_with(HTTP2_PREFACE) {
            return ReceivedHead::Http2(bytes);
        }
        // The preface holds an empty line, at which it would look like a complete head.
        let is_undecided = may_be_http2 && HTTP2_PREFACE.starts_with(&bytes);
        if !is_undecided && let Some(head) = lines.head_of(&bytes) {
            let head_bytes = head.len();
            return match CheckedHead::read(bytes, head_bytes, lines.fields()) {
                Ok(head) => ReceivedHead::Checked(head),
                Err(error) => ReceivedHead::Refused(error),
            };
        }
        if bytes.len() >= HEAD_BYTES_MAX {
            return ReceivedHead::Refused(GatewayError::new(
                ErrorKind::HeaderTooLarge,
                "The request head is too large.",
            ));
        }
        match shared_read::read(stream, &mut bytes, HEAD_READ_BYTES_MAX).await {
            Ok(count) if count > 0 => {}
            _ => return ReceivedHead::None,
        }
    }
}

/// Finds the end of a head that arrives in pieces, looking at each byte once.
#[derive(Default)]
struct LineScan {
    line_start: usize,
    scanned: usize,
    /// Number of complete lines that are followed by another.
    count: usize,
}

impl LineScan {
    /// Number of fields of a complete head: its lines without the first. The empty one is not counted.
    fn fields(&self) -> usize {
        self.count.saturating_sub(1)
    }

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
            self.count += 1;
        }
        self.scanned = bytes.len();
        None
    }
}

/// Sends `answer` and the end of the stream, and drains the client's data for a moment so that the answer is
/// not lost in a reset.
async fn say_and_close(mut stream: Stream, answer: &[u8]) {
    let lingered = async {
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
    drop(timeout(LINGER_TIMEOUT, lingered).await);
}

#[async_trait]
impl<P> ServerApp for Connections<P>
where
    P: ProxyHttp + Clone + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let ticket = self.open.register(transport::peer(&stream), self.transport.is_proxied());
        // Pingora's own task has 9 KiB for handshakes that are not made there. This one has what it needs.
        tokio::spawn(Arc::clone(self).run(stream, ticket, shutdown.clone()));
        None
    }

    async fn cleanup(&self) {
        self.driven.http_cleanup().await;
    }
}

#[cfg(test)]
mod tests;
