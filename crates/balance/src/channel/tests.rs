use proptest::prelude::*;

use super::super::candidate::{Candidate, RankedChannel, TargetRank};
use super::*;
use crate::sample;
use tollgate_config::snapshot::Upstream;

const RULES: CircuitRules = CircuitRules {
    failures: 3,
    failure_percent: 50,
    open: Duration::from_secs(60),
    open_max: Duration::from_secs(60),
    slow_start: Duration::from_secs(10),
};

/// A channel for generation, and its target.
fn channel() -> (Arc<Target>, Arc<Channel>) {
    let upstream = Upstream { name: "up".to_owned(), ..sample::upstream() };
    let target = Target {
        index: 0,
        upstream: Arc::new(upstream),
        model: Some("m".to_owned()),
        priority: 0,
        weight: 1,
        cost: None,
        pass_headers: Arc::default(),
    };
    let channel = Channel::unused(CallKind::GENERATION);
    (Arc::new(target), Arc::new(channel))
}

fn planned(kind: CallKind, account: u64) -> PlannedCall {
    PlannedCall { caller: CallOrigin { account, tokens: 10 }, kind }
}

/// Make a call with this outcome if the circuit allows it. Returns true if it was made.
fn make(
    (target, channel): &(Arc<Target>, Arc<Channel>),
    call: PlannedCall,
    outcome: Outcome,
    now: Instant,
) -> bool {
    let standing = channel.standing_of(call, now, &RULES);
    let is_made = matches!(
        standing,
        CircuitStanding::Ready { .. } | CircuitStanding::Cooling | CircuitStanding::ProbeDue
    );
    if is_made {
        let (target, channel) = (Arc::clone(target), Arc::clone(channel));
        let ranked = RankedChannel { rank: TargetRank::default(), target, channel };
        Candidate::begin(ranked, 0, false, call, now, RULES).report(outcome, now);
    }
    is_made
}

fn failure() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Busy(Some(Duration::from_secs(60)))),
        Just(Outcome::Busy(None)),
        Just(Outcome::Failed),
        Just(Outcome::Credential),
        Just(Outcome::TimedOut),
        Just(Outcome::Broken),
        Just(Outcome::Refused),
        Just(Outcome::Ok),
    ]
}

proptest! {
    /// Outcomes of other call kinds, of any number of accounts, never affect calls of the main kind.
    #[test]
    fn other_kinds_shut_nothing_but_themselves(
        calls in prop::collection::vec((failure(), 0_u64..8, 0_u64..20_000, any::<bool>()), 1..200),
    ) {
        let (at, mut now) = (channel(), Instant::now());
        for (outcome, account, wait_ms, is_count) in calls {
            now += Duration::from_millis(wait_ms);
            let kind = if is_count { sample::token_count() } else { sample::compact() };
            make(&at, planned(kind, account), outcome, now);
            for paying in [account, 99] {
                let call = planned(CallKind::GENERATION, paying);
                let standing = at.1.standing_of(call, now, &RULES);
                prop_assert_eq!(standing, CircuitStanding::Ready { share: 1.0 });
            }
        }
        prop_assert!(at.1.last_failure().is_none(), "what is shown is of the main kind");
        prop_assert_eq!(at.1.in_flight(), 0);
    }
}

#[test]
fn each_kind_is_shut_by_its_own_failures() {
    let (at, now) = (channel(), Instant::now());
    let counts = |account| make(&at, planned(sample::token_count(), account), Outcome::Failed, now);
    assert!((1..=3).all(counts), "three accounts");
    assert!(!counts(4), "shut for all");
    assert!(make(&at, planned(sample::compact(), 4), Outcome::Ok, now), "another kind goes on");
    let shut = at.1.shut_kinds(now, &RULES);
    assert_eq!(shut.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [sample::token_count()]);
    // One token count is the probe after the pause; billed calls are not affected.
    let due = now + RULES.open;
    assert!(make(&at, planned(sample::token_count(), 5), Outcome::Ok, due));
    assert!(at.1.shut_kinds(due, &RULES).is_empty(), "it works again");
}

#[test]
fn failures_of_the_main_kind_and_of_connections_concern_all_kinds() {
    let (at, now) = (channel(), Instant::now());
    let is_made = |kind, now| make(&at, planned(kind, 9), Outcome::Ok, now);
    for account in 1..=3 {
        make(&at, planned(CallKind::GENERATION, account), Outcome::Failed, now);
    }
    assert!(!is_made(CallKind::GENERATION, now) && !is_made(sample::token_count(), now));
    let due = now + RULES.open;
    assert!(is_made(sample::token_count(), due));
    let call = planned(CallKind::GENERATION, 9);
    assert_eq!(at.1.standing_of(call, due, &RULES), CircuitStanding::ProbeDue, "a paid call's");

    let (at, now) = (channel(), Instant::now());
    for _ in 0..3 {
        make(&at, planned(sample::token_count(), 1), Outcome::Unreachable, now);
    }
    let standing = |kind, now| at.1.standing_of(planned(kind, 9), now, &RULES);
    assert_eq!(standing(CallKind::GENERATION, now), CircuitStanding::Open(RULES.open));
    let due = now + RULES.open;
    assert!(make(&at, planned(sample::token_count(), 1), Outcome::Failed, due), "it finds out");
    let reached = standing(CallKind::GENERATION, due);
    assert!(matches!(reached, CircuitStanding::Ready { .. }), "there is a connection: {reached:?}");
}

#[test]
fn a_call_that_costs_nothing_takes_no_share_of_the_load() {
    let (target, channel) = channel();
    let begin = |kind| {
        let (target, channel) = (Arc::clone(&target), Arc::clone(&channel));
        let ranked = RankedChannel { rank: TargetRank::default(), target, channel };
        Candidate::begin(ranked, 0, false, planned(kind, 1), Instant::now(), RULES)
    };
    let counts = [begin(sample::token_count()), begin(sample::token_count())];
    assert_eq!((channel.in_flight(), channel.upstream.in_flight()), (0, 2));
    assert!(counts[0].quota_channel().is_none(), "its answers tell of other quotas");
    let paid = begin(CallKind::GENERATION);
    assert_eq!((channel.in_flight(), channel.upstream.in_flight()), (1, 3));
    assert!(paid.quota_channel().is_some());
    drop((counts, paid));
    assert_eq!((channel.in_flight(), channel.upstream.in_flight()), (0, 0));
}
