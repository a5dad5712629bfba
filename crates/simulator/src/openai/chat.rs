//! Chat completions, whole and streamed.
//!
//! The shapes are those of OpenAI's API reference, "Chat Completions": the completion object, the
//! completion chunk object, and `stream_options`.

use bytes::Bytes;

use super::chat_usage::ChatUsage;
use super::imitator;
use crate::answer::Answer;
use crate::behaviour::{Behaviour, DoneMarker, SimulatedRefusal, UsageForm};
use crate::provider::ChatProvider;
use crate::received_request::ReceivedRequest;
use crate::reply::{ChatRequest, PERIOD, Reply};
use crate::script::{EventStream, StreamFormat};
use tollgate_types::clock::UnixMs;

/// The most choices that OpenAI gives.
const CHOICES_MAX: u32 = 128;
/// `object` of the chunks of a stream.
const CHUNK: &str = "chat.completion.chunk";
/// The usage field of a chunk that reports none, in a stream that will.
const NO_USAGE: &str = r#","usage":null"#;

/// Answers a request for a completion: `…/chat/completions`.
pub(crate) fn answer(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<ChatRequest<'_>>(http_request.body) {
        Ok(request) => request,
        Err(error) => return Answer::invalid(&format!("The body: {error}."), behaviour),
    };
    let choices = request.n.unwrap_or(1);
    if !(1..=CHOICES_MAX).contains(&choices) {
        return Answer::invalid("`n` must be 1 to 128.", behaviour);
    }
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(request.is_stream());
    }
    if behaviour.provider != ChatProvider::Openai {
        return imitator::answer(http_request, &request, behaviour);
    }
    let reply = Reply::new(&request, behaviour);
    let completion = Completion {
        number: http_request.number,
        created: UnixMs::now().seconds(),
        model: quoted(&request.model),
        usage: ChatUsage::reported(&request, &reply, choices, behaviour),
        choices,
        reply,
    };
    if request.is_stream() {
        completion.streamed(request.wants_usage(), behaviour)
    } else {
        Answer::json(completion.whole(), behaviour)
    }
}

struct Completion {
    number: u64,
    created: u64,
    /// The model's name as a JSON string.
    model: String,
    choices: u32,
    reply: Reply,
    usage: Option<ChatUsage>,
}

impl Completion {
    fn whole(&self) -> String {
        let text = quoted(&self.reply.pieces.concat());
        let message = match &self.reply.tool {
            Some(name) => {
                let (number, name) = (self.number, quoted(name));
                format!(
                    r#""content":null,"refusal":null,"tool_calls":[{{"id":"call_sim_{number}","type":"function","function":{{"name":{name},"arguments":{text}}}}}]"#
                )
            }
            None => format!(r#""content":{text},"refusal":null"#),
        };
        let reason = self.reply.finish_reason;
        let choice = |index| {
            format!(
                r#"{{"index":{index},"message":{{"role":"assistant",{message}}},"logprobs":null,"finish_reason":"{reason}"}}"#
            )
        };
        let choices: Vec<String> = (0..self.choices).map(choice).collect();
        let usage = self.usage.map(ChatUsage::to_field).unwrap_or_default();
        self.object("chat.completion", &choices.join(","), &usage)
    }

    fn streamed(&self, wants_usage: bool, behaviour: &Behaviour) -> Answer {
        let usage = self.usage.filter(|_| wants_usage);
        let form = usage.map(|_| behaviour.faults.usage);
        let forged = usage.map(ChatUsage::tenfold);
        // Where usage is asked for, each chunk has the field.
        let no_usage = if usage.is_some() { NO_USAGE } else { "" };
        let early = forged.filter(|_| form == Some(UsageForm::Early));
        let twice = forged.filter(|_| form == Some(UsageForm::Twice));
        let late = forged.filter(|_| form == Some(UsageForm::Late));

        let mut stream = EventStream::new(behaviour, StreamFormat::Openai);
        for index in 0..self.choices {
            let delta = self.opening_delta();
            stream.send(&stream.event(&self.chunk(index, &delta, "null", no_usage)));
        }
        self.stream_content(&mut stream, no_usage, early);
        let reason = quoted(self.reply.finish_reason);
        for index in 0..self.choices {
            stream.send(&stream.event(&self.chunk(index, "", &reason, no_usage)));
        }
        for usage in usage.into_iter().chain(twice) {
            stream.send(&stream.event(&self.object(CHUNK, "", &usage.to_field())));
        }
        let dones = match behaviour.faults.done {
            DoneMarker::Once => 1,
            DoneMarker::Twice => 2,
            DoneMarker::Missing => 0,
        };
        (0..dones).for_each(|_| stream.send(&stream.event("[DONE]")));
        if let Some(usage) = late {
            stream.send(&stream.event(&self.object(CHUNK, "", &usage.to_field())));
        }
        Answer::events(stream)
    }

    /// `early` is a usage report for the middle of the content.
    fn stream_content(
        &self,
        stream: &mut EventStream<'_>,
        no_usage: &str,
        early: Option<ChatUsage>,
    ) {
        let pieces = &self.reply.pieces;
        let choices = usize::try_from(self.choices).unwrap_or_default();
        let mut sent: Vec<Bytes> = Vec::with_capacity(pieces.len() * choices);
        for (at, piece) in pieces.iter().enumerate() {
            if stream.has_ended() {
                return;
            }
            let before = at.checked_sub(PERIOD).and_then(|before| pieces.get(before));
            let repeats = early.is_none() && before == Some(piece);
            let early = early.filter(|_| at == pieces.len() / 2).map(ChatUsage::to_field);
            for index in 0..self.choices {
                let same = sent.len().checked_sub(PERIOD * choices).and_then(|at| sent.get(at));
                let event = match same {
                    // Words repeat, so most events were made before.
                    Some(event) if repeats => event.clone(),
                    _ => {
                        let usage = early.as_deref().unwrap_or(no_usage);
                        stream.event(&self.chunk(index, &self.content_delta(piece), "null", usage))
                    }
                };
                stream.send_chunk(&event);
                sent.push(event);
            }
        }
    }

    fn chunk(&self, index: u32, delta: &str, finish_reason: &str, usage: &str) -> String {
        let choice = format!(
            r#"{{"index":{index},"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish_reason}}}"#
        );
        self.object(CHUNK, &choice, usage)
    }

    /// `usage` is empty or the whole field.
    fn object(&self, object: &str, choices: &str, usage: &str) -> String {
        let Self { number, created, model, .. } = self;
        format!(
            r#"{{"id":"chatcmpl-sim-{number}","object":"{object}","created":{created},"model":{model},"system_fingerprint":"fp_sim","choices":[{choices}]{usage}}}"#
        )
    }

    fn opening_delta(&self) -> String {
        let Some(name) = &self.reply.tool else {
            return r#""role":"assistant","content":"","refusal":null"#.to_owned();
        };
        let (number, name) = (self.number, quoted(name));
        format!(
            r#""role":"assistant","content":null,"tool_calls":[{{"index":0,"id":"call_sim_{number}","type":"function","function":{{"name":{name},"arguments":""}}}}]"#
        )
    }

    fn content_delta(&self, piece: &str) -> String {
        let piece = quoted(piece);
        match &self.reply.tool {
            Some(_) => {
                format!(r#""tool_calls":[{{"index":0,"function":{{"arguments":{piece}}}}}]"#)
            }
            None => format!(r#""content":{piece}"#),
        }
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
