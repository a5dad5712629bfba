//! Speech, as bytes and as events.
//!
//! The shapes are those of OpenAI's API reference, "Create speech", `speech.audio.delta` and
//! `speech.audio.done`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::audio;
use crate::behaviour::{Behaviour, SimulatedRefusal};
use crate::received_request::ReceivedRequest;
use crate::script::{EventStream, StreamFormat};
use crate::usage::{ReportedUsage, tokens_of};

/// Samples per chunk, a twentieth of a second: whole periods of the sine, so that all chunks are the
/// same bytes.
const CHUNK_SAMPLES: u32 = 20 * audio::PERIOD;
/// Bytes per chunk in formats without real encoding.
const CHUNK_BYTES: usize = 2400;

/// The parts of a request that shape the answer.
#[derive(Deserialize)]
struct SpeechRequest {
    input: String,
    // These two are required and change nothing.
    #[serde(rename = "model")]
    _model: String,
    #[serde(rename = "voice")]
    _voice: Value,
    #[serde(default)]
    response_format: Option<String>,
    #[serde(default)]
    stream_format: Option<String>,
}

/// Answers `…/audio/speech`. A chunk is a twentieth of a second and counts as one token.
pub(crate) fn answer(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<SpeechRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return Answer::invalid(&format!("The body: {error}."), behaviour),
    };
    if request.input.is_empty() {
        return Answer::invalid("`input` must not be empty.", behaviour);
    }
    let format = request.response_format.as_deref().unwrap_or("mp3");
    let Some(content_type) = content_type(format) else {
        return Answer::invalid("`response_format` is not a format.", behaviour);
    };
    let is_events = match request.stream_format.as_deref() {
        None | Some("audio") => false,
        Some("sse") => true,
        Some(_) => return Answer::invalid("`stream_format` must be audio or sse.", behaviour),
    };
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(is_events);
    }
    let chunks = chunks(format, behaviour.chunks);
    if is_events {
        let usage = ReportedUsage::reported(tokens_of(&request.input), chunks.len(), behaviour);
        events(&chunks, usage, behaviour)
    } else {
        Answer::pieces(content_type, chunks, behaviour)
    }
}

fn content_type(format: &str) -> Option<&'static str> {
    match format {
        "mp3" => Some("audio/mpeg"),
        "wav" => Some("audio/wav"),
        "opus" => Some("audio/ogg"),
        "aac" => Some("audio/aac"),
        "flac" => Some("audio/flac"),
        "pcm" => Some("audio/pcm"),
        _ => None,
    }
}

/// The audio: a sine where the format is plain samples, bytes that nothing can play elsewhere.
fn chunks(format: &str, count: u32) -> Vec<Bytes> {
    let chunk = match format {
        "wav" | "pcm" => audio::sine(CHUNK_SAMPLES),
        _ => (0..=250).cycle().take(CHUNK_BYTES).collect(),
    };
    let mut chunks = vec![chunk; usize::try_from(count).unwrap_or_default()];
    if let Some(first) = chunks.first_mut().filter(|_| format == "wav") {
        let header = audio::wav_header(count.saturating_mul(CHUNK_SAMPLES));
        *first = [header.as_ref(), first].concat().into();
    }
    chunks
}

fn events(chunks: &[Bytes], usage: Option<ReportedUsage>, behaviour: &Behaviour) -> Answer {
    let mut stream = EventStream::new(behaviour, StreamFormat::Openai);
    for chunk in chunks {
        let audio = STANDARD.encode(chunk);
        let delta = json!({"type": "speech.audio.delta", "audio": audio});
        stream.send_chunk(&stream.event(&delta.to_string()));
    }
    let mut done = json!({"type": "speech.audio.done"});
    if let Some(usage) = usage {
        done["usage"] = json!({
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.total(),
        });
    }
    stream.send(&stream.event(&done.to_string()));
    Answer::events(stream)
}
