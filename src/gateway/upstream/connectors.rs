//! Dialers of connections to upstreams.

use std::io;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tollgate_options::network::Destination;
use tollgate_outbound::{
    AllowedAddresses, DialError, DialedConnection, Dialer, ResolvedName, read_roots,
};

use crate::config::snapshot::{Snapshot, Upstream};

/// Path of root certificates that does not exist.
pub(crate) const NO_ROOTS: &str = "/dev/null";

/// Connectors to all upstreams.
#[derive(Debug, Default)]
pub struct Connectors {
    dialer: Arc<Dialer>,
}

impl Connectors {
    /// The dialer, which caches addresses.
    #[must_use]
    pub fn dialer(&self) -> &Arc<Dialer> {
        &self.dialer
    }

    /// Starts loading the machine's root certificates if an upstream of `config` uses TLS, so that its first
    /// call does not wait for them. Loading takes longer than the rest of startup, and some megabytes.
    pub fn begin(&self, config: &Snapshot) {
        if config.upstreams.values().any(|upstream| upstream.is_tls()) {
            tokio::task::spawn_blocking(read_roots);
        }
    }

    /// The addresses of an upstream's host; `None` where there is nothing to look up.
    ///
    /// # Errors
    /// The name was never found.
    pub(crate) async fn addresses_of(
        &self,
        to: &Destination,
    ) -> Result<Option<Arc<ResolvedName>>, DialError> {
        self.dialer.addresses_of(to).await
    }

    /// A new connection to an upstream.
    ///
    /// # Errors
    /// Why there is none. Nothing was sent.
    pub(crate) async fn connect(&self, upstream: &Upstream) -> Result<DialedStream, DialError> {
        let to = &upstream.destination;
        let dialed = self.dialer.dial(to, AllowedAddresses::All, upstream.timeouts.connect).await?;
        let address = dialed.address();
        let digest = Arc::new(SocketDigest::from_raw_fd(dialed.tcp().as_raw_fd()));
        let stream: Stream = Box::new(DialedIo { connection: dialed, digest });
        Ok(DialedStream { stream, address })
    }
}

/// A connection that was just opened.
pub(crate) struct DialedStream {
    /// The connection itself.
    pub(crate) stream: Stream,
    /// Remote address: the proxy's, if one is used.
    pub(crate) address: std::net::SocketAddr,
}

/// A connection as Pingora's streams are.
#[derive(Debug)]
struct DialedIo {
    connection: DialedConnection,
    /// Socket options and addresses.
    digest: Arc<SocketDigest>,
}

impl AsyncRead for DialedIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_read(context, buffer)
    }
}

impl AsyncWrite for DialedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(context)
    }
}

#[async_trait]
impl Shutdown for DialedIo {
    async fn shutdown(&mut self) {
        // It is closed all the same.
        drop(self.connection.shutdown().await);
    }
}

impl UniqueID for DialedIo {
    fn id(&self) -> UniqueIDType {
        self.connection.tcp().as_raw_fd()
    }
}

impl Ssl for DialedIo {}

impl GetTimingDigest for DialedIo {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for DialedIo {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for DialedIo {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::clone(&self.digest))
    }
}

impl Peek for DialedIo {}
