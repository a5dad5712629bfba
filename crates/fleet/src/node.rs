//! A node at work: it joins, and syncs with the treasury for as long as it runs.

pub mod follow;
pub mod share;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::LocalMoney;
use super::borrower::{Borrower, Waiter};
use super::lease::{JoinResponse, SyncRefusal, SyncRequest, SyncResponse};
use super::postgres::DbError;
use super::{Fleet, FleetError, NodeEvent};
use tollgate_ledger::{AccountId, LeaseWait, Ledger, RecoveryPolicy};

/// The delay before an unanswered sync is sent again; it doubles each time.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// The latest. A node finds a database that is back within this.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Attempts at a sync of a node that joins before the process ends: the node waits for a busy database and
/// reports one that is down.
const CLEAR_TRIES_MAX: u32 = 5;
/// The interval between searches for silent nodes.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between checks of open holds by a node that must join again.
const DRAIN_POLL: Duration = Duration::from_millis(200);
/// The time within which a second exclusion means that another process uses the same data; the node stops
/// then. An operator who resolves a node's suspense excludes it only once.
const SHUT_OUT_AGAIN: Duration = Duration::from_secs(60);
/// The time that a stopping node waits for its last sync. Without it its leases go to suspense until it
/// joins again.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// A node that has joined the fleet.
pub struct Node {
    fleet: Arc<Fleet>,
    ledger: Arc<Ledger>,
    policy: RecoveryPolicy,
    money: LocalMoney,
    borrower: Borrower,
    /// Calls that wait for money.
    waiting: HashMap<Waiter, (AccountId, oneshot::Sender<LeaseWait>)>,
    swept_at: Duration,
    sweeping: Option<JoinHandle<()>>,
}

/// The reason why a node stops syncing.
enum NodeEnd {
    /// The node is asked to stop.
    Stopped,
    /// The node must join again before it can continue.
    ShutOut(SyncRefusal),
}

/// Joins the fleet: follows the directory, settles holds left open by a crash, and returns all leases of this
/// node. The ledger must have been opened for this fleet.
///
/// # Errors
/// [`FleetError`]. The node has nothing to spend then.
pub async fn join(
    fleet: &Arc<Fleet>,
    ledger: &Arc<Ledger>,
    policy: RecoveryPolicy,
) -> Result<Node, FleetError> {
    let version = env!("CARGO_PKG_VERSION");
    let joined = fleet.db.join(fleet.node, &fleet.name, version).await?;
    let joined = joined.ok_or_else(|| FleetError::OtherFleet(ledger.dir().to_owned()))?;
    fleet.epoch.store(joined.epoch, Ordering::Release);
    // Accounts must be there before money of them is.
    let followed = ledger.catch_up().await;
    followed.map_err(|error| FleetError::Db(DbError::Unavailable(error.to_string())))?;
    // None of them can go to the treasury any more, now that the node has another life.
    let handed_over = ledger.handed_over().await;
    let handed_over =
        handed_over.map_err(|error| FleetError::Db(DbError::Unavailable(error.to_string())))?;
    let in_doubt = ledger.end_left_open(policy, &handed_over);
    if in_doubt > 0 {
        log::warn!("{in_doubt} holds that a crash left open are in doubt");
    }
    ledger.give_back_everything();
    let mut node = Node {
        fleet: Arc::clone(fleet),
        ledger: Arc::clone(ledger),
        policy,
        money: LocalMoney::new(ledger),
        borrower: borrower(fleet, joined),
        waiting: HashMap::new(),
        swept_at: Duration::ZERO,
        sweeping: None,
    };
    node.clear(joined).await?;
    Ok(node)
}

impl Node {
    /// Reports all records that the treasury lacks, and states that nothing is left.
    async fn clear(&mut self, joined: JoinResponse) -> Result<(), FleetError> {
        self.borrower = borrower(&self.fleet, joined);
        let mut tries = 0;
        loop {
            let (now, borrower, money) = (self.fleet.now(), &mut self.borrower, &mut self.money);
            let sync = tokio::task::block_in_place(|| borrower.clearing(now, money));
            let unread = |_| DbError::Failed("the journal cannot be reported".to_owned());
            let sync = sync.map_err(unread)?;
            match self.fleet.db.sync(&sync, self.fleet.term).await {
                Ok(Ok(answer)) => self.take(&answer),
                // It is sent again as it is.
                Err(DbError::Unknown(_) | DbError::Unavailable(_)) if tries < CLEAR_TRIES_MAX => {
                    tries += 1;
                    tokio::time::sleep(RETRY_FIRST * tries).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
                Ok(Err(refused)) => {
                    let message = format!("the treasury refuses {}: {refused:?}", self.fleet.node);
                    return Err(FleetError::Db(DbError::Failed(message)));
                }
            }
            if sync.is_clear {
                return Ok(());
            }
        }
    }

    /// Syncs until it is stopped, then returns the rest of its leases.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut shut_out_at = None;
        loop {
            let NodeEnd::ShutOut(why) = self.run_until_end(&mut stop).await else {
                return self.leave().await;
            };
            self.fleet.end_term();
            let now = self.fleet.now();
            // A treasury that has forgotten syncs tells of a failover, and there may be another one.
            let is_forgotten = matches!(why, SyncRefusal::OutOfOrder { .. });
            let before = if is_forgotten { None } else { shut_out_at.replace(now) };
            if before.is_some_and(|before| now.saturating_sub(before) < SHUT_OUT_AGAIN) {
                log::error!(
                    "{} was shut out of the fleet twice: another process has its data, and joins in \
                     its place. It takes no calls any more",
                    self.fleet.node
                );
                return;
            }
            self.join_again(&mut stop).await;
        }
    }

    async fn run_until_end(&mut self, stop: &mut watch::Receiver<bool>) -> NodeEnd {
        let mut retry = RETRY_FIRST;
        loop {
            if self.wait_until_due(stop).await {
                return NodeEnd::Stopped;
            }
            let sync = self.next();
            match self.fleet.db.sync(&sync, self.fleet.term).await {
                Ok(Ok(answer)) => {
                    retry = RETRY_FIRST;
                    self.take(&answer);
                    self.sweep();
                }
                Ok(Err(refused)) => {
                    log::error!(
                        "{} is shut out of the fleet at turn {}: {}. It takes no calls until those in \
                         flight have ended and it has joined again",
                        self.fleet.node,
                        sync.turn,
                        reason(&refused)
                    );
                    return NodeEnd::ShutOut(refused);
                }
                Err(error) => {
                    self.unanswered(&error);
                    tokio::time::sleep(retry).await;
                    retry = retry.saturating_mul(2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Waits until a sync is due. Says whether the node is to stop.
    async fn wait_until_due(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        loop {
            self.take_events();
            let now = self.fleet.now();
            let wait = self.borrower.due_at(now).saturating_sub(now);
            if wait.is_zero() {
                return *stop.borrow();
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => return false,
                // What arrives may be due later.
                () = self.fleet.hurry.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return true,
            }
        }
    }

    fn take_events(&mut self) {
        for event in std::mem::take(&mut *self.fleet.inbox.lock()) {
            match event {
                NodeEvent::Waits { account, amount, since, tell } => {
                    let waiter = self.borrower.wait(account, amount, since);
                    self.waiting.insert(waiter, (account, tell));
                }
                NodeEvent::RunsLow(account) => self.borrower.runs_low(account),
                NodeEvent::Recalled => self.borrower.hurry(),
            }
        }
    }

    /// The sync to send now. Reads the journal, and waits for what is given back to be on disk.
    fn next(&mut self) -> SyncRequest {
        self.take_events();
        // Nobody borrows for calls that were cancelled, and other nodes are not asked for their money.
        let cancelled = self.waiting.extract_if(|_, (_, tell)| tell.is_closed());
        let cancelled: Vec<_> = cancelled.map(|(waiter, (account, _))| (account, waiter)).collect();
        self.borrower.forget(&cancelled);
        let (now, borrower, money) = (self.fleet.now(), &mut self.borrower, &mut self.money);
        tokio::task::block_in_place(|| borrower.sync(now, money))
    }

    fn take(&mut self, answer: &SyncResponse) {
        let verdicts = self.borrower.answered(answer, self.fleet.now(), &mut self.money);
        let until = self.borrower.spend_until();
        let sent_at = until.saturating_sub(self.fleet.term);
        self.fleet.note_sync(sent_at, self.borrower.reported(), answer.nodes);
        self.fleet.note_scarce(self.borrower.scarce().collect());
        self.fleet.begin_term(until);
        self.tell(verdicts);
    }

    fn unanswered(&mut self, error: &DbError) {
        log::warn!("the treasury does not answer: {error}");
        let verdicts = self.borrower.unanswered(self.fleet.now());
        self.tell(verdicts);
    }

    fn tell(&mut self, verdicts: Vec<(Waiter, LeaseWait)>) {
        for (waiter, verdict) in verdicts {
            if let Some((_, tell)) = self.waiting.remove(&waiter) {
                // Who went away needs no answer.
                tell.send(verdict).ok();
            }
        }
    }

    /// Finds silent nodes and moves their leases to suspense. Runs beside the syncs: it waits for locked
    /// accounts, and a term cannot wait.
    fn sweep(&mut self) {
        let now = self.fleet.now();
        let is_sweeping = self.sweeping.as_ref().is_some_and(|sweeping| !sweeping.is_finished());
        if is_sweeping || now.saturating_sub(self.swept_at) < SWEEP_INTERVAL {
            return;
        }
        self.swept_at = now;
        let fleet = Arc::clone(&self.fleet);
        self.sweeping = Some(tokio::spawn(async move {
            match fleet.db.sweep().await {
                Ok(nodes) => nodes.iter().for_each(|node| {
                    // One that was stopped in good order has nothing out.
                    log::warn!("{node} has fallen silent: what it had out, if any, is in suspense");
                }),
                Err(error) => log::warn!("silent nodes cannot be looked for: {error}"),
            }
        }));
    }

    /// Waits until no hold is open, so that what is left can be given back, and joins anew.
    async fn join_again(&mut self, stop: &mut watch::Receiver<bool>) {
        self.waiting.clear();
        loop {
            tokio::select! {
                () = tokio::time::sleep(DRAIN_POLL) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if self.ledger.open_holds() > 0 {
                continue;
            }
            match join(&self.fleet, &self.ledger, self.policy).await {
                Ok(node) => {
                    *self = node;
                    return;
                }
                Err(error) => log::error!("the node cannot join again: {error}"),
            }
        }
    }

    /// Returns money without holds, and reports it if the treasury answers in time.
    async fn leave(mut self) {
        self.fleet.end_term();
        if tokio::time::timeout(LEAVE_TIMEOUT, self.settle_up()).await.is_err() {
            log::warn!(
                "the treasury did not hear what this node gives back: it is in suspense soon"
            );
        }
    }

    async fn settle_up(&mut self) {
        loop {
            // A sync that is under way may still bring something.
            self.ledger.give_back_everything();
            let (now, borrower, money) = (self.fleet.now(), &mut self.borrower, &mut self.money);
            let sync = tokio::task::block_in_place(|| borrower.clearing(now, money));
            let Ok(sync) = sync else { return };
            // To say that nothing is left would be untrue: calls in flight still end with a charge. Their
            // money goes to suspense, until this node joins again.
            if sync.is_clear && self.ledger.open_holds() > 0 {
                return;
            }
            match self.fleet.db.sync(&sync, self.fleet.term).await {
                Ok(Ok(answer)) => {
                    let now = self.fleet.now();
                    let verdicts = self.borrower.answered(&answer, now, &mut self.money);
                    self.tell(verdicts);
                }
                Ok(Err(_)) => return,
                Err(_) => tokio::time::sleep(RETRY_FIRST).await,
            }
            if sync.is_clear {
                return;
            }
        }
    }
}

fn borrower(fleet: &Fleet, joined: JoinResponse) -> Borrower {
    Borrower::new(fleet.node, joined, fleet.term).covering(fleet.cover)
}

/// Describes why the treasury rejects this epoch of a node.
fn reason(refused: &SyncRefusal) -> String {
    match refused {
        SyncRefusal::UnknownNode => "the treasury does not know it".to_owned(),
        SyncRefusal::Superseded => {
            "an operator has resolved what it had out, or another process has joined as it"
                .to_owned()
        }
        SyncRefusal::OutOfOrder { reported, turn } => format!(
            "the treasury has forgotten syncs: it has turn {turn} and the journal up to {reported}"
        ),
        SyncRefusal::Unsound(account) => format!("its report of {account} does not add up"),
    }
}
