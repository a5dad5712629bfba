//! Checkpoints: everything that a start needs of the journal up to some record, in one file, so that
//! what stands before can be moved away.
//!
//! ```text
//! checkpoints/<last seq, 16 hex digits>.ckp
//! magic 8 | header bytes u32 | header (postcard) | rows, zstd:
//!     key bytes u32 | value bytes u32 | key | value, … | ffffffff | rows u64
//! ```
//!
//! The rows are those of the sled ledger as they stood at that record, without the lines of statements.
//! The hash of the file stands in the journal, in the record [`CheckpointRecord`], so that neither a
//! half-written nor an exchanged file is ever taken for it: the file is on disk before the record is
//! written, and is used only when the record is found.

use crate::records::checkpointed::CheckpointRecord;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::files::directory::{make_directory, sync_directory};
use crate::journal::head::Checkpoint;
use crate::journal::records::Records;
use crate::journal::segment::Position;
use crate::projection::store::{self, LAYOUT_VERSION, MemoryRows, Store, StoreError, store_error};
use crate::records::act::Act;
use crate::records::error::OpenError;
use crate::records::record::Record;
use crate::rules::audit;
use crate::rules::core::Core;
use crate::rules::shards::new_cores;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::Seq;

const MAGIC: &[u8; 8] = b"TGCHKPT1";
/// End marker in the place of a key's length, after the last row.
const END: u32 = u32::MAX;
/// Maximum accepted length of a header, key or value, far above what is ever written.
const LENGTH_MAX: u32 = 64 << 20;
/// The fastest level: a checkpoint is written while sled stands still.
const ZSTD_LEVEL: i32 = 1;
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Serialize, Deserialize)]
struct CheckpointHeader {
    layout: u32,
    end: Position,
    state_hash: [u8; 32],
    at: UnixMs,
}

/// The directory of the checkpoints of the ledger in `dir`.
pub(crate) fn directory(dir: &Path) -> PathBuf {
    dir.join("checkpoints")
}

/// The path of the checkpoint that knows of the journal up to `seq`.
pub(crate) fn path(dir: &Path, seq: Seq) -> PathBuf {
    directory(dir).join(format!("{seq:016x}.ckp"))
}

/// Writes a checkpoint of what `store` has now. On disk under its name when this returns; a crash
/// before leaves the ones before. `None` if the store is empty.
///
/// # Errors
/// When sled cannot be read, or the file not written.
pub(crate) fn write(
    dir: &Path,
    store: &Store,
) -> Result<Option<(CheckpointRecord, u64)>, OpenError> {
    let directory = directory(dir);
    make_directory(&directory).map_err(OpenError::io(&directory))?;
    let new = directory.join("new");
    let written = store.at_rest(|rest, rows| {
        let at = UnixMs::now();
        let (layout, end, state_hash) = (rest.layout, rest.end, rest.state_hash);
        let header = CheckpointHeader { layout, end, state_hash, at };
        let mut out = HashingWriter {
            inner: BufWriter::with_capacity(BUFFER_BYTES, File::create(&new)?),
            hasher: Sha256::new(),
            bytes: 0,
        };
        write_all(&mut out, &header, rows)?;
        let (sha256, bytes) = (out.hasher.finalize().into(), out.bytes);
        out.inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok((CheckpointRecord { seq: end.seq, sha256, state_hash, at }, bytes))
    });
    if !matches!(written, Ok(Some(Ok(_)))) {
        // Half a file on a full disk is room that the journal waits for.
        drop(fs::remove_file(&new));
    }
    let written: Option<io::Result<_>> = written.map_err(store_error)?;
    let Some((checkpoint, bytes)) = written.transpose().map_err(OpenError::io(&new))? else {
        return Ok(None);
    };
    let path = path(dir, checkpoint.seq);
    // The contents were synchronised above: after a crash the name refers to a whole file, or is absent.
    let named = fs::rename(&new, &path).and_then(|()| sync_directory(&directory));
    named.map_err(OpenError::io(&path))?;
    Ok(Some((checkpoint, bytes)))
}

fn write_all(
    out: &mut HashingWriter<impl Write>,
    header: &CheckpointHeader,
    rows: &mut dyn Iterator<Item = Result<crate::projection::store::Row, StoreError>>,
) -> io::Result<()> {
    let header = postcard::to_stdvec(header).map_err(io::Error::other)?;
    out.write_all(MAGIC)?;
    out.write_all(&length(&header)?)?;
    out.write_all(&header)?;
    let mut packed = zstd::Encoder::new(out, ZSTD_LEVEL)?;
    let mut count = 0_u64;
    for row in rows {
        let (key, value) = row.map_err(|error| io::Error::other(error.to_string()))?;
        packed.write_all(&length(&key)?)?;
        packed.write_all(&length(&value)?)?;
        packed.write_all(&key)?;
        packed.write_all(&value)?;
        count += 1;
    }
    packed.write_all(&END.to_le_bytes())?;
    packed.write_all(&count.to_le_bytes())?;
    packed.finish()?.flush()
}

fn length(bytes: &[u8]) -> io::Result<[u8; 4]> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    if length > LENGTH_MAX {
        Err(io::ErrorKind::InvalidData.into())
    } else {
        Ok(length.to_le_bytes())
    }
}

/// Fills the empty `store` from the newest usable checkpoint in `dir` that the journal records, and returns
/// the position after which the journal must be read; `None` without one. Unusable checkpoints are logged:
/// the journal contains everything in them.
///
/// # Errors
/// When sled cannot be filled.
pub(crate) fn restore(
    dir: &Path,
    checkpoints: &[Checkpoint],
    store: &Store,
) -> Result<Option<Position>, OpenError> {
    // Newest first: an older one is as good and only makes the start read more of the journal.
    for checkpoint in checkpoints.iter().rev() {
        let path = path(dir, checkpoint.seq);
        let what = match usable(dir, checkpoint) {
            Ok(()) => match fill(&path, store) {
                Ok(end) => {
                    log::info!(
                        "the sled ledger was made from the checkpoint of record {}; what follows is \
                         read from the journal",
                        end.seq
                    );
                    return Ok(Some(end));
                }
                // Other checkpoints need as much room: to try them would only hide the reason.
                Err(error) if error.is_full => return Err(store_error(error)),
                Err(error) => error.to_string(),
            },
            Err(what) => what,
        };
        log::error!("{}: this checkpoint is not used: {what}", path.display());
    }
    // A failed attempt may have filled a part, and replay takes the store for empty.
    store.clear().map_err(store_error)?;
    Ok(None)
}

/// Checks that the journal refers to exactly this file.
fn usable(dir: &Path, checkpoint: &Checkpoint) -> Result<(), String> {
    let path = path(dir, checkpoint.seq);
    let file = File::open(&path).map_err(|error| error.to_string())?;
    let found = hash(file).map_err(|error| error.to_string())?;
    if found != checkpoint.sha256 {
        return Err("it is not the file that was written".to_owned());
    }
    // Parsed after the hash matched, so that no length of a damaged header is believed.
    let header = File::open(&path).and_then(|file| read_header(&mut BufReader::new(file)));
    let header = header.map_err(|error| error.to_string())?;
    if header.layout != LAYOUT_VERSION {
        return Err(format!("its rows are those of layout {}", header.layout));
    }
    let record_seq = checkpoint.record_seq;
    let recorded = Records::open(dir, record_seq, Some(record_seq));
    match recorded.map_err(|error| error.to_string())?.next() {
        // The head file alone could be restored from another backup than the journal.
        Some(Ok((_, Record::Checkpointed(recorded)))) if recorded.sha256 == found => Ok(()),
        Some(Err(error)) => Err(error.to_string()),
        _ => Err(format!("record {record_seq} of the journal does not tell of it")),
    }
}

fn fill(path: &Path, store: &Store) -> Result<Position, StoreError> {
    let (header, mut rows) = open(path)?;
    store.fill(header.end, &mut rows)?;
    // The hash of the file proves the bytes; this proves that this version reads them as the writer
    // meant.
    if audit::state_hash(store.loaded()?.iter()) != header.state_hash {
        return Err(other_state());
    }
    Ok(header.end)
}

fn other_state() -> StoreError {
    StoreError::new("the checkpoint's rows do not give the state that it names")
}

/// Contents of a checkpoint that a start needs if the disk has no room for sled.
pub(crate) struct CheckpointContents {
    /// The place behind which the journal is to be read.
    pub(crate) end: Position,
    pub(crate) cores: Vec<Core>,
    pub(crate) acts: Vec<(Seq, Arc<Act>)>,
}

/// Loads into memory the newest usable checkpoint in `dir` that the journal refers to.
pub(crate) fn remember(dir: &Path, checkpoints: &[Checkpoint]) -> Option<CheckpointContents> {
    checkpoints.iter().rev().find_map(|checkpoint| {
        let path = path(dir, checkpoint.seq);
        let read =
            usable(dir, checkpoint).and_then(|()| read(&path).map_err(|error| error.to_string()));
        read.inspect_err(|what| {
            log::error!("{}: this checkpoint is not used: {what}", path.display());
        })
        .ok()
    })
}

fn read(path: &Path) -> Result<CheckpointContents, StoreError> {
    let (header, rows) = open(path)?;
    let mut held = MemoryRows::default();
    for row in rows {
        let (key, value) = row?;
        held.take(key, value);
    }
    let (mut cores, mut acts) = (new_cores(), Vec::new());
    store::load(&held, &mut cores)?;
    if audit::state_hash(cores.iter()) != header.state_hash {
        return Err(other_state());
    }
    store::each_act(&held, |seq, act| acts.push((seq, Arc::new(act))))?;
    Ok(CheckpointContents { end: header.end, cores, acts })
}

fn open(path: &Path) -> Result<(CheckpointHeader, CheckpointRows<impl Read>), StoreError> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    let header = read_header(&mut input)?;
    let input = BufReader::with_capacity(BUFFER_BYTES, zstd::Decoder::with_buffer(input)?);
    Ok((header, CheckpointRows { input, read: 0, is_over: false }))
}

/// The hash of the checkpoint's file in `dir`, for those who compare it with what the journal says.
pub(crate) fn hash_of(dir: &Path, seq: Seq) -> io::Result<[u8; 32]> {
    hash(File::open(path(dir, seq))?)
}

/// Removes checkpoints that are not listed in `checkpoints`, and files left incomplete by a crash.
pub(crate) fn tidy(dir: &Path, checkpoints: &[Checkpoint]) -> io::Result<()> {
    let directory = directory(dir);
    for entry in fs::read_dir(&directory)? {
        let file = entry?.path();
        if !checkpoints.iter().any(|checkpoint| path(dir, checkpoint.seq) == file) {
            fs::remove_file(&file)?;
        }
    }
    sync_directory(&directory)
}

fn read_header(input: &mut impl Read) -> io::Result<CheckpointHeader> {
    let mut magic = [0; MAGIC.len()];
    input.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no checkpoint"));
    }
    let length = read_length(input)?;
    postcard::from_bytes(&read_bytes(input, length)?).map_err(io::Error::other)
}

fn read_length(input: &mut impl Read) -> io::Result<u32> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    Ok(u32::from_le_bytes(length))
}

fn read_bytes(input: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    if length > LENGTH_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The rows of a checkpoint.
struct CheckpointRows<R> {
    input: R,
    read: u64,
    is_over: bool,
}

impl<R: Read> CheckpointRows<R> {
    fn row(&mut self) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let key = read_length(&mut self.input)?;
        if key == END {
            let mut count = [0; 8];
            self.input.read_exact(&mut count)?;
            let is_whole = u64::from_le_bytes(count) == self.read;
            return if is_whole { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) };
        }
        let value = read_length(&mut self.input)?;
        self.read += 1;
        Ok(Some((read_bytes(&mut self.input, key)?, read_bytes(&mut self.input, value)?)))
    }
}

impl<R: Read> Iterator for CheckpointRows<R> {
    type Item = Result<(Vec<u8>, Vec<u8>), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let row = self.row();
        // An error ends the rows as well: what follows it in the stream has lost its place.
        self.is_over = !matches!(row, Ok(Some(_)));
        row.map_err(StoreError::from).transpose()
    }
}

/// Writer that hashes everything written through it.
struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
    bytes: u64,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hash(mut input: impl Read) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
}
