//! The limits against a model that is too simple to be wrong, on a clock that the tests turn.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::entries::{SHARDS, SWEPT_FROM};
use super::*;

mod model_shares;

const MINUTE: Duration = Duration::from_secs(60);

/// Limits, and the clock that they go by.
struct Bench {
    limits: Limiter,
    now_ns: Arc<AtomicU64>,
}

impl Bench {
    fn new() -> Self {
        let now_ns = Arc::new(AtomicU64::new(1));
        let clock = Arc::clone(&now_ns);
        let limits =
            Limiter::with_clock(move || Duration::from_nanos(clock.load(Ordering::Relaxed)));
        Self { limits, now_ns }
    }

    fn pass(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).expect("short");
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn take(&self, rates: Rates, tokens: u64) -> Result<Permit, LimitRefusal> {
        self.limits.take([(Subject::Key(1), rates)], Some(tokens))
    }
}

fn some(limit: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(limit)
}

fn requests(limit: u32) -> Rates {
    Rates { requests_per_minute: some(limit), ..Rates::NONE }
}

fn tokens(limit: u32) -> Rates {
    Rates { tokens_per_minute: some(limit), ..Rates::NONE }
}

fn concurrency(limit: u32) -> Rates {
    Rates { concurrent_requests: some(limit), ..Rates::NONE }
}

/// The wait that a refusal states.
fn wait(refused: Result<Permit, LimitRefusal>) -> Duration {
    match refused.expect_err("refused").wait {
        Wait::For(wait) => wait,
        wait => panic!("{wait:?}"),
    }
}

fn runner(cases: u32) -> TestRunner {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    TestRunner::new(Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    })
}

#[test]
fn exactly_the_limit_passes_at_once_and_the_wait_is_true() {
    runner(300)
        .run(&(1_u32..5000, 0_u64..100_000_000_000), |(limit, ago)| {
            let bench = Bench::new();
            bench.pass(Duration::from_nanos(ago));
            for _ in 0..limit {
                prop_assert!(bench.take(requests(limit), 0).is_ok());
            }
            let first = wait(bench.take(requests(limit), 0));
            for _ in 0..20 {
                prop_assert_eq!(wait(bench.take(requests(limit), 0)), first, "refusals are free");
            }
            bench.pass(first - Duration::from_nanos(1));
            prop_assert!(bench.take(requests(limit), 0).is_err(), "a moment too early");
            bench.pass(Duration::from_nanos(1));
            prop_assert!(bench.take(requests(limit), 0).is_ok(), "after the wait");
            prop_assert!(bench.take(requests(limit), 0).is_err(), "one, not two");
            bench.pass(MINUTE + Duration::from_micros(10));
            for _ in 0..limit {
                prop_assert!(bench.take(requests(limit), 0).is_ok(), "a minute later");
            }
            prop_assert!(bench.take(requests(limit), 0).is_err());
            Ok(())
        })
        .expect("holds");
}

#[derive(Clone, Debug)]
enum BucketOperation {
    Pass(u64),
    Take(u64),
    /// Ends the oldest request with this many tokens.
    Settle(u64),
    Drop,
    Limit(u32),
}

/// The most that is missing: what comes back in a day.
const DAY_NS: u128 = 24 * 60 * 60_000_000_000;

/// A bucket in whole nanoseconds of what is missing to be full.
#[derive(Default)]
struct ReferenceBucket {
    missing_ns: u128,
    interval_ns: u128,
    limit: u128,
}

impl ReferenceBucket {
    fn set(&mut self, limit: u32) {
        let interval = 60_000_000_000_u128.div_ceil(limit.into());
        if self.limit != 0 && self.limit != limit.into() {
            self.missing_ns = (self.missing_ns / self.interval_ns * interval).min(DAY_NS);
        }
        (self.interval_ns, self.limit) = (interval, limit.into());
    }

    fn wait_ns(&self, tokens: u64) -> u128 {
        let after = self.missing_ns + u128::from(tokens) * self.interval_ns;
        after.saturating_sub(self.limit * self.interval_ns)
    }

    fn add(&mut self, tokens: u64) {
        let sum = self.missing_ns + u128::from(tokens) * self.interval_ns;
        self.missing_ns = sum.min(DAY_NS);
    }

    fn sub(&mut self, tokens: u64) {
        let back = u128::from(tokens) * self.interval_ns;
        self.missing_ns = self.missing_ns.saturating_sub(back);
    }
}

#[test]
fn tokens_are_what_was_used_in_any_history() {
    let step = prop_oneof![
        3 => (0_u64..5_000_000_000).prop_map(BucketOperation::Pass),
        5 => (1_u64..400).prop_map(BucketOperation::Take),
        1 => prop_oneof![Just(u64::from(u32::MAX)), Just(u64::MAX)].prop_map(BucketOperation::Take),
        3 => (0_u64..2_000).prop_map(BucketOperation::Settle),
        1 => Just(BucketOperation::Settle(u64::MAX)),
        1 => Just(BucketOperation::Drop),
        1 => (1_u32..1500).prop_map(BucketOperation::Limit),
    ];
    runner(400)
        .run(&prop::collection::vec(step, 1..80), |steps| {
            let (bench, mut model, mut limit) = (Bench::new(), ReferenceBucket::default(), 1000);
            let mut open = std::collections::VecDeque::new();
            model.set(limit);
            for step in steps {
                match step {
                    BucketOperation::Pass(ns) => {
                        bench.pass(Duration::from_nanos(ns));
                        model.missing_ns = model.missing_ns.saturating_sub(ns.into());
                    }
                    BucketOperation::Limit(other) => {
                        limit = other;
                        // The limit is seen by the request that comes next.
                        drop(bench.take(tokens(limit), 0).expect("nothing is always there"));
                        model.set(limit);
                    }
                    BucketOperation::Take(count) => match bench.take(tokens(limit), count) {
                        Ok(permit) => {
                            prop_assert!(
                                count <= limit.into() && model.wait_ns(count) == 0,
                                "it was let through"
                            );
                            model.add(count);
                            open.push_back((permit, count));
                        }
                        Err(refused) if count > u64::from(limit) => {
                            prop_assert_eq!(refused.wait, Wait::Never);
                        }
                        Err(refused) => {
                            let Wait::For(wait) = refused.wait else { panic!("{refused:?}") };
                            prop_assert_eq!(wait.as_nanos(), model.wait_ns(count));
                        }
                    },
                    BucketOperation::Settle(used) => {
                        let Some((permit, counted)) = open.pop_front() else { continue };
                        permit.settle(used);
                        model.add(used.saturating_sub(counted));
                        model.sub(counted.saturating_sub(used));
                    }
                    BucketOperation::Drop => {
                        let Some((permit, counted)) = open.pop_front() else { continue };
                        drop(permit);
                        model.sub(counted);
                    }
                }
            }
            Ok(())
        })
        .expect("holds");
}

#[test]
fn an_estimate_above_the_limit_passes_where_the_tokens_may_fit() {
    let bench = Bench::new();
    let take = |about, least| {
        let estimated = EstimatedTokens { about, least };
        bench.limits.take_with(
            [(Subject::Key(1), tokens(1000))],
            None,
            Some(estimated),
            ShareWait::First,
        )
    };
    let remaining = |permit: &Permit| permit.standing().tokens.map(|gauge| gauge.remaining);
    let permit = take(1213, 485).expect("it may have 600");
    assert_eq!(remaining(&permit), Some(0), "all of the limit until it is known");
    let refused = take(1, 1).expect_err("nothing is left");
    assert_eq!(refused.wait, Wait::For(Duration::from_millis(60)));
    permit.settle(600);
    let permit = take(400, 160).expect("what was not used is back");
    assert_eq!(remaining(&permit), Some(0));
    drop(permit);
    bench.pass(Duration::from_secs(60));
    // Whoever was let through with less than it uses makes those after it wait.
    take(2000, 800).expect("it may fit").settle(1900);
    let Wait::For(wait) = take(1, 1).expect_err("900 are owed").wait else { panic!("it passes") };
    assert_eq!(wait.as_millis().div_ceil(60), 901);
    let refused = take(2503, 1001).expect_err("it cannot fit");
    assert_eq!((refused.limit, refused.wait), (Limit::Tokens, Wait::Never));
    assert_eq!(refused.standing.tokens.map(|gauge| gauge.remaining), Some(0), "it took nothing");
}

/// Whatever comes and however wrong its estimate is (three times at most): who has no more than the limit
/// passes a full bucket, and what is used is the limit, what has come back of it, and one excess.
#[test]
fn estimates_keep_nobody_out_for_good_and_let_nobody_far_beyond() {
    const LIMIT: u64 = 1000;
    let step = (1_u64..3 * LIMIT, 1000_u64..=3000, 0_u64..120_000, any::<bool>());
    runner(300)
        .run(&prop::collection::vec(step, 1..60), |steps| {
            let (bench, mut open) = (Bench::new(), Vec::new());
            let (mut used, mut passed_ms) = (0, 0);
            for (real, excess, pause_ms, ends) in steps {
                let about = real * excess / 1000;
                let estimated = EstimatedTokens { about, least: about / 3 };
                let subjects = [(Subject::Key(1), tokens(1000))];
                match bench.limits.take_with(subjects, None, Some(estimated), ShareWait::First) {
                    Ok(permit) => {
                        used += real;
                        open.push((permit, real));
                    }
                    Err(refused) if real <= LIMIT => {
                        prop_assert_ne!(refused.wait, Wait::Never, "{} of {}", real, about);
                    }
                    Err(_) => {}
                }
                // Until then all are under way at one time.
                if ends {
                    open.drain(..).for_each(|(permit, real): (Permit, u64)| permit.settle(real));
                    bench.pass(Duration::from_millis(pause_ms));
                    passed_ms += pause_ms;
                }
                let back = passed_ms * LIMIT / 60_000 + 1;
                let most = LIMIT + back + LIMIT * 2;
                prop_assert!(used <= most, "{} after {} ms", used, passed_ms);
            }
            open.drain(..).for_each(|(permit, real)| permit.settle(real));
            bench.pass(Duration::from_secs(24 * 3600));
            let whole = EstimatedTokens { about: LIMIT * 3, least: LIMIT };
            let subjects = [(Subject::Key(1), tokens(1000))];
            prop_assert!(
                bench.limits.take_with(subjects, None, Some(whole), ShareWait::First).is_ok()
            );
            Ok(())
        })
        .expect("holds");
}

#[test]
fn a_refusal_takes_nothing_of_anybody_and_names_the_longest_wait() {
    let bench = Bench::new();
    let key = Rates { concurrent_requests: some(1), ..requests(10) };
    let account = tokens(6000);
    let model = requests(3);
    let subjects = || {
        [
            (Subject::Key(1), key),
            (Subject::Account(1), account),
            (Subject::Model("m".into()), model),
        ]
    };
    let first = bench.limits.take(subjects(), Some(5000)).expect("all is free");
    let standing = first.standing();
    let remaining = |gauge: Option<LimitStatus>| gauge.map(|gauge| (gauge.limit, gauge.remaining));
    assert_eq!(remaining(standing.requests), Some((3, 2)), "the model is nearer to its end");
    assert_eq!(remaining(standing.tokens), Some((6000, 1000)));
    // The key's only place is taken, and the account's tokens reach for 1000 more: 20 s for 3000.
    let refused = bench.limits.take(subjects(), Some(3000)).expect_err("refused");
    assert_eq!(
        (refused.scope, refused.limit, refused.value),
        (Scope::Account, Limit::Tokens, 6000)
    );
    assert_eq!(refused.wait, Wait::For(Duration::from_secs(20)));
    assert_eq!(remaining(refused.standing.requests), Some((3, 2)), "given back");
    let refused = bench.limits.take(subjects(), Some(1)).expect_err("refused");
    assert_eq!((refused.scope, refused.limit), (Scope::Key, Limit::Concurrency));
    assert_eq!(refused.wait, Wait::UntilOneEnds);
    let refused = bench.limits.take(subjects(), Some(6001)).expect_err("refused");
    assert_eq!((refused.limit, refused.wait), (Limit::Tokens, Wait::Never));
    drop(first);
    for _ in 0..2 {
        drop(bench.limits.take(subjects(), Some(6000)).expect("all tokens are back"));
    }
    let refused = bench.limits.take(subjects(), Some(1)).expect_err("refused");
    assert_eq!((refused.scope, refused.limit), (Scope::Model, Limit::Requests));
    assert_eq!(refused.wait, Wait::For(Duration::from_secs(20)), "of three a minute");
}

/// A customer who leaves and comes back finds its place free, and has at most twice its limit at work.
#[test]
fn an_orphan_leaves_its_place_and_no_more_orphans_than_places_do() {
    let bench = Bench::new();
    let limit = || concurrency(2);
    let mut orphans: Vec<Permit> = Vec::new();
    for round in 0..2 {
        let mut permit = bench.take(limit(), 0).expect("a place");
        permit.orphan();
        permit.orphan();
        orphans.push(permit);
        let others: Vec<_> = (0..2).map(|_| bench.take(limit(), 0).expect("free")).collect();
        assert!(bench.take(limit(), 0).is_err(), "round {round}: two places, not three");
        drop(others);
    }
    // As many go on without their customers as there are places: the next one keeps its own.
    let mut third = bench.take(limit(), 0).expect("a place");
    third.orphan();
    let fourth = bench.take(limit(), 0).expect("the other place");
    assert!(bench.take(limit(), 0).is_err(), "the third orphan is in a place");
    drop(third);
    let fifth = bench.take(limit(), 0).expect("its place is free at its end");
    drop((fourth, fifth));
    // The end of an orphan gives back no place a second time.
    orphans.clear();
    let whole: Vec<_> = (0..2).map(|_| bench.take(limit(), 0).expect("free")).collect();
    assert!(bench.take(limit(), 0).is_err(), "two and no more");
    drop(whole);
    // The entry was not forgotten while orphans went on, and is now.
    let mut again = bench.take(limit(), 0).expect("a place");
    again.orphan();
    drop(again);
    assert!(bench.take(limit(), 0).is_ok());
}

/// An abandoned request keeps its slot of the model, as the upstream continues; without a limit there is none
/// to keep.
#[test]
fn an_orphan_keeps_its_place_of_a_model() {
    let bench = Bench::new();
    let of_model =
        || [(Subject::Model("m".into()), concurrency(1)), (Subject::Key(1), concurrency(1))];
    let mut permit = bench.limits.take(of_model(), None).expect("a place");
    permit.orphan();
    let refused = bench.limits.take(of_model(), None).expect_err("the model's place is taken");
    assert_eq!((refused.scope, refused.limit), (Scope::Model, Limit::Concurrency));
    assert!(bench.take(concurrency(1), 0).is_ok(), "the key's is free");
    drop(permit);
    assert!(bench.limits.take(of_model(), None).is_ok());
    let mut unlimited = bench.take(requests(10), 0).expect("no limit of places");
    unlimited.orphan();
    drop(unlimited);
}

#[test]
fn a_place_is_free_when_its_request_has_left_or_is_dropped() {
    let bench = Bench::new();
    let mut permits: Vec<_> =
        (0..5).map(|_| bench.take(concurrency(5), 0).expect("a place")).collect();
    assert!(bench.take(concurrency(5), 0).is_err(), "a sixth");
    permits[0].leave();
    permits[0].leave();
    let sixth = bench.take(concurrency(5), 0).expect("one has left, once");
    assert!(bench.take(concurrency(5), 0).is_err());
    drop(permits.remove(0));
    assert!(bench.take(concurrency(5), 0).is_err(), "who had left does not leave again");
    drop(permits);
    drop(sixth);
    assert_eq!((0..5).filter_map(|_| bench.take(concurrency(5), 0).ok()).count(), 5);
}

#[test]
fn many_at_a_time_get_what_there_is() {
    let bench = Bench::new();
    let passed = AtomicU64::new(0);
    let rates = Rates { requests_per_minute: some(1000), ..tokens(30_000) };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    if let Ok(permit) = bench.take(rates, 50) {
                        permit.settle(50);
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    // Tokens for 600 requests. One that is refused for them gives its request back.
    assert_eq!(passed.into_inner(), 600);
    let gauge = bench.take(requests(1000), 0).expect("400 are left").standing().requests;
    assert_eq!(gauge.map(|gauge| gauge.remaining), Some(399));
}

#[test]
fn concurrent_takes_return_distinct_remainders() {
    let bench = Bench::new();
    let remaining = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Ok(permit) = bench.take(requests(2000), 0) {
                    let gauge = permit.standing().requests.expect("there is a limit");
                    remaining.lock().push(gauge.remaining);
                }
            });
        }
    });
    let mut remaining = remaining.into_inner();
    remaining.sort_unstable();
    assert_eq!(remaining, (0..2000).collect::<Vec<_>>());
}

#[test]
fn who_is_idle_is_forgotten_and_nobody_else() {
    let bench = Bench::new();
    let rates = Rates { requests_per_minute: some(60), ..concurrency(2) };
    let request = |key| bench.limits.take([(Subject::Key(key), rates)], None);
    let busy = request(0).expect("a place");
    let used: Vec<_> = (0..59).map(|_| request(1).map(drop)).collect();
    assert!(used.iter().all(Result::is_ok));
    for key in 2..100_000 {
        drop(request(key).expect("nobody was here"));
        if key % 1000 == 0 {
            bench.pass(Duration::from_millis(1100));
            assert!(request(1).is_ok(), "one a second comes back");
        }
    }
    // Each is idle a second after its request: some 1,000 of them are there at any time.
    let entries = bench.limits.entries();
    assert!(entries < 2 * SHARDS * SWEPT_FROM, "{entries} of 100,000 are kept");
    let second = request(0).expect("two places");
    assert_eq!(request(0).expect_err("the first is still there").limit, Limit::Concurrency);
    drop((busy, second));
}

#[test]
fn without_limits_nothing_is_kept() {
    let bench = Bench::new();
    for key in 0..1000 {
        let permit = bench.limits.take([(Subject::Key(key), Rates::NONE)], Some(u64::MAX));
        assert_eq!(permit.expect("no limit").standing(), RateLimitStatus::default());
    }
    assert_eq!(bench.limits.entries(), 0);
}

/// Prints what a limited request costs. The bound is for a debug build on a busy machine.
#[test]
fn a_limited_request_costs_little() {
    const ROUNDS: u32 = 20_000;
    let limits = Limiter::new();
    let all = Rates {
        requests_per_minute: some(1_000_000_000),
        tokens_per_minute: some(1_000_000_000),
        concurrent_requests: some(1000),
    };
    let model: Arc<str> = "m".into();
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let subjects = [
            (Subject::Key(u64::from(round % 1000)), all),
            (Subject::Account(u64::from(round % 100)), all),
            (Subject::Model(Arc::clone(&model)), all),
        ];
        limits.take(subjects, Some(10)).expect("far from any limit").settle(12);
    }
    let each = begun.elapsed() / ROUNDS;
    println!("{each:?} for three subjects with three limits each");
    assert!(each < Duration::from_micros(100), "{each:?}");
}

/// A node of a fleet.
fn node() -> Bench {
    let Bench { limits, now_ns } = Bench::new();
    Bench { limits: limits.shared(), now_ns }
}

const TERM: Duration = Duration::from_secs(10);

/// Sends the node's share request and applies a fixed grant.
fn sync(bench: &Bench, share: u32, brought: u32, target: u32) -> ShareRequest {
    let mut share_requests = bench.limits.share_requests(10);
    while share_requests.is_empty() {
        bench.pass(Duration::from_millis(500));
        share_requests = bench.limits.share_requests(10);
    }
    let sent_at = bench.limits.now();
    let [request] = &share_requests[..] else { panic!("{share_requests:?}") };
    let brought_micros = u64::from(brought) * MICROS;
    let grant = ShareGrant { share, brought_micros, target, unclaimed: 0 };
    bench.limits.apply_grants(sent_at, TERM, [(request, grant)]);
    request.clone()
}

#[test]
fn a_node_lets_through_what_it_has_of_a_limit_until_its_term_ends() {
    let bench = node();
    let rates = requests(60);
    assert_eq!(bench.take(rates, 0).expect_err("no share").wait, Wait::UntilShared);
    let request = sync(&bench, 30, 20, 30);
    assert_eq!((request.limit, request.share, request.need, request.is_over), (60, 0, 1, false));
    assert_eq!((0..30).filter(|_| bench.take(rates, 0).is_ok()).count(), 20, "what it brought");
    bench.pass(Duration::from_secs(4));
    assert_eq!((0..30).filter(|_| bench.take(rates, 0).is_ok()).count(), 2, "thirty a minute");
    assert_eq!(wait(bench.take(rates, 0)), Duration::from_secs(2));
    bench.pass(Duration::from_millis(5_999));
    assert!(bench.take(rates, 0).is_ok(), "its term is not over");
    bench.pass(Duration::from_millis(1));
    let refused =
        bench.limits.take_with([(Subject::Key(1), rates)], None, None, ShareWait::Expired);
    assert_eq!(refused.expect_err("over").wait, Wait::UntilShared);
    let request = sync(&bench, 30, 0, 30);
    assert_eq!(
        (request.share, request.returned_micros),
        (0, 0),
        "it has nothing that it could keep"
    );
    assert!(bench.take(rates, 0).is_err(), "what it had is lost");
}

#[test]
fn what_a_share_loses_goes_back_and_what_it_gains_comes_empty() {
    let bench = node();
    let rates = tokens(60);
    bench.take(rates, 1).expect_err("no share");
    sync(&bench, 40, 40, 40);
    bench.take(rates, 10).expect("of 40").settle(10);
    sync(&bench, 40, 0, 20);
    let request = sync(&bench, 50, 0, 50);
    assert_eq!(request.share, 20);
    // Of the 30 that were left, and of what came back meanwhile.
    assert_eq!(request.returned_micros / MICROS, 10, "{request:?}");
    assert_eq!((0..60).filter(|_| bench.take(rates, 1).map(|it| it.settle(1)).is_ok()).count(), 20);
    // Ten more than there are: a debt that no share takes away.
    bench.pass(Duration::from_secs(6));
    bench.take(rates, 5).expect("of 50 a minute").settle(15);
    sync(&bench, 50, 0, 0);
    let request = sync(&bench, 60, 0, 60);
    assert_eq!((request.share, request.returned_micros), (0, 0));
    assert!(wait(bench.take(rates, 1)) > Duration::from_secs(10), "ten are owed");
}

#[test]
fn places_that_are_taken_are_not_given_up() {
    let bench = node();
    assert_eq!(bench.take(concurrency(5), 0).expect_err("no share").wait, Wait::UntilShared);
    sync(&bench, 5, 0, 5);
    let mut open: Vec<_> =
        (0..3).map(|_| bench.take(concurrency(5), 0).expect("a place")).collect();
    assert_eq!(sync(&bench, 5, 0, 1).share, 5);
    bench.pass(Duration::from_secs(1));
    assert!(bench.take(concurrency(5), 0).is_err(), "it keeps to one already");
    assert_eq!(sync(&bench, 3, 0, 1).share, 3, "three are in flight");
    open.truncate(1);
    bench.pass(Duration::from_secs(1));
    assert_eq!(sync(&bench, 1, 0, 1).share, 1);
    assert!(bench.take(concurrency(5), 0).is_err());
    drop(open);
    assert!(bench.take(concurrency(5), 0).is_ok());
}

#[test]
fn a_share_that_nobody_uses_is_given_back() {
    let bench = node();
    bench.take(requests(60), 0).expect_err("no share");
    sync(&bench, 60, 60, 60);
    bench.pass(Duration::from_secs(4));
    let request = sync(&bench, 60, 0, 60);
    assert!(!request.is_over && request.demand > 0, "{request:?}");
    bench.pass(Duration::from_secs(7));
    let request = sync(&bench, 0, 0, 0);
    assert!(request.is_over, "{request:?}");
    assert_eq!((request.share, request.returned_micros, request.demand), (0, 60 * MICROS, 0));
    assert_eq!(bench.limits.share_requests(10), [], "the others know");
    assert_eq!(bench.take(requests(60), 0).expect_err("none").wait, Wait::UntilShared);
}
