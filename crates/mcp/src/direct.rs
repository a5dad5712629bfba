//! Calls of tools as nearly all of them are: answered here, for a fraction of what the protocol's
//! library takes, which reads a message as each of some thirty types and has tasks and queues for what
//! a single answer does without.
//!
//! Nothing is refused here. A request that is not exactly as it has to be, or that asks for more than an
//! answer, goes to the library, whose words are the same for one that is fine.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use rmcp::model::{
    ClientCapabilities, JsonObject, JsonRpcVersion2_0, NumberOrString, ProtocolVersion, RequestId,
    ResultType,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::caller::{CallOutcome, ToolCaller};
use super::chat::{self, ChatArguments, WrittenRequest};
use super::envelope::HttpAnswer;
use super::reply::ChatReply;
use super::server::Server;
use super::text::BorrowedText;
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::tools::TOOLS;
use super::writer::ObjectWriter;

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";
const BOTH: &str = "application/json, text/event-stream";
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Memory for a message with a short answer, in addition to its text, which it contains twice.
const MESSAGE_BYTES: usize = 768;
/// The method of a call.
const TOOLS_CALL: &str = "tools/call";

/// A message that calls a tool with arguments of the type `A`, and has nothing else in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "A: Deserialize<'de>"))]
struct CallMessage<'a, A> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: JsonRpcVersion2_0,
    id: NumberOrString,
    #[serde(borrow)]
    method: BorrowedText<'a>,
    #[serde(borrow)]
    params: CallParams<'a, A>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "A: Deserialize<'de>"))]
struct CallParams<'a, A> {
    #[serde(borrow)]
    name: BorrowedText<'a>,
    #[serde(default, deserialize_with = "present")]
    arguments: Option<A>,
    #[serde(borrow, rename = "_meta", default)]
    meta: ClientMeta<'a>,
}

/// A present argument; unlike with `Option`, `null` does not count as absent.
fn present<'de, D: Deserializer<'de>, A: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<A>, D::Error> {
    A::deserialize(deserializer).map(Some)
}

/// Metadata of a message about the client. A client that wants progress reports asks for them here as well,
/// and takes the other path.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientMeta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<BorrowedText<'a>>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<ClientCapabilities>,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    _info: Option<IgnoredAny>,
}

/// The call of a tool with what it needs, and which version of the protocol it was made in.
struct DirectCall<W> {
    id: RequestId,
    tool: &'static ToolEntry,
    work: W,
    is_self_contained: bool,
}

/// The arguments of a call.
enum Arguments<'a> {
    /// Arguments of a chat, parsed without a tree.
    Chat(ChatArguments<'a>),
    /// Arguments of any other tool.
    Tree(JsonObject),
}

/// An object, and never an array of its members' values.
struct AsObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AsObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AsObjectVisitor(PhantomData))
    }
}

struct AsObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for AsObjectVisitor<T> {
    type Value = AsObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(AsObject)
    }
}

/// Prepared call.
enum CallWork {
    Chat(Result<WrittenRequest, ToolError>),
    Tool(JsonObject),
}

/// A message that answers a call.
#[derive(Serialize)]
struct ResultMessage<'a, R> {
    jsonrpc: JsonRpcVersion2_0,
    id: &'a RequestId,
    result: R,
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
    let Some((call, caller)) = prepare(server, &head, &bytes) else {
        return Err(Request::from_parts(head, body));
    };
    // What is kept of the request while the tool works is what the tool needs.
    drop((body, bytes, head));
    let DirectCall { id, tool, work, is_self_contained } = call;
    let called = match work {
        CallWork::Tool(arguments) => (tool.call)(&caller, arguments).await,
        CallWork::Chat(request) => match chat(&caller, &id, is_self_contained, request).await {
            Ok(answer) => return Ok(answer),
            Err(error) => Err(error),
        },
    };
    let mut result = called.unwrap_or_else(ToolError::into_result);
    if !is_self_contained {
        // Of the versions that begin with `initialize`, none knows it.
        result.result_type = None;
    }
    Ok(answered(&id, result))
}

/// Calls a model and returns its answer.
async fn chat(
    caller: &ToolCaller,
    id: &RequestId,
    is_self_contained: bool,
    request: Result<WrittenRequest, ToolError>,
) -> Result<HttpAnswer, ToolError> {
    let request = request?;
    let mut answer = request.send(caller).await?;
    let body = answer.body.clone();
    let reply = ChatReply::parse(&mut answer, &body, request.by_messages)?;
    Ok(respond(chat_message(id, is_self_contained, &reply, answer.outcome())))
}

/// The message with the result of a chat, as the library writes one.
fn chat_message(
    id: &RequestId,
    is_self_contained: bool,
    reply: &ChatReply<'_>,
    outcome: CallOutcome<'_>,
) -> Vec<u8> {
    let shown = reply.shown();
    let text = |json, text: &str| {
        let mut block = ObjectWriter::new(json);
        block.text("type", "text");
        block.text("text", text);
        block.end()
    };
    let bytes = shown.len().saturating_mul(2).saturating_add(MESSAGE_BYTES);
    let mut message = ObjectWriter::new(Vec::with_capacity(bytes));
    message.text("jsonrpc", "2.0");
    message.value("id", id);
    message.nested("result", |json| {
        let mut result = ObjectWriter::new(json);
        if is_self_contained {
            result.text("resultType", ResultType::COMPLETE.as_str());
        }
        result.array("content", &[&*shown], |shown, json| text(json, shown));
        result.nested("structuredContent", |json| reply.write(outcome, json));
        result.json("isError", "false");
        result.end()
    });
    message.end()
}

/// The call that is to be made, and who makes it, if the request is one.
fn prepare(
    server: &Server,
    head: &Parts,
    body: &[u8],
) -> Option<(DirectCall<CallWork>, ToolCaller)> {
    let call = read_call(&head.headers, body)?;
    let caller = server.direct_caller(&head.headers, &head.extensions)?;
    let call = call.with(|arguments| match arguments {
        Arguments::Chat(arguments) => CallWork::Chat(WrittenRequest::new(&caller, arguments)),
        Arguments::Tree(arguments) => CallWork::Tool(arguments),
    });
    Some((call, caller))
}

/// The call, if the message is one and its headers agree. Arguments of a chat are parsed into a tree only if
/// they are invalid, so that the tool can report the error.
fn read_call<'a>(headers: &HeaderMap, body: &'a [u8]) -> Option<DirectCall<Arguments<'a>>> {
    if may_be_chat(headers)
        && let Some(mut call) = read::<AsObject<ChatArguments<'_>>>(headers, body)
        && call.tool.name == chat::NAME
        && let Some(AsObject(arguments)) = call.work.take()
    {
        return Some(call.with(|_| Arguments::Chat(arguments)));
    }
    let call = read::<JsonObject>(headers, body)?;
    Some(call.with(|arguments| Arguments::Tree(arguments.unwrap_or_default())))
}

impl<A> DirectCall<A> {
    /// This call with what `work` makes of its arguments.
    fn with<W>(self, work: impl FnOnce(A) -> W) -> DirectCall<W> {
        let Self { id, tool, work: arguments, is_self_contained } = self;
        DirectCall { id, tool, work: work(arguments), is_self_contained }
    }
}

/// True unless the headers name a tool other than `chat`.
fn may_be_chat(headers: &HeaderMap) -> bool {
    headers.get(NAME).is_none_or(|name| name == chat::NAME)
}

/// True if the request is JSON, and its client accepts both forms of an answer.
fn is_json_for_json(headers: &HeaderMap) -> bool {
    // The header may be there several times, for one list (RFC 9110, section 5.3). A comma between quotes
    // divides nothing: such a list is the library's to read.
    let accepts = |media_type| {
        let lists = headers.get_all(ACCEPT).iter().filter_map(|list| list.to_str().ok());
        let mut lists = lists.filter(|list| !list.contains('"'));
        lists.any(|list| list.split(',').any(|one| one.trim() == media_type))
    };
    // As nearly all clients write it.
    let accepts_both = || headers.get_all(ACCEPT).iter().any(|list| list == BOTH);
    only(headers, &CONTENT_TYPE) == Some(JSON)
        && (accepts_both() || accepts(JSON) && accepts(EVENT_STREAM))
}

/// The value of a header that is there once and is text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

/// The call with its arguments, if the message is one and the headers say the same.
fn read<'a, A: Deserialize<'a>>(
    headers: &HeaderMap,
    body: &'a [u8],
) -> Option<DirectCall<Option<A>>> {
    // Looked at as a whole, a text is known to be one in less time than in parts. What is none can be one
    // where nobody looks.
    let message: CallMessage<'a, A> = match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text).ok()?,
        Err(_) => serde_json::from_slice(body).ok()?,
    };
    let CallMessage { id, method, params: CallParams { name, arguments, meta }, .. } = message;
    let tool = TOOLS.iter().find(|row| *row.name == *name)?;
    let latest = ProtocolVersion::V_2026_07_28;
    let is_self_contained = match &meta.version {
        Some(version) => {
            let is_accepted = **version == *latest.as_str()
                && only(headers, &VERSION) == Some(latest.as_str())
                && only(headers, &METHOD) == Some(TOOLS_CALL)
                && only(headers, &NAME) == Some(tool.name)
                && meta.capabilities.is_some();
            is_accepted.then_some(true)?
        }
        None => {
            let is_before = |version: &str| {
                version != latest.as_str()
                    && ProtocolVersion::KNOWN_VERSIONS
                        .iter()
                        .any(|supported| supported.as_str() == version)
            };
            let is_accepted = match headers.contains_key(VERSION) {
                true => only(headers, &VERSION).is_some_and(is_before),
                false => true,
            };
            // One that says a part of it is asked for the rest.
            (is_accepted && meta.capabilities.is_none()).then_some(false)?
        }
    };
    (*method == *TOOLS_CALL).then_some(DirectCall { id, tool, work: arguments, is_self_contained })
}

fn answered(id: &RequestId, result: impl Serialize) -> HttpAnswer {
    let response = ResultMessage { jsonrpc: JsonRpcVersion2_0, id, result };
    // A result is made of texts and trees, which always can be written.
    respond(serde_json::to_vec(&response).unwrap_or_default())
}

fn respond(body: Vec<u8>) -> HttpAnswer {
    let mut answer = Response::new(Full::from(body).boxed());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    answer
}

#[cfg(test)]
mod tests;
