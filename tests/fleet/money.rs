//! Nodes of a fleet on one database, as their callers see them: what they spend together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::fleet::{InProcess, Member, copied, cost, database, money, options, reserve};
use crate::harness::postgres::Postgres;
use crate::harness::{
    Gateway, ask, chat_model, eventually, let_pass_async, simulator, within_async,
};
use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::fleet::HasFleet;
use tollgate::fleet::moving;
use tollgate::fleet::postgres::Db;
use tollgate::ledger::{
    AccountId, AccountPatch, Actor, EntryKind, HoldsPatch, Ledger, LedgerError, NodeId, Options,
    RecoveryPolicy, Refusal, SuspenseEnd, VoidReason,
};
use tollgate::money::Nanousd;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn spending_of_all_nodes_adds_up() {
    let (name, url) = Postgres::shared().database("adds_up");
    let nodes = InProcess::start(&url, 3).await;
    let account = nodes.account_with(10_000).await;
    let mut spent = 0;
    for (round, charge) in (0..60).zip((10..).step_by(3)) {
        let ledger = &nodes.ledgers[round % 3];
        let hold = ledger.admit(reserve(account, 200)).await.expect("there is money");
        hold.durable().await.expect("durable");
        assert_eq!(hold.post(cost(charge)).charged, money(charge));
        spent += charge;
    }
    nodes.stop().await;
    let sums = "SELECT granted, available, leased, held, spent, suspense FROM tollgate.accounts";
    let row = Postgres::shared().sql(&name, sums);
    assert_eq!(row, format!("10000|{}|0|0|{spent}|0", 10_000 - spent), "all is back or spent");
}

/// Another node has all of an account's money, and no use for it: it hears at once that it is wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_another_node_does_not_need_comes_while_a_call_waits() {
    let (_, url) = Postgres::shared().database("recalled");
    let nodes = InProcess::start(&url, 2).await;
    for round in 0..10 {
        let account = nodes.account_with(10_000).await;
        let [one, other] = [0, 1].map(|offset| &nodes.ledgers[(round + offset) % 2]);
        let hold = one.admit(reserve(account, 10_000)).await.expect("there is money");
        hold.void(VoidReason::Unreached);
        let admitted = other.admit(reserve(account, 10_000)).await;
        assert!(admitted.is_ok(), "round {round}: {:?}", admitted.err());
        admitted.expect("a hold").post(cost(10_000));
    }
    nodes.stop().await;
}

/// The customer of a thousand calls at once over three nodes has money for ten.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_ten_calls_are_let_through_on_money_for_ten() {
    let (name, url) = Postgres::shared().database("exactly_ten");
    let nodes = InProcess::start(&url, 3).await;
    for round in 0..5 {
        let account = nodes.account_with(10_000).await;
        let calls: Vec<_> = (0..1000)
            .map(|n| {
                let ledger = Arc::clone(&nodes.ledgers[n % 3]);
                tokio::spawn(async move {
                    match ledger.admit(reserve(account, 1000)).await {
                        Ok(hold) => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            hold.post(cost(1000));
                            true
                        }
                        Err(Refusal::Insufficient { .. } | Refusal::Held { .. }) => false,
                        Err(other) => panic!("a call was refused with {other:?}"),
                    }
                })
            })
            .collect();
        let mut let_through = 0;
        for call in calls {
            let_through += usize::from(call.await.expect("no panic"));
        }
        assert_eq!(let_through, 10, "calls let through in round {round}");
    }
    nodes.stop().await;
    let sums = "SELECT sum(granted), sum(available), sum(leased), sum(spent), sum(suspense) \
                FROM tollgate.accounts";
    assert_eq!(Postgres::shared().sql(&name, sums), "50000|0|0|50000|0");
}

/// Customers look at pages that the database is slow with: calls go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_that_take_long_keep_neither_money_nor_the_directory_waiting() {
    let (_, url) = Postgres::shared().database("slow_reads");
    let nodes = InProcess::start(&url, 2).await;
    let [one, other] = [0, 1].map(|node| &nodes.ledgers[node]);
    let account = nodes.account_with(10_000).await;
    let fleet = one.fleet().expect("a fleet");
    let db = fleet.db();
    let readers: Vec<_> = (0..60)
        .map(|_| {
            let db = db.clone();
            tokio::spawn(async move { db.query("SELECT pg_sleep(2)", &[]).await.is_ok() })
        })
        .collect();
    let_pass_async(
        Duration::from_millis(200),
        "nothing shows that all connections for reads are in use",
    )
    .await;
    let begun = Instant::now();
    let hold = one.admit(reserve(account, 200)).await.expect("there is money");
    assert!(begun.elapsed() < Duration::from_secs(1), "waited for {:?}", begun.elapsed());
    hold.post(cost(100));
    let new = other.create_account("new").await.expect("an account").id;
    let follows = async || one.account(new).is_some();
    within_async(Duration::from_secs(1), "the other node follows", follows).await;
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    nodes.stop().await;
}

/// Absurd usage reports of an upstream, whose sum over two nodes overflows, exclude neither node.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn absurd_usage_of_two_nodes_shuts_neither_of_them_out() {
    let (name, url) = Postgres::shared().database("absurd");
    let nodes = InProcess::start(&url, 2).await;
    let accounts = [nodes.account_with(10_000).await, nodes.account_with(10_000).await];
    for account in accounts {
        let mut holds = Vec::new();
        for ledger in &nodes.ledgers {
            holds.push(ledger.admit(reserve(account, 200)).await.expect("there is money"));
        }
        for hold in holds {
            hold.post(cost(i64::MAX));
        }
    }
    let reported = "SELECT count(*), min(debt) FROM tollgate.accounts
        WHERE available + spent = granted";
    eventually("both have reported", || {
        Postgres::shared().sql(&name, reported) == format!("2|{}", i64::MAX)
    });
    for ledger in &nodes.ledgers {
        let fleet = ledger.fleet().expect("a fleet");
        assert!(fleet.may_spend(), "a node was shut out");
        let seen = fleet.db().overview().await.expect("the fleet can be seen");
        assert_eq!(seen.sums.money.debt, Nanousd::MAX);
    }
    nodes.stop().await;
}

/// An upstream reports more than a call could cost: the customer pays for it with what the fleet has.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_charge_above_its_hold_is_paid_with_money_that_is_elsewhere() {
    let (name, url) = Postgres::shared().database("above_the_hold");
    let nodes = InProcess::start(&url, 2).await;
    let [one, other] = [0, 1].map(|node| &nodes.ledgers[node]);
    let account = nodes.account_with(10_000).await;
    let elsewhere = other.admit(reserve(account, 1000)).await.expect("there is money");
    let settle = async |charge| {
        let mut hold = one.admit(reserve(account, 200)).await.expect("there is money");
        hold.cover(money(charge)).await;
        let posted = hold.post(cost(charge));
        (posted.charged, posted.owed)
    };
    assert_eq!(settle(150).await, (money(150), money(0)), "within the hold");
    assert_eq!(settle(7000).await, (money(7000), money(0)), "the treasury has it");
    elsewhere.void(VoidReason::Unreached);
    assert_eq!(settle(2700).await, (money(2700), money(0)), "the other node needs it no longer");
    let last = other.admit(reserve(account, 60)).await.expect("there is money");
    let hold = async |charge: i64| {
        let mut hold = one.admit(reserve(account, 10)).await.expect("there is money");
        hold.cover(money(charge)).await;
        hold.post(cost(charge))
    };
    let posted = hold(500).await;
    assert_eq!((posted.charged, posted.owed), (money(90), money(410)), "all that there is");
    // What another node held pays of it what is not needed there; nothing is lent before all is paid.
    last.post(cost(50));
    let debt = "SELECT debt FROM tollgate.accounts";
    eventually("10 of it are paid", || Postgres::shared().sql(&name, debt) == "400");
    for node in [one, other] {
        let refusal = node.admit(reserve(account, 10)).await.expect_err("it owes");
        assert_eq!(refusal, Refusal::InDebt { debt: money(400), available: money(0) });
    }
    let by = one.by(&Actor::Gateway);
    let too_much = by.write_off(account, "w", money(401), "too much").await;
    assert!(matches!(too_much, Err(LedgerError::NotOwed)), "{too_much:?}");
    by.write_off(account, "w", money(100), "agreed").await.expect("given up");
    let again = other.by(&Actor::Gateway).write_off(account, "w", money(100), "agreed").await;
    assert!(again.expect("given up before").repeated);
    other.grant(account, "second", money(700)).await.expect("granted");
    let shown = other.durable_account(account).await.expect("figures").expect("the account");
    assert_eq!((shown.balance.debt, shown.balance.available), (money(0), money(400)));
    assert_eq!(shown.written_off, money(100));
    one.admit(reserve(account, 400)).await.expect("it owes nothing").void(VoidReason::Unreached);
    let found = lines(one, account).await;
    let paid: i64 = found.iter().filter(|(kind, _)| *kind == "paid").map(|(_, paid)| paid).sum();
    assert_eq!(paid, 310, "{found:?}");
    nodes.stop().await;
    let sums = "SELECT granted, available, leased, spent, debt, written_off FROM tollgate.accounts";
    assert_eq!(Postgres::shared().sql(&name, sums), "10700|400|0|10300|0|100");
}

/// A line is lent to nodes, drawn, lowered while a node has some of it out, and paid back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_credit_line_is_the_fleets() {
    let (name, url) = Postgres::shared().database("credit_line");
    let nodes = InProcess::start(&url, 2).await;
    let [one, other] = [0, 1].map(|node| &nodes.ledgers[node]);
    let account = nodes.account_with(1_000).await;
    let set = async |limit: i64| {
        let holds = HoldsPatch { slice: Some(Some(64)), ..HoldsPatch::default() };
        let credit_limit = Some(money(limit));
        let patch = AccountPatch { credit_limit, holds, ..AccountPatch::default() };
        one.by(&Actor::Gateway).update_account(account, patch).await.map(drop)
    };
    let shown = async |ledger: &Arc<Ledger>| {
        ledger.durable_account(account).await.expect("figures").expect("there").balance
    };
    set(5_000).await.expect("a line");
    let (balance, totals) = (shown(other).await, other.totals().await.expect("totals"));
    assert_eq!((balance.available, balance.credit), (money(6_000), money(5_000)));
    assert_eq!((totals.balance.credit, totals.credit_used), (money(5_000), money(0)));
    eventually("the other node follows", || other.hold_overrides(account).is_some());
    other.admit(reserve(account, 4_000)).await.expect("it is lent").post(cost(4_000));
    let hold = one.admit(reserve(account, 500)).await.expect("it is lent");
    let refused = set(0).await.expect_err("a call holds some of it");
    assert!(matches!(refused, LedgerError::CreditInFlight(_)), "{refused}");
    set(500).await.expect("what no call holds comes back");
    let balance = shown(other).await;
    assert_eq!((balance.credit, balance.debt), (money(500), money(3_000)));
    let refusal = one.admit(reserve(account, 1)).await.expect_err("it owes");
    assert!(matches!(refusal, Refusal::InDebt { .. }), "{refusal:?}");
    hold.post(cost(500));
    one.grant(account, "paid", money(3_200)).await.expect("granted");
    let entries = one.entries(account, None, 100).await.expect("entries");
    let lines = entries.iter().filter(|entry| matches!(entry.kind, EntryKind::CreditLine { .. }));
    assert_eq!(lines.count(), 2, "{entries:?}");
    nodes.stop().await;
    let sums = "SELECT granted, available, leased, spent, debt, credit FROM tollgate.accounts";
    assert_eq!(Postgres::shared().sql(&name, sums), "4700|200|0|4500|0|500");
    let dir = TempDir::new().expect("a directory");
    Postgres::shared().sql(&name, "UPDATE tollgate.nodes SET term_ends = now()");
    let db = Db::for_moving(&options(&url)).await.expect("the database");
    moving::move_out(&db, dir.path()).await.expect("moved out");
    let report = tollgate::ledger::verify(dir.path()).expect("readable");
    assert_eq!((report.violations, report.total.credit), (Vec::new(), money(500)));
}

/// The database is away, and a node has used up what it was lent of an account with plenty. What a call
/// costs beyond its hold is owed until the treasury hears of it, and paid then: charged in the end is all
/// that was due, nothing is written off, and nobody is refused for that debt meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_charge_above_its_hold_while_the_database_is_away_is_paid_when_it_is_back() {
    let server = Postgres::start();
    let nodes = InProcess::start(&server.url(), 2).await;
    let account = nodes.account_with(10_000_000_000).await;
    let ledger = &nodes.ledgers[0];
    let mut hold = ledger.admit(reserve(account, 663_000)).await.expect("there is money");
    server.pause();
    let lent = ledger.account(account).expect("the account").balance.available.get();
    let rest = ledger.reserve(reserve(account, lent)).expect("all that was lent");
    hold.cover(money(880_000)).await;
    let posted = hold.post(cost(880_000));
    assert_eq!((posted.charged, posted.owed), (money(663_000), money(217_000)));
    rest.void(VoidReason::Unreached);
    let next = ledger.admit(reserve(account, 1000)).await;
    next.expect("the account has plenty, and there is money here").post(cost(600));
    server.resume();
    let sums = "SELECT spent, debt, written_off FROM tollgate.accounts";
    eventually("all that was due is paid", || server.sql("tollgate", sums) == "880600|0|0");
    let found = lines(ledger, account).await;
    let expected = [
        ("grant", -10_000_000_000),
        ("settlement", 663_000),
        ("void", 0),
        ("settlement", 600),
        ("paid", 217_000),
    ];
    assert_eq!(found, expected);
    nodes.stop().await;
    let sums = "SELECT leased, spent, debt, written_off FROM tollgate.accounts";
    assert_eq!(server.sql("tollgate", sums), "0|880600|0|0");
}

/// A stream goes on far beyond its hold, and beyond what was lent along with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_that_outgrows_its_hold_goes_on_while_there_is_money() {
    let (_, url) = database("outgrown").await;
    let runaway = ["chunks=400", "words=1", "interval-ms=2", "max-tokens=ignore"];
    let sim = simulator(&runaway);
    let upstreams = format!("  u: {{ protocol: openai, base_url: 'http://{}/v1' }}\n", sim.addr());
    // $0.002 a token: a hundred times over what is lent ahead.
    let models = format!("models:\n{}", chat_model("m", "u"))
        .replace("output_per_1m_tokens: 10", "output_per_1m_tokens: 2000");
    let gateway = Gateway::node(&url, &upstreams, &models);
    let body = r#"{"model":"m","max_tokens":10,"stream":true,
        "messages":[{"role":"user","content":"hi"}]}"#;
    let balance = |field: &str| -> Nanousd {
        gateway.settled()[field].as_str().and_then(|text| text.parse().ok()).expect("an amount")
    };
    let dollars = |text: &str| text.parse::<Nanousd>().expect("an amount");
    let mut whole = 0;
    loop {
        let answer = ask(gateway.address, &gateway.chat_json(body));
        if answer.status() == 402 {
            break;
        }
        let text = String::from_utf8(answer.content()).expect("text");
        if text.trim_end().ends_with("data: [DONE]") {
            whole += 1;
            continue;
        }
        assert!(text.contains("insufficient_balance"), "cut for want of money: {text}");
        assert!(whole >= 10, "there was money for more than {whole}");
        eventually("all but a hold's worth is spent", || balance("available") < dollars("0.03"));
        break;
    }
    assert!((10..=13).contains(&whole), "{whole} streams of about $0.8 were paid with $10");
    assert_eq!(balance("held"), Nanousd::ZERO);
}

/// A node that has fallen silent with a call that it has not reported, of which it has the disk.
struct Silent {
    node: NodeId,
    dir: TempDir,
    /// Amount taken out of suspense.
    amount: i64,
}

/// A node takes a call of an account for at most 4000 and is charged 1500 for it, falls silent, and an
/// operator resolves what it had out.
async fn resolved(
    (name, url): (&str, &str),
    first: &Ledger,
    account: AccountId,
    end: SuspenseEnd,
) -> Silent {
    let mut lost = Member::join(url, "lost").await;
    lost.ledger.catch_up().await.expect("follows");
    let hold = lost.ledger.admit(reserve(account, 4000)).await.expect("there is money");
    lost.falls_silent().await;
    assert_eq!(hold.post(cost(1500)).charged, money(1500));
    lost.ledger.close();
    let number = Postgres::shared().sql(name, "SELECT max(id) FROM tollgate.nodes");
    let silence = "UPDATE tollgate.nodes SET term_ends = now() - interval '1 second' WHERE id = ";
    Postgres::shared().sql(name, &format!("{silence}{number}"));
    let is_suspended = format!("SELECT suspended_at FROM tollgate.nodes WHERE id = {number}");
    eventually("suspense", || !Postgres::shared().sql(name, &is_suspended).is_empty());
    let node = number.parse().ok().and_then(NodeId::from_number).expect("a node");
    let actor = Actor::operator("op");
    let resolved = first.by(&actor).resolve_suspense((node, account), end, "lost").await;
    let amount = resolved.expect("resolved").value.amount.get();
    assert!(amount >= 4000, "{amount}");
    Silent { node, dir: copied(lost.dir.path()), amount }
}

impl Silent {
    /// It comes back over its disk, and stops.
    async fn comes_back(&self, url: &str) {
        let dir = copied(self.dir.path());
        Member::join_in(url, "lost", dir, RecoveryPolicy::Floor).await.stop().await;
    }
}

/// The lines of an account's statement, oldest first, in a word and what each takes away.
async fn lines(ledger: &Ledger, account: AccountId) -> Vec<(&'static str, i64)> {
    let mut entries = ledger.entries(account, None, 1000).await.expect("entries");
    entries.reverse();
    let line = |kind: &EntryKind| match kind {
        EntryKind::Grant { amount, .. } => ("grant", -amount.get()),
        EntryKind::Settlement { charged, .. } => ("settlement", charged.get()),
        EntryKind::DebtPayment { amount } => ("paid", amount.get()),
        EntryKind::WriteOff { .. } => ("written off", 0),
        EntryKind::Void { .. } => ("void", 0),
        EntryKind::SuspenseCharged { amount, .. } => ("charged", amount.get()),
        EntryKind::SuspenseReturned { amount, .. } => ("returned", -amount.get()),
        other => panic!("{other:?}"),
    };
    entries.iter().map(|entry| line(&entry.kind)).collect()
}

/// Spent and written-off amounts of an account, once nothing is leased and its statement agrees.
async fn settled(name: &str, ledger: &Ledger, account: AccountId) -> (i64, i64) {
    let out =
        format!("SELECT leased + held + suspense FROM tollgate.accounts WHERE id='{account}'");
    eventually("everything is back", || Postgres::shared().sql(name, &out) == "0");
    let columns = "SELECT available, spent, written_off FROM tollgate.accounts";
    let row = Postgres::shared().sql(name, &format!("{columns} WHERE id = '{account}'"));
    let row: Vec<i64> = row.split('|').map(|number| number.parse().expect("a number")).collect();
    let sum: i64 = lines(ledger, account).await.iter().map(|(_, amount)| amount).sum();
    assert_eq!(-sum, row[0], "grants, refunds and charges add up to what the account has");
    (row[1], row[2])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_charged_for_a_silent_node_is_given_back_when_it_comes_back() {
    let (name, url) = Postgres::shared().database("charged");
    let nodes = InProcess::start(&url, 1).await;
    let (first, account) = (&nodes.ledgers[0], nodes.account_with(20_000).await);
    let charge = SuspenseEnd::Charge;
    let silent = resolved((&name, &url), first, account, charge).await;
    let amount = silent.amount;
    let expected = [("grant", -20_000), ("charged", amount)];
    assert_eq!(lines(first, account).await, expected);
    assert_eq!(settled(&name, first, account).await, (amount, 0));
    let entries = first.entries(account, None, 1).await.expect("entries");
    let node = silent.node.number();
    assert_eq!(entries[0].kind, EntryKind::SuspenseCharged { node, amount: money(amount) });
    for _ in 0..2 {
        // The second time it has nothing new to say.
        silent.comes_back(&url).await;
        let expected = [&expected[..], &[("returned", -amount), ("settlement", 1500)]].concat();
        assert_eq!(lines(first, account).await, expected);
        assert_eq!(settled(&name, first, account).await, (1500, 0));
    }
    let used = first.usage(account, UnixMs(0)..UnixMs::now()).await.expect("usage");
    let used: Vec<_> = used.iter().map(|row| (row.total.calls, row.total.charged)).collect();
    assert_eq!(used, [(1, money(1500))]);
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_a_node_that_comes_back_are_paid_with_what_was_released() {
    let (name, url) = Postgres::shared().database("released");
    let nodes = InProcess::start(&url, 1).await;
    let (first, account) = (&nodes.ledgers[0], nodes.account_with(20_000).await);
    let silent = resolved((&name, &url), first, account, SuspenseEnd::Release).await;
    assert_eq!(settled(&name, first, account).await, (0, 0));
    silent.comes_back(&url).await;
    assert_eq!(settled(&name, first, account).await, (1500, 0));
    assert_eq!(lines(first, account).await, [("grant", -20_000), ("settlement", 1500)]);

    // Of what is released now, all is spent but 1000 when the node comes back, and some of this may be
    // lent ahead.
    let silent = resolved((&name, &url), first, account, SuspenseEnd::Release).await;
    let hold = first.admit(reserve(account, 17_500)).await.expect("there is money");
    hold.post(cost(17_500));
    eventually("it is reported", || {
        Postgres::shared().sql(&name, "SELECT spent FROM tollgate.accounts") == "19000"
    });
    silent.comes_back(&url).await;
    let (spent, removed) = settled(&name, first, account).await;
    assert_eq!(spent + removed, 20_500, "what calls have cost");
    assert!((500..1500).contains(&removed), "some of it was still there: {removed}");
    let found = lines(first, account).await;
    let expected = [("settlement", 17_500), ("returned", -removed), ("settlement", 1500)];
    assert_eq!(found[2..], expected, "the operator bears what is gone");
    nodes.stop().await;
}

/// An account whose money was lost with a node, one whose node came back, and one of which both is
/// true and more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_resolved_is_the_same_in_the_ledger_of_a_single_gateway() {
    let (name, url) = Postgres::shared().database("resolved_out");
    let nodes = InProcess::start(&url, 1).await;
    let first = &nodes.ledgers[0];
    let mut accounts = Vec::new();
    for _ in 0..3 {
        accounts.push(nodes.account_with(20_000).await);
    }
    let database = (&*name, &*url);
    let (charge, release) = (SuspenseEnd::Charge, SuspenseEnd::Release);
    let lost = resolved(database, first, accounts[0], charge).await;
    resolved(database, first, accounts[1], charge).await.comes_back(&url).await;
    let both = resolved(database, first, accounts[2], charge).await;
    let silent = resolved(database, first, accounts[2], release).await;
    let rest = 20_000 - both.amount;
    first.admit(reserve(accounts[2], rest)).await.expect("there is money").post(cost(rest));
    let spent = format!("SELECT spent FROM tollgate.accounts WHERE id = '{}'", accounts[2]);
    eventually("it is reported", || Postgres::shared().sql(&name, &spent) == "20000");
    silent.comes_back(&url).await;
    let mut expected = Vec::new();
    for account in &accounts {
        expected.push(settled(&name, first, *account).await);
    }
    assert_eq!(expected, [(lost.amount, 0), (1500, 0), (20_000, 1500)]);
    nodes.stop().await;
    Postgres::shared().sql(&name, "UPDATE tollgate.nodes SET term_ends = now()");

    let back = TempDir::new().expect("a directory");
    let db = Db::for_moving(&options(&url)).await.expect("the database");
    moving::move_out(&db, back.path()).await.expect("moves");
    let (single, _) = Ledger::open(Options::new(back.path())).expect("opens");
    for (account, expected) in accounts.iter().zip(expected) {
        let found = single.account(*account).expect("the account");
        let (spent, written_off) = (found.balance.spent.get(), found.written_off.get());
        assert_eq!((spent, written_off), expected, "{account}");
        let sum: i64 = lines(&single, *account).await.iter().map(|(_, amount)| amount).sum();
        assert_eq!(-sum, found.balance.available.get(), "{account}");
    }
    single.close();
}
