//! Work that outlives its request, and the hold that pays for it.
//!
//! A task is on disk before its upstream is asked, again with the upstream's id before its customer
//! is answered, and once more with its end, in the same group commit as the end of its hold. So it is
//! settled once, whoever sees the end first, and a crash leaves no doubt which of the three it was.
//! Here is what the ledger does with a task; what it is stands in `records::task`.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::task::Ended;
use crate::records::task::Intent;
use crate::records::task::Repeat;
use crate::records::task::Stage;
use crate::records::task::Task;
use crate::records::task::Webhook;
use crate::rules::submit::Repeated;
use std::sync::Arc;
use std::time::Duration;
use tollgate_options::ledger::REPEATED_WITHIN;

use crate::calls::hold::{Hold, Settlement};
use crate::memory::ledger::Ledger;
use crate::records::error::LedgerError;
use crate::records::record::{Record, SAID_BYTES_MAX, VoidReason};
use crate::rules::core::Core;
use tollgate_money::clock::UnixMs;
use tollgate_money::ids::{AccountId, HoldId, Seq, TaskId};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Prices, Usage, UsageSource};

/// How long a task is kept after its end (spec section 8: 7 to 8 days).
pub const KEPT_MS: u64 = 8 * 24 * 3600 * 1000;

/// How a task's hold ends.
#[derive(Clone, Copy, Debug)]
pub enum TaskSettlement {
    /// With a charge, within the hold.
    Post(Settlement),
    /// Without one.
    Void,
}

impl TaskSettlement {
    /// With what `usage` costs at the task's own prices.
    #[must_use]
    pub fn post(prices: &Prices, usage: Usage, source: UsageSource) -> Self {
        Self::Post(Settlement { charge: prices.cost(&usage), usage, source })
    }
}

impl Ledger {
    /// Opens a task that `hold` pays for. From here on only its end ends the hold. It is on disk
    /// when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`]; the hold is voided then. [`LedgerError::Conflict`] when a submit
    /// of the same name has come within `repeat_within`, [`LedgerError::Invalid`] when the task's texts
    /// are too long for a record; the hold is voided then as well.
    /// [`LedgerError::Unavailable`] in a fleet; the hold ends then, if not at once.
    pub async fn open_task(
        &self,
        hold: Hold,
        task: Arc<Task>,
        repeat_within: Duration,
    ) -> Result<(), LedgerError> {
        if !is_small(&task) {
            hold.void(VoidReason::Unreached);
            return Err(LedgerError::Invalid("a task's texts are too long"));
        }
        if let Some(shared) = self.shared_tasks() {
            return Self::open_shared(shared, hold, &task, repeat_within).await;
        }
        let seq = self.enter_task(hold, task, repeat_within)?;
        self.task_durable(seq).await
    }

    fn enter_task(
        &self,
        hold: Hold,
        task: Arc<Task>,
        repeat_within: Duration,
    ) -> Result<Seq, LedgerError> {
        let (account, at) = (task.intent.account, task.intent.at);
        let mut core = self.shard(account).lock();
        let repeated =
            task.intent.repeat.map(|repeat| core.repeated(account, &repeat, (at, repeat_within)));
        if !matches!(repeated, None | Some(Repeated::New)) {
            drop(core);
            hold.void(VoidReason::Unreached);
            return Err(LedgerError::Conflict);
        }
        let seq = self.commit(&mut core, Record::Task(task));
        drop(core);
        match seq {
            Ok(seq) => {
                hold.pass_on();
                Ok(seq)
            }
            Err(stopped) => Err(stopped.into()),
        }
    }

    /// Changes a task that has not ended, and gives it as it is then; `None` when it cannot become
    /// so. The change is on disk when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`].
    pub async fn change_task(
        &self,
        id: (AccountId, TaskId),
        change: impl Fn(&Task) -> Task + Send + Sync,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Self::change_shared(&*shared, id, &change, None).await;
        }
        let Some((task, seq)) = self.alter_task(id, change, None)? else { return Ok(None) };
        self.task_durable(seq).await?;
        Ok(Some(task))
    }

    /// Changes a task, together with a record that goes before; `None` when it cannot become so.
    pub(crate) fn alter_task(
        &self,
        (account, id): (AccountId, TaskId),
        change: impl FnOnce(&Task) -> Task,
        beside: Option<Record>,
    ) -> Result<Option<(Arc<Task>, Seq)>, LedgerError> {
        let mut core = self.shard(account).lock();
        let Some(before) = core.task(id) else { return Ok(None) };
        let after = change(before);
        if !before.can_become(&after) {
            return Ok(None);
        }
        let after = Arc::new(after);
        let records = beside.into_iter().chain([Record::Task(Arc::clone(&after))]);
        let seq = self.commit_all(&mut core, records)?;
        Ok(Some((after, seq)))
    }

    /// Ends a task and its hold, in one group commit, and gives it as it is then; `None` when it has
    /// ended before. The end is on disk when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`].
    pub async fn end_task(
        &self,
        id: (AccountId, TaskId),
        what: (&str, String),
        settlement: TaskSettlement,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Self::end_shared(&*shared, id, what, settlement).await;
        }
        let Some((task, seq)) = self.finish_task(id, what, settlement)? else { return Ok(None) };
        self.task_durable(seq).await?;
        Ok(Some(task))
    }

    fn finish_task(
        &self,
        (account, id): (AccountId, TaskId),
        (state, document): (&str, String),
        settlement: TaskSettlement,
    ) -> Result<Option<(Arc<Task>, Seq)>, LedgerError> {
        let at = UnixMs::now();
        let mut core = self.shard(account).lock();
        let Some(before) = core.task(id).filter(|task| task.ended().is_none()).cloned() else {
            return Ok(None);
        };
        let (records, task) = ending(&core, &before, (state, document), settlement, at);
        let seq = self.commit_all(&mut core, records)?;
        Ok(Some((task, seq)))
    }

    /// Waits until the record at `seq` is on disk.
    pub(crate) async fn task_durable(&self, seq: Seq) -> Result<(), LedgerError> {
        Ok(self.journal.durable(seq).await?)
    }

    /// The tasks of which nobody knows whether their upstream took them, oldest first.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn tasks_in_doubt(&self) -> Result<Vec<Arc<Task>>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Ok(shared.in_doubt().await?);
        }
        let mut tasks = self.tasks_in_work();
        tasks.retain(|task| matches!(task.stage, Stage::InDoubt));
        tasks.sort_by_key(|task| (task.intent.at, task.id()));
        Ok(tasks)
    }

    /// The tasks for which something remains to be done, in no order: what a start takes up.
    #[must_use]
    pub fn tasks_in_work(&self) -> Vec<Arc<Task>> {
        let shards = self.shards.iter();
        shards.flat_map(|shard| shard.lock().tasks().cloned().collect::<Vec<_>>()).collect()
    }

    /// How many they are.
    #[must_use]
    pub fn open_tasks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().tasks().count() as u64).sum()
    }

    /// The task, while something remains to be done for it.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn task_in_work(
        &self,
        (account, id): (AccountId, TaskId),
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            let found = shared.any_task(id).await?.map(|found| Arc::new(found.task));
            return Ok(found.filter(|task| !task.is_done() && task.intent.account == account));
        }
        Ok(self.shard(account).lock().task(id).cloned())
    }

    /// The task of this id, or of this upstream's id, if it is the account's.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn task(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Ok(shared.task(account, id).await?);
        }
        let own: Option<TaskId> = id.parse().ok();
        {
            let core = self.shard(account).lock();
            let found = match own {
                Some(id) => core.task(id).filter(|task| task.intent.account == account),
                None => core.native_task(account, id),
            };
            if let Some(task) = found {
                return Ok(Some(Arc::clone(task)));
            }
        }
        let id = id.to_owned();
        let found = self.query(move |store| store.task(account, own, &id)).await?;
        Ok(found.map(Arc::new).filter(|task| task.intent.account == account))
    }

    /// Whether a submit was made less than `within` before `at`.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn repeated(
        &self,
        account: AccountId,
        repeat: &Repeat,
        (at, within): (UnixMs, Duration),
    ) -> Result<Repeated, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Ok(shared.repeated(account, repeat, at, within).await?);
        }
        Ok(self.shard(account).lock().repeated(account, repeat, (at, within)))
    }

    /// Forgets tasks that ended before `before`, at most `limit` of them, and says how many.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`].
    pub async fn forget_tasks(&self, before: UnixMs, limit: usize) -> Result<usize, LedgerError> {
        let now = UnixMs::now();
        for shard in &self.shards {
            shard.lock().forget_submits(now);
        }
        self.forget_people(now);
        let own = self.query(move |store| {
            store.forget_sessions(now)?;
            store.forget_tasks(before, limit)
        });
        let own = own.await?;
        match self.shared_tasks() {
            None => Ok(own),
            Some(shared) => Ok(shared.forget(before, REPEATED_WITHIN, limit).await?),
        }
    }
}

/// Whether a task that is opened fits a record, whatever upstream is asked next.
fn is_small(task: &Task) -> bool {
    let bytes = postcard::experimental::serialized_size(task);
    bytes.is_ok_and(|bytes| bytes <= SAID_BYTES_MAX / 2)
}

/// The records that end a task and its hold, and the task as it is then.
pub(crate) fn ending(
    core: &Core,
    before: &Arc<Task>,
    (state, document): (&str, String),
    settlement: TaskSettlement,
    at: UnixMs,
) -> (Vec<Record>, Arc<Task>) {
    let Intent { account, hold, .. } = *before.intent;
    let (mut records, charged, usage) = end_hold(core, account, hold, settlement, at);
    let task = Arc::new(ended_as(before, (state, &document), (charged, usage), at));
    records.push(Record::Task(Arc::clone(&task)));
    (records, task)
}

/// A task as it is with this end.
pub(crate) fn ended_as(
    before: &Task,
    (state, document): (&str, &str),
    (charged, usage): (Nanousd, Usage),
    at: UnixMs,
) -> Task {
    let ended = Ended {
        upstream_id: before.taken().cloned(),
        state: state.to_owned(),
        document: document.to_owned(),
        charged,
        usage,
        at,
    };
    let webhook = match before.webhook {
        Webhook::Due { tries, .. } => Webhook::Due { tries, at },
        other => other,
    };
    Task { stage: Stage::Ended(ended), webhook, ..before.clone() }
}

/// The records that end a hold, what the customer pays and what was used.
fn end_hold(
    core: &Core,
    account: AccountId,
    hold: HoldId,
    settlement: TaskSettlement,
    at: UnixMs,
) -> (Vec<Record>, Nanousd, Usage) {
    let voided = Record::Voided { account, hold, reason: VoidReason::UpstreamError, at };
    match settlement {
        TaskSettlement::Void => (vec![voided], Nanousd::ZERO, Usage::ZERO),
        TaskSettlement::Post(Settlement { charge, usage, source }) => {
            match core.decide_post(hold, charge, (usage, source), at) {
                Some(post) => {
                    let records = post.extension.into_iter().chain([post.record]).collect();
                    (records, post.charged, usage)
                }
                None => (Vec::new(), Nanousd::ZERO, Usage::ZERO),
            }
        }
    }
}
