//! The floors: the least that a Pingora proxy can do, run in the same way as tollgate runs its own.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd as _;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use parking_lot::Mutex;
use pingora::server::Fds;
use pingora::server::configuration::ServerConf;
use pingora::services::Service as _;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType};
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use serde::Deserialize;
use tokio::sync::watch;

/// A floor's work on a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FloorKind {
    /// Each piece is sent on as it comes.
    Pass,
    /// The whole body is read, and its `model` is found with an ordinary JSON parser, before it is sent on: the
    /// least that is done by whoever routes by model.
    Buffer,
}

/// Passes a body on piece by piece.
struct Floor(SocketAddr);

#[async_trait]
impl ProxyHttp for Floor {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        (): &mut (),
    ) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }
}

/// Reads a body to its end first.
struct BufferedFloor(SocketAddr);

/// As much of a request as routing needs.
#[derive(Deserialize)]
struct RoutedRequest<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
}

#[async_trait]
impl ProxyHttp for BufferedFloor {
    type CTX = BytesMut;

    fn new_ctx(&self) -> BytesMut {
        BytesMut::new()
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        buffer: &mut BytesMut,
    ) -> pingora::Result<Box<HttpPeer>> {
        let length = session.req_header().headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        buffer.reserve(length.unwrap_or_default());
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        buffer: &mut BytesMut,
    ) -> pingora::Result<()> {
        if let Some(piece) = body.take() {
            buffer.extend_from_slice(&piece);
        }
        if !end_of_stream {
            // No bytes yet: `None` would tell Pingora that the body has ended.
            *body = Some(Bytes::new());
            return Ok(());
        }
        let whole = std::mem::take(buffer).freeze();
        let routed = serde_json::from_slice::<RoutedRequest<'_>>(&whole);
        let routed = routed.map_err(|error| {
            Error::explain(ErrorType::HTTPStatus(400), format!("a body without a model: {error}"))
        })?;
        // Without this the compiler may leave out what nobody reads.
        std::hint::black_box(routed.model);
        *body = Some(whole);
        Ok(())
    }
}

/// The command that starts a floor: this program in another role.
pub(crate) fn command(kind: FloorKind, upstream: SocketAddr) -> anyhow::Result<Command> {
    let kind = match kind {
        FloorKind::Pass => "pass",
        FloorKind::Buffer => "buffer",
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["floor", &upstream.to_string(), kind]);
    Ok(command)
}

/// Proxies to `upstream` until the process is ended. Prints one JSON line with the address.
pub(crate) fn run(upstream: SocketAddr, kind: FloorKind) -> anyhow::Result<()> {
    match kind {
        FloorKind::Pass => serve(Floor(upstream)),
        FloorKind::Buffer => serve(BufferedFloor(upstream)),
    }
}

fn serve<P>(proxy: P) -> anyhow::Result<()>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    let mut fds = Fds::new();
    fds.add(address.clone(), listener.into_raw_fd());
    let mut service = http_proxy_service(&Arc::new(ServerConf::default()), proxy);
    service.add_tcp(&address);
    let (_stop, stopped) = watch::channel(false);
    let line = serde_json::json!({"address": address});
    runtime.block_on(async {
        // As the gateway does: the service runs on a worker, not on the thread that waits.
        let fds = Arc::new(Mutex::new(fds));
        let service =
            tokio::spawn(async move { service.start_service(Some(fds), stopped, 1).await });
        writeln!(std::io::stdout(), "{line}")?;
        Ok(service.await?)
    })
}
