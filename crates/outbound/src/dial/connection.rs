//! A connection that is open.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A connection to another machine, ready for its first request.
#[derive(Debug)]
pub struct DialedConnection {
    pub(super) io: Io,
    pub(super) address: SocketAddr,
}

/// The transport of a connection.
#[derive(Debug)]
pub(super) enum Io {
    /// A TCP connection without TLS.
    Plain(TcpStream),
    /// TLS with the server or with a proxy.
    Tls(Box<TlsStream<TcpStream>>),
    /// TLS with a server, within TLS with the proxy in front of it.
    TlsInTls(Box<TlsStream<Box<TlsStream<TcpStream>>>>),
}

impl DialedConnection {
    /// The address at the other end of the TCP connection: the proxy's, where there is one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The TCP connection itself.
    #[must_use]
    pub fn tcp(&self) -> &TcpStream {
        match &self.io {
            Io::Plain(stream) => stream,
            Io::Tls(stream) => stream.get_ref().0,
            Io::TlsInTls(stream) => stream.get_ref().0.get_ref().0,
        }
    }
}

/// Calls the stream of a connection, whichever kind it is.
macro_rules! with_stream {
    ($io:expr, $stream:ident => $call:expr) => {
        match $io {
            Io::Plain($stream) => $call,
            Io::Tls($stream) => $call,
            Io::TlsInTls($stream) => $call,
        }
    };
}

/// Reads and writes through what `$io` makes of a value.
macro_rules! forward {
    ($type:ty, $this:ident => $io:expr) => {
        impl AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                with_stream!(&mut $io, stream => Pin::new(stream).poll_read(context, buffer))
            }
        }

        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                let $this = self.get_mut();
                with_stream!(&mut $io, stream => Pin::new(stream).poll_write(context, bytes))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                pieces: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $this = self.get_mut();
                with_stream!(&mut $io, stream => {
                    Pin::new(stream).poll_write_vectored(context, pieces)
                })
            }

            fn is_write_vectored(&self) -> bool {
                let $this = self;
                with_stream!(&$io, stream => stream.is_write_vectored())
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                with_stream!(&mut $io, stream => Pin::new(stream).poll_flush(context))
            }

            fn poll_shutdown(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                with_stream!(&mut $io, stream => Pin::new(stream).poll_shutdown(context))
            }
        }
    };
}

// Handshakes with a proxy write to an `Io`, callers to the connection, where one vectored write takes a head
// and a body.
forward!(Io, io => *io);
forward!(DialedConnection, connection => connection.io);
