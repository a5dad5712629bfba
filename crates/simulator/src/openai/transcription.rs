//! Transcriptions, always of the same text.
//!
//! The shapes are those of OpenAI's API reference, "Create transcription", `transcript.text.delta` and
//! `transcript.text.done`. Models `gpt-4o…` bill tokens, others seconds. A file is as long as its samples if
//! it is WAV, whatever its head says of them, and a second long if it is anything else: `usage=prompt=N`
//! says another length, or so many input tokens.

use bytes::Bytes;
use serde_json::{Value, json};

use super::multipart::{self, FormPart};
use crate::answer::Answer;
use crate::behaviour::{Behaviour, SimulatedRefusal};
use crate::received_request::ReceivedRequest;
use crate::reply::Reply;
use crate::script::{EventStream, StreamFormat};
use crate::usage::ReportedUsage;

/// Tokens of a second of audio.
const TOKENS_PER_SECOND: usize = 10;
/// Offset of the samples in a minimal WAV file.
const WAV_HEAD_BYTES: usize = 44;
/// Position of the byte rate.
const WAV_RATE: std::ops::Range<usize> = 28..32;

/// Answers `…/audio/transcriptions` and `…/audio/translations`.
pub(crate) fn answer(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let Some(parts) = multipart::parts(http_request.headers, http_request.body) else {
        return Answer::invalid("The body is not a whole multipart/form-data.", behaviour);
    };
    let part = |name: &str| parts.iter().find(|part| part.name == name);
    let text = |name: &str| {
        part(name).map(|FormPart { data, .. }| String::from_utf8_lossy(data).into_owned())
    };
    let (Some(file), Some(model)) = (part("file"), text("model")) else {
        return Answer::invalid("`file` and `model` are required.", behaviour);
    };
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(text("stream").as_deref() == Some("true"));
    }
    let transcript = Transcript {
        seconds: seconds_of(&file.data),
        bills_tokens: model.starts_with("gpt-4o"),
        reply: Reply::words(behaviour, u64::MAX),
    };
    let format = text("response_format").unwrap_or_else(|| "json".to_owned());
    match format.as_str() {
        // Whisper does not stream, and says nothing about it.
        "json" | "diarized_json"
            if text("stream").as_deref() == Some("true") && !model.starts_with("whisper") =>
        {
            transcript.streamed(behaviour)
        }
        "json" | "verbose_json" | "diarized_json" => {
            Answer::json(transcript.document(&format, behaviour).to_string(), behaviour)
        }
        "text" | "srt" | "vtt" => transcript.text(&format, behaviour),
        _ => Answer::invalid("`response_format` is not a format.", behaviour),
    }
}

/// The seconds of a file, begun ones and all.
fn seconds_of(file: &[u8]) -> usize {
    let rate = file.get(WAV_RATE).filter(|_| file.starts_with(b"RIFF"));
    let rate = rate.and_then(|rate| rate.try_into().ok()).map(u32::from_le_bytes);
    let rate = rate.and_then(|rate| usize::try_from(rate).ok()).filter(|rate| *rate > 0);
    rate.map_or(1, |rate| file.len().saturating_sub(WAV_HEAD_BYTES).div_ceil(rate))
}

/// Transcript of a file, and its billing.
struct Transcript {
    seconds: usize,
    bills_tokens: bool,
    reply: Reply,
}

impl Transcript {
    fn usage(&self, behaviour: &Behaviour) -> Option<Value> {
        let written = usize::try_from(self.reply.tokens).unwrap_or(usize::MAX);
        if !self.bills_tokens {
            let ReportedUsage { input, .. } = ReportedUsage::reported(self.seconds, 0, behaviour)?;
            return Some(json!({"type": "duration", "seconds": input}));
        }
        let tokens = self.seconds.saturating_mul(TOKENS_PER_SECOND);
        let usage = ReportedUsage::reported(tokens, written, behaviour)?;
        Some(json!({
            "type": "tokens",
            "input_tokens": usage.input,
            "input_token_details": {"text_tokens": 0, "audio_tokens": usage.input},
            "output_tokens": usage.output,
            "total_tokens": usage.total(),
        }))
    }

    fn words(&self) -> String {
        self.reply.pieces.concat()
    }

    fn document(&self, format: &str, behaviour: &Behaviour) -> Value {
        let mut document = json!({"text": self.words()});
        if format != "json" {
            document["task"] = json!("transcribe");
            document["language"] = json!("english");
            document["duration"] = json!(self.seconds);
            let segment = json!({"id": 0, "start": 0.0, "end": self.seconds, "text": self.words(),
                "speaker": "A"});
            document["segments"] = json!([segment]);
        }
        if let Some(usage) = self.usage(behaviour) {
            document["usage"] = usage;
        }
        document
    }

    fn text(&self, format: &str, behaviour: &Behaviour) -> Answer {
        let head = match format {
            "srt" => "1\n00:00:00,000 --> 00:00:01,000\n",
            "vtt" => "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n",
            _ => "",
        };
        let pieces = self.reply.pieces.iter().map(|piece| Bytes::from(piece.to_string()));
        let head = Some(Bytes::from_static(head.as_bytes())).filter(|head| !head.is_empty());
        let end = Bytes::from_static(b"\n");
        Answer::pieces(
            "text/plain; charset=utf-8",
            head.into_iter().chain(pieces).chain([end]),
            behaviour,
        )
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let mut stream = EventStream::new(behaviour, StreamFormat::Openai);
        for piece in &self.reply.pieces {
            let delta = json!({"type": "transcript.text.delta", "delta": piece});
            stream.send_chunk(&stream.event(&delta.to_string()));
        }
        let mut done = json!({"type": "transcript.text.done", "text": self.words()});
        if let Some(usage) = self.usage(behaviour) {
            done["usage"] = usage;
        }
        stream.send(&stream.event(&done.to_string()));
        Answer::events(stream)
    }
}
