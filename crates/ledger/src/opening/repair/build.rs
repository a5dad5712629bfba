//! The journal that takes a damaged one's place: what was proven stays byte for byte, every record
//! behind it keeps its number, and what is lost is noted in its place.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::account::SledContents;
use super::{JournalIds, LISTED_MAX, Repair, RepairCost};
use crate::files::directory::sync_directory;
use crate::files::seal::{self, Seal};
use crate::journal::Chain;
use crate::journal::head::Head;
use crate::journal::segment::{self, Position, Writer};
use crate::reading::verify;
use crate::records::act::{Act, Actor};
use crate::records::error::OpenError;
use crate::records::record::{JournaledRecord, Record};
use crate::rules::account::Balance;
use crate::rules::core::Core;
use crate::rules::shards::{new_cores, shard_index};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, Seq};

/// Number of records written as one group.
const GROUP_RECORDS: usize = 5_000;

/// Rebuilds a journal from the readable records that are consistent without the lost ones.
pub(super) struct JournalBuilder<'a> {
    sled_contents: &'a SledContents,
    /// The last record that the journal had.
    last: Seq,
    /// Accounts and keys of which sled knows and nothing says how they were made.
    besides: VecDeque<Record>,
    cores: Vec<Core>,
    writer: Option<Writer>,
    /// Up to here the journal was copied.
    copied: Seq,
    group: Vec<JournaledRecord>,
    new: PathBuf,
    restored: u64,
    unrecoverable: u64,
    dropped: u64,
    dropped_why: Vec<String>,
    costs: BTreeMap<AccountId, (Nanousd, Nanousd)>,
    /// Refunded calls, with the charge of each if its record is readable.
    refunded: HashMap<HoldId, Option<(AccountId, Nanousd)>>,
    /// The accounts when the last record was taken that sled has.
    then: Option<HashMap<AccountId, Balance>>,
}

impl<'a> JournalBuilder<'a> {
    pub(super) fn begin(
        sled_contents: &'a SledContents,
        made: &JournalIds,
        lost: &[(Seq, Seq)],
        last: Seq,
    ) -> Self {
        let accounts =
            sled_contents.accounts.iter().filter(|account| !made.accounts.contains(&account.id));
        let accounts = accounts.map(|account| Record::AccountCreated {
            account: account.id,
            name: account.name.clone(),
            at: account.created_at,
        });
        let keys = sled_contents.keys.iter().filter(|key| !made.keys.contains(&key.id));
        let besides = accounts.chain(keys.map(|key| Record::KeyCreated(Arc::clone(key))));
        let put_back = sled_contents.records.values().filter_map(|record| match record {
            Record::Refunded { hold, .. } => Some(hold),
            _ => None,
        });
        let refunded = made.refunded.iter().chain(put_back).map(|hold| (*hold, None)).collect();
        // Places of lost records are the only ones that they can be put into: nothing may move another
        // record.
        let besides = if lost.is_empty() { VecDeque::new() } else { besides.collect() };
        Self {
            sled_contents,
            last,
            besides,
            cores: new_cores(),
            writer: None,
            copied: Seq::MAX,
            group: Vec::new(),
            new: PathBuf::new(),
            restored: 0,
            unrecoverable: 0,
            dropped: 0,
            dropped_why: Vec::new(),
            costs: BTreeMap::new(),
            refunded,
            then: None,
        }
    }

    /// Writes the rebuilt journal to `new`, after a copy of `journal` up to `at`. Intact sealed segments,
    /// according to `chains`, stay sealed and archived.
    pub(super) fn write_to(
        &mut self,
        new: &Path,
        journal: &Path,
        at: Position,
        chains: &BTreeMap<Seq, Chain>,
    ) -> Result<(), OpenError> {
        // A repair that was interrupted: its copy may end anywhere.
        if new.exists() {
            fs::remove_dir_all(new).map_err(OpenError::io(new))?;
        }
        let to = new.join("journal");
        fs::create_dir_all(&to).map_err(OpenError::io(&to))?;
        for first_seq in segment::list(journal)?.into_iter().filter(|seq| *seq <= at.segment) {
            let seal = Seal::find(journal, first_seq).ok().flatten().filter(|seal| {
                seal.last_seq <= at.seq
                    && chains.get(&seal.last_seq) == Some(&seal.chain)
                    && seal.check_length(journal).is_ok()
            });
            let (from, file) = (segment::path(journal, first_seq), segment::path(&to, first_seq));
            if let Some(seal) = &seal {
                let accounts = seal::accounts_path(journal, first_seq);
                let accounts_to = seal::accounts_path(&to, first_seq);
                if accounts.exists() {
                    fs::copy(&accounts, &accounts_to).map_err(OpenError::io(&accounts))?;
                }
                seal.keep(&to)?;
                if seal.archived.is_some() && !from.exists() {
                    continue;
                }
            }
            // The last one is cut and appended to: it must be another file.
            let is_closed = seal.is_some() || first_seq < at.segment;
            // A link where the file system has them: journals of many gigabytes are neither copied nor
            // take the room twice.
            if is_closed && fs::hard_link(&from, &file).is_ok() {
                continue;
            }
            let bytes = segment::content(journal, first_seq)?.unwrap_or_default();
            let written = fs::write(&file, bytes).and_then(|()| fs::File::open(&file)?.sync_all());
            written.map_err(OpenError::io(&file))?;
        }
        self.writer = Some(Writer::open(&to, at)?);
        self.copied = at.seq;
        self.new = new.to_owned();
        Ok(())
    }

    /// The last record that the journal had, as far as anything tells.
    pub(super) fn last(&self) -> Seq {
        self.last
    }

    /// Fills the places from `from` on, up to `to`, of records that are lost.
    pub(super) fn fill(&mut self, from: Seq, to: Seq) -> Result<(), OpenError> {
        for seq in from..to {
            let found = self
                .sled_contents
                .records
                .get(&seq)
                .filter(|record| !self.ends_task(record))
                .cloned();
            let found = found.or_else(|| self.besides.pop_front());
            match found {
                Some(record) if self.apply(seq, &record) => {
                    self.restored += 1;
                    self.put(seq, record)?;
                }
                _ => {
                    self.unrecoverable += 1;
                    // A place cannot stay empty: numbers name holds, and the chain goes over all of
                    // them.
                    self.note(seq, "lost")?;
                }
            }
            self.look(seq);
        }
        Ok(())
    }

    /// True for the end of an open task's hold. Sled does not store the task's own end, which
    /// belongs to the same group: without both the task continues, and is settled by the next poll
    /// of its upstream.
    fn ends_task(&self, record: &Record) -> bool {
        let Some(hold) = record.open_hold().filter(|_| record.ends_hold()) else { return false };
        let mut tasks = self.cores[shard_index(record.account())].tasks();
        tasks.any(|task| task.intent.hold == hold && task.ended().is_none())
    }

    /// Adds a readable record.
    pub(super) fn take(&mut self, seq: Seq, record: Record) -> Result<(), OpenError> {
        if self.apply(seq, &record) {
            self.put(seq, record)?;
        } else {
            self.dropped += 1;
            let cost = self.costs.entry(record.account()).or_default();
            let (place, amount) = match (&record, record.charged()) {
                (_, Some(charged)) => (&mut cost.0, charged),
                (
                    Record::Granted { amount, .. }
                    | Record::Refunded { amount, .. }
                    | Record::CreditSet { lent: amount, .. },
                    _,
                ) => (&mut cost.1, *amount),
                _ => (&mut cost.0, Nanousd::ZERO),
            };
            *place = place.saturating_add(amount);
            self.note(seq, "unusable")?;
        }
        self.look(seq);
        Ok(())
    }

    /// Applies a record if the rules allow it, and returns whether they did.
    fn apply(&mut self, seq: Seq, record: &Record) -> bool {
        // `Core::apply` cannot see this: a refund's charge is in the journal alone.
        let has_no_charge = self.refunds_a_lost_hold(record);
        let core = &mut self.cores[shard_index(record.account())];
        let why = match (!has_no_charge).then(|| core.apply(seq, record)) {
            None => format!("record {seq} refunds a charge that is lost"),
            Some(Ok(())) => {
                let ended = record.open_hold().zip(record.charged());
                if let Some((hold, charged)) = ended
                    && let Some(of) = self.refunded.get_mut(&hold)
                {
                    *of = Some((record.account(), charged));
                }
                return true;
            }
            Some(Err(violation)) => violation.to_string(),
        };
        if self.dropped_why.len() < LISTED_MAX {
            self.dropped_why.push(why);
        }
        false
    }

    /// True for a refund whose settlement is lost: it states the charge of its call.
    fn refunds_a_lost_hold(&self, record: &Record) -> bool {
        let Record::Refunded { account, hold, charged, .. } = record else { return false };
        self.refunded.get(hold).copied().flatten() != Some((*account, *charged))
    }

    /// Notes in a record's place, for ever, that it is not there.
    fn note(&mut self, seq: Seq, what: &str) -> Result<(), OpenError> {
        let act = Act {
            account: AccountId::OPERATOR,
            by: Actor::Gateway,
            what: format!("ledger.repair.{what}"),
            subject: seq.to_string(),
            id: None,
            digest: [0; 32],
            at: UnixMs::now(),
        };
        self.put(seq, Record::Acted(Arc::new(act)))
    }

    fn put(&mut self, seq: Seq, record: Record) -> Result<(), OpenError> {
        // The sound part was copied as it stands; a look without `apply` writes nothing.
        if self.writer.is_none() || seq <= self.copied {
            return Ok(());
        }
        self.group.push(JournaledRecord { seq, record, hold: None });
        if self.group.len() >= GROUP_RECORDS { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), OpenError> {
        let group = std::mem::take(&mut self.group);
        let Some(writer) = self.writer.as_mut().filter(|_| !group.is_empty()) else {
            return Ok(());
        };
        let written = writer.write(&group).and_then(|end| writer.flush(end));
        written.map_err(OpenError::io(&self.new))
    }

    /// Remembers the money when sled's last record is taken.
    fn look(&mut self, seq: Seq) {
        if self.sled_contents.last == Some(seq) {
            self.then = Some(self.balances());
        }
    }

    fn balances(&self) -> HashMap<AccountId, Balance> {
        let accounts = self.cores.iter().flat_map(Core::accounts);
        accounts.map(|account| (account.id, account.balance)).collect()
    }

    /// Finishes the journal and adds the findings to `repair`. A written journal is verified like any other,
    /// and its end is reported.
    pub(super) fn finish(mut self, repair: &mut Repair) -> Result<Option<Position>, OpenError> {
        self.write()?;
        let (then, sled) = (self.then.take().unwrap_or_default(), self.sled_contents.balances());
        let mut accounts: Vec<_> = self.cores.iter().flat_map(Core::accounts).collect();
        accounts.sort_by_key(|account| (account.created_at, account.id));
        for account in accounts {
            let (charges_dropped, credits_dropped) =
                self.costs.remove(&account.id).unwrap_or_default();
            let differs =
                then.get(&account.id).zip(sled.get(&account.id)).is_some_and(|(a, b)| a != b);
            if !differs && charges_dropped == Nanousd::ZERO && credits_dropped == Nanousd::ZERO {
                continue;
            }
            repair.accounts.push(RepairCost {
                account: account.id,
                name: account.name.clone(),
                repaired: then.get(&account.id).copied().unwrap_or(account.balance),
                sled: sled.get(&account.id).copied(),
                charges_dropped,
                credits_dropped,
            });
        }
        for (account, (charges_dropped, credits_dropped)) in self.costs {
            let (name, repaired) = ("(nothing else is known of it)".to_owned(), Balance::default());
            let sled = sled.get(&account).copied();
            repair.accounts.push(RepairCost {
                account,
                name,
                repaired,
                sled,
                charges_dropped,
                credits_dropped,
            });
        }
        repair.restored = self.restored;
        repair.unrecoverable = self.unrecoverable;
        repair.dropped = self.dropped;
        repair.dropped_why = self.dropped_why;
        let Some(writer) = self.writer else { return Ok(None) };
        let end = writer.position();
        drop(writer);
        // Before anything is replaced: an unsound result leaves the damaged journal where it was.
        let report = verify::check(&self.new, None, &|| true)?;
        match report.violations.first() {
            None => Ok(Some(end)),
            Some(violation) => Err(OpenError::Store(format!(
                "the repaired journal is not sound, so nothing was changed: {violation}"
            ))),
        }
    }
}

/// Moves sled and the damaged journal aside, and `new` into place. Returns the location of the damaged one.
///
/// What was noted of the damaged one goes first: a journal of which nothing is noted starts, whenever
/// this is broken off.
pub(super) fn put_in_place(dir: &Path, new: Option<&Path>) -> Result<Option<PathBuf>, OpenError> {
    let at = UnixMs::now().0 / 1000;
    // Renamed, never removed: what a repair could not read may still be read by somebody.
    let aside = |name: &str| dir.join(format!("{name}.before-repair-{at}"));
    let rename = |from: &Path, to: &Path| {
        let renamed = fs::rename(from, to).and_then(|()| sync_directory(dir));
        renamed.map_err(OpenError::io(from))
    };
    let sled_aside = || match dir.join("sled") {
        sled if sled.exists() => rename(&sled, &aside("sled")),
        _ => Ok(()),
    };
    let Some(new) = new else { return sled_aside().map(|()| None) };
    let (journal, kept) = (dir.join("journal"), aside("journal"));
    Head::forget(dir)?;
    rename(&journal, &kept)?;
    // Not before: a repair that begins again would have nothing to put back.
    sled_aside()?;
    rename(&new.join("journal"), &journal)?;
    fs::remove_dir_all(new).map_err(OpenError::io(new))?;
    Ok(Some(kept))
}
