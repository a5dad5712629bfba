//! One call to an upstream over HTTP/1.1, step by step: Pingora's connections, their pool, TLS and
//! parser, without the loop that couples them to a customer's connection. So an answer can be read to
//! its end whoever is left to listen, and how much of a request was sent is known.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::Version;
use http::header::{HeaderName, TRANSFER_ENCODING};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Stream;
use pingora::protocols::http::v1::client::HttpSession;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::upstreams::peer::{HttpPeer, Peer};
use pingora::{Error, ErrorType, Result, RetryType};

use crate::gateway::call::connectors::Connectors;
use crate::gateway::call::joined::Joined;

/// A request body is handed over in pieces of this size: the time to write counts for each, and
/// between two of them an answer that came early is noticed.
const WRITE_BYTES: usize = 64 * 1024;
/// How long an upstream that takes no more of a request has to say why.
const EARLY_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Informational answers before the real one. Nobody sends more than a few.
const INFORMATIONAL_MAX: u32 = 16;

/// So much of a body is looked at before it is taken: blank lines, with which an upstream that thinks
/// keeps a connection alive, are no more.
const LOOKED_AT_BYTES_MAX: usize = 64 * 1024;

/// The connections to all upstreams.
pub(crate) struct Upstreams(Arc<Connectors>);

/// How much of a request has been handed to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing, or not all: an upstream that has no whole request cannot have begun with it.
    NotWhole,
    /// All of it: the upstream may be at work.
    Whole,
}

/// A call under way.
pub(crate) struct UpstreamCall {
    /// Large, and moved from step to step.
    session: Box<HttpSession>,
    peer: Box<HttpPeer>,
    /// What the connection is kept under.
    key: u64,
    /// The connection has served a request before.
    reused: bool,
    /// What the other side had acknowledged when this request began, on a connection that served
    /// others before: what tells whether any of this one has arrived.
    acked_before: Option<u64>,
    sent: Sent,
    /// The answer's head came before the request was whole.
    answered_early: bool,
    /// What went wrong when more of the answer was looked for than was waited for.
    failed: Option<Box<Error>>,
    /// The beginning of the body, where it was looked at before it is taken.
    looked_at: Bytes,
}

impl Upstreams {
    /// Those that `connectors` make and keep.
    pub(crate) fn new(connectors: Arc<Connectors>) -> Self {
        Self(connectors)
    }

    /// A connection for one request: one that is there, or a new one.
    ///
    /// # Errors
    /// What keeps it from being made. Nothing was sent.
    pub(crate) async fn connect(&self, peer: Box<HttpPeer>) -> Result<UpstreamCall> {
        let key = peer.reuse_hash();
        let connector = self.0.get(peer.tls()).await.map_err(|error| error.into_up())?;
        let kept = connector.reused_stream(&KeptPeer { peer: &peer, key }).await;
        let (stream, reused) = match kept.filter(|stream| leads_to(stream, &peer)) {
            Some(stream) => (stream, true),
            // Making one takes a future of 20 KB, which most requests do without.
            None => {
                let made = Box::pin(connector.new_stream(&*peer)).await;
                (Joined::wrap(made.map_err(|error| error.into_up())?), false)
            }
        };
        let mut session = Box::new(HttpSession::new_with_options(stream, &*peer));
        session.write_timeout = peer.options.write_timeout;
        let sent = Sent::NotWhole;
        let mut call = UpstreamCall {
            session,
            peer,
            key,
            reused,
            acked_before: None,
            sent,
            answered_early: false,
            failed: None,
            looked_at: Bytes::new(),
        };
        if reused {
            call.acked_before = call.acked();
        }
        Ok(call)
    }

    /// Keeps the connection for another request, if its answer ended in order.
    pub(crate) async fn release(&self, call: UpstreamCall) {
        let UpstreamCall { mut session, peer, key, sent, .. } = call;
        if sent == Sent::Whole {
            session.respect_keepalive();
            if let Some(stream) = session.reuse().await
                && let Ok(connector) = self.0.get(peer.tls()).await
            {
                connector.release_stream(stream, key, peer.options.idle_timeout);
            }
        }
    }
}

/// Whom a connection is looked for that was kept. The connector would ask the kernel each time where it
/// leads to, which [`leads_to`] remembers.
#[derive(Clone)]
struct KeptPeer<'a> {
    peer: &'a HttpPeer,
    key: u64,
}

impl fmt::Display for KeptPeer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.fmt(f)
    }
}

impl Peer for KeptPeer<'_> {
    fn address(&self) -> &SocketAddr {
        self.peer.address()
    }

    fn tls(&self) -> bool {
        self.peer.tls()
    }

    fn sni(&self) -> &str {
        self.peer.sni()
    }

    fn reuse_hash(&self) -> u64 {
        self.key
    }

    fn matches_fd<V: std::os::fd::AsRawFd>(&self, _fd: V) -> bool {
        true
    }
}

/// Whether a connection leads to the peer's address: two peers may be kept under one key by chance.
fn leads_to(stream: &Stream, peer: &HttpPeer) -> bool {
    let Some(wanted) = peer.address().as_inet() else { return false };
    let digest = stream.get_socket_digest();
    let other = digest.as_ref().and_then(|digest| digest.peer_addr()?.as_inet());
    // Where connections to no address in particular lead, the system decides.
    let is_it = |other: &std::net::SocketAddr| {
        other.port() == wanted.port() && (other.ip() == wanted.ip() || wanted.ip().is_unspecified())
    };
    other.is_some_and(is_it)
}

impl UpstreamCall {
    /// Sends the request. An upstream that answers before it has all of it is listened to.
    ///
    /// # Errors
    /// The connection's, and a write that took too long.
    pub(crate) async fn send(&mut self, header: RequestHeader, body: &Bytes) -> Result<()> {
        let written = self.write(header, body).await;
        if let Err(error) = written {
            // An upstream that refuses a request while it is being sent closes its side, and what it
            // says stands in the connection.
            self.session.read_timeout = Some(EARLY_ANSWER_TIMEOUT);
            if self.session.read_response().await.is_err() {
                return Err(error.into_up());
            }
            self.answered_early = true;
        }
        self.session.read_timeout = self.peer.options.read_timeout;
        Ok(())
    }

    async fn write(&mut self, header: RequestHeader, body: &Bytes) -> Result<()> {
        Joined::hold_back(self.session.stream(), true);
        let written = self.session.write_request_header(Box::new(header)).await;
        Joined::hold_back(self.session.stream(), false);
        written?;
        for (index, piece) in body.chunks(WRITE_BYTES).enumerate() {
            if index > 0
                && let Some(early) = self.session.read_response().now_or_never()
            {
                early?;
                self.answered_early = true;
                return Ok(());
            }
            self.session.write_body(piece).await?;
        }
        self.session.finish_body().await?;
        self.sent = Sent::Whole;
        Ok(())
    }

    /// Waits for the head of the answer. It may be waited for again after a time-out.
    ///
    /// # Errors
    /// The connection's, a head that is none, and a silence that took too long.
    pub(crate) async fn head(&mut self) -> Result<ResponseHeader> {
        let mut informational = 0;
        loop {
            if !std::mem::take(&mut self.answered_early) {
                self.session.read_response().await.map_err(|error| error.into_up())?;
            }
            let Some(header) = self.session.resp_header() else {
                return Err(Error::new_up(ErrorType::InvalidHTTPHeader));
            };
            let status = header.status;
            if !status.is_informational() || status.as_u16() == 101 {
                return Ok(header.clone());
            }
            informational += 1;
            if informational > INFORMATIONAL_MAX {
                return Err(Error::new_up(ErrorType::InvalidHTTPHeader));
            }
        }
    }

    /// The next piece of the answer's body; `None` at its end.
    ///
    /// # Errors
    /// A body that breaks off, or is silent for too long.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        if !self.looked_at.is_empty() {
            return Ok(Some(std::mem::take(&mut self.looked_at)));
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        loop {
            let read = self.session.read_body_bytes().await.map_err(|error| error.into_up())?;
            match read {
                // A chunk's size may come without any of its bytes.
                Some(chunk) if chunk.is_empty() => {}
                read => return Ok(read),
            }
        }
    }

    /// The beginning of the answer's body, which [`Self::chunk`] gives again: its first piece, or as
    /// many as it takes until `is_enough`. It may be looked at again after a time-out.
    ///
    /// # Errors
    /// A body that breaks off, or is silent for too long.
    pub(crate) async fn look(&mut self, is_enough: impl Fn(&[u8]) -> bool) -> Result<Bytes> {
        let mut begun = std::mem::take(&mut self.looked_at);
        while begun.is_empty() || !is_enough(&begun) && begun.len() < LOOKED_AT_BYTES_MAX {
            match self.chunk().await {
                // One piece is enough as a rule, and stays where it is.
                Ok(Some(piece)) if begun.is_empty() => begun = piece,
                Ok(Some(piece)) => {
                    let mut joined = BytesMut::from(begun);
                    joined.extend_from_slice(&piece);
                    begun = joined.freeze();
                }
                Ok(None) => break,
                Err(error) => {
                    self.looked_at = begun;
                    return Err(error);
                }
            }
        }
        self.looked_at = begun;
        Ok(self.looked_at.clone())
    }

    /// What is there of the answer's body without waiting: a piece, or `Some(None)` at its end. What
    /// goes wrong is told by the next [`Self::chunk`].
    pub(crate) fn chunk_now(&mut self) -> Option<Option<Bytes>> {
        match self.chunk().now_or_never()? {
            Ok(chunk) => Some(chunk),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    /// Whether nothing stands behind what [`Self::look`] has shown.
    pub(crate) fn has_shown_all(&mut self) -> bool {
        self.session.is_body_done()
    }

    /// Whether all of the answer has been read.
    pub(crate) fn is_done(&mut self) -> bool {
        self.looked_at.is_empty() && self.session.is_body_done()
    }

    /// From now on silences have no limit of their own.
    pub(crate) fn wait_without_limit(&mut self) {
        self.session.read_timeout = None;
    }

    /// Whether the connection had served a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether it is certain, after this error in the place of an answer, that the upstream has not
    /// begun with the request: it has not got all of it. On a connection that was kept, an orderly
    /// end without an acknowledgement of a single byte was under way before the request.
    pub(crate) fn has_not_begun(&self, error: &Error) -> bool {
        if self.sent == Sent::NotWhole {
            return true;
        }
        // What Pingora says where a connection ends before the first byte of an answer.
        let ended_in_order = *error.etype() == ErrorType::ConnectionClosed
            && matches!(error.retry, RetryType::ReusedOnly);
        ended_in_order && self.acked_before.is_some() && self.acked() == self.acked_before
    }

    fn acked(&self) -> Option<u64> {
        let digest = self.session.digest().socket_digest.as_ref()?;
        Some(digest.tcp_info()?.tcpi_bytes_acked)
    }
}

/// Makes the head of an answer one for HTTP/1.1: a body whose end only the end of the connection
/// tells goes on in chunks.
pub(crate) fn delimit(header: &mut ResponseHeader) -> Result<()> {
    let has_body = !matches!(header.status.as_u16(), 204 | 304);
    let is_delimited = header.headers.contains_key(TRANSFER_ENCODING)
        || header.headers.contains_key(http::header::CONTENT_LENGTH);
    header.set_version(Version::HTTP_11);
    if has_body && !is_delimited {
        header.insert_header(TRANSFER_ENCODING, "chunked")?;
    }
    // What is said between two neighbours.
    for name in [HeaderName::from_static("keep-alive"), http::header::CONNECTION] {
        header.remove_header(&name);
    }
    Ok(())
}
