//! The contract of tasks, put to a ledger that has them itself and to one that shares them. The third,
//! on PostgreSQL, is in the tests of the fleet.

mod memory;

use std::path::Path;
use std::sync::Arc;

use memory::MemoryFleet;
use tollgate::ledger::{AccountId, Ledger, Options};

use crate::harness::task_contract::{ENOUGH, Subject, check};

async fn account(ledger: &Ledger) -> AccountId {
    let account = ledger.create_account("test").await.expect("an account").id;
    ledger.grant(account, "first", ENOUGH).await.expect("a grant");
    account
}

fn open(options: Options) -> Arc<Ledger> {
    Ledger::open(Options { disk_free_bytes_min: 0, ..options }).expect("opens").0
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_stand_in_the_ledger_keep_the_contract() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(Options::new(dir.path()));
    let (customer, stranger) = (account(&ledger).await, account(&ledger).await);
    check(&Subject { ledger, customer, stranger }).await;
}

/// A ledger in `dir` that shares its tasks, and has been lent money of each account.
async fn sharing(dir: &Path, fleet: MemoryFleet) -> Subject {
    let ledger = open(Options::with_funds(dir, Arc::new(fleet)));
    let (customer, stranger) = (account(&ledger).await, account(&ledger).await);
    for account in [customer, stranger] {
        ledger.take_in(account, ENOUGH);
    }
    Subject { ledger, customer, stranger }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_are_shared_keep_the_contract() {
    let dir = tempfile::tempdir().expect("a directory");
    let subject = sharing(dir.path(), MemoryFleet::default()).await;
    check(&subject).await;
    let open = subject.ledger.open_holds();
    assert_eq!(open, 0, "each hold went with its task, or was voided with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_tasks_keep_the_contract_while_answers_are_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    check(&sharing(dir.path(), MemoryFleet::losing_answers()).await).await;
}
