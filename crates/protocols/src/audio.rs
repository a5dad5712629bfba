//! Speech that an upstream makes as `wav`, on its way to a customer who wants it as `mp3`.
//!
//! WAV: Microsoft's "Multimedia Programming Interface and Data Specifications 1.0", RIFF and `fmt `
//! chunk. The encoder is `rusty_mp3`; 60 s of speech take it 0.1 s of one core.

use bytes::{Bytes, BytesMut};
use rusty_mp3::{Mp3Encoder, Mp3EncoderConfig};

/// Speech at 24 kHz, one channel, as services of this kind deliver it.
const BITRATE_KBPS: u32 = 96;
/// Everything before the samples. Real files have 44 bytes, with notes of an editor some hundred.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Sample rates of MPEG-1, MPEG-2 and MPEG-2.5 layer III.
const RATES: [u32; 9] = [8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];

/// Audio that cannot be transcoded, because it is not WAV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotWav;

/// Turns `wav` into `mp3` while it passes.
pub struct Transcoder {
    /// Bytes before the samples, or an incomplete sample.
    held: BytesMut,
    format: Option<PcmFormat>,
    encoder: Mp3Encoder,
    /// The encoder's first packet is about the file as a whole, which is not known yet.
    skip_first: bool,
}

#[derive(Clone, Copy, Debug)]
struct PcmFormat {
    channels: u16,
    rate: u32,
    /// Bytes of samples that are still to come.
    left: u64,
}

impl Transcoder {
    /// A transcoder for one file, of which nothing was read yet.
    #[must_use]
    pub fn new() -> Self {
        let config = Mp3EncoderConfig { bitrate_kbps: BITRATE_KBPS, vbr_quality: None };
        let encoder = Mp3Encoder::new(config);
        Self { held: BytesMut::new(), format: None, encoder, skip_first: true }
    }

    /// Processes a piece of the file; returns the bytes to send.
    ///
    /// # Errors
    /// When the file is not 16-bit PCM with one channel or two, at a rate that MP3 has.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Bytes, NotWav> {
        self.held.extend_from_slice(piece);
        if self.format.is_none() {
            let Some((format, samples)) = read_header(&self.held)? else {
                return if self.held.len() > HEADER_BYTES_MAX {
                    Err(NotWav)
                } else {
                    Ok(Bytes::new())
                };
            };
            self.format = Some(format);
            drop(self.held.split_to(samples));
        }
        let Some(format) = &mut self.format else { return Ok(Bytes::new()) };
        let frame = 2 * usize::from(format.channels);
        let available = usize::try_from(format.left).unwrap_or(usize::MAX).min(self.held.len());
        let samples = self.held.split_to(available - available % frame);
        format.left -= samples.len() as u64;
        let pcm: Vec<f32> = samples
            .chunks_exact(2)
            .map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32_768.0)
            .collect();
        let pushed = self.encoder.push_pcm_f32(&pcm, format.channels, format.rate);
        pushed.map_err(|_| NotWav)?;
        Ok(self.take())
    }

    /// The file has ended: what is left to send.
    pub fn finish(&mut self) -> Bytes {
        self.encoder.finish();
        self.take()
    }

    /// True if a header and all samples that it promised have come.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.format.is_some_and(|format| format.left == 0 || format.left > u64::from(u32::MAX) / 2)
    }

    fn take(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        while let Ok(packet) = self.encoder.next_packet() {
            if !std::mem::take(&mut self.skip_first) {
                out.extend_from_slice(&packet);
            }
        }
        out.freeze()
    }
}

impl Default for Transcoder {
    fn default() -> Self {
        Self::new()
    }
}

/// The format, and where the samples begin; `None` when more must come first.
fn read_header(file: &[u8]) -> Result<Option<(PcmFormat, usize)>, NotWav> {
    let (Some(riff), Some(wave)) = (file.get(..4), file.get(8..12)) else { return Ok(None) };
    if riff != b"RIFF" || wave != b"WAVE" {
        return Err(NotWav);
    }
    let (mut at, mut format) = (12, None);
    while let Some((head, rest)) = file.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) {
        let [a, b, c, d, sizes @ ..] = head;
        let size = u32::from_le_bytes(*sizes);
        match &[*a, *b, *c, *d] {
            b"fmt " => {
                let Some(body) = rest.first_chunk::<16>() else { return Ok(None) };
                format = Some(read_format(body)?);
            }
            b"data" => {
                let (channels, rate) = format.ok_or(NotWav)?;
                // Who streams a file does not know its length, and says 0 or the most.
                let is_plausible = size != 0 && size < u32::MAX - 64;
                let left = if is_plausible { u64::from(size) } else { u64::MAX };
                return Ok(Some((PcmFormat { channels, rate, left }, at + 8)));
            }
            _ => {}
        }
        // Chunks are padded to an even length.
        at += 8 + size as usize + size as usize % 2;
    }
    Ok(None)
}

fn read_format(body: &[u8; 16]) -> Result<(u16, u32), NotWav> {
    let [t0, t1, c0, c1, r0, r1, r2, r3, _, _, _, _, _, _, b0, b1] = *body;
    let kind = u16::from_le_bytes([t0, t1]);
    let channels = u16::from_le_bytes([c0, c1]);
    let rate = u32::from_le_bytes([r0, r1, r2, r3]);
    let bits = u16::from_le_bytes([b0, b1]);
    // 1 is PCM; 0xFFFE says the same in a longer header.
    let is_pcm = matches!(kind, 1 | 0xFFFE) && bits == 16;
    if is_pcm && matches!(channels, 1 | 2) && RATES.contains(&rate) {
        Ok((channels, rate))
    } else {
        Err(NotWav)
    }
}

#[cfg(test)]
mod tests {
    use rusty_mp3::Mp3Decoder;

    use super::*;

    fn wav(seconds: u32, data_size: u32, extra: &[u8]) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WAVE".to_vec();
        file.extend_from_slice(extra);
        file.extend_from_slice(b"fmt \x10\0\0\0\x01\0\x01\0\xC0\x5D\0\0\x80\xBB\0\0\x02\0\x10\0");
        file.extend_from_slice(b"data");
        file.extend_from_slice(&data_size.to_le_bytes());
        for at in 0..24_000 * seconds {
            // A triangle of 440 Hz is nearly a sine.
            let phase = i64::from(at) * 440 % 24_000;
            let height = 6_000 - (phase - 12_000).abs();
            let sample = i16::try_from(height * 2).expect("16 bits");
            file.extend_from_slice(&sample.to_le_bytes());
        }
        file
    }

    fn transcode(file: &[u8], piece: usize) -> (Vec<u8>, Transcoder) {
        let mut transcoder = Transcoder::new();
        let mut out = Vec::new();
        for piece in file.chunks(piece) {
            out.extend_from_slice(&transcoder.feed(piece).expect("wav"));
        }
        out.extend_from_slice(&transcoder.finish());
        (out, transcoder)
    }

    #[test]
    fn the_tone_is_still_there() {
        let file = wav(1, 48_000, b"LIST\x03\0\0\0abc\0");
        let (mp3, transcoder) = transcode(&file, 777);
        assert!(transcoder.is_whole());
        assert_eq!(&mp3[..2], b"\xFF\xF3", "a frame of MPEG-2 layer III");
        assert!(memchr::memmem::find(&mp3[..100], b"Info").is_none(), "no note on the whole file");
        let mut decoder = Mp3Decoder::new();
        decoder.push(&mp3);
        decoder.flush();
        let mut samples = Vec::new();
        while let Ok(frame) = decoder.next_frame() {
            samples.extend_from_slice(&frame.samples);
        }
        assert!((24_000..27_000).contains(&samples.len()), "{} samples", samples.len());
        let middle = &samples[6_000..18_000];
        let crossings = middle.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
        assert!((218..=222).contains(&crossings), "440 Hz for half a second: {crossings}");
    }

    #[test]
    fn cutting_changes_nothing_and_a_missing_length_is_no_fault() {
        let file = wav(1, 48_000, b"");
        let whole = transcode(&file, file.len()).0;
        assert_eq!(transcode(&file, 1).0, whole);
        for unknown in [0, u32::MAX] {
            assert_eq!(transcode(&wav(1, unknown, b""), 4096).0, whole);
        }
        let (_, cut) = transcode(&file[..20_000], 4096);
        assert!(!cut.is_whole(), "half of the samples are missing");
    }

    #[test]
    fn what_is_no_wav_is_refused() {
        for file in [&b"ID3\x04 an mp3 already"[..], b"{\"code\":\"AccessDenied\"}"] {
            assert_eq!(Transcoder::new().feed(file).err(), Some(NotWav));
        }
        let mut float = wav(0, 0, b"");
        float[20] = 3;
        assert_eq!(Transcoder::new().feed(&float).err(), Some(NotWav));
        let endless = [b"RIFF\0\0\0\0WAVE".as_slice(), &[b'x'; HEADER_BYTES_MAX]].concat();
        assert_eq!(Transcoder::new().feed(&endless).err(), Some(NotWav));
    }
}
