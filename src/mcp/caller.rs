//! Who calls a tool, and the requests that are made for them.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::refused::Refused;
use crate::config::snapshot::Snapshot;
use crate::finished::Settled;
use crate::gateway::{Downstream, Inner, Inward};
use crate::ledger::Key;
use crate::protocols::Operation;

/// What goes on to the gateway of the caller's headers: who it is, and whose trace it belongs to.
const PASSED_ON: [HeaderName; 4] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];
/// The largest answer beside the media in it: embeddings of a long list are a few MiB.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Who calls a tool.
pub(super) struct Caller {
    /// The key that was shown.
    pub(super) key: Arc<Key>,
    /// The configuration that this call sees.
    pub(super) snapshot: Arc<Snapshot>,
    headers: HeaderMap,
    downstream: Option<Downstream>,
    inward: Inward,
    /// How the call can be told to end, and its progress told.
    pub(super) context: RequestContext<RoleServer>,
}

/// A good answer of the gateway.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) request_id: String,
    pub(super) content_type: String,
    pub(super) body: Bytes,
    settled: Option<Settled>,
}

impl Answer {
    /// The body as JSON.
    pub(super) fn json(&self) -> Result<Value, Refused> {
        serde_json::from_slice(&self.body)
            .map_err(|_| Refused::failed("BadGateway", "The upstream's answer is no JSON."))
    }

    /// What the call came to, as members of the structured content: always the request's id, and its
    /// cost where something was held for it.
    pub(super) fn with_cost(&self, mut structured: Value) -> Value {
        structured["request_id"] = json!(self.request_id);
        if let Some(settled) = self.settled {
            structured["cost_usd"] = json!(settled.cost);
        }
        structured
    }
}

impl Caller {
    /// `None` for a request that did not come through the gateway.
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        inward: Inward,
        context: RequestContext<RoleServer>,
    ) -> Option<Self> {
        let parts = context.extensions.get::<Parts>()?;
        let key = Arc::clone(parts.extensions.get::<Arc<Key>>()?);
        let downstream = parts.extensions.get::<Downstream>().copied();
        let mut headers = HeaderMap::with_capacity(8);
        for name in PASSED_ON {
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        Some(Self { key, snapshot, headers, downstream, inward, context })
    }

    /// The path of an operation.
    ///
    /// # Errors
    /// When the configuration has none for it.
    pub(super) fn path(&self, operation: Operation) -> Result<&str, Refused> {
        let routes = &self.snapshot.routes;
        let route = routes.iter().find(|route| route.operation == operation);
        route.map(|route| route.path.as_str()).ok_or_else(|| {
            Refused::failed("not_found", format!("This gateway has no path for `{operation}`."))
        })
    }

    /// Sends JSON to an operation.
    ///
    /// # Errors
    /// What the gateway refuses, in its words.
    pub(super) async fn post(&self, operation: Operation, body: &Value) -> Result<Answer, Refused> {
        let body = Bytes::from(body.to_string());
        self.post_as(operation, HeaderValue::from_static("application/json"), body, &[]).await
    }

    /// The same with another type of content and more headers.
    ///
    /// # Errors
    /// What the gateway refuses, in its words.
    pub(super) async fn post_as(
        &self,
        operation: Operation,
        content_type: HeaderValue,
        body: Bytes,
        more: &[(HeaderName, HeaderValue)],
    ) -> Result<Answer, Refused> {
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
    pub(super) async fn get(&self, path: String) -> Result<Answer, Refused> {
        self.ask(Method::GET, path, self.headers.clone(), Bytes::new()).await
    }

    async fn ask(
        &self,
        method: Method,
        path: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Refused> {
        let address = self.downstream.and_then(|downstream| downstream.address);
        let request = Inner { method, path, headers, body, address };
        let max = ANSWER_BYTES_MAX + self.snapshot.mcp.media_bytes_max / 3 * 4;
        tokio::select! {
            answer = whole(&self.inward, request, max) => answer,
            // Nobody waits for it any more: to the gateway, the customer has left.
            () = self.context.ct.cancelled() => {
                Err(Refused::failed("cancelled", "The call was cancelled."))
            }
        }
    }
}

async fn whole(inward: &Inward, request: Inner, max: usize) -> Result<Answer, Refused> {
    let mut reply = inward.ask(request).await?;
    let mut body = BytesMut::new();
    while let Some(piece) = reply.chunk().await? {
        if body.len() + piece.len() > max {
            let mut message = String::new();
            // Writing to a text cannot fail.
            let _written = write!(message, "The answer is larger than {max} bytes. ");
            message.push_str("Ask for less, or over HTTP.");
            return Err(Refused::failed("answer_too_large", message));
        }
        body.extend_from_slice(&piece);
    }
    let text = |name: &str| {
        let value = reply.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let (request_id, content_type) = (text("x-request-id"), text("content-type"));
    if !(200..300).contains(&reply.status) {
        return Err(Refused::by_gateway(reply.status, &reply.headers, &body));
    }
    let body = body.freeze();
    Ok(Answer { request_id, content_type, body, settled: reply.settled().await })
}
