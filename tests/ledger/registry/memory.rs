//! A fleet of one node whose tasks and directory are in memory. It lends nothing by itself.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    AccountId, AppendOutcome, Balance, CallName, ChangeTask, DecideEnd, DeliveryAttempt, Grain,
    HoldId, JournalProgress, JournaledRecord, KeyId, LeaseWait, LedgerError, ListedTask,
    LossReport, NodeId, NodeStatus, OpenHold, OpenTask, PreparedOpening, Record, RepeatKey,
    RepeatLookup, Seq, SharedFunds, Shortfall, Task, TaskFilter, TaskId, TaskOpened, TaskPage,
    TaskPhase, TaskQuery, TaskStore, TaskStoreError, Totals, UsageCell, UsageOfModel, UsageTotal,
    WriteLog, WritePage, WriteTurn, is_unanswered,
};
use tollgate::money::Nanousd;

/// A submit: what was submitted, as which task, and when.
#[derive(Clone, Copy)]
struct Submitted {
    body: [u8; 32],
    task: TaskId,
    at: UnixMs,
}

struct Row {
    task: Arc<Task>,
    hold: OpenHold,
    tried: Option<DeliveryAttempt>,
}

#[derive(Default)]
struct Rows {
    /// By when they were submitted, oldest first.
    tasks: Vec<Row>,
    submits: HashMap<(AccountId, [u8; 32]), Submitted>,
}

impl Rows {
    fn row(&mut self, account: AccountId, id: TaskId) -> Option<&mut Row> {
        self.tasks.iter_mut().find(|row| row.task.id() == id && row.task.intent.account == account)
    }

    fn recent(
        &self,
        account: AccountId,
        repeat: &RepeatKey,
        (at, within): (UnixMs, Duration),
    ) -> Option<Submitted> {
        let existing = self.submits.get(&(account, repeat.key)).copied()?;
        let is_recent = Duration::from_millis(at.0.saturating_sub(existing.at.0)) < within;
        let mut tasks = self.tasks.iter().map(|row| &row.task);
        let is_open = tasks.any(|task| task.id() == existing.task && is_unanswered(task));
        (is_recent || is_open).then_some(existing)
    }

    fn answered(&mut self, task: &Task, at: UnixMs) {
        let Some(repeat) = task.intent.repeat else { return };
        let submit = self.submits.get_mut(&(task.intent.account, repeat.key));
        if let Some(submit) = submit.filter(|submit| submit.task == task.id()) {
            submit.at = at;
        }
    }
}

/// Tasks in memory.
#[derive(Default)]
struct MemoryTasks {
    rows: Mutex<Rows>,
    /// Of each three writes one is not made, and one is made and not answered.
    loses_answers: bool,
    writes: AtomicU64,
}

impl MemoryTasks {
    fn write<T>(&self, make: impl FnOnce(&mut Rows) -> T) -> Result<T, TaskStoreError> {
        let turn = self.writes.fetch_add(1, Ordering::Relaxed) % 3;
        if self.loses_answers && turn == 0 {
            return Err(TaskStoreError::Unavailable("nothing was written".to_owned()));
        }
        let made = make(&mut self.rows.lock());
        if self.loses_answers && turn == 1 {
            return Err(TaskStoreError::Unknown("the answer was lost".to_owned()));
        }
        Ok(made)
    }

    fn read(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock()
    }
}

/// A task that is to be opened.
struct Opening {
    tasks: Arc<MemoryTasks>,
    task: Task,
    hold: OpenHold,
    repeat_within: Duration,
}

#[async_trait]
impl PreparedOpening for Opening {
    async fn open(&self) -> Result<TaskOpened, TaskStoreError> {
        let Self { tasks, task, hold, repeat_within } = self;
        let intent = &task.intent;
        let mut rows = tasks.read();
        if let Some(repeat) = &intent.repeat {
            if rows.recent(intent.account, repeat, (intent.at, *repeat_within)).is_some() {
                return Ok(TaskOpened::Repeated);
            }
            let submit = Submitted { body: repeat.body, task: intent.id, at: intent.at };
            rows.submits.insert((intent.account, repeat.key), submit);
        }
        let row = Row { task: Arc::new(task.clone()), hold: hold.clone(), tried: None };
        rows.tasks.push(row);
        Ok(TaskOpened::Done)
    }

    async fn settle(&self) -> Result<bool, TaskStoreError> {
        Ok(self.tasks.read().row(self.task.intent.account, self.task.id()).is_some())
    }
}

/// The ledger's view of [`MemoryTasks`], which an opening keeps as well.
struct Shared(Arc<MemoryTasks>);

#[async_trait]
impl TaskStore for Shared {
    fn prepare(
        &self,
        task: &Task,
        hold: OpenHold,
        repeat_within: Duration,
    ) -> Result<Box<dyn PreparedOpening>, TaskStoreError> {
        let tasks = Arc::clone(&self.0);
        Ok(Box::new(Opening { tasks, task: task.clone(), hold, repeat_within }))
    }

    async fn with_holds(&self, holds: &[HoldId]) -> Result<HashSet<HoldId>, TaskStoreError> {
        let rows = self.0.read();
        let of_tasks = rows.tasks.iter().map(|row| row.task.intent.hold);
        Ok(of_tasks.filter(|hold| holds.contains(hold)).collect())
    }

    async fn change(
        &self,
        account: AccountId,
        id: TaskId,
        change: &ChangeTask<'_>,
        tried: Option<&DeliveryAttempt>,
    ) -> Result<Option<Arc<Task>>, TaskStoreError> {
        self.0.write(|rows| {
            let row = rows.row(account, id)?;
            let after = Arc::new(change(&row.task));
            if after != row.task && !row.task.can_become(&after) {
                return None;
            }
            let is_taken =
                is_unanswered(&row.task) && matches!(after.stage, TaskPhase::Submitted { .. });
            row.task = Arc::clone(&after);
            row.tried = tried.cloned().or(row.tried.take());
            if is_taken {
                rows.answered(&after, UnixMs::now());
            }
            Some(after)
        })
    }

    async fn end(
        &self,
        account: AccountId,
        id: TaskId,
        decide: &DecideEnd<'_>,
    ) -> Result<Result<Option<Arc<Task>>, LedgerError>, TaskStoreError> {
        self.0.write(|rows| {
            let row = rows.row(account, id).filter(|row| row.task.ended().is_none());
            let Some(row) = row else { return Ok(None) };
            let (task, hold) = (Arc::clone(&row.task), row.hold.clone());
            let (available, debt) = (Nanousd::ZERO, Nanousd::ZERO);
            let ending = decide(&OpenTask { task, hold, available, debt })?;
            row.task = Arc::new(ending.task);
            let ended = Arc::clone(&row.task);
            if let Some(repeat) = ended.intent.repeat.filter(|_| ended.taken().is_none()) {
                let name = (account, repeat.key);
                if rows.submits.get(&name).is_some_and(|submit| submit.task == id) {
                    rows.submits.remove(&name);
                }
            }
            Ok(Some(ended))
        })
    }

    async fn task(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<Arc<Task>>, TaskStoreError> {
        let own: Option<TaskId> = id.parse().ok();
        let matches = |task: &Task| match own {
            Some(own) => task.id() == own,
            None => task.upstream_id() == Some(id),
        };
        let rows = self.0.read();
        let mut tasks = rows.tasks.iter().map(|row| &row.task);
        Ok(tasks.find(|task| task.intent.account == account && matches(task)).cloned())
    }

    async fn any_task(&self, id: TaskId) -> Result<Option<ListedTask>, TaskStoreError> {
        Ok(self.0.read().tasks.iter().find(|row| row.task.id() == id).map(listed))
    }

    async fn repeated(
        &self,
        account: AccountId,
        repeat: &RepeatKey,
        at: UnixMs,
        within: Duration,
    ) -> Result<RepeatLookup, TaskStoreError> {
        Ok(match self.0.read().recent(account, repeat, (at, within)) {
            None => RepeatLookup::New,
            Some(stored) if stored.body == repeat.body => RepeatLookup::Same(stored.task),
            Some(_) => RepeatLookup::Other,
        })
    }

    async fn answered(&self, task: &Task, at: UnixMs) -> Result<(), TaskStoreError> {
        self.0.read().answered(task, at);
        Ok(())
    }

    async fn list(&self, query: &TaskQuery) -> Result<Option<TaskPage>, TaskStoreError> {
        let TaskQuery { account, filter, after, limit } = query;
        let rows = self.0.read();
        let newest_first: Vec<&Row> = rows.tasks.iter().rev().collect();
        let begin = match after {
            None => 0,
            Some(after) => match newest_first.iter().position(|row| row.task.id() == *after) {
                Some(place) => place + 1,
                None => return Ok(None),
            },
        };
        let is_listed = |task: &Task| {
            account.is_none_or(|account| task.intent.account == account)
                && filter.as_ref().is_none_or(|filter| wants(filter, task))
        };
        let behind = newest_first[begin..].iter().filter(|row| is_listed(&row.task));
        let mut tasks: Vec<_> = behind.take(limit + 1).map(|row| listed(row)).collect();
        let has_more = tasks.len() > *limit;
        tasks.truncate(*limit);
        let next_after = tasks.last().map(|last| last.task.id()).filter(|_| has_more);
        Ok(Some(TaskPage { tasks, next_after }))
    }

    async fn in_doubt(&self) -> Result<Vec<Arc<Task>>, TaskStoreError> {
        let rows = self.0.read();
        let tasks = rows.tasks.iter().map(|row| &row.task);
        Ok(tasks.filter(|task| task.stage == TaskPhase::InDoubt).cloned().collect())
    }

    async fn forget(
        &self,
        ended_before: UnixMs,
        _repeated_within: Duration,
        limit: usize,
    ) -> Result<usize, TaskStoreError> {
        let mut forgotten = 0;
        self.0.read().tasks.retain(|row| {
            let is_old = row.task.ended().is_some_and(|ended| ended.at < ended_before);
            let is_forgotten = is_old && forgotten < limit;
            forgotten += usize::from(is_forgotten);
            !is_forgotten
        });
        Ok(forgotten)
    }
}

fn listed(row: &Row) -> ListedTask {
    ListedTask { task: Task::clone(&row.task), tried: row.tried.clone() }
}

fn wants(filter: &TaskFilter, task: &Task) -> bool {
    match (filter, &task.stage) {
        (TaskFilter::Open, TaskPhase::Submitting | TaskPhase::Submitted { .. })
        | (TaskFilter::InDoubt, TaskPhase::InDoubt) => true,
        (TaskFilter::Ended(state), TaskPhase::Ended(ended)) => ended.state == *state,
        (TaskFilter::Announced, _) => task.intent.webhook_url.is_some(),
        _ => false,
    }
}

/// A directory that has nothing to say but what this node wrote.
#[derive(Default)]
struct MemoryLog {
    turn: tokio::sync::Mutex<()>,
    last: AtomicU64,
}

#[async_trait]
impl WriteLog for MemoryLog {
    async fn turn(&self) -> WriteTurn<'_> {
        WriteTurn(self.turn.lock().await)
    }

    async fn append(
        &self,
        _turn: &WriteTurn<'_>,
        after: Seq,
        _write_id: &str,
        _records: &[Record],
    ) -> Result<AppendOutcome, LedgerError> {
        let place = self.last.fetch_add(1, Ordering::Relaxed);
        assert_eq!(place, after, "one node writes, and has followed itself");
        Ok(AppendOutcome::Appended(place + 1))
    }

    async fn pull(&self, _turn: &WriteTurn<'_>, _after: Seq) -> Result<WritePage, LedgerError> {
        Ok(WritePage { groups: Vec::new(), is_last: true })
    }

    fn stop(&self, why: String) -> LedgerError {
        LedgerError::Unavailable(why)
    }
}

/// A fleet in memory, of which a ledger is the only node.
#[derive(Default)]
pub(super) struct MemoryFleet {
    tasks: Arc<MemoryTasks>,
    log: MemoryLog,
}

impl MemoryFleet {
    /// One whose tasks are written at the third try.
    pub(super) fn losing_answers() -> Self {
        let tasks = Arc::new(MemoryTasks { loses_answers: true, ..MemoryTasks::default() });
        Self { tasks, ..Self::default() }
    }
}

/// Figures are asked of nobody here.
fn no_figures<T>() -> Result<T, LedgerError> {
    Err(LedgerError::Unavailable("this fleet has no figures".to_owned()))
}

#[async_trait]
impl SharedFunds for MemoryFleet {
    fn node(&self) -> NodeId {
        NodeId::from_number(1).expect("a node")
    }

    fn node_status(&self, JournalProgress { last: _, followed }: JournalProgress) -> NodeStatus {
        NodeStatus {
            node: self.node(),
            name: "memory".to_owned(),
            epoch: 1,
            term: Duration::MAX,
            term_left: Duration::MAX,
            unreported: 0,
            report_lag: Duration::ZERO,
            followed,
            head: followed,
            stopped: None,
        }
    }

    fn is_scarce(&self, _account: AccountId) -> bool {
        false
    }

    fn nodes(&self) -> u32 {
        1
    }

    fn writes(&self) -> &dyn WriteLog {
        &self.log
    }

    fn tasks(self: Arc<Self>) -> Arc<dyn TaskStore> {
        Arc::new(Shared(Arc::clone(&self.tasks)))
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn may_spend(&self) -> bool {
        true
    }

    fn runs_low(&self, _account: AccountId) {}

    async fn outlast(&self) -> bool {
        true
    }

    async fn wait_for(&self, _of: AccountId, _amount: Nanousd, _since: Duration) -> LeaseWait {
        LeaseWait::Short(Shortfall::default())
    }

    async fn wait_for_share(&self, _of: AccountId, _key: KeyId, _amount: Nanousd) -> bool {
        false
    }

    async fn entries(
        &self,
        _account: AccountId,
        _before: Seq,
        _limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        no_figures()
    }

    async fn in_doubt(&self) -> Result<Vec<JournaledRecord>, LedgerError> {
        no_figures()
    }

    async fn usage(
        &self,
        _account: AccountId,
        _grain: Grain,
        _times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError> {
        no_figures()
    }

    async fn usage_of_all(
        &self,
        _grain: Grain,
        _times: Range<u32>,
    ) -> Result<Vec<UsageOfModel>, LedgerError> {
        no_figures()
    }

    async fn keys_last_used(
        &self,
        _account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError> {
        no_figures()
    }

    async fn balances(
        &self,
        _accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, (Balance, Nanousd)>, LedgerError> {
        no_figures()
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        no_figures()
    }

    async fn losses(&self, _limit: usize) -> Result<LossReport, LedgerError> {
        no_figures()
    }

    async fn open_hold_of(
        &self,
        _account: AccountId,
        _name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, LedgerError> {
        no_figures()
    }

    async fn end_of_call(
        &self,
        _account: AccountId,
        _name: CallName,
    ) -> Result<Option<JournaledRecord>, LedgerError> {
        no_figures()
    }

    async fn refunds_of(
        &self,
        _account: AccountId,
        _hold: HoldId,
        _limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        no_figures()
    }

    async fn charged(
        &self,
        _account: AccountId,
        _hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        no_figures()
    }

    async fn in_suspense(
        &self,
        _node: NodeId,
        _account: AccountId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        no_figures()
    }
}
