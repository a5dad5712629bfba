//! The file `head.json` beside the journal: the ledger's id, and the journal's end at the last
//! update. A start uses it to find records that are missing at the end or in between, and to detect
//! a copied directory.
//!
//! It is to be written when a journal is opened and closed and when a segment is sealed, always behind
//! the flush of what it tells of: it may say less than the journal has, and never more.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::checked::{self, hex32};
use crate::error::Error;
use crate::files::sync_directory;
use crate::format::{EmptyNote, Format};
use crate::frame::Chain;
use crate::reader::Reader;
use crate::seal::{self, Seal};
use crate::segment::{self, Position};
use crate::{JOURNAL_DIR, Seq};

/// The file in the data directory.
const FILE: &str = "head.json";
/// The file in the journal's own directory: it goes where the segments go.
const IDENTITY: &str = "identity.json";

/// Contents of `head.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHead<N = EmptyNote> {
    /// Names the history that the journal tells; a copy that goes on by itself gets another name.
    pub id: String,
    /// Number of times the ledger was opened under this name.
    pub generation: u64,
    /// The first record of the journal.
    pub first_seq: Seq,
    /// The segment in which the journal ended then.
    pub segment: Seq,
    /// The length of that segment.
    pub offset: u64,
    /// Last record that was on disk.
    pub seq: Seq,
    /// The hash chain up to there.
    #[serde(with = "hex32")]
    pub chain: Chain,
    /// Fields of the journal's user.
    #[serde(flatten)]
    pub notes: N,
    /// Time of the update, in milliseconds since 1970.
    #[serde(rename = "at")]
    pub at_ms: u64,
}

/// Identity of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryIdentity {
    id: String,
    /// Creation time of the directory in nanoseconds since 1970; a copy is younger. `None` if the
    /// file system does not record it.
    made_ns: Option<u64>,
}

impl DirectoryIdentity {
    fn keep(&self, journal: &Path) -> Result<(), Error> {
        let path = journal.join(IDENTITY);
        // Rewriting it at each start would cost two flushes for nothing.
        if checked::read(&path).ok().flatten().as_ref() == Some(self) {
            return Ok(());
        }
        checked::write(&path, self).map_err(Error::io(&path))
    }
}

/// Check of a journal against its `head.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkPolicy {
    /// A copy is refused.
    Refused,
    /// The operator has accepted this copy as the one that continues.
    Accepted,
    /// No check: the fleet's treasury detects copies of its nodes.
    Unchecked,
}

impl<N: Clone + Serialize + DeserializeOwned> JournalHead<N> {
    /// Reads and verifies the `head.json` in `dir`; `None` if there is none yet. Reads a part of
    /// one segment and the headers of the others.
    ///
    /// # Errors
    /// [`Error`] for a journal that is another one, or lacks what it had.
    pub fn examine<F: Format>(dir: &Path, fork: ForkPolicy) -> Result<Option<Self>, Error> {
        let journal = dir.join(JOURNAL_DIR);
        let head = Self::find(dir)?;
        let of_journal = journal.join(IDENTITY);
        let identity: Option<DirectoryIdentity> =
            checked::read(&of_journal).map_err(Error::io(&of_journal))?;
        let problem = copied(&journal, head.as_ref(), identity.as_ref());
        match (problem, fork) {
            (None, _) | (_, ForkPolicy::Unchecked) => {}
            (Some(what), ForkPolicy::Refused) => {
                return Err(Error::Forked { dir: dir.to_owned(), what: what.to_owned() });
            }
            (Some(what), ForkPolicy::Accepted) => {
                log::warn!("{}: {what}. It goes on under a name of its own", dir.display());
                check_order(&journal, head.as_ref())?;
                // A copy of one that ran may lack its end, which was copied first. What it lacks is told.
                let reached = head.as_ref().map_or(Ok(()), |head| head.reaches::<F>(&journal));
                if let Err(error) = &reached {
                    log::error!("{}: it goes on without them: {error}", dir.display());
                }
                return Ok(head.filter(|_| reached.is_ok()).map(Self::without_name));
            }
        }
        check_order(&journal, head.as_ref())?;
        match head.as_ref().map(|head| head.reaches::<F>(&journal)) {
            Some(Err(error @ Error::Forked { .. })) if fork == ForkPolicy::Accepted => {
                log::warn!("{error}. It goes on under a name of its own");
                Ok(None)
            }
            Some(Err(error)) => Err(error),
            None | Some(Ok(())) => Ok(head),
        }
    }

    /// Reads the `head.json` in `dir` without verifying it.
    ///
    /// # Errors
    /// When the file cannot be read, or was changed.
    pub fn find(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(FILE);
        checked::read(&path).map_err(Error::io(&path))
    }

    /// Writes it down in `dir`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(FILE);
        checked::write(&path, self).map_err(Error::io(&path))
    }

    /// True if this head belongs to the journal in the directory, as far as it can tell.
    pub fn is_of(&self, journal: &Path) -> bool {
        let identity: Option<DirectoryIdentity> =
            checked::read(&journal.join(IDENTITY)).ok().flatten();
        identity.is_none_or(|identity| identity.id == self.id)
    }

    /// This head without its journal's name, for a journal that goes on under a name of its own,
    /// which [`HeadFile::begin`] gives it.
    #[must_use]
    pub fn without_name(self) -> Self {
        Self { id: String::new(), ..self }
    }

    /// Removes the head file from `dir`.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(dir: &Path) -> Result<(), Error> {
        let path = dir.join(FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_directory(dir)).map_err(Error::io(&path)),
        }
    }

    /// Checks that the journal still has its recorded end.
    fn reaches<F: Format>(&self, journal: &Path) -> Result<(), Error> {
        if self.seq <= F::origin(self.seq) {
            return Ok(());
        }
        let behind = || {
            let mut reader = Reader::<F>::open(journal, segment::before(journal, self.seq)?)?;
            while reader.next_frame()?.is_some() {}
            let end = reader.position();
            // A file without a record yet may be gone with a crash.
            if (end.seq, end.chain) == (self.seq, self.chain) {
                return Ok(());
            }
            Err(Error::Behind { end: end.seq, expected: self.seq })
        };
        if let Some(seal) = <Seal>::find(journal, self.segment)? {
            // `check_order` has compared the file's length, if it is here.
            return match (seal.last_seq >= self.seq, seal.bytes == self.offset) {
                (true, true) if seal.chain != self.chain => Err(self.another(journal)),
                (true, _) => Ok(()),
                (false, _) => behind(),
            };
        }
        let path = segment::path(journal, self.segment);
        // Missing, or shorter than noted: a backup that was copied while the gateway wrote, or a lost
        // disk write.
        let Ok(file) = File::open(&path) else { return behind() };
        let length = file.metadata().map_err(Error::io(&path))?.len();
        if length < self.offset {
            return behind();
        }
        match segment::chain_at(&file, self.offset).map_err(Error::io(&path))? {
            Some(chain) if chain != self.chain => Err(self.another(journal)),
            // What is damaged there is told, with its place, by whoever reads it.
            _ => Ok(()),
        }
    }

    fn another(&self, journal: &Path) -> Error {
        Error::Forked {
            dir: journal.to_owned(),
            what: format!("record {} is another one than `{FILE}` has noted", self.seq),
        }
    }
}

/// Error for a journal or a directory that is not the recorded one.
fn copied<N>(
    journal: &Path,
    head: Option<&JournalHead<N>>,
    identity: Option<&DirectoryIdentity>,
) -> Option<&'static str> {
    match (head, identity) {
        (Some(head), Some(identity)) if head.id != identity.id => {
            Some("the journal is another directory's than `head.json`")
        }
        // A file system that does not tell any more says nothing of copies.
        (_, Some(DirectoryIdentity { made_ns: Some(before), .. }))
            if made(journal).is_some_and(|now| now != *before) =>
        {
            Some("this directory is a copy, or was restored from one")
        }
        (None, Some(_)) => Some("the journal was put here without the `head.json` beside it"),
        _ => None,
    }
}

/// Creation time of a directory, if the file system records it.
fn made(path: &Path) -> Option<u64> {
    let created = fs::metadata(path).ok()?.created().ok()?;
    u64::try_from(created.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// Checks that the segments follow each other without a gap, as far as headers and seals tell, and
/// that sealed ones have their length.
fn check_order<N>(journal: &Path, head: Option<&JournalHead<N>>) -> Result<(), Error> {
    let segments = segment::list(journal)?;
    let missing = |seq: Seq, before: Seq| Error::Damaged {
        path: segment::path(journal, before),
        offset: 0,
        what: format!("record {seq} is missing: the segment that holds it is gone"),
    };
    if let (Some(head), Some(first)) = (head, segments.first())
        // The oldest segments are the ones that an operator deletes for space; what follows them is
        // sound by itself.
        && *first > head.first_seq
    {
        return Err(missing(head.first_seq, *first));
    }
    for (at, first_seq) in segments.iter().enumerate() {
        let Some(seal) = <Seal>::find(journal, *first_seq)? else { continue };
        seal.check_length(journal)?;
        let Some(next) = segments.get(at + 1) else { continue };
        // A whole segment can be removed without leaving a broken frame behind, so only its neighbours
        // show it.
        if *next != seal.last_seq.saturating_add(1) {
            return Err(missing(seal.last_seq.saturating_add(1), *next));
        }
        let before = match <Seal>::find(journal, *next)? {
            Some(next) => Some(next.chain_before),
            None => seal::chain_before(journal, *next),
        };
        if before.is_some_and(|before| before != seal.chain) {
            let path = segment::path(journal, *next);
            let what = "the segment does not continue the hash chain".to_owned();
            return Err(Error::Damaged { path, offset: 0, what });
        }
    }
    Ok(())
}

/// Handle to the head file of an open journal.
#[derive(Debug)]
pub struct HeadFile<N = EmptyNote> {
    dir: PathBuf,
    head: Mutex<JournalHead<N>>,
}

impl<N: Clone + Default + Serialize + DeserializeOwned> HeadFile<N> {
    /// Notes that the journal of the data directory `dir` was opened, and ends at `end`. `found` is what
    /// [`JournalHead::examine`] gave.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn begin<F: Format>(
        dir: &Path,
        found: Option<JournalHead<N>>,
        end: Position,
    ) -> Result<Self, Error> {
        let journal = dir.join(JOURNAL_DIR);
        let id = match &found {
            Some(head) if !head.id.is_empty() => head.id.clone(),
            _ => format!("{:032x}", fastrand::u128(..)),
        };
        let begin = F::origin(end.seq).saturating_add(1);
        let first_seq = match &found {
            Some(head) => head.first_seq,
            None => segment::list(&journal)?.first().copied().unwrap_or(begin),
        };
        let generation = found.as_ref().map_or(0, |head| head.generation).saturating_add(1);
        let notes = found.map(|head| head.notes).unwrap_or_default();
        let at_ms = now_ms();
        let (segment, offset, seq, chain) = (end.segment, end.offset, end.seq, end.chain);
        let head =
            JournalHead { id, generation, first_seq, segment, offset, seq, chain, notes, at_ms };
        let identity = DirectoryIdentity { id: head.id.clone(), made_ns: made(&journal) };
        let file = Self { dir: dir.to_owned(), head: Mutex::new(head) };
        // In this order: a journal that has a name without a head beside it is taken for a copy.
        let noted = file.note(|_| {}).and_then(|()| identity.keep(&journal));
        match noted {
            // A full disk keeps nobody from starting; what was noted before still holds.
            Err(Error::Io { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                log::error!("the disk is full: how far the journal reaches is not noted");
            }
            noted => noted?,
        }
        Ok(file)
    }

    /// The current head.
    pub fn now(&self) -> JournalHead<N> {
        self.head.lock().clone()
    }

    /// Changes what is noted. On disk when this returns.
    ///
    /// # Errors
    /// When the file cannot be written; the one before stands then.
    pub fn note(&self, change: impl FnOnce(&mut JournalHead<N>)) -> Result<(), Error> {
        let mut head = self.head.lock();
        let mut changed = head.clone();
        change(&mut changed);
        changed.at_ms = now_ms();
        // The file first: readers of `now` act on it, such as by removing what a checkpoint replaces, and
        // a crash must not forget why.
        changed.keep(&self.dir)?;
        *head = changed;
        Ok(())
    }

    /// Notes that the journal ends at `end`, which is on disk.
    ///
    /// # Errors
    /// As [`HeadFile::note`].
    pub fn reached(&self, end: Position) -> Result<(), Error> {
        self.note(|head| {
            // Several threads note ends without an order among them: a late one must not move the end
            // backwards.
            if end.seq >= head.seq {
                (head.segment, head.offset) = (end.segment, end.offset);
                (head.seq, head.chain) = (end.seq, end.chain);
            }
        })
    }
}

/// Now, in milliseconds since 1970; a clock set before that reads as 1970.
#[expect(clippy::disallowed_methods, reason = "only people read it: nothing is decided by it")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
