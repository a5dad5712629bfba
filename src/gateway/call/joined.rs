//! A connection to an upstream that sends the head of a request with the beginning of its body.
//!
//! Pingora sends each with a write of its own. A write costs as much as some 25,000 instructions, and
//! on a connection without delays a packet.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use pingora::protocols::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::gateway::listen::wrapped::tells_of_inner;

/// The connection. Whatever is held back goes before anything else.
pub(crate) struct Joined {
    inner: Stream,
    /// Whether what is written and flushed is held back in `head`, to go out with what comes next.
    is_head: AtomicBool,
    head: BytesMut,
}

tells_of_inner!(Joined);

impl Joined {
    pub(crate) fn wrap(inner: Stream) -> Stream {
        Box::new(Self { inner, is_head: AtomicBool::new(false), head: BytesMut::new() })
    }

    /// From now on what is written to `stream` waits for what comes behind it, or not any more.
    pub(crate) fn hold_back(stream: &Stream, is_head: bool) {
        if let Some(joined) = (**stream).as_any().downcast_ref::<Self>() {
            joined.is_head.store(is_head, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Joined {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, bytes)
    }
}

impl AsyncWrite for Joined {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if *this.is_head.get_mut() {
            this.head.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        loop {
            if this.head.is_empty() {
                return Pin::new(&mut this.inner).poll_write(context, bytes);
            }
            let both = [IoSlice::new(&this.head), IoSlice::new(bytes)];
            let inner = Pin::new(&mut this.inner);
            let written = ready!(inner.poll_write_vectored(context, &both))?;
            let of_head = written.min(this.head.len());
            this.head.advance(of_head);
            if written > of_head || written == 0 {
                return Poll::Ready(Ok(written - of_head));
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if *this.is_head.get_mut() {
            return Poll::Ready(Ok(()));
        }
        while !this.head.is_empty() {
            match ready!(Pin::new(&mut this.inner).poll_write(context, &this.head))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => this.head.advance(written),
            }
        }
        Pin::new(&mut this.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use pingora::protocols::l4::stream::Stream as TcpStream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A connection, and its other end.
    async fn connected() -> (Stream, tokio::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let connecting = tokio::net::TcpStream::connect(address);
        let (accepted, connected) = tokio::join!(listener.accept(), connecting);
        let stream = TcpStream::from(connected.expect("connected"));
        (Joined::wrap(Box::new(stream)), accepted.expect("accepted").0)
    }

    #[tokio::test]
    async fn a_head_goes_with_the_beginning_of_its_body_and_before_it() {
        let (mut stream, mut other) = connected().await;
        let (mut read, mut look) = (vec![0; 64 * 1024], [0]);
        for body in [0, 1, 1_000, 40_000] {
            let body = vec![b'b'; body];
            Joined::hold_back(&stream, true);
            stream.write_all(b"head").await.expect("held back");
            stream.flush().await.expect("nothing");
            let early =
                tokio::time::timeout(std::time::Duration::from_millis(20), other.peek(&mut look));
            assert!(early.await.is_err(), "nothing is sent yet");
            Joined::hold_back(&stream, false);
            stream.write_all(&body).await.expect("sent");
            stream.flush().await.expect("sent");
            let sent = read.get_mut(..4 + body.len()).expect("room");
            other.read_exact(sent).await.expect("all of it");
            assert!(sent.starts_with(b"head") && sent.get(4..) == Some(&body[..]));
        }
    }
}
