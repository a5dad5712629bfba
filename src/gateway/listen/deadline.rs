//! The end of the time that requests in flight get when the process is to end.
//!
//! A response that waits for its upstream listens to its customer meanwhile, to notice that one has
//! gone, and to nothing else. So customers' connections over HTTP/1.1 are wrapped, and at the deadline reading from them fails: the request ends as it would if its
//! customer had gone, except that the connection can still be written to and is told why. Streams
//! over HTTP/2 are told with the next piece that their upstream sends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use pingora::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::listen::stream_delegation::delegate_to_inner;

/// Deadline of requests in flight during a shutdown.
#[derive(Debug, Default)]
pub struct Deadline {
    is_near: AtomicBool,
    is_over: AtomicBool,
    near: watch::Sender<bool>,
    over: watch::Sender<bool>,
}

impl Deadline {
    /// Close connections after each response, since no further one follows.
    pub fn approach(&self) {
        self.is_near.store(true, Ordering::Release);
        self.near.send_replace(true);
    }

    /// Waits until connections are to be closed behind each answer.
    pub(crate) fn approached(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        waits(&self.near)
    }

    /// True while connections are to be closed after each answer.
    pub(crate) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Acquire)
    }

    /// Ends the requests in flight.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.over.send_replace(true);
    }

    /// True once requests in flight must end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The result of `work`, or `None` if the deadline comes first.
    pub(crate) async fn or_done<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.reached() => None,
        }
    }

    /// Waits until they must.
    pub(crate) fn reached(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        waits(&self.over)
    }
}

/// Completes when the deadline is signalled.
fn waits(over: &watch::Sender<bool>) -> impl Future<Output = ()> + Send + Sync + 'static {
    let mut over = over.subscribe();
    async move {
        // A deadline that is gone is not reached any more.
        if over.wait_for(|is_reached| *is_reached).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Error for a customer whose request is cut at the deadline.
pub(crate) fn stopping(has_begun: bool) -> GatewayError {
    let message = if has_begun {
        "The gateway is stopping and had to cut the answer. What was delivered is charged."
    } else {
        "The gateway is stopping. Try again shortly; nothing was charged."
    };
    let error = GatewayError::new(ErrorKind::Overloaded, message);
    if has_begun { error } else { error.retry_after(std::time::Duration::from_secs(1)) }
}

/// Reads of a connection over HTTP/2 before it is others' turn, of some 8 KiB each. Tokio's own turn ends
/// after 128 of up to 64 KiB, which can be 500,000 frames that ask for nothing.
const READS_IN_TURN: u8 = 4;

/// A customer's connection that cannot be read any more once the deadline is over.
pub(crate) struct DeadlineStream {
    inner: Stream,
    deadline: Arc<Deadline>,
    reached: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    /// Waker of the task that reads the connection, woken at the deadline. A connection is nearly always read
    /// by one task.
    woken: Option<Waker>,
    /// Reads in one turn; 0 for as many as there are.
    reads_max: u8,
    /// Reads in the current turn.
    reads: u8,
}

delegate_to_inner!(DeadlineStream);

impl DeadlineStream {
    pub(crate) fn wrap(inner: Stream, deadline: &Arc<Deadline>) -> Stream {
        Box::new(Self::new(inner, deadline, 0))
    }

    /// A connection over HTTP/2, which is not cut, and read a little in each turn.
    pub(crate) fn in_turns(inner: Stream) -> Stream {
        Box::new(Self::new(inner, &Arc::default(), READS_IN_TURN))
    }

    fn new(inner: Stream, deadline: &Arc<Deadline>, reads_max: u8) -> Self {
        let deadline = Arc::clone(deadline);
        let reached = Box::pin(deadline.reached());
        Self { inner, deadline, reached, woken: None, reads_max, reads: 0 }
    }
}

impl AsyncRead for DeadlineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reads_max > 0 && self.reads >= self.reads_max {
            self.reads = 0;
            // Tokio polls the others of the thread first, and comes back here.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(context, bytes) {
            self.reads = self.reads.saturating_add(1);
            return Poll::Ready(read);
        }
        self.reads = 0;
        if !self.deadline.is_over() {
            let waker = context.waker();
            if self.woken.as_ref().is_some_and(|woken| woken.will_wake(waker)) {
                return Poll::Pending;
            }
            // Polling the future of the deadline registers the waker: done once for each task, not with each
            // read.
            self.woken = Some(waker.clone());
            ready!(self.reached.as_mut().poll(context));
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the gateway is stopping")))
    }
}

impl AsyncWrite for DeadlineStream {
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
