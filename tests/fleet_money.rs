//! Nodes of a fleet on one database, as their callers see them: what they spend together.

mod harness;

use std::sync::Arc;
use std::time::Duration;

use harness::fleet::{InProcess, cost, money, reserve};
use harness::postgres::Postgres;
use tollgate::ledger::{Refusal, VoidReason};

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
