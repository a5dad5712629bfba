//! Initial state of a start: sled with the records it lacks, or a new sled ledger rebuilt from the
//! journal.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::files::directory::sync_directory;
use crate::journal::BALLAST;
use crate::journal::head::Checkpoint;
use crate::journal::segment::{self, Position, Reader};
use crate::projection::backlog::WINDOW_RECORDS_MAX;
use crate::projection::checkpoint::{self, CheckpointContents};
use crate::projection::store::{self, Store, store_error};
use crate::projection::window::Window;
use crate::records::act::Act;
use crate::records::error::OpenError;
use crate::records::record::{JournaledRecord, Record};
use crate::rules::audit;
use crate::rules::core::Core;
use crate::rules::shards::{new_cores, shard_index};
use tollgate_types::ids::{NodeId, Seq};

/// Name prefix of a sled ledger that was moved aside; a number follows.
const BROKEN: &str = "sled.broken-";
/// Free disk space below which an apparently damaged sled is attributed to a full disk.
const ROOM_BYTES_MIN: u64 = 4 << 20;

/// The state at the journal's end, in memory and in sled.
pub(crate) struct ReplayedState {
    pub(crate) store: Store,
    pub(crate) cores: Vec<Core>,
    pub(crate) end: Position,
    pub(crate) records_replayed: u64,
    pub(crate) torn_bytes: u64,
}

impl ReplayedState {
    /// Brings it up to the record at `to`, which is on disk, or to the journal's end.
    ///
    /// # Errors
    /// When the journal cannot be read, or sled not be written.
    pub(crate) fn replay(&mut self, dir: &Path, to: Option<Seq>) -> Result<(), OpenError> {
        let mut reader = Reader::open(&dir.join("journal"), self.end)?;
        let begin = reader.position().seq;
        let (mut window, mut waiting) = (Window::default(), 0);
        while to.is_none_or(|to| reader.position().seq < to)
            && let Some(frame) = reader.next_frame()?
        {
            for (record, seq) in frame.records.into_iter().zip(frame.first_seq..) {
                let core = &mut self.cores[shard_index(record.account())];
                // Before `apply`, which removes a hold that this record ends.
                let hold = record.open_hold().and_then(|id| core.hold(id).cloned());
                core.apply(seq, &record).map_err(OpenError::Violation)?;
                window.add(JournaledRecord { seq, record, hold }).map_err(OpenError::Violation)?;
                waiting += 1;
            }
            if waiting >= WINDOW_RECORDS_MAX {
                let full = std::mem::take(&mut window);
                self.store.apply(full, reader.position()).map_err(store_error)?;
                waiting = 0;
            }
        }
        self.end = reader.position();
        if waiting > 0 {
            self.store.apply(window, self.end).map_err(store_error)?;
        }
        if self.end.seq > begin {
            self.store.flush().map_err(store_error)?;
        }
        self.records_replayed += self.end.seq - begin;
        self.torn_bytes = reader.torn_bytes();
        Ok(())
    }
}

/// Initial state of a start.
pub(crate) struct StartState {
    /// `None` while there is no room for it, and why.
    pub(crate) store: Result<Store, String>,
    pub(crate) cores: Vec<Core>,
    pub(crate) end: Position,
    pub(crate) records_replayed: u64,
    pub(crate) torn_bytes: u64,
    /// Sled was empty or unusable.
    pub(crate) is_rebuilt: bool,
    /// The acts, where there is no sled to ask.
    pub(crate) acts: Vec<(Seq, Arc<Act>)>,
}

impl StartState {
    fn of(state: ReplayedState, is_rebuilt: bool) -> Self {
        let ReplayedState { store, cores, end, records_replayed, torn_bytes } = state;
        let (store, acts) = (Ok(store), Vec::new());
        Self { store, cores, end, records_replayed, torn_bytes, is_rebuilt, acts }
    }

    /// State from the newest checkpoint and the journal, without sled. Sled only serves queries: a
    /// full disk must not prevent a start.
    fn without_sled(
        dir: &Path,
        checkpoints: &[Checkpoint],
        cause: String,
    ) -> Result<Self, OpenError> {
        let (from, mut cores, mut acts) = match checkpoint::remember(dir, checkpoints) {
            Some(CheckpointContents { end, cores, acts }) => (end, cores, acts),
            None => (Position::default(), new_cores(), Vec::new()),
        };
        let mut reader = Reader::open(&dir.join("journal"), from)?;
        let begin = reader.position().seq;
        while let Some(frame) = reader.next_frame()? {
            for (record, seq) in frame.records.into_iter().zip(frame.first_seq..) {
                let core = &mut cores[shard_index(record.account())];
                core.apply(seq, &record).map_err(OpenError::Violation)?;
                if let Record::Acted(act) = record {
                    acts.push((seq, act));
                }
            }
        }
        let end = reader.position();
        Ok(Self {
            store: Err(cause),
            cores,
            end,
            records_replayed: end.seq - begin,
            torn_bytes: reader.torn_bytes(),
            is_rebuilt: false,
            acts,
        })
    }
}

/// Opens sled and replays what it lacks. A sled ledger that does not open, or does not add up, is
/// moved aside and made anew from the newest of `checkpoints` and what follows in the journal, or from
/// all of it: it holds nothing that the journal does not. For want of room it is left as it is; then the
/// ballast is given up, and if that is not enough the start goes on without sled.
pub(crate) fn load_or_rebuild(
    dir: &Path,
    checkpoints: &[Checkpoint],
) -> Result<StartState, OpenError> {
    let cause = match load_or_make_anew(dir, checkpoints) {
        Err(OpenError::NoRoom(cause)) => cause,
        loaded => return loaded,
    };
    if fs::remove_file(dir.join(BALLAST)).is_ok() {
        log::error!("the disk is full: the ballast file was given up for the start ({cause})");
        match load_or_make_anew(dir, checkpoints) {
            Err(OpenError::NoRoom(_)) => {}
            loaded => return loaded,
        }
    }
    log::error!(
        "there is no room for the sled ledger: the gateway starts without it, from the journal, and \
         opens it when there is room. Until then statements, usage, tasks that ended and the audit \
         cannot be read ({cause})"
    );
    StartState::without_sled(dir, checkpoints, cause)
}

fn load_or_make_anew(dir: &Path, checkpoints: &[Checkpoint]) -> Result<StartState, OpenError> {
    if let Err(error) = store::settle(dir) {
        log::warn!("what is left of packing the sled ledger cannot be moved: {error}");
    }
    let existed = dir.join("sled").exists();
    let cause = match load(dir, checkpoints, None) {
        Ok(state) => {
            let records = NodeId::count(state.end.seq);
            let is_rebuilt = records > 0 && (!existed || state.records_replayed == records);
            discard_broken(dir);
            return Ok(StartState::of(state, is_rebuilt));
        }
        Err(OpenError::Store(cause)) => {
            // Sled panics on some errors of the disk: what looks like damage may be want of room.
            check_room(dir, ROOM_BYTES_MIN)?;
            if !existed {
                return Err(OpenError::Store(cause));
            }
            cause
        }
        // Sled may have made the journal look wrong; only a replay from the beginning can tell.
        Err(OpenError::Violation(violation)) if existed => violation.to_string(),
        Err(error) => return Err(error),
    };
    set_aside(dir, &cause)?;
    let state = load(dir, checkpoints, None)?;
    discard_broken(dir);
    Ok(StartState::of(state, true))
}

/// [`OpenError::NoRoom`] if fewer bytes than this are free under `dir`.
pub(crate) fn check_room(dir: &Path, free_bytes_min: u64) -> Result<(), OpenError> {
    match fs4::available_space(dir) {
        Ok(free_bytes) if free_bytes < free_bytes_min => {
            let mib = free_bytes_min >> 20;
            Err(OpenError::NoRoom(format!("less than {mib} MiB are free under {}", dir.display())))
        }
        // Where it is unknown, a try will tell.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Moves an unusable sled aside, replacing an earlier one, until a new one is complete.
pub(crate) fn set_aside(dir: &Path, cause: &str) -> Result<(), OpenError> {
    discard_broken(dir);
    let (sled_dir, aside) = (dir.join("sled"), dir.join(format!("{BROKEN}0")));
    log::error!(
        "the sled ledger is rebuilt from the journal: {cause}. The old one is kept in {} until the new \
         one is whole",
        aside.display()
    );
    match fs::rename(&sled_dir, &aside) {
        // An earlier try was interrupted behind the rename.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed.and_then(|()| sync_directory(dir)).map_err(OpenError::io(&sled_dir)),
    }
}

/// Removes sled directories that were moved aside.
pub(crate) fn discard_broken(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(BROKEN));
        if number.is_none_or(|number| number.parse::<u32>().is_err()) {
            continue;
        }
        let path = entry.path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Ok(()) => log::info!("{} was removed: another one is whole", path.display()),
            Err(error) => log::warn!("{} cannot be removed: {error}", path.display()),
        }
    }
}

/// Opens sled, loads its state, and brings both up to the record at `to`, or to the journal's end. An
/// empty one is filled from the newest of `checkpoints` first.
pub(crate) fn load(
    dir: &Path,
    checkpoints: &[Checkpoint],
    to: Option<Seq>,
) -> Result<ReplayedState, OpenError> {
    // Sled panics on some kinds of corruption that it does not expect.
    catch_unwind(AssertUnwindSafe(|| {
        let journal = dir.join("journal");
        let open = || {
            store::settle(dir).map_err(|error| store_error(error.into()))?;
            Store::open(&dir.join("sled")).map_err(store_error)
        };
        let store = match to {
            Some(_) => open()?,
            // Both wait for the disk. What sled has was on disk in the journal when it was applied;
            // what it lacks is applied further down.
            None => thread::scope(|scope| {
                let flushing = scope.spawn(|| segment::flush_last(&journal));
                let opened = open();
                let flushed = flushing.join().unwrap_or_else(|panic| resume_unwind(panic));
                flushed.map_err(OpenError::from).and(opened)
            })?,
        };
        let mut end = store.end().map_err(store_error)?;
        if end.is_none() {
            end = checkpoint::restore(dir, checkpoints, &store)?;
        }
        let mut cores = new_cores();
        store.load(&mut cores).map_err(store_error)?;
        if let Some(violation) = audit::violations(cores.iter()).first() {
            return Err(OpenError::Store(violation.clone()));
        }
        let end = end.unwrap_or_default();
        segment::check_place(&journal, end)?;
        let mut state = ReplayedState { store, cores, end, records_replayed: 0, torn_bytes: 0 };
        state.replay(dir, to)?;
        Ok(state)
    }))
    .unwrap_or_else(|_| Err(OpenError::Store("sled panicked while it was opened".to_owned())))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::journal::head::Head;
    use crate::projection::store::StoreError;
    use crate::records::act::Actor;
    use crate::{Archive, ArchiveTo, Ledger, MaintenanceOptions, Options};
    use tollgate_money::money::Nanousd;
    use tollgate_types::clock::UnixMs;
    use tollgate_types::ids::AccountId;

    const PATIENCE: Duration = Duration::from_secs(60);
    const SESSION: [u8; 16] = [7; 16];

    /// A closed ledger with checkpoints, whose first segment is in the archive.
    async fn history(dir: &Path, archive: &Path) -> AccountId {
        let archive =
            Archive { to: ArchiveTo::Directory(archive.to_owned()), keep: Duration::ZERO };
        let checkpoint_interval = Duration::ZERO;
        let maintenance =
            MaintenanceOptions { checkpoint_interval, archive: Some(archive), on_event: None };
        let options = Options { maintenance, segment_bytes_max: 4 << 10, ..Options::new(dir) };
        let (ledger, _) = Ledger::open(options).expect("opens");
        let account = ledger.create_account("a").await.expect("an account").id;
        let by = ledger.by(&Actor::operator("ada"));
        by.end_operators_session(SESSION, UnixMs(u64::MAX)).await.expect("ended");
        let (begun, mut count) = (Instant::now(), 0_u32);
        let first = segment::path(&dir.join("journal"), 1);
        let checkpoints =
            || Head::find(dir).ok().flatten().map_or(0, |head| head.notes.checkpoints.len());
        while first.exists() || checkpoints() < 2 {
            let by = ledger.by(&Actor::operator("ada"));
            by.grant(account, &count.to_string(), Nanousd::new(1)).await.expect("a grant");
            count += 1;
            assert!(begun.elapsed() < PATIENCE, "{} checkpoints", checkpoints());
        }
        ledger.close();
        account
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_start_without_room_for_sled_begins_from_a_checkpoint() {
        let dirs = [tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another")];
        let [dir, archive] = dirs.each_ref().map(|dir| dir.path());
        history(dir, archive).await;
        let checkpoints = Head::find(dir).expect("readable").expect("one").notes.checkpoints;
        let whole = StartState::without_sled(dir, &[], String::new()).expect("reads");
        let found =
            StartState::without_sled(dir, &checkpoints, "no room".to_owned()).expect("reads");
        assert!(found.records_replayed < whole.records_replayed, "from a checkpoint");
        assert_eq!(found.end, whole.end);
        let hash = |loaded: &StartState| audit::state_hash(loaded.cores.iter());
        assert_eq!(hash(&found), hash(&whole));
        assert!(!whole.acts.is_empty());
        assert_eq!(found.acts, whole.acts);
        let ended = &found.cores[shard_index(AccountId::OPERATOR)].operator.ended;
        assert!(ended.contains_key(&SESSION), "the operator stays logged out");
        // The archive is away: only with a checkpoint can it start.
        fs::rename(archive, archive.with_extension("away")).expect("renamed");
        assert!(StartState::without_sled(dir, &[], String::new()).is_err());
        StartState::without_sled(dir, &checkpoints, String::new()).expect("reads");
        fs::remove_dir_all(dir.join("sled")).expect("removed");
        let state = load(dir, &checkpoints, None).expect("from a checkpoint");
        assert_eq!(audit::state_hash(state.cores.iter()), hash(&found));
        fs::rename(archive.with_extension("away"), archive).expect("renamed");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sled_that_is_made_anew_while_the_ledger_is_used_begins_from_a_checkpoint() {
        let dirs = [tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another")];
        let [dir, archive] = dirs.each_ref().map(|dir| dir.path());
        let account = history(dir, archive).await;
        let (ledger, _) = Ledger::open(Options::new(dir)).expect("opens");
        let before = ledger.entries(account, None, 10_000).await.expect("entries");
        let away = archive.with_extension("away");
        fs::rename(archive, &away).expect("renamed");
        for entry in fs::read_dir(dir.join("sled")).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_file() {
                fs::write(path, vec![0x5a; 100_000]).expect("written");
            }
        }
        let failed = ledger.ask(|_| Err::<(), _>(StoreError::new("injected"))).await;
        failed.expect_err("it fails");
        let begun = Instant::now();
        while ledger.projection_state().mended == 0 {
            assert!(begun.elapsed() < PATIENCE, "{:?}", ledger.projection_state());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        fs::rename(&away, archive).expect("renamed");
        let after = ledger.entries(account, None, 10_000).await.expect("entries");
        assert_eq!(after, before);
        ledger.close();
    }
}
