//! The fleet as the ledger sees it: money, tasks and writes in one place for all nodes.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::borrower::WAIT_MAX;
use super::postgres::DbError;
use super::postgres::directory::WriteRefused;
use super::postgres::tasks::{CommitState, OpenOutcome, Opening, SharedTask, SharedTasks};
use super::{Fleet, NodeEvent};
use tollgate_ledger::{
    AccountId, Balance, CallName, ChangeTask, DecideEnd, DeliveryAttempt, Grain, HoldId,
    JournalProgress, JournaledRecord, KeyId, LeaseWait, Ledger, LedgerError, ListedTask,
    LossReport, NodeId, NodeStatus, OpenHold, PreparedOpening, RepeatKey, RepeatLookup, Seq,
    SharedFunds, Task, TaskId, TaskOpened, TaskPage, TaskQuery, TaskStore, TaskStoreError, Totals,
    UNFIT_CREDIT, UNFIT_GRANT, UsageCell, UsageOfModel, UsageTotal, WriteLog,
};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

/// Time after the end of its term for which a node's calls wait for a sync that renews it. A busy database
/// answers late without being away, and a load balancer takes about as long to see that the node is not
/// ready.
const LATE_MAX: Duration = Duration::from_secs(1);

/// The fleet of a ledger.
pub trait HasFleet {
    /// Fleet of the node; `None` for a single gateway.
    fn fleet(&self) -> Option<Arc<Fleet>>;
}

impl HasFleet for Ledger {
    fn fleet(&self) -> Option<Arc<Fleet>> {
        let funds: Arc<dyn Any + Send + Sync> = Arc::clone(self.shared_funds()?) as _;
        funds.downcast().ok()
    }
}

#[async_trait]
impl SharedFunds for Fleet {
    fn node(&self) -> NodeId {
        Self::node(self)
    }

    fn node_status(&self, JournalProgress { last, followed }: JournalProgress) -> NodeStatus {
        let (directory, last_sync) = (self.directory(), self.last_sync());
        // Zero before the first sync, and the numbers of this node's records begin far behind it.
        let reported = last_sync.reported.max(self.node.begin());
        let unreported = last.saturating_sub(reported);
        NodeStatus {
            node: self.node,
            name: self.name().to_owned(),
            epoch: self.epoch(),
            term: self.term(),
            term_left: self.term_left(),
            unreported,
            // A node without calls has nothing to report: the age of its last sync is no lag.
            report_lag: if unreported == 0 { Duration::ZERO } else { self.since_last_sync() },
            followed,
            head: directory.head(),
            stopped: directory.stopped(),
        }
    }

    fn writes(&self) -> &dyn WriteLog {
        &**self.directory()
    }

    fn tasks(self: Arc<Self>) -> Arc<dyn TaskStore> {
        Arc::new(SharedTasks::of(self))
    }

    fn now(&self) -> Duration {
        Self::now(self)
    }

    fn may_spend(&self) -> bool {
        Self::may_spend(self)
    }

    fn runs_low(&self, account: AccountId) {
        self.inbox.lock().push(NodeEvent::RunsLow(account));
        self.hurry.notify_one();
    }

    fn is_scarce(&self, account: AccountId) -> bool {
        self.scarce.lock().contains(&account)
    }

    fn nodes(&self) -> u32 {
        self.last_sync().nodes
    }

    async fn outlast(&self) -> bool {
        loop {
            // Made before the look at the term: it hears of a renewal that comes in between.
            let renewed = self.renewed.notified();
            if self.may_spend() {
                return true;
            }
            let until = Duration::from_nanos(self.spend_until_ns.load(Ordering::Acquire));
            let left = until.saturating_add(LATE_MAX).saturating_sub(self.now());
            if until.is_zero() || left.is_zero() {
                return false;
            }
            // Either way it is looked at again.
            tokio::time::timeout(left, renewed).await.ok();
        }
    }

    async fn wait_for(&self, account: AccountId, amount: Nanousd, since: Duration) -> LeaseWait {
        let (tell, outcome) = oneshot::channel();
        // Before the notice: the sync that it wakes finds the call.
        self.inbox.lock().push(NodeEvent::Waits { account, amount, since, tell });
        self.hurry.notify_one();
        match tokio::time::timeout(WAIT_MAX, outcome).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) | Err(_) => LeaseWait::CutOff,
        }
    }

    async fn wait_for_share(&self, account: AccountId, key: KeyId, amount: Nanousd) -> bool {
        // Registered before it waits, so that the sync it waits for knows the amount; and removed with this
        // future, so that nothing is lent to a customer who left.
        let _call = self.share_queue().call(account, key, amount);
        self.share_queue().wait().await
    }

    async fn entries(
        &self,
        account: AccountId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        Ok(self.db().entries(account, before, limit).await?)
    }

    async fn in_doubt(&self) -> Result<Vec<JournaledRecord>, LedgerError> {
        Ok(self.db().in_doubt().await?)
    }

    async fn usage(
        &self,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, LedgerError> {
        Ok(self.db().usage(account, grain, times).await?)
    }

    async fn usage_of_all(
        &self,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<UsageOfModel>, LedgerError> {
        Ok(self.db().usage_of_all(grain, times).await?)
    }

    async fn keys_last_used(
        &self,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, LedgerError> {
        Ok(self.db().keys_last_used(account).await?)
    }

    async fn balances(
        &self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, (Balance, Nanousd)>, LedgerError> {
        Ok(self.db().balances(accounts).await?)
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        Ok(self.db().totals().await?)
    }

    async fn losses(&self, limit: usize) -> Result<LossReport, LedgerError> {
        Ok(self.db().losses(limit).await?)
    }

    async fn open_hold_of(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<(HoldId, OpenHold)>, LedgerError> {
        Ok(self.db().open_hold_of(account, name).await?)
    }

    async fn end_of_call(
        &self,
        account: AccountId,
        name: CallName,
    ) -> Result<Option<JournaledRecord>, LedgerError> {
        Ok(self.db().end_of_call(account, name).await?)
    }

    async fn refunds_of(
        &self,
        account: AccountId,
        hold: HoldId,
        limit: usize,
    ) -> Result<Vec<JournaledRecord>, LedgerError> {
        Ok(self.db().refunds_of(account, hold, limit).await?)
    }

    async fn charged(
        &self,
        account: AccountId,
        hold: HoldId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        Ok(self.db().charged(account, hold).await?)
    }

    async fn in_suspense(
        &self,
        node: NodeId,
        account: AccountId,
    ) -> Result<Option<Nanousd>, LedgerError> {
        Ok(self.db().in_suspense(node, account).await?)
    }
}

/// A task being written to the database.
struct PreparedTask {
    tasks: SharedTasks,
    opening: Opening,
}

#[async_trait]
impl PreparedOpening for PreparedTask {
    async fn open(&self) -> Result<TaskOpened, TaskStoreError> {
        Ok(match self.tasks.open(&self.opening).await? {
            OpenOutcome::Done => TaskOpened::Done,
            OpenOutcome::Repeated => TaskOpened::Repeated,
            OpenOutcome::Refused => TaskOpened::Refused,
        })
    }

    async fn settle(&self) -> Result<bool, TaskStoreError> {
        Ok(self.tasks.settle_opening(&self.opening).await? == CommitState::Done)
    }
}

fn listed(found: SharedTask) -> ListedTask {
    ListedTask { task: Task::clone(&found.task), tried: found.tried }
}

#[async_trait]
impl TaskStore for SharedTasks {
    fn prepare(
        &self,
        task: &Task,
        hold: OpenHold,
        repeat_within: Duration,
    ) -> Result<Box<dyn PreparedOpening>, TaskStoreError> {
        let opening = Opening::new(task, hold, repeat_within)?;
        Ok(Box::new(PreparedTask { tasks: self.clone(), opening }))
    }

    async fn with_holds(&self, holds: &[HoldId]) -> Result<HashSet<HoldId>, TaskStoreError> {
        Ok(Self::with_holds(self, holds).await?)
    }

    async fn change(
        &self,
        account: AccountId,
        id: TaskId,
        change: &ChangeTask<'_>,
        tried: Option<&DeliveryAttempt>,
    ) -> Result<Option<Arc<Task>>, TaskStoreError> {
        Ok(Self::change(self, account, id, change, tried).await?)
    }

    async fn end(
        &self,
        account: AccountId,
        id: TaskId,
        decide: &DecideEnd<'_>,
    ) -> Result<Result<Option<Arc<Task>>, LedgerError>, TaskStoreError> {
        Ok(Self::end(self, account, id, decide).await?)
    }

    async fn task(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<Arc<Task>>, TaskStoreError> {
        Ok(Self::task(self, account, id).await?.map(|found| found.task))
    }

    async fn any_task(&self, id: TaskId) -> Result<Option<ListedTask>, TaskStoreError> {
        Ok(Self::any_task(self, id).await?.map(listed))
    }

    async fn repeated(
        &self,
        account: AccountId,
        repeat: &RepeatKey,
        at: UnixMs,
        within: Duration,
    ) -> Result<RepeatLookup, TaskStoreError> {
        Ok(Self::repeated(self, account, repeat, at, within).await?)
    }

    async fn answered(&self, task: &Task, at: UnixMs) -> Result<(), TaskStoreError> {
        Ok(Self::answered(self, task, at).await?)
    }

    async fn list(&self, query: &TaskQuery) -> Result<Option<TaskPage>, TaskStoreError> {
        let TaskQuery { account, filter, after, limit } = query;
        let Some(found) = Self::list(self, *account, filter.as_ref(), *after, *limit).await? else {
            return Ok(None);
        };
        let last = found.tasks.last().map(|last| last.task.id());
        let next_after = last.filter(|_| found.has_more);
        Ok(Some(TaskPage { tasks: found.tasks.into_iter().map(listed).collect(), next_after }))
    }

    async fn in_doubt(&self) -> Result<Vec<Arc<Task>>, TaskStoreError> {
        Ok(Self::in_doubt(self).await?)
    }

    async fn forget(
        &self,
        ended_before: UnixMs,
        repeated_within: Duration,
        limit: usize,
    ) -> Result<usize, TaskStoreError> {
        Ok(Self::forget(self, ended_before, repeated_within, limit).await?)
    }
}

impl From<DbError> for TaskStoreError {
    fn from(error: DbError) -> Self {
        let why = error.to_string();
        match error {
            DbError::Failed(_) => Self::Failed(why),
            DbError::Unknown(_) => Self::Unknown(why),
            DbError::Unavailable(_) => Self::Unavailable(why),
        }
    }
}

impl From<DbError> for LedgerError {
    fn from(error: DbError) -> Self {
        // Customers learn that they may try again later; what an operator must mend stands here only.
        if let DbError::Failed(why) = &error {
            log::error!("the fleet's database: {why}");
        }
        Self::Unavailable(error.to_string())
    }
}

impl From<WriteRefused> for LedgerError {
    fn from(refused: WriteRefused) -> Self {
        match refused {
            WriteRefused::UnknownAccount(account) => Self::UnknownAccount(account),
            WriteRefused::GivenBefore => Self::Conflict,
            WriteRefused::DoesNotFit => UNFIT_GRANT,
            WriteRefused::NotSpent => {
                Self::Invalid("a refund cannot exceed what the account has spent in all")
            }
            WriteRefused::NotOwed => Self::NotOwed,
            WriteRefused::UnfitCredit => UNFIT_CREDIT,
            WriteRefused::CreditInFlight(_, held) => Self::CreditInFlight(held),
            WriteRefused::NotInDoubt(hold) => Self::NotInDoubt(hold),
            WriteRefused::NotInSuspense(node, account) => Self::NotInSuspense(node, account),
        }
    }
}
