//! The floor: the least that a Pingora proxy can do, run in the same way as tollgate runs its own.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::Fds;
use pingora::server::configuration::ServerConf;
use pingora::services::Service as _;
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use tokio::sync::watch;

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

/// Proxies to `upstream` until the process is ended. Prints one JSON line with the address.
pub(crate) fn run(upstream: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    let mut fds = Fds::new();
    fds.add(address.clone(), listener.into_raw_fd());
    let mut service = http_proxy_service(&Arc::new(ServerConf::default()), Floor(upstream));
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
