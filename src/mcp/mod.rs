//! The server for agents: the Model Context Protocol over streamable HTTP, stateless, for every
//! version of the protocol. Model Context Protocol, specification of 2026-07-28 and those before.
//!
//! Every tool makes one of the requests that the gateway takes over HTTP, with the caller's own key
//! and through the same front: what it may do, what it is charged and what is logged is decided
//! there. Here it is only put into words.

mod door;
mod envelope;
mod direct;
mod server;
mod caller;
mod refused;
mod tools;
mod usable;
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

use std::sync::Arc;

use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::config::ConfigHandle;
use crate::gateway::{Hosted, Inward};
use door::Door;
use server::Server;

/// Route of the server in metrics and logs, whatever its path.
const ROUTE: &str = "/mcp";

/// The server as a service of the gateway, if the configuration has one. `inward` is what it asks the
/// gateway by.
#[must_use]
pub fn hosted(config: &Arc<ConfigHandle>, inward: &Inward) -> Option<Hosted> {
    let snapshot = config.load();
    if !snapshot.mcp.enabled {
        return None;
    }
    let body_bytes_max = snapshot.mcp.body_bytes_max;
    let settings = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(body_bytes_max)
        // The door has looked at both, as the configuration in force has them.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let server = Server::new(Arc::clone(config), inward.clone());
    let own = server.clone();
    let service = StreamableHttpService::new(
        move || Ok(own.clone()),
        Arc::new(NeverSessionManager::default()),
        settings,
    );
    let door = Arc::new(Door::new(Arc::clone(config), server, service));
    let service = tower::service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { Ok(door.answer(request).await) }
    });
    let hosted = Hosted::new(snapshot.mcp.path.clone(), ROUTE, body_bytes_max, service);
    Some(hosted.for_keys().parsing_json(snapshot.mcp.json_values_max))
}
