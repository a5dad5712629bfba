//! The customer's connection behind a request, as an explicit part of its session.

use std::fmt;
use std::sync::Arc;

use pingora::http::ResponseHeader;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora_proxy::Session;

use crate::gateway::listen::connection_table::ConnectionState;
use crate::limits::PooledUnits;

/// The customer's connection on behalf of which a request is served.
///
/// It travels in the [`Digest`](pingora::protocols::Digest) of every session: of those over a socket, and of
/// requests that the process makes on behalf of one, such as a turn of a WebSocket or the call of an MCP
/// tool. A request that goes on when its customer has left keeps its share of the connection until it ends,
/// whichever task serves it.
#[derive(Clone)]
pub struct Origin {
    connection: Arc<ConnectionState>,
    /// The request is made by the process on behalf of the connection, and does not come over it.
    is_loopback: bool,
}

impl Origin {
    /// The origin of requests over `connection`.
    pub(crate) fn new(connection: Arc<ConnectionState>) -> Self {
        Self { connection, is_loopback: false }
    }

    /// The origin of a session's request; `None` for a request that the process makes for itself.
    pub(crate) fn of_session(session: &Session) -> Option<&Self> {
        let digest = session.digest()?.proxy_digest.as_ref()?;
        digest.user_data.as_ref()?.downcast_ref()
    }

    /// The origin of a request that the process makes on behalf of this one.
    pub(crate) fn loopback(&self) -> Self {
        Self { connection: Arc::clone(&self.connection), is_loopback: true }
    }

    /// The origin as the part of a connection's digest that Pingora leaves to applications: it keeps what a
    /// CONNECT proxy said of a connection, and customers' connections are made through none.
    pub(crate) fn into_digest(self) -> Option<Arc<ProxyDigest>> {
        let head = ResponseHeader::build_no_case(200, Some(0)).ok()?;
        Some(Arc::new(ProxyDigest::new(Box::new(head), Some(Box::new(self)))))
    }

    /// Records that a request of the account was authenticated.
    pub(crate) fn authenticate(&self, account: u64) {
        self.connection.set_account(account);
        // Behind the account: whoever sees the flag finds the account that it stands for.
        self.connection.set_authenticated();
    }

    /// True if any request over the connection was authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.connection.is_authenticated()
    }

    /// Marks the connection as idle: its only request was shed, or none is running. No effect for a loopback
    /// request, whose outer request continues.
    pub(crate) fn rest(&self) {
        if !self.is_loopback {
            self.connection.end();
        }
    }

    /// Marks the connection as busy again after [`Self::rest`]. False if it has to close.
    pub(crate) fn resume(&self) -> bool {
        self.is_loopback || self.connection.begin()
    }

    /// The account's share of the connection, which all of its requests over it have together; `enter` takes
    /// one.
    ///
    /// # Errors
    /// When `enter` has none to give.
    pub(crate) fn share(
        &self,
        account: u64,
        enter: impl FnOnce() -> Option<PooledUnits>,
    ) -> Option<Arc<PooledUnits>> {
        self.connection.share(account, enter)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("is_loopback", &self.is_loopback).finish_non_exhaustive()
    }
}
