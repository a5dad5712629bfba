//! A single gateway's journal in the form in which a fleet's node would have reported it: writes for the
//! directory, costs of calls for the treasury.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::alike;
use super::tally::Tallies;
use crate::files::lock::DirectoryLock;
use crate::journal::segment::{self, Position, Reader};
use crate::memory::follow::central;
use crate::projection::store;
use crate::projection::window::{EntryChunk, UsageCell, UsageTotal, Window};
use crate::reading::report::{FleetHistory, track};
use crate::reading::verify;
use crate::records::error::OpenError;
use crate::records::loss::ListedLoss;
use crate::records::record::{JournaledRecord, Record};
use crate::records::reservation::OpenHold;
use crate::records::task::{DeliveryAttempt, Task};
use crate::rules::account::Account;
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use crate::tasks::task::KEPT_MS;
use tollgate_options::ledger::REPEATED_WITHIN;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, NodeId, Seq, TaskId};

/// A part takes no further group of the journal when it has this many records: some 1 MB on the way,
/// and a transaction of a tenth of a second.
const PART_RECORDS_MAX: u64 = 5_000;
/// A write of the directory takes no further group of the journal when it has this many bytes: a node
/// pulls a thousand writes at one time.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// The most accounts that one write takes up again, some 20 bytes each.
const TAKEN_UP_MAX: usize = 1000;

/// A ledger opened exclusively, with a summary of its journal.
pub struct MoveSource {
    dir: PathBuf,
    cores: Vec<Core>,
    /// Name of the ledger: the hash chain of its first group, in hex.
    pub name: String,
    /// The hash chain of its last group, in hex.
    pub chain: String,
    /// Its last record.
    pub last: Seq,
    /// Violations found in it.
    pub violations: Vec<String>,
    _lock: DirectoryLock,
}

/// A part of the journal, in the form in which a fleet stores it.
pub struct MovePart {
    /// Its number, from 1.
    pub number: u64,
    /// Writes of operators and customers.
    pub writes: Vec<Vec<Record>>,
    /// Lines of statements, by account.
    pub entries: Vec<(AccountId, EntryChunk)>,
}

/// A task with the data that a fleet stores beside it.
#[derive(Clone, Debug)]
pub struct MovedTask {
    /// The task to move.
    pub task: Arc<Task>,
    /// Hold that pays or paid for the task, if the journal has it.
    pub hold: Option<OpenHold>,
    /// The last try to announce its end.
    pub tried: Option<Arc<DeliveryAttempt>>,
}

/// A submit that is recognised when it is repeated: see [`MoveParts::submits`].
pub type MovedSubmit = (AccountId, [u8; 32], [u8; 32], TaskId, UnixMs);

/// Iterator over the parts of a ledger, with their sums.
pub struct MoveParts<'a> {
    source: &'a MoveSource,
    reader: Reader,
    number: u64,
    holds: HashMap<HoldId, OpenHold>,
    /// Writes of which others may follow.
    write: Vec<Record>,
    write_bytes: usize,
    is_over: bool,
    /// Usage by cell.
    pub usage: BTreeMap<UsageCell, UsageTotal>,
    /// Time of each key's last charge.
    pub used: BTreeMap<(KeyId, AccountId), UnixMs>,
    /// Grants, refunds and write-offs.
    pub given: Vec<Record>,
    /// Possible losses of the operator.
    pub losses: Vec<ListedLoss>,
    /// Holds of unresolved calls, by id.
    pub doubts: BTreeMap<HoldId, JournaledRecord>,
    tasks: BTreeMap<TaskId, MovedTask>,
    last_at: UnixMs,
    lines: BTreeMap<AccountId, u64>,
}

impl MoveSource {
    /// Opens the ledger in `dir` and checks all of it, as `tollgate ledger verify` does.
    ///
    /// # Errors
    /// [`OpenError`] when there is none, when a process has it open, or when it cannot be read. What
    /// can be read and is wrong is in `violations`.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        // Taking the lock would make the directory.
        segment::list(&dir.join("journal"))?;
        let lock = DirectoryLock::take(dir)?;
        let checked = verify::read(dir, None, &|| true)?;
        let mut reader = Reader::open(&dir.join("journal"), Position::default())?;
        let mut violations = checked.report.violations;
        // The first frame's chain names the ledger: it is there in every copy, and in no other ledger.
        let first = if violations.is_empty() { reader.next_frame()? } else { None };
        let last = reader.position().seq;
        let last = checked.report.records.saturating_add(NodeId::of(last).begin());
        if NodeId::of(last) != NodeId::SINGLE {
            violations.push(format!("this is the ledger of {} of a fleet", NodeId::of(last)));
        }
        let hex = |chain: [u8; 32]| chain.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            dir: dir.to_owned(),
            cores: checked.cores,
            name: first.map_or_else(String::new, |frame| hex(frame.chain)),
            chain: checked.report.chain,
            last,
            violations,
            _lock: lock,
        })
    }

    /// Number of holds that a crash left open and that belong to no task.
    pub fn left_open(&self) -> usize {
        let of_tasks: HashSet<HoldId> =
            self.cores.iter().flat_map(Core::tasks).map(|task| task.intent.hold).collect();
        let holds = self.cores.iter().flat_map(Core::holds);
        holds.filter(|(id, _)| !of_tasks.contains(id)).count()
    }

    /// The accounts, by their ids.
    pub fn accounts(&self) -> Vec<&Account> {
        let mut accounts: Vec<_> = self.cores.iter().flat_map(Core::accounts).collect();
        accounts.sort_by_key(|account| account.id);
        accounts
    }

    /// See [`super::Followed::names`].
    pub fn names(&self) -> BTreeSet<String> {
        alike::names(&self.cores)
    }

    /// The state, to compare another with.
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// Reads the journal once more, part by part.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn parts(&self) -> Result<MoveParts<'_>, OpenError> {
        Ok(MoveParts {
            source: self,
            reader: Reader::open(&self.dir.join("journal"), Position::default())?,
            number: 0,
            holds: HashMap::new(),
            write: Vec::new(),
            write_bytes: 0,
            is_over: false,
            usage: BTreeMap::new(),
            used: BTreeMap::new(),
            given: Vec::new(),
            losses: Vec::new(),
            doubts: BTreeMap::new(),
            tasks: BTreeMap::new(),
            last_at: UnixMs(0),
            lines: BTreeMap::new(),
        })
    }
}

impl MoveParts<'_> {
    /// Returns the next part; `None` at the end.
    ///
    /// # Errors
    /// When the journal cannot be read, or is not the one that was checked.
    pub fn next_part(&mut self) -> Result<Option<MovePart>, OpenError> {
        if self.is_over {
            return Ok(None);
        }
        let begin = self.reader.position().seq;
        let (mut window, mut writes) = (Window::default(), Vec::new());
        while self.reader.position().seq.saturating_sub(begin) < PART_RECORDS_MAX {
            let Some(frame) = self.reader.next_frame()? else {
                self.is_over = true;
                break;
            };
            for (record, seq) in frame.records.into_iter().zip(frame.first_seq..) {
                self.take(seq, record, &mut window).map_err(OpenError::Violation)?;
            }
            // What belongs together stands in one group of the journal.
            if self.write_bytes >= WRITE_BYTES_MAX {
                self.end_write(&mut writes);
            }
        }
        self.end_write(&mut writes);
        if self.is_over {
            self.take_up(&mut writes);
        }
        let history = FleetHistory::of(std::mem::take(&mut window));
        self.add(&history)?;
        self.number = self.number.saturating_add(1);
        Ok(Some(MovePart { number: self.number, writes, entries: history.entries }))
    }

    fn take(
        &mut self,
        seq: Seq,
        record: Record,
        window: &mut Window,
    ) -> Result<(), crate::Violation> {
        self.last_at = self.last_at.max(record.at());
        // Before `track`, which removes a hold that this record ends.
        let hold = record.open_hold().and_then(|id| self.holds.get(&id).cloned());
        match &record {
            Record::Granted { .. } | Record::Refunded { .. } | Record::WrittenOff { .. } => {
                self.given.push(record.clone());
            }
            Record::Lost(lost) => self.losses.push(ListedLoss { seq, lost: Arc::clone(lost) }),
            Record::Task(task) => self.take_task(task),
            Record::Announced { task, tried, .. } => {
                if let Some(moved) = self.tasks.get_mut(task) {
                    moved.tried = Some(Arc::clone(tried));
                }
            }
            _ => {}
        }
        track(&mut self.holds, seq, &record);
        for inner in directory_records(&central(record.clone())) {
            // It was read from a journal, so it can be written.
            self.write_bytes = self
                .write_bytes
                .saturating_add(postcard::to_stdvec(&inner).map_or(0, |bytes| bytes.len()));
            self.write.push(inner);
        }
        window.add(JournaledRecord { seq, record, hold })
    }

    fn take_task(&mut self, task: &Arc<Task>) {
        let id = task.id();
        if let Some(moved) = self.tasks.get_mut(&id) {
            moved.task = Arc::clone(task);
        } else {
            let hold = self.holds.get(&task.intent.hold).cloned();
            self.tasks.insert(id, MovedTask { task: Arc::clone(task), hold, tried: None });
        }
    }

    fn end_write(&mut self, writes: &mut Vec<Vec<Record>>) {
        self.write_bytes = 0;
        if !self.write.is_empty() {
            writes.push(std::mem::take(&mut self.write));
        }
    }

    /// Accounts are suspended until a node has followed all that is said of them: a key must not be
    /// accepted between its making and its end.
    fn take_up(&mut self, writes: &mut Vec<Vec<Record>>) {
        for account in self.source.accounts().iter().filter(|account| !account.suspended) {
            let (id, at) = (account.id, account.created_at);
            self.write.push(Record::AccountSuspended { account: id, suspended: false, at });
            if self.write.len() >= TAKEN_UP_MAX {
                self.end_write(writes);
            }
        }
        self.end_write(writes);
    }

    fn add(&mut self, history: &FleetHistory) -> Result<(), OpenError> {
        for (cell, total) in &history.usage {
            self.usage.entry(cell.clone()).or_default().add(total);
        }
        for (key, account, at) in &history.used {
            let used = self.used.entry((*key, *account)).or_default();
            // Clocks may have been set back between two parts.
            *used = (*used).max(*at);
        }
        for journaled in &history.doubts {
            let Some(hold) = journaled.record.open_hold() else { continue };
            let state = self.source.cores[shard_index(journaled.record.account())]
                .accounts
                .get(&journaled.record.account());
            // A later part may have resolved it: the final state tells, which was read before.
            if state.is_some_and(|state| state.customers.doubts.contains(&hold)) {
                self.doubts.insert(hold, journaled.clone());
            }
        }
        for (account, chunk) in &history.entries {
            let count = lines(&chunk.bytes)?;
            let sum = self.lines.entry(*account).or_default();
            *sum = sum.saturating_add(count);
        }
        Ok(())
    }

    /// All tasks, when all parts were read.
    pub fn tasks(&self) -> Vec<&MovedTask> {
        self.tasks.values().collect()
    }

    /// Tasks that are in work or within their retention.
    pub fn kept_tasks(&self) -> Vec<&MovedTask> {
        let until = self.last_at.0.saturating_sub(KEPT_MS);
        let is_kept = |moved: &&MovedTask| {
            !moved.task.is_done() || moved.task.ended().is_some_and(|end| end.at.0 >= until)
        };
        self.tasks.values().filter(is_kept).collect()
    }

    /// Submits that are recognised when they are repeated: the account, the SHA-256 of what the
    /// customer calls the submit and that of its body, the task and when it was submitted.
    pub fn submits(&self) -> Vec<MovedSubmit> {
        let within_ms = u64::try_from(REPEATED_WITHIN.as_millis()).unwrap_or(u64::MAX);
        let until = self.last_at.0.saturating_sub(within_ms);
        let states = self.source.cores.iter().flat_map(|core| core.accounts.values());
        let all = states.flat_map(|state| {
            let submits = state.submits.iter();
            submits
                .map(|(key, submit)| (state.account.id, *key, submit.body, submit.task, submit.at))
        });
        let mut submits: Vec<_> = all.filter(|(.., at)| at.0 >= until).collect();
        submits.sort();
        submits
    }

    /// Tallies with these tasks; all parts must have been read.
    pub fn tallies(&self, tasks: &[&MovedTask]) -> Tallies {
        let (codes, uses) = alike::codes(&self.source.cores);
        let mut tallies = Tallies { codes, uses, ..Tallies::default() };
        for state in self.source.cores.iter().flat_map(|core| core.accounts.values()) {
            let (account, tally) = (&state.account, tallies.of(state.account.id));
            tally.granted = account.balance.granted;
            tally.available = account.balance.available;
            tally.held = account.balance.held;
            tally.spent = account.balance.spent;
            tally.debt = account.balance.debt;
            tally.credit = account.balance.credit;
            tally.written_off = account.written_off;
            tally.keys = state.keys.len() as u64;
            tally.grants = state.grants.len() as u64;
            tally.refunds = state.refunds.len() as u64;
            tally.write_offs = state.write_offs.len() as u64;
            tally.losses = state.losses.values().map(|sum| sum.count).sum();
            tally.doubts = state.customers.doubts.len() as u64;
        }
        for (account, lines) in &self.lines {
            tallies.of(*account).lines = *lines;
        }
        for (cell, total) in &self.usage {
            tallies.of(cell.account).add_usage(total);
        }
        for moved in tasks {
            let tally = tallies.of(moved.task.intent.account);
            tally.tasks = tally.tasks.saturating_add(1);
        }
        tallies
    }
}

/// The lines of a chunk of a statement.
///
/// # Errors
/// For bytes that are no chunk.
pub fn read_lines(chunk: &[u8]) -> Result<Vec<JournaledRecord>, OpenError> {
    store::read_chunk(chunk).map_err(|error| OpenError::Store(error.to_string()))
}

/// Number of lines in a chunk of a statement.
///
/// # Errors
/// For bytes that are no chunk.
pub fn lines(chunk: &[u8]) -> Result<u64, OpenError> {
    Ok(read_lines(chunk)?.len() as u64)
}

/// Records for the fleet's directory.
fn directory_records(record: &Record) -> Vec<Record> {
    match record {
        Record::AccountCreated { account, at, .. } => {
            let suspended =
                Record::AccountSuspended { account: *account, suspended: true, at: *at };
            vec![record.clone(), suspended]
        }
        // The last word on it stands at the end.
        Record::AccountSuspended { .. }
        | Record::Reserved(_)
        | Record::Extended { .. }
        | Record::Posted { .. }
        | Record::PostedOwing { .. }
        | Record::DebtPaid { .. }
        | Record::Lost(_)
        | Record::Costed(_)
        | Record::PriceNoted(_)
        | Record::Voided { .. }
        | Record::Recovered { .. }
        | Record::Task(_)
        | Record::Announced { .. }
        | Record::Followed { .. }
        | Record::Leased { .. }
        | Record::Returned { .. }
        | Record::HandedOver { .. }
        | Record::Checkpointed(_)
        | Record::SuspenseResolved { .. } => Vec::new(),
        Record::Granted { .. }
        | Record::Refunded { .. }
        | Record::WrittenOff { .. }
        | Record::CreditSet { .. }
        | Record::AccountHolds { .. }
        | Record::DoubtResolved { .. }
        | Record::KeyCreated(_)
        | Record::KeyUpdated(_)
        | Record::KeyLimited { .. }
        | Record::AccountLimited { .. }
        | Record::AccountPriced { .. }
        | Record::GroupPriced(_)
        | Record::Acted(_)
        | Record::AccountRenamed { .. }
        | Record::LoginSet(_)
        | Record::SessionEnded { .. }
        | Record::CodeCreated(_)
        | Record::CodeRevoked { .. }
        | Record::CodeUsed { .. }
        | Record::Central(_) => vec![record.clone()],
    }
}
