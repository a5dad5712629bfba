//! Nodes of a fleet on one database, as their callers see them: what they spend together.

mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::fleet::{InProcess, cost, database, money, reserve};
use harness::postgres::Postgres;
use harness::{Gateway, ask, chat_model, eventually, simulator};
use tollgate::ledger::{Refusal, VoidReason};
use tollgate::money::Nanousd;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_nodes_spend_together_adds_up() {
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
    let db = one.fleet().expect("a fleet").db();
    let readers: Vec<_> = (0..60)
        .map(|_| {
            let db = db.clone();
            tokio::spawn(async move { db.query("SELECT pg_sleep(2)", &[]).await.is_ok() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    let hold = one.admit(reserve(account, 200)).await.expect("there is money");
    assert!(begun.elapsed() < Duration::from_secs(1), "waited for {:?}", begun.elapsed());
    hold.post(cost(100));
    let new = other.create_account("new").await.expect("an account").id;
    let begun = Instant::now();
    while one.account(new).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(1), "followed {:?} late", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    nodes.stop().await;
}

/// What an upstream reports may be absurd, and that of two nodes no sum that fits. Both go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn absurd_usage_of_two_nodes_shuts_neither_of_them_out() {
    let (name, url) = Postgres::shared().database("absurd");
    let nodes = InProcess::start(&url, 2).await;
    let accounts = [nodes.account_with(10_000).await, nodes.account_with(10_000).await];
    for account in accounts {
        for ledger in &nodes.ledgers {
            let hold = ledger.admit(reserve(account, 200)).await.expect("there is money");
            hold.post(cost(i64::MAX));
        }
    }
    let reported = "SELECT count(*), min(written_off) FROM tollgate.accounts
        WHERE available + spent = granted";
    eventually("both have reported", || {
        Postgres::shared().sql(&name, reported) == format!("2|{}", i64::MAX)
    });
    for ledger in &nodes.ledgers {
        let fleet = ledger.fleet().expect("a fleet");
        assert!(fleet.may_spend(), "a node was shut out");
        let seen = fleet.db().overview().await.expect("the fleet can be seen");
        assert_eq!(seen.sums.money.written_off, Nanousd::MAX);
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
        (posted.charged, posted.written_off)
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
    assert_eq!((posted.charged, posted.written_off), (money(90), money(410)), "all that there is");
    last.post(cost(60));
    nodes.stop().await;
    let sums = "SELECT granted, available, leased, spent, written_off FROM tollgate.accounts";
    assert_eq!(Postgres::shared().sql(&name, sums), "10000|0|0|10000|410");
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
