//! Routing: the table of paths, and the checks before all of them.

use http::header::AUTHORIZATION;
use http::{Method, StatusCode};
use serde_json::Value;

use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, SimulatedRefusal};
use super::conversation::{self, ModelDialect};
use super::received_request::ReceivedRequest;
use super::state::SimulatorState;
use super::strict::{self, StrictDialect};
use super::{anthropic, ark, bedrock, blind, dashscope, gemini, openai, results, xai};

/// Path of the recorded requests.
const REQUESTS_PATH: &str = "/sim/requests";
/// Path of the tasks.
const TASKS_PATH: &str = "/sim/tasks";

/// Endpoint of a request.
#[derive(Clone, Copy)]
enum Endpoint<'a> {
    Requests,
    Tasks,
    Messages,
    CountTokens,
    /// True for the streaming form.
    Converse(bool),
    Content(&'a str, gemini::Method),
    Chat,
    Embeddings,
    Rerank,
    Moderations,
    Responses,
    Compact,
    InputTokens,
    Response(&'a str),
    ResponseItems(&'a str),
    ResponseCancel(&'a str),
    ImageGenerations,
    ImageEdits,
    Speech,
    Transcription,
    Generation,
    DashscopeVideos,
    DashscopeTask(&'a str),
    ArkTasks,
    ArkTask(&'a str),
    XaiVideos,
    XaiVideo(&'a str),
    Models,
    Model(&'a str),
    Result(&'a str),
}

impl<'a> Endpoint<'a> {
    /// Find the endpoint by the suffix of the path.
    fn from_path(path: &'a str) -> Option<Self> {
        match path {
            REQUESTS_PATH => return Some(Self::Requests),
            TASKS_PATH => return Some(Self::Tasks),
            _ => {}
        }
        let mut segments = path.rsplit('/');
        match (segments.next()?, segments.next()?) {
            ("messages", _) => Some(Self::Messages),
            ("count_tokens", "messages") => Some(Self::CountTokens),
            ("converse", _) => Some(Self::Converse(false)),
            ("converse-stream", _) => Some(Self::Converse(true)),
            ("completions", "chat") => Some(Self::Chat),
            ("embeddings", _) => Some(Self::Embeddings),
            ("rerank", _) => Some(Self::Rerank),
            ("moderations", _) => Some(Self::Moderations),
            ("responses", _) => Some(Self::Responses),
            ("compact", "responses") => Some(Self::Compact),
            ("input_tokens", "responses") => Some(Self::InputTokens),
            (id, "responses") => Some(Self::Response(id)),
            ("input_items", id) if segments.next() == Some("responses") => {
                Some(Self::ResponseItems(id))
            }
            ("cancel", id) if segments.next() == Some("responses") => {
                Some(Self::ResponseCancel(id))
            }
            ("generations", "images") => Some(Self::ImageGenerations),
            ("edits", "images") => Some(Self::ImageEdits),
            ("speech", "audio") => Some(Self::Speech),
            ("transcriptions" | "translations", "audio") => Some(Self::Transcription),
            ("generation", "multimodal-generation") => Some(Self::Generation),
            ("video-synthesis", "video-generation") => Some(Self::DashscopeVideos),
            ("tasks", "generations") => Some(Self::ArkTasks),
            (id, "tasks") if segments.next() == Some("generations") => Some(Self::ArkTask(id)),
            (id, "tasks") => Some(Self::DashscopeTask(id)),
            ("generations", "videos") => Some(Self::XaiVideos),
            (id, "videos") => Some(Self::XaiVideo(id)),
            ("models", _) => Some(Self::Models),
            (id, "models") => Some(match gemini::Method::from_segment(id) {
                Some((model, method)) => Self::Content(model, method),
                None => Self::Model(id),
            }),
            (name, "results") => Some(Self::Result(name)),
            _ => None,
        }
    }

    fn takes(self, method: &Method) -> bool {
        let is = |only: Method| *method == only;
        match self {
            Self::Requests
            | Self::Tasks
            | Self::DashscopeTask(_)
            | Self::ResponseItems(_)
            | Self::XaiVideo(_)
            | Self::Models
            | Self::Model(_)
            | Self::Result(_) => is(Method::GET),
            Self::ArkTasks => is(Method::GET) || is(Method::POST),
            Self::ArkTask(_) | Self::Response(_) => is(Method::GET) || is(Method::DELETE),
            Self::Messages
            | Self::CountTokens
            | Self::Converse(_)
            | Self::Content(..)
            | Self::Chat
            | Self::Embeddings
            | Self::Rerank
            | Self::Moderations
            | Self::Responses
            | Self::Compact
            | Self::InputTokens
            | Self::ResponseCancel(_)
            | Self::ImageGenerations
            | Self::ImageEdits
            | Self::Speech
            | Self::Transcription
            | Self::Generation
            | Self::DashscopeVideos
            | Self::XaiVideos => is(Method::POST),
        }
    }

    fn envelope(self) -> ErrorFormat {
        match self {
            Self::Messages | Self::CountTokens => ErrorFormat::Anthropic,
            Self::Generation | Self::DashscopeVideos | Self::DashscopeTask(_) => {
                ErrorFormat::Dashscope
            }
            Self::Content(..) => ErrorFormat::Google,
            Self::ArkTasks | Self::ArkTask(_) => ErrorFormat::Ark,
            Self::XaiVideos | Self::XaiVideo(_) => ErrorFormat::Xai,
            Self::Converse(_) => ErrorFormat::Bedrock,
            _ => ErrorFormat::Openai,
        }
    }

    /// The refusal of the real provider's validator, where the simulator is to be strict.
    fn strict_refusal(
        self,
        http_request: &ReceivedRequest<'_>,
        behaviour: &Behaviour,
    ) -> Option<Answer> {
        if !behaviour.strict {
            return None;
        }
        let body = serde_json::from_slice::<Value>(http_request.body).ok()?;
        let in_body = body["model"].as_str().unwrap_or_default();
        let (dialect, model) = match self {
            Self::Chat => (StrictDialect::of_chat(in_body, &body), in_body),
            Self::Responses => (StrictDialect::OpenaiResponses, in_body),
            Self::Messages => (StrictDialect::Anthropic, in_body),
            // The model stands right before the last segment.
            Self::Converse(_) => {
                (StrictDialect::Bedrock, http_request.path.rsplit('/').nth(1).unwrap_or_default())
            }
            Self::Content(model, gemini::Method::Generate | gemini::Method::Stream) => {
                (StrictDialect::Gemini, model)
            }
            _ => return None,
        };
        let refusal = strict::check(dialect, model, Some(http_request.headers), &body).err()?;
        let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
        Some(Answer::refused(self.envelope(), status, &refusal.message, behaviour))
    }

    /// The dialect of a request for a model's answer, and whether its path asks for a stream.
    fn dialect(self) -> Option<(ModelDialect, bool)> {
        Some(match self {
            Self::Chat => (ModelDialect::Chat, false),
            Self::Responses => (ModelDialect::Responses, false),
            Self::Messages => (ModelDialect::Messages, false),
            Self::Converse(streams) => (ModelDialect::Converse, streams),
            Self::Content(_, gemini::Method::Generate) => (ModelDialect::Gemini, false),
            Self::Content(_, gemini::Method::Stream) => (ModelDialect::Gemini, true),
            _ => return None,
        })
    }

    /// Constant answer of a blind simulator, which has not kept the body that another would need. A stream whose
    /// path asks for it has none.
    fn blind_answer(self, behaviour: &Behaviour) -> Option<Answer> {
        let body = match self {
            _ if !behaviour.blind => return None,
            Self::Chat => blind::CHAT,
            Self::Messages => blind::MESSAGE,
            Self::Responses => blind::RESPONSE,
            Self::Content(_, gemini::Method::Generate) => blind::CONTENT,
            Self::Converse(false) => blind::CONVERSE,
            _ => return None,
        };
        Some(Answer::json(body, behaviour))
    }

    /// The answer of the script that a test has set.
    fn scripted(
        self,
        http_request: &ReceivedRequest<'_>,
        behaviour: &Behaviour,
        server: &SimulatorState,
    ) -> Option<Answer> {
        let script = server.script.load_full()?;
        let (dialect, streams) = self.dialect()?;
        conversation::answer(&script, dialect, streams, http_request, behaviour)
    }

    fn answer(
        self,
        http_request: &ReceivedRequest<'_>,
        behaviour: &Behaviour,
        server: &SimulatorState,
    ) -> Answer {
        if let Some(answer) = self.scripted(http_request, behaviour, server) {
            return answer;
        }
        if let Some(answer) = self.blind_answer(behaviour) {
            return answer;
        }
        let tasks = &server.tasks;
        let shown = |json: Value| Answer::json(json.to_string(), &Behaviour::default());
        match self {
            Self::Requests => shown(server.recorder.to_json()),
            Self::Tasks => shown(tasks.to_json()),
            Self::Messages => anthropic::message(http_request, behaviour),
            Self::CountTokens => anthropic::token_count(http_request, behaviour),
            Self::Converse(streams) => bedrock::answer(http_request, streams, behaviour),
            Self::Content(model, method) => gemini::answer(model, method, http_request, behaviour),
            Self::Chat => openai::chat::answer(http_request, behaviour),
            Self::Embeddings => openai::embeddings::answer(http_request, behaviour),
            Self::Rerank => openai::rerank::answer(http_request, behaviour),
            Self::Moderations => openai::moderations::answer(http_request, behaviour),
            Self::Responses => {
                openai::responses::answer(http_request, behaviour, &server.responses)
            }
            Self::Compact => openai::responses::compact(http_request, behaviour),
            Self::InputTokens => openai::responses::input_tokens(http_request, behaviour),
            Self::Response(id) => {
                openai::stored::whole(id, http_request, behaviour, &server.responses)
            }
            Self::ResponseItems(id) => {
                openai::stored::input_items(id, http_request, behaviour, &server.responses)
            }
            Self::ResponseCancel(id) => {
                openai::stored::cancel(id, http_request, behaviour, &server.responses)
            }
            Self::ImageGenerations => openai::images::generation(http_request, behaviour),
            Self::ImageEdits => openai::images::edit(http_request, behaviour),
            Self::Speech => openai::speech::answer(http_request, behaviour),
            Self::Transcription => openai::transcription::answer(http_request, behaviour),
            Self::Generation => dashscope::answer(http_request, behaviour),
            Self::DashscopeVideos => dashscope::video::submit(http_request, behaviour, tasks),
            Self::DashscopeTask(id) => dashscope::video::query(id, http_request, behaviour, tasks),
            Self::ArkTasks if *http_request.method == Method::GET => {
                ark::list(http_request, behaviour, tasks)
            }
            Self::ArkTasks => ark::submit(http_request, behaviour, tasks),
            Self::ArkTask(id) if *http_request.method == Method::GET => {
                ark::query(id, behaviour, tasks)
            }
            Self::ArkTask(id) => ark::cancel(id, behaviour, tasks),
            Self::XaiVideos => xai::submit(http_request, behaviour, tasks),
            Self::XaiVideo(id) => xai::query(id, behaviour, tasks),
            Self::Models => openai::models(behaviour),
            Self::Model(id) => openai::model(id, behaviour),
            Self::Result(name) => results::answer(name, behaviour),
        }
    }
}

/// True for the inspection paths of the simulator itself.
pub(super) fn shows_what_was_recorded(path: &str) -> bool {
    matches!(path, REQUESTS_PATH | TASKS_PATH)
}

/// True for a request that has the tokens of a prompt counted.
pub(super) fn counts_tokens(path: &str) -> bool {
    matches!(
        Endpoint::from_path(path),
        Some(
            Endpoint::CountTokens
                | Endpoint::InputTokens
                | Endpoint::Content(_, gemini::Method::Count)
        )
    )
}

/// Task id in a query's path, if it is one.
pub(super) fn queried_task<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    match Endpoint::from_path(path)? {
        Endpoint::DashscopeTask(id) | Endpoint::ArkTask(id) | Endpoint::XaiVideo(id) => {
            (*method == Method::GET).then_some(id)
        }
        _ => None,
    }
}

/// Answers a request by its path, its method and the behaviour that was set.
pub(super) fn answer(
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    server: &SimulatorState,
) -> Answer {
    let endpoint = Endpoint::from_path(http_request.path);
    // What does not exist is refused as OpenAI would.
    let envelope = endpoint.map_or(ErrorFormat::Openai, Endpoint::envelope);
    let refused = match endpoint {
        // What was recorded can be seen whatever the server was told to do to others.
        Some(Endpoint::Requests | Endpoint::Tasks) => None,
        // The name of a result is all that it takes to fetch it.
        Some(Endpoint::Result(_)) => scripted_refusal(envelope, behaviour),
        _ => scripted_refusal(envelope, behaviour)
            .or_else(|| wrong_key(http_request, envelope, behaviour)),
    };
    if let Some(refused) = refused {
        return refused;
    }
    let Some(endpoint) = endpoint else {
        let message = format!("There is no {} here.", http_request.path);
        return Answer::error(StatusCode::NOT_FOUND, &message, behaviour);
    };
    if !endpoint.takes(http_request.method) {
        let message = format!("{} does not take {}.", http_request.path, http_request.method);
        return Answer::refused(envelope, StatusCode::METHOD_NOT_ALLOWED, &message, behaviour);
    }
    if let Some(refused) = endpoint.strict_refusal(http_request, behaviour) {
        return refused;
    }
    endpoint.answer(http_request, behaviour, server)
}

/// Configured refusal, if any.
fn scripted_refusal(envelope: ErrorFormat, behaviour: &Behaviour) -> Option<Answer> {
    match behaviour.faults.refusal? {
        SimulatedRefusal::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let message = format!("The simulated upstream was told to answer {status}.");
            Some(Answer::refused(envelope, status, &message, behaviour))
        }
        SimulatedRefusal::ErrorIn200 if let Some(choice) = behaviour.provider.failed_choice() => {
            Some(Answer::json(choice.to_string(), &Behaviour::default()))
        }
        SimulatedRefusal::ErrorIn200 => {
            let (status, message) = (StatusCode::INTERNAL_SERVER_ERROR, "It failed after all.");
            let refused = Answer::refused(envelope, status, message, behaviour);
            Some(Answer { status: StatusCode::OK, ..refused })
        }
        SimulatedRefusal::Reset
        | SimulatedRefusal::ResetAfterBody
        | SimulatedRefusal::Hang
        | SimulatedRefusal::Garbage => None,
    }
}

/// The refusal of a request that does not carry the key it must.
fn wrong_key(
    http_request: &ReceivedRequest<'_>,
    envelope: ErrorFormat,
    behaviour: &Behaviour,
) -> Option<Answer> {
    let key = behaviour.key.as_ref()?;
    let header = |name| http_request.headers.get(name).map(http::HeaderValue::as_bytes);
    let (sent, message) = match envelope {
        ErrorFormat::Openai
        | ErrorFormat::Dashscope
        | ErrorFormat::Ark
        | ErrorFormat::Xai
        | ErrorFormat::Bedrock => (
            header(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix(b"Bearer ")),
            "Incorrect API key provided.",
        ),
        ErrorFormat::Anthropic => (header("x-api-key"), "invalid x-api-key"),
        // Vertex AI takes a token in the place of a key.
        ErrorFormat::Google => (
            header("x-goog-api-key").or_else(|| {
                header(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix(b"Bearer "))
            }),
            "API key not valid. Please pass a valid API key.",
        ),
    };
    let is_right = sent == Some(key.as_bytes());
    (!is_right).then(|| Answer::refused(envelope, StatusCode::UNAUTHORIZED, message, behaviour))
}
