//! The whole journal checked: every checksum, the hash chain, every rule of money, and, while no
//! gateway has it open, that sled says the same.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::core::Core;
use super::journal::segment::{self, Position, Reader};
use super::lock::DirectoryLock;
use super::record::Record;
use super::{
    Account, AccountId, HoldId, NodeId, OpenError, Seq, audit, new_cores, recovery, shard_index,
};
use crate::ledger::Balance;
use crate::money::Nanousd;

/// A contradiction is followed by others; this many are listed.
const VIOLATIONS_MAX: usize = 100;

/// What a ledger says, and whether it can be trusted.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Journal files.
    pub segments: usize,
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
    /// The hash of the state that sled gives, with what it lacks replayed; `None` without sled.
    pub sled_hash: Option<String>,
    /// All accounts together.
    pub total: Balance,
    /// What all calls cost beyond what their accounts could pay.
    pub written_off: Nanousd,
    /// Holds that have not ended.
    pub open_holds: usize,
    /// Every account.
    pub accounts: Vec<Account>,
    /// What is wrong; empty when all is well.
    pub violations: Vec<String>,
}

/// Checks the ledger in `dir`, which no process may have open.
///
/// # Errors
/// [`OpenError`] when it cannot be read at all; what can be read and is wrong is in the report.
pub fn verify(dir: &Path) -> Result<Report, OpenError> {
    // Before the lock, which would make a directory that is not there.
    segment::list(&dir.join("journal"))?;
    let _lock = DirectoryLock::take(dir)?;
    let Checked { mut report, state_hash, acts, is_whole, .. } = read(dir, None, &|| true)?;
    if is_whole {
        report.compare_sled(dir, state_hash, acts);
    }
    Ok(report)
}

/// Checks the journal in `dir` up to the record at `to`, which is on disk, for as long as `goes_on`.
/// A gateway may have it open.
///
/// # Errors
/// As [`verify`].
pub(super) fn check(
    dir: &Path,
    to: Option<Seq>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Report, OpenError> {
    Ok(read(dir, to, goes_on)?.report)
}

/// What the journal says.
pub(super) struct Checked {
    pub(super) report: Report,
    /// The state at its end.
    pub(super) cores: Vec<Core>,
    state_hash: [u8; 32],
    /// The hash of who did what, not finished.
    acts: Sha256,
    /// Whether all of it could be read.
    is_whole: bool,
}

/// Reads the journal in `dir` as [`check`] does, and keeps the state.
pub(super) fn read(
    dir: &Path,
    to: Option<Seq>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Checked, OpenError> {
    let journal_dir = dir.join("journal");
    let segments = segment::list(&journal_dir)?.len();
    let mut audit = Audit {
        cores: new_cores(),
        refunds: HashMap::new(),
        acts: Sha256::new(),
        violations: Vec::new(),
    };
    let mut reader = Reader::open(&journal_dir, Position::default())?;
    let (mut frames, mut is_whole) = (0, true);
    while goes_on() && to.is_none_or(|to| reader.position().seq < to) {
        match reader.next() {
            Ok(Some(frame)) => {
                frames += 1;
                for (record, seq) in frame.records.iter().zip(frame.first_seq..) {
                    audit.take(seq, record);
                }
            }
            Ok(None) => break,
            Err(error) => {
                audit.violations.push(error.to_string());
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
        audit.check_refunds(&journal_dir, end.seq)?;
    }
    audit.violations.extend(audit::violations(audit.cores.iter()));
    let state_hash = audit::state_hash(audit.cores.iter());
    let open_holds = audit.cores.iter().map(Core::open_holds).sum();
    let mut accounts: Vec<_> = audit.cores.iter().flat_map(Core::accounts).cloned().collect();
    accounts.sort_by_key(|account| (account.created_at, account.id));
    let report = Report {
        segments,
        frames,
        records: NodeId::count(end.seq),
        torn_bytes: reader.torn_bytes(),
        chain: hex(&end.chain),
        state_hash: hex(&state_hash),
        sled_hash: None,
        total: total(&accounts),
        written_off: sum(&accounts, |account| account.written_off),
        open_holds,
        accounts,
        violations: audit.violations,
    };
    Ok(Checked { report, cores: audit.cores, state_hash, acts: audit.acts, is_whole })
}

/// All accounts together.
fn total(accounts: &[Account]) -> Balance {
    Balance {
        granted: sum(accounts, |account| account.balance.granted),
        available: sum(accounts, |account| account.balance.available),
        held: sum(accounts, |account| account.balance.held),
        spent: sum(accounts, |account| account.balance.spent),
    }
}

fn sum(accounts: &[Account], part: fn(&Account) -> Nanousd) -> Nanousd {
    let sum =
        accounts.iter().try_fold(Nanousd::ZERO, |sum, account| sum.checked_add(part(account)));
    sum.unwrap_or(Nanousd::MAX)
}

struct Audit {
    cores: Vec<Core>,
    /// Refunded holds: what the refund says that they were charged, and where it says so.
    refunds: HashMap<HoldId, (AccountId, Nanousd, Seq)>,
    /// Over who did what: it is in no state, but sled has it.
    acts: Sha256,
    violations: Vec<String>,
}

impl Audit {
    fn take(&mut self, seq: Seq, record: &Record) {
        if let Err(violation) = self.cores[shard_index(record.account())].apply(seq, record)
            && self.violations.len() < VIOLATIONS_MAX
        {
            self.violations.push(violation.to_string());
        }
        if let Record::Acted(act) = record {
            audit::add_act(&mut self.acts, seq, act);
        }
        if let Record::Refunded { account, hold, charged, .. } = record {
            let said = *self.refunds.entry(*hold).or_insert((*account, *charged, seq));
            if (said.0, said.1) != (*account, *charged) {
                self.violations.push(format!("record {seq}: contradicts the refund of {}", said.2));
            }
        }
    }

    /// A refund notes what its hold was charged. Reads the journal again, up to where it was read
    /// before, and compares.
    fn check_refunds(&mut self, journal_dir: &Path, end: Seq) -> Result<(), OpenError> {
        if self.refunds.is_empty() {
            return Ok(());
        }
        let mut reader = Reader::open(journal_dir, Position::default())?;
        while reader.position().seq < end {
            let Some(frame) = reader.next()? else { break };
            for (record, seq) in frame.records.iter().zip(frame.first_seq..) {
                let (Record::Posted { account, hold, charged, .. }
                | Record::Recovered { account, hold, charged, .. }) = record
                else {
                    continue;
                };
                // A refund that stands before the charge is as wrong as one of another amount.
                let is_confirmed =
                    self.refunds.get(hold).is_some_and(|(of, noted, refunded_at)| {
                        (of, noted) == (account, charged) && *refunded_at > seq
                    });
                if is_confirmed {
                    self.refunds.remove(hold);
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

impl Report {
    /// Compares the state that the journal gives with what sled gives, if there is sled.
    fn compare_sled(&mut self, dir: &Path, state_hash: [u8; 32], acts: Sha256) {
        if !dir.join("sled").exists() {
            return;
        }
        match recovery::load(dir) {
            Ok(state) => {
                let sled_hash = audit::state_hash(state.cores.iter());
                if sled_hash != state_hash {
                    self.violations.push(
                        "sled and the journal give different states: move the directory `sled` \
                         aside, and it is rebuilt at the next start"
                            .to_owned(),
                    );
                }
                let mut told = Sha256::new();
                let listed = state.store.each_act(|seq, act| audit::add_act(&mut told, seq, act));
                if listed.is_err() || told.finalize() != acts.finalize() {
                    self.violations
                        .push("sled and the journal tell differently who did what".to_owned());
                }
                self.sled_hash = Some(hex(&sled_hash));
            }
            Err(error) => self.violations.push(format!("sled: {error}")),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
