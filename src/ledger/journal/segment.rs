//! The journal's files: `journal/<first seq, 16 hex digits>.seg`, read in order and appended to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::frame::{self, Chain, Frame};
use crate::ledger::error::OpenError;
use crate::ledger::record::Journaled;
use crate::ledger::{NodeId, Seq, sync_directory};

/// A segment that has reached this length is followed by a new one: small enough to read at once.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// A place between two frames, and what stands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// The segment's first seq; zero when there is no segment yet.
    pub(crate) segment: Seq,
    /// Bytes from the segment's beginning.
    pub(crate) offset: u64,
    /// The last record before this place.
    pub(crate) seq: Seq,
    /// The hash chain up to this place.
    pub(crate) chain: Chain,
}

impl Position {
    /// Before the first record of a node's journal.
    pub(crate) fn begin(node: NodeId) -> Self {
        Self { seq: node.begin(), ..Self::default() }
    }
}

/// The path of the segment that begins with `first_seq`.
pub(crate) fn path(dir: &Path, first_seq: Seq) -> PathBuf {
    dir.join(format!("{first_seq:016x}.seg"))
}

/// The first seqs of all segments, ascending.
pub(crate) fn list(dir: &Path) -> Result<Vec<Seq>, OpenError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(OpenError::io(dir))? {
        let name = entry.map_err(OpenError::io(dir))?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".seg"));
        found.extend(stem.and_then(|stem| Seq::from_str_radix(stem, 16).ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// The beginning of the segment that has the record at `seq`, or would have it. Where that does not
/// begin as a segment does, the journal's: whoever reads on from there is told what is wrong.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn before(dir: &Path, seq: Seq) -> Result<Position, OpenError> {
    let begins = list(dir)?.into_iter().rfind(|first_seq| *first_seq <= seq);
    Ok(begins.and_then(|first_seq| beginning(dir, first_seq)).unwrap_or_default())
}

fn beginning(dir: &Path, first_seq: Seq) -> Option<Position> {
    let mut header = [0; frame::SEGMENT_HEADER_BYTES];
    File::open(path(dir, first_seq)).ok()?.read_exact(&mut header).ok()?;
    let (found, chain) = frame::decode_segment_header(&header).ok()?;
    let offset = frame::SEGMENT_HEADER_BYTES as u64;
    let before = Position { segment: first_seq, offset, seq: first_seq.checked_sub(1)?, chain };
    (found == first_seq).then_some(before)
}

/// Reads frames in order and checks that each continues the one before.
pub(crate) struct Reader {
    dir: PathBuf,
    /// Segments that are still to be read, the next one last.
    to_come: Vec<Seq>,
    position: Position,
    /// What was read of the current segment, from `begin` on.
    bytes: Vec<u8>,
    begin: u64,
    torn_bytes: u64,
}

impl Reader {
    /// Prepares to read what follows `from`.
    ///
    /// # Errors
    /// When files cannot be read, or do not reach as far as `from`.
    pub(crate) fn open(dir: &Path, from: Position) -> Result<Self, OpenError> {
        let mut to_come = list(dir)?;
        to_come.retain(|first_seq| *first_seq > from.segment);
        to_come.reverse();
        let mut reader = Self {
            dir: dir.to_owned(),
            to_come,
            position: from,
            bytes: Vec::new(),
            begin: 0,
            torn_bytes: 0,
        };
        if from.segment > 0 {
            reader.resume(from)?;
        } else if let Some(first_seq) = reader.to_come.last() {
            let begin = NodeId::of(*first_seq).begin();
            if *first_seq == begin.saturating_add(1) {
                reader.position.seq = begin;
            }
        }
        Ok(reader)
    }

    fn resume(&mut self, from: Position) -> Result<(), OpenError> {
        let path = path(&self.dir, from.segment);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.is_behind(from),
            opened => opened.map_err(OpenError::io(&path))?,
        };
        if file.metadata().map_err(OpenError::io(&path))?.len() < from.offset {
            return self.is_behind(from);
        }
        file.seek(SeekFrom::Start(from.offset)).map_err(OpenError::io(&path))?;
        file.read_to_end(&mut self.bytes).map_err(OpenError::io(&path))?;
        self.begin = from.offset;
        Ok(())
    }

    /// The journal does not reach as far as `from`: finds out how far it does.
    fn is_behind(&self, from: Position) -> Result<(), OpenError> {
        let mut whole = Self::open(&self.dir, Position::default())?;
        while whole.next()?.is_some() {}
        Err(OpenError::JournalBehind { journal: whole.position.seq, applied: from.seq })
    }

    /// The next frame, or `None` at the journal's end.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] for bytes that are neither a frame nor an unfinished write at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, OpenError> {
        if self.torn_bytes > 0 {
            return Ok(None);
        }
        while self.unread().is_empty() {
            let Some(first_seq) = self.to_come.pop() else { return Ok(None) };
            if !self.enter(first_seq)? {
                return Ok(None);
            }
        }
        let next_seq = self.position.seq.saturating_add(1);
        match frame::decode(self.unread(), next_seq, &self.position.chain) {
            Ok(frame) => {
                self.position.offset += frame.bytes as u64;
                self.position.seq += frame.records.len() as u64;
                self.position.chain = frame.chain;
                Ok(Some(frame))
            }
            Err(_) if self.is_last() && frame::is_torn(self.unread(), self.position.offset) => {
                self.torn_bytes = self.unread().len() as u64;
                Ok(None)
            }
            Err(what) => Err(self.damaged(what)),
        }
    }

    /// Where the reader stands: after [`Reader::next`] gave `None`, the journal's end.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// The length of the unfinished write at the journal's end, found by [`Reader::next`].
    pub(crate) fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    fn is_last(&self) -> bool {
        self.to_come.is_empty()
    }

    fn unread(&self) -> &[u8] {
        let read = usize::try_from(self.position.offset - self.begin).unwrap_or(usize::MAX);
        self.bytes.get(read..).unwrap_or_default()
    }

    /// Begins a segment; false if it is the last one and its creation was not finished.
    fn enter(&mut self, first_seq: Seq) -> Result<bool, OpenError> {
        let path = path(&self.dir, first_seq);
        let before = self.position;
        self.bytes = fs::read(&path).map_err(OpenError::io(&path))?;
        self.begin = 0;
        self.position = Position { segment: first_seq, offset: 0, ..before };
        let expected = (before.seq.saturating_add(1), before.chain);
        match frame::decode_segment_header(&self.bytes) {
            Ok(found) if found == expected && found.0 == first_seq => {
                self.position.offset = frame::SEGMENT_HEADER_BYTES as u64;
                Ok(true)
            }
            Ok((found, _)) if found != expected.0 => Err(self.damaged(format!(
                "record {} is missing: the segment that holds it is gone, or this one is misnamed",
                expected.0
            ))),
            Ok(_) => Err(self.damaged("the segment does not continue the hash chain".to_owned())),
            Err(_) if self.is_last() && is_unfinished_segment(&self.bytes) => {
                self.torn_bytes = self.bytes.len().max(1) as u64;
                self.position = before;
                Ok(false)
            }
            Err(what) => Err(self.damaged(what.to_owned())),
        }
    }

    fn damaged(&self, what: String) -> OpenError {
        let path = path(&self.dir, self.position.segment);
        OpenError::Damaged { path, offset: self.position.offset, what }
    }
}

/// A segment's header is durable before a frame is written behind it.
fn is_unfinished_segment(bytes: &[u8]) -> bool {
    bytes.len() < frame::SEGMENT_HEADER_BYTES
        || (bytes.len() == frame::SEGMENT_HEADER_BYTES && bytes.iter().all(|byte| *byte == 0))
}

/// Appends frames to the last segment.
pub(crate) struct Writer {
    dir: PathBuf,
    /// `None` until the first record is written.
    file: Option<File>,
    position: Position,
    frame: Vec<u8>,
}

impl Writer {
    /// Prepares to append at `end`, where reading ended; what stands behind it was never finished
    /// and is cut.
    ///
    /// # Errors
    /// When files cannot be opened, cut or flushed.
    pub(crate) fn open(dir: &Path, end: Position) -> Result<Self, OpenError> {
        for first_seq in list(dir)?.into_iter().filter(|first_seq| *first_seq > end.segment) {
            let path = path(dir, first_seq);
            fs::remove_file(&path).map_err(OpenError::io(&path))?;
        }
        sync_directory(dir).map_err(OpenError::io(dir))?;
        let mut writer = Self { dir: dir.to_owned(), file: None, position: end, frame: Vec::new() };
        if end.segment > 0 {
            let path = path(dir, end.segment);
            let file = OpenOptions::new().write(true).open(&path).map_err(OpenError::io(&path))?;
            file.set_len(end.offset).map_err(OpenError::io(&path))?;
            file.sync_all().map_err(OpenError::io(&path))?;
            writer.file = Some(file);
        }
        Ok(writer)
    }

    /// The place behind the last frame that was written and flushed.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Writes `group` as one frame, without flushing it. Can be repeated after an error: the same
    /// bytes go to the same place.
    ///
    /// # Errors
    /// The operating system's, above all [`io::ErrorKind::StorageFull`].
    pub(crate) fn write(&mut self, group: &[Journaled]) -> io::Result<Position> {
        if self.position.offset >= SEGMENT_BYTES_MAX {
            self.file = None;
        }
        if self.file.is_none() {
            self.begin_segment()?;
        }
        let chain = frame::encode(&mut self.frame, group, &self.position.chain)?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.write_all_at(&self.frame, self.position.offset)?;
        Ok(Position {
            offset: self.position.offset + self.frame.len() as u64,
            seq: self.position.seq + group.len() as u64,
            chain,
            ..self.position
        })
    }

    /// Makes what [`Writer::write`] wrote durable; `end` is what it returned.
    ///
    /// # Errors
    /// The operating system's. The write may be lost then, even if a second flush succeeds, so the
    /// caller must not go on.
    pub(crate) fn flush(&mut self, end: Position) -> io::Result<()> {
        self.file.as_ref().ok_or(io::ErrorKind::NotFound)?.sync_data()?;
        self.position = end;
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let first_seq = self.position.seq.saturating_add(1);
        let path = path(&self.dir, first_seq);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        let header = frame::encode_segment_header(first_seq, &self.position.chain);
        file.write_all_at(&header, 0)?;
        file.sync_all()?;
        sync_directory(&self.dir)?;
        self.position.segment = first_seq;
        self.position.offset = header.len() as u64;
        self.file = Some(file);
        Ok(())
    }
}
