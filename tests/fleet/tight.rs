//! Small balances in a fleet: parallel calls over three nodes share what there is, over leases.

use std::sync::Arc;

use fastrand::Rng;
use tokio::task::JoinSet;
use tollgate::holds::HoldQueue;
use tollgate::money::Nanousd;

use crate::harness::fleet::InProcess;
use crate::harness::postgres::Postgres;
use crate::harness::rounds;
use crate::harness::tight::{Outcome, Script, TightAccount, play, random_rules};

/// Schedules that a full run plays, each on an account of its own.
const SCHEDULES: u64 = 25;

/// The seed of the first schedule is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_calls_over_three_nodes_overspend_nothing() {
    let (name, url) = Postgres::shared().database("tight");
    let nodes = InProcess::start(&url, 3).await;
    let first = fastrand::u64(..) >> 1;
    println!("from seed {first}");
    let queues: Vec<_> = (0..3).map(|_| Arc::<HoldQueue>::default()).collect();
    let mut all = Outcome::default();
    for seed in first..first + rounds(SCHEDULES) {
        let mut rng = Rng::with_seed(seed);
        let budget = rng.i64(1_000_000..5_000_000_000);
        let account = nodes.account_with(budget).await;
        let rules = random_rules(&mut rng);
        let mut calls = JoinSet::new();
        for _ in 0..rng.u8(1..=10) {
            let node = rng.usize(0..3);
            let ledger = Arc::clone(&nodes.ledgers[node]);
            let tight = TightAccount { ledger, account, ballast: Nanousd::ZERO };
            let script = Script::random(&mut rng).hurried();
            calls.spawn(play(tight, Arc::clone(&queues[node]), rules.clone(), script));
        }
        let mut sum = Outcome::default();
        while let Some(outcome) = calls.join_next().await {
            sum = sum.plus(outcome.expect("no panic"));
        }
        assert!(sum.charged <= budget, "seed {seed}: {sum:?} of {budget}");
        assert!(sum.owed <= sum.beyond, "seed {seed}: {sum:?}");
        all = all.plus(sum);
    }
    nodes.stop().await;
    println!("{all:?}");
    let sums = "SELECT sum(granted - available - spent), sum(leased), sum(held), sum(suspense), \
                sum(spent + debt) FROM tollgate.accounts";
    // What a call owed may have been paid meanwhile by what another did not need.
    let bills = all.charged + all.owed;
    assert_eq!(Postgres::shared().sql(&name, sums), format!("0|0|0|0|{bills}"));
}
