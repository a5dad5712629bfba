//! A way out for a damaged journal: what stands behind the damage is read, what sled knows of the lost
//! records is put back, and the rest is noted as lost. Nothing is made up, and the damaged files stay.

mod account;
mod build;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::account::SledContents;
use self::build::JournalBuilder;
use crate::files::lock::DirectoryLock;
use crate::files::moved;
use crate::files::seal::{self, Seal};
use crate::journal::LedgerFormat;
use crate::journal::head::{Head, HeadFile};
use crate::journal::salvage::{Salvage, SalvageCursor, SalvageItem};
use crate::journal::segment;
use crate::records::error::OpenError;
use crate::records::record::Record;
use crate::rules::account::Balance;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq};

/// Maximum number of listed items of each kind.
const LISTED_MAX: usize = 100;

/// Damage of a journal, the possible repair, and its cost.
#[derive(Debug, Default, Serialize)]
pub struct Repair {
    /// True if nothing needs repair.
    pub is_sound: bool,
    /// Number of readable records.
    pub records: u64,
    /// Up to this record nothing is wrong.
    pub whole_until: Seq,
    /// Damage found: unreadable bytes, and records in the wrong place.
    pub damages: Vec<DamageFound>,
    /// The length of an unfinished write at the end, which is cut.
    pub torn_bytes: u64,
    /// Number of records after the first damage.
    pub behind: u64,
    /// Number of them that the hash chain proves to follow the records before the damage.
    pub behind_proven: u64,
    /// Records that the journal does not have any more, from and to.
    pub lost: Vec<(Seq, Seq)>,
    /// Usefulness of the sled ledger for the repair.
    pub sled: String,
    /// Lost records that sled has: they are put back.
    pub restored: u64,
    /// Lost records that nothing can restore.
    #[serde(rename = "gone")]
    pub unrecoverable: u64,
    /// Readable records that cannot be kept without lost ones.
    pub dropped: u64,
    /// The first of them, and why.
    pub dropped_why: Vec<String>,
    /// Cost per account; empty if no account is known to gain or lose.
    pub accounts: Vec<RepairCost>,
    /// Location of the replaced, damaged journal.
    pub kept_in: Option<PathBuf>,
}

/// A damaged range.
#[derive(Debug, Serialize)]
pub struct DamageFound {
    /// Path of the damaged file.
    pub file: PathBuf,
    /// Offset at which the damage begins, in bytes.
    pub from: u64,
    /// Offset at which the damage ends, in bytes.
    pub to: u64,
    /// Description of the damage.
    pub what: String,
}

/// Cost of a repair for an account, or for the operator.
#[derive(Debug, Serialize)]
pub struct RepairCost {
    /// Account whose balance changes.
    pub account: AccountId,
    /// Display name of the account.
    pub name: String,
    /// Its money after the repair.
    pub repaired: Balance,
    /// Its money as sled has it, at the last record that sled has; `None` without sled.
    pub sled: Option<Balance>,
    /// Charges that are dropped: the customer has the money back, the operator pays.
    pub charges_dropped: Nanousd,
    /// Grants and refunds that are dropped: they have to be made again.
    pub credits_dropped: Nanousd,
}

/// Number of records compared to recognise the sled of another ledger.
const SAMPLES: usize = 1_000;

/// Looks at the journal in `dir`, which no process may have open; with `apply` it puts one in its place
/// that starts. What sled knows is used unless it is told not to.
///
/// # Errors
/// When the directory is in use or cannot be read, or the new journal not be written.
pub fn repair(dir: &Path, apply: bool, without_sled: bool) -> Result<Repair, OpenError> {
    let journal = dir.join("journal");
    segment::list(&journal)?;
    // After the look for a journal: taking the lock would make the directory.
    let _lock = DirectoryLock::take(dir)?;
    moved::check(dir)?;
    let (first, noted) = (survey(&journal)?, HeadContents::of(dir));
    let mut sled_contents = SledContents::of(dir, &first);
    let mut repair = Repair {
        records: first.records,
        whole_until: first.salvage.position().seq,
        torn_bytes: first.salvage.torn_bytes(),
        behind: first.behind,
        behind_proven: first.behind_proven,
        sled: sled_contents.says.clone(),
        damages: first.damages,
        lost: first.lost,
        ..Repair::default()
    };
    let mut needs_journal = !(repair.damages.is_empty() && repair.lost.is_empty());
    let mut last = sled_contents.last.unwrap_or(0).max(noted.last());
    if last > first.last {
        repair.lost.push((first.last + 1, last));
        // Without them the journal ends where it ends.
        needs_journal |= !without_sled;
    }
    repair.damages.extend(noted.damage);
    repair.is_sound =
        repair.damages.is_empty() && repair.lost.is_empty() && !sled_contents.is_foreign;
    if repair.is_sound {
        return Ok(repair);
    }
    if without_sled {
        sled_contents = SledContents::refused();
        repair.sled.clone_from(&sled_contents.says);
        last = 0;
    }
    let new = dir.join("repaired");
    let at = first.salvage.position();
    let mut builder = JournalBuilder::begin(&sled_contents, &first.made, &repair.lost, last);
    if apply && needs_journal {
        builder.write_to(&new, &journal, at, &first.chains)?;
    }
    rebuild(&journal, &mut builder, first.last)?;
    let end = builder.finish(&mut repair)?;
    if apply {
        repair.kept_in = build::put_in_place(dir, needs_journal.then_some(&*new))?;
        if noted.is_wrong || end.is_some() || noted.head.as_ref().is_some_and(|h| h.seq > at.seq) {
            let head = noted.head.map(|head| repaired(head, at.seq));
            HeadFile::begin::<LedgerFormat>(dir, head, end.unwrap_or(at))?;
        }
    }
    Ok(repair)
}

/// Head of a repaired journal, which ends with record `seq`: a new name, and the checkpoints up to
/// there.
fn repaired(mut head: Head, seq: Seq) -> Head {
    head.notes.cut_behind(seq);
    head.without_name()
}

/// Contents of `head.json` for the repair.
struct HeadContents {
    head: Option<Head>,
    /// True if it is unreadable.
    is_wrong: bool,
    damage: Option<DamageFound>,
}

impl HeadContents {
    fn of(dir: &Path) -> Self {
        match Head::find(dir) {
            Ok(head) => {
                // Another journal's says nothing of this one.
                let head = head.filter(|head| head.is_of(&dir.join("journal")));
                Self { head, is_wrong: false, damage: None }
            }
            Err(error) => {
                let (file, what) = (dir.to_owned(), OpenError::from(error).to_string());
                let damage = Some(DamageFound { file, from: 0, to: 0, what });
                Self { head: None, is_wrong: true, damage }
            }
        }
    }

    /// The last record that the journal had then.
    fn last(&self) -> Seq {
        self.head.as_ref().map_or(0, |head| head.seq)
    }
}

/// Checks that no repair was interrupted while it replaced the journal.
pub(crate) fn check_whole(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join("repaired").join("journal");
    if !path.exists() {
        return Ok(());
    }
    let says = "a repair was broken off when this journal was about to take its place: move it to \
                `journal` in the data directory, and start";
    Err(OpenError::Moved { path, says: says.to_owned() })
}

/// Result of the first reading.
struct Survey {
    salvage: Salvage,
    records: u64,
    behind: u64,
    behind_proven: u64,
    damages: Vec<DamageFound>,
    lost: Vec<(Seq, Seq)>,
    /// The last record.
    last: Seq,
    /// The chains behind its frames, by their last records.
    chains: BTreeMap<Seq, [u8; 32]>,
    /// Accounts and keys that were made by what can be read.
    made: JournalIds,
    /// Last records, as samples for the report.
    samples: VecDeque<(Seq, Record)>,
}

/// Accounts and keys that a journal creates, and calls that it refunds.
#[derive(Default)]
struct JournalIds {
    accounts: HashSet<AccountId>,
    keys: HashSet<KeyId>,
    refunded: HashSet<HoldId>,
}

fn survey(journal: &Path) -> Result<Survey, OpenError> {
    let mut salvage = Salvage::open(journal)?;
    let mut walk = SalvageCursor::begin(&salvage);
    let (mut records, mut behind, mut behind_proven) = (0_u64, 0_u64, 0_u64);
    let (mut damages, mut lost, mut chains) = (Vec::new(), Vec::new(), BTreeMap::new());
    let (mut made, mut last) = (JournalIds::default(), salvage.position().seq);
    let mut samples = VecDeque::new();
    while let Some(found) = salvage.next(&mut walk)? {
        let (frame, is_proven) = match found {
            SalvageItem::Frame(frame, is_proven) => (frame, is_proven),
            SalvageItem::Damage(damage) => {
                let (file, from, to, what) = (damage.path, damage.from, damage.to, damage.what);
                damages.push(DamageFound { file, from, to, what });
                continue;
            }
        };
        let count = frame.records.len() as u64;
        // A number alone proves nothing: a file of another ledger can carry the right ones.
        if frame.first_seq <= last || (frame.first_seq == last + 1 && !is_proven) {
            let what = format!(
                "records {} to {} do not follow those before them: they are another ledger's",
                frame.first_seq,
                frame.first_seq + count - 1
            );
            let (file, to) = salvage.place(&walk);
            damages.push(DamageFound { file, from: to - frame.bytes as u64, to, what });
            if frame.first_seq <= last {
                walk.seq = last;
                continue;
            }
        }
        if frame.first_seq > last + 1 {
            lost.push((last + 1, frame.first_seq - 1));
        }
        records += count;
        if !damages.is_empty() || !lost.is_empty() {
            behind += count;
            behind_proven += if is_proven { count } else { 0 };
        }
        last = frame.first_seq + count - 1;
        chains.insert(last, frame.chain);
        for record in &frame.records {
            match record {
                Record::AccountCreated { account, .. } => drop(made.accounts.insert(*account)),
                Record::KeyCreated(key) => drop(made.keys.insert(key.id)),
                Record::Refunded { hold, .. } => drop(made.refunded.insert(*hold)),
                _ => {}
            }
        }
        samples.extend((frame.first_seq..).zip(frame.records));
        samples.drain(..samples.len().saturating_sub(SAMPLES));
    }
    for first_seq in segment::list(journal)? {
        let Err(error) = Seal::find(journal, first_seq) else { continue };
        let (file, what) = (seal::path(journal, first_seq), OpenError::from(error).to_string());
        damages.push(DamageFound { file, from: 0, to: 0, what });
    }
    Ok(Survey {
        salvage,
        records,
        behind,
        behind_proven,
        damages,
        lost,
        last,
        chains,
        made,
        samples,
    })
}

/// Feeds the builder every readable record at its position, and lets it replace lost ones.
fn rebuild(journal: &Path, builder: &mut JournalBuilder<'_>, last: Seq) -> Result<(), OpenError> {
    let mut salvage = Salvage::open(journal)?;
    let mut walk = SalvageCursor::begin(&salvage);
    let mut next = salvage.position().seq + 1;
    while let Some(found) = salvage.next(&mut walk)? {
        let SalvageItem::Frame(frame, _) = found else { continue };
        if frame.first_seq < next {
            walk.seq = next - 1;
            continue;
        }
        builder.fill(next, frame.first_seq)?;
        for (record, seq) in frame.records.into_iter().zip(frame.first_seq..) {
            builder.take(seq, record)?;
            next = seq + 1;
        }
    }
    builder.fill(next, builder.last().max(last) + 1)
}
