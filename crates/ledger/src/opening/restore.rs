//! Copies of a ledger: a backup of one that may be in use, and a directory made of a backup, up to its
//! end or to a moment before.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tollgate_journal::checked::hex;

use crate::archive;
use crate::files::directory::{make_directory, sync_directory};
use crate::files::lock::DirectoryLock;
use crate::files::moved;
use crate::files::seal::{self, Seal};
use crate::journal::LedgerFormat;
use crate::journal::head::{Checkpoints, Head, HeadFile};
use crate::journal::segment::{self, Position};
use crate::journal::stream::Frames;
use crate::projection::checkpoint;
use crate::records::error::OpenError;
use crate::records::record::Record;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{NodeId, Seq};

/// Files of the data directory that are a running process's, or are made anew.
const NOT_COPIED: [&str; 4] = ["lock", "ballast", "sent", "head.json"];

/// Summary of a backup or of a restored directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopySummary {
    /// The last record in it.
    pub last_seq: Seq,
    /// Time of that record.
    pub last_at: Option<UnixMs>,
    /// The hash chain up to there, in hex.
    pub chain: String,
    /// Number of copied bytes.
    pub bytes: u64,
    /// Segments that are in the archive, and were not copied: the copy refers to them there.
    pub archived: usize,
    /// Records of the original that are not in the copy.
    pub left_out: OmittedRecords,
}

/// Records of the original that a copy omits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OmittedRecords {
    /// Number of omitted records in all.
    pub records: u64,
    /// Calls that ended: charged, owed or void.
    pub calls: u64,
    /// Amount charged for them.
    pub charged: Nanousd,
    /// Number of omitted grants to accounts.
    pub grants: u64,
    /// Sum of the omitted grants.
    pub granted: Nanousd,
    /// Number of omitted refunds to accounts.
    pub refunds: u64,
    /// Sum of the omitted refunds.
    pub refunded: Nanousd,
    /// Accounts that were created.
    pub accounts: u64,
    /// Keys that were made or changed, and whether they were revoked is not known any more.
    pub keys: u64,
    /// Changes of tasks: upstreams go on with those that were submitted.
    pub tasks: u64,
    /// True if part of it is unreadable.
    pub unreadable: bool,
}

impl OmittedRecords {
    fn add(&mut self, record: &Record) {
        let plus = |sum: &mut Nanousd, more: Nanousd| {
            *sum = sum.saturating_add(more);
        };
        self.records += 1;
        match record {
            Record::Granted { amount, .. } => {
                self.grants += 1;
                plus(&mut self.granted, *amount);
            }
            Record::Refunded { amount, .. } => {
                self.refunds += 1;
                plus(&mut self.refunded, *amount);
            }
            Record::AccountCreated { .. } => self.accounts += 1,
            Record::KeyCreated(_) | Record::KeyUpdated(_) => self.keys += 1,
            Record::Task(_) => self.tasks += 1,
            record if record.ends_hold() => {
                self.calls += 1;
                plus(&mut self.charged, record.charged().unwrap_or_default());
            }
            _ => {}
        }
    }
}

/// Copies the ledger in `from`, which a gateway may have open, to `to`. What is in `to` from an earlier
/// copy of the same ledger is taken as it is where it is sealed.
///
/// # Errors
/// [`OpenError`] when something cannot be read or written, or `to` has another ledger.
pub fn backup(from: &Path, to: &Path) -> Result<CopySummary, OpenError> {
    // Refuses a directory that is no ledger.
    let journal = from.join("journal");
    segment::list(&journal)?;
    let _lock = alone(from, to)?;
    // Before anything is copied: the head may lag behind the segments, but must never be ahead of them.
    let (head, existing) = (Head::find(from)?, Head::find(to)?);
    if let (Some(head), Some(existing)) = (&head, &existing)
        && head.id != existing.id
    {
        return Err(other(to));
    }
    // One of an earlier version, or broken off, has not noted whose it is.
    if existing.is_none() && !is_beginning(&to.join("journal"), &journal) {
        return Err(other(to));
    }
    if let (Some(head), None) = (&head, &existing) {
        // Whose backup it is comes first: one that was broken off is brought up to date by the next.
        Head { notes: Checkpoints::default(), ..head.clone() }.keep(to)?;
    }
    let to_journal = to.join("journal");
    fs::create_dir_all(&to_journal).map_err(OpenError::io(&to_journal))?;
    let mut bytes = copy_files(from, to)?;
    // Before the journal: what it tells of has to be there.
    if let Some(head) = &head {
        bytes += copy_checkpoints(from, to, head)?;
        head.keep(to)?;
    }
    copy(&journal.join("identity.json"), &to_journal.join("identity.json"), None).or_else(
        |error| match error.kind() {
            io::ErrorKind::NotFound => Ok(0),
            _ => Err(OpenError::io(&to_journal)(error)),
        },
    )?;
    for first_seq in segment::list(&journal)? {
        bytes += copy_segment(&journal, &to_journal, first_seq)?;
    }
    sync_directory(&to_journal).and_then(|()| sync_directory(to)).map_err(OpenError::io(to))?;
    if let Some(head) = &head {
        // Others of earlier backups, and what was broken off.
        checkpoint::tidy(to, &head.notes.checkpoints).map_err(OpenError::io(to))?;
    }
    let end = CopyEnd::find(&to_journal, None)?;
    Ok(end.copied(bytes, seal::all(&to_journal)?))
}

/// Keeps others from writing to `to`, which is made if it does not exist. A directory that a gateway has
/// open is no place for a backup: its journal would be exchanged under the gateway's hands.
fn alone(from: &Path, to: &Path) -> Result<Option<DirectoryLock>, OpenError> {
    let lock = match DirectoryLock::take(to) {
        Err(error @ OpenError::InUse(_)) => return Err(error),
        // Some places for backups lock nothing.
        taken => taken.ok(),
    };
    fs::create_dir_all(to).map_err(OpenError::io(to))?;
    let real = |path: &Path| fs::canonicalize(path).map_err(OpenError::io(path));
    if real(from)? == real(to)? {
        let says = "this is the directory that is to be backed up; name another one";
        return Err(OpenError::io(to)(io::Error::new(io::ErrorKind::InvalidInput, says)));
    }
    Ok(lock)
}

/// Creates a ledger in `to`, which must not exist or be empty, from the one in `from`: completely, or up to
/// the time `at`. The copy gets its own name; the original must not continue.
///
/// # Errors
/// [`OpenError`] when something cannot be read or written, when `to` has something in it, and for the
/// ledger of a node of a fleet, whose money is elsewhere.
pub fn restore(from: &Path, to: &Path, at: Option<UnixMs>) -> Result<CopySummary, OpenError> {
    let (journal, to_journal) = (from.join("journal"), to.join("journal"));
    segment::list(&journal)?;
    // Files of another ledger beside this one's journal would be mixed into it.
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        let full = io::Error::new(io::ErrorKind::AlreadyExists, "the directory is not empty");
        return Err(OpenError::io(to)(full));
    }
    moved::check(from)?;
    let mut cut = CopyEnd::find(&journal, at)?;
    let head = Head::find(from)?;
    // The journal had more once than there is.
    cut.left_out.unreadable |= cut.left_out.records == 0
        && head.as_ref().is_some_and(|head| head.is_of(&journal) && head.seq > cut.end.seq);
    let node = NodeId::of(cut.end.seq);
    if node != NodeId::SINGLE {
        return Err(OpenError::OtherNode {
            dir: from.into(),
            found: node,
            expected: NodeId::SINGLE,
        });
    }
    make_directory(to).map_err(OpenError::io(to))?;
    // Nobody opens it before it is whole: with a lock alone in it, it would be a new ledger's.
    let unfinished = moved::MovedMarker { says: moved::RESTORING.to_owned(), id: String::new() };
    unfinished.keep(to)?;
    let lock = DirectoryLock::take(to)?;
    fs::create_dir(&to_journal).map_err(OpenError::io(&to_journal))?;
    let mut bytes = copy_files(from, to)?;
    let mut head = head;
    if let Some(head) = &mut head {
        head.notes.cut_behind(cut.end.seq);
        bytes += copy_checkpoints(from, to, head)?;
        // It goes on under another name.
        head.id = String::new();
    }
    for first_seq in segment::list(&journal)?.into_iter().filter(|seq| *seq < cut.end.segment) {
        bytes += copy_segment(&journal, &to_journal, first_seq)?;
    }
    if cut.end.segment > 0 {
        bytes += copy_part(&journal, &to_journal, cut.end)?;
    }
    sync_directory(&to_journal).and_then(|()| sync_directory(to)).map_err(OpenError::io(to))?;
    HeadFile::begin::<LedgerFormat>(to, head, cut.end)?;
    // Last of all: until then every start of the directory refuses.
    moved::MovedMarker::remove(to)?;
    drop(lock);
    Ok(cut.copied(bytes, seal::all(&to_journal)?))
}

/// True if the file `copy` is absent or is a prefix of the file in `journal`.
fn is_beginning(copy: &Path, journal: &Path) -> bool {
    let begins = |seq: &Seq| {
        let read = |dir| fs::read(segment::path(dir, *seq));
        read(copy).ok().zip(read(journal).ok()).is_some_and(|(copy, now)| now.starts_with(&copy))
    };
    !copy.exists() || segment::list(copy).is_ok_and(|copied| copied.iter().all(begins))
}

fn other(to: &Path) -> OpenError {
    let says = "this directory has something else than an earlier backup of this ledger";
    OpenError::io(to)(io::Error::new(io::ErrorKind::AlreadyExists, says))
}

/// End position of a copy.
struct CopyEnd {
    end: Position,
    last_at: Option<UnixMs>,
    left_out: OmittedRecords,
}

impl CopyEnd {
    /// The journal's end, or the position before the first group with a record after `at`. An unfinished
    /// write is excluded.
    fn find(journal: &Path, at: Option<UnixMs>) -> Result<Self, OpenError> {
        let mut cut =
            Self { end: Position::default(), last_at: None, left_out: OmittedRecords::default() };
        let mut is_over = false;
        let segments = segment::list(journal)?;
        for first_seq in &segments {
            let is_last = segments.last() == Some(first_seq);
            let sealed = Seal::find(journal, *first_seq)?;
            if !is_over {
                sealed.iter().try_for_each(|seal| seal.check_length(journal))?;
            }
            if let Some(seal) =
                sealed.filter(|seal| !is_over && at.is_none_or(|at| seal.summary.last_at <= at))
            {
                cut.end = Position {
                    segment: seal.first_seq,
                    offset: seal.bytes,
                    seq: seal.last_seq,
                    chain: seal.chain,
                };
                cut.last_at = Some(seal.summary.last_at);
                continue;
            }
            let mut frames = match Frames::open(journal, *first_seq) {
                // It was just being made.
                Err(_) if is_last && segment::is_unfinished(journal, *first_seq, 0) => break,
                Err(error) => return cut.broken_off((is_over, at), error.into()),
                Ok(frames) => frames,
            };
            loop {
                let frame = match frames.next_frame() {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(_)
                        if is_last
                            && segment::is_unfinished(journal, *first_seq, frames.offset) =>
                    {
                        break;
                    }
                    Err(error) => return cut.broken_off((is_over, at), error.into()),
                };
                let is_after = |record: &Record| at.is_some_and(|at| record.at() > at);
                // Whole groups only: records of one group belong together. And for good from the first
                // one on, since a clock that was set back must not let later ones in again.
                is_over = is_over || frame.records.iter().any(is_after);
                if is_over {
                    frame.records.iter().for_each(|record| cut.left_out.add(record));
                    continue;
                }
                cut.end = Position {
                    segment: *first_seq,
                    offset: frames.offset,
                    seq: frames.seq,
                    chain: frames.chain,
                };
                cut.last_at = frame.records.last().map(Record::at);
            }
        }
        Ok(cut)
    }

    /// Handles an unreadable rest of the journal: an error for a full copy; a copy up to an earlier
    /// time succeeds and reports that there is more.
    fn broken_off(
        mut self,
        (is_over, at): (bool, Option<UnixMs>),
        error: OpenError,
    ) -> Result<Self, OpenError> {
        self.left_out.unreadable = true;
        // What is only away, as an archive may be, is no damage.
        let is_damage = matches!(error, OpenError::Damaged { .. });
        if is_over || (at.is_some() && is_damage) { Ok(self) } else { Err(error) }
    }

    fn copied(self, bytes: u64, seals: Vec<Seal>) -> CopySummary {
        CopySummary {
            last_seq: self.end.seq,
            last_at: self.last_at,
            chain: hex(&self.end.chain),
            bytes,
            archived: seals.iter().filter(|seal| seal.archived.is_some()).count(),
            left_out: self.left_out,
        }
    }
}

/// Copies the files beside the journal: keys that sign, tokens, identities.
fn copy_files(from: &Path, to: &Path) -> Result<u64, OpenError> {
    let mut bytes = 0;
    for entry in fs::read_dir(from).map_err(OpenError::io(from))? {
        let entry = entry.map_err(OpenError::io(from))?;
        let name = entry.file_name();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let is_temporary = name.to_string_lossy().ends_with(".new");
        if !is_file || is_temporary || NOT_COPIED.iter().any(|other| name == *other) {
            continue;
        }
        let path = to.join(&name);
        bytes += copy(&entry.path(), &path, None).map_err(OpenError::io(&path))?;
    }
    Ok(bytes)
}

fn copy_checkpoints(from: &Path, to: &Path, head: &Head) -> Result<u64, OpenError> {
    let mut bytes = 0;
    let directory = checkpoint::directory(to);
    fs::create_dir_all(&directory).map_err(OpenError::io(&directory))?;
    for existing in &head.notes.checkpoints {
        let path = checkpoint::path(to, existing.seq);
        match copy(&checkpoint::path(from, existing.seq), &path, None) {
            // A newer one has taken its place; the journal is what counts.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => bytes += copied.map_err(OpenError::io(&path))?,
        }
    }
    sync_directory(&directory).map_err(OpenError::io(&directory))?;
    Ok(bytes)
}

/// Copies a segment with its seal. An archived segment stays in the archive.
fn copy_segment(from: &Path, to: &Path, first_seq: Seq) -> Result<u64, OpenError> {
    let (source, target) = (segment::path(from, first_seq), segment::path(to, first_seq));
    let mut bytes = 0;
    let existing = Seal::find(to, first_seq)?;
    // A sealed segment never changes, so an earlier backup's copy of it is as good as new.
    if existing.is_none() || !target.exists() {
        match copy(&source, &target, None) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => bytes = copied.map_err(OpenError::io(&target))?,
        }
    }
    // It may have been moved or sealed meanwhile.
    let Some(mut seal) = Seal::find(from, first_seq)? else { return Ok(bytes) };
    if target.exists() {
        // The copy is here even if the original has moved since.
        let at_home = Seal { archived: None, ..seal.clone() };
        if at_home.check::<LedgerFormat>(to).is_err() {
            // It was copied while it was still being written.
            copy(&source, &target, None).map_err(OpenError::io(&target))?;
            at_home.check::<LedgerFormat>(to)?;
        }
        seal = at_home;
    }
    let accounts = seal::accounts_path(from, first_seq);
    let to_accounts = seal::accounts_path(to, first_seq);
    copy(&accounts, &to_accounts, None).map_err(OpenError::io(&to_accounts))?;
    seal.keep(to)?;
    Ok(bytes)
}

/// Copies the beginning of a segment, local or archived.
fn copy_part(from: &Path, to: &Path, end: Position) -> Result<u64, OpenError> {
    let (source, target) = (segment::path(from, end.segment), segment::path(to, end.segment));
    if !source.exists()
        && let Some(archived) = Seal::find(from, end.segment)?.and_then(|seal| seal.archived)
    {
        let input = archive::open(&archived, None).map_err(OpenError::io(&archived.path))?;
        return copy_from(&mut input.take(end.offset), &target).map_err(OpenError::io(&target));
    }
    copy(&source, &target, Some(end.offset)).map_err(OpenError::io(&target))
}

/// Copies a file, or its beginning. On disk when this returns.
fn copy(from: &Path, to: &Path, bytes_max: Option<u64>) -> io::Result<u64> {
    let file = File::open(from)?;
    let permissions = file.metadata()?.permissions();
    let bytes = copy_from(&mut file.take(bytes_max.unwrap_or(u64::MAX)), to)?;
    fs::set_permissions(to, permissions)?;
    Ok(bytes)
}

fn copy_from(input: &mut impl io::Read, to: &Path) -> io::Result<u64> {
    let new: PathBuf = to.with_extension("copying");
    let mut file = File::create(&new)?;
    let bytes = io::copy(input, &mut file)?;
    file.flush()?;
    file.sync_all()?;
    // Under its name only when whole: a backup that breaks off must not spoil the one before.
    fs::rename(&new, to)?;
    Ok(bytes)
}
