//! Content codings of answers (RFC 9110, section 8.4.1): gzip, deflate, br and zstd, decoded piece by
//! piece.
//!
//! The gateway asks for answers as they are. Some providers and proxies compress all the same, and what
//! is compressed can be neither metered nor searched for secrets.

use std::fmt;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderValue;
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation as _};

/// The largest decoded piece, in bytes: a small input can have a large output, of which no more is in memory
/// at one time.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// The largest window of zlib's formats, as a power of two.
const ZLIB_WINDOW_BITS: u8 = 15;
/// The largest window of zstd that senders of HTTP may use, as a power of two (RFC 9659: 8 MB).
const ZSTD_WINDOW_BITS: u32 = 23;
/// A body that is larger than this and [`BOMB_RATIO`] times its input is a decompression bomb. Texts and
/// events compress 3 to 50 times.
const BOMB_BYTES_MIN: u64 = 16 << 20;
/// The expansion ratio above which a body of at least [`BOMB_BYTES_MIN`] is a decompression bomb.
const BOMB_RATIO: u64 = 400;

/// The coding of a body, by its `Content-Encoding`.
#[derive(Debug)]
pub enum ContentCoding {
    /// The body is not compressed.
    Identity,
    /// It is decoded with this.
    Known(Box<Decoder>),
    /// Several codings, or an unsupported one.
    Unknown,
}

/// Incremental decoder of one body.
pub struct Decoder {
    codec: ContentDecoder,
    /// Input that was not decoded yet.
    input: Bytes,
    /// Room for what is decoded, which is used again.
    output: Box<[u8]>,
    /// The codec may have more output without any input.
    has_output: bool,
    /// Some of the body has come.
    has_begun: bool,
    /// The body can end here.
    is_at_end: bool,
    bytes_in: u64,
    bytes_out: u64,
}

/// An error in a coded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodingError {
    /// The body does not match its `Content-Encoding`.
    Corrupt,
    /// The body ends too early.
    Truncated,
    /// The body expands out of proportion to its size.
    Bomb,
}

impl fmt::Display for CodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "the compressed body is corrupt",
            Self::Truncated => "the compressed body ends too early",
            Self::Bomb => "the compressed body decodes to far more than any answer",
        })
    }
}

impl std::error::Error for CodingError {}

enum ContentDecoder {
    Gzip(Decompress),
    /// The zlib format, or raw deflate, as some senders use: the first byte decides.
    Deflate(Option<Decompress>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(ZstdDecoder<'static>),
}

/// The result of one decoding step.
struct DecodedStep {
    read: usize,
    written: usize,
    /// The body can end behind what was read.
    is_end: bool,
}

impl ContentCoding {
    /// The coding that the values of `Content-Encoding` name.
    pub fn from_fields<'a>(values: impl Iterator<Item = &'a HeaderValue>) -> Self {
        let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let names = names.map(<[u8]>::trim_ascii);
        let mut coded =
            names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"));
        match (coded.next(), coded.next()) {
            (None, _) => Self::Identity,
            (Some(name), None) => match ContentDecoder::named(&name.to_ascii_lowercase()) {
                Some(codec) => Self::Known(Box::new(Decoder::new(codec))),
                None => Self::Unknown,
            },
            // Each layer would multiply what a bomb decodes to.
            (Some(_), Some(_)) => Self::Unknown,
        }
    }
}

impl ContentDecoder {
    fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"gzip" | b"x-gzip" => Self::Gzip(Decompress::new_gzip(ZLIB_WINDOW_BITS)),
            b"deflate" => Self::Deflate(None),
            b"br" => {
                let alloc = StandardAlloc::default;
                Self::Brotli(Box::new(BrotliState::new(alloc(), alloc(), alloc())))
            }
            b"zstd" => {
                let mut decoder = ZstdDecoder::new().ok()?;
                // Otherwise a frame's header may ask for a window of 128 MiB, the library's own bound.
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_BITS)).ok()?;
                Self::Zstd(decoder)
            }
            _ => return None,
        })
    }

    /// Decodes some of `input`. `is_end` is true if the decoded input was complete.
    fn step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_end: bool,
    ) -> Result<DecodedStep, CodingError> {
        match self {
            Self::Gzip(inflate) => {
                if is_end {
                    // A body may have several members (RFC 1952, section 2.2).
                    *inflate = Decompress::new_gzip(ZLIB_WINDOW_BITS);
                }
                step_inflate(inflate, input, output)
            }
            Self::Deflate(_) | Self::Brotli(_) if is_end => Err(CodingError::Corrupt),
            Self::Deflate(inflate) => {
                let has_header = input.first().is_some_and(|first| first & 0x0f == 8);
                let inflate = inflate.get_or_insert_with(|| Decompress::new(has_header));
                step_inflate(inflate, input, output)
            }
            Self::Brotli(state) => step_brotli(state, input, output),
            Self::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, output);
                let status = status.map_err(|_| CodingError::Corrupt)?;
                let (read, written) = (status.bytes_read, status.bytes_written);
                Ok(DecodedStep { read, written, is_end: status.remaining == 0 })
            }
        }
    }
}

fn step_inflate(
    inflate: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<DecodedStep, CodingError> {
    let before = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::Sync);
    let status = status.map_err(|_| CodingError::Corrupt)?;
    let since = |total: u64, before: u64| {
        usize::try_from(total.saturating_sub(before)).map_err(|_| CodingError::Corrupt)
    };
    let read = since(inflate.total_in(), before.0)?;
    let written = since(inflate.total_out(), before.1)?;
    Ok(DecodedStep { read, written, is_end: status == Status::StreamEnd })
}

fn step_brotli(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    input: &[u8],
    output: &mut [u8],
) -> Result<DecodedStep, CodingError> {
    let (mut input_left, mut read) = (input.len(), 0);
    let (mut output_left, mut written, mut total) = (output.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut input_left,
        &mut read,
        input,
        &mut output_left,
        &mut written,
        output,
        &mut total,
        state,
    );
    match result {
        BrotliResult::ResultFailure => Err(CodingError::Corrupt),
        BrotliResult::ResultSuccess => Ok(DecodedStep { read, written, is_end: true }),
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {
            Ok(DecodedStep { read, written, is_end: false })
        }
    }
}

impl Decoder {
    fn new(codec: ContentDecoder) -> Self {
        Self {
            codec,
            input: Bytes::new(),
            output: vec![0; PIECE_BYTES_MAX].into_boxed_slice(),
            has_output: false,
            has_begun: false,
            is_at_end: false,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Adds the next piece of the encoded body, once [`Self::next_piece`] has returned everything from the
    /// last.
    pub fn feed(&mut self, piece: Bytes) {
        self.input = if self.input.is_empty() {
            piece
        } else {
            [std::mem::take(&mut self.input), piece].concat().into()
        };
    }

    /// Next piece of the decoded body, without waiting for more input; `None` if there is none.
    ///
    /// # Errors
    /// A body that is corrupt, or a decompression bomb.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, CodingError> {
        while !self.is_drained() {
            let was_at_end = self.is_at_end && !self.input.is_empty();
            let step = self.codec.step(&self.input, &mut self.output, was_at_end)?;
            let DecodedStep { read, written, is_end } = step;
            // No progress with input at hand can only be input that means nothing: without this it would go
            // round for ever.
            if read == 0 && written == 0 {
                self.has_output = false;
                if !self.input.is_empty() {
                    return Err(CodingError::Corrupt);
                }
                return Ok(None);
            }
            self.has_begun = true;
            self.is_at_end = is_end;
            self.input.advance(read);
            // A full output may have cut something off; a codec that had room has said all.
            self.has_output = !is_end && written == self.output.len();
            self.bytes_in = self.bytes_in.saturating_add(read as u64);
            self.bytes_out = self.bytes_out.saturating_add(written as u64);
            if self.bytes_out > BOMB_BYTES_MIN && self.bytes_out / BOMB_RATIO > self.bytes_in.max(1)
            {
                return Err(CodingError::Bomb);
            }
            if let Some(decoded) = self.output.get(..written).filter(|decoded| !decoded.is_empty())
            {
                return Ok(Some(Bytes::copy_from_slice(decoded)));
            }
        }
        Ok(None)
    }

    /// True if no output is left without more input.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.input.is_empty() && !self.has_output
    }

    /// True if all input is decoded and the body may end here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_drained() && (self.is_at_end || !self.has_begun)
    }

    /// Notes the end of the coded body.
    ///
    /// # Errors
    /// A body that should have gone on.
    pub fn finish(&self) -> Result<(), CodingError> {
        if self.is_whole() { Ok(()) } else { Err(CodingError::Truncated) }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.codec {
            ContentDecoder::Gzip(_) => "gzip",
            ContentDecoder::Deflate(_) => "deflate",
            ContentDecoder::Brotli(_) => "br",
            ContentDecoder::Zstd(_) => "zstd",
        };
        let (read, written) = (self.bytes_in, self.bytes_out);
        write!(f, "Decoder({name}, {read} bytes in, {written} bytes out)")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const CODINGS: [&str; 5] = ["gzip", "deflate", "raw deflate", "br", "zstd"];

    /// Several texts, each flushed, as a server sends events.
    fn encode(coding: &str, texts: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        let level = flate2::Compression::default();
        macro_rules! encode {
            ($encoder:expr, $end:expr) => {{
                let mut encoder = $encoder;
                for text in texts {
                    encoder.write_all(text).expect("encoded");
                    encoder.flush().expect("flushed");
                    pieces.push(std::mem::take(encoder.get_mut()));
                }
                #[allow(clippy::redundant_closure_call, reason = "the ends differ by encoder")]
                pieces.push($end(encoder));
            }};
        }
        match coding {
            "gzip" => encode!(
                flate2::write::GzEncoder::new(Vec::new(), level),
                |end: flate2::write::GzEncoder<Vec<u8>>| end.finish().expect("finished")
            ),
            "deflate" => encode!(
                flate2::write::ZlibEncoder::new(Vec::new(), level),
                |end: flate2::write::ZlibEncoder<Vec<u8>>| end.finish().expect("finished")
            ),
            "raw deflate" => encode!(
                flate2::write::DeflateEncoder::new(Vec::new(), level),
                |end: flate2::write::DeflateEncoder<Vec<u8>>| end.finish().expect("finished")
            ),
            "br" => encode!(
                brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22),
                |end: brotli::CompressorWriter<Vec<u8>>| end.into_inner()
            ),
            _ => encode!(
                zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder"),
                |end: zstd::stream::write::Encoder<'static, Vec<u8>>| end
                    .finish()
                    .expect("finished")
            ),
        }
        pieces
    }

    fn decoder(coding: &str) -> Box<Decoder> {
        let name = coding.rsplit(' ').next().expect("a name");
        let value = HeaderValue::from_str(name).expect("a value");
        match ContentCoding::from_fields([&value].into_iter()) {
            ContentCoding::Known(decoder) => decoder,
            other => panic!("{coding}: {other:?}"),
        }
    }

    fn decode(decoder: &mut Decoder, piece: &[u8]) -> Result<Vec<u8>, CodingError> {
        decoder.feed(Bytes::copy_from_slice(piece));
        let mut decoded = Vec::new();
        while let Some(piece) = decoder.next_piece()? {
            assert!(piece.len() <= PIECE_BYTES_MAX);
            decoded.extend_from_slice(&piece);
        }
        Ok(decoded)
    }

    fn whole(coding: &str, body: &[u8], step: usize) -> Result<Vec<u8>, CodingError> {
        let mut decoder = decoder(coding);
        let mut decoded = Vec::new();
        for piece in body.chunks(step.max(1)) {
            decoded.extend(decode(&mut decoder, piece)?);
        }
        decoder.finish().map(|()| decoded)
    }

    #[test]
    fn each_flushed_event_is_there_at_once() {
        let events: [&[u8]; 3] = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"];
        for coding in CODINGS {
            let mut decoder = decoder(coding);
            let pieces = encode(coding, &events);
            for (event, piece) in events.iter().zip(&pieces) {
                let decoded = decode(&mut decoder, piece).expect(coding);
                assert_eq!(decoded, *event, "{coding}");
                assert_eq!(decoder.finish(), Err(CodingError::Truncated), "{coding}");
            }
            assert_eq!(decode(&mut decoder, pieces.last().expect("an end")), Ok(Vec::new()));
            assert!(decoder.is_whole() && decoder.finish().is_ok(), "{coding}");
        }
    }

    #[test]
    fn every_cut_of_a_body_decodes_to_the_same() {
        let text: Vec<u8> = (0..60_000_u32).flat_map(|i| (i * i).to_le_bytes()).collect();
        for coding in CODINGS {
            let body = encode(coding, &[&text]).concat();
            for step in [1, 7, 1000, body.len()] {
                let decoded = whole(coding, &body, step).expect(coding);
                assert!(decoded == text, "{coding} in steps of {step}");
            }
        }
    }

    #[test]
    fn truncated_or_damaged_bodies_are_errors() {
        let text = br#"{"choices":[],"usage":{"prompt_tokens":3}}"#.repeat(50);
        for coding in CODINGS {
            let body = encode(coding, &[&text]).concat();
            for end in 1..body.len() {
                let result = whole(coding, &body[..end], end);
                assert!(result.is_err(), "{coding} cut at {end} of {}", body.len());
            }
            let trailing = [body.as_slice(), b"\0more"].concat();
            assert_eq!(whole(coding, &trailing, trailing.len()), Err(CodingError::Corrupt));
            assert_eq!(whole(coding, b"", 1), Ok(Vec::new()), "no body at all");
        }
        let garbage = b"\xff\xfe this is no compressed body at all \x00\x01";
        for coding in CODINGS {
            assert!(whole(coding, garbage, garbage.len()).is_err(), "{coding}");
        }
    }

    #[test]
    fn a_body_may_have_several_members() {
        for coding in ["gzip", "zstd"] {
            let two = [encode(coding, &[b"one"]).concat(), encode(coding, &[b"two"]).concat()];
            for step in [1, 1000] {
                assert_eq!(whole(coding, &two.concat(), step).expect(coding), b"onetwo");
            }
        }
    }

    #[test]
    fn a_bomb_is_cut_and_never_in_memory_at_once() {
        let zeros = vec![0; 64 << 20];
        for coding in CODINGS {
            let body = encode(coding, &[&zeros]).concat();
            let mut decoder = decoder(coding);
            decoder.feed(body.into());
            let mut length = 0;
            let result = loop {
                match decoder.next_piece() {
                    Ok(Some(piece)) => length += piece.len(),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            assert_eq!(result, Some(CodingError::Bomb), "{coding}");
            assert!(length as u64 <= BOMB_BYTES_MIN + 64 * 1024, "{coding}: {length}");
        }
    }

    #[test]
    fn codings_are_read_as_a_list() {
        let of = |values: &[&'static str]| {
            let values: Vec<_> = values.iter().map(|one| HeaderValue::from_static(one)).collect();
            match ContentCoding::from_fields(values.iter()) {
                ContentCoding::Identity => "identity",
                ContentCoding::Known(_) => "known",
                ContentCoding::Unknown => "unknown",
            }
        };
        assert_eq!((of(&[]), of(&[""]), of(&["Identity"])), ("identity", "identity", "identity"));
        for supported in ["gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "identity, gzip"] {
            assert_eq!(of(&[supported]), "known", "{supported}");
        }
        for unsupported in ["gzip, br", "gzip,gzip", "compress", "aws-chunked", "gzip;q=1"] {
            assert_eq!(of(&[unsupported]), "unknown", "{unsupported}");
        }
        assert_eq!(of(&["gzip", "br"]), "unknown");
    }
}
