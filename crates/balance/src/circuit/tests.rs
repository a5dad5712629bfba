use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::super::accounts::WINDOW;
use super::super::breaker::PROBE_MAX;
use super::*;

const RULES: CircuitRules = CircuitRules {
    failures: 3,
    failure_percent: 50,
    open: Duration::from_secs(5),
    open_max: Duration::from_secs(15),
    slow_start: Duration::from_secs(10),
};
const READY: CircuitStanding = CircuitStanding::Ready { share: 1.0 };
/// Account of tests with a single one.
const A: u64 = 1;

/// A call of `account` with a short prompt.
fn short(account: u64) -> CallOrigin {
    CallOrigin { account, tokens: 100 }
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn it_opens_after_failures_in_a_row_and_closes_by_one_probe() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    assert_eq!(circuit.report(short(A), Verdict::Bad, now, &RULES), None);
    assert_eq!(circuit.report(short(A), Verdict::Good, now, &RULES), None);
    assert_eq!(circuit.report(short(A), Verdict::Bad, now, &RULES), None);
    assert_eq!(circuit.report(short(A), Verdict::Bad, now, &RULES), None, "the row was broken");
    let opened = circuit.report(short(A), Verdict::Bad, now, &RULES);
    assert_eq!(opened, Some(CircuitTransition::OpenedForOne(secs(5))));
    for standing in [
        circuit.standing(short(A), now + secs(1), &RULES),
        circuit.standing_for_all(now + secs(1), &RULES),
    ] {
        assert_eq!(standing, CircuitStanding::Open(secs(4)), "nobody else has called");
    }
    assert!(!circuit.begin(A, now + secs(1)).is_any(), "not due yet");
    let due = now + secs(5);
    assert_eq!(circuit.standing(short(A), due, &RULES), CircuitStanding::ProbeDue);
    assert!(circuit.begin(A, due).is_any(), "the first finds out");
    assert!(!circuit.begin(A, due).is_any(), "one at a time");
    assert_eq!(circuit.standing(short(A), due, &RULES), CircuitStanding::Probing);
    assert_eq!(
        circuit.report(short(A), Verdict::Good, due, &RULES),
        Some(CircuitTransition::Closed)
    );
    assert_eq!(circuit.standing(short(A), due, &RULES), CircuitStanding::Ready { share: 0.1 });
    assert_eq!(
        circuit.standing(short(A), due + secs(5), &RULES),
        CircuitStanding::Ready { share: 0.5 }
    );
    assert_eq!(circuit.standing(short(A), due + secs(20), &RULES), READY);
}

#[test]
fn a_probe_that_fails_doubles_the_pause_and_one_that_ends_without_an_answer_does_not() {
    let (mut circuit, mut now) = (Circuit::default(), Instant::now());
    for _ in 0..3 {
        circuit.report(short(A), Verdict::Bad, now, &RULES);
    }
    for pause in [5, 10, 15] {
        assert_eq!(circuit.standing(short(A), now, &RULES), CircuitStanding::Open(secs(pause)));
        now += secs(pause);
        let probe = circuit.begin(A, now);
        assert!(probe.is_any(), "due");
        circuit.abandon(A, probe, now);
        assert!(circuit.begin(A, now).is_any(), "due again at once");
        circuit.report(short(A), Verdict::Bad, now, &RULES);
    }
    assert_eq!(
        circuit.standing(short(A), now, &RULES),
        CircuitStanding::Open(secs(15)),
        "the most"
    );
}

#[test]
fn answers_that_break_off_are_failures_in_a_row() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    for call in 0..3 {
        assert_eq!(circuit.report(short(A), Verdict::Begun, now, &RULES), None);
        assert_eq!(circuit.report(short(A), Verdict::Bad, now, &RULES).is_some(), call == 2);
    }
}

#[test]
fn a_share_of_failures_opens_it_and_old_ones_are_forgotten() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    for call in 0..18 {
        let verdict = if call % 2 == 0 { Verdict::Bad } else { Verdict::Good };
        assert_eq!(circuit.report(short(A), verdict, now, &RULES), None, "too few calls");
    }
    let later = now + WINDOW;
    for call in 0..18 {
        let verdict = if call % 2 == 0 { Verdict::Bad } else { Verdict::Good };
        assert_eq!(
            circuit.report(short(A), verdict, later, &RULES),
            None,
            "the first are forgotten"
        );
    }
    circuit.report(short(A), Verdict::Good, later, &RULES);
    let opened = circuit.report(short(A), Verdict::Bad, later, &RULES);
    assert_eq!(opened, Some(CircuitTransition::OpenedForOne(secs(5))), "10 of 20");
}

#[test]
fn a_retry_after_blocks_and_a_busy_answer_without_one_comes_last() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    circuit.report(short(A), Verdict::Busy(Some(secs(7))), now, &RULES);
    assert_eq!(circuit.standing(short(A), now + secs(2), &RULES), CircuitStanding::Busy(secs(5)));
    assert_eq!(circuit.standing(short(A), now + secs(7), &RULES), READY);
    circuit.report(short(A), Verdict::Busy(Some(secs(86_400))), now, &RULES);
    assert_eq!(circuit.standing(short(A), now, &RULES), CircuitStanding::Busy(BUSY_MAX));
    circuit.report(short(A), Verdict::Good, now, &RULES);
    circuit.report(short(A), Verdict::Busy(None), now, &RULES);
    circuit.report(short(A), Verdict::Busy(None), now, &RULES);
    assert_eq!(circuit.standing(short(A), now + secs(1), &RULES), CircuitStanding::Cooling);
    assert_eq!(circuit.standing(short(A), now + secs(2), &RULES), READY);
}

#[test]
fn a_retry_after_holds_for_all_once_two_accounts_have_got_one() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    circuit.report(short(1), Verdict::Busy(Some(secs(7))), now, &RULES);
    assert_eq!(
        circuit.standing(short(2), now, &RULES),
        CircuitStanding::Cooling,
        "others come last"
    );
    circuit.report(short(2), Verdict::Busy(Some(secs(7))), now, &RULES);
    assert_eq!(circuit.standing(short(3), now, &RULES), CircuitStanding::Busy(secs(7)));
}

#[test]
fn failures_of_several_accounts_open_it_for_all() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    assert_eq!(circuit.report(short(1), Verdict::Bad, now, &RULES), None);
    assert_eq!(circuit.report(short(1), Verdict::Bad, now, &RULES), None);
    assert_eq!(circuit.report(short(2), Verdict::Bad, now, &RULES), None);
    let opened = circuit.report(short(3), Verdict::Bad, now, &RULES);
    assert_eq!(opened, Some(CircuitTransition::Opened(secs(5))), "a third account");
    assert_eq!(circuit.standing(short(4), now, &RULES), CircuitStanding::Open(secs(5)));
    assert_eq!(circuit.accounts_shut_out(now, &RULES), 0, "it is open for all");
}

#[test]
fn connections_that_do_not_come_about_count_whoever_asks() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    circuit.report(short(1), Verdict::Down, now, &RULES);
    circuit.report(short(1), Verdict::Down, now, &RULES);
    let opened = circuit.report(short(1), Verdict::Down, now, &RULES);
    assert_eq!(opened, Some(CircuitTransition::Opened(secs(5))));
    assert_eq!(circuit.standing(short(2), now, &RULES), CircuitStanding::Open(secs(5)));
}

#[test]
fn a_repeated_failure_of_one_account_does_not_delay_others_probes() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    for account in 1..=3 {
        circuit.report(short(account), Verdict::Bad, now, &RULES);
    }
    let mut due = now;
    for account in 1..=3 {
        due += secs(5);
        assert!(circuit.begin(account, due).is_any());
        let opened = circuit.report(short(account), Verdict::Bad, due, &RULES);
        assert_eq!(opened, Some(CircuitTransition::OpenedForOne(secs(5))), "its own pause");
    }
    due += secs(5);
    assert_eq!(
        circuit.standing(short(4), due, &RULES),
        CircuitStanding::ProbeDue,
        "another may find out"
    );
    assert!(circuit.begin(4, due).is_any());
    assert_eq!(circuit.standing(short(5), due + secs(9), &RULES), CircuitStanding::Probing);
    assert_eq!(
        circuit.standing(short(5), due + PROBE_MAX, &RULES),
        CircuitStanding::ProbeDue,
        "not for ever"
    );
    assert_eq!(
        circuit.report(short(4), Verdict::Good, due, &RULES),
        Some(CircuitTransition::Closed)
    );
    assert!(matches!(circuit.standing(short(5), due, &RULES), CircuitStanding::Ready { .. }));
    assert_eq!(
        circuit.standing(short(3), due, &RULES),
        CircuitStanding::ProbeDue,
        "its own is still open"
    );
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

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        3 => Just(Verdict::Bad),
        2 => Just(Verdict::Good),
        1 => Just(Verdict::Begun),
        1 => Just(Verdict::Busy(Some(secs(60)))),
        1 => Just(Verdict::Busy(None)),
    ]
}

/// One account's outcomes, in any order and at any time, never block an account whose calls succeed.
#[test]
fn one_account_cannot_shut_it_for_others() {
    let calls = prop::collection::vec((verdict(), 0_u64..20_000, any::<bool>()), 1..400);
    runner(300)
        .run(&calls, |calls| {
            let (mut circuit, mut now) = (Circuit::default(), Instant::now());
            for (verdict, wait_ms, other_calls) in calls {
                now += Duration::from_millis(wait_ms);
                if !matches!(circuit.standing(short(A), now, &RULES), CircuitStanding::Open(_)) {
                    circuit.begin(A, now);
                    circuit.report(short(A), verdict, now, &RULES);
                }
                let standing = circuit.standing(short(2), now, &RULES);
                let gets_calls =
                    matches!(standing, CircuitStanding::Ready { .. } | CircuitStanding::Cooling);
                prop_assert!(gets_calls, "{:?}", standing);
                if other_calls {
                    circuit.begin(2, now);
                    circuit.report(short(2), Verdict::Good, now, &RULES);
                }
            }
            Ok(())
        })
        .expect("it holds");
}

/// A minority of the accounts cannot open the circuit for the others.
#[test]
fn a_few_accounts_cannot_shut_it_for_many() {
    let calls = prop::collection::vec((0_u64..4, 0_u64..500), 1..600);
    runner(300)
        .run(&calls, |calls| {
            let (mut circuit, mut now) = (Circuit::default(), Instant::now());
            for honest in 10..19 {
                circuit.report(short(honest), Verdict::Good, now, &RULES);
            }
            for (turn, (attacker, wait_ms)) in calls.into_iter().enumerate() {
                now += Duration::from_millis(wait_ms);
                circuit.begin(attacker, now);
                circuit.report(short(attacker), Verdict::Bad, now, &RULES);
                let honest = 10 + turn as u64 % 9;
                let standing = circuit.standing(short(honest), now, &RULES);
                let is_ready = matches!(standing, CircuitStanding::Ready { .. });
                prop_assert!(is_ready, "{:?}", standing);
                circuit.report(short(honest), Verdict::Good, now, &RULES);
            }
            Ok(())
        })
        .expect("it holds");
}

/// An upstream that fails for everyone gets only probes after a few failures, and is used again after
/// its recovery.
#[test]
fn an_upstream_that_fails_everybody_is_left_alone_and_found_again() {
    runner(300)
        .run(&(1_u64..40, 1_u64..5000, any::<u64>()), |(accounts, wait_ms, seed)| {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut circuit, began) = (Circuit::default(), Instant::now());
            let (mut now, mut calls_made) = (began, 0_u64);
            for _ in 0..2000 {
                now += Duration::from_millis(random.u64(0..wait_ms));
                let account = random.u64(0..accounts);
                let standing = circuit.standing(short(account), now, &RULES);
                if matches!(standing, CircuitStanding::Ready { .. } | CircuitStanding::ProbeDue) {
                    circuit.begin(account, now);
                    circuit.report(short(account), Verdict::Bad, now, &RULES);
                    calls_made += 1;
                }
            }
            // Two accounts have a breaker each, and more of them one together.
            let most = 2 * (now - began).as_secs() / RULES.open.as_secs() + 3 * accounts + 40;
            prop_assert!(
                calls_made <= most,
                "{} of 2000 calls of {} accounts",
                calls_made,
                accounts
            );
            now += RULES.open_max;
            let account = random.u64(0..accounts);
            let standing = circuit.standing(short(account), now, &RULES);
            let gets_a_call =
                matches!(standing, CircuitStanding::ProbeDue | CircuitStanding::Ready { .. });
            prop_assert!(gets_a_call, "{:?}", standing);
            circuit.begin(account, now);
            circuit.report(short(account), Verdict::Good, now, &RULES);
            let standing = circuit.standing(short(account), now, &RULES);
            let is_ready = matches!(standing, CircuitStanding::Ready { .. });
            prop_assert!(is_ready, "{:?}", standing);
            Ok(())
        })
        .expect("it holds");
}

/// A call of `account` with a prompt of so many tokens.
fn sized(account: u64, tokens: u64) -> CallOrigin {
    CallOrigin { account, tokens }
}

#[test]
fn a_limit_of_long_prompts_keeps_long_prompts_away_alone() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    let busy = Verdict::Busy(Some(secs(60)));
    let is_busy = |circuit: &Circuit, caller| {
        matches!(circuit.standing(caller, now, &RULES), CircuitStanding::Busy(_))
    };
    circuit.report(sized(1, 400_000), busy, now, &RULES);
    assert!(is_busy(&circuit, sized(1, 300_000)), "its own long ones wait");
    assert!(!is_busy(&circuit, sized(1, 100_000)), "its own shorter ones go on");
    assert!(!is_busy(&circuit, sized(3, 400_000)), "for others it is no word yet");
    assert_eq!(circuit.standing(sized(3, 400_000), now, &RULES), CircuitStanding::Cooling);
    assert_eq!(circuit.standing(sized(3, 100), now, &RULES), READY, "no short one comes last");
    circuit.report(sized(2, 1_000_000), busy, now, &RULES);
    assert!(is_busy(&circuit, sized(3, 500_000)), "both were as long");
    assert!(!is_busy(&circuit, sized(3, 400_000)), "one of them alone was shorter than this");
    assert!(!is_busy(&circuit, sized(3, 100)));
    // A short one that has to wait too makes it a limit of all: of those who had the word.
    circuit.report(sized(2, 100), busy, now, &RULES);
    assert!(is_busy(&circuit, sized(2, 100)) && !is_busy(&circuit, sized(3, 100)));
    circuit.report(sized(1, 100), busy, now, &RULES);
    assert!(is_busy(&circuit, sized(3, 100)), "two short ones have to wait");
    // A success of a short one says nothing of long ones.
    circuit.report(sized(3, 100), Verdict::Good, now, &RULES);
    assert!(!is_busy(&circuit, sized(3, 100)) && is_busy(&circuit, sized(3, 500_000)));
    circuit.report(sized(4, 600_000), Verdict::Good, now, &RULES);
    assert!(!is_busy(&circuit, sized(3, 1_000_000)), "a long one was served");
}

#[test]
fn other_kinds_of_calls_find_out_whether_it_can_be_reached_and_nothing_else() {
    let (mut circuit, now) = (Circuit::default(), Instant::now());
    for account in 1..=3 {
        circuit.report(short(account), Verdict::Bad, now, &RULES);
    }
    assert_eq!(circuit.standing_for_other_kinds(now), CircuitStanding::Open(secs(5)));
    let due = now + secs(5);
    assert_eq!(circuit.standing_for_other_kinds(due), READY, "they are not its probe");
    assert_eq!(circuit.connected(due), None);
    assert_eq!(circuit.standing(short(4), due, &RULES), CircuitStanding::ProbeDue, "nor its end");

    let mut circuit = Circuit::default();
    for _ in 0..3 {
        circuit.report(short(1), Verdict::Down, now, &RULES);
    }
    assert_eq!(circuit.standing_for_other_kinds(now), CircuitStanding::Open(secs(5)));
    assert_eq!(circuit.standing_for_other_kinds(due), READY);
    let opened = circuit.report(short(1), Verdict::Down, due, &RULES);
    assert_eq!(opened, Some(CircuitTransition::Opened(secs(10))), "one has found out for all");
    assert_eq!(circuit.report(short(1), Verdict::Down, due, &RULES), None, "once");
    let due = due + secs(10);
    assert_eq!(circuit.standing(short(1), due, &RULES), CircuitStanding::ProbeDue);
    assert_eq!(circuit.connected(due), Some(CircuitTransition::Closed));
    assert!(matches!(circuit.standing(short(1), due, &RULES), CircuitStanding::Ready { .. }));

    // Rate limits and the failures of one account are nothing to other kinds.
    circuit.report(short(1), Verdict::Busy(Some(secs(60))), due, &RULES);
    circuit.report(short(2), Verdict::Busy(Some(secs(60))), due, &RULES);
    assert!(matches!(circuit.standing(short(3), due, &RULES), CircuitStanding::Busy(_)));
    assert_eq!(circuit.standing_for_other_kinds(due), READY);
}
