//! The agenda of a process that has its tasks to itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::live::{AllLive, Live};
use super::timetable::Timetable;
use super::{Due, FoundTask, Look, Occasion, Said, is_open};
use crate::clock::UnixMs;
use crate::ledger::{AccountId, Ledger, LedgerError, Task, TaskId};
use crate::protocols::task::Report;
use crate::tasks::slots::Slots;

/// What is due, and what upstreams said, in memory: a start fills the one from the ledger and asks for
/// the other again.
pub(super) struct LocalAgenda {
    ledger: Arc<Ledger>,
    timetable: Timetable,
    live: AllLive,
}

impl LocalAgenda {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, timetable: Timetable::default(), live: AllLive::default() }
    }

    pub(super) async fn next(&self, wait_max: Duration) -> Option<Due> {
        self.timetable.next(wait_max).await
    }

    pub(super) fn push(&self, due: Due) {
        self.timetable.push(due);
    }

    pub(super) fn schedule(&self, task: &Task, at: UnixMs) {
        self.push(Due { at, account: task.intent.account, task: task.id(), has_slot: false });
    }

    pub(super) fn open_count(&self) -> u64 {
        self.ledger.open_tasks()
    }

    pub(super) async fn find(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<FoundTask>, LedgerError> {
        let found = self.ledger.task(account, id).await?;
        Ok(found.map(|task| FoundTask {
            said: self.live.last_said(&task),
            // How fresh that is is seen when it is this task's turn.
            is_worth_asking: task.ended().is_none(),
            task,
        }))
    }

    pub(super) fn last_said(&self, task: &Task) -> Said {
        self.live.last_said(task)
    }

    pub(super) fn let_go(&self, task: TaskId) {
        self.live.let_go(task);
    }

    /// Of many who want to know, one asks at a time: the others find what it heard.
    pub(super) async fn turn_to_ask(
        &self,
        task: &Task,
        occasion: Occasion,
        slots: &Slots,
    ) -> Result<LocalAsking<'_>, Look> {
        let fresh = match occasion {
            Occasion::Due => Duration::ZERO,
            Occasion::Wanted(fresh) => fresh,
        };
        let live = self.live(task).await.ok_or(Look::Ended)?;
        let asked = Arc::clone(&live.asked).lock_owned().await;
        let is_fresh = asked.is_some_and(|asked| asked.elapsed() < fresh);
        if is_fresh || slots.rest(&task.upstream, Instant::now()).is_some() {
            return Err(Look::Unended);
        }
        if !is_open(&self.ledger, task).await {
            return Err(Look::Ended);
        }
        Ok(LocalAsking { ledger: &self.ledger, live, asked })
    }

    /// Hears of an end that was asked for here.
    pub(super) async fn wait_for_end(&self, task: &Task, wait_max: Duration) {
        let live = self.live.entry(task);
        // From here on no end is missed.
        let ended = live.ended.notified();
        if is_open(&self.ledger, task).await {
            drop(tokio::time::timeout(wait_max, ended).await);
        } else {
            self.live.let_go(task.id());
        }
    }

    /// What is known of a task that has not ended; `None` once it has.
    async fn live(&self, task: &Task) -> Option<Arc<Live>> {
        let live = self.live.entry(task);
        if is_open(&self.ledger, task).await {
            return Some(live);
        }
        self.live.let_go(task.id());
        None
    }
}

/// A turn to ask how a task is: whoever else wants to know waits for its end.
pub(super) struct LocalAsking<'a> {
    ledger: &'a Ledger,
    live: Arc<Live>,
    asked: OwnedMutexGuard<Option<Instant>>,
}

impl LocalAsking<'_> {
    pub(super) fn asked(&mut self) {
        *self.asked = Some(Instant::now());
    }

    pub(super) async fn ended(self, task: &Task) -> Look {
        self.live.ended.notify_waiters();
        if is_open(self.ledger, task).await { Look::Unended } else { Look::Ended }
    }

    pub(super) fn note(self, heard: Option<Report>) {
        let Some(report) = heard else { return };
        let mut said = self.live.said.lock();
        if said.state != report.state {
            said.changed_at = UnixMs::now();
        }
        (said.state, said.document) = (report.state, report.document);
    }
}
