//! `CONNECT` through a SOCKS 5 proxy (RFC 1928), with a user name and password (RFC 1929).

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tollgate_options::network::ProxyCredentials;

use super::error::{DialFault, Reason};

const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const DOMAIN: u8 = 3;
const IPV6: u8 = 4;

/// Asks the proxy to connect to `target`, a host and port. Names are resolved by the proxy.
pub(super) async fn connect<S>(
    stream: &mut S,
    target: &str,
    credentials: Option<&ProxyCredentials>,
) -> Result<(), Reason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Without credentials a proxy that wants some says so.
    let greeting: &[u8] = match credentials {
        Some(_) => &[VERSION, 2, NO_AUTHENTICATION, PASSWORD],
        None => &[VERSION, 1, NO_AUTHENTICATION],
    };
    send(stream, greeting).await?;
    let [version, method] = read(stream).await?;
    match (version, method, credentials) {
        (VERSION, NO_AUTHENTICATION, _) => {}
        (VERSION, PASSWORD, Some(credentials)) => log_in(stream, credentials).await?,
        (VERSION, ..) => {
            let text = "it takes none of the ways to log in that there are";
            return Err(Reason::new(DialFault::ProxyCredentials, text));
        }
        _ => return Err(unreadable()),
    }
    send(stream, &request(target)?).await?;
    let [version, status, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(unreadable());
    }
    if status != 0 {
        let text = format!("it does not connect: {}", meaning(status));
        return Err(Reason::new(DialFault::ProxyRefused, text));
    }
    // The address that it connects from, and the port.
    let bound = match kind {
        IPV4 => 4,
        IPV6 => 16,
        DOMAIN => usize::from(read::<1, S>(stream).await?[0]),
        _ => return Err(unreadable()),
    };
    // Read to its end, or its rest would be taken for the first bytes of the server.
    let mut rest = vec![0; bound + 2];
    stream.read_exact(&mut rest).await?;
    Ok(())
}

async fn log_in<S>(stream: &mut S, credentials: &ProxyCredentials) -> Result<(), Reason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = vec![PASSWORD_VERSION];
    for text in [&credentials.user, credentials.password.expose()] {
        message.push(length(text.as_bytes())?);
        message.extend_from_slice(text.as_bytes());
    }
    send(stream, &message).await?;
    let [_, status] = read(stream).await?;
    if status == 0 {
        return Ok(());
    }
    Err(Reason::new(DialFault::ProxyCredentials, "it refuses the credentials"))
}

fn request(target: &str) -> Result<Vec<u8>, Reason> {
    let mut message = vec![VERSION, CONNECT, 0];
    let port = if let Ok(address) = target.parse::<SocketAddr>() {
        match address.ip() {
            IpAddr::V4(ip) => {
                message.push(IPV4);
                message.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                message.push(IPV6);
                message.extend_from_slice(&ip.octets());
            }
        }
        address.port()
    } else {
        let (host, port) = target.rsplit_once(':').ok_or_else(unreadable)?;
        message.push(DOMAIN);
        message.push(length(host.as_bytes())?);
        message.extend_from_slice(host.as_bytes());
        port.parse().map_err(|_| unreadable())?
    };
    message.extend_from_slice(&port.to_be_bytes());
    Ok(message)
}

fn length(bytes: &[u8]) -> Result<u8, Reason> {
    let too_long = |_| Reason::new(DialFault::ProxyRefused, "SOCKS has no room for so long a text");
    u8::try_from(bytes.len()).map_err(too_long)
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), Reason> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    Ok(())
}

async fn read<const N: usize, S>(stream: &mut S) -> Result<[u8; N], Reason>
where
    S: AsyncRead + Unpin,
{
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// RFC 1928 section 6.
fn meaning(status: u8) -> &'static str {
    match status {
        1 => "a failure of its own",
        2 => "its rules forbid it",
        3 => "no route to the network",
        4 => "no route to the host",
        5 => "connection refused",
        6 => "no answer in time",
        7 => "it knows no CONNECT",
        8 => "it knows no such addresses",
        _ => "it does not say why",
    }
}

fn unreadable() -> Reason {
    Reason::new(DialFault::ProxyRefused, "what it says is not SOCKS 5")
}
