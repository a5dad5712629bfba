//! Seals: what is noted of a segment once it takes no more records, in `<first record>.seal` beside it.
//!
//! A seal is made once, of a segment that was read whole and found sound. From then on every reader
//! notices if the segment is missing, cut or exchanged, and it can be moved away: the seal stays, and
//! says where it is now.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Seq;
use crate::checked::{self, hex32};
use crate::error::Error;
use crate::files;
pub use crate::format::ArchivedSegment;
use crate::format::{EmptyNote, Format};
use crate::frame::{self, Chain};

pub(crate) const COPY_BYTES: usize = 256 << 10;

/// Seal of a closed segment: its length and hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal<S = EmptyNote> {
    /// The number of its first record.
    pub first_seq: Seq,
    /// The number of its last record.
    pub last_seq: Seq,
    /// The hash chain before it.
    #[serde(with = "hex32")]
    pub chain_before: Chain,
    /// The hash chain up to its end.
    #[serde(with = "hex32")]
    pub chain: Chain,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The hash of the file.
    #[serde(with = "hex32")]
    pub sha256: [u8; 32],
    /// Summary of its records by the journal's user, among the other fields.
    #[serde(flatten)]
    pub summary: S,
    /// Location after a move; `None` while it is in the journal's directory.
    pub archived: Option<ArchivedSegment>,
}

/// The path of a segment's seal.
#[must_use]
pub fn path(dir: &Path, first_seq: Seq) -> PathBuf {
    files::path(dir, first_seq, files::SEAL)
}

impl<S: Serialize + DeserializeOwned> Seal<S> {
    /// The seal of the segment that begins with `first_seq`, if it has one.
    ///
    /// # Errors
    /// When the file cannot be read, or was changed.
    pub fn find(dir: &Path, first_seq: Seq) -> Result<Option<Self>, Error> {
        let path = path(dir, first_seq);
        let found: Option<Self> = checked::read(&path).map_err(Error::io(&path))?;
        match found {
            Some(seal) if seal.first_seq != first_seq => {
                let other = io::Error::other("this is the seal of another segment");
                Err(Error::io(path)(other))
            }
            found => Ok(found),
        }
    }

    /// Writes it down.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, dir: &Path) -> Result<(), Error> {
        let path = path(dir, self.first_seq);
        checked::write(&path, self).map_err(Error::io(&path))
    }

    /// The seal of the same segment at its archive location.
    #[must_use]
    pub fn moved_to(self, archived: ArchivedSegment) -> Self {
        Self { archived: Some(archived), ..self }
    }

    /// Notes that a whole copy of the segment is at `archived`, and only then removes the original. Each
    /// step is on disk before the next, so that a crash leaves the segment in one place at least.
    ///
    /// # Errors
    /// When the seal cannot be written, or the original not be removed.
    pub fn move_to(&self, dir: &Path, archived: ArchivedSegment) -> Result<(), Error>
    where
        S: Clone,
    {
        // In this order: a crash between the two leaves both copies, never none.
        self.clone().moved_to(archived).keep(dir)?;
        let from = files::path(dir, self.first_seq, files::SEGMENT);
        let removed = fs::remove_file(&from).and_then(|()| files::sync_directory(dir));
        removed.map_err(Error::io(&from))
    }

    /// Checks that the file is here with its length, or was moved.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is neither.
    pub fn check_length(&self, dir: &Path) -> Result<(), Error> {
        let path = files::path(dir, self.first_seq, files::SEGMENT);
        let what = match fs::metadata(&path) {
            Ok(found) if found.len() == self.bytes => return Ok(()),
            Ok(_) => "the segment is longer or shorter than it was when it was sealed".to_owned(),
            // The archive may be a bucket that is slow or away; a start does not wait for it.
            Err(_) if self.archived.is_some() => return Ok(()),
            Err(_) => {
                let (first, last) = (self.first_seq, self.last_seq);
                format!("the segment is gone: it had the records {first} to {last}")
            }
        };
        Err(Error::Damaged { path, offset: 0, what })
    }

    /// Compares the segment, at its current location, with the seal.
    ///
    /// # Errors
    /// When it cannot be read, or is another one.
    pub fn check<F: Format>(&self, dir: &Path) -> Result<(), Error> {
        let path = files::path(dir, self.first_seq, files::SEGMENT);
        let (path, input): (PathBuf, io::Result<Box<dyn Read>>) = match &self.archived {
            // A move that a crash interrupted has left the original, which is read faster.
            Some(archived) if !path.exists() => {
                (archived.path.clone(), F::open_archived(archived, None))
            }
            _ => {
                let opened = File::open(&path).map(|file| Box::new(file) as _);
                (path, opened)
            }
        };
        let same = input.and_then(|input| self.is_content(input)).map_err(Error::io(&path))?;
        if same {
            return Ok(());
        }
        let what = "the segment is not the one that was sealed".to_owned();
        Err(Error::Damaged { path, offset: 0, what })
    }

    /// True if the input is the sealed segment, byte for byte.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_content(&self, input: impl Read) -> io::Result<bool> {
        Ok(hash(input)? == (self.sha256, self.bytes))
    }
}

/// The seals of a journal, in order.
///
/// # Errors
/// When one cannot be read, or was changed.
pub fn all<S: Serialize + DeserializeOwned>(dir: &Path) -> Result<Vec<Seal<S>>, Error> {
    let mut seals = Vec::new();
    for first_seq in files::numbers(dir, &[files::SEGMENT, files::SEAL]).map_err(Error::io(dir))? {
        seals.extend(Seal::find(dir, first_seq)?);
    }
    Ok(seals)
}

/// The hash chain before a segment, if it stands in the journal's directory with a sound header.
#[must_use]
pub fn chain_before(dir: &Path, first_seq: Seq) -> Option<Chain> {
    let mut header = [0; frame::SEGMENT_HEADER_BYTES];
    File::open(files::path(dir, first_seq, files::SEGMENT)).ok()?.read_exact(&mut header).ok()?;
    let (found, chain) = frame::decode_segment_header(&header).ok()?;
    (found == first_seq).then_some(chain)
}

/// The hash of what is read, and its length.
pub(crate) fn hash(mut input: impl Read) -> io::Result<([u8; 32], u64)> {
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok((hasher.finalize().into(), bytes)),
            Ok(read) => {
                hasher.update(buffer.get(..read).unwrap_or_default());
                bytes += read as u64;
            }
            // A signal during a long read is no fault of the file's.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
