//! Small balances: random schedules of parallel calls on a real ledger, with upstreams that think in
//! secret, ignore limits, or count wrong.

use std::sync::Arc;

use fastrand::Rng;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tollgate::holds::HoldQueue;
use tollgate::ledger::{AccountId, Ledger, Options, VoidReason};

use crate::harness::fleet::{money, reserve};
use crate::harness::ledger::close_and_verify;
use crate::harness::rounds;
use crate::harness::tight::{Outcome, Script, TightAccount, play, random_rules};

/// Schedules that a full run plays.
const SCHEDULES: u64 = 100_000;

/// Plays a schedule on an account with a random budget, and checks it.
async fn schedule(ledger: &Arc<Ledger>, account: AccountId, seed: u64) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    let before = ledger.account(account).expect("an account").balance;
    let budget = money(rng.i64(1_000_000..5_000_000_000));
    let rest = before.available.saturating_sub(budget);
    let ballast = ledger.reserve(reserve(account, rest.get())).expect("it is there");
    let tight = TightAccount { ledger: Arc::clone(ledger), account, ballast: rest };
    let (queue, rules) = (Arc::<HoldQueue>::default(), random_rules(&mut rng));
    let mut calls = JoinSet::new();
    for _ in 0..rng.u8(1..=10) {
        let script = Script::random(&mut rng);
        calls.spawn(play(tight.clone(), Arc::clone(&queue), rules.clone(), script));
    }
    let mut sum = Outcome::default();
    while let Some(outcome) = calls.join_next().await {
        sum = sum.plus(outcome.expect("no panic"));
    }
    let after = ledger.account(account).expect("an account").balance;
    assert_eq!(after.held, rest, "seed {seed}: a hold was left open");
    // Only what upstreams bill beyond what was held is ever owed, and nothing else is overspent.
    assert!(sum.charged <= budget.get(), "seed {seed}: {sum:?} of {budget}");
    assert!(sum.owed <= sum.beyond, "seed {seed}: {sum:?}");
    // A debt may have been paid meanwhile, by what other calls did not need.
    let paid = sum.owed - after.debt.get();
    assert!(paid >= 0, "seed {seed}: {sum:?}, {after:?}");
    assert_eq!(
        after.available.get(),
        budget.get() - sum.charged - paid,
        "seed {seed}: {sum:?}, {after:?}"
    );
    // Pays what is owed.
    ballast.void(VoidReason::Unreached);
    sum
}

/// `TOLLGATE_PROOF_PERCENT` says how many schedules are played, and the seed of the first is printed.
#[test]
fn no_schedule_of_parallel_calls_overspends_or_waits_for_ever() {
    let dir = TempDir::new().expect("directory");
    let ledger = Ledger::open(Options::new(dir.path())).expect("opens").0;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().expect("a runtime");
    let account = runtime.block_on(async {
        let account = ledger.create_account("test").await.expect("account").id;
        ledger.grant(account, "all", money(i64::MAX / 4)).await.expect("grant");
        account
    });
    let first = fastrand::u64(..) >> 1;
    let schedules = rounds(SCHEDULES / 20);
    println!("{schedules} schedules from seed {first}");
    let mut sum = Outcome::default();
    runtime.block_on(async {
        tokio::time::pause();
        for seed in first..first + schedules {
            sum = sum.plus(schedule(&ledger, account, seed).await);
        }
    });
    println!("{sum:?}");
    let kinds = [sum.served, sum.refused, sum.clamped, sum.rolled, sum.cut];
    assert!(schedules < 500 || kinds.iter().all(|count| *count > 0), "{sum:?} shows too little");
    close_and_verify(ledger, dir.path());
}
