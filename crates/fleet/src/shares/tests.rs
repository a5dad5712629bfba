//! Nodes with limits of their own, a table of shares, and all that can go wrong between them.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::*;
use tollgate_limits::{EstimatedTokens, Limiter, Permit, Rates, ShareWait, Subject};

const TERM_MS: u64 = 10_000;
/// A sync without an answer is given up after this.
const GIVEN_UP_MS: u64 = 2_000;
const STEP_MS: u64 = 20;

/// The table of one limit, as the database has it.
struct LimitTable {
    limit: u32,
    pool: Option<Pool>,
    rows: BTreeMap<i16, (Claim, u64)>,
    /// The sync of each node that was done last: an older one comes too late.
    turns: BTreeMap<i16, (u64, u64)>,
}

impl LimitTable {
    fn sync(
        &mut self,
        node: i16,
        turn: (u64, u64),
        request: &ShareRequest,
        now_ms: u64,
    ) -> Option<ShareGrant> {
        let last = self.turns.entry(node).or_default();
        if turn <= *last {
            return None;
        }
        *last = turn;
        self.rows.retain(|_, (_, until_ms)| *until_ms > now_ms);
        let had = self.rows.get(&node).map_or(0, |(claim, _)| claim.share);
        let others = self.rows.values().filter(|(claim, _)| claim.node != node);
        let others: Vec<_> = others.map(|(claim, _)| *claim).collect();
        let pool = self.pool.unwrap_or_else(|| Pool::full(self.limit, now_ms));
        let settled = settle(pool, now_ms, &others, node, had, request, 3);
        self.pool = Some(settled.pool);
        match settled.row {
            Some(row) => self.rows.insert(node, (row, now_ms + 2 * TERM_MS)),
            None => self.rows.remove(&node),
        };
        let claimed: u32 = self.rows.values().map(|(claim, _)| claim.share).sum();
        assert!(claimed <= self.limit, "{claimed} of {} are claimed", self.limit);
        assert_eq!(claimed + settled.pool.units, self.limit, "what nobody has is known");
        Some(settled.grant)
    }
}

/// A sync on its way.
struct OnItsWay {
    share_requests: Vec<ShareRequest>,
    turn: (u64, u64),
    sent_at: Duration,
    commits_at_ms: Option<u64>,
    grant: Vec<ShareGrant>,
    answered_at_ms: Option<u64>,
}

struct SimulatedNode {
    id: i16,
    limits: Limiter,
    epoch: u64,
    turn: u64,
    sync: Option<(u64, OnItsWay)>,
    /// Syncs that the node has given up, and that may still be done.
    late: Vec<OnItsWay>,
    next_at_ms: u64,
    cut_off_until_ms: u64,
    /// The process does nothing until then.
    stopped_until_ms: u64,
    open: Vec<(u64, Permit)>,
}

struct FleetSim {
    rng: Rng,
    now_ns: Arc<AtomicU64>,
    rates: Rates,
    table: LimitTable,
    nodes: Vec<SimulatedNode>,
    /// The content of one bucket of the whole limit, in units of a 60 s · 10⁹th.
    one_bucket: u128,
    admitted_ms: VecDeque<u64>,
    admitted: u64,
    refused: u64,
}

const UNIT: u128 = 60_000_000_000;

impl FleetSim {
    fn new(seed: u64, nodes: i16, limit: u32, kind: Limit) -> Self {
        let now_ns = Arc::new(AtomicU64::new(1_000_000));
        let some = NonZeroU32::new(limit);
        let rates = match kind {
            Limit::Concurrency => Rates { concurrent_requests: some, ..Rates::NONE },
            _ => Rates { tokens_per_minute: some, ..Rates::NONE },
        };
        let node = |id| SimulatedNode {
            id,
            limits: limits(&now_ns),
            epoch: 1,
            turn: 0,
            sync: None,
            late: Vec::new(),
            next_at_ms: 0,
            cut_off_until_ms: 0,
            stopped_until_ms: 0,
            open: Vec::new(),
        };
        let nodes = (1..=nodes).map(node).collect();
        Self {
            rng: Rng::with_seed(seed),
            rates,
            table: LimitTable { limit, pool: None, rows: BTreeMap::new(), turns: BTreeMap::new() },
            nodes,
            now_ns,
            one_bucket: u128::from(limit) * UNIT,
            admitted_ms: VecDeque::new(),
            admitted: 0,
            refused: 0,
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed) / 1_000_000
    }

    fn pass(&mut self) {
        self.now_ns.fetch_add(STEP_MS * 1_000_000, Ordering::Relaxed);
        let limit = u128::from(self.table.limit);
        let more = limit * u128::from(STEP_MS) * 1_000_000;
        self.one_bucket = (self.one_bucket + more).min(limit * UNIT);
        let now_ms = self.now_ms();
        for node in &mut self.nodes {
            node.open.retain(|(ends_ms, _)| *ends_ms > now_ms);
        }
    }

    /// A request of so many units, which is over `lasts_ms` later.
    fn request(&mut self, index: usize, units: u64, lasts_ms: u64) -> bool {
        let now_ms = self.now_ms();
        let node = &mut self.nodes[index];
        if now_ms < node.stopped_until_ms {
            return false;
        }
        let subjects = [(Subject::Key(1), self.rates)];
        let tokens = Some(EstimatedTokens::exact(units));
        let taken = node.limits.take_with(subjects, None, tokens, ShareWait::First);
        let Ok(permit) = taken else {
            self.refused += units;
            return false;
        };
        self.admitted += units;
        if self.rates.concurrent_requests.is_some() {
            node.open.push((now_ms + lasts_ms, permit));
            let in_flight = self.nodes.iter().map(|node| node.open.len()).sum::<usize>();
            assert!(in_flight <= self.table.limit as usize, "{in_flight} at one time");
            return true;
        }
        permit.settle(units);
        let left = self.one_bucket.checked_sub(u128::from(units) * UNIT);
        self.one_bucket = left.expect("one bucket of the whole limit would have let it through");
        self.admitted_ms.extend(std::iter::repeat_n(now_ms, units.try_into().expect("few")));
        while self.admitted_ms.front().is_some_and(|at_ms| at_ms + 60_000 <= now_ms) {
            self.admitted_ms.pop_front();
        }
        let minute = self.admitted_ms.len() as u64;
        assert!(minute < 2 * u64::from(self.table.limit), "{minute} within a minute");
        true
    }

    /// Syncs that are due begin, are done, and are answered. `trouble` of 100 go wrong.
    fn sync(&mut self, trouble: u32) {
        let now_ms = self.now_ms();
        for index in 0..self.nodes.len() {
            self.commit(index, now_ms);
            let node = &mut self.nodes[index];
            if now_ms < node.stopped_until_ms {
                continue;
            }
            let is_due = now_ms >= node.next_at_ms || node.limits.needs_sync();
            if node.sync.is_none() && is_due {
                self.begin(index, now_ms, trouble);
                self.commit(index, now_ms);
            }
        }
    }

    fn begin(&mut self, index: usize, now_ms: u64, trouble: u32) {
        let rng = &mut self.rng;
        let node = &mut self.nodes[index];
        node.next_at_ms = now_ms + 500;
        let share_requests = node.limits.share_requests(100);
        if share_requests.is_empty() {
            return;
        }
        node.turn += 1;
        let is_lost = rng.u32(0..100) < trouble || now_ms < node.cut_off_until_ms;
        let is_late = rng.u32(0..100) < trouble;
        let takes_ms = if is_late { rng.u64(0..3 * GIVEN_UP_MS) } else { rng.u64(0..80) };
        let is_unanswered = rng.u32(0..100) < trouble;
        let commits_at_ms = (!is_lost).then_some(now_ms + takes_ms);
        let sent_at = node.limits.now();
        let answered_at_ms = commits_at_ms.filter(|_| !is_unanswered);
        let answered_at_ms = answered_at_ms.map(|at_ms| at_ms + rng.u64(0..80));
        let turn = (node.epoch, node.turn);
        let sync = OnItsWay {
            share_requests,
            turn,
            sent_at,
            commits_at_ms,
            grant: Vec::new(),
            answered_at_ms,
        };
        node.sync = Some((now_ms + GIVEN_UP_MS, sync));
    }

    fn commit(&mut self, index: usize, now_ms: u64) {
        let node = &mut self.nodes[index];
        let latest = node.sync.as_mut().map(|(_, sync)| sync);
        for sync in latest.into_iter().chain(&mut node.late) {
            if sync.commits_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                sync.commits_at_ms = None;
                let share_requests = sync.share_requests.iter();
                let grant = share_requests.filter_map(|request| {
                    let table = &mut self.table;
                    table.sync(node.id, sync.turn, request, now_ms)
                });
                sync.grant = grant.collect();
            }
        }
        node.late.retain(|sync| sync.commits_at_ms.is_some());
        if now_ms < node.stopped_until_ms {
            return;
        }
        let Some((given_up_at_ms, sync)) = node.sync.take() else { return };
        if sync.answered_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            let grant = sync.share_requests.iter().zip(sync.grant.iter().copied());
            let term = Duration::from_millis(TERM_MS);
            node.limits.apply_grants(sync.sent_at, term, grant);
        } else if now_ms >= given_up_at_ms {
            node.late.push(sync);
        } else {
            node.sync = Some((given_up_at_ms, sync));
        }
    }

    /// The process ends, and another begins.
    fn restart(&mut self, index: usize) {
        let now_ns = Arc::clone(&self.now_ns);
        let node = &mut self.nodes[index];
        node.open.clear();
        let sync = node.sync.take().map(|(_, sync)| sync);
        node.late.extend(sync);
        (node.limits, node.epoch, node.turn) = (limits(&now_ns), node.epoch + 1, 0);
    }
}

fn limits(now_ns: &Arc<AtomicU64>) -> Limiter {
    let now_ns = Arc::clone(now_ns);
    Limiter::with_clock(move || Duration::from_nanos(now_ns.load(Ordering::Relaxed))).shared()
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = fastrand::u64(..);
    println!("seeds {first} and the {} behind it", count - 1);
    (0..count).map(move |index| first.wrapping_add(index))
}

fn in_trouble(seed: u64, kind: Limit) -> u64 {
    let mut rng = Rng::with_seed(!seed);
    let (nodes, limit) = (rng.i16(1..6), rng.u32(1..90));
    let mut sim = FleetSim::new(seed, nodes, limit, kind);
    let trouble = *rng.choice(&[0, 5, 30]).expect("one");
    // Each node wants something else, and something else again a while later.
    let mut wants: Vec<u32> = vec![0; sim.nodes.len()];
    for step in 0..150_000 / STEP_MS {
        sim.pass();
        for (index, wants) in wants.iter_mut().enumerate() {
            if step == 0 || rng.u32(0..500) == 0 {
                *wants = rng.u32(0..100).pow(2) / 100;
            }
            if rng.u32(0..3000) == 0 {
                sim.nodes[index].cut_off_until_ms = sim.now_ms() + rng.u64(0..40_000);
            }
            if rng.u32(0..3000) == 0 && kind != Limit::Concurrency {
                sim.nodes[index].stopped_until_ms = sim.now_ms() + rng.u64(0..40_000);
            }
            if rng.u32(0..3000) == 0 {
                sim.restart(index);
            }
            if rng.u32(0..100) < *wants {
                let units = if rng.u32(0..10) == 0 { rng.u64(1..=limit.into()) } else { 1 };
                sim.request(index, units, rng.u64(0..8_000));
            }
        }
        sim.sync(trouble);
    }
    sim.admitted
}

#[test]
fn no_more_is_let_through_than_one_bucket_would_whatever_goes_wrong() {
    let mut admitted = 0;
    for seed in seeds(60) {
        println!("seed {seed}");
        admitted += in_trouble(seed, Limit::Tokens);
    }
    assert!(admitted > 60 * 20, "only {admitted} were let through");
}

#[test]
fn no_more_are_in_flight_than_places_whatever_goes_wrong() {
    let mut admitted = 0;
    for seed in seeds(60) {
        println!("seed {seed}");
        admitted += in_trouble(seed, Limit::Concurrency);
    }
    assert!(admitted > 60 * 20, "only {admitted} were let through");
}

#[test]
fn skewed_demand_uses_the_limit() {
    for seed in seeds(20) {
        let mut rng = Rng::with_seed(seed);
        let limit = rng.u32(60..1000);
        let mut sim = FleetSim::new(seed, 3, limit, Limit::Requests);
        // The first node wants most, and all want more than there is.
        let weights = [rng.u32(70..90), rng.u32(0..10), rng.u32(0..10)];
        let per_step = f64::from(limit) * 2.0 * 20.0 / 60_000.0;
        let mut minute_begun = (0, 0);
        for step in 0..240_000 / STEP_MS {
            sim.pass();
            for (index, weight) in weights.iter().enumerate() {
                let mut arrivals =
                    per_step * f64::from(*weight) / f64::from(weights.iter().sum::<u32>());
                while arrivals > 0.0 {
                    if rng.f64() < arrivals {
                        sim.request(index, 1, 0);
                    }
                    arrivals -= 1.0;
                }
            }
            sim.sync(0);
            if step * STEP_MS % 60_000 == 59_980 {
                let (minute, before) = minute_begun;
                let admitted = sim.admitted - before;
                println!("seed {seed}: minute {minute}: {admitted} of {limit} by {weights:?}");
                assert!(admitted * 10 >= u64::from(limit) * 9, "{admitted} of {limit}");
                minute_begun = (minute + 1, sim.admitted);
            }
        }
        assert!(sim.refused > 0, "more was wanted than there is");
    }
}
