//! Callers of tools, and the requests that are made on their behalf.

use std::fmt::Write as _;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::client::{
    AgentConnection, CallError, GatewayClient, GatewayRequest, GatewayResponse, ReservedMemory,
};
use super::tool_error::ToolError;
use tollgate_config::snapshot::Snapshot;
use tollgate_ledger::Key;
use tollgate_money::money::Nanousd;
use tollgate_process_memory::run_now;
use tollgate_protocols::Operation;
use tollgate_protocols::json::values_within;
use tollgate_telemetry::finished::RequestSettlement;

/// Headers of the caller that are passed to the gateway: its identity and its trace.
const PASSED_ON: [HeaderName; 5] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SERVED_BY: HeaderName = HeaderName::from_static("x-tollgate-model");
/// The largest answer beside the media in it: embeddings of a long list are a few MiB.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The values of such an answer: [`super::embed::INPUTS_MAX`] vectors of 4096 numbers, and some more.
pub(super) const ANSWER_VALUES_MAX: usize = 500_000;
/// Bytes of a tree of numbers for each number: it grows by doubling.
const TREE_BYTES_PER_VALUE: usize = 64;

/// Caller of a tool.
pub(super) struct ToolCaller {
    /// Key of the caller.
    pub(super) key: Arc<Key>,
    /// The configuration that this call sees.
    pub(super) snapshot: Arc<Snapshot>,
    headers: HeaderMap,
    client: Arc<dyn GatewayClient>,
    /// MCP request context, through which the call is cancelled and reports progress; `None` for a call that
    /// is dropped on cancellation and reports none.
    context: Option<RequestContext<RoleServer>>,
}

/// Result of a call other than its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallOutcome<'a> {
    pub(super) request_id: &'a str,
    /// Id of the fallback model that served it; empty if the requested model did.
    pub(super) served_by: &'a str,
    /// Charge, if something was held.
    pub(super) cost: Option<Nanousd>,
}

/// A good answer of the gateway.
pub(super) struct GatewayAnswer {
    request_id: String,
    served_by: String,
    pub(super) content_type: String,
    pub(super) body: Bytes,
    settled: Option<RequestSettlement>,
    /// The part of the gateway's memory that the body takes until this is dropped.
    memory: Box<dyn ReservedMemory>,
}

impl GatewayAnswer {
    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none, or too large to be made a tree of.
    pub(super) fn json(&mut self) -> Result<Value, ToolError> {
        let body = self.body.clone();
        self.make_room(values_within(&body, ANSWER_VALUES_MAX))?;
        let read = run_now(body.len(), || serde_json::from_slice(&body));
        read.map_err(|_| no_json())
    }

    /// Reserves memory for a parsed body with so many values, `None` for too many, and the text that is
    /// written from it.
    ///
    /// # Errors
    /// When there is none, or they are too many to be made a tree of.
    pub(super) fn make_room(&mut self, values: Option<usize>) -> Result<(), ToolError> {
        let Some(values) = values.filter(|values| *values <= ANSWER_VALUES_MAX) else {
            let message = format!(
                "The answer has more than {ANSWER_VALUES_MAX} values. Ask for less, or over HTTP."
            );
            return Err(ToolError::failed("answer_too_large", message));
        };
        let tree = values.saturating_mul(TREE_BYTES_PER_VALUE);
        match self.memory.grow(tree.saturating_add(self.body.len().saturating_mul(2))) {
            true => Ok(()),
            false => Err(no_room()),
        }
    }

    /// Outcome of the call.
    pub(super) fn outcome(&self) -> CallOutcome<'_> {
        let Self { request_id, served_by, settled, .. } = self;
        CallOutcome { request_id, served_by, cost: settled.map(|settled| settled.cost) }
    }

    /// Outcome of the call as members of the structured content: always the request's id, its cost where
    /// something was held, and the model where another one has served it.
    pub(super) fn with_cost(&self, mut structured: Value) -> Value {
        let CallOutcome { request_id, served_by, cost } = self.outcome();
        structured["request_id"] = json!(request_id);
        if !served_by.is_empty() {
            structured["served_by"] = json!(served_by);
        }
        if let Some(cost) = cost {
            structured["cost_usd"] = json!(cost);
        }
        structured
    }
}

impl ToolCaller {
    /// `None` for a request that did not come through the gateway.
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        request_headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Option<Self> {
        let key = Arc::clone(extensions.get::<Arc<Key>>()?);
        let client = Arc::clone(&extensions.get::<AgentConnection>()?.client);
        let mut headers = HeaderMap::with_capacity(8);
        // Named one by one: an agent must not reach headers that change routing or billing.
        for name in PASSED_ON {
            for value in request_headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let context = None;
        Some(Self { key, snapshot, headers, client, context })
    }

    /// This caller, whose call the protocol's library ends and tells the progress of.
    pub(super) fn followed_by(self, context: RequestContext<RoleServer>) -> Self {
        Self { context: Some(context), ..self }
    }

    /// The path of an operation.
    ///
    /// # Errors
    /// When the configuration has none for it.
    pub(super) fn path(&self, operation: Operation) -> Result<&str, ToolError> {
        let routes = &self.snapshot.routes;
        let route = routes.iter().find(|route| route.operation == operation);
        route.map(|route| route.path.as_str()).ok_or_else(|| {
            ToolError::failed("not_found", format!("This gateway has no path for `{operation}`."))
        })
    }

    /// Sends JSON to an operation.
    ///
    /// # Errors
    /// What the gateway refuses, in its words.
    pub(super) async fn post(
        &self,
        operation: Operation,
        body: &Value,
    ) -> Result<GatewayAnswer, ToolError> {
        let written = serde_json::to_vec(body);
        let body =
            written.map_err(|_| ToolError::failed("internal_error", "It cannot be written."))?;
        self.post_written(operation, body.into()).await
    }

    /// Sends JSON that is written already to an operation.
    ///
    /// # Errors
    /// What the gateway refuses, in its words.
    pub(super) async fn post_written(
        &self,
        operation: Operation,
        body: Bytes,
    ) -> Result<GatewayAnswer, ToolError> {
        self.post_as(operation, HeaderValue::from_static("application/json"), body, &[]).await
    }

    /// Posts a body of another media type to the gateway, with more headers.
    ///
    /// # Errors
    /// What the gateway refuses, in its words.
    pub(super) async fn post_as(
        &self,
        operation: Operation,
        content_type: HeaderValue,
        body: Bytes,
        more: &[(HeaderName, HeaderValue)],
    ) -> Result<GatewayAnswer, ToolError> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, content_type);
        headers.extend(more.iter().cloned());
        let path = self.path(operation)?.to_owned();
        self.ask(Method::POST, path, headers, body).await
    }

    /// Reads a path.
    ///
    /// # Errors
    /// What the gateway refuses, in its words.
    pub(super) async fn get(&self, path: String) -> Result<GatewayAnswer, ToolError> {
        self.ask(Method::GET, path, self.headers.clone(), Bytes::new()).await
    }

    /// Waits until the call is to end before its time.
    pub(super) async fn cancelled(&self) {
        match &self.context {
            Some(context) => context.ct.cancelled().await,
            None => pending().await,
        }
    }

    /// Reports the progress of the call, if its client asked for it.
    pub(super) async fn tell(
        &self,
        progress: impl FnOnce(ProgressToken) -> ProgressNotificationParam,
    ) {
        let Some(context) = &self.context else { return };
        let Some(token) = context.meta.get_progress_token() else { return };
        // A client that is gone has cancelled the call as well.
        drop(context.peer.notify_progress(progress(token)).await);
    }

    async fn ask(
        &self,
        method: Method,
        path: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<GatewayAnswer, ToolError> {
        let request = GatewayRequest { method, path, headers, body };
        // Base64 is longer than its file by a third.
        let max = ANSWER_BYTES_MAX + self.snapshot.mcp.media_bytes_max / 3 * 4;
        let answer = whole(&*self.client, request, max);
        let Some(context) = &self.context else { return answer.await };
        tokio::select! {
            answer = answer => answer,
            // Nobody waits for it any more: to the gateway, the customer has left.
            () = context.ct.cancelled() => {
                Err(ToolError::failed("cancelled", "The call was cancelled."))
            }
        }
    }
}

async fn whole(
    client: &dyn GatewayClient,
    request: GatewayRequest,
    max: usize,
) -> Result<GatewayAnswer, ToolError> {
    let reply = client.call(request, max).await.map_err(|error| match error {
        CallError::Gateway(error) => error.into(),
        CallError::TooLarge => {
            let mut message = String::new();
            // Writing to a text cannot fail.
            let _written = write!(message, "The answer is larger than {max} bytes. ");
            message.push_str("Ask for less, or over HTTP.");
            ToolError::failed("answer_too_large", message)
        }
        CallError::NoMemory => no_room(),
    })?;
    let text = |name: HeaderName| {
        let value = reply.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (request_id, content_type) = (text(REQUEST_ID), text(CONTENT_TYPE));
    let served_by = text(SERVED_BY);
    if !(200..300).contains(&reply.status) {
        return Err(ToolError::by_gateway(reply.status, &reply.headers, &reply.body));
    }
    let GatewayResponse { body, settled, memory, .. } = reply;
    Ok(GatewayAnswer { request_id, served_by, content_type, body, settled, memory })
}

/// Error for an answer that is not JSON.
pub(super) fn no_json() -> ToolError {
    ToolError::failed("BadGateway", "The upstream's answer is no JSON.")
}

fn no_room() -> ToolError {
    let message = "Too many large answers are in memory at the moment. Try again shortly.";
    ToolError::failed("ServiceUnavailable", message)
}
