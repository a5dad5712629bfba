//! Files that answers point at, where providers would keep what they made.
//!
//! A file follows from its name, so nothing is remembered between an answer and its file.

use bytes::Bytes;
use http::StatusCode;

use super::answer::Answer;
use super::audio;
use super::behaviour::{Behaviour, Break};
use super::image;
use super::received_request::ReceivedRequest;

/// Path of the files, under any prefix.
const DIRECTORY: &str = "sim/results";
/// Samples of speech per character: a twentieth of a second.
const SAMPLES_PER_CHARACTER: u32 = audio::SAMPLES_PER_SECOND / 20;
/// The longest speech, a minute: enough for a test of long files, and 3 MB.
const SPEECH_SAMPLES_MAX: u32 = 60 * audio::SAMPLES_PER_SECOND;

/// A video without tracks: what it is compatible with, and no data (ISO/IEC 14496-12, 4.3 and 8.1.1).
const MP4: [u8; 28] = *b"\0\0\0\x14ftypisom\0\0\0\0isom\0\0\0\x08mdat";

/// URL of speech for this many characters.
pub(super) fn speech_url(http_request: &ReceivedRequest<'_>, characters: usize) -> String {
    url(http_request, &format!("speech-{}-{characters}.wav", http_request.number))
}

/// URL of the `index`-th image of an answer.
pub(super) fn image_url(http_request: &ReceivedRequest<'_>, index: u32) -> String {
    url(http_request, &format!("image-{}-{index}.png", http_request.number))
}

/// URL of the video of a request.
pub(super) fn video_url(http_request: &ReceivedRequest<'_>) -> String {
    url(http_request, &format!("video-{}-0.mp4", http_request.number))
}

/// URL of the result file `name`. It repeats the simulator's settings from the path of the request, so that
/// they also apply to the download.
fn url(http_request: &ReceivedRequest<'_>, name: &str) -> String {
    let settings: String = http_request.settings().map(|segment| format!("/{segment}")).collect();
    format!("http://{}{settings}/{DIRECTORY}/{name}", http_request.host)
}

/// Answers a request for a file that was made: `…/sim/results/{name}`.
pub(super) fn answer(name: &str, behaviour: &Behaviour) -> Answer {
    let (content_type, file) = match made(name) {
        Some(made) => made,
        None => {
            let message = format!("There is no result {name}.");
            return Answer::error(StatusCode::NOT_FOUND, &message, behaviour);
        }
    };
    // Storage says how long its files are. One that ends too early as if whole must not.
    let is_short = behaviour.faults.stop.is_some_and(|stop| stop.how == Break::Eof);
    let length = (!is_short).then_some(file.len());
    let answer = Answer::pieces(content_type, pieces(&file, behaviour.chunks), behaviour);
    Answer { announced_bytes: length, ..answer }
}

/// The type and the bytes of a file, if it could be one that an answer has pointed at.
fn made(name: &str) -> Option<(&'static str, Bytes)> {
    let (stem, extension) = name.rsplit_once('.')?;
    let mut parts = stem.split('-');
    let (kind, number, detail) = (parts.next()?, parts.next()?, parts.next()?);
    let (_, detail): (u64, u32) = (number.parse().ok()?, detail.parse().ok()?);
    match (kind, extension, parts.next()) {
        ("speech", "wav", None) => {
            let samples = detail.saturating_mul(SAMPLES_PER_CHARACTER).min(SPEECH_SAMPLES_MAX);
            Some(("audio/wav", audio::wav(samples)))
        }
        ("video", "mp4", None) => Some(("video/mp4", Bytes::from_static(&MP4))),
        ("image", "png", None) => Some(("image/png", Bytes::from_static(&image::PNG))),
        _ => None,
    }
}

/// A file in so many pieces of the same size, of which the last may be smaller; at least one.
fn pieces(file: &Bytes, count: u32) -> impl Iterator<Item = Bytes> + use<'_> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).max(1);
    let size = file.len().div_ceil(count).max(1);
    (0..file.len()).step_by(size).map(move |at| file.slice(at..file.len().min(at + size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_answers_give_are_files() {
        let length = |name: &str| made(name).map(|(_, file)| file.len());
        assert_eq!(length("speech-7-2.wav"), Some(44 + 4800), "a tenth of a second");
        assert_eq!(length("speech-7-4000000000.wav"), Some(44 + 2_880_000), "a minute, no more");
        assert_eq!(length("image-7-0.png"), Some(image::PNG.len()));
        assert_eq!(length("video-7-0.mp4"), Some(MP4.len()));
        for name in ["speech-7.wav", "speech-7-2.png", "speech-7-2-2.wav", "speech-x-2.wav", "a"] {
            assert_eq!(length(name), None, "{name}");
        }
    }

    #[test]
    fn pieces_are_the_whole() {
        let file = Bytes::from_static(b"0123456789");
        for (count, expected) in [(0, 1), (1, 1), (3, 3), (10, 10), (100, 10)] {
            let all: Vec<Bytes> = pieces(&file, count).collect();
            assert_eq!((all.len(), all.concat()), (expected, file.to_vec()), "{count} pieces");
        }
    }
}
