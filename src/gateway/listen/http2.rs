//! HTTP/2 connections: their bounds, and the loop that takes their streams.
//!
//! Pingora's own loop waits for a client's first bytes without end, sets no limit to the requests
//! of a connection, and closes idle ones without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pingora::protocols::http::v2::server::{H2Accept, H2Options, HttpSession, handshake};
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use pingora::time::{sleep, timeout};
use tokio::sync::Notify;

use crate::gateway::listen::bounds::{
    HEAD_BYTES_MAX, HEAD_TIMEOUT, IDLE_TIMEOUT, IsAuthenticated, REQUESTS_MAX,
};
use crate::gateway::listen::connection_table::{ConnectionState, StreamSlot, Streams};
use crate::gateway::listen::origin::Origin;
use crate::metrics::StreamRefused;

/// Requests of one connection at a time: RFC 9113, section 6.5.2 wants no less.
const STREAMS_MAX: u32 = 100;
/// Streams that the client has reset while they still waited to be taken. A client that gives up
/// 20 times within one turn of the loop is not in two minds but in a flood (CVE-2023-44487).
const PENDING_RESETS_MAX: usize = 20;
/// Streams that the gateway has reset and must still know of, because frames for them may be under
/// way; it forgets the oldest.
const OWN_RESETS_MAX: usize = 50;
/// Streams of one connection that end in an error of its protocol.
const ERROR_RESETS_MAX: usize = 256;
/// Malformed requests of one connection. Libraries send none.
const REFUSED_MAX: u32 = 32;
/// Streams of one connection that are refused. Libraries then wait for others to end.
const TURNED_AWAY_MAX: u32 = 1000;
/// Bytes of one stream that may wait to be sent: a customer who opens 100 streams, grants every window and
/// reads nothing costs 6 MiB.
const SEND_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Time that the client has, after its last request, to notice GOAWAY.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Admission of streams on a connection.
pub(crate) struct StreamAdmission<'a> {
    /// The connection that the request came over.
    pub(crate) state: &'a Arc<ConnectionState>,
    /// The streams of all connections.
    pub(crate) streams: &'a Arc<Streams>,
    /// True if the header of a stream has a valid API key.
    pub(crate) is_authenticated: &'a IsAuthenticated,
}

impl StreamAdmission<'_> {
    /// Takes a slot for this stream, with `active` others on its connection. The key is looked up before
    /// anything is counted, so that unauthenticated streams take no slots from others.
    fn enter(&self, session: &HttpSession, active: usize) -> Result<StreamSlot, StreamRefused> {
        let header = session.req_header();
        if !self.state.is_authenticated() && (self.is_authenticated)(header) {
            self.state.set_authenticated();
        }
        self.streams.enter(self.state, &header.headers, active)
    }
}

/// An active stream: as long as there is one, the connection is not idle.
pub(crate) struct ActiveStream {
    active: Arc<ActiveStreams>,
    _slot: StreamSlot,
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        if self.active.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.active.state.end();
            self.active.idle.notify_one();
        }
    }
}

/// Streams that are being served.
struct ActiveStreams {
    state: Arc<ConnectionState>,
    count: AtomicUsize,
    idle: Notify,
}

impl ActiveStreams {
    fn new(state: &Arc<ConnectionState>) -> Arc<Self> {
        let (count, idle) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Self { state: Arc::clone(state), count, idle })
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Begins a stream; `None` if the connection must close.
    fn begin(self: &Arc<Self>, slot: StreamSlot) -> Option<ActiveStream> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let stream_guard = ActiveStream { active: Arc::clone(self), _slot: slot };
        self.state.begin().then_some(stream_guard)
    }

    /// Waits until no stream has been active for this long.
    async fn idle_for(&self, time: Duration) {
        while self.count() > 0 {
            self.idle.notified().await;
        }
        sleep(time).await;
    }
}

/// Serves a connection to its end. `begin` starts each request; it keeps [`ActiveStream`] until it is over.
pub(crate) async fn serve(
    stream: Stream,
    mut shutdown: ShutdownWatch,
    admission: &StreamAdmission<'_>,
    begin: impl Fn(HttpSession, ActiveStream),
) {
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: Origin::new(Arc::clone(admission.state)).into_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let shaken = timeout(HEAD_TIMEOUT, handshake(stream, Some(options()))).await;
    let Ok(Ok(mut connection)) = shaken else { return };
    let active = ActiveStreams::new(admission.state);
    let (mut taken, mut refused, mut turned_away, mut is_closing) = (0, 0, 0, false);
    loop {
        let idle_max = match (is_closing, taken) {
            (true, _) => CLOSE_TIMEOUT,
            (false, 0) => HEAD_TIMEOUT,
            (false, _) => IDLE_TIMEOUT,
        };
        let accepted = tokio::select! {
            biased;
            _ = shutdown.wait_for(|is_shutting_down| *is_shutting_down), if !is_closing => None,
            accepted = HttpSession::from_h2_conn(&mut connection, Arc::clone(&digest)) => {
                Some(accepted)
            }
            () = active.idle_for(idle_max) => {
                if is_closing {
                    return;
                }
                None
            }
        };
        match accepted {
            Some(Ok(Some(H2Accept::Session(mut session)))) => {
                match admission.enter(&session, active.count()) {
                    Ok(slot) => {
                        let Some(stream_guard) = active.begin(slot) else { return };
                        begin(session, stream_guard);
                    }
                    Err(why) => {
                        admission.streams.turned_away(why);
                        session.shutdown_with_reason(h2::Reason::REFUSED_STREAM);
                        turned_away += 1;
                        if turned_away == TURNED_AWAY_MAX {
                            return;
                        }
                    }
                }
                taken += 1;
                if taken != REQUESTS_MAX {
                    continue;
                }
            }
            Some(Ok(Some(H2Accept::Rejected))) => {
                refused += 1;
                if refused == REFUSED_MAX {
                    return;
                }
                continue;
            }
            // The client has disconnected, or has broken the protocol and was answered.
            Some(Ok(None) | Err(_)) => return,
            // It is idle for too long, or the gateway is about to end.
            None => {}
        }
        // What is under way is served; the client is asked to open another connection.
        connection.graceful_shutdown();
        is_closing = true;
    }
}

fn options() -> H2Options {
    let mut options = H2Options::default();
    let head_bytes_max = u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX);
    options
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(head_bytes_max)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_concurrent_reset_streams(OWN_RESETS_MAX)
        .max_local_error_reset_streams(Some(ERROR_RESETS_MAX))
        .max_send_buffer_size(SEND_BUFFER_BYTES_MAX);
    options
}
