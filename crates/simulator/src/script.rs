//! Script of a response body, write by write, and the event stream from which it is built.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::behaviour::{Behaviour, Break, BreakPoint, Writes};
use super::event_frames;
use super::in_flight::InFlight;

/// One step in sending an answer's body.
#[derive(Debug)]
pub(super) enum BodyStep {
    /// Sends these bytes as they are.
    Write(Bytes),
    /// Sends what was written so far, so that what follows is a write of its own.
    Flush,
    /// Waits for this time before the next step.
    Wait(Duration),
    /// Closes the connection without the end of the body.
    Cut,
    /// Sends nothing more and keeps the connection open.
    Hang,
}

/// The body of an answer was cut on purpose.
#[derive(Debug)]
pub(super) struct ConnectionCut;

impl std::fmt::Display for ConnectionCut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut on purpose")
    }
}

impl std::error::Error for ConnectionCut {}

/// The body of an answer: steps that are taken one after the other.
#[derive(Debug)]
pub(super) struct Script {
    steps: std::vec::IntoIter<BodyStep>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Counts the answer as in flight until its body is sent or given up.
    _in_flight: Option<InFlight>,
}

impl Script {
    pub(super) fn new(steps: Vec<BodyStep>) -> Self {
        Self { steps: steps.into_iter(), pause: None, _in_flight: None }
    }

    pub(super) fn counted(mut self, in_flight: InFlight) -> Self {
        self._in_flight = Some(in_flight);
        self
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = ConnectionCut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionCut>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match self.steps.next() {
                None => return Poll::Ready(None),
                Some(BodyStep::Write(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(BodyStep::Wait(wait)) => self.pause = Some(Box::pin(tokio::time::sleep(wait))),
                // hyper sends what it holds whenever a body has nothing ready.
                Some(BodyStep::Flush) => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(BodyStep::Cut) => return Poll::Ready(Some(Err(ConnectionCut))),
                // Nobody wakes this body again: it ends when the other side goes away.
                Some(BodyStep::Hang) => {
                    // Polled again by chance, it must still hang.
                    self.steps = vec![BodyStep::Hang].into_iter();
                    return Poll::Pending;
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        // A body of plain writes has a length, which hyper announces. Anything else is chunked.
        let length = self.steps.as_slice().iter().try_fold(0_u64, |sum, step| match step {
            BodyStep::Write(bytes) => Some(sum + bytes.len() as u64),
            _ => None,
        });
        length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// Script of an unstreamed body, with its faults.
pub(super) fn whole(body: Bytes, behaviour: &Behaviour) -> Vec<BodyStep> {
    let mut steps = Vec::new();
    match behaviour.faults.stop {
        None | Some(BreakPoint { how: Break::ErrorFrame, .. }) => {
            write(&mut steps, &body, behaviour.faults.writes);
        }
        Some(BreakPoint { how, .. }) => {
            write(&mut steps, &body.slice(..body.len() / 2), behaviour.faults.writes);
            end(&mut steps, how);
        }
    }
    steps
}

/// Event format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFormat {
    Openai,
    /// OpenAI's, of its Responses API.
    Responses,
    Anthropic,
    /// Amazon Bedrock's, in binary frames.
    Bedrock,
    /// Google's, of its Gemini API.
    Google,
    /// Raw bytes, which cannot carry an error event.
    Bytes,
}

/// Builds an event stream, with the faults that apply to it.
pub(super) struct EventStream<'a> {
    behaviour: &'a Behaviour,
    protocol: StreamFormat,
    steps: Vec<BodyStep>,
    chunks: u32,
    /// True once the stream has broken off; later content is dropped.
    ended: bool,
}

impl<'a> EventStream<'a> {
    pub(super) fn new(behaviour: &'a Behaviour, protocol: StreamFormat) -> Self {
        let capacity = usize::try_from(behaviour.chunks).unwrap_or_default() + 8;
        // Chunks and what frames them: a benchmark's stream of thousands of events grows once.
        let steps = Vec::with_capacity(capacity);
        let mut stream = Self { behaviour, protocol, steps, chunks: 0, ended: false };
        stream.stop_if_due();
        stream
    }

    /// The bytes of an event, to be sent as often as wanted.
    pub(super) fn event(&self, data: &str) -> Bytes {
        let end = self.behaviour.faults.line_end.as_str();
        if self.behaviour.faults.comments {
            return Bytes::from(format!(": between{end}{end}: inside{end}data: {data}{end}{end}"));
        }
        Bytes::from(format!("data: {data}{end}{end}"))
    }

    /// The bytes of an event that has a name.
    pub(super) fn named_event(&self, name: &str, data: &str) -> Bytes {
        let end = self.behaviour.faults.line_end.as_str();
        Bytes::from(format!("event: {name}{end}data: {data}{end}{end}"))
    }

    /// Sends an event at once.
    pub(super) fn send(&mut self, event: &Bytes) {
        if !self.ended {
            write(&mut self.steps, event, self.behaviour.faults.writes);
        }
    }

    /// Sends an event of content, an interval after the one before.
    pub(super) fn send_chunk(&mut self, event: &Bytes) {
        if self.ended {
            return;
        }
        // The first chunk waits for `delay` alone, which was over before the head went out.
        if self.chunks > 0 && !self.behaviour.interval.is_zero() {
            self.steps.push(BodyStep::Wait(self.behaviour.interval));
        }
        self.send(event);
        self.chunks += 1;
        self.stop_if_due();
    }

    /// True if the stream has broken off, so that no more content is needed.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn into_steps(mut self) -> Vec<BodyStep> {
        // A stream has no length, even where it could be known.
        if !self.ended {
            self.steps.push(BodyStep::Flush);
        }
        self.steps
    }

    fn stop_if_due(&mut self) {
        let Some(stop) = self.behaviour.faults.stop else { return };
        if self.chunks != stop.after_chunks {
            return;
        }
        if stop.how == Break::ErrorFrame {
            let frame = match self.protocol {
                StreamFormat::Openai if let Some(event) = self.behaviour.provider.error_event() => {
                    self.event(&event.to_string())
                }
                StreamFormat::Openai => self.event(
                    r#"{"error":{"message":"The simulated upstream failed in the middle of the stream.","type":"server_error","param":null,"code":null}}"#,
                ),
                StreamFormat::Responses => self.named_event(
                    "response.failed",
                    r#"{"type":"response.failed","sequence_number":99,"response":{"object":"response","status":"failed","error":{"code":"server_error","message":"The simulated upstream failed in the middle of the stream."},"usage":null}}"#,
                ),
                StreamFormat::Google => self.event(
                    r#"{"error":{"code":503,"message":"The simulated upstream failed in the middle of the stream.","status":"UNAVAILABLE"}}"#,
                ),
                // Sound and pictures have no words for an error: such a stream goes on to its end.
                StreamFormat::Bytes => return,
                StreamFormat::Bedrock => event_frames::exception(
                    "modelStreamErrorException",
                    r#"{"message":"The simulated upstream failed in the middle of the stream."}"#,
                ),
                StreamFormat::Anthropic => self.named_event(
                    "error",
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"The simulated upstream failed in the middle of the stream."}}"#,
                ),
            };
            self.send(&frame);
        }
        end(&mut self.steps, stop.how);
        self.ended = true;
    }
}

/// Ends a body early. What was written before is sent first.
fn end(steps: &mut Vec<BodyStep>, how: Break) {
    match how {
        Break::Cut => steps.extend([BodyStep::Flush, BodyStep::Cut]),
        Break::Hang => steps.extend([BodyStep::Flush, BodyStep::Hang]),
        // A flush, so that the half of an unstreamed body is sent without a length.
        Break::Eof | Break::ErrorFrame => steps.push(BodyStep::Flush),
    }
}

fn write(steps: &mut Vec<BodyStep>, bytes: &Bytes, writes: Writes) {
    if writes == Writes::Whole {
        steps.push(BodyStep::Write(bytes.clone()));
        return;
    }
    let mut start = 0;
    for cut in cuts(bytes, writes) {
        if start < cut && cut < bytes.len() {
            steps.extend([BodyStep::Write(bytes.slice(start..cut)), BodyStep::Flush]);
            start = cut;
        }
    }
    steps.extend([BodyStep::Write(bytes.slice(start..)), BodyStep::Flush]);
}

/// Offsets of the cuts, in ascending order.
fn cuts(bytes: &[u8], writes: Writes) -> Vec<usize> {
    match writes {
        Writes::Whole => Vec::new(),
        Writes::Split => vec![3, bytes.len() / 2, bytes.len().saturating_sub(1)],
        Writes::Utf8Split => {
            let inside = |(at, byte): (usize, &u8)| (byte & 0xC0 == 0x80).then_some(at);
            bytes.iter().enumerate().filter_map(inside).collect()
        }
        Writes::Trickle => (1..bytes.len()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &'static str, writes: Writes) -> Vec<String> {
        let mut steps = Vec::new();
        write(&mut steps, &Bytes::from_static(bytes.as_bytes()), writes);
        let text = |step| match step {
            BodyStep::Write(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            _ => None,
        };
        steps.into_iter().filter_map(text).collect()
    }

    #[test]
    fn writes_are_cut_where_they_should_be() {
        assert_eq!(written("data: {}\n\n", Writes::Whole), ["data: {}\n\n"]);
        assert_eq!(written("data: {}\n\n", Writes::Split), ["dat", "a:", " {}\n", "\n"]);
        assert_eq!(written("aé", Writes::Utf8Split), ["a\u{FFFD}", "\u{FFFD}"]);
        assert_eq!(written("abc", Writes::Trickle), ["a", "b", "c"]);
    }

    #[test]
    fn a_stream_breaks_off_after_the_configured_chunks() {
        let mut behaviour = Behaviour::default();
        behaviour.set("fault", "cut-after=2").expect("a fault");
        let mut stream = EventStream::new(&behaviour, StreamFormat::Openai);
        for _ in 0..5 {
            let event = stream.event("1");
            stream.send_chunk(&event);
        }
        let steps = stream.into_steps();
        let writes = steps.iter().filter(|step| matches!(step, BodyStep::Write(_))).count();
        assert_eq!(writes, 2, "chunks before the cut");
        assert!(matches!(steps.last(), Some(BodyStep::Cut)), "the cut is last: {steps:?}");
    }
}
