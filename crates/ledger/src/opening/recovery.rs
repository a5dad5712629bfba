//! Opening: load what sled has, replay the rest of the journal, end what a crash left open.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tollgate_journal::committer::CommittedGroup;
use tollgate_journal::space::{Space, is_full};

use crate::archive;
use crate::files::directory::sync_directory;
use crate::files::lock::DirectoryLock;
use crate::files::moved;
use crate::journal::head::{ForkPolicy, Head, HeadFile};
use crate::journal::segment::{self, Position, Writer};
use crate::journal::{Committer, Journal, LedgerFormat, enqueue};
use crate::maintenance::worker::{Maintenance, MaintenanceOptions};
use crate::memory::act::IdempotencyIndex;
use crate::memory::books::Books;
use crate::memory::in_flight::{CrashRemnants, InFlightLog};
use crate::memory::pages::place;
use crate::memory::registry::TaskRegistry;
use crate::memory::{Keys, Ledger};
use crate::opening::options::Options;
use crate::opening::repair;
use crate::ports::funds::SharedFunds;
use crate::projection::backlog::Backlog;
use crate::projection::load::{StartState, load_or_rebuild};
use crate::projection::projected::ProjectionSlot;
use crate::projection::projector::{Projector, Pruning};
use crate::projection::store::{Store, store_error};
use crate::projection::window::Window;
use crate::reading::local::LocalBooks;
use crate::reading::scan::SCANS_MAX;
use crate::reading::shared::SharedBooks;
use crate::reading::statement::{InDoubt, in_doubt};
use crate::records::error::OpenError;
use crate::records::record::JournaledRecord;
use crate::rules::core::Core;
use crate::rules::shards::shard_index;
use crate::tasks::local::LocalRegistry;
use crate::tasks::shared::SharedRegistry;
use crate::{Commit, OnCommit};
use tollgate_options::ledger::RecoveryPolicy;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, NodeId, Seq};

/// Report of an opened ledger.
#[derive(Debug)]
pub struct RecoveryReport {
    /// Number of records read from the journal; zero after a clean stop.
    pub records_replayed: u64,
    /// Bytes of an unfinished write that were cut off the journal. They were never reported as durable.
    pub torn_bytes_cut: u64,
    /// File and offset at which a torn tail was cut.
    pub torn_at: Option<(PathBuf, u64)>,
    /// True if sled was empty or unusable and was rebuilt from the whole journal.
    pub sled_rebuilt: bool,
    /// Calls that were in flight when the process died, now ended by the recovery policy.
    pub in_doubt: Vec<InDoubt>,
    /// Number of them that had no record: the crash came between sending the call and flushing its
    /// hold.
    pub unrecorded: usize,
    /// Time that opening the ledger took.
    pub took: Duration,
}

impl Ledger {
    /// Opens the ledger of a directory, or makes one: loads what sled has, replays the rest of the
    /// journal, and ends the holds that a crash left open.
    ///
    /// Blocks; call it before requests are served.
    ///
    /// # Errors
    /// [`OpenError`]. Nothing is changed then, apart from a sled ledger that was moved aside to be
    /// rebuilt.
    pub fn open(options: Options) -> Result<(Arc<Self>, RecoveryReport), OpenError> {
        open(options)
    }
}

fn open(options: Options) -> Result<(Arc<Ledger>, RecoveryReport), OpenError> {
    let began = Instant::now();
    let dir = options.dir.clone();
    // Before anything is read: two processes on one directory would both append to the journal.
    let lock = DirectoryLock::take(&dir)?;
    archive::begin(&dir, options.maintenance.archive.as_ref())?;
    let (mut state, head) = begin(&options)?;
    let torn_at = torn_at(&dir, &state);
    let writer = Writer::open(&dir.join("journal"), state.end)?;
    let mut writer = writer.with_segments(options.segment_bytes_max);
    // Before `InFlightLog::begin` below, which overwrites the notes.
    let mut remnants = CrashRemnants::read(&dir, state.end.seq);
    let mut ended = remnants.unrecorded(&mut state.cores, state.end.seq);
    let unrecorded = ended.len();
    // Of a fleet's node the treasury may have taken some; it is asked when the node joins.
    if options.fleet.is_none() {
        let last = ended.last().map_or(state.end.seq, |journaled| journaled.seq);
        ended.extend(end_open_holds(&mut state.cores, last, options.recovery)?);
    }
    let unwritten = write_ended(&mut state, &mut writer, &ended)?;
    let end = writer.position();
    let head = Arc::new(HeadFile::begin::<LedgerFormat>(&dir, head, end)?);
    let in_flight = match unwritten.is_empty() {
        true => InFlightLog::begin(&dir, end),
        // Until they are on disk, what the last process noted is their only trace.
        false => InFlightLog::none(&dir),
    };
    let journal = Arc::new(Journal::new(end.seq));
    for JournaledRecord { record, hold, .. } in unwritten {
        // Memory has their effects already, so they are queued first: the journal keeps the order of
        // decisions.
        enqueue(&journal, record, hold).map_err(|_| OpenError::Closed)?;
    }
    let ids = ids_of(&mut state)?;
    let (keys, emails) = beside(&state.cores);
    let account_places = state.cores.iter().flat_map(Core::accounts).map(place).collect();
    let recovery = RecoveryReport {
        records_replayed: state.records_replayed,
        torn_bytes_cut: state.torn_bytes,
        torn_at,
        unrecorded,
        sled_rebuilt: state.is_rebuilt,
        in_doubt: ended.iter().filter_map(in_doubt).collect(),
        took: began.elapsed(),
    };
    let journal_thread = JournalThread {
        journal: Arc::clone(&journal),
        writer,
        space: Space::new(dir.clone(), options.disk_free_bytes_min),
        on_commit: options.on_commit,
    };
    let Threads { backlog, projected, maintenance, threads } =
        start(&dir, state.store, journal_thread, head, (options.maintenance, options.pruning))?;
    let (books, tasks) = places(options.fleet.as_ref());
    let ledger = Arc::new(Ledger {
        shards: shards(state.cores, options.fleet.is_some()),
        keys: RwLock::new(keys),
        account_places: RwLock::new(account_places),
        ids: Mutex::new(ids),
        emails: Mutex::new(emails),
        journal,
        backlog,
        projected,
        in_flight,
        remnants,
        threads: Mutex::new(threads),
        dir,
        scans: Arc::new(Semaphore::new(SCANS_MAX)),
        past: Semaphore::new(1),
        books,
        tasks,
        fleet: options.fleet,
        _lock: lock,
        maintenance,
    });
    // A crash may have separated money from the debt that it pays; replay applies records only.
    ledger.pay_debts();
    Ok((ledger, recovery))
}

/// Selects the local or the shared form of figures and tasks.
fn places(fleet: Option<&Arc<dyn SharedFunds>>) -> (Box<dyn Books>, Box<dyn TaskRegistry>) {
    match fleet {
        None => (Box::new(LocalBooks), Box::new(LocalRegistry)),
        Some(funds) => {
            let tasks = SharedRegistry(Arc::clone(funds).tasks());
            (Box::new(SharedBooks(Arc::clone(funds))), Box::new(tasks))
        }
    }
}

/// File and offset of the unfinished write at the journal's end; `None` without one.
fn torn_at(dir: &Path, state: &StartState) -> Option<(PathBuf, u64)> {
    let path = || segment::path(&dir.join("journal"), state.end.segment);
    (state.torn_bytes > 0).then(|| (path(), state.end.offset))
}

/// Loads or creates the ledger in the directory, and checks that it belongs to this node.
fn begin(options: &Options) -> Result<(StartState, Option<Head>), OpenError> {
    let dir = &options.dir;
    moved::check(dir)?;
    journal_of(dir)?;
    let head = Head::examine::<LedgerFormat>(dir, fork(options))?;
    let checkpoints = head.as_ref().map_or(&[][..], |head| &head.notes.checkpoints);
    let mut state = load_or_rebuild(dir, checkpoints)?;
    let node = options.fleet.as_ref().map_or(NodeId::SINGLE, |fleet| fleet.node());
    if state.end == Position::default() {
        state.end = Position::beginning(node.begin());
    }
    let found = NodeId::of(state.end.seq);
    if found != node {
        return Err(OpenError::OtherNode { dir: dir.clone(), found, expected: node });
    }
    Ok((state, head))
}

/// State of the journal's thread.
struct JournalThread {
    journal: Arc<Journal>,
    writer: Writer,
    space: Space,
    on_commit: Option<OnCommit>,
}

impl JournalThread {
    /// Writes the journal until it stops, and notes where it ended. What is on disk goes to `backlog`.
    fn run(self, backlog: &Backlog, head: &HeadFile) {
        let Self { journal, writer, space, on_commit } = self;
        let on_group = |group: CommittedGroup<'_, JournaledRecord>| {
            if let Some(on_commit) = &on_commit {
                let CommittedGroup { ref entries, bytes, took, .. } = group;
                on_commit(Commit { records: entries.len(), bytes, took });
            }
            backlog.push(group);
        };
        let end = Committer { journal, writer, space, on_group }.run();
        // Only when the journal has written its last group, which the projector still has to apply.
        backlog.stop();
        if let Err(error) = head.reached(end) {
            log::error!("where the journal ends is not noted: {error}");
        }
    }
}

/// Threads behind the journal, with their shared state.
struct Threads {
    backlog: Arc<Backlog>,
    projected: Arc<ProjectionSlot>,
    maintenance: Arc<Maintenance>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts the background threads of the journal.
fn start(
    dir: &Path,
    store: Result<Store, String>,
    journal_thread: JournalThread,
    head: Arc<HeadFile>,
    (maintenance, pruning): (MaintenanceOptions, Pruning),
) -> Result<Threads, OpenError> {
    let backlog = Arc::new(Backlog::new(head.now().seq));
    let projected = Arc::new(ProjectionSlot::default());
    let absence = match store {
        Ok(store) => {
            projected.put(store);
            None
        }
        Err(cause) => {
            // From the first query on.
            backlog.leave(&cause);
            projected.take_away(&cause);
            Some(cause)
        }
    };
    let projector = Projector {
        backlog: Arc::clone(&backlog),
        projected: Arc::clone(&projected),
        dir: dir.to_owned(),
        head: Arc::clone(&head),
        pruning,
    };
    let maintenance = Arc::new(Maintenance::new(dir, maintenance, Arc::clone(&head)));
    let journal = Arc::clone(&journal_thread.journal);
    let worker = maintenance.worker(journal, Arc::clone(&backlog), Arc::clone(&projected));
    let mover = maintenance.mover();
    let written = Arc::clone(&backlog);
    let mut threads = vec![
        spawn("ledger-sled", dir, move || projector.run(absence))?,
        spawn("ledger-journal", dir, move || journal_thread.run(&written, &head))?,
        spawn("ledger-keeper", dir, move || worker.run())?,
    ];
    if let Some(mover) = mover {
        threads.push(spawn("ledger-archive", dir, move || mover.run())?);
    }
    Ok(Threads { backlog, projected, maintenance, threads })
}

/// Makes the directory of the journal if it does not exist.
fn journal_of(dir: &Path) -> Result<(), OpenError> {
    let journal_dir = dir.join("journal");
    if !journal_dir.exists() {
        // A missing journal may be one that a repair was just moving: a new empty one would hide it.
        repair::check_whole(dir)?;
        fs::create_dir(&journal_dir).map_err(OpenError::io(&journal_dir))?;
        sync_directory(dir).map_err(OpenError::io(dir))?;
    }
    Ok(())
}

/// Policy for a copied directory.
fn fork(options: &Options) -> ForkPolicy {
    match (&options.fleet, options.accept_fork) {
        (Some(_), _) => ForkPolicy::Unchecked,
        (None, true) => ForkPolicy::Accepted,
        (None, false) => ForkPolicy::Refused,
    }
}

/// The ids of writes that are still remembered.
fn ids_of(state: &mut StartState) -> Result<IdempotencyIndex, OpenError> {
    let acts = match &state.store {
        Ok(store) => store.acts_with_ids(UnixMs::now()).map_err(store_error)?,
        Err(_) => std::mem::take(&mut state.acts),
    };
    let mut ids = IdempotencyIndex::default();
    acts.iter().for_each(|(seq, act)| ids.remember(*seq, act));
    Ok(ids)
}

/// Indexes that memory keeps next to the cores: keys and e-mail addresses.
fn beside(cores: &[Core]) -> (Keys, HashMap<String, AccountId>) {
    let mut keys = Keys::default();
    let mut emails = HashMap::new();
    for account in cores.iter().flat_map(|core| core.accounts.values()) {
        account.keys.values().for_each(|key| keys.insert(Arc::clone(key)));
        keys.restore_limits(account);
        let email = account.customers.login.as_ref().map(|login| login.email.clone());
        emails.extend(email.map(|email| (email, account.account.id)));
    }
    let groups = cores.iter().flat_map(|core| &core.operator.groups);
    keys.groups.extend(groups.map(|(name, group)| (name.clone(), Arc::clone(group))));
    (keys, emails)
}

fn spawn(
    name: &str,
    dir: &Path,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OpenError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(OpenError::io(dir))
}

fn shards(cores: Vec<Core>, is_shared: bool) -> Vec<Mutex<Core>> {
    cores.into_iter().map(|core| Mutex::new(Core { is_shared, ..core })).collect()
}

/// Decides the end of every hold that a crash left open, and makes it so in memory.
fn end_open_holds(
    cores: &mut [Core],
    last: Seq,
    policy: RecoveryPolicy,
) -> Result<Vec<JournaledRecord>, OpenError> {
    let at = UnixMs::now();
    let mut open: Vec<_> = cores
        .iter()
        .flat_map(|core| {
            // A task outlives the process, and so does its hold.
            let of_tasks: HashSet<HoldId> = core.tasks().map(|task| task.intent.hold).collect();
            let holds = core.holds().filter(move |(id, _)| !of_tasks.contains(id));
            holds.map(move |(id, hold)| (id, core, hold.clone()))
        })
        .filter_map(|(id, core, hold)| Some((id, core.decide_recovery(id, policy, at)?, hold)))
        .collect();
    // Maps have no order, and the same crash should give the same journal.
    open.sort_by_key(|(id, ..)| *id);
    let ended: Vec<JournaledRecord> = (last.saturating_add(1)..)
        .zip(open)
        .map(|(seq, (_, record, hold))| JournaledRecord { seq, record, hold: Some(hold) })
        .collect();
    for JournaledRecord { seq, record, .. } in &ended {
        let core = &mut cores[shard_index(record.account())];
        core.apply(*seq, record).map_err(OpenError::Violation)?;
    }
    Ok(ended)
}

/// Writes these to the journal and to sled. Gives back what the journal has no room for: that waits as
/// everything does that comes to a full disk, and until then a crash would end the same holds again.
fn write_ended(
    state: &mut StartState,
    writer: &mut Writer,
    ended: &[JournaledRecord],
) -> Result<Vec<JournaledRecord>, OpenError> {
    if ended.is_empty() {
        return Ok(Vec::new());
    }
    match writer.write(ended) {
        // Nothing is flushed here, so a part that was written is overwritten by the next frame or cut at
        // a start.
        Err(error) if is_full(&error) => return Ok(ended.to_vec()),
        written => written.and_then(|end| writer.flush(end)),
    }
    .map_err(|source| OpenError::Io { path: "the journal".into(), source })?;
    let Ok(store) = &state.store else { return Ok(Vec::new()) };
    let mut window = Window::default();
    for journaled in ended {
        window.add(journaled.clone()).map_err(OpenError::Violation)?;
    }
    let applied = store.apply(window, writer.position()).and_then(|()| store.flush());
    match applied {
        // The journal has them, which is what counts: sled follows when there is room.
        Err(error) if error.is_full => state.store = Err(error.to_string()),
        applied => applied.map_err(store_error)?,
    }
    Ok(Vec::new())
}
