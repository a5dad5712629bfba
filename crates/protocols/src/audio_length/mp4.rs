//! MP4, which M4A is: the samples of all audio tracks by their tables, each as long as the codec makes it, and not
//! by the times that the file gives them. A track counts as often as its edit list plays something.
//!
//! Source: ISO/IEC 14496-12 (boxes), 14496-14 (`esds`), 14496-3, section 1.6 (AAC), and Apple's "ALAC Magic
//! Cookie Description".

use std::collections::BTreeMap;
use std::num::NonZero;

use memchr::memmem;

use super::reader::{Bits, ByteReader};
use super::{AudioFault, Samples};

/// Boxes that hold others, on the way to the tables.
const HOLDERS: [&[u8; 4]; 8] =
    [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"moof", b"traf"];
/// Tracks and fragments of tracks that a file can have.
const TRACKS_MAX: usize = 64;
/// Maximum nesting of boxes.
const DEPTH_MAX: usize = 8;
/// Samples of a frame of AAC at its core's rate. Some profiles have fewer.
const AAC_FRAME_SAMPLES: u64 = 1024;
/// Rates of AAC by their index.
const AAC_RATES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];
/// The bits that the flags of a `trun` can have.
const TRUN_FLAGS: u32 = 0x000f05;

/// A track, as far as it has been read.
#[derive(Default)]
struct Track {
    id: u32,
    /// The track declares itself as audio.
    is_audio: bool,
    /// Length of each sample.
    frame: Option<FrameLength>,
    samples: u64,
    /// Number of edits that play media.
    edits: u64,
}

#[derive(Clone, Copy)]
struct FrameLength {
    samples: u64,
    rate: NonZero<u32>,
}

/// Contents of a file that bound its length.
#[derive(Default)]
struct Mp4Content {
    tracks: Vec<Track>,
    /// Samples of fragments by their track, and the track of the fragment that is read.
    fragments: BTreeMap<u32, u64>,
    fragment_of: u32,
    /// Number of sample tables read.
    tables: usize,
}

pub(super) fn count(file: &[u8], samples: &mut Samples) -> Result<(), AudioFault> {
    let mut found = Mp4Content::default();
    found.walk(file, 0)?;
    // Decoders find tables in places where there should be none, such as in a box that is free.
    if tables(file) > found.tables {
        return Err(AudioFault::Malformed("the MP4 file has tables of samples outside of tracks"));
    }
    let mut has_audio = false;
    for track in &found.tracks {
        let Some(FrameLength { samples: each, rate }) = track.frame else {
            if track.is_audio {
                return Err(AudioFault::Unsupported(
                    "the audio of an MP4 file must be AAC or ALAC",
                ));
            }
            continue;
        };
        has_audio = true;
        let fragments = found.fragments.get(&track.id).copied().unwrap_or_default();
        let count = track.samples.saturating_add(fragments).saturating_mul(track.edits.max(1));
        samples.add(rate, count.saturating_mul(each));
    }
    if has_audio { Ok(()) } else { Err(AudioFault::Malformed("the MP4 file has no audio")) }
}

/// Bytes anywhere in the file that look like a sample table.
fn tables(file: &[u8]) -> usize {
    let behind = |at: usize| file.get(at + 4..).and_then(|rest| ByteReader::new(rest).u32_be());
    let sizes = [b"stsz", b"stz2"]
        .map(|name| memmem::find_iter(file, name).filter(|at| behind(*at) == Some(0)).count());
    let runs = memmem::find_iter(file, b"trun").filter(|at| behind(*at).is_some_and(is_trun));
    sizes.iter().sum::<usize>() + runs.count()
}

/// True if version and flags are those of a `trun`.
fn is_trun(version_and_flags: u32) -> bool {
    version_and_flags >> 24 <= 1 && version_and_flags & 0x00ff_ffff & !TRUN_FLAGS == 0
}

impl Mp4Content {
    fn walk(&mut self, boxes: &[u8], depth: usize) -> Result<(), AudioFault> {
        let mut reader = ByteReader::new(boxes);
        while !reader.rest().is_empty() {
            let (name, content) = next_box(&mut reader, depth == 0)?;
            if name == *b"trak" {
                self.tracks.push(Track::default());
            }
            if self.tracks.len() > TRACKS_MAX || self.fragments.len() > TRACKS_MAX {
                return Err(AudioFault::Unsupported("an MP4 file with so many tracks"));
            }
            if HOLDERS.contains(&&name) {
                if depth >= DEPTH_MAX {
                    return Err(AudioFault::Malformed("boxes of the MP4 file are too deep"));
                }
                self.walk(content, depth + 1)?;
                continue;
            }
            let read = self.read(name, content)?;
            read.ok_or(AudioFault::Malformed("a box of the MP4 file cannot be read"))?;
        }
        Ok(())
    }

    /// Reads a box that holds no others; `None` for one that cannot be read.
    fn read(&mut self, name: [u8; 4], content: &[u8]) -> Result<Option<()>, AudioFault> {
        let fragment = &mut self.fragment_of;
        let mut reader = ByteReader::new(content);
        if &name == b"cmov" {
            return Err(AudioFault::Unsupported("an MP4 file whose head is packed"));
        }
        if !matches!(
            &name,
            b"tkhd" | b"hdlr" | b"elst" | b"stsd" | b"stsz" | b"stz2" | b"tfhd" | b"trun"
        ) {
            return Ok(Some(()));
        }
        let Some(head) = reader.u32_be() else { return Ok(None) };
        match &name {
            b"tfhd" => return Ok(reader.u32_be().map(|id| *fragment = id)),
            b"trun" => {
                let Some(count) = reader.u32_be() else { return Ok(None) };
                self.tables += usize::from(is_trun(head));
                let sum = self.fragments.entry(*fragment).or_default();
                *sum = sum.saturating_add(count.into());
                return Ok(Some(()));
            }
            _ => {}
        }
        let Some(track) = self.tracks.last_mut() else {
            // The handler of a box of notes, for one.
            return Ok(Some(()));
        };
        Ok(match &name {
            b"tkhd" => {
                let times = if head >> 24 == 1 { 16 } else { 8 };
                reader.take(times).and_then(|_| reader.u32_be()).map(|id| track.id = id)
            }
            b"hdlr" => {
                let kind = reader.take(4).and_then(|_| reader.array::<4>());
                kind.map(|kind| track.is_audio |= &kind == b"soun")
            }
            b"elst" => count_edits(&mut reader, head >> 24 == 1).map(|edits| track.edits += edits),
            b"stsd" => {
                track.frame = read_entries(&mut reader, track.frame)?;
                Some(())
            }
            _ => {
                self.tables += usize::from(head == 0);
                let count = reader.take(4).and_then(|_| reader.u32_be());
                count.map(|count| track.samples = track.samples.saturating_add(count.into()))
            }
        })
    }
}

/// The next box: its name and its content. At the end of a file it can be cut off.
fn next_box<'a>(
    reader: &mut ByteReader<'a>,
    is_outermost: bool,
) -> Result<([u8; 4], &'a [u8]), AudioFault> {
    let cut = AudioFault::Malformed("a box of the MP4 file is not all there");
    let size = reader.u32_be().ok_or(cut)?;
    let name = reader.array::<4>().ok_or(cut)?;
    let size = match size {
        0 => reader.rest().len() as u64,
        1 => reader.u64_be().ok_or(cut)?.checked_sub(16).ok_or(cut)?,
        size => u64::from(size).checked_sub(8).ok_or(cut)?,
    };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let is_data = is_outermost && &name == b"mdat";
    let size = if is_data { size.min(reader.rest().len()) } else { size };
    Ok((name, reader.take(size).ok_or(cut)?))
}

/// Number of edits that play media.
fn count_edits(reader: &mut ByteReader<'_>, is_long: bool) -> Option<u64> {
    let count = reader.u32_be()?;
    let mut edits = 0;
    for _ in 0..count {
        let is_empty = if is_long {
            reader.u64_be()?;
            reader.u64_be()? == u64::MAX
        } else {
            reader.u32_be()?;
            reader.u32_be()? == u32::MAX
        };
        reader.u32_be()?;
        edits += u64::from(!is_empty);
    }
    Some(edits)
}

/// The longest frame length among the entries of an `stsd`.
fn read_entries(
    reader: &mut ByteReader<'_>,
    before: Option<FrameLength>,
) -> Result<Option<FrameLength>, AudioFault> {
    let unknown = AudioFault::Unsupported("the audio of an MP4 file must be AAC or ALAC");
    let mut longest = before;
    reader.u32_be();
    while reader.rest().len() >= 8 {
        let (name, content) = next_box(reader, false)?;
        let frames = match &name {
            b"mp4a" => memmem::find_iter(content, b"esds")
                .map(|at| content.get(at + 8..).and_then(aac))
                .collect::<Option<Vec<_>>>(),
            b"alac" => memmem::find_iter(content, b"alac")
                .map(|at| content.get(at + 8..).and_then(alac))
                .collect(),
            // Pictures, texts and times are not heard.
            _ => continue,
        };
        for frame in frames.filter(|frames| !frames.is_empty()).ok_or(unknown)? {
            let is_longer = |other: FrameLength| {
                let (one, other) = (frame, other);
                u128::from(one.samples) * u128::from(other.rate.get())
                    > u128::from(other.samples) * u128::from(one.rate.get())
            };
            longest = longest.filter(|longest| !is_longer(*longest)).or(Some(frame));
        }
    }
    Ok(longest)
}

/// A frame of AAC by the descriptors of an `esds`.
fn aac(descriptors: &[u8]) -> Option<FrameLength> {
    const STREAM: u8 = 3;
    const DECODER: u8 = 4;
    const SPECIFIC: u8 = 5;
    let mut reader = ByteReader::new(descriptors);
    let mut stream = descriptor(&mut reader, STREAM)?;
    stream.take(2)?;
    let flags = stream.u8()?;
    stream.take(if flags & 0x80 == 0 { 0 } else { 2 })?;
    if flags & 0x40 != 0 {
        let address = stream.u8()?;
        stream.take(address.into())?;
    }
    stream.take(if flags & 0x20 == 0 { 0 } else { 2 })?;
    let mut decoder = descriptor(&mut stream, DECODER)?;
    // AAC of MPEG-4, and the three profiles of MPEG-2.
    decoder.u8().filter(|object| matches!(object, 0x40 | 0x66..=0x68))?;
    decoder.take(12)?;
    let specific = descriptor(&mut decoder, SPECIFIC)?;
    let mut bits = Bits::new(specific.rest());
    let is_plain = |object: u32| (1..=4).contains(&object);
    let object = bits.take(5)?;
    let rate = aac_rate(&mut bits)?;
    let _channels = bits.take(4)?;
    // Two ways of writing what makes the sound brighter, above a core of half the rate.
    if object == 5 || object == 29 {
        aac_rate(&mut bits)?;
        bits.take(5).filter(|core| is_plain(*core))?;
    } else if !is_plain(object) {
        return None;
    }
    Some(FrameLength { samples: AAC_FRAME_SAMPLES, rate })
}

fn aac_rate(bits: &mut Bits<'_>) -> Option<NonZero<u32>> {
    let index = bits.take(4)?;
    let rate = match index {
        15 => bits.take(24)?,
        index => *AAC_RATES.get(usize::try_from(index).ok()?)?,
    };
    NonZero::new(rate)
}

/// The content of the next descriptor, which must be of this kind.
fn descriptor<'a>(reader: &mut ByteReader<'a>, kind: u8) -> Option<ByteReader<'a>> {
    reader.u8().filter(|tag| *tag == kind)?;
    let mut size = 0;
    for _ in 0..4 {
        let byte = reader.u8()?;
        size = size << 7 | usize::from(byte & 0x7f);
        if byte < 0x80 {
            break;
        }
    }
    Some(ByteReader::new(reader.take(size)?))
}

/// A frame of ALAC by its magic cookie.
fn alac(cookie: &[u8]) -> Option<FrameLength> {
    let mut reader = ByteReader::new(cookie);
    let samples = reader.u32_be()?;
    let rate = reader.take(16).and_then(|_| reader.u32_be()).and_then(NonZero::new)?;
    Some(FrameLength { samples: samples.into(), rate })
}
