//! Work that outlives its request, and the hold that pays for it.
//!
//! A task is on disk before its upstream is asked, again with the upstream's id before its customer
//! is answered, and once more with its end, in the same group commit as the end of its hold. So it is
//! settled once, whoever sees the end first, and a crash leaves no doubt which of the three it was.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMs;
use crate::ledger::core::Core;
use crate::ledger::error::LedgerError;
use crate::ledger::hold::{Hold, Settlement};
use crate::ledger::record::{Record, VoidReason};
use crate::ledger::{AccountId, HoldId, KeyId, Ledger, Seq, TaskId};
use crate::money::Nanousd;
use crate::price::{Prices, Usage, UsageSource};

/// The largest document of an upstream that is kept, in bytes: rows of the sled ledger have a bound.
const DOCUMENT_BYTES_MAX: usize = 16 << 10;
/// How long a task is kept after its end (spec section 8: 7 to 8 days).
pub const KEPT_MS: u64 = 8 * 24 * 3600 * 1000;
/// How long a repeated submit is recognised at most.
pub const REPEATED_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// A task as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What never changes.
    pub intent: Arc<Intent>,
    /// The upstream that was asked last, by its name in `routes.yaml`; where it has several
    /// credentials, the name of the one that was used behind a slash.
    pub upstream: String,
    /// What that upstream calls the model.
    pub upstream_model: String,
    /// How far it is.
    pub stage: Stage,
    /// The announcement of its end.
    pub webhook: Webhook,
}

/// What is known of a task when it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Its id.
    pub id: TaskId,
    /// Whose it is.
    pub account: AccountId,
    /// With which key it was submitted.
    pub key: KeyId,
    /// What pays for it.
    pub hold: HoldId,
    /// The public id of the model.
    pub model: Arc<str>,
    /// The word of the protocol that its upstream speaks.
    pub protocol: String,
    /// What a unit costs, whatever is reloaded meanwhile.
    pub prices: Prices,
    /// What the protocol keeps of the request, in its own encoding.
    pub facts: Vec<u8>,
    /// Where its end is announced.
    pub webhook_url: Option<String>,
    /// What marks a repetition of the submit.
    pub repeat: Option<Repeat>,
    /// When it was submitted.
    pub at: UnixMs,
    /// When it is given up.
    pub expires_at: UnixMs,
}

/// What marks a repetition of a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// The SHA-256 of what the customer calls the submit.
    pub key: [u8; 32],
    /// The SHA-256 of its body.
    pub body: [u8; 32],
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The upstream is about to be asked, or has been and has not answered. Found at a start, it is in
    /// doubt: the upstream may be at work.
    Submitting,
    /// The upstream did not answer a submit that it may have taken: in doubt until it expires.
    InDoubt,
    /// The upstream has it.
    Submitted {
        /// The upstream's id of it.
        upstream_id: String,
    },
    /// It is over, and its hold with it.
    Ended(Ended),
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The upstream's id of it, if it had one.
    pub upstream_id: Option<String>,
    /// How it ended, in the customers' words.
    pub state: String,
    /// What the upstream said last, as the customer's record needs it: JSON.
    pub document: String,
    /// What the customer paid.
    pub charged: Nanousd,
    /// What was used.
    pub usage: Usage,
    /// When.
    pub at: UnixMs,
}

/// The announcement of a task's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Webhook {
    /// Nobody is told.
    None,
    /// It is due, or will be when the task ends.
    Due {
        /// Tries that failed.
        tries: u32,
        /// When to try; not before the end.
        at: UnixMs,
    },
    /// It was delivered.
    Delivered,
    /// It could not be delivered, and is not tried again.
    GivenUp,
}

impl Task {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> TaskId {
        self.intent.id
    }

    /// The upstream's id of it, once there is one.
    #[must_use]
    pub fn upstream_id(&self) -> Option<&str> {
        match &self.stage {
            Stage::Submitting | Stage::InDoubt => None,
            Stage::Submitted { upstream_id } => Some(upstream_id),
            Stage::Ended(ended) => ended.upstream_id.as_deref(),
        }
    }

    /// The name of its upstream.
    #[must_use]
    pub fn upstream_name(&self) -> &str {
        self.upstream.split_once('/').map_or(&self.upstream, |(name, _)| name)
    }

    /// The name of the credential that the upstream knows it by; empty where there is only one.
    #[must_use]
    pub fn credential_name(&self) -> &str {
        self.upstream.split_once('/').map_or("", |(_, name)| name)
    }

    /// Its end, if it is over.
    #[must_use]
    pub fn ended(&self) -> Option<&Ended> {
        match &self.stage {
            Stage::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Whether nothing remains to be done for it.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.ended().is_some() && !matches!(self.webhook, Webhook::Due { .. })
    }

    /// Whether `self` can become `next`: the table of a task's stages.
    #[must_use]
    pub fn can_become(&self, next: &Self) -> bool {
        use Stage::{Ended, InDoubt, Submitted, Submitting};
        let stages = match (&self.stage, &next.stage) {
            // Another upstream is asked; it was taken; nobody knows; nobody took it.
            (Submitting, _)
            | (InDoubt, Submitted { .. } | Ended(_))
            | (Submitted { .. }, Ended(_)) => true,
            // The announcement goes on.
            (Ended(before), Ended(after)) => before == after,
            _ => false,
        };
        stages && self.intent == next.intent
    }
}

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

/// What a submit that may be a repetition comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// It is new.
    New,
    /// The same was submitted before, as this task.
    Same(TaskId),
    /// Something else was submitted under the same name.
    Other,
}

impl Ledger {
    /// Opens a task that `hold` pays for. From here on only its end ends the hold. It is on disk
    /// when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`]; the hold is voided then. [`LedgerError::Conflict`] when a submit
    /// of the same name has come within `repeat_within`; the hold is voided then as well.
    /// [`LedgerError::Unavailable`] in a fleet; the hold ends then, if not at once.
    pub async fn open_task(
        &self,
        hold: Hold,
        task: Arc<Task>,
        repeat_within: Duration,
    ) -> Result<(), LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Self::open_shared(&shared, hold, &task, repeat_within).await;
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
            return Self::change_shared(&shared, id, &change, None).await;
        }
        let Some((task, seq)) = self.alter_task(id, change, None)? else { return Ok(None) };
        self.task_durable(seq).await?;
        Ok(Some(task))
    }

    /// Changes a task, together with a record that goes before; `None` when it cannot become so.
    pub(super) fn alter_task(
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
            return Self::end_shared(&shared, id, what, settlement).await;
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
    pub(super) async fn task_durable(&self, seq: Seq) -> Result<(), LedgerError> {
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
            let found = shared.any_task(id).await?.map(|found| found.task);
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
            return Ok(shared.task(account, id).await?.map(|found| found.task));
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
            return Ok(shared.repeated(account, repeat, (at, within)).await?);
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

/// The records that end a task and its hold, and the task as it is then.
pub(super) fn ending(
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
pub(super) fn ended_as(
    before: &Task,
    (state, document): (&str, &str),
    (charged, usage): (Nanousd, Usage),
    at: UnixMs,
) -> Task {
    let ended = Ended {
        upstream_id: before.upstream_id().map(str::to_owned),
        state: state.to_owned(),
        document: bounded(document).to_owned(),
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

/// A document that fits a row; one that does not is left out.
fn bounded(document: &str) -> &str {
    if document.len() <= DOCUMENT_BYTES_MAX { document } else { "null" }
}

/// Whether `at` is less than `within` before `now`.
pub(super) fn is_recent(at: UnixMs, (now, within): (UnixMs, Duration)) -> bool {
    Duration::from_millis(now.0.saturating_sub(at.0)) < within
}
