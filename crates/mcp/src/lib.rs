//! The server for agents: the Model Context Protocol over streamable HTTP, stateless, for every
//! version of the protocol. Model Context Protocol, specification of 2026-07-28 and those before.
//!
//! Every tool makes one of the requests that the gateway takes over HTTP, with the caller's own key
//! and through the same front: what it may do, what it is charged and what is logged is decided
//! there. Here it is only put into words.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

mod client;
mod endpoint;
mod envelope;
mod direct;
mod server;
mod caller;
mod tools;
mod tool;
mod arguments;
mod tool_error;
mod usable_model;
mod schema;
mod media;
mod text;
mod writer;
mod chat;
mod conversation;
mod reply;
mod embed;
mod images;
mod edit;
mod speak;
mod video;
mod account;
#[cfg(test)]
mod by_trees;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tollgate_config::ConfigHandle;

pub use client::{
    AgentConnection, CallError, GatewayClient, GatewayRequest, GatewayResponse, ReservedMemory,
};
use endpoint::McpEndpoint;
use server::Server;

/// Route of the server in metrics and logs, whatever its path.
pub const ROUTE: &str = "/mcp";

/// The server as the configuration wants it, for whoever listens.
#[derive(Clone)]
pub struct McpServer {
    /// Path of the server.
    pub path: String,
    /// The largest body of a request, in bytes.
    pub body_bytes_max: usize,
    /// Maximum number of JSON values in a body.
    pub json_values_max: usize,
    endpoint: Arc<McpEndpoint>,
}

impl McpServer {
    /// The server, if the configuration has one.
    #[must_use]
    pub fn new(config: &Arc<ConfigHandle>) -> Option<Self> {
        let snapshot = config.load();
        if !snapshot.mcp.enabled {
            return None;
        }
        let body_bytes_max = snapshot.mcp.body_bytes_max;
        let settings = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(body_bytes_max)
            // `McpEndpoint` checks both by the configuration in force, which a reload can change.
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let server = Server::new(Arc::clone(config));
        let own = server.clone();
        let service = StreamableHttpService::new(
            move || Ok(own.clone()),
            Arc::new(NeverSessionManager::default()),
            settings,
        );
        let endpoint = Arc::new(McpEndpoint::new(Arc::clone(config), server, service));
        let (path, json_values_max) = (snapshot.mcp.path.clone(), snapshot.mcp.json_values_max);
        Some(Self { path, body_bytes_max, json_values_max, endpoint })
    }

    /// Answers a request, in whose extensions are the agent's [`AgentConnection`] and its key.
    pub async fn answer(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        self.endpoint.answer(request).await
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("path", &self.path).finish_non_exhaustive()
    }
}
