//! The protocol's side of the tools.

use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, HeaderMap};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};

use super::caller::ToolCaller;
use super::tools::TOOLS;
use tollgate_config::ConfigHandle;

/// The server. What it keeps is shared by its clones: one for each request.
#[derive(Clone)]
pub(super) struct Server {
    config: Arc<ConfigHandle>,
}

impl Server {
    pub(super) fn new(config: Arc<ConfigHandle>) -> Self {
        Self { config }
    }

    /// Caller of a tool outside the protocol's library; `None` for a request that did not come through the
    /// gateway.
    pub(super) fn direct_caller(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Option<ToolCaller> {
        ToolCaller::new(self.config.load(), headers, extensions)
    }

    fn caller(&self, context: RequestContext<RoleServer>) -> Result<ToolCaller, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let caller = parts.and_then(|parts| self.direct_caller(&parts.headers, &parts.extensions));
        let caller = caller.map(|caller| caller.followed_by(context));
        caller.ok_or_else(|| ErrorData::internal_error("The request has no key.", None))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let own = Implementation::new("tollgate", env!("CARGO_PKG_VERSION")).with_title("Tollgate");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(own)
            .with_instructions(
                "Models of many providers behind one key. Calls are charged to the key's account; \
                 `cost_usd` of a result says how much. `list_models` tells what there is.",
            )
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller(context)?;
        let tools = TOOLS.iter().filter_map(|row| row.tool(&caller.snapshot, &caller.key));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(row) = TOOLS.iter().find(|row| row.name == request.name) else {
            // It repeats what a client sent: bounded, since an agent reads it.
            let name: String = request.name.chars().take(64).collect();
            let names: Vec<&str> = TOOLS.iter().map(|row| row.name).collect();
            let message = format!("There is no tool {name:?}. There are: {}.", names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let caller = self.caller(context)?;
        let called = (row.call)(&caller, request.arguments.unwrap_or_default()).await;
        Ok(called.unwrap_or_else(super::tool_error::ToolError::into_result).into())
    }
}
