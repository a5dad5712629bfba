//! Reports of a node to the treasury, read from the files after the commit: calls do not wait for
//! them, and they are repeated until the treasury has them.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::journal::segment::{self, Position, Reader};
use crate::projection::window::{EntryChunk, UsageCell, UsageTotal, Window};
use crate::records::error::{OpenError, Violation};
use crate::records::loss::ListedLoss;
use crate::records::record::{JournaledRecord, Record};
use crate::records::reservation::OpenHold;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, NodeId, Seq};

/// A report takes no further group when it has this many records: some 4 MB on the way, and a
/// transaction of less than a second, even where each call is another account's. One that a busy
/// database cannot do in time would be sent again and again as it is.
pub const RECORDS_MAX: u64 = 20_000;

/// Report of a range of a node's journal.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseReport {
    /// Position of the last record of the previous report.
    pub from: Seq,
    /// The last record that is reported with this.
    pub to: Seq,
    /// Settled money by account, in the order of accounts.
    pub settled: Vec<LeaseSettlement>,
    /// Data for statements, usage and the list of doubts.
    pub history: FleetHistory,
}

/// Settlement of leased money of one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettlement {
    /// Account of the money.
    pub account: AccountId,
    /// Paid cost of calls.
    pub charged: Nanousd,
    /// Cost of calls that became debt.
    pub owed: Nanousd,
    /// Cost of calls borne by the operator.
    pub written_off: Nanousd,
    /// Money returned by the node.
    pub returned: Nanousd,
}

/// Data of a report for statements, usage and the list of doubts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetHistory {
    /// Lines of statements, by account.
    pub entries: Vec<(AccountId, EntryChunk)>,
    /// Usage by account, key, model and time.
    pub usage: Vec<(UsageCell, UsageTotal)>,
    /// Time of each key's last charge.
    pub used: Vec<(KeyId, AccountId, UnixMs)>,
    /// Holds that a crash had left open.
    pub doubts: Vec<JournaledRecord>,
    /// Possible losses of the operator.
    pub losses: Vec<ListedLoss>,
}

/// Follows a journal's files.
pub struct Reporter {
    dir: PathBuf,
    /// End of the last report; `None` before the first.
    position: Option<Position>,
    /// Open holds of the node.
    holds: HashMap<HoldId, OpenHold>,
}

impl Reporter {
    /// Follows the journal of the ledger in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.join("journal"), position: None, holds: HashMap::new() }
    }

    /// Reads the records after `from`, the end of the last delivered report, up to `to`, which is
    /// durable. `None` if there are none. Reads files.
    ///
    /// # Errors
    /// When the journal cannot be read, or does not have what is asked for.
    pub fn read(&mut self, from: Seq, to: Seq) -> Result<Option<LeaseReport>, OpenError> {
        let position = match self.position {
            Some(position) if position.seq == from => position,
            _ => self.begin_at(from, to)?,
        };
        if from >= to {
            return Ok(None);
        }
        let mut reader = Reader::open(&self.dir, position)?;
        // All is read before any of it counts: where a file cannot be read for the moment, the open
        // holds are still those of the place where the next try begins.
        let mut frames = Vec::new();
        while reader.position().seq < to
            && reader.position().seq.saturating_sub(from) < RECORDS_MAX
            && let Some(frame) = reader.next_frame()?
        {
            frames.push(frame);
        }
        let (mut window, mut settled) = (Window::default(), BTreeMap::new());
        for frame in frames {
            for (record, seq) in frame.records.into_iter().zip(frame.first_seq..) {
                let hold = record.open_hold().and_then(|id| self.holds.get(&id).cloned());
                settle(&mut settled, &record);
                track(&mut self.holds, seq, &record);
                window.add(JournaledRecord { seq, record, hold }).map_err(OpenError::Violation)?;
            }
        }
        let end = reader.position();
        self.position = Some(end);
        Ok((end.seq > from).then(|| LeaseReport {
            from,
            to: end.seq,
            settled: settled.into_values().collect(),
            history: FleetHistory::of(window),
        }))
    }

    /// Finds the place behind the record at `seq`, and the holds that are open there and end before
    /// `to`: a hold's id is its place, so the oldest one says from where to read.
    fn begin_at(&mut self, seq: Seq, to: Seq) -> Result<Position, OpenError> {
        self.holds.clear();
        if NodeId::count(seq) == 0 {
            return Ok(Position::beginning(NodeId::of(seq).begin()));
        }
        let mut oldest = seq.saturating_add(1);
        let place = self.pass(oldest, seq, |_, _| {})?;
        let mut reader = Reader::open(&self.dir, place)?;
        while reader.position().seq < to
            && let Some(frame) = reader.next_frame()?
        {
            let named = frame.records.iter().filter_map(Record::open_hold);
            oldest = named.map(HoldId::number).fold(oldest, Seq::min);
        }
        let mut holds = HashMap::new();
        self.pass(oldest, seq, |at, record| track(&mut holds, at, record))?;
        self.holds = holds;
        self.position = Some(place);
        Ok(place)
    }

    /// Reads from the segment that has the record at `from` to behind the one at `to`.
    fn pass(
        &self,
        from: Seq,
        to: Seq,
        mut take: impl FnMut(Seq, &Record),
    ) -> Result<Position, OpenError> {
        let mut reader = Reader::open(&self.dir, segment::before(&self.dir, from)?)?;
        while reader.position().seq < to
            && let Some(frame) = reader.next_frame()?
        {
            for (record, seq) in frame.records.iter().zip(frame.first_seq..) {
                take(seq, record);
            }
        }
        if reader.position().seq < to {
            return Err(OpenError::JournalBehind { journal: reader.position().seq, applied: to });
        }
        Ok(reader.position())
    }
}

/// Keeps the open holds.
pub(crate) fn track(holds: &mut HashMap<HoldId, OpenHold>, seq: Seq, record: &Record) {
    match record {
        Record::Reserved(reservation) => {
            let (reservation, amount) = (std::sync::Arc::clone(reservation), reservation.amount);
            holds.insert(HoldId::from_number(seq), OpenHold { reservation, amount });
        }
        Record::Extended { hold, amount, .. } => {
            if let Some(open) = holds.get_mut(hold) {
                open.amount = open.amount.saturating_add(*amount);
            }
        }
        _ => {
            record.open_hold().map(|hold| holds.remove(&hold));
        }
    }
}

/// Settlement of leased money in these records, by account and in the order of accounts.
#[must_use]
pub fn settled<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<LeaseSettlement> {
    let mut settled = BTreeMap::new();
    records.into_iter().for_each(|record| settle(&mut settled, record));
    settled.into_values().collect()
}

/// Adds the effect of a record on leased money.
fn settle(settled: &mut BTreeMap<AccountId, LeaseSettlement>, record: &Record) {
    let charge = record.charge();
    let owed = charge.map(|charge| charge.owed).unwrap_or_default();
    let written_off = charge.map(|charge| charge.written_off).unwrap_or_default();
    let (charged, returned) = match (record, record.charged()) {
        (_, Some(charged)) => (charged, Nanousd::ZERO),
        (Record::Returned { amount, .. }, None) => (Nanousd::ZERO, *amount),
        _ => return,
    };
    let account = record.account();
    let sum = settled.entry(account).or_insert(LeaseSettlement {
        account,
        charged: Nanousd::ZERO,
        owed: Nanousd::ZERO,
        written_off: Nanousd::ZERO,
        returned: Nanousd::ZERO,
    });
    for (sum, more) in [
        (&mut sum.charged, charged),
        (&mut sum.owed, owed),
        (&mut sum.written_off, written_off),
        (&mut sum.returned, returned),
    ] {
        // Each is bounded by what the account was lent, but for what is owed or written off, which an
        // upstream can report anything of.
        *sum = sum.saturating_add(more);
    }
}

impl FleetHistory {
    /// History of one record.
    ///
    /// # Errors
    /// When the record breaks a rule of the ledger.
    pub fn of_record(journaled: JournaledRecord) -> Result<Self, Violation> {
        let mut window = Window::default();
        window.add(journaled)?;
        Ok(Self::of(window))
    }

    /// History of a window, in an order that does not depend on the time of reading.
    pub(crate) fn of(window: Window) -> Self {
        let entries = window.entries.into_iter();
        let mut entries: Vec<_> = entries
            .flat_map(|(account, chunks)| chunks.into_iter().map(move |chunk| (account, chunk)))
            .collect();
        entries.sort_by_key(|(account, chunk)| (*account, chunk.first_seq));
        let mut usage: Vec<_> = window.usage.into_iter().collect();
        usage.sort_by(|(a, _), (b, _)| a.cmp(b));
        let used = window.used.into_iter();
        let mut used: Vec<_> = used.map(|((account, key), at)| (key, account, at)).collect();
        used.sort();
        let losses = window.losses.into_iter().map(|(seq, lost)| ListedLoss { seq, lost });
        Self { entries, usage, used, doubts: window.in_doubt, losses: losses.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ledger, Options, Reserve, Settlement};
    use tollgate_money::price::{Usage, UsageSource};
    use tollgate_types::ids::RequestId;

    fn call(account: AccountId) -> Reserve {
        Reserve {
            account,
            key: KeyId::from_number(7),
            model: "m".into(),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(100),
            floor: Nanousd::ZERO,
        }
    }

    #[tokio::test]
    async fn what_could_not_be_read_for_a_moment_is_reported_like_any_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        let account = ledger.create_account("a").await.expect("creates").id;
        ledger.grant(account, "g", Nanousd::new(1000)).await.expect("grants");
        let hold = ledger.reserve(call(account)).expect("there is money");
        hold.durable().await.expect("on disk");
        let reported = ledger.journal.last_seq();
        let cost = Settlement {
            charge: Nanousd::new(60),
            usage: Usage { input_tokens: 1, ..Usage::ZERO },
            source: UsageSource::Upstream,
        };
        hold.post(cost);
        // Each in a frame of its own.
        ledger.journal.durable(ledger.journal.last_seq()).await.expect("on disk");
        ledger.reserve(call(account)).expect("there is money").post(cost);
        let last = ledger.journal.last_seq();
        ledger.journal.durable(last).await.expect("on disk");

        let mut reporter = Reporter::new(dir.path());
        reporter.read(0, reported).expect("reads").expect("a report");
        let path = segment::path(&dir.path().join("journal"), 1);
        let whole = std::fs::read(&path).expect("the journal");
        let mut bad = whole.clone();
        *bad.last_mut().expect("a byte") ^= 1;
        std::fs::write(&path, bad).expect("written");
        reporter.read(reported, last).expect_err("its last frame is unreadable");
        std::fs::write(&path, whole).expect("written");
        let report = reporter.read(reported, last).expect("reads").expect("a report");
        let anew = Reporter::new(dir.path()).read(reported, last).expect("reads");
        assert_eq!(Some(&report), anew.as_ref());
        assert_eq!(report.settled[0].charged, Nanousd::new(120));
        ledger.close();
    }
}
