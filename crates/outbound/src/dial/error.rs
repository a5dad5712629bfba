//! Connection failures.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use tollgate_options::network::EnvironmentError;

use crate::local::LocalResource;

/// A failure to connect: the server, the address, and the cause. Contains no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialError {
    /// The kind of the failure.
    pub fault: DialFault,
    text: String,
}

/// A kind of failure to connect, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialFault {
    /// The name has no address, or could not be looked up.
    NameNotFound,
    /// No address of the name may be connected to.
    Forbidden,
    /// The TCP connection was refused.
    Refused,
    /// Timeout without an answer.
    TimedOut,
    /// The network or the host cannot be reached.
    NoRoute,
    /// The other side closed the connection before it could be used.
    Closed,
    /// Any other failure of the socket.
    Failed,
    /// The certificate is not signed by a trusted authority.
    TlsUntrusted,
    /// The certificate is for other names.
    TlsName,
    /// The certificate has expired.
    TlsExpired,
    /// The certificate is not valid yet.
    TlsNotYetValid,
    /// The other side does not speak TLS at this port.
    TlsPlainPort,
    /// Both sides have no version or cipher of TLS in common.
    TlsVersion,
    /// The server requires a client certificate, or refuses the one it received.
    TlsClientCertificate,
    /// Any other failure of the handshake.
    Tls,
    /// The proxy cannot be reached.
    ProxyUnreachable,
    /// The proxy refuses the credentials, or requires some.
    ProxyCredentials,
    /// The proxy does not connect to the server.
    ProxyRefused,
    /// A resource of this machine is exhausted; the server is not to blame.
    Exhausted(LocalResource),
}

impl DialFault {
    /// Every failure of the server, of a proxy, or of the network.
    pub const ALL: [Self; 18] = [
        Self::NameNotFound,
        Self::Forbidden,
        Self::Refused,
        Self::TimedOut,
        Self::NoRoute,
        Self::Closed,
        Self::Failed,
        Self::TlsUntrusted,
        Self::TlsName,
        Self::TlsExpired,
        Self::TlsNotYetValid,
        Self::TlsPlainPort,
        Self::TlsVersion,
        Self::TlsClientCertificate,
        Self::Tls,
        Self::ProxyUnreachable,
        Self::ProxyCredentials,
        Self::ProxyRefused,
    ];

    /// Its word in metrics and in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NameNotFound => "name_not_found",
            Self::Forbidden => "forbidden",
            Self::Refused => "refused",
            Self::TimedOut => "timeout",
            Self::NoRoute => "no_route",
            Self::Closed => "closed",
            Self::Failed => "failed",
            Self::TlsUntrusted => "tls_untrusted",
            Self::TlsName => "tls_name",
            Self::TlsExpired => "tls_expired",
            Self::TlsNotYetValid => "tls_not_yet_valid",
            Self::TlsPlainPort => "tls_plain_port",
            Self::TlsVersion => "tls_version",
            Self::TlsClientCertificate => "tls_client_certificate",
            Self::Tls => "tls",
            Self::ProxyUnreachable => "proxy_unreachable",
            Self::ProxyCredentials => "proxy_credentials",
            Self::ProxyRefused => "proxy_refused",
            Self::Exhausted(resource) => resource.as_str(),
        }
    }

    /// The resource of this machine that is exhausted.
    #[must_use]
    pub fn exhausted(self) -> Option<LocalResource> {
        match self {
            Self::Exhausted(resource) => Some(resource),
            _ => None,
        }
    }

    /// True if a forward proxy failed, so that the server behind it is not to blame.
    #[must_use]
    pub fn is_of_proxy(self) -> bool {
        self.is_about_the_proxy_itself() || self == Self::ProxyRefused
    }

    fn is_about_the_proxy_itself(self) -> bool {
        matches!(self, Self::ProxyUnreachable | Self::ProxyCredentials)
    }

    /// True if no other address of the server should be tried through the proxy: the proxy itself failed, or
    /// this machine lacks a resource.
    pub(super) fn ends_tunnels(self) -> bool {
        self.is_about_the_proxy_itself() || self.exhausted().is_some()
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for DialError {}

/// The cause of a failure at one address, without the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) fault: DialFault,
    pub(super) text: String,
}

impl Reason {
    pub(super) fn new(fault: DialFault, text: impl Into<String>) -> Self {
        Self { fault, text: text.into() }
    }

    pub(super) fn timed_out() -> Self {
        Self::new(DialFault::TimedOut, "no answer in time")
    }

    pub(super) fn silent(text: &str) -> Self {
        Self::new(DialFault::TimedOut, text)
    }

    pub(super) fn lookup_timed_out() -> Self {
        Self::new(DialFault::NameNotFound, "its name was not looked up in time")
    }

    pub(super) fn exhausted(resource: LocalResource) -> Self {
        let text = match resource {
            LocalResource::Descriptors => "this process has no file descriptor left",
            LocalResource::Ports => "this machine has no local port left for it",
            LocalResource::Memory => "this machine has no memory left for it",
        };
        Self::new(DialFault::Exhausted(resource), text)
    }

    /// A connection to an address that failed.
    pub(super) fn of_connect(to: SocketAddr, error: io::Error) -> Self {
        match LocalResource::from_connect(to, &error) {
            Some(resource) => Self::exhausted(resource),
            None => error.into(),
        }
    }

    pub(super) fn not_found(error: &io::Error) -> Self {
        if let Some(resource) = LocalResource::from_lookup(error) {
            return Self::exhausted(resource);
        }
        Self::new(DialFault::NameNotFound, format!("its name was not found: {error}"))
    }

    pub(super) fn forbidden() -> Self {
        Self::new(DialFault::Forbidden, "no public address")
    }

    pub(super) fn no_server_name() -> Self {
        Self::new(DialFault::TlsName, "TLS knows no server of that name")
    }
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind as Kind;
        if let Some(resource) = LocalResource::from_error(&error) {
            return Self::exhausted(resource);
        }
        let (fault, text) = match error.kind() {
            Kind::ConnectionRefused => (DialFault::Refused, "connection refused"),
            Kind::TimedOut => (DialFault::TimedOut, "no answer in time"),
            Kind::NetworkUnreachable => (DialFault::NoRoute, "no route to the network"),
            Kind::HostUnreachable => (DialFault::NoRoute, "no route to the host"),
            // A machine without IPv6 says so of every address of it.
            Kind::AddrNotAvailable => (DialFault::NoRoute, "no address to connect from"),
            Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe => {
                (DialFault::Closed, "the connection was reset")
            }
            Kind::UnexpectedEof => (DialFault::Closed, "the connection was closed"),
            _ => return Self::new(DialFault::Failed, error.to_string()),
        };
        Self::new(fault, text)
    }
}

impl DialError {
    /// The resource of this machine that is exhausted. The other side is not at fault then.
    #[must_use]
    pub fn exhausted(&self) -> Option<LocalResource> {
        self.fault.exhausted()
    }

    /// A host that may not be connected to.
    pub(crate) fn forbidden(host: &str, text: &str) -> Self {
        Self::new(host, Reason::new(DialFault::Forbidden, text))
    }

    /// A host that is reached through a proxy which the environment does not name well.
    pub(crate) fn no_proxy(host: &str, error: &EnvironmentError) -> Self {
        Self::new(host, Reason::new(DialFault::ProxyUnreachable, error.to_string()))
    }

    /// A failure that is not about one address.
    pub(super) fn new(who: &str, reason: Reason) -> Self {
        Self { fault: reason.fault, text: format!("{who}: {}", reason.text) }
    }

    /// A failure of a proxy.
    pub(super) fn of_proxy(who: &str, reason: Reason) -> Self {
        Self { fault: of_proxy(reason.fault), ..Self::new(who, reason) }
    }

    /// The failures at all attempted addresses, without repetitions. If a resource of this machine was
    /// exhausted, it is the fault: another address might have worked.
    pub(super) fn of_all(who: &str, failures: &[(SocketAddr, Reason)]) -> Self {
        let mut distinct: Vec<(&Reason, Vec<String>)> = Vec::new();
        for (address, reason) in failures {
            let at = address.ip().to_string();
            match distinct.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, places)) => places.push(at),
                None => distinct.push((reason, vec![at])),
            }
        }
        // A server that answers and cannot prove itself says more than one that is not there.
        let is_telling = |(reason, _): &&(&Reason, _)| {
            !matches!(reason.fault, DialFault::Refused | DialFault::TimedOut | DialFault::NoRoute)
        };
        let is_exhausted = |(reason, _): &&(&Reason, _)| reason.fault.exhausted().is_some();
        let fault = distinct.iter().find(is_exhausted).or_else(|| distinct.iter().find(is_telling));
        let fault = fault.or_else(|| distinct.first());
        let fault = fault.map_or(DialFault::TimedOut, |(reason, _)| reason.fault);
        let each =
            distinct.iter().map(|(reason, at)| format!("{} at {}", reason.text, at.join(", ")));
        Self { fault, text: format!("{who}: {}", each.collect::<Vec<_>>().join("; ")) }
    }

    /// The failures at all addresses of a proxy that were tried.
    pub(super) fn of_all_proxies(who: &str, failures: &[(SocketAddr, Reason)]) -> Self {
        let all = Self::of_all(who, failures);
        Self { fault: of_proxy(all.fault), ..all }
    }
}

/// Maps a failure on the way to a proxy, or in its response, to the failure of the tunnel through it.
fn of_proxy(fault: DialFault) -> DialFault {
    match fault {
        DialFault::ProxyCredentials | DialFault::ProxyRefused | DialFault::Exhausted(_) => fault,
        _ => DialFault::ProxyUnreachable,
    }
}
