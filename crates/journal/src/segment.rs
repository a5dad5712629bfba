//! The journal's files: `<first record's number, 16 hex digits>.seg`, and places in them.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Seq;
use crate::error::Error;
use crate::files;
use crate::format::Format;
use crate::frame::{self, Chain};
use crate::seal::{self, Seal};

/// A segment that has reached this length, in bytes, is followed by a new one unless the writer is told
/// otherwise: small enough to be read at once.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// A place between two frames, and what stands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// First record of the segment; zero without a segment.
    pub segment: Seq,
    /// Bytes from the segment's beginning.
    pub offset: u64,
    /// The last record before this place.
    pub seq: Seq,
    /// The hash chain up to this place.
    pub chain: Chain,
}

impl Position {
    /// Beginning of a journal whose first record follows `origin`: see [`Format::origin`].
    #[must_use]
    pub fn beginning(origin: Seq) -> Self {
        Self { seq: origin, ..Self::default() }
    }
}

/// The path of the segment that begins with the record `first_seq`.
#[must_use]
pub fn path(dir: &Path, first_seq: Seq) -> PathBuf {
    files::path(dir, first_seq, files::SEGMENT)
}

/// The numbers of the first records of all segments, ascending: of those that are here, and of those of
/// which a seal says where they are now, or that they should be here.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(dir: &Path) -> Result<Vec<Seq>, Error> {
    files::numbers(dir, &[files::SEGMENT, files::SEAL]).map_err(Error::io(dir))
}

/// The numbers of the first records of the segments that are in the directory itself, ascending.
///
/// # Errors
/// When the directory cannot be read.
pub fn list_here(dir: &Path) -> Result<Vec<Seq>, Error> {
    files::numbers(dir, &[files::SEGMENT]).map_err(Error::io(dir))
}

/// A complete segment, from its current location.
///
/// # Errors
/// The operating system's, [`io::ErrorKind::NotFound`] where it should be here and is not.
pub(crate) fn whole<F: Format>(dir: &Path, first_seq: Seq) -> Result<Vec<u8>, Error> {
    if let Some(bytes) = content::<F>(dir, first_seq)? {
        return Ok(bytes);
    }
    let path = path(dir, first_seq);
    match <Seal>::find(dir, first_seq)? {
        None => Err(Error::io(path)(io::ErrorKind::NotFound.into())),
        Some(Seal { last_seq, .. }) => {
            let what = format!("the segment is gone: it had the records {first_seq} to {last_seq}");
            Err(Error::Damaged { path, offset: 0, what })
        }
    }
}

/// A complete segment, from its current location; `None` if it does not exist.
///
/// # Errors
/// When it cannot be read. One that is in the archive is not given up: the archive may only be away.
pub fn content<F: Format>(dir: &Path, first_seq: Seq) -> Result<Option<Vec<u8>>, Error> {
    let path = path(dir, first_seq);
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read.map(Some).map_err(Error::io(&path)),
    }
    // An unreadable seal counts as none: this also serves the repair of damaged directories.
    let Some(Seal { archived: Some(archived), .. }) = <Seal>::find(dir, first_seq).ok().flatten()
    else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let read = F::open_archived(&archived, None).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map(|_| Some(bytes)).map_err(|source| {
        let what = format!(
            "{source}. The records from {first_seq} on are in this file of the archive, and \
             nothing goes on without them: it has to be there, and whole"
        );
        Error::io(&archived.path)(io::Error::new(source.kind(), what))
    })
}

/// True if the bytes at `offset` of the last segment, which are no frame, are an unfinished write.
#[must_use]
pub fn is_unfinished(dir: &Path, first_seq: Seq, offset: u64) -> bool {
    let Ok(bytes) = fs::read(path(dir, first_seq)) else { return false };
    let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
    if offset < frame::SEGMENT_HEADER_BYTES as u64 {
        is_unfinished_segment(&bytes)
    } else {
        rest.is_some_and(|rest| frame::is_torn(rest, offset))
    }
}

/// Flushes the end of the journal. A killed process may have written it without a flush, and nothing derived
/// from it may be on disk earlier.
///
/// # Errors
/// When it cannot be flushed.
pub fn flush_last(dir: &Path) -> Result<(), Error> {
    if let Some(last) = list_here(dir)?.last() {
        let path = path(dir, *last);
        File::open(&path).and_then(|file| file.sync_all()).map_err(Error::io(&path))?;
    }
    files::sync_directory(dir).map_err(Error::io(dir))
}

/// Beginning of the segment for the record `seq`. If its header is damaged, the beginning of the journal is
/// returned, and reading on reports the damage.
///
/// # Errors
/// When the directory cannot be read.
pub fn before(dir: &Path, seq: Seq) -> Result<Position, Error> {
    let begins = list(dir)?.into_iter().rfind(|first_seq| *first_seq <= seq);
    Ok(begins.and_then(|first_seq| beginning(dir, first_seq)).unwrap_or_default())
}

fn beginning(dir: &Path, first_seq: Seq) -> Option<Position> {
    let chain = seal::chain_before(dir, first_seq).or_else(|| {
        let seal = <Seal>::find(dir, first_seq).ok().flatten()?;
        seal.archived.is_some().then_some(seal.chain_before)
    })?;
    let offset = frame::SEGMENT_HEADER_BYTES as u64;
    Some(Position { segment: first_seq, offset, seq: first_seq.checked_sub(1)?, chain })
}

/// Bytes before a place that are looked at first for the frame that ends there; then more.
const LOOK_BACK_BYTES: u64 = 256 << 10;

/// Checks that `at`, where somebody has stopped reading, is a place of this journal: the frame that ends
/// there has the same hash chain. A place beyond the journal's end passes.
///
/// # Errors
/// [`Error::OtherJournal`], and when the segment cannot be read.
pub fn check_place(dir: &Path, at: Position) -> Result<(), Error> {
    let path = path(dir, at.segment);
    let file = match File::open(&path) {
        Ok(file) if at.segment > 0 => file,
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(&path)(error));
        }
        _ => return Ok(()),
    };
    // The reader opened behind this reports how far the journal does reach.
    if file.metadata().map_err(Error::io(&path))?.len() < at.offset {
        return Ok(());
    }
    if chain_at(&file, at.offset).map_err(Error::io(&path))? == Some(at.chain) {
        return Ok(());
    }
    Err(Error::OtherJournal { path, offset: at.offset, seq: at.seq })
}

/// The hash chain behind the frame of a segment that ends at `offset`, or behind the segment's header;
/// `None` where neither ends. The file is read backwards from there, and no further than it takes.
pub(crate) fn chain_at(mut file: &File, offset: u64) -> io::Result<Option<Chain>> {
    let mut look_back = LOOK_BACK_BYTES;
    loop {
        // A frame has no bound but 4 GiB, yet nearly all end within the first step.
        let from = offset.saturating_sub(look_back);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.take(offset - from).read_to_end(&mut bytes)?;
        let chain = if offset == frame::SEGMENT_HEADER_BYTES as u64 {
            frame::decode_segment_header(&bytes).ok().map(|(_, chain)| chain)
        } else {
            frame::chain_at_end(&bytes)
        };
        if chain.is_some() || from == 0 {
            return Ok(chain);
        }
        look_back = look_back.saturating_mul(16);
    }
}

/// A segment's header is durable before a frame is written behind it.
pub(crate) fn is_unfinished_segment(bytes: &[u8]) -> bool {
    bytes.len() < frame::SEGMENT_HEADER_BYTES
        || (bytes.len() == frame::SEGMENT_HEADER_BYTES && bytes.iter().all(|byte| *byte == 0))
}
