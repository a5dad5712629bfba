//! The answer to a turn: the events of a stream, each as the message that it becomes, and what of them the
//! next turn goes on from.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::error::{ErrorKind, GatewayError};
use crate::protocols::json::Object;
use crate::protocols::sse::{self, EventAction, Events};

/// Output of a stream event: a message for the customer, or a sign of life.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    /// A message to the customer.
    Event(Bytes),
    /// A sign that the connection is alive.
    Alive,
}

/// Events below this size are sent before it matters what they take.
const SHORT_BYTES: usize = 64 * 1024;

/// Memory of events until they are sent, in bytes: as messages, and once more as frames. 0 for short ones.
pub(super) fn bytes_to_send(outgoing: &[Outgoing]) -> usize {
    let bytes: usize = outgoing
        .iter()
        .map(|one| match one {
            Outgoing::Event(event) => event.len(),
            Outgoing::Alive => 0,
        })
        .sum();
    if bytes < SHORT_BYTES { 0 } else { bytes.saturating_mul(2) }
}

/// Outcome of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResponseEnd {
    /// The response is complete and has this id.
    Done(String),
    /// The upstream or the gateway reported a failure.
    Failed,
}

/// Events of a turn in progress.
pub(super) struct TurnEvents {
    events: Events,
    /// The items of its output, as far as they are done; `None` where there is no room for them.
    output: Option<Vec<Bytes>>,
    end: Option<ResponseEnd>,
}

impl TurnEvents {
    /// State before the first event.
    pub(super) fn new() -> Self {
        // With the bound of image events, the largest that a response has.
        Self { events: Events::for_images(), output: Some(Vec::new()), end: None }
    }

    /// Parse a piece of the stream into messages.
    ///
    /// # Errors
    /// `BadGateway` for an event that is too large to be a message.
    pub(super) fn take(&mut self, piece: &Bytes) -> Result<Vec<Outgoing>, GatewayError> {
        let Self { events, output, end } = self;
        let mut outgoing = Vec::new();
        let unread = events.relay(piece, |event| {
            let data = sse::data(event);
            if data.is_empty() {
                outgoing.push(Outgoing::Alive);
            } else {
                note(&data, output, end);
                outgoing.push(Outgoing::Event(Bytes::copy_from_slice(&data)));
            }
            EventAction::Drop
        });
        if unread.is_empty() {
            return Ok(outgoing);
        }
        let message = "The answer has an event that is too large for a WebSocket. Ask over HTTP.";
        Err(GatewayError::new(ErrorKind::BadGateway, message))
    }

    /// Outcome of the response; `None` as long as it goes on.
    pub(super) fn end(&self) -> Option<&ResponseEnd> {
        self.end.as_ref()
    }

    /// The items of its output, as far as they are done; `None` where they were forgotten.
    pub(super) fn output(&self) -> Option<impl Iterator<Item = &[u8]>> {
        self.output.as_ref().map(|output| output.iter().map(AsRef::as_ref))
    }

    /// There is no room for its output: the next turn cannot go on from it.
    pub(super) fn forget(&mut self) {
        self.output = None;
    }

    /// Memory of the buffered part, in bytes.
    pub(super) fn len(&self) -> usize {
        let output: usize = self.output.iter().flatten().map(Bytes::len).sum();
        output.saturating_add(self.events.held_bytes())
    }
}

/// Records the output and the end that an event reports.
fn note(data: &[u8], output: &mut Option<Vec<Bytes>>, end: &mut Option<ResponseEnd>) {
    // The client gets it all the same, as it would over HTTP.
    let Ok(event) = Object::parse(data) else { return };
    let kind = event.get("type").and_then(|kind| kind.as_str());
    match kind.as_deref() {
        Some("response.output_item.done") => {
            if let (Some(output), Some(item)) = (output, event.get("item")) {
                output.push(Bytes::copy_from_slice(item.text()));
            }
        }
        Some("response.completed" | "response.incomplete") => {
            let response = event.get("response").and_then(|response| response.as_object().ok());
            let id = response.and_then(|response| Some(response.get("id")?.as_str()?.into_owned()));
            *end = Some(id.map_or(ResponseEnd::Failed, ResponseEnd::Done));
        }
        Some("response.failed" | "error") => *end = Some(ResponseEnd::Failed),
        _ => {}
    }
}

/// Message with the contents of the gateway's own headers: dropped fields and the fallback model; `None`
/// without such headers. Clients ignore unknown types of messages.
pub(super) fn beside(headers: &HeaderMap) -> Option<Bytes> {
    let is_own = |name: &HeaderName| name.as_str().starts_with("x-tollgate-");
    let own: serde_json::Map<String, Value> = headers
        .iter()
        .filter(|(name, _)| is_own(name))
        .filter_map(|(name, value)| Some((name.to_string(), json!(value.to_str().ok()?))))
        .collect();
    let event = || json!({"type": "tollgate.headers", "headers": own}).to_string().into();
    (!own.is_empty()).then(event)
}

/// The messages that answer a warm-up: a response with this id that has nothing in it and cost nothing.
pub(super) fn warmed_up(id: &str) -> [Bytes; 2] {
    let response = |status: &str, usage: Value| json!({"id": id, "object": "response", "status": status, "output": [], "usage": usage});
    let nothing = json!({
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    });
    let event = |kind: &str, number: u32, response: Value| {
        json!({"type": kind, "sequence_number": number, "response": response}).to_string().into()
    };
    [
        event("response.created", 0, response("in_progress", Value::Null)),
        event("response.completed", 1, response("completed", nothing)),
    ]
}

/// The message for a turn that was refused with this status and body, or failed: as OpenAI writes it, with
/// those of the answer's headers that clients act on.
pub(super) fn error(status: u16, body: &[u8], headers: &[(&str, String)]) -> Bytes {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = match &body["error"] {
        Value::Object(_) => body["error"].clone(),
        _ => json!({"type": "api_error", "code": null, "param": null,
            "message": "The request was refused without a reason that can be read."}),
    };
    let headers: serde_json::Map<String, Value> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let event = json!({"type": "error", "status": status, "error": error, "headers": headers});
    event.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": keep-alive\n\nevent: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\nevent: x\ndata: {\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\", \"id\":\"msg_1\"}}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"output\":[]}}\n\n";

    #[test]
    fn each_event_is_a_message_however_the_stream_is_cut() {
        for size in [1, 7, STREAM.len()] {
            let mut turn = TurnEvents::new();
            let mut outgoing = Vec::new();
            for piece in STREAM.as_bytes().chunks(size) {
                assert_eq!(turn.end(), None);
                outgoing.extend(turn.take(&Bytes::copy_from_slice(piece)).expect("events"));
            }
            assert_eq!((outgoing.len(), &outgoing[0]), (4, &Outgoing::Alive), "{outgoing:?}");
            assert_eq!(turn.end(), Some(&ResponseEnd::Done("resp_1".to_owned())));
            let output: Vec<&[u8]> = turn.output().expect("an output").collect();
            assert_eq!(output, [&b"{\"type\":\"message\", \"id\":\"msg_1\"}"[..]]);
            assert_eq!(turn.len(), output[0].len());
        }
    }

    #[test]
    fn what_headers_say_over_http_is_a_message() {
        let mut headers = HeaderMap::new();
        headers.insert("x-request-id", "req_1".parse().expect("a value"));
        assert_eq!(beside(&headers), None);
        headers.insert("x-tollgate-left-out", "top_k, seed".parse().expect("a value"));
        let event: Value =
            serde_json::from_slice(&beside(&headers).expect("a message")).expect("JSON");
        let expected =
            json!({"type": "tollgate.headers", "headers": {"x-tollgate-left-out": "top_k, seed"}});
        assert_eq!(event, expected);
    }

    #[test]
    fn what_fails_is_nothing_to_go_on_from() {
        for data in [
            r#"{"type":"response.failed","response":{"id":"resp_1"}}"#,
            r#"{"type":"error","error":{}}"#,
            r#"{"type":"response.completed","response":{}}"#,
        ] {
            let mut turn = TurnEvents::new();
            turn.take(&format!("data: {data}\n\n").into()).expect("an event");
            assert_eq!(turn.end(), Some(&ResponseEnd::Failed), "{data}");
        }
    }

    #[test]
    fn an_event_that_nobody_can_hold_is_refused() {
        let mut turn = TurnEvents::new();
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        let refused = (0..40).find_map(|_| turn.take(&piece).err());
        assert_eq!(refused.map(|error| error.kind), Some(ErrorKind::BadGateway));
    }

    #[test]
    fn a_refusal_is_an_event_with_its_status() {
        let body =
            br#"{"error":{"message":"m","type":"billing_error","code":"insufficient_balance"}}"#;
        let event = error(402, body, &[("retry-after", "1".to_owned())]);
        let event: Value = serde_json::from_slice(&event).expect("JSON");
        assert_eq!((&event["type"], &event["status"]), (&json!("error"), &json!(402)));
        assert_eq!(event["error"]["code"], "insufficient_balance");
        assert_eq!(event["headers"]["retry-after"], "1");
        let page: Value = serde_json::from_slice(&error(502, b"<html>", &[])).expect("JSON");
        assert_eq!(page["error"]["type"], "api_error");
    }
}
