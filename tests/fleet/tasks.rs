//! Tasks of a fleet, on a real PostgreSQL: any node answers, one end, and money that is in one place
//! whatever is cut off when.

mod member;
mod processes;
mod work;

use std::sync::Arc;
use std::time::Duration;

use crate::harness::fleet::Member;
use crate::harness::let_pass_async;
use crate::harness::next_millisecond;
use crate::harness::postgres::Cut;
use crate::harness::task_contract::{Subject, check};
use member::{
    FleetDatabase, GRANTED, HELD, TIMEOUT, charge, customer, end, hold, killed, opened, submitted,
    task, tasks_of, until,
};
use tollgate::clock::UnixMs;
use tollgate::fleet::postgres::tasks::{OpenOutcome, Opening};
use tollgate::ledger::{
    AccountId, Actor, CallName, Hold, IdempotencyKey, KeyId, LedgerError, OpenHold,
    REPEATED_WITHIN, RecoveryPolicy, RepeatKey, RequestId, Reservation, Settlement, Task,
    TaskFilter, TaskId, TaskPhase, TaskSettlement,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

const ROUNDS: u64 = 50;

#[tokio::test(flavor = "multi_thread")]
async fn tasks_in_a_database_keep_the_contract_of_tasks() {
    let database = FleetDatabase::new("tasks").await;
    let a = Member::join(&database.url, "a").await;
    let (customer, stranger) = (customer(&a, &[]).await, customer(&a, &[]).await);
    let ledger = Arc::clone(&a.ledger);
    check(&Subject { ledger, customer, stranger }).await;
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_for_a_task_and_only_to_its_account() {
    let database = FleetDatabase::new("answers").await;
    let [a, b, c] = [
        Member::join(&database.url, "a").await,
        Member::join(&database.url, "b").await,
        Member::join(&database.url, "c").await,
    ];
    let account = customer(&a, &[&b, &c]).await;
    let stranger = customer(&b, &[&a, &c]).await;
    let taken = submitted(&a, account, "up-1").await;
    assert_eq!(database.account(account).held, HELD);
    assert_eq!(a.ledger.open_holds(), 0, "the hold went with the task");
    for (name, node) in [("a", &a), ("b", &b), ("c", &c)] {
        for id in [taken.id().to_string(), "up-1".to_owned()] {
            let found = node.ledger.task(account, &id).await.expect("read").expect(name);
            assert_eq!(found, taken, "{name} answers for {id}");
            assert_eq!(node.ledger.task(stranger, &id).await.expect("read"), None, "{name}");
        }
        let page = node.ledger.tasks(Some(account), Some(TaskFilter::Open), None, 10).await;
        assert_eq!(page.expect("read").expect("a page").tasks.len(), 1, "{name} lists it");
        let all = node.ledger.tasks(Some(stranger), None, None, 10).await;
        assert!(all.expect("read").expect("a page").tasks.is_empty(), "{name}: not theirs");
    }
    let request = open_everywhere(&[&a, &b, &c], account, &taken).await;
    end(&c, &taken, charge(400)).await.expect("written").expect("ended");
    for node in [&a, &b, &c] {
        for name in [CallName::Hold(taken.intent.hold, None), request] {
            let found = node.ledger.call_money(account, name).await.expect("read").expect("a call");
            assert!(found.end.is_some(), "{name:?}");
        }
        let found = node.ledger.task(account, "up-1").await.expect("read").expect("kept");
        assert_eq!(found.ended().expect("over").charged, Nanousd::new(400));
    }
    let row = database.account(account);
    assert_eq!((row.held, row.spent), (0, 400));
    let used = database.sql(&format!(
        "SELECT calls, charged, seconds FROM tollgate.usage WHERE account = '{account}'"
    ));
    assert_eq!(used, "1|400|4");
    for node in [a, b, c] {
        node.stop().await;
    }
    let row = database.account(account);
    assert_eq!((row.available, row.leased), (GRANTED - 400, 0), "everything came back");
}

/// Opens a task whose hold all nodes must know, also by its request. Returns its name.
async fn open_everywhere(nodes: &[&Member], account: AccountId, task: &Task) -> CallName {
    let by_hold = CallName::Hold(task.intent.hold, None);
    let found = nodes[0].ledger.call_money(account, by_hold).await.expect("read").expect("a call");
    let request = CallName::Request(found.call.request, task.intent.at);
    for node in nodes {
        for name in [by_hold, request] {
            let found = node.ledger.call_money(account, name).await.expect("read").expect("a call");
            assert_eq!((found.call.held.get(), found.end), (HELD, None), "{name:?}");
        }
    }
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_tasks_go_on_behind_each_page() {
    let database = FleetDatabase::new("lists").await;
    let a = Member::join(&database.url, "a").await;
    let account = customer(&a, &[]).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let taken = submitted(&a, account, &format!("up-{number}")).await;
        if number % 2 == 0 {
            end(&a, &taken, TaskSettlement::Void).await.expect("written").expect("ended");
        }
        ids.push(taken.id());
        next_millisecond().await;
    }
    ids.reverse();
    let page = async |filter, after, limit| {
        let page = a.ledger.tasks(None, filter, after, limit).await.expect("read").expect("a page");
        (page.tasks.iter().map(|one| one.task.id()).collect::<Vec<_>>(), page.next_after)
    };
    assert_eq!(page(None, None, 3).await, (ids[..3].to_vec(), Some(ids[2])));
    assert_eq!(page(None, Some(ids[2]), 3).await, (ids[3..].to_vec(), None));
    assert_eq!(page(Some(TaskFilter::Open), None, 9).await.0, [ids[1], ids[3]]);
    let ended = TaskFilter::Ended("succeeded".to_owned());
    assert_eq!(page(Some(ended), None, 9).await.0, [ids[0], ids[2], ids[4]]);
    let unknown = a.ledger.tasks(None, None, Some(TaskId::random()), 3).await;
    assert_eq!(unknown.expect("read"), None);

    let future = UnixMs(UnixMs::now().0 + 1000);
    assert_eq!(a.ledger.forget_tasks(future, 2).await.expect("forgotten"), 2, "at most so many");
    assert_eq!(a.ledger.forget_tasks(future, 2).await.expect("forgotten"), 1);
    assert_eq!(page(None, None, 9).await.0, [ids[1], ids[3]], "open ones are kept");
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_race_end_a_task_once_with_the_right_money() {
    let database = FleetDatabase::new("race").await;
    let [a, b] = [Member::join(&database.url, "a").await, Member::join(&database.url, "b").await];
    let account = customer(&a, &[&b]).await;
    let mut spent = 0;
    for seed in 0..ROUNDS {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let taken = submitted(&a, account, &format!("up-{seed}")).await;
        let ways = [0, 1, HELD, HELD + 500].map(Some).into_iter().chain([None]);
        let ways: Vec<Option<i64>> = ways.collect();
        let mut choose = || ways[random.usize(..ways.len())];
        let (first, second) = (choose(), choose());
        let settle = |way: Option<i64>| way.map_or(TaskSettlement::Void, charge);
        let (by_a, by_b) =
            tokio::join!(end(&a, &taken, settle(first)), end(&b, &taken, settle(second)));
        let (by_a, by_b) = (by_a.expect("written"), by_b.expect("written"));
        let way = match (&by_a, &by_b) {
            (Some(_), None) => first,
            (None, Some(_)) => second,
            both => panic!("seed {seed}: {both:?}"),
        };
        spent += way.unwrap_or_default();
        let row = database.account(account);
        assert_eq!((row.held, row.spent), (0, spent), "seed {seed}");
        let existing = b.ledger.task(account, &taken.id().to_string()).await.expect("read");
        let charged = existing.expect("kept").ended().expect("over").charged;
        assert_eq!(charged, Nanousd::new(way.unwrap_or_default()), "seed {seed}");
    }
    let lines = database.sql(
        "SELECT count(*), count(DISTINCT first_seq) FROM tollgate.entries
                           WHERE last_seq IN (SELECT hold FROM tollgate.tasks)",
    );
    assert_eq!(lines, format!("{ROUNDS}|{ROUNDS}"), "a line of the statement for each");
    for node in [a, b] {
        node.stop().await;
    }
    let row = database.account(account);
    assert_eq!((row.available, row.leased, row.suspense), (GRANTED - spent, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_task_costs_beyond_its_account_is_owed() {
    let database = FleetDatabase::new("excess").await;
    let a = Member::join(&database.url, "a").await;
    let account = customer(&a, &[]).await;
    let taken = submitted(&a, account, "up-1").await;
    let free = database.account(account).available;
    let ended = end(&a, &taken, charge(HELD + free + 300)).await.expect("written");
    assert_eq!(ended.expect("ended").ended().expect("over").charged.get(), HELD + free);
    let row = database.account(account);
    assert_eq!((row.available, row.held, row.debt), (0, 0, 300));
    assert_eq!(row.spent, HELD + free);
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_reports_the_absurd_is_counted_to_the_end_of_the_range() {
    let database = FleetDatabase::new("absurd").await;
    let a = Member::join(&database.url, "a").await;
    let account = customer(&a, &[]).await;
    for number in 0..3 {
        let taken = submitted(&a, account, &format!("up-{number}")).await;
        let usage = Usage { characters: u64::MAX, ..Usage::ZERO };
        let (charge, source) = (Nanousd::new(1), UsageSource::Upstream);
        let settlement = TaskSettlement::Post(Settlement { charge, usage, source });
        end(&a, &taken, settlement).await.expect("written").expect("ended");
    }
    let counted = database.sql("SELECT calls, charged, characters FROM tollgate.usage");
    assert_eq!(counted, format!("3|3|{}", i64::MAX));
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_a_doubt_on_any_node_once() {
    let database = FleetDatabase::new("resolve").await;
    let [a, b] = [Member::join(&database.url, "a").await, Member::join(&database.url, "b").await];
    let account = customer(&a, &[&b]).await;
    let taken = opened(&a, account).await;
    let ada = Actor::operator("ada");
    let key = IdempotencyKey { id: Some("resolve-1".to_owned()), digest: [1; 32] };
    let resolve = async |node: &Member, charge: Option<i64>| {
        let (by, what) =
            (node.ledger.by(&ada).with_idempotency_key(key.clone()), ("failed", "{}".to_owned()));
        by.resolve_task((account, taken.id()), what, charge.map(Nanousd::new)).await
    };
    let early = resolve(&b, None).await;
    assert!(matches!(early, Err(LedgerError::NoDoubt(_))), "its node is at it: {early:?}");
    let doubt = |task: &Task| Task { stage: TaskPhase::InDoubt, ..task.clone() };
    let changed = a.ledger.change_task((account, taken.id()), doubt).await;
    changed.expect("written").expect("changed");
    let beyond = resolve(&b, Some(HELD + 1)).await;
    assert!(matches!(beyond, Err(LedgerError::Invalid(_))), "{beyond:?}");
    let ended = resolve(&b, Some(300)).await.expect("resolved").expect("the first");
    assert_eq!(ended.ended().expect("over").charged, Nanousd::new(300));
    assert_eq!(resolve(&b, Some(300)).await, Ok(None), "it was done");
    a.ledger.catch_up().await.expect("followed");
    assert_eq!(resolve(&a, Some(300)).await, Ok(None), "also for another node");
    let (by, what) = (a.ledger.by(&ada), ("failed", String::new()));
    let late = by.resolve_task((account, taken.id()), what, None).await;
    assert!(matches!(late, Err(LedgerError::NoDoubt(_))), "it is no doubt any more: {late:?}");
    let acts = a.ledger.acts(Some(account), None, 10).await.expect("acts");
    let resolved = acts.iter().filter(|listed| listed.act.what == "task.resolve");
    assert_eq!(resolved.count(), 1, "the act stands once, on every node");
    let row = database.account(account);
    assert_eq!((row.held, row.spent), (0, 300));
    for node in [a, b] {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_submit_on_two_nodes_is_one_task() {
    let database = FleetDatabase::new("submits").await;
    let [a, b] = [Member::join(&database.url, "a").await, Member::join(&database.url, "b").await];
    let account = customer(&a, &[&b]).await;
    for seed in 0..ROUNDS {
        println!("seed {seed}");
        let repeat = RepeatKey { key: [u8::try_from(seed).expect("small"); 32], body: [2; 32] };
        let open = async |node: &Member| {
            let hold = hold(node, account, HELD).await;
            let task = task(&hold, account, Some(repeat));
            let opened = node.ledger.open_task(hold, Arc::clone(&task), REPEATED_WITHIN).await;
            opened.map(|()| task)
        };
        let (by_a, by_b) = tokio::join!(open(&a), open(&b));
        let one = match (by_a, by_b) {
            (Ok(task), Err(LedgerError::Conflict)) | (Err(LedgerError::Conflict), Ok(task)) => task,
            both => panic!("seed {seed}: {both:?}"),
        };
        assert_eq!(database.account(account).held, HELD, "seed {seed}");
        // No upstream takes it, so the same may be tried again.
        end(&b, &one, TaskSettlement::Void).await.expect("written").expect("ended");
        open(&b).await.expect("a new try");
        database.sql("UPDATE tollgate.tasks SET due_at = NULL");
        let all = b.ledger.tasks(Some(account), Some(TaskFilter::Open), None, 10).await;
        for left in all.expect("read").expect("a page").tasks {
            end(&a, &left.task, TaskSettlement::Void).await.expect("written").expect("ended");
        }
    }
    assert_eq!((a.ledger.open_holds(), b.ledger.open_holds()), (0, 0));
    for node in [a, b] {
        node.stop().await;
    }
    assert_eq!(database.account(account).available, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_holds_once_or_not_at_all() {
    let database = FleetDatabase::new("commits").await;
    let wire = Cut::before(database.server.port());
    let a = Member::join(&wire.url(&database.url), "a").await;
    let account = customer(&a, &[]).await;
    let (mut taken, mut unknown) = (0, 0);
    for seed in 0..ROUNDS {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let hold = hold(&a, account, HELD).await;
        let task = task(&hold, account, None);
        hold.durable().await.expect("on disk");
        let_pass_async(Duration::from_millis(random.u64(..20)), "any moment of an exchange").await;
        if random.bool() {
            wire.lose_answer_to_commit();
        } else {
            wire.lose_commit();
        }
        let opened = a.ledger.open_task(hold, Arc::clone(&task), REPEATED_WITHIN).await;
        match opened {
            // The node's own exchange met the fault.
            Ok(()) => {
                taken += 1;
                assert_eq!(database.account(account).held, HELD, "seed {seed}");
                end(&a, &task, TaskSettlement::Void).await.expect("written").expect("ended");
            }
            Err(LedgerError::Unavailable(_)) => unknown += 1,
            Err(other) => panic!("seed {seed}: {other}"),
        }
        until("the end of the hold", || a.ledger.open_holds() == 0).await;
        assert_eq!(database.account(account).held, 0, "seed {seed}");
        let stage = "SELECT count(*) FROM tollgate.tasks WHERE stage NOT IN ('ended', 'never')";
        assert_eq!(database.sql(stage), "0", "seed {seed}: nobody asks the upstream");
    }
    println!("{taken} opened, {unknown} unknown");
    assert!(unknown >= 10, "only {unknown} of {ROUNDS} commits were lost");
    until("the last exchange", || database.account(account).suspense == 0).await;
    a.stop().await;
    let row = database.account(account);
    assert_eq!((row.available, row.leased), (GRANTED, 0), "nothing was lost or made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_while_it_opens_a_task_holds_its_money_once() {
    let database = FleetDatabase::new("dies").await;
    let watcher = Member::join(&database.url, "watcher").await;
    let account = customer(&watcher, &[]).await;
    let mut dir = None;
    let mut spent_rounds = 0;
    for seed in 0..ROUNDS {
        println!("seed {seed}");
        let step = fastrand::Rng::with_seed(seed).u32(..4);
        let a = match dir.take() {
            None => Member::join(&database.url, "a").await,
            Some(dir) => Member::join_in(&database.url, "a", dir, RecoveryPolicy::Void).await,
        };
        a.ledger.catch_up().await.expect("followed");
        assert_eq!(a.ledger.open_holds(), 0, "seed {seed}: the start has ended them");
        let hold = hold(&a, account, HELD).await;
        let task = task(&hold, account, None);
        let open = open_hold(account, &hold);
        if step >= 1 {
            hold.durable().await.expect("on disk");
        }
        let mut was_opened = false;
        if step == 2 {
            // The database has it, and the journal does not know.
            let opening = Opening::new(&task, open, REPEATED_WITHIN).expect("an opening");
            assert_eq!(tasks_of(&a).open(&opening).await, Ok(OpenOutcome::Done), "seed {seed}");
            was_opened = true;
        }
        if step == 3 {
            let opened = a.ledger.open_task(hold, Arc::clone(&task), REPEATED_WITHIN).await;
            opened.expect("opened");
            was_opened = true;
        } else {
            // What a killed process held in memory ends nothing.
            std::mem::forget(hold);
        }
        dir = Some(killed(a).await);
        let held = if was_opened { HELD } else { 0 };
        assert_eq!(database.account(account).held, held, "seed {seed}, step {step}");
        if was_opened {
            let ended = end(&watcher, &task, charge(1)).await.expect("written");
            ended.expect("another node ends it");
            spent_rounds += 1;
        }
    }
    let a =
        Member::join_in(&database.url, "a", dir.expect("a directory"), RecoveryPolicy::Void).await;
    assert_eq!(a.ledger.open_holds(), 0);
    for node in [a, watcher] {
        node.stop().await;
    }
    let row = database.account(account);
    assert_eq!((row.leased, row.held, row.suspense), (0, 0, 0));
    assert_eq!((row.spent, row.available), (spent_rounds, GRANTED - spent_rounds));
    let doubted = "SELECT count(*) FROM tollgate.in_doubt
                   WHERE hold IN (SELECT hold FROM tollgate.tasks)";
    assert_eq!(database.sql(doubted), "0", "what went with a task is in no doubt");
}

/// The ledger's record of a hold.
fn open_hold(account: AccountId, hold: &Hold) -> OpenHold {
    let reservation = Arc::new(Reservation {
        account,
        key: KeyId::from_number(7),
        model: "video".into(),
        price: None,
        request: RequestId::new(),
        amount: hold.amount(),
        floor: Nanousd::ZERO,
        at: UnixMs::now(),
    });
    OpenHold { reservation, amount: hold.amount() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_costs_nobody_anything() {
    let database = FleetDatabase::new("away").await;
    let wire = Cut::before(database.server.port());
    let a = Member::join(&wire.url(&database.url), "a").await;
    let account = customer(&a, &[]).await;
    drop(hold(&a, account, HELD).await);
    let one = hold(&a, account, HELD).await;
    let task_one = task(&one, account, None);
    wire.cut();
    let refused = a.ledger.open_task(one, task_one, REPEATED_WITHIN).await;
    assert!(matches!(refused, Err(LedgerError::Unavailable(_))), "{refused:?}");
    assert_eq!(a.ledger.open_holds(), 0, "the hold is given back");
    let unread = a.ledger.task(account, "up-1").await;
    assert!(matches!(unread, Err(LedgerError::Unavailable(_))), "{unread:?}");
    wire.resume();
    submitted(&a, account, "up-1").await;
    assert_eq!(database.account(account).held, HELD);
    a.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_due_task_is_one_nodes_until_that_dies() {
    let database = FleetDatabase::new("claims").await;
    let [a, b] = [Member::join(&database.url, "a").await, Member::join(&database.url, "b").await];
    let account = customer(&a, &[&b]).await;
    for number in 0..20 {
        submitted(&a, account, &format!("up-{number}")).await;
    }
    assert_eq!(tasks_of(&a).claim(10).await, Ok(None), "nothing is due yet");
    database.sql("UPDATE tollgate.tasks SET due_at = 0");
    let (a_tasks, b_tasks) = (tasks_of(&a), tasks_of(&b));
    let (by_a, by_b) = tokio::join!(a_tasks.claim(10), b_tasks.claim(15));
    let claimed =
        [by_a, by_b].map(|claims| claims.expect("claimed").map_or_else(Vec::new, |c| c.tasks));
    let mut all = claimed.concat();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "no task is two nodes'");
    let rest = b_tasks.claim(20).await.expect("claimed").map_or_else(Vec::new, |c| c.tasks);
    assert_eq!(count + rest.len(), 20);
    assert_eq!(a_tasks.claim(20).await.expect("claimed").map(|c| c.tasks), None, "all are taken");
    let (_, one) = all[0];
    assert_eq!(b_tasks.claim_to_ask(one, Duration::ZERO).await, Ok(false), "somebody asks");

    // The holders die, and their time goes by.
    database.sql("UPDATE tollgate.tasks SET held_until = now() - interval '1 second'");
    let again = b_tasks.claim(30).await.expect("claimed").expect("some");
    assert_eq!((again.tasks.len(), again.nodes), (20, 2));
    b_tasks.note_poll(one, Some(("running", "{}")), UnixMs(u64::MAX >> 1)).await.expect("noted");
    let existing = a_tasks.any_task(one).await.expect("read").expect("there");
    let status = existing.status.expect("something");
    assert_eq!((status.state.as_str(), status.document.as_str()), ("running", "{}"));
    assert!(existing.polled_ago.expect("asked") < TIMEOUT);
    let fresh = a_tasks.claim_to_ask(one, TIMEOUT).await;
    assert_eq!(fresh, Ok(false), "it was asked just now");
    assert_eq!(a_tasks.claim_to_ask(one, Duration::ZERO).await, Ok(true));

    let orphan = opened(&a, account).await;
    assert_eq!(b_tasks.is_orphaned(&orphan).await, Ok(false), "its node is at it");
    database.sql(&format!(
        "UPDATE tollgate.nodes SET term_ends = now() WHERE id = {}",
        a.fleet.node().number()
    ));
    assert_eq!(b_tasks.is_orphaned(&orphan).await, Ok(true), "its node has fallen silent");
}
