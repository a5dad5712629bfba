//! A database that dies, moves, turns read-only, or takes nobody in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::books::Books;
use super::place::{Fleet, PLENTY, Rounds, Tally, pass, shared};
use crate::harness::eventually;
use crate::harness::load::{Call, Calling, Load};
use crate::harness::postgres::{Postgres, ReplicatedPair};

/// Amount that an operator grants repeatedly, in nano-dollars: a cent.
const GRANT: i64 = 10_000_000;

/// Waits until every node serves calls that began after `from`.
pub(crate) fn serve_again(load: &Load, from: Instant) {
    eventually("calls at all nodes again", || {
        let calls = load.so_far();
        let serves = |node: &usize| {
            calls.iter().any(|call| call.node == *node && call.status == 200 && call.at > from)
        };
        [0, 1, 2].iter().all(serves)
    });
}

/// Nobody was refused for want of money, and each call has an answer.
fn never_402(calls: &[Call]) {
    let odd = calls.iter().find(|call| ![200, 503].contains(&call.status));
    assert!(odd.is_none(), "{odd:?} among {}", Tally(calls));
}

/// Grants cents until it is told to stop, each until it is confirmed. Gives how many.
fn grant_all_the_time(fleet: &Fleet, account: &str, stop: &AtomicBool) -> i64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let grant = json!({"amount": "0.01", "id": format!("grant-{count}")});
        let node = &fleet.nodes.nodes[usize::try_from(count % 3).expect("small")];
        let deadline = Instant::now() + Duration::from_secs(30);
        while !(200..300)
            .contains(&node.admin("POST", &format!("/accounts/{account}/grants"), &grant).status())
        {
            assert!(Instant::now() < deadline, "a grant is not confirmed: {}", node.log());
            pass(20);
        }
        count += 1;
    }
    count
}

/// Loads a fleet with calls and grants while `fault` happens; then everything is there once.
fn goes_on(fleet: &Fleet, books: &dyn Fn() -> Books<'static>, fault: impl FnOnce() -> Instant) {
    let customer = fleet.nodes.customer(PLENTY);
    // Money for some calls, so that nodes ask for more all the time.
    let second = fleet.nodes.customer("1.00");
    let load = Load::start(&fleet.calling(&[&customer.key, &second.key]));
    let stop = AtomicBool::new(false);
    let grants = std::thread::scope(|scope| {
        let granting = scope.spawn(|| grant_all_the_time(fleet, &second.account, &stop));
        let from = fault();
        serve_again(&load, from);
        stop.store(true, Ordering::Relaxed);
        granting.join().expect("no panic")
    });
    let calls = load.stop();
    never_402(&calls);
    for (key, account) in [&customer.account, &second.account].into_iter().enumerate() {
        let own: Vec<Call> = calls.iter().filter(|call| call.key == key).cloned().collect();
        let row = books().balanced(&fleet.nodes, account, &own);
        let first = if key == 0 { 100_000_000_000 } else { 1_000_000_000 + grants * GRANT };
        assert_eq!(row.granted, first, "each grant once: {grants}");
    }
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_database_killed_during_commits_loses_and_doubles_nothing() {
    let server: &'static Postgres = Box::leak(Box::new(Postgres::start()));
    let mut fleet = Fleet::start(&server.url(), None, "2s");
    let books = || Books { server, database: "tollgate" };
    Rounds::of("primary killed", 1).play(|random| {
        goes_on(&fleet, &books, || {
            pass(300 + random.u64(0..500));
            server.kill();
            pass(random.u64(0..1500));
            server.start_again();
            Instant::now()
        });
    });
    fleet.nodes.stop();
    books().all_is_back();
    server.kill();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_standby_that_takes_over_has_every_exchange_once() {
    Rounds::of("failover", 1).play(|random| {
        let pair: &'static ReplicatedPair = Box::leak(Box::new(ReplicatedPair::start()));
        let mut fleet = Fleet::start(&pair.url(), None, "2s");
        let books = || Books { server: &pair.standby, database: "tollgate" };
        goes_on(&fleet, &books, || {
            pass(300 + random.u64(0..700));
            pair.kill_primary();
            pass(random.u64(0..1000));
            pair.promote();
            Instant::now()
        });
        fleet.nodes.stop();
        books().all_is_back();
        pair.standby.kill();
    });
}

/// Keeps all tables as they are at one moment.
const KEEP: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ;
    DROP SCHEMA IF EXISTS kept CASCADE; CREATE SCHEMA kept;
    DO $$ DECLARE t text; BEGIN
        FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'tollgate' LOOP
            EXECUTE format('CREATE TABLE kept.%I AS TABLE tollgate.%I', t, t);
        END LOOP;
    END $$;
    COMMIT";
/// Makes all tables what they were, between two transactions of others.
const FORGET: &str = "DO $$ DECLARE t text; BEGIN
        FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'tollgate' ORDER BY 1 LOOP
            EXECUTE format('LOCK TABLE tollgate.%I IN ACCESS EXCLUSIVE MODE', t);
        END LOOP;
        SET LOCAL session_replication_role = replica;
        FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'tollgate' LOOP
            EXECUTE format('DELETE FROM tollgate.%I', t);
            EXECUTE format('INSERT INTO tollgate.%I SELECT * FROM kept.%I', t, t);
        END LOOP;
    END $$";

/// A standby that had not heard of the last seconds: the loans that nodes have spent meanwhile were never
/// made, and what was served of them is paid with what the account has.
#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_failover_that_forgets_seconds_gives_no_call_away() {
    let (server, database, url) = shared("forgotten");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    // Twice within a minute: no node takes the second time for a process that has its data.
    Rounds::of("forgotten seconds", 2).play(|random| {
        let customer = fleet.nodes.customer(PLENTY);
        let load = Load::start(&fleet.calling(&[&customer.key]));
        pass(500 + random.u64(0..500));
        books.sql(KEEP);
        pass(2000 + random.u64(0..2000));
        eventually("the moment to forget", || server.try_sql(&database, FORGET).is_ok());
        serve_again(&load, Instant::now());
        pass(500);
        let calls = load.stop();
        never_402(&calls);
        books.balanced(&fleet.nodes, &customer.account, &calls);
    });
    fleet.nodes.stop();
    books.all_is_back();
}

/// Calls go on for the term, get 503 behind it, and are reported when the database is back.
fn goes_away(test: &str, away: impl Fn(&Postgres, &str, bool)) {
    let (server, database, url) = shared(&test.replace(' ', "_"));
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    Rounds::of(test, 1).play(|random| {
        let customer = fleet.nodes.customer(PLENTY);
        let calling: Calling = fleet.calling(&[&customer.key]);
        let load = Load::start(&calling);
        pass(700 + random.u64(0..500));
        let away_at = Instant::now();
        away(server, &database, true);
        let is_away = Instant::now();
        // The term, and the second in which calls wait for an answer that is late.
        pass(3500 + random.u64(0..1500));
        let back_at = Instant::now();
        away(server, &database, false);
        serve_again(&load, Instant::now());
        let calls = load.stop();
        never_402(&calls);
        let within = Duration::from_millis(500);
        let refused = calls.iter().find(|call| call.until < away_at + within && call.status != 200);
        assert!(refused.is_none(), "{refused:?} in the term, of {}", Tally(&calls));
        let beyond = calls
            .iter()
            .filter(|call| call.at > is_away + Duration::from_millis(2400) && call.until < back_at);
        let beyond: Vec<_> = beyond.collect();
        assert!(!beyond.is_empty(), "{}", Tally(&calls));
        let served = beyond.iter().find(|call| call.status != 503);
        assert!(served.is_none(), "{served:?} behind the term, of {}", Tally(&calls));
        books.balanced(&fleet.nodes, &customer.account, &calls);
    });
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_database_that_turns_read_only_costs_service_and_no_money() {
    goes_away("read only", Postgres::read_only);
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_database_without_connections_costs_service_and_no_money() {
    goes_away("no connections", |server, database, away| {
        let limit = if away { 0 } else { -1 };
        server.sql("postgres", &format!("ALTER DATABASE {database} CONNECTION LIMIT {limit}"));
        server.send_away(database);
    });
}
