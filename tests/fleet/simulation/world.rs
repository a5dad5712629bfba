//! Simulated time: what happens when, between customers, nodes and the treasury.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tollgate::fleet::borrower::Waiter;
use tollgate::fleet::lease::{JoinResponse, Loan, SyncRefusal, SyncRequest, SyncResponse};
use tollgate::fleet::treasury::Treasury;
use tollgate::ledger::{AccountId, HoldId, LeaseWait, NodeId};
use tollgate::money::Nanousd;

use super::node::{Call, SimulatedNode};

/// The default term.
pub(crate) const TERM: Duration = Duration::from_secs(10);
/// The treasury's clock stands here when a seed begins.
const TREASURY_BEGIN: Duration = Duration::from_secs(1_000);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn usd(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

/// An event at a time. A process has a number, its life; events for an earlier life are lost.
#[derive(Debug)]
pub(crate) enum Event {
    /// A customer calls a node, and the next one will.
    Calls { node: usize },
    /// A call looks for money.
    Tries { node: usize, life: u64, call: Call },
    /// A call is over.
    Ends { node: usize, life: u64, hold: HoldId, charge: Option<i64> },
    /// The journal was flushed.
    Flushed { node: usize, life: u64 },
    /// An exchange may be due.
    Polls { node: usize, life: u64 },
    /// Nobody waits for the answer any more.
    TimedOut { node: usize, life: u64, request: u64 },
    /// A call has waited for money for as long as any.
    WaitOver { node: usize, life: u64, account: AccountId, waiter: Waiter },
    /// The treasury gets a request.
    Arrives { node: usize, life: u64, request: u64, body: Request },
    /// A node gets an answer.
    Answered { node: usize, life: u64, request: u64, reply: Reply },
    /// A node hears that another is short of something.
    Noticed { node: usize, life: u64 },
    /// A process begins.
    Starts { node: usize },
    /// The treasury looks for silent nodes.
    Sweeps,
    /// Something goes wrong.
    Fault,
    /// An operator does something.
    Operator,
}

impl Event {
    /// The node of an event; a paused node handles it later.
    fn node(&self) -> Option<usize> {
        match self {
            Self::Tries { node, .. }
            | Self::Ends { node, .. }
            | Self::Flushed { node, .. }
            | Self::Polls { node, .. }
            | Self::TimedOut { node, .. }
            | Self::WaitOver { node, .. }
            | Self::Answered { node, .. }
            | Self::Noticed { node, .. }
            | Self::Calls { node } => Some(*node),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time is on its way from a node")]
pub(crate) enum Request {
    Join,
    SyncRequest(SyncRequest),
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    JoinResponse(JoinResponse),
    Taken(SyncResponse),
    Refused(SyncRefusal),
}

/// A simulation's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) has_faults: bool,
    /// Customers call each node about so often; `None` for not by themselves.
    pub(crate) call_every: Option<Duration>,
    pub(crate) is_traced: bool,
}

struct Entry {
    at: Duration,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Outcomes of calls and counts of faults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) cut_off: u64,
    pub(crate) syncs: u64,
    pub(crate) kills: u64,
    pub(crate) suspended: u64,
    pub(crate) resolved: u64,
    /// Resolutions whose nodes came back, and those of them whose money was lost.
    pub(crate) undone: u64,
    pub(crate) lost: u64,
    pub(crate) recalls: u64,
    /// Credit lines that were set, of them those that left something owing, and those that were refused.
    pub(crate) lines: u64,
    pub(crate) lines_owed: u64,
    pub(crate) lines_refused: u64,
    pub(crate) longest_wait: Duration,
}

pub(crate) struct World {
    pub(crate) scene: Scene,
    pub(crate) rng: fastrand::Rng,
    pub(crate) now: Duration,
    queue: BinaryHeap<Reverse<Entry>>,
    next: u64,
    pub(crate) treasury: Treasury,
    /// How far the treasury's clock is from where it began, in ms: a failover moves it.
    pub(crate) jumped_ms: i64,
    pub(crate) jumped_at: Duration,
    /// Nobody reaches the treasury until then.
    pub(crate) cut_until: Duration,
    pub(crate) is_ending: bool,
    pub(crate) accounts: Vec<AccountId>,
    pub(crate) nodes: Vec<SimulatedNode>,
    /// Released money that was lost when the node came back that had had it.
    pub(crate) lost: BTreeMap<AccountId, i64>,
    /// Spent money that a lowered credit line turned into debt.
    pub(crate) line_owed: BTreeMap<AccountId, i64>,
    pub(crate) counts: Counts,
    /// How far everything was when it was last checked.
    pub(crate) checked: (u64, usize),
    /// Money of an account available at that check.
    pub(crate) had: BTreeMap<AccountId, (i64, i64)>,
    trace: Vec<String>,
}

impl World {
    pub(crate) fn new(scene: Scene) -> Self {
        let mut world = Self {
            scene,
            rng: fastrand::Rng::with_seed(scene.seed),
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            next: 0,
            treasury: Treasury::default(),
            jumped_ms: 0,
            jumped_at: Duration::ZERO,
            cut_until: Duration::ZERO,
            is_ending: false,
            accounts: (1..=4).map(AccountId::from_number).collect(),
            nodes: Vec::new(),
            lost: BTreeMap::new(),
            line_owed: BTreeMap::new(),
            counts: Counts::default(),
            checked: (0, 0),
            had: BTreeMap::new(),
            trace: Vec::new(),
        };
        for account in world.accounts.clone() {
            world.treasury.grant(account, Nanousd::ZERO);
        }
        for _ in 0..scene.nodes {
            world.add_node();
        }
        world.plan(ms(1_000), Event::Sweeps);
        world
    }

    pub(crate) fn add_node(&mut self) {
        let number = self.nodes.len();
        let id = u16::try_from(number + 1).ok().and_then(NodeId::from_number).expect("a node");
        self.nodes.push(SimulatedNode::new(id, &self.accounts, &mut self.rng));
        let begin = ms(self.rng.u64(0..50));
        self.plan(begin, Event::Starts { node: number });
        if self.scene.call_every.is_some() {
            let begin = if self.scene.has_faults { begin } else { ms(1_000) };
            self.plan(begin, Event::Calls { node: number });
        }
    }

    /// Something happens after `wait`.
    pub(crate) fn plan(&mut self, wait: Duration, event: Event) {
        self.next += 1;
        self.queue.push(Reverse(Entry { at: self.now + wait, order: self.next, event }));
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.scene.is_traced {
            let line = format!("{:>10.4} s  {}", self.now.as_secs_f64(), what());
            self.trace.push(line);
        }
    }

    /// Lets everything happen up to `until`, and checks the rules after each step.
    pub(crate) fn run_until(&mut self, until: Duration) {
        while self.queue.peek().is_some_and(|Reverse(entry)| entry.at <= until) {
            let Some(Reverse(entry)) = self.queue.pop() else { return };
            self.now = entry.at;
            let stopped_until =
                entry.event.node().map_or(Duration::ZERO, |node| self.nodes[node].stopped_until);
            if stopped_until > self.now {
                self.plan(stopped_until - self.now, entry.event);
                continue;
            }
            self.happen(entry.event);
            self.check();
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        if let Event::Arrives { node, life, request, body } = event {
            return self.arrive(node, life, request, body);
        }
        match event {
            Event::Calls { node } => self.customer_calls(node),
            Event::Starts { node } => self.start(node),
            Event::Sweeps => self.sweep(),
            Event::Fault => self.fault(),
            Event::Operator => self.operate(),
            Event::Tries { node, life, call } if self.lives(node, life) => self.admit(node, call),
            Event::Ends { node, life, hold, charge } if self.lives(node, life) => {
                self.end(node, hold, charge);
            }
            Event::Flushed { node, life } if self.lives(node, life) => self.flush(node),
            Event::Polls { node, life } if self.lives(node, life) => self.poll(node),
            Event::TimedOut { node, life, request } if self.lives(node, life) => {
                self.time_out(node, request);
            }
            Event::WaitOver { node, life, account, waiter } if self.lives(node, life) => {
                self.wait_is_over(node, account, waiter);
            }
            Event::Answered { node, life, request, reply } if self.lives(node, life) => {
                self.take(node, request, reply);
            }
            Event::Noticed { node, life } if self.lives(node, life) => self.notice(node),
            // It was meant for a process that is no more.
            _ => {}
        }
    }

    fn lives(&self, node: usize, life: u64) -> bool {
        self.nodes[node].process.as_ref().is_some_and(|process| process.life == life)
    }

    pub(crate) fn chance(&mut self, of_a_thousand: u32) -> bool {
        self.scene.has_faults && !self.is_ending && self.rng.u32(0..1000) < of_a_thousand
    }

    /// The time by the treasury's clock.
    pub(crate) fn treasury_now(&self) -> Duration {
        let begin = TREASURY_BEGIN + self.now;
        let jumped = ms(self.jumped_ms.unsigned_abs());
        if self.jumped_ms < 0 { begin - jumped } else { begin + jumped }
    }

    fn is_cut(&self, node: usize) -> bool {
        !self.is_ending && (self.cut_until > self.now || self.nodes[node].cut_until > self.now)
    }

    /// How long a message takes. Some are overtaken by others that were sent much later.
    pub(crate) fn delay(&mut self) -> Duration {
        if self.chance(30) {
            return ms(self.rng.u64(50..4_000));
        }
        Duration::from_micros(self.rng.u64(300..5_000))
    }

    /// Sends a request: it may be lost, or come twice.
    pub(crate) fn send(&mut self, node: usize, life: u64, request: u64, body: &Request) {
        if self.chance(20) {
            return self.note(|| format!("node {node}: request {request} is lost"));
        }
        let copies = if self.chance(30) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.delay();
            self.plan(delay, Event::Arrives { node, life, request, body: body.clone() });
        }
    }

    fn arrive(&mut self, node: usize, life: u64, request: u64, body: Request) {
        if self.is_cut(node) {
            return self.note(|| format!("node {node}: request {request} finds no treasury"));
        }
        let id = self.nodes[node].id;
        let reply = match body {
            Request::Join => {
                let joined = self.treasury.join(id);
                self.nodes[node].epoch = joined.epoch;
                Reply::JoinResponse(joined)
            }
            Request::SyncRequest(sync) => {
                let now = self.treasury_now();
                let removed = self.amounts_lost(node);
                match self.treasury.sync(&sync, now, TERM) {
                    Ok(answer) => {
                        self.was_taken(node, &sync, &answer, removed);
                        Reply::Taken(answer)
                    }
                    Err(refused) => Reply::Refused(refused),
                }
            }
        };
        self.note(|| format!("node {node}: request {request} is answered {reply:?}"));
        if self.chance(30) {
            return self.note(|| format!("node {node}: the answer to {request} is lost"));
        }
        let delay = self.delay();
        self.plan(delay, Event::Answered { node, life, request, reply });
    }

    /// Released money of a node that the treasury no longer has.
    fn amounts_lost(&self, number: usize) -> BTreeMap<AccountId, i64> {
        let resolved = self.nodes[number].resolved.iter();
        let removed = resolved.map(|(account, (released, _))| {
            let funds = self.treasury.funds(*account);
            let available = funds.map_or(0, |funds| funds.available.get());
            (*account, (released - available).max(0))
        });
        removed.filter(|(_, removed)| *removed > 0).collect()
    }

    /// The treasury has answered an exchange, whether or not for the first time.
    fn was_taken(
        &mut self,
        number: usize,
        sync: &SyncRequest,
        answer: &SyncResponse,
        lost: BTreeMap<AccountId, i64>,
    ) {
        self.counts.syncs += 1;
        let node = &mut self.nodes[number];
        if node.taken_turn == sync.turn {
            return;
        }
        node.taken_turn = sync.turn;
        assert!(sync.epoch > node.shut_out, "node {number} goes on with what is another's now");
        self.counts.undone += node.resolved.len() as u64;
        self.counts.lost += lost.len() as u64;
        node.resolved.clear();
        node.short.extend(lost.keys());
        for (account, amount) in lost {
            *self.lost.entry(account).or_default() += amount;
        }
        if let Some(report) = &sync.report {
            node.books.was_reported(report.to);
        }
        if sync.is_clear {
            for account in &self.accounts {
                let left = node.books.outstanding(*account);
                assert_eq!(left, 0, "node {number} is clear, and has {left} of {account}");
            }
            node.short.clear();
        }
        let is_short = |(_, loan): &(_, Loan)| matches!(loan, Loan::Shortage(short) if !short.elsewhere.is_zero());
        if answer.loans.iter().any(is_short) {
            self.counts.recalls += 1;
            for other in 0..self.nodes.len() {
                let life = self.nodes[other].process.as_ref().map(|process| process.life);
                if let Some(life) = life.filter(|_| other != number)
                    && !self.chance(100)
                {
                    let delay = self.delay();
                    self.plan(delay, Event::Noticed { node: other, life });
                }
            }
        }
    }

    fn sweep(&mut self) {
        self.plan(ms(1_000), Event::Sweeps);
        if self.cut_until > self.now {
            return;
        }
        let was: Vec<_> =
            self.nodes.iter().map(|node| self.treasury.is_suspended(node.id)).collect();
        self.treasury.sweep(self.treasury_now());
        for (number, was_suspended) in was.into_iter().enumerate() {
            let node = &self.nodes[number];
            if was_suspended || !self.treasury.is_suspended(node.id) {
                continue;
            }
            if let Some(borrower) = node.process.as_ref().and_then(|it| it.borrower.as_ref()) {
                let local = node.local(self.now);
                let until = borrower.spend_until();
                assert!(
                    until <= local,
                    "what node {number} has is in suspense at {local:?}, and it spends until {until:?}"
                );
            }
            self.counts.suspended += 1;
            self.checked = (0, 0);
            self.note(|| format!("the treasury puts what node {number} has into suspense"));
        }
    }

    /// Tells customers what came of their waiting.
    pub(crate) fn tell(&mut self, number: usize, message: Vec<(Waiter, LeaseWait)>) {
        for (waiter, verdict) in message {
            let local = self.nodes[number].local(self.now);
            let Some(process) = self.nodes[number].process.as_mut() else { return };
            let Some(call) = process.waiting.remove(&waiter) else { continue };
            let life = process.life;
            if verdict == LeaseWait::Retry {
                process.promised.insert(call.account, local);
            }
            self.note(|| format!("node {number}: {call:?} is told {verdict:?}"));
            self.counts.longest_wait = self.counts.longest_wait.max(self.now - call.began);
            match verdict {
                LeaseWait::Retry => {
                    let wait = Duration::from_micros(self.rng.u64(1..3_000));
                    self.plan(wait, Event::Tries { node: number, life, call });
                }
                LeaseWait::Short(_) => {
                    self.counts.refused += 1;
                    call.check_refusal(local);
                }
                LeaseWait::CutOff => self.counts.cut_off += 1,
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.trace.len().saturating_sub(400);
            self.trace[from..].iter().for_each(|line| println!("{line}"));
        }
    }
}
