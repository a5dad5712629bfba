//! Upper bound of the decoded length of an audio file.
//!
//! Headers say what they like: a file that claims a second can hold hours. So nothing here goes by what
//! a header says of a length. What decoders make samples of is counted while the container is walked:
//! bytes of PCM, frames of MPEG audio and FLAC, packets of Opus and Vorbis, samples of MP4. Where decoders
//! could read a file in several ways, the longest counts, and what cannot be bounded in this way is refused
//! by name ([ADR 78](../../../docs/adr/0078-bounds-of-holds.md)).
//!
//! A file is read once, from its first byte to its last, and nothing of it is decoded: the time grows with
//! its bytes alone, and what is remembered of it does not.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;

mod concealed;
mod flac;
#[cfg(test)]
pub(crate) mod sample_files;
mod mp4;
mod mpeg;
mod ogg;
mod opus;
mod reader;
mod vorbis;
mod wav;
mod webm;

/// Nanoseconds of a second.
const NANOS: u128 = 1_000_000_000;

/// Length of audio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AudioLength {
    nanoseconds: u128,
}

impl AudioLength {
    /// Duration in seconds, rounded up.
    #[must_use]
    pub fn seconds(self) -> u64 {
        u64::try_from(self.nanoseconds.div_ceil(NANOS)).unwrap_or(u64::MAX)
    }
}

/// Container format of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioContainer {
    /// RIFF with plain samples in it.
    Wav,
    /// MPEG audio of any layer, such as MP3.
    Mpeg,
    /// FLAC in its native container.
    Flac,
    /// Ogg, with whatever codec in it.
    Ogg,
    /// MP4, which M4A is.
    Mp4,
    /// WebM, or other Matroska.
    Webm,
}

impl AudioContainer {
    /// Its name, for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wav => "WAV",
            Self::Mpeg => "MP3",
            Self::Flac => "FLAC",
            Self::Ogg => "Ogg",
            Self::Mp4 => "MP4",
            Self::Webm => "WebM",
        }
    }

    /// Containers of files with this extension; `None` for an unknown extension.
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<&'static [Self]> {
        const ENDINGS: [(&str, &[AudioContainer]); 13] = [
            ("wav", &[AudioContainer::Wav]),
            ("wave", &[AudioContainer::Wav]),
            ("mp3", &[AudioContainer::Mpeg]),
            ("mpga", &[AudioContainer::Mpeg]),
            ("mpeg", &[AudioContainer::Mpeg, AudioContainer::Mp4]),
            ("flac", &[AudioContainer::Flac]),
            ("ogg", &[AudioContainer::Ogg]),
            ("oga", &[AudioContainer::Ogg]),
            ("opus", &[AudioContainer::Ogg]),
            ("mp4", &[AudioContainer::Mp4]),
            ("m4a", &[AudioContainer::Mp4]),
            ("webm", &[AudioContainer::Webm]),
            ("mkv", &[AudioContainer::Webm]),
        ];
        let entry = ENDINGS.iter().find(|(ending, _)| ending.eq_ignore_ascii_case(extension));
        entry.map(|(_, containers)| *containers)
    }
}

/// Reason why the length of a file's audio cannot be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioFault {
    /// The file begins like no supported format.
    Unknown,
    /// The file contains something of unknown duration.
    Unsupported(&'static str),
    /// The file violates its format, so decoders could find more audio than was counted.
    Malformed(&'static str),
}

impl fmt::Display for AudioFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("`file` must be a WAV, MP3, FLAC, Ogg, MP4 (M4A) or WebM file")
            }
            Self::Unsupported(what) => write!(f, "`file` cannot be taken: {what}"),
            Self::Malformed(what) => write!(f, "`file` is damaged, or no audio: {what}"),
        }
    }
}

/// Samples, by their rate, so that only their sum is rounded.
#[derive(Debug, Default)]
struct Samples {
    by_rate: BTreeMap<NonZero<u32>, u64>,
}

impl Samples {
    fn add(&mut self, rate: NonZero<u32>, samples: u64) {
        let sum = self.by_rate.entry(rate).or_default();
        *sum = sum.saturating_add(samples);
    }

    fn length(&self) -> AudioLength {
        let nanoseconds = self
            .by_rate
            .iter()
            .map(|(rate, samples)| (u128::from(*samples) * NANOS).div_ceil(u128::from(rate.get())));
        AudioLength { nanoseconds: nanoseconds.sum() }
    }
}

/// The container of a file, and the longest audio that any decoder can find in it.
///
/// # Errors
/// [`AudioFault`], for a file whose audio cannot be bounded.
pub fn longest(file: &[u8]) -> Result<(AudioContainer, AudioLength), AudioFault> {
    // Every decoder passes over tags in front of whatever format.
    let tags = mpeg::id3_bytes(file);
    let rest = file.get(tags..).unwrap_or_default();
    let mut samples = Samples::default();
    let container = match rest {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => {
            wav::count(rest, &mut samples)?;
            AudioContainer::Wav
        }
        [b'f', b'L', b'a', b'C', ..] => {
            flac::count(rest, &mut samples)?;
            AudioContainer::Flac
        }
        [b'O', b'g', b'g', b'S', ..] if tags == 0 => {
            ogg::count(rest, &mut samples)?;
            AudioContainer::Ogg
        }
        [_, _, _, _, b'f', b't', b'y', b'p', ..] if tags == 0 => {
            mp4::count(rest, &mut samples)?;
            AudioContainer::Mp4
        }
        [0x1a, 0x45, 0xdf, 0xa3, ..] if tags == 0 => {
            webm::count(rest, &mut samples)?;
            AudioContainer::Webm
        }
        _ if tags > 0 || mpeg::begins(rest) => {
            mpeg::count(file, tags, &mut samples)?;
            AudioContainer::Mpeg
        }
        [0, 0, 1, 0xba | 0xb3, ..] => {
            return Err(AudioFault::Unsupported("a video of the MPEG program stream format"));
        }
        _ => return Err(AudioFault::Unknown),
    };
    Ok((container, samples.length()))
}

#[cfg(test)]
mod tests;
