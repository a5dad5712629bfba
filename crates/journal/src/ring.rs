//! A log of bounded size for what may be lost: frames are appended without a chain and without a flush,
//! and the oldest files are removed.
//!
//! A position counts all bytes that were ever written to the log. A file's name is the position at
//! which it begins, in hexadecimal; it begins with a header of its own, so that no frame is at zero.
//!
//! ```text
//! file     magic 12 | version u32 | frames
//! frame    content bytes u32 | content crc32 u32 | content | content bytes u32
//! ```
//!
//! All integers are little-endian. The length stands on both sides of a frame, so that the log can be
//! read backwards.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::files;

/// The length of a file's header, in bytes.
const HEADER_BYTES: u64 = 16;
/// Offset of the content in a frame, in bytes.
pub const CONTENT_AT: usize = 8;
/// The bytes of a frame around its content.
pub const FRAME_BYTES: usize = CONTENT_AT + 4;
/// Read size backwards: successive frames may be close to each other or far apart.
const BACK_BYTES: u64 = 16 << 10;
/// Read size forwards.
const AHEAD_BYTES: usize = 256 << 10;

/// A place in a log. Later frames have larger ones.
pub type RingPosition = u64;

/// File names and magic bytes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First bytes of each file.
    pub magic: &'static [u8; 12],
    /// To be raised whenever the frames' content changes: files of another version are removed.
    pub version: u32,
    /// File extension, without the dot.
    pub extension: &'static str,
    /// The fewest bytes that a frame has.
    pub frame_bytes_min: usize,
    /// Maximum size of a frame, in bytes.
    pub frame_bytes_max: usize,
}

impl Layout {
    fn header(&self) -> Vec<u8> {
        let mut header = self.magic.to_vec();
        header.extend_from_slice(&self.version.to_le_bytes());
        header
    }

    /// The length of the whole frame whose first, or last, four bytes these are; `None` if no frame has
    /// such.
    #[must_use]
    pub fn frame_bytes(&self, length: &[u8]) -> Option<usize> {
        let content = u32::from_le_bytes(*length.first_chunk()?);
        let whole = usize::try_from(content).ok()?.checked_add(FRAME_BYTES)?;
        (self.frame_bytes_min..=self.frame_bytes_max).contains(&whole).then_some(whole)
    }

    /// True if `frame` is one intact frame.
    #[must_use]
    pub fn is_whole(&self, frame: &[u8]) -> bool {
        let Some(end) = frame.len().checked_sub(4) else { return false };
        let crc = frame.get(4..CONTENT_AT).and_then(|crc| crc.first_chunk());
        self.frame_bytes(frame) == Some(frame.len())
            // Nothing is flushed, so after a power cut the start of a frame may be there without its
            // end.
            && frame.get(..4) == frame.get(end..)
            && crc.map(|crc| u32::from_le_bytes(*crc))
                == frame.get(CONTENT_AT..end).map(crc32fast::hash)
    }

    /// The lengths of the frames of which `batch` is made.
    pub fn frames<'a>(&'a self, batch: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let mut at = 0;
        std::iter::from_fn(move || {
            let length = self.frame_bytes(batch.get(at..)?)?;
            at += length;
            Some(length)
        })
    }
}

/// Begins a frame in `frame`, whose capacity is reused: its content is to be appended.
pub fn begin_frame(frame: &mut Vec<u8>) {
    frame.clear();
    frame.resize(CONTENT_AT, 0);
}

/// Enters the length of the content that was appended since [`begin_frame`], on both sides of it.
pub fn end_frame(frame: &mut Vec<u8>) {
    let length = frame.len().saturating_sub(CONTENT_AT);
    // A length that does not fit becomes one that no layout allows: readers skip such a frame.
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    frame.extend_from_slice(&length);
    if let Some(place) = frame.first_chunk_mut() {
        *place = length;
    }
}

/// Enters the checksum of its content, which must not change any more, into a frame that has its length.
pub fn seal_frame(frame: &mut [u8]) {
    let end = frame.len().saturating_sub(4);
    let crc = crc32fast::hash(frame.get(CONTENT_AT..end).unwrap_or_default());
    if let Some(place) = frame.get_mut(4..CONTENT_AT) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// The content of a frame.
#[must_use]
pub fn content(frame: &[u8]) -> Option<&[u8]> {
    frame.get(CONTENT_AT..frame.len().checked_sub(4)?)
}

/// One file of the log.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The position of its first byte.
    pub base: RingPosition,
    /// Its length, header included.
    pub bytes: u64,
    file: Arc<File>,
}

impl Segment {
    /// Position after the last frame.
    #[must_use]
    pub fn end(&self) -> RingPosition {
        self.base.saturating_add(self.bytes)
    }

    /// The position of its first frame.
    #[must_use]
    pub fn first(&self) -> RingPosition {
        self.base.saturating_add(HEADER_BYTES)
    }

    fn holds(&self, position: RingPosition) -> bool {
        (self.first()..self.end()).contains(&position)
    }

    /// Makes an empty file that begins at `base`.
    ///
    /// # Errors
    /// The operating system's.
    pub fn create(dir: &Path, base: RingPosition, layout: &Layout) -> io::Result<Self> {
        let path = files::path(dir, base, layout.extension);
        let file =
            fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(&layout.header(), 0)?;
        Ok(Self { base, bytes: HEADER_BYTES, file: Arc::new(file) })
    }

    /// Opens a file. `None` when it is none of this layout.
    fn open(path: &Path, base: RingPosition, layout: &Layout) -> io::Result<Option<Self>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        let mut header = vec![0; layout.header().len()];
        let is_indexed = bytes >= HEADER_BYTES
            && file.read_exact_at(&mut header, 0).is_ok()
            && header == layout.header();
        Ok(is_indexed.then(|| Self { base, bytes, file: Arc::new(file) }))
    }

    /// Appends `frames`. After an error the file is as it was.
    ///
    /// # Errors
    /// The operating system's.
    pub fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(frames, self.bytes) {
            // Part of the batch may stand there: after a restart, reading backwards would begin within it
            // and leave out the whole file.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += frames.len() as u64;
        Ok(())
    }

    /// Cuts off what stands behind `end`, a position in this file.
    ///
    /// # Errors
    /// The operating system's.
    pub fn cut(&mut self, end: RingPosition) -> io::Result<()> {
        let bytes = end.saturating_sub(self.base).max(HEADER_BYTES);
        if bytes < self.bytes {
            self.file.set_len(bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

/// Removes a file of the log. Who reads it still does.
///
/// # Errors
/// The operating system's.
pub fn remove(dir: &Path, segment: &Segment, layout: &Layout) -> io::Result<()> {
    fs::remove_file(files::path(dir, segment.base, layout.extension))
}

/// The log's files in `dir`, which is made if it does not exist, oldest first. Those that are of another
/// version are removed.
///
/// # Errors
/// The operating system's.
pub fn open_all(dir: &Path, layout: &Layout) -> io::Result<Vec<Segment>> {
    fs::create_dir_all(dir)?;
    let mut segments = Vec::new();
    for base in files::numbers(dir, &[layout.extension])? {
        let path = files::path(dir, base, layout.extension);
        match Segment::open(&path, base, layout)? {
            Some(segment) => segments.push(segment),
            // Its data may be lost by definition, so a version change converts nothing.
            None => fs::remove_file(&path)?,
        }
    }
    Ok(segments)
}

/// Reads frames at their positions, a block of a file at a time.
#[derive(Debug)]
pub struct RingReader {
    layout: Layout,
    segments: Vec<Segment>,
    block: Vec<u8>,
    /// The position of the block's first byte.
    block_at: RingPosition,
}

impl RingReader {
    /// A reader of these files, oldest first.
    #[must_use]
    pub fn new(segments: Vec<Segment>, layout: Layout) -> Self {
        Self { layout, segments, block: Vec::new(), block_at: 0 }
    }

    /// The files, oldest first.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// True if the file at this position was removed.
    #[must_use]
    pub fn is_removed(&self, position: RingPosition) -> bool {
        self.segments.first().is_none_or(|oldest| position < oldest.base)
    }

    /// The complete frame at `position`; `None` if there is none.
    ///
    /// # Errors
    /// The operating system's.
    pub fn frame_at(&mut self, position: RingPosition) -> io::Result<Option<&[u8]>> {
        let layout = self.layout;
        let frame = self.frame(position, Direction::Start)?;
        Ok(frame.filter(|frame| layout.is_whole(frame)))
    }

    /// The bytes of what may be a frame at `position`, read on the way forwards; `None` at the end of
    /// its file and where it is damaged. Not checked for being whole.
    ///
    /// # Errors
    /// The operating system's.
    pub fn frame_ahead(&mut self, position: RingPosition) -> io::Result<Option<&[u8]>> {
        self.frame(position, Direction::End)
    }

    fn frame(&mut self, position: RingPosition, towards: Direction) -> io::Result<Option<&[u8]>> {
        self.load(position, 4, towards)?;
        let length = self.at(position, 4).and_then(|length| self.layout.frame_bytes(length));
        // An implausible length ends the search in this file before memory is taken for it.
        let Some(length) = length else { return Ok(None) };
        self.load(position, length, towards)?;
        Ok(self.at(position, length))
    }

    /// The position of the last frame that ends at or before `end`; `None` at the log's beginning.
    /// Where a file has been damaged, the rest of it is left out.
    ///
    /// # Errors
    /// The operating system's.
    pub fn before(&mut self, mut end: RingPosition) -> io::Result<Option<RingPosition>> {
        loop {
            let Some(segment) = self.segments.iter().rfind(|it| it.base < end) else {
                return Ok(None);
            };
            let (base, first, last) = (segment.base, segment.first(), end.min(segment.end()));
            if last > first
                && let Some(position) = self.frame_ending(last)?
            {
                return Ok(Some(position));
            }
            // A damaged file costs the rest of itself only: the file before it has its own frames.
            end = base;
        }
    }

    fn frame_ending(&mut self, end: RingPosition) -> io::Result<Option<RingPosition>> {
        self.load(end.saturating_sub(4), 4, Direction::Start)?;
        let length = self.at(end.saturating_sub(4), 4);
        let length = length.and_then(|length| self.layout.frame_bytes(length));
        let Some(position) = length.and_then(|length| end.checked_sub(length as u64)) else {
            return Ok(None);
        };
        let is_one = self.frame_at(position)?.is_some();
        Ok(is_one.then_some(position))
    }

    /// Bytes of the block, if it has them.
    fn at(&self, position: RingPosition, bytes: usize) -> Option<&[u8]> {
        let begin = usize::try_from(position.checked_sub(self.block_at)?).ok()?;
        self.block.get(begin..begin.checked_add(bytes)?)
    }

    /// Makes sure that the block has these bytes, if a file has.
    fn load(&mut self, position: RingPosition, bytes: usize, towards: Direction) -> io::Result<()> {
        if self.at(position, bytes).is_some() {
            return Ok(());
        }
        let Some(segment) = self.segments.iter().rfind(|it| it.holds(position)) else {
            return Ok(());
        };
        let (begin, length) = match towards {
            Direction::Start => {
                let begin = position.saturating_sub(BACK_BYTES).max(segment.base);
                let behind = usize::try_from(position.saturating_sub(begin)).unwrap_or(0);
                (begin, behind + self.layout.frame_bytes_max)
            }
            Direction::End => (position, AHEAD_BYTES),
        };
        let left = usize::try_from(segment.end().saturating_sub(begin)).unwrap_or(usize::MAX);
        self.block.resize(length.min(left), 0);
        self.block_at = begin;
        let offset = begin.saturating_sub(segment.base);
        let read = segment.file.read_exact_at(&mut self.block, offset);
        if read.is_err() {
            self.block.clear();
        }
        read
    }
}

/// Direction of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Start,
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        magic: b"TGTESTOFRING",
        version: 1,
        extension: "log",
        frame_bytes_min: FRAME_BYTES,
        frame_bytes_max: 64,
    };

    fn frame(text: &str) -> Vec<u8> {
        let mut frame = Vec::new();
        begin_frame(&mut frame);
        frame.extend_from_slice(text.as_bytes());
        end_frame(&mut frame);
        seal_frame(&mut frame);
        frame
    }

    /// All frames, read from the end.
    fn backwards(dir: &Path) -> Vec<String> {
        let mut reader = RingReader::new(open_all(dir, &LAYOUT).expect("the files"), LAYOUT);
        let mut end = reader.segments().last().map_or(0, Segment::end);
        let mut found = Vec::new();
        while let Some(position) = reader.before(end).expect("readable") {
            let frame = reader.frame_at(position).expect("readable").expect("a frame");
            let text = content(frame).expect("content");
            found.push(String::from_utf8(text.to_vec()).expect("text"));
            end = position;
        }
        found
    }

    #[test]
    fn frames_are_read_backwards_over_files_and_a_torn_end_is_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let mut first = Segment::create(dir, 0, &LAYOUT).expect("a file");
        first.append(&[frame("one"), frame("two")].concat()).expect("written");
        let mut second = Segment::create(dir, first.end(), &LAYOUT).expect("a file");
        let (begin, three) = (second.end(), frame("three"));
        second.append(&three).expect("written");
        assert_eq!(backwards(dir), ["three", "two", "one"]);
        for torn in 1..three.len() as u64 {
            second.file.set_len(second.bytes - torn).expect("cut");
            let segments = open_all(dir, &LAYOUT).expect("the files");
            let mut reader = RingReader::new(segments, LAYOUT);
            assert_eq!(reader.frame_at(begin).expect("readable"), None, "{torn} bytes are gone");
            let mut last = reader.segments().last().expect("a file").clone();
            last.cut(begin).expect("cut");
            assert_eq!(backwards(dir), ["two", "one"]);
            last.append(&three).expect("written again");
            assert_eq!(backwards(dir), ["three", "two", "one"]);
        }
    }

    #[test]
    fn a_frame_that_was_changed_is_not_whole_and_files_of_another_version_are_removed() {
        let whole = frame("what it says");
        assert!(LAYOUT.is_whole(&whole));
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(!LAYOUT.is_whole(&changed), "byte {at}");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let mut segment = Segment::create(dir.path(), 0, &LAYOUT).expect("a file");
        segment.append(&whole).expect("written");
        let next = Layout { version: 2, ..LAYOUT };
        assert!(open_all(dir.path(), &next).expect("the files").is_empty());
        assert!(backwards(dir.path()).is_empty(), "it is gone");
    }
}
