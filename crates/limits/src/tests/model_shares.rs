//! Shares of a model's places, against the rule as the documentation states it.

use super::*;

impl Bench {
    /// A place of the model `m` for this account.
    fn place(&self, account: u64, limit: u32, percent: u32) -> Result<Permit, LimitRefusal> {
        let subjects = [(Subject::Model("m".into()), concurrency(limit))];
        let share = Some(AccountShare { account, percent });
        self.limits.take_with(subjects, share, None, ShareWait::First)
    }
}

/// All the places that this account gets.
fn all(bench: &Bench, account: u64, limit: u32, percent: u32) -> Vec<Permit> {
    (0..2 * limit).map_while(|_| bench.place(account, limit, percent).ok()).collect()
}

/// The attack: one account takes whatever it gets, and hangs up on all of it.
#[test]
fn what_one_account_abandons_leaves_places_to_every_other() {
    for (limit, most) in [(2, 1), (3, 2), (4, 3), (8, 6), (100, 75)] {
        let bench = Bench::new();
        let mut hostile = all(&bench, 1, limit, 75);
        assert_eq!(hostile.len(), most as usize, "of {limit}");
        hostile.iter_mut().for_each(Permit::orphan);
        let refused = bench.place(1, limit, 75).expect_err("its orphans count");
        assert!(refused.share.is_some_and(|share| share <= most), "{refused:?}");
        assert_eq!((refused.scope, refused.limit), (Scope::Account, Limit::Concurrency));
        assert_eq!((refused.value, refused.wait), (limit, Wait::UntilOneEnds));
        let others: Vec<_> = (2..).map_while(|one| bench.place(one, limit, 75).ok()).collect();
        assert_eq!(others.len(), (limit - most) as usize, "each is served at once");
        let refused = bench.place(1000, limit, 75).expect_err("all are taken");
        assert_eq!((refused.share, refused.scope), (None, Scope::Model), "of {limit}");
        drop(hostile);
        assert!(bench.place(1000, limit, 75).is_ok(), "an end gives a place back, once");
        drop(others);
        let whole: Vec<_> = (0..limit.into()).map(|one| bench.place(one, limit, 75)).collect();
        assert!(whole.iter().all(Result::is_ok), "nothing is lost of {limit}");
    }
}

/// Accounts that keep all that they get leave some to the next, the more the larger the limit is.
#[test]
fn what_several_accounts_take_leaves_places_to_others() {
    for (limit, percent, remaining) in
        [(8, 75, [2, 1, 0]), (16, 75, [4, 1, 0]), (100, 75, [25, 6, 1]), (100, 50, [50, 25, 12])]
    {
        let (bench, mut kept, mut free) = (Bench::new(), Vec::new(), Vec::new());
        for account in 0..3 {
            kept.extend(all(&bench, account, limit, percent));
            free.push(limit as usize - kept.len());
        }
        assert_eq!(free, remaining, "{percent} % of {limit}");
    }
}

/// The slots of `limit` that two always busy accounts use together, and the larger part.
fn two_busy(limit: u32, percent: u32) -> (usize, usize) {
    let bench = Bench::new();
    let mut one = all(&bench, 1, limit, percent);
    let mut other = all(&bench, 2, limit, percent);
    for round in 0..10 * limit {
        // Each answer ends, and whoever asks first gets the place: both as often.
        drop(if one.len() > other.len() { one.remove(0) } else { other.remove(0) });
        let next = [(1, &mut one), (2, &mut other)];
        let next: Vec<_> =
            if round % 2 == 0 { next.into() } else { next.into_iter().rev().collect() };
        next.into_iter()
            .for_each(|(account, has)| has.extend(bench.place(account, limit, percent)));
    }
    (one.len() + other.len(), one.len().max(other.len()))
}

#[test]
fn two_busy_accounts_come_to_equal_parts_and_leave_little_unused() {
    assert_eq!(two_busy(2, 75), (2, 1));
    assert_eq!(two_busy(4, 75), (3, 2), "the last is for a third account");
    assert_eq!(two_busy(8, 75), (7, 4));
    assert_eq!(two_busy(100, 75), (86, 43));
    assert_eq!(two_busy(8, 50), (6, 3), "the stricter, the more is left unused");
}

#[test]
fn with_all_of_it_for_one_account_places_are_as_without_shares() {
    for (limit, percent) in [(1, 1), (1, 50), (8, 100)] {
        let bench = Bench::new();
        let taken = all(&bench, 1, limit, percent);
        assert_eq!(taken.len(), limit as usize);
        assert_eq!(bench.place(1, limit, percent).expect_err("all").share, None);
    }
}

/// Two models, and a model without a limit, have nothing to do with each other.
#[test]
fn a_share_is_of_one_model() {
    let bench = Bench::new();
    let _first = all(&bench, 1, 2, 75);
    let of = |model: &str, rates| {
        let share = Some(AccountShare { account: 1, percent: 75 });
        let subjects =
            [(Subject::Model(model.into()), rates), (Subject::Account(1), concurrency(9))];
        bench.limits.take_with(subjects, share, None, ShareWait::First)
    };
    assert!(of("m", concurrency(2)).is_err(), "it has its share");
    let permits: Vec<_> = (0..9).map(|_| of("n", Rates::NONE).expect("no limit")).collect();
    assert_eq!(of("n", Rates::NONE).expect_err("of the account").scope, Scope::Account);
    drop(permits);
    assert!(of("n", concurrency(2)).is_ok());
}

/// A refusal by another limit leaves nothing of a place behind.
#[test]
fn a_place_is_given_back_where_another_limit_refuses() {
    let bench = Bench::new();
    let share = Some(AccountShare { account: 1, percent: 75 });
    let both = || [(Subject::Model("m".into()), concurrency(4)), (Subject::Key(1), requests(1))];
    let take = || bench.limits.take_with(both(), share, None, ShareWait::First);
    let first = take().expect("a request");
    for _ in 0..100 {
        assert_eq!(take().expect_err("one a minute").limit, Limit::Requests);
    }
    drop(first);
    assert_eq!(all(&bench, 1, 4, 75).len(), 3, "nothing was lost");
}

/// A step in the life of one account's calls.
#[derive(Clone, Copy, Debug)]
enum CallStep {
    Enter(u64),
    Abandon(usize),
    End(usize),
}

#[test]
fn no_history_of_calls_passes_the_bounds_or_loses_a_place() {
    let step = prop_oneof![
        4 => (0_u64..4).prop_map(CallStep::Enter),
        1 => (0_usize..64).prop_map(CallStep::Abandon),
        2 => (0_usize..64).prop_map(CallStep::End),
    ];
    let history = (1_u32..20, 1_u32..=100, prop::collection::vec(step, 1..200));
    runner(300)
        .run(&history, |(limit, percent, steps)| {
            let bench = Bench::new();
            let alone = (limit * percent / 100).max(1);
            let mut under_way: Vec<(u64, Permit)> = Vec::new();
            for step in steps {
                match step {
                    CallStep::Abandon(at) if !under_way.is_empty() => {
                        let at = at % under_way.len();
                        under_way[at].1.orphan();
                    }
                    CallStep::End(at) if !under_way.is_empty() => {
                        drop(under_way.swap_remove(at % under_way.len()));
                    }
                    CallStep::Abandon(_) | CallStep::End(_) => {}
                    CallStep::Enter(account) => {
                        let all = u32::try_from(under_way.len()).expect("few");
                        let own = under_way.iter().filter(|(whose, _)| *whose == account).count();
                        let own = u32::try_from(own).expect("few");
                        // `percent` of what it has and what is free together, and one at least; the last for
                        // one that has none.
                        let free = limit - all;
                        let is_within =
                            percent == 100 || free > 1 && own * (100 - percent) < free * percent;
                        let is_within = own == 0 || own < alone && is_within;
                        let expected = free > 0 && is_within;
                        let taken = bench.place(account, limit, percent);
                        prop_assert_eq!(taken.is_ok(), expected, "{} of {}", own, all);
                        if let Err(refused) = &taken {
                            prop_assert_eq!(refused.share.is_some(), free > 0);
                        }
                        under_way.extend(taken.map(|permit| (account, permit)));
                        let own = under_way.iter().filter(|(whose, _)| *whose == account).count();
                        prop_assert!(own <= alone as usize);
                    }
                }
            }
            drop(under_way);
            prop_assert_eq!(all(&bench, 9, limit, percent).len(), alone as usize, "none is lost");
            Ok(())
        })
        .expect("the bounds hold");
}

/// Two accounts whose requests all come together, whichever of them is faster: a third one is served.
#[test]
fn many_threads_of_two_accounts_leave_a_place_to_another() {
    for round in 0..2000 {
        let bench = Bench::new();
        let kept: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|one| {
                    scope.spawn({
                        let bench = &bench;
                        move || all(bench, one % 2, 8, 75)
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
        });
        assert!(kept.len() < 8, "round {round}: all places are taken");
        assert!(bench.place(9, 8, 75).is_ok(), "round {round}: {} are taken", kept.len());
    }
}

#[test]
fn many_threads_of_one_account_never_pass_its_bound() {
    let bench = Bench::new();
    let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    if let Ok(permit) = bench.place(1, 8, 75) {
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                }
            });
        }
    });
    let most = most.into_inner();
    assert!((2..=6).contains(&most), "{most} at one time");
    assert_eq!(all(&bench, 1, 8, 75).len(), 6, "none is lost");
}

/// In a fleet a share is one of the places that the node has.
#[test]
fn a_node_shares_out_the_places_that_it_has() {
    let bench = node();
    assert_eq!(bench.place(1, 16, 75).expect_err("none yet").wait, Wait::UntilShared);
    sync(&bench, 8, 0, 8);
    bench.pass(Duration::from_millis(1_500));
    let hostile = all(&bench, 1, 16, 75);
    assert_eq!(hostile.len(), 6, "of the node's eight");
    assert!(bench.place(2, 16, 75).is_ok(), "another account");
    // The others hear that more is wanted here, as where all places are taken.
    let request = sync(&bench, 16, 0, 16);
    assert!(request.demand >= 7, "{request:?}");
    assert_eq!(all(&bench, 1, 16, 75).len(), 12 - 6, "of sixteen");
}

#[test]
fn whoever_has_no_place_is_forgotten() {
    let bench = Bench::new();
    for account in 0..u64::try_from(3 * SHARDS * SWEPT_FROM).expect("some") {
        drop(bench.place(account, 8, 75).expect("a place"));
    }
    assert!(bench.limits.models.count() <= 2 * SHARDS * SWEPT_FROM, "most are forgotten");
}
