//! Services of the process's own on the customers' listeners: the customers' console, and the MCP server,
//! whose tools call the proxy in-process.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use http::Request;
use http::header::CONTENT_LENGTH;
use http_body_util::Full;
use tollgate_web_kit::Client;
use tollgate_web_kit::password::Passwords;
use tower::ServiceExt as _;

use crate::config::ConfigHandle;
use crate::console::{self, ConsoleParts};
use crate::gateway::{
    Downstream, GatewayParts, GatheredBody, HostedService, LoopbackClient, LoopbackRequest, Memory,
    MemoryPart, declared_length,
};
use crate::mcp::{
    self, AgentConnection, CallError, GatewayClient, GatewayRequest, GatewayResponse, McpServer,
    ReservedMemory,
};

/// The services that the configuration has switched on.
///
/// # Errors
/// When the keys of the console's cookies cannot be read or written.
pub(super) fn hosted(
    gateway: &GatewayParts,
    passwords: &Passwords,
) -> anyhow::Result<Vec<HostedService>> {
    let parts = ConsoleParts {
        ledger: Arc::clone(&gateway.ledger),
        tasks: Arc::clone(&gateway.tasks),
        requests: Arc::clone(&gateway.requests),
        config: Arc::clone(&gateway.config),
        passwords: passwords.clone(),
        limits: Arc::clone(&gateway.limits),
        metrics: Arc::clone(&gateway.metrics),
    };
    let console = console::service(parts).context("cannot prepare the customers' console")?;
    let console = console.map(|(path, pages)| {
        let pages = pages.map_request(from_client);
        HostedService::new(path, console::ROUTE, console::BODY_BYTES_MAX, pages)
    });
    let agents = agents(&gateway.config, &gateway.loopback);
    Ok(console.into_iter().chain(agents).collect())
}

/// Names the client of a request in the console's own terms.
fn from_client(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let extensions = request.extensions_mut();
    if let Some(Downstream { address, tls, .. }) = extensions.get() {
        let client = Client { address: *address, tls: *tls };
        extensions.insert(client);
    }
    request
}

/// The MCP server, for agents that show a key.
fn agents(config: &Arc<ConfigHandle>, loopback: &LoopbackClient) -> Option<HostedService> {
    let server = McpServer::new(config)?;
    let loopback = loopback.clone();
    let (path, body_bytes_max) = (server.path.clone(), server.body_bytes_max);
    let json_values_max = server.json_values_max;
    let service = tower::service_fn(move |mut request: Request<Full<Bytes>>| {
        let server = server.clone();
        if let Some(connection) = agent_connection(&loopback, &request) {
            request.extensions_mut().insert(connection);
        }
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let hosted = HostedService::new(path, mcp::ROUTE, body_bytes_max, service);
    Some(hosted.for_keys().parsing_json(json_values_max))
}

fn agent_connection(
    loopback: &LoopbackClient,
    request: &Request<Full<Bytes>>,
) -> Option<AgentConnection> {
    let extensions = request.extensions();
    let downstream = extensions.get::<Downstream>()?.clone();
    let memory = extensions.get::<Memory>()?.clone();
    let is_loopback = downstream.is_loopback;
    let client = Arc::new(AgentClient { loopback: loopback.clone(), downstream, memory });
    Some(AgentConnection { client, is_loopback })
}

/// The proxy, for the tools that one agent's request calls.
struct AgentClient {
    loopback: LoopbackClient,
    downstream: Downstream,
    memory: Memory,
}

impl GatewayClient for AgentClient {
    fn call(
        &self,
        request: GatewayRequest,
        body_bytes_max: usize,
    ) -> BoxFuture<'_, Result<GatewayResponse, CallError>> {
        self.gather(request, body_bytes_max).boxed()
    }
}

impl AgentClient {
    async fn gather(
        &self,
        request: GatewayRequest,
        body_bytes_max: usize,
    ) -> Result<GatewayResponse, CallError> {
        let GatewayRequest { method, path, headers, body } = request;
        let Downstream { address, origin, .. } = self.downstream.clone();
        let request = LoopbackRequest { method, path, headers, body, address, origin };
        let mut memory = self.memory.part();
        let mut reply = self.loopback.send_in_place(request).await?;
        let length = declared_length(reply.headers.get(CONTENT_LENGTH));
        let mut body = GatheredBody::default();
        while let Some(piece) = reply.chunk().await? {
            if body.len() + piece.len() > body_bytes_max {
                return Err(CallError::TooLarge);
            }
            if !memory.grow(piece.len()) {
                return Err(CallError::NoMemory);
            }
            body.push(piece, length);
        }
        let (status, headers) = (reply.status, std::mem::take(&mut reply.headers));
        // The charge follows the last byte; a refusal has none to wait for.
        let settled = if (200..300).contains(&status) { reply.settled().await } else { None };
        let memory = Box::new(memory);
        Ok(GatewayResponse { status, headers, body: body.into_whole(), settled, memory })
    }
}

impl ReservedMemory for MemoryPart {
    fn grow(&mut self, bytes: usize) -> bool {
        Self::grow(self, bytes)
    }
}
