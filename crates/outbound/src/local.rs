//! Resources of this machine that a connection takes. Where one of them is short, nothing was learned of
//! the other side.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::io::Errno;
use tollgate_types::words::words;

/// Descriptors that a lookup needs at one time: glibc reads `/etc/hosts` and `/etc/resolv.conf`, and queries
/// a server over a socket.
const LOOKUP_DESCRIPTORS: usize = 3;

words! {
    /// A resource of this machine without which no connection can be opened.
    LocalResource {
        /// File descriptors, of the process (`EMFILE`) or of the machine (`ENFILE`).
        Descriptors = "descriptors",
        /// Local ports for connections to one address and port (`EADDRNOTAVAIL`).
        Ports = "ports",
        /// Memory of the kernel (`ENOMEM`, `ENOBUFS`), or its bound on watched sockets (`ENOSPC`).
        Memory = "memory",
    }
}

impl LocalResource {
    /// True if a connection to another address may succeed: ports are counted per destination.
    #[must_use]
    pub fn is_per_destination(self) -> bool {
        self == Self::Ports
    }

    /// The resource that an error of the operating system reports to be exhausted.
    #[must_use]
    pub fn from_error(error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::MFILE | Errno::NFILE => Some(Self::Descriptors),
            Errno::NOMEM | Errno::NOBUFS => Some(Self::Memory),
            _ => None,
        }
    }

    /// The resource whose exhaustion made a connection to an address fail.
    pub(crate) fn from_connect(to: SocketAddr, error: &io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::ADDRNOTAVAIL if has_source_address(to) => Some(Self::Ports),
            // `epoll_ctl`: `/proc/sys/fs/epoll/max_user_watches`.
            Errno::NOSPC => Some(Self::Memory),
            _ => Self::from_error(error),
        }
    }

    /// The resource whose exhaustion made a lookup fail. A resolver reports most failures of its own system
    /// calls as "not found" or "try again": so it is read from the error, or found by a test of what can be
    /// opened now.
    pub(crate) fn from_lookup(error: &io::Error) -> Option<Self> {
        Self::from_error(error).or_else(Self::find_exhausted)
    }

    /// The resource that is too short at this moment to look a name up, or to read a few files.
    pub(crate) fn find_exhausted() -> Option<Self> {
        // The root directory is there in every container, and opening it leaves no trace.
        let opened: io::Result<Vec<File>> =
            (0..LOOKUP_DESCRIPTORS).map(|_| File::open("/")).collect();
        opened.err().as_ref().and_then(Self::from_error)
    }
}

/// True if this machine has a source address for the destination. TCP reports a missing address (of IPv6
/// where it is disabled) and a missing port by the same number; UDP has ports of its own.
fn has_source_address(to: SocketAddr) -> bool {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(to)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw_os_error())
    }

    #[test]
    fn local_errnos_are_distinguished_from_remote_ones() {
        let to: SocketAddr = "127.0.0.1:443".parse().expect("an address");
        for (errno, expected) in [
            (Errno::MFILE, Some(LocalResource::Descriptors)),
            (Errno::NFILE, Some(LocalResource::Descriptors)),
            (Errno::NOMEM, Some(LocalResource::Memory)),
            (Errno::NOBUFS, Some(LocalResource::Memory)),
            (Errno::NOSPC, Some(LocalResource::Memory)),
            (Errno::ADDRNOTAVAIL, Some(LocalResource::Ports)),
            (Errno::CONNREFUSED, None),
            (Errno::CONNRESET, None),
            (Errno::TIMEDOUT, None),
            (Errno::NETUNREACH, None),
            (Errno::HOSTUNREACH, None),
            (Errno::ACCESS, None),
        ] {
            let found = LocalResource::from_connect(to, &error(errno));
            assert_eq!(found, expected, "{errno:?}");
        }
        let without_number = io::Error::new(io::ErrorKind::AddrNotAvailable, "somebody's words");
        assert_eq!(LocalResource::from_connect(to, &without_number), None);
    }

    #[test]
    fn a_resolver_that_finds_nothing_is_believed_while_descriptors_are_there() {
        let not_found = io::Error::other("Name or service not known");
        assert_eq!(LocalResource::from_lookup(&not_found), None);
        let system = LocalResource::from_lookup(&error(Errno::MFILE));
        assert_eq!(system, Some(LocalResource::Descriptors));
    }
}
