//! A scripted model: a test decides each answer from the conversation so far, and the simulator writes it in
//! the dialect of the request. Agents are driven by it through sessions with the tools that they offer.

mod chat;
mod converse;
mod gemini;
mod messages;
mod responses;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::answer::Answer;
use super::behaviour::Behaviour;
use super::received_request::ReceivedRequest;

/// The dialect of a request for a model's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelDialect {
    /// OpenAI's chat completions (`/v1/chat/completions`).
    Chat,
    /// OpenAI's Responses API (`/v1/responses`).
    Responses,
    /// Anthropic's Messages API (`/v1/messages`).
    Messages,
    /// Google's Gemini API (`generateContent`, `streamGenerateContent`).
    Gemini,
    /// Amazon Bedrock's Converse API (`converse`, `converse-stream`).
    Converse,
}

/// A request for an answer, as a script reads it.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The dialect in which it came.
    pub dialect: ModelDialect,
    /// The path, without its query.
    pub path: String,
    /// The headers of the HTTP request.
    pub headers: http::HeaderMap,
    /// Tools declared in the request.
    pub tools: Vec<DeclaredTool>,
    /// The calls of the history, oldest first.
    pub calls: Vec<PastCall>,
    /// The whole body of the request, as JSON.
    pub body: Value,
}

/// A tool declared in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTool {
    /// The name of the tool, as the request declares it.
    pub name: String,
    /// The namespace, in OpenAI's responses; empty outside of one.
    pub namespace: String,
    /// True if the input is free text: OpenAI's custom tools.
    pub is_free: bool,
}

impl ModelRequest {
    /// The tool of this name, which stands behind its namespace where a dialect has none.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&DeclaredTool> {
        let is_joined = |tool: &&DeclaredTool| {
            tool.name.strip_suffix(name).is_some_and(|namespace| namespace.ends_with("__"))
        };
        let mut tools = self.tools.iter();
        tools.find(|tool| tool.name == name).or_else(|| self.tools.iter().find(is_joined))
    }
}

/// A call in the history of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct PastCall {
    /// Call id, which pairs it with its result; empty in dialects without ids.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The input: an object, or a text for tools with free input.
    pub input: Value,
    /// The result, in the form of the dialect; null without one.
    pub result: Value,
}

/// An answer of a scripted model.
#[derive(Clone, Debug, Default)]
pub struct ModelTurn {
    /// Reasoning before the answer, shown where the request asks for it.
    pub thoughts: String,
    /// The text; none where empty.
    pub text: String,
    /// Calls of tools, which run side by side.
    pub calls: Vec<ScriptedToolCall>,
    /// The token counts that the answer reports.
    pub usage: TurnUsage,
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct ScriptedToolCall {
    /// The name of the tool, as [`ModelRequest::tool`] finds it.
    pub name: String,
    /// The input: an object, or a text for OpenAI's custom tools, which is wrapped in an object for all
    /// others.
    pub input: Value,
}

impl ScriptedToolCall {
    /// Adopt the declared name and input form of the tool.
    fn declare(&mut self, request: &ModelRequest) {
        let Some(tool) = request.tool(&self.name) else { return };
        self.name.clone_from(&tool.name);
        if self.input.is_string() && !tool.is_free {
            self.input = json!({"input": self.input});
        }
    }
}

/// The tokens of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnUsage {
    /// All tokens of the prompt, those from a cache included.
    pub input: u64,
    /// The tokens of the prompt that came from a cache.
    pub cached: u64,
    /// All tokens of the answer, reasoning included.
    pub output: u64,
    /// The tokens of reasoning.
    pub reasoning: u64,
}

type AnswerFn = dyn Fn(&ModelRequest) -> Option<ModelTurn> + Send + Sync;

/// Script that answers model requests; requests it declines are answered as usual.
pub struct ModelScript(Box<AnswerFn>);

impl ModelScript {
    /// A script of this function.
    pub fn new(
        answer: impl Fn(&ModelRequest) -> Option<ModelTurn> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(answer))
    }
}

impl std::fmt::Debug for ModelScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ModelScript")
    }
}

/// The scripted answer; `None` where the script leaves the request alone or the body is no JSON.
pub(super) fn answer(
    script: &ModelScript,
    dialect: ModelDialect,
    streams: bool,
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
) -> Option<Answer> {
    let body: Value = serde_json::from_slice(http_request.body).ok()?;
    let (tools, calls) = match dialect {
        ModelDialect::Chat => (chat::tools(&body), chat::calls(&body)),
        ModelDialect::Responses => (responses::tools(&body), responses::calls(&body)),
        ModelDialect::Messages => (messages::tools(&body), messages::calls(&body)),
        ModelDialect::Gemini => (gemini::tools(&body), gemini::calls(&body)),
        ModelDialect::Converse => (converse::tools(&body), converse::calls(&body)),
    };
    let (path, headers) = (http_request.path.to_owned(), http_request.headers.clone());
    let request = ModelRequest { dialect, path, headers, tools, calls, body };
    let mut turn = (script.0)(&request)?;
    turn.calls.iter_mut().for_each(|call| call.declare(&request));
    let streams = streams || request.body["stream"] == true;
    let reply = TurnReply { number: http_request.number, turn, request: &request, streams };
    Some(match dialect {
        ModelDialect::Chat => chat::answer(&reply, behaviour),
        ModelDialect::Responses => responses::answer(&reply, behaviour),
        ModelDialect::Messages => messages::answer(&reply, behaviour),
        ModelDialect::Gemini => gemini::answer(&reply, behaviour),
        ModelDialect::Converse => converse::answer(&reply, behaviour),
    })
}

/// A turn with the request that it answers.
struct TurnReply<'a> {
    number: u64,
    turn: ModelTurn,
    request: &'a ModelRequest,
    streams: bool,
}

impl TurnReply<'_> {
    fn id(&self, kind: &str) -> String {
        format!("{kind}_sim{}", self.number)
    }

    /// The id of a call by its place in the turn.
    fn call_id(&self, kind: &str, place: usize) -> String {
        format!("{kind}_sim{}x{place}", self.number)
    }

    fn model(&self) -> &Value {
        &self.request.body["model"]
    }
}

/// The pieces of a text in which it is streamed: two, so that a reader has to join them.
fn pieces(text: &str) -> [&str; 2] {
    let middle = (text.len() / 2..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (first, second) = text.split_at(middle);
    [first, second]
}

/// The elements of an array; none of anything else.
fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A tool of this name, with an object as its input.
fn function(name: &Value) -> DeclaredTool {
    DeclaredTool { name: text_of(name), ..DeclaredTool::default() }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Arguments that come as a text of JSON.
fn parsed(arguments: &Value) -> Value {
    let text = arguments.as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_else(|_| arguments.clone())
}
