//! An answer before it is sent.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::behaviour::{Behaviour, Break, WithheldAnswer};
use super::error;
use super::script::{self, BodyStep, EventStream, StreamFormat};

/// Bytes that are neither JSON nor events, nor even text.
const GARBAGE: &[u8] = b"data: {\"id\":\n\n\xFF\xFE\x00<html>not an answer</html>\x80";

/// An HTTP response: status, the headers that vary, and the steps that send the body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    /// The announced length, where the body breaks off before it.
    pub(super) announced_bytes: Option<usize>,
    pub(super) retry_after: Option<String>,
    pub(super) steps: Vec<BodyStep>,
    /// The name of the failure in a header, as Amazon's services have it.
    pub(super) error_name: Option<String>,
    /// Failure in place of the response, after its work was done.
    pub(super) withheld: Option<WithheldAnswer>,
}

impl Answer {
    fn new(status: StatusCode, content_type: &'static str, steps: Vec<BodyStep>) -> Self {
        Self {
            status,
            content_type,
            announced_bytes: None,
            retry_after: None,
            steps,
            error_name: None,
            withheld: None,
        }
    }

    /// 200 with a JSON body.
    pub(super) fn json(body: impl Into<Bytes>, behaviour: &Behaviour) -> Self {
        let body = body.into();
        // A cut body announces its whole length: a client can tell by that alone that something is
        // missing.
        let is_cut = behaviour.faults.stop.is_some_and(|stop| stop.how == Break::Cut);
        let announced_bytes = is_cut.then_some(body.len());
        let steps = script::whole(body, behaviour);
        Self { announced_bytes, ..Self::new(StatusCode::OK, "application/json", steps) }
    }

    /// 200 with an event stream.
    pub(super) fn events(stream: EventStream<'_>) -> Self {
        let content_type = "text/event-stream; charset=utf-8";
        Self::new(StatusCode::OK, content_type, stream.into_steps())
    }

    /// 200 with bytes that come piece by piece.
    pub(super) fn pieces(
        content_type: &'static str,
        pieces: impl IntoIterator<Item = Bytes>,
        behaviour: &Behaviour,
    ) -> Self {
        let mut stream = EventStream::new(behaviour, StreamFormat::Bytes);
        pieces.into_iter().for_each(|piece| stream.send_chunk(&piece));
        Self { content_type, ..Self::events(stream) }
    }

    /// Status 200 with a body that is no answer at all.
    pub(super) fn garbage(streamed: bool) -> Self {
        // The headers promise an answer: only who reads the body finds that there is none.
        let content_type = if streamed { "text/event-stream" } else { "application/json" };
        let steps = vec![BodyStep::Write(Bytes::from_static(GARBAGE))];
        Self::new(StatusCode::OK, content_type, steps)
    }

    /// An error in OpenAI's envelope, whose `type` and `code` follow from the status.
    pub(super) fn error(status: StatusCode, message: &str, behaviour: &Behaviour) -> Self {
        Self::refused(ErrorFormat::Openai, status, message, behaviour)
    }

    /// The 400 of a request to OpenAI that cannot be served.
    pub(super) fn invalid(message: &str, behaviour: &Behaviour) -> Self {
        Self::error(StatusCode::BAD_REQUEST, message, behaviour)
    }

    /// The 400 of a request to OpenAI that cannot be served, with a code that says why.
    pub(super) fn invalid_as(code: &str, message: &str, behaviour: &Behaviour) -> Self {
        let code = behaviour.error_code.as_deref().unwrap_or(code);
        let status = StatusCode::BAD_REQUEST;
        Self::with_error(status, &openai_error(status, Some(code), message), behaviour)
    }

    /// An error, with what follows from the status.
    pub(super) fn refused(
        envelope: ErrorFormat,
        status: StatusCode,
        message: &str,
        behaviour: &Behaviour,
    ) -> Self {
        let code = behaviour.error_code.as_deref();
        // Those who copied OpenAI's API fail in words of their own; other APIs have one provider
        // each.
        let own = behaviour.provider.refusal(status, code, message);
        if let Some(own) = own.filter(|_| envelope == ErrorFormat::Openai) {
            return Self {
                content_type: own.content_type,
                steps: vec![BodyStep::Write(own.text.into())],
                ..Self::with_error(own.status, &Value::Null, behaviour)
            };
        }
        let refused = Self::with_error(status, &envelope.error(status, code, message), behaviour);
        let error_name = (envelope == ErrorFormat::Bedrock)
            .then(|| code.unwrap_or_else(|| error::bedrock_name(status)).to_owned());
        Self { error_name, ..refused }
    }

    /// An error with a body of the caller's.
    pub(super) fn with_error(status: StatusCode, body: &Value, behaviour: &Behaviour) -> Self {
        let steps = vec![BodyStep::Write(body.to_string().into())];
        let retry_after = behaviour.retry_after.clone();
        Self { retry_after, ..Self::new(status, "application/json", steps) }
    }
}

/// Format of an endpoint's error bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorFormat {
    Openai,
    Anthropic,
    Dashscope,
    Google,
    Ark,
    Xai,
    Bedrock,
}

impl ErrorFormat {
    /// `code` is the one to show instead of the status's own, where the envelope has codes.
    fn error(self, status: StatusCode, code: Option<&str>, message: &str) -> Value {
        match self {
            Self::Openai => openai_error(status, code, message),
            Self::Anthropic => anthropic_error(status, message),
            Self::Dashscope => dashscope_error(status, code, message),
            Self::Google => google_error(status, message),
            Self::Ark => error::ark(status, code, None, message),
            Self::Xai => error::xai(status, code, message),
            Self::Bedrock => json!({"message": message}),
        }
    }
}

fn openai_error(status: StatusCode, code: Option<&str>, message: &str) -> Value {
    let (kind, usual) = match status.as_u16() {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        404 => ("invalid_request_error", Some("model_not_found")),
        429 => ("requests", Some("rate_limit_exceeded")),
        400..=499 => ("invalid_request_error", None),
        _ => ("server_error", None),
    };
    json!({
        "error": {"message": message, "type": kind, "param": null, "code": code.or(usual)},
    })
}

fn anthropic_error(status: StatusCode, message: &str) -> Value {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    json!({
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_sim_anthropic",
    })
}

/// The statuses are those of Google's `google.rpc.Code`.
fn google_error(status: StatusCode, message: &str) -> Value {
    let word = match status.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        400..=499 => "INVALID_ARGUMENT",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status.as_u16(), "message": message, "status": word}})
}

/// The codes are those of Alibaba Cloud Model Studio's "Error messages".
fn dashscope_error(status: StatusCode, code: Option<&str>, message: &str) -> Value {
    let usual = match status.as_u16() {
        401 => "InvalidApiKey",
        403 => "AccessDenied",
        404 => "ModelNotFound",
        429 => "Throttling.RateQuota",
        400..=499 => "InvalidParameter",
        _ => "InternalError",
    };
    json!({
        "code": code.unwrap_or(usual),
        "message": message,
        "request_id": "req_sim_dashscope",
    })
}
