//! The whole journal checked offline: every checksum, the hash chain, every rule of money, and that
//! sled says the same.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::core::Core;
use super::journal::segment::{self, Position, Reader};
use super::lock::DirectoryLock;
use super::record::Record;
use super::{Account, AccountId, HoldId, OpenError, Seq, audit, new_cores, recovery, shard_index};
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
    let journal_dir = dir.join("journal");
    let segments = segment::list(&journal_dir)?.len();
    let _lock = DirectoryLock::take(dir)?;
    let mut audit = Audit {
        cores: new_cores(),
        refunds: HashMap::new(),
        acts: Sha256::new(),
        violations: Vec::new(),
    };
    let mut reader = Reader::open(&journal_dir, Position::default())?;
    let (mut frames, mut is_whole) = (0, true);
    loop {
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
    if is_whole {
        audit.check_refunds(&journal_dir)?;
    }
    audit.violations.extend(audit::violations(audit.cores.iter()));
    let state_hash = audit::state_hash(audit.cores.iter());
    let sled_hash = audit.compare_sled(dir, state_hash, is_whole);

    let mut accounts: Vec<_> = audit.cores.iter().flat_map(Core::accounts).cloned().collect();
    accounts.sort_by_key(|account| (account.created_at, account.id));
    let sum = |part: fn(&Account) -> Nanousd| {
        accounts.iter().try_fold(Nanousd::ZERO, |sum, account| sum.checked_add(part(account)))
    };
    let part = |part: fn(&Account) -> Nanousd| sum(part).unwrap_or(Nanousd::MAX);
    let total = Balance {
        granted: part(|account| account.balance.granted),
        available: part(|account| account.balance.available),
        held: part(|account| account.balance.held),
        spent: part(|account| account.balance.spent),
    };
    Ok(Report {
        segments,
        frames,
        records: end.seq,
        torn_bytes: reader.torn_bytes(),
        chain: hex(&end.chain),
        state_hash: hex(&state_hash),
        sled_hash,
        total,
        written_off: part(|account| account.written_off),
        open_holds: audit.cores.iter().map(Core::open_holds).sum(),
        accounts,
        violations: audit.violations,
    })
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

    /// A refund notes what its hold was charged. Reads the journal again and compares.
    fn check_refunds(&mut self, journal_dir: &Path) -> Result<(), OpenError> {
        if self.refunds.is_empty() {
            return Ok(());
        }
        let mut reader = Reader::open(journal_dir, Position::default())?;
        while let Some(frame) = reader.next()? {
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

    fn compare_sled(&mut self, dir: &Path, state_hash: [u8; 32], is_whole: bool) -> Option<String> {
        if !is_whole || !dir.join("sled").exists() {
            return None;
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
                let mut acts = Sha256::new();
                let listed = state.store.each_act(|seq, act| audit::add_act(&mut acts, seq, act));
                if listed.is_err() || acts.finalize() != self.acts.clone().finalize() {
                    self.violations
                        .push("sled and the journal tell differently who did what".to_owned());
                }
                Some(hex(&sled_hash))
            }
            Err(error) => {
                self.violations.push(format!("sled: {error}"));
                None
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
