//! The journal: the truth about money. What it knows of records is here; how it is written, read and
//! checked is the crate `tollgate-journal`'s.

pub(crate) mod head;
pub(crate) mod records;
pub(crate) mod sealing;

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use tollgate_journal::committer::{self, CommittedGroup, Event};
use tollgate_journal::seal::ArchivedSegment;
use tollgate_journal::space::Space;
use tollgate_journal::{Format, Urgency};

pub(crate) use tollgate_journal::JournalStopped;
pub(crate) use tollgate_journal::frame::Chain;
pub(crate) use tollgate_journal::space::{BALLAST, FREE_BYTES_MIN};

use crate::archive;
use crate::files::fatal::fatal;
use crate::records::record::{JournaledRecord, Record};
use crate::records::reservation::OpenHold;
use segment::{Position, Writer};
use tollgate_types::ids::{NodeId, Seq};

/// The records of the ledger, for the journal: how they become bytes, and how they are numbered.
pub(crate) struct LedgerFormat;

impl Format for LedgerFormat {
    type Entry = JournaledRecord;
    type Record = Record;

    fn encode(entry: &JournaledRecord, bytes: &mut Vec<u8>) -> io::Result<()> {
        let before = bytes.len();
        tollgate_journal::encode(bytes, &entry.record)?;
        check_size(entry, bytes.len().saturating_sub(before));
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<(Record, &[u8]), String> {
        postcard::take_from_bytes(bytes)
            .map_err(|error| format!("a record cannot be read: {error}"))
    }

    fn origin(seq: Seq) -> Seq {
        NodeId::of(seq).begin()
    }

    fn open_archived(
        archived: &ArchivedSegment,
        journal: Option<&Path>,
    ) -> io::Result<Box<dyn Read>> {
        archive::open(archived, journal)
    }
}

/// Reports a record that is larger than its kind permits, since such records could fill the disk. The record
/// is already in force, so it is written anyway, and logged.
fn check_size(entry: &JournaledRecord, bytes: usize) {
    let most = entry.record.bytes_max();
    if bytes > most {
        log::error!("the record {} has {bytes} bytes, at most {most} were expected", entry.seq);
    }
    debug_assert!(bytes <= most, "a record of {bytes} bytes: {}", entry.seq);
}

/// The ledger's journal for writing.
pub(crate) type Journal = tollgate_journal::Journal<JournaledRecord>;

/// Appends a record to the journal; `hold` is the state of the hold that it extends or ends, before the
/// record.
///
/// # Errors
/// After [`Journal::stop`].
pub(crate) fn enqueue(
    journal: &Journal,
    record: Record,
    hold: Option<OpenHold>,
) -> Result<Seq, JournalStopped> {
    journal.enqueue(urgency(&record), |seq| JournaledRecord { seq, record, hold })
}

/// Urgency of a record's flush. Records that somebody waits for are written at once: holds, because
/// the response must not begin before its hold is durable, and everything that is acknowledged.
/// Nobody waits for the consequences of an earlier record: a crash before their flush leaves the
/// hold in doubt or the money unmoved, and a reader of the journal's end forces a flush.
fn urgency(record: &Record) -> Urgency {
    match record {
        Record::Posted { .. }
        | Record::PostedOwing { .. }
        | Record::Voided { .. }
        | Record::Recovered { .. }
        | Record::DebtPaid { .. }
        | Record::Lost(_)
        | Record::Costed(_)
        | Record::PriceNoted(_)
        | Record::Leased { .. }
        | Record::Returned { .. }
        | Record::HandedOver { .. }
        | Record::Checkpointed(_) => Urgency::Gather,
        Record::Reserved(_)
        | Record::Extended { .. }
        | Record::Task(_)
        | Record::Announced { .. }
        | Record::AccountCreated { .. }
        | Record::AccountRenamed { .. }
        | Record::AccountSuspended { .. }
        | Record::AccountLimited { .. }
        | Record::AccountPriced { .. }
        | Record::GroupPriced(_)
        | Record::Granted { .. }
        | Record::Refunded { .. }
        | Record::WrittenOff { .. }
        | Record::CreditSet { .. }
        | Record::AccountHolds { .. }
        | Record::KeyCreated(_)
        | Record::KeyUpdated(_)
        | Record::KeyLimited { .. }
        | Record::LoginSet(_)
        | Record::SessionEnded { .. }
        | Record::CodeCreated(_)
        | Record::CodeRevoked { .. }
        | Record::CodeUsed { .. }
        | Record::DoubtResolved { .. }
        | Record::SuspenseResolved { .. }
        | Record::Acted(_)
        | Record::Central(_)
        | Record::Followed { .. } => Urgency::AtOnce,
    }
}

/// Thread that writes the journal.
pub(crate) struct Committer<C> {
    pub journal: Arc<Journal>,
    pub writer: Writer,
    pub space: Space,
    /// Callback for each group that is on disk.
    pub on_group: C,
}

impl<C: FnMut(CommittedGroup<'_, JournaledRecord>)> Committer<C> {
    /// Runs until the journal stops, and gives where it ends on disk. An error that does not pass by
    /// itself ends the process.
    pub(crate) fn run(self) -> Position {
        let Self { journal, writer, space, on_group } = self;
        let committer = committer::Committer::new(journal, writer, space, on_group, log_event);
        committer.run().unwrap_or_else(|error| fatal(&error.to_string()))
    }
}

/// Logs what happens to the journal's disk.
fn log_event(event: Event<'_>) {
    match event {
        Event::LittleRoom { dir, free_bytes_min } => log::error!(
            "less than {} MiB are free under {}: new calls are refused until there is room",
            free_bytes_min >> 20,
            dir.display()
        ),
        Event::RoomAgain { dir } => log::info!("there is room again under {}", dir.display()),
        Event::SpaceUnknown { dir, error } => {
            log::warn!("free space under {} is unknown: {error}", dir.display());
        }
        Event::NoBallast { path, error } => {
            log::warn!("no room could be set aside in {}: {error}", path.display());
        }
        Event::BallastGivenUp => log::error!("the disk is full: the ballast file was given up"),
        Event::WaitsForRoom => log::error!("the disk is full: the journal waits for room"),
        Event::WaitsForDescriptor { error } => {
            log::error!("the journal waits for a descriptor: {error}");
        }
        Event::GivenUp { records } => log::error!(
            "the process ends on a full disk: {records} records were not written. Calls that they \
             settle are in doubt at the next start, as after a crash"
        ),
        Event::NotCut { error } => log::warn!("an unfinished write could not be cut: {error}"),
        event => log::warn!("the journal reports {event:?}"),
    }
}

/// The journal's files.
pub(crate) mod segment {
    use std::path::Path;

    pub(crate) use tollgate_journal::segment::{
        Position, SEGMENT_BYTES_MAX, before, check_place, flush_last, is_unfinished, list,
        list_here, path,
    };

    use super::LedgerFormat;
    use crate::records::error::OpenError;
    use tollgate_types::ids::Seq;

    /// Iterator over the journal's frames.
    pub(crate) type Reader = tollgate_journal::Reader<LedgerFormat>;
    /// Appends to the journal.
    pub(crate) type Writer = tollgate_journal::Writer<LedgerFormat>;

    /// A complete segment, read from its current location; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read. One that is in the archive is not given up: the archive may only be
    /// away.
    pub(crate) fn content(dir: &Path, first_seq: Seq) -> Result<Option<Vec<u8>>, OpenError> {
        Ok(tollgate_journal::segment::content::<LedgerFormat>(dir, first_seq)?)
    }
}

/// Frames of a single segment.
pub(crate) mod stream {
    /// The frames of a segment one after the other.
    pub(crate) type Frames = tollgate_journal::stream::Frames<super::LedgerFormat>;
}

/// Reading a damaged journal.
pub(crate) mod salvage {
    pub(crate) use tollgate_journal::salvage::{SalvageCursor, SalvageItem};

    /// Whatever can be read of a journal.
    pub(crate) type Salvage = tollgate_journal::salvage::Salvage<super::LedgerFormat>;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tollgate_journal::Format as _;
    use tollgate_money::money::Nanousd;
    use tollgate_money::price::{PriceVersion, Usage, UsageSource};
    use tollgate_types::clock::UnixMs;
    use tollgate_types::ids::{AccountId, HoldId, KeyId, RequestId};

    use super::LedgerFormat;
    use crate::records::record::{JournaledRecord, Record};
    use crate::records::reservation::Reservation;
    use crate::{Ledger, Options, Reserve, Settlement};

    /// The pause keeps a settlement away from the date of the next flush. A machine that is busy may make
    /// it longer than records gather, and then the thread rests without a date and has to be woken.
    #[tokio::test]
    async fn a_settlement_wakes_nobody_behind_its_hold() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        let account = ledger.create_account("a").await.expect("an account").id;
        ledger.grant(account, "g", Nanousd::new(1_000)).await.expect("a grant");
        let wakes_no_one = async || {
            let reserve = Reserve {
                account,
                key: KeyId::from_number(1),
                model: "model".into(),
                price: None,
                request: RequestId::new(),
                amount: Nanousd::new(1),
                floor: Nanousd::ZERO,
            };
            let hold = ledger.reserve(reserve).expect("a hold");
            hold.durable().await.expect("on disk");
            std::thread::sleep(Duration::from_millis(4));
            let wakes = ledger.journal.wakes();
            let (usage, source) = (Usage::default(), UsageSource::Upstream);
            hold.post(Settlement { charge: Nanousd::new(1), usage, source });
            ledger.journal.wakes() == wakes
        };
        for _ in 0..20 {
            if wakes_no_one().await {
                return ledger.close();
            }
        }
        panic!("each settlement wakes the thread that writes");
    }

    /// Journal bytes of one call, its hold and its settlement, without the frames, which concurrent
    /// calls share. With frames a short call takes 155 to 200 bytes, so the seven bytes of a price
    /// version are less than a twentieth.
    #[test]
    fn the_name_of_a_price_takes_seven_bytes_of_a_call() {
        let length = |record: Record| {
            let mut bytes = Vec::new();
            let entry = JournaledRecord { seq: 4_711, record, hold: None };
            LedgerFormat::encode(&entry, &mut bytes).expect("memory");
            bytes.len()
        };
        let (account, at) = (AccountId::from_number(u64::MAX / 5), UnixMs(1_764_000_000_000));
        let hold = |price| Reservation {
            account,
            key: KeyId::from_number(u64::MAX / 3),
            model: "gpt-5-mini".into(),
            price,
            request: RequestId::new(),
            amount: Nanousd::new(32_768_000),
            floor: Nanousd::new(2_000),
            at,
        };
        let usage = Usage { input_tokens: 1_200, output_tokens: 300, ..Usage::ZERO };
        let (hold_id, source) = (HoldId::from_number(4_711), UsageSource::Upstream);
        let (charged, written_off) = (Nanousd::new(900_000), Nanousd::ZERO);
        let posted = length(Record::Posted {
            account,
            hold: hold_id,
            charged,
            written_off,
            usage,
            source,
            at,
        });
        let without = length(Record::Reserved(Arc::new(hold(None)))) + posted;
        let price = Some(PriceVersion::from_text("a price"));
        let with = length(Record::Reserved(Arc::new(hold(price)))) + posted;
        println!("{without} bytes of records a call, and {with} with the name of its price");
        assert_eq!(with, without + PriceVersion::CHARACTERS);
        assert!(with <= 120, "{with} bytes of records a call");
        // A unit that came later takes what it needs where it is used, and nothing where it is not.
        let searched = Usage { web_searches: 3, ..usage };
        let posted_with = length(Record::Posted {
            account,
            hold: hold_id,
            charged,
            written_off,
            usage: searched,
            source,
            at,
        });
        assert!(posted_with <= posted + 12, "{posted_with} bytes of a settlement, and {posted}");
    }
}
