//! The gateway as tools call it. The process that hosts the server implements it and hands it in with each
//! request, so that this crate need not know the proxy.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use tollgate_telemetry::finished::RequestSettlement;
use tollgate_types::error::GatewayError;

/// A client of the gateway on behalf of one agent's request: with its address, its connection and its part of
/// the memory for bodies.
pub trait GatewayClient: Send + Sync {
    /// Makes a request and collects its answer of at most `body_bytes_max` bytes. Dropping the future ends
    /// the request, like a client that disconnects.
    fn call(
        &self,
        request: GatewayRequest,
        body_bytes_max: usize,
    ) -> BoxFuture<'_, Result<GatewayResponse, CallError>>;
}

/// Memory that an answer takes, given back on drop.
pub trait ReservedMemory: Send + Sync {
    /// Reserves more bytes; false if there are none.
    #[must_use]
    fn grow(&mut self, bytes: usize) -> bool;
}

/// The connection of an agent: an extension of each request that the server gets.
#[derive(Clone)]
pub struct AgentConnection {
    /// Makes the requests of the tools.
    pub client: Arc<dyn GatewayClient>,
    /// True if the listener's own address is one that only this machine reaches.
    pub is_loopback: bool,
}

/// A request to a path of the gateway.
#[derive(Clone, Debug)]
pub struct GatewayRequest {
    /// The method of the request.
    pub method: Method,
    /// The path, with a query if there is one.
    pub path: String,
    /// The headers, but for `Host` and the length of the body.
    pub headers: HeaderMap,
    /// The whole body, as received.
    pub body: Bytes,
}

/// An answer of the gateway, of any status.
pub struct GatewayResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The whole body, as received.
    pub body: Bytes,
    /// The charge; `None` if nothing was held, or the status is none of success.
    pub settled: Option<RequestSettlement>,
    /// Memory of the body.
    pub memory: Box<dyn ReservedMemory>,
}

/// The reason why there is no answer of the gateway.
#[derive(Debug)]
pub enum CallError {
    /// The gateway's own error, or an answer that broke off.
    Gateway(GatewayError),
    /// The body is longer than the caller allows.
    TooLarge,
    /// There is no memory for the body at the moment.
    NoMemory,
}

impl From<GatewayError> for CallError {
    fn from(error: GatewayError) -> Self {
        Self::Gateway(error)
    }
}

impl fmt::Debug for AgentConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConnection")
            .field("is_loopback", &self.is_loopback)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GatewayResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, settled, .. } = self;
        f.debug_struct("GatewayResponse")
            .field("status", status)
            .field("headers", headers)
            .field("settled", settled)
            .finish_non_exhaustive()
    }
}
