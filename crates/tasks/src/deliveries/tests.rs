use super::*;
use tollgate_ledger::TaskId;

const SHARES: WebhookShares = WebhookShares { all: 32, per_account: 4, per_receiver: 8 };

fn job(account: AccountId, url: &str) -> Job {
    let due = DueTask { at: UnixMs(1), account, task: TaskId::random(), has_slot: false };
    Job { due, receiver: receiver(url), since: Instant::now() }
}

/// Deliveries that start now, and those that are postponed.
fn all_next(deliveries: &Deliveries, now: Instant) -> (Vec<Job>, Vec<(Job, Duration)>) {
    let (mut begun, mut later) = (Vec::new(), Vec::new());
    loop {
        match deliveries.next(SHARES, now) {
            DeliveryStep::Begin(job) => begun.push(job),
            DeliveryStep::Later(job, wait) => later.push((job, wait)),
            DeliveryStep::Wait => return (begun, later),
        }
    }
}

fn is_empty(deliveries: &Deliveries) -> bool {
    let queues = deliveries.queues.lock();
    queues.running == 0
        && queues.accounts.is_empty()
        && queues.turns.is_empty()
        && queues.receivers.is_empty()
}

#[test]
fn four_hundred_of_one_account_leave_room_for_others() {
    let (deliveries, now) = (Deliveries::new(WaitingRules::LOCAL), Instant::now());
    let [flood, other] = [(); 2].map(|()| AccountId::random());
    for number in 0..400 {
        deliveries.enqueue(job(flood, &format!("https://{number}.example.com/")), now);
    }
    let (flooding, later) = all_next(&deliveries, now);
    assert_eq!((flooding.len(), later.len()), (4, 0));
    deliveries.enqueue(job(other, "https://example.org/"), now);
    let (begun, _) = all_next(&deliveries, now);
    assert_eq!(begun.len(), 1);
    assert_eq!(begun[0].due.account, other);
    for job in flooding.iter().chain(&begun) {
        deliveries.done(job, true, now);
    }
    for round in 1..100 {
        let (next, _) = all_next(&deliveries, now);
        assert_eq!(next.len(), 4, "round {round}");
        next.iter().for_each(|job| deliveries.done(job, true, now));
    }
    assert!(is_empty(&deliveries), "nothing is kept of them");
}

#[test]
fn accounts_take_turns_where_all_places_are_taken() {
    let (deliveries, now) = (Deliveries::new(WaitingRules::LOCAL), Instant::now());
    let accounts: Vec<AccountId> = (0..40).map(|_| AccountId::random()).collect();
    for (number, account) in accounts.iter().enumerate() {
        for host in 0..10 {
            deliveries
                .enqueue(job(*account, &format!("https://{host}.{number}.example.com/")), now);
        }
    }
    let (first, _) = all_next(&deliveries, now);
    assert_eq!(first.len(), SHARES.all);
    let newcomer = AccountId::random();
    deliveries.enqueue(job(newcomer, "https://example.org/"), now);
    let mut running = VecDeque::from(first);
    for places in 1..=accounts.len() + 1 {
        let job = running.pop_front().expect("all places are taken");
        deliveries.done(&job, true, now);
        let (next, _) = all_next(&deliveries, now);
        assert_eq!(next.len(), 1, "one place, one announcement");
        if next[0].due.account == newcomer {
            assert!(places > 1, "others came before");
            return;
        }
        running.extend(next);
    }
    panic!("the newcomer was not reached");
}

#[test]
fn what_a_receiver_leaves_unanswered_waits_longer_each_time_and_for_one_account() {
    let (deliveries, mut now) = (Deliveries::new(WaitingRules::LOCAL), Instant::now());
    let [one, other] = [(); 2].map(|()| AccountId::random());
    let url = "https://hooks.example.com/a";
    for _ in 0..6 {
        deliveries.enqueue(job(one, url), now);
    }
    let (begun, _) = all_next(&deliveries, now);
    assert_eq!(begun.len(), 4);
    // Of four concurrent failures, one counts.
    begun.iter().for_each(|job| deliveries.done(job, false, now));
    let (begun, later) = all_next(&deliveries, now);
    assert_eq!((begun.len(), later.len()), (0, 2));
    assert!(later.iter().all(|(_, wait)| *wait == BACKOFF_MIN), "{later:?}");
    deliveries.enqueue(job(other, url), now);
    let (begun, _) = all_next(&deliveries, now);
    assert_eq!(begun.len(), 1, "another account's receiver may answer");
    deliveries.done(&begun[0], true, now);
    let mut waits = Vec::new();
    for _ in 0..10 {
        now += BACKOFF_MAX;
        for _ in 0..3 {
            deliveries.enqueue(job(one, url), now);
        }
        let (begun, later) = all_next(&deliveries, now);
        assert_eq!((begun.len(), later.len()), (1, 2), "one finds out");
        deliveries.done(&begun[0], false, now);
        deliveries.enqueue(job(one, url), now);
        let (_, later) = all_next(&deliveries, now);
        waits.push(later[0].1.as_secs());
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]);
    now += BACKOFF_MAX;
    deliveries.enqueue(job(one, url), now);
    let (begun, _) = all_next(&deliveries, now);
    deliveries.done(&begun[0], true, now);
    for _ in 0..4 {
        deliveries.enqueue(job(one, url), now);
    }
    assert_eq!(all_next(&deliveries, now).0.len(), 4, "it answers again");
}

#[test]
fn a_receiver_of_many_gets_so_many_at_one_time() {
    let (deliveries, now) = (Deliveries::new(WaitingRules::LOCAL), Instant::now());
    for _ in 0..20 {
        deliveries.enqueue(job(AccountId::random(), "https://hooks.example.com/a"), now);
    }
    let (begun, later) = all_next(&deliveries, now);
    assert_eq!((begun.len(), later.len()), (SHARES.per_receiver, 12));
    begun.iter().for_each(|job| deliveries.done(job, true, now));
    assert!(is_empty(&deliveries), "nothing is kept of them");
}

#[test]
fn in_a_fleet_little_waits_and_not_for_long() {
    let (deliveries, now) = (Deliveries::new(WaitingRules::SHARED), Instant::now());
    let account = AccountId::random();
    let given_back = (0..400)
        .filter_map(|number| {
            deliveries.enqueue(job(account, &format!("https://{number}.example.com/")), now)
        })
        .count();
    assert_eq!(given_back, 400 - WaitingRules::SHARED.per_account_max);
    let (begun, _) = all_next(&deliveries, now);
    assert_eq!(begun.len(), 4);
    let late = now + WaitingRules::SHARED.time_max + Duration::from_millis(1);
    begun.iter().for_each(|job| deliveries.done(job, true, late));
    let (begun, later) = all_next(&deliveries, late);
    assert_eq!((begun.len(), later.len()), (0, WaitingRules::SHARED.per_account_max - 4));
    assert!(is_empty(&deliveries), "any node may take them");
}

#[test]
fn receivers_differ_by_scheme_host_and_port() {
    assert_eq!(receiver("https://Example.com/a?b"), receiver("https://example.com:443/c"));
    assert_ne!(receiver("https://example.com/"), receiver("https://example.com:8443/"));
    assert_ne!(receiver("https://example.com/"), receiver("http://example.com/"));
}
