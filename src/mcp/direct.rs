//! Calls of tools as nearly all of them are: answered here, for a fraction of what the protocol's
//! library takes, which reads a message as each of some thirty types and has tasks and queues for what
//! a single answer does without.
//!
//! Nothing is refused here. A request that is not exactly as it has to be, or that asks for more than an
//! answer, goes to the library, whose words are the same for one that is fine.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use rmcp::model::{
    CallToolResult, ClientCapabilities, JsonObject, JsonRpcResponse, JsonRpcVersion2_0,
    NumberOrString, ProtocolVersion, RequestId,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::door::HttpAnswer;
use super::server::Server;
use super::tools::{ROWS, ToolEntry};

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The method of a call.
const TOOLS_CALL: &str = "tools/call";

/// A message that calls a tool and has nothing else in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallMessage {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: JsonRpcVersion2_0,
    id: NumberOrString,
    method: String,
    params: CallParams,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallParams {
    name: String,
    #[serde(default)]
    arguments: JsonObject,
    #[serde(rename = "_meta", default)]
    meta: ClientMeta,
}

/// What a message says of the client. A client that wants to be told of progress says so here as well,
/// and is none of these.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientMeta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<ClientCapabilities>,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    _info: Option<IgnoredAny>,
}

/// The call of a tool, and which version of the protocol it was made in.
struct DirectCall {
    id: RequestId,
    tool: &'static ToolEntry,
    arguments: JsonObject,
    stands_by_itself: bool,
}

/// Answers the call of a tool; gives back any other request.
pub(super) async fn answer(
    server: &Server,
    request: Request<Full<Bytes>>,
) -> Result<HttpAnswer, Request<Full<Bytes>>> {
    if request.method() != Method::POST || !is_json_for_json(request.headers()) {
        return Err(request);
    }
    let (head, body) = request.into_parts();
    // The body is whole and in memory: this gives it at once, and a copy costs nothing.
    let Ok(bytes) = body.clone().collect().await.map(http_body_util::Collected::to_bytes);
    let Some(call) = read(&head.headers, &bytes) else {
        return Err(Request::from_parts(head, body));
    };
    let Some(caller) = server.direct_caller(&head.headers, &head.extensions) else {
        return Err(Request::from_parts(head, body));
    };
    // What is kept of the request while the tool works are its arguments.
    drop((body, bytes, head));
    let called = (call.tool.call)(&caller, call.arguments).await;
    let mut result = called.unwrap_or_else(super::refused::ToolError::into_result);
    if !call.stands_by_itself {
        // Of the versions that begin with `initialize`, none knows it.
        result.result_type = None;
    }
    Ok(answered(call.id, result))
}

/// Whether the request brings JSON, and its client reads both forms of an answer.
fn is_json_for_json(headers: &HeaderMap) -> bool {
    let content_type = only(headers, &CONTENT_TYPE);
    let accepted = only(headers, &ACCEPT).unwrap_or_default();
    let accepts = |media_type| accepted.split(',').any(|one| one.trim() == media_type);
    content_type == Some(JSON) && accepts(JSON) && accepts(EVENT_STREAM)
}

/// The value of a header that is there once and is text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

/// The call, if the message is one and the headers say the same.
fn read(headers: &HeaderMap, body: &[u8]) -> Option<DirectCall> {
    let message: CallMessage = serde_json::from_slice(body).ok()?;
    let CallMessage { id, method, params: CallParams { name, arguments, meta }, .. } = message;
    let tool = ROWS.iter().find(|row| row.name == name)?;
    let latest = ProtocolVersion::V_2026_07_28;
    let stands_by_itself = match &meta.version {
        Some(version) => {
            let is_told = version == latest.as_str()
                && only(headers, &VERSION) == Some(latest.as_str())
                && only(headers, &METHOD) == Some(TOOLS_CALL)
                && only(headers, &NAME) == Some(tool.name)
                && meta.capabilities.is_some();
            is_told.then_some(true)?
        }
        None => {
            let is_before = |version: &str| {
                version != latest.as_str()
                    && ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version)
            };
            let is_told = match headers.contains_key(VERSION) {
                true => only(headers, &VERSION).is_some_and(is_before),
                false => true,
            };
            // One that says a part of it is asked for the rest.
            (is_told && meta.capabilities.is_none()).then_some(false)?
        }
    };
    (method == TOOLS_CALL).then_some(DirectCall { id, tool, arguments, stands_by_itself })
}

fn answered(id: RequestId, result: CallToolResult) -> HttpAnswer {
    let response = JsonRpcResponse { jsonrpc: JsonRpcVersion2_0, id, result };
    // A result is made of texts and trees, which always can be written.
    let body = serde_json::to_vec(&response).unwrap_or_default();
    let mut answer = Response::new(Full::from(body).boxed());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The call of a tool with what a client says of itself, and the headers that say the same.
    fn call_of(version: &'static str) -> (HeaderMap, Value) {
        let headers = [(VERSION, version), (METHOD, TOOLS_CALL), (NAME, "chat")];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": TOOLS_CALL, "params": {
            "name": "chat",
            "arguments": {"model": "m", "prompt": "Hi"},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            },
        }});
        (HeaderMap::from_iter(headers), message)
    }

    fn is_direct(headers: &HeaderMap, message: &Value) -> bool {
        read(headers, message.to_string().as_bytes()).is_some()
    }

    #[test]
    fn the_usual_call_is_answered_without_the_library() {
        let (headers, message) = call_of("2026-07-28");
        assert!(is_direct(&headers, &message));
        let earlier = json!({"jsonrpc": "2.0", "id": "a", "method": TOOLS_CALL,
            "params": {"name": "get_balance"}});
        assert!(is_direct(&HeaderMap::new(), &earlier));
    }

    #[test]
    fn what_is_not_exactly_a_call_is_left_to_the_library() {
        let (headers, message) = call_of("2026-07-28");
        for (path, value) in [
            ("/method", json!("tools/list")),
            ("/params/name", json!("nothing")),
            ("/params/_meta/progressToken", json!(1)),
            ("/params/task", json!({})),
            ("/jsonrpc", json!("1.0")),
        ] {
            let mut message = message.clone();
            let (parent, name) = path.rsplit_once('/').expect("a member");
            message.pointer_mut(parent).expect("an object")[name] = value;
            assert!(!is_direct(&headers, &message), "{path}");
        }
        for name in [VERSION, METHOD, NAME] {
            let mut headers = headers.clone();
            headers.remove(&name);
            assert!(!is_direct(&headers, &message), "{name}");
        }
    }
}
