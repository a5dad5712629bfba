//! Contract of a ledger's tasks, for each store: the ledger's own, memory shared with nobody, and a fleet's
//! PostgreSQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::clock::UnixMs;
use tollgate::ledger::{
    AccountId, Actor, DeliveryAttempt, Hold, IdempotencyKey, Intent, KeyId, Ledger, LedgerError,
    REPEATED_WITHIN, RepeatKey, RepeatLookup, RequestId, Reserve, Settlement, Task, TaskFilter,
    TaskId, TaskPhase, TaskSettlement, Webhook,
};
use tollgate::money::Nanousd;
use tollgate::price::{Prices, Usage, UsageSource};

use super::{let_pass_async, next_millisecond};

/// Hold of each task, in nano-dollars.
const HELD: i64 = 1_000;
/// The ledger keeps accounts in so many parts, by their numbers: what is an account's is nobody's
/// whose number differs by this, though it is in the same part.
const PARTS: u64 = 64;
/// Money that is enough for all tasks of an account here.
pub(crate) const ENOUGH: Nanousd = Nanousd::new(1_000_000);

/// A ledger without tasks, and customers with money.
pub(crate) struct Subject {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) customer: AccountId,
    pub(crate) stranger: AccountId,
}

/// Holds a ledger to all of the contract.
pub(crate) async fn check(subject: &Subject) {
    subject.tasks_are_found_by_whose_they_are().await;
    subject.stages_go_one_way().await;
    subject.a_task_ends_once().await;
    subject.a_submit_is_repeated_within_its_time().await;
    subject.doubts_are_listed_and_resolved_once().await;
    subject.ends_are_announced().await;
    subject.lists_go_on_behind_each_page().await;
    subject.what_ended_is_forgotten().await;
}

fn charge(amount: i64) -> TaskSettlement {
    let usage = Usage { seconds: 4, ..Usage::ZERO };
    let charge = Nanousd::new(amount);
    TaskSettlement::Post(Settlement { charge, usage, source: UsageSource::Upstream })
}

fn taken_as(upstream_id: &str) -> TaskPhase {
    TaskPhase::Submitted { upstream_id: upstream_id.into() }
}

impl Subject {
    async fn hold(&self, account: AccountId) -> Hold {
        let reserve = Reserve {
            account,
            key: KeyId::from_number(7),
            model: "video".into(),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(HELD),
            floor: Nanousd::ZERO,
        };
        self.ledger.admit(reserve).await.expect("a hold")
    }

    fn task(hold: &Hold, account: AccountId, repeat: Option<RepeatKey>) -> Task {
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
        Task {
            intent: Arc::new(intent),
            upstream: "films".to_owned(),
            upstream_model: "grok".to_owned(),
            stage: TaskPhase::Submitting,
            webhook: Webhook::None,
        }
    }

    /// Opens a task. Two of the same account are never of the same millisecond.
    async fn open(
        &self,
        account: AccountId,
        repeat: Option<RepeatKey>,
        within: Duration,
    ) -> Result<Arc<Task>, LedgerError> {
        next_millisecond().await;
        let hold = self.hold(account).await;
        let task = Arc::new(Self::task(&hold, account, repeat));
        self.ledger.open_task(hold, Arc::clone(&task), within).await.map(|()| task)
    }

    async fn opened(&self, account: AccountId) -> Arc<Task> {
        self.open(account, None, REPEATED_WITHIN).await.expect("opened")
    }

    async fn to(&self, account: AccountId, id: TaskId, stage: TaskPhase) -> Option<Arc<Task>> {
        let change = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
        self.ledger.change_task((account, id), change).await.expect("written")
    }

    async fn end(
        &self,
        account: AccountId,
        id: TaskId,
        settlement: TaskSettlement,
    ) -> Option<Arc<Task>> {
        let what = ("succeeded", "{\"video_url\":\"u\"}".to_owned());
        self.ledger.end_task((account, id), what, settlement).await.expect("written")
    }

    async fn found(&self, account: AccountId, id: &str) -> Option<Arc<Task>> {
        self.ledger.task(account, id).await.expect("read")
    }

    async fn in_work(&self, account: AccountId, id: TaskId) -> Option<Arc<Task>> {
        self.ledger.task_in_work((account, id)).await.expect("read")
    }

    async fn tasks_are_found_by_whose_they_are(&self) {
        let Self { ledger, customer, stranger } = self;
        let task = self.opened(*customer).await;
        let id = task.id();
        assert_eq!(self.found(*customer, &id.to_string()).await.as_ref(), Some(&task));
        assert_eq!(self.found(*customer, &TaskId::random().to_string()).await, None);
        assert_eq!(self.in_work(*customer, id).await.as_ref(), Some(&task));
        let neighbor = AccountId::from_number(customer.number().wrapping_add(PARTS));
        for other in [*stranger, neighbor] {
            assert_eq!(self.in_work(other, id).await, None, "not of {other}");
            assert_eq!(
                self.to(other, id, TaskPhase::InDoubt).await,
                None,
                "not for {other} to change"
            );
            let ended = self.end(other, id, TaskSettlement::Void).await;
            assert_eq!(ended, None, "not for {other} to end");
        }
        let listed = ledger.listed_task(id).await.expect("read").expect("whosever it is");
        assert_eq!((&listed.task, listed.tried), (&*task, None));
        assert_eq!(ledger.listed_task(TaskId::random()).await.expect("read"), None);
        let taken = self.to(*customer, id, taken_as("found-1")).await.expect("changed");
        for name in [id.to_string(), "found-1".to_owned()] {
            assert_eq!(self.found(*customer, &name).await.as_ref(), Some(&taken), "{name}");
            assert_eq!(self.found(*stranger, &name).await, None, "{name} is not theirs");
        }
        assert_eq!(self.found(*customer, "found-2").await, None);
        self.end(*customer, id, TaskSettlement::Void).await.expect("open until then");
    }

    async fn stages_go_one_way(&self) {
        let account = self.customer;
        let id = self.opened(account).await.id();
        let taken = self.to(account, id, taken_as("way-1")).await.expect("changed");
        for stage in [TaskPhase::Submitting, TaskPhase::InDoubt, taken_as("way-2")] {
            assert_eq!(self.to(account, id, stage.clone()).await, None, "{stage:?}");
        }
        let found = self.found(account, &id.to_string()).await;
        assert_eq!(found, Some(taken), "nothing has changed");
        assert_eq!(self.to(account, TaskId::random(), taken_as("way-3")).await, None);
        self.end(account, id, TaskSettlement::Void).await.expect("open until then");
        assert_eq!(self.to(account, id, taken_as("way-4")).await, None, "over");
    }

    async fn a_task_ends_once(&self) {
        let account = self.customer;
        for (settlement, charged) in [(charge(400), 400), (TaskSettlement::Void, 0)] {
            let id = self.opened(account).await.id();
            let name = format!("end-{charged}");
            self.to(account, id, taken_as(&name)).await.expect("changed");
            let ended = self.end(account, id, settlement).await.expect("open until then");
            let end = ended.ended().expect("over");
            assert_eq!((end.charged.get(), &*end.state), (charged, "succeeded"));
            next_millisecond().await;
            assert_eq!(self.end(account, id, charge(1)).await, None, "the second finds it ended");
            assert_eq!(self.in_work(account, id).await, None, "nothing remains to be done");
            assert_eq!(self.found(account, &name).await, Some(ended), "kept as it ended");
        }
        assert_eq!(self.end(account, TaskId::random(), charge(1)).await, None, "unknown");
    }

    async fn a_submit_is_repeated_within_its_time(&self) {
        let (ledger, account) = (&self.ledger, self.customer);
        let repeat = RepeatKey { key: [1; 32], body: [2; 32] };
        let other = RepeatKey { body: [3; 32], ..repeat };
        let stored = async |repeat: &RepeatKey, within: Duration| {
            ledger.repeated(account, repeat, (UnixMs::now(), within)).await.expect("read")
        };
        assert_eq!(stored(&repeat, REPEATED_WITHIN).await, RepeatLookup::New);
        let first = self.open(account, Some(repeat), REPEATED_WITHIN).await.expect("the first");
        assert_eq!(stored(&repeat, REPEATED_WITHIN).await, RepeatLookup::Same(first.id()));
        assert_eq!(stored(&other, REPEATED_WITHIN).await, RepeatLookup::Other);
        let brief = Duration::from_millis(1);
        let brief_is_over = async || {
            next_millisecond().await;
            next_millisecond().await;
        };
        brief_is_over().await;
        for (stage, what) in [(None, "under way"), (Some(TaskPhase::InDoubt), "in doubt")] {
            if let Some(stage) = stage {
                self.to(account, first.id(), stage).await.expect("changed");
            }
            assert_eq!(stored(&repeat, brief).await, RepeatLookup::Same(first.id()), "{what}");
            let twin = self.open(account, Some(repeat), brief).await;
            assert!(matches!(twin, Err(LedgerError::Conflict)), "{what}: {twin:?}");
        }
        // Counted from when it was taken, and not from when it began.
        let begun = Instant::now();
        let_pass_async(Duration::from_millis(400), "what follows is read within as much").await;
        self.to(account, first.id(), taken_as("repeat-1")).await.expect("changed");
        let since = begun.elapsed();
        assert_eq!(
            stored(&repeat, since).await,
            RepeatLookup::Same(first.id()),
            "it was taken just now"
        );
        brief_is_over().await;
        assert_eq!(stored(&repeat, brief).await, RepeatLookup::New, "later");
        // Its customer waits for the end of the task, and then does not.
        let now = UnixMs::now();
        ledger.submit_answered(&first, UnixMs(now.0 + 60_000)).await.expect("noted");
        assert_eq!(stored(&repeat, brief).await, RepeatLookup::Same(first.id()), "it waits");
        ledger.submit_answered(&first, now).await.expect("noted");
        brief_is_over().await;
        assert_eq!(stored(&repeat, brief).await, RepeatLookup::New, "it waits no more");
        let holds = ledger.open_holds();
        let twin = self.open(account, Some(repeat), REPEATED_WITHIN).await;
        assert!(matches!(twin, Err(LedgerError::Conflict)), "{twin:?}");
        assert_eq!(ledger.open_holds(), holds, "what the twin held is given back");
        let late = self.open(account, Some(repeat), brief).await;
        let late = late.expect("the time of the first is over");
        assert_eq!(stored(&repeat, REPEATED_WITHIN).await, RepeatLookup::Same(late.id()));
        self.end(account, first.id(), TaskSettlement::Void).await.expect("open until then");
        let newer = "the end of the older one says nothing of the newer one";
        assert_eq!(
            stored(&repeat, REPEATED_WITHIN).await,
            RepeatLookup::Same(late.id()),
            "{newer}"
        );
        ledger.submit_answered(&first, UnixMs::now()).await.expect("nothing to note");
        self.end(account, late.id(), TaskSettlement::Void).await.expect("open until then");
        let again = "no upstream took it, so it may be tried again";
        assert_eq!(stored(&repeat, REPEATED_WITHIN).await, RepeatLookup::New, "{again}");
    }

    async fn doubts_are_listed_and_resolved_once(&self) {
        let (ledger, account) = (&self.ledger, self.customer);
        let (older, newer) = (self.opened(account).await.id(), self.opened(account).await.id());
        let ada = Actor::operator("ada");
        let resolve = async |request: &str, id: TaskId, charge: Option<i64>| {
            let key = IdempotencyKey { id: Some(request.to_owned()), digest: [1; 32] };
            let (by, end) =
                (ledger.by(&ada).with_idempotency_key(key), ("failed", "{}".to_owned()));
            by.resolve_task((account, id), end, charge.map(Nanousd::new)).await
        };
        let early = resolve("early", older, None).await;
        assert!(matches!(early, Err(LedgerError::NoDoubt(_))), "{early:?}");
        for id in [newer, older] {
            self.to(account, id, TaskPhase::InDoubt).await.expect("changed");
        }
        let doubts = async || {
            let doubts = ledger.tasks_in_doubt().await.expect("read");
            doubts.iter().map(|task| task.id()).collect::<Vec<_>>()
        };
        assert_eq!(doubts().await, [older, newer], "oldest first");
        for wrong in [HELD + 1, 0] {
            let refused = resolve("wrong", older, Some(wrong)).await;
            assert!(matches!(refused, Err(LedgerError::Invalid(_))), "{wrong}: {refused:?}");
        }
        let ended = resolve("first", older, Some(300)).await.expect("resolved").expect("first");
        assert_eq!(ended.ended().map(|end| end.charged.get()), Some(300));
        assert_eq!(resolve("first", older, Some(300)).await, Ok(None), "the same request");
        let late = resolve("late", older, None).await;
        assert!(matches!(late, Err(LedgerError::NoDoubt(_))), "{late:?}");
        assert_eq!(doubts().await, [newer]);
        self.to(account, newer, taken_as("doubt-1")).await.expect("it was taken after all");
        assert!(doubts().await.is_empty());
        self.end(account, newer, TaskSettlement::Void).await.expect("open until then");
    }

    async fn ends_are_announced(&self) {
        let (ledger, account) = (&self.ledger, self.customer);
        let hold = self.hold(account).await;
        let plain = Self::task(&hold, account, None);
        let webhook_url = Some("https://example.com/hook".to_owned());
        let intent = Arc::new(Intent { webhook_url, ..Intent::clone(&plain.intent) });
        let due = Webhook::Due { tries: 0, at: UnixMs(0) };
        let task = Arc::new(Task { intent, webhook: due, ..plain });
        let id = task.id();
        ledger.open_task(hold, task, REPEATED_WITHIN).await.expect("opened");
        let ended = self.end(account, id, TaskSettlement::Void).await.expect("open until then");
        assert_eq!(self.in_work(account, id).await, Some(ended), "its end is to be announced");
        assert_eq!(ledger.tried(id).await.expect("read"), None);
        let announce = async |tried: &DeliveryAttempt, webhook: Webhook| {
            let change = |task: &Task| Task { webhook, ..task.clone() };
            let announced = ledger.announced((account, id), tried.clone(), change).await;
            announced.expect("written").expect("it was due")
        };
        let failed = DeliveryAttempt::now(Err("nobody listens".to_owned()));
        let given_up = announce(&failed, Webhook::GivenUp).await;
        assert_eq!(ledger.tried(id).await.expect("read").as_ref(), Some(&failed));
        assert_eq!(self.in_work(account, id).await, None);
        let again = Task { webhook: due, ..Task::clone(&given_up) };
        let by = ledger.by(&Actor::Gateway);
        by.announce_again(again.clone()).await.expect("written");
        assert_eq!(self.in_work(account, id).await.as_deref(), Some(&again));
        let answered = DeliveryAttempt::now(Ok(204));
        let delivered = announce(&answered, Webhook::Delivered).await;
        let listed = ledger.listed_task(id).await.expect("read").expect("kept");
        assert_eq!((listed.task, listed.tried), (Task::clone(&delivered), Some(answered)));
        let announced = ledger.tasks(Some(account), Some(TaskFilter::Announced), None, 9).await;
        let announced = announced.expect("read").expect("a page").tasks;
        assert_eq!(announced.iter().map(|one| one.task.id()).collect::<Vec<_>>(), [id]);
    }

    /// All ids of a list, in pages of at most `limit`.
    async fn pages(
        &self,
        account: Option<AccountId>,
        filter: Option<TaskFilter>,
        limit: usize,
    ) -> Vec<TaskId> {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = self.ledger.tasks(account, filter.clone(), after, limit).await;
            let page = page.expect("read").expect("a page");
            assert!(page.tasks.len() <= limit, "{} of {limit}", page.tasks.len());
            ids.extend(page.tasks.iter().map(|one| one.task.id()));
            match page.next_after {
                Some(next) => after = Some(next),
                None => return ids,
            }
        }
    }

    async fn lists_go_on_behind_each_page(&self) {
        let account = self.stranger;
        let mut ids = Vec::new();
        for number in 0..5 {
            let id = self.opened(account).await.id();
            self.to(account, id, taken_as(&format!("list-{number}"))).await.expect("changed");
            if number % 2 == 0 {
                self.end(account, id, TaskSettlement::Void).await.expect("open until then");
            }
            ids.push(id);
        }
        ids.reverse();
        for limit in [1, 2, 3, 9] {
            assert_eq!(self.pages(Some(account), None, limit).await, ids, "pages of {limit}");
            let open = self.pages(Some(account), Some(TaskFilter::Open), limit).await;
            assert_eq!(open, [ids[1], ids[3]], "pages of {limit}");
            let ended = TaskFilter::Ended("succeeded".to_owned());
            let ended = self.pages(Some(account), Some(ended), limit).await;
            assert_eq!(ended, [ids[0], ids[2], ids[4]], "pages of {limit}");
        }
        assert_eq!(self.pages(None, None, 4).await[..5], ids, "of all, the newest first");
        let unknown = self.ledger.tasks(None, None, Some(TaskId::random()), 3).await;
        assert_eq!(unknown.expect("read"), None, "behind no task");
    }

    async fn what_ended_is_forgotten(&self) {
        let ledger = &self.ledger;
        let open = self.pages(None, Some(TaskFilter::Open), 9).await;
        let ended = self.pages(None, None, 9).await.len() - open.len();
        assert_eq!(ledger.forget_tasks(UnixMs(1), 10).await.expect("read"), 0, "none is so old");
        let future = UnixMs(UnixMs::now().0 + 1_000);
        let mut forgotten = 0;
        loop {
            let count = ledger.forget_tasks(future, 4).await.expect("forgotten");
            assert!(count <= 4, "{count} of at most 4");
            forgotten += count;
            if count == 0 {
                break;
            }
        }
        assert_eq!(forgotten, ended, "all that ended, and nothing else");
        assert_eq!(self.pages(None, None, 9).await, open, "open ones are kept");
        for id in ["found-1", "end-400", "list-0"] {
            for account in [self.customer, self.stranger] {
                assert_eq!(self.found(account, id).await, None, "{id} is forgotten");
            }
        }
    }
}
