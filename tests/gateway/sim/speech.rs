//! Speech in OpenAI's protocol.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{chunked, chunks, json_of, post, raw_at, sim};

const SPEECH: &str = "/v1/audio/speech";

fn speech(fields: Value) -> Value {
    let mut body = json!({"model": "tts", "input": "Hello, you!", "voice": "alloy"});
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

/// How many samples a WAV file says that it has, and has.
pub(super) fn samples(wav: &[u8]) -> usize {
    assert_eq!((&wav[..4], &wav[8..16]), (b"RIFF".as_slice(), b"WAVEfmt ".as_slice()));
    // Plain samples, one channel, 24,000 a second, 48,000 bytes a second, 2 bytes each, 16 bits.
    let format = [1, 0, 1, 0, 0xC0, 0x5D, 0, 0, 0x80, 0xBB, 0, 0, 2, 0, 16, 0];
    assert_eq!((&wav[16..20], &wav[20..36]), ([16, 0, 0, 0].as_slice(), format.as_slice()));
    assert_eq!(&wav[36..40], b"data");
    let size = |at: usize| u32::from_le_bytes(wav[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!(usize::try_from(size(4)).expect("a size"), wav.len() - 8, "the RIFF chunk");
    assert_eq!(usize::try_from(size(40)).expect("a size"), wav.len() - 44, "the data");
    (wav.len() - 44) / 2
}

#[tokio::test]
async fn speech_has_the_requested_format() {
    let sim = sim(&["chunks=4"]);
    for (format, content_type) in [
        (None, "audio/mpeg"),
        (Some("mp3"), "audio/mpeg"),
        (Some("wav"), "audio/wav"),
        (Some("opus"), "audio/ogg"),
        (Some("aac"), "audio/aac"),
        (Some("flac"), "audio/flac"),
        (Some("pcm"), "audio/pcm"),
    ] {
        let response = post(&sim, SPEECH, &speech(json!({"response_format": format}))).await;
        assert_eq!(response.status(), StatusCode::OK, "{format:?}");
        assert_eq!(response.headers()["content-type"], content_type, "{format:?}");
        let bytes = response.bytes().await.expect("bytes");
        let header = if format == Some("wav") { 44 } else { 0 };
        assert_eq!(bytes.len(), header + 4 * 2400, "{format:?}: 4 chunks");
    }
    let wav = post(&sim, SPEECH, &speech(json!({"response_format": "wav"}))).await;
    let wav = wav.bytes().await.expect("bytes");
    assert_eq!(samples(&wav), 4 * 1200);
    let pcm = post(&sim, SPEECH, &speech(json!({"response_format": "pcm"}))).await;
    assert_eq!(pcm.bytes().await.expect("bytes"), wav[44..], "the same samples");
    for wrong in [
        json!({"input": ""}),
        json!({"input": 7}),
        json!({"response_format": "midi"}),
        json!({"stream_format": "ws"}),
    ] {
        let refused = post(&sim, SPEECH, &speech(wrong.clone())).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{wrong}");
        assert_eq!(json_of(refused).await["error"]["type"], "invalid_request_error", "{wrong}");
    }
}

#[test]
fn speech_comes_in_chunks_and_breaks_off_between_them() {
    let sim = sim(&["interval-ms=20"]);
    let begin = Instant::now();
    // The audio is no text, but the size before each of its chunks is: 960 is 2,400 in hex.
    let sizes = |fault| {
        let (answer, end) = raw_at(&sim, SPEECH, fault, &speech(json!({})));
        let chars = answer.split_once("\r\n\r\n").expect("a head").1.matches("960\r\n").count();
        (chars, answer.ends_with("\r\n0\r\n\r\n"), end.is_ok())
    };
    assert_eq!(sizes("none"), (8, true, true), "8 chunks of 2,400 bytes, and the end");
    assert!(begin.elapsed() >= Duration::from_millis(140), "it took {:?}", begin.elapsed());
    for (fault, expected) in [
        ("cut-after=3", (3, false, true)),
        ("eof-after=3", (3, true, true)),
        ("hang-after=3", (3, false, false)),
        ("error-after=3", (8, true, true)),
    ] {
        assert_eq!(sizes(fault), expected, "{fault}: chunks, last chunk, end of the connection");
    }
}

#[test]
fn speech_comes_as_events_with_usage() {
    let sim = sim(&["chunks=3"]);
    let body = speech(json!({"stream_format": "sse", "response_format": "wav"}));
    let all = |fault| chunks(&chunked(&raw_at(&sim, SPEECH, fault, &body).0).0.concat());
    let (done, deltas) =
        all("none").split_last().map(|(a, b)| (a.clone(), b.to_vec())).expect("events");
    assert!(deltas.iter().all(|event| event["type"] == "speech.audio.delta"), "{deltas:?}");
    let audio = |event: &Value| STANDARD.decode(event["audio"].as_str().expect("text"));
    let wav: Vec<u8> = deltas.iter().flat_map(|event| audio(event).expect("base64")).collect();
    assert_eq!(samples(&wav), 3 * 1200);
    let usage = json!({"input_tokens": 3, "output_tokens": 3, "total_tokens": 6});
    assert_eq!(done, json!({"type": "speech.audio.done", "usage": usage}), "11 bytes, 3 chunks");

    assert_eq!(all("usage-missing").last(), Some(&json!({"type": "speech.audio.done"})));
    let usage = |fault| all(fault).last().expect("an event")["usage"]["output_tokens"].clone();
    assert_eq!(usage("usage-negative"), -200);
    assert_eq!(usage("usage-huge"), i64::MAX);
    let cut = all("error-after=1");
    assert_eq!(cut.len(), 2, "a chunk and an error: {cut:?}");
    assert!(cut[1]["error"]["message"].is_string(), "{cut:?}");
}
