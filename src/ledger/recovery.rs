//! Opening: load what sled has, replay the rest of the journal, end what a crash left open.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use super::act::Ids;
use super::core::Core;
use super::journal::Journal;
use super::journal::committer::{Committer, Space};
use super::journal::segment::{Position, Reader, Writer};
use super::lock::DirectoryLock;
use super::projection::Window;
use super::projector::{Backlog, Projector, WINDOW_RECORDS_MAX};
use super::record::Journaled;
use super::scan::SCANS_MAX;
use super::statement::{InDoubt, in_doubt};
use super::store::{Store, StoreError};
use super::{
    AccountId, HoldId, Keys, Ledger, NodeId, OpenError, Options, RecoveryPolicy, audit, moved,
    new_cores, shard_index, sync_directory,
};
use crate::clock::UnixMs;

/// What opening found and did.
#[derive(Debug)]
pub struct Recovery {
    /// Records that were read from the journal. After a clean stop there are none.
    pub records_replayed: u64,
    /// Bytes of an unfinished write that were cut off the journal. Nobody was told that they were
    /// durable.
    pub torn_bytes_cut: u64,
    /// Whether the sled ledger was empty or unusable and was made anew from the whole journal.
    pub sled_rebuilt: bool,
    /// Calls that were in flight when the process died, now ended by the recovery policy.
    pub in_doubt: Vec<InDoubt>,
    /// How long opening took.
    pub took: Duration,
}

pub(super) fn open(options: Options) -> Result<(Arc<Ledger>, Recovery), OpenError> {
    let began = Instant::now();
    let dir = &options.dir;
    let lock = DirectoryLock::take(dir)?;
    moved::check(dir)?;
    let journal_dir = dir.join("journal");
    if !journal_dir.exists() {
        fs::create_dir(&journal_dir).map_err(OpenError::io(&journal_dir))?;
        sync_directory(dir).map_err(OpenError::io(dir))?;
    }
    let (mut state, sled_rebuilt) = load_or_rebuild(dir)?;
    let node = options.fleet.as_ref().map_or(NodeId::SINGLE, |fleet| fleet.node());
    if state.end == Position::default() {
        state.end = Position::begin(node);
    }
    let found = NodeId::of(state.end.seq);
    if found != node {
        return Err(OpenError::OtherNode { dir: dir.clone(), found, expected: node });
    }
    let mut writer = Writer::open(&journal_dir, state.end)?;
    let ended = match &options.fleet {
        None => end_open_holds(&mut state, &mut writer, options.recovery)?,
        // Its treasury may have taken some of them; it is asked when the node joins.
        Some(_) => Vec::new(),
    };
    let end = writer.position();

    let journal = Arc::new(Journal::new(end.seq));
    let backlog = Arc::new(Backlog::new(end.seq));
    let store = Arc::new(state.store);
    let projector = Projector { backlog: Arc::clone(&backlog), store: Arc::clone(&store) };
    let committer = Committer {
        journal: Arc::clone(&journal),
        backlog: Arc::clone(&backlog),
        writer,
        on_commit: options.on_commit,
        space: Space::new(dir.clone(), options.disk_free_bytes_min),
    };
    let threads = vec![
        spawn("ledger-sled", dir, move || projector.run())?,
        spawn("ledger-journal", dir, move || committer.run())?,
    ];
    let (keys, emails) = beside(&state.cores);
    let mut ids = Ids::default();
    let acts = store.acts_with_ids(UnixMs::now()).map_err(store_error)?;
    acts.iter().for_each(|(seq, act)| ids.remember(*seq, act));
    let ledger = Arc::new(Ledger {
        shards: shards(state.cores, options.fleet.is_some()),
        keys: RwLock::new(keys),
        ids: Mutex::new(ids),
        emails: Mutex::new(emails),
        journal,
        backlog,
        store,
        threads: Mutex::new(threads),
        dir: options.dir,
        scans: Arc::new(Semaphore::new(SCANS_MAX)),
        fleet: options.fleet,
        _lock: lock,
    });
    let recovery = Recovery {
        records_replayed: state.records_replayed,
        torn_bytes_cut: state.torn_bytes,
        sled_rebuilt,
        in_doubt: ended.iter().filter_map(in_doubt).collect(),
        took: began.elapsed(),
    };
    Ok((ledger, recovery))
}

/// What memory keeps beside the cores: keys and addresses.
fn beside(cores: &[Core]) -> (Keys, HashMap<String, AccountId>) {
    let mut keys = Keys::default();
    let mut emails = HashMap::new();
    for account in cores.iter().flat_map(|core| core.accounts.values()) {
        account.keys.values().for_each(|key| keys.insert(Arc::clone(key)));
        keys.restore_limits(account);
        let email = account.people.login.as_ref().map(|login| login.email.clone());
        emails.extend(email.map(|email| (email, account.account.id)));
    }
    (keys, emails)
}

fn spawn(
    name: &str,
    dir: &Path,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OpenError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(OpenError::io(dir))
}

/// The state at the journal's end, in memory and in sled.
pub(super) struct State {
    pub(super) store: Store,
    pub(super) cores: Vec<Core>,
    pub(super) end: Position,
    pub(super) records_replayed: u64,
    pub(super) torn_bytes: u64,
}

fn shards(cores: Vec<Core>, is_shared: bool) -> Vec<Mutex<Core>> {
    cores.into_iter().map(|core| Mutex::new(Core { is_shared, ..core })).collect()
}

/// Opens sled and replays what it lacks. A sled ledger that does not open, or does not add up, is
/// moved aside and made anew from the whole journal: it holds nothing that the journal does not.
fn load_or_rebuild(dir: &Path) -> Result<(State, bool), OpenError> {
    let sled_dir = dir.join("sled");
    let existed = sled_dir.exists();
    let cause = match load(dir) {
        Ok(state) => {
            let records = NodeId::count(state.end.seq);
            let is_rebuilt = records > 0 && state.records_replayed == records;
            return Ok((state, is_rebuilt));
        }
        Err(OpenError::Store(cause)) if existed => cause,
        // Sled may have made the journal look wrong; only a replay from the beginning can tell.
        Err(OpenError::Violation(violation)) if existed => violation.to_string(),
        Err(error) => return Err(error),
    };
    let aside = (0..u32::MAX).map(|n| dir.join(format!("sled.broken-{n}"))).find(|p| !p.exists());
    let aside = aside.unwrap_or_else(|| dir.join("sled.broken"));
    log::error!(
        "the sled ledger is rebuilt from the journal: {cause}. The old one is kept in {}",
        aside.display()
    );
    fs::rename(&sled_dir, &aside).map_err(OpenError::io(&sled_dir))?;
    sync_directory(dir).map_err(OpenError::io(dir))?;
    Ok((load(dir)?, true))
}

/// Opens sled, loads its state, and brings both up to the journal's end.
pub(super) fn load(dir: &Path) -> Result<State, OpenError> {
    // Sled panics on some kinds of corruption that it does not expect.
    catch_unwind(AssertUnwindSafe(|| {
        let store = Store::open(&dir.join("sled")).map_err(store_error)?;
        let mut cores = new_cores();
        store.load(&mut cores).map_err(store_error)?;
        if let Some(violation) = audit::violations(cores.iter()).first() {
            return Err(OpenError::Store(violation.clone()));
        }
        let from = store.end().map_err(store_error)?.unwrap_or_default();
        replay(&dir.join("journal"), from, store, cores)
    }))
    .unwrap_or_else(|_| Err(OpenError::Store("sled panicked while it was opened".to_owned())))
}

fn replay(
    journal_dir: &Path,
    from: Position,
    store: Store,
    mut cores: Vec<Core>,
) -> Result<State, OpenError> {
    let mut reader = Reader::open(journal_dir, from)?;
    let begin = reader.position().seq;
    let (mut window, mut waiting) = (Window::default(), 0);
    while let Some(frame) = reader.next()? {
        for (record, seq) in frame.records.into_iter().zip(frame.first_seq..) {
            let core = &mut cores[shard_index(record.account())];
            let hold = record.open_hold().and_then(|id| core.hold(id).cloned());
            core.apply(seq, &record).map_err(OpenError::Violation)?;
            window.add(Journaled { seq, record, hold }).map_err(OpenError::Violation)?;
            waiting += 1;
        }
        if waiting >= WINDOW_RECORDS_MAX {
            store.apply(std::mem::take(&mut window), reader.position()).map_err(store_error)?;
            waiting = 0;
        }
    }
    let end = reader.position();
    if waiting > 0 {
        store.apply(window, end).map_err(store_error)?;
    }
    if end.seq > begin {
        store.flush().map_err(store_error)?;
    }
    Ok(State {
        store,
        cores,
        end,
        records_replayed: end.seq - begin,
        torn_bytes: reader.torn_bytes(),
    })
}

/// Ends every hold that a crash left open: in the journal first, then in memory and in sled.
fn end_open_holds(
    state: &mut State,
    writer: &mut Writer,
    policy: RecoveryPolicy,
) -> Result<Vec<Journaled>, OpenError> {
    let at = UnixMs::now();
    let mut open: Vec<_> = state
        .cores
        .iter()
        .flat_map(|core| {
            // A task outlives the process, and so does its hold.
            let of_tasks: HashSet<HoldId> = core.tasks().map(|task| task.intent.hold).collect();
            let holds = core.holds().filter(move |(id, _)| !of_tasks.contains(id));
            holds.map(move |(id, hold)| (id, core, hold.clone()))
        })
        .filter_map(|(id, core, hold)| Some((id, core.decide_recovery(id, policy, at)?, hold)))
        .collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    open.sort_by_key(|(id, ..)| *id);
    let ended: Vec<Journaled> = (state.end.seq.saturating_add(1)..)
        .zip(open)
        .map(|(seq, (_, record, hold))| Journaled { seq, record, hold: Some(hold) })
        .collect();
    let journaled = writer.write(&ended).and_then(|end| writer.flush(end));
    journaled.map_err(|source| OpenError::Io { path: "the journal".into(), source })?;
    let mut window = Window::default();
    for journaled in &ended {
        let core = &mut state.cores[shard_index(journaled.record.account())];
        let applied = core.apply(journaled.seq, &journaled.record);
        applied.and_then(|()| window.add(journaled.clone())).map_err(OpenError::Violation)?;
    }
    state.store.apply(window, writer.position()).map_err(store_error)?;
    state.store.flush().map_err(store_error)?;
    Ok(ended)
}

fn store_error(error: StoreError) -> OpenError {
    OpenError::Store(error.to_string())
}
