//! Moves a ledger into the database.
//!
//! Its parts are written down one after the other where nobody sees them, each once, however often
//! this is begun. What is there then is read back and compared. In one last transaction all of it
//! becomes a part of the fleet.

use std::path::Path;
use std::time::Duration;

use super::{MoveError, MoveReport, ReadDirectory, Tallies};
use crate::postgres::moving::{Finish, MoveOutcome};
use crate::postgres::{Db, DbError};
use crate::secrets;
use tollgate_ledger::moved::MovedMarker as Marker;
use tollgate_ledger::moving::{DirectoryState, MoveParts, MoveSource, lines};
use tollgate_ledger::{Account, AccountId, FleetHistory, NodeId, OpenError, Seq};

/// Rows of usage that one statement writes.
const ROWS_MAX: usize = 2_000;
/// Attempts at the last transaction: others write into the directory meanwhile, or a COMMIT is not answered.
const TRIES_MAX: u32 = 20;
/// The wait before it is tried again.
const WAIT: Duration = Duration::from_millis(500);

impl ReadDirectory {
    /// Refuses a ledger that has anything in common with the fleet.
    async fn check(&self, db: &Db, source: &MoveSource, holds: &[Seq]) -> Result<(), MoveError> {
        let names = self.followed.names();
        let mut common: Vec<String> =
            source.names().into_iter().filter(|name| names.contains(name)).collect();
        let holds = db.existing_holds(holds).await?;
        common.extend(holds.iter().map(|hold| format!("the hold {hold:016x}")));
        if common.is_empty() { Ok(()) } else { Err(MoveError::Collides(common)) }
    }
}

/// Opens the ledger in `dir` and refuses what cannot move.
fn open(dir: &Path) -> Result<MoveSource, MoveError> {
    if let Some(marker) = Marker::find(dir)?
        && !marker.id.starts_with("in-")
    {
        return Err(OpenError::Moved { path: dir.to_owned(), says: marker.says }.into());
    }
    let source = MoveSource::open(dir)?;
    if !source.violations.is_empty() {
        return Err(MoveError::Unsound(source.violations.clone()));
    }
    if source.last == 0 {
        return Err(MoveError::Empty);
    }
    match source.left_open() {
        0 => Ok(source),
        count => Err(MoveError::LeftOpen(count)),
    }
}

/// Reports what would be moved, and refuses what cannot be; changes nothing.
///
/// # Errors
/// [`MoveError`].
pub async fn survey(db: &Db, dir: &Path) -> Result<MoveReport, MoveError> {
    let source = open(dir)?;
    if let Some(tallies) = has_moved(db, &source).await? {
        return Ok(MoveReport { tallies, was_done: true });
    }
    let mut parts = source.parts()?;
    while parts.next_part()?.is_some() {}
    let mut fleet = ReadDirectory::default();
    fleet.catch_up(db, |_| Ok(())).await?;
    check(db, &source, &parts, &fleet).await?;
    let tallies = parts.tallies(&parts.kept_tasks());
    Ok(MoveReport { tallies, was_done: false })
}

/// Moves the ledger in `dir`, which no gateway may have open, into the fleet. An interrupted move is resumed
/// by the next run, and no part is moved twice.
///
/// # Errors
/// [`MoveError`]; nobody sees anything of the ledger in the fleet then. After [`DbError::Unknown`] it
/// may have moved, and no gateway opens the ledger until that is known: move it again.
pub async fn move_in(db: &Db, dir: &Path) -> Result<MoveReport, MoveError> {
    let source = open(dir)?;
    let marker = marker(db, &source);
    if let Some(tallies) = has_moved(db, &source).await? {
        marker.keep(dir)?;
        return Ok(MoveReport { tallies, was_done: true });
    }
    let mut parts = source.parts()?;
    while parts.next_part()?.is_some() {}
    let mut fleet = ReadDirectory::default();
    fleet.catch_up(db, |_| Ok(())).await?;
    if let Err(error) = check(db, &source, &parts, &fleet).await {
        // With itself, where another process has moved it meanwhile.
        let Some(tallies) = has_moved(db, &source).await? else { return Err(error) };
        marker.keep(dir)?;
        return Ok(MoveReport { tallies, was_done: true });
    }
    let (count, writes) = put(db, &source).await?;
    let tallies = parts.tallies(&parts.kept_tasks());
    // Another process may finish the same move meanwhile, and takes away what is compared here: that it
    // differs counts only if none did.
    let compared = compare(db, &source, &tallies).await;
    if let Some(tallies) = has_moved(db, &source).await? {
        marker.keep(dir)?;
        return Ok(MoveReport { tallies, was_done: true });
    }
    compared?;
    secrets::offer(db, dir).await?;
    // From here on there may be two copies.
    marker.keep(dir)?;
    let finished = finish(db, &source, &parts, &tallies, &mut fleet, count, writes).await;
    match finished {
        Ok(()) => Ok(MoveReport { tallies, was_done: false }),
        // It may have moved.
        Err(MoveError::Db(error @ DbError::Unknown(_))) => Err(error.into()),
        Err(error) => {
            Marker::remove(dir)?;
            Err(error)
        }
    }
}

fn marker(db: &Db, source: &MoveSource) -> Marker {
    Marker {
        says: format!(
            "this ledger is in the fleet at {}, or on its way there: start a node on an empty \
             directory. If the move was not finished, run `tollgate migrate ledger --to postgres` \
             again. Who removes this file goes back to a copy, at their own risk",
            db.place()
        ),
        id: format!("in-{}", source.name),
    }
}

/// The counts of an earlier move of this ledger; `None` if there was none.
async fn has_moved(db: &Db, source: &MoveSource) -> Result<Option<Tallies>, MoveError> {
    let Some(progress) = db.moved_in(&source.name).await? else { return Ok(None) };
    let Some(proof) = progress.proof else { return Ok(None) };
    if progress.chain != source.chain || progress.last != source.last {
        return Err(MoveError::WentOn);
    }
    let tallies = serde_json::from_str(&proof);
    tallies.map(Some).map_err(|error| DbError::Failed(error.to_string()).into())
}

async fn check(
    db: &Db,
    source: &MoveSource,
    parts: &MoveParts<'_>,
    fleet: &ReadDirectory,
) -> Result<(), MoveError> {
    if db.head().await?.moved_out.is_some() {
        return Err(MoveError::MovedOut);
    }
    let tasks = parts.kept_tasks().into_iter().map(|moved| moved.task.intent.hold);
    let holds: Vec<Seq> =
        parts.doubts.keys().copied().chain(tasks).map(|hold| hold.number()).collect();
    fleet.check(db, source, &holds).await
}

/// Writes missing parts. Returns the number of parts and of writes.
async fn put(db: &Db, source: &MoveSource) -> Result<(u64, u64), MoveError> {
    let ids: Vec<String> = source.accounts().iter().map(|account| account.id.to_string()).collect();
    let progress = db.begin_move(&source.name, source.last, &source.chain, &ids).await?;
    let mut parts = source.parts()?;
    let (mut count, mut writes) = (0, 0);
    while let Some(part) = parts.next_part()? {
        count = part.number;
        if part.number > progress {
            put_part(db, source, &part, writes + 1).await?;
        }
        writes += part.writes.len() as u64;
    }
    Ok((count, writes))
}

/// Writes a part, repeatedly if its COMMIT is not answered.
async fn put_part(
    db: &Db,
    source: &MoveSource,
    part: &tollgate_ledger::moving::MovePart,
    first_write: u64,
) -> Result<(), DbError> {
    let mut tries = 1;
    loop {
        match db.put_part(&source.name, part, first_write).await {
            Err(DbError::Unknown(_)) if tries < TRIES_MAX => tries += 1,
            put => return put,
        }
        tokio::time::sleep(WAIT).await;
    }
}

/// Reads the written parts back and compares them with the ledger.
async fn compare(db: &Db, source: &MoveSource, tallies: &Tallies) -> Result<(), MoveError> {
    let (mut followed, mut read) = (DirectoryState::default(), 0);
    loop {
        let writes = db.moving_writes(&source.name, read).await?;
        if writes.is_empty() {
            break;
        }
        for write in &writes {
            followed.take(write)?;
        }
        read += writes.len() as u64;
    }
    let mut differences = followed.differences(source.cores());
    let keys = followed.keys();
    for (account, tally) in &tallies.accounts {
        let (keys, lines) =
            (keys.get(account).copied().unwrap_or(0), lines_of(db, *account).await?);
        if (keys, lines) != (tally.keys, tally.lines) {
            differences.push(format!(
                "{account}: {keys} keys and {lines} lines of its statement are not {} and {}",
                tally.keys, tally.lines
            ));
        }
    }
    if followed.codes() != (tallies.codes, tallies.uses) {
        differences.push("codes or their uses are missing".to_owned());
    }
    if differences.is_empty() { Ok(()) } else { Err(MoveError::Differs(differences)) }
}

/// The number of statement lines of an account from a single gateway's calls.
async fn lines_of(db: &Db, account: AccountId) -> Result<u64, MoveError> {
    let (mut after, mut sum) = (0, 0);
    loop {
        let chunks = db.chunks_of(account, NodeId::SINGLE, after).await?;
        let Some((last, _)) = chunks.last() else { return Ok(sum) };
        after = *last;
        for (_, bytes) in &chunks {
            sum += lines(bytes)?;
        }
    }
}

/// Adds the complete ledger to the fleet.
async fn finish(
    db: &Db,
    source: &MoveSource,
    parts: &MoveParts<'_>,
    tallies: &Tallies,
    fleet: &mut ReadDirectory,
    count: u64,
    writes: u64,
) -> Result<(), MoveError> {
    let proof = serde_json::to_string(tallies);
    let mut finish = Finish {
        ledger: &source.name,
        head: fleet.head,
        parts: count,
        writes,
        accounts: source.accounts().into_iter().cloned().collect::<Vec<Account>>(),
        given: &parts.given,
        history: histories(parts),
        tasks: parts.kept_tasks(),
        submits: parts.submits(),
        tallies,
        proof: proof.map_err(|error| DbError::Failed(error.to_string()))?,
    };
    let (mut tries, mut unknown) = (0, None);
    loop {
        tries += 1;
        let finished = match (db.finish_move(&finish).await, &unknown) {
            // Whether an earlier try was made is still not known.
            (Err(_), Some(unknown)) => Err(DbError::clone(unknown)),
            (finished, _) => finished,
        };
        match finished {
            Ok(MoveOutcome::Done) => return Ok(()),
            Ok(MoveOutcome::Differs(differences)) => return Err(MoveError::Differs(differences)),
            Err(error @ DbError::Unknown(_)) if tries < TRIES_MAX => {
                unknown = Some(error);
                tokio::time::sleep(WAIT).await;
            }
            Ok(MoveOutcome::Behind) if tries < TRIES_MAX => {
                fleet.catch_up(db, |_| Ok(())).await?;
                if let Err(error) = check(db, source, parts, fleet).await {
                    return has_moved(db, source).await?.map(|_| ()).ok_or(error);
                }
                finish.head = fleet.head;
            }
            Ok(MoveOutcome::Behind) => {
                let busy = "the directory was written into for too long; nothing was changed";
                return Err(DbError::Unavailable(busy.to_owned()).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Usage, when keys were used, calls in doubt and losses, in pieces that one statement takes.
fn histories(parts: &MoveParts<'_>) -> Vec<FleetHistory> {
    let usage: Vec<_> = parts.usage.iter().map(|(cell, total)| (cell.clone(), *total)).collect();
    let used: Vec<_> =
        parts.used.iter().map(|((key, account), at)| (*key, *account, *at)).collect();
    let doubts: Vec<_> = parts.doubts.values().cloned().collect();
    let usage = usage
        .chunks(ROWS_MAX)
        .map(|usage| FleetHistory { usage: usage.to_vec(), ..FleetHistory::default() });
    let used = used
        .chunks(ROWS_MAX)
        .map(|used| FleetHistory { used: used.to_vec(), ..FleetHistory::default() });
    let doubts = doubts
        .chunks(ROWS_MAX)
        .map(|doubts| FleetHistory { doubts: doubts.to_vec(), ..FleetHistory::default() });
    let losses = parts
        .losses
        .chunks(ROWS_MAX)
        .map(|losses| FleetHistory { losses: losses.to_vec(), ..FleetHistory::default() });
    usage.chain(used).chain(doubts).chain(losses).collect()
}
