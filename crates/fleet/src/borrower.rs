//! The node's side of leases, pure: loan requests, returns, the term for spending leased money, and the
//! outcomes of calls that wait for money.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod need;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use super::lease::{Epoch, JoinResponse, Loan, LoanRequest, SyncRequest, SyncResponse, Turn};
use need::{Need, Waiting};
use tollgate_ledger::{AccountId, LeaseReport, LeaseWait, NodeId, RECORDS_MAX, Seq};
use tollgate_money::money::Nanousd;

/// The interval between syncs while nothing makes one urgent: the longest delay of another node's writes
/// here, even if the database sends no notifications.
pub const BEAT: Duration = Duration::from_millis(500);
/// A refusal for want of money waits this long for what other nodes give back.
pub const RECALL_WAIT: Duration = Duration::from_millis(250);
/// The interval between requests for a recalled account.
const RECALL_BEAT: Duration = Duration::from_millis(50);
/// The longest wait for money while the treasury does not answer: longer than the database takes to release
/// the rows that a stopped or disconnected node has locked.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// Nobody waits longer for money than for an answer and a recall together.
pub const WAIT_MAX: Duration = ANSWER_WAIT.saturating_add(RECALL_WAIT);
/// The seconds of holds to borrow ahead, at the recent rate. The money is free again when they end, except
/// for their charges.
const AHEAD_S: i64 = 2;
/// The idle time after which an account needs no money here; the covered time instead, if that is longer and
/// the account has plenty.
const IDLE: Duration = Duration::from_secs(5);
/// Minimum lease, if available: a cent, so that the first calls of an account do not each wait for the
/// treasury.
const FLOOR: Nanousd = Nanousd::new(10_000_000);

/// The most loan requests of one sync: a busy database grants as many within a second. A sync too large to
/// finish in time would be repeated unchanged for ever.
const ASKS_MAX: usize = 5_000;

/// The number of a call that waits for money of an account.
pub type Waiter = u64;

/// A node's local money as seen by the borrower: the node's ledger, or a simulated one.
pub trait LocalFunds {
    /// The leased money of an account that no hold covers.
    fn available(&self, account: AccountId) -> Nanousd;
    /// The leased money under open holds; it becomes available when they end.
    fn held(&self, account: AccountId) -> Nanousd;
    /// The sum of all holds of the account since this process began, ended ones included: it only grows.
    fn reserved(&self, account: AccountId) -> Nanousd;
    /// Removes `amount` of available money from the ledger; returns false if there is less.
    fn give_back(&mut self, account: AccountId, amount: Nanousd) -> bool;
    /// Adds `amount` to the account's money on this node.
    fn take_in(&mut self, account: AccountId, amount: Nanousd);
    /// Sets the threshold below which the ledger reports that the account runs low.
    fn watch(&mut self, account: AccountId, below: Nanousd);
    /// Reports the journal after `from`, up to its durable end.
    ///
    /// # Errors
    /// [`Unreadable`]: that nothing stands there is not said.
    fn report(&mut self, from: Seq) -> Result<Option<LeaseReport>, Unreadable>;
}

/// The journal cannot be read now; the log has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// A node that lives on leases.
#[derive(Debug)]
pub struct Borrower {
    node: NodeId,
    epoch: Epoch,
    turn: Turn,
    term: Duration,
    /// Period, in seconds, for which money is leased in advance.
    cover_s: i64,
    reported: Seq,
    needs: BTreeMap<AccountId, Need>,
    next_waiter: Waiter,
    /// Sent and not answered.
    pending: Option<SyncRequest>,
    /// The time of its first transmission.
    sent_at: Duration,
    synced_at: Option<Duration>,
    /// The last account of a sync that could not request all accounts.
    last_requested: Option<AccountId>,
    /// Time until which holds may be made.
    spend_until: Duration,
}

impl Borrower {
    /// A node that has joined without money. It leases for a term in advance, so that it can continue for a
    /// term without the treasury.
    #[must_use]
    pub fn new(node: NodeId, joined: JoinResponse, term: Duration) -> Self {
        Self {
            node,
            epoch: joined.epoch,
            turn: joined.turn,
            term,
            cover_s: seconds_up(term),
            reported: joined.reported,
            needs: BTreeMap::new(),
            next_waiter: 0,
            pending: None,
            sent_at: Duration::ZERO,
            synced_at: None,
            last_requested: None,
            spend_until: Duration::ZERO,
        }
    }

    /// Sets the period for which money is leased in advance.
    #[must_use]
    pub fn covering(self, cover: Duration) -> Self {
        Self { cover_s: seconds_up(cover), ..self }
    }

    /// Time until which holds may be made, by the node's clock.
    #[must_use]
    pub fn spend_until(&self) -> Duration {
        self.spend_until
    }

    /// The last record that the treasury has.
    #[must_use]
    pub fn reported(&self) -> Seq {
        self.reported
    }

    /// Registers a call that has waited for `amount` of an account since `since`.
    pub fn wait(&mut self, account: AccountId, amount: Nanousd, since: Duration) -> Waiter {
        let id = self.next_waiter;
        self.next_waiter = id.wrapping_add(1);
        let need = self.needs.entry(account).or_default();
        need.waiting.push(Waiting { id, amount, since, is_requested: false, short_at: None });
        id
    }

    /// Removes waiters that gave up, in one pass: if the treasury does not answer, they may be all calls of
    /// several seconds.
    pub fn forget(&mut self, cancelled: &[(AccountId, Waiter)]) {
        let waiters: HashSet<_> = cancelled.iter().map(|(_, waiter)| *waiter).collect();
        let accounts: BTreeSet<_> = cancelled.iter().map(|(account, _)| *account).collect();
        for account in accounts {
            if let Some(need) = self.needs.get_mut(&account) {
                need.waiting.retain(|waiting| !waiters.contains(&waiting.id));
            }
        }
    }

    /// Reports that an account runs low on this node. The next sync considers it, and is due now unless the
    /// treasury lent less than was requested last time.
    pub fn runs_low(&mut self, account: AccountId) {
        let need = self.needs.entry(account).or_default();
        if need.short.is_none() && !need.is_scarce {
            self.hurry();
        }
    }

    /// Makes the next sync due now, since another node needs money.
    pub fn hurry(&mut self) {
        self.synced_at = None;
    }

    /// The time of the next sync: one interval after the last was sent, since its term counts from then. A
    /// slow answer therefore makes the next sync no later.
    #[must_use]
    pub fn due_at(&self, now: Duration) -> Duration {
        // What was not answered is due at once: the caller paces the repetitions.
        let Some(last) = self.synced_at.filter(|_| self.pending.is_none()) else { return now };
        let waiting = self.needs.values().filter(|need| !need.waiting.is_empty());
        let requests = waiting.map(|need| need.ask_at);
        let is_recalled = self.needs.values().any(|need| need.is_recalled);
        let recalled = is_recalled.then(|| last.saturating_add(RECALL_BEAT));
        let beat = self.sent_at.saturating_add(BEAT).max(last);
        requests.chain(recalled).chain([beat]).min().unwrap_or(now)
    }

    /// The sync to send at `now`. An unanswered one is sent again unchanged.
    pub fn sync(&mut self, now: Duration, local: &mut impl LocalFunds) -> SyncRequest {
        if let Some(pending) = &self.pending {
            return pending.clone();
        }
        // Given back before the journal is read, so that this very report returns it.
        self.measure(now, local);
        self.give_back(now, local);
        // What cannot be read is reported when it can.
        let report = local.report(self.reported).unwrap_or_default();
        self.count_charges(report.as_ref());
        let sync = SyncRequest {
            node: self.node,
            epoch: self.epoch,
            turn: self.turn.saturating_add(1),
            report,
            is_clear: false,
            requests: self.requests(now, local),
        };
        self.pending = Some(sync.clone());
        self.sent_at = now;
        sync
    }

    /// The syncs of a starting process, one after the other: they report the whole journal, and the last one
    /// states that nothing is left. Everything was returned before, durably; a later report would count as
    /// money lent from here on.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn clearing(
        &mut self,
        now: Duration,
        local: &mut impl LocalFunds,
    ) -> Result<SyncRequest, Unreadable> {
        if self.pending.is_none() {
            let report = local.report(self.reported)?;
            let sync = SyncRequest {
                node: self.node,
                epoch: self.epoch,
                turn: self.turn.saturating_add(1),
                is_clear: report.is_none(),
                report,
                requests: Vec::new(),
            };
            self.pending = Some(sync);
            self.sent_at = now;
        }
        Ok(self.pending.clone().unwrap_or_default())
    }

    /// Applies the answer to the last sync, and returns the outcomes of waiting calls.
    pub fn answered(
        &mut self,
        answer: &SyncResponse,
        now: Duration,
        local: &mut impl LocalFunds,
    ) -> Vec<(Waiter, LeaseWait)> {
        // A second answer to the same sync brings nothing.
        let Some(sync) = self.pending.take() else { return Vec::new() };
        self.turn = sync.turn;
        let was_full = sync.is_full();
        let most: BTreeMap<_, _> =
            sync.requests.iter().map(|request| (request.account, request.most)).collect();
        if let Some(report) = sync.report {
            self.reported = report.to;
            for settled in report.settled {
                if let Some(need) = self.needs.get_mut(&settled.account) {
                    need.returning = need.returning.saturating_sub(settled.returned);
                }
            }
        }
        // The treasury counts from later on, and for longer.
        self.spend_until = self.sent_at.saturating_add(self.term);
        // An answer that comes so late begins no term: the next sync does.
        let may_spend = now < self.spend_until;
        // Nor is there anything to wait for while there is more to say.
        self.synced_at = Some(now).filter(|_| may_spend && !was_full);
        let mut verdicts = Vec::new();
        for (account, loan) in &answer.loans {
            let need = self.needs.entry(*account).or_default();
            match loan {
                Loan::Lent(amount) => {
                    local.take_in(*account, *amount);
                    need.short = None;
                    need.is_scarce = most.get(account).is_some_and(|most| amount < most);
                }
                Loan::Shortage(short) => need.short = Some(*short),
            }
            if may_spend {
                need.serve(local.available(*account), now, &mut verdicts);
            }
        }
        let recalled: BTreeSet<_> = answer.recalled.iter().copied().collect();
        let mut is_news = false;
        for (account, need) in &mut self.needs {
            let was_recalled = need.is_recalled;
            need.is_recalled = recalled.contains(account);
            is_news |= need.is_recalled && !was_recalled;
        }
        if is_news {
            self.hurry();
        }
        verdicts
    }

    /// Accounts of which the treasury had less than requested.
    pub fn scarce(&self) -> impl Iterator<Item = AccountId> {
        let is_scarce = |need: &Need| need.is_scarce || need.short.is_some();
        let needs = self.needs.iter().filter(move |(_, need)| is_scarce(need));
        needs.map(|(account, _)| *account)
    }

    /// Handles a treasury without an answer at `now`: calls that waited too long are refused, and all calls
    /// once the term is over.
    pub fn unanswered(&mut self, now: Duration) -> Vec<(Waiter, LeaseWait)> {
        let is_over = self.spend_until <= now;
        let mut verdicts = Vec::new();
        for need in self.needs.values_mut() {
            let has_waited = |waiting: &Waiting| now.saturating_sub(waiting.since) >= ANSWER_WAIT;
            let cancelled = need.waiting.extract_if(.., |waiting| is_over || has_waited(waiting));
            verdicts.extend(cancelled.map(|waiting| (waiting.id, LeaseWait::CutOff)));
        }
        verdicts
    }

    /// Counts what calls were charged: how fast an account is spent, whatever its holds set aside.
    fn count_charges(&mut self, report: Option<&LeaseReport>) {
        for settled in report.iter().flat_map(|report| &report.settled) {
            if let Some(need) = self.needs.get_mut(&settled.account) {
                need.charged = need.charged.saturating_add(settled.charged);
            }
        }
    }

    fn measure(&mut self, now: Duration, local: &impl LocalFunds) {
        for (account, need) in &mut self.needs {
            let money = (local.reserved(*account), local.held(*account));
            need.measure(now, money, self.cover_s);
        }
    }

    /// Returns money that others need more, or that is unused here.
    fn give_back(&mut self, now: Duration, local: &mut impl LocalFunds) {
        let idle = IDLE.max(Duration::from_secs(u64::try_from(self.cover_s).unwrap_or(0)));
        self.needs.retain(|account, need| {
            // Scarce money is needed elsewhere sooner than this node's idle account may wake up.
            let idle = if need.is_scarce { IDLE } else { idle };
            need.is_idle = now.saturating_sub(need.used_at) >= idle && need.waiting.is_empty();
            let (held, available) = (local.held(*account), local.available(*account));
            let kept = need.kept(available, self.cover_s, now);
            let excess = available.saturating_sub(kept);
            if excess > Nanousd::ZERO && local.give_back(*account, excess) {
                need.returning = need.returning.saturating_add(excess);
            }
            local.watch(*account, need.spent_in(1));
            // Calls go on meanwhile: what they have freed or taken is looked at the next time.
            let has_left = [held, available, need.returning].iter().all(|money| money.is_zero())
                && local.reserved(*account) == need.seen;
            !need.is_idle || !has_left
        });
    }

    fn requests(&mut self, now: Duration, local: &impl LocalFunds) -> Vec<LoanRequest> {
        let mut requests = Vec::new();
        for account in self.next_to_ask(now, local) {
            let Some(need) = self.needs.get_mut(&account) else { continue };
            let available = local.available(account);
            let waiting = need
                .waiting
                .iter()
                .fold(Nanousd::ZERO, |sum, waiting| sum.saturating_add(waiting.amount));
            let ahead = need.enough(self.cover_s);
            let least = need.next_to_serve(available).map_or(Nanousd::ZERO, |next| {
                // What is there was not enough, or another call has taken it meanwhile.
                next.amount.saturating_sub(available).max(Nanousd::new(1))
            });
            need.waiting.iter_mut().for_each(|waiting| waiting.is_requested = true);
            let target = waiting.saturating_add(ahead);
            let most = target.saturating_sub(available).max(least);
            requests.push(LoanRequest { account, least, most });
        }
        requests
    }

    /// The accounts that need money, in their order: if there are too many, those after the last ones
    /// requested.
    fn next_to_ask(&mut self, now: Duration, local: &impl LocalFunds) -> Vec<AccountId> {
        let cover_s = self.cover_s;
        let is_needed = |(account, need): &(&AccountId, &Need)| {
            let may_borrow = !need.is_recalled && !need.is_idle;
            let is_low = || may_borrow && local.available(**account) < need.ahead(1, cover_s);
            (!need.waiting.is_empty() || is_low()) && need.ask_at <= now
        };
        let needed = self.needs.iter().filter(is_needed);
        let mut accounts: Vec<_> = needed.map(|(account, _)| *account).collect();
        if accounts.len() <= ASKS_MAX {
            self.last_requested = None;
            return accounts;
        }
        let begin = accounts.partition_point(|account| Some(*account) <= self.last_requested);
        accounts.rotate_left(begin);
        accounts.truncate(ASKS_MAX);
        self.last_requested = accounts.last().copied();
        accounts.sort_unstable();
        accounts
    }
}

/// Duration in seconds, rounded up.
fn seconds_up(time: Duration) -> i64 {
    let begun = u64::from(time.subsec_nanos() > 0);
    i64::try_from(time.as_secs().saturating_add(begun)).unwrap_or(i64::MAX)
}

impl SyncRequest {
    /// True if the sync reached a limit and another should follow at once.
    fn is_full(&self) -> bool {
        let records =
            self.report.as_ref().map_or(0, |report| report.to.saturating_sub(report.from));
        records >= RECORDS_MAX || self.requests.len() >= ASKS_MAX
    }
}

#[cfg(test)]
mod tests;
