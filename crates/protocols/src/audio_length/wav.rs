//! WAV: samples are counted by the bytes from the first `data` to the end of the file, whatever the
//! chunk says that it has. Decoders take a length of nothing, or a false one, for "up to the end".
//!
//! Source: Microsoft's "Multimedia Programming Interface and Data Specifications 1.0", and
//! `WAVEFORMATEXTENSIBLE`.

use std::num::NonZero;

use super::reader::ByteReader;
use super::{AudioFault, Samples, concealed};

/// The `fmt ` chunk.
struct SampleFormat {
    rate: NonZero<u32>,
    /// Bytes of one sample of all channels.
    frame_bytes: NonZero<usize>,
}

pub(super) fn count(file: &[u8], samples: &mut Samples) -> Result<(), AudioFault> {
    let mut reader = ByteReader::new(file.get(12..).unwrap_or_default());
    let mut format = None;
    loop {
        let head = reader.array::<4>().zip(reader.u32_le());
        let (id, size) = head.ok_or(AudioFault::Malformed("the WAV file has no `data`"))?;
        if id == *b"data" {
            break;
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let content = reader.take(size);
        let content =
            content.ok_or(AudioFault::Malformed("a chunk of the WAV file is not all there"))?;
        if id == *b"fmt " {
            let more = format.replace(read_format(content)?);
            if more.is_some() {
                return Err(AudioFault::Malformed("the WAV file has two `fmt ` chunks"));
            }
        }
        // Chunks begin at even places.
        if size % 2 == 1 {
            reader.u8();
        }
    }
    let SampleFormat { rate, frame_bytes } =
        format.ok_or(AudioFault::Malformed("the WAV file has no `fmt ` before its `data`"))?;
    let data = reader.rest();
    if concealed::is_compressed(data) {
        let what = "a WAV file whose samples are a compressed stream. Send that stream itself";
        return Err(AudioFault::Unsupported(what));
    }
    samples.add(rate, data.len().div_ceil(frame_bytes.get()) as u64);
    Ok(())
}

fn read_format(content: &[u8]) -> Result<SampleFormat, AudioFault> {
    const EXTENSIBLE: u16 = 0xfffe;
    let malformed = || AudioFault::Malformed("the WAV file's `fmt ` cannot be read");
    let mut reader = ByteReader::new(content);
    let mut field = || reader.u16_le().ok_or_else(malformed);
    let (kind, channels) = (field()?, field()?);
    let rate = reader.u32_le().and_then(NonZero::new).ok_or_else(malformed)?;
    let _bytes_per_second = reader.u32_le().ok_or_else(malformed)?;
    let (frame, bits) = reader.u16_le().zip(reader.u16_le()).ok_or_else(malformed)?;
    let kind = if kind == EXTENSIBLE {
        // The size of the extension, valid bits and the mask of channels stand before the kind.
        let extension = reader.take(8).and_then(|_| reader.u16_le());
        extension.ok_or_else(malformed)?
    } else {
        kind
    };
    // PCM, floating point, A-law and mu-law: each sample has the bytes that the header says.
    let is_taken = match kind {
        1 => matches!(bits, 8 | 16 | 24 | 32 | 64),
        3 => matches!(bits, 32 | 64),
        6 | 7 => bits == 8,
        _ => false,
    };
    if !is_taken {
        let what = "a WAV file must be PCM, floating point, A-law or mu-law";
        return Err(AudioFault::Unsupported(what));
    }
    if u32::from(frame) != u32::from(channels) * u32::from(bits / 8) {
        return Err(AudioFault::Malformed("the WAV file's `fmt ` contradicts itself"));
    }
    let frame_bytes = NonZero::new(usize::from(frame)).ok_or_else(malformed)?;
    Ok(SampleFormat { rate, frame_bytes })
}
