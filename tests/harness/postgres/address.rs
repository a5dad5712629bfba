//! Addresses that whoever has to know them beforehand listens on later, perhaps more than once.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// From 32,768 on Linux gives ports to whoever asks for any, and to connections that go out: one of those
/// could be taken before it is listened on, or while a process is started again.
const PORTS: std::ops::Range<u16> = 10_000..32_768;

/// An address that nobody has now, and that nobody gets by chance.
pub(crate) fn free_address() -> SocketAddr {
    let any =
        std::iter::repeat_with(|| SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS))));
    let mut free = any.take(1_000).filter(|address| TcpListener::bind(address).is_ok());
    free.next().expect("a free port")
}
