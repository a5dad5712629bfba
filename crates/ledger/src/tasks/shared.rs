//! Tasks of a fleet: they stand in its database, and the money that pays for them goes there with
//! them. What this node's journal has of a task is the hold, until the database has taken it over.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tollgate_options::ledger::REPEATED_WITHIN;

use crate::memory::Ledger;
use crate::memory::act::ActorScope;
use crate::memory::hold::Hold;
use crate::memory::registry::TaskRegistry;
use crate::ports::tasks::{
    ChangeTask, ListedTask, OpenTask, PreparedOpening, TaskEnding, TaskOpened, TaskPage, TaskQuery,
    TaskStore, TaskStoreError,
};
use crate::records::error::LedgerError;
use crate::records::hold_end::VoidReason;
use crate::records::record::{JournaledRecord, Record};
use crate::records::reservation::OpenHold;
use crate::records::task::{DeliveryAttempt, RepeatKey, Task, TaskPhase};
use crate::rules::core::{OtherFunds, Post};
use crate::rules::settlement::{Settlement, TaskSettlement};
use crate::rules::submit::RepeatLookup;
use crate::tasks::local::LocalRegistry;
use crate::tasks::task::{ended_as, resolution};
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, TaskId};

/// Time for which writing an upstream's status of a task is retried while its customer or the next poll
/// waits: a failover of the database takes less.
const PATIENCE: Duration = Duration::from_secs(30);
/// The wait before the second try; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Result of a write that was retried.
struct RetriedWrite<T> {
    value: T,
    /// An earlier attempt may have made the write.
    was_unknown: bool,
}

/// Retries until there is an answer, for at most [`PATIENCE`].
async fn persist<T, F: Future<Output = Result<T, TaskStoreError>> + Send>(
    mut ask: impl FnMut() -> F + Send,
) -> Result<RetriedWrite<T>, TaskStoreError> {
    let (begun, mut wait, mut was_unknown) = (Instant::now(), FIRST_WAIT, false);
    loop {
        let error = match ask().await {
            Ok(value) => return Ok(RetriedWrite { value, was_unknown }),
            Err(error @ TaskStoreError::Failed(_)) => return Err(error),
            Err(error) => error,
        };
        // Kept over all tries: any of them may have been committed before its connection broke.
        was_unknown |= matches!(error, TaskStoreError::Unknown(_));
        if begun.elapsed() >= PATIENCE {
            return Err(error);
        }
        log::warn!("a task could not be written, which is tried again: {error}");
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(WAIT_MAX);
    }
}

/// The tasks of a ledger that stand with those of others.
pub(crate) struct SharedRegistry(pub(crate) Arc<dyn TaskStore>);

#[async_trait]
impl TaskRegistry for SharedRegistry {
    /// Opens a task where the fleet has its tasks, and hands its hold over. All of it goes on when the
    /// caller does not wait for it any more.
    async fn open(
        &self,
        _ledger: &Ledger,
        hold: Hold,
        task: Arc<Task>,
        repeat_within: Duration,
    ) -> Result<(), LedgerError> {
        let ledger = hold.ledger();
        let account = task.intent.account;
        let open = ledger.shard(account).lock().hold(hold.id()).cloned();
        let Some(open) = open else { return Err(LedgerError::UnknownHold(hold.id())) };
        let opening = match self.0.prepare(&task, open, repeat_within) {
            Ok(opening) => opening,
            Err(error) => {
                hold.void(VoidReason::Unreached);
                return Err(error.into());
            }
        };
        let transfer = Transfer { ledger, shared: Arc::clone(&self.0), opening, task };
        // A task of its own: a customer who disconnects drops this future, and money would be left
        // between ledger and database.
        let transferred = tokio::spawn(transfer.run(hold)).await;
        transferred.unwrap_or(Err(LedgerError::Stopped))
    }

    async fn change(
        &self,
        _ledger: &Ledger,
        id: (AccountId, TaskId),
        change: &ChangeTask<'_>,
        tried: Option<DeliveryAttempt>,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let persisted = persist(|| self.0.change(id.0, id.1, change, tried.as_ref())).await?;
        Ok(persisted.value)
    }

    async fn end(
        &self,
        _ledger: &Ledger,
        id: (AccountId, TaskId),
        end: (&str, String),
        settlement: TaskSettlement,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let (state, document) = end;
        let at = UnixMs::now();
        let decide = |open: &OpenTask| -> Result<TaskEnding, LedgerError> {
            Ok(ending(open, (state, &document), settlement, at))
        };
        let RetriedWrite { value, was_unknown } =
            persist(|| self.0.end(id.0, id.1, &decide)).await?;
        let ended = value?;
        // Without a lost answer, `None` means that somebody else has ended it.
        if ended.is_some() || !was_unknown {
            return Ok(ended);
        }
        // The try that was not answered may have ended it.
        let found_task = self.0.any_task(id.1).await?.map(|found| Arc::new(found.task));
        Ok(found_task.filter(|task| {
            task.ended().is_some_and(|ended| ended.at == at && ended.state == state)
        }))
    }

    /// Ends the task first: if its audit record cannot be written then, repeating the request writes it.
    async fn resolve(
        &self,
        by: &ActorScope<'_>,
        id: (AccountId, TaskId),
        end: (&str, String),
        charge: Option<Nanousd>,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let (account, id) = id;
        let (state, document) = end;
        if by.was_done("task.resolve", account)? {
            return Ok(None);
        }
        let at = UnixMs::now();
        let decide = |open: &OpenTask| {
            if open.task.stage != TaskPhase::InDoubt {
                return Err(LedgerError::NoDoubt(id));
            }
            let settlement = resolution(charge, open.hold.amount)?;
            Ok(ending(open, (state, &document), settlement, at))
        };
        let RetriedWrite { value, .. } = persist(|| self.0.end(account, id, &decide)).await?;
        let task = match value? {
            Some(task) => task,
            None => {
                let found_task = self.0.any_task(id).await?.map(|found| Arc::new(found.task));
                let is_same = |task: &Arc<Task>| {
                    task.intent.account == account
                        && task.ended().is_some_and(|ended| {
                            (&*ended.state, &ended.document, ended.charged)
                                == (state, &document, charge.unwrap_or_default())
                        })
                };
                // The end stands, perhaps without its audit record: a request with an idempotency key that
                // asks for exactly this end may write it.
                let found_task =
                    found_task.filter(|task| by.idempotency.id.is_some() && is_same(task));
                found_task.ok_or(LedgerError::NoDoubt(id))?
            }
        };
        // After the end, which may fail: an act that nothing follows would mislead an audit.
        by.note("task.resolve", account, &id.to_string()).await?;
        Ok(Some(task))
    }

    async fn announce_again(&self, by: &ActorScope<'_>, task: Task) -> Result<(), LedgerError> {
        let (account, id) = (task.intent.account, task.id());
        if by.was_done("task.announce", account)? {
            return Ok(());
        }
        let webhook = task.webhook;
        let change = move |found_task: &Task| Task { webhook, ..found_task.clone() };
        self.change(by.ledger, (account, id), &change, None).await?;
        by.note("task.announce", account, &id.to_string()).await?;
        Ok(())
    }

    async fn find(
        &self,
        _ledger: &Ledger,
        account: AccountId,
        id: &str,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        Ok(self.0.task(account, id).await?)
    }

    async fn in_work(
        &self,
        _ledger: &Ledger,
        id: (AccountId, TaskId),
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        let (account, id) = id;
        let found = self.0.any_task(id).await?.map(|found| Arc::new(found.task));
        Ok(found.filter(|task| !task.is_done() && task.intent.account == account))
    }

    async fn listed(
        &self,
        _ledger: &Ledger,
        id: TaskId,
    ) -> Result<Option<ListedTask>, LedgerError> {
        Ok(self.0.any_task(id).await?)
    }

    async fn tried(
        &self,
        _ledger: &Ledger,
        id: TaskId,
    ) -> Result<Option<DeliveryAttempt>, LedgerError> {
        Ok(self.0.any_task(id).await?.and_then(|found| found.tried))
    }

    async fn list(
        &self,
        _ledger: &Ledger,
        query: TaskQuery,
    ) -> Result<Option<TaskPage>, LedgerError> {
        Ok(self.0.list(&query).await?)
    }

    async fn in_doubt(&self, _ledger: &Ledger) -> Result<Vec<Arc<Task>>, LedgerError> {
        Ok(self.0.in_doubt().await?)
    }

    async fn repeated(
        &self,
        _ledger: &Ledger,
        account: AccountId,
        repeat: &RepeatKey,
        at: UnixMs,
        within: Duration,
    ) -> Result<RepeatLookup, LedgerError> {
        Ok(self.0.repeated(account, repeat, at, within).await?)
    }

    async fn answered(&self, _ledger: &Ledger, task: &Task, at: UnixMs) -> Result<(), LedgerError> {
        Ok(self.0.answered(task, at).await?)
    }

    /// Forgets also what the ledger has of the time before it shared its tasks.
    async fn forget(
        &self,
        ledger: &Ledger,
        ended_before: UnixMs,
        limit: usize,
    ) -> Result<usize, LedgerError> {
        LocalRegistry.forget(ledger, ended_before, limit).await?;
        Ok(self.0.forget(ended_before, REPEATED_WITHIN, limit).await?)
    }

    async fn handed_over(&self, ledger: &Ledger) -> Result<HashSet<HoldId>, LedgerError> {
        Ok(self.0.with_holds(&ledger.open_hold_ids()).await?)
    }
}

/// A task and its money on their way into the database.
struct Transfer {
    ledger: Arc<Ledger>,
    shared: Arc<dyn TaskStore>,
    opening: Box<dyn PreparedOpening>,
    task: Arc<Task>,
}

impl Transfer {
    async fn run(self, hold: Hold) -> Result<(), LedgerError> {
        // On disk before the database takes the money over: after a crash, a journal without the hold would
        // give back as free what the task holds there.
        if let Err(error) = hold.durable().await {
            hold.void(VoidReason::Unreached);
            return Err(error);
        }
        // From here on only what the database says ends it; after a crash the next start asks.
        hold.pass_on();
        match self.opening.open().await {
            Ok(TaskOpened::Done) => {
                // Only after the database has committed; a crash in between is found by `handed_over` at
                // the next start.
                self.ledger.hand_over(self.task.intent.account, self.task.intent.hold);
                Ok(())
            }
            Ok(TaskOpened::Repeated) => {
                end_here(&self.ledger, voided(&self.task))?;
                Err(LedgerError::Conflict)
            }
            Ok(TaskOpened::Refused) => {
                end_here(&self.ledger, voided(&self.task))?;
                let cause = "this node's term is over, or what it was lent is not there";
                Err(LedgerError::Unavailable(cause.to_owned()))
            }
            Err(error @ TaskStoreError::Unknown(_)) => {
                log::warn!("{} may be opened, and is given up: {error}", self.task.id());
                // The customer gets the error now: nobody waits for a database that is away.
                tokio::spawn(self.find_out());
                Err(error.into())
            }
            Err(error) => {
                end_here(&self.ledger, voided(&self.task))?;
                Err(error.into())
            }
        }
    }

    /// Asks until the database says whether it has the task, for as long as the ledger is open. No
    /// upstream was asked: a task that is there ends without a charge.
    async fn find_out(self) {
        let Self { ledger, shared, opening, task } = self;
        // Weak, so that a database that never answers does not keep the ledger from closing.
        let ledger = Arc::downgrade(&ledger);
        let settle = || opening.settle();
        let Some(is_open) = until_settled(&ledger, settle).await else { return };
        let (account, hold) = (task.intent.account, task.intent.hold);
        if is_open {
            let at = UnixMs::now();
            let decide = |open: &OpenTask| -> Result<TaskEnding, LedgerError> {
                Ok(ending(open, ("failed", NOT_OPENED), TaskSettlement::Void, at))
            };
            let end = || shared.end(account, task.id(), &decide);
            if until_settled(&ledger, end).await.is_none() {
                return;
            }
        }
        let Some(ledger) = ledger.upgrade() else { return };
        if is_open {
            ledger.hand_over(account, hold);
        } else if let Err(error) = end_here(&ledger, voided(&task)) {
            log::warn!("{hold} is left to the next start: {error}");
        }
    }
}

/// Document of a task whose opening had an unknown outcome.
const NOT_OPENED: &str = r#"{"error":{"code":"rejected","message":"No upstream took the task."}}"#;

/// Asks until there is an answer; `None` once the ledger is gone.
async fn until_settled<T, F: Future<Output = Result<T, TaskStoreError>>>(
    ledger: &Weak<Ledger>,
    mut ask: impl FnMut() -> F,
) -> Option<T> {
    let mut wait = FIRST_WAIT;
    while ledger.strong_count() > 0 {
        match ask().await {
            Ok(found_task) => return Some(found_task),
            Err(error) => log::warn!("it is not known yet whether a task was opened: {error}"),
        }
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(WAIT_MAX);
    }
    None
}

fn end_here(ledger: &Ledger, record: Record) -> Result<(), LedgerError> {
    let mut core = ledger.shard(record.account()).lock();
    ledger.commit(&mut core, record)?;
    Ok(())
}

fn voided(task: &Task) -> Record {
    let (account, hold) = (task.intent.account, task.intent.hold);
    Record::Voided { account, hold, reason: VoidReason::Unreached, at: UnixMs::now() }
}

/// Ends a task that holds money of a fleet's account. A charge above the hold takes money of the account that
/// no node has leased; the rest becomes debt: see [`Post::over`].
fn ending(
    open: &OpenTask,
    end: (&str, &str),
    settlement: TaskSettlement,
    at: UnixMs,
) -> TaskEnding {
    let (state, document) = end;
    let OpenTask { task, hold, available, debt } = open;
    let (account, id) = (task.intent.account, task.intent.hold);
    // A clock may have been set back, or be another node's.
    let at = at.max(hold.reservation.at);
    let (record, charged, usage, amount) = match settlement {
        TaskSettlement::Void => {
            let reason = VoidReason::UpstreamError;
            let record = Record::Voided { account, hold: id, reason, at };
            (record, Nanousd::ZERO, Usage::ZERO, hold.amount)
        }
        TaskSettlement::Post(Settlement { charge, usage, source }) => {
            let beside = OtherFunds { available: *available, debt: *debt };
            let post = Post::over(id, hold, beside, charge, (usage, source), at);
            let amount = post.held(hold.amount);
            (post.record, post.charged, usage, amount)
        }
    };
    let hold = OpenHold { amount, ..hold.clone() };
    let journaled = JournaledRecord { seq: id.number(), record, hold: Some(hold) };
    TaskEnding { task: ended_as(task, (state, document), (charged, usage), at), journaled }
}
