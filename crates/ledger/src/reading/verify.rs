//! The whole journal checked: every checksum, the hash chain, every rule of money, and that sled says
//! the same.

use crate::projection::load::load;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tollgate_journal::checked::hex;

use crate::files::lock::DirectoryLock;
use crate::files::seal;
use crate::journal::LedgerFormat;
use crate::journal::head::{Checkpoint, ForkPolicy, Head};
use crate::journal::segment::{self, Position, Reader};
use crate::projection::checkpoint;
use crate::projection::store::StoreError;
use crate::reading::compare::{SledRead, SledReading};
use crate::records::checkpointed::CheckpointRecord;
use crate::records::cost::MarginTotal;
use crate::records::error::OpenError;
use crate::records::loss::LossSums;
use crate::records::record::Record;
use crate::rules::account::{Account, Balance};
use crate::rules::audit;
use crate::rules::core::Core;
use crate::rules::general_ledger::{BookState, GeneralLedger, TrialBalance};
use crate::rules::shards::{new_cores, shard_index};
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, HoldId, NodeId, Seq};

/// A contradiction is followed by others; this many are listed.
const VIOLATIONS_MAX: usize = 100;

/// Result of a verification.
#[derive(Debug, Serialize)]
pub struct VerificationReport {
    /// Journal files, those in the archive included.
    pub segments: usize,
    /// Number of segments in the archive.
    pub archived: usize,
    /// Checkpoints whose state is the one that the journal gives.
    pub checkpoints: usize,
    /// Group commits.
    pub frames: u64,
    /// Records.
    pub records: u64,
    /// The length of an unfinished write at the journal's end; it is cut at the next start.
    pub torn_bytes: u64,
    /// The hash chain over everything, in hex. Noted elsewhere, it proves later that nothing before
    /// it was changed.
    pub chain: String,
    /// The hash of the state that the journal gives, in hex.
    pub state_hash: String,
    /// The hash of the state that sled gives: with what it lacks replayed, and of an open ledger as it
    /// stood at the record of `sled`. `None` without sled.
    pub sled_hash: Option<String>,
    /// The reading of sled that it was compared by.
    pub sled: SledReading,
    /// Sum over all accounts.
    pub total: Balance,
    /// Spent part of all credit lines.
    pub credit_used: Nanousd,
    /// Amount borne by the operator for all calls.
    pub written_off: Nanousd,
    /// Possible losses of the operator, by cause.
    pub losses: LossSums,
    /// Number of open holds.
    pub open_holds: usize,
    /// The books, by double entry over the same records.
    pub books: TrialBalance,
    /// All accounts of the ledger.
    pub accounts: Vec<Account>,
    /// Violations; empty if the ledger is sound.
    pub violations: Vec<String>,
}

/// The books with the result of their check.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TrialBalance")]
pub struct BooksReport {
    /// True if the books balance and the journal is sound.
    pub ok: bool,
    /// Number of records in the books, which is also the position of the last one.
    pub records: u64,
    /// Every book account with its balance.
    #[serde(flatten)]
    pub books: TrialBalance,
    /// Violations, one sentence each; those of the books begin with `books:`.
    pub violations: Vec<String>,
}

impl From<VerificationReport> for BooksReport {
    fn from(report: VerificationReport) -> Self {
        let VerificationReport { records, books, violations, .. } = report;
        Self { ok: books.adds_up && violations.is_empty(), records, books, violations }
    }
}

/// Checks the ledger in `dir`, which no process may have open.
///
/// # Errors
/// [`OpenError`] when it cannot be read at all; what can be read and is wrong is in the report.
pub fn verify(dir: &Path) -> Result<VerificationReport, OpenError> {
    // Before the lock, which would make a directory that is not there.
    segment::list(&dir.join("journal"))?;
    let _lock = DirectoryLock::take(dir)?;
    let JournalReplay { mut report, state_hash, acts, is_whole, .. } = read(dir, None, &|| true)?;
    if is_whole {
        report.compare_sled(dir, state_hash, acts);
    }
    Ok(report)
}

/// Checks the journal in `dir` up to the record at `to`, which is on disk, for as long as `goes_on`.
/// A gateway may have it open.
///
/// # Errors
/// The errors of [`verify`] itself.
pub(crate) fn check(
    dir: &Path,
    to: Option<Seq>,
    goes_on: &dyn Fn() -> bool,
) -> Result<VerificationReport, OpenError> {
    Ok(read(dir, to, goes_on)?.report)
}

/// Checks the journal as [`check`] does, and what was read of sled against it.
///
/// # Errors
/// The errors of [`verify`] itself.
pub(crate) fn check_with_sled(
    dir: &Path,
    to: Option<Seq>,
    sled: SledRead,
    goes_on: &dyn Fn() -> bool,
) -> Result<VerificationReport, OpenError> {
    let at = sled.state.as_ref().map(|state| state.end.seq);
    let JournalReplay { mut report, at_sled, .. } = read_with(dir, to, at, goes_on)?;
    report.compare_open_sled(sled, at_sled);
    Ok(report)
}

/// The state that the journal gives at a record in its middle.
struct JournalState {
    chain: [u8; 32],
    state_hash: [u8; 32],
    acts: [u8; 32],
}

/// Result of replaying the journal.
pub(crate) struct JournalReplay {
    pub(crate) report: VerificationReport,
    /// The state at its end.
    pub(crate) cores: Vec<Core>,
    state_hash: [u8; 32],
    /// The hash of who did what, not finished.
    acts: Sha256,
    /// True if everything was readable.
    is_whole: bool,
    /// The state at the record that sled was read at, where it was reached.
    at_sled: Option<JournalState>,
}

/// Reads the journal in `dir` as [`check`] does, and keeps the state.
pub(crate) fn read(
    dir: &Path,
    to: Option<Seq>,
    goes_on: &dyn Fn() -> bool,
) -> Result<JournalReplay, OpenError> {
    read_with(dir, to, None, goes_on)
}

/// Reads the journal in `dir` as [`read`] does, and notes the state at the record `at`.
fn read_with(
    dir: &Path,
    to: Option<Seq>,
    at: Option<Seq>,
    goes_on: &dyn Fn() -> bool,
) -> Result<JournalReplay, OpenError> {
    let journal_dir = dir.join("journal");
    let segments = segment::list(&journal_dir)?.len();
    let mut audit = Audit::new();
    let archived = audit.take_notes(dir);
    let mut reader = Reader::open(&journal_dir, Position::default())?;
    let (mut frames, mut is_whole) = (0, true);
    let mut at_sled = (at == Some(reader.position().seq)).then(|| audit.state_at(&reader));
    while goes_on() && to.is_none_or(|to| reader.position().seq < to) {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                frames += 1;
                for (record, seq) in frame.records.iter().zip(frame.first_seq..) {
                    audit.take(seq, record);
                }
                audit.reach(reader.position().seq);
                // Between frames only: sled is applied group by group, so its record is the end of one.
                if at == Some(reader.position().seq) {
                    at_sled = Some(audit.state_at(&reader));
                }
            }
            Ok(None) => break,
            Err(error) => {
                audit.violations.push(OpenError::from(error).to_string());
                is_whole = false;
                break;
            }
        }
    }
    let end = reader.position();
    if let Some(to) = to.filter(|to| is_whole && goes_on() && end.seq < *to) {
        audit.violations.push(format!("the journal ends with record {}, not {to}", end.seq));
        is_whole = false;
    }
    if is_whole {
        // A second reading instead of a map of all charges, which would take the memory of the whole
        // history.
        audit.check_refunds(&journal_dir, end.seq)?;
    }
    audit.check_checkpoints(dir);
    audit.violations.extend(audit::violations(audit.cores.iter()));
    audit.check_books();
    let state_hash = audit::state_hash(audit.cores.iter());
    let open_holds = audit.cores.iter().map(Core::open_holds).sum();
    let mut accounts: Vec<_> = audit.cores.iter().flat_map(Core::accounts).cloned().collect();
    accounts.sort_by_key(|account| (account.created_at, account.id));
    let report = VerificationReport {
        segments,
        archived,
        checkpoints: audit.checkpoints.confirmed,
        frames,
        records: NodeId::count(end.seq),
        torn_bytes: reader.torn_bytes(),
        chain: hex(&end.chain),
        state_hash: hex(&state_hash),
        sled_hash: None,
        sled: SledReading::without("sled was not read"),
        total: total(&accounts),
        credit_used: sum(&accounts, |account| account.balance.credit_used()),
        written_off: sum(&accounts, |account| account.written_off),
        losses: losses(&audit.cores),
        open_holds,
        books: audit.books.trial_balance(),
        accounts,
        violations: audit.violations,
    };
    Ok(JournalReplay {
        report,
        cores: audit.cores,
        state_hash,
        acts: audit.acts,
        is_whole,
        at_sled,
    })
}

/// Sum over all accounts.
fn total(accounts: &[Account]) -> Balance {
    Balance {
        granted: sum(accounts, |account| account.balance.granted),
        available: sum(accounts, |account| account.balance.available),
        held: sum(accounts, |account| account.balance.held),
        spent: sum(accounts, |account| account.balance.spent),
        debt: sum(accounts, |account| account.balance.debt),
        credit: sum(accounts, |account| account.balance.credit),
    }
}

/// Possible losses of the operator, by cause.
fn losses(cores: &[Core]) -> LossSums {
    let mut sums = LossSums::new();
    for (cause, sum) in cores.iter().flat_map(|core| core.accounts.values()).flat_map(|s| &s.losses)
    {
        sums.entry(cause.clone()).or_default().add(*sum);
    }
    sums
}

fn sum(accounts: &[Account], part: fn(&Account) -> Nanousd) -> Nanousd {
    let sum =
        accounts.iter().try_fold(Nanousd::ZERO, |sum, account| sum.checked_add(part(account)));
    sum.unwrap_or(Nanousd::MAX)
}

struct Audit {
    cores: Vec<Core>,
    /// Refunded holds: the charge that the refund states, and the position of the refund.
    refunds: HashMap<HoldId, (AccountId, Nanousd, Seq)>,
    /// Over who did what: it is in no state, but sled has it.
    acts: Sha256,
    checkpoints: CheckpointCheck,
    books: GeneralLedger,
    /// Cost of calls by upstream.
    margins: BTreeMap<Arc<str>, MarginTotal>,
    violations: Vec<String>,
}

/// Stored checkpoints and the journal's records of them.
#[derive(Default)]
struct CheckpointCheck {
    kept: Vec<Checkpoint>,
    /// The hashes of the states up to which they know of the journal.
    states: HashMap<Seq, [u8; 32]>,
    recorded: HashMap<Seq, CheckpointRecord>,
    confirmed: usize,
}

impl Audit {
    fn new() -> Self {
        Self {
            cores: new_cores(),
            refunds: HashMap::new(),
            acts: Sha256::new(),
            checkpoints: CheckpointCheck::default(),
            books: GeneralLedger::default(),
            margins: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// Reads what is noted of the journal beside it, and gives how many segments are in the archive.
    fn take_notes(&mut self, dir: &Path) -> usize {
        // A copy is checked like what it was made of.
        match Head::examine::<LedgerFormat>(dir, ForkPolicy::Unchecked) {
            Ok(head) => {
                self.checkpoints.kept = head.map(|h| h.notes.checkpoints).unwrap_or_default()
            }
            Err(error) => self.violations.push(OpenError::from(error).to_string()),
        }
        match seal::all(&dir.join("journal")) {
            Ok(seals) => seals.iter().filter(|seal| seal.archived.is_some()).count(),
            Err(error) => {
                self.violations.push(error.to_string());
                0
            }
        }
    }

    fn state_at(&self, reader: &Reader) -> JournalState {
        JournalState {
            chain: reader.position().chain,
            state_hash: audit::state_hash(self.cores.iter()),
            acts: self.acts.clone().finalize().into(),
        }
    }

    /// The journal was read up to here.
    fn reach(&mut self, seq: Seq) {
        if self.checkpoints.kept.iter().any(|checkpoint| checkpoint.seq == seq) {
            let hash = audit::state_hash(self.cores.iter());
            // Taken in passing: only here the replay stands where the checkpoint was made.
            self.checkpoints.states.insert(seq, hash);
        }
    }

    /// Compares the checkpoints with the journal's records of them and with the states at their positions.
    fn check_checkpoints(&mut self, dir: &Path) {
        for kept in std::mem::take(&mut self.checkpoints.kept) {
            // The journal was not read so far.
            let Some(recorded) = self.checkpoints.recorded.get(&kept.seq) else { continue };
            let path = checkpoint::path(dir, kept.seq);
            let wrong = match checkpoint::hash_of(dir, kept.seq) {
                Err(error) => Some(error.to_string()),
                Ok(found) if found != recorded.sha256 => {
                    Some("this is not the checkpoint that the journal tells of".to_owned())
                }
                Ok(_) if self.checkpoints.states.get(&kept.seq) != Some(&recorded.state_hash) => {
                    Some("the journal gives another state than this checkpoint".to_owned())
                }
                Ok(_) => None,
            };
            match wrong {
                None => self.checkpoints.confirmed += 1,
                Some(wrong) => self.violations.push(format!("{}: {wrong}", path.display())),
            }
        }
    }

    fn take(&mut self, seq: Seq, record: &Record) {
        match self.cores[shard_index(record.account())].apply(seq, record) {
            // Refused records stay out of the books, or every figure after them would differ as well.
            Ok(()) => self.books.enter(seq, record),
            Err(violation) if self.violations.len() < VIOLATIONS_MAX => {
                self.violations.push(violation.to_string());
            }
            Err(_) => {}
        }
        if let Record::Costed(costed) = record {
            self.margins.entry(Arc::clone(&costed.upstream)).or_default().add(&costed.total());
        }
        if let Record::Checkpointed(recorded) = record {
            self.checkpoints.recorded.insert(recorded.seq, CheckpointRecord::clone(recorded));
        }
        if let Record::Acted(act) = record {
            audit::add_act(&mut self.acts, seq, act);
        }
        if let Record::Refunded { account, hold, charged, .. } = record {
            let inner = *self.refunds.entry(*hold).or_insert((*account, *charged, seq));
            if (inner.0, inner.1) != (*account, *charged) {
                self.violations
                    .push(format!("record {seq}: contradicts the refund of {}", inner.2));
            }
        }
    }

    /// Compares the books with the state that the rules give.
    fn check_books(&mut self) {
        let margins = std::mem::take(&mut self.margins);
        let state = BookState { cores: &self.cores, margins };
        self.violations.extend(self.books.differences(&state));
    }

    /// A refund notes what its hold was charged. Reads the journal again, up to where it was read
    /// before, and compares.
    fn check_refunds(&mut self, journal_dir: &Path, end: Seq) -> Result<(), OpenError> {
        if self.refunds.is_empty() {
            return Ok(());
        }
        let mut reader = Reader::open(journal_dir, Position::default())?;
        while reader.position().seq < end {
            let Some(frame) = reader.next_frame()? else { break };
            for (record, seq) in frame.records.iter().zip(frame.first_seq..) {
                let Some((hold, charged)) = record.open_hold().zip(record.charged()) else {
                    continue;
                };
                let account = record.account();
                // A refund that stands before the charge is as wrong as one of another amount.
                let is_confirmed =
                    self.refunds.get(&hold).is_some_and(|(of, noted, refunded_at)| {
                        (*of, *noted) == (account, charged) && *refunded_at > seq
                    });
                if is_confirmed {
                    self.refunds.remove(&hold);
                }
            }
        }
        for (hold, (account, charged, seq)) in self.refunds.drain() {
            self.violations.push(format!(
                "record {seq} of {account}: refunds {hold} as charged {charged}, which it was not"
            ));
        }
        Ok(())
    }
}

/// Sled gives another state than the journal.
const OTHER_STATE: &str = "sled and the journal give different states: move the directory `sled` aside, \
                           and it is rebuilt at the next start";
/// Sled has other acts than the journal.
const OTHER_ACTS: &str = "sled and the journal tell differently who did what";

impl VerificationReport {
    /// Compares the state that the journal gives with what sled gives, if there is sled.
    fn compare_sled(&mut self, dir: &Path, state_hash: [u8; 32], acts: Sha256) {
        if !dir.join("sled").exists() {
            self.sled = SledReading::without("there is no sled");
            return;
        }
        let begun = Instant::now();
        match load(dir, &[], None) {
            Ok(state) => {
                let sled_hash = audit::state_hash(state.cores.iter());
                if sled_hash != state_hash {
                    self.violations.push(OTHER_STATE.to_owned());
                }
                let mut recorded = Sha256::new();
                let listed =
                    state.store.each_act(|seq, act| audit::add_act(&mut recorded, seq, act));
                if listed.is_err() || recorded.finalize() != acts.finalize() {
                    self.violations.push(OTHER_ACTS.to_owned());
                }
                // What a state does not need is read as well: damage anywhere shows.
                let read = catch_unwind(AssertUnwindSafe(|| state.store.read_all()));
                let read = read.unwrap_or_else(|_| Err(StoreError::new("sled panicked")));
                self.sled = match read {
                    Ok(figures) => SledReading::measured(figures, begun),
                    Err(error) => {
                        self.violations.push(format!("sled: {error}"));
                        SledReading::default()
                    }
                };
                (self.sled.compared, self.sled.record) = (true, self.records);
                self.sled_hash = Some(hex(&sled_hash));
            }
            // A full disk says nothing of money.
            Err(OpenError::NoRoom(cause)) => {
                log::error!("sled is not compared: {cause}");
                self.sled = SledReading::without(cause);
            }
            Err(error) => {
                self.violations.push(format!("sled: {error}"));
                self.sled = SledReading::without(error.to_string());
            }
        }
    }

    /// Compares the state that the journal gave at the record that sled was read at with what sled gave.
    fn compare_open_sled(&mut self, sled: SledRead, journal: Option<JournalState>) {
        let SledRead { reading, state, violations } = sled;
        self.sled = reading;
        self.violations.extend(violations);
        let Some(sled) = state else { return };
        let Some(journal) = journal else {
            // The journal could not be read so far, which is said already, or has no commit that ends there.
            if self.violations.is_empty() {
                let seq = sled.end.seq;
                self.violations
                    .push(format!("sled: no commit of the journal ends at record {seq}"));
            }
            self.sled.reason = Some("the journal could not be read so far".to_owned());
            return;
        };
        self.sled.compared = true;
        self.sled_hash = Some(hex(&sled.state_hash));
        if sled.state_hash != journal.state_hash {
            self.violations.push(OTHER_STATE.to_owned());
        }
        if sled.acts != journal.acts {
            self.violations.push(OTHER_ACTS.to_owned());
        }
        if sled.end.chain != journal.chain {
            self.violations.push("sled was made of another journal".to_owned());
        }
    }
}
