//! The end of the time that requests in flight get when the process is to end.
//!
//! Pingora has no way to interrupt a response that waits for its upstream. It does listen to the
//! customer meanwhile, to notice that one has gone. So customers' connections over HTTP/1.1 are
//! wrapped, and at the deadline reading from them fails: the request ends as it would if its
//! customer had gone, except that the connection can still be written to and is told why. Streams
//! over HTTP/2 are told with the next piece that their upstream sends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use async_trait::async_trait;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::error::{ErrorKind, GatewayError};

/// When requests in flight must end.
#[derive(Debug, Default)]
pub struct Deadline {
    is_near: AtomicBool,
    is_over: AtomicBool,
    told: watch::Sender<bool>,
}

impl Deadline {
    /// From now on connections are closed behind each answer, since there will be no further one.
    pub fn approach(&self) {
        self.is_near.store(true, Ordering::Release);
    }

    /// Whether connections are to be closed behind each answer.
    pub(super) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Acquire)
    }

    /// Ends the requests in flight, for good.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.told.send_replace(true);
    }

    /// Whether requests in flight must end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// What `work` comes to, or `None` if they must end before it is done.
    pub(super) async fn or_done<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.reached() => None,
        }
    }

    /// Waits until they must.
    fn reached(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let mut told = self.told.subscribe();
        async move {
            // A deadline that is gone is not reached any more.
            if told.wait_for(|is_over| *is_over).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// What a customer reads whose request the deadline has cut.
pub(super) fn stopping(has_begun: bool) -> GatewayError {
    let message = if has_begun {
        "The gateway is stopping and had to cut the answer. What was delivered is charged."
    } else {
        "The gateway is stopping. Try again shortly; nothing was charged."
    };
    let error = GatewayError::new(ErrorKind::Overloaded, message);
    if has_begun { error } else { error.retry_after(std::time::Duration::from_secs(1)) }
}

/// A customer's connection that cannot be read any more once the deadline is over.
pub(super) struct Cuttable {
    inner: Stream,
    deadline: Arc<Deadline>,
    reached: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Who is woken at the deadline. A connection is nearly always read by one task.
    woken: Option<Waker>,
}

impl Cuttable {
    pub(super) fn wrap(inner: Stream, deadline: &Arc<Deadline>) -> Stream {
        let reached = Box::pin(deadline.reached());
        Box::new(Self { inner, deadline: Arc::clone(deadline), reached, woken: None })
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(context, bytes) {
            return Poll::Ready(read);
        }
        if !self.deadline.is_over() {
            let waker = context.waker();
            if self.woken.as_ref().is_some_and(|woken| woken.will_wake(waker)) {
                return Poll::Pending;
            }
            self.woken = Some(waker.clone());
            ready!(self.reached.as_mut().poll(context));
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the gateway is stopping")))
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl std::fmt::Debug for Cuttable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cuttable").field(&self.inner).finish()
    }
}

#[async_trait]
impl Shutdown for Cuttable {
    async fn shutdown(&mut self) {
        self.inner.shutdown().await;
    }
}

impl UniqueID for Cuttable {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Cuttable {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for Cuttable {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> std::time::Duration {
        self.inner.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> std::time::Duration {
        self.inner.get_write_pending_time()
    }
}

impl GetProxyDigest for Cuttable {
    fn get_proxy_digest(&self) -> Option<Arc<pingora::protocols::raw_connect::ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for Cuttable {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

#[async_trait]
impl Peek for Cuttable {
    async fn try_peek(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        self.inner.try_peek(bytes).await
    }
}
