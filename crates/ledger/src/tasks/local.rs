//! Tasks of a ledger that has them itself: in its shards while something remains to be done for them,
//! and in sled until they are forgotten.
//!
//! A task is on disk before its upstream is asked, again with the upstream's id before its customer
//! is answered, and once more with its end, in the same group commit as the end of its hold. So it is
//! settled once, whoever sees the end first, and a crash leaves no doubt which of the three it was.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::memory::Ledger;
use crate::memory::act::ActorScope;
use crate::memory::hold::Hold;
use crate::memory::registry::TaskRegistry;
use crate::memory::write::IdempotentOutcome;
use crate::ports::tasks::{ChangeTask, ListedTask, TaskPage, TaskQuery};
use crate::projection::store::Store;
use crate::records::error::LedgerError;
use crate::records::hold_end::VoidReason;
use crate::records::record::Record;
use crate::records::task::{DeliveryAttempt, Intent, RepeatKey, Task, TaskPhase};
use crate::rules::core::Core;
use crate::rules::settlement::{Settlement, TaskSettlement};
use crate::rules::submit::{RepeatLookup, is_unanswered};
use crate::tasks::task::{ended_as, resolution};
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, Seq, TaskId};

/// The tasks of a ledger that stand in itself.
pub(crate) struct LocalRegistry;

#[async_trait]
impl TaskRegistry for LocalRegistry {
    async fn open(
        &self,
        ledger: &Ledger,
        hold: Hold,
        task: Arc<Task>,
        repeat_within: Duration,
    ) -> Result<(), LedgerError> {
        let seq = enter(ledger, hold, task, repeat_within)?;
        Ok(ledger.journal.durable(seq).await?)
    }

    async fn change(
        &self,
        ledger: &Ledger,
        id: (AccountId, TaskId),
        change: &ChangeTask<'_>,
        tried: Option<DeliveryAttempt>,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let (account, task) = id;
        let tried = tried.map(|tried| Record::Announced { account, task, tried: Arc::new(tried) });
        let Some((task, seq)) = alter(ledger, id, change, tried)? else { return Ok(None) };
        ledger.journal.durable(seq).await?;
        Ok(Some(task))
    }

    async fn end(
        &self,
        ledger: &Ledger,
        id: (AccountId, TaskId),
        end: (&str, String),
        settlement: TaskSettlement,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let Some((task, seq)) = finish(ledger, id, end, settlement)? else { return Ok(None) };
        ledger.journal.durable(seq).await?;
        Ok(Some(task))
    }

    async fn resolve(
        &self,
        by: &ActorScope<'_>,
        id: (AccountId, TaskId),
        end: (&str, String),
        charge: Option<Nanousd>,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let (account, id) = id;
        let (state, document) = end;
        let once = by.write("task.resolve", account, |locked, audit| {
            let core = locked.core(account);
            // Within the write: the upstream may have answered since the operator looked at the list.
            let task = task_of(core, account, id).filter(|task| task.stage == TaskPhase::InDoubt);
            let before = Arc::clone(task.ok_or(LedgerError::NoDoubt(id))?);
            let held = core.hold(before.intent.hold).map_or(Nanousd::ZERO, |hold| hold.amount);
            let settlement = resolution(charge, held)?;
            let end = (state, document.clone());
            let (mut records, task) = ending(core, &before, end, settlement, UnixMs::now());
            records.push(audit.act(account, id));
            Ok((task, records))
        });
        Ok(match once.await? {
            IdempotentOutcome::Applied(task, _) => Some(task),
            IdempotentOutcome::Replayed { .. } => None,
        })
    }

    async fn announce_again(&self, by: &ActorScope<'_>, task: Task) -> Result<(), LedgerError> {
        let (account, id) = (task.intent.account, task.id());
        let task = Arc::new(task);
        let once = by.write("task.announce", account, |_, audit| {
            Ok(((), vec![Record::Task(Arc::clone(&task)), audit.act(account, id)]))
        });
        once.await.map(|_| ())
    }

    async fn find(
        &self,
        ledger: &Ledger,
        account: AccountId,
        id: &str,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let own: Option<TaskId> = id.parse().ok();
        {
            let core = ledger.shard(account).lock();
            let found = match own {
                Some(id) => task_of(&core, account, id),
                None => core.native_task(account, id),
            };
            if let Some(task) = found {
                return Ok(Some(Arc::clone(task)));
            }
        }
        // Memory first: sled lags behind by a window, and a task that was just opened must be found.
        let id = id.to_owned();
        let found = ledger.query(move |store| store.task(account, own, &id)).await?;
        // The operator's lookup takes no account into account; a customer must not see another's task.
        Ok(found.map(Arc::new).filter(|task| task.intent.account == account))
    }

    async fn in_work(
        &self,
        ledger: &Ledger,
        id: (AccountId, TaskId),
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let (account, id) = id;
        Ok(task_of(&ledger.shard(account).lock(), account, id).cloned())
    }

    async fn listed(&self, ledger: &Ledger, id: TaskId) -> Result<Option<ListedTask>, LedgerError> {
        let ask = move |store: &Store| {
            let Some(task) = store.task(AccountId::OPERATOR, Some(id), "")? else {
                return Ok(None);
            };
            Ok(Some(ListedTask { task, tried: store.tried(id)? }))
        };
        ledger.query(ask).await
    }

    async fn tried(
        &self,
        ledger: &Ledger,
        id: TaskId,
    ) -> Result<Option<DeliveryAttempt>, LedgerError> {
        ledger.query(move |store| store.tried(id)).await
    }

    async fn list(
        &self,
        ledger: &Ledger,
        query: TaskQuery,
    ) -> Result<Option<TaskPage>, LedgerError> {
        let TaskQuery { account, filter, after, limit } = query;
        let list = move |store: &Store| {
            let is_match = |task: &Task| filter.as_ref().is_none_or(|filter| filter.wants(task));
            store.tasks(account, after, limit, is_match)
        };
        let Some(found) = ledger.query(list).await? else { return Ok(None) };
        let listed = |(task, tried)| ListedTask { task, tried };
        let tasks = found.tasks.into_iter().map(listed).collect();
        Ok(Some(TaskPage { tasks, next_after: found.next_after }))
    }

    async fn in_doubt(&self, ledger: &Ledger) -> Result<Vec<Arc<Task>>, LedgerError> {
        let mut tasks = ledger.tasks_in_work();
        tasks.retain(|task| matches!(task.stage, TaskPhase::InDoubt));
        tasks.sort_by_key(|task| (task.intent.at, task.id()));
        Ok(tasks)
    }

    async fn repeated(
        &self,
        ledger: &Ledger,
        account: AccountId,
        repeat: &RepeatKey,
        at: UnixMs,
        within: Duration,
    ) -> Result<RepeatLookup, LedgerError> {
        Ok(ledger.shard(account).lock().repeated(account, repeat, (at, within)))
    }

    async fn answered(&self, ledger: &Ledger, task: &Task, at: UnixMs) -> Result<(), LedgerError> {
        ledger.shard(task.intent.account).lock().note_answer(task, at);
        Ok(())
    }

    async fn forget(
        &self,
        ledger: &Ledger,
        ended_before: UnixMs,
        limit: usize,
    ) -> Result<usize, LedgerError> {
        ledger.query(move |store| store.forget_tasks(ended_before, limit)).await
    }

    async fn handed_over(&self, _ledger: &Ledger) -> Result<HashSet<HoldId>, LedgerError> {
        Ok(HashSet::new())
    }
}

/// The account's task of this id: a shard has those of several accounts.
fn task_of(core: &Core, account: AccountId, id: TaskId) -> Option<&Arc<Task>> {
    core.task(id).filter(|task| task.intent.account == account)
}

/// Opens a task in memory, unless it repeats another.
fn enter(
    ledger: &Ledger,
    hold: Hold,
    task: Arc<Task>,
    repeat_within: Duration,
) -> Result<Seq, LedgerError> {
    let (account, at) = (task.intent.account, task.intent.at);
    let mut core = ledger.shard(account).lock();
    let repeated =
        // Looked up and entered under one lock: two equal submits at one time order one video.
        task.intent.repeat.map(|repeat| core.repeated(account, &repeat, (at, repeat_within)));
    if !matches!(repeated, None | Some(RepeatLookup::New)) {
        drop(core);
        hold.void(VoidReason::Unreached);
        return Err(LedgerError::Conflict);
    }
    let seq = ledger.commit(&mut core, Record::Task(task));
    drop(core);
    match seq {
        Ok(seq) => {
            // From its record on, the end of the task settles the hold. Dropped as open, it would be voided
            // here as well.
            hold.pass_on();
            Ok(seq)
        }
        Err(stopped) => Err(stopped.into()),
    }
}

/// Changes a task in memory, together with a record that goes before; `None` when it cannot become so.
fn alter(
    ledger: &Ledger,
    id: (AccountId, TaskId),
    change: &ChangeTask<'_>,
    beside: Option<Record>,
) -> Result<Option<(Arc<Task>, Seq)>, LedgerError> {
    let (account, id) = id;
    let mut core = ledger.shard(account).lock();
    let Some(before) = task_of(&core, account, id) else { return Ok(None) };
    let after = change(before);
    if !before.can_become(&after) {
        return Ok(None);
    }
    let is_taken = is_unanswered(before) && matches!(after.stage, TaskPhase::Submitted { .. });
    let after = Arc::new(after);
    // One group: a crash between the two would announce an end again that was delivered.
    let records = beside.into_iter().chain([Record::Task(Arc::clone(&after))]);
    let seq = ledger.commit_all(&mut core, records)?;
    // From the answer on, not from the submit: a customer who waited an hour for it still has the whole
    // time to retry.
    if is_taken {
        core.note_answer(&after, UnixMs::now());
    }
    Ok(Some((after, seq)))
}

/// Ends a task and its hold in memory; `None` when it has ended before.
fn finish(
    ledger: &Ledger,
    id: (AccountId, TaskId),
    end: (&str, String),
    settlement: TaskSettlement,
) -> Result<Option<(Arc<Task>, Seq)>, LedgerError> {
    let (account, id) = id;
    let at = UnixMs::now();
    let mut core = ledger.shard(account).lock();
    let before = task_of(&core, account, id).filter(|task| task.ended().is_none()).cloned();
    let Some(before) = before else { return Ok(None) };
    let (records, task) = ending(&core, &before, end, settlement, at);
    let seq = ledger.commit_all(&mut core, records)?;
    Ok(Some((task, seq)))
}

/// The records that end a task and its hold, and the task as it is then.
fn ending(
    core: &Core,
    before: &Arc<Task>,
    end: (&str, String),
    settlement: TaskSettlement,
    at: UnixMs,
) -> (Vec<Record>, Arc<Task>) {
    let (state, document) = end;
    let Intent { account, hold, .. } = *before.intent;
    let (mut records, charged, usage) = end_hold(core, account, hold, settlement, at);
    let task = Arc::new(ended_as(before, (state, &document), (charged, usage), at));
    records.push(Record::Task(Arc::clone(&task)));
    (records, task)
}

/// Records that end a hold, the customer's charge, and the usage.
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
