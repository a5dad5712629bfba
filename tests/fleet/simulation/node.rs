//! A node: its disk, its clock, and the process that runs on it, if one does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate::clock::UnixMs;
use tollgate::fleet::borrower::{Borrower, RECALL_WAIT, WAIT_MAX, Waiter};
use tollgate::fleet::lease::{Epoch, SyncRefusal, SyncRequest, Turn};
use tollgate::ledger::{
    AccountId, HoldId, KeyId, NodeId, Record, RecoveryPolicy, Refusal, RequestId, Reservation,
    VoidReason,
};
use tollgate::price::{Usage, UsageSource};

use super::books::Books;
use super::world::{Event, Reply, Request, TERM, World, ms, usd};

/// Time within which a waiting customer takes money that has arrived.
const PROMISED: Duration = Duration::from_millis(40);

/// A customer's call, as far as money goes.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) account: AccountId,
    pub(crate) amount: i64,
    pub(crate) charge: Option<i64>,
    pub(crate) lasts: Duration,
    pub(crate) began: Duration,
    /// Since when it waits, by the node's clock.
    pub(crate) since: Option<Duration>,
    /// The least that the treasury had meanwhile.
    pub(crate) least_available: i64,
    /// The least that could have been had meanwhile, with what other nodes did not need.
    pub(crate) least_free: i64,
}

impl Call {
    /// There is so much at the treasury, and so much altogether.
    pub(crate) fn saw(&mut self, (available, free): (i64, i64)) {
        self.least_available = self.least_available.min(available);
        self.least_free = self.least_free.min(free);
    }

    /// Nobody is refused for want of money that was there all along.
    pub(crate) fn check_refusal(&self, local: Duration) {
        assert!(self.least_available < self.amount, "the treasury had it all along: {self:?}");
        let waited = local.saturating_sub(self.since.unwrap_or(local));
        assert!(
            waited >= RECALL_WAIT || self.least_free < self.amount,
            "refused after {waited:?}, and there was enough elsewhere: {self:?}"
        );
    }
}

pub(crate) struct Process {
    pub(crate) life: u64,
    /// `None` until it has joined.
    pub(crate) borrower: Option<Borrower>,
    /// True if it has cleared what the last process left.
    pub(crate) is_serving: bool,
    /// The request that it waits for.
    pub(crate) request: Option<u64>,
    sent: Option<SyncRequest>,
    pub(crate) waiting: BTreeMap<Waiter, Call>,
    /// When money came last for those who waited for it, by the node's clock.
    pub(crate) promised: BTreeMap<AccountId, Duration>,
    polls_at: Option<Duration>,
    is_flushing: bool,
}

pub(crate) struct SimulatedNode {
    pub(crate) id: NodeId,
    pub(crate) books: Books,
    pub(crate) process: Option<Process>,
    pub(crate) lives: u64,
    requests: u64,
    /// It sees and does nothing until then (SIGSTOP).
    pub(crate) stopped_until: Duration,
    /// It does not reach the treasury until then.
    pub(crate) cut_until: Duration,
    /// Its disk is gone.
    pub(crate) is_lost: bool,
    /// The last turn that the treasury has taken.
    pub(crate) taken_turn: Turn,
    /// The last life that has joined.
    pub(crate) epoch: Epoch,
    /// Amounts of this node that an operator has released and charged, with the latest process life. They
    /// return to the node once the treasury hears of it,
    pub(crate) resolved: BTreeMap<AccountId, (i64, i64)>,
    /// but for released money of these accounts that was gone by then.
    pub(crate) short: BTreeSet<AccountId>,
    pub(crate) shut_out: Epoch,
    /// Its clock stood here when the seed began, and goes so much too fast.
    clock_begin: Duration,
    clock_ppm: i64,
    wall_off_ms: i64,
}

impl SimulatedNode {
    pub(crate) fn new(id: NodeId, accounts: &[AccountId], rng: &mut fastrand::Rng) -> Self {
        Self {
            id,
            books: Books::new(id, accounts),
            process: None,
            lives: 0,
            requests: 0,
            stopped_until: Duration::ZERO,
            cut_until: Duration::ZERO,
            is_lost: false,
            taken_turn: 0,
            epoch: 0,
            resolved: BTreeMap::new(),
            short: BTreeSet::new(),
            shut_out: 0,
            clock_begin: ms(rng.u64(1..1_000_000)),
            clock_ppm: rng.i64(-10_000..=10_000),
            wall_off_ms: rng.i64(-5_000..=5_000),
        }
    }

    /// Its own clock.
    pub(crate) fn local(&self, now: Duration) -> Duration {
        let us = i64::try_from(now.as_micros()).expect("a short time");
        let drift = us / 1_000_000 * self.clock_ppm + us % 1_000_000 * self.clock_ppm / 1_000_000;
        self.clock_begin + Duration::from_micros((us + drift).unsigned_abs())
    }

    /// How long it takes until its clock stands at `local`, about.
    fn until(&self, local: Duration, now: Duration) -> Duration {
        let left = local.saturating_sub(self.local(now));
        left + left / 90
    }

    fn serving(&mut self) -> Option<(&mut Process, &mut Books)> {
        let process = self.process.as_mut().filter(|process| process.is_serving)?;
        Some((process, &mut self.books))
    }
}

impl World {
    pub(crate) fn start(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.is_lost || node.process.is_some() {
            return;
        }
        node.lives += 1;
        let life = node.lives;
        node.process = Some(Process {
            life,
            borrower: None,
            is_serving: false,
            request: None,
            sent: None,
            waiting: BTreeMap::new(),
            promised: BTreeMap::new(),
            polls_at: None,
            is_flushing: false,
        });
        self.note(|| format!("node {number}: life {life} begins"));
        self.poll(number);
    }

    /// A process dies. What it had not on disk may be gone.
    pub(crate) fn kill(&mut self, number: usize) {
        let kept = self.rng.f64();
        let node = &mut self.nodes[number];
        if node.process.take().is_none() {
            return;
        }
        node.stopped_until = Duration::ZERO;
        node.books.crash(kept);
        self.counts.kills += 1;
        self.note(|| format!("node {number} is killed"));
    }

    /// Sends what is due.
    pub(crate) fn poll(&mut self, number: usize) {
        let now = self.now;
        let (waits, report_max) = (!self.chance(200), self.rng.usize(1..20));
        let is_short_report = self.chance(50);
        let node = &mut self.nodes[number];
        let local = node.local(now);
        let at = i64::try_from(1_000_000_000 + now.as_millis()).expect("a time");
        node.books.at = UnixMs((at + node.wall_off_ms).unsigned_abs());
        node.books.report_waits = waits;
        node.books.report_max = if is_short_report { report_max } else { usize::MAX };
        let Some(process) = node.process.as_mut() else { return };
        if process.request.is_some() {
            return;
        }
        let query = match &mut process.borrower {
            None => Request::Join,
            Some(borrower) if !process.is_serving => {
                node.books.report_waits = true;
                let sync = borrower.clearing(local, &mut node.books).expect("a journal");
                process.sent = Some(sync.clone());
                Request::SyncRequest(sync)
            }
            Some(borrower) if borrower.due_at(local) > local => return self.plan_poll(number),
            Some(borrower) => {
                process.promised.retain(|_, at| local.saturating_sub(*at) < PROMISED);
                let of = |account: &AccountId, books: &Books| books.balance(*account).available;
                let before: Vec<_> =
                    process.promised.keys().map(|account| of(account, &node.books)).collect();
                let sync = borrower.sync(local, &mut node.books);
                let after = process.promised.keys().map(|account| of(account, &node.books));
                assert!(after.eq(before), "what calls were told to take is given back");
                Request::SyncRequest(sync)
            }
        };
        node.requests += 1;
        let (life, request) = (process.life, node.requests);
        process.request = Some(request);
        self.note(|| format!("node {number}: request {request} at {local:?}: {query:?}"));
        self.send(number, life, request, &query);
        if self.chance(4) {
            // It dies with its request on the way, and is back before that arrives.
            self.kill(number);
            let wait = ms(self.rng.u64(1..100));
            return self.plan(wait, Event::Starts { node: number });
        }
        let patience = ms(self.rng.u64(300..1_000));
        self.plan(patience, Event::TimedOut { node: number, life, request });
        self.plan_flush(number);
    }

    /// Looks again when the next exchange is due.
    fn plan_poll(&mut self, number: usize) {
        let now = self.now;
        let node = &mut self.nodes[number];
        let local = node.local(now);
        let Some(process) = node.process.as_mut() else { return };
        let Some(borrower) = &process.borrower else { return };
        if process.request.is_some() || !process.is_serving {
            return;
        }
        let due_at = borrower.due_at(local);
        let life = process.life;
        let at = now + node.until(due_at, now);
        let process = node.process.as_mut().expect("the same");
        if process.polls_at.is_some_and(|polls_at| now < polls_at && polls_at <= at) {
            return;
        }
        process.polls_at = Some(at);
        self.plan((at - now).max(ms(1)), Event::Polls { node: number, life });
    }

    pub(crate) fn notice(&mut self, number: usize) {
        if let Some((Process { borrower: Some(borrower), .. }, _)) = self.nodes[number].serving() {
            borrower.hurry();
            self.plan_poll(number);
        }
    }

    pub(crate) fn time_out(&mut self, number: usize, request: u64) {
        let node = &mut self.nodes[number];
        let local = node.local(self.now);
        let Some(process) = node.process.as_mut() else { return };
        if process.request != Some(request) {
            return;
        }
        process.request = None;
        let message = process.borrower.as_mut().map(|borrower| borrower.unanswered(local));
        let life = process.life;
        self.note(|| format!("node {number}: no answer to {request}"));
        self.tell(number, message.unwrap_or_default());
        let wait = ms(self.rng.u64(50..1_000));
        self.plan(wait, Event::Polls { node: number, life });
    }

    pub(crate) fn take(&mut self, number: usize, request: u64, reply: Reply) {
        let is_floor = self.rng.bool();
        let node = &mut self.nodes[number];
        let local = node.local(self.now);
        let Some(process) = node.process.as_mut() else { return };
        if process.request != Some(request) {
            return;
        }
        process.request = None;
        match reply {
            Reply::JoinResponse(joined) => {
                let policy = if is_floor { RecoveryPolicy::Floor } else { RecoveryPolicy::Void };
                node.books.recover(policy);
                process.borrower = Some(Borrower::new(node.id, joined, TERM));
                return self.poll(number);
            }
            Reply::Taken(answer) => {
                let Some(borrower) = process.borrower.as_mut() else { return };
                let message = borrower.answered(&answer, local, &mut node.books);
                let was_serving = process.is_serving;
                process.is_serving |= process.sent.take().is_some_and(|sent| sent.is_clear);
                self.tell(number, message);
                if !was_serving {
                    return self.poll(number);
                }
            }
            Reply::Refused(SyncRefusal::Superseded) => {
                self.note(|| format!("node {number} is shut out"));
                self.kill(number);
                return self.plan(ms(1_000), Event::Starts { node: number });
            }
            Reply::Refused(refused) => panic!("node {number} is refused: {refused:?}"),
        }
        self.plan_flush(number);
        self.plan_poll(number);
    }

    /// A call looks for money, and waits for it.
    pub(crate) fn admit(&mut self, number: usize, mut call: Call) {
        let now = self.now;
        let local = self.nodes[number].local(now);
        call.saw(self.to_be_had(call.account));
        let Some((process, books)) = self.nodes[number].serving() else {
            self.counts.cut_off += 1;
            return;
        };
        let Some(borrower) = process.borrower.as_mut().filter(|it| local < it.spend_until()) else {
            self.counts.cut_off += 1;
            return self.note(|| format!("node {number}: {call:?} is cut off"));
        };
        let reservation = Arc::new(Reservation {
            account: call.account,
            key: KeyId::from_number(1),
            model: "m".into(),
            price: None,
            request: RequestId::from_number(1),
            amount: usd(call.amount),
            floor: usd(call.amount / 3),
            at: books.at,
        });
        let life = process.life;
        match books.core.decide_reserve(reservation) {
            Ok(record) => {
                let hold = HoldId::from_number(books.append(record));
                for account in std::mem::take(&mut books.low) {
                    borrower.runs_low(account);
                }
                self.counts.served += 1;
                self.note(|| format!("node {number}: {hold} {call:?}"));
                let charge = call.charge;
                self.plan(call.lasts, Event::Ends { node: number, life, hold, charge });
            }
            Err(Refusal::Insufficient { .. } | Refusal::Held { .. }) => {
                let account = call.account;
                let since = *call.since.get_or_insert(local);
                let waiter = borrower.wait(account, usd(call.amount), since);
                process.waiting.insert(waiter, call);
                let over = Event::WaitOver { node: number, life, account, waiter };
                self.plan(WAIT_MAX, over);
            }
            Err(refusal) => panic!("refused for another reason: {refusal:?}"),
        }
        self.plan_flush(number);
        self.plan_poll(number);
    }

    pub(crate) fn wait_is_over(&mut self, number: usize, account: AccountId, waiter: Waiter) {
        let Some(process) = self.nodes[number].process.as_mut() else { return };
        let Some(call) = process.waiting.remove(&waiter) else { return };
        if let Some(borrower) = process.borrower.as_mut() {
            borrower.forget(&[(account, waiter)]);
        }
        self.counts.cut_off += 1;
        self.note(|| format!("node {number}: {call:?} waits no longer"));
    }

    /// A call is over: it is charged, or not.
    pub(crate) fn end(&mut self, number: usize, hold: HoldId, charge: Option<i64>) {
        let books = &mut self.nodes[number].books;
        let Some(open) = books.core.hold(hold) else { return };
        let account = open.reservation.account;
        match charge {
            None => {
                let (reason, at) = (VoidReason::Unreached, books.at);
                books.append(Record::Voided { account, hold, reason, at });
            }
            Some(charge) => {
                let usage = (Usage::ZERO, UsageSource::Upstream);
                let post = books.core.decide_post(hold, usd(charge), usage, books.at);
                let post = post.expect("an open hold");
                post.extension.into_iter().chain([post.record]).for_each(|record| {
                    books.append(record);
                });
            }
        }
        self.note(|| format!("node {number}: {hold} ends with {charge:?}"));
        self.plan_flush(number);
    }

    fn plan_flush(&mut self, number: usize) {
        let wait = Duration::from_micros(self.rng.u64(500..20_000));
        let node = &mut self.nodes[number];
        let Some(process) = node.process.as_mut() else { return };
        if node.books.is_flushed() || process.is_flushing {
            return;
        }
        process.is_flushing = true;
        let life = process.life;
        self.plan(wait, Event::Flushed { node: number, life });
    }

    pub(crate) fn flush(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.books.flush();
        if let Some(process) = node.process.as_mut() {
            process.is_flushing = false;
        }
    }
}
