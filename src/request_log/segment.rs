//! The files of the log, and where a record is in them.
//!
//! A position counts all bytes that were ever written to the log. A file's name is the position at
//! which it begins, in hex; it begins with a header of its own, so that no record is at zero.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record::{FRAME_BYTES_MAX, Position, frame_bytes, is_whole};

/// The length of a file's header.
pub(super) const HEADER_BYTES: u64 = 16;
const MAGIC: &[u8; 12] = b"TGREQUESTLOG";
/// Raised whenever the format of records changes: files of another version are removed.
const FORMAT_VERSION: u32 = 1;
const EXTENSION: &str = "log";
/// What is read at a time on the way backwards. A customer's records are close to each other where
/// few are active, and far apart where many are.
const BACK_BYTES: u64 = 16 << 10;
/// What is read at a time on the way forwards.
const AHEAD_BYTES: usize = 256 << 10;

/// One file.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The position of its first byte.
    pub(super) base: Position,
    /// Its length, header included.
    pub(super) bytes: u64,
    pub(super) file: Arc<File>,
}

impl Segment {
    /// The position behind its last record.
    pub(super) fn end(&self) -> Position {
        self.base.saturating_add(self.bytes)
    }

    /// The position of its first record.
    pub(super) fn first(&self) -> Position {
        self.base.saturating_add(HEADER_BYTES)
    }

    fn holds(&self, position: Position) -> bool {
        (self.first()..self.end()).contains(&position)
    }

    /// Makes an empty file that begins at `base`.
    pub(super) fn create(dir: &Path, base: Position) -> io::Result<Self> {
        let path = path(dir, base);
        let options =
            fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        options.write_all_at(&header, 0)?;
        Ok(Self { base, bytes: HEADER_BYTES, file: Arc::new(options) })
    }

    /// Opens a file. `None` when it is none of this version.
    fn open(path: &Path, base: Position) -> io::Result<Option<Self>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        let mut header = [0; 16];
        let is_known = bytes >= HEADER_BYTES
            && file.read_exact_at(&mut header, 0).is_ok()
            && header.strip_prefix(MAGIC.as_slice()) == Some(&FORMAT_VERSION.to_le_bytes());
        Ok(is_known.then(|| Self { base, bytes, file: Arc::new(file) }))
    }

    /// Appends `frames`. After an error the file is as it was.
    pub(super) fn append(&mut self, frames: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(frames, self.bytes) {
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += frames.len() as u64;
        Ok(())
    }

    /// Cuts off what stands behind `end`, a position in this file.
    pub(super) fn cut(&mut self, end: Position) -> io::Result<()> {
        let bytes = end.saturating_sub(self.base).max(HEADER_BYTES);
        if bytes < self.bytes {
            self.file.set_len(bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

fn path(dir: &Path, base: Position) -> PathBuf {
    dir.join(format!("{base:016x}.{EXTENSION}"))
}

/// Removes a file of the log. Who reads it still does.
pub(super) fn remove(dir: &Path, segment: &Segment) -> io::Result<()> {
    fs::remove_file(path(dir, segment.base))
}

/// The log's files, oldest first. Those that are of another version are removed.
pub(super) fn open_all(dir: &Path) -> io::Result<Vec<Segment>> {
    fs::create_dir_all(dir)?;
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let Ok(base) = Position::from_str_radix(name, 16) else { continue };
        match Segment::open(&path, base)? {
            Some(segment) => segments.push(segment),
            None => fs::remove_file(&path)?,
        }
    }
    segments.sort_by_key(|segment| segment.base);
    Ok(segments)
}

/// Reads records at their positions, a block of a file at a time.
#[derive(Debug)]
pub(super) struct Reader {
    segments: Vec<Segment>,
    block: Vec<u8>,
    /// The position of the block's first byte.
    block_at: Position,
}

impl Reader {
    /// A reader of these files, oldest first.
    pub(super) fn new(segments: Vec<Segment>) -> Self {
        Self { segments, block: Vec::new(), block_at: 0 }
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether the file that had this position was removed.
    pub(super) fn is_gone(&self, position: Position) -> bool {
        self.segments.first().is_none_or(|oldest| position < oldest.base)
    }

    /// The whole record at `position`; `None` if there is none.
    pub(super) fn frame_at(&mut self, position: Position) -> io::Result<Option<&[u8]>> {
        let frame = self.frame(position, Towards::Start)?;
        Ok(frame.filter(|frame| is_whole(frame)))
    }

    /// The bytes of what may be a record at `position`, read on the way forwards; `None` at the end of
    /// its file and where it is damaged. Not checked for being whole.
    pub(super) fn frame_ahead(&mut self, position: Position) -> io::Result<Option<&[u8]>> {
        self.frame(position, Towards::End)
    }

    fn frame(&mut self, position: Position, towards: Towards) -> io::Result<Option<&[u8]>> {
        self.load(position, 4, towards)?;
        let Some(length) = self.at(position, 4).and_then(frame_bytes) else { return Ok(None) };
        self.load(position, length, towards)?;
        Ok(self.at(position, length))
    }

    /// The position of the last record that ends at or before `end`; `None` at the log's beginning.
    /// Where a file has been damaged, the rest of it is left out.
    pub(super) fn before(&mut self, mut end: Position) -> io::Result<Option<Position>> {
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
            end = base;
        }
    }

    fn frame_ending(&mut self, end: Position) -> io::Result<Option<Position>> {
        self.load(end.saturating_sub(4), 4, Towards::Start)?;
        let length = self.at(end.saturating_sub(4), 4).and_then(frame_bytes);
        let Some(position) = length.and_then(|length| end.checked_sub(length as u64)) else {
            return Ok(None);
        };
        let is_one = self.frame_at(position)?.is_some();
        Ok(is_one.then_some(position))
    }

    /// Bytes of the block, if it has them.
    fn at(&self, position: Position, bytes: usize) -> Option<&[u8]> {
        let begin = usize::try_from(position.checked_sub(self.block_at)?).ok()?;
        self.block.get(begin..begin.checked_add(bytes)?)
    }

    /// Makes sure that the block has these bytes, if a file has.
    fn load(&mut self, position: Position, bytes: usize, towards: Towards) -> io::Result<()> {
        if self.at(position, bytes).is_some() {
            return Ok(());
        }
        let Some(segment) = self.segments.iter().rfind(|it| it.holds(position)) else {
            return Ok(());
        };
        let (begin, length) = match towards {
            Towards::Start => {
                let begin = position.saturating_sub(BACK_BYTES).max(segment.base);
                let behind = usize::try_from(position.saturating_sub(begin)).unwrap_or(0);
                (begin, behind + FRAME_BYTES_MAX)
            }
            Towards::End => (position, AHEAD_BYTES),
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

/// Which way a reader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Towards {
    Start,
    End,
}
