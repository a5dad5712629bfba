//! Notes of calls that are sent upstream before their hold is durable.
//!
//! A call does not wait for the disk before it is sent, so a crash can lose the hold of a call that an
//! upstream is working on. A note is 256 bytes stored into a memory-mapped file of fixed size: it survives
//! the process in the kernel's memory, but not a power failure. On file systems that may have to allocate
//! space for it, the note is written instead.
//!
//! A start adds calls that have a note and no record to the journal, so that they are in doubt like others.
//! It also distinguishes a submit that was never sent from one that may have been.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::journal::segment::{self, Position};
use crate::memory::Ledger;
use crate::records::error::LedgerError;
use crate::records::record::{JournaledRecord, Record};
use crate::records::reservation::Reservation;
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use tollgate_money::money::Nanousd;
use tollgate_process_memory::MappedFile;
use tollgate_types::ids::{HoldId, Seq};

/// File name in the ledger's directory.
const FILE: &str = "sent";
/// Format version, raised with each change of the notes' meaning; other versions are ignored.
const VERSION: u32 = 2;
/// Older version that differs only in the number of slots.
const LONGER_VERSION: u32 = 1;
/// Size of a slot: a note, or the file's head. A longer note, for a model name above some 180 characters,
/// is not made; the call waits for its hold instead.
const SLOT_BYTES: usize = 256;
/// Number of slots. A note overwrites that of the hold this many records earlier, which is durable by
/// then; if not, the call waits for its hold. Under full load a flush covers some hundred records.
const SLOTS: u64 = 4096;
/// Write size for a new file. The kernel keeps each write as one folio and checks all blocks of
/// that folio for every note: 1.8 µs with 4 MiB, 0.5 µs with this size.
const PAGE_BYTES: usize = 4096;
/// Read size, in bytes.
const READ_BYTES: usize = 64 << 10;
/// Prefix of a note: its checksum and its length.
const PREFIX_BYTES: usize = 6;
/// Linux's id of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Head of the file, written first.
#[derive(Serialize, Deserialize)]
struct InFlightHead {
    version: u32,
    /// Id of the process run; notes with another id are ignored.
    run: u64,
    /// Boot id of the machine during the run.
    boot: String,
    /// End of the journal at the start of the run.
    end: Position,
}

/// Note of one call or task sent upstream.
#[derive(Serialize, Deserialize)]
struct Note {
    run: u64,
    /// Hold of the call or task, by the position of its record.
    seq: Seq,
    /// Reservation of a call; `None` for a task, whose hold is already durable.
    reservation: Option<Reservation>,
}

/// Log of calls that this process sends upstream before their hold is flushed.
pub(crate) struct InFlightLog {
    path: PathBuf,
    /// `None` if the file cannot be used: calls then wait for their holds.
    file: Option<NoteFile>,
    run: u64,
    is_broken: AtomicBool,
}

/// The file of the notes.
enum NoteFile {
    /// Notes are stored into mapped memory.
    Mapped(MappedFile),
    /// Notes are written.
    Written(File),
}

impl NoteFile {
    fn put(&self, slot: &[u8; SLOT_BYTES], place: u64) -> io::Result<()> {
        match self {
            Self::Mapped(file) => {
                file.store(usize::try_from(place).map_err(io::Error::other)?, slot)
            }
            Self::Written(file) => file.write_all_at(slot, place),
        }
    }
}

impl InFlightLog {
    /// Starts a new log at journal position `end`. Notes of other processes become void.
    pub(crate) fn begin(dir: &Path, end: Position) -> Self {
        let (path, run) = (dir.join(FILE), fastrand::u64(..));
        let file = begin(&path, run, end);
        let sent = Self { path, file: None, run, is_broken: AtomicBool::new(false) };
        match file {
            Ok(file) => Self { file: Some(file), ..sent },
            Err(error) => {
                sent.give_up(&error);
                sent
            }
        }
    }

    /// A log that makes no notes.
    pub(crate) fn none(dir: &Path) -> Self {
        Self { path: dir.join(FILE), file: None, run: 0, is_broken: AtomicBool::new(false) }
    }

    /// Makes a note; false on failure.
    fn note(&self, seq: Seq, reservation: Option<&Reservation>) -> bool {
        #[derive(Serialize)]
        struct BorrowedNote<'a> {
            run: u64,
            seq: Seq,
            reservation: Option<&'a Reservation>,
        }
        let Some(file) = self.file.as_ref().filter(|_| !self.is_broken.load(Ordering::Relaxed))
        else {
            return false;
        };
        let Some(slot) = encode(&BorrowedNote { run: self.run, seq, reservation }) else {
            return false;
        };
        let Err(error) = file.put(&slot, place(seq)) else { return true };
        // A note that is missing would later prove that its call was never sent, so after one failed note
        // the whole file has to go.
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            self.give_up(&error);
        }
        false
    }

    /// Removes the file after a failure: a missing note would prove that its call was never sent.
    fn give_up(&self, error: &io::Error) {
        let removed = match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                format!("; nor can the file be removed: {error}")
            }
            _ => String::new(),
        };
        log::error!(
            "{}: calls wait for the disk before they are sent, since no note can be made: {error}{removed}",
            self.path.display()
        );
    }
}

impl Ledger {
    /// Notes that the upstream of a call is about to be asked, unless the hold is on disk anyway.
    /// Usually this does not wait.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`]: the call must not be sent then.
    pub(crate) async fn note_sent(
        &self,
        seq: Seq,
        reservation: &Reservation,
    ) -> Result<(), LedgerError> {
        // Further ahead the note would overwrite that of a hold which is not durable yet.
        let is_near = seq.saturating_sub(self.journal.durable_seq()) < SLOTS;
        if self.journal.is_durable(seq) || (is_near && self.in_flight.note(seq, Some(reservation)))
        {
            return Ok(());
        }
        Ok(self.journal.durable(seq).await?)
    }

    /// Notes that the upstream of a task is about to be asked. The task is on disk.
    pub fn note_submit(&self, hold: HoldId) {
        self.in_flight.note(hold.number(), None);
    }

    /// True if the previous process certainly never sent this opened task to its upstream.
    #[must_use]
    pub fn was_never_sent(&self, hold: HoldId) -> bool {
        self.remnants.was_never_sent(hold)
    }
}

/// Iterator over the slots of a file.
struct Slots(BufReader<File>);

impl Iterator for Slots {
    type Item = io::Result<[u8; SLOT_BYTES]>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut slot = [0; SLOT_BYTES];
        match self.0.read_exact(&mut slot) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            read => Some(read.map(|()| slot)),
        }
    }
}

/// Calls in flight when the previous process ended.
#[derive(Default)]
pub(crate) struct CrashRemnants {
    /// Number of its slots.
    slots: u64,
    /// Holds of calls that were sent upstream before the crash.
    noted: Vec<Seq>,
    /// Noted calls without a journal record.
    lost: Vec<(Seq, Reservation)>,
    /// End of the journal at the start of that run, if its notes are complete: the machine has not
    /// rebooted since.
    whole_behind: Option<Seq>,
}

impl CrashRemnants {
    /// Reads the log if it belongs to the journal in `dir`, which ends with record `last`.
    pub(crate) fn read(dir: &Path, last: Seq) -> Self {
        // Half of the notes would say that the others were never made.
        Self::read_all(dir, last).unwrap_or_default()
    }

    fn read_all(dir: &Path, last: Seq) -> io::Result<Self> {
        let file = File::open(dir.join(FILE))?;
        let places = (file.metadata()?.len() / SLOT_BYTES as u64).saturating_sub(1);
        let mut slots = Slots(BufReader::with_capacity(READ_BYTES, file));
        let head: Option<InFlightHead> =
            slots.next().transpose()?.as_ref().and_then(|slot| decode(slot));
        let is_own = |head: &InFlightHead| {
            (LONGER_VERSION..=VERSION).contains(&head.version)
                && head.end.seq <= last
                && segment::check_place(&dir.join("journal"), head.end).is_ok()
        };
        let Some(head) = head.filter(is_own) else { return Ok(Self::default()) };
        // Notes live in the page cache: after a reboot any of them may be missing, and absence proves
        // nothing.
        let same_boot = boot_id().is_some_and(|boot| boot == head.boot);
        let whole_behind = same_boot.then_some(head.end.seq);
        let (mut noted, mut lost) = (Vec::new(), Vec::new());
        for slot in slots {
            let note: Option<Note> = decode(&slot?);
            let Some(note) = note.filter(|note| note.run == head.run) else { continue };
            noted.push(note.seq);
            lost.extend(note.reservation.filter(|_| note.seq > last).map(|made| (note.seq, made)));
        }
        lost.sort_by_key(|(seq, _)| *seq);
        Ok(Self { slots: places, noted, lost, whole_behind })
    }

    /// The calls that have no record although their upstreams may have been asked, taken into `cores`
    /// behind the record at `last`. No customer got a byte of them, so nobody pays for them: their
    /// money is held for their ends alone.
    pub(crate) fn unrecorded(&mut self, cores: &mut [Core], last: Seq) -> Vec<JournaledRecord> {
        let mut taken = Vec::new();
        for (_, reservation) in std::mem::take(&mut self.lost) {
            let core = &mut cores[shard_index(reservation.account)];
            let Some(account) = core.account(reservation.account) else { continue };
            // The lost hold's money is free again in the journal, and others may have spent it since.
            let amount = reservation.amount.min(account.balance.available).max(Nanousd::ZERO);
            let reservation = Reservation { amount, floor: Nanousd::ZERO, ..reservation };
            let record = Record::Reserved(Arc::new(reservation));
            let seq = last.saturating_add(1).saturating_add(taken.len() as u64);
            match core.apply(seq, &record) {
                Ok(()) => taken.push(JournaledRecord { seq, record, hold: None }),
                Err(violation) => log::error!("a call of the last process is lost: {violation}"),
            }
        }
        taken
    }

    fn was_never_sent(&self, hold: HoldId) -> bool {
        let seq = hold.number();
        // A later note may have taken its place.
        let is_noted = |noted: &Seq| *noted >= seq && (noted - seq).is_multiple_of(self.slots);
        self.whole_behind.is_some_and(|begin| seq > begin) && !self.noted.iter().any(is_noted)
    }
}

fn begin(path: &Path, run: u64, end: Position) -> io::Result<NoteFile> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let length = usize::try_from(SLOTS + 1).map_err(io::Error::other)? * SLOT_BYTES;
    let head = InFlightHead { version: VERSION, run, boot: boot_id().unwrap_or_default(), end };
    let head = encode(&head).ok_or_else(|| io::Error::other("the head is too long"))?;
    // The head first: without it, the notes that are overwritten would be missing in what the last one says
    // is whole. The rest is written rather than reserved, whatever was there: then a note never makes the
    // file system allocate anything, though somebody has copied the file without its zeros.
    let mut page = [0; PAGE_BYTES];
    page[..SLOT_BYTES].copy_from_slice(&head);
    for at in (0..length).step_by(PAGE_BYTES) {
        file.write_all_at(&page[..PAGE_BYTES.min(length - at)], at as u64)?;
        page.fill(0);
    }
    // A file of an earlier version may be longer.
    file.set_len(length as u64)?;
    let mapped = MappedFile::map(&file, length);
    Ok(mapped.map_or_else(|_| NoteFile::Written(file), NoteFile::Mapped))
}

fn boot_id() -> Option<String> {
    let id = fs::read_to_string(BOOT_ID).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// File offset of a hold's note.
fn place(seq: Seq) -> u64 {
    (1 + seq % SLOTS) * SLOT_BYTES as u64
}

fn encode(value: &impl Serialize) -> Option<[u8; SLOT_BYTES]> {
    let mut slot = [0; SLOT_BYTES];
    let (prefix, content) = slot.split_at_mut(PREFIX_BYTES);
    let content = postcard::to_slice(value, content).ok()?;
    let (crc, length) = prefix.split_at_mut(4);
    crc.copy_from_slice(&crc32fast::hash(content).to_le_bytes());
    length.copy_from_slice(&u16::try_from(content.len()).ok()?.to_le_bytes());
    Some(slot)
}

fn decode<T: for<'de> Deserialize<'de>>(slot: &[u8]) -> Option<T> {
    let (crc, rest) = slot.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let content = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
    // A slot of zeros has the checksum of nothing, which matches.
    let is_whole = !content.is_empty() && crc32fast::hash(content) == u32::from_le_bytes(*crc);
    is_whole.then(|| postcard::from_bytes(content).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use tollgate_types::clock::UnixMs;
    use tollgate_types::ids::{AccountId, KeyId, RequestId};

    fn reservation(model: &str) -> Reservation {
        Reservation {
            account: AccountId::from_number(1),
            key: KeyId::from_number(2),
            model: model.into(),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(i64::MAX),
            floor: Nanousd::new(i64::MAX),
            at: UnixMs(u64::MAX),
        }
    }

    #[test]
    fn what_has_no_note_was_never_sent() {
        let dir = tempfile::tempdir().expect("a directory");
        let hold = HoldId::from_number;
        assert!(!CrashRemnants::read(dir.path(), 4).was_never_sent(hold(3)), "nothing is known");
        let sent = InFlightLog::begin(dir.path(), Position::default());
        assert!(sent.note(5, Some(&reservation("model"))));
        assert!(sent.note(7, None));
        assert!(sent.note(9 + SLOTS, None));
        assert!(!sent.note(11, Some(&reservation(&"m".repeat(300)))), "it does not fit");
        let left = CrashRemnants::read(dir.path(), 4);
        let lost: Vec<_> = left.lost.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(lost, [5], "the one that has no record");
        assert!(CrashRemnants::read(dir.path(), 5).lost.is_empty(), "it has one");
        for (seq, is_certain) in [(3, true), (6, true), (5, false), (7, false), (9, false)] {
            assert_eq!(left.was_never_sent(hold(seq)), is_certain, "hold {seq}");
        }
        drop(InFlightLog::begin(dir.path(), Position::default()));
        let next = CrashRemnants::read(dir.path(), 4);
        assert!(next.lost.is_empty() && next.noted.is_empty(), "another process's");
    }

    #[test]
    fn notes_of_a_file_with_more_places_are_read_and_it_is_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let sent = InFlightLog::begin(dir.path(), Position::default());
        assert!(sent.note(5, None));
        let longer = OpenOptions::new().write(true).open(dir.path().join(FILE)).expect("a file");
        longer.set_len(4 * SLOTS * SLOT_BYTES as u64 + SLOT_BYTES as u64).expect("longer");
        let head = InFlightHead {
            version: LONGER_VERSION,
            run: sent.run,
            boot: boot_id().unwrap_or_default(),
            end: Position::default(),
        };
        longer.write_all_at(&encode(&head).expect("fits"), 0).expect("written");
        let note = |seq| encode(&Note { run: sent.run, seq, reservation: None }).expect("fits");
        longer
            .write_all_at(&note(6 + SLOTS), place(6) + SLOTS * SLOT_BYTES as u64)
            .expect("written");
        let left = CrashRemnants::read(dir.path(), 4);
        let hold = HoldId::from_number;
        for (seq, is_certain) in [(5, false), (6, true), (6 + SLOTS, false), (7, true)] {
            assert_eq!(left.was_never_sent(hold(seq)), is_certain, "hold {seq}");
        }
        drop(InFlightLog::begin(dir.path(), Position::default()));
        assert_eq!(longer.metadata().expect("a length").len(), (SLOTS + 1) * SLOT_BYTES as u64);
        assert!(CrashRemnants::read(dir.path(), 4).noted.is_empty(), "another process's");
    }

    /// `cp --sparse=always` leaves it without. On a full disk a store into what is missing would end the process.
    #[test]
    fn a_file_that_was_copied_without_its_zeros_gets_them_back() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(InFlightLog::begin(dir.path(), Position::default()));
        let path = dir.path().join(FILE);
        let head = fs::read(&path).expect("read")[..SLOT_BYTES].to_vec();
        let file = File::create(&path).expect("a file");
        file.write_all_at(&head, 0).expect("written");
        file.set_len((SLOTS + 1) * SLOT_BYTES as u64).expect("longer");
        let allocated = || file.metadata().expect("metadata").blocks() * 512;
        assert!(allocated() < SLOTS * SLOT_BYTES as u64, "{} bytes", allocated());
        drop(InFlightLog::begin(dir.path(), Position::default()));
        assert!(allocated() >= (SLOTS + 1) * SLOT_BYTES as u64, "{} bytes", allocated());
    }

    /// The next start would take submits of which there is no note for ones that were never sent.
    #[test]
    fn where_no_notes_can_be_made_those_of_the_process_before_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        drop(InFlightLog::begin(dir.path(), Position::default()));
        let hold = HoldId::from_number(5);
        assert!(
            CrashRemnants::read(dir.path(), 4).was_never_sent(hold),
            "a process that has sent nothing"
        );
        let path = dir.path().join(FILE);
        let sent = InFlightLog { path, file: None, run: 1, is_broken: AtomicBool::new(false) };
        sent.give_up(&io::ErrorKind::StorageFull.into());
        assert!(!CrashRemnants::read(dir.path(), 4).was_never_sent(hold), "nothing is known");
        // Nothing to remove: a directory is no file.
        fs::create_dir(dir.path().join(FILE)).expect("a directory");
        assert!(!InFlightLog::begin(dir.path(), Position::default()).note(5, None));
    }

    #[test]
    fn notes_that_are_written_are_those_that_are_stored() {
        let [mapped, written] =
            [(); 2].map(|()| tempfile::tempdir_in("/dev/shm").expect("a directory"));
        let mut sent =
            [&mapped, &written].map(|dir| InFlightLog::begin(dir.path(), Position::default()));
        assert!(matches!(sent[0].file, Some(NoteFile::Mapped(_))));
        let file = OpenOptions::new().write(true).open(written.path().join(FILE)).expect("a file");
        sent[1].file = Some(NoteFile::Written(file));
        for (dir, sent) in [&mapped, &written].into_iter().zip(&sent) {
            for seq in [1, 5, 5 + SLOTS] {
                assert!(sent.note(seq, Some(&reservation("model"))));
            }
            let left = CrashRemnants::read(dir.path(), 4);
            assert_eq!(left.noted, [1, 5 + SLOTS]);
        }
    }

    #[test]
    fn notes_of_another_start_of_the_machine_prove_nothing_about_what_is_missing() {
        let dir = tempfile::tempdir().expect("a directory");
        let sent = InFlightLog::begin(dir.path(), Position::default());
        assert!(sent.note(5, Some(&reservation("model"))));
        let head = InFlightHead {
            version: VERSION,
            run: sent.run,
            boot: "other".to_owned(),
            end: Position::default(),
        };
        let file = sent.file.as_ref().expect("a file");
        file.put(&encode(&head).expect("fits"), 0).expect("written");
        let left = CrashRemnants::read(dir.path(), 4);
        assert_eq!(left.lost.len(), 1, "what there is counts");
        assert!(!left.was_never_sent(HoldId::from_number(3)));
    }
}
