//! Audio as simulated upstreams make it: a sine, as plain samples and as a WAV file.
//!
//! 24,000 samples a second of 16 bits in one channel, which is what OpenAI's and Qwen's speech has.

use bytes::Bytes;

/// Sample rate, in hertz.
pub(super) const SAMPLES_PER_SECOND: u32 = 24_000;
/// Length of a sample, in bytes.
const BYTES_PER_SAMPLE: u32 = 2;
/// Length of a WAV header, in bytes.
const HEADER_BYTES: u32 = 44;
/// After how many samples the sine repeats: it has 400 Hz.
pub(super) const PERIOD: u32 = 60;
/// A quarter of the sine in steps of six degrees, at about a third of the full volume: whole numbers
/// are the same on every machine.
const QUARTER: [i16; 16] = [
    0, 1254, 2495, 3708, 4881, 6000, 7053, 8030, 8918, 9708, 10392, 10963, 11413, 11738, 11934,
    12000,
];

/// The first `samples` samples of the sine, little-endian.
pub(super) fn sine(samples: u32) -> Bytes {
    let half = QUARTER.into_iter().chain(QUARTER.into_iter().rev().skip(1)).take(30);
    let period = half.clone().chain(half.map(|sample| -sample));
    let period: Vec<u8> = period.flat_map(i16::to_le_bytes).collect();
    let bytes = usize::try_from(samples.saturating_mul(BYTES_PER_SAMPLE)).unwrap_or_default();
    let mut sine = period.repeat(bytes.div_ceil(period.len()));
    sine.truncate(bytes);
    sine.into()
}

/// WAV header for this many samples: the RIFF chunk, the format and the head of the data (Microsoft's
/// "Multimedia Programming Interface and Data Specifications 1.0").
pub(super) fn wav_header(samples: u32) -> Bytes {
    let data_bytes = samples.saturating_mul(BYTES_PER_SAMPLE);
    // What the RIFF chunk counts is everything after its first eight bytes.
    let riff_bytes = data_bytes.saturating_add(HEADER_BYTES - 8);
    let (format_bytes, pcm, channels, bits) = (16_u32, 1_u16, 1_u16, 16_u16);
    let bytes_per_second = SAMPLES_PER_SECOND * BYTES_PER_SAMPLE;
    let header = [
        b"RIFF".as_slice(),
        &riff_bytes.to_le_bytes(),
        b"WAVEfmt ",
        &format_bytes.to_le_bytes(),
        &pcm.to_le_bytes(),
        &channels.to_le_bytes(),
        &SAMPLES_PER_SECOND.to_le_bytes(),
        &bytes_per_second.to_le_bytes(),
        &2_u16.to_le_bytes(),
        &bits.to_le_bytes(),
        b"data",
        &data_bytes.to_le_bytes(),
    ];
    header.concat().into()
}

/// A WAV file of the sine with so many samples.
pub(super) fn wav(samples: u32) -> Bytes {
    [wav_header(samples), sine(samples)].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sine_is_one() {
        let samples = sine(3 * PERIOD);
        assert_eq!(samples.len(), 360, "two bytes for each sample");
        for (at, pair) in samples.chunks_exact(2).enumerate() {
            let sample = f64::from(i16::from_le_bytes([pair[0], pair[1]]));
            let at = f64::from(u32::try_from(at).expect("a small number"));
            let expected = 12_000.0 * (at * std::f64::consts::TAU / f64::from(PERIOD)).sin();
            assert!((sample - expected).abs() <= 0.5, "{at}: {sample} is not {expected}");
        }
    }

    #[test]
    fn a_wav_file_says_how_long_it_is() {
        let file = wav(100);
        let size = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!(file.len(), 244, "44 bytes of header and 100 samples");
        assert_eq!(size(4), 236, "what follows the first eight bytes");
        assert_eq!(size(40), 200, "the samples");
        assert_eq!(size(24), 24_000, "samples a second");
        assert_eq!(size(28), 48_000, "bytes a second");
    }
}
