//! Nodes that are cut off, stand still, die, or lose their disk.

use std::time::{Duration, Instant};

use super::books::{Books, settlements};
use super::place::{Fleet, PLENTY, PRICE, Rounds, Tally, pass, shared};
use crate::harness::eventually;
use crate::harness::load::{Call, Calling, Load};

/// Behind the end of its term a node lets calls wait so long: `LATE_MAX` of `crates/fleet/src/shared.rs`.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Calls that began in this time at this node.
fn between(calls: &[Call], node: usize, from: Instant, to: Instant) -> Vec<&Call> {
    let began = |call: &&Call| call.node == node && call.at >= from && call.until < to;
    calls.iter().filter(began).collect()
}

fn only(calls: &[&Call], statuses: &[u16], what: &str) {
    let odd: Vec<_> = calls.iter().filter(|call| !statuses.contains(&call.status)).collect();
    assert!(odd.is_empty(), "{what}: {} of {}: {:?}", odd.len(), calls.len(), odd[0]);
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_node_that_is_cut_off_serves_to_the_end_of_its_term_and_never_says_402() {
    let (server, database, url) = shared("cut_off");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, Some(server.port()), "2s");
    Rounds::of("cut off", 1).play(|random| {
        let customer = fleet.nodes.customer(PLENTY);
        let load = Load::start(&fleet.calling(&[&customer.key]));
        pass(700 + random.u64(0..600));
        let cut_at = Instant::now();
        if random.bool() {
            fleet.wire().cut()
        } else {
            fleet.wire().stall()
        }
        // The term, and the second in which calls wait for an answer that is late.
        pass(3500 + random.u64(0..3000));
        let back_at = Instant::now();
        fleet.wire().resume();
        eventually("calls at the node again", || {
            load.so_far()
                .iter()
                .rev()
                .any(|call| call.node == 0 && call.status == 200 && call.at > back_at)
        });
        pass(300);
        let calls = load.stop();
        // Before that, the first calls of an account may have waited too long for money.
        let others = calls.iter().filter(|call| call.node != 0 && call.at >= cut_at);
        only(&others.collect::<Vec<_>>(), &[200], "the others go on");
        let (begin, end) = (calls[0].at, calls[calls.len() - 1].until);
        only(&between(&calls, 0, begin, end), &[200, 503], "never 402");
        let within = between(&calls, 0, cut_at, cut_at + Duration::from_millis(500));
        assert!(!within.is_empty(), "{}", Tally(&calls));
        only(&within, &[200], "it serves in its term");
        let beyond = between(&calls, 0, cut_at + Duration::from_millis(2400), back_at);
        assert!(!beyond.is_empty(), "{}", Tally(&calls));
        only(&beyond, &[503], "it serves nothing behind its term");
        books.balanced(&fleet.nodes, &customer.account, &calls);
    });
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn an_answer_that_comes_late_for_a_term_costs_no_call() {
    let (server, database, url) = shared("late");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, Some(server.port()), "2s");
    Rounds::of("late answers", 3).play(|random| {
        let customer = fleet.nodes.customer(PLENTY);
        let first = &fleet.nodes.nodes[0];
        let to = vec![first.listen];
        let load = Load::start(&Calling { to, ..fleet.calling(&[&customer.key]) });
        // Without a lease for four seconds of calls they would wait for money, and not for the term.
        eventually("a lease for the outage", || {
            let calls = load.so_far();
            let second = Duration::from_secs(1);
            let recent =
                calls.iter().filter(|call| call.status == 200 && call.at.elapsed() < second);
            let spent = i64::try_from(recent.count()).expect("few") * PRICE;
            spent > 0 && books.account(&customer.account).leased >= 4 * spent
        });
        pass(random.u64(0..500));
        fleet.wire().stall();
        // The term ends behind the last moment at which the node was seen in it.
        let mut in_term = Instant::now();
        eventually("the end of the term", || {
            let looked_at = Instant::now();
            let ready = first.ready();
            if ready == 200 {
                in_term = looked_at;
            }
            ready == 503
        });
        pass(random.u64(0..300));
        fleet.wire().resume();
        eventually("the next term", || first.ready() == 200);
        let late = in_term.elapsed();
        pass(300);
        let calls = load.stop();
        // On a busy machine the answer may come later than calls wait for it: those are refused that
        // have waited so long, and no other.
        let may_fail = |call: &Call| {
            late >= LATE_MAX && call.status == 503 && call.until >= in_term + LATE_MAX
        };
        let failed = calls.iter().filter(|call| call.status != 200 && !may_fail(call));
        let failed: Vec<_> = failed.collect();
        assert!(failed.is_empty(), "{late:?} late: {:?} of {}", failed[0], Tally(&calls));
        books.balanced(&fleet.nodes, &customer.account, &calls);
    });
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_node_that_stands_still_for_twice_its_lease_overspends_nothing() {
    let (server, database, url) = shared("stands_still");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    Rounds::of("stands still", 1).play(|random| {
        let rich = fleet.nodes.customer(PLENTY);
        // Money for three hundred calls: it ends meanwhile.
        let poor = fleet.nodes.customer("0.018");
        let load = Load::start(&fleet.calling(&[&rich.key, &poor.key]));
        pass(500 + random.u64(0..500));
        fleet.nodes.nodes[0].signal("STOP");
        pass(4000 + random.u64(0..1000));
        eventually("suspense", || books.account(&rich.account).suspense > 0);
        fleet.nodes.nodes[0].signal("CONT");
        let resumed = Instant::now();
        eventually("calls at the node again", || {
            load.so_far()
                .iter()
                .any(|call| call.node == 0 && call.status == 200 && call.at > resumed)
        });
        let calls = load.stop();
        let of =
            |key: usize| calls.iter().filter(|call| call.key == key).cloned().collect::<Vec<_>>();
        let (of_rich, of_poor) = (of(0), of(1));
        only(&of_rich.iter().collect::<Vec<_>>(), &[200, 503], "there is money");
        only(&of_poor.iter().collect::<Vec<_>>(), &[200, 402, 503], "until there is none");
        books.balanced(&fleet.nodes, &rich.account, &of_rich);
        let row = books.balanced(&fleet.nodes, &poor.account, &of_poor);
        assert!(row.spent <= row.granted, "{row:?}");
    });
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_node_that_is_killed_and_keeps_its_disk_loses_only_calls_in_flight() {
    let (server, database, url) = shared("killed");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    Rounds::of("killed", 1).play(|random| {
        let customer = fleet.nodes.customer(PLENTY);
        let load = Load::start(&fleet.calling(&[&customer.key]));
        pass(300 + random.u64(0..700));
        fleet.nodes.nodes[0].kill();
        pass(random.u64(0..2500));
        fleet.nodes.nodes[0].start();
        fleet.nodes.nodes[0].await_ready();
        pass(300);
        let calls = load.stop();
        let others = calls.iter().filter(|call| call.node != 0).collect::<Vec<_>>();
        only(&others, &[200], "the others go on");
        let own = calls.iter().filter(|call| call.node == 0).collect::<Vec<_>>();
        only(&own, &[200, 503, 0], "it serves, or is not there");
        let account = &customer.account;
        let (_, doubts) = books.balanced_but_for_doubts(&fleet.nodes, account, &calls);
        // At most the six that were under way, or whose end was not on disk.
        assert!(doubts <= 6, "{doubts} are in doubt");
    });
    fleet.nodes.stop();
    books.all_is_back();
}

/// Moving a lost node's money into suspense waits for the locked row, as long as the database allows.
#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_locked_account_of_a_lost_node_costs_no_call_of_others() {
    let (server, database, url) = shared("locked");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    let [lost, other] = [fleet.nodes.customer(PLENTY), fleet.nodes.customer(PLENTY)];
    let [first, others @ ..] = &fleet.nodes.listens()[..] else { panic!("three nodes") };
    let load = Load::start(&Calling { to: vec![*first], ..fleet.calling(&[&lost.key]) });
    pass(500);
    load.stop();
    fleet.nodes.nodes[0].kill();
    let row = format!("SELECT id FROM tollgate.accounts WHERE id = '{}' FOR UPDATE", lost.account);
    let locked = format!("BEGIN; {row}; SELECT pg_sleep(9); COMMIT");
    let calls = std::thread::scope(|scope| {
        let locking = scope.spawn(|| books.sql(&locked));
        let load = Load::start(&Calling { to: others.to_vec(), ..fleet.calling(&[&other.key]) });
        locking.join().expect("no panic");
        load.stop()
    });
    only(&calls.iter().collect::<Vec<_>>(), &[200], "the others go on");
    eventually("suspense", || books.account(&lost.account).suspense > 0);
    fleet.nodes.nodes[0].start();
    fleet.nodes.nodes[0].await_ready();
    books.balanced(&fleet.nodes, &other.account, &calls);
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_node_that_loses_its_disk_leaves_at_most_its_leases_in_suspense() {
    let (server, database, url) = shared("disk_lost");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    Rounds::of("disk lost", 1).play(|random| {
        let customer = fleet.nodes.customer(PLENTY);
        let account = customer.account.as_str();
        let load = Load::start(&fleet.calling(&[&customer.key]));
        pass(500 + random.u64(0..700));
        fleet.nodes.nodes[0].kill();
        let lost = books.sql(&format!(
            "SELECT COALESCE(SUM(amount), 0) FROM tollgate.leases l
             JOIN tollgate.nodes n ON n.id = l.node
             WHERE account = '{account}' AND n.name = 'node-0' AND n.suspended_at IS NULL"
        ));
        let lost: i64 = lost.parse().expect("a sum");
        std::fs::remove_dir_all(&fleet.nodes.nodes[0].data).expect("removed");
        fleet.nodes.nodes[0].start();
        fleet.nodes.nodes[0].await_ready();
        let back = Instant::now();
        eventually("suspense", || books.account(account).suspense > 0);
        eventually("calls at the new node", || {
            load.so_far().iter().any(|call| call.node == 0 && call.status == 200 && call.at > back)
        });
        let calls = load.stop();
        let others = calls.iter().filter(|call| call.node != 0).cloned().collect::<Vec<_>>();
        only(&others.iter().collect::<Vec<_>>(), &[200], "the others go on");
        let served = |settled: &std::collections::BTreeMap<String, i64>, calls: &[Call]| {
            let done = calls.iter().filter(|call| call.status == 200);
            done.filter(|call| !settled.contains_key(call.request.as_deref().unwrap_or_default()))
                .count()
        };
        let after: Vec<Call> =
            calls.iter().filter(|call| call.node != 0 || call.at > back).cloned().collect();
        eventually("all reports of those that live", || {
            let settled = settlements(&fleet.nodes, account);
            served(&settled, &after) == 0
                && settled.values().sum::<i64>() == books.account(account).spent
        });
        let (row, settled) = (books.account(account), settlements(&fleet.nodes, account));
        assert_eq!(row.suspense, lost, "what it had out, and no more: {row:?}");
        let unreported = i64::try_from(served(&settled, &calls)).expect("few") * PRICE;
        assert!(unreported <= row.suspense, "{unreported} were served of it: {row:?}");
        assert!(settled.values().all(|charged| *charged == PRICE));
    });
    fleet.nodes.stop();
    let left = "SELECT COALESCE(SUM(leased), 0) FROM tollgate.accounts";
    assert_eq!(books.sql(left), "0");
    let held = "SELECT SUM(suspense) = (SELECT SUM(amount) FROM tollgate.leases)
                FROM tollgate.accounts";
    assert_eq!(books.sql(held), "t", "it stands in the leases of the nodes that were lost");
}
