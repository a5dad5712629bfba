//! Nodes of a fleet inside this process, that can be stopped in order or killed; and tasks on them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::fleet::postgres::tasks::SharedTasks;
use tollgate::ledger::{
    AccountId, Hold, Intent, KeyId, LedgerError, REPEATED_WITHIN, RepeatKey, RequestId, Reserve,
    Settlement, Task, TaskId, TaskPhase, TaskSettlement, Webhook,
};
use tollgate::money::Nanousd;
use tollgate::price::{Prices, Usage, UsageSource};

use crate::harness::fleet::{AccountRow, Member, database};
use crate::harness::postgres::Postgres;
use crate::harness::within_async;

/// Hold of a task, in nano-dollars.
pub(crate) const HELD: i64 = 1_000;
/// Grant of a customer, in nano-dollars.
pub(crate) const GRANTED: i64 = 1_000_000_000;
/// Longer than anything here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A fleet's database.
pub(crate) struct FleetDatabase {
    pub(crate) server: &'static Postgres,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl FleetDatabase {
    pub(crate) async fn new(name: &str) -> Self {
        let (name, url) = database(name).await;
        Self { server: Postgres::shared(), name, url }
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }

    /// The treasury's row of an account. What it holds is what its tasks hold.
    pub(crate) fn account(&self, account: AccountId) -> AccountRow {
        let row = AccountRow::of(self.server, &self.name, account);
        let tasks = "SELECT COALESCE(SUM(held), 0) FROM tollgate.tasks WHERE account =";
        let held: i64 = self.sql(&format!("{tasks} '{account}'")).parse().expect("a sum");
        assert_eq!(row.held, held, "the holds of its tasks");
        row
    }
}

pub(crate) fn tasks_of(member: &Member) -> SharedTasks {
    SharedTasks::of(Arc::clone(&member.fleet))
}

/// Copy of the disk as after `kill -9`; the member does nothing more.
pub(crate) async fn killed(mut member: Member) -> TempDir {
    member.falls_silent().await;
    let copy = tempfile::tempdir().expect("a directory");
    copy_all(member.dir.path(), copy.path());
    copy
}

/// Files that a crash does not leave, but a copy of the directory has.
const OF_THE_ORIGINAL: [&str; 3] = ["ballast", "head.json", "identity.json"];

pub(crate) fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            // Sled is made anew from the journal: the copy is of one moment.
            if entry.file_name() != "sled" {
                std::fs::create_dir_all(&target).expect("made");
                copy_all(&entry.path(), &target);
            }
        } else if !OF_THE_ORIGINAL.iter().any(|name| entry.file_name() == *name) {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// A customer with money, known to all these nodes.
pub(crate) async fn customer(first: &Member, others: &[&Member]) -> AccountId {
    let account = first.ledger.create_account("test").await.expect("an account").id;
    first.ledger.grant(account, "first", Nanousd::new(GRANTED)).await.expect("a grant");
    for other in others {
        other.ledger.catch_up().await.expect("followed");
    }
    account
}

pub(crate) async fn hold(member: &Member, account: AccountId, amount: i64) -> Hold {
    let reserve = Reserve {
        account,
        key: KeyId::from_number(7),
        model: "video".into(),
        price: None,
        request: RequestId::new(),
        amount: Nanousd::new(amount),
        floor: Nanousd::ZERO,
    };
    member.ledger.admit(reserve).await.expect("a hold")
}

pub(crate) fn task(hold: &Hold, account: AccountId, repeat: Option<RepeatKey>) -> Arc<Task> {
    let at = UnixMs::now();
    let intent = Intent {
        id: TaskId::random(),
        account,
        key: KeyId::from_number(7),
        hold: hold.id(),
        model: "video".into(),
        protocol: "xai".to_owned(),
        prices: Prices::default(),
        facts: Vec::new(),
        webhook_url: None,
        repeat,
        at,
        expires_at: UnixMs(at.0 + 3_600_000),
    };
    Arc::new(Task {
        intent: Arc::new(intent),
        upstream: "films".to_owned(),
        upstream_model: "grok".to_owned(),
        stage: TaskPhase::Submitting,
        webhook: Webhook::None,
    })
}

pub(crate) async fn opened(member: &Member, account: AccountId) -> Arc<Task> {
    let hold = hold(member, account, HELD).await;
    let task = task(&hold, account, None);
    let open = member.ledger.open_task(hold, Arc::clone(&task), REPEATED_WITHIN);
    open.await.expect("opened");
    task
}

pub(crate) async fn submitted(member: &Member, account: AccountId, upstream_id: &str) -> Arc<Task> {
    let task = opened(member, account).await;
    let stage = TaskPhase::Submitted { upstream_id: upstream_id.into() };
    let change = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
    let changed = member.ledger.change_task((account, task.id()), change).await;
    changed.expect("written").expect("changed")
}

pub(crate) fn charge(amount: i64) -> TaskSettlement {
    let usage = Usage { seconds: 4, ..Usage::ZERO };
    let charge = Nanousd::new(amount);
    TaskSettlement::Post(Settlement { charge, usage, source: UsageSource::Upstream })
}

pub(crate) async fn end(
    member: &Member,
    task: &Task,
    settlement: TaskSettlement,
) -> Result<Option<Arc<Task>>, LedgerError> {
    let what = ("succeeded", "{\"video_url\":\"u\"}".to_owned());
    member.ledger.end_task((task.intent.account, task.id()), what, settlement).await
}

/// Waits for something that comes by itself.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within_async(TIMEOUT, what, async || holds()).await;
}
