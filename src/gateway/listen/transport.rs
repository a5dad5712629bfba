//! Layers between a TCP connection and its HTTP: the PROXY protocol, then TLS.
//!
//! Pingora's own TLS listener would do, but for three things: it gives a handshake a minute, it
//! logs an error for every one that fails, and it does not count connections that are in it. So a
//! listener stays one of plain TCP, and the handshake, still Pingora's, is made here.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::l4::socket::SocketAddr as PeerAddr;
use pingora::protocols::l4::stream::Stream as TcpStream;
use pingora::protocols::{GetSocketDigest as _, SocketDigest, Stream};
use pingora::time::timeout;
use tokio::io::AsyncReadExt as _;

use crate::gateway::listen::certificates::Certificates;
use crate::gateway::listen::proxy_protocol::{self, ProxyHeader};

/// The time within which the PROXY header and the handshake must both be done. A handshake over the
/// worst of networks is three round trips of a second; a load balancer sends its header at once.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Initial capacity of the buffer for a PROXY header; ordinary ones need no more.
const HEADER_BYTES_INITIAL: usize = 256;

/// Layers of a listener's connections below HTTP.
#[derive(Clone)]
pub struct Transport {
    proxy_protocol: bool,
    tls: Option<Arc<Acceptor>>,
}

impl Transport {
    /// Plain TCP without a PROXY header.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { proxy_protocol: false, tls: None };

    /// A PROXY header first, if it is asked for, then TLS, if there are certificates.
    ///
    /// # Errors
    /// When TLS cannot be prepared.
    pub fn new(
        proxy_protocol: bool,
        certificates: Option<Arc<Certificates>>,
    ) -> Result<Self, rustls::Error> {
        let tls = certificates.map(acceptor).transpose()?.map(Arc::new);
        Ok(Self { proxy_protocol, tls })
    }

    /// True if HTTP is spoken over TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// True if a PROXY header names the client.
    pub(crate) fn is_proxied(&self) -> bool {
        self.proxy_protocol
    }

    /// Performs the handshakes of a connection up to HTTP; `None` if they fail.
    pub(crate) async fn open(&self, stream: Stream) -> Option<Stream> {
        if !self.proxy_protocol && self.tls.is_none() {
            return Some(stream);
        }
        let opened = timeout(OPEN_TIMEOUT, self.begin(stream)).await;
        opened.ok().flatten()
    }

    async fn begin(&self, stream: Stream) -> Option<Stream> {
        let mut stream: Box<TcpStream> = stream.into_any().downcast().ok()?;
        if self.proxy_protocol {
            read_proxy_header(&mut stream).await?;
        }
        let Some(acceptor) = &self.tls else { return Some(stream) };
        match Box::pin(acceptor.tls_handshake(*stream)).await {
            Ok(stream) => Some(Box::new(stream)),
            Err(error) => {
                // Scanners fail all day long.
                log::debug!("TLS handshake: {error}");
                None
            }
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("proxy_protocol", &self.proxy_protocol)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// Accepts TLS, with HTTP/2 before HTTP/1.1.
fn acceptor(certificates: Arc<Certificates>) -> Result<Acceptor, rustls::Error> {
    Ok(Acceptor::from_server_config(Arc::new(certificates.into_tls(&[b"h2", b"http/1.1"])?)))
}

/// Address of the client: the TCP peer, or the one that a PROXY header names.
pub(crate) fn peer(stream: &Stream) -> Option<SocketAddr> {
    stream.get_socket_digest()?.peer_addr()?.as_inet().copied()
}

/// Reads the header, and from then on names the client that it names. `None` without a header.
async fn read_proxy_header(stream: &mut TcpStream) -> Option<()> {
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES_INITIAL);
    let (end, client) = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        match proxy_protocol::parse(&bytes) {
            // What is still incomplete is shorter than a header may be.
            ProxyHeader::Incomplete => {}
            ProxyHeader::Complete(end, client) => break (end, client),
            ProxyHeader::Invalid => return None,
        }
    };
    stream.rewind(bytes.get(end..)?);
    if let Some(client) = client {
        stream.set_socket_digest(digest(stream, client)?);
    }
    Some(())
}

/// The socket with the client's address from the PROXY header.
fn digest(stream: &TcpStream, client: SocketAddr) -> Option<SocketDigest> {
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    digest.peer_addr.set(Some(PeerAddr::Inet(client))).ok()?;
    Some(digest)
}
