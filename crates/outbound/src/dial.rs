//! Connections to other machines: every address of a name is tried, through a forward proxy where there
//! is one, with TLS where it is spoken.
//!
//! | File | What |
//! |---|---|
//! | `names` | addresses of names, in the order in which they are tried |
//! | `race` | attempts at several addresses side by side (RFC 8305) |
//! | `tls` | settings and handshakes of TLS |
//! | `proxy`, `socks` | what a forward proxy is asked for |
//! | `error` | why there is no connection |
//! | `connection` | what the caller reads from and writes to |

mod connection;
mod error;
mod names;
mod proxy;
mod race;
mod socks;
mod tls;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tollgate_options::network::{ClientTls, Destination, Proxy, ProxyScheme};

pub use connection::DialedConnection;
use connection::Io;
use error::Reason;
pub use error::{DialError, DialFault};
use names::DnsCache;
pub use names::{Resolve, ResolvedName};
use race::race;
use tls::TlsConfigs;
pub use tls::certificate_refusal;

/// Addresses to which connections are permitted.
#[derive(Clone, Copy, Debug)]
pub enum AllowedAddresses {
    /// All of them: the operator has named the host.
    All,
    /// Addresses that this function accepts, for a host named by somebody else than the operator. A proxy
    /// receives the checked address, never a name to look up itself.
    Checked(fn(IpAddr) -> bool),
}

impl AllowedAddresses {
    fn allow(self, address: IpAddr) -> bool {
        match self {
            Self::All => true,
            Self::Checked(is_allowed) => is_allowed(address),
        }
    }
}

/// Connects to other machines, and remembers their addresses.
#[derive(Debug, Default)]
pub struct Dialer {
    names: DnsCache,
    tls: TlsConfigs,
}

impl Dialer {
    /// A dialer that resolves names with `resolver` instead of the system's.
    #[must_use]
    pub fn with_resolver(resolver: Arc<dyn Resolve>) -> Self {
        Self { names: DnsCache::new(resolver), tls: TlsConfigs::default() }
    }

    /// The addresses of a destination's host, which are looked up again when they are old. `None` where
    /// there is nothing to look up here: for an address, and behind a proxy.
    ///
    /// # Errors
    /// The name was never found.
    pub async fn addresses_of(
        &self,
        to: &Destination,
    ) -> Result<Option<Arc<ResolvedName>>, DialError> {
        if to.proxy.is_some() || to.host.parse::<IpAddr>().is_ok() {
            return Ok(None);
        }
        let found = self.names.find(&to.host).await;
        found.map(Some).map_err(|reason| DialError::new(&place(to), reason))
    }

    /// A new connection, within `time`.
    ///
    /// # Errors
    /// Why there is none, with the addresses that were tried. Nothing was sent.
    pub async fn dial(
        &self,
        to: &Destination,
        allowed: AllowedAddresses,
        time: Duration,
    ) -> Result<DialedConnection, DialError> {
        let deadline = Instant::now() + time;
        let tls = match &to.tls {
            Some(tls) => Some(self.tls_for(tls, &to.host).await),
            None => None,
        };
        let tls = tls.transpose().map_err(|reason| DialError::new(&place(to), reason))?;
        match &to.proxy {
            None => {
                let addresses = self.addresses(&to.host, to.port, allowed, deadline).await;
                let addresses = addresses.map_err(|reason| DialError::new(&place(to), reason))?;
                let secure = |stream| secure(stream, tls.clone());
                let raced = race(&self.names, addresses, deadline, secure).await;
                let (io, address) =
                    raced.map_err(|failures| DialError::of_all(&place(to), &failures))?;
                Ok(DialedConnection { io, address })
            }
            Some(proxy) => self.dial_through(proxy, to, tls, allowed, deadline).await,
        }
    }

    /// Connects through a proxy. The proxy receives the name if it resolves names; otherwise the addresses
    /// are resolved here and tried one after the other.
    async fn dial_through(
        &self,
        proxy: &Arc<Proxy>,
        to: &Destination,
        tls: Option<TlsTo>,
        allowed: AllowedAddresses,
        deadline: Instant,
    ) -> Result<DialedConnection, DialError> {
        // An address that was checked here must be the one that is connected to: a proxy's own look-up
        // could find another.
        let by_address = proxy.scheme == ProxyScheme::Socks5
            || matches!(allowed, AllowedAddresses::Checked(_))
            || to.host.parse::<IpAddr>().is_ok();
        let targets: Vec<String> = if by_address {
            let found = self.addresses(&to.host, to.port, allowed, deadline).await;
            let found = found.map_err(|reason| DialError::new(&place(to), reason))?;
            found.into_iter().map(|address| address.to_string()).collect()
        } else {
            vec![place(to)]
        };
        let mut last = None;
        let count = targets.len();
        for (index, target) in targets.into_iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let rest = u32::try_from(count - index).unwrap_or(u32::MAX);
            // An equal part for each: a proxy says nothing of an address that is silent, so the first could
            // take all of it.
            let until = Instant::now() + left / rest;
            match self.tunnel(proxy, to, &target, tls.clone(), until).await {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    // What is wrong with the proxy itself is wrong with the next address too.
                    let is_final = error.fault.ends_tunnels();
                    last = Some(error);
                    if is_final {
                        break;
                    }
                }
            }
        }
        Err(last.unwrap_or_else(|| DialError::new(&place(to), Reason::timed_out())))
    }

    async fn tunnel(
        &self,
        proxy: &Arc<Proxy>,
        to: &Destination,
        target: &str,
        tls: Option<TlsTo>,
        deadline: Instant,
    ) -> Result<DialedConnection, DialError> {
        let who = format!("the proxy {proxy}");
        let of_proxy = |reason: Reason| DialError::of_proxy(&who, reason);
        let own_tls = match proxy.scheme {
            ProxyScheme::Https => {
                Some(self.tls_for(&ClientTls::default(), &proxy.host).await.map_err(of_proxy)?)
            }
            ProxyScheme::Http | ProxyScheme::Socks5 | ProxyScheme::Socks5h => None,
        };
        let addresses =
            self.addresses(&proxy.host, proxy.port, AllowedAddresses::All, deadline).await;
        let addresses = addresses.map_err(of_proxy)?;
        let secure_proxy = |stream| secure(stream, own_tls.clone());
        let raced = race(&self.names, addresses, deadline, secure_proxy).await;
        let (mut io, address) =
            raced.map_err(|failures| DialError::of_all_proxies(&who, &failures))?;
        let tunnel = async {
            if proxy.is_socks() {
                socks::connect(&mut io, target, proxy.credentials.as_ref()).await
            } else {
                proxy::connect(&mut io, target, proxy.credentials.as_ref()).await
            }
        };
        let tunnel = tokio::time::timeout_at(deadline, tunnel).await;
        let tunnel = tunnel.unwrap_or_else(|_| Err(Reason::silent("it did not answer in time")));
        tunnel
            .map_err(|reason| DialError::of_proxy(&format!("{who}, asked for {target}"), reason))?;
        let secured = tokio::time::timeout_at(deadline, secure_io(io, tls)).await;
        let secured = secured.unwrap_or_else(|_| Err(Reason::timed_out()));
        let io = secured
            .map_err(|reason| DialError::new(&format!("{} through {who}", place(to)), reason))?;
        Ok(DialedConnection { io, address })
    }

    /// The addresses of a host, in the order in which they are tried.
    async fn addresses(
        &self,
        host: &str,
        port: u16,
        allowed: AllowedAddresses,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, Reason> {
        let found = if let Ok(address) = host.parse::<IpAddr>() {
            vec![SocketAddr::new(address, port)]
        } else {
            let looked_up = tokio::time::timeout_at(deadline, self.names.find(host)).await;
            let name = looked_up.map_err(|_| Reason::lookup_timed_out())??;
            self.names.in_order(&name, port)
        };
        let mut found = found;
        // Checked as they were looked up, so that no second look-up can answer otherwise (DNS rebinding).
        found.retain(|address| allowed.allow(address.ip()));
        if found.is_empty() { Err(Reason::forbidden()) } else { Ok(found) }
    }

    /// Builds the TLS settings of a host, and the name that its certificate must have.
    async fn tls_for(&self, tls: &ClientTls, host: &str) -> Result<TlsTo, Reason> {
        let config = self.tls.get(tls).await?;
        let name = tls.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|_| Reason::no_server_name())?;
        Ok((config, name))
    }
}

/// Reads the machine's root certificates, so that the first handshake need not wait for them. Takes a
/// while, and blocks.
pub fn read_roots() {
    crate::roots::read();
}

/// Settings of TLS, and the name that the server proves.
type TlsTo = (Arc<ClientConfig>, ServerName<'static>);

async fn secure(stream: TcpStream, tls: Option<TlsTo>) -> Result<Io, Reason> {
    secure_io(Io::Plain(stream), tls).await
}

async fn secure_io(io: Io, tls: Option<TlsTo>) -> Result<Io, Reason> {
    let Some((config, name)) = tls else { return Ok(io) };
    match io {
        Io::Plain(stream) => Ok(Io::Tls(Box::new(tls::handshake(config, name, stream).await?))),
        Io::Tls(outer) => Ok(Io::TlsInTls(Box::new(tls::handshake(config, name, outer).await?))),
        // Nobody speaks TLS three times.
        Io::TlsInTls(_) => Err(Reason::no_server_name()),
    }
}

/// A destination as `host:port`.
fn place(to: &Destination) -> String {
    let Destination { host, port, .. } = to;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
